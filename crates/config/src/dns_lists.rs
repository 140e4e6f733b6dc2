//! `[dns_lists]`, `[greylist]`, and rule conditions on untrusted clients.

use std::sync::Arc;

use stentor_reputation::{AnswerPattern, DnsList, DnsListSubject, GreylistSettings, HeloFault, RateOver};
use stentor_rules::StrangerConditions;

use super::diagnose::likely;
use super::numbers::at_most;
use super::raw::{DAY_S, Entry, Section};

/// Maximum DNS lists; each costs a query per client.
const LISTS_MAX: usize = 50;
const NAME_BYTES_MAX: usize = 40;
const WEIGHT_MAX: i64 = 100;
const SCORE_MAX: u64 = 10_000;
/// The only supported condition on a sender's domain.
const UNKNOWN: &str = "unknown";

/// All lists, in the order of the file.
pub(super) type DnsLists = Arc<[Arc<DnsList>]>;

pub(super) fn read(section: &Section<'_>) -> DnsLists {
    let entries = section.entries();
    if let Some(entry) = entries.get(LISTS_MAX) {
        section.context.error(entry.key_span.clone(), format!("more than {LISTS_MAX} DNS lists"));
    }
    entries.iter().take(LISTS_MAX).filter_map(|entry| list(section, entry)).map(Arc::new).collect()
}

fn list<'a>(sections: &Section<'a>, entry: &Entry<'a>) -> Option<DnsList> {
    let section = sections.of_entry(entry)?;
    let context = section.context;
    let is_word = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    if entry.key.is_empty() || entry.key.len() > NAME_BYTES_MAX || !entry.key.bytes().all(is_word) {
        let message = format!(
            "{:?} is not a valid name: use at most {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`",
            entry.key
        );
        context.error(entry.key_span.clone(), message);
    }
    let zone = section.required("zone", "zen.spamhaus.org");
    let of = section.choice("of", DnsListSubject::Client, &DnsListSubject::WORDS);
    let mut answers = Vec::new();
    for text in section.some_texts("answers").unwrap_or_default() {
        match AnswerPattern::parse(text.value) {
            Ok(pattern) => answers.push(pattern),
            Err(error) => context.error(text.span, error.to_string()),
        }
    }
    let weight = section.signed("weight", 1, -WEIGHT_MAX..=WEIGHT_MAX) as i32;
    section.finish();
    let zone = zone?;
    let list = DnsList::new(&entry.key, zone.value, of, answers, weight);
    if list.is_err() {
        context
            .error(zone.span, format!("{:?} is not the zone of a DNS list, such as \"zen.spamhaus.org\"", zone.value));
    }
    list.ok()
}

/// Reads `[greylist]`.
pub(super) fn greylist(section: Section<'_>) -> GreylistSettings {
    let settings = GreylistSettings {
        delay_ms: section.seconds("delay_s", 300, 1.0..=DAY_S),
        window_ms: section.seconds("window_s", 2 * 86_400, 60.0..=31.0 * DAY_S),
        known_ms: section.seconds("known_s", 35 * 86_400, 60.0..=366.0 * DAY_S),
        network_passes: section.number("network_passes", 5, 0..=200) as u32,
        entries_max: section.number("entries_max", 100_000, 1_000..=1_000_000) as usize,
    };
    at_most(&section, "delay_s", settings.delay_ms, "window_s", settings.window_ms);
    section.finish();
    settings
}

/// Reads the conditions of one rule.
pub(super) fn conditions(
    section: &Section<'_>,
    lists: &DnsLists,
    conditions: &mut StrangerConditions,
    is_unless: bool,
) {
    let context = section.context;
    for text in section.texts("dns_list").unwrap_or_default() {
        if let Some(list) = lists.iter().find(|list| *list.name == *text.value) {
            conditions.list(list.clone());
        } else {
            let near = likely(text.value, lists.iter().map(|list| &*list.name));
            let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
            context.error(text.span, format!("there is no DNS list {:?}{near}; see [dns_lists.NAME]", text.value));
        }
    }
    if let Some(least) = section.maybe_number("dns_score_min", 1..=SCORE_MAX) {
        let reached: u64 = lists.iter().map(|list| u64::from(list.weight.max(0).unsigned_abs())).sum();
        if reached < least {
            let message = format!("this score is never reached: the weights in [dns_lists] add up to {reached}");
            context.error(section.span_of("dns_score_min"), message);
        }
        let weighed = lists.iter().filter(|list| list.weight != 0).cloned();
        conditions.score(least as i32, weighed.collect());
    }
    for text in section.texts("helo_is").unwrap_or_default() {
        if let Some((_, fault)) = HeloFault::WORDS.iter().find(|(word, _)| *word == text.value) {
            conditions.helo(*fault);
        } else {
            let all: Vec<String> = HeloFault::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            context.error(
                text.span,
                format!("{:?} is not a valid value of `helo_is`; valid values: {}", text.value, all.join(", ")),
            );
        }
    }
    if let Some(is_early) = section.maybe_flag("early_talker") {
        conditions.early(is_early);
    }
    for text in section.texts("client_rate_over").unwrap_or_default() {
        match RateOver::parse(text.value) {
            Some(rate) => conditions.rate(rate),
            None => context.error(
                text.span,
                format!(
                    "{:?} is not a valid rate; write, for instance, \"30 connections/minute\"; units are connections, \
                     messages or recipients, per minute or hour",
                    text.value
                ),
            ),
        }
    }
    match section.maybe_flag("greylisted") {
        Some(true) if is_unless => {
            let message = "`greylisted` cannot be used in `not`: it is checked only when all other conditions hold";
            context.error(section.span_of("greylisted"), message);
        }
        Some(true) => conditions.greylisted(),
        Some(false) => context.error(section.span_of("greylisted"), "`greylisted` can only be true"),
        None => {}
    }
    if section.maybe_choice("sender_domain", &[(UNKNOWN, ())]).is_some() {
        conditions.sender_unknown();
    }
}
