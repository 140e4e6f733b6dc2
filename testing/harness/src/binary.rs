//! The programs under test: built once per run, in the profile of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static STENTOR: LazyLock<PathBuf> = LazyLock::new(|| program("STENTOR_BIN", "stentor", "stentor", &[]));
static STENTOR_KIT: LazyLock<PathBuf> =
    LazyLock::new(|| program("STENTOR_KIT_BIN", "stentor-kit", "stentor-kit", &["--features", "stentor-kit/engines"]));
static STENTOR_DELIVER: LazyLock<PathBuf> =
    LazyLock::new(|| program("STENTOR_DELIVER_BIN", "stentor-local-delivery", "stentor-deliver", &[]));

static STENTOR_SENDMAIL: LazyLock<PathBuf> =
    LazyLock::new(|| program("STENTOR_SENDMAIL_BIN", "stentor-sendmail", "stentor-sendmail", &[]));

/// The path of `stentor`. `STENTOR_BIN` names one that is there already.
pub fn stentor() -> &'static Path {
    &STENTOR
}

/// The path of `stentor-kit`, with all engines of `probe kv`. `STENTOR_KIT_BIN` names an existing one; otherwise, if
/// `STENTOR_BIN` is set, the one beside it is used.
pub fn stentor_kit() -> &'static Path {
    &STENTOR_KIT
}

/// The path of `stentor-deliver`, found as that of `stentor-kit`.
pub fn stentor_deliver() -> &'static Path {
    &STENTOR_DELIVER
}

/// The path of `stentor-sendmail`, found as that of the kit.
pub fn stentor_sendmail() -> &'static Path {
    &STENTOR_SENDMAIL
}

/// Where this profile's binaries are, from the test's own path (`PROFILE/deps/all-HASH`).
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a running test has a path");
    let deps = exe.parent().expect("a binary is in a folder");
    let profile = if deps.ends_with("deps") { deps.parent() } else { Some(deps) };
    profile.expect("deps is in a folder").to_owned()
}

fn program(variable: &str, package: &str, name: &str, features: &[&str]) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    if let Some(server) = std::env::var_os("STENTOR_BIN") {
        return Path::new(&server).with_file_name(name);
    }
    let folder = target_dir();
    let target = folder.parent().expect("a profile's folder is in the target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "-q", "-p", package]).args(features).arg("--target-dir").arg(target);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if folder.ends_with("release") {
        command.arg("--release");
    }
    let status = command.status().expect("cargo runs the tests, so it can be run");
    assert!(status.success(), "{name} cannot be built");
    folder.join(name)
}
