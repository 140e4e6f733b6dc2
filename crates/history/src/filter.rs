//! Bloom filters for the queue ids, Message-IDs and addresses in a block: [`BITS_PER_KEY`] bits per key, with one
//! percent false positives and no false negatives.

use stentor_records::record::Record;
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{DOMAINS_MAX, TEXT_BYTES_MAX, TO_MAX, cut};

const BITS_PER_KEY: usize = 10;
/// Optimal number of probes at that size.
const PROBES: u64 = 7;
/// Longest key that is folded without allocation; longer ones are rare.
const FOLD_BYTES: usize = 320;

/// A key without its angle brackets.
pub fn bare(text: &str) -> &str {
    let text = cut(text, TEXT_BYTES_MAX);
    text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text)
}

/// The hash of a key for look-ups; case does not matter.
pub fn hash(key: &str) -> u64 {
    let key = bare(key).as_bytes();
    let mut folded = [0; FOLD_BYTES];
    match folded.get_mut(..key.len()) {
        Some(folded) => {
            folded.copy_from_slice(key);
            folded.make_ascii_lowercase();
            xxh3_64(folded)
        }
        None => xxh3_64(&key.to_ascii_lowercase()),
    }
}

/// Calls `f` for every key of a record.
pub fn keys<'a>(record: &'a Record<'_>, f: &mut dyn FnMut(&'a str)) {
    let mut give = |text: &'a str| {
        if !text.is_empty() {
            f(text);
        }
    };
    match record {
        Record::Accepted(r) => {
            give(r.id);
            give(r.message_id);
            r.named.iter().take(TO_MAX).for_each(|named| give(named));
        }
        Record::Attempt(r) => {
            give(r.id);
            r.to.iter().take(TO_MAX).for_each(|to| give(to));
            let domains = r.unreached.iter().flat_map(|unreached| &unreached.domains);
            domains.take(DOMAINS_MAX).for_each(|(domain, _)| give(domain));
        }
        Record::Refused(r) => {
            give(r.to);
            give(r.message_id);
            r.named.iter().take(TO_MAX).for_each(|to| give(to));
        }
        Record::Note(r) => {
            give(r.id);
            give(r.message_id);
            r.to.iter().take(TO_MAX).for_each(|to| give(to));
        }
        Record::Machine(_) => {}
    }
}

/// Whether the record contains the key.
pub fn matches(record: &Record<'_>, key: &str) -> bool {
    let mut found = false;
    keys(record, &mut |k| found |= bare(k).eq_ignore_ascii_case(bare(key)));
    found
}

/// Appends the filter for hashes of keys; sorts them and removes duplicates.
pub fn build(hashes: &mut Vec<u64>, out: &mut Vec<u8>) {
    hashes.sort_unstable();
    hashes.dedup();
    if hashes.is_empty() {
        return;
    }
    let start = out.len();
    out.resize(start + (hashes.len() * BITS_PER_KEY).div_ceil(8), 0);
    let filter = &mut out[start..];
    let bits = filter.len() as u64 * 8;
    for hash in hashes {
        for bit in probes(*hash, bits) {
            filter[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
}

/// Whether a key may be in the filter; a block without keys has an empty filter, which holds none.
pub fn may_hold(filter: &[u8], hash: u64) -> bool {
    !filter.is_empty()
        && probes(hash, filter.len() as u64 * 8).all(|bit| filter[(bit / 8) as usize] & (1 << (bit % 8)) != 0)
}

fn probes(hash: u64, bits: u64) -> impl Iterator<Item = u64> {
    let step = hash.rotate_left(32) | 1;
    (0..PROBES).map(move |n| hash.wrapping_add(step.wrapping_mul(n)) % bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_is_found_and_most_else_is_not() {
        let mut hashes: Vec<u64> = (0..5_000).map(|n| hash(&format!("subscriber{n}@example.org"))).collect();
        let mut filter = Vec::new();
        build(&mut hashes, &mut filter);
        assert_eq!(filter.len(), 6_250);
        assert!((0..5_000).all(|n| may_hold(&filter, hash(&format!("Subscriber{n}@EXAMPLE.org")))));
        let wrong = (0..5_000).filter(|n| may_hold(&filter, hash(&format!("other{n}@example.org")))).count();
        assert!(wrong < 100, "{wrong} of 5000");
        assert!(!may_hold(&[], 1));
        assert_eq!(hash("<a@b>"), hash("a@b"));
        let long = "x".repeat(1_000);
        assert_eq!(hash(&long), hash(&long.to_uppercase()));
    }
}
