//! Any message and any DNS lead to a report within the limits, whose field is ASCII in a single header field.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_message_auth::{
    DnsQuestion, MessageScan, QUESTIONS_MAX, RecordAnswer, RecordKind, SessionIdentity, Step, Verification,
};

fn answer(question: &DnsQuestion, record: &[u8]) -> RecordAnswer {
    match question.kind {
        RecordKind::Txt => RecordAnswer::Texts(vec![record.into()]),
        RecordKind::Mx | RecordKind::Ptr => RecordAnswer::Hosts(vec!["mx.test".into(); 12]),
        RecordKind::A => RecordAnswer::Addresses(vec!["192.0.2.1".parse().expect("an address")]),
        RecordKind::Aaaa => RecordAnswer::Empty,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((at, data)) = data.split_first() else { return };
    let (record, message) = data.split_at(usize::from(*at).min(data.len()));
    let mut scan = MessageScan::new(0);
    message.chunks(usize::from(*at).max(1)).for_each(|piece| scan.push(piece));
    let identity = SessionIdentity {
        client: "192.0.2.1".parse().expect("an address"),
        helo: "mail.a.test".to_owned(),
        sender: "b@a.test".to_owned(),
    };
    let (mut verification, mut count) = (Verification::new(identity, scan.finish(), true, 1_800_000_000), 0);
    while let Step::Ask(questions) = verification.step() {
        count += questions.len();
        assert!(!questions.is_empty() && count <= QUESTIONS_MAX);
        for question in questions {
            let answer = answer(&question, record);
            verification.answer(question, answer);
        }
    }
    let value = verification.into_results().value("mx.test");
    assert!(value.is_ascii() && value.split("\r\n").skip(1).all(|line| line.starts_with('\t')));
});
