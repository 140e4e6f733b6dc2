//! What the rooms of the shell put into the attempt log.

use std::net::IpAddr;

use stentor_mail::reply::Reply;
use stentor_mail::server::MailFrom;
use stentor_queue::event::{Accept, Class};
use stentor_queue::ids::{AddressId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::sched::{Dsn, Failure, RcptOutcome, Stage};
use stentor_queue::site::Target;

use super::Core;
use super::hub::Hub;
use crate::attempt_log::{Accepted, Attempt, Relay, Stat};
use crate::delivery::Assignment;

/// A message was made durable.
pub fn accepted(core: &Core, accept: &Accept) {
    core.live.accepted(accept);
    if !core.log.is_on() {
        return;
    }
    let client: Option<IpAddr> = accept.origin.parse().ok();
    core.log.accepted(
        accept.accepted,
        &Accepted {
            id: accept.id,
            from: &accept.sender,
            size: accept.size,
            bulk: accept.class == Class::Bulk,
            recipients: accept.recipients.len() as u64,
            message_id: &accept.message_id,
            proto: if client.is_some() { "ESMTP" } else { "local" },
            relay: client.map(|ip| Relay { host: "", addr: (ip, 0).into() }),
        },
    );
}

/// A transaction ended: a line for each group of recipients that fared alike.
pub fn attempt(core: &Core, assignment: &Assignment, outcomes: &[RcptOutcome], target: &Target, mailer: &str) {
    let now = core.clock.now();
    core.live.attempt(now, assignment, outcomes, target);
    if let Some(tracer) = core.tracer.get() {
        tracer.attempt(core, assignment, outcomes, target);
    }
    core.measures.attempt(now.saturating_sub(assignment.begun), outcomes.iter().map(stat));
    if !core.log.is_on() {
        return;
    }
    let mut from = 0;
    while from < outcomes.len() {
        let first = &outcomes[from];
        let alike = |o: &RcptOutcome| {
            o.stage == first.stage && o.code == first.code && o.dsn == first.dsn && o.text == first.text
        };
        let to = outcomes[from..].iter().position(|o| !alike(o)).map_or(outcomes.len(), |n| from + n);
        let stat = stat(first);
        let dsn = first.dsn.unwrap_or(match stat {
            Stat::Sent => Dsn::new(2, 0, 0),
            Stat::Bounced => Dsn::new(5, 0, 0),
            _ => Dsn::new(4, 0, 0),
        });
        let reply = match (first.code, first.dsn) {
            (0, _) => first.text.to_string(),
            (code, None) => format!("{code} {}", first.text),
            (code, Some(dsn)) => format!("{code} {dsn} {}", first.text),
        };
        core.log.attempt(
            now,
            &Attempt {
                id: assignment.id,
                from: &assignment.sender,
                delay_ms: now.saturating_sub(assignment.accepted),
                xdelay_ms: now.saturating_sub(assignment.begun),
                mailer,
                relay: Some(Relay { host: &target.host, addr: target.addr }),
                dsn: &dsn.to_string(),
                stat,
                reply: &reply,
            },
            (from..to).map(|position| assignment.address(position)),
        );
        from = to;
    }
}

fn stat(outcome: &RcptOutcome) -> Stat {
    match (outcome.stage, outcome.code / 100) {
        (Stage::Final, 2) => Stat::Sent,
        (Stage::Content, 0) | (_, 5) => Stat::Bounced,
        _ => Stat::Deferred,
    }
}

/// Recipients that were given up: what happened to them at last is in the lines of their attempts; this says that it
/// was the last one, and covers those that no host was ever reached for.
pub fn given_up(core: &std::sync::Arc<Core>, no: MessageNo, failures: &[Failure]) {
    core.live.given_up(core.clock.now(), failures);
    if !core.log.is_on() {
        return;
    }
    core.with(|hub, now| {
        let Some(message) = hub.store.message(no) else { return };
        for failure in failures {
            core.log.attempt(
                now,
                &Attempt {
                    id: message.id(),
                    from: message.sender(),
                    delay_ms: now.saturating_sub(message.accepted()),
                    xdelay_ms: 0,
                    mailer: "bounce",
                    relay: None,
                    dsn: &failure.dsn.to_string(),
                    stat: if failure.expired { Stat::Expired } else { Stat::Bounced },
                    reply: &failure.text,
                },
                std::iter::once(hub.store.book.text(failure.id)),
            );
        }
    });
}

/// Recipients that an operator takes out.
pub fn removed(core: &Core, hub: &Hub, message: MessageId, ids: &IdSet, who: &str, now: Ms) {
    if !core.log.is_on() {
        return;
    }
    let Some(message) = hub.store.no_of(message).and_then(|no| hub.store.message(no)) else { return };
    let pending = ids.iter().filter(|id| message.pending().contains(*id));
    core.log.attempt(
        now,
        &Attempt {
            id: message.id(),
            from: message.sender(),
            delay_ms: now.saturating_sub(message.accepted()),
            xdelay_ms: 0,
            mailer: "operator",
            relay: None,
            dsn: "5.0.0",
            stat: Stat::Removed,
            reply: who,
        },
        pending.map(|id| hub.store.book.text(AddressId(id))),
    );
}

/// No session came about: nobody's copy was tried, so there is no queue id, but the operator wants to see it.
pub fn connect_failed(core: &Core, target: &Target, begun: Ms, why: &str) {
    let now = core.clock.now();
    core.live.connect_failed(now, target);
    core.measures.connect_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if core.log.is_on() {
        let xdelay = now.saturating_sub(begun) as f64 / 1000.0;
        let text = format!(
            "connect: relay={}. [{}], port={}, xdelay={xdelay:.3}, dsn=4.4.1, stat=Deferred: {why}",
            target.host,
            target.addr.ip(),
            target.addr.port()
        );
        core.log.note(now, None, &text);
    }
}

/// A message was refused at its end.
pub fn refused(core: &Core, mail: &MailFrom, client: IpAddr, reply: &Reply) {
    if core.log.is_on() {
        let text =
            format!("reject: from=<{}>, relay=[{client}], reply={} {}", mail.path.as_str(), reply.code, reply.text);
        core.log.note(core.clock.now(), None, &text);
    }
}

/// A report about a list's post came and nobody is named to read it.
pub fn report_noted(core: &Core, list: &str, mail: &MailFrom, client: IpAddr) {
    core.counters.reports_noted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let text = format!("report: list={list}, from=<{}>, relay=[{client}], noted", mail.path.as_str());
    core.log.note(core.clock.now(), None, &text);
}
