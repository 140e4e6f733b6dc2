//! DMARC reports that others sent about our domains: a compressed XML file each, in `data_dir/dmarc_received`.
//!
//! Promise: a report that was kept survives a power cut; one that comes again replaces itself. The folder is bounded by
//! [`FILES_MAX`] and [`FOLDER_BYTES_MAX`]; the files that came first make space. Files are complete: readers need no
//! lock. All functions block.
//!
//! Failure: an error of the file system, which the caller reports; an unreadable file is counted and skipped.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use stentor_domain_reports::dmarc::{AggregateReport, XML_BYTES_MAX, compressed_xml, read_reports};

use crate::files::{read, replace};

/// Folder in the data directory.
pub const FOLDER: &str = "dmarc_received";
/// Maximum files: a report a day from a hundred organizations for a hundred days.
pub const FILES_MAX: usize = 10_000;
/// Maximum octets of all files.
pub const FOLDER_BYTES_MAX: u64 = 256 * 1024 * 1024;
const EXTENSION: &str = "xml.gz";

/// A file of the folder.
struct KeptFile {
    changed: SystemTime,
    bytes: u64,
    entry: DirEntry,
}

/// Stores a report durably.
///
/// # Errors
/// It is not stored.
pub fn keep(data_dir: &Path, report: &AggregateReport) -> io::Result<()> {
    let folder = data_dir.join(FOLDER);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let octets = compressed_xml(report);
    make_space(&folder, octets.len() as u64)?;
    replace(&folder.join(format!("{}.{EXTENSION}", report.key())), &octets, 0o600)
}

/// Removes the oldest files until another of this size fits.
fn make_space(folder: &Path, bytes: u64) -> io::Result<()> {
    let mut files = kept_files(folder)?;
    files.sort_by_key(|file| file.changed);
    let (mut count, mut sum) = (files.len(), files.iter().map(|file| file.bytes).sum::<u64>());
    for file in files {
        if count < FILES_MAX && sum + bytes <= FOLDER_BYTES_MAX {
            break;
        }
        fs::remove_file(file.entry.path())?;
        (count, sum) = (count - 1, sum - file.bytes);
    }
    Ok(())
}

fn kept_files(folder: &Path) -> io::Result<Vec<KeptFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if entry.file_name().as_encoded_bytes().ends_with(EXTENSION.as_bytes()) {
            files.push(KeptFile { changed: metadata.modified()?, bytes: metadata.len(), entry });
        }
    }
    Ok(files)
}

/// Passes all reports that were kept; returns the number of unreadable files. Without a folder there are none.
///
/// # Errors
/// The folder cannot be read.
pub fn each_kept(data_dir: &Path, sink: &mut dyn FnMut(&AggregateReport)) -> io::Result<usize> {
    let folder = data_dir.join(FOLDER);
    let files = match kept_files(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        files => files?,
    };
    let mut unreadable = 0;
    for file in files {
        let octets = match read(&file.entry.path(), XML_BYTES_MAX) {
            // Another report has taken its space meanwhile.
            Ok(None) => continue,
            Ok(Some(octets)) => octets,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(_) => Vec::new(),
        };
        match read_reports(&octets) {
            Ok(reports) => reports.iter().for_each(&mut *sink),
            Err(_) => unreadable += 1,
        }
    }
    Ok(unreadable)
}

#[cfg(test)]
mod tests {
    use stentor_domain_reports::dmarc::PublishedPolicy;

    use super::*;

    fn report(id: &str) -> AggregateReport {
        AggregateReport {
            organization: "Receiver".to_owned(),
            id: id.to_owned(),
            begin_s: 1,
            end_s: 2,
            policy: PublishedPolicy { domain: "a.test".to_owned(), ..PublishedPolicy::default() },
            ..AggregateReport::default()
        }
    }

    #[test]
    fn a_report_that_comes_again_replaces_itself_and_damaged_files_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let ids = || {
            let mut ids = Vec::new();
            let unreadable = each_kept(folder.path(), &mut |report| ids.push(report.id.clone())).unwrap();
            ids.sort();
            (ids.join(" "), unreadable)
        };
        assert_eq!(ids(), (String::new(), 0));
        for id in ["1", "2", "1"] {
            keep(folder.path(), &report(id)).unwrap();
        }
        assert_eq!(ids(), ("1 2".to_owned(), 0));
        fs::write(folder.path().join(FOLDER).join("x.xml.gz"), "damaged").unwrap();
        assert_eq!(ids(), ("1 2".to_owned(), 1));
    }

    #[test]
    fn the_oldest_files_make_space() {
        let folder = tempfile::tempdir().unwrap();
        keep(folder.path(), &report("new")).unwrap();
        let of_folder = folder.path().join(FOLDER);
        // Sparse: only its length counts.
        let large = fs::File::create(of_folder.join("old.xml.gz")).unwrap();
        large.set_len(FOLDER_BYTES_MAX).unwrap();
        large.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        keep(folder.path(), &report("newer")).unwrap();
        assert!(!of_folder.join("old.xml.gz").exists());
        assert_eq!(kept_files(&of_folder).unwrap().len(), 2);
    }
}
