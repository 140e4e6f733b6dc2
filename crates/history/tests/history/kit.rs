use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stentor_history::{Config, History, Reader, ScanControl, ScanCounts};
use stentor_records::record::{Accepted, Attempt, Ms, Note, Record, Stat};

pub const NOW: Ms = 1_795_258_465_123;

/// A clock that a test moves, and the store's complaints.
#[derive(Clone)]
pub struct World {
    now: Arc<AtomicU64>,
    pub complaints: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn new() -> World {
        World { now: Arc::new(AtomicU64::new(NOW)), complaints: Arc::default() }
    }

    pub fn set(&self, now: Ms) {
        self.now.store(now, Ordering::Relaxed);
    }

    pub fn config(&self, dir: &Path) -> Config {
        let (now, complaints) = (self.now.clone(), self.complaints.clone());
        Config {
            dir: dir.to_owned(),
            keep_ms: 30 * 86_400_000,
            size_bytes_max: 64 * 1024 * 1024,
            free_bytes_min: 0,
            sync_ms: 1_000,
            now: Box::new(move || now.load(Ordering::Relaxed)),
            complain: Box::new(move |text| complaints.lock().push(text.to_owned())),
        }
    }
}

pub fn start(dir: &Path) -> History {
    History::start(World::new().config(dir)).unwrap()
}

pub fn accepted(id: &str, at: Ms) -> Record<'_> {
    Record::Accepted(Accepted { at, id, from: "list-bounces@example.com", message_id: "<1@x>", ..Accepted::default() })
}

pub fn attempt<'a>(id: &'a str, to: &'a str, at: Ms) -> Record<'a> {
    Record::Attempt(Attempt {
        at,
        id,
        to: [to].into_iter().collect(),
        from: "list-bounces@example.com",
        host: "mx.example.org",
        ip: Some("192.0.2.34".parse().unwrap()),
        port: 25,
        mailer: "esmtp",
        delay_ms: 7_250,
        xdelay_ms: 1_001,
        stat: Stat::Sent,
        dsn: "2.0.0",
        reply: "250 2.0.0 ok",
        size: 4_096,
        ..Attempt::default()
    })
}

/// A note with this text.
pub fn note(text: &str, at: Ms) -> Record<'_> {
    Record::Note(Note { at, text, ..Note::default() })
}

/// All records, in debug form.
pub fn all(dir: &Path) -> (Vec<String>, ScanCounts) {
    let mut found = Vec::new();
    let seen = Reader::open(dir)
        .unwrap()
        .scan(0, Ms::MAX, &mut |record| {
            found.push(format!("{record:?}"));
            ScanControl::Continue(())
        })
        .unwrap();
    (found, seen)
}

/// The texts of all notes.
pub fn notes(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |record: &Record<'_>| {
        if let Record::Note(note) = record {
            found.push(note.text.to_owned());
        }
        ScanControl::Continue(())
    };
    Reader::open(dir).unwrap().scan(0, Ms::MAX, &mut take).unwrap();
    found
}

pub fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
