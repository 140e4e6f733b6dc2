//! Turns a submission into a message: its file is checked as a whole, then read again into a transaction.
//!
//! The submitter is the owner of the file, as reported by the kernel. The login name is that of passwd(5), or for users
//! of a directory service the one that the program found there. Nothing of a damaged file has any effect.
//!
//! Each recipient has one fate, independent of the others. It is in a durable message; or reported, if it was refused
//! permanently, or temporarily until its lifetime ended; or pending, in which case the submission stays. Finished
//! recipients are recorded under the message's queue id before the message is submitted (`reported`).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use stentor_core::memory::PIECE_BYTES;
use stentor_core::{Core, Settings, intake};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::dsn;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_sendmail::addresses::qualified;
use stentor_sendmail::format::SubmissionEnvelope;
use stentor_sendmail::settings::{LocalUser, login_of};
use stentor_sessions::{ClientName, ClientProof, Speaker, Stranger, Transaction};
use stentor_smtp::server::{Body, MailFrom, Notify, RcptTo, TextBody, xtext_decode};

use super::file::{OpenSubmission, READ_BYTES, open};
use super::folder::{Folder, TakenSubmission};
use super::refusal::{OfferedRcpt, Subject, SubmissionRefusal, report};
use super::reported_recipients::FinishedRcpts;
use super::{blocking, origin, rights};

/// Where login names are looked up: no directory service is asked while mail waits.
const PASSWD: &str = "/etc/passwd";
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SPEAKER: Speaker<'_> = Speaker {
    client: CLIENT,
    name: ClientName::Is("localhost"),
    helo: "localhost",
    may_relay: true,
    proof: ClientProof::None,
    session: None,
    stranger: Stranger::UNKNOWN,
};

const UNREADABLE: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "The submission could not be read");
const UNWRITABLE: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "The submission folder is not writable");

/// A transaction with the beginning of its content, and its accepted recipients.
struct PreparedTransaction {
    transaction: Box<Transaction>,
    /// Octets before the file's content.
    prefix: Vec<u8>,
    accepted: Vec<OfferedRcpt>,
}

/// Result of offering the recipients.
struct OfferOutcome {
    /// `None`: none was accepted.
    prepared: Option<PreparedTransaction>,
    /// Temporarily refused recipients.
    deferred: Vec<SubmissionRefusal>,
}

/// Result of reporting refused recipients to the sender.
enum RefusalNotice {
    Sender,
    Nobody(&'static str),
    TooLarge,
}

/// Result of a submission.
pub(super) enum Outcome {
    /// The message is durable, or its return to the sender is.
    Done,
    /// It is durable for some recipients; the others are tried again. The value must be recorded when the submission is
    /// put back.
    Partly(FinishedRcpts),
    /// The reply that says why it was deferred.
    Later(Reply),
    /// It cannot become a message, and nobody can be told.
    Bad(String),
}

/// Submits a file to the queue under its id.
pub(super) async fn submit(core: &Arc<Core>, folder: &Arc<Folder>, taken: &TakenSubmission) -> Outcome {
    let (path, stem, files) = (folder.path_of(taken), taken.stem.clone(), folder.clone());
    let (opened, reported) = match blocking(move || Ok((open(&path)?, files.reported(&stem)))).await {
        Ok((Ok(opened), Ok(reported))) => (opened, reported),
        Ok((Err(why), _)) => return Outcome::Bad(why),
        Ok((_, Err(error))) if error.kind() == io::ErrorKind::InvalidData => {
            return Outcome::Bad("the file of reported recipients is damaged".to_owned());
        }
        Ok((_, Err(error))) | Err(error) => {
            tracing::warn!(message = %taken.id, %error, "a submission could not be read");
            return Outcome::Later(UNREADABLE);
        }
    };
    let settings = core.settings();
    let table = std::fs::read_to_string(PASSWD).unwrap_or_default();
    let login = login_of(&table, opened.uid).unwrap_or(&opened.envelope.login).to_owned();
    let user = LocalUser { uid: opened.uid, login };
    match sender(&opened.envelope, &user, &settings) {
        Ok(sender) => {
            Box::pin(Injection { core, settings: &settings, user, opened, folder, taken, reported }.run(sender)).await
        }
        Err(why) => Outcome::Bad(why),
    }
}

/// Returns the reverse path.
fn sender(envelope: &SubmissionEnvelope, user: &LocalUser, settings: &Settings) -> Result<ReversePath, String> {
    let origin = origin(settings);
    let text = match envelope.sender.as_deref() {
        Some("") => return Ok(ReversePath::Null),
        Some(text) => qualified(text, origin),
        None => user.address(origin),
    };
    Address::parse(text.as_bytes(), true).map(ReversePath::Address).map_err(|why| format!("sender {text:?}: {why}"))
}

struct Injection<'a> {
    core: &'a Arc<Core>,
    settings: &'a Arc<Settings>,
    user: LocalUser,
    opened: OpenSubmission,
    folder: &'a Arc<Folder>,
    taken: &'a TakenSubmission,
    /// Its recipients that are done.
    reported: FinishedRcpts,
}

impl Injection<'_> {
    async fn run(self, sender: ReversePath) -> Outcome {
        let settings = self.settings;
        let (origin, hostname) = (origin(settings), &settings.config.hostname);
        let is_own = rights(settings).allow(&self.user, sender.as_str(), &[origin, hostname]);
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        let max = settings.config.submission.recipients_max as usize;
        for (at, recipient) in self.opened.envelope.recipients.iter().enumerate() {
            if self.reported.done.contains(&at) {
                continue;
            }
            let orcpt = recipient.orcpt.clone().filter(|orcpt| is_orcpt(orcpt));
            let notify = recipient.notify.and_then(Notify::from_bits);
            let reply = if !is_own && settings.config.submission.strict {
                Some(Reply::new(
                    550,
                    Enhanced::new(5, 7, 1),
                    format!("{} may not send as this address", self.user.shown()),
                ))
            } else if accepted.len() == max {
                Some(Reply::fixed(550, Enhanced::new(5, 5, 3), "Too many recipients"))
            } else {
                match Address::parse(qualified(&recipient.address, origin).as_bytes(), true) {
                    Ok(address) => {
                        accepted.push(OfferedRcpt { at, rcpt: RcptTo { address, notify, orcpt: orcpt.clone() } });
                        None
                    }
                    Err(why) => Some(Reply::new(553, Enhanced::new(5, 1, 3), format!("Invalid address: {why}"))),
                }
            };
            let address = recipient.address.clone();
            let is_expired = false;
            refused.extend(reply.map(|reply| SubmissionRefusal { at, address, notify, orcpt, reply, is_expired }));
        }
        if accepted.is_empty() && refused.is_empty() {
            return Outcome::Done;
        }
        // The path of another user must not get the report about mail that this user may not send.
        let back = if is_own || !settings.config.submission.strict {
            sender.clone()
        } else {
            match Address::parse(self.user.address(origin).as_bytes(), true) {
                Ok(own) => ReversePath::Address(own),
                Err(_) => ReversePath::Null,
            }
        };
        let fields = if is_own { String::new() } else { warning(hostname, &self.user, &sender) };
        let is_last = self.is_over(&sender);
        match self.transact(sender, accepted, &mut refused, &fields).await {
            Err(reply) => Outcome::Later(reply),
            Ok(mut offered) => {
                if is_last {
                    refused.extend(offered.deferred.drain(..).map(SubmissionRefusal::expired));
                }
                Box::pin(self.conclude(offered, back, refused, is_last)).await
            }
        }
    }

    /// Whether the submission has used up the lifetime of this sender's mail.
    fn is_over(&self, sender: &ReversePath) -> bool {
        let config = &self.settings.config;
        let domain = sender.as_str().rsplit_once('@').map_or("", |(_, domain)| domain);
        let flow = config.sending.senders.iter().find(|(name, _)| name == domain);
        let lifetime_ms = flow.and_then(|(_, flow)| flow.expire_ms).unwrap_or(config.retry.lifetime_ms);
        self.core.clock.now().saturating_sub(self.opened.envelope.at) >= lifetime_ms
    }

    /// Offers the recipients; those permanently refused are added to `refused`.
    ///
    /// # Errors
    /// The reply for all recipients: no mail is accepted now.
    async fn transact(
        &self,
        sender: ReversePath,
        recipients: Vec<OfferedRcpt>,
        refused: &mut Vec<SubmissionRefusal>,
        fields: &str,
    ) -> Result<OfferOutcome, Reply> {
        let (core, settings) = (self.core, self.settings);
        let smtputf8 = !sender.is_ascii() || recipients.iter().any(|offered| !offered.rcpt.address.is_ascii());
        let ret = self.opened.envelope.ret;
        let envid =
            self.opened.envelope.envid.clone().filter(|envid| xtext_decode(envid).is_some_and(|id| !id.is_empty()));
        let size = Some(self.opened.head.message);
        let mail = MailFrom {
            path: sender,
            size,
            body: Body::EightBitMime,
            smtputf8,
            ret,
            envid,
            requiretls: false,
            verp: None,
        };
        let mut transaction = Transaction::begin_local(core, mail, self.taken.id, self.user.shown())?;
        if let Err(reply) = transaction.filtered_locally(core, settings, &self.user.shown()).await {
            let all = recipients.iter().map(|rcpt| SubmissionRefusal::of(rcpt, reply.clone())).collect();
            let (gone, deferred) = if reply.is_permanent() { (all, Vec::new()) } else { (Vec::new(), all) };
            refused.extend(gone);
            return Ok(OfferOutcome { prepared: None, deferred });
        }
        let (mut accepted, mut deferred) = (Vec::with_capacity(recipients.len()), Vec::new());
        for rcpt in recipients {
            let reply = transaction.rcpt(core, settings, SPEAKER, rcpt.rcpt.clone()).await;
            match reply.code {
                250 => accepted.push(rcpt),
                ..500 => deferred.push(SubmissionRefusal::of(&rcpt, reply)),
                _ => refused.push(SubmissionRefusal::of(&rcpt, reply)),
            }
        }
        if accepted.is_empty() {
            return Ok(OfferOutcome { prepared: None, deferred });
        }
        transaction.reserve(core).await?;
        let mut prefix = transaction.start_local_data(core, settings, self.user.uid);
        prefix.extend_from_slice(fields.as_bytes());
        Ok(OfferOutcome { prepared: Some(PreparedTransaction { transaction, prefix, accepted }), deferred })
    }

    /// Reports refused recipients, then stores the message for accepted ones; deferred ones stay. `is_last`: there is
    /// no other try.
    async fn conclude(
        mut self,
        offered: OfferOutcome,
        back: ReversePath,
        refused: Vec<SubmissionRefusal>,
        is_last: bool,
    ) -> Outcome {
        let OfferOutcome { prepared, deferred } = offered;
        let is_rest = prepared.is_none() && deferred.is_empty();
        if (is_rest || !refused.is_empty())
            && let later @ (Outcome::Later(_) | Outcome::Bad(_)) = self.give_back(&back, refused, is_rest).await
        {
            return later;
        }
        let Some(PreparedTransaction { transaction, prefix, accepted }) = prepared else {
            return deferred.into_iter().next().map_or(Outcome::Done, |first| Outcome::Later(first.reply));
        };
        let waiting = deferred.first().map(|first| first.reply.clone());
        if waiting.is_some() {
            let part = accepted.iter().map(|offered| offered.at).collect();
            self.reported.under_way.push((self.taken.id, part));
            if let Err(reply) = self.keep_reported().await {
                return Outcome::Later(reply);
            }
        }
        let reply = Box::pin(self.feed(transaction, prefix)).await;
        let id = self.taken.id;
        if reply.code == 250 {
            self.reported.resolve(|known| known == id);
            return if waiting.is_some() { Outcome::Partly(self.reported) } else { Outcome::Done };
        }
        self.reported.under_way.retain(|(known, _)| *known != id);
        let refused = accepted.iter().map(|rcpt| SubmissionRefusal::of(rcpt, reply.clone()));
        let refused: Vec<SubmissionRefusal> = match (reply.code, is_last) {
            (..500, false) => return Outcome::Later(reply),
            (..500, true) => refused.map(SubmissionRefusal::expired).collect(),
            _ => refused.collect(),
        };
        match (self.give_back(&back, refused, waiting.is_none()).await, waiting) {
            (Outcome::Done, Some(reply)) => Outcome::Later(reply),
            (outcome, _) => outcome,
        }
    }

    /// Reads the message into the transaction, in parts.
    async fn feed(&self, mut transaction: Box<Transaction>, prefix: Vec<u8>) -> Reply {
        let (core, settings) = (self.core, self.settings);
        let size_max = settings.config.message_size_bytes_max;
        let mut body = TextBody::new(prefix, size_max, PIECE_BYTES as usize);
        let mut buffer = vec![0; READ_BYTES];
        let mut at = 0;
        let read = loop {
            let n = (self.opened.head.message - at).min(READ_BYTES as u64) as usize;
            if n == 0 {
                break body.finish();
            }
            let read = self.opened.read(&mut buffer[..n], at);
            let pushed = match read {
                Ok(()) => body.push(&buffer[..n]),
                Err(_) => Err(UNREADABLE),
            };
            if let Err(reply) = pushed {
                break Err(reply);
            }
            if let Some(piece) = body.full_piece() {
                transaction.piece(core, settings, piece, size_max).await;
            }
            at += n as u64;
        };
        match read {
            Ok(end) => transaction.end(core, settings, None, end).await,
            Err(reply) => reply,
        }
    }

    /// Reports the refused recipients to the sender, and records that. `is_all`: the submission has no other
    /// recipients, so it is kept if nobody can be told.
    async fn give_back(&mut self, back: &ReversePath, refused: Vec<SubmissionRefusal>, is_all: bool) -> Outcome {
        match self.tell(back, &refused).await {
            Ok(RefusalNotice::Nobody(whom)) => {
                let why = self.why(&refused);
                tracing::warn!(message = %self.taken.id, %why, "recipients of a local message {whom} were refused");
                if is_all {
                    return Outcome::Bad(why);
                }
            }
            Ok(RefusalNotice::TooLarge) if is_all => return Outcome::Bad(self.why(&refused)),
            Ok(RefusalNotice::Sender | RefusalNotice::TooLarge) => {
                let why = self.why(&refused);
                tracing::warn!(message = %self.taken.id, %why, "refused recipients of a local message were reported \
                    to its sender");
            }
            Err(reply) => return Outcome::Later(reply),
        }
        if is_all {
            return Outcome::Done;
        }
        self.reported.done.extend(refused.iter().map(|refused| refused.at));
        match self.keep_reported().await {
            Ok(()) => Outcome::Done,
            Err(reply) => Outcome::Later(reply),
        }
    }

    /// Describes the refusals, for the reason file in `bad`.
    fn why(&self, refused: &[SubmissionRefusal]) -> String {
        let all = refused.iter().map(|refused| format!("{:?}: {}", refused.address, refused.reply));
        let done = self.reported.done.iter().filter_map(|at| self.opened.envelope.recipients.get(*at));
        let done = done.map(|rcpt| format!("{:?}: already processed, a retry would deliver it twice", rcpt.address));
        all.chain(done).collect::<Vec<_>>().join("\n")
    }

    /// Sends the reports, each about as many recipients as one may have.
    async fn tell(&mut self, back: &ReversePath, refused: &[SubmissionRefusal]) -> Result<RefusalNotice, Reply> {
        let ReversePath::Address(sender) = back else { return Ok(RefusalNotice::Nobody("without a sender")) };
        let (settings, now) = (self.core.settings(), self.core.clock.now());
        let mut readers = settings.people(sender, now).await.map_err(intake::IntakeRefusal::reply)?;
        // Local users with no reader: their cron jobs, for example.
        if readers.is_empty()
            && let Some(postmaster) = settings.policy.postmaster()
        {
            readers = settings.people(postmaster, now).await.map_err(intake::IntakeRefusal::reply)?;
        }
        if readers.is_empty() {
            return Ok(RefusalNotice::Nobody("whose sender is not a local user"));
        }
        let wanted: Vec<&SubmissionRefusal> = refused.iter().filter(|refused| refused.is_wanted()).collect();
        for part in wanted.chunks(dsn::RECIPIENTS_MAX) {
            let id = self.core.next_message_id();
            let recipients: Vec<usize> = part.iter().map(|refused| refused.at).collect();
            self.reported.under_way.push((id, recipients.clone()));
            self.keep_reported().await?;
            let subject = Subject { id: self.taken.id, sender, readers: readers.clone(), opened: &self.opened };
            match report(self.core, &subject, part, id).await {
                Ok(()) => {}
                Err(intake::IntakeRefusal::TooLarge) => return Ok(RefusalNotice::TooLarge),
                // The next start finds out whether the journal has it.
                Err(later) => return Err(later.reply()),
            }
            self.reported.under_way.retain(|(known, _)| *known != id);
            self.reported.done.extend(recipients);
            self.keep_reported().await?;
        }
        Ok(RefusalNotice::Sender)
    }

    async fn keep_reported(&self) -> Result<(), Reply> {
        let (folder, stem, reported) = (self.folder.clone(), self.taken.stem.clone(), self.reported.clone());
        blocking(move || folder.report(&stem, &reported)).await.map_err(|error| {
            tracing::warn!(message = %self.taken.id, %error, "the submission folder is not writable");
            UNWRITABLE
        })
    }
}

/// `rfc822;` and xtext, which is sent unchanged.
fn is_orcpt(text: &str) -> bool {
    let Some((kind, address)) = text.split_once(';') else { return false };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_kind && xtext_decode(address).is_some_and(|address| !address.is_empty())
}

/// Returns the warning field, as in sendmail.
fn warning(hostname: &str, user: &LocalUser, sender: &ReversePath) -> String {
    format!("X-Authentication-Warning: {hostname}: {} set sender to {} using -f\r\n", user.shown(), sender.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_go_on_the_wire_are_checked() {
        assert!(is_orcpt("rfc822;a+2Bb@x"));
        for bad in ["", "rfc822", ";a", "rfc822;", "rfc822;a b", "rfc822;a\r\nRCPT", "r c;a"] {
            assert!(!is_orcpt(bad), "{bad:?}");
        }
    }
}
