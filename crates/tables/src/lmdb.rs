//! `lmdb:`: reads a database of `OpenLDAP`'s LMDB from its bytes.
//!
//! Two meta pages contain the root of a B+ tree; the one with the greater transaction number is valid. A page begins
//! with 16 bytes (number, flags, ends of free space) and the positions of nodes in key order. Numbers have the format
//! of the machine that wrote the file: here 64 bits, little endian. The file is not trusted: a position outside it,
//! or too great a depth, is not a match.
//!
//! The original library is C code, needs `unsafe`, and maps and locks a file; here a table is read and replaced as a
//! whole.

use std::cell::Cell;
use std::cmp::Ordering;

use crate::diagnostic::TableProblem;
use crate::fold::with_or_without_nul;

const PAGE_HEADER_BYTES: usize = 16;
const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
const NO_PAGE: u64 = u64::MAX;
/// Maximum depth of a tree of pages of 4096 bytes.
const DEPTH_MAX: usize = 32;

/// Page flag: a branch page; the other page flags follow.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
/// Node flag: the value is on pages of its own.
const BIG: u16 = 0x01;
/// Node flags: the value is a database, or there are several values.
const NOT_A_VALUE: u16 = 0x02 | 0x04;

#[derive(Debug)]
pub(crate) struct Lmdb {
    bytes: Box<[u8]>,
    page_bytes: usize,
    root: u64,
    entries: u64,
}

/// Contents of a meta page.
struct Meta {
    page_bytes: u32,
    root: u64,
    entries: u64,
    transaction: u64,
}

impl Lmdb {
    pub fn open(bytes: Vec<u8>) -> Result<Self, TableProblem> {
        let damaged = |why| TableProblem::Damaged { kind: "lmdb", why };
        let first = meta(&bytes).ok_or(damaged("no meta page of a 64-bit little-endian machine"))?;
        let page_bytes = first.page_bytes as usize;
        if !page_bytes.is_power_of_two() || !(256..=65536).contains(&page_bytes) {
            return Err(damaged("impossible page size"));
        }
        let second = bytes.get(page_bytes..).and_then(meta);
        let newest = match second {
            Some(second) if second.transaction > first.transaction => second,
            _ => first,
        };
        let lmdb = Self { bytes: bytes.into(), page_bytes, root: newest.root, entries: newest.entries };
        if lmdb.root != NO_PAGE && lmdb.page(lmdb.root).is_none() {
            return Err(damaged("the root is outside the file"));
        }
        Ok(lmdb)
    }

    pub fn len(&self) -> usize {
        self.entries as usize
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn get(&self, key: &[u8], folded: &mut Vec<u8>) -> Option<&[u8]> {
        // No key sorts between K and K NUL. So if K is missing, K NUL can only be the following node, and one search
        // finds either.
        let following: Cell<Option<Node<'_>>> = Cell::new(None);
        with_or_without_nul(key, folded, |key| match following.get() {
            Some(node) => (node.key == key).then(|| self.value(&node))?,
            None => self.find(key, &following),
        })
    }

    /// The value of `key`; if it is missing, `following` is set to the node that follows.
    fn find<'a>(&'a self, key: &[u8], following: &Cell<Option<Node<'a>>>) -> Option<&'a [u8]> {
        let mut number = self.root;
        for _ in 0..DEPTH_MAX {
            let page = self.page(number)?;
            let nodes = page.nodes()?;
            if page.flags & LEAF != 0 {
                let (mut low, mut high) = (0, nodes);
                while low < high {
                    let middle = usize::midpoint(low, high);
                    let node = page.node(middle)?;
                    match node.key.cmp(key) {
                        Ordering::Equal => return self.value(&node),
                        Ordering::Less => low = middle + 1,
                        Ordering::Greater => high = middle,
                    }
                }
                // After the last node of a page comes the first of another, which is searched from the root.
                if low < nodes {
                    following.set(page.node(low));
                }
                return None;
            }
            if page.flags & BRANCH == 0 {
                return None;
            }
            // The last node whose key is not greater; the first one has no key.
            let (mut low, mut high) = (1, nodes);
            while low < high {
                let middle = usize::midpoint(low, high);
                if page.node(middle)?.key <= key { low = middle + 1 } else { high = middle }
            }
            number = page.node(low.checked_sub(1)?)?.child();
        }
        None
    }

    fn value(&self, node: &Node<'_>) -> Option<&[u8]> {
        let length = node.value_bytes as usize;
        if node.flags & NOT_A_VALUE != 0 {
            return None;
        }
        if node.flags & BIG == 0 {
            return self.bytes.get(node.value_at..node.value_at.checked_add(length)?);
        }
        let number = long(&self.bytes, node.value_at)?;
        let page = self.page(number)?;
        let begin = page.at + PAGE_HEADER_BYTES;
        (page.flags & OVERFLOW != 0).then(|| self.bytes.get(begin..begin.checked_add(length)?))?
    }

    fn page(&self, number: u64) -> Option<Page<'_>> {
        let at = usize::try_from(number).ok()?.checked_mul(self.page_bytes)?;
        let bytes = self.bytes.get(at..at.checked_add(self.page_bytes)?)?;
        Some(Page { file: &self.bytes, at, bytes, flags: short(bytes, 10)? })
    }
}

struct Page<'a> {
    file: &'a [u8],
    at: usize,
    bytes: &'a [u8],
    flags: u16,
}

#[derive(Clone, Copy)]
struct Node<'a> {
    /// Length of a value; in a branch the lower half of the child's number.
    value_bytes: u32,
    flags: u16,
    key: &'a [u8],
    /// Position of the value in the file.
    value_at: usize,
}

impl Node<'_> {
    fn child(&self) -> u64 {
        u64::from(self.value_bytes) | u64::from(self.flags) << 32
    }
}

impl<'a> Page<'a> {
    fn nodes(&self) -> Option<usize> {
        let lower = usize::from(short(self.bytes, 12)?);
        Some(lower.checked_sub(PAGE_HEADER_BYTES)? / 2)
    }

    fn node(&self, number: usize) -> Option<Node<'a>> {
        let begin = usize::from(short(self.bytes, PAGE_HEADER_BYTES + number * 2)?);
        let key_bytes = usize::from(short(self.bytes, begin + 6)?);
        let key_end = begin + 8 + key_bytes;
        let place = self.at + begin;
        // Sliced from the file, for its lifetime.
        let key = self.file.get(place + 8..self.at + key_end).filter(|_| key_end <= self.bytes.len())?;
        let low = u32::from(short(self.bytes, begin)?);
        let high = u32::from(short(self.bytes, begin + 2)?);
        Some(Node {
            value_bytes: low | high << 16,
            flags: short(self.bytes, begin + 4)?,
            key,
            value_at: self.at + key_end,
        })
    }
}

fn meta(bytes: &[u8]) -> Option<Meta> {
    let at = PAGE_HEADER_BYTES;
    if int(bytes, at)? != MAGIC || int(bytes, at + 4)? != VERSION {
        return None;
    }
    // After the map's address and size come two databases of 48 bytes: free pages and entries.
    let free = at + 24;
    let main = free + 48;
    Some(Meta {
        page_bytes: int(bytes, free)?,
        entries: long(bytes, main + 32)?,
        root: long(bytes, main + 40)?,
        transaction: long(bytes, main + 56)?,
    })
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 300 keys in two levels with values of all sizes, made by Debian's postmap; see tests/data/README.md.
    const MADE: &[u8] = include_bytes!("../tests/data/table.lmdb");

    #[test]
    fn a_database_of_postmap_is_read() {
        let lmdb = Lmdb::open(MADE.to_vec()).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(lmdb.len(), 301);
        for number in 0..300 {
            let value = lmdb.get(format!("Key{number}@example.com").as_bytes(), &mut buffer);
            assert_eq!(value, Some(format!("value {number}").as_bytes()), "{number}");
        }
        assert_eq!(lmdb.get(b"big", &mut buffer), Some("x".repeat(9000).as_bytes()));
        for absent in ["", "key", "key300@example.com", "zzz", "\u{1}"] {
            assert_eq!(lmdb.get(absent.as_bytes(), &mut buffer), None, "{absent}");
        }
    }

    #[test]
    fn keys_without_a_nul_are_found_at_every_place_of_a_page() {
        // Keys and values of postmap have one.
        let mut bytes = MADE.to_vec();
        for at in 0..bytes.len() - 13 {
            if bytes[at..].starts_with(b"@example.com\0") {
                bytes[at + 12] = b'x';
            }
        }
        let lmdb = Lmdb::open(bytes).unwrap();
        let mut buffer = Vec::new();
        for number in 0..300 {
            let value = lmdb.get(format!("key{number}@example.comx").as_bytes(), &mut buffer);
            assert_eq!(
                value.and_then(|value| value.strip_suffix(b"\0")),
                Some(format!("value {number}").as_bytes()),
                "{number}"
            );
            assert_eq!(lmdb.get(format!("key{number}@example.com").as_bytes(), &mut buffer), None, "{number}");
        }
    }

    #[test]
    fn what_is_no_database_is_named() {
        for bytes in [&[][..], &[0; 4096], &MADE[..4000], b"text table\n"] {
            let opened = Lmdb::open(bytes.to_vec());
            let is_read = opened.is_ok_and(|lmdb| lmdb.get(b"key1@example.com", &mut Vec::new()).is_some());
            assert!(!is_read);
        }
    }

    proptest! {
        #[test]
        fn damage_is_no_panic(places in proptest::collection::vec((0..MADE.len(), any::<u8>()), 1..20)) {
            let mut bytes = MADE.to_vec();
            for (at, byte) in places {
                bytes[at] = byte;
            }
            if let Ok(lmdb) = Lmdb::open(bytes) {
                for number in 0..300 {
                    lmdb.get(format!("key{number}@example.com").as_bytes(), &mut Vec::new());
                }
                lmdb.get(b"big", &mut Vec::new());
            }
        }
    }
}
