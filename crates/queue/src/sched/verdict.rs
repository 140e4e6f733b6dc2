//! What a reply means: the table of design idea 2 as one pure function.
//!
//! Failures belong to what failed. A reply that is about the host must not hold the mailbox, a reply about the mailbox
//! must not hold the site, and no 4xx or lost connection ever bounces: only 5xx to MAIL, RCPT, DATA or the data, and our
//! own judgement that a content cannot be sent there.

use super::effects::{RcptOutcome, Stage};

/// What an outcome changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Delivered,
    /// 5xx: this recipient fails now.
    Fail,
    /// No session, banner refused, 421: the host's clock; the recipient goes back at once, for another host.
    Host,
    /// 4xx at MAIL: the site for this sender's domain.
    Sender,
    /// 4.2.x at RCPT: the mailbox, for all messages.
    Mailbox,
    /// Another 4xx at RCPT: this message and recipient.
    Recipient,
    /// A rate reply: back at once, and the site gets less at a time.
    Rate,
    /// 452 4.5.3: too many recipients in one transaction; back at once, the limit is learned.
    TooMany,
    /// 4xx to DATA or to the data: this message at this site.
    Message,
    /// Lost before the end of the data: back at once, the site is suspect.
    Lost,
    /// Lost after it: perhaps delivered; retried behind the message's clock.
    LostAfterDot,
}

const REPLY_SERVICE_NOT_AVAILABLE: u16 = 421;
const REPLY_TOO_MANY: u16 = 452;
/// RFC 821 servers say 552 where 452 is meant (RFC 5321 4.5.3.1.10: treat as 452).
const REPLY_TOO_MANY_OLD: u16 = 552;

pub(super) fn classify(outcome: &RcptOutcome) -> Verdict {
    match outcome.stage {
        Stage::Connect | Stage::Greeting => return Verdict::Host,
        Stage::Lost => return Verdict::Lost,
        Stage::LostAfterDot => return Verdict::LostAfterDot,
        Stage::Content => return Verdict::Fail,
        Stage::Mail | Stage::Rcpt | Stage::Data | Stage::Final => {}
    }
    if outcome.stage == Stage::Rcpt && says_too_many(outcome) {
        return Verdict::TooMany;
    }
    if (400..=499).contains(&outcome.code)
        && outcome.code != REPLY_SERVICE_NOT_AVAILABLE
        && outcome.dsn.is_none_or(|dsn| dsn.subject != 2)
        && says_rate(&outcome.text)
    {
        return Verdict::Rate;
    }
    match (outcome.code, outcome.stage) {
        (200..=299, Stage::Final) => Verdict::Delivered,
        (REPLY_SERVICE_NOT_AVAILABLE, _) => Verdict::Host,
        (400..=499, Stage::Mail) => Verdict::Sender,
        (400..=499, Stage::Rcpt) if outcome.dsn.is_some_and(|d| d.subject == 2) => Verdict::Mailbox,
        (400..=499, Stage::Rcpt) => Verdict::Recipient,
        // LMTP answers for one recipient after the data.
        (400..=499, Stage::Final) if outcome.dsn.is_some_and(|d| d.subject == 2) => Verdict::Mailbox,
        (500..=599, _) => Verdict::Fail,
        // 4xx to DATA or the data; or a code without a meaning here (1xx, 3xx, 2xx before the data): a protocol error
        // and not a reason for a bounce.
        _ => Verdict::Message,
    }
}

/// The code that a reply's text begins with; 0 if it does not.
pub(super) fn code_of(text: &str) -> u16 {
    text.get(..3).and_then(|code| code.parse().ok()).filter(|code| (200..600).contains(code)).unwrap_or(0)
}

fn says_too_many(outcome: &RcptOutcome) -> bool {
    if !matches!(outcome.code, REPLY_TOO_MANY | REPLY_TOO_MANY_OLD) {
        return false;
    }
    outcome.dsn.map_or_else(|| mentions_recipients(&outcome.text), |d| d.subject == 5 && d.detail == 3)
}

/// Whether a reply complains about how much we send at a time. There is no code of its own for it: these are the words
/// that large receivers use.
pub(super) fn says_rate(text: &str) -> bool {
    const WORDS: [&str; 10] = [
        "rate limit",
        "rate-limit",
        "ratelimit",
        "sending rate",
        "rate of ",
        "throttl",
        "too many messages",
        "too many mails",
        "too quickly",
        "too fast",
    ];
    let has = |word: &str| text.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word.as_bytes()));
    WORDS.into_iter().any(has)
}

fn mentions_recipients(text: &str) -> bool {
    const WORD: &[u8] = b"many recipients";
    text.as_bytes().windows(WORD.len()).any(|w| w.eq_ignore_ascii_case(WORD))
}

#[cfg(test)]
mod tests {
    use super::super::effects::Dsn;
    use super::*;
    use crate::ids::AddressId;

    #[test]
    fn each_reply_hangs_on_what_failed() {
        let d = |a, b, c| Some(Dsn::new(a, b, c));
        let table = [
            (Stage::Connect, 0, None, "refused", Verdict::Host),
            (Stage::Greeting, 554, d(5, 7, 1), "go away", Verdict::Host),
            (Stage::Greeting, 421, None, "busy", Verdict::Host),
            (Stage::Mail, 250, None, "ok", Verdict::Message),
            (Stage::Mail, 421, None, "bye", Verdict::Host),
            (Stage::Mail, 451, d(4, 2, 2), "later", Verdict::Sender),
            (Stage::Mail, 550, d(5, 7, 1), "no", Verdict::Fail),
            (Stage::Mail, 450, d(4, 7, 1), "Rate limited, slow down", Verdict::Rate),
            (Stage::Rcpt, 450, None, "too many messages", Verdict::Rate),
            (Stage::Rcpt, 450, d(4, 2, 1), "receiving mail too quickly", Verdict::Mailbox),
            (Stage::Final, 451, d(4, 7, 0), "throttled", Verdict::Rate),
            (Stage::Mail, 421, d(4, 7, 28), "unusual rate of mail", Verdict::Host),
            (Stage::Rcpt, 450, d(4, 2, 2), "full", Verdict::Mailbox),
            (Stage::Rcpt, 452, d(4, 2, 2), "full", Verdict::Mailbox),
            (Stage::Rcpt, 452, d(4, 5, 3), "enough", Verdict::TooMany),
            (Stage::Rcpt, 452, None, "Too many recipients", Verdict::TooMany),
            (Stage::Rcpt, 452, None, "insufficient storage", Verdict::Recipient),
            (Stage::Rcpt, 552, d(5, 5, 3), "enough", Verdict::TooMany),
            (Stage::Rcpt, 552, d(5, 2, 2), "full for good", Verdict::Fail),
            (Stage::Rcpt, 552, None, "mailbox full", Verdict::Fail),
            (Stage::Rcpt, 451, d(4, 7, 1), "greylisted", Verdict::Recipient),
            (Stage::Rcpt, 450, None, "greylisted", Verdict::Recipient),
            (Stage::Rcpt, 421, d(4, 7, 0), "rate", Verdict::Host),
            (Stage::Rcpt, 550, d(5, 1, 1), "unknown", Verdict::Fail),
            (Stage::Data, 451, None, "later", Verdict::Message),
            (Stage::Data, 554, None, "no valid recipients", Verdict::Fail),
            (Stage::Final, 250, None, "ok", Verdict::Delivered),
            (Stage::Final, 251, None, "ok", Verdict::Delivered),
            (Stage::Final, 354, None, "what", Verdict::Message),
            (Stage::Final, 421, None, "bye", Verdict::Host),
            (Stage::Final, 451, d(4, 3, 0), "later", Verdict::Message),
            (Stage::Final, 452, d(4, 2, 2), "LMTP full", Verdict::Mailbox),
            (Stage::Final, 554, d(5, 7, 1), "spam", Verdict::Fail),
            (Stage::Lost, 0, None, "reset", Verdict::Lost),
            (Stage::LostAfterDot, 0, None, "reset", Verdict::LostAfterDot),
            (Stage::Content, 0, d(5, 6, 7), "no SMTPUTF8", Verdict::Fail),
        ];
        for (stage, code, dsn, text, verdict) in table {
            let outcome = RcptOutcome { id: AddressId(1), stage, code, dsn, text: text.into() };
            assert_eq!(classify(&outcome), verdict, "{outcome:?}");
        }
    }
}
