//! Numbers, times and names as pages show them.

use std::fmt::Write as _;

use maud::{Markup, html};
use stentor_queue::ids::Ms;
use stentor_stats::escape::printable;
use stentor_stats::time::push_rfc3339;

/// Octets of a reply or name that are shown.
const SHOWN_BYTES_MAX: usize = 600;

/// `1,234,567`
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 message`, `2 messages`
pub fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{} {what}s", number(n)) }
}

/// `4.2 KiB`
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `12 s`, `3 min`, `2 h 05 min`, `4 d 3 h`
pub fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 if ms > 0 => format!("{ms} ms"),
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min", s / 60),
        3_600..86_400 => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// Hundredths of a percent cut off: 100 % means all.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let thousandths = u128::from(part) * 1000 / u128::from(whole);
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// `2026-11-21T10:54:25.123Z`
pub fn rfc3339(at: Ms) -> String {
    let mut out = Vec::new();
    push_rfc3339(&mut out, at);
    String::from_utf8(out).unwrap_or_default()
}

/// An instant: date and time, UTC.
pub fn instant(at: Ms) -> Markup {
    let full = rfc3339(at);
    let text = full.get(..19).unwrap_or_default().replace('T', " ");
    html! { time datetime=(full) { (text) } }
}

/// How long ago, the instant at hand for who asks.
pub fn ago(at: Ms, now: Ms) -> Markup {
    let full = rfc3339(at);
    html! { time datetime=(full) title=(full) { (span(now.saturating_sub(at))) " ago" } }
}

/// When something is tried next.
pub fn next_try(at: Option<Ms>, now: Ms) -> Markup {
    match at {
        Some(at) if at > now => {
            let full = rfc3339(at);
            html! { time datetime=(full) title=(full) { "in " (span(at - now)) } }
        }
        Some(_) => html! { "now" },
        None => html! { "–" },
    }
}

/// Text from the network: one line, what cannot be seen made visible. The template escapes what HTML needs.
pub fn shown(text: &str) -> String {
    printable(text, SHOWN_BYTES_MAX)
}

/// An envelope sender; the null path has a name.
pub fn sender(text: &str) -> Markup {
    if text.is_empty() {
        html! { span.quiet { "<>" } }
    } else {
        html! { (shown(text)) }
    }
}

/// `text` as a value in a query or path (RFC 3986 section 2.3).
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A link to a message's page.
pub fn message_link(id: &str) -> Markup {
    html! { a.id href={ "/messages/" (encode(id)) } { (id) } }
}

pub fn site_link(name: &str) -> Markup {
    // The hosts of a site stand under each other where it is narrow.
    html! {
        a href={ "/site?name=" (encode(name)) } {
            @for (at, host) in name.split(',').enumerate() { @if at > 0 { "," wbr; } (shown(host)) }
        }
    }
}

pub fn recipient_link(address: &str) -> Markup {
    html! { a href={ "/recipient?address=" (encode(address)) } { (shown(address)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 10_000_000].map(number), ["0", "999", "1,000", "10,000,000"]);
        assert_eq!(
            (percent(1, 0), percent(9_999, 10_000), percent(3, 3)),
            ("–".into(), "99.9 %".into(), "100.0 %".into())
        );
        assert_eq!(
            (bytes(1_048_575), span(999), span(7_500_000)),
            ("1.0 MiB".into(), "999 ms".into(), "2 h 05 min".into())
        );
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encode("a b&c=<é>"), "a%20b%26c%3D%3C%C3%A9%3E");
        let link = recipient_link("\"><script>@x\u{202e}").into_string();
        assert!(!link.contains("<script") && !link.contains('\u{202e}'), "{link}");
    }
}
