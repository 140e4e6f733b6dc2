//! `Idempotency-Key`: a repeated request gets the earlier answer instead of submitting a second message.
//!
//! In memory, by caller and key: a restart forgets them. Refusals are not kept, so that they may be retried.

use std::collections::VecDeque;

use axum::http::StatusCode;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::Value;
use stentor_core::limits::{Limit, LimitHits};
use stentor_queue::ids::Ms;

/// Maximum number of keys; one more drops the oldest.
pub const KEYS_MAX: usize = 10_000;
/// How long a key is kept.
pub const KEPT_MS: u64 = 24 * 3_600_000;
/// Maximum octets of a key.
pub const KEY_BYTES_MAX: usize = 200;

/// Answers by key.
#[derive(Default)]
pub struct IdempotencyCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` while the first request is being handled.
    all: HashMap<String, Option<(StatusCode, Value)>>,
    /// Time of arrival of each key.
    order: VecDeque<(Ms, String)>,
}

/// The state of a key.
pub enum KeyState {
    /// The caller must handle the request; [`IdempotencyCache::end`] must follow.
    New,
    UnderWay,
    Answered(StatusCode, Value),
}

impl IdempotencyCache {
    pub fn begin(&self, key: &str, now: Ms, limits: &LimitHits) -> KeyState {
        let mut state = self.state.lock();
        while let Some((at, oldest)) = state.order.front() {
            let is_old = now.saturating_sub(*at) >= KEPT_MS;
            if !is_old && state.order.len() < KEYS_MAX {
                break;
            }
            if !is_old {
                limits.hit(Limit::IdempotencyKeys, now);
            }
            let oldest = oldest.clone();
            state.all.remove(&oldest);
            state.order.pop_front();
        }
        match state.all.get(key) {
            Some(Some((status, body))) => KeyState::Answered(*status, body.clone()),
            Some(None) => KeyState::UnderWay,
            None => {
                state.all.insert(key.to_owned(), None);
                state.order.push_back((now, key.to_owned()));
                KeyState::New
            }
        }
    }

    /// Stores the answer if the message was accepted; otherwise drops the key.
    pub fn end(&self, key: &str, status: StatusCode, body: &Value) {
        let mut state = self.state.lock();
        if status.is_success() {
            if let Some(kept) = state.all.get_mut(key) {
                *kept = Some((status, body.clone()));
            }
        } else {
            state.all.remove(key);
            state.order.retain(|(_, other)| other != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_again_and_a_refusal_is_not() {
        let (answers, limits) = (IdempotencyCache::default(), LimitHits::default());
        assert!(matches!(answers.begin("a", 0, &limits), KeyState::New));
        assert!(matches!(answers.begin("a", 0, &limits), KeyState::UnderWay));
        answers.end("a", StatusCode::SERVICE_UNAVAILABLE, &Value::Null);
        assert!(matches!(answers.begin("a", 0, &limits), KeyState::New));
        answers.end("a", StatusCode::CREATED, &1.into());
        assert!(
            matches!(answers.begin("a", KEPT_MS - 1, &limits), KeyState::Answered(StatusCode::CREATED, body) if body == 1)
        );
        assert!(matches!(answers.begin("a", KEPT_MS, &limits), KeyState::New), "a day later it is forgotten");
    }

    #[test]
    fn memory_is_bounded() {
        let (answers, limits) = (IdempotencyCache::default(), LimitHits::default());
        for n in 0..2 * KEYS_MAX {
            answers.begin(&n.to_string(), 0, &limits);
        }
        let state = answers.state.lock();
        assert!(state.all.len() == KEYS_MAX && state.order.len() == KEYS_MAX);
        assert_eq!(limits.hits(Limit::IdempotencyKeys), KEYS_MAX as u64);
    }
}
