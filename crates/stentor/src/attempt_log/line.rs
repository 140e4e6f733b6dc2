//! One log line per attempt and group of recipients, and one per acceptance, in sendmail's fields or as JSON.

use std::io::Write;
use std::net::SocketAddr;

use stentor_queue::ids::{MessageId, Ms};

use super::escape::{Place, push};
use super::time::{push_delay, push_number, push_rfc3339, push_syslog};

/// The recipients on one line; the others follow on further lines with the same fields, as sendmail does it.
pub const TO_BYTES_MAX: usize = 3 * 1024;
/// One address, and one of the other names and ids.
pub const FIELD_BYTES_MAX: usize = 512;
/// The reply, or the reason why there was none.
pub const REPLY_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `Nov 21 10:54:25 host stentor[123]: QUEUEID: to=<a@b>, ...`
    Sendmail,
    /// One object a line, with the same fields, times in milliseconds.
    Json,
}

/// The other end. Written `host [ip]`, for a server with sendmail's dot: `mx.example.org. [192.0.2.34]`.
#[derive(Clone, Copy, Debug)]
pub struct Relay<'a> {
    /// A server's name out of the DNS or the route, a client's name; empty if none is known.
    pub host: &'a str,
    pub addr: SocketAddr,
}

/// What became of these recipients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stat {
    Sent,
    Deferred,
    Bounced,
    Expired,
    /// By an operator.
    Removed,
}

impl Stat {
    fn text(self) -> &'static str {
        match self {
            Stat::Sent => "Sent",
            Stat::Deferred => "Deferred",
            Stat::Bounced => "Bounced",
            Stat::Expired => "Expired",
            Stat::Removed => "Removed",
        }
    }
}

/// One attempt, for recipients with the same outcome.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub id: MessageId,
    /// The envelope sender, empty for the null path.
    pub from: &'a str,
    /// From acceptance until now.
    pub delay_ms: u64,
    /// This attempt alone.
    pub xdelay_ms: u64,
    /// `esmtp`, `smtp`, `lmtp`, `local`.
    pub mailer: &'a str,
    /// The server, unless none was reached.
    pub relay: Option<Relay<'a>>,
    /// RFC 3463, `2.0.0`.
    pub dsn: &'a str,
    pub stat: Stat,
    /// The server's reply or our reason.
    pub reply: &'a str,
}

/// One message taken over: its 250 has been earned.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    pub id: MessageId,
    pub from: &'a str,
    /// Octets as received.
    pub size: u64,
    /// Of the bulk class; sendmail's `class=-60`, else `class=0`.
    pub bulk: bool,
    /// After expansion and merging.
    pub recipients: u64,
    /// The Message-ID field's value, `<...>`; may be empty.
    pub message_id: &'a str,
    /// `ESMTP`, `SMTP`, `UTF8SMTP`, `local`.
    pub proto: &'a str,
    pub relay: Option<Relay<'a>>,
}

/// Who writes: the part of every line that does not change.
#[derive(Debug)]
pub struct Ident {
    format: Format,
    /// ` host stentor[pid]: ` or `","host":"...","pid":...,"event":"`.
    text: Vec<u8>,
}

impl Ident {
    pub fn new(format: Format, hostname: &str, pid: u32) -> Ident {
        let mut text = Vec::new();
        match format {
            Format::Sendmail => {
                text.push(b' ');
                push(&mut text, hostname, Place::Field, FIELD_BYTES_MAX);
                text.extend_from_slice(b" stentor[");
                push_number(&mut text, pid.into(), 1);
                text.extend_from_slice(b"]: ");
            }
            Format::Json => {
                text.extend_from_slice(b"\",\"host\":\"");
                push(&mut text, hostname, Place::Json, FIELD_BYTES_MAX);
                text.extend_from_slice(b"\",\"pid\":");
                push_number(&mut text, pid.into(), 1);
                text.extend_from_slice(b",\"event\":\"");
            }
        }
        Ident { format, text }
    }

    /// Appends the lines of one attempt; says how many.
    pub fn attempt<'t>(
        &self,
        out: &mut Vec<u8>,
        tail: &mut Vec<u8>,
        now: Ms,
        attempt: &Attempt<'_>,
        to: impl IntoIterator<Item = &'t str>,
    ) -> u64 {
        let json = self.format == Format::Json;
        tail.clear();
        if json {
            attempt_json_tail(tail, attempt);
        } else {
            attempt_tail(tail, attempt);
        }
        let (place, open, between, close): (_, &[u8], &[u8], &[u8]) =
            if json { (Place::Json, b"\"", b",", b"\"") } else { (Place::Field, b"<", b",", b">") };
        let mut lines = 0;
        let mut to = to.into_iter().peekable();
        loop {
            self.head(out, now, "attempt", Some(attempt.id));
            out.extend_from_slice(if json { b",\"to\":[" } else { b"to=" });
            let start = out.len();
            // An attempt without recipients is still an attempt.
            if to.peek().is_none() && !json {
                out.extend_from_slice(b"<>");
            }
            while let Some(address) = to.next_if(|_| out.len() - start < TO_BYTES_MAX) {
                if out.len() > start {
                    out.extend_from_slice(between);
                }
                out.extend_from_slice(open);
                push(out, address, place, FIELD_BYTES_MAX);
                out.extend_from_slice(close);
            }
            out.extend_from_slice(tail);
            lines += 1;
            if to.peek().is_none() {
                return lines;
            }
        }
    }

    pub fn accepted(&self, out: &mut Vec<u8>, now: Ms, m: &Accepted<'_>) {
        self.head(out, now, "accepted", Some(m.id));
        if self.format == Format::Json {
            json_text(out, "from", m.from, FIELD_BYTES_MAX);
            json_number(out, "size", m.size);
            json_text(out, "class", if m.bulk { "bulk" } else { "ordinary" }, FIELD_BYTES_MAX);
            json_number(out, "nrcpts", m.recipients);
            json_text(out, "msgid", m.message_id, FIELD_BYTES_MAX);
            json_text(out, "proto", m.proto, FIELD_BYTES_MAX);
            json_relay(out, m.relay);
            out.extend_from_slice(b"}\n");
            return;
        }
        out.extend_from_slice(b"from=<");
        push(out, m.from, Place::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b">, size=");
        push_number(out, m.size, 1);
        out.extend_from_slice(if m.bulk { b", class=-60, nrcpts=" } else { b", class=0, nrcpts=" });
        push_number(out, m.recipients, 1);
        // The angle brackets of a Message-ID are its own; anything else of that kind inside is escaped.
        let inner = m.message_id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(m.message_id);
        out.extend_from_slice(b", msgid=<");
        push(out, inner, Place::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b">, proto=");
        push(out, m.proto, Place::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b", relay=");
        push_relay(out, m.relay, false);
        out.push(b'\n');
    }

    /// Anything else that belongs into the log, about a message or about the server.
    pub fn note(&self, out: &mut Vec<u8>, now: Ms, id: Option<MessageId>, text: &str) {
        self.head(out, now, "note", id);
        if self.format == Format::Json {
            json_text(out, "text", text, REPLY_BYTES_MAX);
            out.extend_from_slice(b"}\n");
        } else {
            push(out, text, Place::Rest, REPLY_BYTES_MAX);
            out.push(b'\n');
        }
    }

    fn head(&self, out: &mut Vec<u8>, now: Ms, event: &str, id: Option<MessageId>) {
        if self.format == Format::Json {
            out.extend_from_slice(b"{\"time\":\"");
            push_rfc3339(out, now);
            out.extend_from_slice(&self.text);
            out.extend_from_slice(event.as_bytes());
            out.push(b'"');
            if let Some(id) = id {
                // Writing into a vector cannot fail.
                let _ = write!(out, ",\"id\":\"{id}\"");
            }
        } else {
            push_syslog(out, now);
            out.extend_from_slice(&self.text);
            if let Some(id) = id {
                let _ = write!(out, "{id}: ");
            }
        }
    }
}

fn attempt_tail(out: &mut Vec<u8>, a: &Attempt<'_>) {
    out.extend_from_slice(b", from=<");
    push(out, a.from, Place::Field, FIELD_BYTES_MAX);
    out.extend_from_slice(b">, delay=");
    push_delay(out, a.delay_ms);
    out.extend_from_slice(b", xdelay=");
    push_delay(out, a.xdelay_ms);
    out.extend_from_slice(b", mailer=");
    push(out, a.mailer, Place::Field, FIELD_BYTES_MAX);
    out.extend_from_slice(b", relay=");
    push_relay(out, a.relay, true);
    out.extend_from_slice(b", dsn=");
    push(out, a.dsn, Place::Field, FIELD_BYTES_MAX);
    out.extend_from_slice(b", stat=");
    out.extend_from_slice(a.stat.text().as_bytes());
    let (before, after): (&[u8], &[u8]) = if a.stat == Stat::Sent { (b" (", b")") } else { (b": ", b"") };
    if !a.reply.is_empty() {
        out.extend_from_slice(before);
        push(out, a.reply, Place::Rest, REPLY_BYTES_MAX);
        out.extend_from_slice(after);
    }
    out.push(b'\n');
}

fn attempt_json_tail(out: &mut Vec<u8>, a: &Attempt<'_>) {
    out.push(b']');
    json_text(out, "from", a.from, FIELD_BYTES_MAX);
    json_number(out, "delay_ms", a.delay_ms);
    json_number(out, "xdelay_ms", a.xdelay_ms);
    json_text(out, "mailer", a.mailer, FIELD_BYTES_MAX);
    json_relay(out, a.relay);
    json_text(out, "dsn", a.dsn, FIELD_BYTES_MAX);
    json_text(out, "stat", a.stat.text(), FIELD_BYTES_MAX);
    json_text(out, "reply", a.reply, REPLY_BYTES_MAX);
    out.extend_from_slice(b"}\n");
}

fn push_relay(out: &mut Vec<u8>, relay: Option<Relay<'_>>, server: bool) {
    let Some(relay) = relay else {
        out.extend_from_slice(b"none");
        return;
    };
    // An address literal or a route by address has no name of its own.
    if !relay.host.is_empty() && !relay.host.starts_with('[') && relay.host.parse::<std::net::IpAddr>().is_err() {
        push(out, relay.host, Place::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(if server && !relay.host.ends_with('.') { b". " } else { b" " });
    }
    let _ = write!(out, "[{}]", relay.addr.ip().to_canonical());
}

fn json_relay(out: &mut Vec<u8>, relay: Option<Relay<'_>>) {
    match relay {
        None => out.extend_from_slice(b",\"relay\":null"),
        Some(relay) => {
            out.extend_from_slice(b",\"relay\":{\"host\":\"");
            push(out, relay.host, Place::Json, FIELD_BYTES_MAX);
            let _ = write!(out, "\",\"ip\":\"{}\",\"port\":{}}}", relay.addr.ip().to_canonical(), relay.addr.port());
        }
    }
}

fn json_text(out: &mut Vec<u8>, name: &str, text: &str, bytes_max: usize) {
    json_name(out, name);
    out.push(b'"');
    push(out, text, Place::Json, bytes_max);
    out.push(b'"');
}

fn json_number(out: &mut Vec<u8>, name: &str, n: u64) {
    json_name(out, name);
    push_number(out, n, 1);
}

fn json_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}
