//! What a device was asked to do, as the kernel counts it: `/sys/dev/block/MAJ:MIN/stat`.
//!
//! The counters are the whole device's: who else writes to it is in them. A report that uses them says so.

use std::fs;
use std::ops::Sub;

use crate::machine::Device;

const SECTOR_BYTES: u64 = 512;

/// Since the device came up; subtract two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    pub bytes_read: u64,
    /// Completed write requests, after merging.
    pub writes: u64,
    pub bytes_written: u64,
    /// Flush requests (Linux 5.5 and later; 0 before). A device without a volatile cache is sent none.
    pub flushes: u64,
}

impl Counts {
    /// None where sysfs does not have them.
    pub fn read(device: &Device) -> Option<Counts> {
        parse(&fs::read_to_string(format!("/sys/dev/block/{}/stat", device.number)).ok()?)
    }
}

/// Fields of Documentation/block/stat.rst.
fn parse(text: &str) -> Option<Counts> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(Counts {
        reads: *fields.first()?,
        bytes_read: fields.get(2)? * SECTOR_BYTES,
        writes: *fields.get(4)?,
        bytes_written: fields.get(6)? * SECTOR_BYTES,
        flushes: fields.get(15).copied().unwrap_or(0),
    })
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            reads: self.reads.saturating_sub(before.reads),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            writes: self.writes.saturating_sub(before.writes),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernel_puts_them() {
        let text = "    5    1   40  9   100   20   1600   70   0  80  90  0 0 0 0  33  44\n";
        let counts = parse(text).unwrap();
        assert_eq!((counts.reads, counts.bytes_read, counts.writes), (5, 20_480, 100));
        assert_eq!((counts.bytes_written, counts.flushes), (819_200, 33));
        assert_eq!(parse("1 2 3 4 5 6 7 8 9 10 11").unwrap().flushes, 0);
        assert_eq!(parse("1 2"), None);
        assert_eq!((counts - counts).writes, 0);
    }
}
