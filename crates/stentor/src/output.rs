//! Standard output. A closed pipe (`| head`) ends a command quietly.

use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use stentor_records::escape::without_traps;

/// Writes all bytes at once.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// Writes text; the only terminal control sequences left are our own colours and layout.
pub(crate) fn print(text: &str) -> io::Result<()> {
    write(without_traps(text).as_bytes())
}

/// Whether the reader closed the pipe.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// The error of a write, unless the reader closed the pipe.
pub(crate) fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_closed(&error) => Ok(()),
        other => other,
    }
}

/// `--watch`: runs `show` every `every_s` seconds; on a terminal, for people, in the same place. Stops at the first
/// exit code, or after one run without `every_s`.
pub(crate) fn repeat(
    every_s: Option<u64>,
    for_people: bool,
    mut show: impl FnMut() -> Result<(), ExitCode>,
) -> ExitCode {
    let in_place = every_s.is_some() && for_people && io::stdout().is_terminal();
    loop {
        if in_place && let Err(error) = print("\x1b[H\x1b[2J") {
            return done(Err(error));
        }
        if let Err(code) = show() {
            return code;
        }
        let Some(every_s) = every_s else { return ExitCode::SUCCESS };
        std::thread::sleep(Duration::from_secs(every_s));
    }
}

/// The exit code of a command that ends with this write.
pub(crate) fn done(result: io::Result<()>) -> ExitCode {
    match unless_closed(result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stentor: standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
