//! Extensions that a host offers and then refuses, or does not offer: mail is sent in a form that the host takes, or
//! fails only for the recipients concerned.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mail_parser::MessageParser;
use stentor_harness::{Server, TestLab, message, message_with};

use crate::kit::{SENDER, SENDER_SITE, bare, builder, drained, fates, post_with, report_to, wait_fates};
use crate::scribe::Scribe;

/// A server whose mail for tap.example goes to this host.
fn to_scribe(scribe: &Scribe) -> Server {
    bare().fast_retry().route("tap.example", &[&scribe.host()]).set("delivery.idle_ms", "300000").start()
}

#[track_caller]
fn send_to_tap(server: &Server, id: &str) {
    server.smtp().send(SENDER, &["bob@tap.example"], &message(id, "x")).expect(250);
    let fates = drained(server);
    assert_eq!(fates.bounced, 0, "{fates:?}");
}

#[test]
fn bdat_that_is_offered_and_refused_is_not_used() {
    for refusal in ["500 5.5.1 what", "502 not implemented", "503 5.5.1 no", "504 no"] {
        for (offers, lmtp) in [(&["PIPELINING", "CHUNKING"][..], false), (&["CHUNKING"], false), (&["CHUNKING"], true)]
        {
            let scribe = Scribe::start(offers, &[("BDAT", refusal)]);
            let host = if lmtp { format!("lmtp:{}", scribe.host()) } else { scribe.host() };
            let server = bare().route("tap.example", &[&host]).set("delivery.idle_ms", "300000").start();
            // The clocks are minutes: it is the same attempt that goes by DATA.
            send_to_tap(&server, "one@test");
            assert_eq!((scribe.heard("BDAT").len(), scribe.heard("DATA").len()), (1, 1), "{:?}", scribe.lines());
            assert_eq!(scribe.peers().len(), 2, "what is said on the first connection means nothing any more");
            send_to_tap(&server, "two@test");
            assert_eq!((scribe.heard("BDAT").len(), scribe.heard("DATA").len()), (1, 2), "{:?}", scribe.lines());
            assert_eq!(scribe.peers().len(), 2);
            // Lines are written a little later.
            server.log().wait_nth(&["stat=Sent"], 2);
            let log = server.log().matching(&["stat=Sent"]);
            assert_eq!(log.len(), 2, "{log:?}");
        }
    }
}

#[test]
fn a_parameter_that_is_offered_and_refused_is_left_out() {
    for (offer, parameter, refusal) in [
        ("SIZE 1000000", "SIZE=", "555 5.5.4 Unsupported option: SIZE"),
        ("8BITMIME", "BODY=8BITMIME", "501 5.5.4 what"),
        ("SMTPUTF8", "SMTPUTF8", "504 not here"),
        ("DSN", "RET=", "555 parameters not recognized"),
    ] {
        let refused = format!("MAIL FROM:<{SENDER}> {parameter}");
        for offers in [&["PIPELINING", offer][..], &[offer]] {
            let scribe = Scribe::start(offers, &[(&refused, refusal)]);
            let server = bare().route("tap.example", &[&scribe.host()]).set("delivery.idle_ms", "300000").start();
            let wire = message_with("p@test", "Subject: x\r\nContent-Type: text/plain; charset=utf-8\r\n", "Grüße\r\n");
            let mail = format!("<{SENDER}> SMTPUTF8 BODY=8BITMIME RET=HDRS");
            for round in 1..=2 {
                post_with(&server, &mail, &["<bob@tap.example>"], &wire);
                let fates = drained(&server);
                assert_eq!((fates.delivered, fates.bounced), (round, 0), "{:?}", scribe.lines());
                // Once with it, and then never again.
                let with = scribe.heard(&refused).len();
                assert_eq!((with, scribe.heard("MAIL").len() as u64), (1, round + 1), "{:?}", scribe.lines());
            }
            assert_eq!(scribe.peers().len(), 1, "the same connection serves");
        }
    }
}

#[test]
fn a_refusal_that_is_none_of_a_parameter_stands() {
    let scribe = Scribe::start(&["PIPELINING", "SIZE"], &[("MAIL", "501 5.5.4 what")]);
    let server = to_scribe(&scribe);
    server.smtp().send("", &["bob@tap.example"], &message("no@test", "x")).expect(250);
    assert_eq!(drained(&server).bounced, 1);
    let mail = scribe.heard("MAIL");
    assert!(mail.len() == 2 && mail[0].contains(" SIZE="), "{mail:?}");
    assert_eq!(mail[1], "MAIL FROM:<>");
    // It was not the parameter: it is asked for again.
    server.smtp().send("", &["bob@tap.example"], &message("no2@test", "x")).expect(250);
    assert_eq!(drained(&server).bounced, 2);
    assert!(scribe.heard("MAIL")[2].contains(" SIZE="), "{:?}", scribe.lines());
}

#[test]
fn only_those_whose_parameters_are_refused_are_sent_again() {
    let scribe = Scribe::start(&["PIPELINING", "DSN"], &[("RCPT TO:<bob@tap.example> ", "555 5.5.4 NOTIFY?")]);
    let server = to_scribe(&scribe);
    let to = ["<ann@tap.example>", "<bob@tap.example> NOTIFY=FAILURE ORCPT=rfc822;bob@x", "<cid@tap.example>"];
    post_with(&server, &format!("<{SENDER}>"), &to, &message("dsn@test", "x"));
    let fates = drained(&server);
    assert_eq!((fates.delivered, fates.bounced), (3, 0), "{:?}", scribe.lines());
    assert_eq!(scribe.heard("RCPT TO:<ann@tap.example>").len(), 1, "{:?}", scribe.lines());
    assert_eq!(scribe.heard("RCPT TO:<cid@tap.example>").len(), 1);
    assert_eq!(scribe.heard("RCPT TO:<bob@tap.example>").last().expect("it is there"), "RCPT TO:<bob@tap.example>");
    assert_eq!((scribe.heard("RCPT TO:<bob@tap.example>").len(), scribe.heard("DATA").len()), (2, 2));
}

/// Whoever has his copy is not asked to wait for the others: a crash while they are tried again would deliver it twice.
#[test]
fn who_has_a_copy_is_recorded_before_another_try() {
    // The second RCPT for bob never gets the end of its reply.
    let answers = [("RCPT TO:<bob@tap.example> ", "555 5.5.4 NOTIFY?"), ("RCPT TO:<bob@tap.example>", "250-wait")];
    let scribe = Scribe::start(&["DSN"], &answers);
    let server = to_scribe(&scribe);
    let to = ["<ann@tap.example>", "<bob@tap.example> NOTIFY=FAILURE"];
    post_with(&server, &format!("<{SENDER}>"), &to, &message("early@test", "x"));
    wait_fates(&server, "ann's copy", |fates| (fates.delivered, fates.pending) == (1, 1));
    assert_eq!(scribe.heard("RCPT TO:<ann@tap.example>").len(), 1, "{:?}", scribe.lines());
}

/// An LMTP host that answers for the first recipient, and leaves.
fn one_answer_and_goodbye() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    fn serve(stream: &TcpStream) -> std::io::Result<()> {
        let say = |text: &str| (&*stream).write_all(text.as_bytes());
        say("220 here\r\n")?;
        let mut is_content = false;
        for line in BufReader::new(stream).lines() {
            match line?.as_str() {
                "." => return say("250 taken\r\n421 bye\r\n"),
                _ if is_content => {}
                "DATA" => {
                    is_content = true;
                    say("354 go on\r\n")?;
                }
                _ => say("250 ok\r\n")?,
            }
        }
        Ok(())
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::SeqCst);
            // A client that hangs up is no matter.
            std::thread::spawn(move || drop(serve(&stream)));
        }
    });
    (address, connections)
}

/// Else a message to many costs a connection and its content for each of them, at once.
#[test]
fn a_host_that_leaves_among_its_answers_has_the_message_wait() {
    let (address, connections) = one_answer_and_goodbye();
    let server = bare().route("tap.example", &[&format!("lmtp:{address}")]).start();
    let to: Vec<String> = (0..40).map(|n| format!("u{n}@tap.example")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    server.smtp().send(SENDER, &to, &message("many@test", "x")).expect(250);
    wait_fates(&server, "one copy", |fates| fates.delivered >= 1);
    server.smtp().send(SENDER, &["bob@tap.example"], &message("one@test", "x")).expect(250);
    server.wait_log(&["to=<bob@tap.example>", "stat=Sent"]);
    assert_eq!((connections.load(Ordering::SeqCst), fates(&server).delivered), (2, 2));
}

/// A host, or a box before it, that offers PIPELINING and hangs up on more than one command at a time.
fn one_command_at_a_time() -> std::net::SocketAddr {
    fn serve(stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let say = |text: &str| (&*stream).write_all(text.as_bytes());
        say("220 one at a time\r\n")?;
        let mut line = String::new();
        while {
            line.clear();
            reader.read_line(&mut line)? > 0
        } {
            if !reader.buffer().is_empty() {
                return Ok(());
            }
            match line.get(..4).unwrap_or_default() {
                "EHLO" => say("250-here\r\n250-PIPELINING\r\n250 CHUNKING\r\n")?,
                "DATA" => {
                    say("354 go on\r\n")?;
                    while line != ".\r\n" {
                        line.clear();
                        reader.read_line(&mut line)?;
                    }
                    say("250 taken\r\n")?;
                }
                _ => say("250 ok\r\n")?,
            }
        }
        // What is still on its way is read, so that nobody is reset.
        reader.read_to_end(&mut Vec::new()).map(drop)
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that hangs up is no matter.
            std::thread::spawn(move || drop(serve(&stream)));
        }
    });
    address
}

#[test]
fn a_host_that_drops_what_is_pipelined_is_spoken_to_plainly() {
    let host = one_command_at_a_time().to_string();
    let server = bare().fast_retry().route("tap.example", &[&host]).start();
    send_to_tap(&server, "one@test");
    send_to_tap(&server, "two@test");
    server.wait_log(&["PIPELINING and CHUNKING temporarily disabled"]);
    assert_eq!(server.log().matching(&["PIPELINING and CHUNKING temporarily disabled"]).len(), 1, "learned once");
}

#[test]
fn an_original_recipient_with_utf8_is_said_as_the_host_can_hear_it() {
    for (offers, said) in [
        (&["PIPELINING", "DSN"][..], " ORCPT=utf-8;j\\x{F6}rg@x.example"),
        (&["DSN", "SMTPUTF8", "8BITMIME"], " ORCPT=utf-8;j\\x{F6}rg@x.example"),
        (&["PIPELINING"], ""),
    ] {
        let scribe = Scribe::start(offers, &[]);
        let server = to_scribe(&scribe);
        let to = ["<ann@tap.example> ORCPT=utf-8;jörg@x.example", "<bob@tap.example>"];
        post_with(&server, &format!("<{SENDER}> SMTPUTF8"), &to, &message("orcpt@test", "x"));
        let fates = drained(&server);
        assert_eq!((fates.delivered, fates.bounced), (2, 0), "{:?}", scribe.lines());
        let mut heard = scribe.heard("RCPT");
        heard.sort();
        assert_eq!(heard, [format!("RCPT TO:<ann@tap.example>{said}"), "RCPT TO:<bob@tap.example>".to_owned()]);
    }
}

/// The report is about UTF-8 in every field that can have it, and goes to a host that knows nothing of it.
#[test]
fn a_report_goes_to_a_host_without_smtputf8() {
    let lab = TestLab::start(
        "[[site]]\nname = 'sender.example'\nbehaviour = { no_smtputf8 = true, no_8bitmime = true }\n\
         [[site]]\nname = 'no.example'\nbehaviour = { reject_share = 1.0, reject_reply = '550 5.1.1 niemand heißt so' }\n",
    );
    let server = builder(&lab).start();
    let wire = message_with("utf8@test", "Subject: Grüße\r\n", "Hallo é\r\n");
    let to = ["<jürgen@no.example> ORCPT=utf-8;jörg@x.example", "<ann@no.example>"];
    for ret in ["FULL", "HDRS"] {
        post_with(&server, &format!("<{SENDER}> SMTPUTF8 RET={ret}"), &to, &wire);
        let fates = drained(&server);
        assert_eq!(fates.pending, 0);
    }
    lab.wait("both reports", |recorder| recorder.copies_to(SENDER).len() == 2);
    lab.assert_no_violations();
    for copy in lab.recorder().copies_to(SENDER) {
        let body = copy.body.expect("the lab keeps bodies");
        assert!(body.is_ascii(), "{}", String::from_utf8_lossy(&body));
        let report = crate::report::Report::parse(&body);
        assert_eq!(report.recipients.len(), 2, "{}", report.text);
        let about = report.about("jürgen@no.example");
        assert_eq!(about["final-recipient"], "utf-8; j\\x{FC}rgen@no.example");
        assert_eq!(about["original-recipient"], "utf-8; j\\x{F6}rg@x.example");
        let parsed = MessageParser::default().parse(&body[..]).expect("a message");
        assert!(parsed.body_text(0).expect("words").contains("<jürgen@no.example>"), "{}", report.text);
    }
    assert_eq!(fates(&server).bounced, 4, "the messages' recipients and no report");
}

#[test]
fn only_those_fail_whose_addresses_need_smtputf8() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'plain.example'\nbehaviour = {{ no_smtputf8 = true }}\n"
    ));
    let server = builder(&lab).start();
    let wire = message("mixed@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, &["ann@plain.example", "jürgen@plain.example", "bob@plain.example"], &wire).expect(250);
    lab.wait_clean("mixed@test", &["ann@plain.example", "bob@plain.example"]);
    report_to(&lab, SENDER).assert_failed("jürgen@plain.example", "5.6.7");
    assert_eq!(drained(&server).bounced, 1);
}

/// RFC 6531 3.2 is about addresses and header fields; for the body 8BITMIME does, and where that is missing conversion.
#[test]
fn a_body_alone_does_not_need_smtputf8() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'eight.example'\nbehaviour = {{ no_smtputf8 = true }}\n\
         [[site]]\nname = 'seven.example'\nbehaviour = {{ no_smtputf8 = true, no_8bitmime = true }}\n"
    ));
    let server = builder(&lab).start();
    let to = ["<ann@eight.example>", "<bob@seven.example>"];
    let body = message_with("body@test", "Content-Type: text/plain; charset=utf-8\r\n", "Grüße\r\n");
    post_with(&server, &format!("<{SENDER}> SMTPUTF8 BODY=8BITMIME"), &to, &body);
    lab.wait_copies(2);
    lab.assert_no_violations();
    assert!(lab.body_for("ann@eight.example").ends_with(&body[body.len() - 20..]));
    let seven = lab.body_for("bob@seven.example");
    assert!(seven.is_ascii() && seven.ends_with(b"Gr=C3=BC=C3=9Fe\r\n"), "{}", String::from_utf8_lossy(&seven));
    assert_eq!(drained(&server).bounced, 0);
    let header = message_with("header@test", "Subject: Grüße\r\n", "x\r\n");
    post_with(&server, &format!("<{SENDER}> SMTPUTF8 BODY=8BITMIME"), &to[..1], &header);
    report_to(&lab, SENDER).assert_failed("ann@eight.example", "5.6.7");
}

/// A line of NUL and dot is the end of the data to receivers that drop NULs.
#[test]
fn nul_leaves_by_bdat_or_encoded() {
    let lab = TestLab::start(
        "[[site]]\nname = 'data.example'\nbehaviour = { no_chunking = true }\n[[site]]\nname = 'bdat.example'\n",
    );
    let server = builder(&lab).start();
    let wire = message_with("nul@test", "Subject: x\r\n", "a\0b\r\nc = \r\n");
    server.smtp().send(SENDER, &["ann@data.example", "bob@bdat.example"], &wire).expect(250);
    lab.wait_copies(2);
    lab.assert_no_violations();
    let encoded = lab.body_for("ann@data.example");
    assert!(
        !encoded.contains(&0) && encoded.ends_with(b"\r\na=00b\r\nc =3D=20\r\n"),
        "{}",
        String::from_utf8_lossy(&encoded)
    );
    assert!(lab.body_for("bob@bdat.example").ends_with(b"a\0b\r\nc = \r\n"));
    assert_eq!(drained(&server).bounced, 0);
}

/// Our own disk is no fault of the host: the message waits by itself, and nothing is given up.
#[test]
fn a_content_that_cannot_be_read_costs_no_host() {
    let lab = TestLab::start("[[site]]\nname = 'grey.example'\nbehaviour = { greylist_ms = 10000 }\n");
    let server = builder(&lab).start();
    server.smtp().send(SENDER, &["ann@grey.example"], &message("lost@test", "x")).expect(250);
    server.wait_log(&["ann@grey.example", "stat=Deferred"]);
    // The segment that holds it, cut short: reads of it find nothing. Nothing is written meanwhile, which would fill it
    // up.
    let segments = std::fs::read_dir(server.path("data").join("journal")).expect("the folder is there");
    let holds = |path: &std::path::PathBuf| {
        std::fs::read(path).is_ok_and(|octets| octets.windows(9).any(|window| window == b"lost@test"))
    };
    let segment = segments.map(|entry| entry.expect("an entry").path()).find(holds).expect("the content is stored");
    let octets = std::fs::read(&segment).expect("it can be read");
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("it can be written");
    file.set_len(0).expect("it can be cut");
    server.wait_log(&["stored content could not be read"]);
    let waiting = fates(&server);
    assert_eq!((waiting.pending, waiting.bounced), (1, 0), "{waiting:?}");
    let site = server.ask(&["site", "grey.example"]).expect("it is known");
    assert_eq!(site["paths"][0]["hosts"][0]["failures"], 0, "{site}");
    // The disk gives it back: everything up to the end of what was written then.
    let end = octets.iter().rposition(|octet| *octet != 0).map_or(0, |at| at + 1);
    file.write_all_at(&octets[..end], 0).expect("it can be written");
    let done = drained(&server);
    assert_eq!((done.delivered, done.bounced), (1, 0), "{done:?}");
    lab.assert_no_violations();
}
