//! Listeners with TLS and AUTH of their own: `[listen] smtp`, `smtps` and `submission` with tables.

use stentor_harness::{Builder, Server, Smtp, TestLab};

use crate::auth::{PASSWORD, started};
use crate::tls_in::{codes, session, session_with};

const MAIL: &str = "MAIL FROM:<ann@home.example>";
const IMPLICIT: &[&str] = &["--implicit"];

/// Ports of all listeners under a key of `[listen]`, in the order of the file.
fn ports(server: &Server, key: &str, count: usize) -> Vec<u16> {
    let service = format!("service=\"{key}\"");
    let port = |nth| {
        let line = server.log().wait_nth(&["listening", "address=", &service], nth).expect("it listens");
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.and_then(|text| text.rsplit(':').next()?.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    (1..=count).map(port).collect()
}

/// A list of tables at ports of the system's choice, with these keys.
fn tables(keys: &[&str]) -> String {
    let table = |keys: &&str| format!("{{ address = \"127.0.0.1:0\"{keys} }}");
    format!("[{}]", keys.iter().map(table).collect::<Vec<_>>().join(", "))
}

/// Ann and Bob have logins; nobody is trusted by address.
fn with_users(key: &'static str, keys: &[&str]) -> (TestLab, Server) {
    let tables = tables(keys);
    started(|builder| builder.set(&format!("listen.{key}"), &tables))
}

/// A server for a list, to which everybody may post.
fn list(lab: &TestLab, smtp: &[&str]) -> Builder {
    Server::builder().lab(lab).list("news", &["ann@one.example"]).set("listen.smtp", &tables(smtp))
}

/// An operator's command: whether it succeeds, and all that it prints.
fn run(server: &Server, arguments: &[&str]) -> (bool, String) {
    let output = server.operator(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn has(said: &[String], word: &str) -> bool {
    said.iter().any(|line| line.get(4..).is_some_and(|rest| rest.starts_with(word)))
}

#[test]
fn each_listener_of_smtp_has_its_own_tls() {
    let lab = TestLab::sites(&["one.example"]);
    let keys = ["", ", tls = \"none\"", ", tls = \"required\"", ", tls = \"implicit\""];
    let server = list(&lab, &keys).start();
    let all = ports(&server, "smtp", 4);
    let rcpt = "RCPT TO:<news@lists.test>";
    // As it always was.
    let said = session(all[0], &["EHLO c", MAIL, "RSET", "@starttls", "EHLO c", MAIL]);
    assert!(has(&said, "STARTTLS"), "{said:?}");
    assert_eq!(codes(&said), ["220", "250", "250", "250", "220", "250", "250"], "{said:?}");
    // In clear alone.
    let said = session(all[1], &["EHLO c", "STARTTLS", MAIL, rcpt]);
    assert!(!has(&said, "STARTTLS"), "{said:?}");
    assert_eq!(codes(&said), ["220", "250", "502", "250", "250"], "{said:?}");
    // Nothing before TLS.
    let said = session(all[2], &["EHLO c", MAIL, rcpt, "DATA", "@starttls", MAIL, "EHLO c", MAIL, rcpt]);
    assert_eq!(codes(&said), ["220", "250", "530", "530", "530", "220", "503", "250", "250", "250"], "{said:?}");
    // TLS from the first octet: a post goes through.
    let id = "implicit@test";
    let text = format!("@message:Message-Id: <{id}>\\r\\nSubject: x\\r\\n\\r\\nx");
    let said = session_with(all[3], IMPLICIT, &["EHLO c", MAIL, rcpt, &text, "STARTTLS"]);
    assert!(!has(&said, "STARTTLS") && !has(&said, "AUTH"), "{said:?}");
    assert_eq!(codes(&said), ["220", "250", "250", "250", "354", "250", "503"], "{said:?}");
    lab.wait_clean(id, &["ann@one.example"]);
    let copy = lab.recorder().copies_to("ann@one.example").remove(0).body.expect("the lab keeps bodies");
    let text = String::from_utf8_lossy(&copy).replace("\r\n\t", " ");
    assert!(text.contains(" with ESMTPS (TLS1.3 "), "{text}");
}

/// Nothing that was said in clear counts within TLS, and nothing slips in behind STARTTLS (CVE-2011-0411).
#[test]
fn nothing_in_clear_gets_past_required_tls() {
    let lab = TestLab::sites(&["one.example"]);
    let server = list(&lab, &[", tls = \"required\""]).start();
    let port = ports(&server, "smtp", 1)[0];
    let injected =
        "@raw:STARTTLS\\r\\nEHLO evil\\r\\nMAIL FROM:<evil@evil.example>\\r\\nRCPT TO:<news@lists.test>\\r\\n";
    let said = session(port, &["EHLO c", injected, "@reply", "@rest"]);
    assert_eq!(codes(&said), ["220", "250", "554"], "{said:?}");
    // Whole transactions before it, in one segment: each command is refused, and none is remembered.
    let early = "@raw:MAIL FROM:<evil@evil.example>\\r\\nRCPT TO:<news@lists.test>\\r\\nRSET\\r\\n";
    let steps = ["EHLO c", early, "@reply", "@reply", "@reply", "@starttls", "EHLO c"];
    let said = session(port, &[&steps[..], &["RCPT TO:<news@lists.test>", "DATA"]].concat());
    assert_eq!(codes(&said), ["220", "250", "530", "530", "530", "220", "250", "503", "503"], "{said:?}");
    // A message that does not wait for its 354 ends the session.
    let pushed = "@raw:MAIL FROM:<evil@evil.example>\\r\\nRCPT TO:<news@lists.test>\\r\\nDATA\\r\\nevil\\r\\n.\\r\\n";
    let said = session(port, &["EHLO c", pushed, "@reply", "@reply", "@reply", "@reply"]);
    assert_eq!(codes(&said), ["220", "250", "530", "530", "554"], "{said:?}");
    // Octets behind the 220 are no handshake.
    let said = session(port, &["EHLO c", "STARTTLS", "@raw:MAIL FROM:<evil@evil.example>\\r\\n", "@rest"]);
    assert_eq!(codes(&said)[..3], ["220", "250", "220"], "{said:?}");
    assert!(!said.iter().any(|line| line.starts_with("250 2.1.0")), "{said:?}");
    assert_eq!(lab.stats().sinks.transactions, 0);
}

#[test]
fn users_may_log_in_where_everybody_sends() {
    let (_lab, server) = with_users("smtp", &[", auth = \"offered\"", ", tls = \"implicit\", auth = \"required\""]);
    let all = ports(&server, "smtp", 2);
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let rcpt = "RCPT TO:<ann@one.example>";
    // In clear there is none yet; without a login it is a client as any other.
    let said = session(all[0], &["EHLO c", &login, MAIL, rcpt]);
    assert_eq!(codes(&said)[..4], ["220", "250", "538", "250"], "{said:?}");
    assert!(codes(&said)[4].starts_with('5'), "no relay for strangers: {said:?}");
    let said = session(all[0], &["EHLO c", "@starttls", "EHLO c", &login, MAIL, rcpt]);
    assert_eq!(codes(&said), ["220", "250", "220", "250", "235", "250", "250"], "{said:?}");
    let said = session_with(all[1], IMPLICIT, &["EHLO c", MAIL, &login, MAIL, rcpt]);
    assert_eq!(codes(&said), ["220", "250", "530", "235", "250", "250"], "{said:?}");
}

/// Its rules hold whatever its TLS and AUTH are: `client_networks` send without a login, others after one.
#[test]
fn a_submission_listener_may_take_mail_of_client_networks_without_a_login() {
    let keys = [", tls = \"starttls\", auth = \"offered\"", ", tls = \"none\", auth = \"none\""];
    let near = |networks: &'static str| {
        let tables = tables(&keys);
        started(|builder| builder.set("client_networks", networks).set("listen.submission", &tables))
    };
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let rcpt = "RCPT TO:<ann@one.example>";
    let (_far_lab, far) = near("[\"192.0.2.1\"]");
    let all = ports(&far, "submission", 2);
    let said = session(all[0], &["EHLO c", MAIL, "@starttls", "EHLO c", MAIL, &login, MAIL, rcpt]);
    assert_eq!(codes(&said), ["220", "250", "530", "220", "250", "530", "235", "250", "250"], "{said:?}");
    let said = session(all[1], &["EHLO c", MAIL, &login]);
    assert_eq!(codes(&said), ["220", "250", "554", "502"], "nobody can log in there: {said:?}");
    let (lab, server) = near("[\"127.0.0.1\"]");
    for (n, port) in ports(&server, "submission", 2).into_iter().enumerate() {
        let text = format!("@message:X-No: {n}\\r\\nFrom: ann@home.example\\r\\nBcc: secret@home.example\\r\\n\\r\\nx");
        let said = session(port, &["EHLO c", MAIL, rcpt, &text]);
        assert_eq!(codes(&said), ["220", "250", "250", "250", "354", "250"], "{said:?}");
    }
    lab.wait("both are there", |recorder| recorder.copies_to("ann@one.example").len() == 2);
    for copy in lab.recorder().copies_to("ann@one.example") {
        let text = String::from_utf8_lossy(&copy.body.expect("the lab keeps bodies")).into_owned();
        assert!(text.contains("\r\nDate: ") && text.contains("\r\nMessage-ID: ") && !text.contains("Bcc"), "{text}");
    }
}

#[test]
fn a_reload_changes_new_sessions_and_an_address_takes_a_restart() {
    let lab = TestLab::sites(&["one.example"]);
    let server = list(&lab, &["", ", tls = \"starttls\""]).start();
    let all = ports(&server, "smtp", 2);
    let offers = |open: &mut Smtp| open.cmd("EHLO c").lines.iter().any(|line| line == "STARTTLS");
    let mut open = server.smtp();
    assert!(offers(&mut open));
    let reload = || run(&server, &["reload"]).1;
    server.edit_config(|text| text.replace("tls = \"starttls\"", "tls = \"implicit\""));
    let said = reload();
    assert!(!said.contains("restart"), "{said}");
    let said = session_with(all[1], IMPLICIT, &["EHLO c", "NOOP"]);
    assert_eq!(codes(&said), ["220", "250", "250"], "{said:?}");
    server.edit_config(|text| text.replace("\"127.0.0.1:0\" }", "\"127.0.0.1:0\", tls = \"none\" }"));
    reload();
    assert!(!has(&session(all[0], &["EHLO c"]), "STARTTLS"));
    assert!(offers(&mut open), "an open session keeps what it had");
    // Another address: it waits, with what is said beside it.
    server.edit_config(|text| text.replace("127.0.0.1:0\", tls = \"implicit\"", "127.0.0.2:0\", tls = \"none\""));
    let said = reload();
    assert!(said.contains("changed keys that need a restart: [listen] smtp;"), "{said}");
    let said = session_with(all[1], IMPLICIT, &["EHLO c", "NOOP"]);
    assert_eq!(codes(&said), ["220", "250", "250"], "{said:?}");
}

#[test]
fn what_contradicts_itself_is_refused_at_the_check() {
    let lab = TestLab::sites(&["one.example"]);
    let server = list(&lab, &[", auth = \"offered\""]).prepare();
    let (is_right, text) = run(&server, &["check"]);
    assert!(!is_right, "{text}");
    assert!(text.contains("nobody can log in there: set `users` or `dovecot` in [auth]"), "{text}");
    server
        .edit_config(|text| text.replace(", auth = \"offered\"", "").replace("[listen]", "[listen]\nstarttls = false"));
    let (is_right, text) = run(&server, &["check"]);
    assert!(!is_right && text.contains("TLS is set per listener"), "{text}");
}
