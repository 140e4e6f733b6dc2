//! Aliases: several targets, nesting, lists as targets, targets that get no mail.

use stentor_harness::{Server, TestLab, message};

#[test]
fn aliases_of_every_kind() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = Server::builder()
        .lab(&lab)
        .list("news", &["ann@one.example", "bob@two.example"])
        .set("domains.local", "[\"home.test\"]")
        .set("domains.postmaster", "\"post@one.example\"")
        .alias("team@home.test", &["ann@one.example", "bob@two.example"])
        .alias("all@home.test", &["team@home.test", "cid@one.example", "ann@one.example"])
        .alias("desk@home.test", &["news@lists.test"])
        .start();
    for (n, (to, expected)) in [
        (&["team@home.test"][..], &["ann@one.example", "bob@two.example"][..]),
        (&["TEAM@Home.Test"], &["ann@one.example", "bob@two.example"]),
        // Whoever is meant twice gets one copy.
        (
            &["all@home.test", "team@home.test", "cid@one.example"],
            &["ann@one.example", "bob@two.example", "cid@one.example"],
        ),
        (&["desk@home.test"], &["ann@one.example", "bob@two.example"]),
        (&["postmaster@home.test"], &["post@one.example"]),
        (&["postmaster"], &["post@one.example"]),
    ]
    .iter()
    .enumerate()
    {
        let id = format!("{n}@test");
        let wire = message(&id, "x");
        lab.recorder().expect_message(wire.clone().into());
        // Anybody may write to a local address.
        let from = if to.contains(&"cid@one.example") { "127.0.0.1" } else { "127.0.0.2" };
        let mut client = server.connect_from(from).greeted();
        client.send("me@home.example", to, &wire).expect(250);
        lab.wait_clean(&id, expected);
        let sender = if *to == ["desk@home.test"] { "news-bounces@lists.test" } else { "me@home.example" };
        let copies = lab.recorder().copies();
        assert!(copies.iter().filter(|copy| *copy.message_id == *id).all(|copy| &*copy.sender == sender), "{to:?}");
    }
}

#[test]
fn an_alias_whose_targets_are_all_refused_is_refused_too() {
    let lab = TestLab::sites(&["one.example", "home.example"]);
    let server = Server::builder()
        .lab(&lab)
        .set("domains.local", "[\"home.test\"]")
        .alias("gone@home.test", &["ann@old.example", "bob@old.example"])
        .alias("half@home.test", &["ann@old.example", "cid@one.example"])
        .set_in("routes", "\"old.example\"", "\"error: 550 5.1.6 We have moved\"")
        .start();
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<gone@home.test>").expect_text("550 5.1.6 We have moved");
    server.log().wait_nth(&["gone@home.test", "all its targets are refused"], 1);
    let explained = server.operator(&["explain", "--from", "me@home.example", "--to", "gone@home.test"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.status.code() == Some(69) && text.contains("=> refused: 550 5.1.6 We have moved"), "{text}");
    // Somebody gets the mail of the other one, so that its sender hears of who does not, in the words of the route.
    let explained = server.operator(&["explain", "--from", "me@home.example", "--to", "half@home.test"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(text.contains("ann@old.example: bounced with 550 5.1.6 We have moved"), "{text}");
    let wire = message("half@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.connect_from("127.0.0.2").greeted().send("me@home.example", &["half@home.test"], &wire).expect(250);
    lab.wait_clean("half@test", &["cid@one.example"]);
    server.log().wait_nth(&["to=<ann@old.example>", "dsn=5.1.6", "We have moved"], 1);
}
