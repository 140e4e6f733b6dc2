//! Delivery status notifications: multipart/report messages (RFC 3461 section 6, RFC 3464, RFC 6522, RFC 6533).
//!
//! One DSN covers one message and any number of its recipients: failed (bounced or expired), delayed, relayed to a host
//! that sends no notifications, or expanded. It has three parts: text for people, `message/delivery-status` for
//! programs, and the original message or its header section.
//!
//! A DSN goes to a host of unknown abilities, so it never needs an extension that its recipient's address does not
//! need. The text may be UTF-8 (converted where 8BITMIME is missing). The part for programs is
//! `message/delivery-status` with the 7-bit forms of RFC 6533 section 3 (`\x{F6}`), which every parser knows. An
//! original with UTF-8 in its header is returned under the types of RFC 6533 section 6, quoted-printable.
//!
//! Promises: no external text (addresses, replies, the original) can end its line, its field or its part; every line
//! ends with CRLF; size is bounded by [`RECIPIENTS_MAX`], [`ORIGINAL_BYTES_MAX`] and the limit of each field. No clock
//! is read: dates are arguments ([`format_date`] formats them).
//!
//! Failure: none. Recipients beyond the limit are counted, not listed (the caller sends several DSNs). An original that
//! is too large is cut to its header section, at a line end.
//!
//! Deliberately absent: notifications about notifications. A null sender cannot be notified; the caller must not
//! request it.

mod date;
mod essential;
mod field;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;

pub use date::format_date;
pub use essential::{ESSENTIAL_BYTES_MAX, essential_header};
use field::{VALUE_BYTES_MAX, push_clean, write_bounded, write_field};
use stentor_mime::quoted::QuotedPrintable;

use crate::reply::Enhanced;

/// How much of the message a DSN about failure returns (RFC 3461 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ret {
    /// The whole message.
    Full,
    /// The header section.
    Headers,
}

/// Maximum number of recipients listed in one report.
pub const RECIPIENTS_MAX: usize = 1000;
/// Maximum number of recipients named in the part for people.
const RECIPIENTS_IN_WORDS_MAX: usize = 50;
/// Octets that the replies of all listed recipients share, so that a DSN about many is not mostly replies; and the
/// minimum for each.
const DIAGNOSTICS_BYTES_MAX: usize = 256 * 1024;
const DIAGNOSTIC_BYTES_MIN: usize = 200;
/// Maximum octets of the original returned with [`Ret::Full`]; a larger one is cut down to its header section.
pub const ORIGINAL_BYTES_MAX: usize = 1024 * 1024;
/// Maximum octets of the original's header section that are returned.
pub const ORIGINAL_HEADER_BYTES_MAX: usize = 64 * 1024;

/// The action taken for a recipient (RFC 3464 2.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DsnAction {
    /// Given up: bounced or expired.
    Failed,
    /// Still being tried.
    Delayed,
    /// Passed to a host that sends no DSNs.
    Relayed,
    /// Expanded into several addresses.
    Expanded,
    /// Delivered to the mailbox.
    Delivered,
}

impl DsnAction {
    fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Delayed => "delayed",
            Self::Relayed => "relayed",
            Self::Expanded => "expanded",
            Self::Delivered => "delivered",
        }
    }
}

/// One recipient of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportRcpt<'a> {
    /// The address that was tried.
    pub address: &'a str,
    /// ORCPT as on the wire: `type;xtext` (RFC 3461 4.2).
    pub orcpt: Option<&'a str>,
    /// The action taken.
    pub action: DsnAction,
    /// RFC 3463 status: 5.x.x for failed, 4.x.x for delayed, 2.x.x otherwise. See [`status_of`].
    pub status: Enhanced,
    /// Name of the host that gave the reply.
    pub remote_mta: Option<&'a str>,
    /// The reply as received (`550 5.1.1 No such user`), for Diagnostic-Code `smtp;`.
    pub diagnostic: Option<&'a str>,
    /// Our own explanation, for the part for people ("not delivered within 5 days").
    pub reason: Option<&'a str>,
    /// Date of the last attempt.
    pub last_attempt: Option<&'a str>,
    /// For a delay: the date when delivery is given up.
    pub will_retry_until: Option<&'a str>,
}

/// A DSN to build.
#[derive(Debug, Clone, Copy)]
pub struct Dsn<'a> {
    /// Our host name: Reporting-MTA, and the domain of the sender.
    pub hostname: &'a str,
    /// The DSN's recipient: the envelope sender of the original.
    pub to: &'a str,
    /// Value of the Date field.
    pub date: &'a str,
    /// Message-ID without angle brackets; must be unique, since the boundaries are made from it.
    pub message_id: &'a str,
    /// Our queue id of the original, for the part for people and X-Queue-ID.
    pub queue_id: &'a str,
    /// Date of the original's acceptance.
    pub arrival: Option<&'a str>,
    /// ENVID as xtext (RFC 3461 4.4).
    pub envid: Option<&'a str>,
    /// Name of the host that the original came from.
    pub received_from: Option<&'a str>,
    /// The recipients.
    pub rcpts: &'a [ReportRcpt<'a>],
    /// The original, or its beginning. Only the header section is located; nothing is parsed.
    pub original: &'a [u8],
    /// `original` is the whole message, not just its beginning; [`Ret::Full`] needs it.
    pub original_whole: bool,
    /// How much of the original to return. RET applies to failures: other DSNs return the header section (RFC 3461
    /// 4.3).
    pub ret: Ret,
    /// Where the original can still be read: a list's archive, for an undeliverable post.
    pub archive: Option<&'a str>,
    /// The original was sent with SMTPUTF8: the text may be UTF-8, and the returned part is internationalized.
    pub smtputf8: bool,
}

impl Dsn<'_> {
    fn any(&self, action: DsnAction) -> bool {
        self.rcpts.iter().any(|rcpt| rcpt.action == action)
    }
}

/// Returns the status to report for a reply: its enhanced code, or the generic one of its class. `failed` turns a
/// temporary code into 5.4.7, delivery time expired (RFC 3463 3.5).
pub fn status_of(code: u16, enhanced: Option<Enhanced>, failed: bool) -> Enhanced {
    if failed && code / 100 != 5 {
        return Enhanced::new(5, 4, 7);
    }
    enhanced.unwrap_or(Enhanced::new((code / 100) as u8, 0, 0))
}

/// Builds the DSN, which must be sent from the null sender. It has 8-bit octets if the original does or if `smtputf8`;
/// in its header only if `to` does.
pub fn build(report: &Dsn<'_>) -> Vec<u8> {
    let original = Original::of(report);
    let boundary = boundary(report.message_id, &original.bytes);
    let mut out = Vec::with_capacity(2048 + report.rcpts.len().min(RECIPIENTS_MAX) * 400 + original.bytes.len());
    let words = words(report);
    write_header(report, &boundary, !words.is_ascii() || original.is_eight_bit(), &mut out);
    open_part(&boundary, &mut out);
    write_words(&words, &mut out);
    open_part(&boundary, &mut out);
    write_status(report, &mut out);
    open_part(&boundary, &mut out);
    original.write(&mut out);
    let _ = write!(out, "\r\n--{boundary}--\r\n");
    out
}

fn open_part(boundary: &str, out: &mut Vec<u8>) {
    let _ = write!(out, "\r\n--{boundary}\r\n");
}

fn write_header(report: &Dsn<'_>, boundary: &str, eight_bit: bool, out: &mut Vec<u8>) {
    write_field("Date", &[report.date], false, out);
    write_field("From", &["Mail Delivery System <MAILER-DAEMON@", report.hostname, ">"], false, out);
    // Mail to a UTF-8 address needs SMTPUTF8 in any case.
    write_field("To", &["<", report.to, ">"], true, out);
    write_field("Subject", &[subject(report)], false, out);
    write_field("Message-ID", &["<", report.message_id, ">"], false, out);
    // RFC 3834 5: prevents automatic replies.
    out.extend_from_slice(b"Auto-Submitted: auto-replied\r\nMIME-Version: 1.0\r\n");
    let _ = write!(out, "Content-Type: multipart/report; report-type=delivery-status;\r\n boundary=\"{boundary}\"\r\n");
    if eight_bit {
        out.extend_from_slice(b"Content-Transfer-Encoding: 8bit\r\n");
    }
    out.extend_from_slice(b"\r\nThis is a delivery status notification in MIME format.\r\n");
}

fn subject(report: &Dsn<'_>) -> &'static str {
    if report.any(DsnAction::Failed) {
        "Undelivered Mail Returned to Sender"
    } else if report.any(DsnAction::Delayed) {
        "Delayed Mail (still being retried)"
    } else {
        "Successful Mail Delivery Report"
    }
}

fn write_words(words: &str, out: &mut Vec<u8>) {
    let (charset, encoding) = if words.is_ascii() { ("us-ascii", "7bit") } else { ("utf-8", "8bit") };
    let _ = write!(
        out,
        "Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\
         Content-Description: Notification\r\n\r\n{words}"
    );
}

/// Writes the part for people.
fn words(report: &Dsn<'_>) -> String {
    let utf8 = report.smtputf8;
    let mut text = String::from("This is the mail system at host ");
    push_clean(report.hostname, utf8, &mut text);
    text.push_str(".\r\n");
    if !report.queue_id.is_empty() {
        text.push_str("The queue ID of your message is ");
        push_clean(report.queue_id, utf8, &mut text);
        text.push_str(".\r\n");
    }
    for (action, words) in [
        (DsnAction::Failed, "Your message could not be delivered to:"),
        (DsnAction::Delayed, "Delivery of your message is delayed; attempts continue for:"),
        (DsnAction::Relayed, "Your message was relayed to a host that does not confirm delivery, for:"),
        (DsnAction::Expanded, "Your message was forwarded to the members or targets of:"),
        (DsnAction::Delivered, "Your message was delivered to:"),
    ] {
        write_group(report, action, words, &mut text);
    }
    if let Some(archive) = report.archive.filter(|_| report.any(DsnAction::Failed)) {
        text.push_str("\r\nThe message is a post to a mailing list. You can read it in the list's archive:\r\n    ");
        push_clean(archive, utf8, &mut text);
        text.push_str("\r\n");
    }
    if report.any(DsnAction::Delayed) && !report.any(DsnAction::Failed) {
        text.push_str("\r\nThis is only a warning. You do not need to send your message again.\r\n");
    }
    text
}

/// Explains in words what happened to a group of recipients.
fn write_group(report: &Dsn<'_>, action: DsnAction, words: &str, text: &mut String) {
    use std::fmt::Write as _;
    let utf8 = report.smtputf8;
    let mut count = 0;
    for rcpt in report.rcpts.iter().filter(|rcpt| rcpt.action == action) {
        count += 1;
        if count > RECIPIENTS_IN_WORDS_MAX {
            continue;
        }
        if count == 1 {
            text.push_str("\r\n");
            text.push_str(words);
            text.push_str("\r\n");
        }
        text.push_str("\r\n<");
        push_clean(rcpt.address, utf8, text);
        text.push('>');
        for (before, what) in [("", rcpt.reason), ("host ", rcpt.remote_mta), ("it replied: ", rcpt.diagnostic)] {
            if let Some(what) = what {
                text.push_str("\r\n    ");
                text.push_str(before);
                push_clean(what, utf8, text);
            }
        }
        text.push_str("\r\n");
    }
    if count > RECIPIENTS_IN_WORDS_MAX {
        let more = count - RECIPIENTS_IN_WORDS_MAX;
        let _ = write!(text, "\r\nand {more} more");
        text.push_str(if report.rcpts.len() > RECIPIENTS_MAX { ".\r\n" } else { ", listed in the next part.\r\n" });
    }
}

fn write_status(report: &Dsn<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Content-Type: message/delivery-status\r\nContent-Description: Delivery report\r\n\r\n");
    write_field("Reporting-MTA", &["dns; ", report.hostname], false, out);
    let envid = report.envid.map(decode_xtext);
    for (name, before, value) in [
        ("Original-Envelope-Id", "", envid.as_deref()),
        ("X-Queue-ID", "", Some(report.queue_id).filter(|id| !id.is_empty())),
        ("Received-From-MTA", "dns; ", report.received_from),
        ("Arrival-Date", "", report.arrival),
    ] {
        if let Some(value) = value {
            write_field(name, &[before, value], false, out);
        }
    }
    let listed = report.rcpts.len().min(RECIPIENTS_MAX);
    let diagnostic_max = (DIAGNOSTICS_BYTES_MAX / listed.max(1)).clamp(DIAGNOSTIC_BYTES_MIN, VALUE_BYTES_MAX);
    for rcpt in report.rcpts.iter().take(RECIPIENTS_MAX) {
        out.extend_from_slice(b"\r\n");
        write_rcpt(rcpt, diagnostic_max, out);
    }
}

fn write_rcpt(rcpt: &ReportRcpt<'_>, diagnostic_max: usize, out: &mut Vec<u8>) {
    if let Some((kind, address)) = rcpt.orcpt.and_then(|orcpt| orcpt.split_once(';')) {
        let kind = if kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') { kind } else { "unknown" };
        write_field("Original-Recipient", &[kind, "; ", &decode_xtext(address)], false, out);
    }
    // RFC 6533 3: a UTF-8 address has its own type.
    let kind = if rcpt.address.is_ascii() { "rfc822; " } else { "utf-8; " };
    write_field("Final-Recipient", &[kind, rcpt.address], false, out);
    write_field("Action", &[rcpt.action.word()], false, out);
    let _ = write!(out, "Status: {}\r\n", rcpt.status);
    for (name, before, value, bytes_max) in [
        ("Remote-MTA", "dns; ", rcpt.remote_mta, VALUE_BYTES_MAX),
        ("Diagnostic-Code", "smtp; ", rcpt.diagnostic, diagnostic_max),
        ("Last-Attempt-Date", "", rcpt.last_attempt, VALUE_BYTES_MAX),
        ("Will-Retry-Until", "", rcpt.will_retry_until, VALUE_BYTES_MAX),
    ] {
        if let Some(value) = value {
            write_bounded(name, &[before, value], false, bytes_max, out);
        }
    }
}

/// Decodes xtext (RFC 3461 4). Malformed escapes stay; invalid UTF-8 becomes U+FFFD.
fn decode_xtext(text: &str) -> String {
    let hex = |b: u8| char::from(b).to_digit(16).filter(|_| !b.is_ascii_lowercase());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if let (b'+', [high, low, after @ ..]) = (first, tail)
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            bytes.push((high * 16 + low) as u8);
            rest = after;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The part of the original that is returned.
struct Original {
    /// Octets with CRLF line ends, and no other CR, LF or NUL.
    bytes: Vec<u8>,
    whole: bool,
    /// The header section contains UTF-8, as SMTPUTF8 permits.
    is_global: bool,
}

impl Original {
    fn of(report: &Dsn<'_>) -> Self {
        let original = report.original;
        let whole = report.any(DsnAction::Failed)
            && report.ret == Ret::Full
            && report.original_whole
            && original.len() <= ORIGINAL_BYTES_MAX;
        let part = if whole { original } else { header_section(original) };
        let is_global = report.smtputf8 && !header_section(part).is_ascii();
        Self { bytes: normalise(part), whole, is_global }
    }

    fn is_eight_bit(&self) -> bool {
        !self.is_global && !self.bytes.is_ascii()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let kind = match (self.whole, self.is_global) {
            (true, false) => "message/rfc822",
            (true, true) => "message/global",
            (false, false) => "text/rfc822-headers",
            (false, true) => "message/global-headers",
        };
        let _ = write!(out, "Content-Type: {kind}\r\n");
        if self.is_global {
            out.extend_from_slice(b"Content-Transfer-Encoding: quoted-printable\r\n");
        } else if !self.bytes.is_ascii() {
            out.extend_from_slice(b"Content-Transfer-Encoding: 8bit\r\n");
        }
        let what = if self.whole { "Undelivered message" } else { "Header section of the message" };
        let _ = write!(out, "Content-Description: {what}\r\n\r\n");
        if !self.is_global {
            out.extend_from_slice(&self.bytes);
            return;
        }
        // RFC 6532 3.7 and RFC 6533 6 permit encoding these two types, so that they pass where SMTPUTF8 is not offered.
        let mut encoder = QuotedPrintable::default();
        for line in self.bytes.split_inclusive(|&b| b == b'\n') {
            encoder.push(line.strip_suffix(b"\r\n").unwrap_or(line), out);
            encoder.end_line(out);
        }
    }
}

/// Returns the header section without the empty line, at most [`ORIGINAL_HEADER_BYTES_MAX`] octets in whole lines.
fn header_section(original: &[u8]) -> &[u8] {
    let end = if original.starts_with(b"\r\n") {
        0
    } else {
        memchr::memmem::find(original, b"\r\n\r\n").map_or(original.len(), |at| at + 2)
    };
    if end <= ORIGINAL_HEADER_BYTES_MAX {
        return &original[..end];
    }
    let cut = &original[..ORIGINAL_HEADER_BYTES_MAX];
    memchr::memrchr(b'\n', cut).map_or(&[], |at| &cut[..=at])
}

/// Normalizes line ends: bare CR and LF become CRLF, NUL becomes a space; the end is a line end unless there is
/// nothing.
fn normalise(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    let mut rest = bytes;
    while let Some(at) = memchr::memchr3(b'\r', b'\n', 0, rest) {
        out.extend_from_slice(&rest[..at]);
        let (text, used): (&[u8], usize) = match rest[at] {
            0 => (b" ", 1),
            b'\r' if rest.get(at + 1) == Some(&b'\n') => (b"\r\n", 2),
            _ => (b"\r\n", 1),
        };
        out.extend_from_slice(text);
        rest = &rest[at + used..];
    }
    out.extend_from_slice(rest);
    if !out.is_empty() && !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Returns a boundary that does not occur in the original. The other parts cannot hold a line that begins with "--":
/// all their lines begin with our words, a space or `<`.
fn boundary(message_id: &str, original: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(message_id.as_bytes());
    let mut seed = hasher.finish();
    loop {
        let boundary = format!("=_{seed:016x}_report");
        if memchr::memmem::find(original, boundary.as_bytes()).is_none() {
            return boundary;
        }
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
}
