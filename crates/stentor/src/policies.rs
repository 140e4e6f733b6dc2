//! The file of MTA-STS policies: read at the start, written when a policy is new, and what is used refreshed.
//!
//! Promise: a policy outlives a restart, so that nobody can take it away by keeping us from the domain's web server meanwhile (RFC 8461 10.2).
//! Mail never waits for the file, which is replaced whole.
//!
//! Failure: of one that is damaged the lines that can be read are used. One without any is left behind as `mta-sts.bad`, and policies are
//! fetched anew. One that cannot be written is a warning, and tried again.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_engine::core::Core;
use stentor_engine::core::sts;
use stentor_engine::files::replace;

/// Between two looks whether there is something to write.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// Between two looks for policies to refresh.
const REFRESH_EVERY: Duration = Duration::from_mins(1);
/// What is kept (32 MiB) is written in less.
const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;

fn path(core: &Core) -> PathBuf {
    core.settings().config.data_dir.join("mta-sts")
}

/// Takes what the file has. Blocks.
pub fn load(core: &Core) {
    let path = path(core);
    let mut octets = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut octets));
    let why = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => error.to_string(),
        Ok(_) => match core.policies.restore(&octets) {
            Ok(None) => return,
            Ok(Some(damaged)) => {
                tracing::warn!(path = %path.display(), "the file of MTA-STS policies is damaged: {damaged}; the others are used");
                return;
            }
            Err(error) => error.to_string(),
        },
    };
    tracing::warn!(path = %path.display(), "MTA-STS policies cannot be read ({why}); they are fetched anew");
    // If it cannot be moved, it will be replaced.
    let _ = fs::rename(&path, path.with_extension("bad"));
}

/// Fetches again what is used, until the process ends.
pub async fn refresh(core: Arc<Core>) {
    loop {
        tokio::time::sleep(REFRESH_EVERY).await;
        sts::refresh(&core).await;
    }
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

/// Writes the file, if anything has changed, once a write that is under way has ended. Blocks.
pub fn save(core: &Core) {
    let path = path(core);
    if let Err(error) = core.policies.write(|text| replace(&path, text.as_bytes(), 0o600)) {
        tracing::warn!(path = %path.display(), %error, "MTA-STS policies cannot be written");
    }
}
