//! What events say about their thread: one table per part of the kernel.
//!
//! Each row maps an event to its effect on the thread's stack of spans:
//!
//! - `Push` begins a span. If a span with the same token is still open (its end was not seen, or the kernel has none),
//!   that span and everything in it ends, so that a token's steps follow one another.
//! - `Pop` ends the innermost span with the token and everything in it. Without one it does nothing.
//! - `Mark` says what the thread does from here to its next event, for tracepoints without a partner. It ends when the
//!   thread is blocked.
//! - `Wait` is a mark for what the thread is about to wait for: it outlasts one blocking.
//! - `Clear` ends a mark.
//!
//! Events without a row change nothing. A system call's end and a worker's next job end everything.

mod block;
mod btrfs;
mod ext4;
mod jbd2;
pub mod syscall;
pub mod worker;
mod writeback;
mod xfs;

use super::layer::Layer;

/// Which spans belong together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Token {
    Call,
    Work,
    Write,
    Sync,
    Pages,
    Map,
    Extent,
    Dirty,
    Directory,
    Space,
    Commit,
    CommitStep,
    FastCommit,
    Transaction,
    TransactionEnd,
    Log,
    Buffer,
    BufferWait,
    Reserve,
    Copy,
    Flusher,
    Inode,
    Direct,
    Operation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Push(Token, Layer, &'static str),
    /// Ends the first, begins the second.
    PushAfter(Token, Token, Layer, &'static str),
    /// Begins the second, unless the first is open: then it is a `Pop` of the second.
    PushOutside(Token, Token, Layer, &'static str),
    Pop(Token),
    Mark(Layer, &'static str),
    Wait(Layer, &'static str),
    /// A `Wait` for a lock: only if a thread ends it, as its holder does. What a completion ends was a later wait.
    Lock(Layer, &'static str),
    /// Both `Pop` and `Wait`.
    WaitAfter(Token, Layer, &'static str),
    Clear,
}

/// `system/event` and what it does.
pub type Rule = (&'static str, Act);

/// Blocked until the journal's thread says that a transaction is on the disk.
pub const WAIT_COMMIT: &str = "wait for the commit";
/// Begins the names of the journal's threads.
pub const JOURNAL_THREAD: &str = "jbd2/";

/// A page of the cache is looked up or made, and the data copied.
const COPY: &str = "get the page and copy";

/// What the bio that is being submitted is held up by, if its thread is blocked there: the mark with this name.
pub const QUEUE_BIO: &str = "queue the bio";
/// Blocked while it submits: a limit of a control group, the write-back throttle, or no free request.
pub const HELD: &str = "held back by a limit";

pub fn every() -> impl Iterator<Item = &'static Rule> {
    [block::RULES, btrfs::RULES, ext4::RULES, jbd2::RULES, syscall::RULES, writeback::RULES, xfs::RULES]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_event_has_one_row_and_each_end_a_beginning() {
        let mut seen = HashSet::new();
        let begin = |act: &Act| match act {
            Act::Push(token, ..) | Act::PushAfter(_, token, ..) | Act::PushOutside(_, token, ..) => Some(*token),
            _ => None,
        };
        let begun: HashSet<Token> = every().filter_map(|(_, act)| begin(act)).collect();
        for (event, act) in every() {
            assert!(seen.insert(*event), "{event} twice");
            assert_eq!(event.split('/').count(), 2, "{event}");
            if let Act::Pop(token) | Act::WaitAfter(token, ..) = act {
                assert!(begun.contains(token), "{event} ends what nothing begins");
            }
        }
    }
}
