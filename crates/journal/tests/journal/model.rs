//! A small owner: messages that refer to content, accepted and finished at random, with fuzzy checkpoints and cleaning.
//! Its state is a fold of its records, so that a recovery's replay can be compared with the acknowledged state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use stentor_journal::{
    Batch, CheckpointStep, CommitError, Journal, JournalError, Options, RecoveryReport, SimDisk, Slice,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub content: u64,
    pub len: u64,
}

/// The state folded from the records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub messages: BTreeMap<u64, Message>,
}

impl State {
    /// Records: accept `A id content len`, finish `F id`, slice `S (id content len)*`.
    pub fn apply(&mut self, payload: &[u8]) {
        let words: Vec<u64> =
            payload[1..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        match payload[0] {
            b'F' => {
                self.messages.remove(&words[0]);
            }
            _ => {
                for entry in words.chunks_exact(3) {
                    self.messages.insert(entry[0], Message { content: entry[1], len: entry[2] });
                }
            }
        }
    }
}

pub fn record(kind: u8, words: &[u64]) -> Vec<u8> {
    let mut payload = vec![kind];
    payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    payload
}

/// Bytes of a content, derived from its id.
pub fn content_bytes(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::with_seed(id ^ 0xC0).fill(&mut bytes);
    bytes
}

pub fn small() -> Options {
    Options {
        segment_bytes: 16 * 4096,
        checkpoint_bytes_min: 40 * 4096,
        pool_ready_min: 1,
        pool_ready_max: 3,
        reserve_segments: 0,
        seed: 0x5EED,
        ..Options::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A record is committed in the batch before its content's.
    RecordBeforeContent,
    /// Slices that the durable checkpoint names are dropped before the next one is durable.
    SliceDroppedEarly,
    /// A slice is kept although its messages have changed.
    SliceKeptStale,
}

/// Number of messages in a slice.
const GROUP: u64 = 4;

struct Session {
    content: u64,
    bytes: Vec<u8>,
    sent: usize,
}

pub struct Owner {
    pub journal: Journal,
    pub batch: Batch,
    /// The state in memory: valid once the batch under construction is durable.
    pub state: State,
    /// The acknowledged state.
    pub durable: State,
    pub rng: Rng,
    mutation: Mutation,
    sessions: Vec<Session>,
    late: Vec<(u64, Vec<u8>)>,
    next_message: u64,
    slices_from: Option<u64>,
    /// Slices that show their messages in their current state.
    slices: BTreeMap<u64, Slice>,
    /// How many times a slice was named again.
    pub kept: u64,
    pub now: u64,
}

/// Opens the journal and folds its records.
pub fn open(disk: &SimDisk) -> Result<(Journal, RecoveryReport, State), JournalError> {
    let mut state = State::default();
    let (mut journal, report) = Journal::open(Arc::new(disk.clone()), small(), &mut |record| {
        state.apply(record.payload);
        Ok(())
    })?;
    let wanted: BTreeSet<u64> = state.messages.values().map(|message| message.content).collect();
    journal.retain_contents(&mut |id| wanted.contains(&id))?;
    Ok((journal, report, state))
}

impl Owner {
    pub fn new(journal: Journal, state: State, seed: u64, mutation: Mutation) -> Owner {
        let next_message = state.messages.keys().next_back().map_or(1, |id| id + 1).max(seed << 20);
        Owner {
            journal,
            batch: Batch::new(),
            durable: state.clone(),
            state,
            rng: Rng::with_seed(seed),
            mutation,
            sessions: Vec::new(),
            late: Vec::new(),
            next_message,
            slices_from: None,
            slices: BTreeMap::new(),
            kept: 0,
            now: 1,
        }
    }

    fn accept(&mut self, content: u64, len: u64) {
        let id = self.next_message;
        self.next_message += 1;
        self.batch.record(&record(b'A', &[id, content, len]));
        self.state.messages.insert(id, Message { content, len });
        self.changed(id);
    }

    fn changed(&mut self, id: u64) {
        if self.mutation != Mutation::SliceKeptStale {
            self.slices.remove(&(id / GROUP));
        }
    }

    fn finish(&mut self, id: u64) {
        self.changed(id);
        let Some(message) = self.state.messages.remove(&id) else { return };
        self.batch.record(&record(b'F', &[id]));
        self.batch.drop_content(message.content);
    }

    /// Fills the batch with a random mix.
    pub fn fill(&mut self) {
        for (content, bytes) in std::mem::take(&mut self.late) {
            self.batch.content(content, true, &bytes);
        }
        for _ in 0..self.rng.usize(0..4) {
            let content = self.journal.next_content_id();
            let max = if self.rng.u8(0..8) == 0 { 20_000 } else { 3_000 };
            let bytes = content_bytes(content, self.rng.usize(0..max));
            let len = bytes.len() as u64;
            if self.mutation == Mutation::RecordBeforeContent && self.rng.bool() {
                self.late.push((content, bytes));
            } else {
                self.batch.content(content, true, &bytes);
            }
            self.accept(content, len);
        }
        if self.rng.u8(0..4) == 0 {
            let content = self.journal.next_content_id();
            let bytes = content_bytes(content, self.rng.usize(1..30_000));
            self.sessions.push(Session { content, bytes, sent: 0 });
        }
        self.pieces();
        let live: Vec<u64> = self.state.messages.keys().copied().filter(|id| id % 13 != 0).collect();
        for id in live {
            // The last 20 live for about 20 batches; multiples of 13 stay forever.
            if self.rng.u8(0..6) == 0 {
                self.finish(id);
            }
        }
        self.checkpoint();
        if self.journal.clean_due() {
            self.journal.clean(&mut self.batch, 8_000);
        }
    }

    /// Adds a few bytes to contents that come in pieces.
    fn pieces(&mut self) {
        for mut session in std::mem::take(&mut self.sessions) {
            let end = session.bytes.len().min(session.sent + self.rng.usize(0..8_000));
            let last = end == session.bytes.len();
            self.batch.content(session.content, last, &session.bytes[session.sent..end]);
            session.sent = end;
            if last {
                self.accept(session.content, end as u64);
            } else if self.rng.u8(0..20) == 0 {
                self.batch.drop_content(session.content);
            } else {
                self.sessions.push(session);
            }
        }
    }

    fn checkpoint(&mut self) {
        if !self.journal.checkpoint_running() {
            self.slices_from = None;
            if self.journal.checkpoint_due() {
                self.journal.begin_checkpoint(&mut self.batch);
                self.slices_from = Some(0);
            }
            if self.mutation == Mutation::SliceDroppedEarly && self.rng.u8(0..4) == 0 {
                let slices: Vec<u64> = self.journal.slices().collect();
                for content in slices {
                    self.journal.drop_content(content);
                }
            }
            return;
        }
        for _ in 0..2 {
            let Some(from) = self.slices_from else { break };
            self.slices_from = self.slice(from);
        }
        if self.slices_from.is_some() {
            self.journal.checkpoint_slice(&mut self.batch);
        } else {
            let step = self.journal.end_checkpoint(&mut self.batch);
            assert_ne!(step, CheckpointStep::Aborted, "nothing failed since it began");
        }
    }

    /// Adds the next messages as a slice: kept, written, or as a record. Returns where to continue.
    fn slice(&mut self, from: u64) -> Option<u64> {
        let (first, _) = self.state.messages.range(from..).next()?;
        let group = first / GROUP;
        let next = (group + 1) * GROUP;
        if let Some(slice) = self.slices.get(&group)
            && self.journal.keep_slice(&mut self.batch, *slice)
        {
            self.kept += 1;
            return Some(next);
        }
        let messages = self.state.messages.range(group * GROUP..next);
        let words: Vec<u64> = messages.flat_map(|(id, message)| [*id, message.content, message.len]).collect();
        let record = record(b'S', &words);
        if self.rng.u8(0..4) == 0 {
            self.batch.record(&record);
        } else {
            let id = self.journal.next_content_id();
            let slice = self.journal.write_slice(&mut self.batch, id, &record);
            self.slices.insert(group, slice.expect("a checkpoint is running"));
        }
        Some(next)
    }

    pub fn commit(&mut self) -> Result<(), CommitError> {
        self.now += 1;
        let receipt = self.journal.commit(&mut self.batch, self.now)?;
        assert!(receipt.seq >= 1 || receipt.bytes == 0);
        self.durable = self.state.clone();
        Ok(())
    }

    /// Checks that all messages' contents are there and correct.
    pub fn check_contents(&self) -> Result<(), String> {
        check_contents(&self.journal, &self.durable)
    }
}

pub fn check_contents(journal: &Journal, state: &State) -> Result<(), String> {
    let reader = journal.reader();
    for (id, message) in &state.messages {
        let mut buffer = vec![0; message.len as usize + 1];
        let count = reader
            .read_at(message.content, 0, &mut buffer)
            .map_err(|error| format!("message {id}, content {}: {error}", message.content))?;
        if buffer[..count] != content_bytes(message.content, message.len as usize)[..] {
            return Err(format!("message {id}: content {} is not what was handed in", message.content));
        }
    }
    Ok(())
}
