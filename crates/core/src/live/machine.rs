//! Load of the machine and this process, from `/proc`: rates since the previous sample.
//!
//! Promise: a sample reads eight small files, some 200 us; one of them is kept open. Values that cannot be read or
//! parsed are zero. Partitions, loop devices and memory disks are excluded from the disks' sums, as is the loopback
//! interface from the network's, so that nothing is counted twice.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use stentor_queue::ids::Ms;
use stentor_records::now::MachineNow;

const SECTOR_BYTES: u64 = 512;

/// Counters since the start of the machine or process.
#[derive(Clone, Default, PartialEq, Debug)]
struct RawCounters {
    /// Ticks of all processors: total, idle, waiting for I/O.
    ticks: [u64; 3],
    disk_read: u64,
    disk_written: u64,
    /// Milliseconds of activity of each disk.
    busy_ms: Vec<(String, u64)>,
    net: [u64; 2],
    own_cpu_ns: u64,
    own_io: [u64; 2],
    own_net: [u64; 2],
}

/// The server's own figures.
pub struct OwnFigures {
    /// Number of recipients.
    pub pending: u64,
    pub connections_in: u32,
    pub connections_out: u32,
}

/// Takes samples; the first result needs two.
#[derive(Default)]
pub struct Sampler {
    before: Option<(Instant, RawCounters)>,
    /// `/proc/self/io`, opened at the start: it belongs to root if the process writes no core dumps, and later only
    /// root could open it.
    io: Option<File>,
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Rereads a small open file of the kernel.
fn again(file: &File) -> String {
    const OCTETS_MAX: usize = 4_096;
    let mut octets = [0; OCTETS_MAX];
    let length = file.read_at(&mut octets, 0).unwrap_or_default();
    String::from_utf8_lossy(&octets[..length]).into_owned()
}

impl Sampler {
    /// Creates a sampler; its first interval begins now.
    pub fn new() -> Sampler {
        let io = File::open("/proc/self/io").ok();
        Sampler { before: Some((Instant::now(), RawCounters::read(io.as_ref()))), io }
    }

    /// Takes a sample. `own` is called only if there is an earlier sample to compare with.
    pub fn sample(&mut self, now: Ms, net: [u64; 2], own: impl FnOnce() -> OwnFigures) -> Option<MachineNow> {
        let mut raw = RawCounters::read(self.io.as_ref());
        raw.own_net = net;
        let at = Instant::now();
        let (since, before) = self.before.replace((at, raw.clone()))?;
        let interval_ms = at.duration_since(since).as_millis() as u64;
        if interval_ms == 0 {
            return None;
        }
        let own = own();
        let (memory_bytes, memory_used_bytes) = memory(&file("/proc/meminfo"));
        Some(MachineNow {
            at: now,
            memory_bytes,
            memory_used_bytes,
            load_1m: file("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            own_memory_bytes: resident(&file("/proc/self/statm")),
            pending: own.pending,
            connections_in: own.connections_in,
            connections_out: own.connections_out,
            ..rates(&before, &raw, interval_ms)
        })
    }
}

impl RawCounters {
    fn read(io: Option<&File>) -> RawCounters {
        let (disk_read, disk_written, busy_ms) = disks(&file("/proc/diskstats"), &|name| {
            fs::symlink_metadata(format!("/sys/block/{}", name.replace('/', "!"))).is_ok()
        });
        RawCounters {
            ticks: ticks(&file("/proc/stat")),
            disk_read,
            disk_written,
            busy_ms,
            net: network(&file("/proc/net/dev")),
            own_cpu_ns: own_cpu_ns(),
            own_io: own_io(&io.map(again).unwrap_or_default()),
            own_net: [0, 0],
        }
    }
}

fn rates(before: &RawCounters, after: &RawCounters, interval_ms: u64) -> MachineNow {
    let difference = |a: u64, b: u64| a.saturating_sub(b);
    let [all, idle, waiting] = [0, 1, 2].map(|i| difference(after.ticks[i], before.ticks[i]) as f32);
    let share = |part: f32| if all > 0.0 { (part / all).clamp(0.0, 1.0) } else { 0.0 };
    let busy = after.busy_ms.iter().map(|(name, ms)| {
        let was = before.busy_ms.iter().find(|(other, _)| other == name).map_or(*ms, |(_, ms)| *ms);
        difference(*ms, was)
    });
    MachineNow {
        interval_ms,
        processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        cpu: share(all - idle - waiting),
        io_wait: share(waiting),
        disk_read_bytes: difference(after.disk_read, before.disk_read),
        disk_written_bytes: difference(after.disk_written, before.disk_written),
        disk_busy: (busy.max().unwrap_or(0) as f32 / interval_ms as f32).min(1.0),
        net_in_bytes: difference(after.net[0], before.net[0]),
        net_out_bytes: difference(after.net[1], before.net[1]),
        own_cpu: difference(after.own_cpu_ns, before.own_cpu_ns) as f32 / (interval_ms as f32 * 1e6),
        own_read_bytes: difference(after.own_io[0], before.own_io[0]),
        own_written_bytes: difference(after.own_io[1], before.own_io[1]),
        own_net_in_bytes: difference(after.own_net[0], before.own_net[0]),
        own_net_out_bytes: difference(after.own_net[1], before.own_net[1]),
        ..MachineNow::default()
    }
}

/// Ticks from `proc_stat(5)`: user nice system idle iowait irq softirq steal; guests are included in user.
fn ticks(stat: &str) -> [u64; 3] {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().take(8).map(|field| field.parse().unwrap_or(0)).collect();
    let at = |i: usize| fields.get(i).copied().unwrap_or(0);
    [fields.iter().sum(), at(3), at(4)]
}

/// Octets read and written, and each disk's milliseconds of activity (the kernel's iostats: fields 6, 10 and 13 of a
/// line).
fn disks(diskstats: &str, is_whole: &dyn Fn(&str) -> bool) -> (u64, u64, Vec<(String, u64)>) {
    let (mut read, mut written, mut busy) = (0, 0, Vec::new());
    for line in diskstats.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(name) = fields.get(2) else { continue };
        // Devices on top of other devices would be counted twice.
        let lies_on_others = ["loop", "ram", "zram", "dm-", "md", "sr", "fd"].iter().any(|kind| name.starts_with(kind));
        if lies_on_others || !is_whole(name) {
            continue;
        }
        let number = |i: usize| fields.get(i).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        read += number(5) * SECTOR_BYTES;
        written += number(9) * SECTOR_BYTES;
        busy.push(((*name).to_owned(), number(12)));
    }
    (read, written, busy)
}

/// Octets received and sent.
fn network(dev: &str) -> [u64; 2] {
    let mut sums = [0, 0];
    for (name, rest) in dev.lines().filter_map(|line| line.split_once(':')) {
        if name.trim() == "lo" {
            continue;
        }
        let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        sums[0] += fields.first().copied().unwrap_or(0);
        sums[1] += fields.get(8).copied().unwrap_or(0);
    }
    sums
}

/// Total memory, and the part that is not available to programs.
fn memory(meminfo: &str) -> (u64, u64) {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let (total, available) = (kib("MemTotal") * 1024, kib("MemAvailable") * 1024);
    (total, total.saturating_sub(available))
}

/// The process's own resident pages: the second field less those shared with files.
fn resident(statm: &str) -> u64 {
    let mut fields = statm.split_whitespace().skip(1).map(|field| field.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

fn own_cpu_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(used.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(used.tv_nsec).unwrap_or(0)
}

/// Octets that the process caused to be read from and written to disks.
fn own_io(io: &str) -> [u64; 2] {
    ["read_bytes", "write_bytes"].map(|name| {
        let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(ticks("cpu  100 1 50 800 40 2 3 4 0 0\ncpu0 1 2\n"), [1_000, 800, 40]);
        let stats = "   8       0 sda 10 0 100 5 20 0 300 9 0 77 90\n   8       1 sda1 10 0 100 5 20 0 300 9 0 77 90\n   7 0 loop0 1 1 9 9 9 9 9 9 9 9 9\n";
        let (read, written, busy) = disks(stats, &|name| name != "sda1");
        assert_eq!((read, written, busy), (51_200, 153_600, vec![("sda".to_owned(), 77)]));
        let dev = "Inter-|   Receive   |  Transmit\n face |bytes |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: 700 9 0 0 0 0 0 0 900 8 0 0 0 0 0 0\n";
        assert_eq!(network(dev), [700, 900]);
        assert_eq!(memory("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n"), (1_024_000, 614_400));
        assert_eq!(own_io("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"), [4096, 8192]);
        for bad in ["", "cpu", "cpu x y z", ":::", "lo", "1 2 3", "\u{0}"] {
            let _ = (ticks(bad), disks(bad, &|_| true), network(bad), memory(bad), own_io(bad), resident(bad));
        }
    }

    #[test]
    fn rates_are_differences() {
        let before =
            RawCounters { ticks: [1_000, 500, 100], busy_ms: vec![("a".to_owned(), 100)], ..RawCounters::default() };
        let busy_ms = vec![("a".to_owned(), 1_070), ("new".to_owned(), 5_000)];
        let after =
            RawCounters { ticks: [1_200, 550, 150], busy_ms, own_cpu_ns: 500_000_000, ..RawCounters::default() };
        let now = rates(&before, &after, 1_000);
        assert_eq!((now.cpu, now.io_wait, now.disk_busy, now.own_cpu), (0.5, 0.25, 0.97, 0.5));
        let none = rates(&after, &before, 1_000);
        assert_eq!((none.cpu, none.disk_busy), (0.0, 0.0), "counters that went back are not a rate");
    }
}
