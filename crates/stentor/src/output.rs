//! Standard output. Whoever reads it may stop reading (`| head`): that ends a command quietly.

use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use stentor_stats::escape::without_traps;

/// Writes all of it, at once.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// The same of text, in which nothing acts on a terminal but the colours and the layout of our own.
pub(crate) fn print(text: &str) -> io::Result<()> {
    write(without_traps(text).as_bytes())
}

/// The reader has gone.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// The error of a write, unless the reader has gone.
pub(crate) fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_closed(&error) => Ok(()),
        other => other,
    }
}

/// `--watch`: does it, and again every so many seconds; for people on a terminal in the same place. Ends with the first
/// code that is given, or after one time without `every_s`.
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
