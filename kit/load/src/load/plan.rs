//! What to send, and where.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::arrivals::Arrivals;
use super::content::{Content, Sizes};
use super::people::{Count, People};
use super::wire::Tls;

/// How many commands go out before a reply is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Pipelining {
    /// One: each command waits for its reply.
    Off,
    /// MAIL, RCPT and DATA together, where the server offers PIPELINING (RFC 2920).
    Offered,
    /// And the next message's behind the end of this one's data.
    Ahead,
}

/// All that determines a load. Made by [`Plan::new`] and changed field by field; [`super::run`] checks it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sessions go to each in turn.
    pub targets: Vec<SocketAddr>,
    /// Connections come from these in turn; none: the system chooses.
    pub binds: Vec<IpAddr>,
    /// At a time.
    pub connections: usize,
    pub threads: usize,
    /// In all.
    pub messages: u64,
    /// After this no message is begun any more (but see `drain`).
    pub duration: Option<Duration>,
    /// With a rate: so long after the end of the schedule messages that are late are still begun.
    pub drain: Duration,
    /// Then the session ends with QUIT. 1: a session each. None: as long as there is work.
    pub messages_per_session: Option<u64>,
    pub pipelining: Pipelining,
    pub tls: Tls,
    /// Sessions are resumed by tickets of earlier ones; else each has a full handshake.
    pub tls_resumes: bool,
    /// No message at all: QUIT follows EHLO's reply, which counts as accepted. With a session each.
    pub greets_only: bool,
    /// BDAT where the server offers CHUNKING (RFC 3030), else DATA.
    pub chunking: bool,
    /// Send RSET before each further message of a session.
    pub rset: bool,
    pub content: Content,
    pub people: People,
    pub recipients_per_message: Count,
    pub arrivals: Arrivals,
    /// What happens in this time from the start is not counted.
    pub warm_up: Duration,
    pub sender: String,
    pub seed: u64,
    /// Timeout for any single reply.
    pub timeout: Duration,
}

/// More sessions at a time have no ports from one address to one target.
const CONNECTIONS_MAX: usize = 1_000_000;
const THREADS_MAX: usize = 256;

impl Plan {
    /// Ten connections, 1,000 messages of 4 KiB to one recipient, sessions kept open.
    pub fn new(targets: Vec<SocketAddr>) -> Plan {
        let sender = "source@source.lab".to_owned();
        Plan {
            targets,
            binds: Vec::new(),
            connections: 10,
            threads: 1,
            messages: 1000,
            duration: None,
            drain: Duration::from_secs(10),
            messages_per_session: None,
            pipelining: Pipelining::Offered,
            tls: Tls::Off,
            tls_resumes: false,
            greets_only: false,
            chunking: false,
            rset: false,
            content: Content::made(Sizes::Fixed(4096), &sender, "run"),
            people: People::List(vec!["sink@sink.lab".to_owned()]),
            recipients_per_message: Count::exactly(1),
            arrivals: Arrivals::WhenFree,
            warm_up: Duration::ZERO,
            sender,
            seed: 1,
            timeout: Duration::from_mins(5),
        }
    }

    /// What is wrong with it, with the remedy.
    pub fn check(&self) -> Result<(), String> {
        if self.targets.is_empty() {
            return Err("no target; give one as HOST:PORT".to_owned());
        }
        if self.connections == 0 || self.connections > CONNECTIONS_MAX {
            return Err(format!("{} connections: choose 1 to {CONNECTIONS_MAX}", self.connections));
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return Err(format!("{} threads: choose 1 to {THREADS_MAX}", self.threads));
        }
        if self.messages_per_session == Some(0) {
            return Err("0 messages per session: choose 1 or more".to_owned());
        }
        if self.greets_only && self.messages_per_session != Some(1) {
            return Err("sessions without a message need one session each".to_owned());
        }
        if self.rset && self.pipelining == Pipelining::Ahead {
            return Err("RSET between messages cannot be combined with pipelining ahead".to_owned());
        }
        if self.messages == u64::MAX && self.duration.is_none() {
            return Err("give a number of messages or a time".to_owned());
        }
        let people = self.people.len();
        if people == 0 {
            return Err("the source has no recipients".to_owned());
        }
        if !matches!(self.people, People::List(_)) && u64::from(self.recipients_per_message.max) > people {
            let count = self.recipients_per_message.max;
            return Err(format!("{count} recipients per message of {people} in all; choose fewer"));
        }
        let is_bad = |text: &str| text.bytes().any(|byte| byte < b' ' || byte == b'>' || byte == b'<' || byte == 127);
        if is_bad(&self.sender) || self.people.any(is_bad) {
            return Err("an address contains angle brackets or control characters; give it bare".to_owned());
        }
        if self.duration.is_some_and(|duration| duration <= self.warm_up) && self.warm_up > Duration::ZERO {
            return Err("the warm-up must be shorter than the run".to_owned());
        }
        for target in &self.targets {
            if self.binds.iter().any(|bind| bind.is_ipv4() != target.is_ipv4()) {
                return Err(format!("{target} cannot be reached from an address of the other family"));
            }
        }
        self.content.check()?;
        self.arrivals.check()
    }
}
