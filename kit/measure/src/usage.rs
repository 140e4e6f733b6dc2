//! The cost of a process tree, measured by the kernel and not by the processes.
//!
//! A [`Group`] is a control group (version 1 or 2) that contains a tree: its CPU time includes exited children, and its
//! reads and writes are those that reached the block device. Without one, or for processes that already run,
//! [`Tree::Processes`] walks procfs from a process down: it misses children that nobody waited for, and daemons that
//! left the tree. Syncs are system calls counted by a tracepoint (`perf stat`), which neither stops nor slows the
//! caller.
//!
//! What this machine cannot count is `None`, never estimated.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::guardian::{Guarded, Guardian, quoted};

/// Version 1 counts a device's requests only where a limit is set; this one is never reached.
const UNLIMITED: u64 = 1_000_000_000;
const SYNC_CALLS: [&str; 6] = ["fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"];
const SYNC_INTERVAL_MS: u64 = 50;

/// Since the tree began; two of them make a difference.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// User and system.
    pub cpu_s: Option<f64>,
    /// Requests that the device got.
    pub writes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub reads: Option<u64>,
    pub read_bytes: Option<u64>,
    /// Sum of the greatest resident sizes of the processes that live now.
    pub memory_peak_kib: Option<u64>,
    /// Resident now, shared pages divided among those that share them.
    pub memory_pss_kib: Option<u64>,
    pub processes: usize,
}

/// Whose.
#[derive(Debug)]
pub enum Tree {
    Group(Group),
    /// This process and its descendants.
    Processes(u32),
    /// Nothing is known of it.
    Unknown,
}

impl Tree {
    /// `device` is the number (`254:0`) whose requests are asked for.
    pub fn usage(&self, device: Option<&str>) -> Usage {
        let pids = self.pids();
        let mut usage = match self {
            Tree::Group(group) => group.usage(device),
            Tree::Processes(_) => by_processes(&pids),
            Tree::Unknown => Usage::default(),
        };
        usage.processes = pids.len();
        if !pids.is_empty() {
            let sum = |file: &str, key: &str| pids.iter().filter_map(|pid| kib(*pid, file, key)).sum::<u64>();
            usage.memory_peak_kib = Some(sum("status", "VmHWM:")).filter(|kib| *kib > 0);
            usage.memory_pss_kib = Some(sum("smaps_rollup", "Pss:")).filter(|kib| *kib > 0);
        }
        usage
    }

    /// Of the processes that live now.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Tree::Group(group) => group.pids(),
            Tree::Processes(root) => descendants(*root, &parents()),
            Tree::Unknown => Vec::new(),
        }
    }
}

/// Whole lines `Key:   123 kB`.
fn kib(pid: u32, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The fields of `/proc/PID/stat` behind the name, which may have blanks and brackets: from `state` on.
pub(crate) fn stat_fields(text: &str) -> Option<Vec<&str>> {
    Some(text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect())
}

/// Each process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat_fields(&text)?.get(1)?.parse().ok()?))
    })
    .collect()
}

fn descendants(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found: Vec<u32> = parents.iter().map(|(pid, _)| *pid).filter(|pid| *pid == root).collect();
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(pid, of)| *of == parent && *pid != parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

fn by_processes(pids: &[u32]) -> Usage {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let ticks = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // utime, stime, and those of children that were waited for: fields 14 to 17.
        let fields = stat_fields(&text)?;
        fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()
    };
    let octets = |key: &str| {
        let one = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            text.lines().find_map(|line| line.strip_prefix(key)?.parse::<u64>().ok())
        };
        let all: Vec<u64> = pids.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.iter().sum())
    };
    let all: Vec<u64> = pids.iter().filter_map(ticks).collect();
    Usage {
        cpu_s: (!all.is_empty()).then(|| all.iter().sum::<u64>() as f64 / ticks_per_s),
        written_bytes: octets("write_bytes: "),
        read_bytes: octets("read_bytes: "),
        ..Usage::default()
    }
}

/// Where the controllers are mounted.
#[derive(Debug, Default, PartialEq)]
struct Mounts {
    cpuacct: Option<PathBuf>,
    blkio: Option<PathBuf>,
    unified: Option<PathBuf>,
}

fn mounts(mountinfo: &str) -> Mounts {
    let mut found = Mounts::default();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut right = right.split(' ');
        let kind = right.next().unwrap_or_default();
        let options: Vec<&str> = right.next_back().unwrap_or_default().split(',').collect();
        match kind {
            "cgroup" if options.contains(&"cpuacct") => found.cpuacct = Some(point),
            "cgroup" if options.contains(&"blkio") => found.blkio = Some(point),
            "cgroup2" => found.unified = Some(point),
            _ => {}
        }
    }
    found
}

/// A control group. One that was made here is removed when dropped; what still lives in it is killed.
#[derive(Debug)]
pub struct Group {
    /// `cpuacct.usage` or `cpu.stat`.
    cpu: PathBuf,
    /// `blkio.throttle.*` or `io.stat`.
    io: Option<PathBuf>,
    is_made: bool,
    /// None for one that was not made here, or where there is no shell.
    _guarded: Option<Guarded>,
}

impl Group {
    /// A new, empty one. `device` is what it will read and write. Needs root.
    pub fn make(name: &str, device: Option<&str>) -> io::Result<Group> {
        let mounts = mounts(&fs::read_to_string("/proc/self/mountinfo")?);
        let name = format!("stentor-probe-{}-{name}", std::process::id());
        let (cpu, io) = match (&mounts.cpuacct, &mounts.unified) {
            (Some(cpuacct), _) => (cpuacct.join(&name), mounts.blkio.map(|blkio| blkio.join(&name))),
            (None, Some(unified)) => {
                // Without it writes are not counted; CPU is in any case.
                let _ = fs::write(unified.join("cgroup.subtree_control"), "+io");
                (unified.join(&name), Some(unified.join(&name)))
            }
            (None, None) => return Err(io::Error::other("control groups are not mounted")),
        };
        // Our own name: nobody else's group can have it while we live.
        let guarded = Guardian::shared().and_then(|guardian| guardian.guard(&undo(&cpu, io.as_deref()))).ok();
        // Refused where there is one of that name: only then what lives in it is ours to end.
        fs::create_dir(&cpu)?;
        let mut group = Group { cpu, io, is_made: true, _guarded: guarded };
        if let Some(io) = &group.io
            && *io != group.cpu
        {
            fs::create_dir(io)?;
            if let Some(device) = device {
                let unlimited = |name| fs::write(io.join(name), format!("{device} {UNLIMITED}"));
                let names = ["blkio.throttle.write_iops_device", "blkio.throttle.read_iops_device"];
                if names.into_iter().any(|name| unlimited(name).is_err()) {
                    fs::remove_dir(io)?;
                    group.io = None;
                }
            }
        }
        Ok(group)
    }

    /// One that exists: the directory in a hierarchy that has `cpuacct` or is of version 2.
    pub fn open(path: &Path) -> io::Result<Group> {
        if !path.join("cpuacct.usage").exists() && !path.join("cpu.stat").exists() {
            return Err(io::Error::other("not a control group with CPU accounting"));
        }
        let io = path.join("io.stat").exists().then(|| path.to_owned());
        Ok(Group { cpu: path.to_owned(), io, is_made: false, _guarded: None })
    }

    /// Files that a process writes its number to, to enter.
    pub fn entries(&self) -> Vec<PathBuf> {
        let mut folders = vec![&self.cpu];
        folders.extend(self.io.as_ref().filter(|io| **io != self.cpu));
        folders.into_iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    pub fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.cpu.join("cgroup.procs")).unwrap_or_default();
        let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn usage(&self, device: Option<&str>) -> Usage {
        let read = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).ok();
        let by_ns = || Some(read(&self.cpu, "cpuacct.usage")?.trim().parse::<u64>().ok()? as f64 / 1e9);
        let by_us = || {
            let text = read(&self.cpu, "cpu.stat")?;
            let us: u64 = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
            Some(us as f64 / 1e6)
        };
        let mut usage = Usage { cpu_s: by_ns().or_else(by_us), ..Usage::default() };
        if let (Some(io), Some(device)) = (&self.io, device) {
            if let Some(text) = read(io, "io.stat") {
                let count = |key| Some(field(&text, device, key).unwrap_or(0));
                (usage.writes, usage.written_bytes) = (count("wios="), count("wbytes="));
                (usage.reads, usage.read_bytes) = (count("rios="), count("rbytes="));
            } else {
                let count = |name, key| Some(field(&read(io, name)?, device, key).unwrap_or(0));
                let [requests, bytes] = ["blkio.throttle.io_serviced", "blkio.throttle.io_service_bytes"];
                (usage.writes, usage.written_bytes) = (count(requests, "Write "), count(bytes, "Write "));
                (usage.reads, usage.read_bytes) = (count(requests, "Read "), count(bytes, "Read "));
            }
        }
        usage
    }
}

/// The guardian's way: ends what lives in it, and removes it.
fn undo(cpu: &Path, io: Option<&Path>) -> String {
    let cpu_folder = quoted(cpu);
    let folders = io.map_or_else(String::new, quoted);
    format!(
        "for t in 1 2 3 4 5 6 7 8 9 10; do for p in $(cat {cpu_folder}/cgroup.procs); do kill -9 $p; done; \
         rmdir {cpu_folder} {folders}; [ -d {cpu_folder} ] || break; sleep 0.2; done"
    )
}

/// Of lines that begin with a device's number: what follows the key.
fn field(text: &str, device: &str, key: &str) -> Option<u64> {
    text.lines().filter_map(|line| line.strip_prefix(device)?.strip_prefix(' ')).find_map(|rest| {
        let value = &rest[rest.find(key)? + key.len()..];
        value.split_ascii_whitespace().next()?.parse().ok()
    })
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_made {
            return;
        }
        // All that is in it was started here.
        for _ in 0..200 {
            let pids = self.pids();
            if pids.is_empty() {
                break;
            }
            for pid in pids {
                signal(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_dir(&self.cpu);
        if let Some(io) = self.io.as_ref().filter(|io| **io != self.cpu) {
            let _ = fs::remove_dir(io);
        }
    }
}

/// To a process that may have gone.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Counts the sync calls of a command and of all that it starts, or of processes that run.
#[derive(Debug)]
pub struct SyncCount {
    file: PathBuf,
    /// Where it watches processes that run already.
    perf: Option<Child>,
    guarded: Option<Guarded>,
}

impl SyncCount {
    /// Whether this machine can. It runs `perf`.
    pub fn is_possible() -> bool {
        let trial = Command::new("perf").args(["stat", "-x,", "-e", &events(), "true"]).stdin(Stdio::null()).output();
        trial
            .is_ok_and(|done| done.status.success() && !String::from_utf8_lossy(&done.stderr).contains("not supported"))
    }

    /// The count stands in this file, which is replaced.
    pub fn new(file: PathBuf) -> SyncCount {
        SyncCount { file, perf: None, guarded: None }
    }

    fn perf(&self) -> Vec<String> {
        let words = ["perf", "stat", "-x,", "-I", &SYNC_INTERVAL_MS.to_string(), "-o"].map(str::to_owned);
        words.into_iter().chain([self.file.display().to_string(), "-e".to_owned(), events()]).collect()
    }

    /// A command, counted.
    pub fn wrap(&self, command: &[String]) -> Vec<String> {
        let mut all = self.perf();
        all.push("--".to_owned());
        all.extend_from_slice(command);
        all
    }

    /// Counts these and what they start from now on.
    pub fn watch(&mut self, pids: &[u32]) -> io::Result<()> {
        let perf = self.perf();
        let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&perf[0]);
        command.args(&perf[1..]).args(["-p", &pids]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        let undo = format!("kill -s INT {}; sleep 1; rm -f {}", child.id(), quoted(&self.file));
        self.guarded = Guardian::shared().and_then(|guardian| guardian.guard(&undo)).ok();
        self.perf = Some(child);
        Ok(())
    }

    /// So far. Waits for the next report of those that count.
    pub fn count(&self) -> Option<u64> {
        std::thread::sleep(Duration::from_millis(3 * SYNC_INTERVAL_MS));
        counted(&fs::read_to_string(&self.file).ok()?)
    }
}

impl Drop for SyncCount {
    fn drop(&mut self) {
        if let Some(perf) = &mut self.perf {
            signal(perf.id(), Signal::INT);
            let _ = perf.wait();
            let _ = fs::remove_file(&self.file);
        }
        self.guarded = None;
    }
}

fn events() -> String {
    SYNC_CALLS.map(|call| format!("syscalls:sys_enter_{call}")).join(",")
}

/// Lines `0.050,12,,syscalls:sys_enter_fsync,...`; `<not counted>` is 0, as while nothing runs.
fn counted(text: &str) -> Option<u64> {
    let lines = text.lines().filter(|line| line.contains(",syscalls:"));
    let counts: Vec<u64> = lines.filter_map(|line| Some(line.split(',').nth(1)?.parse().unwrap_or(0))).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn controllers_are_found_in_both_versions() {
        let text = "30 20 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    31 20 0:27 / /sys/fs/cgroup/blkio rw shared:9 - cgroup cgroup rw,blkio\n\
                    32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                    33 20 254:0 / / rw - ext4 /dev/vda rw\n";
        let found = mounts(text);
        assert_eq!(found.cpuacct.as_deref(), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(found.blkio.as_deref(), Some(Path::new("/sys/fs/cgroup/blkio")));
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn writes_of_the_right_device_are_read_in_both_versions() {
        let one = "254:0 Read 7\n254:0 Write 42\n254:0 Sync 3\n7:1 Write 9\nTotal 60\n";
        assert_eq!((field(one, "254:0", "Write "), field(one, "7:1", "Write ")), (Some(42), Some(9)));
        assert_eq!(field(one, "254:0", "Read "), Some(7));
        let two = "254:0 rbytes=1 wbytes=4096 rios=2 wios=5 dbytes=0 dios=0\n";
        assert_eq!((field(two, "254:0", "wbytes="), field(two, "254:0", "wios=")), (Some(4096), Some(5)));
        assert_eq!(field(two, "54:0", "wios="), None);
    }

    #[test]
    fn syncs_are_added_up_and_nothing_is_not_zero() {
        let text = "# started\n     0.050123456,3,,syscalls:sys_enter_fsync,1,100.00,,\n\
                    0.050123456,<not counted>,,syscalls:sys_enter_sync,0,,,\n0.1,4,,syscalls:sys_enter_fsync,1,100.00,,\n";
        assert_eq!(counted(text), Some(7));
        assert_eq!(counted("# started\n"), None);
    }

    #[test]
    fn the_guardian_ends_what_lives_in_a_group() {
        let Ok(group) = Group::make("guarded", None) else {
            assert!(std::env::var_os("STENTOR_NO_SKIP").is_none(), "control groups need root");
            // Past the capture of output, so that nobody overlooks it.
            let _ = writeln!(
                std::io::stderr(),
                "\n*** SKIPPED the_guardian_ends_what_lives_in_a_group: no control groups ***"
            );
            return;
        };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        for entry in group.entries() {
            fs::write(entry, child.id().to_string()).unwrap();
        }
        // A second one of the same name is refused, and ends nobody.
        assert!(Group::make("guarded", None).is_err());
        assert_eq!(group.pids(), [child.id()]);
        Command::new("sh").args(["-c", &undo(&group.cpu, group.io.as_deref())]).status().unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(group.entries().iter().all(|entry| !entry.exists()));
    }

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let fields = stat_fields("12 (a) b) S 1 12 12 0 -1 0 0 0 0 0 5 6 7 8").unwrap();
        assert_eq!((fields[0], fields[1], fields[11]), ("S", "1", "5"));
        assert_eq!(descendants(1, &[(1, 0), (2, 1), (3, 2), (4, 9)]), [1, 2, 3]);
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let mut x = 0u64;
        let tree = Tree::Processes(std::process::id());
        // Until the kernel has counted a tick.
        while tree.usage(None).cpu_s == Some(0.0) {
            x = std::hint::black_box(x.wrapping_add(1));
        }
        let usage = tree.usage(None);
        assert!(usage.cpu_s > Some(0.0) && usage.memory_peak_kib > Some(0) && usage.processes >= 1, "{usage:?}");
        assert_eq!(Tree::Unknown.usage(None), Usage::default());
    }
}
