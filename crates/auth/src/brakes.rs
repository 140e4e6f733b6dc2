//! Delays after wrong guesses: by client, and by user.
//!
//! Per client (an IPv4 address, or a /64 of IPv6) the first few guesses are free. Per user, whatever the client, more
//! are free. A client from which the user has logged in before is familiar: there only that user's wrong guesses count,
//! separately, so that nobody can lock a user out by guessing, and a forgotten program with an old password only slows
//! its own user. A login does not clear the client's count: otherwise the owner of one account could guess those of
//! others in between.
//!
//! IPv4 clients, IPv6 clients, existing users, unknown names and familiar users have one table each: a flood of one
//! kind does not evict another. Of familiar places, the one with the oldest login is evicted first, and a user has a
//! bounded number: an account with many addresses cannot evict other users' places.

use std::net::IpAddr;
use std::num::NonZeroUsize;

use lru::LruCache;
use stentor_mail::Ms;
use stentor_policy::{Guesses, Slowness, counted_as};

const CLIENT: Slowness = Slowness { free: 5, wait_ms_min: 1_000, wait_ms_max: 120_000, forgotten_ms: 30 * 60_000 };
const USER: Slowness = Slowness { free: 10, wait_ms_min: 1_000, wait_ms_max: 60_000, forgotten_ms: 30 * 60_000 };
/// Maximum pairs of a user and a client with a login; about 50 octets each.
const PAIRS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();
/// Familiar clients kept per user.
const PLACES_MAX: u64 = 256;

/// The client and user of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct AttemptOrigin<'a> {
    pub client: IpAddr,
    /// In canonical form; `None` if not yet known.
    pub user: Option<&'a str>,
    pub is_known: bool,
}

#[derive(Debug)]
pub struct Brakes {
    v4: Guesses,
    v6: Guesses,
    known: Guesses,
    unknown: Guesses,
    familiar: Guesses,
    /// Keyed by user and slot, up to [`PLACES_MAX`]; of two clients in the same slot, the newer one is familiar.
    pairs: LruCache<(u64, u64), u64, foldhash::fast::SeedableRandomState>,
    hasher: foldhash::fast::SeedableRandomState,
}

impl Brakes {
    pub fn new(seed: u64) -> Brakes {
        let of = |slowness, n| Guesses::new(slowness, seed.wrapping_add(n));
        let hasher = foldhash::fast::SeedableRandomState::with_seed(seed, foldhash::SharedSeed::global_fixed());
        Brakes {
            v4: of(CLIENT, 1),
            v6: of(CLIENT, 2),
            known: of(USER, 3),
            unknown: of(USER, 4),
            familiar: of(USER, 5),
            pairs: LruCache::with_hasher(PAIRS_MAX, hasher.clone()),
            hasher,
        }
    }

    /// The hash of a user and a client, and the slot of the pair.
    fn pair(&self, client: IpAddr, user: &str) -> ((u64, u64), u64) {
        use std::hash::BuildHasher as _;
        let pair = self.hasher.hash_one((client, user));
        ((self.hasher.hash_one(user), pair % PLACES_MAX), pair)
    }

    /// Whether the user has logged in from this client.
    pub fn is_familiar(&self, client: IpAddr, user: &str) -> bool {
        self.familiar_pair(counted_as(client), user).is_some()
    }

    fn familiar_pair(&self, client: IpAddr, user: &str) -> Option<u64> {
        let (place, pair) = self.pair(client, user);
        self.pairs.peek(&place).copied().filter(|kept| *kept == pair)
    }

    /// The client, and its pair with the user if it is familiar.
    fn places(&self, who: AttemptOrigin<'_>) -> (IpAddr, Option<u64>) {
        let client = counted_as(who.client);
        (client, who.user.and_then(|user| self.familiar_pair(client, user)))
    }

    /// The delay before the next attempt, if any.
    pub fn wait_ms(&self, who: AttemptOrigin<'_>, now: Ms) -> Option<u64> {
        let (client, pair) = self.places(who);
        if let Some(pair) = pair {
            return self.familiar.wait_ms(&pair, now);
        }
        let by_client = if client.is_ipv4() { &self.v4 } else { &self.v6 }.wait_ms(&client, now);
        let users = if who.is_known { &self.known } else { &self.unknown };
        by_client.max(who.user.and_then(|user| users.wait_ms(&user, now)))
    }

    pub fn wrong(&mut self, who: AttemptOrigin<'_>, now: Ms) {
        let (client, pair) = self.places(who);
        if let Some(pair) = pair {
            return self.familiar.wrong(&pair, now);
        }
        if client.is_ipv4() { &mut self.v4 } else { &mut self.v6 }.wrong(&client, now);
        if let Some(user) = who.user {
            if who.is_known { &mut self.known } else { &mut self.unknown }.wrong(&user, now);
        }
    }

    /// Records a login, which makes the client familiar.
    pub fn right(&mut self, client: IpAddr, user: &str) {
        let (place, pair) = self.pair(counted_as(client), user);
        self.familiar.right(&pair);
        self.pairs.put(place, pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who<'a>(client: &str, user: &'a str, is_known: bool) -> AttemptOrigin<'a> {
        AttemptOrigin { client: client.parse().unwrap(), user: Some(user), is_known }
    }

    #[test]
    fn a_client_waits_whomever_it_guesses() {
        let mut brakes = Brakes::new(1);
        for n in 0..5 {
            let user = format!("user{n}");
            assert_eq!(brakes.wait_ms(who("192.0.2.1", &user, false), 0), None);
            brakes.wrong(who("192.0.2.1", &user, false), 0);
        }
        assert_eq!(brakes.wait_ms(who("192.0.2.1", "ann", true), 0), Some(1_000));
        assert_eq!(brakes.wait_ms(who("192.0.2.2", "ann", true), 0), None);
        // A login is not delayed, but does not clear the count for other accounts.
        brakes.right("192.0.2.1".parse().unwrap(), "eve");
        assert_eq!(brakes.wait_ms(who("192.0.2.1", "eve", true), 0), None);
        assert_eq!(brakes.wait_ms(who("192.0.2.1", "ann", true), 0), Some(1_000));
    }

    #[test]
    fn a_familiar_place_counts_for_its_user_alone() {
        let mut brakes = Brakes::new(1);
        brakes.right("192.0.2.1".parse().unwrap(), "ann");
        for n in 0..10 {
            assert_eq!(brakes.wait_ms(who("192.0.2.1", "ann", true), 0), None, "{n}");
            brakes.wrong(who("192.0.2.1", "ann", true), 0);
        }
        assert_eq!(brakes.wait_ms(who("192.0.2.1", "ann", true), 0), Some(1_000));
        assert_eq!(brakes.wait_ms(who("192.0.2.1", "bob", true), 0), None);
        assert_eq!(brakes.wait_ms(who("192.0.2.2", "ann", true), 0), None);
        brakes.right("192.0.2.1".parse().unwrap(), "ann");
        assert_eq!(brakes.wait_ms(who("192.0.2.1", "ann", true), 0), None);
    }

    #[test]
    fn guesses_from_everywhere_slow_the_user_and_not_where_it_is_at_home() {
        let mut brakes = Brakes::new(1);
        brakes.right("198.51.100.7".parse().unwrap(), "ann");
        for n in 0..20 {
            brakes.wrong(who(&format!("192.0.2.{n}"), "ann", true), 0);
        }
        assert!(brakes.wait_ms(who("192.0.2.200", "ann", true), 0).is_some());
        assert_eq!(brakes.wait_ms(who("198.51.100.7", "ann", true), 0), None);
        assert_eq!(brakes.wait_ms(who("192.0.2.200", "bob", true), 0), None);
    }

    #[test]
    fn a_flood_of_one_kind_forgets_nothing_of_another() {
        let mut brakes = Brakes::new(1);
        for _ in 0..20 {
            brakes.wrong(who("2001:db8::1", "ann", true), 0);
        }
        for n in 0..100_000u32 {
            let client = IpAddr::from(n.to_be_bytes()).to_string();
            brakes.wrong(who(&client, &format!("made-up-{n}"), false), 1);
        }
        assert!(brakes.wait_ms(who("2001:db8::ffff", "x", false), 2).is_some(), "of the same /64");
        assert!(brakes.wait_ms(who("203.0.113.1", "ann", true), 2).is_some());
    }

    #[test]
    fn memory_is_bounded_and_who_comes_again_is_kept() {
        let mut brakes = Brakes::new(1);
        let home = "198.51.100.7".parse().unwrap();
        for n in 0..2 * PAIRS_MAX.get() as u32 {
            brakes.right(IpAddr::from(n.to_be_bytes()), &format!("user{n}"));
            if n % 1_000 == 0 {
                brakes.right(home, "ann");
            }
        }
        assert!(brakes.pairs.len() == PAIRS_MAX.get() && brakes.is_familiar(home, "ann"));
    }

    #[test]
    fn nobody_displaces_others_from_where_they_are_at_home() {
        let mut brakes = Brakes::new(1);
        let home = "198.51.100.7".parse().unwrap();
        brakes.right(home, "ann");
        for n in 0..4 * PAIRS_MAX.get() as u32 {
            brakes.right(IpAddr::from(n.to_be_bytes()), "eve");
        }
        assert!(brakes.is_familiar(home, "ann"));
        assert!(brakes.pairs.len() as u64 <= PLACES_MAX + 1);
    }
}
