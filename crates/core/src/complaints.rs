//! Complaint rates of the running server: a fold over the history, continued from a file after a restart.
//!
//! The history has each delivery and each complaint already, durable and in order, so deliveries do not pay for
//! counting. The file (`state_files` writes it each minute) has the sums together with the position in the history up
//! to which they go: whatever was added since the last write is read again after a crash, so nothing is lost or counted
//! twice. Without the file the history is read from its beginning. Without a history there are no rates.
//!
//! Failure: a history that cannot be read is tried again; records deleted before they were read are missing.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stentor_bounces::complaints::{
    ComplaintLevel, ComplaintLimits, ComplaintRates, ComplaintRow, ComplaintSubject, ComplaintWindow,
};
use stentor_history::{Position, Reader};
use stentor_queue::ids::Ms;

use crate::Core;

/// Interval of reads while nothing new came.
const POLL: Duration = Duration::from_secs(1);
/// Time in which a complaint that was not accepted is expected again.
const RETRY_MS: Ms = 3_600_000;
/// Maximum complaints that are expected again; further ones do not count.
const EXPECTED_MAX: usize = 1_000;
/// Pause between two reads of a long history, which is not urgent.
const PAUSE: Duration = Duration::from_millis(5);
/// Records read at once.
const SCAN_MAX: usize = 20_000;
/// Records this far in the future are from a wrong clock, and would end all windows.
const FUTURE_MS_MAX: Ms = 3_600_000;
const VERSION: u32 = 1;

/// The file.
#[derive(Serialize, Deserialize)]
struct ComplaintFile {
    version: u32,
    position: String,
    rates: ComplaintRates,
}

#[derive(Default)]
struct ComplaintState {
    rates: ComplaintRates,
    position: Position,
    has_changed: bool,
}

/// Rates and the position in the history up to which they go.
#[derive(Default)]
pub struct Complaints {
    state: Mutex<ComplaintState>,
    /// Complaints that were stored but whose message was not accepted, so that they are not counted yet, by list and
    /// recipient, and when.
    expected: Mutex<BTreeMap<[String; 2], Ms>>,
}

/// A rate over a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighRate {
    pub level: ComplaintLevel,
    pub subject: ComplaintSubject,
    pub window: ComplaintWindow,
    pub row: ComplaintRow,
}

/// Why a file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ComplaintFileError {
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    #[error("unsupported version {0}; this program reads version {VERSION}")]
    Version(u32),
    #[error("its position in the history is damaged")]
    Position,
}

impl Complaints {
    pub fn rows(&self, subject: ComplaintSubject, window: ComplaintWindow, now: Ms) -> Vec<ComplaintRow> {
        self.state.lock().rates.rows(subject, window, now)
    }

    /// Rates over the limits, the worst level of each name once.
    pub fn high(&self, limits: ComplaintLimits, now: Ms) -> Vec<HighRate> {
        let mut high: Vec<HighRate> = Vec::new();
        for subject in ComplaintSubject::ALL {
            for window in ComplaintWindow::ALL {
                for row in self.rows(subject, window, now) {
                    let Some(level) = row.count.level(limits) else { continue };
                    let is_same = |known: &&mut HighRate| known.subject == subject && known.row.name == row.name;
                    match high.iter_mut().find(is_same) {
                        Some(known) if known.level <= level => {}
                        Some(known) => *known = HighRate { level, subject, window, row },
                        None => high.push(HighRate { level, subject, window, row }),
                    }
                }
            }
        }
        high
    }

    /// The message of a complaint was not accepted: the reporter sends it again.
    pub fn expect_again(&self, list: &str, recipient: &str, now: Ms) {
        let mut expected = self.expected.lock();
        expected.retain(|_, at| now.abs_diff(*at) < RETRY_MS);
        if expected.len() < EXPECTED_MAX {
            expected.insert([list.to_owned(), recipient.to_ascii_lowercase()], now);
        }
    }

    /// Whether a complaint repeats one that was not accepted. Each is expected once.
    pub fn take_expected(&self, list: &str, recipient: &str, now: Ms) -> bool {
        let taken = self.expected.lock().remove(&[list.to_owned(), recipient.to_ascii_lowercase()]);
        taken.is_some_and(|at| now.abs_diff(at) < RETRY_MS)
    }

    /// Restores the file.
    ///
    /// # Errors
    /// Nothing of the file is used.
    pub fn restore(&self, octets: &[u8]) -> Result<(), ComplaintFileError> {
        let file: ComplaintFile = serde_json::from_slice(octets)?;
        if file.version != VERSION {
            return Err(ComplaintFileError::Version(file.version));
        }
        let position = file.position.parse().map_err(|_| ComplaintFileError::Position)?;
        *self.state.lock() = ComplaintState { rates: file.rates, position, has_changed: false };
        Ok(())
    }

    /// The new file, if anything has changed since the last call.
    pub fn save(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.has_changed) {
            return None;
        }
        let (position, rates) = (state.position.to_string(), state.rates.clone());
        drop(state);
        // Maps with text keys can always be written.
        serde_json::to_vec(&ComplaintFile { version: VERSION, position, rates }).ok()
    }

    pub fn set_changed(&self) {
        self.state.lock().has_changed = true;
    }

    /// Reads the next records. Returns whether there may be more.
    fn read(&self, reader: &Reader, now: Ms) -> io::Result<bool> {
        let (from, mut count) = (self.state.lock().position, 0);
        let progress = reader.follow(from, &mut |record, next| {
            count += 1;
            if record.at() < now + FUTURE_MS_MAX {
                // Position and sums change together, so that a file of both is consistent at any time.
                let mut state = self.state.lock();
                state.rates.add(record);
                state.position = next;
            }
            if count < SCAN_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut state = self.state.lock();
        state.has_changed |= count > 0;
        state.position = progress.next;
        Ok(count >= SCAN_MAX)
    }
}

/// Follows the history until the runtime ends; returns at once if there is none.
pub async fn follow(core: Arc<Core>) {
    if !core.history.is_on() {
        return;
    }
    let folder = core.settings().config.data_dir.join("history");
    loop {
        let (reading, folder) = (core.clone(), folder.clone());
        let read = tokio::task::spawn_blocking(move || {
            let reader = Reader::open(&folder)?;
            reading.complaints.read(&reader, reading.clock.now())
        });
        let pause = match read.await {
            Ok(Ok(true)) => PAUSE,
            Ok(Ok(false)) | Err(_) => POLL,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the history cannot be read for complaint rates");
                POLL
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use stentor_history::{Config, History};
    use stentor_records::record::{Attempt, Note, Record, Topic};

    use super::*;

    const NOW: Ms = 1_795_000_000_000;

    fn history(dir: &std::path::Path) -> History {
        History::start(Config {
            dir: dir.to_owned(),
            keep_ms: 86_400_000,
            size_bytes_max: 1 << 24,
            free_bytes_min: 0,
            sync_ms: 1,
            now: Box::new(|| NOW),
            complain: Box::new(|_| {}),
        })
        .unwrap()
    }

    fn complaint(history: &History, at: Ms) {
        let text = "report: list=news, to=<a@b.example>, proven, action=complained, cause=content, rule=none, from=l.example: abuse";
        history.append(&Record::Note(Note { at, text, topic: Topic::Policy, ..Note::default() }));
    }

    fn news(complaints: &Complaints) -> (u64, u64) {
        let rows = complaints.rows(ComplaintSubject::List, ComplaintWindow::Day, NOW);
        rows.first().map_or((0, 0), |row| (row.count.delivered, row.count.complaints))
    }

    #[test]
    fn a_complaint_that_was_not_accepted_is_expected_once_within_an_hour() {
        let complaints = Complaints::default();
        complaints.expect_again("news", "Ann@b.example", NOW);
        assert!(!complaints.take_expected("other", "ann@b.example", NOW));
        assert!(complaints.take_expected("news", "ann@b.example", NOW + RETRY_MS - 1));
        assert!(!complaints.take_expected("news", "ann@b.example", NOW));
        complaints.expect_again("news", "ann@b.example", NOW);
        assert!(!complaints.take_expected("news", "ann@b.example", NOW + RETRY_MS));
        (0..2 * EXPECTED_MAX).for_each(|n| complaints.expect_again("news", &format!("{n}@b.example"), NOW));
        assert_eq!(complaints.expected.lock().len(), EXPECTED_MAX);
    }

    #[test]
    fn sums_continue_after_a_restart_without_loss_or_repetition() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("history");
        let (written, before) = (history(&dir), Complaints::default());
        let to = ["a@b.example", "c@d.example"].into_iter().collect();
        let (mailer, host, list) = ("esmtp", "mx.b.example", "news");
        written.append(&Record::Attempt(Attempt { at: NOW, mailer, host, list, to, ..Attempt::default() }));
        complaint(&written, NOW);
        complaint(&written, NOW + 2 * FUTURE_MS_MAX);
        written.flush();
        let reader = Reader::open(&dir).unwrap();
        before.read(&reader, NOW).unwrap();
        assert_eq!(news(&before), (2, 1));
        let file = before.save().unwrap();
        assert_eq!(before.save(), None);
        // A crash: the last complaint is in the history alone.
        complaint(&written, NOW);
        written.flush();
        before.read(&reader, NOW).unwrap();
        let after = Complaints::default();
        after.restore(&file).unwrap();
        after.read(&reader, NOW).unwrap();
        assert_eq!((news(&before), news(&after)), ((2, 2), (2, 2)));
        let limits = ComplaintLimits { per_10000_warn: 10, per_10000_alarm: 30, deliveries_min: 1 };
        assert_eq!(after.high(limits, NOW), [], "two complaints are too few");
        complaint(&written, NOW);
        written.flush();
        after.read(&reader, NOW).unwrap();
        let high = after.high(limits, NOW);
        assert_eq!(
            high.iter().map(|high| (high.level, high.subject)).collect::<Vec<_>>(),
            [(ComplaintLevel::Alarm, ComplaintSubject::List), (ComplaintLevel::Alarm, ComplaintSubject::Provider)]
        );
        assert!(matches!(after.restore(b"{}"), Err(ComplaintFileError::Damaged(_))));
    }
}
