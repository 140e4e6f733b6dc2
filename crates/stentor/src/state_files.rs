//! State learned about others, in files beside the journal: read at the start, written periodically and at the end.
//!
//! Promise: mail never waits for these files. A file is replaced whole, and only after a change; writes of one file
//! never overlap. MTA-STS policies are written within seconds, so that nobody can remove one by blocking the domain's
//! web server during a restart (RFC 8461 10.2). A crash loses up to one minute of the scheduler's state and some
//! minutes of the rest. Histories of addresses and domains are in the journal (`committer/histories.rs`), since an id
//! identifies an address only there.
//!
//! Failure: a damaged or unreadable file is renamed, its extension replaced by `bad`, and its state is lost; of a file
//! with one line per policy, the readable lines are used. A failed write is logged as a warning and retried.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stentor_core::Core;
use stentor_core::files::{read, replace};
use stentor_core::sts::StsPolicies;
use stentor_domain_reports::{DailyCounts, DayCount};
use stentor_reputation::Greylist;

const MIB: u64 = 1024 * 1024;
const STS_FILE: &str = "mta-sts";
const STS_BYTES_MAX: u64 = 128 * MIB;

/// Minimum pause after a write, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 20;

/// One file with a part of the state of `K`.
struct StateFile<K> {
    /// File name in the data directory.
    name: &'static str,
    /// For the log: the contents, and the consequence if they cannot be read.
    what: &'static str,
    without: &'static str,
    /// Write interval while there are changes.
    save_every: Duration,
    /// Size limit when reading; larger than a file with all limits reached.
    bytes_max: u64,
    /// Restores from the file. `Some`: a part was unusable, with the reason; `Err`: nothing was usable.
    restore: fn(&K, &[u8]) -> Result<Option<String>, String>,
    /// The new file, if anything has changed since the last call.
    save: fn(&K) -> Option<Vec<u8>>,
    /// Marks the state as changed again after a failed write.
    set_changed: fn(&K),
    /// Held while the file is written, however long the disk takes.
    writing: Mutex<()>,
}

fn greylist() -> StateFile<Arc<Core>> {
    StateFile {
        name: "greylist",
        what: "the greylist",
        without: "greylisting starts over",
        save_every: Duration::from_mins(10),
        bytes_max: 64 * MIB,
        restore: |core, octets| {
            *core.greylist.lock() = Greylist::load(octets).map_err(|_| "it is damaged")?;
            Ok(None)
        },
        save: |core| {
            let settings = core.settings().config.greylist;
            let body = core.greylist.lock().save(&settings, core.clock.now())?;
            Some(Greylist::sealed(body))
        },
        set_changed: |core| core.greylist.lock().set_changed(),
        writing: Mutex::default(),
    }
}

fn sts_policies() -> StateFile<Arc<Core>> {
    StateFile {
        name: STS_FILE,
        what: "MTA-STS policies",
        without: "they will be fetched again",
        save_every: Duration::from_secs(5),
        bytes_max: STS_BYTES_MAX,
        restore: |core, octets| match core.policies.restore(octets) {
            Ok(damaged) => Ok(damaged.map(|damaged| damaged.to_string())),
            Err(error) => Err(error.to_string()),
        },
        save: |core| core.policies.save().map(String::into_bytes),
        set_changed: |core| core.policies.set_changed(),
        writing: Mutex::default(),
    }
}

fn tls_seen() -> StateFile<Arc<Core>> {
    StateFile {
        name: "tls_seen.json",
        what: "TLS sessions seen with hosts",
        without: "they are forgotten",
        save_every: Duration::from_mins(10),
        bytes_max: 256 * MIB,
        restore: |core, octets| core.tls_seen.load(octets).map(|()| None).map_err(|error| error.to_string()),
        save: |core| core.tls_seen.save(),
        set_changed: |core| core.tls_seen.set_changed(),
        writing: Mutex::default(),
    }
}

fn tls_counts() -> StateFile<Arc<Core>> {
    StateFile {
        name: "tls_reports",
        what: "counts for TLS reports",
        without: "counting starts over",
        save_every: Duration::from_mins(5),
        bytes_max: 256 * MIB,
        restore: |core, octets| restore_counts(&core.tls_counts, octets),
        save: |core| save_counts(&core.tls_counts),
        set_changed: |core| core.tls_counts.lock().set_changed(),
        writing: Mutex::default(),
    }
}

fn dmarc_counts() -> StateFile<Arc<Core>> {
    StateFile {
        name: "dmarc_reports",
        what: "counts for DMARC reports",
        without: "counting starts over",
        save_every: Duration::from_mins(5),
        bytes_max: 256 * MIB,
        restore: |core, octets| restore_counts(&core.dmarc_counts, octets),
        save: |core| save_counts(&core.dmarc_counts),
        set_changed: |core| core.dmarc_counts.lock().set_changed(),
        writing: Mutex::default(),
    }
}

fn restore_counts<C: DayCount>(counts: &Mutex<DailyCounts<C>>, octets: &[u8]) -> Result<Option<String>, String> {
    let text = str::from_utf8(octets).map_err(|error| error.to_string())?;
    *counts.lock() = DailyCounts::read(text).map_err(|error| error.to_string())?;
    Ok(None)
}

fn save_counts<C: DayCount>(counts: &Mutex<DailyCounts<C>>) -> Option<Vec<u8>> {
    let counts = {
        let mut counts = counts.lock();
        counts.take_changed().then(|| counts.clone())
    };
    // Counting goes on while the copy is formatted.
    counts.map(|counts| counts.write().into_bytes())
}

/// Counts of users' submissions; without the file a daily limit would start again at each restart.
fn user_counts() -> StateFile<Arc<Core>> {
    StateFile {
        name: "user-counts",
        what: "counts of users' submissions",
        without: "counting starts over",
        save_every: Duration::from_mins(1),
        bytes_max: 256 * MIB,
        restore: |core, octets| {
            let text = str::from_utf8(octets).map_err(|error| error.to_string())?;
            let restored = core.security().counts().restore(text, core.clock.now(), core.clock.steady());
            restored.map(|()| None).map_err(|error| error.to_string())
        },
        save: |core| core.security().counts().save(core.clock.now(), core.clock.steady()).map(String::into_bytes),
        set_changed: |core| core.security().counts().set_changed(),
        writing: Mutex::default(),
    }
}

/// Complaint rates; without the file the history is read from its beginning.
fn complaints() -> StateFile<Arc<Core>> {
    StateFile {
        name: "complaints.json",
        what: "complaint rates",
        without: "they are counted again from the history",
        save_every: Duration::from_mins(1),
        bytes_max: 64 * MIB,
        restore: |core, octets| core.complaints.restore(octets).map(|()| None).map_err(|error| error.to_string()),
        save: |core| core.complaints.save(),
        set_changed: |core| core.complaints.set_changed(),
        writing: Mutex::default(),
    }
}

/// Clocks, limits and counts of the scheduler.
fn learned() -> StateFile<Arc<Core>> {
    StateFile {
        name: "learned",
        what: "the state of hosts and mailboxes",
        without: "it will be learned again",
        save_every: Duration::from_mins(1),
        bytes_max: 1_024 * MIB,
        restore: |core, octets| match core.recall(octets) {
            Ok(bad) => Ok(bad.map(|bad| format!("{bad} invalid lines"))),
            Err(error) => Err(error.to_string()),
        },
        save: Core::learned_file,
        set_changed: |core| core.learned_file_lost(),
        writing: Mutex::default(),
    }
}

/// Reads the policies kept by the server of this data directory, without changing the file. Also returns why some or
/// all are missing.
pub(crate) fn kept_policies(folder: &Path) -> (StsPolicies, Option<String>) {
    let policies = StsPolicies::default();
    let why = match read(&folder.join(STS_FILE), STS_BYTES_MAX) {
        Err(error) => Some(error.to_string()),
        Ok(None) => None,
        Ok(Some(octets)) => match policies.restore(&octets) {
            Ok(damaged) => damaged.map(|damaged| damaged.to_string()),
            Err(error) => Some(error.to_string()),
        },
    };
    (policies, why)
}

impl<K> StateFile<K> {
    /// Loads the file. Blocks.
    fn load(&self, of: &K, folder: &Path) {
        let path = folder.join(self.name);
        let what = self.what;
        let why = match read(&path, self.bytes_max) {
            Ok(None) => return,
            Err(error) => error.to_string(),
            Ok(Some(octets)) => match (self.restore)(of, &octets) {
                Ok(None) => return,
                Ok(Some(damaged)) => {
                    tracing::warn!(path = %path.display(), "cannot read all of {what} ({damaged}); using the rest");
                    return;
                }
                Err(why) => why,
            },
        };
        tracing::warn!(path = %path.display(), "cannot read {what} ({why}); {}", self.without);
        // If it cannot be renamed, it will be overwritten.
        let _ = fs::rename(&path, path.with_extension("bad"));
    }

    /// Writes the file if anything has changed, after any write under way. Blocks.
    fn save(&self, of: &K, folder: &Path) {
        let _writing = self.writing.lock();
        let Some(octets) = (self.save)(of) else { return };
        let path = folder.join(self.name);
        if let Err(error) = replace(&path, &octets, 0o600) {
            (self.set_changed)(of);
            tracing::warn!(path = %path.display(), %error, "cannot write {}", self.what);
        }
    }
}

/// All files of learned state.
pub struct LearnedState {
    core: Arc<Core>,
    folder: PathBuf,
    files: Vec<Arc<StateFile<Arc<Core>>>>,
}

impl LearnedState {
    /// Loads the files, which blocks, and writes them periodically until the process ends.
    pub fn start(core: &Arc<Core>) -> LearnedState {
        let folder = core.settings().config.data_dir.clone();
        let files = [
            greylist(),
            sts_policies(),
            tls_seen(),
            tls_counts(),
            dmarc_counts(),
            user_counts(),
            complaints(),
            learned(),
        ];
        let files = files.map(Arc::new);
        for file in &files {
            file.load(core, &folder);
            tokio::spawn(keep(file.clone(), core.clone(), folder.clone()));
        }
        LearnedState { core: core.clone(), folder, files: files.into() }
    }

    /// Writes the files that have changed. Blocks.
    pub fn save(&self) {
        for file in &self.files {
            file.save(&self.core, &self.folder);
        }
    }
}

async fn keep(file: Arc<StateFile<Arc<Core>>>, core: Arc<Core>, folder: PathBuf) {
    let mut pause = file.save_every;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        let every = file.save_every;
        let (file, core, folder) = (file.clone(), core.clone(), folder.clone());
        // The next write starts after this one ends: a stalled disk blocks one thread per file.
        let _ = tokio::task::spawn_blocking(move || file.save(&core, &folder)).await;
        // Writing a large file takes a bounded share of the time.
        pause = every.max(begun.elapsed() * PAUSE_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A text and whether it has changed; saving it signals `begun` and waits for `go`.
    struct Text {
        state: Mutex<(String, bool)>,
        begun: Sender<()>,
        go: Mutex<Receiver<()>>,
    }

    fn text(begun: Sender<()>, go: Receiver<()>) -> Arc<Text> {
        Arc::new(Text { state: Mutex::new(("a text".to_owned(), true)), begun, go: Mutex::new(go) })
    }

    fn kept() -> StateFile<Text> {
        StateFile {
            name: "text",
            what: "a text",
            without: "it is empty",
            save_every: Duration::from_mins(1),
            bytes_max: MIB,
            restore: |of, octets| {
                of.state.lock().0 = String::from_utf8(octets.to_vec()).map_err(|error| error.to_string())?;
                Ok(None)
            },
            save: |of| {
                let saved = {
                    let mut state = of.state.lock();
                    std::mem::take(&mut state.1).then(|| state.0.clone().into_bytes())
                }?;
                of.begun.send(()).unwrap();
                of.go.lock().recv().unwrap();
                Some(saved)
            },
            set_changed: |of| of.state.lock().1 = true,
            writing: Mutex::default(),
        }
    }

    #[test]
    fn what_could_not_be_written_is_written_later_and_one_waits_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let (begun, begins) = channel();
        let (go, goes) = channel();
        let (text, file) = (text(begun, goes), Arc::new(kept()));
        go.send(()).unwrap();
        file.save(&text, &data);
        begins.recv().unwrap();
        assert!(text.state.lock().1, "there is no folder");
        fs::create_dir(&data).unwrap();
        let saving = {
            let (text, file, data) = (text.clone(), file.clone(), data.clone());
            std::thread::spawn(move || file.save(&text, &data))
        };
        begins.recv().unwrap();
        assert!(file.writing.try_lock().is_none(), "a second write waits");
        go.send(()).unwrap();
        saving.join().unwrap();
        assert_eq!(fs::read_to_string(data.join("text")).unwrap(), "a text");
        assert!(!text.state.lock().1);
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let ((begun, _), (_, go)) = (channel(), channel());
        let (text, file) = (text(begun, go), kept());
        fs::write(folder.path().join("text"), b"\xff").unwrap();
        file.load(&text, folder.path());
        assert_eq!(text.state.lock().0, "a text");
        assert_eq!(fs::read(folder.path().join("text.bad")).unwrap(), b"\xff");
        fs::write(folder.path().join("text"), "another").unwrap();
        file.load(&text, folder.path());
        assert_eq!(text.state.lock().0, "another");
    }
}
