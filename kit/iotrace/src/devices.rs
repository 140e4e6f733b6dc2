//! The devices below a directory: its own, the disk of a partition, members of a volume.
//!
//! Whatever a loop device's file lies on is left out: to the file system above, it is all one device. Tracing that
//! disk, with everyone else's work on it, would only slow down the measurement.

use std::fs;
use std::path::Path;

use stentor_measure::Place;

use crate::collect::FileSystem;

/// Devices on devices: deeper than this nobody builds.
const DEPTH_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageStack {
    /// `major << 20 | minor`, as events name them; the mounted one first.
    pub devices: Vec<u32>,
    /// The directory's own.
    pub file_systems: Vec<FileSystem>,
}

impl StorageStack {
    pub fn of(place: &Place) -> StorageStack {
        let mut stack = StorageStack::default();
        stack.file_systems.extend(FileSystem::of_type(&place.file_system));
        if let Some(device) = &place.device {
            stack.device(device.mounted, 0);
        }
        stack
    }

    /// `id`: major and minor number.
    fn device(&mut self, id: (u32, u32), depth: usize) {
        let (major, minor) = id;
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
        let stack = StorageStack::of(&place);
        assert_eq!(stack.devices.is_empty(), place.device.is_none());
        if let Some(device) = &place.device {
            assert_eq!(stack.devices[0], device.mounted.0 << 20 | device.mounted.1);
        }
        assert_eq!(stack.file_systems.first().copied(), FileSystem::of_type(&place.file_system));
    }
}
