//! The lines at one site: the messages that wait there, by flow. Flows of a class take turns by recipients (deficit
//! round robin); within a flow the oldest message goes first.
//!
//! A message that has just got a flow of its own may still be in its class's shared line (`operator::regroup`), so a
//! removal looks there, too.

use smallvec::SmallVec;
use stentor_queue::ids::MessageNo;
use stentor_queue::idset::IdSet;

use super::{CLASSES, FlowNo, Flows, ORDINARY, SourceSet};
use crate::run::Run;

/// Recipients per turn and weight: one transaction of a usual size.
const QUANTUM: i32 = 100;

pub struct Line {
    pub flow: FlowNo,
    pub class: usize,
    pub waiting: IdSet,
    /// Recipients that the flow may still take in this round.
    deficit: i32,
    /// Whether the site waits in the flow's line for the budget.
    pub wants: bool,
}

#[derive(Default)]
pub struct Lines {
    pub list: SmallVec<[Line; 1]>,
    counts: [usize; CLASSES],
    /// The line whose turn it is.
    cursor: usize,
    /// Suspended or queue-only mail.
    pub aside: Vec<Line>,
    /// Messages in line that a run of the queue lets pass, until they leave the line.
    passing: IdSet,
    /// The [`Flows::generation`] for which the lines were last checked.
    settled: u32,
}

pub fn oldest(set: &IdSet, newest: u32) -> Option<MessageNo> {
    if set.max()? > newest { set.iter_from(newest).next().map(MessageNo) } else { set.min().map(MessageNo) }
}

/// The next message of a set after this one, oldest first. `None`: the first.
pub fn next_oldest(set: &IdSet, after: Option<u32>, newest: u32) -> Option<u32> {
    match after {
        None => set.iter_around(newest).next(),
        Some(after) if after > newest => {
            set.iter_from(after).next().or_else(|| set.min().filter(|first| *first <= newest))
        }
        Some(after) => set.iter_from(after).next().filter(|next| *next <= newest),
    }
}

/// Whether a message of this flow may be in that line: its flow's, or one that flows share.
fn may_be_in(line: &Line, flow: FlowNo) -> bool {
    line.flow == flow || (line.flow as usize) < CLASSES
}

impl Lines {
    pub fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    pub fn count(&self, class: usize) -> usize {
        self.counts[class]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn line(&mut self, flow: FlowNo) -> Option<&mut Line> {
        self.list.iter_mut().find(|line| line.flow == flow)
    }

    fn at(&mut self, flow: FlowNo, class: usize) -> &mut Line {
        let at = self.list.iter().position(|line| line.flow == flow).unwrap_or_else(|| {
            self.list.push(Line { flow, class, waiting: IdSet::new(), deficit: 0, wants: false });
            self.list.len() - 1
        });
        &mut self.list[at]
    }

    /// Puts the site in the flow's line for the budget, whether or not its messages are here. Returns whether it was
    /// not in it before.
    pub fn begin_to_want(&mut self, flow: FlowNo, class: usize) -> bool {
        !std::mem::replace(&mut self.at(flow, class).wants, true)
    }

    pub fn insert(&mut self, flow: FlowNo, class: usize, no: MessageNo) {
        let new = self.at(flow, class).waiting.insert(no.0);
        self.counts[class] += usize::from(new);
    }

    pub fn insert_all(&mut self, flow: FlowNo, class: usize, set: &IdSet) {
        let line = self.at(flow, class);
        let before = line.waiting.len();
        line.waiting.union_with(set);
        let more = line.waiting.len() - before;
        self.counts[class] += more;
    }

    /// Puts a queue-only message aside, unless it passes.
    pub fn insert_aside(&mut self, flow: FlowNo, class: usize, no: MessageNo) {
        if self.passing.contains(no.0) {
            return self.insert(flow, class, no);
        }
        self.leave(flow, no);
        self.aside_at(flow, class).waiting.insert(no.0);
    }

    /// Puts many messages aside, none of which passes.
    pub fn insert_all_aside(&mut self, flow: FlowNo, class: usize, set: &IdSet) {
        self.aside_at(flow, class).waiting.union_with(set);
    }

    fn aside_at(&mut self, flow: FlowNo, class: usize) -> &mut Line {
        let at = self.aside.iter().position(|line| line.flow == flow).unwrap_or_else(|| {
            self.aside.push(Line { flow, class, waiting: IdSet::new(), deficit: 0, wants: false });
            self.aside.len() - 1
        });
        &mut self.aside[at]
    }

    /// Puts a message in line that passes.
    pub fn insert_passing(&mut self, flow: FlowNo, class: usize, no: MessageNo) {
        self.insert(flow, class, no);
        self.passing.insert(no.0);
    }

    pub fn passes(&self, no: MessageNo) -> bool {
        self.passing.contains(no.0)
    }

    pub fn has_passing(&self) -> bool {
        !self.passing.is_empty()
    }

    /// Lets messages pass that wait here and were in the queue when a run of it began: all messages if `is_of_parts`,
    /// else those of queue-only flows.
    pub fn let_pass(&mut self, flows: &Flows, is_of_parts: bool, run: &Run, newest: u32) {
        let is_kept = |flow: FlowNo| is_of_parts || flows.is_queue_only(flow);
        let older = |set: &IdSet| {
            let mut older = set.clone();
            // Newer messages have numbers after the run's last, in cyclic order.
            let newer = |no: &u32| !run.has(MessageNo(*no), newest);
            let all = set.iter_from(run.last).take_while(newer).chain(set.iter().take_while(newer));
            all.for_each(|no| _ = older.remove(no));
            older
        };
        for mut line in std::mem::take(&mut self.aside) {
            if is_kept(line.flow) && !flows.get(line.flow).suspended {
                let back = older(&line.waiting);
                line.waiting.subtract(&back);
                self.insert_all(line.flow, line.class, &back);
            }
            if !line.waiting.is_empty() {
                self.aside.push(line);
            }
        }
        for line in self.list.iter().filter(|line| is_kept(line.flow) && !flows.get(line.flow).suspended) {
            self.passing.union_with(&older(&line.waiting));
        }
    }

    /// Ends the passing of messages in some flows: they have had their try, and their hosts have failed.
    pub fn end_passing(&mut self, flows: &Flows, is_over: impl Fn(SourceSet) -> bool) {
        for line in &self.list {
            if is_over(flows.get(line.flow).sources) {
                self.passing.subtract(&line.waiting);
            }
        }
        self.settled = flows.generation.wrapping_sub(1);
    }

    /// Empties a flow's line.
    pub fn take(&mut self, flow: FlowNo) -> IdSet {
        let Some(line) = self.list.iter_mut().find(|line| line.flow == flow) else { return IdSet::new() };
        self.counts[line.class] -= line.waiting.len();
        std::mem::take(&mut line.waiting)
    }

    /// Takes a message out of its flow's line.
    pub fn remove(&mut self, flow: FlowNo, no: MessageNo) {
        self.passing.remove(no.0);
        self.leave(flow, no);
        for line in self.aside.iter_mut().filter(|line| may_be_in(line, flow)) {
            line.waiting.remove(no.0);
        }
    }

    fn leave(&mut self, flow: FlowNo, no: MessageNo) {
        for at in (0..self.list.len()).rev() {
            if may_be_in(&self.list[at], flow) {
                self.remove_at(at, no);
            }
        }
    }

    /// Whether a message of this flow is in line.
    pub fn has(&self, flow: FlowNo, no: MessageNo) -> bool {
        self.list.iter().any(|line| may_be_in(line, flow) && line.waiting.contains(no.0))
    }

    /// The messages of a set that are in shared lines, or aside, at most `max`.
    pub fn shared_of(&self, set: &IdSet, max: usize) -> Vec<MessageNo> {
        let lines = self.list.iter().chain(&self.aside).filter(|line| (line.flow as usize) < CLASSES);
        let found = lines.flat_map(|line| line.waiting.intersection(set).iter().collect::<Vec<_>>());
        found.take(max).map(MessageNo).collect()
    }

    /// Removes a message from whichever line it is in, when its flow is no longer known.
    pub fn remove_gone(&mut self, no: MessageNo) {
        self.passing.remove(no.0);
        for at in (0..self.list.len()).rev() {
            self.remove_at(at, no);
        }
        for line in &mut self.aside {
            line.waiting.remove(no.0);
        }
    }

    fn remove_at(&mut self, at: usize, no: MessageNo) {
        let line = &mut self.list[at];
        if line.waiting.remove(no.0) {
            self.counts[line.class] -= 1;
            if line.waiting.is_empty() && !line.wants && self.list.len() > 1 {
                self.list.swap_remove(at);
            }
        }
    }

    /// Puts mail of suspended flows aside and, once per change, queue-only mail that does not pass.
    pub fn set_aside(&mut self, flows: &Flows) {
        let is_settled = std::mem::replace(&mut self.settled, flows.generation) == flows.generation;
        for at in (0..self.list.len()).rev() {
            let flow = flows.get(self.list[at].flow);
            if self.list[at].waiting.is_empty() || !(flow.suspended || flow.is_queue_only && !is_settled) {
                continue;
            }
            let mut line = self.list.swap_remove(at);
            self.counts[line.class] -= line.waiting.len();
            let passing = if flow.suspended { IdSet::new() } else { line.waiting.intersection(&self.passing) };
            line.waiting.subtract(&passing);
            self.passing.subtract(&line.waiting);
            let wants = std::mem::take(&mut line.wants);
            if !passing.is_empty() {
                self.insert_all(line.flow, line.class, &passing);
                self.at(line.flow, line.class).wants = wants;
            }
            if !line.waiting.is_empty() {
                self.insert_all_aside(line.flow, line.class, &line.waiting);
            }
        }
    }

    /// Brings back the lines of flows that are no longer kept back. Returns whether there were any.
    pub fn bring_back(&mut self, flows: &Flows) -> bool {
        let aside = std::mem::take(&mut self.aside);
        let (stay, back): (Vec<Line>, Vec<Line>) = aside.into_iter().partition(|line| flows.is_kept(line.flow));
        for line in &back {
            self.insert_all(line.flow, line.class, &line.waiting);
        }
        self.aside = stay;
        !back.is_empty()
    }

    /// Number of messages that may go from a source.
    pub fn len_for(&self, source: u8, flows: &Flows) -> usize {
        if !flows.pools {
            return self.len();
        }
        let own = self.list.iter().filter(|line| flows.get(line.flow).sources.has(source));
        own.map(|line| line.waiting.len()).sum()
    }

    pub fn ordinary_for(&self, source: u8, flows: &Flows) -> bool {
        if !flows.pools {
            return self.counts[ORDINARY] > 0;
        }
        let may = |line: &Line| line.class == ORDINARY && flows.get(line.flow).sources.has(source);
        self.list.iter().any(|line| may(line) && !line.waiting.is_empty())
    }

    /// The flow of a class whose turn it is, among those that may go from a source.
    pub fn choose(&mut self, class: usize, source: u8, flows: &Flows) -> Option<FlowNo> {
        if self.counts[class] == 0 {
            return None;
        }
        // Once round to the first line with a deficit left, and once more after each had its quantum.
        for _ in 0..2 * self.list.len() {
            self.cursor %= self.list.len();
            let line = &mut self.list[self.cursor];
            let flow = flows.get(line.flow);
            if line.class == class && !line.waiting.is_empty() && flow.sources.has(source) {
                if line.deficit > 0 {
                    return Some(line.flow);
                }
                // Its turn is over; the next one begins with a larger deficit.
                line.deficit += QUANTUM * i32::from(flow.rules.weight);
            } else if line.waiting.is_empty() {
                line.deficit = 0;
            }
            self.cursor += 1;
        }
        // A large transaction left a debt of several turns.
        let may =
            |line: &&Line| line.class == class && !line.waiting.is_empty() && flows.get(line.flow).sources.has(source);
        self.list.iter().find(may).map(|line| line.flow)
    }

    /// Charges a flow for a transaction of this many recipients.
    pub fn served(&mut self, flow: FlowNo, recipients: usize) {
        if let Some(line) = self.line(flow) {
            line.deficit -= i32::try_from(recipients).unwrap_or(i32::MAX / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_found_beyond_the_wrap() {
        let set: IdSet = [1, 5, u32::MAX - 3].into_iter().collect();
        assert_eq!(oldest(&set, 5), Some(MessageNo(u32::MAX - 3)));
        assert_eq!(oldest(&set, u32::MAX), Some(MessageNo(1)));
        assert_eq!(oldest(&IdSet::new(), 5), None);
    }

    #[test]
    fn messages_follow_by_age_across_the_wrap() {
        let set: IdSet = [1, 5, u32::MAX - 3, u32::MAX].into_iter().collect();
        let in_order = |newest| {
            let mut last = None;
            let next = || {
                last = next_oldest(&set, last, newest);
                last
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(in_order(5), [u32::MAX - 3, u32::MAX, 1, 5]);
        assert_eq!(in_order(u32::MAX), [1, 5, u32::MAX - 3, u32::MAX]);
        assert_eq!(in_order(3), [5, u32::MAX - 3, u32::MAX, 1]);
    }
}
