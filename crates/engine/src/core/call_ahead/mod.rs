//! What call-ahead knows of recipients of relay domains: answers of their next hops, kept for a time, and who is being asked for.
//!
//! States of a recipient: unknown -> asked for -> exists, refused or undecided -> (after its time) unknown. An answer that it exists
//! is asked for again while it is still good; a failure to do so changes nothing, a refusal does.
//!
//! Promise: one question about a recipient at a time, whoever else wants to know waits for its answer. Bounded: at most
//! [`ASKED_MAX`] questions, `cache_entries_max` recipients that exist and as many others; who was not named for longest goes first.
//! So addresses that are refused never push out those that exist; a host that takes any address lets one client push out
//! those that nobody names meanwhile, which costs a question each. In memory alone: a start knows nothing.
//!
//! Failure: with [`ASKED_MAX`] questions open there is no further one: [`Look::Crowded`].

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

pub use self::places::{FAILED_MAX, NEW_MAX, PLACES_MAX, Place, Places, Standing};
use self::shelf::{Entry, Shelf};
pub use self::sites::{
    ANSWERING_MS, Entered, Failed, LINE_AFTER_FAILURE_MAX, LINE_MAX, LINE_OF_CLIENT_MAX, Names, Question, REPLYING_MS,
    SITES_MAX, Sites,
};

/// Questions open at a time, those that wait for their turn included.
pub const ASKED_MAX: usize = 1_024;

/// What a recipient's next hop says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It takes mail for the recipient.
    Exists,
    /// It refuses the recipient for good, or there is none: what the client hears, and why, for the operator.
    Refused(Reply, Arc<str>),
    /// It cannot be asked, or does not say.
    Undecided(Words),
}

/// Why a recipient is not known to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// For the client, who is not to learn of hosts behind this server.
    pub client: Arc<str>,
    /// For the operator.
    pub log: Arc<str>,
}

impl Words {
    pub fn new(client: impl Into<Arc<str>>, log: impl Into<Arc<str>>) -> Words {
        Words { client: client.into(), log: log.into() }
    }

    /// The same for both.
    pub fn plain(text: &str) -> Words {
        Words::new(text, text)
    }
}

/// Counted since the start.
#[derive(Default)]
pub struct Counters {
    pub known: AtomicU64,
    pub exists: AtomicU64,
    pub refused: AtomicU64,
    pub undecided: AtomicU64,
}

/// Who is waiting for the answer to an open question.
pub type Awaited = watch::Receiver<Option<Answer>>;

/// What is known of a recipient.
pub enum Look {
    Known(Answer),
    /// Still good; to be asked for again.
    Refresh(Answer, Ticket),
    /// Somebody asks.
    Wait(Awaited),
    /// To be asked for.
    Ask(Ticket, Awaited),
    /// It would be one question too many.
    Crowded,
}

/// What is known of all recipients, and whom to ask.
#[derive(Default)]
pub struct CallAhead {
    state: Mutex<State>,
    pub sites: Sites,
    pub places: Places,
    pub counters: Counters,
}

#[derive(Default)]
struct State {
    exists: Shelf,
    others: Shelf,
    asked: HashMap<Arc<str>, Awaited, foldhash::fast::RandomState>,
}

impl CallAhead {
    /// What is known of a recipient at its next hop, `key`.
    pub fn look(self: &Arc<Self>, key: &str, now: Ms) -> Look {
        let mut state = self.state.lock();
        let State { exists, others, .. } = &mut *state;
        let known = exists.get(key, now).or_else(|| others.get(key, now));
        let known = known.map(|entry| (entry.answer.clone(), entry.refresh_at <= now));
        if let Some((answer, is_stale)) = known {
            self.counters.known.fetch_add(1, Ordering::Relaxed);
            if is_stale && !state.asked.contains_key(key) && state.asked.len() < ASKED_MAX {
                return Look::Refresh(answer, self.ticket(&mut state, key).0);
            }
            return Look::Known(answer);
        }
        if let Some(awaited) = state.asked.get(key) {
            return Look::Wait(awaited.clone());
        }
        if state.asked.len() >= ASKED_MAX {
            return Look::Crowded;
        }
        let (ticket, awaited) = self.ticket(&mut state, key);
        Look::Ask(ticket, awaited)
    }

    fn ticket(self: &Arc<Self>, state: &mut State, key: &str) -> (Ticket, Awaited) {
        let (sender, awaited) = watch::channel(None);
        let key: Arc<str> = key.into();
        state.asked.insert(key.clone(), awaited.clone());
        (Ticket { of: self.clone(), key, sender }, awaited)
    }

    /// Forgets who does not exist or is not known to: the operator may just have created a mailbox.
    pub fn forget_refusals(&self) {
        self.state.lock().others = Shelf::default();
        self.sites.forget_failures();
    }

    /// Recipients known: those that exist, and others.
    pub fn entries(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.exists.len(), state.others.len())
    }
}

/// The right to answer a question that is open. Dropped without an answer it is open no more.
pub struct Ticket {
    of: Arc<CallAhead>,
    key: Arc<str>,
    sender: watch::Sender<Option<Answer>>,
}

impl Ticket {
    pub fn answer(self, answer: Answer, config: &CallAheadConfig, now: Ms) {
        let counters = &self.of.counters;
        let (counter, ttl_ms) = match &answer {
            Answer::Exists => (&counters.exists, config.positive_ttl_ms),
            Answer::Refused(..) => (&counters.refused, config.negative_ttl_ms),
            Answer::Undecided(_) => (&counters.undecided, config.failure_ttl_ms),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut state = self.of.state.lock();
        let (key, max) = (self.key.clone(), config.cache_entries_max);
        let entry = |refresh_at| Entry { answer: answer.clone(), until: now + ttl_ms, refresh_at };
        match &answer {
            Answer::Exists => {
                state.others.remove(&key);
                state.exists.put(key, entry(now + config.positive_refresh_ms), max);
            }
            Answer::Undecided(_) if state.exists.get(&key, now).is_some() => {
                state.exists.put_off(&key, now + config.failure_ttl_ms);
            }
            Answer::Undecided(_) | Answer::Refused(..) => {
                state.exists.remove(&key);
                state.others.put(key, entry(Ms::MAX), max);
            }
        }
        drop(state);
        self.sender.send_replace(Some(answer));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.of.state.lock().asked.remove(&self.key);
    }
}
