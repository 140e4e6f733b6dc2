//! Maps a reply, or its absence, to a cause. The cause is decided where the reply is made, kept with it, and shown by
//! every view. It decides nothing that the scheduler does: that is up to [`super::verdict`].

use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;

use super::block_list::block_list;
use super::wording::{limits_rate, limits_session};
use crate::effects::{NoSession, RcptOutcome, Stage};

const REPLY_SERVICE_NOT_AVAILABLE: u16 = 421;
/// RFC 3463 section 3.3: the mailbox.
const SUBJECT_MAILBOX: u16 = 2;
const DETAIL_FULL: u16 = 2;

/// Cause when no session was established. `text` is the system's or ours.
pub fn of_no_session(why: NoSession, text: &str) -> Cause {
    match why {
        NoSession::Reply { .. } if block_list(text).is_some() => Cause::BlockListed,
        NoSession::Reply { code: REPLY_SERVICE_NOT_AVAILABLE, .. } => of_421(text),
        NoSession::Reply { .. } => Cause::Greeting,
        NoSession::Tls | NoSession::Unfit { .. } => Cause::Tls,
        NoSession::Auth => Cause::Auth,
        // A missing Unix socket refuses just as one at which nobody listens.
        NoSession::Unreachable if has(text, &["refused", "no such file"]) => Cause::Refused,
        NoSession::Unreachable => Cause::Unreachable,
        NoSession::Failed => of_loss(text),
    }
}

/// Cause of a 421 about which nothing else is known.
pub fn of_421(text: &str) -> Cause {
    if block_list(text).is_some() {
        Cause::BlockListed
    } else if limits_rate(text) && !limits_session(text) {
        Cause::Rate
    } else {
        Cause::Busy
    }
}

/// Cause when a connection was lost, or given up by us.
pub fn of_loss(text: &str) -> Cause {
    let is_late = has(text, &["timed out", "given up", "time-out", "timeout"]);
    // A connection that gave way had not been established yet.
    if has(text, &["connection timed out", "gave way"]) {
        Cause::TimedOut
    } else if is_late && has(text, &["waiting for the greeting"]) {
        Cause::NoGreeting
    } else if is_late {
        Cause::Silent
    } else if has(text, &["unreachable", "no route"]) {
        Cause::Unreachable
    } else {
        Cause::Lost
    }
}

/// Cause of an outcome that is not the recipient's last.
pub fn of_outcome(outcome: &RcptOutcome) -> Cause {
    let RcptOutcome { stage, code, dsn, ref text, .. } = *outcome;
    match stage {
        Stage::Connect | Stage::Lost | Stage::LostAfterDot => return of_loss(text),
        Stage::Unreadable | Stage::Content => return Cause::Unreadable,
        Stage::Signature => return Cause::Unsigned,
        Stage::Table => return Cause::Table,
        Stage::Tls => return Cause::Tls,
        _ if code == REPLY_SERVICE_NOT_AVAILABLE => return of_421(text),
        _ if block_list(text).is_some() => return Cause::BlockListed,
        Stage::Greeting => return Cause::Greeting,
        Stage::Mail | Stage::Rcpt | Stage::Data | Stage::Final => {}
    }
    if let Some(cause) = of_mailbox(dsn, text).filter(|_| stage != Stage::Mail) {
        return cause;
    }
    if limits_rate(text) && !limits_session(text) {
        return Cause::Rate;
    }
    if has(text, &["greylist", "graylist", "grey list", "gray list", "grey-list", "gray-list"]) {
        return Cause::Greylisted;
    }
    match stage {
        Stage::Mail => Cause::Sender,
        Stage::Rcpt => Cause::Recipient,
        _ => Cause::Message,
    }
}

/// Cause from an enhanced code about the mailbox, or else from the words that servers use for a full one.
fn of_mailbox(dsn: Option<Enhanced>, text: &str) -> Option<Cause> {
    match dsn {
        Some(Enhanced { subject: SUBJECT_MAILBOX, detail: DETAIL_FULL, .. }) => Some(Cause::MailboxFull),
        Some(Enhanced { subject: SUBJECT_MAILBOX, .. }) => Some(Cause::Mailbox),
        _ => has(text, &["over quota", "quota exceeded", "mailbox full", "mailbox is full", "over its quota"])
            .then_some(Cause::MailboxFull),
    }
}

fn has(text: &str, words: &[&str]) -> bool {
    let is_at = |word: &str| text.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word.as_bytes()));
    words.iter().any(|word| is_at(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_queue::ids::AddressId;

    #[test]
    fn the_cause_is_what_the_reply_is_about() {
        let d = |b, c| Some(Enhanced::new(4, b, c));
        let table = [
            (Stage::Mail, 451, d(7, 1), "IP reputation too low", Cause::Sender),
            (Stage::Mail, 450, d(7, 1), "rate limit exceeded", Cause::Rate),
            (Stage::Mail, 451, d(7, 1), "Greylisted", Cause::Greylisted),
            (Stage::Mail, 421, None, "too busy", Cause::Busy),
            (Stage::Mail, 421, None, "sending rate too high", Cause::Rate),
            (Stage::Rcpt, 450, d(7, 1), "Recipient address rejected: Greylisted, see", Cause::Greylisted),
            (Stage::Rcpt, 452, d(2, 2), "no room", Cause::MailboxFull),
            (Stage::Rcpt, 450, d(7, 1), "Client host [192.0.2.1] blocked using zen.spamhaus.org", Cause::BlockListed),
            (Stage::Mail, 421, d(7, 0), "listed by bl.spamcop.net, too many messages", Cause::BlockListed),
            (Stage::Greeting, 554, None, "192.0.2.1 is blacklisted", Cause::BlockListed),
            (Stage::Rcpt, 450, None, "user is over quota", Cause::MailboxFull),
            (Stage::Rcpt, 450, d(2, 1), "receiving mail too quickly", Cause::Mailbox),
            (Stage::Rcpt, 451, d(3, 0), "later", Cause::Recipient),
            (Stage::Data, 451, None, "later", Cause::Message),
            (Stage::Final, 452, d(2, 2), "full", Cause::MailboxFull),
            (Stage::Final, 451, d(3, 0), "later", Cause::Message),
            (Stage::Lost, 0, None, "Connection reset by peer", Cause::Lost),
            (Stage::LostAfterDot, 0, None, "no answer to the data: timed out", Cause::Silent),
            (Stage::Unreadable, 0, None, "stored content unreadable", Cause::Unreadable),
            (Stage::Signature, 0, None, "DKIM signature could not be made", Cause::Unsigned),
            (Stage::Table, 0, None, "table unavailable", Cause::Table),
            (Stage::Tls, 0, None, "list press demands verify: certificate expired", Cause::Tls),
        ];
        for (stage, code, dsn, text, cause) in table {
            let outcome = RcptOutcome { id: AddressId(1), stage, code, dsn, text: text.into() };
            assert_eq!(of_outcome(&outcome), cause, "{outcome:?}");
        }
        let reply = |code| NoSession::Reply { code, dsn: None };
        let table = [
            (NoSession::Unreachable, "Connection refused", Cause::Refused),
            (NoSession::Unreachable, "No such file or directory", Cause::Refused),
            (NoSession::Unreachable, "No route to host", Cause::Unreachable),
            (NoSession::Unreachable, "Network is unreachable", Cause::Unreachable),
            (NoSession::Failed, "Connection timed out", Cause::TimedOut),
            (NoSession::Failed, "timed out while waiting for the greeting", Cause::NoGreeting),
            (NoSession::Failed, "lost connection while waiting for the greeting", Cause::Lost),
            (NoSession::Failed, "timed out while sending EHLO", Cause::Silent),
            (NoSession::Failed, "given up while waiting for the greeting", Cause::NoGreeting),
            (NoSession::Failed, "gave way while connecting", Cause::TimedOut),
            (NoSession::Failed, "Connection reset by peer", Cause::Lost),
            (NoSession::Tls, "STARTTLS timed out", Cause::Tls),
            (NoSession::Unfit { dsn: Enhanced::new(5, 7, 30) }, "no REQUIRETLS", Cause::Tls),
            (NoSession::Auth, "AUTH refused: 535 no", Cause::Auth),
            (reply(421), "busy", Cause::Busy),
            (reply(554), "no", Cause::Greeting),
        ];
        for (why, text, cause) in table {
            assert_eq!(of_no_session(why, text), cause, "{text}");
        }
    }
}
