//! Advice for the operator about a recipient or a site with waiting mail, derived from the last reply.
//!
//! Advice, not action: nothing here changes mail. Commands are quoted so that a shell takes them unchanged, whatever an
//! address contains.

use stentor_control::{RecipientState, RecipientView, SiteRow};
use stentor_queue::ids::Ms;

/// The kind of problem that a reply reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    MailboxFull,
    MailboxOff,
    Greylisted,
    Rate,
    Refused,
    Silent,
    Names,
    Policy,
    Other,
    Nothing,
}

/// From the enhanced code (RFC 3463) first, then from words that servers use.
fn trouble(reply: &str) -> Trouble {
    if reply.is_empty() {
        return Trouble::Nothing;
    }
    let text = reply.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["4.2.2", "5.2.2", "over quota", "quota exceeded", "mailbox full", "mailbox is full", "over its quota"]) {
        Trouble::MailboxFull
    } else if has(&["4.2.1", "5.2.1", "disabled", "inactive"]) {
        Trouble::MailboxOff
    } else if has(&["greylist", "graylist", "grey list", "gray list"]) {
        Trouble::Greylisted
    } else if has(&["4.7.28", "too many", "rate", "throttl", "too fast", "slow down"]) {
        Trouble::Rate
    } else if has(&["connection refused", "no route", "unreachable", "connection reset"]) {
        Trouble::Refused
    } else if has(&["timed out", "timeout", "long silence", "lost"]) {
        Trouble::Silent
    } else if has(&["dns", "look-up", "lookup", "servfail", "name server", "resolve"]) {
        Trouble::Names
    } else if has(&["4.7.", "blocked", "blacklist", "block list", "reputation", "spam"]) {
        Trouble::Policy
    } else {
        Trouble::Other
    }
}

/// About a recipient: `list` has it as a subscriber, `oldest` is its oldest message's acceptance.
pub fn recipient(view: &RecipientView, list: Option<&str>, oldest: Option<Ms>, now: Ms) -> String {
    let address = quoted(&view.address);
    let since = since(oldest, now);
    let stop = match list {
        Some(list) => {
            format!("suspend the subscriber: `stentor suspend --list {} --subscriber {address}`", quoted(list))
        }
        None => format!("give up: `stentor bounce --recipient {address}`"),
    };
    match view.state {
        RecipientState::InFlight => return "is being delivered".to_owned(),
        RecipientState::Held => return format!("held by an operator: `stentor release --recipient {address}`"),
        _ => {}
    }
    match trouble(&view.last_reply) {
        Trouble::MailboxFull => format!("mailbox full{since}: {stop}"),
        Trouble::MailboxOff => format!("mailbox switched off{since}: {stop}"),
        Trouble::Greylisted => "greylisted: wait for the next try".to_owned(),
        Trouble::Rate => {
            format!("its host limits the rate{since}: wait, or lower the site's rate in the configuration")
        }
        trouble @ (Trouble::Refused | Trouble::Silent) => host(trouble, &view.site, &since),
        Trouble::Names => format!("its domain cannot be looked up{since}: wait, or {stop}"),
        Trouble::Policy => format!("its host rejects this mail{since}: read its reply, or {stop}"),
        Trouble::Other => format!("refused for now{since}: wait, or {stop}"),
        Trouble::Nothing => "waits for its turn".to_owned(),
    }
}

/// About a site.
pub fn site(row: &SiteRow, is_suspended: bool, now: Ms) -> String {
    let (name, since) = (quoted(&row.site), since(row.oldest, now));
    if is_suspended {
        return format!("suspended by an operator: `stentor resume --site {name}`");
    }
    if row.next_try.is_none_or(|at| at <= now) && row.connections > 0 {
        return "is being served".to_owned();
    }
    match trouble(&row.last_reply) {
        trouble @ (Trouble::Refused | Trouble::Silent) => host(trouble, &row.site, &since),
        Trouble::Rate => format!("limits the rate{since}: wait, or lower the site's rate in the configuration"),
        Trouble::Names => format!("cannot be looked up{since}: wait, or ask its postmaster by other means"),
        Trouble::Policy => {
            format!("rejects this mail{since}: read its reply; `stentor suspend --site {name}` until it is resolved")
        }
        Trouble::Greylisted => "greylists: wait for the next try".to_owned(),
        Trouble::Nothing => "waits for its turn".to_owned(),
        Trouble::MailboxFull | Trouble::MailboxOff | Trouble::Other => {
            format!("refuses for now{since}: wait, or `stentor suspend --site {name}`")
        }
    }
}

fn host(trouble: Trouble, site: &str, since: &str) -> String {
    let what = if trouble == Trouble::Refused { "host refuses connections" } else { "host does not answer" };
    let site = quoted(site);
    format!("{what}{since}: wait, or `stentor suspend --site {site}`; `stentor flush {site}` once it is back")
}

/// ` since 3 d`; empty below a minute.
fn since(oldest: Option<Ms>, now: Ms) -> String {
    let s = oldest.map_or(0, |oldest| now.saturating_sub(oldest) / 1_000);
    match s {
        0..60 => String::new(),
        60..3_600 => format!(" for {} min", s / 60),
        3_600..172_800 => format!(" for {} h", s / 3_600),
        _ => format!(" for {} days", s / 86_400),
    }
}

/// As a word of a shell.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@._+-=:/,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: Ms = 86_400_000;

    fn view(reply: &str) -> RecipientView {
        RecipientView {
            address: "ann@one.example".to_owned(),
            site: "mx.one.example".to_owned(),
            state: RecipientState::Deferred,
            next_try: None,
            last_reply: reply.to_owned(),
        }
    }

    #[test]
    fn the_reply_says_what_to_do() {
        let full = recipient(&view("452 4.2.2 Mailbox full"), Some("news"), Some(0), 3 * DAY_MS);
        assert_eq!(
            full,
            "mailbox full for 3 days: suspend the subscriber: `stentor suspend --list news --subscriber ann@one.example`"
        );
        let down = recipient(&view("Connection refused"), None, Some(0), 7_200_000);
        assert!(
            down.starts_with("host refuses connections for 2 h: wait, or `stentor suspend --site mx.one.example`"),
            "{down}"
        );
        assert!(recipient(&view("450 4.7.1 Greylisted"), None, None, 0).starts_with("greylisted"));
        assert!(
            recipient(&view("451 4.3.0 no"), None, Some(0), DAY_MS)
                .contains("`stentor bounce --recipient ann@one.example`")
        );
    }

    #[test]
    fn commands_are_safe_to_paste() {
        let mut odd = view("4.2.2");
        odd.address = "\"a';rm -rf /;'b\"@one.example".to_owned();
        let text = recipient(&odd, None, None, 0);
        assert!(text.contains(r#"--recipient '"a'\'';rm -rf /;'\''b"@one.example'"#), "{text}");
        assert_eq!(quoted("(not resolved yet)"), "'(not resolved yet)'");
    }

    #[test]
    fn sites_have_advice_of_their_own() {
        let mut row = SiteRow {
            site: "mx".to_owned(),
            next_try: Some(9),
            last_reply: "Connection timed out".to_owned(),
            ..SiteRow::default()
        };
        assert!(site(&row, false, 5).starts_with("host does not answer: wait"));
        assert_eq!(site(&row, true, 5), "suspended by an operator: `stentor resume --site mx`");
        (row.next_try, row.connections) = (None, 2);
        assert_eq!(site(&row, false, 5), "is being served");
    }
}
