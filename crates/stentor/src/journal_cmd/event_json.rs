//! Events as JSON, for people and scripts.

use serde_json::{Value, json};
use stentor_mail::dsn::Ret;
use stentor_queue::book::{DomainHistory, MailboxHistory};
use stentor_queue::event::{Accept, Event, PostSlice, Tally};
use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;

#[allow(clippy::too_many_lines, reason = "one short arm for each event")]
pub fn event(event: &Event<'_>) -> Value {
    match event {
        Event::Intern { entries } => {
            let entries: Vec<Value> = entries.iter().map(|(id, text)| json!({"id": id.0, "address": text})).collect();
            json!({"kind": "intern", "addresses": entries})
        }
        Event::Addresses(addresses) => {
            let of = |(id, text, h): &(AddressId, &str, MailboxHistory)| {
                let mut all = mailbox(*id, *h);
                all["address"] = json!(text);
                all
            };
            json!({"kind": "addresses", "addresses": addresses.iter().map(of).collect::<Vec<_>>()})
        }
        Event::Forget { ids: set } => json!({"kind": "forget", "addresses": ids(set)}),
        Event::Mailboxes(mailboxes) => {
            let of = |(id, h): &(AddressId, MailboxHistory)| mailbox(*id, *h);
            json!({"kind": "mailboxes", "mailboxes": mailboxes.iter().map(of).collect::<Vec<_>>()})
        }
        Event::Sites(sites) => {
            let of = |(name, h): &(&str, DomainHistory)| {
                json!({
                    "domain": name, "last_success_ms": h.last_success(), "last_failure_ms": h.last_failure(),
                    "xdelay_ms": h.xdelay_ms(), "p99_ms": h.p99_ms(), "connections": h.connections(),
                })
            };
            json!({"kind": "sites", "sites": sites.iter().map(of).collect::<Vec<_>>()})
        }
        Event::Accept(accepted) => json!({"kind": "accept", "message": accept(accepted)}),
        Event::Quarantined(accepted) => json!({"kind": "quarantined", "message": accept(accepted)}),
        Event::QuarantineEnded { message, fate, ids: set, by, at } => json!({
            "kind": "quarantine_ended", "queue_id": message.to_string(), "fate": fate.name(), "recipients": ids(set),
            "by": by, "at_ms": at,
        }),
        Event::QuarantineReleased { from, by, accept: accepted } => json!({
            "kind": "quarantine_released", "queue_id": from.to_string(), "by": by, "message": accept(accepted),
        }),
        Event::Quarantine(kept) => {
            json!({"kind": "quarantine", "messages": kept.iter().map(accept).collect::<Vec<_>>()})
        }
        Event::Outcome { message, fate, ids: set, by, at } => json!({
            "kind": "outcome", "queue_id": message.to_string(), "fate": fate.name(), "recipients": ids(set), "by": by, "at_ms": at,
        }),
        Event::ListVersion { name, version, stamp, ids: set } => json!({
            "kind": "list_version", "name": name, "version": version, "stamp": stamp, "subscribers": ids(set),
        }),
        Event::ListRemoved { name } => json!({"kind": "list_removed", "name": name}),
        Event::Verb { at, who, verb, detail } => {
            json!({"kind": "verb", "at_ms": at, "who": who, "verb": verb, "detail": detail})
        }
        Event::Hold { held, messages } => {
            let messages: Vec<String> = messages.iter().map(ToString::to_string).collect();
            json!({"kind": if *held { "held" } else { "released" }, "queue_ids": messages})
        }
        Event::Suspend { suspended, what, until, reason } => {
            let mut event = json!({"kind": if *suspended { "suspended" } else { "resumed" }, "what": what});
            if *until > 0 {
                event["until_ms"] = (*until).into();
            }
            if !reason.is_empty() {
                event["reason"] = (*reason).into();
            }
            event
        }
        Event::Totals { totals, last_id } => json!({
            "kind": "totals", "messages_accepted": totals.messages_accepted, "acknowledged": totals.acknowledged,
            "fates": tally(&totals.fates), "last_queue_id": last_id.to_string(),
        }),
        Event::Messages(slices) => {
            let slices = slices.iter().map(
                |slice| json!({"message": accept(&slice.accept), "held": slice.held, "fates": tally(&slice.tally)}),
            );
            json!({"kind": "messages", "messages": slices.collect::<Vec<_>>()})
        }
        Event::CheckpointEnd => json!({"kind": "checkpoint_end"}),
        Event::ClockMoved { since, by } => json!({"kind": "clock-moved", "since": since.to_string(), "by_ms": by}),
        Event::Post { message, until } => {
            json!({"kind": "post", "queue_id": message.to_string(), "until_ms": until})
        }
        Event::Resend { of, message, until } => json!({
            "kind": "resend", "of": of.to_string(), "queue_id": message.to_string(), "until_ms": until,
        }),
        Event::PostEnd { message } => json!({"kind": "post_end", "queue_id": message.to_string()}),
        Event::Posts(posts) => json!({"kind": "posts", "posts": posts.iter().map(post).collect::<Vec<_>>()}),
        Event::Skipped(code) => json!({"kind": "skipped", "code": code}),
    }
}

fn post(slice: &PostSlice) -> Value {
    let facts = &slice.facts;
    json!({
        "message": accept(&slice.accept), "until_ms": facts.until, "total": facts.total, "removed": facts.removed,
        "coalesced": facts.coalesced, "expired": ids(&facts.expired), "dropped": ids(&facts.dropped),
        "resends": facts.resends.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn mailbox(id: AddressId, h: MailboxHistory) -> Value {
    json!({
        "id": id.0, "last_seen_ms": h.last_seen(), "xdelay_ms": h.xdelay_ms(), "last": h.last().name(),
        "deliveries": h.deliveries(), "refusals": h.refusals(), "refused_since_ms": h.refused_since(),
    })
}

/// All fields of an acceptance; recipients as address ids.
pub fn accept(accept: &Accept) -> Value {
    let params = accept.params.iter().map(|(id, p)| json!({"id": id.0, "notify": p.notify, "orcpt": p.orcpt}));
    json!({
        "queue_id": accept.id.to_string(),
        "content": accept.content.0,
        "size": accept.size,
        "accepted_ms": accept.accepted,
        "sender": accept.sender,
        "class": accept.class.name(),
        "list": accept.list,
        "recipients": ids(&accept.recipients),
        "prefix": String::from_utf8_lossy(&accept.prefix),
        "eight_bit": accept.eight_bit,
        "smtputf8": accept.smtputf8,
        "ret": accept.ret.map(|ret| if ret == Ret::Full { "FULL" } else { "HDRS" }),
        "envid": accept.envid,
        "params": params.collect::<Vec<_>>(),
        "origin": accept.origin,
        "message_id": accept.message_id,
        "message_id_at": accept.message_id_at.map(|at| [at.offset, at.len]),
        "is_report": accept.is_report,
        "given_sender": accept.given_sender,
        "held_by": accept.held_by,
        "require_tls": accept.require_tls,
        "merge_bytes": accept.merge_bytes,
        "is_transactional": accept.is_transactional,
        "is_archive": accept.is_archive,
    })
}

fn ids(ids: &IdSet) -> Value {
    ids.iter().collect::<Vec<u32>>().into()
}

fn tally(tally: &Tally) -> Value {
    json!({
        "delivered": tally.delivered, "bounced": tally.bounced, "expired": tally.expired, "removed": tally.removed,
        "quarantined": tally.quarantined, "coalesced": tally.coalesced,
    })
}
