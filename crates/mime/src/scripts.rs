//! The scripts of a text: which alphabets its characters are of (Unicode Standard Annex 24).

use unicode_script::{Script, UnicodeScript as _};

/// How many characters of each script a text has so far; white space, digits and signs, which all scripts share, are not counted.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// Few: a text of more than some is rare.
    counts: Vec<(Script, u64)>,
}

impl Scripts {
    pub fn of(text: &str) -> Scripts {
        let mut scripts = Scripts::default();
        scripts.add(text);
        scripts
    }

    pub fn add(&mut self, text: &str) {
        let mut latin = 0;
        for c in text.chars() {
            if c.is_ascii() {
                latin += u64::from(c.is_ascii_alphabetic());
                continue;
            }
            match script(c) {
                Script::Common | Script::Inherited | Script::Unknown => {}
                script => self.count(script, 1),
            }
        }
        if latin > 0 {
            self.count(Script::Latin, latin);
        }
    }

    fn count(&mut self, script: Script, more: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == script) {
            Some((_, count)) => *count += more,
            None => self.counts.push((script, more)),
        }
    }

    /// Characters that are of some script.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Characters of this script.
    pub fn has(&self, script: ScriptName) -> u64 {
        self.counts.iter().find(|(known, _)| *known == script.0).map_or(0, |(_, count)| *count)
    }

    /// Names and counts, the most frequent first.
    pub fn listed(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(script, count)| (script.full_name(), *count)).collect();
        all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        all
    }
}

/// Ranges that are of one script throughout, and most of what is not ASCII: without a search.
fn script(c: char) -> Script {
    match c {
        '\u{4e00}'..='\u{9fff}' => Script::Han,
        '\u{410}'..='\u{44f}' => Script::Cyrillic,
        '\u{ac00}'..='\u{d7a3}' => Script::Hangul,
        '\u{d8}'..='\u{f6}' => Script::Latin,
        _ => c.script(),
    }
}

/// A script as Unicode names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptName(Script);

impl ScriptName {
    /// By its name (`Cyrillic`) or its code of four letters (`Cyrl`), without regard to case.
    pub fn parse(name: &str) -> Option<ScriptName> {
        let mut letters = name.chars();
        let title: String = letters
            .next()
            .map(|first| first.to_ascii_uppercase())
            .into_iter()
            .chain(letters.map(|c| c.to_ascii_lowercase()))
            .collect();
        // Of names of several words each begins with a capital: `Canadian_Aboriginal`.
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
        assert_eq!(Scripts::of("1 + 2 ?").total(), 0);
        assert_eq!(Scripts::of("ひらカタ").listed(), [("Hiragana", 2), ("Katakana", 2)]);
    }

    #[test]
    fn short_cuts_lead_to_the_same() {
        assert!(('\u{80}'..='\u{ffff}').all(|c| script(c) == c.script()));
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
