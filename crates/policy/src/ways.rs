//! Describes why the recipients of one message are relayed: once, or per recipient if rules or routes differ.
//!
//! Promise: at most [`WAYS_MAX`] different reasons are kept, each with its first recipient; the others are counted.

use std::fmt;

use stentor_mail::address::Address;

const WAYS_MAX: usize = 5;

#[derive(Debug, Default)]
pub struct RelayReasons {
    ways: Vec<CountedReason>,
    /// Recipients whose reasons are not kept.
    others: u64,
}

#[derive(Debug)]
struct CountedReason {
    words: String,
    first: String,
    more: u64,
}

impl RelayReasons {
    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Whether all recipients have this reason.
    pub fn are_all(&self, words: &str) -> bool {
        self.ways.iter().all(|way| way.words == words)
    }

    /// Adds a recipient and the reason why it is relayed.
    pub fn add(&mut self, to: &Address, words: String) {
        if let Some(way) = self.ways.iter_mut().find(|way| way.words == words) {
            way.more += 1;
        } else if self.ways.len() < WAYS_MAX {
            self.ways.push(CountedReason { words, first: to.as_str().to_owned(), more: 0 });
        } else {
            self.others += 1;
        }
    }
}

impl fmt::Display for RelayReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [way] = self.ways.as_slice() {
            return f.write_str(&way.words);
        }
        for (n, CountedReason { words, first, more }) in self.ways.iter().enumerate() {
            let before = if n == 0 { "" } else { "; " };
            match more {
                0 => write!(f, "{before}{first}: {words}")?,
                more => write!(f, "{before}{first} and {more} more: {words}")?,
            }
        }
        match self.others {
            0 => Ok(()),
            others => write!(f, "; {others} more by other rules or routes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_are_named_where_they_differ() {
        let mut ways = RelayReasons::default();
        let add = |ways: &mut RelayReasons, to: &str, words: &str| ways.add(&to.parse().unwrap(), words.to_owned());
        for to in ["a@x.example", "b@x.example"] {
            add(&mut ways, to, "trusted; to mx");
        }
        assert_eq!(ways.to_string(), "trusted; to mx");
        add(&mut ways, "c@y.example", "trusted; to lmtp:inner");
        assert_eq!(ways.to_string(), "a@x.example and 1 more: trusted; to mx; c@y.example: trusted; to lmtp:inner");
        for n in 0..10 {
            add(&mut ways, "d@z.example", &format!("to {n}"));
        }
        assert!(ways.to_string().ends_with("; d@z.example: to 2; 7 more by other rules or routes"), "{ways}");
    }
}
