//! Unit tests of the fold; `replay` has the property test of checkpoint and replay.

mod counts;
mod replay;
mod slices;

use super::*;
use crate::book::SiteAttempt;
use crate::event::{RcptParams, encode_accept};
use crate::slices::Records;

pub fn accept(id: u64, recipients: &[u32]) -> Accept {
    Accept {
        content: ContentId(id),
        size: 4096,
        sender: format!("sender{id}@example.org"),
        recipients: recipients.iter().copied().collect(),
        origin: "127.0.0.1".into(),
        ..Accept::bare(MessageId(id), 1_795_000_000_000 + id)
    }
}

pub fn message(id: u64) -> Message {
    Message::new(accept(id, &[1]))
}

fn outcome(id: u64, fate: Fate, ids: &[u32]) -> Event<'static> {
    Event::Outcome { message: MessageId(id), fate, ids: ids.iter().copied().collect(), by: None, at: 0 }
}

fn add(store: &mut Store, accept: Accept) -> MessageNo {
    match store.apply(Event::Accept(Box::new(accept))) {
        EventEffect::New(no) => no,
        other => panic!("{other:?}"),
    }
}

fn with_addresses(n: u32) -> Store {
    let mut store = Store::new();
    for i in 0..n {
        store.book.intern(&format!("subscriber-number-{i}@some-domain-{}.example", i % 100)).unwrap();
    }
    store
}

/// Writes a whole checkpoint.
fn slices(store: &mut Store) -> Vec<Vec<u8>> {
    let (mut cursor, mut slices, mut more) = (store.checkpoint(), Vec::new(), true);
    while more {
        let mut records = Records::default();
        more = cursor.step(store, &mut records);
        slices.extend(records.records);
    }
    let mut records = Records::default();
    assert!(cursor.is_done() && !cursor.step(store, &mut records) && records.records.is_empty());
    slices
}

#[test]
fn a_message_lives_until_its_last_fate() {
    let mut store = Store::new();
    let no = add(&mut store, accept(7, &[1, 2, 3]));
    assert_eq!(store.no_of(MessageId(7)), Some(no));
    assert_eq!((store.len(), store.pending(), store.totals().pending()), (1, 3, 3));
    assert_eq!(store.apply(outcome(7, Fate::Delivered, &[1])), EventEffect::Recorded { no, recipients: 1 });
    assert_eq!(store.apply(outcome(7, Fate::Delivered, &[1])), EventEffect::Nothing, "never counted twice");
    assert_eq!(store.apply(outcome(7, Fate::Bounced, &[1, 2, 9])), EventEffect::Recorded { no, recipients: 1 });
    let summary = store.summary(no).unwrap();
    assert_eq!((summary.total, summary.pending, summary.tally.delivered, summary.tally.bounced), (3, 1, 1, 1));
    assert_eq!((summary.sender, summary.size, summary.origin), ("sender7@example.org", 4096, "127.0.0.1"));
    assert!(store.pending_of(no).eq([AddressId(3)]));
    let (id, content) = (MessageId(7), ContentId(7));
    let finished = EventEffect::Finished { no, id, content, unreferenced: true, recipients: 1 };
    assert_eq!(store.apply(outcome(7, Fate::Expired, &[3])), finished);
    assert_eq!(store.apply(outcome(7, Fate::Expired, &[3])), EventEffect::Nothing);
    assert_eq!((store.len(), store.message(no), store.no_of(MessageId(7)), store.ignored()), (0, None, None, 2));
    let fates = store.totals().fates;
    assert_eq!((fates.delivered, fates.bounced, fates.expired, fates.sum()), (1, 1, 1, 3));
    assert!(store.is_balanced());
}

#[test]
fn what_was_accepted_by_a_wrong_clock_gets_its_age() {
    let mut store = Store::new();
    let (old, new) = (add(&mut store, accept(7, &[1])), add(&mut store, accept(8, &[1])));
    store.apply(Event::Hold { held: true, messages: vec![MessageId(8)] });
    let before = store.message(new).unwrap().accepted();
    assert_eq!(store.apply(Event::ClockMoved { since: MessageId(8), by: 5_000 }), EventEffect::Noted);
    assert_eq!(store.message(new).unwrap().accepted(), before + 5_000);
    assert!(store.message(new).unwrap().is_held());
    assert_eq!(store.message(old).unwrap().accepted(), before - 1, "an earlier run's clock was another");
    store.apply(Event::ClockMoved { since: MessageId(8), by: i64::MIN });
    assert_eq!(store.message(new).unwrap().accepted(), 0);
    store.apply(Event::ClockMoved { since: MessageId(8), by: i64::MAX });
    assert_eq!(store.message(new).unwrap().accepted(), (1 << 56) - 1);
    assert_eq!(store.apply(Event::ClockMoved { since: MessageId(9), by: 1 }), EventEffect::Nothing);
}

#[test]
fn settling_writes_what_it_did() {
    let mut store = Store::new();
    let no = add(&mut store, accept(7, &[1, 2, 3]));
    let mut record = Vec::new();
    let ids = [2, 3, 4].into_iter().collect();
    let done = store.record_fate(no, Fate::Removed, &ids, Some("op"), 5, &mut record);
    assert_eq!(done, EventEffect::Recorded { no, recipients: 2 });
    let ids = [2, 3].into_iter().collect();
    let written = Event::Outcome { message: MessageId(7), fate: Fate::Removed, ids, by: Some("op"), at: 5 };
    assert_eq!(Event::decode(&record), Ok(written));
    record.clear();
    let ids = [2, 3].into_iter().collect();
    assert_eq!(store.record_fate(no, Fate::Delivered, &ids, None, 6, &mut record), EventEffect::Nothing);
    assert_eq!(store.record_fate(MessageNo(99), Fate::Delivered, &ids, None, 6, &mut record), EventEffect::Nothing);
    let (no, none) = (add(&mut store, accept(8, &[2])), IdSet::new());
    let written = record.clone();
    assert_eq!(store.record_fate(no, Fate::Delivered, &none, None, 6, &mut record), EventEffect::Nothing);
    assert_eq!(record, written, "no fate, no record");
    assert!(record.is_empty(), "nothing done, nothing written");
}

#[test]
fn a_content_goes_with_its_last_message() {
    let mut store = Store::new();
    for id in 1..=3 {
        let mut accept = accept(id, &[1]);
        accept.content = ContentId(50);
        add(&mut store, accept);
    }
    for (id, last) in [(2, false), (1, false), (3, true)] {
        match store.apply(outcome(id, Fate::Delivered, &[1])) {
            EventEffect::Finished { content, unreferenced, .. } => assert_eq!((content.0, unreferenced), (50, last)),
            other => panic!("{other:?}"),
        }
        assert_eq!(store.has_content(ContentId(50)), !last);
    }
}

#[test]
fn a_second_acceptance_and_an_empty_one_change_nothing() {
    let mut store = Store::new();
    let no = add(&mut store, accept(7, &[1, 2]));
    assert_eq!(store.apply(Event::Accept(Box::new(accept(7, &[5])))), EventEffect::Nothing);
    assert_eq!((store.message(no).unwrap().pending().len(), store.totals().messages_accepted), (2, 1));
    match store.apply(Event::Accept(Box::new(accept(8, &[])))) {
        EventEffect::Finished { unreferenced, recipients, .. } => assert!(unreferenced && recipients == 0),
        other => panic!("{other:?}"),
    }
    assert!(store.is_balanced() && store.len() == 1);
}

#[test]
fn queue_ids_are_never_given_twice() {
    let mut store = Store::new();
    let first = store.next_message_id(1_795_000_000_000);
    assert!(store.next_message_id(1_795_000_000_000) > first);
    let mut later = accept(first.0 + 100, &[1]);
    later.id = MessageId(first.0 + 100);
    add(&mut store, later);
    assert!(store.next_message_id(1_795_000_000_000).0 > first.0 + 100);
    let mut again = Store::new();
    let mut first = Records::default();
    assert!(store.checkpoint().step(&mut store, &mut first));
    again.apply_record(&first.records[0]).unwrap();
    assert_eq!(again.last_id, store.last_id, "also when the youngest message is gone");
}

#[test]
fn age_order_is_restored_after_replay() {
    let mut store = with_addresses(10);
    for id in [5, 9, 2, 7] {
        add(&mut store, accept(id, &[id as u32]));
    }
    store.replayed().unwrap();
    assert!(store.messages().map(|(_, m)| m.id().0).eq([2, 5, 7, 9]));
    assert_eq!(store.oldest().unwrap().1.id(), MessageId(2));
    for id in [2, 5, 7, 9] {
        let no = store.no_of(MessageId(id)).unwrap();
        assert_eq!(store.message(no).unwrap().id(), MessageId(id));
        assert!(store.has_content(ContentId(id)));
        assert!(store.messages_waiting_for(AddressId(id as u32)).map(|(_, m)| m.id().0).eq([id]));
    }
    assert_eq!((store.pending(), store.is_balanced()), (4, true));
}

#[test]
fn lists_are_replaced_and_removed() {
    let mut store = Store::new();
    for version in 1..=2 {
        let ids = (0..1000 * version).collect();
        store.apply(Event::ListVersion { name: "news", version: version.into(), stamp: "s", ids });
    }
    let list = store.list("news").unwrap();
    assert_eq!((list.version, list.stamp.as_str(), list.ids.len()), (2, "s", 2000));
    assert_eq!(store.lists().count(), 1);
    assert_eq!(store.apply(Event::ListRemoved { name: "news" }), EventEffect::Noted);
    assert_eq!(store.apply(Event::ListRemoved { name: "news" }), EventEffect::Nothing);
    assert_eq!(store.list("news"), None);
}

#[test]
fn recipients_keep_their_parameters() {
    let mut store = Store::new();
    let mut a = accept(7, &[1, 2, 3]);
    let params = RcptParams { notify: Some(6), orcpt: Some("rfc822;b@x".into()) };
    a.params = vec![(AddressId(3), RcptParams::default()), (AddressId(2), params.clone())];
    let no = add(&mut store, a);
    store.apply(outcome(7, Fate::Delivered, &[1]));
    let message = store.message(no).unwrap().clone();
    assert_eq!((message.params(AddressId(2)), message.params(AddressId(1))), (Some(&params), None));
    let mut again = Store::new();
    for record in slices(&mut store) {
        again.apply_record(&record).unwrap();
    }
    assert_eq!(again.message(again.no_of(MessageId(7)).unwrap()), Some(&message));
}

#[test]
fn slices_keep_to_their_size() {
    let mut store = with_addresses(20_000);
    for id in 1..=6000 {
        let mut a = accept(id, &[id as u32, 3, 9000]);
        a.message_id = "<0123456789.0123456789@a-host-with-a-name.example.org>".into();
        add(&mut store, a);
    }
    let mut again = Store::new();
    let slices = slices(&mut store);
    for record in &slices {
        assert!(record.len() <= SLICE_BYTES_MAX, "{} bytes", record.len());
        again.apply_record(record).unwrap();
    }
    let pages = 20_000usize.div_ceil(512) + 6000usize.div_ceil(256);
    assert!((pages..pages + 10).contains(&slices.len()), "{} slices: one a page", slices.len());
    assert_eq!((again.len(), again.pending(), again.book.len()), (6000, store.pending(), 20_000));
    assert!(again.is_balanced());
}

#[test]
fn a_record_that_cannot_be_read_is_an_error() {
    let mut record = Vec::new();
    encode_accept(&mut record, &accept(1, &[1]));
    let mut store = Store::new();
    assert!(store.apply_record(&record[..record.len() - 3]).is_err());
    assert!(store.apply_record(&[0x30]).is_err());
    assert_eq!(store.apply_record(&[0x90, 1]), Ok(EventEffect::Nothing));
    assert!(matches!(store.apply_record(&record), Ok(EventEffect::New(_))));
}

#[test]
fn an_address_that_nothing_names_refuses_the_start() {
    let mut store = with_addresses(3);
    add(&mut store, accept(1, &[0, 2]));
    assert_eq!(store.replayed(), Ok(()));
    store.book.forget(AddressId(1));
    assert_eq!(store.replayed(), Ok(()));
    store.apply(Event::Forget { ids: IdSet::one(1) });
    assert_eq!(store.replayed(), Ok(()), "what has no name already");
    add(&mut store, accept(2, &[0, 1]));
    assert_eq!(store.replayed().unwrap_err().id, AddressId(1));
    store.apply(outcome(2, Fate::Delivered, &[0, 1]));
    store.apply(Event::ListVersion { name: "news", version: 1, stamp: "", ids: IdSet::one(3) });
    assert_eq!(
        store.replayed().unwrap_err().to_string(),
        "list \"news\" refers to address 3, which is missing in the journal"
    );
}

#[test]
fn settling_nobody_writes_nothing() {
    // A transaction in which nobody was delivered once left a record that swallowed the next one at replay.
    let mut store = Store::new();
    let no = add(&mut store, accept(1, &[1, 2]));
    let mut record = Vec::new();
    assert_eq!(store.record_fate(no, Fate::Delivered, &IdSet::default(), None, 5, &mut record), EventEffect::Nothing);
    assert_eq!(store.record_fate(no, Fate::Delivered, &IdSet::one(9), None, 5, &mut record), EventEffect::Nothing);
    assert!(record.is_empty());
    assert_ne!(store.record_fate(no, Fate::Delivered, &IdSet::one(2), None, 5, &mut record), EventEffect::Nothing);
    assert!(Event::decode(&record).is_ok());
}

#[test]
fn history_survives_a_checkpoint() {
    let mut store = with_addresses(20_000);
    let now = 1_795_000_000_000;
    for id in (0..20_000).map(AddressId) {
        store.book.delivered(id, now, u64::from(id.0));
        let domain = store.book.domain(id);
        store.book.site_attempt(domain, now, SiteAttempt::Answered { xdelay_ms: u64::from(id.0), connections: 3 });
    }
    store.book.refused(AddressId(7), now, true);
    let mut again = Store::new();
    for record in slices(&mut store) {
        assert!(record.len() <= SLICE_BYTES_MAX);
        again.apply_record(&record).unwrap();
    }
    again.replayed().unwrap();
    for id in (0..20_000).map(AddressId) {
        assert_eq!(again.book.history(id), store.book.history(id));
        let (domain, known) = (store.book.domain(id), again.book.domain(id));
        assert_eq!(again.book.site_history(known), store.book.site_history(domain));
    }
    assert_eq!((again.book.history(AddressId(7)).refusals(), again.book.history(AddressId(8)).deliveries()), (1, 1));
}

#[test]
fn a_withheld_post_has_its_copies_for_archives_also_after_a_checkpoint() {
    let mut store = with_addresses(10);
    let of_list = |id, list: &str, is_archive| Accept {
        content: ContentId(1),
        list: Some(list.to_owned()),
        is_archive,
        ..accept(id, &[id as u32 % 10])
    };
    let other = Accept { content: ContentId(2), ..of_list(5, "news", true) };
    for accept in
        [of_list(1, "news", false), of_list(2, "dev", false), of_list(3, "news", true), of_list(4, "dev", true), other]
    {
        add(&mut store, accept);
    }
    for (id, is_archive) in [(6, false), (7, true)] {
        let accept = Accept { content: ContentId(6), ..of_list(id, "news", is_archive) };
        store.apply(Event::Quarantined(Box::new(accept)));
    }
    let copies = |store: &Store, id| store.withheld_archive_copies(MessageId(id));
    assert_eq!(copies(&store, 1), [], "the post is not held");
    store.apply(Event::Hold { held: true, messages: (1..=5).map(MessageId).collect() });
    let mut again = Store::new();
    for record in slices(&mut store) {
        again.apply_record(&record).unwrap();
    }
    for store in [&store, &again] {
        let all = [1, 2, 3, 5, 6, 7, 8].map(|id| copies(store, id).iter().map(|id| id.0).collect::<Vec<_>>());
        assert_eq!(all, [vec![3], vec![4], vec![], vec![], vec![7], vec![], vec![]]);
    }
}

/// Sweeps until nothing is left to do. Returns how many ids were forgotten.
fn sweep(store: &mut Store, limits: &SweepLimits, now: Ms) -> usize {
    let mut cursor = store.begin_checkpoint();
    while cursor.step(store, &mut Records::default()) {}
    store.checkpoint_complete();
    let (mut sweep, mut more, mut count) = (cursor.sweep().unwrap(), true, 0);
    while more {
        let mut ids = IdSet::new();
        more = sweep.step(store, limits, now, |id| id.0 == 1, &mut ids);
        assert!(ids.len() <= FORGET_IDS_MAX);
        count += ids.len();
        store.apply(Event::Forget { ids });
    }
    count
}

const DAY: Ms = 24 * 3_600_000;

#[test]
fn addresses_unseen_for_long_are_forgotten_and_no_others() {
    let (mut store, now) = (with_addresses(30_000), 1_795_000_000_000);
    for id in (0..30_000).map(AddressId) {
        // A third of them are young.
        store.book.saw(id, if id.0 % 3 == 0 { now - DAY } else { now - 70 * DAY });
    }
    add(&mut store, accept(1, &[4, 5, 6]));
    store.apply(Event::ListVersion { name: "l", version: 1, stamp: "", ids: (10_000..11_000).collect() });
    let limits = SweepLimits { unseen_ms: 60 * DAY, addresses_max: 1_000_000 };
    let kept = 2 + 667 + 1; // the message's, the list's, and one known to the scheduler
    assert_eq!(sweep(&mut store, &limits, now), 20_000 - kept);
    assert_eq!(store.book.len(), 10_000 + kept);
    for id in [1, 3, 4, 5, 6, 10_500, 29_997] {
        assert!(store.book.is_interned(AddressId(id)), "{id}");
    }
    assert!(!store.book.is_interned(AddressId(7)));
    assert_eq!(store.book.resting(), 20_000 - kept);
    let (id, _) = store.book.intern("new@x").unwrap();
    assert_eq!(id.0, 30_000, "nothing is given out again yet");
    assert_eq!(sweep(&mut store, &limits, now), 0);
    assert_eq!(store.book.resting(), 0);
    assert_eq!(store.book.intern("newer@x").unwrap().0.0, 2);
    store.replayed().unwrap();
}

#[test]
fn under_pressure_the_oldest_go_first() {
    let (mut store, now) = (with_addresses(9_500), 1_795_000_000_000);
    for id in (0..9_500).map(AddressId) {
        store.book.saw(id, now - Ms::from(id.0 % 50) * DAY);
    }
    let limits = SweepLimits { unseen_ms: 60 * DAY, addresses_max: 10_000 };
    let count = sweep(&mut store, &limits, now);
    assert_eq!((count, store.book.len()), (1_500, 8_000), "down to 8/10");
    let age = |id: AddressId| id.0 % 50;
    let youngest = (0..9_500).map(AddressId).filter(|id| !store.book.is_interned(*id)).map(age).min();
    let oldest = (0..9_500).map(AddressId).filter(|id| store.book.is_interned(*id) && id.0 != 1).map(age).max();
    assert!(youngest >= oldest, "{youngest:?} {oldest:?}");
    assert_eq!(sweep(&mut store, &limits, now), 0, "below 9/10 nothing is pressing");
    // Everything was seen just now, but there must be room.
    let mut store = with_addresses(9_500);
    store.book.all_seen(now);
    assert_eq!(sweep(&mut store, &limits, now), 1_500);
}
