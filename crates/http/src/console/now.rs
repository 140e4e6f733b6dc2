//! The live view: `stentor realstat`, refreshed by a script that requests the page again.
//!
//! Promise: all viewers share one watch of the live counters, which ends after the last viewer leaves; a page costs one
//! read of existing counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde_json::json;
use stentor_admin::watch::{Overviews, Watch};
use stentor_control::site_view::site_state;
use stentor_control::snapshot::{LaneCounts, SiteNow};
use stentor_control::{Snapshot, WatchOptions};
use stentor_core::Core;
use stentor_records::civil::Zone;
use stentor_records::now::MachineNow;
use stentor_records::now::Point;
use stentor_records::rates::{Interval, clock};
use tokio::sync::Mutex;

use super::causes;
use super::days::offsets;
use super::format::{bar, bytes, number, percent, plural, shown, site_link, time_us};
use super::page::{Frame, live_heading};
use super::queue::tile;
use super::table::{column, head, table};
use crate::Http;

/// Polling interval of the script, in seconds.
const EVERY_S: u64 = 2;
/// Time covered by a table row, as in `realstat`, and the number of rows.
const ROW_MS: u64 = 15_000;
const ROWS: usize = 8;
/// Time covered by a bar of the chart.
const BAR_MS: u64 = 5_000;
const SITES: usize = 6;
/// Time for which a snapshot is reused for all viewers.
const FRESH: Duration = Duration::from_millis(900);
/// Delay of the very first snapshot, which needs an earlier one to compare with.
const FIRST_LOOK: Duration = Duration::from_millis(300);
/// The watch ends after this time without viewers.
const UNSEEN: Duration = Duration::from_secs(20);

struct SharedWatch {
    watch: Watch,
    last: Arc<Snapshot>,
    at: Instant,
}

/// The watch shared by all pages.
#[derive(Clone, Default)]
pub struct LiveWatch(Arc<Mutex<Option<SharedWatch>>>);

impl LiveWatch {
    /// The newest snapshot; `None` while the server stops.
    async fn get(&self, core: &Arc<Core>, overviews: &Arc<Overviews>) -> Option<Arc<Snapshot>> {
        let mut seen = self.0.lock().await;
        if let Some(seen) = &mut *seen {
            if seen.at.elapsed() > FRESH {
                seen.last = Arc::new(seen.watch.now().await);
                seen.at = Instant::now();
            }
            return Some(seen.last.clone());
        }
        let options = WatchOptions { sites_max: SITES, ..WatchOptions::default() };
        let mut watch = Watch::begin(core.clone(), overviews.clone(), options).ok()?;
        tokio::time::sleep(FIRST_LOOK).await;
        let last = Arc::new(watch.now().await);
        *seen = Some(SharedWatch { watch, last: last.clone(), at: Instant::now() });
        tokio::spawn(self.clone().until_unseen());
        Some(last)
    }

    async fn until_unseen(self) {
        loop {
            tokio::time::sleep(UNSEEN).await;
            let mut seen = self.0.lock().await;
            if seen.as_ref().is_none_or(|seen| seen.at.elapsed() > UNSEEN) {
                *seen = None;
                return;
            }
        }
    }
}

/// `GET /`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let Some(snapshot) = http.now.get(&http.core, &http.operator.overviews).await else {
        return frame.page("/", "Now", &html! { div.head { h1 { "Now" } } });
    };
    let points: Vec<Point> = http.core.live.rings(|rings| rings.seconds.iter().copied().collect());
    let rows = intervals(&points, ROW_MS, snapshot.now);
    let delivered = http.core.with(|hub, _| hub.store.totals().fates.delivered);
    let main = html! {
        (live_heading("Now", &html! {}, EVERY_S))
        p.verdict data-part="verdict" { (shown(&snapshot.verdict)) }
        div data-part="tiles" { (tiles(&snapshot, rows.last(), delivered)) }
        section.panel aria-labelledby="rates" {
            div.head {
                h2 #rates { "Deliveries per hour, the last 15 minutes" }
                ul.legend { li.key-good { "delivered" } li.key-bad { "failed attempts" } }
            }
            div.chart data-chart="rates" data-series="series-rates" data-readout="rates-readout" role="figure"
                aria-label="Delivered and failed in the last 15 minutes; see the table below for the numbers" tabindex="0" {}
            p.readout #rates-readout { "One bar per 5 seconds. Use the arrow keys to read the bars." }
            div data-part="series" { (series(&points, snapshot.now, &http.zone)) }
        }
        section.panel aria-labelledby="causes" {
            h2 #causes { "Why mail waits" }
            div data-part="causes" {
                @if snapshot.causes.is_empty() {
                    p.empty { @if snapshot.queue.pending() == 0 { "Nothing is waiting." } @else { "Counting; this \
                        takes a few seconds." } }
                } @else {
                    (causes::causes_table("Why recipients wait", &snapshot.causes, snapshot.now))
                }
            }
        }
        div.pair {
            section.panel aria-labelledby="intervals" {
                h2 #intervals { "Last 15-second intervals" }
                div data-part="intervals" { (interval_rows(&rows, &http.zone)) }
            }
            section.panel aria-labelledby="depth" {
                h2 #depth { "Waiting mail by state of the site" }
                div data-part="depth" { (depth(&snapshot)) }
            }
        }
        section.panel aria-labelledby="pending" {
            h2 #pending { "Most recipients waiting" }
            div data-part="pending" { (sites("Sites with the most waiting recipients", "Nothing is waiting.", &snapshot.by_pending, snapshot.now)) }
        }
        section.panel aria-labelledby="slow" {
            h2 #slow { "Slowest sites" }
            div data-part="slow" { (sites("Sites with the longest response times", "No response time measured yet.", &snapshot.by_latency, snapshot.now)) }
        }
        section.panel aria-labelledby="machine" {
            h2 #machine { "Machine" }
            div data-part="machine" { (machine(&snapshot.machine)) }
        }
    };
    frame.page("/", "Now", &main)
}

fn tiles(snapshot: &Snapshot, last: Option<&Interval>, delivered: u64) -> Markup {
    let (queue, connections, sync) = (&snapshot.queue, &snapshot.connections, &snapshot.journal.sync_us);
    let idle = Interval::default();
    let last = last.unwrap_or(&idle);
    html! {
        dl.tiles {
            (tile("Deliveries per hour", &number(last.per_hour()), &html! { (number(last.delivered)) " in the last 15 s" }))
            div.tile { dt { "Delivered" } dd.figure data-key="delivered" { (number(delivered)) } dd.beside { "since the journal was created" } }
            (tile("Failed attempts", &number(last.failed), &html! { "in the last 15 s" }))
            (tile("Waiting", &number(queue.pending()), &html! { (number(queue.ordinary)) " ordinary, " (number(queue.bulk)) " bulk recipients" }))
            (tile("Outgoing connections", &number(connections.fast + connections.slow), &html! {
                "of " (number(connections.fast_max + connections.slow_max)) ", " (number(connections.slow)) " silent" }))
            (tile("Client connections", &number(connections.clients), &html! { "of " (number(connections.clients_max)) }))
            @if sync.count > 0 {
                (tile("Disk sync", &time_us(sync.p50), &html! { "p99 " (time_us(sync.p99)) "; " (format!("{:.1}", snapshot.journal.messages_per_batch())) " messages per batch" }))
            } @else {
                (tile("Disk sync", "–", &html! { "nothing written" }))
            }
            (tile("CPU", &share(snapshot.machine.cpu), &html! { "of the machine; disk " (share(snapshot.machine.disk_busy)) " busy" }))
        }
    }
}

fn share(part: f32) -> String {
    format!("{:.0} %", part.clamp(0.0, 1.0) * 100.0)
}

/// Totals of each interval of `length_ms`, oldest first, without the unfinished one.
fn intervals(points: &[Point], length_ms: u64, now: u64) -> Vec<Interval> {
    let mut rows = sums(points, length_ms);
    rows.retain(|begin, _| begin + length_ms <= now);
    let rows = rows.into_iter().map(|(begin, (delivered, failed))| Interval {
        at: begin + length_ms,
        interval_ms: length_ms,
        delivered,
        failed,
    });
    rows.collect()
}

/// Delivered and failed by the start of each interval, without gaps. A point covers the second that ended with it.
fn sums(points: &[Point], length_ms: u64) -> BTreeMap<u64, (u64, u64)> {
    let mut rows = BTreeMap::new();
    for point in points {
        let at = point.at.saturating_sub(1);
        let row: &mut (u64, u64) = rows.entry(at - at % length_ms).or_default();
        row.0 += point.counts.delivered;
        row.1 += point.counts.failed;
    }
    if let (Some(first), Some(last)) = (rows.keys().next().copied(), rows.keys().next_back().copied()) {
        let mut at = first;
        while at < last {
            rows.entry(at).or_default();
            at += length_ms;
        }
    }
    rows
}

/// The chart's data: numbers only, so that nothing can close the element.
fn series(points: &[Point], now: u64, zone: &Zone) -> Markup {
    let rows = sums(points, BAR_MS);
    let column = |of: fn(&(u64, u64)) -> u64| rows.values().map(of).collect::<Vec<u64>>();
    let series = json!({
        "every": BAR_MS / 1000,
        "from": now / 1000 - 900,
        "until": now / 1000,
        "offsets": offsets(zone, now - 900_000, now),
        "at": rows.keys().map(|begin| begin / 1000).collect::<Vec<u64>>(),
        "delivered": column(|row| row.0),
        "failed": column(|row| row.1),
    });
    html! { script type="application/json" #series-rates { (PreEscaped(series.to_string())) } }
}

/// The rows of `realstat`, newest first, with bars on one scale.
fn interval_rows(rows: &[Interval], zone: &Zone) -> Markup {
    let shown: Vec<&Interval> = rows.iter().rev().take(ROWS).collect();
    if shown.is_empty() {
        return html! { p.empty { "The first 15-second interval is not complete yet." } };
    }
    let most = shown.iter().map(|row| row.delivered + row.failed).max().unwrap_or(0);
    let columns = [
        head("Until", "t"),
        column("Per hour", "n"),
        column("Delivered", "n"),
        column("Failed", "n"),
        column("Delivered and failed", "bars"),
    ];
    let row = |row: &&Interval| {
        vec![
            html! { (clock(row.at, zone.offset_s((row.at / 1000).cast_signed()).into())) },
            html! { (number(row.per_hour())) },
            html! { (number(row.delivered)) },
            html! { (number(row.failed)) },
            bar(&[("good", row.delivered), ("bad", row.failed)], most),
        ]
    };
    table("Recipients delivered and failed attempts", &columns, &shown.iter().map(row).collect::<Vec<_>>(), None)
}

fn depth(snapshot: &Snapshot) -> Markup {
    let depth = &snapshot.queue.depth;
    let columns = [
        head("State of site", "t"),
        column("Recipients", "n share"),
        column("Sites", "n"),
        column("Ordinary messages", "n"),
        column("Bulk messages", "n"),
    ];
    let lanes = [
        ("fast", depth.fast),
        ("connecting", depth.connecting),
        ("slow", depth.slow),
        ("clock", depth.clock),
        ("suspended", depth.suspended),
    ];
    let most = lanes.iter().map(|(_, lane)| lane.recipients).fold(depth.unresolved, u64::max);
    let recipients = |count: u64| html! { (number(count)) (bar(&[("in", count)], most)) };
    let row = |(name, lane): &(&str, LaneCounts)| {
        vec![
            html! { (site_state(name).unwrap_or(name)) },
            recipients(lane.recipients),
            html! { (number(lane.sites)) },
            html! { (number(lane.ordinary)) },
            html! { (number(lane.bulk)) },
        ]
    };
    let none = || html! { "–" };
    let mut rows: Vec<Vec<Markup>> = lanes.iter().map(row).collect();
    rows.push(vec![
        html! { (site_state("unknown").unwrap_or_default()) },
        recipients(depth.unresolved),
        none(),
        none(),
        none(),
    ]);
    let (queue, wanting) = (&snapshot.queue, snapshot.connections.wanting);
    let in_flight = queue.in_flight_fast + queue.in_flight_slow;
    let silent = match queue.in_flight_slow {
        0 => String::new(),
        slow => format!(", {} of them to silent hosts", number(slow)),
    };
    let beside = [
        (in_flight, format!("{} in flight{silent}", plural(in_flight, "recipient"))),
        (wanting, format!("{} waiting for a connection", plural(wanting, "site"))),
        (queue.held, format!("{} held", plural(queue.held, "message"))),
    ];
    let beside: Vec<String> = beside.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    html! {
        (table("Waiting recipients by state of the site, and messages by class", &columns, &rows, None))
        @if !beside.is_empty() { p.quiet.small { (beside.join("; ")) } }
    }
}

fn sites(caption: &str, none: &str, rows: &[SiteNow], now: u64) -> Markup {
    if rows.is_empty() {
        return html! { p.empty { (none) } };
    }
    let columns = [
        head("Site", "long"),
        column("Waiting", "n"),
        column("Response time", "n"),
        column("Next try", "t"),
        column("Reason", "reply"),
    ];
    let row = |row: &SiteNow| {
        vec![
            site_link(&row.site),
            html! { (number(row.waiting)) },
            html! { @if row.latency_ms > 0 { (number(row.latency_ms)) " ms" } @else { "–" } },
            causes::next_try_of(&row.causes, row.next_try, now),
            causes::causes(&row.causes, &row.last_reply),
        ]
    };
    table(caption, &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

fn machine(machine: &MachineNow) -> Markup {
    if machine.interval_ms == 0 {
        return html! { p.empty { "Not sampled yet." } };
    }
    let rate = |octets: u64| format!("{}/s", bytes(octets * 1000 / machine.interval_ms));
    html! {
        dl.facts {
            dt { "CPU" } dd { (share(machine.cpu)) " of " (plural(machine.processors.into(), "core")) " busy, load " (format!("{:.1}", machine.load_1m)) "; this server " (format!("{:.0} %", machine.own_cpu * 100.0)) " of one core" }
            dt { "Memory" } dd { (percent(machine.memory_used_bytes, machine.memory_bytes)) " of " (bytes(machine.memory_bytes)) " in use; this server " (bytes(machine.own_memory_bytes)) }
            dt { "Disk" } dd { (share(machine.disk_busy)) " busy, " (rate(machine.disk_read_bytes)) " read, " (rate(machine.disk_written_bytes)) " written; this server " (rate(machine.own_written_bytes)) " written" }
            dt { "Network" } dd { (rate(machine.net_in_bytes)) " in, " (rate(machine.net_out_bytes)) " out; SMTP " (rate(machine.own_net_in_bytes)) " in, " (rate(machine.own_net_out_bytes)) " out" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_records::now::Counts;

    #[test]
    fn those_in_flight_to_silent_hosts_are_among_those_in_flight() {
        let mut snapshot = Snapshot::default();
        (snapshot.queue.in_flight_fast, snapshot.queue.in_flight_slow) = (42, 89);
        let text = depth(&snapshot).into_string();
        assert!(text.contains("131 recipients in flight, 89 of them to silent hosts"), "{text}");
        snapshot.queue.in_flight_slow = 0;
        assert!(depth(&snapshot).into_string().contains("42 recipients in flight<"));
    }

    #[test]
    fn seconds_become_rows_without_gaps() {
        let point = |at, delivered| Point { at, counts: Counts { delivered, ..Counts::default() } };
        let points = [point(14_500, 1), point(15_000, 2), point(15_001, 4), point(61_000, 8)];
        let rows: Vec<(u64, u64)> =
            intervals(&points, 15_000, 62_000).iter().map(|row| (row.at, row.delivered)).collect();
        assert_eq!(rows, [(15_000, 3), (30_000, 4), (45_000, 0), (60_000, 0)], "the last one is not complete");
        assert!(intervals(&[], 15_000, 62_000).is_empty());
    }
}
