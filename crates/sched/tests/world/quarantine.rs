//! The quarantine of a world: some posts enter it instead of the queue, and leave it in parts: released, deleted,
//! expired.
//!
//! The world keeps its own account of each recipient, with which the store's is compared: each acknowledged recipient
//! is pending, quarantined, or has one other end.

use std::collections::BTreeMap;

use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{AddressId, MessageId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::{EventEffect, Store};

use super::{Ev, HOUR, Verb, World};

/// One post in this many is quarantined.
const SHARE: u32 = 6;

/// The world's own account of the quarantine.
pub struct QuarantineModel {
    rng: fastrand::Rng,
    pub messages: BTreeMap<MessageId, IdSet>,
    /// Recipients of all posts so far.
    pub acknowledged: u64,
    /// Recipients that left the quarantine for another fate, by fate.
    pub ended: BTreeMap<Fate, u64>,
    pub released: u64,
}

impl QuarantineModel {
    /// Creates an account with its own dice, so that the worlds are otherwise unchanged.
    pub fn new(seed: u64) -> QuarantineModel {
        QuarantineModel {
            rng: fastrand::Rng::with_seed(!seed),
            messages: BTreeMap::new(),
            acknowledged: 0,
            ended: BTreeMap::new(),
            released: 0,
        }
    }

    /// Checks that the store's account is the same.
    pub fn check(&self, store: &Store, seed: u64) -> u64 {
        let (totals, fates) = (store.totals(), store.totals().fates);
        let found: BTreeMap<_, _> = store.quarantined(None).map(|m| (m.id(), m.pending().clone())).collect();
        assert_eq!(found, self.messages, "seed {seed}: who is in the quarantine");
        let kept = self.messages.values().map(|ids| ids.len() as u64).sum::<u64>();
        assert_eq!(fates.quarantined, kept, "seed {seed}: their count");
        assert!(self.messages.keys().all(|id| store.no_of(*id).is_none()), "seed {seed}: in the queue, too");
        assert_eq!(totals.acknowledged, self.acknowledged, "seed {seed}: a release acknowledges nobody again");
        let others = fates.delivered + fates.bounced + fates.expired + fates.removed + fates.coalesced;
        assert_eq!(totals.acknowledged, store.pending() + kept + others, "seed {seed}: each is in one place");
        for (fate, count) in &self.ended {
            assert!(fates.of(*fate) >= *count, "seed {seed}: {fate:?}");
        }
        kept
    }
}

impl World {
    /// Quarantines the post, or returns it.
    pub fn keep_some(&mut self, accept: Accept) -> Option<Accept> {
        self.kept.acknowledged += accept.recipients.len() as u64;
        if self.kept.rng.u32(0..SHARE) > 0 {
            return Some(accept);
        }
        let id = accept.id;
        if !accept.recipients.is_empty() {
            self.kept.messages.insert(id, accept.recipients.clone());
        }
        let applied = self.store.apply(Event::Quarantined(Box::new(accept)));
        assert!(matches!(applied, EventEffect::Noted), "it is in no queue");
        self.plan_leaving(id);
        None
    }

    fn plan_leaving(&mut self, id: MessageId) {
        let after = self.kept.rng.u64(1..3 * HOUR);
        self.at(after, Ev::Verb(Verb::LeaveQuarantine(id)));
    }

    /// Takes some or all of a message's recipients out of the quarantine.
    pub fn leave_quarantine(&mut self, id: MessageId) {
        let Some(all) = self.kept.messages.get_mut(&id) else { return };
        let rng = &mut self.kept.rng;
        let is_all = rng.bool();
        let ids: IdSet = all.iter().filter(|_| is_all || rng.bool()).collect();
        all.subtract(&ids);
        if all.is_empty() {
            self.kept.messages.remove(&id);
        } else {
            // Recipients may stay until the end of the world.
            self.plan_leaving(id);
        }
        if ids.is_empty() {
            return;
        }
        let fate = [None, None, Some(Fate::Removed), Some(Fate::Expired)][self.kept.rng.usize(0..4)];
        let Some(fate) = fate else { return self.release(id, &ids) };
        *self.kept.ended.entry(fate).or_default() += ids.len() as u64;
        self.store.apply(Event::QuarantineEnded { message: id, fate, ids, by: Some("an operator"), at: self.now });
    }

    fn release(&mut self, from: MessageId, ids: &IdSet) {
        let to = self.store.next_message_id(self.now);
        let message = self.store.in_quarantine(from).expect("it is kept");
        let accept = Accept { id: to, accepted: self.now, held_by: None, ..message.as_accepted(ids.clone()) };
        self.kept.released += ids.len() as u64;
        self.accepted.extend(ids.iter().map(|id| (to.0, AddressId(id), self.now)));
        let applied = self.store.apply(Event::QuarantineReleased { from, by: None, accept: Box::new(accept) });
        let EventEffect::New(no) = applied else { panic!("not released: {applied:?}") };
        self.sched.accepted(&self.store, no, self.now);
        self.note_covered(no);
    }
}
