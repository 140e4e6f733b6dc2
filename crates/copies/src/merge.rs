//! The merge values of a message's recipients, in the form in which they are stored behind its content.
//!
//! Promise: the values of one recipient are found in a few short reads at positions, however many recipients there are;
//! nothing of the others is read. Reading never panics, whatever the octets; a damaged table is an error.
//!
//! | field | octets |
//! |---|---|
//! | version | `SMV1` |
//! | rows, names | 4 and 2, big-endian |
//! | each name | length (1), text |
//! | index: each row's hash of its address and its position | 8 and 4; sorted |
//! | rows: address, then a value for each name | length (2), text; 0xFFFF: no value |
//!
//! The row with the empty address has the values of all recipients without a row, and of names without a value in one.

use std::collections::HashMap;
use std::io::{self, ErrorKind};

use sha2::{Digest, Sha256};

/// Limits of a table: names, octets of a value, and of the whole.
pub const MERGE_NAMES_MAX: usize = 100;
pub const MERGE_VALUE_BYTES_MAX: usize = 4096;
pub const MERGE_TABLE_BYTES_MAX: usize = 32 * 1024 * 1024;

const VERSION: &[u8; 4] = b"SMV1";
const HEAD_BYTES: usize = 10;
const ENTRY_BYTES: usize = 12;
const NO_VALUE: u16 = u16::MAX;

/// Values by name.
pub type Values = HashMap<String, String>;

/// Why values cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("more than {MERGE_NAMES_MAX} names of values")]
    Names,
    #[error("the value of `{0}` exceeds {MERGE_VALUE_BYTES_MAX} octets")]
    Value(String),
    #[error("the value of `{0}` has a line break or another control character")]
    Control(String),
    #[error("the values of all recipients exceed {MERGE_TABLE_BYTES_MAX} octets; split the recipients")]
    Table,
}

/// Values of recipients before they are stored.
#[derive(Debug, Default)]
pub struct MergeRows {
    rows: Vec<(String, Values)>,
}

impl MergeRows {
    /// Adds the values of a recipient; those of the empty address are everybody's.
    ///
    /// # Errors
    /// A value cannot be stored.
    pub fn add(&mut self, address: &str, values: Values) -> Result<(), MergeError> {
        for (name, value) in &values {
            if value.len() > MERGE_VALUE_BYTES_MAX {
                return Err(MergeError::Value(name.clone()));
            }
            if value.chars().any(char::is_control) {
                return Err(MergeError::Control(name.clone()));
            }
        }
        self.rows.push((address.to_ascii_lowercase(), values));
        Ok(())
    }

    /// Returns the stored form.
    ///
    /// # Errors
    /// It would be too large.
    pub fn encode(&self) -> Result<Vec<u8>, MergeError> {
        let mut names: Vec<&str> = self.rows.iter().flat_map(|(_, values)| values.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > MERGE_NAMES_MAX || names.iter().any(|name| name.len() > usize::from(u8::MAX)) {
            return Err(MergeError::Names);
        }
        let mut out = VERSION.to_vec();
        out.extend_from_slice(&u32::try_from(self.rows.len()).map_err(|_| MergeError::Table)?.to_be_bytes());
        out.extend_from_slice(&(names.len() as u16).to_be_bytes());
        for name in &names {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
        let (index_at, mut index) = (out.len(), Vec::with_capacity(self.rows.len()));
        out.resize(index_at + ENTRY_BYTES * self.rows.len(), 0);
        for (address, values) in &self.rows {
            if out.len() > MERGE_TABLE_BYTES_MAX {
                return Err(MergeError::Table);
            }
            index.push((hash(address), out.len() as u32));
            push_text(&mut out, address);
            for name in &names {
                match values.get(*name) {
                    Some(value) => push_text(&mut out, value),
                    None => out.extend_from_slice(&NO_VALUE.to_be_bytes()),
                }
            }
        }
        if out.len() > MERGE_TABLE_BYTES_MAX {
            return Err(MergeError::Table);
        }
        index.sort_unstable();
        for (entry, (hash, at)) in out[index_at..].chunks_exact_mut(ENTRY_BYTES).zip(index) {
            entry[..8].copy_from_slice(&hash.to_be_bytes());
            entry[8..].copy_from_slice(&at.to_be_bytes());
        }
        Ok(out)
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    // Addresses and values have fewer octets.
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn hash(address: &str) -> u64 {
    let digest = Sha256::digest(address);
    digest.iter().take(8).fold(0, |hash, octet| hash << 8 | u64::from(*octet))
}

/// A stored table; `read` fills a buffer from a position in it.
pub struct MergeTable<R> {
    read: R,
    names: Vec<String>,
    index_at: u64,
    rows: u64,
    len: u64,
}

impl<R: FnMut(u64, &mut [u8]) -> io::Result<()>> MergeTable<R> {
    /// Opens a table of so many octets.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn open(mut read: R, len: u64) -> io::Result<MergeTable<R>> {
        let mut head = [0; HEAD_BYTES];
        if len < HEAD_BYTES as u64 {
            return Err(damaged());
        }
        read(0, &mut head)?;
        let [v0, v1, v2, v3, r0, r1, r2, r3, n0, n1] = head;
        let (rows, count) =
            (u64::from(u32::from_be_bytes([r0, r1, r2, r3])), usize::from(u16::from_be_bytes([n0, n1])));
        if [v0, v1, v2, v3] != *VERSION || count > MERGE_NAMES_MAX {
            return Err(damaged());
        }
        let mut table = MergeTable { read, names: Vec::with_capacity(count), index_at: HEAD_BYTES as u64, rows, len };
        for _ in 0..count {
            let [size] = table.octets(table.index_at)?;
            let name = table.text(table.index_at + 1, usize::from(size))?;
            table.index_at += 1 + u64::from(size);
            table.names.push(name);
        }
        Ok(table)
    }

    /// Returns the values for a recipient.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn values(&mut self, address: &str) -> io::Result<Values> {
        let mut values = self.row("")?;
        values.extend(self.row(&address.to_ascii_lowercase())?);
        Ok(values)
    }

    fn row(&mut self, address: &str) -> io::Result<Values> {
        let wanted = hash(address);
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle)?.0 < wanted { low = middle + 1 } else { high = middle }
        }
        while low < self.rows {
            let (hash, mut at) = self.entry(low)?;
            if hash != wanted {
                break;
            }
            low += 1;
            if self.next_text(&mut at)?.as_deref() != Some(address) {
                continue;
            }
            let mut values = Values::new();
            for name in self.names.clone() {
                if let Some(value) = self.next_text(&mut at)? {
                    values.insert(name, value);
                }
            }
            return Ok(values);
        }
        Ok(Values::new())
    }

    fn entry(&mut self, row: u64) -> io::Result<(u64, u64)> {
        let at = self.index_at + row * ENTRY_BYTES as u64;
        Ok((u64::from_be_bytes(self.octets(at)?), u64::from(u32::from_be_bytes(self.octets(at + 8)?))))
    }

    /// Reads a text and moves behind it; `None`: no value.
    fn next_text(&mut self, at: &mut u64) -> io::Result<Option<String>> {
        let len = u16::from_be_bytes(self.octets(*at)?);
        *at += 2;
        if len == NO_VALUE {
            return Ok(None);
        }
        let text = self.text(*at, usize::from(len))?;
        *at += u64::from(len);
        Ok(Some(text))
    }

    fn text(&mut self, at: u64, len: usize) -> io::Result<String> {
        let mut octets = vec![0; len];
        self.fill(at, &mut octets)?;
        String::from_utf8(octets).map_err(|_| damaged())
    }

    fn octets<const N: usize>(&mut self, at: u64) -> io::Result<[u8; N]> {
        let mut octets = [0; N];
        self.fill(at, &mut octets)?;
        Ok(octets)
    }

    fn fill(&mut self, at: u64, octets: &mut [u8]) -> io::Result<()> {
        if at.checked_add(octets.len() as u64).is_none_or(|end| end > self.len) {
            return Err(damaged());
        }
        (self.read)(at, octets)
    }
}

fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the merge values are damaged")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    type TableReader<'a> = Box<dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a>;

    fn open(octets: &[u8]) -> io::Result<MergeTable<TableReader<'_>>> {
        let read: TableReader<'_> = Box::new(|at: u64, out: &mut [u8]| {
            out.copy_from_slice(&octets[at as usize..at as usize + out.len()]);
            Ok(())
        });
        MergeTable::open(read, octets.len() as u64)
    }

    #[test]
    fn each_recipient_has_its_values_and_those_of_all() {
        let mut rows = MergeRows::default();
        rows.add("", values(&[("shop", "Us"), ("name", "friend")])).unwrap();
        rows.add("Ann@X.example", values(&[("name", "Ann")])).unwrap();
        rows.add("bob@x.example", values(&[("code", "7\u{20ac}")])).unwrap();
        let octets = rows.encode().unwrap();
        let mut table = open(&octets).unwrap();
        assert_eq!(table.values("ann@x.example").unwrap(), values(&[("shop", "Us"), ("name", "Ann")]));
        assert_eq!(
            table.values("BOB@x.example").unwrap(),
            values(&[("shop", "Us"), ("name", "friend"), ("code", "7\u{20ac}")])
        );
        assert_eq!(table.values("cid@x.example").unwrap(), values(&[("shop", "Us"), ("name", "friend")]));
        let empty = MergeRows::default().encode().unwrap();
        assert_eq!(open(&empty).unwrap().values("a@b").unwrap(), Values::new());
    }

    #[test]
    fn values_have_limits() {
        let mut rows = MergeRows::default();
        let long = "x".repeat(MERGE_VALUE_BYTES_MAX + 1);
        assert_eq!(rows.add("a@b", values(&[("n", &long)])), Err(MergeError::Value("n".into())));
        assert_eq!(rows.add("a@b", values(&[("n", "a\r\nb")])), Err(MergeError::Control("n".into())));
        let many = (0..=MERGE_NAMES_MAX).map(|n| (n.to_string(), String::new())).collect();
        rows.add("a@b", many).unwrap();
        assert_eq!(rows.encode(), Err(MergeError::Names));
        let mut rows = MergeRows::default();
        for n in 0..=MERGE_TABLE_BYTES_MAX / MERGE_VALUE_BYTES_MAX {
            rows.add(&n.to_string(), values(&[("n", &long[1..])])).unwrap();
        }
        assert_eq!(rows.encode(), Err(MergeError::Table));
    }

    proptest! {
        #[test]
        fn damaged_tables_never_panic(at in 0usize..200, octet in any::<u8>(), end in 0usize..200) {
            let mut rows = MergeRows::default();
            for n in 0..5 {
                rows.add(&format!("{n}@x"), values(&[("name", "value"), ("b", &n.to_string())])).unwrap();
            }
            let mut octets = rows.encode().unwrap();
            let len = octets.len();
            octets[at % len] = octet;
            octets.truncate(end.max(1));
            if let Ok(mut table) = open(&octets) {
                let _ = table.values("3@x");
            }
        }

        #[test]
        fn what_is_stored_is_found(all in proptest::collection::btree_map("[a-z]{1,6}@x", proptest::collection::hash_map("[a-c]", "[^\\p{Cc}]{0,9}", 0..3), 0..40)) {
            let mut rows = MergeRows::default();
            for (address, values) in &all {
                rows.add(address, values.clone()).unwrap();
            }
            let octets = rows.encode().unwrap();
            let mut table = open(&octets).unwrap();
            for (address, values) in &all {
                prop_assert_eq!(&table.values(address).unwrap(), values);
            }
        }
    }
}
