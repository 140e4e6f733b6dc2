//! Lines over 998 octets (RFC 5321 section 4.5.3.1.6): no host gets one, whatever it offers and whatever made the mail.

use mail_parser::MessageParser;
use stentor_harness::wait_until;

use crate::kit::{bare, drained};
use crate::scribe::Scribe;

fn long(word: &str, octets: usize) -> String {
    word.repeat(octets / word.len() + 1)
}

/// Every line of every content is short.
#[track_caller]
fn assert_short(scribe: &Scribe) -> Vec<Vec<u8>> {
    let contents = scribe.contents();
    for content in &contents {
        let longest = content.split(|b| *b == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        assert!(longest <= 999, "{longest} octets: {}", String::from_utf8_lossy(content));
    }
    contents
}

/// Subject and texts, as a reader shows them.
fn read(content: &[u8]) -> (String, Vec<String>) {
    let message = MessageParser::default().parse(content).expect("a message");
    let texts = (0..).map_while(|n| message.body_text(n)).map(|text| text.replace("\r\n", "\n").trim_end().to_owned());
    (message.subject().unwrap_or_default().to_owned(), texts.collect())
}

#[test]
fn every_way_out_has_short_lines() {
    let offers = [
        &["PIPELINING", "8BITMIME", "SIZE 50000000"][..],
        &["PIPELINING", "8BITMIME", "CHUNKING", "SIZE 50000000"],
        &["SIZE 50000000"],
        &["CHUNKING", "SIZE 50000000"],
        &["8BITMIME", "SIZE 50000000"],
    ];
    let hosts: Vec<Scribe> = offers.iter().map(|offers| Scribe::start(offers, &[])).collect();
    let mut builder = bare();
    for (n, host) in hosts.iter().enumerate() {
        // The last speaks LMTP.
        let by = if n == offers.len() - 1 { "lmtp:" } else { "" };
        builder = builder.route(&format!("host{n}.example"), &[&format!("{by}{}", host.host())]);
    }
    let server = builder.start();
    let to: Vec<String> = (0..hosts.len()).map(|n| format!("bob@host{n}.example")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    // Small ones are sent from memory, large ones as they are read from the journal.
    let subject = long("word ", 3_000);
    let bodies = [
        ("text/plain; charset=utf-8", long("x", 999)),
        ("text/html", format!("<p>{}</p>", long("word ", 100_000))),
        ("text/plain; charset=utf-8", format!("{}\n{}", long("Gr\u{fc}\u{df}e ", 40_000), long("=", 2_000))),
    ];
    for (n, (kind, body)) in bodies.iter().enumerate() {
        let wire = format!(
            "Message-ID: <{n}@test>\r\nSubject: {}\r\nMIME-Version: 1.0\r\nContent-Type: {kind}\r\n\r\n{}\r\n",
            subject.trim_end(),
            body.replace('\n', "\r\n"),
        );
        server.smtp().send("", &to, wire.as_bytes()).expect(250);
        assert_eq!(drained(&server).delivered as usize, to.len() * (n + 1));
        for host in &hosts {
            let contents = assert_short(host);
            let (mut expected, got) = (read(wire.as_bytes()), read(&contents[n]));
            expected.0 = subject.trim_end().to_owned();
            assert_eq!(got, expected);
        }
        // The octets that MAIL names are those that come.
        for (host, contents) in hosts.iter().map(|host| (host, host.contents())).take(4) {
            let size = format!("SIZE={}", contents[n].len());
            assert!(host.heard("MAIL")[n].split(' ').any(|word| word == size), "{size} {:?}", host.heard("MAIL"));
        }
        let trace = || String::from_utf8(server.operator(&["trace", &format!("<{n}@test>")]).stdout).expect("text");
        wait_until("the trace says so of each delivery", || {
            trace().matches("lines over 998 octets re-encoded").count() == to.len()
        });
    }
    // Beside it, what has short lines goes as it came.
    server.smtp().send("", &to, b"Message-ID: <short@test>\r\nSubject: x\r\n\r\nshort\r\n").expect(250);
    drained(&server);
    let last = hosts[0].contents().pop().expect("a copy");
    assert!(String::from_utf8_lossy(&last).contains("\r\nSubject: x\r\n") && last.ends_with(b"\r\n\r\nshort\r\n"));
    let trace = || String::from_utf8(server.operator(&["trace", "<short@test>"]).stdout).expect("text");
    wait_until("the trace has all deliveries", || trace().matches("after acceptance").count() == to.len());
    assert!(!trace().contains("re-encoded"), "{}", trace());
}

/// A report of ours with what it returns: lost, nobody would ever hear of it.
#[test]
fn reports_have_short_lines() {
    let refusing = Scribe::start(&["8BITMIME"], &[("RCPT", "550 5.1.1 no such user")]);
    let back = Scribe::start(&["PIPELINING"], &[]);
    let server = bare().route("gone.example", &[&refusing.host()]).route("sender.example", &[&back.host()]).start();
    let header = format!(
        "X-Token: {}\r\nReferences: {}\r\nX-Words: {}\r\nX-Utf8: {}\r\n",
        long("t", 5_000),
        long("<a@b.example> ", 2_000),
        long("word ", 2_000),
        long("\u{e9}", 2_000),
    );
    let wire = format!("{header}Subject: x\r\nMessage-ID: <b@test>\r\n\r\n{}\r\n", long("y", 5_000));
    server.smtp().send("ann@sender.example", &["bob@gone.example"], wire.as_bytes()).expect(250);
    drained(&server);
    let reports = assert_short(&back);
    let text = String::from_utf8_lossy(&reports[0]);
    assert!(reports.len() == 1 && text.contains("bob@gone.example") && text.contains("multipart/report"), "{text}");
    assert!(text.is_ascii(), "the host takes 7 bits alone");
}

/// What nobody on the way may encode (RFC 1847 section 2.1) is broken as by Postfix.
#[test]
fn signed_parts_are_broken_and_not_encoded() {
    let host = Scribe::start(&["8BITMIME", "CHUNKING"], &[]);
    let server = bare().set("listen.add_missing_headers", "false").route("host.example", &[&host.host()]).start();
    let line = long("s", 2_000);
    let wire = format!(
        "Message-ID: <s@test>\r\nContent-Type: multipart/signed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\n{line}\r\n--b\r\n\
         Content-Type: application/pgp-signature\r\n\r\nAAAA\r\n--b--\r\n"
    );
    server.smtp().send("", &["bob@host.example"], wire.as_bytes()).expect(250);
    drained(&server);
    let content = assert_short(&host).remove(0);
    let text = String::from_utf8(content).expect("text");
    assert!(text.contains(&format!("\r\n{}\r\n {}", &line[..998], &line[998..1_500])));
    assert!(text.replace("\r\n s", "s").ends_with(&wire), "{text}");
}
