//! A users file in force: ours, or the local settings for Dovecot's users.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_sasl::ScramKeys;
use stentor_sasl::limits::ITERATIONS_DEFAULT;
use stentor_users::{FileError, FileKind, Refreshed, User, Users, UsersFile};
use tokio::sync::watch;

/// The users of a file; None: the file is not looked at any more, and no login by it holds.
pub(crate) type InForce = Option<Arc<Users>>;

/// A file, and who is told of each new version of it.
pub(crate) struct WatchedFile {
    file: Arc<Mutex<UsersFile>>,
    path: PathBuf,
    current: watch::Sender<InForce>,
    /// Why the file as it is now is not in force.
    trouble: Mutex<Option<String>>,
}

impl WatchedFile {
    /// Blocks.
    pub fn open(kind: FileKind, path: &Path) -> Result<WatchedFile, FileError> {
        let file = UsersFile::open(kind, path)?;
        let current = watch::Sender::new(Some(file.users().clone()));
        Ok(WatchedFile { file: Arc::new(Mutex::new(file)), path: path.to_owned(), current, trouble: Mutex::default() })
    }

    pub fn users(&self) -> Arc<Users> {
        self.current.borrow().clone().unwrap_or_default()
    }

    pub fn get(&self, name: &str) -> Option<Arc<User>> {
        self.current.borrow().as_ref()?.get(name).cloned()
    }

    pub fn watch(&self) -> watch::Receiver<InForce> {
        self.current.subscribe()
    }

    /// Why the file as it is now is not in force.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Logins end, and none is made any more.
    pub fn retire(&self) {
        self.current.send_replace(None);
    }

    pub fn is_retired(&self) -> bool {
        self.current.borrow().is_none()
    }

    /// Reads the file if it has changed.
    pub async fn refresh(&self) {
        let file = self.file.clone();
        // One look at a time: a file system that hangs keeps one thread.
        let looked = tokio::task::spawn_blocking(move || file.try_lock().map(|mut file| file.refresh())).await;
        match looked {
            Ok(Some(Refreshed::Replaced(users))) => {
                *self.trouble.lock() = None;
                tracing::info!(path = %self.path.display(), users = users.len(), "users file read");
                self.current.send_if_modified(|current| {
                    let is_watched = current.is_some();
                    if is_watched {
                        *current = Some(users);
                    }
                    is_watched
                });
            }
            Ok(Some(Refreshed::Kept(error))) => {
                *self.trouble.lock() = Some(error.to_string());
                tracing::error!(path = %self.path.display(), "users file not used, the version before stays: {error}");
            }
            Ok(Some(Refreshed::Same) | None) | Err(_) => {}
        }
    }
}

/// Our users.
pub(crate) struct OwnUsers {
    pub file: WatchedFile,
    /// Out of which salts of users are made that do not exist.
    secret: [u8; 32],
}

impl OwnUsers {
    /// Blocks.
    pub fn open(path: &Path, secret: [u8; 32]) -> Result<OwnUsers, FileError> {
        Ok(OwnUsers { file: WatchedFile::open(FileKind::Own, path)?, secret })
    }

    pub fn get(&self, name: &str) -> Option<Arc<User>> {
        self.file.get(name)
    }

    /// The keys of a user, or such as nobody can tell from a user's.
    pub fn scram_keys(&self, name: &str) -> ScramKeys {
        let known = self.get(name).and_then(|user| user.scram.clone());
        known.unwrap_or_else(|| ScramKeys::made_up(&self.secret, name, ITERATIONS_DEFAULT))
    }
}
