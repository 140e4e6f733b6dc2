//! What a transaction holds outside itself until its message is durable. Dropping a holding gives it back, so that no
//! way out of a transaction can forget to.

use std::sync::Arc;

use stentor_core::Core;
use stentor_core::intake::Job;
use stentor_queue::ids::ContentId;

/// The promise of a message after 354, for which the committer may wait.
pub(super) struct Arrival(Arc<Core>);

impl Arrival {
    pub fn new(core: &Arc<Core>) -> Arrival {
        core.intake.receiving();
        Arrival(core.clone())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.intake.arrived();
    }
}

/// The pieces of a large body that were handed to the journal.
pub(super) struct Pieces {
    core: Arc<Core>,
    pub content: ContentId,
    /// Their octets.
    pub stored: u64,
}

impl Pieces {
    pub fn new(core: &Arc<Core>) -> Pieces {
        Pieces { core: core.clone(), content: core.next_content_id(), stored: 0 }
    }

    /// The message is submitted: from here on the intake answers for its content.
    pub fn submit(mut self) -> ContentId {
        self.stored = 0;
        self.content
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if self.stored > 0 {
            self.core.intake.push(Job::Drop { content: self.content });
        }
    }
}
