//! The end of kept posts: each is dropped when its list's time is over and none of its messages is queued.
//!
//! Bounds: at most [`POSTS_MAX`] posts are kept. While the disk has less free space than [`RESERVES`] times the
//! journal's reserve, each second the oldest posts that are not queued are dropped, as many as hold what is missing.
//! So kept posts make room before new mail is refused, unless the disk fills faster than the journal frees segments.
//!
//! Failure: after a refused batch posts stay until the next check. Nothing ends by age just after the clock was set
//! ([`stentor_sched::Scheduler::is_over_age`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::verb::QueueChange;
use stentor_queue::ids::MessageId;

/// Interval of checks of the disk.
const DISK_PAUSE: Duration = Duration::from_secs(1);
/// Interval of checks of all posts while the disk has room.
const PAUSE: Duration = Duration::from_mins(1);
/// Posts make room when free space is below this multiple of the journal's reserve, as for the history.
const RESERVES: u64 = 2;
/// The journal has a reserve of at least this many segments.
const RESERVE_SEGMENTS_MIN: u64 = 2;
/// Largest number of kept posts.
const POSTS_MAX: usize = 50_000;
/// Posts examined per hold of the lock, and posts per batch.
const STEP: usize = 1_024;
const WHO: &str = "stentor";

/// Ends posts while the server runs.
pub async fn end_when_due(core: Arc<Core>) {
    let mut swept = Instant::now();
    loop {
        tokio::time::sleep(DISK_PAUSE).await;
        if core.with(|hub, _| hub.store.posts_len()) == 0 {
            continue;
        }
        let missing = missing_octets(&core).await;
        if missing > 0 || swept.elapsed() >= PAUSE {
            swept = Instant::now();
            sweep(&core, missing).await;
        }
    }
}

/// Octets that must become free until posts may stay.
async fn missing_octets(core: &Core) -> u64 {
    core.refresh_space().await;
    let (space, settings) = (core.journal().space, core.settings());
    let journal = &settings.config.journal;
    let free = space.free_disk_bytes.saturating_add(space.ready_segments as u64 * journal.segment_bytes);
    let reserve = journal.reserve_bytes.max(RESERVE_SEGMENTS_MIN * journal.segment_bytes);
    missing_of(free, reserve, core.disk_full.load(Ordering::Relaxed))
}

/// `is_full`: the journal refuses mail. It may do so with free octets: for lack of inodes or quota, or for the space of
/// a large checkpoint.
fn missing_of(free: u64, reserve: u64, is_full: bool) -> u64 {
    let missing = reserve.saturating_mul(RESERVES).saturating_sub(free);
    if is_full { missing.max(reserve) } else { missing }
}

/// One check of all posts; the oldest that hold `missing` octets end early.
async fn sweep(core: &Arc<Core>, mut missing: u64) {
    let mut excess = core.with(|hub, _| hub.store.posts_len()).saturating_sub(POSTS_MAX);
    let mut after: Option<MessageId> = None;
    loop {
        let (over, is_last) = core.with(|hub, now| {
            let (mut over, mut steps) = (Vec::new(), 0);
            for post in hub.store.posts(after).take(STEP) {
                (after, steps) = (Some(post.message().id()), steps + 1);
                if hub.store.waiting_for_post(post) > 0 {
                    continue;
                }
                let accepted = post.message().accepted();
                let keep_ms = post.facts().until.saturating_sub(accepted);
                let is_due = hub.sched.is_over_age(accepted, keep_ms, now);
                if is_due || excess > 0 || missing > 0 {
                    excess = excess.saturating_sub(1);
                    missing = missing.saturating_sub(post.message().size());
                    over.push(post.message().id());
                }
            }
            (over, steps < STEP)
        });
        if !over.is_empty() {
            let posts = over.len();
            let detail = json!({"posts": posts}).to_string();
            let audit = Audit { at: core.clock.now(), who: WHO.to_owned(), verb: "posts_end", detail };
            match core.intake.verb(audit, QueueChange::EndPosts { posts: over }).await {
                Ok(()) => tracing::debug!(posts, "posts are no longer kept"),
                // A full disk is reported separately, and this is tried again each second.
                Err(refused) if core.disk_full.load(Ordering::Relaxed) => {
                    return tracing::debug!(%refused, "ending kept posts failed; will retry");
                }
                Err(refused) => return tracing::warn!(%refused, "ending kept posts failed; will retry"),
            }
        }
        if is_last {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_make_room_before_mail_is_refused() {
        assert_eq!(missing_of(200, 100, false), 0);
        assert_eq!(missing_of(150, 100, false), 50);
        assert_eq!(missing_of(0, 100, true), 200);
        assert_eq!(missing_of(u64::MAX, 100, true), 100, "no inodes, or a large checkpoint");
        assert_eq!(missing_of(5, u64::MAX, false), u64::MAX - 5);
    }
}
