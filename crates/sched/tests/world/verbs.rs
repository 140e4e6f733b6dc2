//! The operator of a world: holds, releases, "try now", and removals that become durable after a while or are refused.

use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{AddressId, MessageId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_queue::standing_bounces::StandingBounce;
use stentor_sched::{FlowKey, Work};

use super::{End, Ev, HOUR, World, rules};

/// The reason of standing bounces here.
pub const BOUNCE_REASON: &str = "bounced for a time";

pub enum Verb {
    Hold,
    Release(Vec<MessageId>),
    Remove,
    /// A removal's batch is durable or refused; one of an earlier run never became durable.
    Durable(MessageId, IdSet, u64),
    /// Recipients that were in a transaction when they were removed.
    Later(MessageId, IdSet, u64),
    TryNow,
    Suspend,
    Resume(FlowKey, Option<String>),
    /// A standing bounce begins, or ends.
    Bounce,
    BounceEnds(String),
    QueueOnly,
    QueueOnlyEnds(String),
    RunQueue,
    /// Some of a message's recipients leave the quarantine.
    LeaveQuarantine(MessageId),
}

impl World {
    pub fn plan_verbs(&mut self) {
        let verbs: [fn() -> Verb; 7] = [
            || Verb::Hold,
            || Verb::Remove,
            || Verb::TryNow,
            || Verb::Suspend,
            || Verb::Bounce,
            || Verb::QueueOnly,
            || Verb::RunQueue,
        ];
        for verb in verbs {
            for _ in 0..self.rng.u32(0..4) {
                let after = if self.rng.bool() { self.rng.u64(1..5_000) } else { self.rng.u64(1..3 * HOUR) };
                self.at(after, Ev::Verb(verb()));
            }
        }
    }

    pub fn verb(&mut self, verb: &Verb) {
        match verb {
            Verb::Hold => self.hold_some(),
            Verb::Release(ids) => {
                self.check_covered();
                self.store.apply(Event::Hold { held: false, messages: ids.clone() });
                for id in ids {
                    if let Some(no) = self.store.no_of(*id) {
                        self.sched.release_message(&self.store, no, self.now);
                    }
                }
            }
            Verb::Remove => self.remove_some(),
            Verb::Durable(id, ids, run) if *run == self.run => self.removal_ends(*id, ids),
            Verb::Later(id, ids, run) if *run == self.run => self.remove_later(*id, ids),
            Verb::Durable(..) | Verb::Later(..) => {}
            Verb::Suspend => self.suspend_some(),
            Verb::Resume(key, site) => {
                self.sched.resume_flow(key);
                if let Some(site) = site {
                    self.sched.resume_site(site);
                }
            }
            Verb::Bounce => self.begin_bounce(),
            Verb::BounceEnds(name) => {
                self.check_covered();
                self.store.apply(Event::Suspend { suspended: false, what: name, until: 0, reason: "" });
                self.sched.set_suspended(name, false, 0, "");
            }
            Verb::QueueOnly => self.begin_queue_only(),
            Verb::QueueOnlyEnds(name) => self.set_queue_only(name, false),
            Verb::RunQueue => self.run_queue(),
            Verb::LeaveQuarantine(id) => self.leave_quarantine(*id),
            Verb::TryNow => {
                for no in self.some_live() {
                    let pending: IdSet = self.store.pending_of(no).map(|id| id.0).collect();
                    let (free, _) = self.sched.removable(no, &pending);
                    self.sched.try_now(&self.store, no, &free, self.now);
                }
            }
        }
    }

    /// Checks that no held recipient is handed out, nor one that is being removed or bounced for a time, and queue-only
    /// mail only by a run.
    pub fn check_verbs(&mut self, work: &Work) {
        self.check_queue_only(work);
        let message = self.store.message(work.no).expect("work of a live message");
        assert!(!message.is_held(), "a held message is handed out");
        let site = self.sched.site_of(self.store.book.domain(work.ids[0])).and_then(|site| self.sched.site_name(site));
        for id in &work.ids {
            let is_covered = self.bounces().any(|bounce| self.is_about(&bounce, message, *id, site));
            assert!(!is_covered, "handed out while a standing bounce covers it");
            assert!(!self.reserved.contains(&(message.id().0, *id)), "handed out while it was taken out");
        }
    }

    fn some_live(&mut self) -> Vec<MessageNo> {
        let share = self.rng.u32(1..4);
        let live: Vec<MessageNo> = self.store.messages().map(|(no, _)| no).collect();
        live.into_iter().filter(|_| self.rng.u32(0..share) == 0).take(10).collect()
    }

    fn suspend_some(&mut self) {
        let key = rules::some_flow(&mut self.rng);
        self.sched.suspend_flow(&key);
        let count = self.sched.load().sites.max(1) as u32;
        let site = self.sched.site_name(SiteId(self.rng.u32(0..count))).map(str::to_owned);
        if let Some(site) = &site {
            self.sched.suspend_site(site);
        }
        let after = self.rng.u64(1..2 * HOUR);
        self.at(after, Ev::Verb(Verb::Resume(key, site)));
    }

    fn begin_bounce(&mut self) {
        let pick = self.rng.u32(1..16);
        let given = |bit: u32| pick & bit != 0;
        let count = self.sched.load().sites.max(1) as u32;
        let site = self.sched.site_name(SiteId(self.rng.u32(0..count))).map(str::to_owned);
        let sender = if self.rng.bool() { "@s1.example" } else { "list@s2.example" };
        let bounce = StandingBounce {
            site: site.filter(|_| given(1)),
            list: rules::list(&mut self.rng).filter(|_| given(2)),
            domain: Some(self.hosts.domain(&mut self.rng)).filter(|_| given(4)),
            sender: Some(sender.to_owned()).filter(|_| given(8)),
        };
        if bounce == StandingBounce::default() {
            return;
        }
        let (name, after) = (bounce.to_string(), self.rng.u64(1..2 * HOUR));
        let until = self.now + after;
        self.store.apply(Event::Suspend { suspended: true, what: &name, until, reason: BOUNCE_REASON });
        self.sched.set_suspended(&name, true, until, BOUNCE_REASON);
        self.bounces_begun.push(bounce);
        self.at(after, Ev::Verb(Verb::BounceEnds(name)));
    }

    /// The standing bounces in force.
    pub fn bounces(&self) -> impl Iterator<Item = StandingBounce> {
        self.store.standing_bounces().filter_map(|(name, ..)| StandingBounce::of_name(name))
    }

    pub fn is_about(&self, bounce: &StandingBounce, message: &Message, id: AddressId, site: Option<&str>) -> bool {
        let domain = self.store.book.domain_name(self.store.book.domain(id));
        bounce.is_of(message.senders(), message.list()) && bounce.is_to(domain, site)
    }

    /// Checks that a standing bounce covered a recipient that one has bounced.
    pub fn check_bounced(&self, message: &Message, id: AddressId) {
        let is_about = |bounce: &StandingBounce| self.is_about(bounce, message, id, bounce.site.as_deref());
        assert!(self.bounces_begun.iter().any(is_about), "bounced, and nobody asked for it");
    }

    /// Records recipients that a standing bounce covers whatever their site is when they are accepted or found at a
    /// start: they must not be delivered in this run.
    pub fn note_covered(&mut self, no: MessageNo) {
        let Some(message) = self.store.message(no).filter(|message| message.pending().len() <= 256) else { return };
        let is_covered = |id: &AddressId| self.bounces().any(|bounce| self.is_about(&bounce, message, *id, None));
        let covered: Vec<_> = self.store.pending_of(no).filter(is_covered).map(|id| (message.id().0, id)).collect();
        self.covered.extend(covered);
    }

    /// Checks that covered recipients have failed, also those of a held message: their bounce is being made.
    fn check_covered(&self) {
        let is_busy = self.sched.next_tick().is_some_and(|at| at <= self.now);
        for (id, address) in self.covered.iter().filter(|_| !is_busy) {
            let Some(no) = self.store.no_of(MessageId(*id)) else { continue };
            let pending =
                self.store.pending_of(no).filter(|pending| pending == address).map(|pending| pending.0).collect();
            let (free, in_flight) = self.sched.removable(no, &pending);
            let status = || self.sched.recipient_status(&self.store, no, *address, self.now);
            assert!(
                free.is_empty() && in_flight.is_empty(),
                "seed {}: covered, and not bounced: {:?}",
                self.seed,
                status()
            );
        }
    }

    /// Records that another action takes recipients out, or releases them: no standing bounce covers them any more.
    pub fn note_taken_out(&mut self, id: MessageId, ids: impl Iterator<Item = AddressId>) {
        for address in ids {
            self.covered.remove(&(id.0, address));
        }
    }

    fn hold_some(&mut self) {
        let nos = self.some_live();
        let ids: Vec<MessageId> = nos.iter().filter_map(|no| self.store.message(*no)).map(Message::id).collect();
        self.store.apply(Event::Hold { held: true, messages: ids.clone() });
        for no in nos {
            self.sched.hold_message(no);
        }
        let after = if self.rng.bool() { self.rng.u64(1..3_000) } else { self.rng.u64(1..6 * HOUR) };
        self.at(after, Ev::Verb(Verb::Release(ids)));
    }

    fn remove_some(&mut self) {
        for no in self.some_live() {
            let share = self.rng.u32(1..4);
            let ids: IdSet = self.store.pending_of(no).map(|id| id.0).filter(|id| id.is_multiple_of(share)).collect();
            let (free, in_flight) = self.sched.removable(no, &ids);
            let Some(id) = self.store.message(no).map(Message::id) else { continue };
            for ids in [&free, &in_flight] {
                self.sched.reserve(no, ids);
                self.note_taken_out(id, ids.iter().map(AddressId));
                self.reserved.extend(ids.iter().map(|i| (id.0, AddressId(i))));
            }
            let (after, run) = (self.rng.u64(1..2_000), self.run);
            self.at(after, Ev::Verb(Verb::Durable(id, free, run)));
            self.at(500, Ev::Verb(Verb::Later(id, in_flight, run)));
        }
    }

    fn removal_ends(&mut self, id: MessageId, ids: &IdSet) {
        for i in ids {
            self.reserved.remove(&(id.0, AddressId(i)));
        }
        let Some(no) = self.store.no_of(id) else {
            assert!(ids.is_empty(), "reserved recipients stay pending");
            return;
        };
        if self.rng.u32(0..4) == 0 {
            self.sched.unreserve(&self.store, no, ids, self.now);
            return;
        }
        let pending = self.store.message(no).map_or(0, |m| m.pending().intersection_len(ids));
        assert_eq!(pending, ids.len(), "reserved recipients stay pending");
        let finished = self.record_fate(no, Fate::Removed, End::Removed, ids);
        self.sched.removed(&self.store, no, ids, self.now);
        if finished {
            self.sched.finished(no);
        }
    }

    fn remove_later(&mut self, id: MessageId, ids: &IdSet) {
        let Some(no) = self.store.no_of(id) else { return };
        if self.rng.u32(0..4) == 0 {
            // Another action on the same recipients was refused, which ended the reservation.
            self.sched.unreserve(&self.store, no, ids, self.now);
            for i in ids {
                self.reserved.remove(&(id.0, AddressId(i)));
            }
        }
        let free = self.sched.reserve_free(&self.store, no, ids);
        self.reserved.extend(free.iter().map(|i| (id.0, AddressId(i))));
        let mut rest = self.store.message(no).map_or_else(IdSet::new, |m| m.pending().intersection(ids));
        rest.subtract(&free);
        let (run, after): (u64, Ms) = (self.run, self.rng.u64(1..2_000));
        if !free.is_empty() {
            self.at(after, Ev::Verb(Verb::Durable(id, free, run)));
        }
        if !rest.is_empty() {
            self.at(500, Ev::Verb(Verb::Later(id, rest, run)));
        }
    }
}
