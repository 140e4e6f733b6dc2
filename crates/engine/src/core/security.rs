//! What sessions of clients are offered of TLS and AUTH, by where they connect, and the certificates for it.
//!
//! Promise: one value serves all sessions; a reload makes a new one for those that begin afterwards, and the certificates of the
//! one before stay with the handshakes that have begun. Certificates are read again when their files change. Without configured
//! ones a self-signed one is made, once.
//!
//! Failure: files that cannot be read refuse a start; later the set that is in force stays, and the log says which file is wrong.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use stentor_auth::{Authenticator, Channel, Settings as AuthSettings, load_secret};
use stentor_config::{AuthSource, CertificateFiles, Config, TlsVersion};
use stentor_mail::server::Offers;
use stentor_tls::{
    ClientCertificates, Facts, Files, How, Identities, IdentityStore, MinVersion, Roots, Server, ServerSettings,
};
use tokio::time::MissedTickBehavior;

use super::Core;

/// In `data_dir`: the self-signed certificate.
const TLS_FOLDER: &str = "tls";
/// There, too: what users that do not exist are made out of.
const AUTH_SECRET: &str = "auth.secret";
/// How often it is looked whether the users file is another, and how many times less the files of certificates.
const FILES_POLL: Duration = Duration::from_secs(1);
const CERTIFICATES_PART: u64 = 10;
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
    /// Whose certificates are trusted.
    client_names: Vec<String>,
    files: Vec<Files>,
    seen: Mutex<Vec<Option<(SystemTime, u64)>>>,
}

impl Security {
    /// Nothing is offered.
    pub fn none() -> Security {
        let (client_names, files) = (Vec::new(), Vec::new());
        Security { tls: None, auth: None, offers: Vec::new(), client_names, files, seen: Mutex::default() }
    }

    /// Reads files, which blocks. `now`: seconds. What is counted of logins goes on from `before` if their source is the same.
    ///
    /// # Errors
    /// Which file is wrong, and how.
    pub fn open(config: &Config, before: Option<&Security>, now: i64) -> Result<Security, String> {
        let tls = &config.tls;
        let files: Vec<Files> = tls.certificates.iter().map(files_of).collect();
        let seen = files.iter().map(stamp).collect();
        let identities = if files.is_empty() {
            let folder = config.data_dir.join(TLS_FOLDER);
            Identities::self_signed(&folder, &config.hostname, now)
                .map_err(|error| format!("a self-signed certificate in {}: {error}", folder.display()))?
        } else {
            loaded(&files, now)?
        };
        warn(&identities);
        let roots = tls.client_ca.as_deref().map(|path: &Path| Roots::from_file(path)).transpose();
        let roots = roots.map_err(|error| format!("[tls] client_ca: {error}"))?;
        let settings = ServerSettings {
            min_version: match tls.min_version {
                TlsVersion::Tls12 => MinVersion::Tls12,
                TlsVersion::Tls13 => MinVersion::Tls13,
            },
            client_certificates: roots.map_or(ClientCertificates::Never, ClientCertificates::Ask),
            ..ServerSettings::default()
        };
        let server = Server::new(settings, IdentityStore::new(identities)).map_err(|error| error.to_string())?;
        let all = Service::ALL.into_iter().flat_map(|service| (0..Situation::ALL).map(move |bits| (service, bits)));
        let offers = all.map(|(service, bits)| Arc::new(offers(config, service, Situation::of(bits)))).collect();
        let client_names = tls.client_certificates.clone();
        let auth = opened(config, before)?;
        Ok(Security { tls: Some(server), auth, offers, client_names, files, seen: Mutex::new(seen) })
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

    /// The name in a client's certificate that makes it a trusted one.
    pub fn proven<'s>(&'s self, facts: &Facts) -> Option<&'s str> {
        let (How::Ca(_), Some(certificate)) = (&facts.proven, &facts.peer) else { return None };
        self.client_names.iter().map(String::as_str).find(|name| certificate.is_for(name))
    }

    /// Reads the certificates again if their files are others than before.
    fn refresh(&self, now: i64) {
        let Some(server) = &self.tls else { return };
        let stamps: Vec<_> = self.files.iter().map(stamp).collect();
        if self.files.is_empty() || std::mem::replace(&mut *self.seen.lock(), stamps.clone()) == stamps {
            return;
        }
        match loaded(&self.files, now) {
            Ok(identities) => {
                warn(&identities);
                server.store().replace(identities);
                tracing::info!("certificates read again");
            }
            Err(why) => tracing::error!("the certificates stay as they were: {why}"),
        }
    }
}

/// Looks after the users file and those of certificates until the process ends.
pub async fn watch(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(FILES_POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in 0_u64.. {
        ticks.tick().await;
        let (security, now) = (core.security(), core.clock.now());
        if let Some(auth) = security.auth() {
            auth.refresh().await;
        }
        if tick % CERTIFICATES_PART != 0 {
            continue;
        }
        let _ = tokio::task::spawn_blocking(move || security.refresh(seconds(now))).await;
    }
}

/// Of the clock's milliseconds.
pub fn seconds(now: u64) -> i64 {
    i64::try_from(now / 1_000).unwrap_or(i64::MAX)
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

fn files_of(files: &CertificateFiles) -> Files {
    Files { chain: files.chain.clone(), key: files.key.clone() }
}

/// What changes when a file is written or replaced. Both files of a certificate: a new key comes with a new chain.
fn stamp(files: &Files) -> Option<(SystemTime, u64)> {
    let of = |path: &Path| std::fs::metadata(path).and_then(|data| Ok((data.modified()?, data.len()))).ok();
    let (chain, key) = (of(&files.chain)?, of(&files.key)?);
    Some((chain.0.max(key.0), chain.1.wrapping_mul(31).wrapping_add(key.1)))
}

fn loaded(files: &[Files], now: i64) -> Result<Identities, String> {
    let joined = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Identities::load(files, now).map_err(joined)
}

fn warn(identities: &Identities) {
    for identity in identities.all() {
        let file = identity.files.as_ref().map(|files| files.chain.display().to_string()).unwrap_or_default();
        for warning in &identity.warnings {
            tracing::warn!(file, "certificate: {warning}");
        }
    }
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
        // Until mail goes out as it asks for.
        requiretls: false,
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
