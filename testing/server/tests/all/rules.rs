//! Rules and routes over real sockets: who is refused with which words, where mail goes instead, what is done with it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::kit::{SENDER, builder, closed_address, data, drained, fates, post};

/// A server with these lines at the end of its configuration.
fn with(builder: Builder, more: &str) -> Server {
    let server = builder.prepare();
    server.edit_config(|text| format!("{text}\n{more}"));
    server.run()
}

/// The hosts that took mail for a recipient, from the log.
fn hosts(server: &Server, recipient: &str) -> Vec<String> {
    let of_recipient = ["stat=Sent", &format!("<{recipient}>")];
    // Lines are written a little later.
    server.wait_log(&of_recipient);
    let lines = server.log().matching(&of_recipient);
    let host =
        |line: &String| line.split("relay=").nth(1).and_then(|rest| rest.split([' ', ',']).next()).map(str::to_owned);
    lines.iter().filter_map(host).collect()
}

/// A lab of sites, each with one host that takes mail for every domain.
fn sites(names: &[&str]) -> TestLab {
    let site = |name: &&str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    TestLab::start(&names.iter().map(site).collect::<String>())
}

/// What a client from outside hears about a recipient.
fn rcpt(server: &Server, from: &str, to: &str) -> String {
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
    let reply = client.cmd(&format!("RCPT TO:<{to}>"));
    format!("{} {}", reply.code, reply.lines.join("\n"))
}

#[test]
fn a_refusal_has_the_operators_own_words() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab),
        "[domains]\nrelay = [\"one.example\"]\n\
         [[rules]]\nrecipient = \"sales@one.example\"\n\
         do = 'reject 550 5.7.1 You wrote to sales@; you meant support@one.example! (see: \"https://one.example/[1]\")'\n\
         [[rules]]\nrecipient = \"old@one.example\"\ndo = \"reject 551 5.1.6 This person has left.\\nWrite to new@one.example\"\n\
         [[rules]]\nsender = \"<>\"\nrecipient = \"quiet@one.example\"\ndo = \"defer 451 4.7.1 later\"\n",
    );
    assert_eq!(
        rcpt(&server, "a@b.example", "sales@one.example"),
        "550 5.7.1 You wrote to sales@; you meant support@one.example! (see: \"https://one.example/[1]\")"
    );
    let two = rcpt(&server, "a@b.example", "old@one.example");
    assert_eq!(two, "551 5.1.6 This person has left.\n5.1.6 Write to new@one.example");
    assert_eq!(rcpt(&server, "", "quiet@one.example"), "451 4.7.1 later");
    assert!(rcpt(&server, "a@b.example", "quiet@one.example").starts_with("250"));
    assert!(rcpt(&server, "a@b.example", "x@elsewhere.example").starts_with("550 5.7.1 Relaying denied"));
    let by = "rule 1 (stentor.toml:";
    server.log().wait_nth(&["ruleset=check_rcpt", "arg1=<sales@one.example>", &format!("policy={by}")], 1);
    let traced = || String::from_utf8(server.operator(&["trace", "sales@one.example"]).stdout).unwrap();
    wait_until("the history has it", || traced().contains(&format!("policy: {by}")));
}

#[test]
fn a_senders_gateway_in_both_orders_and_a_catch_all_beside_it() {
    let lab = sites(&["one.example", "two.example", "gate.example", "rest.example"]);
    let config = |order: &str| {
        format!(
            "[routing]\norder = [{order}]\n[hops]\ngateway = \"mx:gate.example\"\n\
             [routes]\n\"one.example\" = \"mx\"\n\"*\" = \"mx:rest.example\"\n\
             [sender_routes]\n\"secret@x.example\" = \"hop:gateway\"\n"
        )
    };
    for (order, first) in
        [("\"recipient\", \"sender\", \"default\"", "one"), ("\"sender\", \"recipient\", \"default\"", "gate")]
    {
        let server = with(builder(&lab), &config(order));
        for (n, (from, to)) in [
            ("secret@x.example", "a@one.example"),
            ("secret@x.example", "b@two.example"),
            ("plain@x.example", "c@one.example"),
            ("plain@x.example", "d@two.example"),
        ]
        .into_iter()
        .enumerate()
        {
            let wire = message(&format!("{n}.{first}@test"), "routed");
            lab.recorder().expect_message(wire.clone().into());
            server.smtp().send(from, &[to], &wire).expect(250);
        }
        drained(&server);
        let host = |to: &str| hosts(&server, to).join(" ");
        assert!(host("a@one.example").starts_with(&format!("mx.{first}.example")), "{}", host("a@one.example"));
        assert!(host("b@two.example").starts_with("mx.gate.example"), "{}", host("b@two.example"));
        assert!(host("c@one.example").starts_with("mx.one.example"), "{}", host("c@one.example"));
        assert!(host("d@two.example").starts_with("mx.rest.example"), "{}", host("d@two.example"));
        // What was decided for real mail is kept with it.
        let by = if first == "gate" {
            "to hop:gateway by [sender_routes] secret@x.example"
        } else {
            "by [routes] one.example"
        };
        let traced = || String::from_utf8(server.operator(&["trace", "a@one.example"]).stdout).unwrap();
        wait_until("the history has it", || traced().contains(by));
        let explained = server.operator(&["explain", "--from", "secret@x.example", "--to", "a@one.example"]);
        let explained = String::from_utf8(explained.stdout).unwrap();
        let hop = if first == "gate" {
            "=> relayed to hop:gateway (mx:gate.example:"
        } else {
            "=> relayed to mx, by [routes] one.example"
        };
        assert!(explained.contains(hop), "{explained}");
        assert!(explained.contains("overridden by an earlier route"), "{explained}");
    }
}

#[test]
fn a_domain_without_any_mx_goes_to_two_addresses_of_which_one_is_dead() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\nrelay = true\n[[site.host]]\nname = 'mx.one.example'\naddress = '127.16.7.1'\n",
    );
    let routes = "[domains]\nrelay = [\"customer.example\"]\n[routes]\n\"customer.example\" = [\"[127.16.7.9]\", \"[127.16.7.1]\"]\n";
    let server = with(builder(&lab), routes);
    let wire = message("two@test", "To whoever is there");
    lab.recorder().expect_message(wire.clone().into());
    // A stranger's: the domain is relayed for.
    let mut stranger = server.connect_from("127.0.0.2").greeted();
    stranger.send("joe@elsewhere.example", &["ann@customer.example"], &wire).expect(250);
    lab.wait_clean("two@test", &["ann@customer.example"]);
    drained(&server);
    assert!(hosts(&server, "ann@customer.example")[0].contains("127.16.7.1"));
    assert!(rcpt(&server, "joe@elsewhere.example", "ann@other.example").starts_with("550 5.7.1"));
}

#[test]
fn a_domains_mx_is_another_ones_and_an_exception_has_its_own() {
    let lab = sites(&["one.example", "two.example"]);
    let server = with(builder(&lab), "[routes]\n\".example\" = \"mx:two.example\"\n\"one.example\" = \"mx\"\n");
    post(&server, &lab, &["ann@one.example"], "own@test");
    post(&server, &lab, &["bob@nowhere.example"], "others@test");
    drained(&server);
    assert!(hosts(&server, "ann@one.example")[0].starts_with("mx.one.example"));
    assert!(hosts(&server, "bob@nowhere.example")[0].starts_with("mx.two.example"));
}

#[test]
fn the_same_mail_goes_to_two_servers_and_each_is_retried_by_itself() {
    let lab = sites(&["one.example", "two.example"]);
    let mut server = with(
        builder(&lab),
        "[hops]\narchive = \"mx:nowhere.example\"\n[[rules]]\nrecipient = \"one.example\"\ndo = \"copy hop:archive\"\n",
    );
    post(&server, &lab, &["ann@one.example"], "copy@test");
    server.log().wait_nth(&["stat=Sent", "to=<ann@one.example>"], 1);
    server.log().wait_nth(&["lookup:", "domains=one.example:1"], 1);
    assert_eq!(fates(&server).pending, 1);
    server.kill();
    server.edit_config(|text| text.replace("mx:nowhere.example", "mx:two.example"));
    server.start_again();
    server.operator(&["flush"]);
    drained(&server);
    assert!(hosts(&server, "ann@one.example")[0].starts_with("mx.two.example"));
}

/// What a table has for a domain is asked when its mail goes out; what it has for an address is kept with the
/// recipient.
#[test]
fn mail_that_waits_for_a_domain_follows_a_table_that_is_replaced() {
    let lab = sites(&["gate.example"]);
    let files = tempfile::tempdir().expect("a folder");
    let (path, new) = (files.path().join("transport"), files.path().join("new"));
    let lines =
        |host: &str| format!("two.example smtp:{host}\nann@one.example smtp:{host}\n.three.example smtp:{host}\n");
    std::fs::write(&path, lines("nowhere.example")).expect("it is writable");
    let config = format!(
        "[tables.transport]\nsource = \"hash:{}\"\nas = \"transport\"\n[routing]\ntables = [\"transport\"]\n",
        path.display()
    );
    let server = with(builder(&lab), &config);
    let to = ["ann@one.example", "bob@two.example", "cid@sub.three.example"];
    post(&server, &lab, &to, "replaced@test");
    server.log().wait_nth(&["lookup:", "two.example:1"], 1);
    server.log().wait_nth(&["lookup:", "sub.three.example:1"], 1);
    assert_eq!(fates(&server).pending, 3);
    std::fs::write(&new, lines("gate.example")).expect("it is writable");
    std::fs::rename(&new, &path).expect("it is writable");
    for recipient in ["bob@two.example", "cid@sub.three.example"] {
        server.log().wait_nth(&["stat=Sent", &format!("<{recipient}>")], 1);
    }
    assert_eq!(fates(&server).pending, 1);
}

#[test]
fn postfixs_tables_of_senders_are_read_as_they_are() {
    let lab = sites(&["one.example", "gate.example", "archive.example"]);
    let files = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(files.path().join(name), text).expect("it is writable");
    write("relayhost", "@legal.example gate.example\nfree@legal.example DUNNO\n");
    write("bcc", "@legal.example post@archive.example\n");
    write("own", "@own.example route mx:gate.example\n");
    let table = |name: &str, kind: &str| {
        format!("[tables.{name}]\nsource = \"hash:{}/{name}\"\nas = \"{kind}\"\n", files.path().display())
    };
    let config = format!(
        "{}{}{}[routing]\norder = [\"sender\", \"recipient\", \"default\"]\nsender_tables = [\"relayhost\", \"own\"]\n\
         [[rules]]\nsender = \"table:bcc\"\n",
        table("relayhost", "relayhost"),
        table("bcc", "bcc"),
        table("own", "own"),
    );
    let server = with(builder(&lab), &config);
    for (n, from) in ["ann@legal.example", "free@legal.example", "bob@own.example"].into_iter().enumerate() {
        let wire = message(&format!("{n}.senders@test"), "By its sender");
        lab.recorder().expect_message(wire.clone().into());
        server.smtp().send(from, &[&format!("to{n}@one.example")], &wire).expect(250);
    }
    drained(&server);
    for (to, host) in [("to0@one.example", "gate"), ("to1@one.example", "one"), ("to2@one.example", "gate")] {
        let by = hosts(&server, to);
        assert!(by[0].starts_with(&format!("mx.{host}.example")), "{to}: {by:?}");
    }
    assert_eq!(lab.recorder().copies_to("post@archive.example").len(), 2);
    // What no mail leads to is named before it is missed.
    server.edit_config(|text| text.replace("as = \"relayhost\"", "as = \"transport\""));
    write("relayhost", "@legal.example smtp:gate.example\n");
    let checked = server.operator(&["check"]);
    let said = format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(said.contains("\"@legal.example\" in table relayhost is never looked up"), "{said}");
    assert!(!said.contains("\"@own.example\""), "{said}");
}

#[test]
fn a_lists_posts_go_by_the_hop_that_a_rule_names() {
    let lab = sites(&["one.example", "two.example", "gate.example"]);
    let config =
        builder(&lab).list("news", &["ann@one.example", "bob@two.example"]).list("plain", &["ann@one.example"]);
    let rules = "[hops]\ngateway = \"mx:gate.example\"\n[[rules]]\nlist = \"news\"\ndo = \"route hop:gateway\"\n\
                 [[rules]]\nlist = \"plain\"\nclient = \"127.0.0.3\"\ndo = \"route error: 550 5.7.1 not over this\"\n";
    let server = with(config, rules);
    let wire = message("post@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["news@lists.test", "plain@lists.test"], &wire).expect(250);
    drained(&server);
    server.log().wait_nth(&["stat=Sent", "<ann@one.example>"], 2);
    let mut of_ann = hosts(&server, "ann@one.example");
    of_ann.sort();
    assert!(of_ann[0].starts_with("mx.gate.example") && of_ann[1].starts_with("mx.one.example"), "{of_ann:?}");
    assert!(hosts(&server, "bob@two.example")[0].starts_with("mx.gate.example"));
    let copy = String::from_utf8(lab.body_for("bob@two.example")).unwrap();
    assert!(copy.starts_with("List-Id: "), "{copy}");
    let mut refused = server.connect_from("127.0.0.3").greeted();
    refused.cmd("MAIL FROM:<me@home.example>").expect(250);
    refused.cmd("RCPT TO:<plain@lists.test>").expect_text("550 5.7.1 not over this");
}

#[test]
fn one_message_to_two_people_over_two_hops_and_a_restart() {
    let lab = sites(&["one.example", "gate.example"]);
    let mut server = with(
        builder(&lab),
        "[hops]\ngateway = \"mx:nowhere.example\"\n[[rules]]\nrecipient = \"ann@one.example\"\ndo = \"route hop:gateway\"\n",
    );
    post(&server, &lab, &["ann@one.example", "bob@one.example"], "two@test");
    server.log().wait_nth(&["stat=Sent", "bob@one.example"], 1);
    // Ann's copy waits for a hop that does not resolve; she is found by her address and her domain.
    server.log().wait_nth(&["lookup:", "domains=one.example:1", "nowhere.example"], 1);
    assert_eq!(fates(&server).pending, 1);
    let address = data(server.operator_json(&["address", "ann@one.example"]).remove(0));
    assert_eq!((&address["address"], &address["messages_total"]), (&"ann@one.example".into(), &1.into()), "{address}");
    for selected in ["ann@one.example", "@one.example"] {
        let held = server.operator(&["hold", "--recipient", selected, "--dry-run"]);
        assert!(held.status.success(), "{selected}: {held:?}");
    }
    server.stop();
    server.edit_config(|text| text.replace("mx:nowhere.example", "mx:gate.example"));
    server.start_again();
    server.operator(&["flush"]);
    lab.wait_clean("two@test", &["ann@one.example", "bob@one.example"]);
    drained(&server);
    assert!(hosts(&server, "ann@one.example").iter().any(|host| host.starts_with("mx.gate.example")));
}

#[test]
fn what_rules_ask_of_a_message_is_done() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = with(
        builder(&lab),
        "[[rules]]\nrecipient = \"held@one.example\"\ndo = \"hold asked by legal\"\n\
         [[rules]]\nrecipient = \"gone@one.example\"\ndo = \"discard nobody reads it\"\n\
         [[rules]]\nrecipient = \"ann@one.example\"\ndo = [\"bcc archive@two.example\", \"prepend X-Seen: yes\"]\n\
         [[rules]]\nrecipient = \"moved@one.example\"\ndo = \"redirect new@two.example\"\n",
    );
    let send = |to: &[&str], id: &str| {
        let wire = message(id, "A test");
        server.smtp().send(SENDER, to, &wire).expect(250).queue_id()
    };
    let held = send(&["held@one.example"], "held@test");
    send(&["gone@one.example", "ann@one.example"], "gone@test");
    send(&["moved@one.example"], "moved@test");
    send(&["ann@one.example"], "copied@test");
    server.log().wait_nth(&["stat=Sent", "archive@two.example"], 1);
    server.log().wait_nth(&["stat=Sent", "new@two.example"], 1);
    server.log().wait_nth(&["discarded:", "nobody reads it"], 1);
    let copy = String::from_utf8(lab.body_for("archive@two.example")).unwrap();
    assert!(copy.starts_with("X-Seen: yes\r\nReceived: "), "{copy}");
    assert!(server.log().matching(&["stat=Sent", "gone@one.example"]).is_empty());
    assert!(server.log().matching(&["stat=Sent", "moved@one.example"]).is_empty());
    // Nothing of a held message goes out before it is released.
    assert!(server.log().matching(&["stat=Sent", "held@one.example"]).is_empty());
    let shown = String::from_utf8(server.operator(&["queue", "show", &held]).stdout).unwrap();
    assert!(shown.contains("held"), "{shown}");
    server.operator(&["release", "--id", &held]);
    server.log().wait_nth(&["stat=Sent", "held@one.example"], 1);
    drained(&server);
}

#[test]
fn a_table_is_read_again_and_a_broken_one_changes_nothing() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).file("access.pcre", br"/^127\.0\.0\.2$/ REJECT not you").prepare();
    let path = server.path("access.pcre");
    server.edit_config(|text| {
        let path = path.display();
        format!(
            "{text}\n[domains]\nrelay = [\"one.example\"]\n[tables.clients]\nsource = \"pcre:{path}\"\nas = \"access\"\n\
             [[rules]]\nclient = \"table:clients\"\n"
        )
    });
    let server = server.run();
    let says = |start: &str| rcpt(&server, "a@b.example", "x@one.example").starts_with(start);
    assert!(says("554 5.7.1 not you"));
    let replace = |text: &str| {
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
    };
    replace("/^127/ 450 4.3.2 not yet\n");
    wait_until("the new table is in force", || says("450 4.3.2 not yet"));
    replace("/^127/ OK\n/(?=127)/ OK\n");
    server.log().wait_nth(&["the table could not be replaced", "access.pcre:2"], 1);
    assert!(says("450 4.3.2 not yet"));
    replace("/^127.0.0.9$/ REJECT\n");
    wait_until("the next one is in force", || says("250"));
}

#[test]
fn a_refusal_by_a_table_names_the_entry() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab)
        .file("access", b"no@one.example REJECT gone\nbad@one.example permit_mynetworks, reject\n")
        .prepare();
    let path = server.path("access");
    server.edit_config(|text| {
        let path = path.display();
        format!(
            "{text}\n[domains]\nrelay = [\"one.example\"]\n[tables.access]\nsource = \"hash:{path}\"\nas = \"access\"\n\
             [[rules]]\nrecipient = \"table:access\"\n"
        )
    });
    let server = server.run();
    assert!(rcpt(&server, "a@b.example", "no@one.example").starts_with("554 5.7.1 gone"));
    assert!(rcpt(&server, "a@b.example", "bad@one.example").starts_with("451 4.3.5"));
    for (to, line, why) in [("no", 1, ""), ("bad", 2, "permit_mynetworks")] {
        let entry = format!("table access has {to}@one.example ({}:{line})", path.display());
        let log = server
            .log()
            .wait(&["ruleset=check_rcpt", &format!("arg1=<{to}@one.example>"), "policy=rule 1 ("])
            .expect("logged");
        assert!(log.contains(&entry) && log.contains(why), "{entry}: {log}");
    }
}

/// A socketmap that says this of a request, on this address.
pub fn socketmap_with(address: SocketAddr, answer: fn(&str) -> &'static str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                loop {
                    let Ok(octets @ 1..) = stream.read(&mut buffer) else { return };
                    let asked = String::from_utf8_lossy(&buffer[..octets]).into_owned();
                    let asked = asked.split_once(':').map_or("", |(_, rest)| rest.trim_end_matches(','));
                    let answer = answer(asked);
                    let _ = write!(stream, "{}:{answer},", answer.len());
                }
            });
        }
    });
}

#[test]
fn a_table_behind_a_socket_is_asked_and_defers_while_it_is_down() {
    let lab = TestLab::sites(&["one.example"]);
    let address = closed_address();
    let server = with(
        builder(&lab),
        &format!(
            "[domains]\nrelay = [\"one.example\"]\n[tables.vips]\nsource = \"socketmap:inet:127.0.0.1:{}:vips\"\nas = \"access\"\n\
             [[rules]]\nsender = \"table:vips\"\n",
            address.port()
        ),
    );
    assert!(rcpt(&server, "boss@b.example", "x@one.example").starts_with("451 4.3.0"));
    socketmap_with(address, |asked| if asked == "vips boss@b.example" { "OK REJECT 5.7.1 known" } else { "NOTFOUND " });
    assert_eq!(rcpt(&server, "boss@b.example", "x@one.example"), "554 5.7.1 known");
    assert!(rcpt(&server, "other@b.example", "x@one.example").starts_with("250"));
}

#[test]
fn the_last_days_are_decided_again_by_a_configuration_that_is_not_loaded() {
    let lab = sites(&["one.example", "two.example"]);
    let server = with(
        builder(&lab).list("news", &["ann@one.example"]).alias("team@lists.test", &["bob@two.example"]),
        "[domains]\nrelay = [\"two.example\"]\n",
    );
    post(&server, &lab, &["ann@one.example", "bob@two.example"], "first@test");
    post(&server, &lab, &["ann@one.example"], "second@test");
    post(&server, &lab, &["news@lists.test"], "post@test");
    post(&server, &lab, &["team@lists.test"], "team@test");
    assert!(rcpt(&server, "joe@x.example", "ann@one.example").starts_with("550"));
    drained(&server);
    let text = std::fs::read_to_string(server.config()).unwrap();
    let more = "[[rules]]\nsender = \"joe@x.example\"\ndo = \"relay\"\n\
                [[rules]]\nrecipient = [\"ann@one.example\", \"news@lists.test\", \"team@lists.test\"]\ndo = \"reject 550 5.7.1 not any more\"\n";
    server.write("old.toml", text.as_bytes());
    server.edit_config(|text| format!("{text}\n{more}"));
    let old = server.path("old.toml");
    let replay = |more: &[&str]| {
        let output = server.operator(&[&["policy", "replay", "--against", old.to_str().unwrap()], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // The history is written a moment behind.
    wait_until("the history has it", || replay(&[]).starts_with("5 of 6 decisions would change\n"));
    let text = replay(&[]);
    assert!(text.contains("      2  client 127.0.0.1, from <ann@sender.example> to <ann@one.example>"), "{text}");
    assert!(
        text.contains("now: a post to list news (")
            && text.contains("\n         new: refused: 550 5.7.1 not any more, because of rule 2"),
        "{text}"
    );
    // An alias is decided about by its address, not by those that it stands for.
    assert!(text.contains("to <team@lists.test>\n         now: alias: bob@two.example (it is an alias)\n"), "{text}");
    assert!(text.contains("now: refused: 550 5.7.1 Relaying denied"), "{text}");
    assert!(text.contains("new: relayed to mx, because of rule 1 ("), "{text}");
    assert!(!text.contains("to <bob@two.example>"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&replay(&["--json", "--limit", "1"])).unwrap();
    assert_eq!((&json["decisions"], &json["changed"]), (&6.into(), &5.into()), "{json}");
}

/// Of what rules redirect or discard, the recipients that the client named are decided about.
#[test]
fn a_replay_sees_what_was_redirected_and_discarded() {
    let lab = sites(&["one.example", "two.example"]);
    let rules = "[[rules]]\nrecipient = \"moved@one.example\"\ndo = \"redirect ann@two.example\"\n\
                 [[rules]]\nrecipient = \"gone@one.example\"\ndo = \"discard\"\n";
    let server = with(builder(&lab), &format!("[domains]\nrelay = [\"one.example\", \"two.example\"]\n{rules}"));
    for to in ["moved@one.example", "gone@one.example"] {
        server.smtp().send("me@home.example", &[to], &stentor_harness::message("a@test", "x")).expect(250);
    }
    drained(&server);
    let old = server.path("old.toml");
    std::fs::copy(server.config(), &old).unwrap();
    server.edit_config(|text| text.replace("ann@two.example", "bob@two.example").replace("\"discard\"", "\"hold\""));
    let replay = || {
        let output = server.operator(&["policy", "replay", "--against", old.to_str().unwrap()]);
        String::from_utf8(output.stdout).unwrap()
    };
    wait_until("the history has it", || replay().starts_with("2 of 2 decisions would change\n"));
    let text = replay();
    assert!(
        text.contains("to <moved@one.example>\n         now: relayed to mx, redirected to ann@two.example ("),
        "{text}"
    );
    assert!(text.contains("new: relayed to mx, redirected to bob@two.example, "), "{text}");
    assert!(text.contains("to <gone@one.example>\n         now: accepted and discarded ("), "{text}");
}

/// The client of the API is in no client network: it relays because it has logged in, and so the log says.
#[test]
fn a_login_is_one_in_a_replay() {
    let lab = sites(&["one.example"]);
    for rules in ["", "[[rules]]\nsender = \"joe@x.example\"\ndo = \"relay\"\n"] {
        let networks = builder(&lab).set("client_networks", "[\"127.0.0.9\"]");
        let (mut server, token) = crate::http_auth::with_token(networks);
        server.edit_config(|text| format!("{text}\n{rules}"));
        server.stop();
        server.start_again();
        let path = "/api/v1/messages?sender=me@home.example&recipient=ann@one.example";
        let wire = stentor_harness::message("login@test", "x");
        server.http("POST", path).token(&token).body("message/rfc822", &wire).send().expect(201);
        drained(&server);
        let old = server.path("old.toml");
        std::fs::copy(server.config(), &old).unwrap();
        let more = "[[rules]]\nrecipient = \"ann@one.example\"\n\
                    do = [\"transfer_encoding 8bit\", \"reject 550 5.7.1 not any more\"]\n\
                    [[rules]]\nname = \"spam\"\nsubject = \"offer\"\ndo = \"reject\"\n";
        server.edit_config(|text| format!("{text}\n{more}"));
        let replay = || {
            let output = server.operator(&["policy", "replay", "--against", old.to_str().unwrap()]);
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        wait_until("the history has it", || replay().starts_with("1 of 1 decision would change\n"));
        let text = replay();
        assert!(text.contains("now: relayed to mx (authenticated client, "), "{text}");
        assert!(text.contains("new: refused: 550 5.7.1 not any more, because of rule "), "{text}");
        let rule = if rules.is_empty() { "rule 2" } else { "rule 3" };
        let note = format!("stentor: the history stores no message content; not evaluated: {rule} \"spam\"\n");
        assert!(text.ends_with(&note), "{text}");
    }
}

#[test]
fn a_stranger_relays_neither_by_a_sender_nor_by_a_helo_of_the_access_file() {
    let lab = TestLab::sites(&["one.example"]);
    let access = b"From:friend.example RELAY\nfriend.example RELAY\nConnect:127.0.0.3 RELAY\nTo:one.example RELAY\nFrom:spam@friend.example REJECT\n";
    let server = builder(&lab).file("access", access).prepare();
    let path = server.path("access");
    server.edit_config(|text| {
        let rules = ["client", "helo", "sender", "recipient"];
        let rules: String = rules.iter().map(|key| format!("[[rules]]\n{key} = \"table:access\"\n")).collect();
        format!("{text}\n[tables.access]\nsource = \"makemap:{}\"\nas = \"sendmail-access\"\n{rules}", path.display())
    });
    let server = server.run();
    assert!(rcpt(&server, "ann@friend.example", "victim@two.example").starts_with("550 5.7.1 Relaying denied"));
    assert!(rcpt(&server, "ann@friend.example", "bob@one.example").starts_with("250"));
    // What lets a client relay does not keep its sender from being asked about.
    let mut relaying = server.connect_from("127.0.0.3").greeted();
    relaying.cmd("MAIL FROM:<ann@friend.example>").expect(250);
    relaying.cmd("RCPT TO:<victim@two.example>").expect(250);
    relaying.cmd("RSET").expect(250);
    relaying.cmd("MAIL FROM:<spam@friend.example>").expect(250);
    relaying.cmd("RCPT TO:<victim@two.example>").expect_text("550 5.7.1");
}

#[test]
fn what_is_asked_for_a_refused_recipient_touches_nobody_else() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let rules = "[[rules]]\nrecipient = [\"drop@one.example\", \"sales@one.example\"]\ndo = \"discard\"\n\
                 [[rules]]\nrecipient = \"lost@two.example\"\ndo = \"redirect nobody@lists.test\"\n\
                 [[rules]]\nhelo = \"bad.example\"\ndo = \"reject 550 5.7.1 not by this name\"\n";
    let server = with(builder(&lab).list("news", &["ann@one.example"]), rules);
    let held = server.operator(&["bounce", "--recipient", "@one.example", "--for", "1h", "--reason", "closed"]);
    assert!(held.status.success(), "{held:?}");
    let wire = message("kept@test", "For Bob");
    lab.recorder().expect_message(wire.clone().into());
    let mut client = server.smtp();
    client.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    let refused = client.cmd("RCPT TO:<sales@one.example>");
    client.cmd("RCPT TO:<bob@two.example>").expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(&wire));
    client.reply().expect(250);
    assert_eq!(refused.code, 550, "{refused:?}");
    lab.wait_clean("kept@test", &["bob@two.example"]);
    // Nobody reads what it is redirected to: it is not taken.
    server.smtp().send(SENDER, &["lost@two.example"], &wire).expect(451);
    let mut shouting = server.connect_from("127.0.0.2");
    shouting.reply().expect(220);
    shouting.cmd("EHLO BAD.Example.").expect(250);
    shouting.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    shouting.cmd("RCPT TO:<bob@two.example>").expect_text("550 5.7.1 not by this name");
    drained(&server);
}

#[test]
fn copies_take_nothing_away_and_silence_no_report() {
    let lab = sites(&["one.example", "two.example", "sender.example"]);
    let rules = "[aliases]\n\"both@lists.test\" = [\"joe@one.example\", \"ann@one.example\"]\n\
                 \"team@lists.test\" = [\"fay@nodomain.test\"]\n\
                 [[rules]]\nrecipient = \"team@lists.test\"\ndo = \"bcc fay@nodomain.test\"\n\
                 [[rules]]\nrecipient = \"joe@one.example\"\ndo = \"copy mx:two.example\"\n\
                 [[rules]]\nrecipient = \"dan@one.example\"\ndo = [\"copy mx:two.example\", \"redirect new@one.example\"]\n\
                 [[rules]]\nrecipient = \"eve@one.example\"\ndo = [\"bcc eve@one.example\", \"bcc gone@nodomain.test\"]\n";
    let server = with(builder(&lab).list("news", &["x@one.example"]), rules);
    post(&server, &lab, &["joe@one.example", "both@lists.test"], "copy@test");
    drained(&server);
    server.log().wait_nth(&["stat=Sent", "<joe@one.example>"], 2);
    let mut of_joe = hosts(&server, "joe@one.example");
    of_joe.sort();
    assert!(of_joe.len() == 2 && of_joe[0].starts_with("mx.one") && of_joe[1].starts_with("mx.two"), "{of_joe:?}");
    assert_eq!(hosts(&server, "ann@one.example").len(), 1);
    // Who is redirected has the copy all the same.
    server.smtp().send(SENDER, &["dan@one.example"], &message("moved@test", "A test")).expect(250);
    server.log().wait_nth(&["stat=Sent", "<dan@one.example>", "relay=mx.two."], 1);
    server.log().wait_nth(&["stat=Sent", "<new@one.example>", "relay=mx.one."], 1);
    drained(&server);
    assert_eq!(hosts(&server, "dan@one.example").len(), 1);
    post(&server, &lab, &["eve@one.example", "gone@nodomain.test"], "bcc@test");
    server.log().wait_nth(&["stat=Sent", "<eve@one.example>"], 1);
    // Who named a recipient that is copied to as well hears that it failed.
    server.log().wait_nth(&["stat=Sent", "to=<ann@sender.example>"], 1);
    drained(&server);
    assert_eq!(hosts(&server, "eve@one.example").len(), 1);
    // So does who named an alias of theirs.
    server.smtp().send(SENDER, &["team@lists.test"], &message("team@test", "A test")).expect(250);
    server.log().wait_nth(&["stat=Sent", "to=<ann@sender.example>"], 2);
}

#[test]
fn tables_of_routes_hold_for_subscribers_and_reports_and_the_order_for_delivery() {
    let lab = sites(&["one.example", "gate.example"]);
    let transport = b"gated.example smtp:mx.gate.example\nsender.example smtp:mx.gate.example\n";
    let server = builder(&lab).list("news", &["ann@gated.example"]).file("transport", transport).prepare();
    let path = server.path("transport");
    server.edit_config(|text| {
        format!(
            "{text}\n[tables.transport]\nsource = \"hash:{}\"\nas = \"transport\"\n[routing]\ntables = [\"transport\"]\n\
             order = [\"sender\", \"default\", \"recipient\"]\n[routes]\n\"one.example\" = \"mx\"\n\"*\" = \"mx:gate.example\"\n",
            path.display()
        )
    });
    let check = server.operator(&["check"]);
    assert!(check.status.success(), "{check:?}");
    let server = server.run();
    post(&server, &lab, &["news@lists.test"], "post@test");
    post(&server, &lab, &["bob@one.example"], "order@test");
    drained(&server);
    assert!(hosts(&server, "ann@gated.example")[0].starts_with("mx.gate.example"));
    assert!(
        hosts(&server, "bob@one.example")[0].starts_with("mx.gate.example"),
        "the default comes first in the order"
    );
    std::fs::remove_file(server.path("transport")).unwrap();
    let check = server.operator(&["check"]);
    let said = String::from_utf8_lossy(&check.stderr).into_owned() + &String::from_utf8_lossy(&check.stdout);
    assert!(!check.status.success() && said.contains("transport") && said.contains("No such file"), "{said}");
}

/// As `explain` says it: not by what the table has for their domain.
#[test]
fn whom_a_table_leaves_alone_goes_where_others_of_no_table_go() {
    let lab = sites(&["one.example", "gate.example"]);
    let config = "[aliases]\n\"vips@lists.test\" = [\"vip@gated.example\"]\n[tables.transport]\nas = \"transport\"\n\
                  inline = { \"vip@gated.example\" = \":\", \"gated.example\" = \"smtp:mx.gate.example\" }\n\
                  [routing]\ntables = [\"transport\"]\n[routes]\n\"*\" = \"mx:one.example\"\n";
    let server = with(builder(&lab).list("news", &["x@one.example"]), config);
    post(&server, &lab, &["vip@gated.example", "joe@gated.example"], "a@test");
    drained(&server);
    server.smtp().send(SENDER, &["vips@lists.test"], &message("b@test", "A test")).expect(250);
    drained(&server);
    server.log().wait_nth(&["stat=Sent", "<vip@gated.example>"], 2);
    assert!(hosts(&server, "vip@gated.example").iter().all(|host| host.starts_with("mx.one.")));
    assert!(hosts(&server, "joe@gated.example")[0].starts_with("mx.gate."));
}

/// Whoever is named, or stands behind an alias: nothing else asks for a rule here.
#[test]
fn a_catch_all_that_comes_first_is_first_for_aliases_too() {
    let lab = sites(&["one.example", "gate.example"]);
    let config = "[aliases]\n\"team@lists.test\" = [\"ann@one.example\"]\n[routing]\norder = [\"default\", \"recipient\"]\n\
                  [routes]\n\"one.example\" = \"mx\"\n\"*\" = \"mx:gate.example\"\n";
    let server = with(builder(&lab).list("news", &["x@one.example"]), config);
    post(&server, &lab, &["joe@one.example"], "a@test");
    server.smtp().send(SENDER, &["team@lists.test"], &message("b@test", "A test")).expect(250);
    drained(&server);
    for to in ["joe@one.example", "ann@one.example"] {
        assert!(hosts(&server, to)[0].starts_with("mx.gate."), "{to}");
    }
}

/// Each of its targets is asked about, and what the alias stands for is found in time.
#[test]
fn an_alias_of_many_addresses_behind_a_socket() {
    const TARGETS: usize = 300;
    fn answer(key: &str) -> &'static str {
        static ALL: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let all = || (0..TARGETS).map(|n| format!("u{n}@one.example")).collect::<Vec<_>>().join(", ");
        if key.ends_with("all@one.example") { ALL.get_or_init(|| format!("OK {}", all())) } else { "NOTFOUND " }
    }
    let lab = TestLab::sites(&["one.example"]);
    let address = closed_address();
    socketmap_with(address, answer);
    let server = with(
        builder(&lab),
        &format!(
            "[tables.users]\nsource = \"socketmap:inet:127.0.0.1:{}:users\"\nas = \"virtual\"\n[addresses]\nvirtual = [\"users\"]\n",
            address.port()
        ),
    );
    server.smtp().send(SENDER, &["all@one.example"], &message("many@test", "To all")).expect(250);
    wait_until("all of them are delivered to", || fates(&server).delivered == TARGETS as u64);
    let output = server.operator(&["explain", "--from", SENDER, "--to", "all@one.example"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("u299@one.example"));
}

/// A site that refuses everybody, and some that take mail for every domain.
fn refusing(names: &[&str]) -> TestLab {
    let site = |name: &&str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    let refusing = "[[site]]\nname = 'no.example'\nbehaviour = { reject_share = 1.0 }\n".to_owned();
    TestLab::start(&(refusing + &names.iter().map(site).collect::<String>()))
}

#[test]
fn reports_go_where_their_senders_routes_say() {
    let lab = refusing(&["gate.example", "own.example", "sender.example"]);
    // No other gateway than the one for all senders; what is refused goes there by itself.
    let routes = "[routes]\n\"no.example\" = \"mx\"\n[sender_routes]\n\"*\" = \"mx:gate.example\"\n";
    let server = with(builder(&lab), routes);
    post(&server, &lab, &["ann@no.example"], "all@test");
    assert!(hosts(&server, SENDER)[0].starts_with("mx.gate.example"));
    drop(server);
    let server = with(builder(&lab), &format!("{routes}\"<>\" = \"mx:own.example\"\n"));
    post(&server, &lab, &["ann@no.example"], "null@test");
    assert!(hosts(&server, SENDER)[0].starts_with("mx.own.example"));
}

#[test]
fn reports_go_where_routes_and_rules_for_their_readers_say() {
    let lab = refusing(&["one.example", "two.example", "gate.example"]);
    // Rules on clients are not about them.
    let config = "[routes]\n\"d.example\" = \"mx:one.example\"\n\"vip@d.example\" = \"mx:two.example\"\n\
        [[rules]]\nclient = \"127.0.0.0/8\"\nrecipient = \"ruled@d.example\"\ndo = \"route mx:two.example\"\n\
        [[rules]]\nrecipient = \"ruled@d.example\"\ndo = \"route mx:gate.example\"\n";
    let server =
        with(builder(&lab).list("news", &["ann@no.example"]).set("lists.news.owner", "\"vip@d.example\""), config);
    let reported = |from: &str| {
        server.smtp().send(from, &["ann@no.example"], &message(&format!("{from}.test"), "x")).expect(250);
        hosts(&server, from).remove(0)
    };
    assert!(reported("joe@d.example").starts_with("mx.one.example"));
    assert!(reported("ruled@d.example").starts_with("mx.gate.example"));
    // A list's owner hears of its posts.
    server.smtp().send(SENDER, &["news@lists.test"], &message("post@test", "x")).expect(250);
    assert!(hosts(&server, "vip@d.example")[0].starts_with("mx.two.example"));
}

#[test]
fn a_table_that_does_not_answer_keeps_no_report_back() {
    let lab = refusing(&["sender.example"]);
    let config = format!(
        "[tables.gone]\nsource = \"socketmap:inet:{}:senders\"\nas = \"relayhost\"\n\
         [routing]\nsender_tables = [\"gone\"]\n[routes]\n\"no.example\" = \"mx\"\n",
        closed_address()
    );
    let server = with(builder(&lab), &config);
    post(&server, &lab, &["ann@no.example"], "gone@test");
    assert!(hosts(&server, SENDER)[0].starts_with("mx.sender.example"));
    server.wait_log(&["table lookup failed for this server's own mail"]);
}
