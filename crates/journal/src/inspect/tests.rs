use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Batch, Journal, Options, SimDisk};

fn options() -> Options {
    Options {
        segment_bytes: 16 * 4096,
        reserve_segments: 0,
        checkpoint_bytes_min: 1 << 30,
        seed: 9,
        ..Options::default()
    }
}

/// 40 batches in a few segments: content `n` of 3000 bytes and a record.
fn store() -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options(), &mut |_| Ok(())).unwrap();
    let mut batch = Batch::new();
    for number in 0..40u64 {
        batch.content(number, true, &[number as u8; 3000]);
        batch.record(&[number as u8]);
        journal.commit(&mut batch, number).unwrap();
    }
    disk
}

fn look(disk: &SimDisk) -> (Inspection, Vec<u8>, StoredContents) {
    let (mut records, mut contents) = (Vec::new(), StoredContents::new());
    let found = inspect(disk, &mut |seen| {
        contents.note(seen);
        if let Item::Owner(payload) = seen.item {
            records.push(payload[0]);
        }
    })
    .unwrap();
    (found, records, contents)
}

#[test]
fn a_sound_store_has_no_findings() {
    let (found, records, contents) = look(&store());
    assert_eq!(found.findings, []);
    assert_eq!(records, (0..40).collect::<Vec<u8>>());
    assert_eq!((found.last_seq, found.segments.len(), found.torn), (40, 3, None));
    assert!((0..40).all(|id| contents.check(id) == Ok(3000)));
    assert_eq!(contents.live_bytes(|id| id < 2).into_values().sum::<u64>(), 6000);
    let states: Vec<_> = found.segments.iter().map(|segment| segment.state).collect();
    assert_eq!(states, [SegmentState::Log, SegmentState::Log, SegmentState::Head]);
}

#[test]
fn everything_beside_the_damage_is_shown() {
    let disk = store();
    disk.flip_bit("seg-00000000", 3 * 4096 + 600, 1);
    disk.fail_reads("seg-00000001", 5 * 4096, 5 * 4096 + 1);
    let (found, records, contents) = look(&disk);
    // One batch each is damaged: the third of the first segment, the fifth of the second.
    assert_eq!(records, (0..40).filter(|number| ![2, 19].contains(number)).collect::<Vec<u8>>());
    let places: Vec<_> = found.findings.iter().map(|finding| (finding.file.as_str(), finding.offset)).collect();
    assert_eq!(places, [("seg-00000000", 3 * 4096), ("seg-00000001", 5 * 4096), ("seg-00000001", 5 * 4096)]);
    assert_eq!(contents.check(2).unwrap_err().what, "none of its pieces is readable");
    let mut read = Vec::new();
    let count = contents.read(&disk, 7, &mut |bytes| {
        read.extend_from_slice(bytes);
        Ok(())
    });
    assert_eq!((count.unwrap(), read), (3000, vec![7; 3000]));
}

#[test]
fn a_segment_without_its_header_is_read_all_the_same() {
    let disk = store();
    for name in ["seg-00000001", "seg-00000002"] {
        disk.flip_bit(name, 40, 0);
        let (found, records, _) = look(&disk);
        assert_eq!(records.len(), 40, "{name}");
        assert_eq!(found.findings.len(), 1, "{name}: {:?}", found.findings);
        assert_eq!((found.findings[0].file.as_str(), found.findings[0].offset), (name, 0));
        disk.flip_bit(name, 40, 0);
    }
}

#[test]
fn a_missing_segment_is_named() {
    let disk = store();
    crate::Disk::remove(&disk, "seg-00000001").unwrap();
    let (found, records, _) = look(&disk);
    assert_eq!(records.len(), 25);
    assert!(found.findings[0].what.contains("generation 2, is missing"), "{:?}", found.findings);
}

#[test]
fn a_torn_tail_is_no_damage() {
    let disk = store();
    let head = look(&disk).0.segments.pop().unwrap();
    disk.flip_bit(&head.file, head.end - 4096 + 500, 0);
    let (found, records, _) = look(&disk);
    assert_eq!((found.findings.len(), records.len()), (0, 39));
    assert_eq!(found.torn, Some((head.file, head.end - 4096)));
}

#[test]
fn a_refused_batch_is_not_shown() {
    let disk = SimDisk::new(3);
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options(), &mut |_| Ok(())).unwrap();
    let mut batch = Batch::new();
    batch.record(&[1]);
    journal.commit(&mut batch, 1).unwrap();
    batch.record(&[2]);
    // The write succeeds, the sync fails.
    disk.fail_sync_at(disk.operations() + 2);
    assert!(journal.commit(&mut batch, 2).is_err());
    batch.clear();
    batch.record(&[3]);
    journal.commit(&mut batch, 3).unwrap();
    let (found, records, _) = look(&disk);
    assert_eq!((records, found.findings), (vec![1, 3], vec![]));
    let states: Vec<_> = found.segments.iter().map(|segment| segment.state).collect();
    assert_eq!(states, [SegmentState::Abandoned, SegmentState::Head]);
    assert_eq!(abandoned(&disk).unwrap(), [found.segments[0].file.clone()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_damage_is_read_past(flips in prop::collection::vec((0u32..3, 0u64..16 * 4096, 0u8..8), 1..30)) {
        let disk = store();
        for (slot, offset, bit) in flips {
            disk.flip_bit(&crate::pool::segment_name(slot), offset, bit);
        }
        let (_, records, contents) = look(&disk);
        prop_assert!(records.is_sorted());
        for id in contents.ids() {
            if contents.check(id).is_ok() {
                contents.read(&disk, id, &mut |bytes| {
                    assert!(bytes.iter().all(|byte| u64::from(*byte) == id));
                    Ok(())
                }).unwrap();
            }
        }
    }
}
