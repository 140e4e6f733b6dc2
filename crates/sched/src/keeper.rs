//! Who keeps mail back on purpose, as far as the scheduler knows it.

/// Who keeps a recipient back; of several recipients, whether it is the same for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keeper {
    /// Nobody, or an operator who has suspended something.
    #[default]
    None,
    /// An operator holds the message.
    Operator,
    /// A rule has held it since its acceptance.
    Rule,
    /// It is queue-only, by the entry of this number ([`crate::Scheduler::queue_only_reason`]).
    QueueOnly(u32),
    Several,
}

impl Keeper {
    /// Of recipients that this one keeps, and of others.
    #[must_use]
    pub fn and(self, other: Keeper) -> Keeper {
        if self == other { self } else { Keeper::Several }
    }
}
