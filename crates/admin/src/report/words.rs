//! A report in one line, and in a few for mail or the terminal.

use stentor_control::causes;
pub use stentor_control::format::duration as time;
use stentor_control::format::plural;
use stentor_control::{PostReport, WaitingAt};
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;
use stentor_records::rates::clock;

/// A tail is reported separately if it took this many times as long as nearly all others.
const TAIL_TIMES: u64 = 4;
const REASON_CHARS_MAX: usize = 120;

/// The report in one line, such as "99.2 % delivered in 1.8 s, 14 waiting at example.net (connection refused, next try
/// 10:42 UTC), 3 failed". `why`: what the rest waits for, if nothing else is known.
pub(super) fn of(r: &PostReport, why: &str, zone: &Zone) -> String {
    let mut parts = vec![delivered(r)];
    if r.pending > 0 {
        parts.push(match r.waiting.as_slice() {
            [] if why.is_empty() => format!("{} waiting", r.pending),
            [] => format!("{} waiting ({})", r.pending, printable(why, REASON_CHARS_MAX)),
            [first, ..] => match r.pending.saturating_sub(first.recipients) {
                0 => at(first, zone),
                more => format!("{}, {more} more at {}", at(first, zone), plural(r.sites_more, "site")),
            },
        });
    }
    let failed = r.bounced + r.expired;
    let digests = if r.coalesced == 1 { "in a digest" } else { "in digests" };
    let others = [(failed, "failed"), (r.removed, "removed"), (r.coalesced, digests), (r.quarantined, "quarantined")];
    parts.extend(others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts.join(", ")
}

fn delivered(r: &PostReport) -> String {
    if r.total == 0 {
        return "no recipients".to_owned();
    }
    let share = share(r.delivered, r.total);
    let t = &r.timeline;
    let known = match r.before_start {
        Some(before) if before > 0 => " (times since the server started)",
        _ => "",
    };
    match t.count {
        0 => format!("{share} delivered"),
        _ if t.p100_ms > t.p95_ms.max(100) * TAIL_TIMES => {
            format!("{share} delivered in {} (95 % of them in {}){known}", time(t.p100_ms), time(t.p95_ms))
        }
        _ => format!("{share} delivered in {}{known}", time(t.p100_ms)),
    }
}

/// Percent with one decimal; never 100 % while a recipient is missing, nor 0 % once one has it.
pub(super) fn share(part: u64, total: u64) -> String {
    if part == total {
        return "100 %".to_owned();
    }
    let tenths = (part as f64 * 1_000.0 / total.max(1) as f64).round() as u64;
    let tenths = tenths.clamp(u64::from(part > 0), 999);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn at(place: &WaitingAt, zone: &Zone) -> String {
    let mut why = Vec::new();
    if place.in_flight {
        why.push("in progress".to_owned());
    }
    let words = if place.in_flight { "" } else { &place.words };
    let reason = causes::why(words, &place.last_reply, place.since);
    if !reason.is_empty() {
        why.push(printable(reason, REASON_CHARS_MAX));
    }
    if let Some(next) = place.next_try {
        why.push(format!("next try {}", minute(next, zone)));
    }
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
    format!("{} waiting at {}{why}", place.recipients, printable(&place.site, REASON_CHARS_MAX))
}

/// Formats `10:42 UTC`, or in other zones `11:42 +0100`.
pub(super) fn minute(at: Ms, zone: &Zone) -> String {
    let offset_s = i64::from(zone.offset_s((at / 1000).cast_signed()));
    format!("{} {}", &clock(at, offset_s)[..5], zone.label(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_control::Timeline;

    fn report() -> PostReport {
        PostReport {
            total: 2_000,
            delivered: 1_983,
            bounced: 2,
            expired: 1,
            pending: 14,
            timeline: Timeline { count: 1_983, p95_ms: 1_200, p100_ms: 1_834, ..Timeline::default() },
            waiting: vec![WaitingAt {
                site: "example.net".to_owned(),
                recipients: 14,
                last_reply: "connection refused".to_owned(),
                next_try: Some(10 * 3_600_000 + 42 * 60_000),
                ..WaitingAt::default()
            }],
            ..PostReport::default()
        }
    }

    #[test]
    fn a_line_says_it_all() {
        let mut r = report();
        assert_eq!(
            of(&r, "", &Zone::utc()),
            "99.2 % delivered in 1.8 s, 14 waiting at example.net (connection refused, next try 10:42 UTC), 3 failed"
        );
        r.waiting.push(WaitingAt { site: "other".to_owned(), recipients: 4, ..WaitingAt::default() });
        (r.waiting[0].recipients, r.sites_more) = (10, 3);
        (r.timeline.p100_ms, r.before_start) = (7_300_000, Some(5));
        assert_eq!(
            of(&r, "", &Zone::utc()),
            "99.2 % delivered in 2 h 01 min (95 % of them in 1.2 s) (times since the server started), 10 waiting at \
             example.net \
             (connection refused, next try 10:42 UTC), 4 more at 3 sites, 3 failed"
        );
        assert_eq!(of(&PostReport::default(), "", &Zone::utc()), "no recipients");
        let digest = PostReport { total: 3, delivered: 2, coalesced: 1, ..PostReport::default() };
        assert_eq!(of(&digest, "", &Zone::utc()), "66.7 % delivered, 1 in a digest");
        let young = PostReport { total: 14, pending: 13, delivered: 1, ..PostReport::default() };
        assert_eq!(of(&young, "mailbox full", &Zone::utc()), "7.1 % delivered, 13 waiting (mailbox full)");
    }

    #[test]
    fn shares_are_honest() {
        assert_eq!(
            [(0, 7), (1, 1_000_000), (999_999, 1_000_000), (7, 7)].map(|(part, total)| share(part, total)),
            ["0.0 %", "0.1 %", "99.9 %", "100 %"]
        );
    }

    #[test]
    fn times_have_two_places() {
        assert_eq!(
            [850, 1_834, 250_000, 11_100_000, 187_200_000].map(time),
            ["850 ms", "1.8 s", "4 min 10 s", "3 h 05 min", "2 d 4 h"]
        );
    }
}
