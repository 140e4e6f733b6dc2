//! Whether this machine can be traced.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::skipped;

const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

static NUMBER: AtomicU32 = AtomicU32::new(0);
static MOUNT: Once = Once::new();

/// Where instances are made; `None` after having said why nothing can be traced here: that is tried, since a mounted
/// tracefs may be read-only or forbidden.
pub fn tracefs() -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        skipped("tracing needs root");
        return None;
    }
    // Whoever traces first mounts it, `stentor-kit iotrace` too: what a test sees must not depend on which ran before
    // it.
    MOUNT.call_once(|| {
        if instances().is_none() {
            // Where that is forbidden, there is none below.
            let _ = Command::new("mount").args(["-t", "tracefs", "tracefs", ROOTS[0]]).output();
        }
    });
    let Some(instances) = instances() else {
        skipped("tracefs is not mounted");
        return None;
    };
    let trial =
        instances.join(format!("stentor-tests-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    if let Err(error) = std::fs::create_dir(&trial) {
        skipped(&format!("no instance of tracefs can be made: {error}"));
        return None;
    }
    let _ = std::fs::remove_dir(&trial);
    Some(instances)
}

fn instances() -> Option<PathBuf> {
    ROOTS.map(|root| Path::new(root).join("instances")).into_iter().find(|path| path.is_dir())
}
