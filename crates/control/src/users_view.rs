//! Submissions of users and their limits: the reply to `users`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

/// Maximum rows of one answer.
pub const USERS_MAX: usize = 10_000;

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct UsersView {
    pub hostname: String,
    pub now: Ms,
    /// The source of users: `users` (our own file), `dovecot`; empty if there are no logins.
    pub source: String,
    /// Number of users; of Dovecot's, those who logged in or submitted something in the last day, and those with local
    /// settings.
    pub users_total: u64,
    /// Rows in the order of the file, or by name.
    pub rows: Vec<UserRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct UserRow {
    /// The user's name.
    pub user: String,
    /// The user may not log in.
    pub locked: bool,
    /// Messages of the last hour.
    pub messages_hour: Share,
    /// Messages of the last day.
    pub messages_day: Share,
    /// Recipients of the last hour.
    pub recipients_hour: Share,
    /// Recipients of the last day.
    pub recipients_day: Share,
}

/// Use of the last hour or day, and the limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Share {
    /// Number used.
    pub used: u32,
    /// `None`: no limit.
    pub max: Option<u32>,
}

impl Share {
    pub fn is_used_up(self) -> bool {
        self.max.is_some_and(|max| self.used >= max)
    }

    /// Formats `12 of 1000` or `12`.
    pub fn words(self) -> String {
        self.max.map_or_else(|| self.used.to_string(), |max| format!("{} of {max}", self.used))
    }
}

impl UserRow {
    /// The four shares with their names for people.
    pub fn shares(&self) -> [(&'static str, Share); 4] {
        [
            ("messages/hour", self.messages_hour),
            ("messages/day", self.messages_day),
            ("recipients/hour", self.recipients_hour),
            ("recipients/day", self.recipients_day),
        ]
    }
}
