//! Lists: what a post becomes, and the subscribers file.

use stentor_harness::{Server, TestLab, dot_stuff, message, wait_until};

use crate::kit::builder;

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "two.example", "three.example"])
}

/// Posts to the list `news` and asserts that exactly these get it.
#[track_caller]
fn post(lab: &TestLab, server: &Server, id: &str, subscribers: &[&str]) {
    let wire = message(id, "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect(250);
    lab.wait_clean(id, subscribers);
}

/// The queue id of the reply is that of the mail which somebody gets.
#[test]
fn a_list_that_nobody_reads_takes_no_queue_id() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).list("none", &[]).start();
    let to = ["none@lists.test", "joe@one.example"];
    let id = server.smtp().send("me@home.example", &to, &message("both@test", "x")).expect(250).queue_id();
    server.wait_log(&[&format!("{id}: to=<joe@one.example>"), "stat=Sent"]);
}

#[test]
fn fields_and_envelope_of_a_post() {
    let lab = lab();
    let server = Server::builder()
        .lab(&lab)
        .list("news", &["ann@one.example"])
        .set("lists.news.description", "\"All the \\\"news\\\"\"")
        .set("lists.news.owner", "\"chief@two.example\"")
        .set("lists.news.archive", "\"https://lists.test/news/\"")
        .list("plain", &["bob@two.example"])
        .set("lists.plain.precedence", "\"none\"")
        .set("lists.plain.list_id", "\"other.id.test\"")
        .set("lists.plain.bounces", "\"verp@bounces.test\"")
        .start();
    post(&lab, &server, "fields@test", &["ann@one.example"]);
    let body = String::from_utf8(lab.body_for("ann@one.example")).expect("text");
    let (fields, original) = body.split_at(body.find("From: Me").expect("the original"));
    assert_eq!(original.as_bytes(), message("fields@test", "A post"));
    let (list, received) = fields.split_at(fields.find("Received:").expect("our Received"));
    assert_eq!(
        list,
        "List-Id: \"All the \\\"news\\\"\" <news.lists.test>\r\nList-Post: <mailto:news@lists.test>\r\nList-Owner: \
         <mailto:chief@two.example>\r\nList-Archive: <https://lists.test/news/>\r\nPrecedence: list\r\n"
    );
    assert!(received.starts_with("Received: from client.example ([127.0.0.1])\r\n\tby mx.test with ESMTP id "));
    assert_eq!(&*lab.recorder().copies_to("ann@one.example")[0].sender, "news-bounces@lists.test");

    let wire = message("plain@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["PLAIN@Lists.Test"], &wire).expect(250);
    lab.wait_clean("plain@test", &["bob@two.example"]);
    let body = String::from_utf8(lab.body_for("bob@two.example")).expect("text");
    assert!(
        body.starts_with("List-Id: <other.id.test>\r\nList-Post: <mailto:plain@lists.test>\r\nReceived: "),
        "{body}"
    );
    assert_eq!(&*lab.recorder().copies_to("bob@two.example")[0].sender, "verp@bounces.test");
}

#[test]
fn a_replaced_file_is_picked_up_at_once() {
    let lab = lab();
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    post(&lab, &server, "before@test", &["ann@one.example"]);
    server.write("news.subscribers", b"bob@two.example\ncid@three.example\n");
    post(&lab, &server, "after@test", &["bob@two.example", "cid@three.example"]);
    server.write("news.subscribers", b"");
    let reply = server.smtp().send("me@home.example", &["news@lists.test"], &message("nobody@test", "x"));
    reply.expect(250);
    server.write("news.subscribers", b"ann@one.example\n");
    post(&lab, &server, "again@test", &["ann@one.example"]);
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 4);
}

#[test]
fn a_post_keeps_the_subscribers_of_its_acceptance() {
    // Nobody can be delivered to before the file is replaced.
    let lab = TestLab::start(
        "[[site]]\nname = \"one.example\"\nbehaviour = { greylist_ms = 300, greylist_by = \"recipient\" }\n",
    );
    let server = Server::builder().lab(&lab).fast_retry().list("news", &["a@one.example", "b@one.example"]).start();
    let wire = message("then@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect(250);
    server.write("news.subscribers", b"b@one.example\nc@one.example\n");
    post(&lab, &server, "now@test", &["b@one.example", "c@one.example"]);
    lab.wait_clean("then@test", &["a@one.example", "b@one.example"]);
}

#[test]
fn every_kind_of_line() {
    let lab = lab();
    let file = "\u{feff}# subscribers\r\n\nann@one.example\r\nBob <bob@two.example>\n  \"Cid, C.\" <cid@three.example> # \
                old\nann@ONE.example\nnot an address\n@nobody\nmore@one.example text\nlast@two.example";
    let server = Server::builder().lab(&lab).list_with_file("news", file.as_bytes()).start();
    for (number, text) in [(7, "not an address"), (8, "@nobody")] {
        let line = server.wait_log(&["news.subscribers", &format!("line {number}")]);
        assert!(line.contains("WARN") && line.contains(text), "{line}");
    }
    let summary = server.wait_log(&["subscribers read from", "list=news"]);
    assert!(summary.contains("subscribers=4") && summary.contains("duplicates=1"), "{summary}");
    assert!(summary.contains("bad_lines=3") && summary.contains("lines=10"), "{summary}");
    post(&lab, &server, "lines@test", &["ann@one.example", "bob@two.example", "cid@three.example", "last@two.example"]);
}

#[test]
fn an_unreadable_file_defers_or_leaves_the_old_version() {
    let lab = lab();
    let server = Server::builder()
        .lab(&lab)
        .list("news", &["ann@one.example"])
        .list("late", &[])
        .set("lists.late.subscribers", "\"late\"")
        .file("late", b"bob@two.example\n")
        .prepare();
    std::fs::remove_file(server.path("late")).expect("it was written");
    let server = server.run();
    server.wait_log(&["late", "cannot be read: No such file or directory", "create it (it may be empty)"]);
    // The others are not down for it; its own posts wait at their clients, until it is there.
    post(&lab, &server, "healthy@test", &["ann@one.example"]);
    let mut smtp = server.smtp();
    smtp.cmd("MAIL FROM:<me@home.example>").expect(250);
    smtp.cmd("RCPT TO:<late@lists.test>").expect(451);
    wait_until("it is a problem", || {
        let status = server.operator(&["status"]).stdout;
        let status = String::from_utf8_lossy(&status);
        status.contains("list late: the subscribers file cannot be used: ") && status.contains("posts get 451 4.3.0")
    });
    // What mended it is enough: no post has to come first.
    server.write("late", b"bob@two.example\n");
    wait_until("the problem is over", || {
        let status = server.operator(&["status"]).stdout;
        !String::from_utf8_lossy(&status).contains("list late")
    });
    smtp.cmd("RCPT TO:<late@lists.test>").expect(250);
    drop(server);
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    post(&lab, &server, "before@test", &["ann@one.example"]);
    std::fs::remove_file(server.path("news.subscribers")).expect("it is there");
    post(&lab, &server, "without@test", &["ann@one.example"]);
    server.wait_log(&["the subscribers file could not be read", "news"]);
}

/// Opening a pipe waits for a writer.
#[test]
fn a_file_that_is_a_pipe_keeps_nobody_from_the_others() {
    let lab = lab();
    let server =
        Server::builder().lab(&lab).list("news", &["ann@one.example"]).list("pipe", &["bob@two.example"]).prepare();
    let path = server.path("pipe.subscribers");
    std::fs::remove_file(&path).expect("it was written");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    let found = server.operator_text(&["check"]);
    assert!(found.contains("pipe.subscribers` cannot be read: not a regular file; name a file"), "{found}");
    let server = server.run();
    post(&lab, &server, "healthy@test", &["ann@one.example"]);
    let mut smtp = server.smtp();
    smtp.cmd("MAIL FROM:<me@home.example>").expect(250);
    smtp.cmd("RCPT TO:<pipe@lists.test>").expect(451);
}

#[test]
fn addresses_that_come_with_a_list() {
    let lab = lab();
    let server = Server::builder()
        .lab(&lab)
        .list("news", &["ann@one.example"])
        .set("lists.news.owner", "\"chief@two.example\"")
        .list("quiet", &["ann@one.example"])
        .start();
    for (n, to) in
        ["news-owner@lists.test", "owner-news@lists.test", "news-bounces@lists.test", "postmaster@lists.test"]
            .iter()
            .enumerate()
    {
        let id = format!("owner{n}@test");
        let wire = message(&id, "To the owner");
        lab.recorder().expect_message(wire.clone().into());
        server.smtp().send("", &[to], &wire).expect(250);
        lab.wait_clean(&id, &["chief@two.example"]);
    }
    // Nobody reads the reports of this list: taken, counted, and no copy for anybody.
    server.smtp().send("", &["quiet-bounces@lists.test"], &message("report@test", "x")).expect(250);
    server.wait_log(&["report: list=quiet", "noted"]);
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 4);
}

#[test]
fn a_list_of_fifty_thousand() {
    let lab = TestLab::start_with("[[generate]]\nsites = 50\n", stentor_lab::Mode::Compact);
    let people = lab.scenario().subscribers(50_000);
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    let server = Server::builder().lab(&lab).list("news", &people).set("log.attempts", "\"off\"").start();
    post(&lab, &server, "crowd@test", &people);
    server.wait_empty();
}

/// The lists that have an address as a subscriber.
fn subscribed_to(server: &Server, address: &str) -> Vec<serde_json::Value> {
    let known = server.ask(&["address", address]).unwrap_or_default();
    known["lists"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_post_under_way_to_a_list_that_a_reload_takes_away_is_not_taken() {
    let lab = lab();
    let server =
        Server::builder().lab(&lab).list("news", &["ann@one.example"]).list("gone", &["bob@two.example"]).start();
    let posts = ["news@lists.test", "gone@lists.test"].map(|to| {
        let mut client = server.smtp();
        client.begin("bob@two.example", &[to]);
        client
    });
    let wire = message("under-way@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.edit_config(|text| {
        text.split("\n\n").filter(|part| !part.starts_with("[lists.gone]")).collect::<Vec<_>>().join("\n\n")
    });
    assert_eq!(subscribed_to(&server, "bob@two.example"), ["gone"]);
    server.signal(rustix::process::Signal::HUP);
    server.wait_log(&["list no longer configured", "list=gone"]);
    wait_until("its subscribers are given up", || subscribed_to(&server, "bob@two.example").is_empty());
    // It would be acknowledged and go to nobody.
    for (mut client, text) in posts.into_iter().zip(["250", "451 4.3.0"]) {
        client.raw(&dot_stuff(&wire));
        client.reply().expect_text(text);
    }
    lab.wait_clean("under-way@test", &["ann@one.example"]);
}

#[test]
fn a_file_that_there_is_no_room_for_is_not_read_for_everybody() {
    let lab = lab();
    let server =
        Server::builder().lab(&lab).list("news", &["ann@one.example"]).set("journal.addresses_max", "2000").start();
    server.wait_log(&["subscribers read from", "list=news"]);
    let crowd: String = (0..20_000).map(|n| format!("reader{n}@one.example\n")).collect();
    server.write("news.subscribers", crowd.as_bytes());
    let named = || {
        let mut client = server.smtp();
        client.cmd("MAIL FROM:<me@home.example>").expect(250);
        client.cmd("RCPT TO:<news@lists.test>").expect(250);
    };
    for _ in 0..40 {
        named();
    }
    // The log comes through a thread of its own.
    server.wait_log(&["the subscribers file could not be read"]);
    let readings = server.log().matching(&["the subscribers file could not be read"]).len();
    assert!((1..40).contains(&readings), "{readings} readings");
    // Another file is read at once.
    server.write("news.subscribers", b"bob@two.example\n");
    post(&lab, &server, "smaller@test", &["bob@two.example"]);
}

#[test]
fn a_pipe_in_place_of_the_file_keeps_nobody_waiting() {
    let lab = lab();
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    server.wait_log(&["subscribers read from", "list=news"]);
    let file = server.path("news.subscribers");
    std::fs::remove_file(&file).expect("it is there");
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).expect("pipes can be made");
    post(&lab, &server, "pipe@test", &["ann@one.example"]);
    server.wait_log(&["the subscribers file could not be read", "not a regular file"]);
}

#[test]
fn a_reload_reports_a_file_that_cannot_be_read_and_doctor_reports_it_once() {
    let server = Server::builder().list("news", &["ann@one.example"]).start();
    let (news, folder) = (server.path("news.subscribers"), server.path("folder"));
    std::fs::create_dir(&folder).expect("it can be made");
    std::fs::remove_file(&news).expect("it is there");
    server.edit_config(|text| {
        format!("{text}\n[lists.dir]\naddress = \"dir@lists.test\"\nsubscribers = \"{}\"\n", folder.display())
    });
    let output = server.operator(&["reload"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.starts_with("configuration reloaded\n"), "{output:?}");
    let reasons = [(&news, "No such file or directory"), (&folder, "not a regular file")];
    for (path, why) in reasons {
        let reason = format!("warning: subscribers file `{}` cannot be read: {why}", path.display());
        let place = |line: &str| line.contains("stentor.toml:") && line.contains(&reason);
        assert!(said.lines().any(place), "{reason}\n{said}");
        server.wait_log(&["WARN", "stentor.toml:", &reason]);
    }
    let output = server.operator(&["check"]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let doctor = || String::from_utf8(server.operator(&["doctor"]).stdout).expect("text");
    wait_until("both are conditions", || {
        ["news", "dir"].iter().all(|list| doctor().contains(&format!("PROBLEM: list {list}: the subscribers file")))
    });
    let said = doctor();
    for (path, _) in reasons {
        assert_eq!(said.lines().filter(|line| line.contains(&*path.display().to_string())).count(), 1, "{said}");
    }
}
