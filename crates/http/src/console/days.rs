//! A chart of any day: `stentor batchstat`, with its numbers in a table.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use stentor_control::ErrorCode;
use stentor_control::problem::Problem;
use stentor_queue::ids::Ms;
use stentor_records::civil::{self, Civil, DAY_S, OFFSET_STEP_S, Zone};
use stentor_records::day::{Bin, Day};

use super::format::{bar, number, percent};
use super::page::{Frame, heading};
use super::queue::tile;
use super::table::{column, explained_table, head};
use crate::browser::encode;
use crate::{Http, problem};

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct DayQuery {
    /// `2026-11-22`; empty for today.
    day: String,
}

impl DayQuery {
    /// Days since 1970-01-01, in the zone.
    fn number(&self, today: u64) -> Result<u64, Problem> {
        if self.day.is_empty() {
            return Ok(today);
        }
        parse(&self.day).ok_or_else(|| {
            Problem::new(ErrorCode::BadRequest, format!("{:?} is not a valid day; write it as 2026-11-22", self.day))
        })
    }
}

fn parse(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let number = (parts.next().is_none() && (1970..=9999).contains(&year)).then(|| civil::days(year, month, day))?;
    // A date such as 31 February becomes another day: reject it.
    (civil::date(number) == (year, month, day)).then(|| u64::try_from(number).ok())?
}

fn name(number: u64) -> String {
    let (year, month, day) = civil::date(number.cast_signed());
    format!("{year:04}-{month:02}-{day:02}")
}

/// `GET /days`
pub async fn page(State(http): State<Http>, Query(query): Query<DayQuery>, frame: Frame) -> Response {
    let today = day_of(http.core.clock.now(), &http.zone);
    let number = match query.number(today) {
        Ok(number) => number,
        Err(problem) => return frame.problem("/days", &problem),
    };
    let day = match http.past.day(&http.core, &http.zone, number).await {
        Ok(day) => day,
        Err(problem) => return frame.problem("/days", &problem),
    };
    let name = name(number);
    let main = html! {
        (heading(&name, &html! { (weekday(number)) ", " (http.zone.label(day.start)) }))
        (choose(number, today))
        (tiles(&day, &http.zone))
        section.panel aria-labelledby="picture" {
            div.head {
                h2 #picture { "Deliveries per hour, minute by minute" }
                ul.legend {
                    li.key-good { "delivered" } li.key-bad { "failed attempts" } li.key-sum { "delivered since \
                        midnight (right axis)" } li.key-in { "messages accepted (marks; thicker means more)" }
                }
            }
            div.chart.tall #day-chart data-chart="day" data-from={ "/days.json?day=" (encode(&name)) } data-readout="day-readout"
                role="figure" aria-label={ "Deliveries of " (name) "; see the table below for hourly numbers" } tabindex="0" {}
            p.readout #day-readout { "Drag or use the buttons to zoom. Use the arrow keys to read each minute." }
            (tools(&day))
            noscript { p.quiet { "The chart needs JavaScript. The table has its numbers." } }
        }
        section.panel aria-labelledby="hours" { h2 #hours { "By hour" } (hours(&day, &http.zone)) }
    };
    frame.page("/days", &name, &main)
}

/// The number of the day in the zone.
fn day_of(at: Ms, zone: &Zone) -> u64 {
    u64::try_from(zone.local_s((at / 1000).cast_signed()).div_euclid(DAY_S)).unwrap_or(0)
}

/// Formats `09:30`.
fn time_of_day(at: Ms, zone: &Zone) -> String {
    let civil = Civil::of(at, zone);
    format!("{:02}:{:02}", civil.hour, civil.minute)
}

/// The zone's offsets: start of each and seconds east of Greenwich, so that the chart can label times.
pub fn offsets(zone: &Zone, from: Ms, until: Ms) -> Vec<(i64, i32)> {
    let (from_s, until_s) = ((from / 1000).cast_signed(), (until / 1000).cast_signed());
    let steps = (from_s.div_euclid(OFFSET_STEP_S)..=until_s.div_euclid(OFFSET_STEP_S)).map(|step| step * OFFSET_STEP_S);
    let mut offsets: Vec<(i64, i32)> = steps.map(|at| (at, zone.offset_s(at))).collect();
    offsets.dedup_by_key(|(_, offset)| *offset);
    offsets
}

fn weekday(number: u64) -> &'static str {
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"][civil::weekday(number.cast_signed())]
}

fn choose(number: u64, today: u64) -> Markup {
    html! {
        form.fields.above method="get" action="/days" {
            div.go {
                a.button rel="prev" href={ "/days?day=" (name(number.saturating_sub(1))) } { "‹ " (name(number.saturating_sub(1))) }
                @if number < today { a.button rel="next" href={ "/days?day=" (name(number + 1)) } { (name(number + 1)) " ›" } }
            }
            div { label for="f-day" { "Day" } input #f-day type="date" name="day" value=(name(number)) max=(name(today)); }
            div.go { button { "Show" } @if number != today { a href="/days" { "Today" } } }
        }
    }
}

fn tiles(day: &Day, zone: &Zone) -> Markup {
    let total = day.total();
    let busiest = day.busiest().map(|(bin, _)| (day.bins[bin].delivered, day.start + bin as u64 * day.bin_ms));
    html! {
        dl.tiles {
            (tile("Delivered", &number(total.delivered), &html! { "recipients" }))
            (tile("Failed attempts", &number(total.failed), &html! { (percent(total.failed, total.failed + total.delivered)) " of all attempts" }))
            (tile("Bounced or expired", &number(total.given_up), &html! { "recipients" }))
            (tile("Accepted", &number(total.arrivals), &html! { "messages" }))
            @if let Some((delivered, at)) = busiest {
                (tile("Busiest minute", &number(delivered), &html! { "delivered, at " (time_of_day(at, zone)) }))
            }
        }
    }
}

fn tools(day: &Day) -> Markup {
    let zooms = [("in", "Zoom in"), ("out", "Zoom out"), ("left", "Earlier"), ("right", "Later"), ("all", "Whole day")];
    html! {
        div.verbs.scripted {
            @for (verb, label) in zooms { button type="button" data-zoom=(verb) data-of="day-chart" { (label) } }
            @if !day.load.is_empty() {
                @for (name, label) in [("cpu", "CPU"), ("disk", "Disk"), ("net", "Network")] {
                    label.check { input type="checkbox" value=(name) data-overlay-of="day-chart"; (label) }
                }
            }
        }
    }
}

fn hours(day: &Day, zone: &Zone) -> Markup {
    let per_hour = (3_600_000 / day.bin_ms) as usize;
    let sums: Vec<Bin> = day.bins.chunks(per_hour).map(sum).collect();
    let total = day.total();
    let most = sums.iter().map(|bin| bin.delivered + bin.failed).max().unwrap_or(0);
    let columns = [
        head("Hour", "t"),
        column("Messages accepted", "n"),
        column("Delivered", "n"),
        column("Failed attempts", "n"),
        column("Bounced or expired", "n"),
        column("Delivered and failed", "bars"),
    ];
    let row = |label: &str, bin: &Bin, bar: Markup| {
        vec![
            html! { (label) },
            html! { (number(bin.arrivals)) },
            html! { span data-key=[(label == "Total").then_some("day-delivered")] { (number(bin.delivered)) } },
            html! { (number(bin.failed)) },
            html! { (number(bin.given_up)) },
            bar,
        ]
    };
    let hours = sums.iter().enumerate().filter(|(_, bin)| **bin != Bin::default());
    let rows: Vec<Vec<Markup>> = hours
        .map(|(hour, bin)| {
            let parts = [("good", bin.delivered), ("bad", bin.failed)];
            row(&time_of_day(day.start + hour as u64 * 3_600_000, zone), bin, bar(&parts, most))
        })
        .collect();
    let total = row("Total", &total, html! {});
    explained_table("Hours without mail are omitted.", &columns, &rows, Some(&total))
}

fn sum(bins: &[Bin]) -> Bin {
    let mut sum = Bin::default();
    for bin in bins {
        sum.delivered += bin.delivered;
        sum.failed += bin.failed;
        sum.given_up += bin.given_up;
        sum.arrivals += bin.arrivals;
        sum.bytes += bin.bytes;
    }
    sum
}

/// `GET /days.json`: the chart's data.
pub async fn feed(State(http): State<Http>, Query(query): Query<DayQuery>) -> Response {
    let now = http.core.clock.now();
    let day = match query.number(day_of(now, &http.zone)) {
        Ok(number) => http.past.day(&http.core, &http.zone, number).await,
        Err(problem) => Err(problem),
    };
    match day {
        Ok(day) => Json(series(&day, now, &http.zone)).into_response(),
        Err(Problem { code, text }) => {
            let status = match code {
                ErrorCode::BadRequest => axum::http::StatusCode::BAD_REQUEST,
                _ => axum::http::StatusCode::SERVICE_UNAVAILABLE,
            };
            problem(status, code, &text)
        }
    }
}

/// Columns by minute; for today, none after `now`.
fn series(day: &Day, now: u64, zone: &Zone) -> Value {
    let known = ((now.saturating_sub(day.start) / day.bin_ms) as usize + 1).min(day.bins.len());
    let seconds = |bin: usize| (day.start + bin as u64 * day.bin_ms) / 1000;
    let column = |of: fn(&Bin) -> u64| day.bins[..known].iter().map(of).collect::<Vec<u64>>();
    let mut series = json!({
        "from": day.start / 1000,
        "until": day.end() / 1000,
        "offsets": offsets(zone, day.start, day.end()),
        "at": (0..known).map(seconds).collect::<Vec<u64>>(),
        "delivered": column(|bin| bin.delivered),
        "failed": column(|bin| bin.failed),
        "sum": day.cumulative().take(known).collect::<Vec<u64>>(),
        "arrivals": column(|bin| bin.arrivals),
    });
    if let Some(load) = day.load.get(..known) {
        let most = load.iter().map(|load| load.net).fold(1.0_f32, f32::max);
        let share = |of: &dyn Fn(&stentor_records::day::Load) -> f32| {
            let known = load.iter().map(|load| (load.weight_ms > 0).then(|| of(load)));
            known.collect::<Vec<Option<f32>>>()
        };
        series["cpu"] = json!(share(&|load| load.cpu));
        series["disk"] = json!(share(&|load| load.disk_busy));
        // Relative to the day's maximum, since the network's capacity is unknown.
        series["net"] = json!(share(&|load| load.net / most));
    }
    series
}

#[cfg(test)]
mod tests {
    use stentor_records::day::DAY_MS;

    use super::*;

    #[test]
    fn days_are_read_strictly() {
        assert_eq!((parse("1970-01-01"), parse("1970-01-02"), parse("2026-11-22")), (Some(0), Some(1), Some(20_779)));
        assert_eq!(name(20_779), "2026-11-22");
        for bad in ["", "2026", "2026-02-31", "2026-13-01", "1969-12-31", "2026-11-22-1", "x-y-z", "99999-01-01"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_series_ends_with_the_present() {
        let mut day = Day::new("", 0, DAY_MS, 60_000);
        (day.bins[0].delivered, day.bins[1].arrivals) = (5, 3);
        let now = series(&day, 90_000, &Zone::utc());
        assert_eq!(now["arrivals"], json!([0, 3]), "none behind the present");
        assert_eq!((&now["at"], &now["delivered"], &now["sum"]), (&json!([0, 60]), &json!([5, 0]), &json!([5, 5])));
        assert_eq!(series(&day, 10 * DAY_MS, &Zone::utc())["at"].as_array().map(Vec::len), Some(1440));
        assert!(now.get("cpu").is_none());
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let noon = 20_779 * DAY_MS + 12 * 3_600_000;
        assert_eq!(
            [-43_201, -43_200, 0, 43_199, 43_200].map(|east_s| day_of(noon, &Zone::fixed(east_s))),
            [20_778, 20_779, 20_779, 20_779, 20_780]
        );
        // Central Europe in 2026: summer time ends on October 25 at 01:00 UTC.
        let change = civil::days(2026, 10, 25) * DAY_S + 3600;
        let zone = Zone::new(move |unix_s| if unix_s < change { 7200 } else { 3600 });
        let start = (change - 3 * 3600).cast_unsigned() * 1000;
        assert_eq!(offsets(&zone, start, start + 25 * 3_600_000), [(change - 3 * 3600, 7200), (change, 3600)]);
        let mut day = Day::new("", start, 25 * 3_600_000, 60_000);
        day.bins.iter_mut().for_each(|bin| bin.delivered = 1);
        let table = hours(&day, &zone).into_string();
        assert_eq!((table.matches("02:00").count(), table.matches("23:00").count()), (2, 1));
    }
}
