//! Advice for the operator about a recipient or a site with waiting mail, derived from the cause.
//!
//! Advice, not action: nothing here changes mail. Commands are quoted so that a shell takes them unchanged, whatever an
//! address contains.

use stentor_control::format::quoted;
use stentor_control::{RecipientView, SiteRow, causes};
use stentor_queue::ids::Ms;
use stentor_sched::Cause;

/// About a recipient: `list` has it as a subscriber, `oldest` is its oldest message: queue id and acceptance.
pub fn recipient(view: &RecipientView, list: Option<&str>, oldest: Option<(&str, Ms)>, now: Ms) -> String {
    let address = quoted(&view.address);
    let since = since(oldest.map(|(_, at)| at), now);
    let give_up = format!("give up: `stentor bounce --recipient {address}`");
    let stop = match list {
        Some(list) => {
            format!("suspend the subscriber: `stentor suspend --list {} --subscriber {address}`", quoted(list))
        }
        None => give_up.clone(),
    };
    match Cause::of_name(&view.cause).unwrap_or_default() {
        Cause::Sending => "is being delivered".to_owned(),
        Cause::Reporting => "has failed: its bounce is being written".to_owned(),
        Cause::Ready | Cause::LookUp => "goes next: nothing to do".to_owned(),
        Cause::Held => match oldest {
            Some((id, _)) => format!("held by an operator: `stentor release --id {id}`"),
            None => "held by an operator: `stentor mailqq` lists the messages, `stentor release --id ID` ends the hold"
                .to_owned(),
        },
        Cause::MailboxFull => format!("mailbox full{since}: {stop}"),
        Cause::Mailbox => format!("mailbox unavailable{since}: wait, or {stop}"),
        Cause::Greylisted => "greylisted: wait for the next try".to_owned(),
        Cause::Recipient => format!("deferred at RCPT{since}: read the reply; wait, or {give_up}"),
        Cause::Message => {
            let what = lasting("the host defers this message", "the host has deferred this message", &since);
            format!("{what}: read the reply; it is not about the recipient; wait, or {give_up}")
        }
        Cause::Dns => {
            let what = lasting("its domain cannot be looked up", "its domain could not be looked up", &since);
            format!("{what}: wait, or {give_up}")
        }
        of_site => site_advice(of_site, &view.site, &since),
    }
}

/// About a site, by what most of its mail waits for.
pub fn site(row: &SiteRow, is_suspended: bool, now: Ms) -> String {
    let since = since(row.oldest, now);
    let cause = causes::main(&row.causes).map_or(Cause::Ready, causes::CauseRow::cause);
    match cause {
        _ if is_suspended => format!("suspended by an operator: `stentor resume --site {}`", quoted(&row.site)),
        Cause::Ready | Cause::LookUp | Cause::Sending | Cause::Reporting if row.connections > 0 => {
            "is being served".to_owned()
        }
        Cause::Ready | Cause::LookUp | Cause::Sending | Cause::Reporting => "goes next: nothing to do".to_owned(),
        Cause::Held => "messages are held by an operator: `stentor mailqq`, then `stentor release --id ID`".to_owned(),
        Cause::MailboxFull | Cause::Mailbox => {
            format!("full or unavailable mailboxes{since}: see the recipients; the site is healthy")
        }
        Cause::Greylisted => "greylists: wait for the next try".to_owned(),
        Cause::Recipient => {
            format!("{}: read the reply; wait", lasting("defers recipients", "has deferred recipients", &since))
        }
        Cause::Message => {
            let what = lasting("defers messages after their data", "has deferred messages after their data", &since);
            format!("{what}: read the reply; wait")
        }
        cause => site_advice(cause, &row.site, &since),
    }
}

/// What is the site's, or ours with it, and no recipient's.
fn site_advice(cause: Cause, site: &str, since: &str) -> String {
    let name = quoted(site);
    let back = format!("wait, or `stentor suspend --site {name}`; `stentor flush {name}` once it is back");
    match cause {
        Cause::Refused => {
            format!("{}: {back}", lasting("host refuses connections", "host has refused connections", since))
        }
        Cause::Unreachable => format!("host or network unreachable{since}: check our own route; {back}"),
        Cause::TimedOut => format!("{}: {back}", lasting("host does not answer", "host has not answered", since)),
        Cause::Silent => {
            let what = lasting("host responds slowly", "host has responded slowly", since);
            format!("{what}: wait; other sites are not delayed")
        }
        Cause::Lost => format!("{}: {back}", lasting("connections are lost", "connections have been lost", since)),
        Cause::Busy => format!("host busy (421){since}: wait; connections are reduced automatically"),
        Cause::Greeting => {
            let what = lasting("host refuses us at the greeting", "host has refused us at the greeting", since);
            format!("{what}: read the reply; {back}")
        }
        Cause::Rate => {
            let what = lasting("host limits the rate", "host has limited the rate", since);
            format!("{what}: wait, or set the site's rate in the configuration")
        }
        Cause::Sender => {
            let what = lasting(
                "host defers the sender or our address at MAIL",
                "host has deferred the sender or our address at MAIL",
                since,
            );
            format!(
                "{what}: it is not about the recipients; read the reply, ask its postmaster, or \
                 `stentor suspend --site {name}`"
            )
        }
        Cause::Dns => {
            let what = lasting("cannot be looked up", "could not be looked up", since);
            format!("{what}: check `[dns] servers`, or ask its postmaster by other means")
        }
        Cause::Suspended => {
            "a list or sender is suspended: `stentor status` names it and the command that ends it".to_owned()
        }
        Cause::OwnLimit => "at a local limit: raise the connection or rate limits if the hosts accept more".to_owned(),
        Cause::Unreadable => "our stored content cannot be read: `stentor journal verify` says more".to_owned(),
        _ => "wait for the next try".to_owned(),
    }
}

/// What is so now, or for how long it has been so.
fn lasting(now: &str, so_far: &str, since: &str) -> String {
    if since.is_empty() { now.to_owned() } else { format!("{so_far}{since}") }
}

/// ` for 3 days`; empty below a minute.
fn since(oldest: Option<Ms>, now: Ms) -> String {
    let s = oldest.map_or(0, |oldest| now.saturating_sub(oldest) / 1_000);
    match s {
        0..60 => String::new(),
        60..3_600 => format!(" for {} min", s / 60),
        3_600..172_800 => format!(" for {} h", s / 3_600),
        _ => format!(" for {} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_control::CauseRow;

    const DAY_MS: Ms = 86_400_000;

    fn view(cause: Cause) -> RecipientView {
        RecipientView {
            address: "ann@one.example".to_owned(),
            site: "mx.one.example".to_owned(),
            cause: cause.name().to_owned(),
            ..RecipientView::default()
        }
    }

    #[test]
    fn advice_follows_the_cause() {
        let full = recipient(&view(Cause::MailboxFull), Some("news"), Some(("1", 0)), 3 * DAY_MS);
        assert_eq!(
            full,
            "mailbox full for 3 days: suspend the subscriber: `stentor suspend --list news --subscriber ann@one.example`"
        );
        let down = recipient(&view(Cause::Refused), None, Some(("1", 0)), 7_200_000);
        assert!(
            down.starts_with("host has refused connections for 2 h: wait, or `stentor suspend --site mx.one.example`"),
            "{down}"
        );
        assert!(recipient(&view(Cause::Greylisted), None, None, 0).starts_with("greylisted"));
        let at_mail = recipient(&view(Cause::Sender), Some("news"), Some(("1", 0)), DAY_MS);
        assert!(at_mail.contains("not about the recipients") && !at_mail.contains("subscriber"), "{at_mail}");
        let at_rcpt = recipient(&view(Cause::Recipient), None, Some(("1", 0)), DAY_MS);
        assert!(at_rcpt.contains("`stentor bounce --recipient ann@one.example`"), "{at_rcpt}");
        assert_eq!(
            recipient(&view(Cause::Held), None, Some(("7f", 0)), 5),
            "held by an operator: `stentor release --id 7f`"
        );
    }

    #[test]
    fn commands_are_safe_to_paste() {
        let mut odd = view(Cause::MailboxFull);
        odd.address = "\"a';rm -rf /;'b\"@one.example".to_owned();
        let text = recipient(&odd, None, None, 0);
        assert!(text.contains(r#"--recipient '"a'\'';rm -rf /;'\''b"@one.example'"#), "{text}");
        assert_eq!(quoted("(not resolved yet)"), "'(not resolved yet)'");
    }

    #[test]
    fn sites_have_advice_of_their_own() {
        let causes =
            |cause: Cause| vec![CauseRow { cause: cause.name().to_owned(), recipients: 3, ..CauseRow::default() }];
        let mut row = SiteRow { site: "mx".to_owned(), causes: causes(Cause::TimedOut), ..SiteRow::default() };
        assert!(site(&row, false, 5).starts_with("host does not answer: wait"));
        assert_eq!(site(&row, true, 5), "suspended by an operator: `stentor resume --site mx`");
        row.causes = causes(Cause::MailboxFull);
        assert!(site(&row, false, 5).contains("the site is healthy"));
        (row.causes, row.connections) = (causes(Cause::Sending), 2);
        assert_eq!(site(&row, false, 5), "is being served");
    }
}
