//! Call-ahead's cache: answers of next hops about recipients of relay domains, kept for a limited time, and open
//! questions.
//!
//! States of a recipient: unknown -> open question -> exists, refused or undecided -> (on expiry) unknown. An answer
//! "exists" is refreshed while it is still valid; a failed refresh changes nothing, a refusal does.
//!
//! Promise: there is at most one open question per recipient, and later callers wait for its answer. Bounded: at most
//! [`ASKED_MAX`] questions, `cache_entries_max` recipients that exist and as many others; the least recently used goes
//! first. So refused addresses never push out existing ones. A host that accepts any address lets one client push out
//! unused entries, at a cost of one question each. The cache is in memory only and starts empty.
//!
//! Failure: with [`ASKED_MAX`] questions open, no further one is asked: [`CacheLookup::Crowded`].

mod places;
mod shelf;
mod sites;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_config::CallAheadConfig;
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;
use tokio::sync::watch;

pub use self::places::{ConnectionPermit, FAILED_MAX, NEW_MAX, PLACES_MAX, Places, Responsiveness};
use self::shelf::{Entry, Shelf};
pub use self::sites::{
    ANSWERING_MS, CallAheadQuery, CallAheadSites, EntryOutcome, FailureScope, LINE_AFTER_FAILURE_MAX, LINE_MAX,
    LINE_OF_CLIENT_MAX, Names, REPLYING_MS, SITES_MAX,
};

/// Maximum number of open questions, including those that wait for their turn.
pub const ASKED_MAX: usize = 1_024;

/// A next hop's answer about a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAheadResult {
    /// The next hop accepts mail for the recipient.
    Exists,
    /// The next hop refuses the recipient permanently, or there is no next hop: the client's reply, and the reason for
    /// the operator.
    Refused(Reply, Arc<str>),
    /// The next hop cannot be asked, or gives no clear answer.
    Undecided(ReasonTexts),
}

/// Why a recipient is not known to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonTexts {
    /// Text for the client, who must not learn about hosts behind this server.
    pub client: Arc<str>,
    /// Text for the operator.
    pub log: Arc<str>,
}

impl ReasonTexts {
    pub fn new(client: impl Into<Arc<str>>, log: impl Into<Arc<str>>) -> ReasonTexts {
        ReasonTexts { client: client.into(), log: log.into() }
    }

    /// Uses one text for both.
    pub fn plain(text: &str) -> ReasonTexts {
        ReasonTexts::new(text, text)
    }
}

/// Counters since the server started.
#[derive(Default)]
pub struct Counters {
    pub known: AtomicU64,
    pub exists: AtomicU64,
    pub refused: AtomicU64,
    pub undecided: AtomicU64,
}

/// Receives the answer to an open question.
pub type AnswerReceiver = watch::Receiver<Option<CallAheadResult>>;

/// Result of looking up a recipient in the cache.
pub enum CacheLookup {
    Known(CallAheadResult),
    /// The answer is still valid but due for a refresh.
    Refresh(CallAheadResult, QueryTicket),
    /// The question is already open.
    Wait(AnswerReceiver),
    /// The caller must ask.
    Ask(QueryTicket, AnswerReceiver),
    /// Too many questions are open.
    Crowded,
}

/// Cached answers of all recipients, open questions, and the sites to ask.
#[derive(Default)]
pub struct CallAhead {
    state: Mutex<State>,
    pub sites: CallAheadSites,
    pub places: Places,
    pub counters: Counters,
}

#[derive(Default)]
struct State {
    exists: Shelf,
    others: Shelf,
    asked: HashMap<Arc<str>, AnswerReceiver, foldhash::fast::RandomState>,
}

impl CallAhead {
    /// Looks up a recipient at its next hop, `key`.
    pub fn look(self: &Arc<Self>, key: &str, now: Ms) -> CacheLookup {
        let mut state = self.state.lock();
        let State { exists, others, .. } = &mut *state;
        let known = exists.get(key, now).or_else(|| others.get(key, now));
        let known = known.map(|entry| (entry.answer.clone(), entry.refresh_at <= now));
        if let Some((answer, is_stale)) = known {
            self.counters.known.fetch_add(1, Ordering::Relaxed);
            if is_stale && !state.asked.contains_key(key) && state.asked.len() < ASKED_MAX {
                return CacheLookup::Refresh(answer, self.ticket(&mut state, key).0);
            }
            return CacheLookup::Known(answer);
        }
        if let Some(awaited) = state.asked.get(key) {
            return CacheLookup::Wait(awaited.clone());
        }
        if state.asked.len() >= ASKED_MAX {
            return CacheLookup::Crowded;
        }
        let (ticket, awaited) = self.ticket(&mut state, key);
        CacheLookup::Ask(ticket, awaited)
    }

    fn ticket(self: &Arc<Self>, state: &mut State, key: &str) -> (QueryTicket, AnswerReceiver) {
        let (sender, awaited) = watch::channel(None);
        let key: Arc<str> = key.into();
        state.asked.insert(key.clone(), awaited.clone());
        (QueryTicket { of: self.clone(), key, sender }, awaited)
    }

    /// Forgets all refusals and undecided answers: the operator may just have created a mailbox.
    pub fn forget_refusals(&self) {
        self.state.lock().others = Shelf::default();
        self.sites.forget_failures();
    }

    /// Returns the number of cached recipients that exist, and of others.
    pub fn entries(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.exists.len(), state.others.len())
    }
}

/// The right to answer an open question. Dropping it without an answer closes the question.
pub struct QueryTicket {
    of: Arc<CallAhead>,
    key: Arc<str>,
    sender: watch::Sender<Option<CallAheadResult>>,
}

impl QueryTicket {
    pub fn answer(self, answer: CallAheadResult, config: &CallAheadConfig, now: Ms) {
        let counters = &self.of.counters;
        let (counter, ttl_ms) = match &answer {
            CallAheadResult::Exists => (&counters.exists, config.positive_ttl_ms),
            CallAheadResult::Refused(..) => (&counters.refused, config.negative_ttl_ms),
            CallAheadResult::Undecided(_) => (&counters.undecided, config.failure_ttl_ms),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut state = self.of.state.lock();
        let (key, max) = (self.key.clone(), config.cache_entries_max);
        let entry = |refresh_at| Entry { answer: answer.clone(), until: now + ttl_ms, refresh_at };
        match &answer {
            CallAheadResult::Exists => {
                state.others.remove(&key);
                state.exists.put(key, entry(now + config.positive_refresh_ms), max);
            }
            CallAheadResult::Undecided(_) if state.exists.get(&key, now).is_some() => {
                state.exists.put_off(&key, now + config.failure_ttl_ms);
            }
            CallAheadResult::Undecided(_) | CallAheadResult::Refused(..) => {
                state.exists.remove(&key);
                state.others.put(key, entry(Ms::MAX), max);
            }
        }
        drop(state);
        self.sender.send_replace(Some(answer));
    }
}

impl Drop for QueryTicket {
    fn drop(&mut self) {
        self.of.state.lock().asked.remove(&self.key);
    }
}
