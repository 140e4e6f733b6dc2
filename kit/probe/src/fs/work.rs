//! Cycles of queue files, timed step by step: the work of one process.
//!
//! All processes work in the same directories, under different names, and contend there as a mail server's processes
//! do. Names look random, since their hash selects the directory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stentor_measure::{Histogram, Stop};

use super::case::{Case, Names, Sync};

/// Steps of a cycle, in their order. `Open` is creation or, for reused files, taking one from the pool and
/// opening it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Open,
    Write,
    SyncFile,
    Close,
    SyncDirectory,
    RenameActive,
    RenameDeferred,
    Remove,
}

impl Step {
    pub const ALL: [Step; 8] = [
        Step::Open,
        Step::Write,
        Step::SyncFile,
        Step::Close,
        Step::SyncDirectory,
        Step::RenameActive,
        Step::RenameDeferred,
        Step::Remove,
    ];

    pub fn name(self, names: Names) -> &'static str {
        match (self, names) {
            (Step::Open, Names::New) => "create",
            (Step::Open, Names::Reused) => "open",
            (Step::Write, _) => "write",
            (Step::SyncFile, _) => "sync file",
            (Step::Close, _) => "close",
            (Step::SyncDirectory, _) => "sync directory",
            (Step::RenameActive, _) => "rename to active",
            (Step::RenameDeferred, _) => "rename to deferred",
            (Step::Remove, Names::New) => "remove",
            (Step::Remove, Names::Reused) => "give back",
        }
    }
}

/// Times in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    pub cycle: Histogram,
    /// From the first step until 250 could be said.
    pub accept: Histogram,
    pub steps: [Histogram; 8],
    /// Sums of the steps.
    pub sums: [u64; 8],
}

impl Times {
    pub fn merge(&mut self, other: &Times) {
        self.cycle.merge(&other.cycle);
        self.accept.merge(&other.accept);
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.sums.iter_mut().zip(other.sums) {
            *mine += theirs;
        }
    }
}

const QUEUES: [&str; 4] = ["incoming", "active", "deferred", "pool"];
const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
/// Files of the pool that each process has in turn, where they are reused.
pub const POOL_FILES: u32 = 64;
/// A larger file is written in pieces of this.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// A new folder with its queues, and the directories below them.
pub fn lay_out(case: &Case, folder: &Path) -> io::Result<OwnedFd> {
    std::fs::create_dir(folder)?;
    let root: OwnedFd = File::open(folder)?.into();
    for queue in QUEUES {
        let mut level = vec![PathBuf::from(queue)];
        mkdirat(&root, queue, Mode::RWXU)?;
        for _ in 0..case.hash_depth {
            let next = level.iter().flat_map(|parent| HEX.map(|digit| parent.join(digit.to_string())));
            level = next.collect();
            for path in &level {
                mkdirat(&root, path, Mode::RWXU)?;
            }
        }
    }
    Ok(root)
}

/// A process of the queue, in a folder that is laid out.
pub struct Worker {
    case: Case,
    root: OwnedFd,
    content: Vec<u8>,
    names: fastrand::Rng,
    number: u32,
    made: u64,
    /// In `deferred`, oldest first.
    queued: VecDeque<String>,
    pool: VecDeque<String>,
    pub times: Times,
}

impl Worker {
    pub fn new(case: &Case, root: OwnedFd, number: u32) -> Worker {
        let mut rng = fastrand::Rng::with_seed(u64::from(number) + 1);
        // Nothing that a file system could compress.
        let mut content = vec![0; case.size.min(CONTENT_BYTES_MAX) as usize];
        rng.fill(&mut content);
        Worker {
            case: *case,
            root,
            content,
            names: rng,
            number,
            made: 0,
            queued: VecDeque::new(),
            pool: VecDeque::new(),
            times: Times::default(),
        }
    }

    /// Files that are there before: in the queue, and in the pool.
    pub fn fill(&mut self, queued: u32, stop: &Stop) -> Result<(), Errno> {
        let pool = if self.case.names == Names::Reused { POOL_FILES + queued } else { 0 };
        for number in 0..queued + pool {
            if stop.is_set() {
                break;
            }
            let name = self.new_name();
            let in_queue = number < queued;
            let path = self.path(if in_queue { "deferred" } else { "pool" }, &name);
            let file =
                openat(&self.root, &path, OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
            write(&file, &self.content, self.case.size)?;
            if in_queue { &mut self.queued } else { &mut self.pool }.push_back(name);
        }
        Ok(())
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("{:08x}{:x}x{:x}", self.names.u32(..), self.made, self.number)
    }

    /// Below the root: `incoming/3/a/3a...`.
    fn path(&self, queue: &str, name: &str) -> String {
        let mut path = queue.to_owned();
        for digit in name.chars().take(self.case.hash_depth as usize) {
            path.push('/');
            path.push(digit);
        }
        path.push('/');
        path.push_str(name);
        path
    }

    pub fn work(&mut self, files: u32, time_max: Duration, stop: &Stop) -> Result<(), Errno> {
        let end = Instant::now() + time_max;
        for _ in 0..files {
            if stop.is_set() || self.cycle()? >= end {
                break;
            }
        }
        Ok(())
    }

    /// A file from its creation, and the oldest to its end; when that was.
    fn cycle(&mut self) -> Result<Instant, Errno> {
        let case = self.case;
        let reused = self.pool.pop_front();
        let name = reused.clone().unwrap_or_else(|| self.new_name());
        let (incoming, pooled) = (self.path("incoming", &name), self.path("pool", &name));
        let root = &self.root;
        let began = Instant::now();
        if reused.is_some() {
            renameat(root, pooled, root, &incoming)?;
        }
        let mut clock = Clock { last: began, times: &mut self.times };
        let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if case.names == Names::New {
            flags |= OFlags::CREATE | OFlags::EXCL;
        }
        let file = openat(root, &incoming, flags, Mode::RUSR | Mode::WUSR)?;
        clock.step(Step::Open);
        write(&file, &self.content, case.size)?;
        clock.step(Step::Write);
        if case.sync.file() {
            fsync(&file)?;
            clock.step(Step::SyncFile);
        }
        drop(file);
        clock.step(Step::Close);
        if case.sync.directory() {
            sync_directory(root, &incoming)?;
            clock.step(Step::SyncDirectory);
        }
        let accepted = clock.last;
        let accept_ns = nanoseconds(accepted - began);
        self.times.accept.add(accept_ns);
        self.move_on(name, accepted, began)
    }

    /// The renames, and the end of the oldest.
    fn move_on(&mut self, name: String, accepted: Instant, began: Instant) -> Result<Instant, Errno> {
        let case = self.case;
        let paths = ["incoming", "active", "deferred"].map(|queue| self.path(queue, &name));
        self.queued.push_back(name);
        let oldest = self.queued.pop_front().unwrap_or_default();
        let (end, pool) = (self.path("deferred", &oldest), self.path("pool", &oldest));
        let every = case.sync == Sync::Every;
        let root = &self.root;
        let mut clock = Clock { last: accepted, times: &mut self.times };
        let steps = [Step::RenameActive, Step::RenameDeferred];
        for (pair, step) in paths.windows(2).zip(steps) {
            renameat(root, &pair[0], root, &pair[1])?;
            clock.step(step);
            if every {
                sync_directory(root, &pair[1])?;
                clock.step(Step::SyncDirectory);
            }
        }
        if case.names == Names::New {
            unlinkat(root, &end, AtFlags::empty())?;
        } else {
            renameat(root, &end, root, &pool)?;
        }
        clock.step(Step::Remove);
        if every {
            sync_directory(root, &end)?;
            clock.step(Step::SyncDirectory);
        }
        let now = clock.last;
        self.times.cycle.add(nanoseconds(now - began));
        if case.names == Names::Reused {
            self.pool.push_back(oldest);
        }
        Ok(now)
    }
}

/// Gives the time since the last step to this one.
struct Clock<'t> {
    last: Instant,
    times: &'t mut Times,
}

impl Clock<'_> {
    fn step(&mut self, step: Step) {
        let now = Instant::now();
        let took = nanoseconds(now - self.last);
        self.times.steps[step as usize].add(took);
        self.times.sums[step as usize] += took;
        self.last = now;
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Opens the directory of a path, syncs and closes it, as programs do.
fn sync_directory(root: &OwnedFd, path: &str) -> Result<(), Errno> {
    let directory = path.rsplit_once('/').map_or(".", |(directory, _)| directory);
    let directory = openat(root, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    fsync(&directory)
}

/// So many octets, the content again and again.
fn write(file: &OwnedFd, content: &[u8], mut left: u64) -> Result<(), Errno> {
    while left > 0 {
        match rustix::io::write(file, &content[..left.min(content.len() as u64) as usize]) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => left -= written as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_below(folder: &Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
    }

    fn sizes_below(folder: &Path) -> Vec<u64> {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let of = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
            data if data.is_dir() => sizes_below(&entry.path()),
            data => vec![data.len()],
        };
        entries.flat_map(of).collect()
    }

    #[test]
    fn every_way_does_all_cycles_and_leaves_what_it_should() {
        let home = tempfile::tempdir().unwrap();
        for (number, (names, sync)) in [
            (Names::New, Sync::None),
            (Names::New, Sync::File),
            (Names::Reused, Sync::Both),
            (Names::New, Sync::Every),
            (Names::Reused, Sync::Directory),
        ]
        .into_iter()
        .enumerate()
        {
            for (hash_depth, size) in [(0, 700), (1, CONTENT_BYTES_MAX + 700)] {
                let case = Case { names, hash_depth, size, processes: 2, sync };
                let folder = home.path().join(format!("{number}-{hash_depth}"));
                let root = lay_out(&case, &folder).unwrap();
                let mut all = Times::default();
                // One after the other: that two do it at once is tested with the binary.
                for number in 0..2 {
                    let mut worker = Worker::new(&case, root.try_clone().unwrap(), number);
                    worker.fill(3, &Stop::never()).unwrap();
                    worker.work(20, Duration::from_mins(10), &Stop::never()).unwrap();
                    assert_eq!(worker.times.cycle.count(), 20, "{case:?}");
                    all.merge(&worker.times);
                }
                assert_eq!(all.accept.count(), 40);
                let synced = |step: Step| all.steps[step as usize].count();
                assert_eq!(synced(Step::SyncFile) > 0, sync.file());
                let directories = match sync {
                    Sync::Every => 160,
                    sync if sync.directory() => 40,
                    _ => 0,
                };
                assert_eq!(synced(Step::SyncDirectory), directories);
                assert_eq!(files_below(&folder.join("deferred")), 6);
                let pool = if names == Names::Reused { 2 * (POOL_FILES as usize + 3) } else { 0 };
                assert_eq!(files_below(&folder), 6 + pool);
                assert!(sizes_below(&folder).iter().all(|each| *each == size), "{case:?}");
                assert!(all.sums.iter().sum::<u64>() > 0);
            }
        }
    }

    #[test]
    fn a_stop_ends_it() {
        let home = tempfile::tempdir().unwrap();
        let stop = Stop::never();
        stop.set();
        let case = Case { names: Names::New, hash_depth: 0, size: 10, processes: 1, sync: Sync::None };
        let mut worker = Worker::new(&case, lay_out(&case, &home.path().join("x")).unwrap(), 0);
        worker.work(20, Duration::from_mins(10), &stop).unwrap();
        assert_eq!(worker.times.cycle.count(), 0);
    }
}
