//! Hostile input at the SMTP port, and the required reply to each.

use rustix::process::Signal;
use stentor_harness::{Server, Smtp, TestLab, dot_stuff, message, message_with, wait_until};
use stentor_lab::Mode;

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "two.example"])
}

/// The server is alive and nothing but `expected` copies has reached a sink.
#[track_caller]
fn only(lab: &TestLab, server: &Server, expected: u64) {
    let wire = message("proof@test", "still there");
    server.smtp().send("me@home.example", &["proof@one.example"], &wire).expect(250);
    lab.wait_clean("proof@test", &["proof@one.example"]);
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, expected + 1, "{:?}", lab.recorder().copies());
}

#[test]
fn look_alikes_of_the_end_of_data() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let smuggled = b"MAIL FROM:<evil@home.example>\r\nRCPT TO:<victim@one.example>\r\nDATA\r\nMessage-ID: \
                     <evil@test>\r\n\r\nevil\r\n.\r\n";
    for look_alike in [
        &b"\n.\n"[..],
        b"\n.\r\n",
        b"\r.\r",
        b"\r.\r\n",
        b"\r\n.\n",
        b"\r\n.\r",
        b"\r\n.\r\r\n",
        b"\r\r\n.\r\n",
        b"\n\n.\r\n",
        b"\r\n\0.\r\n",
        b"\r\n.\0\r\n",
        b"\r\n.\r\0\n",
    ] {
        let mut client = server.smtp();
        client.begin("me@home.example", &["ann@one.example"]);
        client.raw(&[&message("first@test", "x")[..], b"text", look_alike, smuggled].concat());
        assert_eq!(client.reply().to_string(), "550 5.5.2 Bare <CR> or <LF>, or <NUL> in a dot line; closing");
        assert_eq!(client.rest(), "", "{look_alike:?}");
    }
    only(&lab, &server, 0);
}

#[test]
fn a_look_alike_cut_into_segments() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    client.begin("me@home.example", &["ann@one.example"]);
    for part in [&b"Subject: x\r\n\r\ntext\r"[..], b"\n", b".", b"\r", b"MAIL FROM:<evil@home.example>\r\n"] {
        if !client.try_raw(part) {
            break;
        }
    }
    client.reply().expect(550);
    assert_eq!(client.rest(), "");
    only(&lab, &server, 0);
}

#[test]
fn commands_before_the_banner() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    // The octets are there when the server accepts the connection.
    server.suspend();
    let mut client = server.connect();
    client.raw(b"EHLO early.example\r\nMAIL FROM:<evil@home.example>\r\nRCPT TO:<victim@one.example>\r\nDATA\r\n");
    server.signal(Signal::CONT);
    client.reply().expect(554);
    assert_eq!(client.rest(), "");
    only(&lab, &server, 0);
}

#[test]
fn a_body_pipelined_behind_data() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.raw(b"DATA\r\nSubject: x\r\n\r\ntext\r\n.\r\nMAIL FROM:<evil@home.example>\r\n");
    client.reply().expect(554);
    assert_eq!(client.rest(), "");
    only(&lab, &server, 0);
}

#[test]
fn bdat_in_every_wrong_way() {
    let lab = lab();
    let server = Server::builder().lab(&lab).set("message_size_bytes_max", "100000").start();
    let begun = || {
        let mut client = server.smtp();
        client.cmd("MAIL FROM:<me@home.example>").expect(250);
        client.cmd("RCPT TO:<bdat@one.example>").expect(250);
        client
    };
    // Without a transaction the chunk is read over, not taken for commands.
    let mut client = server.smtp();
    client.raw(b"BDAT 6 LAST\r\nQUIT\r\n");
    client.reply().expect(503);
    client.cmd("NOOP").expect(250);
    // Without recipients.
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.raw(b"BDAT 6 LAST\r\nQUIT\r\n");
    client.reply().expect(554);
    client.quit();
    // LAST twice, and more behind LAST.
    let mut client = begun();
    client.raw(b"BDAT 14 LAST\r\nSubject: a\r\n\r\nBDAT 0 LAST\r\nBDAT 6\r\nQUIT\r\n");
    client.reply().expect(250);
    client.reply().expect(503);
    client.reply().expect(503);
    client.cmd("NOOP").expect(250);
    // Mixed with DATA, MAIL or RCPT; RSET ends it.
    let mut client = begun();
    client.raw(b"BDAT 14\r\nSubject: a\r\n\r\n");
    client.reply().expect(250);
    for command in ["DATA", "MAIL FROM:<x@y.example>", "RCPT TO:<x@one.example>"] {
        client.cmd(command).expect(503);
    }
    client.cmd("RSET").expect(250);
    client.quit();
    // Too large in sum: 552, the session goes on.
    let mut client = begun();
    let chunk = b"0123456789abcde\r\n".repeat(4_000);
    for code in [250, 552] {
        client.raw(format!("BDAT {}\r\n", chunk.len()).as_bytes());
        client.raw(&chunk);
        client.reply().expect(code);
    }
    client.cmd("RSET").expect(250);
    client.quit();
    // Sizes that are none: where the chunk ends cannot be known.
    for size in ["", "-1", "x", "18446744073709551616", "1 FIRST", "1 LAST LAST"] {
        let mut client = begun();
        client.cmd(&format!("BDAT {size}")).expect(501);
        assert_eq!(client.rest(), "", "{size}");
    }
    // A huge chunk that never comes.
    let mut client = begun();
    client.raw(b"BDAT 18446744073709551615 LAST\r\nSubject: huge\r\n\r\nQUIT\r\n");
    client.shutdown_write();
    client.rest();
    // Bare line ends and a chunk cut in mid-line.
    let mut client = begun();
    client.raw(b"BDAT 5 LAST\r\na\nb\r\n");
    client.reply().expect_text("554 5.6.0");
    drop(client);
    only(&lab, &server, 1);
}

#[test]
fn a_command_line_without_end() {
    let server = Server::builder().start();
    let mut client = server.smtp();
    client.cmd(&format!("NOOP {}", "x".repeat(5_000))).expect_text("500 5.5.2");
    client.cmd("NOOP").expect(250);
    let before = server.memory_kib("VmRSS");
    let part = vec![b'x'; 1 << 20];
    for _ in 0..32 {
        client.raw(&part);
    }
    client.raw(b"\r\nNOOP\r\n");
    client.reply().expect_text("500 5.5.2");
    client.reply().expect(250);
    let after = server.memory_kib("VmRSS");
    assert!(after < before + 8 * 1024, "{before} KiB, then {after} KiB");
    client.quit();
}

#[test]
fn a_body_line_of_many_mib_in_constant_memory() {
    const MIB: usize = 1 << 20;
    let lab = TestLab::start_with("[[site]]\nname = \"one.example\"\n", Mode::Full);
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    let mut peaks = Vec::new();
    for mib in [12, 24, 25, 48, 49] {
        let id = format!("line{mib}@test");
        let mut wire = message_with(&id, "Subject: x\r\n", "");
        wire.resize(wire.len() + mib * MIB, b'x');
        wire.extend_from_slice(b"\r\n");
        // It goes out in lines of 998 octets (RFC 5322 section 2.1.1), so the copy is not the original.
        client.send("me@home.example", &["ann@one.example"], &wire).expect(250);
        lab.wait_clean(&id, &["ann@one.example"]);
        peaks.push(server.memory_kib("VmHWM"));
    }
    assert!(peaks[4] < peaks[1] + 8 * 1024, "peaks in KiB: {peaks:?}");
}

#[test]
fn a_body_over_the_limit_is_read_over_in_constant_memory() {
    let lab = lab();
    let server = Server::builder().lab(&lab).set("message_size_bytes_max", "1048576").start();
    let mut client = server.smtp();
    let before = server.memory_kib("VmHWM");
    let mut wire = message("big@test", "x");
    wire.extend_from_slice(&b"0123456789abcde\r\n".repeat(2 << 20));
    client.send("me@home.example", &["ann@one.example"], &wire).expect_text("552 5.3.4");
    let after = server.memory_kib("VmHWM");
    assert!(after < before + 16 * 1024, "{before} KiB, then {after} KiB");
    client.quit();
    only(&lab, &server, 0);
    // The figure is of the last commit.
    wait_until("what was stored is dropped", || {
        server.smtp().send("me@home.example", &["ann@one.example"], &message("small@test", "x")).expect(250);
        server.wait_empty();
        server.status()["content_bytes"].as_u64() < Some(10_000)
    });
}

#[test]
fn shell_and_expansion_characters_are_data() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let to = [
        "|id`id`@one.example",
        "${run{/bin/sh}}@one.example",
        "\"$(touch x); rm -rf *\"@one.example",
        "\"/../../etc/passwd\"@one.example",
        "-C/tmp/x@one.example",
    ];
    let wire = message("shell@test", "$(id) `id` %s%n ${run}");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("${x}|'&@home.example", &to, &wire).expect(250);
    // A local part is the same with and without quotes it does not need.
    lab.wait("copies", |recorder| recorder.stats().recipients == to.len() as u64);
    let copies = lab.recorder().copies();
    assert!(copies.iter().all(|copy| &*copy.sender == "${x}|'&@home.example"), "{copies:?}");
    let mut got: Vec<String> = copies.iter().map(|copy| copy.recipient.replace('"', "")).collect();
    let mut wanted: Vec<String> = to.iter().map(|to| to.replace('"', "")).collect();
    got.sort();
    wanted.sort();
    assert_eq!(got, wanted);
    assert_eq!(lab.recorder().stats().damaged, 0);
    lab.assert_no_violations();
}

#[test]
fn control_characters_are_never_injected() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    for line in [
        &b"MAIL FROM:<a\rb@home.example>\r\n"[..],
        b"MAIL FROM:<a\0b@home.example>\r\n",
        b"MAIL FROM:<\"a\tb\"@home.example>\r\n",
        b"MAIL FROM:<a@home.example> ENVID=a\x01b\r\n",
        b"EHLO a\0b\r\n",
    ] {
        client.raw(line);
        client.reply().expect(501);
    }
    // A bare LF ends no line of SMTP; it is refused, and so is what follows it.
    client.raw(b"MAIL FROM:<a\nRCPT TO:<b@one.example>\r\n");
    client.reply().expect(500);
    client.reply().expect(503);
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.raw(b"RCPT TO:<a\0b@one.example>\r\nRCPT TO:<a@one.example> ORCPT=rfc822;a\x0bb\r\n");
    client.reply().expect(501);
    client.reply().expect(501);
    // What a message says of itself is escaped in the log.
    let wire = message("x\u{1b}[31m\u{7}evil@test", "x");
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&dot_stuff(&wire));
    let id = client.reply().expect(250).queue_id();
    lab.wait_copies(1);
    let line = server.wait_log(&[&id, "msgid="]);
    assert!(!line.contains(char::is_control), "{line:?}");
    let lines = server.log().lines();
    assert!(lines.iter().all(|line| !line.contains(['\u{1b}', '\u{7}', '\0', '\r'])), "{lines:?}");
}

#[test]
fn header_bombs() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    let to = &["ann@one.example"];
    let before = server.memory_kib("VmRSS");
    // 100,000 address fields; one field of 3 MiB; 10,000 loop fields.
    for fields in [
        "To: a@b.example\r\n".repeat(100_000),
        format!("To: x@y.example{}\r\n", ",\r\n a@b.example".repeat(200_000)),
        "List-Id: <a.b.example>\r\n".repeat(5_000),
    ] {
        client.send("me@home.example", to, &message_with("bomb@test", &fields, "x\r\n")).expect_text("552 5.3.4");
    }
    let after = server.memory_kib("VmRSS");
    assert!(after < before + 32 * 1024, "{before} KiB, then {after} KiB");
    // Within the limits of a header section they are passed on as they are.
    let addresses = format!("To: x@y.example{}\r\n", ",\r\n a@b.example".repeat(50_000));
    let parameters: String = (0..5_000).map(|n| format!(";\r\n p*{n}*=utf-8''%41")).collect();
    let parameters = format!("MIME-Version: 1.0\r\nContent-Type: text/plain{parameters}\r\n");
    let levels: String =
        (0..10_000).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n")).collect();
    for (n, (fields, body)) in
        [(addresses, "x\r\n".to_owned()), (parameters, "x\r\n".to_owned()), (String::new(), levels)].iter().enumerate()
    {
        let id = format!("heavy{n}@test");
        let wire = message_with(&id, fields, body);
        lab.recorder().expect_message(wire.clone().into());
        client.send("me@home.example", to, &wire).expect(250);
        lab.wait_clean(&id, to);
    }
    only(&lab, &server, 3);
}

#[test]
fn mime_levels_for_a_host_without_8bitmime() {
    let lab = TestLab::start("[[site]]\nname = \"one.example\"\nbehaviour = { no_8bitmime = true }\n");
    let server = Server::builder().lab(&lab).fast_retry().start();
    let levels: String =
        (0..10_000).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n")).collect();
    let wire = message_with("deep@test", "MIME-Version: 1.0\r\n", &format!("{levels}\r\n\u{fc}\r\n"));
    let wire = String::from_utf8(wire).expect("text").replacen("\r\n\r\n", "\r\n", 1).into_bytes();
    server.smtp().send("me@home.example", &["ann@one.example"], &wire).expect(250);
    // Whichever it is: converted, or returned because nobody needs 10,000 levels. The report goes nowhere.
    wait_until("it is settled", || server.fates()["acknowledged"].as_u64() > server.fates()["pending"].as_u64());
    lab.assert_no_violations();
}

#[test]
fn size_lies() {
    let lab = lab();
    let server = Server::builder().lab(&lab).set("message_size_bytes_max", "100000").start();
    let mut client = server.smtp();
    for (size, start) in [
        ("100001", "552 5.3.4"),
        ("18446744073709551615", "552 5.3.4"),
        ("18446744073709551616", "501 5.5.4"),
        ("99999999999999999999999", "501 5.5.4"),
        ("-1", "501 5.5.4"),
        ("0x10", "501 5.5.4"),
        ("", "501 5.5.4"),
        ("1 SIZE=2", "501 5.5.4"),
    ] {
        client.cmd(&format!("MAIL FROM:<me@home.example> SIZE={size}")).expect_text(start);
    }
    // A lie that is within the limit harms nobody; one beyond it is found out.
    let wire = message("small-lie@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    let large = [&wire[..], &b"0123456789abcde\r\n".repeat(10_000)].concat();
    for (wire, code) in [(&wire, 250), (&large, 552)] {
        client.cmd("MAIL FROM:<me@home.example> SIZE=10").expect(250);
        client.cmd("RCPT TO:<ann@one.example>").expect(250);
        client.cmd("DATA").expect(354);
        client.raw(&dot_stuff(wire));
        client.reply().expect(code);
    }
    lab.wait_clean("small-lie@test", &["ann@one.example"]);
    only(&lab, &server, 1);
}

#[test]
fn two_hundred_thousand_recipients() {
    const RECIPIENTS: usize = 200_000;
    let lab = TestLab::start_with("[[generate]]\nsites = 20\n", Mode::Compact);
    let server = Server::builder()
        .lab(&lab)
        .set("delivery.recipients_per_transaction_max", "5000")
        .set("log.attempts", "\"off\"")
        .start();
    let domains: Vec<&str> = lab.scenario().sites().iter().map(|site| site.domains[0].as_str()).collect();
    let to: Vec<String> = (0..RECIPIENTS).map(|n| format!("u{n}@{}", domains[n % domains.len()])).collect();
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    for group in to.chunks(1_000) {
        let commands: String = group.iter().map(|to| format!("RCPT TO:<{to}>\r\n")).collect();
        client.raw(commands.as_bytes());
        for _ in group {
            client.reply().expect(250);
        }
    }
    client.cmd("DATA").expect(354);
    let wire = message("crowd@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    client.raw(&dot_stuff(&wire));
    client.reply().expect(250);
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    lab.wait_copies(RECIPIENTS as u64);
    lab.wait_clean("crowd@test", &to);
    server.wait_empty();
    assert_eq!(server.fates()["delivered"], RECIPIENTS);
}

#[test]
fn the_same_recipient_a_thousand_times() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let mut client = server.smtp();
    let to: Vec<&str> = (0..1_000).map(|n| if n % 2 == 0 { "ann@one.example" } else { "ann@ONE.Example" }).collect();
    let wire = message("again@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    client.send("me@home.example", &to, &wire).expect(250);
    lab.wait_clean("again@test", &["ann@one.example"]);
    only(&lab, &server, 1);
}

#[test]
fn routes_within_addresses() {
    let server = Server::builder().list("news", &[]).start();
    for from in ["127.0.0.1", "127.0.0.2"] {
        let mut client = server.connect_from(from).greeted();
        client.cmd("MAIL FROM:<me@home.example>").expect(250);
        for to in [
            "a%b.example@lists.test",
            "a%b.example@one.example",
            "b.example!a@lists.test",
            "b.example!a@one.example",
            "\"a@b.example\"@lists.test",
            "\"a@b.example\"@one.example",
        ] {
            client.cmd(&format!("RCPT TO:<{to}>")).expect_text("550 5.7.1");
        }
        // A source route is ignored of a trusted client (RFC 5321 appendix C), and refused of others.
        for to in ["@one.example:a@b.example", "@one.example,@two.example:news@lists.test"] {
            let reply = client.cmd(&format!("RCPT TO:<{to}>"));
            if from == "127.0.0.1" {
                reply.expect(250)
            } else {
                reply.expect_text("550 5.7.1")
            };
        }
        client.cmd("RSET").expect(250);
        client.quit();
    }
}

#[test]
fn unknown_local_recipients_are_refused_in_the_session() {
    let server = Server::builder().list("news", &[]).set("domains.local", "[\"home.test\"]").start();
    for from in ["127.0.0.1", "127.0.0.2"] {
        let mut client = server.connect_from(from).greeted();
        client.cmd("MAIL FROM:<me@home.example>").expect(250);
        for to in ["nobody@lists.test", "nobody@home.test", "news-nothing@lists.test", "x@mx.test"] {
            client.cmd(&format!("RCPT TO:<{to}>")).expect_text("550 5.1.1");
        }
        client.quit();
    }
    assert_eq!(server.status()["messages"], 0);
}

#[test]
fn loops_end_here() {
    let lab = lab();
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    let mut client = server.smtp();
    let received = "Received: from a.example by b.example; Sat, 21 Nov 2026 12:00:00 +0000\r\n";
    for (to, fields) in [
        ("news@lists.test", received.repeat(51)),
        ("ann@one.example", received.repeat(51)),
        ("news@lists.test", "List-Id: All the news <news.lists.test>\r\n".to_owned()),
        ("news@lists.test", "LIST-ID:\r\n <NEWS.lists.test>\r\n".to_owned()),
        ("news@lists.test", "Delivered-To: News@lists.test\r\n".to_owned()),
    ] {
        let wire = message_with("loop@test", &fields, "x\r\n");
        client.send("me@home.example", &[to], &wire).expect_text("554 5.4.6");
    }
    let other = format!("{}List-Id: <other.lists.test>\r\n", received.repeat(49));
    // Its List-Id is replaced by ours, so the copy is not the original.
    let wire = message_with("other@test", &other, "x\r\n");
    client.send("me@home.example", &["news@lists.test"], &wire).expect(250);
    lab.wait_clean("other@test", &["ann@one.example"]);
    only(&lab, &server, 1);
}

#[test]
fn automatic_mail_to_a_list() {
    let lab = lab();
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    let mut client = server.smtp();
    for field in ["Auto-Submitted: auto-replied", "auto-submitted: Auto-Replied (vacation); x=y"] {
        let wire = message_with("vacation@test", &format!("{field}\r\n"), "x\r\n");
        client.send("me@home.example", &["news@lists.test"], &wire).expect_text("550 5.7.1");
    }
    client.cmd("MAIL FROM:<>").expect(250);
    client.cmd("RCPT TO:<news@lists.test>").expect_text("550 5.7.1");
    client.cmd("RSET").expect(250);
    // Cron, commits and other lists write posts like any.
    for (n, field) in ["Auto-Submitted: auto-generated", "Precedence: bulk", "Auto-Submitted: no"].iter().enumerate() {
        let id = format!("cron{n}@test");
        let wire = message_with(&id, &format!("{field}\r\n"), "x\r\n");
        // The list replaces Precedence: that copy is not the original.
        if !field.starts_with("Precedence") {
            lab.recorder().expect_message(wire.clone().into());
        }
        client.send("cron@home.example", &["news@lists.test"], &wire).expect(250);
        lab.wait_clean(&id, &["ann@one.example"]);
    }
    only(&lab, &server, 3);
}

/// RFC 3834 section 5 has `[CFWS]` before the keyword.
#[test]
fn a_comment_before_auto_replied() {
    let server = Server::builder().list("news", &[]).start();
    let wire = message_with("vacation@test", "Auto-Submitted: (vacation) auto-replied\r\n", "x\r\n");
    server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect_text("550 5.7.1");
}

#[test]
fn null_sender_with_many_recipients_makes_no_reports() {
    let lab = TestLab::start(
        "[[site]]\nname = \"one.example\"\n[[site]]\nname = \"two.example\"\nbehaviour = { reject_share = 1.0 }\n",
    );
    let server = Server::builder().lab(&lab).fast_retry().start();
    let to: Vec<String> = (0..500).map(|n| format!("u{n}@two.example")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    server.smtp().send("", &to, &message("null@test", "x")).expect(250);
    wait_until("all have failed", || server.fates()["bounced"] == 500);
    only(&lab, &server, 0);
    assert_eq!(server.fates()["acknowledged"], 501);
}

#[test]
fn eight_bit_addresses_without_smtputf8() {
    let server = Server::builder().start();
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<j\u{f6}rg@home.example>").expect_text("553 5.6.7");
    client.raw(b"MAIL FROM:<j\xf6rg@home.example>\r\n");
    client.reply().expect_text("553 5.6.7");
    client.raw(b"MAIL FROM:<j\xf6rg@home.example> SMTPUTF8\r\n");
    client.reply().expect_text("553 5.6.7");
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<j\u{f6}rg@one.example>").expect_text("553 5.6.7");
    client.quit();
}

#[test]
fn a_browser_is_no_client() {
    let server = Server::builder().start();
    let mut client = server.connect();
    client.reply().expect(220);
    client.raw(b"POST / HTTP/1.1\r\nHost: mx.test\r\n\r\nEHLO a\r\nMAIL FROM:<evil@home.example>\r\n");
    client.reply().expect(554);
    assert_eq!(client.rest(), "");
}

#[test]
fn while_others_trickle_mail_is_taken() {
    let lab = lab();
    let server = Server::builder()
        .lab(&lab)
        .set("listen.command_timeout_s", "10")
        .set("listen.data_timeout_s", "10")
        .set("listen.connections_per_client_max", "1000")
        .list("news", &["ann@one.example"])
        .start();
    let mut slow: Vec<Smtp> = (0..300).map(|_| server.connect_from("127.0.0.3")).collect();
    let mut slow_bodies: Vec<Smtp> = (0..20).map(|_| server.connect_from("127.0.0.4").greeted()).collect();
    for client in &mut slow_bodies {
        client.begin("me@home.example", &["news@lists.test"]);
    }
    for client in slow.iter_mut().chain(&mut slow_bodies) {
        client.try_raw(b"E");
    }
    let wire = message("fast@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.connect_from("127.0.0.2").greeted().send("me@home.example", &["news@lists.test"], &wire).expect(250);
    lab.wait_clean("fast@test", &["ann@one.example"]);
    // Every octet in time, and all of them cut all the same.
    let mut open: Vec<usize> = (0..slow.len() + slow_bodies.len()).collect();
    wait_until("all are cut", || {
        open.retain(|n| slow.get_mut(*n).unwrap_or_else(|| &mut slow_bodies[n - 300]).try_raw(b"x"));
        server.status()["connections_in"] == 0
    });
    for client in &mut slow {
        client.reply().expect(220);
    }
    for client in slow.iter_mut().chain(&mut slow_bodies) {
        client.reply().expect(421);
    }
    assert_eq!(lab.recorder().stats().recipients, 1);
}
