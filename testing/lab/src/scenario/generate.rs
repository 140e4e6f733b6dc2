//! Generated sites: many, skewed, some of them faulty. Pure function of the table and the seed.

use super::file::{Generate, Site, lay};

/// The greatest sites, one in this many, are never faulty.
const SPARED: usize = 20;

pub(super) fn sites(generate: &Generate, seed: u64) -> Result<Vec<Site>, String> {
    let count = generate.sites as usize;
    for (name, share, kinds) in [
        ("faulty_share", generate.faulty_share, generate.faults.len()),
        ("odd_share", generate.odd_share, generate.odds.len()),
    ] {
        if !(0.0..=1.0).contains(&share) || share > 0.0 && kinds == 0 {
            return Err(format!(
                "generate {}: {name} = {share} must be within 0.0 to 1.0 and have kinds",
                generate.name
            ));
        }
    }
    if generate.rtt_ms[0] > generate.rtt_ms[1] || generate.hosts[0] > generate.hosts[1] {
        return Err(format!("generate {}: the greater bound comes first", generate.name));
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let spared = count.div_ceil(SPARED).min(count);
    let mut tail: Vec<usize> = (spared..count).collect();
    rng.shuffle(&mut tail);
    let faulty = ((count as f64 * generate.faulty_share).round() as usize).min(tail.len());
    let odd = ((count as f64 * generate.odd_share).round() as usize).min(tail.len() - faulty);
    let mut kind_of = vec![None; count];
    for (at, &site) in tail.iter().take(faulty + odd).enumerate() {
        kind_of[site] = Some(if at < faulty {
            &generate.faults[at % generate.faults.len()]
        } else {
            &generate.odds[(at - faulty) % generate.odds.len()]
        });
    }
    let total: f64 = (1..=count).map(|rank| (rank as f64).powf(-generate.zipf)).sum();
    Ok((0..count)
        .map(|no| {
            let name = format!("{}-{:04}.example", generate.name, no + 1);
            let mut behaviour = generate.behaviour.clone();
            if generate.rtt_ms[1] > 0 && !behaviour.contains_key("rtt_ms") {
                let (least, most) = (f64::from(generate.rtt_ms[0].max(1)).ln(), f64::from(generate.rtt_ms[1]).ln());
                let rtt = (least + rng.f64() * (most - least)).exp().round();
                behaviour.insert("rtt_ms".to_owned(), toml::Value::Integer(rtt as i64));
            }
            let hosts = rng.u32(generate.hosts[0]..=generate.hosts[1]);
            let domains = (0..generate.domains_per_site.max(1))
                .map(|d| if d == 0 { name.clone() } else { format!("d{d}.{name}") })
                .collect();
            let kind = kind_of[no];
            Site {
                domains,
                host: Vec::new(),
                hosts,
                weight: generate.weight * ((no + 1) as f64).powf(-generate.zipf) / total,
                behaviour: kind.map_or_else(|| behaviour.clone(), |k| lay(&behaviour, &k.behaviour)),
                dns: kind.map(|k| k.dns).unwrap_or_default(),
                relay: false,
                dns_delay_ms: 0,
                window: Vec::new(),
                name,
            }
        })
        .collect())
}
