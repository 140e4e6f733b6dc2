//! A report as a document: its text, compressed, alone or as the attachment of a message.
//!
//! Promise: equal counts give the same id and file name, so receivers recognise a report that is sent again.

use std::io::Write as _;

use base64ct::{Base64, Encoding};
use flate2::Compression;
use flate2::write::GzEncoder;
use stentor_mail::dsn::format_date;

use crate::fnv1a;

/// Octets of base64 in one line (RFC 2045 6.8).
const BASE64_LINE_BYTES: usize = 76;

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
    /// The domain of the contact, which identifies the submitter in the file's name, the subject and the header
    /// (RFC 8460 5.1, 5.3): some receivers compare them.
    pub fn domain(&self) -> &str {
        self.contact.rsplit_once('@').map_or(self.hostname, |(_, domain)| domain)
    }
}

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportForm {
    Tls,
    Dmarc,
}

impl ReportForm {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            ReportForm::Tls => "TLS report",
            ReportForm::Dmarc => "DMARC report",
        }
    }

    /// Its word in identifiers.
    pub fn word(self) -> &'static str {
        match self {
            ReportForm::Tls => "tls-report",
            ReportForm::Dmarc => "dmarc-report",
        }
    }

    /// Media type of the compressed report (RFC 8460 6.5, RFC 9990 2.6.2).
    pub fn media_type(self) -> &'static str {
        match self {
            ReportForm::Tls => "application/tlsrpt+gzip",
            ReportForm::Dmarc => "application/gzip",
        }
    }
}

/// The report of one domain and day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainReport {
    pub form: ReportForm,
    pub domain: String,
    pub id: String,
    /// JSON or XML.
    pub text: String,
    /// `submitter!domain!begin!end!unique.extension` (RFC 8460 5.1, RFC 9990 2.6.2).
    pub file_name: String,
}

impl DomainReport {
    /// The body of a POST, and the attachment of a message.
    pub fn compressed(&self) -> Vec<u8> {
        compressed(&self.text)
    }

    /// The message for an address (RFC 8460 5.3, RFC 9990 2.6.2), with CRLF line ends. One about TLS does not require
    /// TLS (RFC 8689), so that a domain with broken policies receives it.
    pub fn message(&self, to: &str, message_id: &str, now: u64, by: Submitter<'_>) -> Vec<u8> {
        let (domain, submitter, from) = (&self.domain, by.domain(), by.from);
        let boundary = format!("=_report.{:016x}", fnv1a(&[&self.id]));
        let date = format_date(now);
        let body = Base64::encode_string(&self.compressed());
        let (fields, content_type, about) = match self.form {
            ReportForm::Tls => (
                format!("TLS-Report-Domain: {domain}\r\nTLS-Report-Submitter: {submitter}\r\nTLS-Required: No\r\n"),
                "multipart/report; report-type=\"tlsrpt\"",
                format!("This is a report on TLS connections to the mail hosts of\r\n{domain}, by {submitter}."),
            ),
            ReportForm::Dmarc => (
                String::new(),
                "multipart/mixed",
                format!("This is a DMARC aggregate report on mail from\r\n{domain}, by {submitter}."),
            ),
        };
        let mut text = format!(
            "Date: {date}\r\nFrom: <{from}>\r\nTo: <{to}>\r\n\
             Subject: Report Domain: {domain}\r\n Submitter: {submitter}\r\n Report-ID: <{}>\r\n\
             Message-ID: {message_id}\r\n{fields}\
             Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
             Content-Type: {content_type};\r\n boundary=\"{boundary}\"\r\n\r\n\
             --{boundary}\r\nContent-Type: text/plain; charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\n\r\n\
             {about}\r\n\r\n\
             --{boundary}\r\nContent-Type: {}\r\nContent-Transfer-Encoding: base64\r\n\
             Content-Disposition: attachment;\r\n filename=\"{}\"\r\n\r\n",
            self.id,
            self.form.media_type(),
            self.file_name,
        );
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(BASE64_LINE_BYTES));
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

/// Compresses a text by gzip.
pub(crate) fn compressed(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Writing into memory does not fail; if it did, the report would be truncated and the receiver would notice.
    let _ = gzip.write_all(text.as_bytes());
    gzip.finish().unwrap_or_default()
}
