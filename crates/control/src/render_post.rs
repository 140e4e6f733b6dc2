//! Displays a kept post on a terminal. All text is escaped.

use std::fmt::Write as _;

use stentor_records::civil::Zone;

use super::format::{Width, bytes, cut, grouped, instant, percent, plural, span};
use super::post_view::{PostCounts, PostRcptView, PostView};

const COLUMNS: usize = 40;

pub(super) fn post(p: &PostView, zone: &Zone, width: Width) -> String {
    let mut out = format!("{}  {}  {}\n", cut(&p.id, 20), bytes(p.size), cut(&p.subject, width.rest(30)));
    let mut row = |name: &str, text: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {name:<11} {}", cut(text, width.rest(14)));
    };
    row("accepted", &format!("{} ({} ago)", instant(p.accepted, zone), span(p.now.saturating_sub(p.accepted))));
    row("recipients", &words(&p.counts));
    for list in &p.lists {
        row("list", &format!("{} ({}): {}", list.list, list.id, words(&list.counts)));
        row("kept until", &instant(list.kept_until, zone));
        if !list.resends.is_empty() {
            row("sent again", &format!("as {}", list.resends.join(", ")));
        }
    }
    if !p.recipients.is_empty() {
        let name = width.fit(COLUMNS, p.recipients.iter().map(|row| row.address.as_str()));
        let _ = writeln!(out, "\n{:<name$}  {:<10}  last reply", "recipient", "state");
        for row in &p.recipients {
            let reply = cut(&reply(row, p.now), width.rest(name + 2 + 10 + 2));
            let _ = writeln!(out, "{:<name$}  {:<10}  {reply}", cut(&row.address, name), cut(&row.state, 10));
        }
    }
    if let Some(next) = p.next {
        let _ = writeln!(out, "more: `stentor post show {} --offset {next}`", cut(&p.id, 20));
    }
    if p.counts.missed > 0 {
        let _ = writeln!(out, "send it to those that missed it: `stentor post resend {} --missed`", cut(&p.id, 20));
    }
    out
}

/// "98.20 % of 1000 recipients have it, 3 wait, 15 missed it (12 bounced, 2 expired, 1 removed by an operator)".
fn words(c: &PostCounts) -> String {
    let mut text = format!("{} of {} have it", percent(c.delivered, c.total), plural(c.total, "recipient"));
    if c.waiting > 0 {
        let _ = write!(text, ", {} waiting", grouped(c.waiting));
    }
    if c.missed > 0 {
        let causes = [(c.bounced, "bounced"), (c.expired, "expired"), (c.dropped, "removed by an operator")];
        let causes = causes.iter().filter(|(count, _)| *count > 0);
        let causes: Vec<String> = causes.map(|(count, cause)| format!("{} {cause}", grouped(*count))).collect();
        let _ = write!(text, ", {} missed it ({})", grouped(c.missed), causes.join(", "));
    }
    for (count, what) in [(c.removed, "suppressed"), (c.coalesced, "in a digest")] {
        if count > 0 {
            let _ = write!(text, ", {} {what}", grouped(count));
        }
    }
    text
}

fn reply(row: &PostRcptView, now: u64) -> String {
    match row.next_try {
        Some(at) if at > now => format!("next try in {}; {}", span(at - now), row.reply),
        _ => row.reply.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_in_words() {
        let counts = PostCounts {
            total: 1_000,
            delivered: 982,
            waiting: 2,
            missed: 15,
            bounced: 12,
            expired: 2,
            dropped: 1,
            removed: 1,
            coalesced: 0,
        };
        assert_eq!(
            words(&counts),
            "98.20 % of 1000 recipients have it, 2 waiting, 15 missed it (12 bounced, 2 expired, 1 removed by an operator), 1 suppressed"
        );
        let view = PostView { id: "02R9BQ000000".to_owned(), counts, next: Some(50), ..PostView::default() };
        let text = post(&view, &Zone::utc(), Width::UNCUT);
        assert!(text.contains("more: `stentor post show 02R9BQ000000 --offset 50`"), "{text}");
        assert!(text.contains("`stentor post resend 02R9BQ000000 --missed`"), "{text}");
    }
}
