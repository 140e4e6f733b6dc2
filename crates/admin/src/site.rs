//! `stentor site NAME`: why mail waits at a site, according to the scheduler.

use std::sync::Arc;

use stentor_control::causes::summary;
use stentor_control::problem::Problem;
use stentor_control::{ErrorCode, HostView, PathView, Reply, SiteView};
use stentor_engine::core::hub::Hub;
use stentor_engine::core::{Core, Settings};
use stentor_queue::ids::SiteId;
use stentor_sched::{Cause, HostStatus, PathStatus, SiteExplanation, Tally, WaitsFor};

use crate::causes;
use crate::causes::{Censuses, SitesNow};
use crate::near;
use crate::views::reply;

/// A site by its name, or by a domain that is at it, with its name.
pub fn find(hub: &Hub, name: &str) -> Option<(SiteId, Arc<str>)> {
    let of_domain = || hub.sched.site_of(hub.store.book.domain_lookup(&name.to_ascii_lowercase())?);
    let site = hub.sched.site_named(name).or_else(of_domain)?;
    Some((site, hub.sched.site_name(site)?.into()))
}

pub fn unknown(name: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("no site {name}; `stentor queue` names them"))
}

/// The site with what waits there and each source's way to it.
pub async fn view(core: &Arc<Core>, censuses: &Arc<Censuses>, name: &str) -> Reply {
    let settings = core.settings();
    let sites = SitesNow::get(core, censuses).await;
    let found = core.with(|hub, now| {
        let (site, _) = find(hub, name)?;
        let explained = hub.sched.explain_site(site, now)?;
        let tally = sites.at(site);
        Some(SiteView {
            site: explained.status.name.to_string(),
            now,
            messages: tally.map_or(explained.status.messages as u64, |tally| tally.messages),
            waiting: sites.waiting.iter().find(|(_, at)| *at == site).map_or(0, |(waiting, _)| *waiting),
            suspended: explained.waits_for == WaitsFor::Operator,
            waits_for: waits_for(hub, tally, &explained),
            next_try: tally.and_then(Tally::next_try),
            last_reply: causes::last_reply(hub, tally.filter(|tally| causes::is_in_trouble(tally))),
            causes: causes::rows(hub, tally),
            paths: path_views(&explained, &settings),
        })
    });
    found.map_or_else(|| Reply::Error(near::unknown_site(core, name)), |view| Reply::Site(Box::new(view)))
}

fn path_views(site: &SiteExplanation, settings: &Settings) -> Vec<PathView> {
    let mut hosts = site.hosts.iter().peekable();
    let paths = site.paths.iter().map(|path| {
        let mut view = path_view(path, settings);
        while let Some(host) = hosts.next_if(|host| host.source == path.source) {
            view.hosts.push(host_view(host));
        }
        view
    });
    paths.collect()
}

/// Why mail waits at a site, in words; empty if nothing is in its way. Which of our limits it is, is known of the site now.
pub fn waits_for(hub: &Hub, tally: Option<&Tally>, site: &SiteExplanation) -> String {
    let mut rows = causes::rows(hub, tally);
    if rows.iter().all(|row| row.cause().is_moving()) {
        return String::new();
    }
    for row in &mut rows {
        if row.cause() == Cause::OwnLimit {
            own_limit(site.waits_for).clone_into(&mut row.words);
        }
    }
    summary(&rows)
}

fn own_limit(waits_for: WaitsFor) -> &'static str {
    match waits_for {
        WaitsFor::Rate(_) => "our rate limit for it",
        WaitsFor::Connections => "at its connection limit",
        WaitsFor::Transactions => "at its limit of concurrent transactions",
        WaitsFor::Budget => "all outgoing connections are in use",
        _ => Cause::OwnLimit.words(),
    }
}

fn path_view(path: &PathStatus, settings: &Settings) -> PathView {
    let source = settings.config.sending.sources.get(usize::from(path.source));
    PathView {
        source: source.map_or_else(String::new, |source| source.name.clone()),
        connections: path.connections as u64,
        silent: path.silent as u64,
        connections_max: path.connections_max as u64,
        transactions_under_way: path.transactions_under_way.into(),
        transactions_per_connection_max: path.transactions_per_connection_max.map(u64::from),
        recipients_per_transaction_max: path.recipients_per_transaction_max.map(|max| max as u64),
        messages_per_minute_max: path.per_minute.map(u64::from),
        paused_until: path.paused_until,
        latency_ms: path.latency_ms.into(),
        silence_ms: path.silence_ms,
        hosts: Vec::new(),
    }
}

pub fn host_view(host: &HostStatus) -> HostView {
    HostView {
        host: host.host.to_string(),
        address: host.addr.to_string(),
        failures: host.fails,
        next_try: host.until,
        probing: host.is_probed,
        silent: host.is_silent,
        last_reply: reply(host.reason.clone().filter(|_| host.fails > 0)),
    }
}
