//! The memory that bodies of messages on their way in may take together, reserved in full at MAIL so that no session
//! waits for another's memory while holding what the other needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One piece of a body, the most that a session holds.
pub const PIECE_BYTES: u64 = 256 * 1024;
/// Room beside the body: the fields that we add and buffers.
const OVERHEAD_BYTES: u64 = 2048;
/// How long a client that is not trusted waits at MAIL for memory before it is told 452; a trusted one gets slow replies.
const STRANGER_WAIT: Duration = Duration::from_secs(5);
const TRUSTED_WAIT: Duration = Duration::from_mins(4);
const UNIT_BYTES: u64 = 1024;

pub struct Memory {
    units: Arc<Semaphore>,
    /// What clients that are not trusted may take of it: half, so that they never keep the trusted ones out.
    strangers: Arc<Semaphore>,
}

/// A reservation; ends when dropped.
pub struct Reserved {
    _units: OwnedSemaphorePermit,
    _share: Option<OwnedSemaphorePermit>,
}

impl Memory {
    pub fn new(bytes_max: u64) -> Memory {
        // One message must always fit, or nobody could ever be served.
        let least = (PIECE_BYTES + OVERHEAD_BYTES) / UNIT_BYTES + 1;
        let semaphore =
            |units: u64| Arc::new(Semaphore::new(units.clamp(least, Semaphore::MAX_PERMITS as u64) as usize));
        let units = bytes_max / UNIT_BYTES;
        Memory { units: semaphore(units), strangers: semaphore(units / 2) }
    }

    /// Reserves for a body of the declared size, or of a full piece if none was declared. `None` after waiting in vain.
    pub async fn reserve(&self, declared: Option<u64>, trusted: bool) -> Option<Reserved> {
        let bytes = declared.unwrap_or(PIECE_BYTES).min(PIECE_BYTES) + OVERHEAD_BYTES;
        let units = bytes.div_ceil(UNIT_BYTES) as u32;
        let patience = tokio::time::Instant::now() + if trusted { TRUSTED_WAIT } else { STRANGER_WAIT };
        // The share first: strangers that wait for it do not stand in the way of others.
        let share = if trusted { None } else { Some(take(&self.strangers, units, patience).await?) };
        Some(Reserved { _units: take(&self.units, units, patience).await?, _share: share })
    }

    /// Whether a reservation will not have to wait.
    pub fn is_plenty(&self) -> bool {
        self.units.available_permits() as u64 * UNIT_BYTES > 2 * (PIECE_BYTES + OVERHEAD_BYTES)
    }
}

async fn take(from: &Arc<Semaphore>, units: u32, until: tokio::time::Instant) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = from.clone().try_acquire_many_owned(units) {
        return Some(permit);
    }
    // The semaphore is never closed.
    tokio::time::timeout_at(until, from.clone().acquire_many_owned(units)).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_turned_away_when_memory_is_out() {
        let memory = Memory::new(0);
        let held = memory.reserve(None, false).await.expect("one message always fits");
        assert!(memory.reserve(None, false).await.is_none());
        drop(held);
        assert!(memory.reserve(Some(u64::MAX), false).await.is_some(), "a lie about the size reserves one piece");
    }
}
