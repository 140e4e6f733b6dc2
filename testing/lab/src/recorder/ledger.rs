//! Who got which message how often: 10 to 20 bytes per copy, names only for errors.
//!
//! One table holds a 64-bit hash per (message, recipient) seen; repeats are counted apart. At a million copies a chance
//! collision of two hashes has a probability below 10^-7.

use hashbrown::{HashMap, HashTable};
use stentor_records::histogram::Fine as Histogram;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Repeated copies up to this many are kept by name.
const REPEAT_NAMES_MAX: usize = 10_000;

/// What is kept per message.
#[derive(Debug)]
pub(super) struct MessageLine {
    pub id: Box<str>,
    pub seed: u64,
    /// Copies, repeats included.
    pub copies: u64,
    /// Different recipients.
    pub recipients: u64,
    pub damaged: u64,
    pub arrivals_us: Histogram,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    by_id: HashMap<Box<str>, u32>,
    pub messages: Vec<MessageLine>,
    seen: HashTable<u64>,
    repeats: HashMap<u64, u32>,
    pub repeat_names: Vec<(u32, Box<str>)>,
    pub repeats_total: u64,
}

/// The hash of a recipient: local part as it is, domain without case (RFC 5321 2.4).
fn recipient_hash(seed: u64, address: &str) -> u64 {
    match address.rsplit_once('@') {
        Some((_, domain)) if domain.bytes().any(|b| b.is_ascii_uppercase()) => {
            let mut lowered = address.as_bytes().to_vec();
            let at = address.len() - domain.len();
            lowered[at..].make_ascii_lowercase();
            xxh3_64_with_seed(&lowered, seed)
        }
        _ => xxh3_64_with_seed(address.as_bytes(), seed),
    }
}

impl Ledger {
    pub fn lookup(&self, id: &str) -> Option<&MessageLine> {
        self.by_id.get(id).map(|&no| &self.messages[no as usize])
    }

    /// The number of the message in `messages`.
    pub fn message(&mut self, id: &str) -> u32 {
        if let Some(&no) = self.by_id.get(id) {
            return no;
        }
        let no = self.messages.len() as u32;
        self.by_id.insert(id.into(), no);
        self.messages.push(MessageLine {
            id: id.into(),
            seed: xxh3_64(id.as_bytes()),
            copies: 0,
            recipients: 0,
            damaged: 0,
            arrivals_us: Histogram::default(),
        });
        no
    }

    /// One copy of message `no`; true if this recipient has had it before.
    pub fn copy(&mut self, no: u32, recipient: &str, at_us: u64) -> bool {
        let line = &mut self.messages[no as usize];
        line.copies += 1;
        line.arrivals_us.add(at_us);
        let hash = recipient_hash(line.seed, recipient);
        match self.seen.entry(hash, |&kept| kept == hash, |&kept| kept) {
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(hash);
                line.recipients += 1;
                false
            }
            hashbrown::hash_table::Entry::Occupied(_) => {
                *self.repeats.entry(hash).or_insert(0) += 1;
                self.repeats_total += 1;
                if self.repeat_names.len() < REPEAT_NAMES_MAX {
                    self.repeat_names.push((no, recipient.into()));
                }
                true
            }
        }
    }

    pub fn hashes(&self) -> Vec<u64> {
        self.seen.iter().copied().collect()
    }

    /// How many copies of the message this recipient had.
    pub fn count(&self, line: &MessageLine, recipient: &str) -> u32 {
        let hash = recipient_hash(line.seed, recipient);
        if self.seen.find(hash, |&kept| kept == hash).is_none() {
            return 0;
        }
        1 + if self.repeats.is_empty() { 0 } else { self.repeats.get(&hash).copied().unwrap_or(0) }
    }
}
