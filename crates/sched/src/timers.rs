//! Timers: a calendar of slots, each with a list of the timers that fire then.
//!
//! A million recipients with retry clocks cost 16 bytes each here, one ordered-map step per new slot and no scan. A
//! timer is never withdrawn: when it fires, the owner compares it with the clock's own `until` and ignores it if it is
//! outdated. A timer never fires early, and at most `SLOT_MS` late.

use std::collections::BTreeMap;

use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};

/// The grain of the calendar.
const SLOT_MS: Ms = 64;

/// The object that a timer wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    Domain(DomainId),
    /// Look-ups may have been outstanding for too long.
    LookUps,
    Site(SiteId),
    /// A site, or a host, that may be vacant.
    Vacant(SiteId),
    VacantHost(u32),
    /// A message or a sender's domain at a site: the slot of the deferral.
    Deferral(u32),
    Mailbox(AddressId),
    Recipient(MessageNo, AddressId),
    /// The slot of a connection that may be idle or silent for too long.
    Conn(u32),
    Bounce(MessageNo),
    /// Messages may have become old enough for a warning.
    Warnings,
    Warn(MessageNo),
    /// A run of the queue may be over.
    QueueRun,
    Stragglers(MessageNo),
}

#[derive(Default)]
pub(crate) struct Timers {
    slots: BTreeMap<u64, Vec<Timer>>,
    /// Timers taken from the calendar and not yet returned.
    due: Vec<Timer>,
    /// The earliest slot, so that the common "nothing is due" costs one comparison.
    first: Option<u64>,
}

impl Timers {
    /// Makes `timer` fire between `at` and `SLOT_MS` after it.
    pub fn set(&mut self, at: Ms, timer: Timer) {
        let slot = at.div_ceil(SLOT_MS);
        self.slots.entry(slot).or_default().push(timer);
        self.first = Some(self.first.map_or(slot, |f| f.min(slot)));
    }

    /// The next timer that is due.
    pub fn pop(&mut self, now: Ms) -> Option<Timer> {
        loop {
            if let Some(timer) = self.due.pop() {
                return Some(timer);
            }
            if self.first? * SLOT_MS > now {
                return None;
            }
            let (_, list) = self.slots.pop_first()?;
            self.due = list;
            self.first = self.slots.keys().next().copied();
        }
    }

    /// When `pop` will next return a timer; 0 if it does now.
    pub fn next(&self) -> Option<Ms> {
        if self.due.is_empty() { self.first.map(|slot| slot * SLOT_MS) } else { Some(0) }
    }

    /// Fires the timers in the first slot at or after `from` early for which `chosen` returns true. Returns the slot to
    /// continue from, `None` at the end. A flush calls it in steps.
    pub fn hasten(&mut self, from: u64, mut chosen: impl FnMut(Timer) -> bool) -> Option<u64> {
        let (slot, list) = self.slots.range_mut(from..).next()?;
        let due = &mut self.due;
        list.retain(|timer| {
            let hasten = chosen(*timer);
            if hasten {
                due.push(*timer);
            }
            !hasten
        });
        Some(slot + 1)
    }

    pub fn len(&self) -> usize {
        self.due.len() + self.slots.values().map(Vec::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_order_never_early_and_each_once() {
        let mut timers = Timers::default();
        let mut rng = fastrand::Rng::with_seed(7);
        let mut expected: Vec<(Ms, u32)> = (0..1_000).map(|i| (rng.u64(1..100_000), i)).collect();
        for (at, i) in &expected {
            timers.set(*at, Timer::Deferral(*i));
        }
        let mut now = 0;
        let mut fired = Vec::new();
        while let Some(next) = timers.next() {
            now = next.max(now);
            while let Some(timer) = timers.pop(now) {
                let Timer::Deferral(i) = timer else { unreachable!() };
                let at = expected.iter().find(|e| e.1 == i).map(|e| e.0).unwrap();
                assert!(at <= now && now < at + SLOT_MS, "set for {at}, fired at {now}");
                fired.push(i);
            }
        }
        fired.sort_unstable();
        expected.sort_by_key(|e| e.1);
        assert_eq!(fired, expected.iter().map(|e| e.1).collect::<Vec<_>>());
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn hastened_timers_are_due_at_once_and_only_they() {
        let mut timers = Timers::default();
        timers.set(1_000_000, Timer::Deferral(1));
        timers.set(1_000_000, Timer::Deferral(2));
        timers.set(9_000_000, Timer::Deferral(2));
        assert_eq!(timers.pop(10), None);
        let mut from = Some(0);
        while let Some(slot) = from {
            from = timers.hasten(slot, |t| t == Timer::Deferral(2));
        }
        assert_eq!(timers.next(), Some(0));
        assert_eq!(
            (timers.pop(10), timers.pop(10), timers.pop(10)),
            (Some(Timer::Deferral(2)), Some(Timer::Deferral(2)), None)
        );
        assert_eq!(timers.len(), 1);
    }
}
