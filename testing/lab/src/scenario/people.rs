//! Subscribers: invented people, spread over the sites as real lists are. Pure function of sites, seed and number.

use super::Site;

const FIRST: [&str; 32] = [
    "anna", "ben", "carla", "david", "elena", "farid", "grace", "hugo", "ines", "jan", "keiko", "luca", "maria",
    "nils", "olga", "paul", "qing", "rosa", "sven", "tara", "umar", "vera", "wim", "xenia", "yusuf", "zoe", "aisha",
    "boris", "chloe", "dmitri", "emil", "fatou",
];
const LAST: [&str; 24] = [
    "acker", "berg", "costa", "dubois", "evans", "fischer", "garcia", "haas", "ito", "jensen", "khan", "lopez",
    "meyer", "novak", "okafor", "petrov", "quist", "rossi", "silva", "tanaka", "ueda", "vogel", "weber", "zhang",
];

pub(super) fn subscribers(sites: &[Site], seed: u64, n: usize) -> Vec<String> {
    let total: f64 = sites.iter().map(|s| s.weight).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7375_6273_6372_6962);
    let mut people = Vec::with_capacity(n);
    let mut before = 0.0;
    for site in sites {
        // Rounding the running sum keeps the total exact and the tail populated in proportion.
        let from = (before / total * n as f64).round() as usize;
        before += site.weight;
        let to = (before / total * n as f64).round() as usize;
        for k in 0..to.saturating_sub(from) {
            let domain = &site.domains[k % site.domains.len()];
            let (first, last) = (FIRST[rng.usize(..FIRST.len())], LAST[rng.usize(..LAST.len())]);
            // The number makes it unique within its site.
            people.push(format!("{first}.{last}{k}@{domain}"));
        }
    }
    people.truncate(n);
    rng.shuffle(&mut people);
    people
}
