//! The partial keys that a table's owner, Postfix or sendmail, looks up in turn until one is found.
//!
//! Promise: the order is that of the owner's manual page. Buffers are reused, so a lookup allocates nothing once they
//! have grown. For an address quoted only for its dots, each key is looked up with and then without quotes: files
//! contain `a..b@example.org`, while sessions use `"a..b"@example.org`.

mod postfix;
mod quotes;
mod sendmail;

use std::ops::Range;

use crate::fold::Fold;
use crate::keyed;

/// Kind of table, which determines the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// access(5): a mail address, a host, or a network address.
    Access,
    /// transport(5).
    Transport,
    /// virtual(5).
    Virtual,
    /// canonical(5).
    Canonical,
    /// generic(5).
    Generic,
    /// aliases(5).
    Aliases,
    /// sendmail's `access_db`; the key includes its tag: `From:user@example.com`.
    AccessDb,
    Mailertable,
    Virtusertable,
    Genericstable,
}

impl Owner {
    /// All owners, with their names on the command line.
    pub const ALL: [(Owner, &'static str); 10] = [
        (Owner::Access, "access"),
        (Owner::Transport, "transport"),
        (Owner::Virtual, "virtual"),
        (Owner::Canonical, "canonical"),
        (Owner::Generic, "generic"),
        (Owner::Aliases, "aliases"),
        (Owner::AccessDb, "access-db"),
        (Owner::Mailertable, "mailertable"),
        (Owner::Virtusertable, "virtusertable"),
        (Owner::Genericstable, "genericstable"),
    ];
}

/// Form of keys for parent domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    /// `example.com` also matches its subdomains: the table is in `parent_domain_matches_subdomains`.
    Plain,
    /// `.example.com` matches the subdomains.
    Dotted,
}

/// Settings of the owner that affect the keys.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Characters that start an address extension (`recipient_delimiter`).
    pub delimiters: &'a [u8],
    /// Whether the key's domain is ours, so that keys without it are looked up, too.
    pub is_local: bool,
    /// Form of parent domains; default as in Postfix: plain for access, dotted for transport.
    pub parents: Option<Parents>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { delimiters: b"+", is_local: false, parents: None }
    }
}

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    pub key: &'a [u8],
    /// Whether tables of patterns and networks skip this key ([`crate::Table::takes_partial_keys`]).
    pub is_partial: bool,
    /// Values of `%1` and so on for [`crate::expand::expand`].
    pub arguments: [&'a [u8]; ARGUMENTS_MAX],
    /// Precomputed form for [`crate::Table::get_candidate`], for lookups in many tables.
    pub(crate) folded: Option<Folded<'a>>,
}

/// A key in the folded form of text tables, with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Folded<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    /// Whether all kinds of folding give this result.
    pub is_ascii: bool,
}

/// Number of arguments: `%1`, `%2` and `%3`.
pub const ARGUMENTS_MAX: usize = 3;

/// The keys of one lookup. Reusable.
#[derive(Debug, Default)]
pub struct Candidates {
    bytes: Vec<u8>,
    keys: Vec<Key>,
    folded: Vec<u8>,
    /// Whether the subject is quoted for its dots, so that keys may have two spellings.
    has_quotes: bool,
}

#[derive(Debug)]
struct Key {
    bytes: Range<u32>,
    is_partial: bool,
    arguments: [Range<u32>; ARGUMENTS_MAX],
    /// Folded key; `None` if the key is not UTF-8.
    folded: Option<(Range<u32>, u64, bool)>,
}

impl Candidates {
    /// Replaces the keys by those for another subject.
    pub fn set(&mut self, owner: Owner, key: &[u8], options: &Options<'_>) {
        self.bytes.clear();
        self.keys.clear();
        let quoted = key.iter().position(|&octet| octet == b'"').map_or(&[][..], |at| &key[at..]);
        self.has_quotes = quotes::are_for_dots(quoted);
        match owner {
            Owner::Access => postfix::access(self, key, options),
            Owner::Transport => postfix::transport(self, key, options),
            Owner::Virtual | Owner::Canonical | Owner::Generic => postfix::address(self, key, options),
            Owner::Aliases => postfix::aliases(self, key, options),
            Owner::AccessDb => sendmail::access_db(self, key, options),
            Owner::Mailertable => sendmail::mailertable(self, key),
            Owner::Virtusertable => sendmail::virtusertable(self, key),
            Owner::Genericstable => sendmail::genericstable(self, key),
        }
        self.fold();
    }

    fn fold(&mut self) {
        let Candidates { bytes, keys, folded, .. } = self;
        for key in keys {
            key.folded = Fold::Unicode.fold(&bytes[span(&key.bytes)], folded).ok().map(|()| {
                let begin = bytes.len() as u32;
                bytes.extend_from_slice(folded);
                (begin..bytes.len() as u32, keyed::hash(folded), bytes[span(&key.bytes)].is_ascii())
            });
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Candidate<'_>> {
        let stored = |range: &Range<u32>| &self.bytes[span(range)];
        self.keys.iter().map(move |key| Candidate {
            key: stored(&key.bytes),
            is_partial: key.is_partial,
            arguments: key.arguments.each_ref().map(stored),
            folded: key.folded.as_ref().map(|(range, hash, is_ascii)| Folded {
                key: stored(range),
                hash: *hash,
                is_ascii: *is_ascii,
            }),
        })
    }

    /// Adds a key. The first one is whole, all others are partial.
    fn push(&mut self, pieces: &[&[u8]]) {
        self.push_with(pieces, []);
    }

    fn push_with<const N: usize>(&mut self, pieces: &[&[u8]], arguments: [&[u8]; N]) {
        let is_partial = !self.keys.is_empty();
        if !self.has_quotes {
            return self.push_key(pieces, arguments, is_partial);
        }
        // Local parts are stored unquoted; code that builds an address from them quotes the result.
        let arguments = arguments.map(quotes::remove);
        let arguments = arguments.each_ref().map(|argument| &**argument);
        let Some(at) = pieces.iter().position(|piece| piece.starts_with(b"\"")) else {
            return self.push_key(pieces, arguments, is_partial);
        };
        let mut pieces = pieces.to_vec();
        let (closed, plain) = (quotes::close(pieces[at]), quotes::remove(pieces[at]));
        pieces[at] = &closed;
        self.push_key(&pieces, arguments, is_partial);
        pieces[at] = &plain;
        self.push_key(&pieces, arguments, is_partial);
    }

    fn push_key<const N: usize>(&mut self, pieces: &[&[u8]], arguments: [&[u8]; N], is_partial: bool) {
        let bytes = self.store(pieces);
        let mut stored = [0..0, 0..0, 0..0];
        for (range, argument) in stored.iter_mut().zip(arguments) {
            *range = self.store(&[argument]);
        }
        self.keys.push(Key { bytes, is_partial, arguments: stored, folded: None });
    }

    fn store(&mut self, pieces: &[&[u8]]) -> Range<u32> {
        let begin = self.bytes.len() as u32;
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        begin..self.bytes.len() as u32
    }
}

fn span(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Splits an address into local part and domain at the last `@`.
fn split_address(address: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = address.iter().rposition(|&octet| octet == b'@')?;
    Some((&address[..at], &address[at + 1..]))
}

#[cfg(test)]
mod tests;
