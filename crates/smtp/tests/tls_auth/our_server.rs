//! Our server session and its caller, which acts like `sessions/session/`; and the properties that must hold:
//!
//! - There is no MAIL, RCPT or body in clear where TLS is required, or without a required login.
//! - After the handshake nothing from the cleartext session is left: no greeting, no login, no transaction, no octets.
//! - An exchange of AUTH has one end, and none of its lines is read as a command.
//! - Acknowledged messages arrived completely. Failed logins are few. Each read has few steps.
//! - No secret is in a reply, in a command that is shown, or in anything that `Debug` shows.

use std::sync::Arc;

use fastrand::Rng;
use stentor_mail::Ms;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_sasl::{Bindings, Mechanism, ScramKeys, ServerExchange, ServerStep};
use stentor_smtp::server::{EndOfData, Offers, SecretBytes, ServerConfig, ServerSession, Step};

use super::Mutation;
use super::coverage::{Coverage, Forms, InvariantResult, PASSWORD, TOKEN, USER, ensure};
use super::wire::{End, Layer, Segment};

/// Maximum steps per read.
const STEPS_MAX: usize = 20_000;
const AUTH_FAILURES_MAX: u8 = 5;
const HANDSHAKE_MS: Ms = 60_000;
const NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj";

/// A server's offers and behaviour.
#[derive(Debug, Clone)]
pub struct Plan {
    pub in_clear: Offers,
    pub within_tls: Offers,
    pub is_implicit: bool,
    pub trusted: bool,
    /// `None`: the handshake fails. Otherwise, whether the client gets proof of the server's identity, and which
    /// channel bindings there are.
    pub handshake: Option<[u8; 2]>,
    pub config: ServerConfig,
    pub mutation: Mutation,
}

impl Plan {
    pub fn new(rng: &mut Rng, mutation: Mutation) -> Plan {
        let all = "SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN OAUTHBEARER XOAUTH2";
        let within = match rng.u32(0..6) {
            0 => String::new(),
            1 => "PLAIN LOGIN".to_owned(),
            2 => "LOGIN XOAUTH2".to_owned(),
            _ => all.to_owned(),
        };
        let in_clear = if rng.u32(0..3) == 0 { within.replace("SCRAM-SHA-256-PLUS ", "") } else { String::new() };
        let require_auth = rng.u32(0..3) == 0;
        Plan {
            in_clear: Offers {
                starttls: rng.u32(0..5) > 0,
                auth_after_tls: in_clear.is_empty() && !within.is_empty() && rng.bool(),
                auth: in_clear,
                require_tls: rng.u32(0..3) == 0,
                require_auth,
                requiretls: true,
            },
            within_tls: Offers { auth: within, require_auth, requiretls: true, ..Offers::default() },
            is_implicit: false,
            trusted: rng.u32(0..4) == 0,
            handshake: if rng.u32(0..6) == 0 { None } else { Some([rng.u8(0..2), rng.u8(0..3)]) },
            config: ServerConfig {
                hostname: "mx.example".to_owned(),
                auth_failures_max: AUTH_FAILURES_MAX,
                size_max: 100_000,
                piece_bytes_max: 64,
                ..ServerConfig::default()
            },
            mutation,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tls {
    Clear,
    Handshake,
    Secured,
}

/// An acknowledged message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    pub sender: String,
    pub content: Vec<u8>,
}

pub struct OurServer<'a> {
    session: ServerSession,
    plan: Plan,
    rng: Rng,
    forms: &'a Forms,
    keys: &'a ScramKeys,
    tls: Tls,
    kept: Vec<u8>,
    exchange: Option<ServerExchange>,
    failures: u8,
    logged_in: bool,
    sender: String,
    body: Vec<u8>,
    pub stored: Vec<StoredMessage>,
    handshake_until: Ms,
    is_closed: bool,
    written: Vec<Segment>,
    pub coverage: Coverage,
}

impl<'a> OurServer<'a> {
    pub fn new(plan: Plan, forms: &'a Forms, keys: &'a ScramKeys, seed: u64, now: Ms) -> Self {
        let mut session = ServerSession::new(Arc::new(plan.config.clone()), plan.trusted, now);
        session.tell_unknown();
        if plan.is_implicit {
            session.secured(Arc::new(plan.within_tls.clone()), plan.trusted, now);
        } else {
            session.offer(Arc::new(plan.in_clear.clone()));
        }
        let tls = if plan.is_implicit { Tls::Secured } else { Tls::Clear };
        let mut server = Self {
            session,
            plan,
            rng: Rng::with_seed(seed),
            forms,
            keys,
            tls,
            kept: Vec::new(),
            exchange: None,
            failures: 0,
            logged_in: false,
            sender: String::new(),
            body: Vec::new(),
            stored: Vec::new(),
            handshake_until: Ms::MAX,
            is_closed: false,
            written: Vec::new(),
            coverage: Coverage::default(),
        };
        server.write();
        server
    }

    fn pump(&mut self, now: Ms) -> InvariantResult {
        for count in 0..STEPS_MAX {
            let step = self.session.step(now);
            if step != Step::NeedInput {
                self.forms.hidden_in(&format!("{step:?}"))?;
            }
            if let Step::Unknown { line, .. } = &step {
                self.coverage.step("server: shows an unknown command");
                ensure(!self.forms.shown_in(line), || format!("shows a secret: {}", line.escape_ascii()))?;
            }
            ensure(self.exchange.is_none() || is_of_auth(&step), || format!("in an exchange: {step:?}"))?;
            if !self.obey(step, now)? {
                self.write();
                let is_new = count > 0 || self.rng.u32(0..16) == 0;
                return if is_new { self.forms.hidden_in(&format!("{:?}", self.session)) } else { Ok(()) };
            }
        }
        Err("the server's steps have no end".to_owned())
    }

    /// Performs a step; false if input is needed, or nothing more follows.
    fn obey(&mut self, step: Step, now: Ms) -> InvariantResult<bool> {
        match step {
            Step::NeedInput => return Ok(false),
            Step::Close => {
                self.close();
                return Ok(false);
            }
            Step::Flush => self.write(),
            Step::StartTls => {
                self.coverage.step("server: takes STARTTLS");
                ensure(self.tls == Tls::Clear && self.plan.in_clear.starttls, || "STARTTLS twice".to_owned())?;
                ensure(!self.session.in_transaction(), || "a transaction over STARTTLS".to_owned())?;
                self.write();
                (self.tls, self.handshake_until) = (Tls::Handshake, now + HANDSHAKE_MS);
                return Ok(false);
            }
            Step::Auth { mechanism, initial } => {
                ensure(!self.logged_in && !self.session.in_transaction(), || "AUTH where none is".to_owned())?;
                self.begin(&mechanism, initial.as_ref())?;
            }
            Step::AuthResponse(response) => {
                let is_empty = response.octets().is_empty();
                self.coverage.step(if is_empty { "server: an empty response" } else { "server: a response" });
                ensure(self.exchange.is_some(), || "a response without an exchange".to_owned())?;
                self.respond(Some(&response))?;
            }
            Step::AuthCancelled => {
                ensure(self.exchange.take().is_some(), || "an end without an exchange".to_owned())?;
                self.failures += 1;
            }
            Step::Unknown { reply, .. } => self.session.answer(reply),
            Step::Mail(mail) => {
                self.may_mail()?;
                let sender = mail.path.as_str();
                let is_from_clear =
                    self.tls == Tls::Secured && ["injected", "clear"].iter().any(|s| sender.starts_with(s));
                ensure(!is_from_clear, || format!("what came in clear counts within TLS: {sender}"))?;
                sender.clone_into(&mut self.sender);
                self.answer(
                    12,
                    &[
                        Reply::fixed(451, Enhanced::new(4, 3, 0), "Later"),
                        Reply::fixed(550, Enhanced::new(5, 7, 1), "No"),
                    ],
                );
            }
            Step::Rcpt(_) => {
                self.may_mail()?;
                self.answer(
                    12,
                    &[
                        Reply::fixed(450, Enhanced::new(4, 2, 0), "Later"),
                        Reply::fixed(550, Enhanced::new(5, 1, 1), "No"),
                    ],
                );
            }
            Step::Data => {
                self.may_mail()?;
                self.body.clear();
                if self.rng.u32(0..24) == 0 {
                    self.session.answer(Reply::fixed(451, Enhanced::new(4, 3, 0), "Later"));
                } else {
                    self.session.begin_data(Vec::new());
                }
            }
            Step::Piece(piece) => self.body.extend(piece),
            Step::EndOfData(end) => self.store(end)?,
            Step::Reset | Step::Refused { .. } => self.body.clear(),
            Step::Client(_) => return Err("nobody may be a proxy".to_owned()),
        }
        Ok(true)
    }

    fn may_mail(&self) -> InvariantResult {
        let must = if self.tls == Tls::Secured { &self.plan.within_tls } else { &self.plan.in_clear };
        ensure(!must.require_tls || self.tls == Tls::Secured, || "mail in clear where TLS is required".to_owned())?;
        ensure(!must.require_auth || self.logged_in, || "mail without the login".to_owned())?;
        ensure(self.session.is_authenticated() == self.logged_in, || "another login than was made".to_owned())?;
        ensure(!self.session.helo().is_empty(), || "mail without a greeting".to_owned())
    }

    /// Accepts, or once in `one_in` times refuses.
    fn answer(&mut self, one_in: u32, refusals: &[Reply]) {
        let is_refused = self.rng.u32(0..one_in) == 0;
        let refusal = &refusals[self.rng.usize(0..refusals.len())];
        let accepted = Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok");
        self.session.answer(if is_refused { refusal.clone() } else { accepted });
    }

    fn store(&mut self, end: EndOfData) -> InvariantResult {
        self.may_mail()?;
        let mut content = std::mem::take(&mut self.body);
        content.extend(end.last);
        ensure(content.len() as u64 == end.size, || "not all of the content".to_owned())?;
        if self.rng.u32(0..12) == 0 {
            self.session.answer(Reply::fixed(451, Enhanced::new(4, 3, 0), "Later"));
        } else {
            self.stored.push(StoredMessage { sender: self.sender.clone(), content });
            self.session.answer(Reply::fixed(250, Enhanced::new(2, 0, 0), "Queued"));
        }
        Ok(())
    }

    fn begin(&mut self, mechanism: &str, initial: Option<&SecretBytes>) -> InvariantResult {
        let offers = if self.tls == Tls::Secured { &self.plan.within_tls } else { &self.plan.in_clear };
        let is_offered = offers.auth.split(' ').any(|offered| offered == mechanism);
        ensure(is_offered, || format!("{mechanism} is not offered"))?;
        ensure(self.failures < AUTH_FAILURES_MAX, || "too many logins".to_owned())?;
        let mechanism: Mechanism = mechanism.parse().map_err(|_| "no mechanism".to_owned())?;
        self.coverage.step(match initial.map(|initial| initial.octets().is_empty()) {
            None => "server: AUTH without an initial response",
            Some(true) => "server: AUTH with an empty initial response",
            Some(false) => "server: AUTH with an initial response",
        });
        let bindings = self.bindings();
        let offers_plus = !bindings.is_empty() && offers.auth.contains("-PLUS");
        self.exchange = Some(ServerExchange::new(mechanism, bindings, offers_plus, NONCE));
        self.respond(initial)
    }

    fn bindings(&self) -> Bindings {
        let has = self.plan.handshake.filter(|_| self.tls == Tls::Secured && !self.plan.is_implicit);
        Bindings {
            exporter: has.filter(|has| has[1] == 1).map(|_| [7; 32]),
            end_point: has.filter(|has| has[1] < 2).map(|_| vec![9; 32]),
        }
    }

    fn respond(&mut self, response: Option<&SecretBytes>) -> InvariantResult {
        const MOODS: [Reply; 4] = [
            Reply::fixed(454, Enhanced::new(4, 7, 0), "Too many guesses, later"),
            Reply::fixed(421, Enhanced::new(4, 7, 0), "The login is no longer valid, closing"),
            Reply::fixed(535, Enhanced::new(5, 7, 8), "Wrong"),
            Reply::fixed(534, Enhanced::new(5, 7, 9), "Too weak"),
        ];
        let Some(mut server) = self.exchange.take() else { return Ok(()) };
        if self.rng.u32(0..16) == 0 {
            let mood = self.rng.usize(0..MOODS.len());
            return self.refuse(&MOODS[mood]);
        }
        let mut step = server.step(response.map(SecretBytes::octets));
        if let Ok(ServerStep::Keys { user }) = &step {
            let keys = if user == USER { self.keys.clone() } else { ScramKeys::made_up(&[3; 32], user, 4_096) };
            step = server.keys(keys).map(ServerStep::Challenge);
        }
        let is_right = match step {
            Ok(ServerStep::Challenge(challenge)) => {
                self.coverage.step("server: a challenge");
                self.session.challenge(&challenge);
                self.exchange = Some(server);
                return Ok(());
            }
            Ok(ServerStep::Password(given)) => given.user == USER && given.password.expose() == PASSWORD,
            Ok(ServerStep::Token(given)) => given.token.expose() == TOKEN,
            Ok(ServerStep::Done { user, .. }) => user == USER,
            Ok(ServerStep::Keys { .. }) | Err(stentor_sasl::SaslError::Wrong) => false,
            Err(_) => {
                self.coverage.step("server: a response that the mechanism does not have");
                return self.refuse(&Reply::fixed(501, Enhanced::new(5, 5, 2), "Not what the mechanism has"));
            }
        };
        if !is_right && self.plan.mutation != Mutation::ServerBelievesAnybody {
            return self.refuse(&Reply::fixed(535, Enhanced::new(5, 7, 8), "Wrong"));
        }
        self.logged_in = is_right;
        self.coverage.step(match server.mechanism() {
            Mechanism::Plain => "server: logged in by PLAIN",
            Mechanism::Login => "server: logged in by LOGIN",
            Mechanism::ScramSha256 => "server: logged in by SCRAM-SHA-256",
            Mechanism::ScramSha256Plus => "server: logged in by SCRAM-SHA-256-PLUS",
            Mechanism::OauthBearer => "server: logged in by OAUTHBEARER",
            Mechanism::Xoauth2 => "server: logged in by XOAUTH2",
            Mechanism::CramMd5 => return Err("CRAM-MD5 is not spoken".to_owned()),
        });
        self.session.answer(Reply::fixed(235, Enhanced::new(2, 7, 0), "Welcome"));
        self.session.authenticated();
        Ok(())
    }

    fn refuse(&mut self, reply: &Reply) -> InvariantResult {
        self.failures += 1;
        self.session.answer(reply.clone());
        ensure(!self.session.is_authenticated(), || "refused, and logged in".to_owned())
    }

    /// Handles the client's handshake message.
    fn handshake(&mut self, now: Ms) -> InvariantResult {
        let Some([is_proven, bindings]) = self.plan.handshake else {
            self.coverage.step("server: the handshake fails");
            self.written.push(Segment::new(Layer::Handshake, b"alert"));
            self.close();
            return Ok(());
        };
        self.coverage.step("server: the handshake is made");
        if self.logged_in {
            self.coverage.step("server: a login ends at STARTTLS");
        }
        self.written.push(Segment::new(Layer::Handshake, &[b'o', b'k', is_proven, bindings]));
        self.tls = Tls::Secured;
        (self.logged_in, self.handshake_until) = (false, Ms::MAX);
        self.session.secured(Arc::new(self.plan.within_tls.clone()), self.plan.trusted, now);
        let is_new = self.session.helo().is_empty() && !self.session.is_esmtp() && !self.session.in_transaction();
        ensure(is_new && self.session.is_secured(), || "something is left of before TLS".to_owned())?;
        ensure(!self.session.is_authenticated(), || "a login over STARTTLS".to_owned())?;
        let kept = std::mem::take(&mut self.kept);
        self.session.receive(&kept);
        Ok(())
    }

    fn write(&mut self) {
        let octets = std::mem::take(self.session.output());
        self.session.sent();
        for line in octets.split_inclusive(|octet| *octet == b'\n') {
            let line = String::from_utf8_lossy(line);
            if let Some((_, step)) = SAID.iter().find(|(text, _)| line.starts_with(text)) {
                self.coverage.step(step);
            }
        }
        if !octets.is_empty() {
            let layer = if self.tls == Tls::Secured { Layer::Tls } else { Layer::Clear };
            self.written.push(Segment { layer, octets });
        }
    }

    fn close(&mut self) {
        if self.exchange.take().is_some() && !self.is_closed {
            self.coverage.step("server: the connection ends in an exchange");
        }
        self.is_closed = true;
    }
}

/// Whether a step may occur in an exchange of AUTH.
fn is_of_auth(step: &Step) -> bool {
    matches!(step, Step::AuthResponse(_) | Step::AuthCancelled | Step::NeedInput | Step::Flush | Step::Close)
}

/// The session's own replies, and the steps in which they are seen.
const SAID: [(&str, &str); 17] = [
    ("554 5.5.0 Data sent after STARTTLS", "server: octets behind STARTTLS"),
    ("503 5.5.1 TLS is already active", "server: STARTTLS twice"),
    ("502 5.5.1 Command not implemented", "server: STARTTLS or AUTH where it is not offered"),
    ("530 5.7.0 Must issue a STARTTLS command first", "server: a command before STARTTLS"),
    ("530 5.7.0 Authentication required", "server: MAIL before AUTH"),
    ("538 5.7.11 ", "server: AUTH before STARTTLS"),
    ("503 5.5.1 Already authenticated", "server: AUTH twice"),
    ("503 5.5.1 AUTH within a transaction", "server: AUTH in a transaction"),
    ("503 5.5.1 EHLO or HELO first", "server: AUTH or MAIL before EHLO"),
    ("501 5.5.4 Syntax: AUTH", "server: AUTH with too many words, or none"),
    ("504 5.5.4 ", "server: AUTH by a mechanism that is not offered"),
    ("501 5.7.0 Authentication cancelled", "server: an exchange is cancelled"),
    ("500 5.5.6 ", "server: a response is too long"),
    ("501 5.5.2 Bad base64", "server: what is not base64"),
    ("421 4.7.0 Too many failed logins", "server: too many logins fail"),
    ("421 4.4.2 Timeout", "server: time is up"),
    ("500 5.5.2 Lines must end with", "server: a response with LF alone"),
];

impl End for OurServer<'_> {
    fn read(&mut self, segment: Segment, now: Ms) -> InvariantResult {
        match (self.tls, segment.layer) {
            (Tls::Clear, _) | (Tls::Secured, Layer::Tls) => self.session.receive(&segment.octets),
            (Tls::Handshake, Layer::Handshake) => {
                self.handshake(now)?;
                if self.is_closed {
                    return Ok(());
                }
            }
            (Tls::Handshake, Layer::Clear) if self.plan.mutation == Mutation::ServerKeepsClear => {
                self.kept.extend(segment.octets);
                return Ok(());
            }
            _ => {
                let is_handshake = self.tls == Tls::Handshake;
                self.coverage.step(if is_handshake { "server: no handshake comes" } else { "server: TLS fails" });
                self.close();
                return Ok(());
            }
        }
        self.pump(now)
    }

    fn disconnected(&mut self, _: Ms) -> InvariantResult {
        if self.tls == Tls::Handshake {
            self.coverage.step("server: lost in the handshake");
        }
        self.close();
        Ok(())
    }

    fn act(&mut self, _: Ms) -> InvariantResult<bool> {
        Ok(false)
    }

    fn deadline(&self) -> Ms {
        if self.tls == Tls::Handshake { self.handshake_until } else { self.session.deadline() }
    }

    fn timed_out(&mut self, now: Ms) -> InvariantResult {
        if self.tls == Tls::Handshake {
            self.coverage.step("server: time is up in the handshake");
            self.close();
            return Ok(());
        }
        if self.exchange.is_some() {
            self.coverage.step("server: time is up in an exchange");
        }
        self.session.timed_out();
        self.pump(now)
    }

    fn written(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.written)
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
