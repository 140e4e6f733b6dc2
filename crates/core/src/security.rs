//! TLS and AUTH offers for client sessions by listener, and the certificates for them.
//!
//! Promise: one value serves all sessions; a reload makes a new one for later sessions. Certificates are those in the
//! store when a handshake begins.
//!
//! Failure: a users file or CAs that cannot be read prevent startup. Later the previous ones stay in force, and the log
//! reports the error.

use std::sync::Arc;
use std::time::Duration;

use stentor_auth::{Authenticator, Channel, Counts, Settings as AuthSettings, load_secret};
use stentor_config::{AuthSource, Config, DOVECOT_USERS, Listener, ListenerAuth, ListenerTls, Service, TrustedClient};
use stentor_sasl::{Bindings, Mechanism, Mechanisms};
use stentor_smtp::server::Offers;
use stentor_tls::{Acceptor, HandshakeFacts, IdentityStore, PeerProof, SecuredSession};
use tokio::time::MissedTickBehavior;

use super::Core;
use crate::clock::Clock;

/// File in `data_dir` from which fake credentials of unknown users are derived.
const AUTH_SECRET: &str = "auth.secret";
/// How often the users file is checked for changes.
const USERS_POLL: Duration = Duration::from_secs(1);

/// A listener of `[listen]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerId {
    pub service: Service,
    /// Its index among all listeners, which does not change in a reload
    /// ([`ListenConfig::listeners`](stentor_config::ListenConfig::listeners)).
    pub index: usize,
}

/// Properties of a session that its offers depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Situation {
    pub is_secured: bool,
    /// Both sides can prove that they share one TLS session.
    pub has_binding: bool,
    /// The client may log in without TLS.
    pub may_be_clear: bool,
    /// The client's certificate replaces a login.
    pub is_proven: bool,
    /// The client is in `client_networks`.
    pub in_client_networks: bool,
}

impl Situation {
    const ALL: usize = 32;

    fn of(bits: usize) -> Situation {
        let bit = |n: usize| bits & 1 << n != 0;
        Situation {
            is_secured: bit(0),
            has_binding: bit(1),
            may_be_clear: bit(2),
            is_proven: bit(3),
            in_client_networks: bit(4),
        }
    }

    fn bits(self) -> usize {
        [self.is_secured, self.has_binding, self.may_be_clear, self.is_proven, self.in_client_networks]
            .into_iter()
            .enumerate()
            .map(|(n, bit)| usize::from(bit) << n)
            .sum()
    }
}

/// Offers of one listener.
struct ListenerOffers {
    /// TLS starts before the greeting.
    is_implicit: bool,
    /// Offers, indexed by [`Situation::bits`].
    offers: Vec<Arc<Offers>>,
}

impl ListenerOffers {
    fn new(config: &Config, service: Service, listener: &Listener) -> ListenerOffers {
        let of = |bits| Arc::new(offers(config, service, listener, Situation::of(bits)));
        ListenerOffers {
            is_implicit: listener.tls == ListenerTls::Implicit,
            offers: (0..Situation::ALL).map(of).collect(),
        }
    }
}

pub struct Security {
    tls: Option<Arc<Acceptor>>,
    /// The authenticator, and the settings it was opened with.
    auth: Option<(AuthSettings, Authenticator)>,
    /// Submissions counted per user, whatever the user source.
    counts: Counts,
    listeners: Vec<ListenerOffers>,
    /// Client certificates that are trusted.
    client_certificates: Vec<TrustedClient>,
}

impl Security {
    /// Offers nothing.
    pub fn none() -> Security {
        Security {
            tls: None,
            auth: None,
            counts: Counts::default(),
            listeners: Vec::new(),
            client_certificates: Vec::new(),
        }
    }

    /// Opens the offers from the configuration, which reads files and blocks. Users' counts carry over from `before`,
    /// and so do failed guesses if the user source is the same.
    ///
    /// # Errors
    /// Which file is invalid, and why.
    pub fn open(
        config: &Config,
        certificates: &Arc<IdentityStore>,
        before: Option<&Security>,
        clock: &Clock,
    ) -> Result<Security, String> {
        let settings = config.tls_server().map_err(|error| error.to_string())?;
        let server = Acceptor::new(settings, certificates.clone()).map_err(|error| error.to_string())?;
        let listeners = config.listen.listeners();
        let listeners = listeners.map(|(service, listener)| ListenerOffers::new(config, service, listener)).collect();
        let client_certificates = config.tls.client_certificates.clone();
        let counts = before.map_or_else(Counts::default, |before| before.counts.clone());
        let auth = opened(config, before, &counts, clock)?;
        Ok(Security { tls: Some(server), auth, counts, listeners, client_certificates })
    }

    pub fn tls(&self) -> Option<&Arc<Acceptor>> {
        self.tls.as_ref()
    }

    pub fn auth(&self) -> Option<&Authenticator> {
        self.auth.as_ref().map(|(_, auth)| auth)
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether sessions on this listener begin with TLS.
    pub fn is_implicit(&self, listener: ListenerId) -> bool {
        self.listeners.get(listener.index).is_some_and(|listener| listener.is_implicit)
    }

    /// Returns the offers of a session; `None` if there are none.
    pub fn offers(
        &self,
        listener: ListenerId,
        situation: Situation,
        channel: impl FnOnce() -> Channel,
    ) -> Option<Arc<Offers>> {
        let offers = self.listeners.get(listener.index)?.offers.get(situation.bits())?;
        if offers.auth.is_empty() {
            return Some(offers.clone());
        }
        // Dovecot reports its mechanisms.
        let known = self.auth()?.mechanisms(&channel());
        let auth = Mechanisms::parse(&offers.auth).shared(known).to_string();
        Some(if auth == offers.auth { offers.clone() } else { Arc::new(Offers { auth, ..Offers::clone(offers) }) })
    }

    /// Returns the name in a client's certificate that makes the client trusted: as signed by a CA, or the first name
    /// if its fingerprint is configured. An error says why the certificate is not accepted. `None` without a
    /// certificate.
    pub fn proven(&self, facts: &HandshakeFacts) -> Option<Result<Box<str>, Box<str>>> {
        let certificate = facts.peer.as_ref()?;
        let first = certificate.names.first().map_or(&*certificate.subject, |name| name);
        let is_signed = matches!(facts.proven, PeerProof::Ca(_));
        let is_of = |client: &&TrustedClient| match &client.fingerprint {
            Some(fingerprint) => fingerprint.is_of(certificate),
            None if client.text.starts_with('.') => is_signed && certificate.name_below(&client.text).is_some(),
            None => is_signed && certificate.is_for(&client.text),
        };
        let Some(client) = self.client_certificates.iter().find(is_of) else {
            let why = match &facts.proven {
                PeerProof::Nothing(error) => error.to_string(),
                _ => "it is not listed in `client_certificates`".to_owned(),
            };
            return Some(Err(format!("its certificate ({first}) was ignored: {why}").into()));
        };
        Some(Ok(match &client.fingerprint {
            Some(_) => first,
            None => certificate.name_below(&client.text).unwrap_or(&client.text),
        }
        .into()))
    }
}

/// Returns the data of a TLS session that SCRAM can be bound to.
pub fn bindings(tls: Option<&SecuredSession>) -> Bindings {
    Bindings {
        exporter: tls.and_then(SecuredSession::exporter),
        end_point: tls.and_then(SecuredSession::server_end_point).map(Vec::from),
    }
}

/// Reloads the users file when it changes, until the process ends.
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

/// Opens the source of users.
fn opened(
    config: &Config,
    before: Option<&Security>,
    counts: &Counts,
    clock: &Clock,
) -> Result<Option<(AuthSettings, Authenticator)>, String> {
    let settings = match &config.auth.source {
        None => return Ok(None),
        Some(AuthSource::Dovecot(socket)) => {
            AuthSettings::Dovecot { socket: socket.clone(), overrides: config.data_dir.join(DOVECOT_USERS) }
        }
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
    let clock = clock.clone();
    let auth = Authenticator::open(&settings, counts.clone(), (processors / 2).max(1), move || clock.steady());
    let auth = auth.map_err(|error| format!("[auth] {error}"))?;
    Ok(Some((settings, auth)))
}

fn offers(config: &Config, service: Service, listener: &Listener, situation: Situation) -> Offers {
    let Situation { is_secured, has_binding, may_be_clear, is_proven, in_client_networks } = situation;
    let auth = &config.auth;
    let is_offered = listener.auth != ListenerAuth::None;
    let has_auth = auth.source.is_some() && is_offered;
    let is_now = has_auth && (is_secured || may_be_clear);
    let unbound = auth.mechanisms.without(Mechanism::ScramSha256Plus);
    let mechanisms = if has_binding { auth.mechanisms } else { unbound };
    let must_log_in = match listener.auth {
        ListenerAuth::Required => true,
        // Without a login, only trusted clients may send on listeners for users.
        ListenerAuth::None | ListenerAuth::Offered => service.is_for_users() && !in_client_networks,
    };
    Offers {
        starttls: listener.tls.has_starttls(),
        auth: if is_now { mechanisms.to_string() } else { String::new() },
        auth_after_tls: has_auth && listener.tls != ListenerTls::None,
        // `clear_networks` may skip TLS, but only where AUTH is offered.
        require_tls: listener.tls == ListenerTls::Required && !(may_be_clear && is_offered),
        require_auth: must_log_in && !is_proven,
        requiretls: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: Situation = Situation {
        is_secured: false,
        has_binding: false,
        may_be_clear: false,
        is_proven: false,
        in_client_networks: false,
    };
    const SECURED: Situation = Situation { is_secured: true, ..CLEAR };

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stentor.toml");
        std::fs::write(&file, text).unwrap();
        stentor_config::check(&file).unwrap()
    }

    /// Returns the offers of the first listener under this key.
    fn of(config: &Config, key: &str, situation: Situation) -> Offers {
        let (service, listener) = config.listen.listeners().find(|(service, _)| service.name() == key).unwrap();
        offers(config, service, listener, situation)
    }

    #[test]
    fn each_situation_has_a_place_of_its_own() {
        for bits in 0..Situation::ALL {
            assert_eq!(Situation::of(bits).bits(), bits);
        }
    }

    #[test]
    fn passwords_wait_for_tls() {
        let text = "[auth]\nusers = \"users\"\n[listen]\nsubmission = [\"127.0.0.1:587\"]\nsmtps = \"127.0.0.1:465\"\n";
        let config = config(text);
        let of = |key, situation| of(&config, key, situation);
        let clear = of("submission", CLEAR);
        assert!(clear.starttls && clear.require_tls && clear.require_auth && clear.auth.is_empty());
        let secured = of("submission", SECURED);
        assert_eq!(secured.auth, "SCRAM-SHA-256 PLAIN LOGIN");
        let bound = of("smtps", Situation { has_binding: true, ..SECURED });
        assert_eq!(bound.auth, "SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN");
        assert!(!bound.starttls);
        let allowed = of("submission", Situation { may_be_clear: true, ..CLEAR });
        assert!(!allowed.require_tls && allowed.auth == secured.auth);
        let smtp = of("smtp", SECURED);
        assert!(smtp.auth.is_empty() && !smtp.require_auth && !smtp.auth_after_tls);
        assert!(!of("smtps", Situation { is_proven: true, ..SECURED }).require_auth);
        // `client_networks` has no effect where AUTH is required.
        assert!(of("submission", Situation { in_client_networks: true, ..SECURED }).require_auth);
    }

    /// Returns the offers of a listener with this TLS and AUTH under a key, in one line.
    fn offered(key: &str, tls: &str, auth: &str, situation: Situation) -> String {
        let text = format!(
            "[auth]\nusers = \"users\"\nmechanisms = \"PLAIN\"\nclear_networks = \"10.0.0.0/8\"\n[listen]\n\
             {key} = {{ address = \"127.0.0.1:26\", tls = \"{tls}\", auth = \"{auth}\" }}\n"
        );
        let Offers { starttls, auth, auth_after_tls, require_tls, require_auth, requiretls: _ } =
            of(&config(&text), key, situation);
        let words = [
            (starttls, "STARTTLS"),
            (!auth.is_empty(), "AUTH"),
            (auth_after_tls, "later"),
            (require_tls, "tls!"),
            (require_auth, "auth!"),
        ];
        words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_listener_offers_what_it_says() {
        let may_be_clear = Situation { may_be_clear: true, ..CLEAR };
        for (key, tls, auth, situation, expected) in [
            ("smtp", "none", "none", CLEAR, ""),
            ("smtp", "starttls", "none", CLEAR, "STARTTLS"),
            ("smtp", "required", "none", CLEAR, "STARTTLS tls!"),
            // `clear_networks` has no effect, since no login is offered here.
            ("smtp", "required", "none", may_be_clear, "STARTTLS tls!"),
            ("smtp", "required", "offered", may_be_clear, "STARTTLS AUTH later"),
            ("smtp", "starttls", "offered", CLEAR, "STARTTLS later"),
            ("smtp", "starttls", "offered", SECURED, "STARTTLS AUTH later"),
            ("smtp", "none", "offered", CLEAR, ""),
            ("smtp", "none", "offered", may_be_clear, "AUTH"),
            ("smtp", "implicit", "required", SECURED, "AUTH later auth!"),
            ("smtp", "implicit", "required", Situation { in_client_networks: true, ..SECURED }, "AUTH later auth!"),
            ("smtp", "implicit", "none", SECURED, ""),
            ("submission", "starttls", "offered", CLEAR, "STARTTLS later auth!"),
            ("submission", "starttls", "offered", Situation { in_client_networks: true, ..CLEAR }, "STARTTLS later"),
            ("submission", "required", "none", SECURED, "STARTTLS tls! auth!"),
            ("submission", "required", "none", Situation { in_client_networks: true, ..SECURED }, "STARTTLS tls!"),
            ("submission", "implicit", "required", SECURED, "AUTH later auth!"),
            ("smtps", "starttls", "offered", Situation { is_proven: true, ..SECURED }, "STARTTLS AUTH later"),
        ] {
            assert_eq!(offered(key, tls, auth, situation), expected, "{key} {tls} {auth} {situation:?}");
        }
    }
}
