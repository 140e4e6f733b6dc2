//! Reads TOML tables with positions: typed getters that report errors and continue with the default.
//!
//! A [`Section`] records which keys were read; all others are unknown. So the readers are the only list of keys. The
//! error about an unknown key suggests the likely spelling, or the section where it belongs.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::diagnose::{Diagnostic, FilePosition, Positions, Severity, Spot, likely};
use super::postfix;
use super::settings::{self, Origin, Setting, Settings};

/// Maximum findings kept; a file with more is not a configuration.
const DIAGNOSTICS_MAX: usize = 1_000;
/// Maximum keys listed in an error about an unknown key.
const KEYS_SHOWN_MAX: usize = 16;

struct UnknownKey {
    section: String,
    key: Spot<String>,
    /// Whether it is a section itself, as `[dsn]` is.
    is_table: bool,
}

/// Longest wait for file systems that hang, of all subscribers files together.
const FILE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Returns the replacement of an unknown key, if there is one.
type KeyReplacement = fn(&str) -> Option<&'static str>;

/// A further file in the text being checked.
#[derive(Clone)]
pub(super) struct TextPart {
    pub file: PathBuf,
    /// Where its text begins, at the start of a line.
    pub begin: usize,
}

/// The file being checked, and its findings.
pub(super) struct Context<'a> {
    file: &'a Path,
    /// Files behind it in the text, in the order of the text.
    parts: Vec<TextPart>,
    text: &'a str,
    positions: OnceCell<Positions>,
    folder: PathBuf,
    found: RefCell<Vec<(usize, Diagnostic)>>,
    /// Lines with a syntax error; other errors there are consequences.
    broken_lines: RefCell<Vec<usize>>,
    /// Keys by section, in the order in which they were read.
    known: RefCell<BTreeMap<String, Vec<&'static str>>>,
    unknown: RefCell<Vec<UnknownKey>>,
    /// Replacements for unknown keys, by section.
    instead: RefCell<BTreeMap<String, KeyReplacement>>,
    /// Accepted values of each key, for the reference in docs/operate/configuration.md.
    #[cfg(test)]
    pub facts: RefCell<super::reference::Facts>,
    /// Recorded keys and values.
    settings: RefCell<Settings>,
    is_noted: fn(&str, &str) -> bool,
    /// At a reload: host name and SMTP port in force. They do not change, and other settings depend on them.
    pub in_force: Option<(String, u16)>,
    /// Time left to wait for file systems; at zero, files are not opened.
    pub file_wait: Cell<Duration>,
}

impl<'a> Context<'a> {
    pub fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            parts: Vec::new(),
            text,
            positions: OnceCell::new(),
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            found: RefCell::default(),
            broken_lines: RefCell::default(),
            known: RefCell::default(),
            unknown: RefCell::default(),
            instead: RefCell::default(),
            #[cfg(test)]
            facts: RefCell::default(),
            settings: RefCell::default(),
            is_noted: super::reload::takes_restart,
            in_force: None,
            file_wait: Cell::new(FILE_WAIT_MAX),
        }
    }

    /// Names the files of a text that has several.
    pub fn with_parts(self, parts: Vec<TextPart>) -> Self {
        Self { parts, ..self }
    }

    /// The further file that an offset is in.
    fn part(&self, offset: usize) -> Option<&TextPart> {
        self.parts[..self.parts.partition_point(|part| part.begin <= offset)].last()
    }

    /// From now on records every key with value and origin, not only those that need a restart.
    pub fn note_all(&mut self) {
        self.is_noted = |_, _| true;
    }

    /// The recorded keys.
    pub fn settings(&self) -> Settings {
        self.settings.take().in_order()
    }

    /// Resolves a path relative to the file's folder.
    pub fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    pub fn position(&self, span: &Range<usize>) -> FilePosition {
        let positions = self.positions.get_or_init(|| Positions::new(self.text));
        let position = positions.of(self.text, span.start);
        match self.part(span.start) {
            Some(part) => {
                let before = positions.of(self.text, part.begin).line - 1;
                FilePosition { line: position.line - before, ..position }
            }
            None => position,
        }
    }

    /// `file:line` of a span, for explanations.
    pub fn place(&self, span: &Range<usize>) -> String {
        let file = self.part(span.start).map_or(self.file, |part| &part.file);
        let name = file.file_name().unwrap_or(file.as_os_str());
        format!("{}:{}", name.display(), self.position(span).line)
    }

    fn origin(&self, span: &Range<usize>) -> Origin {
        if self.part(span.start).is_some() {
            return Origin::ListFile;
        }
        let FilePosition { line, column } = self.position(span);
        Origin::File { line, column }
    }

    /// Records a line with a syntax error.
    pub fn mark_broken(&self, span: &Range<usize>) {
        self.broken_lines.borrow_mut().push(self.position(span).line);
    }

    pub fn syntax_error(&self, span: Range<usize>, message: &str) {
        self.mark_broken(&span);
        // The parser's messages may have several lines; a diagnostic has only one.
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        self.add(span, Severity::Error, format!("not TOML: {message}"));
    }

    /// Whether the file is malformed TOML, so that a key that seems missing may be unreadable.
    pub fn is_broken(&self) -> bool {
        !self.broken_lines.borrow().is_empty()
    }

    /// Whether the span is in a line with a syntax error.
    pub fn is_broken_at(&self, span: &Range<usize>) -> bool {
        self.broken_lines.borrow().contains(&self.position(span).line)
    }

    pub fn error(&self, span: Range<usize>, message: impl Into<String>) {
        if !self.is_broken_at(&span) {
            self.add(span, Severity::Error, message.into());
        }
    }

    pub fn warn(&self, span: Range<usize>, message: impl Into<String>) {
        self.add(span, Severity::Warning, message.into());
    }

    pub fn has_errors(&self) -> bool {
        let unknown = !self.unknown.borrow().is_empty();
        unknown || self.found.borrow().iter().any(|(_, diagnostic)| diagnostic.severity == Severity::Error)
    }

    fn add(&self, span: Range<usize>, severity: Severity, message: String) {
        let mut found = self.found.borrow_mut();
        if found.len() < DIAGNOSTICS_MAX {
            let FilePosition { line, column } = self.position(&span);
            let file = self.part(span.start).map_or(self.file, |part| &part.file).to_owned();
            found.push((span.start, Diagnostic { file, line, column, severity, message }));
        }
    }

    /// All findings in the order of the file.
    pub fn finish(self) -> Vec<Diagnostic> {
        let (known, instead) = (self.known.borrow(), self.instead.borrow());
        for UnknownKey { section, key, is_table } in self.unknown.take() {
            let message = if is_table && section.is_empty() {
                unknown_section(&known, &key.value)
            } else {
                let instead = instead.get(&section).and_then(|instead| instead(&key.value));
                unknown_key(&known, &section, &key.value, instead)
            };
            self.error(key.span.clone(), message);
        }
        drop((known, instead));
        let mut found = self.found.into_inner();
        found.sort_by_key(|(offset, _)| *offset);
        found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }

    /// All keys that were read, as `section.key` (`key` at the top level).
    #[cfg(test)]
    pub fn known_keys(&self) -> Vec<String> {
        let known = self.known.borrow();
        let name =
            |section: &str, key: &str| if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        known.iter().flat_map(|(section, keys)| keys.iter().map(move |key| name(section, key))).collect()
    }
}

/// The message for an unknown section.
fn unknown_section(known: &BTreeMap<String, Vec<&'static str>>, name: &str) -> String {
    let message = format!("unknown section [{}]", name.escape_debug());
    let top = known.get("").map_or(&[][..], Vec::as_slice);
    match likely(name, top.iter().copied()) {
        Some(word) => format!("{message}; did you mean `{word}`?"),
        None => format!("{message}; see docs/operate/configuration.md"),
    }
}

/// The message for an unknown key.
fn unknown_key(known: &BTreeMap<String, Vec<&'static str>>, section: &str, key: &str, instead: Option<&str>) -> String {
    let mut message = format!("unknown key `{}`{}", key.escape_debug(), place(section));
    let here = known.get(section).map_or(&[][..], Vec::as_slice);
    // Sections named by the operator share their keys with other sections.
    let is_named = |name: &str| {
        [
            "lists.",
            "sites.",
            "sources.",
            "senders.",
            "queue_only.",
            "webhooks.",
            "tables.",
            "dns_lists.",
            "rules.",
            "milters.",
            "dkim.",
            "tls.certificates.",
            "tls_policy.",
            "smart_hosts.",
            "listen.",
        ]
        .iter()
        .any(|table| name.starts_with(table))
    };
    let elsewhere = |(name, keys): &(&String, &Vec<&str>)| !is_named(name) && keys.contains(&key);
    if let Some(instead) = instead {
        let _ = write!(message, "; {instead}");
    } else if let Some(place) = postfix::here(key) {
        let _ = write!(message, "; {place}");
    } else if let Some((name, _)) = known.iter().find(elsewhere) {
        let target = if name.is_empty() { "at the top of the file".to_owned() } else { format!("in [{name}]") };
        let _ = write!(message, "; it belongs {target}");
    } else if let Some(word) = likely(key, here.iter().copied()) {
        let _ = write!(message, "; did you mean `{word}`?");
    } else if !here.is_empty() && here.len() <= KEYS_SHOWN_MAX {
        let _ = write!(message, "; valid keys: `{}`", here.join("`, `"));
    } else {
        message.push_str("; see docs/operate/configuration.md");
    }
    message
}

/// ` in [section]`, or nothing at the top level.
fn place(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!(" in [{section}]") }
}

/// One table of the file. For a missing table, every getter returns its default.
pub(super) struct Section<'a> {
    pub context: &'a Context<'a>,
    name: String,
    table: Option<&'a DeTable<'a>>,
    /// Position of the section's name.
    pub span: Range<usize>,
    asked: RefCell<Vec<&'static str>>,
    /// An item of a key's array, whose value is recorded as a whole.
    is_item: bool,
}

/// One item of an array of strings and tables.
pub(super) enum Item<'a> {
    Text(Spot<&'a str>),
    Table(Section<'a>),
}

impl<'a> Section<'a> {
    fn new(context: &'a Context<'a>, name: String, table: Option<&'a DeTable<'a>>, span: Range<usize>) -> Self {
        Self { context, name, table, span, asked: RefCell::default(), is_item: false }
    }

    pub fn top(context: &'a Context<'a>, table: &'a DeTable<'a>) -> Self {
        Self::new(context, String::new(), Some(table), 0..0)
    }

    /// Sets the replacements for unknown keys of this section.
    pub fn advise(&self, instead: KeyReplacement) {
        self.context.instead.borrow_mut().insert(self.name.clone(), instead);
    }

    /// The table under a name chosen by the operator, such as a list's.
    pub fn of_entry(&self, entry: &Entry<'a>) -> Option<Self> {
        let name = format!("{}.{}", self.name, entry.key);
        let table = entry.value.as_table();
        if table.is_none() {
            self.context
                .error(entry.span.clone(), format!("`{name}` must be a table, [{name}], not {}", kind(entry.value)));
        }
        Some(Self::new(self.context, name, Some(table?), entry.key_span.clone()))
    }

    /// The tables of an array of tables, `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<Self> {
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let parent = if self.name.is_empty() { String::new() } else { format!("{}.", self.name) };
        let Some(items) = entry.value.as_array() else {
            self.wrong_type(&entry, &format!("an array of tables, [[{parent}{key}]]"));
            return Vec::new();
        };
        let section = |(n, item): (usize, &'a toml::Spanned<DeValue<'a>>)| {
            let table = item.get_ref().as_table();
            if table.is_none() {
                let message = format!("`{key}` must hold tables, not {}", kind(item.get_ref()));
                self.context.error(item.span(), message);
            }
            Some(Self::new(self.context, format!("{parent}{key}.{}", n + 1), Some(table?), item.span()))
        };
        items.iter().enumerate().filter_map(section).collect()
    }

    /// A section with a fixed name.
    pub fn section(&self, key: &'static str) -> Self {
        let name = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        #[cfg(test)]
        if !self.name.is_empty() {
            self.note(key, "table", None);
        }
        let found = self.entry(key);
        if let Some(entry) = found.as_ref().filter(|entry| entry.value.as_table().is_none()) {
            let message = format!("`{name}` must be a table, [{name}], not {}", kind(entry.value));
            self.context.error(entry.span.clone(), message);
        }
        let span = found.as_ref().map_or(0..0, |entry| entry.key_span.clone());
        let table = found.and_then(|entry| entry.value.as_table());
        Self::new(self.context, name, table, span)
    }

    /// Records the accepted values of a key, for the reference. The first reader of a key wins.
    #[cfg(test)]
    pub fn note(&self, key: &'static str, values: impl Into<String>, default: Option<String>) {
        let fact = super::reference::Fact { values: values.into(), default };
        self.context.facts.borrow_mut().entry((self.name.clone(), key.to_owned())).or_insert(fact);
    }

    /// Records a key's value as TOML, for `stentor config show`.
    pub fn keep(&self, key: &str, origin: Origin, value: Option<String>, default: Option<String>) {
        if self.is_item || !(self.context.is_noted)(&self.name, key) {
            return;
        }
        let origin = match self.table.and_then(|table| table.get(key)) {
            Some(value) => self.context.origin(&value.span()),
            None => origin,
        };
        let (section, key) = (self.name.clone(), key.to_owned());
        self.context.settings.borrow_mut().note(Setting { section, key, value, default, origin });
    }

    /// Records a value that only the key's reader knows, such as a derived default or a resolved path. `default` is
    /// the value that the key would have if it were not set.
    pub fn effective(&self, key: &str, origin: Origin, value: String, default: String) {
        self.keep(key, origin, Some(value), Some(default));
    }

    /// Records an entry of a table whose keys are chosen by the operator.
    pub fn keep_entry(&self, entry: &Entry<'_>, value: impl FnOnce() -> String) {
        if !(self.context.is_noted)(&self.name, &entry.key) {
            return;
        }
        let origin = self.context.origin(&entry.span);
        let (section, key) = (self.name.clone(), entry.key.clone());
        self.context.settings.borrow_mut().note(Setting { section, key, value: Some(value()), default: None, origin });
    }

    /// ` in [section]` for messages.
    pub fn place(&self) -> String {
        place(&self.name)
    }

    /// All entries, for tables whose keys are chosen by the operator.
    pub fn entries(&self) -> Vec<Entry<'a>> {
        let all = self.table.into_iter().flat_map(|table| table.iter());
        let mut entries: Vec<Entry<'a>> = all
            .map(|(key, value)| Entry {
                key: key.get_ref().as_ref().to_owned(),
                key_span: key.span(),
                value: value.get_ref(),
                span: value.span(),
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_span.start);
        entries
    }

    pub fn entry(&self, key: &'static str) -> Option<Entry<'a>> {
        self.asked.borrow_mut().push(key);
        self.table.and_then(|table| table.get_key_value(key)).map(|(key, value)| Entry {
            key: key.get_ref().as_ref().to_owned(),
            key_span: key.span(),
            value: value.get_ref(),
            span: value.span(),
        })
    }

    pub fn wrong_type(&self, entry: &Entry<'_>, wanted: &str) {
        let message = format!("`{}`{} must be {wanted}, not {}", entry.key, self.place(), kind(entry.value));
        self.context.error(entry.span.clone(), message);
    }

    /// Position of a key's value, or else of the section.
    pub fn span_of(&self, key: &str) -> Range<usize> {
        let value = self.table.and_then(|table| table.get(key));
        value.map_or_else(|| self.span.clone(), toml::Spanned::span)
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    pub fn flag(&self, key: &'static str, default: bool) -> bool {
        #[cfg(test)]
        self.note(key, "true or false", Some(default.to_string()));
        let value = match self.entry(key) {
            None => default,
            Some(Entry { value: DeValue::Boolean(value), .. }) => *value,
            Some(entry) => {
                self.wrong_type(&entry, "true or false");
                default
            }
        };
        self.keep(key, Origin::Default, Some(value.to_string()), Some(default.to_string()));
        value
    }

    pub fn maybe_flag(&self, key: &'static str) -> Option<bool> {
        #[cfg(test)]
        self.note(key, "true or false", None);
        let found = self.flag(key, false);
        let found = self.has(key).then_some(found);
        self.keep(key, Origin::Default, found.map(|found| found.to_string()), None);
        found
    }

    pub fn text(&self, key: &'static str) -> Option<Spot<&'a str>> {
        #[cfg(test)]
        self.note(key, "string", None);
        let entry = self.entry(key);
        self.keep(key, Origin::Default, entry.as_ref().map(|entry| settings::value(entry.value)), None);
        let entry = entry?;
        let text = entry.value.as_str();
        if text.is_none() {
            self.wrong_type(&entry, "a string");
        }
        Some(Spot { value: text?, span: entry.span })
    }

    /// Reads a required string.
    pub fn required(&self, key: &'static str, example: &str) -> Option<Spot<&'a str>> {
        if !self.has(key) && !self.context.is_broken() {
            let message = format!("`{key}` is missing{}; add, for instance, {key} = \"{example}\"", self.place());
            self.context.error(self.span.clone(), message);
        }
        self.text(key)
    }

    /// Reads one of several words.
    pub fn choice<T: Copy + PartialEq>(&self, key: &'static str, default: T, words: &[(&'static str, T)]) -> T {
        #[cfg(test)]
        self.note(key, super::reference::words(words), super::reference::word(words, &default));
        let text = self.text(key);
        let word = |value: T| words.iter().find(|(_, other)| *other == value).map(|(word, _)| settings::quoted(word));
        let shown = text.as_ref().map_or_else(|| word(default), |text| Some(settings::quoted(text.value)));
        self.keep(key, Origin::Default, shown, word(default));
        let Some(text) = text else { return default };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return *value;
        }
        let all: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let mut message = format!("`{key}`{} is {:?}; it must be one of {}", self.place(), text.value, all.join(", "));
        if let Some(word) = likely(text.value, words.iter().map(|(word, _)| *word)) {
            let _ = write!(message, "; did you mean \"{word}\"?");
        }
        self.context.error(text.span, message);
        default
    }

    /// Reads one of several words, if the key is set.
    pub fn maybe_choice<T: Copy + PartialEq>(&self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        #[cfg(test)]
        self.note(key, super::reference::words(words), None);
        let (_, first) = words.first()?;
        let found = self.choice(key, *first, words);
        let shown = words.iter().find(|(_, value)| *value == found).map(|(word, _)| settings::quoted(word));
        self.keep(key, Origin::Default, shown.filter(|_| self.has(key)), None);
        self.has(key).then_some(found)
    }

    /// Reads strings; a single one needs no brackets.
    pub fn texts(&self, key: &'static str) -> Option<Vec<Spot<&'a str>>> {
        #[cfg(test)]
        self.note(key, "strings", None);
        let entry = self.entry(key);
        self.keep(key, Origin::Default, entry.as_ref().map(|entry| settings::value(entry.value)), None);
        Some(self.texts_of(&entry?))
    }

    /// As [`texts`](Self::texts), but an empty array is an error.
    pub fn some_texts(&self, key: &'static str) -> Option<Vec<Spot<&'a str>>> {
        #[cfg(test)]
        self.note(key, "strings", None);
        let entry = self.entry(key);
        self.keep(key, Origin::Default, entry.as_ref().map(|entry| settings::value(entry.value)), None);
        let entry = entry?;
        if entry.value.as_array().is_some_and(|items| items.is_empty()) {
            let message = format!("`{key}`{} is empty; omit it for the default", self.place());
            self.context.error(entry.span.clone(), message);
        }
        Some(self.texts_of(&entry))
    }

    /// The strings of an entry.
    pub fn texts_of(&self, entry: &Entry<'a>) -> Vec<Spot<&'a str>> {
        match entry.value {
            DeValue::String(text) => vec![Spot { value: text.as_ref(), span: entry.span.clone() }],
            DeValue::Array(items) => {
                let mut texts = Vec::with_capacity(items.len());
                for item in items {
                    match item.get_ref().as_str() {
                        Some(text) => texts.push(Spot { value: text, span: item.span() }),
                        None => self.context.error(
                            item.span(),
                            format!("`{}`{} must hold strings, not {}", entry.key, self.place(), kind(item.get_ref())),
                        ),
                    }
                }
                texts
            }
            _ => {
                self.wrong_type(entry, "a string or an array of strings");
                Vec::new()
            }
        }
    }

    /// Reads strings and tables; a single one needs no brackets. `is_needed`: an empty array is an error.
    pub fn texts_or_tables(&self, key: &'static str, is_needed: bool) -> Option<Vec<Item<'a>>> {
        let entry = self.entry(key)?;
        let items: Vec<_> = match entry.value {
            DeValue::Array(items) => items.iter().map(|item| (item.get_ref(), item.span())).collect(),
            single => vec![(single, entry.span.clone())],
        };
        if items.is_empty() && is_needed {
            let message = format!("`{key}`{} is empty; omit it for the default", self.place());
            self.context.error(entry.span.clone(), message);
        }
        let item = |(n, (value, span)): (usize, (&'a DeValue<'a>, Range<usize>))| match value {
            DeValue::String(text) => Some(Item::Text(Spot { value: text.as_ref(), span })),
            DeValue::Table(table) => {
                let name = format!("{}.{key}.{}", self.name, n + 1);
                Some(Item::Table(Self { is_item: true, ..Self::new(self.context, name, Some(table), span) }))
            }
            other => {
                let message = format!("`{key}`{} must hold strings or tables, not {}", self.place(), kind(other));
                self.context.error(span, message);
                None
            }
        };
        Some(items.into_iter().enumerate().filter_map(item).collect())
    }

    /// Reports the keys that were never read.
    pub fn finish(self) {
        let asked = self.asked.borrow();
        for entry in self.entries() {
            if !asked.contains(&entry.key.as_str()) {
                let is_table = entry.value.as_table().is_some();
                let key = Spot { value: entry.key, span: entry.key_span };
                self.context.unknown.borrow_mut().push(UnknownKey { section: self.name.clone(), key, is_table });
            }
        }
        let mut known = self.context.known.borrow_mut();
        known.entry(self.name.clone()).or_default().extend(asked.iter());
    }
}

/// One key and its value.
pub(super) struct Entry<'a> {
    pub key: String,
    pub key_span: Range<usize>,
    pub value: &'a DeValue<'a>,
    pub span: Range<usize>,
}

/// Name of a value's type.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

pub(super) const DAY_S: f64 = 86_400.0;

/// Reads addresses with ports.
pub(super) fn addresses(
    section: &Section<'_>,
    key: &'static str,
    default: SocketAddr,
    example: &str,
) -> Vec<SocketAddr> {
    let Some(texts) = section.texts(key) else {
        section.effective(key, Origin::Default, settings::array([default]), settings::array([default]));
        return vec![default];
    };
    let addresses = parsed(section, texts, example, &[]);
    let of_default = settings::array([default]);
    let value = if addresses == [default] { of_default.clone() } else { settings::array(&addresses) };
    section.effective(key, Origin::Default, value, of_default);
    addresses
}

/// As [`addresses`], without a default; addresses in `others` are already in use.
pub(super) fn more_addresses(
    section: &Section<'_>,
    key: &'static str,
    example: &str,
    others: &[SocketAddr],
) -> Vec<SocketAddr> {
    let addresses = parsed(section, section.texts(key).unwrap_or_default(), example, others);
    let none = settings::array::<SocketAddr>([]);
    let value = if addresses.is_empty() { none.clone() } else { settings::array(&addresses) };
    section.effective(key, Origin::Default, value, none);
    addresses
}

fn parsed(section: &Section<'_>, texts: Vec<Spot<&str>>, example: &str, others: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = others.to_vec();
    for text in texts {
        addresses.extend(address(section, text, example, &addresses));
    }
    addresses.split_off(others.len())
}

/// Whether only one of the two can be listened on: they are equal, or have the same port and one is the wildcard.
/// `0.0.0.0` and `[::]` do not overlap.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_same_ip = one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4();
    one.port() != 0 && one.port() == other.port() && is_same_ip
}

/// Reads one address with its port. Addresses in `others` are already in use, unless the port is 0 and the system
/// chooses it.
pub(super) fn address(
    section: &Section<'_>,
    text: Spot<&str>,
    example: &str,
    others: &[SocketAddr],
) -> Option<SocketAddr> {
    let Ok(address) = text.value.parse::<SocketAddr>() else {
        let port = example.rsplit_once(':').map_or("25", |(_, port)| port);
        let message =
            format!("{:?} is not an address and port; write, for instance, {example:?} or \"[::]:{port}\"", text.value);
        section.context.error(text.span, message);
        return None;
    };
    let Some(other) = others.iter().find(|other| overlap(address, **other)) else { return Some(address) };
    let message = if *other == address {
        format!("{:?} appears twice", text.value)
    } else {
        format!(
            "{:?} and \"{other}\" conflict: an all-interfaces address uses its port on every interface; list the \
             address of each interface instead",
            text.value
        )
    };
    section.context.error(text.span, message);
    None
}
