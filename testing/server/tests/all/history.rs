//! The history, through `stentor trace`, and the logs by purpose.

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;

use serde_json::Value;
use stentor_harness::{PATIENCE, Server, TestLab, message, wait_until};

use crate::kit::{SENDER, SENDER_SITE, builder, drained, post};

/// The story as JSON; null if nothing is known.
fn trace(server: &Server, what: &str) -> Value {
    let output = server.operator(&["trace", what, "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// The stats of one message's attempts, in their order.
fn stats(story: &Value, id: &str) -> Vec<String> {
    let message = story["messages"].as_array().into_iter().flatten().find(|message| message["id"] == id);
    let attempts = message.and_then(|message| message["attempts"].as_array());
    attempts.into_iter().flatten().map(|attempt| attempt["stat"].as_str().unwrap_or_default().to_owned()).collect()
}

fn three_sites() -> TestLab {
    TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'yes.example'\n[[site]]\nname = 'no.example'\nbehaviour = {{ reject_share = 1.0 }}\n\
         [[site]]\nname = 'later.example'\nbehaviour = {{ at_rcpt = '451 4.3.0 not today' }}\n"
    ))
}

#[test]
fn a_message_is_told_from_acceptance_to_each_recipients_fate() {
    let lab = three_sites();
    let server = builder(&lab).start();
    let people = ["ann@yes.example", "bob@no.example", "cid@later.example"];
    let id = post(&server, &lab, &people, "story@test");
    wait_until("all of it is told", || {
        let stats: BTreeSet<String> = stats(&trace(&server, &id), &id).into_iter().collect();
        ["sent", "bounced", "deferred"].iter().all(|stat| stats.contains(*stat))
    });
    let story = trace(&server, &id);
    let message = &story["messages"][0];
    let accepted = &message["accepted"];
    assert_eq!((&accepted["from"], &accepted["recipients"]), (&SENDER.into(), &3.into()), "{accepted}");
    assert_eq!((&accepted["message_id"], &accepted["proto"]), (&"<story@test>".into(), &"ESMTP".into()));
    let policy = accepted["policy"].as_str().expect("text");
    assert!(policy.starts_with("relay: client network 127."), "{policy}");
    let sent = message["attempts"].as_array().expect("attempts").iter().find(|attempt| attempt["stat"] == "sent");
    let sent = sent.expect("it was sent");
    assert_eq!((&sent["host"], &sent["reply"]), (&"mx1.yes.example".into(), &"250 2.0.0 taken".into()), "{sent}");
    assert_eq!(story["now"]["pending"][0]["address"], "cid@later.example", "{}", story["now"]);
    // By Message-ID the report is not told, but its subject is.
    assert_eq!(trace(&server, "<story@test>")["messages"][0]["id"], id.as_str());
    let text = String::from_utf8(server.operator(&["trace", &id]).stdout).expect("text");
    for part in
        ["accepted: from <", "relay: client network", "clear:not-offered", "now         ", "cid@later.example", "451"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    // All of it is older: its state is from all attempts all the same.
    let since = String::from_utf8(server.operator(&["trace", &id, "--since", "now"]).stdout).expect("text");
    assert!(since.contains("\n  state       1 delivered, 1 bounced, 1 deferred so far\n"), "{since}");
    assert!(since.contains("\n  earlier     ") && !since.contains("  sent  "), "{since}");
    let nobody = server.operator(&["trace", "nobody@yes.example"]);
    assert!(!nobody.status.success() && nobody.stdout.is_empty());
}

#[test]
fn a_recipients_story_survives_restarts_kills_and_a_server_that_is_down() {
    let lab = three_sites();
    let mut server = builder(&lab).start();
    let mut ids = Vec::new();
    for round in 0..3 {
        let name = format!("round{round}@test");
        let id = post(&server, &lab, &["ann@yes.example"], &name);
        lab.wait_clean(&name, &["ann@yes.example"]);
        drained(&server);
        // In the files: a reader of them alone finds it. From then on no kill can take it.
        wait_until("it is kept", || stats(&trace(&server, "ann@yes.example"), &id) == ["sent"]);
        ids.push(id);
        if round == 0 {
            assert!(server.stop().success());
        } else {
            server.kill();
        }
        server.start_again();
    }
    server.kill();
    let story = trace(&server, "ANN@yes.example");
    let told: Vec<&str> =
        story["messages"].as_array().expect("messages").iter().filter_map(|message| message["id"].as_str()).collect();
    assert_eq!(told, ids);
    assert_eq!(story["now"]["is_running"], false);
    assert_eq!(story["damaged"], 0);
    for message in story["messages"].as_array().expect("messages") {
        assert_eq!(message["sums"]["delivered"], 1, "{message}");
        assert_eq!(message["accepted"]["recipients"], 1);
    }
    let dir = server.path("data/history");
    let by_dir = server.operator(&["trace", "ann@yes.example", "--since", "1h", "--json", "--utc"]);
    assert!(by_dir.status.success() && dir.is_dir());
}

#[test]
fn a_post_is_told_with_its_list_and_a_refusal_with_its_step() {
    let lab = three_sites();
    let server = builder(&lab).list("news", &["ann@yes.example", "eve@yes.example"]).start();
    let id = server.smtp().send(SENDER, &["news@lists.test"], &message("post@test", "post")).expect(250).queue_id();
    wait_until("it is told", || trace(&server, &id)["messages"][0]["sums"]["delivered"] == 2);
    let accepted = trace(&server, &id)["messages"][0]["accepted"].clone();
    assert_eq!(
        (&accepted["list"], &accepted["is_bulk"], &accepted["policy"]),
        (&"news".into(), &true.into(), &"list news".into())
    );
    let mut smtp = server.smtp();
    smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    smtp.cmd("RCPT TO:<nobody@lists.test>").expect(550);
    wait_until("the refusal is told", || {
        let refusal = &trace(&server, "nobody@lists.test")["refusals"][0];
        refusal["step"] == "RCPT" && refusal["reply"].as_str().is_some_and(|reply| reply.starts_with("550 5.1.1"))
    });
}

/// A post to a list of lists, whose copies wait for `later.example`: by its author, by each list and by a subscriber
/// that is an alias.
#[test]
fn a_post_is_found_by_its_author_and_by_each_address_it_came_through() {
    let lab = three_sites();
    let server = builder(&lab)
        .list("all", &["sub@lists.test", "team@lists.test", "ann@later.example"])
        .list("sub", &["eve@later.example"])
        .alias("team@lists.test", &["bob@later.example"])
        .start();
    server.smtp().send("Author@home.example", &["all@lists.test"], &message("post@test", "post")).expect(250);
    let found = |arguments: &[&str]| -> BTreeSet<String> {
        let output = server.operator(arguments);
        let story: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let messages = story["messages"].as_array().into_iter().flatten();
        messages.map(|message| message["accepted"]["list"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let both: BTreeSet<String> = ["all", "sub"].map(str::to_owned).into();
    let inner: BTreeSet<String> = [both.last().cloned().unwrap()].into();
    let outer: BTreeSet<String> = [both.first().cloned().unwrap()].into();
    for (arguments, expected) in [
        (&["trace", "--sender", "author@home.example"][..], &both),
        (&["trace", "--sender", "@home.example"], &both),
        (&["trace", "--sender", "all-bounces@lists.test"], &outer),
        (&["trace", "all@lists.test"], &both),
        (&["trace", "sub@lists.test"], &inner),
        (&["trace", "team@lists.test"], &outer),
        (&["trace", "@later.example", "--only", "deferred"], &both),
    ] {
        let arguments = [arguments, &["--json"]].concat();
        wait_until(&format!("{arguments:?}"), || found(&arguments) == *expected);
    }
    for sender in ["Author@home.example", "@home.example"] {
        let answer = server.ask(&["mailqq", "--sender", sender]).expect("an answer");
        let rows = answer["mailqq_rows"].as_array().unwrap_or_else(|| panic!("{sender}: {answer}"));
        assert!(rows.len() == 2 && rows.iter().all(|row| row["given_sender"] == "Author@home.example"), "{answer}");
        let counted = server.ask(&["hold", "--sender", sender, "--dry-run"]).expect("an answer");
        assert_eq!((&counted["messages"], &counted["count"]), (&2.into(), &3.into()), "{counted}");
        let exported = server.operator(&["queue", "export", "--sender", sender]);
        assert_eq!(String::from_utf8_lossy(&exported.stdout).lines().count(), 2, "{exported:?}");
    }
    let text = server.operator_text(&["mailqq", "--sender", "all-bounces@lists.test"]);
    assert!(text.contains("<all-bounces@lists.test> (original sender <Author@home.example>) list all"), "{text}");
    let sender = server.operator(&["trace", "author@home.example"]);
    let hint = String::from_utf8_lossy(&sender.stderr).into_owned();
    assert!(hint.contains("There are records with this sender: `stentor trace --sender author@home.example"), "{hint}");
    let none = server.operator(&["trace", "later.example", "--only", "bounced,expired"]);
    let why = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        none.status.code() == Some(3)
            && why.contains("no attempts bounced or expired; searched 2 messages for later.example since "),
        "{why}"
    );
}

/// A standing bounce by the author covers what waits and what comes, also posts to lists.
#[test]
fn a_standing_bounce_of_an_author_covers_posts_to_lists() {
    let lab = three_sites();
    let server = builder(&lab).list("all", &["ann@later.example"]).start();
    let wire = message("post@test", "post");
    server.smtp().send("author@home.example", &["all@lists.test"], &wire).expect(250);
    let answer = server.ask(&["bounce", "--sender", "author@home.example", "--for", "1h", "--reason", "closed"]);
    assert_eq!(answer.expect("an answer")["messages"], 1);
    wait_until("it is bounced", || server.queue()["recipients"] == 0);
    let mut smtp = server.smtp();
    smtp.cmd("MAIL FROM:<author@home.example>").expect(250);
    smtp.cmd("RCPT TO:<all@lists.test>").expect_text("550 5.7.1 closed");
}

#[test]
fn what_an_operator_does_is_told() {
    let lab = three_sites();
    let server = builder(&lab).set("log.audit", "\"audit.log\"").start();
    let id = post(&server, &lab, &["cid@later.example"], "removed@test");
    wait_until("it was tried", || !stats(&trace(&server, &id), &id).is_empty());
    server.ask(&["remove", "--id", &id, "--reason", "a test"]).expect("it is removed");
    wait_until("its end is told", || trace(&server, &id)["messages"][0]["sums"]["removed"] == 1);
    let audit = || std::fs::read_to_string(server.path("audit.log")).unwrap_or_default();
    wait_until("the verb is in the log of its own", || {
        audit().lines().any(|line| line.contains("audit: verb=remove, who=uid=") && line.contains("a test"))
    });
    assert!(server.log().matching(&["audit: "]).is_empty(), "and there alone");
}

#[test]
fn each_purpose_list_and_class_has_its_own_place_and_syslog_gets_datagrams() {
    let lab = three_sites();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let daemon = UnixDatagram::bind(&path).expect("a socket");
    daemon.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let server = builder(&lab)
        .list("news", &["ann@yes.example"])
        .list("talk", &["bob@yes.example"])
        .set("log.refusals", &format!("\"syslog:{}\"", path.display()))
        .set("log.acceptances", "\"accepted.log\"")
        .set("log.bulk", "\"bulk.log\"")
        .set("log.lists", "{ news = \"news.log\" }")
        .set("log.flush", "\"line\"")
        .start();
    let send = |to: &str, id: &str| server.smtp().send(SENDER, &[to], &message(id, "x")).expect(250).queue_id();
    let (news, talk) = (send("news@lists.test", "news@test"), send("talk@lists.test", "talk@test"));
    let plain = send("eve@yes.example", "plain@test");
    let read = |name: &str| std::fs::read_to_string(server.path(name)).unwrap_or_default();
    let has = |name: &str, id: &str, part: &str| read(name).lines().any(|l| l.contains(id) && l.contains(part));
    wait_until("each is where it belongs", || {
        [("news.log", &news), ("bulk.log", &talk)]
            .iter()
            .all(|(name, id)| has(name, id, ": from=<") && has(name, id, "stat=Sent"))
            && has("accepted.log", &plain, ": from=<")
            && !server.log().matching(&[&plain, "stat=Sent"]).is_empty()
    });
    assert!(!read("bulk.log").contains(&news) && !read("accepted.log").contains(&talk));
    let mut smtp = server.smtp();
    smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    smtp.cmd("RCPT TO:<nobody@lists.test>").expect(550);
    let mut buffer = [0; 4096];
    let len = daemon.recv(&mut buffer).expect("a datagram");
    let datagram = String::from_utf8_lossy(&buffer[..len]).into_owned();
    assert!(
        datagram.starts_with("<22>") && datagram.contains("ruleset=check_rcpt, arg1=<nobody@lists.test>"),
        "{datagram}"
    );
}

#[test]
fn our_own_log_tells_the_same_story_as_the_history() {
    let lab = three_sites();
    let server = builder(&lab).set("log.attempts", "\"mail.log\"").start();
    let id = post(&server, &lab, &["ann@yes.example", "bob@no.example"], "both@test");
    drained(&server);
    wait_until("all of it is told", || trace(&server, &id)["messages"][0]["sums"]["bounced"] == 1);
    let log = server.path("mail.log");
    let of_log = || {
        let mut command = std::process::Command::new(stentor_harness::stentor());
        let output =
            command.args(["trace", &id, "--json", "--utc", "--from"]).arg(&log).output().expect("it can be run");
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or(Value::Null)
    };
    // The record of the bounce follows the one of the refused recipient.
    wait_until("both tell the same", || {
        let (kept, told) = (trace(&server, &id), of_log());
        told["messages"][0]["sums"] == kept["messages"][0]["sums"] && stats(&told, &id).len() == stats(&kept, &id).len()
    });
    let told = of_log();
    assert_eq!(told["messages"][0]["accepted"]["recipients"], 2);
    // The words may come in any order.
    let output = std::process::Command::new(stentor_harness::stentor())
        .args(["trace", "--utc", "--from"])
        .args([log.as_os_str(), id.as_ref()])
        .output()
        .expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 delivered, 1 bounced"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // It has left the queue.
    for arguments in [&["queue", "show", &id][..], &["queue", "cat", &id], &["quarantine", "show", &id]] {
        let output = server.operator(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        let known = format!("; the history has it: 1 delivered, 1 bounced; see `stentor trace {id} --config ");
        assert!(err.contains(&known) && output.status.code() == Some(3), "{arguments:?}: {err}");
    }
    let output = server.operator(&["queue", "show", "037P74WG0000"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("is in the queue; `stentor trace 037P74WG0000 --config "), "{err}");
}

#[test]
fn logs_are_put_aside_by_size() {
    let lab = three_sites();
    let server = builder(&lab)
        .set("log.attempts", "\"mail.log\"")
        .set("log.flush", "\"line\"")
        .set("log.rotate_bytes", "2000")
        .set("log.rotate_keep", "2")
        .start();
    let mut smtp = server.smtp();
    for n in 0..30 {
        smtp.send(SENDER, &["ann@yes.example"], &message(&format!("m{n}@test"), "x")).expect(250);
    }
    drained(&server);
    let last = smtp.send(SENDER, &["ann@yes.example"], &message("last@test", "x")).expect(250).queue_id();
    // By then nothing is renamed any more.
    wait_until("the last line is written", || {
        let read = |name| std::fs::read_to_string(server.path(name)).unwrap_or_default();
        ["mail.log", "mail.log.1"].into_iter().map(read).any(|text| text.contains(&last) && text.contains("stat=Sent"))
    });
    drained(&server);
    wait_until("two are put aside", || server.path("mail.log.2").exists());
    assert!(!server.path("mail.log.3").exists());
    for name in ["mail.log", "mail.log.1", "mail.log.2"] {
        let text = std::fs::read_to_string(server.path(name)).expect("it is there");
        assert!(text.len() <= 2_000 && (text.is_empty() || text.ends_with('\n')), "{name}: {}", text.len());
    }
    assert_eq!(server.status()["log_lines_lost"], 0);
}

#[test]
fn the_history_can_be_off_and_stays_within_its_size() {
    let lab = three_sites();
    let server = builder(&lab).set("history.keep_days", "0").start();
    post(&server, &lab, &["ann@yes.example"], "off@test");
    drained(&server);
    assert!(!server.path("data/history").exists());
    let told = server.operator(&["trace", "ann@yes.example"]);
    assert!(!told.status.success() && String::from_utf8_lossy(&told.stderr).contains("keep_days"));
    // As small as may be, with long texts: what is kept is bounded while mail goes on. Files are made small by their
    // share.
    let server = builder(&lab).set("history.size_bytes_max", "4194304").start();
    let mut smtp = server.smtp();
    let mut rng = fastrand::Rng::with_seed(5);
    for n in 0..200 {
        let text: String = (0..200).map(|_| rng.alphanumeric()).collect();
        smtp.send(SENDER, &["ann@yes.example"], &message(&format!("{text}{n}@test"), "x")).expect(250);
    }
    drained(&server);
    let status = server.status();
    assert!(status["history_bytes"].as_u64().expect("a number") <= 4_194_304, "{status}");
    assert_eq!(status["history_lost"], 0);
}

/// Nobody's copy is tried there, and yet each recipient is deferred by it once, in every view.
#[test]
fn connections_and_look_ups_that_fail_count_for_those_who_waited() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'dead.example'\nbehaviour = {{ connect = 'refuse' }}\n\
         [[site]]\nname = 'busy.example'\nbehaviour = {{ at_greeting = '421 4.3.2 busy' }}\n\
         [[site]]\nname = 'nodns.example'\ndns = 'servfail'\n"
    ));
    let server = builder(&lab).start();
    let people = ["ann@dead.example", "bob@dead.example", "cid@busy.example", "dee@nodns.example"];
    let id = post(&server, &lab, &people, "waits@test");
    let by_site = || -> Vec<(String, u64)> {
        let output = server.operator(&["mailstat", "--by", "site", "--json"]);
        let table: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rows = table["rows"].as_array().into_iter().flatten();
        let row = |row: &Value| (row["name"].as_str().unwrap_or_default().to_owned(), row["deferred"].as_u64());
        rows.map(row).map(|(name, deferred)| (name, deferred.unwrap_or(0))).collect()
    };
    // All are tried again soon: how often by now is the machine's.
    let each = [("dead.example", 2), ("busy.example", 1), ("nodns.example", 1)];
    wait_until("each counts where it waits", || {
        let sites = by_site();
        let counts = |name, each| move |row: &(String, u64)| row.0 == name && row.1 > 0 && row.1.is_multiple_of(each);
        each.iter().all(|(name, each)| sites.iter().any(counts(*name, *each)))
    });
    for (who, stat, why) in [
        ("ann@dead.example", "connect_failed", "Connection refused"),
        ("cid@busy.example", "connect_failed", "421"),
        ("dee@nodns.example", "lookup_failed", ""),
        ("dead.example", "", "Connection refused"),
    ] {
        if !stat.is_empty() {
            let story = trace(&server, who);
            let seen: BTreeSet<String> = stats(&story, &id).into_iter().collect();
            assert_eq!(seen, BTreeSet::from([stat.to_owned()]), "{story}");
        }
        let text = String::from_utf8(server.operator(&["trace", who]).stdout).expect("text");
        assert!(text.contains(why) && text.contains(" failed") && text.contains(" waiting"), "{text}");
    }
    let seen: BTreeSet<String> = stats(&trace(&server, &id), &id).into_iter().collect();
    assert_eq!(seen, BTreeSet::from(["connect_failed".to_owned(), "lookup_failed".to_owned()]));
    // Between two tries: while one is under way there is nothing to wait for.
    wait_until("it waits for the next try, and is said to", || {
        let address = server.ask(&["address", "ann@dead.example"]).expect("it is known");
        assert_eq!(address["mailbox"]["last"], "untried");
        address["pending"]["last_reply"].as_str().is_some_and(|why| why.contains("refused"))
            && address["pending"]["next_try"].as_u64() > address["now"].as_u64()
    });
    wait_until("the same in words", || {
        let text = String::from_utf8(server.operator(&["address", "ann@dead.example"]).stdout).expect("text");
        text.contains("no reply about it yet") && text.contains("Connection refused")
    });
    server.wait_log(&["connect: ", "domains=dead.example:"]);
    let log = server.log().matching(&["connect: ", "domains=dead.example:"]);
    assert!(!log.is_empty() && log.iter().all(|line| line.contains("waiting=2, domains=dead.example:2")), "{log:?}");
}

#[test]
fn the_most_frequent_senders_and_reasons_come_first() {
    let lab = three_sites();
    let server = builder(&lab).start();
    for round in 0..2 {
        post(&server, &lab, &["ann@yes.example", "bob@no.example"], &format!("top{round}@test"));
    }
    server.smtp().cmd("MAIL FROM:<a b>").expect(501);
    drained(&server);
    wait_until("all of it is kept", || {
        let output = server.operator(&["mailstat", "--top", "5", "--json"]);
        let top: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let first = |table: &str, field: &str| top[table][0][field].clone();
        first("senders", "name") == SENDER
            && first("senders", "messages") == 2
            && first("bounces", "recipients") == 2
            && first("bounces", "name").as_str().is_some_and(|reason| reason.contains("no such user"))
    });
    let text = String::from_utf8(server.operator(&["mailstat", "--top"]).stdout).expect("text");
    assert!(text.starts_with("Senders") && text.contains("Bounces") && text.contains(SENDER), "{text}");
}

#[test]
fn causes_of_undelivered_mail_are_summed() {
    let lab = three_sites();
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@yes.example", "bob@no.example"], "causes@test");
    drained(&server);
    wait_until("the bounce is kept", || {
        let output = server.operator(&["bounces", "--json"]);
        let sums: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let provider = &sums["providers"][0];
        sums["causes"][0]["cause"] == "no_mailbox"
            && sums["causes"][0]["fault"] == "person"
            && sums["causes"][0]["given_up"] == 1
            && provider["given_up"] == 1
            && provider["name"].as_str().is_some_and(|name| name.ends_with(".example"))
    });
    let text = String::from_utf8(server.operator(&["bounces", "--by", "list"]).stdout).expect("text");
    assert!(text.starts_with("given up") && text.contains("no_mailbox"), "{text}");
    let rules = server.operator(&["bounces", "--rules", "/dev/null", "--reply", "550 5.1.1 No such user"]);
    assert!(String::from_utf8_lossy(&rules.stdout).starts_with("unknown (no rule"), "{rules:?}");
}
