//! `stentor site NAME`: why mail waits at a site, from what the scheduler knows.

use std::sync::Arc;

use stentor_queue::ids::SiteId;
use stentor_queue::sched::{HostStatus, PathStatus, SiteStatus};

use crate::control::protocol::Problem;
use crate::control::{ErrorCode, HostView, PathView, Reply, SiteView};
use crate::core::hub::Hub;
use crate::core::{Core, Settings};
use crate::operator::reply;

/// A site by its name, or by a domain that is at it, with its name.
pub fn find(hub: &Hub, name: &str) -> Option<(SiteId, Arc<str>)> {
    let of_domain = || hub.sched.site_of(hub.store.book.domain_lookup(&name.to_ascii_lowercase())?);
    let site = hub.sched.site_named(name).or_else(of_domain)?;
    Some((site, hub.sched.site_name(site)?.into()))
}

pub fn unknown(name: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("no site {name}; `stentor queue` names them"))
}

pub fn view(core: &Arc<Core>, name: &str) -> Reply {
    let settings = core.settings();
    let found = core.with(|hub, now| {
        let (site, _) = find(hub, name)?;
        let status = hub.sched.site_status(site, now)?;
        let suspended = hub.sched.is_site_suspended(site);
        Some((status, suspended, hub.sched.site_paths(site, now), now))
    });
    let Some((status, suspended, paths, now)) = found else { return Reply::Error(unknown(name)) };
    let next_try = paths.iter().filter_map(|path| path.paused_until).chain(status.until).min();
    Reply::Site(Box::new(SiteView {
        site: status.name.to_string(),
        now,
        messages: status.messages as u64,
        suspended,
        waits_for: waits_for(&status, suspended, &paths),
        next_try,
        last_reply: reply(status.reason),
        paths: paths.into_iter().map(|path| path_view(path, &settings)).collect(),
    }))
}

/// What stops the next message, in words.
fn waits_for(status: &SiteStatus, suspended: bool, paths: &[PathStatus]) -> String {
    let limit: usize = paths.iter().map(|path| path.limit).sum();
    let open: usize = paths.iter().map(|path| path.connections - path.silent).sum();
    if suspended {
        "an operator: it is suspended (`stentor resume`)"
    } else if status.messages == 0 && status.until.is_none() {
        ""
    } else if status.until.is_some() {
        "the clock of its hosts: none could be reached or would talk to us"
    } else if !paths.is_empty() && paths.iter().all(|path| path.paused_until.is_some()) {
        "the end of a pause: it said that we send too much at a time"
    } else if paths.iter().any(|path| path.silent > 0) && open == 0 {
        "an answer: all connections are kept waiting"
    } else if open >= limit && open > 0 {
        "its connections: as many as it bears are busy"
    } else if status.messages > 0 {
        "a connection from the budget, or its turn"
    } else {
        ""
    }
    .to_owned()
}

fn path_view(path: PathStatus, settings: &Settings) -> PathView {
    let source = settings.config.sending.sources.get(usize::from(path.source));
    PathView {
        source: source.map_or_else(String::new, |source| source.name.clone()),
        connections: path.connections as u64,
        idle: path.idle as u64,
        silent: path.silent as u64,
        connections_max: path.limit as u64,
        proven: path.proven,
        transactions_under_way: path.under_way.into(),
        transactions_per_connection_max: path.transactions_max.map(u64::from),
        recipients_per_transaction_max: path.recipients_max.map(|max| max as u64),
        messages_per_minute_max: path.messages_per_minute,
        paused_until: path.paused_until,
        latency_ms: path.latency_ms.into(),
        hosts: path.hosts.into_iter().map(host_view).collect(),
    }
}

fn host_view(host: HostStatus) -> HostView {
    HostView {
        host: host.host.to_string(),
        address: host.addr.to_string(),
        preference: host.preference,
        failures: host.fails,
        next_try: host.until,
        probing: host.probing,
        last_reply: reply(host.reason),
    }
}
