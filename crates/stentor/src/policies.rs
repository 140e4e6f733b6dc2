//! The file of MTA-STS policies: read at the start, written when a policy is new, and what is used refreshed.
//!
//! Promise: a policy outlives a restart, so that nobody can take it away by keeping us from the domain's web server meanwhile (RFC 8461 10.2).
//! Mail never waits for the file, which is replaced whole.
//!
//! Failure: one that is damaged or cannot be read is left behind as `mta-sts.bad`, and policies are fetched anew. One that cannot be
//! written is a warning, and tried again.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_engine::core::Core;
use stentor_engine::core::sts::Means;
use stentor_engine::files::replace;

/// Between two looks whether there is something to write.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// Between two looks for policies to refresh.
const REFRESH_EVERY: Duration = Duration::from_mins(1);
/// 65,536 policies of a usual size are a fifth of it.
const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;

fn path(core: &Core) -> PathBuf {
    core.settings().config.data_dir.join("mta-sts")
}

/// Takes what the file has. Blocks.
pub fn load(core: &Core) {
    let path = path(core);
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    let why = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => error.to_string(),
        Ok(_) => match core.policies.restore(&text) {
            Ok(()) => return,
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
        let settings = core.settings();
        core.policies.refresh(Means { resolver: &core.resolver, settings: &settings, clock: &core.clock }).await;
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

/// Writes the file, if anything has changed. Blocks.
pub fn save(core: &Core) {
    let Some(text) = core.policies.take() else { return };
    let path = path(core);
    if let Err(error) = replace(&path, text.as_bytes(), 0o600) {
        core.policies.not_written();
        tracing::warn!(path = %path.display(), %error, "MTA-STS policies cannot be written");
    }
}
