//! Selects waiting jobs for the next batch, by upper bounds of their size in it.

use std::sync::atomic::Ordering;

use stentor_journal::{BATCH_OVERHEAD_BYTES, Log};

use super::{Committer, PART, SLICE_OVERHEAD_BYTES};
use crate::hub::Hub;
use crate::intake::{IntakeRefusal, Job};

/// Reports up to this size are written even when disk space is low.
const REPORT_BYTES_MAX: u64 = 64 * 1024;

impl<L: Log> Committer<L> {
    /// Selects the jobs of the next batch.
    pub fn admit(&self, jobs: Vec<Job>) -> Vec<Job> {
        let jobs = if self.core.disk_full.load(Ordering::Relaxed) { Self::refuse_new(jobs) } else { jobs };
        self.fitting(jobs)
    }

    /// Octets of a batch reserved for outcomes.
    pub(super) fn outcomes_bytes_max(&self) -> usize {
        self.log.batch_bytes_max() / PART
    }

    /// Octets of a batch available to jobs; no single job is larger.
    pub(super) fn jobs_bytes_max(&self) -> usize {
        self.log.batch_bytes_max() - self.outcomes_bytes_max() - BATCH_OVERHEAD_BYTES - SLICE_OVERHEAD_BYTES
    }

    /// Selects as many of the first jobs as fit into a batch; the others wait for the next one. A job that fits no
    /// batch is refused.
    fn fitting(&self, jobs: Vec<Job>) -> Vec<Job> {
        let jobs_max = self.jobs_bytes_max();
        // A message or list larger than a slice is written when the checkpoint reaches it.
        let large = if self.checkpoint.is_some() { self.core.with(|hub, _| self.large_slice_bytes(hub)) } else { 0 };
        let room = jobs_max.saturating_sub(large);
        let sum = jobs.iter().map(Job::bytes).sum::<usize>() + SLICE_OVERHEAD_BYTES;
        if room == jobs_max && sum <= jobs_max && jobs.iter().flat_map(Job::lists).next().is_none() {
            return jobs;
        }
        let bytes: Vec<usize> =
            self.core.with(|hub, _| jobs.iter().map(|job| job.bytes_max(|list| list_ids_bytes(hub, list))).collect());
        let (mut kept, mut later, mut sum) = (Vec::with_capacity(jobs.len()), Vec::new(), 0);
        for (job, bytes) in jobs.into_iter().zip(bytes) {
            // Leaves some room, so that the job's slice in a checkpoint fits as well.
            if bytes + SLICE_OVERHEAD_BYTES > jobs_max {
                tracing::error!(bytes, bytes_max = jobs_max, "refused: larger than any batch of the journal");
                kept.extend(job.refuse(IntakeRefusal::TooLarge));
            } else if !later.is_empty() || sum + bytes > room {
                later.push(job);
            } else {
                sum += bytes;
                kept.push(job);
            }
        }
        self.core.intake.put_back(later);
        kept
    }

    /// Refuses new mail before it is written while disk space is low. Bodies already in progress must not use up the
    /// reserve, which is for completions, checkpoints and small DSNs.
    fn refuse_new(jobs: Vec<Job>) -> Vec<Job> {
        let mut kept = Vec::with_capacity(jobs.len());
        for job in jobs {
            let is_new = match &job {
                Job::Accept { submission, .. } => {
                    submission.fate_records.is_empty() || submission.size > REPORT_BYTES_MAX
                }
                Job::Piece { .. } | Job::List { .. } | Job::Intern { .. } => true,
                Job::Verb { .. } | Job::Drop { .. } | Job::Unlist { .. } => false,
            };
            if is_new {
                kept.extend(job.refuse(IntakeRefusal::Full));
            } else {
                kept.push(job);
            }
        }
        kept
    }
}

/// Octets of a list's subscribers in the record of a post.
pub(super) fn list_ids_bytes(hub: &Hub, name: &str) -> usize {
    hub.store.list(name).map_or(0, |list| list.ids.part_bytes_max())
}
