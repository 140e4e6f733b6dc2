//! The live trace of a site's or a client's sessions, for one watcher.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_control::problem::Problem;
use stentor_control::{ControlReply, ErrorCode, TrafficOptions};
use stentor_core::live::traffic::{TAPS_MAX, WatchTarget};
use stentor_core::{Core, log};
use stentor_queue::ids::Ms;
use stentor_records::now::TrafficLine;
use tokio::sync::mpsc;

use super::snapshot::place;
use crate::suggestions;

/// Interval at which the watcher gets a sign of life and the site's hosts are looked up again.
const PAUSE: Duration = Duration::from_secs(10);
/// The same while no host of the site is known. A first session that ends sooner after the DNS lookup is missed.
const UNKNOWN_HOSTS_PAUSE: Duration = Duration::from_millis(100);

/// Tells sessions that the watcher has left.
struct End<'a>(&'a Core);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.live.traffic.gone();
    }
}

/// Sends the sessions' lines until the watcher leaves.
pub async fn traffic(
    core: &Arc<Core>,
    options: TrafficOptions,
    who: &str,
    lines: mpsc::Sender<Vec<TrafficLine>>,
) -> ControlReply {
    let first = match wanted(core, &options) {
        Ok(wanted) => wanted,
        Err(problem) => return ControlReply::Error(problem),
    };
    let mut pause = pause(&first);
    // Dropped after the ring.
    let _end = End(core);
    let Some(tap) = core.live.traffic.watch(first) else {
        return ControlReply::error(ErrorCode::Busy, format!("{TAPS_MAX} watch sessions already"));
    };
    match &options {
        TrafficOptions::Client(client) => log::audit_note(core, "watch", who, &format!("client {client}")),
        TrafficOptions::Site(site) => log::audit_note(core, "watch", who, &format!("site {site}")),
    }
    let mut sent = 0;
    if let (TrafficOptions::Site(site), true) = (&options, pause == UNKNOWN_HOSTS_PAUSE) {
        let text =
            format!("no host of {site} is known yet: the next mail to it may be missed, later sessions are shown");
        sent += 1;
        let _ = lines.send(vec![remark(core.clock.now(), text)]).await;
    }
    let (mut looked, mut written) = (Instant::now(), Instant::now());
    loop {
        let batch = tokio::select! {
            () = lines.closed() => break,
            batch = tokio::time::timeout(pause, tap.next()) => batch,
        };
        if looked.elapsed() >= pause {
            looked = Instant::now();
            // A site that is temporarily unknown keeps its previous hosts.
            if let Ok(now) = wanted(core, &options) {
                pause = self::pause(&now);
                core.live.traffic.change(&tap, &now);
            }
        }
        let (mut batch, lost) = batch.unwrap_or_default();
        if batch.is_empty() && written.elapsed() < PAUSE {
            continue;
        }
        written = Instant::now();
        if let Some(first) = batch.first().filter(|_| lost > 0) {
            batch.insert(0, remark(first.at, format!("{lost} lines lost: this watcher is too slow")));
        }
        sent += batch.len() as u64;
        if lines.send(batch).await.is_err() {
            break;
        }
    }
    ControlReply::done("end of stream", Some(sent))
}

/// A line about the stream itself.
fn remark(at: Ms, text: String) -> TrafficLine {
    TrafficLine { at, session: 0, kind: "event".to_owned(), text }
}

fn pause(target: &WatchTarget) -> Duration {
    let is_unknown = matches!(target, WatchTarget::Hosts(hosts) if hosts.is_empty());
    if is_unknown { UNKNOWN_HOSTS_PAUSE } else { PAUSE }
}

fn wanted(core: &Arc<Core>, options: &TrafficOptions) -> Result<WatchTarget, Problem> {
    match options {
        TrafficOptions::Client(client) => Ok(WatchTarget::Client(client.to_canonical())),
        // A domain without a site has no hosts yet.
        TrafficOptions::Site(name) => match place(core, name) {
            Some(place) => Ok(WatchTarget::Hosts(place.hosts)),
            None => Err(suggestions::unknown_site(core, name)),
        },
    }
}
