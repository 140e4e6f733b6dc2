//! Lists of a world and their rules, and the scheduler's notices about posts.

use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_sched::{FlowKey, FlowRules, Scheduler, SourceConfig, SourceSet};

use super::verbs::Verb;
use super::{Ev, HOUR, World};

pub const SHORT: &str = "short";
pub const SHORT_LIFETIME: Ms = 20 * HOUR;
pub const SUSPENDS: &str = "suspends";
pub const SUSPEND_POSTS: u32 = 2;
pub const WARN: Ms = 2 * HOUR;
const DIGESTS: &str = "digests";
const DIGEST_OVER: u32 = 2;

pub fn list(rng: &mut fastrand::Rng) -> Option<String> {
    [None, None, Some(SHORT), Some(SUSPENDS), Some(DIGESTS)][rng.usize(0..5)].map(str::to_owned)
}

pub fn source(no: usize) -> SourceConfig {
    SourceConfig { name: format!("source{no}"), ..SourceConfig::default() }
}

pub fn some_flow(rng: &mut fastrand::Rng) -> FlowKey {
    match list(rng) {
        Some(list) => FlowKey::List(list.into()),
        None => FlowKey::Sender("s1.example".into()),
    }
}

pub fn set(sched: &mut Scheduler) {
    let rules = FlowRules::default();
    let short = FlowRules { lifetime_ms: Some(SHORT_LIFETIME), weight: 3, recipients_max: Some(1), ..rules.clone() };
    sched.set_rules(FlowKey::List(SHORT.into()), Some(short));
    let suspends = FlowRules { suspend_posts: Some(SUSPEND_POSTS), sources: SourceSet(1), ..rules.clone() };
    sched.set_rules(FlowKey::List(SUSPENDS.into()), Some(suspends));
    let digests = FlowRules { coalesce_over: Some(DIGEST_OVER), warn_ms: Some(2 * WARN), ..rules };
    sched.set_rules(FlowKey::List(DIGESTS.into()), Some(digests));
}

impl World {
    pub fn delayed(&mut self, no: MessageNo) {
        let message = self.store.message(no).expect("a live message is delayed");
        let warn = if message.list() == Some(DIGESTS) { 2 * WARN } else { WARN };
        assert!(self.now >= message.accepted() + warn, "reported too early");
        assert!(self.delayed.insert(message.id().0), "reported twice");
    }

    /// Makes the digest durable after a while, or refuses it.
    pub fn coalesce(&mut self, list: &str, posts: &[MessageNo], ids: &[AddressId]) {
        assert!(posts.len() > DIGEST_OVER as usize && list == DIGESTS && !ids.is_empty());
        for no in posts {
            let Some(message) = self.store.message(*no).filter(|m| !m.is_held()) else {
                // The post ended or was stopped in the meantime.
                let all = ids.iter().map(|id| id.0).collect();
                self.sched.unreserve(&self.store, *no, &all, self.now);
                continue;
            };
            let queue_id = message.id();
            let there: IdSet = ids.iter().map(|id| id.0).filter(|id| message.pending().contains(*id)).collect();
            self.note_taken_out(queue_id, ids.iter().copied());
            for id in &there {
                assert!(!self.in_flight.contains(&(*no, AddressId(id))), "coalesced while it is being sent");
                assert!(self.reserved.insert((queue_id.0, AddressId(id))), "coalesced while it is taken out");
            }
            let gone: IdSet = ids.iter().map(|id| id.0).filter(|id| !there.contains(*id)).collect();
            self.sched.unreserve(&self.store, *no, &gone, self.now);
            if !there.is_empty() {
                let (after, run) = (self.rng.u64(1..2_000), self.run);
                self.at(after, Ev::Verb(Verb::Durable(queue_id, there, run)));
            }
        }
    }
}
