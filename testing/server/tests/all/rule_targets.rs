//! Whom rules and aliases lead mail to: deliveries, and what `explain`, `trace`, `policy replay` and `check` say of
//! them.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::{SENDER, builder, drained};
use crate::virtual_users::with;

const ALIASES: &str = "[domains]\nlocal = [\"home.test\"]\n\
    [tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n[addresses]\naliases = [\"aliases\"]\n";
const SRS: &str = "srs = \"fwd.test\"\nsrs_secret_file = \"{}/secret\"\n";

/// Sites that take mail for every domain.
fn sites() -> TestLab {
    let site = |name: &str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    TestLab::start(&["one.example", "two.example", "gate.example"].map(site).concat())
}

fn said(server: &Server, command: &[&str]) -> (String, i32) {
    let output = server.operator(command);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (text, output.status.code().unwrap())
}

fn explained(server: &Server, to: &str) -> (String, i32) {
    said(server, &["explain", "--from", SENDER, "--to", to])
}

/// Whose sender a recipient's copies have, and the host that took them.
fn sent(server: &Server, to: &str, count: usize) -> Vec<String> {
    let parts = ["stat=Sent", "to=<", &format!("<{to}>")];
    server.log().wait_nth(&parts, count);
    server.log().matching(&parts)
}

#[test]
fn a_replay_knows_the_senders_that_clients_gave_and_counts_who_was_named() {
    let lab = sites();
    let files = [
        (
            "aliases",
            "team: ann@one.example\nowner-team: eve@one.example\nfar: bob@two.example\nkept: cid@one.example\n",
        ),
        ("secret", "a secret of thirty-two octets !!\n"),
    ];
    let rules = "[[rules]]\nrecipient = \"seen@one.example\"\n\
        do = [\"bcc kept@home.test\", \"bcc archive@two.example\", \"copy mx:gate.example\"]\n\
        [[rules]]\nrecipient = \"team@home.test\"\ndo = \"copy mx:gate.example\"\n";
    let server = with(builder(&lab), &files, &format!("{ALIASES}{SRS}{rules}"));
    for to in ["team@home.test", "far@home.test", "seen@one.example"] {
        server.smtp().send("joe@x.example", &[to], &message(&format!("{to}.test"), "x")).expect(250);
    }
    drained(&server);
    assert!(sent(&server, "ann@one.example", 1)[0].contains("from=<owner-team@home.test>"));
    assert!(sent(&server, "bob@two.example", 1)[0].contains("from=<SRS0="));
    sent(&server, "seen@one.example", 2);
    sent(&server, "team@home.test", 1);
    sent(&server, "archive@two.example", 1);
    sent(&server, "cid@one.example", 1);
    let old = server.path("old.toml");
    std::fs::copy(server.config(), &old).unwrap();
    server.edit_config(|text| format!("{text}[[rules]]\nsender = \"joe@x.example\"\ndo = \"reject\"\n"));
    let replay = || said(&server, &["policy", "replay", "--against", old.to_str().unwrap()]).0;
    wait_until("the history has it", || replay().starts_with("3 of 3 decisions would change\n"));
    let text = replay();
    for to in ["team@home.test", "far@home.test", "seen@one.example"] {
        let wanted = format!("      1  client 127.0.0.1, from <joe@x.example> to <{to}>\n");
        assert!(text.contains(&wanted), "{wanted}{text}");
    }
}

#[test]
fn a_rules_route_holds_for_whom_an_alias_stands_for() {
    let lab = sites();
    let files = [("aliases", "team: ann@one.example, bob@two.example\nshut: cid@one.example\n")];
    let rules = "[[rules]]\nrecipient = \"team@home.test\"\ndo = \"route mx:gate.example\"\n\
        [[rules]]\nrecipient = \"bob@two.example\"\ndo = \"route mx\"\n\
        [[rules]]\nrecipient = \"shut@home.test\"\ndo = \"route error: 550 5.2.1 shut\"\n\
        [routes]\n\"one.example\" = \"error: 550 5.7.1 not by this way\"\n";
    let server = with(builder(&lab), &files, &format!("{ALIASES}{rules}"));
    let id = server.smtp().send(SENDER, &["team@home.test"], &message("team@test", "x")).expect(250).queue_id();
    drained(&server);
    let (ann, bob) = (sent(&server, "ann@one.example", 1), sent(&server, "bob@two.example", 1));
    assert!(ann[0].contains("relay=mx.gate.example") && bob[0].contains("relay=mx.two.example"), "{ann:?}{bob:?}");
    let (why, code) = explained(&server, "team@home.test");
    for part in [
        "   ann@one.example: relayed to mx:gate.example:",
        ", by rule 1 (stentor.toml:",
        "   bob@two.example: relayed to mx, by rule 2 (stentor.toml:",
        "ann@one.example: routes: rule: next hop mx:gate.example:",
        "ann@one.example: routes: recipient: error: 550 5.7.1 not by this way, by [routes] one.example (stentor.toml:",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    assert_eq!(code, 0, "{why}");
    // What named the next hops is kept, and what the alias is.
    let mut trace = String::new();
    wait_until("the history has it", || {
        trace = said(&server, &["trace", &id]).0;
        trace.contains("bob@two.example: to mx by rule 2 (stentor.toml:")
    });
    let policy = "alias team@home.test; table aliases, team (";
    assert!(trace.contains(policy) && trace.contains("ann@one.example: to mx:gate.example:"), "{trace}");
    // A rule that refuses them refuses the alias, and so it is explained.
    let mut client = server.smtp();
    client.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    client.cmd("RCPT TO:<shut@home.test>").expect_text("550 5.2.1 shut");
    let (why, code) = explained(&server, "shut@home.test");
    assert!(code == 69 && why.contains("=> refused: 550 5.2.1 shut\n   because of rule 3"), "{why}");
    // Another next hop of theirs is another decision about the alias.
    let old = server.path("old.toml");
    std::fs::copy(server.config(), &old).unwrap();
    server.edit_config(|text| text.replace("route mx:gate.example", "route mx:two.example"));
    let replay = || said(&server, &["policy", "replay", "--against", old.to_str().unwrap()]).0;
    wait_until("the history has both", || replay().contains(" of 2 decisions"));
    let replayed = replay();
    for part in [
        "1 of 2 decisions would change\n",
        "from <ann@sender.example> to <team@home.test>\n",
        "now: alias: ann@one.example, bob@two.example; ann@one.example: relayed to mx:gate.example:",
        "new: alias: ann@one.example, bob@two.example; ann@one.example: relayed to mx:two.example:",
    ] {
        assert!(replayed.contains(part), "{part}\n{replayed}");
    }
    assert!(!replayed.contains("bob@two.example: "), "{replayed}");
}

#[test]
fn an_aliases_owner_is_the_sender_of_what_a_rule_leads_to_it() {
    let lab = sites();
    let files = [
        ("aliases", "team: ann@one.example\nowner-team: eve@one.example\nfar: bob@two.example\n"),
        ("secret", "a secret of thirty-two octets !!\n"),
    ];
    let rules = "[[rules]]\nrecipient = \"moved@one.example\"\ndo = \"redirect team@home.test\"\n\
        [[rules]]\nrecipient = \"seen@one.example\"\ndo = [\"bcc team@home.test\", \"bcc far@home.test\", \"bcc cid@one.example\"]\n";
    let server = with(builder(&lab), &files, &format!("{ALIASES}{SRS}{rules}"));
    for to in ["moved@one.example", "seen@one.example"] {
        server.smtp().send(SENDER, &[to], &message(&format!("{to}.test"), "x")).expect(250);
    }
    drained(&server);
    let ann = sent(&server, "ann@one.example", 2);
    assert!(ann.iter().all(|line| line.contains("from=<owner-team@home.test>")), "{ann:?}");
    assert!(sent(&server, "bob@two.example", 1)[0].contains("from=<SRS0="));
    for to in ["seen@one.example", "cid@one.example"] {
        assert!(sent(&server, to, 1)[0].contains(&format!("from=<{SENDER}>")));
    }
    let (moved, _) = explained(&server, "moved@one.example");
    let owned = "ann@one.example: relayed to mx, because no route names a next hop; from <owner-team@home.test>\n";
    assert!(moved.contains(&format!("   {owned}")), "{moved}");
    let (seen, code) = explained(&server, "seen@one.example");
    for part in [
        format!("   copy to {owned}"),
        "   copy to bob@two.example: relayed to mx, because no route names a next hop; from <SRS0=".to_owned(),
        "   copy to cid@one.example: relayed to mx, because no route names a next hop\n".to_owned(),
    ] {
        assert!(seen.contains(&part) && code == 0, "{part}{seen}");
    }
}

#[test]
fn what_rules_lead_to_nobody_is_said_beforehand() {
    let lab = sites();
    let rules = "[[rules]]\nrecipient = \"lost@one.example\"\ndo = \"redirect nope@home.test\"\n\
        [[rules]]\nrecipient = \"seen@one.example\"\ndo = [\"bcc nope@home.test\", \"bcc ann@one.example\"]\n\
        [[rules]]\nrecipient = \"broken@one.example\"\ndo = \"bcc loop@home.test\"\n";
    let files = [("aliases", "loop: again\nagain: loop\n")];
    let server = with(builder(&lab), &files, &format!("{ALIASES}{rules}"));
    for to in ["lost@one.example", "broken@one.example"] {
        let reply = server.smtp().send(SENDER, &[to], &message(&format!("{to}.test"), "x"));
        let (why, code) = explained(&server, to);
        assert!(reply.code == 451 && code == 75 && why.contains("=> deferred: 451 "), "{reply:?} {code}\n{why}");
    }
    let (why, _) = explained(&server, "lost@one.example");
    assert!(why.contains("   because of redirect to nope@home.test, rule 1 (stentor.toml:"), "{why}");
    let (why, code) = explained(&server, "seen@one.example");
    assert!(why.contains("copy to nope@home.test, rule 2 (stentor.toml:"), "{why}");
    assert!(why.contains("): no copy: this address does not exist here\n") && code == 0, "{why}");
    assert!(why.contains("   copy to ann@one.example: relayed to mx, "), "{why}");
    let (checked, code) = said(&server, &["check"]);
    for part in [
        "warning: rule 1: address nope@home.test does not exist here: its mail is deferred with 451 4.3.5\n",
        "warning: rule 2: address nope@home.test does not exist here: no copy is made\n",
    ] {
        assert!(checked.contains(part) && code == 0, "{part}{checked}");
    }
    assert!(!checked.contains("loop@home.test"), "what cannot be found out is no finding: {checked}");
}

#[test]
fn explain_names_the_client_the_tables_that_missed_and_what_the_content_decides() {
    let lab = sites();
    let files = [("access", "To:joe@one.example\tOK\n"), ("transport", "two.example\tsmtp:gate.example\n")];
    let more = "[tables.access]\nsource = \"makemap:{}/access\"\nas = \"sendmail-access\"\n\
        [tables.transport]\nsource = \"hash:{}/transport\"\nas = \"transport\"\n[routing]\ntables = [\"transport\"]\n\
        [[rules]]\nsender = \"table:access\"\n[[rules]]\nrecipient = \"table:access\"\n";
    let list = builder(&lab).list("news", &["ann@one.example"]).set_in("lists.news", "post", "\"members\"");
    let server = with(list.set("client_networks", "[\"127.0.0.0/30\"]"), &files, more);
    let (why, _) = explained(&server, "joe@one.example");
    for part in [
        "client 127.0.0.1: trusted: in client network 127.0.0.0/30\n",
        "rule 1: no: sender (table access)\n",
        "yes: OK, which does not decide; continue with the next rule\n",
        "table transport: not found\n",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    assert!(why.starts_with("stentor.toml:"), "{why}");
    let post = "   if the sender or author may post to list news; this depends on the content, see --message\n";
    let (why, code) = explained(&server, "news@lists.test");
    assert!(why.contains(post) && code == 0, "{why}");
    let (why, _) = said(&server, &["explain", "--from", SENDER, "--to", "joe@one.example", "--client", "192.0.2.1"]);
    assert!(why.starts_with("client 192.0.2.1: untrusted: not in a client network"), "{why}");
}
