//! Two lanes, and silence is what changes lanes.
//!
//! A connection that is connecting or in a transaction and silent for longer than max(`fast_silence_ms`, 3 times the
//! 99th percentile of its path's own gaps) is charged to the slow lane and keeps its time-outs there; its fast slot is
//! free, its host gets no other connection while it lasts, and another target of the site is tried at once. At its next
//! sign of life it is charged to the fast lane again, as far as that has room.
//!
//! When the slow lane is full and a site stands in line for the budget, the connection silent for longest gives way
//! ([`Effect::GiveWay`]); its host learns from that as from a time-out. The shell refuses (`stays`) if the end of some
//! data is out: cutting there delivers twice. Then the next one is asked.

use super::Scheduler;
use super::conns::{Conns, Slot, State};
use super::effects::Effect;
use super::sites::HostNo;
use crate::ids::{ConnId, Ms};

const P99_TIMES: Ms = 3;
/// How soon a silent connection without room in the slow lane is looked at again.
const AGAIN_MS: Ms = 250;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    Fast,
    Slow,
}

/// Silence that changes lanes.
pub(super) fn silence_ms(least: Ms, p99_ms: Option<Ms>) -> Ms {
    least.max(p99_ms.unwrap_or(0) * P99_TIMES)
}

impl Scheduler {
    fn silence_ms(&mut self, slot: Slot) -> Ms {
        let least = self.cfg.fast_silence_ms;
        let Some(conn) = self.conns.at(slot) else { return least };
        let (site, source) = (conn.site, conn.source);
        silence_ms(least, self.sites.get(site).paths[source as usize].gaps.p99_ms())
    }

    /// Sees to it that the connection is looked at when it has been silent for too long.
    pub(super) fn arm_silence(&mut self, slot: Slot, now: Ms) {
        let at = now + self.silence_ms(slot);
        self.arm(slot, at);
    }

    /// A connecting or busy connection's timer.
    pub(super) fn maybe_silent(&mut self, slot: Slot, now: Ms) {
        let silence_ms = self.silence_ms(slot);
        let Some(conn) = self.conns.at(slot) else { return };
        let (id, at) = (conn.id, conn.since + silence_ms);
        if conn.lane == Lane::Slow || !self.cfg.strategies.lanes {
            return;
        }
        if at > now {
            self.arm(slot, at);
        } else if self.conns.slow < self.cfg.slow_connections_max {
            self.enter_slow_lane(slot);
            self.serve_wanting(now);
        } else {
            self.conns.overdue.push_back((slot, id));
            self.conns.prune_lines();
            self.let_overdue_give_way(now);
            self.arm(slot, now + silence_ms.max(AGAIN_MS));
        }
    }

    fn enter_slow_lane(&mut self, slot: Slot) {
        let Some(conn) = self.conns.at(slot) else { return };
        conn.lane = Lane::Slow;
        let (id, site, source, host) = (conn.id, conn.site, conn.source, conn.host);
        let newly = !std::mem::replace(&mut conn.silent, true);
        let connecting = conn.state == State::Connecting;
        self.conns.fast -= 1;
        self.conns.slow += 1;
        self.conns.slow_line.push_back((slot, id));
        self.conns.prune_lines();
        if newly {
            let path = &mut self.sites.get(site).paths[source as usize];
            path.silent += 1;
            path.silent_coming += usize::from(connecting);
            self.sites.host(host).silent += 1;
        }
        // Perhaps another of its hosts answers.
        self.sites.mark_dirty(site);
    }

    /// Silent connections go to the slow lane as far as there is room now.
    pub(super) fn fill_slow_lane(&mut self, now: Ms) {
        while self.conns.slow < self.cfg.slow_connections_max
            && let Some((slot, id)) = self.conns.overdue.pop_front()
        {
            let silence_ms = self.silence_ms(slot);
            if self.is_overdue(slot, id, now, silence_ms) {
                self.enter_slow_lane(slot);
            }
        }
    }

    fn is_overdue(&mut self, slot: Slot, id: ConnId, now: Ms, silence_ms: Ms) -> bool {
        self.conns.at(slot).is_some_and(|conn| {
            conn.id == id
                && conn.lane == Lane::Fast
                && conn.since + silence_ms <= now
                && matches!(conn.state, State::Connecting | State::Ready | State::Busy)
        })
    }

    /// While sites stand in line and silent connections have no room in the slow lane: those silent for longest go.
    pub(super) fn let_overdue_give_way(&mut self, now: Ms) {
        let overdue = self.conns.overdue.len();
        let wanted = (self.flows.wanting[0] + self.flows.wanting[1]).min(overdue);
        while self.conns.cutting < wanted {
            let next = self.conns.slow_line.pop_front().map(|next| (next, Lane::Slow));
            let Some(((slot, id), lane)) =
                next.or_else(|| self.conns.overdue.pop_front().map(|next| (next, Lane::Fast)))
            else {
                return;
            };
            let silence_ms = self.silence_ms(slot);
            let overdue = lane == Lane::Slow || self.is_overdue(slot, id, now, silence_ms);
            let Some(conn) = self.conns.at(slot) else { continue };
            let there = conn.id == id && conn.lane == lane && conn.state != State::Closing;
            if there && overdue && !conn.cut && !conn.stays {
                conn.cut = true;
                self.conns.cutting += 1;
                self.effects.push(Effect::GiveWay { conn: id });
            }
        }
    }

    /// The answer to [`Effect::GiveWay`]: the end of some data is out, the connection keeps its time-outs.
    pub fn stays(&mut self, conn: ConnId, now: Ms) {
        let now = self.steady(now);
        let Some(entry) = self.conns.get(conn).filter(|entry| entry.cut) else { return };
        (entry.cut, entry.stays) = (false, true);
        self.conns.cutting -= 1;
        self.let_overdue_give_way(now);
    }

    /// A sign of life that ends a silence.
    pub(super) fn unsilence(&mut self, slot: Slot) {
        let Some(conn) = self.conns.at(slot) else { return };
        conn.stays = false;
        if !std::mem::take(&mut conn.silent) {
            return;
        }
        let (site, source, host, connecting) = (conn.site, conn.source, conn.host, conn.state == State::Connecting);
        let path = &mut self.sites.get(site).paths[source as usize];
        path.silent -= 1;
        path.silent_coming -= usize::from(connecting);
        self.host_heard(host);
        self.sites.mark_dirty(site);
    }

    /// One of the host's connections is not silent any more, or gone.
    pub(super) fn host_heard(&mut self, host: HostNo) {
        let entry = self.sites.host(host);
        entry.silent -= 1;
        if entry.silent == 0 {
            self.wake_sites_of(host);
        }
    }

    /// Back from the slow lane, if the budget has room.
    pub(super) fn back_to_fast_lane(&mut self, slot: Slot) {
        if self.conns.fast >= self.cfg.connections_max {
            return;
        }
        if let Some(conn) = self.conns.at(slot)
            && conn.lane == Lane::Slow
            && !conn.silent
        {
            conn.lane = Lane::Fast;
            self.conns.slow -= 1;
            self.conns.fast += 1;
        }
    }

    /// The slot of a connection, for the books of lanes.
    pub(super) fn heard(&mut self, conn: ConnId, now: Ms) {
        let slot = Conns::slot_of(conn);
        self.unsilence(slot);
        self.back_to_fast_lane(slot);
        self.fill_slow_lane(now);
    }
}
