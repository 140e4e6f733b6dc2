//! Untrusted clients that try to use up memory, connections and other clients' time.

use stentor_harness::{Server, Smtp, TestLab, message, wait_until};

use crate::kit::{SENDER, SENDER_SITE, builder, report_to};

const LARGE: usize = 1024 * 1024;

/// A server with an alias that anybody may write to.
fn open(lab: &TestLab) -> Server {
    builder(lab).set("domains.local", "[\"home.test\"]").alias("team@home.test", &["ann@one.example"]).start()
}

fn stranger(server: &Server, n: u8) -> Smtp {
    server.connect_from(&format!("127.0.0.{n}")).greeted()
}

/// To the point where the body may come.
fn begin(client: &mut Smtp, size: usize) {
    client.cmd(&format!("MAIL FROM:<me@far.example> SIZE={size}")).expect(250);
    client.cmd("RCPT TO:<team@home.test>").expect(250);
    client.cmd("DATA").expect(354);
}

#[test]
fn who_never_reads_makes_a_session_hold_little() {
    let server = Server::builder().start();
    let before = server.memory_kib("VmRSS");
    let clients: Vec<Smtp> = (0..200)
        .map(|n: u8| {
            let mut client = server.connect_from(&format!("127.0.0.{}", 2 + n / 50)).greeted();
            client.try_raw(&b"EHLO a\r\n".repeat(8192));
            client
        })
        .collect();
    let mut last = server.connect_from("127.0.0.9").greeted();
    last.try_raw(&b"EHLO a\r\n".repeat(8192));
    // All were read as far as they will be.
    while last.try_reply().is_some() {}
    let after = server.memory_kib("VmRSS");
    assert!(after.saturating_sub(before) < 200 * 32, "{before} KiB, then {after} KiB");
    drop(clients);
    server.smtp().quit();
}

#[test]
fn commands_that_lead_nowhere_end_a_session_but_not_a_trusted_one() {
    let server = Server::builder().start();
    for command in ["NOOP", "RSET", "VRFY x", "EHLO a"] {
        let mut client = stranger(&server, 2);
        let replies = (0..200).map_while(|_| {
            client.try_raw(format!("{command}\r\n").as_bytes());
            client.try_reply()
        });
        let codes: Vec<u16> = replies.map(|reply| reply.code).collect();
        assert!(codes.len() == 100 && codes.last() == Some(&421), "{command}: {codes:?}");
    }
    let mut client = server.smtp();
    for _ in 0..300 {
        client.cmd("NOOP").expect(250);
    }
}

#[test]
fn who_announces_large_mail_does_not_keep_out_who_sends_it() {
    let lab = TestLab::sites(&["one.example"]);
    let server = open(&lab);
    let _waiting: Vec<Smtp> = (2..32)
        .map(|n| {
            let mut client = stranger(&server, n);
            begin(&mut client, 52_000_000);
            client
        })
        .collect();
    let mut honest = stranger(&server, 99);
    begin(&mut honest, LARGE);
    let body = [&message("large@test", "x")[..], &b"0123456789abcd\r\n".repeat(LARGE / 16)].concat();
    honest.raw(&[&body[..], b".\r\n"].concat());
    honest.reply().expect(250);
}

#[test]
fn one_stranger_has_a_part_of_the_memory_and_others_theirs() {
    let lab = TestLab::sites(&["one.example"]);
    let server = open(&lab);
    let (mut refused, mut held) = (0, Vec::new());
    for _ in 0..60 {
        let mut client = stranger(&server, 2);
        client.cmd("MAIL FROM:<me@far.example> SIZE=200000").expect(250);
        client.cmd("RCPT TO:<team@home.test>").expect(250);
        let code = client.cmd("DATA").code;
        assert!(code == 354 || code == 452, "{code}");
        if code == 452 {
            refused += 1;
            continue;
        }
        // All but the end.
        client.raw(&b"0123456789abcd\r\n".repeat(200_000 / 16));
        held.push(client);
    }
    let mut other = stranger(&server, 3);
    begin(&mut other, 10_000);
    other.raw(&[&message("other@test", "x")[..], b".\r\n"].concat());
    other.reply().expect(250);
    let mut trusted = server.smtp();
    trusted.send(SENDER, &["ann@one.example"], &message("trusted@test", "x")).expect(250);
    for mut client in held {
        client.raw(b".\r\n");
        let reply = client.reply();
        assert!(reply.code == 250 || reply.code == 452, "{}", reply.code);
        refused += usize::from(reply.code == 452);
    }
    assert!(refused > 30, "{refused}");
    server.wait_log(&["ruleset=check_eom", "[127.0.0.2]", "nrcpts=1", "reject=452 4.3.1"]);
}

#[test]
fn a_slow_body_is_cut_in_time() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab)
        .set("domains.local", "[\"home.test\"]")
        .alias("team@home.test", &["ann@one.example"])
        .set("listen.data_timeout_s", "1")
        .start();
    let mut client = stranger(&server, 2);
    begin(&mut client, 200_000);
    client.raw(&b"0123456789abcd\r\n".repeat(10_000));
    // Fewer octets a second than the 500 that are wanted; the allowance itself is counted in timer.rs.
    wait_until("the body is cut", || !client.try_raw(b"x"));
    assert_eq!(server.status()["messages"], 0);
}

#[test]
fn a_message_refused_at_its_final_dot_has_a_line_in_the_log() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab)
        .set("domains.local", "[\"home.test\"]")
        .alias("team@home.test", &["ann@one.example"])
        .set("message_size_bytes_max", "70000")
        .start();
    let mut large = stranger(&server, 2);
    begin(&mut large, 10);
    large.raw(&[&b"0123456789abcd\r\n".repeat(5_000)[..], b".\r\n"].concat());
    large.reply().expect(552);
    server.wait_log(&["ruleset=check_eom", "from=<me@far.example>", "[127.0.0.2]", "nrcpts=1", "reject=552 5.3.4"]);
    let mut bare = stranger(&server, 3);
    begin(&mut bare, 10);
    bare.raw(b"Subject: x\r\n\r\na\n.\r\n");
    bare.reply().expect(550);
    server.wait_log(&["ruleset=check_eom", "[127.0.0.3]", "nrcpts=1", "reject=550 5.5.2"]);
    for (n, body) in [(4, &b"Subject: x\r\n\r\n\0.\r\n"[..]), (5, b"Subject: x\r\n\r\n.\0\r\n")] {
        let mut chunk = stranger(&server, n);
        chunk.cmd("MAIL FROM:<me@far.example>").expect(250);
        chunk.cmd("RCPT TO:<team@home.test>").expect(250);
        chunk.raw(&[format!("BDAT {} LAST\r\n", body.len()).as_bytes(), body].concat());
        chunk.reply().expect_text("554 5.6.0");
        server.wait_log(&["ruleset=check_eom", &format!("[127.0.0.{n}]"), "nrcpts=1", "reject=554 5.6.0"]);
    }
    assert_eq!(server.status()["messages"], 0);
}

#[test]
fn nobody_is_sent_reports_of_a_strangers_choice() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'no.example'\nbehaviour = {{ reject_share = 1.0 }}\n\
         [[site]]\nname = 'later.example'\nbehaviour = {{ at_rcpt = '451 4.3.0 not today' }}\n[[site]]\nname = 'yes.example'\n"
    ));
    let server = builder(&lab)
        .set("retry.delay_warning_s", "0.2")
        .set("domains.local", "[\"home.test\"]")
        .alias("ok@home.test", &["ann@yes.example"])
        .alias("slow@home.test", &["ann@later.example"])
        .alias("gone@home.test", &["ann@no.example"])
        .start();
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.raw(b"EHLO stranger.example\r\n");
    let offered = client.reply();
    assert!(!offered.lines.iter().any(|line| line.contains("DSN")), "{:?}", offered.lines);
    client.cmd(&format!("MAIL FROM:<{SENDER}> RET=FULL")).expect(555);
    client.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    client.cmd("RCPT TO:<ok@home.test> NOTIFY=SUCCESS").expect(555);
    client.cmd("RSET").expect(250);
    let advert = "X-Advert: buy this, and that, and something else\r\n".repeat(1_300);
    let text = |id: &str| format!("{advert}Message-ID: <{id}@test>\r\nSubject: {}\r\n\r\nx\r\n", "buy ".repeat(2_000));
    for to in ["slow@home.test", "ok@home.test", "gone@home.test"] {
        client.send(SENDER, &[to], text(to.split_once('@').expect("an address").0).as_bytes()).expect(250);
    }
    // A delay is told to those who are trusted, later than a stranger's would have been.
    server.smtp().send("bob@yes.example", &["bob@later.example"], &message("trusted@test", "x")).expect(250);
    lab.wait("the trusted client's warning", |recorder| !recorder.copies_to("bob@yes.example").is_empty());
    let report = report_to(&lab, SENDER);
    report.assert_failed("ann@no.example", "5.1.1");
    assert!(report.original.len() < 4_500 && !report.original.contains("X-Advert"), "{}", report.original);
    assert!(report.original.contains("Message-ID: <gone@test>") && report.original.contains("[127.0.0.2]"));
    wait_until("the first is with its reader", || !lab.recorder().copies_to("ann@yes.example").is_empty());
    assert_eq!(lab.recorder().copies_to(SENDER).len(), 1);
}
