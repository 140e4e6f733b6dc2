//! The operator's actions: the verbs as they reach the committer (`Job::Verb`), reserved in the scheduler as
//! `stentor_admin::verbs` does it, and the operator's bounce, which is the real one, polled by hand.
//!
//! Held mail would stay forever, and so would what is queue-only or in the quarantine: when the clients are done,
//! everything is released or deleted, again after each start.

use std::task::{Context, Poll, Waker};

use stentor_core::audit::Audit;
use stentor_core::intake::Job;
use stentor_core::resend::ResendPart;
use stentor_core::verb::{QueueChange, ReleasedPart, VerbJob};
use stentor_delivery::by_operator;
use stentor_mail::reply::Enhanced;
use stentor_queue::event::Fate;
use stentor_queue::ids::{AddressId, MessageId, MessageNo};
use stentor_queue::idset::IdSet;
use stentor_sched::FailedRcpt;
use tokio::sync::oneshot;

use super::{Bouncing, Ev, Life};
use crate::model::{Expanded, texts};

const WHO: &str = "campaign";
/// Messages that one verb is about.
const MESSAGES_MAX: usize = 4;

impl Life<'_> {
    fn audit(&mut self, verb: &'static str) -> Audit {
        Audit { at: self.now, who: WHO.to_owned(), verb, detail: format!("{{\"n\":{}}}", self.rng.u32(..)) }
    }

    fn push_verb(&mut self, verb: &'static str, change: QueueChange) {
        let audit = self.audit(verb);
        let (answer, ticket) = oneshot::channel();
        self.core.intake.push(Job::Verb { job: Box::new(VerbJob { audit, change }), answer });
        self.clients.verb(ticket);
    }

    /// Some verb, about this message or some.
    pub(crate) fn verb(&mut self, no: Option<MessageNo>) {
        let kept = self.core.with(|hub, _| hub.store.quarantined_len());
        if no.is_none() && kept > 0 && self.rng.u8(0..3) == 0 {
            let count = self.rng.usize(1..=MESSAGES_MAX);
            return self.quarantine_verb(count);
        }
        if no.is_none() && !self.clients.has_verb() && self.rng.u8(0..3) == 0 && self.post_verb() {
            return;
        }
        let mut all: Vec<(MessageNo, MessageId)> =
            self.core.with(|hub, _| hub.store.messages().map(|(no, message)| (no, message.id())).collect());
        if let Some(no) = no {
            all.retain(|(known, _)| *known == no);
        } else {
            self.rng.shuffle(&mut all);
            all.truncate(self.rng.usize(1..=MESSAGES_MAX));
        }
        if all.is_empty() {
            return;
        }
        match self.rng.u8(0..16) {
            12..=15 if !self.ledger.durable.queue_only.is_empty() && self.rng.bool() => {
                self.push_verb("queue_run", QueueChange::RunQueue);
            }
            12..=15 => self.queue_only(all[0].0),
            0..=3 => {
                let held = self.rng.u8(0..3) > 0;
                let messages: Vec<MessageId> = all.into_iter().map(|(_, id)| id).collect();
                self.push_verb(if held { "hold" } else { "release" }, QueueChange::Hold { held, messages });
            }
            4..=6 => {
                let recipients = self.choose(&all, true).into_iter().map(|(_, id, ids)| (id, ids)).collect();
                self.push_verb("remove", QueueChange::Settle { fate: Fate::Removed, recipients });
            }
            7 => {
                let recipients = self.choose(&all, false).into_iter().map(|(_, id, ids)| (id, ids)).collect();
                self.push_verb("requeue", QueueChange::TryNow { recipients });
            }
            8..=9 => self.standing_bounce(),
            _ => {
                for (no, _, ids) in self.choose(&all, true) {
                    self.bounce_by_operator(no, &ids);
                }
            }
        }
    }

    /// Some of what is in the quarantine is released, deleted or expires, at most this many messages; of each all
    /// recipients or some.
    fn quarantine_verb(&mut self, messages_max: usize) {
        let mut all: Vec<(MessageId, IdSet, usize)> = self.core.with(|hub, _| {
            let kept = hub.store.quarantined(None);
            kept.map(|message| (message.id(), message.pending().clone(), message.slice_bytes_max())).collect()
        });
        self.rng.shuffle(&mut all);
        all.truncate(messages_max);
        if self.rng.bool() {
            for (_, ids, _) in &mut all {
                *ids = ids.iter().step_by(2).collect();
            }
        }
        match self.rng.u8(0..5) {
            0 => self.end_quarantine("quarantine_delete", Fate::Removed, all),
            1 => self.end_quarantine("quarantine_expire", Fate::Expired, all),
            _ => {
                let core = self.core.clone();
                let released = |(from, ids, bytes_max)| ReleasedPart {
                    keep_until: None,
                    from,
                    to: core.next_message_id(),
                    ids,
                    bytes_max,
                    message_id: String::new(),
                };
                let parts: Vec<ReleasedPart> = all.into_iter().map(released).collect();
                self.released += parts.iter().map(|part| part.ids.len() as u64).sum::<u64>();
                self.push_verb("quarantine_release", QueueChange::ReleaseQuarantined { parts });
            }
        }
    }

    /// A post is sent again to some that missed it, or all, or is no longer kept. Whether there is one.
    fn post_verb(&mut self) -> bool {
        let (everyone, ends, pick) = (self.rng.bool(), self.rng.u8(0..6) == 0, self.rng.usize(0..64));
        let to = self.core.next_message_id();
        let chosen = self.core.with(|hub, _| {
            let posts: Vec<_> = hub.store.posts(None).filter(|post| ends || !post.missed().is_empty()).collect();
            let post = posts.get(pick % posts.len().max(1))?;
            let ids = post.missed().iter().enumerate().filter(|(n, _)| everyone || n % 2 == 0).map(|(_, id)| id);
            Some(ResendPart {
                post: post.message().id(),
                to,
                ids: ids.collect(),
                until: post.facts().until + 1,
                bytes_max: post.message().slice_bytes_max() + post.missed().part_bytes_max(),
                message_id: String::new(),
            })
        });
        let Some(part) = chosen else { return false };
        if ends {
            self.push_verb("posts_end", QueueChange::EndPosts { posts: vec![part.post] });
        } else {
            self.resent += part.ids.len() as u64;
            self.push_verb("resend", QueueChange::Resend { parts: vec![part] });
        }
        true
    }

    fn end_quarantine(&mut self, verb: &'static str, fate: Fate, all: Vec<(MessageId, IdSet, usize)>) {
        let recipients = all.into_iter().map(|(id, ids, _)| (id, ids)).collect();
        self.push_verb(verb, QueueChange::EndQuarantine { fate, recipients });
    }

    /// One begins, with what waits left to the scheduler, or is ended; in a run of all there are some of each.
    fn standing_bounce(&mut self) {
        let suspended = self.rng.u8(0..3) > 0;
        let what = match self.rng.u8(0..4) {
            0 => "bounce:list:l".to_owned(),
            1 => format!("bounce:to:d{}.example", self.rng.u8(0..4)),
            _ => format!("bounce:sender:s{}@d1.example", self.rng.u8(0..5)),
        };
        let until = if suspended { self.now + self.rng.u64(1..20_000) } else { 0 };
        self.push_verb("bounce", QueueChange::Suspend { suspended, what, until, reason: "by the operator".to_owned() });
    }

    /// Something becomes queue-only, or is no more: all, or what this message is of.
    fn queue_only(&mut self, no: MessageNo) {
        let pick = self.rng.u8(0..4);
        let what = self.core.with(|hub, _| {
            let message = hub.store.message(no)?;
            let address = message.pending().min().map(|id| hub.store.book.text(AddressId(id)).to_owned());
            match pick {
                0 => Some("queue_only:all".to_owned()),
                1 => message.list().map(|list| format!("queue_only:list:{list}")),
                2 => Some(format!("queue_only:sender:{}", message.sender())),
                _ => address?.rsplit_once('@').map(|(_, domain)| format!("queue_only:domain:{domain}")),
            }
        });
        if let Some(what) = what {
            let suspended = self.rng.u8(0..3) > 0;
            self.push_verb(
                "queue_only",
                QueueChange::Suspend { suspended, what, until: 0, reason: "works".to_owned() },
            );
        }
    }

    /// Recipients that can be taken out now, of each message all or every other one; reserved if asked.
    fn choose(&mut self, all: &[(MessageNo, MessageId)], reserve: bool) -> Vec<(MessageNo, MessageId, IdSet)> {
        let some = self.rng.bool();
        self.core.with(|hub, _| {
            let mut chosen = Vec::new();
            for (no, id) in all {
                let Some(message) = hub.store.message(*no) else { continue };
                let (free, _) = hub.sched.removable(*no, message.pending());
                let ids: IdSet =
                    free.iter().enumerate().filter(|(n, _)| some || n % 2 == 0).map(|(_, id)| id).collect();
                if ids.is_empty() {
                    continue;
                }
                if reserve {
                    hub.sched.reserve(*no, &ids);
                }
                chosen.push((*no, *id, ids));
            }
            chosen
        })
    }

    fn bounce_by_operator(&mut self, no: MessageNo, ids: &IdSet) {
        let failure = |id| FailedRcpt {
            id: AddressId(id),
            expired: false,
            dsn: Enhanced::new(5, 0, 0),
            code: 0,
            text: "by the operator".into(),
            host: None,
        };
        let failures: Vec<FailedRcpt> = ids.iter().map(failure).collect();
        let (core, audit) = (self.core.clone(), self.audit("bounce"));
        let mut bouncing: Bouncing = Box::pin(async move {
            // What it came to is in the account, by the job that it hands to the committer.
            let _ = by_operator(&core, no, failures, audit).await;
        });
        if bouncing.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
            self.bouncing.push(bouncing);
        }
    }

    /// When nothing else comes, held and queue-only mail must go on.
    pub(crate) fn want_release(&mut self) {
        let idle = self.clients.is_done() && !self.releasing && !self.clients.has_verb();
        let stays = |hub: &mut stentor_core::hub::Hub| {
            hub.store.held() > 0 || hub.store.queue_only().next().is_some() || hub.store.quarantined_len() > 0
        };
        if idle && self.core.with(|hub, _| stays(hub)) {
            self.releasing = true;
            let after = self.rng.u64(1..3_000);
            self.at(after, Ev::Release);
        }
    }

    pub(crate) fn release(&mut self) {
        self.releasing = false;
        let held = |hub: &mut stentor_core::hub::Hub| -> Vec<MessageId> {
            hub.store.messages().filter(|(_, message)| message.is_held()).map(|(_, message)| message.id()).collect()
        };
        let kept = |hub: &mut stentor_core::hub::Hub| -> Vec<String> {
            hub.store.queue_only().map(|(name, ..)| name.to_owned()).collect()
        };
        let (messages, kept, quarantined) =
            self.core.with(|hub, _| (held(hub), kept(hub), hub.store.quarantined_len()));
        if quarantined > 0 {
            self.quarantine_verb(quarantined);
        }
        for what in kept {
            let change = QueueChange::Suspend { suspended: false, what, until: 0, reason: String::new() };
            self.push_verb("queue_only", change);
        }
        if !messages.is_empty() {
            self.push_verb("release", QueueChange::Hold { held: false, messages });
        }
    }

    /// The mutation: holds and releases are applied and told at once, and journaled by the turn after this one.
    pub(crate) fn tell_early(&mut self, jobs: Vec<Job>) -> Result<Vec<Job>, String> {
        let (mut rest, mut late) = (std::mem::take(&mut self.late), Vec::new());
        for job in jobs {
            let Job::Verb { job, answer } = job else {
                rest.push(job);
                continue;
            };
            let QueueChange::Hold { held, messages } = &job.change else {
                rest.push(Job::Verb { job, answer });
                continue;
            };
            let again = VerbJob {
                audit: job.audit.clone(),
                change: QueueChange::Hold { held: *held, messages: messages.clone() },
            };
            self.account_hold(*held, messages);
            self.core.with(|hub, now| job.apply(&self.core, hub, now));
            let _ = answer.send(Ok(()));
            self.hear(&Expanded::new(), true, false)?;
            let (answer, _) = oneshot::channel();
            late.push(Job::Verb { job: Box::new(again), answer });
        }
        self.late = late;
        Ok(rest)
    }

    fn account_hold(&mut self, held: bool, messages: &[MessageId]) {
        let durable = &mut self.ledger.durable;
        self.core.with(|hub, _| {
            for id in messages {
                if let Some(message) = hub.store.no_of(*id).and_then(|no| hub.store.message(no)) {
                    durable.hold(message.message_id(), held, &texts(&hub.store, message.pending()));
                }
            }
        });
    }
}
