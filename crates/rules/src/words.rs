//! Describes actions in words.

use crate::action::{FinalAction, RuleAction};

/// Describes an action for people.
pub(crate) fn in_words(action: &RuleAction) -> String {
    match action {
        RuleAction::End(FinalAction::Ok) => "ok".to_owned(),
        RuleAction::End(FinalAction::Relay) => "relay".to_owned(),
        RuleAction::MayRelay => "the client may relay".to_owned(),
        RuleAction::End(FinalAction::Refuse(reply)) => format!("refuse with {reply}"),
        RuleAction::End(FinalAction::Discard(text)) => with("discard", text),
        RuleAction::Dunno => "nothing".to_owned(),
        RuleAction::Hold(text) => with("hold", text),
        RuleAction::Quarantine(text) => with("quarantine", text),
        RuleAction::Redirect(to) => format!("redirect to {to}"),
        RuleAction::Bcc(to) => format!("copy to {to}"),
        RuleAction::Prepend(field) => format!("prepend {field}"),
        RuleAction::EditHeader(edit) if edit.is_removal() => format!("remove header {edit}"),
        RuleAction::EditHeader(edit) => format!("replace header {edit}"),
        RuleAction::TransferEncoding(target) => format!("transfer encoding {}", target.name()),
        RuleAction::Warn(text) => with("warn", text),
        RuleAction::Class(class) => format!("class {}", class.name()),
        RuleAction::Route(hop) => format!("route {hop}"),
        RuleAction::Copy(hop) => format!("copy to {hop}"),
    }
}

fn with(word: &str, text: &str) -> String {
    if text.is_empty() { word.to_owned() } else { format!("{word}: {text}") }
}
