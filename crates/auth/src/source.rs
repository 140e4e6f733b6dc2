//! A users file in force: ours, or the local settings for Dovecot's users.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_sasl::ScramKeys;
use stentor_sasl::limits::ITERATIONS_DEFAULT;
use stentor_users::{FileError, FileKind, User, Users, UsersFile, UsersRefresh};
use tokio::sync::watch;

/// The users of a file; `None` after it was retired: then no login by it is valid.
pub(crate) type InForce = Option<Arc<Users>>;

/// A file that notifies others of each new version.
pub(crate) struct WatchedFile {
    file: Arc<Mutex<UsersFile>>,
    path: PathBuf,
    current: watch::Sender<InForce>,
    /// Why the current file is not in force.
    trouble: Mutex<Option<String>>,
}

impl WatchedFile {
    /// Opens the file. Blocks.
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

    /// Why the current file is not in force.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Ends all logins, and prevents new ones.
    pub fn retire(&self) {
        self.current.send_replace(None);
    }

    pub fn is_retired(&self) -> bool {
        self.current.borrow().is_none()
    }

    /// Reads the file if it has changed.
    pub async fn refresh(&self) {
        let file = self.file.clone();
        // One check at a time, so that a hanging file system blocks one thread.
        let looked = tokio::task::spawn_blocking(move || file.try_lock().map(|mut file| file.refresh())).await;
        match looked {
            Ok(Some(UsersRefresh::Replaced(users))) => {
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
            Ok(Some(UsersRefresh::Kept(error))) => {
                *self.trouble.lock() = Some(error.to_string());
                tracing::error!(path = %self.path.display(), "new users file cannot be used, the previous version \
                    stays in use: {error}");
            }
            Ok(Some(UsersRefresh::Same) | None) | Err(_) => {}
        }
    }
}

/// Our own users.
pub(crate) struct OwnUsers {
    pub file: WatchedFile,
    /// The secret from which salts of unknown users are derived.
    secret: [u8; 32],
}

impl OwnUsers {
    /// Opens the file. Blocks.
    pub fn open(path: &Path, secret: [u8; 32]) -> Result<OwnUsers, FileError> {
        Ok(OwnUsers { file: WatchedFile::open(FileKind::Own, path)?, secret })
    }

    pub fn get(&self, name: &str) -> Option<Arc<User>> {
        self.file.get(name)
    }

    /// The keys of a user; for unknown ones, made-up keys that look the same.
    pub fn scram_keys(&self, name: &str) -> ScramKeys {
        let known = self.get(name).and_then(|user| user.scram.clone());
        known.unwrap_or_else(|| ScramKeys::made_up(&self.secret, name, ITERATIONS_DEFAULT))
    }
}
