//! The header of a message from a local program: finds recipients (`-t`), and completes it.
//!
//! Promise: fields are not changed or reordered, except that addresses without a domain get one; Bcc, Return-Path and
//! Content-Length are removed, as in Postfix; missing From, Date, Message-ID and To are added at the end. In a
//! message with Resent- fields those are completed instead, and `-t` only uses them. A CR within a field becomes a
//! space, so that no value can start another field.
//!
//! The header ends at an empty line, or at the first line that is not a field, which begins the body.

use stentor_mail::headers::{HEADER_BYTES_MAX, HEADER_FIELDS_MAX};

use crate::addresses;
use crate::exit::{EX_DATAERR, ExitError};

/// Fields with addresses.
const ADDRESS_FIELDS: [&str; 8] = ["from", "sender", "reply-to", "to", "cc", "bcc", "errors-to", "return-receipt-to"];
const LEFT_OUT: [&str; 4] = ["bcc", "resent-bcc", "return-path", "content-length"];
const RECIPIENT_FIELDS: [&str; 3] = ["to", "cc", "bcc"];
const RESENT: &str = "resent-";
/// Octets that fit into one encoded word with its frame (RFC 2047 section 2), at three characters each.
const ENCODED_BYTES_MAX: usize = 15;

struct Field {
    /// Name in lower case.
    name: String,
    /// Name, colon and value, with LF between its lines.
    text: Vec<u8>,
    value: usize,
}

#[derive(Default)]
pub struct HeaderSection {
    fields: Vec<Field>,
    bytes: u64,
}

/// Kind of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum LineKind {
    Field,
    /// The empty line.
    End,
    /// The first line of the body.
    Body,
}

/// Values for missing fields.
pub struct FieldDefaults<'a> {
    /// Sender with a domain; empty for the null path.
    pub sender: &'a str,
    pub full_name: &'a str,
    pub date: &'a str,
    /// Unique message ID, without its domain.
    pub id: &'a str,
    /// Domain of the message ID.
    pub hostname: &'a str,
}

impl HeaderSection {
    /// Adds a line without its end.
    ///
    /// # Errors
    /// The header is larger than the server would accept.
    pub fn take(&mut self, line: &[u8]) -> Result<LineKind, ExitError> {
        if line.is_empty() {
            return Ok(LineKind::End);
        }
        let clean = line.iter().map(|byte| if matches!(byte, b'\r' | 0) { b' ' } else { *byte });
        self.bytes += line.len() as u64 + 1;
        let is_continued = matches!(line[0], b' ' | b'\t') && !self.fields.is_empty();
        if let Some(field) = self.fields.last_mut().filter(|_| is_continued) {
            field.text.push(b'\n');
            field.text.extend(clean);
        } else {
            let Some((name, value)) = name(line) else { return Ok(LineKind::Body) };
            self.fields.push(Field { name, text: clean.collect(), value });
        }
        if self.bytes > HEADER_BYTES_MAX || self.fields.len() > HEADER_FIELDS_MAX as usize {
            return Err(ExitError::new(EX_DATAERR, "the header is too large"));
        }
        Ok(LineKind::Field)
    }

    /// The recipients in To, Cc and Bcc.
    pub fn recipients(&self) -> Vec<String> {
        let prefix = if self.is_resent_to() { RESENT } else { "" };
        let is_recipient =
            |field: &&Field| field.name.strip_prefix(prefix).is_some_and(|name| RECIPIENT_FIELDS.contains(&name));
        let found = |field: &Field| addresses::parse(&field.text[field.value..]);
        let all = self.fields.iter().filter(is_recipient).flat_map(found);
        all.map(|found| found.text).filter(|text| !text.is_empty()).collect()
    }

    fn is_resent_to(&self) -> bool {
        let resent = self.fields.iter().filter_map(|field| field.name.strip_prefix(RESENT));
        resent.into_iter().any(|name| RECIPIENT_FIELDS.contains(&name))
    }

    /// Completes it; `origin` is the domain of addresses without one.
    pub fn complete(&mut self, origin: &str, defaults: &FieldDefaults<'_>) {
        let resent = self.fields.iter().any(|field| field.name.starts_with(RESENT));
        let has_recipient = self.fields.iter().any(|field| matches!(&*field.name, "to" | "cc"));
        self.fields.retain(|field| !LEFT_OUT.contains(&&*field.name));
        for field in &mut self.fields {
            field.qualify(origin);
        }
        let (prefix, shown) = if resent { (RESENT, "Resent-") } else { ("", "") };
        let name = phrase(defaults.full_name);
        let from = match defaults.sender {
            "" => format!("MAILER-DAEMON@{origin}"),
            sender if name.is_empty() => sender.to_owned(),
            sender => format!("{name} <{sender}>"),
        };
        let id = format!("<{}@{}>", defaults.id, defaults.hostname);
        for (name, value) in [("Message-ID", id.as_str()), ("Date", defaults.date), ("From", from.as_str())] {
            let lower = format!("{prefix}{}", name.to_ascii_lowercase());
            if !self.fields.iter().any(|field| field.name == lower) {
                self.add(&format!("{shown}{name}"), value);
            }
        }
        if !has_recipient {
            self.add("To", "undisclosed-recipients:;");
        }
    }

    fn add(&mut self, name: &str, value: &str) {
        let text = format!("{name}: {value}").into_bytes();
        self.fields.push(Field { name: name.to_ascii_lowercase(), text, value: name.len() + 1 });
    }

    /// Writes the fields with their line ends, and the empty line.
    pub fn write(&self, out: &mut Vec<u8>) {
        for field in &self.fields {
            out.extend_from_slice(&field.text);
            out.push(b'\n');
        }
        out.push(b'\n');
    }
}

impl Field {
    fn qualify(&mut self, origin: &str) {
        let name = self.name.strip_prefix(RESENT).unwrap_or(&self.name);
        if !ADDRESS_FIELDS.contains(&name) {
            return;
        }
        for found in
            addresses::parse(&self.text[self.value..]).into_iter().rev().filter(addresses::ListedAddress::is_bare)
        {
            let at = self.value + found.place.end;
            self.text.splice(at..at, format!("@{origin}").into_bytes());
        }
    }
}

/// The name of a field in lower case, and the position of its value.
fn name(line: &[u8]) -> Option<(String, usize)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = line[..colon].trim_ascii_end();
    // RFC 5322 section 2.2, with the white space before the colon of section 4.5.
    let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    is_name.then(|| (String::from_utf8_lossy(name).to_ascii_lowercase(), colon + 1))
}

/// Formats a full name for use before an address.
fn phrase(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let name = name.trim();
    if !name.is_ascii() {
        return encoded(name);
    }
    let is_atom = |c: char| c.is_ascii_alphanumeric() || " !#$%&'*+-/=?^_`{|}~".contains(c);
    if name.chars().all(is_atom) {
        return name.to_owned();
    }
    let escaped: String =
        name.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\"\\".contains(c)))).collect();
    format!("\"{escaped}\"")
}

/// Encodes as encoded words (RFC 2047) of whole characters.
fn encoded(name: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut bytes = 0;
    for c in name.chars() {
        if words.is_empty() || bytes + c.len_utf8() > ENCODED_BYTES_MAX {
            words.push(String::new());
            bytes = 0;
        }
        bytes += c.len_utf8();
        let mut buffer = [0; 4];
        let octets = c.encode_utf8(&mut buffer).bytes();
        let word = octets.map(|byte| match byte {
            b' ' => "_".to_owned(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("={byte:02X}"),
        });
        if let Some(last) = words.last_mut() {
            last.extend(word);
        }
    }
    let words: Vec<String> = words.iter().map(|word| format!("=?utf-8?Q?{word}?=")).collect();
    words.join("\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: FieldDefaults<'_> = FieldDefaults {
        sender: "ann@mx.example",
        full_name: "Ann Example",
        date: "Mon, 23 Nov 2026 06:00:00 +0000",
        id: "1.2",
        hostname: "mx.example",
    };

    fn header(text: &str) -> HeaderSection {
        let mut header = HeaderSection::default();
        for line in text.lines() {
            assert_eq!(header.take(line.as_bytes()).unwrap(), LineKind::Field, "{line}");
        }
        header
    }

    fn completed(text: &str, defaults: &FieldDefaults<'_>) -> String {
        let mut header = header(text);
        header.complete("mx.example", defaults);
        let mut out = Vec::new();
        header.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_missing_is_added_behind_the_rest() {
        assert_eq!(
            completed("Subject: x\nTo: root", &DEFAULTS),
            "Subject: x\nTo: root@mx.example\nMessage-ID: <1.2@mx.example>\nDate: Mon, 23 Nov 2026 06:00:00 +0000\n\
             From: Ann Example <ann@mx.example>\n\n"
        );
        let whole = "from: a@b\nDATE: now\nMessage-Id: <x@y>\nCc : c@d\n";
        assert_eq!(completed(whole, &DEFAULTS), whole.to_owned() + "\n");
        let bare = completed("", &DEFAULTS);
        assert!(bare.ends_with("\nTo: undisclosed-recipients:;\n\n"), "{bare}");
        assert!(completed("", &FieldDefaults { sender: "", ..DEFAULTS }).contains("From: MAILER-DAEMON@mx.example\n"));
    }

    #[test]
    fn bcc_goes_and_the_recipients_are_kept() {
        let text = "To: ann, \"B, C\" <b@x>\nBcc: f@x,\n g@x\nReturn-Path: <e@x>\nContent-Length: 7\nCc: grp: c@x;";
        assert_eq!(header(text).recipients(), ["ann", "b@x", "f@x", "g@x", "c@x"]);
        let done = completed(text, &DEFAULTS);
        assert!(done.starts_with("To: ann@mx.example, \"B, C\" <b@x>\nCc: grp: c@x;\nMessage-ID"), "{done}");
        assert!(!done.contains("undisclosed"));
    }

    #[test]
    fn a_resent_message_is_completed_as_such() {
        let text = "To: a@x\nResent-To: r@x, s\nResent-Bcc: t@x\nFrom: f@x";
        assert_eq!(header(text).recipients(), ["r@x", "s", "t@x"]);
        let done = completed(text, &DEFAULTS);
        let rest = "Resent-Message-ID: <1.2@mx.example>\nResent-Date: Mon, 23 Nov 2026 06:00:00 +0000\n\
                    Resent-From: Ann Example <ann@mx.example>\n\n";
        assert_eq!(done, format!("To: a@x\nResent-To: r@x, s@mx.example\nFrom: f@x\n{rest}"));
    }

    #[test]
    fn no_value_begins_a_field_or_hides_one() {
        let done = completed("Subject: a\rBcc: evil@x\0\nTo: b@x", &DEFAULTS);
        assert!(done.starts_with("Subject: a Bcc: evil@x \nTo: b@x\n"), "{done:?}");
        let mut header = HeaderSection::default();
        assert_eq!(header.take(b" not a continuation").unwrap(), LineKind::Body);
        assert_eq!(header.take(b"plain text").unwrap(), LineKind::Body);
        assert_eq!(header.take(b": x").unwrap(), LineKind::Body);
        assert_eq!(header.take("Betr\u{e4}ff: x".as_bytes()).unwrap(), LineKind::Body);
        assert_eq!(header.take(b"").unwrap(), LineKind::End);
    }

    #[test]
    fn a_header_has_limits() {
        let mut header = HeaderSection::default();
        let line = format!("X: {}", "x".repeat(100_000)).into_bytes();
        let taken = (0..20).map(|_| header.take(&line)).find(Result::is_err);
        assert_eq!(taken.unwrap().unwrap_err().code, EX_DATAERR);
        let mut header = HeaderSection::default();
        assert!((0..=HEADER_FIELDS_MAX).any(|_| header.take(b"X: y").is_err()));
    }

    #[test]
    fn full_names_are_quoted_or_encoded() {
        for (name, expected) in [
            ("Ann Example", "Ann Example"),
            ("Example, Ann", "\"Example, Ann\""),
            ("Ann \"the\" \\", "\"Ann \\\"the\\\" \\\\\""),
            ("A\r\nBcc: x", "\"A  Bcc: x\""),
            ("Jürgen M", "=?utf-8?Q?J=C3=BCrgen_M?="),
            (" ", ""),
        ] {
            assert_eq!(phrase(name), expected, "{name:?}");
        }
        let long = phrase("Überlanger Name mit vielen Wörtern");
        assert!(
            long.split("\n ").all(|word| word.len() <= 75 && word.starts_with("=?utf-8?Q?") && word.ends_with("?="))
        );
    }
}
