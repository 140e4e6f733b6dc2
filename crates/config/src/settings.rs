//! The effective value of every key and where it comes from: what `stentor config show` prints.
//!
//! The readers note each key that they ask for, so that nothing here lists keys a second time. A secret's value never gets
//! here: the note has [`SECRET`] instead.

use std::collections::HashMap;
use std::fmt::Write as _;

use toml::de::DeValue;

/// What stands for a secret.
pub const SECRET: &str = "\"(secret)\"";
/// Keys whose values are secrets, wherever they are.
const SECRETS: [&str; 2] = ["secret", "password_hash"];

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The file; both are counted from 1.
    File { line: usize, column: usize },
    /// Built in, or derived from other keys.
    Default,
    /// Taken from the system: `/etc/resolv.conf`.
    System(&'static str),
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The table's name as the readers have it: `lists.news`, `sites.mx.example`; empty at the top of the file.
    pub section: String,
    pub key: String,
    /// As TOML; `None`: it is not set and has no default.
    pub value: Option<String>,
    /// The same without the file's value, if there is one.
    pub default: Option<String>,
    pub origin: Origin,
}

impl Setting {
    /// The file gives it another value than it would have otherwise.
    pub fn is_changed(&self) -> bool {
        matches!(self.origin, Origin::File { .. }) && self.value != self.default
    }
}

/// Every key once, by section and key; `lists."a b"` as the file has it. Noting and finding one takes the same time however
/// many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    all: Vec<Setting>,
    /// Where in `all` a key is, by section.
    places: HashMap<String, HashMap<String, usize>>,
}

impl Settings {
    /// In the order in which they are read: the top of the file first, each section together.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.all.iter()
    }

    fn at(&self, section: &str, key: &str) -> Option<usize> {
        self.places.get(section)?.get(key).copied()
    }

    /// Line and column of a key's value, if the file has it.
    pub fn place(&self, section: &str, key: &str) -> Option<(usize, usize)> {
        match self.all[self.at(section, key)?].origin {
            Origin::File { line, column } => Some((line, column)),
            Origin::Default | Origin::System(_) => None,
        }
    }

    /// A later note on a key takes the place of an earlier one: a reader may know more than the getter that it used.
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

    /// Sections together, in the order of their first keys.
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

/// A string as TOML.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Writing into a string cannot fail.
            c if c.is_control() => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A key as TOML: quoted where it must be.
pub fn key(text: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { quoted(text) }
}

/// Strings as a TOML array.
pub(super) fn array<T: ToString>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| quoted(&text.to_string())).collect();
    format!("[{}]", texts.join(", "))
}

/// A value as it is in the file.
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

/// Milliseconds as a number of seconds.
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
        // Written, and what it would be anyway.
        assert!(!of(&settings, "retry", "host_min_s").is_changed());
        assert_eq!(of(&settings, "retry", "bulk_lifetime_s").value, None);
        assert_eq!(of(&settings, "", "data_dir").value.as_deref(), Some("\"/etc/stentor/stentor-data\""));
        assert_eq!(of(&settings, "dns", "servers").origin, Origin::System("/etc/resolv.conf"));
        assert_eq!(of(&settings, "lists.a+b", "list_id").value.as_deref(), Some("\"a+b.example.org\""));
        assert_eq!(of(&settings, "aliases", "t@example.org").value.as_deref(), Some("[\"x@y.example\"]"));
        assert_eq!(of(&settings, "routes", "z.example").value.as_deref(), Some("\"10.0.0.1\""));
        assert_eq!(settings.place("lists.a+b", "address"), Some((6, 11)));
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
