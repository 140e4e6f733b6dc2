//! Readers in other threads never see other content's bytes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stentor_journal::{Batch, CheckpointStep, CommitError, SimDisk};

use crate::model::{content_bytes, open};

#[test]
fn pieces_are_read_across_their_borders() {
    let disk = SimDisk::new(1);
    let (mut journal, _, _) = open(&disk).unwrap();
    let id = journal.next_content_id();
    let bytes = content_bytes(id, 40_000);
    let reader = journal.reader();
    let mut batch = Batch::new();
    for (index, piece) in bytes.chunks(7_000).enumerate() {
        assert_eq!(reader.len(id), None, "incomplete");
        batch.content(id, index == 5, piece);
        if index % 2 == 1 {
            journal.commit(&mut batch, 1).unwrap();
        }
    }
    assert_eq!(reader.len(id), Some(40_000));
    for (offset, len) in [(0, 40_000), (6_999, 2), (7_000, 7_000), (39_999, 10), (40_000, 10), (50_000, 10)] {
        let mut buffer = vec![0; len];
        let count = reader.read_at(id, offset as u64, &mut buffer).unwrap();
        let expected = bytes.get(offset..).unwrap_or_default();
        assert_eq!(buffer[..count], expected[..len.min(expected.len())]);
    }
    batch.content(id, true, b"more");
    assert!(matches!(journal.commit(&mut batch, 1), Err(CommitError::ContentComplete(_))));
    journal.drop_content(id);
    assert_eq!(reader.read_at(id, 0, &mut [0]).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn incomplete_content_is_gone_after_a_restart() {
    let disk = SimDisk::new(1);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    batch.content(1, false, b"half");
    batch.content(2, true, b"whole");
    journal.commit(&mut batch, 1).unwrap();
    drop(journal);
    let (journal, report) =
        stentor_journal::Journal::open(Arc::new(disk), crate::model::small(), &mut |_| Ok(())).unwrap();
    assert_eq!((report.contents, report.contents_incomplete), (1, 1));
    assert_eq!(journal.space().live_content_bytes, 5);
}

/// The committer recycles and moves all the time; readers check every byte that they get.
#[test]
fn readers_see_right_bytes_or_not_found_while_segments_are_recycled() {
    let disk = SimDisk::new(2);
    let (mut journal, _, _) = open(&disk).unwrap();
    let reader = journal.reader();
    let newest = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let right = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (reader, newest, stop, right) = (reader.clone(), &newest, &stop, &right[seed]);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed as u64);
                    let mut buffer = vec![0; 3000];
                    while !stop.load(Ordering::Acquire) {
                        let newest = newest.load(Ordering::Acquire);
                        let id = rng.u64(newest.saturating_sub(60)..=newest);
                        match reader.read_at(id, 0, &mut buffer) {
                            Ok(count) => {
                                assert_eq!(buffer[..count], content_bytes(id, 3000), "content {id}");
                                right.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                        }
                    }
                })
            })
            .collect();
        let mut batch = Batch::new();
        // Until each reader has had its turn, however busy the machine is.
        while journal.statistics().recycled < 150 || right.iter().any(|right| right.load(Ordering::Relaxed) == 0) {
            let id = journal.next_content_id();
            batch.content(id, true, &content_bytes(id, 3000));
            if id > 40 {
                batch.drop_content(if id % 20 == 0 { id - 40 } else { id - 10 });
            }
            if journal.checkpoint_due() {
                journal.begin_checkpoint(&mut batch);
            } else if journal.checkpoint_running() {
                assert_ne!(journal.end_checkpoint(&mut batch), CheckpointStep::Aborted);
            }
            if journal.clean_due() {
                journal.clean(&mut batch, 9_000);
            }
            journal.commit(&mut batch, 1).unwrap();
            newest.store(id, Ordering::Release);
        }
        stop.store(true, Ordering::Release);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert!(journal.statistics().bytes_moved > 0);
}
