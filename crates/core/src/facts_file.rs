//! The file of learned facts: clocks and limits of hosts, sites and mailboxes, counts of refused posts, times of
//! running posts.
//!
//! Promise: a snapshot holds the hub's lock for under a millisecond. A file is read whole or not at all: it begins with
//! its version, and its last line is the SHA-256 of everything before. `stentor_sched::learned` documents the lines,
//! `crate::live::posts` the `post` lines.
//!
//! ```text
//! stentor learned 1 1795000000000
//! host    1795000060000  1  refused  7  out 192.0.2.1:25  ...
//! sum 9f86d081...
//! ```

use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_config::keys::sha256;
use stentor_sched::SnapshotProgress;

use super::Core;

const MAGIC: &str = "stentor learned ";
const VERSION: &str = "1";
const SUM: &str = "sum ";

/// SHA-256 of the lines last written.
#[derive(Default)]
pub struct WrittenDigest {
    last: Mutex<Option<[u8; 32]>>,
}

/// Why a file is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadFile {
    #[error("it is not such a file")]
    Foreign,
    #[error("unsupported version {0}; this program reads version {VERSION}")]
    Version(String),
    #[error("it is damaged")]
    Damaged,
}

impl Core {
    /// Returns the file's text if it differs from the last one.
    pub fn learned_file(self: &Arc<Self>) -> Option<Vec<u8>> {
        let (mut at, mut lines) = (SnapshotProgress::default(), String::new());
        let written = self.clock.now();
        while self.with(|hub, now| hub.sched.write_learned(&hub.store, &mut at, &mut lines, now)) {}
        self.live.posts.write_times(&mut lines);
        let sum = sha256(lines.as_bytes());
        if self.learned.last.lock().replace(sum) == Some(sum) {
            return None;
        }
        let mut file = format!("{MAGIC}{VERSION} {written}\n");
        file.push_str(&lines);
        let sum = hex(sha256(file.as_bytes()));
        // Writing to a string cannot fail.
        let _ = writeln!(file, "{SUM}{sum}");
        Some(file.into_bytes())
    }

    /// Notes that the last file could not be written.
    pub fn learned_file_lost(&self) {
        *self.learned.last.lock() = None;
    }

    /// Restores the learned facts from a file, before the queue is resumed. `Some`: number of lines that could not be
    /// read.
    ///
    /// # Errors
    /// Nothing of the file is used.
    pub fn recall(self: &Arc<Self>, file: &[u8]) -> Result<Option<usize>, BadFile> {
        let (written, lines) = parts(file)?;
        let bad = self.live.posts.recall_times(lines);
        let bad = bad + self.with(|hub, now| hub.sched.recall(&hub.store, lines, written, now));
        Ok(Some(bad).filter(|bad| *bad > 0))
    }
}

/// Returns when the file was written, and its lines.
fn parts(file: &[u8]) -> Result<(u64, &str), BadFile> {
    let text = str::from_utf8(file).map_err(|_| BadFile::Damaged)?;
    let head = text.strip_prefix(MAGIC).ok_or(BadFile::Foreign)?;
    let (head, rest) = head.split_once('\n').ok_or(BadFile::Damaged)?;
    let (version, written) = head.split_once(' ').ok_or(BadFile::Damaged)?;
    if version != VERSION {
        return Err(BadFile::Version(version.chars().take(16).collect()));
    }
    let body = rest.strip_suffix('\n').ok_or(BadFile::Damaged)?;
    let at = body.rfind('\n').map_or(0, |at| at + 1);
    let (lines, last) = body.split_at(at);
    let summed = &text[..text.len() - last.len() - 1];
    let sum = last.strip_prefix(SUM).ok_or(BadFile::Damaged)?;
    if sum != hex(sha256(summed.as_bytes())) {
        return Err(BadFile::Damaged);
    }
    Ok((written.parse().map_err(|_| BadFile::Damaged)?, lines))
}

fn hex(sum: [u8; 32]) -> String {
    sum.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &str) -> String {
        let file = format!("{MAGIC}{VERSION} 1795000000000\n{lines}");
        let sum = hex(sha256(file.as_bytes()));
        format!("{file}{SUM}{sum}\n")
    }

    #[test]
    fn a_file_is_taken_whole_or_not_at_all() {
        for lines in ["", "a\tline\n", "a\nb\n"] {
            let good = file(lines);
            assert_eq!(parts(good.as_bytes()), Ok((1_795_000_000_000, lines)));
            for at in 0..good.len() {
                let mut broken = good.clone().into_bytes();
                broken[at] ^= 1;
                assert!(parts(&broken).is_err(), "{at}");
                assert!(parts(&good.as_bytes()[..at]).is_err(), "{at}");
            }
        }
        assert_eq!(parts(b"something else"), Err(BadFile::Foreign));
        assert_eq!(parts(b""), Err(BadFile::Foreign));
        let newer = file("x\n").replace("learned 1 ", "learned 2 ");
        assert_eq!(parts(newer.as_bytes()), Err(BadFile::Version("2".to_owned())));
    }
}
