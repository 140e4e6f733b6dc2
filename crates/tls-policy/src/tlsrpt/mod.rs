//! TLSRPT (RFC 8460): daily reports about TLS to their hosts for domains that request them.
//!
//! This module parses the record ([`Record`]), counts sessions ([`Counts`]) and makes reports ([`TlsReport`]); the
//! caller does lookups, files, mail and HTTPS. Sessions are counted, not messages: an attempt in clear after a failed
//! handshake belongs to the same session.

mod count;
mod record;
mod report;
mod result;
#[cfg(test)]
mod tests;

pub use count::{
    Counts, CountsError, DAY_MS, DETAILS_MAX, DOMAINS_MAX, DomainCount, OCTETS_MAX, POLICIES_MAX, PolicyCount, day_of,
};
pub use record::{PLACES_MAX, RECORD_BYTES_MAX, RECORDS_MAX, Record, RecordError, ReportDestination};
pub use report::{MEDIA_TYPE, Submitter, TlsReport, delay_ms};
pub use result::{AppliedPolicy, FailureDetails, PolicyType, ResultType};

/// The name of the TXT record.
pub fn record_name(domain: &str) -> String {
    format!("_smtp._tls.{domain}")
}
