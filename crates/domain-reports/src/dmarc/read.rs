//! Reads a report from XML: that of RFC 9990, of RFC 7489, and of the drafts that many still send.
//!
//! Promise: one pass; a report takes at most [`REPORT_BYTES_MAX`] of memory, whatever is read: empty elements are small
//! in XML and large in memory. Entities of a document type are refused, so nothing expands. Unknown elements and those
//! of extensions are ignored.
//!
//! Failure: [`ReportError`]; nothing of the report is used.

use std::io::{BufReader, Read};
use std::net::IpAddr;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::count::octets_of;
use super::report::{
    AggregateReport, DkimEntry, OverrideReason, PublishedPolicy, ReportDisposition, ReportRow, RowCount, SpfEntry,
    is_text,
};

/// Maximum octets after decompression of all reports in a file or message.
pub const XML_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum octets of a report in memory.
pub const REPORT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum rows of one report.
pub const REPORT_ROWS_MAX: usize = 20_000;
/// Maximum depth of elements.
const DEPTH_MAX: usize = 32;
/// Octets kept of an element's text.
const TEXT_BYTES_MAX: usize = 512;
/// Maximum signatures and reasons of a row, and errors of a report.
const ITEMS_MAX: usize = 10;
/// Maximum messages of a row: sums of all rows stay far below 64 bits.
const MESSAGES_MAX: u64 = 1_000_000_000_000;

/// Why a report cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("not XML: {0}")]
    Xml(String),
    #[error("not a DMARC report: the first element is <{0}>, not <feedback>")]
    Root(String),
    #[error("it has a document type, which a report must not have")]
    DocumentType,
    #[error("elements are nested more than {DEPTH_MAX} deep")]
    Depth,
    #[error("larger than {} MiB after decompression", XML_BYTES_MAX / 1024 / 1024)]
    Size,
    #[error("its records need more than {} MiB of memory", REPORT_BYTES_MAX / 1024 / 1024)]
    Memory,
    #[error("more than {REPORT_ROWS_MAX} records")]
    Rows,
    #[error("<{0}> is missing")]
    Missing(&'static str),
    #[error("record {record}: <{element}> has the invalid value {text:?}")]
    Value { record: usize, element: &'static str, text: String },
    #[error("cannot be decompressed: {0}")]
    Compressed(String),
    #[error("the zip archive is unreadable: {0}")]
    Zip(String),
    #[error("contains no DMARC report")]
    Absent,
}

/// Reads a report.
///
/// # Errors
/// It is no report, or exceeds a limit.
pub fn read_xml(input: impl Read) -> Result<AggregateReport, ReportError> {
    read_within(input, &mut { XML_BYTES_MAX })
}

/// Reads a report of at most `left` octets, and takes its size from them.
pub(super) fn read_within(input: impl Read, left: &mut u64) -> Result<AggregateReport, ReportError> {
    // One more octet than allowed shows that there are too many.
    let mut reader = Reader::from_reader(BufReader::new(input.take(*left + 1)));
    reader.config_mut().expand_empty_elements = true;
    // Names of organizations that are not escaped.
    reader.config_mut().allow_dangling_amp = true;
    let mut parser = ReportParser::default();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let event = match reader.read_event_into(&mut buffer) {
            Ok(event) => event,
            Err(quick_xml::Error::Io(error)) => return Err(ReportError::Compressed(error.to_string())),
            Err(_) if reader.buffer_position() > *left => return Err(ReportError::Size),
            Err(error) => return Err(ReportError::Xml(error.to_string())),
        };
        match event {
            Event::Start(start) => parser.start(start.name().into_inner())?,
            Event::End(_) => parser.end()?,
            Event::Text(text) => parser.text(&text),
            Event::CData(text) => parser.text(&text),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(c)) => parser.text(c.encode_utf8(&mut [0; 4])),
                _ => parser.text(resolve_predefined_entity(&reference).unwrap_or("?")),
            },
            Event::DocType(_) => return Err(ReportError::DocumentType),
            Event::Eof => {
                *left = left.checked_sub(reader.buffer_position()).ok_or(ReportError::Size)?;
                return parser.finish();
            }
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

#[derive(Default)]
struct ReportParser {
    /// Prefix of the report's namespace, with its colon.
    prefix: String,
    /// Names of the open elements, each after a slash.
    path: String,
    /// Length of the path before each open element.
    open: Vec<usize>,
    text: String,
    report: AggregateReport,
    has_policy: bool,
    row: RowDraft,
    /// Octets of all rows.
    bytes: usize,
}

/// A row that is being read.
#[derive(Default)]
struct RowDraft {
    source: Option<IpAddr>,
    messages: Option<u64>,
    disposition: Option<ReportDisposition>,
    is_dkim_aligned: bool,
    is_spf_aligned: bool,
    reasons: Vec<OverrideReason>,
    header_from: String,
    envelope_from: Option<String>,
    dkim: Vec<DkimEntry>,
    spf: Option<SpfEntry>,
}

impl ReportParser {
    fn start(&mut self, name: &str) -> Result<(), ReportError> {
        if self.open.is_empty() {
            let (prefix, local) = name.split_at(name.find(':').map_or(0, |colon| colon + 1));
            if local != "feedback" {
                return Err(ReportError::Root(start_of(name).to_owned()));
            }
            start_of(prefix).clone_into(&mut self.prefix);
        }
        // Elements of extensions have another prefix, and keep it.
        let name = name.strip_prefix(&*self.prefix).unwrap_or(name);
        if self.open.len() == DEPTH_MAX {
            return Err(ReportError::Depth);
        }
        self.open.push(self.path.len());
        self.path.push('/');
        self.path.push_str(start_of(name));
        self.text.clear();
        match self.path.as_str() {
            "/feedback/policy_published" => self.has_policy = true,
            "/feedback/record" if self.report.rows.len() == REPORT_ROWS_MAX => return Err(ReportError::Rows),
            "/feedback/record" => self.row = RowDraft::default(),
            "/feedback/record/row/policy_evaluated/reason" => grow(&mut self.row.reasons),
            "/feedback/record/auth_results/dkim" => grow(&mut self.row.dkim),
            // The first is that of the envelope's sender; some add one for HELO.
            "/feedback/record/auth_results/spf" => _ = self.row.spf.get_or_insert_default(),
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        let free = TEXT_BYTES_MAX.saturating_sub(self.text.len());
        let start = &text[..text.floor_char_boundary(free)];
        self.text.extend(start.chars().filter(|c| is_text(*c)));
    }

    fn end(&mut self) -> Result<(), ReportError> {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match self.path.as_str() {
            "/feedback/record" => self.end_row()?,
            path if path.starts_with("/feedback/record/") => {
                let number = self.report.rows.len() + 1;
                self.row.set(&path["/feedback/record/".len()..], text, number)?;
            }
            path => self.report.set(path, text)?,
        }
        self.path.truncate(self.open.pop().unwrap_or(0));
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), ReportError> {
        let mut row = std::mem::take(&mut self.row);
        row.reasons.shrink_to_fit();
        row.dkim.shrink_to_fit();
        let source = row.source.ok_or(ReportError::Missing("source_ip"))?;
        let messages = row.messages.ok_or(ReportError::Missing("count"))?;
        let row = ReportRow {
            source,
            disposition: row.disposition.ok_or(ReportError::Missing("disposition"))?,
            is_dkim_aligned: row.is_dkim_aligned,
            is_spf_aligned: row.is_spf_aligned,
            reasons: row.reasons,
            header_from: row.header_from,
            envelope_from: row.envelope_from,
            dkim: row.dkim,
            spf: row.spf,
        };
        self.bytes += octets_of(&row);
        if self.bytes > REPORT_BYTES_MAX {
            return Err(ReportError::Memory);
        }
        self.report.rows.push(RowCount { messages, row });
        Ok(())
    }

    fn finish(self) -> Result<AggregateReport, ReportError> {
        if !self.open.is_empty() {
            return Err(ReportError::Xml("it ends within an element".to_owned()));
        }
        match () {
            () if !self.has_policy || self.report.policy.domain.is_empty() => {
                Err(ReportError::Missing("policy_published/domain"))
            }
            () if self.report.end_s == 0 => Err(ReportError::Missing("date_range")),
            () => Ok(self.report),
        }
    }
}

impl AggregateReport {
    /// Takes the text of an element outside of records.
    fn set(&mut self, path: &str, text: &str) -> Result<(), ReportError> {
        let policy: &mut PublishedPolicy = &mut self.policy;
        let word = || text.to_ascii_lowercase();
        match path {
            "/feedback/report_metadata/org_name" => text.clone_into(&mut self.organization),
            "/feedback/report_metadata/email" => text.clone_into(&mut self.email),
            "/feedback/report_metadata/report_id" => text.clone_into(&mut self.id),
            "/feedback/report_metadata/date_range/begin" => self.begin_s = number(text, "begin", 0)?,
            "/feedback/report_metadata/date_range/end" => self.end_s = number(text, "end", 0)?,
            "/feedback/report_metadata/error" if self.errors.len() < ITEMS_MAX => self.errors.push(text.to_owned()),
            "/feedback/policy_published/domain" => policy.domain = word(),
            "/feedback/policy_published/p" => policy.policy = word(),
            "/feedback/policy_published/sp" => policy.subdomains = Some(word()).filter(|word| !word.is_empty()),
            "/feedback/policy_published/np" => policy.missing_subdomains = Some(word()).filter(|word| !word.is_empty()),
            "/feedback/policy_published/adkim" => policy.is_dkim_strict = text == "s",
            "/feedback/policy_published/aspf" => policy.is_spf_strict = text == "s",
            "/feedback/policy_published/testing" => policy.is_test = text == "y",
            _ => {}
        }
        Ok(())
    }
}

impl RowDraft {
    /// Takes the text of an element in a record, the `number`th of the report.
    fn set(&mut self, path: &str, text: &str, record: usize) -> Result<(), ReportError> {
        let wrong = |element| ReportError::Value { record, element, text: start_of(text).to_owned() };
        let word = || text.to_ascii_lowercase();
        match path {
            "row/source_ip" => self.source = Some(text.parse().map_err(|_| wrong("source_ip"))?),
            "row/count" => self.messages = Some(number(text, "count", record)?),
            "row/policy_evaluated/disposition" => {
                let of = |one: &ReportDisposition| text.eq_ignore_ascii_case(one.word());
                let found = ReportDisposition::ALL.into_iter().find(of);
                // Some leave it empty for mail that passed.
                let found = found.or(text.is_empty().then_some(ReportDisposition::None));
                self.disposition = Some(found.ok_or_else(|| wrong("disposition"))?);
            }
            "row/policy_evaluated/dkim" => self.is_dkim_aligned = text.eq_ignore_ascii_case("pass"),
            "row/policy_evaluated/spf" => self.is_spf_aligned = text.eq_ignore_ascii_case("pass"),
            "identifiers/header_from" => self.header_from = word(),
            "identifiers/envelope_from" => self.envelope_from = Some(word()),
            _ => self.set_result(path, text),
        }
        Ok(())
    }

    fn set_result(&mut self, path: &str, text: &str) {
        let text = text.to_owned();
        let (reason, dkim) = (self.reasons.last_mut(), self.dkim.last_mut());
        match (path, reason, dkim, &mut self.spf) {
            ("row/policy_evaluated/reason/type", Some(reason), ..) => reason.kind = text,
            ("row/policy_evaluated/reason/comment", Some(reason), ..) => reason.comment = text,
            ("auth_results/dkim/domain", _, Some(dkim), _) => dkim.domain = text.to_ascii_lowercase(),
            ("auth_results/dkim/selector", _, Some(dkim), _) => dkim.selector = text,
            ("auth_results/dkim/result", _, Some(dkim), _) => dkim.result = text.to_ascii_lowercase(),
            ("auth_results/spf/domain", .., Some(spf)) if spf.domain.is_empty() => {
                spf.domain = text.to_ascii_lowercase();
            }
            ("auth_results/spf/result", .., Some(spf)) if spf.result.is_empty() => {
                spf.result = text.to_ascii_lowercase();
            }
            _ => {}
        }
    }
}

/// Adds an item; those beyond the limit replace the last.
fn grow<T: Default>(items: &mut Vec<T>) {
    if items.len() == ITEMS_MAX {
        items.pop();
    }
    items.push(T::default());
}

fn number(text: &str, element: &'static str, record: usize) -> Result<u64, ReportError> {
    // Some write seconds with a fraction.
    let whole = text.split('.').next().unwrap_or_default();
    let number = whole.parse().ok().filter(|number| *number <= MESSAGES_MAX);
    number.ok_or_else(|| ReportError::Value { record, element, text: start_of(text).to_owned() })
}

/// The beginning of a text for an error.
fn start_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}
