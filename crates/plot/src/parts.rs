//! Bars, lines, marks, heat maps, legends.

use crate::axis::Scale;
use crate::canvas::{self, Align, Area, Canvas, pixels};
use crate::theme::Colour;

/// The edges of a bar among many, so that neighbours neither overlap nor leave a gap.
pub fn span(area: &Area, index: usize, count: usize) -> (i32, i32) {
    let width = i64::from(area.width);
    let edge = |index: usize| area.x + (i64::from(pixels(index)) * width / i64::from(pixels(count.max(1)))) as i32;
    (edge(index), edge(index + 1))
}

/// Bars up from the area's lower edge.
pub fn bars(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale, values: &[f64], colour: Colour) {
    for (index, value) in values.iter().enumerate() {
        let height = scale.height(*value, area.height);
        let (x, right) = span(area, index, values.len());
        canvas.fill(Area { x, y: area.bottom() - height, width: (right - x).max(1), height }, colour);
    }
}

/// Bars down from the area's upper edge.
pub fn hanging(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale, values: &[f64], colour: Colour) {
    for (index, value) in values.iter().enumerate() {
        let height = scale.height(*value, area.height);
        let (x, right) = span(area, index, values.len());
        canvas.fill(Area { x, y: area.y, width: (right - x).max(1), height }, colour);
    }
}

/// A line through the ends (with `middle` the middles) of the values' spans; it breaks where a value is missing.
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

/// Places for marks at these shares (0 to 1, ascending) of a width: column and row, so that no two touch. A mark is a
/// pixel wide, and there is a pixel at least between it and the next; a crowd spreads over the rows and to the right.
/// `None` beyond the right end.
pub fn mark_places(shares: &[f64], width: i32, rows: usize) -> Vec<Option<(i32, usize)>> {
    let mut free = vec![0; rows.max(1)];
    shares
        .iter()
        .map(|share| {
            let wanted = ((share.clamp(0.0, 1.0) * f64::from(width)) as i32).min(width - 1);
            // The uppermost of those where it stands nearest to its time.
            let (row, x) = free
                .iter()
                .map(|free| wanted.max(*free))
                .enumerate()
                .min_by_key(|(_, x)| *x)
                .filter(|(_, x)| *x < width)?;
            free[row] = x + 2;
            Some((x, row))
        })
        .collect()
}

/// Marks in rows within the area; returns how many did not fit.
pub fn marks(canvas: &mut Canvas<'_>, area: &Area, row_height: i32, shares: &[f64], colour: Colour) -> usize {
    let rows = (area.height / row_height.max(1)).max(1) as usize;
    let places = mark_places(shares, area.width, rows);
    for (x, row) in places.iter().flatten() {
        let y = area.y + pixels(*row) * row_height;
        canvas.fill(Area { x: area.x + x, y, width: 1, height: row_height - 1 }, colour);
    }
    places.iter().filter(|place| place.is_none()).count()
}

/// A heat map of values, row by row from above, by their shares (0 to 1); `None` stays empty.
pub fn heat(canvas: &mut Canvas<'_>, area: &Area, columns: usize, values: &[Option<f64>]) {
    let rows = values.len().div_ceil(columns.max(1));
    let turned = Area { x: area.y, y: area.x, width: area.height, height: area.width };
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let (x, right) = span(area, index % columns.max(1), columns);
        let (y, bottom) = span(&turned, index / columns.max(1), rows);
        let colour = canvas.theme.heat(*value);
        // A pixel between fields, where there is room for it.
        let gap = |size: i32| if size > 4 { size - 1 } else { size };
        canvas.fill(Area { x, y, width: gap(right - x), height: gap(bottom - y) }, colour);
    }
}

/// Names beside patches of their colours, from right to left; where it ended.
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

/// Rows of a legend that starts at the left: the place (column, row) of each entry, and the number of rows.
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

/// Names beside patches of their colours from left to right, in rows where one is too narrow. `at` is the middle of the first
/// row's left end.
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
    fn marks_never_merge() {
        // All at once, evenly, at the end.
        let crowds: [Vec<f64>; 3] = [vec![0.5; 40], (0..700).map(|n| f64::from(n) / 700.0).collect(), vec![1.0; 5]];
        for shares in crowds {
            let places = mark_places(&shares, 720, 3);
            let mut taken: Vec<(usize, i32)> = places.iter().flatten().map(|(x, row)| (*row, *x)).collect();
            taken.sort_unstable();
            assert!(taken.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[1].1 - pair[0].1 >= 2), "{taken:?}");
            assert!(taken.iter().all(|(_, x)| (0..720).contains(x)));
            // Nobody stands before its time.
            for (place, share) in places.iter().zip(&shares) {
                let Some((x, _)) = place else { continue };
                assert!(f64::from(*x) >= share * 719.0 - 1.0);
            }
        }
        let crowd = mark_places(&[0.5; 40], 720, 4);
        assert!(crowd.iter().all(|place| matches!(place, Some((360..=378, _)))), "{crowd:?}");
        assert_eq!(mark_places(&[1.0; 5], 720, 4).iter().flatten().count(), 4, "no room beyond the end");
        assert_eq!(mark_places(&[0.1, 0.2, 0.3], 720, 3), [Some((72, 0)), Some((144, 0)), Some((216, 0))]);
    }
}
