//! Alarms about our reputation: replies that name a block list or a provider's opinion of us, and complaint rates.
//!
//! Promise: texts of others are escaped and cut; at most [`RATES_MAX`] conditions of each level.

use stentor_bounces::complaints::{ComplaintLevel, ComplaintLimits, ComplaintRow, ComplaintSubject, ComplaintWindow};
use stentor_control::ComplaintView;
use stentor_control::format::{percent, plural};
use stentor_core::Core;
use stentor_core::complaints::HighRate;
use stentor_core::live::health::{ConditionTexts, Name, Observation};
use stentor_core::reputation_alarms::{AlarmKind, REPORT_SOURCE, ReputationAlarm};
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;

/// Octets shown of a reply, and of a name.
const REPLY_BYTES_SHOWN: usize = 200;
const NAME_BYTES_SHOWN: usize = 80;
/// Maximum conditions of each level, and rows of each table, about complaints.
const RATES_MAX: usize = 20;
const BLOCKED_NEXT: &str = "find and correct the cause, then ask the block list or provider for removal; until then \
    send from another address ([sources]). `stentor bounces` counts the replies (docs/operate/bounces.md)";
const REPORTED_NEXT: &str = "find and correct the cause, then ask the block list or provider for removal; until then \
    send from another address ([sources]). The log has these bounces: `report: list=..., cause=reputation` \
    (docs/operate/bounces.md)";
const COMPLAINTS_NEXT: &str = "mail only people who asked for it, and make leaving easy (`one_click`); hold further posts \
    until the rate falls. `stentor report` has all rates (docs/operate/bounces.md)";

/// Limits of complaint rates in force.
pub fn limits(core: &Core) -> ComplaintLimits {
    let settings = core.settings();
    let bounces = &settings.config.bounces;
    ComplaintLimits {
        per_10000_warn: bounces.complaints_per_10000_warn,
        per_10000_alarm: bounces.complaints_per_10000_alarm,
        deliveries_min: bounces.complaints_deliveries_min,
    }
}

/// Rates of names with complaints, for `stentor report` and the console.
pub fn complaint_rows(core: &Core, now: Ms) -> Vec<ComplaintView> {
    let mut rows = Vec::new();
    for subject in ComplaintSubject::ALL {
        for window in ComplaintWindow::ALL {
            let all = core.complaints.rows(subject, window, now);
            let of_complaints = all.into_iter().filter(|row| row.count.complaints + row.count.unproven > 0);
            rows.extend(of_complaints.take(RATES_MAX).map(|ComplaintRow { name, count }| ComplaintView {
                subject: subject.name().to_owned(),
                name,
                window: window.name().to_owned(),
                delivered: count.delivered,
                complaints: count.complaints,
                unproven: count.unproven,
            }));
        }
    }
    rows
}

/// The alarms about block lists and reputation in force.
pub fn blocked_now(core: &Core, now: Ms) -> Vec<ReputationAlarm> {
    core.reputation_alarms.alarms(now, core.settings().config.bounces.blocked_ms)
}

/// Observes block lists and our reputation.
pub(super) fn blocked(core: &Core, now: Ms, seen: &mut Vec<Observation>) {
    for alarm in blocked_now(core, now) {
        let source = source_words(core, &alarm.source);
        let name = printable(&alarm.list, NAME_BYTES_SHOWN);
        let by = match alarm.kind {
            AlarmKind::KnownList | AlarmKind::UnknownList => format!("blocked by {name}"),
            AlarmKind::Provider => format!("our reputation at {name} is bad"),
        };
        let of_source = if alarm.source.is_empty() { String::new() } else { format!(" from {}", alarm.source) };
        let what = format!(
            "{by}: {source}: {} since {}, the last at {} by {}: {}",
            plural(alarm.replies, "reply"),
            instant(alarm.first),
            instant(alarm.last),
            printable(&alarm.host, NAME_BYTES_SHOWN),
            printable(&alarm.sample, REPLY_BYTES_SHOWN)
        );
        let subject = format!("{name}{of_source}");
        let next = if alarm.source == REPORT_SOURCE { REPORTED_NEXT } else { BLOCKED_NEXT };
        seen.push(Observation::holds(Name::Blocked, subject, ConditionTexts::new(what, next)));
    }
}

/// A configured source with its addresses, in words.
fn source_words(core: &Core, source: &str) -> String {
    if source == REPORT_SOURCE {
        return "reports about mail of this server".to_owned();
    }
    let settings = core.settings();
    let Some(found) = settings.config.sending.sources.iter().find(|known| known.name == source) else {
        return "mail from this server".to_owned();
    };
    let v4 = found.v4.map(|address| address.to_string());
    let addresses: Vec<String> = v4.into_iter().chain(found.v6.map(|address| address.to_string())).collect();
    format!("mail from {source} ({})", addresses.join(", "))
}

fn instant(at: Ms) -> String {
    stentor_control::format::instant(at, &Zone::utc())
}

/// Complaint rates over a limit, as reports of each condition.
pub(super) fn complaints(core: &Core, now: Ms) -> [(Name, Vec<(String, ConditionTexts)>); 2] {
    let high = core.complaints.high(limits(core), now);
    let of = |level| high.iter().filter(|rate| rate.level == level).take(RATES_MAX).map(texts).collect();
    [(Name::Complaints, of(ComplaintLevel::Alarm)), (Name::ComplaintsRising, of(ComplaintLevel::Warning))]
}

fn texts(rate: &HighRate) -> (String, ConditionTexts) {
    let kind = match rate.subject {
        ComplaintSubject::List => "the list",
        ComplaintSubject::Sender => "mail from",
        ComplaintSubject::Provider => "mail to",
    };
    let name = printable(&rate.row.name, NAME_BYTES_SHOWN);
    let window = match rate.window {
        ComplaintWindow::Day => "24 hours",
        ComplaintWindow::Month => "30 days",
    };
    let count = rate.row.count;
    let what = format!(
        "complaint rate of {kind} {name}: {} in {window} ({} complaints, {})",
        percent(count.complaints, count.delivered),
        count.complaints,
        plural(count.delivered, "delivery")
    );
    (format!("{} {name}", rate.subject.name()), ConditionTexts::new(what, COMPLAINTS_NEXT))
}
