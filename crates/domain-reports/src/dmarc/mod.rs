//! DMARC aggregate reports (RFC 9990, before it RFC 7489): those that we send, and those that others send.
//!
//! ```text
//! message evaluated --> ReportRow --> DmarcCounts (a day, by policy domain) --> dmarc_report: XML
//! octets of a file or message --> read_reports: AggregateReport --> DmarcSums --> DmarcSummary
//! ```
//!
//! Promise: a report that is read is the sender's statement; its size, depth and numbers are bounded by the limits
//! beside each reader. Failure: [`ReportError`] says what is wrong with a report; nothing of it is used then.

mod count;
mod read;
mod report;
mod summary;
mod sums;
#[cfg(test)]
mod tests;
mod unpack;
mod write;

pub use count::{DmarcCount, DmarcCounts, MessageCounter, ROWS_MAX};
pub use read::{REPORT_BYTES_MAX, REPORT_ROWS_MAX, ReportError, XML_BYTES_MAX, read_xml};
pub use report::{
    AggregateReport, DkimEntry, OverrideReason, PublishedPolicy, ReportDisposition, ReportRow, RowCount, SpfEntry,
};
pub use summary::{DmarcSummary, ReportFilter};
pub use sums::{DAY_S, DmarcSums, DomainSums, MessageSums, SOURCES_MAX, SourceSums};
pub use unpack::{ATTACHMENT_BYTES_MAX, each_report, read_reports};
pub use write::{compressed_xml, dmarc_report, write_xml};
