//! Delivery to a Maildir: a file in `tmp`, synced, renamed into `new`, the folder synced.
//!
//! Promise: a reader sees the complete message or nothing, and on success it survives a loss of power. On any failure
//! nothing is left in `new`, and the file in `tmp` is removed. The user may replace `tmp` and `new` at any time: both
//! are opened once, as folders and not through links, and nothing blocks.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind::NotFound, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::open_folder;
use crate::spool::Spool;

/// Parts of a unique file name.
#[derive(Debug)]
pub struct UniqueName<'a> {
    pub host: &'a str,
    /// Number of the delivery in this process.
    pub number: u64,
}

/// The folders of a delivery, which are used even if their names are taken by others meanwhile.
struct Folders {
    tmp: OwnedFd,
    new: OwnedFd,
}

impl Folders {
    /// Opens both without blocking and without following links.
    fn open(folder: &Path) -> io::Result<Folders> {
        let kind = OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, OFlags::PATH | kind, Mode::empty())?;
        let part = |name, flags| openat(&folder, name, flags | kind | OFlags::NOFOLLOW, Mode::empty());
        Ok(Folders { tmp: part("tmp", OFlags::PATH)?, new: part("new", OFlags::RDONLY)? })
    }
}

/// Delivers one message.
pub fn deliver(
    folder: &Path,
    create: bool,
    fields: &str,
    spool: &mut Spool,
    unique: &UniqueName<'_>,
) -> io::Result<()> {
    let folders = match Folders::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
            make(folder)?;
            Folders::open(folder)?
        }
        opened => opened?,
    };
    let size = fields.len() as u64 + spool.size();
    deliver_to(&folders, &name(unique, size, SystemTime::now()), fields, spool)
}

fn deliver_to(folders: &Folders, name: &str, fields: &str, spool: &mut Spool) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folders.tmp, name, flags, Mode::RUSR | Mode::WUSR)?);
    let written = write(&mut file, fields, spool).and_then(|()| publish(folders, name));
    if written.is_err() {
        // It may have been renamed before the sync of the folder failed.
        for part in [folders.tmp.as_fd(), folders.new.as_fd()] {
            let _ = unlinkat(part, name, AtFlags::empty());
        }
    }
    written
}

fn write(file: &mut File, fields: &str, spool: &mut Spool) -> io::Result<()> {
    file.write_all(fields.as_bytes())?;
    io::copy(&mut spool.reader()?, file)?;
    file.sync_all()
}

fn publish(folders: &Folders, name: &str) -> io::Result<()> {
    let Folders { tmp, new } = folders;
    match renameat_with(tmp, name, new, name, RenameFlags::NOREPLACE) {
        // The file system does not support the flag; the name is unique anyway.
        Err(Errno::INVAL | Errno::NOSYS) => renameat(tmp, name, new, name)?,
        renamed => renamed?,
    }
    Ok(rustix::fs::fsync(new)?)
}

/// Creates missing parts of a Maildir and the folders above it, and syncs every new name.
fn make(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    for part in ["tmp", "new", "cur"] {
        create(&folder.join(part))?;
    }
    open_folder(folder)?.sync_all()
}

/// Creates a folder and missing ones above it, the outermost first, syncing each before the next is created in it.
fn make_folder(folder: &Path) -> io::Result<()> {
    let is_missing = |folder: &Path| fs::symlink_metadata(folder).is_err_and(|error| error.kind() == NotFound);
    let above = folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty());
    let missing: Vec<&Path> = above.take_while(|folder| is_missing(folder)).collect();
    // The innermost one may have been created but not synced by an interrupted delivery.
    let last = if missing.is_empty() { Some(folder) } else { None };
    for folder in missing.into_iter().rev().chain(last) {
        create(folder)?;
        sync_name(folder)?;
    }
    Ok(())
}

fn create(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        // Opening it as a folder will detect anything else of this name.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Syncs the folder that contains this name. If the user cannot read it, the user cannot sync it either.
fn sync_name(folder: &Path) -> io::Result<()> {
    match open_folder(folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))) {
        Ok(parent) => parent.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// A file name `time.M…P…Q….host,S=size`: the parts described in <https://cr.yp.to/proto/maildir.html>, and the size
/// that readers look for.
fn name(unique: &UniqueName<'_>, size: u64, now: SystemTime) -> String {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (host, number) = (unique.host.replace('/', "\\057").replace(':', "\\072"), unique.number);
    format!("{}.M{}P{}Q{number}.{host},S={size}", now.as_secs(), now.subsec_micros(), std::process::id())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    const UNIQUE: UniqueName<'_> = UniqueName { host: "mx.test", number: 1 };

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
        let unique = UniqueName { number: 2, ..UNIQUE };
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
    fn folders_above_a_mailbox_are_made_and_kept_private() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("new.example/sales/ann");
        deliver(&folder, true, "", &mut spool(), &UNIQUE).unwrap();
        assert_eq!(files(&folder.join("new")).len(), 1);
        for made in folder.ancestors().take(3) {
            assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700, "{}", made.display());
        }
        // An incomplete Maildir is completed.
        fs::remove_dir(folder.join("tmp")).unwrap();
        deliver(&folder, true, "", &mut spool(), &UniqueName { number: 2, ..UNIQUE }).unwrap();
        assert_eq!(files(&folder.join("new")).len(), 2);
        fs::write(home.path().join("file"), "").unwrap();
        assert!(deliver(&home.path().join("file/ann"), true, "", &mut spool(), &UNIQUE).is_err(), "below a file");
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
        let folders = Folders::open(home.path()).unwrap();
        // A file with the same name exists: it is not replaced, and the draft is removed.
        let name = name(&UNIQUE, 1, SystemTime::now());
        fs::create_dir(home.path().join("new").join(&name)).unwrap();
        assert!(deliver_to(&folders, &name, "", &mut spool()).is_err());
        assert_eq!(files(&home.path().join("tmp")), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_folder_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        for part in ["new", "tmp"] {
            make(home.path()).unwrap();
            let place = home.path().join(part);
            fs::remove_dir(&place).unwrap();
            mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            assert!(deliver(home.path(), true, "", &mut spool(), &UNIQUE).is_err(), "a pipe");
            fs::remove_file(&place).unwrap();
            let other = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(other.path(), &place).unwrap();
            assert!(deliver(home.path(), true, "", &mut spool(), &UNIQUE).is_err(), "a link");
            assert_eq!(files(other.path()), Vec::<String>::new());
            fs::remove_file(&place).unwrap();
        }
        let pipe = home.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(open_folder(&pipe).is_err());
    }

    /// Folders that are replaced during the delivery: it ends in the original ones.
    #[test]
    fn a_pipe_in_the_place_of_a_folder_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        make(home.path()).unwrap();
        let folders = Folders::open(home.path()).unwrap();
        for part in ["new", "tmp"] {
            let place = home.path().join(part);
            fs::rename(&place, home.path().join(format!("former-{part}"))).unwrap();
            mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        deliver_to(&folders, "x", "", &mut spool()).unwrap();
        assert_eq!(files(&home.path().join("former-new")), ["x"]);
    }
}
