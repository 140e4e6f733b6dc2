//! Data about the past for pages, read from the history's files and cached for a while.
//!
//! Promise: few readings at a time ([`Readings`]). The more a result cost, the longer it is cached, so that reading
//! costs at most a few percent of a processor for any number of viewers. A past day is read once. Bounded: [`KEPT_MAX`]
//! results of each kind.
//!
//! Failure answers: a missing or unreadable history is reported on the page.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_control::ErrorCode;
use stentor_control::problem::Problem;
use stentor_core::Core;
use stentor_history::{History, Reader};
use stentor_queue::ids::Ms;
use stentor_records::civil::{DAY_S, Zone};
use stentor_records::day::{Day, MINUTE_MS};
use stentor_records::mailstat::{By, Options, Table};
use tokio::sync::Mutex;

use super::actions::{Action, Actions};
use super::story::{Entry, StoryEntries};
use crate::readings::Readings;

const KEPT_MAX: usize = 16;
const AGE_MIN: Duration = Duration::from_secs(1);
/// A result is cached for this multiple of its reading time.
const PAUSE_TIMES: u32 = 20;
/// Maximum delay of a day's records.
const LATE_MS: Ms = 3_600_000;

struct CachedReading<K, V> {
    key: K,
    made: Instant,
    took: Duration,
    is_final: bool,
    value: Arc<V>,
}

/// Results by query; one reading at a time.
struct Shelf<K, V>(Mutex<Vec<CachedReading<K, V>>>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Shelf<K, V> {
        Shelf(Mutex::new(Vec::new()))
    }
}

impl<K: PartialEq + Copy, V: Send + Sync + 'static> Shelf<K, V> {
    async fn get(
        &self,
        readings: &Readings,
        key: K,
        is_final: bool,
        read: impl FnOnce() -> Result<V, Problem> + Send + 'static,
    ) -> Result<Arc<V>, Problem> {
        let mut all = self.0.lock().await;
        if let Some(at) = all.iter().position(|kept| kept.key == key) {
            let kept = &all[at];
            if kept.is_final || kept.made.elapsed() < AGE_MIN.max(kept.took * PAUSE_TIMES) {
                return Ok(kept.value.clone());
            }
            all.remove(at);
        }
        let begun = Instant::now();
        let value = Arc::new(blocking(readings, read).await?);
        if all.len() == KEPT_MAX {
            all.remove(0);
        }
        all.push(CachedReading { key, made: Instant::now(), took: begun.elapsed(), is_final, value: value.clone() });
        Ok(value)
    }
}

#[derive(Default)]
pub struct HistoryCache {
    pub readings: Readings,
    days: Shelf<u64, Day>,
    tables: Shelf<(By, u64), Rows>,
    actions: Shelf<u64, Vec<Action>>,
}

/// A table with its total.
pub struct Rows {
    pub rows: Vec<stentor_records::mailstat::Row>,
    pub total: stentor_records::mailstat::Row,
}

impl HistoryCache {
    /// A day in the zone, by the number of its date since 1970-01-01.
    pub async fn day(&self, core: &Core, zone: &Zone, number: u64) -> Result<Arc<Day>, Problem> {
        let (source, now) = (Source::of(core), core.clock.now());
        let midnight = |number: u64| {
            let unix_s = zone.unix_s(i64::try_from(number).unwrap_or(0) * DAY_S);
            u64::try_from(unix_s).unwrap_or(0) * 1000
        };
        let (start, end) = (midnight(number), midnight(number + 1));
        let is_final = end + LATE_MS < now;
        let read = move || {
            let mut day = Day::new("", start, end - start, MINUTE_MS);
            let seen = source.open()?.scan(start, end, &mut |record| {
                day.add(record);
                ControlFlow::Continue(())
            });
            seen.map_err(|error| unreadable(&error))?;
            Ok(day)
        };
        self.days.get(&self.readings, number, is_final, read).await
    }

    /// A table of the last `hours`, with hours and days in the zone.
    pub async fn table(&self, core: &Core, zone: &Zone, by: By, hours: u64) -> Result<Arc<Rows>, Problem> {
        let (source, now) = (Source::of(core), core.clock.now());
        let local_s = zone.local_s((now / 1000).cast_signed());
        // Whole clock hours, including the current one.
        let end_s = zone.unix_s(local_s - local_s.rem_euclid(3600)) + 3600;
        let since = (u64::try_from(end_s).unwrap_or(0) * 1000).saturating_sub(hours * 3_600_000);
        let zone = zone.clone();
        let read = move || {
            let mut table = Table::new(Options { by, since: Some(since), zone, ..Options::default() });
            let seen = source.open()?.scan(since, Ms::MAX, &mut |record| {
                table.add(record);
                ControlFlow::Continue(())
            });
            seen.map_err(|error| unreadable(&error))?;
            Ok(Rows { rows: table.rows().into_iter().cloned().collect(), total: table.total() })
        };
        self.tables.get(&self.readings, (by, hours), false, read).await
    }

    /// The operators' actions of the last `hours`, newest first, up to the limit of [`Actions`].
    pub async fn actions(&self, core: &Core, hours: u64) -> Result<Arc<Vec<Action>>, Problem> {
        let (source, now) = (Source::of(core), core.clock.now());
        let since = now.saturating_sub(hours * 3_600_000);
        let read = move || {
            let mut actions = Actions::default();
            let seen = source.open()?.scan(since, Ms::MAX, &mut |record| {
                actions.add(record);
                ControlFlow::Continue(())
            });
            seen.map_err(|error| unreadable(&error))?;
            Ok(actions.newest_first())
        };
        self.actions.get(&self.readings, hours, false, read).await
    }

    /// The newest events of a queue id or recipient in the history.
    pub async fn story(&self, core: &Core, key: &str) -> Result<StoryEntries, Problem> {
        let (source, key) = (Source::of(core), key.to_owned());
        blocking(&self.readings, move || {
            let mut story = StoryEntries::default();
            // Failed sessions and look-ups name the recipient's domain.
            let domain = key.rsplit_once('@').map(|(_, domain)| domain);
            let keys: Vec<&str> = [key.as_str()].into_iter().chain(domain).collect();
            let seen = source.open()?.find_any(&keys, 0, Ms::MAX, &mut |record| {
                if let Some(entry) = Entry::of(record, &key) {
                    story.add(entry);
                }
                ControlFlow::Continue(())
            });
            seen.map_err(|error| unreadable(&error))?;
            Ok(story)
        })
        .await
    }
}

async fn blocking<V: Send + 'static>(
    readings: &Readings,
    read: impl FnOnce() -> Result<V, Problem> + Send + 'static,
) -> Result<V, Problem> {
    readings.run(read).await.unwrap_or_else(|| Err(Problem::new(ErrorCode::Failed, "the server is stopping")))
}

/// The history's location, and the writer whose records are not in the files yet.
struct Source {
    dir: PathBuf,
    history: History,
}

impl Source {
    fn of(core: &Core) -> Source {
        Source { dir: core.settings().config.data_dir.join("history"), history: core.history.clone() }
    }

    /// Opens a reader. Blocks until all appended records can be read.
    fn open(&self) -> Result<Reader, Problem> {
        if !self.history.is_on() {
            return Err(Problem::new(ErrorCode::NotFound, "no history is kept: [history] keep_days = 0"));
        }
        self.history.flush();
        Reader::open(&self.dir).map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &std::io::Error) -> Problem {
    Problem::new(ErrorCode::Failed, format!("the history cannot be read: {error}"))
}
