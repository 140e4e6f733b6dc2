//! The scheduler's limits and times. Each is a named field; docs/design/scheduler.md gives the reason for each default.
//!
//! [`SchedConfig::DEFAULT`] is the only place where defaults are defined: the server's configuration takes its own from
//! there (`config/sections.rs`), the simulator measures with it, and tests compare the pages in docs/ with it.

use stentor_queue::ids::Ms;

const SECOND_MS: Ms = 1_000;
const MINUTE_MS: Ms = 60 * SECOND_MS;
const HOUR_MS: Ms = 60 * MINUTE_MS;

/// First delay and cap of an exponential back-off. The n-th failure in a row waits `min * 2^(n-1)`, at most `max`, less
/// up to a quarter of jitter so that what failed together does not come back together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    pub min_ms: Ms,
    pub max_ms: Ms,
}

impl Backoff {
    pub const fn new(min_ms: Ms, max_ms: Ms) -> Backoff {
        Backoff { min_ms, max_ms }
    }

    /// The delay after `fails` failures in a row (counted from 1).
    pub(crate) fn delay_ms(self, fails: u8, rng: &mut fastrand::Rng) -> Ms {
        let doublings = u32::from(fails.saturating_sub(1)).min(32);
        let delay = self.min_ms.saturating_mul(1 << doublings).min(self.max_ms).max(1);
        delay - rng.u64(0..=delay / 4)
    }
}

/// Parts that can be switched off, to measure what each is worth (docs/design/scheduler-experiments.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strategies {
    /// Sites that wait for the budget are ordered by their history.
    pub order: bool,
    /// Silent connections are charged to the slow lane.
    pub lanes: bool,
    /// A failed host is remembered for a growing time; otherwise it is tried again after a second.
    pub memory: bool,
    /// Connections per site, transactions in flight and rates adapt to what the site can bear.
    pub adaptation: bool,
}

impl Strategies {
    pub const ALL: Strategies = Strategies { order: true, lanes: true, memory: true, adaptation: true };
}

impl Default for Strategies {
    fn default() -> Self {
        Strategies::ALL
    }
}

/// One local address to send from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceConfig {
    /// The name that operators use.
    pub name: String,
    /// Messages that may be sent from here to one site, for each day from `since`; after the last day there is no such
    /// limit. Empty: the address is warm.
    pub warm_up_per_day: Vec<u32>,
    /// When the first day of the warm-up began.
    pub since: Ms,
}

/// The scheduler's limits and waiting times. [`SchedConfig::checked`] checks them, never the code that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedConfig {
    /// Connections in the fast lane, connecting ones included: the constant budget.
    pub connections_max: usize,
    /// Silent connections kept outside the budget until their RFC 5321 time-outs.
    pub slow_connections_max: usize,
    /// Connections to one proven site.
    pub connections_per_site_max: usize,
    /// RCPT commands in one transaction (RFC 5321 4.5.3.1.10 obliges servers to take 100); a site's 452 4.5.3 lowers
    /// it.
    pub recipients_per_transaction_max: usize,
    /// Transactions over one connection; then it is closed.
    pub transactions_per_connection_max: u32,
    /// How long an idle connection is kept for more mail.
    pub idle_ms: Ms,
    /// `Resolve` effects outstanding at a time.
    pub resolves_max: usize,
    /// Clock of a host address: connect failure, time-out, 421.
    pub host_retry: Backoff,
    /// Clock of a (site, sender domain) after 4xx at MAIL, and of a (site, message) after 4xx to the data.
    pub site_retry: Backoff,
    /// Clock of a mailbox after 4.2.x.
    pub mailbox_retry: Backoff,
    /// Clock of one recipient of one message after any other 4xx at RCPT (greylisting).
    pub recipient_retry: Backoff,
    /// Clock of a domain whose look-up failed temporarily.
    pub domain_retry: Backoff,
    /// How long a recipient is retried, from acceptance.
    pub lifetime_ms: Ms,
    /// Lifetime of bulk mail, if it differs.
    pub bulk_lifetime_ms: Option<Ms>,
    /// Lifetime of mail from the null sender, about which nobody is notified, if it differs.
    pub bounce_lifetime_ms: Option<Ms>,
    /// Age at which a message's delay is reported (`Effect::Delayed`); `None`: never.
    pub warn_ms: Option<Ms>,
    pub bulk_warn_ms: Option<Ms>,
    /// `recipient_retry` and `site_retry` of bulk mail, if they differ.
    pub bulk_recipient_retry: Option<Backoff>,
    pub bulk_site_retry: Option<Backoff>,
    /// How long failures of one message are gathered before they are reported together.
    pub bounce_gather_ms: Ms,
    /// Recipients in one report; the rest go into further reports.
    pub bounce_failures_max: usize,
    /// Silence after which a connection is charged to the slow lane.
    pub fast_silence_ms: Ms,
    /// Connections of the fast lane that are reserved for sites with ordinary mail.
    pub ordinary_reserve: usize,
    /// Local addresses to send from, at most 64; an empty list counts as one address.
    pub sources: Vec<SourceConfig>,
    pub strategies: Strategies,
    /// How many choices go to ordinary mail for each one that goes to bulk, while both wait.
    pub ordinary_per_bulk: u8,
}

impl Default for SchedConfig {
    fn default() -> Self {
        SchedConfig::DEFAULT
    }
}

impl SchedConfig {
    /// The configuration that is shipped and measured.
    pub const DEFAULT: SchedConfig = SchedConfig {
        connections_max: 800,
        slow_connections_max: 400,
        connections_per_site_max: 20,
        recipients_per_transaction_max: 100,
        transactions_per_connection_max: 1_000,
        idle_ms: 5 * SECOND_MS,
        resolves_max: 200,
        host_retry: Backoff::new(MINUTE_MS, HOUR_MS),
        site_retry: Backoff::new(2 * MINUTE_MS, HOUR_MS),
        mailbox_retry: Backoff::new(10 * MINUTE_MS, 4 * HOUR_MS),
        recipient_retry: Backoff::new(2 * MINUTE_MS, HOUR_MS),
        domain_retry: Backoff::new(MINUTE_MS, HOUR_MS),
        lifetime_ms: 5 * 24 * HOUR_MS,
        bulk_lifetime_ms: None,
        bounce_lifetime_ms: None,
        warn_ms: Some(4 * HOUR_MS),
        bulk_warn_ms: None,
        bulk_recipient_retry: None,
        bulk_site_retry: None,
        bounce_gather_ms: 5 * SECOND_MS,
        bounce_failures_max: 1_000,
        fast_silence_ms: 2 * SECOND_MS,
        ordinary_reserve: 25,
        sources: Vec::new(),
        strategies: Strategies::ALL,
        ordinary_per_bulk: 4,
    };

    /// Fast-lane connections available to sites where only bulk mail waits.
    pub(super) fn bulk_budget(&self) -> usize {
        self.connections_max - self.ordinary_reserve.min(self.connections_max - 1)
    }

    /// Returns the nearest configuration that can make progress: no limit is zero, no cap is below its start.
    #[must_use]
    pub fn checked(mut self) -> SchedConfig {
        for limit in [
            &mut self.connections_max,
            &mut self.connections_per_site_max,
            &mut self.recipients_per_transaction_max,
            &mut self.resolves_max,
            &mut self.bounce_failures_max,
        ] {
            *limit = (*limit).max(1);
        }
        self.ordinary_reserve = self.ordinary_reserve.min(self.connections_max / 4);
        self.sources.truncate(64);
        self.transactions_per_connection_max = self.transactions_per_connection_max.max(1);
        self.fast_silence_ms = self.fast_silence_ms.max(1);
        let bulk = self.bulk_recipient_retry.iter_mut().chain(&mut self.bulk_site_retry);
        bulk.for_each(|clock| {
            clock.min_ms = clock.min_ms.max(1);
            clock.max_ms = clock.max_ms.max(clock.min_ms);
        });
        for clock in [
            &mut self.host_retry,
            &mut self.site_retry,
            &mut self.mailbox_retry,
            &mut self.recipient_retry,
            &mut self.domain_retry,
        ] {
            clock.min_ms = clock.min_ms.max(1);
            clock.max_ms = clock.max_ms.max(clock.min_ms);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ms: Ms) -> String {
        let day_ms = 24 * HOUR_MS;
        let (unit, name) = match ms {
            _ if ms >= day_ms && ms.is_multiple_of(day_ms) => (day_ms, "d"),
            _ if ms >= HOUR_MS && ms.is_multiple_of(HOUR_MS) => (HOUR_MS, "h"),
            _ if ms >= MINUTE_MS && ms.is_multiple_of(MINUTE_MS) => (MINUTE_MS, "min"),
            _ if ms >= SECOND_MS && ms.is_multiple_of(SECOND_MS) => (SECOND_MS, "s"),
            _ => (1, "ms"),
        };
        format!("{} {name}", ms / unit)
    }

    /// Formats 1000 as `1,000`.
    fn number(n: usize) -> String {
        if n < 1_000 { n.to_string() } else { format!("{},{:03}", n / 1_000, n % 1_000) }
    }

    /// The table "Constants" of docs/design/scheduler.md names each of these fields with its value.
    #[test]
    fn the_page_has_the_constants() {
        let cfg = SchedConfig::DEFAULT;
        let clock = |clock: Backoff| format!("{} - {}", time(clock.min_ms), time(clock.max_ms));
        let mut rows = vec![
            ("connections_max", number(cfg.connections_max)),
            ("ordinary_reserve", number(cfg.ordinary_reserve)),
            ("slow_connections_max", number(cfg.slow_connections_max)),
            ("connections_per_site_max", number(cfg.connections_per_site_max)),
            ("recipients_per_transaction_max", number(cfg.recipients_per_transaction_max)),
            ("transactions_per_connection_max", number(cfg.transactions_per_connection_max as usize)),
            ("resolves_max", number(cfg.resolves_max)),
            ("idle_ms", time(cfg.idle_ms)),
            ("host_retry", clock(cfg.host_retry)),
            ("site_retry", clock(cfg.site_retry)),
            ("mailbox_retry", clock(cfg.mailbox_retry)),
            ("recipient_retry", clock(cfg.recipient_retry)),
            ("domain_retry", clock(cfg.domain_retry)),
            ("lifetime_ms", time(cfg.lifetime_ms)),
            ("warn_ms", time(cfg.warn_ms.unwrap())),
            ("bounce_gather_ms", time(cfg.bounce_gather_ms)),
            ("bounce_failures_max", number(cfg.bounce_failures_max)),
            ("fast_silence_ms", time(cfg.fast_silence_ms)),
        ];
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/scheduler.md");
        let text = std::fs::read_to_string(page).unwrap();
        let table = text.split("\n## ").find(|part| part.starts_with("Constants\n")).unwrap();
        let mut there = Vec::new();
        for line in table.lines().filter(|line| line.starts_with("| `")) {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            there.push((cells.next().unwrap().trim_matches('`'), cells.next().unwrap().to_owned()));
        }
        rows.sort_unstable();
        there.sort_unstable();
        assert_eq!(there, rows);
    }

    #[test]
    fn back_off_doubles_to_its_cap_with_bounded_jitter() {
        let mut rng = fastrand::Rng::with_seed(1);
        let clock = Backoff::new(100, 1_000);
        for (fails, full) in [(0, 100), (1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (255, 1_000)] {
            for _ in 0..50 {
                let delay = clock.delay_ms(fails, &mut rng);
                assert!(delay <= full && delay >= full - full / 4, "{fails}: {delay}");
            }
        }
    }
}
