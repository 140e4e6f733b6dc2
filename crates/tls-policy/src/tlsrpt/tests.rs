//! Tests of counts and reports.

use std::io::Read as _;

use base64ct::{Base64, Encoding as _};
use proptest::prelude::*;
use serde_json::Value;

use stentor_domain_reports::{CountsError, DAY_MS, DOMAINS_MAX, OCTETS_MAX, Submitter, delay_ms};

use super::*;

/// 2016-04-01, as in the example of the RFC.
const DAY: u64 = 16_892;
const NOW: u64 = DAY * DAY_MS + 12 * 3_600_000;
const US: Submitter<'_> = Submitter {
    hostname: "mta.company-x.example",
    organization: "Company-X",
    contact: "postmaster@company-x.example",
    from: "tls-reports@mx.us.test",
};

fn sts() -> AppliedPolicy {
    let lines = ["version: STSv1", "mode: testing", "mx: *.mail.company-y.example", "max_age: 86400"];
    AppliedPolicy {
        kind: PolicyType::Sts,
        lines: lines.map(str::to_owned).to_vec(),
        mx: vec!["*.mail.company-y.example".to_owned()],
    }
}

fn none() -> AppliedPolicy {
    AppliedPolicy { kind: PolicyType::NoPolicyFound, lines: vec![], mx: vec![] }
}

fn failure(result: ResultType, host: &str) -> FailureDetails {
    FailureDetails {
        result,
        sending_ip: "2001:db8:abcd:12::1".to_owned(),
        receiving_host: host.to_owned(),
        receiving_ip: String::new(),
        receiving_helo: String::new(),
        reason: String::new(),
    }
}

fn counted() -> Counts {
    let mut counts = Counts::default();
    let expired = failure(ResultType::CertificateExpired, "mx1.mail.company-y.example");
    let unsupported = failure(ResultType::StarttlsNotSupported, "mx2.mail.company-y.example");
    for _ in 0..5 {
        counts.session("company-y.example", &sts(), None, NOW);
    }
    counts.session("company-y.example", &sts(), Some(&expired), NOW);
    counts.session("company-y.example", &sts(), Some(&expired), NOW + 1);
    counts.session("company-y.example", &sts(), Some(&unsupported), NOW);
    counts.session("company-y.example", &none(), None, NOW);
    counts
}

#[test]
fn a_report_has_the_members_of_the_rfc() {
    let counts = counted();
    let report = tls_report("company-y.example", DAY, counts.of(DAY, "company-y.example").unwrap(), US);
    let json: Value = serde_json::from_str(&report.text).unwrap();
    assert_eq!(json["organization-name"], "Company-X");
    assert_eq!(json["date-range"]["start-datetime"], "2016-04-01T00:00:00Z");
    assert_eq!(json["date-range"]["end-datetime"], "2016-04-01T23:59:59Z");
    assert_eq!(json["report-id"], report.id);
    let first = &json["policies"][0];
    assert_eq!(first["policy"]["policy-type"], "sts");
    assert_eq!(first["policy"]["policy-string"][1], "mode: testing");
    assert_eq!(first["policy"]["mx-host"][0], "*.mail.company-y.example");
    assert_eq!(first["summary"]["total-successful-session-count"], 5);
    assert_eq!(first["summary"]["total-failure-session-count"], 3);
    let details = first["failure-details"].as_array().unwrap();
    assert_eq!((details.len(), &details[0]["failed-session-count"]), (2, &2.into()));
    assert_eq!(details[0]["result-type"], "certificate-expired");
    assert!(details[0].get("receiving-ip").is_none());
    let second = &json["policies"][1];
    assert_eq!(second["policy"]["policy-type"], "no-policy-found");
    assert!(second["policy"].get("policy-string").is_none() && second.get("failure-details").is_none());
    let unique = &report.id[11..27];
    assert_eq!(report.file_name, format!("company-x.example!company-y.example!1459468800!1459555199!{unique}.json.gz"));
    let again = tls_report("company-y.example", DAY, counts.of(DAY, "company-y.example").unwrap(), US);
    assert_eq!(again, report);
}

#[test]
fn the_message_carries_the_report() {
    let counts = counted();
    let report = tls_report("company-y.example", DAY, counts.of(DAY, "company-y.example").unwrap(), US);
    let message = String::from_utf8(report.message("rua@company-y.example", "<1.tlsrpt@x>", NOW, US)).unwrap();
    let (header, body) = message.split_once("\r\n\r\n").unwrap();
    let unfolded = header.replace("\r\n ", " ");
    let subject =
        format!("Subject: Report Domain: company-y.example Submitter: company-x.example Report-ID: <{}>", report.id);
    assert!(unfolded.lines().any(|line| line == subject), "{unfolded}");
    for line in [
        "TLS-Report-Domain: company-y.example",
        "TLS-Report-Submitter: company-x.example",
        "TLS-Required: No",
        "To: <rua@company-y.example>",
        "Message-ID: <1.tlsrpt@x>",
    ] {
        assert!(unfolded.lines().any(|of| of == line), "{line}: {unfolded}");
    }
    assert!(unfolded.contains("multipart/report; report-type=\"tlsrpt\""));
    let part = body.split("Content-Type: application/tlsrpt+gzip\r\n").nth(1).unwrap();
    let encoded = part.split_once("\r\n\r\n").unwrap().1.split("\r\n--").next().unwrap().replace("\r\n", "");
    let mut json = String::new();
    let octets = Base64::decode_vec(&encoded).unwrap();
    flate2::read::GzDecoder::new(&*octets).read_to_string(&mut json).unwrap();
    assert_eq!(json, report.text);
    assert!(message.split("\r\n").all(|line| line.len() <= 998 && !line.contains(['\r', '\n'])));
}

#[test]
fn days_end_at_midnight_and_are_kept_for_two() {
    let mut counts = counted();
    counts.session("b.test", &none(), None, NOW + DAY_MS);
    assert_eq!(counts.finished(NOW).count(), 0);
    assert_eq!(counts.finished(NOW + DAY_MS).collect::<Vec<_>>(), [(DAY, "company-y.example")]);
    // The last one that is due still has its 24 hours.
    assert_eq!(counts.give_up((DAY + 2) * DAY_MS + 4 * 3_600_000), 0);
    assert_eq!(counts.give_up((DAY + 3) * DAY_MS - 1), 0);
    assert_eq!(counts.give_up((DAY + 3) * DAY_MS), 1);
    counts.remove(DAY + 1, "b.test");
    assert_eq!(counts.finished(NOW + 9 * DAY_MS).count(), 0);
}

#[test]
fn memory_is_bounded_and_sums_stay_right() {
    let mut counts = Counts::default();
    for n in 0..1000 {
        let mut other = failure(ResultType::ValidationFailure, &format!("mx{n}.test"));
        other.reason = "é".repeat(1000);
        counts.session("a.test", &sts(), Some(&other), NOW);
        let policy = AppliedPolicy { lines: vec![n.to_string(); 100], ..none() };
        counts.session("b.test", &policy, None, NOW);
    }
    let a = &counts.of(DAY, "a.test").unwrap().policies[0];
    assert_eq!((a.failures, a.details.len()), (1000, DETAILS_MAX));
    assert_eq!(a.details[0].0.reason.len(), 256);
    let b = &counts.of(DAY, "b.test").unwrap().policies;
    assert_eq!((b.len(), b.iter().map(|policy| policy.successes).sum()), (POLICIES_MAX, 1000));
    for n in 0..DOMAINS_MAX + 5 {
        counts.session(&format!("{n}.test"), &none(), None, NOW);
    }
    assert_eq!(counts.uncounted(), 7);
}

#[test]
fn it_survives_a_restart_and_a_damaged_file_is_known() {
    let mut counts = counted();
    assert!(counts.take_changed() && !counts.take_changed());
    let text = counts.write();
    let read = Counts::read(&text).unwrap();
    assert_eq!(read.of(DAY, "company-y.example"), counts.of(DAY, "company-y.example"));
    assert_eq!(Counts::read("").unwrap_err(), CountsError::Head);
    let far = text.replace(&format!("[{DAY},"), "[18446744073709551615,");
    assert_eq!(Counts::read(&far).unwrap_err(), CountsError::Line(2));
    assert_eq!(Counts::read(&text[..text.len() - 3]).unwrap_err(), CountsError::Line(2));
}

#[test]
fn patterns_beyond_the_limit_are_cut_and_the_policy_is_known_again() {
    let mut counts = Counts::default();
    let policy = AppliedPolicy { mx: (0..200).map(|n| format!("mx{n}.test")).collect(), ..sts() };
    for _ in 0..3 {
        counts.session("a.test", &policy, None, NOW);
    }
    let policies = &counts.of(DAY, "a.test").unwrap().policies;
    assert_eq!((policies.len(), policies[0].successes, policies[0].policy.mx.len()), (1, 3, 64));
}

/// A party with many domains and long, changing policies must not fill memory or the file.
#[test]
fn long_policies_and_many_failures_are_bounded_in_all() {
    let long =
        |n: usize| FailureDetails { reason: format!("{n:0250}"), ..failure(ResultType::ValidationFailure, "mx.test") };
    let flood = |counts: &mut Counts, now: u64| {
        for domain in 0..200 {
            for n in 0..20 {
                let mx = (0..64).map(|host| format!("{n:0200}.mx{host}.test")).collect();
                let policy = AppliedPolicy { mx, ..sts() };
                counts.session(&format!("{domain}.evil.test"), &policy, Some(&long(n)), now);
            }
        }
    };
    let number = |counts: &Counts, now: u64| counts.finished(now + DAY_MS).count();
    let mut counts = Counts::default();
    flood(&mut counts, NOW);
    let (text, first) = (counts.write(), number(&counts, NOW));
    assert!(text.len() < 2 * OCTETS_MAX && first < 200 && counts.uncounted() > 0, "{} {first}", text.len());
    // Known domains are still counted, under the policies that they have.
    let sums = |counts: &Counts| {
        let policies = &counts.of(DAY, "0.evil.test").unwrap().policies;
        (policies.len(), policies.iter().map(|policy| policy.failures).sum::<u64>())
    };
    assert_eq!(sums(&counts), (POLICIES_MAX, 20));
    counts.session("0.evil.test", &none(), Some(&long(99)), NOW);
    assert_eq!(sums(&counts), (POLICIES_MAX, 21));
    let read = Counts::read(&text).unwrap();
    assert_eq!(number(&read, NOW), first);
    for mut counts in [counts, read] {
        counts.session("good.test", &sts(), None, NOW);
        assert!(counts.of(DAY, "good.test").is_none());
        // Removed counts free space.
        counts.remove(DAY, "0.evil.test");
        counts.session("good.test", &sts(), None, NOW);
        assert!(counts.of(DAY, "good.test").is_some());
        let later = NOW + 9 * DAY_MS;
        assert_eq!(counts.give_up(later), first);
        flood(&mut counts, later);
        assert_eq!(number(&counts, later), first);
    }
}

#[test]
fn destinations_that_are_done_are_known_after_a_restart() {
    let mut counts = counted();
    let old = counts.write();
    assert!(!old.contains("done"));
    assert!(Counts::read(&old).unwrap().of(DAY, "company-y.example").unwrap().done.is_empty());
    counts.take_changed();
    let copy = counts.clone();
    for _ in 0..2 {
        counts.set_done(DAY, "company-y.example", "mailto:a@b.test");
    }
    assert!(counts.take_changed());
    counts.set_done(DAY, "company-y.example", "mailto:a@b.test");
    counts.set_done(DAY, "x.test", "mailto:a@b.test");
    assert!(!counts.take_changed());
    let read = Counts::read(&counts.write()).unwrap();
    assert_eq!(read.of(DAY, "company-y.example").unwrap().done, ["mailto:a@b.test"]);
    // A copy being written does not change.
    assert_eq!(copy.write(), old);
}

#[test]
fn names_of_results_are_those_of_the_rfc() {
    for result in ResultType::ALL {
        assert_eq!(serde_json::to_string(&result).unwrap(), format!("\"{}\"", result.name()));
    }
    assert!((0..100).all(|n| delay_ms(&format!("{n}.test")) < 4 * 3_600_000));
}

proptest! {
    #[test]
    fn whatever_others_write_is_quoted(host in "\\PC{0,40}", reason in "\\PC{0,40}", line in "\\PC{0,40}") {
        let mut counts = Counts::default();
        let mut of = failure(ResultType::ValidationFailure, &host);
        of.reason.clone_from(&reason);
        let policy = AppliedPolicy { lines: vec![line.clone()], ..sts() };
        counts.session("a.test", &policy, Some(&of), NOW);
        let report = tls_report("a.test", DAY, counts.of(DAY, "a.test").unwrap(), US);
        let json: Value = serde_json::from_str(&report.text).unwrap();
        prop_assert_eq!(&json["policies"][0]["policy"]["policy-string"][0], &line);
        let details = &json["policies"][0]["failure-details"][0];
        prop_assert_eq!(details["failure-reason-code"].as_str().unwrap_or(""), &reason);
        prop_assert_eq!(details["receiving-mx-hostname"].as_str().unwrap_or(""), &host);
        let read = Counts::read(&counts.write()).unwrap();
        prop_assert_eq!(read.of(DAY, "a.test"), counts.of(DAY, "a.test"));
    }
}
