//! Parser for sendmail's log, and for our own log with sendmail's fields.
//!
//! ```text
//! QID: from=<a@x>, size=1, class=0, nrcpts=2, msgid=<1@x>, proto=ESMTP, daemon=MTA, relay=host [192.0.2.1]
//! QID: to=<b@y>,<c@y>, delay=00:00:01, xdelay=00:00:01, mailer=esmtp, pri=1, relay=mx.y. [192.0.2.2], dsn=2.0.0,
//! stat=Sent (ok) QID: NEWID: sender notify: Cannot send message for 5 days
//! ```

use memchr::memchr;

use super::state::State;
use super::text::{Fields, addresses, angle, bare, clock_ms, relay};
use super::{Line, Out};
use crate::escape::unescaped;
use crate::record::{Accepted, Attempt, Ms, Note, REPORT, Record, Refused, Stat, To, Topic, Unreached, WireChanges};

pub fn line(at: Ms, pid: &str, message: &str, is_own: bool, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let Some((id, rest)) = split_id(message) else { return without_id(at, pid, message, state, out) };
    if let Some(rest) = rest.strip_prefix("to=") {
        return attempt(at, pid, id, rest, is_own, state, out);
    }
    if rest.starts_with("from=") {
        return accepted(at, id, rest, state, out);
    }
    if let Some(refused) = refusal(at, rest) {
        out.put(&refused);
        return Line::Read;
    }
    if let Some(fields) = rest.strip_prefix("discarded: to=") {
        let mut to = To::new();
        let fields = addresses(fields, &mut to);
        let id_of = fields.strip_prefix("msgid=").and_then(angle).map_or("", |(message_id, _)| message_id);
        let note = Note { at, id, text: rest, topic: Topic::Policy, to, message_id: id_of, ..Note::default() };
        out.put(&Record::Note(note));
        return Line::Read;
    }
    if let Some(recipient) = reported(rest) {
        let (recipient, topic) = (unescaped(recipient), Topic::Policy);
        let to = std::iter::once(&*recipient).collect();
        out.put(&Record::Note(Note { at, id, text: rest, topic, to, ..Note::default() }));
        return Line::Read;
    }
    let done = rest.starts_with("done; ");
    if rest.contains(": Cannot send message for ") || rest.contains(": Cannot send message within ") {
        expired(at, id, state, out);
    }
    if done {
        state.forget(id);
    }
    out.put(&Record::Note(Note { at, id, text: rest, is_end: done, ..Note::default() }));
    Line::Read
}

/// The recipient whom a report is about, its second field.
fn reported(rest: &str) -> Option<&str> {
    let (_, recipient) = rest.strip_prefix(REPORT)?.split_once(", ")?;
    recipient.strip_prefix("to=<")?.split_once('>').map(|(recipient, _)| recipient)
}

/// Splits off the queue id, which has a digit and no lower-case word before the colon: `AAM3Q0aB123456`, older ones
/// `KAA24336`.
fn split_id(message: &str) -> Option<(&str, &str)> {
    let colon = memchr(b':', message.as_bytes())?;
    let id = &message[..colon];
    let is_id = (6..=24).contains(&colon)
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && id.bytes().any(|byte| byte.is_ascii_digit());
    Some((id, message[colon + 1..].strip_prefix(' ')?)).filter(|_| is_id)
}

fn without_id(at: Ms, pid: &str, message: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    // `STARTTLS=client, relay=mx.y., version=TLSv1.3, verify=FAIL, cipher=X, bits=256/256`
    if message.starts_with("STARTTLS=client, ") {
        let (mut to, mut version, mut cipher) = ("", "", "");
        for (key, value) in Fields::new(message, &[]) {
            match key {
                "relay" => to = value,
                "version" => version = value,
                "cipher" => cipher = value,
                _ => {}
            }
        }
        if !version.is_empty() {
            state.session(pid, relay(to).0, &format!("{version} {cipher}"));
        }
        return Line::Read;
    }
    if let Some(refused) = refusal(at, message) {
        out.put(&refused);
        return Line::Read;
    }
    // Our own log: a session or look-up that failed.
    let unreached = message.strip_prefix("connect: ").or_else(|| message.strip_prefix("lookup: "));
    if let Some(fields) = unreached {
        if let Some(attempt) = unreached_of(at, fields, message.starts_with("lookup: ")) {
            out.put(&Record::Attempt(attempt));
            return Line::Read;
        }
        out.put(&Record::Note(Note { at, text: message, topic: Topic::Delivery, ..Note::default() }));
        return Line::Read;
    }
    Line::Other
}

/// Reads `relay=mx.z. [192.0.2.3], port=25, xdelay=0.001, site=mx.z, waiting=12, domains=z:10,y:2, dsn=4.4.1,
/// stat=Deferred: no`; `None` if it does not name the waiting recipients.
fn unreached_of(at: Ms, fields: &str, is_look_up: bool) -> Option<Attempt<'_>> {
    let mut attempt = Attempt { at, mailer: if is_look_up { "dns" } else { "esmtp" }, ..Attempt::default() };
    let (mut unreached, mut waiting) = (Unreached::default(), None);
    for (key, value) in Fields::new(fields, &["stat"]) {
        match key {
            "relay" => (attempt.host, attempt.ip, _) = relay(value),
            "port" => attempt.port = value.parse().unwrap_or(0),
            "xdelay" => attempt.xdelay_ms = value.parse().map_or(0, |s: f64| (s * 1e3).round() as Ms),
            "site" => unreached.site = value,
            "waiting" => waiting = value.parse().ok(),
            "domains" => {
                let pairs = value.split(',').filter_map(|pair| pair.rsplit_once(':'));
                unreached.domains = pairs.filter_map(|(domain, count)| Some((domain, count.parse().ok()?))).collect();
            }
            "dsn" => attempt.dsn = value,
            "stat" => (attempt.stat, attempt.reply) = outcome(value, attempt.dsn)?,
            _ => {}
        }
    }
    unreached.waiting = waiting?;
    attempt.unreached = Some(Box::new(unreached));
    Some(attempt)
}

/// Reads `ruleset=check_rcpt, arg1=<b@y>, relay=host [192.0.2.1], reject=550 5.7.1 <b@y>... no`, `<b@y>... User
/// unknown`, or our own `reject: from=<a@x>, relay=[192.0.2.1], reply=554 no`.
fn refusal(at: Ms, rest: &str) -> Option<Record<'_>> {
    let mut refused = Refused { at, ..Refused::default() };
    if rest.starts_with("ruleset=") {
        // Other rule sets refuse a sender or a client.
        let is_recipients = rest.starts_with("ruleset=check_rcpt,");
        for (key, value) in Fields::new(rest, &["reject"]) {
            match key {
                "arg1" if is_recipients => refused.to = bare(value),
                "from" => refused.from = bare(value),
                "relay" => refused.client = relay(value).1,
                "policy" => refused.policy = value,
                "msgid" => refused.message_id = value,
                "orig_to" => _ = addresses(value, &mut refused.named),
                "user" => refused.user = value,
                "reject" => refused.reply = value,
                _ => {}
            }
        }
        return (!refused.reply.is_empty()).then_some(Record::Refused(refused));
    }
    if let Some(rest) = rest.strip_prefix("reject: ") {
        for (key, value) in Fields::new(rest, &["reply"]) {
            match key {
                "from" => refused.from = bare(value),
                "to" => refused.to = bare(value),
                "relay" => refused.client = relay(value).1,
                "reply" => refused.reply = value,
                _ => {}
            }
        }
        return (!refused.reply.is_empty()).then_some(Record::Refused(refused));
    }
    if rest.starts_with('<') {
        let (to, reply) = rest.split_once("... ")?;
        refused.to = bare(to);
        refused.reply = reply;
        return Some(Record::Refused(refused));
    }
    None
}

fn accepted(at: Ms, id: &str, rest: &str, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let mut record = Accepted { at, id, ..Accepted::default() };
    let mut complete = false;
    for (key, value) in Fields::new(rest, &["marks"]) {
        match key {
            "orig_to" => _ = addresses(value, &mut record.named),
            "orig_from" => record.orig_from = bare(value),
            "tls" => record.tls = value,
            "user" => record.user = value,
            "marks" => record.marks = value,
            "from" => record.from = bare(value),
            "size" => record.size = value.parse().unwrap_or(0),
            "class" => record.is_bulk = value.starts_with('-'),
            "nrcpts" => {
                record.recipients = value.parse().unwrap_or(0);
                complete = true;
            }
            "msgid" => record.message_id = if value == "<>" { "" } else { value },
            "proto" => record.proto = value,
            "list" => record.list = value,
            "relay" => (record.client_host, record.client, _) = relay(value),
            _ => {}
        }
    }
    if !complete {
        return Line::Broken;
    }
    // This is how sendmail reports that it has refused all recipients.
    if record.recipients == 0 {
        return Line::Other;
    }
    let known = state.enter(id);
    known.from = record.from.into();
    known.size = record.size;
    known.accepted = at;
    out.put(&Record::Accepted(record));
    Line::Read
}

fn attempt(at: Ms, pid: &str, id: &str, rest: &str, is_own: bool, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let mut record = Attempt { at, id, ..Attempt::default() };
    let fields = addresses(rest, &mut record.to);
    let mut stat = None;
    let mut said = "";
    for (key, value) in Fields::new(fields, &["stat"]) {
        match key {
            "from" => record.from = bare(value),
            "list" => record.list = value,
            "source" => record.source = value,
            "delay" => record.delay_ms = clock_ms(value).unwrap_or(0),
            "xdelay" => record.xdelay_ms = clock_ms(value).unwrap_or(0),
            "mailer" => record.mailer = value,
            "relay" => (record.host, record.ip, record.port) = relay(value),
            "dsn" => record.dsn = value,
            "tls" => record.tls = value,
            "recoded" => record.recoded = WireChanges::named(value),
            "reply" => said = value,
            "stat" => stat = Some(value),
            _ => {}
        }
    }
    let Some(stat) = stat else { return Line::Broken };
    let Some((outcome, reply)) = outcome(stat, record.dsn) else {
        // Queued: nothing has been tried.
        out.put(&Record::Note(Note { at, id, text: "queued", ..Note::default() }));
        return Line::Read;
    };
    record.stat = outcome;
    // Newer versions quote the host besides their own words (`User unknown`).
    record.reply = if said.is_empty() { reply } else { said };
    for to in &record.to {
        if outcome == Stat::Deferred {
            state.put_off(id, to);
        } else {
            state.finish(id, to);
        }
    }
    let state = &*state;
    if let Some(known) = state.known(id) {
        if record.from.is_empty() {
            record.from = &known.from;
        }
        record.size = known.size;
    }
    if record.tls.is_empty() {
        record.tls = state.tls(pid, record.host);
    }
    if is_own {
        // Our own log has the fate on a line of its own.
        out.put(&Record::Attempt(record));
    } else {
        out.attempt(record);
    }
    Line::Read
}

/// Reads the text after `stat=`; `None` if the message was only queued.
fn outcome<'a>(stat: &'a str, dsn: &str) -> Option<(Stat, &'a str)> {
    let behind = |word: &str| stat[word.len()..].trim_start_matches([':', ' ']);
    if stat.starts_with("Sent") {
        let reply = behind("Sent");
        let inner = reply.strip_prefix('(').map_or(reply, |reply| reply.strip_suffix(')').unwrap_or(reply));
        return Some((Stat::Sent, inner));
    }
    let words = [
        ("Deferred", Stat::Deferred),
        ("Bounced", Stat::Bounced),
        ("Expired", Stat::Expired),
        ("Removed", Stat::Removed),
        ("Coalesced", Stat::Coalesced),
        ("Quarantined", Stat::Quarantined),
        ("Released", Stat::Released),
    ];
    if let Some((word, outcome)) = words.into_iter().find(|(word, _)| stat.starts_with(word)) {
        return Some((outcome, behind(word)));
    }
    if stat.starts_with("queued") {
        return None;
    }
    // `User unknown`, `Service unavailable`, `Host unknown (Name server: y: host not found)`, ...
    Some((if dsn.starts_with('4') { Stat::Deferred } else { Stat::Bounced }, stat))
}

/// Handles a message that was too long in the queue: all remaining recipients are returned.
fn expired(at: Ms, id: &str, state: &mut State, out: &mut Out<'_, '_>) {
    let pending = state.settle_all(id);
    let Some(known) = state.message(id) else { return };
    let to: To<'_> = pending.iter().map(|to| &**to).collect();
    if to.is_empty() {
        return;
    }
    out.put(&Record::Attempt(Attempt {
        at,
        id,
        to,
        from: &known.from,
        mailer: "bounce",
        delay_ms: at.saturating_sub(known.accepted),
        stat: Stat::Expired,
        dsn: "4.4.7",
        reply: "Cannot send message for too long",
        size: known.size,
        ..Attempt::default()
    }));
}
