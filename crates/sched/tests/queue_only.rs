//! Queue-only by each scope, and runs of the queue: waiting mail is tried once; mail that comes later or failed is not.
//! Mail that is kept back does not fail either (`kept`), and what is set for a list or sender has its effect whatever
//! the number of flows (`flows`). Mail of each lifetime expires in its time (`lifetimes`).

#[path = "common/at_once.rs"]
mod at_once;
#[path = "queue_only/flows.rs"]
mod flows;
#[path = "queue_only/kept.rs"]
mod kept;
#[path = "queue_only/lifetimes.rs"]
mod lifetimes;
#[path = "common/steps.rs"]
mod steps;

use std::collections::HashMap;

use stentor_mail::Class;
use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::event::Accept;
use stentor_queue::ids::{ConnId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::queue_only::Scope;
use stentor_queue::site::{Resolution, SitePlan};
use stentor_queue::store::Store;
use stentor_sched::{
    CauseCounts, Census, CloseReason, Effect, FlowKey, FlowRules, NoSession, SchedConfig, Scheduler, ScopeOwner,
    SourceConfig, SourceNo, SourceSet, Stage,
};

use self::at_once::AtOnce;
use self::steps::{Answer, plan, target};

const NOW: Ms = 1_800_000_000_000;
const HOUR: Ms = 3_600_000;

/// Hosts: domains whose name begins with `dead` have a host that refuses connections, those with `grey` one that defers
/// each recipient, with `full` one whose mailboxes are full, with `soft` one that defers each message, all others one
/// that takes mail. Each domain is a site of its own, except those under `shared.example`. Domains that begin with
/// `gone` do not exist, and look-ups of those that begin with `lost` fail.
struct World {
    store: Store,
    sched: Scheduler,
    now: Ms,
    conns: HashMap<ConnId, (String, SourceNo)>,
    connects: usize,
    /// Delivered messages with their source, and attempts by domain.
    delivered: Vec<(MessageNo, SourceNo)>,
    attempts: HashMap<String, usize>,
    /// Messages with failed or expired recipients.
    failed: Vec<MessageNo>,
    /// Whether all hosts but the grey take mail, and all domains exist.
    is_up: bool,
    /// Whether connections are neither opened nor refused.
    is_hanging: bool,
    connecting: Vec<ConnId>,
    /// Whether lookups are answered by `answer` only.
    is_slow: bool,
    asked: Vec<DomainId>,
}

impl World {
    fn new() -> World {
        let source = |name: &str| SourceConfig { name: name.to_owned(), ..SourceConfig::default() };
        let cfg = SchedConfig { sources: vec![source("one"), source("two")], ..SchedConfig::default() };
        let mut sched = Scheduler::new(cfg, 1);
        let only = FlowRules { sources: SourceSet(1), ..FlowRules::default() };
        sched.set_rules(FlowKey::List("from-one".into()), Some(only));
        World {
            store: Store::new(),
            sched,
            now: NOW,
            conns: HashMap::new(),
            connects: 0,
            delivered: Vec::new(),
            attempts: HashMap::new(),
            failed: Vec::new(),
            is_up: false,
            is_hanging: false,
            connecting: Vec::new(),
            is_slow: false,
            asked: Vec::new(),
        }
    }

    fn mail_of(&mut self, to: &[&str], change: impl FnOnce(&mut Accept)) -> MessageNo {
        let id = self.store.next_message_id(self.now);
        let recipients: IdSet = to.iter().map(|to| self.store.book.intern(to).unwrap().0.0).collect();
        let mut accept = Accept {
            size: 1_000,
            sender: "ann@home.example".into(),
            origin: "192.0.2.7".into(),
            recipients,
            ..Accept::bare(id, self.now)
        };
        change(&mut accept);
        steps::accept(&mut self.store, &mut self.sched, accept, self.now)
    }

    fn mail(&mut self, to: &str) -> MessageNo {
        self.mail_of(&[to], |_| {})
    }

    fn set(&mut self, scope: &str, is_on: bool) {
        let scope = Scope::of_name(&format!("queue_only:{scope}")).expect("a scope");
        self.sched.set_queue_only(&scope, is_on.then_some(""), ScopeOwner::Operator);
    }

    fn answer(&mut self, domain: DomainId) {
        let name = self.store.book.domain_name(domain).to_owned();
        let resolution = match name.get(..4).filter(|_| !self.is_up) {
            Some("gone") => Resolution::Permanent { dsn: Enhanced::new(5, 1, 2), text: "NXDOMAIN".to_owned() },
            Some("lost") => {
                let (dsn, text) = (Enhanced::new(4, 4, 3), "SERVFAIL".to_owned());
                Resolution::Temporary { cause: Cause::Dns, dsn, text }
            }
            _ => Resolution::Site(Self::plan_of(&name)),
        };
        self.sched.resolved(&self.store, domain, resolution, self.now);
    }

    fn plan_of(name: &str) -> SitePlan {
        let host = if name.ends_with("shared.example") { "shared" } else { name };
        let port = 1 + host.bytes().map(u16::from).sum::<u16>();
        plan(host, [target(0, host, port)])
    }

    fn refuse(&mut self, conn: ConnId) {
        self.sched.connect_failed(&self.store, conn, NoSession::Unreachable, "refused", self.now);
    }

    fn work(&mut self, conn: ConnId) {
        while let Some(work) = self.sched.take_work(&self.store, conn, self.now) {
            let (host, source) = self.conns[&conn].clone();
            *self.attempts.entry(host.clone()).or_default() += work.ids.len();
            let (stage, code, dsn) = match host.get(..4) {
                Some("grey") => (Stage::Rcpt, 451, None),
                Some("full") if !self.is_up => (Stage::Rcpt, 452, Some(Enhanced::new(4, 2, 2))),
                Some("soft") if !self.is_up => (Stage::Final, 451, None),
                _ => (Stage::Final, 250, None),
            };
            self.delivered.extend((code == 250).then_some((work.no, source)));
            let answer = Answer { stage, code, dsn, text: "so" };
            steps::end(&mut self.store, &mut self.sched, conn, &work, &answer, self.now);
        }
    }

    fn has_delivered(&self, no: MessageNo) -> bool {
        self.delivered.iter().any(|(of, _)| *of == no)
    }

    fn count(&self) -> CauseCounts {
        let mut census = Census::default();
        while !census.step(&self.sched, &self.store, 1_000, self.now) {}
        census.total
    }

    /// Counts of queue-only and of all pending recipients.
    fn counted(&self) -> (u64, u64) {
        let total = self.count();
        (total.of(Cause::QueueOnly), total.recipients())
    }

    /// The suspension that keeps all mail.
    fn suspension(&self) -> Option<String> {
        let total = self.count();
        assert_eq!(total.of(Cause::Suspended), total.recipients());
        self.sched.suspension(total.causes[0].keeper)
    }
}

impl AtOnce for World {
    fn parts(&mut self) -> (&mut Scheduler, &Store, &mut Ms) {
        (&mut self.sched, &self.store, &mut self.now)
    }

    fn obey(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve { domain } if self.is_slow => self.asked.push(domain),
            Effect::Resolve { domain } => self.answer(domain),
            Effect::Connect { conn, target, source, .. } => {
                self.connects += 1;
                if self.is_hanging {
                    return self.connecting.push(conn);
                }
                if target.host.starts_with("dead") && !self.is_up {
                    *self.attempts.entry(target.host.to_string()).or_default() += 1;
                    return self.refuse(conn);
                }
                self.conns.insert(conn, (target.host.to_string(), source));
                self.sched.connected(conn, self.now);
                self.work(conn);
            }
            Effect::Work { conn } => self.work(conn),
            Effect::Close { conn } => {
                self.conns.remove(&conn);
                self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now);
            }
            Effect::Bounce { no, .. } => self.failed.push(no),
            _ => {}
        }
    }
}

type Change = Box<dyn Fn(&mut Accept)>;
/// A scope; a recipient and the mail to it that is in scope; a recipient and other mail that is not.
type Case = (&'static str, &'static str, Change, Option<(&'static str, Change)>);

#[test]
fn each_scope_keeps_its_own_mail_and_no_other() {
    let of_list = |name: &'static str| {
        move |accept: &mut Accept| {
            (accept.list, accept.class) = (Some(name.into()), Class::Bulk);
        }
    };
    let none = |_: &mut Accept| {};
    let scopes: Vec<Case> = vec![
        ("all", "a@x.example", Box::new(none), None),
        ("class:bulk", "a@x.example", Box::new(of_list("news")), Some(("a@x.example", Box::new(none)))),
        ("class:ordinary", "a@x.example", Box::new(none), Some(("a@x.example", Box::new(of_list("news"))))),
        ("list:news", "a@x.example", Box::new(of_list("news")), Some(("a@x.example", Box::new(of_list("other"))))),
        ("domain:a.shared.example", "a@a.shared.example", Box::new(none), Some(("b@b.shared.example", Box::new(none)))),
        (
            "sender:@home.example",
            "a@x.example",
            Box::new(none),
            Some(("a@x.example", Box::new(|a| a.sender = "b@c".into()))),
        ),
        (
            "client:192.0.2.0/24",
            "a@x.example",
            Box::new(none),
            Some(("a@x.example", Box::new(|a| a.origin = "uid 7 (ann)".into()))),
        ),
        (
            "client:ann",
            "a@x.example",
            Box::new(|a| a.origin = "uid 7 (ann)".into()),
            Some(("a@x.example", Box::new(none))),
        ),
        ("source:one", "a@x.example", Box::new(of_list("from-one")), Some(("a@x.example", Box::new(none)))),
    ];
    for (scope, to, change, other) in scopes {
        // Some of the mail is in line when the run begins, and waits for its host's clock.
        let mut world = World::new();
        let dead = if scope.starts_with("domain") { to } else { "a@dead.example" };
        let early = world.mail_of(&[dead], &change);
        if scope.starts_with("domain") {
            world.sched.hold_message(early);
        }
        world.run(100);
        let attempts = world.attempts.get("dead.example").copied();
        world.set(scope, true);
        world.sched.release_message(&world.store, early, world.now);
        world.is_up = true;
        let waiting = [early, world.mail_of(&[to], &change)];
        let others: Vec<MessageNo> = other.iter().map(|(to, change)| world.mail_of(&[to], change)).collect();
        world.run(2 * HOUR);
        assert!(waiting.iter().all(|no| !world.has_delivered(*no)), "{scope}: it goes out");
        assert_eq!(world.attempts.get("dead.example").copied(), attempts, "{scope}: a host is tried");
        assert!(others.iter().all(|no| world.has_delivered(*no)), "{scope}: other mail waits");
        assert_eq!(world.counted(), (2, 2), "{scope}");
        if scope.starts_with("source") {
            assert!(world.delivered.iter().all(|(_, source)| *source == 1), "{scope}: sent from there");
        }
        world.set(scope, false);
        world.run(HOUR);
        assert!(waiting.iter().all(|no| world.has_delivered(*no)), "{scope}: it does not go when that ends");
        assert_eq!(world.counted(), (0, 0), "{scope}");
    }
}

#[test]
fn a_run_tries_what_waits_once_and_nothing_that_comes_later() {
    for scope in ["all", "class:ordinary", "sender:ann@home.example", "client:192.0.2.7"] {
        let mut world = World::new();
        let before = world.mail("a@grey.example");
        world.run(1_000);
        assert_eq!(world.attempts["grey.example"], 1, "it waits for its clock");
        world.set(scope, true);
        let good: Vec<MessageNo> = (0..30).map(|n| world.mail(&format!("a@d{n}.example"))).collect();
        let many: Vec<String> = (0..400).map(|n| format!("u{n}@many.example")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let many = world.mail_of(&many, |_| {});
        (0..3).for_each(|_| _ = world.mail("a@dead.example"));
        world.run(24 * HOUR);
        assert!(world.delivered.is_empty() && world.connects == 1, "{scope}");
        assert_eq!(world.counted(), (434, 434), "{scope}");
        world.sched.run_queue(world.now);
        let later = world.mail("b@d1.example");
        world.run(2 * HOUR);
        assert!(good.iter().chain([&many]).all(|no| world.has_delivered(*no)), "{scope}");
        assert!(!world.has_delivered(later), "{scope}: it came later");
        assert!(world.store.message(many).is_none() && world.store.message(before).is_some());
        // A host is tried from each of two sources.
        assert_eq!(
            (world.attempts["grey.example"], world.attempts["dead.example"]),
            (2, 2),
            "{scope}: each is tried once"
        );
        assert_eq!(world.counted(), (5, 5), "{scope}: what failed is queue-only again");
        assert_eq!(world.sched.queue_run_since(), None, "{scope}: it is over");
        world.sched.run_queue(world.now);
        world.run(HOUR);
        assert!(world.has_delivered(later));
        assert_eq!((world.attempts["grey.example"], world.attempts["dead.example"]), (3, 4), "{scope}");
        world.set(scope, false);
        world.run(HOUR);
        assert!(world.attempts["dead.example"] > 4, "{scope}: it is retried as ever");
    }
}

#[test]
fn a_domain_waits_for_itself_alone() {
    let mut world = World::new();
    let ab = ["a@a.shared.example", "b@b.shared.example"];
    let early = world.mail_of(&ab, |_| {});
    world.run(1_000);
    assert!(world.store.message(early).is_none());
    world.set("domain:a.shared.example", true);
    let both = world.mail_of(&ab, |_| {});
    let alone = world.mail(ab[0]);
    world.run(HOUR);
    assert_eq!(world.store.pending_of(both).count(), 1);
    assert_eq!(world.counted(), (2, 2));
    world.sched.run_queue(world.now);
    let later = world.mail(ab[0]);
    world.run(HOUR);
    assert!(world.store.message(both).is_none() && world.store.message(alone).is_none());
    assert_eq!((world.counted(), world.sched.queue_run_since()), ((1, 1), None));
    world.set("domain:a.shared.example", false);
    world.run(1_000);
    assert!(world.store.message(later).is_none());
}

#[test]
fn a_run_has_mail_whose_domain_is_being_looked_up() {
    let mut world = World::new();
    world.set("all", true);
    world.is_slow = true;
    let no = world.mail("a@x.example");
    world.sched.run_queue(world.now);
    world.run(30_000);
    assert!(world.sched.queue_run_since().is_some() && world.counted() == (0, 1), "it waits for the name service");
    let later = world.mail("b@x.example");
    let asked = world.asked[0];
    world.answer(asked);
    world.run(HOUR);
    assert!(world.has_delivered(no) && !world.has_delivered(later));
    assert_eq!((world.counted(), world.sched.queue_run_since()), ((1, 1), None));
}

#[test]
fn a_run_leaves_what_is_held_or_suspended() {
    let mut world = World::new();
    world.set("all", true);
    let held = world.mail("a@x.example");
    world.sched.hold_message(held);
    let list = world.mail_of(&["a@y.example"], |accept| accept.list = Some("news".into()));
    world.sched.suspend_flow(&FlowKey::List("news".into()));
    let free = world.mail("a@z.example");
    world.run(1_000);
    world.sched.run_queue(world.now);
    world.run(HOUR);
    assert!(world.has_delivered(free) && !world.has_delivered(held) && !world.has_delivered(list));
    assert_eq!(world.sched.queue_run_since(), None, "nothing of it can go");
    world.sched.resume_flow(&FlowKey::List("news".into()));
    world.sched.release_message(&world.store, held, world.now);
    world.run(HOUR);
    assert_eq!(world.counted(), (2, 2), "queue-only goes on");
}

#[test]
fn mail_names_the_suspension_that_keeps_it() {
    let suspended = |name: &str| Some(name.to_owned());
    let mut world = World::new();
    world.sched.set_suspended("list:news", true, 0, "");
    let post = world.mail_of(&["a@x.example", "b@y.example"], |accept| {
        (accept.list, accept.class) = (Some("news".into()), Class::Bulk);
    });
    world.run(1_000);
    assert_eq!(world.suspension(), suspended("list:news"));
    world.sched.set_suspended("sender:home.example", true, 0, "");
    let mail = world.mail("a@x.example");
    world.run(1_000);
    assert_eq!(world.suspension(), None, "two suspensions keep it");
    // A site's suspension takes precedence over those of lists and senders.
    world.sched.set_suspended("site:x.example", true, 0, "");
    let keeper = |no, to: &str| {
        let id = world.store.book.lookup(to).expect("it is known");
        world.sched.recipient_status(&world.store, no, id, world.now).keeper
    };
    let kept_by = |no, to| world.sched.suspension(keeper(no, to));
    assert_eq!(kept_by(mail, "a@x.example"), suspended("site:x.example"));
    assert_eq!(kept_by(post, "a@x.example"), suspended("site:x.example"));
    assert_eq!(kept_by(post, "b@y.example"), suspended("list:news"));
}
