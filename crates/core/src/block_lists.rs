//! Block lists named in hosts' replies, counted per list for `doctor`, metrics and the log.
//!
//! Promise: only replies that defer or refuse are searched. A reply repeated for many recipients of a transaction is
//! searched once and counted once. At most [`LISTS_MAX`] lists are kept; the one named longest ago is dropped first.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_sched::{RcptOutcome, block_list};

/// Upper bound of lists kept.
const LISTS_MAX: usize = 64;
/// Minimum interval between two warnings in the log about one list.
const WARN_EVERY_MS: Ms = 3_600_000;

/// Statistics of one block list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockListStats {
    /// Replies that named it since the server started.
    pub replies: u64,
    pub last: Ms,
    pub host: String,
    /// The last reply that named it.
    pub reply: String,
    warned: Option<Ms>,
}

/// Block lists by name; see the module documentation.
#[derive(Default)]
pub struct BlockLists {
    all: Mutex<BTreeMap<String, BlockListStats>>,
}

impl BlockLists {
    /// Returns all lists with their statistics.
    pub fn all(&self) -> Vec<(String, BlockListStats)> {
        self.all.lock().iter().map(|(name, named)| (name.clone(), named.clone())).collect()
    }

    /// Searches the replies of a transaction.
    pub fn of_outcomes(&self, host: &str, outcomes: &[RcptOutcome], now: Ms) {
        let mut before = None;
        for outcome in outcomes.iter().filter(|outcome| outcome.code >= 400) {
            // A reply repeated for a hundred recipients is searched once.
            if before.replace(&outcome.text) != Some(&outcome.text) {
                self.of_reply(host, &outcome.text, now);
            }
        }
    }

    /// Searches one reply that defers or refuses.
    pub fn of_reply(&self, host: &str, text: &str, now: Ms) {
        let Some(list) = block_list(text) else { return };
        let mut all = self.all.lock();
        if all.len() >= LISTS_MAX && !all.contains_key(&*list) {
            let oldest = all.iter().min_by_key(|(_, named)| named.last).map(|(name, _)| name.clone());
            oldest.map(|name| all.remove(&name));
        }
        let named = all.entry(list.clone().into_owned()).or_default();
        (named.replies, named.last) = (named.replies + 1, now);
        (named.host, named.reply) = (host.to_owned(), text.to_owned());
        if named.warned.is_none_or(|at| now.abs_diff(at) >= WARN_EVERY_MS) {
            named.warned = Some(now);
            tracing::warn!(list = %list, host, reply = text, "a host's reply names a block list");
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_queue::ids::AddressId;
    use stentor_sched::Stage;

    use super::*;

    #[test]
    fn replies_are_counted_by_list_and_lists_are_bounded() {
        let lists = BlockLists::default();
        let outcome =
            |code, text: &str| RcptOutcome { id: AddressId(1), stage: Stage::Rcpt, code, dsn: None, text: text.into() };
        let listed = "blocked using zen.spamhaus.org";
        lists.of_outcomes("mx.one.example", &[outcome(554, listed), outcome(554, listed), outcome(250, listed)], 5);
        lists.of_reply("mx.two.example", "Rejected; listed at bl.spamcop.net", 6);
        lists.of_reply("mx.two.example", listed, 7);
        lists.of_reply("mx.two.example", "User unknown", 8);
        let all = lists.all();
        let counts: Vec<_> = all.iter().map(|(name, named)| (name.as_str(), named.replies, named.last)).collect();
        assert_eq!(counts, [("SpamCop", 1, 6), ("Spamhaus ZEN", 2, 7)]);
        assert_eq!((all[1].1.host.as_str(), all[1].1.reply.as_str()), ("mx.two.example", listed));
        for n in 0..2 * LISTS_MAX as u64 {
            lists.of_reply("mx", &format!("blocked using bl.n{n}.example"), 10 + n);
        }
        let all = lists.all();
        assert!(all.len() == LISTS_MAX && all.iter().all(|(_, named)| named.last >= 10 + LISTS_MAX as u64));
    }
}
