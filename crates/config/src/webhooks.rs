//! `[webhooks.NAME]` and `[telemetry]`: data sent to other services.

use stentor_http_client::Url;
use stentor_mail::address::normalise_domain;

use super::configuration::TelemetryConfig;
use super::endpoints::{Kind, WebhookConfig, WebhookFormat};
use super::raw::Section;
use super::tables::is_list_name;

/// Maximum endpoints.
const WEBHOOKS_MAX: usize = 100;
/// Minimum length of a secret; a shorter one could be guessed.
const SECRET_BYTES_MIN: usize = 16;

pub(super) fn webhooks(section: &Section<'_>, is_list: &dyn Fn(&str) -> bool) -> Vec<WebhookConfig> {
    let mut all = Vec::new();
    for entry in section.entries() {
        if all.len() >= WEBHOOKS_MAX {
            section.context.error(entry.key_span, format!("more than {WEBHOOKS_MAX} webhooks"));
            break;
        }
        // The file with its position has this name.
        if !is_list_name(&entry.key) || entry.key.starts_with('.') {
            let message =
                format!("{:?} is not a valid webhook name: use at most 64 of a-z, A-Z, 0-9, - _ . +", entry.key);
            section.context.error(entry.key_span.clone(), message);
        }
        if let Some(own) = section.of_entry(&entry) {
            all.extend(webhook(own, &entry.key, is_list));
        }
    }
    all
}

fn webhook(section: Section<'_>, name: &str, is_list: &dyn Fn(&str) -> bool) -> Option<WebhookConfig> {
    let url = section.required("url", "https://hooks.example.org/stentor").and_then(|text| url(&section, &text));
    let format = section.choice(
        "format",
        WebhookFormat::Events,
        &[("events", WebhookFormat::Events), ("listmonk", WebhookFormat::Listmonk)],
    );
    let authorization_file = section.text("authorization_file").map(|text| section.context.path(text.value));
    let secret = secret(&section, format);
    let events = events(&section, format);
    let mut lists = Vec::new();
    for text in section.texts("lists").unwrap_or_default() {
        if !is_list(text.value) {
            section.context.error(text.span, format!("there is no list {:?}", text.value));
        }
        lists.push(text.value.to_owned());
    }
    let mut senders = Vec::new();
    for text in section.texts("senders").unwrap_or_default() {
        match normalise_domain(text.value) {
            Ok(domain) => senders.push(domain),
            Err(why) => {
                section.context.error(text.span, format!("{:?} is not a valid domain: {why}", text.value));
            }
        }
    }
    let enabled = section.flag("enabled", true);
    let mut batch_max = section.number("batch_max", 100, 1..=10_000) as usize;
    if format == WebhookFormat::Listmonk {
        if section.has("batch_max") {
            let message = "`batch_max` does not apply to format \"listmonk\": each request has one event";
            section.context.error(section.span_of("batch_max"), message.to_owned());
        }
        batch_max = 1;
    }
    let batch_wait_ms = section.number("batch_wait_ms", 1_000, 0..=60_000);
    let timeout_ms = section.seconds("timeout_s", 30, 0.1..=600.0);
    section.finish();
    Some(WebhookConfig {
        name: name.to_owned(),
        url: url?,
        secret: secret?,
        format,
        authorization_file,
        enabled,
        events,
        lists,
        senders,
        batch_max,
        batch_wait_ms,
        timeout_ms,
    })
}

/// The key of signatures. listmonk checks none.
fn secret(section: &Section<'_>, format: WebhookFormat) -> Option<String> {
    if format == WebhookFormat::Listmonk && !section.has("secret") {
        return Some(String::new());
    }
    let text = section.required("secret", "32 or more random characters")?;
    if text.value.len() < SECRET_BYTES_MIN {
        section.context.error(text.span, format!("`secret` must have at least {SECRET_BYTES_MIN} octets"));
        return None;
    }
    Some(text.value.to_owned())
}

fn events(section: &Section<'_>, format: WebhookFormat) -> Vec<Kind> {
    let is_of_format = |kind: &Kind| format == WebhookFormat::Events || Kind::OF_LISTMONK.contains(kind);
    let Some(texts) = section.texts("events") else {
        let default: &[Kind] = if format == WebhookFormat::Events { &Kind::FINAL } else { &Kind::OF_LISTMONK };
        return default.to_vec();
    };
    let mut events = Vec::new();
    for text in texts {
        let known = Kind::ALL.iter().filter(|(_, kind)| is_of_format(kind));
        if let Some((_, kind)) = known.clone().find(|(word, _)| *word == text.value) {
            events.push(*kind);
            continue;
        }
        let words: Vec<&str> = known.map(|(word, _)| *word).collect();
        let message = format!("{:?} is not a valid event; valid events: {}", text.value, words.join(", "));
        section.context.error(text.span, message);
    }
    events
}

fn url(section: &Section<'_>, text: &super::diagnose::Spot<&str>) -> Option<Url> {
    match Url::parse(text.value) {
        Ok(url) => Some(url),
        Err(why) => {
            // The message omits the URL, which may contain a password or key.
            section.context.error(text.span.clone(), format!("the URL{} cannot be used: {why}", section.place()));
            None
        }
    }
}

pub(super) fn telemetry(section: Section<'_>) -> TelemetryConfig {
    let endpoint = section.text("otlp_endpoint").filter(|text| !text.value.is_empty());
    let endpoint = endpoint.and_then(|text| url(&section, &text));
    let sample_one_in = section.number("sample_one_in", 100, 1..=1_000_000_000);
    section.finish();
    TelemetryConfig { endpoint, sample_one_in }
}
