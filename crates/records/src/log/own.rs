//! Parser for our own log as JSON, one object per line (docs/operate/attempt-log.md).

use std::borrow::Cow;

use serde::Deserialize;

use super::{Line, Out};
use crate::civil::Zone;
use crate::record::{Accepted, Attempt, Ms, Note, Record, Refused, Stat, To, Topic, Unreached, WireChanges};

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Entry<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    from: Cow<'a, str>,
    to: Recipients<'a>,
    size: u64,
    nrcpts: u64,
    class: Class,
    #[serde(borrow)]
    msgid: Cow<'a, str>,
    #[serde(borrow)]
    proto: Cow<'a, str>,
    #[serde(borrow)]
    list: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    policy: Cow<'a, str>,
    #[serde(borrow)]
    orig_to: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    orig_from: Cow<'a, str>,
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    marks: Cow<'a, str>,
    #[serde(borrow)]
    tls: Cow<'a, str>,
    #[serde(borrow)]
    recoded: Cow<'a, str>,
    #[serde(borrow)]
    mailer: Cow<'a, str>,
    #[serde(borrow)]
    relay: Option<Relay<'a>>,
    delay_ms: u64,
    xdelay_ms: u64,
    #[serde(borrow)]
    dsn: Cow<'a, str>,
    #[serde(borrow)]
    stat: Cow<'a, str>,
    #[serde(borrow)]
    reply: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
    #[serde(borrow)]
    site: Cow<'a, str>,
    /// Set for a session or look-up that failed.
    waiting: Option<u64>,
    #[serde(borrow)]
    domains: Vec<(Cow<'a, str>, u64)>,
}

/// An attempt has many recipients, a refusal may have one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Recipients<'a> {
    Many(#[serde(borrow)] Vec<Cow<'a, str>>),
    One(#[serde(borrow)] Cow<'a, str>),
}

impl Recipients<'_> {
    fn all(&self) -> To<'_> {
        match self {
            Recipients::Many(many) => many.iter().map(|to| &**to).collect(),
            Recipients::One(one) => [&**one].into_iter().collect(),
        }
    }
}

impl Default for Recipients<'_> {
    fn default() -> Self {
        Recipients::Many(Vec::new())
    }
}

/// The class: sendmail's precedence, or a word.
#[derive(Deserialize)]
#[serde(untagged)]
enum Class {
    Precedence(i64),
    Word(String),
}

impl Default for Class {
    fn default() -> Self {
        Class::Precedence(0)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Relay<'a> {
    #[serde(borrow)]
    host: Cow<'a, str>,
    #[serde(borrow)]
    ip: Cow<'a, str>,
    port: u16,
}

pub fn json(line: &str, out: &mut Out<'_, '_>) -> Line {
    let Ok(entry) = serde_json::from_str::<Entry<'_>>(line) else { return Line::Broken };
    // The time must end the text: a space must follow it.
    let stamp = format!("{} ", entry.time);
    let Some((at, _)) = super::stamp::Stamps::new(Zone::utc(), 0).rfc3339(&stamp) else { return Line::Broken };
    let none = Relay::default();
    let relay = entry.relay.as_ref().unwrap_or(&none);
    match &*entry.event {
        "accepted" => out.put(&Record::Accepted(accepted(&entry, relay, at))),
        "attempt" => {
            let Some(attempt) = attempt(&entry, relay, at) else { return Line::Broken };
            out.put(&Record::Attempt(attempt));
        }
        "refused" => out.put(&Record::Refused(refused(&entry, relay, at))),
        "note" => out.put(&Record::Note(note(&entry, at))),
        _ => return Line::Other,
    }
    Line::Read
}

fn accepted<'a>(entry: &'a Entry<'_>, relay: &'a Relay<'_>, at: Ms) -> Accepted<'a> {
    Accepted {
        at,
        id: &entry.id,
        from: &entry.from,
        size: entry.size,
        recipients: entry.nrcpts,
        message_id: &entry.msgid,
        client_host: &relay.host,
        client: relay.ip.parse().ok(),
        proto: &entry.proto,
        is_bulk: entry.class.is_bulk(),
        list: &entry.list,
        policy: &entry.policy,
        tls: &entry.tls,
        named: entry.orig_to.iter().map(|to| &**to).collect(),
        marks: &entry.marks,
        orig_from: &entry.orig_from,
        user: &entry.user,
        ..Accepted::default()
    }
}

/// `None`: an unknown result.
fn attempt<'a>(entry: &'a Entry<'_>, relay: &'a Relay<'_>, at: Ms) -> Option<Attempt<'a>> {
    Some(Attempt {
        at,
        id: &entry.id,
        to: entry.to.all(),
        from: &entry.from,
        list: &entry.list,
        source: &entry.source,
        mailer: &entry.mailer,
        host: &relay.host,
        ip: relay.ip.parse().ok(),
        port: relay.port,
        delay_ms: entry.delay_ms,
        xdelay_ms: entry.xdelay_ms,
        stat: stat(&entry.stat)?,
        dsn: &entry.dsn,
        reply: &entry.reply,
        tls: &entry.tls,
        recoded: WireChanges::named(&entry.recoded),
        size: entry.size,
        unreached: entry.waiting.map(|waiting| {
            let domains = entry.domains.iter().map(|(domain, waiting)| (&**domain, *waiting)).collect();
            Box::new(Unreached { site: &entry.site, waiting, domains })
        }),
        ..Attempt::default()
    })
}

fn refused<'a>(entry: &'a Entry<'_>, relay: &'a Relay<'_>, at: Ms) -> Refused<'a> {
    Refused {
        at,
        client: relay.ip.parse().ok(),
        from: &entry.from,
        to: match &entry.to {
            Recipients::Many(many) => many.first().map_or("", |to| to),
            Recipients::One(one) => one,
        },
        reply: &entry.reply,
        policy: &entry.policy,
        message_id: &entry.msgid,
        named: entry.orig_to.iter().map(|to| &**to).collect(),
        user: &entry.user,
        ..Refused::default()
    }
}

fn note<'a>(entry: &'a Entry<'_>, at: Ms) -> Note<'a> {
    let to = entry.to.all();
    // Recipients whose mail was dropped by a rule or an alias.
    let topic = if to.is_empty() { Topic::Server } else { Topic::Policy };
    Note { at, id: &entry.id, text: &entry.text, topic, to, message_id: &entry.msgid, ..Note::default() }
}

fn stat(text: &str) -> Option<Stat> {
    Some(match text {
        "Sent" => Stat::Sent,
        "Deferred" => Stat::Deferred,
        "Bounced" => Stat::Bounced,
        "Expired" => Stat::Expired,
        "Removed" => Stat::Removed,
        "Coalesced" => Stat::Coalesced,
        "Quarantined" => Stat::Quarantined,
        "Released" => Stat::Released,
        _ => return None,
    })
}

impl Class {
    fn is_bulk(&self) -> bool {
        match self {
            Class::Precedence(precedence) => *precedence < 0,
            Class::Word(word) => word == "bulk",
        }
    }
}
