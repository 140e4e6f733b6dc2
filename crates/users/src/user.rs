//! The checked contents of the file.

use std::sync::Arc;

use hashbrown::HashMap;
use stentor_mail::address::Address;
use stentor_sasl::limits::USER_BYTES_MAX;
use stentor_sasl::{PrepError, ScramKeys, prepare};

use crate::limits::OwnLimits;
use crate::send_as::SendAs;

/// A user who may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name in the form of [`canonical_name`].
    pub name: Arc<str>,
    /// The argon2id hash; at least one of the two is set, except for Dovecot users.
    pub hash: Option<Box<str>>,
    pub scram: Option<ScramKeys>,
    /// For Dovecot users: empty if Dovecot's value applies.
    pub send_as: Vec<SendAs>,
    pub limits: OwnLimits,
    /// May not log in; open sessions end.
    pub is_locked: bool,
    /// The user's first line in the file, from 1.
    pub line: u32,
}

impl User {
    /// Whether the user may send as this address, in the envelope and in From.
    pub fn owns(&self, address: &Address) -> bool {
        self.send_as.iter().any(|one| one.covers(address))
    }
}

/// The form in which names are compared: prepared (RFC 4013) and in lower case, so that spelling does not matter.
pub fn canonical_name(text: &str) -> Result<String, PrepError> {
    let lower = prepare(text, USER_BYTES_MAX)?.to_lowercase();
    Ok(prepare(&lower, USER_BYTES_MAX)?.into_owned())
}

/// All users of a file.
#[derive(Debug, Clone, Default)]
pub struct Users {
    by_name: HashMap<Arc<str>, Arc<User>>,
}

impl Users {
    /// Finds a user by a name in any spelling.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(canonical_name(name).ok()?.as_str())
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// All users, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        let mut all: Vec<&Arc<User>> = self.by_name.values().collect();
        all.sort_unstable_by_key(|user| user.line);
        all.into_iter()
    }

    /// Adds a user; returns the existing one with the same name, if any.
    pub(crate) fn add(&mut self, user: User) -> Result<(), Arc<User>> {
        if let Some(known) = self.by_name.get(&user.name) {
            return Err(known.clone());
        }
        self.by_name.insert(user.name.clone(), Arc::new(user));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_written() {
        assert_eq!(canonical_name("Ann@Example.ORG").unwrap(), "ann@example.org");
        assert_eq!(canonical_name("I\u{ad}X").unwrap(), "ix");
        assert!(canonical_name("").is_err() && canonical_name("a\u{7}").is_err());
        assert!(canonical_name(&"x".repeat(USER_BYTES_MAX + 1)).is_err());
    }
}
