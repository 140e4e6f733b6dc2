//! The pool: all connections, and how many are charged to each lane.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use stentor_queue::ids::{AddressId, ConnId, MessageNo, Ms, TxId};

use crate::effects::{Ids, SessionStep};
use crate::failure::endings::Ending;
use crate::sites::{Hop, Slot};
use crate::timers::{Timer, Timers};

/// A connection's id carries its slot in the low bits.
const SLOT_BITS: u32 = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    Fast,
    Slow,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Connecting,
    /// The caller has the connection and will call `take_work`.
    Ready,
    Idle,
    Busy,
    Closing,
}

pub struct Tx {
    pub id: TxId,
    pub no: MessageNo,
    pub ids: Ids,
    pub begun: Ms,
    /// The sender's key, kept where the site has deferrals: the message may be gone when the outcome comes.
    pub sender: Option<u64>,
}

pub struct Conn {
    pub id: ConnId,
    pub hop: Hop,
    pub host_name: Arc<str>,
    pub lmtp: bool,
    pub state: State,
    pub lane: Lane,
    /// Counted as silent at its path and host.
    pub silent: bool,
    pub greeted: bool,
    /// Connections of the path that had been greeted when this one was opened. A refusal may be about them even if they
    /// are gone.
    pub beside: usize,
    /// The connection has been asked to give way.
    pub cut: bool,
    /// The connection must not be cut any more: the end of some data has been sent.
    pub stays: bool,
    /// When the connection was opened.
    pub opened: Ms,
    /// The stage on the way to a session, and since when.
    pub reach: (SessionStep, Ms),
    /// When the last progress was made, or when the connection became idle.
    pub since: Ms,
    pub txs: SmallVec<[Tx; 1]>,
    /// Transactions begun.
    pub begun: u32,
    /// Transactions that were answered with anything but 421.
    pub good: u32,
    /// At least one copy was delivered.
    pub delivered: bool,
    /// At least one recipient got a fate.
    pub decided: bool,
    /// Its failure has been charged to the host.
    pub charged: bool,
    /// The host has said that the session has reached its limit.
    pub is_spent: bool,
    /// When the armed timer fires, 0 if none.
    pub timer_at: Ms,
}

#[derive(Default)]
pub struct Pool {
    slots: Vec<Option<Conn>>,
    free: Vec<Slot>,
    ids: u64,
    pub txs: u64,
    pub fast: usize,
    pub slow: usize,
    /// Closing connections still charged to the fast lane.
    pub closing_fast: usize,
    /// Connections asked to give way and not gone yet.
    pub cutting: usize,
    /// Connections in the slow lane, silent longest first; outdated entries are skipped.
    pub slow_line: VecDeque<(Slot, ConnId)>,
    /// Silent connections still charged to the fast lane because the slow one is full.
    pub overdue: VecDeque<(Slot, ConnId)>,
    /// Connections that became idle; outdated entries are skipped.
    idle: Vec<(Slot, Ms)>,
    /// How many times a site had as many connections as it may.
    pub at_site_max: u64,
}

/// The slot that a connection's id carries.
pub fn slot_of(conn: ConnId) -> Slot {
    (conn.0 & ((1 << SLOT_BITS) - 1)) as Slot
}

impl Conn {
    /// A new connection; `beside` others of its path have been greeted.
    pub fn new(id: ConnId, hop: Hop, host_name: Arc<str>, lmtp: bool, beside: usize, now: Ms) -> Conn {
        Conn {
            id,
            hop,
            host_name,
            lmtp,
            state: State::Connecting,
            lane: Lane::Fast,
            silent: false,
            greeted: false,
            beside,
            cut: false,
            stays: false,
            opened: now,
            reach: (SessionStep::default(), now),
            since: now,
            txs: SmallVec::new(),
            begun: 0,
            good: 0,
            delivered: false,
            decided: false,
            charged: false,
            is_spent: false,
            timer_at: 0,
        }
    }

    pub fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// What the end of the connection means to its host and path, while `others` of the path remain.
    pub fn ending(&self, others: usize) -> Ending {
        let Conn { hop, good, delivered, decided, charged, cut, .. } = *self;
        Ending { hop, good, delivered, decided, others, charged, cut }
    }
}

impl Pool {
    pub fn get(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(slot_of(conn) as usize)?.as_mut().filter(|c| c.id == conn)
    }

    pub fn at(&mut self, slot: Slot) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Makes the connection's timer fire at `at` or earlier.
    pub fn arm(&mut self, timers: &mut Timers, slot: Slot, at: Ms) {
        if let Some(conn) = self.at(slot)
            && (conn.timer_at == 0 || at < conn.timer_at)
        {
            conn.timer_at = at;
            timers.set(at, Timer::Conn(slot));
        }
    }

    /// Number of slots, used and free.
    pub fn slots(&self) -> Slot {
        self.slots.len() as Slot
    }

    /// Recipients and transactions in flight in each lane.
    pub fn in_transactions(&self) -> [(usize, usize); 2] {
        let mut lanes = [(0, 0); 2];
        for conn in self.slots.iter().flatten() {
            let (recipients, transactions) = &mut lanes[usize::from(conn.lane == Lane::Slow)];
            *recipients += conn.txs.iter().map(|tx| tx.ids.len()).sum::<usize>();
            *transactions += conn.txs.len();
        }
        lanes
    }

    /// Connections without a session.
    pub fn connecting(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten().filter(|conn| conn.state == State::Connecting)
    }

    /// Since when the recipient's transaction has been on a silent connection; `None`: it is not on one.
    pub fn silent_since(&self, no: MessageNo, id: AddressId) -> Option<Ms> {
        self.silent_txs().find(|(tx, _)| tx.no == no && tx.ids.contains(&id)).map(|(_, since)| since)
    }

    /// Transactions on silent connections.
    pub fn silent_txs(&self) -> impl Iterator<Item = (&Tx, Ms)> {
        let lines = self.slow_line.iter().chain(&self.overdue);
        let conns = lines.filter_map(|(slot, id)| self.slots.get(*slot as usize)?.as_ref().filter(|c| c.id == *id));
        conns.filter(|conn| conn.silent).flat_map(|conn| conn.txs.iter().map(|tx| (tx, conn.since)))
    }

    pub fn open(&self) -> usize {
        self.fast + self.slow
    }

    pub fn add(&mut self, make: impl FnOnce(ConnId) -> Conn) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as Slot
        });
        self.ids += 1;
        self.slots[slot as usize] = Some(make(ConnId(self.ids << SLOT_BITS | u64::from(slot))));
        self.fast += 1;
        slot
    }

    pub fn take(&mut self, conn: ConnId) -> Option<Conn> {
        let slot = slot_of(conn);
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
        self.closing_fast -= usize::from(gone.state == State::Closing && gone.lane == Lane::Fast);
        self.cutting -= usize::from(gone.cut);
        Some(gone)
    }

    /// Removes outdated entries from the lanes' lines when there are many.
    pub fn prune_lines(&mut self) {
        const SLACK: usize = 64;
        let (slots, max) = (&self.slots, SLACK + 4 * self.slots.len());
        let is_there = |(slot, id): &(Slot, ConnId), lane| {
            slots[*slot as usize].as_ref().is_some_and(|c| c.id == *id && c.lane == lane)
        };
        if self.slow_line.len() > max {
            self.slow_line.retain(|entry| is_there(entry, Lane::Slow));
        }
        if self.overdue.len() > max {
            let mut seen = stentor_queue::idset::IdSet::new();
            self.overdue.retain(|entry| is_there(entry, Lane::Fast) && seen.insert(entry.0));
        }
    }

    pub fn begin_closing(&mut self, slot: Slot, slow_max: usize) {
        let Some(conn) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        if conn.lane == Lane::Fast && self.slow < slow_max {
            conn.lane = Lane::Slow;
            self.fast -= 1;
            self.slow += 1;
        }
        self.closing_fast += usize::from(conn.lane == Lane::Fast);
    }

    pub fn note_idle(&mut self, slot: Slot, now: Ms) {
        const SLACK: usize = 64;
        if self.idle.len() > SLACK + 4 * self.slots.len() {
            let slots = &self.slots;
            self.idle.retain(|(slot, since)| is_idle_since(slots, *slot, *since));
        }
        self.idle.push((slot, now));
    }

    /// Picks an idle connection at random. Not the one idle longest: posts reach the same sites in turn, and each would
    /// find exactly the connections that it needs closed.
    pub fn any_idle(&mut self, rng: &mut fastrand::Rng) -> Option<Slot> {
        while !self.idle.is_empty() {
            let (slot, since) = self.idle.swap_remove(rng.usize(0..self.idle.len()));
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
