//! Deferrals of messages and of sender domains at a site.
//!
//! A deferral stops (site, message) pairs, not recipients: the messages leave the site's line and wait here until the
//! clock runs out. A message is deferred after 4xx to the data, or when it has used up its returns (`RETURNS_MAX`): it
//! came back too often without a clock. A sender's deferral follows the hosts' refusals at MAIL (`next_host`). The
//! count of failures lasts until a success, or until the message is gone.
//!
//! A message that was in flight when a connection was lost may have met a host that was being stopped. The first time,
//! its clock ends half a second after the site has taken other mail (`awaits`). From the second time in a row on, the
//! message is taken to be the cause.

use smallvec::SmallVec;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{MessageId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use super::refusals::{MailProfile, MailRefusal, WaitingSets};
use crate::flows::{CLASSES, FlowNo};
use crate::kept::{KeptClock, KeptDeferral, KeptKey, KeptRefusal};
use crate::reasons::{HostReply, Reason};
use crate::sites::HostNo;
use crate::state::SchedState;
use crate::tables::Map;
use crate::timers::Timer;

/// Number of returns after which a message is deferred at a site.
pub const RETURNS_MAX: u8 = 16;
/// Cost of a return if the host did not look at the message, or took others on that connection first.
pub const RETURN_BEHIND: u8 = 1;
/// Cost of a return after a rate reply.
pub const RETURN_RATE: u8 = 4;

/// How much later than its host a refused message comes back, so that others are tried before it.
pub const STAND_BACK_MS: Ms = 5_000;
/// How soon a message is tried again once its site takes other mail, if its connection was lost or MAIL refused.
const AWAITED_MS: Ms = 500;
/// Largest number of awaiting messages per key of `awaiting`.
const AWAITING_MAX: usize = 4_096;

/// The subject of a deferral at a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeferralKey {
    /// 4xx to the data of this message, or it has no returns left.
    Message(MessageNo),
    /// 4xx at MAIL from some or all hosts: the sender's domain, hashed.
    Sender(u64),
}

pub struct Deferral {
    pub site: SiteId,
    pub key: DeferralKey,
    /// End of the clock; a sender's refusals have their own.
    pub until: Ms,
    fails: u8,
    /// Returns that a message has used up by coming back without a clock.
    returns: u8,
    /// For a message: when it first came back.
    since: Ms,
    /// For a message: set if the clock ends soon after the site has taken other mail.
    awaits: Option<AwaitingEntry>,
    pub reason: Reason,
    /// Messages kept back.
    pub waiters: WaitingSets,
    /// For a sender: its refusals by host. The deferral is in force as long as there is one (`next_host`).
    pub refusals: Vec<MailRefusal>,
}

/// An entry among the deferrals that await other mail at their site.
#[derive(Clone, Copy)]
struct AwaitingEntry {
    /// The host that must take mail because it may already have the message. `None`: any host.
    host: Option<HostNo>,
    /// Index among the deferrals that await the same.
    at: u32,
}

#[derive(Default)]
pub struct Deferrals {
    pub(super) list: Vec<Option<Deferral>>,
    free: Vec<u32>,
    pub(super) by_key: Map<(SiteId, DeferralKey), u32>,
    /// Slots of deferrals that await other mail at their site, or at this host of it; each deferral holds its index
    /// here.
    awaiting: Map<(SiteId, Option<HostNo>), Vec<u32>>,
}

/// Key of a sender's domain (RFC 5321 Reverse-path); the null sender has its own.
pub fn sender_key(sender: &str) -> u64 {
    use std::hash::BuildHasher;
    let domain = sender.rsplit_once('@').map_or("", |(_, domain)| domain);
    foldhash::fast::FixedState::default().hash_one(domain)
}

/// The reply, or one without text if it is no longer known.
pub fn last_reply(state: &SchedState, reason: Reason) -> HostReply {
    let blank = HostReply { code: 0, dsn: None, text: "".into(), cause: Cause::Message, host: None };
    state.reasons.get(reason).cloned().unwrap_or(blank)
}

impl Deferral {
    pub(crate) fn clock(&self) -> KeptClock {
        let until = self.refusals.iter().map(|refusal| refusal.until).max().unwrap_or(self.until);
        KeptClock { until, fails: self.fails, reason: self.reason }
    }

    pub fn returns(&self) -> u8 {
        self.returns
    }

    fn is_in_force(&self, now: Ms) -> bool {
        self.until > now || !self.refusals.is_empty()
    }
}

impl Deferrals {
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn get(&self, slot: u32) -> Option<&Deferral> {
        self.list.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Deferral> {
        self.list.get_mut(slot as usize)?.as_mut()
    }

    pub fn slot(&self, site: SiteId, key: DeferralKey) -> Option<u32> {
        self.by_key.get(&(site, key)).copied()
    }

    /// Until when the message is deferred at the site, and why.
    pub fn wait(&self, site: SiteId, no: MessageNo, now: Ms) -> Option<(Ms, Reason)> {
        let deferral = self.get(self.slot(site, DeferralKey::Message(no))?)?;
        (deferral.until > now).then_some((deferral.until, deferral.reason))
    }

    /// Whether the message waits only so that others are tried before it.
    pub fn stands_back(&self, site: SiteId, no: MessageNo) -> bool {
        let deferral = self.slot(site, DeferralKey::Message(no)).and_then(|slot| self.get(slot));
        deferral.is_some_and(|deferral| deferral.fails == 0)
    }

    /// Ends a clock early (a flush); the caller fires its timer.
    pub fn hasten(&mut self, slot: u32, now: Ms) {
        if let Some(deferral) = self.get_mut(slot) {
            deferral.until = 0;
            for refusal in &mut deferral.refusals {
                refusal.until = refusal.until.min(now);
            }
        }
    }

    /// Ends the clocks of a message and its sender at a site, and forgets their counts.
    pub fn end(&mut self, state: &mut SchedState, site: SiteId, no: MessageNo, sender: u64) {
        self.drop(state, site, DeferralKey::Message(no));
        self.drop(state, site, DeferralKey::Sender(sender));
    }

    /// Whether a deferral keeps the message back at the site; if so the message is moved there.
    pub fn keeps_back(&mut self, state: &mut SchedState, store: &Store, site: SiteId, no: MessageNo, now: Ms) -> bool {
        let Some((class, flow)) = state.messages.class_and_flow(no) else { return false };
        let Some(message) = store.message(no) else { return false };
        let keys = [DeferralKey::Message(no), DeferralKey::Sender(sender_key(message.sender()))];
        let Some(slot) = keys.into_iter().find_map(|key| {
            let slot = self.slot(site, key)?;
            self.keeps_at(slot, flow, class, no, now).then_some(slot)
        }) else {
            return false;
        };
        state.sites.get(site).lines.remove(flow, no);
        if let Some(deferral) = self.get_mut(slot).filter(|deferral| !deferral.refusals.is_empty()) {
            let mail = MailProfile::of(no, message);
            deferral.refusals.iter_mut().for_each(|refusal| refusal.note_waiting(&mail));
            self.offer(state, slot, now);
        }
        true
    }

    /// Whether the deferral in a slot is in force; if so the message waits there.
    pub fn keeps_at(&mut self, slot: u32, flow: FlowNo, class: usize, no: MessageNo, now: Ms) -> bool {
        let Some(deferral) = self.get_mut(slot).filter(|deferral| deferral.is_in_force(now)) else { return false };
        match deferral.waiters.iter_mut().find(|(f, _, _)| *f == flow) {
            Some((_, _, set)) => _ = set.insert(no.0),
            None => deferral.waiters.push((flow, class, IdSet::one(no.0))),
        }
        true
    }

    /// Defers a message at a site after a failure.
    pub fn defer(&mut self, state: &mut SchedState, site: SiteId, no: MessageNo, reply: &HostReply, now: Ms) {
        if state.messages.is_live(no) {
            let slot = self.slot_for(state, site, DeferralKey::Message(no), reply, now);
            self.begin_clock(state, slot, now);
        }
    }

    /// Records that a message comes back without a clock. Returns whether it is deferred now.
    pub fn returned(
        &mut self,
        state: &mut SchedState,
        site: SiteId,
        no: MessageNo,
        cost: u8,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        if !state.messages.is_live(no) {
            return false;
        }
        let slot = self.slot_for(state, site, DeferralKey::Message(no), reply, now);
        let Some(deferral) = self.get_mut(slot) else { return false };
        deferral.returns = deferral.returns.saturating_add(cost).min(RETURNS_MAX);
        let is_used_up = deferral.returns == RETURNS_MAX;
        if is_used_up {
            self.begin_clock(state, slot, now);
        }
        is_used_up
    }

    /// Moves waiting messages of a set from shared flows to their own, at most `max`. Returns their number.
    pub fn regroup(&mut self, state: &mut SchedState, slot: u32, moved: &IdSet, max: usize, now: Ms) -> usize {
        let Some(deferral) = self.get_mut(slot) else { return 0 };
        let shared = deferral.waiters.iter().filter(|(flow, ..)| (*flow as usize) < CLASSES);
        let found: Vec<u32> =
            shared.flat_map(|(.., set)| set.intersection(moved).iter().collect::<Vec<_>>()).take(max).collect();
        for no in &found {
            for (.., set) in deferral.waiters.iter_mut().filter(|(flow, ..)| (*flow as usize) < CLASSES) {
                set.remove(*no);
            }
            let Some((class, flow)) = state.messages.class_and_flow(MessageNo(*no)) else { continue };
            match deferral.waiters.iter_mut().find(|(own, ..)| *own == flow) {
                Some((.., set)) => _ = set.insert(*no),
                None => deferral.waiters.push((flow, class, IdSet::one(*no))),
            }
        }
        deferral.waiters.retain(|(.., set)| !set.is_empty());
        let is_offered = !deferral.refusals.is_empty() && !found.is_empty();
        if is_offered {
            // Its sources may be others.
            self.offer(state, slot, now);
        }
        found.len()
    }

    /// Number of slots, used and free; slot numbers are below this.
    pub fn slots(&self) -> usize {
        self.list.len()
    }

    /// Restores a deferral from before the start at its site.
    pub(crate) fn recall(&mut self, state: &mut SchedState, store: &Store, site: SiteId, kept: KeptDeferral, now: Ms) {
        let KeptDeferral { key, clock, returns, refusals } = kept;
        let key = match key {
            KeptKey::Message(id) => match store.no_of(MessageId(id)).filter(|no| state.messages.is_live(*no)) {
                Some(no) => DeferralKey::Message(no),
                None => return,
            },
            KeptKey::Sender(hash) => DeferralKey::Sender(hash),
        };
        let hosts = state.sites.hosts_named(site);
        let of_name = |name: &str| hosts.iter().find(|(of, _)| **of == *name).map(|(_, host)| *host);
        let live = |id| store.no_of(MessageId(id)).filter(|no| state.messages.is_live(*no));
        let facts = |(id, kind, size): &(u64, u64, u64)| Some(MailProfile { no: live(*id)?, kind: *kind, size: *size });
        let refusal = |kept: &KeptRefusal| {
            let refused = kept.refused.iter().filter_map(facts).collect();
            Some(MailRefusal::recalled(of_name(&kept.host)?, kept, refused, now))
        };
        let refusals: Vec<MailRefusal> = refusals.iter().filter_map(refusal).collect();
        if matches!(key, DeferralKey::Sender(_)) && refusals.is_empty() {
            return;
        }
        let reply = last_reply(state, clock.reason);
        let slot = self.slot_for(state, site, key, &reply, 0);
        let Some(deferral) = self.get_mut(slot) else { return };
        (deferral.until, deferral.fails, deferral.reason) = (clock.until, clock.fails, clock.reason);
        (deferral.returns, deferral.refusals) = (returns, refusals);
        let times = deferral.refusals.iter().map(|refusal| refusal.until).chain([deferral.until]);
        for until in times.collect::<SmallVec<[Ms; 4]>>() {
            state.timers.set(until, Timer::Deferral(slot));
        }
    }

    /// The slot of a deferral; a new one has no clock yet.
    pub fn slot_for(
        &mut self,
        state: &mut SchedState,
        site: SiteId,
        key: DeferralKey,
        reply: &HostReply,
        now: Ms,
    ) -> u32 {
        let reason = state.reasons.keep(reply.clone());
        if let Some(slot) = self.slot(site, key) {
            if let Some(deferral) = self.get_mut(slot) {
                deferral.reason = reason;
            }
            return slot;
        }
        let (waiters, refusals) = (SmallVec::new(), Vec::new());
        let (until, fails, returns, awaits) = (0, 0, 0, None);
        let new = Deferral { site, key, until, fails, returns, since: now, awaits, reason, waiters, refusals };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            (self.list.len() - 1) as u32
        });
        self.list[slot as usize] = Some(new);
        self.by_key.insert((site, key), slot);
        state.sites.get(site).deferrals += 1;
        if let DeferralKey::Message(no) = key
            && let Some(active) = state.messages.begin(no)
        {
            active.extra.get_or_insert_default().deferred_at.push(site);
        }
        slot
    }

    /// Begins the clock, longer than the last one.
    fn begin_clock(&mut self, state: &mut SchedState, slot: u32, now: Ms) {
        let Some(deferral) = self.get_mut(slot) else { return };
        if deferral.until > now {
            return; // others failed the same way at the same time
        }
        let is_bulk = matches!(deferral.key, DeferralKey::Message(no) if state.messages.is_bulk(no));
        let retry = state.cfg.bulk_site_retry.filter(|_| is_bulk).unwrap_or(state.cfg.site_retry);
        deferral.fails = deferral.fails.saturating_add(1);
        deferral.until = now + retry.delay_ms(deferral.fails, &mut state.rng);
        state.timers.set(deferral.until, Timer::Deferral(slot));
    }

    /// Handles a message that a host refused at MAIL while it takes others of the sender. The first time the host may
    /// have been out of order, and the message is tried again soon. From the second time on it has its own clock.
    pub fn suspect(&mut self, state: &mut SchedState, site: SiteId, no: MessageNo, reply: &HostReply, now: Ms) {
        if !state.messages.is_live(no) {
            return;
        }
        let slot = self.slot_for(state, site, DeferralKey::Message(no), reply, now);
        let Some(deferral) = self.get_mut(slot) else { return };
        if deferral.returns > 0 {
            return self.begin_clock(state, slot, now);
        }
        (deferral.returns, deferral.until) = (RETURN_BEHIND, deferral.until.max(now + AWAITED_MS));
        state.timers.set(deferral.until, Timer::Deferral(slot));
    }

    /// Keeps a deferred message back until then, or until its site takes other mail.
    pub fn stand_back(&mut self, state: &mut SchedState, site: SiteId, no: MessageNo, until: Ms) {
        let Some(slot) = self.slot(site, DeferralKey::Message(no)) else { return };
        if let Some(deferral) = self.get_mut(slot).filter(|deferral| deferral.until < until) {
            deferral.until = until;
            state.timers.set(until, Timer::Deferral(slot));
            self.note_awaiting(slot, None);
        }
    }

    /// Handles a message that was in flight when its connection was lost. The first time it is tried again soon after
    /// the site has taken other mail; its own clock is meant for a message that the host cannot handle. `host`: only
    /// mail taken by that host counts, because it may already have the message and another host would deliver it twice.
    pub fn await_site(&mut self, state: &mut SchedState, site: SiteId, no: MessageNo, host: Option<HostNo>) {
        if let Some(slot) = self.slot(site, DeferralKey::Message(no))
            && state.messages.is_live(no)
            && self.get(slot).is_some_and(|deferral| deferral.fails <= 1)
        {
            self.note_awaiting(slot, host);
        }
    }

    fn note_awaiting(&mut self, slot: u32, host: Option<HostNo>) {
        let Some(deferral) = self.list.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        if deferral.awaits.is_some() {
            return;
        }
        let slots = self.awaiting.entry((deferral.site, host)).or_default();
        if slots.len() < AWAITING_MAX {
            deferral.awaits = Some(AwaitingEntry { host, at: slots.len() as u32 });
            slots.push(slot);
        }
    }

    /// Removes an ended deferral from its list.
    fn forget_awaiting(&mut self, site: SiteId, awaited: AwaitingEntry) {
        let Some(slots) = self.awaiting.get_mut(&(site, awaited.host)) else { return };
        slots.swap_remove(awaited.at as usize);
        match slots.get(awaited.at as usize) {
            Some(moved) => {
                let moved = self.list.get_mut(*moved as usize).and_then(Option::as_mut);
                if let Some(AwaitingEntry { at, .. }) = moved.and_then(|deferral| deferral.awaits.as_mut()) {
                    *at = awaited.at;
                }
            }
            None if slots.is_empty() => _ = self.awaiting.remove(&(site, awaited.host)),
            None => {}
        }
    }

    /// Called when a host took a message: soon retries the messages awaiting it or any host. Messages awaiting other
    /// hosts are not scanned.
    pub fn site_takes_mail(&mut self, state: &mut SchedState, site: SiteId, host: HostNo, now: Ms) {
        if self.awaiting.is_empty() {
            return;
        }
        for host in [None, Some(host)] {
            for (at, slot) in self.awaiting.remove(&(site, host)).unwrap_or_default().into_iter().enumerate() {
                let Some(deferral) = self.get_mut(slot) else { continue };
                let awaited = deferral.awaits.take();
                debug_assert!(
                    deferral.site == site && awaited.is_some_and(|it| it.host == host && it.at as usize == at),
                    "a list of awaiting messages and their deferrals differ"
                );
                if deferral.until > now + AWAITED_MS {
                    deferral.until = now + AWAITED_MS;
                    state.timers.set(deferral.until, Timer::Deferral(slot));
                }
            }
        }
    }

    /// When the message first came back from the site without a fate.
    pub fn returned_since(&self, site: SiteId, no: MessageNo) -> Option<Ms> {
        self.get(self.slot(site, DeferralKey::Message(no))?).map(|deferral| deferral.since)
    }

    /// Handles a clock that has run out: the messages that it kept back wait in the site's line again, those of a
    /// sender for the probe. The count of failures is kept until a success.
    pub fn due(&mut self, state: &mut SchedState, slot: u32, now: Ms) {
        let Some(deferral) = self.get_mut(slot) else { return };
        if let DeferralKey::Sender(_) = deferral.key {
            return self.sender_due(state, slot, now);
        }
        if deferral.until > now {
            return;
        }
        let (site, waiters) = (deferral.site, std::mem::take(&mut deferral.waiters));
        for (flow, class, back) in &waiters {
            state.enter_line_all(site, *flow, *class, back);
        }
        state.sites.mark_dirty(site);
    }

    /// Removes a deferral for good.
    pub fn drop(&mut self, state: &mut SchedState, site: SiteId, key: DeferralKey) {
        let Some(slot) = self.by_key.remove(&(site, key)) else { return };
        let Some(deferral) = self.list[slot as usize].take() else { return };
        self.free.push(slot);
        if let Some(awaited) = deferral.awaits {
            self.forget_awaiting(site, awaited);
        }
        state.sites.get(site).deferrals -= 1;
        for (flow, class, back) in &deferral.waiters {
            state.enter_line_all(site, *flow, *class, back);
        }
        state.sites.mark_dirty(site);
    }
}
