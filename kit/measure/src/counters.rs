//! Counters of block devices from sysfs, and this process's CPU time.
//!
//! A device's counters cover the whole device, whoever caused the work: on a quiet machine that is the measurement, on
//! a busy one an upper bound.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Requests that a block device has completed; the difference of two is what it did between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    pub reads: u64,
    pub bytes_read: u64,
    pub writes: u64,
    pub bytes_written: u64,
    /// Of its cache. None on kernels before 5.5, which do not count them.
    pub flushes: Option<u64>,
}

impl DeviceCounters {
    /// By number, `254:0`; none if sysfs does not know it.
    pub fn read(number: &str) -> Option<DeviceCounters> {
        DeviceCounters::parse(&fs::read_to_string(format!("/sys/dev/block/{number}/stat")).ok()?)
    }

    /// The kernel's Documentation/block/stat.rst has the order.
    fn parse(text: &str) -> Option<DeviceCounters> {
        let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
        Some(DeviceCounters {
            reads: *fields.first()?,
            bytes_read: fields.get(2)? * 512,
            writes: *fields.get(4)?,
            bytes_written: fields.get(6)? * 512,
            flushes: fields.get(15).copied(),
        })
    }
}

impl Sub for DeviceCounters {
    type Output = DeviceCounters;

    fn sub(self, before: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.saturating_sub(before.reads),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            writes: self.writes.saturating_sub(before.writes),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            flushes: self.flushes.zip(before.flushes).map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

/// User and system time of all threads of this process, those that have ended included.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_new_and_old_kernels_are_read() {
        let new = "10 1 80 3 20 2 1600 9 0 30 40 0 0 0 0 7 11";
        let counters =
            DeviceCounters { reads: 10, bytes_read: 40_960, writes: 20, bytes_written: 819_200, flushes: Some(7) };
        assert_eq!(DeviceCounters::parse(new), Some(counters));
        assert_eq!(DeviceCounters::parse("10 1 80 3 20 2 1600 9 0 30 40").unwrap().flushes, None);
        assert_eq!(DeviceCounters::parse("10 1"), None);
        let later = DeviceCounters { writes: 25, ..counters };
        assert_eq!(later - counters, DeviceCounters { writes: 5, flushes: Some(0), ..DeviceCounters::default() });
        assert_eq!(DeviceCounters::read("9999:9999"), None);
    }
}
