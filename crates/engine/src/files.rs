//! Small files beside the journal, which are replaced as a whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

    use super::*;

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
