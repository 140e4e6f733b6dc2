//! The scheduler: which recipients go into which transaction over which connection, and when what failed is tried again.
//!
//! A pure state machine: calls bring events and `now`, [`Effect`]s are collected from [`Scheduler::effects`]. It is
//! volatile: everything is rebuilt at a start by [`Scheduler::accepted`] for each live message, oldest first.
//!
//! **Promise.** Each pending recipient of a live message is in exactly one of these places, and moves only as said:
//!
//! | place | held in | leaves it by |
//! |---|---|---|
//! | not yet activated | the message's activation cursor | a slice of activation |
//! | untouched | the domain's bitmap of messages (`bulk`) | being looked at for a transaction |
//! | ready | the list of its (domain, message) (`explicit`) | being put into a transaction |
//! | in flight | its transaction | `work_done`, or `closed` (taken as lost) |
//! | behind its own clock, or its mailbox's | `clocks` | the clock |
//! | failing | the message's failures | `bounced` (or `bounce_refused`, and again) |
//! | met | the operator's reservation: looked at for a transaction, and kept back | `removed` or `unreserve` |
//!
//! So nobody is handed out twice at a time, nothing is scanned for, and a clock that fires brings back precisely what
//! waits behind it. Holds on a message or a sender at a site stop (site, message) pairs, not recipients; so does the
//! operator's hold on a message (`verbs`), which has no clock.
//!
//! **Bounds.** No call does more than `STEPS_MAX` steps of work; what remains is done by the next [`Scheduler::tick`],
//! and [`Scheduler::next_tick`] says "at once" as long as something remains. Connections never exceed
//! `connections_max` (fast) and `slow_connections_max` (silent).
//!
//! **Failures of the shell's side** (a call for an unknown connection or transaction, a message that is gone) are
//! answered by doing nothing: the store, not the scheduler, is the truth. docs/design/scheduler.md has the strategies
//! in words.

mod charges;
mod clocks;
mod coalesce;
mod config;
mod conns;
mod domains;
mod effects;
mod explain;
mod failing;
mod flows;
mod history;
mod lanes;
mod lines;
mod live;
mod look_ups;
mod next_host;
mod notices;
mod pace;
mod path;
mod reasons;
mod results;
mod sites;
mod status;
mod steps;
mod tables;
mod time;
mod timers;
mod vacancy;
mod verbs;
pub mod verdict;
mod waits;

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

pub use config::{Backoff, SchedConfig, SourceConfig, Strategies};
pub use effects::{CloseReason, Dsn, Effect, Failure, Ids, NoSession, RcptOutcome, SourceNo, Stage, Work};
pub use explain::{HostStatus, PathStatus, SiteExplanation, WaitsFor};
pub use flows::{FlowKey, FlowRules, SourceSet};
pub use history::SiteHistory;
pub use reasons::Reply;
pub use status::{Census, Glance, Load, RecipientState, RecipientStatus, SiteStatus, Standing, Waiting};

use crate::ids::{AddressId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

/// Elementary steps (ids looked at, timers fired, domains passed) that one call may do: well under a millisecond.
const STEPS_MAX: u32 = 4_096;
/// Messages of up to so many recipients are activated at once, recipient by recipient; larger ones domain by domain.
const SMALL_RECIPIENTS_MAX: usize = 256;
/// Messages of up to so many recipients are activated at once, domain by domain: their lists are made when they are
/// wanted, so that one which waits costs a bit at its domain and one at its site.
const UNTOUCHED_RECIPIENTS_MAX: usize = 8;

type Map<K, V> = HashMap<K, V, RandomState>;

/// What is going on with a live message.
#[derive(Default)]
struct Active {
    /// In a transaction now.
    in_flight: IdSet,
    /// What few messages have.
    extra: Option<Box<Extra>>,
}

impl Active {
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.extra.as_ref().is_none_or(|extra| extra.is_idle())
    }
}

#[derive(Default)]
struct Extra {
    activation: Option<Activation>,
    /// Recipients pending when it was last asked whether only stragglers are left; 0 once that has been said.
    pending_before: u32,
    failing: failing::Failing,
    /// Sites with a hold on this message.
    held_at: Vec<SiteId>,
    /// An operator holds it.
    parked: Option<Box<verbs::Parked>>,
    /// An operator is taking recipients out.
    reserved: Option<Box<verbs::Reserved>>,
}

impl Extra {
    fn is_idle(&self) -> bool {
        let is_under_way = self.activation.is_some() || self.pending_before > 0 || !self.failing.is_idle();
        !is_under_way && self.held_at.is_empty() && self.parked.is_none() && self.reserved.is_none()
    }
}

/// A large message on its way to its domains.
#[derive(Default)]
struct Activation {
    /// The last id looked at.
    cursor: Option<u32>,
    /// Domains whose recipients were taken while this was going on: not named again.
    touched: IdSet,
}

/// See the module's head.
pub struct Scheduler {
    cfg: SchedConfig,
    rng: fastrand::Rng,
    jitter_seed: u64,
    messages: live::Messages,
    /// The number accepted last: numbers above it are from before the wrap.
    newest: u32,
    activating: VecDeque<MessageNo>,
    domains: domains::Domains,
    sites: sites::Sites,
    waits: waits::Waits,
    clocks: clocks::Clocks,
    conns: conns::Conns,
    timers: timers::Timers,
    time: time::Time,
    reasons: reasons::Reasons,
    drains: VecDeque<failing::Drain>,
    flushes: VecDeque<steps::Flush>,
    flows: flows::Flows,
    notices: notices::Notices,
    coalescing: coalesce::Coalescing,
    /// A flow was resumed: sites from here on are looked at again.
    resuming: Option<u32>,
    verbs: verbs::Verbs,
    effects: Vec<Effect>,
    stopped: bool,
}

impl Scheduler {
    /// `seed` decides jitter and the order of equal targets, nothing else.
    pub fn new(cfg: SchedConfig, seed: u64) -> Scheduler {
        Scheduler {
            cfg: cfg.checked(),
            rng: fastrand::Rng::with_seed(seed),
            jitter_seed: seed,
            messages: live::Messages::default(),
            newest: 0,
            activating: VecDeque::new(),
            domains: domains::Domains::default(),
            sites: sites::Sites::default(),
            waits: waits::Waits::default(),
            clocks: clocks::Clocks::default(),
            conns: conns::Conns::default(),
            timers: timers::Timers::default(),
            time: time::Time::default(),
            reasons: reasons::Reasons::default(),
            drains: VecDeque::new(),
            flushes: VecDeque::new(),
            flows: flows::Flows::default(),
            notices: notices::Notices::default(),
            coalescing: coalesce::Coalescing::default(),
            resuming: None,
            verbs: verbs::Verbs::default(),
            effects: Vec::new(),
            stopped: false,
        }
    }

    /// The limits changed (reload): they hold for what comes; nothing open is cut.
    pub fn configure(&mut self, cfg: SchedConfig) {
        self.cfg = cfg.checked();
        self.warn_anew();
    }

    /// The system's clock was set, and every `now` from here on is `by` ms further than it would have been; the store's
    /// messages of this run were moved with it.
    pub fn clock_moved(&mut self, by: i64, now: Ms) {
        self.time.moved(by, now);
        self.warn_anew();
    }

    /// `now` as it is kept here.
    fn steady(&self, now: Ms) -> Ms {
        self.time.steady(now)
    }

    /// A message became durable (or is live at start; then call this oldest first). A large one is activated in slices
    /// by the following ticks.
    pub fn accepted(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let now = self.time.begin(now);
        let Some(message) = store.message(no) else { return };
        let small = message.pending().len() <= SMALL_RECIPIENTS_MAX;
        let class = usize::from(message.class() == crate::event::Class::Bulk);
        let flow = self.flows.of(message, class);
        if !self.messages.insert(no, class, flow) {
            debug_assert!(false, "a message is accepted once");
            return;
        }
        self.newest = no.0;
        self.watch(store, no, now);
        if message.is_held() {
            self.park_unseen(no);
        } else {
            self.begin(store, no, small, now);
        }
    }

    /// Brings a message's recipients to where they wait.
    fn begin(&mut self, store: &Store, no: MessageNo, small: bool, now: Ms) {
        let Some((message, class)) = store.message(no).zip(self.messages.class(no)) else { return };
        if message.pending().len() <= UNTOUCHED_RECIPIENTS_MAX {
            for id in message.pending() {
                let domain = store.book.domain(AddressId(id));
                if self.domains.get(domain).bulk.insert(no.0) {
                    self.link(store, domain, no, class, now);
                }
            }
        } else if small {
            for id in store.pending_of(no) {
                self.make_ready(store, no, id, now);
            }
        } else if let Some(active) = self.messages.begin(no) {
            active.extra.get_or_insert_default().activation = Some(Activation::default());
            self.activating.push_back(no);
        }
    }

    /// The message is no longer live (its last recipient has an outcome, or an operator removed it).
    pub fn finished(&mut self, no: MessageNo) {
        if let Some(extra) = self.messages.remove(no).and_then(|active| active.extra) {
            for site in extra.held_at {
                self.drop_hold(site, clocks::HoldKey::Message(no));
            }
            if let Some(parked) = extra.parked {
                self.unpark_gone(no, &parked);
            }
        }
    }

    /// What is to be done, in order; the shell empties it after each call or few.
    pub fn effects(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// From now on no connection is opened and no work handed out; idle connections close, busy ones finish.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.close_unused();
    }

    /// Open connections of any kind: 0 after `stop` means that all is done.
    pub fn open_connections(&self) -> usize {
        self.conns.open()
    }

    /// When [`Scheduler::tick`] has something to do: 0 is at once, `None` never as things stand.
    pub fn next_tick(&self) -> Option<Ms> {
        let at_once = !self.activating.is_empty()
            || !self.domains.relinks.is_empty()
            || !self.domains.refreshes.is_empty()
            || !self.drains.is_empty()
            || !self.flushes.is_empty()
            || self.resuming.is_some()
            || !self.coalescing.jobs.is_empty()
            || self.verbs.has_work()
            || !self.sites.dirty.is_empty();
        if at_once && !self.stopped {
            return Some(0);
        }
        self.timers.next().map(|at| if at == 0 { 0 } else { self.time.wall(at) })
    }
}
