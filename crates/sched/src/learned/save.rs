//! Writes learned state, a slice at a time.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use stentor_queue::ids::{DomainId, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_queue::store::Store;

use super::{KIND_MAX, SLICE_MAX};
use crate::Scheduler;
use crate::domains::LookUp;
use crate::failure::deferrals::DeferralKey;
use crate::kept::text::Line;
use crate::kept::{KeptClock, KeptDeferral, KeptHost, KeptKey, KeptRefusal, PathMemory};
use crate::reasons::Reason;
use crate::state::SchedState;
use crate::tables::PartsCursor;

/// Entries of a list that are examined at a time; most have nothing to write.
const LOOK_MAX: usize = 8 * SLICE_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Hosts,
    Paths,
    Domains,
    Mailboxes,
    Recipients,
    Deferrals,
    Subscribers,
    WaitingHosts,
    WaitingPaths,
    WaitingDeferrals,
    Done,
}

impl Stage {
    fn next(self) -> Stage {
        match self {
            Stage::Hosts => Stage::Paths,
            Stage::Paths => Stage::Domains,
            Stage::Domains => Stage::Mailboxes,
            Stage::Mailboxes => Stage::Recipients,
            Stage::Recipients => Stage::Deferrals,
            Stage::Deferrals => Stage::Subscribers,
            Stage::Subscribers => Stage::WaitingHosts,
            Stage::WaitingHosts => Stage::WaitingPaths,
            Stage::WaitingPaths => Stage::WaitingDeferrals,
            Stage::WaitingDeferrals | Stage::Done => Stage::Done,
        }
    }
}

/// Progress of a snapshot.
#[derive(Default)]
pub struct SnapshotProgress {
    stage: Stage,
    /// Position in a list.
    index: usize,
    /// Position in a table.
    parts: PartsCursor,
    /// The last key of a sorted table.
    after_host: Option<Box<str>>,
    after_path: Option<(Arc<str>, Box<str>)>,
    after_site: Option<Arc<str>>,
    /// Facts of this kind written so far.
    written: usize,
    /// Replies that are already in the text.
    replies: HashSet<u32>,
}

/// Output for facts: the text, with the replies that they refer to before them.
struct FactWriter<'a> {
    state: &'a SchedState,
    replies: &'a mut HashSet<u32>,
    text: &'a mut String,
}

impl FactWriter<'_> {
    /// Writes the reply to the text, unless it is there.
    fn reply(&mut self, reason: Reason) {
        let Some(reply) = self.state.reasons.get(reason) else { return };
        if self.replies.insert(reason.number()) {
            let dsn = reply.dsn.map_or_else(String::new, |dsn| dsn.to_string());
            Line::begin(self.text, "reply")
                .word(reason.number())
                .word(reply.code)
                .word(dsn)
                .word(reply.cause.name())
                .text(reply.host.as_deref().unwrap_or_default())
                .text(&reply.text)
                .end();
        }
    }

    /// Begins a line with a clock.
    fn line(&mut self, kind: &str, clock: KeptClock) -> Line<'_> {
        self.reply(clock.reason);
        let until = if clock.until == 0 { 0 } else { self.state.time.wall(clock.until) };
        let has_text = self.state.reasons.get(clock.reason).is_some();
        let line = Line::begin(self.text, kind).word(until).word(clock.fails);
        line.word(clock.reason.cause.name()).word(if has_text { clock.reason.number() } else { 0 })
    }

    fn host(&mut self, name: &str, host: &KeptHost) {
        let (used, grow_at) = (self.state.time.wall(host.used), self.state.time.wall(host.grow_at));
        let line = self.line("host", host.clock).text(name).word(used).word(host.retries).word(host.pauses);
        line.word(host.paused_ms).word(host.conns_max).word(grow_at).end();
    }

    fn path(&mut self, site: &str, source: &str, memory: &PathMemory, used: Ms) {
        let time = self.state.time;
        let line = Line::begin(self.text, "path").text(site).text(source).word(time.wall(used));
        memory.write(line, time);
    }

    fn deferral(&mut self, site: &str, kept: &KeptDeferral) {
        let time = self.state.time;
        let line = self.line("deferral", kept.clock).text(site);
        let line = match kept.key {
            KeptKey::Message(id) => line.word('m').word(id),
            KeptKey::Sender(hash) => line.word('s').word(hash),
        };
        let mut line = line.word(kept.returns).word(kept.refusals.len());
        for refusal in &kept.refusals {
            line = line.text(&refusal.host).word(time.wall(refusal.until)).word(refusal.fails);
        }
        for refusal in &kept.refusals {
            line = line.word(refusal.trials).word(refusal.refused.len());
            for (id, kind, size) in &refusal.refused {
                line = line.word(id).word(kind).word(size);
            }
        }
        line.end();
    }
}

impl Scheduler {
    /// Appends the next slice of a snapshot to `out`. Returns whether more follows.
    pub fn write_learned(&mut self, store: &Store, at: &mut SnapshotProgress, out: &mut String, now: Ms) -> bool {
        let now = self.steady(now);
        let stage = at.stage;
        let more = match stage {
            Stage::Hosts => self.write_hosts(at, out, now),
            Stage::Paths => self.write_paths(at, out, now),
            Stage::Domains => self.write_domains(store, at, out),
            Stage::Mailboxes => self.write_mailboxes(store, at, out),
            Stage::Recipients => self.write_recipients(store, at, out),
            Stage::Deferrals => self.write_deferrals(store, at, out),
            Stage::Subscribers => self.write_subscribers(store, at, out),
            Stage::WaitingHosts | Stage::WaitingPaths | Stage::WaitingDeferrals => self.write_waiting(at, out),
            Stage::Done => false,
        };
        if !more || at.written >= KIND_MAX {
            *at = SnapshotProgress {
                stage: stage.next(),
                replies: std::mem::take(&mut at.replies),
                ..SnapshotProgress::default()
            };
        }
        at.stage != Stage::Done
    }

    fn write_hosts(&self, at: &mut SnapshotProgress, text: &mut String, now: Ms) -> bool {
        let sites = &self.state.sites;
        let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
        let until = sites.hosts.len().min(at.index + LOOK_MAX);
        for host in (at.index..until).map(|index| &sites.hosts[index]) {
            let Some(name) = sites.kept_name(host).filter(|_| host.fails > 0 || host.grow_at > now) else { continue };
            out.host(&name, &host.kept(now));
            at.written += 1;
        }
        at.index = until;
        until < sites.hosts.len()
    }

    fn write_paths(&mut self, at: &mut SnapshotProgress, text: &mut String, now: Ms) -> bool {
        let until = self.state.sites.list.len().min(at.index + SLICE_MAX);
        for index in at.index..until {
            let site = SiteId(index as u32);
            for source in 0..self.state.sites.get(site).paths.len() {
                let Some(memory) = self.state.sites.path(site, source as u8).memory(now) else { continue };
                let (key, source) =
                    (self.state.sites.get(site).key.clone(), self.state.sites.source_name(source as u8));
                let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
                out.path(&key, source, &memory, now);
                at.written += 1;
            }
        }
        at.index = until;
        until < self.state.sites.list.len()
    }

    fn write_domains(&self, store: &Store, at: &mut SnapshotProgress, text: &mut String) -> bool {
        let until = store.book.domains().min(at.index + LOOK_MAX);
        let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
        for id in (at.index..until).map(|index| DomainId(index as u32)) {
            let Some(domain) = self.domains.peek(id).filter(|domain| domain.look_up == LookUp::Clock) else { continue };
            let clock = KeptClock { until: domain.until, fails: domain.fails, reason: domain.reason };
            out.line("domain", clock).text(store.book.domain_name(id)).end();
            at.written += 1;
        }
        at.index = until;
        until < store.book.domains()
    }

    fn write_mailboxes(&self, store: &Store, at: &mut SnapshotProgress, text: &mut String) -> bool {
        let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
        let Some(all) = self.failure.mailboxes.slice(&mut at.parts, SLICE_MAX) else { return false };
        for (id, clock) in all {
            out.line("mailbox", clock).text(store.book.entry(id)).end();
            at.written += 1;
        }
        true
    }

    fn write_recipients(&self, store: &Store, at: &mut SnapshotProgress, text: &mut String) -> bool {
        let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
        let Some(all) = self.failure.recipients.slice(&mut at.parts, SLICE_MAX) else { return false };
        for ((no, id), clock) in all {
            let Some(message) = store.message(no) else { continue };
            out.line("recipient", clock).word(message.id().0).text(store.book.entry(id)).end();
            at.written += 1;
        }
        true
    }

    fn write_deferrals(&self, store: &Store, at: &mut SnapshotProgress, text: &mut String) -> bool {
        let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
        let (deferrals, sites) = (&self.failure.deferrals, &self.state.sites);
        let until = deferrals.slots().min(at.index + SLICE_MAX);
        for deferral in (at.index..until).filter_map(|slot| deferrals.get(slot as u32)) {
            let key = match deferral.key {
                DeferralKey::Message(no) => store.message(no).map(Message::id).map(|id| KeptKey::Message(id.0)),
                DeferralKey::Sender(hash) => Some(KeptKey::Sender(hash)),
            };
            let (Some(key), Some(site)) = (key, sites.peek(deferral.site)) else { continue };
            let refusals = deferral.refusals.iter();
            let refusals = refusals.filter_map(|refusal| {
                let host = sites.kept_name(sites.hosts.get(refusal.host as usize)?)?;
                let mail = refusal.refused.iter();
                let refused = mail.filter_map(|mail| Some((store.message(mail.no)?.id().0, mail.kind, mail.size)));
                let (until, fails, trials) = (refusal.until, refusal.fails, refusal.trials);
                Some(KeptRefusal { host, until, fails, trials, refused: refused.collect() })
            });
            let refusals = refusals.collect();
            out.deferral(
                &site.key,
                &KeptDeferral { key, clock: deferral.clock(), returns: deferral.returns(), refusals },
            );
            at.written += 1;
        }
        at.index = until;
        until < deferrals.slots()
    }

    fn write_subscribers(&self, store: &Store, at: &mut SnapshotProgress, text: &mut String) -> bool {
        let Some(all) = self.notices.strikes(&mut at.parts, SLICE_MAX) else { return false };
        for (id, list, posts, since) in all {
            let line = Line::begin(text, "subscriber").text(store.book.entry(id)).text(list);
            line.word(posts).word(self.state.time.wall(since)).end();
            at.written += 1;
        }
        true
    }

    /// Writes facts from an earlier run about hosts and sites that nothing has needed since.
    fn write_waiting(&self, at: &mut SnapshotProgress, text: &mut String) -> bool {
        let kept = &self.state.sites.remembered;
        let mut out = FactWriter { state: &self.state, replies: &mut at.replies, text };
        let before = at.written;
        match at.stage {
            Stage::WaitingHosts => {
                let after = at.after_host.take().map_or(Bound::Unbounded, Bound::Excluded);
                for (name, host) in kept.hosts.range((after, Bound::Unbounded)).take(SLICE_MAX) {
                    out.host(name, host);
                    (at.after_host, at.written) = (Some(name.clone()), at.written + 1);
                }
            }
            Stage::WaitingPaths => {
                let after = at.after_path.take().map_or(Bound::Unbounded, Bound::Excluded);
                for (key, (memory, used)) in kept.paths.range((after, Bound::Unbounded)).take(SLICE_MAX) {
                    out.path(&key.0, &key.1, memory, *used);
                    (at.after_path, at.written) = (Some(key.clone()), at.written + 1);
                }
            }
            _ => {
                let after = at.after_site.take().map_or(Bound::Unbounded, Bound::Excluded);
                for (site, all) in kept.deferrals.range((after, Bound::Unbounded)).take(SLICE_MAX / 8) {
                    for deferral in all {
                        out.deferral(site, deferral);
                    }
                    (at.after_site, at.written) = (Some(site.clone()), at.written + all.len());
                }
            }
        }
        at.written > before
    }
}
