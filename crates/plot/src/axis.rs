//! Scales and their ticks.

use crate::canvas::{Align, Area, Canvas};

/// Maps values to pixels, 0 at the bottom of an area.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    pub max: f64,
    /// Distance between ticks.
    pub step: f64,
}

impl Scale {
    /// A scale from 0 to at least `max`, in roughly `steps` steps of 1, 2 or 5 times a power of ten. Never empty.
    pub fn new(max: f64, steps: u32) -> Scale {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let rough = max / f64::from(steps.max(1));
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| power * factor >= rough * 0.999).unwrap_or(10.0);
        let step = power * factor;
        Scale { max: (max / step - 1e-9).ceil().max(1.0) * step, step }
    }

    /// The pixel of a value; values beyond the scale are placed at its end.
    pub fn y(&self, value: f64, area: &Area) -> i32 {
        let share = (value / self.max).clamp(0.0, 1.0);
        area.bottom() - (share * f64::from(area.height)).round() as i32
    }

    /// The height of a bar; any value above zero gets at least one pixel.
    pub fn height(&self, value: f64, height: i32) -> i32 {
        if value <= 0.0 {
            return 0;
        }
        ((value / self.max).min(1.0) * f64::from(height)).round().max(1.0) as i32
    }

    /// Values with a tick, 0 first.
    pub fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let step = self.step;
        let count = (self.max / step + 0.5) as u32;
        (0..=count).map(move |n| f64::from(n) * step)
    }
}

/// Formats a count briefly, with a unit of a thousand from 10,000 on: `0`, `250`, `1,200`, `40k`, `1.5M`.
pub fn count(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let rounded = value.round();
    for (unit, name) in units {
        // Values that would round to a thousand of the smaller unit use this one.
        if value >= unit * 0.9995 && value >= 10_000.0 {
            let scaled = value / unit;
            let text = if scaled < 100.0 { format!("{scaled:.1}") } else { format!("{scaled:.0}") };
            return format!("{}{name}", text.strip_suffix(".0").unwrap_or(&text));
        }
    }
    if value > 0.0 && value < 10.0 && (value - rounded).abs() > 1e-9 {
        return format!("{value:.1}");
    }
    if rounded >= 1000.0 {
        format!("{},{:03}", rounded as u64 / 1000, rounded as u64 % 1000)
    } else {
        format!("{rounded:.0}")
    }
}

/// Maps values to shares (0 to 1) of an axis, in equal steps or in powers of ten.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    low: f64,
    high: f64,
    log: bool,
}

/// Powers of ten outside these limits are cut off, so that no arithmetic overflows.
const POWER_MIN: f64 = -12.0;
const POWER_MAX: f64 = 18.0;

impl Range {
    /// A range that holds all these values, with round ends. On a logarithmic axis values up to zero have no place.
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>, log: bool) -> Option<Range> {
        let values = values.into_iter().filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return None;
        }
        if log {
            let (low, high) = (low.log10().clamp(POWER_MIN, POWER_MAX), high.log10().clamp(POWER_MIN, POWER_MAX));
            let (low, high) = round_ends(low, high);
            return Some(Range { low, high, log });
        }
        let low = low.clamp(-1e18, 1e18);
        let high = high.clamp(-1e18, 1e18);
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        Some(Range { low, high, log })
    }

    /// A range in equal steps from zero to a round number above `max`.
    pub fn from_zero(max: f64, steps: u32) -> Range {
        let max = if max > 0.0 { max.clamp(1e-15, 1e18) } else { 0.0 };
        Range { low: 0.0, high: Scale::new(max, steps).max, log: false }
    }

    /// The share of a value; `None` if it is outside.
    pub fn share(&self, value: f64) -> Option<f64> {
        let value = if self.log { value.log10() } else { value };
        let share = (value - self.low) / (self.high - self.low);
        (-1e-9..=1.0 + 1e-9).contains(&share).then(|| share.clamp(0.0, 1.0))
    }

    /// Roughly `wanted` ticks with their labels, ascending.
    pub fn ticks(&self, wanted: u32) -> Vec<(f64, String)> {
        let texts = |values: Vec<f64>| {
            let tick = |value: f64| self.share(value).map(|share| (share, short(value)));
            values.into_iter().filter_map(tick).collect()
        };
        if !self.log {
            let step = Scale::new(self.high - self.low, wanted).step;
            let first = (self.low / step - 1e-9).ceil();
            let count = ((self.high / step + 1e-9).floor() - first).clamp(0.0, 100.0) as u32;
            return texts((0..=count).map(|n| (first + f64::from(n)) * step).collect());
        }
        let powers = (self.high - self.low).max(0.1);
        let steps: &[f64] = if powers * 3.0 <= f64::from(wanted) * 1.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((powers / f64::from(wanted.max(1))).ceil() as i32).max(1);
        let mut values = Vec::new();
        for power in (self.low.floor() as i32..=self.high.ceil() as i32).filter(|power| power.rem_euclid(every) == 0) {
            values.extend(steps.iter().map(|step| step * 10_f64.powi(power)));
        }
        texts(values)
    }
}

/// Rounds outwards to 1, 2 or 5 times a power of ten.
fn round_ends(low: f64, high: f64) -> (f64, f64) {
    let steps = [0.0, 2_f64.log10(), 5_f64.log10(), 1.0];
    let below = |value: f64| {
        let part = value - value.floor();
        value.floor() + steps.into_iter().rev().find(|step| *step <= part + 1e-9).unwrap_or(0.0)
    };
    let above = |value: f64| {
        let part = value - value.floor();
        value.floor() + steps.into_iter().find(|step| *step >= part - 1e-9).unwrap_or(1.0)
    };
    let (low, high) = (below(low), above(high));
    if high - low < 0.1 { (low - 0.31, high + 0.31) } else { (low, high) }
}

/// Formats a number briefly, with about three significant digits: `0.0012`, `4.25`, `42`, `1,234`, `15.5k`, `2e-7`.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    if value < 0.0 {
        return format!("-{}", short(size));
    }
    if size >= 1e12 || (size > 0.0 && size < 1e-4) {
        return format!("{value:.1e}").replace(".0e", "e");
    }
    if size >= 100.0 || size == 0.0 {
        return count(value);
    }
    let decimals = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Size of the text beside axes.
pub const TICK_TEXT: i32 = 12;

/// Draws lines across the area and numbers on its left.
pub fn left(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale) {
    let theme = canvas.theme;
    for tick in scale.ticks() {
        let y = scale.y(tick, area);
        if tick > 0.0 {
            canvas.horizontal(area.x, area.right(), y, theme.grid);
        }
        canvas.text(&count(tick), (area.x - 8, y), TICK_TEXT, Align::Right, theme.muted);
    }
}

/// Draws numbers on the right, without lines.
pub fn right(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale) {
    let theme = canvas.theme;
    for tick in scale.ticks() {
        let y = scale.y(tick, area);
        canvas.fill(Area { x: area.right(), y, width: 4, height: 1 }, theme.axis);
        canvas.text(&count(tick), (area.right() + 8, y), TICK_TEXT, Align::Left, theme.muted);
    }
}

/// Draws a vertical line through the area and a text under it at each of these shares (0 to 1) of its width.
pub fn bottom<'t>(canvas: &mut Canvas<'_>, area: &Area, y: i32, ticks: impl IntoIterator<Item = (f64, &'t str)>) {
    let theme = canvas.theme;
    let mut free = i32::MIN;
    for (share, text) in ticks {
        let x = area.x + (share * f64::from(area.width)).round() as i32;
        if x > area.x && x < area.right() {
            canvas.vertical(x, area.y, area.bottom(), theme.grid);
        }
        let half = canvas.text_width(text, TICK_TEXT) / 2;
        // If there is no room for all texts, some are left out.
        if x - half > free {
            canvas.text(text, (x, y), TICK_TEXT, Align::Centre, theme.muted);
            free = x + half + 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_on_a_round_number_above_what_they_show() {
        for (max, expected, ticks) in [
            (0.0, 1.0, 6),
            (1.0, 1.0, 6),
            (7.0, 8.0, 5),
            (999.0, 1000.0, 6),
            (1001.0, 1200.0, 7),
            (43_000.0, 50_000.0, 6),
        ] {
            let scale = Scale::new(max, 5);
            assert!((scale.max - expected).abs() < 1e-6, "{max}: {scale:?}");
            assert_eq!(scale.ticks().count(), ticks, "{max}");
        }
        assert!(Scale::new(f64::NAN, 0).max > 0.0 && Scale::new(f64::INFINITY, 5).max > 0.0);
        let area = Area { x: 0, y: 10, width: 100, height: 100 };
        let scale = Scale::new(1000.0, 5);
        assert_eq!((scale.y(0.0, &area), scale.y(500.0, &area), scale.y(1e9, &area)), (110, 60, 10));
        assert_eq!((scale.height(0.0, 100), scale.height(0.1, 100), scale.height(2000.0, 100)), (0, 1, 100));
    }

    #[test]
    fn ranges_hold_their_values_and_tick_at_round_ones() {
        let texts = |range: Range, wanted| range.ticks(wanted).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        let log = Range::of([1.0, 1000.0, -5.0, f64::NAN], true).unwrap();
        assert_eq!(texts(log, 5), ["1", "10", "100", "1,000"]);
        assert_eq!((log.share(1.0), log.share(1000.0), log.share(0.0)), (Some(0.0), Some(1.0), None));
        assert_eq!(texts(Range::of([30.0, 150.0], true).unwrap(), 6), ["20", "50", "100", "200"]);
        assert_eq!(texts(Range::of([1e-3, 1e9], true).unwrap(), 4), ["0.001", "1", "1,000", "1M", "1G"]);
        assert_eq!(texts(Range::from_zero(0.9, 5), 5), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(texts(Range::of([-10.0, 10.0], false).unwrap(), 4), ["-10", "-5", "0", "5", "10"]);
        for value in [0.0, 7.0, 1e300, -1e300, f64::MIN_POSITIVE] {
            for log in [false, true] {
                let Some(range) = Range::of([value], log) else { continue };
                assert!(range.high > range.low && range.ticks(5).len() < 110, "{range:?}");
            }
        }
        assert_eq!(Range::of([f64::NAN, f64::INFINITY], false), None);
        assert_eq!(Range::of([0.0], true), None);
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let values = [0.0, 0.001_23, 0.5, 4.256, 42.0, 99.96, 1234.0, 15_500.0, 2e-7, 3e15, -0.25, f64::NAN];
        let texts = values.map(short);
        assert_eq!(texts, ["0", "0.00123", "0.5", "4.26", "42", "100", "1,234", "15.5k", "2e-7", "3e15", "-0.25", "-"]);
    }

    #[test]
    fn numbers_are_short() {
        let texts: Vec<String> =
            [0.0, 0.5, 250.0, 1200.0, 40_000.0, 15_500.0, 999_960.0, 1_500_000.0, 250e6].map(count).to_vec();
        assert_eq!(texts, ["0", "0.5", "250", "1,200", "40k", "15.5k", "1M", "1.5M", "250M"]);
    }
}
