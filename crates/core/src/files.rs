//! Small files beside the journal, which are replaced as a whole; and stamps that show whether a file has changed.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a plain file, at most `bytes_max` octets of it; `None`: there is none. Anything else in its place, a pipe say,
/// would be waited for, and the server would not start. Blocks.
///
/// # Errors
/// It cannot be read, or is not a regular file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut octets = Vec::new();
    file.take(bytes_max).read_to_end(&mut octets)?;
    Ok(Some(octets))
}

/// Replaces a file as a whole and durably: readers find the old one or the new one, even after a power cut. `mode`
/// applies regardless of the umask. Blocks.
///
/// # Errors
/// The old file remains, or the new one exists but may not survive a power cut.
pub fn replace(path: &Path, octets: &[u8], mode: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // A file left by an earlier attempt might have another mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(octets)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Identifies the contents of a file by its length, modification time and inode. The journal stores that of each list.
pub(crate) fn stamp(metadata: &Metadata) -> String {
    format!("{}-{}.{:09}-{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino())
}

/// Identifies a state of a file, including owner and mode: repairing permissions changes nothing else.
pub(crate) fn state(metadata: &Metadata) -> String {
    format!("{}-{}.{:09}", stamp(metadata), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

    use super::*;

    #[test]
    fn only_a_plain_file_is_read_and_not_beyond_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(read(&path, 8).unwrap(), None);
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 8).unwrap().unwrap(), b"01234567");
        fs::remove_file(&path).unwrap();
        // Would wait for a writer.
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read(&path, 8).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read(folder.path(), 8).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_its_folder_synced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.file");
        let left = folder.path().join("a.file.new");
        fs::write(&left, "of another attempt").unwrap();
        fs::set_permissions(&left, Permissions::from_mode(0o666)).unwrap();
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        for mode in [0o600, 0o644, 0o666] {
            let text = format!("{mode:o}");
            inotify::add_watch(&watch, folder.path(), WatchFlags::OPEN | WatchFlags::MOVED_TO).unwrap();
            replace(&path, text.as_bytes(), mode).unwrap();
            // The folder itself is opened once the file has its name.
            let mut buffer = [MaybeUninit::uninit(); 4_096];
            let mut reader = Reader::new(&watch, &mut buffer);
            let mut events = Vec::new();
            while let Ok(event) = reader.next() {
                events.push((event.events(), event.file_name().is_some()));
            }
            let [.., moved, opened] = events[..] else { panic!("{events:?}") };
            assert!(moved.0.contains(ReadFlags::MOVED_TO) && opened.0.contains(ReadFlags::OPEN), "{events:?}");
            assert!(!opened.1, "a file, not the folder: {events:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}
