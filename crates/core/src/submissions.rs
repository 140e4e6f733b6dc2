//! Submissions waiting in the submission folder, as its drain saw them last: figures for display, which nothing depends
//! on.

use stentor_queue::ids::Ms;

/// Counts of waiting submissions; see the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submissions {
    /// Complete submissions that are not yet in the queue for all of their recipients.
    pub waiting: u64,
    /// Submissions among these that were refused temporarily.
    pub deferred: u64,
    /// When the oldest was submitted.
    pub oldest: Option<Ms>,
    /// Why the folder cannot be used.
    pub unusable: Option<String>,
}
