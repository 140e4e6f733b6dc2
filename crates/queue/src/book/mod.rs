//! The address book: every recipient address once, as a 32-bit id; every domain once.
//!
//! Promise: an id's text and domain never change while it is interned; `text` is a slice of the arena, never built.
//! About 45 bytes per address at a million (20 of them text), in chunks, so that growth copies nothing. Texts come
//! canonical from `stentor_mail` (domain folded); the book compares bytes.
//!
//! States of an id: vacant (never given out, forgotten, or a gap in a replayed journal) or interned. Vacant ids below
//! the top are given out again only if they were forgotten in this process (`forget`, the roll-back of a refused batch)
//! or never seen in the journal (`reuse_gaps`, after replay).
//!
//! Failure: `intern` answers `None` when 2^32-1 ids or 4 GiB of text are used up; the caller has refused mail long
//! before (`addresses_max`).

mod arena;

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::ids::{AddressId, DomainId};
use crate::idset::IdSet;
use crate::store::index::Index;
use arena::{Arena, Chunked};

/// Where an address lies. `domain == VACANT` marks an unused id.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    domain: u32,
}

const VACANT: Entry = Entry { at: 0, domain: u32::MAX };

#[derive(Debug)]
struct Domain {
    name: Box<str>,
    ids: IdSet,
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct AddressBook {
    arena: Arena,
    entries: Chunked<Entry>,
    by_text: Index,
    domains: Vec<Domain>,
    by_name: Index,
    /// Ids that may be given out again.
    free: Vec<u32>,
    hasher: RandomState,
}

impl AddressBook {
    pub fn new() -> Self {
        AddressBook::default()
    }

    /// Interned addresses.
    pub fn len(&self) -> usize {
        self.by_text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One past the highest id ever used: ids are below.
    pub fn id_bound(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Domains seen, with or without addresses.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// The id of `text`, and whether it is new (to be journaled). `None`: the id space or the arena is full.
    pub fn intern(&mut self, text: &str) -> Option<(AddressId, bool)> {
        let hash = self.hasher.hash_one(text);
        if let Some(id) = self.find(hash, text) {
            return Some((AddressId(id), false));
        }
        let at = self.arena.push(text)?;
        let id = match self.free.pop() {
            Some(id) => id,
            None => u32::try_from(self.entries.len()).ok().filter(|id| *id < u32::MAX)?,
        };
        self.occupy(id, at, hash, text);
        Some((AddressId(id), true))
    }

    /// Replay: `text` has that id. A different address under the id, or another id of the address, gives way, since the
    /// journal is right. Answers whether anything changed.
    pub fn intern_at(&mut self, id: AddressId, text: &str) -> bool {
        if id.0 == u32::MAX {
            return false;
        }
        let hash = self.hasher.hash_one(text);
        if let Some(present) = self.find(hash, text) {
            if present == id.0 {
                return false;
            }
            self.vacate(AddressId(present));
        }
        self.vacate(id);
        let Some(at) = self.arena.push(text) else { return false };
        while self.entries.len() <= id.0 as usize {
            self.entries.push(VACANT);
        }
        self.occupy(id.0, at, hash, text);
        true
    }

    /// Undoes `intern` of a new address whose batch was refused: nothing may refer to the id. It may be given out again.
    pub fn forget(&mut self, id: AddressId) {
        if self.vacate(id) {
            self.free.push(id.0);
        }
    }

    /// After replay: ids below the highest that the journal does not name may be given out.
    pub fn reuse_gaps(&mut self) {
        let bound = self.id_bound();
        self.free = (0..bound).rev().filter(|id| !self.is_interned(AddressId(*id))).collect();
    }

    pub fn is_interned(&self, id: AddressId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|e| e.domain != VACANT.domain)
    }

    pub fn lookup(&self, text: &str) -> Option<AddressId> {
        self.find(self.hasher.hash_one(text), text).map(AddressId)
    }

    /// The address; empty for an id that is not interned.
    #[inline]
    pub fn text(&self, id: AddressId) -> &str {
        match self.entries.get(id.0 as usize) {
            Some(entry) if entry.domain != VACANT.domain => self.arena.text(entry.at),
            _ => "",
        }
    }

    /// The domain of an interned address.
    ///
    /// # Panics
    /// If the id is not interned: ids in messages and lists always are.
    #[inline]
    pub fn domain(&self, id: AddressId) -> DomainId {
        self.try_domain(id).expect("the id is interned")
    }

    /// The domain, if the address is interned.
    #[inline]
    pub fn try_domain(&self, id: AddressId) -> Option<DomainId> {
        self.entries.get(id.0 as usize).filter(|e| e.domain != VACANT.domain).map(|e| DomainId(e.domain))
    }

    /// The part behind the last `@`; empty for an address without one.
    pub fn domain_name(&self, id: DomainId) -> &str {
        self.domains.get(id.0 as usize).map_or("", |d| &d.name)
    }

    pub fn domain_lookup(&self, name: &str) -> Option<DomainId> {
        self.by_name.find(self.hasher.hash_one(name), |i| &*self.domains[i as usize].name == name).map(DomainId)
    }

    /// All addresses of a domain.
    pub fn addresses_of(&self, id: DomainId) -> &IdSet {
        const NONE: &IdSet = &IdSet::new();
        self.domains.get(id.0 as usize).map_or(NONE, |d| &d.ids)
    }

    /// Interned addresses from `first` on, in id order.
    pub fn iter_at(&self, first: u32) -> impl Iterator<Item = (AddressId, &str)> {
        (first..self.id_bound()).map(AddressId).filter(|id| self.is_interned(*id)).map(|id| (id, self.text(id)))
    }

    fn find(&self, hash: u64, text: &str) -> Option<u32> {
        self.by_text.find(hash, |id| {
            self.entries.get(id as usize).is_some_and(|entry| self.arena.bytes(entry.at) == text.as_bytes())
        })
    }

    fn occupy(&mut self, id: u32, at: u32, hash: u64, text: &str) {
        let domain = self.intern_domain(text.rsplit_once('@').map_or("", |(_, domain)| domain));
        self.domains[domain as usize].ids.insert(id);
        let entry = Entry { at, domain };
        if id as usize == self.entries.len() {
            self.entries.push(entry);
        } else if let Some(slot) = self.entries.get_mut(id as usize) {
            *slot = entry;
        }
        let (entries, arena, hasher) = (&self.entries, &self.arena, &self.hasher);
        self.by_text.insert(hash, id, |id| match entries.get(id as usize) {
            Some(entry) => hasher.hash_one(arena.text(entry.at)),
            None => 0,
        });
    }

    fn vacate(&mut self, id: AddressId) -> bool {
        let Some(domain) = self.try_domain(id) else { return false };
        let hash = self.hasher.hash_one(self.text(id));
        self.by_text.remove(hash, id.0);
        self.domains[domain.0 as usize].ids.remove(id.0);
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            self.arena.pop(entry.at);
            *entry = VACANT;
        }
        true
    }

    fn intern_domain(&mut self, name: &str) -> u32 {
        let hash = self.hasher.hash_one(name);
        let domains = &self.domains;
        if let Some(id) = self.by_name.find(hash, |i| &*domains[i as usize].name == name) {
            return id;
        }
        let id = self.domains.len() as u32;
        self.domains.push(Domain { name: name.into(), ids: IdSet::new() });
        let (domains, hasher) = (&self.domains, &self.hasher);
        self.by_name.insert(hash, id, |i| hasher.hash_one(&*domains[i as usize].name));
        id
    }
}

#[cfg(test)]
mod tests;
