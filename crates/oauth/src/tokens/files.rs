//! The files of a grant: the client's secret, and the refresh token, which is replaced when the endpoint rotates it.
//! All calls block.
//!
//! Promise: the file of a refresh token stays locked from reading to replacement, so that several processes (`stentor
//! tls check`) and smart hosts use a token one at a time, and each uses the newest. It is replaced whole and durably,
//! with its mode, owner and further lines; a symbolic link is kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use stentor_sasl::Secret;
use stentor_sasl::limits::TOKEN_BYTES_MAX;
use stentor_users::replace;
use zeroize::Zeroizing;

/// Maximum octets of a file: a token, and the operator's notes after it.
const FILE_BYTES_MAX: usize = 4 * TOKEN_BYTES_MAX;
/// Interval of checks whether another user of a file has finished.
const LOCK_LOOK: Duration = Duration::from_millis(50);

/// Identifies an unchanged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: (u64, u64),
    size: u64,
    /// Seconds and nanoseconds of the inode's change time, which a `chmod` also changes.
    changed: (i64, i64),
}

/// The file's stamp; `None` if it cannot be read.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some(Stamp { inode: (data.dev(), data.ino()), size: data.size(), changed: (data.ctime(), data.ctime_nsec()) })
}

/// A file that was read, and locked if it will be written.
pub(super) struct TokenFile {
    /// The path with symbolic links resolved.
    path: PathBuf,
    /// The open file, which holds the lock.
    file: File,
    pub line: Secret,
    /// Everything after the first line, with its line end.
    rest: Zeroizing<Vec<u8>>,
}

/// Reads a file without a lock.
pub(super) fn read(path: &Path) -> Result<Secret, String> {
    let failed = |error| unreadable(path, &error);
    let (line, _) = contents(path, &open_file(path).map_err(failed)?)?;
    Ok(line)
}

/// Locks and reads a file; waits until `until` for another holder of the lock.
pub(super) fn open(path: &Path, until: Instant) -> Result<TokenFile, String> {
    let failed = |error| unreadable(path, &error);
    let real = fs::canonicalize(path).map_err(failed)?;
    loop {
        let file = open_file(&real).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(LOCK_LOOK);
                continue;
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(format!("{} is locked: another process is refreshing the token", path.display()));
            }
            // The file system has no locks.
            Ok(()) | Err(_) => {}
        }
        // The previous holder of the lock may have replaced the file.
        let (is, named) = (file.metadata().map_err(failed)?, fs::metadata(&real).map_err(failed)?);
        if (is.dev(), is.ino()) == (named.dev(), named.ino()) {
            let (line, rest) = contents(path, &file)?;
            return Ok(TokenFile { path: real, file, line, rest });
        }
    }
}

/// Opens a file without waiting: a pipe that nobody writes to would block all logins.
fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

impl TokenFile {
    /// Whether the file could be replaced, as far as that can be known beforehand.
    pub fn can_be_replaced(&self) -> io::Result<()> {
        let mut beside = self.path.as_os_str().to_owned();
        beside.push(".try");
        let beside = PathBuf::from(beside);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        fs::remove_file(&beside)
    }

    /// Replaces the first line.
    pub fn replace(&self, line: &Secret) -> io::Result<()> {
        let line = line.expose().as_bytes();
        let mut octets = Zeroizing::new(Vec::with_capacity(line.len() + 1 + self.rest.len()));
        octets.extend_from_slice(line);
        octets.push(b'\n');
        octets.extend_from_slice(&self.rest);
        replace(&self.path, &octets, &self.file, self.file.metadata()?.mode() & 0o777)
    }
}

fn contents(path: &Path, file: &File) -> Result<(Secret, Zeroizing<Vec<u8>>), String> {
    let shown = path.display();
    // Large enough never to grow, which would leave a copy behind.
    let mut octets = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 64));
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut octets).map_err(|error| unreadable(path, &error))?;
    if octets.len() > FILE_BYTES_MAX {
        return Err(format!("{shown} is longer than {FILE_BYTES_MAX} octets"));
    }
    let end = octets.iter().position(|&b| b == b'\n').unwrap_or(octets.len());
    let rest = Zeroizing::new(octets.get(end + 1..).unwrap_or_default().to_vec());
    let line = octets[..end].trim_ascii();
    if line.is_empty() {
        return Err(format!("the first line of {shown} is empty"));
    }
    if line.len() > TOKEN_BYTES_MAX {
        return Err(format!("the first line of {shown} is longer than {TOKEN_BYTES_MAX} octets"));
    }
    let line = Secret::from_utf8(line).ok_or_else(|| format!("the first line of {shown} is not UTF-8"))?;
    Ok((line, rest))
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn the_first_line_is_replaced_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("token"), folder.path().join("link"));
        fs::write(&path, "old \r\n# of ann, 2026\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("token", &link).unwrap();
        let before = stamp(&link);
        let opened = open(&link, soon()).unwrap();
        assert_eq!(opened.line.expose(), "old");
        opened.replace(&Secret::from("new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n# of ann, 2026\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && before.is_some() && stamp(&link) != before);
        assert_eq!(read(&link).unwrap().expose(), "new");
        // A late user waits for the lock, finds that the file was replaced, and reads the new one.
        let late = std::thread::spawn(move || open(&link, soon()).map(|opened| opened.line.expose().to_owned()));
        drop(opened);
        assert_eq!(late.join().unwrap().as_deref(), Ok("new"));
    }

    #[test]
    fn one_at_a_time_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "old").unwrap();
        let opened = open(&path, soon()).unwrap();
        let error = open(&path, Instant::now()).err().unwrap();
        assert!(error.contains("another process is refreshing"), "{error}");
        drop(opened);
        assert!(open(&path, Instant::now()).is_ok());
    }

    #[test]
    fn files_that_hold_no_token_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let error = || open(&path, soon()).err().unwrap();
        assert!(error().contains("token: No such file"), "{}", error());
        for (octets, why) in [
            (&b""[..], "is empty"),
            (b"  \nx", "is empty"),
            (b"\xff\n", "is not UTF-8"),
            (&[b'x'; TOKEN_BYTES_MAX + 1], "is longer than 8192 octets"),
            (&vec![b'\n'; FILE_BYTES_MAX + 1][..], "is longer than 32768 octets"),
        ] {
            fs::write(&path, octets).unwrap();
            assert!(error().contains(why), "{}", error());
        }
    }
}
