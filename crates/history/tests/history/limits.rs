use stentor_history::{History, Reader};

use crate::kit::{NOW, World, files, note, notes};

fn noise(rng: &mut fastrand::Rng) -> String {
    (0..1_000).map(|_| rng.alphanumeric()).collect()
}

#[test]
fn the_directory_never_outgrows_its_limit_and_the_oldest_go() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let config = stentor_history::Config { size_bytes_max: 2 * 1024 * 1024, ..world.config(dir.path()) };
    let history = History::start(config).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..40_u64 {
        for n in 0..200 {
            history.append(&note(&format!("{round:02} {n:03} {}", noise(&mut rng)), NOW + round));
        }
        history.flush();
        let bytes: u64 = files(dir.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= 2 * 1024 * 1024, "{bytes}");
        assert_eq!(bytes, history.status().bytes);
    }
    let kept = notes(dir.path());
    assert!(kept.len() > 1_000 && kept.len() < 8_000, "{}", kept.len());
    assert!(kept.last().unwrap().starts_with("39 199"));
    assert!(kept.is_sorted(), "what is left is without a gap");
    assert_eq!(history.status().dropped, 0);
}

#[test]
fn what_is_too_old_goes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let history = History::start(world.config(dir.path())).unwrap();
    history.append(&note("old", NOW));
    history.flush();
    world.set(NOW + 2 * 86_400_000);
    history.append(&note("newer", NOW + 2 * 86_400_000));
    history.flush();
    assert_eq!(files(dir.path()).len(), 2, "a file a day");
    world.set(NOW + 31 * 86_400_000);
    history.append(&note("newest", NOW + 31 * 86_400_000));
    history.flush();
    drop(history);
    assert_eq!(notes(dir.path()), ["newer", "newest"]);
    assert!(Reader::open(dir.path()).unwrap().oldest_ms().unwrap().unwrap() > NOW);
}

#[test]
fn without_room_records_are_dropped_counted_and_confessed() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let config = stentor_history::Config { free_bytes_min: u64::MAX, ..world.config(dir.path()) };
    let history = History::start(config).unwrap();
    for n in 0..5 {
        history.append(&note(&n.to_string(), NOW));
    }
    history.flush();
    history.append(&note("6", NOW));
    history.flush();
    let status = history.status();
    assert_eq!((status.appended, status.dropped, status.is_failing), (0, 6, true));
    assert_eq!(world.complaints.lock().len(), 1, "said once: {:?}", world.complaints.lock());
    drop(history);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn after_a_failure_it_goes_on_and_says_what_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let away = dir.path().join("away");
    let here = dir.path().join("history");
    let world = World::new();
    let history = History::start(world.config(&here)).unwrap();
    // No file can be created: the directory is gone.
    std::fs::rename(&here, &away).unwrap();
    history.append(&note("lost", NOW));
    history.flush();
    assert!(history.status().is_failing);
    std::fs::rename(&away, &here).unwrap();
    history.append(&note("lost too: too early", NOW));
    history.flush();
    world.set(NOW + 6_000);
    history.append(&note("kept", NOW));
    history.flush();
    assert!(!history.status().is_failing);
    drop(history);
    assert_eq!(notes(&here), ["history: 2 records were lost, see docs/design/history-format.md", "kept"]);
    assert_eq!(world.complaints.lock().len(), 2, "failing, and well again");
}
