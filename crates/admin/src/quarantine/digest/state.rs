//! The quarantined messages that digests have announced, kept over restarts in files beside the journal.
//!
//! Promise: `quarantine.digests` is replaced whole and durably before the first digest of a run is stored, and after
//! the last; in between `quarantine.digests.after` is at most [`super::PROGRESS_EVERY`] digests behind. So a crash
//! omits nobody, and repeats no more than that. Whether a message is new does not depend on a clock: the file names
//! every quarantined message already announced.
//!
//! Failure: a file that cannot be written stops the run, which continues later. A damaged file is moved aside (`.bad`),
//! and the quarantine is announced again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stentor_core::files::{read, replace};
use stentor_queue::ids::{MessageId, Ms};

const FILE: &str = "quarantine.digests";
const AFTER: &str = "quarantine.digests.after";
/// Maximum size of a file; a larger one would name more messages than any disk holds.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
const MODE: u32 = 0o600;

/// A run of digests in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The time that it is for.
    pub due: Ms,
    /// The announced messages, ascending.
    pub of: Vec<MessageId>,
    /// Recipients up to this one have their digests.
    pub after: Option<u32>,
}

/// The state; see the module's documentation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct State {
    /// The last time for which all digests were sent.
    pub last: Ms,
    /// Announced messages that are still quarantined, ascending.
    pub named: Vec<MessageId>,
    pub run: Option<Run>,
}

impl State {
    /// Loads the files. `None`: no digest was ever due. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or moved aside.
    pub fn load(folder: &Path) -> io::Result<Option<State>> {
        let path = folder.join(FILE);
        let Some(octets) = read(&path, FILE_BYTES_MAX)? else { return Ok(None) };
        let Some(mut state) = State::parse(&octets) else {
            tracing::warn!(path = %path.display(), "quarantine digest state damaged; messages will be announced again");
            let mut bad = path.clone().into_os_string();
            bad.push(".bad");
            fs::rename(&path, PathBuf::from(bad))?;
            return Ok(Some(State::default()));
        };
        if let Some(run) = &mut state.run
            && let Some(octets) = read(&folder.join(AFTER), FILE_BYTES_MAX)?
            && let Ok(progress) = serde_json::from_slice::<Value>(&octets)
            && progress["due"] == run.due
        {
            run.after = progress["after"].as_u64().and_then(|after| u32::try_from(after).ok());
        }
        Ok(Some(state))
    }

    fn parse(octets: &[u8]) -> Option<State> {
        let ids = |value: &Value| -> Option<Vec<MessageId>> {
            value.as_array()?.iter().map(|id| id.as_u64().map(MessageId)).collect()
        };
        let value = serde_json::from_slice::<Value>(octets).ok()?;
        let run = match &value["run"] {
            Value::Null => None,
            run => Some(Run { due: run["due"].as_u64()?, of: ids(&run["of"])?, after: None }),
        };
        (value["version"] == 1).then_some(State { last: value["last"].as_u64()?, named: ids(&value["named"])?, run })
    }

    /// Stores the state durably, except the run's progress. Blocks.
    ///
    /// # Errors
    /// The write failed.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let ids = |ids: &[MessageId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
        let run = self.run.as_ref().map(|run| json!({"due": run.due, "of": ids(&run.of)}));
        let value = json!({"version": 1, "last": self.last, "named": ids(&self.named), "run": run});
        replace(&folder.join(FILE), value.to_string().as_bytes(), MODE)
    }
}

impl Run {
    /// Stores a run's progress durably. Blocks.
    ///
    /// # Errors
    /// The write failed.
    pub fn save_progress(due: Ms, after: u32, folder: &Path) -> io::Result<()> {
        replace(&folder.join(AFTER), json!({"due": due, "after": after}).to_string().as_bytes(), MODE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::load(folder.path()).unwrap(), None);
        let run = Run { due: 9, of: vec![MessageId(1), MessageId(1 << 59)], after: None };
        let mut state = State { last: 5, named: vec![MessageId(3)], run: Some(run) };
        state.save(folder.path()).unwrap();
        assert_eq!(State::load(folder.path()).unwrap(), Some(state.clone()));
        Run::save_progress(9, 77, folder.path()).unwrap();
        state.run.as_mut().unwrap().after = Some(77);
        assert_eq!(State::load(folder.path()).unwrap(), Some(state.clone()));
        // The progress of another run is ignored.
        Run::save_progress(8, 99, folder.path()).unwrap();
        assert_eq!(State::load(folder.path()).unwrap().unwrap().run.unwrap().after, None);
    }

    #[test]
    fn a_damaged_file_names_all_anew() {
        let folder = tempfile::tempdir().unwrap();
        for damaged in
            ["", "{", "{\"version\": 2, \"last\": 1, \"named\": []}", "{\"version\":1,\"last\":1,\"named\":[-1]}"]
        {
            fs::write(folder.path().join(FILE), damaged).unwrap();
            assert_eq!(State::load(folder.path()).unwrap(), Some(State::default()), "{damaged}");
            assert!(!folder.path().join(FILE).exists(), "{damaged}");
        }
    }
}
