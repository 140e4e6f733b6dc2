//! An endpoint's position in the history, in its own file.

use std::fs;
use std::io;
use std::path::Path;

use stentor_core::files::replace;
use stentor_history::Position;

/// Reads the position; `None` if the file is missing or invalid.
pub(super) fn read(path: &Path) -> Option<Position> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Replaces the file atomically: readers find the old or the new one, even after a power cut.
pub(super) fn write(path: &Path, position: Position) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    replace(path, format!("{position}\n").as_bytes(), 0o600)
}
