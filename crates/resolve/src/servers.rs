//! What is known of the configured name servers: who is useless, who takes EDNS, who validates. Questions are asked in
//! [`super::inquiry`].
//!
//! Promise: **a server is judged by what no stranger chooses.** One that leaves [`MISSES_MAX`] questions in a row to
//! others is asked a neutral one, for the root's name servers; only if that fails too is it useless, and asked last for
//! [`LAST_S`]. Whoever sends mail to domains whose servers are slow or broken demotes nobody by it. A server that knows
//! the root and nothing else is useless once it has missed names in [`ZONES_MAX`] unrelated places in a row.
//!
//! Where answers are believed ([`super::connection`]) and there are several servers, it matters which of them validate.
//! Each is asked for the root's name servers when the first question comes, since the root is signed: AD in the answer
//! shows that it does, an answer without AD or without EDNS that it does not. This is asked again every [`KNOWN_S`],
//! and every [`UNKNOWN_S`] of one that gave no such answer. Servers that validate are asked before all others, useless
//! or not: no demotion puts one behind a server that cannot tell what is authentic.
//!
//! One that validates is **awaited** as long as its last answer is at most [`KNOWN_S`] old: until then another server's
//! word that there are no records is no reason to send mail elsewhere or to bounce it ([`super::truth`]).
//!
//! A server of which nothing is known may validate. It counts as one that does where the configuration asks for DANE in
//! so many words ([`Asking::unknown_may_validate`]), and else only until it has been asked: an address at which nobody
//! answers stops no mail there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Edns, Message, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::rating::{ReplyRating, rating};
use super::transport::exchange;

/// Maximum servers named in an error.
const SERVERS_NAMED_MAX: usize = 3;
/// Silence after which the next server is queried, or half the timeout of a query if that is less.
const HEDGE_MS: u64 = 1_000;
/// How long a useless server is queried last.
const LAST_S: u64 = 60;
/// Questions in a row that a server did not answer and another did, after which it is asked the neutral one.
const MISSES_MAX: u32 = 2;
/// Unrelated places in the tree of names of such questions, after which the neutral one saves it no more.
const ZONES_MAX: usize = 8;
/// How long the answer to the neutral question may take, unless the time for one question is less.
const CHECK_MS: u64 = 3_000;
/// How long it is taken for granted whether a server validates.
const KNOWN_S: u64 = 600;
/// The same where that could not be found out.
const UNKNOWN_S: u64 = 10;
/// Octets of an answer over UDP; longer ones are asked for over TCP (RFC 9715).
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
    /// A server that has not shown whether it validates counts as one that does.
    pub unknown_may_validate: bool,
}

impl Asking {
    pub fn hedge(&self) -> Duration {
        Duration::from_millis(HEDGE_MS).min(self.timeout / 2)
    }

    /// The query as it goes to a server; each has an id of its own.
    pub fn query(&self, question: &Query, has_edns: bool) -> Message {
        let mut query = query(question);
        query.metadata.authentic_data = self.asks_for_truth && has_edns;
        if has_edns {
            let edns = query.edns.get_or_insert_with(Edns::new);
            edns.set_max_payload(UDP_BYTES_MAX).set_dnssec_ok(self.asks_for_truth);
        }
        query
    }
}

/// State shared by all queries.
pub struct Servers {
    pub(super) asking: Asking,
    pub(super) all: Vec<Arc<NameServer>>,
    pub(super) open: Semaphore,
    /// Replies over the network, whatever they say.
    pub(super) replies: AtomicU64,
    /// Neutral questions that nobody waits for; they end with the servers.
    checks: Mutex<JoinSet<()>>,
}

pub struct NameServer {
    pub address: SocketAddr,
    pub known: Mutex<NameServerState>,
    /// One neutral question at a time.
    checking: tokio::sync::Mutex<()>,
}

/// Knowledge about a server.
#[derive(Default)]
pub struct NameServerState {
    misses: u32,
    /// The places in the tree of names of these questions.
    zones: Vec<String>,
    /// Why no reply came, if none has come since.
    pub failure: Option<String>,
    last_until: Option<Instant>,
    pub plain_until: Option<Instant>,
    /// The last question to which it refused EDNS, if it has not answered with EDNS since.
    pub refused: Option<Query>,
    /// It has answered with EDNS.
    pub edns_until: Option<Instant>,
    /// It says of answers that they are authentic, or does not; `None`: not known yet.
    pub validates: Option<bool>,
    /// It has said so of the root, not only of other names.
    validates_root: bool,
    /// When it last gave an answer with EDNS, which shows what it knows to be authentic.
    pub told: Option<Instant>,
    /// When the neutral question was last asked, whether any reply came, and whether it was an answer.
    checked: Option<Instant>,
    is_silent: bool,
    is_useful: bool,
}

impl NameServerState {
    pub fn takes_edns(&self, now: Instant) -> bool {
        self.plain_until.is_none_or(|until| until <= now)
    }

    pub fn has_proven_edns(&self, now: Instant) -> bool {
        self.edns_until.is_some_and(|until| until > now)
    }

    pub fn is_last(&self, now: Instant) -> bool {
        self.last_until.is_some_and(|until| until > now)
    }

    /// Whether an answer of a server that validates is to be expected, since it has given one lately.
    pub fn is_awaited(&self, now: Instant) -> bool {
        let is_recent = |told| now.duration_since(told) < Duration::from_secs(KNOWN_S);
        self.validates == Some(true) && self.told.is_some_and(is_recent)
    }

    fn is_due(&self, now: Instant) -> bool {
        let holds = Duration::from_secs(if self.validates.is_some() { KNOWN_S } else { UNKNOWN_S });
        self.checked.is_some_and(|checked| now.duration_since(checked) >= holds)
    }

    /// Takes the reply to the neutral question with EDNS: whether the server validates.
    fn learn_of_root(&mut self, reply: &DnsResponse, rating: ReplyRating, address: SocketAddr) {
        if reply.metadata.authentic_data {
            (self.validates, self.validates_root) = (Some(true), true);
        } else if reply.edns.is_none() {
            // Without EDNS there is no DNSSEC (RFC 4035 3.2.1). One that has shown more may have an error of its own.
            self.validates.get_or_insert(false);
        } else if rating == ReplyRating::Final && (self.validates_root || self.validates.is_none()) {
            if self.validates_root {
                tracing::warn!(server = %address, "name server no longer marks the root zone as authentic: it has \
                    stopped validating");
            }
            (self.validates, self.validates_root) = (Some(false), false);
        }
    }
}

impl NameServer {
    pub fn new(address: SocketAddr) -> NameServer {
        NameServer { address, known: Mutex::default(), checking: tokio::sync::Mutex::default() }
    }

    /// What an error means, in words.
    pub fn in_words(&self, error: &NetError) -> String {
        let address = self.address;
        match error {
            NetError::Timeout => format!("name server {address} does not answer"),
            NetError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("connection refused by name server {address}")
            }
            other => format!("name server {address}: {other}"),
        }
    }

    pub fn note_failure(&self, error: &NetError) {
        let failure = &mut self.known.lock().failure;
        // A server's own reply is more informative than its silence.
        if failure.is_none() || !matches!(error, NetError::Timeout) {
            *failure = Some(self.in_words(error));
        }
    }

    pub fn note_answer(&self) {
        let mut known = self.known.lock();
        known.misses = 0;
        known.zones.clear();
        if known.last_until.take().is_some() {
            tracing::info!(server = %self.address, "name server answers again");
        }
    }

    /// Another server has answered this question. Whether it is time to ask this one the neutral question.
    fn note_miss(&self, question: &Query) -> bool {
        let mut known = self.known.lock();
        known.misses = known.misses.saturating_add(1);
        let zone = question.name().to_lowercase().trim_to(2).to_ascii();
        if known.zones.len() < ZONES_MAX && !known.zones.contains(&zone) {
            known.zones.push(zone);
        }
        known.misses >= MISSES_MAX
    }

    /// Puts it last if the neutral question went unanswered, or so many others that their zones cannot be the reason.
    fn judge(&self) {
        let mut known = self.known.lock();
        if known.misses < MISSES_MAX {
            return;
        }
        if known.is_useful && known.zones.len() < ZONES_MAX {
            known.misses = 0;
            return;
        }
        let now = Instant::now();
        if known.last_until.is_none() {
            let what = if known.is_silent { "does not answer" } else { "answers with an error" };
            tracing::warn!(
                server = %self.address,
                "name server {what} while another answers; using it last for {LAST_S} s: check [dns] servers"
            );
        }
        known.last_until = Some(now + Duration::from_secs(LAST_S));
    }

    /// Asks for the root's name servers, with EDNS and, since some drop that, without.
    async fn check(&self, asking: Asking) {
        let begun = Instant::now();
        let _turn = self.checking.lock().await;
        if self.known.lock().checked.is_some_and(|checked| checked >= begun) {
            return;
        }
        let question = Query::query(Name::root(), RecordType::NS);
        let limit = asking.timeout.min(Duration::from_millis(CHECK_MS));
        let ask = async |has_edns: bool| {
            let query = asking.query(&question, has_edns);
            let reply = timeout(limit, exchange(self.address, &query)).await.ok()?.ok()?;
            let rating = rating(&reply, &question, has_edns);
            Some((reply, rating))
        };
        let (with, without) = tokio::join!(ask(true), ask(false));
        let mut known = self.known.lock();
        known.checked = Some(Instant::now());
        known.is_silent = with.is_none() && without.is_none();
        known.is_useful = [&with, &without].into_iter().flatten().any(|(_, rating)| *rating == ReplyRating::Final);
        if let Some((reply, rating)) = with.filter(|_| asking.asks_for_truth) {
            if rating == ReplyRating::Final && reply.edns.is_some() {
                known.told = known.checked;
            }
            known.learn_of_root(&reply, rating, self.address);
        }
    }
}

impl Servers {
    pub fn new(addresses: &[SocketAddr], asking: Asking) -> Servers {
        Servers {
            asking,
            all: addresses.iter().map(|address| Arc::new(NameServer::new(*address))).collect(),
            open: Semaphore::new(QUERIES_MAX),
            replies: AtomicU64::new(0),
            checks: Mutex::default(),
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
        Some(listed(&failures))
    }

    /// Number of replies over the network, from any server and of any kind.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Whether a server's word about what is authentic is worth waiting for.
    pub fn may_validate(&self, server: usize) -> bool {
        let Asking { asks_for_truth, unknown_may_validate, .. } = self.asking;
        asks_for_truth && self.all[server].known.lock().validates.unwrap_or(unknown_may_validate)
    }

    #[cfg(test)]
    pub fn validates(&self, server: usize) -> Option<bool> {
        self.all[server].known.lock().validates
    }

    /// The servers in the order in which they are asked: those that validate before others, then as configured, the
    /// useless ones last.
    pub fn order(&self, now: Instant) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_cached_key(|at| (!self.may_validate(*at), self.all[*at].known.lock().is_last(now)));
        order
    }

    /// Finds out which servers validate, where that makes a difference: of each once before its first question, and
    /// later beside others.
    pub async fn find_validators(&self) {
        if !self.asking.asks_for_truth || self.all.len() < 2 {
            return;
        }
        let (now, mut unasked) = (Instant::now(), Vec::new());
        for server in &self.all {
            let (is_unasked, is_due) = {
                let known = server.known.lock();
                (known.checked.is_none(), known.is_due(now))
            };
            if is_unasked {
                unasked.push(server.check(self.asking));
            } else if is_due {
                self.check_later(server);
            }
        }
        join_all(unasked).await;
    }

    /// A server has not answered what another has.
    pub fn note_miss(&self, server: usize, question: &Query) {
        let server = &self.all[server];
        if server.note_miss(question) {
            self.check_later(server);
        }
    }

    fn check_later(&self, server: &Arc<NameServer>) {
        let mut checks = self.checks.lock();
        while checks.try_join_next().is_some() {}
        if server.checking.try_lock().is_ok() && checks.len() < 2 * self.all.len() {
            let (server, asking) = (server.clone(), self.asking);
            checks.spawn(async move {
                server.check(asking).await;
                server.judge();
            });
        }
    }
}

/// The first of these.
pub fn listed(failures: &[String]) -> String {
    let more = failures.len().saturating_sub(SERVERS_NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    failures[..failures.len().min(SERVERS_NAMED_MAX)].join("; ") + &more
}

/// A query without EDNS, with its own ID.
pub fn query(question: &Query) -> Message {
    let mut query = Message::query();
    query.add_query(question.clone());
    query.metadata.recursion_desired = true;
    query
}
