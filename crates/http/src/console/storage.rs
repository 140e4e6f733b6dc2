//! The journal: syncs and batches, segments, disk and memory.

use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use stentor_core::JournalFigures;

use super::format::{bytes, number, percent, time_us};
use super::page::{Frame, heading};
use super::queue::tile;
use crate::Http;

/// `GET /storage`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    http.core.refresh_space().await;
    let main = html! {
        (heading("Storage", &html! { "The journal on disk; counts since the server started" }))
        (tiles(&http))
        (facts(&http))
    };
    frame.page("/storage", "Storage", &main)
}

fn tiles(http: &Http) -> Markup {
    let counters = &http.core.counters;
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let JournalFigures { statistics, space, .. } = http.core.journal();
    let (batches, syncs, written) = (statistics.batches, statistics.syncs, statistics.bytes_written);
    let each = |n: u64| n / batches.max(1);
    let syncs_live = &http.core.live.syncs;
    let (took, messages) = (syncs_live.us.read().percentiles(), get(&syncs_live.messages));
    html! {
        dl.tiles {
            (tile("Segments", &number(space.segments as u64), &html! { (number(statistics.abandoned)) " abandoned after I/O errors" }))
            (tile("Disk free", &bytes(space.free_disk_bytes), &html! { "for the journal" }))
            (tile("Stored mail", &bytes(space.live_content_bytes), &html! { "content of pending messages" }))
            (tile("Batches", &number(batches), &html! { (number(syncs)) " syncs" }))
            (tile("Write and sync", &time_us(took.p50), &html! { "p99 " (time_us(took.p99)) ", longest " (time_us(took.max)) }))
            (tile("Messages per batch", &format!("{:.1}", messages as f64 / took.count.max(1) as f64), &html! { (number(messages)) " in total" }))
            (tile("Written", &bytes(written), &html! { (bytes(each(written))) " per batch" }))
            (tile("Longest wait for a sync", &format!("{} ms", number(get(&counters.outcome_sync_ms_max))), &html! { "of a delivery's outcome" }))
        }
    }
}

fn facts(http: &Http) -> Markup {
    let statistics = http.core.journal().statistics;
    let written = statistics.bytes_written;
    html! {
        section.panel aria-labelledby="journal" {
            h2 #journal { "Journal" }
            dl.facts {
                dt { "Moved by cleaning" } dd { (bytes(statistics.bytes_moved)) " (" (percent(statistics.bytes_moved, written)) " of what was written)" }
                dt { "Segments created late" } dd { (number(statistics.unprepared)) " that delayed a commit" }
                dt { "Large messages" } dd { (bytes(http.core.memory.streamed())) " being received, at most " (bytes(http.core.memory.streamed_peak())) " so far" }
                dt { "Log lines lost" } dd { (number(http.core.log.dropped())) }
            }
        }
    }
}
