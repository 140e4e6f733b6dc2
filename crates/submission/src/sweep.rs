//! Reads the folder in parts, and keeps the names that can be tried now: the oldest of each user.
//!
//! Promise: a look continues where the last one ended, and a sweep reaches every name, so that one user's files never
//! hide another's. Names that wait for their next try are counted, not kept. Memory is bounded whatever the folder
//! holds: [`Limits::kept`] names, shared evenly by the users seen. A later sweep finds names beyond a user's share.
//!
//! The file alone determines when a deferred name may be tried again: its rename changed the inode (ctime), and its
//! name contains the time of submission. So nothing has to be remembered, and a restart causes no earlier try.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::folder::{Folder, Name, WaitingSubmission};

/// Pause between tries of a submission: a part of the time that it has waited, within these bounds.
const RETRY_MIN: Duration = Duration::from_secs(15);
const RETRY_MAX: Duration = Duration::from_mins(15);
const RETRY_PART: u32 = 4;
/// Age at which an unfinished file is removed: its program was killed.
const UNFINISHED_MAX: Duration = Duration::from_hours(24);

/// Limits of a [`FolderSweep`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Names read per look.
    pub read: usize,
    /// Names kept, of all users.
    pub kept: usize,
    /// Names kept of one user.
    pub kept_of_user: usize,
}

pub const LIMITS: Limits = Limits { read: 100_000, kept: 65_536, kept_of_user: 1_024 };

/// Results of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Complete submissions, including deferred ones.
    pub submissions: u64,
    pub deferred: u64,
    /// When the oldest was begun.
    pub oldest: Option<SystemTime>,
    /// When the next deferred one may be tried.
    pub next: Option<SystemTime>,
}

/// A sweep over the folder in parts; see the module documentation.
#[derive(Debug)]
pub struct FolderSweep {
    limits: Limits,
    /// Position of the sweep; `None`: it has reached the end.
    reading: Option<fs::ReadDir>,
    /// Results so far.
    seen: SweepResult,
    /// Names that can be tried, by user; never tried ones first, then by age.
    users: BTreeMap<u32, BTreeSet<Name>>,
    kept: usize,
}

impl FolderSweep {
    pub fn new(limits: Limits) -> FolderSweep {
        FolderSweep { limits, reading: None, seen: SweepResult::default(), users: BTreeMap::new(), kept: 0 }
    }

    /// Continues the sweep, or begins one. Unfinished files of killed programs are removed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn go_on(&mut self, folder: &Folder, now: SystemTime) -> io::Result<()> {
        let mut reading = if let Some(reading) = self.reading.take() {
            reading
        } else {
            self.seen = SweepResult::default();
            folder.read()?
        };
        for _ in 0..self.limits.read {
            let Some(entry) = reading.next() else { return Ok(()) };
            self.see(&entry?, now)?;
        }
        self.reading = Some(reading);
        Ok(())
    }

    fn see(&mut self, entry: &DirEntry, now: SystemTime) -> io::Result<()> {
        let file_name = entry.file_name();
        let Some(name) = Name::parse(&file_name) else {
            if Folder::is_unfinished(&file_name) {
                sweep(entry, now);
            }
            return Ok(());
        };
        let data = match entry.metadata() {
            // Taken since the name was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            data => data?,
        };
        let submitted = name.submitted();
        self.seen.submissions += 1;
        self.seen.oldest = self.seen.oldest.into_iter().chain(submitted).min();
        if name.is_deferred {
            self.seen.deferred += 1;
            if let Some(at) = next_try(submitted, &data).filter(|at| *at > now) {
                self.seen.next = self.seen.next.into_iter().chain([at]).min();
                return Ok(());
            }
        }
        self.keep(data.uid(), name);
        Ok(())
    }

    fn keep(&mut self, uid: u32, name: Name) {
        if !self.users.contains_key(&uid) && self.users.len() == self.limits.kept {
            return;
        }
        let names = self.users.entry(uid).or_default();
        self.kept += usize::from(names.insert(name));
        let share = (self.limits.kept / self.users.len()).clamp(1, self.limits.kept_of_user);
        // Shares shrink as users are added.
        let all = if self.kept > self.limits.kept { 0..=u32::MAX } else { uid..=uid };
        for (_, names) in self.users.range_mut(all) {
            while names.len() > share {
                names.pop_last();
                self.kept -= 1;
            }
        }
    }

    /// Takes the oldest name of each user, then the second of each, and so on; none of busy users.
    pub fn take(&mut self, max: usize, is_busy: impl Fn(u32) -> bool) -> Vec<WaitingSubmission> {
        let users = self.users.iter().filter(|(uid, _)| !is_busy(**uid));
        let names = users.flat_map(|(uid, names)| names.iter().take(max).enumerate().map(move |n| (uid, n)));
        let mut ranked: Vec<(usize, &Name, u32)> = names.map(|(uid, (rank, name))| (rank, name, *uid)).collect();
        ranked.sort_by(|a, b| (a.0, &a.1.stem).cmp(&(b.0, &b.1.stem)));
        ranked.truncate(max);
        let chosen: Vec<WaitingSubmission> =
            ranked.into_iter().map(|(_, name, uid)| WaitingSubmission { name: name.clone(), uid }).collect();
        for file in &chosen {
            if let Some(names) = self.users.get_mut(&file.uid) {
                self.kept -= usize::from(names.remove(&file.name));
                if names.is_empty() {
                    self.users.remove(&file.uid);
                }
            }
        }
        chosen
    }

    /// Returns the results of the sweep if it has reached the end.
    pub fn seen(&self) -> Option<SweepResult> {
        self.reading.is_none().then_some(self.seen)
    }
}

/// Returns when a deferred submission may be tried again.
fn next_try(submitted: Option<SystemTime>, data: &Metadata) -> Option<SystemTime> {
    let (seconds, part) = (u64::try_from(data.ctime()).ok()?, u32::try_from(data.ctime_nsec()).ok()?);
    let tried = UNIX_EPOCH + Duration::new(seconds, part);
    let waited = submitted.and_then(|at| tried.duration_since(at).ok()).unwrap_or_default();
    Some(tried + (waited / RETRY_PART).clamp(RETRY_MIN, RETRY_MAX))
}

fn sweep(entry: &DirEntry, now: SystemTime) {
    let age = entry.metadata().and_then(|data| data.modified()).ok();
    let age = age.and_then(|at| now.duration_since(at).ok());
    if age.is_some_and(|age| age > UNFINISHED_MAX) {
        let _ = fs::remove_file(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn name(stem: &str) -> Name {
        Name { is_deferred: false, stem: stem.to_owned() }
    }

    fn stems(chosen: &[WaitingSubmission]) -> Vec<&str> {
        chosen.iter().map(|file| &*file.name.stem).collect()
    }

    #[test]
    fn users_take_turns() {
        let mut sweep = FolderSweep::new(LIMITS);
        for (stem, uid) in [("3", 1), ("1", 1), ("2", 1), ("5", 2), ("4", 2), ("6", 3)] {
            sweep.keep(uid, name(stem));
        }
        assert_eq!(stems(&sweep.take(5, |uid| uid != 3)), ["6"]);
        sweep.keep(3, name("6"));
        assert_eq!(stems(&sweep.take(5, |_| false)), ["1", "4", "6", "2", "5"]);
        assert_eq!(stems(&sweep.take(5, |_| false)), ["3"]);
        assert!(sweep.take(4, |_| false).is_empty() && sweep.kept == 0 && sweep.users.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded_and_shared() {
        let mut sweep = FolderSweep::new(Limits { read: 9, kept: 12, kept_of_user: 8 });
        for n in 10..90 {
            sweep.keep(1, name(&n.to_string()));
        }
        assert_eq!((sweep.kept, sweep.users[&1].len()), (8, 8));
        for uid in 2..=3 {
            for n in 10..30 {
                sweep.keep(uid, name(&n.to_string()));
            }
        }
        assert!((1..=3).all(|uid| sweep.users[&uid].len() == 4), "{sweep:?}");
        for uid in 4..100 {
            sweep.keep(uid, name("50"));
        }
        assert_eq!((sweep.kept, sweep.users.len()), (12, 12));
        assert_eq!(stems(&sweep.take(3, |_| false)), ["10", "10", "10"], "the oldest of each is kept");
    }

    /// One user's deferred files, far more than a look reads or keeps, hide no other user's.
    #[test]
    fn deferred_files_hide_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("submission");
        let folder = Folder::prepare(&path, "").unwrap();
        for n in 0..200 {
            File::create(path.join(format!("deferred-{n:014x}-1"))).unwrap();
        }
        for n in 0..10 {
            File::create(path.join(format!("mail-0000000000f00{n}-2"))).unwrap();
        }
        let mut sweep = FolderSweep::new(Limits { read: 16, kept: 4, kept_of_user: 4 });
        let (now, mut found) = (SystemTime::now(), BTreeSet::new());
        let mut looks = 0;
        while found.len() < 10 {
            sweep.go_on(&folder, now).unwrap();
            for file in sweep.take(256, |_| false) {
                assert!(!file.name.is_deferred);
                std::fs::remove_file(path.join(format!("mail-{}", file.name.stem))).unwrap();
                found.insert(file.name.stem);
            }
            looks += 1;
            assert!(looks < 1_000, "{found:?}");
        }
        while sweep.seen().is_none() {
            sweep.go_on(&folder, now).unwrap();
        }
        sweep.go_on(&folder, now).unwrap();
        assert!(sweep.seen().is_none(), "a new sweep has begun");
        while sweep.seen().is_none() {
            sweep.go_on(&folder, now).unwrap();
        }
        let seen = sweep.seen().unwrap();
        assert_eq!((seen.submissions, seen.deferred, seen.oldest), (200, 200, Some(UNIX_EPOCH)));
        // They have waited since 1970, and were renamed a moment ago.
        let next = seen.next.unwrap().duration_since(now).unwrap();
        assert!(next <= RETRY_MAX && next + Duration::from_mins(5) > RETRY_MAX, "{next:?}");
        sweep.go_on(&folder, now + RETRY_MAX + Duration::from_mins(1)).unwrap();
        assert!(sweep.take(1, |_| false)[0].name.is_deferred);
    }

    #[test]
    fn who_was_just_submitted_is_tried_again_soon() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::prepare(&temporary.path().join("submission"), "").unwrap();
        let now = SystemTime::now();
        let at = now.duration_since(UNIX_EPOCH).unwrap().as_micros();
        File::create(temporary.path().join(format!("submission/deferred-{at:014x}-1"))).unwrap();
        let mut sweep = FolderSweep::new(LIMITS);
        let mut tried_after = |wait| {
            sweep.go_on(&folder, now + wait).unwrap();
            sweep.take(1, |_| false).len()
        };
        assert_eq!((tried_after(RETRY_MIN / 2), tried_after(RETRY_MIN * 2)), (0, 1));
    }

    #[test]
    fn unfinished_files_are_swept_when_they_are_old() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("submission");
        let folder = Folder::prepare(&path, "").unwrap();
        let file = |name: &str| File::create(path.join(name)).unwrap();
        let old = SystemTime::now() - UNFINISHED_MAX - Duration::from_mins(1);
        file("new-0a-1").set_modified(old).unwrap();
        file("mail-0a-2").set_modified(old).unwrap();
        file("new-0a-3");
        let mut sweep = FolderSweep::new(LIMITS);
        sweep.go_on(&folder, SystemTime::now()).unwrap();
        assert_eq!(stems(&sweep.take(9, |_| false)), ["0a-2"]);
        assert!(!path.join("new-0a-1").exists() && path.join("new-0a-3").exists());
    }
}
