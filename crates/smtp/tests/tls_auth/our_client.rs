//! Our client session and its caller, which acts like `delivery/connection.rs`; and the properties that must
//! hold:
//!
//! - Where TLS is required, only greetings, STARTTLS and QUIT are sent in clear; no secret is, unless that is
//!   permitted.
//! - There is no MAIL before a required login, or before the host has proven its identity, if its mechanism can.
//! - Nothing more is sent once TLS has failed, and nothing received in clear counts within TLS.
//! - Each transaction ends once, with a result for each recipient; `Closed` comes once, and last.
//! - No secret is in anything that `Debug` or an error shows.

use std::sync::Arc;

use fastrand::Rng;
use stentor_mail::Ms;
use stentor_sasl::{Bindings, ClientCapabilities, ClientCredentials, ClientExchange, Mechanism, choose};
use stentor_smtp::client::{
    AuthRefusal, ClientConfig, ClientError, ClientEvent, ClientSession, OfferedMechanisms, RcptStage, SaslOctets,
    StartTlsRefusal, TlsStage, TlsUse, TxRcpt, TxSpec,
};

use super::Mutation;
use super::coverage::{Coverage, Forms, InvariantResult, LONG_PASSWORD, PASSWORD, TOKEN, USER, WRONG, ensure};
use super::wire::{End, Layer, Segment};

/// Events per read: a session that produces more never ends.
const EVENTS_MAX: usize = 64;
pub const RECIPIENTS: [&str; 2] = ["b@y.org", "c@y.org"];

/// The requirements for a session, and its features.
#[derive(Debug, Clone)]
pub struct Plan {
    pub tls: TlsUse,
    pub logs_in: bool,
    pub is_token: bool,
    pub secret: &'static str,
    pub allowed: stentor_sasl::Mechanisms,
    /// The handshake fails if the host does not prove its identity.
    pub verifies: bool,
    /// The secret may be sent to any host, even in clear.
    pub shows_secret: bool,
    pub config: ClientConfig,
    pub mutation: Mutation,
}

impl Plan {
    pub fn new(rng: &mut Rng, mutation: Mutation) -> Plan {
        let is_token = rng.u32(0..4) == 0;
        let passwords = [PASSWORD, PASSWORD, PASSWORD, LONG_PASSWORD, WRONG];
        let all = stentor_sasl::Mechanisms::all();
        // SCRAM costs thousands of hashes: not in each world.
        let scram_less = all.without(Mechanism::ScramSha256).without(Mechanism::ScramSha256Plus);
        Plan {
            tls: [TlsUse::Never, TlsUse::IfOffered, TlsUse::Required, TlsUse::Required, TlsUse::Implicit]
                [rng.usize(0..5)],
            logs_in: rng.u32(0..4) > 0,
            is_token,
            secret: if is_token { TOKEN } else { passwords[rng.usize(0..5)] },
            allowed: match rng.u32(0..24) {
                _ if mutation == Mutation::ClientBelievesAnybody => all,
                0..4 => all,
                4..7 => [Mechanism::CramMd5, Mechanism::Xoauth2].into_iter().collect(),
                7..10 => [Mechanism::Login, Mechanism::Xoauth2].into_iter().collect(),
                10..12 => all.without(Mechanism::ScramSha256Plus),
                _ => scram_less,
            },
            verifies: rng.bool(),
            shows_secret: rng.u32(0..2) == 0,
            config: ClientConfig {
                ehlo_name: "ours.example".to_owned(),
                pipelining: rng.bool(),
                use_chunking: rng.bool(),
                ..ClientConfig::default()
            },
            mutation,
        }
    }
}

/// The outcome of a message in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    /// All of it was sent, and no reply came.
    Perhaps,
    Not,
}

/// A message, and its end in this session.
#[derive(Debug, Clone)]
pub struct Mail {
    pub sender: String,
    pub content: Vec<u8>,
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tls {
    Clear,
    Handshake,
    Secured { is_proven: bool, bindings: Bindings },
}

pub struct OurClient<'a> {
    session: ClientSession,
    plan: Plan,
    rng: Rng,
    forms: &'a Forms,
    tls: Tls,
    /// Cleartext octets that arrived during the handshake: only a mutation reads them.
    kept: Vec<u8>,
    login: Option<ClientExchange>,
    is_ready: bool,
    may_mail: bool,
    is_closed: bool,
    /// TLS has failed: nothing more may be sent.
    is_silent: bool,
    pub mails: Vec<Mail>,
    begun: usize,
    pub error: Option<ClientError>,
    written: Vec<Segment>,
    pub coverage: Coverage,
}

impl<'a> OurClient<'a> {
    pub fn new(plan: Plan, mails: Vec<Mail>, forms: &'a Forms, seed: u64, now: Ms) -> Self {
        let mut session = ClientSession::new(Arc::new(plan.config.clone()), now);
        let is_mutant = plan.mutation == Mutation::ClientForgetsPolicy;
        session.protect(if is_mutant { TlsUse::IfOffered } else { plan.tls }, plan.logs_in);
        let tls = match plan.tls {
            TlsUse::Implicit => Tls::Secured { is_proven: plan.verifies, bindings: Bindings::default() },
            _ => Tls::Clear,
        };
        Self {
            session,
            plan,
            rng: Rng::with_seed(seed),
            forms,
            tls,
            kept: Vec::new(),
            login: None,
            is_ready: false,
            may_mail: false,
            is_closed: false,
            is_silent: false,
            mails,
            begun: 0,
            error: None,
            written: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    pub fn stage(&self) -> TlsStage {
        self.session.tls_stage()
    }

    /// Processes events and supplies mail until input is needed.
    fn pump(&mut self, now: Ms) -> InvariantResult {
        for count in 0..EVENTS_MAX {
            if let Some(event) = self.session.poll_event() {
                self.forms.hidden_in(&format!("{event:?}"))?;
                self.hear(event, now)?;
            } else if self.session.wants_body() {
                let content = self.mails[self.begun - 1].content.clone();
                // An error ends the session, which reports it by an event.
                let pushed = self.session.push_body(&content, now);
                ensure(pushed.and_then(|()| self.session.end_body(now)).is_ok(), || "content is refused".to_owned())?;
            } else if self.is_ready && self.begun < self.mails.len() && self.session.can_pipeline(self.size()) {
                self.begin(now)?;
            } else {
                self.write()?;
                let is_new = count > 0 || self.rng.u32(0..16) == 0;
                return if is_new { self.forms.hidden_in(&format!("{:?}", self.session)) } else { Ok(()) };
            }
        }
        Err("the client's events have no end".to_owned())
    }

    fn size(&self) -> u64 {
        self.mails[self.begun].content.len() as u64
    }

    fn begin(&mut self, now: Ms) -> InvariantResult {
        let mail = &self.mails[self.begun];
        let spec = TxSpec {
            tx: self.begun as u64,
            sender: &mail.sender,
            size: mail.content.len() as u64,
            size_exact: true,
            eight_bit: false,
            smtputf8: false,
            require_tls: false,
            ret: None,
            envid: None,
        };
        let begun = self.session.begin(&spec, RECIPIENTS.map(TxRcpt::new), now);
        self.begun += 1;
        begun.map_err(|error| format!("a transaction cannot begin: {error}"))
    }

    fn hear(&mut self, event: ClientEvent, now: Ms) -> InvariantResult {
        ensure(!self.is_closed, || format!("an event after Closed: {event:?}"))?;
        match event {
            ClientEvent::Unsecured(why) => {
                self.coverage.step(match why {
                    StartTlsRefusal::NotOffered => "client: STARTTLS is not offered, goes on in clear",
                    StartTlsRefusal::Refused(_) => "client: STARTTLS is refused, goes on in clear",
                });
                ensure(self.plan.tls == TlsUse::IfOffered, || "it goes on in clear where TLS is required".to_owned())
            }
            ClientEvent::StartTls => {
                ensure(self.tls == Tls::Clear, || "a second handshake".to_owned())?;
                self.write()?;
                // Octets followed the go-ahead.
                if !self.session.is_closed() {
                    self.coverage.step("client: begins the handshake");
                    self.tls = Tls::Handshake;
                    self.written.push(Segment::new(Layer::Handshake, b"hello"));
                }
                Ok(())
            }
            ClientEvent::Authenticate(offered) => {
                self.log_in(offered, now);
                Ok(())
            }
            ClientEvent::Challenge(SaslOctets(octets)) => {
                self.respond(&octets, now);
                Ok(())
            }
            ClientEvent::Authenticated => {
                self.authenticated(now);
                Ok(())
            }
            ClientEvent::Ready(caps) => {
                self.is_ready = true;
                ensure(!self.plan.logs_in || self.may_mail, || "ready without the login".to_owned())?;
                let is_from_clear = self.session.is_secured() && caps.peer_name.contains("injected");
                ensure(!is_from_clear, || "what came in clear counts within TLS".to_owned())?;
                let is_clear = matches!(self.session.tls_stage(), TlsStage::Clear | TlsStage::Refused);
                ensure(is_clear != self.session.is_secured(), || "neither in clear nor secured".to_owned())
            }
            ClientEvent::Done { tx, results } => {
                let is_any = |stage| results.iter().any(|result| result.stage == stage);
                let verdict = match results.iter().filter(|result| result.is_delivered()).count() {
                    0 if is_any(RcptStage::AfterDot) => Verdict::Perhaps,
                    0 => Verdict::Not,
                    _ => Verdict::Delivered,
                };
                ensure(results.len() == RECIPIENTS.len(), || "not a result for each recipient".to_owned())?;
                let before = self.mails[tx as usize].verdict.replace(verdict);
                self.session.recycle(results);
                ensure(before.is_none(), || "a transaction has ended twice".to_owned())
            }
            ClientEvent::Closed { error } => self.close(error),
        }
    }

    fn log_in(&mut self, offered: OfferedMechanisms, now: Ms) {
        let (is_proven, bindings) = match &self.tls {
            Tls::Secured { is_proven, bindings } => (*is_proven, bindings.clone()),
            _ => (false, Bindings::default()),
        };
        let is_protected = is_proven || self.plan.shows_secret || self.plan.mutation == Mutation::ClientShowsSecret;
        let have = ClientCapabilities {
            is_token: self.plan.is_token,
            allowed: self.plan.allowed,
            is_protected,
            bindings: &bindings,
        };
        let choice = choose(stentor_sasl::Mechanisms::parse(&offered.to_string()), &have);
        let account = ClientCredentials {
            user: USER.to_owned(),
            secret: self.plan.secret.into(),
            host: "mx.example".to_owned(),
            port: 587,
        };
        let client = choice.map(|choice| ClientExchange::new(&choice, account, "rOprNGfwEbeRWgbNEkqO"));
        let Ok(Ok(client)) = client else {
            self.coverage.step("client: no mechanism to take");
            return self.session.decline_auth("no mechanism", now);
        };
        if self.rng.u32(0..24) == 0 {
            self.coverage.step("client: gives AUTH up before it");
            return self.session.decline_auth("changed its mind", now);
        }
        let initial = client.initial();
        self.coverage.step(match &initial {
            None => "client: AUTH without an initial response",
            Some(initial) if initial.len() > 300 => "client: AUTH whose initial response waits",
            Some(_) => "client: AUTH with an initial response",
        });
        let begun = self.session.auth(client.mechanism().name(), initial.as_deref(), now);
        if begun.is_err() {
            return self.session.decline_auth("too long", now);
        }
        self.login = Some(client);
    }

    fn respond(&mut self, octets: &[u8], now: Ms) {
        let Some(login) = &mut self.login else { return };
        if self.rng.u32(0..24) == 0 {
            self.coverage.step("client: gives AUTH up in it");
            return self.session.decline_auth("changed its mind", now);
        }
        match login.respond(octets) {
            Ok(response) => {
                self.coverage.step(if response.is_empty() {
                    "client: responds with nothing"
                } else {
                    "client: responds"
                });
                // The session may be closed by now, if the server did not wait.
                let _ = self.session.respond(&response, now);
            }
            Err(error) => {
                self.coverage.step("client: cancels for a challenge that the mechanism does not have");
                self.session.decline_auth(&error.to_string(), now);
            }
        }
    }

    fn authenticated(&mut self, now: Ms) {
        let Some(login) = self.login.take() else { return };
        let is_proven = login.finish().is_ok();
        if is_proven || self.plan.mutation == Mutation::ClientBelievesAnybody {
            self.may_mail = is_proven;
            self.coverage.step(match login.mechanism() {
                Mechanism::Plain => "client: logged in by PLAIN",
                Mechanism::Login => "client: logged in by LOGIN",
                Mechanism::ScramSha256 => "client: logged in by SCRAM-SHA-256",
                Mechanism::ScramSha256Plus => "client: logged in by SCRAM-SHA-256-PLUS",
                Mechanism::OauthBearer => "client: logged in by OAUTHBEARER",
                Mechanism::Xoauth2 => "client: logged in by XOAUTH2",
                Mechanism::CramMd5 => "client: logged in by CRAM-MD5",
            });
        } else {
            self.coverage.step("client: leaves a host that has not proven itself");
            self.session.decline_auth("the host has not proven itself", now);
        }
    }

    fn close(&mut self, error: Option<ClientError>) -> InvariantResult {
        self.is_closed = true;
        if let Some(error) = &error {
            self.forms.hidden_in(&format!("{error} {error:?}"))?;
            self.is_silent |= matches!(error, ClientError::Injected | ClientError::Tls(_));
            if let Some(step) = ending(error, self.session.tls_stage()) {
                self.coverage.step(step);
            }
        }
        self.error = error;
        let ended = self.mails[..self.begun].iter().all(|mail| mail.verdict.is_some());
        ensure(ended, || "closed with transactions that have no end".to_owned())?;
        self.write()
    }

    /// Takes the session's output for the server.
    fn write(&mut self) -> InvariantResult {
        let octets = std::mem::take(self.session.output());
        if octets.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&octets).into_owned();
        ensure(!self.is_silent, || format!("sent after TLS has failed: {text}"))?;
        ensure(self.tls != Tls::Handshake, || format!("sent in the handshake: {text}"))?;
        let is_mail = text.contains("MAIL FROM:");
        ensure(!is_mail || !self.plan.logs_in || self.may_mail, || format!("mail without the login: {text}"))?;
        let is_secured = matches!(self.tls, Tls::Secured { .. });
        if !is_secured {
            let is_greeting = |line: &str| {
                line == "STARTTLS" || line == "QUIT" || line.starts_with("EHLO ") || line.starts_with("HELO ")
            };
            let must_be_secured = matches!(self.plan.tls, TlsUse::Required | TlsUse::Implicit);
            let is_opening = text.split_terminator("\r\n").all(is_greeting);
            ensure(is_opening || !must_be_secured, || format!("in clear where TLS is required: {text}"))?;
        }
        if is_secured && text.starts_with("HELO ") {
            self.coverage.step("client: HELO within TLS");
        }
        let may_show = self.plan.shows_secret || matches!(self.tls, Tls::Secured { is_proven: true, .. });
        ensure(may_show || !self.forms.shown_in(&octets), || format!("a secret goes to anybody: {text}"))?;
        self.written.push(Segment { layer: if is_secured { Layer::Tls } else { Layer::Clear }, octets });
        Ok(())
    }

    /// Handles the server's handshake message.
    fn handshake(&mut self, octets: &[u8], now: Ms) {
        let [b'o', b'k', is_proven, has_exporter] = *octets else {
            self.coverage.step("client: the handshake is refused");
            self.is_silent = true;
            return self.session.tls_failed("handshake failure");
        };
        let is_proven = is_proven == 1;
        if self.plan.verifies && !is_proven {
            self.coverage.step("client: the host is not proven in the handshake");
            self.is_silent = true;
            return self.session.tls_failed("certificate verify failed");
        }
        self.coverage.step("client: the handshake is made");
        let bindings = Bindings {
            exporter: (has_exporter == 1).then_some([7; 32]),
            end_point: (has_exporter < 2).then(|| vec![9; 32]),
        };
        self.tls = Tls::Secured { is_proven, bindings };
        let _ = self.session.secured(now);
        let kept = std::mem::take(&mut self.kept);
        if !kept.is_empty() {
            let _ = self.session.receive(&kept, now);
        }
    }

    /// Handles octets of a layer that this end is not in.
    fn other_layer(&mut self, segment: &Segment, now: Ms) {
        if self.tls == Tls::Handshake && segment.layer == Layer::Clear {
            if self.plan.mutation == Mutation::ClientKeepsClear {
                return self.kept.extend(&segment.octets);
            }
            self.coverage.step("client: octets in clear in the handshake");
            // A socket passes them to TLS, which fails; the session refuses them as well.
            if self.rng.bool() {
                let _ = self.session.receive(&segment.octets, now);
                self.is_silent = true;
                return;
            }
        }
        self.is_silent |= self.tls != Tls::Clear;
        self.session.tls_failed("corrupt message");
    }
}

/// Returns the step in which an error ended the session.
fn ending(error: &ClientError, stage: TlsStage) -> Option<&'static str> {
    Some(match error {
        ClientError::TlsNotOffered => "client: STARTTLS is required and not offered",
        ClientError::TlsRefused(_) => "client: STARTTLS is required and refused",
        ClientError::Injected => "client: octets behind the go-ahead",
        ClientError::Tls(_) if stage == TlsStage::Hello => "client: TLS fails behind the handshake",
        ClientError::Unexpected { to: "STARTTLS", .. } => "client: nonsense to STARTTLS",
        ClientError::Unexpected { to: "AUTH", .. } => "client: nonsense to AUTH",
        ClientError::ServerClosing { at: "STARTTLS", .. } => "client: 421 to STARTTLS",
        ClientError::ServerClosing { at: "AUTH", .. } => "client: 421 to AUTH",
        ClientError::Disconnected("sending STARTTLS") => "client: lost at STARTTLS",
        ClientError::Disconnected("negotiating TLS") => "client: lost in the handshake",
        ClientError::Disconnected("authenticating") => "client: lost in AUTH",
        ClientError::TimedOut("sending STARTTLS") => "client: time is up at STARTTLS",
        ClientError::TimedOut("negotiating TLS") => "client: time is up in the handshake",
        ClientError::TimedOut("authenticating") => "client: time is up in AUTH",
        ClientError::Auth { why, .. } => match why {
            AuthRefusal::Credentials => "client: 535",
            AuthRefusal::Temporary => "client: 454",
            AuthRefusal::TooWeak => "client: 534",
            AuthRefusal::PasswordTransition => "client: 432",
            AuthRefusal::NeedsTls => "client: 538",
            AuthRefusal::Mechanism => "client: 504",
            AuthRefusal::Syntax => "client: 501",
            AuthRefusal::Other => "client: 550 to AUTH",
        },
        ClientError::NoAuth(why) => match &**why {
            "the host does not offer AUTH" => "client: AUTH is demanded and not offered",
            "a challenge is not base64" => "client: cancels a challenge that is not base64",
            _ => return None,
        },
        _ => return None,
    })
}

impl End for OurClient<'_> {
    fn read(&mut self, segment: Segment, now: Ms) -> InvariantResult {
        match (&self.tls, segment.layer) {
            (Tls::Clear, Layer::Clear) | (Tls::Secured { .. }, Layer::Tls) => {
                // The event that ends the session has the error.
                let _ = self.session.receive(&segment.octets, now);
            }
            (Tls::Handshake, Layer::Handshake) => self.handshake(&segment.octets, now),
            _ => self.other_layer(&segment, now),
        }
        self.pump(now)
    }

    fn disconnected(&mut self, now: Ms) -> InvariantResult {
        self.session.disconnected();
        self.pump(now)
    }

    fn act(&mut self, now: Ms) -> InvariantResult<bool> {
        let is_idle = self.is_ready && self.begun == self.mails.len() && self.session.can_begin();
        if is_idle {
            self.session.quit(now);
            self.pump(now)?;
        }
        Ok(is_idle)
    }

    fn deadline(&self) -> Ms {
        self.session.deadline()
    }

    fn timed_out(&mut self, now: Ms) -> InvariantResult {
        ensure(self.session.timed_out(now), || "its time is not up".to_owned())?;
        self.pump(now)
    }

    fn written(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.written)
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
