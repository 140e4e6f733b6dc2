//! What happens now, kept up by a script that asks for the page again.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::format::{number, plural};
use super::page::{Frame, heading, live_bar};
use super::queue::tile;
use crate::http::Http;

/// Seconds between two looks of the script.
const EVERY_S: u64 = 2;

/// `GET /`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let main = html! {
        (heading("Now", &html! {}))
        (live_bar(EVERY_S))
        div data-part="tiles" { (tiles(&http)) }
    };
    frame.page("/", "Now", &main)
}

fn tiles(http: &Http) -> Markup {
    let (delivered, pending, messages, connections) = http.core.with(|hub, _| {
        (hub.store.totals().fates.delivered, hub.store.pending(), hub.store.len() as u64, hub.connections() as u64)
    });
    let failed = http.core.live.totals().failed;
    html! {
        dl.tiles {
            div.tile { dt { "Delivered" } dd.figure data-key="delivered" { (number(delivered)) } dd.beside { "since the store began" } }
            (tile("Failed attempts", &number(failed), &html! { "since the start" }))
            (tile("Waiting", &number(pending), &html! { "of " (plural(messages, "message")) }))
            (tile("Connections", &number(connections), &html! { "to hosts" }))
        }
    }
}
