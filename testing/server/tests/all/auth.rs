//! Users that log in, by each mechanism, with other people's clients.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use stentor_harness::{Builder, Server, TestLab, stentor, wait_until};

use crate::http_auth::token;
use crate::tls_in::{codes, session, session_with};

pub const PASSWORD: &str = "correct horse";

fn builder(lab: &TestLab) -> Builder {
    // Nobody is trusted by address.
    Server::builder()
        .lab(lab)
        .set("client_networks", "[\"192.0.2.1\"]")
        .set("listen.smtps", "[\"127.0.0.1:0\"]")
        .set("listen.submission", "[\"127.0.0.1:0\"]")
        .set("auth.users", "\"users\"")
}

/// With the users ann@home.example and bob@home.example.
pub fn started(more: impl FnOnce(Builder) -> Builder) -> (TestLab, Server) {
    started_with(more, "")
}

/// The same with more at the end of the configuration.
pub fn started_with(more: impl FnOnce(Builder) -> Builder, config: &str) -> (TestLab, Server) {
    let lab = TestLab::sites(&["one.example"]);
    let server = more(builder(&lab)).prepare();
    server.edit_config(|text| format!("{text}\n{config}"));
    for name in ["ann@home.example", "bob@home.example"] {
        user(&server, &["add", name], PASSWORD);
    }
    let server = server.run();
    (lab, server)
}

/// `stentor user ...`, with a password on standard input.
#[track_caller]
fn user(server: &Server, arguments: &[&str], password: &str) {
    let mut child = Command::new(stentor())
        .arg("user")
        .args(arguments)
        .arg("--config")
        .arg(server.config())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    let _ = child.stdin.take().expect("it is piped").write_all(format!("{password}\n").as_bytes());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
}

fn client(name: &str, arguments: &[&str]) -> Output {
    Command::new(name).args(arguments).stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn no_mail_before_tls_and_login() {
    let (_lab, server) = started(|builder| builder);
    let submission = server.address_of("submission").port();
    let said =
        session(submission, &["EHLO c", "MAIL FROM:<ann@home.example>", "@user:ann@home.example:x", "HELP", "QUIT"]);
    assert_eq!(codes(&said), ["220", "250", "530", "530", "530", "221"], "{said:?}");
    assert!(!said.iter().any(|line| line.contains("AUTH")), "{said:?}");
    let steps = ["EHLO c", "@starttls", "EHLO c", "MAIL FROM:<ann@home.example>", "@user:ann@home.example:wrong"];
    let said = session(submission, &steps);
    assert_eq!(codes(&said), ["220", "250", "220", "250", "530", "535"], "{said:?}");
    assert!(said.iter().any(|line| line == "250-AUTH SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN"), "{said:?}");
    let smtps = server.address_of("smtps").port();
    let said = session_with(smtps, &["--implicit"], &["EHLO c", "MAIL FROM:<ann@home.example>", "STARTTLS"]);
    assert_eq!(codes(&said), ["220", "250", "530", "503"], "{said:?}");
    // On the other port AUTH is not offered.
    let said = session(server.address().port(), &["EHLO c", "@starttls", "EHLO c", "@user:ann@home.example:x"]);
    assert_eq!(codes(&said).last().unwrap(), &"502", "{said:?}");
}

#[test]
fn a_users_message_is_completed_and_says_how_it_came() {
    let (lab, server) = started(|builder| builder.set("auth.user_in_received", "true"));
    let port = server.address_of("submission").port();
    let login = format!("@user:Ann@Home.example:{PASSWORD}");
    let text = "@message:From: Ann <ann@home.example>\\r\\nBcc: secret@one.example\\r\\nSubject: x\\r\\n\\r\\nx";
    let steps = [
        "EHLO c.example",
        "@starttls",
        "EHLO c.example",
        &login,
        "EHLO c.example",
        "MAIL FROM:<ann@home.example> AUTH=<>",
        "RCPT TO:<zoe@one.example>",
        text,
        "@user:ann@home.example:again",
    ];
    let said = session(port, &steps);
    let expected = ["220", "250", "220", "250", "235", "250", "250", "250", "354", "250", "503"];
    assert_eq!(codes(&said), expected, "{said:?}");
    lab.wait_copies(1);
    let copy = lab.recorder().copies_to("zoe@one.example").remove(0).body.expect("the lab keeps bodies");
    let text = String::from_utf8_lossy(&copy).replace("\r\n\t", " ");
    assert!(text.contains(" with ESMTPSA (TLS1.3 TLS_AES_128_GCM_SHA256) id "), "{text}");
    assert!(text.contains("]) (Authenticated sender: ann@home.example) by "), "{text}");
    assert!(text.contains("\r\nDate: ") && text.contains("\r\nMessage-ID: <") && !text.contains("Bcc"), "{text}");
    server.wait_log(&["from=<ann@home.example>", "tls=", "user="]);
    let log = server.log().lines().join("\n");
    let encoded = ["Y29ycmVjdCBob3JzZQ", PASSWORD];
    assert!(encoded.iter().all(|secret| !log.contains(secret)), "{log}");
}

#[test]
fn senders_are_the_users_own() {
    let (_lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let with_from = |from: &str| {
        let text = format!("@message:{from}\\r\\nSubject: x\\r\\n\\r\\nx");
        let steps =
            ["EHLO c", &login, "MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>", &text].map(str::to_owned);
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        session_with(port, &["--implicit"], &steps).pop().unwrap()
    };
    for own in [
        "From: ann@home.example",
        "From: \"ANN@home.example\" <ann@home.example>",
        "From: \"Ann @ Home\" <ann@home.example>",
    ] {
        assert!(with_from(own).starts_with("250 2.0.0"), "{own}");
    }
    for from in [
        "From: bob@home.example",
        "From: ann@home.example, bob@home.example",
        "X: y",
        "From: ann@home.example\\r\\nFrom: b@c.example",
        // Read as from boss@ by some programs.
        "From: boss@home.example: ann@home.example;",
        "From: boss@home.example <ann@home.example>",
        "From: ann@home.example, =?utf-8?q?boss=40home.example?=",
        "From: <ann@home.example> ( <boss@home.example>",
        // Shown as from boss@ by most.
        "From: \"boss@home.example\" <ann@home.example>",
        "From: ann@home.example (boss@home.example)",
        "From: =?utf-8?q?boss=40home.example?= <ann@home.example>",
        "From: \"Boss (boss@home.example)\" <ann@home.example>",
    ] {
        let said = with_from(from);
        assert!(said.starts_with("550 5.7.1"), "{from}: {said}");
    }
    let steps = ["EHLO c", &login, "MAIL FROM:<bob@home.example>", "MAIL FROM:<>"];
    let said = session_with(port, &["--implicit"], &steps);
    assert_eq!(codes(&said)[3..], ["553", "250"], "{said:?}");
}

/// As the lines of accepted mail do.
#[test]
fn refusals_of_a_users_mail_say_whose_it_is() {
    let (_lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let steps = [
        "EHLO c",
        &login,
        "MAIL FROM:<bob@home.example>",
        "MAIL FROM:<ann@home.example>",
        "RCPT TO:<nobody@mx.test>",
        "RCPT TO:<zoe@one.example>",
        "@message:From: bob@home.example\\r\\n\\r\\nx",
    ];
    let said = session_with(port, &["--implicit"], &steps);
    assert_eq!(codes(&said)[3..], ["553", "250", "550", "250", "354", "550"], "{said:?}");
    for rules in ["ruleset=check_mail", "ruleset=check_rcpt", "ruleset=check_eom"] {
        let line = server.wait_log(&[rules]);
        assert!(line.contains(", user=ann@home.example, "), "{line}");
    }
    // Who has not logged in is nobody.
    server.smtp().cmd("EHLO c").expect(250);
    let mut stranger = server.smtp();
    stranger.cmd("EHLO c").expect(250);
    stranger.cmd("MAIL FROM:<me@x.example>").expect(250);
    stranger.cmd("RCPT TO:<zoe@one.example>").expect(550);
    let line = server.wait_log(&["ruleset=check_rcpt", "from=<me@x.example>"]);
    assert!(!line.contains("user="), "{line}");
}

/// Guesses have a line each; who waits for the next one, and what is no login at all, has few. All are counted.
#[test]
fn logins_that_are_refused_are_counted_and_throttled_ones_seldom_logged() {
    const THROTTLED: u64 = 12;
    let (_lab, server) =
        started(|builder| builder.set("http.listen", "[\"127.0.0.1:0\"]").set("listen.errors_max", "100"));
    let port = server.address_of("smtps").port();
    let counted = |reason: &str| {
        let text = server.http_get("/metrics").expect(200).text();
        let name = format!("stentor_logins_refused_total{{reason=\"{reason}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("it is there");
        line.parse::<u64>().expect("a count")
    };
    let guess = "@user:ann@home.example:guess";
    wait_until("guesses are slowed", || {
        session_with(port, &["--implicit"], &["EHLO c", guess]);
        counted("slow") >= 1
    });
    while counted("slow") < THROTTLED {
        session_with(port, &["--implicit"], &["EHLO c", guess, guess, guess]);
    }
    let lines = |words: &str| server.log().matching(&["WARN login refused: ", words]).len() as u64;
    let line = server.wait_log(&["login refused: too many wrong passwords; next try in "]);
    assert!(line.contains("client=127.0.0.1") && line.contains(" times=1"), "{line}");
    assert!(lines("too many wrong passwords") < counted("slow") / 2, "{}", lines("too many wrong passwords"));
    assert_eq!(lines("wrong user or password"), counted("wrong"));
}

#[test]
fn each_mechanism() {
    let (_lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    for (step, code) in [
        (format!("@user:ann@home.example:{PASSWORD}"), "235"),
        (format!("@scram:ann@home.example:{PASSWORD}"), "235"),
        (format!("@plus:ann@home.example:{PASSWORD}"), "235"),
        ("@scram:bob@home.example:wrong".to_owned(), "535"),
        ("@plus:nobody@home.example:wrong".to_owned(), "535"),
    ] {
        let said = session_with(port, &["--implicit"], &["EHLO c", &step]);
        assert_eq!(codes(&said).last().unwrap(), &code, "{step}: {said:?}");
    }
}

/// Logs in by Python's smtplib and sends a message, over both kinds of TLS.
const SMTPLIB: &str = "import smtplib, ssl, sys\n\
    port, secured, password, mechanism = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]\n\
    context = ssl._create_unverified_context()\n\
    for implicit in (False, True):\n    \
        client = smtplib.SMTP_SSL('127.0.0.1', secured, context=context) if implicit else smtplib.SMTP('127.0.0.1', port)\n    \
        implicit or client.starttls(context=context)\n    \
        client.ehlo()\n    \
        client.user, client.password = 'ann@home.example', password\n    \
        client.auth(mechanism, getattr(client, 'auth_' + mechanism.lower()))\n    \
        client.sendmail('ann@home.example', ['zoe@one.example'], 'From: ann@home.example\\r\\n\\r\\nx')\n    \
        client.quit()\n";

#[test]
fn other_peoples_clients_log_in() {
    let (lab, server) = started(|builder| builder);
    let (submission, smtps) = (server.address_of("submission"), server.address_of("smtps"));
    let port = submission.port().to_string();
    let mut copies = 0;
    for mechanism in ["PLAIN", "LOGIN"] {
        let output = client(
            "swaks",
            &[
                "--server",
                "127.0.0.1",
                "--port",
                &port,
                "-tls",
                "--auth",
                mechanism,
                "--auth-user",
                "ann@home.example",
                "--auth-password",
                PASSWORD,
                "--from",
                "ann@home.example",
                "--to",
                "zoe@one.example",
            ],
        );
        assert!(output.status.success(), "swaks {mechanism}: {output:?}");
        copies += 1;
    }
    for mechanism in ["PLAIN", "LOGIN"] {
        let output =
            client("/usr/bin/python3", &["-c", SMTPLIB, &port, &smtps.port().to_string(), PASSWORD, mechanism]);
        assert!(output.status.success(), "smtplib {mechanism}: {output:?}");
        copies += 2;
    }
    let message = server.path("message.eml");
    std::fs::write(&message, "From: ann@home.example\r\nSubject: x\r\n\r\nx\r\n").unwrap();
    let file = message.display().to_string();
    for (url, mechanism) in [
        (format!("smtps://{smtps}"), "PLAIN"),
        (format!("smtps://{smtps}"), "LOGIN"),
        (format!("smtp://{submission}"), "PLAIN"),
    ] {
        let (user, options) = (format!("ann@home.example:{PASSWORD}"), format!("AUTH={mechanism}"));
        let output = client(
            "/usr/bin/curl",
            &[
                "-sS",
                "-k",
                "--ssl-reqd",
                "--url",
                &url,
                "--user",
                &user,
                "--login-options",
                &options,
                "--mail-from",
                "ann@home.example",
                "--mail-rcpt",
                "zoe@one.example",
                "--upload-file",
                &file,
            ],
        );
        assert!(output.status.success(), "curl {mechanism}: {output:?}");
        copies += 1;
    }
    lab.wait_copies(copies);
}

#[test]
fn mail_programs_log_in() {
    let (lab, server) = started(|builder| builder);
    let submission = server.address_of("submission");
    let port = submission.port().to_string();
    let mut copies = 0;
    for mechanism in ["plain", "login"] {
        let mta = format!("-Smta=smtp://ann%40home.example:correct%20horse@{submission}");
        let auth = format!("-Ssmtp-auth={mechanism}");
        let options = [
            "-:/",
            "-Sv15-compat",
            "-Ssmtp-use-starttls",
            "-Stls-verify=ignore",
            "-Ssendwait",
            &mta,
            &auth,
            "-Sfrom=ann@home.example",
            "-rann@home.example",
            "-sx",
            "zoe@one.example",
        ];
        let output = client("s-nail", &options);
        assert!(output.status.success(), "s-nail {mechanism}: {output:?}");
        copies += 1;
    }
    for mechanism in ["plain", "login", "scram-sha-256"] {
        let mut child = Command::new("msmtp")
            .args(["--host=127.0.0.1", &format!("--port={port}"), "--tls=on", "--tls-starttls=on"])
            .args(["--tls-certcheck=off", &format!("--auth={mechanism}"), "--user=ann@home.example"])
            .args([&format!("--passwordeval=echo {PASSWORD}"), "--from=ann@home.example", "zoe@one.example"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("msmtp is installed: testing/install.sh");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(b"From: ann@home.example\nTo: zoe@one.example\n\nx\n").expect("it takes input");
        drop(stdin);
        assert!(child.wait().expect("it ends").success(), "msmtp {mechanism}");
        copies += 1;
    }
    lab.wait_copies(copies);
}

#[test]
fn a_locked_users_sessions_end_at_once() {
    let (_lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let mut child = Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/tls_session.py"))
        .args(["--implicit", &port.to_string(), "EHLO c", &format!("@user:ann@home.example:{PASSWORD}")])
        .args(["MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>", "@reply", "@reply"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("235 ")) && lines.any(|line| line.starts_with("250 2.1.5")));
    user(&server, &["lock", "ann@home.example"], "");
    let said = lines.next().unwrap();
    assert!(said.starts_with("421 4.7.0 The login is no longer valid"), "{said}");
    child.wait().expect("it ends");
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let said = session_with(port, &["--implicit"], &["EHLO c", &login]);
    assert_eq!(codes(&said).last().unwrap(), &"535", "{said:?}");
    user(&server, &["unlock", "ann@home.example"], "");
    wait_until("the user may log in again", || {
        let said = session_with(port, &["--implicit"], &["EHLO c", &login]);
        codes(&said).last() == Some(&"235")
    });
}

#[test]
fn five_wrong_passwords_end_a_session() {
    let (_lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let steps = [
        "EHLO c",
        "@user:ann@home.example:1",
        "@user:ann@home.example:2",
        "@user:ann@home.example:3",
        "@user:ann@home.example:4",
        "@user:ann@home.example:5",
        "@reply",
    ];
    let said = session_with(port, &["--implicit"], &steps);
    let last = said.iter().rfind(|line| *line != "end").unwrap();
    assert!(
        last.starts_with("421 4.7.0 Too many failed logins") || said.iter().any(|line| line.starts_with("454 4.7.0")),
        "{said:?}"
    );
}

#[test]
fn in_clear_only_where_it_is_allowed() {
    let (_lab, server) = started(|builder| builder.set("auth.clear_networks", "[\"127.0.0.1\"]"));
    let port = server.address_of("submission").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let said = session(port, &["EHLO c", &login, "MAIL FROM:<ann@home.example>"]);
    assert_eq!(codes(&said), ["220", "250", "235", "250"], "{said:?}");
    assert!(said.contains(&"250-AUTH SCRAM-SHA-256 PLAIN LOGIN".to_owned()), "{said:?}");
}

/// Trace fields come first (RFC 5321 section 4.4), and what is added stands in the header, whatever has gone to the
/// disk before.
#[test]
fn a_large_message_is_completed_where_its_header_ends() {
    let (lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let pad = format!("X-Pad: {}\r\n", "p".repeat(900)).repeat(400);
    let body = "y".repeat(70) + "\r\n";
    for (n, (fields, lines)) in [
        ("Subject: x\r\nBcc: a@secret.example\r\n".to_owned(), 8_000),
        (pad + "Bcc: a@secret.example,\r\n b@secret.example\r\n", 5),
    ]
    .into_iter()
    .enumerate()
    {
        let file = server.path("large.eml");
        let text = format!("From: ann@home.example\r\n{fields}\r\n{}", body.repeat(lines));
        std::fs::write(&file, text.trim_end()).unwrap();
        let step = format!("@file:{}", file.display());
        let steps = ["EHLO c", &login, "MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>", &step];
        let said = session_with(port, &["--implicit"], &steps);
        assert_eq!(codes(&said).last().unwrap(), &"250", "{said:?}");
        lab.wait_copies(n as u64 + 1);
        let copy = lab.recorder().copies_to("zoe@one.example").remove(n).body.expect("the lab keeps bodies");
        let copy = String::from_utf8_lossy(&copy).into_owned();
        let (header, got) = copy.split_once("\r\n\r\n").expect("a header and a body");
        let names: Vec<&str> =
            header.split("\r\n").filter_map(|line| line.split_once(": ").map(|(name, _)| name)).collect();
        assert_eq!((names[0], &names[names.len() - 2..]), ("Received", &["Date", "Message-ID"][..]), "{n}");
        assert!(!header.contains("secret.example") && got.trim_end() == body.repeat(lines).trim_end(), "{n}");
    }
}

/// Neither half of it is put in force.
#[test]
fn a_reload_with_a_broken_users_file_changes_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let (_lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let shown = || session_with(port, &["--implicit"], &["EHLO c", &login, "@certificate"]);
    let before = shown();
    assert!(codes(&before).ends_with(&["235"]), "{before:?}");
    crate::tls_in::certificate(server.folder(), "new.test", None);
    let others = server.path("others");
    let good = std::fs::read_to_string(server.path("users")).unwrap().replace("[ann@", "[eve@");
    std::fs::write(&others, format!("{good}nonsense\n")).unwrap();
    std::fs::set_permissions(&others, std::fs::Permissions::from_mode(0o600)).unwrap();
    server.edit_config(|text| {
        let certificates = "[[tls.certificates]]\nchain = \"new.test.pem\"\nkey = \"new.test.key\"\n";
        format!("{}\n{certificates}", text.replace("\"users\"", "\"others\""))
    });
    let reload = || {
        let output = server.operator(&["reload"]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_done, text) = reload();
    assert!(!is_done && text.contains("others:") && text.contains("neither [NAME] nor KEY = VALUE"), "{text}");
    assert_eq!(shown(), before);
    // A session that goes on meanwhile; its user is not in the other file.
    let mut child = Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/tls_session.py"))
        .args(["--implicit", &port.to_string(), "EHLO c", &login, "@reply"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("235 ")));
    std::fs::write(&others, good).unwrap();
    let (is_done, text) = reload();
    assert!(is_done, "{text}");
    let said = lines.next().unwrap();
    assert!(said.starts_with("421 4.7.0 The login is no longer valid"), "{said}");
    child.wait().expect("it ends");
    let after = shown();
    assert!(codes(&after).ends_with(&["535"]) && after.last() != before.last(), "{after:?}");
}

/// What is cut is not taken, whether TLS said that it ends or not.
#[test]
fn a_message_that_ends_with_its_connection_is_not_taken() {
    let (lab, server) = started(|builder| builder);
    let port = server.address_of("smtps").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let begin = ["EHLO c", &login, "MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>"];
    for (end, octets) in [
        ("@cut", "@raw:DATA\\r\\nFrom: ann@home.example\\r\\n\\r\\nx\\r\\n."),
        ("@cut", "@raw:BDAT 1000 LAST\\r\\nFrom: ann@home.example\\r\\n\\r\\nx\\r\\n"),
        ("@close", "@raw:DATA\\r\\nFrom: ann@home.example\\r\\n\\r\\nx\\r\\n.\\r"),
    ] {
        session_with(port, &["--implicit"], &[&begin[..], &[octets, end]].concat());
    }
    let last = "@message:From: ann@home.example\\r\\nSubject: whole\\r\\n\\r\\nx";
    let said = session_with(port, &["--implicit"], &[&begin[..], &[last]].concat());
    assert_eq!(codes(&said).last().unwrap(), &"250", "{said:?}");
    lab.wait_copies(1);
    assert_eq!(lab.recorder().copies_to("zoe@one.example").len(), 1);
}

/// Of their limits, on the command line, in the console and by the API, for who may act.
#[test]
fn what_users_have_submitted_is_shown() {
    let (robot, table) = token(&["robot"]);
    let (lab, server) = started(|builder| builder.set("http.listen", "[\"127.0.0.1:0\"]").set("http.tokens", &table));
    user(&server, &["add", "eve@home.example", "--messages-per-hour", "2", "--recipients-per-day", "9"], PASSWORD);
    user(&server, &["lock", "bob@home.example"], PASSWORD);
    let (port, login) = (server.address_of("smtps").port(), format!("@user:eve@home.example:{PASSWORD}"));
    let steps = [
        "EHLO c",
        &login,
        "MAIL FROM:<eve@home.example>",
        "RCPT TO:<zoe@one.example>",
        "RCPT TO:<amy@one.example>",
        "@message:From: eve@home.example\\r\\nSubject: x\\r\\n\\r\\nx",
        "QUIT",
    ];
    wait_until("the server has read the file", || {
        codes(&session_with(port, &["--implicit"], &steps))
            == ["220", "250", "235", "250", "250", "250", "354", "250", "221"]
    });
    lab.wait_copies(2);
    server.http_get("/api/v1/users").expect(401);
    let view = server.http("GET", "/api/v1/users").token(&robot).send().expect(200).json();
    assert_eq!((&view["source"], &view["users_total"]), (&"users".into(), &3.into()), "{view}");
    let rows = view["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["user"].as_str()).collect();
    assert_eq!(names, ["ann@home.example", "bob@home.example", "eve@home.example"]);
    assert_eq!(rows[1]["locked"], true);
    let share = |used: u32, max: Option<u32>| serde_json::json!({"used": used, "max": max});
    let eve = &rows[2];
    assert_eq!((&eve["messages_hour"], &eve["messages_day"]), (&share(1, Some(2)), &share(1, None)), "{eve}");
    assert_eq!(eve["recipients_day"], share(2, Some(9)), "{eve}");
    let listed = String::from_utf8(server.operator(&["user", "list", "--json"]).stdout).expect("text");
    let eve: serde_json::Value = serde_json::from_str(listed.lines().nth(2).expect("three users")).expect("JSON");
    assert_eq!((&eve["used"]["messages_hour"], &eve["used"]["recipients_hour"]), (&1.into(), &2.into()), "{eve}");
    let text = String::from_utf8(server.operator(&["user", "list"]).stdout).expect("text");
    assert!(text.contains("; messages/hour 1 of 2; recipients/day 2 of 9\n"), "{text}");
    let page = server.http_get("/users").expect(403).text();
    assert!(!page.contains("eve@home.example"), "{page}");
}

/// A user with a typo in his address book pays for it with no other recipient.
#[test]
fn recipients_that_are_refused_count_for_no_limit() {
    let (lab, server) = started(|builder| builder);
    user(&server, &["add", "eve@home.example", "--recipients-per-hour", "2"], PASSWORD);
    let (port, login) = (server.address_of("smtps").port(), format!("@user:eve@home.example:{PASSWORD}"));
    let steps = [
        "EHLO c",
        &login,
        "MAIL FROM:<eve@home.example>",
        "RCPT TO:<nobody@mx.test>",
        "RCPT TO:<zoe@one.example>",
        "RCPT TO:<nobody@mx.test>",
        "RCPT TO:<amy@one.example>",
        "RCPT TO:<kim@one.example>",
        "@message:From: eve@home.example\\r\\nSubject: x\\r\\n\\r\\nx",
    ];
    let mut said = Vec::new();
    wait_until("the server has read the file", || {
        said = session_with(port, &["--implicit"], &steps);
        codes(&said).get(2).is_some_and(|code| *code == "235")
    });
    assert_eq!(codes(&said)[3..], ["250", "550", "250", "550", "250", "452", "354", "250"], "{said:?}");
    let over = "452 4.5.3 Limit of 2 recipients per hour is reached, try again in ";
    assert!(said.iter().any(|line| line.starts_with(over)), "{said:?}");
    lab.wait_copies(2);
    let text = String::from_utf8(server.operator(&["user", "list"]).stdout).expect("text");
    assert!(text.contains("; recipients/hour 2 of 2\n"), "{text}");
}

/// What could not be stored is sent again: it must not count twice.
#[test]
fn what_could_not_be_stored_counts_for_no_limit() {
    // The addresses of the message are more than there is room for, which is known when it is stored.
    let (lab, server) =
        started(|builder| builder.set("journal.addresses_max", "1000").set("listen.submission_recipients_max", "2000"));
    user(&server, &["add", "eve@home.example", "--messages-per-hour", "1"], PASSWORD);
    let (port, login) = (server.address_of("smtps").port(), format!("@user:eve@home.example:{PASSWORD}"));
    let text = "@message:From: eve@home.example\\r\\nSubject: x\\r\\n\\r\\nx";
    let send = |recipients: usize| {
        let named: Vec<String> = (0..recipients).map(|n| format!("RCPT TO:<n{n}@one.example>")).collect();
        let mut steps = vec!["EHLO c", &login, "MAIL FROM:<eve@home.example>"];
        steps.extend(named.iter().map(String::as_str));
        steps.push(text);
        session_with(port, &["--implicit"], &steps)
    };
    wait_until("the server has read the file", || {
        send(1_100).last().is_some_and(|said| said.starts_with("452 4.3.1 The queue is full"))
    });
    let said = send(1);
    assert_eq!(codes(&said), ["220", "250", "235", "250", "250", "354", "250"], "{said:?}");
    lab.wait_copies(1);
}

/// A login is among the trusted sessions from then on, on their threads: what was sent with it is read there, and the
/// session goes on.
#[test]
fn a_session_goes_on_elsewhere_once_it_has_logged_in() {
    let (lab, server) = started(|builder| {
        let tables = "[{ address = \"127.0.0.1:0\", tls = \"none\" }]";
        builder
            .set("listen.submission", tables)
            .set("auth.clear_networks", "[\"127.0.0.0/8\"]")
            .set("listen.submission_connections_max", "8")
    });
    let connect = || stentor_harness::Smtp::connect(server.address_of("submission")).greeted();
    let plain = "AUTH PLAIN AGFubkBob21lLmV4YW1wbGUAY29ycmVjdCBob3JzZQ==";
    // More than strangers may have: each is counted as a user's once it has logged in.
    let mut users: Vec<_> = (0..7)
        .map(|_| {
            let mut user = connect();
            user.cmd("EHLO a.example").expect(250);
            user.cmd(plain).expect(235);
            user
        })
        .collect();
    for (n, user) in users.iter_mut().enumerate() {
        user.cmd("NOOP").expect(250);
        let message = format!("From: ann@home.example\r\nSubject: {n}\r\n\r\nx\r\n");
        user.send("ann@home.example", &["bob@one.example"], message.as_bytes()).expect(250);
    }
    // With the next command in the same segment.
    users.truncate(3);
    wait_until("places are free", || {
        stentor_harness::Smtp::connect(server.address_of("submission")).reply().code == 220
    });
    let mut quick = connect();
    quick.cmd("EHLO a.example").expect(250);
    quick.raw(format!("{plain}\r\nNOOP\r\nMAIL FROM:<ann@home.example>\r\n").as_bytes());
    quick.reply().expect(235);
    quick.reply().expect(250);
    quick.reply().expect(250);
    quick.quit();
    drop(users);
    server.wait_empty();
    drop(lab);
}
