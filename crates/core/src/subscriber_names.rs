//! Names of subscribers, for header fields of their copies (`{mailbox}`).
//!
//! Promise: a name is looked up when a copy is sent, in the subscribers file as it was last read; nothing is stored in
//! the journal. Only lists whose copies use names have a table, of about 8 octets and the name for each subscriber with
//! a name.
//!
//! Failure: a subscriber without a usable name, or beyond [`NAMES_BYTES_MAX`] of names, gets the address alone; so does
//! everybody until the file has been read after a start.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use parking_lot::RwLock;
use stentor_copies::display_name;
use stentor_lists::subscribers::{self, Occurrence};
use stentor_queue::ids::AddressId;

use crate::Core;

/// Octets of one list's names.
const NAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Subscribers looked up per hold of the hub's lock.
const LOOKED_UP_MAX: usize = 1_024;

/// The names of all lists whose copies use them.
#[derive(Default)]
pub struct SubscriberNames {
    lists: RwLock<HashMap<Arc<str>, NameTable>>,
}

struct NamedSubscriber {
    id: u32,
    name: Box<str>,
}

/// The names of one list.
struct NameTable {
    /// The file that they are from.
    stamp: String,
    /// By id; each name ends where the next one begins.
    rows: Vec<NameRow>,
    text: String,
}

#[derive(Clone, Copy)]
struct NameRow {
    id: u32,
    begin: u32,
}

impl SubscriberNames {
    /// Returns a subscriber's name; empty if there is none.
    pub fn of(&self, list: &str, id: AddressId) -> String {
        self.lists.read().get(list).and_then(|table| table.get(id)).unwrap_or_default().to_owned()
    }

    /// Whether the names are from the file with this stamp.
    pub fn is_from(&self, list: &str, stamp: &str) -> bool {
        self.lists.read().get(list).is_some_and(|table| table.stamp == stamp)
    }

    /// Drops the names of a list.
    pub fn drop_list(&self, list: &str) {
        if self.lists.read().contains_key(list) {
            self.lists.write().remove(list);
        }
    }

    /// Reads the names of a list, whose addresses have been read. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, core: &Arc<Core>, list: &Arc<str>, stamp: String, input: &mut dyn Read) -> std::io::Result<()> {
        let mut found = NameCollector { core, list, batch: Vec::new(), names: Vec::new(), octets: 0 };
        subscribers::read(input, &mut |subscriber| {
            if let Some(name) = display_name(subscriber.name) {
                found.add(subscriber.address, name);
            }
            Occurrence::First
        })?;
        found.look_up();
        if found.octets > NAMES_BYTES_MAX {
            let mib = NAMES_BYTES_MAX >> 20;
            tracing::warn!(
                %list,
                "subscribers' names exceed {mib} MiB; further subscribers get their address alone. Shorten names, or split the list"
            );
        }
        self.lists.write().insert(list.clone(), NameTable::new(stamp, found.names));
        Ok(())
    }
}

impl NameTable {
    fn new(stamp: String, mut names: Vec<NamedSubscriber>) -> NameTable {
        // The first of several names counts; spellings of an address share it.
        names.sort_by_key(|named| named.id);
        names.dedup_by_key(|named| named.id);
        let (mut rows, mut text) = (Vec::with_capacity(names.len()), String::new());
        for NamedSubscriber { id, name } in names {
            rows.push(NameRow { id, begin: text.len() as u32 });
            text.push_str(&name);
        }
        NameTable { stamp, rows, text }
    }

    fn get(&self, id: AddressId) -> Option<&str> {
        let at = self.rows.binary_search_by_key(&id.0, |row| row.id).ok()?;
        let end = self.rows.get(at + 1).map_or(self.text.len(), |next| next.begin as usize);
        Some(&self.text[self.rows[at].begin as usize..end])
    }
}

/// Collects names from the file and looks up their subscribers' ids in batches.
struct NameCollector<'a> {
    core: &'a Arc<Core>,
    list: &'a str,
    batch: Vec<(String, String)>,
    names: Vec<NamedSubscriber>,
    octets: usize,
}

impl NameCollector<'_> {
    fn add(&mut self, address: &str, name: String) {
        self.octets += name.len();
        if self.octets > NAMES_BYTES_MAX {
            return;
        }
        self.batch.push((address.to_owned(), name));
        if self.batch.len() == LOOKED_UP_MAX {
            self.look_up();
        }
    }

    fn look_up(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.core.with(|hub, _| {
            let Some(list) = hub.store.list(self.list) else { return };
            let book = &hub.store.book;
            for (address, name) in batch {
                let mut ids = book.lookup(&address).into_iter().chain(book.spellings(&address));
                if let Some(id) = ids.find(|id| list.ids.contains(id.0)) {
                    self.names.push(NamedSubscriber { id: id.0, name: name.into() });
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_id() {
        let names = [(7, "Bob"), (3, "Ann"), (7, "Robert"), (9, "J\u{fc}rgen")];
        let table =
            NameTable::new("s".to_owned(), names.map(|(id, name)| NamedSubscriber { id, name: name.into() }).into());
        let get = |id| table.get(AddressId(id));
        assert_eq!([get(3), get(7), get(9)], [Some("Ann"), Some("Bob"), Some("J\u{fc}rgen")]);
        assert_eq!([get(0), get(8), get(10)], [None; 3]);
    }
}
