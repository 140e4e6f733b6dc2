//! A standing bounce in `status`: what it covers, until when, and why.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;
use stentor_queue::standing_bounces::StandingBounce;

use crate::format::quoted;
use crate::selection::Selection;

/// A standing bounce; all given fields must match.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct StandingBounceView {
    /// Mail to this site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Posts of this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    /// Mail of this envelope sender: an address or `@domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Mail to this domain: `@domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// When it expires.
    pub until: Ms,
    pub reason: String,
}

impl StandingBounceView {
    pub fn new(bounce: StandingBounce, until: Ms, reason: &str) -> StandingBounceView {
        let StandingBounce { site, list, domain, sender } = bounce;
        let recipient = domain.map(|domain| format!("@{domain}"));
        StandingBounceView { site, list, sender, recipient, until, reason: reason.to_owned() }
    }

    /// Selects the queued mail that it covers.
    pub fn selection(&self) -> Selection {
        let Self { site, list, sender, recipient, .. } = self.clone();
        Selection { sender, recipient, site, list, ..Selection::default() }
    }

    /// Describes its scope: `mail of list news to @example.org`.
    pub fn words(&self) -> String {
        let mut words = "mail".to_owned();
        let sender = self.sender.as_deref().map(|sender| if sender.is_empty() { "<>" } else { sender });
        let parts = [
            ("of list", self.list.as_deref()),
            ("from", sender),
            ("to", self.recipient.as_deref()),
            ("to site", self.site.as_deref()),
        ];
        for (word, value) in parts {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(words, " {word} {value}");
            }
        }
        words
    }

    pub fn end_command(&self) -> String {
        let parts =
            [("site", &self.site), ("list", &self.list), ("sender", &self.sender), ("recipient", &self.recipient)];
        let mut command = "stentor bounce --end".to_owned();
        for (name, value) in parts {
            if let Some(value) = value {
                let _ = write!(command, " --{name} {}", quoted(value));
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_command_name_all_parts() {
        let view = |name| StandingBounceView::new(StandingBounce::of_name(name).unwrap(), 7, "why");
        let all = view("bounce:site:mx list:news to:one.example sender:a b@c");
        assert_eq!(all.words(), "mail of list news from a b@c to @one.example to site mx");
        assert_eq!(
            all.end_command(),
            "stentor bounce --end --site mx --list news --sender 'a b@c' --recipient @one.example"
        );
        let null = view("bounce:sender:");
        assert_eq!(
            (null.words().as_str(), null.end_command().as_str()),
            ("mail from <>", "stentor bounce --end --sender '<>'")
        );
        assert_eq!(all.selection().recipient.as_deref(), Some("@one.example"));
    }
}
