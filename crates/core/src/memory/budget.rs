//! Budgets of memory and journal space for the bodies of incoming messages.
//!
//! Promise: no deadlock, since no waiting client holds anything. A trusted client's body is reserved in full when its
//! data begins, and the client waits for that. An untrusted client's reservation grows with its octets and never waits:
//! without space the message is refused, and its memory is freed at once. Untrusted clients share a part of each
//! budget, so that they never keep trusted ones out, and each has a part of that part (an IPv6 /64 is one client). A
//! client that holds memory and sends nothing is disconnected by the session's timer
//! (`crates/smtp/src/server/timer.rs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stentor_policy::counted_as;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One piece of a body, the most that a session holds.
pub const PIECE_BYTES: u64 = 256 * 1024;
/// Memory besides the body: the fields that we add, and buffers.
const OVERHEAD_BYTES: u64 = 2048;
/// Initial reservation of an untrusted client's data: the octets that may arrive before its buffer is checked again.
const BEGIN_BYTES: u64 = OVERHEAD_BYTES + 8 * 1024;
/// Minimum growth of such a reservation.
const GROWTH_BYTES: u64 = 16 * 1024;
/// A piece, and the header facts kept beside it.
const HELD_BYTES_MAX: u64 = BEGIN_BYTES + PIECE_BYTES + 128 * 1024;
/// Untrusted clients' share of the memory and of the room in the journal, and one client's share of those.
const STRANGERS_MEMORY_PART: u64 = 16;
const STRANGERS_STREAMS_PART: u64 = 2;
const CLIENT_MEMORY_PART: u64 = 8;
const CLIENT_STREAMS_PART: u64 = 8;
/// How long a trusted client waits at DATA: clients give up after two minutes (RFC 5321 section 4.5.3.2.4).
const TRUSTED_WAIT: Duration = Duration::from_secs(100);
/// How long a request waits whose message is already completely in memory.
const WHOLE_WAIT: Duration = Duration::from_secs(5);
const UNIT_BYTES: u64 = 1024;
const UNITS_MAX: u64 =
    if Semaphore::MAX_PERMITS as u64 > u32::MAX as u64 { u32::MAX as u64 } else { Semaphore::MAX_PERMITS as u64 };

/// Two budgets: for the octets of bodies in memory, and for those of large bodies in the journal before their message
/// is accepted. A client that needs both takes the second first.
pub struct Memory {
    bodies: Budget,
    streams: Budget,
    streamed: Arc<AtomicU64>,
    streamed_peak: AtomicU64,
}

struct Budget {
    all: Arc<Semaphore>,
    units_max: u32,
    strangers: Arc<Mutex<StrangersPart>>,
}

/// The part of a budget held by untrusted clients.
struct StrangersPart {
    units_max: u32,
    client_units_max: u32,
    used: u32,
    clients: HashMap<IpAddr, u32>,
}

/// A share held of a budget; released on drop.
struct HeldShare {
    all: OwnedSemaphorePermit,
    part: Option<Part>,
}

/// A share held of the untrusted clients' part; released on drop.
struct Part {
    strangers: Arc<Mutex<StrangersPart>>,
    client: IpAddr,
    units: u32,
}

/// A reservation; released on drop.
pub struct Reservation {
    /// The untrusted client that it counts for.
    stranger: Option<IpAddr>,
    bodies: HeldShare,
    streams: Option<HeldShare>,
    /// Octets that may be streamed, and octets streamed so far.
    streams_bytes: u64,
    stored: u64,
    streamed: Arc<AtomicU64>,
}

impl StrangersPart {
    fn take(&mut self, client: IpAddr, units: u32) -> bool {
        let of_client = self.clients.get(&client).copied().unwrap_or(0);
        let fits = self.used + units <= self.units_max && of_client + units <= self.client_units_max;
        if fits {
            self.used += units;
            *self.clients.entry(client).or_default() += units;
        }
        fits
    }

    fn give_back(&mut self, client: IpAddr, units: u32) {
        self.used -= units;
        if let Some(held) = self.clients.get_mut(&client) {
            *held -= units;
            if *held == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.strangers.lock().give_back(self.client, self.units);
    }
}

impl Budget {
    /// Creates a budget. Each share holds at least `least` octets, or some client could never be served.
    fn new(bytes_max: u64, least: u64, strangers_part: u64, client_part: u64) -> Budget {
        let units = |bytes: u64| bytes.max(least).div_ceil(UNIT_BYTES).min(UNITS_MAX / 2) as u32;
        let strangers = StrangersPart {
            units_max: units(bytes_max / strangers_part),
            client_units_max: units(bytes_max / strangers_part / client_part),
            used: 0,
            clients: HashMap::new(),
        };
        Budget {
            all: Arc::new(Semaphore::new(units(bytes_max) as usize)),
            units_max: units(bytes_max),
            strangers: Arc::new(Mutex::new(strangers)),
        }
    }

    /// Takes this many octets once they are free; a request for more than the total waits for all.
    async fn wait(&self, bytes: u64, until: tokio::time::Instant) -> Option<HeldShare> {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.units_max.into()) as u32;
        if let Ok(all) = self.all.clone().try_acquire_many_owned(units) {
            return Some(HeldShare { all, part: None });
        }
        // The semaphore is never closed.
        let all = tokio::time::timeout_at(until, self.all.clone().acquire_many_owned(units)).await.ok()?.ok()?;
        Some(HeldShare { all, part: None })
    }

    /// Takes this many octets if they are free now.
    fn try_take(&self, bytes: u64, stranger: Option<IpAddr>) -> Option<HeldShare> {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.units_max.into()) as u32;
        let part = match stranger {
            Some(client) if !self.strangers.lock().take(client, units) => return None,
            Some(client) => Some(Part { strangers: self.strangers.clone(), client, units }),
            None => None,
        };
        let all = self.all.clone().try_acquire_many_owned(units).ok()?;
        Some(HeldShare { all, part })
    }

    /// Whether over half of the untrusted clients' part is taken.
    fn is_crowded(&self) -> bool {
        let strangers = self.strangers.lock();
        strangers.used > strangers.units_max / 2
    }
}

impl HeldShare {
    fn bytes(&self) -> u64 {
        self.all.num_permits() as u64 * UNIT_BYTES
    }

    /// Joins two shares of the same budget and client.
    fn join(&mut self, mut more: HeldShare) {
        if let (Some(part), Some(more)) = (&mut self.part, &mut more.part) {
            part.units += std::mem::take(&mut more.units);
        }
        self.all.merge(more.all);
    }
}

impl Memory {
    /// Creates the budgets. Whatever the limits, they have room for one message of `message_bytes_max` at a time.
    pub fn new(bytes_max: u64, streamed_bytes_max: u64, message_bytes_max: u64) -> Memory {
        let message_bytes = message_bytes_max.saturating_add(PIECE_BYTES);
        Memory {
            bodies: Budget::new(bytes_max, HELD_BYTES_MAX, STRANGERS_MEMORY_PART, CLIENT_MEMORY_PART),
            streams: Budget::new(streamed_bytes_max, message_bytes, STRANGERS_STREAMS_PART, CLIENT_STREAMS_PART),
            streamed: Arc::default(),
            streamed_peak: AtomicU64::new(0),
        }
    }

    /// Reserves memory for a trusted client's body: the declared size, or a full piece if none was declared. Journal
    /// room for a body that will be streamed is reserved in full. `None` after a time-out.
    pub async fn reserve(&self, declared: Option<u64>) -> Option<Reservation> {
        let until = tokio::time::Instant::now() + TRUSTED_WAIT;
        let streams_bytes = declared.filter(|declared| *declared > PIECE_BYTES).unwrap_or(0);
        let streams = if streams_bytes == 0 { None } else { Some(self.streams.wait(streams_bytes, until).await?) };
        let bytes = declared.unwrap_or(PIECE_BYTES).min(PIECE_BYTES) + OVERHEAD_BYTES;
        let bodies = self.bodies.wait(bytes, until).await?;
        let streamed = Arc::clone(&self.streamed);
        Some(Reservation { stranger: None, bodies, streams, streams_bytes, stored: 0, streamed })
    }

    /// Begins the reservation of an untrusted client, which grows with its octets whatever it declared. `None`: no
    /// space now.
    pub fn begin(&self, client: IpAddr) -> Option<Reservation> {
        let stranger = Some(counted_as(client));
        let bodies = self.bodies.try_take(BEGIN_BYTES, stranger)?;
        let streamed = Arc::clone(&self.streamed);
        Some(Reservation { stranger, bodies, streams: None, streams_bytes: 0, stored: 0, streamed })
    }

    /// Grows the reservation to this many octets. `false`: there is no space, and the message must be refused.
    pub fn hold(&self, reserved: &mut Reservation, bytes: u64) -> bool {
        let wanted = bytes + BEGIN_BYTES;
        if reserved.stranger.is_none() || wanted <= reserved.bodies.bytes() {
            return true;
        }
        let more = (wanted - reserved.bodies.bytes()).max(GROWTH_BYTES);
        let taken = self.bodies.try_take(more, reserved.stranger);
        taken.map(|more| reserved.bodies.join(more)).is_some()
    }

    /// Reserves memory for a message that is held completely, together with its container; its body needs no further
    /// reservation. `None` after a time-out.
    pub async fn reserve_whole(&self, bytes: u64) -> Option<Reservation> {
        let until = tokio::time::Instant::now() + WHOLE_WAIT;
        let bodies = self.bodies.wait(bytes + OVERHEAD_BYTES, until).await?;
        let streamed = Arc::clone(&self.streamed);
        Some(Reservation { stranger: None, bodies, streams: None, streams_bytes: 0, stored: 0, streamed })
    }

    /// Takes memory for work on a message if it is free now: at most half of the budget, as the message holds a part of
    /// it already. `None`: there is none.
    pub fn take(&self, bytes: u64) -> Option<Reservation> {
        let bodies = self.bodies.try_take(bytes.min(u64::from(self.bodies.units_max) * UNIT_BYTES / 2), None)?;
        let streamed = Arc::clone(&self.streamed);
        Some(Reservation { stranger: None, bodies, streams: None, streams_bytes: 0, stored: 0, streamed })
    }

    /// Counts a piece of a large body. A trusted client's undeclared body reserves room for the largest message at its
    /// first piece, and briefly waits for it while the client's octets wait, too. A body larger than declared, or
    /// another client's, only gets free room: nobody waits while holding what others need. `false`: there is no room,
    /// and the message must be refused.
    pub async fn stream(&self, reserved: &mut Reservation, bytes: u64, size_max: u64) -> bool {
        let stored = reserved.stored + bytes;
        // The declared size does not include the fields that we add.
        if stored > reserved.streams_bytes + OVERHEAD_BYTES {
            // Counts its earlier reservation, so that a message never holds more than the largest may.
            let rest = size_max.saturating_sub(reserved.streams_bytes).max(bytes);
            let (more, taken) = match (reserved.stranger, &reserved.streams) {
                (Some(_), _) => (bytes, self.streams.try_take(bytes, reserved.stranger)),
                (None, Some(_)) => (rest, self.streams.try_take(rest, None)),
                (None, None) => (rest, self.streams.wait(rest, tokio::time::Instant::now() + WHOLE_WAIT).await),
            };
            let Some(taken) = taken else { return false };
            match &mut reserved.streams {
                Some(held) => held.join(taken),
                None => reserved.streams = Some(taken),
            }
            reserved.streams_bytes += more;
        }
        reserved.stored = stored;
        let now = self.streamed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.streamed_peak.fetch_max(now, Ordering::Relaxed);
        true
    }

    /// Resets the count before the message is written again and its stored pieces are dropped: the larger of the two
    /// sizes stays reserved.
    pub fn rewritten(&self, reserved: &mut Reservation) {
        self.streamed.fetch_sub(reserved.stored, Ordering::Relaxed);
        reserved.stored = 0;
    }

    /// Returns the octets of large bodies in the journal whose messages are not accepted yet.
    pub fn streamed(&self) -> u64 {
        self.streamed.load(Ordering::Relaxed)
    }

    /// Returns the maximum of [`Memory::streamed`] so far.
    pub fn streamed_peak(&self) -> u64 {
        self.streamed_peak.load(Ordering::Relaxed)
    }

    /// Whether a trusted client's reservation will not have to wait.
    pub fn is_plenty(&self, declared: Option<u64>) -> bool {
        let left = |budget: &Budget| budget.all.available_permits() as u64 * UNIT_BYTES;
        left(&self.bodies) > 2 * (PIECE_BYTES + OVERHEAD_BYTES)
            && (declared.is_none_or(|declared| declared <= PIECE_BYTES)
                || left(&self.streams) > 2 * declared.unwrap_or(0))
    }

    /// Whether untrusted clients hold so much that slow ones among them must release theirs.
    pub fn is_crowded(&self) -> bool {
        self.bodies.is_crowded() || self.streams.is_crowded()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.streamed.fetch_sub(self.stored, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn client(n: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + n).to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_are_reserved_in_full_and_small_ones_pass_them() {
        let memory = Memory::new(64 * MIB, 10 * MIB, 5 * MIB);
        let mut first = memory.reserve(Some(5 * MIB)).await.unwrap();
        let second = memory.reserve(Some(5 * MIB)).await.unwrap();
        assert!(memory.reserve(Some(5 * MIB)).await.is_none(), "after 100 seconds");
        assert!(memory.reserve(Some(PIECE_BYTES)).await.is_some(), "a small one");
        for _ in 0..20 {
            assert!(memory.stream(&mut first, PIECE_BYTES, 5 * MIB).await);
        }
        assert_eq!((memory.streamed(), memory.streamed_peak()), (5 * MIB, 5 * MIB));
        drop(second);
        drop(first);
        assert_eq!((memory.streamed(), memory.streamed_peak()), (0, 5 * MIB));
        assert!(memory.reserve(Some(10 * MIB)).await.is_some(), "all is given back");
    }

    #[test]
    fn work_takes_what_is_free_and_at_most_half() {
        let memory = Memory::new(64 * MIB, 10 * MIB, 5 * MIB);
        let first = memory.take(1024 * MIB).unwrap();
        assert!(memory.begin(client(1)).is_some(), "clients keep the other half");
        let second = memory.take(32 * MIB).unwrap();
        assert!(memory.take(1).is_none() && memory.begin(client(1)).is_none());
        drop((first, second));
        assert!(memory.take(32 * MIB).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_declared_never_waits_while_holding() {
        let memory = Memory::new(64 * MIB, 10 * MIB, 5 * MIB);
        let mut silent = memory.reserve(None).await.unwrap();
        assert!(memory.stream(&mut silent, PIECE_BYTES, 5 * MIB).await, "room for the largest message");
        let mut liar = memory.reserve(Some(MIB)).await.unwrap();
        let other = memory.reserve(Some(4 * MIB)).await.unwrap();
        for _ in 0..4 {
            assert!(memory.stream(&mut liar, PIECE_BYTES, 5 * MIB).await);
        }
        let before = tokio::time::Instant::now();
        assert!(!memory.stream(&mut liar, PIECE_BYTES, 5 * MIB).await, "there is none for more than it said");
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(other);
        assert!(memory.stream(&mut liar, PIECE_BYTES, 5 * MIB).await);
        let mut late = memory.reserve(None).await.unwrap();
        let before = tokio::time::Instant::now();
        assert!(!memory.stream(&mut late, PIECE_BYTES, 5 * MIB).await);
        assert_eq!(before.elapsed(), WHOLE_WAIT, "it holds nothing of it, so it may wait a moment");
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_hold_what_they_sent_and_one_of_them_a_part() {
        let memory = Memory::new(256 * MIB, 1024 * MIB, 50 * MIB);
        // 508 sessions that announce and send nothing hold 10 KiB each.
        let mut all: Vec<Reservation> = (0..508).map(|n| memory.begin(client(n % 100)).expect("room")).collect();
        assert!(!memory.is_crowded());
        // One client's part is full long before that of all untrusted clients.
        let mut one: Vec<Reservation> = Vec::new();
        while let Some(mut reserved) = memory.begin(client(1_000)) {
            if !memory.hold(&mut reserved, PIECE_BYTES) {
                break;
            }
            one.push(reserved);
        }
        assert!((4..=8).contains(&one.len()), "{}", one.len());
        assert!(memory.begin(client(1_001)).is_some());
        // An IPv6 /64 is one client.
        let six = |n: u64| IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(n)).to_be_bytes());
        let mut many: Vec<Reservation> = (0..3_000).map_while(|n| memory.begin(six(n))).collect();
        assert!(many.len() < 300, "{}", many.len());
        many.clear();
        // However much all untrusted clients send, they stay within their part, and trusted ones keep theirs.
        all.retain_mut(|reserved| memory.hold(reserved, PIECE_BYTES));
        assert!(memory.is_crowded() && all.len() < 64, "{}", all.len());
        let before = tokio::time::Instant::now();
        let trusted: Vec<Reservation> = {
            let mut held = Vec::new();
            for _ in 0..800 {
                held.push(memory.reserve(None).await.expect("room"));
            }
            held
        };
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop((all, one, trusted));
        assert!(memory.bodies.strangers.lock().clients.is_empty() && memory.bodies.strangers.lock().used == 0);
        assert!(memory.reserve(None).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn ten_strangers_do_not_block_large_mail() {
        let memory = Memory::new(256 * MIB, 1024 * MIB, 50 * MIB);
        let mut announced: Vec<Reservation> = (0..10).map(|n| memory.begin(client(n)).unwrap()).collect();
        for reserved in &mut announced {
            assert!(memory.stream(reserved, PIECE_BYTES, 50 * MIB).await);
        }
        let mut honest = memory.begin(client(99)).unwrap();
        for _ in 0..200 {
            assert!(memory.stream(&mut honest, PIECE_BYTES, 50 * MIB).await);
        }
        // One client gets an eighth of the untrusted clients' half.
        let mut greedy: Vec<Reservation> = (0..100).map(|_| memory.begin(client(1)).unwrap()).collect();
        let mut bytes = 0;
        while memory.stream(&mut greedy[(bytes / PIECE_BYTES) as usize % 100], PIECE_BYTES, 50 * MIB).await {
            bytes += PIECE_BYTES;
        }
        assert!((60 * MIB..=64 * MIB).contains(&bytes), "{bytes}");
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_the_limits_one_message_passes() {
        let memory = Memory::new(0, MIB, MIB);
        let mut one = memory.begin(client(1)).expect("one message always fits");
        assert!(memory.hold(&mut one, PIECE_BYTES + 64 * 1024));
        for _ in 0..4 {
            assert!(memory.stream(&mut one, PIECE_BYTES, MIB).await);
        }
        assert!(memory.reserve(Some(u64::MAX)).await.is_none());
        drop(one);
        assert!(memory.reserve(Some(u64::MAX)).await.is_some(), "a lie about the size reserves what there is");
    }
}
