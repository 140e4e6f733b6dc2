//! Webhooks: where events go, and the state and position of each endpoint.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use stentor_config::{Kind, WebhookConfig};
use stentor_push::webhooks::WebhookView;
use stentor_queue::ids::Ms;

use super::format::{ago, number, plural, shown};
use super::page::{Frame, heading};
use crate::Http;

/// `GET /webhooks`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let (settings, now) = (http.core.settings(), http.core.clock.now());
    let views = http.webhooks.views();
    let main = html! {
        (heading("Webhooks", &html! { (plural(views.len() as u64, "endpoint")) }))
        @if views.is_empty() {
            div.panel { p.empty { "No webhooks are configured: " code { "[webhooks.NAME]" } " adds one." } }
        }
        @for view in &views {
            (endpoint(view, settings.config.webhooks.iter().find(|config| config.name == view.name), now))
        }
    };
    frame.page("/webhooks", "Webhooks", &main)
}

fn endpoint(view: &WebhookView, config: Option<&WebhookConfig>, now: Ms) -> Markup {
    let id = format!("webhook-{}", view.name);
    html! {
        section.panel aria-labelledby=(id) {
            div.head { h2 id=(id) { (shown(&view.name)) } (state(view)) }
            dl.facts {
                @if let Some(config) = config {
                    dt { "URL" } dd.mono { (place(config)) }
                    dt { "Events" } dd { (kinds(&config.events)) }
                    @if config.lists.is_empty() && config.senders.is_empty() { dt { "Mail" } dd { "all" } }
                    @if !config.lists.is_empty() { dt { "Lists" } dd { (shown(&config.lists.join(", "))) } }
                    @if !config.senders.is_empty() { dt { "Senders" } dd { (shown(&config.senders.join(", "))) } }
                    dt { "Format" } dd { (config.format.name()) }
                }
                dt { "Position" } dd {
                    @if view.lag_records == 0 { "up to date" } @else { (plural(view.lag_records, "record")) " behind" }
                    @if view.lost > 0 { ", " (plural(view.lost, "event")) " lost: removed from the history before \
                        they were sent" }
                }
                dt { "Delivered" } dd { (plural(view.events, "event")) " in " (plural(view.batches, "batch")) }
                dt { "Failed attempts" } dd { (number(view.failures)) }
                dt { "Last success" } dd { @if let Some(at) = view.last_success { (ago(at, now)) } @else { "none \
                    since the server started" } }
                @if let Some(since) = view.failing_since { dt { "Failing since" } dd { (ago(since, now)) } }
                @if !view.last_error.is_empty() { dt { "Last error" } dd { (shown(&view.last_error)) } }
            }
        }
    }
}

fn state(view: &WebhookView) -> Markup {
    html! {
        @if !view.enabled { span.badge.warn { "disabled" } }
        @else if view.failing_since.is_some() { span.badge.bad { "failing" } }
        @else { span.badge.good { "healthy" } }
    }
}

/// Scheme and host only: many services put a key in the path or query.
fn place(config: &WebhookConfig) -> String {
    let host = config.url.uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{}/…", if config.url.is_tls { "https" } else { "http" }, shown(host))
}

fn kinds(events: &[Kind]) -> String {
    let names = Kind::ALL.iter().filter(|(_, kind)| events.contains(kind)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(", ")
}
