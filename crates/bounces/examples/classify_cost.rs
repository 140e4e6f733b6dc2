//! Measures what a failed reply costs: `cargo run --release -p stentor-bounces --example classify_cost`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stentor_bounces::{BounceReply, BounceRules};

const ROUNDS: u32 = 20_000;

fn main() {
    let begun = Instant::now();
    let rules = BounceRules::built_in();
    println!("compile {} rules: {:.1} ms", rules.len(), begun.elapsed().as_secs_f64() * 1_000.0);
    let long = "550 5.7.1 x".to_owned() + &" lorem ipsum dolor".repeat(300);
    for (what, text) in [
        (
            "no mailbox",
            "550 5.1.1 <ann@example.org>: Recipient address rejected: User unknown in virtual mailbox table",
        ),
        ("full", "452 4.2.2 The email account that you tried to reach is over quota q7-20020a17090a.12 - gsmtp"),
        ("block list", "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org"),
        ("no rule", "451 flurble 17 wobble"),
        ("4,096 octets", &long),
    ] {
        let reply = BounceReply { text, host: "mx.example.org", ..BounceReply::default() };
        let begun = Instant::now();
        black_box(rules.classify(black_box(&reply)));
        let first = begun.elapsed();
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            black_box(rules.classify(black_box(&reply)));
        }
        let each: Duration = begun.elapsed() / ROUNDS;
        println!("{what}: {} ns, the first {} ns", each.as_nanos(), first.as_nanos());
    }
}
