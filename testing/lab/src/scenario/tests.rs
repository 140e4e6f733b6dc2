use super::*;

const GENERATED: &str = r#"
seed = 7
[[generate]]
sites = 200
zipf = 1.2
rtt_ms = [10, 200]
hosts = [1, 3]
faulty_share = 0.02
faults = [{ behaviour = { connect = "refuse" } }, { behaviour = { at_greeting = "hang" } }, { dns = "timeout" }]
"#;

#[test]
fn generated_sites_are_skewed_seeded_and_faulty_as_told() {
    let scenario = Scenario::parse(GENERATED).expect("valid");
    let again = Scenario::parse(GENERATED).expect("valid");
    assert_eq!(format!("{:?}", scenario.sites), format!("{:?}", again.sites));
    assert_eq!(scenario.sites().len(), 200);
    let people = scenario.subscribers(2000);
    assert_eq!(people, again.subscribers(2000));
    assert_eq!(people.len(), 2000);
    assert_eq!(people.iter().collect::<HashSet<_>>().len(), 2000, "all different");
    let at = |site: usize| people.iter().filter(|p| p.ends_with(&format!("@{}", scenario.sites[site].name))).count();
    assert!(at(0) > 10 * at(50).max(1), "the first site is big: {} {}", at(0), at(50));
    let faulty: Vec<usize> =
        (0..200).filter(|&no| scenario.fate(&format!("a@{}", scenario.sites[no].name)) == Fate::Silent).collect();
    assert_eq!(faulty.len(), 4);
    assert!(faulty.iter().all(|&no| no >= 10), "none of the biggest");
    let rtts: Vec<u32> = scenario.sites().iter().map(|s| s.hosts[0].behaviour.rtt_ms).collect();
    assert!(rtts.iter().all(|rtt| (10..=200).contains(rtt)));
    let near = rtts.iter().filter(|&&rtt| rtt < 45).count();
    assert!((70..130).contains(&near), "log-uniform: half of them below the geometric middle: {near}");
    let other = Scenario::parse(&GENERATED.replace("seed = 7", "seed = 8")).expect("valid");
    assert_ne!(people, other.subscribers(2000));
}

#[test]
fn explicit_sites_lay_behaviours_over_one_another() {
    let scenario = Scenario::parse(
        r#"
behaviour = { rtt_ms = 5 }
[[site]]
name = "big.example"
domains = ["Big.example", "also.example"]
behaviour = { no_chunking = true }
host = [{ address = "127.1.2.3", preference = 5 }, { name = "backup.big.example", behaviour = { rtt_ms = 50 } }]
[[site.window]]
from_s = 1
to_s = 2.5
behaviour = { connect = "refuse" }
dns = "servfail"
"#,
    )
    .expect("valid");
    let site = &scenario.sites()[0];
    assert_eq!(site.hosts[0].address, Ipv4Addr::new(127, 1, 2, 3));
    assert_eq!((site.hosts[0].behaviour.rtt_ms, site.hosts[1].behaviour.rtt_ms), (5, 50));
    assert!(site.hosts[1].behaviour.no_chunking && site.hosts[1].windows[0].behaviour.no_chunking);
    assert_eq!(site.hosts[0].windows[0].to_us, 2_500_000);
    assert_eq!(site.dns_windows, [(1_000_000, 2_500_000, Dns::Servfail)]);
    assert_eq!(scenario.site_of_domain("BIG.example."), Some(0));
    assert!(scenario.is_reachable("x@also.example"), "windows pass");
    assert_eq!(scenario.fate("x@other.example"), Fate::Refused);
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("sede = 1", "sede"),
        ("[[site]]\nname = 'a'\nbehaviour = { rtt = 1 }", "site a: behaviour: unknown field `rtt`"),
        ("[[site]]\nname = 'a'\n[[site]]\nname = 'A'", "two sites"),
        ("[[site]]\nname = 'a'\nhost = [{address = '10.0.0.1'}]", "127.0.0.0/8"),
        ("[[site]]\nname = 'a'\n[[site.window]]\nfrom_s = 2\nto_s = 1", "empty"),
        ("[[generate]]\nsites = 5\nfaulty_share = 0.5", "kinds"),
        ("[[generate]]\nsites = 4000000", "more than"),
        ("[[site]]\nname = 'a'\ndns = 'wobbly'", "wobbly"),
    ] {
        let error = Scenario::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn foreign_domains_are_mapped_steadily() {
    let foreign = Scenario::parse(&GENERATED.replace("seed = 7", "seed = 7\nforeign_domains = true")).expect("valid");
    let mapped = foreign.map_address("Bob@GMail.com").expect("served");
    assert_eq!(mapped.address, "Bob@GMail.com");
    assert_eq!(Some(mapped.site), foreign.site_of_domain("gmail.com"));
    let sites: HashSet<_> = (0..500).filter_map(|n| foreign.site_of_domain(&format!("d{n}.org"))).collect();
    assert!(sites.len() > 100, "spread over the sites: {}", sites.len());
    assert_eq!(foreign.map_address("nobody"), None);
    assert_eq!(Scenario::parse(GENERATED).expect("valid").map_address("bob@gmail.com"), None);
}

#[test]
fn the_examples_are_valid_and_mostly_reachable() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).expect("examples/lab exists") {
        let path = entry.expect("readable").path();
        let scenario = Scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let people = scenario.subscribers(5000);
        let reachable = people.iter().filter(|p| scenario.is_reachable(p)).count();
        assert!(people.len() == 5000 && reachable > 4500, "{}: {reachable}", path.display());
        seen += 1;
    }
    assert!(seen >= 3);
}
