//! The login form; its target is [`crate::auth`].

use axum::extract::{Query, State};
use axum::response::Response;
use maud::html;
use serde::Deserialize;

use super::page::{Frame, heading};
use crate::Http;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Asked {
    next: String,
    /// Why the login before was refused.
    failed: String,
    wait_s: String,
}

/// `GET /login`
pub async fn page(State(http): State<Http>, Query(asked): Query<Asked>, frame: Frame) -> Response {
    let main = html! {
        (heading("Log in", &html! {}))
        section.panel aria-label="Log in" {
            @if let Some(name) = frame.caller.name() { p { "You are logged in as " (name) "." } }
            @match asked.failed.as_str() {
                "" => {},
                "slow" => p.said.bad role="alert" {
                    "Too many wrong passwords: try again in "
                    @match asked.wait_s.parse::<u32>() { Ok(s) => { (s) " s." } Err(_) => "a while." }
                },
                _ => p.said.bad role="alert" { "User or password is wrong." },
            }
            @if !http.core.settings().config.http.users.is_empty() {
                form.fields method="post" action="/login" {
                    input type="hidden" name="next" value=(asked.next);
                    div { label for="user" { "User" } input #user name="user" autocomplete="username" spellcheck="false" autocapitalize="none"; }
                    div { label for="password" { "Password" } input #password name="password" type="password" required autocomplete="current-password"; }
                    div.go { button.main { "Log in" } }
                }
            } @else {
                p { "No users are configured yet. " code { "stentor http-password" } " makes the line that " code { "[http]" } " needs; until then, verbs are given with the command line." }
            }
            p.quiet.small { "Reading needs no login; holding, suspending and removing does, and goes into the journal with your name." }
        }
    };
    frame.page("/login", "Log in", &main)
}
