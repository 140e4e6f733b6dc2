//! The login form; its target is [`crate::auth`].

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_config::ReadAccess;

use super::format::{plural, shown};
use super::page::{Frame, heading};
use crate::Http;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct LoginQuery {
    next: String,
    /// Why the form is shown again.
    failed: String,
    wait_s: String,
    /// The user who filled it in before.
    user: String,
}

/// `GET /login`
pub async fn page(State(http): State<Http>, Query(query): Query<LoginQuery>, frame: Frame) -> Response {
    let settings = http.core.settings();
    let main = html! {
        (heading("Log in", &html! {}))
        section.panel aria-label="Log in" {
            @if let Some(name) = frame.caller.name() { p { "You are logged in as " strong { (shown(name)) } "." } }
            (failure(&query))
            @if settings.config.http.users.is_empty() {
                p.wrap {
                    "No users are configured yet. " code { "stentor http-password" }
                    " prints the line that " code { "[http]" } " needs. Until then, make changes on the command line."
                }
            } @else {
                form.fields method="post" action="/login" {
                    input type="hidden" name="next" value=(query.next);
                    div {
                        label for="user" { "User" }
                        input #user name="user" value=(query.user) autocomplete="username" spellcheck="false" autocapitalize="none"
                            placeholder="operator" autofocus[query.user.is_empty()];
                    }
                    div {
                        label for="password" { "Password" }
                        input #password name="password" type="password" required autocomplete="current-password" autofocus[!query.user.is_empty()];
                    }
                    div.go { button.main { "Log in" } }
                }
            }
            p.quiet.small {
                @match settings.config.http.reading {
                    ReadAccess::Open => "Reading needs no login; actions and the configuration page do. The audit log \
                        records your name with each action.",
                    ReadAccess::Login => "The audit log records your name with each action.",
                }
            }
        }
    };
    frame.page("/login", "Log in", &main)
}

/// Why the form is shown again.
fn failure(query: &LoginQuery) -> Markup {
    html! {
        @match query.failed.as_str() {
            "" => {},
            "slow" => p.said.bad role="alert" {
                "Too many wrong passwords. Try again in "
                @match query.wait_s.parse::<u32>() { Ok(s) => { (plural(s.into(), "second")) "." } Err(_) => "a while." }
            },
            "expired" => p.said.warn role="alert" { "Your session has ended. Log in to continue; nothing was changed." },
            _ => p.said.bad role="alert" { "Wrong user name or password." },
        }
    }
}
