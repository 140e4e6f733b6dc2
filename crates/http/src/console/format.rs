//! Formats numbers, times and names for pages.

use maud::{Markup, html};
use stentor_control::format::{ahead_ms, date_time, plural_of};
pub use stentor_control::format::{bytes, grouped as number};
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;
use stentor_records::time::push_rfc3339;

use crate::browser::encode;

/// Maximum octets shown of a reply or name.
const SHOWN_BYTES_MAX: usize = 600;

/// Formats `1 message`, `2 messages`, `1,204 replies`, `3 batches`.
pub fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{} {}", number(n), plural_of(what)) }
}

/// Formats `12 s`, `3 min`, `2 h 05 min`, `4 d 3 h`.
pub fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s} s"),
        60..3_600 => format!("{} min", s / 60),
        3_600..86_400 => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// Percent with one decimal, rounded as in reports: never 100 % while something is missing, nor 0 % if there is
/// something.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let (part, whole) = (u128::from(part), u128::from(whole));
    let rounded = (part * 2000 + whole) / (whole * 2);
    let thousandths = if part >= whole { rounded } else { rounded.clamp(u128::from(part > 0), 999) };
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// Formats `2026-11-21T10:54:25.123Z`.
pub fn rfc3339(at: Ms) -> String {
    let mut out = Vec::new();
    push_rfc3339(&mut out, at);
    String::from_utf8(out).unwrap_or_default()
}

/// An instant: date and time in the zone, with UTC as a tooltip.
pub fn instant(at: Ms, zone: &Zone) -> Markup {
    time_element(at, &date_time(at, zone))
}

/// The age, with UTC as a tooltip.
pub fn ago(at: Ms, now: Ms) -> Markup {
    let age = now.saturating_sub(at);
    let text = if age < 1000 { "just now".to_owned() } else { format!("{} ago", span(age)) };
    time_element(at, &text)
}

fn time_element(at: Ms, text: &str) -> Markup {
    let utc = format!("{} UTC", date_time(at, &Zone::utc()));
    html! { time datetime=(rfc3339(at)) title=(utc) { (text) } }
}

/// The time of the next attempt.
pub fn next_try(at: Option<Ms>, now: Ms) -> Markup {
    match at {
        Some(at) if at > now => time_element(at, &format!("in {}", span(ahead_ms(at - now)))),
        Some(_) => html! { "now" },
        None => html! { "–" },
    }
}

/// Prepares text from the network: one line, with invisible characters made visible. The template escapes HTML.
pub fn shown(text: &str) -> String {
    printable(text, SHOWN_BYTES_MAX)
}

/// Characters of a hyphenated part that is kept together: as many as fit the narrowest column.
const WHOLE_CHARS_MAX: usize = 22;

/// Renders an address or host names, also from the network: breaks after commas, else before `@` and after dots, and
/// elsewhere only in a part that is too long.
pub fn breakable(text: &str) -> Markup {
    let text = shown(text);
    let hosts: Vec<&str> = text.split_inclusive(',').collect();
    html! {
        @if let [only] = hosts[..] { (broken(only)) }
        @else { @for host in hosts { span.host { (broken(host)) } } }
    }
}

fn broken(text: &str) -> Markup {
    html! {
        @for (at, part) in parts(text).into_iter().enumerate() {
            @if at > 0 { wbr; }
            // Browsers break after hyphens too.
            @if part.contains('-') && part.len() <= WHOLE_CHARS_MAX { span.whole { (part) } } @else { (part) }
        }
    }
}

/// The pieces between which a line may break.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for piece in text.split_inclusive('.') {
        match piece.rfind('@').filter(|at| *at > 0) {
            Some(at) => parts.extend([&piece[..at], &piece[at..]]),
            None => parts.push(piece),
        }
    }
    parts
}

/// As [`breakable`], in the style of addresses, for text that is not a link.
pub fn address(text: &str) -> Markup {
    html! { span.addr { (breakable(text)) } }
}

/// An envelope sender; the null path gets a name.
pub fn sender(text: &str) -> Markup {
    if text.is_empty() {
        html! { span.quiet { "<>" } }
    } else {
        address(text)
    }
}

/// A link to a message's page.
pub fn message_link(id: &str) -> Markup {
    html! { a.id href={ "/messages/" (encode(id)) } { (id) } }
}

pub fn site_link(name: &str) -> Markup {
    // One host identifies its site, whose page shows all of them.
    let (first, others) = name.split_once(',').unwrap_or((name, ""));
    let more = others.split(',').filter(|host| !host.is_empty()).count() as u64;
    html! {
        a.addr href={ "/site?name=" (encode(name)) } title=[(more > 0).then(|| shown(name))] { (breakable(first)) }
        @if more > 0 { " " span.quiet.whole.small { "+ " (plural(more, "host")) } }
    }
}

/// Formats a duration in microseconds.
pub fn time_us(us: u64) -> String {
    stentor_control::snapshot::time_us(us).replace("us", "µs")
}

pub fn recipient_link(address: &str) -> Markup {
    html! { a.addr href={ "/recipient?address=" (encode(address)) } { (breakable(address)) } }
}

/// A stacked bar of parts of `most`, each with its class, from the left; none without parts. The numbers are shown
/// beside it.
pub fn bar(parts: &[(&'static str, u64)], most: u64) -> Markup {
    let mut x = 0.0;
    let place = |(class, count): &(&'static str, u64)| {
        // Every part gets a visible width.
        let (at, wide) = (x, (*count as f64 * 100.0 / most.max(1) as f64).clamp(0.6, 100.0));
        x += wide;
        (*class, format!("{at:.2}"), format!("{wide:.2}"))
    };
    let places: Vec<_> = parts.iter().filter(|(_, count)| *count > 0).map(place).collect();
    html! {
        @if !places.is_empty() {
            svg.share viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
                @for (class, x, width) in &places { rect.(class) x=(x) y="0" width=(width) height="8" {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 10_000_000].map(number), ["0", "999", "1,000", "10,000,000"]);
        assert_eq!(
            (percent(1, 0), percent(9_999, 10_000), percent(70, 95)),
            ("–".into(), "99.9 %".into(), "73.7 %".into())
        );
        assert_eq!(
            (bytes(1_048_575), span(999), span(7_500_000)),
            ("1.0 MiB".into(), "999 ms".into(), "2 h 05 min".into())
        );
    }

    #[test]
    fn words_have_their_plurals() {
        let words = [(1, "reply"), (2, "reply"), (0, "day"), (3, "batch"), (1_204, "recipient")];
        assert_eq!(
            words.map(|(n, what)| plural(n, what)),
            ["1 reply", "2 replies", "0 days", "3 batches", "1,204 recipients"]
        );
    }

    #[test]
    fn addresses_break_before_at_and_behind_dots() {
        assert_eq!(parts("ann.b@mx.one.example"), ["ann.", "b", "@mx.", "one.", "example"]);
        let hosts = "<span class=\"host\">mx1.<wbr>a,</span><span class=\"host\">mx2.<wbr>a</span>";
        assert_eq!(breakable("mx1.a,mx2.a").into_string(), hosts);
        assert_eq!((parts("@example"), parts("")), (vec!["@example"], Vec::new()));
        assert_eq!(breakable("a@<b>").into_string(), "a<wbr>@&lt;b&gt;");
        assert_eq!(breakable("mx-1.a").into_string(), "<span class=\"whole\">mx-1.</span><wbr>a");
        assert!(!breakable(&format!("a-{}", "b".repeat(80))).into_string().contains("whole"));
        let two = site_link("mx1.a,mx2.a").into_string();
        assert!(two.contains("title=\"mx1.a,mx2.a\"") && two.contains("+ 1 host<"), "{two}");
    }

    #[test]
    fn bars_show_shares() {
        let text = bar(&[("good", 30), ("bad", 0), ("warn", 10)], 40).into_string();
        assert!(text.contains("width=\"75.00\"") && text.contains("x=\"75.00\"") && !text.contains("bad"), "{text}");
        assert!(bar(&[("good", 1)], 1_000_000).into_string().contains("width=\"0.60\""));
        assert!(bar(&[("good", 0)], 0).into_string().is_empty());
    }

    #[test]
    fn links_are_escaped() {
        let link = recipient_link("\"><script>@x\u{202e}").into_string();
        assert!(!link.contains("<script") && !link.contains('\u{202e}'), "{link}");
    }
}
