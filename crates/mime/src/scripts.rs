//! Scripts of a text: the writing systems of its characters (Unicode Standard Annex 24).

use std::sync::LazyLock;

use unicode_script::{Script, UnicodeScript as _};

/// Counts the characters of each script in a text; white space, digits and signs, which all scripts share, are not
/// counted.
#[derive(Debug, Clone)]
pub struct Scripts {
    /// Counts by the number of the script.
    counts: Box<[u64; SCRIPTS]>,
    /// Scripts that occur.
    seen: Vec<Script>,
}

/// Number of scripts: their numbers are octets.
const SCRIPTS: usize = 256;

/// The scripts of the characters of up to three octets, 64 KiB: a search takes ten times as long.
static FIRST_PLANE: LazyLock<Box<[Script]>> = LazyLock::new(|| {
    let script = |code| char::from_u32(code).map_or(Script::Unknown, |c| c.script());
    (0..=0xffff).map(script).collect()
});

impl Default for Scripts {
    fn default() -> Scripts {
        Scripts { counts: Box::new([0; SCRIPTS]), seen: Vec::new() }
    }
}

impl Scripts {
    pub fn of(text: &str) -> Scripts {
        let mut scripts = Scripts::default();
        scripts.add(text);
        scripts
    }

    pub fn add(&mut self, text: &str) {
        let (mut latin, first_plane) = (0, &**FIRST_PLANE);
        for c in text.chars() {
            if c.is_ascii() {
                latin += u64::from(c.is_ascii_alphabetic());
                continue;
            }
            match first_plane.get(c as usize).copied().unwrap_or_else(|| c.script()) {
                Script::Common | Script::Inherited | Script::Unknown => {}
                script => self.count(script, 1),
            }
        }
        if latin > 0 {
            self.count(Script::Latin, latin);
        }
    }

    fn count(&mut self, script: Script, more: u64) {
        let count = &mut self.counts[script as u8 as usize];
        if *count == 0 {
            self.seen.push(script);
        }
        *count += more;
    }

    /// Number of characters that belong to a script.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of characters of this script.
    pub fn has(&self, script: ScriptName) -> u64 {
        self.counts[script.0 as u8 as usize]
    }

    /// Names and counts, the most frequent first.
    pub fn listed(&self) -> Vec<(&'static str, u64)> {
        let count = |script: &Script| (script.full_name(), self.counts[*script as u8 as usize]);
        let mut all: Vec<_> = self.seen.iter().map(count).collect();
        all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        all
    }
}

/// A script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptName(Script);

impl ScriptName {
    /// Parses a name (`Cyrillic`) or four-letter code (`Cyrl`), ignoring case.
    pub fn parse(name: &str) -> Option<ScriptName> {
        let mut letters = name.chars();
        let title: String = letters
            .next()
            .map(|first| first.to_ascii_uppercase())
            .into_iter()
            .chain(letters.map(|c| c.to_ascii_lowercase()))
            .collect();
        // Each word of a name is capitalised: `Canadian_Aboriginal`.
        let words: Vec<String> = name.split(['_', ' ', '-']).map(capital).collect();
        let full = words.join("_");
        Script::from_full_name(&full).or_else(|| Script::from_short_name(&title)).map(ScriptName)
    }

    pub fn name(self) -> &'static str {
        self.0.full_name()
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters.map(|c| c.to_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_texts() {
        assert_eq!(Scripts::of("请查收！ abc 1").listed(), [("Han", 3), ("Latin", 3)]);
        assert_eq!(Scripts::of("Привет é").listed(), [("Cyrillic", 6), ("Latin", 1)]);
        assert_eq!(Scripts::of("1 + 2 ? \u{fffd}").total(), 0);
        assert_eq!(Scripts::of("\u{10348}\u{20000}\u{ffdc}").listed(), [("Gothic", 1), ("Han", 1), ("Hangul", 1)]);
        assert_eq!(Scripts::of("ひらカタ").listed(), [("Hiragana", 2), ("Katakana", 2)]);
    }

    #[test]
    fn names_of_scripts() {
        for (name, wanted) in
            [("han", "Han"), ("HANI", "Han"), ("cyrl", "Cyrillic"), ("canadian aboriginal", "Canadian_Aboriginal")]
        {
            assert_eq!(ScriptName::parse(name).map(ScriptName::name), Some(wanted), "{name}");
        }
        assert_eq!(ScriptName::parse("chinese"), None);
        assert_eq!(ScriptName::parse(""), None);
        assert_eq!(Scripts::of("请查").has(ScriptName::parse("Han").unwrap()), 2);
    }
}
