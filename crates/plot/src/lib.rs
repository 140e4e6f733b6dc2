//! Charts of mail as SVG and PNG: the same picture for the command line, the console and reports.
//!
//! Promise: no files, no clock, no fonts of the system; what is drawn depends on what is given alone. Parts (`axis`,
//! `parts`) know nothing of mail; `day` is the picture of a day that is made of them.
//!
//! Coordinates are pixels from the upper left corner; a PNG may be drawn at twice that size (`Format::Png { scale }`), with
//! letters and lines as sharp as the display.

pub mod axis;
pub mod canvas;
pub mod day;
pub mod parts;
pub mod theme;

pub use canvas::{Canvas, Format, PlotError, draw};
pub use theme::{Colour, Theme};
