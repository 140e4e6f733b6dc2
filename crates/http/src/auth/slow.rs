//! How long a caller has to wait after wrong guesses. Times are those of the steady clock.

use std::net::IpAddr;

use stentor_config::keys::random;
use stentor_policy::{Guesses, Slowness, counted_as};
use stentor_queue::ids::Ms;

/// Five wrong passwords of an address are free; an address without wrong ones for a quarter of an hour begins anew.
const SLOWNESS: Slowness = Slowness { free: 5, wait_ms_min: 1_000, wait_ms_max: 60_000, forgotten_ms: 15 * 60_000 };
/// What is said to wait when too many passwords are being checked, seconds.
pub const CROWDED_S: u64 = 5;

pub(super) struct Slow(Guesses);

impl Default for Slow {
    fn default() -> Slow {
        Slow(Guesses::new(SLOWNESS, u64::from_ne_bytes(random())))
    }
}

impl Slow {
    /// How long an address still waits, if it does.
    pub fn wait_ms(&self, address: IpAddr, now: Ms) -> Option<u64> {
        self.0.wait_ms(&counted_as(address), now)
    }

    pub fn wrong(&mut self, address: IpAddr, now: Ms) {
        self.0.wrong(&counted_as(address), now);
    }

    pub fn right(&mut self, address: IpAddr) {
        self.0.right(&counted_as(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_guesses_as_one() {
        let (mut slow, guesser) = (Slow::default(), "2001:db8::1".parse().unwrap());
        for n in 0..SLOWNESS.free {
            assert_eq!(slow.wait_ms(guesser, 0), None, "{n}");
            slow.wrong(guesser, 0);
        }
        assert_eq!(slow.wait_ms(guesser, 0), Some(1_000));
        slow.wrong("2001:db8::2".parse().unwrap(), 1_000);
        assert_eq!(slow.wait_ms(guesser, 1_000), Some(2_000));
        assert_eq!(slow.wait_ms("2001:db8:1::1".parse().unwrap(), 1_000), None);
        slow.right(guesser);
        assert_eq!(slow.wait_ms(guesser, 1_000), None);
    }
}
