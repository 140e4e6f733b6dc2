//! TLSRPT (RFC 8460): domains that ask for it hear once a day how TLS to their hosts went.
//!
//! The record is parsed here ([`Record`]), sessions are counted ([`Counts`]) and reports made ([`Report`]); look-ups, files, mail
//! and HTTPS are the caller's. Counted are sessions, not messages: an attempt in clear after a failed handshake is part of the same.

mod count;
mod record;
mod report;
mod result;
#[cfg(test)]
mod tests;

pub use count::{
    Counts, CountsError, DAY_MS, DETAILS_MAX, DOMAINS_MAX, DomainCount, OCTETS_MAX, POLICIES_MAX, PolicyCount, day_of,
};
pub use record::{PLACES_MAX, Place, RECORD_BYTES_MAX, RECORDS_MAX, Record, RecordError};
pub use report::{MEDIA_TYPE, Report, Submitter, delay_ms};
pub use result::{AppliedPolicy, Failure, PolicyType, ResultType};

/// The name of the TXT record.
pub fn record_name(domain: &str) -> String {
    format!("_smtp._tls.{domain}")
}
