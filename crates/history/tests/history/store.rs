use std::collections::BTreeSet;

use stentor_history::{History, Position, Reader, ScanControl};
use stentor_records::record::{Ms, Record};

use crate::kit::{NOW, World, accepted, all, attempt, files, note, notes, start};

fn text_of(record: &Record<'_>) -> String {
    match record {
        Record::Note(note) => note.text.to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_sees_what_was_flushed_while_the_writer_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let history = start(dir.path());
    history.append(&note("one", NOW));
    history.flush();
    assert_eq!(notes(dir.path()), ["one"]);
    history.append(&note("two", NOW + 1));
    history.sync();
    assert_eq!(notes(dir.path()), ["one", "two"]);
    assert_eq!(history.status().appended, 2);
    drop(history);
    let history = start(dir.path());
    history.append(&note("three", NOW + 2));
    drop(history);
    assert_eq!(notes(dir.path()), ["one", "two", "three"]);
}

#[test]
fn a_time_is_scanned_and_the_caller_may_stop() {
    let dir = tempfile::tempdir().unwrap();
    let history = start(dir.path());
    for n in 0..1_000 {
        let text = n.to_string();
        history.append(&note(&text, NOW + n));
        if n % 100 == 0 {
            history.flush();
        }
    }
    drop(history);
    let reader = Reader::open(dir.path()).unwrap();
    let mut found = Vec::new();
    let seen = reader
        .scan(NOW + 250, NOW + 260, &mut |record| {
            found.push(text_of(record));
            ScanControl::Continue(())
        })
        .unwrap();
    assert_eq!(found, (250..260).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(seen.blocks_skipped > seen.blocks_read, "{seen:?}");
    let seen = reader.scan(0, Ms::MAX, &mut |_| ScanControl::Break(())).unwrap();
    assert_eq!((seen.records, seen.is_cut), (1, true));
}

#[test]
fn find_reads_only_blocks_that_may_hold_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let history = start(dir.path());
    for block in 0..50_u64 {
        let id = format!("Q{block}");
        history.append(&accepted(&id, NOW + block));
        for n in 0..20 {
            let to = format!("u{block}-{n}@example.org");
            history.append(&attempt(&id, &to, NOW + block));
        }
        history.flush();
    }
    drop(history);
    let reader = Reader::open(dir.path()).unwrap();
    let find = |key: &str| {
        let mut found = 0;
        let seen = reader
            .find(key, 0, Ms::MAX, &mut |_| {
                found += 1;
                ScanControl::Continue(())
            })
            .unwrap();
        (found, seen.blocks_read)
    };
    assert_eq!(find("q7").0, 21, "case does not matter");
    assert!(find("Q7").1 <= 5, "{:?}", find("Q7"));
    assert_eq!(find("<U13-4@EXAMPLE.org>").0, 1);
    assert_eq!(find("1@x").0, 50);
    assert_eq!(find("nobody@example.org").0, 0);
    assert!(find("nobody@example.org").1 <= 5);
}

#[test]
fn a_consumer_goes_on_where_it_was_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut position = Position::OLDEST;
    let mut found = Vec::new();
    for round in 0..5 {
        let history = start(dir.path());
        for n in 0..10 {
            let text = format!("{round}.{n}");
            history.append(&note(&text, NOW));
            if n % 4 == 0 {
                history.flush();
            }
        }
        history.flush();
        // Three records at a time, each time from the position stored as text.
        for _ in 0..3 {
            let mut taken = 0;
            let reader = Reader::open(dir.path()).unwrap();
            let followed = reader
                .follow(position.to_string().parse().unwrap(), &mut |record, _| {
                    found.push(text_of(record));
                    taken += 1;
                    if taken == 3 { ScanControl::Break(()) } else { ScanControl::Continue(()) }
                })
                .unwrap();
            assert_eq!((followed.lost, followed.damaged), (0, 0));
            position = followed.next;
        }
    }
    let reader = Reader::open(dir.path()).unwrap();
    let followed = reader
        .follow(position, &mut |record, _| {
            found.push(text_of(record));
            ScanControl::Continue(())
        })
        .unwrap();
    let expected: Vec<String> = (0..5).flat_map(|round| (0..10).map(move |n| format!("{round}.{n}"))).collect();
    assert_eq!(found, expected);
    assert_eq!(followed.next, reader.end().unwrap());
    assert_eq!(reader.follow(followed.next, &mut |_, _| panic!("nothing is left")).unwrap().records, 0);
}

#[test]
fn a_consumer_whose_place_is_deleted_goes_on_at_the_oldest_and_is_told_how_many_it_lost() {
    let dir = tempfile::tempdir().unwrap();
    let history = start(dir.path());
    for n in 0..10 {
        history.append(&note(&format!("old {n}"), NOW));
    }
    drop(history);
    let reader = Reader::open(dir.path()).unwrap();
    let mut taken = 0;
    let position = reader
        .follow(Position::OLDEST, &mut |_, _| {
            taken += 1;
            if taken == 4 { ScanControl::Break(()) } else { ScanControl::Continue(()) }
        })
        .unwrap()
        .next;
    let history = start(dir.path());
    history.append(&note("new", NOW));
    drop(history);
    std::fs::remove_file(&files(dir.path())[0]).unwrap();
    let mut found = Vec::new();
    let followed = reader
        .follow(position, &mut |record, _| {
            found.push(text_of(record));
            ScanControl::Continue(())
        })
        .unwrap();
    assert_eq!((found, followed.lost), (vec!["new".to_owned()], 6));
    // An emptied directory begins with numbers that were never used.
    for file in files(dir.path()) {
        std::fs::remove_file(file).unwrap();
    }
    let world = World::new();
    world.set(NOW + 10_000);
    let history = History::start(world.config(dir.path())).unwrap();
    history.append(&note("begun anew", NOW));
    drop(history);
    let followed = reader.follow(followed.next, &mut |record, _| {
        assert_eq!(text_of(record), "begun anew");
        ScanControl::Continue(())
    });
    assert_eq!(followed.unwrap().records, 1);
}

#[test]
fn threads_lose_nothing_and_an_acceptance_stands_before_its_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let history = start(dir.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let history = history.clone();
            scope.spawn(move || {
                for n in 0..5_000 {
                    let id = format!("{thread}-{n}");
                    history.append(&attempt(&id, "a@b", NOW + n));
                    history.append(&accepted(&id, NOW + n));
                }
            });
        }
    });
    let status = history.status();
    drop(history);
    assert_eq!(status.dropped, 0);
    let (found, seen) = all(dir.path());
    assert_eq!((found.len(), seen.damaged), (40_000, 0));
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 40_000);
}

#[test]
fn off_keeps_nothing() {
    let history = History::off();
    assert!(!history.is_on());
    history.append(&note("x", 1));
    history.flush();
    history.sync();
    assert_eq!(history.status().appended, 0);
}
