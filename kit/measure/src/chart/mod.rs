//! Charts of measurements, built from the parts of `stentor-plot`. Everything drawn is in the tables too.
//!
//! Promise: whatever the values and however long the labels, there is a picture: a missing number has no bar and no
//! point, labels are wrapped or cut with `…`, and texts do not overlap. Bars are vertical where their labels fit below
//! them, otherwise horizontal. Measured values are not negative; negative ones get no bar. At most [`ROWS_MAX`] rows
//! are drawn, and the picture says how many are missing.
//!
//! The height follows from the content; the width is the caller's: a page has a wide and a narrow version of each.

mod bars;
mod frame;
mod heat;
mod lines;
#[cfg(test)]
mod tests;
mod waterfall;

use stentor_plot::{Canvas, Format, PlotError, Size, Theme};

use self::lines::Axis;

/// Width of a picture in a file of its own.
pub const WIDTH: u32 = 960;
/// Narrower ones have no room for what they are to show.
const WIDTH_MIN: u32 = 280;
const WIDTH_MAX: u32 = 4000;
/// Bars that lie, rows of a heat map, spans.
pub const ROWS_MAX: usize = 300;

/// A picture of a report.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// Lower case with hyphens, unique in its report: a part of its file's name.
    pub name: String,
    pub title: String,
    pub kind: Kind,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Groups of bars side by side: one bar a series in each group.
    Bars { unit: String, groups: Vec<String>, series: Vec<Series> },
    /// One bar a group, whose parts are the series, bottom first; as shares of the whole if `is_share`.
    Stacked { unit: String, groups: Vec<String>, series: Vec<Series>, is_share: bool },
    /// Lines over a common x axis; each logarithmic on request.
    Lines { x_unit: String, y_unit: String, log_x: bool, log_y: bool, lines: Vec<Line> },
    /// Rows over columns; None is no value. Darker is more. `unit` is the values'.
    Heat {
        unit: String,
        x_unit: String,
        y_unit: String,
        columns: Vec<String>,
        rows: Vec<String>,
        values: Vec<Vec<Option<f64>>>,
    },
    /// Spans on a common time axis, one a row: from system call to device and back. `groups` are all that there may be,
    /// so that each has the colour that it has in a chart with series of the same order.
    Waterfall { unit: String, groups: Vec<String>, spans: Vec<Span> },
}

/// One value a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    pub name: String,
    pub values: Vec<f64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// The row's text.
    pub label: String,
    /// Spans of a group have one colour (a layer).
    pub group: String,
    pub depth: u32,
    pub start: f64,
    pub end: f64,
}

impl Chart {
    /// The bytes of its file.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, PlotError> {
        self.render_to(WIDTH, format)
    }

    /// The same, so many pixels wide (280 to 4000).
    pub fn render_to(&self, width: u32, format: Format) -> Result<Vec<u8>, PlotError> {
        let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
        let sketch = self.sketch(width.cast_signed());
        let height = sketch.height.max(1).cast_unsigned();
        stentor_plot::draw(Size { width, height }, format, Theme::LIGHT, |canvas| (sketch.paint)(canvas))
    }

    fn sketch(&self, width: i32) -> Sketch<'_> {
        match &self.kind {
            Kind::Bars { unit, groups, series } => bars::grouped(&self.title, unit, groups, series, width),
            Kind::Stacked { unit, groups, series, is_share } => {
                bars::stacked(&self.title, unit, groups, series, *is_share, width)
            }
            Kind::Lines { x_unit, y_unit, log_x, log_y, lines } => {
                let (x_axis, y_axis) = (Axis { unit: x_unit, is_log: *log_x }, Axis { unit: y_unit, is_log: *log_y });
                lines::sketch(&self.title, x_axis, y_axis, lines, width)
            }
            Kind::Heat { unit, x_unit, y_unit, columns, rows, values } => {
                heat::sketch(&self.title, [unit, x_unit, y_unit], columns, rows, values, width)
            }
            Kind::Waterfall { unit, groups, spans } => waterfall::sketch(&self.title, unit, groups, spans, width),
        }
    }
}

/// What is to be painted, once its height is known.
struct Sketch<'c> {
    height: i32,
    paint: Box<dyn FnOnce(&mut Canvas<'_>) + 'c>,
}

/// What can be drawn of a value: nothing of what is no number.
fn sound(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}
