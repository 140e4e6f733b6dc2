//! Encodes and decodes records.
//!
//! A record is its length, its kind and its fields, in the order of `docs/design/history-format.md`. A reader uses the
//! default for fields missing at the end and skips extra ones, so that older and newer versions can read each other's
//! records. Fields that a later version appends must be numbers or literal texts, which take no number in the block.
//! There are two encodings: [`Encoder::plain`] for callers that append (absolute times, every text in full, nothing to
//! look up), and [`Encoder::shared`] for the thread that makes blocks (times as differences, repeated texts as a
//! number). One reader reads both. Texts are cut at [`TEXT_BYTES_MAX`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use stentor_records::record::{
    Accepted, Attempt, Machine, Ms, Note, Record, Refused, Stat, To, Topic, Unreached, WireChanges,
};

use crate::varint;

/// Largest size of one text of a record; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 2_048;
/// Largest number of recipients in one record; more are split over several records.
pub const TO_MAX: usize = 500;
/// Largest number of domains of a failed session or look-up; more are left out.
pub const DOMAINS_MAX: usize = 64;

const ACCEPTED: u8 = 1;
const ATTEMPT: u8 = 2;
const REFUSED: u8 = 3;
const NOTE: u8 = 4;
const MACHINE: u8 = 5;

/// The first `bytes_max` octets of `text`, cut between characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max { text } else { &text[..text.floor_char_boundary(bytes_max)] }
}

/// The texts of a block so far.
#[derive(Default)]
pub struct Texts {
    arena: Vec<u8>,
    /// Start and end within the arena, in order of first occurrence.
    spans: Vec<(u32, u32)>,
    table: HashTable<u32>,
    hasher: FixedState,
}

impl Texts {
    pub fn clear(&mut self) {
        self.arena.clear();
        self.spans.clear();
        self.table.clear();
    }

    /// The number of a text that occurred before; otherwise assigns it the next one.
    fn number(&mut self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let (arena, spans) = (&self.arena, &self.spans);
        let text_of = |n: u32| {
            let (from, to) = spans[n as usize];
            &arena[from as usize..to as usize]
        };
        if let Some(number) = self.table.find(hash, |n| text_of(*n) == text.as_bytes()) {
            return Some(*number);
        }
        let number = spans.len() as u32;
        let from = self.arena.len() as u32;
        self.arena.extend_from_slice(text.as_bytes());
        self.spans.push((from, self.arena.len() as u32));
        let (arena, spans, hasher) = (&self.arena, &self.spans, &self.hasher);
        self.table.insert_unique(hash, number, |n| {
            let (from, to) = spans[*n as usize];
            // Texts were hashed as `str`, and the arena contains nothing else.
            std::str::from_utf8(&arena[from as usize..to as usize]).map_or(0, |text| hasher.hash_one(text))
        });
        None
    }
}

/// Writes the fields of one record.
pub struct Encoder<'e> {
    out: &'e mut Vec<u8>,
    texts: Option<&'e mut Texts>,
    last_at: Ms,
}

impl<'e> Encoder<'e> {
    /// Creates an encoder that writes every text in full and absolute times.
    pub fn plain(out: &'e mut Vec<u8>) -> Self {
        Self { out, texts: None, last_at: 0 }
    }

    /// Creates an encoder that writes repeated texts as numbers, and times relative to `last_at`.
    pub fn shared(out: &'e mut Vec<u8>, texts: &'e mut Texts, last_at: Ms) -> Self {
        Self { out, texts: Some(texts), last_at }
    }

    /// Appends the record without its length.
    pub fn record(mut self, record: &Record<'_>) {
        match record {
            Record::Accepted(r) => self.accepted(r),
            Record::Attempt(r) => self.attempt(r),
            Record::Refused(r) => self.refused(r),
            Record::Note(r) => self.note(r),
            Record::Machine(r) => self.machine(r),
        }
    }

    fn head(&mut self, kind: u8, at: Ms) {
        self.out.push(kind);
        let since = at.wrapping_sub(self.last_at).cast_signed();
        self.number(varint::zigzag(since));
    }

    fn accepted(&mut self, r: &Accepted<'_>) {
        self.head(ACCEPTED, r.at);
        self.text(r.id);
        self.text(r.from);
        self.number(r.size);
        self.number(r.recipients);
        self.text(r.message_id);
        self.text(r.client_host);
        self.ip(r.client);
        self.text(r.proto);
        self.number(u64::from(r.is_bulk) | u64::from(r.is_of_stranger) << 1);
        self.text(r.list);
        self.text(r.policy);
        self.text(r.tls);
        let has_more = !r.orig_from.is_empty() || !r.user.is_empty();
        if !r.named.is_empty() || !r.marks.is_empty() || has_more {
            self.addresses(&r.named);
            self.literal(r.marks);
        }
        if has_more {
            self.literal(r.orig_from);
            self.literal(r.user);
        }
    }

    fn addresses(&mut self, all: &[&str]) {
        let all = &all[..all.len().min(TO_MAX)];
        self.number(all.len() as u64);
        for address in all {
            self.literal(address);
        }
    }

    fn attempt(&mut self, r: &Attempt<'_>) {
        self.head(ATTEMPT, r.at);
        self.text(r.id);
        self.addresses(&r.to);
        self.text(r.from);
        self.text(r.list);
        self.text(r.source);
        self.text(r.mailer);
        self.text(r.host);
        self.ip(r.ip);
        self.number(u64::from(r.port));
        self.number(r.delay_ms);
        self.number(r.xdelay_ms);
        self.number(stat_number(r.stat));
        self.text(r.dsn);
        self.text(r.reply);
        self.text(r.tls);
        self.number(r.size);
        let recoded = u64::from(r.recoded.seven_bit) << 2 | u64::from(r.recoded.lines) << 3;
        let of_stranger = u64::from(r.is_of_stranger) << 4;
        self.number(u64::from(r.is_bulk) | u64::from(r.is_repeated) << 1 | recoded | of_stranger);
        if let Some(unreached) = &r.unreached {
            self.unreached(unreached);
        }
    }

    fn unreached(&mut self, u: &Unreached<'_>) {
        self.literal(u.site);
        self.number(u.waiting);
        let domains = &u.domains[..u.domains.len().min(DOMAINS_MAX)];
        self.number(domains.len() as u64);
        for (domain, waiting) in domains {
            self.literal(domain);
            self.number(*waiting);
        }
    }

    fn refused(&mut self, r: &Refused<'_>) {
        self.head(REFUSED, r.at);
        self.ip(r.client);
        self.text(r.from);
        self.text(r.to);
        self.text(r.reply);
        self.text(r.step);
        self.number(r.size);
        self.number(r.recipients);
        self.literal(r.policy);
        if !r.message_id.is_empty() || !r.named.is_empty() || !r.user.is_empty() {
            self.literal(r.message_id);
            self.addresses(&r.named);
            self.literal(r.user);
        }
    }

    fn note(&mut self, r: &Note<'_>) {
        self.head(NOTE, r.at);
        self.text(r.id);
        self.text(r.text);
        let topic = match r.topic {
            Topic::Server => 0,
            Topic::Delivery => 1,
            Topic::Policy => 2,
            Topic::Audit => 3,
        };
        self.number(topic | u64::from(r.is_end) << 4);
        if !r.to.is_empty() || !r.message_id.is_empty() {
            self.addresses(&r.to);
            self.literal(r.message_id);
        }
    }

    fn machine(&mut self, r: &Machine) {
        self.head(MACHINE, r.at);
        self.number(r.interval_ms);
        for share in [r.cpu, r.load_1m, r.disk_busy, r.own_cpu] {
            self.out.extend_from_slice(&share.to_le_bytes());
        }
        let figures = [
            r.memory_used_bytes,
            r.disk_read_bytes,
            r.disk_written_bytes,
            r.net_in_bytes,
            r.net_out_bytes,
            r.own_memory_bytes,
            r.own_read_bytes,
            r.own_written_bytes,
            r.pending,
            u64::from(r.connections_in),
            u64::from(r.connections_out),
        ];
        for figure in figures {
            self.number(figure);
        }
    }

    fn number(&mut self, n: u64) {
        varint::push(self.out, n);
    }

    /// Writes a text that others of the block may share: twice its length and the text, or twice the number of the
    /// earlier occurrence, plus one.
    fn text(&mut self, text: &str) {
        let text = cut(text, TEXT_BYTES_MAX);
        if let Some(texts) = &mut self.texts
            && !text.is_empty()
            && let Some(number) = texts.number(text)
        {
            self.number(u64::from(number) << 1 | 1);
            return;
        }
        self.number((text.len() as u64) << 1);
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes a text that rarely repeats: its length and the text.
    fn literal(&mut self, text: &str) {
        let text = cut(text, TEXT_BYTES_MAX);
        self.number(text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
    }

    fn ip(&mut self, ip: Option<IpAddr>) {
        match ip.map(|ip| ip.to_canonical()) {
            None => self.out.push(0),
            Some(IpAddr::V4(ip)) => {
                self.out.push(4);
                self.out.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                self.out.push(6);
                self.out.extend_from_slice(&ip.octets());
            }
        }
    }
}

fn stat_number(stat: Stat) -> u64 {
    match stat {
        Stat::Sent => 0,
        Stat::Deferred => 1,
        Stat::Bounced => 2,
        Stat::Expired => 3,
        Stat::Removed => 4,
        Stat::Coalesced => 5,
        Stat::Quarantined => 6,
        Stat::Released => 7,
    }
}

fn stat_of(number: u64) -> Option<Stat> {
    const ALL: [Stat; 8] = [
        Stat::Sent,
        Stat::Deferred,
        Stat::Bounced,
        Stat::Expired,
        Stat::Removed,
        Stat::Coalesced,
        Stat::Quarantined,
        Stat::Released,
    ];
    ALL.get(usize::try_from(number).ok()?).copied()
}

/// Octets reserved for a length before the record is written.
const LENGTH_BYTES: usize = 4;

/// Appends the record in full, preceded by its length.
pub fn push_plain(out: &mut Vec<u8>, record: &Record<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    Encoder::plain(out).record(record);
    // At most TO_MAX texts and a few more, of TEXT_BYTES_MAX each: far below 28 bits.
    let len = out.len() - start - LENGTH_BYTES;
    for (at, byte) in out[start..start + LENGTH_BYTES].iter_mut().enumerate() {
        let more = if at + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        *byte = (len >> (7 * at)) as u8 & 0x7f | more;
    }
}

/// Takes one record written by [`push_plain`] off the front. Decodes only its time and whether it is an acceptance:
/// acceptances are sorted before attempts of the same moment.
pub fn peek_plain<'a>(bytes: &mut &'a [u8]) -> Option<(Ms, bool, &'a [u8])> {
    let len = usize::try_from(varint::take(bytes)?).ok()?;
    let (body, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let (kind, mut fields) = body.split_first()?;
    Some((varint::unzigzag(varint::take(&mut fields)?) as u64, *kind == ACCEPTED, body))
}

/// Decodes a record that [`peek_plain`] returned.
pub fn decode_plain(body: &[u8]) -> Option<Record<'_>> {
    let mut texts = Vec::new();
    Fields { rest: body, texts: &mut texts, keeps: false }.record(&mut 0).ok().flatten()
}

/// A damaged record; the records before it are good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DamagedRecord;

/// Reads the records of a block; the texts borrow from it.
pub struct Decoder<'a> {
    rest: &'a [u8],
    texts: Vec<&'a str>,
    last_at: Ms,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, texts: Vec::new(), last_at: 0 }
    }

    fn step(&mut self) -> Result<Option<Record<'a>>, DamagedRecord> {
        let len = varint::take(&mut self.rest).and_then(|len| usize::try_from(len).ok()).ok_or(DamagedRecord)?;
        let (body, rest) = self.rest.split_at_checked(len).ok_or(DamagedRecord)?;
        self.rest = rest;
        Fields { rest: body, texts: &mut self.texts, keeps: true }.record(&mut self.last_at)
    }
}

impl<'a> Iterator for Decoder<'a> {
    /// `None` stands for a record of an unknown kind, which has a number too.
    type Item = Result<Option<Record<'a>>, DamagedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

struct Fields<'f, 'a> {
    rest: &'a [u8],
    texts: &'f mut Vec<&'a str>,
    keeps: bool,
}

impl<'a> Fields<'_, 'a> {
    /// Decodes a record; `None` for a kind unknown to this version.
    fn record(&mut self, last_at: &mut Ms) -> Result<Option<Record<'a>>, DamagedRecord> {
        let kind = self.byte().ok_or(DamagedRecord)?;
        let since = varint::unzigzag(self.number().ok_or(DamagedRecord)?);
        let at = last_at.wrapping_add_signed(since);
        *last_at = at;
        let record = match kind {
            ACCEPTED => self.accepted(at).map(Record::Accepted),
            ATTEMPT => self.attempt(at).map(Record::Attempt),
            REFUSED => self.refused(at).map(Record::Refused),
            NOTE => self.note(at).map(Record::Note),
            MACHINE => self.machine(at).map(Record::Machine),
            _ => return Ok(None),
        };
        record.map(Some).ok_or(DamagedRecord)
    }

    fn accepted(&mut self, at: Ms) -> Option<Accepted<'a>> {
        let mut accepted = Accepted {
            at,
            id: self.text()?,
            from: self.text()?,
            size: self.number()?,
            recipients: self.number()?,
            message_id: self.text()?,
            client_host: self.text()?,
            client: self.ip().ok()?,
            proto: self.text()?,
            ..Accepted::default()
        };
        let flags = self.number()?;
        (accepted.is_bulk, accepted.is_of_stranger) = (flags & 1 != 0, flags & 2 != 0);
        (accepted.list, accepted.policy, accepted.tls) = (self.text()?, self.text()?, self.text()?);
        (accepted.named, accepted.marks) = (self.addresses()?, self.literal()?);
        (accepted.orig_from, accepted.user) = (self.literal()?, self.literal()?);
        Some(accepted)
    }

    fn addresses(&mut self) -> Option<To<'a>> {
        let mut all: To<'a> = SmallVec::new();
        for _ in 0..self.number()? {
            if all.len() == TO_MAX {
                return None;
            }
            all.push(self.literal()?);
        }
        Some(all)
    }

    fn attempt(&mut self, at: Ms) -> Option<Attempt<'a>> {
        let (id, to) = (self.text()?, self.addresses()?);
        let mut attempt = Attempt {
            at,
            id,
            to,
            from: self.text()?,
            list: self.text()?,
            source: self.text()?,
            mailer: self.text()?,
            host: self.text()?,
            ip: self.ip().ok()?,
            port: self.number()? as u16,
            delay_ms: self.number()?,
            xdelay_ms: self.number()?,
            stat: stat_of(self.number()?)?,
            dsn: self.text()?,
            reply: self.text()?,
            tls: self.text()?,
            size: self.number()?,
            ..Attempt::default()
        };
        let flags = self.number()?;
        (attempt.is_bulk, attempt.is_repeated, attempt.is_of_stranger) =
            (flags & 1 != 0, flags & 2 != 0, flags & 16 != 0);
        attempt.recoded = WireChanges { seven_bit: flags & 4 != 0, lines: flags & 8 != 0 };
        if !self.rest.is_empty() {
            attempt.unreached = Some(Box::new(self.unreached()?));
        }
        Some(attempt)
    }

    fn unreached(&mut self) -> Option<Unreached<'a>> {
        let (site, waiting) = (self.literal()?, self.number()?);
        let mut domains = Vec::new();
        for _ in 0..self.number()? {
            if domains.len() == DOMAINS_MAX {
                return None;
            }
            domains.push((self.literal()?, self.number()?));
        }
        Some(Unreached { site, waiting, domains })
    }

    fn refused(&mut self, at: Ms) -> Option<Refused<'a>> {
        Some(Refused {
            at,
            client: self.ip().ok()?,
            from: self.text()?,
            to: self.text()?,
            reply: self.text()?,
            step: self.text()?,
            size: self.number()?,
            recipients: self.number()?,
            policy: self.literal()?,
            message_id: self.literal()?,
            named: self.addresses()?,
            user: self.literal()?,
        })
    }

    fn note(&mut self, at: Ms) -> Option<Note<'a>> {
        let (id, text) = (self.text()?, self.text()?);
        let number = self.number()?;
        let topic = match number & 15 {
            1 => Topic::Delivery,
            2 => Topic::Policy,
            3 => Topic::Audit,
            _ => Topic::Server,
        };
        let (to, message_id) = (self.addresses()?, self.literal()?);
        Some(Note { at, id, text, topic, is_end: number & 16 != 0, to, message_id })
    }

    fn machine(&mut self, at: Ms) -> Option<Machine> {
        let interval_ms = self.number()?;
        let mut shares = [0.0; 4];
        for share in &mut shares {
            *share = self.float()?;
        }
        let [cpu, load_1m, disk_busy, own_cpu] = shares;
        Some(Machine {
            at,
            interval_ms,
            cpu,
            load_1m,
            disk_busy,
            own_cpu,
            memory_used_bytes: self.number()?,
            disk_read_bytes: self.number()?,
            disk_written_bytes: self.number()?,
            net_in_bytes: self.number()?,
            net_out_bytes: self.number()?,
            own_memory_bytes: self.number()?,
            own_read_bytes: self.number()?,
            own_written_bytes: self.number()?,
            pending: self.number()?,
            connections_in: self.number()? as u32,
            connections_out: self.number()? as u32,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a number. A record of an older version ends earlier: missing fields are 0.
    fn number(&mut self) -> Option<u64> {
        if self.rest.is_empty() { Some(0) } else { varint::take(&mut self.rest) }
    }

    fn float(&mut self) -> Option<f32> {
        if self.rest.is_empty() {
            return Some(0.0);
        }
        Some(f32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn literal(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let n = self.number()?;
        let half = usize::try_from(n >> 1).ok()?;
        if n & 1 == 1 {
            return self.texts.get(half).copied();
        }
        let text = std::str::from_utf8(self.take(half)?).ok()?;
        if self.keeps && !text.is_empty() {
            self.texts.push(text);
        }
        Some(text)
    }

    fn ip(&mut self) -> Result<Option<IpAddr>, DamagedRecord> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let octets = match self.byte() {
            Some(0) => return Ok(None),
            Some(4) => self.take(4),
            Some(6) => self.take(16),
            _ => None,
        };
        let octets = octets.ok_or(DamagedRecord)?;
        let ip = <[u8; 4]>::try_from(octets).map(|v4| Ipv4Addr::from(v4).into());
        ip.or_else(|_| <[u8; 16]>::try_from(octets).map(|v6| Ipv6Addr::from(v6).into()))
            .map(Some)
            .map_err(|_| DamagedRecord)
    }
}
