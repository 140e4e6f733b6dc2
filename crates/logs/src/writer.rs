//! The buffer between logging threads and the writer thread.
//!
//! States of the writer: *idle* (waits for a first line, without a timeout), *gathering* (a line is there; waits up to
//! [`GATHER_MS`] for more, less when the buffer is half full or being flushed), *writing* (the buffer has been swapped
//! for an empty one; nobody waits for the disk). A log that is flushed by line gathers nothing and writes each line by
//! itself. Failure: lines that do not fit, or that the destination refuses, are counted, and the next line that can be
//! written reports how many were lost. Mail never waits for the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stentor_records::record::{Ms, Note};

use super::line::Ident;
use super::sink::Sink;

/// How long a line may wait for others to share its write.
const GATHER_MS: u64 = 20;
/// A buffer that a burst enlarged beyond this is released.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;

pub struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    flushed: Condvar,
    buffer_bytes_max: usize,
    by_line: bool,
    dropped: AtomicU64,
    /// The destination's trouble, as of the last write.
    trouble: Mutex<Option<String>>,
}

#[derive(Default)]
struct State {
    active: Vec<u8>,
    /// Lines lost since the log last reported them.
    dropped: u64,
    idle: bool,
    /// Whether the writer should stop gathering.
    urged: bool,
    reopen: bool,
    stop: bool,
    /// Numbers of swaps begun and finished; a flush waits until its swap is finished.
    begun: u64,
    finished: u64,
}

impl Shared {
    pub fn new(buffer_bytes_max: usize, by_line: bool) -> Arc<Shared> {
        Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
            flushed: Condvar::new(),
            buffer_bytes_max,
            by_line,
            dropped: AtomicU64::new(0),
            trouble: Mutex::default(),
        })
    }

    /// Appends whole lines, or drops and counts all of them. Never waits for the destination.
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

    /// Number of lines lost since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Why lines do not reach the destination.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    pub fn reopen(&self) {
        self.state.lock().reopen = true;
        self.wake.notify_one();
    }

    /// Waits until all lines appended before have been passed to the operating system (or lost and counted).
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

    /// The writer thread's main loop.
    pub fn run(&self, mut sink: Sink, ident: &Ident, now: &dyn Fn() -> Ms) {
        let mut full = Vec::new();
        let mut lost = 0;
        loop {
            let mut state = self.state.lock();
            while state.active.is_empty() && !(state.urged || state.reopen || state.stop) {
                state.idle = true;
                self.wake.wait(&mut state);
            }
            state.idle = false;
            if !(self.by_line || state.urged || state.reopen || state.stop) {
                self.wake.wait_for(&mut state, Duration::from_millis(GATHER_MS));
            }
            std::mem::swap(&mut state.active, &mut full);
            lost += std::mem::take(&mut state.dropped);
            state.begun += 1;
            state.urged = false;
            let (reopen, stop) = (std::mem::take(&mut state.reopen), state.stop);
            drop(state);

            if reopen {
                sink.reopen(now());
            }
            if lost > 0 {
                let mut line = Vec::new();
                let text = format!("log: {lost} lines were lost, see docs/operate/attempt-log.md");
                ident.note(&mut line, &Note { at: now(), text: &text, ..Note::default() });
                if sink.write(&line, now()) == 0 {
                    lost = 0;
                }
            }
            let lines =
                if self.by_line { each_line(&full, |line| sink.write(line, now())) } else { sink.write(&full, now()) };
            lost += lines;
            self.dropped.fetch_add(lines, Ordering::Relaxed);
            if self.trouble.lock().as_deref() != sink.trouble() {
                *self.trouble.lock() = sink.trouble().map(str::to_owned);
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

/// Calls `write` for each line, and returns the sum of the results.
fn each_line(bytes: &[u8], mut write: impl FnMut(&[u8]) -> u64) -> u64 {
    bytes.split_inclusive(|byte| *byte == b'\n').map(&mut write).sum()
}
