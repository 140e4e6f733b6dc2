//! Where the records come from: logs, or the history of a server of ours.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use stentor_stats::record::{Ms, Record};

use crate::foreign::{self, From};

#[derive(Args)]
pub struct Input {
    #[command(flatten)]
    pub from: From,
    /// The configuration of the server whose history is read, unless --from names logs.
    #[arg(long, short, value_name = "FILE", conflicts_with = "files")]
    pub config: Option<PathBuf>,
    /// The history's directory itself.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "config"])]
    pub dir: Option<PathBuf>,
}

impl Input {
    /// All records, those before and behind these times may be left out. Says whether all could be read; what could not
    /// is told on standard error.
    pub fn each(
        &self,
        since: Option<Ms>,
        until: Option<Ms>,
        sink: &mut dyn FnMut(&Record<'_>),
    ) -> Result<bool, String> {
        let _ = (since, until);
        let fedback = foreign::feed(&self.from, sink)?;
        fedback.tell();
        Ok(!fedback.failed)
    }
}

pub fn now() -> Ms {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
