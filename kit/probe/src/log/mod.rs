//! `probe log`: the cost of making records durable, and the benefit of doing so for several at once.
//!
//! Promise: every combination of the options is a row of the table, with figures or the reason why there are none;
//! `run.rs` and docs/kit/measuring-storage.md say what is timed. Two tables: `log`, one writer, over record sizes and
//! records per sync; `group`, several writers, each alone or through one committer that waits for them or does not.
//!
//! A run goes through all cells once; the first run is dropped. The files are in a scratch folder.

pub mod group;
mod group_tables;
mod journal;
mod line;
mod medium;
mod plan;
mod record;
mod run;
mod share;
mod tables;
mod uring;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use stentor_measure::Scratch;
use stentor_measure::scratch::explain;
use stentor_measure::{MeasureError, OutputArgs, Place, Progress, Report, Stop, repeat};

use crate::trouble::{check_room, parse_bytes, parse_seconds};
use line::Line;
use medium::Trouble;
use plan::{Cell, Commit, FileKind, SyncCall, Way, distinct};
use share::{Bounds, Site};

const RECORD_BYTES_MIN: u64 = 512;
const RECORD_BYTES_MAX: u64 = 64 << 10;
const PER_SYNC_MAX: u64 = 1000;
const WRITERS_MAX: u64 = 1000;
/// Where sysfs does not tell a logical block.
const BLOCK_BYTES: usize = 4096;

#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Directory on the file system to measure.
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Record sizes, separated by commas: multiples of 512 from 512 to 64K.
    #[arg(long, value_delimiter = ',', default_value = "512,4K,64K", value_parser = record_bytes)]
    pub record_bytes: Vec<u64>,
    /// C: records per sync, 1 to 1000.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100", value_parser = value_parser!(u64).range(1..=PER_SYNC_MAX))]
    pub per_sync: Vec<u64>,
    /// State of the file before it is written.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "growing")]
    pub file: Vec<FileKind>,
    /// How to write records.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "pwrite")]
    pub way: Vec<Way>,
    /// Call that makes them durable, unless the write does.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fdatasync")]
    pub sync: Vec<SyncCall>,
    /// Numbers of writers in the second table, each alone and all through one committer; 0: no second table.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,20,100", value_parser = value_parser!(u64).range(0..=WRITERS_MAX))]
    pub writers: Vec<u64>,
    /// Record sizes in the second table.
    #[arg(long, value_delimiter = ',', default_value = "4K", value_parser = record_bytes)]
    pub group_record_bytes: Vec<u64>,
    /// Measure only the second table.
    #[arg(long)]
    pub group_only: bool,
    /// Time that the simple committer waits for further records, unless all writers have submitted.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u64).range(0..=1_000_000))]
    pub gather_us: u64,
    /// Duration of a row; its last commit is completed.
    #[arg(long, default_value_t = 0.2, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Maximum of records in a row.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Total size of a row's files. A recycled file is reused from its start; otherwise the row ends there.
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub file_mib: u64,
    /// Reuse the previous run's file unchanged instead of a new one (recycled files are always reused).
    #[arg(long)]
    pub reuse: bool,
    /// Read the records back from the device after each row, and compare.
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn record_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if !(RECORD_BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(RECORD_BYTES_MIN) {
        return Err("a record has 512 to 65536 octets, in multiples of 512".to_owned());
    }
    Ok(bytes)
}

pub fn run(options: &LogArgs) -> Result<(), MeasureError> {
    crate::run_measure(&options.output, |stop, progress| measure(options, stop, progress))
}

/// The measurement without its output, for other commands.
pub fn measure(options: &LogArgs, stop: &Stop, progress: &mut Progress) -> Result<Report, MeasureError> {
    let cells = options.cells();
    options.check(&cells)?;
    let scratch = Scratch::make_or_explain(&options.dir)?;
    let place = Place::of(&options.dir).map_err(MeasureError::file(&options.dir))?;
    check_room(&place, options.needed_mib(&cells), "--file-mib, --writers or --per-sync")?;
    let lines = options.lines(&cells, &scratch, &place, stop, progress)?;
    drop(scratch);
    Ok(tables::report(options, place, &lines))
}

impl LogArgs {
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &way in &self.way {
            for &file in &self.file {
                for &sync in &self.sync {
                    let cell =
                        Cell { record_bytes: 0, per_sync: 1, file, way, sync, writers: 1, commit: Commit::Alone };
                    if !self.group_only {
                        for &record_bytes in &self.record_bytes {
                            cells.extend(self.per_sync.iter().map(|&per_sync| Cell { record_bytes, per_sync, ..cell }));
                        }
                    }
                    for &record_bytes in &self.group_record_bytes {
                        for &writers in self.writers.iter().filter(|writers| **writers > 0) {
                            let all = [Commit::Alone, Commit::Grouped, Commit::Paced];
                            cells.extend(all.map(|commit| Cell { record_bytes, writers, commit, ..cell }));
                        }
                    }
                }
            }
        }
        distinct(cells)
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            time: Duration::from_secs_f64(self.seconds),
            records: self.records.unwrap_or(u64::MAX),
            file_bytes: self.file_mib << 20,
            gather: Duration::from_micros(self.gather_us),
            reuse: self.reuse,
            verify: self.verify,
        }
    }

    fn check(&self, cells: &[Cell]) -> Result<(), MeasureError> {
        let Some(first) = cells.first() else {
            return Err(MeasureError::Refused("nothing to measure: set --writers, or omit --group-only".to_owned()));
        };
        let padding = BLOCK_BYTES as u64;
        let needed = |cell: &Cell| (cell.lot_bytes() + padding) * cell.writers;
        let largest =
            cells.iter().filter(|cell| cell.way != Way::Journal).max_by_key(|cell| needed(cell)).unwrap_or(first);
        if needed(largest) > self.file_mib << 20 {
            return Err(MeasureError::Refused(format!(
                "{} writers with {} records of {} octets do not fit into --file-mib {}: give at least {}",
                largest.writers,
                largest.per_sync,
                largest.record_bytes,
                self.file_mib,
                (needed(largest) >> 20) + 1
            )));
        }
        Ok(())
    }

    /// Files of different kinds lie side by side; those of journals too.
    fn needed_mib(&self, cells: &[Cell]) -> u64 {
        let mut kinds: Vec<FileKind> =
            cells.iter().filter(|cell| cell.way != Way::Journal).map(|cell| cell.file).collect();
        kinds.sort_by_key(|kind| *kind as u8);
        kinds.dedup();
        let journals = cells.iter().filter(|cell| cell.way == Way::Journal);
        let journals = journals.map(|cell| (cell.files() * journal::Size::of(cell, self.file_mib << 20).bytes()) >> 20);
        let copies = if self.verify { 2 } else { 1 };
        kinds.len() as u64 * self.file_mib + copies * journals.max().unwrap_or(0)
    }

    fn lines(
        &self,
        cells: &[Cell],
        scratch: &Scratch,
        place: &Place,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<Vec<Line>, MeasureError> {
        let device = place.device.as_ref().map(|device| device.number.as_str());
        let site = Site { folder: scratch.path(), device, block: logical_block(device), stop };
        let mut lines: Vec<Line> =
            cells.iter().map(|cell| Line { cell: *cell, runs: Vec::new(), missing: None }).collect();
        let bounds = self.bounds();
        let mut epoch = 0;
        let total = if self.output.runs > 1 { self.output.runs + 1 } else { 1 };
        let runs = repeat(self.output.runs, stop, |number| {
            let mut measured = Vec::with_capacity(cells.len());
            for (at, line) in lines.iter_mut().enumerate() {
                progress
                    .step(|| format!("run {} of {total}, {} of {}: {}", number + 1, at + 1, cells.len(), line.cell));
                epoch += 1;
                if line.missing.is_some() {
                    measured.push(None);
                    continue;
                }
                measured.push(match run::run(&line.cell, &bounds, &site, epoch) {
                    Ok(result) => Some(result),
                    Err(Trouble::NotHere(why)) => {
                        line.missing = Some(why);
                        None
                    }
                    Err(Trouble::Stopped) => return Err(MeasureError::Stopped),
                    Err(Trouble::Io(error)) => return Err(self.failed(&line.cell, error)),
                });
            }
            Ok(measured)
        })?;
        if stop.is_set() {
            return Err(MeasureError::Stopped);
        }
        for measured in runs {
            for (line, result) in lines.iter_mut().zip(measured) {
                line.runs.extend(result);
            }
        }
        Ok(lines)
    }

    fn failed(&self, cell: &Cell, error: io::Error) -> MeasureError {
        if error.kind() == io::ErrorKind::InvalidInput && cell.way.is_direct() {
            let why = "the device does not support direct writes of this size; omit the direct ways".to_owned();
            return MeasureError::Refused(format!("{cell}: {why}"));
        }
        explain(&self.dir, error)
    }
}

fn logical_block(device: Option<&str>) -> usize {
    let read = |number: &str| {
        fs::read_to_string(format!("/sys/dev/block/{number}/queue/logical_block_size")).ok()?.trim().parse().ok()
    };
    device.and_then(read).unwrap_or(BLOCK_BYTES)
}
