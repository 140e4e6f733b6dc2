//! Bars side by side or stacked, vertical or horizontal.

use stentor_plot::axis::{Range, short};
use stentor_plot::canvas::{self, Align, Area, Canvas, pixels};
use stentor_plot::{Colour, Theme};

use super::frame::{self, Head, MARGIN, TEXT, TEXT_ROW, room};
use super::{ROWS_MAX, Series, Sketch, sound};

const PLOT: i32 = 300;
const TICKS: u32 = 5;
const BAR_MAX: i32 = 64;
/// Below this a bar that stands would be a line.
const BAR_MIN: i32 = 7;
const LYING_BAR: i32 = 16;
const LABEL_LINES_MAX: usize = 3;
/// Part of the width that labels of lying bars may take.
const LABEL_PART: i32 = 3;

/// What is drawn for a group: bars beside each other, each of one or of several parts.
struct Bar {
    parts: Vec<(f64, Colour)>,
    /// At its end.
    text: String,
}

/// A part of a bar, in pixels from its beginning.
struct Part {
    from: i32,
    to: i32,
    value: f64,
    colour: Colour,
}

struct Group {
    label: String,
    bars: Vec<Bar>,
}

struct Plot<'c> {
    head: Head<'c>,
    groups: Vec<Group>,
    range: Range,
    bars: usize,
    /// Percent in the parts themselves.
    is_share: bool,
    width: i32,
    more: usize,
}

pub fn grouped<'c>(title: &str, unit: &str, groups: &[String], series: &'c [Series], width: i32) -> Sketch<'c> {
    let theme = Theme::LIGHT;
    let value = |group: usize, series: &Series| series.values.get(group).copied().and_then(sound);
    let bar = |group: usize, at: usize| match value(group, &series[at]) {
        Some(value) => Bar { parts: vec![(value, theme.series_colour(at))], text: short(value) },
        None => Bar { parts: Vec::new(), text: "-".to_owned() },
    };
    let all = groups.iter().enumerate().map(|(group, label)| Group {
        label: label.clone(),
        bars: (0..series.len()).map(|at| bar(group, at)).collect(),
    });
    plot(title, unit, all.collect(), series, false, width)
}

pub fn stacked<'c>(
    title: &str,
    unit: &str,
    groups: &[String],
    series: &'c [Series],
    is_share: bool,
    width: i32,
) -> Sketch<'c> {
    let theme = Theme::LIGHT;
    let all = groups.iter().enumerate().map(|(group, label)| {
        let values: Vec<f64> =
            series.iter().map(|s| s.values.get(group).copied().and_then(sound).unwrap_or(0.0)).collect();
        let sum: f64 = values.iter().sum();
        let factor = if !is_share {
            1.0
        } else if sum > 0.0 && sum.is_finite() {
            100.0 / sum
        } else {
            0.0
        };
        let parts = values.iter().enumerate().map(|(at, value)| (value * factor, theme.series_colour(at)));
        let text = match is_share {
            true if sum > 0.0 => String::new(),
            true => "-".to_owned(),
            false => short(sum),
        };
        Group { label: label.clone(), bars: vec![Bar { parts: parts.collect(), text }] }
    });
    let unit = match (is_share, unit) {
        (false, unit) => unit.to_owned(),
        (true, "" | "%") => "share in %".to_owned(),
        (true, unit) => format!("share of {unit} in %"),
    };
    plot(title, &unit, all.collect(), series, is_share, width)
}

fn plot<'c>(
    title: &str,
    unit: &str,
    mut groups: Vec<Group>,
    series: &'c [Series],
    is_share: bool,
    width: i32,
) -> Sketch<'c> {
    if groups.is_empty() || series.is_empty() {
        return frame::empty(title, width);
    }
    let bars = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1);
    let more = groups.len().saturating_sub((ROWS_MAX / bars).max(1));
    groups.truncate(groups.len() - more);
    let entries = series.iter().enumerate().map(|(at, one)| (one.name.as_str(), Theme::LIGHT.series_colour(at)));
    let head = Head::new(title, unit, entries.collect(), width);
    let sums = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.parts.iter().map(|(value, _)| value).sum());
    let range = Range::from_zero(if is_share { 100.0 } else { sums.fold(0.0, f64::max) }, TICKS);
    let plot = Plot { head, groups, range, bars, is_share, width, more };
    match plot.standing() {
        Some(labels) => plot.upright(labels),
        None => plot.lying(),
    }
}

impl<'c> Plot<'c> {
    fn area_standing(&self) -> Area {
        let left = MARGIN + frame::ticks_width(&self.range, TICKS);
        // Room for a value above the highest bar.
        Area { x: left, y: self.head.bottom + TEXT_ROW, width: self.width - left - MARGIN, height: PLOT }
    }

    /// Gap between groups and width of a bar.
    fn measures(&self, slot: i32) -> (i32, i32) {
        let gap = (slot / 4).clamp(4, 60);
        (gap, ((slot - gap) / pixels(self.bars)).min(BAR_MAX))
    }

    /// The broken labels, where all fit below upright bars and the bars are not too thin.
    fn standing(&self) -> Option<Vec<Vec<String>>> {
        let slot = self.area_standing().width / pixels(self.groups.len());
        let (_, bar) = self.measures(slot);
        if bar < BAR_MIN || self.more > 0 {
            return None;
        }
        // Values must have room above their bars, else lying bars show them better.
        let widest = self.groups.iter().flat_map(|group| &group.bars).map(|bar| room(&bar.text, TEXT - 1)).max();
        if widest.unwrap_or(0) > bar + 2 {
            return None;
        }
        let labels = self.groups.iter().map(|group| {
            let lines = canvas::wrapped(&group.label, TEXT, slot - 8, LABEL_LINES_MAX);
            (!lines.iter().any(|line| line.ends_with('…'))).then_some(lines)
        });
        labels.collect()
    }

    fn upright(self, labels: Vec<Vec<String>>) -> Sketch<'c> {
        let area = self.area_standing();
        let lines = labels.iter().map(Vec::len).max().unwrap_or(1);
        let height = area.bottom() + 8 + TEXT_ROW * pixels(lines) + 8;
        let paint = move |canvas: &mut Canvas<'_>| {
            self.head.paint(canvas);
            frame::left_axis(canvas, &area, &self.range, TICKS);
            let slot = area.width / pixels(self.groups.len());
            let (_, bar) = self.measures(slot);
            for (at, (group, label)) in self.groups.iter().zip(&labels).enumerate() {
                let middle = area.x + slot * pixels(at) + slot / 2;
                let first = middle - bar * pixels(group.bars.len()) / 2;
                for (index, one) in group.bars.iter().enumerate() {
                    self.stand(canvas, &area, first + bar * pixels(index), bar, one);
                }
                for (row, line) in label.iter().enumerate() {
                    let at = (middle, area.bottom() + 14 + TEXT_ROW * pixels(row));
                    let colour = canvas.theme.text;
                    canvas.text(line, at, TEXT, Align::Centre, colour);
                }
            }
            let axis = canvas.theme.axis;
            canvas.horizontal(area.x, area.right(), area.bottom(), axis);
        };
        Sketch { height, paint: Box::new(paint) }
    }

    fn stand(&self, canvas: &mut Canvas<'_>, area: &Area, x: i32, bar: i32, one: &Bar) {
        let mut y = area.bottom();
        let thickness = if bar > 4 { bar - 1 } else { bar };
        for part in self.ends(&one.parts, area.height) {
            let field = Area { x, y: area.bottom() - part.to, width: thickness, height: part.to - part.from };
            canvas.fill(field, part.colour);
            self.percent(canvas, &field, &part);
            y = field.y;
        }
        let colour = canvas.theme.text;
        canvas.text(&one.text, (x + thickness / 2, y - 8), TEXT - 1, Align::Centre, colour);
    }

    /// Where each part begins and ends along a bar of this length; what is not zero has a pixel.
    fn ends(&self, parts: &[(f64, Colour)], length: i32) -> Vec<Part> {
        let place = |value: f64| (self.range.share(value).unwrap_or(1.0) * f64::from(length)).round() as i32;
        let (mut sum, mut from, mut ends) = (0.0, 0, Vec::new());
        for &(value, colour) in parts.iter().filter(|(value, _)| *value > 0.0) {
            sum += value;
            let to = place(sum).max(from + 1).min(length.max(from));
            ends.push(Part { from, to, value, colour });
            from = to;
        }
        ends
    }

    /// Of a whole that is a hundred percent, where it fits.
    fn percent(&self, canvas: &mut Canvas<'_>, field: &Area, part: &Part) {
        let text = format!("{:.0} %", part.value);
        if self.is_share && room(&text, TEXT - 1) <= field.width - 2 && field.height >= TEXT {
            let at = (field.x + field.width / 2, field.y + field.height / 2);
            let ink = frame::ink(part.colour, canvas.theme);
            canvas.text(&text, at, TEXT - 1, Align::Centre, ink);
        }
    }

    fn label_width(&self) -> i32 {
        let widest = self.groups.iter().map(|group| room(&group.label, TEXT)).max().unwrap_or(0);
        widest.min(self.width / LABEL_PART)
    }

    fn area_lying(&self, height: i32) -> Area {
        let left = MARGIN + self.label_width() + 10;
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let value = bars.map(|bar| room(&bar.text, TEXT - 1)).max().unwrap_or(0) + 8;
        Area { x: left, y: self.head.bottom, width: (self.width - left - value - MARGIN).max(40), height }
    }

    fn lying(self) -> Sketch<'c> {
        let label_width = self.label_width();
        let labels: Vec<Vec<String>> =
            self.groups.iter().map(|group| canvas::wrapped(&group.label, TEXT, label_width, LABEL_LINES_MAX)).collect();
        let rows: Vec<i32> = (self.groups.iter().zip(&labels))
            .map(|(group, label)| (pixels(group.bars.len()) * LYING_BAR).max(pixels(label.len()) * TEXT_ROW) + 10)
            .collect();
        let area = self.area_lying(rows.iter().sum::<i32>() + 6);
        let height = area.bottom() + 30 + if self.more > 0 { TEXT_ROW } else { 0 };
        let paint = move |canvas: &mut Canvas<'_>| {
            self.head.paint(canvas);
            let wanted = (area.width / 90).clamp(2, 6).cast_unsigned();
            frame::bottom_axis(canvas, &area, &self.range, wanted, "");
            let theme = canvas.theme;
            canvas.vertical(area.x, area.y, area.bottom(), theme.axis);
            let mut top = area.y + 6;
            for ((group, label), row) in self.groups.iter().zip(&labels).zip(&rows) {
                let middle = top + (row - 10) / 2;
                let first = middle - (pixels(label.len()) - 1) * TEXT_ROW / 2;
                for (index, line) in label.iter().enumerate() {
                    let at = (area.x - 8, first + pixels(index) * TEXT_ROW);
                    canvas.text(line, at, TEXT, Align::Right, theme.text);
                }
                let first = middle - pixels(group.bars.len()) * LYING_BAR / 2;
                for (index, one) in group.bars.iter().enumerate() {
                    self.lie(canvas, &area, first + pixels(index) * LYING_BAR, one);
                }
                top += row;
            }
            if self.more > 0 {
                let text = format!("and {} more; see the table", self.more);
                canvas.text(&text, (area.x, height - TEXT), TEXT, Align::Left, theme.muted);
            }
        };
        Sketch { height, paint: Box::new(paint) }
    }

    fn lie(&self, canvas: &mut Canvas<'_>, area: &Area, y: i32, one: &Bar) {
        let mut x = area.x;
        for part in self.ends(&one.parts, area.width) {
            let field = Area { x: area.x + part.from, y, width: part.to - part.from, height: LYING_BAR - 2 };
            canvas.fill(field, part.colour);
            self.percent(canvas, &field, &part);
            x = field.right();
        }
        let colour = canvas.theme.text;
        canvas.text(&one.text, (x + 5, y + LYING_BAR / 2 - 1), TEXT - 1, Align::Left, colour);
    }
}
