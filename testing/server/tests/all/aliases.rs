//! Aliases: several targets, nesting, lists as targets.

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
