//! Since when, and by whom, a message is held.
//!
//! A rule's hold begins with the acceptance. An operator's is looked up in the history, from the acceptance on: the
//! queue stores only that there is one.
//!
//! Failure: without a history, or once its records are too old, an operator's hold has no time and no name.

use stentor_core::Core;
use stentor_history::{Reader, ScanControl};
use stentor_queue::ids::{MessageId, Ms};
use stentor_records::record::{HELD_BY, Record};

/// The beginning of an operator's hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OperatorHold {
    pub since: Ms,
    /// Who, with the reason given.
    pub by: String,
}

/// Returns the last hold of a message that was accepted at `accepted`, if the history has it.
pub(crate) async fn by_operator(core: &Core, id: MessageId, accepted: Ms) -> Option<OperatorHold> {
    if !core.history.is_on() {
        return None;
    }
    let (history, folder) = (core.history.clone(), core.settings().config.data_dir.join("history"));
    let read = tokio::task::spawn_blocking(move || {
        history.flush();
        let (id, mut last) = (id.to_string(), None);
        let found = Reader::open(&folder)?.find(&id, accepted, Ms::MAX, &mut |record| {
            last = held(record).or_else(|| last.take());
            ScanControl::Continue(())
        });
        found.map(|_| last)
    });
    read.await.ok()?.ok()?
}

fn held(record: &Record<'_>) -> Option<OperatorHold> {
    let Record::Note(note) = record else { return None };
    let by = note.text.strip_prefix(HELD_BY)?;
    Some(OperatorHold { since: note.at, by: by.to_owned() })
}
