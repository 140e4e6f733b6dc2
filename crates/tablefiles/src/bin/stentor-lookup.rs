//! Measures table lookups: `stentor-lookup TABLE KEYS SECONDS`. `KEYS` is a file of lines `key<tab>value`; a line
//! without a tab is a key that is not in the table. Prints a JSON object: the time of each lookup, alone and while
//! the table is being replaced repeatedly, and the number of wrong results.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stentor_tables::{
    FileContent, FileRequest, LoadedTable, ReadError, Reference, Scratch, Slot, Table, TableResult, load,
};

/// Threads that look up keys while the table is being replaced.
const READERS: usize = 2;
/// Maximum lookups that are timed.
const LOOKUPS_MAX: usize = 20_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, keys, seconds] = arguments.as_slice() else {
        eprintln!("usage: stentor-lookup TABLE KEYS SECONDS");
        return ExitCode::from(2);
    };
    match measure(table, keys, seconds) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("stentor-lookup: {why}");
            ExitCode::FAILURE
        }
    }
}

/// A key, and its value if it is in the table.
type Key = (Vec<u8>, Option<Vec<u8>>);

fn measure(table: &str, keys: &str, seconds: &str) -> Result<String, String> {
    let reference = Reference::parse(table).map_err(|error| error.to_string())?;
    let time = Duration::from_secs_f64(seconds.parse().map_err(|_| format!("{seconds}: not a number of seconds"))?);
    let keys = read_keys(&std::fs::read(keys).map_err(|error| format!("{keys}: {error}"))?);
    let begin = Instant::now();
    let loaded = open(&reference)?;
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    let (entries, bytes) = (loaded.entries().unwrap_or(0), loaded.bytes());
    let slot = Slot::new(loaded);
    let (mut times, wrong) = alone(&slot, &keys, time);
    times.sort_unstable();
    let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share) as usize]) / 1e3;
    let under_load = under_load(slot, &keys, &reference, time)?;
    Ok(format!(
        "{{\"entries\": {entries}, \"bytes\": {bytes}, \"load_ms\": {load_ms:.1}, \"lookups\": {}, \"wrong\": {wrong}, \
         \"p50_us\": {:.3}, \"p99_us\": {:.3}, \"p999_us\": {:.3}, \"max_us\": {:.3}, \"replaced\": {}, \
         \"lookups_meanwhile\": {}, \"wrong_meanwhile\": {}}}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        under_load.replaced,
        under_load.lookups,
        under_load.wrong,
    ))
}

fn open(reference: &Reference) -> Result<Table, String> {
    let read = &mut |request: FileRequest<'_>| match std::fs::read(request.path) {
        Ok(bytes) => Ok(FileContent { bytes, owner: 0 }),
        Err(error) => Err(ReadError::Failed(error.to_string())),
    };
    match load(reference, read) {
        Ok(LoadedTable { table, .. }) => Ok(table),
        Err(report) => Err(report.errors().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

fn read_keys(text: &[u8]) -> Vec<Key> {
    let line = |line: &[u8]| match line.iter().position(|&octet| octet == b'\t') {
        Some(tab) => (line[..tab].to_vec(), Some(line[tab + 1..].to_vec())),
        None => (line.to_vec(), None),
    };
    text.split(|&octet| octet == b'\n').filter(|line| !line.is_empty()).map(line).collect()
}

/// The keys in another order than that of the file: with a stride that is coprime to most lengths.
fn shuffled(keys: &[Key], first: usize) -> impl Iterator<Item = &Key> {
    (0..).map(move |number: usize| &keys[(first + number.wrapping_mul(7_919)) % keys.len()])
}

fn is_right(table: &Table, entry: &Key, scratch: &mut Scratch) -> bool {
    let (key, value) = entry;
    match table.get(key, scratch) {
        TableResult::Found { value: found, .. } => value.as_deref() == Some(found),
        TableResult::NotFound => value.is_none(),
        TableResult::Tempfail(_) => false,
    }
}

/// Nanoseconds of each lookup, and the number of wrong results.
fn alone(slot: &Slot, keys: &[Key], time: Duration) -> (Vec<u32>, u64) {
    let (table, mut scratch) = (slot.get(), Scratch::default());
    let (mut times, mut wrong, begin) = (Vec::new(), 0, Instant::now());
    for key in shuffled(keys, 0).take(LOOKUPS_MAX) {
        let before = Instant::now();
        let right = is_right(&table, key, &mut scratch);
        times.push(before.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
        wrong += u64::from(!right);
        if begin.elapsed() > time {
            break;
        }
    }
    (times, wrong)
}

struct UnderLoad {
    replaced: u64,
    lookups: u64,
    wrong: u64,
}

/// Looks up keys in other threads while this one repeatedly reads the table and replaces it.
fn under_load(slot: Slot, keys: &[Key], reference: &Reference, time: Duration) -> Result<UnderLoad, String> {
    let slot = Arc::new(slot);
    let (stop, lookups, wrong) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let replaced = std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (slot, stop, lookups, wrong) = (slot.clone(), &stop, &lookups, &wrong);
            scope.spawn(move || {
                let mut scratch = Scratch::default();
                for key in shuffled(keys, reader * 31) {
                    let right = is_right(&slot.get(), key, &mut scratch);
                    lookups.fetch_add(1, Ordering::Relaxed);
                    wrong.fetch_add(u64::from(!right), Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let (mut replaced, begin) = (0, Instant::now());
        let outcome = loop {
            match open(reference) {
                Ok(table) => slot.replace(table),
                Err(why) => break Err(why),
            }
            replaced += 1;
            if begin.elapsed() > time {
                break Ok(replaced);
            }
        };
        stop.store(true, Ordering::Relaxed);
        outcome
    })?;
    Ok(UnderLoad { replaced, lookups: lookups.into_inner(), wrong: wrong.into_inner() })
}
