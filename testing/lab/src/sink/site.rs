//! State shared by the hosts of a site: greylist, rate and connection counts; and the schedule of one host over time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use hashbrown::HashMap;
use parking_lot::Mutex;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::behaviour::{Behaviour, GreylistBy, Window};
use crate::scenario::Scenario;

const MINUTE_US: u64 = 60_000_000;

/// Shared by all connections to a site.
pub(crate) struct SiteState {
    /// The site's number in the scenario.
    pub no: u32,
    pub seed: u64,
    pub open: AtomicU32,
    /// To know which domains are served here; none = every recipient is taken.
    pub scenario: Option<Arc<Scenario>>,
    greylist: Mutex<HashMap<u64, u64>>,
    minute: Mutex<(u64, u32)>,
}

impl SiteState {
    pub fn new(no: u32, seed: u64, scenario: Option<Arc<Scenario>>) -> Self {
        Self { no, seed, open: AtomicU32::new(0), scenario, greylist: Mutex::default(), minute: Mutex::default() }
    }

    /// Whether mail for the domain belongs here.
    pub fn serves(&self, domain: &str) -> bool {
        let Some(scenario) = &self.scenario else { return true };
        domain.starts_with('[')
            || scenario.sites()[self.no as usize].relay
            || scenario.site_of_domain(domain) == Some(self.no as usize)
    }

    /// Whether greylisting lets the pair through; notes the first attempt.
    pub fn greylist_passes(&self, behaviour: &Behaviour, sender: &str, recipient: &str, now_us: u64) -> bool {
        if behaviour.greylist_ms == 0 {
            return true;
        }
        let seed = match behaviour.greylist_by {
            GreylistBy::Pair => xxh3_64(sender.as_bytes()),
            GreylistBy::Recipient => 0,
        };
        let key = xxh3_64_with_seed(recipient.as_bytes(), seed);
        let first = *self.greylist.lock().entry(key).or_insert(now_us);
        now_us >= first + u64::from(behaviour.greylist_ms) * 1000
    }

    /// Counts one message against the minute's allowance.
    pub fn rate_passes(&self, behaviour: &Behaviour, now_us: u64) -> bool {
        if behaviour.messages_per_minute_max == 0 {
            return true;
        }
        let mut minute = self.minute.lock();
        if now_us / MINUTE_US != minute.0 {
            *minute = (now_us / MINUTE_US, 0);
        }
        minute.1 = minute.1.saturating_add(1);
        minute.1 <= behaviour.messages_per_minute_max
    }
}

/// A host's behaviour over time.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub base: Arc<Behaviour>,
    pub windows: Vec<Window>,
}

impl Schedule {
    pub fn at(&self, now_us: u64) -> &Arc<Behaviour> {
        let inside = self.windows.iter().find(|w| (w.from_us..w.to_us).contains(&now_us));
        inside.map_or(&self.base, |w| &w.behaviour)
    }

    /// When the behaviour changes next.
    pub fn next_change_us(&self, now_us: u64) -> Option<u64> {
        self.windows.iter().flat_map(|w| [w.from_us, w.to_us]).filter(|&t| t > now_us).min()
    }
}

/// One listening address.
pub(crate) struct Host {
    pub name: String,
    /// Its number among the hosts of its site.
    pub no: u32,
    pub address: SocketAddr,
    pub schedule: Schedule,
    pub site: Arc<SiteState>,
}
