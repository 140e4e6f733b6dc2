//! The lists: subscribers, posts and waiting mail of each, and their suspension.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use stentor_core::live::health::Name;
use stentor_queue::ids::Ms;

use super::act;
use super::format::{address, ago, instant, number, plural, shown};
use super::page::{Frame, heading};
use super::table::{Column, column, head, table};
use crate::Http;
use crate::browser::encode;

/// Maximum lists shown.
const ROWS_MAX: usize = 1_000;
/// Suspended subscribers of one list that are counted per hold of the lock.
const SUSPENDED_MAX: usize = 5_000;

/// Totals of a list's posts that are being tracked.
#[derive(Default)]
struct Posts {
    running: u64,
    waiting: u64,
    last: Option<Ms>,
}

struct Row {
    name: String,
    address: String,
    description: String,
    subscribers: Option<u64>,
    suspended_subscribers: u64,
    is_suspended: bool,
    /// When the suspension expires.
    suspended_until: Option<Ms>,
    suspended_reason: Option<String>,
    /// Why the subscribers file cannot be used.
    file_error: Option<String>,
    posts: Posts,
}

/// `GET /lists`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let rows = rows(&http);
    let total = http.core.settings().config.lists.len();
    let main = html! {
        (heading("Lists", &html! { (plural(total as u64, "list")) }))
        section.panel aria-label="Lists" {
            @if rows.is_empty() { p.empty { "No lists are configured." } } @else { (lists_table(&frame, &rows, http.core.clock.now())) }
            @if total > rows.len() { p.quiet { (plural((total - rows.len()) as u64, "more list")) " not shown." } }
        }
    };
    frame.page("/lists", "Lists", &main)
}

fn rows(http: &Http) -> Vec<Row> {
    let mut posts: HashMap<String, Posts> = HashMap::new();
    for post in http.core.live.posts.newest() {
        if !post.list.is_empty() {
            let sum = posts.entry(post.list.clone()).or_default();
            sum.last.get_or_insert(post.accepted);
            sum.waiting += post.pending();
            sum.running += u64::from(post.pending() > 0);
        }
    }
    let settings = http.core.settings();
    let conditions = http.core.live.health.conditions().into_iter();
    let troubles = conditions.filter(|condition| condition.name == Name::SubscribersFile.as_str());
    let mut troubles: HashMap<String, String> = troubles.map(|condition| (condition.subject, condition.what)).collect();
    let lists = settings.config.lists.iter().take(ROWS_MAX).map(|config| config.list.settings());
    lists
        .map(|list| {
            let name = format!("list:{}", list.name);
            let (subscribers, suspended_subscribers, is_suspended, (suspended_until, suspended_reason)) =
                http.core.with(|hub, _| {
                    let store = &hub.store;
                    let subscribers = store.list(&list.name).map(|state| state.ids.len() as u64);
                    let suspended = store.suspended_subscribers(&list.name).take(SUSPENDED_MAX).count() as u64;
                    let end = (store.suspended_until(&name), store.suspended_reason(&name).map(str::to_owned));
                    (subscribers, suspended, store.is_suspended(&name), end)
                });
            Row {
                name: list.name.to_string(),
                address: list.address.as_str().to_owned(),
                description: list.description.clone(),
                subscribers,
                suspended_subscribers,
                is_suspended,
                suspended_until,
                suspended_reason,
                file_error: troubles.remove(&*list.name),
                posts: posts.remove(&*list.name).unwrap_or_default(),
            }
        })
        .collect()
}

fn suspended(count: u64) -> String {
    if count == SUSPENDED_MAX as u64 {
        format!("{} or more suspended", number(count))
    } else {
        format!("{} suspended", number(count))
    }
}

fn lists_table(frame: &Frame, rows: &[Row], now: Ms) -> Markup {
    const COLUMNS: [Column; 6] = [
        head("List", "long"),
        column("Subscribers", "n"),
        column("Last post", "t"),
        column("Posts in progress", "n"),
        column("Recipients waiting", "n"),
        column("State", ""),
    ];
    const CHANGE: Column = column("Action", "");
    let acts = frame.caller.csrf().is_some();
    let columns = if acts { [&COLUMNS[..], &[CHANGE]].concat() } else { COLUMNS.to_vec() };
    let row = |row: &Row| -> Vec<Markup> {
        let cells = [
            html! {
                a href={ "/posts?list=" (encode(&row.name)) } { (shown(&row.name)) }
                div.beside { (address(&row.address)) @if !row.description.is_empty() { " · " (shown(&row.description)) } }
            },
            html! {
                @if let Some(count) = row.subscribers { (number(count)) } @else { span.quiet { "not read yet" } }
                @if row.suspended_subscribers > 0 { div.beside { (suspended(row.suspended_subscribers)) } }
            },
            html! { @if let Some(at) = row.posts.last { (ago(at, now)) } @else { span.quiet { "none since the server \
            started" } } },
            html! { (number(row.posts.running)) },
            html! {
                @if row.posts.waiting > 0 { a href={ "/queue?list=" (encode(&row.name)) } { (number(row.posts.waiting)) } }
                @else { "0" }
            },
            html! {
                @if row.is_suspended {
                    span.badge.warn { "suspended" }
                    @if let Some(at) = row.suspended_until { div.beside { "until " (instant(at, &frame.http.zone)) } }
                    @if let Some(reason) = &row.suspended_reason { div.beside { (shown(reason)) } }
                }
                @else if row.file_error.is_some() { span.badge.bad { "file unusable" } }
                @else if row.subscribers.is_none() { span.badge { "not used yet" } }
                @else { span.badge.good { "active" } }
                @if let Some(why) = &row.file_error { div.beside { (shown(why)) } }
            },
        ];
        let list = [("list", row.name.as_str())];
        let change = acts.then(|| {
            if row.is_suspended {
                act::single(frame, &list, "resume", "Resume", &row.name)
            } else {
                act::suspend_single(frame, &list, &row.name)
            }
        });
        cells.into_iter().chain(change).collect()
    };
    table("Lists with their subscribers and posts", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}
