//! Creates a small store that has one of everything: for the tests here, and as a fixture for each format.
//!
//! To create the fixture of a new format: `STENTOR_FIXTURE=DIR cargo test -p stentor a_store_of_this_format`, then
//! commit DIR without its `lock` under crates/stentor/fixtures/journal-vN-events-M and leave the older ones unchanged.

use std::path::Path;
use std::sync::Arc;

use stentor_journal::{Batch, CheckpointStep, Journal, Options, RealDisk, Slice};
use stentor_mail::Class;
use stentor_mail::dsn::Ret;
use stentor_queue::book::SiteAttempt;
use stentor_queue::event::{Accept, Event, Fate, RcptParams};
use stentor_queue::ids::{AddressId, ContentId, MessageId};
use stentor_queue::idset::IdSet;
use stentor_queue::slices::{Paging, SliceRef, Slices};
use stentor_queue::store::{EventEffect, Store};

pub const NOW: u64 = 1_763_000_000_000;
/// Bytes of a segment: 8 blocks.
const SEGMENT_BYTES: u64 = 8 * 4096;

pub fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        reserve_segments: 0,
        checkpoint_bytes_min: 1 << 30,
        pool_ready_min: 0,
        pool_ready_max: 1,
        seed: 0x5EED,
        ..Options::default()
    }
}

pub fn ids(ids: &[u32]) -> IdSet {
    let mut set = IdSet::default();
    for id in ids {
        set.insert(*id);
    }
    set
}

/// Octets of content `id`, CRLF lines.
pub fn body(id: u64, lines: usize) -> Vec<u8> {
    let mut bytes = format!("Subject: message {id}\r\nMessage-ID: <{id}@example.org>\r\n\r\n").into_bytes();
    for line in 0..lines {
        bytes.extend_from_slice(format!("line {line} of content {id}\r\n").as_bytes());
    }
    bytes
}

pub fn message(number: u64, content: u64, size: u64, recipients: &[u32]) -> Accept {
    let by_time = MessageId::next(MessageId(0), NOW).0;
    Accept {
        content: ContentId(content),
        size,
        sender: format!("sender{number}@example.org"),
        recipients: ids(recipients),
        origin: "192.0.2.1".to_owned(),
        message_id: format!("<{content}@example.org>"),
        ..Accept::bare(MessageId(by_time + number), NOW + number)
    }
}

/// The journal and the state that its records fold to.
pub struct Maker {
    pub journal: Journal,
    pub store: Store,
    pub batch: Batch,
    now: u64,
    /// The last slice; slices have their own number range.
    last_slice: u64,
}

impl Maker {
    pub fn new(path: &Path) -> Maker {
        let disk = Arc::new(RealDisk::open(path).unwrap());
        let (journal, _) = Journal::open(disk, options(), &mut |_| Ok(())).unwrap();
        let store =
            Store::with_paging(Paging { ids_shift: 1, messages_shift: 1, quarantine_shift: 24, kept_bytes_min: 0 });
        Maker { journal, store, batch: Batch::new(), now: NOW, last_slice: 1000 }
    }

    pub fn event(&mut self, event: Event<'_>) {
        self.batch.record_with(|buffer| event.encode(buffer));
        match self.store.apply(event) {
            EventEffect::Finished { content, unreferenced: true, .. } | EventEffect::Freed(content) => {
                self.batch.drop_content(content.0);
            }
            _ => {}
        }
    }

    pub fn commit(&mut self) {
        self.now += 10;
        self.journal.commit(&mut self.batch, self.now).unwrap();
    }

    pub fn accept(&mut self, accept: Accept, bytes: &[u8]) {
        self.batch.content(accept.content.0, true, bytes);
        self.event(Event::Accept(Box::new(accept)));
        self.commit();
    }

    pub fn record_fate(&mut self, number: u64, fate: Fate, recipients: &[u32]) {
        let message = message(number, 0, 0, &[]).id;
        self.event(Event::Outcome { message, fate, ids: ids(recipients), by: None, at: self.now });
        self.commit();
    }

    /// Writes a checkpoint with slices, some of which a later checkpoint keeps.
    pub fn checkpoint(&mut self) {
        let mut cursor = self.store.checkpoint();
        self.journal.begin_checkpoint(&mut self.batch);
        let mut part = Part { journal: &mut self.journal, batch: &mut self.batch, last_slice: &mut self.last_slice };
        while cursor.step(&mut self.store, &mut part) {}
        self.commit();
        while self.journal.end_checkpoint(&mut self.batch) == CheckpointStep::More {
            self.commit();
        }
        self.commit();
    }
}

struct Part<'a> {
    journal: &'a mut Journal,
    batch: &'a mut Batch,
    last_slice: &'a mut u64,
}

impl Slices for Part<'_> {
    fn record(&mut self, record: &[u8]) {
        self.batch.record(record);
    }

    fn write(&mut self, record: &[u8]) -> Option<SliceRef> {
        *self.last_slice += 1;
        let slice = self.journal.write_slice(self.batch, *self.last_slice, record)?;
        Some(SliceRef { content: ContentId(slice.content), checksum: slice.checksum })
    }

    fn keep(&mut self, slice: SliceRef) -> bool {
        self.journal.keep_slice(self.batch, Slice { content: slice.content.0, checksum: slice.checksum })
    }

    fn is_full(&self, _: usize) -> bool {
        true
    }
}

/// Creates a store with a quarantine: recipients held, released, deleted and expired, both before and after a
/// checkpoint.
///
/// Its fixture: `STENTOR_FIXTURE=DIR cargo test -p stentor a_store_with_a_quarantine`; DIR without its `lock` is
/// crates/stentor/fixtures/quarantine-vN-events-M.
pub fn make_quarantine(path: &Path) -> Maker {
    let mut maker = make(path);
    let (by, bytes) = ("uid 0", body(30, 60));
    let at = NOW + 5_000;
    let kept = |number: u64, recipients: &[u32]| Accept {
        held_by: Some("rule 1 \"odd\" (stentor.toml:9): looks odd".into()),
        ..message(number, number, bytes.len() as u64, recipients)
    };
    let released = |number: u64, from: u64, recipients: &[u32]| {
        let accept = Accept { held_by: None, ..message(number, from, bytes.len() as u64, recipients) };
        Event::QuarantineReleased { from: kept(from, &[]).id, by: Some(by), accept: Box::new(accept) }
    };
    let ended = |number: u64, fate: Fate, recipients: &[u32]| Event::QuarantineEnded {
        message: kept(number, &[]).id,
        fate,
        ids: ids(recipients),
        by: Some(by),
        at,
    };
    for (number, recipients) in [(30, &[0, 1, 3, 4][..]), (31, &[2]), (32, &[1, 2])] {
        maker.batch.content(number, true, &body(number, 60));
        maker.event(Event::Quarantined(Box::new(kept(number, recipients))));
        maker.commit();
    }
    maker.event(ended(30, Fate::Removed, &[1]));
    maker.event(released(40, 30, &[0]));
    maker.commit();
    maker.checkpoint();
    maker.event(ended(31, Fate::Expired, &[2]));
    maker.event(released(41, 32, &[1]));
    maker.commit();
    maker
}

/// Creates a store with kept posts: recipients that have them, wait for them and missed them, resends, and an end, both
/// before and after a checkpoint.
///
/// Its fixture: `STENTOR_FIXTURE=DIR cargo test -p stentor a_store_with_posts`; DIR without its `lock` is
/// crates/stentor/fixtures/posts-vN-events-M.
pub fn make_posts(path: &Path) -> Maker {
    let mut maker = make(path);
    let bytes = body(30, 60).len() as u64;
    let post = |number: u64, content: u64, recipients: &[u32]| Accept {
        class: Class::Bulk,
        list: Some("news".to_owned()),
        ..message(number, content, bytes, recipients)
    };
    let outcome = |number: u64, fate: Fate, recipients: &[u32], by| Event::Outcome {
        message: message(number, 0, 0, &[]).id,
        fate,
        ids: ids(recipients),
        by,
        at: NOW + 5_000,
    };
    for (number, recipients) in [(30, &[0, 1, 3, 4][..]), (31, &[2]), (32, &[0])] {
        let accept = post(number, number, recipients);
        maker.batch.content(number, true, &body(number, 60));
        let id = accept.id;
        maker.event(Event::Accept(Box::new(accept)));
        maker.event(Event::Post { message: id, until: NOW + 60_000 });
        maker.commit();
    }
    maker.event(outcome(30, Fate::Delivered, &[0], None));
    maker.event(outcome(30, Fate::Bounced, &[1], None));
    maker.event(outcome(31, Fate::Removed, &[2], Some("uid 0")));
    maker.event(outcome(32, Fate::Delivered, &[0], None));
    maker.commit();
    maker.checkpoint();
    let again = post(40, 30, &[1]);
    let (of, message) = (post(30, 30, &[]).id, again.id);
    maker.event(Event::Accept(Box::new(again)));
    maker.event(Event::Resend { of, message, until: NOW + 90_000 });
    maker.commit();
    maker.event(outcome(30, Fate::Expired, &[3], None));
    maker.event(Event::PostEnd { message: post(32, 32, &[]).id });
    maker.commit();
    maker
}

/// Creates a store with addresses, a list, finished and waiting messages, a checkpoint, moved content, content in
/// several pieces, and all kinds of fields.
pub fn make(path: &Path) -> Maker {
    let mut maker = Maker::new(path);
    let names =
        ["ann@example.org", "bob@example.net", "cy@xn--bcher-kva.example", "Dee.X@example.org", "eve@example.net"];
    let entries = names.iter().enumerate().map(|(id, text)| (AddressId(id as u32), *text)).collect();
    maker.event(Event::Intern { entries });
    maker.event(Event::ListVersion { name: "news", version: 1, stamp: "10-1.000000000-7", ids: ids(&[0, 1, 3]) });
    maker.event(Event::Intern { entries: vec![(AddressId(5), "old@example.com")] });
    maker.event(Event::Forget { ids: ids(&[5]) });
    let book = &mut maker.store.book;
    book.delivered(AddressId(0), NOW, 1_200);
    book.refused(AddressId(1), NOW, true);
    book.site_attempt(book.domain(AddressId(0)), NOW, SiteAttempt::Answered { xdelay_ms: 1_200, connections: 3 });
    maker.commit();
    for number in 1..=9 {
        let bytes = body(number, 60);
        maker.accept(message(number, number, bytes.len() as u64, &[0, (number % 5) as u32]), &bytes);
    }
    for number in [1, 2, 4, 5, 6, 7, 8] {
        maker.record_fate(number, Fate::Delivered, &[0, (number % 5) as u32]);
    }
    maker.record_fate(9, Fate::Bounced, &[0]);
    maker.checkpoint();
    while maker.journal.clean_due() {
        maker.journal.clean(&mut maker.batch, 64 * 1024);
        maker.commit();
    }
    let bytes = body(20, 400);
    for piece in bytes.chunks(4000) {
        maker.batch.content(20, false, piece);
        maker.commit();
    }
    let rich = Accept {
        class: Class::Bulk,
        list: Some("news".to_owned()),
        prefix: b"List-Id: <news.example.org>\r\n".to_vec(),
        eight_bit: true,
        smtputf8: true,
        ret: Some(Ret::Headers),
        envid: Some("QQ314159".to_owned()),
        params: vec![(AddressId(3), RcptParams { notify: Some(2), orcpt: Some("rfc822;dee@example.org".to_owned()) })],
        ..message(20, 20, bytes.len() as u64 + 29, &[0, 1, 3])
    };
    maker.accept(rich, b"");
    maker.accept(Accept { sender: String::new(), is_report: true, ..message(21, 21, 5, &[4]) }, b"a\r\nb\n");
    maker.record_fate(20, Fate::Delivered, &[1]);
    let verb = Event::Verb { at: NOW, who: "uid 0", verb: "flush", detail: "example.net" };
    maker.event(verb);
    maker.commit();
    maker
}
