//! One host of the simulated Internet: its distance, extensions, behaviour, and memory of us.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{AddressId, Ms};
use stentor_sched::{RcptOutcome, Stage};

const MINUTE_MS: Ms = 60_000;

/// What a host does to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Good,
    /// Connections are refused.
    Dead,
    /// SYNs are swallowed: only the connect time-out ends it.
    BlackHole,
    /// Connects, and never greets.
    NoBanner,
    /// Greets, and never answers EHLO.
    NoEhlo,
    /// Never answers MAIL.
    NoMail,
    /// Takes the data and never answers the dot.
    NoFinal,
    /// Each reply takes that long.
    Tarpit(Ms),
    /// 451 until so long after the first try of a (sender, recipient); then it is known for good.
    Greylists(Ms),
    /// 421 to MAIL after that many transactions of a connection.
    LeavesAfter(u32),
    /// 421 banner beyond that many connections.
    TakesConnections(u32),
    /// 452 4.5.3 beyond that many recipients of a transaction.
    TakesRecipients(u32),
    /// 450 to MAIL beyond that many messages within a minute; connections beyond the second number get a 421 banner.
    TakesPerMinute(u32, u32),
    /// 421 and gone, with that chance in percent per transaction.
    Drops(u32),
    /// 451 to the data until so long after the first try of a recipient.
    Busy(Ms),
    /// 452 4.2.2 at RCPT until so long after the first try of a recipient.
    Full(Ms),
    /// 550 at RCPT, always.
    Unknown,
}

impl Mood {
    /// A host that lets attempts hang or refuses them all.
    pub fn is_bad(self) -> bool {
        matches!(
            self,
            Mood::Dead
                | Mood::BlackHole
                | Mood::NoBanner
                | Mood::NoEhlo
                | Mood::NoMail
                | Mood::NoFinal
                | Mood::Tarpit(_)
        )
    }

    /// Whether every recipient is accepted at its first attempt, as far as the host goes.
    pub fn accepts_at_once(self) -> bool {
        let refuses = matches!(
            self,
            Mood::Greylists(_)
                | Mood::TakesPerMinute(..)
                | Mood::Drops(_)
                | Mood::Busy(_)
                | Mood::Full(_)
                | Mood::Unknown
        );
        !self.is_bad() && !refuses
    }
}

/// What a host is and remembers.
#[derive(Clone)]
pub struct Host {
    pub mood: Mood,
    pub rtt_ms: Ms,
    /// What the server needs for a transaction, and for each of its recipients in tenths of a millisecond.
    pub transaction_ms: Ms,
    pub recipient_tenths_ms: Ms,
    pub pipelining: bool,
    pub chunking: bool,
    pub connections: u32,
    pub connections_peak: u32,
    first_seen: HashMap<AddressId, Ms>,
    /// When the messages of the last minute were taken.
    taken: VecDeque<Ms>,
    pub messages: u64,
    pub refused: u64,
}

/// What the host says to a transaction.
pub struct Answer {
    pub outcomes: Vec<RcptOutcome>,
    /// It closes the connection with 421.
    pub leaves: bool,
}

impl Host {
    pub fn new(mood: Mood, rtt_ms: Ms) -> Host {
        Host {
            mood,
            rtt_ms,
            transaction_ms: 10,
            recipient_tenths_ms: 5,
            pipelining: true,
            chunking: true,
            connections: 0,
            connections_peak: 0,
            first_seen: HashMap::new(),
            taken: VecDeque::new(),
            messages: 0,
            refused: 0,
        }
    }

    /// The time that the server works on a transaction.
    pub fn work_ms(&self, recipients: usize) -> Ms {
        self.transaction_ms + self.recipient_tenths_ms * recipients as Ms / 10
    }

    /// How long a transaction takes until its content is on its way: what has to be waited for, command by command.
    pub fn before_ms(&self, recipients: usize) -> Ms {
        let (rtt, count) = (self.rtt_ms, recipients as Ms);
        match (self.pipelining, self.chunking) {
            (true, true) => 0,
            (true, false) => rtt,
            (false, true) => rtt * (count + 1),
            (false, false) => rtt * (count + 2),
        }
    }

    /// Whether several transactions may be under way on a connection.
    pub fn overlaps(&self) -> bool {
        self.pipelining && self.chunking
    }

    /// A connection comes. `Err`: what the banner says instead of 220.
    pub fn join(&mut self) -> Result<(), &'static str> {
        let max = match self.mood {
            Mood::TakesConnections(max) | Mood::TakesPerMinute(_, max) => max,
            _ => u32::MAX,
        };
        if self.connections >= max {
            self.refused += 1;
            return Err("421 4.7.0 too many connections from your address");
        }
        self.connections += 1;
        self.connections_peak = self.connections_peak.max(self.connections);
        Ok(())
    }

    pub fn leave(&mut self) {
        self.connections = self.connections.saturating_sub(1);
    }

    /// The answer to the `done`-th transaction of a connection, as it is when the server has worked on it.
    pub fn answer(&mut self, ids: &[AddressId], done: u32, now: Ms, rng: &mut fastrand::Rng) -> Answer {
        let all = |stage, code, dsn, text: &str| {
            let text: Arc<str> = text.into();
            let one =
                |id: &AddressId| RcptOutcome { id: *id, stage, code, dsn: Enhanced::parse(dsn), text: text.clone() };
            ids.iter().map(one).collect()
        };
        match self.mood {
            Mood::LeavesAfter(max) if done > max => {
                self.refused += 1;
                return Answer { outcomes: all(Stage::Mail, 421, "4.7.0", "enough for one session"), leaves: true };
            }
            Mood::Drops(percent) if rng.u32(0..100) < percent => {
                self.refused += 1;
                return Answer { outcomes: all(Stage::Mail, 421, "4.3.2", "busy"), leaves: true };
            }
            Mood::TakesPerMinute(max, _) => {
                while self.taken.front().is_some_and(|at| *at + MINUTE_MS <= now) {
                    self.taken.pop_front();
                }
                if self.taken.len() >= max as usize {
                    self.refused += 1;
                    let text = "rate limited, try again later";
                    return Answer { outcomes: all(Stage::Mail, 450, "4.7.1", text), leaves: false };
                }
                self.taken.push_back(now);
            }
            _ => {}
        }
        self.messages += 1;
        let ok: Arc<str> = "ok".into();
        let outcomes = ids.iter().enumerate().map(|(i, id)| self.recipient(i as u32, *id, &ok, now)).collect();
        Answer { outcomes, leaves: false }
    }

    fn recipient(&mut self, i: u32, id: AddressId, ok: &Arc<str>, now: Ms) -> RcptOutcome {
        let at = |stage, code, dsn, text: &str| RcptOutcome {
            id,
            stage,
            code,
            dsn: Enhanced::parse(dsn),
            text: text.into(),
        };
        let refusal = |code, dsn, text: &str| at(Stage::Rcpt, code, dsn, text);
        let mut lasts = |ms| now < *self.first_seen.entry(id).or_insert(now) + ms;
        match self.mood {
            Mood::TakesRecipients(max) if i >= max => refusal(452, "4.5.3", "too many recipients"),
            Mood::Greylists(ms) if lasts(ms) => refusal(451, "4.7.1", "greylisted"),
            Mood::Full(ms) if lasts(ms) => refusal(452, "4.2.2", "mailbox full"),
            Mood::Busy(ms) if lasts(ms) => at(Stage::Final, 451, "4.3.2", "busy"),
            Mood::Unknown => refusal(550, "5.1.1", "no such user"),
            _ => RcptOutcome { id, stage: Stage::Final, code: 250, dsn: None, text: ok.clone() },
        }
    }
}
