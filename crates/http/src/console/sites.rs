//! Sites with waiting mail and the reason, and one site with its hosts.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::row_query::RowQuery;
use stentor_admin::verbs::{queue_only_views, standing_bounces};
use stentor_control::problem::Problem;
use stentor_control::site_view::site_state;
use stentor_control::{
    Control, ControlReply, ErrorCode, HostView, PathView, QueueOnlyView, Request, SiteRow, SiteView,
    StandingBounceView, WeakTlsView, tls_words,
};
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;

use super::act::{self, Button};
use super::causes;
use super::format::{address, ago, bar, instant, next_try, number, plural, recipient_link, shown, site_link};
use super::page::{Frame, heading};
use super::table::{Column, column, head, table};
use crate::Http;
use crate::browser::encode;

/// Sites on the first page, and the maximum shown.
const ROWS: usize = 100;
const ROWS_MAX: usize = 2_000;
/// Maximum suspended lists, senders and so on that are named.
const SUSPENDED_SHOWN: usize = 50;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct SitesQuery {
    name: String,
    rows: String,
}

/// `GET /sites`
pub async fn all(State(http): State<Http>, Query(query): Query<SitesQuery>, frame: Frame) -> Response {
    let rows_max = query.rows.parse().unwrap_or(ROWS).clamp(1, ROWS_MAX);
    let queue = http.operator.queue(&RowQuery::all(rows_max)).await;
    let (suspended, total, now, bounces) = http.core.with(|hub, now| {
        let row = |what: &str| SuspensionRow {
            what: what.to_owned(),
            until: hub.store.suspended_until(what),
            reason: hub.store.suspended_reason(what).unwrap_or_default().to_owned(),
        };
        let shown: Vec<SuspensionRow> = hub.store.suspended().take(SUSPENDED_SHOWN).map(row).collect();
        (shown, hub.store.suspended_len() as u64, now, standing_bounces(hub))
    });
    let settings = http.core.settings();
    let queue_only = http.core.with(|hub, now| queue_only_views(hub, &settings, now));
    let main = html! {
        (heading("Sites", &html! { (plural(queue.sites_total - queue.domains_total, "site")) @if queue.domains_total > 0 { " and " (plural(queue.domains_total, "unresolved domain")) } " with mail waiting" }))
        section.panel aria-label="Find" {
            form.fields method="get" action="/site" {
                div { label for="f-name" { "Site or domain" } input #f-name name="name" required autocomplete="off" spellcheck="false" placeholder="example.net"; }
                div.go { button.main { "Open" } }
            }
        }
        @if total > 0 {
            section.panel aria-labelledby="suspended" { h2 #suspended { "Suspensions" } (suspensions(&frame, &suspended, total, now)) }
        }
        @if !bounces.is_empty() {
            section.panel aria-labelledby="bounced" { h2 #bounced { "Standing bounces" } (standing(&bounces, queue.now)) }
        }
        @if !queue_only.is_empty() {
            section.panel aria-labelledby="queue-only" { h2 #queue-only { "Queue-only" } (kept(&queue_only, queue.now)) }
        }
        section.panel aria-labelledby="waiting" {
            div.head {
                h2 #waiting { "Waiting mail by site" }
                @if !queue.sites.is_empty() { (everything(&frame)) }
            }
            @if queue.sites.is_empty() { p.empty { "Nothing is waiting." } } @else { (sites_table(&queue.sites, queue.now)) }
            @if queue.sites_total > queue.sites.len() as u64 && rows_max < ROWS_MAX {
                div.pages { a.button href={ "/sites?rows=" (ROWS_MAX.min(rows_max * 5)) } { "More sites" } }
            }
        }
    };
    frame.page("/sites", "Sites", &main)
}

/// The button that tries everything at once, after a confirmation with the amount.
fn everything(frame: &Frame) -> Markup {
    html! {
        @if let Some(csrf) = frame.caller.csrf() {
            form.aside method="post" action="/act" {
                input type="hidden" name="csrf" value=(csrf);
                input type="hidden" name="next" value=(frame.here);
                button name="verb" value="flush" { "Try everything now…" }
            }
        }
    }
}

/// A suspension by its name in the store.
struct SuspensionRow {
    what: String,
    until: Option<Ms>,
    /// Empty if none was given.
    reason: String,
}

/// Suspended items, when each suspension expires, and why it was made.
fn suspensions(frame: &Frame, rows: &[SuspensionRow], total: u64, now: Ms) -> Markup {
    const COLUMNS: [Column; 4] =
        [head("Suspended", "long"), column("Kind", ""), column("Ends", "t"), column("Reason", "reply")];
    const CHANGE: Column = column("Action", "");
    let acts = frame.caller.csrf().is_some();
    let columns = if acts { [&COLUMNS[..], &[CHANGE]].concat() } else { COLUMNS.to_vec() };
    let row = |SuspensionRow { what, until, reason }: &SuspensionRow| {
        let (kind, name) = what.split_once(':').unwrap_or(("", what));
        let (list, subscriber) = name.split_once(':').unwrap_or(("", name));
        let subject =
            if kind == "subscriber" { vec![("list", list), ("subscriber", subscriber)] } else { vec![(kind, name)] };
        let cells = [
            html! {
                @match kind {
                    "site" => (site_link(name)),
                    "subscriber" => { (recipient_link(subscriber)) div.beside { "of " (shown(list)) } },
                    _ => (address(name)),
                }
            },
            html! { (shown(kind)) },
            ends(*until, now, &frame.http.zone),
            html! { @if reason.is_empty() { "–" } @else { (shown(reason)) } },
        ];
        let change = acts.then(|| act::single(frame, &subject, "resume", "Resume", what));
        cells.into_iter().chain(change).collect()
    };
    let rows: Vec<Vec<Markup>> = rows.iter().map(row).collect();
    html! {
        (table("Suspensions and when they end", &columns, &rows, None))
        @if total > rows.len() as u64 { p.quiet { "and " (number(total - rows.len() as u64)) " more" } }
    }
}

/// When a suspension expires.
pub fn ends(until: Option<Ms>, now: Ms, zone: &Zone) -> Markup {
    html! {
        @if let Some(at) = until { (next_try(Some(at), now)) div.beside { (instant(at, zone)) } }
        @else { "when resumed" }
    }
}

/// Sites, those with most recipients first.
pub fn sites_table(rows: &[SiteRow], now: u64) -> Markup {
    let columns = [
        head("Site", "long"),
        column("Recipients", "n share"),
        column("Messages", "n"),
        column("Connections", "n"),
        column("Next try", "t"),
        column("Oldest", "t"),
        column("Why", "reply"),
    ];
    let most = rows.iter().map(|row| row.waiting).max().unwrap_or(0);
    let row = |row: &SiteRow| {
        vec![
            site_link(&row.site),
            html! { (number(row.waiting)) (bar(&[("in", row.waiting)], most)) },
            html! { (number(row.messages)) },
            html! { (number(row.connections)) },
            causes::next_try_of(&row.causes, row.next_try, now),
            html! { @if let Some(at) = row.oldest { (ago(at, now)) } @else { "–" } },
            causes::causes(&row.causes, &row.last_reply),
        ]
    };
    table("Sites with waiting recipients, and why they wait", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

/// `GET /site?name=`
pub async fn one(State(http): State<Http>, Query(query): Query<SitesQuery>, frame: Frame) -> Response {
    let request = Request::Site { name: query.name.trim().to_owned(), list: None };
    let view = match http.operator.handle(request, act::reader()).await {
        ControlReply::Site(view) => view,
        ControlReply::Error(problem) => return frame.problem("/sites", &problem),
        _ => return frame.problem("/sites", &Problem::new(ErrorCode::Failed, "unexpected answer")),
    };
    let pause = if view.suspended {
        Button { verb: "resume", label: "Resume", is_reversible: true }
    } else {
        Button { verb: "suspend", label: "Suspend", is_reversible: true }
    };
    let flush = Button { verb: "flush", label: "Try now", is_reversible: true };
    let main = html! {
        div.head { h1 { (address(&view.site)) } (state(&view)) }
        section.panel aria-labelledby="why" { h2 #why { "Why mail waits" } (reasons(&view, &http.zone)) }
        (act::panel(&frame, "This site", &[("site", &view.site)], &[pause, flush]))
        @for path in &view.paths { (source(path, view.now)) }
    };
    frame.page("/sites", &view.site, &main)
}

fn state(view: &SiteView) -> Markup {
    html! {
        @let state = site_state(&view.lane).unwrap_or(&view.lane).to_lowercase();
        @match view.lane.as_str() {
            "fast" => span.badge.good { (state) },
            "clock" => span.badge.bad { (state) },
            "slow" | "suspended" => span.badge.warn { (state) },
            _ => span.badge { (state) },
        }
    }
}

/// Queue-only scopes, and what ends each.
fn kept(all: &[QueueOnlyView], now: u64) -> Markup {
    let columns =
        [head("Queue-only", "long"), column("Ends", "t"), column("Reason", "reply"), column("Ended by", "reply")];
    let row = |view: &QueueOnlyView| {
        vec![
            html! { (shown(&view.words())) },
            html! { @if view.until.is_some() { (next_try(view.until, now)) } @else { "–" } },
            html! { @if view.reason.is_empty() { "–" } @else { (shown(&view.reason)) } },
            html! { (shown(view.end().trim_matches('`'))) },
        ]
    };
    html! {
        (table("Queue-only", &columns, &all.iter().map(row).collect::<Vec<_>>(), None))
        p.small { "Mail in this scope is accepted and waits in the queue. " code { "stentor queue run" } " tries it \
            once." }
    }
}

/// Standing bounces, and the command that ends each.
fn standing(bounces: &[StandingBounceView], now: u64) -> Markup {
    let columns =
        [head("Bounced", "long"), column("Ends", "t"), column("Reason", "reply"), column("Ended early by", "reply")];
    let row = |bounce: &StandingBounceView| {
        vec![
            html! { (shown(&bounce.words())) },
            next_try(Some(bounce.until), now),
            html! { (shown(&bounce.reason)) },
            html! { (shown(&bounce.end_command())) },
        ]
    };
    table("Standing bounces", &columns, &bounces.iter().map(row).collect::<Vec<_>>(), None)
}

/// Why mail waits.
fn reasons(view: &SiteView, zone: &Zone) -> Markup {
    html! {
        dl.facts {
            dt { "Waits for" } dd { (waits_for(view)) }
            dt { "Next try" } dd { (causes::next_try_of(&view.causes, view.next_try, view.now)) }
            @if view.suspended { dt { "Suspension ends" } dd { (ends(view.suspended_until, view.now, zone)) } }
            @if let Some(reason) = &view.suspended_reason { dt { "Reason" } dd { (shown(reason)) } }
            dt { "Last reply" } dd { @if view.last_reply.is_empty() { "none since the server started" } @else { (shown(&view.last_reply)) } }
            @if let Some(weak) = &view.weakest_tls {
                dt { "Weakest TLS in 30 days" } dd { (weakest(weak, view.now)) " at " (shown(&weak.host)) }
            }
            dt { "Waiting" } dd { (plural(view.waiting, "recipient")) " of " (plural(view.messages, "message")) " (" a href={ "/queue?site=" (encode(&view.site)) } { "show in the queue" } ")" }
        }
        @if view.causes.len() > 1 { (causes::causes_table("Why recipients wait", &view.causes, view.now)) }
    }
}

/// The largest cause of waiting; mail without an obstacle waits for its turn.
fn waits_for(view: &SiteView) -> String {
    let (open, max) =
        view.paths.iter().fold((0, 0), |(open, max), path| (open + path.connections, max + path.connections_max));
    match (view.waits_for.as_str(), view.waiting) {
        ("", 0) => "nothing waiting".to_owned(),
        ("", _) => format!("a free connection: {} of {} open", number(open), plural(max, "connection")),
        (words, _) => shown(words),
    }
}

fn source(path: &PathView, now: u64) -> Markup {
    let title = if path.source.is_empty() { "Connections".to_owned() } else { format!("From {}", path.source) };
    let max = |max: Option<u64>, what: &str| max.map_or_else(|| "no limit".to_owned(), |max| plural(max, what));
    html! {
        section.panel aria-label=(title) {
            h2 { (title) }
            dl.facts {
                dt { "Open" } dd { (number(path.connections)) " of " (number(path.connections_max)) @if path.silent > 0 { ", " (number(path.silent)) " silent" } }
                dt { "In flight" } dd { (plural(path.transactions_under_way, "transaction")) }
                dt { "Response time" } dd { @if path.latency_ms > 0 { (number(path.latency_ms)) " ms" } @else { "not measured" } }
                dt { "Messages per minute" } dd { (max(path.messages_per_minute_max, "message")) }
                dt { "Transactions per connection" } dd { (max(path.transactions_per_connection_max, "transaction")) }
                dt { "Recipients per transaction" } dd { (max(path.recipients_per_transaction_max, "recipient")) }
                @if let Some(until) = path.paused_until.filter(|until| *until > now) { dt { "Paused" } dd { "resumes " (next_try(Some(until), now)) ", after a rate-limit reply" } }
            }
            @if !path.hosts.is_empty() { (hosts(&format!("Hosts in the order of attempts{}", of(path)), path, now)) }
        }
    }
}

/// Text that distinguishes a source's hosts from those of others on the page.
fn of(path: &PathView) -> String {
    if path.source.is_empty() { String::new() } else { format!(", from {}", path.source) }
}

fn hosts(caption: &str, path: &PathView, now: u64) -> Markup {
    let columns = [
        head("Host", "long"),
        column("Address", "ip"),
        column("State", ""),
        column("Consecutive failures", "n"),
        column("Next try", "t"),
        column("TLS of the last session", "long"),
        column("Last reply", "reply"),
    ];
    let row = |host: &HostView| {
        vec![
            address(&host.host),
            html! { span.mono { (host.address) } },
            html! {
                @if host.probing { span.badge.busy { "probing" } }
                @else if host.failures > 0 { span.badge.bad { "failing" } }
                @else if !host.attempt.is_empty() { span.badge { "connecting" } }
                @else if host.silent { span.badge.warn { "silent" } }
                @else { span.badge.good { "healthy" } }
            },
            html! { (host.failures) },
            next_try(host.next_try, now),
            tls(host, now),
            causes::cell(&host.attempt, &host.last_reply),
        ]
    };
    table(caption, &columns, &path.hosts.iter().map(row).collect::<Vec<_>>(), None)
}

/// Version, cipher and proof of the last session, and the host's certificate.
fn tls(host: &HostView, now: u64) -> Markup {
    let Some(tls) = &host.tls else { return html! {} };
    html! {
        span.mono { (shown(tls_words(&tls.session))) } ", " (ago(tls.at, now))
        @if !tls.proven.is_empty() { br; (shown(&tls.proven)) }
        @if let Some(certificate) = &tls.certificate {
            br; (shown(&certificate.words()))
            br; "SHA-256 " span.mono { (shown(&certificate.sha256)) }
        }
        @if let Some(weak) = tls.weakest.as_ref().filter(|weak| weak.session != tls.session) {
            br; "weakest in 30 days: " (weakest(weak, now))
        }
    }
}

fn weakest(weak: &WeakTlsView, now: u64) -> Markup {
    html! { span.mono { (shown(tls_words(&weak.session))) } ", " (ago(weak.at, now)) }
}
