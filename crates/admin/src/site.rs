//! `stentor site NAME`: why mail waits at a site, according to the scheduler.

use std::sync::Arc;

use stentor_control::causes::summary;
use stentor_control::problem::Problem;
use stentor_control::{ErrorCode, HostView, PathView, Reply, SiteView};
use stentor_engine::core::hub::Hub;
use stentor_engine::core::{Core, Settings};
use stentor_queue::ids::SiteId;
use stentor_sched::{Cause, CauseCounts, HostStatus, PathStatus, SiteExplanation, WaitsFor};

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
        let (counts, is_counted) = (sites.at(site), sites.counted.is_some());
        let ends = hub.store.suspended_until(&format!("site:{}", explained.status.name));
        Some(SiteView {
            site: explained.status.name.to_string(),
            now,
            messages: counts.map_or(explained.status.messages as u64, |counts| counts.messages),
            waiting: sites.waiting_at(site),
            counted: sites.counted.as_ref().map(|counted| counted.at),
            suspended: explained.waits_for == WaitsFor::Operator,
            suspended_until: ends.filter(|_| explained.waits_for == WaitsFor::Operator),
            waits_for: if is_counted { waits_for(hub, counts, &explained) } else { live(&explained) },
            next_try: if is_counted { counts.and_then(CauseCounts::next_try) } else { explained.status.until },
            last_reply: if is_counted {
                causes::last_reply(
                    hub,
                    counts.filter(|counts| counts.main().is_some_and(|count| count.cause.is_blocked())),
                )
            } else {
                reply(explained.status.reason.clone())
            },
            causes: causes::rows(hub, counts),
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
pub fn waits_for(hub: &Hub, counts: Option<&CauseCounts>, site: &SiteExplanation) -> String {
    let mut rows = causes::rows(hub, counts);
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

/// What a site's mail waits for that could go, as the scheduler sees it now: while nobody has counted the recipients.
fn live(site: &SiteExplanation) -> String {
    let cause = match site.waits_for {
        WaitsFor::Operator => Cause::Suspended,
        WaitsFor::HostClock(_) | WaitsFor::Probe => {
            site.status.reason.as_ref().map_or(Cause::Lost, |reply| reply.cause)
        }
        WaitsFor::Silent => Cause::Silent,
        WaitsFor::Full(_) => Cause::Busy,
        WaitsFor::Pause(_) => Cause::Rate,
        limit @ (WaitsFor::Rate(_) | WaitsFor::Connections | WaitsFor::Transactions | WaitsFor::Budget) => {
            return own_limit(limit).to_owned();
        }
        WaitsFor::Nothing | WaitsFor::Connecting | WaitsFor::Going => return String::new(),
    };
    cause.words().to_owned()
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
