//! Finds reports in files and messages: XML, gzip, a zip archive, or a whole message with one of them.
//!
//! Promise: all reports of a file or message have at most [`XML_BYTES_MAX`] octets together, and one of them is in
//! memory at a time; archives are not nested. A message's attachments are kept up to [`ATTACHMENT_BYTES_MAX`] in all.
//!
//! Failure: one invalid report fails the rest of the file or message.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use rawzip::{CompressionMethod, ZipArchive};
use stentor_mime::walk::{Part, Visitor, Walker};

use super::read::{ReportError, XML_BYTES_MAX, read_within};
use super::report::AggregateReport;

/// Maximum octets of a message's attachments.
pub const ATTACHMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum files examined in an archive, and attachments of a message.
const FILES_MAX: usize = 16;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads all reports in a file or message, up to [`FILES_MAX`].
///
/// # Errors
/// There is no report in it, or one is invalid.
pub fn read_reports(octets: &[u8]) -> Result<Vec<AggregateReport>, ReportError> {
    let mut reports = Vec::new();
    each_report(octets, FILES_MAX, &mut |report| reports.push(report))?;
    Ok(reports)
}

/// Passes the reports in a file or message one by one; those beyond `reports_max` are not read.
///
/// # Errors
/// There is no report in it, or one is invalid; those before it have been passed.
pub fn each_report(
    octets: &[u8],
    reports_max: usize,
    sink: &mut dyn FnMut(AggregateReport),
) -> Result<(), ReportError> {
    let mut reader = FileReader { left: XML_BYTES_MAX, reports_left: reports_max, is_absent: true, sink };
    if !reader.file(octets)? {
        let mut attachments = Attachments::default();
        let mut walker = Walker::new();
        walker.push(octets, &mut attachments);
        walker.finish(&mut attachments);
        if attachments.is_over {
            return Err(ReportError::Size);
        }
        for file in attachments.files {
            reader.file(&file.octets)?;
        }
    }
    if reader.is_absent { Err(ReportError::Absent) } else { Ok(()) }
}

/// Reads the files of a message.
struct FileReader<'s> {
    /// Octets of XML that may still be read.
    left: u64,
    reports_left: usize,
    is_absent: bool,
    sink: &'s mut dyn FnMut(AggregateReport),
}

impl FileReader<'_> {
    /// Reads a file; `false`: it is neither XML nor compressed.
    fn file(&mut self, octets: &[u8]) -> Result<bool, ReportError> {
        match octets {
            [0x1f, 0x8b, ..] => self.xml(MultiGzDecoder::new(octets))?,
            [b'P', b'K', 3, 4, ..] => self.zip(octets)?,
            _ => {
                let text = octets.strip_prefix(BYTE_ORDER_MARK).unwrap_or(octets);
                if text.trim_ascii_start().first() != Some(&b'<') {
                    return Ok(false);
                }
                self.xml(text)?;
            }
        }
        Ok(true)
    }

    fn xml(&mut self, input: impl Read) -> Result<(), ReportError> {
        if let Some(left) = self.reports_left.checked_sub(1) {
            (self.sink)(read_within(input, &mut self.left)?);
            (self.reports_left, self.is_absent) = (left, false);
        }
        Ok(())
    }

    fn zip(&mut self, octets: &[u8]) -> Result<(), ReportError> {
        let broken = |error: rawzip::Error| ReportError::Zip(error.to_string());
        let archive = ZipArchive::from_slice(octets).map_err(broken)?;
        let mut entries = archive.entries();
        for _ in 0..FILES_MAX {
            let Some(entry) = entries.next_entry().map_err(broken)? else { break };
            if entry.file_path().as_ref().to_ascii_lowercase().ends_with(b".xml") {
                let file = archive.get_entry(entry.wayfinder()).map_err(broken)?;
                self.xml(inflate(entry.compression_method(), file.data())?)?;
            }
        }
        Ok(())
    }
}

fn inflate<'a>(method: CompressionMethod, octets: &'a [u8]) -> Result<Box<dyn Read + 'a>, ReportError> {
    match method {
        CompressionMethod::STORE => Ok(Box::new(octets)),
        CompressionMethod::DEFLATE => Ok(Box::new(DeflateDecoder::new(octets))),
        _ => Err(ReportError::Zip("unknown compression method".to_owned())),
    }
}

/// Decoded attachments that may be reports.
#[derive(Default)]
struct Attachments {
    files: Vec<Attachment>,
    bytes: usize,
    is_over: bool,
}

struct Attachment {
    path: Vec<u32>,
    octets: Vec<u8>,
}

impl Attachments {
    fn push(&mut self, part: &Part, octets: &[u8]) {
        if self.files.last().is_none_or(|file| file.path != part.path) {
            if self.files.len() == FILES_MAX {
                return;
            }
            self.files.push(Attachment { path: part.path.clone(), octets: Vec::new() });
        }
        self.bytes += octets.len();
        self.is_over |= self.bytes > ATTACHMENT_BYTES_MAX;
        if let Some(file) = self.files.last_mut().filter(|_| !self.is_over) {
            file.octets.extend_from_slice(octets);
        }
    }
}

impl Visitor for Attachments {
    fn text(&mut self, part: &Part, text: &str) {
        // XML as an attachment; the texts for people are none.
        if part.content_type.value.ends_with("/xml") || part.is_attachment() {
            self.push(part, text.as_bytes());
        }
    }

    fn octets(&mut self, part: &Part, octets: &[u8]) {
        self.push(part, octets);
    }
}
