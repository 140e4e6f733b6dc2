//! Tries the next host after a 4xx at MAIL (RFC 5321 section 5.1: the addresses of a destination are tried in order).
//!
//! A refusal belongs to one host, one source and one sender's domain. Its clock grows with each refusal in a row and
//! ends with a delivery by that host. From the first refusal on, the sender's messages wait at the deferral of (site,
//! sender) instead of in the site's line, and the deferral is offered to the hosts of the site that have not refused:
//! their connections alternate between offers and the line (`choice::offers`), and if there is no connection one is
//! opened (`connections::offers`). When no such host may be tried, mail unlike the refused is offered to those that
//! refused (`refusals`). When a clock has run out, one message probes the host; the others wait for its fate. A host
//! that worked a moment ago and refuses for reasons of its own is asked again ahead of the clock (`sites::early`).
//!
//! An outdated offer (nothing waits any more, or the host has refused since) is dropped when it is found.

use smallvec::SmallVec;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use super::deferrals::{Deferral, DeferralKey, Deferrals, last_reply};
use super::refusals::{MailProfile, MailRefusal};
use super::results::EndedTransaction;
use crate::STEPS_MAX;
use crate::effects::SourceNo;
use crate::flows::lines::oldest;
use crate::flows::{ORDINARY, SourceSet};
use crate::reasons::{HostReply, Reason};
use crate::sites::early::EarlyProbes;
use crate::sites::{Hop, HostNo, HostOffers};
use crate::state::SchedState;
use crate::timers::Timer;

/// Subjects of enhanced codes about the host's system and network (RFC 3463 section 3).
const SUBJECTS_OF_SYSTEM: [u16; 3] = [0, 3, 4];

/// Deferrals for which another host is asked first that are passed over.
const LATER_MAX: usize = 64;

/// Whether a refusal at MAIL is about the host, which may be stopping or starting, and not about the sender or us.
/// Greylisting counts early retries.
fn is_of_system(reply: &HostReply) -> bool {
    reply.cause == Cause::Sender && reply.dsn.is_none_or(|dsn| SUBJECTS_OF_SYSTEM.contains(&dsn.subject))
}

impl Deferral {
    fn refusal(&mut self, host: HostNo) -> Option<&mut MailRefusal> {
        self.refusals.iter_mut().find(|refusal| refusal.host == host)
    }
}

/// Whether a deferral has mail for a host.
enum Offer {
    /// The index of the waiters that go.
    Now(usize),
    /// Another host is asked first.
    Later,
    Never,
}

impl Deferrals {
    /// Whether a refusal at MAIL is about the message: the site refused it before, it has no other host, and it takes
    /// other mail of the sender.
    pub fn is_about_message(&self, state: &mut SchedState, hop: Hop, no: MessageNo, sender: u64) -> bool {
        let deferral = self.slot(hop.site, DeferralKey::Message(no)).and_then(|slot| self.get(slot));
        deferral.is_some_and(|deferral| deferral.returns() > 0)
            && self.slot(hop.site, DeferralKey::Sender(sender)).is_none()
            && state.path(hop.site, hop.source).hosts.len() == 1
    }

    /// Records that a host has refused a sender's message at MAIL for now. Returns whether that began a clock.
    pub fn sender_refused(
        &mut self,
        state: &mut SchedState,
        hop: Hop,
        mail: MailProfile,
        sender: u64,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        let Hop { site, host, .. } = hop;
        let slot = self.slot_for(state, site, DeferralKey::Sender(sender), reply, now);
        let early = EarlyProbes::after(state.sites.host(host).good_at, now);
        let hosts = state.sites.get(site).paths.iter().flat_map(|path| &path.hosts);
        let Some(deferral) = self.get_mut(slot) else { return false };
        deferral.refusals.retain(|refusal| hosts.clone().any(|host| *host == refusal.host));
        if deferral.refusal(host).is_none() {
            deferral.refusals.push(MailRefusal::new(host, early, &deferral.waiters, now));
        }
        let Some(refusal) = deferral.refusal(host) else { return false };
        refusal.note_refused(mail);
        if !std::mem::take(&mut refusal.is_probed) && refusal.until > now {
            return false; // it was a trial, or concurrent attempts have failed too
        }
        let early = std::mem::take(&mut refusal.ended_early);
        if early > now {
            refusal.until = early;
        } else {
            refusal.fails = refusal.fails.saturating_add(1);
            refusal.until = now + state.cfg.site_retry.delay_ms(refusal.fails, &mut state.rng);
        }
        if is_of_system(reply)
            && let Some(at) = refusal.early.take(refusal.since, refusal.until, now)
        {
            refusal.ended_early = std::mem::replace(&mut refusal.until, at);
        }
        state.timers.set(refusal.until, Timer::Deferral(slot));
        true
    }

    /// Overdue messages that all hosts would refuse as they refused their last one, this host just now: that was their
    /// attempt, too.
    pub fn overdue(
        &self,
        state: &SchedState,
        store: &Store,
        hop: Hop,
        sender: u64,
        refused: &MailProfile,
        now: Ms,
    ) -> Vec<MessageNo> {
        let deferral = self.slot(hop.site, DeferralKey::Sender(sender)).and_then(|slot| self.get(slot));
        let Some(deferral) = deferral else { return Vec::new() };
        let refused_until = |host| deferral.refusals.iter().find(|one| one.host == host).map_or(0, |one| one.until);
        let Some(site) = state.sites.peek(hop.site) else { return Vec::new() };
        // Another host may take it, such as one that is being probed.
        let has_way = |sources| {
            let mut hosts = site.paths_of(sources).flat_map(|(_, path)| &path.hosts);
            hosts.any(|host| state.sites.hosts[*host as usize].until.max(refused_until(*host)) <= now)
        };
        let others = deferral.refusals.iter().filter(|refusal| refusal.host != hop.host);
        let last: SmallVec<[Option<&MailProfile>; 4]> = others.map(|refusal| refusal.refused.last()).collect();
        let is_expected = |no: &MessageNo| {
            let mail = store.message(*no).map(|message| MailProfile::of(*no, message));
            mail.is_some_and(|mail| {
                mail.is_like(refused) && last.iter().all(|refused| refused.is_some_and(|refused| mail.is_like(refused)))
            })
        };
        let first = |set| IdSet::iter_around(set, state.newest).take(STEPS_MAX as usize).map(MessageNo);
        let waiters = deferral.waiters.iter().filter(|(flow, ..)| !has_way(state.flows.get(*flow).sources));
        let oldest = waiters.flat_map(|(.., set)| first(set));
        oldest.filter(|no| state.is_over_age(store, *no, now) && is_expected(no)).collect()
    }

    /// Records that the host has accepted MAIL from the sender. Its other mail goes on, one message at a time; a
    /// delivery ends the refusal, which was about the messages that got it.
    pub fn sender_accepted(&mut self, state: &mut SchedState, ended: &EndedTransaction, is_delivered: bool, now: Ms) {
        let (Hop { site, host, .. }, Some(sender)) = (ended.hop, ended.sender) else { return };
        let key = DeferralKey::Sender(sender);
        let Some(slot) = self.slot(site, key) else { return };
        let Some(deferral) = self.get_mut(slot) else { return };
        let Some(at) = deferral.refusals.iter().position(|refusal| refusal.host == host) else { return };
        if !is_delivered {
            deferral.refusals[at].end_early(now);
            return self.offer(state, slot, now);
        }
        let refusal = deferral.refusals.swap_remove(at);
        let reply = last_reply(state, deferral.reason);
        let is_over = deferral.refusals.is_empty();
        for mail in refusal.refused.iter().filter(|mail| mail.no != ended.no) {
            self.suspect(state, site, mail.no, &reply, now);
        }
        if is_over {
            self.drop(state, site, key);
        } else {
            self.offer(state, slot, now);
        }
    }

    /// Handles a clock of a sender: a host may be probed, or its refusal is so old that it is forgotten.
    pub fn sender_due(&mut self, state: &mut SchedState, slot: u32, now: Ms) {
        let kept_ms = state.cfg.site_retry.max_ms;
        let Some(deferral) = self.get_mut(slot) else { return };
        deferral.refusals.retain(|refusal| refusal.until + kept_ms > now);
        let ended = deferral.refusals.iter().filter(|refusal| refusal.until <= now);
        if let Some(at) = ended.map(|refusal| refusal.until + kept_ms).min() {
            state.timers.set(at, Timer::Deferral(slot));
        }
        if deferral.refusals.is_empty() {
            let (site, key) = (deferral.site, deferral.key);
            return self.drop(state, site, key);
        }
        self.offer(state, slot, now);
    }

    /// When a sender's mail may be tried at a site, if no host takes it from these sources now: each has refused it, or
    /// has its own clock or probe. `None`: some host may be tried, or none has refused it.
    pub fn sender_wait(
        &self,
        state: &SchedState,
        site: SiteId,
        sender: u64,
        sources: SourceSet,
        now: Ms,
    ) -> Option<(Ms, Reason)> {
        let deferral = self.get(self.slot(site, DeferralKey::Sender(sender))?)?;
        let paths = state.sites.list.get(site.0 as usize)?.paths.iter().enumerate();
        let hosts = paths.filter(|(source, _)| sources.has(*source as SourceNo)).flat_map(|(_, path)| &path.hosts);
        let (mut earliest, mut is_refused) = (None::<Ms>, false);
        for no in hosts {
            let host = &state.sites.hosts[*no as usize];
            let refused =
                deferral.refusals.iter().find(|refusal| refusal.host == *no).map_or(0, |refusal| refusal.until);
            let until = refused.max(host.until);
            is_refused |= refused > now;
            if until > now {
                earliest = Some(earliest.map_or(until, |at| at.min(until)));
            } else if host.fails == 0 || host.probe.is_none() {
                return None;
            }
        }
        earliest.filter(|_| is_refused).map(|until| (until, deferral.reason))
    }

    /// Offers the messages that wait at a sender's deferral to the hosts that may be asked.
    pub fn offer(&mut self, state: &mut SchedState, slot: u32, now: Ms) {
        let Some(deferral) = self.get_mut(slot) else { return };
        let site = state.sites.get(deferral.site);
        for (source, path) in site.paths.iter().enumerate() {
            let may = |flow| {
                let flow = state.flows.get(flow);
                flow.sources.has(source as SourceNo) && !flow.is_kept()
            };
            if !deferral.waiters.iter().any(|(flow, ..)| may(*flow)) {
                continue;
            }
            for host in &path.hosts {
                if deferral.refusal(*host).is_some_and(|refusal| !refusal.may_attempt(now)) {
                    continue;
                }
                if let Some(offers) = site.offers.iter_mut().find(|offers| offers.host == *host) {
                    offers.deferrals.insert(slot);
                } else {
                    let deferrals = IdSet::one(slot);
                    site.offers.push(HostOffers { host: *host, deferrals, last: 0, passed: 0 });
                }
            }
        }
        state.sites.mark_dirty(deferral.site);
    }

    /// The next deferral offered to a host, and which of its waiters goes: ordinary mail first.
    pub fn offered(&mut self, state: &mut SchedState, hop: Hop, now: Ms) -> Option<(u32, usize)> {
        let Hop { site, host, .. } = hop;
        let at = state.sites.get(site).offers.iter().position(|offers| offers.host == host)?;
        let (mut after, mut later) = (state.sites.get(site).offers[at].last, 0);
        let len = state.sites.get(site).offers[at].deferrals.len();
        for _ in 0..len {
            let slots = &state.sites.get(site).offers[at].deferrals;
            let slot = slots.iter_from(after).next().or_else(|| slots.min())?;
            match self.offer_of(state, slot, hop, now) {
                Offer::Now(waiter) => {
                    state.sites.get(site).offers[at].passed = 0;
                    return Some((slot, waiter));
                }
                Offer::Later if later == LATER_MAX => {
                    // The next look goes on here, at once unless it has gone around.
                    let offers = &mut state.sites.get(site).offers[at];
                    (offers.last, offers.passed) = (slot, offers.passed + later);
                    if offers.passed < len {
                        state.sites.mark_dirty(site);
                    } else {
                        offers.passed = 0;
                    }
                    return None;
                }
                Offer::Later => later += 1,
                Offer::Never => _ = state.sites.get(site).offers[at].deferrals.remove(slot),
            }
            after = slot;
        }
        if later == 0 {
            state.sites.get(site).offers.swap_remove(at);
        }
        None
    }

    fn offer_of(&mut self, state: &mut SchedState, slot: u32, hop: Hop, now: Ms) -> Offer {
        let Hop { site, source, host } = hop;
        let Some(deferral) = self.get_mut(slot).filter(|deferral| deferral.site == site) else { return Offer::Never };
        let DeferralKey::Sender(sender) = deferral.key else { return Offer::Never };
        if state.flows.any_kept() {
            // Put aside, where a resumption finds them.
            let entry = state.sites.get(site);
            for (flow, class, set) in &deferral.waiters {
                if state.flows.is_kept(*flow) {
                    entry.lines.insert_all_aside(*flow, *class, set);
                }
            }
            deferral.waiters.retain(|(flow, ..)| !state.flows.is_kept(*flow));
            entry.lines.set_aside(&state.flows);
        }
        let fitting = deferral.waiters.iter().enumerate();
        let fitting = fitting.map(|(at, (flow, class, _))| (at, *class, state.flows.get(*flow).sources));
        let first = fitting.filter(|(.., sources)| sources.has(source)).min_by_key(|(_, class, _)| *class != ORDINARY);
        let Some((waiter, _, sources)) = first else { return Offer::Never };
        let may_try = deferral.refusal(host).filter(|refusal| refusal.until > now).map(|refusal| refusal.may_try(now));
        match may_try {
            Some(false) => Offer::Never,
            Some(true) if self.sender_wait(state, site, sender, sources, now).is_none() => Offer::Later,
            _ => Offer::Now(waiter),
        }
    }

    /// The message of a deferral that goes to a host, and its index among the waiters: the oldest of those at `waiter`,
    /// unless the host has refused the sender.
    pub fn next_for(
        &mut self,
        state: &mut SchedState,
        store: &Store,
        slot: u32,
        waiter: usize,
        hop: Hop,
        now: Ms,
    ) -> Option<(usize, MessageNo)> {
        let Deferral { waiters, refusals, .. } = self.list.get_mut(slot as usize)?.as_mut()?;
        let Some(refusal) = refusals.iter_mut().find(|refusal| refusal.host == hop.host) else {
            return oldest(&waiters[waiter].2, state.newest).map(|no| (waiter, no));
        };
        let came_back = |no| self.by_key.get(&(hop.site, DeferralKey::Message(no))).is_some();
        refusal.choose(state, store, waiters, hop.source, came_back, now)
    }

    /// Records that a message of the deferral has begun an attempt at a host.
    pub fn began(&mut self, state: &mut SchedState, slot: u32, host: HostNo, now: Ms) {
        let Some(deferral) = self.get_mut(slot) else { return };
        if let Some(at) = deferral.refusal(host).and_then(|refusal| refusal.begin(now)) {
            state.timers.set(at, Timer::Deferral(slot));
        }
    }
}
