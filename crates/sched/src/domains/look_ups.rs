//! Look-ups: which domain is looked up next, and how many look-ups are outstanding.
//!
//! At most `resolves_max` outstanding look-ups count as fast. A look-up without an answer for `fast_silence_ms` counts
//! as slow, and the next domain in line is looked up; there are `SLOW_TIMES` as many slow places. Domains whose last
//! look-up failed have a line of their own and get slow places only: dead name servers, however many, delay no other
//! domain.
//!
//! When all slow places are taken and a domain that has not failed waits in line, the oldest look-up gives way if it is
//! at least `GIVE_WAY_MS_MIN` old. Its domain gets its retry clock, as after a time-out, and the caller drops the
//! look-up ([`Effect::ForgetLookUp`]).

use std::collections::VecDeque;

use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, Ms};

use super::{Domains, LookUp, failure};
use crate::effects::Effect;
use crate::failure::drains::Drain;
use crate::state::SchedState;
use crate::tables::Map;
use crate::timers::Timer;

/// Places of the slow share for each place of the fast share.
const SLOW_TIMES: usize = 2;
/// A look-up younger than this never gives way.
const GIVE_WAY_MS_MIN: Ms = 5_000;
/// Delay before the next check when no look-up could give way.
const AGAIN_MS: Ms = 250;

struct OutstandingLookUp {
    at: Ms,
    slow: bool,
}

#[derive(Default)]
pub struct LookUps {
    /// Waiting domains: those whose last look-up did not fail, and the others.
    fresh: VecDeque<DomainId>,
    suspects: VecDeque<DomainId>,
    /// Outstanding look-ups.
    asked: Map<DomainId, OutstandingLookUp>,
    /// Outstanding look-ups in the slow share.
    slow: usize,
    /// When each domain was looked up, by share; outdated entries are skipped.
    fast_line: VecDeque<(DomainId, Ms)>,
    slow_line: VecDeque<(DomainId, Ms)>,
    armed: bool,
}

impl LookUps {
    /// Domains that wait for a look-up.
    pub fn waiting(&self) -> usize {
        self.fresh.len() + self.suspects.len()
    }

    /// Whether any look-up is outstanding.
    pub fn are_out(&self) -> bool {
        !self.asked.is_empty()
    }

    fn wait(&mut self, domain: DomainId, is_suspect: bool) {
        if is_suspect { &mut self.suspects } else { &mut self.fresh }.push_back(domain);
    }

    /// The next domain, and whether it gets a place of the slow share.
    fn next(&mut self, resolves_max: usize) -> Option<(DomainId, bool)> {
        if self.asked.len() - self.slow < resolves_max
            && let Some(domain) = self.fresh.pop_front()
        {
            return Some((domain, false));
        }
        if self.slow >= SLOW_TIMES * resolves_max {
            return None;
        }
        self.suspects.pop_front().map(|domain| (domain, true))
    }

    fn begin(&mut self, domain: DomainId, slow: bool, now: Ms) {
        self.asked.insert(domain, OutstandingLookUp { at: now, slow });
        self.slow += usize::from(slow);
        if slow { &mut self.slow_line } else { &mut self.fast_line }.push_back((domain, now));
    }

    /// Ends a look-up: it was answered, or is no longer waited for.
    pub fn end(&mut self, domain: DomainId) {
        if let Some(asked) = self.asked.remove(&domain) {
            self.slow -= usize::from(asked.slow);
        }
    }

    /// When the oldest outstanding look-up of a share began.
    fn oldest(&mut self, slow: bool) -> Option<(DomainId, Ms)> {
        let line = if slow { &mut self.slow_line } else { &mut self.fast_line };
        while let Some((domain, at)) = line.front().copied() {
            if self.asked.get(&domain).is_some_and(|asked| asked.at == at && asked.slow == slow) {
                return Some((domain, at));
            }
            line.pop_front();
        }
        None
    }

    fn make_slow(&mut self, domain: DomainId) {
        if let Some(asked) = self.asked.get_mut(&domain) {
            asked.slow = true;
            self.slow += 1;
            self.slow_line.push_back((domain, asked.at));
        }
    }
}

impl Domains {
    pub(super) fn look_up(&mut self, state: &mut SchedState, domain: DomainId, now: Ms) {
        let entry = self.get(domain);
        entry.look_up = LookUp::Queued;
        let is_suspect = entry.fails > 0;
        self.look_ups.wait(domain, is_suspect);
        self.ask(state, now);
    }

    /// Starts as many waiting look-ups as the limits allow.
    pub fn ask(&mut self, state: &mut SchedState, now: Ms) {
        while !state.stopped
            && let Some((domain, slow)) = self.look_ups.next(state.cfg.resolves_max)
        {
            self.get(domain).look_up = LookUp::Asked;
            self.look_ups.begin(domain, slow, now);
            state.effects.push(Effect::Resolve { domain });
        }
        self.watch_look_ups(state, now);
    }

    fn watch_look_ups(&mut self, state: &mut SchedState, now: Ms) {
        let silence_ms = state.cfg.fast_silence_ms;
        let look_ups = &mut self.look_ups;
        if !look_ups.armed
            && let Some((_, at)) = look_ups.oldest(false)
        {
            look_ups.armed = true;
            let at = if at + silence_ms > now { at + silence_ms } else { now + AGAIN_MS };
            state.timers.set(at, Timer::LookUps);
        }
    }

    /// Moves look-ups that have been outstanding for too long to the slow share, and lets the oldest give way. Overdue
    /// mail of the domains that gave way has had its chance and expires.
    pub fn look_ups_due(&mut self, state: &mut SchedState, drains: &mut VecDeque<Drain>, now: Ms) {
        self.look_ups.armed = false;
        let slow_max = SLOW_TIMES * state.cfg.resolves_max;
        while let Some((domain, at)) = self.look_ups.oldest(false)
            && at + state.cfg.fast_silence_ms <= now
        {
            if self.look_ups.slow < slow_max {
                self.look_ups.make_slow(domain);
            } else if self.look_ups.fresh.is_empty() || !self.let_look_up_give_way(state, drains, now) {
                break;
            }
        }
        self.ask(state, now);
    }

    /// Makes the oldest slow look-up give way, if it may. Returns whether it did.
    fn let_look_up_give_way(&mut self, state: &mut SchedState, drains: &mut VecDeque<Drain>, now: Ms) -> bool {
        let Some((domain, _)) = self.look_ups.oldest(true).filter(|(_, at)| at + GIVE_WAY_MS_MIN <= now) else {
            return false;
        };
        self.look_ups.end(domain);
        state.effects.push(Effect::ForgetLookUp { domain });
        let text = "no answer from the name servers, and others waited".to_owned();
        drains.extend(self.failed(state, domain, &failure(Cause::Dns, Enhanced::new(4, 4, 3), text), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchedConfig;
    use crate::Scheduler;
    use stentor_queue::event::Event;
    use stentor_queue::site::Resolution;
    use stentor_queue::store::{EventEffect, Store};

    const NOW: Ms = 1_800_000_000_000;
    const PLACES: usize = 10;

    struct Names {
        store: Store,
        sched: Scheduler,
        now: Ms,
        asked: Vec<DomainId>,
        forgotten: Vec<DomainId>,
    }

    impl Names {
        fn new() -> Names {
            let cfg = SchedConfig { resolves_max: PLACES, ..SchedConfig::default() };
            let (store, sched) = (Store::new(), Scheduler::new(cfg, 1));
            Names { store, sched, now: NOW, asked: Vec::new(), forgotten: Vec::new() }
        }

        fn mail_to(&mut self, domain: &str) -> DomainId {
            let (id, _) = self.store.book.intern(&format!("ann@{domain}")).unwrap();
            let number = self.store.len() as u64 + 1;
            let accept = crate::fixture::accept(number, &[id.0]);
            let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
            self.sched.accepted(&self.store, no, self.now);
            self.note();
            self.store.book.domain(id)
        }

        fn note(&mut self) {
            for effect in self.sched.effects() {
                match effect {
                    Effect::Resolve { domain } => self.asked.push(domain),
                    Effect::ForgetLookUp { domain } => self.forgotten.push(domain),
                    other => panic!("{other:?}"),
                }
            }
        }

        fn wait(&mut self, ms: Ms) {
            let until = self.now + ms;
            while let Some(next) = self.sched.next_tick().filter(|at| *at <= until) {
                self.now = self.now.max(next);
                self.sched.tick(&self.store, self.now);
                self.note();
            }
            self.now = until;
        }

        fn fails(&mut self, domain: DomainId) {
            let failed =
                Resolution::Temporary { cause: Cause::Dns, dsn: Enhanced::new(4, 4, 3), text: "SERVFAIL".into() };
            self.sched.resolved(&self.store, domain, failed, self.now);
            self.note();
        }
    }

    /// Domains that never get an answer, however many, do not block a domain behind them.
    #[test]
    fn silent_name_servers_hold_up_nobody() {
        let mut names = Names::new();
        let dead: Vec<_> = (0..300).map(|n| names.mail_to(&format!("dead{n}.example"))).collect();
        let good = names.mail_to("good.example");
        assert_eq!(names.asked, dead[..PLACES], "no more than there are places");
        names.wait(120_000);
        assert!(names.asked.contains(&good));
        assert!(names.asked.len() > 300, "all had their turn");
        let load = names.sched.load();
        assert_eq!(load.look_ups_waiting, names.sched.domains.look_ups.suspects.len());
        let out = &names.sched.domains.look_ups;
        assert!(out.asked.len() <= PLACES * (1 + SLOW_TIMES) && out.slow <= PLACES * SLOW_TIMES);
        assert_eq!(out.asked.len() + names.forgotten.len(), names.asked.len(), "who gives way is told");
    }

    /// Domains that failed get places of the slow share only, so that the next new domain is looked up at once.
    #[test]
    fn domains_that_failed_have_a_line_of_their_own() {
        let mut names = Names::new();
        let dead: Vec<_> = (0..100).map(|n| names.mail_to(&format!("dead{n}.example"))).collect();
        for domain in &dead {
            assert!(names.asked.contains(domain));
            names.fails(*domain);
        }
        names.asked.clear();
        names.wait(70_000);
        assert_eq!(names.asked.len(), PLACES * SLOW_TIMES, "their clocks have run out, and they are asked for again");
        let good = names.mail_to("good.example");
        assert_eq!(names.asked.last(), Some(&good));
        // An answer makes room for the next suspect.
        let first = names.asked[0];
        names.fails(first);
        assert_eq!(names.asked.len(), PLACES * SLOW_TIMES + 2);
    }
}
