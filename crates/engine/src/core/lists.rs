//! Subscribers files: read as a stream, interned, and made durable as a version of the list.
//!
//! Promise: a post uses the file as it is when its recipient is named. A replaced file (another size, time or inode) is
//! read before RCPT is answered, once for all sessions that wait for it. If a file cannot be read, the previous version
//! stays in force; a list without any version defers its posts. A bad line is logged with its number and skipped.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stentor_lists::subscribers::{self, Report, Seen};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::core::intake::{IntakeRefusal, InternedAddresses, Job, Ticket};
use crate::core::local_members::LocalMembers;
use crate::core::pins::Pin;

/// Addresses interned per job: the hub's lock is held for about a millisecond.
pub const INTERN_ADDRESSES_MAX: usize = 2048;

#[derive(Default)]
pub struct Lists {
    files: Mutex<HashMap<Arc<str>, Arc<ListFile>>>,
    /// Lists whose last reading gave no new version.
    failures: Mutex<HashMap<Arc<str>, Failure>>,
    pub local: LocalMembers,
}

/// Why a file gave no new version, and the state that it was in.
struct Failure {
    /// `None`: there was no file.
    state: Option<String>,
    why: String,
}

/// Locks of a list's file, in the order in which they are taken.
#[derive(Default)]
struct ListFile {
    /// Held for a look at its state: a file system that hangs keeps one thread.
    look: tokio::sync::Mutex<FileSystemState>,
    /// Held for reading it, with the last file read if there was no space for it.
    turn: tokio::sync::Mutex<Option<OversizedFile>>,
}

/// Whether the file system answers.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum FileSystemState {
    #[default]
    Answered,
    /// A look at the file has taken longer than [`LOOK_MAX`], and is not over yet.
    Hangs,
}

impl ListFile {
    /// The state of the file; `None` while its file system hangs.
    async fn metadata(self: &Arc<Self>, path: &Path) -> Option<std::io::Result<Metadata>> {
        let mut look = self.look.lock().await;
        if *look == FileSystemState::Hangs {
            return None;
        }
        let path = path.to_owned();
        let mut looking = tokio::task::spawn_blocking(move || std::fs::metadata(path));
        if let Ok(looked) = tokio::time::timeout(LOOK_MAX, &mut looking).await {
            return looked.ok();
        }
        *look = FileSystemState::Hangs;
        let file = self.clone();
        tokio::spawn(async move {
            let _ = looking.await;
            *file.look.lock().await = FileSystemState::Answered;
        });
        None
    }
}

/// A file for which there was no space, and when it was read. It is not reread for each RCPT, which any client can
/// send.
struct OversizedFile {
    stamp: String,
    at: Ms,
}

impl OversizedFile {
    fn is(&self, stamp: &str, now: Ms) -> bool {
        self.stamp == stamp && now.saturating_sub(self.at) < OVERSIZED_PAUSE_MS
    }
}

/// How long a file that did not fit is not reread, unless it is replaced.
const OVERSIZED_PAUSE_MS: Ms = 5_000;
/// How long a session waits for the file system to say whether a file has changed.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A list whose file cannot be read, or differs from the version in force.
pub struct ListTrouble {
    pub name: Arc<str>,
    pub why: String,
    /// Posts use the subscribers read last; otherwise they are deferred.
    pub keeps_old: bool,
}

/// Why a file gave no new version.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Refused(#[from] IntakeRefusal),
}

impl Lists {
    /// Reads the list's file if it differs from the version in force.
    pub async fn refresh(&self, core: &Arc<Core>, name: &Arc<str>) -> Result<(), Reply> {
        const UNREADABLE: Reply =
            Reply::fixed(451, Enhanced::new(4, 3, 0), "The list's subscribers could not be read, try again later");
        // The current configuration, not the one with which a long session began.
        let settings = core.settings();
        let Some(path) = settings.subscribers(name) else { return Err(UNREADABLE) };
        let current = |stamp: &str| core.with(|hub, _| hub.store.list(name).is_some_and(|list| list.stamp == stamp));
        let old = || if self.is_read(core, name) { Ok(()) } else { Err(UNREADABLE) };
        let file = self.file(name);
        let Some(metadata) = file.metadata(path).await else {
            tracing::warn!(list = %name, path = %path.display(), "the file system of the subscribers file does not \
                respond");
            return old();
        };
        let state = metadata.as_ref().ok().map(state);
        let stamp = metadata.map(|metadata| stamp(&metadata));
        if stamp.as_deref().is_ok_and(current) {
            return Ok(());
        }
        let mut turn = file.turn.lock().await;
        if stamp.as_deref().is_ok_and(current) {
            return Ok(());
        }
        let is_oversized =
            |file: &OversizedFile| stamp.as_deref().is_ok_and(|stamp| file.is(stamp, core.clock.steady()));
        if turn.as_ref().is_some_and(is_oversized) {
            return old();
        }
        if core.settings().subscribers(name).is_none() {
            // A reload removed the list while other sessions were reading.
            return Err(UNREADABLE);
        }
        let (reader, list, path) = (core.clone(), name.clone(), path.to_owned());
        let loaded = tokio::task::spawn_blocking(move || load(&reader, &list, &path)).await;
        *turn = None;
        match loaded {
            Ok(Ok(())) => {
                self.failures.lock().remove(name);
                Ok(())
            }
            Ok(Err(error)) => {
                self.failures.lock().insert(name.clone(), Failure { state, why: error.to_string() });
                if let LoadError::Refused(IntakeRefusal::AddressesFull | IntakeRefusal::TooLarge) = error {
                    *turn = stamp.ok().map(|stamp| OversizedFile { stamp, at: core.clock.steady() });
                }
                let kept = old();
                tracing::warn!(list = %name, %error, keeps_old = kept.is_ok(), "the subscribers file could not be \
                    read");
                kept
            }
            Err(_) => Err(UNREADABLE),
        }
    }

    fn file(&self, name: &Arc<str>) -> Arc<ListFile> {
        self.files.lock().entry(name.clone()).or_default().clone()
    }

    /// Returns the lists whose subscribers differ from their files. Blocks.
    pub fn troubles(&self, core: &Arc<Core>) -> Vec<ListTrouble> {
        let settings = core.settings();
        let mut found = Vec::new();
        for name in settings.list_names() {
            let Some(path) = settings.subscribers(&name) else { continue };
            let old = core.with(|hub, _| hub.store.list(&name).map(|list| list.stamp.clone()));
            let why = match open(path) {
                Err(error) => Some(error.to_string()),
                // The file in force is fine, whatever an earlier reading reported.
                Ok((_, metadata)) if old.as_ref() == Some(&stamp(&metadata)) => None,
                // So is a file that was missing or different then: the next post reads it.
                Ok((_, metadata)) => {
                    let (failures, state) = (self.failures.lock(), Some(state(&metadata)));
                    let failure = failures.get(&name).filter(|failure| failure.state == state);
                    failure.map(|failure| failure.why.clone())
                }
            };
            found.extend(why.map(|why| ListTrouble { name, why, keeps_old: old.is_some() }));
        }
        found
    }

    /// Removes the subscribers of lists that are no longer configured; their addresses may then be forgotten.
    pub async fn remove_unconfigured(&self, core: &Arc<Core>) {
        let known: Vec<Arc<str>> = core.with(|hub, _| hub.store.lists().map(|(name, _)| name.into()).collect());
        for name in known {
            let file = self.file(&name);
            // Waits for a reader of the file to finish.
            let _turn = file.turn.lock().await;
            if core.settings().subscribers(&name).is_none() {
                self.failures.lock().remove(&name);
                tracing::info!(list = %name, "list no longer configured; subscribers dropped");
                core.intake.push(Job::Unlist { name: name.to_string() });
            }
        }
    }

    /// Whether a version of the list is in force. After a reload has removed the list there is none, also for older
    /// sessions.
    pub fn is_read(&self, core: &Arc<Core>, name: &str) -> bool {
        core.with(|hub, _| hub.store.list(name).is_some())
    }

    /// Whether an address is subscribed in the version in force, ignoring letter case: few people write their own
    /// address in one case only. This costs two look-ups, since any client may claim to be a member.
    pub fn is_member(&self, core: &Arc<Core>, name: &str, address: &str) -> bool {
        core.with(|hub, _| {
            let Some(list) = hub.store.list(name) else { return false };
            let book = &hub.store.book;
            book.lookup(address).into_iter().chain(book.spellings(address)).any(|id| list.ids.contains(id.0))
        })
    }
}

/// Identifies a state of a file.
fn stamp(metadata: &Metadata) -> String {
    format!("{}-{}.{:09}-{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino())
}

/// Identifies a state of a file, including owner and mode: repairing permissions changes nothing else.
fn state(metadata: &Metadata) -> String {
    format!("{}-{}.{:09}", stamp(metadata), metadata.ctime(), metadata.ctime_nsec())
}

/// Opens a file and returns the metadata of the open file, so that a replacement in the meantime is noticed next time.
/// Blocks.
fn open(path: &Path) -> Result<(File, Metadata), LoadError> {
    subscribers::open(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

/// Reads a file into a new version of the list. Blocks.
fn load(core: &Arc<Core>, name: &Arc<str>, path: &Path) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    let (mut file, metadata) = open(path)?;
    let stamp = stamp(&metadata);
    let mut interning = AddressInterner {
        core,
        batch: Vec::new(),
        ticket: None,
        ids: IdSet::default(),
        pin: None,
        again: 0,
        in_other_case: 0,
        failed: None,
    };
    let report = subscribers::read(&mut file, &mut |subscriber| {
        interning.add(subscriber.address);
        Seen::First
    })
    .map_err(unreadable)?;
    let subscribers = interning.finish()?;
    log_report(name, path, &report, &subscribers);
    let Subscribers { ids, pin, .. } = subscribers;
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::List { name: name.to_string(), stamp, ids, pin, answer });
    Ok(ticket.blocking_recv().unwrap_or(Err(IntakeRefusal::Stopping))?)
}

fn log_report(name: &str, path: &Path, report: &Report, found: &Subscribers) {
    for bad in &report.bad_lines {
        tracing::warn!(list = %name, "{}: {bad}", path.display());
    }
    tracing::info!(
        list = %name, subscribers = found.ids.len(), lines = report.lines, duplicates = found.again,
        differ_in_case = found.in_other_case, bad_lines = report.bad, "subscribers read from {}", path.display()
    );
}

/// The subscribers read from a file.
struct Subscribers {
    ids: IdSet,
    again: u64,
    in_other_case: u64,
    pin: Option<Pin>,
}

/// Interns addresses, one job ahead of the reading.
struct AddressInterner<'a> {
    core: &'a Arc<Core>,
    batch: Vec<String>,
    ticket: Option<Ticket<InternedAddresses>>,
    ids: IdSet,
    /// Keeps the ids until the list refers to them.
    pin: Option<Pin>,
    again: u64,
    /// Addresses already known in another letter case.
    in_other_case: u64,
    failed: Option<IntakeRefusal>,
}

impl AddressInterner<'_> {
    fn add(&mut self, address: &str) {
        self.batch.push(address.to_owned());
        if self.batch.len() == INTERN_ADDRESSES_MAX {
            self.send();
        }
    }

    fn send(&mut self) {
        self.collect();
        let addresses = std::mem::take(&mut self.batch);
        if self.failed.is_none() && !addresses.is_empty() {
            let (answer, ticket) = oneshot::channel();
            self.core.intake.push(Job::Intern { addresses, answer });
            self.ticket = Some(ticket);
        }
    }

    fn collect(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        match ticket.blocking_recv().unwrap_or(Err(IntakeRefusal::Stopping)) {
            Ok(InternedAddresses { ids, pin }) => {
                self.pin = Some(pin);
                self.core.with(|hub, _| {
                    for id in ids {
                        // A person gets one copy, however the address is written: the first spelling counts.
                        let book = &hub.store.book;
                        let text = book.text(id);
                        let has_capitals = text.bytes().any(|octet| octet.is_ascii_uppercase());
                        let lower = has_capitals.then(|| book.lookup(&text.to_ascii_lowercase())).flatten();
                        let others = lower.into_iter().chain(book.spellings(text));
                        let mut others = others.filter(|other| *other != id);
                        if others.any(|other| self.ids.contains(other.0)) {
                            self.in_other_case += 1;
                        } else {
                            self.again += u64::from(!self.ids.insert(id.0));
                        }
                    }
                });
            }
            Err(refused) => self.failed = Some(refused),
        }
    }

    fn finish(mut self) -> Result<Subscribers, IntakeRefusal> {
        self.send();
        self.collect();
        let AddressInterner { ids, again, in_other_case, pin, failed, .. } = self;
        failed.map_or(Ok(Subscribers { ids, again, in_other_case, pin }), Err)
    }
}
