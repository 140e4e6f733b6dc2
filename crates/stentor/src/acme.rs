//! Certificates from a CA (`[acme]`): the renewal task, the folder that stores the files, the challenge listeners, and
//! the reports of `check`, `doctor` and `tls show`.
//!
//! Promise: mail never waits for any of this. `certificates.rs` watches the files and puts new certificates in force.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_acme::{
    CertificateKeeper, CertificateStatus, Challenge, ChallengeResponses, Settings, Shelf, World, http01, tls_alpn01,
    views,
};
use stentor_config::{AcmeChallenge, Config};
use stentor_control::format::{plural, span};
use stentor_core::Core;
use stentor_core::files::{self, replace};
use stentor_sessions::bind;
use stentor_tls::{Roots, day};
use tokio::sync::{Notify, watch};

use crate::certificates::{Certificates, now_s};

/// Interval between checks of the schedule, in case the clock was set or files were deleted.
const LOOK_S: i64 = 60;
/// Size limit of a certificate file; a chain with its key has a few thousand octets.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The folder of certificate files, which only the server's user can read.
struct Folder(PathBuf);

impl Shelf for Folder {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        files::read(&self.0.join(name), FILE_BYTES_MAX)
    }

    fn replace(&self, name: &str, octets: &[u8]) -> io::Result<()> {
        if !self.0.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            File::open(self.0.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        }
        replace(&self.0.join(name), octets, 0o600)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

struct System;

impl World for System {
    fn now(&self) -> i64 {
        now_s()
    }

    fn random(&self) -> u16 {
        fastrand::u16(..)
    }
}

/// The ACME settings; `None` if `[acme]` names no certificates.
pub(crate) fn settings(config: &Config) -> Option<Settings> {
    let acme = &config.acme;
    let challenge = match acme.challenge {
        AcmeChallenge::Http01 => Challenge::Http01,
        AcmeChallenge::TlsAlpn01 => Challenge::TlsAlpn01,
    };
    (!acme.certificates.is_empty()).then(|| Settings {
        directory: acme.directory.clone(),
        ca_file: acme.ca_file.clone(),
        contact: acme.contact.clone(),
        challenge,
        certificates: acme.certificates.clone(),
        external: acme.external.clone(),
        keep_key: acme.keep_key,
    })
}

/// Binds the challenge listeners.
///
/// # Errors
/// The address that cannot be bound.
pub(crate) fn listen(
    config: &Config,
    certificates: &Certificates,
    answers: &Arc<ChallengeResponses>,
    stop: &watch::Receiver<bool>,
) -> Result<(), (SocketAddr, io::Error)> {
    for addr in &config.acme.http_listen {
        let listener = bind(*addr).map_err(|error| (*addr, error))?;
        tokio::spawn(http01(listener, answers.clone(), stop.clone()));
        tracing::info!(address = %addr, "answering http-01 challenges");
    }
    for addr in &config.acme.tls_listen {
        let listener = bind(*addr).map_err(|error| (*addr, error))?;
        let tls = certificates.challenges().map_err(|error| (*addr, io::Error::other(error.to_string())))?;
        tokio::spawn(tls_alpn01(listener, tls, stop.clone()));
        tracing::info!(address = %addr, "answering tls-alpn-01 challenges");
    }
    Ok(())
}

/// Orders due certificates until the process ends. A reload retries failed ones soon.
pub(crate) async fn keep(core: Arc<Core>, answers: Arc<ChallengeResponses>, reloaded: Arc<Notify>) {
    let folder = Arc::new(Folder(core.settings().config.acme_folder()));
    let mut keeper = CertificateKeeper::new(folder, answers, Arc::new(System));
    if let Some(settings) = settings(&core.settings().config) {
        keeper.resume(&settings).await;
    }
    loop {
        let mut next_s = i64::MAX;
        let mut failing = 0;
        if let Some(settings) = settings(&core.settings().config) {
            let turn = keeper.turn(&settings).await;
            (next_s, failing) = (turn.next_s, turn.failing);
        }
        core.measures.certificates_failing.store(failing as u64, Ordering::Relaxed);
        let pause_s = next_s.saturating_sub(now_s()).clamp(1, LOOK_S);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(pause_s.unsigned_abs())) => {}
            () = reloaded.notified() => {
                if let Some(settings) = settings(&core.settings().config) {
                    keeper.hurry(&settings).await;
                }
            }
        }
    }
}

/// The state of each certificate, read from the files. Blocks.
pub(crate) fn standing(config: &Config, now: i64) -> Vec<CertificateStatus> {
    settings(config).map_or_else(Vec::new, |settings| views(&Folder(config.acme_folder()), &settings, now))
}

/// Problems found: the key of `[acme]`, whether it is an error, and the text.
pub(crate) fn findings(config: &Config) -> Vec<(&'static str, bool, String)> {
    let mut found = Vec::new();
    let Some(settings) = settings(config) else { return found };
    if let Some(Err(error)) = settings.ca_file.as_deref().map(Roots::from_file) {
        found.push(("ca_file", true, error.to_string()));
    }
    if let Some((_, file)) = &settings.external
        && let Err(error) = fs::read_to_string(file)
    {
        found.push(("eab_key_file", true, format!("{}: {error}", file.display())));
    }
    for view in standing(config, now_s()) {
        if let Some(trouble) = trouble(&view, now_s()) {
            found.push(("names", false, format!("{}: {trouble}", view.names.join(", "))));
        }
    }
    found
}

/// Why the last attempts failed, if they did.
fn trouble(view: &CertificateStatus, now: i64) -> Option<String> {
    let record = &view.record;
    let error = record.error.as_ref().filter(|_| record.failures > 0)?;
    let serves = match &view.certificate {
        Some(certificate) => format!("the previous one stays in use and expires on {}", certificate.ends_on()),
        None => "a self-signed one is in use".to_owned(),
    };
    let tries = plural(record.failures.into(), "try");
    Some(format!(
        "could not obtain a certificate: {error} ({tries} failed in a row; next {}); {serves}",
        next(view, now)
    ))
}

/// The time of the next attempt, in words.
pub(crate) fn next(view: &CertificateStatus, now: i64) -> String {
    match u64::try_from(view.due_s - now) {
        Ok(seconds) if seconds > 0 => format!("in {}", span(seconds * 1_000)),
        _ => "now".to_owned(),
    }
}

/// Formats a UTC time as `2027-01-31 12:05`.
pub(crate) fn minute(seconds: i64) -> String {
    let of_day = seconds.rem_euclid(86_400);
    format!("{} {:02}:{:02} UTC", day(seconds), of_day / 3_600, of_day / 60 % 60)
}
