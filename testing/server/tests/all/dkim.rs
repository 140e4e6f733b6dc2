//! DKIM (docs/operate/dkim.md): mail is signed as it leaves, and other people's programs verify it.

use std::path::{Path, PathBuf};
use std::process::Command;

use stentor_harness::{Builder, Server, TestLab, message, skipped, stentor, wait_until};

use crate::kit::{bare, builder, drained};
use crate::scribe::Scribe;
use crate::tls_in::{certificate, codes, session_with};

const AUTHOR: &str = "ann@example.org";

/// `stentor dkim new DOMAIN` in the server's folder; its section is added to the configuration.
pub(crate) fn add_keys(server: &Server, domain: &str, arguments: &[&str]) {
    let output = Command::new(stentor())
        .args(["dkim", "new", domain, "--dir"])
        .arg(server.folder())
        .args(arguments)
        .output()
        .expect("the binary can be run");
    let (records, section) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{section}");
    assert!(records.contains(&format!("._domainkey.{domain}. IN TXT ( \"v=DKIM1; k=")), "{records}");
    let (_, section) = section.split_once('\n').unwrap();
    server.edit_config(|text| format!("{text}\n{section}"));
}

fn signing(builder: Builder, domains: &[&str]) -> Server {
    let server = builder.prepare();
    for domain in domains {
        add_keys(&server, domain, &[]);
    }
    server.run()
}

#[test]
fn a_domain_that_signs_all_mail_proves_no_author_whom_anybody_can_name() {
    const TO: &str = "ann@one.example";
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).list("news", &[TO]).set("lists.news.rewrite_from", "\"never\"").prepare();
    add_keys(&server, "sig.example", &[]);
    server.edit_config(|text| format!("{text}\nevery = true\n"));
    let server = server.run();
    for (count, (client, from, is_signed)) in [
        ("127.0.0.2", "ed@sig.example", false),
        ("127.0.0.2", "ed@a.sig.example", false),
        ("127.0.0.2", "ed@other.example", true),
        ("127.0.0.1", "ed@sig.example", true),
    ]
    .into_iter()
    .enumerate()
    {
        let wire = format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n");
        server.connect_from(client).greeted().send(from, &["news@lists.test"], wire.as_bytes()).expect(250);
        lab.wait("a copy", |recorder| recorder.copies_to(TO).len() > count);
        let copies = lab.recorder().copies_to(TO);
        let copy = String::from_utf8_lossy(copies[count].body.as_ref().expect("the lab keeps bodies")).into_owned();
        assert_eq!(copy.contains("d=sig.example"), is_signed, "{client} {from}: {copy}");
    }
}

/// One signature of a message, as a verifier prints it.
type Verdict = String;

/// Programs that verify, with the algorithms that each knows.
struct Verifier {
    name: &'static str,
    algorithms: &'static [&'static str],
    verify: fn(&Path, &[PathBuf]) -> Option<Vec<Verdict>>,
}

const BOTH: &[&str] = &["rsa-sha256", "ed25519-sha256"];
const VERIFIERS: [Verifier; 3] = [
    Verifier { name: "dkimpy", algorithms: BOTH, verify: dkimpy },
    Verifier { name: "Mail::DKIM", algorithms: &["rsa-sha256"], verify: mail_dkim },
    Verifier { name: "OpenDKIM", algorithms: &["rsa-sha256"], verify: opendkim },
];

/// A program that runs scripts, how it tries a module, and the script.
struct ScriptRunner {
    program: &'static str,
    probe: [&'static str; 2],
    file: &'static str,
}

// Debian's Python, which has Debian's packages.
const DKIMPY: ScriptRunner =
    ScriptRunner { program: "/usr/bin/python3", probe: ["-c", "import dkim, nacl"], file: "verify.py" };
const MAIL_DKIM: ScriptRunner =
    ScriptRunner { program: "/usr/bin/perl", probe: ["-e", "use Mail::DKIM; use Net::DNS;"], file: "verify.pl" };

/// `None`: a module is missing.
fn script(runner: &ScriptRunner, records: &Path, messages: &[PathBuf]) -> Option<Vec<Verdict>> {
    let ScriptRunner { program, probe, file } = runner;
    if !Command::new(program).args(probe).output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dkim").join(file);
    let output = Command::new(program).arg(path).arg(records).args(messages).output().unwrap();
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn dkimpy(records: &Path, messages: &[PathBuf]) -> Option<Vec<Verdict>> {
    script(&DKIMPY, records, messages)
}

fn mail_dkim(records: &Path, messages: &[PathBuf]) -> Option<Vec<Verdict>> {
    script(&MAIL_DKIM, records, messages)
}

/// `opendkim -t` reports only whether a message has a good signature.
fn opendkim(records: &Path, messages: &[PathBuf]) -> Option<Vec<Verdict>> {
    let program = ["/usr/sbin/opendkim", "/usr/bin/opendkim"].into_iter().find(|path| Path::new(path).exists())?;
    let zone = std::fs::read_to_string(records).unwrap();
    let mut keys = String::new();
    for line in zone.lines() {
        let (name, strings) = line.split_once(". IN TXT ").unwrap();
        let text: String = strings.split('"').skip(1).step_by(2).collect();
        keys += &format!("{name} {text}\n");
    }
    let (keys_path, conf) = (records.with_extension("keys"), records.with_extension("conf"));
    std::fs::write(&keys_path, keys).unwrap();
    std::fs::write(&conf, format!("Mode v\nTestPublicKeys {}\n", keys_path.display())).unwrap();
    let verdict = |message: &PathBuf| {
        let output = Command::new(program).args(["-v", "-x"]).arg(&conf).arg("-t").arg(message).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let is_good = text.contains("verification") && text.contains("succeeded");
        format!("{} x rsa-sha256 {}", message.display(), if is_good { "pass" } else { text.trim() })
    };
    Some(messages.iter().map(verdict).collect())
}

/// A file with what `stentor dkim show` prints.
#[track_caller]
fn records(server: &Server) -> PathBuf {
    let path = server.path("records.zone");
    let shown = server.operator(&["dkim", "show"]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    std::fs::write(&path, &shown.stdout).unwrap();
    path
}

/// A file for each message.
fn files(server: &Server, contents: &[Vec<u8>]) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..contents.len()).map(|n| server.path(&format!("message{n}.eml"))).collect();
    for (path, content) in paths.iter().zip(contents) {
        std::fs::write(path, content).unwrap();
    }
    paths
}

/// Verifies messages with all programs that are installed: each has valid signatures of these domains, and no others.
#[track_caller]
pub(crate) fn assert_signed(server: &Server, contents: &[Vec<u8>], domains: &[&str]) {
    let (records, messages) = (records(server), files(server, contents));
    for Verifier { name, algorithms, verify } in VERIFIERS {
        let Some(verdicts) = verify(&records, &messages) else {
            skipped(&format!("{name} is not installed (testing/install.sh installs it)"));
            continue;
        };
        for (path, content) in messages.iter().zip(contents) {
            let shown = String::from_utf8_lossy(&content[..content.len().min(3_000)]);
            let of_message = |line: &&Verdict| line.starts_with(&format!("{} ", path.display()));
            let known = |line: &&Verdict| algorithms.iter().any(|one| line.contains(&format!(" {one} ")));
            let mut found: Vec<String> = verdicts.iter().filter(of_message).filter(known).cloned().collect();
            found.sort();
            assert!(found.iter().all(|line| line.ends_with(" pass")), "{name}: {found:?}\n{shown}");
            let per_domain = algorithms.len();
            let expected = if name == "OpenDKIM" { 1 } else { domains.len() * per_domain };
            assert_eq!(found.len(), expected, "{name}: {found:?}\n{shown}");
            if name == "dkimpy" {
                for domain in domains {
                    let of_domain = found.iter().filter(|line| line.contains(&format!(" {domain} "))).count();
                    assert_eq!(of_domain, per_domain, "{domain}: {found:?}\n{shown}");
                }
            }
        }
    }
}

/// Number of signatures in a header.
fn signatures(content: &[u8]) -> usize {
    let text = String::from_utf8_lossy(content);
    let header = text.split("\r\n\r\n").next().unwrap_or_default();
    header.lines().filter(|line| line.starts_with("DKIM-Signature:")).count()
}

#[test]
fn others_verify_every_form_of_a_message() {
    let full = Scribe::start(&["PIPELINING", "CHUNKING", "SIZE 50000000", "8BITMIME", "SMTPUTF8"], &[]);
    let dots = Scribe::start(&["PIPELINING", "SIZE 50000000", "8BITMIME"], &[]);
    let seven = Scribe::start(&["SIZE 50000000"], &[]);
    let store = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(
        bare()
            .route("full.example", &[&full.host()])
            .route("dots.example", &[&dots.host()])
            .route("seven.example", &[&seven.host()])
            .route("store.example", &[&format!("lmtp:{}", store.host())]),
        &["example.org"],
    );
    let from = format!("From: \"Ann Lee\"\r\n\t<{AUTHOR}>\r\nTo: bob@full.example,\r\n  cid@dots.example\r\n");
    let utf8 = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n";
    let wires = [
        format!("{from}Subject: plain\r\n\r\nHello\r\n"),
        format!("{from}Subject: empty\r\n\r\n"),
        format!("{from}Subject: blank tail\r\n\r\nHello \t there  \r\n\r\n \t\r\n\r\n"),
        format!("{from}Subject: blank\r\n\r\n\r\n \r\n\r\n"),
        format!("{from}Subject: dots\r\n\r\n.\r\n..\r\n.leading\r\n. \r\nend\r\n"),
        format!(
            "{from}Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n =?utf-8?q?_aus?=\r\n{utf8}\r\nGr\u{fc}\u{df}e =  \r\n.\r\n"
        ),
        format!("{from}Subject: large\r\n{utf8}\r\n{}", ".Gr\u{fc}\u{df}e  aus\tdem Norden \r\n\r\n".repeat(9_000)),
        format!("{from}Subject: long\r\n{utf8}\r\n{}\r\n", "Gr\u{fc}\u{df}e ".repeat(400)),
    ];
    let to = ["bob@full.example", "cid@dots.example", "dan@seven.example", "eve@store.example"];
    for (n, wire) in wires.iter().enumerate() {
        server.smtp().send(AUTHOR, &to, wire.as_bytes()).expect(250);
        assert_eq!(drained(&server).delivered as usize, to.len() * (n + 1));
    }
    for host in [&full, &dots, &seven] {
        let contents = host.contents();
        assert_eq!(contents.len(), wires.len());
        assert!(
            contents
                .iter()
                .all(|content| content.starts_with(b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed;"))
        );
        assert_signed(&server, &contents, &["example.org"]);
        // MAIL and BDAT name the octets that are sent.
        for (content, mail) in contents.iter().zip(host.heard("MAIL")) {
            let size = format!("SIZE={}", content.len());
            assert!(mail.split(' ').any(|word| word == size), "{size}: {mail}");
        }
    }
    assert!(seven.contents().iter().all(|content| content.is_ascii()));
    assert!(store.contents().iter().all(|content| signatures(content) == 0), "mail to LMTP hosts is not signed");
    for (content, bdat) in full.contents().iter().zip(full.heard("BDAT")) {
        assert_eq!(bdat, format!("BDAT {} LAST", content.len()));
    }
}

/// Octets over 127 in the header, without SMTPUTF8: such mail exists, and goes as it came.
#[test]
fn others_verify_eight_bit_headers() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(bare().route("host.example", &[&host.host()]), &["example.org"]);
    let wire =
        format!("From: Z\u{fc}rich <{AUTHOR}>\r\nSubject: Gr\u{fc}\u{df}e \t aus\r\n\tdem Norden\r\n\r\nHello\r\n");
    server.smtp().send(AUTHOR, &["bob@host.example"], wire.as_bytes()).expect(250);
    drained(&server);
    let contents = host.contents();
    assert!(String::from_utf8_lossy(&contents[0]).contains("Subject: Gr\u{fc}\u{df}e"));
    assert_signed(&server, &contents, &["example.org"]);
}

/// The header that hosts see is signed, by the domain that they see.
#[test]
fn generic_addresses_are_signed_as_they_leave() {
    let (host, seven) = (Scribe::start(&["PIPELINING", "8BITMIME"], &[]), Scribe::start(&[], &[]));
    let builder = bare().route("host.example", &[&host.host()]).route("seven.example", &[&seven.host()]);
    let server = builder.file("generic", b"ann@corp.internal ann.lee@isp.example\n").prepare();
    add_keys(&server, "isp.example", &[]);
    let table = format!("hash:{}", server.path("generic").display());
    server.edit_config(|text| {
        format!("{text}\n[tables.outside]\nsource = {table:?}\nas = \"generic\"\n[addresses]\ngeneric = \"outside\"\n")
    });
    let server = server.run();
    let wire =
        "From: ann@corp.internal\r\nSubject: x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nGr\u{fc}\u{df}e\r\n";
    server.smtp().send("ann@corp.internal", &["bob@host.example", "cid@seven.example"], wire.as_bytes()).expect(250);
    drained(&server);
    for host in [&host, &seven] {
        assert!(String::from_utf8_lossy(&host.contents()[0]).contains("From: ann.lee@isp.example"));
        assert_signed(&server, &host.contents(), &["isp.example"]);
    }
}

/// Transactions that begin together share the hash of the body, in each of its forms.
#[test]
fn copies_that_leave_together_are_all_signed() {
    let (eight, seven) = (Scribe::start(&["8BITMIME"], &[]), Scribe::start(&[], &[]));
    let mut builder = bare().set("delivery.recipients_per_transaction_max", "1");
    let mut to = Vec::new();
    for n in 0..12 {
        let domain = format!("d{n}.example");
        builder = builder.route(&domain, &[&if n % 2 == 0 { &eight } else { &seven }.host()]);
        to.push(format!("bob@{domain}"));
    }
    let server = signing(builder, &["example.org"]);
    let type_field = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let body = "Gr\u{fc}\u{df}e  aus dem Norden\r\n".repeat(20_000);
    let wire = format!("From: {AUTHOR}\r\nSubject: x\r\n{type_field}\r\n{body}");
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    server.smtp().send(AUTHOR, &to, wire.as_bytes()).expect(250);
    assert_eq!(drained(&server).delivered as usize, to.len());
    for host in [&eight, &seven] {
        assert!(host.contents().len() > 1, "several transactions");
        assert_signed(&server, &host.contents(), &["example.org"]);
    }
}

/// Else the verifiers would prove nothing.
#[test]
fn verifiers_notice_changes() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(bare().route("host.example", &[&host.host()]), &["example.org"]);
    let wire = format!("From: {AUTHOR}\r\nSubject: x\r\n\r\nHello\r\n");
    server.smtp().send(AUTHOR, &["bob@host.example"], wire.as_bytes()).expect(250);
    drained(&server);
    let signed = String::from_utf8(host.contents().remove(0)).unwrap();
    let changes = [("Hello", "Hallo"), ("Subject: x", "Subject: y"), ("From:", "To: new@x.example\r\nFrom:")];
    let changed = changes.map(|(from, to)| signed.replace(from, to).into_bytes());
    let (records, messages) = (records(&server), files(&server, &changed));
    for Verifier { name, algorithms, verify } in VERIFIERS {
        let Some(verdicts) = verify(&records, &messages) else { continue };
        let known = verdicts.iter().filter(|line| algorithms.iter().any(|one| line.contains(&format!(" {one} "))));
        let known: Vec<&String> = known.collect();
        assert!(known.len() >= messages.len(), "{name}: {verdicts:?}");
        assert!(known.iter().all(|line| !line.ends_with(" pass")), "{name}: {verdicts:?}");
    }
}

#[test]
fn copies_of_lists_are_signed_by_the_list_and_strangers_only_by_it() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(
        bare()
            .list("news", &["one@host.example", "two@host.example"])
            .set("lists.news.post", "\"anyone\"")
            .alias("team@lists.test", &["boss@host.example"])
            .route("host.example", &[&host.host()]),
        &["example.org", "lists.test"],
    );
    let wire = message("post@test", "A post");
    let wire = String::from_utf8(wire).unwrap();
    let body = wire.split_once("\r\n\r\n").unwrap().1;
    let wire =
        format!("Message-ID: <post@test>\r\nFrom: {AUTHOR}\r\nTo: news@lists.test\r\nSubject: A post\r\n\r\n{body}");
    server.smtp().send(AUTHOR, &["news@lists.test"], wire.as_bytes()).expect(250);
    drained(&server);
    let contents = host.contents();
    assert_eq!(contents.iter().map(|content| signatures(content)).collect::<Vec<_>>(), [4]);
    assert!(String::from_utf8_lossy(&contents[0]).contains("list-id:list-id"), "list fields are signed");
    assert_signed(&server, &contents, &["example.org", "lists.test"]);

    // Anyone can write this From: the author's domain does not answer for it.
    server
        .connect_from("127.0.0.2")
        .greeted()
        .send("x@elsewhere.example", &["news@lists.test"], wire.as_bytes())
        .expect(250);
    drained(&server);
    assert_signed(&server, &host.contents()[1..], &["lists.test"]);
    server
        .connect_from("127.0.0.2")
        .greeted()
        .send("x@elsewhere.example", &["team@lists.test"], wire.as_bytes())
        .expect(250);
    drained(&server);
    assert_eq!(signatures(&host.contents()[2]), 0);
}

/// The certificate is stored with the message as its origin; the address alone would not be trusted.
#[test]
fn clients_trusted_by_a_certificate_are_signed_for() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = bare().set("client_networks", "[\"192.0.2.1\"]").route("host.example", &[&host.host()]).prepare();
    add_keys(&server, "example.org", &[]);
    let folder = server.folder().to_owned();
    certificate(&folder, "ca.test", None);
    certificate(&folder, "app.test", Some("ca.test"));
    let both = [".pem", ".key"].map(|end| std::fs::read(folder.join(format!("app.test{end}"))).unwrap()).concat();
    let file = folder.join("app.test.both");
    std::fs::write(&file, both).unwrap();
    let certificates = "[tls]\nclient_ca_file = \"ca.test.pem\"\nclient_certificates = [\"app.test\"]\n";
    server.edit_config(|text| format!("{text}\n{certificates}"));
    let server = server.run();
    let file = file.display().to_string();
    for (n, from) in [AUTHOR, "ann@example.org."].into_iter().enumerate() {
        let content = format!("@message:From: {from}\\r\\nSubject: x\\r\\n\\r\\nx");
        let steps = ["EHLO c", "@starttls", "EHLO c", "MAIL FROM:<me@home.example>", "RCPT TO:<bob@host.example>"];
        let said = session_with(
            server.address().port(),
            &["--certificate", &file],
            &[&steps[..], &[content.as_str(), "QUIT"]].concat(),
        );
        assert!(codes(&said).ends_with(&["250", "221"]), "{said:?}");
        drained(&server);
        assert_eq!(signatures(&host.contents()[n]), 2, "{from}");
    }
}

#[test]
fn our_own_mail_is_signed() {
    let refusing = Scribe::start(&["8BITMIME"], &[("RCPT", "550 5.1.1 no such user")]);
    let back = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server =
        signing(bare().route("gone.example", &[&refusing.host()]).route("sender.example", &[&back.host()]), &["test"]);
    server.smtp().send("ann@sender.example", &["bob@gone.example"], &message("m@test", "x")).expect(250);
    drained(&server);
    let content = back.contents().remove(0);
    assert!(String::from_utf8_lossy(&content).contains("From: Mail Delivery System <MAILER-DAEMON@mx.test>"));
    assert_signed(&server, &[content], &["test"]);
}

#[test]
fn mail_that_we_have_signed_is_not_signed_twice() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(bare().route("host.example", &[&host.host()]), &["example.org"]);
    let send = |wire: &[u8]| {
        server.smtp().send(AUTHOR, &["bob@host.example"], wire).expect(250);
        drained(&server);
        host.contents().pop().unwrap()
    };
    let first = send(format!("From: {AUTHOR}\r\nSubject: x\r\n\r\nHello\r\n").as_bytes());
    assert_eq!(signatures(&first), 2);
    let again = send(&first);
    assert_eq!(signatures(&again), 2, "{}", String::from_utf8_lossy(&again));
    assert_signed(&server, &[again], &["example.org"]);
    // A signature that no longer fits does not keep the message from being signed.
    let changed = String::from_utf8(first).unwrap().replace("Subject: x", "Subject: y");
    let changed = send(changed.as_bytes());
    assert_eq!(signatures(&changed), 4);
    assert!(changed.starts_with(b"DKIM-Signature:"));
}

#[test]
fn a_reload_replaces_keys_and_refuses_broken_ones() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(bare().route("host.example", &[&host.host()]), &["example.org"]);
    let send = || {
        let wire = format!("From: {AUTHOR}\r\nSubject: x\r\n\r\nHello\r\n");
        server.smtp().send(AUTHOR, &["bob@host.example"], wire.as_bytes()).expect(250);
        drained(&server);
        host.contents().pop().unwrap()
    };
    let has_selector =
        |content: &[u8], selector: &str| String::from_utf8_lossy(content).contains(&format!(" s={selector};"));
    let key = server.path("example.org.s1.pem");
    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    for command in [&["reload"][..], &["check"]] {
        let text = server.operator_text(command);
        assert!(text.contains("example.org.s1.pem: the key is neither RSA nor Ed25519"), "{command:?}: {text}");
        assert!(text.contains("stentor.toml:"), "{command:?}: {text}");
    }
    assert!(has_selector(&send(), "s1"), "the old key stays");

    std::fs::remove_file(&key).unwrap();
    assert!(server.operator_text(&["reload"]).contains("there is no such file"));
    std::fs::write(&key, good).unwrap();
    Command::new("chmod").arg("644").arg(&key).status().unwrap();
    let text = server.operator_text(&["reload"]);
    assert!(text.contains("every user can read this private key (mode 644)"), "{text}");
    assert!(server.operator_text(&["check"]).contains("every user can read this private key"));

    // A new selector.
    server.edit_config(|text| text.split("[[dkim]]").next().unwrap().to_owned());
    add_keys(&server, "example.org", &["--selector", "s2", "--rsa"]);
    assert!(server.operator(&["reload"]).status.success());
    wait_until("the new key", || has_selector(&send(), "s2"));
    let content = send();
    assert_eq!(signatures(&content), 1);
    let rsa_alone = Command::new(stentor())
        .args(["dkim", "new", "example.org", "--selector", "s2", "--dir"])
        .arg(server.folder())
        .output()
        .unwrap();
    assert_eq!(rsa_alone.status.code(), Some(1), "no key file is replaced");
    assert!(String::from_utf8_lossy(&rsa_alone.stderr).contains("choose another --selector"));
}

#[test]
fn a_copy_without_from_cannot_be_signed_and_is_returned() {
    let host = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let server = signing(
        bare()
            .set("listen.add_missing_headers", "false")
            .list("news", &["one@host.example"])
            .set("lists.news.post", "\"anyone\"")
            .route("host.example", &[&host.host()]),
        &["lists.test"],
    );
    // No signature can cover a From that is missing.
    server.smtp().send(AUTHOR, &["news@lists.test"], b"Subject: x\r\n\r\nHello\r\n").expect(250);
    server.wait_log(&["dsn=5.6.0", "stat=Bounced", "cannot be signed (DKIM): the header has no From field"]);
    assert!(host.contents().is_empty() && host.heard("MAIL").is_empty());
}
