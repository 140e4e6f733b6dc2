//! The operator suspends and resumes mail: sites, lists, senders, single posts; and sees why mail waits.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::builder;

fn send(server: &Server, from: &str, to: &str, id: &str) -> String {
    server.smtp().send(from, &[to], &message(id, "x")).expect(250).queue_id()
}

/// The last try of whatever must not have gone: mail behind it has.
fn assert_waits(server: &Server, lab: &TestLab, id: &str, probe: &str) {
    let probe = format!("{probe}-{id}");
    send(server, "probe@elsewhere.example", "probe@two.example", &probe);
    lab.wait_clean(&probe, &["probe@two.example"]);
    assert_eq!(lab.recorder().copies_of(id), 0);
}

#[test]
fn what_is_suspended_waits_across_restarts() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let mut server = builder(&lab).list("news", &["sub@two.example"]).start();
    let from = "me@home.example";
    // So that the site is known.
    send(&server, from, "ann@one.example", "first@test");
    lab.wait_clean("first@test", &["ann@one.example"]);
    assert!(server.ask(&["suspend", "--site", "nowhere.example"]).is_err());
    assert!(server.ask(&["suspend", "--list", "none"]).is_err());
    for (subject, name, to) in [
        ("--site", "one.example", "ann@one.example"),
        ("--list", "news", "news@lists.test"),
        ("--sender", "home.example", "bob@two.example"),
    ] {
        let id = format!("{}@test", &subject[2..]);
        let counted = server.ask(&["suspend", subject, name, "--dry-run"]).expect("it is counted");
        assert!(counted["text"].as_str().is_some_and(|text| text.ends_with(": 0 recipients of 0 messages waiting")));
        assert_eq!((&counted["count"], &server.status()["suspended_total"]), (&0.into(), &0.into()));
        server.ask(&["suspend", subject, name, "--reason", "a test"]).expect("it is suspended");
        let sender = if subject == "--sender" { from } else { "me@other.example" };
        send(&server, sender, to, &id);
        assert_waits(&server, &lab, &id, "before");
        let counted = server.ask(&["suspend", subject, name, "--dry-run"]).expect("it is counted");
        assert_eq!(counted["count"], 1, "{counted}");
        server.stop();
        server.start_again();
        assert_waits(&server, &lab, &id, "after");
        assert_eq!(server.status()["suspended_total"], 1);
        let text = |arguments: &[&str]| String::from_utf8(server.operator(arguments).stdout).expect("text");
        let status = text(&["status"]);
        let is_shown = |line: &str| line.starts_with("  SUSPENDED    ") && line.contains(" (a test): `stentor resume ");
        assert!(status.lines().any(is_shown), "{status}");
        // The total and the site's row.
        let queue = text(&["queue"]);
        assert_eq!(queue.matches("suspended by an operator (a test)").count(), 2, "{queue}");
        let doctor = text(&["doctor"]);
        assert!(doctor.contains("1 suspended: ") && doctor.contains(" (a test)\n"), "{doctor}");
        if subject == "--site" {
            let site = text(&["site", name]);
            assert!(site.contains("SUSPENDED (a test)"), "{site}");
        }
        // Another reason replaces it; without one it stays.
        for reason in [&["--reason", "no test"][..], &["--for", "2h"]] {
            server.ask(&[&["suspend", subject, name], reason].concat()).expect("it is changed");
            assert!(text(&["status"]).contains(" (no test): `"), "{reason:?}");
        }
        server.ask(&["resume", subject, name]).expect("it is resumed");
        lab.wait(&format!("{id} goes"), |recorder| recorder.copies_of(&id) == 1);
        assert_eq!(server.status()["suspended_total"], 0);
    }
    server.wait_empty();
    lab.assert_no_violations();
}

#[test]
fn a_site_is_suspended_before_its_first_mail() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    let run = |arguments: &[&str]| {
        let output = server.operator(arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let expected = "site mx1.one.example is suspended; no mail for it was seen since the server started\n";
    assert_eq!(run(&["suspend", "--site", "one.example"]), (Some(0), expected.to_owned()));
    send(&server, "me@home.example", "ann@one.example", "first@test");
    wait_until("it waits there", || {
        let queue = server.queue();
        queue["sites"][0]["site"] == "mx1.one.example" && queue["causes"][0]["cause"] == "suspended"
    });
    assert_eq!(run(&["resume", "--site", "one.example"]).0, Some(0));
    lab.wait_clean("first@test", &["ann@one.example"]);
    // Nothing there to be ended.
    let (code, text) = run(&["resume", "--site", "one.example"]);
    assert!(code == Some(3) && text.contains("site mx1.one.example is not suspended; `stentor status"), "{text}");
    let (code, text) = run(&["resume", "--list", "gone"]);
    assert!(code == Some(3) && text.contains("there is no list gone"), "{text}");
    // Neither a site nor a domain that gets mail.
    let (code, text) = run(&["suspend", "--site", "nowhere.example"]);
    assert!(code == Some(3) && text.contains("no site nowhere.example") && text.contains("as a domain: "), "{text}");
    assert!(!text.contains("did you mean"), "{text}");
}

#[test]
fn a_hold_of_recipients_says_who_is_held_with_them() {
    let lab = TestLab::start("[[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n");
    let server = builder(&lab).list("news", &["a@down.example", "b@down.example", "c@down.example"]).start();
    let id = send(&server, "me@home.example", "news@lists.test", "post@test");
    let said = |arguments: &[&str]| String::from_utf8(server.operator(arguments).stdout).expect("text");
    let one = ["--recipient", "b@down.example"];
    let all = "3 recipients of 1 message, including 2 not selected: whole messages are";
    assert_eq!(said(&[&["hold", "--dry-run"], &one[..]].concat()), format!("would hold: {all} held\n"));
    assert_eq!(said(&[&["hold"], &one[..]].concat()), format!("hold: {all} held\n"));
    assert_eq!(said(&[&["hold"], &one[..]].concat()), "hold: 0 recipients of 0 messages; 1 message already held\n");
    assert_eq!(said(&[&["release"], &one[..]].concat()), format!("release: {all} released\n"));
    // Of whole messages there are no others.
    assert_eq!(said(&["hold", "--id", &id]), "hold: 3 recipients of 1 message\n");
    assert_eq!(said(&["release", "--recipient", "@down.example"]), "release: 3 recipients of 1 message\n");
}

#[test]
fn a_suspended_site_says_so() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    send(&server, "me@home.example", "ann@one.example", "first@test");
    server.wait_empty();
    server.ask(&["suspend", "--site", "one.example"]).expect("it is suspended");
    let id = send(&server, "me@home.example", "ann@one.example", "second@test");
    wait_until("it waits there", || {
        let site = server.ask(&["site", "one.example"]).expect("it is known");
        site["suspended"] == true
            && site["messages"] == 1
            && site["waits_for"].as_str().is_some_and(|why| why.contains("operator"))
    });
    let text = String::from_utf8(server.operator(&["site", "one.example"]).stdout).expect("text");
    assert!(text.contains("SUSPENDED") && text.contains("mx1.one.example"), "{text}");
    // No time brings its next try.
    let text = |arguments: &[&str]| String::from_utf8(server.operator(arguments).stdout).expect("text");
    let shown = text(&["queue", "show", &id]);
    assert!(shown.lines().any(|line| line.starts_with("suspended        -  ann@one.example")), "{shown}");
    let shown = text(&["report", &id]);
    assert!(shown.contains("1 at mx1.one.example, next try -  suspended by an operator"), "{shown}");
    // The site and its recipients wait for one thing, which one command ends.
    wait_until("recipients are counted", || text(&["stuck"]).contains("ann@one.example"));
    let shown = text(&["stuck"]);
    assert_eq!(shown.matches("suspended by an operator: `stentor resume --site mx1.one.example").count(), 2, "{shown}");
}

#[test]
fn a_suspended_site_keeps_the_last_reply() {
    let lab = crate::live::lab();
    let server = crate::live::patient(&lab).start();
    send(&server, "me@home.example", "bob@full.example", "full@test");
    wait_until("it was tried", || server.ask(&["site", "full.example"]).is_ok_and(|site| site["next_try"].is_u64()));
    server.ask(&["suspend", "--site", "full.example"]).expect("it is suspended");
    wait_until("it is counted", || {
        let site = server.ask(&["site", "full.example"]).expect("it is known");
        site["causes"][0]["cause"] == "suspended"
            && site["last_reply"].as_str().is_some_and(|reply| reply.contains("Mailbox full"))
    });
}

#[test]
fn why_mail_waits_at_a_dead_site() {
    let lab = TestLab::start("[[site]]\nname = 'dead.example'\nbehaviour = { connect = 'refuse' }\n");
    let server = builder(&lab).set("retry.host_min_s", "60").set("retry.host_max_s", "600").start();
    send(&server, "me@home.example", "ann@dead.example", "mail@test");
    // Mail that waits is counted from time to time.
    wait_until("it is counted", || {
        let site = server.ask(&["site", "dead.example"]);
        site.is_ok_and(|site| site["waits_for"].as_str().is_some_and(|why| why.contains("connection refused")))
    });
    let site = server.ask(&["site", "dead.example"]).expect("it is known");
    let host = &site["paths"][0]["hosts"][0];
    assert_eq!((&host["host"], &host["failures"]), (&"mx1.dead.example".into(), &1.into()));
    assert!(host["next_try"].as_u64() > site["now"].as_u64(), "{site}");
    assert!(host["last_reply"].as_str().expect("text").contains("refused"), "{site}");
    assert!(server.ask(&["site", "unknown.example"]).is_err());
}

#[test]
fn the_last_reply_is_as_the_host_gave_it() {
    let scenario = "[[site]]\nname = 'busy.example'\nbehaviour = { at_greeting = '421 4.3.2 too busy' }\n\
                    [[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '450 4.1.2 lookup failed' }\n\
                    [[site]]\nname = 'drop.example'\nbehaviour = { at_dot = 'drop' }\n";
    let lab = TestLab::start(scenario);
    let server = builder(&lab).set("retry.host_min_s", "60").set("retry.host_max_s", "600").start();
    let replies = [
        ("busy.example", "421 4.3.2 too busy"),
        ("later.example", "450 4.1.2 lookup failed"),
        // No host sent a code.
        ("drop.example", "lost connection while waiting for the reply to the message"),
    ];
    for (site, reply) in replies {
        let id = send(&server, "me@home.example", &format!("ann@{site}"), &format!("mail@{site}"));
        let mut shown = String::new();
        wait_until("it was tried", || {
            let message = server.ask(&["queue", "show", &id]).expect("it is queued");
            shown = message["recipients"][0]["last_reply"].as_str().unwrap_or_default().to_owned();
            !shown.is_empty()
        });
        assert_eq!(shown, reply);
    }
}

#[test]
fn a_post_is_paused_and_cancelled_in_mid_delivery() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '451 4.3.0 later' }\n",
    );
    let server = builder(&lab).list("news", &["ann@one.example", "bob@later.example"]).start();
    let id = send(&server, "me@home.example", "news@lists.test", "post@test");
    lab.wait("those who can have it", |recorder| recorder.copies_of("post@test") == 1);
    wait_until("that is known", || server.fates()["delivered"] == 1);
    server.ask(&["post", "pause", &id, "--reason", "a mistake"]).expect("it is paused");
    let shown = server.ask(&["queue", "show", &id]).expect("it is there");
    assert_eq!(
        (&shown["held"], &shown["fates"]["delivered"], &shown["fates"]["pending"]),
        (&true.into(), &1.into(), &1.into())
    );
    server.ask(&["post", "resume", &id]).expect("it goes on");
    assert_eq!(server.ask(&["queue", "show", &id]).expect("it is there")["held"], false);
    server.ask(&["post", "cancel", &id]).expect("it is cancelled");
    server.wait_empty();
    let fates = server.fates();
    assert_eq!((&fates["delivered"], &fates["removed"]), (&1.into(), &1.into()), "{fates}");
}

#[test]
fn a_suspension_ends_by_itself_also_across_a_restart() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = builder(&lab).start();
    send(&server, "me@home.example", "ann@one.example", "first@test");
    server.wait_empty();
    let suspend = |server: &Server, time: &str| server.ask(&["suspend", "--site", "one.example", "--for", time]);
    suspend(&server, "2h").expect("it is suspended");
    let text = String::from_utf8(server.operator(&["status"]).stdout).expect("text");
    assert!(text.contains("SUSPENDED    site:mx1.one.example, resumes in 2h00m"), "{text}");
    let site = server.ask(&["site", "one.example"]).expect("it is known");
    assert!(site["suspended_until"].as_u64() > site["now"].as_u64(), "{site}");
    // Another end; then it has none, and one again.
    assert_eq!(suspend(&server, "3h").expect("again")["count"], 1);
    assert_eq!(server.ask(&["suspend", "--site", "one.example"]).expect("again")["count"], 1);
    assert!(server.status()["suspended_until"].is_null());
    assert_eq!(suspend(&server, "8s").expect("again")["count"], 1);
    send(&server, "me@home.example", "ann@one.example", "second@test");
    server.kill();
    server.start_again();
    let copies = lab.recorder().copies_of("second@test");
    assert!(copies == 0 || server.status()["suspended_until"].is_null(), "it goes before");
    lab.wait("it goes when the time is over", |recorder| recorder.copies_of("second@test") == 1);
    assert_eq!(server.status()["suspended_total"], 0);
    server.wait_log(&["audit: verb=resume, who=stentor", "expired"]);
}
