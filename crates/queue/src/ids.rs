//! The identifiers of the queue and their textual forms.

use std::fmt;
use std::str::FromStr;

/// Milliseconds since the Unix epoch by the caller's clock, which never runs backwards within a process.
pub type Ms = u64;

/// A recipient address, interned in the [`crate::book::AddressBook`]. Durable: the journal refers to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AddressId(pub u32);

/// A domain of the address book. Volatile: numbered anew at each start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DomainId(pub u32);

/// A destination: the MX set of a domain, or a static route. Volatile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SiteId(pub u32);

/// One outgoing connection. Volatile, never used twice within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// One outgoing transaction. Volatile, never used twice within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxId(pub u64);

/// Stored content, by its number in the journal. Durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContentId(pub u64);

/// The position of a queued message in bitmaps. Volatile. Numbers grow, wrap at 2^32 and skip those in use, so that
/// cyclic order from the oldest is age order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageNo(pub u32);

/// The permanent id of a queued message: `seconds since 2020-01-01 << 24 | counter`, growing, never assigned twice by a
/// store. Its text, the queue id, is 12 characters of Crockford's base 32 (upper case; input of either case is
/// accepted).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub u64);

/// 2020-01-01T00:00:00Z in Unix seconds.
const EPOCH_2020_S: u64 = 1_577_836_800;
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Number of characters in a queue id: 60 bits.
pub const QUEUE_ID_CHARS: usize = 12;

impl MessageId {
    /// The first id that may be assigned at `now`, always above `last`.
    pub fn next(last: MessageId, now: Ms) -> MessageId {
        let by_time = (now / 1000).saturating_sub(EPOCH_2020_S) << 24;
        MessageId(by_time.max(last.0 + 1))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; QUEUE_ID_CHARS];
        for (i, c) in text.iter_mut().enumerate() {
            let shift = 5 * (QUEUE_ID_CHARS - 1 - i);
            *c = ALPHABET[(self.0 >> shift & 31) as usize];
        }
        // The alphabet is ASCII.
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The text is not a queue id: wrong length, or a character outside the alphabet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid queue id: write 12 characters of 0-9 and A-Z, without I, L, O and U")]
pub struct QueueIdError;

impl FromStr for MessageId {
    type Err = QueueIdError;

    fn from_str(s: &str) -> Result<Self, QueueIdError> {
        if s.len() != QUEUE_ID_CHARS {
            return Err(QueueIdError);
        }
        s.bytes().try_fold(MessageId(0), |id, c| {
            let digit = ALPHABET.iter().position(|a| *a == c.to_ascii_uppercase()).ok_or(QueueIdError)?;
            Ok(MessageId(id.0 << 5 | digit as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_ids_round_trip_and_grow() {
        let first = MessageId::next(MessageId(0), 1_763_000_000_000);
        let second = MessageId::next(first, 1_763_000_000_000);
        assert!(second > first);
        assert_eq!(first.to_string().len(), QUEUE_ID_CHARS);
        assert_eq!(first.to_string().parse(), Ok(first));
        assert_eq!(first.to_string().to_lowercase().parse(), Ok(first));
        assert!("0123456789I1".parse::<MessageId>().is_err());
        assert!(MessageId::next(second, 0) > second, "a clock that jumps back gives no id twice");
    }
}
