//! Charts of measurements, made of the parts of `stentor-plot`. What is drawn is in the tables too.

use stentor_plot::{Format, PlotError};

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
    /// Rows over columns; None is no value. Darker is more.
    Heat { x_unit: String, columns: Vec<String>, rows: Vec<String>, values: Vec<Vec<Option<f64>>> },
    /// Spans on a common time axis, one a row: from system call to device and back.
    Waterfall { unit: String, spans: Vec<Span> },
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
        stentor_plot::draw((960, 480), format, stentor_plot::Theme::LIGHT, |canvas| {
            let theme = canvas.theme;
            canvas.bold(&self.title, (16, 20), 16, stentor_plot::canvas::Align::Left, theme.text);
        })
    }
}
