//! The retry clock of a host address, one per source, for all sites that use it.
//!
//! Each failure in a row lengthens the clock: first by short pauses, if the kind of failure allows them, then by
//! `host_retry`. When it has run out, one connection (the probe) may try the host. A normal answer ends the clock; only
//! a delivery restores the short pauses. A flush lets the probe go at once; if that fails, the clock is as it was
//! before the flush. A host that worked a moment ago is probed ahead of its clock as well, a bounded number of times
//! (`sites::early`).

use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{Ms, SiteId};

use super::FailureState;
use super::drains::{Drain, DrainWhat};
use crate::config::Backoff;
use crate::effects::SourceNo;
use crate::reasons::HostReply;
use crate::sites::early::EarlyProbes;
use crate::sites::{Hop, Host, HostNo, Pick, Sites, telling};
use crate::state::SchedState;

/// Short pauses of a host before `host_retry` begins. Each lasts a second longer than all previous ones together, up to
/// 30 s, so a host is found again within the length of its outage plus one second.
const PAUSES_MAX: u8 = 6;
const FIRST_PAUSE_MS: Ms = 1_000;
const PAUSE_MS_MAX: Ms = 30_000;
/// Jitter takes at most one part in 6 of a pause: any four pauses then last over 10 s together, and six over 30 s.
const PAUSE_JITTER_PART: Ms = 6;
/// Retry delay when hosts are not remembered.
const FORGOTTEN_MS: Ms = 1_000;

/// How a host's failure is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    Pause,
    Retry,
    /// Like `Retry`, but without early probes: the host would answer the same (521, AUTH refused, a missing extension).
    Sure,
}

impl Host {
    /// Charges a failure.
    fn charge(&mut self, charge: Charge, retry: Backoff, rng: &mut fastrand::Rng, now: Ms) {
        // Otherwise the clock already runs: concurrent attempts have failed too.
        if self.until > now {
            return;
        }
        if self.fails == 0 {
            self.failing_since = now;
            self.early = if charge == Charge::Sure { EarlyProbes::NONE } else { EarlyProbes::after(self.good_at, now) };
            // The early probes were paid for by that delivery, however the row ends.
            self.good_at = 0;
        }
        // An attempt ahead of the clock teaches nothing new and does not lengthen it.
        let early = std::mem::take(&mut self.ended_early);
        if early > now {
            self.until = early;
        } else {
            self.lengthen(charge, retry, rng, now);
        }
        if charge != Charge::Sure
            && let Some(at) = self.early.take(self.failing_since, self.until, now)
        {
            self.ended_early = std::mem::replace(&mut self.until, at);
        }
    }

    /// Begins the clock, longer than the last one.
    fn lengthen(&mut self, charge: Charge, retry: Backoff, rng: &mut fastrand::Rng, now: Ms) {
        self.fails = self.fails.saturating_add(1);
        let pause = (FIRST_PAUSE_MS + self.paused_ms).min(PAUSE_MS_MAX);
        let delay = if charge == Charge::Pause && self.pauses < PAUSES_MAX && pause < retry.min_ms {
            let pause = pause - rng.u64(0..=pause / PAUSE_JITTER_PART);
            self.pauses += 1;
            self.paused_ms += pause;
            pause
        } else {
            self.retries = self.retries.saturating_add(1);
            retry.delay_ms(self.retries, rng)
        };
        self.until = now + delay;
    }

    /// Records a normal answer. Returns whether it ended a clock.
    pub fn succeeded(&mut self, delivered: bool, now: Ms) -> bool {
        if delivered {
            (self.pauses, self.paused_ms, self.good_at) = (0, 0, now);
        }
        let had_failed = self.fails > 0;
        self.ended_early = 0;
        if had_failed {
            (self.fails, self.retries, self.until, self.probe) = (0, 0, 0, None);
        }
        had_failed
    }
}

impl Host {
    /// Whether the host lacks what mail requires, or takes no mail, as it said since its clock began. Later it may take
    /// mail again.
    pub fn is_closed(&self, now: Ms) -> bool {
        self.has_closed && self.until > now
    }

    /// Whether the host has failed and may be probed ahead of its clock.
    pub fn is_probed_early(&self, now: Ms) -> bool {
        self.fails > 0 && self.early.may_go(self.failing_since, now)
    }
}

impl FailureState {
    /// Charges a failed host, which is left alone for a time. If none of the site's hosts may be tried now, overdue
    /// mail there expires, unless another source may still send it (`Choice::next_of`).
    pub fn charge_host(&mut self, state: &mut SchedState, hop: Hop, charge: Charge, reply: &HostReply, now: Ms) {
        let Hop { site, source, host } = hop;
        let reason = state.reasons.keep(reply.clone());
        let entry = state.sites.host(host);
        entry.reason = reason;
        entry.charge(charge, state.cfg.host_retry, &mut state.rng, now);
        if !state.cfg.strategies.memory {
            (entry.until, entry.fails) = (now + FORGOTTEN_MS, 0);
        }
        let hosts = state.sites.list[site.0 as usize].paths[usize::from(source)].hosts.iter();
        let reason = telling(reason, hosts.map(|no| &state.sites.hosts[*no as usize]));
        let told = state.reasons.get(reason).cloned();
        let reply = told.as_ref().unwrap_or(reply);
        let entry = state.sites.get(site);
        entry.reason = reason;
        entry.history.failed(now);
        if matches!(state.sites.pick(site, source, now, &mut state.rng), Pick::Wait(_)) {
            state.path(site, source).distrust();
            self.drains.push_back(Drain::expired(DrainWhat::Site(site, source), reply));
            state.sites.refresh(site, false);
        }
        state.sites.mark_dirty(site);
    }

    /// Closes a host that lacks something that the site's mail requires. If all hosts that this source may use lack it,
    /// waiting mail that has no other source fails.
    pub fn close_unfit_host(&mut self, state: &mut SchedState, hop: Hop, reply: &HostReply, now: Ms) {
        state.sites.host(hop.host).has_closed = true;
        let Sites { list, hosts, .. } = &state.sites;
        let all = &list[hop.site.0 as usize].paths[usize::from(hop.source)].hosts;
        if all.iter().all(|no| hosts[*no as usize].is_closed(now)) {
            self.drains.push_back(Drain::all(DrainWhat::Site(hop.site, hop.source), reply));
        }
    }

    /// Handles 521 at the greeting, which is permanent for that host (RFC 7504 section 3). If all hosts of a site have
    /// answered so, to each source, waiting mail fails; otherwise it goes to the other hosts.
    pub fn takes_no_mail(&mut self, state: &mut SchedState, host: HostNo, reply: &HostReply, now: Ms) {
        state.sites.host(host).has_closed = true;
        let sources = state.sources();
        let at = state.sites.host(host).sites.clone();
        for site in at.iter().map(SiteId) {
            let Sites { list, hosts, .. } = &state.sites;
            let paths = &list[site.0 as usize].paths;
            let is_closed = |no: &HostNo| hosts[*no as usize].is_closed(now);
            if paths.len() >= sources && paths.iter().flat_map(|path| &path.hosts).all(is_closed) {
                let reply = HostReply { dsn: reply.dsn.or(Some(Enhanced::new(5, 3, 2))), ..reply.clone() };
                for source in 0..paths.len() as SourceNo {
                    self.drains.push_back(Drain::all(DrainWhat::Site(site, source), &reply));
                }
            }
        }
    }
}
