//! sendmail, mailq, newaliases and hoststat for local users (docs/design/submission.md).
//!
//! The program is setgid to the group of the submission folder, but only uses that group to open the folder, read its
//! settings, and create and rename a file. It does not read the environment, start programs, or use inherited
//! descriptors other than the first three. It only waits for its input, the disk and, for `mailq` and the like, the
//! server.

mod program;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::unistd::getuid;
use stentor_sendmail::exit::{EX_CONFIG, EX_NOPERM, EX_OK, ExitError};
use stentor_sendmail::options::{self, Call, Mode};
use stentor_sendmail::{CONFIGURATION, FOLDER};

use program::folder::Folder;
use program::privileges::Privileges;
use program::{message, queue, smtp, user};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().map(std::os::unix::ffi::OsStringExt::into_vec);
    let own = arguments.next().unwrap_or_default();
    let own = String::from_utf8_lossy(&own).into_owned();
    let name = own.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("sendmail").to_owned();
    let arguments: Vec<Vec<u8>> = arguments.collect();
    let done = Privileges::lowered().and_then(|privileges| {
        let call = options::parse(&name, &arguments)?;
        for warning in &call.warnings {
            let _ = writeln!(io::stderr(), "{name}: {warning}");
        }
        run(&call, privileges)
    });
    match done {
        Ok(()) => ExitCode::from(EX_OK),
        Err(ExitError { code, text }) => {
            // Standard error may be closed, and there is no other way to report the failure.
            let _ = writeln!(io::stderr(), "{name}: {text}");
            ExitCode::from(code)
        }
    }
}

fn run(call: &Call, privileges: Privileges) -> Result<(), ExitError> {
    match call.mode {
        Mode::Aliases => {
            let _ = writeln!(
                io::stdout(),
                "Nothing to do: the server reads changed alias files within seconds. Run `stentor check` to check them."
            );
            return Ok(());
        }
        Mode::Nothing => return Ok(()),
        _ => {}
    }
    let path = folder_path(call.configuration.as_deref(), &privileges)?;
    let folder = Folder::open(&path, &privileges)?;
    let user = user::of(getuid())?;
    match call.mode {
        Mode::Deliver => message::deliver(call, &folder, &privileges, &user),
        Mode::Smtp => smtp::serve(call, &folder, &privileges, &user),
        Mode::Verify | Mode::Queue | Mode::Count | Mode::Hosts | Mode::Flush => {
            let published = folder.published(&privileges)?;
            privileges.give_up()?;
            queue::ask(call, &published, &user)
        }
        Mode::Aliases | Mode::Nothing => Ok(()),
    }
}

/// The folder's path in the system's configuration. Only root may set another one, or a program without privileges,
/// which has no more rights than its user.
fn folder_path(other: Option<&Path>, privileges: &Privileges) -> Result<PathBuf, ExitError> {
    if other.is_some() && privileges.is_elevated() && !getuid().is_root() {
        return Err(ExitError::new(EX_NOPERM, "only root may use -C: this program has privileges"));
    }
    let path = other.unwrap_or(Path::new(CONFIGURATION));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && other.is_none() => return Ok(PathBuf::from(FOLDER)),
        Err(error) => return Err(ExitError::new(EX_CONFIG, format!("{}: {error}", path.display()))),
    };
    let wrong = |line: usize| {
        ExitError::new(EX_CONFIG, format!("{}:{line}: expected folder = \"PATH\" and nothing else", path.display()))
    };
    let mut folder = None;
    for (i, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let value = line.strip_prefix("folder").and_then(|rest| rest.trim_start().strip_prefix('='));
        let value = value.and_then(|rest| rest.trim().strip_prefix('"')?.strip_suffix('"'));
        folder = Some(value.filter(|value| value.starts_with('/') && folder.is_none()).ok_or_else(|| wrong(i))?);
    }
    folder.map(PathBuf::from).ok_or_else(|| wrong(1))
}
