//! Advice for the operator about a recipient or a site with waiting mail, derived from the cause.
//!
//! Advice, not action: nothing here changes mail. Commands are quoted for the shell, whatever an address contains.

use stentor_control::format::{quoted, resume_command};
use stentor_control::{RecipientView, SiteRow, causes};
use stentor_policy::DELIVER_SOCKETS;
use stentor_queue::cause::Cause;
use stentor_queue::ids::Ms;

/// Prefix of the names of sites that are local sockets.
const SOCKET: &str = "route:unix:";

/// Facts about a recipient or site that its row lacks.
#[derive(Clone, Copy, Default)]
pub struct AdviceFacts<'a> {
    /// The list of the oldest message waiting there, if the recipient is one of its subscribers.
    pub subscribed: Option<&'a str>,
    /// The oldest message waiting there: queue id and acceptance.
    pub oldest: Option<(&'a str, Ms)>,
    /// The list that the request was limited to.
    pub asked: Option<&'a str>,
    /// The suspension that holds that message, by its name in the journal.
    pub suspended: Option<&'a str>,
    /// Why it was suspended; empty if unknown.
    pub reason: &'a str,
    /// The name servers in use.
    pub name_servers: &'a str,
    /// The last reply.
    pub last_reply: &'a str,
}

/// Advice about a recipient.
pub fn recipient(view: &RecipientView, known: &AdviceFacts<'_>, now: Ms) -> String {
    let address = quoted(&view.address);
    let since = since(known.oldest.map(|(_, at)| at), now);
    // Very recent mail needs no remedy yet.
    let or = |remedy: String| if since.is_empty() { "wait".to_owned() } else { format!("wait, or {remedy}") };
    let give_up = match known.asked {
        Some(list) => format!("give up with `stentor bounce --list {} --recipient {address} --dry-run`", quoted(list)),
        None => format!("give up with `stentor bounce --recipient {address} --dry-run`"),
    };
    let stop = match known.subscribed {
        Some(list) => {
            format!(
                "stop the list's mail with `stentor suspend --list {} --subscriber {address}`; for waiting mail, \
                 {give_up}",
                quoted(list)
            )
        }
        None => or(give_up.clone()),
    };
    match Cause::of_name(&view.cause).unwrap_or_default() {
        Cause::Sending => "is being delivered".to_owned(),
        Cause::Reporting => "has failed: its bounce is being written".to_owned(),
        Cause::Ready | Cause::LookUp => "due next: nothing to do".to_owned(),
        Cause::Held => {
            let held = held(&view.words);
            match known.oldest {
                Some((id, _)) => format!("{held}: `stentor release --id {id}`"),
                None => format!("{held}: `stentor mailqq` lists the messages, `stentor release --id ID` ends the hold"),
            }
        }
        Cause::QueueOnly => queue_only(&view.words),
        Cause::MailboxFull => format!("mailbox full{since}: {stop}"),
        Cause::Mailbox if known.subscribed.is_some() => format!("mailbox unavailable{since}: wait, or {stop}"),
        Cause::Mailbox => format!("mailbox unavailable{since}: {stop}"),
        Cause::Greylisted => "greylisted: wait for the next try".to_owned(),
        Cause::Recipient => format!("deferred at RCPT{since}: read the reply; {}", or(give_up)),
        Cause::Message => {
            let what = format!("the host defers this message{since}");
            // Other mail to the recipient may succeed.
            let id = known.oldest.map_or("ID", |(id, _)| id);
            let give_up = format!("give it up with `stentor bounce --id {id} --recipient {address} --dry-run`");
            format!("{what}: read the reply; it is not about the recipient; {}", or(give_up))
        }
        of_site => site_advice(of_site, &view.site, &since, known),
    }
}

/// Advice about a site, by what most of its mail waits for.
pub fn site(row: &SiteRow, is_suspended: bool, known: &AdviceFacts<'_>, now: Ms) -> String {
    let since = since(row.oldest, now);
    let main = causes::main(&row.causes);
    let cause = main.map_or(Cause::Ready, causes::CauseRow::cause);
    match cause {
        _ if is_suspended => suspended(&format!("site:{}", row.site), known.reason),
        Cause::Reporting => "has failed: bounces are being written".to_owned(),
        Cause::Ready | Cause::LookUp | Cause::Sending if row.connections > 0 => "is being delivered to".to_owned(),
        Cause::Ready | Cause::LookUp | Cause::Sending => "due next: nothing to do".to_owned(),
        Cause::Held => {
            let held = held(main.map_or("", |row| &row.words));
            format!("messages are {held}: `stentor mailqq`, then `stentor release --id ID`")
        }
        Cause::QueueOnly => queue_only(main.map_or("", |row| &row.words)),
        Cause::MailboxFull | Cause::Mailbox => {
            format!("full or unavailable mailboxes{since}: see the recipients; the site is healthy")
        }
        Cause::Greylisted => "greylists: wait for the next try".to_owned(),
        Cause::Recipient => {
            format!("defers recipients{since}: read the reply; wait")
        }
        Cause::Message => {
            format!("defers messages at DATA{since}: read the reply; wait")
        }
        cause => site_advice(cause, &row.site, &since, known),
    }
}

/// Advice about causes that concern the whole site, or us.
fn site_advice(cause: Cause, site: &str, since: &str, known: &AdviceFacts<'_>) -> String {
    let name = quoted(site);
    // No program listens, or none has bound the socket yet.
    if let (Some(path), Cause::Refused | Cause::Unreachable | Cause::Lost) = (site.strip_prefix(SOCKET), cause) {
        let who = if path.starts_with(DELIVER_SOCKETS) {
            "stentor-deliver is not running or lacks this service: start it".to_owned()
        } else {
            "the program behind the socket does not accept connections: start it".to_owned()
        };
        return format!("{who}, then `stentor flush {name}`");
    }
    let back = format!("wait, or `stentor suspend --site {name}`; `stentor flush {name}` once it is back");
    match cause {
        Cause::Connecting => "a connection is being made: wait".to_owned(),
        Cause::NoGreeting => {
            format!(
                "host accepts connections but sends no greeting{since}: {back}; if its port expects TLS at once, \
                 write `smtps:` before the host"
            )
        }
        Cause::Refused => {
            format!("host refuses connections{since}: {back}")
        }
        Cause::Unreachable => format!("host or network unreachable{since}: check this server's route; {back}"),
        Cause::TimedOut => format!("host does not answer{since}: {back}"),
        Cause::Silent => {
            format!("host is slow{since}: wait, or `stentor suspend --site {name}`; other sites are not delayed")
        }
        Cause::Lost => format!("connections are lost{since}: {back}"),
        Cause::Busy => format!("host busy (421){since}: wait; connections are reduced automatically"),
        Cause::Greeting => {
            format!("host refuses this server at the greeting{since}: read the reply; {back}")
        }
        Cause::Tls => {
            format!(
                "required TLS fails{since}: read the reason; `stentor tls check DOMAIN` shows what fails and which \
                 policy requires it; ask the site's postmaster, or change that policy"
            )
        }
        Cause::Auth => {
            format!(
                "login at the host fails{since}: read the reason; with `no access token` correct the token setup, \
                 else check [smart_hosts]: user, secret, mechanisms, and `tls_ca_file` if the host's certificate is \
                 not verified"
            )
        }
        Cause::Rate => {
            format!("host limits the rate{since}: wait, or set a rate for the site in the configuration")
        }
        Cause::Sender => {
            let what = format!("host defers the sender or our address at MAIL{since}");
            format!(
                "{what}, not the recipients: read the reply, ask its postmaster, or `stentor suspend --site {name}`"
            )
        }
        Cause::BlockListed => format!(
            "this server, or something in the message, is on a block list{since}: the reply names it; find the \
             reason, then ask the list for removal; `stentor suspend --site {name}` avoids more refusals"
        ),
        cause => local_advice(cause, known),
    }
}

/// Advice about causes on our side, and about DNS.
fn local_advice(cause: Cause, known: &AdviceFacts<'_>) -> String {
    match cause {
        // The same text for all: a wrong name server may affect thousands. How long it has lasted is unknown.
        Cause::Dns if is_answered(known.last_reply) => {
            "the name servers report an error for this domain, so its own DNS is broken: wait, or tell its postmaster \
             by other means (`dig DOMAIN MX` shows the error)"
                .to_owned()
        }
        Cause::Dns => format!(
            "DNS lookup fails: wait, or check that the name servers ({}; `[dns] servers`) are correct and answer; \
             then `stentor flush` retries all mail",
            known.name_servers
        ),
        Cause::Routing => {
            "the route has an error: read the reply, correct [routing], [hops] or the rule, then run `stentor check` \
             and `stentor reload`"
                .to_owned()
        }
        Cause::Suspended => known.suspended.map_or_else(
            || "a list or sender is suspended: `stentor status` shows it and the command that resumes it".to_owned(),
            |what| suspended(what, known.reason),
        ),
        Cause::OwnLimit => {
            "a local limit is reached: raise the connection or rate limits if the hosts accept more".to_owned()
        }
        Cause::Table => {
            "a table of `[routing]` or `[addresses] generic` cannot be used: the reply names it, the log shows why, \
             `stentor check` shows where"
                .to_owned()
        }
        Cause::Unreadable => {
            "the message cannot be read: run `stentor journal verify`; the log has the reason".to_owned()
        }
        Cause::Unsigned => {
            "the copy could not be signed (DKIM): the log has the reason, `stentor check` reads the keys".to_owned()
        }
        _ => "wait for the next try".to_owned(),
    }
}

/// Whether a failed look-up had an answer; if so, our name servers work.
fn is_answered(last_reply: &str) -> bool {
    last_reply.contains("name server answered")
}

/// Advice for queue-only mail, with the reason from the cause's words.
fn queue_only(words: &str) -> String {
    let words = if words.is_empty() { Cause::QueueOnly.words() } else { words };
    format!("{words}: `stentor queue run` tries it once; `stentor queue-only --show` shows how to end it")
}

/// The holder of the mail, from the cause's words.
fn held(words: &str) -> &str {
    if words.is_empty() { Cause::Held.words() } else { words }
}

/// Advice with the command that ends a suspension; `what` is its name in the journal.
fn suspended(what: &str, reason: &str) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    resume_command(what).map_or_else(String::new, |command| format!("suspended by an operator{reason}: `{command}`"))
}

/// Formats `, oldest message 3 days old`; empty below a minute. The age of the cause is unknown, since an earlier one
/// may have been different.
fn since(oldest: Option<Ms>, now: Ms) -> String {
    let s = oldest.map_or(0, |oldest| now.saturating_sub(oldest) / 1_000);
    match s {
        0..60 => String::new(),
        60..3_600 => format!(", oldest message {} min old", s / 60),
        3_600..172_800 => format!(", oldest message {} h old", s / 3_600),
        _ => format!(", oldest message {} days old", s / 86_400),
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
        let known = AdviceFacts { oldest: Some(("1", 0)), name_servers: "192.0.2.53:53", ..AdviceFacts::default() };
        let of_list = AdviceFacts { subscribed: Some("news"), ..known };
        let full = recipient(&view(Cause::MailboxFull), &of_list, 3 * DAY_MS);
        assert_eq!(
            full,
            "mailbox full, oldest message 3 days old: stop the list's mail with `stentor suspend --list news \
             --subscriber ann@one.example`; for waiting mail, give up with `stentor bounce --recipient ann@one.example \
             --dry-run`"
        );
        let down = recipient(&view(Cause::Refused), &known, 7_200_000);
        assert!(
            down.starts_with(
                "host refuses connections, oldest message 2 h old: wait, or `stentor suspend --site mx.one.example`"
            ),
            "{down}"
        );
        assert!(recipient(&view(Cause::Greylisted), &AdviceFacts::default(), 0).starts_with("greylisted"));
        let at_mail = recipient(&view(Cause::Sender), &of_list, DAY_MS);
        assert!(at_mail.contains("not the recipients") && !at_mail.contains("subscriber"), "{at_mail}");
        let at_rcpt = recipient(&view(Cause::Recipient), &known, DAY_MS);
        assert!(at_rcpt.contains("`stentor bounce --recipient ann@one.example --dry-run`"), "{at_rcpt}");
        let held = AdviceFacts { oldest: Some(("7f", 0)), ..known };
        let by_rule = RecipientView { words: "held by rule 1 (s.toml:5)".to_owned(), ..view(Cause::Held) };
        assert_eq!(recipient(&by_rule, &held, 5), "held by rule 1 (s.toml:5): `stentor release --id 7f`");
        let dns = recipient(&view(Cause::Dns), &known, DAY_MS);
        assert!(dns.contains("(192.0.2.53:53; `[dns] servers`)") && !dns.contains("bounce"), "{dns}");
        assert!(dns.ends_with("then `stentor flush` retries all mail"), "{dns}");
    }

    #[test]
    fn what_bounces_is_not_more_than_what_was_asked_about() {
        let known = AdviceFacts { oldest: Some(("7f", 0)), ..AdviceFacts::default() };
        let message = recipient(&view(Cause::Message), &known, DAY_MS);
        assert!(message.ends_with("`stentor bounce --id 7f --recipient ann@one.example --dry-run`"), "{message}");
        let of_list = AdviceFacts { asked: Some("news"), ..known };
        let at_rcpt = recipient(&view(Cause::Recipient), &of_list, DAY_MS);
        assert!(at_rcpt.ends_with("`stentor bounce --list news --recipient ann@one.example --dry-run`"), "{at_rcpt}");
        for cause in Cause::ALL {
            let young = recipient(&view(cause), &of_list, 59_000);
            assert!(!young.contains("bounce -"), "{young}");
        }
    }

    #[test]
    fn a_suspension_has_one_reason_and_one_command_in_all_rows() {
        let known = AdviceFacts { suspended: Some("site:mx.one.example"), ..AdviceFacts::default() };
        let row = SiteRow { site: "mx.one.example".to_owned(), ..SiteRow::default() };
        let text = "suspended by an operator: `stentor resume --site mx.one.example`";
        assert_eq!(site(&row, true, &AdviceFacts::default(), 5), text);
        assert_eq!(recipient(&view(Cause::Suspended), &known, 5), text);
        let known = AdviceFacts { reason: "they asked for it", ..known };
        let text = "suspended by an operator (they asked for it): `stentor resume --site mx.one.example`";
        assert_eq!([site(&row, true, &known, 5), recipient(&view(Cause::Suspended), &known, 5)], [text, text]);
    }

    #[test]
    fn commands_are_safe_to_paste() {
        let mut odd = view(Cause::MailboxFull);
        odd.address = "\"a';rm -rf /;'b\"@one.example".to_owned();
        let text = recipient(&odd, &AdviceFacts { oldest: Some(("1", 0)), ..AdviceFacts::default() }, DAY_MS);
        assert!(text.contains(r#"--recipient '"a'\'';rm -rf /;'\''b"@one.example'"#), "{text}");
    }

    #[test]
    fn sites_have_advice_of_their_own() {
        let causes =
            |cause: Cause| vec![CauseRow { cause: cause.name().to_owned(), recipients: 3, ..CauseRow::default() }];
        let mut row = SiteRow { site: "mx".to_owned(), causes: causes(Cause::TimedOut), ..SiteRow::default() };
        assert!(site(&row, false, &AdviceFacts::default(), 5).starts_with("host does not answer: wait"));
        let mut socket = SiteRow { causes: causes(Cause::Refused), ..SiteRow::default() };
        for (path, wanted) in [
            ("/run/stentor-deliver/mbox.sock", "is not running or lacks this service: start it, then `stentor flush "),
            (
                "/run/dovecot/lmtp",
                "the program behind the socket does not accept connections: start it, then `stentor flush ",
            ),
        ] {
            socket.site = format!("route:unix:{path}");
            let advice = site(&socket, false, &AdviceFacts::default(), 5);
            assert!(advice.contains(wanted), "{advice}");
        }
        assert_eq!(
            site(&row, true, &AdviceFacts::default(), 5),
            "suspended by an operator: `stentor resume --site mx`"
        );
        row.causes = causes(Cause::MailboxFull);
        assert!(site(&row, false, &AdviceFacts::default(), 5).contains("the site is healthy"));
        (row.causes, row.connections) = (causes(Cause::Sending), 2);
        assert_eq!(site(&row, false, &AdviceFacts::default(), 5), "is being delivered to");
        row.causes = causes(Cause::Reporting);
        assert_eq!(site(&row, false, &AdviceFacts::default(), 5), "has failed: bounces are being written");
    }
}
