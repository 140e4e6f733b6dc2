//! The queue: its totals, and messages by list, sender, site, recipient, age and state.

use std::sync::Arc;

use axum::extract::{Query, State as Shared};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::report;
use stentor_admin::row_query::RowQuery;
use stentor_admin::waiting::mailqq;
use stentor_control::problem::Problem;
use stentor_control::view::Subject;
use stentor_control::{ErrorCode, MailqqOptions, MailqqSort, RecipientState, RecipientView, Selection, View};
use stentor_mail::heading::Heading;
use stentor_queue::ids::MessageId;

use super::find::{self, PageStart, Row, State};
use super::format::{
    ago, bytes, instant, message_link, next_try, number, percent, plural, recipient_link, sender, shown,
};
use super::page::{Frame, heading};
use super::table::{self, Column, column, head};
use super::{act, causes, posts};
use crate::Http;
use crate::browser::encode;

/// Messages per page.
const ROWS: usize = 50;
const DAY_S: u64 = 86_400;

/// The filters as the form sends them; empty fields are not filters.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct QueueFilters {
    list: String,
    sender: String,
    site: String,
    recipient: String,
    /// Minimum age in seconds.
    age: String,
    state: String,
    from: String,
    /// One of [`SORTS`]; empty for oldest first.
    sort: String,
}

/// Orders other than by age, for messages filtered by list, sender, site and age.
const SORTS: [(&str, &str, MailqqSort); 2] =
    [("recipients", "Most recipients first", MailqqSort::Count), ("size", "Largest first", MailqqSort::Size)];

/// Ages to choose from.
const AGES: [(u64, &str); 6] = [
    (300, "5 minutes"),
    (3_600, "1 hour"),
    (21_600, "6 hours"),
    (DAY_S, "1 day"),
    (3 * DAY_S, "3 days"),
    (7 * DAY_S, "7 days"),
];
const STATES: [(&str, &str, State); 4] = [
    ("", "Any", State::Any),
    ("held", "Held", State::Held),
    ("new", "No outcome yet", State::Untouched),
    ("partly", "Partly done", State::Partly),
];

impl QueueFilters {
    fn selection(&self) -> Result<Selection, Problem> {
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
        let age = given(&self.age).map(|age| age.parse());
        let age =
            age.transpose().map_err(|_| Problem::new(ErrorCode::BadRequest, "The age must be a number of seconds."))?;
        Ok(Selection {
            list: given(&self.list),
            // An empty field means no filter, so the form writes the null path as `<>`.
            sender: given(&self.sender).map(|text| if text == "<>" { String::new() } else { text }),
            site: given(&self.site),
            recipient: given(&self.recipient),
            age_s_min: age,
            ..Selection::default()
        })
    }

    fn state(&self) -> State {
        STATES.iter().find(|(name, ..)| *name == self.state).map_or(State::Any, |(.., state)| *state)
    }

    /// The URL of this page with these filters, from a place on.
    fn url(&self, from: Option<PageStart>) -> String {
        let fields = [
            ("list", &self.list),
            ("sender", &self.sender),
            ("site", &self.site),
            ("recipient", &self.recipient),
            ("age", &self.age),
            ("state", &self.state),
            ("sort", &self.sort),
        ];
        let mut parts: Vec<String> =
            fields.iter().filter(|(_, v)| !v.is_empty()).map(|(name, v)| format!("{name}={}", encode(v))).collect();
        parts.extend(from.map(|place| format!("from={place}")));
        if parts.is_empty() { "/queue".to_owned() } else { format!("/queue?{}", parts.join("&")) }
    }

    fn is_narrow(&self) -> bool {
        [&self.list, &self.sender, &self.site, &self.recipient, &self.age, &self.state].iter().any(|v| !v.is_empty())
    }

    /// The requested order, if the filters support it.
    fn sort(&self) -> Option<MailqqSort> {
        let can_have = self.recipient.is_empty() && self.state.is_empty();
        SORTS.iter().find(|(name, ..)| can_have && *name == self.sort).map(|(.., sort)| *sort)
    }

    /// The order in words.
    fn order(&self) -> String {
        let known = SORTS.iter().find(|(.., sort)| self.sort() == Some(*sort));
        known.map_or_else(|| "oldest first".to_owned(), |(_, words, _)| words.to_lowercase())
    }

    /// The filters for an action; `None` without filters, or with one that actions do not support.
    fn of_action(&self) -> Option<[(&str, &str); 5]> {
        let filters: [(&str, &str); 5] = [
            ("list", &self.list),
            ("sender", &self.sender),
            ("site", &self.site),
            ("recipient", &self.recipient),
            ("age", &self.age),
        ];
        (self.state.is_empty() && filters.iter().any(|(_, value)| !value.is_empty())).then_some(filters)
    }
}

/// `GET /queue`
pub async fn page(Shared(http): Shared<Http>, Query(filters): Query<QueueFilters>, frame: Frame) -> Response {
    let selection = match filters.selection() {
        Ok(selection) => selection,
        Err(problem) => return frame.problem("/queue", &problem),
    };
    let takes = find::of_state(filters.state());
    // An unreadable place means the beginning.
    let from = filters.from.parse().ok();
    let found = match filters.sort() {
        Some(sort) => first(&http, &selection, sort).await,
        None => find::messages(&http.core, &selection, &takes, from, ROWS).await,
    };
    let found = match found {
        Ok(found) => found,
        Err(problem) => return frame.problem("/queue", &problem),
    };
    let lists: Vec<String> =
        http.core.settings().config.lists.iter().map(|list| list.list.name().to_string()).collect();
    // Headings are read from the stored content, only for the rows shown.
    let ids: Vec<MessageId> = found.rows.iter().map(|row| row.id.parse().unwrap_or(MessageId(0))).collect();
    let headings = report::headings(&http.core, &ids).await;
    let main = html! {
        (heading("Queue", &html! { "Waiting messages, " (filters.order()) }))
        (tiles(&http, of_part(&http, &selection, filters.state()).await, filters.is_narrow()))
        section.panel aria-labelledby="filters" {
            h2 #filters { "Filters" }
            (form(&filters, &lists))
        }
        section.panel aria-labelledby="messages" {
            h2 #messages { "Messages" }
            @if found.is_partial && found.rows.is_empty() {
                p.empty { "No match so far; the search has not reached the end of the queue." }
            } @else if found.rows.is_empty() {
                p.empty { @if filters.is_narrow() { "No messages match." } @else { "The queue is empty." } }
            } @else {
                (act::bulk(&frame, filters.of_action().as_ref().map(<[_; 5]>::as_slice)))
                (table(&frame, &found.rows, &headings, found.now))
            }
            div.pages {
                @if from.is_some() { a.button href=(filters.url(None)) { "From the beginning" } }
                @if let Some(next) = found.next {
                    a.button rel="next" href=(filters.url(Some(next))) {
                        @if found.is_partial { "Continue search" } @else { "Next page" }
                    }
                }
                @if found.is_partial {
                    span.quiet.small { "The search stopped early to keep deliveries running." }
                }
            }
        }
    };
    frame.page("/queue", "Queue", &main)
}

/// One page of messages in an order other than by age.
async fn first(http: &Http, selection: &Selection, sort: MailqqSort) -> Result<find::SearchResult, Problem> {
    let options = MailqqOptions {
        sort,
        rows_max: ROWS as u32,
        list: selection.list.clone(),
        sender: selection.sender.clone(),
        site: selection.site.clone(),
        age_s_min: selection.age_s_min,
        ..MailqqOptions::default()
    };
    let listed = mailqq(&http.core, &http.operator.overviews.causes, &options).await?;
    let ids: Vec<MessageId> = listed.rows.iter().filter_map(|row| row.id.parse().ok()).collect();
    if ids.is_empty() {
        return Ok(find::SearchResult { now: http.core.clock.now(), ..find::SearchResult::default() });
    }
    let chosen = Selection { ids, ..selection.clone() };
    let mut found = find::messages(&http.core, &chosen, &|_| true, None, ROWS).await?;
    let place = |id: &str| listed.rows.iter().position(|row| row.id == id);
    found.rows.sort_by_key(|row| place(&row.id));
    Ok(find::SearchResult { next: None, ..found })
}

/// Recipients and messages of a list or at a site, from the counts that all views share; `None` for other filters.
async fn of_part(http: &Http, selection: &Selection, state: State) -> Option<(u64, u64)> {
    let (list, site) = (selection.list.clone(), selection.site.clone());
    let rest = Selection { list: None, site: None, ..selection.clone() };
    if state != State::Any || rest != Selection::default() || list.is_none() && site.is_none() {
        return None;
    }
    let view = View { list, site, ..View::default() };
    let query = RowQuery::of(&http.core, &view, Subject::Queue).ok()?;
    let counted = http.operator.overviews.causes.of(&http.core, &query.part).await?;
    Some((counted.census.total.recipients(), counted.census.total.messages))
}

fn tiles(http: &Http, part: Option<(u64, u64)>, is_narrow: bool) -> Markup {
    let (messages, recipients, held, octets, oldest, now) = http.core.with(|hub, now| {
        let store = &hub.store;
        let oldest = store.oldest().map(|(_, message)| message.accepted());
        (store.len() as u64, store.pending(), store.held() as u64, store.octets(), oldest, now)
    });
    html! {
        dl.tiles {
            @if let Some((matching, of)) = part {
                (tile("Recipients matching", &number(matching), &html! { "of " (plural(of, "message")) "; " (number(recipients)) " in the whole queue" }))
            } @else {
                (tile("Recipients waiting", &number(recipients), &html! { "of " (plural(messages, "message")) @if is_narrow { " in the whole queue" } }))
            }
            (tile("Size", &bytes(octets), &html! { "of all waiting messages" }))
            (tile("Held", &number(held), &html! { (if held == 1 { "message" } else { "messages" }) }))
            div.tile {
                dt { "Oldest" }
                dd.figure { @if let Some(at) = oldest { (ago(at, now)) } @else { "–" } }
                dd.beside { @if let Some(at) = oldest { (instant(at, &http.zone)) } @else { "empty" } }
            }
        }
    }
}

/// One figure with its name and a word beside it.
pub fn tile(name: &str, figure: &str, beside: &Markup) -> Markup {
    html! { div.tile { dt { (name) } dd.figure { (figure) } dd.beside { (beside) } } }
}

fn form(filters: &QueueFilters, lists: &[String]) -> Markup {
    let text = |name: &str, label: &str, value: &str, hint: &str| {
        html! {
            div {
                label for={ "f-" (name) } { (label) }
                input id={ "f-" (name) } name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false";
            }
        }
    };
    html! {
        form.fields.grid method="get" action="/queue" {
            div {
                label for="f-list" { "List" }
                select #f-list name="list" {
                    option value="" { "Any" }
                    @for list in lists { option value=(list) selected[*list == filters.list] { (list) } }
                }
            }
            (text("sender", "Sender or @domain", &filters.sender, "@example.org"))
            (text("recipient", "Recipient or @domain", &filters.recipient, "@example.net"))
            (text("site", "Site", &filters.site, "mx.example.net"))
            div {
                label for="f-age" { "Older than" }
                select #f-age name="age" {
                    option value="" { "Any age" }
                    @for (age, name) in AGES { option value=(age) selected[age.to_string() == filters.age] { (name) } }
                }
            }
            div {
                label for="f-state" { "State" }
                select #f-state name="state" {
                    @for (value, name, _) in STATES { option value=(value) selected[value == filters.state] { (name) } }
                }
            }
            div {
                label for="f-sort" { "Order" }
                select #f-sort name="sort" {
                    option value="" { "Oldest first" }
                    @for (value, name, _) in SORTS { option value=(value) selected[value == filters.sort] { (name) } }
                }
            }
            div.go {
                button.main { "Filter" }
                @if filters.is_narrow() { a href="/queue" { "Clear" } }
            }
        }
    }
}

/// Messages with the first waiting recipient of each, and the reason.
fn table(frame: &Frame, rows: &[Row], headings: &[Option<Arc<Heading>>], now: u64) -> Markup {
    const TICK: Column = column("Select", "tick");
    const COLUMNS: [Column; 7] = [
        head("Message", "long"),
        column("List or sender", "name"),
        column("Recipients waiting", "long"),
        column("Reason", "reply"),
        column("Next try", "t"),
        column("Size", "n"),
        column("State", ""),
    ];
    let acts = frame.caller.csrf().is_some();
    let columns = if acts { [&[TICK][..], &COLUMNS].concat() } else { COLUMNS.to_vec() };
    let rows: Vec<Vec<Markup>> = rows
        .iter()
        .zip(headings)
        .map(|(row, heading)| {
            let tick =
                html! { input type="checkbox" name="id" form="bulk" value=(row.id) aria-label={ "Select " (row.id) }; };
            let cells = [
                html! {
                    (posts::subject(heading.as_deref()))
                    div.beside { (message_link(&row.id)) " · " (ago(row.accepted, now)) }
                },
                html! { @if let Some(list) = &row.list { (shown(list)) } @else { (sender(&row.sender)) } },
                waiting(row),
                reason(row.first.as_ref()),
                html! { @if let Some(first) = &row.first { (next_try(first.next_try, now)) } @else { "–" } },
                html! { (bytes(row.size)) },
                badge(row),
            ];
            acts.then_some(tick).into_iter().chain(cells).collect()
        })
        .collect();
    table::explained_table("Reason and next try belong to the named recipient.", &columns, &rows, None)
}

/// The first recipient, the number of others, and the message's progress.
fn waiting(row: &Row) -> Markup {
    html! {
        @if let Some(first) = &row.first {
            (recipient_link(&first.address))
            @match row.here {
                Some(here) => {
                    @if here > 1 { " " span.whole { "and " (number(here - 1)) " more" } }
                    @if here < row.pending { div.beside { (number(row.pending - here)) " elsewhere" } }
                },
                None => { @if row.pending > 1 { " " span.whole { "and " (number(row.pending - 1)) " more" } } },
            }
        }
        @if row.pending < row.total {
            div.beside { (percent(row.total - row.pending, row.total)) " of " (number(row.total)) " done" }
        }
    }
}

/// Why a recipient waits.
fn reason(first: Option<&RecipientView>) -> Markup {
    let Some(first) = first else { return html! { "–" } };
    causes::cell(&first.words, &first.last_reply)
}

fn badge(row: &Row) -> Markup {
    html! {
        @if row.held { span.badge.warn { "held" } }
        @else if row.first.as_ref().is_some_and(|first| first.state == RecipientState::Deferred) { span.badge.warn { "deferred" } }
        @else if row.pending == row.total { span.badge { "waiting" } }
        @else { span.badge.busy { "in progress" } }
    }
}
