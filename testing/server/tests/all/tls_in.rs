//! TLS of clients: STARTTLS and TLS from the first octet, with openssl and Python's ssl at the other end.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use stentor_harness::{Builder, Server, TestLab, message, wait_until};

/// Plays steps of a session; what it prints.
pub fn session(port: u16, steps: &[&str]) -> Vec<String> {
    session_with(port, &[], steps)
}

pub fn session_with(port: u16, options: &[&str], steps: &[&str]) -> Vec<String> {
    let output = command(port, options, steps).stdin(Stdio::null()).output().expect("python3 runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

pub fn command(port: u16, options: &[&str], steps: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/tls_session.py"));
    command.args(options).arg(port.to_string()).args(steps);
    command
}

/// Codes of the final lines of replies.
pub fn codes(lines: &[String]) -> Vec<&str> {
    lines
        .iter()
        .filter(|line| line.as_bytes().get(3) == Some(&b' '))
        .map(|line| &line[..3])
        .filter(|code| *code != "tls")
        .collect()
}

fn builder(lab: &TestLab) -> Builder {
    Server::builder().lab(lab).list("news", &["ann@one.example"])
}

/// A certificate for this name, signed by itself or by this one.
pub fn certificate(folder: &Path, name: &str, signer: Option<&str>) {
    let at = |end: &str| folder.join(format!("{name}{end}")).display().to_string();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "30",
    ]);
    openssl.args(["-subj", &format!("/CN={name}"), "-addext", &format!("subjectAltName=DNS:{name}")]);
    openssl.args(["-keyout", &at(".key"), "-out", &at(".pem")]);
    if let Some(signer) = signer {
        let of = |end: &str| folder.join(format!("{signer}{end}")).display().to_string();
        openssl.args(["-CA", &of(".pem"), "-CAkey", &of(".key"), "-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    let output = openssl.stdin(Stdio::null()).output().expect("openssl runs");
    assert!(output.status.success(), "{output:?}");
}

/// The hash of a certificate's DER, as `@certificate` shows it.
fn fingerprint(file: &Path) -> String {
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &file.display().to_string()])
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
    let hash = text.trim().rsplit_once('=').expect("a fingerprint").1.replace(':', "");
    format!("certificate {hash}")
}

#[test]
fn starttls_is_there_from_the_first_minute() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    let port = server.address().port();
    let wire = message("starttls@test", "x");
    lab.recorder().expect_message(wire.into());
    let text = "Message-Id: <tls@test>\\r\\nSubject: x\\r\\n\\r\\nx";
    let steps = [
        "EHLO c.example",
        "@starttls",
        "EHLO c.example",
        "MAIL FROM:<me@home.example>",
        "RCPT TO:<news@lists.test>",
        &format!("@message:{text}"),
        "QUIT",
    ];
    let said = session(port, &steps);
    assert!(said.contains(&"250-STARTTLS".to_owned()), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.contains("STARTTLS")).count(), 1, "not again in TLS: {said:?}");
    assert_eq!(codes(&said), ["220", "250", "220", "250", "250", "250", "354", "250", "221"], "{said:?}");
    lab.wait_clean("tls@test", &["ann@one.example"]);
    let copy = lab.recorder().copies_to("ann@one.example").remove(0).body.expect("the lab keeps bodies");
    let text = String::from_utf8_lossy(&copy).replace("\r\n\t", " ");
    assert!(text.contains(" with ESMTPS (TLS1.3 TLS_AES_128_GCM_SHA256) id "), "{text}");
    server.wait_log(&["from=<me@home.example>", "tls="]);
    // Certificate and key stay over a restart.
    let folder = server.path("data/tls");
    assert!(folder.is_dir(), "{}", folder.display());
}

#[test]
fn openssl_talks_to_it() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).set("http.listen", "[\"127.0.0.1:0\"]").start();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut client = Command::new("openssl")
            .args(["s_client", "-starttls", "smtp", "-crlf", "-quiet", version, "-connect"])
            .arg(server.address().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let mut stdin = client.stdin.take().expect("it is piped");
        stdin.write_all(b"EHLO openssl.example\nNOOP\nQUIT\n").expect("it takes input");
        let output = client.wait_with_output().expect("openssl ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("250 2.0.0 Ok") && text.contains("221 2.0.0 Bye"), "{version}: {text}");
    }
    // Older ones are nobody's.
    let output = Command::new("openssl")
        .args(["s_client", "-starttls", "smtp", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-connect"])
        .arg(server.address().to_string())
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("Cipher is ECDHE"), "{output:?}");
    assert_eq!(server.smtp().cmd("NOOP").code, 250);
    // Who reads the counts is to know how many would be lost with a newer client alone.
    wait_until("it is counted by its cause", || {
        let text = server.http_get("/metrics").expect(200).text();
        text.contains("stentor_client_tls_failures_total{cause=\"no-shared-version\"} 1\n")
    });
}

#[test]
fn nothing_that_came_in_clear_survives() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    let port = server.address().port();
    // In the same segment: closed, and nothing is read of it.
    let injected = "@raw:EHLO c\\r\\nSTARTTLS\\r\\nMAIL FROM:<evil@x.example>\\r\\nRCPT TO:<news@lists.test>\\r\\n";
    let said = session(port, &[injected, "@rest"]);
    assert!(said.iter().any(|line| line.starts_with("554 5.5.0 ")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("250 2.1")), "{said:?}");
    // Behind the 220: taken for a handshake, which it is not.
    let said = session(port, &["EHLO c", "STARTTLS", "@raw:MAIL FROM:<evil@x.example>\\r\\n", "@rest"]);
    assert!(!said.iter().any(|line| line.starts_with("250 2.1")), "{said:?}");
    // And what the session knew is forgotten.
    let steps = [
        "EHLO c",
        "MAIL FROM:<me@home.example>",
        "RCPT TO:<news@lists.test>",
        "@starttls",
        "RCPT TO:<news@lists.test>",
        "DATA",
        "MAIL FROM:<me@home.example>",
        "STARTTLS",
        "EHLO c",
        "MAIL FROM:<me@home.example>",
    ];
    let said = session(port, &steps);
    assert_eq!(codes(&said)[4..], ["220", "503", "503", "503", "503", "250", "250"], "{said:?}");
    let held = server.queue();
    assert_eq!(held["messages"].as_array().map_or(0, Vec::len), 0, "{held}");
}

#[test]
fn a_handshake_that_fails_or_hangs_harms_nobody() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).set("listen.command_timeout_s", "5").start();
    let mut hanging = server.smtp();
    hanging.cmd("EHLO c").expect(250);
    hanging.cmd("STARTTLS").expect(220);
    let mut garbage = server.smtp();
    garbage.cmd("STARTTLS").expect(220);
    garbage.raw(&[0x16, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert_eq!(
        session(server.address().port(), &["EHLO c", "@starttls", "NOOP", "QUIT"]).last().unwrap(),
        "221 2.0.0 Bye"
    );
    // Closed by the deadline, with nothing in clear behind the 220.
    hanging.rest();
    garbage.rest();
}

/// Each is counted, and however many there are, few lines say so.
#[test]
fn handshakes_that_fail_are_counted_and_seldom_logged() {
    const FAILED: u64 = 30;
    let server = Server::builder().set("http.listen", "[\"127.0.0.1:0\"]").start();
    for _ in 0..FAILED {
        let mut client = server.smtp();
        client.cmd("STARTTLS").expect(220);
        client.raw(b"MAIL FROM:<a@b.example>\r\n");
        client.rest();
    }
    let line = server.wait_log(&["INFO a client's TLS handshake failed", "client=127.0.0.1", "cause=\"not-tls\""]);
    assert!(line.contains("times=1 ") && line.contains("error=the peer does not speak TLS"), "{line}");
    wait_until("all are counted", || {
        let text = server.http_get("/metrics").expect(200).text();
        text.contains(&format!("stentor_client_tls_failures_total{{cause=\"not-tls\"}} {FAILED}\n"))
    });
    let lines = server.log().matching(&["a client's TLS handshake failed"]).len() as u64;
    assert!(lines < FAILED / 2, "{lines}");
}

/// Sessions that are open while a certificate is replaced.
const SESSIONS: usize = 200;

#[test]
fn certificates_by_name_and_replaced_under_open_sessions() {
    let lab = TestLab::sites(&["one.example"]);
    let prepared = builder(&lab).prepare();
    let folder = prepared.folder().to_owned();
    for name in ["mx.test", "other.test", "new.test"] {
        certificate(&folder, name, None);
    }
    prepared.edit_config(|text| {
        let of = |name: &str| format!("[[tls.certificates]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n");
        format!("{text}\n{}{}", of("mx.test"), of("other.test"))
    });
    let server = prepared.run();
    let port = server.address().port();
    let shown =
        |name: &str| session_with(port, &["--name", name], &["EHLO c", "@starttls", "@certificate"]).pop().unwrap();
    assert_eq!(shown("mx.test"), fingerprint(&folder.join("mx.test.pem")));
    assert_eq!(shown("other.test"), fingerprint(&folder.join("other.test.pem")));
    assert_eq!(shown("unknown.test"), fingerprint(&folder.join("mx.test.pem")), "the first is the default");
    let steps = ["EHLO c", "@starttls", "EHLO c", "@wait", "MAIL FROM:<me@home.example>", "NOOP", "QUIT"];
    let sessions = ["--sessions", &SESSIONS.to_string()];
    let mut open = command(port, &sessions, &steps).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(open.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line == "waiting"), "they are all there");
    for end in [".pem", ".key"] {
        std::fs::rename(folder.join(format!("new.test{end}")), folder.join(format!("mx.test{end}"))).unwrap();
    }
    server.signal(Signal::HUP);
    server.wait_log(&["configuration reloaded"]);
    assert_eq!(shown("mx.test"), fingerprint(&folder.join("mx.test.pem")), "the new one");
    open.stdin.take().unwrap().write_all(b"\n").unwrap();
    let rest: Vec<String> = said.collect();
    assert_eq!(codes(&rest), [["250"; SESSIONS], ["250"; SESSIONS], ["221"; SESSIONS]].concat(), "none is dropped");
    open.wait().unwrap();
    // A broken one leaves those in force.
    std::fs::write(folder.join("mx.test.key"), "no key").unwrap();
    server.signal(Signal::HUP);
    server.wait_log(&["mx.test.key"]);
    assert_eq!(codes(&session(port, &["EHLO c", "@starttls", "NOOP"])), ["220", "250", "220", "250"]);
}

/// Clients know the server by its `hostname`: the MX record has it.
#[test]
fn a_certificate_for_another_name_is_named() {
    let server = crate::kit::bare().prepare();
    let folder = server.folder().to_owned();
    certificate(&folder, "other.test", None);
    certificate(&folder, "mx.test", None);
    let of = |name: &str| format!("\n[[tls.certificates]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n");
    server.edit_config(|text| format!("{text}{}", of("other.test")));
    let no_name = "no certificate covers `hostname` `mx.test`";
    for command in ["check", "doctor"] {
        let said = server.operator_text(&[command]);
        assert!(said.contains(no_name) && said.contains("names covered: `other.test`"), "{command}: {said}");
    }
    server.edit_config(|text| format!("{text}{}", of("mx.test")));
    let said = server.operator_text(&["check"]);
    assert!(!said.contains("no certificate covers"), "{said}");
}

#[test]
fn a_broken_certificate_refuses_the_start() {
    let mut prepared = Server::builder().file("x.pem", b"nothing").prepare();
    prepared.edit_config(|text| format!("{text}\n[[tls.certificates]]\nchain = \"x.pem\"\nkey = \"absent.key\"\n"));
    let command = prepared.command();
    let log = prepared.try_start_as(command).unwrap_err();
    assert!(log.contains("stentor.toml:") && log.contains("x.pem"), "{log}");
}

#[test]
fn the_oldest_version_is_configured() {
    let server = Server::builder().set_in("tls", "min_version", "\"1.3\"").start();
    let port = server.address().port();
    let said = session_with(port, &["--tls12"], &["EHLO c", "@starttls", "NOOP"]);
    assert!(said.last().unwrap().starts_with("broken "), "{said:?}");
    assert_eq!(session(port, &["EHLO c", "@starttls", "NOOP"]).last().unwrap(), "250 2.0.0 Ok");
}

/// What rules ask of clients is asked for those too that an alias stands for.
#[test]
fn who_is_trusted_by_a_certificate_is_so_for_an_aliases_people() {
    let lab = TestLab::start("[[site]]\nname = 'one.example'\n[[site]]\nname = 'gate.example'\nrelay = true\n");
    let prepared = builder(&lab).set("client_networks", "[\"192.0.2.1\"]").list("news", &[]).prepare();
    let folder = prepared.folder().to_owned();
    certificate(&folder, "ca.test", None);
    certificate(&folder, "app.test", Some("ca.test"));
    let both = [".pem", ".key"].map(|end| std::fs::read(folder.join(format!("app.test{end}"))).unwrap()).concat();
    std::fs::write(folder.join("app.test.both"), both).unwrap();
    prepared.edit_config(|text| {
        format!(
            "{text}\n[tls]\nclient_ca_file = \"ca.test.pem\"\nclient_certificates = [\"app.test\"]\n\
             [aliases]\n\"team@lists.test\" = [\"ann@one.example\"]\n\
             [[rules]]\ntrusted = true\nrecipient = \"one.example\"\ndo = \"route mx:gate.example\"\n"
        )
    });
    let server = prepared.run();
    let file = folder.join("app.test.both").display().to_string();
    let steps = ["EHLO c", "@starttls", "EHLO c", "MAIL FROM:<me@home.example>", "RCPT TO:<team@lists.test>"];
    let steps = [&steps[..], &["@message:Subject: x\\r\\n\\r\\nx", "QUIT"]].concat();
    session_with(server.address().port(), &["--certificate", &file], &steps);
    let sent = server.wait_log(&["to=<ann@one.example>", "stat=Sent"]);
    assert!(sent.contains("relay=mx1.gate.example"), "{sent}");
}

#[test]
fn a_client_is_trusted_by_its_certificate() {
    let lab = TestLab::sites(&["one.example"]);
    let prepared = builder(&lab).set("client_networks", "[\"192.0.2.1\"]").prepare();
    let folder = prepared.folder().to_owned();
    certificate(&folder, "ca.test", None);
    let ca = Some("ca.test");
    for (name, signer) in
        [("app.test", ca), ("other.test", ca), ("forged.test", None), ("a.b.partner.test", ca), ("partner.test", ca)]
    {
        certificate(&folder, name, signer);
        let both = [".pem", ".key"].map(|end| std::fs::read(folder.join(format!("{name}{end}"))).unwrap()).concat();
        std::fs::write(folder.join(format!("{name}.both")), both).unwrap();
    }
    prepared.edit_config(|text| {
        format!(
            "{text}\n[tls]\nclient_ca_file = \"ca.test.pem\"\nclient_certificates = [\"app.test\", \"forged.test\", \".Partner.test\"]\n"
        )
    });
    let server = prepared.run();
    let port = server.address().port();
    let relays = |file: &str| {
        let file = folder.join(file).display().to_string();
        let steps = ["EHLO c", "@starttls", "EHLO c", "MAIL FROM:<me@home.example>", "RCPT TO:<bob@one.example>"];
        codes(&session_with(port, &["--certificate", &file], &steps)).last().unwrap().to_string()
    };
    assert_eq!(relays("app.test.both"), "250");
    assert_eq!(relays("other.test.both"), "550");
    assert_eq!(relays("forged.test.both"), "550", "not of this CA");
    assert_eq!(relays("a.b.partner.test.both"), "250");
    assert_eq!(relays("partner.test.both"), "550", "it is not below itself");
    // Why, for who reads the log.
    for (name, why) in [
        ("other.test", "it is not listed in `client_certificates`"),
        ("forged.test", "the certificate of forged.test is self-signed"),
    ] {
        let ignored = format!("login or certificate; its certificate ({name}) was ignored: {why}");
        server.wait_log(&["ruleset=check_rcpt", &ignored]);
    }
    for name in ["a.b.partner.test", "app.test"] {
        let file = folder.join(format!("{name}.both")).display().to_string();
        let steps = ["EHLO c", "@starttls", "EHLO c", "MAIL FROM:<me@home.example>", "RCPT TO:<bob@one.example>"];
        let steps = [&steps[..], &["@message:Subject: x\\r\\n\\r\\nx", "QUIT"]].concat();
        let said = session_with(port, &["--certificate", &file], &steps);
        assert!(codes(&said).ends_with(&["250", "221"]), "{said:?}");
        let certified = format!("client certificate {name}");
        server.wait_log(&["from=<me@home.example>", "tls=", &format!("marks={certified}")]);
        wait_until("the trace has it", || {
            let output = server.operator(&["trace", "bob@one.example"]);
            String::from_utf8_lossy(&output.stdout).contains(&format!("relay: {certified}"))
        });
    }
}
