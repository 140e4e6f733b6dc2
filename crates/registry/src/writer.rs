//! The thread that owns the database.
//!
//! Promise: changes are answered in their order, each once its transaction is durable. Changes that wait at the same
//! time share a transaction, and so one sync. The index shows a change before it is answered and never before it is
//! durable.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::error::{RegistryError, RegistryTrouble};
use crate::index::SuppressionIndex;
use crate::roster::RosterIndex;
use crate::store::{EntryEffect, RegistryChange, RegistryEffect, RegistryStore, RegistryStoreError};
use crate::suppression::Suppression;

/// Entries of one transaction, unless a single change has more.
const ENTRIES_PER_COMMIT_MAX: usize = 10_000;

/// Reads from the store, and answers by itself.
pub type StoreReader = Box<dyn FnOnce(&mut dyn RegistryStore) + Send>;

/// A request to the writer, with the channel for its answer.
pub enum RegistryJob {
    Change {
        change: RegistryChange,
        answer: oneshot::Sender<Result<RegistryEffect, RegistryError>>,
    },
    /// Reads from the store, after all changes before it.
    Read(StoreReader),
    /// Ends the writer after all jobs before it.
    Stop,
}

struct PendingChange {
    change: RegistryChange,
    answer: oneshot::Sender<Result<RegistryEffect, RegistryError>>,
}

/// The writer's part of the registry.
pub(crate) struct Writer {
    pub store: Box<dyn RegistryStore>,
    pub index: Arc<SuppressionIndex>,
    pub rosters: Arc<RosterIndex>,
    pub trouble: Arc<Mutex<Option<RegistryTrouble>>>,
    pub jobs: mpsc::Receiver<RegistryJob>,
}

impl Writer {
    /// Runs until it is told to stop or nobody can send any more.
    pub fn run(mut self) {
        let mut next = None;
        while let Some(job) = next.take().or_else(|| self.jobs.blocking_recv()) {
            match job {
                RegistryJob::Stop => return,
                RegistryJob::Read(read) => read(&mut *self.store),
                RegistryJob::Change { change, answer } => {
                    let mut batch = vec![PendingChange { change, answer }];
                    next = self.gather(&mut batch);
                    self.commit(batch);
                }
            }
        }
    }

    /// Adds changes that wait already. Returns the job that came after them and is none, if there is one.
    fn gather(&mut self, batch: &mut Vec<PendingChange>) -> Option<RegistryJob> {
        let mut entries: usize = batch.iter().map(|pending| entries_of(&pending.change)).sum();
        while entries < ENTRIES_PER_COMMIT_MAX {
            match self.jobs.try_recv().ok()? {
                RegistryJob::Change { change, answer } => {
                    entries += entries_of(&change);
                    batch.push(PendingChange { change, answer });
                }
                other => return Some(other),
            }
        }
        None
    }

    fn commit(&mut self, batch: Vec<PendingChange>) {
        let (changes, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(|p| (p.change, p.answer)).unzip();
        let committed = match self.store.commit(&changes) {
            Ok(committed) => committed,
            Err(error) => return self.refuse(answers, &error),
        };
        *self.trouble.lock() = None;
        for (change, effect) in changes.iter().zip(&committed.effects) {
            show(&self.index, change, effect);
            if let (RegistryChange::DeleteMembers { list, max }, RegistryEffect::MembersDeleted(count)) =
                (change, effect)
                && count < max
            {
                self.rosters.remove(list);
            }
        }
        for update in committed.rosters {
            self.rosters.update(update);
        }
        for (answer, effect) in answers.into_iter().zip(committed.effects) {
            let _ = answer.send(Ok(effect));
        }
    }

    fn refuse(
        &mut self,
        answers: Vec<oneshot::Sender<Result<RegistryEffect, RegistryError>>>,
        error: &RegistryStoreError,
    ) {
        let trouble = RegistryTrouble { is_full: *error == RegistryStoreError::Full, why: error.to_string() };
        let before = self.trouble.lock().replace(trouble.clone());
        if before.as_ref() != Some(&trouble) {
            tracing::error!(%error, "changes of the registry are refused");
        }
        for answer in answers {
            let _ = answer.send(Err(error.clone().into()));
        }
    }
}

fn entries_of(change: &RegistryChange) -> usize {
    match change {
        RegistryChange::Add(entries) => entries.len(),
        RegistryChange::Remove(keys) => keys.len(),
        RegistryChange::DeleteExpired { max, .. } | RegistryChange::DeleteMembers { max, .. } => *max,
        RegistryChange::Join(new) => new.members.len(),
        RegistryChange::SetDelivery(change) => change.subjects.len(),
        RegistryChange::SetDkimState(_) | RegistryChange::Offer { .. } | RegistryChange::Confirm { .. } => 1,
    }
}

/// Shows a durable change in the index.
fn show(index: &SuppressionIndex, change: &RegistryChange, effect: &RegistryEffect) {
    match (change, effect) {
        (RegistryChange::Add(entries), RegistryEffect::Added(effects)) => {
            for (entry, effect) in entries.iter().zip(effects) {
                match effect {
                    EntryEffect::Added | EntryEffect::Extended => insert(index, entry),
                    EntryEffect::ReasonChanged { expires } => {
                        index.insert(&entry.key.subject, &entry.key.scope, entry.reason, *expires);
                    }
                    EntryEffect::Unchanged => {}
                }
            }
        }
        (RegistryChange::Remove(keys), RegistryEffect::Removed(_)) | (_, RegistryEffect::Expired(keys)) => {
            for key in keys {
                index.remove(&key.subject, &key.scope);
            }
        }
        (_, RegistryEffect::Joined { ended, .. }) => {
            for key in ended {
                index.remove(&key.subject, &key.scope);
            }
        }
        (_, RegistryEffect::Confirmed { ended, entry, .. }) => {
            for key in ended {
                index.remove(&key.subject, &key.scope);
            }
            if let Some(entry) = entry {
                insert(index, entry);
            }
        }
        _ => {}
    }
}

pub(crate) fn insert(index: &SuppressionIndex, entry: &Suppression) {
    index.insert(&entry.key.subject, &entry.key.scope, entry.reason, entry.expires);
}
