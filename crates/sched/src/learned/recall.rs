//! Restores learned state from before the start.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, MessageId, Ms};
use stentor_queue::store::Store;

use super::{LIMITS_MS, UNUSED_MS, WAITING_MAX, longest};
use crate::Scheduler;
use crate::kept::text::Fields;
use crate::kept::{Gap, KeptClock, KeptDeferral, KeptHost, KeptKey, KeptRefusal, PathMemory};
use crate::reasons::{HostReply, Reason};

/// State while a text is read.
struct Reading<'a> {
    store: &'a Store,
    gap: Gap,
    /// Steady time.
    now: Ms,
    replies: HashMap<u32, Reason>,
}

impl Reading<'_> {
    /// Reads the fields with which [`super::save`] begins a clock's line.
    fn clock(&self, fields: &mut Fields<'_>, max_ms: Ms) -> Option<KeptClock> {
        let (until, fails) = (fields.word::<Ms>()?, fields.word()?);
        let (cause, reply) = (Cause::of_name(&fields.text()?)?, fields.word::<u32>()?);
        let reason = self.replies.get(&reply).copied().unwrap_or(Reason::without_text(cause));
        Some(KeptClock { until: self.now + self.gap.left(until, max_ms), fails, reason })
    }
}

impl Scheduler {
    /// Restores the text that [`Scheduler::write_learned`] wrote at `written`. Call it before messages are
    /// [`Scheduler::accepted`]. Returns the number of malformed lines.
    pub fn recall(&mut self, store: &Store, text: &str, written: Ms, now: Ms) -> usize {
        let mut reading = Reading { store, gap: Gap { written, now }, now: self.steady(now), replies: HashMap::new() };
        let mut bad = 0;
        for line in text.lines().filter(|line| !line.is_empty()) {
            let mut fields = Fields::of(line);
            let kind = fields.text().unwrap_or_default();
            let is_good = match kind.as_str() {
                "reply" => self.recall_reply(&mut fields, &mut reading),
                "host" => self.recall_host(&mut fields, &reading),
                "path" => self.recall_path(&mut fields, &reading),
                "domain" => self.recall_domain(&mut fields, &reading),
                "mailbox" => self.recall_mailbox(&mut fields, &reading),
                "recipient" => self.recall_recipient(&mut fields, &reading),
                "deferral" => self.recall_deferral(&mut fields, &reading),
                "subscriber" => self.recall_subscriber(&mut fields, &reading),
                // A kind of fact from a later version.
                _ => Some(()),
            };
            bad += usize::from(is_good.is_none());
        }
        bad
    }

    fn recall_reply(&mut self, fields: &mut Fields<'_>, reading: &mut Reading<'_>) -> Option<()> {
        let (number, code, dsn) = (fields.word()?, fields.word()?, fields.text()?);
        let (cause, host, text) = (Cause::of_name(&fields.text()?)?, fields.text()?, fields.text()?);
        let host = Some(host).filter(|host| !host.is_empty()).map(Arc::from);
        let reply = HostReply { code, dsn: Enhanced::parse(&dsn), text: text.into(), cause, host };
        reading.replies.insert(number, self.state.reasons.keep(reply));
        Some(())
    }

    fn recall_host(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let clock = reading.clock(fields, self.state.cfg.host_retry.max_ms)?;
        let (name, used) = (fields.text()?, fields.word::<Ms>()?);
        let (retries, pauses, paused_ms) = (fields.word()?, fields.word()?, fields.word()?);
        let (conns_max, grow_at) = (fields.word()?, fields.word()?);
        let grow_at = reading.now + reading.gap.left(grow_at, crate::sites::GROW_MS);
        let hosts = &mut self.state.sites.remembered.hosts;
        if is_recent(used, reading.gap) && hosts.len() < WAITING_MAX {
            let used = reading.now.saturating_sub(reading.gap.now.saturating_sub(used));
            let host = KeptHost { clock, retries, pauses, paused_ms, conns_max, grow_at, used };
            hosts.insert(name.into(), host);
        }
        Some(())
    }

    fn recall_path(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let (site, source, used) = (fields.text()?, fields.text()?, fields.word::<Ms>()?);
        let mut memory = PathMemory::read(fields, reading.gap, reading.now)?;
        if reading.now.saturating_sub(memory.limits_at) > LIMITS_MS {
            memory.forget_limits();
        }
        let paths = &mut self.state.sites.remembered.paths;
        if is_recent(used, reading.gap) && paths.len() < WAITING_MAX {
            let used = reading.now.saturating_sub(reading.gap.now.saturating_sub(used));
            paths.insert((site.into(), source.into()), (memory, used));
        }
        Some(())
    }

    fn recall_domain(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let clock = reading.clock(fields, self.state.cfg.domain_retry.max_ms)?;
        if let Some(domain) = reading.store.book.domain_lookup(&fields.text()?) {
            self.domains.recall(&mut self.state, domain, clock, reading.now);
        }
        Some(())
    }

    fn recall_mailbox(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let clock = reading.clock(fields, self.state.cfg.mailbox_retry.max_ms)?;
        if let Some(id) = reading.store.book.lookup(&fields.text()?) {
            self.failure.mailboxes.recall(&mut self.state, id, clock, reading.now);
        }
        Some(())
    }

    fn recall_recipient(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let cfg = &self.state.cfg;
        let max_ms = longest([Some(cfg.recipient_retry), cfg.bulk_recipient_retry]);
        let clock = reading.clock(fields, max_ms)?;
        let (message, address) = (MessageId(fields.word()?), fields.text()?);
        let (store, no) = (reading.store, reading.store.no_of(message));
        let found = no.zip(store.book.lookup(&address));
        if let Some((no, id)) = found.filter(|(no, id)| store.message(*no).is_some_and(|m| m.pending().contains(id.0)))
        {
            self.failure.recipients.recall(&mut self.state, (no, id), clock, reading.now);
        }
        Some(())
    }

    fn recall_deferral(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let cfg = &self.state.cfg;
        let max_ms = longest([Some(cfg.site_retry), cfg.bulk_site_retry]);
        let clock = reading.clock(fields, max_ms)?;
        let site: Arc<str> = fields.text()?.into();
        let (kind, value) = (fields.word::<char>()?, fields.word()?);
        let key = if kind == 'm' { KeptKey::Message(value) } else { KeptKey::Sender(value) };
        let (returns, count) = (fields.word()?, fields.word::<usize>()?);
        let (mut refusals, mut is_recent) = (Vec::new(), false);
        for _ in 0..count {
            let (host, until, fails) = (fields.text()?.into(), fields.word::<Ms>()?, fields.word()?);
            is_recent |= until.saturating_add(max_ms) > reading.gap.now;
            let until = reading.now + reading.gap.left(until, max_ms);
            refusals.push(KeptRefusal { host, until, fails, trials: 0, refused: Vec::new() });
        }
        // Not there in texts of earlier versions.
        for refusal in &mut refusals {
            refusal.trials = fields.word().unwrap_or(0);
            for _ in 0..fields.word::<usize>().unwrap_or(0) {
                refusal.refused.push((fields.word()?, fields.word()?, fields.word()?));
            }
        }
        let is_known = match key {
            KeptKey::Message(id) => reading.store.no_of(MessageId(id)).is_some(),
            KeptKey::Sender(_) => is_recent,
        };
        let sites = &mut self.state.sites.remembered.deferrals;
        if is_known && (sites.len() < WAITING_MAX || sites.contains_key(&site)) {
            sites.entry(site).or_default().push(KeptDeferral { key, clock, returns, refusals });
        }
        Some(())
    }

    fn recall_subscriber(&mut self, fields: &mut Fields<'_>, reading: &Reading<'_>) -> Option<()> {
        let (address, list) = (fields.text()?, fields.text()?);
        let (posts, since) = (fields.word()?, fields.word()?);
        if let Some(id) = reading.store.book.lookup(&address) {
            let since = reading.now.saturating_sub(reading.gap.age(since));
            self.notices.recall_strike(id, list.into(), posts, since);
        }
        Some(())
    }

    /// Restores the deferrals of a site that a domain has just found, before the domain's mail comes.
    pub(crate) fn recall_deferrals(&mut self, store: &Store, domain: DomainId, now: Ms) {
        if self.state.sites.remembered.deferrals.is_empty() {
            return;
        }
        let Some(site) = self.domains.get(domain).site else { return };
        let key = self.state.sites.get(site).key.clone();
        let Some(all) = self.state.sites.remembered.deferrals.remove(&key) else { return };
        let sources = self.state.sources();
        self.state.sites.ensure_paths(site, sources, now);
        for kept in all {
            self.failure.deferrals.recall(&mut self.state, store, site, kept, now);
        }
    }
}

fn is_recent(used: Ms, gap: Gap) -> bool {
    gap.now.saturating_sub(used) <= UNUSED_MS
}
