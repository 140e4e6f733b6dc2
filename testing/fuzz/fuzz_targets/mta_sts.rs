//! Any octets as the record, the policy file and the kept policies of MTA-STS: no panic; what is read is read again the
//! same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tls_policy::sts::{Cache, StsMode, StsPolicy, Record, write};

fuzz_target!(|data: &[u8]| {
    let with_head = [b"v=STSv1;", data].concat();
    for record in [data, &with_head] {
        if let Record::Id(id) = Record::of([record]) {
            assert!((1..=32).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric()));
        }
    }
    let with_head = [b"version: STSv1\nmode: enforce\nmax_age: 1\nmx: a.b\n", data].concat();
    for file in [data, &with_head] {
        let Ok(policy) = StsPolicy::parse(file) else { continue };
        assert!(policy.mode == StsMode::None || !policy.mx.is_empty());
        assert!(!policy.allows("") && !policy.allows("."));
        assert_eq!(StsPolicy::parse(policy.lines().join("\n").as_bytes()), Ok(policy));
    }
    let file = [b"stentor mta-sts 1\n", data].concat();
    if let Ok((cache, _)) = Cache::read(&file) {
        let (again, damaged) = Cache::read(write(&cache.policies()).as_bytes()).expect("it was written here");
        assert_eq!((again.len(), damaged), (cache.len(), None));
    }
});
