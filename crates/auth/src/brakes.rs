//! Who has to wait after wrong guesses: by client, and by user.
//!
//! By client (an address of IPv4, a /64 of IPv6): the first few are free. By user, wherever they are guessed from: more are free. A client
//! from which the user has logged in before is familiar: there the user's wrong guesses are counted apart, and no others'
//! count, so that nobody can lock a user out by guessing, and a forgotten program with an old password nobody but its user. A login
//! forgives the client nothing: else whoever has one account could guess those of others in between.
//!
//! Clients of IPv4, those of IPv6, users that exist, names that do not, and familiar users have a table each: a flood of one kind
//! forgets nothing of another.

use std::collections::VecDeque;
use std::net::IpAddr;

use hashbrown::HashSet;
use stentor_mail::Ms;
use stentor_policy::{Guesses, Slowness, counted_as};

const CLIENT: Slowness = Slowness { free: 5, wait_ms_min: 1_000, wait_ms_max: 120_000, forgotten_ms: 30 * 60_000 };
const USER: Slowness = Slowness { free: 10, wait_ms_min: 1_000, wait_ms_max: 60_000, forgotten_ms: 30 * 60_000 };
/// Users and the clients that they have logged in from; 16 octets and as much of order each.
const PAIRS_MAX: usize = 16_384;

/// Who tries.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    pub client: IpAddr,
    /// In canonical form; None if nobody knows yet.
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
    pairs: HashSet<u64>,
    /// The same, oldest first.
    order: VecDeque<u64>,
    hasher: foldhash::fast::SeedableRandomState,
}

impl Brakes {
    pub fn new(seed: u64) -> Brakes {
        let of = |slowness, n| Guesses::new(slowness, seed.wrapping_add(n));
        Brakes {
            v4: of(CLIENT, 1),
            v6: of(CLIENT, 2),
            known: of(USER, 3),
            unknown: of(USER, 4),
            familiar: of(USER, 5),
            pairs: HashSet::new(),
            order: VecDeque::new(),
            hasher: foldhash::fast::SeedableRandomState::with_seed(seed, foldhash::SharedSeed::global_fixed()),
        }
    }

    fn pair(&self, client: IpAddr, user: &str) -> u64 {
        use std::hash::BuildHasher as _;
        self.hasher.hash_one((client, user))
    }

    /// Whether the user has logged in from there.
    pub fn is_familiar(&self, client: IpAddr, user: &str) -> bool {
        self.pairs.contains(&self.pair(counted_as(client), user))
    }

    /// The client, and the pair that it is with the user if that is familiar.
    fn places(&self, who: Who<'_>) -> (IpAddr, Option<u64>) {
        let client = counted_as(who.client);
        let pair = who.user.map(|user| self.pair(client, user)).filter(|pair| self.pairs.contains(pair));
        (client, pair)
    }

    /// How long is to be waited before the next try, if so.
    pub fn wait_ms(&self, who: Who<'_>, now: Ms) -> Option<u64> {
        let (client, pair) = self.places(who);
        if let Some(pair) = pair {
            return self.familiar.wait_ms(&pair, now);
        }
        let by_client = if client.is_ipv4() { &self.v4 } else { &self.v6 }.wait_ms(&client, now);
        let users = if who.is_known { &self.known } else { &self.unknown };
        by_client.max(who.user.and_then(|user| users.wait_ms(&user, now)))
    }

    pub fn wrong(&mut self, who: Who<'_>, now: Ms) {
        let (client, pair) = self.places(who);
        if let Some(pair) = pair {
            return self.familiar.wrong(&pair, now);
        }
        if client.is_ipv4() { &mut self.v4 } else { &mut self.v6 }.wrong(&client, now);
        if let Some(user) = who.user {
            if who.is_known { &mut self.known } else { &mut self.unknown }.wrong(&user, now);
        }
    }

    /// A login: the user is at home there.
    pub fn right(&mut self, client: IpAddr, user: &str) {
        let pair = self.pair(counted_as(client), user);
        self.familiar.right(&pair);
        if !self.pairs.insert(pair) {
            return;
        }
        self.order.push_back(pair);
        if self.order.len() > PAIRS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.pairs.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who<'a>(client: &str, user: &'a str, is_known: bool) -> Who<'a> {
        Who { client: client.parse().unwrap(), user: Some(user), is_known }
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
        // Who logs in goes on; an account of one's own forgives nothing else.
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
    fn memory_is_bounded() {
        let mut brakes = Brakes::new(1);
        for n in 0..2 * PAIRS_MAX as u32 {
            brakes.right(IpAddr::from(n.to_be_bytes()), "ann");
        }
        assert_eq!((brakes.pairs.len(), brakes.order.len()), (PAIRS_MAX, PAIRS_MAX));
    }
}
