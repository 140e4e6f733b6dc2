//! The delay of callers after wrong guesses. Times are those of the steady clock.
//!
//! Wrong guesses are counted by address (a /64 of IPv6). An address from which a user has logged in before is a home of
//! that user: only wrong guesses for that user from there count, so that other guesses cannot lock the user out. A
//! login does not clear the count of its address: otherwise the owner of one account could guess the passwords of
//! others in between.

use std::net::IpAddr;

use hashbrown::HashMap;
use stentor_config::keys::random;
use stentor_policy::{Guesses, Slowness, counted_as};
use stentor_queue::ids::Ms;

/// Five wrong passwords of an address are free; the count is reset after a quarter of an hour without wrong ones.
const SLOWNESS: Slowness = Slowness { free: 5, wait_ms_min: 1_000, wait_ms_max: 60_000, forgotten_ms: 15 * 60_000 };
/// Maximum home addresses, in total and per user; one more drops the one with the oldest login.
const PLACES_MAX: usize = 1_024;
const PLACES_OF_USER_MAX: usize = 64;
/// Seconds to wait that are reported when too many passwords are being checked.
pub const CROWDED_S: u64 = 5;

pub(super) struct GuessDelays {
    by_address: Guesses,
    at_home: Guesses,
    /// The last login of a user from an address.
    homes: HashMap<(IpAddr, Box<str>), Ms>,
}

impl Default for GuessDelays {
    fn default() -> GuessDelays {
        let of = || Guesses::new(SLOWNESS, u64::from_ne_bytes(random()));
        GuessDelays { by_address: of(), at_home: of(), homes: HashMap::new() }
    }
}

impl GuessDelays {
    /// Whether the user has logged in from this address.
    pub fn is_at_home(&self, address: IpAddr, user: &str) -> bool {
        self.homes.contains_key(&(counted_as(address), Box::from(user)))
    }

    /// How long the next attempt has to wait, if at all.
    pub fn wait_ms(&self, address: IpAddr, user: &str, now: Ms) -> Option<u64> {
        let counted = counted_as(address);
        if self.is_at_home(address, user) {
            return self.at_home.wait_ms(&(counted, user), now);
        }
        self.by_address.wait_ms(&counted, now)
    }

    pub fn wrong(&mut self, address: IpAddr, user: &str, now: Ms) {
        let counted = counted_as(address);
        if self.is_at_home(address, user) {
            self.at_home.wrong(&(counted, user), now);
        } else {
            self.by_address.wrong(&counted, now);
        }
    }

    /// Records a login, which makes the address a home of the user.
    pub fn right(&mut self, address: IpAddr, user: &str, now: Ms) {
        let counted = counted_as(address);
        self.at_home.right(&(counted, user));
        self.homes.insert((counted, user.into()), now);
        let is_users = |(place, _): &(&(IpAddr, Box<str>), &Ms)| *place.1 == *user;
        if self.homes.iter().filter(is_users).count() > PLACES_OF_USER_MAX {
            self.forget_oldest(|of| of == user);
        }
        if self.homes.len() > PLACES_MAX {
            self.forget_oldest(|_| true);
        }
    }

    fn forget_oldest(&mut self, is_meant: impl Fn(&str) -> bool) {
        let meant = self.homes.iter().filter(|((_, user), _)| is_meant(user));
        if let Some(place) = meant.min_by_key(|(_, last)| **last).map(|(place, _)| place.clone()) {
            self.homes.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_of_ipv6_guesses_as_one() {
        let (mut slow, guesser) = (GuessDelays::default(), address("2001:db8::1"));
        for n in 0..SLOWNESS.free {
            assert_eq!(slow.wait_ms(guesser, "ann", 0), None, "{n}");
            slow.wrong(guesser, "ann", 0);
        }
        assert_eq!(slow.wait_ms(guesser, "ann", 0), Some(1_000));
        assert_eq!(slow.wait_ms(guesser, "bob", 0), Some(1_000), "whomever it guesses");
        slow.wrong(address("2001:db8::2"), "ann", 1_000);
        assert_eq!(slow.wait_ms(guesser, "ann", 1_000), Some(2_000));
        assert_eq!(slow.wait_ms(address("2001:db8:1::1"), "ann", 1_000), None);
    }

    #[test]
    fn guesses_of_others_do_not_count_where_a_user_is_at_home() {
        let (mut slow, home) = (GuessDelays::default(), address("192.0.2.1"));
        slow.right(home, "ann", 0);
        for n in 0..50 {
            slow.wrong(address(&format!("198.51.100.{n}")), "ann", 0);
            // The same holds for another user behind the same address.
            slow.wrong(home, "bob", 0);
        }
        assert_eq!(slow.wait_ms(home, "ann", 0), None);
        assert_eq!(slow.wait_ms(home, "bob", 0), Some(60_000));
        for _ in 0..SLOWNESS.free {
            slow.wrong(home, "ann", 0);
        }
        assert_eq!(slow.wait_ms(home, "ann", 0), Some(1_000), "their own do");
        slow.right(home, "ann", 1_000);
        assert_eq!(slow.wait_ms(home, "ann", 1_000), None);
        assert!(slow.wait_ms(home, "bob", 1_000).is_some(), "a login forgives nothing else");
    }

    #[test]
    fn homes_are_bounded_and_nobody_displaces_others() {
        let mut slow = GuessDelays::default();
        slow.right(address("192.0.2.1"), "ann", 0);
        for n in 0..2_000_u32 {
            slow.right(IpAddr::from(n.to_be_bytes()), "eve", 1 + Ms::from(n));
        }
        assert!(slow.is_at_home(address("192.0.2.1"), "ann"));
        assert_eq!(slow.homes.len(), 1 + PLACES_OF_USER_MAX);
        for n in 0..2_000_u32 {
            slow.right(address("192.0.2.2"), &format!("user{n}"), 10_000 + Ms::from(n));
        }
        assert_eq!(slow.homes.len(), PLACES_MAX);
        assert!(slow.is_at_home(address("192.0.2.2"), "user1999"));
    }
}
