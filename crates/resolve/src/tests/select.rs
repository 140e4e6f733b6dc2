//! Tests every rule of `select` by table, without sockets and DNS.

use std::net::{IpAddr, SocketAddr};

use stentor_policy::RouteHost;
use stentor_queue::cause::Cause;
use stentor_queue::site::{Enhanced, Resolution, SitePlan};

use crate::select::*;

const US: &str = "mx.stentor.example";

fn mx(preference: u16, host: &str) -> MxRecord {
    MxRecord { preference, host: host.to_owned() }
}

fn at(ips: &[&str]) -> AddressAnswer {
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = ips.iter().map(|ip| ip.parse().unwrap()).partition(IpAddr::is_ipv4);
    AddressAnswer::Found { v4, v6, ttl_s: 300 }
}

fn host(preference: u16, name: &str) -> MxHost {
    MxHost { preference, name: name.into() }
}

fn plan_of(hosts: &[(MxHost, AddressAnswer)]) -> Resolution {
    plan_with(hosts, false)
}

fn plan_with(hosts: &[(MxHost, AddressAnswer)], loopback_allowed: bool) -> Resolution {
    let own: SocketAddr = "192.0.2.1:25".parse().unwrap();
    let us = LocalIdentity { hostname: US, is_own: &|addr| addr == own, loopback_allowed, port: 25, only_family: None };
    plan("d.example", hosts, 600, &us)
}

fn site(resolution: Resolution) -> SitePlan {
    match resolution {
        Resolution::Site(plan) => plan,
        other => panic!("no site: {other:?}"),
    }
}

fn dsn(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Site(plan) => panic!("a site: {plan:?}"),
        Resolution::Permanent { dsn, .. } | Resolution::Temporary { dsn, .. } => dsn.to_string(),
    }
}

fn names(records: Vec<MxRecord>) -> Result<Vec<(u16, String)>, String> {
    match candidates("d.example", records, US) {
        Ok(hosts) => Ok(hosts.into_iter().map(|h| (h.preference, h.name.to_string())).collect()),
        Err(resolution) => Err(dsn(&resolution)),
    }
}

fn targets(plan: &SitePlan) -> Vec<(u16, String)> {
    plan.targets.iter().map(|t| (t.preference, t.addr.ip().unwrap().to_string())).collect()
}

#[test]
fn candidates_are_ordered_cleaned_and_freed_of_ourselves() {
    type Expected = Result<Vec<(u16, String)>, &'static str>;
    let own = |s: &str| s.to_owned();
    let table: Vec<(Vec<MxRecord>, Expected)> = vec![
        (vec![mx(20, "b.x"), mx(10, "a.x")], Ok(vec![(10, own("a.x")), (20, own("b.x"))])),
        (vec![mx(10, "b.x"), mx(10, "a.x")], Ok(vec![(10, own("a.x")), (10, own("b.x"))])),
        (vec![mx(30, "a.x"), mx(10, "a.x")], Ok(vec![(10, own("a.x"))])),
        // A null MX alone, and a root among others.
        (vec![mx(0, "")], Err("5.1.10")),
        (vec![mx(7, "")], Err("5.1.10")),
        (vec![mx(0, ""), mx(10, "a.x")], Ok(vec![(10, own("a.x"))])),
        (vec![mx(0, ""), mx(10, "")], Err("5.4.4")),
        // Malformed names.
        (
            vec![mx(10, "a,b.x"), mx(10, "a\\032b"), mx(20, "a..b"), mx(30, "ok_host.x")],
            Ok(vec![(30, own("ok_host.x"))]),
        ),
        (vec![mx(10, "\\000.x")], Err("5.4.4")),
        // This server is dropped, with all hosts that are not closer to the destination.
        (vec![mx(10, "a.x"), mx(20, US), mx(20, "b.x"), mx(30, "c.x")], Ok(vec![(10, own("a.x"))])),
        (vec![mx(10, US), mx(10, "a.x")], Err("5.4.6")),
        (vec![mx(30, US), mx(10, US), mx(20, "a.x")], Err("5.4.6")),
    ];
    for (records, expected) in table {
        assert_eq!(names(records.clone()), expected.map_err(str::to_owned), "{records:?}");
    }
}

#[test]
fn a_thousand_mx_are_capped_at_the_best() {
    let records = (0..1000).rev().map(|i| mx(if i < 990 { 20 } else { 10 }, &format!("h{i:04}.x"))).collect();
    let names = names(records).unwrap();
    assert_eq!(names.len(), MX_HOSTS_MAX);
    assert!(names[..10].iter().all(|(p, _)| *p == 10));
    assert_eq!(names[10], (20, "h0000.x".to_owned()), "the same set gives the same site, whatever its order");
}

#[test]
fn ourselves_far_down_a_long_list_still_cuts() {
    let mut records: Vec<_> = (0..1000).map(|i| mx(20, &format!("h{i:04}.x"))).collect();
    records.push(mx(5, US));
    assert_eq!(names(records), Err("5.4.6".to_owned()));
}

#[test]
fn targets_keep_the_order_and_the_key_is_sorted() {
    let hosts = [
        (host(10, "z.x"), at(&["192.0.2.9"])),
        (host(20, "a.x"), at(&["192.0.2.7", "2001:db8::7", "192.0.2.8"])),
        (host(30, "m.x"), AddressAnswer::Failed("SERVFAIL".to_owned())),
    ];
    let plan = site(plan_of(&hosts));
    assert_eq!(&*plan.key, "a.x,m.x,z.x", "a host that is away does not change the site");
    assert_eq!(plan.ttl_s, 300);
    assert!(!plan.mixes_domains);
    let expected = [(10, "192.0.2.9"), (20, "192.0.2.7"), (20, "2001:db8::7"), (20, "192.0.2.8")];
    assert_eq!(targets(&plan), expected.map(|(p, ip)| (p, ip.to_owned())));
    assert!(plan.targets.iter().all(|t| t.addr.port() == 25));
}

#[test]
fn addresses_are_capped_with_both_families_in() {
    let v4 = (0..20).map(|i| IpAddr::from([192, 0, 2, 50 + i])).collect();
    let v6: Vec<IpAddr> = vec!["2001:db8::1".parse().unwrap()];
    let answer = AddressAnswer::Found { v4, v6: v6.clone(), ttl_s: 5 };
    let plan = site(plan_of(&[(host(0, "a.x"), answer)]));
    assert_eq!(plan.targets.len(), HOST_ADDRESSES_MAX);
    assert!(plan.targets.iter().any(|t| t.addr.ip() == Some(v6[0])));
    assert_eq!(plan.ttl_s, TTL_S_MIN, "TTL 5 is raised");
}

#[test]
fn nothing_to_try_says_why() {
    let failed = || AddressAnswer::Failed("SERVFAIL".to_owned());
    let table: Vec<(Vec<(MxHost, AddressAnswer)>, &str)> = vec![
        (vec![(host(10, "a.x"), AddressAnswer::NoData), (host(20, "b.x"), failed())], "4.4.3"),
        (vec![(host(10, "a.x"), at(&["127.0.0.1"])), (host(20, "b.x"), failed())], "4.4.3"),
        (vec![(host(10, "a.x"), AddressAnswer::NoDomain), (host(20, "b.x"), AddressAnswer::NoData)], "5.4.4"),
        (vec![(host(10, "a.x"), AddressAnswer::NoDomain)], "5.4.4"),
        (vec![(host(0, "d.example"), AddressAnswer::NoDomain)], "5.1.2"),
        (vec![(host(0, "d.example"), AddressAnswer::NoData)], "5.4.4"),
        (vec![(host(0, "d.example"), AddressAnswer::CnameLoop)], "5.4.6"),
        (vec![(host(10, "a.x"), at(&["127.0.0.1", "::1", "::ffff:127.0.0.2"]))], "5.4.6"),
        (vec![(host(10, "a.x"), at(&["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "0.1.2.3"]))], "5.4.6"),
        // This server by address: all hosts from preference 10 on are dropped.
        (vec![(host(10, "a.x"), at(&["192.0.2.1"])), (host(10, "b.x"), at(&["192.0.2.2"]))], "5.4.6"),
        // This server by name, without an MX.
        (vec![(host(0, US), at(&["192.0.2.77"]))], "5.4.6"),
    ];
    for (hosts, expected) in table {
        assert_eq!(dsn(&plan_of(&hosts)), expected, "{hosts:?}");
    }
}

#[test]
fn ourselves_by_address_leaves_the_nearer_hosts() {
    let hosts = [
        (host(10, "a.x"), at(&["192.0.2.9"])),
        (host(20, "b.x"), at(&["192.0.2.1", "192.0.2.3"])),
        (host(30, "c.x"), at(&["192.0.2.4"])),
    ];
    assert_eq!(targets(&site(plan_of(&hosts))), [(10, "192.0.2.9".to_owned())]);
}

#[test]
fn loopback_is_a_target_in_the_lab_only() {
    let hosts = [(host(10, "a.x"), at(&["127.0.0.5"])), (host(20, "b.x"), at(&["192.0.2.3"]))];
    assert_eq!(targets(&site(plan_with(&hosts, true))).len(), 2);
    assert_eq!(targets(&site(plan_with(&hosts, false))), [(20, "192.0.2.3".to_owned())]);
    let zero = [(host(10, "a.x"), at(&["0.0.0.0"]))];
    assert_eq!(dsn(&plan_with(&zero, true)), "5.4.6");
}

#[test]
fn one_host_with_two_kinds_of_tls_is_two_sites() {
    let planned = |text: &str| {
        let host = RouteHost::parse(text, 25).unwrap();
        let plan = site(route_plan(&[(&host, at(&["10.0.0.5"]))], 60, &|_| false));
        (plan.key.to_string(), plan.targets[0].addr.is_implicit_tls())
    };
    for (text, key, is_tls) in [
        ("10.0.0.5:4650", "route:10.0.0.5:4650", false),
        ("smtps:10.0.0.5:4650", "route:smtps:10.0.0.5:4650", true),
        // The default of that port, so the name is as without TLS.
        ("smtps:10.0.0.5", "route:10.0.0.5:465", true),
        ("starttls:10.0.0.5:465", "route:starttls:10.0.0.5:465", false),
    ] {
        assert_eq!(planned(text), (key.to_owned(), is_tls), "{text}");
    }
}

#[test]
fn routes_are_tried_in_order_and_never_bounce() {
    let never = |_: SocketAddr| false;
    let to = |host: &str| RouteHost::parse(host, 25).unwrap();
    let (first, gone, last) = (to("10.0.0.5"), to("gone.x"), to("[::1]:2525"));
    let socket = to("lmtp:unix:/run/lmtp");
    let hosts = [
        (&first, at(&["10.0.0.5"])),
        (&gone, AddressAnswer::NoDomain),
        (&last, at(&["::1"])),
        (&socket, AddressAnswer::NoDomain),
    ];
    let plan = site(route_plan(&hosts, 60, &never));
    assert_eq!(plan.ttl_s, 60);
    assert_eq!(&*plan.key, "route:10.0.0.5:25,gone.x:25,[::1]:2525,unix:/run/lmtp");
    assert!(plan.mixes_domains);
    let order: Vec<_> = plan.targets.iter().map(|t| (t.preference, t.addr.to_string())).collect();
    assert_eq!(order, [(0, "10.0.0.5:25".to_owned()), (2, "[::1]:2525".to_owned()), (3, "unix:/run/lmtp".to_owned())]);
    for answer in [AddressAnswer::NoDomain, AddressAnswer::NoData, AddressAnswer::CnameLoop] {
        let dead = route_plan(&[(&gone, answer)], 60, &never);
        assert!(
            matches!(dead, Resolution::Temporary { dsn: Enhanced { class: 4, subject: 4, detail: 4 }, .. }),
            "{dead:?}"
        );
    }
    // An error of the configuration is not a failure of the DNS; a real one is reported as such.
    let meant = |found: Resolution| match found {
        Resolution::Temporary { cause, dsn, .. } => (cause, dsn.to_string()),
        other => panic!("{other:?}"),
    };
    let us = to("127.0.0.1");
    let back = route_plan(&[(&us, at(&["127.0.0.1"]))], 60, &|_| true);
    assert_eq!(meant(back), (Cause::Routing, "4.4.6".to_owned()));
    assert_eq!(meant(route_plan(&[], 60, &never)), (Cause::Routing, "4.4.4".to_owned()));
    assert_eq!(meant(route_plan(&[(&gone, AddressAnswer::NoDomain)], 60, &never)).0, Cause::Routing);
    let failed = AddressAnswer::Failed("no answer from the name servers".to_owned());
    assert_eq!(meant(route_plan(&[(&gone, failed)], 60, &never)).0, Cause::Dns);
    // One of its hosts is fine, so nothing waits.
    let both = [(&us, at(&["127.0.0.1"])), (&first, at(&["10.0.0.5"]))];
    let plan = site(route_plan(&both, 60, &|addr| addr.ip().is_loopback()));
    assert_eq!(plan.targets.len(), 1);
}

#[test]
fn address_literals() {
    let ip = |s: &str| address_literal(s).map(|r| r.map_err(|_| "refused"));
    assert_eq!(ip("[192.0.2.1]"), Some(Ok("192.0.2.1".parse().unwrap())));
    assert_eq!(ip("[ipv6:2001:db8::1]"), Some(Ok("2001:db8::1".parse().unwrap())));
    assert_eq!(ip("[IPv6:::1]"), Some(Ok("::1".parse().unwrap())));
    for bad in ["[192.0.2.1", "[", "[]", "[ipv6:192.0.2.1]", "[x-tag:abc]", "[2001:db8::1]", "[é]", "[ipv6é]"] {
        assert_eq!(ip(bad), Some(Err("refused")), "{bad}");
    }
    assert_eq!(ip("example.org"), None);
}

#[test]
fn any_octets_as_names_neither_panic_nor_pass() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let len = rng.usize(..12);
        let name: String = (0..len).map(|_| rng.char('\0'..'\u{250}')).collect();
        let passes = is_host_name(&name);
        assert!(!passes || name.bytes().all(|b| b.is_ascii_graphic() && b != b','), "{name:?}");
        let _ = address_literal(&format!("[{name}"));
        let _ = address_literal(&format!("[{name}]"));
    }
}
