//! Group commit: writers submit lots of records to one committer, which makes one write and one sync of everything
//! submitted while it was busy with the previous one.
//!
//! Writers in a closed loop fall into two halves that way: those answered by one commit submit again while the next,
//! with the others, is in progress. Stentor's committer waits for them where a sync is slow
//! ([`stentor_journal::Pace`]); so does this one if asked to.
//!
//! States of a lot: submitted (in `buffer`), in progress (the committer has it), durable. A full file ends the work:
//! lots not durable by then are not counted. An error also ends it, and is the committer's result.

use std::io;
use std::sync::{Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stentor_journal::Pace;
use stentor_measure::Stop;

use super::medium::{Log, Trouble, nanos_since};
use super::plan::{Cell, Commit};
use super::record::Template;
use super::share::{Bounds, Share, Site, panicked};

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    lots: u64,
    /// Number of the commit that `buffer` will be in.
    next: u64,
    /// Number of the last durable commit.
    durable: u64,
    /// Writers that have not ended.
    writers: u64,
    /// None: it waits for a fixed time, or not at all.
    pace: Option<Pace>,
    /// When the latest lot was handed in.
    latest: Option<Instant>,
    /// Nothing more is made durable.
    has_ended: bool,
}

#[derive(Default)]
pub struct Group {
    state: Mutex<State>,
    /// For the committer: something was handed in, or a writer ended.
    work: Condvar,
    /// For writers: a commit is durable, or there is room again.
    done: Condvar,
    lots_max: u64,
}

impl State {
    /// How long to wait for another lot, begun at `begin`; none if not any more.
    fn patience(&self, begin: Instant, gather: Duration) -> Option<Duration> {
        let until = match &self.pace {
            None => begin + gather,
            Some(pace) if pace.is_complete(self.lots as usize) => return None,
            Some(pace) => {
                let quiet = self.latest.map_or(begin, |latest| latest.max(begin)) + pace.quiet();
                quiet.min(begin + pace.patience())
            }
        };
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Poisoned by a panic that has been said.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the lot is durable; false if it never will be.
    pub fn hand_in(&self, lot: &[u8]) -> bool {
        let wait = |state| self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        while state.lots >= self.lots_max && !state.has_ended {
            state = wait(state);
        }
        if state.has_ended {
            return false;
        }
        state.buffer.extend_from_slice(lot);
        state.lots += 1;
        state.latest = Some(Instant::now());
        let ours = state.next;
        self.work.notify_one();
        while state.durable < ours && !state.has_ended {
            state = wait(state);
        }
        state.durable >= ours
    }

    /// All that was handed in, into `buffer`; none when all writers have ended.
    fn take(&self, buffer: &mut Vec<u8>, gather: Duration) -> Option<(u64, u64)> {
        let mut state = self.lock();
        while state.lots == 0 {
            if state.writers == 0 {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let begin = Instant::now();
        while state.lots < state.writers.min(self.lots_max) {
            let Some(left) = state.patience(begin, gather) else { break };
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        buffer.clear();
        std::mem::swap(buffer, &mut state.buffer);
        let taken = (state.next, std::mem::take(&mut state.lots));
        state.next += 1;
        self.done.notify_all();
        Some(taken)
    }

    fn set_durable(&self, commit: u64, lots: u64, took: Duration) {
        let mut state = self.lock();
        state.durable = commit;
        if let Some(pace) = &mut state.pace {
            pace.synced(lots as usize, took);
        }
        self.done.notify_all();
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.done.notify_all();
    }

    fn writer_ends(&self) {
        self.lock().writers -= 1;
        self.work.notify_one();
    }

    fn commit_all(&self, log: &mut dyn Log, gather: Duration) -> io::Result<Share> {
        let mut share = Share::default();
        let mut buffer = Vec::new();
        while let Some((commit, lots)) = self.take(&mut buffer, gather) {
            if !log.has_room(buffer.len() as u64) {
                break;
            }
            let begin = Instant::now();
            log.append(&buffer)?;
            share.sync.add(log.commit()?);
            share.commits += 1;
            self.set_durable(commit, lots, begin.elapsed());
        }
        Ok(share)
    }
}

/// Runs a writer, which the committer serves, on the calling thread.
fn hand_in_all(group: &Group, cell: &Cell, bounds: &Bounds, stop: &Stop, template: &mut Template) -> Share {
    let records_max = bounds.records.div_ceil(cell.writers);
    let mut share = Share::default();
    let mut lot = Vec::with_capacity(cell.lot_bytes() as usize);
    let begin = Instant::now();
    let is_over = |share: &Share| share.records > 0 && begin.elapsed() >= bounds.time || share.records >= records_max;
    while !is_over(&share) && !stop.is_set() {
        let handed_in = Instant::now();
        lot.clear();
        for number in share.records + 1..=share.records + cell.per_sync {
            lot.extend_from_slice(template.stamped(number));
        }
        if !group.hand_in(&lot) {
            break;
        }
        share.wait.add(nanos_since(handed_in));
        share.records += cell.per_sync;
    }
    share.span = Some((begin, Instant::now()));
    share
}

/// The committer is a thread beside the writers' own. The last share is its.
pub fn run(log: &mut dyn Log, cell: &Cell, bounds: &Bounds, site: &Site, epoch: u32) -> Result<Vec<Share>, Trouble> {
    let pace = (cell.commit == Commit::Paced).then(Pace::default);
    let state = State { writers: cell.writers, next: 1, pace, ..State::default() };
    let group = Group { state: Mutex::new(state), lots_max: cell.lots_max(), ..Group::default() };
    let barrier = Barrier::new(cell.writers as usize);
    let write = |writer: u64| {
        let mut template = Template::new(cell.record_bytes as usize, epoch, writer as u32);
        barrier.wait();
        let share = hand_in_all(&group, cell, bounds, site.stop, &mut template);
        group.writer_ends();
        share
    };
    let (group, write) = (&group, &write);
    let outcomes: Vec<io::Result<Share>> = std::thread::scope(|scope| {
        let committer = scope.spawn(move || {
            let outcome = group.commit_all(log, bounds.gather);
            group.end();
            outcome
        });
        let mut threads: Vec<_> = (0..cell.writers).map(|n| scope.spawn(move || Ok(write(n)))).collect();
        threads.push(committer);
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    Ok(outcomes.into_iter().collect::<io::Result<Vec<_>>>()?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::log::medium::FileLog;
    use crate::log::plan::{FileKind, SyncCall, Way};

    fn cell(writers: u64, per_sync: u64) -> Cell {
        let (file, way, sync) = (FileKind::Growing, Way::Pwrite, SyncCall::Fdatasync);
        Cell { record_bytes: 512, per_sync, file, way, sync, writers, commit: Commit::Grouped }
    }

    fn bounds(records: u64) -> Bounds {
        let (time, gather) = (Duration::from_mins(10), Duration::ZERO);
        Bounds { time, records, file_bytes: 1 << 20, gather, reuse: false, verify: false }
    }

    fn shares(folder: &Path, log: &mut dyn Log, cell: &Cell, bounds: &Bounds) -> Vec<Share> {
        let stop = Stop::never();
        run(log, cell, bounds, &Site { folder, device: None, block: 512, stop: &stop }, 9).unwrap()
    }

    #[test]
    fn every_record_of_every_writer_is_in_the_one_file_once() {
        let folder = tempfile::tempdir().unwrap();
        for (writers, per_sync, gather_ms) in [(1, 1, 0), (7, 1, 0), (7, 3, 5), (40, 2, 0)] {
            let cell = cell(writers, per_sync);
            let mut log = FileLog::open(folder.path(), 0, 1 << 20, &cell, false, 512).unwrap();
            let bounds = Bounds { gather: Duration::from_millis(gather_ms), ..bounds(writers * per_sync * 4) };
            let shares = shares(folder.path(), &mut log, &cell, &bounds);
            let found = log.found(512, 9).unwrap();
            assert_eq!(found.records, writers * per_sync * 4);
            assert_eq!(found.newest, (0..writers as u32).map(|writer| (writer, per_sync * 4)).collect());
            let committer = shares.last().unwrap();
            assert!((4..=writers * 4).contains(&committer.commits), "{}", committer.commits);
            assert_eq!(committer.sync.count(), committer.commits);
        }
    }

    #[test]
    fn a_full_file_ends_it_and_only_what_is_durable_counts() {
        let folder = tempfile::tempdir().unwrap();
        let cell = cell(5, 2);
        let mut log = FileLog::open(folder.path(), 0, 50 * 512, &cell, false, 512).unwrap();
        let shares = shares(folder.path(), &mut log, &cell, &bounds(1_000_000));
        let counted: u64 = shares.iter().map(|share| share.records).sum();
        assert_eq!(counted, log.found(512, 9).unwrap().records);
        assert!((42..=50).contains(&counted), "{counted}");
    }

    /// A log whose syncs take this long, on a device of its own.
    struct Slow(Duration);

    impl Log for Slow {
        fn has_room(&mut self, _: u64) -> bool {
            true
        }
        fn append(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn commit(&mut self) -> io::Result<u64> {
            std::thread::sleep(self.0);
            Ok(1)
        }
        fn found(&mut self, _: usize, _: u32) -> io::Result<crate::log::record::EpochRecords> {
            Ok(crate::log::record::EpochRecords::default())
        }
        fn has_wrapped(&self) -> bool {
            false
        }
    }

    /// Only that both ways serve every writer: how many share a commit follows from the scheduler.
    #[test]
    fn a_committer_that_waits_serves_all_too() {
        let folder = tempfile::tempdir().unwrap();
        for commit in [Commit::Grouped, Commit::Paced] {
            let cell = Cell { commit, ..cell(8, 1) };
            let shares = shares(folder.path(), &mut Slow(Duration::from_millis(8)), &cell, &bounds(8 * 12));
            assert_eq!(shares.iter().map(|share| share.records).sum::<u64>(), 8 * 12);
            let commits = shares.last().unwrap().commits;
            assert!((12..=8 * 12).contains(&commits), "{commits}");
        }
    }

    #[test]
    fn who_waits_is_told_until_when() {
        let ms = Duration::from_millis;
        let now = Instant::now();
        let fixed = State::default();
        assert_eq!(fixed.patience(now, Duration::ZERO), None);
        assert!(fixed.patience(now, Duration::from_mins(9)).is_some());
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.synced(11, Duration::from_mins(1)));
        let mut state = State { lots: 9, pace: Some(pace), latest: Some(now), ..State::default() };
        let left = state.patience(now + Duration::from_mins(1), ms(0)).unwrap();
        assert!(left > Duration::from_secs(50), "arrivals of just now are waited behind: {left:?}");
        state.lots = 11;
        assert_eq!(state.patience(now, ms(1000)), None, "as many as the last times");
        assert_eq!(State { lots: 1, pace: Some(Pace::default()), ..State::default() }.patience(now, ms(1000)), None);
    }

    /// A log that fails after some commits.
    struct Failing(u32);

    impl Log for Failing {
        fn has_room(&mut self, _: u64) -> bool {
            true
        }
        fn append(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn commit(&mut self) -> io::Result<u64> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            Ok(1)
        }
        fn found(&mut self, _: usize, _: u32) -> io::Result<crate::log::record::EpochRecords> {
            Ok(crate::log::record::EpochRecords::default())
        }
        fn has_wrapped(&self) -> bool {
            false
        }
    }

    #[test]
    fn an_error_ends_all_writers() {
        let stop = Stop::never();
        let site = Site { folder: Path::new("/"), device: None, block: 512, stop: &stop };
        let failed = run(&mut Failing(3), &cell(4, 1), &bounds(1_000_000), &site, 1);
        assert!(matches!(failed, Err(Trouble::Io(error)) if error.kind() == io::ErrorKind::StorageFull));
    }
}
