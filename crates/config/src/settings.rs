//! The effective value of every key and where it comes from: what `stentor config show` prints.
//!
//! Readers record each key that they read, so there is no second list of keys here. A secret's value is never
//! recorded: [`SECRET`] replaces it.

use std::collections::HashMap;
use std::fmt::Write as _;

use toml::de::DeValue;

use super::diagnose::FilePosition;

/// A key of the configuration, by its section; the top level is the empty section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey<'a> {
    pub section: &'a str,
    pub key: &'a str,
}

impl<'a> ConfigKey<'a> {
    pub fn new(section: &'a str, key: &'a str) -> ConfigKey<'a> {
        ConfigKey { section, key }
    }
}

/// Replacement for secrets.
pub const SECRET: &str = "\"(secret)\"";
/// Keys whose values are secrets, in any section.
const SECRETS: [&str; 2] = ["secret", "password_hash"];

/// Origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The file; line and column are counted from 1.
    File { line: usize, column: usize },
    /// The file of a list made by `stentor list`.
    ListFile,
    /// Built in, or derived from other keys.
    Default,
    /// The system, such as `/etc/resolv.conf`.
    System(&'static str),
}

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name of the section: `lists.news`, `sites.mx.example`; empty at the top level.
    pub section: String,
    pub key: String,
    /// Value as TOML; `None`: the key is not set and has no default.
    pub value: Option<String>,
    /// Value if the file did not set the key, if there is a default.
    pub default: Option<String>,
    pub origin: Origin,
}

impl Setting {
    /// Whether the value in the file differs from the default.
    pub fn is_changed(&self) -> bool {
        matches!(self.origin, Origin::File { .. } | Origin::ListFile) && self.value != self.default
    }
}

/// Every key once, by section and key; names such as `lists."a b"` are as in the file. Recording and lookup take
/// constant time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    all: Vec<Setting>,
    /// Index of a key in `all`, by section and key.
    places: HashMap<String, HashMap<String, usize>>,
}

impl Settings {
    /// Settings in the order in which they are read: the top level first, each section together.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.all.iter()
    }

    fn at(&self, section: &str, key: &str) -> Option<usize> {
        self.places.get(section)?.get(key).copied()
    }

    /// The position of a key's value, if the file sets it.
    pub fn position(&self, section: &str, key: &str) -> Option<FilePosition> {
        match self.all[self.at(section, key)?].origin {
            Origin::File { line, column } => Some(FilePosition { line, column }),
            Origin::ListFile | Origin::Default | Origin::System(_) => None,
        }
    }

    /// Records a setting; it replaces an earlier record, because a reader may know more than the getter that it used.
    pub(super) fn note(&mut self, mut new: Setting) {
        if SECRETS.contains(&new.key.as_str()) && new.value.is_some() {
            new.value = Some(SECRET.to_owned());
        }
        if let Some(at) = self.at(&new.section, &new.key) {
            self.all[at] = new;
            return;
        }
        let section = match self.places.get_mut(&new.section) {
            Some(section) => section,
            None => self.places.entry(new.section.clone()).or_default(),
        };
        section.insert(new.key.clone(), self.all.len());
        self.all.push(new);
    }

    /// Groups the settings by section, in the order of the sections' first keys.
    pub(super) fn in_order(mut self) -> Settings {
        let first = |section: &str| self.places[section].values().copied().min();
        let order: HashMap<String, Option<usize>> =
            self.places.keys().map(|section| (section.clone(), first(section))).collect();
        self.all.sort_by_key(|setting| order[&setting.section]);
        for (at, setting) in self.all.iter().enumerate() {
            if let Some(place) = self.places.get_mut(&setting.section).and_then(|keys| keys.get_mut(&setting.key)) {
                *place = at;
            }
        }
        self
    }
}

/// Quotes a string as TOML.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Writing to a string cannot fail.
            c if c.is_control() => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Formats a key as TOML, quoted if necessary.
pub fn key(text: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { quoted(text) }
}

/// Formats strings as a TOML array.
pub(super) fn array<T: ToString>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| quoted(&text.to_string())).collect();
    format!("[{}]", texts.join(", "))
}

/// Formats a value as in the file.
pub(super) fn value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| self::value(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let entries =
                table.iter().map(|(name, item)| format!("{} = {}", key(name.get_ref()), self::value(item.get_ref())));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Formats milliseconds as a number of seconds.
pub(super) fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { (ms / 1_000).to_string() } else { (ms as f64 / 1_000.0).to_string() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, check_text_noting};

    fn settings(text: &str) -> (Config, Settings) {
        check_text_noting(Path::new("/etc/stentor/stentor.toml"), text).unwrap_or_else(|found| panic!("{found:?}"))
    }

    fn of(settings: &Settings, section: &str, key: &str) -> Setting {
        let mut found = settings.iter().filter(|setting| setting.section == section && setting.key == key);
        let one = found.next().unwrap_or_else(|| panic!("{section} {key}"));
        assert!(found.next().is_none(), "{section} {key} twice");
        one.clone()
    }

    #[test]
    fn every_value_has_an_origin() {
        let text = "hostname = \"mx.example.org\"\n[retry]\nlifetime_s = \"3d\"\nhost_min_s = 60\n[lists.\"a+b\"]\n\
                    address = \"ab@example.org\"\nsubscribers = \"/dev/null\"\n[aliases]\n\"t@example.org\" = [\"x@y.example\"]\n\
                    [routes]\nz.example = \"10.0.0.1\"\n";
        let (_, settings) = settings(text);
        let lifetime = of(&settings, "retry", "lifetime_s");
        assert_eq!((lifetime.value.as_deref(), lifetime.default.as_deref()), (Some("259200"), Some("432000")));
        assert_eq!((lifetime.origin, lifetime.is_changed()), (Origin::File { line: 3, column: 14 }, true));
        // The file sets it to its default.
        assert!(!of(&settings, "retry", "host_min_s").is_changed());
        assert_eq!(of(&settings, "retry", "bulk_lifetime_s").value, None);
        assert_eq!(of(&settings, "", "data_dir").value.as_deref(), Some("\"/etc/stentor/stentor-data\""));
        assert_eq!(of(&settings, "dns", "servers").origin, Origin::System("/etc/resolv.conf"));
        assert_eq!(of(&settings, "lists.a+b", "list_id").value.as_deref(), Some("\"a+b.example.org\""));
        assert_eq!(of(&settings, "aliases", "t@example.org").value.as_deref(), Some("[\"x@y.example\"]"));
        assert_eq!(of(&settings, "routes", "z.example").value.as_deref(), Some("\"10.0.0.1\""));
        assert_eq!(settings.position("lists.a+b", "address"), Some(FilePosition { line: 6, column: 11 }));
        let sections: Vec<&str> = settings.iter().map(|setting| setting.section.as_str()).collect();
        let mut once = sections.clone();
        once.dedup();
        once.sort_unstable();
        let len = once.len();
        once.dedup();
        assert_eq!(once.len(), len, "each section is together: {sections:?}");
    }

    #[test]
    fn a_default_in_another_form_is_no_change() {
        for (text, is_changed) in
            [("\"127.0.0.1:2525\"", false), ("[\"127.0.0.1:2525\"]", false), ("\"127.0.0.1:25\"", true)]
        {
            let (_, settings) = settings(&format!("[listen]\nsmtp = {text}\n"));
            let smtp = of(&settings, "listen", "smtp");
            assert_eq!((smtp.is_changed(), smtp.origin), (is_changed, Origin::File { line: 2, column: 8 }), "{smtp:?}");
        }
    }

    #[test]
    fn secrets_are_blank() {
        let hash = crate::keys::hash("correct horse battery").unwrap();
        let text = format!(
            "[http]\npassword_hash = \"{hash}\"\nusers = {{ ann = \"{hash}\" }}\ntokens = {{ ci = \"sha256:{}\" }}\n\
             [webhooks.a]\nurl = \"http://127.0.0.1/\"\nsecret = \"0123456789abcdef\"\n",
            "0".repeat(64)
        );
        let (_, settings) = settings(&text);
        for (section, key) in
            [("http", "password_hash"), ("http.users", "ann"), ("http.tokens", "ci"), ("webhooks.a", "secret")]
        {
            assert_eq!(of(&settings, section, key).value.as_deref(), Some(SECRET));
        }
        let all = format!("{settings:?}");
        assert!(!all.contains("argon2") && !all.contains("0123456789") && !all.contains("sha256"), "{all}");
    }
}
