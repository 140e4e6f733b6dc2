//! Connections: crates/delivery/src/connection.rs in virtual time.

use std::collections::VecDeque;

use stentor_queue::event::Fate;
use stentor_queue::ids::{ConnId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::site::Endpoint;
use stentor_sched::{CloseReason, NoSession, RcptOutcome, Scheduler, Stage, Work};

use super::{Ev, Sim};
use crate::host::Mood;
use crate::net::Net;

/// The server's `connect_timeout_s`, and the time-outs of RFC 5321 4.5.3.2.
const CONNECT_TIMEOUT_MS: Ms = 10_000;
const COMMAND_TIMEOUT_MS: Ms = 300_000;
/// Interval at which the server reports progress.
const PROGRESS_MS: Ms = 500;
const FINAL_TIMEOUT_MS: Ms = 600_000;

pub(crate) struct Wire {
    host: usize,
    /// The host counts it.
    joined: bool,
    ready: bool,
    must_close: bool,
    begun: u32,
    open: VecDeque<Work>,
    /// The server has worked off what came before then.
    server_free: Ms,
}

impl Sim {
    pub(crate) fn connect(&mut self, conn: ConnId, addr: &Endpoint) {
        self.counts.connects += 1;
        let index = Net::host_at(addr);
        let (now, host) = (self.now, &mut self.net.hosts[index]);
        let rtt = host.rtt_ms;
        let (mut joined, mut delay) = (false, 3 * rtt);
        let failure = match host.mood {
            Mood::Dead => Some((rtt, "Connection refused")),
            Mood::BlackHole => Some((CONNECT_TIMEOUT_MS, "Connection timed out")),
            Mood::NoBanner => Some((rtt + COMMAND_TIMEOUT_MS, "timed out while waiting for the greeting")),
            Mood::NoEhlo => Some((2 * rtt + COMMAND_TIMEOUT_MS, "timed out while sending EHLO")),
            mood => {
                if let Mood::Tarpit(ms) = mood {
                    delay += 2 * ms;
                }
                let refused = host.join();
                joined = refused.is_ok();
                refused.err().map(|why| (2 * rtt, why))
            }
        };
        let wire = Wire {
            host: index,
            joined,
            ready: false,
            must_close: false,
            begun: 0,
            open: VecDeque::new(),
            server_free: 0,
        };
        self.wires.insert(conn, wire);
        match failure {
            Some((after, why)) => self.at(now + after, Ev::Refused(conn, why)),
            None => self.at(now + delay, Ev::Ready(conn)),
        }
    }

    fn remove(&mut self, conn: ConnId) -> Option<Wire> {
        let wire = self.wires.remove(&conn)?;
        if wire.joined {
            self.net.hosts[wire.host].leave();
        }
        Some(wire)
    }

    pub(crate) fn refused(&mut self, conn: ConnId, why: &str) {
        if self.remove(conn).is_some() {
            self.counts.connect_failures += 1;
            let cause = match why.get(..3) {
                Some("421") => NoSession::Reply { code: 421, dsn: None },
                Some("Con") if why.ends_with("refused") => NoSession::Unreachable,
                _ => NoSession::Failed,
            };
            self.call("connect_failed", |sched, store, now| sched.connect_failed(store, conn, cause, why, now));
        }
    }

    pub(crate) fn ready(&mut self, conn: ConnId) {
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        wire.ready = true;
        self.call("connected", |sched, _, now| sched.connected(conn, now));
        self.fill(conn);
    }

    /// Begins as many transactions as the session can take.
    pub(crate) fn fill(&mut self, conn: ConnId) {
        loop {
            let pipelines_max = self.pipelines;
            let Some(wire) = self.wires.get(&conn).filter(|wire| wire.ready && !wire.must_close) else { return };
            let host = &self.net.hosts[wire.host];
            let max = if host.overlaps() { pipelines_max } else { 1 };
            if wire.open.len() >= max {
                return;
            }
            let Some(work) = self.call("take_work", |sched, store, now| sched.take_work(store, conn, now)) else {
                return;
            };
            self.begin(conn, work);
        }
    }

    fn begin(&mut self, conn: ConnId, work: Work) {
        self.counts.transactions += 1;
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        let host = &self.net.hosts[wire.host];
        let (rtt, count) = (host.rtt_ms, work.ids.len() as Ms);
        let answers = match host.mood {
            Mood::NoMail => {
                wire.open.push_back(work);
                return self.at(self.now + COMMAND_TIMEOUT_MS, Ev::Lost(conn));
            }
            Mood::NoFinal => {
                wire.open.push_back(work);
                return self.at(self.now + rtt + FINAL_TIMEOUT_MS, Ev::Lost(conn));
            }
            Mood::Tarpit(ms) => {
                wire.open.push_back(work);
                for reply in 1..count + 3 {
                    self.at(self.now + rtt + ms * reply, Ev::Progress(conn));
                }
                return self.at(self.now + rtt + ms * (count + 3), Ev::Reply(conn));
            }
            _ => host.work_ms(work.ids.len()),
        };
        // The content arrives half a round trip after the last one that had to be waited for.
        let before = host.before_ms(work.ids.len());
        let (now, mut signs) = (self.now, Vec::new());
        let arrives = now + before + rtt / 2;
        wire.server_free = wire.server_free.max(arrives) + answers;
        // Command by command there is progress, which the server reports at intervals.
        let mut told = now + PROGRESS_MS.max(rtt);
        while told < now + before {
            signs.push(told);
            told += PROGRESS_MS.max(rtt);
        }
        let replies_at = wire.server_free + rtt.div_ceil(2);
        wire.open.push_back(work);
        for told in signs {
            self.at(told, Ev::Progress(conn));
        }
        self.at(replies_at, Ev::Reply(conn));
    }

    pub(crate) fn progress(&mut self, conn: ConnId) {
        if self.wires.contains_key(&conn) {
            self.call("progress", |sched, _, now| sched.progress(conn, now));
        }
    }

    pub(crate) fn reply(&mut self, conn: ConnId) {
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        let Some(work) = wire.open.pop_front() else { return };
        wire.begun += 1;
        let (done, host) = (wire.begun, wire.host);
        // The server answered half a round trip ago; what it saw then is what it sees now, but for the others.
        let answer = self.net.hosts[host].answer(&work.ids, done, self.now, &mut self.rng);
        let refused = answer.outcomes.iter().all(|o| o.stage == Stage::Mail);
        if let Some(log) = &mut self.log {
            log.push((self.now, host as u32, !refused));
        }
        let text = answer.outcomes.first().map(|o| o.text.clone());
        self.end(conn, &work, &answer.outcomes);
        if answer.leaves {
            let text = text.unwrap_or_default();
            // What stood behind it in the pipeline was not looked at.
            let rest = self.wires.get_mut(&conn).map(|wire| std::mem::take(&mut wire.open)).unwrap_or_default();
            for work in rest {
                let outcomes: Vec<RcptOutcome> = same(&work, Stage::Mail, 421, &text);
                self.end(conn, &work, &outcomes);
            }
            self.closed(conn, &CloseReason::Refused { text });
        } else {
            self.fill(conn);
            self.quit_if_done(conn);
        }
    }

    fn end(&mut self, conn: ConnId, work: &Work, outcomes: &[RcptOutcome]) {
        let delivered: IdSet = outcomes.iter().filter(|o| o.is_delivered()).map(|o| o.id.0).collect();
        if !delivered.is_empty() {
            self.delivered(work.no, &delivered);
        }
        let finished = self.record_fate(work.no, Fate::Delivered, &delivered);
        self.call("work_done", |sched, store, now| sched.work_done(store, conn, work.tx, outcomes, now));
        if finished {
            let no = work.no;
            self.call("finished", |sched: &mut Scheduler, _, _| sched.finished(no));
        }
    }

    /// The session is given up: by its time-out, or because it has to give way.
    pub(crate) fn lost(&mut self, conn: ConnId, why: &str) {
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        let stage = if self.net.hosts[wire.host].mood == Mood::NoFinal { Stage::LostAfterDot } else { Stage::Lost };
        let open = std::mem::take(&mut wire.open);
        if !wire.ready {
            return self.refused(conn, why);
        }
        for work in open {
            let outcomes = same(&work, stage, 0, &why.into());
            self.end(conn, &work, &outcomes);
        }
        self.closed(conn, &CloseReason::Lost { text: why.into() });
    }

    /// Others need its place.
    pub(crate) fn give_way(&mut self, conn: ConnId) {
        let Some(wire) = self.wires.get(&conn) else { return };
        // Small content is out with its transaction where several may be under way; a host that never answers MAIL
        // keeps DATA from being sent otherwise.
        let host = &self.net.hosts[wire.host];
        let is_out = !wire.open.is_empty() && (host.overlaps() || host.mood == Mood::NoFinal);
        if is_out {
            self.call("stays", |sched, _, now| sched.stays(conn, now));
        } else {
            self.counts.cut += 1;
            self.lost(conn, "gave way");
        }
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        if wire.ready {
            wire.must_close = true;
            self.quit_if_done(conn);
        } else {
            self.at(self.now, Ev::Refused(conn, "given up"));
        }
    }

    fn quit_if_done(&mut self, conn: ConnId) {
        let Some(wire) = self.wires.get(&conn).filter(|wire| wire.must_close && wire.open.is_empty()) else { return };
        let rtt = self.net.hosts[wire.host].rtt_ms;
        self.at(self.now + rtt, Ev::Closed(conn));
    }

    pub(crate) fn closed(&mut self, conn: ConnId, why: &CloseReason) {
        if self.remove(conn).is_some() {
            self.call("closed", |sched, store, now| sched.closed(store, conn, why, now));
        }
    }
}

fn same(work: &Work, stage: Stage, code: u16, text: &std::sync::Arc<str>) -> Vec<RcptOutcome> {
    let one = |id: &_| RcptOutcome { id: *id, stage, code, dsn: None, text: text.clone() };
    work.ids.iter().map(one).collect()
}
