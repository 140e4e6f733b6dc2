//! The load source for tests and benchmarks: [`crate::load`] with few options, awaited.
//!
//! Promise: each message has its own Message-ID ([`Source::message_id`]) unless it is given whole; messages reported as
//! accepted got a 2xx after the end of data. A failed connection is reopened for the next message; a failed message is
//! counted, not repeated.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stentor_measure::{Histogram, Stop};

use crate::error::LoadError;
use crate::load::{self, Content, Count, People, Pipelining, Plan, Sizes, Step, Tally, Tls};

/// What to send where.
#[derive(Debug, Clone)]
pub struct Source {
    pub target: SocketAddr,
    pub connections: u32,
    /// In all, over all connections.
    pub messages: u64,
    /// After this no message is begun any more.
    pub duration_max: Option<Duration>,
    /// Octets of a message, header included; what is shorter than the header is made as long as it.
    pub size_bytes: usize,
    /// One connection for many messages, or a session each.
    pub keep_open: bool,
    /// MAIL, RCPT and DATA in one write, where the server offers it.
    pub pipelining: bool,
    pub tls: Tls,
    pub sender: String,
    /// Used in turn.
    pub recipients: Vec<String>,
    pub recipients_per_message: usize,
    /// This message, as it goes over the wire (CRLF lines, not dot-stuffed), in place of a made one.
    pub message: Option<Arc<[u8]>>,
    /// Part of the Message-IDs, so that runs can be told apart.
    pub run: String,
    /// Timeout for any single reply.
    pub timeout: Duration,
}

impl Source {
    /// Ten connections, 1,000 messages of 4 KiB to one recipient, sessions kept open.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            connections: 10,
            messages: 1000,
            duration_max: None,
            size_bytes: 4096,
            keep_open: true,
            pipelining: true,
            tls: Tls::Off,
            sender: "source@source.lab".to_owned(),
            recipients: vec!["sink@sink.lab".to_owned()],
            recipients_per_message: 1,
            message: None,
            run: "run".to_owned(),
            timeout: Duration::from_mins(5),
        }
    }

    /// The Message-ID (without brackets) of the n-th message, from 0.
    pub fn message_id(&self, n: u64) -> String {
        format!("{}.{n}@source.lab", self.run)
    }

    /// The n-th message as it is sent, not dot-stuffed.
    pub fn message(&self, n: u64) -> Vec<u8> {
        self.content().message(0, n)
    }

    fn content(&self) -> Content {
        match &self.message {
            Some(message) => Content::whole(vec![message.to_vec()]),
            None => Content::made(Sizes::Fixed(self.size_bytes), &self.sender, &self.run),
        }
    }

    fn plan(self) -> Plan {
        let mut plan = Plan::new(vec![self.target]);
        plan.content = self.content();
        plan.connections = self.connections.max(1) as usize;
        plan.messages = self.messages;
        plan.duration = self.duration_max;
        plan.messages_per_session = if self.keep_open { None } else { Some(1) };
        plan.pipelining = if self.pipelining { Pipelining::Offered } else { Pipelining::Off };
        plan.tls = self.tls;
        plan.people = People::List(self.recipients);
        plan.recipients_per_message = Count::exactly(self.recipients_per_message as u32);
        plan.sender = self.sender;
        plan.timeout = self.timeout;
        plan
    }

    /// Runs to the end, on a thread of its own. Errors only if there is nothing to send; what the server does wrong is
    /// in the report.
    pub async fn run(self) -> Result<SourceReport, LoadError> {
        if self.messages == 0 {
            return Ok(SourceReport::default());
        }
        let plan = self.plan();
        let sent = tokio::task::spawn_blocking(move || load::run(&plan, &Stop::never(), |_, _| ()));
        let tally = sent.await.map_err(std::io::Error::other)??;
        Ok(SourceReport::of(&tally))
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SourceReport {
    /// Messages answered 250 after their data.
    pub accepted: u64,
    /// Recipients of those messages answered 250.
    pub recipients: u64,
    /// Failed messages and refused recipients by what was said: "451 DATA", "550 RCPT", "connect: ...".
    pub errors: BTreeMap<String, u64>,
    pub seconds: f64,
    pub accepted_per_s: f64,
    /// From the final dot to its reply, nanoseconds.
    #[serde(skip)]
    pub final_ns: Histogram,
    /// From MAIL to the final reply, nanoseconds; the session's opening and closing not included.
    #[serde(skip)]
    pub transaction_ns: Histogram,
}

impl SourceReport {
    fn of(tally: &Tally) -> SourceReport {
        let name = |failure: &load::Failure| match &failure.what {
            load::FailureKind::Code(code) => format!("{code} {}", failure.step.name()),
            load::FailureKind::Connection(what) => format!("{}: {what}", failure.step.name()),
        };
        SourceReport {
            accepted: tally.accepted,
            recipients: tally.recipients,
            errors: tally.errors.iter().map(|(failure, failed)| (name(failure), failed.count)).collect(),
            seconds: tally.elapsed_s,
            accepted_per_s: tally.rates().0,
            final_ns: tally.steps[Step::Final as usize].clone(),
            transaction_ns: tally.transaction.clone(),
        }
    }
}
