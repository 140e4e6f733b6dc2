//! Other people's clients, and real-world messages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use stentor_harness::{Server, TestLab, message, wait_until};

/// A client of the system; `testing/install.sh` puts them there.
fn client(name: &str) -> Command {
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/bin";
    let path = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.exists());
    Command::new(path.unwrap_or_else(|| panic!("{name} is not installed: run testing/install.sh")))
}

fn python(script: &str) -> Command {
    let mut command = client("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/").to_owned() + script);
    command
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("the client can be run");
    assert!(output.status.success(), "{output:?}");
    output
}

const SUBSCRIBERS: [&str; 2] = ["ann@one.example", "bob@two.example"];

fn started() -> (TestLab, Server) {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = Server::builder().lab(&lab).list("news", &SUBSCRIBERS).start();
    (lab, server)
}

#[test]
fn swaks() {
    let (lab, server) = started();
    for (id, more) in
        [("swaks-1@test", &[][..]), ("swaks-2@test", &["--pipeline"]), ("swaks-3@test", &["--protocol", "SMTP"])]
    {
        run(client("swaks")
            .args(["--server", "127.0.0.1", "--port", &server.address().port().to_string()])
            .args(["--from", "me@home.example", "--to", "news@lists.test", "--ehlo", "swaks.example"])
            .args(["--header", &format!("Message-Id: <{id}>"), "--body", "hello\\n.\\n..bye"])
            .args(more));
        lab.wait_clean(id, &SUBSCRIBERS);
    }
    let copy = lab.recorder().copies_to("ann@one.example").remove(0).body.expect("the lab keeps bodies");
    let text = String::from_utf8_lossy(&copy);
    assert!(text.contains("\r\n\r\nhello\r\n.\r\n..bye\r\n") && text.starts_with("List-Id: "), "{text}");
    // What is refused is reported to the client.
    let output = client("swaks")
        .args(["--server", "127.0.0.1", "--port", &server.address().port().to_string()])
        .args(["--from", "me@home.example", "--to", "nobody@lists.test"])
        .output()
        .expect("swaks can be run");
    assert_eq!(output.status.code(), Some(24), "{output:?}");
}

#[test]
fn smtplib_with_a_message_of_its_own() {
    let (lab, server) = started();
    run(python("email_message.py").arg(server.address().port().to_string()).arg("news@lists.test"));
    lab.wait_clean("python@test", &SUBSCRIBERS);
}

#[test]
fn smtp_source() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder().lab(&lab).start();
    let to = format!("127.0.0.1:{}", server.address().port());
    let mut expected = 0;
    for more in [&["-d"][..], &[], &["-r", "5", "-d"]] {
        run(client("smtp-source")
            .args(["-s", "10", "-m", "200", "-l", "4096", "-f", "me@home.example", "-t", "ann@one.example"])
            .args(more)
            .arg(&to));
        expected += 200 * if more.contains(&"-r") { 5 } else { 1 };
    }
    lab.wait_copies(expected);
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, expected);
    assert_eq!(server.fates()["delivered"], expected);
    lab.assert_no_violations();
}

/// The messages of the mail-parser crate, which comes with the workspace's dependencies.
fn mail_parser_messages() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        // Other platforms' dependencies need not have been fetched.
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs the tests, so it can be run");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "mail-parser").expect("a dependency");
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let mut found = Vec::new();
    let mut folders = vec![manifest.with_file_name("resources")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("it can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "eml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// As a client puts it on the wire: CRLF lines, the last one ended.
fn wire_form(file: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(file.len() + file.len() / 20);
    for (at, byte) in file.iter().enumerate() {
        match byte {
            b'\r' if file.get(at + 1) == Some(&b'\n') => {}
            b'\r' | b'\n' => wire.extend_from_slice(b"\r\n"),
            _ => wire.push(*byte),
        }
    }
    if !wire.ends_with(b"\r\n") {
        wire.extend_from_slice(b"\r\n");
    }
    wire
}

/// What stands before the original must be our fields, whole, and nothing else.
fn is_ours(added: &[u8]) -> bool {
    let text = String::from_utf8_lossy(added).replace("\r\n\t", " ").replace("\r\n ", " ");
    let names: Vec<&str> = text.lines().map(|line| line.split(':').next().unwrap_or_default()).collect();
    names == ["List-Id", "List-Post", "Precedence", "Received"] && text.ends_with("\r\n")
}

/// Whether the copy has the body of the original behind a header from which the list took fields (Bcc, Return-Path, its
/// own) or to which it added what was missing (Date, Message-ID).
fn has_other_fields(copy: &[u8], original: &[u8]) -> bool {
    let body = |octets: &[u8]| octets.windows(4).position(|four| four == b"\r\n\r\n").map(|at| octets[at..].to_vec());
    let header_differs = !copy.ends_with(original);
    header_differs && body(original).is_some_and(|text| body(copy).as_ref() == Some(&text))
}

#[test]
fn every_message_of_mail_parser_through_a_list() {
    let files = mail_parser_messages();
    // All that the published crate holds.
    assert!(files.len() >= 107, "{} messages", files.len());
    let (lab, server) = started();
    let mut originals = Vec::new();
    let mut names = String::new();
    for (n, file) in files.iter().enumerate() {
        let wire = wire_form(&std::fs::read(file).expect("it can be read"));
        let name = format!("{n}.eml");
        server.write(&name, &wire);
        names.push_str(&format!("{}\n", server.path(&name).display()));
        originals.push(wire);
    }
    // By DATA, as smtplib does ...
    let mut command = python("send_all.py");
    command.arg(server.address().port().to_string()).args(["me@home.example", "news@lists.test"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python runs");
    child.stdin.take().expect("it is piped").write_all(names.as_bytes()).expect("python reads");
    let output = child.wait_with_output().expect("python ends");
    let replies = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{replies}");
    let replies: Vec<&str> = replies.lines().map(|line| line.split_once('\t').expect("two columns").1).collect();
    assert_eq!(replies.len(), originals.len());
    // ... and by BDAT.
    let mut session = server.smtp();
    let mut expected = Vec::new();
    for ((wire, reply), file) in originals.iter().zip(&replies).zip(&files) {
        session.cmd("MAIL FROM:<me@home.example> BODY=8BITMIME").expect(250);
        session.cmd("RCPT TO:<news@lists.test>").expect(250);
        session.raw(format!("BDAT {} LAST\r\n", wire.len()).as_bytes());
        session.raw(wire);
        let again = session.reply();
        let is_reply = String::from_utf8_lossy(wire).to_ascii_lowercase().contains("auto-submitted: auto-replied");
        if is_reply {
            assert!(reply.starts_with("550 5.7.1") && again.code == 550, "{}: {reply}, {again}", file.display());
        } else {
            assert!(reply.starts_with("250") && again.code == 250, "{}: {reply}, {again}", file.display());
            expected.push(wire);
        }
    }
    let copies = expected.len() as u64 * 2 * SUBSCRIBERS.len() as u64;
    lab.wait_copies(copies);
    server.wait_empty();
    lab.assert_no_violations();
    assert_eq!(lab.recorder().stats().recipients, copies);
    for subscriber in SUBSCRIBERS {
        let mut left: Vec<_> = lab.recorder().copies_to(subscriber);
        for wire in &expected {
            for _ in 0..2 {
                let is_copy = |copy: &stentor_lab::recorder::Copy| {
                    let body = copy.body.as_deref().expect("the lab keeps bodies");
                    body.strip_suffix(&wire[..]).is_some_and(is_ours) || has_other_fields(body, wire)
                };
                let at = left.iter().position(is_copy);
                let text = String::from_utf8_lossy(&wire[..wire.len().min(300)]);
                left.swap_remove(at.unwrap_or_else(|| panic!("no copy of:\n{text}")));
            }
        }
        assert!(left.is_empty());
    }
}

#[test]
fn a_plain_client_without_esmtp() {
    let (lab, server) = started();
    let mut client = server.connect();
    client.reply().expect(220);
    client.cmd("HELO old.example").expect(250);
    let wire = message("old@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<news@lists.test>").expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(&wire));
    client.reply().expect(250);
    client.quit();
    lab.wait_clean("old@test", &SUBSCRIBERS);
    wait_until("the session is over", || server.status()["connections_in"] == 0);
}
