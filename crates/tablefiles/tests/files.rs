//! Tests of files that are replaced, and of files that cannot be read for a while.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use stentor_tablefiles::{FileTable, SLOW_MS, TableRefresh};
use stentor_tables::{FileContent, FileRequest, ReadError, Reference, Scratch, TableResult};

fn value(table: &FileTable, key: &str) -> Option<String> {
    match table.table().unwrap().get(key.as_bytes(), &mut Scratch::default()) {
        TableResult::Found { value, .. } => Some(String::from_utf8(value.to_vec()).unwrap()),
        TableResult::NotFound | TableResult::Tempfail(_) => None,
    }
}

/// Replaces a file as an editor does, always with another inode.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(&next, path).unwrap();
}

fn open(folder: &Path, kind: &str, text: &str) -> FileTable {
    let path = folder.join("table");
    std::fs::write(&path, text).unwrap();
    FileTable::open(Reference::parse(&format!("{kind}:{}", path.display())).unwrap()).0
}

#[test]
fn a_replaced_file_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path(), "hash", "key one\n");
    assert!(matches!(table.refresh(0), TableRefresh::Same));
    let before = table.table().unwrap();
    replace(&folder.path().join("table"), "key two\nbad\n");
    let TableRefresh::Replaced(report) = table.refresh(0) else { panic!("not replaced") };
    assert_eq!(report.diagnostics[0].line, 2);
    assert_eq!(value(&table, "key").as_deref(), Some("two"));
    assert!(matches!(before.get(b"key", &mut Scratch::default()), TableResult::Found { value: b"one", .. }));
    assert!(matches!(table.refresh(0), TableRefresh::Same));
}

#[test]
fn a_broken_version_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path(), "pcre", "/key/ one\n");
    let path = folder.path().join("table");
    replace(&path, "/key/ two\n/a(?=b)/ x\n");
    let TableRefresh::Kept(report) = table.refresh(0) else { panic!("not kept") };
    let error = report.errors().next().unwrap();
    assert_eq!((error.file.as_str(), error.line, error.column), (path.to_str().unwrap(), 2, 3));
    assert_eq!(value(&table, "key").as_deref(), Some("one"));
    assert!(matches!(table.refresh(0), TableRefresh::Same), "it is not read again and again");
    std::fs::remove_file(&path).unwrap();
    // Another process may be about to rewrite it.
    assert!(matches!(table.refresh(0), TableRefresh::Same));
    assert!(matches!(table.refresh(0), TableRefresh::Kept(_)));
    replace(&path, "/key/ three\n");
    assert!(matches!(table.refresh(0), TableRefresh::Same));
    assert!(matches!(table.refresh(0), TableRefresh::Replaced(_)));
    assert_eq!(value(&table, "key").as_deref(), Some("three"));
}

#[test]
fn no_table_without_a_file() {
    let (table, error) = FileTable::open(Reference::parse("cidr:/does/not/exist").unwrap());
    assert!(table.table().is_none());
    assert!(error.diagnostics[0].to_string().starts_with("/does/not/exist: error: cannot be read"), "{error:?}");
    let folder = tempfile::tempdir().unwrap();
    let name = format!("hash:{}", folder.path().display());
    assert!(FileTable::open(Reference::parse(&name).unwrap()).0.table().is_none());
}

#[test]
fn a_file_that_comes_later_is_read() {
    for (kind, broken, good) in [("hash", None, "key one\n"), ("pcre", Some("/a(?=b)/ x\n"), "/key/ one\n")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        if let Some(text) = broken {
            std::fs::write(&path, text).unwrap();
        }
        let (table, _) = FileTable::open(Reference::parse(&format!("{kind}:{}", path.display())).unwrap());
        assert!(table.table().is_none());
        let look = table.refresh(0);
        assert!(matches!(look, TableRefresh::Same), "{kind}: {look:?}");
        replace(&path, good);
        let looks = [table.refresh(0), table.refresh(0)];
        assert!(looks.iter().any(|look| matches!(look, TableRefresh::Replaced(_))), "{kind}: {looks:?}");
        assert_eq!(value(&table, "key").as_deref(), Some("one"));
    }
}

/// Reads files but those that `denied` names; a stand-in for rights, which root does not lack.
fn open_denying(kind: &str, path: &Path, denied: &Arc<Mutex<Option<PathBuf>>>) -> FileTable {
    let denied = denied.clone();
    let read = move |request: FileRequest<'_>| match &*denied.lock().unwrap() {
        Some(path) if path == request.path => Err(ReadError::Failed("Permission denied (os error 13)".to_owned())),
        _ => Ok(FileContent { bytes: std::fs::read(request.path).unwrap(), owner: 0 }),
    };
    FileTable::open_by(Reference::parse(&format!("{kind}:{}", path.display())).unwrap(), Box::new(read)).0
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_whose_rights_are_corrected_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    std::fs::write(&path, "key one\n").unwrap();
    chmod(&path, 0o000);
    let denied = Arc::new(Mutex::new(Some(path.clone())));
    let table = open_denying("hash", &path, &denied);
    assert!(table.table().is_none());
    assert!(matches!(table.refresh(0), TableRefresh::Same), "it was reported");
    *denied.lock().unwrap() = None;
    chmod(&path, 0o644);
    assert!(matches!(table.refresh(1), TableRefresh::Same), "somebody may be changing it");
    assert!(matches!(table.refresh(2), TableRefresh::Replaced(_)));
    // A new version that nobody may read yet, in the place of the one in force.
    *denied.lock().unwrap() = Some(path.clone());
    replace(&path, "key two\n");
    assert!(matches!(table.refresh(3), TableRefresh::Kept(_)));
    *denied.lock().unwrap() = None;
    chmod(&path, 0o640);
    let looks = [table.refresh(4), table.refresh(5)];
    assert!(matches!(looks[1], TableRefresh::Replaced(_)), "{looks:?}");
    assert_eq!(value(&table, "key").as_deref(), Some("two"));
}

/// Descriptors that had run out, a server of files that was away.
#[test]
fn a_file_that_could_not_be_read_is_read_again_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    std::fs::write(&path, "key one\n").unwrap();
    let denied = Arc::new(Mutex::new(None));
    let table = open_denying("hash", &path, &denied);
    *denied.lock().unwrap() = Some(path.clone());
    replace(&path, "key two\n");
    assert!(matches!(table.refresh(1_000), TableRefresh::Kept(_)));
    for now in [2_000, 5_999, 6_000, 10_000] {
        assert!(matches!(table.refresh(now), TableRefresh::Same), "{now}: reported once");
    }
    *denied.lock().unwrap() = None;
    assert!(matches!(table.refresh(15_999), TableRefresh::Same), "the pause doubles");
    assert!(matches!(table.refresh(16_000), TableRefresh::Replaced(_)));
    assert_eq!(value(&table, "key").as_deref(), Some("two"));
    assert!(matches!(table.refresh(1_000_000), TableRefresh::Same), "and not again");
}

#[test]
fn an_included_file_that_could_not_be_read_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, members) = (folder.path().join("table"), folder.path().join("members"));
    std::fs::write(&path, format!("team: :include:{}\n", members.display())).unwrap();
    std::fs::write(&members, "ann@one.example\n").unwrap();
    let denied = Arc::new(Mutex::new(Some(members.clone())));
    let table = open_denying("aliases", &path, &denied);
    let is_read = |table: &FileTable| {
        table.table().unwrap().included(&members.to_string_lossy(), None).is_some_and(|found| found.is_ok())
    };
    assert!(!is_read(&table));
    *denied.lock().unwrap() = None;
    assert!(matches!(table.refresh(1), TableRefresh::Replaced(_)));
    assert!(is_read(&table));
}

/// Includes files of which any may be denied, and says which of them are in force.
struct Team {
    folder: tempfile::TempDir,
    denied: Arc<Mutex<Vec<PathBuf>>>,
    table: FileTable,
}

impl Team {
    /// `files`: names and contents; those denied at first.
    fn open(files: &[(&str, &str)], denied: &[&str]) -> Team {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, content) in files {
            std::fs::write(at(name), content.replace("DIR", &folder.path().to_string_lossy())).unwrap();
        }
        let denied = Arc::new(Mutex::new(denied.iter().map(|name| at(name)).collect::<Vec<_>>()));
        let all = denied.clone();
        let read = move |request: FileRequest<'_>| {
            if all.lock().unwrap().iter().any(|path| path == request.path) {
                return Err(ReadError::Failed("Too many open files (os error 24)".to_owned()));
            }
            Ok(FileContent { bytes: std::fs::read(request.path).unwrap(), owner: 0 })
        };
        let reference = Reference::parse(&format!("aliases:{}", at("table").display())).unwrap();
        let table = FileTable::open_by(reference, Box::new(read)).0;
        Team { folder, denied, table }
    }

    fn deny(&self, names: &[&str]) {
        *self.denied.lock().unwrap() = names.iter().map(|name| self.folder.path().join(name)).collect();
    }

    /// Included files in force.
    fn in_force(&self, names: &[&'static str]) -> Vec<&'static str> {
        let table = self.table.table().unwrap();
        // Files of root, included by the alias file or by another of root.
        let has = |name: &&str| {
            let path = self.folder.path().join(name);
            [None, Some(0)]
                .iter()
                .any(|user| table.included(&path.to_string_lossy(), *user).is_some_and(|found| found.is_ok()))
        };
        names.iter().copied().filter(has).collect()
    }
}

const TWO: [(&str, &str); 3] = [
    ("table", "one: :include:DIR/one\ntwo: :include:DIR/two\n"),
    ("one", "ann@one.example\n"),
    ("two", "bob@two.example\n"),
];

#[test]
fn of_two_files_that_could_not_be_read_each_is_used_when_it_can_be() {
    let team = Team::open(&TWO, &["one", "two"]);
    let in_force = || team.in_force(&["one", "two"]);
    assert!(in_force().is_empty() && matches!(team.table.refresh(1), TableRefresh::Same), "it was reported");
    team.deny(&["two"]);
    assert!(matches!(team.table.refresh(100_000), TableRefresh::Replaced(_)));
    assert_eq!(in_force(), ["one"]);
    assert!(matches!(team.table.refresh(200_000), TableRefresh::Same), "nothing is new");
    team.deny(&[]);
    assert!(matches!(team.table.refresh(600_000), TableRefresh::Replaced(_)));
    assert_eq!(in_force(), ["one", "two"]);
    assert!(matches!(team.table.refresh(10_000_000), TableRefresh::Same));
}

#[test]
fn no_attempt_without_a_change_loses_a_file() {
    let team = Team::open(&TWO, &["two"]);
    for (n, denied) in [&["one"][..], &["one", "two"], &["table"], &[]].into_iter().enumerate() {
        team.deny(denied);
        let look = team.table.refresh(1_000_000 * (n as u64 + 1));
        let is_all = denied.is_empty();
        assert_eq!(matches!(look, TableRefresh::Replaced(_)), is_all, "{denied:?}: {look:?}");
        assert_eq!(team.in_force(&["one", "two"]), if is_all { &["one", "two"][..] } else { &["one"] }, "{denied:?}");
    }
}

#[test]
fn a_file_that_can_be_read_again_is_used_though_what_it_includes_cannot() {
    let files = [
        ("table", "one: :include:DIR/one\n"),
        ("one", "ann@one.example\n:include:DIR/inner\n"),
        ("inner", "bob@two.example\n"),
    ];
    let team = Team::open(&files, &["one", "inner"]);
    let in_force = || team.in_force(&["one", "inner"]);
    team.deny(&["inner"]);
    assert!(matches!(team.table.refresh(1), TableRefresh::Replaced(_)));
    assert_eq!(in_force(), ["one"]);
    team.deny(&[]);
    assert!(matches!(team.table.refresh(1_000_000), TableRefresh::Replaced(_)));
    assert_eq!(in_force(), ["one", "inner"]);
}

#[test]
fn another_file_that_cannot_be_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    for path in [&one, &two] {
        std::fs::write(path, "key value\n").unwrap();
    }
    let denied = Arc::new(Mutex::new(Some(one.clone())));
    let all = denied.clone();
    let read = move |request: FileRequest<'_>| match &*all.lock().unwrap() {
        Some(path) if path == request.path => Err(ReadError::Failed("Input/output error (os error 5)".to_owned())),
        _ => Ok(FileContent { bytes: std::fs::read(request.path).unwrap(), owner: 0 }),
    };
    let name = format!("unionmap:{{hash:{}, hash:{}}}", one.display(), two.display());
    let (table, report) = FileTable::open_by(Reference::parse(&name).unwrap(), Box::new(read));
    assert!(report.diagnostics[0].file.ends_with("one"), "{report:?}");
    *denied.lock().unwrap() = Some(two.clone());
    let TableRefresh::Kept(report) = table.refresh(1) else { panic!("not reported") };
    assert!(report.diagnostics[0].file.ends_with("two"), "{report:?}");
    assert!(matches!(table.refresh(1_000_000), TableRefresh::Same), "once");
    *denied.lock().unwrap() = None;
    assert!(matches!(table.refresh(2_000_000), TableRefresh::Replaced(_)));
}

#[test]
fn a_file_that_is_written_in_place_is_read_when_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path(), "hash", "ann one\nbob one\n");
    let path = folder.path().join("table");
    std::fs::write(&path, "ann two\n").unwrap();
    assert!(matches!(table.refresh(0), TableRefresh::Same));
    // The other half has been written since.
    std::fs::write(&path, "ann two\nbob two\n").unwrap();
    assert!(matches!(table.refresh(0), TableRefresh::Same));
    assert_eq!(value(&table, "bob").as_deref(), Some("one"));
    assert!(matches!(table.refresh(0), TableRefresh::Replaced(_)));
    assert_eq!(value(&table, "bob").as_deref(), Some("two"));
}

/// Tests a file system that hangs, like NFS without its server.
#[test]
fn who_reads_a_file_that_hangs_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    std::fs::write(&path, "key one\n").unwrap();
    let (asked, is_asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel::<&str>();
    let answers = std::sync::Mutex::new(answers);
    let read = Box::new(move |_: stentor_tables::FileRequest<'_>| {
        asked.send(()).unwrap();
        let text = answers.lock().unwrap().recv().unwrap();
        Ok(FileContent { bytes: text.as_bytes().to_vec(), owner: 0 })
    });
    answer.send("key one\n").unwrap();
    let table = FileTable::open_by(Reference::parse(&format!("hash:{}", path.display())).unwrap(), read).0;
    is_asked.recv().unwrap();
    replace(&path, "key two\n");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| table.refresh(1_000));
        is_asked.recv().unwrap();
        assert!(matches!(table.refresh(1_000 + SLOW_MS), TableRefresh::Busy) && !table.is_slow());
        assert!(matches!(table.refresh(1_001 + SLOW_MS), TableRefresh::Slow) && table.is_slow());
        assert!(matches!(table.refresh(1_002 + SLOW_MS), TableRefresh::Busy) && table.is_slow(), "it is said once");
        assert_eq!(value(&table, "key").as_deref(), Some("one"));
        answer.send("key two\n").unwrap();
        assert!(matches!(first.join().unwrap(), TableRefresh::Replaced(_)));
    });
    assert!(!table.is_slow() && matches!(table.refresh(9_000), TableRefresh::Same));
    assert_eq!(value(&table, "key").as_deref(), Some("two"));
}
