//! Every view says why mail waits, and all say the same.

use stentor_server_tests::truth;

#[test]
fn every_view_names_the_cause() {
    let verdict = truth::ask();
    assert_eq!(verdict.asked, 172, "no view is left out");
    let text: String = verdict.wrong.iter().map(|w| format!("{} of {}: {}\n", w.view, w.cause, w.said)).collect();
    assert!(verdict.wrong.is_empty(), "{} of {} answers are wrong:\n{text}", verdict.wrong.len(), verdict.asked);
}
