//! Hosts that worked a moment ago: they restart, lose transactions in flight, or limit their sessions.

#[path = "common/agenda.rs"]
mod agenda;
#[path = "common/steps.rs"]
mod steps;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use agenda::{Agenda, Next};
use stentor_mail::reply::Enhanced;
use stentor_queue::event::Accept;
use stentor_queue::ids::{ConnId, DomainId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::site::Resolution;
use stentor_queue::store::Store;
use stentor_sched::{CloseReason, Effect, NoSession, SchedConfig, Scheduler, Stage, Work};
use steps::{Answer, plan, target};

const START: Ms = 1_800_000_000_000;
const SECOND: Ms = 1_000;
const MINUTE: Ms = 60 * SECOND;
const HOUR: Ms = 60 * MINUTE;
/// Round-trip time to the host.
const RTT: Ms = 20;

/// How sessions end while a host is out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum SessionEnd {
    NoSession(NoSession),
    /// After EHLO and before MAIL.
    Slams(u16),
    /// The reply to MAIL; 0: the connection is lost.
    Mail(u16),
    /// The connection is lost after the end of the data.
    AfterDot,
}

const fn reply(code: u16) -> SessionEnd {
    SessionEnd::NoSession(NoSession::Reply { code, dsn: None })
}

/// All ways in which a session may end.
const SESSION_ENDS: [SessionEnd; 14] = [
    SessionEnd::NoSession(NoSession::Unreachable),
    SessionEnd::NoSession(NoSession::Failed),
    SessionEnd::NoSession(NoSession::Tls),
    reply(421),
    reply(450),
    reply(451),
    reply(454),
    reply(554),
    SessionEnd::Slams(0),
    SessionEnd::Slams(421),
    SessionEnd::Mail(0),
    SessionEnd::Mail(421),
    SessionEnd::Mail(451),
    SessionEnd::Mail(450),
];

/// A host's reply after a given number of transactions on a connection.
#[derive(Clone, Copy)]
struct Enough {
    after: u32,
    code: u16,
    text: &'static str,
}

#[derive(Clone)]
struct Host {
    out: Range<Ms>,
    way: SessionEnd,
    enough: Option<Enough>,
}

#[derive(Clone, Copy)]
enum Ev {
    Resolved(DomainId),
    Session(ConnId),
    Reply(ConnId),
    Closed(ConnId),
    Mail,
}

struct Conn {
    host: usize,
    done: u32,
    must_close: bool,
    open: VecDeque<Work>,
}

struct World {
    store: Store,
    sched: Scheduler,
    now: Ms,
    agenda: Agenda<Ev>,
    hosts: Vec<Host>,
    conns: HashMap<ConnId, Conn>,
    senders: u32,
    mails: u32,
    connects: Vec<Ms>,
    /// Time of each MAIL, with its message.
    attempts: Vec<(u32, Ms)>,
    delivered: Vec<(u32, Ms)>,
}

impl World {
    fn new(hosts: usize, way: SessionEnd, seed: u64) -> World {
        World {
            store: Store::new(),
            sched: Scheduler::new(SchedConfig::default(), seed),
            now: START,
            agenda: Agenda::new(),
            hosts: vec![Host { out: 0..0, way, enough: None }; hosts],
            conns: HashMap::new(),
            senders: 1,
            mails: 0,
            connects: Vec::new(),
            attempts: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn at(&mut self, after: Ms, ev: Ev) {
        self.agenda.plan(self.now + after, ev);
    }

    fn mail(&mut self) {
        let id = self.store.next_message_id(self.now);
        let to = self.store.book.intern(&format!("u{}@site.example", self.mails)).map(|(id, _)| id).unwrap();
        let accept = Accept {
            size: 1_000,
            sender: format!("ann@s{}.example", self.mails % self.senders),
            recipients: IdSet::one(to.0),
            ..Accept::bare(id, self.now)
        };
        self.mails += 1;
        steps::accept(&mut self.store, &mut self.sched, accept, self.now);
    }

    /// Takes all hosts out from now on, for this long; open connections end.
    fn go_out(&mut self, for_ms: Ms) {
        for host in 0..self.hosts.len() {
            self.hosts[host].out = self.now..self.now + for_ms;
            self.stop(host);
        }
    }

    fn stop(&mut self, host: usize) {
        let mut open: Vec<ConnId> = self.conns.iter().filter(|(_, c)| c.host == host).map(|(id, _)| *id).collect();
        open.sort_unstable();
        for conn in open {
            self.hang_up(conn, 0);
        }
    }

    fn run(&mut self, ms: Ms) {
        let until = self.now + ms;
        self.obey();
        while let Some(next) = self.agenda.next_at(&self.sched, self.now).filter(|at| *at <= until) {
            let what = self.agenda.take(next, &self.sched, self.now);
            self.now = self.now.max(next);
            match what {
                Some(Next::Event(ev)) => self.happen(ev),
                Some(Next::Tick) => self.sched.tick(&self.store, self.now),
                None => {}
            }
            self.obey();
        }
        self.now = until;
    }

    fn obey(&mut self) {
        loop {
            let effects: Vec<Effect> = self.sched.effects().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Resolve { domain } => self.at(1, Ev::Resolved(domain)),
                    Effect::Connect { conn, target, .. } => {
                        let host = usize::from(target.addr.port()) - 1;
                        self.connects.push(self.now);
                        self.conns.insert(conn, Conn { host, done: 0, must_close: false, open: VecDeque::new() });
                        self.at(RTT, Ev::Session(conn));
                    }
                    Effect::Work { conn } => self.fill(conn),
                    Effect::Close { conn } => {
                        if let Some(entry) = self.conns.get_mut(&conn) {
                            entry.must_close = true;
                        }
                        self.at(1, Ev::Closed(conn));
                    }
                    _ => {}
                }
            }
        }
    }

    fn happen(&mut self, ev: Ev) {
        match ev {
            Ev::Resolved(domain) => {
                let hosts = 0..self.hosts.len() as u16;
                let plan = plan("mx", hosts.map(|host| target(host, format!("mx{host}.example"), host + 1)));
                self.sched.resolved(&self.store, domain, Resolution::Site(plan), self.now);
            }
            Ev::Session(conn) => self.session(conn),
            Ev::Reply(conn) => self.reply(conn),
            Ev::Closed(conn) => {
                if self.conns.remove(&conn).is_some() {
                    self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now);
                }
            }
            Ev::Mail => self.mail(),
        }
    }

    /// How the connection's host fails, if it is out.
    fn way(&self, conn: ConnId) -> Option<SessionEnd> {
        let host = &self.hosts[self.conns.get(&conn)?.host];
        host.out.contains(&self.now).then_some(host.way)
    }

    fn session(&mut self, conn: ConnId) {
        if !self.conns.contains_key(&conn) {
            return;
        }
        match self.way(conn) {
            Some(SessionEnd::NoSession(why)) => {
                self.conns.remove(&conn);
                self.sched.connect_failed(&self.store, conn, why, "no session", self.now);
            }
            Some(SessionEnd::Slams(code)) => {
                self.sched.connected(conn, self.now);
                self.hang_up(conn, code);
            }
            _ => {
                self.sched.connected(conn, self.now);
                self.fill(conn);
            }
        }
    }

    fn fill(&mut self, conn: ConnId) {
        if self.conns.get(&conn).is_none_or(|c| c.must_close || !c.open.is_empty()) {
            return;
        }
        if let Some(work) = self.sched.take_work(&self.store, conn, self.now) {
            self.attempts.push((work.ids[0].0, self.now));
            if let Some(entry) = self.conns.get_mut(&conn) {
                entry.open.push_back(work);
            }
            self.at(RTT, Ev::Reply(conn));
        }
    }

    fn reply(&mut self, conn: ConnId) {
        let way = self.way(conn);
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        let Some(work) = entry.open.pop_front() else { return };
        entry.done += 1;
        let enough = self.hosts[entry.host].enough.filter(|enough| entry.done > enough.after);
        let (stage, code, text) = match (way, enough) {
            (Some(SessionEnd::Mail(0)), _) => (Stage::Lost, 0, "lost connection"),
            (Some(SessionEnd::Mail(code)), _) => (Stage::Mail, code, "4.3.2 closing"),
            (Some(SessionEnd::AfterDot), _) => (Stage::LostAfterDot, 0, "lost connection"),
            (_, Some(enough)) => (Stage::Mail, enough.code, enough.text),
            _ => (Stage::Final, 250, "ok"),
        };
        let dsn = Some(Enhanced::new(4, 3, 2)).filter(|_| code == 451);
        self.delivered.extend(work.ids.iter().filter(|_| code == 250).map(|id| (id.0, self.now)));
        let answer = Answer { stage, code, dsn, text };
        steps::end(&mut self.store, &mut self.sched, conn, &work, &answer, self.now);
        if matches!(code, 0 | 421) {
            self.hang_up(conn, code);
        } else {
            self.fill(conn);
        }
    }

    fn hang_up(&mut self, conn: ConnId, code: u16) {
        let Some(entry) = self.conns.remove(&conn) else { return };
        let lost = Answer { stage: Stage::Lost, code: 0, dsn: None, text: "lost" };
        for work in entry.open {
            steps::end(&mut self.store, &mut self.sched, conn, &work, &lost, self.now);
        }
        let text = "bye".into();
        let why = if code == 421 { CloseReason::Refused { text } } else { CloseReason::Lost { text } };
        self.sched.closed(&self.store, conn, &why, self.now);
    }

    /// Makes the host work: it takes some messages.
    fn warm_up(&mut self, idle: Ms) {
        for _ in 0..5 {
            self.mail();
            self.run(100);
        }
        self.run(idle);
        assert_eq!(self.delivered.len(), 5);
    }

    fn connects_within(&self, from: Ms, to: Ms) -> usize {
        self.connects.iter().filter(|at| (from..to).contains(*at)).count()
    }
}

/// Mail goes within the length of the outage plus two seconds, however its sessions ended, with one host and with two.
#[test]
fn a_host_that_restarts_is_found_in_time() {
    for (n, way) in SESSION_ENDS.into_iter().enumerate() {
        for outage in [300, 3 * SECOND, 10 * SECOND, 30 * SECOND] {
            for (hosts, mails) in [(1, 1), (1, 20), (2, 1), (2, 20u32)] {
                let mut world = World::new(hosts, way, n as u64);
                world.warm_up(4 * SECOND);
                world.go_out(outage);
                let healthy = world.now + outage;
                for mail in 0..mails {
                    world.at(u64::from(mail) * outage / 20, Ev::Mail);
                }
                world.run(2 * outage + 2 * SECOND);
                let last = world.delivered.last().map_or(0, |(_, at)| at.saturating_sub(healthy));
                let name = format!("{way:?}, {outage} ms, {hosts} hosts, {mails} messages");
                assert_eq!(world.delivered.len(), 5 + mails as usize, "{name}: the last of these after {last} ms");
                // One probe per host every two seconds; a host that is back takes more.
                let most = hosts * (4 + outage as usize / 2_000);
                let connects = world.connects_within(healthy - outage, healthy);
                assert!(connects <= most, "{name}: {connects} connections while it was out, at most {most}");
            }
        }
    }
}

/// After the first minute, a host that stays away costs no more than one that did not work a moment ago.
#[test]
fn a_host_that_stays_away_is_left_alone_as_any_other() {
    for (n, way) in SESSION_ENDS.into_iter().enumerate() {
        let run = |idle: Ms| {
            let mut world = World::new(1, way, n as u64);
            world.senders = 3;
            world.warm_up(idle);
            world.go_out(HOUR * 1_000);
            let begun = world.now;
            for mail in 0..20 {
                world.at(mail * 100, Ev::Mail);
            }
            world.run(24 * HOUR);
            let first = world.connects_within(begun, begun + MINUTE);
            (first, world.connects_within(begun + MINUTE, begun + 24 * HOUR))
        };
        let ((first, later), (_, as_any)) = (run(4 * SECOND), run(3 * HOUR));
        // Jitter, and messages that are refused in turn, move one or two attempts beyond the day's end.
        assert!(later <= as_any + as_any / 8 + 3, "{way:?}: {later} connections, {as_any} to any other host");
        assert!(first <= 26, "{way:?}: {first} connections in the first minute");
    }
}

/// Messages in flight when a connection was lost, even after the end of the data, go soon after the host has taken
/// other mail. A message that always ends like that waits from the second time on.
#[test]
fn what_was_in_flight_is_tried_again_after_seconds() {
    let mut world = World::new(1, SessionEnd::AfterDot, 1);
    world.warm_up(4 * SECOND);
    world.hosts[0].out = world.now..world.now + 50;
    world.mail();
    world.run(SECOND);
    assert_eq!(world.delivered.len(), 5, "it was lost");
    world.run(10 * SECOND);
    assert_eq!(world.delivered.len(), 5, "the message or the host, nobody knows");
    world.mail();
    world.run(SECOND);
    let ids: Vec<u32> = world.delivered.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.len(), 7, "both have theirs: {ids:?}");
    // One message kills the host; all others are taken.
    let mut world = World::new(1, SessionEnd::AfterDot, 1);
    world.warm_up(4 * SECOND);
    world.mail();
    let poison = world.mails - 1;
    for mail in 0..300 {
        world.at(100 + mail * 200, Ev::Mail);
    }
    let mut tried = 0;
    for _ in 0..6_000 {
        // The host is out whenever that message is in a transaction.
        let id = world.store.book.intern(&format!("u{poison}@site.example")).unwrap().0;
        let is_open = world.conns.values().any(|c| c.open.iter().any(|work| work.ids.contains(&id)));
        world.hosts[0].out = if is_open { 0..Ms::MAX } else { 0..0 };
        world.run(10);
        tried = world.attempts.iter().filter(|(to, _)| *to == id.0).count();
    }
    assert!((2..=4).contains(&tried), "{tried} times in a minute");
    assert_eq!(world.delivered.len(), 305, "the others have theirs");
}

/// A limit of the session is recognized whatever the code; all messages go, one connection after the other.
#[test]
fn messages_beyond_a_sessions_limit_go_at_once() {
    for (code, text) in [
        (421, "too many messages in this connection"),
        (421, "Too many messages in this session"),
        (421, "closing, start another session"),
        (421, "too many messages"),
        (421, "Maximum number of messages per session exceeded"),
        (450, "4.7.1 too many messages in this session"),
        (451, "too many transactions, please reconnect"),
        (451, "Max message per connection reached"),
        (452, "Too many recipients in this session"),
        (452, "please open a new connection"),
    ] {
        for (after, mails) in [(1, 50), (10, 400)] {
            let mut world = World::new(1, SESSION_ENDS[0], u64::from(code));
            world.hosts[0].enough = Some(Enough { after, code, text });
            for _ in 0..mails {
                world.mail();
            }
            world.run(20 * SECOND);
            assert_eq!(world.delivered.len(), mails, "{code} {text}, {after} a session");
            let connects = world.connects.len();
            assert!(connects <= 40 + 4 * mails / after as usize, "{code} {text}: {connects} connections");
        }
    }
}

/// A host that claims a session limit at the first message of each session gets connections only by a growing clock.
#[test]
fn a_sessions_limit_is_not_believed_of_who_delivers_nothing() {
    for code in [421, 450, 451, 452] {
        for text in ["too many messages in this connection", "please reconnect", "too many messages"] {
            let mut world = World::new(1, SESSION_ENDS[0], 1);
            world.warm_up(4 * SECOND);
            world.hosts[0].enough = Some(Enough { after: 0, code, text });
            let begun = world.now;
            for _ in 0..20 {
                world.mail();
            }
            world.run(24 * HOUR);
            let (minute, day) = (world.connects_within(begun, begun + MINUTE), world.connects.len());
            assert!(minute <= 26 && day <= 400, "{code} {text}: {minute} connections in a minute, {day} in a day");
            let tried = world.attempts.iter().filter(|(_, at)| (begun..begun + MINUTE).contains(at)).count();
            assert!(tried <= 60, "{code} {text}: {tried} attempts in a minute");
        }
    }
}

/// The true limit over time is still found and respected, whatever the words.
#[test]
fn a_limit_per_time_is_no_limit_of_a_session() {
    for text in
        ["too many messages in one hour", "Too many messages from your address, slow down", "rate limit exceeded"]
    {
        let mut world = World::new(1, SESSION_ENDS[0], 1);
        world.hosts[0].enough = Some(Enough { after: 10, code: 450, text });
        for _ in 0..200 {
            world.mail();
        }
        world.run(30 * SECOND);
        let connects = world.connects.len();
        assert!(connects <= 25 && world.delivered.len() < 200, "{text}: {connects} connections");
    }
}
