//! Memory of the suppressions' index, and the time of a look-up in it, for addresses that are in it and for others.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use stentor_registry::{Scope, Subject, SuppressionIndex, SuppressionReason};

const LOOK_UPS: u64 = 2_000_000;
/// Different addresses looked up: more than the caches hold.
const ADDRESSES: u64 = 100_000;

/// Fills an index with `entries`, half of them for a list, and looks up.
///
/// # Panics
/// An address that is made up is not valid.
pub fn run(entries: u64) -> Value {
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
    let (absent_ns, absent) = looked_up(&index, entries, entries);
    let (present_ns, present) = looked_up(&index, 0, entries);
    assert!(absent == 0 && present == LOOK_UPS, "{absent} of the others found, {present} of those in it");
    let mib = index.heap_bytes() as f64 / f64::from(1 << 20);
    json!({"entries": index.len(), "mib": mib, "absent_ns": absent_ns, "present_ns": present_ns})
}

fn address(number: u64) -> String {
    format!("first.last-{number}@mail-{}.example", number % 1_000)
}

/// Nanoseconds of a look-up, and how many found something. `first`: number of the first address.
fn looked_up(index: &SuppressionIndex, first: u64, entries: u64) -> (f64, u64) {
    let addresses: Vec<String> = (0..ADDRESSES).map(|n| address(first + n * 7_919 % entries.max(1))).collect();
    let (begun, mut found) = (Instant::now(), 0);
    for n in 0..LOOK_UPS {
        let to = &addresses[(n % ADDRESSES) as usize];
        found += u64::from(black_box(index.find(to, Some("news"), "news-bounces@x.example", 1)).is_some());
    }
    (begun.elapsed().as_nanos() as f64 / LOOK_UPS as f64, found)
}
