//! One cell, once: writers in a closed loop, each submitting a lot of C records and waiting until they are durable.
//!
//! Timed from the moment all writers start together until the last one has its last answer; creating the files is not.
//! A writer's wait lasts from its first octet to that answer; the sync latency is that of the call that made it
//! durable. A waiting writer sends nothing, so waits are those of that many clients, not of a given rate.

use std::io;
use std::sync::Barrier;
use std::time::Instant;

use stentor_measure::Histogram;
use stentor_measure::counters::{DeviceCounters, process_cpu};

use super::group;
use super::journal::{self, JournalLog};
use super::medium::{FileLog, Log, Trouble, nanos_since};
use super::plan::{Cell, Commit, Way};
use super::record::Template;
use super::share::{Bounds, Share, Site, panicked};

/// What a cell came to in one run.
#[derive(Clone, Debug, Default)]
pub struct LogMeasurement {
    pub records: u64,
    pub payload_bytes: u64,
    pub seconds: f64,
    pub commits: u64,
    /// Nanoseconds.
    pub sync: Histogram,
    /// Nanoseconds.
    pub wait: Histogram,
    /// Of the whole device, whoever asked.
    pub device: Option<DeviceCounters>,
    pub cpu_s: f64,
}

/// Makes the files, measures, and looks for the records if that is wanted. `epoch`: a number that no other call had.
pub fn run(cell: &Cell, bounds: &Bounds, site: &Site, epoch: u32) -> Result<LogMeasurement, Trouble> {
    let files = cell.files();
    let mut logs = (0..files).map(|n| open(cell, bounds, site, n, files)).collect::<Result<Vec<_>, _>>()?;
    let (cpu, device) = (process_cpu(), site.device.and_then(DeviceCounters::read));
    let shares = match cell.commit {
        Commit::Alone => alone(&mut logs, cell, bounds, site, epoch)?,
        Commit::Grouped | Commit::Paced => group::run(&mut *logs[0], cell, bounds, site, epoch)?,
    };
    let after = site.device.and_then(DeviceCounters::read);
    let mut measurement = LogMeasurement {
        device: after.zip(device).map(|(after, before)| after - before),
        cpu_s: process_cpu().saturating_sub(cpu).as_secs_f64(),
        ..LogMeasurement::default()
    };
    if site.stop.is_set() {
        return Err(Trouble::Stopped);
    }
    let spans: Vec<(Instant, Instant)> = shares.iter().filter_map(|share| share.span).collect();
    if let (Some(begin), Some(end)) = (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max()) {
        measurement.seconds = (end - begin).as_secs_f64();
    }
    for share in &shares {
        measurement.records += share.records;
        measurement.commits += share.commits;
        measurement.sync.merge(&share.sync);
        measurement.wait.merge(&share.wait);
    }
    measurement.payload_bytes = measurement.records * cell.record_bytes;
    if bounds.verify {
        verify(&mut logs, cell, &measurement, epoch)?;
    }
    Ok(measurement)
}

fn open(cell: &Cell, bounds: &Bounds, site: &Site, writer: u64, files: u64) -> Result<Box<dyn Log>, Trouble> {
    if site.stop.is_set() {
        return Err(Trouble::Stopped);
    }
    if cell.way == Way::Journal {
        let log = JournalLog::open(
            site.folder,
            writer,
            cell.record_bytes as usize,
            &journal::Size::of(cell, bounds.file_bytes),
        )?;
        return Ok(Box::new(log));
    }
    let bytes = bounds.file_bytes / files;
    Ok(Box::new(FileLog::open(site.folder, writer, bytes, cell, bounds.reuse, site.block)?))
}

/// Each writer on a log of its own.
fn alone(
    logs: &mut [Box<dyn Log>],
    cell: &Cell,
    bounds: &Bounds,
    site: &Site,
    epoch: u32,
) -> Result<Vec<Share>, Trouble> {
    let barrier = Barrier::new(logs.len());
    let records_max = bounds.records.div_ceil(cell.writers);
    let write = |writer: usize, log: &mut dyn Log| -> io::Result<Share> {
        let mut template = Template::new(cell.record_bytes as usize, epoch, writer as u32);
        let mut share = Share::default();
        barrier.wait();
        let begin = Instant::now();
        let is_over =
            |share: &Share| share.commits > 0 && begin.elapsed() >= bounds.time || share.records >= records_max;
        while !is_over(&share) && !site.stop.is_set() && log.has_room(cell.lot_bytes()) {
            let handed_in = Instant::now();
            for number in share.records + 1..=share.records + cell.per_sync {
                log.append(template.stamped(number))?;
                if site.stop.is_set() {
                    return Ok(share);
                }
            }
            share.sync.add(log.commit()?);
            share.wait.add(nanos_since(handed_in));
            share.records += cell.per_sync;
            share.commits += 1;
        }
        share.span = Some((begin, Instant::now()));
        Ok(share)
    };
    let write = &write;
    let outcomes: Vec<io::Result<Share>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            logs.iter_mut().enumerate().map(|(n, log)| scope.spawn(move || write(n, &mut **log))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    Ok(outcomes.into_iter().collect::<io::Result<Vec<_>>>()?)
}

/// All that was acknowledged is there: counted, where nothing was overwritten, and the newest of each writer.
fn verify(logs: &mut [Box<dyn Log>], cell: &Cell, measurement: &LogMeasurement, epoch: u32) -> Result<(), Trouble> {
    let (mut records, mut writers, mut has_wrapped) = (0, 0, false);
    for log in logs {
        let found = log.found(cell.record_bytes as usize, epoch)?;
        records += found.records;
        writers += found.newest.len() as u64;
        has_wrapped |= log.has_wrapped();
    }
    // Writers of a group may have had their newest overwritten by others, in a ring.
    let is_there = if has_wrapped { records > 0 } else { records == measurement.records && writers <= cell.writers };
    if is_there {
        return Ok(());
    }
    let said = format!("{} records were acknowledged but {records} are stored: {cell}", measurement.records);
    Err(Trouble::Io(io::Error::other(said)))
}
