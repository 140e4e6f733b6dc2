//! Work done over time, in slices: expired clocks, large messages to link to their domains, domains to link to their
//! sites, failing domains, mail that gets its own flow, flushes, and sites to look at again.

use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::store::Store;

use super::notices::Notices;
use super::state::SchedState;
use super::timers::Timer;
use super::{DIRTY_MAX, STEPS_MAX, Scheduler};
use crate::failure::drains::{Drain, DrainWhat};
use crate::failure::mailboxes::MailboxTurn;
use crate::failure::reports;

/// Timers fired per tick.
const TIMERS_MAX: u32 = 1_024;

impl Scheduler {
    /// Does one slice of the work that is due. Call it at [`Scheduler::next_tick`], and again while that says 0.
    pub fn tick(&mut self, store: &Store, now: Ms) {
        let now = self.steady(now);
        for _ in 0..TIMERS_MAX {
            let Some(timer) = self.state.timers.pop(now) else { break };
            self.fire(store, timer, now);
        }
        if self.state.stopped {
            return;
        }
        self.relink(store, STEPS_MAX / 2, now);
        self.domains.refresh_on(&mut self.state, STEPS_MAX / 4, now);
        let mut steps = STEPS_MAX;
        while steps > 0
            && let Some(no) = self.activating.front().copied()
        {
            steps = self.activate(store, no, steps, now);
        }
        self.drain(store, STEPS_MAX / 4, now);
        self.regroup_on(store, STEPS_MAX / 4, now);
        self.flush_on(store, now);
        self.queue_run_on(store, now);
        self.resume_on(now);
        self.coalesce_on(store, now);
        self.holds_on(store, STEPS_MAX / 2, now);
        self.look_at_dirty(DIRTY_MAX, now);
        self.serve_line(now);
    }

    /// When [`Scheduler::tick`] has work to do: 0 is at once; `None` is never, unless something changes.
    pub fn next_tick(&self) -> Option<Ms> {
        let at_once = !self.activating.is_empty()
            || !self.state.sites.refreshes.is_empty()
            || !self.state.sites.dirty.is_empty()
            || self.has_jobs()
            || self.operator.is_resuming()
            || self.operator.regrouping.is_due()
            || self.is_queue_run_due()
            || !self.coalescing.jobs.is_empty();
        if at_once && !self.state.stopped {
            return Some(0);
        }
        self.state.timers.next().map(|at| if at == 0 { 0 } else { self.state.time.wall(at) })
    }

    /// Whether there are jobs that may name any site or domain. Jobs are short-lived, so their contents need not be
    /// checked.
    fn has_jobs(&self) -> bool {
        self.has_domain_jobs() || self.operator.has_flushes()
    }

    pub(super) fn has_domain_jobs(&self) -> bool {
        let is_moving = !self.domains.relinks.is_empty() || !self.failure.drains.is_empty();
        is_moving || self.operator.has_holds() || !self.waits.traces.is_empty()
    }

    pub(super) fn look_at_dirty(&mut self, sites_max: u32, now: Ms) {
        for _ in 0..sites_max {
            let Some(site) = self.state.sites.dirty.pop_front() else { return };
            self.state.sites.get(site).dirty = false;
            self.consider(site, now);
        }
    }

    fn fire(&mut self, store: &Store, timer: Timer, now: Ms) {
        let state = &mut self.state;
        match timer {
            Timer::Domain(domain) => self.domains.due(state, domain, now),
            Timer::LookUps => self.domains.look_ups_due(state, &mut self.failure.drains, now),
            Timer::Site(site) => {
                let entry = state.sites.get(site);
                if entry.timer_at <= now {
                    entry.timer_at = 0;
                }
                self.consider(site, now);
            }
            Timer::Vacant(site) => {
                let is_busy = self.has_jobs() || !self.state.sites.refreshes.is_empty();
                self.state.sites.vacant_due(&mut self.state.timers, site, is_busy, now);
            }
            Timer::VacantHost(host) => {
                let retry_max_ms = state.cfg.host_retry.max_ms;
                state.sites.vacant_host_due(&mut state.timers, host, retry_max_ms, now);
            }
            Timer::Deferral(slot) => self.failure.deferrals.due(state, slot, now),
            Timer::Mailbox(id) => {
                let is_kept = |state: &SchedState, no| self.domains.keeps(state, store, no, id);
                for no in self.failure.mailboxes.due(&MailboxTurn { state, id, is_kept, now }) {
                    self.make_ready(store, no, id, now);
                }
            }
            Timer::Recipient(no, id) => {
                if self.failure.recipients.due(state, no, id, now) {
                    self.make_ready(store, no, id, now);
                }
            }
            Timer::Conn(slot) => {
                if self.connections(now).due(slot) {
                    self.serve_line(now);
                }
            }
            Timer::Bounce(no) => reports::due(state, no),
            Timer::QueueRun => self.operator.look_at_run = true,
            Timer::Warnings => self.notices.warnings_due(state, store, now),
            Timer::Warn(no) => Notices::warn(state, no),
            Timer::Stragglers(no) => Notices::stragglers_due(state, store, no, now),
        }
    }

    /// Links messages that wait at domains to their sites, at most `steps` of them.
    pub(super) fn relink(&mut self, store: &Store, mut steps: u32, now: Ms) {
        let mut last = None;
        while steps > 0
            && let Some((domain, site, no)) = self.domains.next_to_relink(&mut self.state.sites)
        {
            steps -= 1;
            last = Some(site);
            if let Some(class) = self.state.messages.class(no) {
                let passes = self.state.may_pass(no);
                let mut choice = self.choice(store, now);
                if !choice.bounce_at(domain, no) {
                    choice.wait_at(site, domain, no, class, passes);
                }
            } else {
                // An operator took the recipients here out, and the message ended before the answer came.
                self.waits.traces.push_back((domain, no));
            }
        }
        if let Some(site) = last.filter(|_| steps == 0) {
            self.state.sites.mark_dirty(site);
        }
    }

    /// Links the next slice of a large message to its domains.
    fn activate(&mut self, store: &Store, no: MessageNo, mut steps: u32, now: Ms) -> u32 {
        let class = self.state.messages.class(no);
        let active = self.state.messages.get_mut(no);
        let activation = active.and_then(|active| active.extra.as_mut()).and_then(|extra| extra.activation.take());
        let (Some(class), Some(mut activation), Some(message)) = (class, activation, store.message(no)) else {
            self.activating.pop_front();
            return steps;
        };
        let pending = message.pending();
        let mut ids = activation.cursor.map_or_else(|| pending.iter(), |after| pending.iter_from(after));
        let mut last = None;
        let mut done = false;
        while steps > 0 {
            let Some(id) = ids.next() else {
                done = true;
                break;
            };
            activation.cursor = Some(id);
            steps -= 1;
            let domain = store.book.domain(AddressId(id));
            if last == Some(domain) || activation.touched.contains(domain.0) {
                continue;
            }
            last = Some(domain);
            if self.domains.get(domain).bulk.insert(no.0) {
                let passes = self.state.may_pass(no);
                self.link(store, domain, no, class, passes, now);
                steps = steps.saturating_sub(1);
            }
        }
        if done {
            self.activating.pop_front();
        } else if let Some(active) = self.state.messages.get_mut(no) {
            active.extra.get_or_insert_default().activation = Some(activation);
        }
        steps
    }

    /// Continues with drains for at most `steps`.
    fn drain(&mut self, store: &Store, mut steps: u32, now: Ms) {
        while steps > 0
            && let Some(mut drain) = self.failure.drains.pop_front()
        {
            while let Some((no, ids)) = self.choice(store, now).next_of(&mut drain, &mut steps) {
                self.end_clocks_of_gone(store, now);
                self.fail_all(store, no, &ids, &drain, now);
            }
            self.end_clocks_of_gone(store, now);
            if steps == 0 {
                self.failure.drains.push_front(drain);
            } else if let DrainWhat::Domain(domain) = drain.what {
                self.domains.retry_for_kept(&mut self.state, domain, now);
            }
        }
    }

    /// Fails recipients that were taken out of their waiting places.
    fn fail_all(&mut self, store: &Store, no: MessageNo, ids: &[AddressId], drain: &Drain, now: Ms) {
        if let DrainWhat::Waiting(..) = drain.what {
            self.state.bounces.recipients += ids.len() as u64;
        }
        for id in ids {
            self.state.no_longer_in_flight(no, *id);
            self.fail(store, no, *id, drain.expired_only, &drain.reply, now);
        }
        if !ids.is_empty() {
            reports::report_if_last(&mut self.state, store, no);
        }
    }
}
