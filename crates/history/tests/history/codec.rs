//! Every record is decoded as it was encoded.

use proptest::prelude::*;
use stentor_history::{History, TEXT_BYTES_MAX, TO_MAX};
use stentor_records::record::{
    Accepted, Attempt, Machine, Ms, Note, Record, Refused, Stat, Topic, Unreached, WireChanges,
};

use crate::kit::{all, start};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{0,12}@(example|list)\\.(org|net)",
        2 => Just(String::new()),
        1 => "\\PC{0,40}",
        1 => proptest::collection::vec(any::<char>(), 0..20).prop_map(|chars| chars.into_iter().collect()),
    ]
}

/// Texts and numbers of one record.
#[derive(Debug, Clone)]
struct Raw {
    kind: u8,
    at: Ms,
    texts: Vec<String>,
    to: Vec<String>,
    numbers: [u64; 12],
    ip: Option<std::net::IpAddr>,
}

fn raw() -> impl Strategy<Value = Raw> {
    let number = prop_oneof![Just(0), any::<u64>(), 0..1_000_000_u64];
    (
        0..5_u8,
        prop_oneof![1_795_000_000_000..1_796_000_000_000_u64, any::<u64>()],
        proptest::collection::vec(text(), 10),
        proptest::collection::vec(text(), 0..6),
        proptest::array::uniform12(number),
        proptest::option::of(any::<std::net::IpAddr>()),
    )
        .prop_map(|(kind, at, texts, to, numbers, ip)| Raw {
            kind,
            at,
            texts,
            to,
            numbers,
            ip: ip.map(|ip| ip.to_canonical()),
        })
}

#[allow(clippy::too_many_lines, reason = "one line for each field of all records")]
fn record(raw: &Raw) -> Record<'_> {
    let (t, n) = (|at: usize| raw.texts[at].as_str(), raw.numbers);
    let stats = [Stat::Sent, Stat::Deferred, Stat::Bounced, Stat::Expired, Stat::Removed, Stat::Coalesced];
    let topics = [Topic::Server, Topic::Delivery, Topic::Policy, Topic::Audit];
    match raw.kind {
        0 => Record::Accepted(Accepted {
            at: raw.at,
            id: t(0),
            from: t(1),
            size: n[0],
            recipients: n[1],
            message_id: t(2),
            client_host: t(3),
            client: raw.ip,
            proto: t(4),
            is_bulk: n[2] % 2 == 0,
            is_of_stranger: n[2] % 3 == 0,
            list: t(5),
            policy: t(6),
            tls: t(7),
            named: raw.to.iter().map(String::as_str).collect(),
            marks: t(8),
            orig_from: t(9),
            user: t(6),
        }),
        1 => Record::Attempt(Attempt {
            at: raw.at,
            id: t(0),
            to: raw.to.iter().map(String::as_str).collect(),
            from: t(1),
            list: t(2),
            source: t(3),
            mailer: t(4),
            host: t(5),
            ip: raw.ip,
            port: n[0] as u16,
            delay_ms: n[1],
            xdelay_ms: n[2],
            stat: stats[(n[3] % 6) as usize],
            dsn: t(6),
            reply: t(7),
            tls: t(8),
            size: n[4],
            is_bulk: n[5] % 2 == 0,
            is_repeated: n[6] % 2 == 0,
            is_of_stranger: n[6] % 3 == 0,
            recoded: WireChanges { seven_bit: n[6] % 3 == 0, lines: n[6] % 5 == 0 },
            unreached: (n[7] % 3 == 0).then(|| {
                let domains = raw.to.iter().map(|domain| (domain.as_str(), n[9])).collect();
                Box::new(Unreached { site: t(9), waiting: n[8], domains })
            }),
        }),
        2 => Record::Refused(Refused {
            at: raw.at,
            client: raw.ip,
            from: t(0),
            to: t(1),
            reply: t(2),
            step: t(3),
            size: n[0],
            recipients: n[1],
            policy: t(4),
            message_id: t(5),
            named: raw.to.iter().map(String::as_str).collect(),
            user: t(6),
        }),
        3 => Record::Note(Note {
            at: raw.at,
            id: t(0),
            text: t(1),
            topic: topics[(n[0] % 4) as usize],
            is_end: n[1] % 2 == 0,
            to: raw.to.iter().map(String::as_str).collect(),
            message_id: t(2),
        }),
        _ => Record::Machine(machine(raw)),
    }
}

fn machine(raw: &Raw) -> Machine {
    let n = raw.numbers;
    Machine {
        at: raw.at,
        interval_ms: n[0],
        cpu: n[1] as f32,
        load_1m: n[2] as f32,
        memory_used_bytes: n[3],
        disk_read_bytes: n[4],
        disk_written_bytes: n[5],
        disk_busy: 0.5,
        net_in_bytes: n[6],
        net_out_bytes: n[7],
        own_cpu: 1.5,
        own_memory_bytes: n[8],
        own_read_bytes: n[9],
        own_written_bytes: n[10],
        pending: n[11],
        connections_in: n[0] as u32,
        connections_out: n[1] as u32,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn records_come_back(raws in proptest::collection::vec(raw(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let history = start(dir.path());
        // A flush after every third record: blocks of one and of several records.
        for (at, raw) in raws.iter().enumerate() {
            history.append(&record(raw));
            if at % 3 == 0 {
                history.flush();
            }
        }
        drop(history);
        let mut expected: Vec<String> = raws.iter().map(|raw| format!("{:?}", record(raw))).collect();
        let (mut found, seen) = all(dir.path());
        expected.retain(|record| !record.contains(&format!("at: {}", Ms::MAX)));
        prop_assert_eq!(seen.damaged, 0);
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn long_texts_are_cut_between_characters_and_long_lists_split() {
    let dir = tempfile::tempdir().unwrap();
    let history: History = start(dir.path());
    let long = "é".repeat(TEXT_BYTES_MAX);
    history.append(&Record::Note(Note { at: 1, text: &long, ..Note::default() }));
    let names: Vec<String> = (0..=TO_MAX).map(|n| format!("a{n}@b")).collect();
    history.append(&Record::Attempt(Attempt {
        at: 2,
        id: "Q",
        to: names.iter().map(String::as_str).collect(),
        ..Attempt::default()
    }));
    drop(history);
    let (found, seen) = all(dir.path());
    assert_eq!((found.len(), seen.damaged), (3, 0));
    assert!(found[0].contains(&"é".repeat(TEXT_BYTES_MAX / 2)) && !found[0].contains(&long));
    assert_eq!(found[1].matches("@b").count() + found[2].matches("@b").count(), TO_MAX + 1);
}
