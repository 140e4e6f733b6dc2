//! Records that can be told from each other and from anything else in a file, down to the sector.
//!
//! Each sector of 512 octets begins with a stamp: magic, epoch (the cell and run), writer, sector within the record,
//! number of the record, and a checksum over these; the rest is the same filler in every record. So a reader finds
//! which records are completely in a file, even where others lay before.

use std::collections::BTreeMap;
use std::io::{self, Read};

pub const SECTOR_BYTES: usize = 512;
const STAMP_BYTES: usize = 32;
const MAGIC: u32 = 0x676c_5253;
/// Not to be compressed by the file system.
const FILLER_SEED: u64 = 0x53_7465_6e74_6f72;
/// Read at a time; a multiple of the sector.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    epoch: u32,
    writer: u32,
    sector: u32,
    number: u64,
}

impl Stamp {
    fn check(self) -> u64 {
        let mut value =
            self.number ^ u64::from(self.epoch) << 32 ^ u64::from(self.writer) << 16 ^ u64::from(self.sector);
        // The finaliser of splitmix64.
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn write(self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        out[8..12].copy_from_slice(&self.writer.to_le_bytes());
        out[12..16].copy_from_slice(&self.sector.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.check().to_le_bytes());
    }

    fn read(sector: &[u8]) -> Option<Stamp> {
        let word = |at: usize| u32::from_le_bytes([sector[at], sector[at + 1], sector[at + 2], sector[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let stamp = Stamp { epoch: word(4), writer: word(8), sector: word(12), number: long(16) };
        (word(0) == MAGIC && long(24) == stamp.check()).then_some(stamp)
    }
}

fn filler(record_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; record_bytes];
    fastrand::Rng::with_seed(FILLER_SEED).fill(&mut bytes);
    bytes
}

/// A record that is stamped anew for each use.
pub struct Template {
    bytes: Vec<u8>,
    epoch: u32,
    writer: u32,
}

impl Template {
    /// `record_bytes` is a multiple of a sector.
    pub fn new(record_bytes: usize, epoch: u32, writer: u32) -> Template {
        Template { bytes: filler(record_bytes), epoch, writer }
    }

    pub fn stamped(&mut self, number: u64) -> &[u8] {
        let (epoch, writer) = (self.epoch, self.writer);
        for (sector, bytes) in self.bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            Stamp { epoch, writer, sector: sector as u32, number }.write(bytes);
        }
        &self.bytes
    }
}

/// Records of an epoch that were found in whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EpochRecords {
    pub records: u64,
    /// Greatest number by writer.
    pub newest: BTreeMap<u32, u64>,
}

/// Takes a log's sectors in their order.
pub struct Scan {
    epoch: u32,
    expected: Vec<u8>,
    /// The record that is under way, and its next sector.
    current: Option<Stamp>,
    found: EpochRecords,
}

impl Scan {
    pub fn new(record_bytes: usize, epoch: u32) -> Scan {
        Scan { epoch, expected: filler(record_bytes), current: None, found: EpochRecords::default() }
    }

    pub fn sector(&mut self, bytes: &[u8]) {
        let Some(stamp) = Stamp::read(bytes).filter(|stamp| stamp.epoch == self.epoch) else {
            self.current = None;
            return;
        };
        let follows = stamp.sector == 0 || self.current == Some(stamp);
        let at = stamp.sector as usize * SECTOR_BYTES;
        let is_whole = self.expected.get(at + STAMP_BYTES..at + SECTOR_BYTES) == Some(&bytes[STAMP_BYTES..]);
        if !follows || !is_whole {
            self.current = None;
        } else if at + SECTOR_BYTES == self.expected.len() {
            self.current = None;
            self.found.records += 1;
            let newest = self.found.newest.entry(stamp.writer).or_default();
            *newest = stamp.number.max(*newest);
        } else {
            self.current = Some(Stamp { sector: stamp.sector + 1, ..stamp });
        }
    }

    pub fn sectors(&mut self, bytes: &[u8]) {
        bytes.chunks_exact(SECTOR_BYTES).for_each(|sector| self.sector(sector));
    }

    /// To the end of the input.
    pub fn read_all(&mut self, input: &mut impl Read) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let mut len = 0;
            while len < buffer.len() {
                match input.read(&mut buffer[len..]) {
                    Ok(0) => break,
                    Ok(more) => len += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.sectors(&buffer[..len]);
            if len < buffer.len() {
                return Ok(());
            }
        }
    }

    pub fn end(self) -> EpochRecords {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(log: &[u8], record_bytes: usize) -> EpochRecords {
        let mut scan = Scan::new(record_bytes, 7);
        scan.read_all(&mut &log[..]).unwrap();
        scan.end()
    }

    #[test]
    fn whole_records_are_found_and_damaged_foreign_and_torn_ones_are_not() {
        for record_bytes in [512, 1536, 65536] {
            let (mut ours, mut other) = (Template::new(record_bytes, 7, 3), Template::new(record_bytes, 6, 3));
            let mut log = Vec::new();
            for number in 1..=20 {
                log.extend_from_slice(ours.stamped(number));
            }
            let whole = EpochRecords { records: 20, newest: BTreeMap::from([(3, 20)]) };
            assert_eq!(scanned(&log, record_bytes), whole);
            // Padding, records of another cell, and a torn one at the end.
            let mut long = log.clone();
            long.extend_from_slice(&[0; SECTOR_BYTES]);
            long.extend_from_slice(other.stamped(21));
            long.extend_from_slice(&ours.stamped(22)[..record_bytes - 1]);
            assert_eq!(scanned(&long, record_bytes), whole);
            for at in [0, 30, STAMP_BYTES, record_bytes - 1] {
                let mut damaged = log.clone();
                damaged[4 * record_bytes + at] ^= 1;
                assert_eq!(scanned(&damaged, record_bytes).records, 19, "octet {at} of {record_bytes}");
            }
        }
    }

    #[test]
    fn sectors_of_two_records_make_none() {
        let mut ours = Template::new(1024, 7, 0);
        let mut log = ours.stamped(1)[..512].to_vec();
        log.extend_from_slice(&ours.stamped(2)[512..]);
        assert_eq!(scanned(&log, 1024), EpochRecords::default());
    }
}
