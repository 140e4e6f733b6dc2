//! Scales and their ticks.

use crate::canvas::{Align, Area, Canvas};

/// From values to pixels, 0 at the bottom of an area.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    pub max: f64,
    /// Between ticks.
    pub step: f64,
}

impl Scale {
    /// Up to at least this value, in about so many steps of 1, 2 or 5 times a power of ten. Never empty.
    pub fn new(max: f64, steps: u32) -> Scale {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let rough = max / f64::from(steps.max(1));
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| power * factor >= rough * 0.999).unwrap_or(10.0);
        let step = power * factor;
        Scale { max: (max / step - 1e-9).ceil().max(1.0) * step, step }
    }

    /// The pixel of a value; what is beyond the scale is at its end.
    pub fn y(&self, value: f64, area: &Area) -> i32 {
        let share = (value / self.max).clamp(0.0, 1.0);
        area.bottom() - (share * f64::from(area.height)).round() as i32
    }

    /// How high a bar is; what is not zero has a pixel at least.
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

/// `0`, `250`, `1,200`, `40k`, `1.5M`: short, with a unit of a thousand from 10,000 on.
pub fn count(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let rounded = value.round();
    for (unit, name) in units {
        // What would be rounded to a thousand of the smaller unit is one of this.
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

/// The size of text beside axes.
pub const TICK_TEXT: i32 = 12;

/// Lines across the area and numbers at its left.
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

/// Numbers at the right, without lines.
pub fn right(canvas: &mut Canvas<'_>, area: &Area, scale: &Scale) {
    let theme = canvas.theme;
    for tick in scale.ticks() {
        let y = scale.y(tick, area);
        canvas.fill(Area { x: area.right(), y, width: 4, height: 1 }, theme.axis);
        canvas.text(&count(tick), (area.right() + 8, y), TICK_TEXT, Align::Left, theme.muted);
    }
}

/// A line down the area and a text under it at each of these shares (0 to 1) of its width.
pub fn bottom<'t>(canvas: &mut Canvas<'_>, area: &Area, y: i32, ticks: impl IntoIterator<Item = (f64, &'t str)>) {
    let theme = canvas.theme;
    let mut free = i32::MIN;
    for (share, text) in ticks {
        let x = area.x + (share * f64::from(area.width)).round() as i32;
        if x > area.x && x < area.right() {
            canvas.vertical(x, area.y, area.bottom(), theme.grid);
        }
        let half = canvas.text_width(text, TICK_TEXT) / 2;
        // Where there is no room for all, some are left out.
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
    fn numbers_are_short() {
        let texts: Vec<String> =
            [0.0, 0.5, 250.0, 1200.0, 40_000.0, 15_500.0, 999_960.0, 1_500_000.0, 250e6].map(count).to_vec();
        assert_eq!(texts, ["0", "0.5", "250", "1,200", "40k", "15.5k", "1M", "1.5M", "250M"]);
    }
}
