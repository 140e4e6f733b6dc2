//! The file of what TLS the sessions with hosts had: read at the start, written now and then and at the end.
//!
//! Promise: no mail waits for it, and none depends on it. It is replaced whole.
//!
//! Failure: one that cannot be read is a warning, and what it had is forgotten; so is one that cannot be written.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_engine::core::Core;
use stentor_engine::files::replace;

/// Between two writes; what a crash forgets is seen again with the next session.
const SAVE_EVERY: Duration = Duration::from_mins(10);
/// A file with as many hosts as there may be is smaller.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

fn path(core: &Core) -> PathBuf {
    core.settings().config.data_dir.join("tls_seen.json")
}

/// Takes what the file has. Blocks.
pub fn load(core: &Core) {
    let path = path(core);
    let mut octets = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut octets));
    let why = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => error.to_string(),
        Ok(_) => match core.tls_seen.load(&octets) {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
    };
    tracing::warn!(path = %path.display(), "what TLS hosts had cannot be read ({why}); it is forgotten");
}

/// Writes the file now and then, until the process ends.
pub async fn keep(core: Arc<Core>) {
    loop {
        tokio::time::sleep(SAVE_EVERY).await;
        let core = core.clone();
        // A write that hangs keeps one thread.
        let _ = tokio::task::spawn_blocking(move || save(&core)).await;
    }
}

/// Writes the file, if anything has changed. Blocks.
pub fn save(core: &Core) {
    let Some(octets) = core.tls_seen.save() else { return };
    let path = path(core);
    if let Err(error) = replace(&path, &octets, 0o600) {
        tracing::warn!(path = %path.display(), %error, "what TLS hosts had cannot be written");
    }
}
