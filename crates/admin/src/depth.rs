//! Where mail waits, for `stentor queue` and `queue --stuck`: from the shared census, or while there is none yet from the
//! store's counts.
//!
//! Promise: slices of well under a millisecond under the hub's lock, released in between so that mail passes; rows are
//! of slightly different instants. Memory: eight bytes per site, and the rows. Ten million pending recipients of a
//! million addresses at 50,000 sites: one look at each count, some milliseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use hashbrown::HashMap;
use stentor_control::{CauseRow, ListRow, SiteRow, Stuck, StuckRow};
use stentor_engine::core::Core;
use stentor_engine::core::hub::Hub;
use stentor_queue::ids::{AddressId, MessageNo, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_queue::store::CHUNK_ADDRESSES;
use stentor_sched::{CauseCounts, Standing};

use crate::causes::{Censuses, DatedCensus, SitesNow};
use crate::views::{UNRESOLVED, recipient};
use crate::{advice, causes};

/// Chunks of [`CHUNK_ADDRESSES`] counts looked at under one hold.
const CHUNKS_STEP: usize = 32;
/// Messages looked into under one hold, each for all the recipients that are to be shown.
const MESSAGES_STEP: usize = 4_096;
/// Rows made under one hold.
const ROWS_STEP: usize = 64;
/// Lists of one answer: they are in its first line.
const LISTS_MAX: usize = 200;
/// Steps that looking for one recipient in a message counts for, in messages.
const LOOK_STEPS: usize = 8;

/// The sites with most pending recipients, how many sites have any, and what all of it waits for.
pub struct Depths {
    pub rows: Vec<SiteRow>,
    pub sites_total: u64,
    pub causes: Vec<CauseRow>,
    pub counted: Option<Ms>,
    pub lists: Vec<ListRow>,
}

pub async fn sites(core: &Arc<Core>, censuses: &Arc<Censuses>, rows_max: usize) -> Depths {
    let now = SitesNow::get(core, censuses).await;
    let (mut waiting, unresolved) = (now.waiting.clone(), now.unresolved);
    let sites_total = (waiting.len() + usize::from(unresolved > 0)) as u64;
    if waiting.len() > rows_max && rows_max > 0 {
        waiting.select_nth_unstable_by_key(rows_max - 1, |(count, site)| (Reverse(*count), site.0));
    }
    waiting.truncate(rows_max);
    let mut rows = Vec::with_capacity(waiting.len() + 1);
    for part in waiting.chunks(ROWS_STEP) {
        core.with(|hub, at| {
            rows.extend(part.iter().filter_map(|(count, site)| site_row(hub, &now, (*count, *site), at)));
        });
        tokio::task::yield_now().await;
    }
    let causes = core.with(|hub, at| {
        if unresolved > 0 {
            let row = SiteRow { site: UNRESOLVED.to_owned(), waiting: unresolved, ..SiteRow::default() };
            let mut row = with_counts(row, hub, now.unresolved());
            row.action = advice::site(&row, false, at);
            rows.push(row);
        }
        causes::rows(hub, now.counted.as_ref().map(|counted| &counted.census.total))
    });
    rows.sort_by(|a, b| b.waiting.cmp(&a.waiting).then_with(|| a.site.cmp(&b.site)));
    rows.truncate(rows_max);
    let lists = lists(core, now.counted.as_deref(), rows_max).await;
    Depths { rows, sites_total, causes, counted: now.counted.as_ref().map(|counted| counted.at), lists }
}

/// Lists with most recipients, mail of no list among them.
async fn lists(core: &Arc<Core>, counted: Option<&DatedCensus>, rows_max: usize) -> Vec<ListRow> {
    let mut all: Vec<_> = counted.into_iter().flat_map(|counted| &counted.census.lists).collect();
    all.sort_unstable_by(|a, b| b.1.recipients().cmp(&a.1.recipients()).then_with(|| a.0.cmp(b.0)));
    all.truncate(rows_max.min(LISTS_MAX));
    let mut rows = Vec::with_capacity(all.len());
    for part in all.chunks(ROWS_STEP) {
        core.with(|hub, _| {
            rows.extend(part.iter().map(|(list, counts)| ListRow {
                list: list.to_string(),
                waiting: counts.recipients(),
                messages: counts.messages,
                next_try: counts.next_try(),
                oldest: counts.oldest.and_then(|no| hub.store.message(no)).map(Message::accepted),
                causes: causes::rows(hub, Some(counts)),
            }));
        });
        tokio::task::yield_now().await;
    }
    rows
}

fn site_row(hub: &Hub, sites: &SitesNow, (waiting, site): (u64, SiteId), now: Ms) -> Option<SiteRow> {
    let status = hub.sched.site_status(site, now)?;
    let row = SiteRow {
        site: status.name.to_string(),
        waiting,
        messages: status.messages as u64,
        connections: status.connections as u64,
        ..SiteRow::default()
    };
    let mut row = with_counts(row, hub, sites.at(site));
    let is_suspended = hub.sched.glance(site, now).is_some_and(|g| g.standing == Standing::Suspended);
    row.action = advice::site(&row, is_suspended, now);
    Some(row)
}

/// What the count says of a row.
fn with_counts(row: SiteRow, hub: &Hub, counts: Option<&CauseCounts>) -> SiteRow {
    let Some(counts) = counts else { return row };
    SiteRow {
        messages: counts.messages,
        next_try: counts.next_try(),
        last_reply: causes::last_reply(hub, Some(counts)),
        oldest: counts.oldest.and_then(|no| hub.store.message(no)).map(Message::accepted),
        causes: causes::rows(hub, Some(counts)),
        ..row
    }
}

/// The recipients with most messages and the sites with most recipients, at most `rows_max` of each.
pub async fn stuck(core: &Arc<Core>, censuses: &Arc<Censuses>, rows_max: usize) -> Stuck {
    let top = top_addresses(core, rows_max).await;
    let oldest = oldest_of(core, &top).await;
    let mut recipients = Vec::with_capacity(top.len());
    for part in top.chunks(ROWS_STEP) {
        core.with(|hub, now| {
            for (messages, id) in part {
                let Some(no) = oldest.get(id) else { continue };
                let message = hub.store.message(*no);
                let (state, oldest) = (recipient(hub, *no, AddressId(*id), now), message.map(Message::accepted));
                let oldest_id = message.map(|message| message.id().to_string());
                // The first list that has it; of its own messages only those of a list can be stopped so.
                let list = hub.store.lists().find(|(_, list)| list.ids.contains(*id)).map(|(name, _)| name);
                recipients.push(StuckRow {
                    action: advice::recipient(&state, list, oldest_id.as_deref().zip(oldest), now),
                    state,
                    messages: u64::from(*messages),
                    oldest,
                    oldest_id,
                });
            }
        });
        tokio::task::yield_now().await;
    }
    recipients.sort_by(|a, b| {
        b.messages.cmp(&a.messages).then(a.oldest.cmp(&b.oldest)).then_with(|| a.state.address.cmp(&b.state.address))
    });
    let Depths { rows: sites, sites_total, counted, .. } = sites(core, censuses, rows_max).await;
    let hostname = core.settings().config.hostname.clone();
    core.with(|hub, now| Stuck {
        hostname,
        now,
        is_counting: hub.store.is_counting(),
        sites_total,
        counted,
        recipients,
        sites,
    })
}

/// Addresses with most messages, and how many those are; of equal ones, those known for longest.
async fn top_addresses(core: &Arc<Core>, rows_max: usize) -> Vec<(u32, u32)> {
    // The least of the chosen is on top.
    let mut chosen: BinaryHeap<Reverse<(u32, Reverse<u32>)>> = BinaryHeap::new();
    let mut chunk = 0;
    let mut is_last = rows_max == 0;
    while !is_last {
        is_last = core.with(|hub, _| {
            for _ in 0..CHUNKS_STEP {
                let Some(counts) = hub.store.waiting_chunk(chunk) else { return true };
                let mut least = if chosen.len() < rows_max { 0 } else { chosen.peek().map_or(0, |least| least.0.0) };
                for (at, count) in counts.iter().enumerate() {
                    if *count > least {
                        chosen.push(Reverse((*count, Reverse((chunk * CHUNK_ADDRESSES + at) as u32))));
                        if chosen.len() > rows_max {
                            chosen.pop();
                        }
                        if chosen.len() == rows_max {
                            least = chosen.peek().map_or(0, |least| least.0.0);
                        }
                    }
                }
                chunk += 1;
            }
            false
        });
        tokio::task::yield_now().await;
    }
    let mut top: Vec<_> = chosen.into_iter().map(|Reverse((count, Reverse(id)))| (count, id)).collect();
    top.sort_unstable_by_key(|(count, id)| (Reverse(*count), *id));
    top
}

/// The oldest message that waits for each; who has got them all meanwhile is left out.
async fn oldest_of(core: &Arc<Core>, top: &[(u32, u32)]) -> HashMap<u32, MessageNo> {
    let mut missing: Vec<u32> = top.iter().map(|(_, id)| *id).collect();
    missing.sort_unstable();
    let mut found = HashMap::new();
    let mut bounds = core.with(|hub, _| hub.store.number_bounds());
    while !missing.is_empty() && bounds.0 != bounds.1 {
        core.with(|hub, _| {
            let mut steps = MESSAGES_STEP;
            let mut last = bounds.1.wrapping_sub(1);
            for (no, message) in hub.store.messages_between(bounds.0, bounds.1) {
                let pending = message.pending();
                if pending.len() < missing.len() {
                    for id in pending {
                        if let Ok(at) = missing.binary_search(&id) {
                            found.insert(missing.remove(at), no);
                        }
                    }
                    steps = steps.saturating_sub(1 + pending.len() / LOOK_STEPS);
                } else {
                    missing.retain(|id| {
                        let is_there = pending.contains(*id);
                        if is_there {
                            found.insert(*id, no);
                        }
                        !is_there
                    });
                    steps = steps.saturating_sub(1 + missing.len() / LOOK_STEPS);
                }
                if missing.is_empty() {
                    break;
                }
                if steps == 0 {
                    last = no.0;
                    break;
                }
            }
            bounds.0 = last.wrapping_add(1);
        });
        tokio::task::yield_now().await;
    }
    found
}
