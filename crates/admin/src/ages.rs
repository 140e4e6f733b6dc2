//! Pending recipients by site and age, as qshape shows them: of the count that all views share.

use std::cmp::Reverse;
use std::sync::Arc;

use stentor_control::{Ages, AgesOptions, AgesRow};
use stentor_engine::core::Core;
use stentor_queue::age::MINUTES;
use stentor_queue::ids::SiteId;
use stentor_sched::CauseCounts;

use crate::causes::Censuses;
use crate::views::UNRESOLVED;

/// Rows made under one hold of the lock.
const ROWS_STEP: usize = 256;

pub async fn ages(core: &Arc<Core>, censuses: &Arc<Censuses>, options: &AgesOptions) -> Ages {
    let hostname = core.settings().config.hostname.clone();
    let mut answer = Ages { hostname, now: core.clock.now(), minutes: MINUTES.to_vec(), ..Ages::default() };
    let Some(counted) = censuses.get(core).await else { return answer };
    let census = &counted.census;
    let unresolved = Some((None, &census.unresolved)).filter(|(_, counts)| counts.recipients() > 0);
    let mut sites: Vec<(Option<SiteId>, &CauseCounts)> =
        census.sites().map(|(site, counts)| (Some(site), counts)).collect();
    sites.extend(unresolved);
    sites.sort_unstable_by_key(|(site, counts)| (Reverse(counts.recipients()), site.map(|site| site.0)));
    answer.sites_total = sites.len() as u64;
    for (_, counts) in &sites {
        answer.total.iter_mut().zip(&counts.by_age).for_each(|(sum, count)| *sum += count);
    }
    sites.truncate(options.rows_max as usize);
    for part in sites.chunks(ROWS_STEP) {
        core.with(|hub, _| {
            answer.rows.extend(part.iter().map(|(site, counts)| AgesRow {
                site: site.and_then(|site| hub.sched.site_name(site)).unwrap_or(UNRESOLVED).to_owned(),
                recipients: counts.recipients(),
                by_age: counts.by_age,
            }));
        });
        tokio::task::yield_now().await;
    }
    answer.recipients = answer.total.iter().sum();
    answer.counted = Some(counted.at);
    answer
}
