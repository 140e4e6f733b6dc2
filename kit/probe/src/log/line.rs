//! One line of the report: a cell and what its runs came to.

use stentor_measure::{Cell as TableCell, Histogram, Spread};

use super::plan::{Cell, word};
use super::run::LogMeasurement;
use crate::trouble::show_bytes;

pub const US: f64 = 1000.0;

/// A cell and what it came to in the counted runs.
pub struct Line {
    pub cell: Cell,
    pub runs: Vec<LogMeasurement>,
    /// Why there is nothing.
    pub missing: Option<String>,
}

/// Medians and spreads of a line's runs.
impl Line {
    fn each(&self, figure: impl Fn(&LogMeasurement) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(figure).collect()
    }

    pub fn spread(&self, decimals: u8, figure: impl Fn(&LogMeasurement) -> Option<f64>) -> TableCell {
        TableCell::spread(self.each(figure), decimals)
    }

    pub fn all_of(&self, figure: impl Fn(&LogMeasurement) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.each(figure))
    }

    pub fn middle(&self, figure: impl Fn(&LogMeasurement) -> Option<f64>) -> Option<f64> {
        self.all_of(figure).map(|spread| spread.median)
    }

    pub fn median(&self, decimals: u8, figure: impl Fn(&LogMeasurement) -> Option<f64>) -> TableCell {
        self.middle(figure).map_or(TableCell::Missing, |median| TableCell::Number(median, decimals))
    }

    pub fn records_per_s(&self) -> Option<f64> {
        self.middle(per_second(|run| run.records as f64))
    }

    pub fn percentile(&self, of: impl Fn(&LogMeasurement) -> &Histogram, share: f64) -> TableCell {
        self.median(1, |run| Some(of(run).percentile(share) as f64 / US))
    }

    /// The greatest of all counted runs.
    pub fn longest(&self, of: impl Fn(&LogMeasurement) -> &Histogram) -> TableCell {
        let greatest = self.runs.iter().map(|run| of(run).greatest()).max();
        greatest.map_or(TableCell::Missing, |ns| TableCell::Number(ns as f64 / US, 1))
    }

    pub fn key(&self) -> Vec<TableCell> {
        let cell = &self.cell;
        vec![TableCell::text(cell.file_word()), TableCell::text(word(cell.way)), TableCell::text(cell.sync_word())]
    }
}

pub fn per_second(figure: impl Fn(&LogMeasurement) -> f64) -> impl Fn(&LogMeasurement) -> Option<f64> {
    move |run| (run.seconds > 0.0).then(|| figure(run) / run.seconds)
}

pub fn chart_key(cell: &Cell) -> String {
    format!("{} {} {} {}", show_bytes(cell.record_bytes), word(cell.way), cell.file_word(), cell.sync_word())
}
