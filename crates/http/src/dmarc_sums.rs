//! Sums of the DMARC reports that others sent and that were kept, for the API and the console.
//!
//! Promise: one reading at a time, on the blocking pool and in reserved memory. The latest [`CACHED_MAX`] sums are
//! cached until the folder changes. A reading is completed and cached even if its caller leaves; a caller who leaves
//! before its turn starts none.
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
use stentor_domain_reports::dmarc::{DmarcSummary, DmarcSums, ReportFilter};
use tokio::sync::Mutex;

/// Maximum rows of each kind.
pub const ROWS_MAX: usize = 1_000;
const CACHED_MAX: usize = 8;
/// Memory for a reading: a file, its report, and the sums of all.
const READ_MEMORY_BYTES: u64 = 64 * 1024 * 1024;
/// File systems note times in steps: a folder that has just changed may change again without another time.
const FOLDER_AGE_MIN: Duration = Duration::from_secs(2);

struct CachedSummary {
    filter: ReportFilter,
    /// When the folder had last changed before it was read.
    modified_at: SystemTime,
    summary: Arc<DmarcSummary>,
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
    pub async fn get(&self, core: &Arc<Core>, filter: ReportFilter) -> Result<Arc<DmarcSummary>, Problem> {
        let core = core.clone();
        let mut cache = self.0.clone().lock_owned().await;
        let reading = tokio::task::spawn_blocking(move || {
            let data_dir = &core.settings().config.data_dir;
            let reserve = || core.memory.take(READ_MEMORY_BYTES);
            cache.get(data_dir, filter, SystemTime::now(), reserve).map_err(|error| match error {
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
        now: SystemTime,
        reserve: impl FnOnce() -> Option<R>,
    ) -> Result<Arc<DmarcSummary>, SumsError> {
        let Some(modified_at) = folder_modified_at(data_dir)? else { return Ok(Arc::default()) };
        self.0.retain(|cached| cached.modified_at == modified_at);
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
        if now.duration_since(modified_at).is_ok_and(|age| age >= FOLDER_AGE_MIN) {
            if self.0.len() == CACHED_MAX {
                self.0.remove(0);
            }
            self.0.push(CachedSummary { filter, modified_at, summary: summary.clone() });
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
    fn sums_are_read_again_when_the_folder_changes() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(FOLDER);
        let mut cache = SummaryCache::default();
        let mut reports = |domain: Option<&str>, readings: usize| {
            let filter = ReportFilter { domain: domain.map(str::to_owned), ..ReportFilter::default() };
            let mut read = 0;
            let found = cache.get(data.path(), filter, SystemTime::now(), || {
                read += 1;
                Some(())
            });
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
        let refused = cache.get(data.path(), filter, SystemTime::now(), || None::<()>);
        assert!(matches!(refused, Err(SumsError::NoMemory)));
    }
}
