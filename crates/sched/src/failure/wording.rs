//! Finds out from a refusal's words which limit was reached. Neither SMTP nor RFC 3463 has a code that distinguishes a
//! limit per session from a limit over time, and hosts use 421, 450, 451 and 452 for both.
//!
//! | text | meaning | remedy |
//! |---|---|---|
//! | "too many messages in this connection", "please reconnect" | a limit of the session | another connection, at once |
//! | "too many messages in one hour", "rate limit" | a limit over time | fewer messages at a time |
//! | "too many connections" | a limit of connections | fewer connections |
//!
//! Words are compared without regard to case or punctuation. The judge (`verdict`) decides whether to believe a limit
//! of the session: only if the session has delivered something.

use smallvec::SmallVec;

/// Words for a session, in the singular: the plural would be a limit of connections.
const SESSION: [&str; 4] = ["session", "connection", "conn", "conversation"];
/// Words before one of `SESSION` if each session has the limit.
const OF_EACH: [&str; 17] = [
    "per", "this", "the", "a", "an", "one", "1", "each", "every", "single", "same", "current", "in", "on", "within",
    "smtp", "tcp",
];
/// Words for the things that are counted in a session.
const COUNTED: [&str; 18] = [
    "message",
    "messages",
    "mail",
    "mails",
    "email",
    "emails",
    "transaction",
    "transactions",
    "envelope",
    "envelopes",
    "recipient",
    "recipients",
    "rcpt",
    "rcpts",
    "delivery",
    "deliveries",
    "command",
    "commands",
];
const LIMIT: [&str; 14] = [
    "many",
    "much",
    "max",
    "maximum",
    "limit",
    "limits",
    "limited",
    "exceed",
    "exceeds",
    "exceeded",
    "exceeding",
    "reached",
    "quota",
    "enough",
];
/// Spans of time in which a host counts.
const SPAN: [&str; 12] =
    ["second", "sec", "seconds", "minute", "min", "minutes", "hour", "hours", "day", "days", "week", "month"];
/// Words before such a span; before a time to wait, hosts write "in" or "after".
const OF_SPAN: [&str; 9] = ["per", "a", "an", "one", "each", "every", "last", "past", "this"];
const PER_SPAN: [&str; 6] = ["hourly", "daily", "phour", "minutely", "24h", "1h"];
/// Words about concurrency, rates, times and sizes.
const OTHER_LIMITS: [&str; 18] = [
    "concurrent",
    "concurrently",
    "simultaneous",
    "simultaneously",
    "parallel",
    "rate",
    "ratelimit",
    "throttled",
    "throttling",
    "quickly",
    "fast",
    "slow",
    "time",
    "timed",
    "timeout",
    "size",
    "bytes",
    "large",
];
const ANEW: [&str; 4] = ["reconnect", "reconnection", "new", "another"];
/// Words that ask us to wait: then we must not reconnect at once.
const WAIT: [&str; 8] = ["later", "wait", "not", "don", "before", "tomorrow", "blocked", "hours"];
/// Phrases that large receivers use for a rate.
const RATE: [&str; 11] = [
    "rate limit",
    "rate-limit",
    "ratelimit",
    "sending rate",
    "rate of ",
    "throttl",
    "too many messages",
    "too many mails",
    "too much mail",
    "too quickly",
    "too fast",
];

/// A text's words, in lower case.
struct Words<'t>(SmallVec<[&'t str; 32]>);

/// Words of a text that are looked at.
const WORDS_MAX: usize = 128;

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Words<'t> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        Words(words.take(WORDS_MAX).collect())
    }

    fn has(&self, any: &[&str]) -> bool {
        self.0.iter().any(|word| is_one_of(word, any))
    }

    /// Whether one of `any` directly follows one of `before`.
    fn has_behind(&self, before: &[&str], any: &[&str]) -> bool {
        self.0.windows(2).any(|pair| is_one_of(pair[0], before) && is_one_of(pair[1], any))
    }

    /// Whether the text counts within a span of time.
    fn has_span(&self) -> bool {
        let of_several = |three: &[&str]| {
            is_one_of(three[0], &OF_SPAN) && three[1].bytes().all(|c| c.is_ascii_digit()) && is_one_of(three[2], &SPAN)
        };
        self.has(&PER_SPAN) || self.has_behind(&OF_SPAN, &SPAN) || self.0.windows(3).any(of_several)
    }
}

fn is_one_of(word: &str, any: &[&str]) -> bool {
    any.iter().any(|one| one.eq_ignore_ascii_case(word))
}

/// Whether a reply says that this session has reached its limit, so that a new one may continue at once.
pub fn limits_session(text: &str) -> bool {
    let words = Words::of(text);
    if words.has_span() {
        return false;
    }
    let is_counted = words.has(&COUNTED);
    if is_counted && words.has_behind(&OF_EACH, &SESSION) && words.has(&LIMIT) {
        return true;
    }
    if words.has(&OTHER_LIMITS) || words.has(&["connections", "sessions"]) {
        return false;
    }
    // "session limit", "messages/session"; a transaction always belongs to one session.
    let is_of_session = is_counted && words.has(&SESSION) || words.has(&["transaction", "transactions"]);
    if is_of_session && words.has(&LIMIT) {
        return true;
    }
    let begins_anew = words.has(&ANEW[..2]) || words.has_behind(&ANEW[2..], &SESSION);
    begins_anew && !words.has(&WAIT) && !words.has(&SPAN)
}

/// Whether the reply may mean either the session or a rate: just "too many messages". The next session shows which.
pub fn may_limit_session(text: &str) -> bool {
    let words = Words::of(text);
    let is_counted = words.has_behind(&["many"], &["message", "messages", "mail", "mails", "emails"]);
    let is_other =
        words.has(&OTHER_LIMITS) || words.has(&["from", "by", "connections", "sessions"]) || words.has(&SPAN);
    is_counted && !is_other && !words.has_span()
}

/// Whether a reply complains about how much we send within a period.
pub fn limits_rate(text: &str) -> bool {
    let has = |phrase: &&str| text.as_bytes().windows(phrase.len()).any(|w| w.eq_ignore_ascii_case(phrase.as_bytes()));
    if RATE.iter().any(has) {
        return true;
    }
    let words = Words::of(text);
    words.has(&COUNTED) && words.has(&LIMIT) && words.has_span()
}

/// Whether a reply at RCPT says that a transaction has too many recipients.
pub fn limits_recipients(text: &str) -> bool {
    Words::of(text).has_behind(&["many"], &["recipients", "rcpts", "rcpt"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_session_is_told_from_others() {
        for text in [
            "too many messages in this connection",
            "Too many messages in this session",
            "Too many messages on this connection",
            "Too many messages for this session",
            "Maximum number of messages per session exceeded",
            "Max message per connection reached, closing transmission channel",
            "4.7.1 Maximum messages per connection exceeded",
            "4.5.3 Too many recipients in this session",
            "Too many recipients per connection",
            "you have exceeded the maximum number of messages per SMTP session",
            "only 10 messages allowed per connection: limit reached",
            "Too many transactions",
            "transaction limit reached, please reconnect",
            "Rate limit: at most 20 messages per connection",
            "too many mails in one session, retry in 5 minutes",
            "message limit (100) exceeded for the current session",
            "Please reconnect",
            "closing, start another session",
            "enough; open a new connection to go on",
            "Too many MAIL commands in a single session",
            "session message limit",
        ] {
            assert!(limits_session(text), "{text}");
            assert!(limits_session(&text.to_uppercase()), "{text}");
        }
        for text in [
            "",
            "busy",
            "closing transmission channel",
            "Too many connections from your host",
            "too many concurrent SMTP connections; please try again later",
            "The maximum number of concurrent server connections has exceeded a limit",
            "Too many sessions from your address",
            "connection limit exceeded",
            "too many messages in one hour",
            "Too many messages from this connection's address in the last hour",
            "Too many messages per connection per minute",
            "too many recipients received this hour",
            "daily message limit of this session's user exceeded",
            "too much mail from 192.0.2.1",
            "Message submission rate for this client has exceeded the configured limit",
            "Maximum sending rate exceeded",
            "too many messages",
            "mailbox full: message limit exceeded",
            "message size exceeds fixed limit",
            "lost connection while sending the message",
            "please wait 10 minutes, then reconnect",
            "do not reconnect",
            "reconnect later",
            "your connection is too fast: too many messages",
        ] {
            assert!(!limits_session(text), "{text}");
        }
    }

    #[test]
    fn a_rate_is_told_from_a_time_to_wait() {
        for text in [
            "Rate limited, slow down",
            "too many messages in one hour",
            "Too many recipients received this hour",
            "at most 100 messages per 10 minutes: limit exceeded",
            "daily message quota exceeded",
            "450 4.7.1 Error: too much mail from 192.0.2.1",
            "Throttling failure: Maximum sending rate exceeded",
            "message limit per minute reached",
        ] {
            assert!(limits_rate(text), "{text}");
        }
        for text in
            ["try again in 5 minutes", "greylisted for 300 seconds", "mailbox full", "too many recipients", "later"]
        {
            assert!(!limits_rate(text), "{text}");
        }
        assert!(may_limit_session("421 4.7.0 Too many messages") && may_limit_session("too many mails, closing"));
        for text in [
            "too many messages from your IP",
            "too many messages, slow down",
            "too many messages in 1 hour",
            "too many",
        ] {
            assert!(!may_limit_session(text), "{text}");
        }
    }

    /// Texts of any length, which a host may send, are read in bounded time.
    #[test]
    fn texts_of_any_length_are_read_in_bounded_time() {
        let long = "too many a ".repeat(100_000);
        assert!(!limits_session(&long) && !may_limit_session(&long));
        assert!(limits_recipients("Too many recipients") && !limits_recipients("many valid recipients"));
    }
}
