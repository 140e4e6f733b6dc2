//! Connections for offers: mail of a sender that another host of the site refused at MAIL.

use stentor_queue::ids::SiteId;

use super::Admission;
use crate::effects::SourceNo;
use crate::flows::ORDINARY;
use crate::sites::{Hop, Slot};

impl Admission<'_> {
    /// Wakes or opens a connection for the offers of a path, one at a time. Returns whether it did.
    pub(super) fn consider_offers(&mut self, site: SiteId, source: SourceNo) -> bool {
        let (adapts, now) = (self.state.cfg.strategies.adaptation, self.now);
        let path = &mut self.state.sites.get(site).paths[source as usize];
        let is_coming = path.offered_conn.is_some_and(|slot| self.pool.at(slot).is_some_and(|conn| !conn.silent));
        if is_coming || adapts && !path.may_begin() {
            return false;
        }
        if let Some(until) = path.wait(self.state.cfg.sources.get(source as usize), self.state.time, now) {
            self.state.look_again_at(site, until, now);
            return false;
        }
        let hosts = path.hosts.clone();
        let mut offered = hosts.clone();
        offered.retain(|host| self.deferrals.offered(self.state, Hop { site, source, host: *host }, now).is_some());
        let first = offered.first().copied();
        let first = first.and_then(|host| self.deferrals.offered(self.state, Hop { site, source, host }, now));
        let Some((slot, at)) = first else { return false };
        let waiters = self.deferrals.get(slot).and_then(|deferral| deferral.waiters.get(at));
        let Some((flow, class)) = waiters.map(|(flow, class, _)| (*flow, *class)) else { return false };
        let path = self.state.path(site, source);
        let mut is_theirs = |slot: &Slot| self.pool.at(*slot).is_some_and(|conn| offered.contains(&conn.hop.host));
        if let Some(at) = path.idle.iter().position(&mut is_theirs) {
            let slot = path.idle.remove(at);
            path.offered_conn = Some(slot);
            self.connections().wake(slot);
            return true;
        }
        let pick = self.state.sites.pick_of(site, source, now, &mut self.state.rng, |host| offered.contains(&host));
        let Some(target) = self.target_or_wait(site, pick) else { return false };
        let default = self.state.cfg.connections_per_site_max;
        let max = self.state.sites.get(site).connections_max(default);
        let is_new = self.state.sites.host(hosts[target]).conns == 0;
        let path = self.state.path(site, source);
        let open = path.conns - path.silent;
        // The first connection to a host may exceed the window: the others may be busy at the host that refused.
        if open >= max || open >= path.allowed(max, adapts) + usize::from(is_new) {
            if let Some(slot) = path.idle.first().copied().filter(|_| is_new) {
                self.connections().close(slot);
            }
            return false;
        }
        let slot = self.open_in_budget(site, source, target, class == ORDINARY);
        self.state.path(site, source).offered_conn = slot;
        if slot.is_none() && self.state.sites.get(site).lines.begin_to_want(flow, class) {
            self.state.flows.want(flow, site, now);
        }
        slot.is_some()
    }
}
