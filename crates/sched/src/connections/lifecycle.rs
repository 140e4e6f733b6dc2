//! The lifecycle of a connection: how each event changes the counts of its path and host.

use std::sync::Arc;

use stentor_queue::ids::{ConnId, MessageNo, Ms, TxId};
use stentor_queue::store::Store;

use super::Connections;
use super::pool::{Conn, State, Tx, slot_of};
use crate::effects::{Effect, Ids, SessionSoFar, SessionStep, Work};
use crate::failure::deferrals::sender_key;
use crate::failure::endings::{ClosedConnection, Ending};
use crate::failure::results::EndedTransaction;
use crate::sites::{Hop, Slot};

/// A connection that is free for a transaction.
#[derive(Clone, Copy)]
pub struct FreeConnection {
    pub slot: Slot,
    pub hop: Hop,
    was_idle: bool,
    /// It has done as many transactions as are allowed.
    is_exhausted: bool,
}

impl FreeConnection {
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }
}

impl Connections<'_> {
    pub(super) fn arm(&mut self, slot: Slot, at: Ms) {
        self.pool.arm(&mut self.state.timers, slot, at);
    }

    /// Handles a connection's timer: idle for too long, or silent for too long. Returns whether a place in the budget
    /// has become free.
    pub fn due(&mut self, slot: Slot) -> bool {
        let idle_ms = self.state.cfg.idle_ms;
        let Some(conn) = self.pool.at(slot) else { return false };
        if conn.timer_at > self.now {
            return false;
        }
        conn.timer_at = 0;
        let idle_until = conn.since + idle_ms;
        match conn.state {
            State::Idle if idle_until <= self.now => self.close(slot),
            State::Idle => self.arm(slot, idle_until),
            State::Closing => {}
            State::Connecting | State::Ready | State::Busy => return self.maybe_silent(slot),
        }
        false
    }

    /// Records what a connection without a session waits for, and for how long; operators see it.
    pub fn reached(&mut self, conn: ConnId, reach: SessionStep, waited_ms: Ms) {
        let now = self.now;
        if let Some(entry) = self.pool.get(conn).filter(|c| c.state == State::Connecting) {
            entry.reach = (reach, now.saturating_sub(waited_ms));
        }
    }

    /// The session is ready for MAIL.
    pub fn connected(&mut self, conn: ConnId) {
        let now = self.now;
        let Some(entry) = self.pool.get(conn).filter(|c| c.state == State::Connecting) else { return };
        let (hop, gap_ms) = (entry.hop, now.saturating_sub(entry.since));
        (entry.greeted, entry.since) = (true, now);
        let host = self.state.sites.host(hop.host);
        host.greeted += 1;
        host.has_closed = false;
        self.end_silence(slot_of(conn));
        self.back_to_fast_lane(slot_of(conn));
        if let Some(entry) = self.pool.get(conn) {
            entry.state = State::Ready;
        }
        let path = self.state.path(hop.site, hop.source);
        path.greeted += 1;
        path.gaps.add(gap_ms);
    }

    /// Records the limits that the server offers by LIMITS (RFC 9422).
    pub fn limits_offered(&mut self, conn: ConnId, transactions_max: Option<u32>, recipients_max: Option<u32>) {
        let Some(hop) = self.pool.get(conn).map(|entry| entry.hop) else { return };
        let path = self.state.path(hop.site, hop.source);
        if let Some(max) = transactions_max {
            path.transactions_max = path.transactions_max.min(max.max(1));
        }
        if let Some(max) = recipients_max {
            path.recipients_max = path.recipients_max.min(max.max(1) as usize);
        }
    }

    /// Called when bytes came from the server.
    pub fn progress(&mut self, conn: ConnId) {
        let Some(entry) = self.pool.get(conn).filter(|c| c.state != State::Idle) else { return };
        let (hop, gap_ms) = (entry.hop, self.now.saturating_sub(entry.since));
        entry.since = self.now;
        self.state.path(hop.site, hop.source).gaps.add(gap_ms);
    }

    /// Called when the caller asks for a transaction: the connection is busy from here on.
    pub fn begin_choice(&mut self, conn: ConnId) -> Option<FreeConnection> {
        let entry = self.pool.get(conn).filter(|c| !matches!(c.state, State::Connecting | State::Closing))?;
        let (hop, begun, was_idle) = (entry.hop, entry.begun, entry.state == State::Idle);
        let is_spent = entry.is_spent;
        if entry.state == State::Ready {
            entry.state = State::Busy;
            self.state.path(hop.site, hop.source).coming -= 1;
        }
        let entry = self.state.sites.get(hop.site);
        let given = entry.limits.transactions_per_connection_max;
        let given = given.unwrap_or(self.state.cfg.transactions_per_connection_max);
        let max = given.max(1).min(entry.paths[hop.source as usize].transactions_max);
        let is_exhausted = self.state.stopped || is_spent || begun >= max;
        Some(FreeConnection { slot: slot_of(conn), hop, was_idle, is_exhausted })
    }

    /// Begins a transaction.
    pub fn begin_transaction(
        &mut self,
        store: &Store,
        conn: ConnId,
        free: FreeConnection,
        no: MessageNo,
        ids: Ids,
    ) -> Option<Work> {
        let FreeConnection { slot, hop, was_idle, .. } = free;
        let path = self.state.sites.path(hop.site, hop.source);
        if was_idle && let Some(at) = path.idle.iter().position(|s| *s == slot) {
            path.idle.remove(at);
        }
        path.in_flight += 1;
        if let Some(pace) = &mut path.pace {
            pace.go(self.now);
        }
        if let Some(source) = self.state.cfg.sources.get(hop.source as usize)
            && !source.warm_up_per_day.is_empty()
        {
            path.warm_up_sent(source, self.state.time.wall(self.now));
        }
        self.pool.txs += 1;
        let tx = TxId(self.pool.txs);
        let has_deferrals = self.state.sites.get(hop.site).deferrals > 0;
        let sender = store.message(no).filter(|_| has_deferrals).map(|m| sender_key(m.sender()));
        let entry = self.pool.get(conn)?;
        if entry.txs.is_empty() {
            entry.since = self.now;
        }
        entry.state = State::Busy;
        entry.begun += 1;
        entry.txs.push(Tx { id: tx, no, ids: ids.clone(), begun: self.now, sender });
        self.arm_silence(slot);
        Some(Work { tx, no, ids })
    }

    /// Ends a transaction; a connection without others is ready for the next.
    pub fn end_transaction(&mut self, conn: ConnId, tx: TxId) -> Option<EndedTransaction> {
        let now = self.now;
        let entry = self.pool.get(conn)?;
        let at = entry.txs.iter().position(|t| t.id == tx)?;
        let Tx { no, ids, begun, sender, .. } = entry.txs.remove(at);
        let gap_ms = now.saturating_sub(entry.since);
        entry.since = now;
        // The xdelay of a connection's first transaction includes the time to connect.
        let begun = if entry.good == 0 && entry.begun == 1 { entry.opened } else { begun };
        let is_ready = entry.txs.is_empty() && entry.state == State::Busy;
        if is_ready {
            entry.state = State::Ready;
        }
        let (hop, host_name) = (entry.hop, entry.host_name.clone());
        let session = SessionSoFar { is_lmtp: entry.lmtp, has_delivered: entry.delivered };
        let path = self.state.path(hop.site, hop.source);
        path.coming += usize::from(is_ready);
        path.in_flight -= 1;
        Some(EndedTransaction { hop, host_name, session, no, ids, begun, gap_ms, sender })
    }

    /// Charges a connection that is still open. Returns what its end would mean.
    pub fn charge(&mut self, conn: ConnId) -> Option<Ending> {
        let entry = self.pool.get(conn)?;
        let (hop, own, greeted) = (entry.hop, usize::from(!entry.silent), u32::from(entry.greeted));
        let path = self.state.path(hop.site, hop.source);
        let others = (path.conns - path.silent).saturating_sub(own);
        let end = entry.ending(if self.state.sites.host(hop.host).greeted > greeted { others } else { 0 });
        entry.charged = true;
        Some(end)
    }

    /// Marks a connection on which the host takes no more transactions and has said so (`leaves`: it closes it).
    /// Returns how many transactions were answered on it.
    pub fn spend(&mut self, conn: ConnId, leaves: bool) -> u32 {
        let Some(entry) = self.pool.get(conn) else { return 0 };
        entry.is_spent = true;
        entry.charged |= leaves;
        entry.good
    }

    /// Handles a connection without work: it becomes idle, or closes if it has done its share or others wait for its
    /// place. Returns whether it was closed, so that its place may go to another.
    pub fn rest(&mut self, free: FreeConnection, yields: bool) -> bool {
        let FreeConnection { slot, hop, is_exhausted, .. } = free;
        self.back_to_fast_lane(slot);
        let others_wait =
            self.pool.fast >= self.state.cfg.bulk_budget() && self.state.flows.in_line() > self.pool.closing_fast;
        let idle_ms = self.state.cfg.idle_ms;
        let resting = self.pool.at(slot).filter(|conn| conn.txs.is_empty() && conn.state != State::Idle);
        let Some(is_spent) = resting.map(|conn| conn.is_spent) else { return false };
        self.forget_offered(hop, slot);
        if is_exhausted || yields || others_wait {
            let path = self.state.path(hop.site, hop.source);
            // A learned limit is raised a little and tried again.
            if is_exhausted && !is_spent {
                path.transactions_max = path.transactions_max.saturating_add(path.transactions_max / 4 + 1);
            }
            self.close(slot);
            return true;
        }
        if let Some(conn) = self.pool.at(slot) {
            (conn.state, conn.since) = (State::Idle, self.now);
        }
        self.state.path(hop.site, hop.source).idle.push(slot);
        self.pool.note_idle(slot, self.now);
        self.arm(slot, self.now + idle_ms);
        false
    }

    /// Wakes an idle connection for new work.
    pub(super) fn wake(&mut self, slot: Slot) {
        let Some(conn) = self.pool.at(slot) else { return };
        (conn.state, conn.since) = (State::Ready, self.now);
        let (id, hop) = (conn.id, conn.hop);
        self.state.path(hop.site, hop.source).coming += 1;
        self.state.effects.push(Effect::Work { conn: id });
        self.arm_silence(slot);
    }

    /// Closes a connection that is idle or has nothing to do.
    pub(super) fn close(&mut self, slot: Slot) {
        let Some(conn) = self.pool.at(slot).filter(|conn| conn.state != State::Closing) else { return };
        let (id, hop, was) = (conn.id, conn.hop, conn.state);
        self.end_silence(slot);
        if let Some(conn) = self.pool.at(slot) {
            conn.state = State::Closing;
        }
        self.pool.begin_closing(slot, self.state.cfg.slow_connections_max);
        let path = self.state.path(hop.site, hop.source);
        path.coming -= usize::from(matches!(was, State::Connecting | State::Ready));
        if was == State::Idle
            && let Some(at) = path.idle.iter().position(|s| *s == slot)
        {
            path.idle.remove(at);
        }
        self.state.effects.push(Effect::Close { conn: id });
    }

    /// Closes idle and connecting connections.
    pub fn close_unused(&mut self) {
        for slot in 0..self.pool.slots() {
            if self.pool.at(slot).is_some_and(|c| matches!(c.state, State::Idle | State::Connecting)) {
                self.close(slot);
            }
        }
    }

    /// Removes a closed connection from the counts of its path and host. Returns how many connections of the path
    /// remain, if the host has greeted one.
    pub fn leave(&mut self, gone: &Conn) -> usize {
        let (slot, hop) = (slot_of(gone.id), gone.hop);
        let path = self.state.path(hop.site, hop.source);
        path.conns -= 1;
        path.greeted -= usize::from(gone.greeted);
        path.in_flight -= gone.txs.len() as u32;
        path.coming -= usize::from(matches!(gone.state, State::Connecting | State::Ready));
        if gone.state == State::Idle
            && let Some(at) = path.idle.iter().position(|s| *s == slot)
        {
            path.idle.remove(at);
        }
        if path.offered_conn == Some(slot) {
            path.offered_conn = None;
        }
        if gone.silent {
            path.silent -= 1;
            path.silent_coming -= usize::from(gone.state == State::Connecting);
            self.host_heard(hop.host);
        }
        let now = self.now;
        let host = self.state.sites.host(hop.host);
        let was_full = host.is_full(now);
        host.greeted -= u32::from(gone.greeted);
        host.conns -= 1;
        let is_greeted = host.greeted > 0;
        // Other sites wait for its place, or for the outcome of its probe. If the probe had no outcome, the next
        // connection probes.
        if was_full || host.probe == Some(slot) {
            host.probe = host.probe.filter(|probe| *probe != slot);
            self.state.sites.wake_sites_of(hop.host);
        }
        let path = self.state.path(hop.site, hop.source);
        if is_greeted { path.conns - path.silent } else { 0 }
    }

    /// Removes a closed connection and returns what its end means.
    pub fn end(&mut self, gone: &Conn) -> ClosedConnection {
        let others = self.leave(gone);
        let open = gone.txs.iter().map(|tx| tx.no).collect();
        ClosedConnection { end: gone.ending(others), open, host_name: Arc::clone(&gone.host_name) }
    }

    /// Called when a connection is no longer on its way to work.
    fn forget_offered(&mut self, hop: Hop, slot: Slot) {
        let entry = self.state.sites.get(hop.site);
        let path = &mut entry.paths[hop.source as usize];
        if path.offered_conn == Some(slot) {
            path.offered_conn = None;
        }
        if !entry.offers.is_empty() {
            self.state.sites.mark_dirty(hop.site);
        }
    }
}
