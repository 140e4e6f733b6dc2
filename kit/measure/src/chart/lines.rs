//! Lines over a common axis; each axis is linear or logarithmic.

use stentor_plot::axis::Range;
use stentor_plot::canvas::{self, Area, Canvas};
use stentor_plot::{Colour, Theme};

use super::frame::{self, Head, MARGIN};
use super::{Line, Sketch};

const X_TICKS_APART: i32 = 90;
const Y_TICKS: u32 = 6;

/// An axis of a chart of lines.
#[derive(Clone, Copy)]
pub struct Axis<'c> {
    pub unit: &'c str,
    pub is_log: bool,
}

pub fn sketch<'c>(title: &str, x_axis: Axis<'c>, y_axis: Axis<'_>, lines: &'c [Line], width: i32) -> Sketch<'c> {
    let (Axis { unit: x_unit, is_log: log_x }, Axis { unit: y_unit, is_log: log_y }) = (x_axis, y_axis);
    // What has no place on a logarithmic axis is no reason to stretch the other.
    let points = || {
        let all = lines.iter().flat_map(|line| &line.points).copied();
        all.filter(move |(x, y)| x.is_finite() && y.is_finite() && (!log_x || *x > 0.0) && (!log_y || *y > 0.0))
    };
    let x_range = Range::of(points().map(|(x, _)| x), log_x);
    let most = points().map(|(_, y)| y).fold(0.0, f64::max);
    let lowest = points().map(|(_, y)| y).fold(0.0, f64::min);
    let y_range = match log_y {
        true => Range::of(points().map(|(_, y)| y), true),
        false if lowest < 0.0 => Range::of([lowest, most], false),
        false => Some(Range::from_zero(most, Y_TICKS)),
    };
    let (Some(x_range), Some(y_range)) = (x_range, y_range) else { return frame::empty(title, width) };
    let entries = lines.iter().enumerate().map(|(at, line)| (line.name.as_str(), Theme::LIGHT.series_colour(at)));
    let head = Head::new(title, y_unit, entries.collect(), width);
    let left = MARGIN + frame::ticks_width(&y_range, Y_TICKS);
    let plot_height = (width * 2 / 5).clamp(220, 360);
    let area = Area { x: left, y: head.bottom + 6, width: width - left - MARGIN - 10, height: plot_height };
    let height = area.bottom() + if x_unit.is_empty() { 30 } else { 42 };
    let paint = move |canvas: &mut Canvas<'_>| {
        head.paint(canvas);
        frame::left_axis(canvas, &area, &y_range, Y_TICKS);
        let wanted = (area.width / X_TICKS_APART).clamp(2, 10).cast_unsigned();
        frame::bottom_axis(canvas, &area, &x_range, wanted, x_unit);
        for (at, line) in lines.iter().enumerate() {
            paint_line(canvas, &area, &x_range, &y_range, line, at);
        }
    };
    Sketch { height, paint: Box::new(paint) }
}

/// It breaks where a point has no place.
fn paint_line(canvas: &mut Canvas<'_>, area: &Area, x_range: &Range, y_range: &Range, line: &Line, at: usize) {
    let colour = canvas.theme.series_colour(at);
    let place = |(x, y): (f64, f64)| {
        let (x, y) = (x_range.share(x)?, y_range.share(y)?);
        let across = (x * f64::from(area.width)).round() as i32;
        Some((area.x + across, area.bottom() - (y * f64::from(area.height)).round() as i32))
    };
    let places: Vec<Option<(i32, i32)>> = line.points.iter().map(|point| place(*point)).collect();
    for run in places.split(Option::is_none) {
        let run: Vec<(i32, i32)> = run.iter().copied().flatten().collect();
        canvas.line(&run, 2, colour);
    }
    // Of very many points marks would hide the line.
    if canvas::pixels(places.len()).saturating_mul(8) <= area.width {
        for (x, y) in places.into_iter().flatten() {
            mark(canvas, x, y, at, colour);
        }
    }
}

/// Series differ in their marks too: a square, a diamond, a hollow square, a cross.
fn mark(canvas: &mut Canvas<'_>, x: i32, y: i32, at: usize, colour: Colour) {
    let background = canvas.theme.background;
    let square = |half: i32| Area { x: x - half, y: y - half, width: 2 * half + 1, height: 2 * half + 1 };
    match at % 4 {
        0 => canvas.fill(square(3), colour),
        1 => {
            for row in -4_i32..=4 {
                let half = 4 - row.abs();
                canvas.fill(Area { x: x - half, y: y + row, width: 2 * half + 1, height: 1 }, colour);
            }
        }
        2 => {
            canvas.fill(square(3), colour);
            canvas.fill(square(1), background);
        }
        _ => {
            canvas.fill(Area { x: x - 4, y: y - 1, width: 9, height: 3 }, colour);
            canvas.fill(Area { x: x - 1, y: y - 4, width: 3, height: 9 }, colour);
        }
    }
}
