//! The address book: every recipient address once, as a 32-bit id; every domain once; and the delivery history of both.
//!
//! Promise: an id's text and domain never change while it is interned; `text` is a slice of the arena, never built.
//! About 55 bytes per address at a million (20 of them text), in chunks, so that growth copies nothing. Texts come
//! canonical from `stentor_mail` (domain folded); the book compares bytes. The few addresses with capitals are also
//! found by their lower-case form (`spellings`), which remembers the first 16 spellings of an address.
//!
//! States of an id:
//!
//! | state | reached by | left to |
//! |---|---|---|
//! | free | never assigned; the roll-back of a refused batch (`forget`); a gap after replay; `release` | interned |
//! | interned | `intern`, replay's `intern_at` | free (`forget`), resting (`forget_all`) |
//! | resting | a durable `Forget` record | free, once a checkpoint that began after that record is complete |
//!
//! Resting keeps ids unambiguous: in any log that a start can read, from a complete checkpoint on, an id names one
//! address. So even a damaged record can never assign one address's mail to another.
//!
//! Domain ids are volatile. A domain that has lost its last address keeps its id until the owner reports that nothing
//! refers to it any more (`emptied_domains`, `forget_domain`).
//!
//! Failure: `intern` returns `None` when 2^32-1 ids or 4 GiB of text are used up; the caller refuses mail long before
//! that (`addresses_max`).

mod arena;
mod history;
mod soft;
mod spelling;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::ids::{AddressId, DomainId, Ms};
use crate::idset::IdSet;
use crate::index::Index;
use crate::slices::{Pages, Paging, SliceRef};
use arena::{Arena, Chunked};
pub use history::{DomainHistory, LastOutcome, MailboxHistory, SLOT_MS, SiteAttempt, slot};
use soft::UnsavedHistories;
use spelling::Spellings;

/// Separates an address from its own next hop, which replaces its domain's hosts: `ann@example.org>hop:gateway`. Such
/// an entry has a domain of its own, `example.org>hop:gateway`, and so its own lookup, clocks and site. No real domain
/// contains this character.
pub const HOP: char = '>';

/// The entry's text for an address with its own next hop.
pub fn at_hop(address: &str, hop: &str) -> String {
    format!("{address}{HOP}{hop}")
}

/// Splits a domain's name in the book into domain and next hop.
pub fn split_hop(name: &str) -> (&str, Option<&str>) {
    match name.split_once(HOP) {
        Some((domain, hop)) => (domain, Some(hop)),
        None => (name, None),
    }
}

/// Position of the domain in an entry: after the local part, which may contain [`HOP`] and `@` if it is quoted (RFC
/// 5321 section 4.1.2). The text after a [`HOP`] may contain both.
fn domain_at(entry: &str) -> Option<usize> {
    let bytes = entry.as_bytes();
    let mut at = 0;
    if bytes.first() == Some(&b'"') {
        at = 1;
        while *bytes.get(at)? != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
    }
    memchr::memchr(b'@', bytes.get(at..)?).map(|found| at + found + 1)
}

/// An entry's text without its next hop.
#[inline]
fn address_of(entry: &str) -> &str {
    // Very few entries have one.
    if memchr::memchr(HOP as u8, entry.as_bytes()).is_none() {
        return entry;
    }
    let domain = domain_at(entry).unwrap_or(0);
    entry[domain..].find(HOP).map_or(entry, |hop| &entry[..domain + hop])
}

/// Location of an address, and its history. `domain == NOWHERE` marks an unused id.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    domain: u32,
    history: MailboxHistory,
}

const NOWHERE: u32 = u32::MAX;
const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    fn vacant() -> Entry {
        Entry { at: 0, domain: NOWHERE, history: MailboxHistory::default() }
    }
}

#[derive(Debug, Default)]
struct Domain {
    name: Box<str>,
    ids: IdSet,
    history: DomainHistory,
}

/// The address book; see the module's head.
#[derive(Debug)]
pub struct AddressBook {
    arena: Arena,
    entries: Chunked<Entry>,
    by_text: Index,
    spellings: Spellings,
    domains: Chunked<Domain>,
    by_name: Index,
    /// Ids that may be assigned again.
    free: Vec<u32>,
    /// More free ids, released by complete checkpoints.
    released: IdSet,
    /// Resting ids: forgotten since the last checkpoint began, and before that.
    forgotten: IdSet,
    releasing: IdSet,
    /// How many resting ids were assigned to another address in replay.
    reused_early: u64,
    /// How many forgotten ids were assigned again.
    reused: u64,
    /// Domains with a next hop, by the plain name of the domain.
    at_hops: HashMap<Box<str>, Vec<u32>>,
    /// Domains that have lost their last address.
    emptied: IdSet,
    free_domains: Vec<u32>,
    /// Chunk and offset up to which texts have been moved.
    moving: Option<(usize, usize)>,
    hasher: RandomState,
    /// Base-2 logarithm of the number of ids in a page of the checkpoint.
    page_shift: u32,
    address_pages: Pages,
    site_pages: Pages,
    /// Ids whose latest history is not in the log yet.
    unsaved: UnsavedHistories,
}

impl Default for AddressBook {
    fn default() -> Self {
        AddressBook::with_page_shift(Paging::default().ids_shift)
    }
}

impl AddressBook {
    pub fn new() -> Self {
        AddressBook::default()
    }

    pub(crate) fn with_page_shift(page_shift: u32) -> Self {
        AddressBook {
            arena: Arena::default(),
            entries: Chunked::default(),
            by_text: Index::default(),
            spellings: Spellings::default(),
            domains: Chunked::default(),
            by_name: Index::default(),
            free: Vec::new(),
            released: IdSet::new(),
            forgotten: IdSet::new(),
            releasing: IdSet::new(),
            reused_early: 0,
            reused: 0,
            at_hops: HashMap::new(),
            emptied: IdSet::new(),
            free_domains: Vec::new(),
            moving: None,
            hasher: RandomState::default(),
            page_shift,
            address_pages: Pages::default(),
            site_pages: Pages::default(),
            unsaved: UnsavedHistories::default(),
        }
    }

    /// Number of interned addresses.
    pub fn len(&self) -> usize {
        self.by_text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One past the highest id ever used.
    pub fn id_bound(&self) -> u32 {
        self.entries.len() as u32
    }

    /// One past the highest domain id; some ids below it may have no name.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// Interns `text`. Returns its id, and whether it is new (to be journaled). `None`: the id space or the arena is
    /// full.
    pub fn intern(&mut self, text: &str) -> Option<(AddressId, bool)> {
        let hash = self.hasher.hash_one(text);
        if let Some(id) = self.find(hash, text) {
            return Some((AddressId(id), false));
        }
        let at = self.arena.push(text)?;
        let id = match self.free.pop().or_else(|| self.released.min()) {
            Some(id) => id,
            None => u32::try_from(self.entries.len()).ok().filter(|id| *id < u32::MAX)?,
        };
        self.reused += u64::from(self.released.remove(id));
        self.occupy(id, at, hash, text);
        Some((AddressId(id), true))
    }

    /// Interns `text` under the given id, in replay. A different address under the id, or another id of the address, is
    /// dropped, since the journal is right. Returns whether anything changed.
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
        if self.forgotten.remove(id.0) || self.releasing.remove(id.0) {
            self.reused_early += 1;
        }
        let Some(at) = self.arena.push(text) else { return false };
        while self.entries.len() <= id.0 as usize {
            self.entries.push(Entry::vacant());
        }
        self.occupy(id.0, at, hash, text);
        true
    }

    /// Undoes `intern` of a new address whose batch was refused: nothing may refer to the id, which may be assigned
    /// again.
    pub fn forget(&mut self, id: AddressId) {
        if self.vacate(id) {
            self.free.push(id.0);
        }
    }

    /// Applies a durable `Forget`: the ids rest until a checkpoint that begins from now on is complete.
    pub fn forget_all(&mut self, ids: &IdSet) {
        let bound = self.id_bound();
        let gone = ids.iter().take_while(|id| *id < bound).filter(|id| self.vacate(AddressId(*id))).collect();
        self.forgotten.union_with(&gone);
    }

    /// Called when a checkpoint begins: its completion may free all ids that rest now.
    pub fn begin_releasing(&mut self) {
        let forgotten = std::mem::take(&mut self.forgotten);
        self.releasing.union_with(&forgotten);
    }

    /// Called when the newest checkpoint that has begun is complete and durable.
    pub fn release(&mut self) {
        let releasing = std::mem::take(&mut self.releasing);
        self.released.union_with(&releasing);
    }

    /// Number of ids that may not be assigned yet.
    pub fn resting(&self) -> usize {
        self.forgotten.len() + self.releasing.len()
    }

    /// How many forgotten ids this process has assigned again.
    pub fn reused(&self) -> u64 {
        self.reused
    }

    /// How many ids replay found assigned again too early: a defect, if not 0.
    pub fn reused_early(&self) -> u64 {
        self.reused_early
    }

    /// Frees the ids, after replay, that lie below the highest one and that the journal does not name, except resting
    /// ones.
    pub fn reuse_gaps(&mut self) {
        let is_free = |id: &u32| !self.is_interned(AddressId(*id)) && !self.forgotten.contains(*id);
        self.free = (0..self.id_bound()).rev().filter(is_free).collect();
        self.released = IdSet::new();
    }

    pub fn is_interned(&self, id: AddressId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|e| e.domain != NOWHERE)
    }

    pub fn lookup(&self, text: &str) -> Option<AddressId> {
        self.find(self.hasher.hash_one(text), text).map(AddressId)
    }

    /// Addresses that differ from `text` only in the case of ASCII letters, at most 16. They include `text` itself only
    /// if it has capitals. One look-up, however many addresses there are.
    pub fn spellings(&self, text: &str) -> impl Iterator<Item = AddressId> {
        self.spellings
            .of(self.folded_hash(text), |id| self.entry(AddressId(id)).eq_ignore_ascii_case(text))
            .map(AddressId)
    }

    /// Ids of all addresses with capitals: only these can have other spellings among the others.
    pub fn with_capitals(&self) -> &IdSet {
        self.spellings.ids()
    }

    fn folded_hash(&self, text: &str) -> u64 {
        self.hasher.hash_one(text.to_ascii_lowercase())
    }

    /// The address; empty for an id that is not interned.
    #[inline]
    pub fn text(&self, id: AddressId) -> &str {
        address_of(self.entry(id))
    }

    /// The entry of an id: the address, with its own next hop if it has one.
    #[inline]
    pub fn entry(&self, id: AddressId) -> &str {
        match self.entries.get(id.0 as usize) {
            Some(entry) if entry.domain != NOWHERE => self.arena.text(entry.at),
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

    /// The domain of an address, if it is interned.
    #[inline]
    pub fn try_domain(&self, id: AddressId) -> Option<DomainId> {
        self.entries.get(id.0 as usize).filter(|e| e.domain != NOWHERE).map(|e| DomainId(e.domain))
    }

    /// The domain's name, with its own next hop if it has one; empty for an address without a domain.
    pub fn domain_name(&self, id: DomainId) -> &str {
        self.domains.get(id.0 as usize).map_or("", |d| &d.name)
    }

    /// The domain's name without a next hop.
    pub fn domain_name_alone(&self, id: DomainId) -> &str {
        split_hop(self.domain_name(id)).0
    }

    pub fn domain_lookup(&self, name: &str) -> Option<DomainId> {
        self.by_name.find(self.hasher.hash_one(name), |i| self.domain_name(DomainId(i)) == name).map(DomainId)
    }

    /// All domains with this name: the plain one, and one for each next hop of its addresses.
    pub fn domains_named(&self, name: &str) -> impl Iterator<Item = DomainId> {
        let at_hops = self.at_hops.get(name).map_or(&[][..], Vec::as_slice);
        self.domain_lookup(name).into_iter().chain(at_hops.iter().copied().map(DomainId))
    }

    /// All entries of an address: the plain one, and one for each next hop.
    pub fn entries_of(&self, address: &str) -> Vec<AddressId> {
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        let hops = self.at_hops.get(domain).map_or(&[][..], Vec::as_slice);
        let hops = hops.iter().filter_map(|id| split_hop(self.domain_name(DomainId(*id))).1);
        self.lookup(address).into_iter().chain(hops.filter_map(|hop| self.lookup(&at_hop(address, hop)))).collect()
    }

    /// All addresses of a domain.
    pub fn addresses_of(&self, id: DomainId) -> &IdSet {
        const NONE: &IdSet = &IdSet::new();
        self.domains.get(id.0 as usize).map_or(NONE, |d| &d.ids)
    }

    /// Interned addresses from `first` on, in id order, as the octets of their texts.
    pub fn iter_at(&self, first: u32) -> impl Iterator<Item = (AddressId, &[u8])> {
        (first..self.id_bound()).filter_map(|id| {
            let entry = self.entries.get(id as usize).filter(|entry| entry.domain != NOWHERE)?;
            Some((AddressId(id), self.arena.bytes(entry.at)))
        })
    }

    /// The history of a mailbox; empty for an id that is not interned.
    #[inline]
    pub fn history(&self, id: AddressId) -> MailboxHistory {
        self.entries.get(id.0 as usize).map_or_else(MailboxHistory::default, |entry| entry.history)
    }

    #[inline]
    fn history_mut(&mut self, id: AddressId) -> Option<&mut MailboxHistory> {
        self.entries.get_mut(id.0 as usize).filter(|e| e.domain != NOWHERE).map(|e| &mut e.history)
    }

    /// [`slot`] of the last time the address was seen, 0 for never; `None` if the id is not interned.
    #[inline]
    pub(crate) fn seen_slot(&self, id: AddressId) -> Option<u16> {
        self.entries.get(id.0 as usize).filter(|e| e.domain != NOWHERE).map(|e| e.history.seen_slot())
    }

    /// Records that a message names the address.
    #[inline]
    pub fn saw(&mut self, id: AddressId, now: Ms) {
        if let Some(history) = self.history_mut(id)
            && history.saw(now)
        {
            self.aged(id);
        }
    }

    /// Marks the address's history as newer than the checkpoint's.
    #[inline]
    fn aged(&mut self, id: AddressId) {
        self.address_pages.aged((id.0 >> self.page_shift) as usize);
        self.unsaved.addresses.changed(id.0);
    }

    #[inline]
    fn domain_aged(&mut self, id: u32) {
        self.site_pages.aged((id >> self.page_shift) as usize);
        self.unsaved.domains.changed(id);
    }

    pub(crate) fn address_pages(&mut self) -> &mut Pages {
        &mut self.address_pages
    }

    pub(crate) fn site_pages(&mut self) -> &mut Pages {
        &mut self.site_pages
    }

    /// The ids of a page; empty beyond the last page.
    pub(crate) fn page_of_ids(&self, page: usize) -> Range<u32> {
        self.page_below(page, self.id_bound())
    }

    /// The domain ids of a page; empty beyond the last page.
    pub(crate) fn page_of_domains(&self, page: usize) -> Range<u32> {
        self.page_below(page, self.domains.len() as u32)
    }

    fn page_below(&self, page: usize, bound: u32) -> Range<u32> {
        let at = |page: usize| ((page as u64) << self.page_shift).min(bound.into()) as u32;
        at(page)..at(page + 1)
    }

    /// Pages of addresses and of domains whose history the new checkpoint writes.
    pub(crate) fn choose_aged(&mut self) -> (IdSet, IdSet) {
        (self.address_pages.choose_aged(), self.site_pages.choose_aged())
    }

    /// The page of these ids, if they are all on the same one.
    pub(crate) fn page_of(&self, ids: impl Iterator<Item = AddressId>) -> Option<usize> {
        let mut pages = ids.map(|id| (id.0 >> self.page_shift) as usize);
        let first = pages.next()?;
        pages.all(|page| page == first).then_some(first)
    }

    /// Restores a page's slice in replay: a slice named `addresses` of its addresses. If these are all, the slice shows
    /// the page.
    pub(crate) fn found_page(&mut self, page: usize, addresses: usize, slice: SliceRef) {
        let there = self.page_of_ids(page).filter(|id| self.is_interned(AddressId(*id))).count();
        if there == addresses {
            self.address_pages.found(page, slice);
        }
    }

    /// Records that the mailbox accepted a message within `xdelay_ms`.
    #[inline]
    pub fn delivered(&mut self, id: AddressId, now: Ms, xdelay_ms: Ms) {
        if let Some(history) = self.history_mut(id) {
            history.delivered(now, xdelay_ms);
            self.aged(id);
        }
    }

    /// Records that the mailbox refused a message, temporarily or permanently.
    #[inline]
    pub fn refused(&mut self, id: AddressId, now: Ms, permanent: bool) {
        if let Some(history) = self.history_mut(id) {
            history.refused(now, permanent);
            self.aged(id);
        }
    }

    /// The history of a domain's hosts.
    pub fn site_history(&self, id: DomainId) -> DomainHistory {
        self.domains.get(id.0 as usize).map_or_else(DomainHistory::default, |domain| domain.history)
    }

    /// Records the end of a transaction or connection at a domain's hosts.
    #[inline]
    pub fn site_attempt(&mut self, id: DomainId, now: Ms, attempt: SiteAttempt) {
        if let Some(domain) = self.domains.get_mut(id.0 as usize) {
            domain.history.attempt(now, attempt);
            self.domain_aged(id.0);
        }
    }

    /// Sets the last-seen time of addresses without one to `newest`, after replay: they came after the last checkpoint.
    pub(crate) fn all_seen(&mut self, newest: Ms) {
        for id in 0..self.id_bound() {
            if let Some(history) = self.history_mut(AddressId(id)).filter(|history| history.last_seen().is_none()) {
                history.saw(newest);
                self.aged(AddressId(id));
            }
        }
    }

    /// Restores a mailbox's history in replay of a checkpoint.
    pub(crate) fn set_history(&mut self, id: AddressId, known: MailboxHistory) {
        if let Some(history) = self.history_mut(id) {
            *history = known;
        }
    }

    /// Restores a domain's history in replay of a checkpoint.
    pub(crate) fn set_site_history(&mut self, name: &str, known: DomainHistory) {
        if let Some(domain) = self.domain_lookup(name).and_then(|id| self.domains.get_mut(id.0 as usize)) {
            domain.history = known;
        }
    }

    /// Named domains and their histories, from `first` on.
    pub(crate) fn sites_at(&self, first: u32) -> impl Iterator<Item = (u32, &str, DomainHistory)> {
        let all = (first..self.domains.len() as u32).filter_map(|i| Some((i, self.domains.get(i as usize)?)));
        all.filter(|(_, domain)| !domain.ids.is_empty()).map(|(i, domain)| (i, &*domain.name, domain.history))
    }

    /// Domains without addresses above `after`, at most `max`; those that nothing refers to are to be forgotten.
    pub fn emptied_domains(&self, after: Option<DomainId>, max: usize) -> Vec<DomainId> {
        let all = after.map_or_else(|| self.emptied.iter(), |after| self.emptied.iter_from(after.0));
        all.take(max).map(DomainId).collect()
    }

    /// Frees a domain's id if it has no addresses, when nothing refers to it any more.
    pub fn forget_domain(&mut self, id: DomainId) {
        let Some(domain) = self.domains.get_mut(id.0 as usize) else { return };
        if !domain.ids.is_empty() || !self.emptied.remove(id.0) {
            return;
        }
        let hash = self.hasher.hash_one(&*domain.name);
        let Domain { name, .. } = std::mem::take(domain);
        if let (alone, Some(_)) = split_hop(&name)
            && let Some(ids) = self.at_hops.get_mut(alone)
        {
            ids.retain(|other| *other != id.0);
            if ids.is_empty() {
                self.at_hops.remove(alone);
            }
        }
        self.by_name.remove(hash, id.0);
        self.unsaved.domains.forget(id.0);
        self.free_domains.push(id.0);
    }

    /// Moves texts out of chunks that are mostly unused, so that the chunks can be freed; visits at most `texts_max`
    /// texts. Returns whether there is more to do.
    pub fn compact(&mut self, texts_max: usize) -> bool {
        for _ in 0..texts_max {
            let Some((chunk, offset)) = self.moving.or_else(|| self.arena.sparse(0).map(|chunk| (chunk, 0))) else {
                return false;
            };
            let Some((text, at, next)) = self.arena.next_in(chunk, offset) else {
                self.moving = None;
                continue;
            };
            self.moving = Some((chunk, next));
            let here = |id: u32| self.entries.get(id as usize).is_some_and(|entry| entry.at == at);
            let Some(id) = self.by_text.find(self.hasher.hash_one(text), here) else { continue };
            let text = text.to_owned();
            let (Some(new), Some(entry)) = (self.arena.push(&text), self.entries.get_mut(id as usize)) else {
                self.moving = None;
                return false;
            };
            entry.at = new;
            self.arena.release(at);
        }
        true
    }

    /// Number of bytes allocated, hash tables included.
    pub fn heap_bytes(&self) -> usize {
        let domains = (0..self.domains.len()).filter_map(|i| self.domains.get(i));
        let domains: usize = domains.map(|domain| domain.name.len() + domain.ids.heap_bytes()).sum();
        let indices = self.by_text.heap_bytes() + self.by_name.heap_bytes() + self.spellings.heap_bytes();
        let pages = self.address_pages.heap_bytes() + self.site_pages.heap_bytes();
        self.arena.heap_bytes() + self.entries.heap_bytes() + self.domains.heap_bytes() + domains + indices + pages
    }

    fn find(&self, hash: u64, text: &str) -> Option<u32> {
        self.by_text.find(hash, |id| {
            self.entries.get(id as usize).is_some_and(|entry| self.arena.bytes(entry.at) == text.as_bytes())
        })
    }

    fn occupy(&mut self, id: u32, at: u32, hash: u64, text: &str) {
        self.address_pages.changed((id >> self.page_shift) as usize);
        let domain = self.intern_domain(domain_at(text).map_or("", |at| &text[at..]));
        if let Some(domain) = self.domains.get_mut(domain as usize) {
            domain.ids.insert(id);
        }
        let entry = Entry { at, domain, history: MailboxHistory::default() };
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
        if spelling::has_capitals(text) {
            self.spellings.insert(self.folded_hash(text), id);
        }
    }

    fn vacate(&mut self, id: AddressId) -> bool {
        let Some(domain) = self.try_domain(id) else { return false };
        self.unsaved.addresses.forget(id.0);
        self.address_pages.changed((id.0 >> self.page_shift) as usize);
        let hash = self.hasher.hash_one(self.entry(id));
        self.by_text.remove(hash, id.0);
        if spelling::has_capitals(self.entry(id)) {
            self.spellings.remove(self.folded_hash(self.entry(id)), id.0);
        }
        if let Some(entry) = self.domains.get_mut(domain.0 as usize) {
            entry.ids.remove(id.0);
            if entry.ids.is_empty() {
                self.emptied.insert(domain.0);
            }
        }
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            self.arena.release(entry.at);
            *entry = Entry::vacant();
        }
        true
    }

    fn intern_domain(&mut self, name: &str) -> u32 {
        if let Some(known) = self.domain_lookup(name) {
            self.emptied.remove(known.0);
            return known.0;
        }
        let domain = Domain { name: name.into(), ..Domain::default() };
        let id = self.free_domains.pop().unwrap_or(self.domains.len() as u32);
        match self.domains.get_mut(id as usize) {
            Some(slot) => *slot = domain,
            None => self.domains.push(domain),
        }
        if let (alone, Some(_)) = split_hop(name) {
            self.at_hops.entry(alone.into()).or_default().push(id);
        }
        let (domains, hasher) = (&self.domains, &self.hasher);
        let hash_of = |i: u32| domains.get(i as usize).map_or(0, |domain| hasher.hash_one(&*domain.name));
        self.by_name.insert(hasher.hash_one(name), id, hash_of);
        id
    }
}

#[cfg(test)]
mod tests;
