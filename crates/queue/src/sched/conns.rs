//! Connections: the budget, the two lanes, and when one opens, is woken and closes.
//!
//! `Connecting -> Ready -> Busy <-> Ready -> Idle -> (Woken ->) Busy ... -> Closing -> gone`
//!
//! At most `connections_max` are charged to the fast lane. One that is connecting or busy and silent for
//! `fast_silence_ms` is charged to the slow lane as long as there is room in it; it keeps its time-outs there. A site
//! that wants a connection while the budget is used up stands in line (ordinary mail's line goes first, 4:1), and the
//! connection idle for longest is closed for it.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::clocks::sender_key;
use super::effects::{CloseReason, Effect, Work};
use super::failing::{Drain, DrainWhat};
use super::reasons::Reply;
use super::sites::{HostNo, ORDINARY, Pick};
use super::timers::Timer;
use super::{Ids, Scheduler};
use crate::ids::{ConnId, MessageNo, Ms, SiteId, TxId};
use crate::store::Store;

/// Index of a connection; its id carries it in the low bits.
pub(super) type Slot = u32;
const SLOT_BITS: u32 = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Connecting,
    /// The shell has it and will call `take_work`.
    Ready,
    Idle,
    Busy,
    Closing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    Fast,
    Slow,
}

pub(super) struct Tx {
    pub id: TxId,
    pub no: MessageNo,
    pub ids: Ids,
    /// The sender's key, where the site has holds: the message may be gone when the outcome comes.
    pub sender: Option<u64>,
}

pub(super) struct Conn {
    pub id: ConnId,
    pub site: SiteId,
    pub host: HostNo,
    pub host_name: Arc<str>,
    pub state: State,
    pub lane: Lane,
    /// Of the last progress, or of becoming idle.
    pub since: Ms,
    pub txs: SmallVec<[Tx; 1]>,
    /// Transactions begun.
    pub begun: u32,
    /// Transactions that the host answered as a healthy host does.
    pub good: u32,
    /// Its failure has been charged to the host.
    pub charged: bool,
    /// The armed timer's time, 0 if none.
    timer_at: Ms,
}

#[derive(Default)]
pub(super) struct Conns {
    slots: Vec<Option<Conn>>,
    free: Vec<Slot>,
    ids: u64,
    txs: u64,
    pub fast: usize,
    pub slow: usize,
    pub closing: usize,
    /// Connections that became idle, oldest first; entries that no longer hold are skipped.
    idle: VecDeque<(Slot, Ms)>,
}

impl Conns {
    pub fn get(&mut self, conn: ConnId) -> Option<&mut Conn> {
        let slot = (conn.0 & ((1 << SLOT_BITS) - 1)) as usize;
        self.slots.get_mut(slot)?.as_mut().filter(|c| c.id == conn)
    }

    pub fn at(&mut self, slot: Slot) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub fn open(&self) -> usize {
        self.fast + self.slow
    }

    fn slot_of(conn: ConnId) -> Slot {
        (conn.0 & ((1 << SLOT_BITS) - 1)) as Slot
    }

    fn add(&mut self, make: impl FnOnce(ConnId) -> Conn) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as Slot
        });
        self.ids += 1;
        self.slots[slot as usize] = Some(make(ConnId(self.ids << SLOT_BITS | u64::from(slot))));
        self.fast += 1;
        slot
    }

    fn take(&mut self, conn: ConnId) -> Option<Conn> {
        let slot = Self::slot_of(conn);
        let entry = self.slots.get_mut(slot as usize)?;
        if entry.as_ref().is_none_or(|c| c.id != conn) {
            return None;
        }
        let gone = entry.take()?;
        self.free.push(slot);
        match gone.lane {
            Lane::Fast => self.fast -= 1,
            Lane::Slow => self.slow -= 1,
        }
        self.closing -= usize::from(gone.state == State::Closing);
        Some(gone)
    }

    fn note_idle(&mut self, slot: Slot, now: Ms) {
        const SLACK: usize = 64;
        if self.idle.len() > SLACK + 4 * self.slots.len() {
            let slots = &self.slots;
            self.idle.retain(|(slot, since)| is_idle_since(slots, *slot, *since));
        }
        self.idle.push_back((slot, now));
    }

    /// The connection idle for longest.
    fn oldest_idle(&mut self) -> Option<Slot> {
        while let Some((slot, since)) = self.idle.pop_front() {
            if is_idle_since(&self.slots, slot, since) {
                return Some(slot);
            }
        }
        None
    }
}

fn is_idle_since(slots: &[Option<Conn>], slot: Slot, since: Ms) -> bool {
    slots[slot as usize].as_ref().is_some_and(|c| c.state == State::Idle && c.since == since)
}

impl Scheduler {
    /// Mail waits at a site, or something there has changed: wakes an idle connection, or opens one if it may have one.
    pub(super) fn consider(&mut self, site: SiteId, now: Ms) {
        if self.stopped {
            return;
        }
        if !self.clear_front(site) {
            return;
        }
        let entry = self.sites.get(site);
        if !entry.waits() || entry.coming >= entry.waiting_messages() {
            return;
        }
        if let Some(slot) = entry.idle.pop() {
            entry.coming += 1;
            if let Some(conn) = self.conns.at(slot) {
                (conn.state, conn.since) = (State::Ready, now);
                let id = conn.id;
                self.effects.push(Effect::Work { conn: id });
                self.arm(slot, now + self.cfg.fast_silence_ms);
            }
            return;
        }
        if entry.conns >= entry.allowed() {
            return;
        }
        if self.conns.fast >= self.cfg.connections_max {
            self.sites.want(site);
            self.reclaim();
            return;
        }
        match self.sites.pick(site, now, &mut self.rng) {
            Pick::Target(target) => self.open(site, target, now),
            Pick::Wait(Some(until)) => {
                let entry = self.sites.get(site);
                if entry.timer_at <= now || until < entry.timer_at {
                    entry.timer_at = until;
                    self.timers.set(until, Timer::Site(site));
                }
            }
            Pick::Wait(None) => {}
        }
    }

    fn open(&mut self, site: SiteId, target: usize, now: Ms) {
        let entry = self.sites.get(site);
        entry.conns += 1;
        entry.coming += 1;
        let (to, host) = entry.targets[target].clone();
        let slot = self.conns.add(|id| Conn {
            id,
            site,
            host,
            host_name: to.host.clone(),
            state: State::Connecting,
            lane: Lane::Fast,
            since: now,
            txs: SmallVec::new(),
            begun: 0,
            good: 0,
            charged: false,
            timer_at: 0,
        });
        let host = self.sites.host(host);
        if host.fails > 0 {
            host.probe = Some(slot);
        }
        if let Some(conn) = self.conns.at(slot).map(|c| c.id) {
            self.effects.push(Effect::Connect { conn, site, target: to });
        }
        self.arm(slot, now + self.cfg.fast_silence_ms);
    }

    /// The connection's timer fires at `at` or earlier.
    fn arm(&mut self, slot: Slot, at: Ms) {
        if let Some(conn) = self.conns.at(slot)
            && (conn.timer_at == 0 || at < conn.timer_at)
        {
            conn.timer_at = at;
            self.timers.set(at, Timer::Conn(slot));
        }
    }

    /// A connection's timer: too long idle, or too long silent.
    pub(super) fn conn_due(&mut self, slot: Slot, now: Ms) {
        let (idle_ms, silence_ms) = (self.cfg.idle_ms, self.cfg.fast_silence_ms);
        let slow_room = self.conns.slow < self.cfg.slow_connections_max;
        let Some(conn) = self.conns.at(slot) else { return };
        if conn.timer_at > now {
            return;
        }
        conn.timer_at = 0;
        match conn.state {
            State::Idle if conn.since + idle_ms <= now => self.close(slot),
            State::Idle => {
                let at = conn.since + idle_ms;
                self.arm(slot, at);
            }
            State::Closing => {}
            State::Connecting | State::Ready | State::Busy if conn.lane == Lane::Slow => {}
            State::Connecting | State::Ready | State::Busy => {
                let at = conn.since + silence_ms;
                if at > now {
                    self.arm(slot, at);
                } else if slow_room {
                    conn.lane = Lane::Slow;
                    self.conns.fast -= 1;
                    self.conns.slow += 1;
                    self.serve_wanting(now);
                } else {
                    self.arm(slot, now + silence_ms);
                }
            }
        }
    }

    /// Back from the slow lane, if the budget has room.
    pub(super) fn back_to_fast_lane(&mut self, slot: Slot) {
        if self.conns.fast >= self.cfg.connections_max {
            return;
        }
        if let Some(conn) = self.conns.at(slot)
            && conn.lane == Lane::Slow
        {
            conn.lane = Lane::Fast;
            self.conns.slow -= 1;
            self.conns.fast += 1;
        }
    }

    /// Closes a connection that is idle or has nothing to do.
    fn close(&mut self, slot: Slot) {
        let Some(conn) = self.conns.at(slot) else { return };
        if conn.state == State::Closing {
            return;
        }
        let (id, site, was) = (conn.id, conn.site, conn.state);
        conn.state = State::Closing;
        self.conns.closing += 1;
        let entry = self.sites.get(site);
        entry.coming -= usize::from(matches!(was, State::Connecting | State::Ready));
        if was == State::Idle
            && let Some(at) = entry.idle.iter().position(|s| *s == slot)
        {
            entry.idle.remove(at);
        }
        self.effects.push(Effect::Close { conn: id });
    }

    /// Closes idle connections for the sites in line.
    fn reclaim(&mut self) {
        let wanted = self.sites.wanting[0].len() + self.sites.wanting[1].len();
        while self.conns.closing < wanted
            && let Some(slot) = self.conns.oldest_idle()
        {
            self.close(slot);
        }
    }

    pub(super) fn close_unused(&mut self) {
        for slot in 0..self.conns.slots.len() as Slot {
            if self.conns.at(slot).is_some_and(|c| matches!(c.state, State::Idle | State::Connecting)) {
                self.close(slot);
            }
        }
    }

    /// Opens connections for the sites in line, as far as the budget goes.
    pub(super) fn serve_wanting(&mut self, now: Ms) {
        while self.conns.fast < self.cfg.connections_max {
            let bulk_due = self.sites.turn >= self.cfg.ordinary_per_bulk;
            let order = if bulk_due { [1, ORDINARY] } else { [ORDINARY, 1] };
            let Some((class, site)) =
                order.into_iter().find_map(|c| self.sites.wanting[c].pop_front().map(|site| (c, site)))
            else {
                return;
            };
            self.sites.turn = if class == ORDINARY { self.sites.turn.saturating_add(1) } else { 0 };
            let entry = self.sites.get(site);
            entry.wants[class] = false;
            let before = entry.conns;
            self.consider(site, now);
            let entry = self.sites.get(site);
            if entry.conns > before && entry.conns < entry.allowed() && entry.coming < entry.waiting_messages() {
                // It goes to the end of the line for its next one.
                self.sites.want(site);
            }
        }
    }

    /// The session is ready for MAIL. The shell goes on with `take_work`.
    pub fn connected(&mut self, conn: ConnId, now: Ms) {
        let Some(conn) = self.conns.get(conn).filter(|c| c.state == State::Connecting) else { return };
        (conn.state, conn.since) = (State::Ready, now);
    }

    /// Bytes came from the server. At most once per batch of replies.
    pub fn progress(&mut self, conn: ConnId, now: Ms) {
        if let Some(conn) = self.conns.get(conn).filter(|c| c.state != State::Idle) {
            conn.since = now;
        }
    }

    /// The next transaction for a connection that is ready (or busy with others, for pipelining). `None`: nothing for
    /// now; without open transactions the connection is idle from here on, or an [`Effect::Close`] follows.
    pub fn take_work(&mut self, store: &Store, conn: ConnId, now: Ms) -> Option<Work> {
        let slot = Conns::slot_of(conn);
        let entry = self.conns.get(conn).filter(|c| !matches!(c.state, State::Connecting | State::Closing))?;
        let (site, begun, was_idle) = (entry.site, entry.begun, entry.state == State::Idle);
        if entry.state == State::Ready {
            entry.state = State::Busy;
            self.sites.get(site).coming -= 1;
        }
        let max = self.cfg.transactions_per_connection_max.min(self.sites.get(site).transactions_max);
        let exhausted = self.stopped || begun >= max;
        let found = if exhausted { None } else { self.select(store, site, now) };
        let Some((no, ids)) = found else {
            self.rest(slot, exhausted, now);
            return None;
        };
        if was_idle && let Some(at) = self.sites.get(site).idle.iter().position(|s| *s == slot) {
            self.sites.get(site).idle.remove(at);
        }
        self.conns.txs += 1;
        let tx = TxId(self.conns.txs);
        let holds = self.sites.get(site).holds > 0;
        let sender = store.message(no).filter(|_| holds).map(|m| sender_key(m.sender()));
        let entry = self.conns.get(conn)?;
        (entry.state, entry.since) = (State::Busy, now);
        entry.begun += 1;
        entry.txs.push(Tx { id: tx, no, ids: ids.clone(), sender });
        self.arm(slot, now + self.cfg.fast_silence_ms);
        // More may wait than this connection can take soon.
        self.consider(site, now);
        Some(Work { tx, no, ids })
    }

    /// A connection without work: idle, or closed if it has done its share or others wait for its place.
    fn rest(&mut self, slot: Slot, exhausted: bool, now: Ms) {
        self.back_to_fast_lane(slot);
        let others_wait = self.conns.fast >= self.cfg.connections_max
            && !(self.sites.wanting[0].is_empty() && self.sites.wanting[1].is_empty());
        let idle_ms = self.cfg.idle_ms;
        let Some(conn) = self.conns.at(slot) else { return };
        if !conn.txs.is_empty() || conn.state == State::Idle {
            return;
        }
        if exhausted || others_wait {
            let site = self.sites.get(conn.site);
            // A learned limit is tried again with a little more.
            if exhausted {
                site.transactions_max = site.transactions_max.saturating_add(site.transactions_max / 4 + 1);
            }
            self.close(slot);
            return;
        }
        (conn.state, conn.since) = (State::Idle, now);
        let site = conn.site;
        self.sites.get(site).idle.push(slot);
        self.conns.note_idle(slot, now);
        self.arm(slot, now + idle_ms);
    }

    /// No session came about: refused, unreachable, timed out, or the banner or EHLO was not 2xx. The connection is gone.
    pub fn connect_failed(&mut self, store: &Store, conn: ConnId, why: &str, now: Ms) {
        let Some(gone) = self.conns.take(conn) else { return };
        let (site, host) = (gone.site, gone.host);
        let given_up = gone.state == State::Closing;
        self.leave(&gone);
        if !given_up {
            let code = super::verdict::code_of(why);
            let reply = Reply { code, dsn: None, text: why.into(), host: Some(gone.host_name) };
            self.host_refused(site, host, &reply, now);
        }
        self.give_back(store, &gone.txs, now);
        self.consider(site, now);
        self.serve_wanting(now);
    }

    /// The connection is gone. Transactions that were open on it are taken as lost before the end of their data.
    pub fn closed(&mut self, store: &Store, conn: ConnId, why: &CloseReason, now: Ms) {
        let Some(gone) = self.conns.take(conn) else { return };
        let site = gone.site;
        self.leave(&gone);
        let open = !gone.txs.is_empty();
        let reply =
            |code, text: &Arc<str>| Reply { code, dsn: None, text: text.clone(), host: Some(gone.host_name.clone()) };
        match why {
            _ if gone.charged => {}
            CloseReason::Refused { text } => self.refused_421(site, gone.host, gone.good, &reply(421, text), now),
            CloseReason::Lost { text } if open || gone.begun == 0 => {
                self.host_lost(site, gone.host, &reply(0, text), now);
            }
            CloseReason::Normal | CloseReason::Lost { .. } => {}
        }
        self.give_back(store, &gone.txs, now);
        self.consider(site, now);
        self.serve_wanting(now);
    }

    /// Takes a gone connection out of its site's and host's books.
    fn leave(&mut self, gone: &Conn) {
        let slot = Conns::slot_of(gone.id);
        let entry = self.sites.get(gone.site);
        entry.conns -= 1;
        entry.coming -= usize::from(matches!(gone.state, State::Connecting | State::Ready));
        if gone.state == State::Idle
            && let Some(at) = entry.idle.iter().position(|s| *s == slot)
        {
            entry.idle.remove(at);
        }
        let host = self.sites.host(gone.host);
        if host.probe == Some(slot) {
            host.probe = None;
            // Others wait for the probe's outcome; if it had none, the next one probes.
            for i in 0..self.sites.host(gone.host).sites.len() {
                let site = self.sites.host(gone.host).sites[i];
                self.sites.mark_dirty(site);
            }
        }
    }

    fn give_back(&mut self, store: &Store, txs: &[Tx], now: Ms) {
        for tx in txs {
            for id in &tx.ids {
                self.requeue(store, tx.no, *id, now);
            }
        }
    }

    /// The recipient is no longer in flight and goes again at once.
    pub(super) fn requeue(&mut self, store: &Store, no: MessageNo, id: crate::ids::AddressId, now: Ms) {
        if !self.messages.is_live(no) {
            self.settle(store, no, id, now);
            return;
        }
        if self.no_longer_in_flight(no, id) {
            self.make_ready(store, no, id, now);
        }
    }

    /// No host of the site may be tried now, after a failure: what is over its lifetime there has had its chance.
    pub(super) fn site_down(&mut self, site: SiteId, reply: &Reply, now: Ms) {
        let entry = self.sites.get(site);
        (entry.proven, entry.limit) = (false, 1);
        self.drains.push_back(Drain { what: DrainWhat::Site(site), expired_only: true, reply: reply.clone() });
        self.refresh(site, now);
    }
}
