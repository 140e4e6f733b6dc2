//! An endpoint's position in the history, in a file of its own.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use stentor_history::Position;

/// The position; `None` if there is no file yet, or none that makes sense.
pub(super) fn read(path: &Path) -> Option<Position> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Replaces it at once: whoever reads finds the old one or the new one, also after a power cut.
pub(super) fn write(path: &Path, position: Position) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    writeln!(file, "{position}")?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}
