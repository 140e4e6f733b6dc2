//! Destinations of lines: a stream, a rotated file, syslog, journald.
//!
//! Failure: a failed write is reported on stderr once per series of failures, and counted by the caller. A file that
//! cannot be rotated or reopened stays in use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use stentor_records::record::Ms;

use super::lost::{Lost, count_lines};
use super::socket::Socket;
use crate::settings::{LogTarget, Rotation};

/// An opened target of a log.
pub struct Sink {
    to: To,
    /// Whether the last write failed; complaints go to stderr once for each series of failures.
    failing: bool,
    /// Why the last write failed, or why a file cannot be reopened.
    trouble: Option<String>,
    /// Whether the last write ended within a line.
    torn: bool,
}

enum To {
    Stderr,
    Stdout,
    File(LogFile),
    Socket(Socket),
}

struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    handle: File,
    bytes: u64,
    begun: Ms,
}

impl Sink {
    /// Opens a target; `None` for [`LogTarget::Off`].
    pub fn open(target: &LogTarget, rotation: Rotation, now: Ms) -> io::Result<Option<Sink>> {
        let to = match target {
            LogTarget::Off => return Ok(None),
            LogTarget::Stderr => To::Stderr,
            LogTarget::Stdout => To::Stdout,
            LogTarget::File(path) => To::File(LogFile::open(path, rotation, now)?),
            // A daemon that is not running yet must not prevent the start.
            LogTarget::Syslog(to) => To::Socket(Socket::syslog(to.clone())),
            LogTarget::Journald(path) => To::Socket(Socket::journald(path.clone())),
        };
        Ok(Some(Sink { to, failing: false, trouble: None, torn: false }))
    }

    /// Reopens a file by its name after another program renamed it; on failure, keeps the old one.
    pub fn reopen(&mut self, now: Ms) {
        match &mut self.to {
            To::File(file) => match LogFile::open(&file.path, file.rotation, now) {
                Ok(new) => {
                    *file = new;
                    (self.torn, self.trouble) = (false, None);
                }
                Err(error) => {
                    complain(&format!("cannot reopen the log {}: {error}", file.path.display()));
                    self.trouble = Some(format!("cannot reopen it: {error}"));
                }
            },
            To::Socket(socket) => socket.close(),
            To::Stderr | To::Stdout => {}
        }
    }

    /// Why lines do not reach their destination; `None`: they do.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Writes whole lines. Returns how many were lost.
    pub fn write(&mut self, bytes: &[u8], now: Ms) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        let torn = &mut self.torn;
        let result = match &mut self.to {
            To::Stderr => write_lines(&mut io::stderr().lock(), bytes, torn),
            To::Stdout => write_lines(&mut io::stdout().lock(), bytes, torn),
            To::File(file) => {
                if file.is_due(bytes.len() as u64, now) {
                    file.rotate(now);
                }
                file.bytes += bytes.len() as u64;
                write_lines(&mut file.handle, bytes, torn)
            }
            To::Socket(socket) => socket.send(bytes),
        };
        let failing = std::mem::replace(&mut self.failing, result.is_err());
        match result {
            Ok(()) => {
                // A file that could not be reopened is written under its other name until it can be.
                if failing {
                    self.trouble = None;
                }
                0
            }
            Err((error, lines)) => {
                self.trouble = Some(error.to_string());
                if !failing {
                    complain(&format!("cannot write the log, lines are lost: {error}"));
                }
                lines
            }
        }
    }
}

impl LogFile {
    fn open(path: &Path, rotation: Rotation, now: Ms) -> io::Result<LogFile> {
        let handle = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        let metadata = handle.metadata()?;
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let begun = born.map_or(now, |born| born.as_millis() as Ms).min(now);
        Ok(LogFile { path: path.to_owned(), rotation, handle, bytes: metadata.len(), begun })
    }

    fn is_due(&self, more: u64, now: Ms) -> bool {
        let Rotation { bytes_max, age_ms_max, .. } = self.rotation;
        let by_size = bytes_max > 0 && self.bytes + more > bytes_max;
        let by_age = age_ms_max > 0 && now.saturating_sub(self.begun) >= age_ms_max;
        self.bytes > 0 && (by_size || by_age)
    }

    /// Rotates the files: `mail.log` becomes `mail.log.1`, that one `.2`, and so on; the last one is overwritten.
    fn rotate(&mut self, now: Ms) {
        // Wait for the full interval before the next rotation, even if this one fails.
        (self.begun, self.bytes) = (now, 0);
        let aside = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let renamed = if self.rotation.keep == 0 {
            fs::remove_file(&self.path)
        } else {
            for number in (1..self.rotation.keep).rev() {
                // The file may not exist yet.
                let _ = fs::rename(aside(number), aside(number + 1));
            }
            fs::rename(&self.path, aside(1))
        };
        let opened = renamed.and_then(|()| LogFile::open(&self.path, self.rotation, now));
        match opened {
            Ok(file) => *self = LogFile { begun: now, ..file },
            Err(error) => complain(&format!("cannot rotate the log {}: {error}", self.path.display())),
        }
    }
}

/// Writes all of `bytes`; `torn` is kept between calls, so that a half-written line is ended before the next begins.
fn write_lines(to: &mut dyn Write, bytes: &[u8], torn: &mut bool) -> Result<(), Lost> {
    let write = |to: &mut dyn Write, torn: &mut bool| {
        if *torn {
            to.write_all(b"\n")?;
            *torn = false;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    *torn = rest[n - 1] != b'\n';
                    rest = &rest[n..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        to.flush()
    };
    write(to, torn).map_err(|error| (error, count_lines(bytes)))
}

/// Reports on stderr, the last resort; if even that is closed, the text is lost.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "stentor: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts `left` bytes, then fails.
    struct Small {
        taken: Vec<u8>,
        left: usize,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.left);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.left -= n;
            self.taken.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let mut torn = false;
        let mut small = Small { taken: Vec::new(), left: 7 };
        assert!(write_lines(&mut small, b"one\ntwo\n", &mut torn).is_err());
        assert!(torn);
        small.left = 100;
        write_lines(&mut small, b"three\n", &mut torn).unwrap();
        assert_eq!(small.taken, b"one\ntwo\nthree\n");
        assert!(!torn);
    }

    #[test]
    fn a_file_is_put_aside_by_size_and_age_and_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mail.log");
        let rotation = Rotation { bytes_max: 10, age_ms_max: 1_000, keep: 2 };
        let far = 9_000_000_000_000;
        let mut file = Sink::open(&LogTarget::File(path.clone()), rotation, far).unwrap().unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        // Created long before that time: rotation by age, but an empty file stays.
        for line in ["1 line\n", "2 line\n", "3 line\n"] {
            assert_eq!(file.write(line.as_bytes(), far), 0);
        }
        assert_eq!(
            (read("mail.log"), read("mail.log.1"), read("mail.log.2")),
            ("3 line\n".into(), "2 line\n".into(), "1 line\n".into())
        );
        file.write(b"4\n", far);
        assert_eq!(read("mail.log"), "3 line\n4\n");
        file.write(b"5\n", far + 1_000);
        assert_eq!((read("mail.log"), read("mail.log.2")), ("5\n".into(), "2 line\n".into()));
        assert!(!dir.path().join("mail.log.3").exists());
        // A directory is in the way: the old file stays in use.
        fs::rename(&path, dir.path().join("away")).unwrap();
        assert_eq!(file.write(b"1234567890\n", far + 1_000), 0);
        assert_eq!(read("away"), "5\n1234567890\n");
    }
}
