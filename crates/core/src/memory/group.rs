//! The process's memory limit and usage according to its control group (version 1 and 2).
//!
//! A container's or systemd's `MemoryMax` kills a process that exceeds it, so mail is refused temporarily before that
//! ([`Pressure`]). Usage is the memory that the kernel cannot reclaim: the group's memory except its page cache. Limits
//! of parent groups count too. Without a limit nothing is watched. A check reads a few files ten times a second; an
//! unreadable group counts as having no limit.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// Version 1 writes "no limit" as a number of this size.
const UNLIMITED_MIN: u64 = 1 << 60;

/// File and field names of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Fields of `memory.stat`: the page cache, and the shared memory that it includes.
    cache: &'static str,
    shared: &'static str,
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_cache",
    shared: "total_shmem",
};
const V2: Names = Names { limit: "memory.max", used: "memory.current", cache: "file", shared: "shmem" };

/// The control groups of this process, up to the root, that may have a limit.
pub struct MemoryGroup {
    names: Names,
    folders: Vec<PathBuf>,
}

/// How close usage is to the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    None,
    /// Mail is accepted now and then: most of the used memory may be free within the allocator, which only returns it
    /// when there is work, so that refusing everything could last forever.
    Slow,
    /// No mail is accepted.
    Stop,
}

/// Octets used at which pushing back begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    pub stop: u64,
    pub slow: u64,
    /// Below this the pressure ends.
    pub plenty: u64,
}

impl Watermarks {
    /// Computes the marks. An eighth of the limit stays free for memory without a budget (connection buffers, a batch,
    /// the kernel's share), and twice the memory of bodies that may still arrive (see [`bodies_bytes`]).
    pub fn of(limit: u64, bodies: u64) -> Watermarks {
        let slow = (limit - limit / 8).saturating_sub(2 * bodies);
        Watermarks { stop: slow + limit / 8, slow, plenty: slow - slow / 16 }
    }
}

/// Returns how much all incoming bodies together may use within a limit. Growing buffers, and memory that the allocator
/// has not returned yet, make the process use two to three times as much (measured with 500 clients in 96 MiB: with a
/// quarter of the limit the kernel killed it, with an eighth now and then).
pub fn bodies_bytes(limit: u64) -> u64 {
    limit / 12
}

impl MemoryGroup {
    /// `None` if there is no control group that can have a limit.
    pub fn of_this_process() -> Option<MemoryGroup> {
        MemoryGroup::find(Path::new(ROOT), &fs::read_to_string("/proc/self/cgroup").ok()?)
    }

    fn find(root: &Path, groups: &str) -> Option<MemoryGroup> {
        let path_of = |controller: &str| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let is_it = parts.next()?.split(',').any(|name| name == controller);
                parts.next().filter(|_| is_it)
            })
        };
        let at = |names: Names, root: PathBuf, path: &str| {
            let mut folder = root.join(path.trim_start_matches('/'));
            if !folder.is_dir() {
                // Within a container the path may be the host's, while its own group is mounted as the root.
                folder.clone_from(&root);
            }
            let folders = folder.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned);
            let folders: Vec<PathBuf> = folders.filter(|folder| folder.join(names.limit).is_file()).collect();
            (!folders.is_empty()).then_some(MemoryGroup { names, folders })
        };
        path_of("memory")
            .and_then(|path| at(V1, root.join("memory"), path))
            .or_else(|| path_of("").and_then(|path| at(V2, root.to_owned(), path)))
    }

    /// Returns the smallest limit; `None` without one.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.folders.iter().filter_map(|folder| self.limit_of(folder)).min()
    }

    fn limit_of(&self, folder: &Path) -> Option<u64> {
        number(&folder.join(self.names.limit)).filter(|limit| *limit < UNLIMITED_MIN)
    }

    /// Returns the highest pressure of all groups, given the previous one; `bodies`: the maximum memory of bodies.
    pub fn pressure(&self, bodies: u64, before: Pressure) -> Pressure {
        let of = |folder: &PathBuf| {
            let limit = self.limit_of(folder)?;
            let marks = Watermarks::of(limit, bodies.min(bodies_bytes(limit)));
            let used = self.used_of(folder)?;
            Some(if used > marks.stop {
                Pressure::Stop
            } else if used > marks.slow || (before != Pressure::None && used > marks.plenty) {
                Pressure::Slow
            } else {
                Pressure::None
            })
        };
        self.folders.iter().filter_map(of).max_by_key(|pressure| *pressure as u8).unwrap_or(Pressure::None)
    }

    fn used_of(&self, folder: &Path) -> Option<u64> {
        let used = number(&folder.join(self.names.used))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let field = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
        };
        Some(used.saturating_sub(field(self.names.cache).saturating_sub(field(self.names.shared))))
    }
}

/// Reads a file with one number; `max` gives `None`.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn version_two_counts_the_tightest_group_above_and_not_the_page_cache() {
        let root = tempfile::tempdir().unwrap();
        let stat = "anon 1\nfile 62914560\nfile_mapped 7\nshmem 10485760\n";
        group(
            &root.path().join("a"),
            &[("memory.max", "134217728\n"), ("memory.current", "125829120"), ("memory.stat", stat)],
        );
        group(&root.path().join("a/b"), &[("memory.max", "max"), ("memory.current", "1"), ("memory.stat", "")]);
        let group = MemoryGroup::find(root.path(), "0::/a/b\n").unwrap();
        assert_eq!(group.limit_bytes(), Some(128 * MIB));
        assert_eq!(group.used_of(&root.path().join("a")), Some(70 * MIB));
        // 112 MiB less twice 16 for bodies; a sixteenth below that ends the pressure.
        assert_eq!(
            Watermarks::of(128 * MIB, 16 * MIB),
            Watermarks { stop: 96 * MIB, slow: 80 * MIB, plenty: 75 * MIB }
        );
        let at = |used: u64, before| {
            fs::write(root.path().join("a/memory.current"), (used + 50 * MIB).to_string()).unwrap();
            group.pressure(256 * MIB, before)
        };
        assert_eq!(at(90 * MIB, Pressure::None), Pressure::None);
        assert_eq!(at(91 * MIB, Pressure::None), Pressure::Slow);
        assert_eq!(at(107 * MIB, Pressure::Slow), Pressure::Stop);
        assert_eq!(at(88 * MIB, Pressure::Stop), Pressure::Slow, "between the marks nothing changes");
        assert_eq!(at(84 * MIB, Pressure::Slow), Pressure::None);
    }

    #[test]
    fn version_one_and_a_container_whose_group_is_the_root() {
        let root = tempfile::tempdir().unwrap();
        let files = [("memory.limit_in_bytes", "67108864\n"), ("memory.usage_in_bytes", "5"), ("memory.stat", "")];
        group(&root.path().join("memory"), &files);
        for path in ["/", "/docker/0815"] {
            let group = MemoryGroup::find(root.path(), &format!("9:cpu:/x\n4:memory:{path}\n0::/\n")).unwrap();
            assert_eq!(group.limit_bytes(), Some(64 * MIB), "{path}");
        }
        fs::write(root.path().join("memory/memory.limit_in_bytes"), "9223372036854771712").unwrap();
        let group = MemoryGroup::find(root.path(), "4:memory:/\n").unwrap();
        assert_eq!(group.limit_bytes(), None);
        assert_eq!(group.pressure(0, Pressure::None), Pressure::None, "without a limit nothing is ever full");
        assert!(MemoryGroup::find(&root.path().join("none"), "0::/\n").is_none());
    }
}
