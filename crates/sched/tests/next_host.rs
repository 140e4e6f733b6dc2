//! After a 4xx at MAIL the next host is asked (RFC 5321 section 5.1), and the first not before its clock. Sites that
//! share a host which takes no further connection. Hosts that refuse connections for a moment, or mail for good (RFC
//! 7504).

#[path = "common/at_once.rs"]
mod at_once;
#[path = "common/steps.rs"]
mod steps;

use std::collections::{HashMap, HashSet};

use stentor_mail::Class;
use stentor_queue::cause::Cause;
use stentor_queue::event::{Accept, Fate};
use stentor_queue::ids::{AddressId, ConnId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::site::{Resolution, SiteLimits, SitePlan};
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::{
    CauseCounts, CloseReason, Effect, FailedRcpt, NoSession, RecipientPlace, SchedConfig, Scheduler, SessionStep,
    SiteProgress, Stage, WaitsFor, Work,
};

use self::at_once::AtOnce;
use self::steps::{Answer, plan, target};

const NOW: Ms = 1_800_000_000_000;
const MINUTE: Ms = 60_000;

/// One site of two hosts, 1 preferred to 2, which answer at once.
struct Site {
    store: Store,
    sched: Scheduler,
    now: Ms,
    limits: SiteLimits,
    conns: HashMap<ConnId, u16>,
    most_conns: usize,
    connects: usize,
    /// Refused senders: the host and the sender's domain.
    refused: HashSet<(u16, &'static str)>,
    dead: HashSet<u16>,
    /// A message that is refused at MAIL whatever its sender, and how often it was.
    large: Option<MessageNo>,
    large_refused: usize,
    /// Others that are.
    bad: HashSet<MessageNo>,
    /// Whether MAIL is answered with a rate reply.
    is_limited: bool,
    /// Why there is no session with a host.
    no_session: HashMap<u16, NoSession>,
    /// Whether connection attempts get no answer.
    is_mute: bool,
    asked_for: Vec<ConnId>,
    /// Connections that the first host takes.
    takes: usize,
    /// Whether transactions are answered by `answer_all` only.
    is_slow: bool,
    open: Vec<(ConnId, Work)>,
    /// Each MAIL: time, host, sender.
    asked: Vec<(Ms, u16, String)>,
    delivered: Vec<u16>,
    bounced: Vec<FailedRcpt>,
}

impl Site {
    fn new(cfg: SchedConfig) -> Site {
        Site::seeded(cfg, 1)
    }

    fn seeded(cfg: SchedConfig, seed: u64) -> Site {
        Site {
            store: Store::new(),
            sched: Scheduler::new(cfg, seed),
            now: NOW,
            limits: SiteLimits::default(),
            conns: HashMap::new(),
            most_conns: 0,
            connects: 0,
            refused: HashSet::new(),
            dead: HashSet::new(),
            large: None,
            large_refused: 0,
            bad: HashSet::new(),
            is_limited: false,
            no_session: HashMap::new(),
            is_mute: false,
            asked_for: Vec::new(),
            takes: usize::MAX,
            is_slow: false,
            open: Vec::new(),
            asked: Vec::new(),
            delivered: Vec::new(),
            bounced: Vec::new(),
        }
    }

    fn mail(&mut self, from: &str, class: Class) -> (MessageNo, AddressId) {
        self.mail_to("site.example", from, class)
    }

    fn mail_to(&mut self, domain: &str, from: &str, class: Class) -> (MessageNo, AddressId) {
        let id = self.store.next_message_id(self.now);
        let (to, _) = self.store.book.intern(&format!("u{}@{domain}", id.0 % 7)).unwrap();
        let accept = Accept {
            size: 1_000,
            sender: format!("ann@{from}"),
            class,
            recipients: IdSet::one(to.0),
            ..Accept::bare(id, self.now)
        };
        (steps::accept(&mut self.store, &mut self.sched, accept, self.now), to)
    }

    /// Plan of a domain; `one.example` has only the first host.
    fn plan(&self, domain: &str) -> Resolution {
        let (key, hosts) = if domain == "one.example" { ("one", 1..=1) } else { ("mx", 1..=2) };
        let plan = plan(key, hosts.map(|host| target(host, format!("mx{host}.example"), host)));
        Resolution::Site(SitePlan { limits: self.limits, ..plan })
    }

    fn work(&mut self, conn: ConnId) {
        while let Some(work) = self.sched.take_work(&self.store, conn, self.now) {
            if self.is_slow {
                return self.open.push((conn, work));
            }
            self.answer(conn, &work);
        }
    }

    fn answer_all(&mut self) {
        for (conn, work) in std::mem::take(&mut self.open) {
            self.answer(conn, &work);
            self.work(conn);
        }
    }

    fn answer(&mut self, conn: ConnId, work: &Work) {
        let host = self.conns[&conn];
        let message = self.store.message(work.no).unwrap();
        let domain = message.sender().rsplit_once('@').unwrap().1.to_owned();
        let is_large = self.large == Some(work.no);
        self.large_refused += usize::from(is_large);
        let is_refused = is_large
            || self.bad.contains(&work.no)
            || self.is_limited
            || self.refused.iter().any(|(at, from)| *at == host && *from == domain);
        self.asked.push((self.now, host, domain));
        let (stage, code, text) = match is_refused {
            true if self.is_limited => (Stage::Mail, 450, "rate limit exceeded"),
            true => (Stage::Mail, 451, "said"),
            false => (Stage::Final, 250, "said"),
        };
        let answer = Answer { stage, code, dsn: None, text };
        steps::end(&mut self.store, &mut self.sched, conn, work, &answer, self.now);
        if !is_refused {
            self.delivered.push(host);
        }
    }

    fn asked_at(&self, host: u16, from: &str) -> usize {
        self.asked.iter().filter(|(_, at, sender)| *at == host && sender == from).count()
    }
}

impl AtOnce for Site {
    fn parts(&mut self) -> (&mut Scheduler, &Store, &mut Ms) {
        (&mut self.sched, &self.store, &mut self.now)
    }

    fn obey(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve { domain } => {
                let plan = self.plan(self.store.book.domain_name(domain));
                self.sched.resolved(&self.store, domain, plan, self.now);
            }
            Effect::Connect { conn, target, .. } => {
                self.connects += 1;
                let host = target.addr.port();
                if self.is_mute {
                    return self.asked_for.push(conn);
                }
                if self.dead.contains(&host) {
                    return self.sched.connect_failed(&self.store, conn, NoSession::Failed, "dead", self.now);
                }
                if let Some(why) = self.no_session.get(&host) {
                    return self.sched.connect_failed(&self.store, conn, *why, "no session", self.now);
                }
                if host == 1 && self.conns.values().filter(|at| **at == 1).count() >= self.takes {
                    let why = NoSession::Reply { code: 421, dsn: None };
                    return self.sched.connect_failed(&self.store, conn, why, "enough", self.now);
                }
                self.conns.insert(conn, host);
                self.most_conns = self.most_conns.max(self.conns.len());
                self.sched.connected(conn, self.now);
                self.work(conn);
            }
            Effect::Work { conn } => self.work(conn),
            Effect::Close { conn } => {
                self.conns.remove(&conn);
                self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now);
            }
            Effect::Delayed { .. } => {}
            Effect::Bounce { no, failures } => {
                let ids: IdSet = failures.iter().map(|failure| failure.id.0).collect();
                let ended = self.store.record_fate(no, Fate::Bounced, &ids, None, self.now, &mut Vec::new());
                let ids: Vec<AddressId> = failures.iter().map(|failure| failure.id).collect();
                self.sched.bounced(no, &ids);
                if matches!(ended, EventEffect::Finished { .. }) {
                    self.sched.finished(no);
                }
                self.bounced.extend(failures);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_4xx_at_mail_leads_to_the_next_host() {
    let mut site = Site::new(SchedConfig::default());
    site.refused.insert((1, "bad.example"));
    for _ in 0..20 {
        site.mail("bad.example", Class::Ordinary);
    }
    site.run(0);
    assert_eq!(site.delivered, [2; 20]);
    assert_eq!(site.asked_at(1, "bad.example"), 1, "the first host is not asked again before its clock");
    site.delivered.clear();
    // Mail from other senders goes as before, and each takes its turn at the second host.
    for _ in 0..3 {
        site.mail("good.example", Class::Ordinary);
        site.mail("bad.example", Class::Bulk);
    }
    site.run(0);
    assert_eq!(site.delivered.len(), 6);
    assert_eq!((site.asked_at(1, "bad.example"), site.asked_at(2, "bad.example")), (1, 23));
    assert!(site.connects <= 4, "{} connections", site.connects);
}

#[test]
fn the_first_hosts_clock_grows_while_the_next_delivers() {
    let mut site = Site::new(SchedConfig::default());
    site.refused.insert((1, "bad.example"));
    for n in 0..600 {
        site.mail("bad.example", Class::Ordinary);
        site.run(0);
        assert_eq!(site.delivered.len(), n + 1, "each goes at once");
        site.run(MINUTE);
    }
    // After 2, 4, 8, 16, 32 minutes, then each hour, or a quarter less.
    let asked = site.asked_at(1, "bad.example");
    assert!((10..=18).contains(&asked), "{asked} times in ten hours");
    // No connection is opened to the first host only to find that it has refused.
    assert!(site.connects <= 600 + 2 * asked, "{} connections", site.connects);
    site.refused.clear();
    site.run(60 * MINUTE);
    let before = site.asked_at(1, "bad.example");
    for _ in 0..3 {
        site.mail("bad.example", Class::Ordinary);
        site.run(MINUTE);
    }
    assert_eq!(site.asked_at(1, "bad.example"), before + 3, "after its clock the first one is asked first");
}

#[test]
fn when_all_hosts_have_refused_the_sender_waits_for_the_first_clock() {
    let mut site = Site::new(SchedConfig::default());
    site.refused.extend([(1, "bad.example"), (2, "bad.example")]);
    let mail: Vec<_> = (0..20).map(|_| site.mail("bad.example", Class::Ordinary)).collect();
    site.run(0);
    assert_eq!(site.asked.len(), 2, "each host once");
    for (no, id) in mail {
        let status = site.sched.recipient_status(&site.store, no, id, site.now);
        assert_eq!(status.state, RecipientPlace::Sender);
        assert!(status.next_try.is_some_and(|at| (NOW + MINUTE..=NOW + 2 * MINUTE).contains(&at)));
    }
    let at = site.sched.site_named("mx").unwrap();
    assert_eq!(site.sched.explain_site(at, site.now).unwrap().waits_for, WaitsFor::Nothing);
    site.run(600 * MINUTE);
    assert!(site.asked.len() <= 2 * 18, "{} in ten hours", site.asked.len());
    assert!(site.delivered.is_empty());
    site.refused.remove(&(2, "bad.example"));
    site.run(60 * MINUTE);
    assert_eq!(site.delivered, [2; 20]);
    site.run(200 * MINUTE);
    assert_eq!(site.sched.load().clocks, 0, "all is forgotten");
}

#[test]
fn a_message_that_is_refused_at_mail_gets_a_clock_though_others_of_its_sender_are_taken() {
    let mut site = Site::new(SchedConfig::default());
    site.is_slow = true;
    let (large, _) = site.mail_to("one.example", "same.example", Class::Ordinary);
    site.large = Some(large);
    for _ in 0..2_000 {
        site.mail_to("one.example", "same.example", Class::Ordinary);
    }
    site.run(0);
    while site.delivered.len() < 2_000 {
        site.answer_all();
        site.run(500);
    }
    // Sixteen returns, the clocks that ran out meanwhile, and early probes.
    assert!((2..=32).contains(&site.large_refused), "{} times", site.large_refused);
    site.large = None;
    site.is_slow = false;
    site.run(60 * MINUTE);
    assert_eq!(site.delivered.len(), 2_001, "and it goes by its clock");
}

/// The other messages of a sender need not wait for one that the host refuses at MAIL.
#[test]
fn a_message_that_is_refused_at_mail_holds_up_no_other_of_its_sender() {
    let mut site = Site::new(SchedConfig::default());
    let (large, _) = site.mail_to("one.example", "same.example", Class::Ordinary);
    site.large = Some(large);
    site.run(0);
    for _ in 0..60 {
        site.mail_to("one.example", "same.example", Class::Ordinary);
    }
    // The first clock of a sender; the next message that is tried is another one.
    site.run(3 * MINUTE);
    assert_eq!(site.delivered.len(), 60);
    assert!((2..=4).contains(&site.large_refused), "{} times", site.large_refused);
    // What comes later does not wait at all.
    site.run(30 * MINUTE);
    site.mail_to("one.example", "same.example", Class::Ordinary);
    site.run(0);
    assert_eq!(site.delivered.len(), 61);
    assert!(site.large_refused <= 12, "{} times", site.large_refused);
}

/// However many messages of a sender are refused at MAIL, those that the host takes get their turn.
#[test]
fn many_messages_that_are_refused_at_mail_do_not_come_before_others_again_and_again() {
    let mut site = Site::new(SchedConfig::default());
    for _ in 0..20 {
        let (no, _) = site.mail_to("one.example", "same.example", Class::Ordinary);
        site.bad.insert(no);
    }
    site.run(0);
    for _ in 0..5 {
        site.mail_to("one.example", "same.example", Class::Ordinary);
    }
    site.run(12 * 60 * MINUTE);
    assert_eq!(site.delivered.len(), 5);
}

/// Those that were refused while the host was out of order are tried in turn.
#[test]
fn a_message_that_is_refused_at_mail_takes_turns_with_others_that_were() {
    let mut site = Site::new(SchedConfig::default());
    let (large, _) = site.mail_to("one.example", "same.example", Class::Ordinary);
    site.large = Some(large);
    for _ in 0..4 {
        site.mail_to("one.example", "same.example", Class::Ordinary);
    }
    site.refused.insert((1, "same.example"));
    site.run(60 * MINUTE);
    site.refused.clear();
    site.run(4 * 60 * MINUTE);
    assert_eq!(site.delivered.len(), 4);
}

#[test]
fn a_dead_next_host_is_waited_for_and_the_first_asked_by_its_clock() {
    let mut site = Site::new(SchedConfig::default());
    site.refused.insert((1, "bad.example"));
    site.dead.insert(2);
    site.mail("bad.example", Class::Ordinary);
    site.run(30 * MINUTE);
    assert!((2..=6).contains(&site.asked_at(1, "bad.example")), "{:?}", site.asked);
    site.dead.clear();
    site.run(60 * MINUTE);
    assert_eq!(site.delivered, [2]);
}

#[test]
fn no_limit_on_connections_is_passed_for_it() {
    let mut site = Site::new(SchedConfig { connections_max: 1, ..SchedConfig::default() });
    site.limits.connections_max = Some(1);
    site.refused.insert((1, "bad.example"));
    for class in [Class::Ordinary, Class::Bulk, Class::Ordinary] {
        site.mail("bad.example", class);
        site.mail("good.example", class);
    }
    site.run(10_000);
    assert_eq!(site.delivered.len(), 6);
    assert_eq!(site.most_conns, 1);
}

#[test]
fn held_and_stopped_mail_does_not_go_that_way() {
    let mut site = Site::new(SchedConfig::default());
    site.refused.insert((1, "bad.example"));
    site.dead.insert(2);
    let (held, _) = site.mail("bad.example", Class::Bulk);
    site.mail("bad.example", Class::Bulk);
    site.run(1_000);
    site.sched.hold_message(held);
    let key = stentor_sched::FlowKey::Sender("bad.example".into());
    site.sched.suspend_flow(&key);
    site.dead.clear();
    site.run(30 * MINUTE);
    assert!(site.delivered.is_empty());
    site.sched.resume_flow(&key);
    site.run(60 * MINUTE);
    assert_eq!(site.delivered, [2]);
    site.sched.release_message(&site.store, held, site.now);
    site.run(60 * MINUTE);
    assert_eq!(site.delivered, [2, 2]);
}

/// A site with a connection to the first host, which takes no more.
fn with_a_full_host() -> Site {
    let mut site = Site::new(SchedConfig::default());
    (site.takes, site.is_slow) = (1, true);
    site.mail("good.example", Class::Ordinary);
    site.run(0);
    site.answer_all();
    for _ in 0..2 {
        site.mail("good.example", Class::Ordinary);
    }
    site.run(0);
    site.mail_to("one.example", "good.example", Class::Ordinary);
    site.run(1_000);
    assert_eq!(site.delivered, [1]);
    assert_eq!(site.open.iter().map(|(conn, _)| site.conns[conn]).collect::<Vec<_>>(), [1, 2]);
    site
}

#[test]
fn another_site_has_the_place_at_a_full_host_as_soon_as_it_is_free() {
    let mut site = with_a_full_host();
    site.is_slow = false;
    site.answer_all();
    site.run(6_000);
    assert_eq!(site.delivered, [1, 1, 2, 1], "when the idle connection was closed");
}

#[test]
fn a_full_host_is_asked_for_more_after_a_while() {
    let mut site = with_a_full_host();
    let busy = std::mem::take(&mut site.open);
    (site.takes, site.is_slow) = (2, false);
    for _ in 0..90 {
        site.run(1_000);
        for (conn, _) in &busy {
            site.sched.progress(*conn, site.now);
        }
    }
    assert_eq!(site.delivered, [1, 1]);
}

/// Each pause is at most a second longer than the time before it.
#[test]
fn a_host_that_refused_for_a_moment_is_back_within_as_long_and_a_second() {
    for (seed, outage_ms) in (0..30_000).step_by(100).enumerate() {
        let mut site = Site::seeded(SchedConfig::default(), seed as u64);
        site.no_session.insert(1, NoSession::Unreachable);
        site.mail_to("one.example", "good.example", Class::Ordinary);
        site.run(outage_ms);
        assert!(site.asked.is_empty() && site.connects <= 6, "{} connections in {outage_ms} ms", site.connects);
        site.no_session.clear();
        site.run(outage_ms + 1_000);
        assert_eq!(site.delivered, [1], "after an outage of {outage_ms} ms");
    }
}

/// An operator's early attempt does not lengthen a clock: the next attempt comes when it would have come anyway.
#[test]
fn a_flush_of_a_dead_host_leaves_its_clock_as_it_was() {
    for seed in 0..50 {
        let mut site = Site::seeded(SchedConfig::default(), seed);
        site.no_session.insert(1, NoSession::Unreachable);
        site.mail_to("one.example", "good.example", Class::Ordinary);
        site.run(3_600_000);
        let clock = |site: &Site| {
            let one = site.sched.site_named("one").expect("a site");
            let host = site.sched.explain_site(one, site.now).expect("known").hosts.remove(0);
            (host.fails, host.until)
        };
        let before = clock(&site);
        assert!(before.0 > 6 && before.1.is_some_and(|until| until > site.now + 1_000), "{before:?}");
        for all in [false, true, false] {
            let connects = site.connects;
            if all {
                site.sched.flush_all();
            } else {
                let one = site.sched.site_named("one").expect("a site");
                site.sched.flush_site(one);
            }
            site.run(100);
            assert!(site.connects > connects, "it is tried");
            assert_eq!(clock(&site), before);
        }
        // Once it has run out, the clock goes on as usual.
        let until = before.1.expect("a clock");
        site.run(until - site.now + 1_000);
        let after = clock(&site);
        assert!(after.0 > before.0 && after.1 > before.1, "{after:?} after {before:?}");
        site.no_session.clear();
        let one = site.sched.site_named("one").expect("a site");
        site.sched.flush_site(one);
        site.run(1_000);
        assert_eq!(site.delivered, [1]);
    }
}

/// RFC 7504 section 3: a host that greets with 521 is not asked again; mail that no other host takes is returned.
#[test]
fn a_521_at_the_greeting_is_permanent() {
    let no_mail = NoSession::Reply { code: 521, dsn: None };
    let mut site = Site::new(SchedConfig::default());
    site.no_session.insert(1, no_mail);
    site.mail("good.example", Class::Ordinary);
    site.run(1_000);
    assert_eq!((&site.delivered[..], site.bounced.len()), (&[2][..], 0), "the other host is asked");

    let mut site = Site::new(SchedConfig::default());
    site.no_session.extend([(1, no_mail), (2, no_mail)]);
    let mail: Vec<_> = (0..3).map(|_| site.mail("good.example", Class::Ordinary).1).collect();
    site.run(1_000);
    assert_eq!(site.bounced.iter().map(|failure| failure.id).collect::<HashSet<_>>(), mail.into_iter().collect());
    for failure in &site.bounced {
        assert_eq!((failure.code, failure.dsn.to_string(), failure.expired), (521, "5.3.2".to_owned(), false));
    }
    assert!(site.connects <= 4, "{} connections", site.connects);
    // Any other refusal of the session is tried again.
    for code in [421, 450, 550, 554] {
        let mut site = Site::new(SchedConfig::default());
        let why = NoSession::Reply { code, dsn: None };
        site.no_session.extend([(1, why), (2, why)]);
        site.mail("good.example", Class::Ordinary);
        site.run(1_000);
        assert!(site.bounced.is_empty(), "{code}");
    }
}

/// Suspending a site is how an operator saves its mail from a host that is about to refuse it.
#[test]
fn suspended_mail_is_not_returned_when_its_host_refuses_all_mail() {
    let mut site = Site::new(SchedConfig::default());
    site.dead = HashSet::from([1]);
    site.mail_to("one.example", "good.example", Class::Ordinary);
    site.run(1_000);
    site.sched.set_suspended("site:one", true, 0, "");
    (site.dead, site.no_session) = (HashSet::new(), HashMap::from([(1, NoSession::Reply { code: 521, dsn: None })]));
    site.run(24 * 60 * MINUTE);
    site.mail("good.example", Class::Ordinary);
    site.run(60 * MINUTE);
    assert_eq!((site.bounced.len(), &site.delivered[..]), (0, &[2][..]), "the suspended message waits");
    site.sched.set_suspended("site:one", false, 0, "");
    site.run(24 * 60 * MINUTE);
    assert_eq!(site.bounced.len(), 1, "it is returned once it may be tried");
}

/// REQUIRETLS (RFC 8689 section 4.2.1): a host without it is skipped; if no host has it the mail is returned, now and
/// later.
#[test]
fn mail_that_no_host_of_its_site_is_fit_for_fails() {
    let unfit = NoSession::Unfit { dsn: stentor_mail::reply::Enhanced::new(5, 7, 30) };
    let mut site = Site::new(SchedConfig::default());
    site.no_session.insert(1, unfit);
    site.mail("good.example", Class::Ordinary);
    site.run(1_000);
    assert_eq!((&site.delivered[..], site.bounced.len()), (&[2][..], 0), "the other host is asked");

    // A host that is down may support it.
    let mut site = Site::new(SchedConfig::default());
    site.no_session.extend([(1, unfit), (2, NoSession::Failed)]);
    site.mail("good.example", Class::Ordinary);
    site.run(1_000);
    assert!(site.bounced.is_empty());
    site.no_session.insert(2, unfit);
    site.run(30 * MINUTE);
    assert_eq!(site.bounced.len(), 1);

    let mut site = Site::new(SchedConfig::default());
    site.no_session.extend([(1, unfit), (2, unfit)]);
    for round in 1..=20 {
        let id = site.mail("good.example", Class::Ordinary).1;
        site.run(10 * MINUTE);
        assert_eq!(site.bounced.len(), round, "it waits for no clock that grows");
        let failure = &site.bounced[round - 1];
        assert_eq!((failure.id, failure.code, failure.expired), (id, 0, false));
        assert_eq!((failure.dsn.to_string(), site.delivered.len()), ("5.7.30".to_owned(), 0));
    }
    site.no_session.clear();
    site.mail("good.example", Class::Ordinary);
    site.run(10 * MINUTE);
    assert_eq!((site.delivered.len(), site.bounced.len()), (1, 20));
}

#[test]
fn a_dead_host_hides_no_refusal_of_the_sender() {
    let mut site = Site::new(SchedConfig::default());
    site.refused.insert((1, "bad.example"));
    site.dead.insert(2);
    let (no, id) = site.mail("bad.example", Class::Ordinary);
    for wait in [2_000, 10_000] {
        site.run(wait);
        let status = site.sched.recipient_status(&site.store, no, id, site.now);
        assert_eq!((status.state, status.cause), (RecipientPlace::Sender, Cause::Sender), "{status:?}");
        assert!(status.next_try.is_some(), "{status:?}");
    }
}

#[test]
fn a_dead_host_that_is_tried_again_keeps_its_cause() {
    let mut site = Site::new(SchedConfig::default());
    site.dead.extend([1, 2]);
    let (no, id) = site.mail("good.example", Class::Ordinary);
    site.run(0);
    site.is_mute = true;
    // The clock runs out, and the next attempt gets no answer.
    let connects = site.connects;
    while site.connects == connects {
        site.run(1_000);
    }
    site.run(SchedConfig::default().fast_silence_ms * 3);
    let status = site.sched.recipient_status(&site.store, no, id, site.now);
    assert_eq!((status.cause, status.next_try), (Cause::Lost, None), "{status:?}");
    assert!(status.attempt.is_some_and(|attempt| attempt.reach == SessionStep::Connecting), "{status:?}");
}

#[test]
fn a_first_attempt_is_no_slow_host() {
    let mut site = Site::new(SchedConfig::default());
    site.is_mute = true;
    let (no, id) = site.mail("good.example", Class::Ordinary);
    site.run(0);
    let asked = site.now;
    // Long enough for the slow lane, in which no other connection is opened: the second host is mute too.
    site.run(SchedConfig::default().fast_silence_ms * 3);
    let at = site.sched.site_named("mx").unwrap();
    let told = |site: &Site| {
        let status = site.sched.recipient_status(&site.store, no, id, site.now);
        let (mut counts, mut after) = (CauseCounts::default(), None);
        site.sched.causes_of(&site.store, no, &mut after, 9, site.now, |_, _, count| counts.add(count));
        assert_eq!((counts.causes[0].cause, counts.causes[0].attempt), (status.cause, status.attempt));
        let attempt = status.attempt.expect("a connection is being made");
        let hosts = site.sched.explain_site(at, site.now).unwrap().hosts;
        assert!(hosts.iter().any(|host| host.attempt == Some(attempt)), "{hosts:?}");
        (status.cause, attempt.reach, attempt.since)
    };
    assert_eq!(told(&site), (Cause::Connecting, SessionStep::Connecting, asked));
    assert_eq!(site.sched.glance(at, site.now).unwrap().standing, SiteProgress::Connecting);
    // Both connections are accepted now, but neither host greets.
    for conn in std::mem::take(&mut site.asked_for) {
        site.sched.reached(conn, SessionStep::Greeting, 500, site.now);
    }
    assert_eq!(told(&site), (Cause::NoGreeting, SessionStep::Greeting, site.now - 500));
    assert_eq!(site.sched.glance(at, site.now).unwrap().standing, SiteProgress::Connecting);
}

#[test]
fn a_clock_that_another_site_has_set_has_its_cause() {
    let mut site = Site::new(SchedConfig::default());
    (site.dead, site.no_session) = (HashSet::new(), HashMap::from([(1, NoSession::Unreachable)]));
    // Only the first host fails, for its own site; the other site that uses it knows of that too.
    site.mail_to("one.example", "good.example", Class::Ordinary);
    site.run(1_000);
    site.dead.insert(2);
    let (no, id) = site.mail("good.example", Class::Ordinary);
    site.run(1_000);
    let status = site.sched.recipient_status(&site.store, no, id, site.now);
    assert_eq!(status.state, RecipientPlace::Site, "{status:?}");
    assert!(matches!(status.cause, Cause::Unreachable | Cause::Lost), "{status:?}");
    assert!(status.next_try.is_some() && status.reason.is_some(), "{status:?}");
}

/// A rate learned from a reply counts as the host's for as long as it paces mail, not only during the pause.
#[test]
fn a_learned_rate_is_the_hosts_and_a_given_one_is_ours() {
    let causes = |site: &Site, mail: &[(MessageNo, AddressId)]| -> Vec<Cause> {
        let status = |(no, id): &(MessageNo, AddressId)| site.sched.recipient_status(&site.store, *no, *id, site.now);
        mail.iter().map(|one| status(one).cause).collect()
    };
    let mail = |site: &mut Site, count: usize| -> Vec<(MessageNo, AddressId)> {
        (0..count).map(|_| site.mail_to("one.example", "good.example", Class::Ordinary)).collect()
    };
    let waits = |site: &Site| {
        let one = site.sched.site_named("one").expect("a site");
        site.sched.explain_site(one, site.now).expect("known").waits_for
    };
    let mut site = Site::new(SchedConfig::default());
    mail(&mut site, 3);
    site.run(0);
    site.is_limited = true;
    let refused = mail(&mut site, 1);
    site.run(0);
    assert_eq!(causes(&site, &refused), [Cause::Rate]);
    assert!(matches!(waits(&site), WaitsFor::Pause(_)), "{:?}", waits(&site));
    site.is_limited = false;
    site.run(2 * MINUTE);
    assert_eq!(site.delivered.len(), 4, "it goes after the pause");
    // There is no pause now, only the learned pace.
    let paced = mail(&mut site, 3);
    site.run(0);
    let waiting: Vec<_> = paced.into_iter().filter(|(no, _)| site.store.message(*no).is_some()).collect();
    assert!(waiting.len() >= 2, "{} went at once", 3 - waiting.len());
    assert_eq!(causes(&site, &waiting), vec![Cause::Rate; waiting.len()]);
    assert!(matches!(waits(&site), WaitsFor::Pause(at) if at > site.now), "{:?}", waits(&site));

    let mut site = Site::new(SchedConfig::default());
    site.limits.per_minute = Some(3);
    let given = mail(&mut site, 3);
    site.run(0);
    let waiting: Vec<_> = given.into_iter().filter(|(no, _)| site.store.message(*no).is_some()).collect();
    assert_eq!(causes(&site, &waiting), [Cause::OwnLimit; 2]);
    assert!(matches!(waits(&site), WaitsFor::Rate(at) if at > site.now), "{:?}", waits(&site));
}

/// A smart host may have an IPv6 address on a machine without IPv6.
#[test]
fn a_login_that_is_refused_is_not_hidden_by_an_address_that_cannot_be_reached() {
    for (one, two) in [(NoSession::Unreachable, NoSession::Auth), (NoSession::Tls, NoSession::Unreachable)] {
        let expected = if one == NoSession::Tls { Cause::Tls } else { Cause::Auth };
        let mut site = Site::new(SchedConfig::default());
        (site.dead, site.no_session) = (HashSet::new(), HashMap::from([(1, one), (2, two)]));
        let (no, id) = site.mail("good.example", Class::Ordinary);
        // Short pauses lead to the unreachable address again and again.
        for _ in 0..20 {
            site.run(1_000);
        }
        let status = site.sched.recipient_status(&site.store, no, id, site.now);
        assert_eq!((status.state, status.cause), (RecipientPlace::Site, expected), "{status:?}");
        let at = site.sched.site_named("mx").unwrap();
        let causes: Vec<_> =
            site.sched.explain_site(at, site.now).unwrap().hosts.iter().map(|host| host.fails).collect();
        assert!(causes.iter().all(|fails| *fails > 0), "both were tried: {causes:?}");
    }
}
