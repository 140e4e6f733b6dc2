//! The picture of one day, of several, or of servers side by side.
//!
//! Dark bars above the axis: deliveries per hour, one bar every other minute. A lighter line: all deliveries since the
//! start of the day (right axis). Light marks below the axis: arriving messages, the thicker the more. Bars hanging
//! below them: recipients of failed attempts, on their own scale. The machine's load, if recorded, is drawn over the
//! bars as thin lines or in a strip below.

use std::fmt::Write;

use stentor_records::civil::{Civil, Zone};
use stentor_records::day::{Day, Load};

use crate::axis::{self, Scale, count};
use crate::canvas::{Align, Area, Canvas, Size, pixels};
use crate::parts;
use crate::theme::Colour;

/// How to show the machine's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MachineLayout {
    /// Over the bars.
    #[default]
    Overlay,
    /// In a strip of its own.
    Strip,
    Off,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Number of pictures side by side; the others go below.
    pub columns: usize,
    pub machine: MachineLayout,
    /// Minutes per bar.
    pub bar_minutes: u32,
    /// Whether all pictures use one scale, for comparison.
    pub same_scale: bool,
    pub zone: Zone,
}

impl Default for Options {
    fn default() -> Options {
        Options { columns: 1, machine: MachineLayout::Overlay, bar_minutes: 2, same_scale: true, zone: Zone::utc() }
    }
}

const LEFT: i32 = 64;
const RIGHT: i32 = 64;
const TOP: i32 = 52;
/// Width: a pixel for each minute, or for two minutes.
const WIDE: i32 = 1440;
const NARROW: i32 = 720;
const PLOT: i32 = 260;
const MARKS: i32 = 16;
const FAILURES: i32 = 48;
const STRIP: i32 = 100;
const TICKS: i32 = 24;
const BELOW: i32 = 14;
/// Number of pictures in one file.
pub const DAYS_MAX: usize = 31;

/// The heights of a panel's parts.
struct Layout {
    plot_width: i32,
    failures: i32,
    strip: i32,
}

impl Layout {
    fn of(days: &[Day], options: &Options) -> Layout {
        let any = |test: fn(&Day) -> bool| days.iter().any(test);
        Layout {
            plot_width: if columns(days, options) > 1 { NARROW } else { WIDE },
            failures: if any(|day| day.total().failed > 0) { FAILURES } else { 0 },
            strip: if options.machine == MachineLayout::Strip && any(|day| !day.load.is_empty()) { STRIP } else { 0 },
        }
    }

    fn width(&self) -> i32 {
        LEFT + self.plot_width + RIGHT
    }

    fn height(&self) -> i32 {
        TOP + PLOT + self.under() + TICKS + self.strip + BELOW
    }

    /// Height of the marks and failures.
    fn under(&self) -> i32 {
        4 + MARKS + self.failures
    }
}

fn columns(days: &[Day], options: &Options) -> usize {
    options.columns.clamp(1, days.len().max(1))
}

/// Size of the picture of these days.
pub fn size(days: &[Day], options: &Options) -> Size {
    let layout = Layout::of(days, options);
    let columns = columns(days, options);
    let rows = days.len().clamp(1, DAYS_MAX).div_ceil(columns) as u32;
    Size { width: layout.width().cast_unsigned() * columns as u32, height: layout.height().cast_unsigned() * rows }
}

/// Draws the first `DAYS_MAX` days.
pub fn draw(canvas: &mut Canvas<'_>, days: &[Day], options: &Options) {
    let layout = Layout::of(days, options);
    let columns = columns(days, options);
    let coarse: Vec<Day> = days
        .iter()
        .take(DAYS_MAX)
        .map(|day| {
            let bar_ms = u64::from(options.bar_minutes.max(1)) * 60_000;
            day.coarser((bar_ms / day.bin_ms.max(1)) as usize)
        })
        .collect();
    let all = Scales::of(&coarse);
    for (index, day) in coarse.iter().enumerate() {
        let scales = if options.same_scale { all } else { Scales::of(std::slice::from_ref(day)) };
        let x = pixels(index % columns) * layout.width();
        let y = pixels(index / columns) * layout.height();
        panel(canvas, x, y, &layout, day, &scales, options);
    }
}

#[derive(Clone, Copy)]
struct Scales {
    rate: Scale,
    sum: Scale,
    failed: Scale,
}

impl Scales {
    fn of(days: &[Day]) -> Scales {
        let most = |value: &dyn Fn(&Day) -> f64| days.iter().map(value).fold(0.0, f64::max);
        let rate = |day: &Day| (0..day.bins.len()).map(|bin| day.per_hour(bin)).fold(0.0, f64::max);
        let failed = |day: &Day| day.bins.iter().map(|bin| bin.failed).max().unwrap_or(0) as f64;
        Scales {
            rate: Scale::new(most(&rate), 5),
            sum: Scale::new(most(&|day| day.total().delivered as f64), 5),
            failed: Scale::new(most(&failed), 1),
        }
    }
}

fn panel(canvas: &mut Canvas<'_>, x: i32, y: i32, layout: &Layout, day: &Day, scales: &Scales, options: &Options) {
    let theme = canvas.theme;
    let plot = Area { x: x + LEFT, y: y + TOP, width: layout.plot_width, height: PLOT };
    titles(canvas, &plot, y, day, options, layout);

    let under = plot.bottom() + layout.under();
    let ticks = hour_ticks(day, &options.zone, if layout.plot_width == WIDE { 1 } else { 2 });
    let full = Area { height: PLOT + layout.under(), ..plot };
    axis::bottom(canvas, &full, under + TICKS / 2 + 2, ticks.iter().map(|(share, text)| (*share, text.as_str())));
    axis::left(canvas, &plot, &scales.rate);
    axis::right(canvas, &plot, &scales.sum);

    let rates: Vec<f64> = (0..day.bins.len()).map(|bin| day.per_hour(bin)).collect();
    parts::bars(canvas, &plot, &scales.rate, &rates, theme.bars);
    // No line before the first delivery, and none into the unknown future.
    let known =
        day.bins.iter().rposition(|bin| *bin != stentor_records::day::Bin::default()).map_or(0, |last| last + 1);
    let sums: Vec<Option<f64>> =
        day.cumulative().enumerate().map(|(bin, sum)| (bin < known && sum > 0).then_some(sum as f64)).collect();
    parts::line(canvas, &plot, &scales.sum, &sums, 2, theme.sum);
    if options.machine == MachineLayout::Overlay {
        machine(canvas, &plot, day);
    }
    canvas.horizontal(plot.x, plot.right(), plot.bottom(), theme.axis);
    strips(canvas, &plot, day, &scales.failed, layout);
    if layout.strip > 0 && !day.load.is_empty() {
        let strip = Area { y: under + TICKS + 20, height: STRIP - 26, ..plot };
        canvas.horizontal(strip.x, strip.right(), strip.y, theme.grid);
        canvas.text("100 %", (strip.x - 8, strip.y), axis::TICK_TEXT, Align::Right, theme.muted);
        canvas.text("0", (strip.x - 8, strip.bottom()), axis::TICK_TEXT, Align::Right, theme.muted);
        machine(canvas, &strip, day);
        canvas.horizontal(strip.x, strip.right(), strip.bottom(), theme.axis);
        legend_of_machine(canvas, &plot, strip.y - 12, day);
    }
}

/// Draws arrivals, and failures below them.
fn strips(canvas: &mut Canvas<'_>, plot: &Area, day: &Day, failed: &Scale, layout: &Layout) {
    let theme = canvas.theme;
    let area = Area { y: plot.bottom() + 4, height: MARKS, ..*plot };
    let counts: Vec<u64> = day.bins.iter().map(|bin| bin.arrivals).collect();
    parts::marks(canvas, &area, &counts, theme.arrivals);
    if layout.failures > 0 {
        let area = Area { y: area.bottom() + 2, height: FAILURES - 6, ..*plot };
        canvas.horizontal(area.x, area.right(), area.y, theme.grid);
        let values: Vec<f64> = day.bins.iter().map(|bin| bin.failed as f64).collect();
        parts::hanging(canvas, &area, failed, &values, theme.failures);
        if day.total().failed > 0 {
            let label = count(failed.max);
            canvas.text(&label, (area.x - 8, area.bottom() - 2), 11, Align::Right, theme.failures);
        }
    }
}

/// Draws a summary line and the legend.
fn titles(canvas: &mut Canvas<'_>, plot: &Area, y: i32, day: &Day, options: &Options, layout: &Layout) {
    let theme = canvas.theme;
    canvas.bold(&day.name, (plot.x, y + 16), 17, Align::Left, theme.text);
    let name = canvas.text_width(&day.name, 17);
    let summary = summary(day, &options.zone);
    let wide = layout.plot_width == WIDE;
    let at = if wide { (plot.x + name + 18, y + 17) } else { (plot.x, y + 36) };
    canvas.text(&summary, at, 13, Align::Left, theme.muted);
    let mut entries = vec![("deliveries per hour", theme.bars), ("delivered so far", theme.sum)];
    entries.push(("messages", theme.arrivals));
    if day.total().failed > 0 {
        entries.push(("failed attempts", theme.failures));
    }
    let size = if wide { 12 } else { 11 };
    parts::legend(canvas, plot.right(), y + 17, size, &entries);
    canvas.text("per hour", (plot.x - 8, plot.y - 15), 11, Align::Right, theme.muted);
    canvas.text("in all", (plot.right() + 8, plot.y - 15), 11, Align::Left, theme.muted);
    if wide && options.machine == MachineLayout::Overlay && !day.load.is_empty() {
        legend_of_machine(canvas, plot, y + 37, day);
    }
}

fn legend_of_machine(canvas: &mut Canvas<'_>, plot: &Area, y: i32, day: &Day) {
    let series = machine_series(day);
    let named: Vec<(&str, Colour)> =
        series.iter().map(|series| series.name.as_str()).zip(canvas.theme.series).collect();
    parts::legend(canvas, plot.right(), y, 11, &named);
}

fn summary(day: &Day, zone: &Zone) -> String {
    let total = day.total();
    let mut text = format!("{} delivered of {} messages", whole(total.delivered), whole(total.arrivals));
    if let Some((bin, _)) = day.busiest() {
        let civil = Civil::of(day.start + bin as u64 * day.bin_ms, zone);
        let rate = count(day.per_hour(bin));
        let _ = write!(text, ", busiest {rate}/h at {:02}:{:02}", civil.hour, civil.minute);
    }
    if total.failed > 0 {
        let _ = write!(text, ", {} attempts failed", whole(total.failed));
    }
    if total.given_up > 0 {
        let _ = write!(text, ", {} given up", whole(total.given_up));
    }
    text
}

/// Formats a number with commas between thousands.
fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A line of the machine's load, from 0 to 1 of the area's height.
struct Series {
    name: String,
    values: Vec<Option<f64>>,
}

fn machine_series(day: &Day) -> Vec<Series> {
    let most = |value: fn(&Load) -> f32| day.load.iter().map(|load| f64::from(value(load))).fold(0.0, f64::max);
    let series = |name: String, max: f64, value: fn(&Load) -> f32| Series {
        name,
        values: day.load.iter().map(|load| (load.weight_ms > 0).then(|| f64::from(value(load)) / max)).collect(),
    };
    let (disk, net, load) =
        (most(|load| load.disk).max(1.0), most(|load| load.net).max(1.0), most(|load| load.load_1m).max(1.0));
    vec![
        series("CPU %".into(), 1.0, |load| load.cpu),
        series(format!("disk, to {}B/s", count(disk)), disk, |load| load.disk),
        series(format!("network, to {}B/s", count(net)), net, |load| load.net),
        series(format!("load, to {load:.1}"), load, |load| load.load_1m),
    ]
}

fn machine(canvas: &mut Canvas<'_>, area: &Area, day: &Day) {
    if day.load.is_empty() {
        return;
    }
    let colours = canvas.theme.series;
    let scale = Scale { max: 1.0, step: 1.0 };
    for (series, colour) in machine_series(day).iter().zip(colours) {
        parts::line(canvas, area, &scale, &series.values, 1, colour.faint(0.9));
    }
}

/// Full hours by the local clock, every `step`, with their share of the day.
fn hour_ticks(day: &Day, zone: &Zone, step: u32) -> Vec<(f64, String)> {
    let length = (day.end() - day.start).max(1);
    // Offsets are multiples of a quarter of an hour.
    let quarter = 900_000;
    let first = day.start.div_ceil(quarter) * quarter;
    let mut ticks = Vec::new();
    let mut at = first;
    while at <= day.end() {
        let civil = Civil::of(at, zone);
        if civil.minute == 0 && civil.hour.is_multiple_of(step) {
            let last = at == day.end() && civil.hour == 0;
            let text = if last { "24".to_owned() } else { format!("{:02}", civil.hour) };
            ticks.push(((at - day.start) as f64 / length as f64, text));
        }
        at += quarter;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use stentor_records::day::{DAY_MS, MINUTE_MS};
    use stentor_records::record::{Accepted, Attempt, Machine as Sample, Record, Stat};

    use super::*;
    use crate::canvas::{self, Format};
    use crate::theme::Theme;

    fn busy() -> Day {
        let mut day = Day::new("2026-11-22", 0, DAY_MS, MINUTE_MS);
        for minute in 0..1440_u64 {
            let at = minute * MINUTE_MS;
            let to = vec!["a@x"; (minute % 50) as usize].into();
            let stat = if minute % 7 == 0 { Stat::Deferred } else { Stat::Sent };
            day.add(&Record::Attempt(Attempt { at, to, stat, ..Attempt::default() }));
            day.add(&Record::Accepted(Accepted { at, ..Accepted::default() }));
            day.add(&Record::Machine(Sample { at, interval_ms: 60_000, cpu: 0.5, ..Sample::default() }));
        }
        day
    }

    #[test]
    fn days_are_drawn_below_or_beside_each_other_in_both_themes() {
        let days = [busy(), Day::new("nothing <happened>", DAY_MS, DAY_MS, MINUTE_MS), busy()];
        for (columns, theme) in [(1, Theme::LIGHT), (2, Theme::DARK), (9, Theme::LIGHT)] {
            for machine in [MachineLayout::Overlay, MachineLayout::Strip, MachineLayout::Off] {
                let options = Options { columns, machine, ..Options::default() };
                let size = size(&days, &options);
                let svg = canvas::draw(size, Format::Svg, theme, |canvas| draw(canvas, &days, &options)).unwrap();
                let svg = String::from_utf8(svg).unwrap();
                assert!(svg.contains("2026-11-22") && svg.contains("nothing &lt;happened&gt;"));
                assert!(
                    canvas::draw(size, Format::Png { scale: 1 }, theme, |canvas| draw(canvas, &days, &options)).is_ok()
                );
            }
        }
        let none: [Day; 0] = [];
        let options = Options::default();
        assert!(canvas::draw(size(&none, &options), Format::Svg, Theme::LIGHT, |c| draw(c, &none, &options)).is_ok());
    }

    #[test]
    fn hours_are_those_of_the_clocks_also_when_they_change() {
        // The clock goes back by an hour at 01:00 UTC: a day of 25 hours.
        let zone = Zone::new(|unix_s| if unix_s < 3600 { 7200 } else { 3600 });
        let day = Day::new("d", 0, 25 * 3_600_000, MINUTE_MS);
        let texts: Vec<String> = hour_ticks(&day, &zone, 1).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts[..4], ["02", "02", "03", "04"]);
    }

    #[test]
    fn sums_have_commas() {
        assert_eq!([0, 999, 1000, 1_234_567].map(whole), ["0", "999", "1,000", "1,234,567"]);
    }
}
