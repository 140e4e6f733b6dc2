//! What waits in the submission folder, as its drain has seen it last: figures for those who ask. Nothing is decided by them.

use stentor_queue::ids::Ms;

/// See the module's page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submissions {
    /// Complete submissions that are not in the queue, or not for all of their recipients.
    pub waiting: u64,
    /// Of these, those that were refused for now.
    pub deferred: u64,
    /// When the oldest was submitted.
    pub oldest: Option<Ms>,
    /// Why the folder cannot be used.
    pub unusable: Option<String>,
}
