//! `stentor journal verify|dump|salvage` and `stentor doctor`: commands for a stopped or damaged store.
//!
//! Promise: the store is opened read-only and never changed. Everything readable is shown; the rest is reported with
//! file and offset. `salvage` writes to a new directory.
//!
//! Failure: exit code 1 after findings or an error, else 0.

mod doctor;
mod dump;
mod eml;
mod event_json;
mod fold;
mod salvage;
mod start_command;
mod verify;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use stentor_journal::{Disk, JournalError, RealDisk};

use crate::asking::{fail, load};
pub use doctor::{Options as DoctorOptions, run as doctor};

#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check every segment and report damage with file and offset.
    Verify {
        #[command(flatten)]
        place: Place,
    },
    /// Print every readable record as a JSON line.
    Dump {
        #[command(flatten)]
        place: Place,
        /// Write this content to standard output instead.
        #[arg(long, value_name = "ID")]
        content: Option<u64>,
    },
    /// Save everything readable, to a new store or as files.
    Salvage {
        #[command(flatten)]
        place: Place,
        /// Write a new store here; the directory must be empty or not exist.
        #[arg(long, value_name = "NEWDIR", required_unless_present = "eml")]
        to: Option<PathBuf>,
        /// Write each waiting message here, as ID.eml with its envelope as ID.json.
        #[arg(long, value_name = "OUTDIR", conflicts_with = "to")]
        eml: Option<PathBuf>,
    },
}

/// Which store.
#[derive(Args)]
struct Place {
    /// The journal's directory, or the data directory that contains it.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The configuration that names the data directory [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE", conflicts_with = "dir")]
    config: Option<PathBuf>,
}

pub fn run(options: Options) -> ExitCode {
    let (Command::Verify { place } | Command::Dump { place, .. } | Command::Salvage { place, .. }) = &options.command;
    let dir = match (&place.dir, &place.config) {
        (Some(dir), _) => journal_dir(dir),
        (None, config) => match load(config.as_deref()) {
            Ok(config) => journal_dir(&config.data_dir),
            Err(code) => return code,
        },
    };
    let disk = match RealDisk::open_unlocked(&dir) {
        Ok(disk) => disk,
        Err(error) => return fail(&error.to_string()),
    };
    if let Ok(Some(pid)) = RealDisk::holder(&dir) {
        let by = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
        if matches!(options.command, Command::Salvage { .. }) {
            return fail(&format!("{} is in use by {by}; stop it first", dir.display()));
        }
        eprintln!("stentor: {} is in use by {by}; records being written may look damaged", dir.display());
    }
    let stdout = io::stdout();
    let mut out = BufWriter::new(stdout.lock());
    let done = match options.command {
        Command::Verify { .. } => verify::run(&disk, &mut out),
        Command::Dump { content: None, .. } => dump::records(&disk, &mut out),
        Command::Dump { content: Some(id), .. } => dump::content(&disk, id, &mut out),
        Command::Salvage { to: Some(to), .. } => salvage::run(&disk, &to, &mut out),
        Command::Salvage { eml, .. } => eml::run(&disk, &eml.unwrap_or_default(), &mut out),
    };
    match done.and_then(|whole| out.flush().map(|()| whole).map_err(Problem::from)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader closed the pipe.
        Err(Problem::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(problem) => fail(&problem.to_string()),
    }
}

/// The damage that `verify` reports, one line each.
///
/// # Errors
/// The directory cannot be listed.
pub fn damage_of(disk: &dyn Disk) -> Result<Vec<String>, JournalError> {
    fold::fold(disk).map(|folded| verify::damaged(&folded))
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Journal(#[from] stentor_journal::JournalError),
    #[error("{0}")]
    Output(#[from] io::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Other(String),
}

/// `Ok(true)` means that nothing is damaged.
type Outcome = Result<bool, Problem>;

/// The directory itself, or its `journal` folder.
fn journal_dir(dir: &Path) -> PathBuf {
    let inner = dir.join("journal");
    if inner.is_dir() { inner } else { dir.to_owned() }
}

/// Creates a directory, which must be empty or new: existing files are never overwritten.
fn fresh_dir(path: &Path) -> Result<(), Problem> {
    let failed = |source| Problem::File { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(failed)?;
    if std::fs::read_dir(path).map_err(failed)?.next().is_some() {
        return Err(Problem::Other(format!("{} is not empty; name an empty directory", path.display())));
    }
    Ok(())
}
