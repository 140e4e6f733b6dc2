//! Where a report goes: standard output, and with `--out` a folder with JSON, CSV and pictures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use stentor_plot::{Format, PlotError};

use crate::guardian::{Guarded, Guardian, quoted};
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
    #[error("another process of the measurement: {0}")]
    Process(std::io::Error),
    /// Bad options, or something that this machine does not have; with the remedy.
    #[error("{0}")]
    Refused(String),
    #[error("stopped by a signal; what had been made was removed")]
    Stopped,
}

impl MeasureError {
    /// For `map_err` where a path is at hand.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> MeasureError {
        let path = path.into();
        move |source| MeasureError::File { path, source }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Picture {
    Svg,
    Png,
}

/// Options that every measuring command has.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// So many counted runs; one more goes before them and is dropped. 1: a single run, counted.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write NAME.json, one CSV a table and the pictures into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw it, into the folder of `--out` or else the current one.
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "svg", value_name = "FORMAT")]
    pub plot: Option<Picture>,
    /// Print JSON in place of the tables.
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error.
    #[arg(long, short)]
    pub quiet: bool,
}

impl OutputArgs {
    pub fn progress(&self) -> Progress {
        Progress::new(self.quiet)
    }

    /// Whether files can be written where they are to go: before minutes of measuring, not after.
    pub fn check(&self) -> Result<(), MeasureError> {
        match (&self.out, self.plot) {
            (Some(folder), _) => {
                fs::create_dir_all(folder).map_err(MeasureError::file(folder))?;
                check_folder(folder)
            }
            (None, Some(_)) => check_folder(Path::new(".")),
            (None, None) => Ok(()),
        }
    }

    /// Prints the report, and writes and draws it as the options say; one of them even if the other fails.
    pub fn finish(&self, report: &Report) -> Result<(), MeasureError> {
        let written = self.write(report);
        let text = if self.json { format!("{}\n", report.to_json()) } else { report.to_text() };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(MeasureError::Output)?;
        written.map(drop)
    }

    /// The files alone; their paths.
    pub fn write(&self, report: &Report) -> Result<Vec<PathBuf>, MeasureError> {
        let mut written = Vec::new();
        let folder = self.out.clone().unwrap_or_else(|| PathBuf::from("."));
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

/// Refuses a folder in which no file can be made.
pub fn check_folder(folder: &Path) -> Result<(), MeasureError> {
    let path = folder.join(format!(".stentor-{}", std::process::id()));
    let made = fs::File::create(&path);
    let _ = fs::remove_file(&path);
    made.map(drop)
        .map_err(|error| MeasureError::Refused(format!("no files can be written to {}: {error}", folder.display())))
}

/// A folder of its own under a directory that is to be measured, removed with all that is in it when dropped, and by a
/// [`Guardian`] if this process is killed before.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// None where there is no shell, which is no reason not to measure.
    _guarded: Option<Guarded>,
}

impl Scratch {
    /// The directory must exist: a mistyped one is not to be measured on another disk.
    pub fn make(directory: &Path) -> Result<Scratch, MeasureError> {
        if !directory.is_dir() {
            return Err(MeasureError::Refused(format!("{} is no directory; make it first", directory.display())));
        }
        // The guardian may stand elsewhere.
        let directory = directory.canonicalize().map_err(MeasureError::file(directory))?;
        for number in 0_u32..1000 {
            let path = directory.join(format!("stentor-probe-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch { _guarded: guarded(&path), path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(MeasureError::File { path, source }),
            }
        }
        Err(MeasureError::Refused(format!("{} is full of our leftovers; remove stentor-probe-*", directory.display())))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Twice, since a process of ours may still be ending.
fn guarded(path: &Path) -> Option<Guarded> {
    let path = quoted(path);
    Guardian::start().ok()?.guard(&format!("rm -rf {path} || {{ sleep 1; rm -rf {path}; }}")).ok()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
