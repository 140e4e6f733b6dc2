//! Checks whether the system's clock can be right: against this program's release, the newest messages and the
//! certificates of hosts.

use std::sync::Arc;

use stentor_control::format::span;
use stentor_core::Core;
use stentor_core::tls_seen::Dates;
use stentor_queue::ids::Ms;

/// If messages are newer than the clock by this much, the clock was set back.
const CLOCK_BEHIND_MS: Ms = 60_000;
/// Number of newest messages examined.
const NEWEST: u32 = 64;
/// Period of contacts whose certificates are examined, and minimum number of hosts.
const CERTIFICATES_MS: Ms = 24 * 3_600_000;
const CERTIFICATES_MIN: usize = 5;
/// The clock cannot be earlier: this was written then.
const CLOCK_MIN: Ms = 1_790_000_000_000;

/// Advice for a wrong clock.
pub(super) const CLOCK_NEXT: &str =
    "set the clock and keep it synchronised (chrony, systemd-timesyncd); ages, expiry and retries depend on it";

/// Why the clock cannot be right, if so.
pub(super) fn clock_trouble(core: &Arc<Core>) -> Option<String> {
    let now = core.clock.now();
    if now < CLOCK_MIN {
        return Some("the clock is wrong: it is earlier than this program's release".to_owned());
    }
    let newest = core.with(|hub, _| {
        let (_, until) = hub.store.number_bounds();
        hub.store.messages_between(until.wrapping_sub(NEWEST), until).map(|(_, message)| message.accepted()).max()
    });
    if let Some(ahead) = newest.and_then(|at| at.checked_sub(now)).filter(|ahead| *ahead > CLOCK_BEHIND_MS) {
        return Some(format!("the clock was set back: the newest message was accepted {} in the future", span(ahead)));
    }
    by_certificates(core.tls_seen.dates(now.saturating_sub(CERTIFICATES_MS)))
}

/// Checks the clock against certificates: most hosts have valid ones, so if most seem invalid, the clock is wrong.
fn by_certificates(dates: Dates) -> Option<String> {
    let Dates { hosts, not_yet_valid, expired } = dates;
    let are_most = |wrong: usize| hosts >= CERTIFICATES_MIN && wrong * 2 > hosts;
    let (wrong, words) = match (are_most(not_yet_valid), are_most(expired)) {
        (true, _) => (not_yet_valid, "behind: the certificates of {} hosts are not valid yet"),
        (_, true) => (expired, "ahead: the certificates of {} hosts have expired"),
        _ => return None,
    };
    Some(format!("the clock seems to be {}", words.replace("{}", &format!("{wrong} of {hosts}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_doubted_by_most_certificates_and_not_by_some() {
        let said = |hosts, not_yet_valid, expired| by_certificates(Dates { hosts, not_yet_valid, expired });
        let behind = "the clock seems to be behind: the certificates of 4 of 6 hosts are not valid yet";
        assert_eq!(said(6, 4, 0).as_deref(), Some(behind));
        let ahead = "the clock seems to be ahead: the certificates of 9 of 10 hosts have expired";
        assert_eq!(said(10, 0, 9).as_deref(), Some(ahead));
        for (hosts, not_yet_valid, expired) in [(4, 4, 0), (6, 3, 3), (100, 20, 30), (0, 0, 0)] {
            assert_eq!(said(hosts, not_yet_valid, expired), None);
        }
    }
}
