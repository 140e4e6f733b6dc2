//! The thread that packs appended records into blocks and writes them.
//!
//! States: *waiting* (up to [`ROUND`]), *a round* (buffers taken, sorted by time, packed into blocks, written; synced
//! every `sync_ms`), *failing* (an I/O error, or no space: records are dropped and counted for [`RETRY_MS`], then
//! writing is tried again). Losses are recorded in the history as soon as it can be written again. A round without
//! records costs one wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_records::record::{Ms, Note, Record, Topic};

use crate::block::Builder;
use crate::codec::{decode_plain, peek_plain};
use crate::files::{Files, RETRY_MS};
use crate::shared::{Config, SHARDS, Shared};

/// The longest time that a record waits to be written.
const ROUND: Duration = Duration::from_millis(400);
/// A buffer that a burst enlarged beyond this is released.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;
/// Interval at which old files are deleted while nothing is written.
const PRUNE_MS: Ms = 60_000;

pub struct Writer {
    shared: Arc<Shared>,
    files: Files,
    config: Config,
    builder: Builder,
    taken: [Vec<u8>; SHARDS],
    order: Vec<Entry>,
    out: Vec<u8>,
    /// Records lost since the last note about losses in the history.
    lost: u64,
    /// The part of `Shared::dropped` that was already counted.
    dropped_seen: u64,
    failing_since: Option<Ms>,
    synced_ms: Ms,
    pruned_ms: Ms,
}

/// A record within the swapped buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Ms,
    /// False for acceptances, which sort before the attempts of the same moment.
    is_later: bool,
    shard: u8,
    from: u32,
    to: u32,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, files: Files, config: Config) -> Writer {
        let now = (config.now)();
        Writer {
            shared,
            files,
            config,
            builder: Builder::default(),
            taken: Default::default(),
            order: Vec::new(),
            out: Vec::new(),
            lost: 0,
            dropped_seen: 0,
            failing_since: None,
            synced_ms: now,
            pruned_ms: now,
        }
    }

    /// The thread's main loop.
    pub fn run(mut self) {
        loop {
            let mut requests = self.shared.requests.lock();
            if !requests.is_urged && !requests.stop {
                self.shared.wake.wait_for(&mut requests, ROUND);
            }
            requests.is_urged = false;
            requests.begun += 1;
            let (sync, stop) = (std::mem::take(&mut requests.sync), requests.stop);
            drop(requests);

            self.round(sync || stop);

            let mut requests = self.shared.requests.lock();
            requests.finished = requests.begun;
            drop(requests);
            self.shared.done.notify_all();
            if stop {
                return;
            }
        }
    }

    fn round(&mut self, sync: bool) {
        let now = (self.config.now)();
        self.shared.swap(&mut self.taken);
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        self.lost += dropped - self.dropped_seen;
        self.dropped_seen = dropped;
        self.sort();
        if !self.order.is_empty() || (self.lost > 0 && self.failing_since.is_none()) {
            self.write(now);
        }
        for buffer in &mut self.taken {
            buffer.clear();
            buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        if sync || now.saturating_sub(self.synced_ms) >= self.config.sync_ms {
            self.synced_ms = now;
            if let Err(error) = self.files.sync() {
                self.failed(now, &error.to_string());
            }
        }
        if now.saturating_sub(self.pruned_ms) >= PRUNE_MS {
            self.pruned_ms = now;
            self.files.prune(now, 0);
        }
        self.shared.files.store(self.files.count() as u64, Ordering::Relaxed);
        self.shared.bytes.store(self.files.bytes(), Ordering::Relaxed);
    }

    fn sort(&mut self) {
        self.order.clear();
        for (shard, buffer) in self.taken.iter().enumerate() {
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let Some((at, is_accepted, body)) = peek_plain(&mut rest) else {
                    debug_assert!(false, "a record of our own cannot be read");
                    break;
                };
                let to = (buffer.len() - rest.len()) as u32;
                let from = to - body.len() as u32;
                self.order.push(Entry { at, is_later: !is_accepted, shard: shard as u8, from, to });
            }
        }
        self.order.sort_unstable();
    }

    /// Writes the swapped records, or drops them.
    fn write(&mut self, now: Ms) {
        if self.failing_since.is_some_and(|since| now.saturating_sub(since) < RETRY_MS) {
            self.drop_rest(0);
            return;
        }
        if self.lost > 0 {
            let text = format!("history: {} records were lost, see docs/design/history-format.md", self.lost);
            self.builder.push(&Record::Note(Note { at: now, text: &text, topic: Topic::Server, ..Note::default() }));
        }
        let order = std::mem::take(&mut self.order);
        for (at, entry) in order.iter().enumerate() {
            let body = &self.taken[usize::from(entry.shard)][entry.from as usize..entry.to as usize];
            match decode_plain(body) {
                Some(record) => self.builder.push(&record),
                None => debug_assert!(false, "a record of our own cannot be read"),
            }
            if self.builder.is_full() && !self.put(now) {
                self.order = order;
                self.drop_rest(at + 1);
                return;
            }
        }
        self.order = order;
        if !self.builder.is_empty() {
            self.put(now);
        }
    }

    /// Writes the gathered block; if that fails, its records are lost and counted.
    fn put(&mut self, now: Ms) -> bool {
        let records = u64::from(self.builder.records());
        self.out.clear();
        self.builder.finish(self.files.next_record, &mut self.out);
        let written = match self.files.has_room(self.out.len() as u64) {
            Ok(true) => self.files.append(&self.out, records, now).map_err(|error| error.to_string()),
            Ok(false) => Err("the remaining space is reserved for the journal".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match written {
            Ok(()) => {
                let notes = u64::from(self.lost > 0);
                self.lost = 0;
                self.shared.appended.fetch_add(records - notes, Ordering::Relaxed);
                if self.failing_since.take().is_some() {
                    self.shared.is_failing.store(false, Ordering::Relaxed);
                    (self.config.complain)("the history is written again");
                }
                true
            }
            Err(why) => {
                let lost = records - u64::from(self.lost > 0);
                self.lose(lost);
                self.failed(now, &why);
                false
            }
        }
    }

    /// Counts the records that were not put into a block as lost, from position `from` of the order on.
    fn drop_rest(&mut self, from: usize) {
        self.lose((self.order.len() - from) as u64);
    }

    fn lose(&mut self, records: u64) {
        self.lost += records;
        self.dropped_seen += records;
        self.shared.dropped.fetch_add(records, Ordering::Relaxed);
    }

    fn failed(&mut self, now: Ms, why: &str) {
        if self.failing_since.is_none() {
            (self.config.complain)(&format!("cannot write the history, records are dropped: {why}"));
        }
        self.failing_since = Some(now);
        self.shared.is_failing.store(true, Ordering::Relaxed);
    }
}
