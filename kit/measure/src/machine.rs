//! Describes where a number was measured: machine, kernel, and for a directory its file system, mount options and
//! device.
//!
//! Everything is read from procfs and sysfs; what cannot be read is left out, never guessed.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, stat};
use serde::Serialize;

use crate::usage::stat_fields;

/// The machine and its kernel.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Machine {
    pub processor: String,
    /// That this process may use.
    pub processors: usize,
    pub memory_mib: u64,
    /// `Linux 6.18.1`.
    pub kernel: String,
    /// Load average over a minute when it was looked at: numbers of a busy machine are to be told from those of a quiet
    /// one.
    pub load: f64,
    /// Of the time of all processors while it was measured, what neither this process nor its children had, in percent.
    /// None where that was not watched ([`BackgroundLoad`]).
    pub others_percent: Option<f64>,
}

/// Processor time so far, in ticks of the kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ticks {
    all: u64,
    /// Not idle.
    used: u64,
    /// By this process and those of its children that it has waited for.
    own: u64,
}

/// What the machine does beside a measurement: other processes, and threads of the kernel, from its beginning on. A
/// load average would have the measurement's own threads in it.
#[derive(Debug)]
pub struct BackgroundLoad {
    load: f64,
    ticks: Option<Ticks>,
}

impl BackgroundLoad {
    pub fn begin() -> BackgroundLoad {
        BackgroundLoad { load: load().unwrap_or(0.0), ticks: Ticks::read() }
    }

    /// The measurement is over: its machine is as it was before, with what others used meanwhile.
    pub fn end(&self, machine: &mut Machine) {
        machine.load = self.load;
        machine.others_percent = self.ticks.zip(Ticks::read()).and_then(|(before, after)| after.others_since(&before));
    }
}

impl Ticks {
    fn read() -> Option<Ticks> {
        Ticks::parse(&fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// `proc_stat(5)`: user, nice, system, idle, iowait, irq, softirq, steal; `proc_pid_stat(5)`: fields 14 to 17.
    fn parse(stat: &str, own: &str) -> Option<Ticks> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let all = fields.iter().sum::<u64>();
        let own = stat_fields(own)?.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Ticks { all, used: all - fields.get(3)? - fields.get(4)?, own })
    }

    fn others_since(&self, before: &Ticks) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let used = self.used.saturating_sub(before.used).saturating_sub(self.own.saturating_sub(before.own));
        Some(used as f64 * 100.0 / all as f64)
    }
}

/// Where a directory lies.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Place {
    pub directory: PathBuf,
    /// `ext4`.
    pub file_system: String,
    pub mount_point: PathBuf,
    /// Of the mount and of the file system: `rw,relatime,discard`.
    pub mount_options: String,
    pub free_mib: u64,
    /// None for a file system without one, as tmpfs.
    pub device: Option<Device>,
}

/// A block device: the whole disk, where a partition is mounted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Device {
    /// `vda`.
    pub name: String,
    /// `254:0`, of the whole disk, as control groups name it.
    pub number: String,
    /// `254:0`, of what is mounted, as block events name it.
    pub mounted: (u32, u32),
    pub model: Option<String>,
    pub rotational: Option<bool>,
    /// `write back`: it has a cache that a flush must empty.
    pub write_cache: Option<String>,
    pub scheduler: Option<String>,
    /// The file behind a loop device.
    pub backing_file: Option<PathBuf>,
}

impl Machine {
    pub fn read() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        let uname = rustix::system::uname();
        Machine {
            processor: named("model name").or_else(|| named("Hardware")).unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: memory.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) / 1024,
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            load: load().unwrap_or(0.0),
            others_percent: None,
        }
    }

    pub fn line(&self) -> String {
        let others = self.others_percent.map(|percent| format!(", {percent:.0} % of CPU time used by others"));
        format!(
            "{} x {}, {} MiB, {}, load {:.1}{}",
            self.processors,
            self.processor,
            self.memory_mib,
            self.kernel,
            self.load,
            others.unwrap_or_default()
        )
    }
}

/// MiB that programs could take now without anything being swapped out; 0 where the kernel does not say.
pub fn memory_free_mib() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    line.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

impl Place {
    /// Of an existing directory.
    pub fn of(directory: &Path) -> std::io::Result<Place> {
        let directory = directory.canonicalize()?;
        let status = stat(&directory)?;
        let room = rustix::fs::statvfs(&directory)?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mount_of(&mounts, &directory).unwrap_or_default();
        let number = match mount.device {
            // btrfs and overlayfs have numbers of their own; the mount's source tells the device.
            Some((0, _)) | None => stat(Path::new(&mount.source)).ok().map(|s| (major(s.st_rdev), minor(s.st_rdev))),
            Some(number) => Some(number),
        };
        let number = number.or(Some((major(status.st_dev), minor(status.st_dev)))).filter(|(major, _)| *major != 0);
        Ok(Place {
            file_system: mount.file_system,
            mount_point: mount.point,
            mount_options: mount.options,
            free_mib: room.f_bavail.saturating_mul(room.f_frsize) >> 20,
            device: number.and_then(Device::of),
            directory,
        })
    }

    pub fn line(&self) -> String {
        let device = self.device.as_ref().map_or_else(|| "no device".to_owned(), Device::line);
        format!(
            "{}: {} ({}), {} MiB free, {device}",
            self.directory.display(),
            self.file_system,
            self.mount_options,
            self.free_mib
        )
    }
}

impl Device {
    /// By number; none if sysfs does not know it.
    pub fn of(number: (u32, u32)) -> Option<Device> {
        let (major, minor) = number;
        let mut folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        if folder.join("partition").exists() {
            folder.pop();
        }
        let read = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?.trim().to_owned();
            Some(text).filter(|text| !text.is_empty())
        };
        let chosen = |text: String| {
            let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            inner.map_or(text.clone(), |(name, _)| name.to_owned())
        };
        Some(Device {
            name: folder.file_name()?.to_string_lossy().into_owned(),
            number: read("dev")?,
            mounted: (major, minor),
            model: read("device/model"),
            rotational: read("queue/rotational").map(|text| text == "1"),
            write_cache: read("queue/write_cache"),
            scheduler: read("queue/scheduler").map(chosen),
            backing_file: read("loop/backing_file").map(PathBuf::from),
        })
    }

    pub fn line(&self) -> String {
        let mut parts = vec![self.name.clone()];
        parts.extend(self.model.clone());
        parts.extend(self.rotational.map(|is| if is { "rotating".to_owned() } else { "not rotating".to_owned() }));
        parts.extend(self.write_cache.clone());
        parts.extend(self.scheduler.as_ref().map(|name| format!("scheduler {name}")));
        parts.extend(self.backing_file.as_ref().map(|file| format!("file {}", file.display())));
        parts.join(", ")
    }
}

#[derive(Default, Debug, PartialEq)]
struct Mount {
    device: Option<(u32, u32)>,
    point: PathBuf,
    file_system: String,
    source: String,
    options: String,
}

/// The mount that a path lies on (`proc_pid_mountinfo(5)`): the last of the longest mount points that it begins with.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<Mount> = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (&[_, _, number, _, point, options, ..], &[file_system, source, ref rest @ ..]) =
            (left.as_slice(), right.as_slice())
        else {
            continue;
        };
        let point = PathBuf::from(unescaped(point));
        let is_deeper = best.as_ref().is_none_or(|b| point.components().count() >= b.point.components().count());
        if !path.starts_with(&point) || !is_deeper {
            continue;
        }
        let mut all: Vec<&str> = options.split(',').collect();
        for option in rest.first().into_iter().flat_map(|text| text.split(',')) {
            if !all.contains(&option) {
                all.push(option);
            }
        }
        let device = number.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        best = Some(Mount {
            device,
            point,
            file_system: file_system.to_owned(),
            source: unescaped(source),
            options: all.join(","),
        });
    }
    best
}

/// Blanks and backslashes are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            out.push(char::from(code));
            rest = &rest[at + 4..];
        } else {
            out.push('\\');
            rest = &rest[at + 1..];
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_is_found_and_its_options_are_joined() {
        let text = "20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                    30 20 7:1 / /mnt/a\\040b rw,noatime - xfs /dev/loop1 rw,attr2\n\
                    broken line\n\
                    31 20 0:40 / /mnt rw - tmpfs tmpfs rw,size=1m\n";
        let mount = mount_of(text, Path::new("/mnt/a b/c")).unwrap();
        assert_eq!((mount.device, mount.file_system.as_str()), (Some((7, 1)), "xfs"));
        assert_eq!((mount.options.as_str(), mount.source.as_str()), ("rw,noatime,attr2", "/dev/loop1"));
        assert_eq!(mount_of(text, Path::new("/mnt/a bc")).unwrap().file_system, "tmpfs");
        assert_eq!(mount_of(text, Path::new("/var")).unwrap().options, "rw,relatime,discard");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn what_others_used_is_what_neither_was_idle_nor_ours() {
        let own = |ticks: u64| format!("7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 5 0 0");
        let before = Ticks::parse("cpu  100 0 50 1000 20 0 0 0 0 0\ncpu0 1 2 3 4\n", &own(10)).unwrap();
        assert_eq!(before, Ticks { all: 1170, used: 150, own: 15 });
        // 200 ticks: 60 idle, 20 waiting, 40 ours, 80 of others.
        let after = Ticks::parse("cpu  160 10 80 1060 40 5 5 10 0 0\n", &own(50)).unwrap();
        assert_eq!(after.others_since(&before), Some(40.0));
        assert_eq!(before.others_since(&before), None);
        assert_eq!(Ticks::parse("nothing", &own(1)), None);
        let mut machine = Machine::default();
        BackgroundLoad { load: 3.5, ticks: Some(before) }.end(&mut machine);
        assert!(machine.line().contains("load 3.5"), "{}", machine.line());
    }

    #[test]
    fn this_machine_and_this_directory_are_described() {
        let machine = Machine::read();
        assert!(
            machine.processors > 0 && machine.memory_mib > 0 && machine.kernel.starts_with("Linux "),
            "{machine:?}"
        );
        assert!((1..=machine.memory_mib).contains(&memory_free_mib()));
        let place = Place::of(Path::new(".")).unwrap();
        assert!(!place.file_system.is_empty() && place.line().contains(&place.file_system), "{place:?}");
        assert!(Place::of(Path::new("/nowhere/at/all")).is_err());
    }
}
