//! How long a caller has to wait after wrong guesses. Times are those of the steady clock.

use std::net::IpAddr;

use hashbrown::HashMap;
use stentor_policy::counted_as;
use stentor_queue::ids::Ms;

/// Wrong passwords of an address before it waits.
const FREE: u32 = 5;
/// The first wait; it doubles with each wrong password.
const WAIT_MS_MIN: u64 = 1_000;
const WAIT_MS_MAX: u64 = 60_000;
/// An address without wrong passwords for so long begins anew.
const FORGOTTEN_MS: u64 = 15 * 60_000;
/// Addresses remembered.
const ADDRESSES_MAX: usize = 4_096;
/// What is said to wait when too many passwords are being checked, seconds.
pub const CROWDED_S: u64 = 5;

#[derive(Default)]
pub(super) struct Slow {
    wrong: HashMap<IpAddr, (u32, Ms)>,
}

impl Slow {
    /// How long an address still waits, if it does.
    pub fn wait_ms(&self, address: IpAddr, now: Ms) -> Option<u64> {
        let (count, last) = *self.wrong.get(&counted_as(address))?;
        let doublings = count.checked_sub(FREE)?;
        let wait = WAIT_MS_MIN.saturating_mul(1 << doublings.min(16)).min(WAIT_MS_MAX);
        (last + wait).checked_sub(now).filter(|left| *left > 0)
    }

    pub fn wrong(&mut self, address: IpAddr, now: Ms) {
        let address = counted_as(address);
        if !self.wrong.contains_key(&address) && self.wrong.len() >= ADDRESSES_MAX {
            self.wrong.retain(|_, (_, last)| now.saturating_sub(*last) < FORGOTTEN_MS);
            if self.wrong.len() >= ADDRESSES_MAX
                && let Some(oldest) = self.wrong.iter().min_by_key(|(_, (_, last))| *last).map(|(a, _)| *a)
            {
                self.wrong.remove(&oldest);
            }
        }
        let (count, last) = self.wrong.entry(address).or_insert((0, now));
        *count = if now.saturating_sub(*last) < FORGOTTEN_MS { count.saturating_add(1) } else { 1 };
        *last = now;
    }

    pub fn right(&mut self, address: IpAddr) {
        self.wrong.remove(&counted_as(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_waits_longer_and_longer_and_others_do_not() {
        let (mut slow, guesser) = (Slow::default(), "2001:db8::1".parse().unwrap());
        for n in 0..FREE {
            assert_eq!(slow.wait_ms(guesser, 0), None, "{n}");
            slow.wrong(guesser, 0);
        }
        assert_eq!(slow.wait_ms(guesser, 0), Some(1_000));
        slow.wrong("2001:db8::2".parse().unwrap(), 1_000);
        assert_eq!(slow.wait_ms(guesser, 1_000), Some(2_000), "a network is one");
        assert_eq!(slow.wait_ms(guesser, 3_000), None);
        for _ in 0..100 {
            slow.wrong(guesser, 3_000);
        }
        assert_eq!(slow.wait_ms(guesser, 3_000), Some(WAIT_MS_MAX));
        assert_eq!(slow.wait_ms("2001:db8:1::1".parse().unwrap(), 3_000), None);
        slow.right(guesser);
        assert_eq!(slow.wait_ms(guesser, 3_000), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut slow = Slow::default();
        for n in 0..2 * ADDRESSES_MAX as u32 {
            slow.wrong(IpAddr::from(n.to_be_bytes()), n.into());
        }
        assert_eq!(slow.wrong.len(), ADDRESSES_MAX);
    }
}
