//! The states of a session.
//!
//! `Command` expects a line. `Asked` waits for the caller's answer. `Data` reads dot-terminated octets until `DataEnd`;
//! a framing error leads to `Broken`. `Chunk` reads the octets of a BDAT chunk until its count is used up. `Swallow`
//! discards an unwanted chunk, then replies. `StartTls` and `Response`: see `security`. `Closed` reads nothing more.
//!
//! In addition there is the transaction: `open` from an accepted MAIL to its end or a `Step::Reset`. After each step
//! and answer, session and caller agree on whether one is open. BDAT keeps its body (`incoming`) over several commands.

use std::sync::Arc;

use memchr::memchr;
use stentor_mail::Ms;
use stentor_mail::reply::{Enhanced, OwnLimit, Reply};

use super::body::IncomingBody;
use super::command::{ArgumentForms, Command, tidied};
use super::dots::Dots;
use super::input::Input;
use super::params::OptionalParams;
use super::sasl::SecretBytes;
use super::timer::Timer;
use super::xclient::Xclient;
use super::{MailFrom, RcptTo, Refusal, ServerConfig, Step, ehlo, replies};

mod security;
mod transfer;

use security::Security;

/// The reply code after which a server closes (RFC 5321 section 3.8).
const CLOSING_CODE: u16 = 421;
/// Output over this size is written before the next command is read.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Capacity of the output that an idle session may keep: the replies of an ordinary session.
const OUTPUT_IDLE_BYTES_MAX: usize = 1024;
/// A smaller chunk of BDAT, unless it is the last, counts as an unproductive command.
const CHUNK_BYTES_MIN: u64 = 1024;
/// Refusals kept until the next call of `take_refusals`.
const REFUSALS_MAX: usize = 64;

/// The server side of one connection.
#[derive(Debug)]
pub struct ServerSession {
    config: Arc<ServerConfig>,
    trusted: bool,
    /// The client is a proxy that may use XCLIENT.
    may_xclient: bool,
    tells_unknown: bool,
    pub(super) input: Input,
    output: Vec<u8>,
    timer: Timer,
    state: State,
    helo: Option<Box<str>>,
    esmtp: bool,
    /// A transaction is open: MAIL was accepted, the caller holds its resources.
    open: bool,
    smtputf8: bool,
    recipients: u32,
    /// The body being received, by DATA or by BDAT.
    incoming: Option<Box<IncomingBody>>,
    /// The command line is over its limit: the rest of it is dropped.
    overlong: bool,
    errors: u32,
    /// Counters of an untrusted client since its last message: commands without effect, accepted recipients.
    unproductive: u32,
    recipients_seen: u32,
    /// Refusals sent since they were last taken, for counters.
    refusals: Vec<SentRefusal>,
    security: Security,
}

/// A refusal that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRefusal {
    pub code: u16,
    pub enhanced: Option<Enhanced>,
    /// The session's own limit that caused it.
    pub limit: Option<OwnLimit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Command,
    Asked(Question),
    Data,
    DataEnd,
    Broken,
    Chunk {
        size: u64,
        left: u64,
        last: bool,
    },
    Swallow {
        left: u64,
        reply: Reply,
    },
    /// The caller refused the body: it gets a `Reset`, then the chunk (if any) is discarded.
    Refused {
        chunk: Option<(u64, Reply)>,
    },
    /// STARTTLS was accepted: its 220 follows.
    StartTls,
    /// The client must answer a challenge.
    Response,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Mail { smtputf8: bool },
    Rcpt,
    Data,
    Chunk { size: u64, last: bool },
    End,
    Client,
    Unknown,
    Tls,
    Auth,
}

/// A command that is legal in the session's state.
#[derive(Debug)]
enum Request {
    Mail(MailFrom),
    Rcpt(RcptTo),
    Helo { name: Box<str>, esmtp: bool },
    Data,
    Bdat { size: u64, last: bool },
    Rset,
    Client(Box<Xclient>),
    StartTls,
    Auth { mechanism: Box<str>, initial: Option<SecretBytes> },
    Say(Reply),
}

impl ServerSession {
    /// Creates a session, with the greeting in the output. `trusted` clients have no limit on recipients, and the
    /// session's deadline does not interrupt their open transactions.
    pub fn new(config: Arc<ServerConfig>, trusted: bool, now: Ms) -> Self {
        let mut output = Vec::with_capacity(128);
        ehlo::write_greeting(&config, &mut output);
        let timer = Timer::new(&config, trusted, now);
        Self {
            config,
            trusted,
            may_xclient: false,
            tells_unknown: false,
            input: Input::default(),
            output,
            timer,
            state: State::Command,
            helo: None,
            esmtp: false,
            open: false,
            smtputf8: false,
            recipients: 0,
            incoming: None,
            overlong: false,
            errors: 0,
            unproductive: 0,
            recipients_seen: 0,
            refusals: Vec::new(),
            security: Security::default(),
        }
    }

    /// Offers XCLIENT: the client is a proxy that may name its clients.
    pub fn allow_xclient(&mut self) {
        self.may_xclient = !self.config.lmtp;
    }

    /// From now on, passes unknown commands to the caller.
    pub fn tell_unknown(&mut self) {
        self.tells_unknown = true;
    }

    /// Whether the client may use XCLIENT.
    pub fn allows_xclient(&self) -> bool {
        self.may_xclient
    }

    /// Answers [`Step::Client`]: from here on the session is that client's, beginning at its greeting. Once its address
    /// is known it cannot change: later input may be the client's own, passed on by the proxy.
    pub fn become_client(&mut self, said: &Xclient, trusted: bool, now: Ms) {
        debug_assert!(self.state == State::Asked(Question::Client), "nothing was asked");
        self.state = State::Command;
        self.trusted = trusted;
        self.may_xclient &= said.address.is_none();
        self.timer = Timer::new(&self.config, trusted, now);
        self.helo = said.helo.clone().filter(|helo| !helo.is_empty());
        self.esmtp = said.is_esmtp.unwrap_or(true) && self.helo.is_some();
        (self.errors, self.unproductive, self.recipients_seen) = (0, 0, 0);
        self.security.vouched(match &said.login {
            Some(login) => !login.is_empty(),
            None => self.is_authenticated() && said.address.is_none(),
        });
        ehlo::write_greeting(&self.config, &mut self.output);
    }

    /// Appends octets from the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.state != State::Closed {
            self.input.push(bytes);
        }
    }

    /// Returns the octets to write to the client; call [`ServerSession::sent`] once they are written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Notes that all output was written.
    pub fn sent(&mut self) {
        self.output.clear();
        self.output.shrink_to(OUTPUT_IDLE_BYTES_MAX);
    }

    /// Returns the memory used for a body while its octets are expected.
    pub fn body_bytes(&self) -> Option<usize> {
        let incoming = self.incoming.as_ref().filter(|incoming| incoming.dropped().is_none())?;
        matches!(self.state, State::Data | State::Chunk { .. }).then(|| incoming.held_bytes())
    }

    /// Whether part of a line, or a body that has begun, waits for the rest.
    pub fn is_midway(&self) -> bool {
        !self.input.is_empty()
            || self.overlong
            || matches!(self.state, State::Data | State::Broken | State::Chunk { .. } | State::Swallow { .. })
    }

    /// Returns the octets still expected of a chunk, in which line ends do not count; 0 while lines are expected.
    pub fn chunk_bytes_left(&self) -> u64 {
        match &self.state {
            State::Chunk { left, .. } | State::Swallow { left, .. } | State::Refused { chunk: Some((left, _)) } => {
                *left
            }
            _ => 0,
        }
    }

    /// Drops a body that the caller admitted but cannot take further; the client gets this reply at its end. The
    /// transaction is closed here without a `Reset`. Returns the octets of the body so far.
    pub fn refuse_body(&mut self, reply: Reply) -> u64 {
        self.open = false;
        let size = self.incoming.as_ref().map_or(0, |incoming| incoming.size());
        match &mut self.state {
            State::Chunk { left, .. } => {
                self.state = State::Swallow { left: *left, reply };
                self.incoming = None;
            }
            State::Data => {
                if let Some(incoming) = &mut self.incoming {
                    incoming.drop_for(reply);
                }
            }
            _ => debug_assert!(false, "no body comes in"),
        }
        size
    }

    /// Shortens an untrusted client's deadline, since others wait for the connection.
    pub fn hurry(&mut self) {
        self.timer.hurry();
    }

    /// Returns the client's name from HELO or EHLO: letters, digits and `-._:[]` only. Empty before that.
    pub fn helo(&self) -> &str {
        self.helo.as_deref().unwrap_or_default()
    }

    /// Whether the client sent EHLO.
    pub fn is_esmtp(&self) -> bool {
        self.esmtp
    }

    /// Whether a transaction is open: from an accepted MAIL to its final reply or another end.
    pub fn in_transaction(&self) -> bool {
        self.open
    }

    /// Returns when the client's next octets are due.
    pub fn deadline(&self) -> Ms {
        self.timer.deadline(self.open)
    }

    /// Returns when the client must have read the current output.
    pub fn write_deadline(&self, now: Ms) -> Ms {
        self.timer.write_deadline(&self.config, self.open, now)
    }

    /// Sends 421 and closes, since the deadline has passed.
    pub fn timed_out(&mut self) {
        self.close_with(&replies::TIMED_OUT);
    }

    /// Returns what to do next.
    pub fn step(&mut self, now: Ms) -> Step {
        self.timer.resume(now);
        loop {
            if self.output.len() >= OUTPUT_BYTES_MAX && self.state != State::Closed {
                return Step::Flush;
            }
            let step = match &mut self.state {
                State::Command => self.line(),
                State::Data => self.data(),
                State::DataEnd => self.end(),
                State::Broken => {
                    let size = self.incoming.as_ref().map_or(0, |incoming| incoming.size());
                    let was_open = self.open;
                    self.close_with(&replies::BARE_LINE_END);
                    was_open.then_some(Step::Refused { reply: replies::BARE_LINE_END, size })
                }
                State::Chunk { .. } => self.chunk(),
                State::Swallow { .. } => self.swallow(),
                State::Refused { chunk } => {
                    self.state = match chunk.take() {
                        Some((left, reply)) => State::Swallow { left, reply },
                        None => State::Command,
                    };
                    self.reset()
                }
                State::StartTls => Some(self.go_tls()),
                State::Response => Some(self.response()),
                State::Asked(_) => {
                    debug_assert!(false, "the caller owes an answer");
                    Some(Step::NeedInput)
                }
                State::Closed => Some(Step::Close),
            };
            match step {
                Some(Step::NeedInput) => {
                    let in_body = matches!(self.state, State::Data | State::Chunk { .. } | State::Swallow { .. });
                    // A body at full speed reuses the buffer at once; an untrusted client that sends slowly must not
                    // keep it.
                    if !in_body || !self.trusted {
                        self.input.rest_now();
                    }
                    self.timer.wait(&self.config, in_body, in_body || self.incoming.is_some(), now);
                    return Step::NeedInput;
                }
                Some(step) => return step,
                None => {}
            }
        }
    }

    /// Answers the last `Mail`, `Rcpt`, `Client`, `Unknown`, `Auth` or `AuthResponse`, `Data` (with a refusal) or
    /// `EndOfData` (in LMTP for the next of the accepted recipients; their replies can be written one by one). A 421
    /// closes the session.
    pub fn answer(&mut self, reply: Reply) {
        let State::Asked(question) = self.state else {
            debug_assert!(false, "nothing was asked");
            return;
        };
        self.state = State::Command;
        let accepted = reply.is_success();
        match question {
            Question::Mail { smtputf8 } => {
                self.open = accepted;
                self.smtputf8 = smtputf8;
                self.recipients = 0;
            }
            Question::Rcpt if accepted => {
                self.recipients += 1;
                self.recipients_seen = self.recipients_seen.saturating_add(1);
                if self.recipients_seen <= self.config.recipients_max {
                    self.unproductive = self.unproductive.saturating_sub(1);
                }
            }
            Question::Auth if !accepted => {
                self.say(&reply, !self.trusted);
                return self.auth_failed();
            }
            Question::Tls => return self.close_with(&reply),
            Question::Rcpt | Question::Client | Question::Unknown | Question::Auth => {}
            Question::Data => self.state = State::Refused { chunk: None },
            Question::Chunk { size, .. } => {
                // The chunk arrives in any case; its reply comes after it.
                self.state = State::Refused { chunk: Some((size, reply)) };
                return;
            }
            Question::End if self.is_owed_more() => self.state = State::Asked(Question::End),
            Question::End => {
                self.open = false;
                if accepted {
                    (self.errors, self.unproductive, self.recipients_seen) = (0, 0, 0);
                }
            }
        }
        self.say(&reply, !self.trusted);
    }

    /// Admits the body. `prefix` is put before it, uncounted; its buffer is used for the first piece.
    pub fn begin_data(&mut self, prefix: Vec<u8>) {
        let (state, dots) = match self.state {
            State::Asked(Question::Data) => {
                replies::GO_AHEAD.write_to(&mut self.output);
                (State::Data, Dots::stuffed())
            }
            State::Asked(Question::Chunk { size, last }) => (State::Chunk { size, left: size, last }, Dots::plain()),
            _ => {
                debug_assert!(false, "no data was asked for");
                return;
            }
        };
        self.state = state;
        self.timer.body(&self.config);
        self.incoming = Some(Box::new(IncomingBody::new(prefix, dots)));
    }

    /// Notes an answer for a recipient. Returns whether LMTP needs another (RFC 2033 section 4.2).
    fn is_owed_more(&mut self) -> bool {
        self.recipients = self.recipients.saturating_sub(1);
        self.config.lmtp && self.recipients > 0
    }

    /// Takes one command line, if it has arrived.
    fn line(&mut self) -> Option<Step> {
        let line_bytes_max = self.line_bytes_max();
        let rest = self.input.rest();
        let Some(end) = memchr(b'\n', &rest[..rest.len().min(line_bytes_max)]) else {
            if rest.len() < line_bytes_max && !self.overlong {
                return Some(Step::NeedInput);
            }
            if !self.overlong {
                self.security.read_line(rest);
            }
            self.overlong = true;
            let end = memchr(b'\n', rest);
            self.consume_line(end.map_or(rest.len(), |end| end + 1));
            return if end.is_some() { self.overlong_line() } else { Some(Step::NeedInput) };
        };
        if self.overlong {
            self.consume_line(end + 1);
            return self.overlong_line();
        }
        self.security.read_line(&rest[..end]);
        let command = match rest[..end].strip_suffix(b"\r") {
            Some(line) => Command::parse(line),
            None => Err(replies::LINE_END.into()),
        };
        let request = command.and_then(|command| self.admit(command));
        let is_unknown = self.tells_unknown
            && !self.security.may_be_secret()
            && matches!(&request, Err(Refusal::Continue(reply)) if *reply == replies::UNKNOWN);
        let unknown: Option<Box<[u8]>> = is_unknown.then(|| rest[..end].trim_ascii_end().into());
        self.consume_line(end + 1);
        self.unproductive += u32::from(!self.trusted && !matches!(request, Err(Refusal::Close(_))));
        if self.unproductive > self.config.unproductive_max {
            self.close_with(&replies::TOO_MANY_COMMANDS);
            return None;
        }
        if let Some(line) = unknown {
            self.state = State::Asked(Question::Unknown);
            return Some(Step::Unknown { line, reply: replies::UNKNOWN });
        }
        let is_idle = !self.trusted && self.is_idle(&request);
        let restarts = self.timer.restarts();
        let step = match request {
            Ok(request) => self.act(request),
            Err(Refusal::Continue(reply)) => self.error(&reply),
            Err(Refusal::Close(reply)) => {
                self.close_with(&reply);
                None
            }
        };
        if is_idle {
            self.timer.keep(restarts);
        }
        step
    }

    /// Whether a command leads to no message. It does not extend an untrusted client's deadline: a session with only
    /// such commands gets the time of one command (RFC 5321 section 4.5.3.2.7).
    fn is_idle(&self, request: &Result<Request, Refusal>) -> bool {
        match request {
            Ok(Request::Say(_) | Request::Rset) | Err(_) => true,
            Ok(Request::Helo { .. }) => self.helo.is_some(),
            // It will be refused.
            Ok(Request::Data) => !self.open || self.recipients == 0,
            Ok(_) => false,
        }
    }

    /// Consumes a line, and overwrites it if it may be a password.
    fn consume_line(&mut self, bytes: usize) {
        if self.security.may_be_secret() {
            self.input.consume_secret(bytes);
        } else {
            self.input.consume(bytes);
        }
    }

    fn overlong_line(&mut self) -> Option<Step> {
        self.overlong = false;
        self.error(&replies::LINE_TOO_LONG)
    }

    /// Checks a command against the session's state, then parses its arguments.
    fn admit(&self, command: Command<'_>) -> Result<Request, Refusal> {
        let security = &self.security;
        let refused = match command {
            // The other commands of RFC 3207 section 4 are below. Octets after DATA and BDAT are not commands, whatever
            // the reply.
            _ if security.wants_tls() && !command.may_be_in_clear() => replies::TLS_FIRST,
            Command::Lhlo(_) if !self.config.lmtp => replies::NOT_OFFERED,
            Command::Helo(_) | Command::Ehlo(_) if self.config.lmtp => replies::LHLO_WANTED,
            // The octets after it would be read as commands.
            Command::Bdat { .. } if self.config.lmtp => return Err(Refusal::Close(replies::NOT_OFFERED)),
            Command::Mail(_) if self.helo.is_none() && self.config.lmtp => replies::LHLO_FIRST,
            Command::Mail(_) if self.helo.is_none() => replies::HELO_FIRST,
            Command::Mail(_) | Command::Rcpt(_) | Command::Data if self.incoming.is_some() => replies::BDAT_BEGUN,
            Command::Mail(_) if self.open => replies::NESTED_MAIL,
            Command::Mail(_) if security.wants_auth() => security.refusal_before_auth(),
            Command::Rcpt(_) if !self.open => replies::MAIL_FIRST,
            Command::Rcpt(_) if !self.trusted && self.recipients >= self.config.recipients_max => {
                replies::TOO_MANY_RECIPIENTS
            }
            Command::Xclient(_) if !self.may_xclient => replies::NOT_OFFERED,
            Command::Xclient(_) if self.open => replies::XCLIENT_IN_MAIL,
            Command::Xclient(argument) => return Ok(Request::Client(Box::new(Xclient::parse(argument)?))),
            Command::Mail(argument) => {
                let argument = tidied(argument, self.tidying(false));
                let also = OptionalParams {
                    auth: !security.offers().auth.is_empty(),
                    requiretls: security.lists_requiretls(),
                    xverp: self.offers_xverp(),
                };
                let mail = MailFrom::parse_with(&argument, self.config.size_max, also)?;
                let asks = mail.ret.is_some() || mail.envid.is_some();
                return if asks && !self.trusted { Err(replies::NO_DSN.into()) } else { Ok(Request::Mail(mail)) };
            }
            Command::Rcpt(argument) => {
                let argument = tidied(argument, self.tidying(true));
                let rcpt = RcptTo::parse(&argument, self.smtputf8, &self.config.hostname)?;
                let asks = rcpt.notify.is_some() || rcpt.orcpt.is_some();
                return if asks && !self.trusted { Err(replies::NO_DSN.into()) } else { Ok(Request::Rcpt(rcpt)) };
            }
            Command::Helo(name) => return Ok(Request::Helo { name: name.into(), esmtp: false }),
            Command::Ehlo(name) | Command::Lhlo(name) => return Ok(Request::Helo { name: name.into(), esmtp: true }),
            Command::Data => return Ok(Request::Data),
            Command::Bdat { size, last } => return Ok(Request::Bdat { size, last }),
            Command::StartTls => return self.admit_starttls(),
            Command::Auth(argument) => return Ok(self.admit_auth(argument)?),
            Command::Rset => return Ok(Request::Rset),
            Command::Noop => return Ok(Request::Say(replies::OK)),
            Command::Vrfy => return Ok(Request::Say(replies::VRFY)),
            Command::Help => return Ok(Request::Say(replies::HELP)),
            Command::Quit => return Err(Refusal::Close(replies::BYE)),
        };
        Err(refused.into())
    }

    /// Only trusted clients may choose return paths.
    fn offers_xverp(&self) -> bool {
        self.trusted && self.config.xverp && !self.config.lmtp
    }

    /// Returns how this client's addresses are tidied.
    fn tidying(&self, is_recipient: bool) -> ArgumentForms<'_> {
        let is_trusted = self.trusted || self.is_authenticated();
        let of_local_users = self.config.origin.as_deref();
        let of_trusted = self.config.trusted_origin.as_deref().filter(|_| is_trusted);
        ArgumentForms {
            origin: of_local_users.or(of_trusted),
            keeps_postmaster: is_recipient && of_local_users.is_none(),
            is_trusted,
        }
    }

    fn act(&mut self, request: Request) -> Option<Step> {
        match request {
            Request::Mail(mail) => {
                self.state = State::Asked(Question::Mail { smtputf8: mail.smtputf8 });
                Some(Step::Mail(mail))
            }
            Request::Rcpt(rcpt) => {
                self.state = State::Asked(Question::Rcpt);
                Some(Step::Rcpt(rcpt))
            }
            Request::Helo { name, esmtp } => {
                (self.helo, self.esmtp) = (Some(name), esmtp);
                if esmtp {
                    let listed = ehlo::OfferedExtensions {
                        dsn: self.trusted,
                        xverp: self.offers_xverp(),
                        xclient: self.may_xclient,
                        starttls: self.security.lists_starttls(),
                        requiretls: self.security.lists_requiretls(),
                        auth: &self.security.offers().auth,
                    };
                    ehlo::write_ehlo(&self.config, listed, &mut self.output);
                } else {
                    ehlo::write_helo(&self.config, &mut self.output);
                }
                self.timer.restart();
                self.reset()
            }
            Request::Client(said) => {
                self.state = State::Asked(Question::Client);
                Some(Step::Client(said))
            }
            Request::StartTls => self.starttls_command(),
            Request::Auth { mechanism, initial } => Some(self.auth_command(mechanism, initial)),
            Request::Data => self.data_command(),
            Request::Bdat { size, last } => self.bdat_command(size, last),
            Request::Rset => {
                self.say(&replies::OK, false);
                self.reset()
            }
            Request::Say(reply) => {
                self.say(&reply, false);
                None
            }
        }
    }

    /// Ends the transaction, if one is open.
    fn reset(&mut self) -> Option<Step> {
        self.incoming = None;
        std::mem::take(&mut self.open).then_some(Step::Reset)
    }

    /// Counts an error of the client.
    fn error(&mut self, reply: &Reply) -> Option<Step> {
        // Never 421 to a trusted client between its recipients: list managers lose those already accepted.
        self.say(reply, !self.trusted);
        None
    }

    /// Writes a reply; a permanent one counts as an error of the client if `counts`.
    fn say(&mut self, reply: &Reply, counts: bool) {
        self.timer.restart();
        self.note(reply);
        reply.write_to(&mut self.output);
        if reply.code == CLOSING_CODE {
            self.close();
        } else if counts && reply.is_permanent() {
            self.errors += 1;
            if self.errors >= self.config.errors_max {
                self.close_with(&replies::TOO_MANY_ERRORS);
            }
        }
    }

    fn note(&mut self, reply: &Reply) {
        if reply.code >= 400 && self.refusals.len() < REFUSALS_MAX {
            let &Reply { code, enhanced, limit, .. } = reply;
            self.refusals.push(SentRefusal { code, enhanced, limit });
        }
    }

    /// Takes the refusals since the last call (the first [`REFUSALS_MAX`] of them).
    pub fn take_refusals(&mut self) -> Vec<SentRefusal> {
        std::mem::take(&mut self.refusals)
    }

    /// Writes a final reply and closes.
    fn close_with(&mut self, reply: &Reply) {
        self.note(reply);
        reply.write_to(&mut self.output);
        self.close();
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.open = false;
        self.incoming = None;
        self.input.clear();
    }
}
