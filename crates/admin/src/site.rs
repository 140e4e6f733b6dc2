//! `stentor site NAME`: why mail waits at a site, according to the scheduler.

use std::sync::Arc;

use stentor_control::causes::summary;
use stentor_control::view::Subject;
use stentor_control::{CauseRow, ControlReply, HostView, PathView, SiteView, View};
use stentor_core::hub::Hub;
use stentor_core::{Core, Settings};
use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_sched::{CauseCounts, HostStatus, PathStatus, QueuePart, SiteExplanation, WaitingPlace, WaitsFor};

pub use crate::find::find;

/// Maximum recipients of a message examined for one reply.
const RECIPIENTS_LOOKED_MAX: usize = 1_024;

use crate::causes::{Censuses, SitesNow};
use crate::row_query::RowQuery;
use crate::views::{lane_name, progress, reply};
use crate::{causes, suggestions, tls};

/// The site with its waiting mail, optionally only that of a list, and each source's path to it.
pub async fn view(core: &Arc<Core>, censuses: &Arc<Censuses>, name: &str, list: Option<String>) -> ControlReply {
    let asked = View { site: Some(name.to_owned()), list, ..View::default() };
    let query = match RowQuery::of(core, &asked, Subject::Site) {
        Ok(query) => query,
        Err(problem) => return ControlReply::Error(problem),
    };
    // For all mail the count shared by all views is used.
    let counted = if query.part.list.is_some() { query.part.clone() } else { QueuePart::default() };
    let sites = SitesNow::of(core, censuses, &counted).await;
    if let Some(problem) = query.unknown_list(core, sites.counted.as_deref()) {
        return ControlReply::Error(problem);
    }
    let settings = core.settings();
    let found = core.with(|hub, now| match query.part.at? {
        WaitingPlace::Site(site) => site_view(hub, &sites, site, &settings, now),
        WaitingPlace::Domain(domain) => Some(domain_view(hub, &sites, domain, now)),
    });
    let now = core.clock.now();
    let view = found.map(|mut view| {
        view.weakest_tls = tls::fill(core, view.paths.iter_mut().flat_map(|path| &mut path.hosts), now);
        SiteView { list: asked.list.unwrap_or_default(), ..view }
    });
    view.map_or_else(
        || ControlReply::Error(suggestions::unknown_site(core, name)),
        |view| ControlReply::Site(Box::new(view)),
    )
}

fn site_view(hub: &Hub, sites: &SitesNow, site: SiteId, settings: &Settings, now: Ms) -> Option<SiteView> {
    let explained = hub.sched.explain_site(site, now)?;
    let (counts, is_counted) = (sites.at(WaitingPlace::Site(site)), sites.counted.is_some());
    let (name, is_suspended) = (format!("site:{}", explained.status.name), explained.waits_for == WaitsFor::Operator);
    Some(SiteView {
        site: explained.status.name.to_string(),
        now,
        messages: if is_counted {
            counts.map_or(0, |counts| counts.messages)
        } else {
            explained.status.messages as u64
        },
        waiting: sites.waiting_at(site),
        counted: sites.counted.as_ref().map(|counted| counted.at),
        suspended: is_suspended,
        suspended_until: hub.store.suspended_until(&name).filter(|_| is_suspended),
        suspended_reason: hub.store.suspended_reason(&name).filter(|_| is_suspended).map(str::to_owned),
        waits_for: if is_counted { waits_for(hub, counts, &explained, now) } else { live(&explained, now) },
        next_try: if is_counted { counts.and_then(CauseCounts::next_try) } else { explained.status.until },
        last_reply: last_reply(hub, sites, site, &explained),
        causes: causes::rows(hub, counts, now),
        lane: hub.sched.glance(site, now).map_or_else(String::new, |glance| lane_name(glance.standing).to_owned()),
        paths: path_views(&explained, settings, now),
        ..SiteView::default()
    })
}

/// The last reply behind most of the mail waiting there; without a count, the last failure of the site.
pub fn last_reply(hub: &Hub, sites: &SitesNow, site: SiteId, explained: &SiteExplanation) -> String {
    if sites.counted.is_none() {
        return reply(explained.status.reason.clone());
    }
    let is_blocked = |counts: &&CauseCounts| counts.main().is_some_and(|count| count.cause.is_blocked());
    let counts = sites.at(WaitingPlace::Site(site)).filter(is_blocked);
    let behind = causes::last_reply(hub, counts);
    // Held mail may have been deferred before.
    let is_kept = behind.is_empty() && counts.is_some_and(CauseCounts::are_kept);
    if !is_kept {
        return behind;
    }
    let of_oldest = counts.and_then(|counts| last_of(hub, site, counts.oldest?));
    of_oldest.unwrap_or_else(|| reply(explained.status.reason.clone()))
}

/// The reply that deferred the message's first recipient at a site.
fn last_of(hub: &Hub, site: SiteId, no: MessageNo) -> Option<String> {
    let pending = hub.store.message(no)?.pending().iter().take(RECIPIENTS_LOOKED_MAX).map(AddressId);
    let is_there =
        |id: &AddressId| hub.store.book.try_domain(*id).is_some_and(|domain| hub.sched.site_of(domain) == Some(site));
    pending.filter(is_there).find_map(|id| hub.sched.last_reply(no, id)).map(ToString::to_string)
}

/// The view of a domain without a site: it has not been looked up, or that failed.
fn domain_view(hub: &Hub, sites: &SitesNow, domain: DomainId, now: Ms) -> SiteView {
    let counts = sites.at(WaitingPlace::Domain(domain));
    let (next_try, reason) = hub.sched.look_up_of(domain).unwrap_or_default();
    let waiting = sites.waiting_for(hub, domain);
    let rows = causes::rows(hub, counts, now);
    SiteView {
        site: hub.store.book.domain_name(domain).to_owned(),
        now,
        messages: counts.map_or(0, |counts| counts.messages),
        waiting,
        counted: sites.counted.as_ref().map(|counted| counted.at),
        waits_for: lookup(&rows, waiting, reason.as_ref()),
        next_try,
        last_reply: reply(reason),
        causes: rows,
        is_unresolved: true,
        lane: "unknown".to_owned(),
        ..SiteView::default()
    }
}

/// The cause of waiting mail to a domain without a site, from the count, or from the state of the look-up.
pub fn lookup(rows: &[CauseRow], waiting: u64, failure: Option<&stentor_sched::HostReply>) -> String {
    match (rows, waiting, failure) {
        ([], 0, _) => String::new(),
        ([], _, failure) => failure.map_or(Cause::LookUp, |reply| reply.cause).words().to_owned(),
        (rows, ..) => summary(rows),
    }
}

fn path_views(site: &SiteExplanation, settings: &Settings, now: Ms) -> Vec<PathView> {
    let mut hosts = site.hosts.iter().peekable();
    let paths = site.paths.iter().map(|path| {
        let mut view = path_view(path, settings);
        while let Some(host) = hosts.next_if(|host| host.source == path.source) {
            view.hosts.push(host_view(host, now));
        }
        view
    });
    paths.collect()
}

/// Why mail waits at a site, in words; empty if nothing prevents delivery. The site's present state shows which of our
/// limits applies.
pub fn waits_for(hub: &Hub, counts: Option<&CauseCounts>, site: &SiteExplanation, now: Ms) -> String {
    let mut rows = causes::rows(hub, counts, now);
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

/// The cause of waiting mail that has no obstacle, from the scheduler's present state; used without a count.
fn live(site: &SiteExplanation, now: Ms) -> String {
    let is_tried = matches!(site.waits_for, WaitsFor::Silent | WaitsFor::Connecting | WaitsFor::Going);
    if let Some(attempt) = site.attempt.filter(|_| is_tried) {
        return progress(attempt, now);
    }
    match site.cause {
        Cause::Ready => String::new(),
        Cause::OwnLimit => own_limit(site.waits_for).to_owned(),
        cause => cause.words().to_owned(),
    }
}

fn own_limit(waits_for: WaitsFor) -> &'static str {
    match waits_for {
        WaitsFor::Rate(_) => "rate limit for this site",
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

pub fn host_view(host: &HostStatus, now: Ms) -> HostView {
    HostView {
        host: host.host.to_string(),
        address: host.addr.to_string(),
        failures: host.fails,
        next_try: host.until,
        probing: host.is_probed,
        silent: host.is_silent,
        last_reply: reply(host.reason.clone().filter(|_| host.fails > 0)),
        attempt: host.attempt.map_or_else(String::new, |attempt| progress(attempt, now)),
        since: host.attempt.map(|attempt| attempt.since),
        tls: None,
    }
}
