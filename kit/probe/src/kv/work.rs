//! A store's short life: inserts, look-ups, deletes, each timed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use stentor_measure::{Device, DeviceCounters, Histogram, Stop};

use super::engine::{self, Broken, Contents, Engine, Expected, Kind};
use super::{KvArgs, time_max};
use crate::trouble::show_bytes;

/// `st_blocks` are of 512 octets, whatever the file system's are.
const BLOCK_BYTES: u64 = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    pub kind: Kind,
    pub record_bytes: u64,
    pub per_transaction: u64,
}

impl Case {
    /// `redb, 4K, 10 a transaction`.
    pub fn name(&self) -> String {
        format!("{}, {}, {} a transaction", self.kind.name(), show_bytes(self.record_bytes), self.per_transaction)
    }
}

/// One of inserting, looking up, deleting.
#[derive(Clone, Debug, Default)]
pub struct Part {
    pub records: u64,
    pub transactions: u64,
    pub elapsed: Duration,
    /// Nanoseconds of a transaction, or of a look-up.
    pub took: Histogram,
    /// Of the whole device.
    pub device: Option<DeviceCounters>,
}

/// A run of a case.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub inserts: Part,
    pub look_ups: Part,
    pub deletes: Part,
    /// What its files take up.
    pub bytes_after_inserts: u64,
    pub bytes_after_deletes: u64,
}

/// In a new folder. An engine that is missing was refused before.
pub fn run(case: &Case, args: &KvArgs, folder: &Path, device: Option<&Device>, stop: &Stop) -> Result<Outcome, Broken> {
    fs::create_dir(folder).map_err(Broken::of)?;
    let expected = Expected {
        record_bytes: case.record_bytes as usize,
        per_transaction: case.per_transaction as usize,
        #[cfg(feature = "lmdb")]
        records_max: args.records + case.per_transaction,
    };
    let mut engine = engine::open(case.kind, folder, &expected).ok_or_else(|| Broken("not built in".to_owned()))??;
    let mut contents = Contents::new(expected.record_bytes);
    let mut clock = Clock { device, stop, time_max: time_max(args) };
    let mut next = 1;
    let inserts = clock.part(|| {
        if next > args.records {
            return Ok(0);
        }
        let end = (next + case.per_transaction).min(args.records + 1);
        let keys = next..end;
        next = end;
        let count = keys.end - keys.start;
        engine.insert(keys, &mut contents).map(|()| count)
    })?;
    let bytes_after_inserts = bytes_of(folder).map_err(Broken::of)?;
    let mut keys: Vec<u64> = (1..next).collect();
    let mut rng = fastrand::Rng::with_seed(7);
    rng.shuffle(&mut keys);
    let look_ups = look_up(&mut clock, &mut *engine, &keys, &mut contents)?;
    rng.shuffle(&mut keys);
    let mut lots = keys.chunks(case.per_transaction as usize);
    let deletes = clock.part(|| match lots.next() {
        Some(lot) => engine.delete(lot).map(|()| lot.len() as u64),
        None => Ok(0),
    })?;
    Ok(Outcome {
        inserts,
        look_ups,
        deletes,
        bytes_after_inserts,
        bytes_after_deletes: bytes_of(folder).map_err(Broken::of)?,
    })
}

fn look_up(
    clock: &mut Clock<'_>,
    engine: &mut dyn Engine,
    keys: &[u64],
    contents: &mut Contents,
) -> Result<Part, Broken> {
    let mut found = Vec::new();
    let mut wanted = keys.iter();
    clock.part(|| {
        let Some(key) = wanted.next() else { return Ok(0) };
        if !engine.look_up(*key, &mut found)? || found != contents.of(*key) {
            return Err(Broken(format!("record {key} differs from what was inserted")));
        }
        Ok(1)
    })
}

struct Clock<'a> {
    device: Option<&'a Device>,
    stop: &'a Stop,
    time_max: Duration,
}

impl Clock<'_> {
    /// Calls it again and again until it says 0 records, or the time is over.
    fn part(&mut self, mut transaction: impl FnMut() -> Result<u64, Broken>) -> Result<Part, Broken> {
        let counters = || self.device.and_then(|device| DeviceCounters::read(&device.number));
        let mut part = Part::default();
        let before = counters();
        let began = Instant::now();
        let mut last = began;
        while !self.stop.is_set() && last - began < self.time_max {
            let records = transaction()?;
            if records == 0 {
                break;
            }
            let now = Instant::now();
            part.took.add(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
            part.records += records;
            part.transactions += 1;
            last = now;
        }
        part.elapsed = last - began;
        part.device = counters().zip(before).map(|(after, before)| after - before);
        Ok(part)
    }
}

/// Blocks of all files below a folder.
fn bytes_of(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Engines remove files while we look.
        let Ok(status) = entry.metadata() else { continue };
        bytes += if status.is_dir() { bytes_of(&entry.path())? } else { status.blocks() * BLOCK_BYTES };
    }
    Ok(bytes)
}
