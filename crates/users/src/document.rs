//! Edits the text of a users file: changes only the affected lines.

use crate::text::{FileKind, KEYS, Line, line};
use crate::user::canonical_name;

/// The lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    lines: Vec<String>,
}

/// Why a change is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("user {0} already exists; `stentor user passwd {0}` sets another password")]
    Known(String),
    #[error("there is no user {0}; `stentor user list` lists all users")]
    Unknown(String),
    #[error("{0:?} is not a valid user name: {1}")]
    Name(String, String),
}

/// The beginning of a new file.
const PREAMBLE: &str = "\
# Users who may log in to send mail. Change this file with 'stentor user' or an editor: see users.md of Stentor's documentation.
# It contains hashes, from which weak passwords could be guessed: only the server may read it.
";

const PREAMBLE_OVERRIDES: &str = "\
# Local settings for users of Dovecot: locks, limits, addresses to send as. Change them with 'stentor user' or an editor: see users.md
# of Stentor's documentation.
";

impl Document {
    /// Creates a new file.
    pub fn beginning(kind: FileKind) -> Document {
        Document::new(match kind {
            FileKind::Own => PREAMBLE,
            FileKind::DovecotOverrides => PREAMBLE_OVERRIDES,
        })
    }

    pub fn new(text: &str) -> Document {
        Document { lines: text.lines().map(str::to_owned).collect() }
    }

    pub fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// The line range of a user: from the name's line to just after the user's last line. Empty lines and comments
    /// before the next name belong to that name.
    fn find(&self, name: &str) -> Result<(usize, usize), DocumentError> {
        let canonical = canonical(name)?;
        let is_it = |text: &str| match line(text) {
            Line::Name(other) => canonical_name(other).is_ok_and(|other| other == canonical),
            _ => false,
        };
        let begin = self.lines.iter().position(|text| is_it(text)).ok_or(DocumentError::Unknown(canonical))?;
        let is_name = |text: &String| matches!(line(text), Line::Name(_));
        let next = self.lines[begin + 1..].iter().position(is_name).map_or(self.lines.len(), |at| begin + 1 + at);
        let last = (begin..next).rev().find(|at| line(&self.lines[*at]) != Line::Nothing).unwrap_or(begin);
        Ok((begin, last + 1))
    }

    /// Adds a user without keys, at the end.
    pub fn add(&mut self, name: &str) -> Result<(), DocumentError> {
        match self.find(name) {
            Ok(_) => return Err(DocumentError::Known(canonical(name)?)),
            Err(DocumentError::Unknown(_)) => {}
            Err(error) => return Err(error),
        }
        if self.lines.last().is_some_and(|last| !last.trim().is_empty()) {
            self.lines.push(String::new());
        }
        self.lines.push(format!("[{}]", canonical(name)?));
        Ok(())
    }

    pub fn remove(&mut self, name: &str) -> Result<(), DocumentError> {
        let (begin, mut end) = self.find(name)?;
        // Also removes the empty line that separated it from the next.
        if self.lines.get(end).is_some_and(|line| line.trim().is_empty()) {
            end += 1;
        }
        self.lines.drain(begin..end);
        Ok(())
    }

    /// Whether a user has no keys.
    pub(crate) fn has_nothing(&self, name: &str) -> Result<bool, DocumentError> {
        let (begin, end) = self.find(name)?;
        Ok(self.lines[begin + 1..end].iter().all(|text| line(text) == Line::Nothing))
    }

    /// Sets or removes a key of a user.
    ///
    /// # Panics
    /// If the key is not in [`KEYS`] or the value has several lines: both come from our own code.
    pub fn set(&mut self, name: &str, key: &str, value: Option<&str>) -> Result<(), DocumentError> {
        let rank = |key: &str| KEYS.iter().position(|known| *known == key);
        let own = rank(key).expect("a key of the file");
        assert!(value.is_none_or(|value| !value.contains(['\n', '\r'])), "a value is one line");
        let (begin, end) = self.find(name)?;
        let key_of = |text: &String| match line(text) {
            Line::Pair(key, _) => rank(key),
            _ => None,
        };
        let found = (begin..end).find(|at| key_of(&self.lines[*at]) == Some(own));
        match (found, value.map(|value| format!("{key} = {value}"))) {
            (Some(at), Some(text)) => self.lines[at] = text,
            (Some(at), None) => drop(self.lines.remove(at)),
            (None, Some(text)) => {
                // Before the keys that usually follow it.
                let before = (begin + 1..end).find(|at| key_of(&self.lines[*at]).is_some_and(|other| other > own));
                self.lines.insert(before.unwrap_or(end), text);
            }
            (None, None) => {}
        }
        Ok(())
    }
}

fn canonical(name: &str) -> Result<String, DocumentError> {
    let wrong = |why: &str| DocumentError::Name(name.to_owned(), why.to_owned());
    let canonical = canonical_name(name).map_err(|error| wrong(&error.to_string()))?;
    if canonical.contains(['[', ']']) || canonical.trim() != canonical {
        return Err(wrong("brackets, and spaces at the ends, are not allowed"));
    }
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# ours\n\n[ann]\npassword = 1\n# hers\nlocked = no\n\n# the other\n[Bob]\npassword = 2\n";

    #[test]
    fn only_what_is_meant_changes() {
        let mut document = Document::new(TEXT);
        document.set("ANN", "password", Some("3")).unwrap();
        document.set("ann", "send_as", Some("@x.example")).unwrap();
        document.set("bob", "locked", Some("yes")).unwrap();
        let wanted = "# ours\n\n[ann]\npassword = 3\n# hers\nsend_as = @x.example\nlocked = no\n\n# the other\n[Bob]\npassword = 2\nlocked = yes\n";
        assert_eq!(document.text(), wanted);
        document.set("bob", "locked", None).unwrap();
        document.set("ann", "send_as", None).unwrap();
        document.set("ann", "password", Some("1")).unwrap();
        assert_eq!(document.text(), TEXT);
    }

    #[test]
    fn users_come_and_go() {
        let mut document = Document::new(TEXT);
        document.add("Eve@x.example").unwrap();
        document.set("eve@x.example", "password", Some("4")).unwrap();
        assert_eq!(document.text(), format!("{TEXT}\n[eve@x.example]\npassword = 4\n"));
        assert_eq!(document.add("EVE@x.example"), Err(DocumentError::Known("eve@x.example".to_owned())));
        document.remove("ann").unwrap();
        assert_eq!(document.text(), "# ours\n\n# the other\n[Bob]\npassword = 2\n\n[eve@x.example]\npassword = 4\n");
        assert_eq!(document.remove("ann"), Err(DocumentError::Unknown("ann".to_owned())));
        for bad in ["", "a]b", "a\nb", " "] {
            assert!(matches!(document.add(bad), Err(DocumentError::Name(..))), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_text_others_stay(text in "(\\[[ab]\\]\n|password = x\n|# c\n|\n|junk\n){0,12}", value in "[a-z ]{0,8}") {
            let mut document = Document::new(&text);
            if document.set("a", "locked", Some(&value)).is_ok() {
                let (begin, end) = document.find("a").unwrap();
                let key = format!("locked = {value}");
                prop_assert!(document.lines[begin..end].contains(&key));
                document.set("a", "locked", None).unwrap();
                prop_assert_eq!(document.text(), text.clone());
            }
            if document.add("b").is_ok() {
                document.remove("b").unwrap();
            }
        }
    }
}
