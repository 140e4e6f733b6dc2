//! Parser for Postfix's log: a message's lines come from several processes, tied together by its queue id.
//!
//! ```text
//! smtpd[1]: 4F0C1: client=host[192.0.2.1]          cleanup[2]: 4F0C1: message-id=<1@x>
//! qmgr[3]: 4F0C1: from=<a@x>, size=1, nrcpt=2 (queue active)
//! smtp[4]: 4F0C1: to=<b@y>, relay=mx.y[192.0.2.2]:25, delay=1.2, delays=0.1/0/0.5/0.6, dsn=2.0.0, status=sent (250 ok)
//! qmgr[3]: 4F0C1: from=<a@x>, status=expired, returned to sender          qmgr[3]: 4F0C1: removed
//! ```

use memchr::{memchr, memmem};

use super::state::State;
use super::text::{Fields, angle, between, relay, seconds_ms};
use super::{Line, Out};
use crate::record::{Accepted, Attempt, Ms, Note, Record, Refused, Stat, To, Topic};

/// Queue ids: 5 digits of microseconds and an inode number, or 6 characters of seconds and more.
const ID_BYTES: std::ops::RangeInclusive<usize> = 6..=32;

pub fn line(at: Ms, service: &str, pid: &str, message: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let Some((id, rest)) = split_id(message) else { return without_id(at, service, pid, message, state, out) };
    if let Some(rest) = rest.strip_prefix("to=") {
        return attempt(at, service, pid, id, rest, state, out);
    }
    match service {
        "qmgr" | "oqmgr" | "nqmgr" => return manager(at, id, rest, state, out),
        "cleanup" => {
            if let Some(message_id) = rest.strip_prefix("message-id=") {
                // The id may have belonged to an earlier message whose end is not in the log.
                let known = state.enter(id);
                known.message_id = message_id.into();
                known.accepted = 0;
                return Line::Read;
            }
        }
        "pickup" => {
            if rest.starts_with("uid=") {
                state.enter(id).proto = "local";
                return Line::Read;
            }
        }
        _ => {
            if let Some(client) = rest.strip_prefix("client=") {
                let client = client.split_once(", ").map_or(client, |(client, _)| client);
                let (host, ip, _) = relay(client);
                let known = state.enter(id);
                known.client_host = if host == "unknown" { "".into() } else { host.into() };
                known.client = ip;
                known.proto = "ESMTP";
                return Line::Read;
            }
        }
    }
    if let Some(refused) = refusal(at, rest) {
        out.put(&refused);
        return Line::Read;
    }
    out.put(&Record::Note(Note { at, id, text: rest, ..Note::default() }));
    Line::Read
}

/// Splits `4F0C1A2B3: rest`. Words that begin other lines (`warning`, `connect to`) are in lower case.
fn split_id(message: &str) -> Option<(&str, &str)> {
    let colon = memchr(b':', message.as_bytes().get(..ID_BYTES.end() + 1).unwrap_or(message.as_bytes()))?;
    let id = &message[..colon];
    let mut small = true;
    for byte in id.bytes() {
        if !byte.is_ascii_alphanumeric() {
            return None;
        }
        small &= byte.is_ascii_lowercase();
    }
    let is_id = ID_BYTES.contains(&colon) && !small && id != "NOQUEUE";
    Some((id, message[colon + 1..].strip_prefix(' ')?)).filter(|_| is_id)
}

fn without_id(at: Ms, service: &str, pid: &str, message: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    if let Some(rest) = message.strip_prefix("NOQUEUE: ") {
        let Some(refused) = refusal(at, rest) else { return Line::Other };
        out.put(&refused);
        return Line::Read;
    }
    if message.starts_with("connect to ") && service != "smtpd" {
        out.put(&Record::Note(Note { at, text: message, topic: Topic::Delivery, ..Note::default() }));
        return Line::Read;
    }
    // `Untrusted TLS connection established to mx[192.0.2.1]:25: TLSv1.3 with cipher X (256/256 bits) key-exchange ...`
    if let Some(found) = memmem::find(message.as_bytes(), b"TLS connection established to ") {
        let rest = &message[found + "TLS connection established to ".len()..];
        if let Some((to, session)) = rest.split_once(": ")
            && let Some((protocol, cipher)) = session.split_once(" with cipher ")
        {
            let cipher = cipher.split(' ').next().unwrap_or_default();
            state.session(pid, to, &format!("{protocol} {cipher}"));
            return Line::Read;
        }
    }
    Line::Other
}

/// Reads `reject: RCPT from host[192.0.2.1]: 554 5.7.1 <b@y>: no; from=<a@x> to=<b@y> proto=ESMTP helo=<h>`, also
/// `milter-reject` and `proxy-reject`.
fn refusal(at: Ms, rest: &str) -> Option<Record<'_>> {
    let (verb, rest) = rest.split_once(": ")?;
    let refuses = verb == "reject" || verb.ends_with("-reject");
    if !refuses || verb.contains(' ') {
        return None;
    }
    let (step, rest) = rest.split_once(" from ")?;
    let (client, reply) = rest.split_once(": ").unwrap_or((rest, ""));
    let path = |key| between(reply, key, ">").unwrap_or_default();
    let text = reply.rfind("; from=<").map_or(reply, |end| &reply[..end]);
    Some(Record::Refused(Refused {
        at,
        client: relay(client).1,
        from: path(" from=<"),
        to: path(" to=<"),
        reply: text,
        step: if step == "END-OF-MESSAGE" { "." } else { step },
        ..Refused::default()
    }))
}

fn manager(at: Ms, id: &str, rest: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    if rest == "removed" {
        state.forget(id);
        out.put(&Record::Note(Note { at, id, text: rest, is_end: true, ..Note::default() }));
        return Line::Read;
    }
    let Some((from, rest)) = rest.strip_prefix("from=").and_then(angle) else {
        out.put(&Record::Note(Note { at, id, text: rest, ..Note::default() }));
        return Line::Read;
    };
    if rest.starts_with(", status=expired") || rest.starts_with(", status=force-expired") {
        let pending = state.settle_all(id);
        let to: To<'_> = pending.iter().map(|to| &**to).collect();
        let (delay_ms, size) =
            state.message(id).map_or((0, 0), |known| (at.saturating_sub(known.accepted.max(1)), known.size));
        out.put(&Record::Attempt(Attempt {
            at,
            id,
            to,
            from,
            mailer: "bounce",
            delay_ms,
            stat: Stat::Expired,
            dsn: "4.4.7",
            reply: "expired",
            size,
            ..Attempt::default()
        }));
        return Line::Read;
    }
    let mut size = None;
    let mut recipients = 0;
    for (key, value) in Fields::new(rest.trim_start_matches(", "), &[]) {
        match key {
            "size" => size = value.parse().ok(),
            "nrcpt" => recipients = value.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0),
            _ => {}
        }
    }
    let Some(size) = size else { return Line::Broken };
    let known = state.enter(id);
    // The queue manager repeats this line at each retry.
    let first = known.accepted == 0;
    if first {
        known.accepted = at;
        known.from = from.into();
        known.size = size;
        out.put(&Record::Accepted(Accepted {
            at,
            id,
            from,
            size,
            recipients,
            message_id: &known.message_id,
            client_host: &known.client_host,
            client: known.client,
            proto: known.proto,
            ..Accepted::default()
        }));
    }
    Line::Read
}

fn attempt(at: Ms, service: &str, pid: &str, id: &str, rest: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let Some((to, rest)) = angle(rest) else { return Line::Broken };
    let Some(rest) = rest.strip_prefix(", ") else { return Line::Broken };
    let mut record = Attempt { at, id, mailer: service, ..Attempt::default() };
    let mut relay_text = "";
    let mut status = "";
    for (key, value) in Fields::new(rest, &["status"]) {
        match key {
            "relay" => {
                relay_text = value;
                (record.host, record.ip, record.port) = relay(value);
            }
            "delay" => record.delay_ms = seconds_ms(value).unwrap_or(0),
            "delays" => {
                // Time before the queue manager, in it, until connected, until sent.
                let parts = value.split('/').skip(2).take(2);
                record.xdelay_ms = parts.filter_map(seconds_ms).sum();
            }
            "dsn" => record.dsn = value,
            "status" => status = value,
            _ => {}
        }
    }
    let (word, reply) = status.split_once(' ').unwrap_or((status, ""));
    record.stat = match word {
        "sent" => Stat::Sent,
        "deferred" | "SOFTBOUNCE" => Stat::Deferred,
        "bounced" => Stat::Bounced,
        "expired" => Stat::Expired,
        // Address probes deliver nothing.
        "deliverable" | "undeliverable" => return Line::Other,
        _ => return Line::Broken,
    };
    record.reply = reply.strip_prefix('(').map_or(reply, |reply| reply.strip_suffix(')').unwrap_or(reply));
    if record.stat == Stat::Deferred {
        state.put_off(id, to);
    } else {
        state.finish(id, to);
    }
    let state = &*state;
    if let Some(known) = state.known(id) {
        record.from = &known.from;
        record.size = known.size;
    }
    record.tls = state.tls(pid, relay_text);
    record.to.push(to);
    if record.stat == Stat::Expired {
        record.mailer = "bounce";
    }
    out.attempt(record);
    Line::Read
}
