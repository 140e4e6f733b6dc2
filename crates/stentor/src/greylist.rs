//! The greylist's file: read at the start, written now and then and at the end.
//!
//! Promise: it has nothing to do with the journal, and mail never waits for it. A file is replaced whole.
//!
//! Failure: one that is damaged or cannot be read is left behind as `greylist.bad`, and greylisting begins anew: mail is deferred once more.
//! One that cannot be written is a warning.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_engine::core::Core;
use stentor_engine::files::replace;
use stentor_strangers::Greylist;

/// Between two writes; what a crash forgets is deferred once more.
const SAVE_EVERY: Duration = Duration::from_mins(10);
/// A file with as many entries as the configuration allows is smaller.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

fn path(core: &Core) -> PathBuf {
    core.settings().config.data_dir.join("greylist")
}

/// Takes what the file has. Blocks.
pub fn load(core: &Core) {
    let path = path(core);
    let mut octets = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut octets));
    let why = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => error.to_string(),
        Ok(_) => match Greylist::load(&octets) {
            Ok(greylist) => {
                *core.greylist.lock() = greylist;
                return;
            }
            Err(_) => "it is damaged".to_owned(),
        },
    };
    tracing::warn!(path = %path.display(), "the greylist cannot be read ({why}); greylisting begins anew");
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
    let settings = core.settings().config.greylist;
    let Some(body) = core.greylist.lock().save(&settings, core.clock.now()) else { return };
    let path = path(core);
    if let Err(error) = replace(&path, &Greylist::sealed(body), 0o600) {
        tracing::warn!(path = %path.display(), %error, "the greylist cannot be written");
    }
}
