//! Resource use of a process and its kernel, from procfs: CPU time, memory, sockets. What cannot be read is left out.

use serde::{Deserialize, Serialize};
use std::fs;
use stentor_measure::usage::Tree;

const KIB: u64 = 1024;

/// Of one process. Times count in the kernel's ticks, mostly of 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    pub user_s: f64,
    pub system_s: f64,
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
    pub threads: u64,
    /// Reserved, used or not: where the stacks of threads show.
    pub virtual_bytes: u64,
}

impl ProcessUsage {
    /// Of this process.
    pub fn own() -> ProcessUsage {
        ProcessUsage::of(std::process::id()).unwrap_or_default()
    }

    /// Of a process and its descendants; none if there is no such process.
    pub fn of_tree(pid: u32) -> Option<ProcessUsage> {
        let mut all = ProcessUsage::of(pid)?;
        for descendant in Tree::Processes(pid).pids().into_iter().filter(|one| *one != pid) {
            all.add(&ProcessUsage::of(descendant).unwrap_or_default());
        }
        Some(all)
    }

    /// Adds another process's; the peaks too, which need not have been at one time.
    pub fn add(&mut self, other: &ProcessUsage) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.resident_bytes += other.resident_bytes;
        self.resident_peak_bytes += other.resident_peak_bytes;
        self.threads += other.threads;
        self.virtual_bytes += other.virtual_bytes;
    }

    /// The CPU time since then, and the memory of now.
    pub fn since(mut self, before: &ProcessUsage) -> ProcessUsage {
        self.user_s -= before.user_s;
        self.system_s -= before.system_s;
        self
    }

    /// Of a process by its number; none if there is no such process.
    pub fn of(pid: u32) -> Option<ProcessUsage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may have blanks and brackets; the fields behind it are counted from the third.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).map(|count| count / ticks);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let named = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        Some(ProcessUsage {
            user_s: seconds(11)?,
            system_s: seconds(12)?,
            resident_bytes: named("VmRSS").unwrap_or(0) * KIB,
            resident_peak_bytes: named("VmHWM").unwrap_or(0) * KIB,
            threads: named("Threads").unwrap_or(0),
            virtual_bytes: named("VmSize").unwrap_or(0) * KIB,
        })
    }
}

/// Of the whole machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Kernel {
    /// Memory of the kernel's own objects (slabs), as sockets and watches are.
    pub slab_bytes: u64,
    /// Stacks and page tables of the kernel for processes and threads.
    pub stacks_bytes: u64,
    pub page_tables_bytes: u64,
    /// Buffers of TCP sockets.
    pub tcp_buffer_bytes: u64,
    pub tcp_in_use: u64,
    pub tcp_time_wait: u64,
    /// Connections that connection tracking keeps; none where it is not there.
    pub tracked: Option<u64>,
}

impl Kernel {
    pub fn read() -> Kernel {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let named = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * KIB
        };
        let sockets = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
        let tcp: Vec<&str> =
            sockets.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or("").split_whitespace().collect();
        let count = |name: &str| {
            let at = tcp.iter().position(|word| *word == name);
            at.and_then(|at| tcp.get(at + 1)?.parse::<u64>().ok()).unwrap_or(0)
        };
        let tracked = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").ok();
        Kernel {
            slab_bytes: named("Slab:"),
            stacks_bytes: named("KernelStack:"),
            page_tables_bytes: named("PageTables:"),
            tcp_buffer_bytes: count("mem") * rustix::param::page_size() as u64,
            tcp_in_use: count("inuse"),
            tcp_time_wait: count("tw"),
            tracked: tracked.and_then(|text| text.trim().parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let used = ProcessUsage::of(std::process::id()).expect("this process exists");
        assert!(used.resident_bytes > 0 && used.resident_peak_bytes >= used.resident_bytes && used.threads > 0);
        assert!(used.user_s >= 0.0 && ProcessUsage::of(u32::MAX).is_none());
        assert!(Kernel::read().slab_bytes > 0);
    }
}
