//! The hosts that mail goes to: mostly healthy, some flaky, one dead, one domain that does not exist.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fastrand::Rng;
use stentor_core::assignment::Assignment;
use stentor_core::route::Route;
use stentor_delivery::outcome;
use stentor_mail::reply::Enhanced;
use stentor_queue::book::{at_hop, split_hop};
use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};
use stentor_sched::{RcptOutcome, Stage};

pub const DOMAINS: u8 = 8;
const FLAKY: u8 = 5;
const NOWHERE: u8 = 6;
const DEAD: u8 = 7;
/// Beside the domains: it has copies alone.
const COPIES: u8 = DOMAINS;
/// Few, so that most addresses come again.
const MAILBOXES: u32 = 24;
/// Every so many-th mailbox does not exist.
const NO_MAILBOX_ONE_IN: u32 = 9;

pub fn address(rng: &mut Rng) -> String {
    // The bad domains are rare, or most mail would expire.
    let domain = if rng.u8(0..6) == 0 { rng.u8(0..DOMAINS) } else { rng.u8(0..NOWHERE) };
    format!("u{}@d{domain}.example", rng.u32(0..MAILBOXES))
}

/// Other servers that take copies, the first one most of them: well, flaky, dead.
pub fn copy_route(rng: &mut Rng) -> Route {
    let number = match rng.u8(0..10) {
        0..=6 => COPIES,
        7 | 8 => FLAKY,
        _ => DEAD,
    };
    Route::split(&at_hop("", &format!("d{number}.example"))).1
}

pub fn resolve(name: &str) -> Resolution {
    let (domain, hop) = split_hop(name);
    let number =
        hop.unwrap_or(domain).trim_start_matches('d').split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if number == NOWHERE {
        return Resolution::Permanent { dsn: Enhanced::new(5, 1, 2), text: "no such domain".to_owned() };
    }
    let host: Arc<str> = format!("mx{number}").into();
    let addr = Endpoint::by_port((Ipv4Addr::new(192, 0, 2, number), 25));
    let target = Target { preference: 0, host: host.clone(), addr, lmtp: false, posture: None };
    let limits = SiteLimits::default();
    Resolution::Site(SitePlan { key: host, targets: vec![target], mixes_domains: false, limits, ttl_s: 3600 })
}

fn number_of(target: &Target) -> u8 {
    match target.addr.ip() {
        Some(std::net::IpAddr::V4(ip)) => ip.octets()[3],
        _ => 0,
    }
}

pub fn takes_connections(target: &Target, rng: &mut Rng) -> bool {
    let number = number_of(target);
    number != DEAD && (number != FLAKY || rng.u8(0..5) > 0)
}

/// What a host does with a transaction; `true` = it has a copy for those that it took, whatever we hear.
pub fn answer(target: &Target, assignment: &Assignment, rng: &mut Rng) -> (Vec<RcptOutcome>, bool, bool) {
    let flaky = number_of(target) == FLAKY;
    match if flaky { rng.u8(0..10) } else { rng.u8(4..60) } {
        0 => (outcome::same(assignment, Stage::Lost, 0, Enhanced::new(4, 4, 2), "reset"), false, true),
        1 | 4 => (outcome::same(assignment, Stage::LostAfterDot, 0, Enhanced::new(4, 4, 2), "reset"), true, true),
        2 | 3 => (outcome::same(assignment, Stage::Final, 451, Enhanced::new(4, 3, 0), "later"), false, false),
        _ => (each(assignment), true, false),
    }
}

fn each(assignment: &Assignment) -> Vec<RcptOutcome> {
    let (ok, unknown): (Arc<str>, Arc<str>) = ("ok".into(), "no such user".into());
    let one = |position: usize| {
        let address = assignment.address(position);
        let number: u32 = address[1..].split('@').next().and_then(|n| n.parse().ok()).unwrap_or(1);
        let id = assignment.id_at(position);
        if address.starts_with('u') && number.is_multiple_of(NO_MAILBOX_ONE_IN) {
            RcptOutcome { id, stage: Stage::Rcpt, code: 550, dsn: Some(Enhanced::new(5, 1, 1)), text: unknown.clone() }
        } else {
            RcptOutcome { id, stage: Stage::Final, code: 250, dsn: Some(Enhanced::new(2, 0, 0)), text: ok.clone() }
        }
    };
    (0..assignment.len()).map(one).collect()
}
