//! The task that takes the steps of all domains.
//!
//! Promise: look-ups run beside the steps, at most [`LOOKUPS_MAX`] at a time, so that an operator's request does not
//! wait for a name server.
//!
//! Failure: keys that cannot be read are an error at the start. Of a domain that a reload adds they make it `unusable`:
//! health says why, and `stentor dkim rotate` gives up the lost key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use stentor_config::DkimConfig;
use stentor_core::Core;
use stentor_core::live::health::{ConditionTexts, Name};
use stentor_core::rotating_keys::{RotatingDomain, RotationRequest};
use stentor_dkim::rotation::KeyObservation;
use stentor_records::record::Ms;
use tokio::task::JoinSet;

use crate::domain::{AdvanceTimes, DomainKeys, RETRY_MS, RotationError};
use crate::health::record_trouble;
use crate::lookup::observe;

/// Domains looked up at a time.
const LOOKUPS_MAX: usize = 16;
/// Shortest pause between two turns.
const TURN_MS_MIN: Ms = 100;
/// A wall clock that gains this on the steady one was set forward.
const JUMP_MS_MIN: Ms = 30_000;

pub struct RotationKeeper {
    core: Arc<Core>,
    domains: BTreeMap<String, DomainKeys>,
    /// Why domains that a reload has added cannot be used, by name.
    unusable: BTreeMap<String, String>,
    lookups: JoinSet<FinishedLookup>,
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

struct FinishedLookup {
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
            lookups: JoinSet::new(),
            times: ClockPair::of(&core),
        };
        for config in core.settings().config.dkim.iter().filter(|config| config.rotation.is_some()) {
            let keys = DomainKeys::load(&core, config).await?;
            keeper.domains.insert(config.domain.clone(), keys);
        }
        Ok(keeper)
    }

    /// Runs until the process ends.
    pub async fn run(mut self) {
        loop {
            let pause = self.turn().await;
            tokio::select! {
                Some(finished) = self.lookups.join_next() => {
                    // Look-ups do not panic and are never aborted.
                    if let Ok(FinishedLookup { domain, observed }) = finished
                        && let Some(keys) = self.domains.get_mut(&domain)
                    {
                        keys.observe(&self.core, observed);
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
        for keys in self.domains.values_mut() {
            keys.advance(&self.core, AdvanceTimes { lifetime_ms_max, has_jumped }).await;
        }
        // A provider that hangs takes one time limit, not one for each domain.
        let core = &self.core;
        join_all(self.domains.values_mut().map(|keys| keys.publish(core))).await;
        for keys in self.domains.values_mut() {
            // Beyond the limit the end of another look-up makes the next turn.
            if keys.is_lookup_due(&self.core) && self.lookups.len() < LOOKUPS_MAX {
                let (resolver, pairs) = (self.core.resolver(), keys.begin_lookup(&self.core));
                let domain = keys.domain().to_owned();
                self.lookups.spawn(async move {
                    let observed = observe(&resolver, &domain, &pairs).await;
                    FinishedLookup { domain, observed }
                });
            }
            if !keys.is_lookup_due(&self.core) {
                pause_ms = pause_ms.min(keys.pause_ms(&self.core));
            }
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
            if let Some(keys) = self.domains.get_mut(domain) {
                keys.follow(config);
                continue;
            }
            match DomainKeys::load(&self.core, config).await {
                Ok(keys) => {
                    self.unusable.remove(domain);
                    self.domains.insert(domain.to_owned(), keys);
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
            Some(keys) => keys.rotate(&self.core, is_urgent).await,
            None => Err(format!("the server makes no keys for {domain}")),
        };
        // The requester may be gone.
        let _ = answer.send(result);
    }

    /// A new pair is requested for a domain whose key in use cannot be read.
    async fn give_up_lost_key(&mut self, domain: &str) -> Result<(), RotationError> {
        let settings = self.core.settings();
        if let Some(config) = settings.config.dkim.iter().find(|config| config.domain == domain) {
            let keys = DomainKeys::without_lost_key(&self.core, config).await?;
            self.unusable.remove(domain);
            self.domains.insert(domain.to_owned(), keys);
        }
        Ok(())
    }

    fn report(&self) {
        let now = self.core.clock.now();
        let health = &self.core.live.health;
        let troubles = self.domains.values().filter_map(|keys| {
            let texts = record_trouble(keys.view(), now)?;
            Some((keys.domain().to_owned(), texts))
        });
        health.report_all(Name::DkimRecord, troubles);
        let next = "correct the reason; it is tried again every minute";
        let failing = self.domains.iter().filter_map(|(domain, keys)| {
            let why = keys.trouble()?;
            Some((domain.clone(), ConditionTexts::new(format!("DKIM keys of {domain}: {why}"), next)))
        });
        let unusable = self.unusable.iter().map(|(domain, why)| {
            (domain.clone(), ConditionTexts::new(format!("{why}; mail is not signed with them"), next))
        });
        health.report_all(Name::DkimRotation, failing.chain(unusable));
    }
}
