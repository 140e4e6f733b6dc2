//! Combines the configured name servers: queries them in turn until one gives a final answer ([`super::worth`]).
//!
//! Promise: a server that refuses, fails, or is lame, silent or unreachable delays a query by at most [`HEDGE_MS`],
//! and not at all once it is known: it is queried last for [`LAST_S`]. After a reply that is not final, the next
//! server is queried immediately; after silence, when the hedge time is over, while a reply of the first is still
//! accepted. Without a final answer, the best of the other replies is returned, or else the last error. The total
//! time is at most the timeout of one query times the number of rounds.
//!
//! EDNS: a server that answers it with an error is queried again without it (RFC 6891 7); so is, from the second
//! round on, a silent server that has not answered with EDNS lately. If both replies of a slow server arrive
//! together, the one with EDNS is used. An answer to a query without EDNS is never authentic (RFC 4035 3.2.1: that
//! was not requested).
//!
//! Silence is more often a lost datagram than a server that drops EDNS, and an error may concern a single name. So
//! neither affects later queries to the server. Only a server that has not answered with EDNS lately and explicitly
//! refuses it is queried without it immediately, for [`PLAIN_ONCE_S`] after one such query and for [`EDNS_S`] after a
//! second. Where answers are trusted, one without EDNS after silence is used only if the server is silent to EDNS
//! once more, and it is not cached.
//!
//! Where answers are trusted ([`super::connection`]), the failure of a validating server is not overruled by one that
//! does not validate: a zone with wrong signatures would otherwise become one without any (RFC 7672 2.1.1).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Edns, Message, Query, ResponseCode};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::transport::exchange;
use super::worth::{Worth, is_bogus, is_refusal_of_edns, worth};

/// Maximum servers named in an error.
const SERVERS_NAMED_MAX: usize = 3;
/// Silence after which the next server is queried, or half the timeout of a query if that is less.
const HEDGE_MS: u64 = 1_000;
/// How long a useless server is queried last.
const LAST_S: u64 = 60;
/// Consecutive queries that a server did not answer, but another did, after which it is useless.
const MISSES_MAX: u32 = 2;
/// How long a server's support of EDNS is remembered.
const EDNS_S: u64 = 600;
/// How long it is remembered for a trusted server that has answered with EDNS: without EDNS no answer is authentic.
const EDNS_BELIEVED_S: u64 = 86_400;
/// How long a single refusal of EDNS is remembered.
const PLAIN_ONCE_S: u64 = 60;
/// How much later than the reply without EDNS the one with EDNS may arrive.
const EDNS_GRACE_MS: u64 = 200;
/// Maximum size of an answer over UDP; longer ones are requested over TCP (RFC 9715).
const UDP_BYTES_MAX: u16 = 1232;
/// Maximum queries in progress.
const QUERIES_MAX: usize = 4096;

/// Settings of queries.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// Timeout of one query to one server.
    pub timeout: Duration,
    /// Repeats of a query without an answer.
    pub retries: usize,
    /// Whether AD and DO are set, and authentication by the servers is trusted.
    pub asks_for_truth: bool,
}

impl Asking {
    fn hedge(&self) -> Duration {
        Duration::from_millis(HEDGE_MS).min(self.timeout / 2)
    }
}

/// State shared by all queries.
pub struct Servers {
    asking: Asking,
    all: Vec<Arc<Server>>,
    open: Semaphore,
    /// Replies over the network, of any kind.
    replies: AtomicU64,
}

struct Server {
    address: SocketAddr,
    known: Mutex<Known>,
}

/// Knowledge about a server.
#[derive(Default)]
struct Known {
    misses: u32,
    /// Why there was no reply, if none has arrived since.
    failure: Option<String>,
    last_until: Option<Instant>,
    plain_until: Option<Instant>,
    /// The last query for which it refused EDNS, if it has not answered with EDNS since.
    refused: Option<Query>,
    /// Until when it counts as having answered with EDNS.
    edns_until: Option<Instant>,
    /// Whether it has authenticated an answer.
    validates: bool,
}

/// A query to one server.
#[derive(Clone, Copy)]
struct Attempt {
    server: usize,
    has_edns: bool,
}

/// An answer to a query without EDNS, and until when the one with EDNS may arrive.
struct Plain {
    server: usize,
    reply: DnsResponse,
    until: Instant,
}

struct Outcome {
    attempt: Attempt,
    result: Result<DnsResponse, NetError>,
}

impl Known {
    fn takes_edns(&self, now: Instant) -> bool {
        self.plain_until.is_none_or(|until| until <= now)
    }

    fn has_proven_edns(&self, now: Instant) -> bool {
        self.edns_until.is_some_and(|until| until > now)
    }
}

impl Server {
    fn note_failure(&self, error: &NetError) {
        let address = self.address;
        let words = match error {
            NetError::Timeout => format!("name server {address} does not answer"),
            NetError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("connection refused by name server {address}")
            }
            other => format!("name server {address}: {other}"),
        };
        let failure = &mut self.known.lock().failure;
        // A server's own reply is more informative than its silence.
        if failure.is_none() || !matches!(error, NetError::Timeout) {
            *failure = Some(words);
        }
    }
}

impl Servers {
    pub fn new(addresses: &[SocketAddr], asking: Asking) -> Servers {
        let server = |address: &SocketAddr| Arc::new(Server { address: *address, known: Mutex::default() });
        Servers {
            asking,
            all: addresses.iter().map(server).collect(),
            open: Semaphore::new(QUERIES_MAX),
            replies: AtomicU64::new(0),
        }
    }

    /// Replaces hickory's "no connections" by an error that names our servers, which hickory sees as one.
    pub fn in_words(&self, error: NetError) -> NetError {
        match error {
            NetError::Timeout | NetError::NoConnections | NetError::Io(_) => {
                self.failures().map_or(error, NetError::Msg)
            }
            error => error,
        }
    }

    /// Why no server replies. `None`: one does, or there is none.
    fn failures(&self) -> Option<String> {
        let failures = self.all.iter().map(|server| server.known.lock().failure.clone());
        let failures = failures.collect::<Option<Vec<String>>>().filter(|failures| !failures.is_empty())?;
        let more = failures.len().saturating_sub(SERVERS_NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        Some(failures[..failures.len().min(SERVERS_NAMED_MAX)].join("; ") + &more)
    }

    /// Number of replies over the network, from any server and of any kind.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Makes one query.
    pub async fn ask(&self, question: &Query) -> Result<DnsResponse, NetError> {
        if self.all.is_empty() {
            return Err(NetError::NoConnections);
        }
        let rounds = u32::try_from(self.asking.retries).unwrap_or(u32::MAX).saturating_add(1);
        let until = Instant::now() + self.asking.timeout.saturating_mul(rounds);
        let Ok(Ok(_permit)) = timeout_at(until, self.open.acquire()).await else { return Err(NetError::Busy) };
        let mut inquiry = Inquiry::new(self, question, until);
        loop {
            let has_more = inquiry.has_more();
            let hedge = inquiry.hedge.min(until);
            let grace = inquiry.plain.as_ref().map_or(until, |plain| plain.until.min(until));
            tokio::select! {
                Some(Ok(outcome)) = inquiry.running.join_next() => {
                    if let Some(reply) = inquiry.take(outcome) {
                        return Ok(reply);
                    }
                    if inquiry.running.is_empty() && (inquiry.plain.is_some() || !inquiry.begin_next()) {
                        return inquiry.last_resort();
                    }
                }
                () = sleep_until(hedge), if has_more && hedge < grace => drop(inquiry.begin_next()),
                () = sleep_until(grace) => return inquiry.last_resort(),
            }
        }
    }

    #[cfg(test)]
    pub fn has_validated(&self, server: usize) {
        self.all[server].known.lock().validates = true;
    }

    /// The servers in query order: as configured, the useless ones last.
    fn order(&self, now: Instant) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|at| self.all[*at].known.lock().last_until.is_some_and(|until| until > now));
        order
    }

    /// The query for a server; each has its own ID.
    fn query(&self, question: &Query, has_edns: bool) -> Message {
        let mut query = query(question);
        query.metadata.authentic_data = self.asking.asks_for_truth && has_edns;
        if has_edns {
            let edns = query.edns.get_or_insert_with(Edns::new);
            edns.set_max_payload(UDP_BYTES_MAX).set_dnssec_ok(self.asking.asks_for_truth);
        }
        query
    }
}

/// A query without EDNS, with its own ID.
pub fn query(question: &Query) -> Message {
    let mut query = Message::query();
    query.add_query(question.clone());
    query.metadata.recursion_desired = true;
    query
}

/// One query in progress.
struct Inquiry<'s> {
    servers: &'s Servers,
    question: &'s Query,
    until: Instant,
    order: Vec<usize>,
    /// Attempts started, not counting repeats without EDNS.
    begun: usize,
    /// Servers that have replied in any way.
    replied: Vec<usize>,
    /// Servers that have not replied to the query with EDNS yet, and those that explicitly refused EDNS.
    silent: Vec<usize>,
    refused_edns: Vec<usize>,
    /// The answer of a server that was silent to EDNS.
    plain: Option<Plain>,
    running: JoinSet<Outcome>,
    /// When the next server is queried, if nothing arrives.
    hedge: Instant,
    best: Option<(Worth, DnsResponse)>,
    error: Option<NetError>,
    /// Whether a validating server has failed, so that only another such server may answer.
    needs_validation: bool,
}

impl<'s> Inquiry<'s> {
    fn new(servers: &'s Servers, question: &'s Query, until: Instant) -> Inquiry<'s> {
        let now = Instant::now();
        let mut inquiry = Inquiry {
            servers,
            question,
            until,
            order: servers.order(now),
            begun: 0,
            replied: Vec::new(),
            silent: Vec::new(),
            refused_edns: Vec::new(),
            plain: None,
            running: JoinSet::new(),
            hedge: now,
            best: None,
            error: None,
            needs_validation: false,
        };
        inquiry.begin_next();
        inquiry
    }

    /// Number of rounds over all servers: one more than repeats, and at least two if EDNS may cause the silence.
    fn rounds(&self) -> usize {
        self.servers.asking.retries.saturating_add(1).max(2)
    }

    fn has_more(&self) -> bool {
        self.begun < self.order.len().saturating_mul(self.rounds())
    }

    /// Queries the next server that has not replied; returns false if there is none.
    fn begin_next(&mut self) -> bool {
        let now = Instant::now();
        while self.has_more() {
            let (round, server) = (self.begun / self.order.len(), self.order[self.begun % self.order.len()]);
            self.begun += 1;
            if self.replied.contains(&server) {
                continue;
            }
            let has_edns = {
                let known = self.servers.all[server].known.lock();
                known.takes_edns(now) && (round == 0 || round % 2 == 0 || known.has_proven_edns(now))
            };
            self.begin(Attempt { server, has_edns });
            return true;
        }
        false
    }

    fn begin(&mut self, attempt: Attempt) {
        let asking = &self.servers.asking;
        let now = Instant::now();
        self.hedge = now + asking.hedge();
        let until = self.until.min(now + asking.timeout);
        if attempt.has_edns {
            self.silent.push(attempt.server);
        }
        let (address, query) =
            (self.servers.all[attempt.server].address, self.servers.query(self.question, attempt.has_edns));
        self.running.spawn(async move {
            let result = timeout_at(until, exchange(address, &query)).await.unwrap_or(Err(NetError::Timeout));
            Outcome { attempt, result }
        });
    }

    /// Handles the result of an attempt; `Some`: the final answer.
    fn take(&mut self, Outcome { attempt, result }: Outcome) -> Option<DnsResponse> {
        let mut reply = match result {
            Ok(reply) => {
                self.servers.replies.fetch_add(1, Ordering::Relaxed);
                self.servers.all[attempt.server].known.lock().failure = None;
                reply
            }
            Err(error) => {
                self.servers.all[attempt.server].note_failure(&error);
                self.error = Some(error);
                if self.plain.is_none() {
                    self.begin_next();
                }
                return None;
            }
        };
        if self.replied.contains(&attempt.server) {
            return None;
        }
        let now = Instant::now();
        let is_worth = worth(&reply, self.question, attempt.has_edns);
        if is_worth == Worth::NoEdns {
            self.silent.retain(|other| *other != attempt.server);
            if is_refusal_of_edns(&reply) {
                self.refused_edns.push(attempt.server);
            }
            self.best.get_or_insert((Worth::Refusal, reply));
            self.begin(Attempt { has_edns: false, ..attempt });
            return None;
        }
        if !attempt.has_edns && is_worth == Worth::Final && self.silent.contains(&attempt.server) {
            if self.plain.is_none() {
                self.keep_plain(attempt.server, reply, now);
            }
            return None;
        }
        self.replied.push(attempt.server);
        let validates = self.learn(attempt, &mut reply, (is_worth, now));
        let fails = reply.metadata.response_code == ResponseCode::ServFail && (validates || is_bogus(&reply));
        if fails && self.servers.asking.asks_for_truth {
            // The other servers' replies must not be used either.
            (self.needs_validation, self.best, self.plain) = (true, None, None);
        }
        let is_believed = fails || validates || !self.needs_validation;
        if is_worth == Worth::Final && is_believed {
            self.note(attempt.server, now);
            return Some(reply);
        }
        if is_believed && self.best.as_ref().is_none_or(|(best, _)| *best < is_worth) {
            self.best = Some((is_worth, reply));
        }
        self.begin_next();
        None
    }

    /// Keeps an answer without EDNS, in case none with it arrives.
    fn keep_plain(&mut self, server: usize, mut reply: DnsResponse, now: Instant) {
        reply.metadata.authentic_data = false;
        let asking = &self.servers.asking;
        let asks_for_truth = asking.asks_for_truth;
        let grace = if asks_for_truth { asking.hedge() } else { Duration::from_millis(EDNS_GRACE_MS) };
        if asks_for_truth {
            let Message { answers, authorities, additionals, .. } = &mut *reply;
            for record in answers.iter_mut().chain(authorities).chain(additionals) {
                record.ttl = 0;
            }
            // The server is up: the datagram may have been lost.
            self.begin(Attempt { server, has_edns: true });
        }
        self.plain = Some(Plain { server, reply, until: now + grace });
    }

    /// Learns from a reply whether its server supports EDNS and validates; removes data that was not requested.
    fn learn(&self, attempt: Attempt, reply: &mut DnsResponse, (is_worth, now): (Worth, Instant)) -> bool {
        let asks_for_truth = self.servers.asking.asks_for_truth;
        let mut known = self.servers.all[attempt.server].known.lock();
        if attempt.has_edns && reply.edns.is_some() {
            let proven = Duration::from_secs(if asks_for_truth { EDNS_BELIEVED_S } else { EDNS_S });
            (known.edns_until, known.plain_until, known.refused) = (Some(now + proven), None, None);
        } else if is_worth >= Worth::Unproven
            && self.refused_edns.contains(&attempt.server)
            && !known.has_proven_edns(now)
        {
            let is_first = known.refused.as_ref().is_none_or(|other| other == self.question);
            known.plain_until = Some(now + Duration::from_secs(if is_first { PLAIN_ONCE_S } else { EDNS_S }));
            known.refused = Some(self.question.clone());
        }
        if !attempt.has_edns || !asks_for_truth {
            reply.metadata.authentic_data = false;
        }
        known.validates |= reply.metadata.authentic_data;
        known.validates
    }

    /// Records that a server answered, and that those queried earlier did not.
    fn note(&self, answered: usize, now: Instant) {
        let earlier = self.order.iter().take(self.begun.min(self.order.len()));
        for at in earlier {
            let server = &self.servers.all[*at];
            let mut known = server.known.lock();
            if *at == answered {
                known.misses = 0;
                if known.last_until.take().is_some() {
                    tracing::info!(server = %server.address, "name server answers again");
                }
                continue;
            }
            known.misses = known.misses.saturating_add(1);
            if known.misses < MISSES_MAX {
                continue;
            }
            if known.last_until.is_none() {
                let what = if self.replied.contains(at) { "answers with an error" } else { "does not answer" };
                tracing::warn!(
                    server = %server.address,
                    "name server {what} while another answers; asking it last for {LAST_S} s: check [dns] servers"
                );
            }
            known.last_until = Some(now + Duration::from_secs(LAST_S));
        }
    }

    /// The result if no query with EDNS was answered.
    fn last_resort(mut self) -> Result<DnsResponse, NetError> {
        if let Some(Plain { server, reply, .. }) = self.plain.take().filter(|_| !self.needs_validation) {
            self.note(server, Instant::now());
            return Ok(reply);
        }
        // Servers whose time ends with the query's.
        for server in self.order.iter().filter(|server| !self.replied.contains(server)) {
            self.servers.all[*server].note_failure(&NetError::Timeout);
        }
        match (self.best, self.error) {
            (Some((_, reply)), _) => Ok(reply),
            (None, Some(error)) => Err(error),
            (None, None) if self.order.is_empty() => Err(NetError::NoConnections),
            (None, None) => Err(NetError::Timeout),
        }
    }
}
