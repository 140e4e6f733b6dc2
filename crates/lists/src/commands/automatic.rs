//! Recognizes mail that no person wrote, which commands do not answer (RFC 3834 section 2): otherwise two programs
//! could answer each other without end, and a list would confirm itself.

use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;

/// Local parts of programs.
const PROGRAMS: [&str; 8] =
    ["mailer-daemon", "listserv", "listproc", "majordomo", "mdaemon", "double-bounce", "mail-daemon", "sympa"];
/// Ends of local parts that lists use. RFC 3834 section 2 names `-request` and `owner-`.
const ENDS: [&str; 9] =
    ["-request", "-owner", "-bounces", "-bounce", "-confirm", "-join", "-subscribe", "-leave", "-unsubscribe"];

/// Why a message is automatic, or comes from a program or list; `None`: a person may have written it.
pub fn automatic(sender: &ReversePath, facts: &HeaderFacts) -> Option<&'static str> {
    let ReversePath::Address(sender) = sender else { return Some("null sender") };
    if facts.auto_submitted.as_deref().is_some_and(|word| !word.eq_ignore_ascii_case("no")) {
        return Some("Auto-Submitted");
    }
    if facts.is_bulk() || facts.precedence.as_deref() == Some("auto_reply") {
        return Some("bulk mail");
    }
    let author = facts.from.as_deref().and_then(|from| from.parse::<Address>().ok());
    let is_program = is_program(sender) || author.as_ref().is_some_and(is_program);
    is_program.then_some("sender is a program or list")
}

fn is_program(address: &Address) -> bool {
    let local = address.local().to_ascii_lowercase();
    let base = local.split('+').next().unwrap_or_default();
    PROGRAMS.contains(&base) || base.starts_with("owner-") || ENDS.iter().any(|end| base.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(sender: &str, change: impl FnOnce(&mut HeaderFacts)) -> Option<&'static str> {
        let sender = if sender.is_empty() { ReversePath::Null } else { ReversePath::Address(sender.parse().unwrap()) };
        let mut facts = HeaderFacts::default();
        change(&mut facts);
        automatic(&sender, &facts)
    }

    #[test]
    fn automatic_mail_is_recognized() {
        let word = |word: &str| Some(word.to_owned());
        assert_eq!(why("ann@x.example", |_| ()), None);
        assert_eq!(why("ann@x.example", |facts| facts.auto_submitted = word("no")), None);
        assert_eq!(why("", |_| ()), Some("null sender"));
        assert_eq!(why("ann@x.example", |facts| facts.auto_submitted = word("auto-replied")), Some("Auto-Submitted"));
        for precedence in ["bulk", "list", "junk", "auto_reply"] {
            assert_eq!(why("ann@x.example", |facts| facts.precedence = word(precedence)), Some("bulk mail"));
        }
        assert_eq!(why("ann@x.example", |facts| facts.has_list_headers = true), Some("bulk mail"));
    }

    #[test]
    fn programs_and_lists_are_recognized_by_envelope_and_author() {
        for program in [
            "MAILER-DAEMON@x.example",
            "other-request@x.example",
            "owner-other@x.example",
            "other-owner@x.example",
            "other-bounces+ann=y.example@x.example",
            "news-confirm+token@x.example",
        ] {
            assert!(why(program, |_| ()).is_some(), "{program}");
            assert!(why("ann@x.example", |facts| facts.from = Some(program.to_owned())).is_some(), "{program}");
        }
        assert_eq!(why("ann@x.example", |facts| facts.from = Some("not an address".to_owned())), None);
        assert_eq!(why("petitioner@x.example", |_| ()), None);
    }
}
