//! Subscribers: read as a stream, interned, and made durable as a version of the list. They are in a file, or in the
//! registry (`roster.rs`).
//!
//! Promise: a post uses the file as it is when its recipient is named. A replaced file (another size, time or inode) is
//! read before RCPT is answered, once for all sessions that wait for it. If a file cannot be read, the previous version
//! stays in force; a list without any version defers its posts. A bad line is logged with its number and skipped.
//!
//! A file system that hangs: all calls into it are made by threads of their own, one for each list and at most
//! [`THREADS_MAX`]. A thread holds the list's turn until it returns, whether its caller still waits or not. A call that
//! takes longer than [`CALL_MAX`] counts as a failure for all who wait, and for all who come until it returns. A large
//! file may take longer as long as each call returns, up to [`READ_MAX`].

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use stentor_lists::subscribers::{self, Occurrence, SubscribersSummary};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;
use stentor_registry::Subject;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::Core;
use crate::files::{stamp, state};
use crate::intake::{IntakeRefusal, Job};
use crate::interner::{AddressInterner, Subscribers};
use crate::local_members::LocalMembers;
use crate::roster;
use crate::subscriber_names::SubscriberNames;

pub struct Lists {
    files: Mutex<HashMap<Arc<str>, Arc<ListFile>>>,
    /// Lists whose last reading gave no new version.
    failures: Mutex<HashMap<Arc<str>, Failure>>,
    /// Permits of threads that look at files or read them.
    threads: Arc<Semaphore>,
    pub local: LocalMembers,
    pub names: SubscriberNames,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            files: Mutex::default(),
            failures: Mutex::default(),
            threads: Arc::new(Semaphore::new(THREADS_MAX)),
            local: LocalMembers::default(),
            names: SubscriberNames::default(),
        }
    }
}

/// Why a file gave no new version, and the state that it was in.
struct Failure {
    /// `None`: there was no file.
    state: Option<String>,
    why: String,
}

/// A list's file and the thread that is at it.
#[derive(Default)]
struct ListFile {
    /// Held by the thread that looks at the file or reads it, with the last file read if there was no space for it.
    turn: Arc<tokio::sync::Mutex<Option<OversizedFile>>>,
    /// Start of the call into the file system that the thread is in.
    call: Mutex<Option<Instant>>,
}

impl ListFile {
    /// Makes a call into the file system. Blocks.
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        *self.call.lock() = Some(Instant::now());
        let result = call();
        *self.call.lock() = None;
        result
    }

    /// Whether a call has taken longer than [`CALL_MAX`] and has not returned.
    fn hangs(&self) -> bool {
        self.call.lock().is_some_and(|since| since.elapsed() >= CALL_MAX)
    }

    /// Waits for work that calls into the file system; `None`: the file system hangs, or the work takes longer than
    /// [`READ_MAX`].
    async fn unless_it_hangs<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let end = Instant::now() + READ_MAX;
        loop {
            let since = self.call.lock().unwrap_or_else(Instant::now);
            if let Ok(done) = timeout_at(end.min(since + CALL_MAX), &mut work).await {
                return Some(done);
            }
            if self.hangs() || Instant::now() >= end {
                return None;
            }
        }
    }

    /// Does work on a thread that has the list's turn; `None`: no thread could do it in time.
    async fn on_thread<T: Send + 'static>(
        self: Arc<Self>,
        threads: Arc<Semaphore>,
        work: impl FnOnce(&ListFile, &mut Option<OversizedFile>) -> T + Send + 'static,
    ) -> Option<T> {
        if self.hangs() {
            return None;
        }
        let file = self.clone();
        let work = async move {
            let mut turn = file.turn.clone().lock_owned().await;
            // Held by the thread: a caller may leave at any time.
            let permit = timeout(CALL_MAX, threads.acquire_owned()).await.ok()?.ok()?;
            let work = move || {
                let _permit = permit;
                work(&file, &mut turn)
            };
            tokio::task::spawn_blocking(work).await.ok()
        };
        self.unless_it_hangs(work).await.flatten()
    }
}

/// Reads a file and notes each call.
struct NotedReads<'a> {
    file: &'a ListFile,
    input: File,
}

impl Read for NotedReads<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.file.call(|| self.input.read(buffer))
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
/// Longest call into the file system for which a session waits.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Longest wait of a session for a file to be read, shorter than clients wait for the reply to RCPT (RFC 5321 section
/// 4.5.3.2.3).
const READ_MAX: Duration = Duration::from_mins(2);
/// Threads at files of lists, most of them only if file systems hang.
const THREADS_MAX: usize = 64;
/// Files looked at or read at once when several lists are refreshed.
const FILES_AT_ONCE: usize = 16;
/// The trouble of a list whose file system hangs.
const SILENT: &str = "its file system does not respond";
const UNREADABLE: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "The list's subscribers could not be read, try again later");

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
        // The current configuration, not the one with which a long session began.
        let settings = core.settings();
        if settings.has_members_in_registry(name) {
            return self.refresh_roster(core, name).await;
        }
        let Some(path) = settings.subscribers(name) else { return Err(UNREADABLE) };
        let (reader, list, file) = (core.clone(), name.clone(), path.to_owned());
        let read = move |look: &ListFile, turn: &mut Option<OversizedFile>| {
            reader.lists.read_if_changed(&reader, &list, &file, look, turn)
        };
        if let Some(read) = self.file(name).on_thread(self.threads.clone(), read).await {
            return read;
        }
        let kept = self.version_in_force(core, name);
        let (path, keeps_old) = (path.display(), kept.is_ok());
        tracing::warn!(list = %name, %path, keeps_old, "the file system of the subscribers file does not respond");
        kept
    }

    /// Brings a list whose members are in the registry up to date. Most posts find that nothing changed.
    async fn refresh_roster(&self, core: &Arc<Core>, name: &Arc<str>) -> Result<(), Reply> {
        if roster::is_current(core, name) && !self.needs_roster_names(core, name) {
            return Ok(());
        }
        let (reader, list) = (core.clone(), name.clone());
        let refresh = move |_: &ListFile, _: &mut Option<OversizedFile>| roster::refresh(&reader, &list);
        let refreshed = self.file(name).on_thread(self.threads.clone(), refresh).await;
        match refreshed {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => tracing::warn!(list = %name, %error, "the members could not be read from the registry"),
            None => tracing::warn!(list = %name, "reading the members from the registry takes too long"),
        }
        // Not the version in force: somebody may have left.
        Err(UNREADABLE)
    }

    /// As [`Lists::refresh`], several lists at once. The first error ends it.
    pub async fn refresh_all(&self, core: &Arc<Core>, names: &[Arc<str>]) -> Result<(), Reply> {
        let each = stream::iter(names.to_vec()).map(|name| async move { self.refresh(core, &name).await });
        each.buffer_unordered(FILES_AT_ONCE).try_collect().await
    }

    /// Reads the configured lists' files. An unreadable one does not stop the others.
    pub async fn refresh_configured(&self, core: &Arc<Core>) {
        let each = stream::iter(core.settings().list_names());
        each.for_each_concurrent(FILES_AT_ONCE, |name| async move {
            let _ = self.refresh(core, &name).await;
        })
        .await;
    }

    fn version_in_force(&self, core: &Arc<Core>, name: &str) -> Result<(), Reply> {
        if self.is_read(core, name) { Ok(()) } else { Err(UNREADABLE) }
    }

    /// Blocks.
    fn read_if_changed(
        &self,
        core: &Arc<Core>,
        name: &Arc<str>,
        path: &Path,
        file: &ListFile,
        turn: &mut Option<OversizedFile>,
    ) -> Result<(), Reply> {
        let metadata = file.call(|| std::fs::metadata(path));
        let state = metadata.as_ref().ok().map(state);
        let stamp = metadata.map(|metadata| stamp(&metadata));
        let current = |stamp: &str| core.with(|hub, _| hub.store.list(name).is_some_and(|list| list.stamp == stamp));
        if let Ok(stamp) = &stamp
            && current(stamp)
        {
            self.read_names(core, name, path, file);
            return Ok(());
        }
        let is_oversized =
            |file: &OversizedFile| stamp.as_deref().is_ok_and(|stamp| file.is(stamp, core.clock.steady()));
        if turn.as_ref().is_some_and(is_oversized) {
            return self.version_in_force(core, name);
        }
        if core.settings().subscribers(name).is_none() {
            // A reload removed the list while other sessions were reading.
            return Err(UNREADABLE);
        }
        let loaded = load(core, name, path, file);
        *turn = None;
        let Err(error) = loaded else {
            self.failures.lock().remove(name);
            self.read_names(core, name, path, file);
            return Ok(());
        };
        self.failures.lock().insert(name.clone(), Failure { state, why: error.to_string() });
        if let LoadError::Refused(IntakeRefusal::AddressesFull | IntakeRefusal::TooLarge) = error {
            *turn = stamp.ok().map(|stamp| OversizedFile { stamp, at: core.clock.steady() });
        }
        let kept = self.version_in_force(core, name);
        tracing::warn!(list = %name, %error, keeps_old = kept.is_ok(), "the subscribers file could not be read");
        kept
    }

    /// Reads the names in the file, if copies use them and they are not in force. A failure is logged, and copies have
    /// no names. Blocks.
    fn read_names(&self, core: &Arc<Core>, name: &Arc<str>, path: &Path, file: &ListFile) {
        let settings = core.settings();
        if !settings.copies.of(name, "").is_some_and(|copies| copies.fields.uses_names()) {
            return self.names.drop_list(name);
        }
        let in_force = core.with(|hub, _| hub.store.list(name).map(|list| list.stamp.clone()));
        if in_force.is_none_or(|stamp| self.names.is_from(name, &stamp)) {
            return;
        }
        let read = file.call(|| subscribers::open(path)).and_then(|(input, metadata)| {
            self.names.read(core, name, stamp(&metadata), &mut NotedReads { file, input })
        });
        if let Err(error) = read {
            tracing::warn!(list = %name, %error, "the subscribers' names could not be read; copies have the addresses alone");
        }
    }

    fn file(&self, name: &Arc<str>) -> Arc<ListFile> {
        self.files.lock().entry(name.clone()).or_default().clone()
    }

    /// Whether copies of a list use names that have not been read, as after a start.
    fn needs_roster_names(&self, core: &Arc<Core>, name: &Arc<str>) -> bool {
        let uses_names = core.settings().copies.of(name, "").is_some_and(|copies| copies.fields.uses_names());
        let stamp = || core.with(|hub, _| hub.store.list(name).map(|list| list.stamp.clone()));
        uses_names && stamp().is_some_and(|stamp| !self.names.is_from(name, &stamp))
    }

    /// Reads the names of a list whose members are in the registry, if copies use them. Blocks.
    pub(crate) fn read_roster_names(&self, core: &Arc<Core>, name: &Arc<str>, stamp: String, input: &mut dyn Read) {
        if !core.settings().copies.of(name, "").is_some_and(|copies| copies.fields.uses_names()) {
            return self.names.drop_list(name);
        }
        if let Err(error) = self.names.read(core, name, stamp, input) {
            tracing::warn!(list = %name, %error, "the members' names could not be read; copies have the addresses alone");
        }
    }

    /// Returns the lists whose subscribers differ from their files, or whose file systems hang.
    pub async fn troubles(&self, core: &Arc<Core>) -> Vec<ListTrouble> {
        let names = stream::iter(core.settings().list_names());
        let each = names.map(|name| async move { self.trouble(core, name).await });
        each.buffered(FILES_AT_ONCE).filter_map(std::future::ready).collect().await
    }

    async fn trouble(&self, core: &Arc<Core>, name: Arc<str>) -> Option<ListTrouble> {
        let settings = core.settings();
        let path = settings.subscribers(&name)?.to_owned();
        let file = self.file(&name);
        let look = move |file: &ListFile, _: &mut Option<OversizedFile>| {
            file.call(|| open(&path).map(|(_, metadata)| metadata))
        };
        // A large file that is being read is fine until that has failed.
        let looked = timeout(CALL_MAX, file.clone().on_thread(self.threads.clone(), look)).await.ok().flatten();
        let old = core.with(|hub, _| hub.store.list(&name).map(|list| list.stamp.clone()));
        let why = match looked {
            None => file.hangs().then(|| SILENT.to_owned()),
            Some(Err(error)) => Some(error.to_string()),
            // The file in force is fine, whatever an earlier reading reported.
            Some(Ok(metadata)) if old.as_ref() == Some(&stamp(&metadata)) => None,
            // So is a file that was missing or different then: the next post reads it.
            Some(Ok(metadata)) => {
                let (failures, state) = (self.failures.lock(), Some(state(&metadata)));
                let failure = failures.get(&name).filter(|failure| failure.state == state);
                failure.map(|failure| failure.why.clone())
            }
        };
        why.map(|why| ListTrouble { name, why, keeps_old: old.is_some() })
    }

    /// Removes the subscribers of lists that are no longer configured; their addresses may then be forgotten.
    pub fn remove_unconfigured(&self, core: &Arc<Core>) {
        let settings = core.settings();
        let known: Vec<Arc<str>> = core.with(|hub, _| hub.store.lists().map(|(name, _)| name.into()).collect());
        for name in known.into_iter().filter(|name| settings.list(name).is_none()) {
            let (file, core) = (self.file(&name), core.clone());
            // Each waits for a reader of its file, which may hang.
            tokio::spawn(async move {
                let _turn = file.turn.lock().await;
                if core.settings().list(&name).is_none() {
                    core.lists.failures.lock().remove(&name);
                    core.lists.names.drop_list(&name);
                    tracing::info!(list = %name, "list no longer configured; subscribers dropped");
                    core.intake.push(Job::Unlist { name: name.to_string() });
                }
            });
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
        let is_subscribed = core.with(|hub, _| {
            let Some(list) = hub.store.list(name) else { return false };
            let book = &hub.store.book;
            book.lookup(address).into_iter().chain(book.spellings(address)).any(|id| list.ids.contains(id.0))
        });
        // Members without posts are in the registry alone.
        let is_silent = || Subject::parse(address).is_ok_and(|subject| core.registry.is_silent_member(name, &subject));
        is_subscribed || core.settings().has_members_in_registry(name) && is_silent()
    }
}

/// Opens a file and returns the metadata of the open file, so that a replacement in the meantime is noticed next time.
/// Blocks.
fn open(path: &Path) -> Result<(File, Metadata), LoadError> {
    subscribers::open(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

/// Reads a file into a new version of the list. Blocks.
fn load(core: &Arc<Core>, name: &Arc<str>, path: &Path, file: &ListFile) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    let (input, metadata) = file.call(|| open(path))?;
    let mut input = NotedReads { file, input };
    let stamp = stamp(&metadata);
    let mut interning = AddressInterner::new(core, IdSet::default());
    let report = subscribers::read(&mut input, &mut |subscriber| {
        interning.add(subscriber.address);
        Occurrence::First
    })
    .map_err(unreadable)?;
    let subscribers = interning.finish()?;
    log_report(name, path, &report, &subscribers);
    Ok(subscribers.put_in_force(core, name, stamp)?)
}

fn log_report(name: &str, path: &Path, report: &SubscribersSummary, found: &Subscribers) {
    for bad in &report.bad_lines {
        tracing::warn!(list = %name, "{}: {bad}", path.display());
    }
    tracing::info!(
        list = %name, subscribers = found.ids.len(), lines = report.lines, duplicates = found.again,
        differ_in_case = found.in_other_case, bad_lines = report.bad, "subscribers read from {}", path.display()
    );
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::time::advance;

    use super::*;

    /// Waits until a thread is in a call into the file system.
    async fn in_call(file: &ListFile) {
        while file.call.lock().is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_system_that_hangs_keeps_one_thread_however_many_callers_leave() {
        let (file, threads) = (Arc::<ListFile>::default(), Arc::new(Semaphore::new(3)));
        let (release, released) = mpsc::channel::<()>();
        let hanging = move |file: &ListFile, _: &mut Option<OversizedFile>| file.call(|| released.recv().is_ok());
        let first = tokio::spawn(file.clone().on_thread(threads.clone(), hanging));
        in_call(&file).await;
        first.abort();
        assert!(first.await.is_err());
        let look = |file: &ListFile, _: &mut Option<OversizedFile>| file.call(|| ());
        let second = tokio::spawn(file.clone().on_thread(threads.clone(), look));
        for n in 0..9 {
            // They leave while they wait.
            let leaving = tokio::spawn(file.clone().on_thread(threads.clone(), look));
            tokio::task::yield_now().await;
            leaving.abort();
            assert!(leaving.await.is_err(), "{n}");
        }
        advance(CALL_MAX).await;
        assert!(file.hangs());
        assert_eq!(second.await.unwrap(), None, "a caller who waits");
        assert_eq!(file.clone().on_thread(threads.clone(), look).await, None, "a caller who comes later");
        assert_eq!(threads.available_permits(), 2);
        release.send(()).unwrap();
        while file.hangs() {
            tokio::task::yield_now().await;
        }
        assert_eq!(file.clone().on_thread(threads.clone(), look).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_may_take_long_as_long_as_each_call_returns() {
        let (file, threads) = (Arc::<ListFile>::default(), Arc::new(Semaphore::new(1)));
        let ((proceed, proceeds), (returned, returns)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let reading = move |file: &ListFile, _: &mut Option<OversizedFile>| {
            for _ in 0..4 {
                file.call(|| proceeds.recv()).unwrap();
                returned.send(()).unwrap();
            }
        };
        let read = tokio::spawn(file.clone().on_thread(threads, reading));
        for _ in 0..4 {
            in_call(&file).await;
            advance(CALL_MAX * 4 / 5).await;
            proceed.send(()).unwrap();
            returns.recv().unwrap();
        }
        assert_eq!(read.await.unwrap(), Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_never_ends_is_not_waited_for_without_limit() {
        let (file, threads) = (Arc::<ListFile>::default(), Arc::new(Semaphore::new(1)));
        let _turn = file.turn.clone().lock_owned().await;
        assert_eq!(file.clone().on_thread(threads, |_, _| ()).await, None);
        assert!(!file.hangs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_file_is_fine_is_not_read_while_all_threads_hang() {
        let threads = Arc::new(Semaphore::new(0));
        assert_eq!(Arc::<ListFile>::default().on_thread(threads, |_, _| ()).await, None);
    }
}
