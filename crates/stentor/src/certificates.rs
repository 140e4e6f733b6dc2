//! The certificates in force: read at the start, at a reload, and when their files are replaced. Configured
//! certificates come before those obtained from a CA (`acme.rs`); if there are none, the server creates its own.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use stentor_acme::certificate_file;
use stentor_config::{Config, Diagnostic};
use stentor_core::Core;
use stentor_core::live::health::{ConditionTexts, Name};
use stentor_tls::{
    Acceptor, Identities, IdentityError, IdentityStore, IdentityWatch, SELF_SIGNED_FILE, ServerSettings, Source,
    SourceError, TlsError, WatchOutcome,
};
use tokio::time::MissedTickBehavior;

/// Interval between checks for replaced files.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub struct Certificates {
    pub store: Arc<IdentityStore>,
    watch: Mutex<IdentityWatch>,
    /// Why the current files are not in force.
    trouble: Mutex<Option<ConditionTexts>>,
}

impl Certificates {
    /// Loads the configured certificates.
    pub fn start(config: &Config) -> Result<Arc<Certificates>, Vec<Diagnostic>> {
        let LoadedCertificates { watch, identities } = load(config)?;
        Ok(Arc::new(Certificates {
            store: IdentityStore::new(identities),
            watch: Mutex::new(watch),
            trouble: Mutex::default(),
        }))
    }

    /// Puts in force certificates loaded for another configuration.
    pub fn put(&self, LoadedCertificates { watch, identities }: LoadedCertificates) {
        *self.watch.lock() = watch;
        *self.trouble.lock() = None;
        self.store.replace(identities);
    }

    /// The TLS settings of HTTPS listeners.
    pub fn https(&self, config: &Config) -> Result<Arc<Acceptor>, TlsError> {
        let settings = ServerSettings {
            min_version: config.tls.min_version,
            alpn: vec![b"http/1.1".to_vec()],
            acme: true,
            ..ServerSettings::default()
        };
        Acceptor::new(settings, self.store.clone())
    }

    /// The TLS settings of a listener that only answers `tls-alpn-01` challenges.
    pub fn challenges(&self) -> Result<Arc<Acceptor>, TlsError> {
        let settings = ServerSettings { acme: true, ..ServerSettings::default() };
        Acceptor::new(settings, self.store.clone())
    }

    /// Watches the files until the process ends.
    pub async fn keep(self: Arc<Self>, core: Arc<Core>) {
        let mut ticks = tokio::time::interval(LOOK_PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let certificates = self.clone();
            // A file system that hangs blocks only one thread.
            let _ = tokio::task::spawn_blocking(move || certificates.look()).await;
            let words = self.trouble.lock().clone();
            core.live.health.report(Name::CertificateFile, "", words);
        }
    }

    fn look(&self) {
        let mut watch = self.watch.lock();
        match watch.look(now_s()) {
            WatchOutcome::Same => {}
            WatchOutcome::Replaced(identities) => {
                let is_other = is_other(&self.store.current(), &identities);
                for identity in identities.all().iter().filter(|_| is_other) {
                    let certificate = &identity.certificate;
                    tracing::info!(names = %certificate.names.join(", "), ends = %certificate.ends_on(), "certificate \
                        in use");
                    for warning in &identity.warnings {
                        tracing::warn!(names = %certificate.names.join(", "), "{warning}");
                    }
                }
                self.store.replace(identities);
                *self.trouble.lock() = None;
            }
            WatchOutcome::Broken(errors) => {
                *self.trouble.lock() = Some(unusable_words(&errors));
                for error in errors {
                    tracing::error!(%error, "new certificate unusable; the previous one stays in use");
                }
            }
        }
    }
}

/// Describes unusable files, with advice for the first.
fn unusable_words(errors: &[IdentityError]) -> ConditionTexts {
    let all = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let next = errors.first().map_or("correct the files", |error| error.next);
    let what = format!("unusable certificate files: {all}");
    let next = format!(
        "{next}; the server reads the files again automatically, `stentor tls show` prints their contents; a restart \
         would fail"
    );
    ConditionTexts::new(what, next)
}

fn is_other(old: &Identities, new: &Identities) -> bool {
    let hashes = |all: &Identities| all.all().iter().map(|one| one.certificate.sha256).collect::<Vec<_>>();
    hashes(old) != hashes(new)
}

/// Certificates loaded for a configuration but not yet in force.
pub struct LoadedCertificates {
    watch: IdentityWatch,
    identities: Identities,
}

pub fn load(config: &Config) -> Result<LoadedCertificates, Vec<Diagnostic>> {
    let now = now_s();
    let source = source(config);
    let watch = IdentityWatch::new(source.clone(), now);
    // Report an unusable CA file now, not when the first client connects.
    config.tls_server().map_err(|diagnostic| vec![*diagnostic])?;
    let identities = source.load(now).map_err(|error| match error {
        SourceError::Files(errors) => config.certificate_errors(errors),
        own @ SourceError::Own(_) => vec![config.tls_diagnostic(own.to_string())],
    })?;
    for warning in config.certificate_warnings(&identities) {
        tracing::warn!("{warning}");
    }
    Ok(LoadedCertificates { watch, identities })
}

/// Where certificates come from.
pub(crate) fn source(config: &Config) -> Source {
    let folder = config.acme_folder();
    let obtained = config.acme.certificates.iter().map(|names| folder.join(certificate_file(names)));
    Source {
        files: config.tls.files(),
        obtained: obtained.collect(),
        ca_files: config
            .tls
            .client_ca_file
            .iter()
            .chain(&config.protection.ca_file)
            .map(|file| file.path.clone())
            .collect(),
        own: (config.tls_folder(), config.hostname.clone()),
    }
}

/// The configured and the obtained certificates; `None` if there are none.
pub(crate) fn found(config: &Config) -> Result<Option<Identities>, Vec<Diagnostic>> {
    source(config).found(now_s()).map_err(|errors| config.certificate_errors(errors))
}

/// As [`found`], falling back to the server's self-signed certificate.
pub(crate) fn served(config: &Config) -> Result<Option<Identities>, Vec<Diagnostic>> {
    if let Some(identities) = found(config)? {
        return Ok(Some(identities));
    }
    let path = config.tls_folder().join(SELF_SIGNED_FILE);
    let error = |why: String| vec![config.tls_diagnostic(format!("{}: {why}", path.display()))];
    Identities::self_signed_before(&config.tls_folder()).map_err(error)
}

/// The current time in seconds, the unit of certificate dates.
pub(crate) fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}
