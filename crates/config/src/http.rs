//! `[http]`: listening addresses, and who may read or make changes.

use std::net::SocketAddr;

use super::configuration::{HttpConfig, ReadAccess};
use super::diagnose::Spot;
use super::keys::{self, ApiToken};
use super::links;
use super::raw::{DAY_S, Section, addresses};
use super::settings::SECRET;

/// Maximum length of a user or token name.
const NAME_BYTES_MAX: usize = 64;
/// Maximum users, and maximum tokens.
const NAMES_MAX: usize = 1_000;
/// User name that `password_hash` belongs to.
const OPERATOR: &str = "operator";

pub(super) fn read(section: Section<'_>) -> HttpConfig {
    let listen = addresses(&section, "listen", SocketAddr::from(([127, 0, 0, 1], 8025)), "127.0.0.1:8025");
    let tls = section.flag("tls", false);
    let outside = listen.iter().find(|address| !address.ip().is_loopback()).copied();
    let default = if outside.is_some() { ReadAccess::Login } else { ReadAccess::Open };
    let reading = section.choice("reading", default, &[("open", ReadAccess::Open), ("login", ReadAccess::Login)]);
    let host_names = section.texts("host_names").unwrap_or_default();
    let host_names = host_names.into_iter().map(|name| name.value.to_ascii_lowercase()).collect();
    let link_base = section.text("link_base").and_then(|text| links::base(&section, &text, tls && !listen.is_empty()));
    let connections_max = section.number("connections_max", 256, 1..=100_000) as u32;
    let session_ms = section.seconds("session_s", 43_200, 60.0..=30.0 * DAY_S);
    let (users, tokens) = (users(&section), tokens(&section));
    let span = section.span_of("listen");
    match (outside, reading) {
        (Some(address), ReadAccess::Login)
            if users.is_empty() && tokens.is_empty() && !section.context.has_errors() =>
        {
            let message = format!(
                "{address} is not a loopback address, and nobody could log in: set `password_hash` in [http] to the \
                 output of `stentor http-password`"
            );
            section.context.error(span, message);
        }
        (Some(address), ReadAccess::Open) => {
            let message = format!(
                "anyone who can reach {address} can read addresses of senders and recipients without a login: \
                 `reading` in [http] is \"open\""
            );
            section.context.warn(span, message);
        }
        _ => {}
    }
    if listen.is_empty() && !tokens.is_empty() {
        let message = "`tokens` without `listen`: nothing is served over HTTP, so no token can be used; set `listen` in \
            [http], or remove `tokens`";
        section.context.warn(section.span_of("listen"), message.to_owned());
    }
    section.finish();
    HttpConfig { listen, tls, reading, host_names, link_base, connections_max, session_ms, users, tokens }
}

fn users(section: &Section<'_>) -> Vec<(String, String)> {
    let mut users = Vec::new();
    if let Some(hash) = section.text("password_hash").filter(|hash| !hash.value.is_empty()) {
        users.extend(user(section, OPERATOR, &hash));
    }
    for (name, hash) in named(section, "users") {
        if users.iter().any(|(other, _)| *other == name) {
            section.context.error(hash.span.clone(), format!("user `{name}` already has a password"));
        }
        users.extend(user(section, &name, &hash));
    }
    users
}

fn user(section: &Section<'_>, name: &str, hash: &Spot<&str>) -> Option<(String, String)> {
    match keys::check_hash(hash.value) {
        Ok(()) => Some((name.to_owned(), hash.value.to_owned())),
        Err(why) => {
            let message = format!(
                "the password hash of `{name}` is not valid: {why}; `stentor http-password` prints \
                one"
            );
            section.context.error(hash.span.clone(), message);
            None
        }
    }
}

fn tokens(section: &Section<'_>) -> Vec<ApiToken> {
    let token = |(name, text): (String, Spot<&str>)| {
        let (read_only, hash) = match text.value.strip_prefix("read-only ") {
            Some(hash) => (true, hash),
            None => (false, text.value),
        };
        let hash = hash.strip_prefix("sha256:").and_then(keys::unhex);
        if hash.is_none() {
            let message = format!(
                "the token `{name}` must be \"sha256:\" and 64 hexadecimal digits; `stentor http-token {name}` \
                 creates one"
            );
            section.context.error(text.span.clone(), message);
        }
        Some(ApiToken { name: name.into(), hash: hash?, read_only })
    };
    named(section, "tokens").into_iter().filter_map(token).collect()
}

/// Reads a table of names and secrets.
fn named<'a>(section: &Section<'a>, key: &'static str) -> Vec<(String, Spot<&'a str>)> {
    let table = section.section(key);
    let mut found = Vec::new();
    for entry in table.entries() {
        table.keep_entry(&entry, || SECRET.to_owned());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&entry.key.len()) || !entry.key.bytes().all(plain) {
            let message = format!(
                "{:?} is not a valid name: use at most {NAME_BYTES_MAX} of a-z, A-Z, 0-9, - _ . @ +",
                entry.key
            );
            section.context.error(entry.key_span.clone(), message);
        }
        match entry.value.as_str() {
            Some(value) if found.len() < NAMES_MAX => {
                found.push((entry.key, Spot { value, span: entry.span }));
            }
            Some(_) => section.context.error(entry.key_span, format!("more than {NAMES_MAX} {key}")),
            None => section.context.error(entry.span, format!("`{}` in {key} of [http] must be a string", entry.key)),
        }
    }
    found
}
