//! TLSRPT (RFC 8460): daily reports about TLS to their hosts for domains that request them.
//!
//! This module parses the record ([`Record`]), counts sessions ([`Counts`]) and makes reports ([`tls_report`]) with
//! [`stentor_domain_reports`]; the caller does lookups, files, mail and HTTPS. Sessions are counted, not messages: an
//! attempt in clear after a failed handshake belongs to the same session.

mod count;
mod record;
mod report;
mod result;
#[cfg(test)]
mod tests;

pub use count::{Counts, DETAILS_MAX, DomainCount, POLICIES_MAX, PolicyCount, SessionCounter};
pub use record::{DESTINATIONS_MAX, RECORD_BYTES_MAX, RECORDS_MAX, Record, RecordError};
pub use report::tls_report;
pub use result::{AppliedPolicy, FailureDetails, PolicyType, ResultType};

/// The name of the TXT record.
pub fn record_name(domain: &str) -> String {
    format!("_smtp._tls.{domain}")
}
