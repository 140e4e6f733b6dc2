//! Admission: whether path, hosts and budget allow a site a connection, and the line of the sites that must wait for
//! one.

use std::sync::Arc;

use smallvec::SmallVec;
use stentor_queue::ids::{Ms, SiteId};

use super::Admission;
use super::pool::{Conn, Lane};
use crate::effects::{Effect, SourceNo};
use crate::flows::{FlowNo, ORDINARY};
use crate::sites::path::Path;
use crate::sites::{Hop, Pick, Slot};

/// Transactions of one connection before sites that wait for the budget get their turn.
const TURN_TRANSACTIONS: u32 = 20;

impl Admission<'_> {
    /// Called when mail waits at a site or something there has changed: wakes an idle connection, or opens one if the
    /// site may have one.
    pub fn consider(&mut self, site: SiteId) {
        let sources = self.state.sources();
        let entry = self.state.sites.get(site);
        if self.state.flows.any_kept() {
            entry.lines.set_aside(&self.state.flows);
        }
        if entry.suspended || entry.lines.is_empty() && entry.offers.is_empty() {
            return;
        }
        if entry.paths.len() < sources {
            self.state.sites.ensure_paths(site, sources, self.now);
        }
        if sources == 1 {
            self.consider_path(site, 0);
        } else {
            self.consider_paths(site, sources);
        }
        if !self.state.sites.get(site).offers.is_empty() {
            (0..sources as SourceNo).any(|source| self.consider_offers(site, source));
        }
    }

    fn consider_paths(&mut self, site: SiteId, sources: usize) {
        let entry = self.state.sites.get(site);
        let coming: usize = entry.paths.iter().map(|path| path.coming - path.silent_coming).sum();
        if coming >= entry.lines.len() && !self.state.flows.pools {
            return;
        }
        let mut order: SmallVec<[(usize, SourceNo); 8]> =
            entry.paths.iter().take(sources).enumerate().map(|(i, path)| (path.conns, i as SourceNo)).collect();
        order.sort_unstable();
        for (_, source) in order {
            if self.consider_path(site, source) {
                return;
            }
        }
    }

    /// Wakes or opens a connection of one path. Returns whether it did.
    fn consider_path(&mut self, site: SiteId, source: SourceNo) -> bool {
        let (adapts, time, now) = (self.state.cfg.strategies.adaptation, self.state.time, self.now);
        let default = self.state.cfg.connections_per_site_max;
        let entry = self.state.sites.get(site);
        let waiting = entry.lines.len_for(source, &self.state.flows);
        let max = entry.connections_max(default);
        let path = &mut entry.paths[source as usize];
        if waiting == 0 || path.coming - path.silent_coming >= waiting || adapts && !path.may_begin() {
            return false;
        }
        if let Some(until) = path.wait(self.state.cfg.sources.get(source as usize), time, now) {
            self.state.look_again_at(site, until, now);
            return false;
        }
        if let Some(slot) = path.idle.pop() {
            self.connections().wake(slot);
            return true;
        }
        if path.conns - path.silent >= path.allowed(max, adapts) {
            self.pool.at_site_max += u64::from(path.conns - path.silent >= max);
            return false;
        }
        let ordinary = entry.lines.ordinary_for(source, &self.state.flows);
        let pick = self.state.sites.pick(site, source, now, &mut self.state.rng);
        let Some(target) = self.target_or_wait(site, pick) else { return false };
        self.open_in_budget(site, source, target, ordinary).is_some()
    }

    /// The target to try; if there is none, the site is looked at again when there may be one.
    pub(super) fn target_or_wait(&mut self, site: SiteId, pick: Pick) -> Option<usize> {
        match pick {
            Pick::Target(target) => return Some(target),
            Pick::Wait(Some(until)) => {
                self.end_passing(site);
                self.state.look_again_at(site, until, self.now);
            }
            Pick::Full(until) => self.state.look_again_at(site, until, self.now),
            Pick::Wait(None) => {}
        }
        None
    }

    /// Ends the passing of messages in a run of the queue: they have had their try when no host is left that may be
    /// tried.
    fn end_passing(&mut self, site: SiteId) {
        if !self.state.sites.get(site).lines.has_passing() {
            return;
        }
        let mut lines = std::mem::take(&mut self.state.sites.get(site).lines);
        lines.end_passing(&self.state.flows, |sources| self.state.sites.clock_of(site, sources, self.now).is_some());
        lines.set_aside(&self.state.flows);
        self.state.sites.get(site).lines = lines;
    }

    /// Opens a connection if the budget has room; otherwise the site waits in line for one.
    pub(super) fn open_in_budget(
        &mut self,
        site: SiteId,
        source: SourceNo,
        target: usize,
        ordinary: bool,
    ) -> Option<Slot> {
        let budget = if ordinary { self.state.cfg.connections_max } else { self.state.cfg.bulk_budget() };
        if self.pool.fast >= budget && !self.make_room(budget) {
            self.want(site, source);
            self.connections().let_overdue_give_way();
            return None;
        }
        Some(self.open(site, source, target))
    }

    /// Makes room in the budget by closing an idle connection. Its QUIT is charged to the slow lane if that has room;
    /// otherwise its place becomes free when it is gone. Returns whether there is room now.
    fn make_room(&mut self, budget: usize) -> bool {
        let wanted = self.state.flows.in_line() + 1;
        while self.pool.fast >= budget && self.pool.closing_fast < wanted {
            let Some(slot) = self.pool.any_idle(&mut self.state.rng) else { break };
            self.connections().close(slot);
        }
        self.pool.fast < budget
    }

    fn open(&mut self, site: SiteId, source: SourceNo, target: usize) -> Slot {
        let now = self.now;
        let entry = self.state.sites.get(site);
        let path = &mut entry.paths[source as usize];
        path.conns += 1;
        path.coming += 1;
        let (to, host) = (entry.targets[target].clone(), path.hosts[target]);
        // Silent connections serve nobody.
        let beside = path.greeted.saturating_sub(path.silent - path.silent_coming);
        let beside = if self.state.sites.hosts[host as usize].greeted > 0 { beside } else { 0 };
        let hop = Hop { site, source, host };
        let slot = self.pool.add(|id| Conn::new(id, hop, Arc::clone(&to.host), to.lmtp, beside, now));
        let host = self.state.sites.host(host);
        host.conns += 1;
        if host.fails > 0 {
            host.probe = Some(slot);
        }
        if let Some(conn) = self.pool.at(slot).map(|c| c.id) {
            self.state.effects.push(Effect::Connect { conn, site, source, target: to });
        }
        self.connections().arm_silence(slot);
        slot
    }

    /// Puts a site in line for a connection from a source, once for each flow of the class that waits for one.
    fn want(&mut self, site: SiteId, source: SourceNo) {
        let orders = self.state.cfg.strategies.order;
        let entry = self.state.sites.get(site);
        let at: Ms = self.now + if orders { entry.history.later_ms(self.now) } else { 0 };
        let class = if entry.lines.ordinary_for(source, &self.state.flows) { ORDINARY } else { 1 };
        for line in &mut entry.lines.list {
            let is_of_class = line.class == class && !line.wants && !line.waiting.is_empty();
            if is_of_class && self.state.flows.get(line.flow).sources.has(source) {
                line.wants = true;
                self.state.flows.want(line.flow, site, at);
            }
        }
    }

    /// The next site in line for a connection, if the budget has room for its kind of mail.
    pub fn next_in_line(&mut self) -> Option<(FlowNo, SiteId)> {
        if self.pool.fast >= self.state.cfg.connections_max {
            return None;
        }
        let bulk_too = self.pool.fast < self.state.cfg.bulk_budget();
        let (flow, site) = self.state.flows.next_wanting(self.state.cfg.ordinary_per_bulk, bulk_too)?;
        if let Some(line) = self.state.sites.get(site).lines.line(flow) {
            line.wants = false;
        }
        Some((flow, site))
    }

    /// Puts a site that has got a connection in its turn at the end of the line for its next one.
    pub fn want_more(&mut self, site: SiteId) {
        let (adapts, default) = (self.state.cfg.strategies.adaptation, self.state.cfg.connections_per_site_max);
        let entry = self.state.sites.get(site);
        let max = entry.connections_max(default);
        let coming: usize = entry.paths.iter().map(|path| path.coming - path.silent_coming).sum();
        if coming >= entry.lines.len() {
            return;
        }
        let more = |path: &Path| path.conns - path.silent < path.allowed(max, adapts);
        let sources: SmallVec<[SourceNo; 4]> =
            entry.paths.iter().enumerate().filter(|(_, path)| more(path)).map(|(i, _)| i as SourceNo).collect();
        for source in sources {
            self.want(site, source);
        }
    }

    /// Whether site, path and rate let a transaction begin.
    pub fn may_begin(&mut self, hop: Hop) -> bool {
        let adapts = self.state.cfg.strategies.adaptation;
        let entry = self.state.sites.get(hop.site);
        if entry.suspended {
            return false;
        }
        if self.state.flows.any_kept() {
            entry.lines.set_aside(&self.state.flows);
        }
        let path = &mut entry.paths[hop.source as usize];
        if adapts && !path.may_begin() {
            return false;
        }
        let wait = path.wait(self.state.cfg.sources.get(hop.source as usize), self.state.time, self.now);
        if let Some(until) = wait {
            self.state.look_again_at(hop.site, until, self.now);
        }
        wait.is_none()
    }

    /// Whether the connection must close for others that wait for the budget.
    pub fn yields(&mut self, slot: Slot) -> bool {
        let ordinary = self.state.flows.wanting[ORDINARY] > self.pool.closing_fast;
        let any = self.state.flows.in_line() > self.pool.closing_fast;
        if !any || self.pool.fast < self.state.cfg.bulk_budget() {
            return false;
        }
        let Some(conn) = self.pool.at(slot).filter(|conn| conn.lane == Lane::Fast) else { return false };
        let (hop, begun) = (conn.hop, conn.begun);
        let is_urgent = ordinary && self.pool.fast >= self.state.cfg.connections_max;
        if begun == 0 || !is_urgent && begun < TURN_TRANSACTIONS {
            return false;
        }
        !self.state.sites.get(hop.site).lines.ordinary_for(hop.source, &self.state.flows)
    }
}
