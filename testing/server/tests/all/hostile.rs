//! Hostile receivers: every one of the table, against one server at a time.

use stentor_server_tests::hostile::{self, Case, Options};

#[track_caller]
fn judge(cases: &[Case]) {
    let verdicts = hostile::run(cases, Options::default());
    assert_eq!(verdicts.len(), cases.len());
    let failed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.problems.is_empty()).collect();
    let text: String = failed.iter().map(|v| format!("{}: {}\n", v.case, v.problems.join("; "))).collect();
    assert!(failed.is_empty(), "{} of {} cases:\n{text}", failed.len(), verdicts.len());
}

#[test]
fn one_message_over_smtp_with_one_host_and_with_two() {
    let receivers = hostile::receivers();
    assert!(receivers.len() >= 150, "{}", receivers.len());
    judge(&[hostile::cases(&receivers, 1, 1, false), hostile::cases(&receivers, 1, 2, false)].concat());
}

#[test]
fn several_messages_and_lmtp() {
    let receivers = hostile::receivers();
    judge(&[hostile::cases(&receivers, 5, 2, false), hostile::cases(&receivers, 1, 2, true)].concat());
}

#[test]
fn the_pages_are_those_of_the_table() {
    for (name, text) in hostile::pages() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/");
        let page = std::fs::read_to_string(format!("{path}{name}")).unwrap();
        assert!(
            page == text,
            "cargo run -p stentor-server-tests --bin stentor-hostile -- page {name} > docs/design/{name}"
        );
    }
}
