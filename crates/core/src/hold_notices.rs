//! Limits notices about held posts: anybody who may post to a list could otherwise make us write to its owner without
//! end.
//!
//! Promise: at most [`NOTICES_MAX`] notices an hour for each list or sender. Posts beyond are counted, and the next
//! notice has their number. Memory is bounded by the lists and senders of the configuration; a restart forgets all.

use std::collections::HashMap;

use stentor_queue::ids::Ms;

/// Notices about one list or sender in [`PERIOD_MS`].
pub const NOTICES_MAX: u32 = 5;
const PERIOD_MS: Ms = 3_600_000;

/// Notices by list or sender.
#[derive(Debug, Default)]
pub struct HoldNoticeLimiter(HashMap<Box<str>, NoticeCount>);

#[derive(Debug)]
struct NoticeCount {
    /// When the period began.
    since: Ms,
    notices: u32,
    /// Posts without a notice since the last one.
    posts_unreported: u64,
}

impl HoldNoticeLimiter {
    /// Counts a held post. Returns the number of earlier posts without a notice if one is due.
    pub fn take_notice(&mut self, flow: &str, now: Ms) -> Option<u64> {
        let Some(count) = self.0.get_mut(flow) else {
            self.0.retain(|_, count| count.posts_unreported > 0 || !count.is_over(now));
            self.0.insert(flow.into(), NoticeCount { since: now, notices: 1, posts_unreported: 0 });
            return Some(0);
        };
        if count.is_over(now) {
            (count.since, count.notices) = (now, 0);
        }
        if count.notices == NOTICES_MAX {
            count.posts_unreported += 1;
            return None;
        }
        count.notices += 1;
        Some(std::mem::take(&mut count.posts_unreported))
    }
}

impl NoticeCount {
    /// A clock that went backwards ends a period, too.
    fn is_over(&self, now: Ms) -> bool {
        now < self.since || now - self.since >= PERIOD_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_few_notices_an_hour_and_the_next_has_the_number_left_out() {
        let mut notices = HoldNoticeLimiter::default();
        for _ in 0..NOTICES_MAX {
            assert_eq!(notices.take_notice("news", 1_000), Some(0));
        }
        assert_eq!((notices.take_notice("news", 1_000), notices.take_notice("news", PERIOD_MS)), (None, None));
        assert_eq!(notices.take_notice("other", 1_000), Some(0));
        assert_eq!(notices.take_notice("news", PERIOD_MS + 1_000), Some(2));
        assert_eq!(notices.take_notice("news", PERIOD_MS + 1_001), Some(0));
        // Only what still counts is kept.
        assert_eq!(notices.take_notice("third", 9 * PERIOD_MS), Some(0));
        assert_eq!(notices.0.len(), 1);
    }
}
