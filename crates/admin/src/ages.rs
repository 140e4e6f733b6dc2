//! Pending recipients by site and age, as qshape shows them, from the count shared by all views.

use std::sync::Arc;

use stentor_control::problem::Problem;
use stentor_control::{Ages, AgesRow};
use stentor_core::Core;
use stentor_queue::age::MINUTES;
use stentor_sched::{CauseCounts, WaitingPlace};

use crate::causes::Censuses;
use crate::row_query::{RowQuery, key};
use crate::views::place_name;

/// Rows built per hold of the lock.
const ROWS_STEP: usize = 256;

/// The table of ages.
///
/// # Errors
/// There is no such list.
pub async fn ages(core: &Arc<Core>, censuses: &Arc<Censuses>, query: &RowQuery) -> Result<Ages, Problem> {
    let hostname = core.settings().config.hostname.clone();
    let mut answer = Ages { hostname, now: core.clock.now(), minutes: MINUTES.to_vec(), ..Ages::default() };
    let Some(counted) = censuses.of(core, &query.part).await else { return Ok(answer) };
    if let Some(problem) = query.unknown_list(core, Some(&counted)) {
        return Err(problem);
    }
    let census = &counted.census;
    let sites = census.sites().map(|(site, counts)| (WaitingPlace::Site(site), counts));
    let domains = census.unresolved().map(|(domain, counts)| (WaitingPlace::Domain(domain), counts));
    let all: Vec<(WaitingPlace, &CauseCounts)> = sites.chain(domains).collect();
    answer.sites_total = all.len() as u64;
    let mut sites = Vec::with_capacity(all.len());
    for part in all.chunks(ROWS_STEP) {
        core.with(|hub, _| {
            sites.extend(part.iter().map(|(at, counts)| {
                (key(hub, query.sort, counts.recipients(), Some(counts), place_name(hub, *at)), *at, *counts)
            }));
        });
        tokio::task::yield_now().await;
    }
    sites.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    for (_, _, counts) in &sites {
        answer.total.iter_mut().zip(&counts.by_age).for_each(|(sum, count)| *sum += count);
    }
    sites.truncate(query.rows_max);
    for part in sites.chunks(ROWS_STEP) {
        core.with(|hub, _| {
            answer.rows.extend(part.iter().map(|(_, at, counts)| AgesRow {
                site: place_name(hub, *at).to_owned(),
                recipients: counts.recipients(),
                by_age: counts.by_age,
            }));
        });
        tokio::task::yield_now().await;
    }
    answer.recipients = answer.total.iter().sum();
    answer.counted = Some(counted.at);
    answer.part.clone_from(&query.words);
    Ok(answer)
}
