//! The recorder: every copy that the sinks accepted, and the questions that tests ask about them.
//!
//! Promise: a copy is recorded when the sink replies 250 to its end of data (or keeps it silently, `dot_keeps`), once
//! per recipient of the transaction. Waiting is by event ([`Recorder::wait_for`]), never by sleeping. Memory depends on
//! the [`Mode`]: counters only; 10 to 20 bytes per recipient; every copy; every copy with its bytes.
//!
//! Times are microseconds since the lab's start.

mod copy;
mod ledger;
mod tally;

pub use copy::{CopyMeter, HEADER_BYTES_MAX, Original, Verdict, message_id_of};
pub use tally::{NAMES_MAX, Tallied, Tally, Top};

use hashbrown::HashMap;
use ledger::Ledger;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use stentor_records::histogram::Fine as Histogram;
use tokio::sync::Notify;

/// Damaged copies kept in full.
const DAMAGED_KEPT_MAX: usize = 16;
/// Connections kept; all are counted.
const ARRIVALS_KEPT_MAX: usize = 1 << 20;
/// Violations kept with their text; all are counted.
const VIOLATIONS_KEPT_MAX: usize = 256;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Counters alone: for load measurements.
    Counters,
    /// Per message a set of recipient hashes, counts and arrival times: for a million recipients.
    Compact,
    /// Each copy.
    #[default]
    Full,
    /// Each copy and its bytes.
    Bodies,
}

/// One copy for one recipient ([`Mode::Full`] and up).
#[derive(Debug, Clone)]
pub struct Copy {
    pub recipient: Box<str>,
    pub sender: Arc<str>,
    /// The Message-ID without brackets; empty if there is none.
    pub message_id: Arc<str>,
    /// Octets of the message, without dot stuffing.
    pub len: u64,
    /// xxh3-64 of the message.
    pub digest: u64,
    pub at_us: u64,
    /// Connections are numbered over the whole lab.
    pub connection: u64,
    /// The site's number in the scenario.
    pub site: u32,
    /// Of its connection, from 1.
    pub transaction: u32,
    pub verdict: Verdict,
    /// The transaction's message ([`Mode::Bodies`]).
    pub body: Option<Arc<[u8]>>,
}

/// A copy that is not the original.
#[derive(Debug, Clone)]
pub struct DamagedCopy {
    pub message_id: String,
    pub recipients: String,
    pub connection: u64,
    pub len: u64,
    /// The copy, up to 64 KiB of it.
    pub bytes: Vec<u8>,
}

/// A connection to one of a scenario's hosts ([`Mode::Full`] and up).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// As in [`Copy::connection`].
    pub connection: u64,
    /// The site's number in the scenario, and the host's in the site.
    pub site: u32,
    pub host: u32,
    pub at_us: u64,
}

/// A client's breach of the protocol.
#[derive(Debug, Clone)]
pub struct Violation {
    pub kind: &'static str,
    pub connection: u64,
    pub site: u32,
    /// What was received, escaped.
    pub detail: String,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters; all only grow but `open`.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $name: AtomicU64),* }
        /// A snapshot of the counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Stats { $($(#[$doc])* pub $name: u64),* }
        impl Stats {
            /// Adds another recorder's, each to each.
            pub fn add(&mut self, other: &Stats) { $(self.$name += other.$name;)* }
        }
        impl Counters {
            fn snapshot(&self) -> Stats { Stats { $($name: self.$name.load(Relaxed)),* } }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections open now, and the most at once.
    open,
    open_max,
    /// Transactions taken with 250.
    transactions,
    /// Copies: recipients of those transactions.
    recipients,
    /// Octets of message taken.
    bytes,
    /// RCPT commands answered 4xx and 5xx.
    rcpt_4xx,
    rcpt_5xx,
    /// Transactions answered 4xx or 5xx at MAIL, DATA or the end of data.
    mail_4xx,
    mail_5xx,
    /// Copies whose 250 could not be written: their client may rightly send them again.
    unanswered,
    intact,
    damaged,
    /// Second and further copies for the same recipient (not counted in [`Mode::Counters`]).
    duplicates,
    violations,
}

/// What the copies of one message look like against a list of expected recipients.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    pub expected: u64,
    pub copies: u64,
    pub missing: Vec<String>,
    /// Recipients with more than one copy, and how many.
    pub duplicates: Vec<(String, u32)>,
    /// Different recipients that had a copy without being expected.
    pub unexpected: u64,
    pub damaged: u64,
}

impl Audit {
    /// Exactly one intact copy each, and nobody else.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.duplicates.is_empty() && self.unexpected == 0 && self.damaged == 0
    }
}

#[derive(Default)]
struct Book {
    ledger: Ledger,
    copies: Vec<Copy>,
    damaged: Vec<DamagedCopy>,
    tally: Tally,
}

/// What a sink hands in at the end of a transaction.
pub(crate) struct TransactionRecord<'a> {
    pub site: u32,
    pub connection: u64,
    pub transaction: u32,
    pub sender: &'a str,
    /// Accepted recipients, each ended by a line feed.
    pub recipients: &'a str,
    pub recipient_count: u64,
    pub meter: &'a CopyMeter,
}

/// See the module's text. Shared by all sinks of a lab.
pub struct Recorder {
    mode: Mode,
    by_recipient: bool,
    start: Instant,
    /// When the first and the last message were taken, in microseconds; 0 = never.
    first_us: AtomicU64,
    last_us: AtomicU64,
    pub(crate) counters: Counters,
    has_originals: AtomicBool,
    originals: RwLock<HashMap<String, Vec<Arc<Original>>>>,
    book: Mutex<Book>,
    violations: Mutex<Vec<Violation>>,
    arrivals: Mutex<Vec<Arrival>>,
    changed: Notify,
}

impl Recorder {
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            by_recipient: false,
            start: Instant::now(),
            first_us: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
            counters: Counters::default(),
            has_originals: AtomicBool::new(false),
            originals: RwLock::default(),
            book: Mutex::default(),
            violations: Mutex::default(),
            arrivals: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Copies are counted by recipient and by domain too ([`Recorder::top`]).
    #[must_use]
    pub fn by_recipient(mut self, wanted: bool) -> Self {
        self.by_recipient = wanted;
        self
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// When the first and the last message were taken, microseconds since the start; none if there was none.
    pub fn span_us(&self) -> Option<(u64, u64)> {
        let [first, last] = [&self.first_us, &self.last_us].map(|at| at.load(Relaxed));
        (first > 0).then_some((first, last))
    }

    /// The `count` recipients and domains that got most; nothing unless they are counted ([`Recorder::by_recipient`]).
    pub fn top(&self, count: usize) -> Top {
        self.book.lock().tally.top(count)
    }

    /// Microseconds since the start: the clock of [`Copy::at_us`] and the arrivals.
    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// Registers what a client is about to hand in: `wire` unstuffed, with CRLF lines, as it goes over the wire. Copies
    /// with this Message-ID are checked against it from now on. Several originals may share an id (an empty one too); a
    /// copy must be one of them.
    pub fn expect(&self, message_id: &str, wire: Arc<[u8]>) {
        let id = copy::bare_id(message_id).to_owned();
        self.originals.write().entry(id).or_default().push(Arc::new(Original::new(wire)));
        self.has_originals.store(true, Relaxed);
    }

    /// [`Self::expect`] under the Message-ID found in the bytes; returns that id.
    pub fn expect_message(&self, wire: Arc<[u8]>) -> String {
        let id = message_id_of(&wire);
        self.expect(&id, wire);
        id
    }

    pub(super) fn has_originals(&self) -> bool {
        self.has_originals.load(Relaxed)
    }

    pub(super) fn keeps_bodies(&self) -> bool {
        self.mode == Mode::Bodies
    }

    /// Nothing about single messages is wanted, so that the sinks need not look at them.
    pub(super) fn counts_only(&self) -> bool {
        self.mode == Mode::Counters && !self.has_originals()
    }

    pub(super) fn is_expected(&self, id: &str) -> bool {
        self.has_originals() && self.originals.read().contains_key(id)
    }

    /// Originals that a copy with this id may be: those of the id and, as a server may add a Message-ID, those without.
    /// True if the copy must be one of them.
    pub(super) fn candidates(&self, id: &str, into: &mut Vec<(Arc<Original>, usize)>) -> bool {
        let originals = self.originals.read();
        let own = originals.get(id);
        let without = if id.is_empty() { None } else { originals.get("") };
        into.extend(own.into_iter().chain(without).flatten().map(|o| (Arc::clone(o), 0)));
        own.is_some()
    }

    pub(crate) fn taken(&self, record: &TransactionRecord<'_>) {
        let at_us = self.now_us();
        let count = &self.counters;
        if self.first_us.load(Relaxed) == 0 {
            // Of two first ones either will do.
            self.first_us.store(at_us.max(1), Relaxed);
        }
        self.last_us.store(at_us, Relaxed);
        count.transactions.fetch_add(1, Relaxed);
        count.recipients.fetch_add(record.recipient_count, Relaxed);
        count.bytes.fetch_add(record.meter.len(), Relaxed);
        let verdict = record.meter.verdict();
        match verdict {
            Verdict::Intact => drop(count.intact.fetch_add(record.recipient_count, Relaxed)),
            Verdict::Damaged => drop(count.damaged.fetch_add(record.recipient_count, Relaxed)),
            Verdict::Unchecked => {}
        }
        if self.mode > Mode::Counters || self.by_recipient || verdict == Verdict::Damaged {
            self.enter(record, at_us, verdict);
        }
        self.changed.notify_waiters();
    }

    fn enter(&self, record: &TransactionRecord<'_>, at_us: u64, verdict: Verdict) {
        let mut book = self.book.lock();
        let book = &mut *book;
        if verdict == Verdict::Damaged && book.damaged.len() < DAMAGED_KEPT_MAX {
            book.damaged.push(DamagedCopy {
                message_id: record.meter.message_id.clone(),
                recipients: record.recipients.chars().take(4096).collect(),
                connection: record.connection,
                len: record.meter.len(),
                bytes: record.meter.kept.clone(),
            });
        }
        if self.by_recipient {
            for recipient in record.recipients.split_terminator('\n') {
                book.tally.add(recipient, record.meter.len());
            }
        }
        if self.mode == Mode::Counters {
            return;
        }
        let no = book.ledger.message(&record.meter.message_id);
        if verdict == Verdict::Damaged {
            book.ledger.messages[no as usize].damaged += record.recipient_count;
        }
        let full = (self.mode >= Mode::Full).then(|| {
            let body = (self.mode == Mode::Bodies).then(|| Arc::from(record.meter.kept.as_slice()));
            (Arc::from(record.sender), Arc::from(record.meter.message_id.as_str()), record.meter.digest(), body)
        });
        for recipient in record.recipients.split_terminator('\n') {
            if book.ledger.copy(no, recipient, at_us) {
                self.counters.duplicates.fetch_add(1, Relaxed);
            }
            if let Some((sender, message_id, digest, body)) = &full {
                book.copies.push(Copy {
                    recipient: recipient.into(),
                    sender: Arc::clone(sender),
                    message_id: Arc::clone(message_id),
                    len: record.meter.len(),
                    digest: *digest,
                    at_us,
                    connection: record.connection,
                    site: record.site,
                    transaction: record.transaction,
                    verdict,
                    body: body.clone(),
                });
            }
        }
    }

    pub(crate) fn violation(&self, kind: &'static str, connection: u64, site: u32, bytes: &[u8]) {
        self.counters.violations.fetch_add(1, Relaxed);
        let mut kept = self.violations.lock();
        if kept.len() < VIOLATIONS_KEPT_MAX {
            let detail = bytes[..bytes.len().min(160)].escape_ascii().to_string();
            kept.push(Violation { kind, connection, site, detail });
        }
        drop(kept);
        self.changed.notify_waiters();
    }

    pub(crate) fn arrived(&self, connection: u64, site: u32, host: u32) {
        if self.mode >= Mode::Full {
            let mut kept = self.arrivals.lock();
            if kept.len() < ARRIVALS_KEPT_MAX {
                kept.push(Arrival { connection, site, host, at_us: self.now_us() });
            }
        }
    }

    /// Connections to the hosts of a scenario so far ([`Mode::Full`] and up), in the order in which they came.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().clone()
    }

    /// Something else happened that a waiting test may want to see.
    pub(crate) fn nudge(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `done` holds, looking again whenever a sink has done something; false after `timeout`.
    pub async fn wait_for(&self, timeout: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if done(self) {
                return true;
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return done(self);
            }
        }
    }

    /// Waits for this many copies in all.
    pub async fn wait_for_copies(&self, copies: u64, timeout: Duration) -> bool {
        self.wait_for(timeout, |r| r.counters.recipients.load(Relaxed) >= copies).await
    }

    /// All copies so far ([`Mode::Full`] and up, else empty).
    pub fn copies(&self) -> Vec<Copy> {
        self.book.lock().copies.clone()
    }

    /// At most `limit` copies after the first `known`.
    pub fn copies_after(&self, known: usize, limit: usize) -> Vec<Copy> {
        self.book.lock().copies.iter().skip(known).take(limit).cloned().collect()
    }

    /// The copies that one recipient got.
    pub fn copies_to(&self, recipient: &str) -> Vec<Copy> {
        self.book.lock().copies.iter().filter(|c| c.recipient.eq_ignore_ascii_case(recipient)).cloned().collect()
    }

    /// Copies of one message so far, repeats included.
    pub fn copies_of(&self, message_id: &str) -> u64 {
        self.book.lock().ledger.lookup(copy::bare_id(message_id)).map_or(0, |line| line.copies)
    }

    /// Different recipients of one message so far.
    pub fn recipients_of(&self, message_id: &str) -> u64 {
        self.book.lock().ledger.lookup(copy::bare_id(message_id)).map_or(0, |line| line.recipients)
    }

    /// Message-IDs seen, in order of their first copy.
    pub fn message_ids(&self) -> Vec<String> {
        self.book.lock().ledger.messages.iter().map(|line| line.id.as_ref().to_owned()).collect()
    }

    /// When the copies of one message came, microseconds since the start.
    pub fn arrivals_us(&self, message_id: &str) -> Option<Histogram> {
        self.book.lock().ledger.lookup(copy::bare_id(message_id)).map(|line| line.arrivals_us.clone())
    }

    pub fn damaged(&self) -> Vec<DamagedCopy> {
        self.book.lock().damaged.clone()
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.violations.lock().clone()
    }

    /// Recipients that had a copy more than once, by message (the first 10,000 repeats).
    pub fn duplicates(&self) -> Vec<(String, String)> {
        let book = self.book.lock();
        let names = book.ledger.repeat_names.iter();
        names.map(|(no, who)| (book.ledger.messages[*no as usize].id.to_string(), who.to_string())).collect()
    }

    /// Compares the copies of one message with the recipients that must have one. `expected` must not repeat itself.
    pub fn audit<'a>(&self, message_id: &str, expected: impl IntoIterator<Item = &'a str>) -> Audit {
        let book = self.book.lock();
        let line = book.ledger.lookup(copy::bare_id(message_id));
        let mut audit = Audit { copies: line.map_or(0, |l| l.copies), ..Audit::default() };
        audit.damaged = line.map_or(0, |l| l.damaged);
        let mut found = 0;
        for recipient in expected {
            audit.expected += 1;
            match line.map_or(0, |line| book.ledger.count(line, recipient)) {
                0 => audit.missing.push(recipient.to_owned()),
                1 => found += 1,
                more => {
                    found += 1;
                    audit.duplicates.push((recipient.to_owned(), more));
                }
            }
        }
        audit.unexpected = line.map_or(0, |l| l.recipients).saturating_sub(found);
        audit
    }

    /// JSON lines: each copy ([`Mode::Full`] and up), else each message; then recipients and domains, if they are
    /// counted.
    pub fn dump(&self, out: &mut dyn Write) -> io::Result<()> {
        self.dump_mail(out)?;
        if self.by_recipient { self.book.lock().tally.dump(out) } else { Ok(()) }
    }

    /// One 64-bit hash for each message and recipient seen ([`Mode::Compact`] and up): to find second copies among
    /// recorders.
    pub fn hashes(&self) -> Vec<u64> {
        self.book.lock().ledger.hashes()
    }

    pub fn dump_mail(&self, out: &mut dyn Write) -> io::Result<()> {
        let book = self.book.lock();
        for copy in &book.copies {
            let line = serde_json::json!({
                "recipient": *copy.recipient, "sender": *copy.sender, "message_id": *copy.message_id, "len": copy.len,
                "digest": format!("{:016x}", copy.digest), "at_us": copy.at_us, "connection": copy.connection,
                "site": copy.site, "transaction": copy.transaction, "verdict": format!("{:?}", copy.verdict),
            });
            writeln!(out, "{line}")?;
        }
        if self.mode < Mode::Full {
            for line in &book.ledger.messages {
                let times = &line.arrivals_us;
                let line = serde_json::json!({
                    "message_id": *line.id, "copies": line.copies, "recipients": line.recipients,
                    "damaged": line.damaged, "first_us": times.least(), "p50_us": times.percentile(0.5),
                    "p95_us": times.percentile(0.95), "p99_us": times.percentile(0.99), "last_us": times.greatest(),
                });
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}
