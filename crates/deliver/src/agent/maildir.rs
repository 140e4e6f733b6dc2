//! Delivery to a Maildir: a file in `tmp`, synced, renamed into `new`, the folder synced.
//!
//! Promise: a reader sees the whole message or nothing, and on success it survives a loss of power. On any failure nothing is
//! left in `new`; the file in `tmp` is removed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::spool::Spool;

/// What makes the name of a file unique.
#[derive(Debug)]
pub struct Unique<'a> {
    pub host: &'a str,
    /// Of the delivery in this process.
    pub number: u64,
}

/// Delivers one message.
pub fn deliver(folder: &Path, create: bool, fields: &str, spool: &mut Spool, unique: &Unique<'_>) -> io::Result<()> {
    let (tmp, new) = (folder.join("tmp"), folder.join("new"));
    for part in [&tmp, &new] {
        match fs::metadata(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && create => make(folder)?,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let size = fields.len() as u64 + spool.size();
    let name = name(unique, size, SystemTime::now());
    let draft = tmp.join(&name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write(&mut file, fields, spool).and_then(|()| publish(&draft, &new.join(&name)));
    if written.is_err() {
        // It may have been renamed before the sync of the folder failed.
        let _ = fs::remove_file(&draft);
        let _ = fs::remove_file(new.join(&name));
    }
    written
}

fn write(file: &mut File, fields: &str, spool: &mut Spool) -> io::Result<()> {
    file.write_all(fields.as_bytes())?;
    io::copy(&mut spool.reader()?, file)?;
    file.sync_all()
}

fn publish(draft: &Path, place: &Path) -> io::Result<()> {
    match renameat_with(CWD, draft, CWD, place, RenameFlags::NOREPLACE) {
        // File systems that do not know the flag: a name is unique anyway.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(draft, place)?,
        renamed => renamed?,
    }
    File::open(place.parent().unwrap_or(place))?.sync_all()
}

/// Makes what is missing of a Maildir and of the folders above it, and syncs its name.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    for part in ["tmp", "new", "cur"] {
        builder.create(folder.join(part))?;
    }
    File::open(folder)?.sync_all()?;
    File::open(folder.parent().unwrap_or(folder))?.sync_all()
}

/// `time.M…P…Q….host,S=size`: the parts that <https://cr.yp.to/proto/maildir.html> names, and the size that readers look for.
fn name(unique: &Unique<'_>, size: u64, now: SystemTime) -> String {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (host, number) = (unique.host.replace('/', "\\057").replace(':', "\\072"), unique.number);
    format!("{}.M{}P{}Q{number}.{host},S={size}", now.as_secs(), now.subsec_micros(), std::process::id())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const UNIQUE: Unique<'_> = Unique { host: "mx.test", number: 1 };

    fn spool() -> Spool {
        let mut spool = Spool::default();
        spool.push(b"Subject: x\r\n\r\nbody\r\n").unwrap();
        spool.finish().unwrap();
        spool
    }

    fn files(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn a_message_is_in_new() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("Maildir");
        deliver(&folder, true, "Delivered-To: b@x\n", &mut spool(), &UNIQUE).unwrap();
        let unique = Unique { number: 2, ..UNIQUE };
        deliver(&folder, true, "", &mut spool(), &unique).unwrap();
        let mut names = files(&folder.join("new"));
        names.sort_by_key(String::len);
        assert_eq!(names.len(), 2);
        let texts: Vec<String> =
            names.iter().map(|name| fs::read_to_string(folder.join("new").join(name)).unwrap()).collect();
        assert_eq!(texts.concat().matches("Subject: x\n\nbody\n").count(), 2, "{texts:?}");
        for (name, text) in names.iter().zip(&texts) {
            assert!(name.ends_with(&format!(".mx.test,S={}", text.len())), "{name}");
        }
        assert_eq!(files(&folder.join("tmp")), Vec::<String>::new());
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn no_mailbox_is_made_without_being_asked() {
        let home = tempfile::tempdir().unwrap();
        let error = deliver(&home.path().join("x"), false, "", &mut spool(), &UNIQUE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(files(home.path()), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_published_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        make(home.path()).unwrap();
        fs::remove_dir(home.path().join("new")).unwrap();
        // A folder that is no folder by the time of the rename.
        std::os::unix::fs::symlink("/proc/self", home.path().join("new")).unwrap();
        assert!(deliver(home.path(), false, "", &mut spool(), &UNIQUE).is_err());
        assert_eq!(files(&home.path().join("tmp")), Vec::<String>::new());
    }
}
