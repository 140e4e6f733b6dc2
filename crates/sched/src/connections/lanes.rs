//! The fast and the slow lane; silence moves a connection to the slow one.
//!
//! A connection that is connecting or in a transaction and silent for longer than max(`fast_silence_ms`, 3 times the
//! 99th percentile of its path's gaps) is charged to the slow lane and keeps its time-outs there. Its place in the fast
//! lane becomes free, its host gets no other connection meanwhile, and another target of the site is tried at once.
//! When bytes arrive, the connection is charged to the fast lane again if that has a free place.
//!
//! When the slow lane is full and a site waits in line for the budget, the connection that has been silent longest
//! gives way ([`Effect::GiveWay`]); that counts as a time-out of its host. The caller refuses (`stays`) if the end of
//! the data has been sent: closing then could deliver twice. In that case the next connection is asked.

use stentor_queue::ids::{ConnId, Ms};

use super::Connections;
use super::pool::{Lane, State, slot_of};
use crate::effects::Effect;
use crate::sites::{HostNo, Slot};

const P99_TIMES: Ms = 3;
/// How soon a silent connection is checked again if the slow lane has no room.
const AGAIN_MS: Ms = 250;

/// How long a silence must last to change lanes.
pub fn silence_ms(least: Ms, p99_ms: Option<Ms>) -> Ms {
    least.max(p99_ms.unwrap_or(0) * P99_TIMES)
}

impl Connections<'_> {
    fn silence_ms(&mut self, slot: Slot) -> Ms {
        let least = self.state.cfg.fast_silence_ms;
        let Some(conn) = self.pool.at(slot) else { return least };
        let hop = conn.hop;
        silence_ms(least, self.state.path(hop.site, hop.source).gaps.p99_ms())
    }

    /// Sets a timer that checks the connection when it has been silent for too long.
    pub fn arm_silence(&mut self, slot: Slot) {
        let at = self.now + self.silence_ms(slot);
        self.arm(slot, at);
    }

    /// Handles the timer of a connecting or busy connection. Returns whether a place in the budget has become free.
    pub fn maybe_silent(&mut self, slot: Slot) -> bool {
        let silence_ms = self.silence_ms(slot);
        let Some(conn) = self.pool.at(slot) else { return false };
        let (id, at) = (conn.id, conn.since + silence_ms);
        if conn.lane == Lane::Slow || !self.state.cfg.strategies.lanes {
            return false;
        }
        if at > self.now {
            self.arm(slot, at);
        } else if self.pool.slow < self.state.cfg.slow_connections_max {
            self.enter_slow_lane(slot);
            return true;
        } else {
            self.pool.overdue.push_back((slot, id));
            self.pool.prune_lines();
            self.let_overdue_give_way();
            self.arm(slot, self.now + silence_ms.max(AGAIN_MS));
        }
        false
    }

    fn enter_slow_lane(&mut self, slot: Slot) {
        let Some(conn) = self.pool.at(slot) else { return };
        conn.lane = Lane::Slow;
        let (id, hop) = (conn.id, conn.hop);
        let newly = !std::mem::replace(&mut conn.silent, true);
        let connecting = conn.state == State::Connecting;
        self.pool.fast -= 1;
        self.pool.slow += 1;
        self.pool.slow_line.push_back((slot, id));
        self.pool.prune_lines();
        if newly {
            let path = self.state.path(hop.site, hop.source);
            path.silent += 1;
            path.silent_coming += usize::from(connecting);
            self.state.sites.host(hop.host).silent += 1;
        }
        // Another of its hosts may answer.
        self.state.sites.mark_dirty(hop.site);
    }

    /// Moves silent connections to the slow lane, as far as it has room.
    pub fn fill_slow_lane(&mut self) {
        while self.pool.slow < self.state.cfg.slow_connections_max
            && let Some((slot, id)) = self.pool.overdue.pop_front()
        {
            let silence_ms = self.silence_ms(slot);
            if self.is_overdue(slot, id, silence_ms) {
                self.enter_slow_lane(slot);
            }
        }
    }

    fn is_overdue(&mut self, slot: Slot, id: ConnId, silence_ms: Ms) -> bool {
        let now = self.now;
        self.pool.at(slot).is_some_and(|conn| {
            conn.id == id
                && conn.lane == Lane::Fast
                && conn.since + silence_ms <= now
                && matches!(conn.state, State::Connecting | State::Ready | State::Busy)
        })
    }

    /// Makes the connections that have been silent longest give way while sites wait in line and the slow lane is full.
    pub fn let_overdue_give_way(&mut self) {
        let overdue = self.pool.overdue.len();
        let wanted = (self.state.flows.wanting[0] + self.state.flows.wanting[1]).min(overdue);
        while self.pool.cutting < wanted {
            let next = self.pool.slow_line.pop_front().map(|next| (next, Lane::Slow));
            let Some(((slot, id), lane)) =
                next.or_else(|| self.pool.overdue.pop_front().map(|next| (next, Lane::Fast)))
            else {
                return;
            };
            let silence_ms = self.silence_ms(slot);
            let overdue = lane == Lane::Slow || self.is_overdue(slot, id, silence_ms);
            let Some(conn) = self.pool.at(slot) else { continue };
            let there = conn.id == id && conn.lane == lane && conn.state != State::Closing;
            if there && overdue && !conn.cut && !conn.stays {
                conn.cut = true;
                self.pool.cutting += 1;
                self.state.effects.push(Effect::GiveWay { conn: id });
            }
        }
    }

    /// Answers [`Effect::GiveWay`]: the end of some data has been sent, so the connection keeps its time-outs.
    pub fn stays(&mut self, conn: ConnId) {
        let Some(entry) = self.pool.get(conn).filter(|entry| entry.cut) else { return };
        (entry.cut, entry.stays) = (false, true);
        self.pool.cutting -= 1;
        self.let_overdue_give_way();
    }

    /// Ends a silence after a sign of life.
    pub fn end_silence(&mut self, slot: Slot) {
        let Some(conn) = self.pool.at(slot) else { return };
        conn.stays = false;
        if !std::mem::take(&mut conn.silent) {
            return;
        }
        let (hop, connecting) = (conn.hop, conn.state == State::Connecting);
        let path = self.state.path(hop.site, hop.source);
        path.silent -= 1;
        path.silent_coming -= usize::from(connecting);
        self.host_heard(hop.host);
        self.state.sites.mark_dirty(hop.site);
    }

    /// Called when one of the host's connections is no longer silent, or gone.
    pub fn host_heard(&mut self, host: HostNo) {
        let entry = self.state.sites.host(host);
        entry.silent -= 1;
        if entry.silent == 0 {
            self.state.sites.wake_sites_of(host);
        }
    }

    /// Moves a connection back from the slow lane, if the budget has room.
    pub fn back_to_fast_lane(&mut self, slot: Slot) {
        if self.pool.fast >= self.state.cfg.connections_max {
            return;
        }
        if let Some(conn) = self.pool.at(slot)
            && conn.lane == Lane::Slow
            && !conn.silent
        {
            conn.lane = Lane::Fast;
            self.pool.slow -= 1;
            self.pool.fast += 1;
        }
    }

    /// Called when a transaction was answered.
    pub fn heard(&mut self, conn: ConnId) {
        let slot = slot_of(conn);
        self.end_silence(slot);
        self.back_to_fast_lane(slot);
        self.fill_slow_lane();
    }
}
