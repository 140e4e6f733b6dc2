//! Recipients: given addresses, or drawn at random from many over many domains.

use std::fmt::Write as _;
use std::io::Write as _;

/// A number for each message: always the same, or drawn evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    pub min: u32,
    pub max: u32,
}

const COUNT_MAX: u32 = 100_000;

impl Count {
    pub fn exactly(count: u32) -> Count {
        Count { min: count.max(1), max: count.max(1) }
    }

    /// `5` or `1-20`.
    pub fn parse(text: &str) -> Result<Count, String> {
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| format!("{text} is not a number"));
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min == 0 || min > max || max > COUNT_MAX {
            return Err(format!("{text}: choose a number or a range within 1-{COUNT_MAX}"));
        }
        Ok(Count { min, max })
    }

    pub(super) fn of(self, seed: u64, number: u64) -> u32 {
        if self.min == self.max { self.min } else { rng(seed, number, 1).u32(self.min..=self.max) }
    }
}

#[derive(Clone, Debug)]
pub enum People {
    /// Used in turn.
    List(Vec<String>),
    /// `r0@d0.load.lab` and so on: the n-th is at domain n modulo `domains`. Those of a message are different ones.
    Random { recipients: u64, domains: u64 },
}

/// Which of them a message goes to: `start`, `start + stride` and so on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Choice {
    start: u64,
    stride: u64,
}

impl People {
    pub(super) fn len(&self) -> u64 {
        match self {
            People::List(list) => list.len() as u64,
            People::Random { recipients, .. } => *recipients,
        }
    }

    pub(super) fn any(&self, test: impl Fn(&str) -> bool) -> bool {
        matches!(self, People::List(list) if list.iter().any(|address| test(address)))
    }

    /// For message `number` with `count` recipients.
    pub(super) fn choose(&self, seed: u64, number: u64, count: u32) -> Choice {
        match self {
            People::List(_) => Choice { start: number.wrapping_mul(u64::from(count)), stride: 1 },
            People::Random { recipients, .. } => {
                let mut rng = rng(seed, number, 2);
                let start = rng.u64(0..*recipients);
                // Without a common divisor no recipient comes twice before all have come.
                let stride = loop {
                    let stride = rng.u64(1..=*recipients);
                    if divisor(stride, *recipients) == 1 {
                        break stride;
                    }
                };
                Choice { start, stride }
            }
        }
    }

    /// Writes the `k`-th address of a choice.
    pub(super) fn put(&self, choice: Choice, k: u32, out: &mut Vec<u8>) {
        let step = u128::from(choice.stride) * u128::from(k);
        let at = ((u128::from(choice.start) + step) % u128::from(self.len().max(1))) as u64;
        // Writing to a Vec cannot fail.
        let _ = match self {
            People::List(list) => out.write_all(list[at as usize].as_bytes()),
            People::Random { domains, .. } => write!(out, "r{at}@d{}.load.lab", at % domains),
        };
    }

    /// All addresses a message has, for a report or a test.
    pub fn of_message(&self, seed: u64, number: u64, count: u32) -> Vec<String> {
        let choice = self.choose(seed, number, count);
        let one = |k| {
            let mut out = Vec::new();
            self.put(choice, k, &mut out);
            let mut text = String::new();
            let _ = write!(text, "{}", String::from_utf8_lossy(&out));
            text
        };
        (0..count).map(one).collect()
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// A stream of its own for each message and purpose, so that who sends a message changes nothing.
pub(super) fn rng(seed: u64, number: u64, purpose: u64) -> fastrand::Rng {
    let mut mixed = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    fastrand::Rng::with_seed(mixed ^ (mixed >> 31))
}
