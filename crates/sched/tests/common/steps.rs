//! Steps that simulated worlds share: a message is accepted, a domain has a site, a transaction ends.

use std::net::Ipv4Addr;
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{ConnId, MessageNo, Ms};
use stentor_queue::site::{Endpoint, SiteLimits, SitePlan, Target};
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::{RcptOutcome, Scheduler, Stage, Work};

pub fn accept(store: &mut Store, sched: &mut Scheduler, accept: Accept, now: Ms) -> MessageNo {
    let EventEffect::New(no) = store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
    sched.accepted(store, no, now);
    no
}

pub fn target(preference: u16, host: impl Into<Arc<str>>, port: u16) -> Target {
    let addr = Endpoint::by_port((Ipv4Addr::LOCALHOST, port));
    Target { preference, host: host.into(), addr, lmtp: false, posture: None }
}

pub fn plan(key: &str, targets: impl IntoIterator<Item = Target>) -> SitePlan {
    let (key, targets, limits) = (key.into(), targets.into_iter().collect(), SiteLimits::default());
    SitePlan { key, targets, mixes_domains: false, limits, ttl_s: 86_400 }
}

/// A host's answer to all recipients of a transaction.
pub struct Answer {
    pub stage: Stage,
    pub code: u16,
    pub dsn: Option<Enhanced>,
    pub text: &'static str,
}

/// Ends a transaction; 250 delivers to its recipients.
pub fn end(store: &mut Store, sched: &mut Scheduler, conn: ConnId, work: &Work, answer: &Answer, now: Ms) {
    let Answer { stage, code, dsn, text } = *answer;
    let outcome = |id: &_| RcptOutcome { id: *id, stage, code, dsn, text: text.into() };
    let outcomes: Vec<RcptOutcome> = work.ids.iter().map(outcome).collect();
    let delivered = work.ids.iter().filter(|_| code == 250).map(|id| id.0).collect();
    let effect = store.record_fate(work.no, Fate::Delivered, &delivered, None, now, &mut Vec::new());
    sched.work_done(store, conn, work.tx, &outcomes, now);
    if matches!(effect, EventEffect::Finished { .. }) {
        sched.finished(work.no);
    }
}
