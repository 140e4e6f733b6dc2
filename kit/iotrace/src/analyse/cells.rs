//! Cells and columns that several tables have.

use stentor_measure::{Cell, Column};

use super::operation_runs::OperationRuns;

pub fn us(ns: f64) -> f64 {
    ns / 1000.0
}

pub fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

pub fn head(merged: &OperationRuns<'_>) -> Vec<Cell> {
    vec![Cell::text(merged.place), Cell::text(merged.work.clone())]
}

pub fn columns(more: &[(&'static str, &str)]) -> Vec<Column> {
    let first = [("place", "place"), ("work", "work")];
    first.iter().chain(more).map(|(name, title)| Column::new(*name, *title)).collect()
}
