//! Memory of the index, the time of a look-up, and with a folder the time to fill and to open a registry there.
//!
//! `cargo run --release -p stentor-registry --example suppression_index -- 10000000 [FOLDER]`

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use stentor_registry::{AddressRegistry, Scope, Subject, Suppression, SuppressionIndex, SuppressionReason};

const LOOK_UPS: u64 = 2_000_000;
const PART: u64 = 1_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let entries = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    in_memory(entries);
    if let Some(folder) = arguments.next() {
        on_disk(entries, Path::new(&folder));
    }
}

fn address(number: u64) -> String {
    format!("first.last-{number}@mail-{}.example", number % 1_000)
}

fn in_memory(entries: u64) {
    let index = SuppressionIndex::default();
    let insert = |subject: &str, scope: &Scope| {
        let subject = Subject::parse(subject).expect("an address");
        index.insert(&subject, scope, SuppressionReason::Bounce, None);
    };
    let (list, sender) = (Scope::list("news").expect("a name"), Scope::sender("x.example").expect("a domain"));
    // Each kind of entry exists, so that each look-up makes all its probes.
    for scope in [&Scope::Everything, &list, &sender, &Scope::sender("a@x.example").expect("an address")] {
        insert("nobody@nowhere.example", scope);
        insert("@nowhere.example", scope);
    }
    (0..entries).for_each(|number| insert(&address(number), if number % 2 == 0 { &list } else { &Scope::Everything }));
    let octets = index.heap_bytes();
    println!("{} entries: {:.1} MiB", index.len(), octets as f64 / f64::from(1 << 20));
    for (what, offset) in [("absent", entries), ("present", 0)] {
        let asked: Vec<String> = (0..100_000).map(|n| address(offset + n * 7_919 % entries.max(1))).collect();
        let (begun, mut found) = (Instant::now(), 0);
        for n in 0..LOOK_UPS {
            let to = &asked[(n % asked.len() as u64) as usize];
            found += u64::from(black_box(index.find(to, Some("news"), "news-bounces@x.example", 1)).is_some());
        }
        let ns = begun.elapsed().as_nanos() / u128::from(LOOK_UPS);
        println!("{what}: {ns} ns a look-up, {found} of {LOOK_UPS} found");
    }
}

fn on_disk(entries: u64, folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let registry = AddressRegistry::open(folder).expect("a registry");
    let begun = Instant::now();
    for first in (0..entries).step_by(PART as usize) {
        let all = (first..entries.min(first + PART)).map(|number| {
            let subject = Subject::parse(&address(number)).expect("an address");
            Suppression::new(subject, Scope::Everything, SuppressionReason::Bounce, "example", number)
        });
        runtime.block_on(registry.suppress_all(all.collect())).expect("they are added");
    }
    println!("filled in {:.1} s", begun.elapsed().as_secs_f64());
    registry.close();
    let begun = Instant::now();
    let registry = AddressRegistry::open(folder).expect("a registry");
    println!("opened in {:.1} s: {} entries", begun.elapsed().as_secs_f64(), registry.len());
}
