//! A run of the queue: its messages and its progress. [`crate::queue_only`] describes what it does.

use stentor_queue::ids::{MessageNo, Ms};

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Retry clocks are ending.
    Clocks,
    /// Sites are being visited, this one next.
    Sites(u32),
    /// Messages that pass are being tried.
    Sending,
}

/// A run of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The message that was the newest when it began.
    pub last: u32,
    /// When it began.
    pub begun: Ms,
    pub step: Step,
}

impl Run {
    /// Whether the message was in the queue when the run began; `newest` is the number given last.
    pub fn has(&self, no: MessageNo, newest: u32) -> bool {
        // Cyclic order: by age.
        newest.wrapping_sub(no.0) >= newest.wrapping_sub(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_what_is_not_newer_across_the_wrap() {
        let run = Run { last: 2, begun: 0, step: Step::Clocks };
        let newest = 5;
        assert!([2, 1, u32::MAX, 6].iter().all(|no| run.has(MessageNo(*no), newest)));
        assert!([3, 4, 5].iter().all(|no| !run.has(MessageNo(*no), newest)));
    }
}
