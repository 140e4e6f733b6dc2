//! Queue-only over real sockets: a maintenance window and the run of the queue after it, by command and by the
//! configuration, for each scope, and across restarts.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::builder;

const FROM: &str = "me@home.example";

fn send(server: &Server, from: &str, to: &str, id: &str) -> String {
    server.smtp().send(from, &[to], &message(id, "x")).expect(250).queue_id()
}

fn text(server: &Server, command: &[&str]) -> String {
    let output = server.operator(command);
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

/// So many recipients wait as queue-only, and no others.
fn wait_kept(server: &Server, recipients: u64) {
    wait_until("it is queue-only", || {
        let queue = server.queue();
        let causes = queue["causes"].as_array().cloned().unwrap_or_default();
        let kept = causes.iter().filter(|row| row["cause"] == "queue_only");
        let (kept, all) = (
            kept.map(|row| row["recipients"].as_u64().unwrap_or(0)).sum::<u64>(),
            causes.iter().map(|row| row["recipients"].as_u64().unwrap_or(0)).sum::<u64>(),
        );
        (kept, all) == (recipients, recipients)
    });
}

#[test]
fn a_maintenance_window_is_drained_by_a_run_of_the_queue() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
         [[site]]\nname = 'grey.example'\nbehaviour = { greylist_ms = 3600000 }\n",
    );
    let mut server = builder(&lab).start();
    let why = "the storage is replaced";
    assert_eq!(server.ask(&["queue-only", "--all", "--dry-run"]).expect("counted")["count"], 0);
    server.ask(&["queue-only", "--all", "--for", "3h", "--reason", why]).expect("it is queue-only");
    server.wait_log(&["audit: verb=queue_only", "queue_only:all", why]);
    for (id, to) in [("a@test", "ann@one.example"), ("b@test", "bob@two.example"), ("g@test", "g@grey.example")] {
        send(&server, FROM, to, id);
    }
    wait_kept(&server, 3);
    assert_eq!(lab.stats().sinks.connections, 0, "no host is asked");
    // It survives a restart, and says why wherever waiting mail is explained.
    server.kill();
    server.start_again();
    wait_kept(&server, 3);
    send(&server, FROM, "cid@one.example", "c@test");
    wait_kept(&server, 4);
    let remedy = "`stentor queue run`";
    for command in [&["status"][..], &["queue-only", "--show"], &["doctor"]] {
        let shown = text(&server, command);
        assert!(shown.contains("all mail") && shown.contains(why) && shown.contains("stentor queue run"), "{shown}");
        assert!(shown.contains("`stentor queue-only --end --all"), "{shown}");
    }
    let id = server.ask(&["mailqq"]).expect("listed")["mailqq_rows"][0]["id"].as_str().unwrap_or_default().to_owned();
    let reason = format!("queue-only: {why}");
    for command in [&["site", "one.example"][..], &["queue"], &["stuck"], &["mailqq"], &["queue", "show", &id]] {
        let shown = text(&server, command);
        assert!(shown.contains(&reason) && !shown.contains("SUSPENDED"), "{command:?}: {shown}");
    }
    assert!(text(&server, &["stuck"]).contains(&remedy[..remedy.len() - 1]));
    assert_eq!(lab.stats().sinks.connections, 0, "no host is asked");
    // A run has what waits, and not what comes later.
    assert_eq!(server.ask(&["queue", "run", "--dry-run"]).expect("counted")["count"], 4);
    assert_eq!(server.ask(&["queue", "run", "--reason", "drained"]).expect("it runs")["count"], 4);
    send(&server, FROM, "late@one.example", "late@test");
    for (id, to) in [("a@test", "ann@one.example"), ("b@test", "bob@two.example"), ("c@test", "cid@one.example")] {
        lab.wait_clean(id, &[to]);
    }
    server.wait_log(&["audit: verb=queue_run", "drained"]);
    server.wait_log(&["stat=Deferred", "g@grey.example"]);
    wait_until("the run is over", || server.status()["queue_run_since"].is_null());
    wait_kept(&server, 2);
    assert_eq!(server.log().matching(&["stat=Deferred", "g@grey.example"]).len(), 1, "what failed is not tried again");
    assert_eq!(lab.recorder().copies_of("late@test"), 0);
    server.ask(&["queue-only", "--end", "--all"]).expect("it is ended");
    lab.wait_clean("late@test", &["late@one.example"]);
    assert!(server.status()["queue_only"].is_null());
    let again = server.operator(&["queue-only", "--end", "--all"]);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    lab.assert_no_violations();
}

#[test]
fn each_scope_keeps_its_own_mail() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = builder(&lab)
        .list("news", &["sub@two.example"])
        .set_in("sources.a", "address", "\"127.0.0.1\"")
        .set_in("senders.\"bound.example\"", "sources", "[\"a\"]")
        .start();
    for (n, (option, value, from, to)) in [
        ("--class", "bulk", FROM, "news@lists.test"),
        ("--list", "news", FROM, "news@lists.test"),
        ("--domain", "two.example", FROM, "bob@two.example"),
        ("--sender", "me@home.example", FROM, "ann@one.example"),
        ("--sender", "@home.example", FROM, "ann@one.example"),
        ("--source", "a", "me@bound.example", "ann@one.example"),
    ]
    .into_iter()
    .enumerate()
    {
        let (id, probe) = (format!("kept{n}@test"), format!("probe{n}@test"));
        server.ask(&["queue-only", option, value]).unwrap_or_else(|why| panic!("{option}: {why}"));
        send(&server, from, to, &id);
        wait_kept(&server, 1);
        if option != "--source" {
            send(&server, "probe@elsewhere.example", "probe@one.example", &probe);
            lab.wait_clean(&probe, &["probe@one.example"]);
        }
        assert_eq!(lab.recorder().copies_of(&id), 0, "{option}");
        server.ask(&["queue", "run"]).expect("it runs");
        lab.wait(&format!("{id} goes"), |recorder| recorder.copies_of(&id) == 1);
        let again = format!("again{n}@test");
        send(&server, from, to, &again);
        wait_kept(&server, 1);
        server.ask(&["queue-only", "--end", option, value]).expect("it ends");
        lab.wait(&format!("{again} goes"), |recorder| recorder.copies_of(&again) == 1);
        server.wait_empty();
    }
    // Where it came from.
    server.ask(&["queue-only", "--client", "127.0.0.0/8"]).expect("it is queue-only");
    send(&server, FROM, "ann@one.example", "client@test");
    wait_kept(&server, 1);
    server.ask(&["queue-only", "--end", "--client", "127.0.0.0/8"]).expect("it ends");
    server.wait_empty();
    for (bad, why) in [
        (&["queue-only"][..], "queue-only: name the mail"),
        (&["queue-only", "--list", "none"], "none"),
        (&["queue-only", "--source", "none"], "none"),
        (&["queue-only", "--all", "--class", "bulk"], "cannot be used"),
        (&["queue-only", "--domain", "no domain"], "not a domain"),
    ] {
        let shown = text(&server, bad);
        assert!(shown.contains(why) && !server.operator(bad).status.success(), "{bad:?}: {shown}");
    }
    lab.assert_no_violations();
}

#[test]
fn the_configuration_keeps_mail_and_a_reload_changes_that() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    // Two windows that are one week together: always open, whenever the test runs.
    let section = "queue_only.works";
    let mut server = builder(&lab)
        .set_in(section, "domain", "\"two.example\"")
        .set_in(section, "reason", "\"works at two\"")
        .set_in(section, "time_zone", "\"UTC\"")
        .set_in(section, "windows", "[\"Sun 00:00-Wed 12:00\", \"Wed 12:00-Sun 00:00\"]")
        .start();
    send(&server, FROM, "bob@two.example", "two@test");
    send(&server, FROM, "ann@one.example", "one@test");
    lab.wait_clean("one@test", &["ann@one.example"]);
    wait_kept(&server, 1);
    let shown = text(&server, &["status"]);
    assert!(shown.contains("mail to two.example") && shown.contains("(works at two)"), "{shown}");
    assert!(!shown.contains("ends in"), "the next window is open when one ends: {shown}");
    assert!(shown.contains("[queue_only.works] of the configuration"), "{shown}");
    let refused = text(&server, &["queue-only", "--end", "--domain", "two.example"]);
    assert!(refused.contains("queue-only by [queue_only.works]"), "{refused}");
    server.kill();
    server.start_again();
    wait_kept(&server, 1);
    server.ask(&["queue", "run"]).expect("it runs");
    lab.wait_clean("two@test", &["bob@two.example"]);
    send(&server, FROM, "bob@two.example", "three@test");
    wait_kept(&server, 1);
    server.edit_config(|text| text.replace("windows =", "#windows =").replace("domain = \"two", "domain = \"other"));
    server.ask(&["reload"]).expect("it is read again");
    lab.wait_clean("three@test", &["bob@two.example"]);
    assert_eq!(server.status()["queue_only"][0]["value"], "other.example");
    server.wait_empty();
    lab.assert_no_violations();
}

#[test]
fn a_domain_that_nobody_knows_gets_a_hint() {
    let lab = TestLab::sites(&["customer.example"]);
    let server = builder(&lab).start();
    server.ask(&["queue-only", "--domain", "customer.example", "--reason", "first"]).expect("it is queue-only");
    send(&server, FROM, "ann@customer.example", "a@test");
    wait_kept(&server, 1);
    for command in [
        &["queue-only", "--domain", "custmer.example", "--dry-run"][..],
        &["queue-only", "--domain", "custmer.example"],
    ] {
        let shown = text(&server, command);
        assert!(shown.contains("no mail to it was seen; did you mean customer.example?"), "{shown}");
    }
    let known = text(&server, &["queue-only", "--domain", "customer.example", "--reason", "second"]);
    assert!(!known.contains("did you mean"), "{known}");
    // Another reason takes the place of the first.
    wait_until("the queue has the new reason", || text(&server, &["queue"]).contains("queue-only: second"));
}

#[test]
fn it_ends_by_itself() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    server.ask(&["queue-only", "--all", "--for", "2s"]).expect("it is queue-only");
    send(&server, FROM, "ann@one.example", "a@test");
    lab.wait_clean("a@test", &["ann@one.example"]);
    server.wait_log(&["audit: verb=queue_only, who=stentor", "expired"]);
}
