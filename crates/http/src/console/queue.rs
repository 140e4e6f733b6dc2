//! The queue: its totals, and messages by list, sender, site, recipient, age and state.

use axum::extract::{Query, State as Shared};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_control::problem::Problem;
use stentor_control::{ErrorCode, Selection};

use super::find::{self, Place, Row, State};
use super::format::{ago, bytes, encode, instant, message_link, number, percent, plural, sender, shown};
use super::page::{Frame, heading};
use crate::Http;

/// Messages of one page.
const ROWS: usize = 50;
const DAY_S: u64 = 86_400;

/// The filters as the form sends them; empty fields are none.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Filters {
    list: String,
    sender: String,
    site: String,
    recipient: String,
    /// Minimum age in seconds.
    age: String,
    state: String,
    from: String,
}

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
    ("new", "Not started", State::Untouched),
    ("partly", "Partly done", State::Partly),
];

impl Filters {
    fn selection(&self) -> Result<Selection, Problem> {
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
        let age = given(&self.age).map(|age| age.parse());
        let age = age.transpose().map_err(|_| Problem::new(ErrorCode::BadRequest, "the age is a number of seconds"))?;
        Ok(Selection {
            list: given(&self.list),
            // The form cannot tell the null path from no filter.
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

    /// The same page with these filters, from a place on.
    fn url(&self, from: Option<Place>) -> String {
        let fields = [
            ("list", &self.list),
            ("sender", &self.sender),
            ("site", &self.site),
            ("recipient", &self.recipient),
            ("age", &self.age),
            ("state", &self.state),
        ];
        let mut parts: Vec<String> =
            fields.iter().filter(|(_, v)| !v.is_empty()).map(|(name, v)| format!("{name}={}", encode(v))).collect();
        parts.extend(from.map(|place| format!("from={place}")));
        if parts.is_empty() { "/queue".to_owned() } else { format!("/queue?{}", parts.join("&")) }
    }

    fn is_narrow(&self) -> bool {
        self.url(None) != "/queue"
    }
}

/// `GET /queue`
pub async fn page(Shared(http): Shared<Http>, Query(filters): Query<Filters>, frame: Frame) -> Response {
    let selection = match filters.selection() {
        Ok(selection) => selection,
        Err(problem) => return frame.problem("/queue", &problem),
    };
    let takes = find::of_state(filters.state());
    // What cannot be read as a place is the beginning.
    let from = filters.from.parse().ok();
    let found = match find::messages(&http.core, &selection, &takes, from, ROWS).await {
        Ok(found) => found,
        Err(problem) => return frame.problem("/queue", &problem),
    };
    let lists: Vec<String> =
        http.core.settings().config.lists.iter().map(|list| list.list.name().to_string()).collect();
    let main = html! {
        (heading("Queue", &html! { "Waiting messages, oldest first." }))
        (tiles(&http))
        section.panel aria-labelledby="filters" {
            h2 #filters { "Filters" }
            (form(&filters, &lists))
        }
        section.panel aria-labelledby="messages" {
            h2 #messages { "Messages" }
            @if found.is_partial && found.rows.is_empty() {
                p.empty { "Nothing found yet; the search has not reached the end of the queue." }
            } @else if found.rows.is_empty() {
                p.empty { @if filters.is_narrow() { "No message matches." } @else { "The queue is empty." } }
            } @else {
                (table(&found.rows, found.now))
            }
            div.pages {
                @if from.is_some() { a.button href=(filters.url(None)) { "From the beginning" } }
                @if let Some(next) = found.next {
                    a.button rel="next" href=(filters.url(Some(next))) {
                        @if found.is_partial { "Continue search" } @else { "Next page" }
                    }
                }
                @if found.is_partial {
                    span.quiet.small { "The search stopped early to keep mail moving; continue from here." }
                }
            }
        }
    };
    frame.page("/queue", "Queue", &main)
}

fn tiles(http: &Http) -> Markup {
    let (messages, recipients, held, octets, oldest, now) = http.core.with(|hub, now| {
        let store = &hub.store;
        let oldest = store.oldest().map(|(_, message)| message.accepted());
        (store.len() as u64, store.pending(), store.held() as u64, store.octets(), oldest, now)
    });
    html! {
        dl.tiles {
            (tile("Recipients waiting", &number(recipients), &html! { "of " (plural(messages, "message")) }))
            (tile("Content", &bytes(octets), &html! { "at the wire" }))
            (tile("Held", &number(held), &html! { "by an operator" }))
            div.tile {
                dt { "Oldest" }
                dd.figure { @if let Some(at) = oldest { (ago(at, now)) } @else { "–" } }
                dd.beside { @if let Some(at) = oldest { (instant(at)) } @else { "empty" } }
            }
        }
    }
}

/// One figure with its name and a word beside it.
pub fn tile(name: &str, figure: &str, beside: &Markup) -> Markup {
    html! { div.tile { dt { (name) } dd.figure { (figure) } dd.beside { (beside) } } }
}

fn form(filters: &Filters, lists: &[String]) -> Markup {
    let text = |name: &str, label: &str, value: &str, hint: &str| {
        html! {
            div {
                label for={ "f-" (name) } { (label) }
                input id={ "f-" (name) } name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false";
            }
        }
    };
    html! {
        form.fields method="get" action="/queue" {
            div {
                label for="f-list" { "List" }
                select #f-list name="list" {
                    option value="" { "Any" }
                    @for list in lists { option value=(list) selected[*list == filters.list] { (list) } }
                }
            }
            (text("sender", "Sender", &filters.sender, "ann@example.org or @example.org"))
            (text("recipient", "Recipient", &filters.recipient, "bob@example.net or @example.net"))
            (text("site", "Site", &filters.site, "as the Sites page names it"))
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
            div.go {
                button.main { "Filter" }
                @if filters.is_narrow() { a href="/queue" { "Clear" } }
            }
        }
    }
}

/// Messages with what waits of each, as `stentor mailqq` has them.
pub fn table(rows: &[Row], now: u64) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="messages" tabindex="0" {
            table {
                caption { "Recipients waiting, and the message" }
                thead { tr {
                    th.n scope="col" { "Waiting" }
                    th.n.wide scope="col" { "Done" }
                    th scope="col" { "Message" }
                    th.t scope="col" { "Age" }
                    th.n.wide scope="col" { "Size" }
                    th.long scope="col" { "Sender" }
                    th.wide scope="col" { "List" }
                    th scope="col" { "State" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            td.n { (number(row.pending)) }
                            td.n.wide { (percent(row.total - row.pending, row.total)) }
                            th scope="row" { (message_link(&row.id)) }
                            td.t { (ago(row.accepted, now)) }
                            td.n.wide { (bytes(row.size)) }
                            td.long { (sender(&row.sender)) }
                            td.wide { (row.list.as_deref().map(shown).unwrap_or_default()) }
                            td { (badge(row)) }
                        }
                    }
                }
            }
        }
    }
}

fn badge(row: &Row) -> Markup {
    html! {
        @if row.held { span.badge.warn { "held" } }
        @else if row.pending == row.total { span.badge { "waiting" } }
        @else { span.badge.busy { "in progress" } }
    }
}
