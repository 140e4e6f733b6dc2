//! Pending recipients by site and age, as qshape shows them.
//!
//! Promise: slices under the hub's lock, the oldest message first, and an answer within [`TIME_MAX`]: of a queue that is too
//! large for that the oldest recipients are counted, and the answer says how many. What comes or goes meanwhile may or may not
//! be counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_control::ages::{BUCKETS, MINUTES, bucket};
use stentor_control::{Ages, AgesOptions, AgesRow};
use stentor_engine::core::Core;
use stentor_engine::core::hub::Hub;
use stentor_queue::ids::{AddressId, Ms, SiteId};

/// Recipients looked at under one hold of the lock: some 100 us.
const STEP: usize = 4_096;
const TIME_MAX: Duration = Duration::from_millis(150);
/// What waits for a look-up.
const UNRESOLVED: &str = "(not resolved yet)";

#[derive(Default)]
struct Walk {
    next: u32,
    until: u32,
    /// The last recipient of the next message that was counted.
    within: Option<u32>,
    sites: HashMap<Option<SiteId>, [u64; BUCKETS]>,
}

impl Walk {
    /// Counts some; whether all are counted.
    fn step(&mut self, hub: &Hub, now: Ms) -> bool {
        let mut left = STEP;
        while left > 0 {
            if self.next == self.until {
                return true;
            }
            let Some((no, message)) = hub.store.messages_between(self.next, self.until).next() else { return true };
            if no.0 != self.next {
                (self.next, self.within) = (no.0, None);
            }
            left -= 1;
            let age = bucket(now.saturating_sub(message.accepted()));
            let pending = message.pending();
            let mut ids = self.within.map_or_else(|| pending.iter(), |after| pending.iter_from(after));
            loop {
                if left == 0 {
                    return false;
                }
                let Some(id) = ids.next() else { break };
                left -= 1;
                self.within = Some(id);
                let site = hub.store.book.try_domain(AddressId(id)).and_then(|domain| hub.sched.site_of(domain));
                self.sites.entry(site).or_default()[age] += 1;
            }
            (self.next, self.within) = (no.0.wrapping_add(1), None);
        }
        false
    }
}

pub async fn ages(core: &Arc<Core>, options: &AgesOptions) -> Ages {
    let (begun, mut walk) = (Instant::now(), Walk::default());
    (walk.next, walk.until) = core.with(|hub, _| hub.store.number_bounds());
    while !core.with(|hub, now| walk.step(hub, now)) && begun.elapsed() < TIME_MAX {
        tokio::task::yield_now().await;
    }
    let mut sites: Vec<_> =
        walk.sites.into_iter().map(|(site, by_age)| (by_age.iter().sum::<u64>(), site, by_age)).collect();
    sites.sort_unstable_by_key(|(recipients, site, _)| (std::cmp::Reverse(*recipients), site.map(|site| site.0)));
    let mut total = [0; BUCKETS];
    for (_, _, by_age) in &sites {
        total.iter_mut().zip(by_age).for_each(|(sum, count)| *sum += count);
    }
    let sites_total = sites.len() as u64;
    sites.truncate(options.rows_max as usize);
    core.with(|hub, now| {
        let row = |(recipients, site, by_age): (u64, Option<SiteId>, [u64; BUCKETS])| AgesRow {
            site: site.and_then(|site| hub.sched.site_name(site)).unwrap_or(UNRESOLVED).to_owned(),
            recipients,
            by_age,
        };
        Ages {
            hostname: core.settings().config.hostname.clone(),
            now,
            recipients: hub.store.pending(),
            counted: total.iter().sum(),
            sites_total,
            minutes: MINUTES.to_vec(),
            total,
            rows: sites.into_iter().map(row).collect(),
        }
    })
}
