//! What users who log in have submitted of what they may: the reply to `users`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

/// Rows of one answer.
pub const USERS_MAX: usize = 10_000;

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct UsersView {
    pub hostname: String,
    pub now: Ms,
    /// Who knows the users: `users` (our own file), `dovecot`; empty: nobody logs in.
    pub source: String,
    /// All there are; of Dovecot those who have logged in or submitted something in the last day, and those with local settings.
    pub users_total: u64,
    /// In the order of the file, or by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<UserRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct UserRow {
    pub user: String,
    pub locked: bool,
    pub messages_hour: Share,
    pub messages_day: Share,
    pub recipients_hour: Share,
    pub recipients_day: Share,
}

/// How much is used of the last hour or day, and of how much.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Share {
    pub used: u32,
    /// `None`: no limit.
    pub max: Option<u32>,
}

impl Share {
    pub fn is_used_up(self) -> bool {
        self.max.is_some_and(|max| self.used >= max)
    }

    /// `12 of 1000`, `12`.
    pub fn words(self) -> String {
        self.max.map_or_else(|| self.used.to_string(), |max| format!("{} of {max}", self.used))
    }
}

impl UserRow {
    /// What people call them.
    pub fn shares(&self) -> [(&'static str, Share); 4] {
        [
            ("messages/hour", self.messages_hour),
            ("messages/day", self.messages_day),
            ("recipients/hour", self.recipients_hour),
            ("recipients/day", self.recipients_day),
        ]
    }
}
