//! Suppressed recipients get no mail: posts skip them, waiting mail is removed, a client is refused at RCPT; across
//! restarts, until the end of an entry.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::{SENDER, builder, post};

fn run(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.operator(arguments);
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The reply to a recipient of mail from `from`.
fn rcpt(server: &Server, from: &str, to: &str) -> String {
    let mut smtp = server.smtp();
    smtp.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
    smtp.cmd(&format!("RCPT TO:<{to}>")).to_string()
}

fn removed(server: &Server) -> u64 {
    server.fates()["removed"].as_u64().expect("a number")
}

#[test]
fn a_post_skips_suppressed_subscribers() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    // The last one's domain does not exist: suppressed, it is not reported as failed.
    let subscribers =
        ["a@one.example", "B@one.example", "c@one.example", "d@two.example", "e@two.example", "f@gone.example"];
    let server = builder(&lab).list("news", &subscribers).list("other", &["a@one.example"]).start();
    for add in [
        &["a@one.example", "--list", "news", "--reason", "unsubscribe"][..],
        &["b@ONE.example", "--reason", "complaint"],
        &["@two.example", "--sender", "lists.test"],
        &["@gone.example"],
    ] {
        server.ask(&[&["suppress", "add"], add].concat()).expect("it is added");
    }
    post(&server, &lab, &["news@lists.test"], "news@test");
    lab.wait_clean("news@test", &["c@one.example"]);
    server.wait_empty();
    assert_eq!(removed(&server), 5);
    // Another list's posts are not covered.
    post(&server, &lab, &["other@lists.test"], "other@test");
    lab.wait_clean("other@test", &["a@one.example"]);
    server.wait_empty();
    assert_eq!(removed(&server), 5);
    wait_until("the history says why", || {
        run(&server, &["trace", "a@one.example"]).1.contains("suppressed for this list (unsubscribe)")
    });
    let fates = server.fates();
    assert_eq!((&fates["bounced"], &fates["delivered"]), (&0.into(), &2.into()), "{fates}");
    lab.assert_no_violations();
}

#[test]
fn mail_that_waits_is_removed_at_its_next_try() {
    let scenario = "[[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '451 4.3.0 not today' }\n";
    let lab = TestLab::start(scenario);
    let server = builder(&lab).start();
    let to = ["a@later.example", "b@later.example"];
    let id = server.smtp().send(SENDER, &to, &message("later@test", "x")).expect(250).queue_id();
    wait_until("both were tried", || {
        let shown = server.ask(&["queue", "show", &id]).expect("it waits");
        let recipients = shown["recipients"].as_array().expect("rows");
        recipients.iter().all(|row| row["last_reply"].as_str().is_some_and(|reply| reply.contains("not today")))
    });
    server.ask(&["suppress", "add", "a@later.example", "--note", "moved, says her brother"]).expect("it is added");
    wait_until("one is removed", || removed(&server) == 1);
    let shown = server.ask(&["queue", "show", &id]).expect("the other one waits");
    assert_eq!(shown["recipients"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown["recipients"][0]["address"], "b@later.example");
    server.ask(&["suppress", "add", "@later.example"]).expect("it is added");
    server.wait_empty();
    assert_eq!(removed(&server), 2);
    server.wait_log(&["a@later.example", "mailer=suppression", "suppressed for all mail (operator)"]);
}

#[test]
fn a_client_is_refused_across_restarts_until_the_entry_ends() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = builder(&lab).start();
    let refused = "550 5.7.1 Recipient is suppressed for all mail (bounce)";
    assert!(rcpt(&server, SENDER, "ann@one.example").starts_with("250 "));
    server.ask(&["suppress", "add", "ann@one.example", "--reason", "bounce", "--for", "1h"]).expect("it is added");
    server.ask(&["suppress", "add", "bob@one.example", "--sender", "shop@home.example"]).expect("it is added");
    server.stop();
    server.start_again();
    assert_eq!(rcpt(&server, SENDER, "Ann@one.example").trim_end(), refused);
    assert_eq!(rcpt(&server, "", "ann@one.example").trim_end(), refused);
    assert!(rcpt(&server, "shop@home.example", "bob@one.example").starts_with("550 5.7.1 "));
    assert!(rcpt(&server, "other@home.example", "bob@one.example").starts_with("250 "));
    // Killed, nothing acknowledged is lost; the wal is read again.
    server.ask(&["suppress", "add", "carl@one.example"]).expect("it is added");
    server.kill();
    server.start_again();
    assert!(rcpt(&server, SENDER, "carl@one.example").starts_with("550 5.7.1 "));
    server.ask(&["suppress", "remove", "carl@one.example"]).expect("it is removed");
    assert!(rcpt(&server, SENDER, "carl@one.example").starts_with("250 "));
    let (code, text) = run(&server, &["suppress", "remove", "carl@one.example"]);
    assert!(code == Some(3) && text.contains("carl@one.example is not suppressed"), "{text}");
    // An entry without effect does not shorten the one that is there.
    server.ask(&["suppress", "add", "dora@one.example", "--for", "1s"]).expect("it is added");
    wait_until("it has ended", || rcpt(&server, SENDER, "dora@one.example").starts_with("250 "));
    let (_, text) = run(&server, &["suppress", "add", "ann@one.example", "--for", "1m"]);
    assert!(text.starts_with("ann@one.example is already suppressed for as long or longer"), "{text}");
    for none in [&["--for", "0d"][..], &["--for", "0s", "--sender", SENDER]] {
        let (code, text) = run(&server, &[&["suppress", "add", "eve@one.example"], none].concat());
        assert!(code == Some(2) && text.contains("ends at once"), "{text}");
    }
}

#[test]
fn a_file_is_imported_as_a_whole_and_exported_again() {
    let mut server = crate::kit::bare().list("news", &["a@x.example"]).start();
    let path = server.path("in.csv");
    let file = path.to_str().expect("a plain path");
    server.write("in.csv", b"email,reason\na@x.example,complaint\nnobody,bounce\nb@x.example,spam\n");
    let (code, text) = run(&server, &["suppress", "import", file]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("in.csv:3: \"nobody\": address has no domain"), "{text}");
    assert!(text.contains("in.csv:4: \"spam\" is not a valid reason"), "{text}");
    assert!(text.contains("2 lines have errors; nothing was imported"), "{text}");
    assert!(run(&server, &["suppress", "list"]).1.contains("no entry matches"), "nothing was imported");
    let mut all = "subject,scope,reason,source,note,since,expires\n".to_owned();
    for n in 0..3_000 {
        all += &format!("{n:04}@x.example,list:news,bounce,import old.csv,\"n, {n}\",2026-01-02T03:04:05.000Z,\n");
    }
    server.write("in.csv", all.as_bytes());
    let (code, text) = run(&server, &["suppress", "import", file]);
    assert_eq!((code, text.as_str()), (Some(0), "3000 entries read: 3000 added or extended, 0 already there\n"));
    assert_eq!(run(&server, &["suppress", "export"]), (Some(0), all.clone()));
    assert_eq!(
        run(&server, &["suppress", "import", file]).1,
        "3000 entries read: 0 added or extended, 3000 already there\n"
    );
    server.wait_log(&["audit: verb=suppress", "uid="]);
    server.kill();
    server.start_again();
    assert_eq!(run(&server, &["suppress", "export"]), (Some(0), all));
    let (_, text) = run(&server, &["suppress", "show", "0007@X.example"]);
    assert!(text.contains("0007@x.example") && text.contains("list:news") && text.contains("n, 7"), "{text}");
    assert_eq!(run(&server, &["suppress", "show", "else@x.example"]).0, Some(3));
}

#[test]
fn answers_name_what_there_is_instead() {
    let server = crate::kit::bare().list("news", &["a@x.example"]).start();
    let added = |arguments: &[&str]| run(&server, &[&["suppress", "add"], arguments].concat()).1;
    assert_eq!(added(&["bob@x.example", "--list", "news"]), "bob@x.example for list news is suppressed\n");
    let (code, unknown) = run(&server, &["suppress", "add", "bob@x.example", "--list", "nws"]);
    assert!(
        code == Some(3)
            && unknown.contains("nothing was added: there is no list nws; did you mean news? (`--force` adds"),
        "{unknown}"
    );
    assert_eq!(run(&server, &["suppress", "show", "bob@x.example", "--json"]).1.matches("list:").count(), 1);
    let forced = added(&["bob@x.example", "--list", "nws", "--force"]);
    assert!(forced.contains("is suppressed; there is no list nws"), "{forced}");
    added(&["@y.example", "--reason", "bounce"]);
    let removed = |arguments: &[&str]| run(&server, &[&["suppress", "remove"], arguments].concat());
    let (code, text) = removed(&["bob@x.example"]);
    let expected = "bob@x.example is not suppressed, but has entries: --list news, --list nws";
    assert!(code == Some(3) && text.contains(expected), "{text}");
    let (code, text) = removed(&["ann@y.example"]);
    assert!(code == Some(3) && text.contains("but has entries: @y.example (all mail)"), "{text}");
    let (code, text) = removed(&["bob@x.example", "cid@x.example", "--list", "news"]);
    assert!(code == Some(0) && text.contains("1 of 2 entries removed; cid@x.example for list news is not"), "{text}");
    let listed = |arguments: &[&str]| run(&server, &[&["suppress", "list"], arguments].concat()).1;
    assert!(listed(&["--list", "nws"]).contains("bob@x.example") && !listed(&["--list", "nws"]).contains("@y.example"));
    assert!(listed(&["--reason", "bounce"]).contains("@y.example") && !listed(&["--all-mail"]).contains("bob@"));
    assert!(listed(&["--all-mail"]).contains("all mail") && !listed(&[]).contains("everything"));
    let unknown = listed(&["--list", "newz"]);
    assert!(unknown.contains("no entry matches; there is no list newz; did you mean news?; 2 entries"), "{unknown}");
    assert!(listed(&["--sender", "z.example"]).contains("no entry matches; 2 entries in the registry"));
    // Files that other programs write.
    for (text, code, expected) in [
        ("", 1, "in.csv:1: the first line must name the columns"),
        ("subject;reason\nc@x.example;bounce\n", 1, "separated by commas"),
        ("\u{feff}Email,Reason\nc@x.example,Complaint\n", 0, "1 entry read: 1 added"),
        ("email,expires\nd@x.example,2020-01-01\n", 0, "0 added or extended, 0 already there, 1 already expired"),
        ("email,scope\ne@x.example,list:gone\n", 0, "there is no list gone"),
    ] {
        server.write("in.csv", text.as_bytes());
        if expected.starts_with("there is no list") {
            let file = server.path("in.csv");
            let (exit, shown) = run(&server, &["suppress", "import", file.to_str().expect("a path"), "--dry-run"]);
            assert!(exit == Some(code) && shown.contains(expected), "{shown}");
        }
        let (exit, shown) = run(&server, &["suppress", "import", server.path("in.csv").to_str().expect("a path")]);
        assert!(exit == Some(code) && shown.contains(expected), "{text:?}: {shown}");
    }
}

#[test]
fn a_damaged_registry_stops_the_start() {
    let mut server = crate::kit::bare().start();
    server.ask(&["suppress", "add", "a@x.example"]).expect("it is added");
    server.stop();
    let path = server.path("data/registry.sqlite");
    let bytes = std::fs::read(&path).expect("the registry is in the data folder");
    std::fs::write(&path, [&b"no database"[..], &bytes[11..]].concat()).expect("it is written");
    let command = server.command();
    let log = server.try_start_as(command).expect_err("it does not start");
    assert!(log.contains("registry.sqlite is damaged") && log.contains("restore it from a backup"), "{log}");
    std::fs::write(&path, bytes).expect("it is written");
    server.start_again();
    assert!(run(&server, &["suppress", "list"]).1.contains("a@x.example"));
}
