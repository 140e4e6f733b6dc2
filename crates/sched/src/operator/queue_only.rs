//! Changes to queue-only scopes, and runs of the queue; see [`crate::queue_only`].

use stentor_queue::ids::{Ms, SiteId};
use stentor_queue::queue_only::Scope;
use stentor_queue::store::Store;

use crate::domains::RelinkProgress;
use crate::queue_only::ScopeOwner;
use crate::run::{Run, Step};
use crate::timers::Timer;
use crate::{DIRTY_MAX, Scheduler};

/// Interval at which the end of a run is checked for.
const RUN_LOOK_MS: Ms = 1_000;
/// How long a run waits for outstanding look-ups when nothing else of it is left.
const RUN_LOOK_UPS_MS: Ms = 300_000;

impl Scheduler {
    /// Makes a scope queue-only for this reason, which may be empty, or ends that (`None`); the next ticks bring its
    /// waiting mail back.
    pub fn set_queue_only(&mut self, scope: &Scope, reason: Option<&str>, by: ScopeOwner) {
        if !self.state.queue_only.set(scope, reason, by) {
            return;
        }
        self.keep_flows();
        if reason.is_none() {
            self.operator.resuming = Some(0);
            if let Scope::Domain(domain) = scope {
                self.operator.relinks.push(domain.as_str().into());
            }
        }
    }

    /// Sets the queue-only scopes of the configuration, with their reasons; its other scopes end.
    pub fn set_configured_queue_only(&mut self, wanted: &[(Scope, &str)]) {
        for scope in self.state.queue_only.configured_beside(wanted) {
            self.set_queue_only(&scope, None, ScopeOwner::Configuration);
        }
        for (scope, reason) in wanted {
            self.set_queue_only(scope, Some(reason), ScopeOwner::Configuration);
        }
    }

    /// The reason of the entry that keeps mail ([`crate::Keeper::QueueOnly`]).
    pub fn queue_only_reason(&self, no: u32) -> Option<String> {
        self.state.queue_only.reason(no)
    }

    /// Updates the queue-only flows after a change of the scopes or sources.
    pub(crate) fn keep_flows(&mut self) {
        let kept = self.state.queue_only.of_flows(&self.state.cfg.sources);
        self.state.flows.keep(kept);
        self.begin_regrouping();
    }

    /// The scopes that are queue-only now.
    pub fn queue_only(&self) -> impl Iterator<Item = &Scope> {
        self.state.queue_only.scopes()
    }

    /// Tries the mail in the queue once: retry clocks end, and queue-only mail goes. The next ticks do the work.
    pub fn run_queue(&mut self, now: Ms) {
        let now = self.state.time.begin(now);
        self.flush_all();
        if !self.state.queue_only.is_empty() {
            self.state.run = Some(Run { last: self.state.newest, begun: now, step: Step::Clocks });
        }
    }

    /// When the current run began, if there is one.
    pub fn queue_run_since(&self) -> Option<Ms> {
        self.state.run.map(|run| self.state.time.wall(run.begun))
    }

    pub(crate) fn is_queue_run_due(&self) -> bool {
        let is_stepping = self.state.run.is_some_and(|run| run.step != Step::Sending);
        is_stepping || self.operator.look_at_run || !self.operator.relinks.is_empty()
    }

    /// Continues with a run of the queue, and with domains whose mail is to be linked to its site.
    pub(crate) fn queue_run_on(&mut self, store: &Store, now: Ms) {
        for name in std::mem::take(&mut self.operator.relinks) {
            for domain in store.book.domains_named(&name) {
                if self.domains.peek(domain).is_some() {
                    self.domains.relinks.push_back(RelinkProgress { domain, cursor: None, in_explicit: false });
                }
            }
        }
        let Some(mut run) = self.state.run else {
            self.operator.look_at_run = false;
            return;
        };
        match run.step {
            // Mail that the clocks kept back is in line before the run decides which messages pass.
            Step::Clocks if self.operator.has_flushes() || self.state.timers.next().is_some_and(|at| at <= now) => {}
            Step::Clocks => {
                let domains = self.state.queue_only.scopes().filter_map(|scope| match scope {
                    Scope::Domain(domain) => Some(domain.as_str().into()),
                    _ => None,
                });
                self.operator.relinks.extend(domains);
                run.step = Step::Sites(0);
            }
            Step::Sites(first) => {
                let (known, is_of_parts) = (self.state.sites.list.len() as u32, self.state.queue_only.is_of_parts());
                let end = (first + DIRTY_MAX).min(known);
                for site in (first..end).map(SiteId) {
                    let lines = &mut self.state.sites.get(site).lines;
                    lines.let_pass(&self.state.flows, is_of_parts, &run, self.state.newest);
                    if lines.has_passing() {
                        self.state.sites.mark_dirty(site);
                    }
                }
                run.step = if end < known { Step::Sites(end) } else { Step::Sending };
                if run.step == Step::Sending {
                    self.state.timers.set(now + RUN_LOOK_MS, Timer::QueueRun);
                }
            }
            Step::Sending if std::mem::take(&mut self.operator.look_at_run) => {
                if self.is_queue_run_over(now.saturating_sub(run.begun)) {
                    self.state.run = None;
                    return;
                }
                self.state.timers.set(now + RUN_LOOK_MS, Timer::QueueRun);
            }
            Step::Sending => {}
        }
        self.state.run = Some(run);
    }

    /// Whether nothing passes any more and no more mail can reach its site.
    fn is_queue_run_over(&mut self, age_ms: Ms) -> bool {
        let is_coming = self.domains.look_ups.waiting() > 0 || self.domains.look_ups.are_out();
        let is_moving = !self.activating.is_empty() || !self.domains.relinks.is_empty();
        if (is_coming || is_moving) && age_ms < RUN_LOOK_UPS_MS {
            return false;
        }
        let (sites, flows) = (&mut self.state.sites, &self.state.flows);
        (0..sites.list.len()).all(|site| {
            let entry = &mut sites.list[site];
            if entry.suspended && entry.lines.has_passing() {
                // Suspended since the run passed this site.
                entry.lines.end_passing(flows, |_| true);
            }
            !entry.lines.has_passing()
        })
    }
}
