//! Any octets as a DMARC report and as kept counts: no panic; a report that was read is read again from what is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_domain_reports::Submitter;
use stentor_domain_reports::dmarc::{DmarcCounts, DmarcSums, dmarc_report, read_reports, read_xml, write_xml};

const US: Submitter<'_> =
    Submitter { hostname: "us.test", organization: "Us", contact: "postmaster@us.test", from: "reports@us.test" };

fuzz_target!(|data: &[u8]| {
    for report in read_reports(data).unwrap_or_default() {
        DmarcSums::default().add(&report);
        let again = read_xml(write_xml(&report).as_bytes()).expect("what we write");
        assert_eq!(again.policy.domain, report.policy.domain);
        assert_eq!(again.rows.len(), report.rows.len());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(counts) = DmarcCounts::read(&format!("stentor dmarc 1\n{text}")) else { return };
    assert!(DmarcCounts::read(&counts.write()).is_ok());
    for (day, domain) in counts.finished(u64::MAX) {
        let count = counts.of(day, domain).expect("it is finished");
        let _ = dmarc_report(domain, day, count, US);
    }
});
