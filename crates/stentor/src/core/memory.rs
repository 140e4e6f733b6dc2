//! The memory and the room in the journal that bodies of messages on their way in may take together, reserved in full at
//! MAIL so that no session waits for what another holds while holding what the other needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
const UNITS_MAX: u64 =
    if Semaphore::MAX_PERMITS as u64 > u32::MAX as u64 { u32::MAX as u64 } else { Semaphore::MAX_PERMITS as u64 };

/// Two budgets: the octets of bodies in memory, and those of large bodies that are in the journal before their message is
/// accepted. Whoever needs both takes the second first.
pub struct Memory {
    units: Share,
    streams: Share,
    streamed: Arc<AtomicU64>,
    streamed_peak: AtomicU64,
}

/// A budget, with what clients that are not trusted may take of it: half, so that they never keep the trusted ones out.
struct Share {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    units_max: u32,
    strangers_units_max: u32,
}

/// What is held of a share.
type Held = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// A reservation; ends when dropped.
pub struct Reserved {
    _units: Held,
    streams: Option<Held>,
    /// Octets that may be streamed, and that were.
    streams_bytes: u64,
    stored: u64,
    streamed: Arc<AtomicU64>,
    trusted: bool,
}

impl Share {
    /// At least `least` octets fit, or somebody could never be served.
    fn new(bytes_max: u64, least: u64) -> Share {
        let units = |bytes: u64| bytes.max(least).div_ceil(UNIT_BYTES).min(UNITS_MAX) as u32;
        Share {
            all: Arc::new(Semaphore::new(units(bytes_max) as usize)),
            strangers: Arc::new(Semaphore::new(units(bytes_max / 2) as usize)),
            units_max: units(bytes_max),
            strangers_units_max: units(bytes_max / 2),
        }
    }

    /// Takes so many octets; a request for more than there ever are is one for all.
    async fn reserve(&self, bytes: u64, trusted: bool, until: tokio::time::Instant) -> Option<Held> {
        let units_max = if trusted { self.units_max } else { self.strangers_units_max };
        let units = bytes.div_ceil(UNIT_BYTES).min(units_max.into()) as u32;
        // The strangers' share first: strangers that wait for it do not stand in the way of others.
        let share = if trusted { None } else { Some(take(&self.strangers, units, until).await?) };
        Some((take(&self.all, units, until).await?, share))
    }
}

impl Memory {
    /// Whatever the limits are, one message of `message_bytes_max` is let through at a time.
    pub fn new(bytes_max: u64, streamed_bytes_max: u64, message_bytes_max: u64) -> Memory {
        Memory {
            units: Share::new(bytes_max, PIECE_BYTES + OVERHEAD_BYTES),
            streams: Share::new(streamed_bytes_max, message_bytes_max),
            streamed: Arc::default(),
            streamed_peak: AtomicU64::new(0),
        }
    }

    /// Reserves for a body of the declared size, or of a full piece if none was declared; one that will be streamed in full.
    /// `None` after waiting in vain.
    pub async fn reserve(&self, declared: Option<u64>, trusted: bool) -> Option<Reserved> {
        let until = tokio::time::Instant::now() + if trusted { TRUSTED_WAIT } else { STRANGER_WAIT };
        let streams_bytes = declared.filter(|declared| *declared > PIECE_BYTES).unwrap_or(0);
        let streams =
            if streams_bytes == 0 { None } else { Some(self.streams.reserve(streams_bytes, trusted, until).await?) };
        let bytes = declared.unwrap_or(PIECE_BYTES).min(PIECE_BYTES) + OVERHEAD_BYTES;
        let units = self.units.reserve(bytes, trusted, until).await?;
        let streamed = Arc::clone(&self.streamed);
        Some(Reserved { _units: units, streams, streams_bytes, stored: 0, streamed, trusted })
    }

    /// Reserves for what is held as a whole, whatever it is. `None` after waiting in vain; the reservation ends when it is
    /// dropped.
    pub async fn reserve_whole(&self, bytes: u64) -> Option<impl Sized + Send + use<>> {
        let until = tokio::time::Instant::now() + STRANGER_WAIT;
        self.units.reserve(bytes + OVERHEAD_BYTES, true, until).await
    }

    /// Counts a piece of a large body. One that was not declared takes room for the largest message at its first piece, for
    /// which it waits a moment (the client's octets wait with it); one that is larger than declared, only what is
    /// free: nobody waits for others while holding what they need. `false`: there is no room, the message is refused.
    pub async fn stream(&self, reserved: &mut Reserved, bytes: u64, size_max: u64) -> bool {
        let stored = reserved.stored + bytes;
        // The fields that we add are not in what was declared.
        if stored > reserved.streams_bytes + OVERHEAD_BYTES {
            let until = tokio::time::Instant::now();
            let until = if reserved.streams.is_none() { until + STRANGER_WAIT } else { until };
            // In place of what it had, so that a message never holds more than the largest may.
            let more = size_max.saturating_sub(reserved.streams_bytes).max(bytes);
            let Some(more_held) = self.streams.reserve(more, reserved.trusted, until).await else { return false };
            reserved.join(more_held);
            reserved.streams_bytes += more;
        }
        reserved.stored = stored;
        let now = self.streamed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.streamed_peak.fetch_max(now, Ordering::Relaxed);
        true
    }

    /// Octets of large bodies that are in the journal and not accepted.
    pub fn streamed(&self) -> u64 {
        self.streamed.load(Ordering::Relaxed)
    }

    /// The most that there were.
    pub fn streamed_peak(&self) -> u64 {
        self.streamed_peak.load(Ordering::Relaxed)
    }

    /// Whether a reservation will not have to wait.
    pub fn is_plenty(&self, declared: Option<u64>) -> bool {
        let left = |share: &Share| share.all.available_permits() as u64 * UNIT_BYTES;
        left(&self.units) > 2 * (PIECE_BYTES + OVERHEAD_BYTES)
            && (declared.is_none_or(|declared| declared <= PIECE_BYTES)
                || left(&self.streams) > 2 * declared.unwrap_or(0))
    }
}

impl Reserved {
    fn join(&mut self, more: Held) {
        let Some(held) = &mut self.streams else {
            self.streams = Some(more);
            return;
        };
        held.0.merge(more.0);
        if let (Some(share), Some(more)) = (&mut held.1, more.1) {
            share.merge(more);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.streamed.fetch_sub(self.stored, Ordering::Relaxed);
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

    const MIB: u64 = 1024 * 1024;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_turned_away_when_memory_is_out() {
        let memory = Memory::new(0, MIB, MIB);
        let held = memory.reserve(None, false).await.expect("one message always fits");
        assert!(memory.reserve(None, false).await.is_none());
        drop(held);
        assert!(memory.reserve(Some(u64::MAX), false).await.is_some(), "a lie about the size reserves one piece");
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_are_reserved_in_full_and_small_ones_pass_them() {
        let memory = Memory::new(64 * MIB, 10 * MIB, 5 * MIB);
        let mut first = memory.reserve(Some(5 * MIB), true).await.unwrap();
        let second = memory.reserve(Some(5 * MIB), true).await.unwrap();
        assert!(memory.reserve(Some(5 * MIB), true).await.is_none(), "after four minutes");
        assert!(memory.reserve(Some(PIECE_BYTES), true).await.is_some(), "a small one");
        for _ in 0..20 {
            assert!(memory.stream(&mut first, PIECE_BYTES, 5 * MIB).await);
        }
        assert_eq!((memory.streamed(), memory.streamed_peak()), (5 * MIB, 5 * MIB));
        drop(second);
        drop(first);
        assert_eq!((memory.streamed(), memory.streamed_peak()), (0, 5 * MIB));
        assert!(memory.reserve(Some(10 * MIB), true).await.is_some(), "all is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_declared_never_waits_while_holding() {
        let memory = Memory::new(64 * MIB, 10 * MIB, 5 * MIB);
        let mut silent = memory.reserve(None, true).await.unwrap();
        assert!(memory.stream(&mut silent, PIECE_BYTES, 5 * MIB).await, "room for the largest message");
        let mut liar = memory.reserve(Some(MIB), true).await.unwrap();
        let other = memory.reserve(Some(4 * MIB), true).await.unwrap();
        for _ in 0..4 {
            assert!(memory.stream(&mut liar, PIECE_BYTES, 5 * MIB).await);
        }
        let before = tokio::time::Instant::now();
        assert!(!memory.stream(&mut liar, PIECE_BYTES, 5 * MIB).await, "there is none for more than it said");
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(other);
        assert!(memory.stream(&mut liar, PIECE_BYTES, 5 * MIB).await);
        let mut late = memory.reserve(None, true).await.unwrap();
        let before = tokio::time::Instant::now();
        assert!(!memory.stream(&mut late, PIECE_BYTES, 5 * MIB).await);
        assert_eq!(before.elapsed(), STRANGER_WAIT, "it holds nothing of it, so it may wait a moment");
    }
}
