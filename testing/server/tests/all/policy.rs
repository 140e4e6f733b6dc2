//! Who may send where: relaying, posting, limits for untrusted clients.

use stentor_harness::{Server, Smtp, TestLab, message, message_with};

/// Not in `client_networks`.
fn stranger(server: &Server) -> Smtp {
    server.connect_from("127.0.0.2").greeted()
}

#[test]
fn relay_for_configured_networks_alone() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder().lab(&lab).list("news", &["list@one.example"]).start();
    let mut client = stranger(&server);
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    for to in ["ann@one.example", "ann@[127.0.0.1]", "ann@localhost"] {
        // Our own address is no relay either, but nobody has that name here.
        let reply = if to == "ann@[127.0.0.1]" { "550 5.1.1" } else { "550 5.7.1" };
        client.cmd(&format!("RCPT TO:<{to}>")).expect_text(reply);
    }
    client.cmd("RCPT TO:<news@lists.test>").expect(250);
    client.cmd("RSET").expect(250);
    let post = message("post@test", "x");
    lab.recorder().expect_message(post.clone().into());
    client.send("me@home.example", &["news@lists.test"], &post).expect(250);
    lab.wait_clean("post@test", &["list@one.example"]);
    let wire = message("relay@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["ann@one.example", "Bob@one.example"], &wire).expect(250);
    lab.wait_clean("relay@test", &["ann@one.example", "Bob@one.example"]);
    // A relayed message keeps its envelope sender and gets one field.
    let copy = lab.recorder().copies_to("ann@one.example").remove(0);
    assert_eq!(&*copy.sender, "me@home.example");
    let body = String::from_utf8(lab.body_for("ann@one.example")).expect("text");
    assert!(body.starts_with("Received: from client.example ([127.0.0.1])\r\n"), "{body}");
    assert_eq!(body.matches("Received:").count(), 1, "{body}");
}

#[test]
fn who_may_post() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder()
        .lab(&lab)
        .list("open", &["open@one.example"])
        .list("club", &["ann@one.example", "bob@one.example"])
        .set("lists.club.post", "\"members\"")
        .list("paper", &["paper@one.example"])
        .set("lists.paper.post", "[\"Editor@home.example\"]")
        .start();
    let mut n = 0;
    // To, envelope sender, author, whether it may.
    for (to, sender, author, may) in [
        ("open", "stranger@home.example", "stranger@home.example", true),
        ("club", "stranger@home.example", "stranger@home.example", false),
        ("club", "Ann@one.example", "x@home.example", true),
        ("club", "stranger@home.example", "\"Bob, B.\" <BOB@one.example>", true),
        ("club", "stranger@home.example", "bob@one.example.evil.example", false),
        ("paper", "ann@one.example", "ann@one.example", false),
        ("paper", "editor@HOME.example", "x@home.example", true),
        ("paper", "x@home.example", "The editor <editor@home.example>", true),
        ("paper", "x@home.example", "\"editor@home.example\" <x@home.example>", false),
    ] {
        n += 1;
        let id = format!("{n}@test");
        let wire = format!("From: {author}\r\nMessage-ID: <{id}>\r\nSubject: x\r\n\r\nx\r\n").into_bytes();
        lab.recorder().expect_message(wire.clone().into());
        let reply = stranger(&server).send(sender, &[&format!("{to}@lists.test")], &wire);
        if !may {
            reply.expect_text("550 5.7.2");
            continue;
        }
        reply.expect(250);
        let to: &[&str] = match to {
            "open" => &["open@one.example"],
            "club" => &["ann@one.example", "bob@one.example"],
            _ => &["paper@one.example"],
        };
        lab.wait_clean(&id, to);
    }
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 1 + 2 + 2 + 1 + 1);
}

#[test]
fn recipients_of_a_stranger_are_capped() {
    let server = Server::builder().list("news", &[]).set("listen.recipients_per_message_max", "100").start();
    let mut client = stranger(&server);
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    for _ in 0..100 {
        client.cmd("RCPT TO:<news@lists.test>").expect(250);
    }
    client.cmd("RCPT TO:<news@lists.test>").expect_text("452 4.5.3");
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    for n in 0..300 {
        client.cmd(&format!("RCPT TO:<u{n}@one.example>")).expect(250);
    }
}

#[test]
fn a_static_route_takes_the_place_of_mx() {
    let lab = TestLab::sites(&["one.example"]);
    let host = lab.scenario().sites()[0].hosts[0].address;
    let server = Server::builder().lab(&lab).route("one.example", &[&host.to_string()]).start();
    let wire = message_with("route@test", "Subject: x\r\n", "x\r\n");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["ann@one.example"], &wire).expect(250);
    lab.wait_clean("route@test", &["ann@one.example"]);
    assert_eq!(lab.lab().mx_queries("one.example"), 0);
}

/// docs/operate/configuration-lists.md: the poster is a member "case ignored", however the subscribers file has the
/// address.
#[test]
fn a_member_in_capitals_may_post() {
    let lab = TestLab::sites(&["one.example"]);
    let server =
        Server::builder().lab(&lab).list("club", &["Ann.Smith@one.example"]).set("lists.club.post", "\"members\"");
    let server = server.start();
    let wire = message("capitals@test", "x");
    stranger(&server).send("ann.smith@one.example", &["club@lists.test"], &wire).expect(250);
    lab.wait_clean("capitals@test", &["Ann.Smith@one.example"]);
}

/// A refusal of one list's is nobody else's: data has one reply for all recipients.
#[test]
fn a_list_that_may_refuse_its_post_is_a_strangers_only_recipient() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder()
        .lab(&lab)
        .list("club", &["ann@one.example", "both@one.example"])
        .set("lists.club.post", "\"members\"")
        .list("staff", &["both@one.example"])
        .set("lists.staff.post", "\"members\"")
        .list("open", &["bob@one.example"])
        .alias("boss@lists.test", &["boss@one.example"])
        .start();
    let named = |sender: &str, from: &str, recipients: &[&str]| -> Vec<u16> {
        let mut client = server.connect_from(from).greeted();
        client.cmd(&format!("MAIL FROM:<{sender}>")).expect(250);
        let codes = recipients.iter().map(|to| client.cmd(&format!("RCPT TO:<{to}@lists.test>")).code).collect();
        client.quit();
        codes
    };
    let outside = "127.0.0.2";
    for (sender, from, recipients, codes) in [
        ("eve@x.example", outside, ["club", "open", "club"], [250, 452, 250]),
        ("eve@x.example", outside, ["open", "club", "boss"], [250, 452, 250]),
        ("eve@x.example", outside, ["boss", "open", "open"], [250, 250, 250]),
        ("Ann@One.example", outside, ["club", "open", "boss"], [250, 250, 250]),
        ("eve@x.example", "127.0.0.1", ["club", "open", "boss"], [250, 250, 250]),
    ] {
        assert_eq!(named(sender, from, &recipients), codes, "{sender} {from} {recipients:?}");
    }
    // Of several such lists each counts, in any order.
    for (sender, from, recipients, codes) in [
        ("ann@one.example", "127.0.0.3", ["club", "staff", "staff"], [250, 452, 452]),
        ("ann@one.example", "127.0.0.4", ["staff", "club", "open"], [250, 452, 452]),
        ("both@one.example", "127.0.0.3", ["staff", "club", "open"], [250, 250, 250]),
        ("both@one.example", "127.0.0.4", ["open", "club", "staff"], [250, 250, 250]),
        ("eve@x.example", "127.0.0.5", ["staff", "staff", "boss"], [250, 250, 452]),
    ] {
        assert_eq!(named(sender, from, &recipients), codes, "{sender} {from} {recipients:?}");
    }
    // Whoever asks on without a post learns no more of who is a member.
    let ann = "ann@one.example";
    let beside = |sender: &str| named(sender, outside, &["club", "open"]);
    assert_eq!((beside(ann), beside(ann), beside("eve@x.example")), (vec![250, 250], vec![250, 452], vec![250, 452]));
    // Its author is a member: the list takes it.
    let mut client = server.connect_from(outside).greeted();
    client.cmd("MAIL FROM:<eve@x.example>").expect(250);
    client.cmd("RCPT TO:<club@lists.test>").expect(250);
    client.cmd("DATA").expect(354);
    client.raw(b"From: ann@one.example\r\nMessage-ID: <author@test>\r\n\r\nx\r\n.\r\n");
    client.reply().expect(250);
    assert_eq!(beside(ann), [250, 250], "it has posted");
}
