//! Startup: folds the journal into the store, and reports live messages to the scheduler.

use std::sync::Arc;

use stentor_journal::{Disk, Journal, JournalError, Log, Options, Record, RecoveryReport, Slice};
use stentor_queue::event::EventError;
use stentor_queue::ids::{ContentId, MessageNo};
use stentor_queue::slices::SliceRef;
use stentor_queue::store::{DanglingAddressId, Store};

use crate::Core;

/// Why the contents of a disk are not a valid queue.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Store(#[from] DanglingAddressId),
}

/// Opens the journal on a disk and folds it into a store; contents that nothing refers to are dropped.
pub fn replay(disk: Arc<dyn Disk>, options: Options) -> Result<(Journal, Store, RecoveryReport), ReplayError> {
    replay_heard(disk, options, Store::new(), &mut |_| {})
}

/// Opens the journal on a disk and folds it into an empty store. The listener gets every record before it is applied.
pub fn replay_heard(
    disk: Arc<dyn Disk>,
    options: Options,
    mut store: Store,
    hear: &mut dyn FnMut(&[u8]),
) -> Result<(Journal, Store, RecoveryReport), ReplayError> {
    let (journal, report) = Journal::open(disk, options, &mut |record| {
        hear(record.payload);
        Ok(apply(&mut store, record)?)
    })?;
    let (journal, store) = finish(journal, store)?;
    Ok((journal, store, report))
}

/// Folds a record into the store.
pub(crate) fn apply(store: &mut Store, record: Record<'_>) -> Result<(), EventError> {
    match record.slice {
        Some(Slice { content, checksum }) => {
            store.apply_slice(record.payload, SliceRef { content: ContentId(content), checksum })?;
        }
        None => {
            store.apply_record(record.payload)?;
        }
    }
    Ok(())
}

/// Ends a replay: contents that nothing refers to are dropped.
pub(crate) fn finish<L: Log>(mut log: L, mut store: Store) -> Result<(L, Store), ReplayError> {
    store.replayed()?;
    log.retain_contents(&mut |id| store.has_content(ContentId(id)))?;
    Ok((log, store))
}

/// Reports live messages to the scheduler, oldest first.
pub fn resume(core: &Arc<Core>) {
    let live: Vec<MessageNo> = core.with(|hub, _| hub.store.messages().map(|(no, _)| no).collect());
    for chunk in live.chunks(1024) {
        core.with(|hub, now| {
            for no in chunk {
                hub.follow(*no, false);
                hub.sched.accepted(&hub.store, *no, now);
            }
        });
    }
}
