//! Writes histories to the log between checkpoints.
//!
//! Promise: the history of an address or domain is in the log after at most one turn of the owner (a minute) and at a
//! stop, at the cost of some ten octets for each one that has changed since. An id is named only in records at a point
//! where the log assigns it to that address, so that no history ever reaches another address.
//!
//! A checkpoint keeps pages whose addresses have not changed although their histories have (`slices.rs`). For those
//! pages it writes the histories anew, after the pages, since the records from before its beginning will be gone.
//!
//! Failure: records of a refused batch are written again.

use super::Store;
use crate::book::AddressBook;
use crate::event::{begin_mailboxes, begin_sites, put_mailbox, put_site};
use crate::ids::AddressId;
use crate::idset::IdSet;

/// Largest number of histories in one record: some 4 KiB, so that the smallest batch has room for it.
pub const HISTORIES_MAX: usize = 256;
/// Largest number of domains in one record, with their names of up to 255 octets.
const SITES_MAX: usize = 16;

/// Ids whose histories are in the batch that is being built.
#[derive(Debug, Default)]
pub struct Histories {
    addresses: IdSet,
    domains: IdSet,
}

impl Store {
    /// Begins a turn, unless one is in progress: it writes the changes made so far.
    pub fn begin_saving(&mut self) {
        let unsaved = self.book.unsaved();
        unsaved.addresses.begin();
        unsaved.domains.begin();
    }

    /// Whether the turn has something left to write.
    pub fn is_saving(&mut self) -> bool {
        let unsaved = self.book.unsaved();
        unsaved.addresses.is_saving() || unsaved.domains.is_saving()
    }

    /// Writes the turn's next record; `false` if there is none.
    pub fn save(&mut self, record: &mut Vec<u8>, taken: &mut Histories) -> bool {
        let ids = self.book.unsaved().addresses.take(HISTORIES_MAX);
        if !ids.is_empty() {
            put_mailboxes(&self.book, record, &ids);
            taken.addresses.union_with(&ids);
            return true;
        }
        let ids = self.book.unsaved().domains.take(SITES_MAX);
        put_sites(&self.book, record, &ids);
        taken.domains.union_with(&ids);
        !ids.is_empty()
    }

    /// Called when the batch was refused: another turn writes the histories.
    pub fn not_saved(&mut self, taken: &mut Histories) {
        let unsaved = self.book.unsaved();
        unsaved.addresses.not_saved(&std::mem::take(&mut taken.addresses));
        unsaved.domains.not_saved(&std::mem::take(&mut taken.domains));
    }

    /// Writes a checkpoint's record of histories newer than the kept pages, from `from` on. Returns where the next
    /// begins.
    pub(super) fn put_newer(&mut self, record: &mut Vec<u8>, from: u32) -> Option<u32> {
        let (ids, next) = self.book.unsaved().addresses.newer(from, HISTORIES_MAX);
        put_mailboxes(&self.book, record, &ids);
        next
    }

    /// Writes a checkpoint's record of domains' histories newer than the kept pages. Returns where the next begins.
    pub(super) fn put_newer_sites(&mut self, record: &mut Vec<u8>, from: u32) -> Option<u32> {
        let (ids, next) = self.book.unsaved().domains.newer(from, SITES_MAX);
        put_sites(&self.book, record, &ids);
        next
    }
}

fn put_mailboxes(book: &AddressBook, record: &mut Vec<u8>, ids: &IdSet) {
    let mut next = 0;
    for id in ids.iter().map(AddressId).filter(|id| book.is_interned(*id)) {
        if record.is_empty() {
            begin_mailboxes(record);
        }
        next = put_mailbox(record, next, id, book.history(id));
    }
}

fn put_sites(book: &AddressBook, record: &mut Vec<u8>, ids: &IdSet) {
    for (name, history) in ids.iter().filter_map(|id| book.named_site(id)) {
        if record.is_empty() {
            begin_sites(record);
        }
        put_site(record, name, history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{LastOutcome, SiteAttempt};
    use crate::ids::{ContentId, Ms};
    use crate::slices::{SliceRef, Slices};

    const NOW: Ms = 1_800_000_000_000;

    /// A log: records in order, and slices by number.
    #[derive(Default)]
    struct Log {
        slices: Vec<Vec<u8>>,
        replayed: Vec<Vec<u8>>,
        kept: usize,
    }

    impl Slices for Log {
        fn record(&mut self, record: &[u8]) {
            self.replayed.push(record.to_vec());
        }

        fn write(&mut self, record: &[u8]) -> Option<SliceRef> {
            self.record(record);
            self.slices.push(record.to_vec());
            Some(SliceRef { content: ContentId(self.slices.len() as u64 - 1), checksum: 0 })
        }

        fn keep(&mut self, slice: SliceRef) -> bool {
            self.kept += 1;
            self.record(&self.slices[slice.content.0 as usize].clone());
            true
        }

        fn is_full(&self, _: usize) -> bool {
            false
        }
    }

    fn replay(records: &[Vec<u8>]) -> Store {
        let mut store = Store::new();
        for record in records {
            store.apply_record(record).unwrap();
        }
        store.replayed().unwrap();
        store
    }

    fn saved(store: &mut Store) -> Vec<Vec<u8>> {
        store.begin_saving();
        let (mut records, mut taken) = (Vec::new(), Histories::default());
        loop {
            let mut record = Vec::new();
            if !store.save(&mut record, &mut taken) {
                return records;
            }
            records.push(record);
        }
    }

    #[test]
    fn a_turn_writes_what_has_changed_and_a_refused_batch_loses_nothing() {
        let mut store = Store::new();
        let ids: Vec<_> =
            (0..3 * HISTORIES_MAX).map(|n| store.book.intern(&format!("u{n}@d.example")).unwrap().0).collect();
        for id in &ids {
            store.book.delivered(*id, NOW, 500);
        }
        let domain = store.book.domain(ids[0]);
        store.book.site_attempt(domain, NOW, SiteAttempt::Answered { xdelay_ms: 300, connections: 2 });
        store.begin_saving();
        // Changed after this turn began.
        store.book.refused(ids[7], NOW, true);
        let (mut record, mut taken) = (Vec::new(), Histories::default());
        assert!(store.save(&mut record, &mut taken) && record.len() < 10 * HISTORIES_MAX);
        store.not_saved(&mut taken);
        assert_eq!(saved(&mut store).len(), 3, "the rest of the turn: two records of addresses, one of domains");
        assert_eq!(saved(&mut store).len(), 1, "the one that was refused, and what came since");
        assert!(saved(&mut store).is_empty() && !store.is_saving());
    }

    #[test]
    fn a_checkpoint_that_keeps_a_page_has_its_newest_histories() {
        let mut store = Store::new();
        let texts: Vec<String> = (0..40_000).map(|n| format!("user{n}@d{}.example", n % 700)).collect();
        let ids: Vec<_> = texts.iter().map(|text| store.book.intern(text).unwrap().0).collect();
        let mut log = Log::default();
        assert!(!store.begin_plain_checkpoint().step(&mut store, &mut log));
        // From here on only histories change, on more pages than the next checkpoint writes.
        for (n, id) in ids.iter().enumerate().step_by(9) {
            store.book.refused(*id, NOW + n as Ms, n % 2 == 0);
            store.book.site_attempt(store.book.domain(*id), NOW, SiteAttempt::Failed);
        }
        store.checkpoint_complete();
        log.replayed.clear();
        assert!(!store.begin_plain_checkpoint().step(&mut store, &mut log));
        assert!(log.kept > 0, "some pages are kept");
        let again = replay(&log.replayed);
        for (id, text) in ids.iter().zip(&texts) {
            let known = again.book.lookup(text).unwrap();
            assert_eq!(again.book.history(known).last(), store.book.history(*id).last(), "{text}");
            assert_eq!(again.book.history(known).refusals(), store.book.history(*id).refusals(), "{text}");
            let (of, before) = (again.book.domain(known), store.book.domain(*id));
            assert_eq!(again.book.site_history(of), store.book.site_history(before), "{text}");
        }
    }

    #[test]
    fn an_id_given_to_another_address_has_no_history() {
        let mut store = Store::new();
        let (id, _) = store.book.intern("ann@one.example").unwrap();
        store.book.refused(id, NOW, true);
        let mut records = vec![intern(id, "ann@one.example")];
        records.extend(saved(&mut store));
        assert_eq!(replay(&records).book.history(id).last(), LastOutcome::Refused);
        records.push(intern(id, "bob@two.example"));
        let again = replay(&records);
        assert_eq!((again.book.text(id), again.book.history(id).last()), ("bob@two.example", LastOutcome::Untried));
        // Forgotten before its turn: nothing is written under its id.
        store.book.refused(id, NOW, true);
        store.book.forget(id);
        assert!(saved(&mut store).is_empty());
    }

    fn intern(id: AddressId, text: &str) -> Vec<u8> {
        let mut record = Vec::new();
        crate::event::Event::Intern { entries: vec![(id, text)] }.encode(&mut record);
        record
    }
}
