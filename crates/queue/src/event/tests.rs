use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use stentor_mail::Class;
use stentor_mail::dsn::Ret;

use super::*;
use crate::ids::ContentId;

pub fn id_set() -> impl Strategy<Value = IdSet> {
    prop_oneof![
        4 => vec(0u32..5000, 0..12),
        1 => vec(any::<u32>(), 0..200),
    ]
    .prop_map(|ids| ids.into_iter().collect())
}

fn accept() -> impl Strategy<Value = Accept> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), 0u64..1 << 56);
    let texts = (".{0,40}", option::of(".{0,20}"), option::of(".{0,20}"), "(.{0,60}|)", ".{0,20}");
    let flags = (any::<[bool; 8]>(), option::of(any::<bool>()));
    let param = (any::<u32>(), option::of(0u8..16), option::of(".{0,30}"));
    let more = (option::of(".{0,20}"), option::of(".{0,40}"));
    (numbers, texts, flags, id_set(), vec(any::<u8>(), 0..50), vec(param, 0..4), more).prop_map(
        |(
            (id, content, size, accepted),
            (sender, list, envid, message_id, origin),
            (bits, full),
            ids,
            prefix,
            params,
            more,
        )| {
            Accept {
                id: MessageId(id),
                content: ContentId(content),
                size,
                accepted,
                sender,
                class: if bits[0] { Class::Bulk } else { Class::Ordinary },
                list,
                recipients: ids,
                prefix,
                eight_bit: bits[1],
                smtputf8: bits[2],
                ret: full.map(|full| if full { Ret::Full } else { Ret::Headers }),
                envid,
                params: params
                    .into_iter()
                    .map(|(id, notify, orcpt)| (AddressId(id), RcptParams { notify, orcpt }))
                    .collect(),
                origin,
                message_id_at: message_id
                    .is_empty()
                    .then_some(MessageIdAt { offset: id as u32, len: content as u32 | 1 }),
                message_id,
                is_report: bits[3],
                given_sender: more.0,
                held_by: more.1,
                require_tls: bits[4],
                merge_bytes: if bits[5] { u64::from(id as u32) } else { 0 },
                is_transactional: bits[6],
                is_archive: bits[7],
            }
        },
    )
}

fn tally() -> impl Strategy<Value = Tally> {
    any::<[u32; 6]>().prop_map(|n| {
        let mut tally = Tally::default();
        for (fate, n) in FATES.into_iter().zip(n) {
            *tally.of_mut(fate) = n.into();
        }
        tally
    })
}

fn round_trips(event: &Event<'_>) {
    let named = match event {
        Event::Accept(accept) | Event::Quarantined(accept) => Some(accept.id),
        Event::Outcome { message, .. } | Event::QuarantineEnded { message, .. } => Some(*message),
        Event::QuarantineReleased { from, .. } => Some(*from),
        _ => None,
    };
    let mut buf = Vec::new();
    event.encode(&mut buf);
    assert_eq!(Event::decode(&buf).as_ref(), Ok(event));
    assert_eq!(message_of(&buf), named);
}

proptest! {
    #[test]
    fn accept_round_trips(accept in accept()) {
        round_trips(&Event::Quarantined(Box::new(accept.clone())));
        round_trips(&Event::QuarantineReleased { from: MessageId(7), by: Some("me"), accept: Box::new(accept.clone()) });
        round_trips(&Event::Quarantine(vec![accept.clone(), accept.clone()]));
        round_trips(&Event::Accept(Box::new(accept)));
    }

    #[test]
    fn outcome_round_trips(
        message: u64, fate in 0usize..6, ids in id_set(), by in option::of(".{0,20}"), at in 0u64..1 << 56,
    ) {
        let (message, fate) = (MessageId(message >> 4), FATES[fate]);
        if fate != Fate::Quarantined {
            round_trips(&Event::QuarantineEnded { message, fate, ids: ids.clone(), by: by.as_deref(), at });
        }
        round_trips(&Event::Outcome { message, fate, ids, by: by.as_deref(), at });
    }

    #[test]
    fn interning_round_trips(entries in vec((any::<u32>(), ".{0,40}"), 0..20)) {
        let entries = entries.iter().map(|(id, text)| (AddressId(*id), text.as_str())).collect();
        round_trips(&Event::Intern { entries });
    }

    #[test]
    fn lists_and_verbs_round_trip(a in ".{0,20}", b in ".{0,20}", c in ".{0,20}", n: u64, ids in id_set()) {
        round_trips(&Event::ListVersion { name: &a, version: n, stamp: &b, ids });
        round_trips(&Event::ListRemoved { name: &a });
        round_trips(&Event::Verb { at: n, who: &a, verb: &b, detail: &c });
        for held in [true, false] {
            round_trips(&Event::Suspend { suspended: held, what: &a, until: if held { n } else { 0 }, reason: if held { &b } else { "" } });
            round_trips(&Event::ClockMoved { since: MessageId(n), by: n.cast_signed() });
            round_trips(&Event::Hold { held, messages: vec![MessageId(n), MessageId(n / 2), MessageId(u64::MAX)] });
        }
    }

    #[test]
    fn forgetting_and_history_round_trip(
        ids in id_set(), mailboxes in vec((any::<u32>(), any::<[u8; 8]>()), 0..20), names in vec(".{0,20}", 0..5),
        site in any::<[u8; 26]>(),
    ) {
        round_trips(&Event::Forget { ids });
        let mailboxes = mailboxes.into_iter().map(|(id, bytes)| (AddressId(id), MailboxHistory::of_bytes(bytes)));
        let mailboxes: Vec<_> = mailboxes.collect();
        let texts: Vec<String> = mailboxes.iter().map(|(id, _)| format!("user{}@example.org", id.0)).collect();
        let addresses = mailboxes.iter().zip(&texts).map(|((id, history), text)| (*id, text.as_str(), *history));
        round_trips(&Event::Addresses(addresses.collect()));
        round_trips(&Event::Mailboxes(mailboxes));
        let site = DomainHistory::read(&mut Reader::new(&site)).unwrap();
        round_trips(&Event::Sites(names.iter().map(|name| (name.as_str(), site)).collect()));
    }

    #[test]
    fn slices_round_trip(slices in vec((accept(), any::<bool>(), tally()), 0..4), n: u64, m: u64, fates in tally()) {
        round_trips(&Event::Messages(
            slices.into_iter().map(|(accept, held, tally)| MessageSlice { accept, held, tally }).collect(),
        ));
        let totals = Totals { messages_accepted: n, acknowledged: m, fates };
        round_trips(&Event::Totals { totals, last_id: MessageId(m) });
        round_trips(&Event::CheckpointEnd);
    }

    #[test]
    fn posts_round_trip(
        accepts in vec(accept(), 0..4), numbers: [u64; 4], expired in id_set(), dropped in id_set(),
        resends in vec(any::<u64>(), 0..4),
    ) {
        let [until, total, removed, coalesced] = numbers;
        let resends: Vec<MessageId> = resends.into_iter().map(MessageId).collect();
        let facts = PostFacts { until, total, removed, coalesced, expired, dropped, resends };
        let mut buf = Vec::new();
        encode_post_facts(&mut buf, &facts);
        prop_assert!(buf.len() <= facts.bytes_max());
        round_trips(&Event::Posts(accepts.into_iter().map(|accept| PostSlice { accept, facts: facts.clone() }).collect()));
        let (of, message) = (MessageId(removed), MessageId(coalesced));
        for event in [Event::Post { message, until }, Event::Resend { of, message, until }, Event::PostEnd { message }] {
            round_trips(&event);
            prop_assert!(bytes(&event).len() <= post_bytes_max());
        }
    }

    #[test]
    fn any_bytes_are_an_event_or_an_error(kind in (0u8..0x30).prop_union(0x80u8..0x90), mut bytes in vec(any::<u8>(), 0..200)) {
        let _ = Event::decode(&bytes);
        bytes.insert(0, kind);
        let _ = Event::decode(&bytes);
    }

    #[test]
    fn a_damaged_event_is_an_event_or_an_error(accept in accept(), at: prop::sample::Index, byte: u8) {
        let mut buf = Vec::new();
        Event::Messages(vec![MessageSlice { accept, held: true, tally: Tally::default() }]).encode(&mut buf);
        let at = at.index(buf.len());
        buf[at] = byte;
        let _ = Event::decode(&buf);
        prop_assert!(Event::decode(&buf[..at]).is_err() || at == 1, "a cut record is noticed");
    }

    /// A later version may add fields at the end of a record or part.
    #[test]
    fn fields_of_a_later_version_are_skipped(accept in accept(), more in vec(any::<u8>(), 1..9)) {
        let mut buf = Vec::new();
        Event::Accept(Box::new(accept.clone())).encode(&mut buf);
        buf.extend_from_slice(&more);
        prop_assert_eq!(Event::decode(&buf), Ok(Event::Accept(Box::new(accept.clone()))));

        let mut buf = Vec::new();
        begin_messages(&mut buf);
        for _ in 0..2 {
            put_part(&mut buf, |buf| {
                accept::encode_body(buf, &accept, true);
                buf.extend_from_slice(&more);
            });
            put_part(&mut buf, |buf| {
                Tally::default().encode(buf);
                buf.extend_from_slice(&more);
            });
        }
        let slice = MessageSlice { accept, held: true, tally: Tally::default() };
        prop_assert_eq!(Event::decode(&buf), Ok(Event::Messages(vec![slice.clone(), slice])));
    }
}

#[test]
fn an_outcome_of_one_recipient_is_small() {
    let id = MessageId::next(MessageId(0), 1_795_000_000_000);
    for (at, ids, bytes_max) in [(1_795_000_000_900, 1_000_000, 16), (1_795_000_005_000, 50_000, 16)] {
        let mut buf = Vec::new();
        encode_outcome(&mut buf, id, Fate::Delivered, &IdSet::one(ids), None, at);
        assert!(buf.len() <= bytes_max, "{} bytes", buf.len());
    }
}

#[test]
fn unknown_kinds_refuse_or_are_skipped_by_their_number() {
    assert_eq!(Event::decode(&[0x7f, 1, 2]), Err(EventError::UnknownKind(0x7f)));
    assert_eq!(Event::decode(&[0x16]), Err(EventError::UnknownKind(0x16)));
    assert_eq!(Event::decode(&[0x90, 1, 2]), Ok(Event::Skipped(0x90)));
    assert_eq!(Event::decode(&[]), Err(EventError::Short));
}

fn bytes(event: &Event<'_>) -> Vec<u8> {
    let mut buf = Vec::new();
    event.encode(&mut buf);
    buf
}

/// The bytes of format versions 1 and 2, as documented in docs/design/journal-events.md: a change that breaks old
/// journals fails here.
#[test]
fn bytes_are_as_documented() {
    let entries = vec![(AddressId(5), "a@b"), (AddressId(6), "c@d")];
    assert_eq!(bytes(&Event::Intern { entries }), b"\x01\x0a\x03a@b\x00\x03c@d");
    let outcome = Event::Outcome {
        message: MessageId(1 << 24 | 2),
        fate: Fate::Removed,
        ids: [3, 7].into_iter().collect(),
        by: Some("op"),
        at: (EPOCH_2020_S + 1) * 1000 + 5,
    };
    assert_eq!(bytes(&outcome), b"\x13\x82\x80\x80\x08\x0a\x04\x03\x03\x03op");
    assert_eq!(bytes(&Event::Forget { ids: [3, 7].into_iter().collect() }), b"\x08\x04\x03\x03");
    let mailbox = MailboxHistory::of_bytes([1, 2, 3, 4, 5, 6, 2, 8]);
    let mailboxes = Event::Mailboxes(vec![(AddressId(5), mailbox), (AddressId(6), MailboxHistory::default())]);
    assert_eq!(bytes(&mailboxes), b"\x80\x0a\x01\x02\x03\x04\x05\x06\x02\x08\x00\0\0\0\0\0\0\0\0");
    let mut sites = b"\x81\x03b.c\x1a\0\0\0".to_vec();
    sites.extend(1..=26);
    let site = DomainHistory::read(&mut Reader::new(&sites[9..])).unwrap();
    assert_eq!(bytes(&Event::Sites(vec![("b.c", site)])), sites);
    let hold = |held| Event::Hold { held, messages: vec![MessageId(300), MessageId(303), MessageId(302)] };
    assert_eq!(bytes(&hold(true)), b"\x06\x03\xd8\x04\x06\x01");
    assert_eq!(bytes(&hold(false)), b"\x07\x03\xd8\x04\x06\x01");
    let suspend = |suspended, what, until, reason| bytes(&Event::Suspend { suspended, what, until, reason });
    assert_eq!(suspend(true, "list:l", 0, ""), b"\x09\x06list:l");
    assert_eq!(suspend(true, "list:l", 300, ""), b"\x09\x06list:l\xac\x02");
    assert_eq!(suspend(true, "bounce:list:l", 300, "no"), b"\x09\x0dbounce:list:l\xac\x02\x02no");
    assert_eq!(suspend(false, "site:mx", 0, ""), b"\x0a\x07site:mx");
    assert_eq!(bytes(&Event::ClockMoved { since: MessageId(300), by: -2 }), b"\x82\xac\x02\x03");
    let (of, message) = (MessageId(300), MessageId(301));
    assert_eq!(bytes(&Event::Post { message: of, until: 5 }), b"\x83\xac\x02\x05");
    assert_eq!(bytes(&Event::Resend { of, message, until: 6 }), b"\x84\xac\x02\xad\x02\x06");
    assert_eq!(bytes(&Event::PostEnd { message: of }), b"\x85\xac\x02");
}

fn post_facts() -> PostFacts {
    PostFacts {
        until: 7,
        total: 300,
        removed: 1,
        coalesced: 2,
        expired: IdSet::one(9),
        dropped: IdSet::new(),
        resends: vec![MessageId(300), MessageId(301)],
    }
}

#[test]
fn bytes_of_messages_are_as_documented() {
    let accept = Accept {
        id: MessageId(300),
        content: ContentId(2),
        size: 1000,
        accepted: 4,
        sender: "s@x".into(),
        class: Class::Bulk,
        list: Some("l".into()),
        recipients: IdSet::one(9),
        prefix: b"P".to_vec(),
        eight_bit: true,
        smtputf8: false,
        ret: Some(Ret::Headers),
        envid: None,
        params: vec![(AddressId(9), RcptParams { notify: Some(1), orcpt: None })],
        origin: "o".into(),
        message_id: "m".into(),
        message_id_at: None,
        is_report: false,
        given_sender: None,
        held_by: None,
        require_tls: false,
        merge_bytes: 0,
        is_transactional: false,
        is_archive: false,
    };
    let envelope = b"\xe8\x07\x03s@x\x02l\x01P\x00\x01m\x01o";
    let expected = |flags: u8, envelope: &[u8]| {
        let mut expected = b"\x02\xac\x02\x02\x04".to_vec();
        expected.push(flags);
        expected.extend_from_slice(&(envelope.len() as u32).to_le_bytes());
        expected.extend_from_slice(envelope);
        expected.extend_from_slice(b"\x02\x09\x01\x09\x02\x00");
        expected
    };
    assert_eq!(bytes(&Event::Accept(Box::new(accept.clone()))), expected(0x23, envelope));
    let marked = Accept { given_sender: Some("g@x".into()), held_by: Some("r".into()), ..accept };
    let more = [envelope, b"\x00\x00\x04g@x\x02r".as_slice()].concat();
    assert_eq!(bytes(&Event::Accept(Box::new(marked.clone()))), expected(0xa3, &more));
    let required = Accept { given_sender: None, held_by: None, require_tls: true, ..marked.clone() };
    let more_yet = [envelope, b"\x00\x00\x00\x00\x01".as_slice()].concat();
    assert_eq!(bytes(&Event::Accept(Box::new(required.clone()))), expected(0x23, &more_yet));
    let transactional = Accept { is_transactional: true, ..required.clone() };
    let with_class = [envelope, b"\x00\x00\x00\x00\x05".as_slice()].concat();
    assert_eq!(bytes(&Event::Accept(Box::new(transactional))), expected(0x23, &with_class));
    let archived = Accept { is_archive: true, ..required.clone() };
    let for_archive = [envelope, b"\x00\x00\x00\x00\x09".as_slice()].concat();
    assert_eq!(bytes(&Event::Accept(Box::new(archived))), expected(0x23, &for_archive));
    let merged = Accept { merge_bytes: 5, ..required };
    let with_values = [envelope, b"\x00\x00\x00\x00\x03\x05".as_slice()].concat();
    assert_eq!(bytes(&Event::Accept(Box::new(merged))), expected(0x23, &with_values));
    let (kept, message) = (expected(0xa3, &more), Box::new(marked.clone()));
    let part = [&(kept.len() as u32 - 1).to_le_bytes()[..], &kept[1..]].concat();
    assert_eq!(bytes(&Event::Quarantined(message.clone())), [b"\x0b", &kept[1..]].concat());
    assert_eq!(bytes(&Event::Quarantine(vec![marked.clone()])), [b"\x24", &part[..]].concat());
    let facts = post_facts();
    let post = b"\x0c\0\0\0\x07\xac\x02\x01\x02\x02\x09\x00\x02\xd8\x04\x02";
    assert_eq!(bytes(&Event::Posts(vec![PostSlice { accept: marked, facts }])), [b"\x86", &part[..], post].concat());
    let released = Event::QuarantineReleased { from: MessageId(301), by: Some("u"), accept: message };
    assert_eq!(bytes(&released), [b"\x0d\xad\x02", &part[..], b"\x02u"].concat());
    let (message, ids) = (MessageId(300), IdSet::one(9));
    let at = EPOCH_2020_S * 1000 + 1;
    let ended = Event::QuarantineEnded { message, fate: Fate::Expired, ids, by: None, at };
    assert_eq!(bytes(&ended), b"\x0c\x12\xac\x02\x02\x02\x09");
}

#[test]
fn a_notice_is_due_if_any_way_to_a_recipient_asked_for_it() {
    const NEVER: Option<u8> = Some(1);
    for (one, other, united) in [
        (None, None, None),
        (NEVER, NEVER, NEVER),
        (NEVER, None, None),
        (NEVER, Some(4), Some(4)),
        (Some(2), Some(8), Some(10)),
        // No NOTIFY means that failures are reported.
        (None, Some(2), Some(6)),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            let mut first = RcptParams { notify: one, orcpt: None };
            first.unite(RcptParams { notify: other, orcpt: Some("rfc822;a@x.test".to_owned()) });
            first.unite(RcptParams { notify: other, orcpt: Some("rfc822;b@x.test".to_owned()) });
            let expected = RcptParams { notify: united, orcpt: Some("rfc822;a@x.test".to_owned()) };
            assert_eq!(first, expected, "{one:?} and {other:?}");
        }
    }
}
