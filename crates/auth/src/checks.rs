//! Checks passwords on threads outside the runtime, with a limit on running and waiting checks.
//!
//! Users who have logged in from the same place before have their own line, which guesses from elsewhere cannot fill.
//! For ten seconds after a wrong password ([`GUESSED_MS`]), passwords from unfamiliar places are checked on a thread of
//! lowest priority (`idle_thread`), which gets at most a quarter of a processor: a check uses about 10 ms of it and 19
//! MiB of its caches, which would otherwise slow mail.
//!
//! Most guesses need no check. The HMAC of each recently correct password, under a key of this process, is kept: the
//! same password is accepted, any other is known to be wrong. Unknown users are also known to be wrong. In both cases
//! the login waits for a turn and then takes as much time of the same thread as a check, without its memory, so that
//! the reply's time reveals nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use stentor_mail::Ms;
use stentor_sasl::limits::PASSWORD_BYTES_MAX;
use stentor_sasl::{Secret, is_same};
use stentor_users::{User, password};
use tokio::sync::Semaphore;

use crate::idle_thread::IdleThread;
use crate::random::random;
use crate::thread_time::thread_us;

/// Maximum logins waiting for a check: from clients unfamiliar and familiar to the user.
const WAITING_MAX: usize = 32;
const FAMILIAR_WAITING_MAX: usize = 64;
/// Maximum users with a remembered password.
const REMEMBERED_MAX: usize = 4_096;
const REMEMBERED_MS: Ms = 5 * 60_000;
/// After a wrong password from an unfamiliar place, passwords from such places are checked on the idle thread for this
/// long.
const GUESSED_MS: Ms = 10_000;

/// The remembered mark of a correct password.
#[derive(Debug, Clone, Copy)]
struct PasswordMark {
    mark: [u8; 32],
    at: Ms,
}

/// The maximum of running and waiting checks is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckQueueFull;

pub(crate) struct Checks {
    running: Arc<Semaphore>,
    /// The idle thread, and its semaphore: one check at a time. `None` if the thread could not be started.
    idle: Option<(Arc<Semaphore>, IdleThread)>,
    guessed_until: AtomicU64,
    waiting: Semaphore,
    familiar_waiting: Semaphore,
    key: [u8; 32],
    /// Keyed by the mark of the user.
    remembered: Mutex<HashMap<[u8; 32], PasswordMark>>,
    /// Processor time of the last check of an argon2 hash.
    check_us: Arc<AtomicU64>,
}

impl Checks {
    /// Allows `at_once` checks at a time. Blocks for some milliseconds, to measure the duration of a check.
    pub fn new(at_once: usize) -> Checks {
        let begun = thread_us();
        let _ = password::hash("", &random());
        let check_us = thread_us().saturating_sub(begun);
        Checks {
            running: Arc::new(Semaphore::new(at_once.max(1))),
            idle: IdleThread::start("stentor-guesses").ok().map(|thread| (Arc::new(Semaphore::new(1)), thread)),
            guessed_until: AtomicU64::new(0),
            waiting: Semaphore::new(WAITING_MAX),
            familiar_waiting: Semaphore::new(FAMILIAR_WAITING_MAX),
            key: random(),
            remembered: Mutex::default(),
            check_us: Arc::new(AtomicU64::new(check_us)),
        }
    }

    /// Whether the password is the user's. Without a user: false, after the same time.
    pub async fn is_right(
        &self,
        user: Option<Arc<User>>,
        given: &Secret,
        is_familiar: bool,
        clock: &(dyn Fn() -> Ms + Sync),
    ) -> Result<bool, CheckQueueFull> {
        let now = clock();
        let Ok(prepared) = stentor_sasl::prepare(given.expose(), PASSWORD_BYTES_MAX) else {
            // Such input matches no stored password, so returning early reveals nothing.
            return Ok(false);
        };
        let prepared = Secret::new(prepared.into_owned());
        let marks = user.as_deref().map(|user| (self.mark(user, None), self.mark(user, Some(&prepared))));
        let known = marks.and_then(|(of_user, _)| self.remembered.lock().get(&of_user).copied());
        let known = known.filter(|known| now.saturating_sub(known.at) < REMEMBERED_MS);
        if marks.zip(known).is_some_and(|((_, mark), known)| is_same(&mark, &known.mark)) {
            return Ok(true);
        }
        let line = if is_familiar { &self.familiar_waiting } else { &self.waiting };
        let Ok(_place) = line.try_acquire() else { return Err(CheckQueueFull) };
        let is_guessed = !is_familiar && now < self.guessed_until.load(Ordering::Relaxed);
        let is_right = if let Some(user) = user.filter(|_| known.is_none()) {
            let check_us = self.check_us.clone();
            self.run(is_guessed, move || is_password(&user, &prepared, &check_us)).await?
        } else {
            let check_us = self.check_us.load(Ordering::Relaxed);
            self.run(is_guessed, move || pretend(check_us)).await?
        };
        if !is_right && !is_familiar {
            self.guessed_until.fetch_max(clock() + GUESSED_MS, Ordering::Relaxed);
        }
        if let (true, Some((of_user, mark))) = (is_right, marks) {
            self.remember(of_user, PasswordMark { mark, at: now });
        }
        Ok(is_right)
    }

    /// Waits for a turn and runs a check; `is_guessed`: on the idle thread.
    async fn run(
        &self,
        is_guessed: bool,
        check: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool, CheckQueueFull> {
        let idle = self.idle.as_ref().filter(|_| is_guessed);
        let turns = idle.map_or(&self.running, |(turns, _)| turns);
        // The check itself holds the permit, so it counts even after its client has left. The semaphore is never
        // closed.
        let Ok(turn) = turns.clone().acquire_owned().await else { return Err(CheckQueueFull) };
        let check = move || {
            let _turn = turn;
            check()
        };
        Ok(match idle {
            Some((_, thread)) => thread.run(check).await.unwrap_or(false),
            None => tokio::task::spawn_blocking(check).await.unwrap_or(false),
        })
    }

    fn remember(&self, of_user: [u8; 32], known: PasswordMark) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, old| known.at.saturating_sub(old.at) < REMEMBERED_MS);
        }
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(of_user, known);
        }
    }

    /// The mark of a user and the stored password: it changes with the hash. With `given`, the mark of that password.
    fn mark(&self, user: &User, given: Option<&Secret>) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length is a key");
        for part in [&*user.name, user.hash.as_deref().unwrap_or_default()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let scram = user.scram.as_ref().map(ToString::to_string).unwrap_or_default();
        mac.update(&(scram.len() as u64).to_be_bytes());
        mac.update(scram.as_bytes());
        if let Some(given) = given {
            mac.update(b"=");
            mac.update(given.expose().as_bytes());
        }
        mac.finalize().into_bytes().into()
    }
}

/// Checks the password; `check_us` receives the processor time for an argon2 hash.
fn is_password(user: &User, given: &Secret, check_us: &AtomicU64) -> bool {
    match user {
        User { hash: Some(hash), .. } => {
            let begun = thread_us();
            let is_right = password::verify(given.expose(), hash);
            check_us.store(thread_us().saturating_sub(begun), Ordering::Relaxed);
            is_right
        }
        User { scram: Some(keys), .. } => keys.is_password(given.expose()),
        _ => false,
    }
}

/// Uses processor time without filling caches; returns that the password is wrong.
fn pretend(time_us: u64) -> bool {
    let until = thread_us() + time_us;
    let mut block = [0; 32];
    while thread_us() < until {
        block = Sha256::digest(block).into();
    }
    std::hint::black_box(block);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann(password: &str) -> Arc<User> {
        let hash = password::hash(password, &[1; 16]).unwrap();
        stentor_users::text::parse(stentor_users::FileKind::Own, &format!("[ann@x.example]\npassword = {hash}\n"))
            .unwrap()
            .get("ann@x.example")
            .unwrap()
            .clone()
    }

    #[tokio::test]
    async fn a_password_is_checked_and_remembered_until_it_changes() {
        let checks = Checks::new(1);
        let (user, right) = (ann("pencil"), Secret::from("pencil"));
        assert_eq!(checks.is_right(Some(user.clone()), &right, true, &|| 0).await, Ok(true));
        assert_eq!(checks.is_right(Some(user.clone()), &"pencils".into(), true, &|| 0).await, Ok(false));
        assert_eq!(checks.is_right(None, &right, true, &|| 0).await, Ok(false));
        assert_eq!(checks.remembered.lock().len(), 1);
        // No permit is left, but remembered passwords need none.
        let turn = checks.running.clone().acquire_owned().await.unwrap();
        assert_eq!(checks.is_right(Some(user), &right, true, &|| 0).await, Ok(true));
        drop(turn);
        assert_eq!(checks.is_right(Some(ann("other")), &right, true, &|| 0).await, Ok(false));
    }

    #[tokio::test]
    async fn what_is_known_to_be_wrong_is_not_checked() {
        let checks = Checks::new(1);
        let (user, right) = (ann("pencil"), Secret::from("pencil"));
        let is_checked = async |user: Option<Arc<User>>, given: &str, now: Ms| {
            checks.check_us.store(0, Ordering::Relaxed);
            let is_right = checks.is_right(user, &given.into(), true, &|| now).await;
            (is_right, checks.check_us.load(Ordering::Relaxed) > 0)
        };
        assert_eq!(is_checked(Some(user.clone()), "pencils", 0).await, (Ok(false), true));
        assert_eq!(checks.is_right(Some(user.clone()), &right, true, &|| 0).await, Ok(true));
        assert_eq!(is_checked(Some(user.clone()), "pencils", 0).await, (Ok(false), false));
        assert_eq!(is_checked(None, "pencils", 0).await, (Ok(false), false));
        assert_eq!(is_checked(Some(ann("other")), "other", 0).await, (Ok(true), true), "what is stored is another");
        assert_eq!(is_checked(Some(user), "pencils", REMEMBERED_MS).await, (Ok(false), true), "long ago");
    }

    #[test]
    fn who_does_not_exist_takes_as_much_of_a_processor() {
        let begun = thread_us();
        assert!(!pretend(20_000));
        assert!(thread_us() - begun >= 20_000);
    }

    #[tokio::test]
    async fn guesses_wait_for_each_other_and_nobody_waits_for_them() {
        let checks = Checks::new(1);
        let (user, right) = (ann("pencil"), Secret::from("pencil"));
        assert_eq!(checks.is_right(Some(user.clone()), &"pencils".into(), true, &|| 0).await, Ok(false));
        assert_eq!(checks.guessed_until.load(Ordering::Relaxed), 0, "a program at home has an old password");
        assert_eq!(checks.is_right(None, &right, false, &|| 1).await, Ok(false));
        let idle_turns = checks.idle.as_ref().unwrap().0.clone();
        let turn = idle_turns.clone().acquire_owned().await.unwrap();
        let guess = Box::pin(checks.is_right(None, &right, false, &|| GUESSED_MS));
        assert!(at_once(guess).await.is_none(), "it has its turn after others");
        assert_eq!(checks.is_right(Some(user.clone()), &right, true, &|| GUESSED_MS).await, Ok(true));
        // Nobody has guessed for a while.
        assert_eq!(checks.is_right(None, &right, false, &|| 1 + GUESSED_MS).await, Ok(false));
        drop(turn);
        assert_eq!(checks.is_right(Some(ann("other")), &"other".into(), false, &|| 2 + GUESSED_MS).await, Ok(true));
        assert_eq!(idle_turns.available_permits(), 1);
    }

    /// The result of a future that is ready at once.
    async fn at_once<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn a_crowd_is_refused_and_the_familiar_have_a_line_of_their_own() {
        let checks = Arc::new(Checks::new(1));
        let turn = checks.running.clone().acquire_owned().await.unwrap();
        let wait = |is_familiar| {
            let checks = checks.clone();
            tokio::spawn(async move { checks.is_right(None, &"x".into(), is_familiar, &|| 0).await })
        };
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| wait(false)).collect();
        while checks.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(wait(false).await.unwrap(), Err(CheckQueueFull));
        let familiar = wait(true);
        while checks.familiar_waiting.available_permits() == FAMILIAR_WAITING_MAX {
            tokio::task::yield_now().await;
        }
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(turn);
        assert_eq!(familiar.await.unwrap(), Ok(false));
    }
}
