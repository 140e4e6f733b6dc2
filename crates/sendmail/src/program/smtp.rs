//! `-bs`: SMTP on standard input and output for a local user (for mail programs such as pine that require it).
//!
//! The session is the server's own (`stentor_smtp::server`), without timeouts. The reply 250 after the data means
//! that the message is durable in the folder. On a local pipe a line may end in LF alone, which counts as CR LF:
//! there is no relay between client and server that could split lines differently. At most [`MESSAGE_HELD_BYTES`] of
//! a message are in memory in addition to its header.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use stentor_mail::address::ReversePath;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_sendmail::exit::{EX_TEMPFAIL, ExitError};
use stentor_sendmail::format::{Recipient, SubmissionEnvelope};
use stentor_sendmail::lines::Part;
use stentor_sendmail::options::Call;
use stentor_smtp::server::{MailFrom, NOT_OFFERED, ServerConfig, ServerSession, Step};

use super::folder::{Draft, Folder};
use super::message::{Composer, now_ms, permitted};
use super::privileges::Privileges;
use super::user::CallingUser;

const MESSAGE_HELD_BYTES: usize = 256 * 1024;
/// Maximum octets of a line in memory.
const PART_BYTES: usize = 64 * 1024;

/// Environment of a session.
#[derive(Clone, Copy)]
struct At<'a> {
    call: &'a Call,
    folder: &'a Folder,
    privileges: &'a Privileges,
    caller: &'a CallingUser,
}

/// A transaction: its envelope, and its body so far.
struct Transaction<'a> {
    envelope: SubmissionEnvelope,
    composer: Composer,
    draft: Option<Draft<'a>>,
    /// Start of an incomplete line.
    begun: Vec<u8>,
    /// Why the message will be refused at its end.
    failed: Option<ExitError>,
}

pub fn serve(call: &Call, folder: &Folder, privileges: &Privileges, caller: &CallingUser) -> Result<(), ExitError> {
    let (settings, at) = (&folder.settings, At { call, folder, privileges, caller });
    let config = ServerConfig {
        hostname: settings.hostname.clone(),
        origin: Some(settings.origin.clone()),
        size_max: settings.message_bytes_max,
        piece_bytes_max: MESSAGE_HELD_BYTES,
        recipients_max: settings.recipients_max,
        ..ServerConfig::default()
    };
    let mut session = ServerSession::new(Arc::new(config), true, 0);
    let mut open: Option<Transaction<'_>> = None;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut ends = LineEnds { before: b'\n', are_bare: None };
    let lost = |error: io::Error| ExitError::later(format!("the session ended: {error}"));
    loop {
        let step = session.step(0);
        if matches!(step, Step::NeedInput | Step::Flush | Step::Close) {
            output.write_all(session.output()).and_then(|()| output.flush()).map_err(lost)?;
            session.sent();
        }
        match step {
            Step::Flush | Step::AuthCancelled => {}
            Step::Close => return Ok(()),
            // Processes a line at a time: a client that pipes in a whole session sends data before the reply to DATA.
            Step::NeedInput => {
                let octets = input.fill_buf().map_err(lost)?;
                if octets.is_empty() {
                    return Ok(());
                }
                let n = ends.receive_line(&mut session, octets);
                input.consume(n);
            }
            Step::Mail(mail) => {
                let begun = begin(mail, at);
                session.answer(begun.as_ref().err().cloned().unwrap_or(Reply::fixed(
                    250,
                    Enhanced::new(2, 1, 0),
                    "Ok",
                )));
                open = begun.ok();
            }
            Step::Rcpt(rcpt) => {
                let notify = rcpt.notify.map(stentor_smtp::server::Notify::bits);
                let recipient = Recipient { address: rcpt.address.as_str().to_owned(), notify, orcpt: rcpt.orcpt };
                if let Some(transaction) = &mut open {
                    transaction.envelope.recipients.push(recipient);
                }
                session.answer(Reply::fixed(250, Enhanced::new(2, 1, 5), "Ok"));
            }
            // TLS and AUTH are not offered.
            Step::Client(_) | Step::StartTls | Step::Auth { .. } | Step::AuthResponse(_) => {
                session.answer(NOT_OFFERED);
            }
            Step::Unknown { reply, .. } => session.answer(reply),
            Step::Data => session.begin_data(Vec::new()),
            Step::Piece(octets) => {
                if let Some(transaction) = &mut open {
                    transaction.take(&octets, at);
                }
            }
            Step::EndOfData(end) => {
                let done = match open.take() {
                    Some(transaction) => transaction.finish(&end.last, at),
                    None => Err(ExitError::later("no transaction")),
                };
                session
                    .answer(done.map_or_else(refusal, |()| Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok: submitted")));
            }
            Step::Reset | Step::Refused { .. } => open = None,
        }
    }
}

/// Line ends of the client: the first one decides whether a bare LF counts as CR LF.
struct LineEnds {
    /// The last octet received.
    before: u8,
    are_bare: Option<bool>,
}

impl LineEnds {
    /// Passes one line, or what there is of it, to the session; returns its octets.
    fn receive_line(&mut self, session: &mut ServerSession, octets: &[u8]) -> usize {
        let n = memchr::memchr(b'\n', octets).map_or(octets.len(), |end| end + 1);
        let chunk = usize::try_from(session.chunk_bytes_left()).unwrap_or(usize::MAX);
        let n = if chunk > 0 { n.min(chunk) } else { n };
        match &octets[..n] {
            [line @ .., b'\n'] if chunk == 0 => {
                let is_bare = line.last().copied().unwrap_or(self.before) != b'\r';
                if is_bare && *self.are_bare.get_or_insert(is_bare) {
                    session.receive(line);
                    session.receive(b"\r\n");
                } else {
                    self.are_bare.get_or_insert(is_bare);
                    session.receive(&octets[..n]);
                }
            }
            line => session.receive(line),
        }
        self.before = octets[n - 1];
        n
    }
}

/// Begins a transaction, if the user may use this sender.
fn begin(mail: MailFrom, at: At<'_>) -> Result<Transaction<'_>, Reply> {
    let sender = match &mail.path {
        ReversePath::Null => String::new(),
        ReversePath::Address(address) => address.as_str().to_owned(),
    };
    let allowed = permitted(Some(&sender), &at.folder.settings, at.caller);
    allowed.map_err(|failure| Reply::new(550, Enhanced::new(5, 7, 1), failure.text))?;
    let login = at.caller.user.login.clone();
    let envelope = SubmissionEnvelope {
        login,
        sender: Some(sender),
        ret: mail.ret,
        envid: mail.envid,
        ..SubmissionEnvelope::default()
    };
    Ok(Transaction::new(envelope))
}

fn refusal(failure: ExitError) -> Reply {
    if failure.code == EX_TEMPFAIL {
        Reply::new(451, Enhanced::new(4, 3, 0), failure.text)
    } else {
        Reply::new(554, Enhanced::new(5, 6, 0), failure.text)
    }
}

impl<'a> Transaction<'a> {
    fn new(envelope: SubmissionEnvelope) -> Transaction<'a> {
        Transaction { envelope, composer: Composer::default(), draft: None, begun: Vec::new(), failed: None }
    }

    /// Adds octets of the body.
    fn take(&mut self, octets: &[u8], at: At<'a>) {
        if self.failed.is_none() {
            self.failed = self.lines(octets, at).err();
        }
        if self.failed.is_some() {
            self.draft = None;
        }
    }

    fn lines(&mut self, octets: &[u8], at: At<'a>) -> Result<(), ExitError> {
        for line in octets.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(line);
            let part = if self.begun.ends_with(b"\r\n") {
                self.begun.truncate(self.begun.len() - 2);
                Part::Line
            } else if self.begun.len() < PART_BYTES || self.begun.ends_with(b"\r") {
                // A CR and its LF may arrive separately.
                continue;
            } else {
                Part::Begun
            };
            let line = std::mem::take(&mut self.begun);
            self.composer.push(&line, part)?;
            self.write(at)?;
        }
        Ok(())
    }

    fn write(&mut self, at: At<'a>) -> Result<(), ExitError> {
        match &mut self.draft {
            Some(draft) => self.composer.write(draft),
            None if self.composer.has_header() => {
                self.envelope.at = now_ms();
                let draft = self.draft.insert(at.folder.draft(at.privileges)?);
                self.composer.begin(draft, at.call, &self.envelope, at.caller, &at.folder.settings)
            }
            None => Ok(()),
        }
    }

    fn finish(mut self, last: &[u8], at: At<'a>) -> Result<(), ExitError> {
        self.take(last, at);
        if let Some(failure) = self.failed {
            return Err(failure);
        }
        self.composer.push(b"", Part::End)?;
        self.write(at)?;
        match self.draft {
            Some(draft) => draft.finish(&self.envelope),
            None => Err(ExitError::later("no message")),
        }
    }
}
