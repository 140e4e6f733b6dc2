//! Subscribers files: read as a stream, interned, and made durable as a version of the list.
//!
//! Promise: a post uses the file as it is when its recipient is named: a replaced file (another size, time or inode) is
//! read before RCPT is answered, once for all sessions that wait for it. If a file cannot be read, the previous version
//! stays in force; a list without any version defers its posts. A bad line is logged with its number and skipped.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_lists::subscribers::{self, Report, Seen};
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::core::intake::{Interned, Job, Refused, Ticket};
use crate::core::pins::Pin;

/// Addresses interned with one job: the hub's lock is held for about a millisecond.
pub const INTERN_ADDRESSES_MAX: usize = 2048;

#[derive(Default)]
pub struct Lists {
    /// One reader of a list's file at a time.
    reading: Mutex<HashMap<Arc<str>, Turn>>,
}

/// The lock for reading a list's file, and the last file read, if there was no space for it.
type Turn = Arc<tokio::sync::Mutex<Option<Oversized>>>;

/// A file that there was no room for, and when. It is not read and interned again for each RCPT: anybody can ask.
struct Oversized {
    stamp: String,
    at: Ms,
}

impl Oversized {
    fn is(&self, stamp: &str, now: Ms) -> bool {
        self.stamp == stamp && now.saturating_sub(self.at) < OVERSIZED_PAUSE_MS
    }
}

/// How long a file that did not fit is not read again, unless it is replaced.
const OVERSIZED_PAUSE_MS: Ms = 5_000;

/// Why a file gave no new version.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Lists {
    /// Reads the list's file if it differs from the version in force.
    pub async fn refresh(&self, core: &Arc<Core>, name: &Arc<str>) -> Result<(), Reply> {
        const UNREADABLE: Reply =
            Reply::fixed(451, (4, 3, 0), "The list's subscribers cannot be read, try again later");
        // Of the configuration in force, not of the one that a long session began with.
        let settings = core.settings();
        let Some(path) = settings.subscribers(name) else { return Err(UNREADABLE) };
        let current = |stamp: &str| core.with(|hub, _| hub.store.list(name).is_some_and(|list| list.stamp == stamp));
        let stamp = std::fs::metadata(path).map(|metadata| stamp(&metadata));
        if stamp.as_deref().is_ok_and(current) {
            return Ok(());
        }
        let turn = self.reading.lock().entry(name.clone()).or_default().clone();
        let mut turn = turn.lock().await;
        if stamp.as_deref().is_ok_and(current) {
            return Ok(());
        }
        let old = || if self.is_read(core, name) { Ok(()) } else { Err(UNREADABLE) };
        let is_oversized = |file: &Oversized| stamp.as_deref().is_ok_and(|stamp| file.is(stamp, core.clock.steady()));
        if turn.as_ref().is_some_and(is_oversized) {
            return old();
        }
        if core.settings().subscribers(name).is_none() {
            // A reload took it away while others were reading.
            return Err(UNREADABLE);
        }
        let (reader, list, path) = (core.clone(), name.clone(), path.to_owned());
        let loaded = tokio::task::spawn_blocking(move || load(&reader, &list, &path)).await;
        *turn = None;
        match loaded {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                if let LoadError::Refused(Refused::AddressesFull | Refused::TooLarge) = error {
                    *turn = stamp.ok().map(|stamp| Oversized { stamp, at: core.clock.steady() });
                }
                let kept = old();
                tracing::warn!(list = %name, %error, keeps_old = kept.is_ok(), "cannot use the subscribers file");
                kept
            }
            Err(_) => Err(UNREADABLE),
        }
    }

    /// Lists that are no longer configured lose their subscribers in the store; these addresses may be forgotten then.
    pub async fn remove_unconfigured(&self, core: &Arc<Core>) {
        let known: Vec<Arc<str>> = core.with(|hub, _| hub.store.lists().map(|(name, _)| name.into()).collect());
        for name in known {
            let turn = self.reading.lock().entry(name.clone()).or_default().clone();
            // Who reads its file now is through first.
            let _turn = turn.lock().await;
            if core.settings().subscribers(&name).is_none() {
                tracing::info!(list = %name, "list no longer configured; subscribers dropped");
                core.intake.push(Job::Unlist { name: name.to_string() });
            }
        }
    }

    /// Whether there is a version of the list in force. After a reload has removed the list there is none, also for
    /// sessions that began before it.
    pub fn is_read(&self, core: &Arc<Core>, name: &str) -> bool {
        core.with(|hub, _| hub.store.list(name).is_some())
    }

    /// Whether an address is subscribed in the version in force, in this or another case of its letters: few write their
    /// own in one case only. Two look-ups, whoever asks: anybody may claim to be a member.
    pub fn is_member(&self, core: &Arc<Core>, name: &str, address: &str) -> bool {
        core.with(|hub, _| {
            let Some(list) = hub.store.list(name) else { return false };
            let book = &hub.store.book;
            book.lookup(address).into_iter().chain(book.spellings(address)).any(|id| list.ids.contains(id.0))
        })
    }
}

/// What tells one state of a file from another.
fn stamp(metadata: &Metadata) -> String {
    format!("{}-{}.{:09}-{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino())
}

/// Reads a file into a new version of the list. Blocks.
fn load(core: &Arc<Core>, name: &Arc<str>, path: &Path) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    // Opening a pipe would wait for a writer, and every session that names the list with it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    // Of the file that is open, so that a replacement in the meantime is seen the next time.
    let stamp = stamp(&file.metadata().map_err(unreadable)?);
    let mut interning =
        Interning { core, batch: Vec::new(), ticket: None, ids: IdSet::default(), pin: None, again: 0, failed: None };
    let report = subscribers::read(&mut file, &mut |subscriber| {
        interning.add(subscriber.address);
        Seen::First
    })
    .map_err(unreadable)?;
    let (ids, again, pin) = interning.finish()?;
    log_report(name, path, &report, &ids, again);
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::List { name: name.to_string(), stamp, ids, pin, answer });
    Ok(ticket.blocking_recv().unwrap_or(Err(Refused::Stopping))?)
}

fn log_report(name: &str, path: &Path, report: &Report, ids: &IdSet, again: u64) {
    for bad in &report.bad_lines {
        tracing::warn!(list = %name, "{}: {bad}", path.display());
    }
    tracing::info!(
        list = %name, subscribers = ids.len(), lines = report.lines, duplicates = again, bad_lines = report.bad,
        "subscribers read from {}", path.display()
    );
}

/// Addresses on their way to ids, one job ahead of the reading.
struct Interning<'a> {
    core: &'a Arc<Core>,
    batch: Vec<String>,
    ticket: Option<Ticket<Interned>>,
    ids: IdSet,
    /// Keeps the ids until the list refers to them.
    pin: Option<Pin>,
    again: u64,
    failed: Option<Refused>,
}

impl Interning<'_> {
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
        match ticket.blocking_recv().unwrap_or(Err(Refused::Stopping)) {
            Ok(Interned { ids, pin }) => {
                self.pin = Some(pin);
                for id in ids {
                    self.again += u64::from(!self.ids.insert(id.0));
                }
            }
            Err(refused) => self.failed = Some(refused),
        }
    }

    fn finish(mut self) -> Result<(IdSet, u64, Option<Pin>), Refused> {
        self.send();
        self.collect();
        match self.failed {
            None => Ok((self.ids, self.again, self.pin)),
            Some(refused) => Err(refused),
        }
    }
}
