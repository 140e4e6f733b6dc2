//! Requests of the block layer from their first bio to their completion, followed by device and sector.
//!
//! A request is known by its device and first sector from `getrq` on: a bio that is merged behind it changes nothing, one
//! that is merged before it moves its first sector. What a flush machine does for it (requests `FF` that carry no data)
//! belongs to the request with the flag: the device works for it from the issue of the flush to its completion.
//!
//! What cannot be followed: a request whose bio was remapped to another device by a driver without tracepoints; it is then
//! seen from the issue on.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::timeline::Origin;

/// Requests in flight that are looked through for one that waits behind them.
const IN_FLIGHT_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Other,
}

impl Kind {
    /// Of `rwbs` as the kernel prints it: `WSM`, `FWFS`, `RA`, `FF`.
    pub fn of(rwbs: &str) -> Kind {
        match rwbs.trim_start_matches('F').as_bytes().first() {
            Some(b'R') => Kind::Read,
            Some(b'W') => Kind::Write,
            None if !rwbs.is_empty() => Kind::Flush,
            _ => Kind::Other,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Request {
    pub device: u32,
    pub kind: Kind,
    /// Of its first bio.
    pub queued: Option<Origin>,
    /// Nanoseconds, 0 where it was not seen, here and below.
    pub made: u64,
    pub inserted: u64,
    pub issued: u64,
    /// (issue, completion): more than once where it was requeued.
    pub on_device: SmallVec<[(u64, u64); 1]>,
    pub completed: u64,
    /// It asks the device to flush before or after.
    pub has_flush: bool,
}

type Key = (u32, i64);

#[derive(Default, Debug)]
pub struct Requests {
    pub all: Vec<Request>,
    open: HashMap<Key, u32>,
    bios: HashMap<Key, Origin>,
    flush_open: HashMap<u32, u32>,
    /// Completed flushes by device, in order of completion.
    flushes: HashMap<u32, Vec<(u64, u64)>>,
    /// By device, in order of issue.
    issued: HashMap<u32, Vec<u32>>,
    /// The disk of a partition.
    disks: HashMap<u32, u32>,
}

fn is_flush(rwbs: &str, sectors: i64) -> bool {
    sectors == 0 && Kind::of(rwbs) == Kind::Flush
}

impl Requests {
    pub fn with_disks(disks: HashMap<u32, u32>) -> Requests {
        Requests { disks, ..Requests::default() }
    }

    fn key(&self, device: u32, sector: i64) -> Key {
        (self.disks.get(&device).copied().unwrap_or(device), sector)
    }

    pub fn bio_queued(&mut self, device: u32, sector: i64, origin: Origin) {
        let key = self.key(device, sector);
        self.bios.insert(key, origin);
    }

    /// The rest of a bio that was too long for one request.
    pub fn split(&mut self, device: u32, sector: i64, rest: i64) {
        let (key, rest) = (self.key(device, sector), self.key(device, rest));
        if let Some(origin) = self.bios.get(&key).copied() {
            self.bios.insert(rest, origin);
        }
    }

    fn new_request(&mut self, key: Key, rwbs: &str) -> u32 {
        let number = self.all.len() as u32;
        self.all.push(Request {
            device: key.0,
            kind: Kind::of(rwbs),
            queued: self.bios.remove(&key),
            made: 0,
            inserted: 0,
            issued: 0,
            on_device: SmallVec::new(),
            completed: 0,
            has_flush: rwbs.starts_with('F') || rwbs.contains("WF"),
        });
        self.open.insert(key, number);
        number
    }

    pub fn made(&mut self, device: u32, sector: i64, rwbs: &str, ns: u64) {
        let key = self.key(device, sector);
        let number = self.new_request(key, rwbs);
        self.all[number as usize].made = ns;
    }

    /// A bio was merged behind (`before` false) or before a request.
    pub fn merged(&mut self, device: u32, sector: i64, sectors: i64, before: bool) {
        let key = self.key(device, sector);
        self.bios.remove(&key);
        if before && let Some(number) = self.open.remove(&self.key(device, sector.saturating_add(sectors))) {
            self.open.insert(key, number);
        }
    }

    /// A request became part of the one before it.
    pub fn swallowed(&mut self, device: u32, sector: i64) {
        let key = self.key(device, sector);
        self.open.remove(&key);
    }

    pub fn inserted(&mut self, device: u32, sector: i64, ns: u64) {
        if let Some(number) = self.open.get(&self.key(device, sector)) {
            self.all[*number as usize].inserted = ns;
        }
    }

    pub fn issued(&mut self, device: u32, sector: i64, sectors: i64, rwbs: &str, ns: u64) {
        let key = self.key(device, sector);
        let number = if is_flush(rwbs, sectors) {
            let number = self.all.len() as u32;
            self.all.push(Request {
                device: key.0,
                kind: Kind::Flush,
                queued: None,
                made: 0,
                inserted: 0,
                issued: ns,
                on_device: SmallVec::new(),
                completed: 0,
                has_flush: true,
            });
            self.flush_open.insert(key.0, number);
            number
        } else {
            let is_known = |number: &u32| {
                let request = &self.all[*number as usize];
                request.completed == 0 || request.has_flush
            };
            match self.open.get(&key).copied().filter(is_known) {
                Some(number) => number,
                None => self.new_request(key, rwbs),
            }
        };
        self.all[number as usize].issued = ns;
        self.issued.entry(key.0).or_default().push(number);
    }

    pub fn requeued(&mut self, device: u32, sector: i64, ns: u64) {
        if let Some(number) = self.open.get(&self.key(device, sector)) {
            let request = &mut self.all[*number as usize];
            request.issued = 0;
            request.inserted = ns;
        }
    }

    /// The request that it was, if it had been seen before.
    pub fn completed(&mut self, device: u32, sector: i64, sectors: i64, rwbs: &str, ns: u64) -> Option<u32> {
        let key = self.key(device, sector);
        let number =
            if is_flush(rwbs, sectors) { self.flush_open.remove(&key.0)? } else { self.open.get(&key).copied()? };
        let request = &mut self.all[number as usize];
        if request.issued > 0 {
            let span = (request.issued, ns);
            request.on_device.push(span);
            request.issued = 0;
            if request.kind == Kind::Flush {
                self.flushes.entry(key.0).or_default().push(span);
            }
        }
        request.completed = ns;
        Some(number)
    }

    /// When the device worked for the request, with the flushes that it asked for, within a time. In order, disjoint.
    pub fn on_device(&self, number: u32, from: u64, to: u64) -> Vec<(u64, u64, Kind)> {
        let request = &self.all[number as usize];
        let mut spans: Vec<(u64, u64, Kind)> =
            request.on_device.iter().map(|(start, end)| (*start, *end, request.kind)).collect();
        if request.issued > 0 {
            spans.push((request.issued, u64::MAX, request.kind));
        }
        if request.has_flush && request.kind != Kind::Flush {
            let flushes = self.flushes.get(&request.device).map_or(&[][..], Vec::as_slice);
            let first = flushes.partition_point(|(_, end)| *end <= from);
            // A flush that began before this request was made does not count for it.
            let fit = flushes[first..].iter().take_while(|(start, _)| *start < to).filter(|(s, _)| *s >= request.made);
            spans.extend(fit.map(|(start, end)| (*start, *end, Kind::Flush)));
        }
        disjoint(spans, from, to)
    }

    /// When other requests kept the device busy.
    pub fn others_on_device(&self, number: u32, from: u64, to: u64) -> Vec<(u64, u64, Kind)> {
        let device = self.all[number as usize].device;
        let issued = self.issued.get(&device).map_or(&[][..], Vec::as_slice);
        // In order of issue: those that were issued before the end and are complete after the beginning.
        let begun = |other: &u32| {
            let request = &self.all[*other as usize];
            request.on_device.first().map_or(request.issued, |(start, _)| *start) < to
        };
        let end = issued.partition_point(begun);
        let mut spans = Vec::new();
        for other in issued[..end].iter().rev().take(IN_FLIGHT_MAX).filter(|other| **other != number) {
            let request = &self.all[*other as usize];
            spans.extend(request.on_device.iter().filter(|(_, end)| *end > from).map(|(s, e)| (*s, *e, request.kind)));
        }
        disjoint(spans, from, to)
    }
}

/// Cut to the time and to each other: what began first keeps what two have in common.
fn disjoint(mut spans: Vec<(u64, u64, Kind)>, from: u64, to: u64) -> Vec<(u64, u64, Kind)> {
    spans.sort_unstable_by_key(|(start, end, _)| (*start, *end));
    let mut at = from;
    let mut out = Vec::with_capacity(spans.len());
    for (start, end, kind) in spans {
        let (start, end) = (start.max(at), end.min(to));
        if start < end {
            out.push((start, end, kind));
            at = end;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotrace::analyse::timeline::Cause;

    const DISK: u32 = 254 << 20;

    fn origin(ns: u64) -> Origin {
        Origin { ns, cause: Cause::Unknown }
    }

    #[test]
    fn merges_and_splits_keep_the_first_sector() {
        let mut requests = Requests::with_disks([(DISK | 1, DISK)].into());
        requests.bio_queued(DISK | 1, 100, origin(1));
        requests.made(DISK | 1, 100, "WS", 2);
        requests.bio_queued(DISK, 108, origin(3));
        requests.merged(DISK, 108, 8, false);
        requests.bio_queued(DISK, 92, origin(4));
        requests.merged(DISK, 92, 8, true);
        requests.issued(DISK, 92, 24, "WS", 10);
        assert_eq!(requests.completed(DISK, 92, 24, "WS", 30), Some(0));
        assert_eq!(requests.on_device(0, 0, 99), [(10, 30, Kind::Write)]);
        assert_eq!(requests.all[0].queued.unwrap().ns, 1);
        // Never seen before.
        assert_eq!(requests.completed(DISK, 7, 8, "R", 31), None);
        // Seen from its issue on; the same sector again is another one.
        requests.issued(DISK, 92, 8, "R", 40);
        assert_eq!(requests.completed(DISK, 92, 8, "R", 50), Some(1));
        assert_eq!(requests.all[1].kind, Kind::Read);
        requests.bio_queued(DISK, 500, origin(60));
        requests.split(DISK, 500, 508);
        requests.made(DISK, 508, "W", 61);
        assert_eq!(requests.all[2].queued.unwrap().ns, 60);
    }

    #[test]
    fn flushes_belong_to_who_asked_for_them() {
        let mut requests = Requests::default();
        requests.bio_queued(DISK, 64, origin(1));
        requests.made(DISK, 64, "FWFSM", 2);
        requests.issued(DISK, 0, 0, "FF", 5);
        assert_eq!(requests.completed(DISK, -1, 0, "FF", 20), Some(1));
        requests.issued(DISK, 64, 8, "WSM", 22);
        requests.completed(DISK, 64, 8, "WSM", 30);
        requests.issued(DISK, 0, 0, "FF", 33);
        requests.completed(DISK, -1, 0, "FF", 50);
        assert_eq!(requests.completed(DISK, 64, 0, "WSM", 51), Some(0));
        let spans = requests.on_device(0, 0, 100);
        assert_eq!(spans, [(5, 20, Kind::Flush), (22, 30, Kind::Write), (33, 50, Kind::Flush)]);
        // A request alone that waits behind others.
        requests.made(DISK, 900, "W", 4);
        assert_eq!(requests.others_on_device(3, 10, 40).len(), 3);
    }

    #[test]
    fn kinds() {
        let kinds = ["WSM", "FWFS", "FF", "RA", "D", "", "F"].map(Kind::of);
        let expected = [Kind::Write, Kind::Write, Kind::Flush, Kind::Read, Kind::Other, Kind::Other, Kind::Flush];
        assert_eq!(kinds, expected);
    }
}
