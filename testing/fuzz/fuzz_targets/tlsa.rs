//! Any octets as TLSA records: no panic, and what is usable is what its numbers say.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tls_policy::dane::{Answer, Answers, DaneDecision, HostFacts, Matching, SecurityStatus, Step, decide, usable};

fuzz_target!(|records: Vec<Vec<u8>>| {
    let (kept, unusable) = usable(records.iter().map(Vec::as_slice));
    assert_eq!(kept.is_empty(), unusable == records.len().min(100));
    for record in &kept {
        let bytes = record.data.len();
        assert!(match record.matching {
            Matching::Full => bytes >= 2,
            Matching::Sha256 => bytes == 32,
            Matching::Sha512 => bytes == 64,
        });
        assert!(!record.to_string().is_empty());
    }
    let host = HostFacts { name: "mx.x".into(), canonical: "mx.x".into(), security: SecurityStatus::Secure, port: 25 };
    let answers = Answers { canonical: Some(Answer::Found(SecurityStatus::Secure, records.clone())), ..Answers::default() };
    let Step::Done(decision) = decide(true, None, &host, &answers) else { panic!("it asks again") };
    assert_eq!(matches!(decision, DaneDecision::Match(_)), !kept.is_empty());
});
