//! Milters over real sockets: what they are told, what they can do to a message, and what becomes of mail when they
//! fail.

mod pipelining;
mod recipients;
pub mod script;
mod unknown;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stentor_harness::{Server, TestLab, message, message_with, wait_until};

use self::script::{Milter, MilterAction, indexed, negotiated, says, texts};
use crate::auth::{PASSWORD, started_with};
use crate::kit::{bare, builder, closed_address, drained, fates};
use crate::tls_in::session;

const SENDER: &str = "joe@elsewhere.example";
const TO: &str = "ann@one.example";

/// A server behind these milters, whose lab has one site that takes everything.
fn server(lab: &TestLab, milters: &str) -> Server {
    let server = builder(lab).prepare();
    server.edit_config(|text| format!("{text}\n{milters}"));
    server.run()
}

fn lab() -> TestLab {
    TestLab::start(
        "[[site]]\nname = 'one.example'\nrelay = true\n[[site.host]]\nname = 'mx.one.example'\n[[site]]\nname = 'two.example'\n",
    )
}

/// A server without a world, whose mail stays in the queue.
fn alone(milters: &str) -> Server {
    let server = bare().prepare();
    server.edit_config(|text| format!("{text}\n{milters}"));
    server.run()
}

/// Waits until the history says this of a message.
fn wait_traced(server: &Server, id: &str, parts: &[&str]) {
    let traced = || String::from_utf8(server.operator(&["trace", id]).stdout).expect("UTF-8");
    wait_until("the history has it", || parts.iter().all(|part| traced().contains(part)));
}

/// The header and body that a host got, without our own Received.
fn delivered(lab: &TestLab, to: &str) -> String {
    lab.wait(&format!("a copy for {to}"), |recorder| !recorder.copies_to(to).is_empty());
    let text = String::from_utf8(lab.body_for(to)).expect("ASCII");
    let ours = text.find("Received: from client.example").expect("our Received");
    let rest = text[ours..].splitn(4, "\r\n").nth(3).expect("three lines");
    text[..ours].to_owned() + rest
}

#[test]
fn a_milter_is_told_of_client_message_and_content() {
    let lab = lab();
    let milter = Milter::start(|_, _| Vec::new());
    let server = server(&lab, &milter.config("watch", "daemon_name = \"gate\""));
    // Who only connects costs it nothing.
    server.connect().greeted().quit();
    assert_eq!(milter.commands(), "");
    let wire = message_with("told@test", "Subject:  two\r\n\tlines\r\n", "Hello\r\n..\r\n");
    lab.recorder().expect_message(wire.clone().into());
    let mut smtp = server.smtp();
    smtp.cmd(&format!("MAIL FROM:<{SENDER}> SIZE=300 BODY=8BITMIME ENVID=QQ")).expect(250);
    smtp.cmd(&format!("RCPT TO:<{TO}> NOTIFY=FAILURE,DELAY")).expect(250);
    smtp.cmd("RCPT TO:<bob@one.example>").expect(250);
    smtp.cmd("DATA").expect(354);
    smtp.raw(&stentor_harness::dot_stuff(&wire));
    let id = smtp.reply().expect(250).queue_id();
    smtp.cmd("MAIL FROM:<>").expect(250);
    smtp.cmd("RSET").expect(250);
    smtp.quit();
    wait_until("the session's end", || milter.commands().ends_with('Q'));
    assert_eq!(milter.commands(), "OCHMRRTLLLLLNBEMAQ");
    let connect = milter.told('C').remove(0);
    assert!(connect.contains("|4") && connect.ends_with("127.0.0.1|"), "{connect}");
    assert_eq!(milter.told('H'), ["client.example|"]);
    assert_eq!(milter.told('M'), [format!("<{SENDER}>|SIZE=300|BODY=8BITMIME|ENVID=QQ|"), "<>|".to_owned()]);
    assert_eq!(milter.told('R'), [format!("<{TO}>|NOTIFY=FAILURE,DELAY|"), "<bob@one.example>|".to_owned()]);
    assert_eq!(milter.told('L')[0], "From|Me <me@home.example>|", "our own Received is not shown");
    assert_eq!(milter.told('L')[4], "Subject| two\n\tlines|");
    assert_eq!(milter.told('B'), ["Hello\r\n..\r\n"]);
    let macros = milter.told('D');
    let has = |stage: char, text: &str| macros.iter().any(|told| told.starts_with(stage) && told.contains(text));
    assert!(has('C', "{daemon_name}|gate|") && has('C', "{client_addr}|127.0.0.1|") && has('C', "v|Stentor "));
    assert!(has('M', &format!("i|{id}|")) && has('M', &format!("{{mail_addr}}|{SENDER}|")), "{macros:?}");
    assert!(has('R', "{rcpt_addr}|bob@one.example|") && has('E', &format!("i|{id}|")));
    lab.wait_clean("told@test", &[TO, "bob@one.example"]);
}

#[test]
fn a_milter_is_told_of_tls_and_login() {
    let milter = Milter::start(|_, _| Vec::new());
    let (_lab, server) = started_with(|builder| builder, &milter.config("watch", ""));
    let login = format!("@scram:ann@home.example:{PASSWORD}");
    let mail = ["MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>", "QUIT"];
    let steps = [&["EHLO c", "@starttls", "EHLO c", &login][..], &mail].concat();
    session(server.address_of("submission").port(), &steps);
    wait_until("the session's end", || milter.commands().ends_with('Q'));
    let macros = milter.told('D');
    let has = |stage: char, text: &str| macros.iter().any(|told| told.starts_with(stage) && told.contains(text));
    for text in ["{tls_version}|TLSv1.3|", "{cipher}|TLS_", "{cipher_bits}|"] {
        assert!(has('H', text), "{text}: {macros:?}");
    }
    for text in ["{auth_type}|SCRAM-SHA-256|", "{auth_authen}|ann@home.example|"] {
        assert!(has('M', text), "{text}: {macros:?}");
    }
}

#[test]
fn every_change_is_made_and_the_rest_stays_octet_by_octet() {
    let lab = lab();
    let milter = Milter::start(|command, _| match command {
        'E' => vec![
            says('p', ""),
            says('h', texts(&["X-Added", "last\n folded"])),
            says('i', indexed(0, &["X-First", "of all"])),
            says('i', indexed(1, &["X-Second", "behind"])),
            says('m', indexed(1, &["Subject", "another"])),
            says('m', indexed(1, &["Date", ""])),
            says('m', indexed(2, &["X-Not-There", "appended"])),
            says('b', "New\nbody"),
            says('b', "\r\n.of two chunks\r"),
            says('b', "\n"),
            says('e', texts(&["<new@elsewhere.example>"])),
            says('-', texts(&["<bob@one.example>"])),
            says('+', texts(&["<eve@one.example>"])),
            says('2', texts(&["sue@one.example", "NOTIFY=NEVER"])),
            says('a', ""),
        ],
        _ => Vec::new(),
    });
    let server = server(&lab, &milter.config("all", ""));
    let wire = message_with("changed@test", "Subject: one\r\nX-Kept :  as it \r\n\twas\r\n", "Old body\r\n");
    let id = server.smtp().send(SENDER, &[TO, "bob@one.example"], &wire).expect(250).queue_id();
    let drained = drained(&server);
    assert_eq!((drained.delivered, drained.acknowledged), (3, 3), "{drained:?}");
    let wanted = "X-First: of all\r\nX-Second: behind\r\nFrom: Me <me@home.example>\r\nTo: all@lists.test\r\nMessage-ID: <changed@test>\r\n\
                  Subject: another\r\nX-Kept :  as it \r\n\twas\r\nX-Added: last\r\n folded\r\nX-Not-There: appended\r\n\r\n\
                  New\r\nbody\r\n.of two chunks\r\n";
    // "Behind our Received" is where that was cut out.
    for to in [TO, "eve@one.example", "sue@one.example"] {
        assert_eq!(delivered(&lab, to), wanted, "{to}");
        assert_eq!(&*lab.recorder().copies_to(to)[0].sender, "new@elsewhere.example");
    }
    assert!(lab.recorder().copies_to("bob@one.example").is_empty());
    wait_traced(&server, &id, &["milter all: header changed, body replaced", "1 recipient removed"]);
    let given = format!("from <new@elsewhere.example> (given as <{SENDER}>)");
    wait_traced(&server, "<changed@test>", &[&given]);
    server.log().wait(&["from=<new@elsewhere.example>", "msgid=<changed@test>", &format!("orig_from=<{SENDER}>")]);
    lab.assert_no_violations();
}

#[test]
fn a_later_milter_sees_what_the_first_has_made() {
    let lab = lab();
    let first = Milter::start(|command, _| match command {
        'E' => vec![says('h', texts(&["X-Seen", "by one"])), says('b', "Other\r\n"), says('c', "")],
        _ => Vec::new(),
    });
    let second = Milter::start(|command, _| match command {
        'O' => vec![negotiated(6, 0x1ff, 0x10_0000)],
        'E' => vec![says('m', indexed(1, &["X-Seen", " by two"])), says('c', "")],
        _ => Vec::new(),
    });
    let server = server(&lab, &(first.config("one", "") + &second.config("two", "")));
    let wire = message("two@test", "x");
    server.smtp().send(SENDER, &[TO], &wire).expect(250);
    let delivered = delivered(&lab, TO);
    assert!(delivered.ends_with("Subject: x\r\nX-Seen: by two\r\n\r\nOther\r\n"), "{delivered}");
    let told = second.told('L');
    assert!(told.contains(&"X-Seen| by one|".to_owned()) && told.contains(&"Subject| x|".to_owned()), "{told:?}");
    assert_eq!(second.told('B'), ["Other\r\n"]);
}

#[test]
fn refusals_at_each_stage_reach_the_client_and_the_log() {
    const IN_TURN: &str = "pipelining = false\n";
    for (stage, at, more) in [
        ('C', "MAIL", ""),
        ('H', "MAIL", ""),
        ('M', "MAIL", ""),
        ('R', "RCPT", ""),
        ('T', "DATA", IN_TURN),
        // It is told of DATA with the content.
        ('T', ".", ""),
        ('L', ".", ""),
        ('N', ".", ""),
        ('B', ".", ""),
        ('E', ".", ""),
        ('E', ".", IN_TURN),
    ] {
        for (answer, reply) in [
            (says('r', ""), "550 5.7.1 Command rejected"),
            (says('t', ""), "451 4.7.1 Service unavailable - try again later"),
            (says('y', texts(&["554-5.7.7 Not\r\n554 5.7.7 for 100%% sure"])), "554 5.7.7 Not / 5.7.7 for 100% sure"),
        ] {
            let milter =
                Milter::start(move |command, _| if command == stage { vec![answer.clone()] } else { Vec::new() });
            let server = alone(&milter.config("no", more));
            let mut smtp = server.smtp();
            let mut last = smtp.cmd(&format!("MAIL FROM:<{SENDER}>"));
            if at != "MAIL" {
                last = smtp.cmd(&format!("RCPT TO:<{TO}>"));
            }
            if !matches!(at, "MAIL" | "RCPT") {
                last = smtp.cmd("DATA");
            }
            if at == "." {
                smtp.raw(&stentor_harness::dot_stuff(&message("no@test", "x")));
                last = smtp.reply();
            }
            assert_eq!(last.to_string().replace(" (", ""), reply, "{stage}");
            assert!(server.log().wait(&["milter no", &reply[..3]]).is_some(), "{stage}");
            assert_eq!(fates(&server).acknowledged, 0);
        }
    }
}

#[test]
fn a_refused_recipient_concerns_nobody_else() {
    let lab = lab();
    let milter = Milter::start(|command, data| match command {
        'O' => vec![negotiated(6, 0x1ff, 0x800)],
        'R' if data.starts_with(b"<bob@") => vec![says('y', texts(&["550 5.1.1 No Bob here"]))],
        _ => Vec::new(),
    });
    let server = server(&lab, &milter.config("rcpt", ""));
    let wire = message("some@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    let mut smtp = server.connect_from("127.0.0.1").greeted();
    smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    assert_eq!(smtp.cmd("RCPT TO:<bob@one.example>").expect(550).lines, ["5.1.1 No Bob here"]);
    smtp.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
    smtp.cmd("DATA").expect(354);
    smtp.raw(&stentor_harness::dot_stuff(&wire));
    smtp.reply().expect(250);
    lab.wait_clean("some@test", &[TO]);
    // It asked to hear of those that we refuse ourselves.
    let mut outside = server.connect_from("127.0.0.2").greeted();
    outside.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    outside.cmd("RCPT TO:<x@nowhere.example>").expect(550);
    wait_until("the milter hears of it", || milter.told('D').iter().any(|told| told.contains("{rcpt_mailer}|error|")));
}

#[test]
fn discard_and_quarantine() {
    let lab = lab();
    let milter = Milter::start(|command, data| match command {
        'R' if data.starts_with(b"<gone@") => vec![says('d', "")],
        'L' if data.starts_with(b"Subject\0virus") => vec![says('d', "")],
        'E' => vec![says('q', texts(&["looks bad"])), says('c', "")],
        _ => Vec::new(),
    });
    let server = server(&lab, &milter.config("judge", ""));
    server.smtp().send(SENDER, &[TO, "gone@one.example"], &message("a@test", "x")).expect(250);
    server.smtp().send(SENDER, &[TO], &message("b@test", "virus")).expect(250);
    assert!(server.log().wait_nth(&["discarded:", "milter judge"], 1).is_some());
    wait_traced(&server, "<b@test>", &["milter judge", "accepted and discarded"]);
    assert_eq!(fates(&server).acknowledged, 0);
    let id = server.smtp().send(SENDER, &[TO], &message("c@test", "x")).expect(250).queue_id();
    wait_traced(&server, &id, &["1 quarantined", "milter judge: quarantine: looks bad"]);
    assert_eq!(server.queue()["messages"], 0);
    assert!(server.operator(&["quarantine", "release", "--id", &id]).status.success());
    wait_until("it is delivered", || fates(&server).delivered == 1);
}

/// What a broken milter does, where, and what its failure is called.
fn failures() -> Vec<(char, Vec<MilterAction>, &'static str)> {
    vec![
        ('O', vec![MilterAction::Closes], "it closed the connection"),
        ('O', vec![MilterAction::Stalls], "no answer in 1 s"),
        ('O', vec![negotiated(7, 0, 0)], "version 7"),
        ('O', vec![negotiated(6, 0x8000, 0)], "were not offered"),
        ('O', vec![MilterAction::Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())], "a packet of 1213486160 octets"),
        ('M', vec![MilterAction::Stalls], "no answer in 1 s"),
        ('M', vec![MilterAction::Floods], "it requested more time too often"),
        ('M', vec![says('!', "")], "it answered the event with '!'"),
        ('R', vec![MilterAction::Closes], "it closed the connection"),
        ('T', vec![says('y', texts(&["250 2.0.0 Fine"]))], "malformed reply code"),
        ('L', vec![MilterAction::Raw(vec![0xff; 9])], "a packet of 4294967295 octets"),
        ('B', vec![MilterAction::Stalls], "no answer in 1 s"),
        ('B', vec![says('h', texts(&["X", "y"]))], "it answered the body with 'h'"),
        ('E', vec![says('h', texts(&["X-Half", "done"])), MilterAction::Closes], "it closed the connection"),
        ('E', vec![says('b', "half"), says('h', texts(&["X-Half", "done"])), MilterAction::Stalls], "no answer in 1 s"),
        ('E', vec![says('+', texts(&["no address"])), says('c', "")], "an invalid recipient"),
        ('E', vec![says('p', ""), says('O', "")], "it answered the event with 'O'"),
    ]
}

#[test]
fn a_milter_that_fails_gets_what_is_configured() {
    const QUICK: &str = "command_timeout_s = 1\ncontent_timeout_s = 1\n";
    let lab = lab();
    for (n, (stage, does, why)) in failures().into_iter().enumerate() {
        let broken = Milter::start(move |command, _| if command == stage { does.clone() } else { Vec::new() });
        for (action, code) in [("accept", 250), ("tempfail", 451), ("reject", 550)] {
            let server = server(&lab, &broken.config("bad", &format!("{QUICK}default_action = \"{action}\"")));
            let id = format!("{n}.{action}@test");
            let wire = message(&id, "x");
            lab.recorder().expect_message(wire.clone().into());
            let mut smtp = server.smtp();
            let mut reply = smtp.cmd(&format!("MAIL FROM:<{SENDER}>"));
            if reply.code == 250 {
                reply = smtp.cmd(&format!("RCPT TO:<{TO}>"));
            }
            if reply.code == 250 {
                reply = smtp.cmd("DATA");
            }
            if reply.code == 354 {
                smtp.raw(&stentor_harness::dot_stuff(&wire));
                reply = smtp.reply();
            }
            assert_eq!(reply.code, code, "{stage} {why}: {reply}");
            assert!(server.log().wait(&["milter failed", why]).is_some(), "{stage} {why}: {:?}", server.log().lines());
            if code == 250 {
                // As it came: nothing of what was asked for is done.
                lab.wait_clean(&id, &[TO]);
            } else {
                assert!(server.log().wait(&["milter bad: ", why, &code.to_string()]).is_some(), "{stage} {why}");
                assert_eq!(fates(&server).acknowledged, 0);
            }
        }
    }
}

#[test]
fn answers_of_one_message_are_not_taken_for_the_next() {
    let ends: [fn() -> Vec<MilterAction>; 2] = [
        || vec![says('c', ""), says('c', ""), says('c', ""), says('c', "")],
        // As one whose time for idle connections is short.
        || vec![says('c', ""), MilterAction::Closes],
    ];
    for end in ends {
        let milter = Milter::start(move |command, data| match command {
            'E' => end(),
            'M' if data.starts_with(b"<bad@") => vec![says('r', "")],
            _ => Vec::new(),
        });
        let server = alone(&milter.config("odd", "default_action = \"accept\""));
        let mut smtp = server.smtp();
        smtp.send(SENDER, &[TO], &message("one@test", "x")).expect(250);
        // What it said too much, or that it has closed, has come by now.
        std::thread::sleep(std::time::Duration::from_millis(100));
        smtp.cmd("MAIL FROM:<bad@elsewhere.example>").expect(550);
        smtp.send(SENDER, &[TO], &message("two@test", "x")).expect(250);
    }
}

#[test]
fn rules_on_content_and_milters_go_together() {
    let lab = TestLab::start("[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\nrelay = true\n");
    let milter = Milter::start(|command, data| match command {
        'R' if data.starts_with(b"<bob@") => vec![says('y', texts(&["451 4.7.1 Not now"]))],
        'E' => vec![says('-', texts(&["<cid@one.example>"])), says('c', "")],
        _ => Vec::new(),
    });
    let rules = "[[rules]]\nrecipient = \"bob@one.example\"\nbody = \"needle\"\ndo = \"hold\"\n\
                 [[rules]]\nsubject = \"routed\"\ndo = [\"prepend X-Rule: one\", \"route mx:two.example\"]\n";
    let server = server(&lab, &format!("{}{rules}", milter.config("some", "")));
    let wire = message_with("both@test", "Subject: routed\r\n", "needle\r\n");
    lab.recorder().expect_message(wire.clone().into());
    let mut smtp = server.smtp();
    smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    smtp.cmd("RCPT TO:<bob@one.example>").expect(451);
    smtp.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
    smtp.cmd("RCPT TO:<cid@one.example>").expect(250);
    smtp.cmd("DATA").expect(354);
    smtp.raw(&stentor_harness::dot_stuff(&wire));
    smtp.reply().expect(250);
    // Bob's rule holds nothing, cid is gone, and ann's mail goes where the rule says.
    assert_eq!(drained(&server).delivered, 1);
    let host = server.log().wait(&["stat=Sent", &format!("to=<{TO}>")]).expect("it is delivered");
    assert!(host.contains("two.example"), "{host}");
    // The client's fields, all of them, and none of ours.
    let fields = milter.told('L').join(" ");
    assert!(fields.contains("Subject|") && !fields.contains("X-Rule"), "{fields}");
    assert_eq!(
        milter.told('L').len(),
        String::from_utf8_lossy(&wire).split("\r\n\r\n").next().unwrap().lines().count()
    );
}

#[test]
fn a_recipient_that_a_milter_replaces_by_nobody_is_not_lost() {
    let milter = Milter::start(|command, _| match command {
        'E' => vec![says('-', texts(&[&format!("<{TO}>")])), says('+', texts(&["<nobody@lists.test>"])), says('c', "")],
        _ => Vec::new(),
    });
    let server = alone(&format!("[domains]\nlocal = [\"lists.test\"]\n{}", milter.config("typo", "")));
    let reply = server.smtp().send(SENDER, &[TO], &message("lost@test", "x"));
    assert_eq!((reply.code, fates(&server).acknowledged), (451, 0), "{reply}");
}

#[test]
fn a_client_that_closes_its_side_alone_is_taken_at_its_word() {
    let milter = Milter::start(|_, _| Vec::new());
    let server = alone(&milter.config("quick", ""));
    // More than once: a machine that is busy may take so long that it counts as one that has left.
    let is_taken = (0..5).any(|n| {
        let mut smtp = server.smtp();
        smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
        smtp.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
        smtp.cmd("DATA").expect(354);
        smtp.raw(&[&stentor_harness::dot_stuff(&message(&format!("{n}@test"), "x"))[..], b"QUIT\r\n"].concat());
        smtp.shutdown_write();
        smtp.rest().starts_with("250 ")
    });
    assert!(is_taken && fates(&server).acknowledged == 1, "{:?}", server.log().lines());
}

#[test]
fn a_client_that_leaves_while_a_milter_works_is_not_taken_at_its_word() {
    let lab = lab();
    let (has_left, is_slow) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let (left, slow) = (has_left.clone(), is_slow.clone());
    let milter = Milter::start(move |command, _| {
        if command == 'E' && slow.load(Ordering::SeqCst) {
            while !left.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            // Those who leave sooner may have closed their side only.
            std::thread::sleep(std::time::Duration::from_secs(5));
        }
        Vec::new()
    });
    let server = server(&lab, &milter.config("slow", ""));
    let wire = message("left@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    for last_words in [&b""[..], b"QUIT\r\n"] {
        has_left.store(false, Ordering::SeqCst);
        let asked = milter.commands().matches('E').count();
        let mut smtp = server.smtp();
        smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
        smtp.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
        smtp.cmd("DATA").expect(354);
        smtp.raw(&stentor_harness::dot_stuff(&wire));
        wait_until("the milter works", || milter.commands().matches('E').count() > asked);
        smtp.raw(last_words);
        drop(smtp);
        has_left.store(true, Ordering::SeqCst);
        let count = if last_words.is_empty() { 1 } else { 2 };
        wait_until("it is refused", || {
            server.log().matching(&["policy=client disconnected during milter checks", "421 4.4.2"]).len() == count
        });
    }
    assert_eq!(fates(&server).acknowledged, 0);
    // What it sends again comes once.
    is_slow.store(false, Ordering::SeqCst);
    server.smtp().send(SENDER, &[TO], &wire).expect(250);
    lab.wait_clean("left@test", &[TO]);
}

#[test]
fn recipients_that_milters_add_are_not_asked_about_the_content() {
    let lab = lab();
    let milter = Milter::start(|command, _| match command {
        'E' => vec![says('+', texts(&["<bob@two.example>"])), says('c', "")],
        _ => Vec::new(),
    });
    let rule = "[[rules]]\nrecipient = \"bob@two.example\"\nbody = \"needle\"\ndo = \"reject\"\n";
    let domains = "[domains]\nrelay = [\"one.example\", \"two.example\"]\n";
    let server = server(&lab, &format!("{domains}{rule}{}", milter.config("adds", "")));
    let wire = message("added@test", "the needle");
    lab.recorder().expect_message(wire.clone().into());
    // One whose recipients all have the same rules on content: that of the added one would be put off.
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    client.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(&wire));
    client.reply().expect(250);
    lab.wait_clean("added@test", &[TO, "bob@two.example"]);
}

#[test]
fn a_milter_that_is_down_is_asked_again_when_it_is_back() {
    let lab = lab();
    let milter = Milter::start(|_, _| Vec::new());
    let address = closed_address();
    let config = milter.config("down", "unreachable_action = \"accept\"\ndefault_action = \"reject\"");
    let server = server(&lab, &config.replace(&milter.address.to_string(), &address.to_string()));
    for n in 0..3 {
        server.smtp().send(SENDER, &[TO], &message(&format!("{n}@test"), "x")).expect(250);
    }
    server.wait_log(&["milter failed", "no connection"]);
    let back = Milter::on(address, |_, _| Vec::new());
    wait_until("it is asked again", || {
        server.smtp().send(SENDER, &[TO], &message("again@test", "x")).expect(250);
        back.commands().contains('E')
    });
}

#[test]
fn a_silent_milter_holds_up_only_the_session_that_asked_it() {
    let lab = lab();
    let is_hanging = Arc::new(AtomicBool::new(false));
    let hanging = is_hanging.clone();
    let milter = Milter::start(move |command, data| {
        if command == 'M' && data.starts_with(b"<slow@") {
            hanging.store(true, Ordering::SeqCst);
            return vec![MilterAction::Stalls];
        }
        Vec::new()
    });
    // Longer than the test may take.
    let server = server(&lab, &milter.config("slow", "command_timeout_s = 240"));
    let mut slow = server.smtp();
    slow.raw(b"MAIL FROM:<slow@elsewhere.example>\r\n");
    wait_until("it hangs", || is_hanging.load(Ordering::SeqCst));
    for n in 0..20 {
        server.smtp().send(SENDER, &[TO], &message(&format!("{n}@test"), "x")).expect(250);
    }
    assert_eq!(drained(&server).delivered, 20);
}

#[test]
fn connections_are_used_again_and_a_dead_one_is_replaced() {
    let clients = Arc::new(AtomicUsize::new(0));
    let count = clients.clone();
    // The second client that it is told of comes over the first's connection, which dies.
    let milter = Milter::start(move |command, _| match command {
        'C' if count.fetch_add(1, Ordering::SeqCst) == 1 => vec![MilterAction::Closes],
        _ => Vec::new(),
    });
    let server = alone(&milter.config("pool", "reuse = true"));
    for n in 0..2 {
        let mut smtp = server.smtp();
        smtp.send(SENDER, &[TO], &message(&format!("{n}@test"), "x")).expect(250);
        smtp.send(SENDER, &[TO], &message(&format!("{n}.second@test"), "x")).expect(250);
        smtp.quit();
        wait_until("the session's end", || milter.commands().matches('K').count() == n + 1);
    }
    let commands = milter.commands();
    assert_eq!((commands.matches('O').count(), commands.matches('C').count()), (2, 3), "{commands}");
    assert!(server.log().matching(&["milter failed"]).is_empty());
}

#[test]
fn a_large_message_that_is_rewritten_counts_once() {
    const MIB: u64 = 1024 * 1024;
    let lab = lab();
    let milter = Milter::start(|command, _| match command {
        'E' => vec![says('i', indexed(1, &["X-Signed", "yes"])), says('c', "")],
        _ => Vec::new(),
    });
    // A client that is not trusted may have an eighth of this.
    let prepared = builder(&lab).set("listen.streamed_bytes_max", &(32 * MIB).to_string()).prepare();
    let domains = "[domains]\nrelay = [\"one.example\"]\n";
    prepared.edit_config(|text| format!("{text}\n{domains}{}", milter.config("sign", "")));
    let server = prepared.run();
    let wire = message_with("once@test", "Subject: large\r\n", &"a line of a large message\r\n".repeat(115_000));
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    client.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(&wire));
    client.reply().expect(250);
    assert!(delivered(&lab, TO).starts_with("X-Signed: yes\r\n"));
    let peak = server.status()["streamed_bytes_peak"].as_u64().expect("a number");
    assert!((2 * MIB..4 * MIB).contains(&peak), "{peak}");
    wait_until("nothing is on its way", || server.status()["streamed_bytes"] == 0);
}

#[test]
fn a_large_message_is_changed_piece_by_piece() {
    let lab = lab();
    let body: String =
        (0..60_000).map(|n| format!("line {n} of a body that does not fit into one piece\r\n")).collect();
    let wire = message_with("large@test", "Subject: large\r\n", &body);
    let new: String = (0..70_000).map(|n| format!("another line {n} in its place\n")).collect();
    let (chunks, swaps) = (new.clone(), Arc::new(AtomicBool::new(false)));
    let is_swapping = swaps.clone();
    let first = Milter::start(|command, _| match command {
        'E' => vec![says('i', indexed(1, &["X-Signed", "yes"])), says('c', "")],
        _ => Vec::new(),
    });
    let second = Milter::start(move |command, data| match command {
        'O' => vec![negotiated(6, 0x1ff, 0x400)],
        'B' if data.len() == 65_535 => vec![says('s', "")],
        'E' if is_swapping.load(Ordering::SeqCst) => {
            let mut all: Vec<MilterAction> = chunks.as_bytes().chunks(60_001).map(|chunk| says('b', chunk)).collect();
            all.push(says('c', ""));
            all
        }
        _ => Vec::new(),
    });
    let server = server(&lab, &(first.config("sign", "") + &second.config("swap", "")));
    server.smtp().send(SENDER, &[TO], &wire).expect(250);
    let got = delivered(&lab, TO);
    assert!(
        got.starts_with("X-Signed: yes\r\nFrom: ") && got.ends_with(&format!("Subject: large\r\n\r\n{body}")),
        "{}",
        got.len()
    );
    assert_eq!(first.told('B').concat(), body);
    assert_eq!(second.told('B').len(), 1, "it skips the rest");
    swaps.store(true, Ordering::SeqCst);
    server.smtp().send(SENDER, &["bob@one.example"], &wire).expect(250);
    let got = delivered(&lab, "bob@one.example");
    assert!(
        got.ends_with(&format!("X-Signed: yes\r\n\r\n{}", new.replace('\n', "\r\n")))
            || got.contains("X-Signed: yes\r\nFrom")
    );
    assert!(got.ends_with(&new.replace('\n', "\r\n")) && !got.contains("of a body that"));
    assert_eq!(drained(&server).delivered, 2);
    // What was written meanwhile is not kept.
    wait_until("the journal holds nothing", || server.status()["content_bytes"] == 0);
}

/// Fields behind a header that a line of the body has ended are told to no milter, however many there are; the line of
/// an mbox is.
#[test]
fn what_is_behind_a_header_is_no_header_for_milters() {
    let lab = lab();
    let milter = Milter::start(|_, _| Vec::new());
    let server = builder(&lab).set("listen.add_missing_headers", "false").prepare();
    server.edit_config(|text| format!("{text}\n{}", milter.config("watch", "")));
    let server = server.run();
    let wire = format!(" x\r\n{}\r\ntext\r\n", "A:\r\n".repeat(20_000));
    server.smtp().send(SENDER, &["ann@one.example"], wire.as_bytes()).expect(250);
    assert!(
        milter.told('L').is_empty() && milter.told('B').concat().starts_with(" x\r\nA:"),
        "{:?}",
        milter.told('L').len()
    );
    let wire = format!("From joe\r\n{}", String::from_utf8_lossy(&message("mbox@test", "x")));
    server.smtp().send(SENDER, &["bob@one.example"], wire.as_bytes()).expect(250);
    assert!(milter.told('L')[0].starts_with("X-Mailbox-Line|From joe"), "{:?}", milter.told('L'));
    let too_many = format!("{}\r\ntext\r\n", "A:\r\n".repeat(20_000));
    server.smtp().send(SENDER, &["ann@one.example"], too_many.as_bytes()).expect(552);
    assert_eq!(drained(&server).delivered, 2);
}

/// What a client writes to keep rules from seeing what a milter has found, or to be believed itself.
#[test]
fn no_form_of_a_header_hides_what_milters_have_found() {
    let lab = lab();
    let milter = Milter::start(move |command, _| match command {
        'E' => {
            let value = "auth.test; spf=fail smtp.mailfrom=joe@bad.example";
            vec![says('h', texts(&["Authentication-Results", value])), says('c', "")]
        }
        _ => Vec::new(),
    });
    let rules = "[[rules]]\nauth = \"dkim=pass\"\ndo = \"ok\"\n[[rules]]\nauth = \"spf=fail\"\ndo = \"reject 550 5.7.23 SPF says no\"\n";
    let server = builder(&lab).set("authserv_id", "\"auth.test\"").prepare();
    let more = format!("[domains]\nrelay = [\"one.example\"]\n{}{rules}", milter.config("auth", ""));
    server.edit_config(|text| format!("{text}\n{more}"));
    let server = server.run();
    let forged = |space: &str| format!("Authentication-Results{space}: auth.test; dkim=pass\r\n");
    let behind = |lead: &str| lead.to_owned() + &forged("");
    for begin in [
        String::new(),
        "From joe@bad.example Mon Jan  1 10:00:00 2024\r\n".to_owned(),
        forged(&" ".repeat(40)),
        forged("\x0c"),
        behind(" x\r\n"),
        behind("\tx\r\n"),
        behind("From x\r\n"),
        behind("From x\r\n y\r\n"),
        behind(&format!("From {}\r\n", "x".repeat(1_000))),
        behind("X\x0c: y\r\n"),
    ] {
        let mut client = server.connect_from("127.0.0.2").greeted();
        client.cmd("MAIL FROM:<joe@bad.example>").expect(250);
        client.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
        client.cmd("DATA").expect(354);
        let mut wire = begin.as_bytes().to_vec();
        wire.extend(message("hidden@test", "x"));
        client.raw(&stentor_harness::dot_stuff(&wire));
        let reply = client.reply();
        assert_eq!((reply.code, reply.lines.join(" ").as_str()), (550, "5.7.23 SPF says no"), "{begin}");
    }
}

/// Results of authentication are asked for when milters have written them down; what a client writes in our name is
/// gone before (RFC 8601).
#[test]
fn rules_ask_what_milters_have_found_and_nobody_can_forge_it() {
    let lab = lab();
    let sender = Arc::new(std::sync::Mutex::new(String::new()));
    let milter = Milter::start(move |command, data| {
        let text = String::from_utf8_lossy(data).into_owned();
        match command {
            'M' => {
                *sender.lock().expect("nobody panics") = text;
                Vec::new()
            }
            'E' => {
                let is_bad = sender.lock().expect("nobody panics").contains("bad.example");
                let result = if is_bad { "fail" } else { "none" };
                let value = format!("auth.test;\n\tspf={result} (checked) smtp.mailfrom=joe@bad.example");
                vec![says('i', indexed(0, &["Authentication-Results", &value])), says('c', "")]
            }
            _ => Vec::new(),
        }
    });
    let rules = "[[rules]]\nname = \"pass\"\nauth = \"spf=pass\"\ndo = \"ok\"\n\
                 [[rules]]\nname = \"fail\"\nauth = \"spf=fail smtp.mailfrom=*@bad.example\"\ndo = \"reject 550 5.7.23 SPF says no\"\n\
                 [[rules]]\nnot = { auth = \"dkim=pass\" }\ndo = [\"prepend X-Unsigned: yes\", \"remove_header X-Drop\"]\n";
    let server = builder(&lab).set("authserv_id", "\"auth.test\"").prepare();
    let more = format!("[domains]\nrelay = [\"one.example\"]\n{}{rules}", milter.config("auth", ""));
    server.edit_config(|text| format!("{text}\n{more}"));
    let server = server.run();
    let fields = "Authentication-Results: (x) \"Auth.Test\" 1; spf=pass; dkim=pass\r\n\
                  Authentication-Results: mx.other.example; spf=pass\r\nX-Drop: 1\r\n";
    let send = |mut client: stentor_harness::Smtp, from: &str, id: &str| {
        client.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
        client.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
        client.cmd("DATA").expect(354);
        client.raw(&stentor_harness::dot_stuff(&message_with(id, fields, "text\r\n")));
        let reply = client.reply();
        format!("{} {}", reply.code, reply.lines.join(" "))
    };
    let stranger = || server.connect_from("127.0.0.2").greeted();
    assert_eq!(send(stranger(), "joe@bad.example", "forged@test"), "550 5.7.23 SPF says no");
    server.log().wait(&["ruleset=check_eom", "policy=rule 2 \"fail\"", "550 5.7.23 SPF says no"]);
    let shown = milter.told('L').join(" ");
    assert!(shown.contains("mx.other.example") && !shown.to_lowercase().contains("auth.test"), "{shown}");
    // One that is trusted may say so itself.
    assert!(send(server.smtp(), "joe@bad.example", "trusted@test").starts_with("250"));
    let copy = delivered(&lab, TO);
    assert!(
        copy.contains("(x) \"Auth.Test\" 1; spf=pass") && copy.contains("X-Drop") && !copy.contains("X-Unsigned"),
        "{copy}"
    );
    let before = lab.recorder().copies_to(TO).len();
    assert!(send(stranger(), SENDER, "taken@test").starts_with("250"));
    lab.wait("another copy", |recorder| recorder.copies_to(TO).len() > before);
    let copy = lab.recorder().copies_to(TO).into_iter().filter_map(|copy| copy.body.clone());
    let copy = copy.map(|body| String::from_utf8_lossy(&body).into_owned()).find(|body| body.contains("taken@test"));
    let copy = copy.expect("the lab keeps bodies");
    assert!(copy.starts_with("X-Unsigned: yes\r\n") && copy.contains("auth.test;\r\n\tspf=none"), "{copy}");
    assert!(!copy.contains("Auth.Test") && copy.contains("mx.other.example") && !copy.contains("X-Drop"), "{copy}");
}
