//! Requests of the block layer from their first bio to their completion, tracked by device and sector.
//!
//! From `getrq` on, a request is identified by its device and first sector: a bio merged at its end changes nothing,
//! one merged at its front moves the first sector. Work of the flush machinery (requests `FF` without data) belongs to
//! the request with the flag: the device works for it from the issue of the flush to its completion.
//!
//! Not tracked: a request whose bio a driver without tracepoints remapped to another device; it is visible only from
//! the issue on.

use std::collections::{HashMap, VecDeque};

use smallvec::SmallVec;

use super::origin::{NONE, Origin};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Other,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => "flush",
            Kind::Other => "other",
        }
    }

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
    /// The worker's job that issued it last, or [`NONE`].
    job: u32,
    /// More than once where it was requeued.
    pub on_device: SmallVec<[Service; 1]>,
    pub completed: u64,
    /// It asks the device to flush before or after.
    pub has_flush: bool,
}

/// From an issue to its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    pub start: u64,
    pub end: u64,
    pub kind: Kind,
    /// Of the request, which may be a flush on behalf of another.
    pub number: u32,
    /// The worker's job that issued it, or [`NONE`].
    pub job: u32,
}

type Key = (u32, i64);

#[derive(Default, Debug)]
pub struct Requests {
    pub all: Vec<Request>,
    open: HashMap<Key, u32>,
    bios: HashMap<Key, Origin>,
    /// Flushes under way by device, the oldest first: a device has one for each of its queues, and none says which.
    flush_open: HashMap<u32, VecDeque<u32>>,
    /// Completed flushes by device, in order of completion.
    flushes: HashMap<u32, Vec<Service>>,
    /// What each device did, with the latest end of all up to there; in order of issue once all is
    /// [`Requests::settled`].
    served: HashMap<u32, Vec<(Service, u64)>>,
    /// The disk of a partition.
    disks: HashMap<u32, u32>,
}

impl Request {
    fn new(device: u32, kind: Kind) -> Request {
        Request {
            device,
            kind,
            queued: None,
            made: 0,
            inserted: 0,
            issued: 0,
            job: NONE,
            on_device: SmallVec::new(),
            completed: 0,
            has_flush: kind == Kind::Flush,
        }
    }
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
        let mut request = Request::new(key.0, Kind::of(rwbs));
        request.queued = self.bios.remove(&key);
        request.has_flush = rwbs.starts_with('F') || rwbs.contains("WF");
        self.all.push(request);
        self.open.insert(key, number);
        number
    }

    /// Tracing was off: the ends of flushes that were under way were not seen.
    pub fn gap(&mut self) {
        self.flush_open.clear();
    }

    /// After the last event.
    pub fn sort(&mut self) {
        for served in self.served.values_mut() {
            served.sort_unstable_by_key(|(service, _)| service.start);
            let mut latest = 0;
            for (service, until) in served {
                latest = latest.max(service.end);
                *until = latest;
            }
        }
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

    /// `job`: the worker's that issues it, or [`NONE`].
    pub fn issued(&mut self, device: u32, sector: i64, sectors: i64, rwbs: &str, ns: u64, job: u32) {
        let key = self.key(device, sector);
        let number = if is_flush(rwbs, sectors) {
            let number = self.all.len() as u32;
            self.all.push(Request::new(key.0, Kind::Flush));
            self.flush_open.entry(key.0).or_default().push_back(number);
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
        let request = &mut self.all[number as usize];
        (request.issued, request.job) = (ns, job);
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
        let number = if is_flush(rwbs, sectors) {
            self.flush_open.get_mut(&key.0)?.pop_front()?
        } else {
            self.open.get(&key).copied()?
        };
        let request = &mut self.all[number as usize];
        if request.issued > 0 {
            let service = Service { start: request.issued, end: ns, kind: request.kind, number, job: request.job };
            request.on_device.push(service);
            request.issued = 0;
            self.served.entry(key.0).or_default().push((service, ns));
            if request.kind == Kind::Flush {
                self.flushes.entry(key.0).or_default().push(service);
            }
        }
        request.completed = ns;
        Some(number)
    }

    /// When the device worked for the request, with the flushes that it asked for, within a time. In order, disjoint.
    pub fn on_device(&self, number: u32, from: u64, to: u64) -> Vec<Service> {
        let request = &self.all[number as usize];
        let mut all = request.on_device.to_vec();
        if request.issued > 0 {
            let (start, kind, job) = (request.issued, request.kind, request.job);
            all.push(Service { start, end: u64::MAX, kind, number, job });
        }
        if request.has_flush && request.kind != Kind::Flush {
            let flushes = self.flushes.get(&request.device).map_or(&[][..], Vec::as_slice);
            let first = flushes.partition_point(|flush| flush.end <= from);
            // A flush that began before this request was made does not count for it.
            let begun = flushes[first..].iter().take_while(|flush| flush.start < to);
            all.extend(begun.filter(|flush| flush.start >= request.made));
        }
        disjoint(all, from, to)
    }

    /// When other requests kept the device busy.
    pub fn others_on_device(&self, number: u32, from: u64, to: u64) -> Vec<Service> {
        let served = self.served.get(&self.all[number as usize].device).map_or(&[][..], Vec::as_slice);
        disjoint(near(served, from, to).filter(|service| service.number != number).collect(), from, to)
    }

    /// When any device was busy.
    pub fn on_any_device(&self, from: u64, to: u64) -> Vec<Service> {
        disjoint(self.served.values().flat_map(|served| near(served, from, to)).collect(), from, to)
    }
}

/// Of what is sorted, all that may overlap: back to where everything that began earlier is over.
fn near(served: &[(Service, u64)], from: u64, to: u64) -> impl Iterator<Item = Service> {
    let end = served.partition_point(|(service, _)| service.start < to);
    served[..end].iter().rev().take_while(move |(_, until)| *until > from).map(|(service, _)| *service)
}

/// Cut to the time and to each other: what began first keeps what two have in common.
fn disjoint(mut all: Vec<Service>, from: u64, to: u64) -> Vec<Service> {
    all.sort_unstable_by_key(|service| (service.start, service.end));
    let mut at = from;
    all.retain_mut(|service| {
        (service.start, service.end) = (service.start.max(at), service.end.min(to));
        let is_left = service.start < service.end;
        at = if is_left { service.end } else { at };
        is_left
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::origin::Cause;

    const DISK: u32 = 254 << 20;

    fn origin(ns: u64) -> Origin {
        Origin { ns, cause: Cause::Unknown }
    }

    fn told(services: &[Service]) -> Vec<(u64, u64, Kind)> {
        services.iter().map(|service| (service.start, service.end, service.kind)).collect()
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
        requests.issued(DISK, 92, 24, "WS", 10, NONE);
        assert_eq!(requests.completed(DISK, 92, 24, "WS", 30), Some(0));
        assert_eq!(told(&requests.on_device(0, 0, 99)), [(10, 30, Kind::Write)]);
        assert_eq!(requests.all[0].queued.unwrap().ns, 1);
        // Never seen before.
        assert_eq!(requests.completed(DISK, 7, 8, "R", 31), None);
        // Seen from its issue on; the same sector again is another one.
        requests.issued(DISK, 92, 8, "R", 40, NONE);
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
        requests.issued(DISK, 0, 0, "FF", 5, NONE);
        assert_eq!(requests.completed(DISK, -1, 0, "FF", 20), Some(1));
        requests.issued(DISK, 64, 8, "WSM", 22, NONE);
        requests.completed(DISK, 64, 8, "WSM", 30);
        requests.issued(DISK, 0, 0, "FF", 33, NONE);
        requests.completed(DISK, -1, 0, "FF", 50);
        assert_eq!(requests.completed(DISK, 64, 0, "WSM", 51), Some(0));
        let spans = requests.on_device(0, 0, 100);
        let numbers: Vec<u32> = spans.iter().map(|span| span.number).collect();
        assert_eq!(numbers, [1, 0, 2], "two flushes are two requests");
        assert_eq!(told(&spans), [(5, 20, Kind::Flush), (22, 30, Kind::Write), (33, 50, Kind::Flush)]);
        // A request alone that waits behind others.
        requests.made(DISK, 900, "W", 4);
        requests.sort();
        assert_eq!(requests.others_on_device(3, 10, 40).len(), 3);
    }

    #[test]
    fn two_queues_flush_at_a_time_and_a_gap_forgets_what_is_under_way() {
        let mut requests = Requests::default();
        requests.issued(DISK, 0, 0, "FF", 10, NONE);
        requests.issued(DISK, 0, 0, "FF", 14, NONE);
        assert_eq!(requests.completed(DISK, -1, 0, "FF", 20), Some(0));
        assert_eq!(requests.completed(DISK, -1, 0, "FF", 26), Some(1));
        assert_eq!(told(&requests.all[1].on_device), [(14, 26, Kind::Flush)]);
        requests.issued(DISK, 0, 0, "FF", 30, NONE);
        requests.gap();
        requests.issued(DISK, 0, 0, "FF", 1030, NONE);
        assert_eq!(requests.completed(DISK, -1, 0, "FF", 1040), Some(3));
        assert_eq!(requests.completed(DISK, -1, 0, "FF", 1041), None);
    }

    /// What the device did is found however long ago it began, and nothing else is looked at.
    #[test]
    fn others_are_found_by_when_they_were_on_the_device() {
        let mut requests = Requests::default();
        let mut write = |sector: i64, from: u64, to: u64| {
            requests.issued(DISK, sector, 8, "W", from, NONE);
            (sector, to)
        };
        let mut ends = vec![write(1, 5, 900), write(2, 10, 20), write(3, 30, 40), write(4, 850, 950)];
        ends.sort_by_key(|(_, to)| *to);
        for (sector, to) in ends {
            requests.completed(DISK, sector, 8, "W", to);
        }
        requests.made(DISK, 9, "W", 100);
        requests.sort();
        let busy = |from, to| told(&requests.others_on_device(4, from, to));
        assert_eq!(busy(100, 200), [(100, 200, Kind::Write)]);
        assert_eq!(busy(890, 990), [(890, 900, Kind::Write), (900, 950, Kind::Write)]);
        assert_eq!(busy(950, 990), []);
        assert_eq!(busy(0, 7), [(5, 7, Kind::Write)]);
    }

    #[test]
    fn kinds() {
        let kinds = ["WSM", "FWFS", "FF", "RA", "D", "", "F"].map(Kind::of);
        let expected = [Kind::Write, Kind::Write, Kind::Flush, Kind::Read, Kind::Other, Kind::Other, Kind::Flush];
        assert_eq!(kinds, expected);
    }
}
