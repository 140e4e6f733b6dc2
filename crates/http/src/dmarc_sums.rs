//! Sums of the DMARC reports that others sent and that were kept, for the API and the console.
//!
//! Promise: one reading at a time, on the blocking pool and in reserved memory. The latest [`CACHED_MAX`] sums are
//! cached until the folder changes. Those that took [`SLOW`] to read are kept at least for [`REST`] times as long: a
//! stranger's report changes the folder. A reading is completed and cached even if its caller leaves; a caller who
//! leaves before its turn starts none.
//!
//! Failure: no memory now, or an unreadable folder; nothing is cached then. Unreadable files are counted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stentor_control::ErrorCode;
use stentor_control::problem::Problem;
use stentor_core::Core;
use stentor_core::received_reports::{FOLDER, each_kept, folder_modified_at};
use stentor_domain_reports::dmarc::{DAY_S, DmarcSummary, DmarcSums, ReportFilter};
use tokio::sync::Mutex;

/// Maximum rows of each kind.
pub const ROWS_MAX: usize = 1_000;
const CACHED_MAX: usize = 8;
/// Memory for a reading: a file, its report, and the sums of all.
const READ_MEMORY_BYTES: u64 = 64 * 1024 * 1024;
/// File systems note times in steps: a folder that has just changed may change again without another time.
const FOLDER_AGE_MIN: Duration = Duration::from_secs(2);
const FRESH_MAX: Duration = Duration::from_mins(10);

const SLOW: Duration = Duration::from_millis(500);
/// Slow sums that took a second to read are kept for this many seconds.
const REST: u32 = 20;

struct CachedSummary {
    filter: ReportFilter,
    /// When the folder had last changed before it was read.
    modified_at: SystemTime,
    /// Until when they are kept although the folder changes.
    fresh_until: SystemTime,
    summary: Arc<DmarcSummary>,
}

impl CachedSummary {
    fn is_usable(&self, modified_at: SystemTime, now: SystemTime) -> bool {
        // A clock that went backwards keeps nothing for long.
        let is_fresh = self.fresh_until > now && self.fresh_until <= now + FRESH_MAX;
        is_fresh || self.modified_at == modified_at
    }
}

/// Why there are no sums.
#[derive(Debug, thiserror::Error)]
enum SumsError {
    #[error("no memory to read the DMARC reports now; try again later")]
    NoMemory,
    #[error(transparent)]
    Folder(#[from] io::Error),
}

/// The latest sums, the newest last.
#[derive(Default)]
struct SummaryCache(Vec<CachedSummary>);

/// Sums of the kept reports. Its lock is held while they are read.
#[derive(Clone, Default)]
pub struct ReceivedReportSums(Arc<Mutex<SummaryCache>>);

impl ReceivedReportSums {
    /// Sums with at most [`ROWS_MAX`] rows of each kind.
    ///
    /// `since_s` is rounded down to a day (UTC), so that one reading serves all who ask on it.
    pub async fn get(&self, core: &Arc<Core>, filter: ReportFilter) -> Result<Arc<DmarcSummary>, Problem> {
        let (core, since_s) = (core.clone(), filter.since_s / DAY_S * DAY_S);
        let filter = ReportFilter { since_s, ..filter };
        let mut cache = self.0.clone().lock_owned().await;
        let reading = tokio::task::spawn_blocking(move || {
            let data_dir = &core.settings().config.data_dir;
            let reserve = || core.memory.take(READ_MEMORY_BYTES);
            cache.get(data_dir, filter, SystemTime::now, reserve).map_err(|error| match error {
                SumsError::NoMemory => Problem::new(ErrorCode::Busy, error.to_string()),
                SumsError::Folder(error) => {
                    let folder = data_dir.join(FOLDER);
                    let text = format!("the DMARC reports in {} cannot be read: {error}", folder.display());
                    Problem::new(ErrorCode::Failed, text)
                }
            })
        });
        reading.await.unwrap_or_else(|_| Err(Problem::new(ErrorCode::Failed, "the server is stopping")))
    }
}

impl SummaryCache {
    /// `reserve` reserves the memory for a reading.
    fn get<R>(
        &mut self,
        data_dir: &Path,
        filter: ReportFilter,
        clock: impl Fn() -> SystemTime,
        reserve: impl FnOnce() -> Option<R>,
    ) -> Result<Arc<DmarcSummary>, SumsError> {
        let Some(modified_at) = folder_modified_at(data_dir)? else { return Ok(Arc::default()) };
        let begun = clock();
        self.0.retain(|cached| cached.is_usable(modified_at, begun));
        if let Some(cached) = self.0.iter().find(|cached| cached.filter == filter) {
            return Ok(cached.summary.clone());
        }
        let _reserved = reserve().ok_or(SumsError::NoMemory)?;
        let mut sums = DmarcSums::default();
        let unreadable = each_kept(data_dir, &mut |report| {
            if filter.includes(report) {
                sums.add(report);
            }
        })?;
        let summary = Arc::new(DmarcSummary::new(&sums, ROWS_MAX, unreadable as u64));
        let ended = clock();
        let took = ended.duration_since(begun).unwrap_or_default();
        let rest = if took >= SLOW { (took * REST).min(FRESH_MAX) } else { Duration::ZERO };
        let fresh_until = ended + rest;
        if fresh_until > ended || begun.duration_since(modified_at).is_ok_and(|age| age >= FOLDER_AGE_MIN) {
            if self.0.len() == CACHED_MAX {
                self.0.remove(0);
            }
            self.0.push(CachedSummary { filter, modified_at, fresh_until, summary: summary.clone() });
        }
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const REPORT: &str = "<feedback><report_metadata><org_name>r</org_name><report_id>1</report_id><date_range>\
        <begin>1</begin><end>2</end></date_range></report_metadata><policy_published><domain>a.test</domain>\
        <p>none</p></policy_published></feedback>";

    #[test]
    fn sums_that_were_slow_to_read_are_kept_though_the_folder_changes() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        let mut cache = SummaryCache::default();
        // Each look at the clock is a second later, so that a reading takes one.
        let clock = std::cell::Cell::new(SystemTime::now());
        let mut is_read_at = |later_s: u64, modified_s: u64| {
            fs::File::open(&folder)
                .unwrap()
                .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(modified_s))
                .unwrap();
            clock.set(clock.get() + Duration::from_secs(later_s));
            let mut is_read = false;
            let tick = || clock.replace(clock.get() + Duration::from_secs(1));
            let reserve = || {
                is_read = true;
                Some(())
            };
            cache.get(data.path(), ReportFilter::default(), tick, reserve).unwrap();
            is_read
        };
        assert!(is_read_at(0, 1) && !is_read_at(5, 2) && !is_read_at(5, 3));
        assert!(is_read_at(u64::from(REST), 4));
        assert!(!is_read_at(u64::from(REST) * 2, 4), "unchanged");
    }

    #[test]
    fn sums_are_read_again_when_the_folder_changes() {
        let data = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let folder = data.path().join(FOLDER);
        let mut cache = SummaryCache::default();
        let mut reports = |domain: Option<&str>, readings: usize| {
            let filter = ReportFilter { domain: domain.map(str::to_owned), ..ReportFilter::default() };
            let mut read = 0;
            let found = cache.get(
                data.path(),
                filter,
                || now,
                || {
                    read += 1;
                    Some(())
                },
            );
            let found = found.unwrap();
            assert_eq!(read, readings);
            (found.domains.iter().map(|sums| sums.reports).sum::<u64>(), found.files_unreadable)
        };
        assert_eq!(reports(None, 0), (0, 0));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("1.xml.gz"), REPORT).unwrap();
        // It has just changed, and may change at the same time again.
        assert_eq!([reports(None, 1), reports(None, 1)], [(1, 0); 2]);
        let settle = |ago_s| {
            let changed = SystemTime::now() - Duration::from_secs(ago_s);
            fs::File::open(&folder).unwrap().set_modified(changed).unwrap();
        };
        settle(20);
        assert_eq!([reports(None, 1), reports(None, 0), reports(Some("b.test"), 1)], [(1, 0), (1, 0), (0, 0)]);
        fs::write(folder.join("2.xml.gz"), "x").unwrap();
        settle(10);
        assert_eq!([reports(None, 1), reports(None, 0), reports(Some("a.test"), 1)], [(1, 1); 3]);
        let filter = ReportFilter { since_s: 3, domain: None };
        let refused = cache.get(data.path(), filter, || now, || None::<()>);
        assert!(matches!(refused, Err(SumsError::NoMemory)));
    }
}
