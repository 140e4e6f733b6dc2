//! Where ready recipients wait.
//!
//! There are two levels. A domain knows its waiting messages (`bulk`: not looked at; `explicit`: with a list of ready
//! recipients in `lists`). A site knows the waiting messages of all its domains (`Site::lines`). For sites of several
//! domains, `at_sites` holds the domains at which a message waits there, four bytes each.

use std::collections::VecDeque;

use smallvec::SmallVec;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::STEPS_MAX;
use crate::flows::lines::oldest;
use crate::messages::Active;
use crate::sites::Sites;
use crate::state::SchedState;
use crate::tables::Parts;

/// Held or finished messages that are removed from the front of a site's line before the site is put off until later.
const FRONT_MAX: u32 = 8;
/// Above this many on the smaller side, a message's recipients at a domain are found by bitmap arithmetic.
const LISTED_MAX: usize = 2_048;

/// The ready recipients of one message at one domain.
#[derive(Default)]
pub struct ReadyList {
    pub ids: SmallVec<[AddressId; 4]>,
    pub rest: Option<Box<Remainder>>,
}

/// Many recipients of one message at one domain, handed out in order.
pub struct Remainder {
    set: IdSet,
    cursor: Option<u32>,
}

impl ReadyList {
    pub fn pop(&mut self) -> Option<AddressId> {
        if let Some(id) = self.ids.pop() {
            return Some(id);
        }
        let rest = self.rest.as_mut()?;
        let next = rest.cursor.map_or_else(|| rest.set.min(), |after| rest.set.iter_from(after).next());
        match next {
            Some(id) => rest.cursor = Some(id),
            None => self.rest = None,
        }
        next.map(AddressId)
    }

    /// How many recipients are left and still among `pending`.
    pub fn len_of(&self, pending: &IdSet) -> usize {
        let listed = self.ids.iter().filter(|id| pending.contains(id.0)).count();
        let rest = self.rest.as_ref().map_or(0, |rest| match rest.cursor {
            None => rest.set.intersection_len(pending),
            Some(after) => rest.set.intersection(pending).iter_from(after).count(),
        });
        listed + rest
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
            && self
                .rest
                .as_ref()
                .is_none_or(|r| r.cursor.is_some_and(|after| r.set.max().is_none_or(|max| max <= after)))
    }
}

/// Domains at which one message waits, for a site of many domains. A domain may be repeated or outdated.
pub type WaitingDomains = SmallVec<[DomainId; 4]>;

#[derive(Default)]
pub struct Waits {
    pub lists: Parts<(DomainId, MessageNo), ReadyList>,
    pub at_sites: Parts<(SiteId, MessageNo), WaitingDomains>,
    /// Domains that still know a finished message; the next ticks make them forget it.
    pub traces: VecDeque<(DomainId, MessageNo)>,
    /// Whether some messages have ended that may still be in lines.
    pub removals: bool,
    /// Recipients that were found no longer pending: the scheduler ends their clocks.
    pub gone: Vec<(MessageNo, AddressId)>,
}

impl Waits {
    /// Removes held and finished messages from the front of a site's line, so that no connection is opened for them.
    /// `false`: there may be more, and the site is looked at again.
    pub fn clear_front(&mut self, state: &mut SchedState, site: SiteId) -> bool {
        if state.messages.held == 0 && !self.removals {
            return true;
        }
        for _ in 0..FRONT_MAX {
            let mut is_clear = true;
            let mut fronts: SmallVec<[MessageNo; 4]> = SmallVec::new();
            let lines = &state.sites.get(site).lines.list;
            fronts.extend(lines.iter().filter_map(|line| oldest(&line.waiting, state.newest)));
            for no in fronts {
                if !state.messages.is_live(no) {
                    self.remove_gone_at(&mut state.sites, site, no);
                    is_clear = false;
                } else if state.keep_if_held(site, no) {
                    is_clear = false;
                }
            }
            if is_clear {
                return true;
            }
        }
        state.sites.mark_dirty(site);
        false
    }

    /// Removes a finished message from a site's line; the next ticks forget what its domains know of it.
    pub fn remove_gone_at(&mut self, sites: &mut Sites, site: SiteId, no: MessageNo) {
        let entry = sites.get(site);
        entry.lines.remove_gone(no);
        if entry.domains.len() == 1
            && let Some(only) = entry.domains.min()
        {
            self.traces.push_back((DomainId(only), no));
        }
        for domain in self.at_sites.remove(&(site, no)).unwrap_or_default() {
            self.traces.push_back((domain, no));
        }
    }
}

/// The recipients of a message at a domain that nobody has looked at.
pub fn touch(active: &mut Active, domain: DomainId, store: &Store, pending: &IdSet, steps: &mut u32) -> ReadyList {
    if let Some(activation) = active.extra.as_mut().and_then(|extra| extra.activation.as_mut()) {
        activation.touched.insert(domain.0);
    }
    let here = store.book.addresses_of(domain);
    let mut list = ReadyList::default();
    let smaller = here.len().min(pending.len());
    if smaller > LISTED_MAX {
        list.rest = Some(Box::new(Remainder { set: pending.intersection(here), cursor: None }));
        *steps = steps.saturating_sub(STEPS_MAX / 8);
        return list;
    }
    *steps = steps.saturating_sub(smaller as u32 / 2);
    if here.len() <= pending.len() {
        list.ids.extend(here.iter().filter(|id| pending.contains(*id)).map(AddressId));
    } else {
        list.ids.extend(pending.iter().filter(|id| here.contains(*id)).map(AddressId));
    }
    list
}
