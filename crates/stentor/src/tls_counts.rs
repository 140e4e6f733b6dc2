//! The file of sessions that are counted for TLS reports: read at the start, written now and then and at the end.
//!
//! Promise: no mail waits for it. It is replaced whole.
//!
//! Failure: one that is damaged or cannot be read is left behind as `tls_reports.bad`, and what it had is in no report. One that cannot be
//! written is a warning, and is tried again.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_engine::core::Core;
use stentor_engine::files::replace;
use stentor_posture::tlsrpt::Counts;

/// Between two writes; what a crash forgets is not in the report.
const SAVE_EVERY: Duration = Duration::from_mins(5);
/// A file with as many domains as are counted is smaller.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

fn path(core: &Core) -> PathBuf {
    core.settings().config.data_dir.join("tls_reports")
}

/// Takes what the file has. Blocks.
pub fn load(core: &Core) {
    let path = path(core);
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    let why = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => error.to_string(),
        Ok(_) => match Counts::read(&text) {
            Ok(counts) => {
                *core.tls_counts.lock() = counts;
                return;
            }
            Err(error) => error.to_string(),
        },
    };
    tracing::warn!(path = %path.display(), "counts for TLS reports cannot be read ({why}); they begin anew");
    // If it cannot be moved, it will be replaced.
    let _ = fs::rename(&path, path.with_extension("bad"));
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
    let counts = {
        let mut counts = core.tls_counts.lock();
        if !counts.take_changed() {
            return;
        }
        // Deliveries count their sessions while the copy is made into text.
        counts.clone()
    };
    let path = path(core);
    if let Err(error) = replace(&path, counts.write().as_bytes(), 0o600) {
        core.tls_counts.lock().set_changed();
        tracing::warn!(path = %path.display(), %error, "counts for TLS reports cannot be written");
    }
}
