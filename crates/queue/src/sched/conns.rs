//! Connections: the budget, and when one opens, is woken and closes. `lanes` has what silence changes.
//!
//! `Connecting -> Ready -> Busy <-> Ready -> Idle -> (Woken ->) Busy ... -> Closing -> gone`
//!
//! At most `connections_max` are charged to the fast lane, the last `ordinary_reserve` of them for sites where ordinary
//! mail waits. A site that wants a connection while the budget is used up stands in line (`flows`), and the connection
//! idle for longest is closed for it. If ordinary mail stands in line, a connection that has only bulk mail to do closes
//! after its transaction; for bulk mail it does after `TURN_TRANSACTIONS`.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::charges::Charge;
use super::clocks::sender_key;
use super::effects::{CloseReason, Effect, NoSession, SourceNo, Work};
use super::failing::{Drain, DrainWhat};
use super::lanes::Lane;
use super::path::Path;
use super::reasons::Reply;
use super::sites::{HostNo, ORDINARY, Pick};
use super::timers::Timer;
use super::{Ids, Scheduler};
use crate::ids::{ConnId, MessageNo, Ms, SiteId, TxId};
use crate::store::Store;

/// Index of a connection; its id carries it in the low bits.
pub(super) type Slot = u32;
const SLOT_BITS: u32 = 24;
/// Transactions of one connection until others in line for the budget have their turn.
const TURN_TRANSACTIONS: u32 = 20;
const TURNED_AWAY_MAX: u32 = 8;
/// The host does not accept mail (RFC 7504 section 3).
const NO_MAIL_HERE: u16 = 521;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Connecting,
    /// The shell has it and will call `take_work`.
    Ready,
    Idle,
    Busy,
    Closing,
}

pub(super) struct Tx {
    pub id: TxId,
    pub no: MessageNo,
    pub ids: Ids,
    pub begun: Ms,
    /// The sender's key, where the site has holds: the message may be gone when the outcome comes.
    pub sender: Option<u64>,
}

pub(super) struct Conn {
    pub id: ConnId,
    pub site: SiteId,
    pub source: SourceNo,
    pub host: HostNo,
    pub host_name: Arc<str>,
    pub lmtp: bool,
    pub state: State,
    pub lane: Lane,
    /// Counted as silent at its path and host.
    pub silent: bool,
    pub greeted: bool,
    /// Connections of the path that had been greeted when this one was asked for: what a refusal may be about, even if
    /// they have gone meanwhile.
    pub beside: usize,
    /// It has been asked to give way.
    pub cut: bool,
    /// It must not be cut any more: the end of some data is out.
    pub stays: bool,
    /// When the connection was asked for.
    pub opened: Ms,
    /// Of the last progress, or of becoming idle.
    pub since: Ms,
    pub txs: SmallVec<[Tx; 1]>,
    /// Transactions begun.
    pub begun: u32,
    /// Transactions that were answered, by whatever but 421.
    pub good: u32,
    /// Somebody's copy was delivered.
    pub delivered: bool,
    /// Somebody got a fate.
    pub settled: bool,
    /// Its failure has been charged to the host.
    pub charged: bool,
    /// The armed timer's time, 0 if none.
    pub timer_at: Ms,
}

#[derive(Default)]
pub(super) struct Conns {
    slots: Vec<Option<Conn>>,
    free: Vec<Slot>,
    ids: u64,
    txs: u64,
    pub fast: usize,
    pub slow: usize,
    /// On their way out and still charged to the fast lane.
    pub closing_fast: usize,
    /// Asked to give way and not gone yet.
    pub cutting: usize,
    /// In the slow lane, silent for longest first; entries that no longer hold are skipped.
    pub slow_line: VecDeque<(Slot, ConnId)>,
    /// Silent, and still charged to the fast lane since the slow one is full.
    pub overdue: VecDeque<(Slot, ConnId)>,
    /// Connections that became idle; entries that no longer hold are skipped.
    idle: Vec<(Slot, Ms)>,
    /// Times that a site had as many as it may.
    pub at_site_max: u64,
}

impl Conns {
    pub fn get(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(Self::slot_of(conn) as usize)?.as_mut().filter(|c| c.id == conn)
    }

    pub fn at(&mut self, slot: Slot) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Recipients and transactions under way in each lane.
    pub fn in_transactions(&self) -> [(usize, usize); 2] {
        let mut lanes = [(0, 0); 2];
        for conn in self.slots.iter().flatten() {
            let (recipients, transactions) = &mut lanes[usize::from(conn.lane == Lane::Slow)];
            *recipients += conn.txs.iter().map(|tx| tx.ids.len()).sum::<usize>();
            *transactions += conn.txs.len();
        }
        lanes
    }

    pub fn open(&self) -> usize {
        self.fast + self.slow
    }

    pub fn slot_of(conn: ConnId) -> Slot {
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
        self.closing_fast -= usize::from(gone.state == State::Closing && gone.lane == Lane::Fast);
        self.cutting -= usize::from(gone.cut);
        Some(gone)
    }

    /// Forgets entries of lanes' lines that no longer hold, when they are many.
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
            let mut seen = crate::idset::IdSet::new();
            self.overdue.retain(|entry| is_there(entry, Lane::Fast) && seen.insert(entry.0));
        }
    }

    fn begin_closing(&mut self, slot: Slot, slow_max: usize) {
        let Some(conn) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        if conn.lane == Lane::Fast && self.slow < slow_max {
            conn.lane = Lane::Slow;
            self.fast -= 1;
            self.slow += 1;
        }
        self.closing_fast += usize::from(conn.lane == Lane::Fast);
    }

    fn note_idle(&mut self, slot: Slot, now: Ms) {
        const SLACK: usize = 64;
        if self.idle.len() > SLACK + 4 * self.slots.len() {
            let slots = &self.slots;
            self.idle.retain(|(slot, since)| is_idle_since(slots, *slot, *since));
        }
        self.idle.push((slot, now));
    }

    /// An idle connection, at random. Not the one that is idle for longest: posts come to the same sites in turn, and
    /// each would find just those connections closed that it needs.
    fn any_idle(&mut self, rng: &mut fastrand::Rng) -> Option<Slot> {
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

impl Scheduler {
    pub(super) fn sources(&self) -> usize {
        self.cfg.sources.len().max(1)
    }

    /// What the fast lane has for sites where only bulk mail waits.
    fn bulk_budget(&self) -> usize {
        self.cfg.connections_max - self.cfg.ordinary_reserve.min(self.cfg.connections_max - 1)
    }

    /// Mail waits at a site, or something there has changed: wakes an idle connection, or opens one if it may have one.
    pub(super) fn consider(&mut self, site: SiteId, now: Ms) {
        if self.stopped || !self.clear_front(site) {
            return;
        }
        let sources = self.sources();
        let entry = self.sites.get(site);
        if self.flows.any_suspended() {
            entry.lines.set_aside(&self.flows);
        }
        if entry.suspended || entry.lines.is_empty() && entry.offers.is_empty() {
            return;
        }
        if entry.paths.len() < sources {
            self.sites.ensure_paths(site, sources, now);
        }
        if sources == 1 {
            self.consider_path(site, 0, now);
        } else {
            self.consider_paths(site, sources, now);
        }
        if !self.sites.get(site).offers.is_empty() {
            (0..sources as SourceNo).any(|source| self.consider_offers(site, source, now));
        }
    }

    fn consider_paths(&mut self, site: SiteId, sources: usize, now: Ms) {
        let entry = self.sites.get(site);
        let coming: usize = entry.paths.iter().map(|path| path.coming - path.silent_coming).sum();
        if coming >= entry.lines.len() && !self.flows.pools {
            return;
        }
        let mut order: SmallVec<[(usize, SourceNo); 8]> =
            entry.paths.iter().take(sources).enumerate().map(|(i, path)| (path.conns, i as SourceNo)).collect();
        order.sort_unstable();
        for (_, source) in order {
            if self.consider_path(site, source, now) {
                return;
            }
        }
    }

    /// Whether a connection was woken or opened.
    fn consider_path(&mut self, site: SiteId, source: SourceNo, now: Ms) -> bool {
        let (adapts, time) = (self.cfg.strategies.adaptation, self.time);
        let default = self.cfg.connections_per_site_max;
        let entry = self.sites.get(site);
        let waiting = entry.lines.len_for(source, &self.flows);
        let max = entry.connections_max(default);
        let path = &mut entry.paths[source as usize];
        if waiting == 0 || path.coming - path.silent_coming >= waiting || adapts && !path.may_begin() {
            return false;
        }
        if let Some(until) = path.wait(self.cfg.sources.get(source as usize), time, now) {
            self.look_again_at(site, until, now);
            return false;
        }
        if let Some(slot) = path.idle.pop() {
            self.wake(site, source, slot, now);
            return true;
        }
        if path.conns - path.silent >= path.allowed(max, adapts) {
            self.conns.at_site_max += u64::from(path.conns - path.silent >= max);
            return false;
        }
        let ordinary = entry.lines.ordinary_for(source, &self.flows);
        let target = match self.sites.pick(site, source, now, &mut self.rng) {
            Pick::Target(target) => target,
            Pick::Wait(Some(until)) | Pick::Full(until) => {
                self.look_again_at(site, until, now);
                return false;
            }
            Pick::Wait(None) => return false,
        };
        self.open_in_budget(site, source, target, ordinary, now).is_some()
    }

    /// Opens a connection if the budget has room; else the site stands in line for one.
    pub(super) fn open_in_budget(
        &mut self,
        site: SiteId,
        source: SourceNo,
        target: usize,
        ordinary: bool,
        now: Ms,
    ) -> Option<Slot> {
        let budget = if ordinary { self.cfg.connections_max } else { self.bulk_budget() };
        if self.conns.fast >= budget && !self.make_room(budget) {
            self.want(site, source, now);
            self.let_overdue_give_way(now);
            return None;
        }
        Some(self.open(site, source, target, now))
    }

    /// Work waits for a connection that was idle.
    pub(super) fn wake(&mut self, site: SiteId, source: SourceNo, slot: Slot, now: Ms) {
        self.path(site, source).coming += 1;
        if let Some(conn) = self.conns.at(slot) {
            (conn.state, conn.since) = (State::Ready, now);
            let id = conn.id;
            self.effects.push(Effect::Work { conn: id });
            self.arm_silence(slot, now);
        }
    }

    pub(super) fn look_again_at(&mut self, site: SiteId, until: Ms, now: Ms) {
        let entry = self.sites.get(site);
        if entry.timer_at <= now || until < entry.timer_at {
            entry.timer_at = until;
            self.timers.set(until, Timer::Site(site));
        }
    }

    /// Puts a site in line for a connection from a source: for each flow of the class that waits for one.
    fn want(&mut self, site: SiteId, source: SourceNo, now: Ms) {
        let entry = self.sites.get(site);
        let at = now + if self.cfg.strategies.order { entry.history.later_ms(now) } else { 0 };
        let class = if entry.lines.ordinary_for(source, &self.flows) { ORDINARY } else { 1 };
        for line in &mut entry.lines.list {
            let is_of_class = line.class == class && !line.wants && !line.waiting.is_empty();
            if is_of_class && self.flows.get(line.flow).rules.sources.has(source) {
                line.wants = true;
                self.flows.want(line.flow, site, at);
            }
        }
    }

    fn open(&mut self, site: SiteId, source: SourceNo, target: usize, now: Ms) -> Slot {
        let entry = self.sites.get(site);
        let path = &mut entry.paths[source as usize];
        path.conns += 1;
        path.coming += 1;
        let (to, host) = (entry.targets[target].clone(), path.hosts[target]);
        // Silent ones serve nobody.
        let beside = path.greeted.saturating_sub(path.silent - path.silent_coming);
        let beside = if self.sites.hosts[host as usize].greeted > 0 { beside } else { 0 };
        let slot = self.conns.add(|id| Conn {
            id,
            site,
            source,
            host,
            host_name: to.host.clone(),
            lmtp: to.lmtp,
            state: State::Connecting,
            lane: Lane::Fast,
            silent: false,
            greeted: false,
            beside,
            cut: false,
            stays: false,
            opened: now,
            since: now,
            txs: SmallVec::new(),
            begun: 0,
            good: 0,
            delivered: false,
            settled: false,
            charged: false,
            timer_at: 0,
        });
        let host = self.sites.host(host);
        host.conns += 1;
        if host.fails > 0 {
            host.probe = Some(slot);
        }
        if let Some(conn) = self.conns.at(slot).map(|c| c.id) {
            self.effects.push(Effect::Connect { conn, site, source, target: to });
        }
        self.arm_silence(slot, now);
        slot
    }

    /// The connection's timer fires at `at` or earlier.
    pub(super) fn arm(&mut self, slot: Slot, at: Ms) {
        if let Some(conn) = self.conns.at(slot)
            && (conn.timer_at == 0 || at < conn.timer_at)
        {
            conn.timer_at = at;
            self.timers.set(at, Timer::Conn(slot));
        }
    }

    /// A connection's timer: too long idle, or too long silent.
    pub(super) fn conn_due(&mut self, slot: Slot, now: Ms) {
        let idle_ms = self.cfg.idle_ms;
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
            State::Connecting | State::Ready | State::Busy => self.maybe_silent(slot, now),
        }
    }

    /// Closes a connection that is idle or has nothing to do.
    pub(super) fn close(&mut self, slot: Slot) {
        let Some(conn) = self.conns.at(slot) else { return };
        if conn.state == State::Closing {
            return;
        }
        let (id, site, source, was) = (conn.id, conn.site, conn.source, conn.state);
        let slow_max = self.cfg.slow_connections_max;
        self.unsilence(slot);
        if let Some(conn) = self.conns.at(slot) {
            conn.state = State::Closing;
        }
        self.conns.begin_closing(slot, slow_max);
        let path = &mut self.sites.get(site).paths[source as usize];
        path.coming -= usize::from(matches!(was, State::Connecting | State::Ready));
        if was == State::Idle
            && let Some(at) = path.idle.iter().position(|s| *s == slot)
        {
            path.idle.remove(at);
        }
        self.effects.push(Effect::Close { conn: id });
    }

    /// Makes room in the budget: an idle connection is closed. Its QUIT is charged to the slow lane if that has room;
    /// else its place is free when it is gone. Whether there is room now.
    fn make_room(&mut self, budget: usize) -> bool {
        let wanted = self.flows.wanting[0] + self.flows.wanting[1] + 1;
        while self.conns.fast >= budget && self.conns.closing_fast < wanted {
            let Some(slot) = self.conns.any_idle(&mut self.rng) else { break };
            self.close(slot);
        }
        self.conns.fast < budget
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
        // Sites whose turn came and that went back into the line: there is no room for their kind.
        let mut turned_away = 0;
        while self.conns.fast < self.cfg.connections_max && turned_away < TURNED_AWAY_MAX {
            let bulk_too = self.conns.fast < self.bulk_budget();
            let Some((flow, site)) = self.flows.next_wanting(self.cfg.ordinary_per_bulk, bulk_too) else { return };
            if let Some(line) = self.sites.get(site).lines.line(flow) {
                line.wants = false;
            }
            let before = self.conns.open();
            self.consider(site, now);
            if self.conns.open() > before {
                // It goes to the end of the line for its next one.
                self.want_more(site, now);
            } else if self.sites.get(site).lines.line(flow).is_some_and(|line| line.wants) {
                turned_away += 1;
            }
        }
    }

    fn want_more(&mut self, site: SiteId, now: Ms) {
        let (adapts, default) = (self.cfg.strategies.adaptation, self.cfg.connections_per_site_max);
        let entry = self.sites.get(site);
        let max = entry.connections_max(default);
        let coming: usize = entry.paths.iter().map(|path| path.coming - path.silent_coming).sum();
        if coming >= entry.lines.len() {
            return;
        }
        let more = |path: &Path| path.conns - path.silent < path.allowed(max, adapts);
        let sources: SmallVec<[SourceNo; 4]> =
            entry.paths.iter().enumerate().filter(|(_, path)| more(path)).map(|(i, _)| i as SourceNo).collect();
        for source in sources {
            self.want(site, source, now);
        }
    }

    /// The session is ready for MAIL. The shell goes on with `take_work`.
    pub fn connected(&mut self, conn: ConnId, now: Ms) {
        let now = self.steady(now);
        let Some(entry) = self.conns.get(conn).filter(|c| c.state == State::Connecting) else { return };
        let (site, source, host, gap) = (entry.site, entry.source, entry.host, now.saturating_sub(entry.since));
        (entry.greeted, entry.since) = (true, now);
        let host = self.sites.host(host);
        host.greeted += 1;
        host.is_closed = false;
        self.unsilence(Conns::slot_of(conn));
        self.back_to_fast_lane(Conns::slot_of(conn));
        if let Some(entry) = self.conns.get(conn) {
            entry.state = State::Ready;
        }
        let path = &mut self.sites.get(site).paths[source as usize];
        path.greeted += 1;
        path.gaps.add(gap);
    }

    /// What the server offers by LIMITS (RFC 9422): transactions per session, recipients per transaction. Say it before
    /// the first `take_work`.
    pub fn limits_offered(&mut self, conn: ConnId, transactions_max: Option<u32>, recipients_max: Option<u32>) {
        let Some(entry) = self.conns.get(conn) else { return };
        let (site, source) = (entry.site, entry.source);
        let path = &mut self.sites.get(site).paths[source as usize];
        if let Some(max) = transactions_max {
            path.transactions_max = path.transactions_max.min(max.max(1));
        }
        if let Some(max) = recipients_max {
            path.recipients_max = path.recipients_max.min(max.max(1) as usize);
        }
    }

    /// Bytes came from the server. At most once per batch of replies.
    pub fn progress(&mut self, conn: ConnId, now: Ms) {
        let now = self.steady(now);
        let Some(entry) = self.conns.get(conn).filter(|c| c.state != State::Idle) else { return };
        let (site, source, gap) = (entry.site, entry.source, now.saturating_sub(entry.since));
        entry.since = now;
        self.sites.get(site).paths[source as usize].gaps.add(gap);
    }

    /// The next transaction for a connection that is ready (or busy with others, for pipelining). `None`: nothing for
    /// now; without open transactions the connection is idle from here on, or an [`Effect::Close`] follows.
    pub fn take_work(&mut self, store: &Store, conn: ConnId, now: Ms) -> Option<Work> {
        let now = self.steady(now);
        let slot = Conns::slot_of(conn);
        let entry = self.conns.get(conn).filter(|c| !matches!(c.state, State::Connecting | State::Closing))?;
        let (site, source, host) = (entry.site, entry.source, entry.host);
        let (begun, was_idle) = (entry.begun, entry.state == State::Idle);
        if entry.state == State::Ready {
            entry.state = State::Busy;
            self.sites.get(site).paths[source as usize].coming -= 1;
        }
        let entry = self.sites.get(site);
        let given = entry.limits.transactions_per_connection_max.unwrap_or(self.cfg.transactions_per_connection_max);
        let max = given.max(1).min(entry.paths[source as usize].transactions_max);
        let exhausted = self.stopped || begun >= max;
        let yields = exhausted || self.yields(slot);
        let found = if yields || !self.may_begin(site, source, now) {
            None
        } else {
            self.select(store, site, source, host, now)
        };
        let Some((no, ids)) = found else {
            self.rest(slot, exhausted, yields, now);
            return None;
        };
        let path = &mut self.sites.get(site).paths[source as usize];
        if was_idle && let Some(at) = path.idle.iter().position(|s| *s == slot) {
            path.idle.remove(at);
        }
        path.under_way += 1;
        if let Some(pace) = &mut path.pace {
            pace.go();
        }
        if let Some(source) = self.cfg.sources.get(source as usize)
            && !source.warm_up_per_day.is_empty()
        {
            path.warm_up_sent(source, self.time.wall(now));
        }
        self.conns.txs += 1;
        let tx = TxId(self.conns.txs);
        let holds = self.sites.get(site).holds > 0;
        let sender = store.message(no).filter(|_| holds).map(|m| sender_key(m.sender()));
        let entry = self.conns.get(conn)?;
        if entry.txs.is_empty() {
            entry.since = now;
        }
        entry.state = State::Busy;
        entry.begun += 1;
        entry.txs.push(Tx { id: tx, no, ids: ids.clone(), begun: now, sender });
        self.arm_silence(slot, now);
        // More may wait than this connection can take soon.
        self.consider(site, now);
        Some(Work { tx, no, ids })
    }

    /// Whether site, path and rate let a transaction begin.
    fn may_begin(&mut self, site: SiteId, source: SourceNo, now: Ms) -> bool {
        let adapts = self.cfg.strategies.adaptation;
        let entry = self.sites.get(site);
        if entry.suspended {
            return false;
        }
        if self.flows.any_suspended() {
            entry.lines.set_aside(&self.flows);
        }
        let path = &mut entry.paths[source as usize];
        if adapts && !path.may_begin() {
            return false;
        }
        let wait = path.wait(self.cfg.sources.get(source as usize), self.time, now);
        if let Some(until) = wait {
            self.look_again_at(site, until, now);
        }
        wait.is_none()
    }

    /// Whether the connection is to be closed for others that stand in line for the budget.
    fn yields(&mut self, slot: Slot) -> bool {
        let ordinary = self.flows.wanting[ORDINARY] > self.conns.closing_fast;
        let any = self.flows.wanting[0] + self.flows.wanting[1] > self.conns.closing_fast;
        if !any || self.conns.fast < self.bulk_budget() {
            return false;
        }
        let Some(conn) = self.conns.at(slot).filter(|conn| conn.lane == Lane::Fast) else { return false };
        let (site, source, begun) = (conn.site, conn.source, conn.begun);
        if begun == 0 {
            return false;
        }
        if ordinary && self.conns.fast >= self.cfg.connections_max {
            return !self.sites.get(site).lines.ordinary_for(source, &self.flows);
        }
        begun >= TURN_TRANSACTIONS && !self.sites.get(site).lines.ordinary_for(source, &self.flows)
    }

    /// A connection without work: idle, or closed if it has done its share or others wait for its place.
    fn rest(&mut self, slot: Slot, exhausted: bool, yields: bool, now: Ms) {
        self.back_to_fast_lane(slot);
        let others_wait = self.conns.fast >= self.bulk_budget()
            && self.flows.wanting[0] + self.flows.wanting[1] > self.conns.closing_fast;
        let idle_ms = self.cfg.idle_ms;
        let Some(conn) = self.conns.at(slot) else { return };
        if !conn.txs.is_empty() || conn.state == State::Idle {
            return;
        }
        let (site, source) = (conn.site, conn.source);
        self.forget_offered_conn(site, source, slot);
        let Some(conn) = self.conns.at(slot) else { return };
        if exhausted || yields || others_wait {
            let path = &mut self.sites.get(site).paths[source as usize];
            // A learned limit is tried again with a little more.
            if exhausted {
                path.transactions_max = path.transactions_max.saturating_add(path.transactions_max / 4 + 1);
            }
            self.close(slot);
            self.serve_wanting(now);
            return;
        }
        (conn.state, conn.since) = (State::Idle, now);
        self.sites.get(site).paths[source as usize].idle.push(slot);
        self.conns.note_idle(slot, now);
        self.arm(slot, now + idle_ms);
    }

    /// No session came about. The connection is gone.
    pub fn connect_failed(&mut self, store: &Store, conn: ConnId, why: NoSession, text: &str, now: Ms) {
        let now = self.steady(now);
        let Some(gone) = self.conns.take(conn) else { return };
        let (site, source, host) = (gone.site, gone.source, gone.host);
        let given_up = gone.state == State::Closing;
        self.leave(&gone, now);
        if !given_up {
            let (code, dsn) = if let NoSession::Reply { code, dsn } = why { (code, dsn) } else { (0, None) };
            let reply = Reply { code, dsn, text: text.into(), host: Some(gone.host_name) };
            let path = &self.sites.get(site).paths[source as usize];
            // Those that are still connecting count until they are refused too.
            let others = if path.greeted > 0 { path.conns - path.silent } else { 0 };
            let others = if self.sites.host(host).greeted > 0 { others } else { 0 };
            match why {
                NoSession::Reply { code: 421, .. } if others.max(gone.beside) > 0 => {
                    self.host_full(site, source, host, others.max(gone.beside), &reply, now);
                }
                NoSession::Reply { code: NO_MAIL_HERE, .. } => {
                    self.charge_host(site, source, host, Charge::Retry, &reply, now);
                    self.takes_no_mail(host, &reply);
                }
                NoSession::Unreachable => self.charge_host(site, source, host, Charge::Pause, &reply, now),
                NoSession::Failed | NoSession::Reply { .. } => {
                    self.charge_host(site, source, host, Charge::Retry, &reply, now);
                }
            }
        }
        self.give_back(store, &gone.txs, now);
        self.gone(site, now);
    }

    /// The connection is gone. Transactions that were open on it are taken as lost before the end of their data.
    pub fn closed(&mut self, store: &Store, conn: ConnId, why: &CloseReason, now: Ms) {
        let now = self.steady(now);
        let Some(gone) = self.conns.take(conn) else { return };
        self.leave(&gone, now);
        self.ended(&gone, why, now);
        self.give_back(store, &gone.txs, now);
        self.gone(gone.site, now);
    }

    fn gone(&mut self, site: SiteId, now: Ms) {
        self.fill_slow_lane(now);
        self.consider(site, now);
        self.serve_wanting(now);
    }

    /// Takes a gone connection out of its path's and host's books.
    fn leave(&mut self, gone: &Conn, now: Ms) {
        let slot = Conns::slot_of(gone.id);
        let path = &mut self.sites.get(gone.site).paths[gone.source as usize];
        path.conns -= 1;
        path.greeted -= usize::from(gone.greeted);
        path.under_way -= gone.txs.len() as u32;
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
            self.host_heard(gone.host);
        }
        let host = self.sites.host(gone.host);
        let was_full = host.is_full(now);
        host.greeted -= u32::from(gone.greeted);
        host.conns -= 1;
        // Others wait for its place; or for the probe's outcome, and if it had none, the next one probes.
        if was_full || host.probe == Some(slot) {
            host.probe = host.probe.filter(|probe| *probe != slot);
            self.wake_sites_of(gone.host);
        }
    }

    pub(super) fn wake_sites_of(&mut self, host: HostNo) {
        let at = self.sites.host(host).sites.clone();
        for site in at.iter().map(SiteId) {
            self.sites.mark_dirty(site);
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
    pub(super) fn site_down(&mut self, site: SiteId, source: SourceNo, reply: &Reply) {
        self.drains.push_back(Drain { what: DrainWhat::Site(site, source), expired_only: true, reply: reply.clone() });
        self.refresh(site, false);
    }
}
