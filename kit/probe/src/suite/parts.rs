//! The parts measured at each place.

use stentor_measure::{MeasureError, Progress, Report, Stop};

use super::plan::Plan;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Log,
    /// Stentor's journal, measured as a log is.
    Journal,
    Fs,
    Kv,
    Raw,
}

/// The reports of one place.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    pub log: Option<Report>,
    pub journal: Option<Report>,
    pub fs: Option<Report>,
    pub kv: Option<Report>,
    pub raw: Option<Report>,
}

impl Parts {
    pub fn all(&self) -> impl Iterator<Item = &Report> {
        [&self.log, &self.journal, &self.fs, &self.kv, &self.raw].into_iter().flatten()
    }

    pub fn put(&mut self, part: Part, report: Report) {
        let place = match part {
            Part::Log => &mut self.log,
            Part::Journal => &mut self.journal,
            Part::Fs => &mut self.fs,
            Part::Kv => &mut self.kv,
            Part::Raw => &mut self.raw,
        };
        *place = Some(report);
    }
}

impl Part {
    pub const ALL: [Part; 5] = [Part::Log, Part::Journal, Part::Fs, Part::Kv, Part::Raw];

    pub fn name(self) -> &'static str {
        match self {
            Part::Log => "log",
            Part::Journal => "journal",
            Part::Fs => "fs",
            Part::Kv => "kv",
            Part::Raw => "raw",
        }
    }

    pub fn measure(
        self,
        plan: Plan,
        directory: &str,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<Report, MeasureError> {
        let mut report = match self {
            Part::Log => crate::log::measure(&plan.log(directory)?, stop, progress),
            Part::Journal => crate::log::measure(&plan.journal(directory)?, stop, progress),
            Part::Fs => crate::fs::measure(&plan.fs(directory)?, stop, progress),
            Part::Kv => crate::kv::measure(&plan.kv(directory)?, stop, progress),
            Part::Raw => crate::raw::measure(&plan.raw(directory)?, stop, progress),
        }?;
        // Two of them are of `probe log`.
        report.name = format!("probe-{}", self.name());
        if stop.is_set() { Err(MeasureError::Stopped) } else { Ok(report) }
    }
}
