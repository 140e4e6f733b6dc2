//! A table of any kind, and lookups in it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::candidates::{Candidate, Folded};
use crate::cdb::Cdb;
use crate::cidr::Cidr;
use crate::keyed::Keyed;
use crate::lmdb::Lmdb;
use crate::patterns::{Match, Patterns};
use crate::text::alias_targets::{IncludeError, Included, Includes, has_programs};

/// Result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableResult<'a> {
    Found {
        value: &'a [u8],
        /// The file and line of the entry; line 0 in a database, `None` if there is no file.
        place: Option<(&'a str, u32)>,
    },
    NotFound,
    /// The answer is unknown for now: the caller defers.
    Tempfail(&'a str),
}

/// Reusable buffers for lookups. Each thread or task has its own.
#[derive(Debug, Default)]
pub struct Scratch {
    folded: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Debug)]
pub struct Table {
    pub(crate) file: Option<String>,
    pub(crate) body: Body,
    /// Files included by an alias file.
    pub(crate) includes: Includes,
}

#[derive(Debug)]
pub(crate) enum Body {
    Keyed(Keyed),
    /// As [`Body::Keyed`], for sendmail: keys are octets.
    Makemap(Keyed),
    Cdb(Cdb),
    Lmdb(Lmdb),
    Patterns(Patterns),
    Cidr(Cidr),
    Static(Vec<u8>),
    /// All results, separated by commas.
    Union(Vec<Table>),
    /// The result of one table is the key of the next.
    Pipe(Vec<Table>),
}

/// A result whose value may be in the scratch buffer, so that it need not be borrowed meanwhile.
struct TableMatch<'a> {
    value: Option<&'a [u8]>,
    place: Option<(&'a str, u32)>,
}

impl Table {
    /// Makes a table of pairs in the configuration. Later pairs with the same key are ignored.
    pub fn inline<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let (mut keyed, mut folded) = (Keyed::new(crate::fold::Fold::Unicode, 0), Vec::new());
        for (key, value) in pairs {
            // A key that is not UTF-8 could not be found.
            let _ = keyed.add(key, value, 0, &mut folded);
        }
        Self { file: None, body: Body::Keyed(keyed.finish()), includes: Includes::new() }
    }

    /// A file included here, or why it could not be read. `None`: it is not included. `user`: see [`Included::user`].
    pub fn included(&self, path: &str, user: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>> {
        match &self.body {
            Body::Union(tables) | Body::Pipe(tables) => tables.iter().find_map(|table| table.included(path, user)),
            _ => self.includes.get(&user)?.get(path).cloned(),
        }
    }

    /// Whether an alias file contains programs or files as targets.
    pub fn has_programs(&self) -> bool {
        match &self.body {
            Body::Union(tables) | Body::Pipe(tables) => tables.iter().any(Self::has_programs),
            Body::Keyed(keyed) => has_programs(keyed, &self.includes),
            _ => false,
        }
    }

    /// The entries of a text table, with their lines, in no particular order; other tables return none.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8], u32)> {
        let keyed = match &self.body {
            Body::Keyed(keyed) | Body::Makemap(keyed) => Some(keyed),
            _ => None,
        };
        keyed.into_iter().flat_map(|keyed| keyed.entries().map(|hit| (hit.key, hit.value, hit.line)))
    }

    /// The file that the table was read from, if there is one.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Looks up a whole key; [`crate::candidates`] makes the partial ones.
    pub fn get<'a>(&'a self, key: &[u8], scratch: &'a mut Scratch) -> TableResult<'a> {
        match self.find(key, scratch) {
            Some(TableMatch { value, place }) => TableResult::Found { value: value.unwrap_or(&scratch.value), place },
            None => TableResult::NotFound,
        }
    }

    /// Looks up a partial key.
    pub fn get_candidate<'a>(&'a self, candidate: &Candidate<'_>, scratch: &'a mut Scratch) -> TableResult<'a> {
        let keyed = match (&self.body, candidate.folded) {
            (Body::Keyed(keyed), Some(folded)) => Some((keyed, folded)),
            (Body::Makemap(keyed), Some(folded)) if folded.is_ascii => Some((keyed, folded)),
            _ => None,
        };
        let Some((keyed, Folded { key, hash, .. })) = keyed else { return self.get(candidate.key, scratch) };
        match keyed.get_folded(key, hash) {
            Some(hit) => {
                TableResult::Found { value: hit.value, place: self.file.as_deref().map(|file| (file, hit.line)) }
            }
            None => TableResult::NotFound,
        }
    }

    /// Whether partial keys are looked up. Tables of patterns and networks only support whole keys.
    pub fn takes_partial_keys(&self) -> bool {
        match &self.body {
            Body::Patterns(_) | Body::Cidr(_) | Body::Static(_) => false,
            Body::Union(tables) | Body::Pipe(tables) => tables.iter().all(Self::takes_partial_keys),
            _ => true,
        }
    }

    /// Number of entries or rules, if known.
    pub fn entries(&self) -> Option<usize> {
        match &self.body {
            Body::Keyed(keyed) | Body::Makemap(keyed) => Some(keyed.len()),
            Body::Lmdb(lmdb) => Some(lmdb.len()),
            Body::Patterns(patterns) => Some(patterns.len()),
            Body::Cidr(cidr) => Some(cidr.len()),
            Body::Static(_) => Some(1),
            Body::Cdb(_) => None,
            Body::Union(tables) | Body::Pipe(tables) => tables.iter().map(Self::entries).sum(),
        }
    }

    /// Memory used, as far as known: that of patterns is not.
    pub fn bytes(&self) -> usize {
        match &self.body {
            Body::Keyed(keyed) | Body::Makemap(keyed) => keyed.bytes(),
            Body::Cdb(cdb) => cdb.bytes(),
            Body::Lmdb(lmdb) => lmdb.bytes(),
            Body::Cidr(cidr) => cidr.bytes(),
            Body::Static(value) => value.len(),
            Body::Patterns(_) => 0,
            Body::Union(tables) | Body::Pipe(tables) => tables.iter().map(Self::bytes).sum(),
        }
    }

    fn find<'a>(&'a self, key: &[u8], scratch: &mut Scratch) -> Option<TableMatch<'a>> {
        // Postfix finds nothing for such a key in any table.
        if !matches!(self.body, Body::Makemap(_)) && std::str::from_utf8(key).is_err() {
            return None;
        }
        let at = |line| self.file.as_deref().map(|file| (file, line));
        match &self.body {
            Body::Keyed(keyed) | Body::Makemap(keyed) => {
                let hit = keyed.get(key, &mut scratch.folded)?;
                Some(TableMatch { value: Some(hit.value), place: at(hit.line) })
            }
            Body::Cdb(cdb) => Some(TableMatch { value: Some(cdb.get(key, &mut scratch.folded)?), place: at(0) }),
            Body::Lmdb(lmdb) => Some(TableMatch { value: Some(lmdb.get(key, &mut scratch.folded)?), place: at(0) }),
            Body::Cidr(cidr) => {
                let (value, line) = cidr.get(key)?;
                Some(TableMatch { value: Some(value), place: at(line) })
            }
            Body::Patterns(patterns) => {
                let (found, line) = patterns.get(key, &mut scratch.value)?;
                let value = if let Match::Literal(value) = found { Some(value) } else { None };
                Some(TableMatch { value, place: at(line) })
            }
            Body::Static(value) => Some(TableMatch { value: Some(value), place: None }),
            Body::Union(tables) => union(tables, key, scratch),
            Body::Pipe(tables) => pipe(tables, key, scratch),
        }
    }
}

fn union<'a>(tables: &'a [Table], key: &[u8], scratch: &mut Scratch) -> Option<TableMatch<'a>> {
    let (mut all, mut first) = (Vec::new(), None);
    for table in tables {
        let Some(found) = table.find(key, scratch) else { continue };
        if first.is_some() {
            all.push(b',');
        }
        all.extend_from_slice(found.value.unwrap_or(&scratch.value));
        first.get_or_insert(found.place);
    }
    scratch.value = all;
    first.map(|place| TableMatch { value: None, place })
}

fn pipe<'a>(tables: &'a [Table], key: &[u8], scratch: &mut Scratch) -> Option<TableMatch<'a>> {
    let (mut key, mut place) = (Cow::Borrowed(key), None);
    for table in tables {
        let found = table.find(&key, scratch)?;
        key = Cow::Owned(found.value.unwrap_or(&scratch.value).to_vec());
        place = found.place.or(place);
    }
    scratch.value = key.into_owned();
    Some(TableMatch { value: None, place })
}
