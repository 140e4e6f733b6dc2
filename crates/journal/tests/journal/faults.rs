//! Failing and full disks, damage, and batches that must not be replayed.

use std::sync::Arc;

use stentor_journal::{Batch, CommitError, Journal, JournalError, Record, RecoveryReport, SimDisk, verify};

use crate::model::small;

type Records = Vec<(u64, Vec<u8>)>;

fn open(disk: &SimDisk) -> Result<(Journal, RecoveryReport, Records), JournalError> {
    let mut records = Vec::new();
    let (journal, report) = Journal::open(Arc::new(disk.clone()), small(), &mut |record| {
        records.push((record.batch_seq, record.payload.to_vec()));
        Ok(())
    })?;
    Ok((journal, report, records))
}

fn commit(journal: &mut Journal, payload: &[u8]) -> Result<u64, CommitError> {
    let mut batch = Batch::new();
    batch.record(payload);
    journal.commit(&mut batch, 9).map(|receipt| receipt.seq)
}

fn payloads(records: &Records) -> Vec<&str> {
    records.iter().map(|(_, payload)| std::str::from_utf8(payload).unwrap()).collect()
}

fn damage(result: Result<(Journal, RecoveryReport, Records), JournalError>) -> (String, u64) {
    match result {
        Err(JournalError::Damaged { file, offset, .. }) => (file, offset),
        Err(other) => panic!("{other}"),
        Ok((_, report, _)) => panic!("opened: {report:?}"),
    }
}

#[test]
fn records_come_back_in_order_with_their_batch_and_time() {
    let disk = SimDisk::new(1);
    let (mut journal, report, _) = open(&disk).unwrap();
    assert_eq!(report, RecoveryReport::default());
    let mut batch = Batch::new();
    batch.record(b"one");
    batch.record(b"");
    assert_eq!(journal.commit(&mut batch, 77).unwrap().seq, 1);
    assert!(batch.is_empty());
    commit(&mut journal, b"two").unwrap();
    drop(journal);
    let (_, report, records) = open(&disk).unwrap();
    assert_eq!(records, [(1, b"one".to_vec()), (1, Vec::new()), (2, b"two".to_vec())]);
    assert_eq!((report.batches, report.records, report.last_seq, report.last_time), (2, 3, 2, 9));
}

#[test]
fn a_segment_is_left_after_eio_and_the_refused_batch_is_never_replayed() {
    // The operation that fails: the batch's write, then its sync. Part of the batch, or all of it, may be on the disk.
    for seed in 0..40 {
        for step in 1..=2 {
            let disk = SimDisk::new(seed);
            let (mut journal, _, _) = open(&disk).unwrap();
            commit(&mut journal, b"kept").unwrap();
            let at = disk.operations() + step;
            if step == 1 {
                disk.fail_write_at(at);
            } else {
                disk.fail_sync_at(at);
            }
            let mut batch = Batch::new();
            batch.record(b"refused");
            let before = batch.bytes();
            let Err(CommitError::Io { file, offset, .. }) = journal.commit(&mut batch, 9) else { panic!("no error") };
            assert_eq!((file.as_str(), offset), ("seg-00000000", 8192));
            assert_eq!(batch.bytes(), before, "the batch stays with its owner");
            let (_, _, records) = open(&disk.crash()).unwrap();
            assert_eq!(payloads(&records), ["kept"]);
            assert_eq!(commit(&mut journal, b"later").unwrap(), 2, "the number of the refused batch is used again");
            let image = disk.contents("seg-00000000").unwrap();
            // An error aimed at it may be left over.
            assert!((0..4).any(|_| commit(&mut journal, b"last").is_ok()), "the disk works again");
            assert_eq!(disk.contents("seg-00000000").unwrap(), image, "the abandoned segment is not written again");
            let (_, _, records) = open(&disk.crash()).unwrap();
            assert_eq!(payloads(&records), ["kept", "later", "last"]);
        }
    }
}

#[test]
fn a_disk_that_fails_for_a_while_loses_nothing() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut journal, _, _) = open(&disk).unwrap();
        let mut acknowledged = Vec::new();
        for number in 0..40u32 {
            if rng.u8(0..4) == 0 {
                for ahead in 1..rng.u64(2..12) {
                    disk.fail_write_at(disk.operations() + ahead);
                    disk.fail_sync_at(disk.operations() + ahead);
                }
            }
            let payload = format!("{number}{}", "x".repeat(rng.usize(0..9000)));
            if commit(&mut journal, payload.as_bytes()).is_ok() {
                acknowledged.push(payload);
            }
        }
        drop(journal);
        // A refused batch can only be found if no successor could be made after it, so never before an acknowledged
        // one.
        let (_, _, records) = open(&disk.crash()).unwrap();
        let found = payloads(&records);
        assert_eq!(found[..acknowledged.len()], acknowledged[..], "seed {seed}");
        assert!(found.len() <= acknowledged.len() + 1, "seed {seed}");
    }
}

#[test]
fn a_full_disk_refuses_and_recovers_by_itself() {
    let disk = SimDisk::new(5);
    disk.set_capacity(2 * 16 * 4096);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut acknowledged = 0;
    let refused = loop {
        match commit(&mut journal, &[b'a'; 5000]) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.is_full(), "{refused}");
    assert_eq!(acknowledged, 14, "two segments of seven batches");
    assert!(commit(&mut journal, &[b'a'; 5000]).unwrap_err().is_full());
    assert!(!disk.is_cut());
    assert_eq!(open(&disk.crash()).unwrap().2.len(), acknowledged);
    disk.set_capacity(u64::MAX);
    commit(&mut journal, b"room").unwrap();
    let (_, _, records) = open(&disk.crash()).unwrap();
    assert_eq!(records.len(), acknowledged + 1);
    assert!(!records.iter().any(|(seq, _)| *seq > 15), "refused batches took no number");
}

#[test]
fn room_is_announced_by_a_segment_that_could_be_made_however_little_is_live() {
    let disk = SimDisk::new(5);
    disk.set_capacity(2 * 16 * 4096);
    let (mut journal, _, _) = open(&disk).unwrap();
    while commit(&mut journal, &[b'a'; 5000]).is_ok() {}
    let preparer = journal.preparer();
    assert!(!preparer.prepare().unwrap() && journal.is_low(), "there is no room yet");
    disk.set_capacity(u64::MAX);
    while preparer.prepare().unwrap() {}
    assert!(!journal.is_low(), "who waits for that says 452 for ever");
    commit(&mut journal, b"room").unwrap();
}

#[test]
fn a_batch_that_is_too_large_is_refused_and_the_next_goes_on() {
    let disk = SimDisk::new(5);
    let (mut journal, _, _) = open(&disk).unwrap();
    let limit = journal.batch_bytes_max();
    let mut batch = Batch::new();
    batch.record(&vec![1; limit]);
    assert!(matches!(journal.commit(&mut batch, 1), Err(CommitError::TooLarge { .. })));
    batch.clear();
    batch.record(&vec![1; limit - 52]);
    assert_eq!(batch.bytes(), limit);
    journal.commit(&mut batch, 1).unwrap();
    commit(&mut journal, b"next segment").unwrap();
    assert_eq!(open(&disk.crash()).unwrap().2.len(), 2);
}

#[test]
fn a_torn_tail_is_cut_and_written_over() {
    let disk = SimDisk::new(6);
    let (mut journal, _, _) = open(&disk).unwrap();
    commit(&mut journal, b"first").unwrap();
    commit(&mut journal, &[b'x'; 9000]).unwrap();
    drop(journal);
    // In its last sector: as if that had not been written.
    disk.flip_bit("seg-00000000", 8192 + 9000, 3);
    let (mut journal, report, records) = open(&disk).unwrap();
    assert_eq!(payloads(&records), ["first"]);
    assert_eq!((report.torn_bytes, report.last_seq), (48 + 4 + 9000, 1));
    commit(&mut journal, b"second").unwrap();
    assert_eq!(payloads(&open(&disk).unwrap().2), ["first", "second"]);
}

#[test]
fn a_flipped_bit_in_the_middle_is_refused_with_file_and_offset() {
    let disk = SimDisk::new(7);
    let (mut journal, _, _) = open(&disk).unwrap();
    for number in 0..30u32 {
        commit(&mut journal, &[number as u8; 3000]).unwrap();
    }
    drop(journal);
    assert_eq!(disk.contents("seg-00000001").map(|bytes| bytes.len()), Some(16 * 4096));
    assert_eq!(verify(&disk).unwrap().1, []);
    // In the head; in a sealed segment; in a batch's header; in a segment's header.
    for (name, offset, told) in [
        ("seg-00000001", 3 * 4096 + 600, 3 * 4096),
        ("seg-00000000", 5 * 4096 + 17, 5 * 4096),
        ("seg-00000000", 15 * 4096 + 9, 15 * 4096),
        ("seg-00000000", 30, 0),
        ("seg-00000001", 30, 0),
    ] {
        disk.flip_bit(name, offset, 2);
        let files_before = disk.contents(name);
        assert_eq!(damage(open(&disk)), (name.to_owned(), told));
        assert_eq!(disk.contents(name), files_before, "a refused start changes nothing");
        disk.flip_bit(name, offset, 2);
    }
    assert_eq!(open(&disk).unwrap().2.len(), 30);
    disk.flip_bit("seg-00000000", 5 * 4096 + 17, 2);
    let (_, findings) = verify(&disk).unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].file.as_str(), findings[0].offset), ("seg-00000000", 5 * 4096));
}

#[test]
fn a_missing_segment_is_refused() {
    let disk = SimDisk::new(7);
    let (mut journal, _, _) = open(&disk).unwrap();
    for _ in 0..40 {
        commit(&mut journal, &[1; 3000]).unwrap();
    }
    drop(journal);
    stentor_journal::Disk::remove(&disk, "seg-00000001").unwrap();
    assert_eq!(damage(open(&disk)).0, "seg-00000002");
}

#[test]
fn a_sector_that_cannot_be_read_stops_the_start() {
    let disk = SimDisk::new(7);
    let (mut journal, _, _) = open(&disk).unwrap();
    commit(&mut journal, b"x").unwrap();
    disk.fail_reads("seg-00000000", 4096, 8192);
    let Err(JournalError::Io { file, .. }) = open(&disk) else { panic!("opened") };
    assert!(file.starts_with("seg-00000000"), "{file}");
}

#[test]
fn the_owner_may_refuse_a_record() {
    let disk = SimDisk::new(7);
    let (mut journal, _, _) = open(&disk).unwrap();
    commit(&mut journal, b"fine").unwrap();
    commit(&mut journal, b"strange").unwrap();
    drop(journal);
    let outcome = Journal::open(Arc::new(disk.clone()), small(), &mut |record| {
        if record.payload == b"strange" { Err("what is this".into()) } else { Ok(()) }
    });
    let Err(JournalError::Owner { file, offset, .. }) = outcome else { panic!("opened") };
    assert_eq!((file.as_str(), offset), ("seg-00000000", 8192));
}

#[test]
fn a_failed_commit_gives_the_checkpoint_up_and_its_end_does_not_count() {
    let disk = SimDisk::new(8);
    let (mut journal, _, _) = open(&disk).unwrap();
    commit(&mut journal, b"before").unwrap();
    let mut batch = Batch::new();
    journal.begin_checkpoint(&mut batch);
    journal.commit(&mut batch, 1).unwrap();
    batch.record(b"slice that is lost");
    disk.fail_sync_at(disk.operations() + 2);
    assert_eq!(journal.end_checkpoint(&mut batch), stentor_journal::CheckpointStep::Done);
    assert!(journal.commit(&mut batch, 1).is_err());
    assert!(!journal.checkpoint_running());
    // The owner commits the same batch again: its records count, but its end does not.
    journal.commit(&mut batch, 1).unwrap();
    assert_eq!(journal.statistics().checkpoints, 0);
    assert_eq!(payloads(&open(&disk.crash()).unwrap().2), ["before", "slice that is lost"]);
}

#[test]
fn a_checkpoint_may_begin_in_the_batch_that_was_refused_with_the_last_ones_end() {
    let disk = SimDisk::new(9);
    let (mut journal, _, _) = open(&disk).unwrap();
    commit(&mut journal, b"before").unwrap();
    let mut batch = Batch::new();
    journal.begin_checkpoint(&mut batch);
    journal.commit(&mut batch, 1).unwrap();
    journal.end_checkpoint(&mut batch);
    disk.fail_write_at(disk.operations() + 1);
    assert!(journal.commit(&mut batch, 1).is_err());
    journal.begin_checkpoint(&mut batch);
    journal.commit(&mut batch, 1).unwrap();
    assert!(journal.checkpoint_running());
    assert_eq!(journal.statistics().checkpoints, 0, "neither the old nor the new one has ended");
    assert_eq!(payloads(&open(&disk.crash()).unwrap().2), ["before"]);
    assert_eq!(journal.end_checkpoint(&mut batch), stentor_journal::CheckpointStep::Done);
    journal.commit(&mut batch, 1).unwrap();
    assert_eq!(journal.statistics().checkpoints, 1);
    assert_eq!(payloads(&open(&disk.crash()).unwrap().2), Vec::<&str>::new());
}

fn segment_files(disk: &SimDisk) -> usize {
    let names = stentor_journal::Disk::list(disk).unwrap();
    names.iter().filter(|name| name.starts_with("seg-") || name.starts_with("new-")).count()
}

#[test]
fn a_disk_that_fails_while_a_segment_is_made_leaves_no_files_and_recovers() {
    // Any operation may fail first: making the segment, writing its header, or writing the batch.
    for step in 1..=9 {
        for is_sync in [false, true] {
            let disk = SimDisk::new(step);
            let (mut journal, _, _) = open(&disk).unwrap();
            for again in 0..20 {
                let at = disk.operations() + step;
                if is_sync {
                    disk.fail_sync_at(at);
                } else {
                    disk.fail_write_at(at);
                }
                let text = format!("{step} {is_sync} {again}");
                // It may fail and be retried.
                let _ = commit(&mut journal, text.as_bytes());
            }
            // An error aimed at it may be left over.
            assert!((0..4).any(|_| commit(&mut journal, b"last").is_ok()), "the disk works again");
            // Excess segments are removed; half-made ones are gone already.
            while journal.preparer().prepare().unwrap_or(true) {}
            let space = journal.space();
            assert_eq!(segment_files(&disk), space.segments + space.ready_segments, "step {step}, sync {is_sync}");
            drop(journal);
            let (_, _, records) = open(&disk.crash()).unwrap();
            assert_eq!(payloads(&records).last(), Some(&"last"), "step {step}, sync {is_sync}");
        }
    }
}

#[test]
fn room_for_a_checkpoint_belongs_to_the_reserve() {
    let disk = SimDisk::new(7);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    let state = vec![7; 30_000];
    journal.begin_checkpoint(&mut batch);
    for _ in 0..10 {
        journal.record_slice(&mut batch, &state);
        journal.commit(&mut batch, 1).unwrap();
    }
    assert_eq!(journal.end_checkpoint(&mut batch), stentor_journal::CheckpointStep::Done);
    journal.commit(&mut batch, 1).unwrap();
    // One and a half times 300,000 octets are six segments of 64 KiB and part of another.
    let ready = journal.space().ready_segments as u64;
    disk.set_spare((7 - ready) * 16 * 4096);
    assert!(!journal.is_low(), "{:?}", journal.space());
    disk.set_spare((6 - ready) * 16 * 4096 - 1);
    assert!(journal.is_low(), "{:?}", journal.space());
}

/// A refused header may still be durable. It states where its predecessor ends, so nothing may be acknowledged there
/// any more.
#[test]
fn what_is_acknowledged_after_an_activation_that_failed_is_kept() {
    for seed in 0..200u8 {
        let disk = SimDisk::new(seed.into());
        let open = |disk: &SimDisk, seen: &mut Vec<u8>| {
            let replay = &mut |record: Record<'_>| {
                seen.push(record.payload[0]);
                Ok(())
            };
            Journal::open(Arc::new(disk.clone()), small(), replay).unwrap().0
        };
        let mut journal = open(&disk, &mut Vec::new());
        let preparer = journal.preparer();
        preparer.prepare().unwrap();
        let mut batch = Batch::new();
        let mut commit = |payload: Vec<u8>| {
            batch.clear();
            batch.record(&payload);
            journal.commit(&mut batch, 1).is_ok()
        };
        assert!(commit(vec![1; 12 * 4096]));
        preparer.prepare().unwrap();
        // The batch needs another segment, whose header cannot be written or synced.
        let step = 1 + u64::from(seed % 2);
        disk.fail_write_at(disk.operations() + step);
        disk.fail_sync_at(disk.operations() + step);
        assert!(!commit(vec![2; 6 * 4096]), "seed {seed}");
        // The batch would fit into the abandoned head.
        let acknowledged = (0..4).any(|_| commit(vec![3; 10]));
        assert!(acknowledged, "seed {seed}: the disk works again");
        let mut seen = Vec::new();
        open(&disk.crash(), &mut seen);
        assert_eq!(seen.last(), Some(&3), "seed {seed}: acknowledged and lost: {seen:?}");
    }
}
