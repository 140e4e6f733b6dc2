//! redb: a copy-on-write B+tree in one file.

use std::ops::Range;
use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{Broken, Contents, Engine};

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");

struct Redb(Database);

pub fn open(folder: &Path) -> Result<Box<dyn Engine>, Broken> {
    let database = Database::create(folder.join("records.redb")).map_err(Broken::of)?;
    let redb = Redb(database);
    // The table is there before anyone looks for it.
    redb.write(|_| Ok(()))?;
    Ok(Box::new(redb))
}

impl Redb {
    fn write(&self, change: impl FnOnce(&mut redb::Table<'_, u64, &[u8]>) -> Result<(), Broken>) -> Result<(), Broken> {
        let mut transaction = self.0.begin_write().map_err(Broken::of)?;
        transaction.set_durability(Durability::Immediate).map_err(Broken::of)?;
        change(&mut transaction.open_table(RECORDS).map_err(Broken::of)?)?;
        transaction.commit().map_err(Broken::of)
    }
}

impl Engine for Redb {
    fn insert(&mut self, mut keys: Range<u64>, contents: &mut Contents) -> Result<(), Broken> {
        self.write(|table| keys.try_for_each(|key| table.insert(key, contents.of(key)).map(|_| ()).map_err(Broken::of)))
    }

    fn look_up(&mut self, key: u64, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let transaction = self.0.begin_read().map_err(Broken::of)?;
        let table = transaction.open_table(RECORDS).map_err(Broken::of)?;
        let found = table.get(key).map_err(Broken::of)?;
        into.clear();
        into.extend_from_slice(found.as_ref().map_or(&[], |guard| guard.value()));
        Ok(found.is_some())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Broken> {
        self.write(|table| keys.iter().try_for_each(|key| table.remove(key).map(|_| ()).map_err(Broken::of)))
    }
}
