//! What the scheduler promises, on simulated sites. Virtual time: nothing here depends on how fast the machine is.

use stentor_mail::Class;
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;
use stentor_sched::{FlowKey, FlowRules, SchedConfig, SourceConfig};
use stentor_sim::engine::{Post, START, Sim};
use stentor_sim::host::{Host, Mood};
use stentor_sim::net::Net;
use stentor_sim::scenario::day::{self, Day};
use stentor_sim::scenario::rate;

const RTT: Ms = 100;
const LOOK_UP: Ms = 30;

fn sites(net: &mut Net, count: u32, mood: Mood) -> Vec<u32> {
    (0..count).map(|_| net.add_site(Host::new(mood, RTT), LOOK_UP)).collect()
}

fn post(sim: &mut Sim, at: Ms, domains: &[u32], each: u32, class: Class, list: Option<&str>) {
    let mut recipients = IdSet::new();
    for domain in domains {
        recipients.extend((0..each).filter_map(|n| sim.subscriber(n, *domain)).map(|id| id.0));
    }
    let (watched, list) = (recipients.clone(), list.map(str::to_owned));
    sim.post(Post { at: START + at, recipients, class, list, copies: false, watched });
}

fn last(sim: &Sim, post: usize) -> Ms {
    sim.delays[post].iter().map(|d| Ms::from(d.0)).max().unwrap_or(Ms::MAX)
}

fn small(connections: usize) -> SchedConfig {
    SchedConfig {
        connections_max: connections,
        slow_connections_max: connections / 2,
        ordinary_reserve: connections / 10,
        ..SchedConfig::default()
    }
}

/// With a long list under way, ordinary mail goes out as if there was none: to a site of its own, and to one that the
/// list's connections are busy with.
#[test]
fn ordinary_mail_is_never_behind_a_list() {
    let mut net = Net::default();
    let list = sites(&mut net, 2_000, Mood::Good);
    let own = sites(&mut net, 20, Mood::Good);
    let mut sim = Sim::new(net, small(100), 1);
    post(&mut sim, 0, &list, 50, Class::Bulk, Some("large"));
    let mut number = 1;
    for (n, domain) in own.iter().chain(&list[1_980..]).enumerate() {
        post(&mut sim, 1_000 + 50 * n as Ms, &[*domain], 1, Class::Ordinary, None);
        number += 1;
    }
    sim.run_until(START + 600_000);
    assert!(last(&sim, 0) > 5_000, "the list was still under way");
    // A look-up, three round trips for the connection, one for the mail, the server's work, one or two to wait.
    let worst = (1..number).map(|post| last(&sim, post)).max();
    assert!(worst <= Some(LOOK_UP + 7 * RTT), "{worst:?}");
}

/// More hosts that never greet than both lanes have room for: those silent for longest give way.
#[test]
fn hanging_hosts_give_way() {
    let mut net = Net::default();
    let mut all = sites(&mut net, 200, Mood::NoBanner);
    let good = sites(&mut net, 5, Mood::Good);
    all.extend(&good);
    let mut sim = Sim::new(net, small(10), 1);
    post(&mut sim, 0, &all[..200], 1, Class::Bulk, Some("l"));
    post(&mut sim, 10, &good, 1, Class::Bulk, Some("l"));
    sim.run_until(START + 200_000);
    assert!(sim.counts.cut > 0 && last(&sim, 1) < 100_000, "{} ms, {} cut", last(&sim, 1), sim.counts.cut);
}

/// A host that took the data and does not answer is never cut.
#[test]
fn nothing_is_cut_after_the_end_of_data() {
    let mut net = Net::default();
    let all = sites(&mut net, 60, Mood::NoFinal);
    let mut sim = Sim::new(net, small(10), 1);
    post(&mut sim, 0, &all, 1, Class::Bulk, Some("l"));
    sim.run_until(START + 590_000);
    assert_eq!(sim.counts.cut, 0);
}

/// A small list beside a large one takes about as long as alone, not as long as the large one.
#[test]
fn a_large_list_does_not_starve_a_small_one() {
    let mut net = Net::default();
    let all = sites(&mut net, 2_000, Mood::Good);
    let mut sim = Sim::new(net, small(50), 1);
    post(&mut sim, 0, &all, 20, Class::Bulk, Some("large"));
    post(&mut sim, 500, &all[1_900..1_950], 1, Class::Bulk, Some("small"));
    sim.run_until(START + 600_000);
    assert!(last(&sim, 1) * 4 < last(&sim, 0), "small {} ms, large {} ms", last(&sim, 1), last(&sim, 0));
}

/// The first MX host swallows connections: the second is tried after the silence, not after the time-out.
#[test]
fn another_mx_is_tried_when_the_first_is_silent() {
    let mut net = Net::default();
    net.hosts.push(Host::new(Mood::NoBanner, RTT));
    net.hosts.push(Host::new(Mood::Good, RTT));
    let domain = net.add(vec![0, 1], false, LOOK_UP);
    let mut sim = Sim::new(net, SchedConfig::default(), 1);
    post(&mut sim, 0, &[domain], 1, Class::Ordinary, None);
    sim.run_until(START + 100_000);
    assert!(last(&sim, 0) < 4_000, "{}", last(&sim, 0));
}

/// A source that is being warmed up keeps to its messages per day.
#[test]
fn a_warm_up_is_kept_to() {
    let mut net = Net::default();
    let domain = sites(&mut net, 1, Mood::Good)[0];
    let source = SourceConfig { name: "warm".to_owned(), warm_up_per_day: vec![10, 20], since: START };
    let mut sim = Sim::new(net, SchedConfig { sources: vec![source], ..SchedConfig::default() }, 1);
    let recipients: IdSet = (0..100).filter_map(|n| sim.subscriber(n, domain)).map(|id| id.0).collect();
    sim.post(Post { at: START, recipients, class: Class::Bulk, list: None, copies: true, watched: IdSet::new() });
    let day = 86_400_000;
    for (days, sent) in [(1, 10), (2, 30), (3, 100)] {
        sim.run_until(START + days * day - 1);
        assert_eq!(sim.counts.delivered, sent, "after {days} days");
    }
}

/// What waits longest for its list goes when the list's own lifetime is over; other mail stays.
#[test]
fn a_list_may_expire_earlier() {
    let mut net = Net::default();
    let domain = sites(&mut net, 1, Mood::Dead)[0];
    let mut sim = Sim::new(net, SchedConfig::default(), 1);
    let rules = FlowRules { lifetime_ms: Some(24 * 3_600_000), ..FlowRules::default() };
    sim.sched.set_rules(FlowKey::List("short".into()), Some(rules));
    post(&mut sim, 0, &[domain], 3, Class::Bulk, Some("short"));
    post(&mut sim, 0, &[domain], 3, Class::Bulk, Some("other"));
    sim.run_until(START + 26 * 3_600_000);
    assert_eq!(sim.counts.failed, 3);
}

/// A list's day on seeds of its own: within twice of what the slowest good site needs alone.
#[test]
fn a_post_takes_about_as_long_as_the_slowest_good_site() {
    for (seed, bad_percent) in [(501, 2), (502, 30)] {
        let result = day::run(&Day { posts: 30, bad_percent, ..Day::new(seed) });
        assert_eq!(result.unserved, 0);
        assert!(result.worst_100() <= 2.0, "seed {seed}: {} {}", result.worst_100(), result.worst);
    }
}

#[test]
fn a_rate_limit_is_found_and_kept_to() {
    let run = rate::run(501, 2, SchedConfig::default());
    let (hour, refused) = (run["hours"][1].as_f64(), run["refused_share"].as_f64());
    assert!(hour >= Some(0.95) && hour <= Some(1.0) && refused < Some(0.02), "{run}");
}

/// Each of a site's hosts takes one connection and has no PIPELINING: a burst goes over all of them, since a host that
/// takes no further connection says nothing about the others.
#[test]
fn a_full_host_does_not_keep_a_burst_from_the_others() {
    const POSTS: usize = 12;
    let mut net = Net::default();
    for _ in 0..3 {
        let mut host = Host::new(Mood::TakesConnections(1), RTT);
        (host.pipelining, host.chunking) = (false, false);
        net.hosts.push(host);
    }
    net.add(vec![0, 1, 2], true, LOOK_UP);
    let mut sim = Sim::new(net, SchedConfig::default(), 1);
    for n in 0..POSTS {
        post(&mut sim, n as Ms, &[0], 1, Class::Bulk, Some("l"));
    }
    sim.run_until(START + 120_000);
    let taken: Vec<u64> = sim.net.hosts.iter().map(|host| host.messages).collect();
    assert!(taken.iter().all(|messages| *messages >= 2), "{taken:?}");
    // Four round trips each; over one connection it were 48 and more.
    let worst = (0..POSTS).map(|n| last(&sim, n)).max();
    assert!(worst <= Some(30 * RTT), "{worst:?}");
    // Nobody is pestered: a host that has said that it is full is not asked again for a minute.
    let refused: u64 = sim.net.hosts.iter().map(|host| host.refused).sum();
    assert!(refused <= 2 * 3, "{refused}");
}
