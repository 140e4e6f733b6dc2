//! Facts about all posts together: a boundary that occurs in none of them, and whether they are UTF-8.
//!
//! Boundaries are `=_TOKEN_N_`, with a final letter that distinguishes the two of one digest. The scan finds every
//! `=_TOKEN_`, reads the number after it, and keeps the greatest: the next number occurs nowhere. This takes one pass
//! and no memory, whatever the posts hold; a number too large to have a successor is an error.

use memchr::memmem::Finder;

/// Maximum number of digits read; a longer number cannot be ours, since ours are smaller than 10^18.
const DIGITS_MAX: usize = 18;

#[derive(Debug)]
pub(super) struct BoundaryScan {
    finder: Finder<'static>,
    /// The end of the last piece, where a needle with its number may have begun.
    tail: Vec<u8>,
    greatest: Option<u64>,
}

fn stem(token: &str) -> String {
    format!("=_{token}_")
}

impl BoundaryScan {
    pub(super) fn new(token: &str) -> BoundaryScan {
        let needle = stem(token);
        BoundaryScan { finder: Finder::new(needle.as_bytes()).into_owned(), tail: Vec::new(), greatest: None }
    }

    /// Returns how many octets may have to be searched again with the next piece.
    fn overlap(&self) -> usize {
        self.finder.needle().len() + DIGITS_MAX + 1
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let overlap = self.overlap();
        // The rest of the last piece, with the beginning of this one: contains everything that crosses the cut.
        let mut seam = std::mem::take(&mut self.tail);
        seam.extend_from_slice(&bytes[..bytes.len().min(overlap)]);
        self.search(&seam, false);
        self.search(bytes, false);
        let end = if bytes.len() >= overlap { bytes } else { &seam };
        self.tail = end[end.len().saturating_sub(overlap)..].to_vec();
    }

    /// Ends a post: later pushes belong to another one.
    pub(super) fn end_post(&mut self) {
        let tail = std::mem::take(&mut self.tail);
        self.search(&tail, true);
    }

    /// Searches `bytes`. A number that the end of `bytes` may have cut is left to the next search, unless this is the
    /// last.
    fn search(&mut self, bytes: &[u8], is_last: bool) {
        let len = self.finder.needle().len();
        let mut greatest = self.greatest;
        for at in self.finder.find_iter(bytes) {
            let digits = bytes[at + len..].iter().take(DIGITS_MAX + 1).take_while(|b| b.is_ascii_digit());
            let (count, number) = digits.fold((0, 0u64), |(count, number), digit| {
                (count + 1, number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
            });
            let is_whole = is_last || at + len + count < bytes.len();
            if count <= DIGITS_MAX && is_whole {
                greatest = greatest.max(Some(number));
            }
        }
        self.greatest = greatest;
    }

    /// Returns a boundary of which neither the whole nor the part up to its number occurs in any post.
    pub(super) fn free(&self, token: &str) -> Option<String> {
        let number = self.greatest.map_or(0, |greatest| greatest + 1);
        (number < 10u64.pow(DIGITS_MAX as u32)).then(|| format!("{}{number}_", stem(token)))
    }
}

/// Checks whether octets that arrive in pieces are UTF-8.
#[derive(Debug, Default)]
pub(super) struct Utf8Scan {
    /// The beginning of a character that was cut in two.
    part: Vec<u8>,
    invalid: bool,
}

impl Utf8Scan {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // Completes the character that the last piece cut, octet by octet: three more at most.
        while !self.part.is_empty() && !rest.is_empty() && !self.invalid {
            self.part.push(rest[0]);
            rest = &rest[1..];
            match std::str::from_utf8(&self.part) {
                Ok(_) => self.part.clear(),
                Err(error) => self.invalid = error.error_len().is_some(),
            }
        }
        if self.invalid || rest.is_ascii() {
            return;
        }
        if let Err(error) = std::str::from_utf8(rest) {
            self.invalid = error.error_len().is_some();
            self.part = rest[error.valid_up_to()..].to_vec();
        }
    }

    pub(super) fn end_post(&mut self) {
        self.invalid |= !self.part.is_empty();
        self.part.clear();
    }

    pub(super) fn is_valid(&self) -> bool {
        !self.invalid
    }
}
