//! Events of connections: greeted, asking for work, progress, closed.

use stentor_queue::ids::{AddressId, ConnId, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use super::connections::pool::Tx;
use super::failure::cause::of_no_session;
use super::{CloseReason, HostReply, NoSession, Scheduler, SessionStep, Work};

impl Scheduler {
    /// Records what a connection without a session waits for, and for how long. Operators see it; it decides nothing.
    pub fn reached(&mut self, conn: ConnId, reach: SessionStep, waited_ms: Ms, now: Ms) {
        let now = self.steady(now);
        self.connections(now).reached(conn, reach, waited_ms);
    }

    /// The session is ready for MAIL. The caller continues with `take_work`.
    pub fn connected(&mut self, conn: ConnId, now: Ms) {
        let now = self.steady(now);
        self.connections(now).connected(conn);
    }

    /// Records the limits that the server offers by LIMITS (RFC 9422): transactions per session, recipients per
    /// transaction. Call it before the first `take_work`.
    pub fn limits_offered(&mut self, conn: ConnId, transactions_max: Option<u32>, recipients_max: Option<u32>) {
        self.connections(0).limits_offered(conn, transactions_max, recipients_max);
    }

    /// Called when bytes came from the server, at most once per batch of replies.
    pub fn progress(&mut self, conn: ConnId, now: Ms) {
        let now = self.steady(now);
        self.connections(now).progress(conn);
    }

    /// Answers [`super::Effect::GiveWay`]: the end of some data has been sent, so the connection keeps its time-outs.
    pub fn stays(&mut self, conn: ConnId, now: Ms) {
        let now = self.steady(now);
        self.connections(now).stays(conn);
    }

    /// The next transaction for a connection that is ready (or busy with others, for pipelining). `None`: there is none
    /// now. Without open transactions the connection is then idle, or an [`super::Effect::Close`] follows.
    pub fn take_work(&mut self, store: &Store, conn: ConnId, now: Ms) -> Option<Work> {
        let now = self.steady(now);
        let free = self.connections(now).begin_choice(conn)?;
        let mut admission = self.admission(now);
        let yields = free.is_exhausted() || admission.yields(free.slot);
        let found = if yields || !admission.may_begin(free.hop) {
            None
        } else {
            let found = self.choice(store, now).select(free.hop);
            self.end_clocks_of_gone(store, now);
            found
        };
        let Some((no, ids)) = found else {
            if self.connections(now).rest(free, yields) {
                self.serve_line(now);
            }
            return None;
        };
        let work = self.connections(now).begin_transaction(store, conn, free, no, ids)?;
        // There may be more mail than this connection can take soon.
        self.consider(free.hop.site, now);
        Some(work)
    }

    /// Called when recipients of a transaction that was just handed out get nothing, after the store has applied their
    /// fate. Returns whether others are left; if not, the transaction has ended without a trace, and `take_work`
    /// follows.
    pub fn withdraw(&mut self, store: &Store, conn: ConnId, work: &mut Work, ids: &IdSet, now: Ms) -> bool {
        work.ids.retain(|id| !ids.contains(id.0));
        let (steady, is_empty) = (self.steady(now), work.ids.is_empty());
        if let Some(entry) = self.pool.get(conn)
            && let Some(tx) = entry.txs.iter_mut().find(|tx| tx.id == work.tx)
        {
            tx.ids.clone_from(&work.ids);
            entry.begun -= u32::from(is_empty);
        }
        if is_empty {
            self.connections(steady).end_transaction(conn, work.tx);
        }
        for id in ids {
            self.state.no_longer_in_flight(work.no, AddressId(id));
        }
        self.removed(store, work.no, ids, now);
        !is_empty
    }

    /// Called when no session was established. The connection is gone.
    pub fn connect_failed(&mut self, store: &Store, conn: ConnId, why: NoSession, text: &str, now: Ms) {
        let now = self.steady(now);
        let Some(gone) = self.pool.take(conn) else { return };
        let (hop, others) = (gone.hop, self.connections(now).leave(&gone));
        // A connection that we gave up does not count as a failure of the host.
        if !gone.is_closing() {
            let (code, dsn) = match why {
                NoSession::Reply { code, dsn } => (code, dsn),
                NoSession::Unfit { dsn } => (0, Some(dsn)),
                _ => (0, None),
            };
            let cause = of_no_session(why, text);
            let reply = HostReply { code, dsn, text: text.into(), cause, host: Some(gone.host_name.clone()) };
            // Connections that are still connecting count until they are refused too.
            let others = if self.state.path(hop.site, hop.source).greeted > 0 { others } else { 0 };
            self.failure.no_session(&mut self.state, hop, others.max(gone.beside), why, &reply, now);
        }
        self.give_back(store, &gone.txs, now);
        self.after_gone(hop.site, now);
    }

    /// Called when the connection is gone. Transactions that were open on it count as lost before the end of their
    /// data.
    pub fn closed(&mut self, store: &Store, conn: ConnId, why: &CloseReason, now: Ms) {
        let now = self.steady(now);
        let Some(gone) = self.pool.take(conn) else { return };
        let end = self.connections(now).end(&gone);
        self.failure.ended(&mut self.state, &end, why, now);
        self.give_back(store, &gone.txs, now);
        self.after_gone(gone.hop.site, now);
    }

    fn after_gone(&mut self, site: SiteId, now: Ms) {
        self.connections(now).fill_slow_lane();
        self.consider(site, now);
        self.serve_line(now);
    }

    fn give_back(&mut self, store: &Store, txs: &[Tx], now: Ms) {
        for tx in txs {
            for id in &tx.ids {
                self.requeue(store, tx.no, *id, now);
            }
        }
    }
}
