//! What was learned of others, in files beside the journal: read at the start, written now and then and at the end.
//!
//! Promise: mail waits for none of them. A file is replaced whole, and only after a change; writes of one file never overlap. MTA-STS policies are
//! written within seconds, so that nobody can take one away by keeping us from the domain's web server over a restart (RFC 8461 10.2); of
//! the others a crash forgets some minutes; of what the scheduler has learned one. Histories of addresses and domains are in the journal
//! (`committer/histories.rs`), since only there an id is an address's own.
//!
//! Failure: a file that is damaged or cannot be read is renamed, its extension replaced by `bad`, and what it had is forgotten; of a file with a line
//! for each policy the readable lines are used. A failed write is logged as a warning and repeated.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stentor_engine::core::Core;
use stentor_engine::core::sts::StsPolicies;
use stentor_engine::files::replace;
use stentor_posture::tlsrpt::Counts;
use stentor_strangers::Greylist;

const MIB: u64 = 1024 * 1024;
const STS_FILE: &str = "mta-sts";
const STS_BYTES_MAX: u64 = 128 * MIB;

/// A write is followed by a pause of this many times what it took, at least.
const PAUSE_FACTOR: u32 = 20;

/// One file, for a part of the state of `K`.
struct Kept<K> {
    /// In the data directory.
    name: &'static str,
    /// For the log: what is in it, and what follows if that cannot be read.
    what: &'static str,
    without: &'static str,
    /// How often the file is written if anything has changed.
    save_every: Duration,
    /// Limit when reading; above what a file at all its limits can have.
    bytes_max: u64,
    /// Restores from the file. `Some`: a part was unusable, and why; `Err`: nothing was usable.
    restore: fn(&K, &[u8]) -> Result<Option<String>, String>,
    /// The file, if anything has changed since it was asked last.
    save: fn(&K) -> Option<Vec<u8>>,
    /// Marks it as changed again, after a failed write.
    set_changed: fn(&K),
    /// Held while the file is written, for as long as the disk takes.
    writing: Mutex<()>,
}

fn greylist() -> Kept<Arc<Core>> {
    Kept {
        name: "greylist",
        what: "the greylist",
        without: "greylisting begins anew",
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

fn sts_policies() -> Kept<Arc<Core>> {
    Kept {
        name: STS_FILE,
        what: "MTA-STS policies",
        without: "they are fetched anew",
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

fn tls_seen() -> Kept<Arc<Core>> {
    Kept {
        name: "tls_seen.json",
        what: "what TLS hosts had",
        without: "it is forgotten",
        save_every: Duration::from_mins(10),
        bytes_max: 256 * MIB,
        restore: |core, octets| core.tls_seen.load(octets).map(|()| None).map_err(|error| error.to_string()),
        save: |core| core.tls_seen.save(),
        set_changed: |core| core.tls_seen.set_changed(),
        writing: Mutex::default(),
    }
}

fn tls_counts() -> Kept<Arc<Core>> {
    Kept {
        name: "tls_reports",
        what: "counts for TLS reports",
        without: "they begin anew",
        save_every: Duration::from_mins(5),
        bytes_max: 256 * MIB,
        restore: |core, octets| {
            let text = str::from_utf8(octets).map_err(|error| error.to_string())?;
            *core.tls_counts.lock() = Counts::read(text).map_err(|error| error.to_string())?;
            Ok(None)
        },
        save: |core| {
            let counts = {
                let mut counts = core.tls_counts.lock();
                counts.take_changed().then(|| counts.clone())
            };
            // Deliveries count their sessions while the copy is made into text.
            counts.map(|counts| counts.write().into_bytes())
        },
        set_changed: |core| core.tls_counts.lock().set_changed(),
        writing: Mutex::default(),
    }
}

/// A limit of a day would be one of a restart without them.
fn user_counts() -> Kept<Arc<Core>> {
    Kept {
        name: "user-counts",
        what: "what users have submitted",
        without: "it is counted anew",
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

/// Clocks, limits and counts of the scheduler.
fn learned() -> Kept<Arc<Core>> {
    Kept {
        name: "learned",
        what: "what was learned of hosts and mailboxes",
        without: "it is learned anew",
        save_every: Duration::from_mins(1),
        bytes_max: 1_024 * MIB,
        restore: |core, octets| match core.recall(octets) {
            Ok(bad) => Ok(bad.map(|bad| format!("{bad} lines make no sense"))),
            Err(error) => Err(error.to_string()),
        },
        save: Core::learned_file,
        set_changed: |core| core.learned_file_lost(),
        writing: Mutex::default(),
    }
}

/// The policies that the server of this data directory keeps, for who only looks: the file is left as it is. And why some or all of
/// them are not there.
pub(crate) fn kept_policies(folder: &Path) -> (StsPolicies, Option<String>) {
    let (policies, mut octets) = (StsPolicies::default(), Vec::new());
    let read = File::open(folder.join(STS_FILE)).and_then(|file| file.take(STS_BYTES_MAX).read_to_end(&mut octets));
    let why = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
        Ok(_) => match policies.restore(&octets) {
            Ok(damaged) => damaged.map(|damaged| damaged.to_string()),
            Err(error) => Some(error.to_string()),
        },
    };
    (policies, why)
}

impl<K> Kept<K> {
    /// Takes what the file has. Blocks.
    fn load(&self, of: &K, folder: &Path) {
        let path = folder.join(self.name);
        let mut octets = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(self.bytes_max).read_to_end(&mut octets));
        let what = self.what;
        let why = match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => error.to_string(),
            Ok(_) => match (self.restore)(of, &octets) {
                Ok(None) => return,
                Ok(Some(damaged)) => {
                    tracing::warn!(path = %path.display(), "{what} cannot all be read ({damaged}); the others are used");
                    return;
                }
                Err(why) => why,
            },
        };
        tracing::warn!(path = %path.display(), "{what} cannot be read ({why}); {}", self.without);
        // If it cannot be moved, it will be replaced.
        let _ = fs::rename(&path, path.with_extension("bad"));
    }

    /// Writes the file, if anything has changed, once a write that is under way has ended. Blocks.
    fn save(&self, of: &K, folder: &Path) {
        let _writing = self.writing.lock();
        let Some(octets) = (self.save)(of) else { return };
        let path = folder.join(self.name);
        if let Err(error) = replace(&path, &octets, 0o600) {
            (self.set_changed)(of);
            tracing::warn!(path = %path.display(), %error, "{} cannot be written", self.what);
        }
    }
}

/// All of these files.
pub struct Learned {
    core: Arc<Core>,
    folder: PathBuf,
    files: Vec<Arc<Kept<Arc<Core>>>>,
}

impl Learned {
    /// Takes what the files have, which blocks, and writes them now and then until the process ends.
    pub fn start(core: &Arc<Core>) -> Learned {
        let folder = core.settings().config.data_dir.clone();
        let files = [greylist(), sts_policies(), tls_seen(), tls_counts(), user_counts(), learned()].map(Arc::new);
        for file in &files {
            file.load(core, &folder);
            tokio::spawn(keep(file.clone(), core.clone(), folder.clone()));
        }
        Learned { core: core.clone(), folder, files: files.into() }
    }

    /// Writes the files that have changed. Blocks.
    pub fn save(&self) {
        for file in &self.files {
            file.save(&self.core, &self.folder);
        }
    }
}

async fn keep(file: Arc<Kept<Arc<Core>>>, core: Arc<Core>, folder: PathBuf) {
    let mut pause = file.save_every;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        let every = file.save_every;
        let (file, core, folder) = (file.clone(), core.clone(), folder.clone());
        // The next write starts after this one has ended: a stalled disk occupies one thread per file.
        let _ = tokio::task::spawn_blocking(move || file.save(&core, &folder)).await;
        // A large file takes a part of the time that is bounded.
        pause = every.max(begun.elapsed() * PAUSE_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A text, and whether it has changed; who saves it says so and waits.
    struct Text {
        state: Mutex<(String, bool)>,
        begun: Sender<()>,
        go: Mutex<Receiver<()>>,
    }

    fn text(begun: Sender<()>, go: Receiver<()>) -> Arc<Text> {
        Arc::new(Text { state: Mutex::new(("a text".to_owned(), true)), begun, go: Mutex::new(go) })
    }

    fn kept() -> Kept<Text> {
        Kept {
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
