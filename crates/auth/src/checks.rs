//! Checking passwords away from the runtime's threads: a bounded number at a time, a bounded number that waits.
//!
//! Who has logged in from the same place before waits in a line of its own: guesses from elsewhere cannot fill it. A password
//! that was right a moment ago is recognised without argon2, for programs that log in once for each message: what is kept of it for
//! some minutes is its HMAC under a key that this process alone has.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use stentor_sasl::Secret;
use stentor_sasl::limits::PASSWORD_BYTES_MAX;
use stentor_users::{User, password};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::random::random;

/// Logins that wait for a check: of clients that are new to the user, and of those that are not.
const WAITING_MAX: usize = 32;
const FAMILIAR_WAITING_MAX: usize = 64;
/// Passwords that were right lately.
const REMEMBERED_MAX: usize = 4_096;
const REMEMBERED: Duration = Duration::from_mins(5);

/// As many are being checked, and wait for it, as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded;

pub(crate) struct Checks {
    running: Arc<Semaphore>,
    waiting: Semaphore,
    familiar_waiting: Semaphore,
    key: [u8; 32],
    remembered: Mutex<HashMap<[u8; 32], Instant>>,
    /// A hash that no password has: who does not exist takes as long as who does.
    nobody: Box<str>,
}

impl Checks {
    /// At most `at_once` checks at a time. Blocks for some milliseconds.
    pub fn new(at_once: usize) -> Checks {
        let nobody = password::hash("", &random()).unwrap_or_default();
        Checks {
            running: Arc::new(Semaphore::new(at_once.max(1))),
            waiting: Semaphore::new(WAITING_MAX),
            familiar_waiting: Semaphore::new(FAMILIAR_WAITING_MAX),
            key: random(),
            remembered: Mutex::default(),
            nobody: nobody.into(),
        }
    }

    /// Whether the password is that of the user; false without a user, after the same time.
    pub async fn is_right(&self, user: Option<Arc<User>>, given: &Secret, is_familiar: bool) -> Result<bool, Crowded> {
        let Ok(prepared) = stentor_sasl::prepare(given.expose(), PASSWORD_BYTES_MAX) else {
            // It cannot be anybody's, and everybody can see that.
            return Ok(false);
        };
        let prepared = Secret::new(prepared.into_owned());
        let mark = user.as_ref().map(|user| self.mark(user, &prepared));
        if mark.is_some_and(|mark| self.remembered.lock().get(&mark).is_some_and(|at| at.elapsed() < REMEMBERED)) {
            return Ok(true);
        }
        let line = if is_familiar { &self.familiar_waiting } else { &self.waiting };
        let Ok(_place) = line.try_acquire() else { return Err(Crowded) };
        // Held by the check itself: one whose client has gone still takes its share. The semaphore is never closed.
        let Ok(turn) = self.running.clone().acquire_owned().await else { return Err(Crowded) };
        let nobody = self.nobody.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            match user.as_deref() {
                Some(User { hash: Some(hash), .. }) => password::verify(prepared.expose(), hash),
                Some(User { scram: Some(keys), .. }) => keys.is_password(prepared.expose()),
                _ => {
                    password::verify(prepared.expose(), &nobody);
                    false
                }
            }
        });
        let is_right = checked.await.unwrap_or(false);
        if let (true, Some(mark)) = (is_right, mark) {
            self.remember(mark);
        }
        Ok(is_right)
    }

    fn remember(&self, mark: [u8; 32]) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(mark, Instant::now());
        }
    }

    /// Of the password and what is stored of it: another password, or hash, is another mark.
    fn mark(&self, user: &User, given: &Secret) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length is a key");
        for part in [&*user.name, user.hash.as_deref().unwrap_or_default()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let scram = user.scram.as_ref().map(ToString::to_string).unwrap_or_default();
        mac.update(&(scram.len() as u64).to_be_bytes());
        mac.update(scram.as_bytes());
        mac.update(given.expose().as_bytes());
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann(password: &str) -> Arc<User> {
        let hash = password::hash(password, &[1; 16]).unwrap();
        stentor_users::text::parse(&format!("[ann@x.example]\npassword = {hash}\n"))
            .unwrap()
            .get("ann@x.example")
            .unwrap()
            .clone()
    }

    #[tokio::test]
    async fn a_password_is_checked_and_remembered_until_it_changes() {
        let checks = Checks::new(1);
        let (user, right) = (ann("pencil"), Secret::from("pencil"));
        assert_eq!(checks.is_right(Some(user.clone()), &right, false).await, Ok(true));
        assert_eq!(checks.is_right(Some(user.clone()), &"pencils".into(), false).await, Ok(false));
        assert_eq!(checks.is_right(None, &right, false).await, Ok(false));
        assert_eq!(checks.remembered.lock().len(), 1);
        // No turn can be had any more: what is remembered needs none.
        let turn = checks.running.clone().acquire_owned().await.unwrap();
        assert_eq!(checks.is_right(Some(user), &right, false).await, Ok(true));
        drop(turn);
        assert_eq!(checks.is_right(Some(ann("other")), &right, false).await, Ok(false));
    }

    #[tokio::test]
    async fn a_crowd_is_refused_and_the_familiar_have_a_line_of_their_own() {
        let checks = Arc::new(Checks::new(1));
        let turn = checks.running.clone().acquire_owned().await.unwrap();
        let wait = |is_familiar| {
            let checks = checks.clone();
            tokio::spawn(async move { checks.is_right(None, &"x".into(), is_familiar).await })
        };
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| wait(false)).collect();
        while checks.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(wait(false).await.unwrap(), Err(Crowded));
        let familiar = wait(true);
        while checks.familiar_waiting.available_permits() == FAMILIAR_WAITING_MAX {
            tokio::task::yield_now().await;
        }
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(turn);
        assert_eq!(familiar.await.unwrap(), Ok(false));
    }
}
