//! Draws the rows of `stentor mailstat` as bars: vertical ones in order of time, horizontal ones with names beside
//! them.

use crate::axis::{self, Scale, count};
use crate::canvas::{self, Align, Area, Canvas, pixels};
use crate::parts;

pub const WIDTH: u32 = 960;
pub const HEIGHT: u32 = 300;

/// Number of rows with a name: the busiest.
const NAMES_MAX: usize = 12;
/// Number of names below vertical bars.
const TICKS_MAX: usize = 12;
const MARGIN: i32 = 56;
const TOP: i32 = 30;
const BELOW: i32 = 56;
const FAILED: i32 = 44;
const NAME: i32 = 210;
const TEXT: i32 = 12;

/// One row: recipients delivered, and recipients of failed attempts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    pub name: String,
    pub delivered: u64,
    pub failed: u64,
}

/// Draws the rows. `is_time`: they are consecutive in time, and drawn vertically.
pub fn draw(canvas: &mut Canvas<'_>, rows: &[Sum], is_time: bool) {
    let theme = canvas.theme;
    let right = pixels(WIDTH as usize) - MARGIN / 2;
    parts::legend(canvas, right, 14, TEXT, &[("delivered", theme.bars), ("failed attempts", theme.failures)]);
    if is_time { upright(canvas, rows) } else { lying(canvas, rows) }
}

fn upright(canvas: &mut Canvas<'_>, rows: &[Sum]) {
    let theme = canvas.theme;
    let (width, height) =
        (pixels(WIDTH as usize) - MARGIN - MARGIN / 2, pixels(HEIGHT as usize) - TOP - BELOW - FAILED);
    let area = Area { x: MARGIN, y: TOP, width, height };
    let delivered: Vec<f64> = rows.iter().map(|row| row.delivered as f64).collect();
    let failed: Vec<f64> = rows.iter().map(|row| row.failed as f64).collect();
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let scale = Scale::new(most(&delivered), 4);
    axis::left(canvas, &area, &scale);
    parts::bars(canvas, &area, &scale, &delivered, theme.bars);
    canvas.horizontal(area.x, area.right(), area.bottom(), theme.axis);
    let below = Area { y: area.bottom() + 2, height: FAILED, ..area };
    let scale = Scale::new(most(&failed), 1);
    parts::hanging(canvas, &below, &scale, &failed, theme.failures);
    if most(&failed) > 0.0 {
        canvas.text(&count(scale.max), (below.x - 8, below.bottom() - 4), TEXT, Align::Right, theme.failures);
    }
    let every = rows.len().div_ceil(TICKS_MAX).max(1);
    for (index, row) in rows.iter().enumerate().step_by(every) {
        let (x, end) = parts::span(&area, index, rows.len());
        let room = (area.width / pixels(TICKS_MAX.min(rows.len()))).max(20) - 4;
        let name = canvas::shortened(&row.name, TEXT, room);
        canvas.text(&name, (i32::midpoint(x, end), below.bottom() + 16), TEXT, Align::Centre, theme.muted);
    }
}

fn lying(canvas: &mut Canvas<'_>, rows: &[Sum]) {
    let theme = canvas.theme;
    let shown = &rows[..rows.len().min(NAMES_MAX)];
    let area = Area {
        x: NAME,
        y: TOP,
        width: pixels(WIDTH as usize) - NAME - MARGIN - MARGIN,
        height: pixels(HEIGHT as usize) - TOP - 10,
    };
    let most = shown.iter().map(|row| row.delivered.max(row.failed)).max().unwrap_or(0);
    let length = |value: u64| {
        let length = u128::from(value) * u128::from(area.width.unsigned_abs()) / u128::from(most.max(1));
        i32::try_from(length).unwrap_or(area.width).max(i32::from(value > 0))
    };
    let turned = Area { x: area.y, y: area.x, width: area.height, height: area.width };
    for (index, row) in shown.iter().enumerate() {
        let (y, end) = parts::span(&turned, index, shown.len().max(4));
        let half = ((end - y - 4) / 2).max(2);
        let name = canvas::shortened(&row.name, TEXT, NAME - 20);
        canvas.text(&name, (area.x - 8, y + half), TEXT, Align::Right, theme.text);
        let (delivered, failed) = (length(row.delivered), length(row.failed));
        canvas.fill(Area { x: area.x, y, width: delivered, height: half }, theme.bars);
        canvas.fill(Area { x: area.x, y: y + half, width: failed, height: half }, theme.failures);
        let end = area.x + delivered.max(failed) + 8;
        canvas.text(&count(row.delivered as f64), (end, y + half), TEXT, Align::Left, theme.muted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Size, Theme};

    fn picture(rows: &[Sum], is_time: bool) -> String {
        let size = Size { width: WIDTH, height: HEIGHT };
        let svg = crate::draw(size, Format::Svg, Theme::LIGHT, |canvas| draw(canvas, rows, is_time));
        String::from_utf8(svg.unwrap()).unwrap()
    }

    #[test]
    fn each_row_has_its_bars_and_names_are_shown() {
        let row = |n: u64| Sum { name: format!("Nov 22 {n:02}:00"), delivered: 100 * n, failed: n };
        let rows: Vec<Sum> = (0..24).map(row).collect();
        let svg = picture(&rows, true);
        assert!(svg.matches("<rect").count() >= 2 * 23, "{}", svg.matches("<rect").count());
        assert!(svg.contains("22 00:00") && svg.contains("2,000"), "{svg}");
        let names = [("mx.one.example", 5_000, 7), ("<&>", 20, 0), ("dead.example", 0, 900)];
        let rows: Vec<Sum> = names.map(|(name, delivered, failed)| Sum { name: name.into(), delivered, failed }).into();
        let svg = picture(&rows, false);
        assert!(svg.contains("mx.one.example") && svg.contains("dead.example") && svg.contains("5,000"), "{svg}");
        assert!(!svg.contains("<&>"), "names are escaped");
    }

    #[test]
    fn nothing_and_very_much_are_drawn() {
        for is_time in [true, false] {
            picture(&[], is_time);
            let row = Sum { name: "x".repeat(5_000), delivered: u64::MAX, failed: u64::MAX };
            picture(&vec![row; 1_000], is_time);
        }
    }
}
