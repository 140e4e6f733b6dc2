//! Suspended sites, lists and senders: nothing of theirs is handed out until they are resumed. Transactions in flight
//! finish, and clocks go on. Standing bounces: what they cover fails when its turn for a transaction comes, or when it comes
//! to where it would wait, held or not; what waits already is the caller's to bounce.

use stentor_queue::ids::{Ms, SiteId};
use stentor_queue::queue_only::Scope;
use stentor_queue::standing::StandingBounce;

use crate::bounces::Bounces;
use crate::flows::{FlowKey, FlowRules};
use crate::queue_only::By;
use crate::{DIRTY_MAX, Scheduler};

impl Scheduler {
    /// Sets what holds for a list's or sender's mail; in force for what is chosen from now on. Rules taken back
    /// (`None`) leave the class's defaults.
    pub fn set_rules(&mut self, key: FlowKey, rules: Option<FlowRules>) {
        self.core.flows.set_rules(key, rules);
    }

    /// Nothing more of the list or sender is handed out until it is resumed; what is in flight ends, clocks run on.
    pub fn suspend_flow(&mut self, key: &FlowKey) {
        self.core.flows.suspend(key);
    }

    /// Ends that; what waits is brought back by the next ticks.
    pub fn resume_flow(&mut self, key: &FlowKey) {
        self.core.flows.resume(key);
        self.operator.resuming = Some(0);
    }

    /// Nothing more goes to the site (by its name, known or not) until it is resumed; what is in flight ends.
    pub fn suspend_site(&mut self, name: &str) {
        let sites = &mut self.core.sites;
        if sites.suspended.iter().any(|n| &**n == name) {
            return;
        }
        sites.suspended.push(name.into());
        if let Some(site) = sites.named(name) {
            sites.get(site).suspended = true;
        }
    }

    pub fn resume_site(&mut self, name: &str) {
        let sites = &mut self.core.sites;
        sites.suspended.retain(|n| &**n != name);
        if let Some(site) = sites.named(name) {
            sites.get(site).suspended = false;
            sites.mark_dirty(site);
        }
    }

    /// A standing bounce begins, or gets another end or reason.
    pub fn begin_bounce(&mut self, bounce: StandingBounce, until: Ms, reason: &str) {
        self.core.bounces.set(bounce, until, reason);
    }

    /// It is over. What it has taken out of its way is bounced all the same.
    pub fn end_bounce(&mut self, bounce: &StandingBounce) {
        self.core.bounces.end(bounce);
    }

    /// The standing bounces in force, for mail that has not been accepted yet.
    pub fn bounces(&self) -> &Bounces {
        &self.core.bounces
    }

    /// Recipients that standing bounces took out of their way into a transaction.
    pub fn bounced_in_passing(&self) -> u64 {
        self.core.bounces.recipients
    }

    /// Suspensions, standing bounces, what an operator makes queue-only, and their ends, by the names of [`stentor_queue::event::Event::Suspend`]. What is not
    /// the scheduler's (a subscriber) changes nothing.
    pub fn set_suspended(&mut self, what: &str, suspended: bool, (until, reason): (Ms, &str)) {
        if let Some(bounce) = StandingBounce::of_name(what) {
            return if suspended { self.begin_bounce(bounce, until, reason) } else { self.end_bounce(&bounce) };
        }
        if let Some(scope) = Scope::of_name(what) {
            return self.set_queue_only(&scope, suspended.then_some(reason), By::Operator);
        }
        let Some((kind, name)) = what.split_once(':') else { return };
        let key = match kind {
            "list" => FlowKey::List(name.into()),
            "sender" => FlowKey::Sender(name.into()),
            "site" if suspended => return self.suspend_site(name),
            "site" => return self.resume_site(name),
            _ => return,
        };
        if suspended { self.suspend_flow(&key) } else { self.resume_flow(&key) }
    }

    /// Sites with lines of flows that were suspended until now.
    pub(crate) fn resume_on(&mut self, now: Ms) {
        let Some(first) = self.operator.resuming else { return };
        let core = &mut self.core;
        let end = (first + DIRTY_MAX).min(core.sites.list.len() as u32);
        for site in first..end {
            if self.core.sites.get(SiteId(site)).lines.bring_back(&self.core.flows) {
                self.consider(SiteId(site), now);
            }
        }
        self.operator.resuming = (end < self.core.sites.list.len() as u32).then_some(end);
    }
}
