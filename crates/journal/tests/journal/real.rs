//! The journal on a real directory.

use std::sync::Arc;

use stentor_journal::{Batch, Disk, Journal, JournalError, Options, RealDisk};

use crate::model::small;

#[test]
fn a_directory_is_used_by_one_and_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let disk = Arc::new(RealDisk::open(&path).unwrap());
    match RealDisk::open(&path) {
        Err(JournalError::InUse { pid }) => assert_eq!(pid, Some(std::process::id())),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened twice"),
    }
    let (mut journal, _) = Journal::open(disk, small(), &mut |_| Ok(())).unwrap();
    let preparer = journal.preparer();
    assert!(preparer.prepare().unwrap());
    assert!(!preparer.prepare().unwrap());
    let mut batch = Batch::new();
    for number in 0..40u64 {
        batch.content(number, true, &[number as u8; 5000]);
        batch.record_with(|buffer| buffer.extend_from_slice(&number.to_le_bytes()));
        let receipt = journal.commit(&mut batch, number).unwrap();
        assert_eq!((receipt.seq, receipt.bytes), (number + 1, 8192));
    }
    assert!(journal.space().free_disk_bytes > 0);
    drop((journal, preparer));

    let disk = Arc::new(RealDisk::open(&path).unwrap());
    assert!(disk.create("seg-00000000").is_err(), "create never truncates");
    let mut seen = 0u64;
    let (journal, report) = Journal::open(disk, small(), &mut |record| {
        assert_eq!(record.payload, seen.to_le_bytes());
        seen += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!((seen, report.contents), (40, 40));
    let mut buffer = [0; 5000];
    assert_eq!(journal.reader().read_at(17, 0, &mut buffer).unwrap(), 5000);
    assert_eq!(buffer, [17; 5000]);
}

#[test]
fn wrong_options_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(directory.path()).unwrap());
    for segment_bytes in [0, 4096, 70_000, 1 << 31] {
        let options = Options { segment_bytes, ..Options::default() };
        let disk: Arc<dyn Disk> = disk.clone();
        assert!(matches!(Journal::open(disk, options, &mut |_| Ok(())), Err(JournalError::Options(_))));
    }
}

/// Number of files that this process has open in a directory.
fn descriptors_in(directory: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(directory))
        .count()
}

#[test]
fn hundreds_of_live_segments_need_few_descriptors() {
    const SEGMENTS: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("journal");
    let open = || {
        let disk = Arc::new(RealDisk::open(&path).unwrap());
        let options = Options { segment_bytes: 4 * 4096, checkpoint_bytes_min: 1 << 30, ..small() };
        let (mut journal, report) = Journal::open(disk, options, &mut |_| Ok(())).unwrap();
        journal.retain_contents(&mut |_| true).unwrap();
        (journal, report)
    };
    let (mut journal, _) = open();
    let mut batch = Batch::new();
    let mut most = 0;
    for id in 0..SEGMENTS {
        batch.content(id, true, &[id as u8; 9000]);
        journal.commit(&mut batch, 1).unwrap();
        if id % 50 == 0 {
            most = most.max(descriptors_in(&path));
        }
    }
    assert_eq!(journal.space().segments as u64, SEGMENTS);
    let reader = journal.reader();
    let check = |reader: &stentor_journal::ContentReader| {
        let mut buffer = [0; 9000];
        for id in (0..SEGMENTS).rev() {
            assert_eq!(reader.read_at(id, 0, &mut buffer).unwrap(), 9000);
            assert!(buffer.iter().all(|byte| *byte == id as u8), "content {id}");
        }
    };
    check(&reader);
    most = most.max(descriptors_in(&path));
    drop((journal, reader));
    let (journal, report) = open();
    assert_eq!(report.segments as u64, SEGMENTS);
    check(&journal.reader());
    most = most.max(descriptors_in(&path));
    assert!((10..=70).contains(&most), "{most} descriptors for {SEGMENTS} segments");
}

#[test]
fn a_disk_opened_for_reading_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    assert!(RealDisk::open_unlocked(&path).is_err(), "and creates nothing");
    let disk = RealDisk::open(&path).unwrap();
    disk.create("seg-00000000").unwrap().write_at(0, &[1; 4096]).unwrap();
    assert_eq!(RealDisk::holder(&path).unwrap(), Some(Some(std::process::id())));
    drop(disk);
    assert_eq!(RealDisk::holder(&path).unwrap(), None);
    let disk = RealDisk::open_unlocked(&path).unwrap();
    assert!(disk.create("seg-00000001").is_err());
    assert!(disk.remove("seg-00000000").is_err());
    assert!(disk.rename("seg-00000000", "seg-00000001").is_err());
    let file = disk.open("seg-00000000").unwrap();
    assert!(file.write_at(0, &[2; 4096]).is_err());
    let mut byte = [0];
    assert_eq!((file.read_at(0, &mut byte).unwrap(), byte), (1, [1]));
}
