//! The operator's live view: rates, waiting messages and recipients, hosts, delivery reports.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use stentor_harness::{Log, Server, TestLab, message, stentor, wait_until};

use crate::kit::{SENDER_SITE, bare, builder};

const LIST: &[&str] = &["ann@one.example", "bob@full.example", "cid@down.example"];

pub fn lab() -> TestLab {
    TestLab::start(
        "[[site]]\nname = 'one.example'\n\
         [[site]]\nname = 'full.example'\nbehaviour = { at_rcpt = '452 4.2.2 Mailbox full' }\n\
         [[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n",
    )
}

/// Nothing that has failed once is tried again while a test runs.
pub fn patient(lab: &TestLab) -> stentor_harness::Builder {
    let mut builder = builder(lab);
    for clock in ["host", "site", "mailbox", "recipient"] {
        builder = builder.set(&format!("retry.{clock}_max_s"), "7200").set(&format!("retry.{clock}_min_s"), "3600");
    }
    builder
}

fn send(server: &Server, to: &str, id: &str) -> String {
    server.smtp().send("me@sender.example", &[to], &message(id, "x")).expect(250).queue_id()
}

fn text(server: &Server, arguments: &[&str]) -> String {
    let output = server.operator(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A post of which ann has her copy and two others wait, and a message that waits for dan.
pub fn two_wait(lab: &TestLab, server: &Server) -> (String, String) {
    let post = send(server, "news@lists.test", "post@test");
    let mail = send(server, "dan@down.example", "mail@test");
    lab.wait("ann has the post", |recorder| recorder.copies_to("ann@one.example").len() == 1);
    let deferred = |message: &Value| {
        message["recipients"].as_array().is_some_and(|all| all.iter().all(|r| r["state"] == "deferred"))
    };
    for (id, pending) in [(&post, 2), (&mail, 1)] {
        wait_until("what cannot go has been tried", || {
            let shown = server.ask(&["queue", "show", id]).expect("it is queued");
            shown["fates"]["pending"] == pending && deferred(&shown)
        });
    }
    (post, mail)
}

#[test]
fn mailqq_counts_recipients_of_messages() {
    let lab = lab();
    let server = patient(&lab).list("news", LIST).start();
    assert!(text(&server, &["mailqq"]).contains("no recipients waiting"));
    let (post, mail) = two_wait(&lab, &server);
    let all = server.ask(&["mailqq"]).expect("an answer");
    let ids = |answer: &Value| -> Vec<String> {
        let rows = answer["mailqq_rows"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&all), [post.clone(), mail.clone()], "most recipients first: {all}");
    assert_eq!((all["messages"].as_u64(), all["recipients"].as_u64()), (Some(2), Some(3)));
    let row = &all["mailqq_rows"][0];
    assert!(row["pending"] == 2 && row["total"] == 3 && row["list"] == "news" && row["in_flight"] == 0, "{row}");
    let shown = text(&server, &["mailqq"]);
    let line = shown.lines().find(|line| line.contains(&post)).expect("a row");
    assert!(line.trim_start().starts_with("2  ") && line.contains("list news"), "{shown}");
    assert!(shown.contains("3  in all, 2 messages"), "{shown}");
    for (narrow, found) in [
        (["--list", "news"], vec![&post]),
        // Of the post it is the author, and the list's bounce address the sender of the envelope.
        (["--sender", "me@sender.example"], vec![&post, &mail]),
        (["--sender", "@SENDER.example"], vec![&post, &mail]),
        (["--sender", "news-bounces@lists.test"], vec![&post]),
        (["--site", "full.example"], vec![&post]),
        (["--site", "down.example"], vec![&post, &mail]),
        (["--older-than", "1h"], vec![]),
        (["--younger-than", "1h"], vec![&post, &mail]),
        (["--sort", "age"], vec![&post, &mail]),
        (["--limit", "1"], vec![&post]),
        (["--after", post.as_str()], vec![&mail]),
    ] {
        let answer = server.ask(&[&["mailqq"], &narrow[..]].concat()).expect("an answer");
        assert_eq!(ids(&answer).iter().collect::<Vec<_>>(), found, "{narrow:?}: {answer}");
    }
    assert!(server.ask(&["mailqq", "--site", "nowhere.example"]).is_err());
    assert!(server.ask(&["mailqq", "--list", "other"]).is_err());
}

#[test]
fn latedudes_names_who_is_stuck_and_what_to_do() {
    let lab = lab();
    let server = patient(&lab).list("news", LIST).start();
    assert!(text(&server, &["latedudes"]).contains("no recipients waiting"));
    two_wait(&lab, &server);
    send(&server, "news@lists.test", "second@test");
    wait_until("both posts are counted", || {
        let stuck = server.ask(&["latedudes"]).expect("an answer");
        let rows = stuck["stuck_recipients"].as_array().cloned().unwrap_or_default();
        rows.iter().filter(|row| row["messages"] == 2).count() == 2
    });
    let shown = text(&server, &["latedudes"]);
    let advice = "-> mailbox full: stop the list's mail with `stentor suspend --list news --subscriber bob@full.example --config ";
    assert!(shown.contains(advice), "{shown}");
    assert!(
        shown.contains("-> host refuses connections: wait, or `stentor suspend --site mx1.down.example --config "),
        "{shown}"
    );
    assert!(shown.contains("452 4.2.2 Mailbox full"), "{shown}");
    let rows: Vec<&str> = shown.lines().skip_while(|line| !line.contains("recipient")).collect();
    let at =
        |name: &str| shown.lines().position(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}\n{shown}"));
    assert!(at("bob@full.example") < at("dan@down.example"), "most messages first: {rows:?}");
    // It can be done as it is said.
    server.ask(&["suspend", "--list", "news", "--subscriber", "bob@full.example"]).expect("it is suspended");
}

#[test]
fn hosts_have_history_clocks_and_reasons() {
    let lab = lab();
    let server = patient(&lab).list("news", LIST).start();
    two_wait(&lab, &server);
    let all = server.ask(&["hosts"]).expect("an answer");
    let rows = all["host_rows"].as_array().expect("rows").clone();
    assert_eq!((rows.len(), all["matching"].as_u64()), (3, Some(3)), "{all}");
    assert!(rows[0]["site"] == "mx1.down.example" && rows[0]["waiting"] == 2, "most waiting first: {all}");
    assert!(rows[0]["lane"] == "clock" && rows[0]["next_try"].is_u64(), "{all}");
    // The short pauses of a host go on meanwhile.
    assert!(rows[0]["hosts"][0]["failures"].as_u64() >= Some(1), "{all}");
    let one = rows.iter().find(|row| row["site"] == "mx1.one.example").expect("a row");
    assert!(one["history"]["answered"] == 1 && one["history"]["last_success"].is_u64(), "{one}");
    let failing = server.ask(&["hosts", "--failing"]).expect("an answer");
    assert!(failing["matching"] == 1 && failing["host_rows"][0]["site"] == "mx1.down.example", "{failing}");
    let page = server.ask(&["hosts", "--sort", "name", "--limit", "1", "--offset", "1"]).expect("an answer");
    assert!(page["host_rows"].as_array().is_some_and(|rows| rows.len() == 1 && rows[0]["site"] == "mx1.full.example"));
    assert_eq!(server.ask(&["hosts", "ONE.ex"]).expect("an answer")["matching"], 1);
    let shown = text(&server, &["hosts", "down"]);
    let tells = shown.contains("failure, next try") || shown.contains("failures, next try");
    assert!(tells && shown.contains("refused"), "{shown}");
}

#[test]
fn a_report_tells_how_a_post_fares() {
    let lab = lab();
    let mut server = patient(&lab).list("news", LIST).start();
    assert!(server.ask(&["report", "0000000000ZZ"]).is_err());
    let (post, mail) = two_wait(&lab, &server);
    let report = |server: &Server, id: &str| server.ask(&["report", id]).expect("an answer")["post_rows"][0].clone();
    let row = report(&server, &post);
    let counts = ["total", "delivered", "pending", "bounced"].map(|name| row[name].as_u64().expect("a number"));
    assert_eq!(counts, [3, 1, 2, 0], "{row}");
    assert!(row["timeline"]["count"] == 1 && row["before_start"].is_null(), "{row}");
    let words = row["text"].as_str().expect("text");
    assert!(
        words.starts_with("33.3 % delivered in ") && words.contains("1 waiting at ") && words.contains("next try"),
        "{words}"
    );
    let waiting: Vec<&str> =
        row["waiting"].as_array().expect("rows").iter().filter_map(|w| w["site"].as_str()).collect();
    assert!(waiting.contains(&"mx1.full.example") && waiting.contains(&"mx1.down.example"), "{row}");
    assert_eq!(report(&server, &mail)["pending"], 1, "what is no post is known while it is queued");
    let of_list = server.ask(&["report", "--list", "news"]).expect("an answer");
    assert_eq!(of_list["post_rows"].as_array().map(Vec::len), Some(1));
    assert!(text(&server, &["report", "--last", "5"]).contains(words.split(',').next().expect("words")));
    // Fates and times outlive a stop.
    server.stop();
    server.start_again();
    wait_until("the post is followed again", || {
        let row = report(&server, &post);
        row["pending"] == 2 && row["delivered"] == 1 && row["timeline"]["count"] == 1
    });
    server.ask(&["remove", "--recipient", "bob@full.example"]).expect("it is removed");
    server.ask(&["bounce", "--all"]).expect("they are bounced");
    wait_until("it is known to its end", || {
        let row = report(&server, &post);
        row["pending"] == 0 && row["finished"].is_u64() && row["removed"] == 1 && row["bounced"] == 1
    });
}

#[test]
fn reports_are_mailed_once_and_never_answered() {
    let site = |name: &str| format!("[[site]]\nname = '{name}'\nbehaviour = {{ reject_users = ['refuser'] }}\n");
    let lab = TestLab::start(&format!("{SENDER_SITE}{}{}", site("one.example"), site("owners.example")));
    let mut server = builder(&lab)
        .list("news", &["ann@one.example", "bob@one.example"])
        .set("lists.news.owner", "\"chief@owners.example\"")
        .set("lists.news.report_to", "\"both\"")
        .list("other", &["ann@one.example"])
        .set("lists.other.owner", "\"refuser@owners.example\"")
        .set("lists.other.report_to", "\"owner\"")
        .start();
    let post = send(&server, "news@lists.test", "post@test");
    let reports = |to: &str| {
        let copies = lab.recorder().copies_to(to).into_iter();
        let bodies = copies.filter(|copy| copy.sender.is_empty()).filter_map(|copy| copy.body);
        bodies.map(|body| String::from_utf8(body.to_vec()).expect("text")).collect::<Vec<_>>()
    };
    for to in ["chief@owners.example", "me@sender.example"] {
        lab.wait("the report comes", |_| !reports(to).is_empty());
        let report = reports(to).remove(0);
        assert!(report.contains(&format!("\r\nSubject: news: delivery report of {post}\r\n")), "{report}");
        assert!(report.contains("\r\nAuto-Submitted: auto-generated\r\n"), "{report}");
        assert!(report.contains("\r\n\r\n100 % delivered in "), "{report}");
        assert!(report.contains("<chief@owners.example>,\r\n <me@sender.example>"), "{report}");
    }
    // An owner who takes no mail: his report ends there.
    send(&server, "other@lists.test", "other@test");
    wait_until("the second report has been refused", || server.fates()["bounced"] == 1);
    server.wait_empty();
    // Two copies and two reports of the first, one copy and one report of the second, and nothing about these.
    assert_eq!(server.fates()["acknowledged"], 6, "{}", server.fates());
    server.stop();
    server.start_again();
    send(&server, "news@lists.test", "third@test");
    lab.wait("the third post's report", |_| reports("chief@owners.example").len() == 2);
    server.wait_empty();
    assert_eq!((reports("chief@owners.example").len(), reports("me@sender.example").len()), (2, 2));
    assert_eq!(server.fates()["acknowledged"], 10, "{}", server.fates());
}

#[test]
fn a_report_may_wait_for_its_time() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'one.example'\n[[site]]\nname = 'full.example'\n\
         behaviour = {{ at_rcpt = '452 4.2.2 Mailbox full' }}\n"
    ));
    let server = patient(&lab)
        .list("news", &["ann@one.example", "bob@full.example"])
        .set("lists.news.report_to", "\"poster\"")
        .set("lists.news.report_after_s", "1")
        .start();
    send(&server, "news@lists.test", "post@test");
    lab.wait("the report comes", |recorder| !recorder.copies_to("me@sender.example").is_empty());
    let body = lab.recorder().copies_to("me@sender.example").remove(0).body.expect("the lab keeps bodies");
    let report = String::from_utf8(body.to_vec()).expect("text");
    assert!(report.contains("1 waiting at mx1.full.example") && report.contains("452 4.2.2 Mailbox full"), "{report}");
}

/// A command that goes on, with its rows.
pub struct Running {
    child: Child,
    pub rows: Log,
    said: Log,
}

impl Running {
    pub fn start(server: &Server, arguments: &[&str]) -> Running {
        let mut command = Command::new(stentor());
        command.args(arguments).arg("--config").arg(server.config()).env("NO_COLOR", "1").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary can be run");
        let rows = Log::follow(child.stdout.take().expect("it is piped"));
        let said = Log::follow(child.stderr.take().expect("it is piped"));
        Running { child, rows, said }
    }

    /// Time, rate, delivered and bar of each row.
    fn rows(&self) -> Vec<(String, u64, u64, String)> {
        let rows = self.rows.lines().into_iter().filter(|row| !row.starts_with('#'));
        rows.map(|row| {
            let (left, right) = row.split_once('/').unwrap_or_else(|| panic!("{row:?}"));
            let (time, rate) = left.split_once(' ').expect("a time");
            let right = right.trim_start();
            let (delivered, bar) = right.split_once(' ').unwrap_or((right, ""));
            let number = |text: &str| text.trim().parse().unwrap_or_else(|_| panic!("{row:?}"));
            (time.to_owned(), number(rate), number(delivered), bar.to_owned())
        })
        .collect()
    }

    fn delivered(&self) -> u64 {
        self.rows().iter().map(|row| row.2).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn realstat_counts_each_delivery_once() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
         [[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n",
    );
    let server = patient(&lab).list("news", &["ann@one.example", "bob@one.example", "cid@two.example"]).start();
    // So that the sites are known.
    send(&server, "first@one.example", "first@test");
    send(&server, "first@two.example", "second@test");
    server.wait_empty();
    let all = Running::start(&server, &["realstat", "--interval", "0.2"]);
    let list = Running::start(&server, &["realstat", "--interval", "0.2", "--list", "news"]);
    let site = Running::start(&server, &["realstat", "--interval", "0.2", "--site", "one.example"]);
    wait_until("all of them watch", || [&all, &list, &site].iter().all(|running| !running.rows().is_empty()));
    send(&server, "news@lists.test", "post@test");
    for n in 0..4 {
        send(&server, &format!("user{n}@one.example"), &format!("{n}@test"));
    }
    send(&server, "dan@down.example", "down@test");
    wait_until("all is counted", || all.delivered() == 7 && list.delivered() == 3 && site.delivered() == 6);
    wait_until("the failure is drawn", || all.rows().iter().any(|row| row.3.contains('-')));
    let seen = all.rows().len();
    wait_until("rows go on", || all.rows().len() > seen + 3);
    assert_eq!((all.delivered(), list.delivered(), site.delivered()), (7, 3, 6), "each once");
    assert!(list.rows().iter().all(|row| !row.3.contains('-')), "no list's mail failed");
    let (_, rate, delivered, bar) = all.rows().into_iter().find(|row| row.2 > 0).expect("a row");
    assert!(rate > 0 && bar.starts_with(&"*".repeat(delivered as usize)), "{rate} {delivered} {bar}");
    assert!(all.rows.lines()[0].starts_with("# "), "the scale is said");
}

#[test]
fn realstat_ends_after_its_count_and_says_what_it_knows_as_json() {
    let lab = lab();
    let server = patient(&lab).list("news", LIST).start();
    two_wait(&lab, &server);
    let output = server.operator(&["realstat", "--interval", "0.2", "--count", "2"]);
    let rows = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && rows.lines().filter(|row| !row.starts_with('#')).count() == 2, "{rows}");
    let mut snapshot = Value::Null;
    // A host that refused the first may be tried once more for the second.
    wait_until("nothing is in flight", || {
        let output = server.operator(&["realstat", "--interval", "0.2", "--count", "1", "--json"]);
        snapshot = serde_json::from_slice(&output.stdout).expect("a snapshot");
        let depth = &snapshot["queue"]["depth"];
        depth["clock"]["recipients"] == 2 && depth["fast"]["recipients"] == 1
    });
    let queue = &snapshot["queue"];
    assert!(queue["bulk"] == 2 && queue["ordinary"] == 1 && queue["messages"] == 2, "{snapshot}");
    assert!(snapshot["sites_total"] == 2 && snapshot["by_pending"][0]["site"] == "mx1.down.example", "{snapshot}");
    assert!(snapshot["connections"]["fast_max"].as_u64().is_some_and(|max| max > 0), "{snapshot}");
    assert!(snapshot["verdict"].as_str().is_some_and(|words| !words.is_empty()), "{snapshot}");
    // Of a list or a site: what of the queue it is, why that waits, and where.
    let snapshot = |options: &[&str]| -> Value {
        let output = server.operator(&[&["realstat", "--interval", "0.2", "--count", "1", "--json"], options].concat());
        serde_json::from_slice(&output.stdout).expect("a snapshot")
    };
    let list = snapshot(&["--list", "news"]);
    let waiting = |of: &Value| of["by_pending"].as_array().cloned().unwrap_or_default();
    let at = waiting(&list).iter().filter_map(|site| site["waiting"].as_u64()).sum::<u64>();
    let why =
        list["causes"].as_array().into_iter().flatten().filter_map(|cause| cause["recipients"].as_u64()).sum::<u64>();
    assert_eq!((&list["queue"]["part"]["recipients"], at, why), (&2.into(), 2, 2), "{list}");
    assert!(list["verdict"].as_str().is_some_and(|words| words.contains("2 recipients")), "{list}");
    let site = snapshot(&["--site", "down.example"]);
    assert_eq!((&site["queue"]["part"]["recipients"], waiting(&site).len()), (&2.into(), 1), "{site}");
    let refused = server.operator(&["realstat", "--site", "nowhere.example"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("no site "));
}

#[test]
fn realstat_connects_again_after_a_restart() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = builder(&lab).start();
    let all = Running::start(&server, &["realstat", "--interval", "0.2"]);
    wait_until("it watches", || !all.rows().is_empty());
    for (n, is_killed) in [(1, true), (2, false)] {
        if is_killed {
            server.kill();
        } else {
            server.stop();
        }
        assert!(all.said.wait(&["retrying"]).is_some());
        let before = all.rows().len();
        server.start_again();
        wait_until("rows go on", || all.rows().len() > before + 1);
        send(&server, "ann@one.example", &format!("{n}@test"));
        wait_until("what came since is counted", || all.delivered() == n);
    }
}

/// Both kinds of sessions are followed as they happen, without what is nobody's business.
#[test]
fn sessions_are_watched_without_their_data() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    let send = |id: &str| {
        let wire = format!("Subject: confidential\r\nMessage-ID: <{id}>\r\n\r\nconfidential too\r\n");
        server.smtp().send("me@home.example", &["ann@one.example"], wire.as_bytes()).expect(250);
        lab.wait(&format!("{id} is delivered"), |recorder| recorder.copies_of(id) == 1);
    };
    send("first@test");
    let unknown = server.operator(&["watch", "--site", "one.exmple"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("did you mean mx1.one.example?"), "{unknown:?}");
    for (number, (option, value, parts)) in [
        ("--site", "one.example", ["C: EHLO mx.test", "C: RCPT TO:<ann@one.example>", "S: 250 2.0.0 taken"]),
        ("--client", "127.0.0.1", ["-- connection from 127.0.0.1", "C: MAIL FROM:<me@home.example>", "S: 250 2.0.0"]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut watching = std::process::Command::new(stentor_harness::stentor())
            .args(["watch", option, value, "--config"])
            .arg(server.config())
            .stdout(std::fs::File::create(server.path(option)).expect("a file"))
            .spawn()
            .expect("it runs");
        let seen = || std::fs::read_to_string(server.path(option)).unwrap_or_default();
        let mut round = 0;
        wait_until("the session is seen", || {
            round += 1;
            send(&format!("{number}-{round}@test"));
            parts.iter().all(|part| seen().contains(part))
        });
        let text = seen();
        assert!(text.contains("(message data, ") && !text.contains("confidential"), "{text}");
        watching.kill().and_then(|()| watching.wait()).expect("it ends");
    }
}

/// The connection is there before anybody watches: its next transaction is seen, without the greeting that was long
/// ago.
#[test]
fn a_site_is_watched_over_the_connection_that_is_kept() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).set("delivery.idle_ms", "300000").start();
    let send = |id: &str| {
        server.smtp().send("me@home.example", &["ann@one.example"], &message(id, "x")).expect(250);
        lab.wait(&format!("{id} is delivered"), |recorder| recorder.copies_of(id) == 1);
    };
    send("before@test");
    // By the name of its hosts, and by a domain that they serve.
    for (n, site) in ["mx1.one.example", "one.example"].into_iter().enumerate() {
        let watch = Running::start(&server, &["watch", "--site", site]);
        wait_until("it watches", || server.log().matching(&["audit: verb=watch"]).len() == n + 1);
        send(&format!("{n}@test"));
        let seen = |part: &str| watch.rows.lines().iter().any(|line| line.contains(part));
        for part in ["C: MAIL FROM:<me@home.example>", "C: RCPT TO:<ann@one.example>", "S: 250 2.0.0 taken"] {
            wait_until(&format!("{part} with {site}"), || seen(part));
        }
        assert!(!seen("C: EHLO"), "{:?}", watch.rows.lines());
    }
    assert_eq!(server.ask(&["site", "one.example"]).expect("an answer")["paths"][0]["connections"], 1);
}

/// A report looks at every recipient that waits, however many there are.
#[test]
fn a_report_of_a_large_post_leaves_nobody_out() {
    const AT_ONE: usize = 200_001;
    let at_one = (0..AT_ONE).map(|n| format!("user{n}@one.example"));
    let all: Vec<String> = at_one.chain((0..5).map(|n| format!("user{n}@two.example"))).collect();
    let server = bare().list("news", &all.iter().map(String::as_str).collect::<Vec<_>>()).start();
    let id =
        server.smtp().send("me@home.example", &["news@lists.test"], &message("1@test", "x")).expect(250).queue_id();
    let report = server.ask(&["report", &id]).expect("an answer")["post_rows"][0].clone();
    let mut places: Vec<(&str, u64)> = Vec::new();
    for row in report["waiting"].as_array().expect("rows") {
        let (site, recipients) = (row["site"].as_str().expect("a name"), row["recipients"].as_u64().expect("a number"));
        match places.iter_mut().find(|(known, _)| *known == site) {
            Some((_, sum)) => *sum += recipients,
            None => places.push((site, recipients)),
        }
    }
    assert_eq!(places, [("one.example", AT_ONE as u64), ("two.example", 5)]);
}
