//! `stentor hosts`: each site with its hosts, retry clocks, reasons, last replies and history, one page at a time.
//!
//! Each site's key is read, then rows are built only for the page. Domains with a history or mail but no site yet (not
//! looked up since the start) get their own rows, without hosts.

use std::cmp::Reverse;
use std::sync::Arc;

use stentor_control::problem::Problem;
use stentor_control::{HostRow, Hosts, HostsQuery, Sort};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::{DomainId, Ms, SiteId};
use stentor_sched::{CauseCounts, SiteSummary, WaitingPlace};

use crate::causes::{Censuses, SitesNow};
use crate::row_query::{Key, RankedPlace, RowQuery, key};
use crate::views::{lane_name, reply};
use crate::{causes, site, tls, verbs};

/// Sites or domains examined per hold of the lock.
const STEP: u32 = 256;
/// Rows built per hold of the lock.
const ROWS_STEP: usize = 8;
/// Maximum domains of one site examined for its history.
const DOMAINS_LOOKED_MAX: usize = 1_000;

/// The list; see the module's documentation.
///
/// # Errors
/// There is no such list.
pub async fn hosts(
    core: &Arc<Core>,
    censuses: &Arc<Censuses>,
    query: &RowQuery,
    page: &HostsQuery,
) -> Result<Hosts, Problem> {
    let sites = SitesNow::of(core, censuses, &query.part).await;
    if let Some(problem) = query.unknown_list(core, sites.counted.as_deref()) {
        return Err(problem);
    }
    let mut found = at_sites(core, query, page, &sites).await;
    let mut sites_total = core.with(|hub, _| u64::from(hub.sched.sites_known()));
    if !page.failing {
        let domains = without_site(core, query, page, &sites).await;
        sites_total += domains.len() as u64;
        found.extend(domains);
    }
    let matching = found.len() as u64;
    let (offset, rows_max) = (page.offset.min(matching) as usize, query.rows_max);
    let end = offset.saturating_add(rows_max).min(found.len());
    if end < found.len() && end > 0 {
        found.select_nth_unstable_by(end - 1, RankedPlace::order);
    }
    found.truncate(end);
    found.sort_unstable_by(RankedPlace::order);
    let mut rows = Vec::with_capacity(end - offset);
    for part in found[offset..].chunks(ROWS_STEP) {
        core.with(|hub, now| rows.extend(part.iter().filter_map(|place| row(hub, &sites, place, now))));
        tokio::task::yield_now().await;
    }
    let now = core.clock.now();
    for row in &mut rows {
        row.weakest_tls = tls::fill(core, row.hosts.iter_mut(), now);
    }
    let hostname = core.settings().config.hostname.clone();
    Ok(Hosts {
        hostname,
        now,
        part: query.words.clone(),
        sites_total,
        matching,
        offset: offset as u64,
        counted: sites.counted.as_ref().map(|counted| counted.at),
        rows,
    })
}

fn has(name: &str, page: &HostsQuery) -> bool {
    page.name.as_ref().is_none_or(|wanted| name.contains(wanted.to_ascii_lowercase().as_str()))
}

async fn at_sites(core: &Arc<Core>, query: &RowQuery, page: &HostsQuery, sites: &SitesNow) -> Vec<RankedPlace> {
    let mut found = Vec::new();
    let (mut waiting, mut next) = (sites.waiting.iter().peekable(), 0);
    let is_of_list = query.part.list.is_some();
    loop {
        let is_last = core.with(|hub, now| {
            let known = hub.sched.sites_known();
            let until = known.min(next + STEP);
            for id in (next..until).map(SiteId) {
                // Both are in the order of their ids.
                let count = waiting.next_if(|(_, site)| *site == id).map_or(0, |(count, _)| *count);
                let Some(glance) = hub.sched.glance(id, now) else { continue };
                let is_there = query.part.at.is_none_or(|at| at == WaitingPlace::Site(id));
                let is_meant = (count > 0 || !page.waiting && !is_of_list) && (glance.fails > 0 || !page.failing);
                let name = hub.sched.site_name(id).unwrap_or_default();
                if !is_there || !is_meant || !has(name, page) {
                    continue;
                }
                let key = host_key(hub, query.sort, count, sites.at(WaitingPlace::Site(id)), Some(&glance), name);
                found.push(RankedPlace { key, waiting: count, at: WaitingPlace::Site(id) });
            }
            next = until;
            until == known
        });
        if is_last {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// As [`key`], with the orders of hosts; `None` for a domain without hosts.
fn host_key(
    hub: &Hub,
    sort: Sort,
    waiting: u64,
    counts: Option<&CauseCounts>,
    glance: Option<&SiteSummary>,
    name: &str,
) -> Key {
    let of_hosts = |number: fn(&SiteSummary) -> u64| Key::Number(Reverse(glance.map_or(0, number)));
    match sort {
        Sort::Failures => of_hosts(|glance| glance.fails.into()),
        Sort::Latency => of_hosts(|glance| glance.latency_ms.into()),
        Sort::NextTry if counts.is_none() => Key::At(glance.and_then(|glance| glance.until).unwrap_or(Ms::MAX)),
        sort => key(hub, sort, waiting, counts, name),
    }
}

/// Domains without a site.
async fn without_site(core: &Arc<Core>, query: &RowQuery, page: &HostsQuery, sites: &SitesNow) -> Vec<RankedPlace> {
    let (mut found, mut next) = (Vec::new(), 0);
    loop {
        let is_last = core.with(|hub, _| {
            let all = hub.store.book.domains() as u32;
            let until = all.min(next + STEP);
            for domain in (next..until).map(DomainId) {
                let is_there = query.part.at.is_none_or(|at| at == WaitingPlace::Domain(domain));
                if !is_there || hub.sched.site_of(domain).is_some() {
                    continue;
                }
                let (waiting, history) = (sites.waiting_for(hub, domain), hub.store.book.site_history(domain));
                let is_known = history.last_success().is_some() || history.last_failure().is_some();
                let name = hub.store.book.domain_name(domain);
                let is_open = !page.waiting && query.part.list.is_none();
                let is_meant = waiting > 0 || is_open && (is_known || query.part.at.is_some());
                if !is_meant || !has(name, page) {
                    continue;
                }
                let key = host_key(hub, query.sort, waiting, sites.at(WaitingPlace::Domain(domain)), None, name);
                found.push(RankedPlace { key, waiting, at: WaitingPlace::Domain(domain) });
            }
            next = until;
            until == all
        });
        if is_last {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

fn row(hub: &Hub, sites: &SitesNow, place: &RankedPlace, now: Ms) -> Option<HostRow> {
    let id = match place.at {
        WaitingPlace::Site(id) => id,
        WaitingPlace::Domain(domain) => return Some(row_of_domain(hub, sites, domain, place.waiting, now)),
    };
    let glance = hub.sched.glance(id, now)?;
    let explained = hub.sched.explain_site(id, now)?;
    let counts = sites.at(WaitingPlace::Site(id));
    let domains = || hub.sched.domains_at(id).take(DOMAINS_LOOKED_MAX);
    let domain = domains().max_by_key(|domain| (hub.store.waiting_at(*domain), Reverse(domain.0)));
    Some(HostRow {
        site: explained.status.name.to_string(),
        waiting: place.waiting,
        causes: causes::rows(hub, counts, now),
        messages: counts.map_or(explained.status.messages as u64, |counts| counts.messages),
        connections: glance.connections as u64,
        lane: lane_name(glance.standing).to_owned(),
        next_try: if counts.is_some() { counts.and_then(CauseCounts::next_try) } else { glance.until },
        last_reply: site::last_reply(hub, sites, id, &explained),
        latency_ms: glance.latency_ms.into(),
        domains: domains().count() as u64,
        domain: domain.map_or("", |domain| hub.store.book.domain_name(domain)).to_owned(),
        history: domain.map(|domain| verbs::hosts_history(hub, domain, now)).unwrap_or_default(),
        weakest_tls: None,
        hosts: explained.hosts.iter().map(|host| site::host_view(host, now)).collect(),
        waits_for: site::waits_for(hub, counts, &explained, now),
    })
}

fn row_of_domain(hub: &Hub, sites: &SitesNow, domain: DomainId, waiting: u64, now: Ms) -> HostRow {
    let (next_try, reason) = hub.sched.look_up_of(domain).unwrap_or_default();
    let name = hub.store.book.domain_name(domain).to_owned();
    let counts = sites.at(WaitingPlace::Domain(domain));
    let rows = causes::rows(hub, counts, now);
    HostRow {
        site: name.clone(),
        waiting,
        lane: "unknown".to_owned(),
        messages: counts.map_or(0, |counts| counts.messages),
        waits_for: site::lookup(&rows, waiting, reason.as_ref()),
        causes: rows,
        next_try,
        last_reply: reply(reason),
        domains: 1,
        domain: name,
        history: verbs::hosts_history(hub, domain, now),
        ..HostRow::default()
    }
}
