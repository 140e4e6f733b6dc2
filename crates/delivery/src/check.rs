//! Checks what would happen now to mail for one host with regard to TLS and login, in a session that sends no mail.
//!
//! Promise: the host is judged as by a delivery (`protection.rs`), from this session alone and not from what is
//! remembered. An untrusted certificate is shown even where a proof is required, and the session then ends with the
//! handshake. A secret is only sent where a delivery would send it (`login.rs`), and an access token is requested anew,
//! as by a delivery. Every wait has a delivery's deadlines.
//!
//! Failure: any error becomes the verdict, in the words of a record.

use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_core::sts::LookupServices;
use stentor_mail::reply::Enhanced;
use stentor_oauth::SmartHost;
use stentor_oauth::Tokens;
use stentor_queue::site::Target;
use stentor_sched::NoSession;
use stentor_smtp::client::{ClientError, ClientEvent, OfferedMechanisms, SaslOctets, StartTlsRefusal};
use stentor_tls::{HandshakeFacts, TlsError};

use super::ending::{TlsProgress, for_site, is_of_tls, no_session};
use super::login::{self, LoginStart, TokenAccess};
use super::opening::Purpose;
pub use super::protection::Mail;
use super::short_session::{SessionContext, ShortSession};

const NO_SESSION: &str = "the session ended before it began";

/// How mail would go to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryProspect {
    /// Encrypted, with the host's identity proven.
    Proven,
    /// Encrypted; says why the host's identity is not proven.
    Encrypted(String),
    /// In clear, for this reason.
    Clear(String),
    /// Not now, for this reason.
    Not(String),
    /// Never: the host lacks what REQUIRETLS demands. If all hosts do, the mail is returned with this code.
    Unfit(Enhanced, String),
}

/// A login at a smart host.
#[derive(Debug, Default)]
pub struct LoginCheck {
    pub user: String,
    /// The chosen mechanism, if the session got that far.
    pub mechanism: Option<&'static str>,
    pub end: LoginResult,
}

#[derive(Debug, Default)]
pub enum LoginResult {
    /// The session ended earlier.
    #[default]
    NotTried,
    Accepted,
    /// Refused by the host or by us; never includes the secret.
    Refused(String),
}

/// Results of one session.
#[derive(Debug)]
pub struct HostCheck {
    pub is_connected: bool,
    /// TLS as negotiated, or as it would be if the certificate were accepted.
    pub facts: Option<Box<HandshakeFacts>>,
    /// Offered before TLS; `None`: unknown, or TLS came before the greeting.
    pub offers_starttls: Option<bool>,
    /// Whether REQUIRETLS was offered in the end.
    pub offers_require_tls: bool,
    /// Result of the login, if one is configured.
    pub login: Option<LoginCheck>,
    pub goes: DeliveryProspect,
}

/// Checks the host for this mail.
pub async fn host(services: LookupServices<'_>, tokens: &Tokens, target: &Target, mail: Mail<'_>) -> HostCheck {
    let LookupServices { settings, clock, .. } = services;
    let smart_host = target.addr.ip().and_then(|_| smart_host(settings, target));
    let mut check = HostCheck {
        is_connected: true,
        facts: None,
        offers_starttls: None,
        offers_require_tls: false,
        login: smart_host.map(|smart_host| LoginCheck { user: smart_host.user.clone(), ..LoginCheck::default() }),
        goes: DeliveryProspect::Not(NO_SESSION.to_owned()),
    };
    match ShortSession::open(SessionContext { settings, clock, live: None }, target, Purpose::Look).await {
        Ok(mut session) => {
            session.smtp.protect(session.protection.tls(), session.protection.logs_in());
            let mut probe = Probe { session, settings, access: TokenAccess { tokens, services }, login: None };
            check.goes = probe.look(clock, mail, &mut check).await;
            check.facts = probe.session.protection.facts().cloned().map(Box::new);
        }
        Err(error) => {
            check.is_connected = error.was_connected();
            check.goes = goes_not(error.why(), None, error.tls(), target, error.text(target));
            check.facts = error.into_facts();
        }
    }
    check
}

fn smart_host<'s>(settings: &'s Settings, target: &Target) -> Option<&'s SmartHost> {
    settings.config.protection.smart_host(&target.host, target.addr.port())
}

/// Classifies a missing session as temporary or permanent, as the scheduler would see it.
fn goes_not(
    why: NoSession,
    error: Option<&ClientError>,
    failed: Option<&TlsError>,
    target: &Target,
    text: String,
) -> DeliveryProspect {
    match for_site(why, error, failed, target) {
        NoSession::Unfit { dsn } => DeliveryProspect::Unfit(dsn, text),
        _ => DeliveryProspect::Not(text),
    }
}

struct Probe<'s> {
    session: ShortSession,
    settings: &'s Settings,
    access: TokenAccess<'s>,
    login: Option<Box<stentor_sasl::ClientExchange>>,
}

impl Probe<'_> {
    /// Proceeds until the session is ready for mail.
    async fn look(&mut self, clock: &Clock, mail: Mail<'_>, check: &mut HostCheck) -> DeliveryProspect {
        let mut in_clear = None;
        loop {
            match self.session.next(None, |_| ()).await {
                Some(ClientEvent::Unsecured(why)) => {
                    check.offers_starttls = Some(matches!(why, StartTlsRefusal::Refused(_)));
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
                None => return DeliveryProspect::Not(NO_SESSION.to_owned()),
            }
        }
    }

    /// Decides about the mail in a session that is ready.
    fn ready(&self, mail: Mail<'_>, in_clear: Option<String>, check: &mut HostCheck) -> DeliveryProspect {
        let ShortSession { smtp, protection, target, .. } = &self.session;
        check.offers_require_tls = smtp.caps().require_tls() && smtp.is_secured();
        if let Some(login) = &mut check.login {
            login.end = LoginResult::Accepted;
        }
        if let Some((_, why)) = protection.lacks_of_mail(self.settings, target, mail) {
            return DeliveryProspect::Not(why);
        }
        if let Some((dsn, why)) = protection.lacks_of_site(target, check.offers_require_tls) {
            return DeliveryProspect::Unfit(dsn, why);
        }
        match protection.facts() {
            Some(facts) if facts.proven.is_proven() => DeliveryProspect::Proven,
            Some(facts) => DeliveryProspect::Encrypted(facts.proven.to_string()),
            None => DeliveryProspect::Clear(in_clear.unwrap_or_else(|| "TLS is not used with this host".to_owned())),
        }
    }

    /// Decides about the mail in a session that ended before it was ready.
    fn closed(&self, error: Option<&ClientError>, check: &mut HostCheck) -> DeliveryProspect {
        let ShortSession { smtp, protection, target, .. } = &self.session;
        let why = error.map_or_else(|| NO_SESSION.to_owned(), ToString::to_string);
        match error {
            Some(ClientError::TlsNotOffered) => check.offers_starttls = Some(false),
            Some(ClientError::TlsRefused(_)) => check.offers_starttls = Some(true),
            Some(ClientError::Auth { .. } | ClientError::NoAuth(_)) => {
                if let Some(login) = &mut check.login {
                    let said = self.login.as_ref().and_then(|login| login.failure());
                    let said = said.map_or_else(String::new, |said| format!(" ({said})"));
                    login.end = LoginResult::Refused(format!("{why}{said}"));
                }
            }
            _ => {}
        }
        let tls = TlsProgress { stage: smtp.tls_stage(), is_closed_by_host: false };
        if error.is_some_and(|error| is_of_tls(error, tls)) && protection.allows_clear() {
            return DeliveryProspect::Clear(why);
        }
        goes_not(no_session(error, tls), error, protection.failed(), target, why)
    }

    /// Begins AUTH. The session ends if there is no secret, or if none may be sent to this host.
    async fn log_in(&mut self, clock: &Clock, offered: OfferedMechanisms, check: &mut HostCheck) {
        let Some(smart_host) = smart_host(self.settings, &self.session.target) else { return };
        let unproven = self.session.protection.unproven();
        let begun = login::begin(smart_host, self.access, offered, self.session.secured(), unproven.as_deref()).await;
        let (smtp, now) = (&mut self.session.smtp, clock.steady());
        match begun {
            Ok(LoginStart { client, initial, .. }) => {
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
            // If it cannot be sent, the session's last event has the error.
            Ok(octets) => _ = smtp.respond(&octets, now),
            Err(why) => smtp.decline_auth(&why, now),
        }
    }
}
