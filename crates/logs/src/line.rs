//! Formats log lines: one per attempt and group of recipients, and one per acceptance, in sendmail's fields or as JSON.

use std::io::Write;
use std::net::IpAddr;

use stentor_records::escape::{EscapeContext, push};
use stentor_records::record::{Accepted, Attempt, Ms, Note, Record, Refused, Stat, Topic, Unreached, WireChanges};
use stentor_records::time::{push_delay, push_number, push_rfc3339, push_syslog};

use crate::settings::{LogFormat, LogTarget, SyslogTo};

/// Size of the recipients on one line; the others follow on further lines with the same fields, as in sendmail's log.
pub const TO_BYTES_MAX: usize = 3 * 1024;
/// Largest size of one address, and of each other name or id.
pub const FIELD_BYTES_MAX: usize = 512;
/// Largest size of the reply, or of the reason why there was none.
pub const REPLY_BYTES_MAX: usize = 1024;
/// Facility mail, severity info (RFC 5424 section 6.2.1).
const PRIORITY: &str = "<22>";
/// Prefix of the text about dropped mail.
const DISCARDED: &str = "discarded: ";
/// Prefix of the host of a route to a Unix socket.
const SOCKET: &str = "unix:";

/// Format of the start of a line, depending on its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// Time, host and process, as in files written by syslog daemons; with JSON these are in the object.
    File,
    /// The format for the local `/dev/log`: no host.
    Syslog,
    /// The format of RFC 3164, with the host.
    Rfc3164,
    /// The format of RFC 5424.
    Rfc5424,
    /// Nothing: journald knows time, host and process.
    Bare,
}

impl Head {
    /// The start of lines for a target; `rfc5424`: use that format for syslog.
    pub fn of(target: &LogTarget, rfc5424: bool) -> Head {
        match target {
            LogTarget::Syslog(_) if rfc5424 => Head::Rfc5424,
            LogTarget::Syslog(SyslogTo::Udp(_)) => Head::Rfc3164,
            LogTarget::Syslog(SyslogTo::Unix(_)) => Head::Syslog,
            LogTarget::Journald(_) => Head::Bare,
            LogTarget::Stderr | LogTarget::Stdout | LogTarget::File(_) | LogTarget::Off => Head::File,
        }
    }
}

/// The part of every line that never changes: host and process.
#[derive(Debug)]
pub struct Ident {
    format: LogFormat,
    head: Head,
    /// ` host stentor[pid]: `, in the form that the head needs.
    text: Vec<u8>,
    /// The same for JSON: `","host":"...","pid":...,"event":"`.
    json: Vec<u8>,
}

impl Ident {
    pub fn new(format: LogFormat, head: Head, hostname: &str, pid: u32) -> Ident {
        let (mut text, mut host) = (Vec::new(), Vec::new());
        push(&mut host, hostname, EscapeContext::Field, FIELD_BYTES_MAX);
        // Writing into a vector cannot fail.
        let _ = match head {
            Head::File | Head::Rfc3164 => write!(text, " {} stentor[{pid}]: ", String::from_utf8_lossy(&host)),
            Head::Syslog => write!(text, " stentor[{pid}]: "),
            Head::Rfc5424 => write!(text, " {} stentor {pid} - - ", String::from_utf8_lossy(&host)),
            Head::Bare => Ok(()),
        };
        let mut json = b"\",\"host\":\"".to_vec();
        push(&mut json, hostname, EscapeContext::Json, FIELD_BYTES_MAX);
        let _ = write!(json, "\",\"pid\":{pid},\"event\":\"");
        Ident { format, head, text, json }
    }

    /// Appends the lines of a record. Returns how many. A sample of the machine's load has none.
    pub fn record(&self, out: &mut Vec<u8>, tail: &mut Vec<u8>, record: &Record<'_>) -> u64 {
        match record {
            // No copy was tried: there is no queue id.
            Record::Attempt(attempt)
                if attempt.id.is_empty() && attempt.to.is_empty() && self.format != LogFormat::Json =>
            {
                self.unreached(out, attempt);
                1
            }
            Record::Attempt(attempt) => self.attempt(out, tail, attempt),
            Record::Accepted(message) => self.accepted(out, message),
            Record::Refused(refused) => self.refused(out, refused),
            Record::Note(note) => self.note(out, note),
            Record::Machine(_) => 0,
        }
    }

    /// Appends a failed session or look-up.
    fn unreached(&self, out: &mut Vec<u8>, a: &Attempt<'_>) {
        self.head(out, a.at, "attempt", "");
        if a.is_look_up() {
            let _ = write!(out, "lookup: xdelay={:.3}", a.xdelay_ms as f64 / 1_000.0);
        } else {
            out.extend_from_slice(b"connect: relay=");
            push_relay(out, a.host, a.ip, true);
            if a.ip.is_some() {
                let _ = write!(out, ", port={}", a.port);
            }
            let _ = write!(out, ", xdelay={:.3}", a.xdelay_ms as f64 / 1_000.0);
            push_tls(out, a.tls);
        }
        if let Some(unreached) = &a.unreached {
            push_waiting(out, unreached);
        }
        out.extend_from_slice(b", dsn=");
        push(out, a.dsn, EscapeContext::Field, FIELD_BYTES_MAX);
        push_stat(out, a);
    }

    fn attempt(&self, out: &mut Vec<u8>, tail: &mut Vec<u8>, attempt: &Attempt<'_>) -> u64 {
        let json = self.format == LogFormat::Json;
        tail.clear();
        if json {
            attempt_json_tail(tail, attempt);
        } else {
            attempt_tail(tail, attempt);
        }
        let (place, open, between, close): (_, &[u8], &[u8], &[u8]) =
            if json { (EscapeContext::Json, b"\"", b",", b"\"") } else { (EscapeContext::Field, b"<", b",", b">") };
        let mut lines = 0;
        let mut to = attempt.to.iter().peekable();
        loop {
            self.head(out, attempt.at, "attempt", attempt.id);
            out.extend_from_slice(if json { b",\"to\":[" } else { b"to=" });
            let start = out.len();
            // An attempt without recipients still gets a line.
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

    fn accepted(&self, out: &mut Vec<u8>, m: &Accepted<'_>) -> u64 {
        self.head(out, m.at, "accepted", m.id);
        if self.format == LogFormat::Json {
            json_text(out, "from", m.from, FIELD_BYTES_MAX);
            json_number(out, "size", m.size);
            json_text(out, "class", if m.is_bulk { "bulk" } else { "ordinary" }, FIELD_BYTES_MAX);
            json_number(out, "nrcpts", m.recipients);
            json_text(out, "msgid", m.message_id, FIELD_BYTES_MAX);
            json_text(out, "proto", m.proto, FIELD_BYTES_MAX);
            json_relay(out, m.client_host, m.client, None);
            json_maybe(out, "list", m.list);
            json_maybe(out, "policy", m.policy);
            json_maybe(out, "tls", m.tls);
            json_addresses(out, "orig_to", &m.named);
            json_maybe(out, "orig_from", m.orig_from);
            json_maybe(out, "user", m.user);
            if !m.marks.is_empty() {
                json_text(out, "marks", m.marks, REPLY_BYTES_MAX);
            }
            out.extend_from_slice(b"}\n");
            return 1;
        }
        out.extend_from_slice(b"from=<");
        push(out, m.from, EscapeContext::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b">, size=");
        push_number(out, m.size, 1);
        out.extend_from_slice(if m.is_bulk { b", class=-60, nrcpts=" } else { b", class=0, nrcpts=" });
        push_number(out, m.recipients, 1);
        out.extend_from_slice(b", msgid=");
        push_message_id(out, m.message_id);
        out.extend_from_slice(b", proto=");
        push(out, m.proto, EscapeContext::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b", relay=");
        push_relay(out, m.client_host, m.client, false);
        push_tls(out, m.tls);
        push_user(out, m.user);
        if !m.orig_from.is_empty() {
            push_addresses(out, b", orig_from=", &[m.orig_from]);
        }
        push_addresses(out, b", orig_to=", &m.named);
        if !m.marks.is_empty() {
            out.extend_from_slice(b", marks=");
            push(out, m.marks, EscapeContext::Rest, REPLY_BYTES_MAX);
        }
        out.push(b'\n');
        1
    }

    /// Appends the policy rule that an acceptance matched, as a separate line.
    pub fn policy(&self, out: &mut Vec<u8>, m: &Accepted<'_>) -> u64 {
        self.head(out, m.at, "policy", m.id);
        if self.format == LogFormat::Json {
            json_text(out, "text", m.policy, REPLY_BYTES_MAX);
            if !m.marks.is_empty() {
                json_text(out, "marks", m.marks, REPLY_BYTES_MAX);
            }
            out.extend_from_slice(b"}\n");
        } else {
            out.extend_from_slice(b"policy: ");
            push(out, m.policy, EscapeContext::Rest, REPLY_BYTES_MAX);
            if !m.marks.is_empty() {
                out.extend_from_slice(b"; ");
                push(out, m.marks, EscapeContext::Rest, REPLY_BYTES_MAX);
            }
            out.push(b'\n');
        }
        1
    }

    /// Appends a refusal in the form of sendmail's rule sets, with the sender.
    fn refused(&self, out: &mut Vec<u8>, r: &Refused<'_>) -> u64 {
        self.head(out, r.at, "refused", "");
        if self.format == LogFormat::Json {
            json_text(out, "step", r.step, FIELD_BYTES_MAX);
            json_text(out, "from", r.from, FIELD_BYTES_MAX);
            json_text(out, "to", r.to, FIELD_BYTES_MAX);
            json_relay(out, "", r.client, None);
            if r.recipients > 0 {
                let _ = write!(out, ",\"size\":{},\"nrcpts\":{}", r.size, r.recipients);
            }
            json_maybe(out, "msgid", r.message_id);
            json_addresses(out, "orig_to", &r.named);
            json_maybe(out, "user", r.user);
            json_text(out, "policy", r.policy, REPLY_BYTES_MAX);
            json_text(out, "reply", r.reply, REPLY_BYTES_MAX);
            out.extend_from_slice(b"}\n");
            return 1;
        }
        let (rules, argument) = match r.step {
            "RCPT" => ("check_rcpt", r.to),
            "MAIL" => ("check_mail", r.from),
            "CONNECT" => ("check_relay", ""),
            "DATA" => ("check_data", r.from),
            _ => ("check_eom", r.from),
        };
        let _ = write!(out, "ruleset={rules}, arg1=<");
        push(out, argument, EscapeContext::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b">, from=<");
        push(out, r.from, EscapeContext::Field, FIELD_BYTES_MAX);
        out.extend_from_slice(b">, relay=");
        push_relay(out, "", r.client, false);
        if r.recipients > 0 {
            let _ = write!(out, ", size={}, nrcpts={}", r.size, r.recipients);
        }
        push_user(out, r.user);
        if !r.message_id.is_empty() {
            out.extend_from_slice(b", msgid=");
            push_message_id(out, r.message_id);
        }
        push_addresses(out, b", orig_to=", &r.named);
        if !r.policy.is_empty() {
            out.extend_from_slice(b", policy=");
            push(out, r.policy, EscapeContext::Words, REPLY_BYTES_MAX);
        }
        out.extend_from_slice(b", reject=");
        push(out, r.reply, EscapeContext::Rest, REPLY_BYTES_MAX);
        out.push(b'\n');
        1
    }

    /// Appends a note about a message or about the server.
    pub fn note(&self, out: &mut Vec<u8>, note: &Note<'_>) -> u64 {
        self.head(out, note.at, "note", note.id);
        if self.format == LogFormat::Json {
            let topic = match note.topic {
                Topic::Server => "server",
                Topic::Delivery => "delivery",
                Topic::Policy => "policy",
                Topic::Audit => "audit",
            };
            json_text(out, "topic", topic, FIELD_BYTES_MAX);
            json_text(out, "text", note.text, REPLY_BYTES_MAX);
            json_addresses(out, "to", &note.to);
            json_maybe(out, "msgid", note.message_id);
            out.extend_from_slice(b"}\n");
        } else {
            // Dropped mail: the recipients come first, as on lines of attempts.
            let text = match note.text.strip_prefix(DISCARDED) {
                Some(rest) if !note.to.is_empty() => {
                    out.extend_from_slice(DISCARDED.as_bytes());
                    push_addresses(out, b"to=", &note.to);
                    out.extend_from_slice(b", msgid=");
                    push_message_id(out, note.message_id);
                    out.extend_from_slice(b", ");
                    rest
                }
                _ => note.text,
            };
            push(out, text, EscapeContext::Rest, REPLY_BYTES_MAX);
            out.push(b'\n');
        }
        1
    }

    fn head(&self, out: &mut Vec<u8>, now: Ms, event: &str, id: &str) {
        let json = self.format == LogFormat::Json;
        match self.head {
            Head::File if json => {}
            Head::File => push_syslog(out, now),
            Head::Syslog | Head::Rfc3164 => {
                out.extend_from_slice(PRIORITY.as_bytes());
                push_syslog(out, now);
            }
            Head::Rfc5424 => {
                out.extend_from_slice(PRIORITY.as_bytes());
                out.extend_from_slice(b"1 ");
                push_rfc3339(out, now);
            }
            Head::Bare => {}
        }
        if !(json && self.head == Head::File) {
            out.extend_from_slice(&self.text);
        }
        if json {
            out.extend_from_slice(b"{\"time\":\"");
            push_rfc3339(out, now);
            out.extend_from_slice(&self.json);
            out.extend_from_slice(event.as_bytes());
            out.push(b'"');
            if !id.is_empty() {
                json_text(out, "id", id, FIELD_BYTES_MAX);
            }
        } else if !id.is_empty() {
            push(out, id, EscapeContext::Field, FIELD_BYTES_MAX);
            out.extend_from_slice(b": ");
        }
    }
}

/// Appends a Message-ID in its angle brackets; further brackets inside are escaped.
fn push_message_id(out: &mut Vec<u8>, message_id: &str) {
    let inner = message_id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(message_id);
    out.push(b'<');
    push(out, inner, EscapeContext::Field, FIELD_BYTES_MAX);
    out.push(b'>');
}

/// Appends the local or authenticated user who submitted a message, if any.
fn push_user(out: &mut Vec<u8>, user: &str) {
    if !user.is_empty() {
        out.extend_from_slice(b", user=");
        push(out, user, EscapeContext::Words, FIELD_BYTES_MAX);
    }
}

/// Appends a field of addresses in angle brackets, as many as fit on one line; nothing if there are none.
fn push_addresses(out: &mut Vec<u8>, name: &[u8], all: &[&str]) {
    let (mut before, start) = (name, out.len());
    for address in all {
        if out.len() - start >= TO_BYTES_MAX {
            break;
        }
        out.extend_from_slice(before);
        out.push(b'<');
        push(out, address, EscapeContext::Field, FIELD_BYTES_MAX);
        out.push(b'>');
        before = b",";
    }
}

fn json_addresses(out: &mut Vec<u8>, name: &str, all: &[&str]) {
    if all.is_empty() {
        return;
    }
    json_name(out, name);
    let (mut before, start) = (b'[', out.len());
    for address in all {
        if out.len() - start >= TO_BYTES_MAX {
            break;
        }
        out.extend_from_slice(&[before, b'"']);
        push(out, address, EscapeContext::Json, FIELD_BYTES_MAX);
        out.push(b'"');
        before = b',';
    }
    out.push(b']');
}

fn attempt_tail(out: &mut Vec<u8>, a: &Attempt<'_>) {
    out.extend_from_slice(b", from=<");
    push(out, a.from, EscapeContext::Field, FIELD_BYTES_MAX);
    out.extend_from_slice(b">, delay=");
    push_delay(out, a.delay_ms);
    out.extend_from_slice(b", xdelay=");
    push_delay(out, a.xdelay_ms);
    out.extend_from_slice(b", mailer=");
    push(out, a.mailer, EscapeContext::Field, FIELD_BYTES_MAX);
    out.extend_from_slice(b", relay=");
    push_relay(out, a.host, a.ip, true);
    push_tls(out, a.tls);
    if a.recoded != WireChanges::default() {
        out.extend_from_slice(b", recoded=");
        out.extend_from_slice(a.recoded.name().as_bytes());
    }
    out.extend_from_slice(b", dsn=");
    push(out, a.dsn, EscapeContext::Field, FIELD_BYTES_MAX);
    push_stat(out, a);
}

/// Appends how the session is protected.
fn push_tls(out: &mut Vec<u8>, tls: &str) {
    if !tls.is_empty() {
        out.extend_from_slice(b", tls=");
        push(out, tls, EscapeContext::Field, FIELD_BYTES_MAX);
    }
}

/// Appends `site=mx.example.net, waiting=12, domains=example.net:10,example.org:2`.
fn push_waiting(out: &mut Vec<u8>, u: &Unreached<'_>) {
    if !u.site.is_empty() {
        out.extend_from_slice(b", site=");
        push(out, u.site, EscapeContext::Field, FIELD_BYTES_MAX);
    }
    let _ = write!(out, ", waiting={}", u.waiting);
    for (at, (domain, waiting)) in u.domains.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b", domains=" } else { b"," });
        push(out, domain, EscapeContext::Field, FIELD_BYTES_MAX);
        let _ = write!(out, ":{waiting}");
    }
}

/// Appends the last field, which may contain commas.
fn push_stat(out: &mut Vec<u8>, a: &Attempt<'_>) {
    out.extend_from_slice(b", stat=");
    out.extend_from_slice(stat_text(a.stat).as_bytes());
    let (before, after): (&[u8], &[u8]) = if a.stat == Stat::Sent { (b" (", b")") } else { (b": ", b"") };
    if !a.reply.is_empty() {
        out.extend_from_slice(before);
        push(out, a.reply, EscapeContext::Rest, REPLY_BYTES_MAX);
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
    json_relay(out, a.host, a.ip, Some(a.port));
    json_text(out, "dsn", a.dsn, FIELD_BYTES_MAX);
    json_text(out, "stat", stat_text(a.stat), FIELD_BYTES_MAX);
    json_text(out, "reply", a.reply, REPLY_BYTES_MAX);
    json_maybe(out, "list", a.list);
    json_maybe(out, "source", a.source);
    json_maybe(out, "tls", a.tls);
    json_maybe(out, "recoded", a.recoded.name());
    if let Some(unreached) = &a.unreached {
        json_maybe(out, "site", unreached.site);
        json_number(out, "waiting", unreached.waiting);
        json_name(out, "domains");
        out.push(b'[');
        for (at, (domain, waiting)) in unreached.domains.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b"[\"" } else { b",[\"" });
            push(out, domain, EscapeContext::Json, FIELD_BYTES_MAX);
            let _ = write!(out, "\",{waiting}]");
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}\n");
}

fn stat_text(stat: Stat) -> &'static str {
    match stat {
        Stat::Sent => "Sent",
        Stat::Deferred => "Deferred",
        Stat::Bounced => "Bounced",
        Stat::Expired => "Expired",
        Stat::Removed => "Removed",
        Stat::Coalesced => "Coalesced",
        Stat::Quarantined => "Quarantined",
        Stat::Released => "Released",
    }
}

/// Appends the other end: `host [ip]`, for a server with sendmail's dot: `mx.example.org. [192.0.2.34]`.
fn push_relay(out: &mut Vec<u8>, host: &str, ip: Option<IpAddr>, server: bool) {
    // An address literal or a route by address has no name of its own.
    let is_named = !host.is_empty() && !host.starts_with('[') && host.parse::<IpAddr>().is_err();
    if is_named {
        push(out, host, EscapeContext::Field, FIELD_BYTES_MAX);
        if server && !host.ends_with('.') && !host.starts_with(SOCKET) {
            out.push(b'.');
        }
    }
    match ip {
        Some(ip) => {
            let _ = write!(out, "{}[{}]", if is_named { " " } else { "" }, ip.to_canonical());
        }
        None if !is_named => out.extend_from_slice(b"none"),
        None => {}
    }
}

fn json_relay(out: &mut Vec<u8>, host: &str, ip: Option<IpAddr>, port: Option<u16>) {
    if ip.is_none() && !host.starts_with(SOCKET) {
        out.extend_from_slice(b",\"relay\":null");
        return;
    }
    out.extend_from_slice(b",\"relay\":{\"host\":\"");
    push(out, host, EscapeContext::Json, FIELD_BYTES_MAX);
    out.push(b'"');
    if let Some(ip) = ip {
        let _ = write!(out, ",\"ip\":\"{}\"", ip.to_canonical());
        if let Some(port) = port {
            let _ = write!(out, ",\"port\":{port}");
        }
    }
    out.push(b'}');
}

/// Appends a text, unless it is empty.
fn json_maybe(out: &mut Vec<u8>, name: &str, text: &str) {
    if !text.is_empty() {
        json_text(out, name, text, FIELD_BYTES_MAX);
    }
}

fn json_text(out: &mut Vec<u8>, name: &str, text: &str, bytes_max: usize) {
    json_name(out, name);
    out.push(b'"');
    push(out, text, EscapeContext::Json, bytes_max);
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
