//! Recipients that will not be tried again, on their way into a report.
//!
//! They stay pending in the store until the report and the outcome are durable as one batch; until then their ids are
//! kept here so that nothing hands them out. Failures of a message are gathered for `bounce_gather_ms`, or until
//! nothing else of it is on its way, and reported as one. Whole domains and sites fail in slices, as drains.

use super::reasons::Reply;
use super::timers::Timer;
use super::{Active, Dsn, Effect, Failure, Ids, STEPS_MAX, Scheduler, SourceNo};
use crate::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

/// Delivery time expired (RFC 3463 3.5).
const EXPIRED: Dsn = Dsn::new(4, 4, 7);
/// Other undefined permanent failure (RFC 3463 3.1).
const FAILED: Dsn = Dsn::new(5, 0, 0);

#[derive(Default)]
pub(super) struct Failing {
    /// To be reported, and not yet reported.
    list: Vec<Failure>,
    /// Those and the ones being journalled.
    ids: IdSet,
    /// Whether the gathering has its timer.
    timed: bool,
}

pub(super) enum DrainWhat {
    Domain(DomainId),
    /// What goes from this source.
    Site(SiteId, SourceNo),
    /// What waits of a message there.
    Message(SiteId, MessageNo),
}

/// A domain or a site whose waiting recipients fail, or a message's at a site: all of them, or those over their lifetime.
pub(super) struct Drain {
    pub what: DrainWhat,
    pub expired_only: bool,
    pub reply: Reply,
}

impl Failing {
    pub fn is_idle(&self) -> bool {
        self.ids.is_empty() && self.list.is_empty() && !self.timed
    }

    pub fn ids(&self) -> &IdSet {
        &self.ids
    }
}

impl Active {
    pub fn is_failing(&self, id: AddressId) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.failing.ids.contains(id.0))
    }
}

impl Scheduler {
    pub(super) fn is_over_age(&self, store: &Store, no: MessageNo, now: Ms) -> bool {
        let Some(message) = store.message(no).filter(|_| self.messages.is_live(no)) else { return false };
        let lifetime_ms = self.lifetime_ms(no);
        self.time.is_over_age(message.accepted(), lifetime_ms, now) && !self.messages.is_parked(no)
    }

    /// The transaction is over for it; whether it was in one.
    pub(super) fn no_longer_in_flight(&mut self, no: MessageNo, id: AddressId) -> bool {
        let was_there = self.messages.get_mut(no).is_some_and(|active| active.in_flight.remove(id.0));
        if was_there {
            self.messages.rest(no);
        }
        was_there
    }

    /// How long a message's recipients are retried.
    pub(super) fn lifetime_ms(&self, no: MessageNo) -> Ms {
        let own = self.messages.flow(no).and_then(|flow| self.flows.get(flow).rules.lifetime_ms);
        let class = self.cfg.bulk_lifetime_ms.filter(|_| self.messages.is_bulk(no));
        own.or(class).unwrap_or(self.cfg.lifetime_ms)
    }

    /// Whether messages may get too old in another order than they came in.
    pub(super) fn lifetimes_differ(&self) -> bool {
        self.flows.lifetimes || self.cfg.bulk_lifetime_ms.is_some()
    }

    /// The recipient is not tried again. `expired`: the last failure was temporary and its lifetime is over.
    pub(super) fn fail(&mut self, store: &Store, no: MessageNo, id: AddressId, expired: bool, reply: &Reply, now: Ms) {
        self.settle(store, no, id, now);
        if !store.message(no).is_some_and(|m| m.pending().contains(id.0)) {
            return;
        }
        let Some(active) = self.messages.begin(no) else { return };
        if active.meets_reservation(id) {
            return;
        }
        let failing = &mut active.extra.get_or_insert_default().failing;
        if !failing.ids.insert(id.0) {
            return;
        }
        let dsn = reply.dsn.unwrap_or(if expired { EXPIRED } else { FAILED });
        failing.list.push(Failure {
            id,
            expired,
            dsn: Dsn { class: if expired { 4 } else { 5 }, ..dsn },
            code: reply.code,
            text: reply.text.clone(),
            host: reply.host.clone(),
        });
        if !failing.timed {
            failing.timed = true;
            self.timers.set(now + self.cfg.bounce_gather_ms, Timer::Bounce(no));
        }
    }

    /// Reports a message's failures if nothing else of it is on its way.
    pub(super) fn report_if_last(&mut self, store: &Store, no: MessageNo) {
        let Some(active) = self.messages.get(no) else { return };
        let Some(extra) = active.extra.as_ref().filter(|extra| !extra.failing.list.is_empty()) else { return };
        let all = store.message(no).is_some_and(|m| m.pending().len() == extra.failing.ids.len());
        if all && active.in_flight.is_empty() {
            self.report(no);
        }
    }

    /// The time of gathering is over.
    pub(super) fn report_due(&mut self, no: MessageNo) {
        if let Some(extra) = self.messages.get_mut(no).and_then(|m| m.extra.as_mut()) {
            extra.failing.timed = false;
            self.report(no);
        }
    }

    fn report(&mut self, no: MessageNo) {
        let Some(extra) = self.messages.get_mut(no).and_then(|m| m.extra.as_mut()) else { return };
        let mut list = std::mem::take(&mut extra.failing.list);
        while !list.is_empty() {
            let rest = list.split_off(self.cfg.bounce_failures_max.min(list.len()));
            self.effects.push(Effect::Bounce { no, failures: std::mem::replace(&mut list, rest) });
        }
    }

    /// Report and outcomes are durable and applied to the store.
    pub fn bounced(&mut self, no: MessageNo, ids: &[AddressId]) {
        if let Some(extra) = self.messages.get_mut(no).and_then(|m| m.extra.as_mut()) {
            for id in ids {
                extra.failing.ids.remove(id.0);
            }
        }
    }

    /// The journal took no report (full, failed): the failures are reported again after the time of gathering.
    pub fn bounce_refused(&mut self, no: MessageNo, failures: Vec<Failure>, now: Ms) {
        let now = self.steady(now);
        let Some(active) = self.messages.begin(no) else { return };
        let failing = &mut active.extra.get_or_insert_default().failing;
        failing.list.extend(failures);
        if !failing.timed {
            failing.timed = true;
            self.timers.set(now + self.cfg.bounce_gather_ms.max(1), Timer::Bounce(no));
        }
    }

    /// Goes on with drains for at most `steps`.
    pub(super) fn drain(&mut self, store: &Store, mut steps: u32, now: Ms) {
        while steps > 0
            && let Some(drain) = self.drains.pop_front()
        {
            let done = match drain.what {
                DrainWhat::Domain(domain) => self.drain_domain(store, domain, &drain, &mut steps, now),
                DrainWhat::Site(site, source) => self.drain_site(store, site, source, &drain, &mut steps, now),
                DrainWhat::Message(site, no) => self.drain_message(store, site, no, &drain, &mut steps, now),
            };
            if !done {
                self.drains.push_front(drain);
                return;
            }
        }
    }

    fn drain_domain(&mut self, store: &Store, domain: DomainId, drain: &Drain, steps: &mut u32, now: Ms) -> bool {
        while *steps > 0 {
            *steps -= 1;
            let Some(mut no) = self.oldest_at_domain(domain) else { return true };
            let is_young = |no| self.messages.is_live(no) && !self.is_over_age(store, no, now);
            if drain.expired_only && is_young(no) && self.lifetimes_differ() {
                let entry = self.domains.get(domain);
                let all: Vec<u32> = entry.bulk.iter().chain(&entry.explicit).take(STEPS_MAX as usize).collect();
                *steps = steps.saturating_sub(all.len() as u32 / 8);
                let is_young = |no| self.messages.is_live(no) && !self.is_over_age(store, no, now);
                let Some(old) = all.into_iter().find(|no| !is_young(MessageNo(*no))) else {
                    return true;
                };
                no = MessageNo(old);
            }
            if self.park_at_domain(domain, no) {
                continue;
            }
            if drain.expired_only && self.messages.is_live(no) && !self.is_over_age(store, no, now) {
                return true;
            }
            let mut ids = Ids::new();
            self.take(store, domain, no, STEPS_MAX as usize, &mut ids, steps, now);
            self.fail_all(store, no, &ids, drain, now);
        }
        false
    }

    fn drain_site(
        &mut self,
        store: &Store,
        site: SiteId,
        source: SourceNo,
        drain: &Drain,
        steps: &mut u32,
        now: Ms,
    ) -> bool {
        // From the back: a line that becomes empty may be taken out.
        for at in (0..self.sites.get(site).lines.list.len()).rev() {
            while let Some(line) = self.sites.get(site).lines.list.get(at)
                && self.flows.get(line.flow).rules.sources.has(source)
                && let Some(no) = super::lines::oldest(&line.waiting, self.newest)
            {
                if *steps == 0 {
                    return false;
                }
                *steps -= 1;
                if self.park(site, no) {
                    continue;
                }
                if drain.expired_only && self.messages.is_live(no) && !self.is_over_age(store, no, now) {
                    break;
                }
                let mut ids = Ids::new();
                self.gather(store, site, no, STEPS_MAX as usize, &mut ids, steps, now);
                self.fail_all(store, no, &ids, drain, now);
            }
        }
        true
    }

    fn drain_message(
        &mut self,
        store: &Store,
        site: SiteId,
        no: MessageNo,
        drain: &Drain,
        steps: &mut u32,
        now: Ms,
    ) -> bool {
        while *steps > 0 {
            *steps -= 1;
            let mut ids = Ids::new();
            if self.is_over_age(store, no, now) {
                self.gather(store, site, no, STEPS_MAX as usize, &mut ids, steps, now);
            }
            if ids.is_empty() && *steps > 0 {
                return true;
            }
            self.fail_all(store, no, &ids, drain, now);
        }
        false
    }

    /// Fails recipients that `take` or `gather` has marked as in flight.
    fn fail_all(&mut self, store: &Store, no: MessageNo, ids: &[AddressId], drain: &Drain, now: Ms) {
        for id in ids {
            self.no_longer_in_flight(no, *id);
            self.fail(store, no, *id, drain.expired_only, &drain.reply, now);
        }
        if !ids.is_empty() {
            self.report_if_last(store, no);
        }
    }
}
