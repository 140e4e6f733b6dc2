//! Once a second, reports limits that were hit in places that cannot log (under the hub's lock, in the scheduler, in
//! the log's writer), and checks whether the system clock was set.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::limits::Limit;

const PAUSE: Duration = Duration::from_secs(1);

/// Counts at the last check.
#[derive(Default)]
struct LastCounts {
    starvings: u64,
    at_site_max: u64,
    log_lines_lost: u64,
    history_lost: u64,
}

impl Core {
    /// Counts hits and logs those not yet logged, until the process ends.
    pub async fn watch_limits(self: Arc<Self>) {
        let mut before = LastCounts::default();
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.clock.jump().is_some() {
                // The committer follows the clock when its next batch begins.
                self.intake.completions(Duration::ZERO);
            }
            self.look_at_limits(&mut before);
            self.limits.log_all(self.clock.now());
            self.handshakes.log_all(self.clock.steady());
            self.early.log(self.clock.steady());
        }
    }

    fn look_at_limits(self: &Arc<Self>, before: &mut LastCounts) {
        let now = self.clock.now();
        let (load, starvings, connections) = self.with(|hub, _| (hub.sched.load(), hub.starvings, hub.connections()));
        let grown = |new: u64, old: &mut u64| new.saturating_sub(std::mem::replace(old, new));
        let limits = &self.limits;
        limits.hit_times(Limit::Completions, grown(starvings, &mut before.starvings), now);
        limits.hit_times(Limit::SiteConnections, grown(load.at_site_max, &mut before.at_site_max), now);
        limits.hit_times(Limit::LogBuffer, grown(self.log.dropped(), &mut before.log_lines_lost), now);
        let history_lost = self.history.status().dropped;
        limits.hit_times(Limit::History, grown(history_lost, &mut before.history_lost), now);
        // These are states, not events: they count as one hit for each second that they last.
        let connections_max = self.settings().config.delivery.connections_max as usize;
        let full = [
            (Limit::DeliveryConnections, load.wanting > 0 && connections >= connections_max),
            (Limit::Resolves, load.look_ups_waiting > 0),
            (Limit::Reports, self.reports.available_permits() == 0),
        ];
        for (limit, is_hit) in full {
            limits.hit_times(limit, u64::from(is_hit), now);
        }
    }
}
