//! Pending recipients by site and age, as qshape shows them: of the count that all views count.

use std::sync::Arc;

use stentor_control::problem::Problem;
use stentor_control::{Ages, AgesRow};
use stentor_engine::core::Core;
use stentor_engine::core::hub::Hub;
use stentor_queue::age::MINUTES;
use stentor_queue::ids::SiteId;
use stentor_sched::CauseCounts;

use crate::causes::Censuses;
use crate::views::UNRESOLVED;
use crate::wanted::{Wanted, key};

/// Rows made under one hold of the lock.
const ROWS_STEP: usize = 256;

/// # Errors
/// There is no such list.
pub async fn ages(core: &Arc<Core>, censuses: &Arc<Censuses>, wanted: &Wanted) -> Result<Ages, Problem> {
    let hostname = core.settings().config.hostname.clone();
    let mut answer = Ages { hostname, now: core.clock.now(), minutes: MINUTES.to_vec(), ..Ages::default() };
    let Some(counted) = censuses.of(core, &wanted.part).await else { return Ok(answer) };
    if let Some(problem) = wanted.unknown_list(core, Some(&counted)) {
        return Err(problem);
    }
    let census = &counted.census;
    let unresolved = Some((None, &census.unresolved)).filter(|(_, counts)| counts.recipients() > 0);
    let all = census.sites().map(|(site, counts)| (Some(site), counts)).chain(unresolved);
    let all: Vec<(Option<SiteId>, &CauseCounts)> = all.collect();
    answer.sites_total = all.len() as u64;
    let mut sites = Vec::with_capacity(all.len());
    for part in all.chunks(ROWS_STEP) {
        core.with(|hub, _| {
            sites.extend(part.iter().map(|(site, counts)| {
                let name = name(hub, *site);
                (key(hub, wanted.sort, (counts.recipients(), Some(counts)), name), *site, *counts)
            }));
        });
        tokio::task::yield_now().await;
    }
    sites.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    for (_, _, counts) in &sites {
        answer.total.iter_mut().zip(&counts.by_age).for_each(|(sum, count)| *sum += count);
    }
    sites.truncate(wanted.rows_max);
    for part in sites.chunks(ROWS_STEP) {
        core.with(|hub, _| {
            answer.rows.extend(part.iter().map(|(_, site, counts)| AgesRow {
                site: name(hub, *site).to_owned(),
                recipients: counts.recipients(),
                by_age: counts.by_age,
            }));
        });
        tokio::task::yield_now().await;
    }
    answer.recipients = answer.total.iter().sum();
    answer.counted = Some(counted.at);
    answer.part.clone_from(&wanted.words);
    Ok(answer)
}

fn name(hub: &Hub, site: Option<SiteId>) -> &str {
    site.and_then(|site| hub.sched.site_name(site)).unwrap_or(UNRESOLVED)
}
