//! What all charts share: title, unit, legend, and the layout of texts.

use stentor_plot::axis::{Range, TICK_TEXT};
use stentor_plot::canvas::{self, Align, Area, Canvas};
use stentor_plot::{Colour, Theme, parts};

use super::Sketch;

pub const MARGIN: i32 = 16;
const TITLE_TEXT: i32 = 16;
const TITLE_ROW: i32 = 21;
const TITLE_LINES_MAX: usize = 3;
const UNIT_ROW: i32 = 17;
pub const TEXT: i32 = 12;
pub const TEXT_ROW: i32 = 15;
/// Letters of a browser's font may be wider than ours.
const SLACK: f64 = 1.06;

/// Pixels that a text may take at the reader's.
pub fn room(text: &str, size: i32) -> i32 {
    (f64::from(canvas::text_width(text, size, false)) * SLACK).ceil() as i32
}

/// What stands above the plot.
pub struct Head<'c> {
    title: Vec<String>,
    unit: String,
    entries: Vec<(&'c str, Colour)>,
    width: i32,
    /// Where the plot's room begins.
    pub bottom: i32,
}

impl<'c> Head<'c> {
    /// A single series needs no legend: its name stands with the unit.
    pub fn new(title: &str, unit: &str, entries: Vec<(&'c str, Colour)>, width: i32) -> Head<'c> {
        let inner = width - 2 * MARGIN;
        let title = canvas::wrapped(title, TITLE_TEXT + 1, inner, TITLE_LINES_MAX);
        let (unit, entries) = match entries.as_slice() {
            [(name, _)] if name.is_empty() || *name == unit => (unit.to_owned(), Vec::new()),
            [(name, _)] if unit.is_empty() => ((*name).to_owned(), Vec::new()),
            [(name, _)] => (format!("{name}, {unit}"), Vec::new()),
            _ => (unit.to_owned(), entries),
        };
        let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
        let (_, rows) = parts::legend_places(&names, TEXT + 1, inner);
        let mut bottom = 8 + TITLE_ROW * canvas::pixels(title.len());
        bottom += if unit.is_empty() { 0 } else { UNIT_ROW };
        bottom += if rows > 0 { rows * parts::LEGEND_ROW + 4 } else { 0 };
        Head { title, unit: canvas::shortened(&unit, TEXT, inner), entries, width, bottom: bottom + 10 }
    }

    pub fn paint(&self, canvas: &mut Canvas<'_>) {
        let theme = canvas.theme;
        let mut y = 8 + TITLE_ROW / 2;
        for line in &self.title {
            canvas.bold(line, (MARGIN, y), TITLE_TEXT, Align::Left, theme.text);
            y += TITLE_ROW;
        }
        if !self.unit.is_empty() {
            canvas.text(&self.unit, (MARGIN, y - 1), TEXT, Align::Left, theme.muted);
            y += UNIT_ROW;
        }
        // Measured with a larger letter than drawn, for fonts that are wider.
        let inner = self.width - 2 * MARGIN;
        parts::legend_rows(canvas, (MARGIN, y + 2), inner, TEXT + 1, &self.entries);
    }
}

/// A title that says that there is nothing.
pub fn empty<'c>(title: &str, width: i32) -> Sketch<'c> {
    let head = Head::new(title, "", Vec::new(), width);
    let height = head.bottom + 60;
    let paint = move |canvas: &mut Canvas<'_>| {
        head.paint(canvas);
        let at = (width / 2, head.bottom + 20);
        let colour = canvas.theme.muted;
        canvas.text("no data", at, TEXT, Align::Centre, colour);
    };
    Sketch { height, paint: Box::new(paint) }
}

/// Black or white, whichever is read better on it.
pub fn ink(on: Colour, theme: Theme) -> Colour {
    if on.lightness() > 60.0 { theme.text } else { Colour(255, 255, 255, 1.0) }
}

/// Room for the numbers left of a plot.
pub fn ticks_width(range: &Range, wanted: u32) -> i32 {
    range.ticks(wanted).iter().map(|(_, text)| room(text, TICK_TEXT)).max().unwrap_or(0) + 8
}

/// Lines across the area with numbers at their left.
pub fn left_axis(canvas: &mut Canvas<'_>, area: &Area, range: &Range, wanted: u32) {
    let theme = canvas.theme;
    for (share, text) in range.ticks(wanted) {
        let y = area.bottom() - (share * f64::from(area.height)).round() as i32;
        canvas.horizontal(area.x, area.right(), y, theme.grid);
        canvas.text(&text, (area.x - 6, y), TICK_TEXT, Align::Right, theme.muted);
    }
}

/// Lines down the area with numbers below, and the unit under them.
pub fn bottom_axis(canvas: &mut Canvas<'_>, area: &Area, range: &Range, wanted: u32, unit: &str) {
    let theme = canvas.theme;
    let ticks = range.ticks(wanted);
    let texts = ticks.iter().map(|(share, text)| (*share, text.as_str()));
    stentor_plot::axis::bottom(canvas, area, area.bottom() + 13, texts);
    canvas.horizontal(area.x, area.right(), area.bottom(), theme.axis);
    let unit = canvas::shortened(unit, TEXT, area.width);
    canvas.text(&unit, (area.right(), area.bottom() + 13 + TEXT_ROW), TEXT, Align::Right, theme.muted);
}
