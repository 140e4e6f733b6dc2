//! Moves waiting mail to a flow of its own when its list or sender gets a setting ([`crate::flows`]).
//!
//! States: live messages are looked at, oldest number first, and those in a shared flow get their own; then the
//! deferrals and the sites' lines where they wait are changed. Each step is a slice of a tick. Until the last one a
//! message may still go as before. A further setting begins again with the messages.

use stentor_queue::ids::{MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::Scheduler;
use crate::flows::CLASSES;
use crate::state::SchedState;

/// What is looked at next.
#[derive(Clone, Copy)]
enum Step {
    /// Messages after this one.
    Messages(Option<u32>),
    /// Deferrals from this slot on.
    Deferrals(u32),
    /// Sites from this one on.
    Sites(u32),
}

/// The move of waiting mail to flows of its own.
#[derive(Default)]
pub struct Regrouping {
    step: Option<Step>,
    /// Messages that have got their own flow.
    moved: IdSet,
}

impl Regrouping {
    pub fn is_due(&self) -> bool {
        self.step.is_some()
    }
}

impl Scheduler {
    /// Begins to move mail, after a change of settings, if some may wait in a shared flow.
    pub(crate) fn begin_regrouping(&mut self) {
        if std::mem::take(&mut self.state.flows.regroups) && self.state.messages.len() > 0 {
            self.operator.regrouping.step = Some(Step::Messages(None));
        }
    }

    /// Continues for at most `steps`.
    pub(crate) fn regroup_on(&mut self, store: &Store, mut steps: u32, now: Ms) {
        while steps > 0
            && let Some(step) = self.operator.regrouping.step
        {
            steps -= 1;
            let next = match step {
                Step::Messages(after) => self.regroup_message(store, after),
                Step::Deferrals(slot) if (slot as usize) < self.failure.deferrals.slots() => {
                    let moved = &self.operator.regrouping.moved;
                    let count = self.failure.deferrals.regroup(&mut self.state, slot, moved, steps as usize, now);
                    steps = steps.saturating_sub(count as u32);
                    Some(Step::Deferrals(if steps > 0 { slot + 1 } else { slot }))
                }
                Step::Deferrals(_) => Some(Step::Sites(0)),
                Step::Sites(site) if (site as usize) < self.state.sites.list.len() => {
                    let moved = &self.operator.regrouping.moved;
                    let count = regroup_site(&mut self.state, store, SiteId(site), moved, steps as usize);
                    steps = steps.saturating_sub(count as u32);
                    Some(Step::Sites(if steps > 0 { site + 1 } else { site }))
                }
                Step::Sites(_) => None,
            };
            self.operator.regrouping.step = next;
            if next.is_none() {
                self.operator.regrouping.moved = IdSet::new();
            }
        }
    }

    /// Gives the next message its own flow, if it has one now.
    fn regroup_message(&mut self, store: &Store, after: Option<u32>) -> Option<Step> {
        let Scheduler { state, operator, .. } = self;
        let Some(no) = state.messages.next(after).map(MessageNo) else {
            return (!operator.regrouping.moved.is_empty()).then_some(Step::Deferrals(0));
        };
        if let Some((class, flow)) = state.messages.class_and_flow(no)
            && (flow as usize) < CLASSES
            && let Some(message) = store.message(no)
        {
            let own = state.flows.of(message, class);
            if own != flow {
                state.messages.set_flow(no, own);
                operator.regrouping.moved.insert(no.0);
            }
        }
        Some(Step::Messages(Some(no.0)))
    }
}

/// Moves messages from a site's shared lines to those of their flows, at most `max`. Returns their number.
fn regroup_site(state: &mut SchedState, store: &Store, site: SiteId, moved: &IdSet, max: usize) -> usize {
    let found = state.sites.get(site).lines.shared_of(moved, max);
    for no in &found {
        let Some((class, flow)) = state.messages.class_and_flow(*no) else {
            state.sites.get(site).lines.remove_gone(*no);
            continue;
        };
        let lines = &mut state.sites.get(site).lines;
        let passes = lines.passes(*no);
        lines.remove(flow, *no);
        if passes {
            lines.insert_passing(flow, class, *no);
        } else if !state.keep_if_queue_only(store, site, *no) {
            state.enter_line(site, flow, class, *no);
        }
    }
    if !found.is_empty() {
        state.sites.mark_dirty(site);
    }
    found.len()
}
