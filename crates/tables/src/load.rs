//! Loads a table from bytes.

use crate::cdb::Cdb;
use crate::cidr::Cidr;
use crate::diagnostic::{FileReport, LoadReport, TableProblem};
use crate::lmdb::Lmdb;
use crate::patterns::{Dialect, Patterns};
use crate::read::{FileContent, FileReader, FileRequest, ReadError};
use crate::reference::{Format, Reference};
use crate::table::{Body, Table};
use crate::text::alias_targets::{self, Includes};
use crate::text::{aliases, makemap, postmap};

/// A table and the lines that were skipped.
#[derive(Debug)]
pub struct LoadedTable {
    pub table: Table,
    pub report: LoadReport,
}

/// Loads a table from the files that `read` returns. There is no table if the report has an error.
pub fn load(
    reference: &Reference,
    read: &mut dyn FnMut(FileRequest<'_>) -> Result<FileContent, ReadError>,
) -> Result<LoadedTable, LoadReport> {
    let mut report = LoadReport::default();
    match build(reference, read, &mut report) {
        Some(table) if !report.has_errors() => Ok(LoadedTable { table, report }),
        _ => Err(report),
    }
}

fn build(reference: &Reference, read: FileReader<'_>, report: &mut LoadReport) -> Option<Table> {
    let mut all = |tables: &[Reference], report: &mut LoadReport| {
        tables.iter().map(|table| build(table, read, report)).collect::<Option<Vec<Table>>>()
    };
    let without_file = |body| Some(Table { file: None, body, includes: Includes::new() });
    match reference {
        Reference::Inline(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            Some(Table::inline(pairs))
        }
        Reference::Static(value) => without_file(Body::Static(value.clone().into_bytes())),
        Reference::Union(tables) => without_file(Body::Union(all(tables, report)?)),
        Reference::Pipe(tables) => without_file(Body::Pipe(all(tables, report)?)),
        Reference::Socketmap(endpoint) => {
            let mut report = FileReport { file: "", report };
            report.add(0, TableProblem::Remote(endpoint.to_string()));
            None
        }
        Reference::File { format, path } => {
            let file = path.display().to_string();
            let mut report = FileReport { file: &file, report };
            let bytes_max = crate::FILE_BYTES_MAX;
            let FileContent { bytes, owner } = match read(FileRequest { path, bytes_max, reader: None }) {
                Ok(content) => content,
                Err(ReadError::TooLarge) => {
                    report.add(0, TableProblem::FileTooLarge { max: bytes_max });
                    return None;
                }
                Err(ReadError::Failed(why)) => {
                    report.add(0, TableProblem::Unreadable(why));
                    return None;
                }
            };
            let body = parse(*format, bytes, &mut report)?;
            let includes = match (&body, format) {
                (Body::Keyed(keyed), Format::Aliases) => alias_targets::check(keyed, owner, read, &mut report),
                _ => Includes::new(),
            };
            Some(Table { file: Some(file), body, includes })
        }
    }
}

fn parse(format: Format, bytes: Vec<u8>, report: &mut FileReport<'_>) -> Option<Body> {
    let opened = match format {
        Format::Postmap => Ok(Body::Keyed(postmap::read(&bytes, report))),
        Format::Makemap => Ok(Body::Makemap(makemap::read(&bytes, report))),
        Format::Aliases => Ok(Body::Keyed(aliases::read(&bytes, report))),
        Format::Regexp => Ok(Body::Patterns(Patterns::read(&bytes, Dialect::Posix, report))),
        Format::Pcre => Ok(Body::Patterns(Patterns::read(&bytes, Dialect::Pcre, report))),
        Format::Cidr => Ok(Body::Cidr(Cidr::read(&bytes, report))),
        Format::Cdb => Cdb::open(bytes).map(Body::Cdb),
        Format::Lmdb => Lmdb::open(bytes).map(Body::Lmdb),
    };
    opened.map_err(|problem| report.add(0, problem)).ok()
}
