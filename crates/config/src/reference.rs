//! Checks the tables of keys in docs/operate/configuration*.md. Keys, accepted values and defaults come from the
//! readers; only the last column, the meaning, is written by hand.
//!
//! The test fails when a page differs. `STENTOR_UPDATE=1 cargo test -p stentor-config reference` rewrites the pages; a
//! new key gets a row without a meaning in the last table of its section.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use toml::de::DeTable;

use super::raw::Context;
use super::units::{self, Unit};
use super::{sections, tests};

const HEAD: &str = "| key | takes | default | meaning |";
const RULE: &str = "|---|---|---|---|";
/// Cell of a key whose meaning has not been written yet.
const MISSING: &str = "TODO";

/// Formats a range.
pub(super) fn range(unit: Option<Unit>, range: &RangeInclusive<u64>) -> String {
    let bound = |value: u64| units::number(unit, value.into());
    format!("{} to {}", bound(*range.start()), bound(*range.end()))
}

/// Formats a default: the number as written, and its readable form if that differs.
pub(super) fn number(unit: Option<Unit>, value: u64) -> String {
    let shown = units::number(unit, value.into());
    let is_plain = value == 0 || shown.starts_with(&value.to_string());
    if unit.is_none() || is_plain { value.to_string() } else { format!("{value} ({shown})") }
}

pub(super) fn words<T>(words: &[(&'static str, T)]) -> String {
    words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

pub(super) fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> Option<String> {
    words.iter().find(|(_, other)| other == value).map(|(word, _)| format!("`\"{word}\"`"))
}

/// Accepted values of a key, and its default if that is a plain value.
#[derive(Debug)]
pub(super) struct Fact {
    pub values: String,
    pub default: Option<String>,
}

/// Facts by section and key.
pub(super) type Facts = BTreeMap<(String, String), Fact>;

/// Facts with sections named as in the page's headings: `lists`, not `lists.NAME`.
fn facts() -> Facts {
    let (document, _) = DeTable::parse_recoverable(tests::ONE_OF_EACH);
    let context = Context::new(Path::new("stentor.toml"), tests::ONE_OF_EACH);
    assert!(sections::read(&context, document.get_ref()).is_some());
    let table = |section: String| section.split('.').next().unwrap_or_default().to_owned();
    context.facts.take().into_iter().map(|((section, key), fact)| ((table(section), key), fact)).collect()
}

/// Cells of a table row.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split(" |").map(str::trim).collect()
}

/// Keys of a row: the words in backticks of its first cell.
fn keys(row: &str) -> Vec<String> {
    cells(row)[0].split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

/// A single value if all are equal, else all in order.
fn joined(values: &[&str]) -> String {
    if values.iter().all(|value| *value == values[0]) { values[0].to_owned() } else { values.join(", ") }
}

/// Fills in what the readers know. A default that is not a plain value is kept as written.
fn row(line: &str, section: &str, facts: &Facts) -> String {
    let keys = keys(line);
    let known: Option<Vec<&Fact>> = keys.iter().map(|key| facts.get(&(section.to_owned(), key.clone()))).collect();
    let cells = cells(line);
    let (Some(known), [names, _, default, meaning]) = (known, &cells[..]) else {
        panic!("[{section}] has no such keys, or the row has not four cells: {line}")
    };
    let values: Vec<&str> = known.iter().map(|fact| &*fact.values).collect();
    let defaults: Option<Vec<&str>> = known.iter().map(|fact| fact.default.as_deref()).collect();
    let default = defaults.map_or_else(|| (*default).to_owned(), |defaults| joined(&defaults));
    format!("| {names} | {} | {default} | {meaning} |", joined(&values))
}

/// The page with its tables of keys updated.
fn updated(page: &str) -> String {
    let facts = facts();
    let (mut section, mut in_table) = (String::new(), false);
    let mut lines: Vec<String> = Vec::new();
    // Keys of the section without a row, and the line after which each belongs.
    let mut missing: Vec<(usize, String, String)> = Vec::new();
    let mut named: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let name = heading.trim_matches(['[', ']']).split('.').next().unwrap_or_default();
            section = if heading.starts_with('[') { name.to_owned() } else { String::new() };
        }
        in_table = line == HEAD || in_table && line.starts_with('|');
        if in_table && line != HEAD && line != RULE {
            named.extend(keys(line).into_iter().map(|key| (section.clone(), key)));
            lines.push(row(line, &section, &facts));
            missing.retain(|(_, other, _)| *other != section);
            missing.push((lines.len(), section.clone(), String::new()));
        } else {
            lines.push(line.to_owned());
        }
    }
    for (at, section, _) in missing.into_iter().rev() {
        let new = facts.iter().filter(|((of, key), _)| *of == section && !named.contains(&(of.clone(), key.clone())));
        for ((_, key), fact) in new {
            let default = fact.default.as_deref().unwrap_or(MISSING);
            lines.insert(at, format!("| `{key}` | {} | {default} | {MISSING} |", fact.values));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_reference_is_up_to_date() {
    for path in tests::pages::reference() {
        let page = fs::read_to_string(&path).unwrap();
        let updated = updated(&page);
        let name = path.file_name().unwrap().display();
        if page != updated && std::env::var_os("STENTOR_UPDATE").is_some() {
            // Other tests read the page at the same time.
            let new = path.with_extension("new");
            fs::write(&new, &updated).unwrap();
            fs::rename(&new, &path).unwrap();
        } else if let Some((old, new)) = page.lines().zip(updated.lines()).find(|(old, new)| old != new) {
            panic!(
                "docs/operate/{name} is stale; `STENTOR_UPDATE=1 cargo test -p stentor-config reference` rewrites it:\n\
                 - {old}\n+ {new}"
            );
        }
        assert!(!updated.contains(MISSING), "docs/operate/{name}: a key has no meaning or default yet");
    }
}
