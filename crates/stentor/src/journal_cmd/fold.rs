//! The readable state of a store: the fold that a start does, but continuing past damage.
//!
//! It begins at the newest checkpoint, as a start does; earlier records would bring back delivered messages.

use std::collections::BTreeSet;

use stentor_journal::{Disk, Inspection, Item, JournalError, Slice, StoredContents, inspect};
use stentor_queue::event::{Accept, Event, MessageSlice};
use stentor_queue::ids::{AddressId, ContentId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::{Store, Totals};

pub struct JournalState {
    pub store: Store,
    /// Contents that the checkpoint names as slices.
    pub slices: BTreeSet<u64>,
    pub contents: StoredContents,
    pub found: Inspection,
    /// Records with a valid checksum that cannot be decoded: place and reason.
    pub unreadable: Vec<String>,
}

/// A waiting message, complete except for recipients whose addresses are lost.
pub struct SavedMessage {
    pub slice: MessageSlice,
    /// Whether it is in the quarantine, not in the queue.
    pub is_quarantined: bool,
    pub nameless: u64,
}

pub fn fold(disk: &dyn Disk) -> Result<JournalState, JournalError> {
    let mut contents = StoredContents::new();
    let found = inspect(disk, &mut |seen| contents.note(seen))?;
    let (mut store, mut slices, mut unreadable) = (Store::new(), BTreeSet::new(), Vec::new());
    inspect(disk, &mut |seen| {
        if seen.batch_seq < found.replay_from {
            return;
        }
        let read;
        let payload = match seen.item {
            Item::Owner(payload) => payload,
            // Slices of other checkpoints repeat known state, and may be gone.
            Item::Slice { number, slice } if number == found.checkpoint => {
                slices.insert(slice.content);
                match slice_bytes(disk, &contents, slice) {
                    Ok(bytes) => read = bytes,
                    Err(what) => {
                        unreadable.push(format!("{}, offset {}: {what}", seen.file, seen.offset));
                        return;
                    }
                }
                &read
            }
            _ => return,
        };
        if let Err(error) = store.apply_record(payload) {
            unreadable.push(format!("{}, offset {}: {error}", seen.file, seen.offset));
        }
    })?;
    // Missing addresses are reported for each message.
    let _ = store.replayed();
    let mut found = found;
    // Only messages with readable content; the others are reported one by one.
    let keep = |id| (store.has_content(ContentId(id)) || slices.contains(&id)) && contents.check(id).is_ok();
    let flaws = contents.flaws(&found, keep);
    found.findings.extend(flaws);
    Ok(JournalState { store, slices, contents, found, unreadable })
}

/// The octets of a slice of the state.
pub fn slice_bytes(disk: &dyn Disk, contents: &StoredContents, slice: Slice) -> Result<Vec<u8>, String> {
    let named = |what: &str| format!("a slice of the state, content {}, {what}", slice.content);
    contents.check(slice.content).map_err(|lost| named(&format!("from octet {}: {}", lost.from, lost.what)))?;
    let mut bytes = Vec::new();
    let read = contents.read(disk, slice.content, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    read.map_err(|error| named(&error.to_string()))?;
    if slice.is_of(&bytes) { Ok(bytes) } else { Err(named("does not match its checksum")) }
}

impl JournalState {
    pub fn is_sound(&self) -> bool {
        self.found.findings.is_empty() && self.unreadable.is_empty()
    }

    /// The damage found, one line each.
    pub fn damage(&self) -> impl Iterator<Item = String> {
        let findings = self.found.findings.iter().map(|f| format!("{}, offset {}: {}", f.file, f.offset, f.what));
        findings.chain(self.unreadable.iter().cloned())
    }

    /// All waiting messages, oldest first, then all quarantined ones.
    pub fn messages(&self) -> impl Iterator<Item = SavedMessage> {
        let queued = self.store.messages().map(|(_, message)| (message, false));
        queued.chain(self.store.quarantined(None).map(|message| (message, true))).map(|(message, is_quarantined)| {
            let recipients = self.known(message.pending());
            let nameless = (message.pending().len() - recipients.len()) as u64;
            SavedMessage {
                slice: MessageSlice {
                    tally: message.tally(),
                    held: message.is_held(),
                    accept: message.as_accepted(recipients),
                },
                is_quarantined,
                nameless,
            }
        })
    }

    fn known(&self, ids: &IdSet) -> IdSet {
        let mut known = ids.clone();
        for id in ids.iter().filter(|id| !self.store.book.is_interned(AddressId(*id))) {
            known.remove(id);
        }
        known
    }

    /// Builds a consistent store of the lists, the addresses and these messages; lost recipients count as removed.
    pub fn rebuild(&self, saved: Vec<SavedMessage>) -> Store {
        let (kept, queued): (Vec<SavedMessage>, Vec<SavedMessage>) =
            saved.into_iter().partition(|saved| saved.is_quarantined);
        let slices: Vec<MessageSlice> = queued.into_iter().map(|saved| saved.slice).collect();
        let kept: Vec<Accept> = kept.into_iter().map(|saved| saved.slice.accept).collect();
        let mut store = Store::new();
        let book = &self.store.book;
        store.apply(Event::Intern { entries: book.iter_at(0).map(|(id, _)| (id, book.entry(id))).collect() });
        for (name, list) in self.store.lists() {
            let ids = self.known(&list.ids);
            store.apply(Event::ListVersion { name, version: list.version, stamp: &list.stamp, ids });
        }
        let pending: u64 = slices.iter().map(|slice| slice.accept.recipients.len() as u64).sum();
        let before = self.store.totals();
        let mut fates = before.fates;
        fates.removed += self.store.pending().saturating_sub(pending);
        let quarantined: u64 = kept.iter().map(|accept| accept.recipients.len() as u64).sum();
        let lost: u64 = self.store.quarantined(None).map(|message| message.pending().len() as u64).sum();
        let lost = lost.saturating_sub(quarantined);
        fates.removed += lost;
        fates.quarantined = fates.quarantined.saturating_sub(lost);
        let totals = Totals { acknowledged: pending + fates.sum(), fates, ..before };
        store.apply(Event::Totals { totals, last_id: self.store.last_id() });
        store.apply(Event::Quarantine(kept));
        store.apply(Event::Messages(slices));
        store.apply(Event::CheckpointEnd);
        // All ids in it are known.
        let _ = store.replayed();
        store
    }
}
