//! Programs that speak Postfix's policy protocol: what they are asked, and what becomes of their answers and failures.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use stentor_harness::{Server, Smtp, TestLab, message};

use crate::auth::{PASSWORD, started_with};
use crate::kit::builder;
use crate::tls_in::{certificate, session, session_with};

type Request = HashMap<String, String>;

/// A policy service, and what it was asked.
struct Service {
    address: SocketAddr,
    asked: Receiver<Request>,
}

impl Service {
    /// `answer`: octets for a request; none: the connection is closed.
    fn start(answer: impl Fn(&Request) -> String + Send + Sync + Clone + 'static) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, asked) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, sender) = (answer.clone(), sender.clone());
                thread::spawn(move || serve(&stream, &answer, &sender));
            }
        });
        Service { address, asked }
    }

    fn section(&self, more: &str) -> String {
        format!(
            "[policy_services.judge]\naddress = \"inet:{}\"\n{more}\n[[rules]]\npolicy_service = \"judge\"\n",
            self.address
        )
    }
}

fn serve(mut stream: &TcpStream, answer: &impl Fn(&Request) -> String, asked: &Sender<Request>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    loop {
        let pairs: Request = lines
            .by_ref()
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect();
        if pairs.is_empty() {
            return;
        }
        let octets = answer(&pairs);
        // The test may be over.
        let _ = asked.send(pairs);
        if octets.is_empty() || stream.write_all(octets.as_bytes()).is_err() {
            return;
        }
    }
}

fn server(lab: &TestLab, more: &str) -> Server {
    let server = builder(lab).prepare();
    server.edit_config(|text| format!("{text}\n[domains]\nrelay = [\"one.example\"]\n{more}"));
    server.run()
}

fn stranger(server: &Server) -> Smtp {
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<a@b.example> SIZE=1000").expect(250);
    client
}

fn heard(client: &mut Smtp, recipient: &str) -> String {
    let reply = client.cmd(&format!("RCPT TO:<{recipient}@one.example>"));
    format!("{} {}", reply.code, reply.lines.join("\n"))
}

#[test]
fn its_answers_are_actions_in_postfixs_words() {
    let lab = TestLab::sites(&["one.example"]);
    let service = Service::start(|request| {
        let action = match request["recipient"].split('@').next() {
            Some("grey") => "DEFER_IF_PERMIT Greylisted, see http://example.org/",
            Some("no") => "550 5.7.23 SPF fails",
            Some("reject") => "REJECT not you",
            Some("tagged") => "PREPEND X-Greylist: delayed 301 seconds",
            Some("odd") => "FROBNICATE",
            _ => "DUNNO",
        };
        format!("action={action}\n\n")
    });
    let server = server(&lab, &service.section(""));
    let mut client = stranger(&server);
    assert_eq!(heard(&mut client, "grey"), "450 4.7.1 Greylisted, see http://example.org/");
    assert_eq!(heard(&mut client, "no"), "550 5.7.23 SPF fails");
    assert_eq!(heard(&mut client, "reject"), "554 5.7.1 not you");
    assert_eq!(heard(&mut client, "odd"), "451 4.3.5 Server configuration error");
    assert!(heard(&mut client, "tagged").starts_with("250"));
    assert!(heard(&mut stranger(&server), "plain").starts_with("250"));
    let wire = message("tagged@test", "x");
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(&wire));
    client.reply().expect(250);
    server.wait_empty();
    let copy = String::from_utf8(lab.body_for("tagged@one.example")).expect("a text");
    assert!(copy.starts_with("X-Greylist: delayed 301 seconds\r\nReceived: "), "{copy}");
    server.log().wait_nth(&["arg1=<no@one.example>", "policy=rule 1 (stentor.toml:41); policy service judge,"], 1);
}

#[test]
fn it_is_told_all_that_is_known() {
    let lab = TestLab::sites(&["one.example"]);
    let service = Service::start(|_| "action=DUNNO\n\n".to_owned());
    let server = server(&lab, &service.section(""));
    let mut client = stranger(&server);
    let instances: Vec<String> = ["ann", "bob"]
        .into_iter()
        .map(|recipient| {
            assert!(heard(&mut client, recipient).starts_with("250"));
            let asked = service.asked.recv().expect("it was asked");
            for (name, value) in [
                ("request", "smtpd_access_policy"),
                ("protocol_state", "RCPT"),
                ("protocol_name", "ESMTP"),
                ("client_address", "127.0.0.2"),
                ("helo_name", "client.example"),
                ("sender", "a@b.example"),
                ("recipient", &format!("{recipient}@one.example")),
                ("size", "1000"),
                ("server_port", &server.address().port().to_string()),
            ] {
                assert_eq!(asked.get(name).map(String::as_str), Some(value), "{name}");
            }
            asked["instance"].clone()
        })
        .collect();
    // The same for a message, another for the next.
    assert_eq!(instances[0], instances[1]);
    client.cmd("RSET").expect(250);
    client.cmd("MAIL FROM:<>").expect(250);
    assert!(heard(&mut client, "ann").starts_with("250"));
    let next = service.asked.recv().expect("it was asked");
    assert_ne!(next["instance"], instances[0]);
    assert_eq!((next["sender"].as_str(), next["size"].as_str()), ("", "0"));
    // What is explained is no mail, and may not count as some.
    let shown =
        server.operator(&["explain", "--from", "a@b.example", "--to", "ann@one.example", "--client", "127.0.0.2"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("policy_service, which is asked only in a client's session"), "{shown}");
    let last = shown.lines().last().unwrap_or_default();
    assert!(last.contains("this result may change with unknown facts: the reply of policy service judge"), "{shown}");
    assert!(service.asked.try_recv().is_err());
}

#[test]
fn it_is_told_of_tls_login_and_certificate() {
    let service = Service::start(|_| "action=DUNNO\n\n".to_owned());
    let told = |asked: &Request, wanted: &[(&str, &str)]| {
        for (name, value) in wanted {
            assert_eq!(asked.get(*name).map(String::as_str), Some(*value), "{name}: {asked:?}");
        }
        assert!(asked["encryption_cipher"].starts_with("TLS_"), "{asked:?}");
        assert!(["128", "256"].contains(&asked["encryption_keysize"].as_str()), "{asked:?}");
    };
    let (_lab, server) = started_with(|builder| builder, &service.section(""));
    let mail = ["MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>"];
    let login = format!("@scram:ann@home.example:{PASSWORD}");
    session(server.address_of("submission").port(), &[&["EHLO c", "@starttls", "EHLO c", &login][..], &mail].concat());
    let asked = service.asked.recv().expect("it was asked");
    let user = ("sasl_username", "ann@home.example");
    told(&asked, &[("sasl_method", "SCRAM-SHA-256"), user, ("encryption_protocol", "TLSv1.3"), ("ccert_subject", "")]);

    let lab = TestLab::sites(&["one.example"]);
    let prepared = builder(&lab).set("listen.xclient_clients", "[\"127.0.0.1\"]").prepare();
    let folder = prepared.folder().to_owned();
    certificate(&folder, "ca.test", None);
    certificate(&folder, "app.test", Some("ca.test"));
    let both = [".pem", ".key"].map(|end| std::fs::read(folder.join(format!("app.test{end}"))).expect("it is made"));
    std::fs::write(folder.join("app.test.both"), both.concat()).expect("a folder");
    let trusts = "[tls]\nclient_ca_file = \"ca.test.pem\"\nclient_certificates = [\"app.test\"]\n";
    prepared.edit_config(|text| format!("{text}\n{trusts}{}", service.section("")));
    let server = prepared.run();
    let file = folder.join("app.test.both").display().to_string();
    let steps = [&["EHLO c", "@starttls", "EHLO c"][..], &mail].concat();
    session_with(server.address().port(), &["--certificate", &file, "--tls12"], &steps);
    let asked = service.asked.recv().expect("it was asked");
    told(
        &asked,
        &[
            ("sasl_method", ""),
            ("encryption_protocol", "TLSv1.2"),
            ("ccert_subject", "app.test"),
            ("ccert_issuer", "ca.test"),
        ],
    );
    // Of a client that a proxy speaks for nothing is known of the kind.
    let steps = [&["EHLO c", "@starttls", "EHLO c", "XCLIENT ADDR=127.0.0.1", "EHLO c"][..], &mail].concat();
    session_with(server.address().port(), &["--certificate", &file], &steps);
    let asked = service.asked.recv().expect("it was asked");
    for name in ["encryption_protocol", "ccert_subject", "ccert_issuer"] {
        assert_eq!(asked.get(name).map(String::as_str), Some(""), "{name}: {asked:?}");
    }
    // Nor is it trusted for a certificate that the proxy shows later.
    let steps = [&["EHLO c", "XCLIENT ADDR=192.0.2.7", "EHLO c", "@starttls", "EHLO c"][..], &mail].concat();
    let said = session_with(server.address().port(), &["--certificate", &file], &steps);
    assert!(said.iter().any(|line| line.contains("550 5.7.1 ")), "{said:?}");
}

#[test]
fn without_an_answer_recipients_are_deferred_or_as_configured() {
    let lab = TestLab::sites(&["one.example"]);
    for answer in ["", "action=\n\n", "nonsense\n\n", "action=OK\n\nmore"] {
        let service = Service::start(move |_| answer.to_owned());
        let closed = server(&lab, &service.section(""));
        let deferred = "451 4.3.0 Policy service unavailable, try again later";
        assert_eq!(heard(&mut stranger(&closed), "ann"), deferred, "{answer:?}");
        closed.log().wait(&["arg1=<ann@one.example>", "policy=rule 1 (stentor.toml:41); policy service judge: "]);
        let open = server(&lab, &service.section("default_action = \"DUNNO\""));
        assert!(heard(&mut stranger(&open), "ann").starts_with("250"), "{answer:?}");
        open.wait_log(&["policy service judge: inet:127.0.0.1"]);
    }
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let more = format!(
        "[policy_services.judge]\naddress = \"inet:{address}\"\ntimeout_s = 0.3\ndefault_action = \"DEFER later, please\"\n\
         [[rules]]\ntrusted = false\npolicy_service = \"judge\"\n"
    );
    let server = server(&lab, &more);
    assert_eq!(heard(&mut stranger(&server), "ann"), "450 4.7.1 later, please");
    let mut trusted = server.smtp();
    trusted.cmd("MAIL FROM:<a@b.example>").expect(250);
    assert!(heard(&mut trusted, "ann").starts_with("250"));
    // A check says which is down, and asks none anything.
    let checked = || String::from_utf8(server.operator(&["check"]).stderr).expect("UTF-8");
    assert!(!checked().contains("policy service"), "{}", checked());
    let ok = String::from_utf8(server.operator(&["check"]).stdout).expect("UTF-8");
    assert!(ok.contains(", 0 tables, 1 policy service, "), "a service is no table: {ok}");
    drop(silent);
    let found = checked();
    let (down, then) = ("policy service judge (127.0.0.1:", "does not accept connections: Connection refused");
    assert!(
        found.contains(down) && found.contains(then) && found.contains("`default_action` \"DEFER later"),
        "{found}"
    );
}

#[test]
fn an_answer_that_nobody_asked_for_is_nobodys() {
    let lab = TestLab::sites(&["one.example"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, strays) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (asked, heard) = channel();
            let answer = |request: &Request| format!("action=550 5.7.1 meant for {}\n\n", request["recipient"]);
            let answering = stream.try_clone().expect("a descriptor");
            thread::spawn(move || serve(&answering, &answer, &asked));
            let sender = sender.clone();
            thread::spawn(move || {
                while heard.recv().is_ok() {
                    // Its own reply is read by now.
                    thread::sleep(Duration::from_millis(300));
                    let _ = stream.write_all(b"action=DISCARD stray\n\n").and_then(|()| stream.flush());
                    let _ = sender.send(());
                }
            });
        }
    });
    let section =
        format!("[policy_services.judge]\naddress = \"inet:{address}\"\n[[rules]]\npolicy_service = \"judge\"\n");
    let server = server(&lab, &section);
    let mut client = stranger(&server);
    for recipient in ["u1", "u2", "u3"] {
        let reply = heard(&mut client, recipient);
        assert_eq!(reply, format!("550 5.7.1 meant for {recipient}@one.example"));
        strays.recv().expect("the service runs");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_client_who_makes_it_slow_leaves_places_to_others() {
    let lab = TestLab::sites(&["one.example"]);
    let (release, released) = channel::<()>();
    let (released, begun) = (Arc::new(Mutex::new(released)), Arc::new(AtomicUsize::new(0)));
    let count = begun.clone();
    let service = Service::start(move |request| {
        if request["recipient"].starts_with("slow") {
            count.fetch_add(1, Ordering::Relaxed);
            // Until the test is over.
            let _ = released.lock().expect("nobody panics").recv();
        }
        "action=DUNNO\n\n".to_owned()
    });
    let server = server(&lab, &service.section(""));
    let waiting: Vec<Smtp> = (0..70)
        .map(|_| {
            let mut client = stranger(&server);
            client.raw(b"RCPT TO:<slow@one.example>\r\n");
            client
        })
        .collect();
    // Until no more of them are asked about.
    let mut before = 0;
    while before < 16 || before < begun.load(Ordering::Relaxed) {
        before = begun.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(before, 16, "a quarter of all places");
    let mut other = server.connect_from("127.0.0.3").greeted();
    other.cmd("MAIL FROM:<a@b.example>").expect(250);
    assert!(heard(&mut other, "ann").starts_with("250"));
    drop((release, waiting));
}

#[test]
fn services_that_are_silent_together_longer_than_a_decision_may_take_count_by_their_default() {
    let lab = TestLab::sites(&["one.example"]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let sections: String = ["one", "two"]
        .map(|name| {
            format!(
                "[policy_services.{name}]\naddress = \"inet:{address}\"\ntimeout_s = 20\ndefault_action = \"DUNNO\"\n\
                 [[rules]]\npolicy_service = \"{name}\"\n"
            )
        })
        .concat();
    let server = server(&lab, &sections);
    assert!(heard(&mut stranger(&server), "ann").starts_with("250"));
}

/// A message for these recipients; the reply to its data.
fn sent(server: &Server, recipients: &[&str], content: &[u8]) -> (u16, String) {
    let mut client = stranger(server);
    for recipient in recipients {
        assert!(heard(&mut client, recipient).starts_with("250"), "{recipient}");
    }
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(content));
    let reply = client.reply();
    (reply.code, reply.lines.join("\n"))
}

#[test]
fn a_whole_message_is_asked_about_once_and_has_one_answer() {
    let lab = TestLab::sites(&["one.example"]);
    let service = Service::start(|request| {
        let action = match (request["recipient_count"].as_str(), request["size"].parse().unwrap_or(0)) {
            (_, 5_000..) => "REJECT too many octets today",
            ("3", _) => "HOLD three are many",
            ("1", _) => "PREPEND X-Throttle: passed",
            _ => "DUNNO",
        };
        format!("action={action}\n\n")
    });
    let server = server(&lab, &service.section("at = \"end_of_data\""));
    let (code, text) = sent(&server, &["ann"], &message("one@test", "x"));
    assert_eq!(code, 250, "{text}");
    let asked = service.asked.recv().expect("it was asked");
    for (name, value) in [
        ("protocol_state", "END-OF-MESSAGE"),
        ("recipient", "ann@one.example"),
        ("recipient_count", "1"),
        ("sender", "a@b.example"),
        ("client_address", "127.0.0.2"),
        ("request", "smtpd_access_policy"),
    ] {
        assert_eq!(asked.get(name).map(String::as_str), Some(value), "{name}");
    }
    let wire = message("one@test", "x");
    assert_eq!(asked["size"], wire.len().to_string(), "as it came, not as MAIL declared it");
    server.wait_empty();
    let copy = String::from_utf8(lab.body_for("ann@one.example")).expect("a text");
    assert!(copy.starts_with("X-Throttle: passed\r\n"), "{copy}");

    assert_eq!(sent(&server, &["ann", "bob"], &message("two@test", "x")).0, 250);
    let asked = service.asked.recv().expect("it was asked");
    assert_eq!((asked["recipient"].as_str(), asked["recipient_count"].as_str()), ("", "2"));
    assert!(service.asked.try_recv().is_err(), "once for the message");

    let large = message("large@test", &"a line of words\r\n".repeat(500));
    assert_eq!(sent(&server, &["ann", "bob"], &large), (554, "5.7.1 too many octets today".to_owned()));
    server.log().wait_nth(&["policy service judge", "554 5.7.1 too many octets today"], 1);

    assert_eq!(sent(&server, &["ann", "bob", "cy"], &message("held@test", "x")).0, 250);
    server.log().wait_nth(&["three are many"], 1);
    lab.wait("nothing for who waits", |book| book.copies_to("cy@one.example").is_empty());
}

#[test]
fn a_service_is_asked_only_about_content_that_its_rule_is_about_and_its_failure_defers() {
    let lab = TestLab::sites(&["one.example"]);
    let service = Service::start(|_| String::new());
    let rule = service.section("at = \"end_of_data\"") + "subject = \"offer\"\n";
    let server = server(&lab, &rule);
    let offer = b"Subject: an offer\r\nMessage-ID: <offer@test>\r\n\r\nx\r\n";
    let (code, text) = sent(&server, &["ann"], offer);
    assert_eq!((code, text.starts_with("4.3.0 Policy service")), (451, true), "{text}");
    assert!(service.asked.try_iter().count() > 0);
    assert_eq!(sent(&server, &["ann"], &message("plain@test", "x")).0, 250);
    assert_eq!(service.asked.try_iter().count(), 0, "its rule is about other messages");
}
