//! What would happen to mail for one host now, as far as TLS and a login are concerned: a session in which no mail is sent.
//!
//! Promise: the host is judged as a delivery judges it (`protection.rs`), by what this very session shows and not by what is
//! remembered. A certificate that proves nothing where something is demanded is seen all the same, and the session ends with the
//! handshake: a secret goes where a delivery would send it and nowhere else (`login.rs`); an access token is requested as by a
//! delivery, anew. Every wait has a delivery's deadlines.
//!
//! Failure: whatever goes wrong is the verdict, in the words that a record would have.

use stentor_config::SmartHost;
use stentor_mail::client::{ClientError, ClientEvent, Mechanisms, SaslOctets, Unsecured};
use stentor_oauth::Tokens;
use stentor_queue::site::Target;
use stentor_sched::{Enhanced, NoSession};
use stentor_tls::{Facts, TlsError};

use super::ending::{TlsProgress, for_site, is_of_tls, no_session};
use super::login::{self, Begun, TokenAccess};
use super::opening::Purpose;
pub use super::protection::Mail;
use super::short_session::{Engine, ShortSession};
use crate::clock::Clock;
use crate::core::Settings;
use crate::core::sts::Means;

const NO_SESSION: &str = "the session ended before it began";

/// How mail would go to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goes {
    /// Encrypted, and the host has proven who it is.
    Proven,
    /// Encrypted; why nothing is proven.
    Encrypted(String),
    /// In clear, and why.
    Clear(String),
    /// Not now, and why.
    Not(String),
    /// Not at all: it lacks what REQUIRETLS demands. Where all hosts do, the mail is returned with this code.
    Unfit(Enhanced, String),
}

/// A login at a smart host.
#[derive(Debug, Default)]
pub struct LoginCheck {
    pub user: String,
    /// What was chosen, if it came so far.
    pub mechanism: Option<&'static str>,
    pub end: LoginEnd,
}

#[derive(Debug, Default)]
pub enum LoginEnd {
    /// The session did not come to it.
    #[default]
    NotTried,
    Accepted,
    /// By the host, or by us; never with the secret.
    Refused(String),
}

/// What one session has shown.
#[derive(Debug)]
pub struct HostCheck {
    pub is_connected: bool,
    /// The TLS that came to be, or would have if the certificate were enough.
    pub facts: Option<Box<Facts>>,
    /// Offered before TLS; `None`: not known, or TLS came first.
    pub offers_starttls: Option<bool>,
    /// Offered in the end.
    pub offers_require_tls: bool,
    /// What came of the login, where the configuration has one.
    pub login: Option<LoginCheck>,
    pub goes: Goes,
}

/// Looks at the host, for this mail.
pub async fn host(means: Means<'_>, tokens: &Tokens, target: &Target, mail: Mail<'_>) -> HostCheck {
    let Means { settings, clock, .. } = means;
    let smart_host = target.addr.ip().and_then(|_| smart_host(settings, target));
    let mut check = HostCheck {
        is_connected: true,
        facts: None,
        offers_starttls: None,
        offers_require_tls: false,
        login: smart_host.map(|smart_host| LoginCheck { user: smart_host.user.clone(), ..LoginCheck::default() }),
        goes: Goes::Not(NO_SESSION.to_owned()),
    };
    match ShortSession::open(Engine { settings, clock, live: None }, target, Purpose::Look).await {
        Ok(mut session) => {
            session.smtp.protect(session.protection.tls(), session.protection.logs_in());
            let mut probe = Probe { session, settings, access: TokenAccess { tokens, means }, login: None };
            check.goes = probe.look(clock, mail, &mut check).await;
            check.facts = probe.session.protection.facts().cloned().map(Box::new);
        }
        Err(error) => {
            check.is_connected = error.was_connected();
            check.goes = goes_not(error.why(), (None, error.tls()), target, error.text(target));
            check.facts = error.into_facts();
        }
    }
    check
}

fn smart_host<'s>(settings: &'s Settings, target: &Target) -> Option<&'s SmartHost> {
    settings.config.protection.smart_host(&target.host, target.addr.port())
}

/// No session: not now, or not at all, as the scheduler would hear it.
fn goes_not(why: NoSession, how: (Option<&ClientError>, Option<&TlsError>), target: &Target, text: String) -> Goes {
    match for_site(why, how, target) {
        NoSession::Unfit { dsn } => Goes::Unfit(dsn, text),
        _ => Goes::Not(text),
    }
}

struct Probe<'s> {
    session: ShortSession,
    settings: &'s Settings,
    access: TokenAccess<'s>,
    login: Option<Box<stentor_sasl::Client>>,
}

impl Probe<'_> {
    /// Goes as far as a session that is ready for mail.
    async fn look(&mut self, clock: &Clock, mail: Mail<'_>, check: &mut HostCheck) -> Goes {
        let mut in_clear = None;
        loop {
            match self.session.next(None, |_| ()).await {
                Some(ClientEvent::Unsecured(why)) => {
                    check.offers_starttls = Some(matches!(why, Unsecured::Refused(_)));
                    self.session.protection.unsecured(&why);
                    in_clear = Some(why.to_string());
                }
                Some(ClientEvent::StartTls) => {
                    check.offers_starttls = Some(true);
                    self.session.secure(self.settings).await;
                }
                Some(ClientEvent::Authenticate(offered)) => self.log_in(clock, offered, check).await,
                Some(ClientEvent::Challenge(SaslOctets(octets))) => self.respond(clock, octets).await,
                Some(ClientEvent::Authenticated) => {
                    if let Some(Err(error)) = self.login.take().map(|login| login.finish()) {
                        self.session.smtp.decline_auth(&error.to_string(), clock.steady());
                    }
                }
                Some(ClientEvent::Ready(_)) => {
                    let goes = self.ready(mail, in_clear, check);
                    self.session.quit(None).await;
                    return goes;
                }
                Some(ClientEvent::Closed { error }) => return self.closed(error.as_ref(), check),
                Some(_) => {}
                None => return Goes::Not(NO_SESSION.to_owned()),
            }
        }
    }

    /// What becomes of mail in a session that is ready.
    fn ready(&self, mail: Mail<'_>, in_clear: Option<String>, check: &mut HostCheck) -> Goes {
        let ShortSession { smtp, protection, target, .. } = &self.session;
        check.offers_require_tls = smtp.caps().require_tls() && smtp.is_secured();
        if let Some(login) = &mut check.login {
            login.end = LoginEnd::Accepted;
        }
        if let Some((_, why)) = protection.lacks_of_mail(self.settings, target, mail) {
            return Goes::Not(why);
        }
        if let Some((dsn, why)) = protection.lacks_of_site(target, check.offers_require_tls) {
            return Goes::Unfit(dsn, why);
        }
        match protection.facts() {
            Some(facts) if facts.proven.is_proven() => Goes::Proven,
            Some(facts) => Goes::Encrypted(facts.proven.to_string()),
            None => Goes::Clear(in_clear.unwrap_or_else(|| "TLS is not used with this host".to_owned())),
        }
    }

    /// The session has ended before it was ready.
    fn closed(&self, error: Option<&ClientError>, check: &mut HostCheck) -> Goes {
        let ShortSession { smtp, protection, target, .. } = &self.session;
        let why = error.map_or_else(|| NO_SESSION.to_owned(), ToString::to_string);
        match error {
            Some(ClientError::TlsNotOffered) => check.offers_starttls = Some(false),
            Some(ClientError::TlsRefused(_)) => check.offers_starttls = Some(true),
            Some(ClientError::Auth { .. } | ClientError::NoAuth(_)) => {
                if let Some(login) = &mut check.login {
                    let said = self.login.as_ref().and_then(|login| login.failure());
                    let said = said.map_or_else(String::new, |said| format!(" ({said})"));
                    login.end = LoginEnd::Refused(format!("{why}{said}"));
                }
            }
            _ => {}
        }
        let tls = TlsProgress { stage: smtp.tls_stage(), is_closed_by_host: false };
        if error.is_some_and(|error| is_of_tls(error, tls)) && protection.allows_clear() {
            return Goes::Clear(why);
        }
        goes_not(no_session(error, tls), (error, protection.failed()), target, why)
    }

    /// Begins AUTH. It ends the session if there is no secret, or none may go to this host.
    async fn log_in(&mut self, clock: &Clock, offered: Mechanisms, check: &mut HostCheck) {
        let Some(smart_host) = smart_host(self.settings, &self.session.target) else { return };
        let unproven = self.session.protection.unproven();
        let begun = login::begin(smart_host, self.access, offered, self.session.secured(), unproven.as_deref()).await;
        let (smtp, now) = (&mut self.session.smtp, clock.steady());
        match begun {
            Ok(Begun { client, initial, .. }) => {
                if let Some(login) = &mut check.login {
                    login.mechanism = Some(client.mechanism().name());
                }
                if smtp.auth(client.mechanism().name(), initial.as_deref(), now).is_err() {
                    smtp.decline_auth("the secret is too long", now);
                }
                self.login = Some(client);
            }
            Err(why) => smtp.decline_auth(&why, now),
        }
    }

    async fn respond(&mut self, clock: &Clock, challenge: Vec<u8>) {
        let Some(login) = self.login.take() else { return };
        let (login, response) = login::respond(login, challenge).await;
        self.login = login;
        let (smtp, now) = (&mut self.session.smtp, clock.steady());
        match response {
            // It is in the session's last event if it cannot be sent.
            Ok(octets) => _ = smtp.respond(&octets, now),
            Err(why) => smtp.decline_auth(&why, now),
        }
    }
}
