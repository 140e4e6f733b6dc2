//! Parts of charts: bars, lines, marks, heat maps, legends.

use crate::axis::Scale;
use crate::canvas::{self, Align, Area, Canvas, pixels};
use crate::theme::Colour;

/// The smallest visible height of a mark.
const MARK_HEIGHT_MIN: i32 = 3;

/// The edges of one bar among many, such that neighbours neither overlap nor leave a gap.
pub fn span(area: &Area, index: usize, count: usize) -> (i32, i32) {
    let width = i64::from(area.width);
    let edge = |index: usize| area.x + (i64::from(pixels(index)) * width / i64::from(pixels(count.max(1)))) as i32;
    (edge(index), edge(index + 1))
}

/// Draws bars up from the area's lower edge.
pub fn bars(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale, values: &[f64], colour: Colour) {
    for (index, value) in values.iter().enumerate() {
        let height = scale.height(*value, area.height);
        let (x, right) = span(area, index, values.len());
        canvas.fill(Area { x, y: area.bottom() - height, width: (right - x).max(1), height }, colour);
    }
}

/// Draws bars down from the area's upper edge.
pub fn hanging(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale, values: &[f64], colour: Colour) {
    for (index, value) in values.iter().enumerate() {
        let height = scale.height(*value, area.height);
        let (x, right) = span(area, index, values.len());
        canvas.fill(Area { x, y: area.y, width: (right - x).max(1), height }, colour);
    }
}

/// Draws a line through the ends (with `middle` the middles) of the values' spans; it breaks where a value is missing.
pub fn line(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale, values: &[Option<f64>], width: u32, colour: Colour) {
    let mut points: Vec<(i32, i32)> = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if let Some(value) = value {
            let (x, right) = span(area, index, values.len());
            points.push((i32::midpoint(x, right), scale.y(*value, area)));
        } else {
            canvas.line(&points, width, colour);
            points.clear();
        }
    }
    canvas.line(&points, width, colour);
}

/// Draws marks down from the area's upper edge, one for each span with a count: the larger the count the thicker, on a
/// logarithmic scale, and even a count of one is visible.
pub fn marks(canvas: &mut Canvas<'_>, area: &Area, counts: &[u64], colour: Colour) {
    let most = counts.iter().copied().max().unwrap_or(0);
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (x, right) = span(area, index, counts.len());
        // Leave a pixel between neighbours if there is one to spare.
        let width = (right - x - 1).max(1);
        canvas.fill(Area { x, y: area.y, width, height: mark_height(*count, most, area.height) }, colour);
    }
}

fn mark_height(count: u64, most: u64, height: i32) -> i32 {
    let share = (count as f64).ln_1p() / (most.max(1) as f64).ln_1p();
    (share * f64::from(height)).round().clamp(f64::from(MARK_HEIGHT_MIN), f64::from(height.max(MARK_HEIGHT_MIN))) as i32
}

/// Draws a heat map of values, row by row from the top, by their shares (0 to 1); `None` stays empty.
pub fn heat(canvas: &mut Canvas<'_>, area: &Area, columns: usize, values: &[Option<f64>]) {
    let rows = values.len().div_ceil(columns.max(1));
    let turned = Area { x: area.y, y: area.x, width: area.height, height: area.width };
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let (x, right) = span(area, index % columns.max(1), columns);
        let (y, bottom) = span(&turned, index / columns.max(1), rows);
        let colour = canvas.theme.heat(*value);
        // Leave a pixel between fields if there is room for it.
        let gap = |size: i32| if size > 4 { size - 1 } else { size };
        canvas.fill(Area { x, y, width: gap(right - x), height: gap(bottom - y) }, colour);
    }
}

/// Draws names beside patches of their colours, from right to left. Returns where it ended.
pub fn legend(canvas: &mut Canvas<'_>, right: i32, y: i32, size: i32, entries: &[(&str, Colour)]) -> i32 {
    let mut right = right;
    let text = canvas.theme.muted;
    for (name, colour) in entries.iter().rev() {
        right -= canvas.text_width(name, size);
        canvas.text(name, (right, y), size, Align::Left, text);
        right -= 15;
        canvas.fill(Area { x: right, y: y - 5, width: 10, height: 10 }, *colour);
        right -= 14;
    }
    right
}

/// Lays out a legend in rows from the left: the position (column, row) of each entry, and the number of rows.
pub fn legend_places(names: &[&str], size: i32, width: i32) -> (Vec<(i32, i32)>, i32) {
    let (mut x, mut row) = (0, 0);
    let places = names.iter().map(|name| {
        let needed = 15 + canvas::text_width(name, size, false);
        if x > 0 && x + needed > width {
            (x, row) = (0, row + 1);
        }
        let place = (x, row);
        x += needed + 18;
        place
    });
    let places: Vec<(i32, i32)> = places.collect();
    let rows = if places.is_empty() { 0 } else { row + 1 };
    (places, rows)
}

/// Height of a row of [`legend_places`].
pub const LEGEND_ROW: i32 = 19;

/// Draws names beside patches of their colours from left to right, in several rows if one is too narrow. `at` is the
/// middle of the first row's left end.
pub fn legend_rows(canvas: &mut Canvas<'_>, at: (i32, i32), width: i32, size: i32, entries: &[(&str, Colour)]) {
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    let text = canvas.theme.text;
    for ((x, row), (name, colour)) in legend_places(&names, size, width).0.into_iter().zip(entries) {
        let (x, y) = (at.0 + x, at.1 + row * LEGEND_ROW);
        canvas.fill(Area { x, y: y - 5, width: 10, height: 10 }, *colour);
        let name = canvas::shortened(name, size, width - 15);
        canvas.text(&name, (x + 15, y), size, Align::Left, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_the_area_without_gap_or_overlap() {
        let area = Area { x: 7, y: 0, width: 1000, height: 1 };
        for count in [1, 3, 720, 1000, 1440] {
            let spans: Vec<(i32, i32)> = (0..count).map(|index| span(&area, index, count)).collect();
            assert_eq!((spans[0].0, spans[count - 1].1), (7, 1007));
            assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }

    #[test]
    fn a_legend_takes_as_many_rows_as_it_needs() {
        let names = ["create", "write and sync", "rename", "remove"];
        let (places, rows) = legend_places(&names, 12, 2000);
        assert_eq!(rows, 1);
        assert!(places.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let (places, rows) = legend_places(&names, 12, 120);
        assert!(rows > 1 && places.iter().all(|(x, _)| *x < 120), "{places:?}");
        assert_eq!(legend_places(&[], 12, 100), (Vec::new(), 0));
    }

    #[test]
    fn marks_are_thicker_for_more() {
        let heights = [1, 100, 1_000, 1_000_000].map(|count| mark_height(count, 1_000_000, 20));
        assert!(heights.windows(2).all(|pair| pair[0] < pair[1]), "{heights:?}");
        assert_eq!((heights[0], heights[3]), (MARK_HEIGHT_MIN, 20));
        assert_eq!((mark_height(1, 1, 20), mark_height(7, 0, 1)), (20, MARK_HEIGHT_MIN));
    }
}
