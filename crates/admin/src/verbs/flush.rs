//! `flush`: tries waiting mail now, all of it or a site's.
//!
//! Promise: retry clocks end once, immediately; nothing is journaled. Mail that is held, suspended, queue-only or about
//! to bounce is left alone and not counted as tried. The counts come from the shared census: for a large queue some
//! seconds old, and missing while it is counted for the first time. Hosts that are used in clear after a TLS failure
//! are tried with TLS again.

use std::sync::Arc;

use stentor_control::format::{plural, resume_command};
use stentor_control::{ActionResult, ControlReply, ErrorCode};
use stentor_core::Core;
use stentor_queue::cause::Cause;
use stentor_sched::{CauseCounts, WaitingPlace};

use crate::causes::Censuses;
use crate::find::find_at;
use crate::suggestions;

pub async fn flush(core: &Arc<Core>, censuses: &Arc<Censuses>, site: Option<String>, dry_run: bool) -> ControlReply {
    let found = site.as_deref().map(|name| core.with(|hub, _| find_at(hub, name)));
    let place = match (found, &site) {
        (Some(None), Some(name)) => return ControlReply::Error(suggestions::unknown_site(core, name)),
        (found, _) => found.flatten(),
    };
    let name = place.as_ref().map(|(_, name)| name.clone());
    if let Some(name) = &name {
        let what = format!("site:{name}");
        if core.with(|hub, _| hub.store.is_suspended(&what)) {
            let command = resume_command(&what).unwrap_or_default();
            return ControlReply::error(ErrorCode::Failed, format!("not tried: site {name} is suspended; `{command}`"));
        }
    }
    // Counted before anything changes.
    let counts = censuses.get(core).await.map(|counted| match &place {
        None => counted.census.total.clone(),
        Some((at, _)) => counted.census.at(*at).cloned().unwrap_or_default(),
    });
    if dry_run {
        return answer(name.as_deref(), counts.as_ref(), dry_run);
    }
    let hosts = core.with(|hub, now| {
        let Some(name) = &name else {
            hub.sched.flush_all();
            return None;
        };
        // Looked up again: its number may have been reassigned.
        match find_at(hub, name) {
            Some((WaitingPlace::Site(site), _)) => {
                hub.sched.flush_site(site);
                let hosts = hub.sched.explain_site(site, now).map(|site| site.hosts).unwrap_or_default();
                return Some(hosts.into_iter().map(|host| (host.host, host.addr)).collect::<Vec<_>>());
            }
            Some((WaitingPlace::Domain(domain), _)) => hub.sched.flush_domain(domain, now),
            None => {}
        }
        Some(Vec::new())
    });
    let forgotten = core.known.forget_tls_failures(hosts.as_deref(), core.clock.steady());
    with_tls(answer(name.as_deref(), counts.as_ref(), dry_run), forgotten)
}

/// Adds that hosts are tried with TLS again.
fn with_tls(mut reply: ControlReply, hosts: usize) -> ControlReply {
    let text = match &mut reply {
        ControlReply::Done { text, .. } => text,
        ControlReply::Counted(counted) => &mut counted.text,
        _ => return reply,
    };
    if hosts > 0 {
        let more = format!("; TLS is retried with {}, where it had failed", plural(hosts as u64, "host"));
        text.push_str(&more);
    }
    reply
}

/// `name`: the only site, if one was given.
fn answer(name: Option<&str>, counts: Option<&CauseCounts>, dry_run: bool) -> ControlReply {
    let (try_, now) = if dry_run { ("would try", "") } else { ("trying", " now") };
    let at = name.map_or_else(String::new, |name| format!(" at {name}"));
    let Some(counts) = counts else {
        let text = format!("{try_} all waiting mail{at}{now}; the count is not ready yet");
        return ControlReply::done(text, None);
    };
    let sum = |is_meant: fn(Cause) -> bool| -> u64 {
        counts.causes.iter().filter(|count| is_meant(count.cause)).map(|count| count.recipients).sum()
    };
    let kept = sum(Cause::is_kept);
    let tried = sum(|cause| !cause.is_kept() && cause != Cause::Reporting);
    if let Some(name) = name.filter(|_| counts.recipients() == 0) {
        return ControlReply::done(format!("no mail is waiting for {name}"), Some(0));
    }
    let not = if kept > 0 { format!("; not tried: {kept} held, suspended or queue-only") } else { String::new() };
    ControlReply::Counted(Box::new(ActionResult {
        text: format!("{try_} {}{at}{now}{not}", plural(tried, "recipient")),
        count: Some(tried),
        messages: Some(counts.messages),
        in_flight: Some(0),
        unchanged: Some(0),
        kept: Some(kept).filter(|kept| *kept > 0),
        dry_run: Some(dry_run),
        as_of: None,
    }))
}
