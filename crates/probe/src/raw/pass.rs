//! One pass over the file.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::ReadWriteFlags;
use stentor_measure::counters::process_cpu;
use stentor_measure::{Histogram, Stop};

use super::{FileState, Mode};

const FILL_BYTES: usize = 1 << 20;
/// Addresses of buffers for `O_DIRECT` are multiples of this.
const ALIGN_BYTES: usize = 4096;
/// Pages that are asked for to see whether the cache was dropped.
const SAMPLES: u64 = 64;

#[derive(Debug)]
pub enum Trouble {
    /// This file system cannot do it.
    NotHere(String),
    Io(io::Error),
    Stopped,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub time: Duration,
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub bytes: u64,
    pub seconds: f64,
    /// Nanoseconds of each call; the sync at the end is not among them.
    pub calls: Histogram,
    pub cpu_s: f64,
    /// Share of the file that was still in the page cache when it was to be read from the device.
    pub cached: f64,
}

/// The laid out file.
pub struct Pass<'a> {
    laid_out: PathBuf,
    grown: PathBuf,
    bounds: Bounds,
    state: FileState,
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
    pub fn new(folder: &Path, bounds: Bounds, state: FileState, stop: &'a Stop) -> Result<Pass<'a>, Trouble> {
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
        Ok(Pass { laid_out, grown: folder.join("raw.new"), bounds, state, stop })
    }

    /// What it leaves is durable, so that the next pass does not pay for it.
    pub fn run(&self, mode: Mode, block_bytes: usize) -> Result<Measured, Trouble> {
        if self.stop.is_set() {
            return Err(Trouble::Stopped);
        }
        let file = self.open(mode)?;
        let mut buffer = Buffer::new(block_bytes);
        let mut measured = Measured::default();
        if mode.is_read() {
            measured.cached = drop_cache(&self.laid_out, self.bounds.file_bytes)?;
        }
        let cpu = process_cpu();
        let begin = Instant::now();
        while measured.bytes + block_bytes as u64 <= self.bounds.file_bytes {
            let call = Instant::now();
            if self.stop.is_set() {
                return Err(Trouble::Stopped);
            }
            if measured.bytes > 0 && call.duration_since(begin) >= self.bounds.time {
                break;
            }
            one_call(&file, mode, buffer.get(), measured.bytes)?;
            measured.calls.add(call.elapsed().as_nanos() as u64);
            measured.bytes += block_bytes as u64;
        }
        if mode == Mode::WriteSync {
            file.sync_data()?;
        }
        measured.seconds = begin.elapsed().as_secs_f64();
        measured.cpu_s = process_cpu().saturating_sub(cpu).as_secs_f64();
        if !mode.is_read() {
            file.sync_data()?;
        }
        Ok(measured)
    }

    fn open(&self, mode: Mode) -> Result<File, Trouble> {
        let is_new = self.state == FileState::New && !mode.is_read();
        let path = if is_new { &self.grown } else { &self.laid_out };
        if is_new && path.exists() {
            std::fs::remove_file(path)?;
        }
        let flags = if mode.is_direct() { OFlags::DIRECT } else { OFlags::empty() };
        if mode.is_direct() && !is_new {
            // A direct write has to throw cached pages out first, a direct read may be served from them.
            drop_cache(path, self.bounds.file_bytes)?;
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
        io::ErrorKind::InvalidInput if mode.is_direct() => {
            Trouble::NotHere(format!("no direct calls of {} octets here: the device's blocks are larger", buffer.len()))
        }
        _ => Trouble::Io(error),
    })
}

/// Syncs a file and drops its pages; the share of sampled pages that are still there, 0 where the system does not tell.
fn drop_cache(path: &Path, bytes: u64) -> io::Result<f64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut page = [0; 1];
    let mut cached = 0;
    for sample in 0..SAMPLES {
        // A read that would have to wait for the device fails, and begins no readahead.
        let offset = sample * (bytes / SAMPLES);
        let mut slices = [IoSliceMut::new(&mut page)];
        cached += u64::from(rustix::io::preadv2(&file, &mut slices, offset, ReadWriteFlags::NOWAIT).is_ok());
    }
    Ok(cached as f64 / SAMPLES as f64)
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
            let pass = Pass::new(folder.path(), bounds, state, &stop).unwrap();
            for mode in [Mode::Write, Mode::WriteSync, Mode::WriteDirect, Mode::Read, Mode::ReadDirect] {
                match pass.run(mode, 64 << 10) {
                    Ok(measured) => {
                        assert_eq!((measured.bytes, measured.calls.count()), (2 << 20, 32), "{mode:?}");
                        assert!(measured.seconds > 0.0);
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
        let pass = Pass::new(folder.path(), short, FileState::New, &stop).unwrap();
        assert_eq!(pass.run(Mode::Write, 4096).unwrap().bytes, 4096);
        stop.set();
        assert!(matches!(pass.run(Mode::Write, 4096), Err(Trouble::Stopped)));
    }
}
