//! A command's changes to a user, as lines of the file.

use crate::document::{Document, DocumentError};
use crate::limits::{LIMIT_KEYS, Limit};
use crate::send_as::SendAs;
use crate::text::FileKind;

/// Changes to a user; missing fields stay unchanged.
#[derive(Debug, Clone, Default)]
pub struct UserChanges {
    pub send_as: Option<Vec<SendAs>>,
    /// In the order of [`LIMIT_KEYS`]; [`Limit::Default`] removes the user's own.
    pub limits: [Option<Limit>; 4],
    pub locked: Option<bool>,
}

impl UserChanges {
    /// Applies the changes. A Dovecot user without local settings is added, and removed when no settings are left.
    pub fn apply(&self, kind: FileKind, document: &mut Document, name: &str) -> Result<(), DocumentError> {
        if kind == FileKind::DovecotOverrides {
            match document.add(name) {
                Ok(()) | Err(DocumentError::Known(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(all) = &self.send_as {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            document.set(name, "send_as", Some(&all.join(", ")))?;
        }
        for (key, limit) in LIMIT_KEYS.into_iter().zip(self.limits) {
            match limit {
                None => {}
                Some(Limit::Default) => document.set(name, key, None)?,
                Some(limit) => document.set(name, key, Some(&limit.to_string()))?,
            }
        }
        if let Some(locked) = self.locked {
            document.set(name, "locked", locked.then_some("yes"))?;
        }
        if kind == FileKind::DovecotOverrides && document.has_nothing(name)? {
            document.remove(name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(kind: FileKind, text: &str, name: &str, changes: &UserChanges) -> Result<String, DocumentError> {
        let mut document = Document::new(text);
        changes.apply(kind, &mut document, name)?;
        Ok(document.text())
    }

    #[test]
    fn limits_and_senders_are_set_and_taken_away() {
        let text = "[ann]\npassword = 1\nmessages_per_day_max = 5\nlocked = yes\n";
        let changes = UserChanges {
            send_as: Some(vec!["@x.example".parse().unwrap(), "a@y.example".parse().unwrap()]),
            limits: [Some(Limit::AtMost(200)), Some(Limit::Default), None, Some(Limit::None)],
            locked: Some(false),
        };
        let wanted = "[ann]\npassword = 1\nsend_as = @x.example, a@y.example\nmessages_per_hour_max = 200\n\
                      recipients_per_day_max = none\n";
        assert_eq!(changed(FileKind::Own, text, "ann", &changes).unwrap(), wanted);
        assert_eq!(changed(FileKind::Own, text, "ann", &UserChanges::default()).unwrap(), text);
        assert_eq!(changed(FileKind::Own, text, "bob", &changes), Err(DocumentError::Unknown("bob".to_owned())));
    }

    #[test]
    fn users_of_dovecot_are_there_while_there_is_something_to_say() {
        let lock = |locked| UserChanges { locked: Some(locked), ..UserChanges::default() };
        let text = changed(FileKind::DovecotOverrides, "", "Ann@x.example", &lock(true)).unwrap();
        assert_eq!(text, "[ann@x.example]\nlocked = yes\n");
        let limited = UserChanges { limits: [Some(Limit::AtMost(1)), None, None, None], ..UserChanges::default() };
        let both = changed(FileKind::DovecotOverrides, &text, "ann@x.example", &limited).unwrap();
        assert_eq!(both, "[ann@x.example]\nmessages_per_hour_max = 1\nlocked = yes\n");
        let left = changed(FileKind::DovecotOverrides, &both, "ann@x.example", &lock(false)).unwrap();
        assert_eq!(left, "[ann@x.example]\nmessages_per_hour_max = 1\n");
        assert_eq!(changed(FileKind::DovecotOverrides, &text, "ann@x.example", &lock(false)).unwrap(), "");
        assert!(matches!(changed(FileKind::DovecotOverrides, "", "a]", &lock(true)), Err(DocumentError::Name(..))));
    }
}
