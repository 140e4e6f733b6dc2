//! Parser for Exim's main log.
//!
//! ```text
//! 2026-11-22 03:00:00 1tEk2j-000abc-1x <= a@x H=host (helo) [192.0.2.1] P=esmtp S=321 id=1@x for b@y c@y
//! 2026-11-22 03:00:01 1tEk2j-000abc-1x => b@y <orig@z> R=dnslookup T=remote_smtp H=mx.y [192.0.2.2] X=TLS1.3:...
//! C="250 ok" QT=1s DT=0s 2026-11-22 03:00:01 1tEk2j-000abc-1x == c@y R=dnslookup T=remote_smtp defer (-44) H=mx.y
//! [192.0.2.2]: 451 later 2026-11-22 03:00:01 1tEk2j-000abc-1x ** d@y R=dnslookup T=remote_smtp H=mx.y [192.0.2.2]:
//! SMTP error ...: 550 no 2026-11-22 03:00:01 1tEk2j-000abc-1x Completed
//! ```

use memchr::{memchr, memmem};

use super::state::State;
use super::text::{bare, between, dsn, ip, spans_ms};
use super::{Line, Out};
use crate::record::{Accepted, Attempt, Ms, Note, Record, Refused, Stat};

pub fn line(at: Ms, rest: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    // `[pid] `, if the log includes it.
    let rest = match rest.strip_prefix('[').and_then(|inner| inner.split_once("] ")) {
        Some((pid, after)) if pid.bytes().all(|byte| byte.is_ascii_digit()) => after,
        _ => rest,
    };
    let Some((id, rest)) = split_id(rest) else { return without_id(at, rest, out) };
    let (flag, fields) = rest.split_once(' ').unwrap_or((rest, ""));
    match flag {
        "<=" => accepted(at, id, fields, state, out),
        "=>" | "->" | ">>" | "*>" => attempt(at, id, fields, Stat::Sent, state, out),
        "==" => attempt(at, id, fields, Stat::Deferred, state, out),
        "**" => attempt(at, id, fields, Stat::Bounced, state, out),
        _ => {
            let done = rest == "Completed" || rest.starts_with("Completed QT=");
            if done {
                state.forget(id);
            } else if let Some(refused) = refusal(at, rest) {
                out.put(&refused);
                return Line::Read;
            }
            out.put(&Record::Note(Note { at, id, text: rest, is_end: done, ..Note::default() }));
            Line::Read
        }
    }
}

/// Splits off the id, `1tEk2j-000abc-1x`, since 4.97 `1tEk2j-00000000abc-1xyz`: three alphanumeric parts.
fn split_id(rest: &str) -> Option<(&str, &str)> {
    let space = memchr(b' ', rest.as_bytes())?;
    let id = &rest[..space];
    let bytes = id.as_bytes();
    let second = match bytes.len() {
        16 => 13,
        23 => 18,
        _ => return None,
    };
    let shape = |(at, byte): (usize, &u8)| {
        if at == 6 || at == second { *byte == b'-' } else { byte.is_ascii_alphanumeric() }
    };
    bytes.iter().enumerate().all(shape).then_some((id, &rest[space + 1..]))
}

fn without_id(at: Ms, rest: &str, out: &mut Out<'_, '_>) -> Line {
    match refusal(at, rest) {
        Some(refused) => {
            out.put(&refused);
            Line::Read
        }
        None => Line::Other,
    }
}

/// Reads `H=host [192.0.2.1] F=<a@x> rejected RCPT <b@y>: no`, also `temporarily rejected`.
fn refusal(at: Ms, rest: &str) -> Option<Record<'_>> {
    let found = memmem::find(rest.as_bytes(), b"rejected ")?;
    let (before, behind) = (&rest[..found], &rest[found + "rejected ".len()..]);
    if !before.contains("H=") {
        return None;
    }
    Some(Record::Refused(Refused {
        at,
        client: between(before, "[", "]").and_then(ip),
        from: between(before, " F=<", ">").unwrap_or_default(),
        to: behind.strip_prefix("RCPT <").and_then(|to| to.split_once('>')).map_or("", |(to, _)| to),
        reply: behind,
        ..Refused::default()
    }))
}

/// Splits off the next word, in which quotes hide spaces, from the rest.
fn word(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let mut quoted = false;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b' ' if !quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
        at += 1;
    }
    if !quoted {
        return (text, "");
    }
    // An unterminated quote hides nothing.
    text.split_once(' ').unwrap_or((text, ""))
}

/// Reads `K=value` at the beginning of a word.
fn field(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=')?;
    (!key.is_empty() && key.len() <= 4 && key.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some((key, value))
}

fn accepted(at: Ms, id: &str, fields: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let (from, mut rest) = word(fields);
    if from.is_empty() {
        return Line::Broken;
    }
    let mut record = Accepted { at, id, from: bare(from), ..Accepted::default() };
    let mut tls = "";
    while !rest.is_empty() {
        let (next, after) = word(rest);
        rest = after;
        if next == "for" {
            record.recipients = rest.split(' ').filter(|to| !to.is_empty()).count() as u64;
            break;
        }
        match field(next) {
            // In brackets it is only the name that the client gave itself.
            Some(("H", host)) if !host.starts_with('(') => record.client_host = host,
            Some(("P", proto)) => record.proto = proto,
            Some(("S", size)) => record.size = size.parse().unwrap_or(0),
            Some(("id", message_id)) => record.message_id = message_id,
            Some(("X", session)) => tls = session,
            None if record.client.is_none() && next.starts_with('[') => {
                record.client = ip(next[1..].split(']').next().unwrap_or_default());
            }
            _ => {}
        }
    }
    record.tls = tls;
    let known = state.enter(id);
    known.from = record.from.into();
    known.size = record.size;
    known.accepted = at;
    out.put(&Record::Accepted(record));
    Line::Read
}

fn attempt(at: Ms, id: &str, fields: &str, stat: Stat, state: &State, out: &mut Out<'_, '_>) -> Line {
    let (mut to, mut rest) = word(fields);
    let mut record = Attempt { at, id, stat, ..Attempt::default() };
    // `b@y: Unrouteable address`
    let mut over = false;
    if let Some(address) = to.strip_suffix(':') {
        to = address;
        over = true;
    }
    if to.is_empty() {
        return Line::Broken;
    }
    let mut queued_ms = None;
    while !over && !rest.is_empty() {
        let (next, after) = word(rest);
        let ends = next.len() > 1 && next.ends_with(':') && stat != Stat::Sent;
        let next = if ends { &next[..next.len() - 1] } else { next };
        // The original address, before aliases.
        if next.starts_with('<') && next.ends_with('>') && record.mailer.is_empty() {
            to = if next.len() > 2 { bare(next) } else { to };
        }
        match field(next) {
            Some(("T", transport)) => record.mailer = transport,
            Some(("H", host)) => record.host = host,
            Some(("F", from)) => record.from = bare(from),
            Some(("S", size)) => record.size = size.parse().unwrap_or(0),
            Some(("X", session)) => record.tls = session,
            Some(("C", reply)) => record.reply = reply.trim_matches('"'),
            Some(("QT", time)) => queued_ms = spans_ms(time),
            Some(("DT", time)) => record.xdelay_ms = spans_ms(time).unwrap_or(0),
            None if next.starts_with('[') && !record.host.is_empty() && record.ip.is_none() => {
                let (address, port) = next[1..].split_once(']').unwrap_or_default();
                record.ip = ip(address);
                record.port = port.strip_prefix(':').and_then(|port| port.parse().ok()).unwrap_or(0);
            }
            _ => {}
        }
        rest = after;
        over = ends;
    }
    if stat != Stat::Sent {
        record.reply = rest;
        // `Connection refused DT=0.000s`
        if let Some((reply, time)) = rest.rsplit_once(" DT=")
            && let Some(ms) = spans_ms(time)
        {
            record.reply = reply;
            record.xdelay_ms = ms;
        }
    }
    record.dsn = dsn(reply_of(record.reply));
    record.to.push(to);
    if let Some(known) = state.known(id) {
        if record.from.is_empty() {
            record.from = &known.from;
        }
        if record.size == 0 {
            record.size = known.size;
        }
        record.delay_ms = at.saturating_sub(known.accepted);
    }
    if let Some(queued_ms) = queued_ms {
        record.delay_ms = queued_ms;
    }
    finish(record, out);
    Line::Read
}

/// A timeout is not an attempt: the last attempt has its own line.
fn finish(attempt: Attempt<'_>, out: &mut Out<'_, '_>) {
    if attempt.stat == Stat::Bounced && attempt.reply.contains("retry timeout exceeded") {
        out.put(&Record::Attempt(Attempt { mailer: "bounce", stat: Stat::Expired, ..attempt }));
    } else {
        out.attempt(attempt);
    }
}

/// The server's reply in `SMTP error from remote mail server after RCPT TO:<b@y>: 550 5.1.1 no`.
fn reply_of(text: &str) -> &str {
    text.rfind(": ").map_or(text, |at| &text[at + 2..])
}
