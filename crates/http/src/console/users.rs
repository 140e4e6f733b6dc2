//! Users who log in to send mail: their submissions and limits.
//!
//! Shown only to operators, even if reading needs no login: names are half of a login.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use stentor_control::problem::Problem;
use stentor_control::users_view::{Share, UserRow, UsersView};
use stentor_control::{ControlReply, ErrorCode, Request};

use super::format::{bar, number, plural, shown};
use super::page::{Frame, heading};
use super::table::{column, head, table};
use crate::Http;

/// `GET /users`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let Some(peer) = frame.caller.operator() else {
        return frame.for_operators("/users", "Users", "Users are", "stentor user list");
    };
    let view = match http.ask(Request::Users, peer).await {
        ControlReply::Users(view) => view,
        ControlReply::Error(problem) => return frame.problem("/users", &problem),
        _ => return frame.problem("/users", &Problem::new(ErrorCode::Failed, "unexpected answer")),
    };
    let main = html! {
        (heading("Users", &html! { (plural(view.users_total, "user")) }))
        @match view.source.as_str() {
            "" => div.panel { p.empty { "No user can log in to send mail: " code { "[auth]" } " names neither a users \
             file nor Dovecot." } },
            source => section.panel aria-labelledby="submitted" {
                h2 #submitted { "Submitted in the last hour and day" }
                @if view.rows.is_empty() { p.empty { "Nobody yet." } } @else { (rows(&view)) }
                @if source == "dovecot" { p.small { "Users are in Dovecot; listed are those active in the last day \
                    and those with local settings." } }
                p.small {
                    code { "stentor user lock NAME" } " blocks a user's logins, "
                    code { "stentor user set NAME --messages-per-hour N" } " limits them."
                }
            },
        }
    };
    frame.page("/users", "Users", &main)
}

fn rows(view: &UsersView) -> Markup {
    let columns = [
        head("User", "long"),
        column("State", ""),
        column("Messages per hour", "n share"),
        column("Messages per day", "n share"),
        column("Recipients per hour", "n share"),
        column("Recipients per day", "n share"),
    ];
    let row = |row: &UserRow| {
        let is_at_limit = row.shares().iter().any(|(_, share)| share.is_used_up());
        let mut cells = vec![
            html! { (shown(&row.user)) },
            html! {
                @if row.locked { span.badge.bad { "locked" } }
                @else if is_at_limit { span.badge.warn { "at a limit" } }
                @else { span.badge.good { "active" } }
            },
        ];
        cells.extend(row.shares().map(|(_, share)| amount(share)));
        cells
    };
    let all: Vec<_> = view.rows.iter().map(row).collect();
    table("Users with their submissions and limits", &columns, &all, None)
}

fn amount(share: Share) -> Markup {
    html! {
        (number(share.used.into()))
        @if let Some(max) = share.max {
            " of " (number(max.into()))
            (bar(&[("in", share.used.min(max).into())], u64::from(max).max(1)))
        }
    }
}
