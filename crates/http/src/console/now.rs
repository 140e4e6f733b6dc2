//! The live view: `stentor realstat`, kept up to date by a script that requests the page again.
//!
//! Promise: all viewers share one watch of the live counters, which ends after the last one has gone; a page costs one
//! look at existing counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde_json::json;
use stentor_admin::watch::{Overviews, Watch};
use stentor_control::snapshot::time_us;
use stentor_control::snapshot::{Lane, SiteNow};
use stentor_control::{Snapshot, WatchOptions};
use stentor_engine::core::Core;
use stentor_stats::now::MachineNow;
use stentor_stats::now::Point;
use stentor_stats::rates::{Interval, Scale, clock};
use tokio::sync::Mutex;

use super::format::{bytes, next_try, number, percent, plural, shown, site_link};
use super::page::{Frame, live_bar};
use super::queue::tile;
use crate::Http;

/// Seconds between two looks of the script.
const EVERY_S: u64 = 2;
/// What a row of the table covers, as `realstat` has it, and how many there are.
const ROW_MS: u64 = 15_000;
const ROWS: usize = 16;
const BAR_COLUMNS: usize = 32;
/// What a bar of the chart covers.
const BAR_MS: u64 = 5_000;
const SITES: usize = 8;
/// A snapshot is shown to all who ask within this.
const FRESH: Duration = Duration::from_millis(900);
/// The first look of all waits for something to compare with.
const FIRST_LOOK: Duration = Duration::from_millis(300);
/// The watch ends when nobody has looked for so long.
const UNSEEN: Duration = Duration::from_secs(20);

struct Seen {
    watch: Watch,
    last: Arc<Snapshot>,
    at: Instant,
}

/// The watch that all pages share.
#[derive(Clone, Default)]
pub struct Now(Arc<Mutex<Option<Seen>>>);

impl Now {
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
        let mut watch = Watch::begin(core.clone(), overviews.clone(), options)?;
        tokio::time::sleep(FIRST_LOOK).await;
        let last = Arc::new(watch.now().await);
        *seen = Some(Seen { watch, last: last.clone(), at: Instant::now() });
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
        div.head {
            h1 { "Now" }
            p.quiet data-part="verdict" { (shown(&snapshot.verdict)) }
        }
        (live_bar(EVERY_S))
        div data-part="tiles" { (tiles(&snapshot, rows.last(), delivered)) }
        section.panel aria-labelledby="rates" {
            div.head {
                h2 #rates { "Deliveries per hour, the last 15 minutes" }
                ul.legend { li.key-good { "delivered" } li.key-bad { "failed attempts" } }
            }
            div.chart data-chart="rates" data-series="series-rates" data-readout="rates-readout" role="figure"
                aria-label="Delivered and failed in the last 15 minutes; the table below has the numbers" tabindex="0" {}
            p.readout #rates-readout { "A bar for each five seconds; arrow keys read them." }
            div data-part="series" { (series(&points, snapshot.now)) }
        }
        div.pair {
            section.panel aria-labelledby="intervals" {
                h2 #intervals { "Quarter minutes" }
                div data-part="intervals" { (table(&rows)) }
            }
            section.panel aria-labelledby="depth" {
                h2 #depth { "Waiting mail by lane" }
                div data-part="depth" { (depth(&snapshot)) }
            }
        }
        div.pair {
            section.panel aria-labelledby="pending" {
                h2 #pending { "Most waiting" }
                div data-part="pending" { (sites(&snapshot.by_pending, snapshot.now, "pending")) }
            }
            section.panel aria-labelledby="slow" {
                h2 #slow { "Slowest sites" }
                div data-part="slow" { (sites(&snapshot.by_latency, snapshot.now, "slow")) }
            }
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
            div.tile { dt { "Delivered" } dd.figure data-key="delivered" { (number(delivered)) } dd.beside { "since the store was created" } }
            (tile("Failed attempts", &number(last.failed), &html! { "in the last 15 s" }))
            (tile("Waiting", &number(queue.pending()), &html! { (number(queue.ordinary)) " ordinary, " (number(queue.bulk)) " bulk" }))
            (tile("Connections", &number(connections.fast + connections.slow), &html! {
                "of " (number(connections.fast_max + connections.slow_max)) ", " (number(connections.slow)) " in the slow lane" }))
            (tile("Clients", &number(connections.clients), &html! { "of " (number(connections.clients_max)) }))
            @if sync.count > 0 {
                (tile("Sync", &time_us(sync.p50), &html! { "99 %: " (time_us(sync.p99)) "; " (format!("{:.1}", snapshot.journal.messages_per_batch())) " messages a batch" }))
            } @else {
                (tile("Sync", "–", &html! { "nothing to write" }))
            }
            (tile("Processors", &share(snapshot.machine.cpu), &html! { "disk " (share(snapshot.machine.disk_busy)) " busy" }))
        }
    }
}

fn share(part: f32) -> String {
    format!("{:.0} %", part.clamp(0.0, 1.0) * 100.0)
}

/// What each stretch of `length_ms` brought, oldest first; the one that is not over is left out.
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

/// Delivered and failed by the beginnings of stretches, without gaps. A point covers the second that ended with it.
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

/// What the chart is drawn from: numbers alone, so that nothing in it could end the element.
fn series(points: &[Point], now: u64) -> Markup {
    let rows = sums(points, BAR_MS);
    let column = |of: fn(&(u64, u64)) -> u64| rows.values().map(of).collect::<Vec<u64>>();
    let series = json!({
        "every": BAR_MS / 1000,
        "from": now / 1000 - 900,
        "until": now / 1000,
        "at": rows.keys().map(|begin| begin / 1000).collect::<Vec<u64>>(),
        "delivered": column(|row| row.0),
        "failed": column(|row| row.1),
    });
    html! { script type="application/json" #series-rates { (PreEscaped(series.to_string())) } }
}

/// `realstat`'s rows, the newest first.
fn table(rows: &[Interval]) -> Markup {
    let mut scale = Scale::new(BAR_COLUMNS);
    let shown: Vec<&Interval> = rows.iter().rev().take(ROWS).collect();
    for row in &shown {
        scale.fit(row);
    }
    html! {
        @if shown.is_empty() { p.empty { "The first quarter of a minute is not complete yet." } } @else {
            div.scroll role="region" aria-labelledby="intervals" tabindex="0" {
                table {
                    caption { "Each * is " (number(scale.per_mark())) " delivered, each - " (number(scale.per_mark())) " failed" }
                    thead { tr { th scope="col" { "Until" } th.n scope="col" { "Per hour" } th.n scope="col" { "Delivered" } th.n scope="col" { "Failed" } th scope="col" { "Bar" } } }
                    tbody {
                        @for row in shown {
                            tr {
                                th.t scope="row" { (clock(row.at, 0)) }
                                td.n { (number(row.per_hour())) } td.n { (number(row.delivered)) } td.n { (number(row.failed)) }
                                td.bars aria-hidden="true" { (scale.bar(row)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn depth(snapshot: &Snapshot) -> Markup {
    let depth = &snapshot.queue.depth;
    let row = |name: &str, lane: &Lane| {
        html! {
            tr {
                th scope="row" { (name) }
                td.n { (number(lane.recipients)) } td.n { (number(lane.sites)) }
                td.n.wide { (number(lane.ordinary)) } td.n.wide { (number(lane.bulk)) }
            }
        }
    };
    html! {
        div.scroll role="region" aria-labelledby="depth" tabindex="0" {
            table {
                caption { "Pending recipients by lane; waiting messages by class" }
                thead { tr { th scope="col" { "Lane" } th.n scope="col" { "Recipients" } th.n scope="col" { "Sites" } th.n.wide scope="col" { "Ordinary" } th.n.wide scope="col" { "Bulk" } } }
                tbody {
                    (row("Fast", &depth.fast)) (row("Slow", &depth.slow)) (row("Retry clock", &depth.clock)) (row("Suspended", &depth.suspended))
                    tr { th scope="row" { "Not looked up" } td.n { (number(depth.unresolved)) } td.n { "–" } td.n.wide { "–" } td.n.wide { "–" } }
                }
            }
        }
        p.quiet.small {
            (number(snapshot.queue.in_flight_fast)) " in transactions, " (number(snapshot.queue.in_flight_slow)) " of the slow lane; "
            (plural(snapshot.connections.wanting, "site")) " in line for a connection; " (plural(snapshot.queue.held, "message")) " held"
        }
    }
}

fn sites(rows: &[SiteNow], now: u64, labelled_by: &str) -> Markup {
    html! {
        @if rows.is_empty() { p.empty { "None." } } @else {
            div.scroll role="region" aria-labelledby=(labelled_by) tabindex="0" {
                table {
                    caption { "Sites, and why their mail waits" }
                    thead { tr { th.long scope="col" { "Site" } th.n scope="col" { "Waiting" } th.n.wide scope="col" { "Latency" } th.t scope="col" { "Next try" } th.reply scope="col" { "Reason" } } }
                    tbody {
                        @for row in rows {
                            tr {
                                th.long scope="row" { (site_link(&row.site)) }
                                td.n { (number(row.waiting)) }
                                td.n.wide { @if row.latency_ms > 0 { (number(row.latency_ms)) " ms" } @else { "–" } }
                                td.t { (next_try(row.next_try, now)) }
                                td.reply { @if row.last_reply.is_empty() { (shown(&row.waits_for)) } @else { (shown(&row.last_reply)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn machine(machine: &MachineNow) -> Markup {
    if machine.interval_ms == 0 {
        return html! { p.empty { "Not sampled yet." } };
    }
    let rate = |octets: u64| format!("{}/s", bytes(octets * 1000 / machine.interval_ms));
    html! {
        dl.facts {
            dt { "Processors" } dd { (share(machine.cpu)) " of " (machine.processors) " busy, load " (format!("{:.1}", machine.load_1m)) "; ours " (format!("{:.0} %", machine.own_cpu * 100.0)) " of one" }
            dt { "Memory" } dd { (percent(machine.memory_used_bytes, machine.memory_bytes)) " of " (bytes(machine.memory_bytes)) " in use; ours " (bytes(machine.own_memory_bytes)) }
            dt { "Disk" } dd { (share(machine.disk_busy)) " busy, " (rate(machine.disk_read_bytes)) " read, " (rate(machine.disk_written_bytes)) " written; ours " (rate(machine.own_written_bytes)) " written" }
            dt { "Network" } dd { (rate(machine.net_in_bytes)) " in, " (rate(machine.net_out_bytes)) " out; SMTP " (rate(machine.own_net_in_bytes)) " in, " (rate(machine.own_net_out_bytes)) " out" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_stats::now::Counts;

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
