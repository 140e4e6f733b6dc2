//! The dialogue with clients: RFC 5321 and the offered extensions.

use rustix::process::Signal;
use stentor_harness::{Server, Smtp, TestLab, message, message_with, wait_until};

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "two.example"])
}

#[test]
fn a_post_reaches_its_subscribers() {
    let lab = lab();
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example", "bob@two.example"]).start();
    let wire = message("1@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    let reply = server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect(250);
    assert!(!reply.queue_id().is_empty());
    lab.wait_clean("1@test", &["ann@one.example", "bob@two.example"]);
    server.wait_empty();
    assert_eq!(server.fates()["delivered"], 2);
}

#[test]
fn greeting_and_offers() {
    let server = Server::builder().set("message_size_bytes_max", "1048576").start();
    let mut client = server.connect();
    let greeting = client.reply().expect(220);
    assert_eq!(greeting.lines.len(), 1);
    assert!(greeting.lines[0].starts_with("mx.test ESMTP"), "{greeting}");
    let mut offers = client.cmd("EHLO client.example").expect(250).lines;
    assert!(offers.remove(0).starts_with("mx.test"));
    offers.sort();
    let expected = "8BITMIME CHUNKING DSN ENHANCEDSTATUSCODES PIPELINING SIZE_1048576 SMTPUTF8 STARTTLS XVERP";
    assert_eq!(offers.join(" ").replace("SIZE ", "SIZE_"), expected);
    assert_eq!(client.cmd("HELO client.example").expect(250).lines.len(), 1);
    client.quit();
}

#[test]
fn commands_out_of_turn() {
    let server = Server::builder().start();
    let mut client = server.connect();
    client.reply().expect(220);
    client.cmd("MAIL FROM:<a@b.example>").expect(503);
    client.cmd("EHLO client.example").expect(250);
    client.cmd("RCPT TO:<a@b.example>").expect(503);
    client.cmd("DATA").expect(503);
    client.cmd("MAIL FROM:<a@b.example>").expect(250);
    client.cmd("MAIL FROM:<a@b.example>").expect(503);
    client.cmd("DATA").expect(554);
    client.cmd("RCPT TO:<x@y.example>").expect(250);
    client.cmd("RSET").expect(250);
    client.cmd("DATA").expect(503);
    // A new EHLO ends the transaction (RFC 5321 section 4.1.4).
    client.cmd("MAIL FROM:<a@b.example>").expect(250);
    client.cmd("EHLO client.example").expect(250);
    client.cmd("RCPT TO:<x@y.example>").expect(503);
    client.quit();
}

#[test]
fn other_commands() {
    let server = Server::builder().start();
    let mut client = server.smtp();
    for (command, code) in [
        ("NOOP", 250),
        ("noop ignored", 250),
        ("HELP", 214),
        ("VRFY someone", 252),
        ("EXPN list", 502),
        ("STARTTLS now", 501),
        ("AUTH PLAIN AHgAeA==", 502),
        ("XCLIENT ADDR=10.0.0.1", 502),
        ("PROXY TCP4 10.0.0.1 10.0.0.2 1 2", 502),
        ("FOO", 500),
        ("", 500),
        ("mail from:<a@b.example>", 250),
        ("Rcpt To:<c@d.example>", 250),
        ("rset", 250),
    ] {
        client.cmd(command).expect(code);
    }
    client.quit();
}

#[test]
fn a_pipelined_group_is_answered_in_order() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    client.raw(
        b"MAIL FROM:<me@home.example>\r\nRCPT TO:<ann@one.example>\r\nRCPT TO:<a%b@one.example>\r\nRCPT \
          TO:<bob@two.example>\r\nDATA\r\n",
    );
    for code in [250, 250, 550, 250, 354] {
        client.reply().expect(code);
    }
    let wire = message("p@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    // The next transaction and QUIT come in the same segment as the end of this one.
    let mut rest = stentor_harness::dot_stuff(&wire);
    rest.extend_from_slice(b"MAIL FROM:<me@home.example>\r\nRSET\r\nQUIT\r\n");
    client.raw(&rest);
    for code in [250, 250, 250, 221] {
        client.reply().expect(code);
    }
    assert_eq!(client.rest(), "");
    lab.wait_clean("p@test", &["ann@one.example", "bob@two.example"]);
}

#[test]
fn octet_by_octet() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.connect();
    client.reply().expect(220);
    let mut say = |text: &[u8], code| {
        for octet in text {
            client.raw(std::slice::from_ref(octet));
        }
        client.reply().expect(code);
    };
    say(b"EHLO client.example\r\n", 250);
    say(b"MAIL FROM:<me@home.example>\r\n", 250);
    say(b"RCPT TO:<ann@one.example>\r\n", 250);
    say(b"DATA\r\n", 354);
    let wire = message("slow@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    say(&stentor_harness::dot_stuff(&wire), 250);
    lab.wait_clean("slow@test", &["ann@one.example"]);
}

/// The fields before the original's first one.
fn added(lab: &TestLab, recipient: &str) -> String {
    let body = String::from_utf8(lab.body_for(recipient)).expect("this test sends text");
    let at = body.find("From: Me").expect("the original is there");
    body[..at].to_owned()
}

#[test]
fn the_received_field() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    for (hello, parameter, to, protocol) in [
        ("HELO old.example", "", "smtp@one.example", "SMTP"),
        ("EHLO new.example", "", "esmtp@one.example", "ESMTP"),
        ("EHLO [127.0.0.1]", " SMTPUTF8", "utf8@one.example", "UTF8SMTP"),
    ] {
        let mut client = server.connect();
        client.reply().expect(220);
        client.cmd(hello).expect(250);
        client.cmd(&format!("MAIL FROM:<me@home.example>{parameter}")).expect(250);
        client.cmd(&format!("RCPT TO:<{to}>")).expect(250);
        client.cmd("DATA").expect(354);
        client.raw(&stentor_harness::dot_stuff(&message(to, "x")));
        let id = client.reply().expect(250).queue_id();
        lab.wait(to, |recorder| recorder.copies_to(to).len() == 1);
        let field = added(&lab, to);
        let name = hello.split_once(' ').expect("two words").1;
        let start = format!("Received: from {name} ([127.0.0.1])\r\n\tby mx.test with {protocol} id {id};\r\n\t");
        assert!(field.starts_with(&start), "{field:?}");
        let date = field[start.len()..].strip_suffix(" +0000\r\n").expect("a date in UTC");
        // The day has one digit or two.
        let bytes = ["Tue, 1 Dec 2026 12:00:00".len(), "Sat, 21 Nov 2026 12:00:00".len()];
        assert!(bytes.contains(&date.len()), "{date}");
    }
    lab.assert_no_violations();
}

#[test]
fn chunks_arrive_as_one_message() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    let wire = message_with("bdat@test", "Subject: x\r\n", "one\r\n.\r\n..\r\nQUIT\r\n.two\r\n");
    lab.recorder().expect_message(wire.clone().into());
    client.cmd("MAIL FROM:<me@home.example> BODY=8BITMIME").expect(250);
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    let (first, rest) = wire.split_at(33);
    let (second, third) = rest.split_at(rest.len() - 5);
    for part in [first, second] {
        client.raw(format!("BDAT {}\r\n", part.len()).as_bytes());
        client.raw(part);
        client.reply().expect(250);
    }
    // The last two in one segment, the very last empty.
    client.raw(&[format!("BDAT {}\r\n", third.len()).as_bytes(), third, b"BDAT 0 LAST\r\n"].concat());
    client.reply().expect(250);
    client.reply().expect(250).queue_id();
    lab.wait_clean("bdat@test", &["ann@one.example"]);
    client.quit();
}

#[test]
fn dots_survive_with_and_without_chunking() {
    let lab = TestLab::start(
        "[[site]]\nname = \"one.example\"\n[[site]]\nname = \"two.example\"\nbehaviour = { no_chunking = true }\n\
         [[site]]\nname = \"three.example\"\nbehaviour = { no_ehlo = true }\n",
    );
    let server = Server::builder().lab(&lab).start();
    let to = ["a@one.example", "b@two.example", "c@three.example"];
    let mut client = server.smtp();
    for (n, body) in [".\r\n", "..\r\n.\r\n.\r\n", "\r\n.\r\n", ".a\r\n..b\r\n...\r\n", ""].iter().enumerate() {
        let id = format!("dots{n}@test");
        let wire = message_with(&id, "", body);
        lab.recorder().expect_message(wire.clone().into());
        client.send("me@home.example", &to, &wire).expect(250);
        lab.wait_clean(&id, &to);
    }
}

#[test]
fn parameters_of_dsn() {
    let server = Server::builder().start();
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<a@b.example> RET=HDRS ENVID=abc+3Ddef").expect(250);
    client.cmd("RCPT TO:<x@y.example> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;x+40y@z").expect(250);
    client.cmd("RCPT TO:<x@y.example> NOTIFY=NEVER").expect(250);
    for bad in
        ["NOTIFY=NEVER,SUCCESS", "NOTIFY=", "NOTIFY=SOON", "ORCPT=x", "ORCPT=rfc822;a+0Ab", "NOTIFY=NEVER NOTIFY=NEVER"]
    {
        client.cmd(&format!("RCPT TO:<x@y.example> {bad}")).expect_text("501 5.5.4");
    }
    client.cmd("RCPT TO:<x@y.example> FOO=1").expect_text("555 5.5.4");
    client.cmd("RSET").expect(250);
    for bad in ["RET=ALL", "ENVID=a+0Ab", "BODY=BINARY", "SMTPUTF8=1", "RET=FULL RET=FULL"] {
        client.cmd(&format!("MAIL FROM:<a@b.example> {bad}")).expect_text("501 5.5.4");
    }
    client.cmd("MAIL FROM:<a@b.example> AUTH=<>").expect_text("555 5.5.4");
    client.quit();
}

#[test]
fn internationalised_addresses() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    let wire = message("utf8@test", "gr\u{fc}\u{df}e");
    lab.recorder().expect_message(wire.clone().into());
    client.send("j\u{f6}rg@home.example", &["gr\u{e9}gory@one.example"], &wire).expect(250);
    lab.wait_clean("utf8@test", &["gr\u{e9}gory@one.example"]);
}

#[test]
fn what_was_reset_or_cut_is_forgotten() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<gone@one.example>").expect(250);
    client.cmd("RSET").expect(250);
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<cut@one.example>").expect(250);
    client.cmd("DATA").expect(354);
    // Large enough that pieces of it are in the journal already.
    client.raw(&b"0123456789abcde\r\n".repeat(60_000));
    drop(client);
    wait_until("the session ends", || server.status()["connections_in"] == 0);
    assert_eq!(server.status()["messages"], 0);
    let wire = message("last@test", "x");
    server.smtp().send("me@home.example", &["ann@one.example"], &wire).expect(250);
    lab.wait_clean("last@test", &["ann@one.example"]);
    assert_eq!(lab.recorder().stats().recipients, 1);
    // What the cut message had stored is given back.
    wait_until("its content is dropped", || {
        // The figure is of the last commit.
        server.smtp().send("me@home.example", &["ann@one.example"], &wire).expect(250);
        server.wait_empty();
        server.status()["content_bytes"].as_u64() < Some(10_000)
    });
}

#[test]
fn sessions_side_by_side() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut clients: Vec<Smtp> = (0..50).map(|_| server.smtp()).collect();
    for client in &mut clients {
        client.begin("me@home.example", &["ann@one.example"]);
    }
    for (n, client) in clients.iter_mut().enumerate() {
        client.raw(&stentor_harness::dot_stuff(&message(&format!("{n}@test"), "x")));
    }
    for client in &mut clients {
        client.reply().expect(250);
    }
    lab.wait_copies(50);
    for n in 0..50 {
        lab.wait_clean(&format!("{n}@test"), &["ann@one.example"]);
    }
    // Several in each session, too.
    for (n, client) in clients.iter_mut().enumerate() {
        client.send("me@home.example", &["bob@two.example"], &message(&format!("again{n}@test"), "x")).expect(250);
    }
    lab.wait_copies(100);
    server.wait_empty();
}

#[test]
fn a_stop_does_not_wait_for_a_stranger_that_trickles() {
    let mut server = Server::builder().list("news", &["ann@one.example"]).start();
    let mut stranger = server.connect_from("127.0.0.9").greeted();
    stranger.begin("me@home.example", &["news@lists.test"]);
    server.signal(Signal::TERM);
    wait_until("the server ends", || {
        stranger.try_raw(b"x\r\n");
        !server.is_running()
    });
}
