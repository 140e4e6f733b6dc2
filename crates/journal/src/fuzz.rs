//! Entry point for fuzzing: recovery of any input ends in `Ok` or an error, never in a panic, and an opened store
//! works.

use std::sync::Arc;

use crate::batch::Batch;
use crate::disk::sim::SimDisk;
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, Checkpoint, Position, SegmentHeader, padded};
use crate::journal::{Journal, Options};

const SEGMENT_BYTES: usize = 16 * BLOCK_BYTES;
const STORE_ID: u64 = 7;

/// Recovers a store made of `data`, either as raw segments or as records in batches with correct checksums, to reach
/// the code after these checks. Then writes to it, and recovers again.
#[doc(hidden)]
pub fn recover_for_fuzz(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    let disk = SimDisk::new(u64::from(*mode));
    for (slot, part) in data.chunks(SEGMENT_BYTES / 2).take(3).enumerate() {
        let generation = slot as u32 + 1;
        let image = if mode & 1 == 0 { part.to_vec() } else { segment_of(part, generation, *mode) };
        let mut image = image;
        image.resize(SEGMENT_BYTES, 0);
        disk.put(&crate::pool::segment_name(slot as u32), &image);
    }
    let options = Options { segment_bytes: SEGMENT_BYTES as u64, seed: STORE_ID, ..Options::default() };
    let open = || Journal::open(Arc::new(disk.clone()), options.clone(), &mut |_| Ok(()));
    let Ok((mut journal, _)) = open() else { return };
    if journal.retain_contents(&mut |id| id % 3 != 0).is_err() {
        return;
    }
    let mut batch = Batch::new();
    let id = journal.next_content_id();
    batch.content(id, true, b"content");
    batch.record(b"record");
    journal.clean(&mut batch, 4096);
    if journal.commit(&mut batch, 1).is_err() {
        return;
    }
    let mut buffer = [0; 16];
    assert_eq!(journal.reader().read_at(id, 0, &mut buffer).ok(), Some(7), "what was committed is readable");
    let seq = journal.last_seq();
    drop(journal);
    let (journal, report) = open().expect("a journal that was written to opens again");
    assert_eq!(report.last_seq, seq);
    assert_eq!(journal.reader().len(id), Some(7));
}

/// A segment whose batches have `data` as bodies: per batch a record count, a length (2 bytes) and the body.
fn segment_of(mut data: &[u8], generation: u32, mode: u8) -> Vec<u8> {
    let begin = Position { generation: 1, offset: BLOCK_BYTES as u64, seq: 1 };
    let header = SegmentHeader {
        store_id: STORE_ID,
        generation,
        segment_bytes: SEGMENT_BYTES as u64,
        predecessor: generation - 1,
        predecessor_last_seq: u64::from(generation - 1) * u64::from(mode >> 4),
        predecessor_abandoned: mode & 4 != 0,
        time: 0,
        checkpoint: (mode & 2 != 0).then_some(Checkpoint { number: 1, begin }),
        next_content: 5,
    };
    let mut image = header.encode();
    let mut seq = header.predecessor_last_seq;
    while let [records, low, high, rest @ ..] = data {
        let len = rest.len().min(usize::from(*low) | usize::from(*high) << 8);
        let (body, next) = rest.split_at(len);
        data = next;
        seq += 1;
        let bytes = BATCH_HEADER_BYTES + len;
        if image.len() + padded(bytes) > SEGMENT_BYTES {
            break;
        }
        let mut batch = vec![0; BATCH_HEADER_BYTES];
        batch.extend_from_slice(body);
        batch.resize(padded(bytes), 0);
        BatchHeader { generation, seq, time: 0, bytes: bytes as u32, records: u32::from(*records) }
            .write(&mut batch, STORE_ID);
        image.extend_from_slice(&batch);
    }
    image
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn recovery_takes_anything(mode: u8, data in prop::collection::vec(any::<u8>(), 0..4000)) {
            let mut input = vec![mode];
            input.extend_from_slice(&data);
            recover_for_fuzz(&input);
        }

        /// Small records of all kinds, so that most record words are valid.
        #[test]
        fn recovery_takes_likely_records(mode: u8, records in prop::collection::vec((0u8..10, prop::collection::vec(0u8..6, 0..48)), 1..12)) {
            let mut body = Vec::new();
            for (kind, payload) in &records {
                body.extend_from_slice(&crate::format::record_word(*kind, payload.len()));
                body.extend_from_slice(payload);
            }
            let mut input = vec![mode | 1, records.len() as u8];
            input.extend_from_slice(&(body.len() as u16).to_le_bytes());
            input.extend_from_slice(&body);
            recover_for_fuzz(&input);
        }
    }
}
