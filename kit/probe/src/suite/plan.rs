//! The selection of each measurement: short or thorough.

use clap::{Args, Command};
use stentor_measure::MeasureError;

use crate::fs::FsArgs;
use crate::ipc::IpcArgs;
use crate::kv::KvArgs;
use crate::log::LogArgs;
use crate::raw::RawArgs;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub runs: u32,
    pub thorough: bool,
}

/// Records of all figures that are compared.
pub const RECORD_BYTES: &str = "4096";
/// Writers that share a committer, and processes that work on queue files (`fs` has as many without being told).
pub const WRITERS: &str = "20";
/// Records of a large commit.
pub const MANY: &str = "100";

impl Plan {
    fn runs(self) -> String {
        format!("--quiet --runs {}", self.runs)
    }

    fn log_sizes(self) -> (&'static str, &'static str) {
        if self.thorough { ("512,4K,64K", "0.5") } else { ("4K", "0.1") }
    }

    /// Plain files.
    pub fn log(self, directory: &str) -> Result<LogArgs, MeasureError> {
        let (sizes, seconds) = self.log_sizes();
        let line = format!(
            "--record-bytes {sizes} --per-sync 1,10,{MANY} --file growing,recycled --way pwrite --writers {WRITERS} \
             --group-record-bytes 4K --seconds {seconds} --file-mib 64 {}",
            self.runs()
        );
        parsed(&line, Some(directory))
    }

    /// Stentor's journal, by one writer: a journal for each of many would need gigabytes.
    pub fn journal(self, directory: &str) -> Result<LogArgs, MeasureError> {
        let (sizes, seconds) = self.log_sizes();
        let line = format!(
            "--record-bytes {sizes} --per-sync 1,10,{MANY} --way journal --writers 0 --seconds {seconds} {}",
            self.runs()
        );
        parsed(&line, Some(directory))
    }

    pub fn fs(self, directory: &str) -> Result<FsArgs, MeasureError> {
        let (files, seconds) = if self.thorough { (3000, "1") } else { (500, "0.2") };
        parsed(&format!("--files {files} --seconds {seconds} {}", self.runs()), Some(directory))
    }

    pub fn kv(self, directory: &str) -> Result<KvArgs, MeasureError> {
        let (records, seconds) = if self.thorough { (10_000, "0.4") } else { (1500, "0.06") };
        let lots = if self.thorough { "1,10,100" } else { "1,100" };
        let line = format!(
            "--records {records} --seconds {seconds} --per-transaction {lots} --record-bytes 4K {}",
            self.runs()
        );
        parsed(&line, Some(directory))
    }

    pub fn raw(self, directory: &str) -> Result<RawArgs, MeasureError> {
        let (blocks, seconds, mib) = if self.thorough { ("4K,64K,1M", "0.4", 128) } else { ("4K,1M", "0.1", 64) };
        let line = format!("--block-bytes {blocks} --seconds {seconds} --file-mib {mib} {}", self.runs());
        parsed(&line, Some(directory))
    }

    pub fn ipc(self) -> Result<IpcArgs, MeasureError> {
        let (sizes, seconds) = if self.thorough { ("32,512,4K,16K,64K", "0.1") } else { ("32,4K,64K", "0.05") };
        parsed(&format!("--bytes {sizes} --seconds {seconds} {}", self.runs()), None)
    }
}

/// Options as if they had been given on the command line, so that all others have their defaults.
fn parsed<A: Args>(line: &str, directory: Option<&str>) -> Result<A, MeasureError> {
    let command = A::augment_args(Command::new("suite").no_binary_name(true));
    // The directory first, after which nothing is an option by its looks.
    let words = line.split_whitespace().map(str::to_owned).chain(directory.map(|_| "--".to_owned()));
    let matches = command.try_get_matches_from(words.chain(directory.map(str::to_owned)));
    matches
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| MeasureError::Refused(format!("the suite's own options: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_all_parts_are_theirs() {
        for thorough in [false, true] {
            let plan = Plan { runs: 2, thorough };
            let directory = "/tmp/a directory";
            assert_eq!(plan.log(directory).unwrap().output.runs, 2);
            assert!(plan.journal(directory).is_ok());
            assert_eq!(plan.fs("-odd").unwrap().directory.to_str(), Some("-odd"));
            assert_eq!(plan.kv(directory).unwrap().directory.to_str(), Some(directory));
            assert!(plan.raw(directory).unwrap().output.quiet);
            assert!(plan.ipc().is_ok());
        }
    }
}
