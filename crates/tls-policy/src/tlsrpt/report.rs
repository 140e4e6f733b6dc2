//! A report (RFC 8460 4.4 and 5): JSON, compressed, as mail or as the body of a POST.

use std::io::Write as _;

use base64ct::{Base64, Encoding};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use stentor_mail::dsn::format_date;
use stentor_records::civil::{Civil, Zone};

use super::count::{DAY_MS, DomainCount, PolicyCount};
use super::result::{FailureDetails, PolicyType};

/// Media type of a compressed report (RFC 8460 6.5).
pub const MEDIA_TYPE: &str = "application/tlsrpt+gzip";
/// Octets of base64 in one line (RFC 2045 6.8).
const BASE64_LINE: usize = 76;

/// Sender of reports.
#[derive(Debug, Clone, Copy)]
pub struct Submitter<'a> {
    /// Our name, used in identifiers: two servers of one organization report separately.
    pub hostname: &'a str,
    pub organization: &'a str,
    /// Contact address.
    pub contact: &'a str,
    /// Sender of report mail.
    pub from: &'a str,
}

impl Submitter<'_> {
    /// The domain of `contact-info`, which identifies the submitter in the file's name, the subject and the header
    /// (RFC 8460 5.1, 5.3): some receivers compare them.
    fn domain(&self) -> &str {
        self.contact.rsplit_once('@').map_or(self.hostname, |(_, domain)| domain)
    }
}

/// The report of one domain and day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsReport {
    pub domain: String,
    pub id: String,
    pub json: String,
    /// `sender!policy-domain!begin!end!unique.json.gz` (RFC 8460 5.1).
    pub file_name: String,
}

impl TlsReport {
    /// Makes a report. The same counts give the same report, so that one sent again after a crash has the same ID.
    pub fn new(domain: &str, day: u64, count: &DomainCount, by: Submitter<'_>) -> TlsReport {
        let (begin_ms, end_s) = (day * DAY_MS, (day * DAY_MS + DAY_MS) / 1000 - 1);
        let unique = format!("{:016x}", fnv1a(&[by.hostname, domain, &day.to_string()]));
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
        TlsReport { domain: domain.to_owned(), id, json: report.to_string(), file_name }
    }

    /// The body of a POST with [`MEDIA_TYPE`] (RFC 8460 5.4), and the attachment of a message.
    pub fn compressed(&self) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        // Writing into memory does not fail; if it did, the report would be truncated and the receiver would notice.
        let _ = gzip.write_all(self.json.as_bytes());
        gzip.finish().unwrap_or_default()
    }

    /// The message for an address (RFC 8460 5.3), with CRLF line ends. It does not require TLS (RFC 8689), so that a
    /// domain with broken policies receives it.
    pub fn message(&self, to: &str, message_id: &str, now: u64, by: Submitter<'_>) -> Vec<u8> {
        let (domain, submitter, from) = (&self.domain, by.domain(), by.from);
        let boundary = format!("=_tlsrpt.{:016x}", fnv1a(&[&self.id]));
        let date = format_date(now);
        let body = Base64::encode_string(&self.compressed());
        let mut text = format!(
            "Date: {date}\r\nFrom: <{from}>\r\nTo: <{to}>\r\n\
             Subject: Report Domain: {domain}\r\n Submitter: {submitter}\r\n Report-ID: <{}>\r\n\
             Message-ID: {message_id}\r\nTLS-Report-Domain: {domain}\r\nTLS-Report-Submitter: {submitter}\r\nTLS-Required: No\r\n\
             Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
             Content-Type: multipart/report; report-type=\"tlsrpt\";\r\n boundary=\"{boundary}\"\r\n\r\n\
             --{boundary}\r\nContent-Type: text/plain; charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\n\r\n\
             This is a report on TLS connections to the mail hosts of\r\n{domain}, by {submitter}.\r\n\r\n\
             --{boundary}\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Transfer-Encoding: base64\r\n\
             Content-Disposition: attachment;\r\n filename=\"{}\"\r\n\r\n",
            self.id, self.file_name,
        );
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(BASE64_LINE));
            text.push_str(line);
            text.push_str("\r\n");
            rest = after;
        }
        text.push_str("--");
        text.push_str(&boundary);
        text.push_str("--\r\n");
        text.into_bytes()
    }
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

/// A hash that is the same in all releases; it need not be unpredictable.
fn fnv1a(texts: &[&str]) -> u64 {
    let octets = texts.iter().flat_map(|text| text.bytes().chain([0]));
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}

/// When a domain's report is sent, in milliseconds after the end of its day: spread over four hours, so that a
/// receiver for many domains does not get all reports at once (RFC 8460 4.1).
pub fn delay_ms(domain: &str) -> u64 {
    fnv1a(&[domain]) % (4 * 3_600_000)
}
