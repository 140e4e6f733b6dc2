//! Displays the quarantine on a terminal. All text is escaped.

use std::fmt::Write as _;

use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;

use super::format::{Width, bytes, cut, instant, plural, span};
use super::quarantine_view::{QuarantineList, QuarantinedMessage, QuarantinedView};

/// Maximum lines shown of a text, and octets of one line.
const LINE_BYTES_MAX: usize = 4_096;
/// Longer paragraphs of a message's text are continued in the next line.
const PARAGRAPH_BYTES_MAX: usize = 1_000;
const COLUMNS: usize = 32;

pub(super) fn list(q: &QuarantineList, width: Width) -> String {
    let (of, who) = (plural(q.messages, "message"), plural(q.recipients, "recipient"));
    let mut out = format!("{}: {of} for {who} in the quarantine, {}\n", cut(&q.hostname, 40), bytes(q.octets));
    if q.rows.is_empty() {
        if q.messages > 0 {
            out.push_str("none of them matches (--sender is the envelope sender)\n");
        }
        return out;
    }
    let senders: Vec<&str> = q.rows.iter().map(sender).collect();
    let name = width.fit(COLUMNS, senders.iter().copied());
    let by: Vec<String> = q.rows.iter().map(by_with_sender).collect();
    let to: Vec<String> = q.rows.iter().map(recipients).collect();
    let to_columns = width.fit(COLUMNS, to.iter().map(String::as_str));
    let rest = width.rest(12 + 2 + 6 + 2 + name + 2 + to_columns + 2);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\n{:<12} {:>6}  {:<name$}  {:<to_columns$}  subject", "queue id", "age", "from", "to");
    for (((row, from), to), by) in q.rows.iter().zip(senders).zip(&to).zip(&by) {
        let (age, from) = (span(q.now.saturating_sub(row.accepted)), cut(from, name));
        let (to, subject) = (cut(to, to_columns), cut(&row.subject, rest));
        let _ = writeln!(out, "{:<12} {age:>6}  {from:<name$}  {to:<to_columns$}  {subject}", cut(&row.id, 12));
        let _ = writeln!(out, "{:<12} {:>6}  {}", "", "", cut(by, width.rest(22)));
    }
    if let Some(next) = &q.next {
        let _ = writeln!(out, "more: `stentor quarantine list --after {}`", cut(next, 12));
    }
    out
}

/// The header's From, or the envelope sender.
fn sender(row: &QuarantinedView) -> &str {
    match (row.from.as_str(), row.sender.as_str()) {
        ("", "") => "<>",
        ("", sender) => sender,
        (from, _) => from,
    }
}

/// The rule or milter that holds it, and the envelope sender if the header has another.
fn by_with_sender(row: &QuarantinedView) -> String {
    let is_shown =
        row.from.is_empty() || !row.sender.is_empty() && row.from.to_lowercase().contains(&row.sender.to_lowercase());
    if is_shown { row.by.clone() } else { format!("envelope sender <{}>; {}", row.sender, row.by) }
}

fn recipients(row: &QuarantinedView) -> String {
    let first = row.recipients.first().map_or("", String::as_str);
    match row.recipients_total {
        0 | 1 => first.to_owned(),
        all => format!("{first} and {}", plural(all - 1, "more recipient")),
    }
}

pub(super) fn message(m: &QuarantinedMessage, zone: &Zone, width: Width) -> String {
    let q = &m.message;
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "  {name:<11} {}", cut(text, width.rest(14)));
    };
    let age = |at: Ms| span(m.now.saturating_sub(at));
    row("accepted", &format!("{} ({} ago)", instant(q.accepted, zone), age(q.accepted)));
    row("expires", &instant(q.expires, zone));
    row("sender", &format!("<{}> by {}", q.sender, q.origin));
    row("reason", &q.by);
    let more = q.recipients_total.saturating_sub(q.recipients.len() as u64);
    let more = if more > 0 { format!(" and {}", plural(more, "more recipient")) } else { String::new() };
    row("recipients", &format!("{}{more}", q.recipients.join(", ")));
    for file in &m.attachments {
        let name = if file.name.is_empty() { "without a name" } else { &file.name };
        row("attachment", &format!("{name}, {}, {}", file.content_type, bytes(file.size)));
    }
    out.push('\n');
    for (name, value) in &m.fields {
        let _ = writeln!(out, "{}: {}", printable(name, 100), printable(value, LINE_BYTES_MAX));
    }
    out.push('\n');
    for mut line in m.text.lines() {
        // A paragraph of HTML is one line.
        while line.len() > PARAGRAPH_BYTES_MAX {
            let most = &line[..line.floor_char_boundary(PARAGRAPH_BYTES_MAX)];
            let (first, rest) = line.split_at(most.rfind(' ').filter(|at| *at > 0).unwrap_or(most.len()));
            let _ = writeln!(out, "{}", printable(first, LINE_BYTES_MAX));
            line = rest.trim_start_matches(' ');
        }
        let _ = writeln!(out, "{}", printable(line, LINE_BYTES_MAX));
    }
    if let Some(limit) = &m.limit {
        let _ = writeln!(out, "\noutput incomplete: {}", printable(limit, 200));
    }
    let list = q.list.as_deref().map(|list| format!(", list {}", cut(list, 30))).unwrap_or_default();
    format!("{}  {}{list}\n{out}", cut(&q.id, 20), bytes(q.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_envelopes_sender_where_the_header_has_another() {
        let row = |from: &str, sender: &str| QuarantinedView {
            id: "0CX8M4H00000".to_owned(),
            accepted: 0,
            expires: 0,
            sender: sender.to_owned(),
            list: None,
            origin: String::new(),
            size: 1,
            by: "rule 1".to_owned(),
            recipients: vec!["bob@b.example".to_owned()],
            recipients_total: 1,
            from: from.to_owned(),
            subject: "x".to_owned(),
        };
        for (from, sender, shown) in [
            ("Ann <ANN@a.example>", "ann@a.example", false),
            ("", "ann@a.example", false),
            ("Ann <ann@a.example>", "bounce@lists.example", true),
            ("Ann <ann@a.example>", "", true),
        ] {
            let rows = vec![row(from, sender)];
            let (messages, recipients) = (1, 1);
            let all = QuarantineList {
                hostname: "mx.test".to_owned(),
                now: 1,
                messages,
                recipients,
                octets: 1,
                rows,
                next: None,
            };
            let text = list(&all, Width::UNCUT);
            assert_eq!(text.contains(&format!("envelope sender <{sender}>; rule 1")), shown, "{text}");
            let none = list(&QuarantineList { rows: Vec::new(), ..all }, Width::UNCUT);
            assert!(none.contains("--sender is the envelope sender"), "{none}");
        }
    }
}
