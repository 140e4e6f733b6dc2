//! LMDB: a copy-on-write B+tree in a memory map.

use std::ops::Range;
use std::path::Path;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use super::{Broken, Contents, Engine, Expected};

const MAP_BYTES_MIN: u64 = 256 << 20;
/// A page and what points to it, for small records.
const RECORD_BYTES_MIN: u64 = 8192;

struct Lmdb {
    env: Env,
    records: Database<'static, U64<BigEndian>, Bytes>,
}

pub fn open(folder: &Path, expected: &Expected) -> Result<Box<dyn Engine>, Broken> {
    // The file cannot grow beyond its map. Freed pages are used two transactions later.
    let record = (expected.record_bytes as u64).next_multiple_of(4096) + RECORD_BYTES_MIN;
    let map = (expected.records_max + 4 * expected.per_transaction as u64).saturating_mul(record);
    let map = map.clamp(MAP_BYTES_MIN, 1 << 40).next_multiple_of(1 << 20);
    let mut options = EnvOpenOptions::new();
    options.map_size(map as usize);
    // SAFETY: the map is of a file in a folder that this process has just made and nobody else knows; it is neither
    // truncated nor opened a second time while the environment lives, and it is not on a network file system unless the
    // user measures one, alone.
    #[allow(unsafe_code)]
    let env = unsafe { options.open(folder) }.map_err(Broken::of)?;
    let transaction = env.write_txn().map_err(Broken::of)?;
    let records = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(Broken::of)?
        .unwrap_commit();
    Ok(Box::new(Lmdb { env, records }))
}

impl Engine for Lmdb {
    fn insert(&mut self, keys: Range<u64>, contents: &mut Contents) -> Result<(), Broken> {
        let mut transaction = self.env.write_txn().map_err(Broken::of)?;
        for key in keys {
            self.records.put(&mut transaction, &key, contents.of(key)).map_err(Broken::of)?;
        }
        transaction.commit().map_err(Broken::of)
    }

    fn look_up(&mut self, key: u64, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let transaction = self.env.read_txn().map_err(Broken::of)?;
        let found = self.records.get(&transaction, &key).map_err(Broken::of)?;
        into.clear();
        into.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Broken> {
        let mut transaction = self.env.write_txn().map_err(Broken::of)?;
        for key in keys {
            self.records.delete(&mut transaction, key).map_err(Broken::of)?;
        }
        transaction.commit().map_err(Broken::of)
    }
}
