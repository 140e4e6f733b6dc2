//! Names of lock files, which no mailbox may have.
//!
//! Promise: a file that may be the lock of another mailbox, or the draft of a lock, is recognised by its name. File
//! systems may treat different names as the same file: in another case, without invisible characters (ext4 with
//! casefold), or without dots and spaces at the end (vfat, CIFS). Such names are recognised, too.

use std::path::Path;

/// Suffix of a lock's name; in a draft's name the process ID follows.
pub const SUFFIX: &str = ".lock";

/// Whether the name is `NAME.lock` or `NAME.lock.PID`.
pub fn is_lock_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name: String = name.chars().filter(char::is_ascii_graphic).collect();
    let name = name.trim_end_matches('.');
    let is_pid = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let draft_of = name.rsplit_once('.').filter(|(_, pid)| is_pid(pid)).map(|(lock, _)| lock);
    draft_of.unwrap_or(name).ends_with(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_locks() {
        for lock in [
            "ann.lock",
            ".lock",
            "ANN.LOCK",
            "ann.Lock",
            "ann.loc\u{212a}",
            "ann.lo\u{ad}ck",
            "ann.lock\u{200b}",
            "ann.lock.1234",
            "ann.LOCK.1",
            "ann.lock.",
            "ann.lock. .",
            "ann.lock.lock",
            "a.b.lock.12.",
        ] {
            assert!(is_lock_name(&Path::new("/v").join(lock)), "{lock}");
        }
        for other in [
            "ann",
            "lock",
            "annlock",
            "ann.locks",
            "ann.lock.x",
            "ann.lock.1x",
            "lock.ann",
            "ann.lock7",
            "ann.lock.mbox",
            "ann.1",
        ] {
            assert!(!is_lock_name(&Path::new("/v").join(other)), "{other}");
        }
    }
}
