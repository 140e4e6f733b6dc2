//! Sources of records: logs, or the history of a Stentor server.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use stentor_logfiles::{self as logfiles, From};
use stentor_records::record::{Ms, Record};

use crate::asking::{CommandError, places};

#[derive(Args)]
pub struct Input {
    #[command(flatten)]
    pub from: From,
    /// The configuration of the server whose history to read, unless --from names logs [default: `$STENTOR_CONFIG`,
    /// else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE", conflicts_with = "files")]
    pub config: Option<PathBuf>,
    /// Path of the history directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "config"])]
    pub dir: Option<PathBuf>,
}

impl Input {
    /// Passes all records; those before and after these times may be skipped. Returns whether all could be read; errors
    /// go to standard error.
    pub fn each(
        &self,
        since: Option<Ms>,
        until: Option<Ms>,
        sink: &mut dyn FnMut(&Record<'_>),
    ) -> Result<bool, CommandError> {
        if self.from.is_given() {
            let summary = logfiles::feed(&self.from, sink)?;
            summary.print();
            return Ok(!summary.failed);
        }
        let dir = self.history_dir()?;
        Ok(scan(&dir, since, until, sink)?)
    }

    fn history_dir(&self) -> Result<PathBuf, CommandError> {
        if let Some(dir) = &self.dir {
            is_history(dir)?;
            return Ok(dir.clone());
        }
        Ok(places(self.config.as_deref()).map_err(CommandError::Reported)?.data_dir.join("history"))
    }
}

/// Checks that a directory holds a history.
///
/// # Errors
/// The directory that the user named does not hold one.
pub fn is_history(dir: &Path) -> Result<(), String> {
    let found = stentor_history::Reader::open(dir).and_then(|reader| reader.oldest_ms());
    match found.map_err(|error| format!("{}: {error}", dir.display()))? {
        Some(_) => Ok(()),
        None => {
            Err(format!("{}: not a history directory: it has no history files; name `data_dir/history`", dir.display()))
        }
    }
}

/// Reads all records of a history in this period.
pub fn scan(
    dir: &Path,
    since: Option<Ms>,
    until: Option<Ms>,
    sink: &mut dyn FnMut(&Record<'_>),
) -> Result<bool, String> {
    let told = |error: std::io::Error| {
        format!("{}: {error}; there is a history only if [history] is on and a server has run", dir.display())
    };
    let reader = stentor_history::Reader::open(dir).map_err(told)?;
    let seen = reader
        .scan(since.unwrap_or(0), until.unwrap_or(Ms::MAX), &mut |record| {
            sink(record);
            ControlFlow::Continue(())
        })
        .map_err(told)?;
    if seen.damaged > 0 {
        eprintln!("stentor: {}: records missing: {} damaged places", dir.display(), seen.damaged);
    }
    Ok(seen.damaged == 0)
}

pub fn now() -> Ms {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
