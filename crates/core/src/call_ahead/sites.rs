//! The sites that are asked about recipients: each site's line of questions, its rate limit, and whether it answers.
//!
//! States of a site: unknown -> being asked (by one worker; by several after the first reply, each with a connection)
//! -> known for an hour as replying, or failing for a time in which nothing is asked. A question that arrives while the
//! line is full or the site is failing is returned.
//!
//! Promise: at most [`SITES_MAX`] sites, with [`LINE_MAX`] questions in each line. The caller starts the workers that
//! [`EntryOutcome`] asks for. Clients take turns: one that asks a lot waits for its own questions and does not delay
//! others. A site that replied within [`ANSWERING_MS`] does not fail: it only gets no more connections.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_queue::site::{SitePlan, Target};
use tokio::sync::Notify;

use super::super::Settings;
use super::{QueryTicket, ReasonTexts, Responsiveness};

pub const SITES_MAX: usize = 1_024;
/// Maximum number of questions waiting at one site.
pub const LINE_MAX: usize = 256;
/// Maximum number of these from one client.
pub const LINE_OF_CLIENT_MAX: usize = 64;
/// Maximum number at a site that did not answer last time: they count against all open questions.
pub const LINE_AFTER_FAILURE_MAX: usize = 16;
/// How long after a reply a site counts as answering.
pub const ANSWERING_MS: Ms = 10_000;
/// How long after a reply a site need not share places with sites that do not answer: see [`super::Places`].
pub const REPLYING_MS: Ms = 3_600_000;

/// The recipient's address in the forms that different hosts are asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The stored address, used over LMTP.
    pub stored: Arc<str>,
    /// The generic address, used over SMTP; `None` if there is none.
    pub generic: Option<Arc<str>>,
}

impl Names {
    /// Returns the address that this host is asked about.
    pub fn at(&self, target: &Target) -> &str {
        self.generic.as_deref().filter(|_| !target.lmtp).unwrap_or(&self.stored)
    }
}

/// A question about one recipient.
pub struct CallAheadQuery {
    /// The client on whose behalf the question is asked: see [`stentor_policy::counted_as`].
    pub client: IpAddr,
    pub names: Names,
    pub plan: Arc<SitePlan>,
    pub settings: Arc<Settings>,
    pub ticket: QueryTicket,
    /// When all who wait for the answer give up.
    pub deadline: Ms,
}

/// Result of handing a question to its site.
pub enum EntryOutcome {
    /// The question is in line; `Some` if a worker must be started for the site, with its wake-up signal.
    Waits(Option<Arc<Notify>>),
    /// The site is failing, for this reason.
    Failing(CallAheadQuery, ReasonTexts),
    /// Too many questions wait.
    Full(CallAheadQuery),
}

#[derive(Default)]
pub struct CallAheadSites(Mutex<HashMap<Arc<str>, Site, foldhash::fast::RandomState>>);

/// What a worker that could not open a session must do.
pub enum FailureScope {
    /// The site does not answer: report that to all questions from its line.
    Site(Vec<CallAheadQuery>),
    /// The site answers other workers, one of which takes the question; this worker ends.
    Worker,
    /// The site answered a moment ago and has no other worker: only this question fails.
    Question,
}

#[derive(Default)]
struct Site {
    /// Questions by round; each round has one question per client.
    line: VecDeque<(u64, CallAheadQuery)>,
    /// Round of the last question taken.
    round: u64,
    workers: usize,
    workers_max: usize,
    /// Until when no additional workers are started.
    enough_until: Ms,
    /// When the site last replied to a question.
    replied_at: Option<Ms>,
    /// When the site last replied to any part of a question.
    heard_at: Option<Ms>,
    /// Workers without a question.
    idle: usize,
    wake: Arc<Notify>,
    /// When the next question may be sent.
    next_at: Ms,
    /// Until when the site is not asked, and why. Kept after that until the site replies.
    failing: Option<(Ms, ReasonTexts)>,
}

impl CallAheadSites {
    /// Hands a question to its site.
    pub fn enter(&self, question: CallAheadQuery, workers_max: usize, now: Ms) -> EntryOutcome {
        let mut sites = self.0.lock();
        if sites.len() >= SITES_MAX && !sites.contains_key(&question.plan.key) {
            sites.retain(|_, site| site.workers > 0 || site.is_failing(now) || site.is_replying(now));
            if sites.len() >= SITES_MAX {
                sites.retain(|_, site| site.workers > 0 || site.is_failing(now));
            }
            if sites.len() >= SITES_MAX {
                return EntryOutcome::Full(question);
            }
        }
        let site = sites.entry(question.plan.key.clone()).or_default();
        if let Some((until, why)) = &site.failing
            && now < *until
        {
            return EntryOutcome::Failing(question, why.clone());
        }
        let of_client = site.line.iter().filter(|(_, other)| other.client == question.client).count();
        let line_max = if site.failing.is_some() { LINE_AFTER_FAILURE_MAX } else { LINE_MAX };
        if site.line.len() >= line_max || of_client >= LINE_OF_CLIENT_MAX {
            return EntryOutcome::Full(question);
        }
        let is_awaited = site.line.len() < site.idle;
        site.queue(question);
        site.workers_max = workers_max;
        if is_awaited {
            site.wake.notify_one();
            return EntryOutcome::Waits(None);
        }
        EntryOutcome::Waits(site.another_worker(now))
    }

    /// Returns how a site has done so far.
    pub fn responsiveness(&self, site: &str, now: Ms) -> Responsiveness {
        match self.0.lock().get(site) {
            Some(site) if site.is_replying(now) => Responsiveness::Replying,
            Some(Site { failing: Some(_), .. }) => Responsiveness::Failed,
            _ => Responsiveness::New,
        }
    }

    /// Notes a reply to part of a question. Returns the wake-up signal of an additional worker, if one must be started.
    pub fn heard(&self, site: &str, now: Ms) -> Option<Arc<Notify>> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        site.heard_at = Some(now);
        (site.line.len() > site.idle).then(|| site.another_worker(now)).flatten()
    }

    /// Notes that a question ended without any reply, for a site that has never replied. Other questions are
    /// unaffected.
    pub fn unheard(&self, site: &str, now: Ms, why: &ReasonTexts) {
        if let Some(site) = self.0.lock().get_mut(site)
            && site.heard_at.is_none()
        {
            site.failing.get_or_insert_with(|| (now, why.clone()));
        }
    }

    /// Returns the next question for a worker of the site; without one the worker counts as idle.
    pub fn next(&self, site: &str) -> Option<CallAheadQuery> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        let Some((round, next)) = site.line.pop_front() else {
            site.idle += 1;
            return None;
        };
        site.round = site.round.max(round);
        Some(next)
    }

    /// Notes that an idle worker resumes.
    pub fn awake(&self, site: &str) {
        if let Some(site) = self.0.lock().get_mut(site) {
            site.idle = site.idle.saturating_sub(1);
        }
    }

    /// Lets a worker end, unless questions are waiting.
    pub fn leave(&self, name: &str) -> bool {
        let mut sites = self.0.lock();
        let Some(site) = sites.get_mut(name) else { return true };
        if !site.line.is_empty() {
            return false;
        }
        site.workers -= 1;
        if site.workers == 0 && site.failing.is_none() && site.heard_at.is_none() {
            sites.remove(name);
        }
        true
    }

    /// Returns when the next question may be sent, if that is before `deadline`, and reserves that time.
    pub fn turn(&self, site: &str, per_second: u32, deadline: Ms, now: Ms) -> Option<Ms> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        let at = site.next_at.max(now);
        (at < deadline).then(|| {
            site.next_at = at + 1_000 / Ms::from(per_second.max(1));
            at
        })
    }

    /// Notes that a worker could not open a session for a question, or that its sender was refused. Nothing is asked
    /// before `until`.
    pub fn fail(
        &self,
        name: &str,
        question: &mut Option<CallAheadQuery>,
        why: &ReasonTexts,
        now: Ms,
        until: Ms,
    ) -> FailureScope {
        let mut sites = self.0.lock();
        let Some(site) = sites.get_mut(name) else { return FailureScope::Question };
        if site.replied_at.is_none_or(|at| now >= at + ANSWERING_MS) {
            site.failing = Some((until, why.clone()));
            site.heard_at = None;
            return FailureScope::Site(site.line.drain(..).map(|(_, question)| question).collect());
        }
        if site.workers <= 1 {
            return FailureScope::Question;
        }
        site.workers -= 1;
        site.enough_until = now + ANSWERING_MS;
        if let Some(question) = question.take() {
            site.line.push_front((site.round, question));
        }
        if site.idle > 0 {
            site.wake.notify_one();
        }
        FailureScope::Worker
    }

    /// Notes a reply to a question.
    pub fn replied(&self, site: &str, now: Ms) {
        if let Some(site) = self.0.lock().get_mut(site) {
            site.failing = None;
            site.replied_at = Some(now);
            site.heard_at = Some(now);
        }
    }

    pub(super) fn forget_failures(&self) {
        let mut sites = self.0.lock();
        sites.values_mut().for_each(|site| site.failing = None);
        sites.retain(|_, site| site.workers > 0 || site.heard_at.is_some());
    }
}

impl Site {
    /// Puts a question into the first round without one of its client.
    fn queue(&mut self, question: CallAheadQuery) {
        let last = self.line.iter().rfind(|(_, other)| other.client == question.client);
        let round = last.map_or(self.round, |(round, _)| round + 1);
        let at = self.line.partition_point(|(other, _)| *other <= round);
        self.line.insert(at, (round, question));
    }

    /// Returns the wake-up signal of another worker, if one may be started.
    fn another_worker(&mut self, now: Ms) -> Option<Arc<Notify>> {
        let max = if self.is_replying(now) { self.workers_max } else { 1 };
        let is_enough = self.workers > 0 && now < self.enough_until;
        (self.workers < max && !is_enough).then(|| {
            self.workers += 1;
            self.wake.clone()
        })
    }

    fn is_replying(&self, now: Ms) -> bool {
        self.heard_at.is_some_and(|at| now < at + REPLYING_MS)
    }

    fn is_failing(&self, now: Ms) -> bool {
        self.failing.as_ref().is_some_and(|(until, _)| now < *until)
    }
}
