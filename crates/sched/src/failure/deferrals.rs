//! Deferrals at a site: of a message, and of a sender's domain.
//!
//! A deferral stops (site, message) pairs, not recipients: the messages leave the site's line and wait here until the clock
//! runs out. A message is deferred after 4xx to the data, or when it has used up its returns (`RETURNS_MAX`): it came back too
//! often without a clock. A sender's deferral follows the hosts' refusals at MAIL (`next_host`). The count of failures lasts
//! until a success, or until the message is gone.

use smallvec::SmallVec;
use stentor_queue::ids::{MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::core::Core;
use crate::flows::FlowNo;
use crate::reasons::{Reason, Reply};
use crate::sites::HostNo;
use crate::tables::Map;
use crate::timers::Timer;

/// Returns that a message has at a site until it is deferred there.
pub const RETURNS_MAX: u8 = 16;
/// What it costs if the host did not look at the message, or took others on that connection first.
pub const RETURN_BEHIND: u8 = 1;
/// What a rate reply costs.
pub const RETURN_RATE: u8 = 4;

/// What is deferred at a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeferralKey {
    /// 4xx to the data of this message, or no returns left.
    Message(MessageNo),
    /// 4xx at MAIL, by some or all hosts: the sender's domain, hashed.
    Sender(u64),
}

pub struct Deferral {
    pub site: SiteId,
    pub key: DeferralKey,
    /// Of a sender: the latest of its refusals' clocks.
    pub until: Ms,
    fails: u8,
    /// What a message has used up by coming back without a clock.
    returns: u8,
    pub reason: Reason,
    /// Messages kept back, by flow, with the flow's class.
    pub waiters: SmallVec<[(FlowNo, usize, IdSet); 1]>,
    /// Of a sender: by host (`next_host`).
    pub refusals: Vec<Refusal>,
}

/// A host's 4xx at MAIL to a sender.
pub struct Refusal {
    pub host: HostNo,
    pub until: Ms,
    /// In a row.
    pub fails: u8,
}

#[derive(Default)]
pub struct Deferrals {
    list: Vec<Option<Deferral>>,
    free: Vec<u32>,
    by_key: Map<(SiteId, DeferralKey), u32>,
}

/// A sender's domain (RFC 5321 Reverse-path; the null sender is one of its own).
pub fn sender_key(sender: &str) -> u64 {
    use std::hash::BuildHasher;
    let domain = sender.rsplit_once('@').map_or("", |(_, domain)| domain);
    foldhash::fast::FixedState::default().hash_one(domain)
}

impl Deferral {
    /// An operator wants the sender's mail tried.
    fn end_refusals(&mut self, forget: bool) {
        for refusal in &mut self.refusals {
            refusal.until = 0;
            refusal.fails = if forget { 0 } else { refusal.fails };
        }
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

    /// Ends a clock early (a flush); the caller fires its timer.
    pub fn hasten(&mut self, slot: u32) {
        if let Some(deferral) = self.get_mut(slot) {
            deferral.until = 0;
            deferral.end_refusals(false);
        }
    }

    /// Ends the clocks of a message and its sender at a site, and forgets their counts.
    pub fn end(&mut self, core: &mut Core, site: SiteId, no: MessageNo, sender: u64, now: Ms) {
        self.drop(core, site, DeferralKey::Message(no));
        if let Some(slot) = self.slot(site, DeferralKey::Sender(sender)) {
            if let Some(deferral) = self.get_mut(slot) {
                deferral.until = 0;
                deferral.end_refusals(true);
            }
            self.due(core, slot, now);
        }
    }

    /// Whether a deferral keeps the message back at the site; if so it is moved there.
    pub fn keeps_back(&mut self, core: &mut Core, store: &Store, site: SiteId, no: MessageNo, now: Ms) -> bool {
        let Some((class, flow)) = core.messages.class_and_flow(no) else { return false };
        let sender = store.message(no).map(|m| DeferralKey::Sender(sender_key(m.sender())));
        let mut keys = [Some(DeferralKey::Message(no)), sender].into_iter().flatten();
        let is_kept = keys.any(|key| self.keeps_at(core, (site, key), (flow, class), no, now));
        if is_kept {
            core.sites.get(site).lines.remove(flow, no);
        }
        is_kept
    }

    /// Whether the deferral is in force; if so the message waits there.
    pub fn keeps_at(
        &mut self,
        core: &mut Core,
        (site, key): (SiteId, DeferralKey),
        (flow, class): (FlowNo, usize),
        no: MessageNo,
        now: Ms,
    ) -> bool {
        let Some(slot) = self.slot(site, key) else { return false };
        let Some(deferral) = self.get_mut(slot).filter(|deferral| deferral.until > now) else { return false };
        match deferral.waiters.iter_mut().find(|(f, _, _)| *f == flow) {
            Some((_, _, set)) => _ = set.insert(no.0),
            None => deferral.waiters.push((flow, class, IdSet::one(no.0))),
        }
        self.offer(core, slot, now);
        true
    }

    /// Defers a message at a site after a failure.
    pub fn defer(&mut self, core: &mut Core, site: SiteId, no: MessageNo, reply: &Reply, now: Ms) {
        if core.messages.is_live(no) {
            let slot = self.slot_for(core, site, DeferralKey::Message(no), reply);
            self.begin_clock(core, slot, now);
        }
    }

    /// A message comes back without a clock. Whether it is deferred now.
    pub fn returned(&mut self, core: &mut Core, site: SiteId, no: MessageNo, cost: u8, reply: &Reply, now: Ms) -> bool {
        if !core.messages.is_live(no) {
            return false;
        }
        let slot = self.slot_for(core, site, DeferralKey::Message(no), reply);
        let Some(deferral) = self.get_mut(slot) else { return false };
        deferral.returns = deferral.returns.saturating_add(cost).min(RETURNS_MAX);
        let is_used_up = deferral.returns == RETURNS_MAX;
        if is_used_up {
            self.begin_clock(core, slot, now);
        }
        is_used_up
    }

    /// The place of a deferral; without a clock if it is new.
    pub fn slot_for(&mut self, core: &mut Core, site: SiteId, key: DeferralKey, reply: &Reply) -> u32 {
        let reason = core.reasons.keep(reply.clone());
        if let Some(slot) = self.slot(site, key) {
            if let Some(deferral) = self.get_mut(slot) {
                deferral.reason = reason;
            }
            return slot;
        }
        let (waiters, refusals) = (SmallVec::new(), Vec::new());
        let new = Deferral { site, key, until: 0, fails: 0, returns: 0, reason, waiters, refusals };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            (self.list.len() - 1) as u32
        });
        self.list[slot as usize] = Some(new);
        self.by_key.insert((site, key), slot);
        core.sites.get(site).deferrals += 1;
        if let DeferralKey::Message(no) = key
            && let Some(active) = core.messages.begin(no)
        {
            active.extra.get_or_insert_default().deferred_at.push(site);
        }
        slot
    }

    /// The clock begins, longer than the last one.
    fn begin_clock(&mut self, core: &mut Core, slot: u32, now: Ms) {
        let Some(deferral) = self.get_mut(slot) else { return };
        if deferral.until > now {
            return; // others failed in the same way at the same time
        }
        let is_bulk = matches!(deferral.key, DeferralKey::Message(no) if core.messages.is_bulk(no));
        let retry = core.cfg.bulk_site_retry.filter(|_| is_bulk).unwrap_or(core.cfg.site_retry);
        deferral.fails = deferral.fails.saturating_add(1);
        deferral.until = now + retry.delay_ms(deferral.fails, &mut core.rng);
        core.timers.set(deferral.until, Timer::Deferral(slot));
    }

    /// A message that has a deferral stands back until then.
    pub fn extend(&mut self, core: &mut Core, site: SiteId, no: MessageNo, until: Ms) {
        let Some(slot) = self.slot(site, DeferralKey::Message(no)) else { return };
        if let Some(deferral) = self.get_mut(slot).filter(|deferral| deferral.until < until) {
            deferral.until = until;
            core.timers.set(until, Timer::Deferral(slot));
        }
    }

    /// A clock has run out: what it kept back waits in the site's line again. Its count of failures is kept until a success.
    pub fn due(&mut self, core: &mut Core, slot: u32, now: Ms) {
        let Some(deferral) = self.get_mut(slot) else { return };
        if deferral.until > now {
            // Of a sender perhaps one host may be asked again.
            return self.offer(core, slot, now);
        }
        let (site, key, forgotten_at) = (deferral.site, deferral.key, deferral.until + core.cfg.site_retry.max_ms);
        let waiters = std::mem::take(&mut deferral.waiters);
        for (flow, class, back) in &waiters {
            core.enter_line_all(site, (*flow, *class), back);
        }
        match key {
            DeferralKey::Sender(_) if waiters.is_empty() && forgotten_at <= now => self.drop(core, site, key),
            // Forgotten in time even if nothing of this sender is tried there again.
            DeferralKey::Sender(_) => core.timers.set(forgotten_at.max(now + 1), Timer::Deferral(slot)),
            // Dropped when the message is finished.
            DeferralKey::Message(_) => {}
        }
        core.sites.mark_dirty(site);
    }

    /// A deferral is over for good.
    pub fn drop(&mut self, core: &mut Core, site: SiteId, key: DeferralKey) {
        let Some(slot) = self.by_key.remove(&(site, key)) else { return };
        let Some(deferral) = self.list[slot as usize].take() else { return };
        self.free.push(slot);
        core.sites.get(site).deferrals -= 1;
        for (flow, class, back) in &deferral.waiters {
            core.enter_line_all(site, (*flow, *class), back);
        }
        core.sites.mark_dirty(site);
    }
}
