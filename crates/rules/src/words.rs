//! Describes actions in words.

use crate::action::{Action, Verdict};

/// Describes an action for people.
pub(crate) fn in_words(action: &Action) -> String {
    match action {
        Action::End(Verdict::Ok) => "ok".to_owned(),
        Action::End(Verdict::Relay) => "relay".to_owned(),
        Action::MayRelay => "the client may relay".to_owned(),
        Action::End(Verdict::Refuse(reply)) => format!("refuse with {reply}"),
        Action::End(Verdict::Discard(text)) => with("discard", text),
        Action::Dunno => "nothing".to_owned(),
        Action::Hold(text) => with("hold", text),
        Action::Quarantine(text) => with("quarantine", text),
        Action::Redirect(to) => format!("redirect to {to}"),
        Action::Bcc(to) => format!("copy to {to}"),
        Action::Prepend(field) => format!("prepend {field}"),
        Action::EditHeader(edit) if edit.is_removal() => format!("remove header {edit}"),
        Action::EditHeader(edit) => format!("replace header {edit}"),
        Action::TransferEncoding(target) => format!("transfer encoding {}", target.name()),
        Action::Warn(text) => with("warn", text),
        Action::Class(class) => format!("class {}", class.name()),
        Action::Route(hop) => format!("route {hop}"),
        Action::Copy(hop) => format!("copy to {hop}"),
    }
}

fn with(word: &str, text: &str) -> String {
    if text.is_empty() { word.to_owned() } else { format!("{word}: {text}") }
}
