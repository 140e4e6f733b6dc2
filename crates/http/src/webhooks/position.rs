//! An endpoint's position in the history, in a file of its own.

use std::fs;
use std::io;
use std::path::Path;

use stentor_engine::files::replace;
use stentor_history::Position;

/// The position; `None` if there is no file yet, or none that makes sense.
pub(super) fn read(path: &Path) -> Option<Position> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Replaces it at once: whoever reads finds the old one or the new one, also after a power cut.
pub(super) fn write(path: &Path, position: Position) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    replace(path, format!("{position}\n").as_bytes(), 0o600)
}
