//! `cdb:`: reads D. J. Bernstein's constant database from its bytes.
//!
//! The file contains positions and sizes of 256 hash tables, then records (two lengths, key, value), then the hash
//! tables: pairs of hash and position. All numbers have 32 bits, little endian. The file is not trusted: a position
//! outside it is not a match.

use crate::diagnostic::TableProblem;
use crate::fold::with_or_without_nul;

const HEADER_BYTES: usize = 256 * 8;

#[derive(Debug)]
pub(crate) struct Cdb {
    bytes: Box<[u8]>,
}

impl Cdb {
    pub fn open(bytes: Vec<u8>) -> Result<Self, TableProblem> {
        let damaged = |why| TableProblem::Damaged { kind: "cdb", why };
        let cdb = Self { bytes: bytes.into_boxed_slice() };
        if cdb.bytes.len() < HEADER_BYTES {
            return Err(damaged("shorter than its header"));
        }
        for table in 0..256 {
            let (place, slots) = cdb.pair(table * 8).ok_or(damaged("shorter than its header"))?;
            let end = u64::from(place) + u64::from(slots) * 8;
            if end > cdb.bytes.len() as u64 || (slots > 0 && (place as usize) < HEADER_BYTES) {
                return Err(damaged("a hash table is outside the file"));
            }
        }
        Ok(cdb)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn get(&self, key: &[u8], folded: &mut Vec<u8>) -> Option<&[u8]> {
        with_or_without_nul(key, folded, |key| self.find(key))
    }

    fn find(&self, key: &[u8]) -> Option<&[u8]> {
        let hash = key.iter().fold(5381_u32, |hash, &byte| hash.wrapping_mul(33) ^ u32::from(byte));
        let (place, slots) = self.pair((hash & 0xff) as usize * 8)?;
        let first = (hash >> 8).checked_rem(slots)?;
        for slot in (first..slots).chain(0..first) {
            let (slot_hash, record) = self.pair(place as usize + slot as usize * 8)?;
            if record == 0 {
                return None;
            }
            if slot_hash == hash
                && let Some(value) = self.record(record as usize, key)
            {
                return Some(value);
            }
        }
        None
    }

    /// The value of the record at a position, if its key matches.
    fn record(&self, place: usize, key: &[u8]) -> Option<&[u8]> {
        let (key_bytes, value_bytes) = self.pair(place)?;
        if key_bytes as usize != key.len() {
            return None;
        }
        let rest = self.bytes.get(place + 8..)?.strip_prefix(key)?;
        rest.get(..value_bytes as usize)
    }

    fn pair(&self, place: usize) -> Option<(u32, u32)> {
        let (first, second) = self.bytes.get(place..place.checked_add(8)?)?.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
        Some((number(first)?, number(second)?))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes a database as cdbmake does.
    pub(crate) fn make(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        let mut tables: Vec<Vec<(u32, u32)>> = vec![Vec::new(); 256];
        for (key, value) in entries {
            let hash = key.iter().fold(5381_u32, |hash, &byte| (hash << 5).wrapping_add(hash) ^ u32::from(byte));
            tables[(hash & 0xff) as usize].push((hash, out.len() as u32));
            out.extend((key.len() as u32).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(*key);
            out.extend(*value);
        }
        for (number, table) in tables.iter().enumerate() {
            let (place, slots) = (out.len() as u32, table.len() * 2);
            out[number * 8..number * 8 + 4].copy_from_slice(&place.to_le_bytes());
            out[number * 8 + 4..number * 8 + 8].copy_from_slice(&(slots as u32).to_le_bytes());
            let mut filled = vec![(0, 0); slots];
            for &(hash, record) in table {
                let mut slot = (hash >> 8) as usize % slots;
                while filled[slot].1 != 0 {
                    slot = (slot + 1) % slots;
                }
                filled[slot] = (hash, record);
            }
            out.extend(filled.iter().flat_map(|(hash, record)| [hash.to_le_bytes(), record.to_le_bytes()]).flatten());
        }
        out
    }

    #[test]
    fn keys_with_and_without_a_nul_are_found() {
        let cdb = Cdb::open(make(&[(b"plain", b"1"), (b"nul\0", b"2\0"), (b"plain", b"later")])).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(cdb.get(b"PLAIN", &mut buffer), Some(&b"1"[..]));
        assert_eq!(cdb.get(b"nul", &mut buffer), Some(&b"2"[..]));
        assert_eq!((cdb.get(b"no", &mut buffer), cdb.get(b"", &mut buffer)), (None, None));
    }

    #[test]
    fn what_is_cut_short_is_named() {
        let whole = make(&[(b"key", b"value")]);
        assert!(matches!(Cdb::open(whole[..100].to_vec()), Err(TableProblem::Damaged { .. })));
        assert!(matches!(Cdb::open(whole[..whole.len() - 1].to_vec()), Err(TableProblem::Damaged { .. })));
    }

    proptest! {
        #[test]
        fn every_key_is_found(keys in proptest::collection::hash_set("[a-z0-9]{1,9}", 1..200)) {
            let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_bytes(), &key.as_bytes()[..1])).collect();
            let cdb = Cdb::open(make(&entries)).unwrap();
            for (key, value) in &entries {
                prop_assert_eq!(cdb.get(key, &mut Vec::new()), Some(*value));
            }
            prop_assert_eq!(cdb.get(b"-", &mut Vec::new()), None);
        }

        #[test]
        fn damage_is_no_panic(at in 0_usize..2200, byte in any::<u8>()) {
            let mut bytes = make(&[(b"key", b"value"), (b"other", b"2")]);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(cdb) = Cdb::open(bytes) {
                cdb.get(b"key", &mut Vec::new());
            }
        }
    }
}
