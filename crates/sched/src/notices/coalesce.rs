//! Digests: if a list allows it (`coalesce_over`), posts that wait for one recipient are handed to the caller together
//! once the mailbox or site takes mail again.
//!
//! The recipients are reserved as for a removal: the caller answers [`Effect::Coalesce`] with [`Scheduler::removed`]
//! (their fate is durable as coalesced, and the digest is a message of its own) or [`Scheduler::unreserve`] (they go
//! one by one), per post. While a site's posts are examined, in slices, their line is set aside. Recipients beyond
//! `PAIRS_MAX` (recipient, post) pairs are not coalesced.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stentor_queue::ids::{AddressId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::choice::TakenRecipients;
use crate::effects::Effect;
use crate::flows::{FlowKey, FlowNo};
use crate::state::SchedState;
use crate::{STEPS_MAX, Scheduler};

const PAIRS_MAX: usize = 65_536;
/// Posts in one digest; older ones first.
const POSTS_MAX: usize = 256;

/// A search through the posts that wait at a site that takes mail again.
pub struct CoalesceSearch {
    site: SiteId,
    flow: FlowNo,
    class: usize,
    waiting: IdSet,
    cursor: Option<u32>,
    found: HashMap<AddressId, Vec<MessageNo>>,
    pairs: usize,
}

#[derive(Default)]
pub struct Coalescing {
    pub jobs: VecDeque<CoalesceSearch>,
}

impl Coalescing {
    /// Called when a site answers again: lines of lists that allow digests are searched before they go.
    pub fn site_returned(&mut self, state: &mut SchedState, site: SiteId) {
        let flows = &state.flows;
        if !flows.coalesces {
            return;
        }
        let lines = &mut state.sites.get(site).lines;
        let over = |flow: FlowNo, len: usize| {
            flows.get(flow).rules.coalesce_over.is_some_and(|k| len > k as usize && len <= PAIRS_MAX)
        };
        let chosen: Vec<(FlowNo, usize)> = lines
            .list
            .iter()
            .filter(|line| over(line.flow, line.waiting.len()))
            .map(|line| (line.flow, line.class))
            .collect();
        for (flow, class) in chosen {
            let waiting = lines.take(flow);
            self.jobs.push_back(CoalesceSearch {
                site,
                flow,
                class,
                waiting,
                cursor: None,
                found: HashMap::new(),
                pairs: 0,
            });
        }
    }
}

impl Scheduler {
    /// Called when a mailbox takes mail again: coalesces the list's posts that waited for it, if there are many.
    pub(crate) fn mailbox_returned(&mut self, id: AddressId, waiters: &IdSet) {
        let state = &mut self.state;
        if !state.flows.coalesces {
            return;
        }
        let mut by_flow: BTreeMap<FlowNo, Vec<MessageNo>> = BTreeMap::new();
        for no in waiters {
            let no = MessageNo(no);
            if let Some(flow) = state.messages.flow(no)
                && !state.messages.is_held(no)
                && state.messages.removable(no, &IdSet::one(id.0)).0.contains(id.0)
            {
                by_flow.entry(flow).or_default().push(no);
            }
        }
        for (flow, posts) in by_flow {
            let over = state.flows.get(flow).rules.coalesce_over.unwrap_or(u32::MAX) as usize;
            if posts.len() > over && posts.len() <= POSTS_MAX {
                for no in &posts {
                    state.messages.reserve(*no, &IdSet::one(id.0));
                }
                ask_for_digest(state, flow, posts, vec![id]);
            }
        }
    }

    /// Continues with the first job.
    pub(crate) fn coalesce_on(&mut self, store: &Store, now: Ms) {
        let Some(mut job) = self.coalescing.jobs.pop_front() else { return };
        let mut steps = STEPS_MAX / 2;
        while steps > 0 {
            let next = job.cursor.map_or_else(|| job.waiting.min(), |after| job.waiting.iter_from(after).next());
            let Some(next) = next.filter(|_| job.pairs <= PAIRS_MAX) else { return self.coalesce_end(store, job, now) };
            let no = MessageNo(next);
            steps -= 1;
            // The message is still in line: it goes back in, and leaves it with its recipients.
            self.state.sites.get(job.site).lines.insert(job.flow, job.class, no);
            if self.choice(store, now).is_stopped(job.site, no) {
                job.cursor = Some(next);
                continue;
            }
            let mut taken = TakenRecipients::up_to(STEPS_MAX as usize, &mut steps);
            self.choice(store, now).gather(job.site, no, &mut taken);
            self.end_clocks_of_gone(store, now);
            let ids = taken.ids;
            if ids.is_empty() {
                job.cursor = Some(next);
                self.state.sites.get(job.site).lines.remove(job.flow, no);
                if self.state.messages.is_live(no) && steps == 0 {
                    // There may be more recipients; they go one by one.
                    self.state.sites.get(job.site).lines.insert(job.flow, job.class, no);
                }
                continue;
            }
            job.pairs += ids.len();
            for id in ids {
                job.found.entry(id).or_default().push(no);
            }
            // The same message again: recipients of another domain, or none.
        }
        self.coalescing.jobs.push_front(job);
    }

    fn coalesce_end(&mut self, store: &Store, job: CoalesceSearch, now: Ms) {
        let over = self.state.flows.get(job.flow).rules.coalesce_over.unwrap_or(u32::MAX) as usize;
        let rest = job.cursor.map_or_else(|| job.waiting.iter(), |after| job.waiting.iter_from(after));
        for no in rest {
            self.state.sites.get(job.site).lines.insert(job.flow, job.class, MessageNo(no));
        }
        let mut groups: BTreeMap<Vec<MessageNo>, Vec<AddressId>> = BTreeMap::new();
        for (id, posts) in job.found {
            if posts.len() > over && posts.len() <= POSTS_MAX {
                groups.entry(posts).or_default().push(id);
            } else {
                for no in posts {
                    self.requeue(store, no, id, now);
                }
            }
        }
        for (posts, mut ids) in groups {
            ids.sort_unstable();
            for no in &posts {
                self.state.messages.reserve(*no, &ids.iter().map(|id| id.0).collect());
                for id in &ids {
                    self.requeue(store, *no, *id, now);
                }
            }
            ask_for_digest(&mut self.state, job.flow, posts, ids);
        }
        self.state.sites.mark_dirty(job.site);
    }
}

fn ask_for_digest(state: &mut SchedState, flow: FlowNo, posts: Vec<MessageNo>, ids: Vec<AddressId>) {
    let list = match &state.flows.get(flow).key {
        Some(FlowKey::List(list)) => list.clone(),
        _ => "".into(),
    };
    state.effects.push(Effect::Coalesce { list, posts, ids });
}
