//! `probe raw`: how fast a directory's file system and device move octets sequentially, by size of the call.
//!
//! Promise: one file, from its start, until it ends or the time is up, one call at a time. The calls are timed; with
//! `write-sync` the final sync too. Before each pass the file is synced and dropped from the page cache
//! (`POSIX_FADV_DONTNEED`); the device's counters show whether it was. Readahead and write-back are part of the figure.

mod pass;
mod tables;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use stentor_measure::scratch::explain;
use stentor_measure::{MeasureError, OutputArgs, Place, Progress, Report, Scratch, Stop, repeat};

use crate::trouble::{check_room, parse_bytes, parse_seconds};
use pass::{Bounds, Pass, PassMeasurement, Trouble};

const BLOCK_BYTES_MIN: u64 = 512;
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// What is done with the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Mode {
    /// Into the page cache; what the kernel writes back later is not waited for.
    Write,
    /// The same and an fdatasync at the end, which is timed too.
    WriteSync,
    /// `O_DIRECT`, without a sync.
    WriteDirect,
    /// From the device into the page cache, which was emptied before.
    Read,
    /// `O_DIRECT`.
    ReadDirect,
}

impl Mode {
    pub fn is_read(self) -> bool {
        matches!(self, Mode::Read | Mode::ReadDirect)
    }

    pub fn is_direct(self) -> bool {
        matches!(self, Mode::WriteDirect | Mode::ReadDirect)
    }

    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FileState {
    /// A file that has been written through before.
    Overwritten,
    /// An empty file, which grows.
    New,
}

#[derive(Args, Clone, Debug)]
pub struct RawArgs {
    /// Directory on the file system to measure.
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Octets per call, separated by commas: 512 to 64M; direct ones need multiples of the device's blocks.
    #[arg(long, value_delimiter = ',', default_value = "4K,64K,1M,4M", value_parser = block_bytes)]
    pub block_bytes: Vec<u64>,
    /// Modes to measure, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "write,write-sync,write-direct,read,read-direct")]
    pub mode: Vec<Mode>,
    /// File that the writing modes write to.
    #[arg(long, value_enum, default_value = "overwritten")]
    pub file: FileState,
    /// Maximum duration of a pass, if its file does not end before.
    #[arg(long, default_value_t = 0.2, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Size of the file.
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub file_mib: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn block_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(BLOCK_BYTES_MIN) {
        return Err("512 octets to 64M, in multiples of 512".to_owned());
    }
    Ok(bytes)
}

/// A mode and a block size, and what came of it in the counted runs.
pub struct Line {
    mode: Mode,
    block_bytes: u64,
    runs: Vec<PassMeasurement>,
    missing: Option<String>,
}

pub fn run(options: &RawArgs) -> Result<(), MeasureError> {
    crate::run_measure(&options.output, |stop, progress| measure(options, stop, progress))
}

/// The measurement without its output, for other commands.
pub fn measure(options: &RawArgs, stop: &Stop, progress: &mut Progress) -> Result<Report, MeasureError> {
    check(options)?;
    let scratch = Scratch::make_or_explain(&options.dir)?;
    let place = Place::of(&options.dir).map_err(MeasureError::file(&options.dir))?;
    let files = if options.file == FileState::New { 2 } else { 1 };
    check_room(&place, files * options.file_mib, "--file-mib")?;
    progress.part("preparing the file");
    let bounds = Bounds { time: Duration::from_secs_f64(options.seconds), file_bytes: options.file_mib << 20 };
    let failed = |error: Trouble| match error {
        Trouble::Stopped => MeasureError::Stopped,
        Trouble::NotHere(why) => MeasureError::Refused(why),
        Trouble::Io(error) => explain(&options.dir, error),
    };
    let device = place.device.as_ref().map(|device| device.number.clone());
    let pass = Pass::new(scratch.path(), bounds, options.file, device, stop).map_err(failed)?;
    let mut lines: Vec<Line> = Vec::new();
    for &mode in &options.mode {
        let of_block = |&block_bytes: &u64| Line { mode, block_bytes, runs: Vec::new(), missing: None };
        lines.extend(options.block_bytes.iter().map(of_block));
    }
    let (total, count) = (if options.output.runs > 1 { options.output.runs + 1 } else { 1 }, lines.len());
    repeat(options.output.runs, stop, |number| {
        for (at, line) in lines.iter_mut().enumerate().filter(|(_, line)| line.missing.is_none()) {
            let what = || format!("run {} of {total}, {} of {count}: {}", number + 1, at + 1, line.mode.word());
            progress.step(what);
            match pass.run(line.mode, line.block_bytes as usize) {
                // The run that `repeat` drops, unless it is the only one.
                Ok(_) if number == 0 && total > 1 => {}
                Ok(measured) => line.runs.push(measured),
                Err(Trouble::NotHere(why)) => line.missing = Some(why),
                Err(other) => return Err(failed(other)),
            }
        }
        Ok(())
    })?;
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    drop(pass);
    drop(scratch);
    Ok(tables::report(options, place, &lines))
}

fn check(options: &RawArgs) -> Result<(), MeasureError> {
    let largest = options.block_bytes.iter().max().copied().unwrap_or(0);
    if largest > options.file_mib << 20 {
        let said = format!("a call of {largest} octets does not fit into --file-mib {}", options.file_mib);
        return Err(MeasureError::Refused(said));
    }
    Ok(())
}
