//! Tables of files that are replaced, and of files that cannot be read for a while.

use std::path::Path;
use std::sync::mpsc;

use stentor_tablefiles::{FileTable, Refreshed, SLOW_MS};
use stentor_tables::{Answer, Content, Reference, Scratch};

fn value(table: &FileTable, key: &str) -> Option<String> {
    match table.table().unwrap().get(key.as_bytes(), &mut Scratch::default()) {
        Answer::Found { value, .. } => Some(String::from_utf8(value.to_vec()).unwrap()),
        Answer::NotFound | Answer::Tempfail(_) => None,
    }
}

/// As an editor does, so that the inode is another one however fast it goes.
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
    assert!(matches!(table.refresh(0), Refreshed::Same));
    let before = table.table().unwrap();
    replace(&folder.path().join("table"), "key two\nbad\n");
    let Refreshed::Replaced(report) = table.refresh(0) else { panic!("not replaced") };
    assert_eq!(report.diagnostics[0].line, 2);
    assert_eq!(value(&table, "key").as_deref(), Some("two"));
    assert!(matches!(before.get(b"key", &mut Scratch::default()), Answer::Found { value: b"one", .. }));
    assert!(matches!(table.refresh(0), Refreshed::Same));
}

#[test]
fn a_broken_version_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path(), "pcre", "/key/ one\n");
    let path = folder.path().join("table");
    replace(&path, "/key/ two\n/a(?=b)/ x\n");
    let Refreshed::Kept(report) = table.refresh(0) else { panic!("not kept") };
    let error = report.errors().next().unwrap();
    assert_eq!((error.file.as_str(), error.line, error.column), (path.to_str().unwrap(), 2, 3));
    assert_eq!(value(&table, "key").as_deref(), Some("one"));
    assert!(matches!(table.refresh(0), Refreshed::Same), "it is not read again and again");
    std::fs::remove_file(&path).unwrap();
    // Perhaps somebody is about to write it anew.
    assert!(matches!(table.refresh(0), Refreshed::Same));
    assert!(matches!(table.refresh(0), Refreshed::Kept(_)));
    replace(&path, "/key/ three\n");
    assert!(matches!(table.refresh(0), Refreshed::Same));
    assert!(matches!(table.refresh(0), Refreshed::Replaced(_)));
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
        assert!(matches!(look, Refreshed::Same), "{kind}: {look:?}");
        replace(&path, good);
        let looks = [table.refresh(0), table.refresh(0)];
        assert!(looks.iter().any(|look| matches!(look, Refreshed::Replaced(_))), "{kind}: {looks:?}");
        assert_eq!(value(&table, "key").as_deref(), Some("one"));
    }
}

#[test]
fn a_file_that_is_written_in_place_is_read_when_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path(), "hash", "ann one\nbob one\n");
    let path = folder.path().join("table");
    std::fs::write(&path, "ann two\n").unwrap();
    assert!(matches!(table.refresh(0), Refreshed::Same));
    // The other half has come meanwhile.
    std::fs::write(&path, "ann two\nbob two\n").unwrap();
    assert!(matches!(table.refresh(0), Refreshed::Same));
    assert_eq!(value(&table, "bob").as_deref(), Some("one"));
    assert!(matches!(table.refresh(0), Refreshed::Replaced(_)));
    assert_eq!(value(&table, "bob").as_deref(), Some("two"));
}

/// A file system that hangs, as NFS does without its server.
#[test]
fn who_reads_a_file_that_hangs_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    std::fs::write(&path, "key one\n").unwrap();
    let (asked, is_asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel::<&str>();
    let answers = std::sync::Mutex::new(answers);
    let read = Box::new(move |_: stentor_tables::Wanted<'_>| {
        asked.send(()).unwrap();
        let text = answers.lock().unwrap().recv().unwrap();
        Ok(Content { bytes: text.as_bytes().to_vec(), owner: 0 })
    });
    answer.send("key one\n").unwrap();
    let table = FileTable::open_by(Reference::parse(&format!("hash:{}", path.display())).unwrap(), read).0;
    is_asked.recv().unwrap();
    replace(&path, "key two\n");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| table.refresh(1_000));
        is_asked.recv().unwrap();
        assert!(matches!(table.refresh(1_000 + SLOW_MS), Refreshed::Busy) && !table.is_slow());
        assert!(matches!(table.refresh(1_001 + SLOW_MS), Refreshed::Slow) && table.is_slow());
        assert!(matches!(table.refresh(1_002 + SLOW_MS), Refreshed::Busy) && table.is_slow(), "it is said once");
        assert_eq!(value(&table, "key").as_deref(), Some("one"));
        answer.send("key two\n").unwrap();
        assert!(matches!(first.join().unwrap(), Refreshed::Replaced(_)));
    });
    assert!(!table.is_slow() && matches!(table.refresh(9_000), Refreshed::Same));
    assert_eq!(value(&table, "key").as_deref(), Some("two"));
}
