//! Tries the next host after a 4xx at MAIL (RFC 5321 section 5.1: the addresses of a destination are tried in order).
//!
//! A refusal belongs to one host, one source and one sender's domain. Its clock grows with each refusal in a row and
//! ends with a delivery by that host. While it runs, the sender's messages wait at the deferral of (site, sender)
//! instead of in the site's line, and the deferral is offered to the hosts of the site that have not refused: their
//! connections alternate between offers and the line (`choice::offers`), and if there is no connection one is opened
//! (`connections::offers`). When all hosts have refused, the messages wait for the first of the clocks. A host that
//! worked a moment ago and refuses for reasons of its own is asked again ahead of the clock (`sites::early`).
//!
//! An outdated offer (nothing waits any more, or the host has refused since) is dropped when it is found.

use stentor_queue::cause::Cause;
use stentor_queue::ids::{MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;

use super::deferrals::{Deferral, DeferralKey, Deferrals, Refusal};
use crate::core::Core;
use crate::effects::SourceNo;
use crate::flows::{ORDINARY, SourceSet};
use crate::reasons::{Reason, Reply};
use crate::sites::early::EarlyProbes;
use crate::sites::{Hop, HostNo, Offers};
use crate::timers::Timer;

/// Subjects of enhanced codes about the host's system and network (RFC 3463 section 3).
const SUBJECTS_OF_SYSTEM: [u16; 3] = [0, 3, 4];

/// Messages of a sender that are remembered as refused.
const SUSPECTS_MAX: usize = 1_024;

/// Whether a refusal at MAIL is about the host, which may be stopping or starting, and not about the sender or us.
/// Greylisting counts early retries.
fn is_of_system(reply: &Reply) -> bool {
    reply.cause == Cause::Sender && reply.dsn.is_none_or(|dsn| SUBJECTS_OF_SYSTEM.contains(&dsn.subject))
}

/// A sender's clock at a host that has just refused it.
pub struct SenderClock {
    pub until: Ms,
    /// The refusal answered an early probe, which a delivery has paid for.
    pub was_early: bool,
}

impl Deferral {
    fn is_refused_by(&self, host: HostNo, now: Ms) -> bool {
        self.refusals.iter().any(|refusal| refusal.host == host && refusal.until > now)
    }
}

impl Deferrals {
    /// Whether a refusal at MAIL is about the message, by its size for example: the site refused it before, and all hosts
    /// that refused the sender have taken other mail of it since.
    pub fn is_about_message(&self, site: SiteId, no: MessageNo, sender: u64) -> bool {
        let of = |key| self.slot(site, key).and_then(|slot| self.get(slot));
        of(DeferralKey::Message(no)).is_some_and(|deferral| deferral.returns() > 0)
            && of(DeferralKey::Sender(sender)).is_none_or(|deferral| deferral.refusals.is_empty())
    }

    /// Records that a host has refused a sender at MAIL for now; `None`: the deferral is gone.
    pub fn sender_refused(
        &mut self,
        core: &mut Core,
        hop: Hop,
        no: MessageNo,
        sender: u64,
        reply: &Reply,
        now: Ms,
    ) -> Option<SenderClock> {
        let Hop { site, host, .. } = hop;
        let slot = self.slot_for(core, site, DeferralKey::Sender(sender), reply, now);
        let early = EarlyProbes::after(core.sites.host(host).good_at, now);
        let hosts = core.sites.get(site).paths.iter().flat_map(|path| &path.hosts);
        let deferral = self.get_mut(slot)?;
        deferral.suspects.retain(|suspect| *suspect != no);
        deferral.suspects.push_back(no);
        if deferral.suspects.len() > SUSPECTS_MAX {
            deferral.suspects.pop_front();
        }
        deferral.refusals.retain(|refusal| hosts.clone().any(|host| *host == refusal.host));
        let at = deferral.refusals.iter().position(|refusal| refusal.host == host).unwrap_or_else(|| {
            deferral.refusals.push(Refusal { host, until: 0, fails: 0, since: now, ended_early: 0, early });
            deferral.refusals.len() - 1
        });
        let refusal = &mut deferral.refusals[at];
        let mut was_early = false;
        // Otherwise the clock already runs: concurrent attempts have failed too.
        if refusal.until <= now {
            let early = std::mem::take(&mut refusal.ended_early);
            was_early = early > now;
            if was_early {
                refusal.until = early;
            } else {
                refusal.fails = refusal.fails.saturating_add(1);
                refusal.until = now + core.cfg.site_retry.delay_ms(refusal.fails, &mut core.rng);
            }
            if is_of_system(reply)
                && let Some(at) = refusal.early.take(refusal.since, refusal.until, now)
            {
                refusal.ended_early = std::mem::replace(&mut refusal.until, at);
            }
            deferral.until = deferral.until.max(refusal.until);
            core.timers.set(refusal.until, Timer::Deferral(slot));
        }
        Some(SenderClock { until: refusal.until, was_early })
    }

    /// Records that the host has taken mail from the sender.
    pub fn sender_taken(&mut self, core: &mut Core, site: SiteId, host: HostNo, sender: u64) {
        let key = DeferralKey::Sender(sender);
        let Some(deferral) = self.slot(site, key).and_then(|slot| self.get_mut(slot)) else { return };
        deferral.refusals.retain(|refusal| refusal.host != host);
        if deferral.refusals.is_empty() {
            self.drop(core, site, key);
        }
    }

    /// When a sender's mail may be tried at a site, if no host takes it from these sources now: each has refused it, or
    /// has its own clock or probe. `None`: some host may be tried, or none has refused it.
    pub fn sender_wait(
        &self,
        core: &Core,
        site: SiteId,
        sender: u64,
        sources: SourceSet,
        now: Ms,
    ) -> Option<(Ms, Reason)> {
        let deferral = self.get(self.slot(site, DeferralKey::Sender(sender))?)?;
        let paths = core.sites.list.get(site.0 as usize)?.paths.iter().enumerate();
        let hosts = paths.filter(|(source, _)| sources.has(*source as SourceNo)).flat_map(|(_, path)| &path.hosts);
        let (mut earliest, mut is_refused) = (None::<Ms>, false);
        for no in hosts {
            let host = &core.sites.hosts[*no as usize];
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

    /// Offers the messages that wait at a sender's deferral to the hosts that have not refused it.
    pub fn offer(&mut self, core: &mut Core, slot: u32, now: Ms) {
        let Some(deferral) = self.get(slot) else { return };
        if matches!(deferral.key, DeferralKey::Message(_)) {
            return;
        }
        let site = core.sites.get(deferral.site);
        for (source, path) in site.paths.iter().enumerate() {
            let may = |flow| {
                let flow = core.flows.get(flow);
                flow.sources.has(source as SourceNo) && !flow.is_kept()
            };
            if !deferral.waiters.iter().any(|(flow, ..)| may(*flow)) {
                continue;
            }
            for host in path.hosts.iter().filter(|host| !deferral.is_refused_by(**host, now)) {
                match site.offers.iter_mut().find(|offers| offers.host == *host) {
                    Some(offers) => _ = offers.deferrals.insert(slot),
                    None => site.offers.push(Offers { host: *host, deferrals: IdSet::one(slot), last: 0 }),
                }
            }
        }
        core.sites.mark_dirty(deferral.site);
    }

    /// The next deferral offered to a host, and which of its waiters goes: ordinary mail first.
    pub fn offered(&mut self, core: &mut Core, hop: Hop, now: Ms) -> Option<(u32, usize)> {
        let Hop { site, source, host } = hop;
        loop {
            let entry = core.sites.get(site);
            let at = entry.offers.iter().position(|offers| offers.host == host)?;
            let offers = &entry.offers[at];
            let Some(slot) = offers.deferrals.iter_from(offers.last).next().or_else(|| offers.deferrals.min()) else {
                entry.offers.swap_remove(at);
                return None;
            };
            let deferral = self.get_mut(slot).filter(|d| d.site == site && !d.is_refused_by(host, now));
            if let Some(deferral) = deferral.filter(|deferral| matches!(deferral.key, DeferralKey::Sender(_))) {
                if core.flows.any_kept() {
                    // Put aside, where a resumption finds them.
                    for (flow, class, set) in &deferral.waiters {
                        if core.flows.is_kept(*flow) {
                            entry.lines.insert_all_aside(*flow, *class, set);
                        }
                    }
                    deferral.waiters.retain(|(flow, ..)| !core.flows.is_kept(*flow));
                    entry.lines.set_aside(&core.flows);
                }
                let may = |flow| core.flows.get(flow).sources.has(source);
                let fitting = deferral.waiters.iter().enumerate().filter(|(_, (flow, ..))| may(*flow));
                if let Some((waiter, _)) = fitting.min_by_key(|(_, (_, class, _))| *class != ORDINARY) {
                    return Some((slot, waiter));
                }
            }
            entry.offers[at].deferrals.remove(slot);
        }
    }
}
