//! The task that takes the steps of all domains.
//!
//! Promise: a step is durable before the next one begins, and before a key signs. An observation of name servers is
//! used once, right after it was made. Look-ups run beside the steps, at most [`LOOKS_MAX`] at a time, so that an
//! operator's request does not wait for a name server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use stentor_config::DkimConfig;
use stentor_core::Core;
use stentor_core::live::health::{ConditionTexts, Name};
use stentor_core::rotating_keys::{RotatingDomain, RotationRequest};
use stentor_dkim::rotation::{KeyObservation, KeyPair, KeyPhase, KeyRotation, RotationTimes, Step};
use stentor_records::record::Ms;
use tokio::task::{JoinSet, spawn_blocking};

use crate::health::{DomainView, record_trouble};
use crate::key_files::{KeyFolder, KeyFolderError};
use crate::lookup::observe;
use crate::publish::publish;
use crate::schedule::{Publication, is_different, look_interval_ms, times};
use crate::store::{self, StoreError};

/// Domains looked up at a time.
const LOOKS_MAX: usize = 16;
/// Steps of a domain in one turn. Each leads closer to a wait.
const STEPS_MAX: usize = 16;
/// Pause after a failure, and the longest pause between two turns: the clock may be set.
const RETRY_MS: Ms = 60_000;
const TURN_MS_MIN: Ms = 100;
/// A wall clock that gains this on the steady one was set forward.
const JUMP_MS_MIN: Ms = 30_000;

/// Why keys cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(
        "DKIM keys of {domain}: {source}; or remove `rotate_days`, start without signatures, set it again, reload, and make \
         new keys with `stentor dkim rotate {domain}`"
    )]
    Keys { domain: String, source: KeyFolderError },
    #[error("DKIM keys of {domain}: {source}")]
    Files { domain: String, source: KeyFolderError },
    #[error("DKIM keys of {domain}: {source}")]
    Store { domain: String, source: StoreError },
    #[error("the server is stopping")]
    Stopping,
}

pub struct RotationKeeper {
    core: Arc<Core>,
    domains: BTreeMap<String, KeptDomain>,
    /// Why domains that a reload has added cannot be used, by name.
    unusable: BTreeMap<String, String>,
    looks: JoinSet<FinishedLook>,
    times: ClockPair,
}

/// Both clocks at the last turn.
struct ClockPair {
    wall: Ms,
    steady: Ms,
}

impl ClockPair {
    fn of(core: &Core) -> ClockPair {
        ClockPair { wall: core.clock.now(), steady: core.clock.steady() }
    }

    /// Whether the wall clock was set forward until `later`.
    fn has_jumped(&self, later: &ClockPair) -> bool {
        let gained = later.wall.saturating_sub(self.wall);
        gained >= later.steady.saturating_sub(self.steady).saturating_add(JUMP_MS_MIN)
    }
}

struct FinishedLook {
    domain: String,
    observed: Vec<KeyObservation>,
}

impl RotationKeeper {
    /// Reads the states and keys of all domains, and puts the keys in use that are.
    ///
    /// # Errors
    /// A state or a key in use cannot be read: mail would leave unsigned.
    pub async fn start(core: Arc<Core>) -> Result<RotationKeeper, RotationError> {
        let mut keeper = RotationKeeper {
            core: core.clone(),
            domains: BTreeMap::new(),
            unusable: BTreeMap::new(),
            looks: JoinSet::new(),
            times: ClockPair::of(&core),
        };
        for config in core.settings().config.dkim.iter().filter(|config| config.rotation.is_some()) {
            let kept = KeptDomain::load(&core, config).await?;
            keeper.domains.insert(config.domain.clone(), kept);
        }
        Ok(keeper)
    }

    /// Runs until the process ends.
    pub async fn run(mut self) {
        loop {
            let pause = self.turn().await;
            tokio::select! {
                Some(look) = self.looks.join_next() => {
                    // Look-ups do not panic and are never aborted.
                    if let Ok(FinishedLook { domain, observed }) = look
                        && let Some(kept) = self.domains.get_mut(&domain)
                    {
                        kept.looked(&self.core, observed);
                    }
                }
                () = self.core.dkim.rotating.woken() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does everything that is due. Returns the time until something is.
    async fn turn(&mut self) -> Duration {
        self.follow_settings().await;
        for request in self.core.dkim.rotating.take_requests() {
            self.answer(request).await;
        }
        let (mut pause_ms, lifetime_ms_max) = (RETRY_MS, self.core.settings().lifetime_ms_max());
        let times = ClockPair::of(&self.core);
        let has_jumped = std::mem::replace(&mut self.times, times).has_jumped(&self.times);
        for kept in self.domains.values_mut() {
            kept.has_jumped |= has_jumped;
            kept.advance(&self.core, lifetime_ms_max).await;
        }
        // A provider that hangs takes one time limit, not one for each domain.
        let core = &self.core;
        join_all(self.domains.values_mut().map(|kept| kept.publish(core))).await;
        for kept in self.domains.values_mut() {
            if kept.is_look_due(&self.core) {
                if self.looks.len() >= LOOKS_MAX {
                    // The end of another look-up makes the next turn.
                    continue;
                }
                let (resolver, pairs) = (self.core.resolver(), kept.begin_look(&self.core));
                let domain = kept.keys.domain.clone();
                self.looks.spawn(async move {
                    let observed = observe(&resolver, &domain, &pairs).await;
                    FinishedLook { domain, observed }
                });
            }
            pause_ms = pause_ms.min(kept.pause_ms(&self.core));
        }
        self.report();
        Duration::from_millis(pause_ms.max(TURN_MS_MIN))
    }

    /// Takes in the domains of the settings in force.
    async fn follow_settings(&mut self) {
        let settings = self.core.settings();
        let configured: HashMap<&str, &DkimConfig> = settings
            .config
            .dkim
            .iter()
            .filter(|config| config.rotation.is_some())
            .map(|config| (config.domain.as_str(), config))
            .collect();
        self.domains.retain(|domain, _| configured.contains_key(domain.as_str()));
        self.unusable.retain(|domain, _| configured.contains_key(domain.as_str()));
        self.core.dkim.rotating.retain(|domain| configured.contains_key(domain));
        for (domain, config) in configured {
            if let Some(kept) = self.domains.get_mut(domain) {
                kept.config.clone_from(config);
                continue;
            }
            match KeptDomain::load(&self.core, config).await {
                Ok(kept) => {
                    self.unusable.remove(domain);
                    self.domains.insert(domain.to_owned(), kept);
                }
                Err(error) => {
                    // For requests of operators.
                    self.core.dkim.rotating.show(domain, RotatingDomain::default());
                    let why = error.to_string();
                    if self.unusable.insert(domain.to_owned(), why.clone()).as_ref() != Some(&why) {
                        tracing::error!(%domain, %error, "DKIM keys cannot be used");
                    }
                }
            }
        }
    }

    async fn answer(&mut self, RotationRequest { domain, is_urgent, answer }: RotationRequest) {
        if self.unusable.contains_key(&domain)
            && let Err(error) = self.give_up_lost_key(&domain).await
        {
            let _ = answer.send(Err(error.to_string()));
            return;
        }
        let result = match self.domains.get_mut(&domain) {
            Some(kept) => kept.rotate(&self.core, is_urgent).await,
            None => Err(format!("the server makes no keys for {domain}")),
        };
        // The requester may be gone.
        let _ = answer.send(result);
    }

    /// A new pair is requested for a domain whose key in use cannot be read.
    async fn give_up_lost_key(&mut self, domain: &str) -> Result<(), RotationError> {
        let settings = self.core.settings();
        if let Some(config) = settings.config.dkim.iter().find(|config| config.domain == domain) {
            let kept = KeptDomain::without_lost_key(&self.core, config).await?;
            self.unusable.remove(domain);
            self.domains.insert(domain.to_owned(), kept);
        }
        Ok(())
    }

    fn report(&self) {
        let now = self.core.clock.now();
        let health = &self.core.live.health;
        let troubles = self.domains.values().filter_map(|kept| {
            let texts = record_trouble(kept.view(), now)?;
            Some((kept.keys.domain.clone(), texts))
        });
        health.report_all(Name::DkimRecord, troubles);
        let next = "correct the reason; it is tried again every minute";
        let failing = self.domains.iter().filter_map(|(domain, kept)| {
            let why = kept.trouble.clone().or_else(|| kept.publication.error.clone())?;
            Some((domain.clone(), ConditionTexts::new(format!("DKIM keys of {domain}: {why}"), next)))
        });
        let unusable = self.unusable.iter().map(|(domain, why)| {
            (domain.clone(), ConditionTexts::new(format!("{why}; mail is not signed with them"), next))
        });
        health.report_all(Name::DkimRotation, failing.chain(unusable));
    }
}

/// One domain.
struct KeptDomain {
    keys: KeyFolder,
    config: DkimConfig,
    rotation: KeyRotation,
    /// What operators see: the last look-up.
    observed: Vec<KeyObservation>,
    /// The same until the next step has used it.
    fresh: Vec<KeyObservation>,
    /// The clock was set forward, and waits have not begun again yet.
    has_jumped: bool,
    is_looking: bool,
    /// Start of the last look-up, by both clocks.
    looked: Ms,
    next_look: Ms,
    /// When the next wait is over.
    until: Option<Ms>,
    /// Why the last step failed, and when it is tried again.
    trouble: Option<String>,
    retry_at: Ms,
    publication: Publication,
}

impl KeptDomain {
    async fn load(core: &Core, config: &DkimConfig) -> Result<KeptDomain, RotationError> {
        let kept = KeptDomain::read(core, config)?;
        if let Some(pair) = kept.rotation.in_use().cloned() {
            let signers = kept.on_files(move |keys| keys.signers(&pair)).await.map_err(|error| match error {
                RotationError::Files { domain, source } => RotationError::Keys { domain, source },
                other => other,
            })?;
            core.dkim.rotating.use_signers(&config.domain, signers);
        }
        core.dkim.rotating.show(&config.domain, kept.shown());
        Ok(kept)
    }

    /// Reads the state of a domain whose key in use is lost, and gives that pair up.
    async fn without_lost_key(core: &Core, config: &DkimConfig) -> Result<KeptDomain, RotationError> {
        let mut kept = KeptDomain::read(core, config)?;
        if let Some(pair) = kept.rotation.in_use().cloned() {
            let next = kept.rotation.abandoning(&pair, core.clock.now());
            kept.commit(core, next).await?;
        }
        Ok(kept)
    }

    fn read(core: &Core, config: &DkimConfig) -> Result<KeptDomain, RotationError> {
        let domain = config.domain.clone();
        let keys = KeyFolder { folder: core.settings().config.dkim_folder(), domain: domain.clone() };
        let rotation =
            store::read(&core.registry, &domain).map_err(|source| RotationError::Store { domain, source })?;
        Ok(KeptDomain {
            keys,
            config: config.clone(),
            rotation,
            observed: Vec::new(),
            fresh: Vec::new(),
            has_jumped: false,
            is_looking: false,
            looked: 0,
            next_look: 0,
            until: None,
            trouble: None,
            retry_at: 0,
            publication: Publication::default(),
        })
    }

    fn shown(&self) -> RotatingDomain {
        RotatingDomain { rotation: self.rotation.clone(), observed: self.observed.clone() }
    }

    fn view(&self) -> DomainView<'_> {
        let is_published = self.config.rotation.as_ref().is_some_and(|rotation| !rotation.publish_command.is_empty());
        DomainView { domain: &self.keys.domain, rotation: &self.rotation, observed: &self.observed, is_published }
    }

    fn times(&self, lifetime_ms_max: Ms) -> Option<RotationTimes> {
        self.config.rotation.as_ref().map(|rotation| times(rotation, lifetime_ms_max))
    }

    /// Takes all steps that are due.
    async fn advance(&mut self, core: &Core, lifetime_ms_max: Ms) {
        let is_paused = core.clock.steady() < self.retry_at;
        let Some(times) = self.times(lifetime_ms_max).filter(|_| !is_paused) else { return };
        if self.has_jumped {
            let next = self.rotation.after_jump(core.clock.now());
            if let Err(error) = self.commit(core, next).await {
                self.fail(core, &error);
                return;
            }
            self.has_jumped = false;
        }
        let fresh = std::mem::take(&mut self.fresh);
        for _ in 0..STEPS_MAX {
            match self.rotation.next(times, &fresh, core.clock.now()) {
                Step::Wait { until } => {
                    self.until = until;
                    break;
                }
                step => {
                    if let Err(error) = self.take(core, step).await {
                        self.fail(core, &error);
                        return;
                    }
                }
            }
        }
        self.trouble = None;
    }

    fn fail(&mut self, core: &Core, error: &RotationError) {
        let why = error.to_string();
        if self.trouble.as_ref() != Some(&why) {
            tracing::error!(domain = %self.keys.domain, %error, "DKIM keys cannot be changed; the keys in use stay");
        }
        self.trouble = Some(why);
        self.retry_at = core.clock.steady() + RETRY_MS;
        self.next_look = self.retry_at;
    }

    /// Makes a new pair for an operator. Returns what was done, in words.
    async fn rotate(&mut self, core: &Core, is_urgent: bool) -> Result<String, String> {
        let domain = self.keys.domain.clone();
        let step = match self.rotation.request(is_urgent) {
            Ok(Some(step)) => step,
            Ok(None) => {
                let selector = self.rotation.successor().map(|pair| pair.selector.as_str()).unwrap_or_default();
                return Ok(format!("a new key pair of {domain} is on its way already: {selector}"));
            }
            Err(error) => return Err(error.to_string()),
        };
        self.take(core, step).await.map_err(|error| error.to_string())?;
        self.next_look = 0;
        let selector = self.rotation.successor().map(|pair| pair.selector.as_str()).unwrap_or_default();
        let then = if is_urgent { "used as soon as it is" } else { "used when no cache has its absence" };
        Ok(format!("key pair {selector} of {domain} waits for its records, which `stentor dkim show` prints; {then}"))
    }

    async fn take(&mut self, core: &Core, step: Step) -> Result<(), RotationError> {
        let now = core.clock.now();
        match step {
            Step::Create { is_urgent } => {
                let rotation = self.rotation.clone();
                let pair = self.on_files(move |keys| keys.create(&rotation, is_urgent, now)).await?;
                self.next_look = 0;
                self.commit(core, self.rotation.with(pair)).await
            }
            Step::Commit(next) => self.commit(core, next).await,
            Step::RemoveFiles { selector } => {
                let removed = selector.clone();
                self.on_files(move |keys| keys.remove(&removed)).await?;
                self.commit(core, self.rotation.without_files(&selector)).await
            }
            Step::Wait { .. } => Ok(()),
        }
    }

    /// Makes a state durable; then it takes effect.
    async fn commit(&mut self, core: &Core, next: KeyRotation) -> Result<(), RotationError> {
        let selector = |rotation: &KeyRotation| rotation.in_use().map(|pair| pair.selector.clone());
        let (mut next, mut signers) = (next, None);
        if let Some(pair) = next.in_use().filter(|pair| selector(&self.rotation).as_ref() != Some(&pair.selector)) {
            let wanted = pair.clone();
            match self.on_files(move |keys| keys.signers(&wanted)).await {
                Ok(read) => signers = Some(read),
                // It has never signed, so nothing is lost with it.
                Err(RotationError::Files { source, .. }) if !matches!(source, KeyFolderError::File { .. }) => {
                    tracing::error!(domain = %self.keys.domain, error = %source, "a new DKIM key is lost; making another");
                    let lost = self.rotation.pair(&pair.selector).cloned();
                    let lost = lost.unwrap_or_else(|| pair.clone());
                    next = self.rotation.abandoning(&lost, core.clock.now());
                }
                Err(error) => return Err(error),
            }
        }
        let written = store::write(&core.registry, &self.keys.domain, &next).await;
        written.map_err(|source| RotationError::Store { domain: self.keys.domain.clone(), source })?;
        log_changes(&self.keys.domain, &self.rotation, &next);
        self.rotation = next;
        if let Some(signers) = signers {
            core.dkim.rotating.use_signers(&self.keys.domain, signers);
        }
        core.dkim.rotating.show(&self.keys.domain, self.shown());
        Ok(())
    }

    /// Works on the key files on the blocking pool.
    async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&KeyFolder) -> Result<T, KeyFolderError> + Send + 'static,
    ) -> Result<T, RotationError> {
        let keys = self.keys.clone();
        let result = spawn_blocking(move || work(&keys)).await.map_err(|_| RotationError::Stopping)?;
        result.map_err(|source| RotationError::Files { domain: self.keys.domain.clone(), source })
    }

    /// Runs `publish_command`, if it must.
    async fn publish(&mut self, core: &Core) {
        let command =
            self.config.rotation.as_ref().map(|rotation| rotation.publish_command.clone()).unwrap_or_default();
        if command.is_empty() {
            self.publication = Publication::default();
            return;
        }
        let zone = self.rotation.zone(&self.keys.domain);
        if !self.publication.is_due(&zone, is_different(&self.rotation, &self.observed), core.clock.steady()) {
            return;
        }
        let error = publish(&command, &zone).await.err().map(|error| error.to_string());
        let domain = &self.keys.domain;
        match &error {
            None => tracing::info!(%domain, "DKIM records published"),
            Some(error) => tracing::error!(%domain, %error, "DKIM records could not be published"),
        }
        self.publication.ran(zone, error, core.clock.steady());
        self.next_look = 0;
    }

    fn is_look_due(&self, core: &Core) -> bool {
        let is_wait_over = self.until.is_some_and(|until| core.clock.now() >= until && self.looked < until);
        !self.is_looking && !self.rotation.pairs.is_empty() && (core.clock.steady() >= self.next_look || is_wait_over)
    }

    /// Returns the pairs to look up.
    fn begin_look(&mut self, core: &Core) -> Vec<KeyPair> {
        self.is_looking = true;
        self.looked = core.clock.now();
        // A request or a new pair in the meantime brings it forward.
        self.next_look = Ms::MAX;
        self.rotation.pairs.clone()
    }

    /// Takes what a look-up has found.
    fn looked(&mut self, core: &Core, observed: Vec<KeyObservation>) {
        self.is_looking = false;
        let interval_ms =
            self.config.rotation.as_ref().map_or(RETRY_MS, |config| look_interval_ms(&self.rotation, config));
        self.next_look = self.next_look.min(core.clock.steady() + interval_ms);
        self.observed.clone_from(&observed);
        self.fresh = observed;
        core.dkim.rotating.show(&self.keys.domain, self.shown());
    }

    /// Time until something is due, look-ups in progress aside.
    fn pause_ms(&self, core: &Core) -> Ms {
        let until_ms = self.until.map_or(RETRY_MS, |until| until.saturating_sub(core.clock.now()));
        let look_ms = if self.is_looking { RETRY_MS } else { self.next_look.saturating_sub(core.clock.steady()) };
        // A wait that is over waits for a look-up.
        let until_ms = if until_ms == 0 { RETRY_MS } else { until_ms };
        until_ms.min(look_ms)
    }
}

fn log_changes(domain: &str, before: &KeyRotation, after: &KeyRotation) {
    for pair in &after.pairs {
        let was = before.pair(&pair.selector).map(|pair| pair.phase);
        let selector = &pair.selector;
        if was == Some(pair.phase) {
            continue;
        }
        match pair.phase {
            KeyPhase::Created if was.is_some() => {
                tracing::warn!(%domain, %selector, "a record of the new DKIM key has vanished; waiting for it again");
            }
            KeyPhase::Created => {
                tracing::info!(%domain, %selector, "DKIM key made; `stentor dkim show` prints the records to publish");
            }
            KeyPhase::Published => tracing::info!(%domain, %selector, "DKIM records are at all name servers"),
            KeyPhase::InUse => tracing::info!(%domain, %selector, "DKIM key in use"),
            KeyPhase::Retired => tracing::info!(%domain, %selector, "DKIM key retired; its records must stay"),
            KeyPhase::Removable => tracing::info!(%domain, %selector, "DKIM records may be removed"),
        }
    }
    for pair in before.pairs.iter().filter(|pair| after.pair(&pair.selector).is_none()) {
        tracing::info!(%domain, selector = %pair.selector, "DKIM key and its records are gone");
    }
}
