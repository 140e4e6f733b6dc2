//! One pass over the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use stentor_measure::counters::{DeviceCounters, process_cpu};
use stentor_measure::{Histogram, Stop};

pub use crate::trouble::Trouble;

use super::{FileState, Mode};

const FILL_BYTES: usize = 1 << 20;
/// Addresses of buffers for `O_DIRECT` are multiples of this.
const ALIGN_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub time: Duration,
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct PassMeasurement {
    pub bytes: u64,
    pub seconds: f64,
    /// Nanoseconds of each call; the sync at the end is not among them.
    pub calls: Histogram,
    pub cpu_s: f64,
    /// Share of what was read that the device was not asked for: the page cache had it, in spite of all.
    pub cached: f64,
}

/// The laid out file.
pub struct Pass<'a> {
    laid_out: PathBuf,
    grown: PathBuf,
    bounds: Bounds,
    state: FileState,
    /// `254:0`.
    device: Option<String>,
    stop: &'a Stop,
}

/// Octets that no file system compresses, at an address that suits `O_DIRECT`.
struct Buffer {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let mut bytes = vec![0; len + ALIGN_BYTES];
        fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
        let begin = bytes.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Buffer { bytes, begin, len }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.len]
    }
}

impl<'a> Pass<'a> {
    /// Writes the file through once and syncs it.
    pub fn new(
        folder: &Path,
        bounds: Bounds,
        state: FileState,
        device: Option<String>,
        stop: &'a Stop,
    ) -> Result<Pass<'a>, Trouble> {
        let laid_out = folder.join("raw.data");
        let mut file = File::create(&laid_out)?;
        let mut fill = Buffer::new(FILL_BYTES);
        for _ in 0..bounds.file_bytes / FILL_BYTES as u64 {
            if stop.is_set() {
                return Err(Trouble::Stopped);
            }
            file.write_all(fill.get())?;
        }
        file.sync_all()?;
        Ok(Pass { laid_out, grown: folder.join("raw.new"), bounds, state, device, stop })
    }

    /// What it leaves is durable, so that the next pass does not pay for it.
    pub fn run(&self, mode: Mode, block_bytes: usize) -> Result<PassMeasurement, Trouble> {
        if self.stop.is_set() {
            return Err(Trouble::Stopped);
        }
        let file = self.open(mode)?;
        let mut buffer = Buffer::new(block_bytes);
        let mut measurement = PassMeasurement::default();
        let device = self.device.as_deref().and_then(DeviceCounters::read);
        let cpu = process_cpu();
        let begin = Instant::now();
        while measurement.bytes + block_bytes as u64 <= self.bounds.file_bytes {
            let call = Instant::now();
            if self.stop.is_set() {
                return Err(Trouble::Stopped);
            }
            if measurement.bytes > 0 && call.duration_since(begin) >= self.bounds.time {
                break;
            }
            one_call(&file, mode, buffer.get(), measurement.bytes)?;
            measurement.calls.add(call.elapsed().as_nanos() as u64);
            measurement.bytes += block_bytes as u64;
        }
        if mode == Mode::WriteSync {
            file.sync_data()?;
        }
        measurement.seconds = begin.elapsed().as_secs_f64();
        measurement.cpu_s = process_cpu().saturating_sub(cpu).as_secs_f64();
        if mode.is_read() {
            let after = self.device.as_deref().and_then(DeviceCounters::read);
            let bytes = after.zip(device).map(|(after, before)| (after - before).bytes_read);
            measurement.cached = bytes.map_or(0.0, |bytes| (1.0 - bytes as f64 / measurement.bytes as f64).max(0.0));
        } else {
            file.sync_data()?;
        }
        Ok(measurement)
    }

    fn open(&self, mode: Mode) -> Result<File, Trouble> {
        let is_new = self.state == FileState::New && !mode.is_read();
        let path = if is_new { &self.grown } else { &self.laid_out };
        if is_new && path.exists() {
            std::fs::remove_file(path)?;
        }
        let flags = if mode.is_direct() { OFlags::DIRECT } else { OFlags::empty() };
        if !is_new {
            drop_cache(path)?;
        }
        let mut options = OpenOptions::new();
        options.read(mode.is_read()).write(!mode.is_read()).create(is_new).custom_flags(flags.bits().cast_signed());
        options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput if mode.is_direct() => {
                Trouble::NotHere("this file system has no O_DIRECT".to_owned())
            }
            _ => Trouble::Io(error),
        })
    }
}

fn one_call(file: &File, mode: Mode, buffer: &mut [u8], offset: u64) -> Result<(), Trouble> {
    let done = if mode.is_read() { file.read_exact_at(buffer, offset) } else { file.write_all_at(buffer, offset) };
    done.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput if mode.is_direct() => Trouble::NotHere(format!(
            "direct calls of {} octets are not possible: the device's blocks are larger",
            buffer.len()
        )),
        _ => Trouble::Io(error),
    })
}

/// Every pass begins with a file that is on the device and not in the page cache: a write into cached pages is cheaper,
/// a direct one has to throw them out first.
fn drop_cache(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_move_the_whole_file_and_leave_it_as_long() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let stop = Stop::never();
        let bounds = Bounds { time: Duration::from_mins(10), file_bytes: 2 << 20 };
        for state in [FileState::Overwritten, FileState::New] {
            let pass = Pass::new(folder.path(), bounds, state, None, &stop).unwrap();
            for mode in [Mode::Write, Mode::WriteSync, Mode::WriteDirect, Mode::Read, Mode::ReadDirect] {
                match pass.run(mode, 64 << 10) {
                    Ok(measurement) => {
                        assert_eq!((measurement.bytes, measurement.calls.count()), (2 << 20, 32), "{mode:?}");
                        assert!(measurement.seconds > 0.0);
                    }
                    Err(Trouble::NotHere(why)) => println!("{mode:?}: {why}"),
                    Err(other) => panic!("{mode:?}: {other:?}"),
                }
            }
            let files = if state == FileState::New { vec!["raw.data", "raw.new"] } else { vec!["raw.data"] };
            for file in files {
                assert_eq!(folder.path().join(file).metadata().unwrap().len(), 2 << 20);
            }
        }
        let short = Bounds { time: Duration::ZERO, ..bounds };
        let pass = Pass::new(folder.path(), short, FileState::New, None, &stop).unwrap();
        assert_eq!(pass.run(Mode::Write, 4096).unwrap().bytes, 4096);
        stop.set();
        assert!(matches!(pass.run(Mode::Write, 4096), Err(Trouble::Stopped)));
    }
}
