//! Where a pending recipient is and why: the one judgement that single status queries and the census share.
//!
//! Promise: there is exactly one cause for each pending recipient. Our own actions and the operator's come first. Among
//! clocks the one that ends last is named, so that `until` is when the recipient may really be tried.

use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, MessageNo, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_queue::store::Store;

use super::attempt::{Attempts, ConnectionAttempt};
use super::explain::WaitsFor;
use crate::domains::{Domain, LookUp};
use crate::failure::deferrals::sender_key;
use crate::keeper::Keeper;
use crate::messages::Active;
use crate::reasons::{HostReply, Reason};
use crate::{Scheduler, SourceSet};

/// Where a pending recipient is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecipientPlace {
    /// It is in a transaction.
    Sending,
    /// An operator or a rule holds the message.
    Held,
    /// An operator suspended its site, list or sender.
    Suspended,
    /// The recipient is queue-only, by an operator or the configuration.
    QueueOnly,
    /// It failed and its report is being made, or a standing bounce covers it.
    Reporting,
    /// It waits for its own clock (greylisting).
    Recipient,
    /// It waits for its mailbox's clock.
    Mailbox,
    /// The message is deferred at the site after 4xx to its data.
    Message,
    /// All hosts of the site have answered MAIL from the sender's domain with 4xx.
    Sender,
    /// The domain's look-up is under way, or failed and will be retried.
    LookUp,
    /// All hosts of the site are under clocks.
    Site,
    /// It waits for a connection.
    Ready,
    /// Not a live message, or not pending.
    Unknown,
}

/// A pending recipient of a message: where it is, why, the next try and the last reply.
#[derive(Clone, PartialEq, Debug)]
pub struct RecipientStatus {
    pub state: RecipientPlace,
    pub cause: Cause,
    pub site: Option<SiteId>,
    pub next_try: Option<Ms>,
    pub reason: Option<HostReply>,
    /// The connection attempt that it waits for, in wall-clock time.
    pub attempt: Option<ConnectionAttempt>,
    /// Who keeps it, if it is held, suspended or queue-only.
    pub keeper: Keeper,
}

/// The judgement. `until` is steady time; in the past or `None`: the recipient does not wait for a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub state: RecipientPlace,
    pub cause: Cause,
    pub until: Option<Ms>,
    pub reason: Reason,
    pub attempt: Option<ConnectionAttempt>,
    pub keeper: Keeper,
}

/// State shared by all recipients of a message.
#[derive(Clone, Copy)]
pub(super) struct MessageState<'a> {
    no: MessageNo,
    active: Option<&'a Active>,
    held_by: Option<Keeper>,
    /// Its flow, if that is suspended.
    suspended_by: Option<Keeper>,
    /// Who makes its flow, sender or client queue-only.
    queue_only: Option<Keeper>,
    /// Set if some domains are queue-only.
    domains_of: Option<&'a Store>,
    /// Set if a standing bounce may cover it.
    bounced_by: Option<(&'a Store, &'a Message)>,
    /// Sources that it may be sent from.
    pub sources: SourceSet,
    sender: u64,
}

/// State shared by all recipients at a site that may be sent from the same sources.
#[derive(Clone, Copy)]
pub(super) struct SiteConditions {
    site: SiteId,
    is_suspended: bool,
    has_deferrals: bool,
    clock: Option<(Ms, Reason)>,
    /// The place of mail that no clock keeps back.
    ready: Place,
}

impl Place {
    fn new(state: RecipientPlace, cause: Cause) -> Place {
        Place { state, cause, until: None, reason: Reason::NONE, attempt: None, keeper: Keeper::None }
    }

    /// The later of this place and another clock.
    fn or_later(self, state: RecipientPlace, until: Ms, reason: Reason) -> Place {
        if until <= self.until.unwrap_or(0) {
            return self;
        }
        Place { until: Some(until), reason, ..Place::new(state, reason.cause) }
    }
}

impl Scheduler {
    pub fn recipient_status(&self, store: &Store, no: MessageNo, id: AddressId, now: Ms) -> RecipientStatus {
        let now = self.steady(now);
        let domain = store.book.try_domain(id).and_then(|d| self.domains.peek(d));
        let site = domain.and_then(|d| d.site);
        let message = store.message(no).filter(|m| self.state.messages.is_live(no) && m.pending().contains(id.0));
        let place = message.map_or(Place::new(RecipientPlace::Unknown, Cause::Ready), |message| {
            let of_message = self.of_message(store, no, message);
            let attempts = self.attempts(site);
            let at = site.map(|site| self.at_site(site, of_message.sources, &attempts, now));
            self.place(&of_message, id, domain, at.as_ref(), |no, id| self.pool.silent_since(no, id), now)
        });
        let mut reason = place.reason;
        if matches!(place.state, RecipientPlace::Sending | RecipientPlace::Ready) && reason.is_none() {
            reason = self.failure.last_reason(no, id);
            let is_idle = place.state == RecipientPlace::Ready && place.attempt.is_none();
            if let Some(site) = site.filter(|_| reason.is_none() && is_idle) {
                reason = self.state.sites.list[site.0 as usize].reason;
            }
        }
        RecipientStatus {
            state: place.state,
            cause: place.cause,
            site,
            next_try: place.until.filter(|until| *until > now).map(|until| self.state.time.wall(until)),
            reason: self.state.reasons.get(reason).cloned(),
            attempt: place.attempt.map(|attempt| self.dated(attempt)),
            keeper: place.keeper,
        }
    }

    /// The reply with which a pending recipient was last deferred, whatever it waits for now.
    pub fn last_reply(&self, no: MessageNo, id: AddressId) -> Option<&HostReply> {
        let of_mailbox = self.failure.mailboxes.wait(id, no).map(|(_, reason)| reason);
        self.state.reasons.get(of_mailbox.unwrap_or_else(|| self.failure.last_reason(no, id)))
    }

    /// Whether a standing bounce covers a message's recipients at a domain of a site.
    fn is_bounced(&self, message: &Message, domain: &str, site: Option<&str>, now: Ms) -> bool {
        let now = self.state.time.wall(now);
        self.state.bounces.reason(message.senders(), message.list(), domain, site, now).is_some()
    }

    pub(super) fn of_message<'a>(&'a self, store: &'a Store, no: MessageNo, message: &'a Message) -> MessageState<'a> {
        let active = self.state.messages.get(no);
        let flow_no = self.state.messages.flow(no);
        let flow = flow_no.map(|flow| self.state.flows.get(flow));
        let is_queue_only = flow.is_some_and(|flow| flow.is_queue_only) || self.state.queue_only.has_message(message);
        let holder = || if message.held_by().is_some() { Keeper::Rule } else { Keeper::Operator };
        MessageState {
            no,
            active,
            held_by: active.is_some_and(Active::is_held).then(holder),
            suspended_by: flow_no.filter(|_| flow.is_some_and(|flow| flow.suspended)).map(Keeper::SuspendedFlow),
            queue_only: is_queue_only.then(|| self.state.queue_only.keeper(message)),
            domains_of: self.state.queue_only.has_domains().then_some(store),
            bounced_by: self.state.bounces.are_of(message).then_some((store, message)),
            sources: flow.map_or(SourceSet::ALL, |flow| flow.sources),
            sender: sender_key(message.sender()),
        }
    }

    pub(super) fn at_site(&self, site: SiteId, sources: SourceSet, attempts: &Attempts, now: Ms) -> SiteConditions {
        let entry = &self.state.sites.list[site.0 as usize];
        SiteConditions {
            site,
            is_suspended: entry.suspended,
            has_deferrals: entry.deferrals > 0,
            clock: self.state.sites.clock_of(site, sources, now),
            ready: self.ready_at(site, sources, self.attempt_at(site, sources, attempts), now),
        }
    }

    /// The cause if an operator or the configuration keeps a message back for `id`.
    pub fn kept_cause(&self, store: &Store, no: MessageNo, id: AddressId, now: Ms) -> Option<Cause> {
        let message = store.message(no).filter(|_| self.state.messages.is_live(no))?;
        let (of_message, now) = (self.of_message(store, no, message), self.steady(now));
        let site = store.book.try_domain(id).and_then(|domain| self.domains.peek(domain)).and_then(|d| d.site);
        let at = site.map(|site| self.at_site(site, of_message.sources, &Attempts::default(), now));
        self.kept(&of_message, id, at.as_ref()).map(|place| place.cause)
    }

    /// Why mail of a site waits that has no clock of its own.
    pub(super) fn cause_at(&self, site: SiteId, attempts: &Attempts, now: Ms) -> Cause {
        let at = self.at_site(site, SourceSet::ALL, attempts, now);
        if at.is_suspended {
            return Cause::Suspended;
        }
        let behind = |(until, reason)| at.ready.or_later(RecipientPlace::Site, until, reason);
        at.clock.map_or(at.ready, behind).cause
    }

    /// Where mail is that no clock keeps back at a site.
    fn ready_at(&self, site: SiteId, sources: SourceSet, attempt: Option<ConnectionAttempt>, now: Ms) -> Place {
        let reason = self.state.sites.list[site.0 as usize].reason;
        let of_host = self.state.sites.failure_of(site, sources);
        let failed = of_host.unwrap_or(reason);
        let waits_for = self.waits_for(site, sources, now);
        let (cause, until, reason) = match (waits_for, attempt) {
            // All hosts have failed, and the clock of one has run out: it is being tried, and may be as slow as before.
            (WaitsFor::Nothing | WaitsFor::Connecting | WaitsFor::Going | WaitsFor::Silent, _)
                if self.state.sites.all_failed(site, sources) =>
            {
                (failed.cause, None, failed)
            }
            (WaitsFor::Connecting | WaitsFor::Going | WaitsFor::Silent, Some(attempt)) => {
                (attempt.cause(), None, of_host.unwrap_or(Reason::NONE))
            }
            // An operator's suspension and the hosts' clocks are judged separately.
            (
                WaitsFor::Nothing
                | WaitsFor::Operator
                | WaitsFor::HostClock(_)
                | WaitsFor::Connecting
                | WaitsFor::Going,
                _,
            ) => (Cause::Ready, None, Reason::NONE),
            (WaitsFor::Connections | WaitsFor::Transactions | WaitsFor::Budget, _) => {
                (Cause::OwnLimit, None, Reason::NONE)
            }
            (WaitsFor::Rate(until), _) => (Cause::OwnLimit, Some(until), Reason::NONE),
            (WaitsFor::Pause(until), _) => (Cause::Rate, Some(until), reason),
            (WaitsFor::Full(until), _) => (Cause::Busy, Some(until), reason),
            (WaitsFor::Silent, None) => (Cause::Silent, None, Reason::NONE),
            (WaitsFor::Probe, _) => (failed.cause, None, failed),
        };
        let is_tried = matches!(waits_for, WaitsFor::Connecting | WaitsFor::Going | WaitsFor::Silent | WaitsFor::Probe);
        let attempt = attempt.filter(|_| is_tried);
        Place { until, reason, attempt, ..Place::new(RecipientPlace::Ready, cause) }
    }

    /// Who makes the recipient queue-only, unless a run of the queue lets it pass.
    fn made_queue_only(
        &self,
        message: &MessageState<'_>,
        id: AddressId,
        at: Option<&SiteConditions>,
    ) -> Option<Keeper> {
        let of_domain = || {
            let store = message.domains_of?;
            self.state.queue_only.domain(store.book.domain_name_alone(store.book.try_domain(id)?))
        };
        let keeper = message.queue_only.or_else(of_domain)?;
        let site = at.and_then(|at| self.state.sites.peek(at.site));
        let passes = site.map_or_else(|| self.state.may_pass(message.no), |site| site.lines.passes(message.no));
        (!passes).then_some(keeper)
    }

    /// The place of a recipient that an operator, a rule or the configuration keeps back.
    pub(super) fn kept(&self, message: &MessageState<'_>, id: AddressId, at: Option<&SiteConditions>) -> Option<Place> {
        if let Some(keeper) = message.held_by {
            return Some(Place { keeper, ..Place::new(RecipientPlace::Held, Cause::Held) });
        }
        let of_site = at.filter(|at| at.is_suspended).map(|at| Keeper::SuspendedSite(at.site));
        if let Some(keeper) = of_site.or(message.suspended_by) {
            return Some(Place { keeper, ..Place::new(RecipientPlace::Suspended, Cause::Suspended) });
        }
        let keeper = self.made_queue_only(message, id, at)?;
        Some(Place { keeper, ..Place::new(RecipientPlace::QueueOnly, Cause::QueueOnly) })
    }

    /// Where a pending recipient is. `message` is live, and `id` pending.
    pub(super) fn place(
        &self,
        message: &MessageState<'_>,
        id: AddressId,
        domain: Option<&Domain>,
        at: Option<&SiteConditions>,
        silent_since: impl Fn(MessageNo, AddressId) -> Option<Ms>,
        now: Ms,
    ) -> Place {
        let no = message.no;
        if let Some(active) = message.active {
            if active.in_flight.contains(id.0) {
                let attempt = silent_since(no, id).map(ConnectionAttempt::without_reply);
                let cause = attempt.map_or(Cause::Sending, ConnectionAttempt::cause);
                return Place { attempt, ..Place::new(RecipientPlace::Sending, cause) };
            }
            if active.is_failing(id) {
                return Place::new(RecipientPlace::Reporting, Cause::Reporting);
            }
        }
        if let Some((store, of)) = message.bounced_by
            && let Some(domain) = store.book.try_domain(id)
            && self.is_bounced(of, store.book.domain_name_alone(domain), at.and_then(|at| self.site_name(at.site)), now)
        {
            return Place::new(RecipientPlace::Reporting, Cause::Reporting);
        }
        if let Some(kept) = self.kept(message, id, at) {
            return kept;
        }
        let mut place = at.map_or_else(|| of_look_up(domain), |at| at.ready);
        if let Some((until, reason)) = self.failure.recipients.wait(no, id, now) {
            place = place.or_later(RecipientPlace::Recipient, until, reason);
        }
        if let Some((until, reason)) = self.failure.mailboxes.wait(id, no) {
            place = place.or_later(RecipientPlace::Mailbox, until, reason);
        }
        let Some(at) = at else { return place };
        if at.has_deferrals {
            let deferrals = &self.failure.deferrals;
            let sender = deferrals.sender_wait(&self.state, at.site, message.sender, message.sources, now);
            if let Some((until, reason)) = deferrals.wait(at.site, no, now) {
                let is_of_sender = sender.is_some() && deferrals.stands_back(at.site, no);
                let state = if is_of_sender { RecipientPlace::Sender } else { RecipientPlace::Message };
                place = place.or_later(state, until, reason);
            }
            if let Some((until, reason)) = sender {
                place = place.or_later(RecipientPlace::Sender, until, reason);
            }
        }
        if let Some((until, reason)) = at.clock {
            place = place.or_later(RecipientPlace::Site, until, reason);
        }
        place
    }
}

/// The place of recipients at a domain without a site.
fn of_look_up(domain: Option<&Domain>) -> Place {
    let Some(domain) = domain.filter(|domain| !domain.reason.is_none()) else {
        return Place::new(RecipientPlace::LookUp, Cause::LookUp);
    };
    let until = (domain.look_up == LookUp::Clock).then_some(domain.until);
    Place { until, reason: domain.reason, ..Place::new(RecipientPlace::LookUp, domain.reason.cause) }
}
