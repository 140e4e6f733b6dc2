//! Charts of mail as SVG and PNG: the same picture for the command line, the console and reports.
//!
//! Promise: no files, no clock, no system fonts; the picture depends only on its input. `axis` and `parts` know nothing
//! about mail; `day` uses them to draw a day, `sums` to draw the rows of a table.
//!
//! Coordinates are pixels from the upper left corner; a PNG may be drawn at twice that size (`Format::Png { scale }`),
//! with letters and lines as sharp as the display.

pub mod axis;
pub mod canvas;
pub mod day;
pub mod parts;
pub mod sums;
pub mod theme;

pub use canvas::{Canvas, Format, PlotError, Size, draw};
pub use theme::{Colour, Theme};
