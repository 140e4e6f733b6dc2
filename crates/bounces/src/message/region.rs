//! The reporter's words in a text for people: what stands before the copy of the original, and addresses in it.
//!
//! Promise: at most [`LINES_MAX`] lines are read, each in linear time.

use std::sync::LazyLock;

use regex::Regex;

use super::REPORTS_MAX;
use super::collect::Collector;
use crate::reply::{TEXT_BYTES_MAX, start_of};

/// Lines of a text that are read.
pub(super) const LINES_MAX: usize = 400;
/// Characters of a line that are read.
const LINE_CHARS_MAX: usize = 1_000;
/// Lines about a recipient that follow its own, and their octets.
const LINES_ABOUT_MAX: usize = 12;
const ABOUT_BYTES_MAX: usize = 2_000;

/// An address in a text.
pub(super) static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"[^\s<>()\[\],;:"@\\|]+@(?:[\w-]+\.)+[\w-]*\w"#).expect("the pattern is constant"));

/// Words after which failed recipients are listed.
pub(super) static INTRODUCTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)(following|these|this|below)\ (e-?mail\ )?(recipient|address|user|person|mailbox|destination|people)|did\ not\ reach|(not|n't|never)\ (be\ |been\ |able\ to\ be\ )?(re)?deliver|unable\ to\ (deliver|send)|
        failed\ permanently|could\ not\ (be\ )?(deliver|send|sent)|delivery\ (to|failed|has\ failed|failure|of)|undeliver|had\ (permanent|transient)\ (fatal|non-fatal)|permanent\ (fatal\ )?error|did\ not\ receive|have\ delivery|
        was\ rejected|not\ accepted|returned\ to\ sender|nicht\ zugestellt|nicht\ ausgeliefert|no\ pudo\ ser\ entregado|non\ è\ stato|не\ может\ быть\ доставлен|не\ удалось|nao\ pode\ ser|n'a\ pas\ pu|was\ not\ delivered|postponed|has\ encountered\ delivery\ problems",
    )
    .expect("the pattern is constant")
});

static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^\s*[-=*_>\#~+]{2,}.{0,40}(copy\ of|original|unsent\ message|returned\ message|message\ header|message\ follow|below\ this|below\ the\ next|forwarded\ message|mensaje\ original|header\ of\ the|headers\ of)
        |^\W*(the\ )?(original\ (message|mail|e-?mail)(?-u:\b).{0,30}|.{0,20}message\ (headers?|text)\ follows?)[:\s=.-]*$
        |^\W*(original\ message|message\ headers?|the\ original\ message|below\ is\ a\ copy|this\ is\ a\ copy|a\ copy\ of\ the\ (original|message)|your\ message\ reads|included\ is\ a\ copy|the\ first\ [0-9]+\ lines|original\ headers?|the\ header\ of\ the\ original|content\ of\ the\ original)
        |^(received|return-path|x-originating-ip):\ ?",
    )
    .expect("the pattern is constant")
});

/// The text before the copy of the original.
pub(super) fn before_original(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines().take(LINES_MAX) {
        if MARKER.is_match(line) && !kept.trim().is_empty() {
            break;
        }
        kept.extend(line.chars().take(LINE_CHARS_MAX));
        kept.push('\n');
    }
    kept
}

/// All addresses of a text, without duplicates, in order.
pub(super) fn addresses_of(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for address in ADDRESS.find_iter(text).take(REPORTS_MAX) {
        let address = cleaned(address.as_str());
        if is_whole(address) && !found.iter().any(|known| known.eq_ignore_ascii_case(address)) {
            found.push(address.to_owned());
        }
    }
    found
}

/// Whether an address is whole: archives and groups hide parts of others' addresses (`ann...@example.org`).
pub(super) fn is_whole(address: &str) -> bool {
    !address.contains("..") && !address.starts_with('@')
}

/// An address without marks around it and without `SMTP=`.
pub(super) fn cleaned(address: &str) -> &str {
    let local_end = address.find('@').unwrap_or(0);
    let address = match address[..local_end].rfind('=') {
        Some(at) if address[..at].to_ascii_lowercase().ends_with("smtp") => &address[at + 1..],
        _ => address,
    };
    address.trim_start_matches(['\'', '`', '*', '.', '-', '=', '&', '“', '«'])
}

/// Texts that may explain a recipient's failure.
pub(super) struct Texts {
    region: String,
    /// The lines in lower case.
    lower: Vec<String>,
}

impl Texts {
    pub fn of(collected: &Collector) -> Texts {
        let region = before_original(&collected.text);
        let lower = region.lines().map(str::to_lowercase).collect();
        Texts { region, lower }
    }

    /// The lines about an address: from the one that names it to the next empty one behind some words.
    pub fn about(&self, address: &str) -> String {
        let wanted = address.to_lowercase();
        let Some(at) = self.lower.iter().position(|line| line.contains(&wanted)) else { return String::new() };
        let mut lines = self.region.lines().skip(at);
        let mut about = lines.next().map(|line| without(line, &wanted)).unwrap_or_default();
        for line in lines.take(LINES_ABOUT_MAX) {
            let has_words = about.chars().filter(|c| c.is_alphabetic()).count() > 2;
            let is_end = line.trim().is_empty() && has_words && !about.trim_end().ends_with(':');
            if is_end || begins_with_address(line) || about.len() > ABOUT_BYTES_MAX {
                break;
            }
            about.push(' ');
            about.push_str(line.trim());
        }
        about
    }

    /// All words of the reporter.
    pub fn all(&self) -> String {
        let is_subject =
            |line: &&str| line.trim_start().get(..8).is_some_and(|name| name.eq_ignore_ascii_case("subject:"));
        let lines = start_of(&self.region, TEXT_BYTES_MAX).lines().filter(|line| !is_subject(line));
        let text = lines.collect::<Vec<_>>().join("\n");
        ADDRESS.replace_all(&text, "").split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A line without an address at its start, which would be taken for a word of the reply.
fn without(line: &str, address: &str) -> String {
    let lower = line.to_lowercase();
    match lower.find(address) {
        Some(at) if lower.len() == line.len() && line.is_char_boundary(at + address.len()) => {
            format!("{} {}", &line[..at], &line[at + address.len()..])
        }
        _ => line.to_owned(),
    }
}

/// Whether a line begins with an address, however it is marked.
pub(super) fn begins_with_address(line: &str) -> bool {
    ADDRESS.find(line).is_some_and(|found| !line[..found.start()].contains(char::is_alphanumeric))
}
