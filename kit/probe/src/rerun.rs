//! Runs this program again, as the other process of a measurement.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command that runs this very program as `name` of `probe`: what stood before the own command's name is kept, so
/// that it works for `stentor-kit probe ipc` as for an example of this crate, which knows no `probe`; also after the
/// file was replaced.
///
/// Ctrl-C is for us and not for it: it has to end when its standard input does.
pub fn command(name: &str) -> Command {
    let is_ours = |word: &OsStr| word == name || word == "suite";
    let mut command = Command::new("/proc/self/exe");
    command.arg0("stentor-kit").args(std::env::args_os().skip(1).take_while(|word| !is_ours(word))).arg(name);
    command.process_group(0);
    command
}
