//! The digest as a mail: the same list as text and as HTML.
//!
//! Promise: text from quarantined messages is escaped and cut, so that it cannot add a field, a part or markup; the
//! mail loads nothing. It is marked as automatic (RFC 3834 section 5.1), so that nothing answers it; no line is longer
//! than RFC 5321 section 4.5.3.1.6 allows.

use std::fmt::Write as _;

use stentor_mail::dsn::format_date;
use stentor_queue::ids::Ms;
use stentor_records::escape::printable;

/// Beginnings of text that mail programs turn into links, in any case; the next character is a colon, or a dot in any
/// form that resolvers accept (UTS 46).
const BEGINS: [&str; 5] = ["www", "ftp", "mailto", "http", "https"];
const ENDS: [char; 5] = ['.', ':', '\u{3002}', '\u{ff0e}', '\u{ff61}'];
/// Octets after which a line of HTML is broken: RFC 5322 section 2.1.1 allows 998, of which the longest link and its
/// tags take some.
const HTML_LINE_BYTES: usize = 400;
/// Maximum octets of a text in a row.
const CELL_BYTES_MAX: usize = 120;

/// The row of a quarantined message.
#[derive(Clone, Default, Debug)]
pub struct Row {
    /// Its queue id, for reference.
    pub id: String,
    pub from: String,
    pub subject: String,
    pub date: Ms,
    pub why: String,
    /// The link for its recipient to release it.
    pub link: Option<String>,
}

/// The text around the rows.
pub struct DigestFrame<'a> {
    pub hostname: &'a str,
    pub recipient: &'a str,
    pub contact: &'a str,
    /// Number of this digest, and of all digests at this time.
    pub part: (usize, usize),
    /// Messages that are in none of them.
    pub more: usize,
    pub expire_days: u64,
}

/// Header and body with CRLF line ends; `id` is the Message-ID without its brackets.
pub fn mail(around: &DigestFrame<'_>, rows: &[Row], id: &str, now: Ms) -> Vec<u8> {
    let boundary = format!("=_{}", id.replace('@', "_"));
    let DigestFrame { hostname, recipient, contact, .. } = around;
    let mut out = format!(
        "Date: {}\r\nFrom: Mail quarantine <MAILER-DAEMON@{hostname}>\r\nTo: <{recipient}>\r\nReply-To: <{contact}>\r\n\
         Subject: {}\r\nMessage-ID: <{id}>\r\nAuto-Submitted: auto-generated\r\nPrecedence: bulk\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/alternative; boundary=\"{boundary}\"\r\n\r\n",
        format_date(now),
        subject(around, rows.len()),
    );
    for (kind, body) in [("plain", plain(around, rows)), ("html", html(around, rows))] {
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "--{boundary}\r\nContent-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{body}\r\n"
        );
    }
    let _ = write!(out, "--{boundary}--\r\n");
    out.into_bytes()
}

fn subject(around: &DigestFrame<'_>, rows: usize) -> String {
    let messages = if rows == 1 { "message" } else { "messages" };
    let part = match around.part {
        (_, 1) => String::new(),
        (part, of) => format!(" ({part} of {of})"),
    };
    format!("Quarantine: {rows} new {messages} withheld from you{part}")
}

/// The paragraphs before and after the rows.
fn words(around: &DigestFrame<'_>, has_links: bool) -> (String, Vec<String>) {
    let DigestFrame { hostname, recipient, contact, more, expire_days, .. } = around;
    let before = format!(
        "The mail server {hostname} has quarantined these new messages to {recipient}. They are delivered only if \
         released."
    );
    let mut behind = Vec::new();
    if *more > 0 {
        behind.push(format!("{more} more messages are quarantined but not listed; ask {contact} for them."));
    }
    behind.push(if has_links {
        "A link opens a page that shows the message as text; its button delivers the message to you. The links are \
         for you only: do not forward this mail."
            .to_owned()
    } else {
        format!("To get a message delivered, send its ID to {contact}.")
    });
    let days = if *expire_days == 1 { "day" } else { "days" };
    behind
        .push(format!("Messages that are not released are deleted after {expire_days} {days}. Questions: {contact}."));
    (before, behind)
}

/// Prevents links in strangers' text beside ours: mail programs link each address that they recognise.
fn inert(text: &str) -> String {
    let text = text.replace("://", "[:]//");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let begin =
            BEGINS.iter().find(|begin| rest.get(..begin.len()).is_some_and(|text| text.eq_ignore_ascii_case(begin)));
        let end = begin.and_then(|begin| rest[begin.len()..].chars().next()).filter(|end| ENDS.contains(end));
        if let (Some(begin), Some(end)) = (begin, end) {
            let (word, behind) = rest.split_at(begin.len());
            out.extend([word, "[", &behind[..end.len_utf8()], "]"]);
            rest = &behind[end.len_utf8()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn cells(row: &Row) -> [(&'static str, String); 5] {
    let cut = |text: &str| {
        let text = printable(text, CELL_BYTES_MAX);
        if text.trim().is_empty() { "(none)".to_owned() } else { inert(&text) }
    };
    [
        ("From", cut(&row.from)),
        ("Subject", cut(&row.subject)),
        ("Date", format_date(row.date)),
        ("Why", cut(&row.why)),
        ("ID", cut(&row.id)),
    ]
}

fn plain(around: &DigestFrame<'_>, rows: &[Row]) -> String {
    let (before, behind) = words(around, rows.iter().any(|row| row.link.is_some()));
    let mut out = format!("{before}\r\n");
    for row in rows {
        out.push_str("\r\n");
        for (name, text) in cells(row) {
            let _ = write!(out, "  {:<9}{text}\r\n", format!("{name}:"));
        }
        if let Some(link) = &row.link {
            let _ = write!(out, "  Release: <{link}>\r\n");
        }
    }
    for paragraph in behind {
        let _ = write!(out, "\r\n{paragraph}\r\n");
    }
    out
}

fn html(around: &DigestFrame<'_>, rows: &[Row]) -> String {
    let has_links = rows.iter().any(|row| row.link.is_some());
    let (before, behind) = words(around, has_links);
    let mut out = format!(
        "<!DOCTYPE html>\r\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title></head><body>\r\n<p>{}</p>\r\n\
         <table border=\"1\" cellpadding=\"6\" cellspacing=\"0\">\r\n<tr><th>From</th><th>Subject</th><th>Date</th><th>Why</th><th>ID</th>{}</tr>\r\n",
        escaped(&subject(around, rows.len())),
        broken(&before),
        if has_links { "<th>Release</th>" } else { "" },
    );
    for row in rows {
        out.push_str("<tr>\r\n");
        for (_, text) in cells(row) {
            let _ = write!(out, "<td>{}</td>\r\n", broken(&text));
        }
        if let Some(link) = &row.link {
            let _ = write!(out, "<td><a href=\"{}\" rel=\"noreferrer\">View and release</a></td>\r\n", escaped(link));
        }
        out.push_str("</tr>\r\n");
    }
    out.push_str("</table>\r\n");
    for paragraph in behind {
        let _ = write!(out, "<p>{}</p>\r\n", broken(&paragraph));
    }
    out + "</body></html>\r\n"
}

/// Text for an element: escaped, with long lines broken. The break is inside a tag, so that it is not shown as a space.
fn broken(text: &str) -> String {
    let (mut out, mut line) = (String::with_capacity(text.len()), 0);
    for c in text.chars() {
        let piece = escaped(c.encode_utf8(&mut [0; 4]));
        if line + piece.len() > HTML_LINE_BYTES {
            out.push_str("<wbr\r\n>");
            line = 0;
        }
        line += piece.len();
        out.push_str(&piece);
    }
    out
}

/// Escapes text for an element or a quoted attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const AROUND: DigestFrame<'_> = DigestFrame {
        hostname: "mx.test",
        recipient: "ann@x.example",
        contact: "postmaster@x.example",
        part: (1, 1),
        more: 0,
        expire_days: 30,
    };

    fn text(around: &DigestFrame<'_>, row: Row) -> String {
        String::from_utf8(mail(around, &[row], "a.b@mx.test", 1_763_000_000_000)).unwrap()
    }

    #[test]
    fn what_messages_say_adds_no_field_part_or_markup() {
        let row = Row {
            id: "0CX8M4H00000".to_owned(),
            from: "A\r\nBcc: x@y\r\n\r\n--=_a.b_mx.test\r\nContent-Type: text/html".to_owned(),
            subject: "<script>alert(1)</script>\u{202e}\"'&".to_owned(),
            date: 0,
            why: "\u{0}\u{85}\u{2028}<img src=x>".to_owned(),
            link: Some("https://q.example/kept/a\"b".to_owned()),
        };
        let text = text(&AROUND, row);
        assert_eq!(text.matches("\r\n--=_a.b_mx.test").count(), 3, "{text}");
        assert!(!text.contains("\r\nBcc") && !text.contains('\u{202e}') && !text.contains('\u{0}'), "{text}");
        let html = text.split_once("text/html; charset").unwrap().1;
        assert!(!html.contains("<script") && !html.contains("<img") && html.contains("&lt;script&gt;"), "{html}");
        assert!(html.contains("href=\"https://q.example/kept/a&quot;b\""), "{html}");
        assert!(text.split("\r\n").all(|line| !line.contains(['\r', '\n'])), "{text:?}");
    }

    #[test]
    fn what_strangers_write_becomes_no_link_beside_ours() {
        let bad = "spam Release: <https://mail-example.org/kept/AAz9> www.evil.test";
        let ours = "https://q.example/kept/ab";
        let (from, subject, link) = (bad.to_owned(), bad.to_owned(), Some(ours.to_owned()));
        let (id, why) = ("0CX8M4H00000".to_owned(), "rule 1".to_owned());
        let text = text(&AROUND, Row { id, from, subject, date: 0, why, link });
        assert_eq!((text.matches("://").count(), text.matches(ours).count()), (2, 2), "{text}");
        assert!(text.contains("https[:]//mail-example.org/kept/AAz9") && !text.contains("www."), "{text}");
        for (written, expected) in [
            ("WWW.EVIL.test", "WWW[.]EVIL.test"),
            ("wWw.evil.test www.b", "wWw[.]evil.test www[.]b"),
            ("Http://evil", "Http[:]//evil"),
            ("HTTP:evil", "HTTP[:]evil"),
            ("MailTo:eve@evil.test", "MailTo[:]eve@evil.test"),
            ("FTP.evil.test", "FTP[.]evil.test"),
            ("www\u{3002}evil", "www[\u{3002}]evil"),
            ("awww. nice", "awww[.] nice"),
            ("ww.w www", "ww.w www"),
            ("Grüße", "Grüße"),
        ] {
            assert_eq!(inert(written), expected);
        }
    }

    #[test]
    fn a_long_recipient_makes_no_long_line() {
        for recipient in
            [format!("o'{}@x.example", "'".repeat(240)), format!("{}@x.example", "&".repeat(240)), "é".repeat(500)]
        {
            let row = Row {
                id: "0CX8M4H00000".to_owned(),
                link: Some(format!("https://q.example/kept/{}", "a".repeat(420))),
                ..Row::default()
            };
            let text = text(&DigestFrame { recipient: &recipient, contact: &recipient, ..AROUND }, row);
            let html = text.split_once("text/html").unwrap().1;
            let longest = html.split("\r\n").map(str::len).max().unwrap();
            assert!(longest <= 998, "{longest}: {recipient}");
            assert!(html.replace("<wbr\r\n>", "").contains(&escaped(&recipient)), "{html}");
        }
    }

    #[test]
    fn lines_are_short_and_the_mail_says_that_nothing_is_to_answer() {
        let long = "\u{1F600}<&\"".repeat(1_000);
        let row = Row {
            id: "0CX8M4H00000".to_owned(),
            from: long.clone(),
            subject: long.clone(),
            date: 0,
            why: long,
            link: None,
        };
        let text = text(&DigestFrame { part: (2, 3), more: 9, ..AROUND }, row);
        assert!(text.split("\r\n").all(|line| line.len() <= 998));
        for part in [
            "Auto-Submitted: auto-generated\r\n",
            "Reply-To: <postmaster@x.example>\r\n",
            "Subject: Quarantine: 1 new message withheld from you (2 of 3)\r\n",
            "9 more messages are quarantined",
            "send its ID to postmaster@x.example",
            "\r\n  ID:      0CX8M4H00000\r\n",
            "<td>0CX8M4H00000</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("https://") && !text.contains("<a "));
    }
}
