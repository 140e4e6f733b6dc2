//! The sites that are asked about recipients: the line of questions at each, how fast they are asked, and which do not answer.
//!
//! States of a site: unknown -> asked (by one worker, after the first reply by several, each with a connection) -> known for an hour as
//! one that replies, or failing for a time, in which nothing is asked. A question that comes while the line is full or the site
//! fails is given back.
//!
//! Promise: at most [`SITES_MAX`] sites, [`LINE_MAX`] questions in each line; the engine starts the workers that it is told to. Clients
//! take turns: one that asks a lot waits for its own questions, not the others. A site that has replied within [`ANSWERING_MS`]
//! does not fail: it only takes no more connections.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_queue::site::{SitePlan, Target};
use tokio::sync::Notify;

use super::super::Settings;
use super::{Standing, Ticket, Words};

pub const SITES_MAX: usize = 1_024;
/// Questions that wait at one site.
pub const LINE_MAX: usize = 256;
/// Those of one client.
pub const LINE_OF_CLIENT_MAX: usize = 64;
/// Those at a site that did not answer when it was asked last: they count among all that may be open.
pub const LINE_AFTER_FAILURE_MAX: usize = 16;
/// How long after a reply a site counts as one that answers.
pub const ANSWERING_MS: Ms = 10_000;
/// And as one that need not wait for those that do not: see [`super::Places`].
pub const REPLYING_MS: Ms = 3_600_000;

/// What hosts are asked about: a recipient as each of them gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// As it is stored, which is what goes by LMTP.
    pub stored: Arc<str>,
    /// Its generic address, which goes by SMTP; `None`: it has none.
    pub generic: Option<Arc<str>>,
}

impl Names {
    /// What this host is asked about.
    pub fn at(&self, target: &Target) -> &str {
        self.generic.as_deref().filter(|_| !target.lmtp).unwrap_or(&self.stored)
    }
}

/// A question about one recipient.
pub struct Question {
    /// For whom it is asked: see [`stentor_policy::counted_as`].
    pub client: IpAddr,
    pub names: Names,
    pub plan: Arc<SitePlan>,
    pub settings: Arc<Settings>,
    pub ticket: Ticket,
    /// When nobody waits for the answer any more.
    pub deadline: Ms,
}

/// What became of a question that was brought to its site.
pub enum Entered {
    /// In line; a worker is to be started for the site, if there is one with what wakes it.
    Waits(Option<Arc<Notify>>),
    /// The site does not answer, for this reason.
    Failing(Question, Words),
    /// Too many questions wait.
    Full(Question),
}

#[derive(Default)]
pub struct Sites(Mutex<HashMap<Arc<str>, Site, foldhash::fast::RandomState>>);

/// What a worker that could not open a session is to do.
pub enum Failed {
    /// The site does not answer: so is to be told whoever waited in its line.
    Site(Vec<Question>),
    /// The site answers others, one of which takes the question; the worker ends.
    Worker,
    /// The site answered a moment ago, and there is no other worker: the question alone fails.
    Question,
}

#[derive(Default)]
struct Site {
    /// By their rounds: each has one question of each client.
    line: VecDeque<(u64, Question)>,
    /// That of the last question taken.
    round: u64,
    workers: usize,
    workers_max: usize,
    /// Until when no more workers are started beside those that there are.
    enough_until: Ms,
    /// When it replied last to a question.
    replied_at: Option<Ms>,
    /// When it replied last to any part of a question.
    heard_at: Option<Ms>,
    /// Workers without a question.
    idle: usize,
    wake: Arc<Notify>,
    /// When the next question may be put.
    next_at: Ms,
    /// Until when it is left alone; kept from then on until it replies.
    failing: Option<(Ms, Words)>,
}

impl Sites {
    /// Brings a question to its site.
    pub fn enter(&self, question: Question, workers_max: usize, now: Ms) -> Entered {
        let mut sites = self.0.lock();
        if sites.len() >= SITES_MAX && !sites.contains_key(&question.plan.key) {
            sites.retain(|_, site| site.workers > 0 || site.is_failing(now) || site.is_replying(now));
            if sites.len() >= SITES_MAX {
                sites.retain(|_, site| site.workers > 0 || site.is_failing(now));
            }
            if sites.len() >= SITES_MAX {
                return Entered::Full(question);
            }
        }
        let site = sites.entry(question.plan.key.clone()).or_default();
        if let Some((until, why)) = &site.failing
            && now < *until
        {
            return Entered::Failing(question, why.clone());
        }
        let of_client = site.line.iter().filter(|(_, other)| other.client == question.client).count();
        let line_max = if site.failing.is_some() { LINE_AFTER_FAILURE_MAX } else { LINE_MAX };
        if site.line.len() >= line_max || of_client >= LINE_OF_CLIENT_MAX {
            return Entered::Full(question);
        }
        let is_awaited = site.line.len() < site.idle;
        site.queue(question);
        site.workers_max = workers_max;
        if is_awaited {
            site.wake.notify_one();
            return Entered::Waits(None);
        }
        Entered::Waits(site.another_worker(now))
    }

    /// How a site has done so far.
    pub fn standing(&self, site: &str, now: Ms) -> Standing {
        match self.0.lock().get(site) {
            Some(site) if site.is_replying(now) => Standing::Replying,
            Some(Site { failing: Some(_), .. }) => Standing::Failed,
            _ => Standing::New,
        }
    }

    /// It replied to a part of a question. What wakes a further worker, if one is to be started.
    pub fn heard(&self, site: &str, now: Ms) -> Option<Arc<Notify>> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        site.heard_at = Some(now);
        (site.line.len() > site.idle).then(|| site.another_worker(now)).flatten()
    }

    /// A question ended without any reply of a site that has not been heard of, and says nothing of other questions.
    pub fn unheard(&self, site: &str, now: Ms, why: &Words) {
        if let Some(site) = self.0.lock().get_mut(site)
            && site.heard_at.is_none()
        {
            site.failing.get_or_insert_with(|| (now, why.clone()));
        }
    }

    /// The next question for a worker of the site, who counts as idle if there is none.
    pub fn next(&self, site: &str) -> Option<Question> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        let Some((round, next)) = site.line.pop_front() else {
            site.idle += 1;
            return None;
        };
        site.round = site.round.max(round);
        Some(next)
    }

    /// An idle worker goes on.
    pub fn awake(&self, site: &str) {
        if let Some(site) = self.0.lock().get_mut(site) {
            site.idle = site.idle.saturating_sub(1);
        }
    }

    /// A worker wants to end. Not while there are questions.
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

    /// When the next question may be put, if that is before `deadline`; from then on the one behind it waits.
    pub fn turn(&self, site: &str, per_second: u32, deadline: Ms, now: Ms) -> Option<Ms> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        let at = site.next_at.max(now);
        (at < deadline).then(|| {
            site.next_at = at + 1_000 / Ms::from(per_second.max(1));
            at
        })
    }

    /// A worker could not open a session for a question, or was refused as the sender. `until`: how long nothing is asked then.
    pub fn fail(&self, name: &str, question: &mut Option<Question>, (now, until): (Ms, Ms), why: &Words) -> Failed {
        let mut sites = self.0.lock();
        let Some(site) = sites.get_mut(name) else { return Failed::Question };
        if site.replied_at.is_none_or(|at| now >= at + ANSWERING_MS) {
            site.failing = Some((until, why.clone()));
            site.heard_at = None;
            return Failed::Site(site.line.drain(..).map(|(_, question)| question).collect());
        }
        if site.workers <= 1 {
            return Failed::Question;
        }
        site.workers -= 1;
        site.enough_until = now + ANSWERING_MS;
        if let Some(question) = question.take() {
            site.line.push_front((site.round, question));
        }
        if site.idle > 0 {
            site.wake.notify_one();
        }
        Failed::Worker
    }

    /// It replied to a question.
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
    /// Puts a question into the first round that has none of its client.
    fn queue(&mut self, question: Question) {
        let last = self.line.iter().rfind(|(_, other)| other.client == question.client);
        let round = last.map_or(self.round, |(round, _)| round + 1);
        let at = self.line.partition_point(|(other, _)| *other <= round);
        self.line.insert(at, (round, question));
    }

    /// What wakes another worker, if there may be one.
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
