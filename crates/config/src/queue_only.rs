//! `[queue_only.NAME]`: mail that is accepted and kept in the queue, always or in time windows.

use std::ops::Range;

use jiff::tz::TimeZone;
use stentor_mail::Class;
use stentor_mail::address::{Address, normalise_domain};
use stentor_sched::{ClientScope, Scope};

use super::raw::{Entry, Section};
use super::sending::SourceSettings;
use super::windows::{self, InForce, Window};

/// Maximum sections; each message's domain and sender are compared with all of them.
const SECTIONS_MAX: usize = 100;
const WINDOWS_MAX: usize = 100;
/// Maximum length of a reason, as for an operator's.
const REASON_BYTES_MAX: usize = 500;

/// One section `[queue_only.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOnlyConfig {
    pub name: String,
    pub scope: Scope,
    /// Time windows; empty: always.
    pub windows: Vec<Window>,
    pub zone: TimeZone,
    pub reason: String,
}

impl QueueOnlyConfig {
    /// Whether the section applies at this time (Unix milliseconds), and until when.
    pub fn in_force(&self, now_ms: u64) -> Option<InForce> {
        if self.windows.is_empty() {
            return Some(InForce::Always);
        }
        windows::open_until(&self.windows, now_ms, &self.zone)
    }
}

pub(super) fn read(
    top: &Section<'_>,
    sources: &[SourceSettings],
    is_list: impl Fn(&str) -> bool,
) -> Vec<QueueOnlyConfig> {
    let section = top.section("queue_only");
    let entries = section.entries();
    if entries.len() > SECTIONS_MAX {
        section.context.error(section.span.clone(), format!("more than {SECTIONS_MAX} sections [queue_only.NAME]"));
    }
    entries.iter().filter_map(|entry| one(&section, entry, sources, &is_list)).collect()
}

fn one(
    sections: &Section<'_>,
    entry: &Entry<'_>,
    sources: &[SourceSettings],
    is_list: &impl Fn(&str) -> bool,
) -> Option<QueueOnlyConfig> {
    let section = sections.of_entry(entry)?;
    let context = section.context;
    let scope = scope(&section, sources, is_list);
    let mut windows = Vec::new();
    for text in section.texts("windows").unwrap_or_default() {
        match Window::parse(text.value) {
            Ok(window) => windows.push(window),
            Err(why) => context.error(text.span, format!("{:?}: {why}", text.value)),
        }
    }
    if windows.len() > WINDOWS_MAX {
        context.error(section.span_of("windows"), format!("more than {WINDOWS_MAX} windows"));
    }
    let zone = match section.text("time_zone") {
        None => TimeZone::system(),
        Some(text) => TimeZone::get(text.value).unwrap_or_else(|_| {
            let message = format!(
                "{:?} is not in the system's time zone database; write, for instance, \"Europe/Vienna\"",
                text.value
            );
            context.error(text.span, message);
            TimeZone::UTC
        }),
    };
    let reason = section.text("reason").map_or("", |text| {
        if text.value.len() > REASON_BYTES_MAX {
            context.error(text.span, format!("`reason` must have at most {REASON_BYTES_MAX} octets"));
        }
        text.value
    });
    let reason = reason.to_owned();
    section.finish();
    Some(QueueOnlyConfig { name: entry.key.clone(), scope: scope?, windows, zone, reason })
}

fn scope(section: &Section<'_>, sources: &[SourceSettings], is_list: &impl Fn(&str) -> bool) -> Option<Scope> {
    let context = section.context;
    let mut given: Vec<(Range<usize>, Option<Scope>)> = Vec::new();
    if section.flag("all", false) {
        given.push((section.span_of("all"), Some(Scope::All)));
    }
    let mut read = |key: &'static str, of: &dyn Fn(&str) -> Result<Scope, String>| {
        let Some(text) = section.text(key) else { return };
        let scope = of(text.value).map_err(|why| context.error(text.span.clone(), why)).ok();
        given.push((text.span, scope));
    };
    read("class", &|text| match text {
        "ordinary" => Ok(Scope::Class(Class::Ordinary)),
        "bulk" => Ok(Scope::Class(Class::Bulk)),
        _ => Err(format!("a class is \"ordinary\" or \"bulk\", not {text:?}")),
    });
    read("list", &|text| {
        if is_list(text) {
            Ok(Scope::List(text.to_owned()))
        } else {
            Err(format!("there is no list {text:?}; see [lists.NAME]"))
        }
    });
    read("domain", &|text| domain(text).map(Scope::Domain));
    read("sender", &|text| sender(text).map(Scope::Sender));
    read("client", &|text| {
        let wrong = || format!("{text:?} is neither an address nor a network, and cannot be a local user");
        ClientScope::parse(text).map(Scope::Client).ok_or_else(wrong)
    });
    read("source", &|text| {
        let is_known = sources.iter().any(|source| source.name == text);
        if is_known {
            Ok(Scope::Source(text.to_owned()))
        } else {
            Err(format!("there is no source {text:?}; see [sources.NAME]"))
        }
    });
    match given.len() {
        1 => given.remove(0).1,
        0 => {
            let message = format!(
                "name the queue-only mail{}: `all = true`, or one of `class`, `list`, `domain`, `sender`, `client`, \
                 `source`",
                section.place()
            );
            context.error(section.span.clone(), message);
            None
        }
        _ => {
            let message = format!("only one scope is allowed{}; write a section for each", section.place());
            context.error(given[1].0.clone(), message);
            None
        }
    }
}

fn domain(text: &str) -> Result<String, String> {
    normalise_domain(text).map_err(|_| format!("{text:?} is not a domain"))
}

/// Parses an address, `@domain`, or an empty string for the null sender, into the form of envelopes.
fn sender(text: &str) -> Result<String, String> {
    match text.strip_prefix('@') {
        Some(of) => domain(of).map(|domain| format!("@{domain}")),
        None if text.is_empty() => Ok(String::new()),
        None => {
            let address =
                text.parse::<Address>().map_err(|error| format!("{text:?} is not a valid mail address: {error}"))?;
            Ok(address.as_str().to_owned())
        }
    }
}
