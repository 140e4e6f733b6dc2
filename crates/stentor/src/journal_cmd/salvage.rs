//! `stentor journal salvage --to`: writes a new store with everything readable that is still waiting.
//!
//! Contents are written first, under their old numbers, then the state as the slices of a checkpoint. An interrupted
//! salvage therefore holds no message, and none without its content. At the end the new store is opened as a start
//! would, and counted.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_journal::{Batch, CommitError, Disk, Journal, Options, RealDisk};
use stentor_queue::ids::ContentId;
use stentor_queue::slices::Records;
use stentor_queue::store::Store;
use stentor_records::escape::printable;

use super::fold::{JournalState, SavedMessage, fold};
use super::{Outcome, Problem, fresh_dir};

/// Content octets per batch, which bounds memory.
const PIECE_BYTES: usize = 1024 * 1024;

pub fn run(disk: &dyn Disk, to: &Path, out: &mut dyn Write) -> Outcome {
    fresh_dir(to)?;
    let folded = fold(disk)?;
    let (saved, losses) = choose(&folded, out)?;
    let mut store = folded.rebuild(saved);
    let now = now();
    let new: Arc<dyn Disk> = Arc::new(RealDisk::open(to)?);
    let (mut journal, _) =
        Journal::open(Arc::clone(&new), Options { seed: now, ..Options::default() }, &mut |_| Ok(()))?;
    let mut ids: Vec<u64> = store.live_contents().map(|content| content.0).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in &ids {
        copy(&folded, disk, *id, &mut journal, now)?;
    }
    write_state(&mut store, &mut journal, now)?;
    drop(journal);
    check(&new, &store)?;
    drop(new);
    let sound = folded.is_sound() && losses == 0;
    writeln!(
        out,
        "{}: {} messages waiting for {} recipients, {} in the quarantine, {} contents, {} addresses and {} lists are in {}",
        if sound { "everything saved" } else { "everything readable saved" },
        store.len(),
        store.pending(),
        store.quarantined_len(),
        ids.len(),
        store.book.len(),
        store.lists().count(),
        to.display()
    )?;
    if !folded.is_sound() {
        writeln!(out, "deliveries recorded only in the lost records will be repeated")?;
    }
    writeln!(
        out,
        "to use it: stop the server, move the old journal away, put this directory in its place, start the \
        server"
    )?;
    Ok(sound)
}

/// Keeps intact messages and reports the losses. Returns the number of losses.
fn choose(folded: &JournalState, out: &mut dyn Write) -> io::Result<(Vec<SavedMessage>, usize)> {
    let (mut saved, mut losses) = (Vec::new(), 0);
    for line in folded.damage() {
        writeln!(out, "damage: {line}")?;
    }
    for message in folded.messages() {
        let accept = &message.slice.accept;
        if message.nameless > 0 {
            losses += 1;
            writeln!(
                out,
                "lost: {} recipients of message {}: no record names their addresses",
                message.nameless, accept.id
            )?;
        }
        if let Err(lost) = folded.contents.check(accept.content.0) {
            losses += 1;
            writeln!(
                out,
                "lost: message {} from <{}> to {} recipients, Message-ID {}: content {} damaged from octet {}: {}",
                accept.id,
                accept.sender,
                accept.recipients.len(),
                // The author may have put control characters into it.
                match (accept.message_id_at, accept.message_id.as_str()) {
                    (Some(_), _) => "in its content".to_owned(),
                    (None, "") => "none".to_owned(),
                    (None, text) => printable(text, 1000),
                },
                accept.content.0,
                lost.from,
                lost.what
            )?;
        } else if !accept.recipients.is_empty() {
            saved.push(message);
        }
    }
    if !folded.is_sound() {
        let unknown = folded.contents.ids().into_iter();
        let unknown = unknown.filter(|id| !folded.slices.contains(id));
        let unknown =
            unknown.filter(|id| !folded.store.has_content(ContentId(*id)) && folded.contents.check(*id).is_ok());
        let unknown: Vec<String> = unknown.take(UNKNOWN_MAX).map(|id| id.to_string()).collect();
        if !unknown.is_empty() {
            writeln!(
                out,
                "contents without a readable record: the message is finished, or its record is lost (print with `dump \
                 --content ID`; first {UNKNOWN_MAX}): {}",
                unknown.join(" ")
            )?;
        }
    }
    Ok((saved, losses))
}

const UNKNOWN_MAX: usize = 100;

fn copy(folded: &JournalState, disk: &dyn Disk, id: u64, journal: &mut Journal, now: u64) -> Result<(), Problem> {
    let mut batch = Batch::new();
    let mut failed = None;
    folded
        .contents
        .read(disk, id, &mut |bytes| {
            for piece in bytes.chunks(PIECE_BYTES) {
                batch.content(id, false, piece);
                if let Err(error) = journal.commit(&mut batch, now) {
                    failed = Some(error);
                    return Err(io::ErrorKind::Other.into());
                }
            }
            Ok(())
        })
        .map_err(|error| {
            failed.take().map_or_else(|| Problem::Other(format!("content {id}: {error}")), |error| refused(&error))
        })?;
    batch.content(id, true, &[]);
    journal.commit(&mut batch, now).map(drop).map_err(|error| refused(&error))
}

fn write_state(store: &mut Store, journal: &mut Journal, now: u64) -> Result<(), Problem> {
    let mut batch = Batch::new();
    let mut cursor = store.checkpoint();
    loop {
        let mut part = Records::default();
        let more = cursor.step(store, &mut part);
        for record in &part.records {
            batch.record(record);
        }
        journal.commit(&mut batch, now).map_err(|error| refused(&error))?;
        if !more {
            return Ok(());
        }
    }
}

fn refused(error: &CommitError) -> Problem {
    Problem::Other(format!("cannot write the new store: {error}; remove it and try again elsewhere"))
}

/// Opens the new store as a start does and compares it with the intended state.
fn check(disk: &Arc<dyn Disk>, wanted: &Store) -> Result<(), Problem> {
    let mut store = Store::new();
    let (mut journal, _) = Journal::open(Arc::clone(disk), Options::default(), &mut |record| {
        store.apply_record(record.payload)?;
        Ok(())
    })?;
    store.replayed().map_err(|error| Problem::Other(error.to_string()))?;
    journal.retain_contents(&mut |id| store.has_content(ContentId(id)))?;
    let reader = journal.reader();
    let whole = store.live_contents().all(|content| reader.len(content.0).is_some());
    let same = (store.len(), store.pending(), store.totals()) == (wanted.len(), wanted.pending(), wanted.totals());
    if whole && same && store.is_balanced() {
        return Ok(());
    }
    Err(Problem::Other("the new store differs from what was written; do not use it".to_owned()))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
