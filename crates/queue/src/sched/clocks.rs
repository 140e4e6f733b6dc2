//! Clocks of mailboxes, of single recipients of single messages, and holds at a site (on a message or a sender).
//!
//! A mailbox under a clock keeps back every message for it at the price of one entry; when the clock runs out, the
//! oldest of them goes as a probe and its outcome decides for all. A recipient's clock is for greylisting: it belongs to
//! one message, and after `STRIKES_MAX` messages in a row without a delivery it becomes the mailbox's. Times are kept in
//! seconds: a million clocks take about 60 bytes each, timer included.

use smallvec::SmallVec;

use super::charges::RETURNS_MAX;
use super::flows::FlowNo;
use super::next_host::Refusal;
use super::reasons::{ReasonNo, Reply};
use super::tables::Parts;
use super::timers::Timer;
use super::{Map, Scheduler};
use crate::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

/// Messages with a 4xx for a recipient until it is the mailbox that has the clock.
const STRIKES_MAX: u8 = 3;

struct Mailbox {
    until_s: u32,
    fails: u8,
    reason: ReasonNo,
    /// The message that tries it, once the clock has run out.
    probe: Option<MessageNo>,
    waiters: IdSet,
}

struct RecipientClock {
    until_s: u32,
    reason: ReasonNo,
    fails: u8,
}

/// What is held at a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum HoldKey {
    /// 4xx to the data of this message.
    Message(MessageNo),
    /// 4xx at MAIL, by some or all hosts: the sender's domain, hashed.
    Sender(u64),
}

pub(super) struct Hold {
    pub site: SiteId,
    pub key: HoldKey,
    /// Of a sender: the latest of its refusals' clocks.
    pub until: Ms,
    fails: u8,
    /// What a message has used up by coming back without a clock (`charges`).
    returns: u8,
    pub reason: ReasonNo,
    /// Messages kept back, by flow, with the flow's class.
    pub waiters: SmallVec<[(FlowNo, usize, IdSet); 1]>,
    /// Of a sender: by host (`next_host`).
    pub refusals: Vec<Refusal>,
}

#[derive(Default)]
pub(super) struct Clocks {
    mailboxes: Parts<AddressId, Mailbox>,
    recipients: Parts<(MessageNo, AddressId), RecipientClock>,
    strikes: Parts<AddressId, u8>,
    pub holds: Vec<Option<Hold>>,
    free_holds: Vec<u32>,
    pub hold_by_key: Map<(SiteId, HoldKey), u32>,
}

impl Clocks {
    /// Whether the mailbox's clock keeps this message back; if so it is noted there.
    pub fn keeps_back(&mut self, id: AddressId, no: MessageNo, now: Ms) -> bool {
        if self.mailboxes.is_empty() {
            return false;
        }
        let Some(mailbox) = self.mailboxes.get_mut(&id) else { return false };
        let keeps = u64::from(mailbox.until_s) * 1_000 > now || mailbox.probe.is_some_and(|probe| probe != no);
        if keeps {
            mailbox.waiters.insert(no.0);
        }
        keeps
    }

    /// Clocks of all kinds in force or with a history.
    pub fn len(&self) -> usize {
        self.mailboxes.len() + self.recipients.len() + self.hold_by_key.len()
    }

    pub fn recipient(&self, no: MessageNo, id: AddressId, now: Ms) -> Option<(Ms, ReasonNo)> {
        let clock = self.recipients.get(&(no, id))?;
        Some((Ms::from(clock.until_s) * 1_000, clock.reason)).filter(|(until, _)| *until > now)
    }

    /// What was last said of a recipient that is being tried again, 0 if nothing was.
    pub fn last_reason(&self, no: MessageNo, id: AddressId) -> ReasonNo {
        let own = self.recipients.get(&(no, id)).map(|clock| clock.reason);
        let mailbox = || self.mailboxes.get(&id).filter(|mailbox| mailbox.probe == Some(no)).map(|m| m.reason);
        own.or_else(mailbox).unwrap_or_default()
    }

    pub fn mailbox(&self, id: AddressId, no: MessageNo) -> Option<(Ms, ReasonNo)> {
        let mailbox = self.mailboxes.get(&id).filter(|m| m.waiters.contains(no.0))?;
        Some((Ms::from(mailbox.until_s) * 1_000, mailbox.reason))
    }

    pub fn held_message(&self, site: SiteId, no: MessageNo, now: Ms) -> Option<(Ms, ReasonNo)> {
        let slot = *self.hold_by_key.get(&(site, HoldKey::Message(no)))?;
        let hold = self.holds[slot as usize].as_ref()?;
        (hold.until > now).then_some((hold.until, hold.reason))
    }

    /// Ends a mailbox's clock early (a flush); the caller fires its timer.
    pub fn hasten_mailbox(&mut self, id: AddressId) {
        if let Some(mailbox) = self.mailboxes.get_mut(&id) {
            mailbox.until_s = 0;
        }
    }

    pub fn hasten_recipient(&mut self, no: MessageNo, id: AddressId) {
        if let Some(clock) = self.recipients.get_mut(&(no, id)) {
            // Not 0, which says that the timer has fired.
            clock.until_s = 1;
        }
    }

    /// Uses up some of a message's returns; whether none is left.
    pub fn use_up(&mut self, slot: u32, cost: u8) -> bool {
        let Some(Some(hold)) = self.holds.get_mut(slot as usize) else { return false };
        hold.returns = hold.returns.saturating_add(cost).min(RETURNS_MAX);
        hold.returns == RETURNS_MAX
    }

    pub fn hold_site(&self, slot: u32) -> Option<SiteId> {
        self.holds.get(slot as usize)?.as_ref().map(|hold| hold.site)
    }

    pub fn hasten_hold(&mut self, slot: u32) {
        if let Some(Some(hold)) = self.holds.get_mut(slot as usize) {
            hold.until = 0;
            hold.end_refusals(false);
        }
    }
}

/// Jitter that is the same for what failed together, so that it can go together again: one transaction's recipients.
fn together(seed: u64, domain: Option<DomainId>, no: u32) -> fastrand::Rng {
    let domain = domain.map_or(u32::MAX, |domain| domain.0);
    fastrand::Rng::with_seed(seed ^ u64::from(domain) << 32 ^ u64::from(no))
}

/// A sender's domain (RFC 5321 Reverse-path; the null sender is one of its own).
pub(super) fn sender_key(sender: &str) -> u64 {
    use std::hash::BuildHasher;
    let domain = sender.rsplit_once('@').map_or("", |(_, domain)| domain);
    foldhash::fast::FixedState::default().hash_one(domain)
}

impl Scheduler {
    /// Whether an address must not be forgotten because of its mailbox's clock.
    pub fn knows_address(&self, id: AddressId) -> bool {
        self.clocks.mailboxes.contains_key(&id)
    }

    /// The addresses are forgotten, and their ids will be others'.
    pub fn forget_addresses(&mut self, ids: &IdSet) {
        self.forget_strikes(ids);
        if self.clocks.strikes.is_empty() {
            return;
        }
        for id in ids {
            self.clocks.strikes.remove(&AddressId(id));
        }
    }

    /// 4.2.x: the mailbox's clock, for all messages. Those of them that are over their lifetime expire.
    pub(super) fn mailbox_failed(&mut self, store: &Store, no: MessageNo, id: AddressId, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        let mailbox = self.clocks.mailboxes.get_or_insert_with(id, || Mailbox {
            until_s: 0,
            fails: 0,
            reason,
            probe: None,
            waiters: IdSet::new(),
        });
        mailbox.waiters.insert(no.0);
        if u64::from(mailbox.until_s) * 1_000 <= now {
            mailbox.fails = mailbox.fails.saturating_add(1);
            let mut jitter = together(self.jitter_seed, store.book.try_domain(id), 0);
            let until = now + self.cfg.mailbox_retry.delay_ms(mailbox.fails, &mut jitter);
            mailbox.until_s = until.div_ceil(1_000) as u32;
            mailbox.probe = None;
            mailbox.reason = reason;
            let until_s = mailbox.until_s;
            self.timers.set(Ms::from(until_s) * 1_000, Timer::Mailbox(id));
        }
        // An attempt at this mailbox has just failed, so whatever waits for it and is too old has been tried.
        let newest = self.newest;
        while let Some(mailbox) = self.clocks.mailboxes.get_mut(&id)
            && let Some(oldest) = super::lines::oldest(&mailbox.waiters, newest)
        {
            let mut oldest = oldest;
            let is_young = |this: &Self, no| this.messages.is_live(no) && !this.is_over_age(store, no, now);
            if !self.messages.is_parked(oldest) && is_young(self, oldest) {
                // With lifetimes of their own, younger messages may be too old before it.
                let waiters = self.clocks.mailboxes.get(&id).filter(|_| self.lifetimes_differ()).map(|m| &m.waiters);
                let old = |no: &u32| self.is_over_age(store, MessageNo(*no), now);
                let Some(other) = waiters.and_then(|waiters| waiters.iter().find(old)) else { break };
                oldest = MessageNo(other);
            }
            let (is_live, is_parked) = (self.messages.is_live(oldest), self.messages.is_parked(oldest));
            let Some(mailbox) = self.clocks.mailboxes.get_mut(&id) else { break };
            mailbox.waiters.remove(oldest.0);
            if is_parked {
                self.make_ready(store, oldest, id, now);
            } else if is_live {
                self.fail(store, oldest, id, true, reply, now);
            }
        }
    }

    /// A mailbox's clock has run out: its oldest message is the probe.
    pub(super) fn mailbox_due(&mut self, store: &Store, id: AddressId, now: Ms) {
        let newest = self.newest;
        let Some(mailbox) = self.clocks.mailboxes.get(&id) else { return };
        if u64::from(mailbox.until_s) * 1_000 > now || mailbox.probe.is_some() {
            return;
        }
        while let Some(mailbox) = self.clocks.mailboxes.get_mut(&id)
            && let Some(no) = super::lines::oldest(&mailbox.waiters, newest)
        {
            mailbox.waiters.remove(no.0);
            if !self.messages.is_live(no) {
                continue;
            }
            // One that is held would keep the others back for as long.
            let is_parked = self.messages.is_parked(no);
            if !is_parked {
                mailbox.probe = Some(no);
            }
            self.make_ready(store, no, id, now);
            if !is_parked {
                return;
            }
        }
        self.clocks.mailboxes.remove(&id);
    }

    /// An operator wants this recipient tried now: its own clock and its mailbox's end, and their counts of failures.
    pub(super) fn end_clocks(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if !self.clocks.strikes.is_empty() {
            self.clocks.strikes.remove(&id);
        }
        if !self.clocks.recipients.is_empty()
            && let Some(clock) = self.clocks.recipients.remove(&(no, id))
            && clock.until_s > 0
        {
            self.make_ready(store, no, id, now);
        }
        if self.clocks.mailboxes.is_empty() {
            return;
        }
        if let Some(mailbox) = self.clocks.mailboxes.get_mut(&id)
            && mailbox.probe.is_none()
            && mailbox.waiters.contains(no.0)
        {
            (mailbox.until_s, mailbox.fails) = (0, 0);
            if self.messages.is_parked(no) {
                self.mailbox_due(store, id, now);
            } else {
                mailbox.waiters.remove(no.0);
                mailbox.probe = Some(no);
                self.make_ready(store, no, id, now);
            }
        }
    }

    /// The message does not try this mailbox for the others any more, unless it is at it now.
    pub(super) fn end_probe(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if self.messages.get(no).is_some_and(|active| active.in_flight.contains(id.0)) {
            return;
        }
        if let Some(mailbox) = self.clocks.mailboxes.get_mut(&id)
            && mailbox.probe == Some(no)
        {
            mailbox.probe = None;
            self.mailbox_due(store, id, now);
        }
    }

    /// Ends the holds on a message and its sender at a site, and forgets their counts.
    pub(super) fn end_holds(&mut self, site: SiteId, no: MessageNo, sender: u64, now: Ms) {
        self.drop_hold(site, HoldKey::Message(no));
        if let Some(slot) = self.clocks.hold_by_key.get(&(site, HoldKey::Sender(sender))).copied() {
            if let Some(hold) = self.clocks.holds[slot as usize].as_mut() {
                hold.until = 0;
                hold.end_refusals(true);
            }
            self.hold_due(slot, now);
        }
    }

    pub(super) fn has_mailboxes(&self) -> bool {
        !self.clocks.mailboxes.is_empty()
    }

    /// The recipient of this message is done with, or is waiting for something else than its mailbox: if it was the
    /// probe, the other messages for that mailbox go ahead. Its own clock is forgotten.
    pub(super) fn settle(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if !self.clocks.recipients.is_empty() {
            self.clocks.recipients.remove(&(no, id));
        }
        self.release_mailbox(store, no, id, now);
    }

    pub(super) fn release_mailbox(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if self.clocks.mailboxes.is_empty() {
            return;
        }
        let Some(mailbox) = self.clocks.mailboxes.get(&id) else { return };
        if !mailbox.probe.map_or(u64::from(mailbox.until_s) * 1_000 <= now, |probe| probe == no) {
            return;
        }
        let Some(mailbox) = self.clocks.mailboxes.remove(&id) else { return };
        for waiter in &mailbox.waiters {
            self.make_ready(store, MessageNo(waiter), id, now);
        }
    }

    /// The mailbox has taken a message: no strikes and no clock, even if another message has just set one.
    pub(super) fn mailbox_well(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if !self.clocks.strikes.is_empty() {
            self.clocks.strikes.remove(&id);
        }
        self.no_strike(no, id);
        if let Some(mailbox) = self.clocks.mailboxes.get_mut(&id) {
            mailbox.probe = Some(no);
            if self.flows.coalesces {
                let waiters = mailbox.waiters.clone();
                self.mailbox_returned(id, &waiters);
            }
        }
        self.settle(store, no, id, now);
    }

    /// Another 4xx at RCPT: this message and recipient, or the mailbox after `STRIKES_MAX` messages.
    pub(super) fn recipient_failed(&mut self, store: &Store, no: MessageNo, id: AddressId, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        if !self.clocks.recipients.contains_key(&(no, id)) {
            let strikes = self.clocks.strikes.get_or_insert_with(id, || 0);
            *strikes = strikes.saturating_add(1);
            if *strikes >= STRIKES_MAX {
                self.mailbox_failed(store, no, id, reply, now);
                return;
            }
        }
        let new = || RecipientClock { until_s: 0, reason, fails: 0 };
        let clock = self.clocks.recipients.get_or_insert_with((no, id), new);
        clock.fails = clock.fails.saturating_add(1);
        clock.reason = reason;
        let mut jitter = together(self.jitter_seed, store.book.try_domain(id), no.0);
        let is_bulk = self.messages.is_bulk(no);
        let retry = self.cfg.bulk_recipient_retry.filter(|_| is_bulk).unwrap_or(self.cfg.recipient_retry);
        let until = now + retry.delay_ms(clock.fails, &mut jitter);
        clock.until_s = until.div_ceil(1_000) as u32;
        let until_s = clock.until_s;
        self.timers.set(Ms::from(until_s) * 1_000, Timer::Recipient(no, id));
        self.release_mailbox(store, no, id, now);
    }

    /// A recipient's clock has run out.
    pub(super) fn recipient_due(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        let Some(clock) = self.clocks.recipients.get_mut(&(no, id)) else { return };
        // 0: it has fired, and this timer is of an earlier clock.
        if clock.until_s == 0 || u64::from(clock.until_s) * 1_000 > now {
            return;
        }
        if self.messages.is_live(no) {
            // Kept for its count of failures; `until_s` stays in the past until the next one.
            clock.until_s = 0;
            self.make_ready(store, no, id, now);
        } else {
            self.clocks.recipients.remove(&(no, id));
        }
    }

    /// Whether a hold keeps the message back at the site; if so it is moved there.
    pub(super) fn held_back(&mut self, store: &Store, site: SiteId, no: MessageNo, now: Ms) -> bool {
        let Some((class, flow)) = self.messages.class_and_flow(no) else { return false };
        let sender = store.message(no).map(|m| HoldKey::Sender(sender_key(m.sender())));
        let mut keys = [Some(HoldKey::Message(no)), sender].into_iter().flatten();
        let is_kept = keys.any(|key| self.keeps_at(site, key, (flow, class), no, now));
        if is_kept {
            self.sites.get(site).lines.remove(flow, no);
        }
        is_kept
    }

    /// Whether the hold is in force; if so the message waits there.
    pub(super) fn keeps_at(
        &mut self,
        site: SiteId,
        key: HoldKey,
        (flow, class): (FlowNo, usize),
        no: MessageNo,
        now: Ms,
    ) -> bool {
        let Some(slot) = self.clocks.hold_by_key.get(&(site, key)).copied() else { return false };
        let hold = self.clocks.holds[slot as usize].as_mut().filter(|hold| hold.until > now);
        let Some(hold) = hold else { return false };
        match hold.waiters.iter_mut().find(|(f, _, _)| *f == flow) {
            Some((_, _, set)) => _ = set.insert(no.0),
            None => hold.waiters.push((flow, class, IdSet::one(no.0))),
        }
        self.offer(slot, now);
        true
    }

    /// Holds a message at a site after a failure.
    pub(super) fn hold_message_at(&mut self, site: SiteId, no: MessageNo, reply: &Reply, now: Ms) {
        if self.messages.is_live(no) {
            let slot = self.hold_slot(site, HoldKey::Message(no), reply);
            self.charge_hold(slot, now);
        }
    }

    /// The hold, without a clock if it is new.
    pub(super) fn hold_slot(&mut self, site: SiteId, key: HoldKey, reply: &Reply) -> u32 {
        let reason = self.reasons.keep(reply.clone());
        if let Some(slot) = self.clocks.hold_by_key.get(&(site, key)) {
            if let Some(hold) = self.clocks.holds[*slot as usize].as_mut() {
                hold.reason = reason;
            }
            return *slot;
        }
        let (waiters, refusals) = (SmallVec::new(), Vec::new());
        let hold = Hold { site, key, until: 0, fails: 0, returns: 0, reason, waiters, refusals };
        let slot = if let Some(slot) = self.clocks.free_holds.pop() {
            self.clocks.holds[slot as usize] = Some(hold);
            slot
        } else {
            self.clocks.holds.push(Some(hold));
            (self.clocks.holds.len() - 1) as u32
        };
        self.clocks.hold_by_key.insert((site, key), slot);
        self.sites.get(site).holds += 1;
        if let HoldKey::Message(no) = key
            && let Some(active) = self.messages.begin(no)
        {
            active.extra.get_or_insert_default().held_at.push(site);
        }
        slot
    }

    /// The hold's clock begins, longer than the last one.
    pub(super) fn charge_hold(&mut self, slot: u32, now: Ms) {
        let Some(hold) = self.clocks.holds[slot as usize].as_mut() else { return };
        if hold.until > now {
            return; // others failed in the same way at the same time
        }
        let is_bulk = matches!(hold.key, HoldKey::Message(no) if self.messages.is_bulk(no));
        let retry = self.cfg.bulk_site_retry.filter(|_| is_bulk).unwrap_or(self.cfg.site_retry);
        hold.fails = hold.fails.saturating_add(1);
        hold.until = now + retry.delay_ms(hold.fails, &mut self.rng);
        self.timers.set(hold.until, Timer::Hold(slot));
    }

    /// A message that has a hold stands back until then.
    pub(super) fn hold_until(&mut self, site: SiteId, no: MessageNo, until: Ms) {
        let Some(slot) = self.clocks.hold_by_key.get(&(site, HoldKey::Message(no))).copied() else { return };
        if let Some(hold) = self.clocks.holds[slot as usize].as_mut().filter(|hold| hold.until < until) {
            hold.until = until;
            self.timers.set(until, Timer::Hold(slot));
        }
    }

    /// A hold's time is over: what it kept back waits at its site again. Its count of failures is kept until a success.
    pub(super) fn hold_due(&mut self, slot: u32, now: Ms) {
        let Some(Some(hold)) = self.clocks.holds.get_mut(slot as usize) else { return };
        if hold.until > now {
            // Of a sender perhaps one host may be asked again.
            return self.offer(slot, now);
        }
        let (site, key, forgotten_at) = (hold.site, hold.key, hold.until + self.cfg.site_retry.max_ms);
        let waiters = std::mem::take(&mut hold.waiters);
        let entry = self.sites.get(site);
        for (flow, class, back) in &waiters {
            entry.lines.insert_all(*flow, *class, back);
        }
        match key {
            HoldKey::Sender(_) if waiters.is_empty() && forgotten_at <= now => self.drop_hold(site, key),
            // Forgotten in time even if nothing of this sender is tried there again.
            HoldKey::Sender(_) => self.timers.set(forgotten_at.max(now + 1), Timer::Hold(slot)),
            // Dropped when the message is finished.
            HoldKey::Message(_) => {}
        }
        self.sites.mark_dirty(site);
    }

    /// A hold is over for good.
    pub(super) fn drop_hold(&mut self, site: SiteId, key: HoldKey) {
        let Some(slot) = self.clocks.hold_by_key.remove(&(site, key)) else { return };
        let Some(hold) = self.clocks.holds[slot as usize].take() else { return };
        self.clocks.free_holds.push(slot);
        let entry = self.sites.get(site);
        entry.holds -= 1;
        for (flow, class, back) in &hold.waiters {
            entry.lines.insert_all(*flow, *class, back);
        }
        self.sites.mark_dirty(site);
    }
}
