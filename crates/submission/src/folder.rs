//! The folder on disk: names, renames, syncs. Nothing here looks into a submission.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stentor_core::files::replace;
use stentor_queue::ids::{MessageId, QUEUE_ID_CHARS};
use stentor_sendmail::{COMPLETE, DEFERRED, UNFINISHED};

use crate::reported_recipients::FinishedRcpts;

const TAKEN: &str = "taken-";
const REPORTED: &str = "reported-";
const BAD: &str = "bad";
/// The group may write to and search the folder, nobody else; only a file's owner can remove it.
const MODE: u32 = 0o1730;
const BAD_MODE: u32 = 0o700;
/// Longest name of a submission without its prefix.
const STEM_BYTES_MAX: usize = 64;

pub struct Folder {
    path: PathBuf,
}

/// Name of a submission: `mail-STEM`, or `deferred-STEM` if it was tried and will be tried again. Ordered: never tried
/// first, then by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub is_deferred: bool,
    /// `TIME-INODE`.
    pub stem: String,
}

impl Name {
    /// Parses a name. `None`: not a submission's.
    pub fn parse(name: &OsStr) -> Option<Name> {
        let of = |begin: &str| stem(name, begin).map(str::to_owned);
        let complete = of(COMPLETE).map(|stem| Name { is_deferred: false, stem });
        complete.or_else(|| of(DEFERRED).map(|stem| Name { is_deferred: true, stem }))
    }

    /// Returns when the program began to write it, from the microseconds since the Unix epoch in its name.
    pub fn submitted(&self) -> Option<SystemTime> {
        let time = self.stem.split('-').next()?;
        UNIX_EPOCH.checked_add(Duration::from_micros(u64::from_str_radix(time, 16).ok()?))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_deferred { DEFERRED } else { COMPLETE }, self.stem)
    }
}

/// Returns how many submissions wait in a folder, and since when, for display while no server reads it.
///
/// # Errors
/// The folder cannot be read.
pub fn waiting_in(path: &Path) -> io::Result<(u64, Option<SystemTime>)> {
    let (mut count, mut oldest) = (0, None);
    for entry in fs::read_dir(path)? {
        let Some(name) = Name::parse(&entry?.file_name()) else { continue };
        count += 1;
        oldest = [oldest, name.submitted()].into_iter().flatten().min();
    }
    Ok((count, oldest))
}

/// A submission that was not taken yet.
#[derive(Debug)]
pub struct WaitingSubmission {
    pub name: Name,
    pub uid: u32,
}

/// A submission with its queue id: `taken-ID-STEM`.
pub struct TakenSubmission {
    pub stem: String,
    pub id: MessageId,
}

impl TakenSubmission {
    fn name(&self) -> String {
        format!("{TAKEN}{}-{}", self.id, self.stem)
    }
}

/// Returns the part of a name after `begin`, if the program made the name.
fn stem<'a>(name: &'a OsStr, begin: &str) -> Option<&'a str> {
    let stem = name.to_str()?.strip_prefix(begin)?;
    let is_plain =
        (1..=STEM_BYTES_MAX).contains(&stem.len()) && stem.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_plain.then_some(stem)
}

impl Folder {
    /// Creates the folder, owned by the group if this user may set it, and `bad` in it, as far as they are missing.
    ///
    /// # Errors
    /// The folder cannot be created or read, or others than owner and group have access: users could alter submissions.
    pub fn prepare(path: &Path, group: &str) -> io::Result<Folder> {
        if !path.is_dir() {
            DirBuilder::new().mode(MODE).create(path)?;
            if let Some(gid) = gid_of(&fs::read_to_string("/etc/group").unwrap_or_default(), group) {
                std::os::unix::fs::chown(path, None, Some(gid))?;
            }
            // Independent of the umask.
            fs::set_permissions(path, Permissions::from_mode(MODE))?;
        }
        let mode = fs::metadata(path)?.mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(io::Error::other(format!("every user has access to it (mode {mode:03o}); run chmod 1730")));
        }
        match DirBuilder::new().mode(BAD_MODE).create(path.join(BAD)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Ok(Folder { path: path.to_owned() })
    }

    /// Opens an existing folder without changing it.
    pub fn at(path: &Path) -> Folder {
        Folder { path: path.to_owned() }
    }

    /// Returns its names, unordered.
    pub fn read(&self) -> io::Result<fs::ReadDir> {
        fs::read_dir(&self.path)
    }

    /// Whether this is the name of a file that a program is still writing.
    pub fn is_unfinished(name: &OsStr) -> bool {
        stem(name, UNFINISHED).is_some()
    }

    /// Returns the submissions that were taken, and neither removed nor put back.
    pub fn taken(&self) -> io::Result<Vec<TakenSubmission>> {
        let mut taken = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let parts = name.to_str().and_then(|name| name.strip_prefix(TAKEN)?.split_at_checked(QUEUE_ID_CHARS));
            let Some((id, rest)) = parts else { continue };
            let stem = rest.strip_prefix('-').and_then(|rest| stem(OsStr::new(rest), ""));
            if let (Ok(id), Some(stem)) = (id.parse(), stem) {
                taken.push(TakenSubmission { stem: stem.to_owned(), id });
            }
        }
        Ok(taken)
    }

    pub fn take(&self, name: Name, id: MessageId) -> io::Result<TakenSubmission> {
        let from = self.path.join(name.to_string());
        let taken = TakenSubmission { stem: name.stem, id };
        fs::rename(from, self.path_of(&taken))?;
        Ok(taken)
    }

    pub fn path_of(&self, taken: &TakenSubmission) -> PathBuf {
        self.path.join(taken.name())
    }

    /// Makes a taken submission available again at once.
    pub fn put_back(&self, taken: &TakenSubmission) -> io::Result<()> {
        self.untake(taken, false)
    }

    /// Makes a taken submission available later; the next look computes when.
    pub fn defer(&self, taken: &TakenSubmission) -> io::Result<()> {
        self.untake(taken, true)
    }

    fn untake(&self, taken: &TakenSubmission, is_deferred: bool) -> io::Result<()> {
        let name = Name { is_deferred, stem: taken.stem.clone() };
        fs::rename(self.path_of(taken), self.path.join(name.to_string()))
    }

    pub fn remove(&self, taken: &TakenSubmission) -> io::Result<()> {
        fs::remove_file(self.path_of(taken))
    }

    /// Moves a submission into `bad`, with the reason beside it.
    pub fn set_aside(&self, taken: &TakenSubmission, why: &str) -> io::Result<()> {
        let bad = self.path.join(BAD);
        fs::write(bad.join(format!("{}.reason", taken.stem)), format!("{why}\n"))?;
        fs::rename(self.path_of(taken), bad.join(&taken.stem))?;
        File::open(bad)?.sync_all()
    }

    /// Returns the recipients of a submission that are done.
    ///
    /// # Errors
    /// They cannot be read, or the file is damaged.
    pub fn reported(&self, stem: &str) -> io::Result<FinishedRcpts> {
        match fs::read_to_string(self.path.join(format!("{REPORTED}{stem}"))) {
            Ok(text) => FinishedRcpts::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FinishedRcpts::default()),
            Err(error) => Err(error),
        }
    }

    /// Stores them durably.
    pub fn report(&self, stem: &str, reported: &FinishedRcpts) -> io::Result<()> {
        replace(&self.path.join(format!("{REPORTED}{stem}")), reported.to_text().as_bytes(), 0o600)
    }

    /// Removes them; must be called once the removal of the submission is durable.
    pub fn forget_reported(&self, stem: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(format!("{REPORTED}{stem}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Calls `each` for every submission with stored recipients, and whether the submission is still there and not
    /// taken.
    pub fn each_reported(&self, mut each: impl FnMut(&str, bool) -> io::Result<()>) -> io::Result<()> {
        for entry in self.read()? {
            let name = entry?.file_name();
            if let Some(stem) = stem(&name, REPORTED) {
                let is_there = |is_deferred| {
                    let name = Name { is_deferred, stem: stem.to_owned() };
                    self.path.join(name.to_string()).symlink_metadata().is_ok()
                };
                each(stem, is_there(false) || is_there(true))?;
            }
        }
        Ok(())
    }

    /// Makes renames and removals durable.
    pub fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Replaces a file that the program reads.
    pub fn publish(&self, name: &str, text: &str) -> io::Result<()> {
        replace(&self.path.join(name), text.as_bytes(), 0o644)
    }
}

/// Returns a group's id, from the text of group(5).
fn gid_of(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| if fields.next() == Some(name) { fields.nth(1)?.parse().ok() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(stem: &str) -> Name {
        Name { is_deferred: false, stem: stem.to_owned() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_goes_through_its_states() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("submission");
        let folder = Folder::prepare(&path, "no such group").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, MODE);
        assert_eq!(fs::metadata(path.join(BAD)).unwrap().mode() & 0o7777, BAD_MODE);
        fs::set_permissions(&path, Permissions::from_mode(0o731)).unwrap();
        assert!(Folder::prepare(&path, "").is_err(), "a user could open a file of a known name");
        fs::set_permissions(&path, Permissions::from_mode(MODE)).unwrap();
        for name in
            ["mail-0a-1", "mail-0b-2", "mail-../x", "mail-", "new-0c-3", "settings", "taken-x-0d", "mail-0e-5.new"]
        {
            let _ = fs::write(path.join(name.replace('/', "_")), "x");
        }
        let waiting = || {
            let entries = folder.read().unwrap();
            let mut found: Vec<_> = entries.filter_map(|entry| Name::parse(&entry.unwrap().file_name())).collect();
            found.sort();
            found
        };
        assert_eq!(waiting(), [name("0a-1"), name("0b-2")]);
        let first = folder.take(name("0a-1"), MessageId(7)).unwrap();
        let second = folder.take(name("0b-2"), MessageId(8)).unwrap();
        assert!(folder.take(name("0a-1"), MessageId(9)).is_err());
        assert!(waiting().is_empty());
        let mut taken: Vec<(u64, String)> =
            folder.taken().unwrap().into_iter().map(|file| (file.id.0, file.stem)).collect();
        taken.sort();
        assert_eq!(taken, [(7, "0a-1".to_owned()), (8, "0b-2".to_owned())]);
        folder.defer(&first).unwrap();
        let first = folder.take(waiting().remove(0), MessageId(9)).unwrap();
        folder.put_back(&first).unwrap();
        folder.set_aside(&second, "why").unwrap();
        folder.sync().unwrap();
        assert!(names(&path).contains(&"mail-0a-1".to_owned()));
        assert_eq!(names(&path.join(BAD)), ["0b-2", "0b-2.reason"]);
        assert_eq!(fs::read_to_string(path.join("bad/0b-2.reason")).unwrap(), "why\n");
        folder.publish("settings", "text").unwrap();
        folder.publish("settings", "other").unwrap();
        assert_eq!(fs::read_to_string(path.join("settings")).unwrap(), "other");
    }

    #[test]
    fn who_was_reported_is_kept_as_long_as_the_submission() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::prepare(&temporary.path().join("submission"), "").unwrap();
        for name in ["mail-0a-1", "mail-0a-2"] {
            fs::write(folder.path.join(name), "x").unwrap();
        }
        assert_eq!(folder.reported("0a-1").unwrap(), FinishedRcpts::default());
        let some = FinishedRcpts { done: [3].into(), under_way: vec![(MessageId(9), vec![4])] };
        for stem in ["0a-1", "0a-2", "0a-3"] {
            folder.report(stem, &some).unwrap();
        }
        let taken = folder.take(name("0a-2"), MessageId(7)).unwrap();
        assert_eq!(folder.reported("0a-2").unwrap(), some);
        folder.defer(&taken).unwrap();
        let all = || {
            let mut all = Vec::new();
            let seen = folder.each_reported(|stem, is_there| {
                all.push((stem.to_owned(), is_there));
                Ok(())
            });
            seen.unwrap();
            all.sort();
            all
        };
        assert_eq!(all(), [("0a-1".to_owned(), true), ("0a-2".to_owned(), true), ("0a-3".to_owned(), false)]);
        folder.forget_reported("0a-3").unwrap();
        folder.forget_reported("0a-3").unwrap();
        assert_eq!(all().len(), 2);
        fs::write(folder.path.join("reported-0a-1"), "cut").unwrap();
        assert!(folder.reported("0a-1").is_err());
    }

    #[test]
    fn groups_are_looked_up_by_name() {
        let groups = "root:x:0:\nstentor-drop:x:998:\n";
        assert_eq!((gid_of(groups, "stentor-drop"), gid_of(groups, "x")), (Some(998), None));
    }
}
