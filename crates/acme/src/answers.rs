//! Answers to challenges while an order is in progress.
//!
//! Promise: an answer is available from [`ChallengeResponses::give`] until its [`PublishedAnswer`] is dropped, whatever
//! ends the order.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;
use stentor_tls::IdentityStore;

use crate::Challenge;

/// Maximum concurrent answers.
const ANSWERS_MAX: usize = 100;

/// The available answers: those of `http-01` are kept here, those of `tls-alpn-01` with the certificates, where
/// handshakes look them up.
pub struct ChallengeResponses {
    /// Key authorizations by token.
    by_token: RwLock<HashMap<Box<str>, Box<str>>>,
    store: Arc<IdentityStore>,
}

impl ChallengeResponses {
    pub fn new(store: Arc<IdentityStore>) -> Arc<ChallengeResponses> {
        Arc::new(ChallengeResponses { by_token: RwLock::default(), store })
    }

    /// The key authorization for a token.
    pub(crate) fn of_token(&self, token: &str) -> Option<Box<str>> {
        self.by_token.read().get(token).cloned()
    }

    /// Answers a challenge for this name until the returned value is dropped: with `text`, the key authorization, or
    /// with its SHA-256.
    pub(crate) fn give(
        self: &Arc<Self>,
        challenge: Challenge,
        name: &str,
        token: &str,
        text: &str,
        digest: &[u8; 32],
    ) -> Result<PublishedAnswer, String> {
        match challenge {
            Challenge::Http01 => {
                let mut all = self.by_token.write();
                if all.len() >= ANSWERS_MAX {
                    return Err(format!("more than {ANSWERS_MAX} challenges at a time"));
                }
                all.insert(token.into(), text.into());
            }
            Challenge::TlsAlpn01 => self.store.put_challenge(name, digest)?,
        }
        let key = if challenge == Challenge::Http01 { token } else { name };
        Ok(PublishedAnswer { answers: self.clone(), challenge, key: key.into() })
    }
}

/// An available answer.
pub(crate) struct PublishedAnswer {
    answers: Arc<ChallengeResponses>,
    challenge: Challenge,
    /// The token, or the name.
    key: Box<str>,
}

impl Drop for PublishedAnswer {
    fn drop(&mut self) {
        match self.challenge {
            Challenge::Http01 => drop(self.answers.by_token.write().remove(&self.key)),
            Challenge::TlsAlpn01 => self.answers.store.remove_challenge(&self.key),
        }
    }
}
