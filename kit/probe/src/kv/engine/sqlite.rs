//! `SQLite` with a write-ahead log.

use std::ops::Range;
use std::path::Path;

use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Broken, Contents, Engine};

struct Sqlite(Connection);

/// With the extended code: the text of all input and output errors is the same. A shared memory file that cannot grow
/// is one of them, and what keeps it from growing is a full file system.
fn broken(error: rusqlite::Error) -> Broken {
    match error.sqlite_error().map(|error| error.extended_code) {
        Some(SQLITE_IOERR_SHMSIZE) => Broken("the disk is full (shared memory file)".to_owned()),
        Some(code) => Broken(format!("{error} (SQLite's code {code})")),
        None => Broken::of(error),
    }
}

pub fn open(folder: &Path) -> Result<Box<dyn Engine>, Broken> {
    let connection = Connection::open(folder.join("records.sqlite")).map_err(broken)?;
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(broken)?;
    if mode != "wal" {
        return Err(Broken(format!("journal_mode=WAL is refused here, it stays {mode}")));
    }
    connection
        .execute_batch(
            "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1000; \
             CREATE TABLE record (id INTEGER PRIMARY KEY, content BLOB NOT NULL)",
        )
        .map_err(broken)?;
    Ok(Box::new(Sqlite(connection)))
}

impl Engine for Sqlite {
    fn insert(&mut self, keys: Range<u64>, contents: &mut Contents) -> Result<(), Broken> {
        let transaction = self.0.transaction().map_err(broken)?;
        {
            let sql = "INSERT INTO record (id, content) VALUES (?1, ?2)";
            let mut insert = transaction.prepare_cached(sql).map_err(broken)?;
            for key in keys {
                insert.execute(params![key.cast_signed(), contents.of(key)]).map_err(broken)?;
            }
        }
        transaction.commit().map_err(broken)
    }

    fn look_up(&mut self, key: u64, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let mut select = self.0.prepare_cached("SELECT content FROM record WHERE id = ?1").map_err(broken)?;
        into.clear();
        let copy = |row: &rusqlite::Row<'_>| {
            into.extend_from_slice(row.get_ref(0)?.as_blob()?);
            Ok(())
        };
        let found = select.query_row([key.cast_signed()], copy).optional().map_err(broken)?;
        Ok(found.is_some())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Broken> {
        let transaction = self.0.transaction().map_err(broken)?;
        {
            let mut delete = transaction.prepare_cached("DELETE FROM record WHERE id = ?1").map_err(broken)?;
            for key in keys {
                delete.execute([key.cast_signed()]).map_err(broken)?;
            }
        }
        transaction.commit().map_err(broken)
    }
}
