//! The meaning of a reply, decided in one place for scheduler, history, log, counters, telemetry and reports.
//!
//! A failure defers only the thing that failed: a reply about the host does not defer the mailbox, a reply about the
//! mailbox does not defer the site. No 4xx and no lost connection ever bounces. Only 5xx to MAIL, RCPT, DATA or the
//! data does, and our own judgement that the content cannot be sent there.

use stentor_mail::reply::Enhanced;

use super::wording::{limits_rate, limits_recipients, limits_session};
use crate::effects::{RcptOutcome, SessionSoFar, Stage};

/// The consequence class of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Delivered,
    /// 5xx for this mailbox: the recipient fails now.
    Refused,
    /// 5xx for the sender, the message or the whole transaction: the recipient fails now.
    Fail,
    /// No session, banner refused, or 421: the host gets a clock; the recipient goes back at once, for another host.
    Host,
    /// 4xx at MAIL: a clock for this host and the sender's domain; the next host is asked.
    Sender,
    /// 4.2.x at RCPT: a clock for the mailbox, for all messages.
    Mailbox,
    /// Another 4xx at RCPT: a clock for this message and recipient.
    Recipient,
    /// A rate reply: the recipient goes back at once, and the site gets fewer messages at a time.
    Rate,
    /// 452 4.5.3, too many recipients in one transaction: back at once, and the limit is learned.
    TooMany,
    /// 421 or another 4xx that limits the session: back at once for another session, and the limit is learned.
    SessionLimit,
    /// 4xx to DATA or to the data: a clock for this message at this site.
    Message,
    /// Lost before the end of the data: back at once, and the site is suspect.
    Lost,
    /// Lost after the end of the data: perhaps delivered; retried after the message's clock.
    LostAfterDot,
    /// Our copy of the content cannot be read now, one of our tables cannot be queried, or the session does not protect
    /// the message as required: a clock for the message. No host is to blame.
    Unreadable,
}

/// The subject under which the history records an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistorySubject {
    /// The mailbox has answered.
    Mailbox,
    /// The hosts failed to act as hosts.
    Hosts,
    /// Neither: the cause is the message, our sending rate, or we.
    Nothing,
}

impl Verdict {
    /// Whether the recipient has its fate: this was its last attempt.
    pub fn is_final(self) -> bool {
        matches!(self, Verdict::Delivered | Verdict::Refused | Verdict::Fail)
    }

    /// Whether the recipient fails for good.
    pub fn is_failure(self) -> bool {
        matches!(self, Verdict::Refused | Verdict::Fail)
    }

    pub fn about(self) -> HistorySubject {
        match self {
            Verdict::Delivered | Verdict::Refused | Verdict::Mailbox | Verdict::Recipient => HistorySubject::Mailbox,
            Verdict::Host | Verdict::Sender | Verdict::Message | Verdict::Lost | Verdict::LostAfterDot => {
                HistorySubject::Hosts
            }
            Verdict::Fail | Verdict::Rate | Verdict::TooMany | Verdict::SessionLimit | Verdict::Unreadable => {
                HistorySubject::Nothing
            }
        }
    }

    /// The enhanced code to report. Its class says what becomes of the recipient, even if the host's code has another
    /// (552 5.5.3 is tried again: RFC 5321 section 4.5.3.1.10).
    pub fn dsn(self, said: Option<Enhanced>) -> Enhanced {
        let class = match self {
            Verdict::Delivered => 2,
            Verdict::Refused | Verdict::Fail => 5,
            _ => 4,
        };
        said.map_or(Enhanced::new(class, 0, 0), |dsn| Enhanced { class, ..dsn })
    }
}

/// Judges the outcomes of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// Whether some recipient got a reply other than "too many recipients".
    some_taken: bool,
    /// Whether a reply after the data belongs to one recipient: with LMTP (RFC 2033 section 4.2), or if there is only
    /// one.
    replies_are_own: bool,
    /// Whether the session delivered something before this transaction.
    is_after_delivery: bool,
}

const REPLY_SERVICE_NOT_AVAILABLE: u16 = 421;
const REPLY_TOO_MANY: u16 = 452;
/// RFC 821 servers say 552 where 452 is meant (RFC 5321 4.5.3.1.10: treat as 452).
const REPLY_TOO_MANY_OLD: u16 = 552;
/// Subjects of enhanced codes (RFC 3463 section 3): the address, the mailbox.
const SUBJECT_ADDRESS: u16 = 1;
const SUBJECT_MAILBOX: u16 = 2;

impl Judge {
    pub fn of(outcomes: &[RcptOutcome], session: SessionSoFar) -> Judge {
        let is_taken = |outcome: &RcptOutcome| {
            !says_too_many(outcome) && outcome.code != REPLY_SERVICE_NOT_AVAILABLE && outcome.stage != Stage::Lost
        };
        Judge {
            some_taken: outcomes.iter().any(is_taken),
            replies_are_own: session.is_lmtp || outcomes.len() == 1,
            is_after_delivery: session.has_delivered,
        }
    }

    pub fn verdict(&self, outcome: &RcptOutcome) -> Verdict {
        match outcome.stage {
            Stage::Connect | Stage::Greeting => return Verdict::Host,
            Stage::Lost => return Verdict::Lost,
            Stage::LostAfterDot => return Verdict::LostAfterDot,
            Stage::Content => return Verdict::Fail,
            Stage::Unreadable | Stage::Signature | Stage::Table | Stage::Tls => return Verdict::Unreadable,
            Stage::Final if outcome.is_delivered() => return Verdict::Delivered,
            Stage::Mail | Stage::Rcpt | Stage::Data | Stage::Final => {}
        }
        if self.ends_session(outcome) {
            return Verdict::SessionLimit;
        }
        if says_too_many(outcome) && (outcome.code == REPLY_TOO_MANY_OLD || !limits_rate(&outcome.text)) {
            // Refused although it was alone: the number of recipients cannot be the reason.
            return if self.some_taken { Verdict::TooMany } else { Verdict::Recipient };
        }
        let is_about = |subject| outcome.dsn.is_some_and(|dsn| dsn.subject == subject);
        let is_temporary = (400..500).contains(&outcome.code) && outcome.code != REPLY_SERVICE_NOT_AVAILABLE;
        if is_temporary && !is_about(SUBJECT_MAILBOX) && limits_rate(&outcome.text) {
            return Verdict::Rate;
        }
        let is_own = outcome.stage == Stage::Rcpt || outcome.stage == Stage::Final && self.replies_are_own;
        match (outcome.code, outcome.stage) {
            (REPLY_SERVICE_NOT_AVAILABLE, _) => Verdict::Host,
            (400..500, Stage::Mail) => Verdict::Sender,
            (400..500, _) if is_own && is_about(SUBJECT_MAILBOX) => Verdict::Mailbox,
            (400..500, Stage::Rcpt) => Verdict::Recipient,
            (500..600, Stage::Rcpt) => Verdict::Refused,
            (500..600, _) if is_own && (is_about(SUBJECT_ADDRESS) || is_about(SUBJECT_MAILBOX)) => Verdict::Refused,
            (500..600, _) => Verdict::Fail,
            // 4xx to DATA or the data; or a code without a meaning here (1xx, 3xx, 2xx before the data): a protocol
            // error and not a reason for a bounce.
            _ => Verdict::Message,
        }
    }

    /// Whether the reply is a limit of the session, whichever code it has. Only a session that has delivered something
    /// is believed: each new connection that it costs has then been paid for with a delivery.
    fn ends_session(self, outcome: &RcptOutcome) -> bool {
        let RcptOutcome { stage, code, dsn, .. } = *outcome;
        if !self.is_after_delivery || !(400..500).contains(&code) && !says_too_many(outcome) {
            return false;
        }
        let is_about_mailbox = dsn.is_some_and(|dsn| dsn.subject == SUBJECT_MAILBOX);
        if limits_session(&outcome.text) && (!is_about_mailbox || code == REPLY_SERVICE_NOT_AVAILABLE) {
            return true;
        }
        // 4.5.3 is "too many recipients", which cannot be meant at MAIL or for the first recipient of a transaction.
        let is_too_many = dsn.is_some_and(is_too_many);
        (stage == Stage::Mail && is_too_many || says_too_many(outcome) && !self.some_taken)
            && !limits_rate(&outcome.text)
    }
}

fn says_too_many(outcome: &RcptOutcome) -> bool {
    if outcome.stage != Stage::Rcpt || !matches!(outcome.code, REPLY_TOO_MANY | REPLY_TOO_MANY_OLD) {
        return false;
    }
    outcome.dsn.map_or_else(|| limits_recipients(&outcome.text), is_too_many)
}

/// Whether the code is X.5.3 (RFC 3463 section 3.6).
fn is_too_many(dsn: Enhanced) -> bool {
    dsn.subject == 5 && dsn.detail == 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_mail::reply::Enhanced;
    use stentor_queue::ids::AddressId;

    const FIRST: SessionSoFar = SessionSoFar { is_lmtp: false, has_delivered: false };
    const FIRST_LMTP: SessionSoFar = SessionSoFar { is_lmtp: true, has_delivered: false };

    /// Words about a session limit are believed only if the session has delivered something.
    #[test]
    fn a_limit_of_the_session_is_believed_after_a_delivery() {
        let d = |b, c| Some(Enhanced::new(4, b, c));
        let table = [
            (Stage::Mail, 421, None, "too many messages in this connection", Verdict::SessionLimit, Verdict::Host),
            (Stage::Mail, 421, d(7, 0), "please reconnect", Verdict::SessionLimit, Verdict::Host),
            (Stage::Mail, 450, None, "too many messages in this session", Verdict::SessionLimit, Verdict::Rate),
            (
                Stage::Mail,
                451,
                d(7, 1),
                "Maximum number of messages per session",
                Verdict::SessionLimit,
                Verdict::Sender,
            ),
            (Stage::Mail, 452, d(5, 3), "enough", Verdict::SessionLimit, Verdict::Sender),
            (Stage::Mail, 452, None, "too many transactions", Verdict::SessionLimit, Verdict::Sender),
            (Stage::Rcpt, 452, d(5, 3), "too many recipients per session", Verdict::SessionLimit, Verdict::Recipient),
            (Stage::Rcpt, 452, d(5, 3), "Too many recipients", Verdict::SessionLimit, Verdict::Recipient),
            (Stage::Rcpt, 552, None, "Too many recipients", Verdict::SessionLimit, Verdict::Recipient),
            (Stage::Rcpt, 450, d(7, 1), "message limit of this session", Verdict::SessionLimit, Verdict::Recipient),
            (Stage::Data, 451, None, "Too many messages per connection", Verdict::SessionLimit, Verdict::Rate),
            (Stage::Final, 452, d(3, 1), "session message limit reached", Verdict::SessionLimit, Verdict::Message),
            (Stage::Mail, 421, None, "busy", Verdict::Host, Verdict::Host),
            (Stage::Mail, 421, None, "too many connections from your address", Verdict::Host, Verdict::Host),
            (Stage::Mail, 450, None, "too many messages in one hour", Verdict::Rate, Verdict::Rate),
            (Stage::Rcpt, 452, d(5, 3), "too many recipients this hour", Verdict::Rate, Verdict::Rate),
            (Stage::Rcpt, 452, d(2, 2), "message limit of this session", Verdict::Mailbox, Verdict::Mailbox),
            (Stage::Mail, 550, d(7, 1), "too many messages in this session", Verdict::Fail, Verdict::Fail),
        ];
        for (stage, code, dsn, text, after, at_first) in table {
            let outcome = RcptOutcome { id: AddressId(1), stage, code, dsn, text: text.into() };
            let all = std::slice::from_ref(&outcome);
            assert_eq!(
                Judge::of(all, SessionSoFar { has_delivered: true, ..FIRST }).verdict(&outcome),
                after,
                "{text}"
            );
            assert_eq!(Judge::of(all, FIRST).verdict(&outcome), at_first, "{text}");
        }
    }

    #[test]
    fn each_reply_hangs_on_what_failed() {
        let d = |a, b, c| Some(Enhanced::new(a, b, c));
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
            (Stage::Rcpt, 552, d(5, 2, 2), "full for good", Verdict::Refused),
            (Stage::Rcpt, 552, None, "mailbox full", Verdict::Refused),
            (Stage::Rcpt, 451, d(4, 7, 1), "greylisted", Verdict::Recipient),
            (Stage::Rcpt, 450, None, "greylisted", Verdict::Recipient),
            (Stage::Rcpt, 421, d(4, 7, 0), "rate", Verdict::Host),
            (Stage::Rcpt, 550, d(5, 1, 1), "unknown", Verdict::Refused),
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
            (Stage::Unreadable, 0, d(4, 3, 0), "stored content unreadable", Verdict::Unreadable),
            (Stage::Signature, 0, d(4, 3, 0), "DKIM signature could not be made", Verdict::Unreadable),
            (Stage::Table, 0, d(4, 3, 0), "table unavailable", Verdict::Unreadable),
            (Stage::Tls, 0, d(4, 7, 5), "certificate expired", Verdict::Unreadable),
        ];
        let mailbox = Some(Enhanced::new(4, 2, 2));
        let one = |stage, code, dsn, text: &str| RcptOutcome { id: AddressId(1), stage, code, dsn, text: text.into() };
        for (stage, code, dsn, text, verdict) in table {
            let outcome = one(stage, code, dsn, text);
            // Beside a recipient that was accepted, and with one reply each, as in LMTP.
            let both = [outcome.clone(), one(Stage::Rcpt, 450, None, "")];
            assert_eq!(Judge::of(&both, FIRST_LMTP).verdict(&outcome), verdict, "{outcome:?}");
        }
        let alone = one(Stage::Rcpt, 452, d(4, 5, 3), "enough");
        assert_eq!(
            Judge::of(std::slice::from_ref(&alone), FIRST).verdict(&alone),
            Verdict::Recipient,
            "not about how many they are"
        );
        let both = [alone.clone(), alone.clone()];
        assert_eq!(Judge::of(&both, FIRST).verdict(&alone), Verdict::Recipient);
        let full = one(Stage::Final, 452, mailbox, "full");
        let all = [full.clone(), full.clone()];
        assert_eq!(Judge::of(&all, FIRST).verdict(&full), Verdict::Message, "SMTP has one reply for all");
        assert_eq!(Judge::of(&all, FIRST_LMTP).verdict(&full), Verdict::Mailbox);
        assert_eq!(Judge::of(&all[..1], FIRST).verdict(&full), Verdict::Mailbox);
        let gone = one(Stage::Final, 550, d(5, 1, 1), "no such user");
        assert_eq!(Judge::of(std::slice::from_ref(&gone), FIRST_LMTP).verdict(&gone), Verdict::Refused);
    }

    #[test]
    fn the_class_of_a_code_is_what_becomes_of_the_recipient() {
        let said = Some(Enhanced::new(5, 5, 3));
        assert_eq!(Verdict::TooMany.dsn(said), Enhanced::new(4, 5, 3));
        assert_eq!(Verdict::Fail.dsn(Some(Enhanced::new(4, 7, 1))), Enhanced::new(5, 7, 1));
        assert_eq!(
            [Verdict::Delivered, Verdict::Lost].map(|v| v.dsn(None)),
            [Enhanced::new(2, 0, 0), Enhanced::new(4, 0, 0)]
        );
    }
}
