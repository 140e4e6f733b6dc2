//! Checks table entries for `stentor check` and `stentor table check`: finds values that do not suit the table's use
//! before they defer mail.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use stentor_config::{Config, Diagnostic, FilePosition, InlineEntry, Severity, TableConfig, TableSource};
use stentor_rules::{Dialect, Field, RuleEffect, RuleId, Rulebook};
use stentor_tables::Table;

/// Maximum entries shown of one table.
const SHOWN_MAX: usize = 20;

/// The entries of a table that can be enumerated.
pub(crate) enum Entries<'a> {
    Inline(&'a [InlineEntry]),
    Read(&'a Table),
}

/// Key, value and position.
pub(crate) type Entry<'a> = (Cow<'a, str>, Cow<'a, str>, Position);

/// Line and column.
type Position = (u32, u32);

impl<'a> Entries<'a> {
    /// Entries of a configured table, which was `read` from its file.
    pub(crate) fn of(own: &'a TableConfig, read: Option<&'a Table>) -> Option<Entries<'a>> {
        match &own.source {
            TableSource::Inline(entries) => Some(Entries::Inline(entries)),
            _ => read.map(Entries::Read),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Entry<'a>> + 'a> {
        match *self {
            Entries::Inline(entries) => Box::new(entries.iter().map(|entry| {
                let FilePosition { line, column } = entry.position;
                ((&entry.key).into(), (&entry.value).into(), (line as u32, column as u32))
            })),
            Entries::Read(table) => Box::new(
                table
                    .lines()
                    // A key begins its line.
                    .map(|(key, value, line)| {
                        (String::from_utf8_lossy(key), String::from_utf8_lossy(value), (line, 1))
                    }),
            ),
        }
    }
}

/// The first values that are not valid for `as` and would defer mail, and keys that no mail matches; also the number of
/// further ones.
pub(crate) fn doubtful(config: &Config, own: &TableConfig, entries: &Entries<'_>) -> (Vec<Diagnostic>, u64) {
    let (rules, name) = (&config.rules, own.name.as_str());
    let uses = rules.value_uses(name);
    let doubt = |key: &str, value: &str| rules.doubt(name, own.dialect, uses, key, value);
    let mut doubts: Vec<(Position, String)> =
        entries.iter().filter_map(|(key, value, at)| Some((at, doubt(&key, &value)?))).collect();
    doubts.extend(unasked(rules, name, entries));
    doubts.extend(ending_ok(rules, name, own.dialect, entries));
    doubts.sort_unstable();
    let file = match entries {
        Entries::Read(table) => table.file().map(PathBuf::from),
        Entries::Inline(_) => None,
    };
    let file = file.or_else(|| config.file.clone()).unwrap_or_else(|| Path::new("").to_owned());
    let more = doubts.len().saturating_sub(SHOWN_MAX) as u64;
    // A file's line does not show which table it belongs to.
    let named_at = if matches!(entries, Entries::Read(_)) { own.named_at() } else { String::new() };
    let shown = doubts.into_iter().take(SHOWN_MAX).map(|((line, column), message)| {
        let message = format!("{message}{named_at}");
        let (file, line, column) = (file.clone(), line as usize, column as usize);
        Diagnostic { file, line, column, severity: Severity::Warning, message }
    });
    (shown.collect(), more)
}

/// The first key of each kind that no rule looks up in the table, such as the name of a client.
fn unasked(rules: &Rulebook, name: &str, entries: &Entries<'_>) -> Vec<(Position, String)> {
    let mut first: HashMap<Field, (Position, String)> = HashMap::new();
    for (key, _, position) in entries.iter() {
        let Some(field) = rules.unasked(name, &key) else { continue };
        let (at, known) = first.entry(field).or_insert((position, String::new()));
        if known.is_empty() || position < *at {
            let condition = field.name();
            let why = format!("no rule has `{condition} = \"table:{name}\"`, as entries of this kind need");
            (*at, *known) = (position, format!("{key:?} in table {name} is never looked up: {why}"));
        }
    }
    first.into_values().collect()
}

/// The first `OK` in an access table that skips later rules.
fn ending_ok(rules: &Rulebook, name: &str, dialect: Dialect, entries: &Entries<'_>) -> Option<(Position, String)> {
    let id = rules.tables.iter().position(|known| *known.name == *name)?;
    let asks = |at: &usize| {
        let rule = &rules.rules[*at];
        let is_asked = rule.when.tables().iter().any(|(_, table)| usize::from(table.0) == id);
        is_asked && matches!(rule.does, RuleEffect::Table)
    };
    let at = (0..rules.rules.len()).find(asks).filter(|at| at + 1 < rules.rules.len())?;
    let ending = entries.iter().filter(|(_, value, _)| rules.ends_more(dialect, value));
    let (key, value, position) = ending.min_by_key(|(_, _, position)| *position)?;
    let (by, next) = (rules.rule_name(RuleId::new(at)), rules.rule_name(RuleId::new(at + 1)));
    let message = format!(
        "{value} for {key:?} in table {name} ends all rules, while Postfix ends one list of restrictions: after {by}, \
         neither {next} nor any later rule is applied. Put rules that must always apply before it, and rules that it \
         excepts from after it (docs/operate/moving.md)"
    );
    Some((position, message))
}
