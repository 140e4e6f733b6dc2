//! The end of kept posts: each is dropped when its list's time is over and none of its messages is queued.
//!
//! Bounds: at most [`POSTS_MAX`] posts are kept. While the disk is nearly full, each check drops a quarter of the posts
//! that are not queued, the oldest first: a kept post never costs the acceptance of mail.
//!
//! Failure: after a refused batch posts stay until the next check. Nothing ends just after the clock was set
//! ([`stentor_sched::Scheduler::is_over_age`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::verb::QueueChange;
use stentor_queue::ids::MessageId;

/// Interval of checks.
const PAUSE: Duration = Duration::from_mins(1);
/// Largest number of kept posts.
const POSTS_MAX: usize = 50_000;
/// Posts examined per hold of the lock, and posts per batch.
const STEP: usize = 1_024;
const WHO: &str = "stentor";

/// Ends posts while the server runs.
pub async fn end_when_due(core: Arc<Core>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        sweep(&core).await;
    }
}

/// One check.
pub async fn sweep(core: &Arc<Core>) {
    let kept = core.with(|hub, _| hub.store.posts_len());
    let is_full = core.disk_full.load(Ordering::Relaxed);
    // The oldest of these end early.
    let mut early = kept.saturating_sub(POSTS_MAX).max(if is_full { kept.div_ceil(4) } else { 0 });
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
                if is_due || early > 0 {
                    early = early.saturating_sub(1);
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
                Err(refused) => return tracing::warn!(%refused, "ending kept posts failed; will retry"),
            }
        }
        if is_last {
            return;
        }
        tokio::task::yield_now().await;
    }
}
