//! Places for the connections on which recipients are asked for: [`PLACES_MAX`] to all sites together.
//!
//! A site that does not answer holds its place until each of its hosts has had its time. So that such sites leave places to those that
//! answer, a site without a reply in the last hour is on trial: it has one connection, and needs a place among [`NEW_MAX`],
//! or, if it has been asked in vain, among [`FAILED_MAX`], until its first reply. Thus a new site waits for new ones only, and one that
//! replies for none of them. Who waits gets places in the order of asking.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

pub const PLACES_MAX: usize = 32;
/// Of these for new sites.
pub const NEW_MAX: usize = 16;
/// Of these for sites that did not answer when they were asked last.
pub const FAILED_MAX: usize = 8;

/// What is known of a site when it is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It replied to a question within the last hour.
    Replying,
    New,
    /// Nobody there answered when it was asked last.
    Failed,
}

pub struct Places {
    all: Semaphore,
    new: Semaphore,
    failed: Semaphore,
}

/// The right to have a connection, given back when it is dropped.
pub struct Place<'p> {
    trial: Mutex<Option<SemaphorePermit<'p>>>,
    _of_all: SemaphorePermit<'p>,
}

impl Default for Places {
    fn default() -> Places {
        Places { all: Semaphore::new(PLACES_MAX), new: Semaphore::new(NEW_MAX), failed: Semaphore::new(FAILED_MAX) }
    }
}

impl Places {
    pub async fn take(&self, standing: Standing) -> Place<'_> {
        // What is taken first holds up only sites of the same standing.
        let trial = match standing {
            Standing::Replying => None,
            Standing::New => Some(acquire(&self.new).await),
            Standing::Failed => Some(acquire(&self.failed).await),
        };
        Place { trial: Mutex::new(trial), _of_all: acquire(&self.all).await }
    }
}

impl Place<'_> {
    pub fn is_on_trial(&self) -> bool {
        self.trial.lock().is_some()
    }

    /// The site has replied.
    pub fn pass(&self) {
        self.trial.lock().take();
    }
}

async fn acquire(semaphore: &Semaphore) -> SemaphorePermit<'_> {
    semaphore.acquire().await.expect("it is never closed")
}
