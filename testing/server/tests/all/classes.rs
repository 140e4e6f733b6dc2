//! Which mail is bulk: by the injector's network, by header fields, by the sender's rate.

use std::process::Command;

use stentor_harness::{Server, TestLab, message, message_with, wait_until};

/// Acceptances of a class in the log, by their envelope sender.
fn accepted(server: &Server, class: &str, sender: &str) -> usize {
    server.log().matching(&["nrcpts=", &format!("class={class},"), &format!("from=<{sender}")]).len()
}

#[test]
fn a_list_manager_that_injects_one_by_one_is_bulk() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder()
        .lab(&lab)
        .set("classes.sender_messages_max", "20")
        // At most a part of one leaks while the test runs.
        .set("classes.sender_window_s", "86400")
        .start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/list_manager.py");
    let status = Command::new("python3").arg(script).arg(server.address().port().to_string()).arg("50").status();
    assert!(status.expect("python3 is there").success());
    // Somebody else of the same domain, in between.
    let mut client = server.smtp();
    client.send("ann@lists.example", &["ann@one.example"], &message("ann@test", "x")).expect(250);
    // One message to many is ordinary, however many.
    let many: Vec<String> = (0..2_000).map(|n| format!("m{n}@one.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    client.send("bob@home.example", &many, &message("many@test", "x")).expect(250);
    client.send("bob@home.example", &["ann@one.example"], &message("next@test", "x")).expect(250);
    lab.wait_copies(50 + 1 + 2_000 + 1);
    wait_until("all acceptances are logged", || server.log().matching(&["nrcpts="]).len() == 53);
    let ordinary = accepted(&server, "0", "dev-bounces+");
    assert!((20..=21).contains(&ordinary), "{ordinary}");
    assert_eq!(accepted(&server, "-60", "dev-bounces+"), 50 - ordinary);
    assert_eq!(accepted(&server, "0", "ann@lists.example"), 1);
    assert_eq!((accepted(&server, "0", "bob@home.example"), accepted(&server, "-60", "bob@home.example")), (1, 1));
}

#[test]
fn the_injector_decides_before_the_message() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder()
        .lab(&lab)
        .set("client_networks", "[\"127.0.0.0/8\"]")
        .set("classes.ordinary_networks", "[\"127.0.0.5\"]")
        .set("classes.bulk_networks", "[\"127.0.0.4/30\"]")
        .set("classes.sender_messages_max", "1")
        .start();
    let list = message_with("list@test", "List-Id: <x.example>\r\n", "x\r\n");
    let plain = message("plain@test", "x");
    for (from, wire, sender, class) in [
        ("127.0.0.1", &plain, "a@home.example", "0"),
        ("127.0.0.1", &list, "b@home.example", "-60"),
        ("127.0.0.4", &plain, "c@home.example", "-60"),
        ("127.0.0.5", &list, "d@home.example", "0"),
        ("127.0.0.5", &plain, "d@home.example", "0"),
        ("127.0.0.5", &plain, "d@home.example", "0"),
    ] {
        let before = accepted(&server, class, sender);
        server.connect_from(from).greeted().send(sender, &["ann@one.example"], wire).expect(250);
        server.wait_log(&["nrcpts=", &format!("from=<{sender}")]);
        wait_until("the acceptance is logged", || accepted(&server, class, sender) == before + 1);
    }
    lab.wait_copies(6);
}
