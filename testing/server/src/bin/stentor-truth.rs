//! Asks every view of a server why mail waits, for `make bench`: what was asked and what was wrong, as one JSON object.

use serde_json::json;
use stentor_server_tests::truth;

fn main() {
    let verdict = truth::ask();
    let wrong: Vec<_> =
        verdict.wrong.iter().map(|w| json!({"view": w.view, "cause": w.cause, "said": w.said})).collect();
    println!("{}", json!({"causes": truth::CASES.len(), "asked": verdict.asked, "wrong": wrong}));
}
