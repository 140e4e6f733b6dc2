//! Writes reports (RFC 9990, appendix A).
//!
//! Promise: what others chose cannot end an element: it is escaped, and has no characters that XML forbids.

use std::fmt::Write as _;

use quick_xml::escape::partial_escape;

use super::count::DmarcCount;
use super::read::XML_BYTES_MAX;
use super::report::{AggregateReport, PublishedPolicy, ReportRow, RowCount, is_text};
use crate::daily::DAY_MS;
use crate::document::{DomainReport, ReportForm, Submitter, compressed};
use crate::unique_id;

const NAMESPACE: &str = "urn:ietf:params:xml:ns:dmarc-2.0";

/// Makes the report of a policy domain and day. The same counts give the same report, so that one sent again after a
/// crash has the same ID and file name.
pub fn dmarc_report(domain: &str, day: u64, count: &DmarcCount, by: Submitter<'_>) -> DomainReport {
    let (begin_s, end_s) = (day * DAY_MS / 1_000, (day + 1) * DAY_MS / 1_000 - 1);
    let id = unique_id(by.hostname, domain, day);
    let mut errors = Vec::new();
    if count.uncounted > 0 {
        errors.push(format!("{} messages are in no record: too many different records", count.uncounted));
    }
    let report = AggregateReport {
        organization: by.organization.to_owned(),
        email: by.contact.to_owned(),
        id: id.clone(),
        begin_s,
        end_s,
        errors,
        policy: PublishedPolicy { domain: domain.to_owned(), ..count.policy.clone() },
        rows: count.rows(),
    };
    let file_name = format!("{}!{domain}!{begin_s}!{end_s}!{id}.xml.gz", by.domain());
    DomainReport { form: ReportForm::Dmarc, domain: domain.to_owned(), id, text: write_xml(&report), file_name }
}

/// Text under construction, and the depth of the next element. Once it has more than `bytes_max`, nothing is added.
struct XmlText {
    out: String,
    depth: usize,
    bytes_max: usize,
}

impl XmlText {
    fn leaf(&mut self, name: &str, text: &str) {
        if self.out.len() > self.bytes_max {
            return;
        }
        let clean: String = text.chars().filter(|c| is_text(*c)).collect();
        // Writing into a string cannot fail.
        let _ = writeln!(self.out, "{:1$}<{name}>{2}</{name}>", "", 2 * self.depth, partial_escape(clean.as_str()));
    }

    fn within(&mut self, name: &str, inside: impl FnOnce(&mut XmlText)) {
        if self.out.len() > self.bytes_max {
            return;
        }
        let indent = 2 * self.depth;
        let _ = writeln!(self.out, "{:indent$}<{name}>", "");
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        let _ = writeln!(self.out, "{:indent$}</{name}>", "");
    }
}

/// Writes a report as compressed XML; `None`: it would be too large to be read again.
pub fn compressed_xml(report: &AggregateReport) -> Option<Vec<u8>> {
    let text = xml_within(report, XML_BYTES_MAX as usize);
    (text.len() as u64 <= XML_BYTES_MAX).then(|| compressed(&text))
}

/// Writes a report as XML.
pub fn write_xml(report: &AggregateReport) -> String {
    xml_within(report, usize::MAX)
}

/// Writes a report; a text of more than `bytes_max` is incomplete.
fn xml_within(report: &AggregateReport, bytes_max: usize) -> String {
    let mut xml = XmlText { out: String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"), depth: 1, bytes_max };
    let _ = writeln!(xml.out, "<feedback xmlns=\"{NAMESPACE}\">");
    xml.leaf("version", "1.0");
    xml.within("report_metadata", |xml| {
        xml.leaf("org_name", &report.organization);
        xml.leaf("email", &report.email);
        xml.leaf("report_id", &report.id);
        xml.within("date_range", |xml| {
            xml.leaf("begin", &report.begin_s.to_string());
            xml.leaf("end", &report.end_s.to_string());
        });
        report.errors.iter().for_each(|error| xml.leaf("error", error));
        xml.leaf("generator", concat!("Stentor ", env!("CARGO_PKG_VERSION")));
    });
    xml.within("policy_published", |xml| policy(xml, &report.policy));
    for RowCount { messages, row } in &report.rows {
        xml.within("record", |xml| record(xml, *messages, row));
    }
    xml.out.push_str("</feedback>\n");
    xml.out
}

fn policy(xml: &mut XmlText, policy: &PublishedPolicy) {
    let alignment = |is_strict| if is_strict { "s" } else { "r" };
    xml.leaf("domain", &policy.domain);
    xml.leaf("discovery_method", "treewalk");
    xml.leaf("p", &policy.policy);
    for (name, word) in [("sp", &policy.subdomains), ("np", &policy.missing_subdomains)] {
        if let Some(word) = word {
            xml.leaf(name, word);
        }
    }
    xml.leaf("adkim", alignment(policy.is_dkim_strict));
    xml.leaf("aspf", alignment(policy.is_spf_strict));
    xml.leaf("testing", if policy.is_test { "y" } else { "n" });
}

fn record(xml: &mut XmlText, messages: u64, row: &ReportRow) {
    let result = |is_aligned| if is_aligned { "pass" } else { "fail" };
    xml.within("row", |xml| {
        xml.leaf("source_ip", &row.source.to_string());
        xml.leaf("count", &messages.to_string());
        xml.within("policy_evaluated", |xml| {
            xml.leaf("disposition", row.disposition.word());
            xml.leaf("dkim", result(row.is_dkim_aligned));
            xml.leaf("spf", result(row.is_spf_aligned));
            for reason in &row.reasons {
                xml.within("reason", |xml| {
                    xml.leaf("type", &reason.kind);
                    if !reason.comment.is_empty() {
                        xml.leaf("comment", &reason.comment);
                    }
                });
            }
        });
    });
    xml.within("identifiers", |xml| {
        xml.leaf("header_from", &row.header_from);
        if let Some(domain) = &row.envelope_from {
            xml.leaf("envelope_from", domain);
        }
    });
    xml.within("auth_results", |xml| {
        for dkim in &row.dkim {
            xml.within("dkim", |xml| {
                xml.leaf("domain", &dkim.domain);
                xml.leaf("selector", &dkim.selector);
                xml.leaf("result", &dkim.result);
            });
        }
        if let Some(spf) = &row.spf {
            xml.within("spf", |xml| {
                xml.leaf("domain", &spf.domain);
                xml.leaf("scope", "mfrom");
                xml.leaf("result", &spf.result);
            });
        }
    });
}
