//! Engines behind one trait: durable transactions of inserts and deletes, and look-ups.
//!
//! Promise of each: when `insert` or `delete` returns, the whole transaction survives a power cut (on an honest
//! medium). Settings are those of an application that wants this and nothing more; `Kind::settings` lists them. Keys
//! ascend, as queue ids do; contents are random octets, so that nothing compresses.

#[cfg(feature = "fjall")]
mod fjall;
mod journal;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::ops::Range;
use std::path::Path;

use clap::ValueEnum;

/// What an engine said; or that it gave back something else than was put in.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

impl Broken {
    pub fn of(error: impl std::fmt::Display) -> Broken {
        Broken(error.to_string())
    }

    /// No room on the file system. Engines wrap what the system said in ways of their own, some as text alone.
    pub fn is_full(&self) -> bool {
        let ours = [std::io::Error::from(rustix::io::Errno::NOSPC), rustix::io::Errno::DQUOT.into()];
        let said = ours.map(|error| error.to_string());
        said.iter().any(|said| self.0.contains(said)) || self.0.contains("disk is full")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Stentor's own journal.
    Journal,
    Redb,
    Fjall,
    Sqlite,
    Lmdb,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Journal, Kind::Redb, Kind::Fjall, Kind::Sqlite, Kind::Lmdb];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Journal => "journal",
            Kind::Redb => "redb",
            Kind::Fjall => "fjall",
            Kind::Sqlite => "SQLite",
            Kind::Lmdb => "LMDB",
        }
    }

    pub fn is_built_in(self) -> bool {
        match self {
            Kind::Journal => true,
            Kind::Redb => cfg!(feature = "redb"),
            Kind::Fjall => cfg!(feature = "fjall"),
            Kind::Sqlite => cfg!(feature = "sqlite"),
            Kind::Lmdb => cfg!(feature = "lmdb"),
        }
    }

    /// What it is, and how it is made durable.
    pub fn settings(self) -> String {
        match self {
            Kind::Journal => {
                "Stentor's: one log, fdatasync a batch, segments zero-filled before, contents found by a table \
                              in memory, checkpoints and cleaning as in the server"
                    .to_owned()
            }
            Kind::Redb => {
                "copy-on-write B+tree, Durability::Immediate (fdatasync), cache of 1 GiB (its default)".to_owned()
            }
            Kind::Fjall => "log-structured merge tree, a batch is one entry of its journal, PersistMode::SyncData \
                            (fdatasync), no compression"
                .to_owned(),
            Kind::Sqlite => format!(
                "SQLite{}, B-tree, journal_mode=WAL, synchronous=FULL (fsync a commit), wal_autocheckpoint=1000, \
                 id INTEGER PRIMARY KEY, content BLOB",
                sqlite_version()
            ),
            Kind::Lmdb => "copy-on-write B+tree in a memory map, default flags (fdatasync a commit)".to_owned(),
        }
    }
}

#[cfg(feature = "sqlite")]
fn sqlite_version() -> String {
    format!(" {}", rusqlite::version())
}

#[cfg(not(feature = "sqlite"))]
fn sqlite_version() -> String {
    String::new()
}

/// A store in a folder of its own.
pub trait Engine {
    /// Puts records with these keys into one durable transaction.
    fn insert(&mut self, keys: Range<u64>, contents: &mut Contents) -> Result<(), Broken>;

    /// The content of a record, copied into `into`; false if there is none.
    fn look_up(&mut self, key: u64, into: &mut Vec<u8>) -> Result<bool, Broken>;

    /// Removes these in one durable transaction.
    fn delete(&mut self, keys: &[u64]) -> Result<(), Broken>;
}

/// What the store is to hold, for those that must know before.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub record_bytes: usize,
    pub per_transaction: usize,
    /// LMDB's map does not grow.
    #[cfg(feature = "lmdb")]
    pub records_max: u64,
}

/// A new store. None if the engine is not built in.
pub fn open(kind: Kind, folder: &Path, expected: &Expected) -> Option<Result<Box<dyn Engine>, Broken>> {
    // Unreachable with all engines built in.
    #[allow(unreachable_patterns)]
    match kind {
        Kind::Journal => Some(journal::open(folder, expected)),
        #[cfg(feature = "redb")]
        Kind::Redb => Some(redb::open(folder)),
        #[cfg(feature = "fjall")]
        Kind::Fjall => Some(fjall::open(folder)),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => Some(sqlite::open(folder)),
        #[cfg(feature = "lmdb")]
        Kind::Lmdb => Some(lmdb::open(folder, expected)),
        _ => None,
    }
}

/// Random octets with the key in them, so that a wrong record is seen.
#[derive(Clone, Debug)]
pub struct Contents {
    octets: Vec<u8>,
}

impl Contents {
    pub fn new(record_bytes: usize) -> Contents {
        let mut rng = fastrand::Rng::with_seed(42);
        Contents { octets: std::iter::repeat_with(|| rng.u8(..)).take(record_bytes).collect() }
    }

    /// The record of a key.
    pub fn of(&mut self, key: u64) -> &[u8] {
        let stamp = key.to_le_bytes();
        let length = stamp.len().min(self.octets.len());
        self.octets[..length].copy_from_slice(&stamp[..length]);
        // Also at the end: half a record is none.
        let end = self.octets.len() - length;
        self.octets[end..].copy_from_slice(&stamp[..length]);
        &self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_broken_engine() {
        let full = std::io::Error::from_raw_os_error(28);
        assert!(Broken::of(format!("I/O error: {full}")).is_full());
        assert!(Broken::of("database or disk is full").is_full());
        assert!(Broken::of(stentor_journal::CommitError::Full(full)).is_full());
        assert!(!Broken::of("record 5 differs from what was inserted").is_full());
    }

    #[test]
    fn every_engine_keeps_what_it_is_given() {
        let expected = Expected {
            record_bytes: 700,
            per_transaction: 7,
            #[cfg(feature = "lmdb")]
            records_max: 70,
        };
        let mut tried = 0;
        for kind in Kind::ALL {
            let home = tempfile::tempdir().unwrap();
            let Some(engine) = open(kind, home.path(), &expected) else {
                assert!(!kind.is_built_in());
                continue;
            };
            assert!(kind.is_built_in() && !kind.settings().is_empty());
            let mut engine = engine.unwrap();
            let mut contents = Contents::new(expected.record_bytes);
            for first in (1..=70).step_by(7) {
                engine.insert(first..first + 7, &mut contents).unwrap();
            }
            let mut found = Vec::new();
            for key in 1..=70 {
                assert!(engine.look_up(key, &mut found).unwrap(), "{kind:?} {key}");
                assert_eq!(found, contents.of(key), "{kind:?} {key}");
            }
            engine.delete(&[3, 70, 1]).unwrap();
            for key in [1, 3, 70, 71] {
                assert!(!engine.look_up(key, &mut found).unwrap(), "{kind:?} {key}");
            }
            assert!(engine.look_up(2, &mut found).unwrap());
            tried += 1;
        }
        assert!(tried >= 1);
    }
}
