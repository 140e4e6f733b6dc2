//! What sessions of clients are offered of TLS and AUTH, by where they connect, and the certificates for it.
//!
//! Promise: one value serves all sessions; a reload makes a new one for those that begin afterwards. Certificates are those in
//! the store at a handshake's beginning.
//!
//! Failure: a users file or CAs that cannot be read refuse a start; later what is in force stays, and the log says what is wrong.

use std::sync::Arc;
use std::time::Duration;

use stentor_auth::{Authenticator, Channel, Settings as AuthSettings, load_secret};
use stentor_config::{AuthSource, Config};
use stentor_mail::server::Offers;
use stentor_tls::{Facts, Fingerprint, How, IdentityStore, Server};
use tokio::time::MissedTickBehavior;

use super::Core;

/// In `data_dir`: what users that do not exist are made out of.
const AUTH_SECRET: &str = "auth.secret";
/// How often it is looked whether the users file is another.
const USERS_POLL: Duration = Duration::from_secs(1);
/// With channel bindings.
const PLUS: &str = "-PLUS";

/// Where a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// `[listen] smtp`: for everybody.
    Smtp,
    /// `[listen] smtps`: TLS from the first octet, for users.
    Smtps,
    /// `[listen] submission`: STARTTLS, for users.
    Submission,
}

impl Service {
    const ALL: [Service; 3] = [Service::Smtp, Service::Smtps, Service::Submission];

    /// Its key in `[listen]`.
    pub fn name(self) -> &'static str {
        match self {
            Service::Smtp => "smtp",
            Service::Smtps => "smtps",
            Service::Submission => "submission",
        }
    }

    /// Only those who have logged in send mail.
    pub fn is_for_users(self) -> bool {
        self != Service::Smtp
    }
}

/// A session, as far as its offers depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Situation {
    pub is_secured: bool,
    /// Both sides can prove that it is the same TLS session.
    pub has_binding: bool,
    /// The client may log in without TLS.
    pub may_be_clear: bool,
    /// The client's certificate stands for a login.
    pub is_proven: bool,
}

impl Situation {
    const ALL: usize = 16;

    fn of(bits: usize) -> Situation {
        let bit = |n: usize| bits & 1 << n != 0;
        Situation { is_secured: bit(0), has_binding: bit(1), may_be_clear: bit(2), is_proven: bit(3) }
    }

    fn bits(self) -> usize {
        [self.is_secured, self.has_binding, self.may_be_clear, self.is_proven]
            .into_iter()
            .enumerate()
            .map(|(n, bit)| usize::from(bit) << n)
            .sum()
    }
}

pub struct Security {
    tls: Option<Arc<Server>>,
    /// With what it was opened by.
    auth: Option<(AuthSettings, Authenticator)>,
    /// By service, then by situation.
    offers: Vec<Arc<Offers>>,
    /// Whose certificates are trusted: names, or fingerprints.
    client_certificates: Vec<String>,
}

impl Security {
    /// Nothing is offered.
    pub fn none() -> Security {
        Security { tls: None, auth: None, offers: Vec::new(), client_certificates: Vec::new() }
    }

    /// Reads files, which blocks. What is counted of logins goes on from `before` if their source is the same.
    ///
    /// # Errors
    /// Which file is wrong, and how.
    pub fn open(
        config: &Config,
        certificates: &Arc<IdentityStore>,
        before: Option<&Security>,
    ) -> Result<Security, String> {
        let settings = config.tls_server().map_err(|error| error.to_string())?;
        let server = Server::new(settings, certificates.clone()).map_err(|error| error.to_string())?;
        let all = Service::ALL.into_iter().flat_map(|service| (0..Situation::ALL).map(move |bits| (service, bits)));
        let offers = all.map(|(service, bits)| Arc::new(offers(config, service, Situation::of(bits)))).collect();
        let client_certificates = config.tls.client_certificates.clone();
        Ok(Security { tls: Some(server), auth: opened(config, before)?, offers, client_certificates })
    }

    pub fn tls(&self) -> Option<&Arc<Server>> {
        self.tls.as_ref()
    }

    pub fn auth(&self) -> Option<&Authenticator> {
        self.auth.as_ref().map(|(_, auth)| auth)
    }

    /// What a session is offered; nothing where nothing is.
    pub fn offers(&self, service: Service, situation: Situation, channel: &Channel) -> Option<Arc<Offers>> {
        let at = Service::ALL.iter().position(|other| *other == service)?;
        let offers = self.offers.get(at * Situation::ALL + situation.bits())?;
        if offers.auth.is_empty() {
            return Some(offers.clone());
        }
        // Dovecot says what it has.
        let known = self.auth()?.mechanisms(channel);
        let is_known = |name: &&str| name.parse().is_ok_and(|mechanism| known.has(mechanism));
        let auth = offers.auth.split(' ').filter(is_known).collect::<Vec<_>>().join(" ");
        Some(if auth == offers.auth { offers.clone() } else { Arc::new(Offers { auth, ..Offers::clone(offers) }) })
    }

    /// What of a client's certificate makes it a trusted one: a name that a CA has signed, or its fingerprint.
    pub fn proven<'s>(&'s self, facts: &Facts) -> Option<&'s str> {
        let certificate = facts.peer.as_ref()?;
        let is_signed = matches!(facts.proven, How::Ca(_));
        self.client_certificates.iter().map(String::as_str).find(|text| match text.parse::<Fingerprint>() {
            Ok(fingerprint) => fingerprint.is_of(certificate),
            Err(_) => is_signed && certificate.is_for(text),
        })
    }
}

/// Looks after the users file until the process ends.
pub async fn watch(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(USERS_POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(auth) = core.security().auth() {
            auth.refresh().await;
        }
    }
}

/// Who knows the users.
fn opened(config: &Config, before: Option<&Security>) -> Result<Option<(AuthSettings, Authenticator)>, String> {
    let settings = match &config.auth.source {
        None => return Ok(None),
        Some(AuthSource::Dovecot(socket)) => AuthSettings::Dovecot { socket: socket.clone() },
        Some(AuthSource::Users(path)) => {
            let file = config.data_dir.join(AUTH_SECRET);
            let secret = load_secret(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            AuthSettings::Users { path: path.clone(), secret }
        }
    };
    if let Some((same, auth)) = before.and_then(|before| before.auth.as_ref()).filter(|(old, _)| *old == settings) {
        return Ok(Some((same.clone(), auth.clone())));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let auth = Authenticator::open(&settings, (processors / 2).max(1)).map_err(|error| format!("[auth] {error}"))?;
    Ok(Some((settings, auth)))
}

fn offers(config: &Config, service: Service, situation: Situation) -> Offers {
    let Situation { is_secured, has_binding, may_be_clear, is_proven } = situation;
    let (listen, auth) = (&config.listen, &config.auth);
    let has_auth = auth.source.is_some() && (service.is_for_users() || listen.smtp_auth);
    let is_now = has_auth && (is_secured || may_be_clear);
    let names = auth.mechanisms.iter().filter(|name| has_binding || !name.ends_with(PLUS));
    Offers {
        starttls: service == Service::Submission || service == Service::Smtp && listen.starttls,
        auth: if is_now { names.copied().collect::<Vec<_>>().join(" ") } else { String::new() },
        auth_after_tls: has_auth,
        require_tls: service == Service::Submission && !may_be_clear,
        require_auth: service.is_for_users() && !is_proven,
        requiretls: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: Situation = Situation { is_secured: false, has_binding: false, may_be_clear: false, is_proven: false };

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stentor.toml");
        std::fs::write(&file, text).unwrap();
        stentor_config::check(&file).unwrap()
    }

    #[test]
    fn each_situation_has_a_place_of_its_own() {
        for bits in 0..Situation::ALL {
            assert_eq!(Situation::of(bits).bits(), bits);
        }
    }

    #[test]
    fn passwords_wait_for_tls() {
        let config = config("[auth]\nusers = \"users\"\n[listen]\nsubmission = [\"127.0.0.1:587\"]\n");
        let of = |service, situation| offers(&config, service, situation);
        let clear = of(Service::Submission, CLEAR);
        assert!(clear.starttls && clear.require_tls && clear.require_auth && clear.auth.is_empty());
        let secured = of(Service::Submission, Situation { is_secured: true, ..CLEAR });
        assert_eq!(secured.auth, "SCRAM-SHA-256 PLAIN LOGIN");
        let bound = of(Service::Smtps, Situation { is_secured: true, has_binding: true, ..CLEAR });
        assert_eq!(bound.auth, "SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN");
        assert!(!bound.starttls);
        let allowed = of(Service::Submission, Situation { may_be_clear: true, ..CLEAR });
        assert!(!allowed.require_tls && allowed.auth == secured.auth);
        let smtp = of(Service::Smtp, Situation { is_secured: true, ..CLEAR });
        assert!(smtp.auth.is_empty() && !smtp.require_auth && !smtp.auth_after_tls);
        assert!(!of(Service::Smtps, Situation { is_secured: true, is_proven: true, ..CLEAR }).require_auth);
    }
}
