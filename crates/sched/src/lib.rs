//! The scheduler: decides which recipients go into which transaction over which connection, and when failed ones are
//! tried again.
//!
//! A pure state machine: calls bring events and `now`, [`Effect`]s are collected from [`Scheduler::effects`]. It is
//! volatile: a start rebuilds everything by calling [`Scheduler::accepted`] for each live message, oldest first.
//! Learned facts about hosts and mailboxes are restored before that, if there is a file ([`Scheduler::recall`]).
//!
//! **Promise.** Each pending recipient of a live message is in exactly one of these places, and leaves it only as
//! listed:
//!
//! | place | held in | leaves it by |
//! |---|---|---|
//! | not yet activated | the message's activation cursor | a slice of activation |
//! | untouched | the domain's bitmap of messages (`bulk`) | being looked at for a transaction |
//! | ready | the list of its (domain, message) (`explicit`) | being put into a transaction |
//! | in flight | its transaction | `work_done`, `withdraw`, or `closed` (taken as lost) |
//! | waiting for its own clock or its mailbox's | `failure` | the clock |
//! | failing | the message's failures | `bounced` (or `bounce_refused`, and again) |
//! | met | the operator's reservation: its turn came, and it was kept back | `removed` or `unreserve` |
//!
//! So no recipient is handed out twice at a time, nothing is scanned for, and a clock that fires brings back exactly
//! the recipients that wait for it. Deferrals of a message or a sender at a site stop (site, message) pairs, not
//! recipients. So does the operator's hold on a message (`operator`), which has no clock.
//!
//! **Owners.** Each folder owns its state. Its methods get `SchedState` (limits, times, live messages, flows, sites)
//! and no owner above them in this table; imports go downwards only:
//!
//! | folder | decides |
//! |---|---|
//! | `operator`, `notices`, `status` | operators' actions; delays, stragglers, suspensions and digests; status queries |
//! | `choice` | which recipients make the next transaction |
//! | `connections` | which site gets a connection; lanes and lifecycles |
//! | `domains` | lookups, and the site of a domain |
//! | `failure` | the meaning of a reply, and every clock that follows from it |
//! | `sites` | hosts, paths and their limits; history |
//! | `flows` | whose turn it is: at a site, and in the line for the budget |
//! | `messages` | which messages are live; extra state of those in flight, held or failing |
//!
//! Work for another owner is returned, and done by `Scheduler`, in `steps` (work over time), `sessions` (events of
//! connections) and `failure::results` (outcomes of transactions).
//!
//! **Bounds.** No call does more than `STEPS_MAX` steps of work. The next [`Scheduler::tick`] continues, and
//! [`Scheduler::next_tick`] says "at once" as long as work remains. Connections never exceed `connections_max` (fast)
//! and `slow_connections_max` (silent).
//!
//! **Failures on the caller's side** (a call for an unknown connection or transaction, a message that is gone) are
//! ignored: the store, not the scheduler, is authoritative. docs/design/scheduler.md describes the strategies.

mod bounces;
mod choice;
mod config;
mod connections;
mod domains;
mod effects;
mod failure;
#[cfg(test)]
mod fixture;
mod flows;
mod keeper;
mod kept;
mod learned;
mod messages;
mod notices;
mod operator;
mod queue_only;
mod reasons;
mod run;
mod sessions;
mod sites;
mod state;
mod status;
mod steps;
mod tables;
mod time;
mod timers;

use std::collections::VecDeque;

pub use config::{Backoff, SchedConfig, SourceConfig, Strategies};
pub use effects::{
    CloseReason, Effect, FailedRcpt, Ids, NoSession, RcptOutcome, SessionSoFar, SessionStep, SourceNo, Stage, Work,
};
pub use failure::block_list::block_list;
pub use failure::verdict;
pub use flows::{FlowKey, FlowRules, SourceSet};
pub use keeper::Keeper;
pub use learned::SnapshotProgress;
pub use queue_only::ScopeOwner;
pub use reasons::HostReply;
pub use sites::history::SiteHistory;
pub use status::attempt::ConnectionAttempt;
pub use status::census::{CauseCount, CauseCounts, Census, LARGE_RECIPIENTS_MIN, QueuePart, WaitingPlace};
pub use status::explain::{HostStatus, PathStatus, SiteExplanation, WaitsFor};
pub use status::place::{RecipientPlace, RecipientStatus};
pub use status::waiters::Waiters;
pub use status::{HostRole, SiteProgress, SiteStatus, SiteSummary, TableSizes};
pub use stentor_queue::queue_only::{ClientScope, Scope};

use choice::Choice;
use choice::ready::Placement;
use choice::waits::Waits;
use connections::pool::Pool;
use connections::{Admission, Connections};
use domains::{Domains, LookUpOutcome};
use failure::FailureState;
use failure::deferrals::DeferralKey;
use messages::Activation;
use notices::Notices;
use notices::coalesce::Coalescing;
use operator::OperatorTasks;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::site::Resolution;
use stentor_queue::store::Store;

use self::state::SchedState;

/// Elementary steps (ids looked at, timers fired, domains passed) that one call may do: well under a millisecond.
const STEPS_MAX: u32 = 4_096;
/// Messages of up to this many recipients are activated at once, recipient by recipient; larger ones domain by domain.
const SMALL_RECIPIENTS_MAX: usize = 256;
/// Messages of up to this many recipients are activated at once, domain by domain. Their lists are made only when
/// needed, so a waiting message costs a bit at its domain and one at its site.
const UNTOUCHED_RECIPIENTS_MAX: usize = 8;
/// Number of sites looked at again per call.
const DIRTY_MAX: u32 = 512;
/// Sites in a row whose turn in the line for the budget was in vain: there is no room for their kind.
const TURNED_AWAY_MAX: u32 = 8;

/// The scheduler; see the module's head.
pub struct Scheduler {
    state: SchedState,
    domains: Domains,
    waits: Waits,
    failure: FailureState,
    pool: Pool,
    notices: Notices,
    coalescing: Coalescing,
    operator: OperatorTasks,
    /// Large messages that are being linked to their domains.
    activating: VecDeque<MessageNo>,
}

impl Scheduler {
    /// Creates a scheduler. `seed` decides jitter and the order of equal targets, nothing else.
    pub fn new(cfg: SchedConfig, seed: u64) -> Scheduler {
        let mut state = SchedState::new(cfg, seed);
        state.name_sources();
        Scheduler {
            state,
            domains: Domains::default(),
            waits: Waits::default(),
            failure: FailureState::default(),
            pool: Pool::default(),
            notices: Notices::default(),
            coalescing: Coalescing::default(),
            operator: OperatorTasks::default(),
            activating: VecDeque::new(),
        }
    }

    /// Applies changed limits (reload) from now on; nothing open is closed.
    pub fn configure(&mut self, cfg: SchedConfig) {
        self.state.cfg = cfg.checked();
        self.state.name_sources();
        self.keep_flows();
        self.notices.warn_anew(&mut self.state);
    }

    /// Called when the system's clock was set: every `now` from here on is `by` ms later than it would have been. The
    /// store's messages of this run were moved with it.
    pub fn clock_moved(&mut self, by: i64, now: Ms) {
        self.state.time.moved(by, now);
        self.notices.warn_anew(&mut self.state);
    }

    /// Whether a message accepted then has outlived this lifetime, by a clock that has been watched long enough.
    pub fn is_over_age(&mut self, accepted: Ms, lifetime_ms: Ms, now: Ms) -> bool {
        let now = self.state.time.begin(now);
        self.state.time.is_over_age(accepted, lifetime_ms, now)
    }

    /// Converts `now` to steady time.
    fn steady(&self, now: Ms) -> Ms {
        self.state.time.steady(now)
    }

    fn connections(&mut self, now: Ms) -> Connections<'_> {
        Connections { state: &mut self.state, pool: &mut self.pool, now }
    }

    fn admission(&mut self, now: Ms) -> Admission<'_> {
        Admission { state: &mut self.state, pool: &mut self.pool, deferrals: &mut self.failure.deferrals, now }
    }

    fn choice<'a>(&'a mut self, store: &'a Store, now: Ms) -> Choice<'a> {
        let Scheduler { state, failure, domains, waits, .. } = self;
        Choice { state, failure, domains, waits, store, now }
    }

    /// Called when a message became durable, and for each live message at the start, oldest first. A large one is
    /// activated in slices by the following ticks.
    pub fn accepted(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let now = self.state.time.begin(now);
        let Some(message) = store.message(no) else { return };
        let small = message.pending().len() <= SMALL_RECIPIENTS_MAX;
        let class = usize::from(message.class() == stentor_mail::Class::Bulk);
        let flow = self.state.flows.of(message, class);
        if !self.state.messages.insert(no, class, flow) {
            debug_assert!(false, "a message is accepted once");
            return;
        }
        if message.sender().is_empty() {
            self.state.messages.note_bounce(no);
        }
        self.state.newest = no.0;
        self.notices.watch(&mut self.state, store, no, now);
        if message.is_held() && !self.state.bounces.are_of(message) {
            self.state.messages.hold_unseen(no);
            return;
        }
        if message.is_held() {
            self.state.messages.hold(no);
        }
        self.begin(store, no, small, now);
    }

    /// Puts a message's recipients in the places where they wait.
    fn begin(&mut self, store: &Store, no: MessageNo, small: bool, now: Ms) {
        let Some((message, class)) = store.message(no).zip(self.state.messages.class(no)) else { return };
        let has_clocks = small && self.failure.has_recalled(no, message.pending());
        if message.pending().len() <= UNTOUCHED_RECIPIENTS_MAX && !has_clocks {
            for id in message.pending() {
                let domain = store.book.domain(AddressId(id));
                if self.domains.get(domain).bulk.insert(no.0) {
                    self.link(store, domain, no, class, false, now);
                }
            }
        } else if small {
            for id in store.pending_of(no) {
                // Recipients that a clock from before the start keeps back wait there from the beginning, unless a
                // standing bounce covers them.
                let waits = has_clocks
                    && !self.choice(store, now).bounce_at(store.book.domain(id), no)
                    && self.failure.keeps_recalled_back(no, id, now);
                if !waits {
                    self.make_ready(store, no, id, now);
                }
            }
        } else if let Some(active) = self.state.messages.begin(no) {
            active.extra.get_or_insert_default().activation = Some(Activation::default());
            self.activating.push_back(no);
        }
    }

    /// Makes a recipient ready, so that it is sent to as soon as there is a connection.
    fn make_ready(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        match self.choice(store, now).enter(no, id) {
            Placement::Nowhere => {}
            Placement::Domain(domain, class) => self.link(store, domain, no, class, false, now),
            Placement::Site(site) => self.consider(site, now),
        }
    }

    /// Makes a recipient that was in flight ready again at once.
    fn requeue(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if !self.state.messages.is_live(no) {
            self.end_clocks(store, no, id, now);
        } else if self.state.no_longer_in_flight(no, id) {
            self.make_ready(store, no, id, now);
        }
    }

    /// Links a message that is new at a domain to the domain's site, and starts the lookup if needed; or bounces it.
    /// `passes`: a run of the queue lets it go although it is queue-only.
    fn link(&mut self, store: &Store, domain: DomainId, no: MessageNo, class: usize, passes: bool, now: Ms) {
        if self.choice(store, now).bounce_at(domain, no) {
            return;
        }
        if let Some(site) = self.domains.site_or_ask(&mut self.state, domain, now) {
            self.choice(store, now).wait_at(site, domain, no, class, passes);
            self.consider(site, now);
        }
    }

    /// Considers a connection for a site where mail waits or something has changed.
    fn consider(&mut self, site: SiteId, now: Ms) {
        if !self.state.stopped && self.waits.clear_front(&mut self.state, site) {
            self.admission(now).consider(site);
        }
    }

    /// Opens connections for the sites in line, as far as the budget allows.
    fn serve_line(&mut self, now: Ms) {
        let mut turned_away = 0;
        while turned_away < TURNED_AWAY_MAX
            && let Some((flow, site)) = self.admission(now).next_in_line()
        {
            let before = self.pool.open();
            self.consider(site, now);
            if self.pool.open() > before {
                self.admission(now).want_more(site);
            } else if self.state.sites.get(site).lines.line(flow).is_some_and(|line| line.wants) {
                turned_away += 1;
            }
        }
    }

    /// Called when the message is no longer live (its last recipient has an outcome, or an operator removed it).
    pub fn finished(&mut self, no: MessageNo) {
        if let Some(extra) = self.state.messages.remove(no).and_then(|active| active.extra) {
            for site in extra.deferred_at {
                self.failure.deferrals.drop(&mut self.state, site, DeferralKey::Message(no));
            }
            if let Some(held) = extra.held {
                self.held_is_gone(no, &held);
            }
        }
    }

    /// Handles the answer to [`Effect::Resolve`].
    pub fn resolved(&mut self, store: &Store, domain: DomainId, resolution: Resolution, now: Ms) {
        let now = self.steady(now);
        if !self.domains.is_asked(domain) {
            return;
        }
        match self.domains.resolved(&mut self.state, store, domain, resolution, now) {
            LookUpOutcome::Nothing => {}
            LookUpOutcome::Moved => {
                self.recall_deferrals(store, domain, now);
                self.relink(store, STEPS_MAX / 4, now);
            }
            LookUpOutcome::Drain(drain) => self.failure.drains.push_back(drain),
        }
        self.domains.ask(&mut self.state, now);
        self.look_at_dirty(STEPS_MAX / 64, now);
    }

    /// Looks every domain up again that is at a site or whose lookup waits for its clock, after the operator changed
    /// the routes. Until the answer comes, its mail takes the known route.
    pub fn routes_changed(&mut self, now: Ms) {
        let now = self.steady(now);
        self.domains.routes_changed(&mut self.state, now);
    }

    /// Releases a domain without addresses that is to be forgotten. Returns whether nothing here refers to it any more.
    /// Its id may be reused from then on.
    pub fn forget_domain(&mut self, domain: DomainId) -> bool {
        if self.domains.peek(domain).is_none() {
            return true;
        }
        !self.has_domain_jobs() && self.domains.forget(&mut self.state, domain)
    }

    /// Effects to perform, in order; the caller drains them after each call or batch of calls.
    pub fn effects(&mut self) -> std::vec::Drain<'_, Effect> {
        self.state.effects.drain(..)
    }

    /// Stops opening connections and handing out work; idle connections close, busy ones finish.
    pub fn stop(&mut self) {
        self.state.stopped = true;
        // Closing does not depend on the time.
        self.connections(0).close_unused();
    }

    /// Number of open connections of any kind: 0 after `stop` means that the scheduler has stopped.
    pub fn open_connections(&self) -> usize {
        self.pool.open()
    }
}
