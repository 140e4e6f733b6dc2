//! What rules do with mail is told wherever mail is looked at: for whom, and by which rule; and mail is found by the
//! address that the client named.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::{SENDER, builder, drained};
use crate::virtual_users::with;

fn send(server: &Server, to: &[&str], id: &str) -> String {
    server.smtp().send(SENDER, to, &message(id, "A test")).expect(250).queue_id()
}

fn text(server: &Server, command: &[&str]) -> String {
    let output = server.operator(command);
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// What `trace` says, once the history has it.
#[track_caller]
fn traced(server: &Server, what: &str, parts: &[&str]) -> String {
    let mut shown = String::new();
    wait_until(&format!("trace {what} has {parts:?}"), || {
        shown = text(server, &["trace", what]);
        parts.iter().all(|part| shown.contains(part))
    });
    shown
}

const TABLES: [(&str, &str); 2] = [
    ("virtual", "sales@shop.example ann@one.example, bob@two.example\n"),
    ("canonical", "old@one.example cid@one.example\nme@old.example me@home.example\n"),
];

const RULES: &str = "[domains]\nvirtual = [\"shop.example\"]\n\
    [tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n\
    [tables.canonical]\nsource = \"hash:{}/canonical\"\nas = \"canonical\"\n\
    [addresses]\nvirtual = \"users\"\ncanonical = \"canonical\"\n\
    [[rules]]\nname = \"legal\"\nrecipient = \"held@two.example\"\ndo = \"hold asked by legal\"\n\
    [[rules]]\nrecipient = \"gone@two.example\"\ndo = \"discard nobody reads it\"\n\
    [[rules]]\nname = \"moved\"\nrecipient = \"moved@two.example\"\ndo = \"redirect new@two.example\"\n\
    [[rules]]\nrecipient = \"seen@two.example\"\ndo = \"bcc archive@two.example\"\n\
    [[rules]]\nrecipient = \"twice@two.example\"\ndo = \"copy mx:one.example\"\n";

fn sites() -> TestLab {
    let site = |name: &str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    TestLab::start(&["one.example", "two.example"].map(site).concat())
}

#[test]
fn log_and_trace_say_what_rules_did_and_know_the_address_that_was_named() {
    let lab = sites();
    let server = with(builder(&lab), &TABLES, RULES);
    let moved = send(&server, &["moved@two.example", "eve@two.example"], "moved@test");
    let gone = send(&server, &["gone@two.example"], "gone@test");
    send(&server, &["seen@two.example"], "seen@test");
    let twice = send(&server, &["twice@two.example"], "twice@test");
    let sales = send(&server, &["sales@shop.example"], "sales@test");
    let rewritten = server.smtp().send("me@old.example", &["old@one.example"], &message("old@test", "x")).expect(250);
    let rewritten = rewritten.queue_id();
    drained(&server);

    let log = server.log();
    log.wait_nth(
        &[
            &format!("{moved}: from=<"),
            "orig_to=<moved@two.example>,<eve@two.example>, marks=moved@two.example: redirected to new@two.example by \
             rule 3 \"moved\" (stentor.toml:",
        ],
        1,
    );
    let dropped = "nrcpts=1: gone@two.example: discarded by rule 2 (stentor.toml:";
    log.wait_nth(
        &[&format!("{gone}: discarded: to=<gone@two.example>, msgid=<gone@test>, from=<"), dropped, "nobody reads it"],
        1,
    );
    log.wait_nth(&["marks=seen@two.example: copied to archive@two.example by rule 4 (stentor.toml:"], 1);
    log.wait_nth(&["marks=twice@two.example: copied to mx:one.example:", " by rule 5 (stentor.toml:"], 1);
    log.wait_nth(&[&format!("{sales}: from=<"), "orig_to=<sales@shop.example>"], 1);
    let marks = "marks=me@old.example: rewritten to me@home.example, as the sender; old@one.example: rewritten to cid@one.example";
    log.wait_nth(&[&format!("{rewritten}: from=<me@home.example>"), "orig_to=<old@one.example>", marks], 1);

    let by_rule = "redirected to new@two.example by rule 3 \"moved\" (stentor.toml:";
    traced(
        &server,
        "moved@two.example",
        &[&moved, "orig_to     moved@two.example", by_rule, "sent       new@two.example"],
    );
    traced(&server, "eve@two.example", &[&moved, by_rule]);
    let told = traced(&server, "gone@two.example", &[&gone, "discarded by rule 2 (", "accepted and discarded"]);
    assert!(!told.contains("before the oldest record"), "{told}");
    traced(&server, &gone, &["discarded   gone@two.example"]);
    traced(&server, &twice, &["state       2 delivered"]);
    let policy = "; alias sales@shop.example; table users, sales@shop.example (";
    traced(&server, "sales@shop.example", &[&sales, "ann@one.example", "bob@two.example", policy, "virtual:1)\n"]);
    traced(&server, "old@one.example", &[&rewritten, "cid@one.example", "rewritten to me@home.example, as the sender"]);

    // The same of the log alone.
    let file = server.path("copy.log");
    std::fs::write(&file, server.log().lines().join("\n") + "\n").unwrap();
    let from_log = |what: &str| text(&server, &["trace", what, "--from", file.to_str().unwrap()]);
    assert!(from_log("moved@two.example").contains(by_rule));
    assert!(from_log("gone@two.example").contains("accepted and discarded"));
}

#[test]
fn mail_that_waits_is_found_by_the_address_that_was_named() {
    let lab = TestLab::start("[[site]]\nname = 'two.example'\nbehaviour = { greylist_ms = 3600000 }\n");
    let server = with(builder(&lab), &TABLES, RULES);
    send(&server, &["moved@two.example"], "moved@test");
    traced(&server, "moved@two.example", &["now  ", "new@two.example"]);
}

#[test]
fn what_is_queue_only_by_sender_is_known_by_both_of_his_addresses() {
    let lab = sites();
    let mut server = with(builder(&lab), &TABLES, RULES);
    for (n, sender) in ["me@old.example", "@old.example", "me@home.example"].into_iter().enumerate() {
        server.ask(&["queue-only", "--sender", sender, "--reason", "by sender"]).expect("it is queue-only");
        let wire = message(&format!("{n}@test"), "A test");
        let id = server.smtp().send("me@old.example", &["eve@two.example"], &wire).expect(250).queue_id();
        send(&server, &["eve@two.example"], &format!("other{n}@test"));
        server.log().wait_nth(&["stat=Sent", &format!("from=<{SENDER}>")], n + 1);
        if n == 0 {
            server.kill();
            server.start_again();
        }
        wait_until("it is kept", || text(&server, &["queue", "show", &id]).contains("queue-only: by sender"));
        server.ask(&["queue-only", "--end", "--sender", sender]).expect("it ends");
        drained(&server);
    }
}

#[test]
fn who_holds_a_message_is_said_in_every_view_and_after_a_restart() {
    let lab = sites();
    let mut server = with(builder(&lab), &TABLES, RULES);
    let id = send(&server, &["held@two.example"], "held@test");
    let by = "held by rule 1 \"legal\" (stentor.toml:";
    for is_second in [false, true] {
        if is_second {
            server.kill();
            server.start_again();
        }
        let shown = text(&server, &["queue", "show", &id]);
        assert!(shown.contains(by) && shown.contains("): asked by legal"), "{shown}");
        assert_eq!(
            server.ask(&["queue", "show", &id]).expect("shown")["held_by"]
                .as_str()
                .map(|by| by.starts_with("rule 1 \"legal\"")),
            Some(true)
        );
        for command in [&["mailqq"][..], &["latedudes"], &["report", &id], &["trace", "held@two.example"]] {
            let shown = text(&server, command);
            assert!(!shown.contains("by an operator"), "{command:?}: {shown}");
        }
        for command in [&["latedudes"][..], &["trace", "held@two.example"]] {
            let shown = text(&server, command);
            assert!(shown.contains(by), "{command:?}: {shown}");
        }
        traced(&server, &id, &[&format!("  state       1 with no finished attempt, {by}")]);
        let queue = text(&server, &["queue"]);
        assert!(queue.contains("held by a rule") && !queue.contains("by an operator"), "{queue}");
    }
    // Released, and held by somebody else.
    server.operator(&["queue-only", "--all", "--reason", "so that it stays"]);
    server.operator(&["release", "--id", &id]);
    server.operator(&["hold", "--id", &id]);
    let shown = text(&server, &["queue", "show", &id]);
    assert!(shown.contains("held by an operator") && !shown.contains("legal"), "{shown}");
    server.kill();
    server.start_again();
    let shown = text(&server, &["queue", "show", &id]);
    assert!(shown.contains("held by an operator") && !shown.contains("legal"), "{shown}");
    server.operator(&["queue-only", "--end", "--all"]);
    server.operator(&["release", "--id", &id]);
    drained(&server);
}

const NULLS: &str = "null: /dev/null\nboth: /dev/null, ann@one.example\n";
const LEADS: &str = "[domains]\nlocal = [\"home.test\"]\n\
    [tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n[addresses]\naliases = [\"aliases\"]\n\
    [[rules]]\nrecipient = \"gone@two.example\"\ndo = \"redirect null@home.test\"\n\
    [[rules]]\nrecipient = \"half@two.example\"\ndo = \"redirect both@home.test\"\n\
    [[rules]]\nrecipient = \"self@two.example\"\ndo = \"redirect self@two.example\"\n\
    [[rules]]\nrecipient = \"lost@two.example\"\ndo = \"redirect nobody@home.test\"\n";

#[test]
fn a_redirect_to_nobody_ends_and_one_to_an_unknown_address_loses_nothing() {
    let lab = sites();
    let server = with(builder(&lab).list("news", &["ann@one.example"]), &[("aliases", NULLS)], LEADS);
    let gone = send(&server, &["gone@two.example"], "gone@test");
    let log = server.log();
    let why = "gone@two.example: redirected to null@home.test by rule 1 (stentor.toml:";
    log.wait_nth(&[&format!("{gone}: discarded: to=<gone@two.example>"), why, "alias null@home.test: /dev/null"], 1);
    traced(&server, "gone@two.example", &[&gone, "redirected to null@home.test", "accepted and discarded"]);

    // Others beside it, and itself.
    send(&server, &["half@two.example"], "half@test");
    log.wait_nth(&["stat=Sent", "to=<ann@one.example>"], 1);
    log.wait_nth(&["discarded: to=<half@two.example>", "alias both@home.test: /dev/null"], 1);
    send(&server, &["self@two.example"], "self@test");
    log.wait_nth(&["stat=Sent", "to=<self@two.example>"], 1);
    drained(&server);

    let refused = server.smtp().send(SENDER, &["lost@two.example"], &message("lost@test", "x"));
    assert_eq!(refused.code, 451, "{refused:?}");
    let policy = "policy=lost@two.example: redirected to nobody@home.test by rule 4 (stentor.toml:";
    log.wait_nth(&["ruleset=check_eom", policy, "reject=451 4.3.5"], 1);

    // Said beforehand.
    server.write("wire.eml", &message("e@test", "x"));
    let wire = server.path("wire.eml");
    let explained = |to: &str| {
        let output = server.operator(&["explain", "--from", SENDER, "--to", to, "--message", wire.to_str().unwrap()]);
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let (why, code) = explained("gone@two.example");
    let dropped = "redirect to null@home.test, rule 1 (stentor.toml:";
    assert!(why.contains(dropped) && why.contains("): accepted and dropped: it is an alias of /dev/null\n"), "{why}");
    assert_eq!(code, Some(0), "{why}");
    let (why, code) = explained("lost@two.example");
    assert!(why.contains("rule 4 (stentor.toml:") && why.contains("): refused with 451 4.3.5 "), "{why}");
    assert_eq!(code, Some(75), "{why}");
    let half = text(&server, &["explain", "--from", SENDER, "--to", "half@two.example"]);
    assert!(
        half.contains("   redirected to both@home.test, by rule 2 (stentor.toml:")
            && half.contains("   ann@one.example: relayed to mx, "),
        "{half}"
    );

    // A copy is no post.
    server.edit_config(|text| text.replace("redirect self@two.example", "bcc news@lists.test"));
    let checked = text(&server, &["check"]);
    assert!(checked.contains("news@lists.test is list `news`, and a copy is not a post: name recipients"), "{checked}");
}

/// By a table's entry, a rule, and an alias that a list is behind; and from one who may not post.
#[test]
fn what_is_redirected_to_a_list_is_a_post() {
    let lab = sites();
    let files = [("access", "old@two.example REDIRECT news@lists.test\n"), ("aliases", "crew: news@lists.test\n")];
    let more = "[domains]\nlocal = [\"home.test\"]\n\
        [tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n[addresses]\naliases = [\"aliases\"]\n\
        [tables.access]\nsource = \"hash:{}/access\"\nas = \"access\"\n[[rules]]\nrecipient = \"table:access\"\n\
        [[rules]]\nrecipient = \"rule@two.example\"\ndo = \"redirect news@lists.test\"\n\
        [[rules]]\nrecipient = \"crew@two.example\"\ndo = \"redirect crew@home.test\"\n";
    let server = with(builder(&lab).list("news", &["ann@one.example", "bob@two.example"]), &files, more);
    let log = server.log();
    for (n, to) in ["old@two.example", "rule@two.example", "crew@two.example"].into_iter().enumerate() {
        let id = send(&server, &[to], &format!("post{n}@test"));
        log.wait_nth(&[&id, "stat=Sent", "to=<ann@one.example>"], 1);
        log.wait_nth(&[&id, "stat=Sent", "to=<bob@two.example>"], 1);
    }
    drained(&server);
    let refused = server.smtp().send("", &["old@two.example"], &message("report@test", "x"));
    assert!(refused.code == 550 && refused.lines[0].starts_with("5.7.1 "), "{refused:?}");
}

#[test]
fn a_table_of_the_configuration_is_asked_by_its_name() {
    let lab = sites();
    let tables = "[domains]\nvirtual = [\"shop.example\"]\n\
        [tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n[addresses]\nvirtual = \"users\"\n\
        [tables.vip]\nas = \"access\"\n[tables.vip.inline]\n\"example.org\" = \"OK\"\n";
    let server = with(builder(&lab), &TABLES[..1], tables);
    let got = |name: &str, key: &str| {
        let output = server.operator(&["table", "get", name, key]);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    };
    let (value, how, code) = got("users", "sales+x@shop.example");
    assert_eq!((value.as_str(), code), ("ann@one.example, bob@two.example\n", Some(0)), "{how}");
    assert!(
        how.contains("found sales@shop.example in ") && how.contains("virtual:1; not found: sales+x@shop.example"),
        "{how}"
    );
    let (value, how, _) = got("vip", "joe@example.org");
    assert!(value == "OK\n" && how.contains("found example.org in stentor.toml:"), "{value}{how}");
    assert_eq!(got("users", "nobody@shop.example").2, Some(1));
    let (_, why, code) = got("user", "x");
    assert!(code == Some(78) && why.contains("no table \"user\" in [tables.NAME] (tables: users, vip)"), "{why}");
    let checked = text(&server, &["table", "check", "users", "vip"]);
    assert!(checked.contains("users: ok; 1 entry, "), "{checked}");
    assert!(checked.contains("vip: ok; 1 entry, in the configuration\n"), "{checked}");
}
