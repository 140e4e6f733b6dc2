//! The right side of sendmail's access file, and its `error` mailer (cf/README, "Anti-spam configuration control").

use crate::action::{ActionError, FinalAction, RuleAction};
use crate::refusal::{DENIED, OURS, refusal, sendmail_error, unquoted};

const KNOWN: &str =
    "valid actions: OK, RELAY, REJECT, DISCARD, SKIP, QUARANTINE:reason, ERROR:D.S.N:NNN text, NNN text";

/// Parses the right side of an entry.
///
/// # Errors
/// It is not valid.
pub(crate) fn action(value: &str) -> Result<RuleAction, ActionError> {
    let value = value.trim();
    let (word, rest) = value.split_once(':').unwrap_or((value, ""));
    let is_reply = value.len() >= 3 && value.bytes().take(3).all(|byte| byte.is_ascii_digit());
    Ok(match word.trim_end().to_ascii_uppercase().as_str() {
        "" => return Err(ActionError::Empty),
        // Evaluation continues: sendmail looks up client, sender and recipient separately, so one entry does not
        // prevent the other lookups.
        "OK" | "SKIP" => RuleAction::Dunno,
        "RELAY" => RuleAction::MayRelay,
        "REJECT" => RuleAction::End(FinalAction::Refuse(refusal("", OURS.reject, DENIED))),
        "DISCARD" => RuleAction::End(FinalAction::Discard("".into())),
        "QUARANTINE" => RuleAction::Quarantine(unquoted(rest).into()),
        "ERROR" => RuleAction::End(FinalAction::Refuse(sendmail_error(rest))),
        _ if is_reply && value.starts_with(['4', '5']) => {
            RuleAction::End(FinalAction::Refuse(refusal(value, OURS.reject, DENIED)))
        }
        // "Anything else: a number alone is as OK", which programs that write timestamps rely on.
        _ if value.bytes().all(|byte| byte.is_ascii_digit()) => RuleAction::Dunno,
        _ => return Err(ActionError::Unknown { word: value.to_owned(), known: KNOWN }),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(value: &str) -> String {
        match action(value) {
            Ok(RuleAction::End(FinalAction::Refuse(reply))) => reply.to_string(),
            Ok(action) => format!("{action:?}"),
            Err(error) => format!("! {error}"),
        }
    }

    #[test]
    fn values_of_the_access_file() {
        assert_eq!(shown("REJECT"), "550 5.7.1 Access denied");
        assert_eq!(shown("ERROR:5.7.1:550 no mail from here"), "550 5.7.1 no mail from here");
        assert_eq!(shown("ERROR:4.2.2:450 mailbox full"), "450 4.2.2 mailbox full");
        assert_eq!(shown("ERROR:\"551 5.1.6 moved\""), "551 5.1.6 moved");
        assert_eq!(shown("ERROR:550 go"), "550 5.7.1 go");
        assert_eq!(shown("550 go"), "550 5.7.1 go");
        assert_eq!(shown("ERROR:5.1.1:gone"), "550 5.1.1 gone");
        assert_eq!(
            shown("ERROR:5.7.1:\"550 You wrote to sales@; you meant support@example.com! (see: https://...)\""),
            "550 5.7.1 You wrote to sales@; you meant support@example.com! (see: https://...)"
        );
        assert_eq!(action("RELAY"), Ok(RuleAction::MayRelay));
        assert_eq!(action("ok"), Ok(RuleAction::Dunno));
        assert_eq!(action("SKIP"), Ok(RuleAction::Dunno));
        assert_eq!(action("QUARANTINE:a \"b\" c"), Ok(RuleAction::Quarantine("a \"b\" c".into())));
        assert_eq!(action("12345678"), Ok(RuleAction::Dunno));
        assert!(shown("RELAY all").starts_with('!') && shown("").starts_with('!'));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = action(&text);
        }
    }
}
