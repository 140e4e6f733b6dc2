//! Where mail waits, for `stentor queue` and `queue --stuck`: from the shared census or, until there is one, from the
//! store's counts.
//!
//! Promise: slices of well under a millisecond under the hub's lock, released in between so that mail passes; rows are
//! of slightly different instants. Memory: eight bytes per site, and the rows. Ten million pending recipients of a
//! million addresses at 50,000 sites cost one read of each count, some milliseconds.

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::HashMap;
use stentor_control::problem::Problem;
use stentor_control::{CauseRow, ListRow, RowKind, SiteRow, Sort, StuckReport, StuckRow};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_sched::{CauseCounts, QueuePart, SiteProgress, WaitingPlace};

use crate::advice::AdviceFacts;
use crate::causes::{Censuses, DatedCensus, SitesNow};
use crate::row_query::{Key, RankedPlace, RowQuery, key};
use crate::top::top_addresses;
use crate::views::{place_name, recipient};
use crate::{advice, causes};

/// Keys built per hold of the lock.
const KEYS_STEP: usize = 1_024;
/// Messages examined per hold of the lock, each for all recipients shown.
const MESSAGES_STEP: usize = 4_096;
/// Rows built per hold of the lock.
const ROWS_STEP: usize = 64;
/// Maximum lists of an answer; they are in its first line.
const LISTS_MAX: usize = 200;
/// Cost of finding one recipient in a message, in messages.
const LOOK_STEPS: usize = 8;

/// Sites and lists with pending recipients, the number of sites, and what all of it waits for.
pub struct Depths {
    pub rows: Vec<SiteRow>,
    pub sites_total: u64,
    /// Number of domains without a site, included in the total.
    pub domains_total: u64,
    pub causes: Vec<CauseRow>,
    pub lists: Vec<ListRow>,
    pub counted: Option<Arc<DatedCensus>>,
}

/// Sites and lists of a part of the queue.
pub async fn sites(core: &Arc<Core>, censuses: &Arc<Censuses>, query: &RowQuery) -> Depths {
    let now = SitesNow::of(core, censuses, &query.part).await;
    let all = now.places();
    let (sites_total, domains_total) = (all.len() as u64, now.unresolved.len() as u64);
    let rows = rows(core, &now, &first(core, &now, all, query).await).await;
    let total = now.counted.as_ref().map(|counted| &counted.census.total);
    let causes = core.with(|hub, at| causes::rows(hub, total, at));
    let lists = lists(core, now.counted.as_deref(), query).await;
    Depths { rows, sites_total, domains_total, causes, lists, counted: now.counted }
}

/// Rows of the places whose counts `is_meant` accepts, those with most recipients first, and their total number.
/// `is_meant` is called under the hub's lock.
pub async fn judged(
    core: &Arc<Core>,
    now: &SitesNow,
    rows_max: usize,
    is_meant: impl Fn(&Hub, WaitingPlace, &CauseCounts) -> bool,
) -> (Vec<SiteRow>, u64) {
    let mut found: Vec<RankedPlace> = Vec::new();
    for part in now.places().chunks(KEYS_STEP) {
        core.with(|hub, _| {
            found.extend(part.iter().filter_map(|&(waiting, at)| {
                let counts = now.at(at)?;
                let key = Key::Number(Reverse(waiting));
                is_meant(hub, at, counts).then_some(RankedPlace { key, waiting, at })
            }));
        });
        tokio::task::yield_now().await;
    }
    let total = found.len() as u64;
    found.sort_unstable_by(RankedPlace::order);
    found.truncate(rows_max);
    (rows(core, now, &found).await, total)
}

/// Rows of the chosen places, in the order of their keys.
async fn rows(core: &Arc<Core>, now: &SitesNow, chosen: &[RankedPlace]) -> Vec<SiteRow> {
    let mut rows = Vec::with_capacity(chosen.len());
    let name_servers = name_servers(core);
    for part in chosen.chunks(ROWS_STEP) {
        core.with(|hub, at| {
            rows.extend(part.iter().filter_map(|place| {
                let row = match place.at {
                    WaitingPlace::Site(site) => site_row(hub, now, site, place.waiting, &name_servers, at)?,
                    WaitingPlace::Domain(domain) => domain_row(hub, now, domain, place.waiting, &name_servers, at),
                };
                Some((&place.key, row))
            }));
        });
        tokio::task::yield_now().await;
    }
    rows.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.site.cmp(&other.site)));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// When the oldest message waiting there was accepted.
pub fn oldest(hub: &Hub, counts: &CauseCounts) -> Option<Ms> {
    counts.oldest.and_then(|no| hub.store.message(no)).map(Message::accepted)
}

/// The first places by key, unsorted.
async fn first(core: &Arc<Core>, now: &SitesNow, all: Vec<(u64, WaitingPlace)>, query: &RowQuery) -> Vec<RankedPlace> {
    let mut keyed: Vec<RankedPlace> = Vec::with_capacity(all.len());
    if query.sort == Sort::Waiting {
        keyed.extend(all.into_iter().map(|(waiting, at)| RankedPlace {
            key: Key::Number(Reverse(waiting)),
            waiting,
            at,
        }));
    } else {
        for part in all.chunks(KEYS_STEP) {
            core.with(|hub, _| {
                keyed.extend(part.iter().map(|&(waiting, at)| {
                    let key = key(hub, query.sort, waiting, now.at(at), place_name(hub, at));
                    RankedPlace { key, waiting, at }
                }));
            });
            tokio::task::yield_now().await;
        }
    }
    if keyed.len() > query.rows_max && query.rows_max > 0 {
        keyed.select_nth_unstable_by(query.rows_max - 1, RankedPlace::order);
    }
    keyed.truncate(query.rows_max);
    keyed
}

/// A row for a domain without a site.
fn domain_row(hub: &Hub, now: &SitesNow, domain: DomainId, waiting: u64, name_servers: &str, at: Ms) -> SiteRow {
    let site = hub.store.book.domain_name(domain).to_owned();
    let row = SiteRow { site, waiting, is_unresolved: true, ..SiteRow::default() };
    let mut row = with_counts(row, hub, now.at(WaitingPlace::Domain(domain)), at);
    row.action = advice::site(
        &row,
        false,
        &AdviceFacts { name_servers, last_reply: &row.last_reply, ..AdviceFacts::default() },
        at,
    );
    row
}

/// Rows of lists, including mail that belongs to no list.
async fn lists(core: &Arc<Core>, counted: Option<&DatedCensus>, query: &RowQuery) -> Vec<ListRow> {
    let all: Vec<_> = counted.into_iter().flat_map(|counted| &counted.census.lists).collect();
    let mut keyed = Vec::with_capacity(all.len());
    for part in all.chunks(KEYS_STEP) {
        core.with(|hub, _| {
            keyed.extend(
                part.iter().map(|(list, counts)| {
                    (key(hub, query.sort, counts.recipients(), Some(counts), list), *list, *counts)
                }),
            );
        });
        tokio::task::yield_now().await;
    }
    keyed.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    keyed.truncate(query.rows_max.min(LISTS_MAX));
    let mut rows = Vec::with_capacity(keyed.len());
    for part in keyed.chunks(ROWS_STEP) {
        core.with(|hub, now| {
            rows.extend(part.iter().map(|(_, list, counts)| ListRow {
                list: list.to_string(),
                waiting: counts.recipients(),
                messages: counts.messages,
                next_try: counts.next_try(),
                oldest: oldest(hub, counts),
                causes: causes::rows(hub, Some(counts), now),
            }));
        });
        tokio::task::yield_now().await;
    }
    rows
}

fn site_row(hub: &Hub, sites: &SitesNow, site: SiteId, waiting: u64, name_servers: &str, now: Ms) -> Option<SiteRow> {
    let status = hub.sched.site_status(site, now)?;
    let row = SiteRow {
        site: status.name.to_string(),
        waiting,
        messages: status.messages as u64,
        connections: status.connections as u64,
        ..SiteRow::default()
    };
    let counts = sites.at(WaitingPlace::Site(site));
    let mut row = with_counts(row, hub, counts, now);
    let is_suspended = hub.sched.glance(site, now).is_some_and(|g| g.standing == SiteProgress::Suspended);
    let oldest = counts.and_then(|counts| counts.oldest).and_then(|no| hub.store.message(no));
    let suspended = oldest.and_then(|message| suspension(hub, &row.site, message));
    let known = AdviceFacts {
        suspended: suspended.as_deref(),
        reason: reason_of(hub, suspended.as_deref()),
        name_servers,
        last_reply: &row.last_reply,
        ..AdviceFacts::default()
    };
    row.action = advice::site(&row, is_suspended, &known, now);
    Some(row)
}

/// Adds the count's data to a row.
fn with_counts(row: SiteRow, hub: &Hub, counts: Option<&CauseCounts>, now: Ms) -> SiteRow {
    let Some(counts) = counts else { return row };
    SiteRow {
        messages: counts.messages,
        next_try: counts.next_try(),
        last_reply: causes::last_reply(hub, Some(counts)),
        oldest: oldest(hub, counts),
        causes: causes::rows(hub, Some(counts), now),
        ..row
    }
}

/// The recipients with most messages and the sites, at most `rows_max` of each; or one of the two.
///
/// # Errors
/// There is no such list.
pub async fn stuck(
    core: &Arc<Core>,
    censuses: &Arc<Censuses>,
    query: &RowQuery,
    by: Option<RowKind>,
) -> Result<StuckReport, Problem> {
    let (recipients, recipients_total) =
        if by == Some(RowKind::Site) { (Vec::new(), 0) } else { recipients(core, query).await };
    // Beside recipients by messages, show sites by recipients: a post to a hundred thousand at one site is one message.
    let sort = if by == Some(RowKind::Site) { query.sort } else { Sort::Waiting };
    let depths = sites(core, censuses, &RowQuery { sort, ..query.clone() }).await;
    if let Some(problem) = query.unknown_list(core, depths.counted.as_deref()) {
        return Err(problem);
    }
    let hostname = core.settings().config.hostname.clone();
    let is_of_sites = by != Some(RowKind::Recipient);
    Ok(core.with(|hub, now| StuckReport {
        hostname,
        now,
        part: query.words.clone(),
        is_counting: hub.store.is_counting(),
        recipients_total,
        sites_total: if is_of_sites { depths.sites_total } else { 0 },
        domains_total: if is_of_sites { depths.domains_total } else { 0 },
        counted: depths.counted.map(|counted| counted.at),
        recipients,
        sites: if is_of_sites { depths.rows } else { Vec::new() },
    }))
}

/// Rows, and the number of recipients.
async fn recipients(core: &Arc<Core>, query: &RowQuery) -> (Vec<StuckRow>, u64) {
    let (top, total) = top_addresses(core, query).await;
    let oldest = oldest_of(core, &top, &query.part).await;
    let mut recipients = Vec::with_capacity(top.len());
    let name_servers = name_servers(core);
    for part in top.chunks(ROWS_STEP) {
        core.with(|hub, now| {
            for (messages, id) in part {
                let Some(no) = oldest.get(id) else { continue };
                let message = hub.store.message(*no);
                let (state, oldest) = (recipient(hub, *no, AddressId(*id), now), message.map(Message::accepted));
                let oldest_id = message.map(|message| message.id().to_string());
                let suspended = message.and_then(|message| suspension(hub, &state.site, message));
                let known = AdviceFacts {
                    subscribed: message.and_then(Message::list).filter(|name| is_subscribed(hub, name, *id)),
                    oldest: oldest_id.as_deref().zip(oldest),
                    asked: query.part.list.as_deref(),
                    suspended: suspended.as_deref(),
                    reason: reason_of(hub, suspended.as_deref()),
                    name_servers: &name_servers,
                    last_reply: &state.last_reply,
                };
                recipients.push(StuckRow {
                    action: advice::recipient(&state, &known, now),
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
    (recipients, total)
}

fn is_subscribed(hub: &Hub, list: &str, id: u32) -> bool {
    hub.store.list(list).is_some_and(|list| list.ids.contains(id))
}

/// The suspension that keeps a message from a site, by its name in the journal: that of the site, the list or the
/// sender.
fn suspension(hub: &Hub, site: &str, message: &Message) -> Option<String> {
    let domain = || message.sender().rsplit_once('@').map_or("", |(_, domain)| domain);
    let flow = message.list().map_or_else(|| format!("sender:{}", domain()), |list| format!("list:{list}"));
    [format!("site:{site}"), flow].into_iter().find(|what| hub.store.is_suspended(what))
}

/// The operator's reason for a suspension; empty if none was given.
fn reason_of<'h>(hub: &'h Hub, suspended: Option<&str>) -> &'h str {
    suspended.and_then(|what| hub.store.suspended_reason(what)).unwrap_or_default()
}

/// The name servers in use.
fn name_servers(core: &Core) -> String {
    core.resolver().name_servers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The oldest message waiting for each recipient; recipients without waiting mail by now are omitted.
async fn oldest_of(core: &Arc<Core>, top: &[(u32, u32)], part: &QueuePart) -> HashMap<u32, MessageNo> {
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
                if !part.has_message(message) {
                    steps = steps.saturating_sub(1);
                } else if pending.len() < missing.len() {
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
