use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use stentor_history::{Position, Reader, ScanControl};

use crate::kit::{NOW, all, files, note, notes, start};

/// Writes three blocks of ten notes each in one file. Returns where each block ends.
fn three_blocks(dir: &std::path::Path) -> Vec<u64> {
    let history = start(dir);
    let mut ends = Vec::new();
    for block in 0..3 {
        for n in 0..10 {
            history.append(&note(&format!("{block}.{n}"), NOW));
        }
        history.flush();
        ends.push(files(dir)[0].metadata().unwrap().len());
    }
    ends
}

#[test]
fn a_tail_torn_anywhere_is_cut_and_the_store_goes_on() {
    for torn in [1, 7, 63, 64, 65, 100] {
        let dir = tempfile::tempdir().unwrap();
        let ends = three_blocks(dir.path());
        let path = files(dir.path())[0].clone();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(ends[1] + torn).unwrap();
        assert_eq!(notes(dir.path()).len(), 20, "a reader passes over it");
        let history = start(dir.path());
        assert_eq!(path.metadata().unwrap().len(), ends[1]);
        history.append(&note("after", NOW));
        drop(history);
        let (found, seen) = all(dir.path());
        assert_eq!((found.len(), seen.damaged), (21, 0));
    }
}

#[test]
fn a_last_block_whose_records_are_damaged_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let ends = three_blocks(dir.path());
    let path = files(dir.path())[0].clone();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 8], ends[2] - 8).unwrap();
    drop(start(dir.path()));
    assert_eq!(path.metadata().unwrap().len(), ends[1]);
}

#[test]
fn damage_in_the_middle_costs_its_block_alone() {
    let dir = tempfile::tempdir().unwrap();
    let ends = three_blocks(dir.path());
    let path = files(dir.path())[0].clone();
    let sound = std::fs::read(&path).unwrap();
    for at in ends[0]..ends[1] {
        let mut bytes = sound.clone();
        bytes[at as usize] ^= 0x41;
        std::fs::write(&path, &bytes).unwrap();
        let (found, seen) = all(dir.path());
        // Two octets of the header are still unused, but the checksum covers them too.
        assert_eq!((found.len(), seen.damaged), (20, 1), "octet {at}");
        let mut followed = 0;
        let end = Reader::open(dir.path())
            .unwrap()
            .follow(Position::OLDEST, &mut |_, _| {
                followed += 1;
                ScanControl::Continue(())
            })
            .unwrap();
        assert_eq!((followed, end.damaged, end.next.record), (20, 1, 30));
    }
}

#[test]
fn a_wrong_hint_of_a_position_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let ends = three_blocks(dir.path());
    let reader = Reader::open(dir.path()).unwrap();
    let file = reader.end().unwrap().file;
    for offset in [0, 1, 64, ends[0], ends[1], ends[1] + 5, u64::MAX] {
        let mut found = Vec::new();
        reader
            .follow(Position { file, record: 15, offset }, &mut |_, after| {
                found.push(after.record);
                ScanControl::Continue(())
            })
            .unwrap();
        assert_eq!(found, (16..=30).collect::<Vec<_>>(), "{offset}");
    }
}

#[test]
fn files_of_others_and_a_torn_file_header_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    three_blocks(dir.path());
    std::fs::write(dir.path().join("README"), "not ours").unwrap();
    std::fs::write(dir.path().join("9999999999.history"), "short").unwrap();
    assert_eq!(notes(dir.path()).len(), 30);
    let history = start(dir.path());
    history.append(&note("after", NOW));
    drop(history);
    assert_eq!(notes(dir.path()).len(), 31);
    let mut count = 0;
    Reader::open(dir.path())
        .unwrap()
        .follow(Position::OLDEST, &mut |_, after| {
            count += 1;
            assert_eq!(after.record, count, "numbers go on");
            ScanControl::Continue(())
        })
        .unwrap();
}
