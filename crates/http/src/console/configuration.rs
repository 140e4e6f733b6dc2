//! The configuration: every key's value and where it comes from, as `stentor config show` prints it.
//!
//! Promise: shown only to operators, even if reading needs no login: it names users, hosts and paths. The file is read
//! again for each page, on the blocking pool with a limit, as a reload would read it; errors are shown instead. Secrets
//! never get here ([`stentor_config::settings`]). URLs for events and spans often contain a key, so only their scheme
//! and host are shown.

use std::path::Path;

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_config::settings::{Origin, Setting, Settings};
use stentor_config::{Diagnostic, check_noting, check_text_noting};
use stentor_control::ErrorCode;
use stentor_control::problem::Problem;

use super::format::{plural, shown};
use super::page::{Frame, heading};
use super::table::{column, head, table};
use crate::Http;

/// Maximum keys shown.
const ROWS_MAX: usize = 2_000;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ConfigurationQuery {
    /// `all` includes keys with default values.
    keys: String,
}

/// `GET /configuration`
pub async fn page(State(http): State<Http>, Query(query): Query<ConfigurationQuery>, frame: Frame) -> Response {
    if !frame.caller.is_operator() {
        return frame.for_operators("/configuration", "Configuration", "The configuration is", "stentor config show");
    }
    let file = http.core.settings().config.file.clone();
    let name = file.as_ref().map(|file| file.display().to_string());
    let read = move || match &file {
        Some(file) => check_noting(file),
        None => check_text_noting(Path::new("stentor.toml"), ""),
    };
    let Some(settings) = http.past.readings.run(read).await else {
        return frame.problem("/configuration", &Problem::new(ErrorCode::Failed, "the server is stopping"));
    };
    let beside = html! { @if let Some(name) = &name { span.mono { (shown(name)) } } @else { "No file: all defaults" } };
    let main = html! {
        (heading("Configuration", &beside))
        @match &settings {
            Ok((config, settings)) => {
                @if !config.warnings.is_empty() { (findings("Warnings", &config.warnings)) }
                (keys(settings, query.keys == "all"))
            },
            Err(diagnostics) => {
                p.said.bad role="alert" { "The file has errors; the server keeps running with the previous \
                    configuration." }
                (findings("Errors", diagnostics))
            },
        }
    };
    frame.page("/configuration", "Configuration", &main)
}

fn keys(settings: &Settings, is_all: bool) -> Markup {
    let chosen: Vec<&Setting> = settings.iter().filter(|setting| is_all || setting.is_changed()).collect();
    let columns = [head("Key", "long"), column("Value", "reply"), column("Default", "reply"), column("From", "t")];
    let row = |setting: &&Setting| {
        vec![
            html! {
                @if !setting.section.is_empty() { span.quiet { "[" (shown(&setting.section)) "] " } }
                (shown(&setting.key))
            },
            html! { @if let Some(value) = &setting.value { code { (value_shown(setting, value)) } } @else { span.quiet { "not set" } } },
            html! { @if let Some(default) = &setting.default { code { (shown(default)) } } @else { "–" } },
            match setting.origin {
                Origin::File { line, .. } => html! { "line " (line) },
                Origin::ListFile => html! { "stentor list" },
                Origin::System(what) => html! { (what) },
                Origin::Default => html! { "default" },
            },
        ]
    };
    let rows: Vec<Vec<Markup>> = chosen.iter().take(ROWS_MAX).map(row).collect();
    let title = if is_all { "All keys" } else { "Keys that differ from their defaults" };
    html! {
        section.panel aria-labelledby="keys" {
            div.head {
                h2 #keys { (title) }
                @if is_all { a href="/configuration" { "Show changed keys" } } @else { a href="/configuration?keys=all" { "Show all keys" } }
            }
            @if rows.is_empty() { p.empty { "All keys have their defaults." } } @else { (table("Keys with their values and origins", &columns, &rows, None)) }
            @if chosen.len() > ROWS_MAX {
                p.quiet { (plural((chosen.len() - ROWS_MAX) as u64, "more key")) " not shown; " code { "stentor config show" } " prints all." }
            }
            p.quiet.small { "The current file. Changes take effect on reload, or on restart where the documentation \
                says so. Secrets are hidden." }
        }
    }
}

fn findings(title: &str, diagnostics: &[Diagnostic]) -> Markup {
    html! {
        section.panel aria-label=(title) {
            h2 { (title) }
            ul.plain { @for diagnostic in diagnostics { li { (shown(&diagnostic.to_string())) } } }
        }
    }
}

/// Formats a value. For a URL of events or spans only scheme and host are shown: the rest often contains a key.
fn value_shown(setting: &Setting, value: &str) -> String {
    let is_endpoint = setting.key == "otlp_endpoint" || setting.key == "url" && setting.section.starts_with("webhooks");
    let host = value.find("://").map_or(0, |at| at + 3);
    let end = value[host..].find(['/', '?', '#']).map(|end| host + end);
    match end.filter(|_| is_endpoint) {
        Some(end) => format!("{}/…\"", shown(&value[..end])),
        None => shown(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "hostname = \"mx.example.org\"\n[webhooks.crm]\nurl = \"https://hooks.example.org/services/T0/key\"\n\
        secret = \"0123456789abcdef0123\"\n[telemetry]\notlp_endpoint = \"https://spans.example.org?key=T1\"\n[http]\npassword_hash = \"\"\n";

    #[test]
    fn keys_are_shown_and_secrets_are_not() {
        let (_, settings) = check_text_noting(Path::new("s.toml"), TEXT).expect("it is valid");
        let (changed, all) = (keys(&settings, false).into_string(), keys(&settings, true).into_string());
        assert!(changed.contains("mx.example.org") && changed.contains("line 1"), "{changed}");
        assert!(!changed.contains("lifetime_s") && all.contains("lifetime_s"));
        assert!(all.contains("https://hooks.example.org/…") && !all.contains("T0/key"), "{all}");
        assert!(all.contains("https://spans.example.org/…") && !all.contains("T1"), "{all}");
        assert!(!all.contains("0123456789abcdef"), "{all}");
    }
}
