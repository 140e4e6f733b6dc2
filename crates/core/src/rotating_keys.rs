//! DKIM keys that the server makes and replaces (`rotate_days`): which sign now, what operators see of them, and what
//! operators request. The keeper (`dkim-rotation`) writes all of it; deliveries and operators read.
//!
//! Promise: a key signs only while it is in use. Keys are set only after the state that says so is durable.
//! Both locks are leaves, held for a look-up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use stentor_dkim::Signer;
use stentor_dkim::rotation::{KeyObservation, KeyRotation};
use tokio::sync::{Notify, oneshot};

/// Requests that wait for the keeper at most.
const REQUESTS_MAX: usize = 64;

/// The state of one domain's keys, and what its name servers had when they were last asked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RotatingDomain {
    pub rotation: KeyRotation,
    pub observed: Vec<KeyObservation>,
}

/// An operator's request for a new key pair.
#[derive(Debug)]
pub struct RotationRequest {
    pub domain: String,
    /// The pair in use is compromised.
    pub is_urgent: bool,
    /// The result in words, once it is durable; or why there is none.
    pub answer: oneshot::Sender<Result<String, String>>,
}

#[derive(Default)]
pub struct RotatingKeys {
    signers: RwLock<HashMap<Box<str>, Arc<[Signer]>, foldhash::fast::RandomState>>,
    domains: Mutex<BTreeMap<String, RotatingDomain>>,
    requests: Mutex<Vec<RotationRequest>>,
    wake: Notify,
}

impl RotatingKeys {
    /// Returns the keys with which a domain signs now. `None`: its first key is not in use yet.
    pub fn signers(&self, domain: &str) -> Option<Arc<[Signer]>> {
        self.signers.read().get(domain).cloned()
    }

    /// Puts keys in use.
    pub fn use_signers(&self, domain: &str, signers: Arc<[Signer]>) {
        self.signers.write().insert(domain.into(), signers);
    }

    /// Sets what operators see of a domain.
    pub fn show(&self, domain: &str, state: RotatingDomain) {
        self.domains.lock().insert(domain.to_owned(), state);
    }

    /// Forgets domains that no longer have keys of the server's own.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.signers.write().retain(|domain, _| is_kept(domain));
        self.domains.lock().retain(|domain, _| is_kept(domain));
    }

    /// Whether the server makes keys for a domain.
    pub fn has(&self, domain: &str) -> bool {
        self.domains.lock().contains_key(domain)
    }

    /// Returns the state of all domains, in order of their names.
    pub fn domains(&self) -> BTreeMap<String, RotatingDomain> {
        self.domains.lock().clone()
    }

    /// Passes a request to the keeper. `false`: too many wait.
    pub fn request(&self, request: RotationRequest) -> bool {
        let mut requests = self.requests.lock();
        let is_taken = requests.len() < REQUESTS_MAX;
        if is_taken {
            requests.push(request);
        }
        drop(requests);
        self.wake.notify_one();
        is_taken
    }

    /// Takes all waiting requests.
    pub fn take_requests(&self) -> Vec<RotationRequest> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// Makes the keeper look at settings and requests.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for [`wake`](Self::wake) or a request.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}
