//! The same on a real directory.

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
