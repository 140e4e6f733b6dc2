//! Replayed state equals live state, at any point of a checkpoint.
//!
//! A model owner acts like the committer. Outcomes are applied at once and written with the next batch. A batch
//! contains waiting records, then the checkpoint's, then new events, which are applied once it is durable. A refused
//! batch leaves the waiting records waiting and abandons the checkpoint. After a checkpoint the owner at once forgets
//! every address that nothing refers to, so that ids are reused all the time. A naive model of messages, in terms of
//! addresses, runs beside it.

mod checks;
mod posts;

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use self::posts::{ModelPost, is_kept, modelled_post};
use super::slices::{KeptJournal, LogEntry, Part};
use super::*;
use crate::event::{
    FATES, encode_forget, encode_intern, encode_list, encode_post, encode_post_end, encode_quarantine_ended,
    encode_quarantine_released, encode_quarantined, encode_resend,
};

#[derive(Debug, Clone)]
enum Op {
    /// Accepts a message: recipients (numbers of addresses), whether it shares the previous content, whether it has
    /// parameters.
    Accept(Vec<u16>, bool, bool),
    /// Accepts a message into the quarantine.
    Quarantine(Vec<u16>, bool),
    /// Recipients leave the quarantine: for this fate, or for the queue.
    Leave(Index, Option<usize>, u32),
    Settle(Index, usize, u32),
    /// Recipients that missed a post get it again.
    Resend(Index, u32),
    /// A post is no longer kept.
    EndPost(Index),
    List(u8, Vec<u16>),
    RemoveList(u8),
    /// An operator's hold or release of messages.
    Hold(Vec<Index>, bool),
    /// An operator suspends or resumes a list, or bounces its mail for a time.
    Suspend(u8, Option<u8>),
    /// An operator removes recipients: durable first, then applied; nothing else takes them meanwhile.
    Remove(Index, usize, u32),
    /// Builds a batch: begins a checkpoint if none runs, takes slices, or is refused.
    Batch {
        begin: bool,
        slices: usize,
        refuse: bool,
    },
    /// The system's clock is set: messages accepted in this run are moved at once, and the next batch begins with a
    /// record of it.
    Clock(i32),
    /// Everything applied is made durable; then the store is rebuilt from its log.
    Restart,
}

/// A deliberate error that the checks must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    None,
    /// Forgotten ids are reused before a checkpoint is complete.
    ReusedEarly,
    /// Events since the beginning of the checkpoint are not considered.
    FreshForgotten,
    /// Slices of messages that a batch's outcomes change are kept.
    StaleSlice,
    /// Slices of the quarantine are kept when a recipient leaves it.
    StaleQuarantine,
    /// Slices of posts are kept when a recipient misses one.
    StalePost,
}

/// Pages of four; all slices except the smallest are kept.
const PAGING: Paging = Paging { ids_shift: 2, messages_shift: 2, quarantine_shift: 24, kept_bytes_min: 40 };

fn op() -> impl Strategy<Value = Op> {
    let recipients = || prop_oneof![4 => vec(0u16..60, 1..6), 1 => vec(0u16..300, 1..200)];
    prop_oneof![
        5 => (recipients(), any::<bool>(), any::<bool>()).prop_map(|(r, same, params)| Op::Accept(r, same, params)),
        9 => (any::<Index>(), 0usize..6, any::<u32>()).prop_map(|(i, fate, mask)| Op::Settle(i, fate, mask)),
        2 => (recipients(), any::<bool>()).prop_map(|(r, same)| Op::Quarantine(r, same)),
        3 => (any::<Index>(), prop::option::of(1usize..4), any::<u32>()).prop_map(|(i, fate, mask)| Op::Leave(i, fate, mask)),
        3 => (any::<Index>(), any::<u32>()).prop_map(|(i, mask)| Op::Resend(i, mask)),
        1 => any::<Index>().prop_map(Op::EndPost),
        1 => (0u8..4, recipients()).prop_map(|(name, r)| Op::List(name, r)),
        1 => (0u8..4).prop_map(Op::RemoveList),
        2 => (vec(any::<Index>(), 1..4), any::<bool>()).prop_map(|(which, held)| Op::Hold(which, held)),
        2 => (0u8..4, prop::option::of(0u8..3)).prop_map(|(what, until)| Op::Suspend(what, until)),
        2 => (any::<Index>(), 0usize..6, any::<u32>()).prop_map(|(i, fate, mask)| Op::Remove(i, fate, mask)),
        6 => (any::<bool>(), 0usize..5, prop::bool::weighted(0.15))
            .prop_map(|(begin, slices, refuse)| Op::Batch { begin, slices, refuse }),
        1 => any::<i32>().prop_map(Op::Clock),
        1 => Just(Op::Restart),
    ]
}

#[derive(Debug, PartialEq, Eq, Clone)]
struct Model {
    /// By id: content, pending recipients, fates, whether held.
    messages: BTreeMap<u64, (u64, BTreeSet<u32>, Tally, bool)>,
    /// By id: content and recipients.
    quarantine: BTreeMap<u64, (u64, BTreeSet<u32>)>,
    posts: BTreeMap<u64, ModelPost>,
    totals: Totals,
    suspended: BTreeMap<String, (Ms, String)>,
}

enum ModelChange {
    Suspend(String, Option<(Ms, String)>),
    Accept(Box<Accept>),
    Quarantined(Box<Accept>),
    /// The original message, and the message of its own that the recipients become.
    Released(u64, Box<Accept>),
    Ended(u64, Fate, IdSet),
    /// The post, and the message that sends it again.
    Resend(u64, Box<Accept>),
    EndPost(u64),
    List(u8, u64, IdSet),
    RemoveList(u8),
    Hold(bool, Vec<MessageId>),
    Remove(u64, Fate, IdSet),
}

struct Owner {
    live: Store,
    model: Model,
    log: Vec<LogEntry>,
    kept: KeptJournal,
    /// Records that are applied, but not written.
    waiting: Vec<Vec<u8>>,
    /// Records of clock changes that are applied, but not written; they come first.
    clock: Vec<Vec<u8>>,
    /// The first id of this run.
    first_id: MessageId,
    new: Vec<ModelChange>,
    /// Recipients that an operator reserved, until the batch is durable or refused.
    reserved: BTreeSet<(u64, u32)>,
    /// Posts that end with the next batch.
    ending: BTreeSet<u64>,
    /// Addresses interned for `new`.
    interned: Vec<AddressId>,
    cursor: Option<(Checkpoint, usize, usize)>,
    sweep: Option<Sweep>,
    mutation: Mutation,
    /// Addresses of the pending recipients of each message.
    names: BTreeMap<(u64, u32), String>,
    /// Where the last complete checkpoint begins in the log, and where the batch with its beginning does: the journal
    /// replays that batch as a whole.
    start: usize,
    start_batch: usize,
    now: Ms,
}

impl Owner {
    fn new() -> Self {
        Owner {
            live: Store { messages: Table::starting_at(u32::MAX - 30), ..Store::with_paging(PAGING) },
            model: Model {
                messages: BTreeMap::new(),
                quarantine: BTreeMap::new(),
                posts: BTreeMap::new(),
                totals: Totals::default(),
                suspended: BTreeMap::new(),
            },
            log: Vec::new(),
            kept: KeptJournal::default(),
            waiting: Vec::new(),
            clock: Vec::new(),
            first_id: MessageId(0),
            new: Vec::new(),
            reserved: BTreeSet::new(),
            ending: BTreeSet::new(),
            interned: Vec::new(),
            cursor: None,
            sweep: None,
            mutation: Mutation::None,
            names: BTreeMap::new(),
            start: 0,
            start_batch: 0,
            now: 1_795_000_000_000,
        }
    }

    fn intern(&mut self, numbers: &[u16]) -> IdSet {
        let mut ids = IdSet::new();
        for n in numbers {
            let (id, new) = self.live.book.intern(&format!("user{n}@d{}.example", n % 7)).unwrap();
            if new {
                self.interned.push(id);
            }
            ids.insert(id.0);
        }
        ids
    }

    fn step(&mut self, op: Op) {
        self.now += 400;
        match op {
            Op::Accept(numbers, same, params) => {
                let recipients = self.intern(&numbers);
                let id = self.live.next_message_id(self.now);
                let mut a = accept(id.0, &[]);
                self.share_content(&mut a, same);
                if params {
                    let orcpt = Some(format!("rfc822;{}", numbers.len()));
                    a.params = recipients
                        .iter()
                        .map(|id| (AddressId(id), RcptParams { notify: Some(1), orcpt: orcpt.clone() }))
                        .collect();
                }
                a.recipients = recipients;
                self.new.push(ModelChange::Accept(Box::new(a)));
            }
            Op::Quarantine(numbers, same) => {
                let recipients = self.intern(&numbers);
                let id = self.live.next_message_id(self.now);
                let mut a = Accept { recipients, held_by: Some("rule 1".to_owned()), ..accept(id.0, &[]) };
                self.share_content(&mut a, same);
                self.new.push(ModelChange::Quarantined(Box::new(a)));
            }
            Op::Leave(which, fate, mask) => self.leave(which, fate.map(|fate| FATES[fate]), mask),
            Op::Settle(which, fate, mask) => {
                if !self.model.messages.is_empty() {
                    self.record_fate(which.index(self.model.messages.len()), FATES[fate], mask);
                }
            }
            Op::Resend(which, mask) => self.resend(which, mask),
            Op::EndPost(which) => self.end_post(which),
            Op::List(name, numbers) => {
                let ids = self.intern(&numbers);
                self.new.push(ModelChange::List(name, self.now, ids));
            }
            Op::RemoveList(name) => self.new.push(ModelChange::RemoveList(name)),
            Op::Hold(which, held) => {
                let ids: Vec<u64> = self.model.messages.keys().copied().collect();
                if !ids.is_empty() {
                    let chosen = which.iter().map(|i| MessageId(ids[i.index(ids.len())])).collect();
                    self.new.push(ModelChange::Hold(held, chosen));
                }
            }
            Op::Suspend(what, until) => {
                let (prefix, reason) = if what < 2 { ("", String::new()) } else { ("bounce:", format!("{until:?}")) };
                let standing = until.map(|until| (Ms::from(until), reason));
                self.new.push(ModelChange::Suspend(format!("{prefix}list:l{what}"), standing));
            }
            Op::Remove(which, fate, mask) => self.remove(which, FATES[fate], mask),
            Op::Batch { begin, slices, refuse } => self.batch(begin, slices, refuse),
            Op::Clock(by) => {
                let moved = Event::ClockMoved { since: self.first_id, by: by.into() };
                let mut record = Vec::new();
                moved.encode(&mut record);
                self.live.apply(moved);
                self.clock.push(record);
            }
            Op::Restart => {
                self.batch(false, 0, false);
                self.live = self.replay(self.start_batch);
                self.first_id = MessageId(self.live.last_id().0 + 1);
                (self.cursor, self.sweep) = (None, None);
                self.kept.give_up();
            }
        }
    }

    /// Makes several envelopes share one content, some of them in the quarantine.
    fn share_content(&self, a: &mut Accept, same: bool) {
        if let (true, Some(ModelChange::Accept(before) | ModelChange::Quarantined(before))) = (same, self.new.last()) {
            a.content = before.content;
        }
    }

    fn leave(&mut self, which: Index, fate: Option<Fate>, mask: u32) {
        if self.model.quarantine.is_empty() {
            return;
        }
        let nth = which.index(self.model.quarantine.len());
        let (&id, (_, kept)) = self.model.quarantine.iter().nth(nth).unwrap();
        let chosen = |i: &u32| mask >> (i % 32) & 1 == 1 && !self.reserved.contains(&(id, *i));
        let ids: IdSet = kept.iter().copied().filter(chosen).collect();
        if ids.is_empty() {
            return;
        }
        self.reserved.extend(ids.iter().map(|i| (id, i)));
        self.new.push(if let Some(fate) = fate {
            ModelChange::Ended(id, fate, ids)
        } else {
            let to = self.live.next_message_id(self.now);
            let message = self.live.in_quarantine(MessageId(id)).unwrap();
            let released = Accept { id: to, accepted: self.now, held_by: None, ..message.as_accepted(ids) };
            ModelChange::Released(id, Box::new(released))
        });
    }

    fn remove(&mut self, which: Index, fate: Fate, mask: u32) {
        if self.model.messages.is_empty() {
            return;
        }
        let (&id, (_, pending, ..)) = self.model.messages.iter().nth(which.index(self.model.messages.len())).unwrap();
        let chosen = |i: &u32| mask >> (i % 32) & 1 == 1 && !self.reserved.contains(&(id, *i));
        let ids: IdSet = pending.iter().copied().filter(chosen).collect();
        if !ids.is_empty() {
            self.reserved.extend(ids.iter().map(|i| (id, i)));
            self.new.push(ModelChange::Remove(id, fate, ids));
        }
    }

    fn record_fate(&mut self, nth: usize, fate: Fate, mask: u32) {
        let (&id, (content, pending, tally, _)) = self.model.messages.iter_mut().nth(nth).unwrap();
        // Some pending recipients, and some that are not.
        let reserved = &self.reserved;
        let chosen = |i: &u32| mask >> (i % 32) & 1 == 1 && !reserved.contains(&(id, *i));
        let ids: IdSet = (0..300).filter(chosen).collect();
        let hit: Vec<u32> = pending.iter().copied().filter(|i| ids.contains(*i)).collect();
        pending.retain(|i| !ids.contains(*i));
        *tally.of_mut(fate) += hit.len() as u64;
        *self.model.totals.fates.of_mut(fate) += hit.len() as u64;
        let (finished, content) = (pending.is_empty(), ContentId(*content));
        if finished {
            self.model.messages.remove(&id);
        }
        let no = self.live.no_of(MessageId(id)).unwrap();
        let mut record = Vec::new();
        let recipients = hit.len() as u64;
        let expected = if hit.is_empty() {
            EventEffect::Nothing
        } else if finished {
            let mut others = self.model.messages.values().map(|(other, ..)| other);
            let unreferenced = others.all(|other| *other != content.0)
                && self.model.posts.values().all(|post| post.content != content.0)
                && self.model.quarantine.values().all(|(other, _)| *other != content.0);
            EventEffect::Finished { no, id: MessageId(id), content, unreferenced, recipients }
        } else {
            EventEffect::Recorded { no, recipients }
        };
        let (slices, of_posts) = (self.live.message_slices.clone(), self.live.posts.slices.clone());
        let is_suppressed = mask & 2 == 0;
        let by = is_suppressed.then_some("suppressed for this list (unsubscribed)");
        self.count_in_post(id, fate, &hit, is_suppressed);
        assert_eq!(self.live.record_fate(no, fate, &ids, by, self.now, &mut record), expected);
        if self.mutation == Mutation::StalePost {
            self.live.posts.slices = of_posts;
        }
        if self.mutation == Mutation::StaleSlice {
            self.live.message_slices = slices;
        }
        if !hit.is_empty() {
            self.waiting.push(record);
        }
    }

    fn batch(&mut self, begin: bool, slices: usize, refuse: bool) {
        let mut batch: Vec<LogEntry> = self.clock.iter().chain(&self.waiting).cloned().map(LogEntry::Record).collect();
        let at = self.log.len() + batch.len();
        let mut slices = slices;
        if begin && self.cursor.is_none() && self.sweep.is_none() {
            self.live.begin_checkpoint();
            self.kept.number += 1;
            self.cursor = Some((Checkpoint::with_slice_bytes_max(120).marking(), at, self.log.len()));
            // The counters must go into the batch with the beginning.
            slices += 1;
        }
        if let Some((cursor, ..)) = &mut self.cursor {
            for _ in 0..slices {
                cursor.step(&mut self.live, &mut Part { batch: &mut batch, kept: &mut self.kept, is_full: false });
            }
        }
        let mut record = Vec::new();
        encode_intern(&mut record, self.interned.iter().map(|id| (*id, self.live.book.text(*id))));
        batch.push(LogEntry::Record(record));
        let all = std::mem::take(&mut self.new);
        for new in &all {
            self.write(new, &mut batch);
        }
        self.new = all;
        let forgotten = self.forget(&mut batch);
        if refuse {
            self.reserved.clear();
            self.ending.clear();
            if self.cursor.take().is_some() {
                self.live.end_marking();
            }
            self.kept.give_up();
            self.new.clear();
            for id in self.interned.drain(..).rev() {
                self.live.book.forget(id);
            }
        } else {
            self.commit(batch, forgotten);
        }
    }

    /// Adds an event's records to a batch.
    fn write(&mut self, new: &ModelChange, batch: &mut Vec<LogEntry>) {
        let mut record = Vec::new();
        let referred = match new {
            ModelChange::Accept(accept)
            | ModelChange::Quarantined(accept)
            | ModelChange::Resend(_, accept)
            | ModelChange::Released(_, accept) => Some(&accept.recipients),
            ModelChange::List(_, _, ids) => Some(ids),
            _ => None,
        };
        if let Some(ids) = referred
            && self.mutation != Mutation::FreshForgotten
        {
            self.live.refer(ids);
        }
        match new {
            ModelChange::Accept(accept) => {
                encode_accept(&mut record, accept);
                if is_kept(accept) {
                    batch.push(LogEntry::Record(std::mem::take(&mut record)));
                    encode_post(&mut record, accept.id, self.now);
                }
            }
            ModelChange::Resend(of, accept) => {
                encode_accept(&mut record, accept);
                batch.push(LogEntry::Record(std::mem::take(&mut record)));
                encode_resend(&mut record, MessageId(*of), accept.id, self.now);
            }
            ModelChange::EndPost(id) => encode_post_end(&mut record, MessageId(*id)),
            ModelChange::Quarantined(accept) => encode_quarantined(&mut record, accept),
            ModelChange::Released(from, accept) => {
                encode_quarantine_released(&mut record, MessageId(*from), Some("uid=0"), accept);
            }
            ModelChange::Ended(id, fate, ids) => {
                encode_quarantine_ended(&mut record, MessageId(*id), *fate, ids, Some("uid=0"), self.now);
            }
            ModelChange::List(name, version, ids) => {
                encode_list(&mut record, &format!("l{name}"), *version, "", ids);
            }
            ModelChange::RemoveList(name) => Event::ListRemoved { name: &format!("l{name}") }.encode(&mut record),
            ModelChange::Suspend(what, standing) => suspend(what, standing.as_ref()).encode(&mut record),
            ModelChange::Hold(held, messages) => {
                Event::Verb { at: self.now, who: "uid=0", verb: "hold", detail: "{}" }.encode(&mut record);
                batch.push(LogEntry::Record(std::mem::take(&mut record)));
                Event::Hold { held: *held, messages: messages.clone() }.encode(&mut record);
            }
            ModelChange::Remove(id, fate, ids) => {
                encode_outcome(&mut record, MessageId(*id), *fate, ids, Some("uid=0"), self.now);
            }
        }
        batch.push(LogEntry::Record(record));
    }

    /// Does a step of the sweep: its `Forget` comes last in the batch.
    fn forget(&mut self, batch: &mut Vec<LogEntry>) -> IdSet {
        let mut ids = IdSet::new();
        let limits = SweepLimits { unseen_ms: 0, addresses_max: 100 };
        if let Some(sweep) = &mut self.sweep
            && !sweep.step(&mut self.live, &limits, self.now, |_| false, &mut ids)
        {
            self.sweep = None;
        }
        if !ids.is_empty() {
            let mut record = Vec::new();
            encode_forget(&mut record, &ids);
            batch.push(LogEntry::Record(record));
        }
        ids
    }

    fn commit(&mut self, batch: Vec<LogEntry>, forgotten: IdSet) {
        self.log.extend(batch);
        self.waiting.clear();
        self.clock.clear();
        self.interned.clear();
        if let Some((cursor, start, start_batch)) = &self.cursor
            && cursor.is_done()
        {
            (self.start, self.start_batch) = (*start, *start_batch);
            self.sweep = self.cursor.take().and_then(|(cursor, ..)| cursor.sweep());
            self.live.checkpoint_complete();
            self.kept.complete();
        }
        for new in std::mem::take(&mut self.new) {
            self.apply_new(new);
        }
        if !forgotten.is_empty() {
            self.live.apply(Event::Forget { ids: forgotten });
            if self.mutation == Mutation::ReusedEarly {
                self.live.book.begin_releasing();
                self.live.book.release();
            }
        }
        // Everything applied has been written: every replay must give the live state.
        self.assert_replay(self.start);
        self.assert_replay(self.start_batch);
    }

    /// Called when the batch is durable: its new events are applied, to the model too.
    fn apply_new(&mut self, new: ModelChange) {
        match new {
            ModelChange::Accept(accept) => self.apply_accept(*accept),
            ModelChange::Resend(of, accept) => self.apply_resend(of, *accept),
            ModelChange::EndPost(id) => self.apply_end(id),
            ModelChange::Quarantined(accept) => {
                self.note_names(&accept);
                let kept: BTreeSet<u32> = accept.recipients.iter().collect();
                self.model.totals.messages_accepted += 1;
                self.model.totals.acknowledged += kept.len() as u64;
                self.model.totals.fates.quarantined += kept.len() as u64;
                self.model.quarantine.insert(accept.id.0, (accept.content.0, kept));
                assert_eq!(self.live.apply(Event::Quarantined(accept)), EventEffect::Noted);
            }
            ModelChange::Released(from, accept) => {
                self.note_names(&accept);
                self.left(from, &accept.recipients);
                let pending = accept.recipients.iter().collect();
                self.model.messages.insert(accept.id.0, (accept.content.0, pending, Tally::default(), false));
                let slices = self.live.quarantine.slices.clone();
                let released = Event::QuarantineReleased { from: MessageId(from), by: Some("uid=0"), accept };
                assert!(matches!(self.live.apply(released), EventEffect::New(_)));
                if self.mutation == Mutation::StaleQuarantine {
                    self.live.quarantine.slices = slices;
                }
            }
            ModelChange::Ended(id, fate, ids) => {
                let content = self.left(id, &ids);
                *self.model.totals.fates.of_mut(fate) += ids.len() as u64;
                let expected =
                    if self.has_content(content) { EventEffect::Noted } else { EventEffect::Freed(ContentId(content)) };
                let ended =
                    Event::QuarantineEnded { message: MessageId(id), fate, ids, by: Some("uid=0"), at: self.now };
                assert_eq!(self.live.apply(ended), expected);
            }
            ModelChange::List(name, version, ids) => {
                let name = format!("l{name}");
                self.live.apply(Event::ListVersion { name: &name, version, stamp: "", ids });
            }
            ModelChange::Suspend(what, standing) => {
                self.live.apply(suspend(&what, standing.as_ref()));
                match standing {
                    Some(standing) => self.model.suspended.insert(what, standing),
                    None => self.model.suspended.remove(&what),
                };
            }
            ModelChange::Hold(held, messages) => {
                for id in &messages {
                    if let Some(message) = self.model.messages.get_mut(&id.0) {
                        message.3 = held;
                    }
                }
                self.live.apply(Event::Hold { held, messages });
            }
            ModelChange::Remove(id, fate, ids) => self.apply_removal(id, fate, ids),
            ModelChange::RemoveList(name) => drop(self.live.apply(Event::ListRemoved { name: &format!("l{name}") })),
        }
    }

    fn has_content(&self, content: u64) -> bool {
        self.model.messages.values().any(|(other, ..)| *other == content)
            || self.model.quarantine.values().any(|(other, _)| *other == content)
            || self.model.posts.values().any(|post| post.content == content)
    }

    /// Removes recipients of a queued message that were reserved, so all of them are still pending.
    fn apply_removal(&mut self, id: u64, fate: Fate, ids: IdSet) {
        let (_, pending, tally, _) = self.model.messages.get_mut(&id).unwrap();
        assert!(ids.iter().all(|i| pending.remove(&i) && self.reserved.remove(&(id, i))));
        *tally.of_mut(fate) += ids.len() as u64;
        *self.model.totals.fates.of_mut(fate) += ids.len() as u64;
        if pending.is_empty() {
            self.model.messages.remove(&id);
        }
        self.count_in_post(id, fate, &ids.iter().collect::<Vec<_>>(), false);
        self.live.apply(Event::Outcome { message: MessageId(id), fate, ids, by: Some("uid=0"), at: self.now });
    }

    /// Notes the recipients' addresses, since their ids may be reused.
    fn note_names(&mut self, accept: &Accept) {
        let name = |id| ((accept.id.0, id), self.live.book.text(AddressId(id)).to_owned());
        self.names.extend(accept.recipients.iter().map(name));
    }

    /// Removes recipients that were reserved, so all of them are still there.
    fn left(&mut self, id: u64, ids: &IdSet) -> u64 {
        let (content, kept) = self.model.quarantine.get_mut(&id).unwrap();
        let content = *content;
        assert!(ids.iter().all(|i| kept.remove(&i) && self.reserved.remove(&(id, i))));
        self.model.totals.fates.quarantined -= ids.len() as u64;
        if kept.is_empty() {
            self.model.quarantine.remove(&id);
        }
        content
    }

    fn replay(&self, start: usize) -> Store {
        let mut store = Store::with_paging(PAGING);
        for logged in &self.log[start..] {
            match logged {
                LogEntry::Record(record) => assert!(store.apply_record(record).is_ok()),
                LogEntry::Slice { checkpoint, slice } if *checkpoint == self.kept.complete => {
                    assert!(store.apply_slice(&self.kept.contents[&slice.content.0], *slice).is_ok());
                }
                LogEntry::Slice { .. } => {}
            }
        }
        store.replayed().unwrap();
        if start == self.start || start == self.start_batch {
            assert_eq!(store.book.reused_early(), 0, "an id means one address in all that a start reads");
        }
        store
    }

    fn assert_replay(&self, start: usize) {
        let again = self.replay(start);
        assert_eq!(shown(&again), shown(&self.live));
        if start != self.start_batch || start == self.start {
            assert_eq!(again.ignored(), 0, "every record made sense");
        }
        for store in [&again, &self.live] {
            assert_eq!(modelled(store), self.model);
            assert!(store.is_balanced());
            check_indices(store);
            for message in store.messages().map(|(_, message)| message).chain(store.quarantined(None)) {
                for id in message.pending() {
                    assert_eq!(store.book.text(AddressId(id)), self.names[&(message.id().0, id)]);
                }
            }
            for post in store.posts(None) {
                for id in post.missed() {
                    assert_eq!(store.book.text(AddressId(id)), self.names[&(post.message().id().0, id)]);
                }
            }
        }
    }
}

/// All durable state of a store.
#[derive(Debug, PartialEq, Eq)]
struct StoreView {
    messages: Vec<Message>,
    quarantine: Vec<Message>,
    posts: Vec<KeptPost>,
    resends: BTreeMap<MessageId, MessageId>,
    lists: Vec<(String, ListState)>,
    addresses: Vec<(u32, String)>,
    domains: Vec<(String, Vec<u32>)>,
    totals: Totals,
    pending: u64,
}

fn shown(store: &Store) -> StoreView {
    let book = &store.book;
    let mut domains: Vec<(String, Vec<u32>)> = (0..book.domains() as u32)
        .map(crate::ids::DomainId)
        .map(|d| (book.domain_name(d).to_owned(), book.addresses_of(d).iter().collect()))
        .filter(|(_, ids): &(_, Vec<u32>)| !ids.is_empty())
        .collect();
    domains.sort();
    StoreView {
        messages: store.messages().map(|(_, m)| m.clone()).collect(),
        quarantine: store.quarantined(None).cloned().collect(),
        posts: store.posts(None).cloned().collect(),
        resends: store.resends.clone(),
        lists: store.lists().map(|(name, list)| (name.to_owned(), list.clone())).collect(),
        addresses: book.iter_at(0).map(|(id, text)| (id.0, String::from_utf8_lossy(text).into_owned())).collect(),
        domains,
        totals: store.totals(),
        pending: store.pending(),
    }
}

fn modelled(store: &Store) -> Model {
    let shown = |m: &Message| (m.content().0, m.pending().iter().collect(), m.tally(), m.is_held());
    let messages = store.messages().map(|(_, m)| (m.id().0, shown(m)));
    let kept = |m: &Message| (m.id().0, (m.content().0, m.pending().iter().collect()));
    let quarantine = store.quarantined(None).map(kept).collect();
    let posts = store.posts(None).map(|post| modelled_post(store, post)).collect();
    Model { messages: messages.collect(), quarantine, posts, totals: store.totals(), suspended: suspended(store) }
}

/// Suspensions and standing bounces of a store.
fn suspended(store: &Store) -> BTreeMap<String, (Ms, String)> {
    let suspended = store.suspended().map(|what| (what, store.suspended_until(what).unwrap_or(0), ""));
    assert_eq!(store.suspended_len(), suspended.clone().count());
    let all = suspended.chain(store.standing_bounces());
    all.map(|(what, until, reason)| (what.to_owned(), (until, reason.to_owned()))).collect()
}

fn suspend<'a>(what: &'a str, standing: Option<&'a (Ms, String)>) -> Event<'a> {
    let (until, reason) = standing.map_or((0, ""), |(until, reason)| (*until, reason.as_str()));
    Event::Suspend { suspended: standing.is_some(), what, until, reason }
}

fn check_indices(store: &Store) {
    assert_eq!(store.held(), store.messages().filter(|(_, m)| m.is_held()).count());
    assert_eq!((store.by_id.len(), store.by_content.len()), (store.len(), store.len()));
    assert_eq!(store.quarantined_len(), store.quarantined(None).count());
    assert_eq!(store.quarantined_octets(), store.quarantined(None).map(Message::size).sum::<u64>());
    assert_eq!(store.posts_octets(), store.posts(None).map(|post| post.message().size()).sum::<u64>());
    assert!(store.posts(None).all(|post| store.has_content(post.message().content())));
    assert!(store.quarantined(None).all(|m| store.has_content(m.content()) && store.no_of(m.id()).is_none()));
    let mut last = None;
    for (no, m) in store.messages() {
        assert_eq!(store.no_of(m.id()), Some(no));
        assert!(store.has_content(m.content()));
        assert!(last < Some(m.id()), "by age");
        last = Some(m.id());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn replay_equals_live(ops in vec(op(), 1..120)) {
        let mut owner = Owner::new();
        for op in ops {
            owner.step(op);
        }
        // Finish: complete the current checkpoint, then do one more.
        for _ in 0..2 {
            owner.batch(true, 1000, false);
            while owner.cursor.is_some() || owner.sweep.is_some() {
                owner.batch(false, 1000, false);
            }
        }
        prop_assert!(owner.cursor.is_none() && owner.start > 0);
        // From the first record on, checkpoints change nothing.
        owner.assert_replay(0);
    }

    /// Outcomes written twice outside a checkpoint's window are not counted twice.
    #[test]
    fn repeated_outcomes_count_once(ops in vec(op(), 1..80)) {
        let mut owner = Owner::new();
        for op in ops {
            owner.step(op);
        }
        owner.batch(false, 0, false);
        let mut store = Store::new();
        for logged in &owner.log {
            let LogEntry::Record(record) = logged else { continue };
            store.apply_record(record).unwrap();
            if let Ok(
                Event::Outcome { .. }
                | Event::Accept(_)
                | Event::Quarantined(_)
                | Event::QuarantineReleased { .. }
                | Event::QuarantineEnded { .. },
            ) = Event::decode(record)
            {
                store.apply_record(record).unwrap();
            }
        }
        store.replayed().unwrap();
        prop_assert_eq!(shown(&store), shown(&owner.live));
    }
}
