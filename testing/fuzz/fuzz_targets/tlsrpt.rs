//! Any octets as a record of TLSRPT and as kept counts: no panic; nothing in an address or URL ends a line of a header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_domain_reports::{ReportDestination, Submitter};
use stentor_tls_policy::tlsrpt::{Counts, DomainCount, Record, tls_report};

const US: Submitter<'_> =
    Submitter { hostname: "us.test", organization: "Us", contact: "postmaster@us.test", from: "reports@us.test" };

fuzz_target!(|data: &[u8]| {
    let with_head = [b"v=TLSRPTv1;rua=", data].concat();
    for record in [data, &with_head] {
        if let Record::Places(places) = Record::of([record]) {
            for place in places {
                let (ReportDestination::Mail(text) | ReportDestination::Https(text)) = &place;
                assert!(!text.bytes().any(|b| b <= b' ' || b == 0x7f));
                if let ReportDestination::Mail(to) = &place {
                    let report = tls_report("a.test", 1, &DomainCount::default(), US);
                    let message = report.message(to, "<1@us.test>", 0, US);
                    let message = String::from_utf8(message).expect("an address is UTF-8");
                    let (header, _) = message.split_once("\r\n\r\n").expect("there is a header");
                    assert_eq!(header.lines().filter(|line| line.starts_with("To: <")).count(), 1);
                    assert!(header.contains(&format!("\r\nTo: <{to}>\r\nSubject: ")));
                }
            }
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(counts) = Counts::read(&format!("stentor tlsrpt 1\n{text}")) else { return };
    assert!(Counts::read(&counts.write()).is_ok());
    for (day, domain) in counts.finished(u64::MAX) {
        let count = counts.of(day, domain).expect("it is finished");
        let _ = tls_report(domain, day, count, US);
    }
});
