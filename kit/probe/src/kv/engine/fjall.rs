//! fjall: a log-structured merge tree with a write-ahead log.

use std::ops::Range;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Broken, Contents, Engine};

struct Fjall {
    database: Database,
    records: Keyspace,
}

pub fn open(folder: &Path) -> Result<Box<dyn Engine>, Broken> {
    let database = Database::builder(folder.join("fjall")).open().map_err(Broken::of)?;
    let records = database.keyspace("records", KeyspaceCreateOptions::default).map_err(Broken::of)?;
    Ok(Box::new(Fjall { database, records }))
}

impl Engine for Fjall {
    fn insert(&mut self, keys: Range<u64>, contents: &mut Contents) -> Result<(), Broken> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for key in keys {
            batch.insert(&self.records, key.to_be_bytes(), contents.of(key));
        }
        batch.commit().map_err(Broken::of)
    }

    fn look_up(&mut self, key: u64, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let found = self.records.get(key.to_be_bytes()).map_err(Broken::of)?;
        into.clear();
        into.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Broken> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for key in keys {
            batch.remove(&self.records, key.to_be_bytes());
        }
        batch.commit().map_err(Broken::of)
    }
}
