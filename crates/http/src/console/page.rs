//! The frame of every page: bar, sections, result of the last form; and error pages.

use std::convert::Infallible;

use axum::Form;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Deserialize;
use stentor_config::ReadAccess;
use stentor_control::ErrorCode;
use stentor_control::problem::Problem;

use super::assets::url;
use super::badge;
use super::format::{instant, shown};
use crate::Http;
use crate::auth::Caller;
use crate::browser::{encode, local};

/// Cookie with the chosen theme.
const THEME_COOKIE: &str = "stentor_theme";
/// Cookie with a message for the next page.
const SAID_COOKIE: &str = "stentor_said";
const SAID_BYTES_MAX: usize = 1_500;
const YEAR_S: u32 = 31_536_000;

const MARK: &str = r#"<svg viewBox="0 0 32 32" aria-hidden="true"><path d="M4 12v8h5l11 7V5L9 12z" fill="currentColor"/><path d="M23 11a7 7 0 0 1 0 10M26.5 7.5a12 12 0 0 1 0 17" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/></svg>"#;

/// The sections in groups: path, name.
const SECTIONS: [(&str, &[(&str, &str)]); 4] = [
    ("Watch", &[("/", "Now"), ("/health", "Health"), ("/days", "Days"), ("/statistics", "Statistics")]),
    (
        "Mail",
        &[
            ("/queue", "Queue"),
            ("/quarantine", "Quarantine"),
            ("/posts", "Posts"),
            ("/lists", "Lists"),
            ("/recipient", "Recipient"),
        ],
    ),
    ("Hosts", &[("/sites", "Sites"), ("/stragglers", "Stragglers"), ("/dmarc", "DMARC")]),
    (
        "Server",
        &[
            ("/storage", "Storage"),
            ("/webhooks", "Webhooks"),
            ("/users", "Users"),
            ("/audit", "Audit"),
            ("/configuration", "Configuration"),
        ],
    ),
];

/// The request's data that pages need.
pub struct Frame {
    pub http: Http,
    pub caller: Caller,
    /// Path and query of this page, to return to.
    pub here: String,
    theme: &'static str,
    said: Option<String>,
}

impl FromRequestParts<Http> for Frame {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, http: &Http) -> Result<Frame, Infallible> {
        let caller = Caller::from_request_parts(parts, http).await?;
        let theme = match cookie(&parts.headers, THEME_COOKIE) {
            Some("light") => "light",
            Some("dark") => "dark",
            _ => "",
        };
        let said = cookie(&parts.headers, SAID_COOKIE).map(decode).filter(|said| !said.is_empty());
        let here = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Frame { http: http.clone(), caller, here, theme, said })
    }
}

impl Frame {
    /// Renders a page; `section` is its path in [`SECTIONS`].
    pub fn page(&self, section: &str, title: &str, main: &Markup) -> Response {
        self.page_with(StatusCode::OK, section, title, main)
    }

    pub fn page_with(&self, status: StatusCode, section: &str, title: &str, main: &Markup) -> Response {
        let hostname = self.http.core.settings().config.hostname.clone();
        let now = self.http.core.clock.now();
        let body = html! {
            (DOCTYPE)
            html lang="en" data-theme=[(!self.theme.is_empty()).then_some(self.theme)] {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) " · " (hostname) " · Stentor" }
                    link rel="icon" type="image/svg+xml" href=(url("icon.svg"));
                    link rel="stylesheet" href=(url("uplot.css"));
                    link rel="stylesheet" href=(url("console.css"));
                    script src=(url("uplot.js")) defer {}
                    script src=(url("charts.js")) defer {}
                    script src=(url("console.js")) defer {}
                }
                body {
                    a.skip href="#main" { "Skip to content" }
                    (self.bar(&hostname))
                    div.frame {
                        (sections(section))
                        main #main tabindex="-1" {
                            @if let Some(said) = &self.said { (say(said)) }
                            (main)
                        }
                    }
                    footer.foot {
                        "Stentor " (env!("CARGO_PKG_VERSION")) ". Updated " (instant(now, &self.http.zone)) ". Times are this server's local time (" (self.http.zone.label(now)) ")."
                    }
                }
            }
        };
        let mut response =
            (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], body.into_string()).into_response();
        if self.said.is_some() {
            set_cookie(&mut response, SAID_COOKIE, "", 0);
        }
        response
    }

    fn bar(&self, hostname: &str) -> Markup {
        let (next, label) = match self.theme {
            "" => ("dark", "dark"),
            "dark" => ("light", "light"),
            _ => ("auto", "system"),
        };
        html! {
            header.bar {
                a.brand href="/" { (PreEscaped(MARK)) span { span { "Stentor" } span.host { (hostname) } } }
                (self.badge())
                span.gap {}
                form method="post" action="/theme" {
                    input type="hidden" name="next" value=(self.here);
                    button.glyph name="theme" value=(next) title={ "Change theme: " (label) } {
                        span aria-hidden="true" { "◐" } span.hidden { "Change theme: " (label) }
                    }
                }
                @match (self.caller.name(), self.caller.csrf()) {
                    (Some(name), Some(csrf)) => form method="post" action="/logout" {
                        input type="hidden" name="csrf" value=(csrf);
                        span.who.name { (shown(name)) }
                        button { "Log out" }
                    },
                    (Some(name), None) => span.who.name { (shown(name)) },
                    (None, _) => a.button href={ "/login?next=" (encode(&self.here)) } { "Log in" },
                }
                button.menu type="button" aria-expanded="false" aria-controls="sections" { "Menu" }
            }
        }
    }

    /// The badge with the number of problems, on every page of callers who may read.
    fn badge(&self) -> Markup {
        let may_read =
            self.caller.name().is_some() || self.http.core.settings().config.http.reading != ReadAccess::Login;
        if may_read {
            badge::badge(&self.http.core.live.health.conditions())
        } else {
            html! {}
        }
    }

    /// An error page.
    pub fn problem(&self, section: &str, problem: &Problem) -> Response {
        let (status, title) = match problem.code {
            ErrorCode::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            ErrorCode::BadRequest => (StatusCode::BAD_REQUEST, "Invalid request"),
            ErrorCode::Forbidden => (StatusCode::FORBIDDEN, "Not allowed"),
            ErrorCode::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Too large"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "Failed"),
        };
        self.sorry(status, section, title, &html! { (shown(&problem.text)) })
    }

    /// An error page with its own text; `text` is one paragraph.
    pub fn sorry(&self, status: StatusCode, section: &str, title: &str, text: &Markup) -> Response {
        let main = html! {
            div.head { h1 { (title) } }
            div.panel {
                p.wrap { (text) }
                p { a href=(section) { "Back" } }
            }
        };
        self.page_with(status, section, title, &main)
    }

    /// The page for callers who are not operators. `what`: subject and verb ("Users are"); `command` prints the same on
    /// the server.
    pub fn for_operators(&self, section: &str, title: &str, what: &str, command: &str) -> Response {
        let text = html! {
            (what) " visible only to operators who can make changes. "
            a href={ "/login?next=" (encode(&self.here)) } { "Log in" }
            ", or run " code { (command) } " on the server."
        };
        self.sorry(StatusCode::FORBIDDEN, section, title, &text)
    }
}

/// The answer for unknown paths: an object for API clients, a page for people.
pub async fn missing(frame: Frame, method: Method, uri: Uri) -> Response {
    let path = uri.path();
    if path.starts_with("/api/") || method != Method::GET && method != Method::HEAD {
        return crate::problem(StatusCode::NOT_FOUND, ErrorCode::NotFound, "path not found");
    }
    let text = html! { "No page exists at " code { (shown(path)) } "; use the menu." };
    frame.sorry(StatusCode::NOT_FOUND, "/", "Page not found", &text)
}

fn sections(current: &str) -> Markup {
    html! {
        nav.sections #sections aria-label="Sections" {
            @for (group, entries) in SECTIONS {
                div {
                    p id={ "group-" (group) } { (group) }
                    ul aria-labelledby={ "group-" (group) } {
                        @for (path, name) in entries {
                            li { a href=(path) aria-current=[(*path == current).then_some("page")] { (name) } }
                        }
                    }
                }
            }
        }
    }
}

/// A page's heading with a line beside it.
pub fn heading(title: &str, beside: &Markup) -> Markup {
    html! { div.head { h1 { (title) } p.quiet { (beside) } } }
}

/// As [`heading`], for a page that is updated every `every_s` seconds: only with scripts, and until paused.
pub fn live_heading(title: &str, beside: &Markup, every_s: u64) -> Markup {
    html! {
        div.head {
            h1 { (title) }
            p.quiet { (beside) }
            div.live data-live=(every_s) {
                span #news role="status" {}
                button #pause type="button" aria-pressed="false" hidden { "Pause updates" }
            }
        }
    }
}

/// Renders the message: `+text` for success, `-text` for failure.
fn say(said: &str) -> Markup {
    let (class, text) = match said.split_at_checked(1) {
        Some(("+", text)) => ("good", text),
        Some(("-", text)) => ("bad", text),
        _ => ("warn", said),
    };
    html! { p.said.(class) role=(if class == "bad" { "alert" } else { "status" }) { (shown(text)) } }
}

/// Redirects to a local page, which shows `said`.
pub fn go_on(next: &str, is_well: bool, said: &str) -> Response {
    let mut response = Redirect::to(local(next)).into_response();
    let cut = (0..=said.len().min(SAID_BYTES_MAX)).rev().find(|at| said.is_char_boundary(*at)).unwrap_or(0);
    let sign = if is_well { "%2B" } else { "-" };
    set_cookie(&mut response, SAID_COOKIE, &format!("{sign}{}", encode(&said[..cut])), 60);
    response
}

#[derive(Deserialize)]
pub struct ThemeForm {
    theme: String,
    #[serde(default)]
    next: String,
}

/// `POST /theme`: light, dark, or the system's preference.
pub async fn theme(Form(ThemeForm { theme, next }): Form<ThemeForm>) -> Response {
    let mut response = Redirect::to(local(&next)).into_response();
    match theme.as_str() {
        "light" | "dark" => set_cookie(&mut response, THEME_COOKIE, &theme, YEAR_S),
        _ => set_cookie(&mut response, THEME_COOKIE, "", 0),
    }
    response
}

fn set_cookie(response: &mut Response, name: &str, value: &str, age_s: u32) {
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}");
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, value)| value)
}

/// The reverse of [`encode`]; octets that are not UTF-8 become replacement characters.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| byte == b'%').and_then(|two| std::str::from_utf8(two).ok());
        if let Some(value) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            out.push(value);
            rest = &tail[2..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_survives_its_cookie() {
        for text in ["", "a b", "é%;,\"", "100 %", "%zz%4"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(decode("%"), "%");
        assert!(!say("+<b>").into_string().contains("<b>"));
    }
}
