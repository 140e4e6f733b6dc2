//! Multiparts and messages around a line, and the level that a line delimits.
//!
//! Promise: the work for a line depends on its length, not on the number of levels or the length of their boundaries.

use std::cell::OnceCell;
use std::collections::HashMap;

/// A multipart or a message that has parts.
#[derive(Debug)]
pub(super) enum Level {
    Multipart { boundary: Vec<u8>, digest: bool },
    Message,
}

/// Levels around a line, outermost first.
#[derive(Debug, Default)]
pub(super) struct Levels {
    all: Vec<Level>,
    /// Indexes of the levels with each boundary.
    of: HashMap<Vec<u8>, Vec<usize>>,
    begins: OnceCell<Begins>,
}

impl Levels {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn last(&self) -> Option<&Level> {
        self.all.last()
    }

    pub(super) fn push(&mut self, level: Level) {
        if let Level::Multipart { boundary, .. } = &level {
            self.of.entry(boundary.clone()).or_default().push(self.all.len());
            self.begins.take();
        }
        self.all.push(level);
    }

    pub(super) fn truncate(&mut self, left: usize) {
        for level in self.all.drain(left.min(self.all.len())..).rev() {
            let Level::Multipart { boundary, .. } = level else { continue };
            self.begins.take();
            if let Some(of) = self.of.get_mut(&boundary) {
                of.pop();
                if of.is_empty() {
                    self.of.remove(&boundary);
                }
            }
        }
    }

    /// The level whose delimiter `text` is, innermost first, and whether it closes that level (RFC 2046 5.1.1).
    pub(super) fn delimiter(&self, text: &[u8]) -> Option<(usize, bool)> {
        let rest = text.strip_prefix(b"--")?.trim_ascii_end();
        let innermost = |boundary: &[u8]| self.of.get(boundary)?.last().copied();
        let begins = innermost(rest).map(|level| (level, false));
        let closes = rest.strip_suffix(b"--").and_then(innermost).map(|level| (level, true));
        begins.max(closes)
    }

    /// Whether some reader may take a line for a delimiter: lines may begin with one (RFC 2046 5.1.1), and some
    /// readers find it anywhere in a line.
    pub(super) fn may_delimit(&self, line: &[u8]) -> bool {
        let mut rest = line;
        while let Some(at) = memchr::memchr(b'-', rest) {
            let run = rest[at..].iter().take_while(|octet| **octet == b'-').count();
            rest = &rest[at + run..];
            if let Some(dashes) = run.checked_sub(2)
                && self.begins.get_or_init(|| Begins::of(&self.all)).is_met(dashes, rest)
            {
                return true;
            }
        }
        false
    }
}

/// Maximum octets compared after a boundary's leading dashes: a text with these octets after as many dashes may
/// contain a delimiter.
const BEGIN_BYTES: usize = 8;

/// Beginnings of boundaries.
#[derive(Debug, Default)]
struct Begins {
    /// The smallest number of dashes of a boundary that consists of dashes only.
    bare: Option<usize>,
    /// By length: the octets after the dashes, sorted, and the smallest number of dashes before them.
    keys: [Vec<(u64, usize)>; BEGIN_BYTES],
}

impl Begins {
    fn of(levels: &[Level]) -> Begins {
        let mut begins = Begins::default();
        for level in levels {
            let Level::Multipart { boundary, .. } = level else { continue };
            let dashes = boundary.iter().take_while(|octet| **octet == b'-').count();
            let behind = &boundary[dashes..];
            match behind.len().min(BEGIN_BYTES) {
                0 => begins.bare = Some(begins.bare.map_or(dashes, |bare| bare.min(dashes))),
                octets => begins.keys[octets - 1].push((key(behind, octets), dashes)),
            }
        }
        for keys in &mut begins.keys {
            keys.sort_unstable();
            keys.dedup_by_key(|(key, _)| *key);
        }
        begins
    }

    /// Whether a boundary matches around the end of a run of dashes; `dashes` does not include the two of the
    /// delimiter.
    fn is_met(&self, dashes: usize, behind: &[u8]) -> bool {
        self.bare.is_some_and(|bare| bare <= dashes)
            || (1..=BEGIN_BYTES.min(behind.len())).zip(&self.keys).any(|(octets, keys)| {
                #[cfg(test)]
                tests::COMPARED.set(tests::COMPARED.get() + usize::from(!keys.is_empty()));
                let wanted = key(behind, octets);
                keys.binary_search_by_key(&wanted, |(key, _)| *key).is_ok_and(|at| keys[at].1 <= dashes)
            })
    }
}

/// The first `octets` octets as a number.
fn key(text: &[u8], octets: usize) -> u64 {
    text[..octets].iter().fold(0, |key, octet| key << 8 | u64::from(*octet))
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// Number of comparisons.
        pub(in super::super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    fn levels(boundaries: &[String]) -> Levels {
        let mut levels = Levels::default();
        for boundary in boundaries {
            levels.push(Level::Multipart { boundary: boundary.clone().into_bytes(), digest: false });
            levels.push(Level::Message);
        }
        levels
    }

    /// Finds boundaries, comparing the result with a naive search.
    fn has(boundaries: &[String], line: &str) -> bool {
        boundaries.iter().any(|boundary| line.contains(&format!("--{boundary}")))
    }

    fn delimits(boundaries: &[String], line: &str) -> Option<(usize, bool)> {
        let rest = line.strip_prefix("--")?.trim_ascii_end();
        boundaries.iter().enumerate().rev().find_map(|(n, boundary)| match rest.strip_prefix(boundary.as_str())? {
            "" => Some((2 * n, false)),
            "--" => Some((2 * n, true)),
            _ => None,
        })
    }

    proptest! {
        #[test]
        fn all_boundaries_are_found(
            boundaries in proptest::collection::vec("[-ab]{1,5}|-{1,4}|[-a]{0,3}bbbbbbbb[ab]{1,2}", 0..6),
            line in "[-ab]{0,16}|-{2,4}[-a]{0,3}bbbbbbbb[ab]{0,2}-{0,2} ?",
            left in 0usize..6,
        ) {
            let mut levels = levels(&boundaries);
            levels.truncate(2 * left);
            let boundaries = &boundaries[..left.min(boundaries.len())];
            prop_assert_eq!(levels.delimiter(line.as_bytes()), delimits(boundaries, &line));
            let found = levels.may_delimit(line.as_bytes());
            if boundaries.iter().all(|boundary| boundary.trim_start_matches('-').len() <= BEGIN_BYTES) {
                prop_assert_eq!(found, has(boundaries, &line));
            } else {
                prop_assert!(found || !has(boundaries, &line));
            }
        }
    }

    /// Checks the work for many levels that resemble each other and the text.
    #[test]
    fn the_work_is_that_of_the_text() {
        let boundaries: Vec<String> = (0..100).map(|n| format!("{}{n:03}", "-".repeat(247))).collect();
        for text in ["-".repeat(100_000), "--0".repeat(33_000), format!("{}x", "-".repeat(240)).repeat(400)] {
            COMPARED.set(0);
            assert!(!levels(&boundaries).may_delimit(text.as_bytes()));
            assert!(COMPARED.get() <= text.len(), "{} of {}", COMPARED.get(), text.len());
        }
        let mixed: Vec<String> = (1..100).map(|n| "ab".repeat(n)[n..].to_owned()).collect();
        COMPARED.set(0);
        assert!(!levels(&mixed).may_delimit("--c".repeat(33_000).as_bytes()));
        assert!(COMPARED.get() <= BEGIN_BYTES * 33_000, "{}", COMPARED.get());
    }
}
