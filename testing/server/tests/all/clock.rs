//! The system's clock is set while the server runs: a machine that starts in 2020 and whose NTP comes later.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_harness::{Server, TestLab};

use crate::kit::{SENDER_SITE, builder, fates, post};
use crate::preload::{preload, set_clock, start};

/// The year in the first `Received` field of the copy.
fn received(lab: &TestLab, recipient: &str) -> String {
    let body = String::from_utf8_lossy(&lab.body_for(recipient)).into_owned();
    // The field may be folded before its date.
    let date = body.split_once(';').map(|(_, rest)| rest.trim_start().lines().next().unwrap_or_default().to_owned());
    date.expect("a Received field has a date")
}

/// How long ago the one message in the queue was accepted, by the machine's clock.
fn age_s(server: &Server) -> u64 {
    let answer = server.ask(&["mailqq"]).expect("an answer");
    let accepted = answer["mailqq_rows"][0]["accepted"].as_u64().unwrap_or_else(|| panic!("{answer}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    now.saturating_sub(accepted) / 1_000
}

fn year(path: &Path) -> i32 {
    let made = std::fs::metadata(path).and_then(|file| file.modified()).expect("the file is there");
    let days = made.duration_since(UNIX_EPOCH).expect("after 1970").as_secs() / 86_400;
    1970 + (days as f64 / 365.2425) as i32
}

#[test]
fn mail_that_came_before_the_clock_was_set_is_neither_returned_nor_dated_wrongly_for_ever() {
    const HOUR_S: u64 = 3_600;
    const SIX_YEARS_S: i64 = 6 * 365 * 86_400;
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'good.example'\n[[site]]\nname = 'dead.example'\nbehaviour = {{ connect = 'refuse' }}\n"
    ));
    let mut server = builder(&lab).set("retry.lifetime_s", "432000").prepare();
    preload(&server);
    set_clock(&server, -SIX_YEARS_S);
    start(&mut server);
    post(&server, &lab, &["ann@dead.example", "ann@good.example"], "before@test");
    lab.wait_clean("before@test", &["ann@good.example"]);
    let now = year(&server.path("offset"));
    let before = received(&lab, "ann@good.example");
    assert!(!before.contains(&now.to_string()), "{before}");

    set_clock(&server, 0);
    let line = server.wait_log(&["clock was set from"]);
    assert!(line.contains(&format!("to {now}")), "{line}");
    post(&server, &lab, &["bob@good.example"], "after@test");
    lab.wait_clean("after@test", &["bob@good.example"]);
    let after = received(&lab, "bob@good.example");
    assert!(after.contains(&now.to_string()), "{after}");
    // The dead host is tried on, and on: what waits for it is as old as it was, and its host's clock goes on.
    let tries = server.log().matching(&["dead.example", "stat=Deferred"]).len();
    server.log().wait_nth(&["dead.example", "stat=Deferred"], tries + 3);
    assert_eq!(fates(&server).pending, 1);
    assert!(age_s(&server) < HOUR_S, "{}", age_s(&server));

    // A later start, by the right clock, knows its age too.
    server.kill();
    start(&mut server);
    server.log().wait_nth(&["dead.example", "stat=Deferred"], 3);
    assert_eq!(fates(&server).pending, 1);
    assert!(age_s(&server) < HOUR_S, "{}", age_s(&server));
    assert!(server.log().matching(&["stat=Expired"]).is_empty());

    // And back: a clock that was in another zone.
    set_clock(&server, -7_200);
    server.wait_log(&["clock was set from"]);
    let tries = server.log().matching(&["dead.example", "stat=Deferred"]).len();
    server.log().wait_nth(&["dead.example", "stat=Deferred"], tries + 3);
    assert_eq!(fates(&server).pending, 1);
}
