use super::*;
use crate::log::plan::Commit;
use crate::log::record::Template;

fn cell(way: Way, file: FileKind) -> Cell {
    Cell { record_bytes: 1536, per_sync: 3, file, way, sync: SyncCall::Fdatasync, writers: 1, commit: Commit::Alone }
}

fn filled(log: &mut dyn Log, epoch: u32, commits: u64) -> EpochRecords {
    let mut template = Template::new(1536, epoch, 4);
    let mut number = 0;
    for _ in 0..commits {
        if !log.has_room(3 * 1536) {
            break;
        }
        for _ in 0..3 {
            number += 1;
            log.append(template.stamped(number)).unwrap();
        }
        log.commit().unwrap();
    }
    log.found(1536, epoch).unwrap()
}

const WAYS: [Way; 8] =
    [Way::Write, Way::Pwrite, Way::Gathered, Way::Dsync, Way::Direct, Way::DirectDsync, Way::Uring, Way::UringDsync];

#[test]
fn every_way_into_every_file_writes_all_records_and_only_those() {
    // Not /tmp, which may have no O_DIRECT.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (mut epoch, mut measured) = (0, 0);
    for way in WAYS {
        for kind in [FileKind::Growing, FileKind::Preallocated, FileKind::Zeroed, FileKind::Recycled] {
            epoch += 1;
            let bytes = 1 << 18;
            let mut log = match FileLog::open(folder.path(), 4, bytes, &cell(way, kind), false, 4096) {
                Ok(log) => log,
                Err(Trouble::NotHere(why)) => {
                    println!("{way:?} {kind:?}: {why}");
                    continue;
                }
                Err(other) => panic!("{other:?}"),
            };
            let found = filled(&mut log, epoch, 10);
            assert_eq!((found.records, found.newest.get(&4)), (30, Some(&30)), "{way:?} {kind:?}");
            assert!(!log.has_wrapped());
            let len = folder.path().join(format!("{}-4.log", super::super::plan::word(kind))).metadata().unwrap().len();
            let commit = if way.is_direct() { 8192 } else { 3 * 1536 };
            assert_eq!(len, if kind == FileKind::Growing { 10 * commit } else { bytes }, "{way:?} {kind:?}");
            measured += 1;
        }
    }
    assert!(measured >= 12, "{measured}");
}

#[test]
fn a_file_ends_and_a_ring_begins_again() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    for way in [Way::Write, Way::Pwrite, Way::Gathered] {
        // Room for four commits.
        let bytes = 4 * 3 * 1536 + 100;
        for (epoch, kind) in [(1, FileKind::Growing), (2, FileKind::Preallocated), (3, FileKind::Zeroed)] {
            let mut log = FileLog::open(folder.path(), 0, bytes, &cell(way, kind), false, 512).unwrap();
            assert_eq!(filled(&mut log, epoch, 100).records, 12, "{way:?} {kind:?}");
            assert!(!log.has_wrapped());
        }
        let mut log = FileLog::open(folder.path(), 0, bytes, &cell(way, FileKind::Recycled), false, 512).unwrap();
        let found = filled(&mut log, 4, 11);
        assert!(log.has_wrapped());
        assert_eq!((found.records, found.newest.get(&4)), (12, Some(&33)), "{way:?}");
    }
}

#[test]
fn files_are_new_or_reused_as_asked() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let old = |kind, reuse| {
        let open = |reuse| FileLog::open(folder.path(), 0, 1 << 16, &cell(Way::Pwrite, kind), reuse, 512).unwrap();
        assert_eq!(filled(&mut open(false), 8, 2).records, 6);
        open(reuse).found(1536, 8).unwrap().records
    };
    assert_eq!((old(FileKind::Zeroed, false), old(FileKind::Zeroed, true)), (0, 6));
    assert_eq!((old(FileKind::Preallocated, false), old(FileKind::Preallocated, true)), (0, 6));
    assert_eq!((old(FileKind::Growing, false), old(FileKind::Growing, true)), (0, 0));
    assert_eq!((old(FileKind::Recycled, false), old(FileKind::Recycled, true)), (6, 6));
}
