//! Measures the rate of each sender: list managers inject one recipient at a time, so a list only shows as a rate.
//!
//! What it does: two leaky buckets per sender, for messages and for recipients. A bucket leaks `max` in `window_ms`.
//! It is checked before the current message is added, so neither a single message nor its number of recipients makes
//! a sender bulk. Beyond `max` the sender's mail is bulk until both buckets have fallen to half of it. Buckets hold
//! at most twice `max`: a sender that stops is ordinary again after one and a half windows.
//!
//! The sender is the reverse path without the parts that vary from copy to copy ([`stem`]); for the null path and for
//! untrusted clients it includes the client's address, so that forged senders do not slow down anyone's mail.
//!
//! What it promises: memory is [`SENDERS_MAX`] entries of 24 bytes, allocated once; a call examines [`WAYS`] of them.
//! With more senders, the least busy of a set is evicted and restarts at zero, so errors are always towards
//! "ordinary". If times go backwards, nothing leaks.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use stentor_mail::Ms;
use stentor_mail::address::ReversePath;

use crate::client::counted_as;

/// Maximum senders remembered.
pub const SENDERS_MAX: usize = 16_384;
/// Entries that a sender may occupy.
const WAYS: usize = 8;
/// Minimum length of tokens that count as machine-made if they mix letters and digits.
const RANDOM_BYTES_MIN: usize = 16;

/// Limits beyond which a sender is bulk. A maximum of 0 disables that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    pub messages_max: u32,
    pub recipients_max: u32,
    pub window_ms: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Hash of the sender; 0: free.
    key: u64,
    /// Time of the buckets' last update.
    at: Ms,
    messages: Level,
    recipients: Level,
}

/// The level of a bucket, whose maximum is [`ONE`]; the highest bit of the message bucket marks a bulk sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Level(u32);

const ONE: u64 = 1 << 20;
const STATE: u32 = 1 << 31;

impl Level {
    fn value(self) -> u64 {
        u64::from(self.0 & !STATE)
    }

    fn leaked(self, elapsed_ms: u64, window_ms: u64) -> u64 {
        // Two windows empty any bucket.
        if elapsed_ms >= window_ms.saturating_mul(2) {
            return 0;
        }
        let leak = u128::from(elapsed_ms) * u128::from(ONE) / u128::from(window_ms.max(1));
        self.value().saturating_sub(leak as u64)
    }
}

/// Rates of senders; see the module documentation.
pub struct SenderRates {
    hasher: SeedableRandomState,
    entries: Box<[Entry]>,
}

impl SenderRates {
    /// A random `seed` keeps senders from choosing the keys that share a set.
    pub fn new(seed: u64) -> SenderRates {
        SenderRates {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            entries: vec![Entry::default(); SENDERS_MAX].into_boxed_slice(),
        }
    }

    /// Counts a message of `recipients`; returns whether its sender's rate makes it bulk.
    pub fn is_bulk(
        &mut self,
        sender: &ReversePath,
        client: IpAddr,
        trusted: bool,
        recipients: u64,
        limits: &RateLimits,
        now: Ms,
    ) -> bool {
        if limits.messages_max == 0 && limits.recipients_max == 0 {
            return false;
        }
        let key = self.key(sender, (!trusted || sender.is_null()).then(|| counted_as(client)));
        let entry = self.entry(key, limits, now);
        let elapsed = now.saturating_sub(entry.at);
        let messages = entry.messages.leaked(elapsed, limits.window_ms);
        let rcpts = entry.recipients.leaked(elapsed, limits.window_ms);
        let was_bulk = entry.messages.0 & STATE != 0;
        let fullest = messages.max(rcpts);
        let is_bulk = fullest >= ONE || (was_bulk && fullest > ONE / 2);
        let add = |level: u64, count: u64, max: u32| -> u32 {
            if max == 0 {
                return 0;
            }
            // Rounded up, so that `max` messages fill the bucket.
            let more = (u128::from(count) * u128::from(ONE)).div_ceil(u128::from(max));
            (u128::from(level) + more).min(2 * u128::from(ONE)) as u32
        };
        entry.messages = Level(add(messages, 1, limits.messages_max) | if is_bulk { STATE } else { 0 });
        entry.recipients = Level(add(rcpts, recipients, limits.recipients_max));
        entry.at = entry.at.max(now);
        is_bulk
    }

    fn key(&self, sender: &ReversePath, client: Option<IpAddr>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        if let ReversePath::Address(address) = sender {
            hasher.write(stem(address.local()).as_bytes());
            hasher.write_u8(b'@');
            hasher.write(address.domain().as_bytes());
        }
        match client {
            None => hasher.write_u8(0),
            Some(IpAddr::V4(client)) => hasher.write_u32(client.to_bits()),
            // A client with an IPv6 address has its whole /64.
            Some(IpAddr::V6(client)) => hasher.write_u64((client.to_bits() >> 64) as u64),
        }
        hasher.finish().max(1)
    }

    /// The sender's entry; a new one replaces the least busy of its set.
    fn entry(&mut self, key: u64, limits: &RateLimits, now: Ms) -> &mut Entry {
        let sets = SENDERS_MAX / WAYS;
        let first = (key as usize % sets) * WAYS;
        let set = &mut self.entries[first..first + WAYS];
        let held = |entry: &Entry| {
            let elapsed = now.saturating_sub(entry.at);
            entry.messages.leaked(elapsed, limits.window_ms).max(entry.recipients.leaked(elapsed, limits.window_ms))
        };
        let mut chosen = 0;
        let mut least = u64::MAX;
        for (place, entry) in set.iter().enumerate() {
            if entry.key == key {
                return &mut set[place];
            }
            let level = if entry.key == 0 { 0 } else { held(entry) };
            if level < least {
                (chosen, least) = (place, level);
            }
        }
        set[chosen] = Entry { key, at: now, ..Entry::default() };
        &mut set[chosen]
    }
}

/// The part of a local part common to all copies of one sender.
///
/// Removed parts: subaddresses and VERP of Mailman, mlmmj and Sympa (`list-bounces+ann=example.org`), VERP with or
/// without a message number before it (`list-return-12-ann=example.org`, `list-return-ann=example.org`), BATV
/// (`prvs=1234abcd=ann`), the hash and the day of SRS (`SRS0=hash=day=example.org=ann`), and machine-made names of
/// single messages.
pub fn stem(local: &str) -> &str {
    let lower = |prefix: &str| local.get(..prefix.len()).is_some_and(|text| text.eq_ignore_ascii_case(prefix));
    if lower("prvs=") {
        return behind(local, 2);
    }
    if lower("SRS0=") || lower("SRS1=") {
        return behind(local, 3);
    }
    if is_random(local.split(['-', '+', '=', '.']).next().unwrap_or(local)) {
        return "";
    }
    let cut = |at: Option<usize>| at.filter(|at| *at > 0);
    let plus = cut(local.find('+'));
    let number = cut(numbered(local));
    // Other VERP has neither: everything from the first hyphen on is removed, since the address may contain hyphens.
    let verp = if local.contains('=') { cut(local.find(['-', '='])) } else { None };
    let end = match plus.into_iter().chain(number).min() {
        Some(end) => end,
        None => verp.unwrap_or(local.len()),
    };
    &local[..end]
}

/// The text after the first `count` equals signs.
fn behind(text: &str, count: usize) -> &str {
    text.splitn(count + 1, '=').nth(count).unwrap_or("")
}

/// Position of the separator before the first token of digits only; a last token of digits is part of a name
/// (`team-7`).
fn numbered(local: &str) -> Option<usize> {
    let mut at = 0;
    for token in local.split(['-', '.', '_']) {
        let end = at + token.len();
        let is_last = end == local.len();
        if at > 0 && !is_last && !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit()) {
            return Some(at - 1);
        }
        at = end + 1;
    }
    None
}

fn is_random(token: &str) -> bool {
    let has = |wanted: fn(&u8) -> bool| token.as_bytes().iter().any(wanted);
    token.len() >= RANDOM_BYTES_MIN && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RateLimits = RateLimits { messages_max: 10, recipients_max: 50, window_ms: 1_000 };
    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn path(text: &str) -> ReversePath {
        ReversePath::Address(text.parse().unwrap())
    }

    fn count(rates: &mut SenderRates, sender: &str, recipients: u64, now: Ms) -> bool {
        rates.is_bulk(&path(sender), CLIENT, true, recipients, &LIMITS, now)
    }

    #[test]
    fn copies_of_one_list_have_one_sender() {
        for (local, wanted) in [
            ("list-bounces+ann=example.org", "list-bounces"),
            ("list+bounces-17-ann=example.org", "list"),
            ("list-return-17-ann-marie=example.org", "list-return"),
            ("list-return-ann-marie=example.org", "list"),
            ("bounce+ann==a==example.org==list", "bounce"),
            ("bounces-4711-0a1b2c3d-ann=example.org", "bounces"),
            ("prvs=1234abcd=ann.smith", "ann.smith"),
            ("SRS0=xY1z=5A=example.org=ann", "example.org=ann"),
            ("srs1=xY1z=relay.example==5A=example.org=ann", "=5A=example.org=ann"),
            ("0100018f2a3b4c5d-6e7f8a9b-0c1d-000000", ""),
            ("ann.smith", "ann.smith"),
            ("ann-marie", "ann-marie"),
            ("team-7", "team-7"),
            ("7-up", "7-up"),
            ("+ann", "+ann"),
            ("=", "="),
            ("prvs=", ""),
        ] {
            assert_eq!(stem(local), wanted, "{local}");
        }
    }

    #[test]
    fn a_burst_becomes_bulk_and_calms_down() {
        let mut rates = SenderRates::new(1);
        for n in 0..10 {
            assert!(!count(&mut rates, &format!("list-bounces+u{n}=x.example@lists.example"), 1, 0), "{n}");
        }
        assert!(count(&mut rates, "list-bounces+more=x.example@lists.example", 1, 0));
        // Other senders are not affected; this sender's next message, a moment later, still is.
        assert!(!count(&mut rates, "ann@lists.example", 1, 0));
        assert!(count(&mut rates, "list-bounces+u=x.example@lists.example", 1, 400));
        // 11 and one more, minus 4 that leaked: half is left after 0.4 s more.
        assert!(!count(&mut rates, "list-bounces+u=x.example@lists.example", 1, 1_500));
    }

    #[test]
    fn one_message_to_many_is_no_rate() {
        let mut rates = SenderRates::new(1);
        assert!(!count(&mut rates, "ann@home.example", 5_000, 0));
        assert!(count(&mut rates, "ann@home.example", 1, 10));
        // However many there were, the bucket holds at most two windows' worth.
        assert!(!count(&mut rates, "ann@home.example", 1, 1_600));
    }

    #[test]
    fn nobody_is_slowed_down_by_a_forger() {
        let mut rates = SenderRates::new(1);
        let forger: IpAddr = "203.0.113.7".parse().unwrap();
        for _ in 0..50 {
            rates.is_bulk(&path("ann@home.example"), forger, false, 1, &LIMITS, 0);
        }
        assert!(rates.is_bulk(&path("ann@home.example"), forger, false, 1, &LIMITS, 0));
        assert!(!rates.is_bulk(&path("ann@home.example"), "192.0.2.1".parse().unwrap(), false, 1, &LIMITS, 0));
        assert!(!rates.is_bulk(&path("ann@home.example"), forger, true, 1, &LIMITS, 0));
        // Reports have no sender: each client is counted separately.
        for _ in 0..50 {
            rates.is_bulk(&ReversePath::Null, CLIENT, true, 1, &LIMITS, 0);
        }
        assert!(rates.is_bulk(&ReversePath::Null, CLIENT, true, 1, &LIMITS, 0));
        assert!(!rates.is_bulk(&ReversePath::Null, "127.0.0.2".parse().unwrap(), true, 1, &LIMITS, 0));
    }

    #[test]
    fn a_busy_sender_is_remembered_among_very_many() {
        let mut rates = SenderRates::new(7);
        for _ in 0..20 {
            count(&mut rates, "list@lists.example", 1, 0);
        }
        for n in 0..4 * SENDERS_MAX {
            assert!(!count(&mut rates, &format!("a{n}b@home.example"), 1, 1));
        }
        assert!(count(&mut rates, "list@lists.example", 1, 2));
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn counting_can_be_off() {
        let mut rates = SenderRates::new(1);
        let off = RateLimits { messages_max: 0, recipients_max: 0, window_ms: 1_000 };
        let messages = RateLimits { messages_max: 0, ..LIMITS };
        assert!((0..100).all(|_| !rates.is_bulk(&path("ann@home.example"), CLIENT, true, 9, &off, 0)));
        let bulk = (0..60).filter(|_| rates.is_bulk(&path("bob@home.example"), CLIENT, true, 1, &messages, 0)).count();
        assert_eq!(bulk, 10);
    }

    proptest! {
        #[test]
        fn the_stem_is_a_part_of_any_local_part(local in "[a-zA-Z0-9+=._-]{0,64}") {
            prop_assert!(local.contains(stem(&local)));
        }

        #[test]
        fn verp_folds(list in "[a-z]{1,12}", user in "[a-z]{1,8}(-[a-z]{1,8})?", other in "[a-z]{1,8}", n in 1u32..9_999) {
            for copy in [
                format!("{list}-bounces+{user}=x.example"),
                format!("{list}+bounces-{n}-{user}=x.example"),
                format!("{list}-return-{n}-{user}=x.example"),
                format!("{list}-return-{user}=x.example"),
            ] {
                let twin = copy.replace(&format!("{user}=x"), &format!("{other}=y"));
                prop_assert_eq!(stem(&copy), stem(&twin));
                prop_assert!(copy.starts_with(stem(&copy)) && !stem(&copy).is_empty());
            }
        }

        /// Checks the definition: below the maximum in any window a sender is never bulk, and the level never exceeds
        /// the bucket's size.
        #[test]
        fn a_slow_sender_is_never_bulk(gaps in proptest::collection::vec(101u64..5_000, 1..200)) {
            let mut rates = SenderRates::new(3);
            let mut now = 0;
            for gap in gaps {
                now += gap;
                prop_assert!(!count(&mut rates, "ann@home.example", 1, now));
            }
        }

        #[test]
        fn whoever_stops_is_ordinary_again(
            steps in proptest::collection::vec((0u64..50, 0u64..1_000_000), 1..200), back in 0u64..100_000,
        ) {
            let mut rates = SenderRates::new(3);
            let mut now = 1_000_000;
            for (gap, recipients) in steps {
                now += gap;
                count(&mut rates, "ann@home.example", recipients, now);
            }
            // A clock that steps back must not make a sender bulk.
            count(&mut rates, "ann@home.example", 1, now - back);
            prop_assert!(!count(&mut rates, "ann@home.example", 1, now + 1_501));
        }
    }
}
