//! Subscribers on their way into a version of a list: interned in batches, each person once.

use std::sync::Arc;

use stentor_queue::idset::IdSet;
use tokio::sync::oneshot;

use crate::Core;
use crate::intake::{IntakeRefusal, InternedAddresses, Job, Ticket};
use crate::pins::Pin;

/// Addresses interned per job: the hub's lock is held for about a millisecond.
pub const INTERN_ADDRESSES_MAX: usize = 2048;

/// Subscribers that were read.
pub struct Subscribers {
    pub ids: IdSet,
    /// Addresses that were there already.
    pub again: u64,
    /// Addresses that were there in another letter case.
    pub in_other_case: u64,
    pin: Option<Pin>,
}

impl Subscribers {
    /// Makes them the list's next version. Blocks until it is durable.
    pub fn put_in_force(self, core: &Core, name: &str, stamp: String) -> Result<(), IntakeRefusal> {
        let (answer, ticket) = oneshot::channel();
        core.intake.push(Job::List { name: name.to_owned(), stamp, ids: self.ids, pin: self.pin, answer });
        ticket.blocking_recv().unwrap_or(Err(IntakeRefusal::Stopping))
    }
}

/// Interns addresses, one job ahead of the reading.
pub struct AddressInterner<'a> {
    core: &'a Arc<Core>,
    batch: Vec<String>,
    ticket: Option<Ticket<InternedAddresses>>,
    ids: IdSet,
    /// Keeps the ids until the list refers to them.
    pin: Option<Pin>,
    again: u64,
    /// Addresses already known in another letter case.
    in_other_case: u64,
    failed: Option<IntakeRefusal>,
}

impl<'a> AddressInterner<'a> {
    /// Adds to these ids.
    pub fn new(core: &'a Arc<Core>, ids: IdSet) -> AddressInterner<'a> {
        AddressInterner {
            core,
            batch: Vec::new(),
            ticket: None,
            ids,
            pin: None,
            again: 0,
            in_other_case: 0,
            failed: None,
        }
    }

    pub fn add(&mut self, address: &str) {
        self.batch.push(address.to_owned());
        if self.batch.len() == INTERN_ADDRESSES_MAX {
            self.send();
        }
    }

    /// Removes ids, whose addresses must not be among those added.
    pub fn remove(&mut self, ids: &[u32]) {
        for id in ids {
            self.ids.remove(*id);
        }
    }

    fn send(&mut self) {
        self.collect();
        let addresses = std::mem::take(&mut self.batch);
        if self.failed.is_none() && !addresses.is_empty() {
            let (answer, ticket) = oneshot::channel();
            self.core.intake.push(Job::Intern { addresses, answer });
            self.ticket = Some(ticket);
        }
    }

    fn collect(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        match ticket.blocking_recv().unwrap_or(Err(IntakeRefusal::Stopping)) {
            Ok(InternedAddresses { ids, pin }) => {
                self.pin = Some(pin);
                self.core.with(|hub, _| {
                    for id in ids {
                        // A person gets one copy, however the address is written: the first spelling counts.
                        let book = &hub.store.book;
                        let text = book.text(id);
                        let has_capitals = text.bytes().any(|octet| octet.is_ascii_uppercase());
                        let lower = has_capitals.then(|| book.lookup(&text.to_ascii_lowercase())).flatten();
                        let others = lower.into_iter().chain(book.spellings(text));
                        let mut others = others.filter(|other| *other != id);
                        if others.any(|other| self.ids.contains(other.0)) {
                            self.in_other_case += 1;
                        } else {
                            self.again += u64::from(!self.ids.insert(id.0));
                        }
                    }
                });
            }
            Err(refused) => self.failed = Some(refused),
        }
    }

    pub fn finish(mut self) -> Result<Subscribers, IntakeRefusal> {
        self.send();
        self.collect();
        let AddressInterner { ids, again, in_other_case, pin, failed, .. } = self;
        failed.map_or(Ok(Subscribers { ids, again, in_other_case, pin }), Err)
    }
}
