//! DNS queries of rules about one untrusted client: DNS lists, names, domains.
//!
//! Promise: the queries of one decision run in parallel and end within one time limit; each is made once in a
//! session, whatever the answer. A query without an answer by then is [`DnsAnswer::Unanswered`], which refuses no mail.
//! A list that has not answered [`FAILURES_MAX`] consecutive queries is skipped for a while ([`REST`]), so that not
//! every session waits for it.
//!
//! The resolver caches answers, within its limits. Failures of a list do not count as failures of our name servers,
//! only of the list.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::rr::RecordType;
use parking_lot::Mutex;
use stentor_reputation::{Answered, DnsAnswer, Kind, Question};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answers::{self, Empty};
use super::select::{AddressAnswer, MxAnswer};
use super::{Resolver, dns_name};

/// Consecutive failures after which a list is skipped.
const FAILURES_MAX: u32 = 5;
/// How long a list is skipped.
const REST: Duration = Duration::from_mins(1);
/// Maximum answers kept for one session; if a client names more senders, some are queried again.
const KNOWN_MAX: usize = 256;
/// Maximum queries of one decision.
const WANTED_MAX: usize = 128;
/// Maximum DNS lists with counters; a configuration has fewer.
const LISTS_MAX: usize = 1_000;

/// Counters of one DNS list since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListCounts {
    /// Answers with addresses, whatever their meaning.
    pub found: u64,
    pub not_found: u64,
    pub unanswered: u64,
    /// Queries skipped because of earlier failures.
    pub skipped: u64,
}

#[derive(Clone, Default)]
struct ListHealth {
    counts: ListCounts,
    failures: u32,
    rests_until: Option<Instant>,
}

/// All lists, by name.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<Arc<str>, ListHealth>>);

impl Lists {
    fn with(&self, list: &Arc<str>, change: impl FnOnce(&mut ListHealth)) {
        let mut lists = self.0.lock();
        if lists.len() < LISTS_MAX || lists.contains_key(list) {
            change(lists.entry(list.clone()).or_default());
        }
    }

    /// Copies all of `before`.
    pub fn continue_from(&self, before: &Lists) {
        let before = before.0.lock().clone();
        *self.0.lock() = before;
    }

    fn rests(&self, list: &Arc<str>) -> bool {
        let mut rests = false;
        self.with(list, |health| {
            rests = health.rests_until.is_some_and(|until| Instant::now() < until);
            health.counts.skipped += u64::from(rests);
        });
        rests
    }

    fn heard(&self, list: &Arc<str>, answer: &DnsAnswer) {
        self.with(list, |health| match answer {
            DnsAnswer::Unanswered(why) => {
                health.counts.unanswered += 1;
                health.failures += 1;
                if health.failures >= FAILURES_MAX {
                    // After a rest one more failure suffices.
                    health.failures = FAILURES_MAX - 1;
                    health.rests_until = Some(Instant::now() + REST);
                    let seconds = REST.as_secs();
                    tracing::warn!(%list, "the DNS list does not answer; not queried for {seconds} s: {why}");
                }
            }
            answer => {
                let is_found = matches!(answer, DnsAnswer::Addresses(all) if !all.is_empty());
                *(if is_found { &mut health.counts.found } else { &mut health.counts.not_found }) += 1;
                if health.rests_until.take().is_some() {
                    tracing::info!(%list, "the DNS list answers again");
                }
                health.failures = 0;
            }
        });
    }
}

/// Makes the queries of one session.
pub struct Asker {
    resolver: Resolver,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<Question, Answered>,
    wanted: Vec<Question>,
}

impl Resolver {
    /// `limit`: total time for all queries of one decision.
    pub fn asker(&self, limit: Duration) -> Asker {
        Asker { resolver: self.clone(), limit, state: Mutex::default() }
    }

    /// Counters of the DNS lists, by name.
    pub fn list_counts(&self) -> Vec<(Arc<str>, ListCounts)> {
        let lists = self.0.lists.0.lock();
        let mut all: Vec<_> = lists.iter().map(|(name, health)| (name.clone(), health.counts)).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Makes one query, limited only by the name servers' timeouts.
    pub async fn answer(&self, question: &Question) -> DnsAnswer {
        let unanswered = |why: &str| DnsAnswer::Unanswered(why.into());
        match &question.kind {
            Kind::Listed(_) => match self.listed(&question.name).await {
                Ok(addresses) => DnsAnswer::Addresses(addresses),
                Err(why) => unanswered(&why),
            },
            kind => match self.is_known(&question.name, *kind == Kind::TakesMail).await {
                Ok(is) => DnsAnswer::Is(is),
                Err(why) => unanswered(&why),
            },
        }
    }

    /// The addresses that a DNS list has for a name.
    async fn listed(&self, name: &str) -> Result<Vec<Ipv4Addr>, String> {
        let Some(name) = dns_name(name) else { return Ok(Vec::new()) };
        let result = self.uncounted(&name, RecordType::A).await;
        match answers::addresses(&name, RecordType::A, result) {
            Ok(all) => {
                Ok(all.ips.into_iter().filter_map(|ip| if let IpAddr::V4(v4) = ip { Some(v4) } else { None }).collect())
            }
            Err(Empty::NoDomain | Empty::NoData | Empty::Unproven) => Ok(Vec::new()),
            Err(Empty::Failed(why)) => Err(why),
        }
    }

    /// Whether a name has MX hosts or an address; with `takes_mail` a null MX means no.
    async fn is_known(&self, domain: &str, takes_mail: bool) -> Result<bool, String> {
        let Some(name) = dns_name(domain) else { return Ok(false) };
        match answers::mx_answer(&name, self.lookup(&name, RecordType::MX).await).0 {
            MxAnswer::Records { records, .. } => {
                return Ok(!takes_mail || records.iter().any(|record| !record.host.is_empty()));
            }
            MxAnswer::NoDomain => return Ok(false),
            MxAnswer::Failed(why) => return Err(why),
            MxAnswer::NoData | MxAnswer::Unproven => {}
        }
        match self.addresses(domain).await {
            AddressAnswer::Found { .. } => Ok(true),
            AddressAnswer::Failed(why) => Err(why),
            _ => Ok(false),
        }
    }
}

impl Asker {
    /// The answer to a question; `None`: the next [`Asker::fetch`] will query it.
    pub fn known(&self, question: &Question) -> Option<Answered> {
        let mut state = self.state.lock();
        if let Some(answered) = state.known.get(question) {
            return Some(answered.clone());
        }
        if state.wanted.len() >= WANTED_MAX {
            return Some(Answered { answer: DnsAnswer::Unanswered("too many queries".into()), took_ms: 0 });
        }
        if !state.wanted.contains(question) {
            state.wanted.push(question.clone());
        }
        None
    }

    /// End of the queries of a decision that begins now.
    pub fn until(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Makes all pending queries in parallel.
    pub async fn fetch(&self, until: Instant) {
        let wanted = std::mem::take(&mut self.state.lock().wanted);
        if wanted.is_empty() {
            return;
        }
        let (begun, mut asked, mut open) = (Instant::now(), JoinSet::new(), wanted);
        if until <= begun {
            // A query that got no time is not a failure of its list.
            for question in open {
                self.note(question, silent("time limit reached"), begun, false);
            }
            return;
        }
        for question in open.clone() {
            let resolver = self.resolver.clone();
            asked.spawn(async move {
                let answer = match &question.kind {
                    Kind::Listed(list) if resolver.0.lists.rests(list) => None,
                    _ => Some(resolver.answer(&question).await),
                };
                (question, answer)
            });
        }
        while let Ok(Some(answered)) = tokio::time::timeout_at(until, asked.join_next()).await {
            // Lookups do not panic and are never aborted.
            let Ok((question, answer)) = answered else { continue };
            open.retain(|other| *other != question);
            let is_asked = answer.is_some();
            self.note(question, answer.unwrap_or_else(|| silent("it has not answered before")), begun, is_asked);
        }
        for question in open {
            let why = format!("no answer within {} s", self.limit.as_secs_f32());
            self.note(question, silent(&why), begun, true);
        }
    }

    fn note(&self, question: Question, answer: DnsAnswer, begun: Instant, is_asked: bool) {
        if let (Kind::Listed(list), true) = (&question.kind, is_asked) {
            self.resolver.0.lists.heard(list, &answer);
        }
        let took_ms = begun.elapsed().as_millis() as u64;
        let mut state = self.state.lock();
        if state.known.len() >= KNOWN_MAX {
            state.known.clear();
        }
        state.known.insert(question, Answered { answer, took_ms });
    }
}

fn silent(why: &str) -> DnsAnswer {
    DnsAnswer::Unanswered(why.into())
}
