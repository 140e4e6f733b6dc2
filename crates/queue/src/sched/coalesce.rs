//! Digests for those who come back: where a list allows it (`coalesce_over`), the posts that wait for a straggler are
//! handed to the shell together, once its mailbox or site takes mail again.
//!
//! The recipients are reserved as for an operator's removal: [`Effect::Coalesce`] is answered with
//! [`Scheduler::removed`] (their fate is durable as coalesced, and the digest is a message of its own) or
//! [`Scheduler::unreserve`] (they go one by one), per post. A site's line is set aside while its posts are looked
//! through, in slices; more than `PAIRS_MAX` recipients of posts are not coalesced.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::flows::{FlowKey, FlowNo};
use super::{Effect, Ids, STEPS_MAX, Scheduler};
use crate::ids::{AddressId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

const PAIRS_MAX: usize = 65_536;
/// Posts in one digest; older ones first.
const POSTS_MAX: usize = 256;

/// A returned site's posts, being looked through.
pub(super) struct Job {
    site: SiteId,
    flow: FlowNo,
    class: usize,
    waiting: IdSet,
    cursor: Option<u32>,
    found: HashMap<AddressId, Vec<MessageNo>>,
    pairs: usize,
}

#[derive(Default)]
pub(super) struct Coalescing {
    pub jobs: VecDeque<Job>,
}

impl Scheduler {
    /// A site answers again: lines of lists that want it are looked through before they go.
    pub(super) fn site_returned(&mut self, site: SiteId) {
        let flows = &self.flows;
        if !flows.coalesces {
            return;
        }
        let lines = &mut self.sites.get(site).lines;
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
            self.coalescing.jobs.push_back(Job {
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

    /// Goes on with the first job.
    pub(super) fn coalesce_on(&mut self, store: &Store, now: Ms) {
        let Some(mut job) = self.coalescing.jobs.pop_front() else { return };
        let mut steps = STEPS_MAX / 2;
        while steps > 0 {
            let next = job.cursor.map_or_else(|| job.waiting.min(), |after| job.waiting.iter_from(after).next());
            let Some(next) = next.filter(|_| job.pairs <= PAIRS_MAX) else { return self.coalesce_end(store, job, now) };
            let no = MessageNo(next);
            steps -= 1;
            // What the line said is still true: the message goes back into it, and out with its recipients.
            self.sites.get(job.site).lines.insert(job.flow, job.class, no);
            if self.park(job.site, no) {
                job.cursor = Some(next);
                continue;
            }
            let mut ids = Ids::new();
            self.gather(store, job.site, no, STEPS_MAX as usize, &mut ids, &mut steps, now);
            if ids.is_empty() {
                job.cursor = Some(next);
                self.sites.get(job.site).lines.remove(job.flow, no);
                if self.messages.is_live(no) && steps == 0 {
                    // Perhaps there is more; it goes its own way.
                    self.sites.get(job.site).lines.insert(job.flow, job.class, no);
                }
                continue;
            }
            job.pairs += ids.len();
            for id in ids {
                job.found.entry(id).or_default().push(no);
            }
            // The same message once more: of another domain, or nothing.
        }
        self.coalescing.jobs.push_front(job);
    }

    fn coalesce_end(&mut self, store: &Store, job: Job, now: Ms) {
        let over = self.flows.get(job.flow).rules.coalesce_over.unwrap_or(u32::MAX) as usize;
        let rest = job.cursor.map_or_else(|| job.waiting.iter(), |after| job.waiting.iter_from(after));
        for no in rest {
            self.sites.get(job.site).lines.insert(job.flow, job.class, MessageNo(no));
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
                self.reserve(*no, &ids.iter().map(|id| id.0).collect());
                for id in &ids {
                    self.requeue(store, *no, *id, now);
                }
            }
            self.ask_for_digest(job.flow, posts, ids);
        }
        self.sites.mark_dirty(job.site);
    }

    /// A mailbox takes mail again: the list's posts that waited for it, if they are many.
    pub(super) fn mailbox_returned(&mut self, id: AddressId, waiters: &IdSet) {
        if !self.flows.coalesces {
            return;
        }
        let mut by_flow: BTreeMap<FlowNo, Vec<MessageNo>> = BTreeMap::new();
        for no in waiters {
            let no = MessageNo(no);
            if let Some(flow) = self.messages.flow(no)
                && !self.messages.is_parked(no)
                && self.removable(no, &IdSet::one(id.0)).0.contains(id.0)
            {
                by_flow.entry(flow).or_default().push(no);
            }
        }
        for (flow, posts) in by_flow {
            let over = self.flows.get(flow).rules.coalesce_over.unwrap_or(u32::MAX) as usize;
            if posts.len() > over && posts.len() <= POSTS_MAX {
                for no in &posts {
                    self.reserve(*no, &IdSet::one(id.0));
                }
                self.ask_for_digest(flow, posts, vec![id]);
            }
        }
    }

    fn ask_for_digest(&mut self, flow: FlowNo, posts: Vec<MessageNo>, ids: Vec<AddressId>) {
        let list = match &self.flows.get(flow).key {
            Some(FlowKey::List(list)) => list.clone(),
            _ => "".into(),
        };
        self.effects.push(Effect::Coalesce { list, posts, ids });
    }
}
