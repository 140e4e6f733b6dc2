//! Rows over columns; darker is more.

use stentor_plot::axis::{TICK_TEXT, short};
use stentor_plot::canvas::{self, Align, Area, Canvas, pixels};
use stentor_plot::{Theme, parts};

use super::frame::{self, Head, MARGIN, TEXT, TEXT_ROW, room};
use super::{ROWS_MAX, Sketch, sound};

/// Height of all rows together, where they are not too many or too few.
const PLOT: i32 = 320;
const ROW_MIN: i32 = 4;
const ROW_MAX: i32 = 28;
/// The lightest shade of what is not nothing.
const SHADE_MIN: f64 = 0.06;
const KEY: i32 = 120;
/// So many columns have a label each.
const EACH_LABELLED_MAX: usize = 16;
const LABEL_LINES_MAX: usize = 4;

pub fn sketch<'c>(
    title: &str,
    [unit, x_unit, y_unit]: [&'c str; 3],
    columns: &'c [String],
    rows: &'c [String],
    values: &'c [Vec<Option<f64>>],
    width: i32,
) -> Sketch<'c> {
    let shown = rows.len().min(ROWS_MAX);
    let value = move |row: usize, column: usize| values.get(row)?.get(column).copied().flatten().and_then(sound);
    let most = (0..shown).flat_map(|row| (0..columns.len()).filter_map(move |column| value(row, column)));
    let most = most.fold(0.0, f64::max);
    if shown == 0 || columns.is_empty() {
        return frame::empty(title, width);
    }
    let head = Head::new(title, y_unit, Vec::new(), width);
    let row_height = (PLOT / pixels(shown)).clamp(ROW_MIN, ROW_MAX);
    let labels = rows.iter().map(|label| room(label, TEXT)).max().unwrap_or(0).min(width / 3);
    let left = MARGIN + labels + 8;
    let area = Area {
        x: left,
        y: head.bottom + 22,
        width: (width - left - MARGIN).max(40),
        height: row_height * pixels(shown),
    };
    let more = rows.len() - shown;
    let labels_below = column_labels(&area, columns);
    let label_lines = labels_below.iter().map(|(_, lines)| lines.len()).max().unwrap_or(1);
    let below = area.bottom() + 16 + TEXT_ROW * pixels(label_lines);
    let height = below + if x_unit.is_empty() && more == 0 { 0 } else { TEXT_ROW };
    let paint = move |canvas: &mut Canvas<'_>| {
        head.paint(canvas);
        key(canvas, head.bottom + 6, width, most, unit);
        let theme = canvas.theme;
        let share = |value: f64| if most > 0.0 { value / most } else { 0.0 };
        let shade = |value: f64| if value > 0.0 { share(value).max(SHADE_MIN) } else { 0.0 };
        let fields: Vec<Option<f64>> = (0..shown)
            .flat_map(|row| (0..columns.len()).map(move |column| value(row, column)))
            .map(|value| value.map(shade))
            .collect();
        parts::heat(canvas, &area, columns.len(), &fields);
        row_labels(canvas, &area, &rows[..shown], row_height, labels);
        for (middle, lines) in &labels_below {
            for (at, line) in lines.iter().enumerate() {
                let place = (*middle, area.bottom() + 14 + TEXT_ROW * pixels(at));
                canvas.text(line, place, TEXT, Align::Centre, theme.text);
            }
        }
        numbers(canvas, &area, shown, columns.len(), value, &shade);
        let unit = canvas::shortened(x_unit, TEXT, area.width / 2);
        canvas.text(&unit, (area.right(), below), TEXT, Align::Right, theme.muted);
        if more > 0 {
            canvas.text(&format!("and {more} more rows"), (area.x, below), TEXT, Align::Left, theme.muted);
        }
    };
    Sketch { height, paint: Box::new(paint) }
}

/// What the shades mean.
fn key(canvas: &mut Canvas<'_>, y: i32, width: i32, most: f64, unit: &str) {
    let theme = canvas.theme;
    let text = canvas::shortened(format!("{} {unit}", short(most)).trim_end(), TICK_TEXT, width / 3);
    let right = width - MARGIN - room(&text, TICK_TEXT) - 6;
    canvas.text(&text, (right + 6, y), TICK_TEXT, Align::Left, theme.muted);
    for step in 0..KEY {
        let share = f64::from(step) / f64::from(KEY - 1);
        canvas.fill(Area { x: right - KEY + step, y: y - 5, width: 1, height: 10 }, theme.heat(share));
    }
    canvas.text("0", (right - KEY - 6, y), TICK_TEXT, Align::Right, theme.muted);
}

/// Each, or every second, third ... where rows are lower than text.
fn row_labels(canvas: &mut Canvas<'_>, area: &Area, rows: &[String], row_height: i32, width: i32) {
    let colour = canvas.theme.text;
    let every = (TEXT_ROW as usize).div_ceil(row_height as usize).max(1);
    for (at, label) in rows.iter().enumerate().step_by(every) {
        let y = area.y + pixels(at) * row_height + row_height / 2;
        let text = canvas::shortened(label, TEXT, width);
        canvas.text(&text, (area.x - 8, y), TEXT, Align::Right, colour);
    }
}

/// (middle, lines) of each column's, or of every second, third ... so that they do not touch. Few columns have each a
/// label of several lines; what is still too long is cut.
fn column_labels(area: &Area, columns: &[String]) -> Vec<(i32, Vec<String>)> {
    let slot = (area.width / pixels(columns.len())).max(1);
    let widest = columns.iter().map(|label| room(label, TEXT)).max().unwrap_or(0).min(120) + 10;
    let is_each = columns.len() <= EACH_LABELLED_MAX && slot >= 36;
    let every = if is_each { 1 } else { (widest + slot - 1) / slot };
    let every = usize::try_from(every).unwrap_or(1).max(1);
    let lines_max = if is_each { LABEL_LINES_MAX } else { 1 };
    let labels = columns.iter().enumerate().step_by(every).map(|(at, label)| {
        let (x, right) = parts::span(area, at, columns.len());
        let lines = canvas::wrapped(label, TEXT, slot * pixels(every) - 8, lines_max);
        let half = lines.iter().map(|line| room(line, TEXT)).max().unwrap_or(0) / 2;
        (i32::midpoint(x, right).min(area.right() + MARGIN - half - 2), lines)
    });
    labels.collect()
}

/// In the fields themselves, where all have room for them.
fn numbers(
    canvas: &mut Canvas<'_>,
    area: &Area,
    rows: usize,
    columns: usize,
    value: impl Fn(usize, usize) -> Option<f64>,
    shade: &impl Fn(f64) -> f64,
) {
    let row_height = area.height / pixels(rows);
    let slot = area.width / pixels(columns);
    if row_height < TEXT_ROW || slot < 34 {
        return;
    }
    let theme: Theme = canvas.theme;
    for row in 0..rows {
        for column in 0..columns {
            let Some(value) = value(row, column) else { continue };
            let text = short(value);
            if room(&text, TEXT - 1) > slot - 4 {
                continue;
            }
            let (x, right) = parts::span(area, column, columns);
            let at = (i32::midpoint(x, right), area.y + row_height * pixels(row) + row_height / 2);
            canvas.text(&text, at, TEXT - 1, Align::Centre, frame::ink(theme.heat(shade(value)), theme));
        }
    }
}
