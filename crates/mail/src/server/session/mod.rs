//! The states of a session.
//!
//! `Command`: a line is awaited. `Asked`: the shell has a question and owes the answer. `Data`: dot-terminated octets
//! come in until `DataEnd`; a framing error leads to `Broken`. `Chunk`: octets of a BDAT chunk come in until its count is
//! used up. `Swallow`: a chunk that nobody wants is read over, then answered. `Closed`: nothing is read any more.
//!
//! Beside it stands the transaction: `open` from an accepted MAIL to its end or a `Step::Reset`. What the shell holds and
//! what is open here never differ when a step has been returned and answered. BDAT keeps its body (`incoming`) over
//! several commands.

use std::sync::Arc;

use memchr::memchr;

use super::body::Incoming;
use super::command::Command;
use super::input::Input;
use super::timer::Timer;
use super::{MailFrom, RcptTo, Refusal, ServerConfig, Step, ehlo, replies};
use crate::Ms;
use crate::reply::{Enhanced, Reply};

mod transfer;

/// The reply code behind which a server closes (RFC 5321 section 3.8).
const CLOSING_CODE: u16 = 421;
/// Refusals noted between two looks.
const REFUSALS_MAX: usize = 64;

/// A server's side of one connection.
#[derive(Debug)]
pub struct ServerSession {
    config: Arc<ServerConfig>,
    trusted: bool,
    pub(super) input: Input,
    output: Vec<u8>,
    timer: Timer,
    state: State,
    helo: Option<Box<str>>,
    esmtp: bool,
    /// The transaction: MAIL was accepted, the shell has it.
    open: bool,
    smtputf8: bool,
    recipients: u32,
    /// The body that is coming in, by DATA or by BDAT.
    incoming: Option<Box<Incoming>>,
    /// The command line is over its limit: the rest of it is dropped.
    overlong: bool,
    errors: u32,
    /// Refusals given since they were taken last, for whoever counts them.
    refusals: Vec<(u16, Option<Enhanced>)>,
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
    /// The shell refused the body: it is told to forget the transaction, then the chunk (if any) is swallowed.
    Refused {
        chunk: Option<(u64, Reply)>,
    },
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Mail { smtputf8: bool },
    Rcpt,
    Data,
    Chunk { size: u64, last: bool },
    End,
}

/// A command that fits the session's state.
#[derive(Debug)]
enum Request {
    Mail(MailFrom),
    Rcpt(RcptTo),
    Helo { name: Box<str>, esmtp: bool },
    Data,
    Bdat { size: u64, last: bool },
    Rset,
    Say(Reply),
}

impl ServerSession {
    /// A new session; the greeting is in the output. `trusted` clients have no cap on recipients, and their open
    /// transactions are not cut by the session's deadline.
    pub fn new(config: Arc<ServerConfig>, trusted: bool, now: Ms) -> Self {
        let mut output = Vec::with_capacity(128);
        ehlo::write_greeting(&config, &mut output);
        let timer = Timer::new(&config, trusted, now);
        Self {
            config,
            trusted,
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
            refusals: Vec::new(),
        }
    }

    /// Appends octets from the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.state != State::Closed {
            self.input.push(bytes);
        }
    }

    /// What to write to the client; the shell clears it when it is written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// The name that the client gave in HELO or EHLO: letters, digits and `-._:[]` only. Empty before that.
    pub fn helo(&self) -> &str {
        self.helo.as_deref().unwrap_or_default()
    }

    /// Whether the client said EHLO.
    pub fn is_esmtp(&self) -> bool {
        self.esmtp
    }

    /// Whether a transaction is open: from an accepted MAIL to its final reply or its end otherwise.
    pub fn in_transaction(&self) -> bool {
        self.open
    }

    /// When the client's next octets must have come.
    pub fn deadline(&self) -> Ms {
        self.timer.deadline(self.open)
    }

    /// The deadline has passed: says so and closes.
    pub fn timed_out(&mut self) {
        self.hang(&replies::TIMED_OUT);
    }

    /// What to do next.
    pub fn step(&mut self, now: Ms) -> Step {
        loop {
            let step = match &mut self.state {
                State::Command => self.line(),
                State::Data => self.data(),
                State::DataEnd => self.end(),
                State::Broken => {
                    self.hang(&replies::BARE_LINE_END);
                    None
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
                State::Asked(_) => {
                    debug_assert!(false, "the shell owes an answer");
                    Some(Step::NeedInput)
                }
                State::Closed => Some(Step::Close),
            };
            match step {
                Some(Step::NeedInput) => {
                    let in_body = matches!(self.state, State::Data | State::Chunk { .. } | State::Swallow { .. });
                    if !in_body {
                        self.input.rest_now();
                    }
                    self.timer.wait(&self.config, in_body, now);
                    return Step::NeedInput;
                }
                Some(step) => return step,
                None => {}
            }
        }
    }

    /// Answers the last `Mail`, `Rcpt`, `Data` (with a refusal) or `EndOfData`. A 421 closes the session.
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
            Question::Rcpt => self.recipients += u32::from(accepted),
            Question::Data => self.state = State::Refused { chunk: None },
            Question::Chunk { size, .. } => {
                // The chunk comes whatever we say; its reply comes behind it.
                self.state = State::Refused { chunk: Some((size, reply)) };
                return;
            }
            Question::End => {
                self.open = false;
                if accepted {
                    self.errors = 0;
                }
            }
        }
        self.say(&reply, !self.trusted);
    }

    /// Lets the body come in. `prefix` is put before it, uncounted; its buffer is used for the first piece.
    pub fn begin_data(&mut self, prefix: Vec<u8>) {
        self.state = match self.state {
            State::Asked(Question::Data) => {
                replies::GO_AHEAD.write_to(&mut self.output);
                State::Data
            }
            State::Asked(Question::Chunk { size, last }) => State::Chunk { size, left: size, last },
            _ => {
                debug_assert!(false, "no data was asked for");
                return;
            }
        };
        self.timer.restart();
        self.incoming = Some(Box::new(Incoming::new(prefix)));
    }

    /// Takes one command line, if it has come.
    fn line(&mut self) -> Option<Step> {
        let line_bytes_max = self.config.command_bytes_max;
        let rest = self.input.rest();
        let Some(end) = memchr(b'\n', &rest[..rest.len().min(line_bytes_max)]) else {
            if rest.len() < line_bytes_max && !self.overlong {
                return Some(Step::NeedInput);
            }
            self.overlong = true;
            let end = memchr(b'\n', rest);
            self.input.consume(end.map_or(rest.len(), |end| end + 1));
            return if end.is_some() { self.overlong_line() } else { Some(Step::NeedInput) };
        };
        if self.overlong {
            self.input.consume(end + 1);
            return self.overlong_line();
        }
        let request = match rest[..end].strip_suffix(b"\r") {
            Some(line) => Command::parse(line).and_then(|command| self.admit(command)),
            None => Err(replies::LINE_END.into()),
        };
        self.input.consume(end + 1);
        match request {
            Ok(request) => self.act(request),
            Err(Refusal::GoOn(reply)) => self.error(&reply),
            Err(Refusal::Hang(reply)) => {
                self.hang(&reply);
                None
            }
        }
    }

    fn overlong_line(&mut self) -> Option<Step> {
        self.overlong = false;
        self.error(&replies::LINE_TOO_LONG)
    }

    /// Holds a command against the session's state, then parses its arguments.
    fn admit(&self, command: Command<'_>) -> Result<Request, Refusal> {
        let refused = match command {
            Command::Mail(_) if self.helo.is_none() => replies::HELO_FIRST,
            Command::Mail(_) | Command::Rcpt(_) | Command::Data if self.incoming.is_some() => replies::BDAT_BEGUN,
            Command::Mail(_) if self.open => replies::NESTED_MAIL,
            Command::Rcpt(_) if !self.open => replies::MAIL_FIRST,
            Command::Rcpt(_) if !self.trusted && self.recipients >= self.config.recipients_max => {
                replies::TOO_MANY_RECIPIENTS
            }
            Command::Mail(argument) => return Ok(Request::Mail(MailFrom::parse(argument, self.config.size_max)?)),
            Command::Rcpt(argument) => {
                return Ok(Request::Rcpt(RcptTo::parse(argument, self.smtputf8, &self.config.hostname)?));
            }
            Command::Helo(name) => return Ok(Request::Helo { name: name.into(), esmtp: false }),
            Command::Ehlo(name) => return Ok(Request::Helo { name: name.into(), esmtp: true }),
            Command::Data => return Ok(Request::Data),
            Command::Bdat { size, last } => return Ok(Request::Bdat { size, last }),
            Command::Rset => return Ok(Request::Rset),
            Command::Noop => return Ok(Request::Say(replies::OK)),
            Command::Vrfy => return Ok(Request::Say(replies::VRFY)),
            Command::Help => return Ok(Request::Say(replies::HELP)),
            Command::Quit => return Err(Refusal::Hang(replies::BYE)),
        };
        Err(refused.into())
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
                let write = if esmtp { ehlo::write_ehlo } else { ehlo::write_helo };
                write(&self.config, &mut self.output);
                self.timer.restart();
                self.reset()
            }
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

    /// An error of the client.
    fn error(&mut self, reply: &Reply) -> Option<Step> {
        // Never 421 to a trusted client between its recipients: list managers lose those that were taken already.
        self.say(reply, !self.trusted);
        None
    }

    /// Writes a reply; a permanent one is an error of the client if it `counts`.
    fn say(&mut self, reply: &Reply, counts: bool) {
        self.timer.restart();
        self.note(reply);
        reply.write_to(&mut self.output);
        if reply.code == CLOSING_CODE {
            self.close();
        } else if counts && reply.is_permanent() {
            self.errors += 1;
            if self.errors >= self.config.errors_max {
                self.hang(&replies::TOO_MANY_ERRORS);
            }
        }
    }

    fn note(&mut self, reply: &Reply) {
        if reply.code >= 400 && self.refusals.len() < REFUSALS_MAX {
            self.refusals.push((reply.code, reply.enhanced));
        }
    }

    /// The refusals given since this was asked last (the first [`REFUSALS_MAX`] of them).
    pub fn take_refusals(&mut self) -> Vec<(u16, Option<Enhanced>)> {
        std::mem::take(&mut self.refusals)
    }

    /// Writes the last reply.
    fn hang(&mut self, reply: &Reply) {
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
