//! Follows a growing file through rotation, like `tail -F`.
//!
//! Renamed and recreated: the old one is read to its end first. Truncated (`copytruncate`): it is read from its
//! beginning. Missing for a while: waited for.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{BLOCK_BYTES, Enough, Piece, TICK, ms_of, now};

/// Hands over what is there and what comes, until nobody wants it.
pub fn follow(path: &Path, put: &mut dyn FnMut(Piece) -> Result<(), Enough>) -> Result<(), Enough> {
    let mut complained = false;
    loop {
        match File::open(path) {
            Ok(file) => {
                complained = false;
                let written = file.metadata().and_then(|metadata| metadata.modified()).map_or_else(|_| now(), ms_of);
                put(Piece::File(path.to_owned(), written))?;
                if let Err(error) = until_rotated(path, file, put)? {
                    put(Piece::Wrong(format!("{}: {error}", path.display())))?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                if !complained {
                    complained = true;
                    put(Piece::Wrong(format!("{}: {error}", path.display())))?;
                }
            }
        }
        std::thread::sleep(TICK);
        // So that a caller that is gone is noticed even if there never is such a file.
        put(Piece::Block(Vec::new()))?;
    }
}

/// Reads until another file has taken the name.
fn until_rotated(
    path: &Path,
    mut file: File,
    put: &mut dyn FnMut(Piece) -> Result<(), Enough>,
) -> Result<io::Result<()>, Enough> {
    let mut rotated = false;
    let mut position = 0;
    loop {
        let mut block = vec![0; BLOCK_BYTES];
        let count = match file.read(&mut block) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Err(error)),
        };
        if count > 0 {
            position += count as u64;
            block.truncate(count);
            put(Piece::Block(block))?;
            continue;
        }
        // At its end; whoever renamed it may still have written a line in between.
        if rotated {
            return Ok(Ok(()));
        }
        let ours = match file.metadata() {
            Ok(ours) => ours,
            Err(error) => return Ok(Err(error)),
        };
        if ours.len() < position {
            if let Err(error) = file.seek(SeekFrom::Start(0)) {
                return Ok(Err(error));
            }
            position = 0;
            put(Piece::File(path.to_owned(), now()))?;
            continue;
        }
        match fs::metadata(path) {
            Ok(theirs) => rotated = (theirs.dev(), theirs.ino()) != (ours.dev(), ours.ino()),
            // Renamed, and the new one is not made yet.
            Err(_) => rotated = false,
        }
        put(Piece::Block(Vec::new()))?;
        std::thread::sleep(TICK);
    }
}
