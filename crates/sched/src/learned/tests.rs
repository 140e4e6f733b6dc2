//! A restart between any two events leaves the scheduler's behaviour unchanged.

use stentor_mail::reply::Enhanced;
use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};
use stentor_queue::store::{EventEffect, Store};

use super::SnapshotProgress;
use crate::{
    CloseReason, Effect, FlowKey, FlowRules, NoSession, RcptOutcome, RecipientPlace, SchedConfig, Scheduler, Stage,
};

const NOW: Ms = 1_795_000_100_000;
const YEAR: Ms = 365 * 24 * 3_600_000;

/// Behaviour of the only host.
#[derive(Clone, Copy)]
enum Host {
    Down,
    Says(Stage, u16, (u16, u16), &'static str),
    Well,
}

/// A recipient of a message.
#[derive(Clone, Copy)]
struct Rcpt {
    no: MessageNo,
    id: AddressId,
}

struct World {
    store: Store,
    sched: Scheduler,
    now: Ms,
    host: Host,
    mail: u64,
    connects: usize,
    taken: usize,
    suspended: usize,
    is_resolving: bool,
}

impl World {
    fn new(host: Host) -> World {
        let (store, sched) = (Store::new(), scheduler());
        let (mail, connects, taken, suspended) = (0, 0, 0, 0);
        World { store, sched, now: NOW, host, mail, connects, taken, suspended, is_resolving: true }
    }

    fn mail_to(&mut self, address: &str, list: Option<&str>) -> Rcpt {
        let (id, _) = self.store.book.intern(address).unwrap();
        self.mail += 1;
        let mut accept = crate::fixture::accept(self.mail, &[id.0]);
        (accept.sender, accept.list) = ("sender@example.org".to_owned(), list.map(str::to_owned));
        let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
        self.sched.accepted(&self.store, no, self.now);
        Rcpt { no, id }
    }

    /// Stops, and starts again `away` ms later by the wall clock.
    fn restart(&mut self, away: i64) {
        let text = self.saved();
        let written = self.now;
        self.now = self.now.saturating_add_signed(away);
        self.sched = scheduler();
        assert_eq!(self.sched.recall(&self.store, &text, written, self.now), 0, "{text}");
        let live: Vec<MessageNo> = self.store.messages().map(|(no, _)| no).collect();
        for no in live {
            self.sched.accepted(&self.store, no, self.now);
        }
        (self.connects, self.taken) = (0, 0);
    }

    fn saved(&mut self) -> String {
        let (mut at, mut text) = (SnapshotProgress::default(), String::new());
        while self.sched.write_learned(&self.store, &mut at, &mut text, self.now) {}
        text
    }

    fn run(&mut self, ms: Ms) {
        let until = self.now + ms;
        loop {
            let effects: Vec<Effect> = self.sched.effects().collect();
            if !effects.is_empty() {
                for effect in effects {
                    self.obey(&effect);
                }
                continue;
            }
            let Some(at) = self.sched.next_tick().filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.sched.tick(&self.store, self.now);
        }
        self.now = until;
    }

    fn obey(&mut self, effect: &Effect) {
        match *effect {
            Effect::Resolve { domain } => {
                let found = if self.is_resolving { plan(&self.store, domain) } else { servfail() };
                self.sched.resolved(&self.store, domain, found, self.now);
            }
            Effect::Connect { conn, .. } => {
                self.connects += 1;
                if matches!(self.host, Host::Down) {
                    return self.sched.connect_failed(&self.store, conn, NoSession::Failed, "timed out", self.now);
                }
                self.sched.connected(conn, self.now);
                while let Some(work) = self.sched.take_work(&self.store, conn, self.now) {
                    self.taken += 1;
                    let (stage, code, dsn, text) = match self.host {
                        Host::Says(stage, code, (subject, detail), text) => {
                            let class = u8::try_from(code / 100).unwrap();
                            (stage, code, Some(Enhanced::new(class, subject, detail)), text)
                        }
                        _ => (Stage::Final, 250, None, "ok"),
                    };
                    let outcome = |id: &AddressId| RcptOutcome { id: *id, stage, code, dsn, text: text.into() };
                    let outcomes: Vec<_> = work.ids.iter().map(outcome).collect();
                    let ids: IdSet = work.ids.iter().map(|id| id.0).collect();
                    if code == 250 || code >= 500 {
                        let fate = if code == 250 { Fate::Delivered } else { Fate::Bounced };
                        self.store.record_fate(work.no, fate, &ids, None, self.now, &mut Vec::new());
                    }
                    self.sched.work_done(&self.store, conn, work.tx, &outcomes, self.now);
                    if self.store.message(work.no).is_none() {
                        self.sched.finished(work.no);
                    }
                }
            }
            Effect::Close { conn } => self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now),
            Effect::Suspend { .. } => self.suspended += 1,
            _ => {}
        }
    }

    fn status(&mut self, Rcpt { no, id }: Rcpt) -> (RecipientPlace, Option<Ms>, String) {
        let status = self.sched.recipient_status(&self.store, no, id, self.now);
        (status.state, status.next_try, status.reason.map_or_else(String::new, |reply| reply.to_string()))
    }
}

fn scheduler() -> Scheduler {
    let mut sched = Scheduler::new(SchedConfig::default(), 1);
    let rules = FlowRules { suspend_posts: Some(3), ..FlowRules::default() };
    sched.set_rules(FlowKey::List("news".into()), Some(rules));
    sched
}

fn plan(store: &Store, domain: DomainId) -> Resolution {
    let addr = Endpoint::by_port((std::net::Ipv4Addr::new(192, 0, 2, 1), 25));
    let target = Target { preference: 0, host: "mx".into(), addr, lmtp: false, posture: None };
    let (key, limits) = (format!("mx.{}", store.book.domain_name(domain)).into(), SiteLimits::default());
    Resolution::Site(SitePlan { key, targets: vec![target], mixes_domains: false, limits, ttl_s: 60 })
}

fn servfail() -> Resolution {
    let cause = stentor_queue::cause::Cause::Dns;
    Resolution::Temporary { cause, dsn: Enhanced::new(4, 4, 3), text: "SERVFAIL".into() }
}

/// Each kind of clock survives a restart in its middle: nothing is tried before it ends, the status is the same, and
/// the ladder continues.
#[test]
fn clocks_go_on_over_a_restart() {
    let kinds = [
        (Host::Down, RecipientPlace::Site),
        (Host::Says(Stage::Rcpt, 452, (2, 2), "mailbox full"), RecipientPlace::Mailbox),
        (Host::Says(Stage::Rcpt, 450, (7, 1), "come back later"), RecipientPlace::Recipient),
        (Host::Says(Stage::Final, 451, (3, 0), "not this message"), RecipientPlace::Message),
        (Host::Says(Stage::Mail, 451, (7, 1), "not this sender"), RecipientPlace::Sender),
    ];
    for (host, state) in kinds {
        let mut world = World::new(host);
        let mail = world.mail_to("ann@one.example", None);
        // Beyond the first steps of the ladder.
        world.run(20 * 60_000);
        let before = world.status(mail);
        assert_eq!(before.0, state, "{before:?}");
        let left = before.1.unwrap() - world.now;
        assert!(left > 60_000, "{state:?}: {left}");
        world.restart(1_000);
        world.run(left - 3_000);
        let after = world.status(mail);
        assert_eq!((world.taken, &after.2), (0, &before.2), "{state:?}");
        assert!(world.connects <= 1 && (after.0, after.1.is_some()) == (state, true), "{state:?}: {after:?}");
        assert!(after.1.unwrap().abs_diff(before.1.unwrap()) <= 2_000, "{state:?}: {before:?} {after:?}");
        // The clock ends when it would have, and the next one is no shorter.
        world.run(10_000);
        assert!(world.taken + world.connects > 0, "{state:?} is tried again");
        let next = world.status(mail);
        assert!(next.1.unwrap() >= world.now + left / 2, "{state:?} went on with the ladder: {next:?}");
        world.host = Host::Well;
        world.run(4 * 3_600_000 + 60_000);
        assert_eq!(world.store.len(), 0, "{state:?} is delivered in the end");
    }
}

/// Texts of earlier versions have no trials and no refused messages behind the refusals at MAIL.
#[test]
fn a_refusal_at_mail_of_an_earlier_version_is_read() {
    let mut world = World::new(Host::Says(Stage::Mail, 451, (7, 1), "not this sender"));
    let mail = world.mail_to("ann@one.example", None);
    world.run(20 * 60_000);
    let (text, before) = (world.saved(), world.status(mail));
    let line = text.lines().find(|line| line.starts_with("deferral\t")).expect("a deferral");
    let fields: Vec<&str> = line.split('\t').collect();
    assert_eq!(fields[fields.len() - 5..fields.len() - 3], ["0", "1"], "trials and number of messages: {line}");
    let old = text.replace(line, &fields[..fields.len() - 5].join("\t"));
    world.sched = scheduler();
    assert_eq!(world.sched.recall(&world.store, &old, world.now, world.now), 0, "{old}");
    world.sched.accepted(&world.store, mail.no, world.now);
    world.taken = 0;
    world.run(1_000);
    let after = world.status(mail);
    assert_eq!((after.0, world.taken), (RecipientPlace::Sender, 1), "a trial, which costs no clock: {after:?}");
    assert!(after.1.unwrap().abs_diff(before.1.unwrap()) <= 2_000, "{before:?} {after:?}");
}

#[test]
fn a_failed_look_up_keeps_its_clock() {
    let mut world = World::new(Host::Well);
    world.is_resolving = false;
    let mail = world.mail_to("ann@one.example", None);
    world.run(20 * 60_000);
    let before = world.status(mail);
    assert_eq!(before.0, RecipientPlace::LookUp);
    world.restart(0);
    world.is_resolving = true;
    world.run(1_000);
    assert_eq!(world.status(mail), before);
    world.run(before.1.unwrap() - world.now + 1_000);
    assert_eq!(world.store.len(), 0);
}

/// However the clock was set, nothing waits longer than the longest clock of its kind, and one probe tries a host that
/// was down.
#[test]
fn a_clock_that_was_set_makes_none_longer() {
    for away in [-YEAR.cast_signed(), -3_600_000, 0, 3_600_000, YEAR.cast_signed()] {
        let mut world = World::new(Host::Down);
        let mails: Vec<_> = (0..50).map(|n| world.mail_to(&format!("user{n}@one.example"), None)).collect();
        world.run(30 * 60_000);
        world.restart(away);
        world.run(2_000);
        assert!(world.connects <= 1, "{away}: {} connections", world.connects);
        let max = SchedConfig::DEFAULT.host_retry.max_ms;
        for mail in mails {
            let (_, next, _) = world.status(mail);
            assert!(next.is_none_or(|next| next <= world.now + max), "{away}: {next:?}");
        }
        assert_eq!(world.store.len(), 50, "{away}: nothing expires");
        world.host = Host::Well;
        world.run(max + 60_000);
        assert_eq!(world.store.len(), 0, "{away}");
    }
}

#[test]
fn refused_posts_count_on_until_the_subscriber_is_suspended() {
    let refuses = Host::Says(Stage::Rcpt, 550, (1, 1), "no such user");
    let mut world = World::new(refuses);
    for post in 1..=3 {
        assert_eq!(world.suspended, 0, "before post {post}");
        world.mail_to("gone@one.example", Some("news"));
        world.run(60_000);
        world.restart(7 * 24 * 3_600_000);
    }
    assert_eq!(world.suspended, 1);
    // A delivery in between ends the count, over restarts too.
    let mut world = World::new(refuses);
    for host in [refuses, refuses, Host::Well, refuses, refuses] {
        world.host = host;
        world.mail_to("ann@one.example", Some("news"));
        world.run(60_000);
        world.restart(1_000);
    }
    assert_eq!(world.suspended, 0);
}

/// A stop, or a clock that was set, adds at most a day to the time for which a subscriber was refused.
#[test]
fn a_stop_counts_for_a_day() {
    let gap = |written, now| crate::kept::Gap { written, now };
    let (hour, day) = (3_600_000, 24 * 3_600_000);
    assert_eq!(gap(NOW, NOW + hour).age(NOW - day), day + hour);
    assert_eq!(gap(NOW, NOW + YEAR).age(NOW - day), 2 * day);
    assert_eq!(gap(NOW, NOW - YEAR).age(NOW - day), day);
    assert_eq!(gap(NOW, NOW).left(NOW + hour, 2 * hour), hour);
    assert_eq!(gap(NOW, NOW + hour).left(NOW + hour, 2 * hour), 0);
    assert_eq!(gap(NOW, NOW - YEAR).left(NOW + YEAR, 2 * hour), 2 * hour);
}

#[test]
fn limits_and_rates_are_known_after_a_restart() {
    let mut world = World::new(Host::Well);
    for n in 0..20 {
        world.mail_to(&format!("user{n}@one.example"), None);
    }
    // Its connections become idle for too long.
    world.run(20_000);
    world.host = Host::Says(Stage::Mail, 450, (7, 1), "rate limited");
    let mail = world.mail_to("ann@one.example", None);
    world.run(1_000);
    let domain = world.store.book.domain(mail.id);
    let path = |world: &World| {
        let site = world.sched.site_of(domain).unwrap();
        world.sched.explain_site(site, world.now).unwrap().paths.into_iter().next().unwrap()
    };
    let before = path(&world);
    assert!(before.per_minute.is_some() && before.paused_until.is_some());
    world.restart(500);
    world.run(100);
    let after = path(&world);
    assert_eq!((after.per_minute, after.paused_until), (before.per_minute, before.paused_until));
    assert_eq!(world.taken, 0, "the pause goes on");
    // Unused facts are kept for the next start.
    let mut idle = World::new(Host::Well);
    let text = world.saved();
    assert_eq!(idle.sched.recall(&idle.store, &text, world.now, world.now), 0);
    idle.now = world.now;
    assert!(idle.saved().lines().any(|line| line.starts_with("path\tmx.one.example\t")));
    idle.now += 8 * 24 * 3_600_000;
    let (text, written) = (idle.saved(), idle.now);
    let mut later = World::new(Host::Well);
    later.sched.recall(&later.store, &text, written, written);
    assert!(!later.saved().contains("mx.one.example"), "after a week it is forgotten");
}

#[test]
fn an_id_that_is_another_address_has_nothing_of_the_one_before() {
    let mut world = World::new(Host::Says(Stage::Rcpt, 452, (2, 2), "mailbox full"));
    world.mail_to("ann@one.example", None);
    world.run(60_000);
    let text = world.saved();
    // The same numbers, reused for others.
    let mut other = World::new(Host::Well);
    let mail = other.mail_to("bob@two.example", None);
    other.sched = scheduler();
    other.now = world.now;
    assert_eq!(other.sched.recall(&other.store, &text, world.now, other.now), 0);
    other.sched.accepted(&other.store, mail.no, other.now);
    assert_eq!(other.status(mail).1, None);
    other.run(1_000);
    assert_eq!(other.store.len(), 0);
}

#[test]
fn what_makes_no_sense_is_left_out() {
    let mut world = World::new(Host::Down);
    let mail = world.mail_to("ann@one.example", None);
    world.run(60_000);
    let text = world.saved();
    let cut = text.lines().fold(String::new(), |cut, line| cut + &line[..line.len() / 2] + "\n");
    let mut again = World::new(Host::Well);
    let bad = again.sched.recall(&again.store, &cut, world.now, world.now);
    assert!(bad > 0 && bad <= text.lines().count());
    let nonsense =
        "host\n\nmailbox\tx\ty\nfuture\t1\ndeferral\t1\t1\tready\t0\tsite\tm\t1\t0\t99999999999999\nhost\t\u{0}";
    assert_eq!(again.sched.recall(&again.store, nonsense, 0, u64::MAX), 4);
    // Out-of-range clocks in files are clamped.
    let lies = text.replace(&format!("\t{}", (world.now / 1_000_000)), "\t99999999");
    world.sched = scheduler();
    world.sched.recall(&world.store, &lies, world.now, world.now);
    world.sched.accepted(&world.store, mail.no, world.now);
    world.run(1_000);
    let max = SchedConfig::DEFAULT.host_retry.max_ms;
    assert!(world.status(mail).1.is_none_or(|next| next <= world.now + max));
}
