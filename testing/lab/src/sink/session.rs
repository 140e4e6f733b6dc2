//! One SMTP session of a sink, as a state machine: octets and the time in, reply octets and at most one [`Effect`] out.
//!
//! Promise: strict to the letter about the client (each breach is recorded as a violation and the session continues
//! where possible), lenient about nothing, and faulty exactly as its [`Behaviour`] says. Written independently of
//! `stentor-mail` on purpose, so that the two cannot share a mistake.
//!
//! States: `Command`, `Data` (until CR LF . CR LF), `Chunk` (octets of a BDAT), `Storing` (end of data received, the
//! reply waits for the store), `Deaf` (a hang, or after the effect: all further input is discarded). A transaction is
//! open from MAIL to its final reply; `spoiled` marks one that a BDAT refusal has ended while more chunks may still
//! arrive.

use super::command::{self, Command};
use super::data::{DataSink, DotScan, LineCheck};
use super::site::Host;
use crate::behaviour::{Action, Behaviour, share_hits};
use crate::recorder::{CopyMeter, Recorder};
use crate::script::Stage;
use crate::tls::Tls;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Longest command line taken, CRLF included (RFC 5321 4.5.3.1.4 plus room for extensions).
pub(super) const COMMAND_BYTES_MAX: usize = 4096;
/// Recipient buffers larger than this are given back after a transaction.
const RCPTS_KEEP_BYTES_MAX: usize = 16 << 10;

/// What the connection must do once the replies before it are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Close,
    /// The client begins a handshake.
    Secure(Tls),
    /// Close after QUIT: nothing more can come.
    Bye,
    Reset,
    Endless,
    /// One line of 10 MB, then close.
    FloodLine,
    /// A reply that never ends, as fast as it is read.
    FloodLines,
    /// Nothing is sent any more, and the client closes.
    HalfClose,
}

#[derive(Debug)]
pub(super) enum State {
    Command,
    /// The client's next line is a response of AUTH.
    Response,
    Data,
    Chunk {
        left: u64,
        last: bool,
    },
    /// The message is complete and being stored; [`Session::stored`] goes on.
    Storing,
    Deaf,
}

#[derive(Default)]
pub(super) struct Transaction {
    pub(super) open: bool,
    pub(super) sender: String,
    pub(super) smtputf8: bool,
    pub(super) eight_bit: bool,
    pub(super) size: Option<u64>,
    /// Accepted recipients, each ended by a line feed.
    pub(super) rcpts: String,
    pub(super) rcpt_count: u64,
    /// MAIL or RCPT was tried, so that what is pipelined behind a refusal is no breach.
    pub(super) tried: bool,
    pub(super) bdat: bool,
    pub(super) spoiled: bool,
    pub(super) saw_eight_bit: bool,
    /// Whether the host's faults strike this transaction.
    pub(super) faulty: bool,
    /// The script's rule for the middle of the data was played.
    pub(super) body_played: bool,
}

pub(super) struct Session {
    pub(super) host: Arc<Host>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) behaviour: Arc<Behaviour>,
    pub(super) connection: u64,
    pub(super) state: State,
    pub(super) greeted: bool,
    pub(super) extended: bool,
    /// What comes now comes within TLS.
    pub(super) secured: bool,
    /// AUTH: whether it succeeded; what LOGIN has sent so far.
    pub(super) authenticated: bool,
    pub(super) responses: Vec<String>,
    pub(super) mechanism: String,
    pub(super) messages: u32,
    pub(super) transactions: u32,
    pub(super) tx: Transaction,
    pub(super) meter: Option<Box<CopyMeter>>,
    pub(super) dots: DotScan,
    pub(super) lines: LineCheck,
    /// Input before this time came before the reply that it had to wait for.
    pub(super) quiet_until_us: u64,
    pub(super) quiet_why: &'static str,
    /// Replies, to be sent after the round-trip time (plus `delay_us`).
    pub(super) out: Vec<u8>,
    pub(super) delay_us: u64,
    /// Pause before each octet from here on, where the script says so.
    pub(super) drip_ms: u32,
    pub(super) effect: Option<Effect>,
    /// Copies recorded whose 250 is not yet written.
    pub(super) unanswered: u64,
    /// Longest message that the store takes; 0 = nothing is stored.
    pub(super) store_bytes_max: usize,
    /// The message for the store.
    pub(super) body: Vec<u8>,
}

pub(super) struct Content<'a> {
    recorder: &'a Recorder,
    meter: &'a mut CopyMeter,
    eight_bit: &'a mut bool,
    /// Where there is a store: the octets, up to one more than it takes.
    body: Option<(&'a mut Vec<u8>, usize)>,
    connection: u64,
    site: u32,
}

impl DataSink for Content<'_> {
    fn content(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        *self.eight_bit = *self.eight_bit || !bytes.is_ascii();
        self.meter.push(self.recorder, bytes);
        if let Some((body, most)) = &mut self.body {
            let room = (*most + 1).saturating_sub(body.len());
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn breach(&mut self, kind: &'static str, around: &[u8]) {
        self.recorder.violation(kind, self.connection, self.site, &around[..around.len().min(80)]);
    }
}

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplySource {
    /// The session, perhaps with more said by a rule.
    Ordinary,
    /// A rule in its place.
    Instead,
}

impl Session {
    /// A connection just accepted. The greeting is in `out` already.
    pub fn new(host: Arc<Host>, recorder: Arc<Recorder>, connection: u64, now_us: u64) -> Self {
        let behaviour = Arc::clone(host.schedule.at(now_us));
        let open = host.site.open.fetch_add(1, Relaxed) + 1;
        let open_in_all = recorder.counters.open.fetch_add(1, Relaxed) + 1;
        recorder.counters.open_max.fetch_max(open_in_all, Relaxed);
        let rtt_us = u64::from(behaviour.rtt_ms) * 1000;
        let mut session = Self {
            host,
            recorder,
            connection,
            state: State::Command,
            greeted: false,
            extended: false,
            secured: false,
            authenticated: false,
            responses: Vec::new(),
            mechanism: String::new(),
            messages: 0,
            transactions: 0,
            tx: Transaction::default(),
            meter: None,
            dots: DotScan::default(),
            lines: LineCheck::default(),
            // The greeting stands for the TCP handshake's round trip too.
            quiet_until_us: now_us + 2 * rtt_us,
            quiet_why: "talks before the greeting",
            out: Vec::new(),
            delay_us: rtt_us,
            drip_ms: 0,
            effect: None,
            unanswered: 0,
            store_bytes_max: 0,
            body: Vec::new(),
            behaviour,
        };
        session.tx.faulty = session.fault_strikes(0);
        session.work(|b| b.greeting_delay_ms);
        if session.behaviour.tls_implicit {
            session.effect = session.behaviour.tls.map(Effect::Secure);
            return session;
        }
        session.welcome(open);
        session
    }

    /// The first octets that it says.
    fn welcome(&mut self, open: u32) {
        let session = self;
        let limit = session.behaviour.connections_max;
        if limit > 0 && open > limit {
            session.reply(421, "4.7.0 too many connections from you");
            session.close();
        } else {
            session.scripted(Stage::Greeting, b"", Self::greet);
        }
    }

    /// The handshake is made; what was said before it counts for nothing (RFC 3207 section 4.2).
    pub(super) fn within_tls(&mut self) {
        let is_first = !self.greeted && self.behaviour.tls_implicit;
        (self.secured, self.greeted, self.extended) = (true, false, false);
        self.reset();
        if is_first {
            self.welcome(0);
        }
    }

    pub(super) fn host_name(&self) -> &str {
        &self.host.name
    }

    fn greet(&mut self) {
        if !self.strikes(|b| &b.at_greeting) {
            let host = Arc::clone(&self.host);
            let protocol = if self.behaviour.lmtp { " LMTP lab" } else { " ESMTP lab" };
            self.reply_with(220, &[&host.name, protocol]);
        }
    }

    /// Pause before each octet of a reply.
    pub fn trickle_us(&self) -> u64 {
        u64::from(self.drip_ms.max(self.behaviour.trickle_ms)) * 1000
    }

    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    pub(super) fn fault_strikes(&self, transaction: u32) -> bool {
        let key = (u128::from(transaction) << 64 | u128::from(self.connection)).to_le_bytes();
        self.behaviour.fault_share >= 1.0 || share_hits(self.behaviour.fault_share, self.host.site.seed, &key)
    }

    /// The time that the host takes over what it is about to answer.
    pub(super) fn work(&mut self, of_command: impl Fn(&Behaviour) -> u32) {
        let delay_ms = u64::from(of_command(&self.behaviour)) + u64::from(self.behaviour.reply_delay_ms);
        self.delay_us += delay_ms * 1000;
    }

    /// What was in `out` is on its way.
    pub(super) fn replies_written(&mut self) {
        self.out.clear();
        self.unanswered = 0;
    }

    /// A host that plays a script has no say in what its client does wrong.
    pub(super) fn violation(&self, kind: &'static str, bytes: &[u8]) {
        if !self.behaviour.script.is_empty() {
            return;
        }
        self.recorder.violation(kind, self.connection, self.host.site.no, bytes);
    }

    pub(super) fn reply(&mut self, code: u16, text: &str) {
        self.reply_with(code, &[text]);
    }

    fn reply_with(&mut self, code: u16, text: &[&str]) {
        self.out.extend_from_slice(&[
            b'0' + (code / 100) as u8,
            b'0' + (code / 10 % 10) as u8,
            b'0' + (code % 10) as u8,
            b' ',
        ]);
        for part in text {
            self.out.extend_from_slice(part.as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn close(&mut self) {
        self.effect = Some(Effect::Close);
        self.state = State::Deaf;
    }

    /// Carries out the behaviour's action for a stage, if there is one; true if it took the stage's reply away.
    pub(super) fn strikes(&mut self, stage: impl Fn(&Behaviour) -> &Option<Action>) -> bool {
        if !self.tx.faulty {
            return false;
        }
        let behaviour = Arc::clone(&self.behaviour);
        match stage(&behaviour) {
            None => return false,
            Some(Action::Hang) => self.state = State::Deaf,
            Some(Action::Drop) => self.close(),
            Some(Action::Reset) => {
                self.close();
                self.effect = Some(Effect::Reset);
            }
            Some(Action::Endless) => {
                self.close();
                self.effect = Some(Effect::Endless);
            }
            Some(Action::Reply(code, text)) => {
                self.reply(*code, text);
                if *code == 421 {
                    self.close();
                }
            }
        }
        true
    }

    /// Takes what it can of the input and says how much; the rest must be given again with what follows it.
    pub fn process(&mut self, input: &[u8], now_us: u64) -> usize {
        let mut at = 0;
        if now_us < self.quiet_until_us && matches!(self.state, State::Command | State::Data) && !input.is_empty() {
            self.violation(self.quiet_why, input);
        }
        loop {
            let rest = &input[at..];
            match self.state {
                State::Deaf => return input.len(),
                State::Storing => return at,
                State::Command => {
                    let Some(end) = memchr::memchr(b'\n', rest) else {
                        if rest.len() >= COMMAND_BYTES_MAX {
                            self.violation("command line too long", rest);
                            self.reply(500, "5.5.2 line too long");
                            self.close();
                            continue;
                        }
                        return at;
                    };
                    at += end + 1;
                    self.command_line(&rest[..=end], &input[at..], now_us);
                }
                State::Response => {
                    let Some(end) = memchr::memchr(b'\n', rest) else { return at };
                    at += end + 1;
                    self.response(&rest[..end]);
                }
                State::Data => {
                    let (used, done) = self.with_content(|dots, _, content| dots.scan(rest, content));
                    at += used;
                    if done {
                        self.state = State::Command;
                        self.finish_message(now_us);
                    } else {
                        self.mid_data();
                        if used == 0 || at == input.len() {
                            return if matches!(self.state, State::Deaf) { input.len() } else { at };
                        }
                    }
                }
                State::Chunk { left, last } => {
                    let take = left.min(rest.len() as u64) as usize;
                    let chunk = &rest[..take];
                    at += take;
                    if !self.tx.spoiled {
                        self.with_content(|_, lines, content| {
                            content.content(chunk);
                            lines.check(chunk, content);
                        });
                        self.mid_data();
                        if matches!(self.state, State::Deaf) {
                            continue;
                        }
                    }
                    let left = left - take as u64;
                    if left > 0 {
                        self.state = State::Chunk { left, last };
                        return at;
                    }
                    self.state = State::Command;
                    self.chunk_complete(last, now_us);
                }
            }
        }
    }

    pub(super) fn with_content<R>(
        &mut self,
        work: impl FnOnce(&mut DotScan, &mut LineCheck, &mut Content<'_>) -> R,
    ) -> R {
        let meter = self.meter.get_or_insert_with(Box::default);
        let mut content = Content {
            recorder: &self.recorder,
            meter,
            eight_bit: &mut self.tx.saw_eight_bit,
            body: (self.store_bytes_max > 0).then_some((&mut self.body, self.store_bytes_max)),
            connection: self.connection,
            site: self.host.site.no,
        };
        work(&mut self.dots, &mut self.lines, &mut content)
    }

    /// The fault in mid-data.
    pub(super) fn mid_data(&mut self) {
        if self.behaviour.at_body.is_none() && (self.behaviour.script.is_empty() || self.tx.body_played) {
            return;
        }
        if self.meter.as_ref().is_some_and(|m| m.len() >= self.behaviour.body_bytes) {
            self.tx.body_played = true;
            self.scripted(Stage::Body, b"", |session| {
                session.strikes(|b| &b.at_body);
            });
        }
    }

    pub(super) fn command_line(&mut self, line: &[u8], behind: &[u8], now_us: u64) {
        let text = line.strip_suffix(b"\r\n").unwrap_or_else(|| {
            self.violation("command ends without CRLF", line);
            &line[..line.len() - 1]
        });
        if line.len() > COMMAND_BYTES_MAX {
            self.violation("command line too long", line);
        }
        let command = match command::parse(text) {
            Ok(command) => command,
            Err(breach) => {
                self.violation(breach, line);
                self.reply(501, "5.5.4 syntax");
                return;
            }
        };
        // RFC 2920 3.1: these end a group, and without PIPELINING every command does.
        let ends_group = matches!(
            command,
            Command::Ehlo
                | Command::Helo
                | Command::Lhlo
                | Command::Data
                | Command::Quit
                | Command::StartTls
                | Command::Auth(..)
        );
        if ends_group || !self.extended || self.behaviour.no_pipelining {
            self.quiet_why =
                if ends_group { "pipelined behind a command that ends its group" } else { "pipelined unasked" };
            self.quiet_until_us = now_us + u64::from(self.behaviour.rtt_ms) * 1000;
            let chunk = matches!(command, Command::Bdat { .. });
            if !behind.is_empty() && !chunk {
                self.violation(self.quiet_why, behind);
            }
        }
        self.command(&command, line, now_us);
    }

    pub(super) fn command(&mut self, command: &Command<'_>, line: &[u8], now_us: u64) {
        let stage = match command {
            Command::Ehlo | Command::Lhlo if self.secured => Stage::TlsEhlo,
            Command::Ehlo | Command::Lhlo => Stage::Ehlo,
            Command::Helo => Stage::Helo,
            Command::StartTls => Stage::StartTls,
            Command::Auth(..) => Stage::Auth,
            Command::Mail(_) => Stage::Mail,
            Command::Rcpt(_) => Stage::Rcpt,
            Command::Data => Stage::Data,
            Command::Rset => Stage::Rset,
            Command::Quit => Stage::Quit,
            // Its rule is met when the chunk has come.
            Command::Bdat { .. } | Command::Noop | Command::Other => return self.carry_out(command, line, now_us),
        };
        let played = self.scripted(stage, line, |session| session.carry_out(command, line, now_us));
        if played == ReplySource::Instead {
            match stage {
                Stage::Mail => self.tx.tried = true,
                Stage::Data => self.tx.open = false,
                _ => {}
            }
        }
    }

    fn carry_out(&mut self, command: &Command<'_>, line: &[u8], now_us: u64) {
        match command {
            Command::Ehlo | Command::Helo | Command::Lhlo => self.work(|b| b.ehlo_delay_ms),
            Command::Mail(_) => self.work(|b| b.mail_delay_ms),
            Command::Rcpt(_) => self.work(|b| b.rcpt_delay_ms),
            Command::Data => self.work(|b| b.data_delay_ms),
            Command::Quit => self.work(|b| b.quit_delay_ms),
            // Its last chunk counts as the end of the data.
            Command::Bdat { .. } => {}
            Command::Rset | Command::Noop | Command::StartTls | Command::Auth(..) | Command::Other => self.work(|_| 0),
        }
        match command {
            Command::Ehlo if !self.behaviour.lmtp => self.ehlo(),
            Command::Lhlo if self.behaviour.lmtp => self.ehlo(),
            Command::Helo if !self.behaviour.lmtp => {
                self.greeted = true;
                self.extended = false;
                self.reset();
                let host = Arc::clone(&self.host);
                self.reply(250, &host.name);
            }
            Command::Mail(mail) => self.mail(mail, line, now_us),
            Command::Rcpt(rcpt) => self.rcpt(rcpt, line, now_us),
            Command::Data => self.data(line),
            Command::Bdat { bytes, last } => self.bdat(*bytes, *last, line, now_us),
            Command::Rset => {
                self.reset();
                self.reply(250, "2.0.0 ok");
            }
            Command::Noop => self.reply(250, "2.0.0 ok"),
            Command::StartTls if self.offers_starttls() => self.starttls(),
            Command::Auth(mechanism, initial) if self.offers_auth() => self.auth(mechanism, *initial, line),
            Command::Quit => {
                if !self.strikes(|b| &b.at_quit) {
                    self.reply(221, "2.0.0 bye");
                    self.close();
                    self.effect = Some(Effect::Bye);
                }
            }
            Command::Ehlo | Command::Helo | Command::Lhlo | Command::StartTls | Command::Auth(..) | Command::Other => {
                self.violation("unknown command", line);
                self.reply(500, "5.5.1 unknown command");
            }
        }
    }

    pub(super) fn ehlo(&mut self) {
        if self.strikes(|b| &b.at_ehlo) {
            return;
        }
        if self.behaviour.no_ehlo {
            self.reply(502, "5.5.1 EHLO is not known here");
            return;
        }
        self.greeted = true;
        self.extended = true;
        self.reset();
        let b = Arc::clone(&self.behaviour);
        let size = if b.size_bytes_max > 0 { format!("SIZE {}", b.size_bytes_max) } else { "SIZE".to_owned() };
        let offers = [
            (b.no_pipelining, "PIPELINING"),
            (b.no_size, size.as_str()),
            (b.no_8bitmime, "8BITMIME"),
            (b.no_smtputf8, "SMTPUTF8"),
            (b.no_dsn, "DSN"),
            (b.no_chunking, "CHUNKING"),
        ];
        self.out.extend_from_slice(b"250-");
        self.out.extend_from_slice(self.host.name.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        let protected = [
            (!self.offers_starttls(), "STARTTLS"),
            (!self.offers_auth(), self.auth_offer()),
            (!self.offers_requiretls(), "REQUIRETLS"),
        ];
        for (_, offer) in offers.iter().chain(&protected).filter(|(absent, _)| !absent) {
            self.out.extend_from_slice(b"250-");
            self.out.extend_from_slice(offer.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        }
        self.reply(250, "ENHANCEDSTATUSCODES");
    }

    pub(super) fn reset(&mut self) {
        let tx = &mut self.tx;
        tx.open = false;
        tx.tried = false;
        tx.bdat = false;
        tx.spoiled = false;
        tx.body_played = false;
        tx.saw_eight_bit = false;
        tx.rcpt_count = 0;
        tx.rcpts.clear();
        if tx.rcpts.capacity() > RCPTS_KEEP_BYTES_MAX {
            tx.rcpts = String::new();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.host.site.open.fetch_sub(1, Relaxed);
        let counters = &self.recorder.counters;
        counters.open.fetch_sub(1, Relaxed);
        counters.unanswered.fetch_add(self.unanswered, Relaxed);
        self.recorder.nudge();
    }
}
