//! The sites that are asked about recipients: the line of questions at each, how fast they are asked, and which do not answer.
//!
//! States of a site: unknown -> asked (by one or more workers, each with a connection) -> forgotten, or failing for a time, in which
//! nothing is asked. A question that comes while the line is full or the site fails is given back.
//!
//! Promise: at most [`SITES_MAX`] sites, [`LINE_MAX`] questions in each line; the engine starts the workers that it is told to.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_queue::site::SitePlan;
use tokio::sync::Notify;

use super::super::Settings;
use super::{Ticket, Words};

pub const SITES_MAX: usize = 1_024;
/// Questions that wait at one site.
pub const LINE_MAX: usize = 256;

/// A question about one recipient.
pub struct Question {
    pub address: Arc<str>,
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

#[derive(Default)]
struct Site {
    line: VecDeque<Question>,
    workers: usize,
    /// Workers without a question.
    idle: usize,
    wake: Arc<Notify>,
    /// When the next question may be put.
    next_at: Ms,
    failing: Option<(Ms, Words)>,
}

impl Sites {
    /// Brings a question to its site.
    pub fn enter(&self, question: Question, workers_max: usize, now: Ms) -> Entered {
        let mut sites = self.0.lock();
        if sites.len() >= SITES_MAX && !sites.contains_key(&question.plan.key) {
            sites.retain(|_, site| site.workers > 0 || site.is_failing(now));
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
        if site.line.len() >= LINE_MAX {
            return Entered::Full(question);
        }
        let is_awaited = site.line.len() < site.idle;
        site.line.push_back(question);
        if is_awaited {
            site.wake.notify_one();
        } else if site.workers < workers_max {
            site.workers += 1;
            return Entered::Waits(Some(site.wake.clone()));
        }
        Entered::Waits(None)
    }

    /// The next question for a worker of the site, who counts as idle if there is none.
    pub fn next(&self, site: &str) -> Option<Question> {
        let mut sites = self.0.lock();
        let site = sites.get_mut(site)?;
        let next = site.line.pop_front();
        site.idle += usize::from(next.is_none());
        next
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
        if site.workers == 0 && site.failing.is_none() {
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

    /// The site does not answer: whoever waits in its line.
    pub fn fail(&self, site: &str, until: Ms, why: &Words) -> Vec<Question> {
        let mut sites = self.0.lock();
        let Some(site) = sites.get_mut(site) else { return Vec::new() };
        site.failing = Some((until, why.clone()));
        site.line.drain(..).collect()
    }

    /// It does again.
    pub fn recover(&self, site: &str) {
        if let Some(site) = self.0.lock().get_mut(site) {
            site.failing = None;
        }
    }

    pub(super) fn forget_failures(&self) {
        let mut sites = self.0.lock();
        sites.values_mut().for_each(|site| site.failing = None);
        sites.retain(|_, site| site.workers > 0);
    }
}

impl Site {
    fn is_failing(&self, now: Ms) -> bool {
        self.failing.as_ref().is_some_and(|(until, _)| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use stentor_queue::site::SiteLimits;

    use super::super::{CallAhead, Look};
    use super::*;

    struct World {
        all: Arc<CallAhead>,
        settings: Arc<Settings>,
    }

    impl World {
        fn new() -> World {
            let settings = Arc::new(Settings::new(stentor_config::without_file().unwrap(), None));
            World { all: Arc::default(), settings }
        }

        fn enter(&self, site: &str, address: &str, now: Ms) -> Entered {
            let Look::Ask(ticket, _) = self.all.look(&format!("{address}>{site}"), now) else { panic!("known") };
            let limits = SiteLimits::default();
            let plan = SitePlan { key: site.into(), targets: Vec::new(), mixes_domains: false, limits, ttl_s: 60 };
            let settings = self.settings.clone();
            let question =
                Question { address: address.into(), plan: Arc::new(plan), settings, ticket, deadline: now + 1_000 };
            self.all.sites.enter(question, 2, now)
        }

        /// Whether a worker is to be started.
        fn starts(&self, address: &str) -> bool {
            matches!(self.enter("mx", address, 0), Entered::Waits(Some(_)))
        }
    }

    #[test]
    fn workers_are_started_as_questions_come_and_no_more_than_there_may_be() {
        let world = World::new();
        let sites = &world.all.sites;
        assert!(world.starts("a") && world.starts("b") && !world.starts("c"));
        assert!(!sites.leave("mx"));
        let first = |question: Option<Question>| question.map(|question| question.address.to_string());
        assert_eq!(first(sites.next("mx")).as_deref(), Some("a"));
        while sites.next("mx").is_some() {}
        // One is idle: it takes the next question.
        assert!(!world.starts("d"));
        sites.awake("mx");
        assert_eq!(first(sites.next("mx")).as_deref(), Some("d"));
        assert!(sites.leave("mx") && sites.leave("mx"));
        assert!(world.starts("e"), "the site was forgotten with its last worker");
    }

    #[test]
    fn a_site_that_fails_is_not_asked_for_a_time() {
        let world = World::new();
        let sites = &world.all.sites;
        assert!(world.starts("a"));
        let why = Words::plain("connection refused");
        let given_up = sites.fail("mx", 100, &why);
        assert_eq!(given_up.len(), 1);
        assert!(sites.leave("mx"));
        assert!(matches!(world.enter("mx", "b", 99), Entered::Failing(_, words) if words == why));
        assert!(matches!(world.enter("mx", "b", 100), Entered::Waits(Some(_))));
    }

    #[test]
    fn questions_are_put_one_after_the_other_or_not_in_time() {
        let world = World::new();
        assert!(world.starts("a"));
        let turn = |deadline, now| world.all.sites.turn("mx", 10, deadline, now);
        assert_eq!((turn(1_000, 0), turn(1_000, 0), turn(1_000, 0)), (Some(0), Some(100), Some(200)));
        assert_eq!((turn(300, 0), turn(301, 0), turn(5_000, 2_000)), (None, Some(300), Some(2_000)));
    }

    #[test]
    fn lines_and_sites_are_bounded() {
        let world = World::new();
        for n in 0..LINE_MAX {
            assert!(matches!(world.enter("mx", &n.to_string(), 0), Entered::Waits(_)));
        }
        assert!(matches!(world.enter("mx", "more", 0), Entered::Full(_)));
        // Sites that fail are kept for their time, and no longer.
        for n in 1..SITES_MAX {
            let site = format!("mx{n}");
            assert!(matches!(world.enter(&site, "a", 0), Entered::Waits(_)));
            drop(world.all.sites.fail(&site, 100, &Words::plain("down")));
            assert!(world.all.sites.leave(&site));
        }
        assert!(matches!(world.enter("another", "a", 99), Entered::Full(_)));
        assert!(matches!(world.enter("another", "a", 100), Entered::Waits(_)));
    }
}
