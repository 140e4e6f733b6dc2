//! Mail of local users: drains the submission folder into the queue (docs/design/submission.md).
//!
//! Promise: a user's submission is accepted once, returned to the user, or kept with the reason (`bad`). A file is only
//! removed when its message, or the report about it, is durable. Users take turns, however much one of them submits,
//! and however long its mail takes. Memory: the names that a look keeps ([`sweep`]), [`AT_ONCE`] envelopes, and bodies
//! like those of other clients.
//!
//! States of a file: `mail-X` (complete) -> `taken-ID-X` (with a queue id, durably) -> removed. At startup, files that
//! were taken but have not become a message are put back, and the others are removed ([`recover`]). Temporarily refused
//! mail (4xx) becomes `deferred-X` and is tried again. Recipients that are done by then, in a message or reported, are
//! in `reported-X`, which is removed after the submission. `bad/` holds files that are not submissions, or that cannot
//! be returned.
//!
//! A crash can cause a second copy in one case only: all recipients had their fate durably before the file's removal
//! was durable, and the journal has dropped the message's records meanwhile ([`AcceptedIds`]). Removals are durable
//! after every round, so within [`ROUND_MAX`] submissions.

mod accepted;
mod file;
mod folder;
mod inject;
mod refusal;
mod reported_recipients;
mod sweep;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stentor_core::submissions::Submissions;
use stentor_core::{Core, Settings};
use stentor_queue::store::Store;
use stentor_sendmail::settings::{Rights, Settings as Published};
use stentor_sendmail::{SETTINGS, WAITING};
use tokio::sync::watch as signal;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::accepted::AcceptedIds;
pub use self::folder::waiting_in;
use self::folder::{Folder, TakenSubmission};
use self::inject::Outcome;
use self::reported_recipients::FinishedRcpts;
use self::sweep::{FolderSweep, LIMITS, SweepResult};
use self::watch::FolderWatch;

/// Maximum submissions taken between two syncs of the folder.
const ROUND_MAX: usize = 256;
/// Maximum submissions in progress. One user gets at most half of the places that others leave, since a filter or table
/// may delay each for a minute.
const AT_ONCE: usize = 32;
/// How long a round waits for a submission to end, before the folder is searched again for other users' mail.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a new file may go unnoticed without inotify, and how often the figures for `mailq` are updated.
const POLL: Duration = Duration::from_secs(30);

/// Decides about submissions that were taken when the server ended, and publishes the settings. Must run before any
/// client is served, so that no queue id has been assigned. `accepted` must have processed the journal.
pub fn recover(core: &Arc<Core>, accepted: &mut AcceptedIds) {
    let settings = core.settings();
    let Some(path) = &settings.config.submission.folder else { return };
    let folder = recovered(core, path, &settings.config.submission.group, accepted);
    // If the folder cannot be used now, the drain logs that and tries again.
    let _ = folder.and_then(|folder| folder.publish(SETTINGS, &published(&settings).to_text()));
}

/// Returns the folder with nothing taken in it. Must be called while nothing is in progress.
fn recovered(core: &Arc<Core>, path: &Path, group: &str, accepted: &mut AcceptedIds) -> io::Result<Folder> {
    let folder = Folder::prepare(path, group)?;
    let taken = folder.taken()?;
    let is_there = |store: &Store, id| store.no_of(id).is_some() || store.in_quarantine(id).is_some();
    let is_known = |accepted: &AcceptedIds, id| accepted.has(id) || core.with(|hub, _| is_there(&hub.store, id));
    for taken in &taken {
        // A damaged file tells nothing: that is found when the submission is tried.
        let is_whole = || folder.reported(&taken.stem).is_ok_and(|reported| !reported.is_under_way(taken.id));
        if is_known(accepted, taken.id) && is_whole() { folder.remove(taken)? } else { folder.put_back(taken)? }
    }
    if !taken.is_empty() {
        folder.sync()?;
    }
    folder.each_reported(|stem, is_there| {
        if !is_there {
            return folder.forget_reported(stem);
        }
        // A damaged file is found when the submission is tried.
        let Ok(mut reported) = folder.reported(stem) else { return Ok(()) };
        if reported.resolve(|id| is_known(accepted, id)) { folder.report(stem, &reported) } else { Ok(()) }
    })?;
    accepted.clear();
    Ok(folder)
}

/// Drains the folder until the server stops; without a configured folder it ends at once. `accepted` is left over from
/// [`recover`].
pub async fn run(core: Arc<Core>, accepted: AcceptedIds, mut stopping: signal::Receiver<bool>) {
    let Some(path) = core.settings().config.submission.folder.clone() else { return };
    let mut drain = Drain {
        core,
        folder: None,
        path,
        accepted,
        sweep: FolderSweep::new(LIMITS),
        under_way: RunningSubmissions::default(),
        gone: Vec::new(),
        partly: Vec::new(),
        settings: String::new(),
        figures_at: None,
        is_down: false,
    };
    let reloads = drain.core.clone();
    let mut watch = None;
    while !*stopping.borrow() {
        let next = match drain.round(&stopping).await {
            Ok(next) => next,
            Err(error) => {
                drain.failed(&error);
                watch = None;
                Some(Instant::now() + POLL)
            }
        };
        // New files from here on wake the drain; a look after the watch began has seen the earlier ones.
        let is_new = watch.is_none() && drain.folder.is_some();
        if is_new {
            watch = FolderWatch::begin(&drain.path).ok();
        }
        let Some(until) = next.filter(|_| !(is_new && watch.is_some())) else { continue };
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => {}
            () = tokio::time::sleep_until(until) => {}
            () = FolderWatch::changed(watch.as_ref()) => {}
            () = reloads.reloaded.notified() => {}
            () = drain.under_way.one_ends() => {}
        }
    }
    drain.stop().await;
}

struct Drain {
    core: Arc<Core>,
    /// `None` while the folder cannot be used.
    folder: Option<Arc<Folder>>,
    path: PathBuf,
    /// Messages whose files may still be there.
    accepted: AcceptedIds,
    sweep: FolderSweep,
    under_way: RunningSubmissions,
    /// Submissions whose files were removed in this round.
    gone: Vec<String>,
    /// Partly finished submissions, with the recipients to record.
    partly: Vec<(String, FinishedRcpts)>,
    /// Settings as last published.
    settings: String,
    figures_at: Option<Instant>,
    /// It has been logged that the folder cannot be used.
    is_down: bool,
}

impl Drain {
    /// Takes the submissions of one round. Returns until when there is nothing to do; `None`: more are waiting.
    async fn round(&mut self, stopping: &signal::Receiver<bool>) -> io::Result<Option<Instant>> {
        let settings = self.core.settings();
        let folder = if let Some(folder) = &self.folder {
            folder.clone()
        } else {
            // Names and journal tell which submissions have ended.
            self.under_way.all_end().await;
            self.under_way.ended.clear();
            let group = &settings.config.submission.group;
            let folder = Arc::new(recovered(&self.core, &self.path, group, &mut self.accepted)?);
            tracing::info!(folder = %self.path.display(), "accepting mail from local users");
            self.is_down = false;
            self.folder.insert(folder).clone()
        };
        self.publish(&folder, &settings)?;
        self.finish_ended(&folder).await?;
        let idle = Some(Instant::now() + POLL);
        let (files, now) = (folder.clone(), SystemTime::now());
        // After an error a sweep starts over.
        let mut sweep = std::mem::replace(&mut self.sweep, FolderSweep::new(LIMITS));
        self.sweep = blocking(move || sweep.go_on(&files, now).map(|()| sweep)).await?;
        let seen = self.sweep.seen();
        if let Some(seen) = seen {
            *self.core.submissions.lock() = figures(&seen);
        }
        // Mail that would be refused stays where it is.
        if !self.core.troubles().is_empty() || self.core.with(|hub, _| hub.is_stopping()) {
            return Ok(idle);
        }
        let chosen = self.sweep.take(ROUND_MAX, |uid| self.under_way.is_busy(uid));
        if chosen.is_empty() {
            let Some(seen) = seen else { return Ok(None) };
            let next = seen.next.map(|at| Instant::now() + at.duration_since(now).unwrap_or_default());
            return Ok(next.into_iter().chain(idle).min());
        }
        let mut taken = Vec::with_capacity(chosen.len());
        for file in chosen {
            match folder.take(file.name, self.core.next_message_id()) {
                Ok(took) => taken.push((file.uid, took)),
                Err(error) => tracing::warn!(%error, "a submission could not be taken over"),
            }
        }
        if taken.is_empty() {
            return Ok(idle);
        }
        // The ids must survive a power cut before anything is accepted under them.
        let synced = folder.clone();
        blocking(move || synced.sync()).await?;
        self.store(&folder, taken, stopping).await?;
        Ok(None)
    }

    /// Submits taken files to the queue, several at a time. Files of users whose mail is slow are put back, and chosen
    /// again later.
    async fn store(
        &mut self,
        folder: &Arc<Folder>,
        mut taken: Vec<(u32, TakenSubmission)>,
        stopping: &signal::Receiver<bool>,
    ) -> io::Result<()> {
        loop {
            for (uid, file) in std::mem::take(&mut taken) {
                if !self.under_way.may_begin(uid) || *stopping.borrow() {
                    taken.push((uid, file));
                    continue;
                }
                let (core, folder) = (self.core.clone(), folder.clone());
                self.under_way.begin(uid, async move {
                    let outcome = Box::pin(inject::submit(&core, &folder, &file)).await;
                    (file, outcome)
                });
                if self.under_way.is_full() {
                    let _ = tokio::time::timeout(PATIENCE, self.under_way.one_ends()).await;
                }
            }
            let is_over = taken.is_empty() || *stopping.borrow();
            if is_over || tokio::time::timeout(PATIENCE, self.under_way.one_ends()).await.is_err() {
                break;
            }
        }
        let put_back = taken.iter().map(|(_, file)| folder.put_back(file)).fold(Ok(()), io::Result::and);
        if !self.under_way.is_empty() {
            // Most end at once.
            let _ = tokio::time::timeout(PATIENCE, self.under_way.all_end()).await;
        }
        put_back.and(self.finish_ended(folder).await)
    }

    /// Processes ended submissions, and removes their files durably.
    async fn finish_ended(&mut self, folder: &Arc<Folder>) -> io::Result<()> {
        if self.under_way.ended.is_empty() {
            return Ok(());
        }
        let mut done = Ok(());
        for (file, outcome) in std::mem::take(&mut self.under_way.ended) {
            done = done.and(self.finish(folder, &file, outcome));
        }
        done?;
        let folder = folder.clone();
        let (gone, partly) = (std::mem::take(&mut self.gone), std::mem::take(&mut self.partly));
        blocking(move || {
            folder.sync()?;
            // Not before the files have their names back: for a taken file without this id under way, the next start
            // would remove it.
            partly.iter().try_for_each(|(stem, reported)| folder.report(stem, reported))?;
            gone.iter().try_for_each(|stem| folder.forget_reported(stem))
        })
        .await?;
        self.accepted.clear();
        Ok(())
    }

    /// Waits for all submissions in progress when the server stops.
    async fn stop(&mut self) {
        self.under_way.all_end().await;
        if let Some(folder) = self.folder.clone()
            && let Err(error) = self.finish_ended(&folder).await
        {
            tracing::warn!(%error, "the submission folder is unusable; it is checked again at the next start");
        }
    }

    fn finish(&mut self, folder: &Folder, file: &TakenSubmission, outcome: Outcome) -> io::Result<()> {
        match outcome {
            Outcome::Done => {
                self.accepted.add(file.id);
                self.gone.push(file.stem.clone());
                folder.remove(file)
            }
            Outcome::Partly(reported) => {
                self.accepted.add(file.id);
                self.partly.push((file.stem.clone(), reported));
                folder.defer(file)
            }
            Outcome::Later(why) => {
                tracing::debug!(submission = %file.stem, %why, "submission deferred; will retry");
                folder.defer(file)
            }
            Outcome::Bad(why) => {
                tracing::error!(submission = %file.stem, %why, "a submission was moved to `bad`");
                self.gone.push(file.stem.clone());
                folder.set_aside(file, &why)
            }
        }
    }

    /// Publishes the files that the program reads in the folder.
    fn publish(&mut self, folder: &Folder, settings: &Settings) -> io::Result<()> {
        let text = published(settings).to_text();
        if text != self.settings {
            folder.publish(SETTINGS, &text)?;
            self.settings = text;
        }
        if self.figures_at.is_none_or(|at| at.elapsed() >= POLL) {
            self.figures_at = Some(Instant::now());
            let messages = self.core.with(|hub, _| hub.store.len());
            folder.publish(WAITING, &format!("{messages} {}\n", self.core.clock.now()))?;
        }
        Ok(())
    }

    fn failed(&mut self, error: &io::Error) {
        self.folder = None;
        self.core.submissions.lock().unusable = Some(format!("{}: {error}", self.path.display()));
        // The files on disk give the same information.
        self.partly.clear();
        self.settings.clear();
        // Logged again if the folder was usable in between.
        if !std::mem::replace(&mut self.is_down, true) {
            tracing::error!(folder = %self.path.display(), %error, "the submission folder is unusable; mail from \
                local users waits");
        }
    }
}

/// Submissions in progress.
#[derive(Default)]
struct RunningSubmissions {
    tasks: JoinSet<(u32, TakenSubmission, Outcome)>,
    /// Their number by user.
    users: BTreeMap<u32, usize>,
    /// Ended submissions whose files are not updated yet.
    ended: Vec<(TakenSubmission, Outcome)>,
}

impl RunningSubmissions {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn is_full(&self) -> bool {
        self.tasks.len() >= AT_ONCE
    }

    fn is_busy(&self, uid: u32) -> bool {
        let own = self.users.get(&uid).copied().unwrap_or_default();
        let others = self.tasks.len() - own;
        own >= (AT_ONCE.saturating_sub(others) / 2).max(1)
    }

    fn may_begin(&self, uid: u32) -> bool {
        !self.is_full() && !self.is_busy(uid)
    }

    fn begin(&mut self, uid: u32, submission: impl Future<Output = (TakenSubmission, Outcome)> + Send + 'static) {
        *self.users.entry(uid).or_default() += 1;
        self.tasks.spawn(async move {
            let (file, outcome) = submission.await;
            (uid, file, outcome)
        });
    }

    /// Waits until one ends; for ever if there is none.
    async fn one_ends(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok((uid, file, outcome))) => {
                if let Some(count) = self.users.get_mut(&uid) {
                    *count -= 1;
                }
                self.users.retain(|_, count| *count > 0);
                self.ended.push((file, outcome));
            }
            // A panic ends the process.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    async fn all_end(&mut self) {
        while !self.is_empty() {
            self.one_ends().await;
        }
    }
}

fn figures(seen: &SweepResult) -> Submissions {
    let ms = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let (waiting, deferred) = (seen.submissions, seen.deferred);
    Submissions { waiting, deferred, oldest: seen.oldest.map(ms), unusable: None }
}

fn published(settings: &Settings) -> Published {
    let config = &settings.config;
    let submission = &config.submission;
    Published {
        hostname: config.hostname.clone(),
        origin: origin(settings).to_owned(),
        message_bytes_max: config.message_size_bytes_max,
        recipients_max: submission.recipients_max,
        // The program has its own working directory.
        control: std::path::absolute(&config.control.socket).ok().and_then(|path| path.to_str().map(str::to_owned)),
        rights: rights(settings),
    }
}

/// Returns the domain for names without one.
fn origin(settings: &Settings) -> &str {
    &settings.rules.addresses.origin
}

fn rights(settings: &Settings) -> Rights {
    let submission = &settings.config.submission;
    let (strict, trusted) = (submission.strict, submission.trusted_users.clone());
    Rights { strict, trusted, senders: submission.senders.clone() }
}

/// Runs work that waits for the disk beside the sessions.
async fn blocking<T: Send + 'static>(what: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(what).await.unwrap_or_else(|_| Err(io::Error::other("the server is stopping")))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn users_whose_mail_is_slow_leave_places_for_others() {
        let mut under_way = RunningSubmissions::default();
        let counts: Vec<usize> = (0..6)
            .map(|uid| {
                while under_way.may_begin(uid) {
                    under_way.begin(uid, pending());
                }
                under_way.users.get(&uid).copied().unwrap_or_default()
            })
            .collect();
        assert_eq!(counts, [16, 8, 4, 2, 1, 1]);
        assert!(under_way.is_full() && !under_way.may_begin(6));
    }

    #[tokio::test]
    async fn a_place_is_free_again_once_its_submission_has_ended() {
        let mut under_way = RunningSubmissions::default();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let file = TakenSubmission { stem: "1".to_owned(), id: stentor_queue::ids::MessageId(1) };
        under_way.begin(7, async {
            let _ = wait.await;
            (file, Outcome::Done)
        });
        drop(go);
        under_way.all_end().await;
        assert!(under_way.users.is_empty() && under_way.ended.len() == 1);
    }
}
