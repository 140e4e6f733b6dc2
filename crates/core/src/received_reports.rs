//! DMARC reports that others sent about our domains: a compressed XML file each, in `data_dir/dmarc_received`.
//!
//! Promise: a report that was kept survives a power cut; a report received again replaces its file. The folder is
//! bounded by [`FILES_MAX`] and [`FOLDER_BYTES_MAX`]; the oldest files of the reporter with most are removed first.
//! Files are complete: readers need no lock. All functions block.
//!
//! Failure: an error of the file system, which the caller reports; an unreadable file is counted and skipped.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stentor_config::Config;
use stentor_domain_reports::dmarc::{AggregateReport, XML_BYTES_MAX, compressed_xml, read_reports};
use stentor_domain_reports::likely_organization;
use stentor_mail::address::Address;
use stentor_mail::domain::is_at_or_below;

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
    path: PathBuf,
}

impl KeptFile {
    /// Hash of who sent it, the beginning of its name.
    fn reporter(&self) -> &[u8] {
        let name = self.path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
        name.split(|octet| *octet == b'-').next().unwrap_or_default()
    }
}

/// What became of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptReport {
    New,
    /// It replaced the same report.
    Repeated,
    TooLarge,
}

/// The folder, while the reports of a message are stored: it is listed once.
pub struct ReportFolder {
    path: PathBuf,
    files: Vec<KeptFile>,
}

impl ReportFolder {
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open(data_dir: &Path) -> io::Result<ReportFolder> {
        let path = data_dir.join(FOLDER);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let files = kept_files(&path)?;
        Ok(ReportFolder { path, files })
    }

    /// Stores a report durably. `reporter`: who sent it, as far as that is known.
    ///
    /// # Errors
    /// It is not stored.
    pub fn keep(&mut self, reporter: &str, report: &AggregateReport) -> io::Result<KeptReport> {
        let Some(octets) = compressed_xml(report) else { return Ok(KeptReport::TooLarge) };
        let path = self.path.join(format!("{}.{EXTENSION}", report.key(reporter)));
        let before = self.files.len();
        self.files.retain(|file| file.path != path);
        let is_repeated = self.files.len() < before;
        let bytes = octets.len() as u64;
        self.make_space(bytes)?;
        replace(&path, &octets, 0o600)?;
        self.files.push(KeptFile { changed: SystemTime::now(), bytes, path });
        Ok(if is_repeated { KeptReport::Repeated } else { KeptReport::New })
    }

    /// Removes the oldest file of whoever has most, until another of this size fits: one who floods the folder makes
    /// space for its own.
    fn make_space(&mut self, bytes: u64) -> io::Result<()> {
        loop {
            let is_crowded = self.files.len() >= FILES_MAX;
            if !is_crowded && self.files.iter().map(|file| file.bytes).sum::<u64>() + bytes <= FOLDER_BYTES_MAX {
                return Ok(());
            }
            let mut shares: HashMap<&[u8], u64> = HashMap::new();
            for file in &self.files {
                *shares.entry(file.reporter()).or_default() += if is_crowded { 1 } else { file.bytes };
            }
            let first = |file: &&KeptFile| (Reverse(shares[file.reporter()]), file.changed);
            let Some(removed) = self.files.iter().min_by_key(first).map(|file| file.path.clone()) else {
                return Ok(());
            };
            match fs::remove_file(&removed) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.files.retain(|file| file.path != removed),
            }
        }
    }
}

fn kept_files(folder: &Path) -> io::Result<Vec<KeptFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().ends_with(EXTENSION.as_bytes()) {
            continue;
        }
        match entry.metadata() {
            // It has made space meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => {
                let metadata = metadata?;
                files.push(KeptFile { changed: metadata.modified()?, bytes: metadata.len(), path: entry.path() });
            }
        }
    }
    Ok(files)
}

/// Whether reports about a domain are about ours: it is one that the configuration names, or below it, or above it in
/// the same organization.
pub fn is_own_domain(config: &Config, domain: &str) -> bool {
    let is_related = |own: &str| {
        is_at_or_below(domain, own) || (is_at_or_below(own, domain) && is_at_or_below(domain, likely_organization(own)))
    };
    let address = config.dmarc_reports.address.iter().map(Address::domain);
    let senders = config.sending.senders.iter().map(|(domain, _)| domain.as_str());
    // A pattern of subdomains begins with a dot.
    let relayed = config.rules.relay_domains.patterns();
    let relayed = relayed.iter().map(|pattern| pattern.trim_start_matches('.'));
    let mut all = (config.rules.own_domains())
        .chain(relayed)
        .chain(config.dkim.iter().map(|signing| signing.domain.as_str()))
        .chain(senders)
        .chain(address);
    all.any(is_related)
}

/// Returns when the folder last changed; none without a folder.
///
/// # Errors
/// The folder cannot be read.
pub fn folder_modified_at(data_dir: &Path) -> io::Result<Option<SystemTime>> {
    match fs::metadata(data_dir.join(FOLDER)).and_then(|found| found.modified()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        modified => modified.map(Some),
    }
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
        let octets = match read(&file.path, XML_BYTES_MAX) {
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
    use std::time::Duration;

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
        assert_eq!(folder_modified_at(folder.path()).unwrap(), None);
        let mut kept = ReportFolder::open(folder.path()).unwrap();
        let path = folder.path().join(FOLDER);
        fs::File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        for id in ["1", "2", "1"] {
            assert_ne!(kept.keep("a.test", &report(id)).unwrap(), KeptReport::TooLarge);
        }
        assert_eq!(kept.files.len(), 2);
        assert!(folder_modified_at(folder.path()).unwrap().unwrap() > SystemTime::UNIX_EPOCH);
        assert_eq!(ids(), ("1 2".to_owned(), 0));
        fs::write(folder.path().join(FOLDER).join("x.xml.gz"), "damaged").unwrap();
        assert_eq!(ids(), ("1 2".to_owned(), 1));
    }

    #[test]
    fn who_fills_the_folder_makes_space() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = ReportFolder::open(folder.path()).unwrap();
        let of_folder = folder.path().join(FOLDER);
        let file = |name: &str, bytes, changed| {
            let file = fs::File::create(of_folder.join(name)).unwrap();
            // Sparse: only its length counts.
            file.set_len(bytes).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(changed)).unwrap();
        };
        kept.keep("small.test", &report("1")).unwrap();
        file("flood-1.xml.gz", FOLDER_BYTES_MAX / 2, 9);
        file("flood-2.xml.gz", FOLDER_BYTES_MAX / 2, 8);
        file("old-1.xml.gz", 1, 1);
        let mut kept = ReportFolder::open(folder.path()).unwrap();
        kept.keep("small.test", &report("2")).unwrap();
        let is_there = |name: &str| of_folder.join(name).exists();
        assert!(is_there("flood-1.xml.gz") && !is_there("flood-2.xml.gz") && is_there("old-1.xml.gz"));
        assert_eq!(kept.files.len(), 4);
        for number in kept.files.len()..FILES_MAX {
            let path = of_folder.join(format!("many-{number}"));
            kept.files.push(KeptFile { changed: SystemTime::now(), bytes: 0, path });
        }
        // A file that is gone is no failure.
        kept.keep("small.test", &report("3")).unwrap();
        assert_eq!(kept.files.iter().filter(|file| file.reporter() == b"many").count(), FILES_MAX - 5);
        assert!(is_there("flood-1.xml.gz") && is_there("old-1.xml.gz"));
    }
}
