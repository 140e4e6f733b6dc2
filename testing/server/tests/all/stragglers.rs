//! Subscribers who do not accept mail: expiry, digests for those who return, suspension.

use stentor_harness::{Server, TestLab, message, message_with, wait_until};

use crate::kit::{SENDER_SITE, builder, report_to};

const OWNER: &str = "owner@sender.example";
const POSTS: usize = 12;

fn send_post(server: &Server, id: &str) {
    server.smtp().send("me@sender.example", &["news@lists.test"], &message(id, &format!("post {id}"))).expect(250);
}

#[test]
fn a_list_expires_earlier_than_other_mail() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'later.example'\nbehaviour = {{ at_rcpt = '451 4.3.0 not today' }}\n"
    ));
    let server = builder(&lab)
        .list("news", &["ann@later.example"])
        .set("lists.news.owner", &format!("{OWNER:?}"))
        .set("lists.news.archive", "\"https://lists.test/news/\"")
        .set("lists.news.expire_s", "1")
        .start();
    server.smtp().send("me@sender.example", &["bob@later.example"], &message("mail@test", "x")).expect(250);
    send_post(&server, "post@test");
    let report = report_to(&lab, OWNER);
    report.assert_failed("ann@later.example", "5.4.7");
    assert!(report.text.contains("https://lists.test/news/"), "{}", report.text);
    wait_until("the post is done with", || server.fates()["expired"] == 1);
    wait_until("the other message is tried on", || server.fates()["pending"] == 1);
}

#[test]
fn who_comes_back_gets_a_digest() {
    let lab = TestLab::start(
        "[[site]]\nname = 'away.example'\n[[site.window]]\nfrom_s = 0\nto_s = 10\nbehaviour = { connect = 'refuse' }\n\
         [[site]]\nname = 'here.example'\n",
    );
    let server = builder(&lab)
        .list("news", &["ann@away.example", "bob@away.example", "cid@here.example"])
        .set("lists.news.coalesce_over", "2")
        .set("lists.news.archive", "\"https://lists.test/news/\"")
        .start();
    for n in 0..POSTS {
        send_post(&server, &format!("{n}@test"));
    }
    lab.wait("those who are there have all", |recorder| recorder.copies_to("cid@here.example").len() == POSTS);
    server.wait_empty();
    let fates = server.fates();
    let number = |name: &str| fates[name].as_u64().expect("a number") as usize;
    for person in ["ann@away.example", "bob@away.example"] {
        let bodies = lab.recorder().copies_to(person).into_iter().filter_map(|copy| copy.body);
        let bodies: Vec<String> = bodies.map(|body| String::from_utf8(body.to_vec()).expect("text")).collect();
        let digests: Vec<&String> = bodies.iter().filter(|body| body.contains("multipart/digest")).collect();
        // What was on its way when the site was found to be back has gone by itself.
        assert_eq!(digests.len(), 1, "{bodies:?}");
        let within = POSTS - (bodies.len() - 1);
        assert!(within > 2 && number("coalesced") == 2 * within, "{fates}");
        let digest = digests[0];
        assert!(
            digest.starts_with("List-Id: ") && digest.contains(&format!("news Digest, {within} posts")),
            "{digest}"
        );
        assert!(digest.contains("All posts: https://lists.test/news/\r\n"), "{digest}");
        for n in 0..POSTS {
            let id = format!("\r\nMessage-ID: <{n}@test>\r\n");
            assert_eq!(bodies.iter().map(|body| body.matches(&id).count()).sum::<usize>(), 1, "{n}: {bodies:?}");
            assert_eq!(digest.contains(&id), digest.contains(&format!(". post {n}@test (Me)\r\n")), "{digest}");
        }
    }
    lab.assert_no_violations();
}

#[test]
fn a_digest_goes_where_its_posts_would_have_gone() {
    let lab = TestLab::start(
        "[[site]]\nname = 'gate.example'\nrelay = true\n[[site.host]]\nname = 'mx.gate.example'\n\
         [[site.window]]\nfrom_s = 0\nto_s = 10\nbehaviour = { connect = 'refuse' }\n[[site]]\nname = 'away.example'\n",
    );
    let people = ["ann@away.example", "bob@away.example"];
    let server = builder(&lab).list("news", &people).set("lists.news.coalesce_over", "2").prepare();
    server.edit_config(|text| {
        format!("{text}\n[[rules]]\nrecipient = \"news@lists.test\"\ndo = \"route mx:gate.example\"\n")
    });
    let server = server.run();
    for n in 0..POSTS {
        send_post(&server, &format!("{n}@test"));
    }
    server.wait_empty();
    assert!(server.fates()["coalesced"].as_u64().is_some_and(|posts| posts > 0), "{}", server.fates());
    for person in people {
        let copies = lab.recorder().copies_to(person);
        // The gateway is the first of the sites.
        assert!(copies.iter().all(|copy| copy.site == 0), "{copies:?}");
        let is_digest = |body: &[u8]| String::from_utf8_lossy(body).contains("multipart/digest");
        assert!(copies.iter().any(|copy| copy.body.as_deref().is_some_and(is_digest)), "{copies:?}");
    }
}

#[test]
fn a_subscriber_who_is_refused_for_good_is_suspended() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'one.example'\nbehaviour = {{ reject_users = ['gone'] }}\n"
    ));
    let mut server = builder(&lab)
        .list("news", &["ann@one.example", "gone@one.example"])
        .set("lists.news.owner", &format!("{OWNER:?}"))
        .set("lists.news.suspend_posts", "2")
        .start();
    let refused = || lab.stats().sinks.rcpt_5xx;
    for n in 1..=2 {
        send_post(&server, &format!("{n}@test"));
        server.wait_empty();
        assert_eq!(refused(), n);
    }
    wait_until("the suspension is known", || server.status()["suspended_total"] == 1);
    assert_eq!(server.status()["suspended"][0], "subscriber:news:gone@one.example");
    lab.wait("the owner is told", |recorder| recorder.copies_to(OWNER).len() == 3);
    let notice = lab.recorder().copies_to(OWNER).into_iter().filter_map(|copy| copy.body).find_map(|body| {
        let text = String::from_utf8(body.to_vec()).expect("text");
        text.contains("no longer gets posts").then_some(text)
    });
    let notice = notice.expect("a notice beside two reports");
    assert!(notice.contains("\r\n    gone@one.example\r\n") && notice.contains("no such user"), "{notice}");
    // Nor after a restart.
    server.stop();
    server.start_again();
    send_post(&server, "3@test");
    server.wait_empty();
    assert_eq!(refused(), 2);
    assert_eq!(lab.recorder().copies_to("ann@one.example").len(), 3);
    let resume = ["resume", "--list", "news", "--subscriber", "gone@one.example"];
    server.ask(&resume).expect("it is resumed");
    send_post(&server, "4@test");
    server.wait_empty();
    assert_eq!(refused(), 3);
}

#[test]
fn bulk_mail_has_clocks_of_its_own() {
    let lab = TestLab::start("[[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '451 4.3.0 not today' }\n");
    let server = builder(&lab)
        .set("retry.bulk_lifetime_s", "2592000")
        .set("retry.bulk_recipient_min_s", "3600")
        .set("retry.lifetime_s", "1")
        .start();
    let bulk = message_with("bulk@test", "Precedence: bulk\r\n", "x\r\n");
    let bulk = server.smtp().send("", &["ann@later.example"], &bulk).expect(250).queue_id();
    // Tried again at once, until it is too old.
    server.smtp().send("", &["bob@later.example"], &message("mail@test", "x")).expect(250);
    wait_until("ordinary mail expires", || server.fates()["expired"] == 1);
    let shown = server.ask(&["queue", "show", &bulk]).expect("it is queued");
    let row = &shown["recipients"][0];
    let wait_ms = row["next_try"].as_u64().expect("a time") - shown["now"].as_u64().expect("a time");
    // Less up to a quarter, and what has passed.
    assert!(row["state"] == "deferred" && wait_ms > 2_400_000, "{shown}");
}

#[test]
fn the_log_says_when_only_stragglers_are_left() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '451 4.3.0 later' }\n",
    );
    let server = builder(&lab)
        .list("news", &["ann@one.example", "bob@one.example", "cid@later.example"])
        .set("retry.bulk_recipient_min_s", "60")
        .start();
    send_post(&server, "post@test");
    let line = server.wait_log(&["delivered except for stragglers"]);
    assert!(line.contains("recipients=3") && line.contains("stragglers=1"), "{line}");
}
