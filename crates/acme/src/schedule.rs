//! Decides when a certificate is ordered: pure, in seconds since 1970.
//!
//! A certificate is renewed when a third of its lifetime is left, or when its CA says (RFC 9773); slightly earlier by
//! an offset derived from its hash, so that many servers do not renew at once and a restart changes nothing. After a
//! failure the next attempt follows after minutes, then twice as long each time, up to a day; a pause demanded by the
//! CA (Retry-After) is respected.

use stentor_tls::Certificate;

use crate::record::Record;

const MINUTE_S: i64 = 60;
pub const DAY_S: i64 = 86_400;
/// Pause after the first failure.
pub const RETRY_MIN_S: i64 = 5 * MINUTE_S;
pub const RETRY_MAX_S: i64 = DAY_S;
/// Longest demanded pause that is respected.
pub const DEMANDED_MAX_S: i64 = 7 * DAY_S;
/// A reload retries at once, but not within this time of an attempt.
pub const HURRY_S: i64 = 10;
/// Times further ahead were written when the clock was wrong.
const AHEAD_MAX_S: i64 = 3_600;
/// Interval of warnings about one certificate.
const WARNING_S: i64 = DAY_S;

/// A certificate is renewed with this fraction (one third) of its lifetime left, and up to a thirtieth of the lifetime
/// earlier.
const LEFT: i64 = 3;
const SPREAD: i64 = 30;
/// The CA may suggest a later renewal, but at least this fraction (one sixth) must be left.
const LEFT_MIN: i64 = 6;

/// When a certificate is renewed, if nothing fails.
pub fn renewal(certificate: &Certificate, window: Option<(i64, i64)>) -> i64 {
    let life = (certificate.not_after - certificate.not_before).max(1);
    match window {
        Some((start, end)) => {
            (start + part(certificate, (end - start).max(0))).min(certificate.not_after - life / LEFT_MIN)
        }
        None => certificate.not_after - life / LEFT - part(certificate, life / SPREAD),
    }
}

/// A share of `whole` derived from the certificate's hash.
fn part(certificate: &Certificate, whole: i64) -> i64 {
    let [a, b, ..] = certificate.sha256;
    let share = i64::from(u16::from_be_bytes([a, b]));
    // Lifetimes are far below 2^40 s.
    whole.min(1 << 40) * share / i64::from(u16::MAX)
}

/// When the next attempt for these names is due; a past time means now.
pub fn due(record: &Record, certificate: Option<&Certificate>, names: &[String], directory: &str) -> i64 {
    let wanted = match certificate {
        Some(certificate) if is_same(record, names, directory) && names.iter().all(|name| certificate.is_for(name)) => {
            renewal(certificate, record.window)
        }
        _ => 0,
    };
    wanted.max(record.next_s.unwrap_or(0))
}

/// Discards times written by a clock that was ahead: they could put off renewal until after the certificate expires.
pub fn believed(record: Record, now: i64) -> Record {
    let is_ahead = |at: Option<i64>, max_s: i64| at.is_some_and(|at| at > now.saturating_add(max_s));
    if !is_ahead(record.tried_s, AHEAD_MAX_S)
        && !is_ahead(record.obtained_s, AHEAD_MAX_S)
        && !is_ahead(record.next_s, DEMANDED_MAX_S + AHEAD_MAX_S)
    {
        return record;
    }
    let past = |at: Option<i64>| at.filter(|at| *at <= now);
    Record {
        // Otherwise they would be found ahead again after a failed attempt.
        tried_s: past(record.tried_s),
        obtained_s: past(record.obtained_s),
        next_s: None,
        is_demanded: false,
        window: None,
        ask_s: record.ask_s.map(|_| now),
        ..record
    }
}

/// Whether the certificate in force was requested with the same names, from the same CA. Additional contents are the
/// CA's decision.
pub fn is_same(record: &Record, names: &[String], directory: &str) -> bool {
    record.names == names && record.directory == directory
}

/// Earliest renewal after `now`, whatever the dates of a new certificate and its CA say: a wrong clock, or a CA that
/// demands renewal at once, would otherwise cause one order after another.
pub fn rest(now: i64, certificate: &Certificate) -> i64 {
    now + ((certificate.not_after - certificate.not_before) / LEFT).clamp(1, DAY_S)
}

/// When the next attempt follows after this many failures in a row. `random` spreads it by a quarter.
pub fn retry(now: i64, failures: u32, demanded_s: Option<i64>, random: u16) -> i64 {
    let doubled = RETRY_MIN_S << failures.saturating_sub(1).min(16);
    let pause = doubled.min(RETRY_MAX_S);
    let spread = pause / 4 * i64::from(random) / i64::from(u16::MAX);
    // At most a day, and never shorter than the pause.
    let pause = (pause + spread).min(RETRY_MAX_S);
    now + pause.max(demanded_s.unwrap_or(0).min(DEMANDED_MAX_S))
}

/// Whether a repeated failure is due for a warning: one a day. The keeper logs a new reason at once.
pub fn is_warned(now: i64, record: &Record) -> bool {
    record.warned_s.is_none_or(|before| now - before >= WARNING_S || before > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(life_s: i64, sha256: [u8; 32]) -> Certificate {
        Certificate {
            names: vec!["a.example".into(), "b.example".into()],
            subject: "a".into(),
            issuer: "ca".into(),
            is_self_issued: false,
            not_before: 1_000_000,
            not_after: 1_000_000 + life_s,
            sha256,
            key_sha256: [0; 32],
        }
    }

    #[test]
    fn a_third_of_the_lifetime_is_left() {
        for days in [6, 45, 90, 398] {
            let life = days * DAY_S;
            for sha256 in [[0; 32], [0x55; 32], [0xff; 32]] {
                let certificate = certificate(life, sha256);
                let left = certificate.not_after - renewal(&certificate, None);
                assert!((life / 3..=life / 3 + life / 30).contains(&left), "{days}: {left}");
            }
        }
        assert_eq!(renewal(&certificate(90 * DAY_S, [0; 32]), None), 1_000_000 + 60 * DAY_S);
        // A certificate without a lifetime is renewed, and nothing overflows.
        assert!(renewal(&certificate(0, [0xff; 32]), None) <= 1_000_000);
        assert!(renewal(&certificate(i64::MAX / 2, [0xff; 32]), None) > 0);
    }

    #[test]
    fn the_ca_may_say_when() {
        let certificate = certificate(90 * DAY_S, [0x80; 32]);
        let start = certificate.not_before + 10 * DAY_S;
        let at = renewal(&certificate, Some((start, start + DAY_S)));
        assert!(at > start && at < start + DAY_S, "within the window");
        let late = certificate.not_after + DAY_S;
        assert_eq!(renewal(&certificate, Some((late, late))), certificate.not_after - 15 * DAY_S);
        // Revoked: the window is past.
        assert!(renewal(&certificate, Some((0, 0))) <= certificate.not_before);
    }

    #[test]
    fn what_was_obtained_otherwise_is_asked_for_at_once() {
        let certificate = certificate(90 * DAY_S, [0; 32]);
        let names = ["b.example".to_owned(), "a.example".to_owned()];
        let record = Record { directory: "https://ca/".to_owned(), names: names.to_vec(), ..Record::default() };
        let at = renewal(&certificate, None);
        assert_eq!(due(&record, Some(&certificate), &names, "https://ca/"), at);
        assert_eq!(due(&record, None, &names, "https://ca/"), 0);
        assert_eq!(due(&record, Some(&certificate), &names[..1], "https://ca/"), 0);
        assert_eq!(due(&record, Some(&certificate), &names, "https://other/"), 0);
        // A CA may add names; requested ones must be there.
        let one = Record { names: names[..1].to_vec(), ..record.clone() };
        assert_eq!(due(&one, Some(&certificate), &names[..1], "https://ca/"), at);
        let other = ["c.example".to_owned()];
        let missing = Record { names: other.to_vec(), ..record.clone() };
        assert_eq!(due(&missing, Some(&certificate), &other, "https://ca/"), 0);
        let failing = Record { next_s: Some(at + 7), ..record };
        assert_eq!(due(&failing, Some(&certificate), &names, "https://ca/"), at + 7);
        assert_eq!(due(&failing, None, &names, "https://ca/"), at + 7);
    }

    #[test]
    fn a_new_certificate_is_not_renewed_at_once() {
        // The clock is years ahead.
        let now = 2_000_000_000;
        for (life, least) in [(90 * DAY_S, DAY_S), (24, 8), (0, 1), (-5, 1)] {
            let certificate = certificate(life, [0; 32]);
            assert!(renewal(&certificate, None) < now);
            let next_s = rest(now, &certificate);
            assert_eq!(next_s, now + least);
            let names = vec!["a.example".to_owned()];
            let record =
                Record { next_s: Some(next_s), names: names.clone(), window: Some((0, 0)), ..Record::default() };
            assert_eq!(due(&record, Some(&certificate), &names, ""), next_s);
        }
    }

    #[test]
    fn a_clock_that_was_ahead_puts_nothing_off() {
        let now = 1_800_000_000;
        let year = 365 * DAY_S;
        let good = Record {
            tried_s: Some(now + 60),
            obtained_s: Some(now - DAY_S),
            next_s: Some(now + DEMANDED_MAX_S),
            is_demanded: true,
            window: Some((now + 5, now + 6)),
            ask_s: Some(now + DAY_S),
            ..Record::default()
        };
        assert_eq!(believed(good.clone(), now), good);
        let mended =
            Record { tried_s: None, next_s: None, is_demanded: false, window: None, ask_s: Some(now), ..good.clone() };
        let tried = Record { tried_s: Some(now + year), next_s: Some(now + year + 300), ..good.clone() };
        assert_eq!(believed(tried, now), mended);
        let obtained = Record { obtained_s: Some(now + year), next_s: Some(now + 5), ..good.clone() };
        assert_eq!(believed(obtained, now), Record { obtained_s: None, ..mended.clone() });
        let put_off = Record { tried_s: None, next_s: Some(now + year), ..good };
        assert_eq!(believed(put_off, now), mended);
        assert_eq!(believed(mended.clone(), now), mended, "once");
    }

    #[test]
    fn pauses_grow_to_a_day() {
        let pauses: Vec<i64> = (1..=12).map(|failures| retry(0, failures, None, 0)).collect();
        assert_eq!(pauses[..4], [300, 600, 1_200, 2_400]);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "{pauses:?}");
        assert_eq!(pauses[11], DAY_S);
        assert_eq!(retry(0, u32::MAX, None, u16::MAX), DAY_S);
        let spread = retry(0, 1, None, u16::MAX);
        assert!(spread > 300 && spread <= 375, "{spread}");
        // A demanded pause, within limits.
        assert_eq!(retry(5, 1, Some(3_600), 0), 3_605);
        assert_eq!(retry(0, 1, Some(1), 0), 300);
        assert_eq!(retry(0, 1, Some(i64::MAX), 0), DEMANDED_MAX_S);
        // A month of failures causes about one attempt a day, after the first.
        let (mut at, mut tries) = (0, 0);
        while at < 30 * DAY_S {
            tries += 1;
            at = retry(at, tries, None, 0);
        }
        assert!(tries < 45, "{tries}");
    }

    #[test]
    fn one_warning_a_day() {
        let mut record = Record::default();
        assert!(is_warned(100, &record));
        record.warned_s = Some(100);
        assert!(!is_warned(100 + DAY_S - 1, &record));
        assert!(is_warned(100 + DAY_S, &record));
        // The clock was set back.
        assert!(is_warned(50, &record));
    }
}
