//! `stentor doctor mail` over good and faulty domains, for `make bench`: what it found, as one JSON object.

use serde_json::json;
use stentor_server_tests::identity;

fn main() {
    let outcome = identity::run();
    println!(
        "{}",
        json!({
            "faults": identity::FAULTS.len(),
            "missed": outcome.missed,
            "good": identity::GOOD.len(),
            "wrong": outcome.wrong,
        })
    );
}
