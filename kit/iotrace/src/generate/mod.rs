//! The generator: writes and reads of a known kind, each in its own short trace.
//!
//! States of an operation: prepared (file open, block filled; off) → on → stamped, moved, stamped, synced, stamped →
//! off. Nothing else is done while tracing is on. The buffers are read between operations, when they are half full at
//! most.
//!
//! Failure answers: a short or refused write ends the run with the path; so does a block that cannot be read back.

pub mod block;
pub mod file;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use stentor_measure::{MeasureError, Stop};

use crate::collect::Tracer;
use crate::collect::switch::Switch;
use crate::collect::tracer::own_thread;
use crate::event::Trace;
use crate::generate::block::Block;
use crate::generate::file::{Target, wrong};
use crate::operation::{Access, Operation, Sync, Work};

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    pub work: Work,
    pub count: u32,
    /// In each block; another one for each run.
    pub key: u64,
    /// Per CPU: how much fits.
    pub buffer_kib: u32,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct GeneratorResult {
    pub trace: Trace,
    pub operations: Vec<Operation>,
    /// With tracing on.
    pub traced_ns: u64,
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the trace's clock.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// When the buffers are to be read: before they can be more than half full, judging by what operations left so far.
#[derive(Clone, Copy, Debug)]
struct Pace {
    since: u64,
    greatest_each: u64,
    room: u64,
}

impl Pace {
    fn new(buffer_kib: u32) -> Pace {
        Pace { since: 0, greatest_each: 0, room: u64::from(buffer_kib) * 1024 / 2 }
    }

    fn is_due(&self) -> bool {
        // All of it may be in the buffer of one CPU. Unknown: after the first.
        self.greatest_each == 0 || (self.since + 1) * self.greatest_each > self.room
    }

    fn drained(&mut self, bytes: usize) {
        self.greatest_each = self.greatest_each.max((bytes as u64).div_ceil(self.since.max(1))).max(1);
        self.since = 0;
    }
}

/// Does one run in a folder of its own. Operations before a stop are kept, and those before the memory for events was
/// full.
pub fn run(folder: &Path, run: &Run, tracer: &mut Tracer, stop: &Stop) -> Result<GeneratorResult, MeasureError> {
    let (operations, traced_ns) = operate(folder, run, tracer, stop)?;
    Ok(GeneratorResult { trace: tracer.finish()?, operations, traced_ns })
}

/// The operations alone, each with the collector on, and for how long it was. What was written is read again at the
/// end.
pub fn operate(
    folder: &Path,
    run: &Run,
    collector: &mut impl Switch,
    stop: &Stop,
) -> Result<(Vec<Operation>, u64), MeasureError> {
    let mut target = Target::prepare(folder, run.work, run.count, run.key)?;
    let mut block = Block::new(run.work.size as usize);
    let mut operations = Vec::with_capacity(run.count as usize);
    let mut pace = Pace::new(run.buffer_kib);
    let tid = own_thread();
    let mut traced_ns = 0;
    collector.clear()?;
    for number in 0..run.count as usize {
        if stop.is_set() {
            break;
        }
        let (offset, sequence) = (target.offset(number), target.sequence(number));
        if run.work.access == Access::Write {
            block.fill(run.key, sequence);
        }
        let path = target.path_of(number);
        let file = target.opened(number)?;
        let before = now_ns();
        collector.switch(true)?;
        let done = once(file, &run.work, offset, &mut block);
        collector.switch(false)?;
        traced_ns += now_ns() - before;
        let [start_ns, moved_ns, end_ns] = done.map_err(MeasureError::file(&path))?;
        if run.work.access == Access::Read {
            block.check(run.key, sequence).map_err(|what| wrong(&path, &what))?;
        }
        let access = run.work.access;
        operations.push(Operation { tid, start_ns, moved_ns, end_ns, bytes: run.work.size, access });
        pace.since += 1;
        if pace.is_due() {
            let bytes = collector.drain()?;
            pace.drained(bytes);
            if collector.is_full() {
                break;
            }
        }
    }
    target.verify(operations.len())?;
    target.remove();
    Ok((operations, traced_ns))
}

/// The system calls of one operation, and the times before, between and after them.
fn once(file: &File, work: &Work, offset: u64, block: &mut Block) -> std::io::Result<[u64; 3]> {
    let start = now_ns();
    let moved = match work.access {
        Access::Write => file.write_at(block.bytes(), offset)?,
        Access::Read => file.read_at(block.bytes_mut(), offset)?,
    };
    let between = now_ns();
    if moved != work.size as usize {
        return Err(std::io::Error::other(format!(
            "only {moved} of {} octets were transferred in one call",
            work.size
        )));
    }
    match (work.access, work.sync) {
        (Access::Write, Sync::Fsync) => file.sync_all()?,
        (Access::Write, Sync::Fdatasync) => file.sync_data()?,
        _ => return Ok([start, between, between]),
    }
    Ok([start, between, now_ns()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_read_before_they_are_half_full() {
        let mut pace = Pace::new(100);
        assert!(pace.is_due());
        pace.since = 1;
        pace.drained(10_000);
        let mut operations = 0;
        while !pace.is_due() {
            pace.since += 1;
            operations += 1;
        }
        // 5 of 10,000 octets are below 51,200; a sixth might be above.
        assert_eq!(operations, 5);
        pace.drained(0);
        assert_eq!((pace.greatest_each, pace.since), (10_000, 0));
    }
}
