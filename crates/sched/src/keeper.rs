//! The keeper of a recipient: who keeps mail back on purpose, as far as the scheduler knows.

use stentor_queue::ids::SiteId;

use crate::flows::FlowNo;

/// Who keeps a recipient back, or a group of recipients if it is the same for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keeper {
    #[default]
    None,
    /// An operator holds the message.
    Operator,
    /// A rule has held the message since it was accepted.
    Rule,
    /// An operator has suspended the site ([`crate::Scheduler::suspension`]).
    SuspendedSite(SiteId),
    /// An operator has suspended the list or sender of this flow.
    SuspendedFlow(FlowNo),
    /// The mail is queue-only, by the entry of this number ([`crate::Scheduler::queue_only_reason`]).
    QueueOnly(u32),
    Several,
}

impl Keeper {
    /// The keeper of these recipients and of others.
    #[must_use]
    pub fn and(self, other: Keeper) -> Keeper {
        if self == other { self } else { Keeper::Several }
    }
}
