//! All milters of one client's session, in order, with their states and replies.
//!
//! States of a milter: without a connection (before the first MAIL, and after a failure until the next MAIL); with
//! one. In a message: active, perhaps without having seen MAIL yet ([`Chain::mail`]); skipped (its failure is
//! ignored); failed, with the reply to every command from then on.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stentor_mail::dsn::Ret;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_smtp::server::{Body, MailFrom, Notify, RcptTo};

use crate::circuit::CircuitClient;
use crate::connection::{Connection, MilterFailure};
use crate::milter::{Milter, MilterResult, Trial};
use crate::protocol::{ClientIdentity, Macros, MilterReply, MilterSession, OnFailure};
use crate::{ClientFacts, MilterRefusal};

/// Texts of Postfix.
const UNAVAILABLE: Reply = Reply::fixed(451, Enhanced::new(4, 7, 1), "Service unavailable - try again later");
const REFUSED: Reply = Reply::fixed(550, Enhanced::new(5, 5, 0), "Service unavailable");
/// Name of a client without a name in the DNS.
const UNKNOWN: &str = "unknown";

/// Facts about a message that begins.
#[derive(Debug, Clone, Copy)]
pub struct MailFacts<'a> {
    pub helo: &'a str,
    /// Queue ID.
    pub id: &'a str,
    pub mail: &'a MailFrom,
}

/// Facts about a recipient before it is accepted.
#[derive(Debug, Clone, Copy)]
pub struct RcptFacts<'a> {
    pub rcpt: &'a RcptTo,
    /// Whether it is a local alias or list.
    pub is_local: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MilterState {
    Asked,
    /// No message has begun, or the milter failed and its failure is ignored.
    Skipped,
    Failed(MilterRefusal),
}

/// One milter in this session.
pub(crate) struct SessionMilter {
    pub milter: Arc<Milter>,
    client: CircuitClient,
    pub connection: Option<Connection>,
    /// Held by the transaction that tries the milter after a pause.
    trial: Option<Trial>,
    pub state: MilterState,
    /// MAIL is still to be sent to it, together with the first recipient.
    owes_mail: bool,
    /// DATA is sent to it together with the content.
    pub owes_data: bool,
    /// Its refusal of the client.
    refuses: Option<Reply>,
    /// Last HELO name sent to it, and its refusal.
    helo: Option<(Box<str>, Option<Reply>)>,
}

/// Events that a milter receives before the recipients of a message.
struct Opening {
    /// Client name, or its address in brackets.
    client_name: String,
    address: IpAddr,
    port: u16,
    helo: String,
    /// Sender in angle brackets, then the parameters.
    mail_args: Vec<String>,
}

/// All milters of a session; see the module documentation.
pub struct Chain {
    pub(crate) milters: Vec<SessionMilter>,
    pub(crate) macros: Macros,
    pub(crate) hostname: String,
    opening: Opening,
    /// Reason of a milter for discarding the message.
    pub(crate) discard: Option<String>,
}

impl Chain {
    pub(crate) fn new(milters: Vec<Arc<Milter>>, client: &ClientFacts, hostname: &str) -> Chain {
        let circuit_client = CircuitClient { address: client.counted_as, is_trusted: client.is_trusted };
        let one = |milter| SessionMilter {
            milter,
            client: circuit_client,
            connection: None,
            trial: None,
            state: MilterState::Skipped,
            owes_mail: false,
            owes_data: false,
            refuses: None,
            helo: None,
        };
        let is_local = client.listener.is_none();
        let name = client.name.clone().or_else(|| is_local.then(|| "localhost".to_owned()));
        let known = name.clone().unwrap_or_else(|| UNKNOWN.to_owned());
        let client_name = name.unwrap_or_else(|| format!("[{}]", client.address));
        let mut macros = Macros::default();
        macros.set("j", hostname);
        macros.set("v", concat!("Stentor ", env!("CARGO_PKG_VERSION")));
        macros.set("_", format!("{known} [{}]", client.address));
        macros.set("client_addr", client.address.to_string());
        macros.set("client_port", client.port.to_string());
        macros.set("client_ptr", known.clone());
        macros.set("client_name", known);
        macros.set("mail_mailer", "esmtp");
        if let Some(listener) = client.listener {
            macros.set("daemon_addr", listener.ip().to_canonical().to_string());
            macros.set("daemon_port", listener.port().to_string());
        }
        if let Some((login, mechanism)) = &client.login {
            macros.set("auth_authen", login.as_str());
            macros.set("auth_type", *mechanism);
        }
        if let Some(tls) = &client.tls {
            macros.set("tls_version", tls.version);
            macros.set("cipher", tls.cipher);
            macros.set("cipher_bits", tls.bits.to_string());
            if let Some((subject, issuer)) = &tls.certificate {
                macros.set("cert_subject", subject.as_str());
                macros.set("cert_issuer", issuer.as_str());
            }
        }
        let milters = milters.into_iter().map(one).collect();
        let (address, port) = (client.address, client.port);
        let opening = Opening { client_name, address, port, helo: String::new(), mail_args: Vec::new() };
        Chain { milters, macros, hostname: hostname.to_owned(), opening, discard: None }
    }

    /// Ends the current message for all milters, whatever its outcome.
    pub fn over(&mut self) {
        for one in &mut self.milters {
            one.trial = None;
            if let Some(connection) = &mut one.connection {
                connection.session.abort();
                connection.write_now();
            }
        }
    }

    /// The transaction was dropped: a message that has begun does not end.
    pub fn drop_message(&mut self) {
        for one in &mut self.milters {
            one.trial = None;
            // Its replies to a message that is gone would be taken for those to the next.
            if one.connection.as_ref().is_some_and(|connection| connection.session.is_owed()) {
                one.connection = None;
            }
            if let Some(connection) = one.connection.as_mut().filter(|connection| connection.session.is_in_message()) {
                connection.session.abort();
                connection.write_now();
            }
        }
    }

    /// Begins a message; milters without a connection first receive the client. A milter that has accepted many
    /// senders in a row gets MAIL together with the first recipient, which saves a round trip; if it then refuses the
    /// sender, each recipient is refused.
    ///
    /// # Errors
    /// The refusal of a milter; the message does not begin.
    pub async fn mail(&mut self, facts: MailFacts<'_>) -> Result<(), MilterRefusal> {
        self.over();
        self.discard = None;
        let path = facts.mail.path.as_str();
        let macros = &mut self.macros;
        macros.set("i", facts.id);
        macros.set("mail_addr", path);
        macros.set("mail_host", path.rsplit_once('@').map_or("", |(_, domain)| domain));
        self.opening.mail_args = mail_args(facts.mail);
        let helo = if facts.helo.is_empty() { &self.hostname } else { facts.helo };
        helo.clone_into(&mut self.opening.helo);
        for one in &mut self.milters {
            (one.state, one.owes_mail, one.owes_data) = (MilterState::Asked, true, false);
            one.introduce(&self.opening, &mut self.macros).await?;
            // The failure to connect may be ignored.
            if one.state == MilterState::Asked && !one.milter.takes_mail_late() {
                let discard = one.tell(&self.opening, &mut self.macros, |_, _| {}).await?;
                self.discard = self.discard.take().or(discard);
            }
        }
        Ok(())
    }

    /// Sends a recipient before it is accepted.
    ///
    /// # Errors
    /// The refusal of a milter.
    pub async fn rcpt(&mut self, facts: RcptFacts<'_>) -> Result<(), MilterRefusal> {
        let address = &facts.rcpt.address;
        let mailer = if facts.is_local { "local" } else { "esmtp" };
        self.recipient_macros([address.as_str(), address.domain(), mailer]);
        let args = rcpt_args(facts.rcpt);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.each(|_| true, |session, macros| session.rcpt(&args, macros)).await
    }

    /// Reports a refused recipient to milters that requested it; their answers have no effect.
    pub async fn rcpt_refused(&mut self, rcpt: &RcptTo, reply: &Reply) {
        let dsn = reply.enhanced.map_or_else(String::new, |dsn| dsn.to_string());
        self.recipient_macros([&reply.to_string(), &dsn, "error"]);
        let args = rcpt_args(rcpt);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for one in self.milters.iter_mut().filter(|one| one.state == MilterState::Asked) {
            if one.connection.as_ref().is_some_and(|connection| connection.session.wants_refused()) {
                if one.owes_mail {
                    match one.tell(&self.opening, &mut self.macros, |_, _| {}).await {
                        Ok(discard) => self.discard = self.discard.take().or(discard),
                        Err(_) => continue,
                    }
                }
                let limit = one.milter.command_limit();
                if let Err(failed) = one.ask(limit, |session| session.rcpt(&args, &self.macros)).await {
                    // The next event gets the reply configured for failures.
                    let _ = one.fail(&failed);
                }
            }
        }
    }

    /// Begins the content. Milters that receive header and body without waiting get DATA with them, which saves a
    /// round trip: their refusal of DATA then follows the content.
    ///
    /// # Errors
    /// The refusal of a milter.
    pub async fn data(&mut self) -> Result<(), MilterRefusal> {
        for one in &mut self.milters {
            one.owes_data = one.milter.is_told_at_once();
        }
        self.each(|one| !one.owes_data, MilterSession::data).await
    }

    /// Reports an unknown SMTP command to the milters that have received the client.
    ///
    /// # Errors
    /// A refusal that replaces ours.
    pub async fn unknown(&mut self, line: &[u8]) -> Result<(), MilterRefusal> {
        for one in self.milters.iter_mut().filter(|one| one.state == MilterState::Asked) {
            // Milters may close a connection between two messages, which is not a failure.
            if one.connection.as_mut().is_some_and(Connection::is_idle) {
                let limit = one.milter.command_limit();
                let reply = one.ask(limit, |session| session.unknown(line)).await;
                one.judge(reply)?;
            }
        }
        Ok(())
    }

    fn recipient_macros(&mut self, values: [&str; 3]) {
        for (name, value) in ["rcpt_addr", "rcpt_host", "rcpt_mailer"].into_iter().zip(values) {
            self.macros.set(name, value);
        }
    }

    /// Sends an event to each milter for which `is_told` returns true, up to the first that refuses.
    async fn each(
        &mut self,
        is_told: impl Fn(&SessionMilter) -> bool,
        tell: impl Fn(&mut MilterSession, &Macros),
    ) -> Result<(), MilterRefusal> {
        for one in &mut self.milters {
            match &one.state {
                MilterState::Skipped => continue,
                MilterState::Failed(refusal) => return Err(refusal.clone()),
                MilterState::Asked if !is_told(one) => continue,
                MilterState::Asked => {}
            }
            let discard = one.tell(&self.opening, &mut self.macros, &tell).await?;
            self.discard = self.discard.take().or(discard);
        }
        Ok(())
    }

    /// Sends MAIL, before the content, to milters that have received neither it nor a recipient.
    ///
    /// # Errors
    /// The refusal of a milter.
    pub(crate) async fn tell_mail(&mut self) -> Result<(), MilterRefusal> {
        self.each(|one| one.owes_mail, |_, _| {}).await
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for one in &mut self.milters {
            if let Some(connection) = one.connection.take() {
                one.milter.give_back(connection);
            }
        }
    }
}

impl SessionMilter {
    fn name(&self) -> String {
        format!("milter {}", self.milter.settings.name)
    }

    /// Sends an event and waits for the reply.
    async fn ask(
        &mut self,
        limit: Duration,
        tell: impl FnOnce(&mut MilterSession),
    ) -> Result<MilterReply, MilterFailure> {
        let Some(connection) = &mut self.connection else { return Ok(MilterReply::Continue) };
        tell(&mut connection.session);
        self.log_shortened();
        match &mut self.connection {
            Some(connection) => connection.reply(limit).await,
            None => Ok(MilterReply::Continue),
        }
    }

    /// Sends an event, preceded by MAIL if necessary, and judges the reply.
    async fn tell(
        &mut self,
        opening: &Opening,
        macros: &mut Macros,
        tell: impl Fn(&mut MilterSession, &Macros),
    ) -> Result<Option<String>, MilterRefusal> {
        let mut is_mail = std::mem::take(&mut self.owes_mail);
        if is_mail {
            // The milter may have closed the connection since MAIL.
            self.introduce(opening, macros).await?;
            is_mail = !self.is_over();
            if let Some(connection) = &mut self.connection {
                let args: Vec<&str> = opening.mail_args.iter().map(String::as_str).collect();
                connection.session.mail(&args, macros);
            }
        }
        let limit = self.milter.command_limit();
        let reply = self.ask(limit, |session| tell(session, macros)).await;
        let is_over = self.is_over();
        if is_mail && reply.is_ok() && self.connection.is_some() {
            self.milter.has_answered_mail(is_over);
        }
        if reply.is_ok() && self.take_decision() {
            self.succeeded();
        }
        // It decided at MAIL with RCPT already sent: whether a reply to that follows is unknown, so the connection
        // cannot be used again.
        if self.connection.as_ref().is_some_and(|connection| connection.session.is_cut_short()) {
            self.connection = None;
        }
        let judged = self.judge(reply);
        // If a recipient is refused, the message continues with the others.
        if let (true, Err(refusal)) = (is_over, &judged) {
            self.state = MilterState::Failed(refusal.clone());
        }
        judged
    }

    /// Whether the milter does not want any more of the message.
    fn is_over(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.session.is_over())
    }

    /// Connects if necessary, and sends the client. An error is a refusal, which applies to all that follows.
    async fn introduce(&mut self, opening: &Opening, macros: &mut Macros) -> Result<(), MilterRefusal> {
        macros.set("daemon_name", self.milter.settings.daemon_name.as_str());
        let introduced = self.try_introduce(opening, macros).await;
        let judged = self.judge(introduced);
        if let Err(refusal) = &judged {
            self.state = MilterState::Failed(refusal.clone());
        }
        judged.map(drop)
    }

    async fn try_introduce(&mut self, opening: &Opening, macros: &Macros) -> Result<MilterReply, MilterFailure> {
        let limit = self.milter.command_limit();
        // Milters may close a connection between two messages, which is not a failure.
        if self.connection.as_mut().is_some_and(|connection| !connection.is_idle()) {
            self.connection = None;
        }
        let mut may_reuse = true;
        while self.connection.is_none() {
            (self.refuses, self.helo) = (None, None);
            // Ends the trial of a lost connection, which would block this one.
            self.trial = None;
            let (connection, trial) = self.milter.connect(self.client, may_reuse).await?;
            (self.connection, self.trial) = (Some(connection), trial);
            let client = ClientIdentity { name: &opening.client_name, address: opening.address, port: opening.port };
            match self.ask(limit, |session| session.connect(client, macros)).await {
                Ok(MilterReply::Refuse(reply)) => self.refuses = Some(reply),
                Ok(_) => {}
                // The milter may have closed it just now, which is not a failure: nothing was lost. The next is new,
                // so that a milter that closes them all has failed with it.
                Err(failed)
                    if failed.is_closed && self.connection.as_ref().is_some_and(|connection| connection.is_reused) =>
                {
                    (self.connection, may_reuse) = (None, false);
                }
                Err(failed) => return Err(failed),
            }
        }
        if let Some(reply) = &self.refuses {
            return Ok(MilterReply::Refuse(reply.clone()));
        }
        if self.helo.as_ref().is_none_or(|(told, _)| **told != *opening.helo) {
            let reply = self.ask(limit, |session| session.helo(&opening.helo, macros)).await?;
            let refusal = if let MilterReply::Refuse(reply) = reply { Some(reply) } else { None };
            self.helo = Some((opening.helo.as_str().into(), refusal));
        }
        let refusal = self.helo.as_ref().and_then(|(_, refusal)| refusal.clone());
        Ok(refusal.map_or(MilterReply::Continue, MilterReply::Refuse))
    }

    /// Judges a reply before the end of the message: an error is the refusal; a text is the reason for discarding
    /// the message.
    pub fn judge(&mut self, reply: Result<MilterReply, MilterFailure>) -> Result<Option<String>, MilterRefusal> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failed) => return self.fail(&failed).map(|()| None),
        };
        match reply {
            MilterReply::Continue | MilterReply::Skip | MilterReply::Accept => Ok(None),
            MilterReply::Discard => {
                self.milter.counters.count(MilterResult::Discard);
                Ok(Some(self.name()))
            }
            MilterReply::Refuse(reply) => {
                let result = if reply.is_temporary() { MilterResult::Tempfail } else { MilterResult::Reject };
                self.milter.counters.count(result);
                Err(MilterRefusal { reply, by: self.name() })
            }
        }
    }

    /// Records the milter's decision on a message.
    pub fn succeeded(&self) {
        self.milter.succeeded(self.client);
    }

    /// Whether the milter has decided on a message since the last call.
    pub fn take_decision(&mut self) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.session.take_decision())
    }

    /// Logs an event of which the milter got only a part.
    pub fn log_shortened(&mut self) {
        if let Some(event) = self.connection.as_mut().and_then(|connection| connection.session.take_shortened()) {
            self.milter.log_shortened(self.client, event);
        }
    }

    /// Handles a failure as configured.
    pub fn fail(&mut self, failed: &MilterFailure) -> Result<(), MilterRefusal> {
        self.connection = None;
        self.milter.failed(self.client, failed);
        self.trial = None;
        let reply = match self.milter.settings.action(failed.failure) {
            OnFailure::Accept => {
                self.state = MilterState::Skipped;
                return Ok(());
            }
            OnFailure::Tempfail => UNAVAILABLE,
            OnFailure::Reject => REFUSED,
        };
        let refusal = MilterRefusal { reply, by: format!("{}: {}", self.name(), failed.why) };
        self.state = MilterState::Failed(refusal.clone());
        Err(refusal)
    }
}

fn mail_args(mail: &MailFrom) -> Vec<String> {
    let mut args = vec![format!("<{}>", mail.path.as_str())];
    args.extend(mail.size.map(|size| format!("SIZE={size}")));
    if mail.body == Body::EightBitMime {
        args.push("BODY=8BITMIME".to_owned());
    }
    if mail.smtputf8 {
        args.push("SMTPUTF8".to_owned());
    }
    args.extend(mail.ret.map(|ret| if ret == Ret::Full { "RET=FULL" } else { "RET=HDRS" }.to_owned()));
    args.extend(mail.envid.as_ref().map(|envid| format!("ENVID={envid}")));
    args
}

fn rcpt_args(rcpt: &RcptTo) -> Vec<String> {
    let mut args = vec![format!("<{}>", rcpt.address.as_str())];
    if let Some(notify) = rcpt.notify {
        let all = [
            ("NEVER", Notify::NEVER),
            ("SUCCESS", Notify::SUCCESS),
            ("FAILURE", Notify::FAILURE),
            ("DELAY", Notify::DELAY),
        ];
        let words: Vec<&str> =
            all.into_iter().filter(|(_, flag)| notify.contains(*flag)).map(|(word, _)| word).collect();
        args.push(format!("NOTIFY={}", words.join(",")));
    }
    args.extend(rcpt.orcpt.as_ref().map(|orcpt| format!("ORCPT={orcpt}")));
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_told_as_the_client_wrote_them() {
        let argument = b"<a@x.test> SIZE=10 BODY=8BITMIME RET=HDRS ENVID=QQ";
        let mail = MailFrom::parse(argument, 100).unwrap();
        assert_eq!(mail_args(&mail), ["<a@x.test>", "SIZE=10", "BODY=8BITMIME", "RET=HDRS", "ENVID=QQ"]);
        assert_eq!(mail_args(&MailFrom::parse(b"<>", 100).unwrap()), ["<>"]);
        let rcpt = RcptTo::parse(b"<b@x.test> NOTIFY=DELAY,SUCCESS ORCPT=rfc822;c@x.test", false, "mx.test").unwrap();
        assert_eq!(rcpt_args(&rcpt), ["<b@x.test>", "NOTIFY=SUCCESS,DELAY", "ORCPT=rfc822;c@x.test"]);
    }
}
