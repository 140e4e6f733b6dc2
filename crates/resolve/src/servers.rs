//! The configured name servers as one: asks them in turn until one gives a final answer ([`super::worth`]).
//!
//! Promise: a server that refuses, fails, is lame, silent or away costs a question at most [`HEDGE_MS`], and nothing once it is known: it is
//! asked last for [`LAST_S`]. A reply that is not final asks the next server at once; silence asks it after the hedge, while the first is
//! still listened to. If nobody answers, the best of the other replies is the answer, and failing that the last error. All of it ends after
//! the time for one question times its rounds.
//!
//! EDNS: a server that answers it with an error is asked again without (RFC 6891 7), and so, from the second round on, is one that is silent
//! and has not answered with EDNS lately. Of a slow server both replies come at about the same time, and the one with EDNS is taken. An answer
//! to a question without EDNS is never authentic (RFC 4035 3.2.1: the server was not asked for that).
//!
//! Silence is more often a lost datagram than a server that drops EDNS, and an error may be about one name. So neither is held against a
//! server beyond its question: only one that has not answered with EDNS lately and refuses it in so many words is asked without at once, for
//! [`PLAIN_ONCE_S`] after one question and for [`EDNS_S`] after another. Where answers are believed, one that came without EDNS after
//! silence is taken only if the server is silent to EDNS once more, and is not kept in the cache.
//!
//! Where answers are believed ([`super::connection`]), a server that validates and fails is not overruled by one that does not: a zone whose
//! signatures are wrong would otherwise become one without any (RFC 7672 2.1.1).

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

/// Servers named in an error.
const SERVERS_NAMED_MAX: usize = 3;
/// The next server is asked after this silence, or half the time for one question if that is less.
const HEDGE_MS: u64 = 1_000;
/// How long a useless server is asked last.
const LAST_S: u64 = 60;
/// Questions in a row that a server did not answer and another did, after which it is useless.
const MISSES_MAX: u32 = 2;
/// How long it is remembered whether a server takes EDNS.
const EDNS_S: u64 = 600;
/// The same of a server that has answered with EDNS and is believed: without it no answer is authentic.
const EDNS_BELIEVED_S: u64 = 86_400;
/// How long it is remembered that a server has refused EDNS once.
const PLAIN_ONCE_S: u64 = 60;
/// How long the reply with EDNS may come after the one without.
const EDNS_GRACE_MS: u64 = 200;
/// Octets of an answer over UDP; longer ones are asked for over TCP (RFC 9715).
const UDP_BYTES_MAX: u16 = 1232;
/// Questions on their way at a time.
const QUERIES_MAX: usize = 4096;

/// How to ask.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// One question to one server.
    pub timeout: Duration,
    /// Repeats of a question that got no answer.
    pub retries: usize,
    /// AD and DO are set: what the servers say of an answer's truth is believed.
    pub asks_for_truth: bool,
}

impl Asking {
    fn hedge(&self) -> Duration {
        Duration::from_millis(HEDGE_MS).min(self.timeout / 2)
    }
}

/// Shared by all questions.
pub struct Servers {
    asking: Asking,
    all: Vec<Arc<Server>>,
    open: Semaphore,
    /// Replies over the network, whatever they say.
    replies: AtomicU64,
}

struct Server {
    address: SocketAddr,
    known: Mutex<Known>,
}

/// What is known of a server.
#[derive(Default)]
struct Known {
    misses: u32,
    /// Why no reply came, if none has come since.
    failure: Option<String>,
    last_until: Option<Instant>,
    plain_until: Option<Instant>,
    /// The last question to which it refused EDNS, if it has not answered with EDNS since.
    refused: Option<Query>,
    /// It has answered with EDNS.
    edns_until: Option<Instant>,
    /// It has said of an answer that it is authentic.
    validates: bool,
}

/// One server's part in a question.
#[derive(Clone, Copy)]
struct Attempt {
    server: usize,
    has_edns: bool,
}

/// An answer to a question without EDNS, and until when the one with EDNS may still come.
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
        // What a server says of itself says more than its silence.
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

    /// Replaces hickory's "no connections" by an error that names our servers: hickory sees them as one.
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

    /// Replies that have come over the network, of any server and whatever they say.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Asks one question.
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

    /// The servers in the order in which they are asked: as configured, the useless ones last.
    fn order(&self, now: Instant) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|at| self.all[*at].known.lock().last_until.is_some_and(|until| until > now));
        order
    }

    /// The query as it goes to a server; each has an id of its own.
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

/// A query without EDNS, with an id of its own.
pub fn query(question: &Query) -> Message {
    let mut query = Message::query();
    query.add_query(question.clone());
    query.metadata.recursion_desired = true;
    query
}

/// One question while it is asked.
struct Inquiry<'s> {
    servers: &'s Servers,
    question: &'s Query,
    until: Instant,
    order: Vec<usize>,
    /// Attempts begun, those repeated without EDNS not counted.
    begun: usize,
    /// Servers whose reply has come, whatever it was.
    replied: Vec<usize>,
    /// Servers that have not replied yet to the question with EDNS, and those that have refused EDNS in so many words.
    silent: Vec<usize>,
    refused_edns: Vec<usize>,
    /// The answer of a server that was silent when asked with EDNS.
    plain: Option<Plain>,
    running: JoinSet<Outcome>,
    /// When the next server is asked, if nothing comes.
    hedge: Instant,
    best: Option<(Worth, DnsResponse)>,
    error: Option<NetError>,
    /// A server that validates has failed: only another such may answer.
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

    /// Rounds over all servers: one more than repeats, and two where EDNS may be what keeps a server silent.
    fn rounds(&self) -> usize {
        self.servers.asking.retries.saturating_add(1).max(2)
    }

    fn has_more(&self) -> bool {
        self.begun < self.order.len().saturating_mul(self.rounds())
    }

    /// Asks the next server that has not replied; false if there is none.
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

    /// Takes what came of an attempt; `Some`: the final answer.
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
            // What others have said is no last resort either.
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

    /// Keeps an answer without EDNS, in case that none with it comes.
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
            // It is there: the datagram may have been lost.
            self.begin(Attempt { server, has_edns: true });
        }
        self.plain = Some(Plain { server, reply, until: now + grace });
    }

    /// Learns from a reply how its server takes EDNS, and whether it validates; takes off what was not asked for.
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

    /// A server has answered: counts that for it, and against those that were asked before and did not.
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

    /// Nobody has answered a question with EDNS.
    fn last_resort(mut self) -> Result<DnsResponse, NetError> {
        if let Some(Plain { server, reply, .. }) = self.plain.take().filter(|_| !self.needs_validation) {
            self.note(server, Instant::now());
            return Ok(reply);
        }
        // Those whose time is over with the question's.
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
