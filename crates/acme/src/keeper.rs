//! Checks all certificates periodically and orders those that are due.
//!
//! Promise: each attempt is on the disk before the CA is contacted, so repeated restarts do not cause more requests; if
//! the disk cannot be written, no request is made. Between turns only unwritten records are kept in memory.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use stentor_tls::{Certificate, Identity, day};
use tokio::time::timeout;

use crate::Settings;
use crate::answers::ChallengeResponses;
use crate::error::AcmeError;
use crate::order::{Try, apart, http};
use crate::record::{Record, Shelf, held, order_file, record_file};
use crate::schedule::{self, DAY_S, HURRY_S};

/// Time limit of one attempt, including all waiting.
const TRY_TIMEOUT: Duration = Duration::from_mins(5);

/// The clock and the random numbers, supplied by the caller.
pub trait World: Send + Sync {
    /// Seconds since 1970.
    fn now(&self) -> i64;
    fn random(&self) -> u16;
}

pub struct CertificateKeeper {
    shelf: Arc<dyn Shelf>,
    answers: Arc<ChallengeResponses>,
    world: Arc<dyn World>,
    /// Records that could not be written, by file.
    unwritten: HashMap<String, Record>,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When the next turn is due, in seconds since 1970.
    pub next_s: i64,
    /// Number of certificates whose last attempt failed.
    pub failing: usize,
}

struct CertificateState {
    record: Record,
    identity: Option<Identity>,
}

impl CertificateState {
    fn due(&self, settings: &Settings, names: &[String]) -> i64 {
        schedule::due(&self.record, self.certificate(), names, &settings.directory)
    }

    fn certificate(&self) -> Option<&Certificate> {
        self.identity.as_ref().map(|identity| &identity.certificate)
    }
}

impl CertificateKeeper {
    pub fn new(shelf: Arc<dyn Shelf>, answers: Arc<ChallengeResponses>, world: Arc<dyn World>) -> CertificateKeeper {
        CertificateKeeper { shelf, answers, world, unwritten: HashMap::new() }
    }

    /// Called at the start: interrupted orders are continued at once, since the CA already has them; certificates that
    /// do not match the configuration are also ordered at once.
    pub async fn resume(&mut self, settings: &Settings) {
        for names in &settings.certificates {
            let file = order_file(names);
            let is_begun =
                apart(&self.shelf, move |shelf| shelf.read(&file).is_ok_and(|octets| octets.is_some())).await;
            let mut record = self.held(names).await.record;
            let is_other = record.failures == 0 && !schedule::is_same(&record, names, &settings.directory);
            if (is_begun.unwrap_or(false) || is_other) && !record.is_demanded {
                record.next_s = None;
                // A record that cannot be written stays in memory.
                let _ = self.keep(names, record).await;
            }
        }
    }

    /// Called after a reload: failed orders are retried soon, unless the CA demands a pause.
    pub async fn hurry(&mut self, settings: &Settings) {
        for names in &settings.certificates {
            let mut record = self.held(names).await.record;
            if let Some(next_s) = record.next_s.filter(|_| !record.is_demanded) {
                let soon = record.tried_s.map_or(0, |tried_s| tried_s + HURRY_S);
                record.next_s = Some(next_s.min(soon));
                let _ = self.keep(names, record).await;
            }
        }
    }

    /// Orders all due certificates, one after the other.
    pub async fn turn(&mut self, settings: &Settings) -> Turn {
        let mut turn = Turn { next_s: i64::MAX, failing: 0 };
        for names in &settings.certificates {
            let mut held = self.held(names).await;
            if held.due(settings, names) <= self.world.now() {
                held = self.attempt(settings, names, held).await;
            }
            if held.record.ask_s.is_some_and(|at| at <= self.world.now()) {
                self.ask(settings, names, &mut held).await;
            }
            let next_s = held.due(settings, names);
            turn.next_s = turn.next_s.min(held.record.ask_s.map_or(next_s, |at| at.min(next_s)));
            turn.failing += usize::from(held.record.failures > 0);
        }
        turn
    }

    async fn held(&self, names: &[String]) -> CertificateState {
        let of = names.to_vec();
        let read = apart(&self.shelf, move |shelf| (Record::read(shelf, &of), held(shelf, &of))).await;
        let (record, identity) = read.unwrap_or_default();
        let record = self.unwritten.get(&record_file(names)).cloned().unwrap_or(record);
        CertificateState { record: schedule::believed(record, self.world.now()), identity }
    }

    /// Stores a record and returns whether it is durable; it is in force either way.
    async fn keep(&mut self, names: &[String], record: Record) -> Result<(), AcmeError> {
        let file = record_file(names);
        let octets = serde_json::to_vec(&record).map_err(|error| AcmeError::Settings(error.to_string()))?;
        let name = file.clone();
        let written = apart(&self.shelf, move |shelf| shelf.replace(&name, &octets)).await?;
        match written {
            Ok(()) => {
                self.unwritten.remove(&file);
                Ok(())
            }
            Err(source) => {
                self.unwritten.insert(file.clone(), record);
                Err(AcmeError::File { file: file.into(), source })
            }
        }
    }

    async fn attempt(&mut self, settings: &Settings, names: &[String], before: CertificateState) -> CertificateState {
        let mut record = before.record.clone();
        let begun = self.world.now();
        record.tried_s = Some(begun);
        // In case the process ends here.
        record.next_s = Some(schedule::retry(begun, record.failures + 1, None, self.world.random()));
        let (outcome, demanded_s) = match self.keep(names, record.clone()).await {
            Ok(()) => self.ask_for(settings, names).await,
            Err(error) => (Err(error), None),
        };
        let now = self.world.now();
        match outcome {
            Ok(identity) => {
                let record = Record {
                    directory: settings.directory.clone(),
                    names: names.to_vec(),
                    next_s: Some(schedule::rest(now, &identity.certificate)),
                    obtained_s: Some(now),
                    tried_s: Some(begun),
                    ask_s: Some(now),
                    ..Record::default()
                };
                let certificate = &identity.certificate;
                let renewed = day(schedule::renewal(certificate, None));
                tracing::info!(names = %names.join(", "), issuer = %certificate.issuer, ends = %certificate.ends_on(), %renewed, "certificate obtained");
                // Not essential: the certificate in force has the same data.
                let _ = self.keep(names, record.clone()).await;
                CertificateState { record, identity: Some(identity) }
            }
            Err(error) => {
                self.failed(names, &mut record, &error, demanded_s, before.certificate());
                // It is kept in memory, and stored with the next record.
                let _ = self.keep(names, record.clone()).await;
                CertificateState { record, identity: before.identity }
            }
        }
    }

    async fn ask_for(&self, settings: &Settings, names: &[String]) -> (Result<Identity, AcmeError>, Option<i64>) {
        let http = match http(&self.shelf, settings).await {
            Ok(http) => http,
            Err(error) => return (Err(error), None),
        };
        let one = Try { shelf: &self.shelf, answers: &self.answers, settings, names, http: http.clone() };
        let outcome = timeout(TRY_TIMEOUT, one.obtain()).await;
        (outcome.unwrap_or(Err(AcmeError::Timeout(TRY_TIMEOUT.as_secs()))), http.demanded_s())
    }

    fn failed(
        &self,
        names: &[String],
        record: &mut Record,
        error: &AcmeError,
        demanded_s: Option<i64>,
        certificate: Option<&Certificate>,
    ) {
        let now = self.world.now();
        record.failures = record.failures.saturating_add(1);
        let before = record.error.replace(error.to_string());
        // An operator who has fixed one cause must see the next one at once.
        let is_other = before != record.error;
        record.is_demanded = demanded_s.is_some_and(|seconds| seconds > HURRY_S);
        let next_s = schedule::retry(now, record.failures, demanded_s, self.world.random());
        record.next_s = Some(next_s);
        let ends = certificate.map_or_else(|| "none; using the server's own".to_owned(), Certificate::ends_on);
        let (names, failures, next_try_s) = (names.join(", "), record.failures, next_s - now);
        if is_other || schedule::is_warned(now, record) {
            record.warned_s = Some(now);
            tracing::warn!(%names, %error, failures, next_try_s, %ends, "no certificate could be obtained; keeping \
                the current one");
        } else {
            tracing::debug!(%names, %error, failures, next_try_s, %ends, "no certificate could be obtained");
        }
    }

    /// Asks the CA when it wants the certificate renewed. Nothing depends on the answer.
    async fn ask(&mut self, settings: &Settings, names: &[String], held: &mut CertificateState) {
        let window = match (http(&self.shelf, settings).await, held.identity.as_ref().and_then(Identity::renewal_id)) {
            (Ok(http), Some(id)) => {
                let one = Try { shelf: &self.shelf, answers: &self.answers, settings, names, http };
                timeout(TRY_TIMEOUT, one.window(&id)).await.unwrap_or(Err(AcmeError::Timeout(TRY_TIMEOUT.as_secs())))
            }
            (Err(error), _) => Err(error),
            (_, None) => Ok(None),
        };
        let mut wait_s = DAY_S;
        match window {
            Ok(Some((window, said_s))) => {
                // RFC 9773 section 4.3.2: at most once a minute, and at least once a day.
                wait_s = said_s.clamp(60, DAY_S);
                held.record.window = Some(window);
            }
            Ok(None) => held.record.window = None,
            Err(error) => tracing::debug!(names = %names.join(", "), %error, "the CA gave no renewal time"),
        }
        held.record.ask_s = Some(self.world.now() + wait_s);
        let _ = self.keep(names, held.record.clone()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicI64, Ordering};

    use stentor_tls::{Identities, IdentityStore, SELF_SIGNED_FILE};

    use super::*;
    use crate::Challenge;
    use crate::record::tests::Memory;
    use crate::schedule::RETRY_MIN_S;

    const START_S: i64 = 1_800_000_000;

    struct Clock(AtomicI64);

    impl World for Clock {
        fn now(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }

        fn random(&self) -> u16 {
            0
        }
    }

    /// A keeper whose CA is `listener`, which never answers.
    struct Scene {
        keeper: CertificateKeeper,
        shelf: Arc<Memory>,
        clock: Arc<Clock>,
        settings: Settings,
        _folder: tempfile::TempDir,
    }

    impl Scene {
        fn new(port: u16) -> Scene {
            let folder = tempfile::tempdir().unwrap();
            let own = Identities::self_signed(folder.path(), "localhost", START_S).unwrap();
            let (shelf, clock) = (Arc::new(Memory::default()), Arc::new(Clock(AtomicI64::new(START_S))));
            let settings = Settings {
                directory: format!("https://127.0.0.1:{port}/dir"),
                ca_file: Some(folder.path().join(SELF_SIGNED_FILE)),
                contact: Vec::new(),
                challenge: Challenge::Http01,
                certificates: vec![vec!["mx.example.org".to_owned()]],
                external: None,
                keep_key: true,
            };
            let answers = ChallengeResponses::new(IdentityStore::new(own));
            let keeper = CertificateKeeper::new(shelf.clone(), answers, clock.clone());
            Scene { keeper, shelf, clock, settings, _folder: folder }
        }

        fn record(&self) -> Record {
            Record::read(&*self.shelf, &self.settings.certificates[0])
        }

        async fn turn_at(&mut self, now: i64) -> Turn {
            self.clock.0.store(now, Ordering::Relaxed);
            self.keeper.turn(&self.settings).await
        }
    }

    fn closed_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_month_without_the_ca_is_a_try_and_a_warning_a_day() {
        let mut scene = Scene::new(closed_port());
        let (mut now, mut tries, mut warnings) = (START_S, 0, Vec::new());
        while now < START_S + 30 * DAY_S {
            let turn = scene.turn_at(now).await;
            tries += 1;
            assert!(turn.failing == 1 && turn.next_s > now, "{turn:?}");
            let record = scene.record();
            assert_eq!((record.failures, record.tried_s), (tries, Some(now)));
            assert!(record.error.is_some_and(|error| error.contains("the CA is unreachable")));
            warnings.extend(record.warned_s);
            // In between no request is made.
            assert_eq!(scene.turn_at(turn.next_s - 1).await, turn);
            assert_eq!(scene.record().tried_s, Some(now));
            now = turn.next_s;
        }
        warnings.dedup();
        assert!(tries < 45 && (28..=31).contains(&warnings.len()), "{tries} {}", warnings.len());
    }

    #[tokio::test]
    async fn another_reason_is_a_warning_at_once() {
        let mut scene = Scene::new(closed_port());
        let mut next_s = scene.turn_at(START_S).await.next_s;
        let right = scene.settings.ca_file.replace("/nowhere/ca.pem".into());
        for (at, ca_file, is_warned) in [(1, None, true), (2, None, false), (3, right, true)] {
            if ca_file.is_some() {
                scene.settings.ca_file = ca_file;
            }
            let now = next_s;
            next_s = scene.turn_at(now).await.next_s;
            let record = scene.record();
            assert_eq!(record.warned_s == Some(now), is_warned, "{at}: {record:?}");
        }
    }

    #[tokio::test]
    async fn a_reload_tries_again_and_a_restart_does_not() {
        let mut scene = Scene::new(closed_port());
        scene.turn_at(START_S).await;
        scene.keeper.resume(&scene.settings.clone()).await;
        assert_eq!(scene.record().next_s, Some(START_S + RETRY_MIN_S));
        scene.keeper.hurry(&scene.settings.clone()).await;
        assert_eq!(scene.record().next_s, Some(START_S + HURRY_S));
        scene.turn_at(START_S + HURRY_S).await;
        assert_eq!(scene.record().failures, 2);
        // Unless an order is in progress: the CA already has it.
        scene.shelf.replace("mx.example.org.order", b"{}").unwrap();
        scene.keeper.resume(&scene.settings.clone()).await;
        assert_eq!(scene.record().next_s, None);
        // A pause demanded by the CA applies to both.
        let record = Record { is_demanded: true, next_s: Some(START_S + DAY_S), ..scene.record() };
        scene.shelf.replace("mx.example.org.json", &serde_json::to_vec(&record).unwrap()).unwrap();
        scene.keeper.hurry(&scene.settings.clone()).await;
        scene.keeper.resume(&scene.settings.clone()).await;
        assert_eq!(scene.record(), record);
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_does_not_stop_tries() {
        let mut scene = Scene::new(closed_port());
        let ahead = START_S + 5 * 365 * DAY_S;
        let record = Record { obtained_s: Some(ahead), ..Record::default() };
        scene.shelf.replace("mx.example.org.json", &serde_json::to_vec(&record).unwrap()).unwrap();
        scene.turn_at(ahead).await;
        // The clock is right again: one attempt at once, the next after the usual pause.
        let turn = scene.turn_at(START_S).await;
        assert_eq!((scene.record().tried_s, scene.record().failures), (Some(START_S), 2));
        assert_eq!(turn.next_s, START_S + 2 * RETRY_MIN_S);
        assert_eq!(scene.turn_at(START_S + 1).await, turn);
        scene.turn_at(ahead).await;
        // A reload also brings it forward.
        scene.clock.0.store(START_S, Ordering::Relaxed);
        scene.keeper.hurry(&scene.settings.clone()).await;
        scene.turn_at(START_S).await;
        assert_eq!(scene.record().tried_s, Some(START_S));
    }

    #[tokio::test]
    async fn without_a_disk_nobody_is_asked() {
        let ca = TcpListener::bind("127.0.0.1:0").unwrap();
        ca.set_nonblocking(true).unwrap();
        let mut scene = Scene::new(ca.local_addr().unwrap().port());
        *scene.shelf.is_full.lock() = true;
        let first = scene.turn_at(START_S).await;
        assert_eq!(first, Turn { next_s: START_S + RETRY_MIN_S, failing: 1 });
        // The unwritten record is remembered.
        assert_eq!(scene.turn_at(START_S + 1).await, first);
        let second = scene.turn_at(first.next_s).await;
        assert_eq!(second.next_s, first.next_s + 2 * RETRY_MIN_S);
        assert!(ca.accept().is_err(), "the CA was asked");
        assert!(scene.shelf.files.lock().is_empty());
    }
}
