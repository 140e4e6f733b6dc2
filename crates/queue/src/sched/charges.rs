//! What a failed attempt costs, so that no host can make us try without end.
//!
//! **Promise.** No sequence of replies, connection ends or both leads to a new attempt without a clock that grows, or
//! without using up something finite that only a delivery gives back:
//!
//! | the connection | what it costs |
//! |---|---|
//! | had delivered something | the host nothing; its limit of transactions is learned |
//! | had given somebody a fate, and delivered nothing | the host a pause: 1, 2, 4, 8, 16, 30 s, then `host_retry` |
//! | was refused at once by the network; was lost before anything was done, for the first time | the same |
//! | got 421 while others to the host work | the path's window shrinks below what it had |
//! | any other | the host `host_retry` |
//!
//! A message that comes back without a clock uses up some of its returns at the site (`RETURNS_MAX`), and the one that the
//! host refused uses up most. When none are left it is held there with a clock of its own, and each further return
//! doubles that clock. While the host serves others it is charged nothing for it: one message that is never taken must not
//! stop a host.

use super::clocks::HoldKey;
use super::failing::{Drain, DrainWhat};
use super::reasons::Reply;
use super::sites::{HostNo, Pick, Sites};
use super::{Dsn, Scheduler, SourceNo};
use crate::ids::{ConnId, MessageNo, Ms, SiteId};

/// Short pauses of a host before `host_retry` begins. Each lasts a second longer than all before it together, up to 30 s, so a
/// host is found again within the length of its outage plus one second.
const PAUSES_MAX: u8 = 6;
const FIRST_PAUSE_MS: Ms = 1_000;
const PAUSE_MS_MAX: Ms = 30_000;
/// Jitter takes at most one part in 6 of a pause: any four pauses then last over 10 s together, and six over 30 s.
const PAUSE_JITTER_PART: Ms = 6;
/// Returns that a message has at a site until it is held there.
pub(super) const RETURNS_MAX: u8 = 16;
/// What it costs if the host did not look at the message, or took others on that connection first.
pub(super) const RETURN_BEHIND: u8 = 1;
/// What a rate reply costs.
pub(super) const RETURN_RATE: u8 = 4;
/// How much later than its host the message comes back that the host refused, so that others are tried before it.
const STAND_BACK_MS: Ms = 5_000;
/// Without the memory of hosts.
const FORGOTTEN_MS: Ms = 1_000;

/// What a host is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Charge {
    Pause,
    Retry,
}

/// A connection that ends, or that is told to.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub site: SiteId,
    pub source: SourceNo,
    pub host: HostNo,
    /// Transactions that were answered on it.
    pub good: u32,
    pub delivered: bool,
    /// Somebody got a fate.
    pub settled: bool,
    /// Connections of the path that go on, if the host has greeted one.
    pub others: usize,
}

impl Scheduler {
    /// Of a connection that is still in the books.
    pub(super) fn ending(&mut self, conn: ConnId) -> Option<Ending> {
        let c = self.conns.get(conn)?;
        let (site, source, host, own) = (c.site, c.source, c.host, usize::from(!c.silent));
        let (good, delivered, settled, greeted) = (c.good, c.delivered, c.settled, u32::from(c.greeted));
        let path = &self.sites.get(site).paths[source as usize];
        let others = (path.conns - path.silent).saturating_sub(own);
        let others = if self.sites.host(host).greeted > greeted { others } else { 0 };
        Some(Ending { site, source, host, good, delivered, settled, others })
    }

    /// 421 to a command. Behind what was served it is a limit of the host; beside others that are served, on their
    /// number; else its failure. Whether `front`, the message that it was said to, is held from now on.
    pub(super) fn refused_421(&mut self, end: Ending, front: Option<MessageNo>, reply: &Reply, now: Ms) -> bool {
        let is_rate = super::verdict::says_rate(&reply.text);
        if is_rate && self.cfg.strategies.adaptation && self.path(end.site, end.source).proven {
            self.too_fast(end.site, end.source, reply, now);
            return front.is_some_and(|no| self.returned(end.site, no, RETURN_RATE, reply, now));
        }
        if end.delivered {
            self.transactions_learned(end, reply);
            return front.is_some_and(|no| self.returned(end.site, no, RETURN_BEHIND, reply, now));
        }
        if end.others > 0 && !end.settled {
            self.crowded(end.site, end.source, end.others, reply, now);
            // Without adaptation nothing is learned from it, and the next one is opened at once.
            let adapts = self.cfg.strategies.adaptation;
            let cost = if adapts { RETURN_BEHIND } else { self.front_cost(end.site) };
            return front.is_some_and(|no| self.returned(end.site, no, cost, reply, now));
        }
        let charge = if end.settled { Charge::Pause } else { Charge::Retry };
        self.in_vain(end, charge, front, reply, now)
    }

    /// A connection lost in a transaction, or before it had one. The path is suspect.
    pub(super) fn host_lost(&mut self, end: Ending, front: Option<MessageNo>, reply: &Reply, now: Ms) -> bool {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(end.site).reason = reason;
        self.path(end.site, end.source).distrust();
        if end.delivered {
            self.transactions_learned(end, reply);
            let cost = self.front_cost(end.site);
            return front.is_some_and(|no| self.returned(end.site, no, cost, reply, now));
        }
        let is_first = self.sites.host(end.host).fails == 0;
        let charge = if end.settled || is_first { Charge::Pause } else { Charge::Retry };
        self.in_vain(end, charge, front, reply, now)
    }

    /// A connection on which nothing was delivered.
    fn in_vain(&mut self, end: Ending, charge: Charge, front: Option<MessageNo>, reply: &Reply, now: Ms) -> bool {
        let cost = self.front_cost(end.site);
        let is_held = front.is_some_and(|no| self.returned(end.site, no, cost, reply, now));
        // It is this message, not the host.
        if is_held && self.sites.host(end.host).fails == 0 {
            return true;
        }
        self.charge_host(end.site, end.source, end.host, charge, reply, now);
        if let Some(no) = front.filter(|_| !is_held) {
            self.stand_back(end.site, end.source, no, now);
        }
        is_held
    }

    /// The host takes no more than so many transactions on a connection.
    fn transactions_learned(&mut self, end: Ending, reply: &Reply) {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(end.site).reason = reason;
        let path = self.path(end.site, end.source);
        path.transactions_max = path.transactions_max.min(end.good.max(1));
    }

    /// 421 to a new connection beside `working` others of the path. The limit is that host's: where the site has another
    /// that may be tried, only this one gets no more than it has for a while.
    pub(super) fn host_full(
        &mut self,
        site: SiteId,
        source: SourceNo,
        host: HostNo,
        working: usize,
        reply: &Reply,
        now: Ms,
    ) {
        let entry = self.sites.host(host);
        let own = entry.conns;
        if own > 0 {
            entry.full(own, now);
        }
        if own > 0 && matches!(self.sites.pick(site, source, now, &mut self.rng), Pick::Target(_)) {
            let reason = self.reasons.keep(reply.clone());
            self.sites.get(site).reason = reason;
        } else {
            self.crowded(site, source, working, reply, now);
        }
    }

    /// 421 to a connection beside `working` others.
    pub(super) fn crowded(&mut self, site: SiteId, source: SourceNo, working: usize, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(site).reason = reason;
        self.path(site, source).crowded(working, now);
    }

    /// What a message uses up that the host looked at: each target of the site may refuse it once, one alone twice.
    fn front_cost(&mut self, site: SiteId) -> u8 {
        let targets = self.sites.get(site).targets.len().clamp(2, usize::from(RETURNS_MAX)) as u8;
        RETURNS_MAX.div_ceil(targets)
    }

    /// A message comes back without a clock. Whether it is held now.
    pub(super) fn returned(&mut self, site: SiteId, no: MessageNo, cost: u8, reply: &Reply, now: Ms) -> bool {
        if !self.messages.is_live(no) {
            return false;
        }
        let slot = self.hold_slot(site, HoldKey::Message(no), reply);
        if self.clocks.use_up(slot, cost) {
            self.charge_hold(slot, now);
            return true;
        }
        false
    }

    /// Where the hosts are left alone for a while, others are to be tried first then.
    fn stand_back(&mut self, site: SiteId, source: SourceNo, no: MessageNo, now: Ms) {
        let own = self.waits_in_line(site, no);
        if self.sites.get(site).lines.len() > usize::from(own)
            && let Pick::Wait(Some(until)) = self.sites.pick(site, source, now, &mut self.rng)
        {
            self.hold_until(site, no, until + STAND_BACK_MS);
        }
    }

    pub(super) fn waits_in_line(&mut self, site: SiteId, no: MessageNo) -> bool {
        let flow = self.messages.flow(no);
        flow.and_then(|flow| self.sites.get(site).lines.line(flow)).is_some_and(|line| line.waiting.contains(no.0))
    }

    /// A host has failed: it is left alone for a time, the longer the more often in a row.
    pub(super) fn charge_host(
        &mut self,
        site: SiteId,
        source: SourceNo,
        host: HostNo,
        charge: Charge,
        reply: &Reply,
        now: Ms,
    ) {
        let reason = self.reasons.keep(reply.clone());
        let retry = self.cfg.host_retry;
        let entry = &mut self.sites.hosts[host as usize];
        entry.reason = reason;
        // Otherwise the clock already runs: attempts under way at the same time have failed too.
        if entry.until <= now {
            entry.fails = entry.fails.saturating_add(1);
            let pause = (FIRST_PAUSE_MS + entry.paused_ms).min(PAUSE_MS_MAX);
            let delay = if charge == Charge::Pause && entry.pauses < PAUSES_MAX && pause < retry.min_ms {
                let pause = pause - self.rng.u64(0..=pause / PAUSE_JITTER_PART);
                entry.pauses += 1;
                entry.paused_ms += pause;
                pause
            } else {
                entry.retries = entry.retries.saturating_add(1);
                retry.delay_ms(entry.retries, &mut self.rng)
            };
            entry.until = now + delay;
        }
        if !self.cfg.strategies.memory {
            (entry.until, entry.fails) = (now + FORGOTTEN_MS, 0);
        }
        let site_entry = self.sites.get(site);
        site_entry.reason = reason;
        site_entry.history.failed(now);
        if matches!(self.sites.pick(site, source, now, &mut self.rng), Pick::Wait(_)) {
            self.path(site, source).distrust();
            self.site_down(site, source, reply);
        }
        self.sites.mark_dirty(site);
    }

    /// 521 at the greeting is permanent for that host (RFC 7504 section 3). Where all hosts of a site have said so, from
    /// each source, what waits there fails; with others the mail goes to those.
    pub(super) fn takes_no_mail(&mut self, host: HostNo, reply: &Reply) {
        self.sites.host(host).is_closed = true;
        let sources = self.sources();
        let at = self.sites.host(host).sites.clone();
        for site in at.iter().map(SiteId) {
            let Sites { list, hosts, .. } = &self.sites;
            let paths = &list[site.0 as usize].paths;
            let is_closed = |no: &HostNo| hosts[*no as usize].is_closed;
            if paths.len() >= sources && paths.iter().flat_map(|path| &path.hosts).all(is_closed) {
                let reply = Reply { dsn: reply.dsn.or(Some(Dsn::new(5, 3, 2))), ..reply.clone() };
                for source in 0..paths.len() as SourceNo {
                    let what = DrainWhat::Site(site, source);
                    self.drains.push_back(Drain { what, expired_only: false, reply: reply.clone() });
                }
            }
        }
    }

    /// The host has answered as a healthy host does: its clock ends, for everybody. Only a delivery gives its short
    /// pauses back.
    pub(super) fn host_well(&mut self, host: HostNo, delivered: bool) {
        let entry = self.sites.host(host);
        if delivered {
            (entry.pauses, entry.paused_ms) = (0, 0);
        }
        if entry.fails == 0 {
            return;
        }
        (entry.fails, entry.retries, entry.until, entry.probe) = (0, 0, 0, None);
        if self.flows.coalesces {
            let at = self.sites.host(host).sites.clone();
            for site in at.iter().map(SiteId) {
                self.site_returned(site);
            }
        }
        self.wake_sites_of(host);
    }

    /// A connection is gone that was lost or told to go, with what was open on it.
    pub(super) fn ended(&mut self, gone: &super::conns::Conn, why: &super::CloseReason, now: Ms) {
        use super::CloseReason;
        let path = &self.sites.get(gone.site).paths[gone.source as usize];
        let others = path.conns - path.silent;
        let others = if self.sites.host(gone.host).greeted > 0 { others } else { 0 };
        let end = Ending {
            site: gone.site,
            source: gone.source,
            host: gone.host,
            good: gone.good,
            delivered: gone.delivered,
            settled: gone.settled,
            others,
        };
        let reply = |code, text: &std::sync::Arc<str>| Reply {
            code,
            dsn: None,
            text: text.clone(),
            host: Some(gone.host_name.clone()),
        };
        let front = gone.txs.first().map(|tx| tx.no).filter(|_| !gone.charged);
        let reply = match why {
            CloseReason::Refused { text } => reply(421, text),
            CloseReason::Lost { text } => reply(0, text),
            CloseReason::Normal => reply(0, &"closed".into()),
        };
        // One that has served us is left idle or leaves us as it likes.
        let in_vain = front.is_some() || !(gone.delivered || gone.settled);
        match why {
            _ if gone.charged || !in_vain => {}
            // Ours to decide, and nobody's failure.
            CloseReason::Normal => {}
            CloseReason::Refused { .. } => drop(self.refused_421(end, front, &reply, now)),
            CloseReason::Lost { .. } if gone.cut => {
                self.charge_host(end.site, end.source, end.host, Charge::Retry, &reply, now);
            }
            CloseReason::Lost { .. } => drop(self.host_lost(end, front, &reply, now)),
        }
        for tx in gone.txs.iter().skip(usize::from(front.is_some())) {
            self.returned(gone.site, tx.no, RETURN_BEHIND, &reply, now);
        }
    }
}
