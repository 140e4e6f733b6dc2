//! Hostile receivers: every one of the table, against one server at a time.

use stentor_tests::hostile::{self, Case, Options, Verdict};

/// Receivers that do not come to the documented end yet, each with the reason.
const KNOWN: &[(&str, &str)] = &[
    ("greeting-521", "RFC 7504: 521 is still taken for a host that has failed for now"),
    ("greeting-521-fin", "the same"),
    ("mail-451", "4xx at MAIL holds the sender's mail at the site: the next host is not asked"),
    ("mail-451-fin", "the same"),
    ("mail-452", "the same"),
    ("mail-452-fin", "the same"),
];

#[track_caller]
fn judge(cases: &[Case]) {
    let verdicts = hostile::run(cases, Options::default());
    assert_eq!(verdicts.len(), cases.len());
    let is_known = |verdict: &&Verdict| KNOWN.iter().any(|(id, _)| *id == verdict.receiver);
    let (failed, passed): (Vec<_>, Vec<_>) = verdicts.iter().partition(|verdict| !verdict.problems.is_empty());
    let failed: Vec<_> = failed.into_iter().filter(|verdict| !is_known(verdict)).collect();
    let text: String = failed.iter().map(|v| format!("{}: {}\n", v.case, v.problems.join("; "))).collect();
    assert!(failed.is_empty(), "{} of {} cases:\n{text}", failed.len(), verdicts.len());
    let mended: Vec<_> = passed.into_iter().filter(is_known).map(|verdict| &verdict.case).collect();
    if !mended.is_empty() {
        println!("no longer to be listed as known: {mended:?}");
    }
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
fn the_page_is_that_of_the_table() {
    let page = include_str!("../../../docs/hostile-receivers.md");
    assert!(
        page == hostile::page(),
        "cargo run -p stentor-tests --bin stentor-hostile -- page > docs/hostile-receivers.md"
    );
}
