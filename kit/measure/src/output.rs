//! Writes a report to standard output, and with `--out` to a folder as JSON, CSV and pictures.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::{Args, ValueEnum};
use stentor_plot::{Format, PlotError};

use crate::progress::Progress;
use crate::report::Report;

/// Why a measurement gave no result. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("standard output: {0}")]
    Output(std::io::Error),
    #[error("{0}")]
    Plot(#[from] PlotError),
    /// One that was started for the measurement.
    #[error("a helper process failed: {0}")]
    Process(std::io::Error),
    /// Bad options, or something that this machine does not have; with the remedy.
    #[error("{0}")]
    Refused(String),
    #[error("stopped by a signal; temporary files were removed")]
    Stopped,
}

/// What a shell has for a command that a signal ended.
const INTERRUPTED: u8 = 130;
const FAILED: u8 = 1;

impl MeasureError {
    /// Of the process.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, MeasureError::Stopped) { INTERRUPTED } else { FAILED }
    }

    /// For `map_err` where a path is at hand.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> MeasureError {
        let path = path.into();
        move |source| MeasureError::File { path, source }
    }
}

/// Our standard error, as the standard output of what we run.
pub fn own_error_output() -> Result<Stdio, MeasureError> {
    io::stderr().as_fd().try_clone_to_owned().map(Stdio::from).map_err(MeasureError::file("standard error"))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Picture {
    Svg,
    Png,
}

/// Options that every measuring command has.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Number of counted runs after one warm-up run. 1: a single run without warm-up.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write NAME.json, one CSV file per table and the charts to this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw charts into the folder of `--out`, or the current one.
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "svg", value_name = "FORMAT")]
    pub plot: Option<Picture>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Print no progress on standard error.
    #[arg(long, short)]
    pub quiet: bool,
}

impl OutputArgs {
    pub fn progress(&self) -> Progress {
        Progress::new(self.quiet)
    }

    /// Before the work: whether its results can be written, so that it is not done in vain. Makes the folder of
    /// `--out`.
    pub fn ready(&self) -> Result<(), MeasureError> {
        if let Some(out) = &self.out {
            fs::create_dir_all(out).map_err(MeasureError::file(out))?;
        }
        if self.out.is_none() && self.plot.is_none() {
            return Ok(());
        }
        check_folder(&self.folder())
    }

    fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    /// Prints the report, and writes and draws it as the options say. What cannot be written is printed all the same. A
    /// reader that wants no more (`| head`) is no failure.
    pub fn finish(&self, report: &Report) -> Result<(), MeasureError> {
        let mut report = report.clone();
        if report.parameters.iter().all(|(name, _)| name != "runs") {
            report.parameter("runs", self.runs);
        }
        let written = self.write(&report);
        let text =
            if self.json { format!("{}\n", report.to_json()) } else { report.to_text_within(terminal_columns()) };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(MeasureError::Output(error)),
            _ => {}
        }
        let written = written?;
        if !self.quiet && !written.is_empty() {
            let paths: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
            eprintln!("written: {}", paths.join(", "));
        }
        Ok(())
    }

    /// The files alone; their paths.
    pub fn write(&self, report: &Report) -> Result<Vec<PathBuf>, MeasureError> {
        let mut written = Vec::new();
        let folder = self.folder();
        let mut put = |name: String, bytes: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(MeasureError::file(&path))?;
            written.push(path);
            Ok::<_, MeasureError>(())
        };
        if self.out.is_some() {
            fs::create_dir_all(&folder).map_err(MeasureError::file(&folder))?;
            put(format!("{}.json", report.name), format!("{:#}\n", report.to_json()).as_bytes())?;
            for table in report.all_tables() {
                put(format!("{}-{}.csv", report.name, table.name), table.to_csv().as_bytes())?;
            }
        }
        if let Some(picture) = self.plot {
            for chart in &report.charts {
                let (format, ending) = match picture {
                    Picture::Svg => (Format::Svg, "svg"),
                    Picture::Png => (Format::Png { scale: 2 }, "png"),
                };
                put(format!("{}-{}.{ending}", report.name, chart.name), &chart.render(format)?)?;
            }
        }
        Ok(written)
    }
}

/// Refuses a folder in which no file can be made: asking for permission would not tell of a read-only or a full file
/// system.
pub fn check_folder(folder: &Path) -> Result<(), MeasureError> {
    let trial = folder.join(format!(".stentor-{}", std::process::id()));
    fs::write(&trial, "x").and_then(|()| fs::remove_file(&trial)).map_err(|why| {
        MeasureError::Refused(format!("cannot write to {}: {why}; choose another folder", folder.display()))
    })
}

/// Of the terminal that standard output is; none if it is a file or a pipe, where lines may be long.
pub fn terminal_columns() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(out: Option<PathBuf>) -> OutputArgs {
        OutputArgs { runs: 1, out, plot: None, json: false, quiet: true }
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        options(Some(below.clone())).ready().unwrap();
        assert!(below.is_dir());
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let why = options(Some(file.clone())).ready().unwrap_err();
        assert!(why.to_string().contains("file"), "{why}");
        // procfs takes no files, whoever asks.
        assert!(options(Some(PathBuf::from("/proc/self/fdinfo"))).ready().is_err());
        options(None).ready().unwrap();
    }

    #[test]
    fn who_was_stopped_by_a_signal_says_so_to_the_shell() {
        assert_eq!((MeasureError::Stopped.exit_code(), MeasureError::Refused(String::new()).exit_code()), (130, 1));
    }
}
