//! A report (RFC 8460 4.4): JSON.

use serde_json::{Map, Value, json};
use stentor_domain_reports::{DAY_MS, DomainReport, ReportForm, Submitter, unique_id};
use stentor_records::civil::{Civil, Zone};

use super::count::{DomainCount, PolicyCount};
use super::result::{FailureDetails, PolicyType};

/// Makes the report of a domain and day. The same counts give the same report, so that one sent again after a crash
/// has the same ID.
pub fn tls_report(domain: &str, day: u64, count: &DomainCount, by: Submitter<'_>) -> DomainReport {
    let (begin_ms, end_s) = (day * DAY_MS, (day * DAY_MS + DAY_MS) / 1000 - 1);
    let unique = unique_id(by.hostname, domain, day);
    let id = format!("{}.{unique}@{}", begin_ms / 1000, by.hostname);
    let policies: Vec<Value> = count.policies.iter().map(|policy| of_policy(domain, policy)).collect();
    let report = json!({
        "organization-name": by.organization,
        "date-range": { "start-datetime": rfc3339(begin_ms), "end-datetime": rfc3339(end_s * 1000) },
        "contact-info": by.contact,
        "report-id": id,
        "policies": policies,
    });
    let file_name = format!("{}!{domain}!{}!{end_s}!{unique}.json.gz", by.domain(), begin_ms / 1000);
    DomainReport { form: ReportForm::Tls, domain: domain.to_owned(), id, text: report.to_string(), file_name }
}

fn of_policy(domain: &str, count: &PolicyCount) -> Value {
    let mut policy = Map::new();
    let kind = match count.policy.kind {
        PolicyType::Tlsa => "tlsa",
        PolicyType::Sts => "sts",
        PolicyType::NoPolicyFound => "no-policy-found",
    };
    policy.insert("policy-type".to_owned(), kind.into());
    if !count.policy.lines.is_empty() {
        policy.insert("policy-string".to_owned(), count.policy.lines.clone().into());
    }
    policy.insert("policy-domain".to_owned(), domain.into());
    if !count.policy.mx.is_empty() {
        policy.insert("mx-host".to_owned(), count.policy.mx.clone().into());
    }
    let mut all = json!({
        "policy": policy,
        "summary": {
            "total-successful-session-count": count.successes,
            "total-failure-session-count": count.failures,
        },
    });
    if !count.details.is_empty() {
        all["failure-details"] = count.details.iter().map(|(failure, number)| detail(failure, *number)).collect();
    }
    all
}

fn detail(failure: &FailureDetails, number: u64) -> Value {
    let mut all = Map::new();
    all.insert("result-type".to_owned(), failure.result.name().into());
    let texts = [
        ("sending-mta-ip", &failure.sending_ip),
        ("receiving-mx-hostname", &failure.receiving_host),
        ("receiving-mx-helo", &failure.receiving_helo),
        ("receiving-ip", &failure.receiving_ip),
        ("failure-reason-code", &failure.reason),
    ];
    for (name, text) in texts {
        if !text.is_empty() {
            all.insert(name.to_owned(), text.as_str().into());
        }
    }
    all.insert("failed-session-count".to_owned(), number.into());
    Value::Object(all)
}

fn rfc3339(at: u64) -> String {
    let civil = Civil::of(at, &Zone::utc());
    format!("{}T{:02}:{:02}:{:02}Z", civil.date_text(), civil.hour, civil.minute, civil.second)
}
