//! The state that all owners build on: configuration, times, randomness and replies; live messages, flows and sites;
//! pending timers and effects.
//!
//! An owner's methods get a [`SchedState`] beside the owner's own state, and no other owner. Work for another owner is
//! returned to [`super::Scheduler`], which does it.

use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::bounces::Bounces;
use crate::config::SchedConfig;
use crate::effects::{Effect, SourceNo};
use crate::flows::{FlowNo, Flows};
use crate::messages::Messages;
use crate::queue_only::QueueOnly;
use crate::reasons::{HostReply, Reasons};
use crate::run::Run;
use crate::sites::Sites;
use crate::sites::path::Path;
use crate::time::Time;
use crate::timers::{Timer, Timers};

/// The part of the scheduler's state that all owners read and change; what belongs to one owner is in its folder.
pub struct SchedState {
    pub cfg: SchedConfig,
    pub rng: fastrand::Rng,
    pub jitter_seed: u64,
    pub messages: Messages,
    /// Number of the message accepted last; higher numbers are from before the wrap.
    pub newest: u32,
    pub flows: Flows,
    pub sites: Sites,
    pub timers: Timers,
    pub time: Time,
    pub reasons: Reasons,
    pub bounces: Bounces,
    pub queue_only: QueueOnly,
    /// The current run of the queue.
    pub run: Option<Run>,
    pub effects: Vec<Effect>,
    pub stopped: bool,
}

impl SchedState {
    pub fn new(cfg: SchedConfig, seed: u64) -> SchedState {
        SchedState {
            cfg: cfg.checked(),
            rng: fastrand::Rng::with_seed(seed),
            jitter_seed: seed,
            messages: Messages::default(),
            newest: 0,
            flows: Flows::default(),
            sites: Sites::default(),
            timers: Timers::default(),
            time: Time::default(),
            reasons: Reasons::default(),
            bounces: Bounces::default(),
            queue_only: QueueOnly::default(),
            run: None,
            effects: Vec::new(),
            stopped: false,
        }
    }

    /// Sets the names of the configured sources, under which a restart keeps what was learned.
    pub fn name_sources(&mut self) {
        self.sites.sources = self.cfg.sources.iter().map(|source| source.name.as_str().into()).collect();
    }

    pub fn path(&mut self, site: SiteId, source: SourceNo) -> &mut Path {
        self.sites.path(site, source)
    }

    /// Records the last failure at a site.
    pub fn note_reply(&mut self, site: SiteId, reply: &HostReply) {
        self.sites.get(site).reason = self.reasons.keep(reply.clone());
    }

    /// Number of local addresses to send from.
    pub fn sources(&self) -> usize {
        self.cfg.sources.len().max(1)
    }

    /// Whether a message has outlived its lifetime.
    pub fn is_over_age(&self, store: &Store, no: MessageNo, now: Ms) -> bool {
        let Some(message) = store.message(no).filter(|_| self.messages.is_live(no)) else { return false };
        let lifetime_ms = self.lifetime_ms(no, message.sender().is_empty());
        self.time.is_over_age(message.accepted(), lifetime_ms, now)
    }

    /// How long a message's recipients are retried.
    fn lifetime_ms(&self, no: MessageNo, is_bounce: bool) -> Ms {
        let own = self.messages.flow(no).and_then(|flow| self.flows.get(flow).rules.lifetime_ms);
        let bounce = self.cfg.bounce_lifetime_ms.filter(|_| is_bounce);
        own.or(bounce).unwrap_or(self.class_lifetime_ms(self.messages.is_bulk(no)))
    }

    fn class_lifetime_ms(&self, is_bulk: bool) -> Ms {
        self.cfg.bulk_lifetime_ms.filter(|_| is_bulk).unwrap_or(self.cfg.lifetime_ms)
    }

    /// Whether messages may expire in another order than they arrived.
    pub fn lifetimes_differ(&self) -> bool {
        self.flows.lifetimes || self.cfg.bulk_lifetime_ms.or(self.cfg.bounce_lifetime_ms).is_some()
    }

    /// Whether a message is a bounce that lives longer than other mail of its class.
    pub fn outlives_others(&self, no: MessageNo) -> bool {
        let class_ms = self.class_lifetime_ms(self.messages.is_bulk(no));
        self.cfg.bounce_lifetime_ms.is_some_and(|bounce_ms| bounce_ms > class_ms)
            && self.messages.bounces().contains(no.0)
    }

    /// Whether an operator or the configuration keeps a message back, so that its recipients neither go nor fail nor
    /// expire now: it is held, its flow or site is suspended, or it is queue-only and no run of the queue lets it pass.
    /// `domain`: that of the recipients, if it is to be checked.
    pub fn is_kept(&self, store: &Store, no: MessageNo, site: Option<SiteId>, domain: Option<DomainId>) -> bool {
        let flow = self.messages.flow(no).map(|flow| self.flows.get(flow));
        let site = site.and_then(|site| self.sites.peek(site));
        if self.messages.is_held(no)
            || flow.is_some_and(|flow| flow.suspended)
            || site.is_some_and(|site| site.suspended)
        {
            return true;
        }
        if self.queue_only.is_empty() || self.may_pass(no) || site.is_some_and(|site| site.lines.passes(no)) {
            return false;
        }
        let is_of = |domain| self.queue_only.has_domain(store.book.domain_name_alone(domain));
        flow.is_some_and(|flow| flow.is_queue_only)
            || store.message(no).is_some_and(|message| self.queue_only.has_message(message))
            || self.queue_only.has_domains() && domain.is_some_and(is_of)
    }

    /// Whether the message is in the site's line.
    pub fn waits_in_line(&mut self, site: SiteId, no: MessageNo) -> bool {
        self.messages.flow(no).is_some_and(|flow| self.sites.get(site).lines.has(flow, no))
    }

    /// Whether an operator holds the message; if so it leaves the site's line, and its place is noted.
    pub fn keep_if_held(&mut self, site: SiteId, no: MessageNo) -> bool {
        if self.messages.held == 0 {
            return false;
        }
        let extra = self.messages.get_mut(no).and_then(|active| active.extra.as_mut());
        let Some(held) = extra.and_then(|extra| extra.held.as_mut()) else { return false };
        held.sites.insert(site.0);
        if let Some(flow) = self.messages.flow(no) {
            self.sites.get(site).lines.remove(flow, no);
        }
        true
    }

    /// Puts a message in a site's line, or aside if its flow is queue-only.
    pub fn enter_line(&mut self, site: SiteId, flow: FlowNo, class: usize, no: MessageNo) {
        let lines = &mut self.sites.get(site).lines;
        if self.flows.is_queue_only(flow) {
            lines.insert_aside(flow, class, no);
        } else {
            lines.insert(flow, class, no);
        }
    }

    /// Puts messages that a deferral kept back in a site's line, or aside if their flow is queue-only.
    pub fn enter_line_all(&mut self, site: SiteId, flow: FlowNo, class: usize, set: &IdSet) {
        let lines = &mut self.sites.get(site).lines;
        if self.flows.is_queue_only(flow) {
            lines.insert_all_aside(flow, class, set);
        } else {
            lines.insert_all(flow, class, set);
        }
    }

    /// Whether the message's sender or client is queue-only; if so, and unless it passes, it is put aside at the site.
    pub fn keep_if_queue_only(&mut self, store: &Store, site: SiteId, no: MessageNo) -> bool {
        if !store.message(no).is_some_and(|message| self.queue_only.has_message(message)) {
            return false;
        }
        let Some((class, flow)) = self.messages.class_and_flow(no) else { return false };
        let lines = &mut self.sites.get(site).lines;
        if lines.passes(no) {
            return false;
        }
        lines.insert_aside(flow, class, no);
        true
    }

    /// Whether a domain is queue-only and the message does not pass at its site.
    pub fn keeps_at_domain(&self, store: &Store, site: Option<SiteId>, domain: DomainId, no: MessageNo) -> bool {
        self.queue_only.has_domains()
            && self.queue_only.has_domain(store.book.domain_name_alone(domain))
            && !site.and_then(|site| self.sites.peek(site)).is_some_and(|site| site.lines.passes(no))
    }

    /// Whether a run of the queue lets a message pass that reaches its site for the first time.
    pub fn may_pass(&self, no: MessageNo) -> bool {
        self.run.is_some_and(|run| run.has(no, self.newest))
    }

    /// Marks a recipient as no longer in flight. Returns whether it was.
    pub fn no_longer_in_flight(&mut self, no: MessageNo, id: AddressId) -> bool {
        let was_there = self.messages.get_mut(no).is_some_and(|active| active.in_flight.remove(id.0));
        if was_there {
            self.messages.rest(no);
        }
        was_there
    }

    /// Schedules another look at the site for that time.
    pub fn look_again_at(&mut self, site: SiteId, until: Ms, now: Ms) {
        let entry = self.sites.get(site);
        if entry.timer_at <= now || until < entry.timer_at {
            entry.timer_at = until;
            self.timers.set(until, Timer::Site(site));
        }
    }
}
