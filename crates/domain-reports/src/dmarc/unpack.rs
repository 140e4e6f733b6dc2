//! Finds reports in files and messages: XML, gzip, a zip archive, or a whole message with one of them.
//!
//! Promise: compressed data gives at most [`XML_BYTES_MAX`] octets for each report, and for all files of an archive
//! together; archives are not nested. A message's attachments are kept up to [`ATTACHMENT_BYTES_MAX`] in all.
//!
//! Failure: one invalid report fails the whole file or message.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use rawzip::{CompressionMethod, ZipArchive};
use stentor_mime::walk::{Part, Visitor, Walker};

use super::read::{ReportError, XML_BYTES_MAX, read_xml};
use super::report::AggregateReport;

/// Maximum octets of a message's attachments.
pub const ATTACHMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum files examined in an archive, and attachments of a message.
const FILES_MAX: usize = 16;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads all reports in a file or message.
///
/// # Errors
/// There is no report in it, or one is invalid.
pub fn read_reports(octets: &[u8]) -> Result<Vec<AggregateReport>, ReportError> {
    if let Some(found) = read_file(octets) {
        return found;
    }
    let mut attachments = Attachments::default();
    let mut walker = Walker::new();
    walker.push(octets, &mut attachments);
    walker.finish(&mut attachments);
    if attachments.is_over {
        return Err(ReportError::Size);
    }
    let files = attachments.files.iter().filter_map(|file| read_file(&file.octets));
    let reports = files.collect::<Result<Vec<_>, _>>()?.concat();
    if reports.is_empty() { Err(ReportError::Absent) } else { Ok(reports) }
}

/// Reads a file; `None`: it is neither XML nor compressed.
fn read_file(octets: &[u8]) -> Option<Result<Vec<AggregateReport>, ReportError>> {
    match octets {
        [0x1f, 0x8b, ..] => Some(read_xml(MultiGzDecoder::new(octets)).map(|report| vec![report])),
        [b'P', b'K', 3, 4, ..] => Some(read_zip(octets)),
        _ => {
            let text = octets.strip_prefix(BYTE_ORDER_MARK).unwrap_or(octets);
            (text.trim_ascii_start().first() == Some(&b'<')).then(|| read_xml(text).map(|report| vec![report]))
        }
    }
}

fn read_zip(octets: &[u8]) -> Result<Vec<AggregateReport>, ReportError> {
    let broken = |error: rawzip::Error| ReportError::Zip(error.to_string());
    let archive = ZipArchive::from_slice(octets).map_err(broken)?;
    let mut entries = archive.entries();
    let (mut reports, mut left) = (Vec::new(), XML_BYTES_MAX);
    for _ in 0..FILES_MAX {
        let Some(entry) = entries.next_entry().map_err(broken)? else { break };
        let name = entry.file_path();
        if !name.as_ref().to_ascii_lowercase().ends_with(b".xml") {
            continue;
        }
        let file = archive.get_entry(entry.wayfinder()).map_err(broken)?;
        // All files together have the limit of one.
        let mut counted = CountedInput { input: inflate(entry.compression_method(), file.data())?, left: &mut left };
        reports.push(read_xml(&mut counted)?);
    }
    if reports.is_empty() { Err(ReportError::Absent) } else { Ok(reports) }
}

fn inflate<'a>(method: CompressionMethod, octets: &'a [u8]) -> Result<Box<dyn Read + 'a>, ReportError> {
    match method {
        CompressionMethod::STORE => Ok(Box::new(octets)),
        CompressionMethod::DEFLATE => Ok(Box::new(DeflateDecoder::new(octets))),
        _ => Err(ReportError::Zip("unknown compression method".to_owned())),
    }
}

/// Fails once more octets are read than are left.
struct CountedInput<'a, R> {
    input: R,
    left: &'a mut u64,
}

impl<R: Read> Read for CountedInput<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => *self.left = left,
            None => return Err(std::io::Error::other("the files are too large in all")),
        }
        Ok(read)
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
