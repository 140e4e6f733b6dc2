//! `stentor site NAME`: why mail waits at a site, according to the scheduler.

use std::sync::Arc;

use stentor_control::problem::Problem;
use stentor_control::{ErrorCode, HostView, PathView, Reply, SiteView};
use stentor_engine::core::hub::Hub;
use stentor_engine::core::{Core, Settings};
use stentor_queue::ids::{Ms, SiteId};
use stentor_sched::{FlowKey, HostStatus, PathStatus, SiteExplanation, WaitsFor};

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

/// Why mail waits at a site, in words; empty if nothing prevents it.
pub fn reason(hub: &mut Hub, site: SiteId, now: Ms) -> String {
    let Some(found) = hub.sched.explain_site(&hub.store, site, now) else { return String::new() };
    waits_for(&found, &suspended_flows(hub))
}

/// Lists and senders' domains that an operator stopped.
fn suspended_flows(hub: &Hub) -> Vec<String> {
    // Subscribers come last, and may be many.
    let flows = hub.store.suspended().take_while(|what| !what.starts_with("subscriber:"));
    flows.map(str::to_owned).collect()
}

pub fn view(core: &Arc<Core>, name: &str) -> Reply {
    let settings = core.settings();
    let found = core.with(|hub, now| {
        let (site, _) = find(hub, name)?;
        let suspended = suspended_flows(hub);
        Some((hub.sched.explain_site(&hub.store, site, now)?, suspended, now))
    });
    let Some((site, suspended, now)) = found else { return Reply::Error(unknown(name)) };
    let next_try = match site.waits_for {
        WaitsFor::HostClock(at) | WaitsFor::Rate(at) => Some(at),
        _ => None,
    };
    let mut hosts = site.hosts.iter().peekable();
    let paths = site.paths.iter().map(|path| {
        let mut view = path_view(path, &settings);
        while let Some(host) = hosts.next_if(|host| host.source == path.source) {
            view.hosts.push(host_view(host));
        }
        view
    });
    Reply::Site(Box::new(SiteView {
        site: site.status.name.to_string(),
        now,
        messages: site.flows.iter().map(|(_, _, messages)| *messages as u64).sum(),
        suspended: site.waits_for == WaitsFor::Operator,
        waits_for: waits_for(&site, &suspended),
        next_try,
        last_reply: reply(site.status.reason.clone()),
        paths: paths.collect(),
    }))
}

/// What prevents the next message, in words.
fn waits_for(site: &SiteExplanation, suspended: &[String]) -> String {
    let words = match site.waits_for {
        WaitsFor::Operator => "an operator: the site is suspended (`stentor resume`)",
        WaitsFor::HostClock(_) => "its hosts' retry clocks: none could be reached, or all refused us",
        WaitsFor::Probe => "a probe: one connection checks whether its hosts are back",
        WaitsFor::Rate(_) => "its turn: a rate limit, or a pause after a rate-limit reply",
        WaitsFor::Connections => "its connections: all that it accepts are busy",
        WaitsFor::Transactions => "replies: its limit of concurrent transactions is reached",
        WaitsFor::Budget => "a connection: the budget is used up",
        WaitsFor::Going | WaitsFor::Nothing => "",
    };
    let stopped = |(key, _, _): &&(Option<FlowKey>, bool, usize)| {
        let name = match key {
            Some(FlowKey::List(list)) => format!("list:{list}"),
            Some(FlowKey::Sender(domain)) => format!("sender:{domain}"),
            None => return false,
        };
        suspended.contains(&name)
    };
    let count: usize = site.flows.iter().filter(stopped).map(|(_, _, messages)| *messages).sum();
    match (words, count) {
        (words, 0) => words.to_owned(),
        ("", count) => format!("an operator: lists or senders with {count} messages here are suspended"),
        (words, count) => format!("{words}; {count} messages of suspended lists or senders"),
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
