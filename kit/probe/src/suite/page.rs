//! The page: one self-contained HTML file, for a screen, a phone and paper.
//!
//! Each chart is in it twice, wide and narrow, so that its text is readable on either; on white, whatever the colour
//! scheme.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use stentor_measure::chart::Chart;
use stentor_measure::{MeasureError, Report, Table};
use stentor_plot::Format;

use super::{Suite, report as tables};

const WIDE: u32 = 860;
const NARROW: u32 = 358;

const STYLE: &str = "
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:20px 24px 60px;font:15px/1.5 Roboto,'Helvetica Neue',Arial,sans-serif;color:#1c2530;background:#fff}
h1{font-size:26px;line-height:1.25;margin:8px 0 4px}
h2{font-size:19px;margin:36px 0 8px;padding-top:10px;border-top:1px solid #dfe4e9}
h3{font-size:15px;margin:22px 0 4px}
p{margin:6px 0}
.muted{color:#5b6775;font-size:13px}
code{font:12.5px/1.4 'Roboto Mono',Consolas,monospace;overflow-wrap:anywhere}
.warn{border-left:4px solid #c9840a;background:#fdf6e7;padding:8px 14px;margin:0 0 8px}
.scroll{overflow-x:auto;margin:4px 0 14px}
table{border-collapse:collapse;font-size:12.5px;font-variant-numeric:tabular-nums}
th,td{padding:3px 9px;text-align:right;border-bottom:1px solid #e6eaee;white-space:nowrap;vertical-align:top}
th{white-space:normal;vertical-align:bottom;font-weight:500;color:#5b6775;min-width:56px;border-bottom:1px solid #8a95a1}
td.text,th.text{text-align:left}
td.long{white-space:normal;min-width:200px;overflow-wrap:anywhere}
td:first-child,th:first-child{position:sticky;left:0;background:#fff}
p.caption{margin:14px 0 2px;font-size:13px;color:#5b6775;break-after:avoid}
.range{color:#8a95a1;font-size:11px;display:block}
figure{margin:14px 0;break-inside:avoid}
figure svg{max-width:100%;height:auto;display:block}
.narrow{display:none}
details summary{cursor:pointer;font-weight:500;margin:10px 0}
@media (max-width:640px){body{padding:12px 16px 40px}h1{font-size:22px}.wide{display:none}.narrow{display:block}}
@media screen and (prefers-color-scheme:dark){
body{color:#dde3ea;background:#14191f}
h2{border-color:#2c343d}
.muted,p.caption,th{color:#9aa7b4}
.range{color:#8692a0}
.warn{background:#2d2614}
th,td{border-color:#2c343d}th{border-bottom-color:#6a7683}
td:first-child,th:first-child{background:#14191f}
figure svg{border-radius:4px}
}
@media print{body{max-width:none;padding:0;font-size:11px}table{font-size:8px}th,td{padding:1px 4px}.scroll{overflow:visible}h2{break-after:avoid}.wide{display:block}.narrow{display:none}}
";

/// The file's text.
pub fn of(suite: &Suite, report: &Report) -> Result<String, MeasureError> {
    let mut pictures = Vec::new();
    for chart in &report.charts {
        pictures.push(picture(chart)?);
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (report.title) }
                p.muted { (report.machine_line()) }
                p.muted { code { (report.command) } }
                (trust(report))
                h2 { "Where" }
                (places(suite))
                h2 { "Side by side" }
                p.muted { "Median of the runs; least and greatest below it." }
                @for table in &report.tables { (shown(table)) }
                h2 { "Pictures" }
                @if suite.figures.iter().any(|figures| !figures.is_durable) {
                    p.muted { "Bars show only durable places; places in memory would make them too short to see." }
                }
                @for picture in &pictures { (picture) }
                h2 { "All figures" }
                (details(suite))
            }
        }
    };
    Ok(page.into_string())
}

/// What is missing, and how far the rest can be trusted.
fn trust(report: &Report) -> Markup {
    let warnings = report.warnings.iter().map(|text| sentence(text));
    html! {
        h2 { "Reliability" }
        @for warning in warnings { p.warn { (warning) } }
        ul { @for note in &report.notes { li { (note) } } }
    }
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn places(suite: &Suite) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th.text { "place" } th.text { "file system" } th.text { "mount options" } th.text { "device" } th { "MiB free" } } }
            tbody { @for measured in &suite.places {
                tr {
                    td.text { (measured.name) }
                    td.text { (measured.place.file_system) }
                    td.text.long { (measured.place.mount_options) }
                    td.text.long { (measured.place.device.as_ref().map_or_else(|| "none".to_owned(), stentor_measure::Device::line)) }
                    td { (measured.place.free_mib) }
                }
            } }
        } }
    }
}

fn shown(table: &Table) -> Markup {
    let (titles, rows) = table.shown();
    let is_text: Vec<bool> = (0..titles.len()).map(|at| table.is_text(at)).collect();
    let text = |at: usize| if is_text[at] { "text" } else { "" };
    html! {
        p.caption { (table.title) }
        div.scroll { table {
            thead { tr { @for (at, title) in titles.iter().enumerate() { th class=(text(at)) { (title) } } } }
            tbody { @for row in &rows { tr {
                @for (at, cell) in row.iter().enumerate() {
                    td class={ (text(at)) @if is_text[at] && cell.len() > 60 { " long" } } { (figure(cell, is_text[at])) }
                }
            } } }
        } }
    }
}

/// `median (least-greatest)` in two lines.
fn figure(cell: &str, is_text: bool) -> Markup {
    match cell.split_once(" (").and_then(|(median, rest)| Some((median, rest.strip_suffix(')')?))) {
        Some((median, range)) if !is_text => html! { (median) span.range { (range) } },
        _ => html! { (cell) },
    }
}

fn picture(chart: &Chart) -> Result<Markup, MeasureError> {
    let svg = |width: u32| -> Result<String, MeasureError> {
        Ok(String::from_utf8_lossy(&chart.render_to(width, Format::Svg)?).into_owned())
    };
    let (wide, narrow) = (svg(WIDE)?, svg(NARROW)?);
    Ok(html! {
        figure {
            div.wide role="img" aria-label=(chart.title) { (PreEscaped(wide)) }
            div.narrow role="img" aria-label=(chart.title) { (PreEscaped(narrow)) }
        }
    })
}

fn details(suite: &Suite) -> Markup {
    html! {
        @for (measured, part) in tables::details(suite) {
            h3 { (measured.name) ": " (part.title) }
            p.muted { @for (name, value) in &part.parameters { (name) " " (value) "; " } }
            @for table in &part.tables { (shown(table)) }
            @if !part.notes.is_empty() { ul.muted { @for note in &part.notes { li { (note) } } } }
        }
        @if let Some(ipc) = &suite.ipc {
            h3 { (ipc.title) }
            @for table in &ipc.tables { (shown(table)) }
            @if !ipc.notes.is_empty() { ul.muted { @for note in &ipc.notes { li { (note) } } } }
        }
    }
}
