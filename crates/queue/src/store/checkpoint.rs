//! The checkpoint's cursor: the state as records, a slice at a time, while the store goes on changing.
//!
//! Promise: a slice is at most [`SLICE_BYTES_MAX`] unless one message or list alone is larger (its id set has at most
//! one bit per id of the book, its ORCPTs what the client sent); one call makes one slice. Messages accepted after the
//! begin are not sliced: the log has them. Replay from the begin gives the state at any later point of the log.
//!
//! On its way the cursor notes which addresses lists and messages refer to; what came since the begin is noted by the
//! store. Together they say which addresses may be forgotten ([`Sweep`]).
//!
//! Failure: when a batch that had slices is refused, the checkpoint is given up (drop the cursor) and begun anew later.

use std::ops::Bound;

use super::{Store, Sweep};
use crate::book::{MailboxHistory, SiteHistory};
use crate::event::{
    MAILBOX_BYTES_MAX, begin_intern, begin_mailboxes, begin_messages, begin_sites, encode_checkpoint_end, encode_list,
    encode_suspend, encode_totals, interned_bytes_max, put_interned, put_mailbox, put_site, site_bytes_max,
};
use crate::ids::{AddressId, MessageNo};
use crate::idset::IdSet;

/// A slice's size, but for a single message or list that is larger.
pub const SLICE_BYTES_MAX: usize = 256 * 1024;

/// Where the checkpoint is.
#[derive(Debug)]
enum Stage {
    Begin,
    /// The next address id.
    Addresses(u32),
    /// The next address id.
    Mailboxes(u32),
    /// The next domain id.
    Sites(u32),
    /// The last list done.
    Lists(Option<String>),
    /// The last suspended list, sender or site done.
    Suspended(Option<String>),
    /// The next message number, and the first that need not be sliced.
    Messages {
        next: u32,
        until: u32,
    },
    End,
    Done,
}

/// See the module's page.
#[derive(Debug)]
pub struct Checkpoint {
    stage: Stage,
    /// First message number and the one to stop before, as they were at the begin.
    messages: (u32, u32),
    slice_bytes_max: usize,
    /// Whom lists and messages refer to, as far as they were visited.
    marked: IdSet,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint::new()
    }
}

impl Checkpoint {
    /// A cursor at the begin.
    pub fn new() -> Self {
        Checkpoint::with_slice_bytes_max(SLICE_BYTES_MAX)
    }

    /// A cursor with smaller slices.
    pub fn with_slice_bytes_max(slice_bytes_max: usize) -> Self {
        Checkpoint { stage: Stage::Begin, messages: (0, 0), slice_bytes_max, marked: IdSet::new() }
    }

    /// Replaces `record` by the next slice and answers whether more follow; after the last it stays empty.
    ///
    /// The first slice must directly follow the journal's begin marker, in the same batch, behind the records of all
    /// events that are applied; the others follow in order, in any batches, behind such records too.
    pub fn next_slice(&mut self, store: &Store, record: &mut Vec<u8>) -> bool {
        record.clear();
        while record.is_empty() && !self.is_done() {
            self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Begin => {
                    let until = store.messages.next();
                    self.messages = (store.oldest().map_or(until, |(no, _)| no.0), until);
                    encode_totals(record, &store.totals(), store.last_id());
                    Stage::Addresses(0)
                }
                Stage::Addresses(first) => addresses(store, first, self.slice_bytes_max, record),
                Stage::Mailboxes(first) => mailboxes(store, first, self.slice_bytes_max, record),
                Stage::Sites(first) => sites(store, first, self.slice_bytes_max, record),
                Stage::Lists(last) => list_after(store, last.as_deref(), record, &mut self.marked)
                    .map_or(Stage::Suspended(None), |name| Stage::Lists(Some(name))),
                Stage::Suspended(last) => suspended_after(store, last.as_deref(), record)
                    .map_or(Stage::Messages { next: self.messages.0, until: self.messages.1 }, |what| {
                        Stage::Suspended(Some(what))
                    }),
                Stage::Messages { next, until } => {
                    messages(store, next, until, self.slice_bytes_max, record, &mut self.marked)
                }
                Stage::End => {
                    encode_checkpoint_end(record);
                    Stage::Done
                }
                Stage::Done => Stage::Done,
            };
        }
        !self.is_done()
    }

    /// Whether the last slice has been made.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Behind the last slice of one that [`Store::begin_checkpoint`] made: the search for what can be forgotten.
    pub fn sweep(self) -> Option<Sweep> {
        self.is_done().then(|| Sweep::new(self.marked))
    }
}

fn addresses(store: &Store, first: u32, bytes_max: usize, record: &mut Vec<u8>) -> Stage {
    let mut next = 0;
    for (id, text) in store.book.iter_at(first) {
        if record.is_empty() {
            begin_intern(record);
        } else if record.len() + interned_bytes_max(text) > bytes_max {
            return Stage::Addresses(id.0);
        }
        next = put_interned(record, next, id, text);
    }
    Stage::Mailboxes(0)
}

fn mailboxes(store: &Store, first: u32, bytes_max: usize, record: &mut Vec<u8>) -> Stage {
    let mut next = 0;
    for id in (first..store.book.id_bound()).map(AddressId) {
        let history = store.book.history(id);
        if history == MailboxHistory::default() {
            continue;
        }
        if record.is_empty() {
            begin_mailboxes(record);
        } else if record.len() + MAILBOX_BYTES_MAX > bytes_max {
            return Stage::Mailboxes(id.0);
        }
        next = put_mailbox(record, next, id, history);
    }
    Stage::Sites(0)
}

fn sites(store: &Store, first: u32, bytes_max: usize, record: &mut Vec<u8>) -> Stage {
    for (id, name, history) in store.book.sites_at(first) {
        if history == SiteHistory::default() {
            continue;
        }
        if record.is_empty() {
            begin_sites(record);
        } else if record.len() + site_bytes_max(name) > bytes_max {
            return Stage::Sites(id);
        }
        put_site(record, name, &history);
    }
    Stage::Lists(None)
}

fn list_after(store: &Store, last: Option<&str>, record: &mut Vec<u8>, marked: &mut IdSet) -> Option<String> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let (name, list) = store.lists.range::<str, _>((after, Bound::Unbounded)).next()?;
    encode_list(record, name, list.version, &list.stamp, &list.ids);
    marked.union_with(&list.ids);
    Some(name.clone())
}

fn suspended_after(store: &Store, last: Option<&str>, record: &mut Vec<u8>) -> Option<String> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let what = store.suspended.range::<str, _>((after, Bound::Unbounded)).next()?;
    encode_suspend(record, true, what);
    Some(what.clone())
}

fn messages(store: &Store, next: u32, until: u32, bytes_max: usize, record: &mut Vec<u8>, marked: &mut IdSet) -> Stage {
    for (MessageNo(no), message) in store.messages.between(next, until) {
        if record.is_empty() {
            begin_messages(record);
        } else if record.len() + message.slice_bytes_max() > bytes_max {
            return Stage::Messages { next: no, until };
        }
        message.encode_slice(record);
        marked.union_with(message.pending());
    }
    Stage::End
}
