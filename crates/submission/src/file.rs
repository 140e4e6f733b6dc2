//! A submission file, checked as a whole: nothing of a damaged one has any effect.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use stentor_sendmail::format::{Check, Damage, HEAD_BYTES, Head, SubmissionEnvelope};

pub(super) const READ_BYTES: usize = 64 * 1024;
/// Write permission for anyone: the program removes it on completion.
const WRITABLE: u32 = 0o222;

/// A submission that was read completely.
pub(super) struct OpenSubmission {
    file: File,
    pub head: Head,
    pub envelope: SubmissionEnvelope,
    pub uid: u32,
}

impl OpenSubmission {
    /// Reads octets of the message.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, HEAD_BYTES as u64 + at)
    }
}

/// Opens a file and checks every octet of it; the inner error says why it is not a submission.
pub(super) fn open(path: &Path) -> io::Result<Result<OpenSubmission, String>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(Err("a symbolic link".to_owned()));
        }
        opened => opened?,
    };
    let data = file.metadata()?;
    if !data.is_file() || data.nlink() != 1 || data.mode() & WRITABLE != 0 {
        return Ok(Err(format!("not written by the sendmail program: mode {:o}, {} links", data.mode(), data.nlink())));
    }
    match whole(&file, data.len()) {
        Ok(Ok((head, envelope))) => Ok(Ok(OpenSubmission { file, head, envelope, uid: data.uid() })),
        Ok(Err(damage)) => Ok(Err(damage.to_string())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Err(Damage::Length.to_string())),
        Err(error) => Err(error),
    }
}

/// Reads a file of this length to its end.
fn whole(file: &File, length: u64) -> io::Result<Result<(Head, SubmissionEnvelope), Damage>> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, 0)?;
    let head = match Head::read(&head, length) {
        Ok(head) => head,
        Err(damage) => return Ok(Err(damage)),
    };
    let mut check = Check::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut at = 0;
    while at < head.message {
        let n = (head.message - at).min(READ_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..n], HEAD_BYTES as u64 + at)?;
        check.push(&buffer[..n]);
        at += n as u64;
    }
    let mut envelope = vec![0; head.envelope as usize];
    file.read_exact_at(&mut envelope, HEAD_BYTES as u64 + head.message)?;
    Ok(check
        .finish(&head, &envelope)
        .and_then(|()| SubmissionEnvelope::decode(&envelope))
        .map(|envelope| (head, envelope)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use stentor_sendmail::format::Recipient;

    use super::*;

    /// Creates a file as the program leaves it.
    fn file(folder: &std::path::Path, name: &str, change: impl FnOnce(&mut Vec<u8>), mode: u32) -> PathBuf {
        let recipients = vec![Recipient { address: "bob@x".to_owned(), ..Recipient::default() }];
        let envelope =
            SubmissionEnvelope { login: "ann".to_owned(), recipients, ..SubmissionEnvelope::default() }.encode();
        let (message, mut check) = (b"Subject: x\n\nhi\n", Check::default());
        check.push(message);
        let mut octets = [&check.head(&envelope)[..], message, &envelope].concat();
        change(&mut octets);
        let path = folder.join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&octets).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn why(path: &Path) -> String {
        open(path).unwrap().map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_file_is_opened_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, change: fn(&mut Vec<u8>)| file(folder.path(), name, change, 0o444);
        let good = path("good", |_| {});
        let opened = open(&good).unwrap().unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((opened.uid, opened.envelope.login.as_str()), (rustix::process::getuid().as_raw(), "ann"));
        assert!(why(&path("cut", |octets| octets.truncate(40))).contains("lengths"));
        assert!(why(&path("short", |octets| octets.truncate(10))).contains("lengths"));
        assert!(why(&path("empty", Vec::clear)).contains("lengths"));
        assert!(why(&path("changed", |octets| octets[40] ^= 1)).contains("checksum"));
        assert!(why(&path("other", |octets| octets[0] = b'x')).contains("not a submission"));
        assert!(why(&file(folder.path(), "writable", |_| {}, 0o644)).contains("not written by"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&good, &link).unwrap();
        assert!(why(&link).contains("symbolic"));
        std::fs::hard_link(&good, folder.path().join("hard")).unwrap();
        assert!(why(&good).contains("2 links"));
        assert!(why(folder.path()).contains("not written by"));
        assert!(open(&folder.path().join("none")).is_err());
    }
}
