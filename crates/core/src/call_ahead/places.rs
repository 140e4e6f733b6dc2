//! Limits the connections used for call-ahead questions: [`PLACES_MAX`] for all sites together.
//!
//! A site that does not answer holds its place until each of its hosts has timed out. To leave places for other sites,
//! a site without a reply in the last hour is on trial until its first reply. It has one connection, and needs a place
//! among [`NEW_MAX`] or, if its last questions failed, among [`FAILED_MAX`]. So a new site waits only for other new
//! sites, and a replying site for neither kind. Waiters get places in the order in which they asked.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

pub const PLACES_MAX: usize = 32;
/// Places of these for new sites.
pub const NEW_MAX: usize = 16;
/// Places of these for sites that did not answer last time.
pub const FAILED_MAX: usize = 8;

/// How a site has answered so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responsiveness {
    /// The site replied to a question within the last hour.
    Replying,
    New,
    /// The site did not answer last time.
    Failed,
}

pub struct Places {
    all: Semaphore,
    new: Semaphore,
    failed: Semaphore,
}

/// The right to hold a connection, returned on drop.
pub struct ConnectionPermit<'p> {
    trial: Mutex<Option<SemaphorePermit<'p>>>,
    _of_all: SemaphorePermit<'p>,
}

impl Default for Places {
    fn default() -> Places {
        Places { all: Semaphore::new(PLACES_MAX), new: Semaphore::new(NEW_MAX), failed: Semaphore::new(FAILED_MAX) }
    }
}

impl Places {
    pub async fn take(&self, responsiveness: Responsiveness) -> ConnectionPermit<'_> {
        // The permit acquired first can only hold up sites of the same responsiveness.
        let trial = match responsiveness {
            Responsiveness::Replying => None,
            Responsiveness::New => Some(acquire(&self.new).await),
            Responsiveness::Failed => Some(acquire(&self.failed).await),
        };
        ConnectionPermit { trial: Mutex::new(trial), _of_all: acquire(&self.all).await }
    }
}

impl ConnectionPermit<'_> {
    pub fn is_on_trial(&self) -> bool {
        self.trial.lock().is_some()
    }

    /// Ends the trial: the site has replied.
    pub fn pass(&self) {
        self.trial.lock().take();
    }
}

async fn acquire(semaphore: &Semaphore) -> SemaphorePermit<'_> {
    semaphore.acquire().await.expect("it is never closed")
}
