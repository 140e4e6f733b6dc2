//! A queue-only scope in `status`: what it covers, who set it, until when, and why.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;
use stentor_queue::queue_only::Scope;

use crate::format::quoted;

/// A scope; see the module's documentation.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QueueOnlyView {
    /// `all`, `class`, `list`, `domain`, `sender`, `client` or `source`.
    pub scope: String,
    /// The scope's value; empty for all mail, and for the null sender.
    pub value: String,
    /// The section `[queue_only.NAME]` behind it; `None` if an operator set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// When it ends: the operator's time, or the end of the configured window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Ms>,
    pub reason: String,
}

/// Describes a scope: `all mail`, `mail to example.org`.
pub fn words(scope: &Scope) -> String {
    let (kind, value) = scope.parts();
    match kind {
        "all" => "all mail".to_owned(),
        "class" => format!("{value} mail"),
        "list" => format!("mail of list {value}"),
        "domain" => format!("mail to {value}"),
        "sender" if value.is_empty() => "mail from <>".to_owned(),
        "sender" => format!("mail from {value}"),
        "client" => format!("mail from client {value}"),
        _ => format!("mail sent from source {value}"),
    }
}

impl QueueOnlyView {
    pub fn new(scope: &Scope, until: Option<Ms>, reason: &str) -> QueueOnlyView {
        let (kind, value) = scope.parts();
        QueueOnlyView { scope: kind.to_owned(), value, section: None, until, reason: reason.to_owned() }
    }

    /// As the free function [`words`]; unchanged text if this version does not know the scope.
    pub fn words(&self) -> String {
        let known = Scope::of_parts(&self.scope, &self.value);
        known.map_or_else(|| format!("{} {}", self.scope, self.value), |scope| words(&scope))
    }

    /// How to end it: a command, or the section of the configuration.
    pub fn end(&self) -> String {
        if let Some(section) = &self.section {
            return format!("[queue_only.{section}] of the configuration");
        }
        let mut command = "stentor queue-only --end --".to_owned() + &self.scope;
        if self.scope != "all" {
            command.push(' ');
            command.push_str(&quoted(&self.value));
        }
        format!("`{command}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_its_words_and_its_end() {
        for (name, said, end) in [
            ("all", "all mail", "`stentor queue-only --end --all`"),
            ("class:bulk", "bulk mail", "`stentor queue-only --end --class bulk`"),
            ("list:news", "mail of list news", "`stentor queue-only --end --list news`"),
            ("domain:x.example", "mail to x.example", "`stentor queue-only --end --domain x.example`"),
            ("sender:", "mail from <>", "`stentor queue-only --end --sender '<>'`"),
            ("sender:@a.example", "mail from @a.example", "`stentor queue-only --end --sender @a.example`"),
            ("client:10.0.0.0/8", "mail from client 10.0.0.0/8", "`stentor queue-only --end --client 10.0.0.0/8`"),
            ("source:a", "mail sent from source a", "`stentor queue-only --end --source a`"),
        ] {
            let scope = Scope::of_name(&format!("queue_only:{name}")).unwrap();
            let view = QueueOnlyView::new(&scope, Some(7), "why");
            assert_eq!((view.words().as_str(), view.end().as_str()), (said, end));
        }
        let section = Some("weekend".to_owned());
        let view = QueueOnlyView { section, ..QueueOnlyView::new(&Scope::All, None, "") };
        assert_eq!(view.end(), "[queue_only.weekend] of the configuration");
    }
}
