//! One rule's conditions on a message's content.

use stentor_mime::scripts::ScriptName;
use stentor_mime::walk::Defect;

use super::auth::AuthTest;
use super::hits::Hits;
use super::pattern::{ContentConditionError, Pattern};

/// One test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Test {
    /// A field of the message's header, name in lower case; empty: any field. The value is raw or decoded.
    Header { field: Box<str>, pattern: Pattern, is_raw: bool },
    /// The decoded text of any part.
    Body(Pattern),
    /// A charset named in the message: of a part, an encoded word or a parameter.
    Charset(Pattern),
    /// Script of letters in subject, author and texts, at this share or more; 0: any letter.
    Script { name: &'static str, percent: u8 },
    /// One attachment that matches one of the names, one of the types and the minimum size; those not set are not
    /// tested.
    Attachment { names: Vec<Pattern>, types: Vec<Pattern>, over: Option<u64> },
    /// Malformed structure that other programs may read differently, or only up to this point: this defect, or any.
    Malformed(Option<Defect>),
    /// An authentication result in a field written by us.
    Auth(AuthTest),
}

/// Groups of tests; each group must have a test that matches.
#[derive(Debug, Clone, Default)]
pub struct ContentConditions {
    groups: Vec<Group>,
}

#[derive(Debug, Clone)]
struct Group {
    key: &'static str,
    tests: Vec<Test>,
    /// Indexes of the tests in the matcher.
    at: Vec<usize>,
}

impl Test {
    /// Parses `Field-Name: pattern`, or `*: pattern` for all fields.
    pub fn header(text: &str, is_raw: bool) -> Result<Test, ContentConditionError> {
        let wrong = || ContentConditionError::Field(text.to_owned());
        let (name, pattern) = text.split_once(':').ok_or_else(wrong)?;
        let name = name.trim_end();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(wrong());
        }
        let field = if name == "*" { String::new() } else { name.to_ascii_lowercase() };
        Ok(Test::Header { field: field.into(), pattern: Pattern::contained(pattern.trim_start())?, is_raw })
    }

    pub fn subject(text: &str) -> Result<Test, ContentConditionError> {
        Ok(Test::Header { field: "subject".into(), pattern: Pattern::contained(text)?, is_raw: false })
    }

    /// Parses `Han` or `Han 20%`.
    pub fn script(text: &str) -> Result<Test, ContentConditionError> {
        let wrong = || ContentConditionError::Script(text.to_owned());
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

    /// Parses the name of a defect, such as `nested`; `*` means any.
    pub fn malformed(text: &str) -> Result<Test, ContentConditionError> {
        let named = Defect::ALL.into_iter().find(|defect| defect.name() == text);
        match named {
            None if text != "*" => Err(ContentConditionError::Defect(text.to_owned())),
            defect => Ok(Test::Malformed(defect)),
        }
    }

    /// The test as written in the configuration under a key.
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
    /// Adds the tests of one key, of which one must match.
    pub fn add(&mut self, key: &'static str, tests: Vec<Test>) {
        if !tests.is_empty() {
            self.groups.push(Group { key, tests, at: Vec::new() });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether there are tests of authentication results.
    pub(crate) fn asks_auth(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.tests).any(|test| matches!(test, Test::Auth(_)))
    }

    /// Assigns the tests their indexes in the matcher.
    pub(super) fn bind(&mut self, mut place: impl FnMut(&Test) -> usize) {
        for group in &mut self.groups {
            group.at = group.tests.iter().map(&mut place).collect();
        }
    }

    /// Whether all groups match; otherwise the key of the first that does not.
    pub fn failing(&self, hits: &Hits) -> Option<&'static str> {
        self.groups.iter().find(|group| !group.is_met(hits)).map(|group| group.key)
    }

    /// The key of a matching group, if there is one.
    pub(crate) fn holding(&self, hits: &Hits) -> Option<&'static str> {
        self.groups.iter().find(|group| group.is_met(hits)).map(|group| group.key)
    }

    /// Describes the matches: `subject: /inv.ice/ by "Invoice"`.
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
