//! Measures the address book: `cargo run --release -p stentor-queue --example book_cost [ADDRESSES]`. Prints memory,
//! the cost of an update, and the longest single step of a checkpoint, of a search for forgettable addresses, and of
//! forgetting.

use std::time::{Duration, Instant};

use stentor_queue::book::SiteAttempt;
use stentor_queue::event::Event;
use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;
use stentor_queue::slices::Records;
use stentor_queue::store::{Store, SweepLimits};

const NOW: u64 = 1_800_000_000_000;
const DAY: u64 = 24 * 3_600_000;

fn each(what: &str, count: u32, took: Duration) {
    println!("{what}: {} ns each", took.as_nanos() / u128::from(count));
}

/// Runs `step` until it reports that no more follows; prints the number of steps and the longest.
fn longest(what: &str, mut step: impl FnMut() -> bool) {
    let (mut steps, mut all) = (0, Vec::new());
    loop {
        let begun = Instant::now();
        let more = step();
        all.push(begun.elapsed());
        steps += 1;
        if !more {
            break;
        }
    }
    all.sort_unstable();
    println!("{what}: {steps} steps, median {:?}, longest {:?}", all[all.len() / 2], all[all.len() - 1]);
}

fn main() {
    let addresses: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let domains = (addresses / 20).max(1);
    let mut store = Store::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let begun = Instant::now();
    for i in 0..addresses {
        // A few large domains and many small ones, as in the bench of ten million pending.
        let domain = (f64::from(domains).powf(rng.f64()) - 1.0) as u32;
        let Some((id, _)) = store.book.intern(&format!("user{i:07}@d{domain:05}.example")) else { return };
        store.book.saw(id, if i % 2 == 0 { NOW } else { NOW - 90 * DAY });
    }
    each("intern", addresses, begun.elapsed());
    println!("memory: {} bytes per address", store.book.heap_bytes() / addresses as usize);
    let order: Vec<AddressId> = (0..addresses).map(|_| AddressId(rng.u32(0..addresses))).collect();
    let begun = Instant::now();
    for id in &order {
        if id.0 % 2 == 0 {
            store.book.delivered(*id, NOW, 300);
        }
    }
    each("delivered, at random", addresses / 2, begun.elapsed());
    let begun = Instant::now();
    for id in &order {
        let domain = store.book.domain(*id);
        store.book.site_attempt(domain, NOW, SiteAttempt::Answered { xdelay_ms: 300, connections: 1 });
    }
    each("attempt at a domain, at random", addresses, begun.elapsed());

    let (mut cursor, mut bytes) = (store.begin_checkpoint(), 0);
    longest("checkpoint", || {
        let mut records = Records::default();
        let more = cursor.step(&mut store, &mut records);
        bytes += records.records.iter().map(Vec::len).sum::<usize>();
        more
    });
    println!("checkpoint: {} bytes per address", bytes / addresses as usize);
    store.checkpoint_complete();
    let Some(mut sweep) = cursor.sweep() else { return };
    let limits = SweepLimits { unseen_ms: 60 * DAY, addresses_max: 2 * addresses as usize };
    let mut found = Vec::new();
    longest("search and compaction", || {
        let mut ids = IdSet::new();
        let more = sweep.step(&mut store, &limits, NOW, |_| false, &mut ids);
        if !ids.is_empty() {
            let begun = Instant::now();
            store.apply(Event::Forget { ids });
            found.push(begun.elapsed());
        }
        more
    });
    found.sort_unstable();
    let longest = found.last().copied().unwrap_or_default();
    println!("of these forgetting: {} records, longest {longest:?}", found.len());
    let left = store.book.len();
    println!("left: {left}, {} bytes per address", store.book.heap_bytes() / left.max(1));
}
