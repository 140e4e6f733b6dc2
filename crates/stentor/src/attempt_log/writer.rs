//! The buffer between those who log and the thread that writes.
//!
//! States of the writer: *idle* (waits for a first line, without a time-out), *gathering* (a line is there; waits up to
//! [`GATHER_MS`] for company, less when the buffer is half full or somebody flushes), *writing* (the buffer has been
//! swapped against an empty one; nobody waits for the disk). Failure: lines that do not fit, or that the destination
//! refuses, are counted, and the next line that can be written says how many were lost. Mail never waits for the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::line::Ident;

/// How long a line may wait for others to share its write.
const GATHER_MS: u64 = 20;
/// A buffer that a burst blew up is given back beyond this.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;

/// Where the log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    Stderr,
    Stdout,
    /// Appended to, created with mode 0640.
    File(PathBuf),
    /// Nothing is formatted at all.
    Off,
}

pub struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    flushed: Condvar,
    buffer_bytes_max: usize,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    active: Vec<u8>,
    /// Lines lost since the log last said so.
    dropped: u64,
    idle: bool,
    /// The writer has been asked not to gather any longer.
    urged: bool,
    reopen: bool,
    stop: bool,
    /// Swaps begun and finished; a flush waits until its swap is finished.
    begun: u64,
    finished: u64,
}

impl Shared {
    pub fn new(buffer_bytes_max: usize) -> Arc<Shared> {
        Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
            flushed: Condvar::new(),
            buffer_bytes_max,
            dropped: AtomicU64::new(0),
        })
    }

    /// Takes whole lines, or drops all of them and counts. Never waits for the destination.
    pub fn append(&self, bytes: &[u8], lines: u64) {
        let mut state = self.state.lock();
        if state.active.len() + bytes.len() > self.buffer_bytes_max {
            state.dropped += lines;
            self.dropped.fetch_add(lines, Ordering::Relaxed);
            return;
        }
        state.active.extend_from_slice(bytes);
        let half_full = state.active.len() > self.buffer_bytes_max / 2 && !state.urged;
        if state.idle || half_full {
            state.idle = false;
            state.urged |= half_full;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Lines lost since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub fn reopen(&self) {
        self.state.lock().reopen = true;
        self.wake.notify_one();
    }

    /// Waits until all that was appended before has been handed to the operating system (or lost, and counted).
    pub fn flush(&self) {
        let mut state = self.state.lock();
        let target = state.begun + 1;
        state.urged = true;
        self.wake.notify_one();
        while state.finished < target && !state.stop {
            self.flushed.wait(&mut state);
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// The writer thread's whole life.
    pub fn run(&self, mut sink: Sink, ident: &Ident, now: &dyn Fn() -> u64) {
        let mut full = Vec::new();
        let mut lost = 0;
        loop {
            let mut state = self.state.lock();
            while state.active.is_empty() && !(state.urged || state.reopen || state.stop) {
                state.idle = true;
                self.wake.wait(&mut state);
            }
            state.idle = false;
            if !(state.urged || state.reopen || state.stop) {
                self.wake.wait_for(&mut state, Duration::from_millis(GATHER_MS));
            }
            std::mem::swap(&mut state.active, &mut full);
            lost += std::mem::take(&mut state.dropped);
            state.begun += 1;
            state.urged = false;
            let (reopen, stop) = (std::mem::take(&mut state.reopen), state.stop);
            drop(state);

            if reopen {
                sink.reopen();
            }
            if lost > 0 {
                let mut note = Vec::new();
                ident.note(&mut note, now(), None, &format!("log: {lost} lines were lost, see docs/attempt-log.md"));
                if sink.write(&note) {
                    lost = 0;
                }
            }
            if !sink.write(&full) {
                let lines = full.split(|b| *b == b'\n').skip(1).count() as u64;
                lost += lines;
                self.dropped.fetch_add(lines, Ordering::Relaxed);
            }
            full.clear();
            full.shrink_to(BUFFER_BYTES_KEPT);

            let mut state = self.state.lock();
            state.finished = state.begun;
            self.flushed.notify_all();
            if stop && state.active.is_empty() {
                return;
            }
        }
    }
}

/// The destination, opened.
pub struct Sink {
    to: To,
    /// The last write failed; complaints go to stderr once for each series of failures.
    failing: bool,
    /// The last write ended within a line.
    torn: bool,
}

enum To {
    Stderr,
    Stdout,
    File(PathBuf, File),
}

impl Sink {
    /// `None` for [`Destination::Off`].
    pub fn open(destination: &Destination) -> io::Result<Option<Sink>> {
        let to = match destination {
            Destination::Off => return Ok(None),
            Destination::Stderr => To::Stderr,
            Destination::Stdout => To::Stdout,
            Destination::File(path) => To::File(path.clone(), open_file(path)?),
        };
        Ok(Some(Sink { to, failing: false, torn: false }))
    }

    /// A file is opened anew by its name (it was rotated away); if that fails, the old one goes on.
    fn reopen(&mut self) {
        if let To::File(path, file) = &mut self.to {
            match open_file(path) {
                Ok(new) => {
                    *file = new;
                    self.torn = false;
                }
                Err(error) => complain(&format!("the log {} cannot be reopened: {error}", path.display())),
            }
        }
    }

    /// All or, said on stderr, not all.
    fn write(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let result = match &mut self.to {
            To::Stderr => write_lines(&mut io::stderr().lock(), bytes, &mut self.torn),
            To::Stdout => write_lines(&mut io::stdout().lock(), bytes, &mut self.torn),
            To::File(_, file) => write_lines(file, bytes, &mut self.torn),
        };
        if let Err(error) = &result
            && !self.failing
        {
            complain(&format!("the log cannot be written, lines are lost: {error}"));
        }
        self.failing = result.is_err();
        result.is_ok()
    }
}

/// Writes all of `bytes`; `torn` goes from call to call, so that a half-written line is ended before the next begins.
fn write_lines(to: &mut dyn Write, bytes: &[u8], torn: &mut bool) -> io::Result<()> {
    if *torn {
        to.write_all(b"\n")?;
        *torn = false;
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                *torn = rest[n - 1] != b'\n';
                rest = &rest[n..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// The last resort; when even stderr is closed there is nobody to tell.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "stentor: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `left` bytes, then fails.
    struct Small {
        taken: Vec<u8>,
        left: usize,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.left);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.left -= n;
            self.taken.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let mut torn = false;
        let mut small = Small { taken: Vec::new(), left: 7 };
        assert!(write_lines(&mut small, b"one\ntwo\n", &mut torn).is_err());
        assert!(torn);
        small.left = 100;
        write_lines(&mut small, b"three\n", &mut torn).unwrap();
        assert_eq!(small.taken, b"one\ntwo\nthree\n");
        assert!(!torn);
    }
}
