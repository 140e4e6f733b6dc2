//! What one rule asks of a message's content.

use stentor_mime::scripts::ScriptName;
use stentor_mime::walk::Defect;

use super::auth::AuthTest;
use super::hits::Hits;
use super::pattern::{ContentError, Pattern};

/// One thing that is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Test {
    /// A field of the message's header, in lower case; empty: any. As it came, or decoded.
    Header { field: Box<str>, pattern: Pattern, is_raw: bool },
    /// The decoded text of any part.
    Body(Pattern),
    /// A charset that the message names: of a part, an encoded word or a parameter.
    Charset(Pattern),
    /// Letters of subject, author and texts; at least this share of them, or any.
    Script { name: &'static str, percent: u8 },
    /// One attachment with one of the names, one of the types and more octets than this; what is not given is not asked.
    Attachment { names: Vec<Pattern>, types: Vec<Pattern>, over: Option<u64> },
    /// Programs may read another message than these tests do, or more of it: for this reason, or any.
    Malformed(Option<Defect>),
    /// A result of authentication, in a field that is ours.
    Auth(AuthTest),
}

/// Each group must have a test that is met.
#[derive(Debug, Clone, Default)]
pub struct ContentConditions {
    groups: Vec<Group>,
}

#[derive(Debug, Clone)]
struct Group {
    key: &'static str,
    tests: Vec<Test>,
    /// Their places in the matcher.
    at: Vec<usize>,
}

impl Test {
    /// `Field-Name: pattern`; `*: pattern` for all fields.
    pub fn header(text: &str, is_raw: bool) -> Result<Test, ContentError> {
        let wrong = || ContentError::Field(text.to_owned());
        let (name, pattern) = text.split_once(':').ok_or_else(wrong)?;
        let name = name.trim_end();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(wrong());
        }
        let field = if name == "*" { String::new() } else { name.to_ascii_lowercase() };
        Ok(Test::Header { field: field.into(), pattern: Pattern::contained(pattern.trim_start())?, is_raw })
    }

    pub fn subject(text: &str) -> Result<Test, ContentError> {
        Ok(Test::Header { field: "subject".into(), pattern: Pattern::contained(text)?, is_raw: false })
    }

    /// `Han`, `Han 20%`
    pub fn script(text: &str) -> Result<Test, ContentError> {
        let wrong = || ContentError::Script(text.to_owned());
        let (name, percent) = match text.strip_suffix('%') {
            None => (text, 0),
            Some(text) => {
                let (name, percent) = text.rsplit_once(' ').ok_or_else(wrong)?;
                (name.trim_end(), percent.parse().ok().filter(|percent| (1..=100).contains(percent)).ok_or_else(wrong)?)
            }
        };
        let script = ScriptName::parse(name).ok_or_else(wrong)?;
        Ok(Test::Script { name: script.name(), percent })
    }

    /// `nested`; `*` for any defect.
    pub fn malformed(text: &str) -> Result<Test, ContentError> {
        let named = Defect::ALL.into_iter().find(|defect| defect.name() == text);
        match named {
            None if text != "*" => Err(ContentError::Defect(text.to_owned())),
            defect => Ok(Test::Malformed(defect)),
        }
    }

    /// As the configuration has it under a key.
    fn shown(&self, key: &str) -> String {
        let all = |patterns: &[Pattern]| {
            let shown: Vec<&str> = patterns.iter().map(|pattern| &*pattern.shown).collect();
            shown.join(", ")
        };
        match self {
            Test::Header { pattern, .. } if key == "subject" => pattern.shown.to_string(),
            Test::Header { field, pattern, .. } if field.is_empty() => format!("*: {}", pattern.shown),
            Test::Header { field, pattern, .. } => format!("{field}: {}", pattern.shown),
            Test::Malformed(defect) => defect.map_or("*", Defect::name).to_owned(),
            Test::Body(pattern) | Test::Charset(pattern) => pattern.shown.to_string(),
            Test::Auth(test) => test.shown(),
            Test::Script { name, percent: 0 } => (*name).to_owned(),
            Test::Script { name, percent } => format!("{name} {percent}%"),
            Test::Attachment { names, types, over } => {
                let over = over.map(|over| format!("over {over} octets"));
                let all = [all(names), all(types), over.unwrap_or_default()];
                all.into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl ContentConditions {
    /// Under one key: one of these must be met.
    pub fn add(&mut self, key: &'static str, tests: Vec<Test>) {
        if !tests.is_empty() {
            self.groups.push(Group { key, tests, at: Vec::new() });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether it asks for results of authentication.
    pub(crate) fn asks_auth(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.tests).any(|test| matches!(test, Test::Auth(_)))
    }

    /// Gives the tests their places among all.
    pub(super) fn bind(&mut self, mut place: impl FnMut(&Test) -> usize) {
        for group in &mut self.groups {
            group.at = group.tests.iter().map(&mut place).collect();
        }
    }

    /// Whether all hold: else the key of the first that does not.
    pub fn failing(&self, hits: &Hits) -> Option<&'static str> {
        self.groups.iter().find(|group| !group.is_met(hits)).map(|group| group.key)
    }

    /// Whether any holds: its key.
    pub(crate) fn holding(&self, hits: &Hits) -> Option<&'static str> {
        self.groups.iter().find(|group| group.is_met(hits)).map(|group| group.key)
    }

    /// What met each, in words: `subject: /inv.ice/ by "Invoice"`.
    pub(crate) fn met_by(&self, hits: &Hits) -> String {
        let met = self.groups.iter().filter_map(|group| {
            let (test, at) = group.tests.iter().zip(&group.at).find(|(_, at)| hits.has(**at))?;
            let by = hits.by(*at).map(|by| format!(" by {by}")).unwrap_or_default();
            Some(format!("{} {}{by}", group.key, test.shown(group.key)))
        });
        met.collect::<Vec<_>>().join("; ")
    }
}

impl Group {
    fn is_met(&self, hits: &Hits) -> bool {
        self.at.iter().any(|at| hits.has(*at))
    }
}
