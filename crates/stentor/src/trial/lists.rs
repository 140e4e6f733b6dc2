//! Checks that the DNS lists of a configuration work and answer us: each is queried for the two test entries of RFC
//! 5782 section 5, one listed and one not.

use std::time::Duration;

use stentor_config::Config;
use stentor_core::Settings;
use stentor_reputation::{DnsList, DnsListResult};
use stentor_resolve::Resolver;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Timeout for a list.
const WAIT: Duration = Duration::from_secs(3);

/// Lists with problems, in order.
pub(super) fn findings(config: &Config) -> Vec<(String, String)> {
    let lists = &config.rules.dns_lists;
    if lists.is_empty() {
        return Vec::new();
    }
    let tried = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let resolver = Resolver::new(Settings::resolver_of(config, &[])).map_err(|error| error.to_string())?;
            let mut tasks = JoinSet::new();
            for (n, list) in lists.iter().cloned().enumerate() {
                let resolver = resolver.clone();
                tasks.spawn(async move {
                    let found = timeout(WAIT, finding(&resolver, &list)).await;
                    (n, list, found.unwrap_or_else(|_| Some(format!("no answer within {} s", WAIT.as_secs()))))
                });
            }
            let mut all = tasks.join_all().await;
            all.sort_unstable_by_key(|(n, ..)| *n);
            Ok(all.into_iter().filter_map(|(_, list, found)| Some((list.name.to_string(), found?))).collect())
        })
    };
    tried().unwrap_or_else(|why: String| lists.iter().map(|list| (list.name.to_string(), why.clone())).collect())
}

async fn finding(resolver: &Resolver, list: &DnsList) -> Option<String> {
    let [listed, unlisted] = list.tests();
    let (yes, no) = tokio::join!(resolver.answer(&listed), resolver.answer(&unlisted));
    match (list.read_any(&yes), list.read_any(&no)) {
        (DnsListResult::Unanswered(why), _) | (_, DnsListResult::Unanswered(why)) => Some(why.into()),
        (_, DnsListResult::Yes(_)) => {
            Some(format!("it lists everything, even {}, which no list should contain", unlisted.name))
        }
        (DnsListResult::No, _) => {
            Some(format!("it does not list {}, which every list should contain; it may have shut down", listed.name))
        }
        (DnsListResult::Yes(_), DnsListResult::No) => None,
    }
}
