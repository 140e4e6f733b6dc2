//! The keys of one domain: takes the steps of its rotation.
//!
//! Promise: a step is durable before the next one begins, and before a key signs. An observation of name servers is
//! used once, right after it was made.
//!
//! Failure: a step that fails changes nothing and is tried again after [`RETRY_MS`]; the keys in use stay.

use stentor_config::DkimConfig;
use stentor_core::Core;
use stentor_core::rotating_keys::RotatingDomain;
use stentor_dkim::rotation::{KeyObservation, KeyPair, KeyPhase, KeyRotation, RotationTimes, Step};
use stentor_records::record::Ms;
use tokio::task::spawn_blocking;

use crate::health::DomainView;
use crate::key_files::{KeyFolder, KeyFolderError};
use crate::publish::publish;
use crate::schedule::{Publication, is_different, lookup_interval_ms, times};
use crate::store::{self, StoreError};

/// Steps of a domain in one turn. Each leads closer to a wait.
const STEPS_MAX: usize = 16;
/// Pause after a failure, and the longest pause between two turns: the clock may be set.
pub const RETRY_MS: Ms = 60_000;

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

/// Times of one round of steps.
#[derive(Clone, Copy)]
pub struct AdvanceTimes {
    pub lifetime_ms_max: Ms,
    /// The wall clock was set forward.
    pub has_jumped: bool,
}

/// The keys of one domain.
pub struct DomainKeys {
    keys: KeyFolder,
    config: DkimConfig,
    rotation: KeyRotation,
    /// What operators see: the last look-up.
    observed: Vec<KeyObservation>,
    /// The same until the next step has used it.
    fresh: Vec<KeyObservation>,
    /// The clock was set forward, and waits have not begun again yet.
    has_jumped: bool,
    is_in_lookup: bool,
    /// Start of the last look-up, by both clocks.
    lookup_began: Ms,
    next_lookup: Ms,
    /// When the next wait is over.
    until: Option<Ms>,
    /// Why the last step failed, and when it is tried again.
    trouble: Option<String>,
    retry_at: Ms,
    publication: Publication,
}

impl DomainKeys {
    pub async fn load(core: &Core, config: &DkimConfig) -> Result<DomainKeys, RotationError> {
        let own = DomainKeys::read(core, config)?;
        if let Some(pair) = own.rotation.in_use().cloned() {
            let signers = own.on_files(move |keys| keys.signers(&pair)).await.map_err(|error| match error {
                RotationError::Files { domain, source } => RotationError::Keys { domain, source },
                other => other,
            })?;
            core.dkim.rotating.use_signers(&config.domain, signers);
        }
        core.dkim.rotating.show(&config.domain, own.shown());
        Ok(own)
    }

    /// Reads the state of a domain whose key in use is lost, and gives that pair up.
    pub async fn without_lost_key(core: &Core, config: &DkimConfig) -> Result<DomainKeys, RotationError> {
        let mut own = DomainKeys::read(core, config)?;
        if let Some(pair) = own.rotation.in_use().cloned() {
            let next = own.rotation.abandoning(&pair, core.clock.now());
            own.commit(core, next).await?;
        }
        Ok(own)
    }

    fn read(core: &Core, config: &DkimConfig) -> Result<DomainKeys, RotationError> {
        let domain = config.domain.clone();
        let keys = KeyFolder { folder: core.settings().config.dkim_folder(), domain: domain.clone() };
        let rotation =
            store::read(&core.registry, &domain).map_err(|source| RotationError::Store { domain, source })?;
        Ok(DomainKeys {
            keys,
            config: config.clone(),
            rotation,
            observed: Vec::new(),
            fresh: Vec::new(),
            has_jumped: false,
            is_in_lookup: false,
            lookup_began: 0,
            next_lookup: 0,
            until: None,
            trouble: None,
            retry_at: 0,
            publication: Publication::default(),
        })
    }

    pub fn domain(&self) -> &str {
        &self.keys.domain
    }

    /// Takes changed settings.
    pub fn follow(&mut self, config: &DkimConfig) {
        self.config.clone_from(config);
    }

    /// Why the last step or publication failed.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.clone().or_else(|| self.publication.error.clone())
    }

    fn shown(&self) -> RotatingDomain {
        RotatingDomain { rotation: self.rotation.clone(), observed: self.observed.clone() }
    }

    pub fn view(&self) -> DomainView<'_> {
        let is_published = self.config.rotation.as_ref().is_some_and(|rotation| !rotation.publish_command.is_empty());
        DomainView { domain: &self.keys.domain, rotation: &self.rotation, observed: &self.observed, is_published }
    }

    fn times(&self, lifetime_ms_max: Ms) -> Option<RotationTimes> {
        self.config.rotation.as_ref().map(|rotation| times(rotation, lifetime_ms_max))
    }

    /// Takes all steps that are due.
    pub async fn advance(&mut self, core: &Core, AdvanceTimes { lifetime_ms_max, has_jumped }: AdvanceTimes) {
        self.has_jumped |= has_jumped;
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
        self.next_lookup = self.retry_at;
    }

    /// Makes a new pair for an operator. Returns what was done, in words.
    pub async fn rotate(&mut self, core: &Core, is_urgent: bool) -> Result<String, String> {
        let domain = self.keys.domain.clone();
        let step = match self.rotation.request(is_urgent) {
            Ok(Some(step)) => step,
            Ok(None) => {
                let selector = self.rotation.successor().map(|pair| pair.selector.as_str()).unwrap_or_default();
                return Ok(format!(
                    "a key pair of {domain} is waiting already: {selector}; publish the records that `stentor dkim show` prints"
                ));
            }
            Err(error) => return Err(error.to_string()),
        };
        self.take(core, step).await.map_err(|error| error.to_string())?;
        self.next_lookup = 0;
        let selector = self.rotation.successor().map(|pair| pair.selector.as_str()).unwrap_or_default();
        let then = if is_urgent {
            "it signs once all name servers have them"
        } else {
            "it signs once all name servers have them and no cache still reports them missing"
        };
        Ok(format!(
            "key pair {selector} of {domain} waits for its records: publish those that `stentor dkim show` prints; {then}"
        ))
    }

    async fn take(&mut self, core: &Core, step: Step) -> Result<(), RotationError> {
        let now = core.clock.now();
        match step {
            Step::Create { is_urgent } => {
                let rotation = self.rotation.clone();
                let pair = self.on_files(move |keys| keys.create(&rotation, is_urgent, now)).await?;
                self.next_lookup = 0;
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
    pub async fn publish(&mut self, core: &Core) {
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
        self.next_lookup = 0;
    }

    pub fn is_lookup_due(&self, core: &Core) -> bool {
        let is_wait_over = self.until.is_some_and(|until| core.clock.now() >= until && self.lookup_began < until);
        !self.is_in_lookup
            && !self.rotation.pairs.is_empty()
            && (core.clock.steady() >= self.next_lookup || is_wait_over)
    }

    /// Returns the pairs to look up.
    pub fn begin_lookup(&mut self, core: &Core) -> Vec<KeyPair> {
        self.is_in_lookup = true;
        self.lookup_began = core.clock.now();
        // A request or a new pair in the meantime brings it forward.
        self.next_lookup = Ms::MAX;
        self.rotation.pairs.clone()
    }

    /// Takes what a look-up has found.
    pub fn observe(&mut self, core: &Core, observed: Vec<KeyObservation>) {
        self.is_in_lookup = false;
        let interval_ms =
            self.config.rotation.as_ref().map_or(RETRY_MS, |config| lookup_interval_ms(&self.rotation, config));
        self.next_lookup = self.next_lookup.min(core.clock.steady() + interval_ms);
        self.observed.clone_from(&observed);
        self.fresh = observed;
        core.dkim.rotating.show(&self.keys.domain, self.shown());
    }

    /// Time until something is due, look-ups in progress aside.
    pub fn pause_ms(&self, core: &Core) -> Ms {
        let until_ms = self.until.map_or(RETRY_MS, |until| until.saturating_sub(core.clock.now()));
        let lookup_ms = if self.is_in_lookup { RETRY_MS } else { self.next_lookup.saturating_sub(core.clock.steady()) };
        // A wait that is over waits for a look-up.
        let until_ms = if until_ms == 0 { RETRY_MS } else { until_ms };
        until_ms.min(lookup_ms)
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
