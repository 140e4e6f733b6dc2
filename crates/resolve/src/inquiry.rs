//! One question to the configured name servers, which are asked in turn until one gives a final answer
//! ([`super::worth`]).
//!
//! Promise: a server that refuses, fails, is lame, silent or away costs a question at most the hedge of a second, and
//! nothing once it is known ([`super::servers`]). A reply that is not final asks the next server at once; silence asks
//! it after the hedge, while the first is still listened to. If nobody answers, the best of the other replies is the
//! answer, and failing that the last error. All of it ends after the time for one question times its rounds.
//!
//! EDNS: a server that answers it with an error is asked again without (RFC 6891 7), and so, from the second round on,
//! is one that is silent and has not answered with EDNS lately. Of a slow server both replies come at about the same
//! time, and the one with EDNS is taken. An answer to a question without EDNS is never authentic (RFC 4035 3.2.1: the
//! server was not asked for that).
//!
//! Silence is more often a lost datagram than a server that drops EDNS, and an error may be about one name. So neither
//! is held against a server beyond its question: only one that has not answered with EDNS lately and refuses it in so
//! many words is asked without at once, for [`PLAIN_ONCE_S`] after one question and for [`EDNS_S`] after another. Where
//! answers are believed, one that came without EDNS after silence is taken only if the server is silent to EDNS once
//! more, and is not kept in the cache.
//!
//! Where answers are believed ([`super::connection`]), **only a server that validates can say that something is not
//! authentic** (RFC 7672 2.1): what another says without AD is held while one that validates may still answer. What
//! comes of the one that validates:
//!
//! | it | the question's answer |
//! |---|---|
//! | answers with EDNS, with AD or without | that |
//! | SERVFAIL, which is what it says of bogus data (RFC 4035 5.5) | the failure: nobody's answer may stand for it (RFC 7672 2.1.1) |
//! | REFUSED, NOTIMP, a referral, nonsense, an answer to the question without EDNS | the other's, marked: its truth is not known ([`super::truth`]) |
//! | silence, until the question's time is over; of one that is known to be useless, for a hedge | the same |
//!
//! What is marked leads to hosts where nobody asks for DANE, and keeps mail waiting where somebody does
//! ([`super::published`]). That there is nothing is no answer either while one that validates is awaited
//! ([`super::servers`]).
//!
//! **Every reply that is used passes [`Inquiry::checked`]**, which marks it; one that is not final,
//! [`Inquiry::last_reply`] before.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Query, ResponseCode};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::rating::{ReplyRating, is_bogus, is_empty_word, is_refusal_of_edns, rating};
use super::servers::{Servers, listed};
use super::transport::exchange;
use super::truth;

/// How long it is remembered whether a server takes EDNS.
const EDNS_S: u64 = 600;
/// The same of a server that has answered with EDNS and is believed: without it no answer is authentic.
const EDNS_BELIEVED_S: u64 = 86_400;
/// How long it is remembered that a server has refused EDNS once.
const PLAIN_ONCE_S: u64 = 60;
/// How long the reply with EDNS may come after the one without.
const EDNS_GRACE_MS: u64 = 200;

/// One server's part in a question.
#[derive(Clone, Copy)]
struct Attempt {
    server: usize,
    has_edns: bool,
}

/// An answer to a question without EDNS, and until when the one with EDNS may still come.
struct PlainReply {
    server: usize,
    reply: DnsResponse,
    until: Instant,
}

/// A reply, and the attempt that it came to.
struct Received {
    attempt: Attempt,
    reply: DnsResponse,
}

/// What came of a question, if it is at its end.
type Final = Result<DnsResponse, NetError>;

struct Outcome {
    attempt: Attempt,
    result: Result<DnsResponse, NetError>,
}

impl Servers {
    /// Asks one question.
    pub async fn ask(&self, question: &Query) -> Result<DnsResponse, NetError> {
        if self.all.is_empty() {
            return Err(NetError::NoConnections);
        }
        // Once, and not for longer than one question to one server takes; it takes nothing from this question's time.
        self.find_validators().await;
        let rounds = u32::try_from(self.asking.retries).unwrap_or(u32::MAX).saturating_add(1);
        let until = Instant::now() + self.asking.timeout.saturating_mul(rounds);
        let Ok(Ok(_permit)) = timeout_at(until, self.open.acquire()).await else { return Err(NetError::Busy) };
        let mut inquiry = Inquiry::new(self, question, until);
        loop {
            let has_more = inquiry.has_more();
            let until = inquiry.until;
            let hedge = inquiry.hedge.min(until);
            let grace = inquiry.plain.as_ref().map_or(until, |plain| plain.until.min(until));
            tokio::select! {
                Some(Ok(outcome)) = inquiry.running.join_next() => {
                    if let Some(end) = inquiry.take(outcome) {
                        return end;
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
    /// Those of them that have answered, and those that would have said what is authentic.
    answered: Vec<usize>,
    told: Vec<usize>,
    /// What is wrong with those that have not, in words.
    faults: Vec<(usize, String)>,
    /// An answer whose truth its server cannot tell, while one that can may still answer.
    held: Option<Received>,
    /// Servers that have not replied yet to the question with EDNS, and those that have refused EDNS in so many words.
    silent: Vec<usize>,
    refused_edns: Vec<usize>,
    /// The answer of a server that was silent when asked with EDNS.
    plain: Option<PlainReply>,
    running: JoinSet<Outcome>,
    /// When the next server is asked, if nothing comes.
    hedge: Instant,
    best: Option<(ReplyRating, Received)>,
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
            answered: Vec::new(),
            told: Vec::new(),
            faults: Vec::new(),
            held: None,
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
            if self.replied.contains(&server) || self.held.is_some() && !self.servers.may_validate(server) {
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
            (self.servers.all[attempt.server].address, asking.query(self.question, attempt.has_edns));
        self.running.spawn(async move {
            let result = timeout_at(until, exchange(address, &query)).await.unwrap_or(Err(NetError::Timeout));
            Outcome { attempt, result }
        });
    }

    /// Takes what came of an attempt; `Some`: the end of the question.
    fn take(&mut self, Outcome { attempt, result }: Outcome) -> Option<Final> {
        let server = &self.servers.all[attempt.server];
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                server.note_failure(&error);
                self.faults.push((attempt.server, server.in_words(&error)));
                self.error = Some(error);
                if self.plain.is_none() {
                    self.begin_next();
                }
                return None;
            }
        };
        self.servers.replies.fetch_add(1, Ordering::Relaxed);
        server.known.lock().failure = None;
        if self.replied.contains(&attempt.server) {
            return None;
        }
        let rating = rating(&reply, self.question, attempt.has_edns);
        if rating == ReplyRating::NoEdns {
            self.silent.retain(|other| *other != attempt.server);
            if is_refusal_of_edns(&reply) {
                self.refused_edns.push(attempt.server);
            }
            self.best.get_or_insert((ReplyRating::Refusal, Received { attempt, reply }));
            self.begin(Attempt { has_edns: false, ..attempt });
            return None;
        }
        if !attempt.has_edns && rating == ReplyRating::Final && self.silent.contains(&attempt.server) {
            if self.plain.is_none() && self.held.is_none() && !self.needs_validation {
                self.keep_plain(attempt, reply, Instant::now());
            }
            return None;
        }
        self.judge(attempt, reply, rating)
    }

    /// Takes the one reply of a server that counts.
    fn judge(&mut self, attempt: Attempt, mut reply: DnsResponse, rating: ReplyRating) -> Option<Final> {
        self.replied.push(attempt.server);
        let validates = self.learn(attempt, &mut reply, rating, Instant::now());
        let code = reply.metadata.response_code;
        let fails = code == ResponseCode::ServFail && (validates || is_bogus(&reply));
        if fails && self.servers.asking.asks_for_truth {
            // What others have said is no last resort either.
            (self.needs_validation, self.best, self.plain, self.held) = (true, None, None, None);
        }
        let is_believed = fails || validates || !self.needs_validation;
        if rating == ReplyRating::Final {
            self.answered.push(attempt.server);
        }
        if attempt.has_edns && (rating == ReplyRating::Final || is_empty_word(&reply)) {
            self.told.push(attempt.server);
            self.servers.all[attempt.server].known.lock().told = Some(Instant::now());
        } else {
            let what = if rating == ReplyRating::Final {
                "answers only without EDNS".into()
            } else {
                format!("answers {code}")
            };
            self.faults
                .push((attempt.server, format!("name server {} {what}", self.servers.all[attempt.server].address)));
        }
        let received = Received { attempt, reply };
        if rating == ReplyRating::Final && is_believed {
            if let Some(end) = self.end_or_hold(received) {
                return Some(end);
            }
        } else {
            let rank = (rating, self.is_proven(&received));
            let is_better = |(rating, best): &(ReplyRating, Received)| (*rating, self.is_proven(best)) < rank;
            if is_believed && self.best.as_ref().is_none_or(is_better) {
                self.best = Some((rating, received));
            }
            if let Some(end) = self.held.take().and_then(|held| self.end_or_hold(held)) {
                return Some(end);
            }
        }
        if self.held.is_none() || self.begun < self.order.len() {
            self.begin_next();
        }
        None
    }

    /// Servers that may validate, and have not said what they know.
    fn untold(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied().filter(|at| self.servers.may_validate(*at) && !self.told.contains(at))
    }

    /// Those of them that may still reply, but for one.
    fn outstanding(&self, but: usize) -> impl Iterator<Item = usize> {
        self.untold().filter(move |at| *at != but && !self.replied.contains(at))
    }

    /// Whether a server that validates has said what is authentic of a reply.
    fn is_proven(&self, Received { attempt, reply }: &Received) -> bool {
        let validates = || self.servers.all[attempt.server].known.lock().validates == Some(true);
        self.told.contains(&attempt.server) && (reply.metadata.authentic_data || validates())
    }

    /// Ends the question with an answer, unless its server cannot tell its truth, and one that can may still answer.
    fn end_or_hold(&mut self, held: Received) -> Option<Final> {
        let outstanding: Vec<usize> = self.outstanding(held.attempt.server).collect();
        if outstanding.is_empty() || self.is_proven(&held) {
            return Some(self.end(held));
        }
        let now = Instant::now();
        if outstanding.into_iter().all(|at| self.servers.all[at].known.lock().is_last(now)) {
            self.until = self.until.min(now + self.servers.asking.hedge());
        }
        self.held.get_or_insert(held);
        None
    }

    /// Ends the question with an answer.
    fn end(&self, received: Received) -> Final {
        self.note(received.attempt.server);
        self.checked(received)
    }

    /// Returns a reply, marked if its truth is not known.
    fn checked(&self, received: Received) -> Final {
        if self.is_proven(&received) || self.untold().next().is_none() {
            return Ok(received.reply);
        }
        let (mut reply, why, now) = (received.reply, self.why_untold(), Instant::now());
        let is_awaited = self.untold().any(|at| self.servers.all[at].known.lock().is_awaited(now));
        if truth::mark(&mut reply, self.question, &why, is_awaited) { Ok(reply) } else { Err(self.not_validated()) }
    }

    fn not_validated(&self) -> NetError {
        NetError::Msg(format!("no validated answer: {}", self.why_untold()))
    }

    /// Returns a reply that is not final, for want of a better one: as an error, or as an answer without records and
    /// without proof.
    fn last_reply(&self, mut received: Received) -> Final {
        let Received { attempt, reply } = &mut received;
        let (address, code) = (self.servers.all[attempt.server].address, reply.metadata.response_code);
        match code {
            ResponseCode::NoError => {
                // They are about something else.
                reply.answers.clear();
                reply.additionals.clear();
                self.checked(received)
            }
            // Hickory would use its records.
            ResponseCode::NXDomain | ResponseCode::Unknown(_) if self.untold().next().is_some() => {
                Err(self.not_validated())
            }
            ResponseCode::NXDomain => Err(NetError::Msg(format!(
                "name server {address} answers {code}, but is neither recursive nor authoritative"
            ))),
            ResponseCode::Unknown(_) => Err(NetError::Msg(format!("name server {address} answers {code}"))),
            _ => Ok(received.reply),
        }
    }

    /// What is wrong with the servers that validate.
    fn why_untold(&self) -> String {
        let fault = |at: usize| {
            let known = self.faults.iter().rev().find(|(server, _)| *server == at).map(|(_, fault)| fault.clone());
            known.unwrap_or_else(|| self.servers.all[at].in_words(&NetError::Timeout))
        };
        listed(&self.untold().map(fault).collect::<Vec<_>>())
    }

    /// Keeps an answer without EDNS, in case that none with it comes.
    fn keep_plain(&mut self, attempt: Attempt, mut reply: DnsResponse, now: Instant) {
        let server = attempt.server;
        reply.metadata.authentic_data = false;
        let asking = &self.servers.asking;
        let asks_for_truth = asking.asks_for_truth;
        let grace = if asks_for_truth { asking.hedge() } else { Duration::from_millis(EDNS_GRACE_MS) };
        if asks_for_truth {
            truth::keep_out_of_cache(&mut reply);
            // It is there: the datagram may have been lost.
            self.begin(Attempt { server, has_edns: true });
            if self.outstanding(server).next().is_some() {
                self.held = Some(Received { attempt, reply });
                return;
            }
        }
        self.plain = Some(PlainReply { server, reply, until: now + grace });
    }

    /// Learns from a reply how its server takes EDNS, and whether it validates; takes off what was not asked for.
    fn learn(&self, attempt: Attempt, reply: &mut DnsResponse, rating: ReplyRating, now: Instant) -> bool {
        let asks_for_truth = self.servers.asking.asks_for_truth;
        let mut known = self.servers.all[attempt.server].known.lock();
        if attempt.has_edns && reply.edns.is_some() {
            let proven = Duration::from_secs(if asks_for_truth { EDNS_BELIEVED_S } else { EDNS_S });
            (known.edns_until, known.plain_until, known.refused) = (Some(now + proven), None, None);
        } else if rating >= ReplyRating::Unproven
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
        if reply.metadata.authentic_data {
            known.validates = Some(true);
        }
        known.validates == Some(true)
    }

    /// A server's answer is taken: counts that for it, and against those that were asked before and have none.
    fn note(&self, taken: usize) {
        for at in self.order.iter().take(self.begun.min(self.order.len())) {
            if *at == taken || self.answered.contains(at) {
                self.servers.all[*at].note_answer();
            } else {
                self.servers.note_miss(*at, self.question);
            }
        }
    }

    /// Nobody has answered a question with EDNS.
    fn last_resort(mut self) -> Result<DnsResponse, NetError> {
        let plain = self.plain.take().map(|PlainReply { server, reply, .. }| {
            let attempt = Attempt { server, has_edns: false };
            Received { attempt, reply }
        });
        let held = plain.or(self.held.take()).filter(|_| !self.needs_validation);
        // Those whose time is over with the question's.
        for server in self.order.iter().filter(|server| !self.replied.contains(server)) {
            self.servers.all[*server].note_failure(&NetError::Timeout);
        }
        if let Some(held) = held {
            return self.end(held);
        }
        match (self.best.take(), self.error.take()) {
            (Some((_, best)), _) => self.last_reply(best),
            (None, Some(error)) => Err(error),
            (None, None) if self.order.is_empty() => Err(NetError::NoConnections),
            (None, None) => Err(NetError::Timeout),
        }
    }
}
