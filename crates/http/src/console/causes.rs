//! Why mail waits, as every page shows it: the causes in words, and the reply behind them.

use maud::{Markup, html};
use stentor_control::CauseRow;
use stentor_control::causes::{most_first, summary};
use stentor_queue::ids::Ms;

use super::format::{bar, next_try, number, shown};
use super::table::{column, head, table};

/// A cell with words and, below them, the last reply.
pub fn cell(words: &str, last_reply: &str) -> Markup {
    html! {
        @if words.is_empty() && last_reply.is_empty() { "–" } @else { (words) }
        // Our own errors have no other text.
        @if !last_reply.is_empty() && !last_reply.eq_ignore_ascii_case(words) { div.beside { (shown(last_reply)) } }
    }
}

/// When the first of several recipients is tried: now if some wait for no clock, unless an operator or a transaction
/// holds all of them.
pub fn next_try_of(rows: &[CauseRow], at: Option<Ms>, now: Ms) -> Markup {
    let is_tried = rows.iter().any(|row| row.cause().is_tried_next());
    next_try(at.or(is_tried.then_some(now)), now)
}

/// A [`cell`] for several causes.
pub fn causes(rows: &[CauseRow], last_reply: &str) -> Markup {
    cell(&summary(rows), last_reply)
}

/// A row for each cause.
pub fn causes_table(caption: &str, rows: &[CauseRow], now: Ms) -> Markup {
    let columns =
        [head("Cause", ""), column("Recipients", "n share"), column("Next try", "t"), column("Last reply", "reply")];
    let most = rows.iter().map(|row| row.recipients).max().unwrap_or(0);
    let row = |row: &CauseRow| {
        vec![
            html! { (row.words) },
            html! { (number(row.recipients)) (bar(&[("in", row.recipients)], most)) },
            next_try(row.next_try, now),
            html! { @if row.last_reply.is_empty() { "–" } @else { (shown(&row.last_reply)) } },
        ]
    };
    table(caption, &columns, &most_first(rows).into_iter().map(row).collect::<Vec<_>>(), None)
}
