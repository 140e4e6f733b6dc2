//! Suspended sites, lists and senders: none of their mail is handed out until they are resumed. Transactions in flight
//! finish, and clocks go on. Standing bounces: recipients that one covers fail when their turn for a transaction comes,
//! or when they reach their place, held or not. The caller bounces those that wait already.

use stentor_queue::ids::{Ms, SiteId};
use stentor_queue::queue_only::Scope;
use stentor_queue::standing_bounces::StandingBounce;

use crate::bounces::Bounces;
use crate::flows::{FlowKey, FlowRules};
use crate::keeper::Keeper;
use crate::queue_only::ScopeOwner;
use crate::{DIRTY_MAX, Scheduler};

impl Scheduler {
    /// Sets the rules for a list's or sender's mail, for all later choices. Removing rules (`None`) leaves the class's
    /// defaults.
    pub fn set_rules(&mut self, key: FlowKey, rules: Option<FlowRules>) {
        self.state.flows.set_rules(key, rules);
        self.begin_regrouping();
    }

    /// Hands out no more mail of the list or sender until it is resumed; transactions in flight finish, clocks go on.
    pub fn suspend_flow(&mut self, key: &FlowKey) {
        self.state.flows.suspend(key);
        self.begin_regrouping();
    }

    /// Resumes the list or sender; the next ticks bring waiting mail back.
    pub fn resume_flow(&mut self, key: &FlowKey) {
        self.state.flows.resume(key);
        self.operator.resuming = Some(0);
    }

    /// Sends nothing more to the site (by its name, known or not) until it is resumed; transactions in flight finish.
    pub fn suspend_site(&mut self, name: &str) {
        let sites = &mut self.state.sites;
        if sites.suspended.iter().any(|n| &**n == name) {
            return;
        }
        sites.suspended.push(name.into());
        if let Some(site) = sites.named(name) {
            sites.get(site).suspended = true;
        }
    }

    pub fn resume_site(&mut self, name: &str) {
        let sites = &mut self.state.sites;
        sites.suspended.retain(|n| &**n != name);
        if let Some(site) = sites.named(name) {
            sites.get(site).suspended = false;
            sites.mark_dirty(site);
        }
    }

    /// Returns the name of the suspension ([`stentor_queue::event::Event::Suspend`]) that `keeper` stands for. `None`:
    /// it is not a single suspension.
    pub fn suspension(&self, keeper: Keeper) -> Option<String> {
        match keeper {
            Keeper::SuspendedSite(site) => self.site_name(site).map(|name| format!("site:{name}")),
            Keeper::SuspendedFlow(flow) => match self.state.flows.list.get(flow as usize)?.key.as_ref()? {
                FlowKey::List(name) | FlowKey::Archive(name) => Some(format!("list:{name}")),
                FlowKey::Sender(domain) => Some(format!("sender:{domain}")),
            },
            _ => None,
        }
    }

    /// Begins a standing bounce, or changes its end or reason.
    pub fn begin_bounce(&mut self, bounce: StandingBounce, until: Ms, reason: &str) {
        self.state.bounces.set(bounce, until, reason);
    }

    /// Ends a standing bounce. Recipients that it has already taken are still bounced.
    pub fn end_bounce(&mut self, bounce: &StandingBounce) {
        self.state.bounces.end(bounce);
    }

    /// The standing bounces in force, for mail that has not been accepted yet.
    pub fn bounces(&self) -> &Bounces {
        &self.state.bounces
    }

    /// Number of recipients that standing bounces took when their turn for a transaction came.
    pub fn bounced_in_passing(&self) -> u64 {
        self.state.bounces.recipients
    }

    /// Begins or ends a suspension, a standing bounce or an operator's queue-only scope, by the names of
    /// [`stentor_queue::event::Event::Suspend`]. Names that do not concern the scheduler (a subscriber) change nothing.
    pub fn set_suspended(&mut self, what: &str, suspended: bool, until: Ms, reason: &str) {
        if let Some(bounce) = StandingBounce::of_name(what) {
            return if suspended { self.begin_bounce(bounce, until, reason) } else { self.end_bounce(&bounce) };
        }
        if let Some(scope) = Scope::of_name(what) {
            return self.set_queue_only(&scope, suspended.then_some(reason), ScopeOwner::Operator);
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

    /// Looks again at sites with lines of flows that were suspended until now.
    pub(crate) fn resume_on(&mut self, now: Ms) {
        let Some(first) = self.operator.resuming else { return };
        let state = &mut self.state;
        let end = (first + DIRTY_MAX).min(state.sites.list.len() as u32);
        for site in first..end {
            if self.state.sites.get(SiteId(site)).lines.bring_back(&self.state.flows) {
                self.consider(SiteId(site), now);
            }
        }
        self.operator.resuming = (end < self.state.sites.list.len() as u32).then_some(end);
    }
}
