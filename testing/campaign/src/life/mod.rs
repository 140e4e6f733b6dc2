//! One run of the server until the power is cut or the queue is empty: the real committer, hub, store, scheduler and
//! journal in one thread, on a manual clock.
//!
//! The scheduler's effects become events in simulated time; clients, hosts, bounces and the operator are simulated
//! here. The seed alone decides the order. The ledger records everything visible from outside.

mod clients;
mod operator;
mod turn;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use clients::{Clients, Upload};
use fastrand::Rng;
use parking_lot::Mutex;
use stentor_config::{FlowConfig, ListConfig, ReportConfig};
use stentor_core::assignment::Assignment;
use stentor_core::clock::Clock;
use stentor_core::committer::Committer;
use stentor_core::hub::{Act, Hub, Signal};
use stentor_core::replay::{ReplayError, replay_heard, resume};
use stentor_core::suppression::take_assignment;
use stentor_core::{Actor, Core, Parts, Settings};
use stentor_delivery::{bounce, outcome};
use stentor_journal::{Preparer, SimDisk};
use stentor_lists::{FromRewriting, List, ListSettings, PostingPolicy};
use stentor_logs::Logs;
use stentor_mail::address::Address;
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{ConnId, MessageNo, Ms};
use stentor_queue::site::Target;
use stentor_queue::slices::Paging;
use stentor_queue::store::{KeptPost, Store};
use stentor_registry::AddressRegistry;
use stentor_resolve::Resolver;
use stentor_sched::{CloseReason, FailedRcpt, NoSession, RcptOutcome, Scheduler, SessionSoFar, Stage};

use crate::hosts;
use crate::ledger::{Ledger, Pair};
use crate::model::{Model, audit_of};
use crate::scenario::{Mutation, Refusal, RefusalDuration, Scenario, options, sched};

/// Small pages, and slices of any size, so that there is something to keep.
const PAGING: Paging = Paging { ids_shift: 2, messages_shift: 2, quarantine_shift: 24, kept_bytes_min: 0 };
/// Simulated time within which everything must be worked off, clients included.
const DRAIN_MS_MAX: Ms = 10 * 60_000;
/// Events of one life: beyond, something goes round in circles.
const EVENTS_MAX: u32 = 200_000;
/// Mail must be taken again within so long once the disk refuses nothing any more.
const RECOVERY_MS_MAX: Ms = 1_000;

/// Queues what the scheduler wants.
#[derive(Default)]
struct Wishes(Mutex<Vec<Act>>);

impl Actor for Wishes {
    fn act(&self, _: &Arc<Core>, act: Act) {
        self.0.lock().push(act);
    }
}

pub(crate) enum Ev {
    /// A client with something to hand in, and how often it was refused before.
    Client(u32),
    Upload(Upload),
    Turn,
    Resolved(stentor_queue::ids::DomainId, String),
    Session(ConnId),
    Dot(ConnId),
    Reply(ConnId),
    Prepare,
    Capacity(u64),
    /// The disk refuses nothing any more.
    Freed,
    Verb(Option<MessageNo>),
    /// Everything that is held or queue-only, at the end.
    Release,
}

struct Conn {
    target: Target,
    signal: Arc<Signal>,
    ready: bool,
    work: Option<Transaction>,
}

struct Transaction {
    key: String,
    assignment: Assignment,
    /// Its recipients, those that are copies to another server told apart.
    entries: Vec<String>,
    outcomes: Vec<RcptOutcome>,
    /// The host has it.
    past_dot: bool,
    /// The connection ends with it.
    lost: bool,
}

pub(crate) type Bouncing = Pin<Box<dyn Future<Output = ()>>>;

pub struct Life<'a> {
    pub(crate) core: Arc<Core>,
    pub(crate) committer: Committer,
    pub(crate) rng: Rng,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) clients: Clients,
    pub(crate) mutation: Mutation,
    pub(crate) now: Ms,
    pub(crate) disk: SimDisk,
    /// Operation numbers right after which somebody was told 250.
    pub acknowledged_at: Vec<u64>,
    pub turns: u64,
    /// Operator's verbs that became durable.
    pub verbs: u64,
    /// Answered and not journaled yet: the mutation.
    pub(crate) late: Vec<stentor_core::intake::Job>,
    wishes: Arc<Wishes>,
    time: Arc<AtomicU64>,
    preparer: Preparer,
    events: BinaryHeap<Reverse<(Ms, u64)>>,
    bodies: BTreeMap<u64, Ev>,
    seq: u64,
    turn_at: Option<Ms>,
    conns: BTreeMap<ConnId, Conn>,
    pub(crate) bouncing: Vec<Bouncing>,
    pub(crate) releasing: bool,
    /// Who was pending when the queue was run last.
    pub(crate) in_run: BTreeSet<Pair>,
    /// Recipients that were queue-only and went by a run.
    pub drained: u64,
    /// Recipients that the operator released from the quarantine.
    pub released: u64,
    /// Recipients that missed a post and that the operator sent it again.
    pub resent: u64,
    /// How long the disk refuses once it has begun to.
    refuses_ms: Option<Ms>,
    /// When the disk last refused something, or had little room by the scenario; and how many errors it had given out
    /// then.
    trouble: (Ms, u64),
    is_short: bool,
    /// The longest time for which mail was refused although the disk would have taken it.
    pub recovery_ms: Ms,
}

/// What all lives of all runs share.
#[derive(Clone)]
pub struct Shared {
    settings: Arc<Settings>,
    resolver: Resolver,
}

impl Shared {
    pub fn new() -> Result<Shared, String> {
        let mut config = stentor_config::without_file().map_err(|errors| format!("{errors:?}"))?;
        "mx.stentor.example".clone_into(&mut config.hostname);
        config.journal.batch_bytes_max = 16 * 1024;
        // Whatever nothing refers to is forgotten at each checkpoint.
        config.journal.address_unseen_ms = 0;
        config.lists.push(list()?);
        config.dns.servers = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 53))];
        let settings = Arc::new(Settings::new(config, None));
        let resolver = Resolver::new(settings.resolver(&[])).map_err(|error| error.to_string())?;
        Ok(Shared { settings, resolver })
    }
}

/// The list `l`, whose posts are kept.
fn list() -> Result<ListConfig, String> {
    let address = |text: &str| Address::parse(text.as_bytes(), false).map_err(|error| format!("{text}: {error:?}"));
    let settings = ListSettings {
        name: "l".into(),
        address: address("l@lists.example")?,
        bounces: address("l-bounces@lists.example")?,
        owner: None,
        post: PostingPolicy::Anyone,
        list_id: "l.lists.example".to_owned(),
        precedence: None,
        description: String::new(),
        archive: None,
        rewrite_from: FromRewriting::default(),
        archived_at: None,
        commands: None,
    };
    let list = List::new(settings).map_err(|errors| format!("{errors:?}"))?;
    Ok(ListConfig {
        list: Arc::new(list),
        subscribers: Some("l".into()),
        archives: Vec::new(),
        flow: FlowConfig::default(),
        report: ReportConfig::default(),
        keep_posts_ms: 3_600_000,
    })
}

/// The mutations of a start: forgets a part of what was replayed.
fn forget_replayed(core: &Arc<Core>, mutation: Mutation) {
    if mutation == Mutation::QueueOnlyForgotten {
        core.with(|hub, _| {
            for (what, ..) in hub.store.queue_only() {
                hub.sched.set_suspended(what, false, 0, "");
            }
        });
    }
    if mutation == Mutation::QuarantineForgotten {
        core.with(|hub, now| {
            let quarantined: Vec<_> = hub.store.quarantined(None).map(|m| m.as_accepted(m.pending().clone())).collect();
            for accept in quarantined {
                let from = accept.id;
                let accept = Box::new(Accept { id: hub.store.next_message_id(now), ..accept });
                hub.apply(Event::QuarantineReleased { from, by: None, accept });
            }
        });
    }
}

impl<'a> Life<'a> {
    /// Opens what is on the disk as a start does, and lets the ledger judge it.
    pub fn start(
        shared: &Shared,
        disk: &SimDisk,
        ledger: &'a mut Ledger,
        time: Arc<AtomicU64>,
        seed: u64,
        mutation: Mutation,
        past_dot: BTreeSet<Pair>,
    ) -> Result<Option<Life<'a>>, String> {
        let (errors, mut audit) = (disk.errors(), Vec::new());
        let mut hear = |record: &[u8]| audit.extend(audit_of(record));
        let (mut journal, store, _) =
            match replay_heard(Arc::new(disk.clone()), options(), Store::with_paging(PAGING), &mut hear) {
                Ok(opened) => opened,
                // Nothing was promised since: the ledger stays as it is for the next start.
                Err(ReplayError::Journal(_)) if disk.is_cut() || disk.errors() > errors => return Ok(None),
                Err(error) => return Err(format!("the start after a cut: {error}")),
            };
        if store.book.reused_early() > 0 {
            return Err("a forgotten address's id was given out again before a checkpoint was complete".to_owned());
        }
        ledger.recovered(Model { audit, ..Model::of(&store)? }, past_dot)?;
        let now = time.load(Ordering::Relaxed);
        let wishes = Arc::new(Wishes::default());
        let core = Core::new(Parts {
            clock: Clock::manual(time.clone()),
            settings: shared.settings.clone(),
            hub: Hub::new(store, Scheduler::new(sched(), seed), 8 * 1024),
            reader: journal.reader(),
            log: Logs::off(),
            history: stentor_history::History::off(),
            resolver: shared.resolver.clone(),
            next_content_id: journal.next_content_id(),
            actor: wishes.clone(),
            registry: Arc::new(AddressRegistry::in_memory().map_err(|error| error.to_string())?),
            memory_limit: None,
        });
        let preparer = journal.preparer();
        let life = Life {
            committer: Committer::new(core.clone(), journal),
            core,
            rng: Rng::with_seed(seed),
            ledger,
            clients: Clients::default(),
            mutation,
            now,
            disk: disk.clone(),
            acknowledged_at: Vec::new(),
            turns: 0,
            verbs: 0,
            late: Vec::new(),
            wishes,
            time,
            preparer,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            seq: 0,
            turn_at: None,
            conns: BTreeMap::new(),
            bouncing: Vec::new(),
            releasing: false,
            in_run: BTreeSet::new(),
            drained: 0,
            released: 0,
            resent: 0,
            refuses_ms: None,
            trouble: (now, disk.errors()),
            is_short: false,
            recovery_ms: 0,
        };
        forget_replayed(&life.core, mutation);
        life.check_contents()?;
        resume(&life.core);
        Ok(Some(life))
    }

    /// Plans what clients, operator and disk will do.
    pub fn plan(&mut self, scenario: &Scenario) {
        self.clients.open = scenario.clients;
        for _ in 0..scenario.clients {
            let after = self.rng.u64(1..2_000);
            self.at(after, Ev::Client(0));
        }
        for _ in 0..scenario.verbs {
            let after = self.rng.u64(1..4_000);
            self.at(after, Ev::Verb(None));
        }
        if let Some(shortage) = scenario.shortage {
            self.at(shortage.from, Ev::Capacity(shortage.spare_bytes));
            self.at(shortage.to, Ev::Capacity(u64::MAX));
        }
        if let Some(Refusal { duration: RefusalDuration::Time(ms), .. }) = scenario.refusal {
            self.refuses_ms = Some(ms);
        }
        self.at(1, Ev::Prepare);
    }

    /// Mail is refused only while the disk refuses, and hardly longer.
    fn check_recovery(&mut self) -> Result<(), String> {
        let errors = self.disk.errors();
        if errors > self.trouble.1
            && let Some(ms) = self.refuses_ms.take()
        {
            self.at(ms, Ev::Freed);
        }
        if errors > self.trouble.1 || self.is_short {
            self.trouble = (self.now, errors);
        }
        // Nobody looks any more when no client is left.
        if !self.clients.is_done() && self.core.disk_full.load(Ordering::Relaxed) {
            let since = self.now - self.trouble.0;
            self.recovery_ms = self.recovery_ms.max(since);
            if since > RECOVERY_MS_MAX {
                return Err(format!("mail is refused for want of room, {since} ms after the disk last was"));
            }
        }
        Ok(())
    }

    pub(crate) fn at(&mut self, after: Ms, ev: Ev) {
        self.seq += 1;
        self.events.push(Reverse((self.now + after, self.seq)));
        self.bodies.insert(self.seq, ev);
    }

    /// Until the power is cut (`true`) or nothing is left to do.
    pub fn run(&mut self) -> Result<bool, String> {
        let until = self.now + DRAIN_MS_MAX;
        for _ in 0..EVENTS_MAX {
            self.obey()?;
            if self.disk.is_cut() {
                return Ok(true);
            }
            self.check_recovery()?;
            self.want_turn();
            self.want_release();
            let tick = self.core.with(|hub, _| hub.next_tick()).map(|at| at.max(self.now));
            let event = self.events.peek().map(|next| next.0.0);
            let is_empty = self.core.with(|hub, _| hub.store.is_empty() && hub.store.quarantined_len() == 0);
            let idle = self.clients.is_done() && is_empty;
            let Some(next) = event.into_iter().chain(tick).min().filter(|_| !(idle && self.turn_at.is_none())) else {
                return self.ledger.drained().map(|()| false);
            };
            if next > until {
                return Err(format!("not worked off: {:?}", self.ledger.durable.messages));
            }
            self.now = self.now.max(next);
            self.time.store(self.now, Ordering::Relaxed);
            if tick == Some(next) {
                self.core.with(stentor_core::hub::Hub::tick);
            } else if let Some(Reverse((_, seq))) = self.events.pop()
                && let Some(ev) = self.bodies.remove(&seq)
            {
                self.happen(ev)?;
            }
        }
        Err("too many events".to_owned())
    }

    /// What was past its end of data when the power went.
    pub fn past_dot(&self) -> BTreeSet<Pair> {
        let mut pairs = BTreeSet::new();
        for work in self.conns.values().filter_map(|conn| conn.work.as_ref()).filter(|work| work.past_dot) {
            pairs.extend(work.taken().into_iter().map(|address| (work.key.clone(), address)));
        }
        pairs
    }

    fn want_turn(&mut self) {
        let waits = self.core.with(|hub, _| hub.outcomes.is_waiting());
        let waits = waits || !self.late.is_empty();
        if self.turn_at.is_none() && (waits || self.clients.has_pushed() || !self.bouncing.is_empty()) {
            let after = self.rng.u64(0..25);
            self.turn_in(after);
        } else if self.turn_at.is_none() && self.committer.pause().is_some() {
            self.turn_in(60);
        }
    }

    fn turn_in(&mut self, after: Ms) {
        self.turn_at = Some(self.now + after);
        self.at(after, Ev::Turn);
    }

    fn happen(&mut self, ev: Ev) -> Result<(), String> {
        match ev {
            Ev::Client(refusals) => self.client(refusals),
            Ev::Upload(upload) => self.upload(upload),
            Ev::Turn => {
                self.turn_at = None;
                self.turns += 1;
                let written = self.turn()?;
                self.poll_bounces();
                if !written && !self.disk.is_cut() {
                    self.turn_in(20);
                }
            }
            Ev::Resolved(domain, name) => {
                let answer = hosts::resolve(&name);
                self.core.with(|hub, now| hub.sched.resolved(&hub.store, domain, answer, now));
            }
            Ev::Session(conn) => self.session(conn),
            Ev::Dot(conn) => self.dot(conn)?,
            Ev::Reply(conn) => self.reply(conn),
            Ev::Prepare => {
                let _ = self.preparer.prepare();
                let after = self.rng.u64(20..400);
                self.at(after, Ev::Prepare);
            }
            Ev::Capacity(spare) => {
                self.is_short = spare != u64::MAX;
                self.disk.set_spare(spare);
            }
            Ev::Freed => self.disk.refuse(0, None, 0..0),
            Ev::Verb(no) => self.verb(no),
            Ev::Release => self.release(),
        }
        Ok(())
    }

    /// Carries out what the scheduler asked for since the last time.
    fn obey(&mut self) -> Result<(), String> {
        loop {
            let acts = std::mem::take(&mut *self.wishes.0.lock());
            if acts.is_empty() {
                return Ok(());
            }
            for act in acts {
                match act {
                    Act::Resolve { domain, name } => {
                        let after = self.rng.u64(1..20);
                        self.at(after, Ev::Resolved(domain, name));
                    }
                    Act::Connect { conn, target, signal, .. } => {
                        self.conns.insert(conn, Conn { target, signal, ready: false, work: None });
                        let after = self.rng.u64(1..30);
                        self.at(after, Ev::Session(conn));
                    }
                    Act::Wake(signal) => {
                        if let Some(conn) = self.conn_of(&signal) {
                            self.take(conn)?;
                        }
                    }
                    Act::Close(signal) => {
                        signal.close();
                        if let Some(conn) = self.conn_of(&signal) {
                            self.close_if_idle(conn);
                        }
                    }
                    Act::GiveWay(signal) => {
                        // Its end comes as that of any other; nothing here is silent for long.
                        if let Some(conn) = self.conn_of(&signal) {
                            self.core.with(|hub, now| hub.sched.stays(conn, now));
                        }
                    }
                    Act::Bounce { no, failures } => self.bounce(no, failures),
                    // No list here has rules that these come from, and every look-up is answered at once; who is told
                    // of what has no bearing on what is kept.
                    Act::Delayed { .. }
                    | Act::FastDone { .. }
                    | Act::Suspend { .. }
                    | Act::Coalesce { .. }
                    | Act::ForgetLookUp { .. } => {}
                }
            }
        }
    }

    fn conn_of(&self, signal: &Arc<Signal>) -> Option<ConnId> {
        self.conns.iter().find(|(_, conn)| Arc::ptr_eq(&conn.signal, signal)).map(|(id, _)| *id)
    }

    fn session(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.signal.must_close() || !hosts::takes_connections(&conn.target, &mut self.rng) {
            self.conns.remove(&id);
            self.core.with(|hub, now| {
                hub.connection_gone(id);
                hub.sched.connect_failed(&hub.store, id, NoSession::Unreachable, "connection refused", now);
            });
            return;
        }
        conn.ready = true;
        self.core.with(|hub, now| hub.sched.connected(id, now));
        // Work, if there is any, is announced by the scheduler or found now.
        let signal = self.conns[&id].signal.clone();
        self.wishes.0.lock().push(Act::Wake(signal));
    }

    /// The next transaction of a connection without one: its content must be what was handed in.
    fn take(&mut self, id: ConnId) -> Result<(), String> {
        let Some(conn) = self.conns.get(&id) else { return Ok(()) };
        if !conn.ready || conn.work.is_some() || conn.signal.must_close() {
            return Ok(());
        }
        let Some(assignment) = self.core.with(|hub, now| take_assignment(&self.core, hub, id, now)) else {
            return Ok(());
        };
        let key = self.core.with(|hub, _| hub.store.message(assignment.no).map(|m| m.message_id().to_owned()));
        let key = key.ok_or("work for a message that is not queued")?;
        self.check_content(&key, assignment.content.0)?;
        let entry = |at| assignment.id_at(at);
        let ids: Vec<_> = (0..assignment.len()).map(entry).collect();
        let entries: Vec<String> =
            self.core.with(|hub, _| ids.iter().map(|id| hub.store.book.entry(*id).to_owned()).collect());
        self.check_queue_only(&key, &entries)?;
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let (outcomes, has_copy, lost) = hosts::answer(&conn.target, &assignment, &mut self.rng);
        conn.work = Some(Transaction { key, assignment, entries, outcomes, past_dot: false, lost });
        let after = self.rng.u64(1..60);
        self.at(after, if has_copy { Ev::Dot(id) } else { Ev::Reply(id) });
        Ok(())
    }

    /// The host has the message.
    fn dot(&mut self, id: ConnId) -> Result<(), String> {
        let Some(work) = self.conns.get_mut(&id).and_then(|conn| conn.work.as_mut()) else { return Ok(()) };
        work.past_dot = true;
        let lost_after = work.outcomes.first().is_some_and(|outcome| outcome.stage == Stage::LostAfterDot);
        for address in work.taken() {
            self.ledger.copy(&work.key, &address)?;
            if lost_after {
                self.ledger.doubtful.insert((work.key.clone(), address));
            }
        }
        let after = self.rng.u64(1..40);
        self.at(after, Ev::Reply(id));
        Ok(())
    }

    fn reply(&mut self, id: ConnId) {
        let Some(work) = self.conns.get_mut(&id).and_then(|conn| conn.work.take()) else { return };
        let session = SessionSoFar::default();
        self.core.with(|hub, now| outcome::apply(hub, id, &work.assignment, &work.outcomes, session, now));
        let lost = work.lost;
        if work.past_dot && !lost {
            let who: BTreeSet<String> = work.taken().into_iter().collect();
            if !who.is_empty() {
                self.ledger.outcome(&work.key, Fate::Delivered, who);
            }
        }
        if lost {
            self.conns.remove(&id);
            self.core.with(|hub, now| {
                hub.connection_gone(id);
                hub.sched.closed(&hub.store, id, &CloseReason::Lost { text: "reset".into() }, now);
            });
            return;
        }
        self.close_if_idle(id);
        if let Some(conn) = self.conns.get(&id) {
            self.wishes.0.lock().push(Act::Wake(conn.signal.clone()));
        }
    }

    fn close_if_idle(&mut self, id: ConnId) {
        let idle = self.conns.get(&id).is_some_and(|c| c.ready && c.work.is_none() && c.signal.must_close());
        if idle {
            self.conns.remove(&id);
            self.core.with(|hub, now| {
                hub.connection_gone(id);
                hub.sched.closed(&hub.store, id, &CloseReason::Normal, now);
            });
        }
    }

    /// The real bounce, polled by hand. One without a report is done at once; else its fates ride with the report.
    fn bounce(&mut self, no: MessageNo, failures: Vec<FailedRcpt>) {
        let mut fates: Vec<(String, Fate, BTreeSet<String>)> = Vec::new();
        self.core.with(|hub, _| {
            let Some(message) = hub.store.message(no) else { return };
            for (fate, expired) in [(Fate::Bounced, false), (Fate::Expired, true)] {
                let who = failures.iter().filter(|failure| failure.expired == expired);
                let who: BTreeSet<String> = who.map(|failure| hub.store.book.entry(failure.id).to_owned()).collect();
                if !who.is_empty() {
                    fates.push((message.envelope().message_id.to_owned(), fate, who));
                }
            }
        });
        let mut bouncing: Bouncing = Box::pin(bounce(self.core.clone(), no, failures));
        if bouncing.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            for (key, fate, who) in fates {
                self.ledger.outcome(&key, fate, who);
            }
        } else {
            self.bouncing.push(bouncing);
            if self.rng.u8(0..6) == 0 {
                // Just while its report waits for a batch.
                self.at(1, Ev::Verb(Some(no)));
            }
        }
    }

    pub(crate) fn poll_bounces(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        self.bouncing.retain_mut(|bouncing| bouncing.as_mut().poll(&mut context) == Poll::Pending);
    }

    /// Nothing leaves that is queue-only, but what a run of the queue in this life lets go.
    fn check_queue_only(&mut self, key: &str, entries: &[String]) -> Result<(), String> {
        for address in entries {
            if !self.ledger.durable.is_queue_only(key, address) {
                continue;
            }
            let runs = self.core.with(|hub, _| hub.sched.queue_run_since().is_some());
            if !runs || !self.in_run.contains(&(key.to_owned(), address.clone())) {
                return Err(format!("{key} to {address} is queue-only and leaves; a run: {runs}"));
            }
            self.drained += 1;
        }
        Ok(())
    }

    /// Every message in the queue and in the quarantine and every kept post can be read, octet by octet.
    fn check_contents(&self) -> Result<(), String> {
        let all: Vec<(String, u64)> = self.core.with(|hub, _| {
            let all = hub.store.messages().map(|(_, message)| message).chain(hub.store.quarantined(None));
            let all = all.chain(hub.store.posts(None).map(KeptPost::message));
            all.map(|message| (message.message_id().to_owned(), message.content().0)).collect()
        });
        all.iter().try_for_each(|(key, content)| self.check_content(key, *content))
    }

    fn check_content(&self, key: &str, content: u64) -> Result<(), String> {
        let Some(known) = self.ledger.bodies.get(key) else { return Err(format!("{key} was never handed in")) };
        let mut bytes = vec![0; known.len() + 1];
        let mut filled = 0;
        loop {
            match self.core.reader.read_at(content, filled as u64, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(_) if self.disk.is_cut() => return Ok(()),
                Err(error) => return Err(format!("the content of {key} cannot be read: {error}")),
            }
        }
        if bytes[..filled] == known[..] {
            Ok(())
        } else {
            Err(format!("the content of {key} is not what was handed in: {filled} of {} octets", known.len()))
        }
    }
}

impl Transaction {
    /// The recipients that the host took.
    fn taken(&self) -> Vec<String> {
        let took = |o: &RcptOutcome| o.stage == Stage::LostAfterDot || (o.stage == Stage::Final && o.code == 250);
        let all = 0..self.assignment.len();
        all.filter(|at| took(&self.outcomes[*at])).map(|at| self.entries[at].clone()).collect()
    }
}
