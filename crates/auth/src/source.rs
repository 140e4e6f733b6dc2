//! The users file in force.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_sasl::ScramKeys;
use stentor_sasl::limits::ITERATIONS_DEFAULT;
use stentor_users::{FileError, Refreshed, User, Users, UsersFile};
use tokio::sync::watch;

/// The file, and who is told of each new version of it.
pub(crate) struct OwnUsers {
    file: Arc<Mutex<UsersFile>>,
    path: PathBuf,
    current: watch::Sender<Arc<Users>>,
    /// Out of which salts of users are made that do not exist.
    secret: [u8; 32],
}

impl OwnUsers {
    /// Blocks.
    pub fn open(path: &Path, secret: [u8; 32]) -> Result<OwnUsers, FileError> {
        let file = UsersFile::open(path)?;
        let current = watch::Sender::new(file.users().clone());
        Ok(OwnUsers { file: Arc::new(Mutex::new(file)), path: path.to_owned(), current, secret })
    }

    pub fn get(&self, name: &str) -> Option<Arc<User>> {
        self.current.borrow().get(name).cloned()
    }

    pub fn watch(&self) -> watch::Receiver<Arc<Users>> {
        self.current.subscribe()
    }

    /// The keys of a user, or such as nobody can tell from a user's.
    pub fn scram_keys(&self, name: &str) -> ScramKeys {
        let known = self.get(name).and_then(|user| user.scram.clone());
        known.unwrap_or_else(|| ScramKeys::made_up(&self.secret, name, ITERATIONS_DEFAULT))
    }

    /// Has no users from now on: logins end, and none is made any more.
    pub fn retire(&self) {
        self.current.send_replace(Arc::default());
    }

    /// Reads the file if it has changed.
    pub async fn refresh(&self) {
        let file = self.file.clone();
        // One look at a time: a file system that hangs keeps one thread.
        let looked = tokio::task::spawn_blocking(move || file.try_lock().map(|mut file| file.refresh())).await;
        match looked {
            Ok(Some(Refreshed::Replaced(users))) => {
                tracing::info!(path = %self.path.display(), users = users.len(), "users file read");
                self.current.send_replace(users);
            }
            Ok(Some(Refreshed::Kept(error))) => {
                tracing::error!(path = %self.path.display(), "users file not used, the version before stays: {error}");
            }
            Ok(Some(Refreshed::Same) | None) | Err(_) => {}
        }
    }
}
