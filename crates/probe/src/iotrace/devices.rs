//! What lies below a directory: its device, the disk of a partition, members of a volume, and below a loop device the file
//! system that its file is on.

use std::fs;
use std::path::{Path, PathBuf};

use stentor_measure::Place;

use crate::iotrace::collect::FileSystem;

/// Devices on devices: deeper than this nobody builds.
const DEPTH_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Below {
    /// `major << 20 | minor`, as events name them; the mounted one first.
    pub devices: Vec<u32>,
    /// The directory's own first.
    pub file_systems: Vec<FileSystem>,
}

impl Below {
    pub fn of(place: &Place) -> Below {
        let mut below = Below::default();
        below.place(place, 0);
        below
    }

    fn place(&mut self, place: &Place, depth: usize) {
        if let Some(file_system) = FileSystem::of_type(&place.file_system)
            && !self.file_systems.contains(&file_system)
        {
            self.file_systems.push(file_system);
        }
        if let Some(device) = &place.device {
            self.device(device.mounted, depth);
        }
    }

    fn device(&mut self, (major, minor): (u32, u32), depth: usize) {
        let number = major << 20 | minor;
        if depth > DEPTH_MAX || self.devices.contains(&number) {
            return;
        }
        self.devices.push(number);
        let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else { return };
        if folder.join("partition").exists()
            && let Some(disk) = folder.parent().and_then(number_of)
        {
            self.device(disk, depth + 1);
        }
        for member in fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten() {
            if let Some(number) = number_of(&member.path()) {
                self.device(number, depth + 1);
            }
        }
        if let Ok(file) = fs::read_to_string(folder.join("loop/backing_file")) {
            let file = PathBuf::from(file.trim_end_matches('\n'));
            self.backing(&file, depth + 1);
        }
    }

    /// A loop device on a file, or on another block device.
    fn backing(&mut self, file: &Path, depth: usize) {
        let status = rustix::fs::stat(file).ok();
        let is_device =
            status.is_some_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode).is_block_device());
        match status {
            Some(status) if is_device => {
                self.device((rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev)), depth);
            }
            _ => {
                if let Some(place) = file.parent().and_then(|folder| Place::of(folder).ok()) {
                    self.place(&place, depth);
                }
            }
        }
    }
}

/// From a folder of sysfs.
fn number_of(folder: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_current_folder() {
        let place = Place::of(Path::new(".")).unwrap();
        let below = Below::of(&place);
        assert_eq!(below.devices.is_empty(), place.device.is_none());
        if let Some(device) = &place.device {
            assert_eq!(below.devices[0], device.mounted.0 << 20 | device.mounted.1);
        }
        assert_eq!(below.file_systems.first().copied(), FileSystem::of_type(&place.file_system));
    }
}
