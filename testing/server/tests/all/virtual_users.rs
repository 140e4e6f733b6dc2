//! What addresses stand for, over real sockets: virtual users and alias files beside rules and routes, who gets what
//! comes back.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use stentor_harness::{Builder, Server, TestLab, message, skipped, wait_until};

use crate::kit::{builder, closed_address, drained, report_to};

/// A server with these files, whose place is `{}` in the lines at the end of its configuration.
pub fn with(builder: Builder, files: &[(&str, &str)], more: &str) -> Server {
    let builder = files.iter().fold(builder, |builder, (name, text)| builder.file(name, text.as_bytes()));
    let server = builder.prepare();
    let folder = server.path("").display().to_string();
    server.edit_config(|text| format!("{text}\n{}", more.replace("{}", folder.trim_end_matches('/'))));
    server.run()
}

/// What a client from outside hears about a recipient.
fn rcpt(server: &Server, to: &str) -> String {
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<me@elsewhere.example>").expect(250);
    let reply = client.cmd(&format!("RCPT TO:<{to}>"));
    format!("{} {}", reply.code, reply.lines.join("\n"))
}

/// Hands in a message from outside, and waits until these have a copy each.
#[track_caller]
fn send(server: &Server, lab: &TestLab, id: &str, to: &[&str], expected: &[&str]) {
    let wire = message(id, "A test");
    lab.recorder().expect_message(wire.clone().into());
    server.connect_from("127.0.0.2").greeted().send("me@home.example", to, &wire).expect(250);
    lab.wait_clean(id, expected);
}

/// Replaces a file of the server whole.
pub fn replace(server: &Server, name: &str, text: &str) {
    let path = server.path(name);
    fs::write(path.with_extension("new"), text).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

fn explained(server: &Server, to: &str) -> String {
    let output = server.operator(&["explain", "--from", "me@home.example", "--to", to, "--client", "192.0.2.1"]);
    String::from_utf8(output.stdout).unwrap()
}

/// docs/operate/gateway.md: virtual users beside rules and routes.
#[test]
fn virtual_users_beside_rules_and_routes() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
         [[site]]\nname = 'gate.example'\nrelay = true\n[[site.host]]\nname = 'mx1.gate.example'\n",
    );
    let server = with(
        builder(&lab),
        &[
            (
                "virtual",
                "# users\nsales@shop.example ann@one.example, bob@two.example\nall@shop.example sales@shop.example, cid@one.example\n",
            ),
            (
                "virtusertable",
                "joe@old.example joe@one.example\ngone@old.example error:nouser 550 Nobody of this name\n@old.example %1@shop.example\n",
            ),
        ],
        "[domains]\nvirtual = [\"shop.example\", \"old.example\"]\n\
         [tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n\
         [tables.old]\nsource = \"makemap:{}/virtusertable\"\nas = \"virtusertable\"\n\
         [addresses]\nvirtual = [\"users\", \"old\"]\n\
         [routes]\n\"bob@two.example\" = \"mx:gate.example\"\n\
         [[rules]]\nrecipient = \"closed@shop.example\"\ndo = \"reject 550 5.7.1 Closed for the holidays\"\n",
    );
    assert!(rcpt(&server, "nobody@shop.example").starts_with("550 5.1.1 "));
    assert_eq!(rcpt(&server, "closed@shop.example"), "550 5.7.1 Closed for the holidays");
    assert_eq!(rcpt(&server, "gone@old.example"), "550 5.1.1 Nobody of this name");
    assert!(rcpt(&server, "nobody@old.example").starts_with("550 5.1.1 "), "the catch-all leads to nobody");
    send(&server, &lab, "all@test", &["all@shop.example"], &["ann@one.example", "bob@two.example", "cid@one.example"]);
    send(
        &server,
        &lab,
        "old@test",
        &["sales@old.example", "joe@old.example"],
        &["ann@one.example", "bob@two.example", "joe@one.example"],
    );
    drained(&server);
    // A route for one of the targets holds, as for a recipient that a client names.
    server.log().wait_nth(&["stat=Sent", "to=<bob@two.example>"], 2);
    let bob = server.log().matching(&["stat=Sent", "to=<bob@two.example>"]);
    assert!(bob.iter().all(|line| line.contains("relay=mx1.gate.example")) && bob.len() == 2, "{bob:?}");
    let copy = String::from_utf8(lab.body_for("cid@one.example")).unwrap();
    assert!(copy.contains("Delivered-To: all@shop.example\r\n"), "{copy}");

    let why = explained(&server, "all@shop.example");
    for part in [
        "virtual:3 virtual users: all@shop.example: sales@shop.example, cid@one.example",
        "virtual:2 virtual users: sales@shop.example: ann@one.example, bob@two.example",
        "=> alias: ann@one.example, bob@two.example, cid@one.example\n",
        "   ann@one.example: relayed to mx, because no route names a next hop\n",
        "   bob@two.example: relayed to mx:gate.example:",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    replace(&server, "virtual", "sales@shop.example dan@one.example\nnew@shop.example sales@shop.example\n");
    wait_until("the next version is in force", || rcpt(&server, "new@shop.example").starts_with("250"));
    send(&server, &lab, "new@test", &["new@shop.example"], &["dan@one.example"]);
}

/// A server with the alias file `aliases`, `$DIR` its folder.
fn with_aliases(builder: Builder, files: &[(&str, &str)]) -> Server {
    let server = builder.prepare();
    let folder = server.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    for (name, text) in files {
        fs::write(server.path(name), text.replace("$DIR", folder)).unwrap();
    }
    server.edit_config(|text| {
        format!(
            "{text}\n[domains]\nlocal = [\"home.test\"]\n[tables.aliases]\nsource = \"aliases:{folder}/aliases\"\n\
             as = \"aliases\"\n[addresses]\naliases = \"aliases\"\norigin = \"home.test\"\n"
        )
    });
    server.run()
}

#[test]
fn each_included_file_is_followed_once() {
    let lab = TestLab::sites(&["one.example"]);
    // Two ways to each of them: 2^45 to the last.
    let chain = (0..45).map(|n| (format!("f{n}"), format!(":include:$DIR/f{}\n:include:$DIR/f{0}\n", n + 1)));
    let mut files: Vec<(String, String)> = chain.collect();
    files.push(("f45".to_owned(), "ann@one.example\n".to_owned()));
    files.push(("many".to_owned(), "ann@one.example\n".repeat(9_000)));
    let also = ["also", "too"].map(|name| (name.to_owned(), files[46].1.clone()));
    files.extend(also);
    let aliases = "all: :include:$DIR/f0\nmany: :include:$DIR/many, :include:$DIR/also, :include:$DIR/too\n";
    files.push(("aliases".to_owned(), aliases.to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let server = with_aliases(builder(&lab), &files);
    send(&server, &lab, "all@test", &["all@home.test"], &["ann@one.example"]);
    assert!(rcpt(&server, "many@home.test").starts_with("451 4.3.5 "));
    let why = explained(&server, "many@home.test");
    assert!(why.contains("more than 20000 targets, including those of included files"), "{why}");
    let check = server.operator(&["check"]);
    let check = String::from_utf8([check.stdout, check.stderr].concat()).unwrap();
    assert!(
        check.contains("aliases:2:1: warning: more than 20000 targets, including those of included files"),
        "{check}"
    );
}

#[test]
fn a_users_file_includes_what_the_user_may_read() {
    if !rustix::process::geteuid().is_root() {
        skipped("needs root");
        return;
    }
    let lab = TestLab::sites(&["one.example"]);
    let aliases = "own: :include:$DIR/list\nsecret: :include:$DIR/secret\n";
    let files = [("aliases", aliases), ("list", "ann@one.example\n"), ("secret", "bob@one.example\n")];
    let server = with_aliases(builder(&lab), &files);
    let set = |name: &str, mode: u32| fs::set_permissions(server.path(name), Permissions::from_mode(mode)).unwrap();
    set("", 0o711);
    set("list", 0o644);
    set("secret", 0o600);
    assert!(rcpt(&server, "secret@home.test").starts_with("250 "), "root's file names it");
    // The same file, now of a user.
    let next = server.path("aliases.next");
    fs::copy(server.path("aliases"), &next).unwrap();
    chown(&next, Some(12_345), None).unwrap();
    fs::rename(next, server.path("aliases")).unwrap();
    wait_until("the next version is in force", || rcpt(&server, "secret@home.test").starts_with("451 4.3.0 "));
    let why = explained(&server, "secret@home.test");
    assert!(why.contains("user 12345, whose file includes it, may not read it (mode 0600)"), "{why}");
    assert!(rcpt(&server, "own@home.test").starts_with("250 "));
}

#[test]
fn an_alias_file_is_read_as_it_is() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = with(
        builder(&lab),
        &[
            (
                "aliases",
                "# our aliases\npostmaster: root\nroot: ann@one.example\nStaff: :include:{}/staff,\n  cid@two.example\n",
            ),
            ("staff", ""),
            ("crew", "nobody\n"),
        ],
        "[domains]\nlocal = [\"home.test\"]\n[tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n\
         [addresses]\naliases = \"aliases\"\norigin = \"home.test\"\n",
    );
    let folder = server.path("").display().to_string();
    let text = format!(
        "root: ann@one.example\nstaff: :include:{folder}/staff,\n  cid@two.example\nowner-team: boss@one.example\n\
         team: bob@two.example, root\ncrew: :include:{folder}/crew\nlost: lost, nobody\nring: gnir\ngnir: ring\n"
    );
    replace(&server, "staff", "# who is here\nroot, bob@two.example\n");
    replace(&server, "aliases", &text);
    wait_until("the files are in force", || rcpt(&server, "team@home.test").starts_with("250"));
    send(
        &server,
        &lab,
        "staff@test",
        &["STAFF+x@home.test"],
        &["ann@one.example", "bob@two.example", "cid@two.example"],
    );
    assert!(rcpt(&server, "root@mx.test").starts_with("250"), "the server's own name");
    assert!(rcpt(&server, "nobody@home.test").starts_with("550 5.1.1 "));
    assert!(rcpt(&server, "lost@home.test").starts_with("550 5.1.1 "), "nobody is left");
    assert!(rcpt(&server, "ring@home.test").starts_with("451 4.3.5 "));
    server.log().wait_nth(&["table replaced", "loop: ring -> gnir -> ring"], 1);
    let checked = server.operator(&["check"]);
    let checked = [checked.stdout, checked.stderr].concat();
    let checked = String::from_utf8(checked).unwrap();
    assert!(checked.contains("aliases:9:1: warning: loop: ring -> gnir -> ring"), "{checked}");

    // The owner gets what comes back.
    send(&server, &lab, "team@test", &["team@home.test"], &["ann@one.example", "bob@two.example"]);
    let copies = lab.recorder().copies();
    let senders = copies.iter().filter(|copy| &*copy.message_id == "team@test").map(|copy| copy.sender.to_string());
    assert!(senders.clone().all(|sender| sender == "owner-team@home.test"), "{:?}", senders.collect::<Vec<_>>());

    // An included file counts by itself; a broken alias file changes nothing.
    assert!(rcpt(&server, "crew@home.test").starts_with("550 5.1.1 "));
    replace(&server, "crew", "dan@one.example\n");
    wait_until("the included file is in force", || rcpt(&server, "crew@home.test").starts_with("250"));
    send(&server, &lab, "again@test", &["crew@home.test"], &["dan@one.example"]);
    fs::remove_file(server.path("aliases")).unwrap();
    server.log().wait_nth(&["the table could not be replaced", "aliases: error: cannot be read"], 1);
    assert!(rcpt(&server, "team@home.test").starts_with("250"));
}

#[test]
fn a_report_to_an_alias_goes_to_those_it_stands_for() {
    let lab = TestLab::start(
        "[[site]]\nname = 'no.example'\nbehaviour = { reject_share = 1.0 }\n[[site]]\nname = 'one.example'\n",
    );
    let server = with(
        builder(&lab),
        &[("aliases", "root: ann@one.example\n")],
        "[tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n[addresses]\naliases = \"aliases\"\n",
    );
    server.smtp().send("root@mx.test", &["x@no.example"], &message("back@test", "x")).expect(250);
    report_to(&lab, "ann@one.example").assert_failed("x@no.example", "5.1.1");
    drained(&server);
}

#[test]
fn a_table_that_is_down_defers_and_keeps_reports_until_it_is_back() {
    let lab = TestLab::start(
        "[[site]]\nname = 'no.example'\nbehaviour = { reject_share = 1.0 }\n[[site]]\nname = 'one.example'\n",
    );
    let address = closed_address();
    let server = with(
        builder(&lab),
        &[],
        &format!(
            "[domains]\nvirtual = [\"shop.example\"]\n[tables.users]\nsource = \"socketmap:inet:{address}:users\"\nas = \"virtual\"\n\
             [addresses]\nvirtual = \"users\"\n"
        ),
    );
    assert!(rcpt(&server, "ann@shop.example").starts_with("451 4.3.0 "));
    // A recipient of another domain might be in the table as well.
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<ann@shop.example>").expect(250);
    client.cmd("RCPT TO:<x@no.example>").expect(451);
    crate::rules::socketmap_with(address, |asked| match asked {
        "users ann@shop.example" => "OK ann@one.example",
        _ => "NOTFOUND ",
    });
    wait_until("the table answers", || rcpt(&server, "ann@shop.example").starts_with("250"));
    assert!(rcpt(&server, "nobody@shop.example").starts_with("550 5.1.1 "));
    server.smtp().send("ann@shop.example", &["x@no.example"], &message("back@test", "x")).expect(250);
    report_to(&lab, "ann@one.example").assert_failed("x@no.example", "5.1.1");
    drained(&server);
}

/// docs/operate/addresses.md: forwarded mail.
#[test]
fn a_forwarded_sender_leads_back_to_the_one_before() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\nbehaviour = { reject_share = 1.0 }\n[[site]]\nname = 'two.example'\n[[site]]\nname = 'home.example'\n",
    );
    let server = with(
        builder(&lab),
        &[
            ("virtual", "dead@shop.example x@one.example\nsales@shop.example ann@two.example\n"),
            ("secret", "0123456789abcdef-first\nand an older one, which verifies\n"),
        ],
        "[domains]\nvirtual = [\"shop.example\"]\n[tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n\
         [addresses]\nvirtual = \"users\"\nsrs = \"srs.example\"\nsrs_secret_file = \"secret\"\n",
    );
    send(&server, &lab, "fwd@test", &["sales@shop.example"], &["ann@two.example"]);
    let sender = lab.recorder().copies_to("ann@two.example")[0].sender.to_string();
    assert!(sender.starts_with("SRS0=") && sender.ends_with("=home.example=me@srs.example"), "{sender}");
    assert!(explained(&server, "sales@shop.example").contains(&format!("from {sender}, by SRS")));
    // What a host returns comes back to whom it is from; anything else at the domain is refused.
    let report = message("report@test", "returned");
    lab.recorder().expect_message(report.clone().into());
    server.connect_from("127.0.0.2").greeted().send("", &[&sender], &report).expect(250);
    lab.wait_clean("report@test", &["me@home.example"]);
    // Whoever else knows the address cannot use it: it is for reports alone.
    let reports_only = "550 5.7.1 An SRS address accepts only delivery reports (null sender)";
    assert_eq!(rcpt(&server, &sender), reports_only);
    let mut trusted = server.smtp();
    trusted.cmd("MAIL FROM:<me@elsewhere.example>").expect(250);
    trusted.cmd(&format!("RCPT TO:<{sender}>")).expect(550);
    let explain = |from: &str| {
        let output = server.operator(&["explain", "--from", from, "--to", &sender, "--client", "192.0.2.1"]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(explain("").contains("me@home.example") && explain("x@y.example").contains("it is not a delivery report"));
    // A boundary that is moved, by a sender who chose both sides of it.
    server
        .connect_from("127.0.0.2")
        .greeted()
        .send("ictim@bank.examplev", &["sales@shop.example"], &message("moved@test", "x"))
        .expect(250);
    lab.wait("it is forwarded", |recorder| recorder.copies_to("ann@two.example").len() == 2);
    let copies = lab.recorder().copies_to("ann@two.example");
    let made = copies.iter().map(|copy| copy.sender.to_string()).find(|sender| sender.contains("=ictim@")).unwrap();
    let moved = made.replacen("=bank.examplev=ictim@", "=bank.example=victim@", 1);
    assert_ne!(moved, made);
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<>").expect(250);
    assert!(client.cmd(&format!("RCPT TO:<{moved}>")).to_string().contains("its hash is wrong"));
    client.cmd(&format!("RCPT TO:<{made}>")).expect(250);
    let forged = sender.replacen("=me@", "=you@", 1);
    assert_eq!(rcpt(&server, &forged), "550 5.7.1 Invalid SRS address: its hash is wrong");
    assert!(rcpt(&server, "me@srs.example").starts_with("550 5.1.1 "));
    // A report of ours takes the same way.
    server
        .connect_from("127.0.0.2")
        .greeted()
        .send("me@home.example", &["dead@shop.example"], &message("dead@test", "x"))
        .expect(250);
    lab.wait("a report of ours", |recorder| recorder.copies_to("me@home.example").len() == 2);
    drained(&server);
    // Mail that is not forwarded, and reports that are, keep their senders.
    send(&server, &lab, "local@test", &["sales@shop.example"], &["ann@two.example"]);
    server
        .connect_from("127.0.0.2")
        .greeted()
        .send("", &["sales@shop.example"], &message("null@test", "x"))
        .expect(250);
    lab.wait("the report is forwarded", |recorder| {
        recorder.copies_to("ann@two.example").iter().any(|copy| copy.sender.is_empty())
    });
}

/// docs/operate/addresses.md: canonical addresses, masquerading.
#[test]
fn envelope_and_header_are_rewritten_and_nothing_else_is() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = with(
        builder(&lab).set("listen.add_missing_headers", "false"),
        &[
            ("canonical", "joe@home.example joe.smith@home.example\nx@one.example y@one.example\n"),
            ("senders", "@inner.example @two.example\n"),
        ],
        "[domains]\nrelay = [\"one.example\"]\n\
         [tables.all]\nsource = \"hash:{}/canonical\"\nas = \"canonical\"\n\
         [tables.senders]\nsource = \"hash:{}/senders\"\nas = \"canonical\"\n\
         [addresses]\ncanonical = \"all\"\nsender_canonical = \"senders\"\n\
         masquerade_domains = [\"home.example\"]\nmasquerade_exceptions = [\"root\"]\n\
         [[rules]]\nsender = \"blocked@two.example\"\ndo = \"reject 550 5.7.1 rules see the canonical address\"\n",
    );
    let header = "From: \"Joe, the (first)\" <joe+x@home.example> (not joe@home.example)\r\nSubject: joe@home.example\r\n\
                  To: staff: x@one.example, =?utf-8?q?x=40one.example?= <x @ one.example>;,\r\n\tann@deep.home.example,\r\n \
                  root@deep.home.example\r\n";
    let expected = "From: \"Joe, the (first)\" <joe.smith+x@home.example> (not joe@home.example)\r\nSubject: joe@home.example\r\n\
                    To: staff: y@one.example, =?utf-8?q?x=40one.example?= <y @ one.example>;,\r\n\tann@home.example,\r\n \
                    root@deep.home.example\r\n";
    // One that is held in memory, and one that goes to the journal in pieces.
    for (id, lines) in [("small", 1), ("large", 10_000)] {
        let rest =
            format!("Message-ID: <{id}@test>\r\n\r\n{}", "To: joe@home.example is in the body, too\r\n".repeat(lines));
        lab.recorder().expect_message(format!("{expected}{rest}").into_bytes().into());
        let wire = format!("{header}{rest}");
        server.smtp().send("any@inner.example", &["x@one.example"], wire.as_bytes()).expect(250);
        lab.wait_clean(&format!("{id}@test"), &["y@one.example"]);
    }
    let copies = lab.recorder().copies_to("y@one.example");
    assert!(copies.iter().all(|copy| &*copy.sender == "any@two.example"), "{copies:?}");
    // What others write stays as it is, since they may have signed it; their envelope is rewritten.
    let wire = format!("{header}Message-ID: <theirs@test>\r\n\r\nbody\r\n");
    lab.recorder().expect_message(wire.clone().into_bytes().into());
    server.connect_from("127.0.0.2").greeted().send("a@inner.example", &["x@one.example"], wire.as_bytes()).expect(250);
    lab.wait_clean("theirs@test", &["y@one.example"]);

    let mut client = server.smtp();
    client.cmd("MAIL FROM:<blocked@inner.example>").expect(250);
    client.cmd("RCPT TO:<x@one.example>").expect_text("550 5.7.1 rules see the canonical address");
    let output = server.operator(&["explain", "--from", "joe@home.example", "--to", "x@one.example"]);
    let why = String::from_utf8(output.stdout).unwrap();
    for part in [
        "canonical:1 canonical all: joe@home.example: joe.smith@home.example",
        "canonical:2 canonical all: x@one.example: y@one.example",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    // A table that leads in a circle defers.
    replace(&server, "canonical", "x@one.example y@one.example\ny@one.example x@one.example\n");
    wait_until("the next version is in force", || rcpt(&server, "x@one.example").starts_with("451 4.3.5 "));
    drained(&server);
}

/// A pipe in the place of a table's file hangs neither the server nor the check, and other tables are read.
#[test]
fn a_pipe_in_the_place_of_a_table_hangs_nothing() {
    let server = with(
        crate::kit::bare(),
        &[("first", "joe@shop.example ann@one.example\n"), ("second", "@none.example nobody@none.example\n")],
        "[domains]\nvirtual = [\"shop.example\"]\n[tables.first]\nsource = \"hash:{}/first\"\nas = \"virtual\"\n\
         [tables.second]\nsource = \"hash:{}/second\"\nas = \"virtual\"\n[addresses]\nvirtual = [\"first\", \"second\"]\n",
    );
    assert!(rcpt(&server, "joe@shop.example").starts_with("250"));
    let pipe = server.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    fs::rename(&pipe, server.path("first")).unwrap();
    server.wait_log(&["first", "not a regular file"]);
    replace(&server, "second", "eve@shop.example ann@one.example\n");
    wait_until("the other table is read", || rcpt(&server, "eve@shop.example").starts_with("250"));
    assert!(rcpt(&server, "joe@shop.example").starts_with("250"), "the previous version stays in use");
    let check = server.operator(&["check"]);
    let said = format!("{}{}", String::from_utf8_lossy(&check.stdout), String::from_utf8_lossy(&check.stderr));
    assert!(said.contains("not a regular file"), "{said}");
}

/// A header that comes in several pieces is rewritten to its end.
#[test]
fn canonical_addresses_hold_for_the_whole_of_a_large_header() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab).set("listen.add_missing_headers", "false"),
        &[("canonical", "old@home.example new@home.example\n")],
        "[domains]\nrelay = [\"one.example\"]\n[tables.all]\nsource = \"hash:{}/canonical\"\nas = \"canonical\"\n\
         [addresses]\ncanonical = \"all\"\n",
    );
    let filler: String = (0..600).map(|n| format!("X-{n}: {}\r\n", "y".repeat(900))).collect();
    let body = "From: old@home.example\r\n".repeat(20_000);
    let wire =
        format!("To: old@home.example\r\n{filler}Message-ID: <large@test>\r\nFrom: <old@home.example>\r\n\r\n{body}");
    let expected =
        format!("To: new@home.example\r\n{filler}Message-ID: <large@test>\r\nFrom: <new@home.example>\r\n\r\n{body}");
    lab.recorder().expect_message(expected.into_bytes().into());
    server.smtp().send("a@home.example", &["x@one.example"], wire.as_bytes()).expect(250);
    lab.wait_clean("large@test", &["x@one.example"]);
}
