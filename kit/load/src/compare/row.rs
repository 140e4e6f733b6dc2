//! A line of the table.

use std::path::PathBuf;

use stentor_measure::Place;

use super::bout::Figures;

/// One line of the table.
pub(super) struct Row {
    pub contestant: String,
    pub place: Option<Place>,
    /// Where its queue is.
    pub directory: Option<PathBuf>,
    /// None: it runs already, as it is.
    pub with_sync: Option<bool>,
    pub session_each: bool,
    pub runs: Vec<Figures>,
}
