//! One grammar of the commands that look at waiting mail: `--by`, `--list`, `--site`, `--sort`, `--limit`.

use serde_json::Value;
use stentor_harness::{Server, TestLab, wait_until};

use crate::live::{lab, patient, two_wait};

const LIST: &[&str] = &["ann@one.example", "bob@full.example", "cid@down.example"];

fn started() -> (TestLab, Server) {
    let lab = lab();
    let server = patient(&lab).list("news", LIST).list("talk", &["eve@one.example"]).start();
    two_wait(&lab, &server);
    (lab, server)
}

fn sites(queue: &Value) -> Vec<(&str, u64)> {
    let rows = queue["sites"].as_array().expect("rows");
    rows.iter().map(|row| (row["site"].as_str().expect("text"), row["waiting"].as_u64().expect("a number"))).collect()
}

fn refused(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.operator(arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_list_or_site_narrows_each_view_to_the_same_recipients() {
    let (_lab, server) = started();
    let ask = |arguments: &[&str]| server.ask(arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why:?}"));
    // dan's message is no list's, and waits at the same site as cid's copy.
    wait_until("both sites are counted", || ask(&["queue"])["sites"].as_array().is_some_and(|rows| rows.len() == 2));
    let all = ask(&["queue"]);
    assert_eq!(sites(&all), [("mx1.down.example", 2), ("mx1.full.example", 1)]);
    let news = ask(&["queue", "--list", "news"]);
    assert_eq!((&news["messages"], &news["recipients"], &news["part"]), (&1.into(), &2.into(), &"of list news".into()));
    assert_eq!(sites(&news), [("mx1.down.example", 1), ("mx1.full.example", 1)]);
    // By a domain that is at the site, from the other end.
    let down = ask(&["queue", "--site", "down.example", "--sort", "messages"]);
    assert_eq!((sites(&down), &down["messages"]), (vec![("mx1.down.example", 2)], &2.into()));
    let lists: Vec<&str> = down["lists"].as_array().expect("rows").iter().filter_map(|l| l["list"].as_str()).collect();
    assert_eq!(lists, ["", "news"]);
    let both = ask(&["queue", "--site", "down.example", "--list", "news"]);
    assert_eq!((&both["recipients"], &both["causes"][0]["cause"]), (&1.into(), &"refused".into()));
    assert_eq!(both["oldest_id"], news["oldest_id"]);
    let ages = ask(&["queue", "--by", "age", "--list", "news"]);
    assert_eq!((&ages["recipients"], &ages["sites_total"]), (&2.into(), &2.into()));
    let site = ask(&["site", "down.example", "--list", "news"]);
    assert_eq!((&site["waiting"], &site["list"]), (&1.into(), &"news".into()));
    assert_eq!(ask(&["site", "down.example"])["waiting"], 2);
    let hosts = ask(&["hosts", "--list", "news"]);
    assert_eq!((&hosts["matching"], &hosts["host_rows"][0]["waiting"]), (&2.into(), &1.into()));
    assert_eq!(ask(&["hosts", "--site", "full.example"])["matching"], 1);
    // Of a message with recipients elsewhere, those at the site alone.
    let mailqq = ask(&["mailqq", "--site", "down.example"]);
    assert_eq!(mailqq["matching_recipients"], 2, "{mailqq}");
    for row in mailqq["mailqq_rows"].as_array().expect("rows") {
        assert_eq!(
            (&row["here"], &row["causes"][0]["recipients"], row["causes"].as_array().map_or(0, Vec::len)),
            (&1.into(), &1.into(), 1),
            "{row}"
        );
    }
    // A name as it is in a line of the log.
    assert_eq!(ask(&["site", r"mx1\x2edown.example"])["site"], "mx1.down.example");
    wait_until("recipients are counted", || {
        ask(&["stuck"])["stuck_recipients"].as_array().is_some_and(|r| r.len() == 3)
    });
    let addresses = |stuck: &Value| -> Vec<String> {
        let rows = stuck["stuck_recipients"].as_array().cloned().unwrap_or_default();
        let mut all: Vec<String> = rows.iter().filter_map(|row| row["address"].as_str().map(str::to_owned)).collect();
        all.sort();
        all
    };
    assert_eq!(addresses(&ask(&["stuck", "--list", "news"])), ["bob@full.example", "cid@down.example"]);
    assert_eq!(addresses(&ask(&["stuck", "--site", "down.example"])), ["cid@down.example", "dan@down.example"]);
    let one = ask(&["stuck", "--site", "down.example", "--list", "news", "--by", "recipient"]);
    assert_eq!((addresses(&one), one["sites"].as_array().map_or(0, Vec::len)), (vec!["cid@down.example".into()], 0));
    // A list with nothing waiting is no unknown one.
    let talk = server.operator(&["queue", "--list", "talk"]);
    assert_eq!(String::from_utf8_lossy(&talk.stdout), "mx.test: no mail of list talk is waiting\n");
}

#[test]
fn rows_come_in_the_order_that_is_asked_for() {
    let (_lab, server) = started();
    let order = |arguments: &[&str]| -> Vec<String> {
        let queue = server.ask(arguments).expect("an answer");
        let rows = queue["sites"].as_array().or(queue["host_rows"].as_array()).cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row["site"].as_str().map(str::to_owned)).collect()
    };
    let by_name = ["mx1.down.example", "mx1.full.example"];
    wait_until("both sites are counted", || order(&["queue", "--sort", "name"]) == by_name);
    assert_eq!(order(&["queue", "--sort", "messages", "-n", "1"]), ["mx1.down.example"]);
    assert_eq!(order(&["stuck", "--by", "site"]), ["mx1.down.example", "mx1.full.example"]);
    assert_eq!(order(&["hosts", "--sort", "failures", "-n", "1"]), ["mx1.down.example"]);
    let report = server.ask(&["report", "--sort", "waiting"]).expect("an answer");
    assert_eq!(report["post_rows"][0]["pending"], 2);
    // What is not shown of a post is counted.
    let id = report["post_rows"][0]["id"].as_str().expect("an id");
    let shown = server.operator(&["report", id, "--limit", "1"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(
        shown.contains(", 1 more at 1 site") && shown.contains("       1 more; --limit shows more rows\n"),
        "{shown}"
    );
    // What an operator keeps comes last.
    server.ask(&["suspend", "--site", "down.example"]).expect("it is suspended");
    wait_until("it is counted", || order(&["queue", "--sort", "next-try"]) == ["mx1.full.example", "mx1.down.example"]);
}

#[test]
fn the_same_refusals_everywhere() {
    let (_lab, server) = started();
    let commands = [&["queue"][..], &["queue", "--by", "list"], &["queue", "--by", "age"], &["stuck"], &["hosts"]];
    for command in commands {
        let with = |option: &'static str, value: &'static str| [command, &[option, value]].concat();
        let (code, why) = refused(&server, &with("--site", "dowm.example"));
        assert!(code == Some(3) && why.contains("did you mean mx1.down.example?"), "{command:?}: {why}");
        let expected = "stentor: there is no list nws; did you mean news?\n";
        assert_eq!(refused(&server, &with("--list", "nws")), (Some(3), expected.to_owned()), "{command:?}");
    }
    let expected = "stentor: there is no list nws; did you mean news?\n";
    for command in [&["report", "--list", "nws"][..], &["site", "down.example", "--list", "nws"]] {
        assert_eq!(refused(&server, command), (Some(3), expected.to_owned()), "{command:?}");
    }
    let (code, why) = refused(&server, &["hosts", "--by", "list"]);
    assert_eq!((code, why.as_str()), (Some(2), "stentor: hosts has no --by list: use `stentor queue --by list`\n"));
    let (code, why) = refused(&server, &["report", "--site", "down.example"]);
    assert!(code == Some(2) && why.contains("`stentor mailqq --site NAME`"), "{why}");
}

#[test]
fn a_domain_that_is_not_resolved_is_explained() {
    // No name server answers.
    let server = crate::kit::bare().start();
    let wire = stentor_harness::message("u@test", "x");
    server.smtp().send("me@home.example", &["bob@one.example"], &wire).expect(250);
    wait_until("the lookup has failed", || {
        let site = server.ask(&["site", "one.example"]).expect("the domain is known");
        site["waits_for"] == "DNS lookup failed" && site["next_try"].is_u64()
    });
    let shown = server.operator(&["site", "one.example"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.starts_with("one.example: 1 recipient of 1 message waiting\n"), "{shown}");
    assert!(shown.contains("hosts        unknown: lookup failed\n") && shown.contains("next try"), "{shown}");
    assert_eq!(server.ask(&["queue", "--site", "one.example"]).expect("an answer")["recipients"], 1);
    let hosts = server.ask(&["hosts", "--site", "one.example"]).expect("an answer");
    assert_eq!((&hosts["matching"], &hosts["sites_total"]), (&1.into(), &1.into()));
    // Each view has the domain, by the name that all commands take.
    let queue = server.ask(&["queue"]).expect("an answer");
    assert_eq!((sites(&queue), &queue["domains_total"]), (vec![("one.example", 1)], &1.into()));
    assert_eq!(
        (&queue["sites"][0]["is_unresolved"], &queue["sites"][0]["causes"][0]["cause"]),
        (&true.into(), &"dns".into())
    );
    assert_eq!(server.ask(&["queue", "--by", "age"]).expect("an answer")["rows"][0]["site"], "one.example");
    assert_eq!(hosts["host_rows"][0]["causes"][0]["recipients"], 1);
    for command in [&["mailqq"][..], &["stuck"], &["hold", "--dry-run"], &["requeue", "--dry-run"]] {
        let done = server.operator(&[command, &["--site", "one.example"]].concat());
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    // It is the name server's fault, not the recipient's.
    wait_until("it is counted", || server.ask(&["stuck"]).is_ok_and(|stuck| stuck["stuck_recipients"].is_array()));
    let shown = server.operator(&["stuck"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("(127.0.0.1:9; `[dns] servers`)") && !shown.contains("bounce"), "{shown}");
    assert!(server.operator(&["flush", "one.example"]).status.success());
}

#[test]
fn an_unresolved_domain_is_a_site_for_who_watches_and_a_remedy_for_who_acts() {
    // No name server answers.
    let server = crate::kit::bare().start();
    let wire = stentor_harness::message("u@test", "x");
    server.smtp().send("me@home.example", &["bob@one.example"], &wire).expect(250);
    wait_until("the lookup has failed", || {
        server.ask(&["site", "one.example"]).is_ok_and(|site| site["waits_for"] == "DNS lookup failed")
    });
    for filter in [&[][..], &["--site", "one.example"]] {
        let output = server.operator(&[&["realstat", "--interval", "0.2", "--count", "1", "--json"], filter].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let seen: Value = serde_json::from_slice(&output.stdout).expect("a snapshot");
        assert_eq!((&seen["sites_total"], &seen["domains_total"]), (&1.into(), &1.into()), "{seen}");
        let row = &seen["by_pending"][0];
        assert_eq!((&row["site"], &row["waiting"]), (&"one.example".into(), &1.into()), "{seen}");
        assert_eq!((&row["lane"], &row["waits_for"]), (&"unknown".into(), &"DNS lookup failed".into()), "{seen}");
        assert!(row["next_try"].is_u64() && row["causes"][0]["cause"] == "dns", "{seen}");
    }
    let watch = crate::live::Running::start(&server, &["watch", "--site", "one.example"]);
    let is_explained = || watch.rows.lines().iter().any(|line| line.contains("no host of one.example is known yet"));
    wait_until("the watcher knows why there are no sessions", is_explained);
    drop(watch);
    let bare = server.operator(&["watch"]);
    let bare = String::from_utf8_lossy(&bare.stderr);
    assert!(bare.contains("--site") && bare.contains("--client"), "{bare}");
    // There is no site to act on yet: the refusals name what can be done, and that works.
    let said = |arguments: &[&str]| refused(&server, arguments);
    let (code, why) = said(&["suspend", "--site", "one.example"]);
    assert!(code == Some(3) && why.contains("`stentor queue-only --domain one.example --config"), "{why}");
    assert_eq!(said(&["queue-only", "--domain", "one.example"]), (Some(0), String::new()));
    let (code, why) = said(&["bounce", "--site", "one.example", "--for", "1h"]);
    assert!(code == Some(3) && why.contains("`stentor bounce --recipient @one.example --for 1d --config"), "{why}");
    assert_eq!(said(&["bounce", "--recipient", "@one.example", "--for", "1d"]), (Some(0), String::new()));
    // The report of it waits for the name server too.
    wait_until("it is bounced", || sites(&server.queue()).iter().all(|(site, _)| *site != "one.example"));
}

/// Every view of one site's mail, as text.
fn said(server: &Server, domain: &str, id: &str) -> Vec<(&'static str, String)> {
    let asked: [(&str, Vec<&str>); 8] = [
        ("queue", vec!["queue", "--site", domain]),
        ("site", vec!["site", domain]),
        ("stuck", vec!["stuck", "--site", domain]),
        ("hosts", vec!["hosts", "--site", domain]),
        ("trace", vec!["trace", id]),
        ("show", vec!["queue", "show", id]),
        ("report", vec!["report", id]),
        ("mailqq", vec!["mailqq", "--site", domain]),
    ];
    let text = |arguments: Vec<&str>| String::from_utf8_lossy(&server.operator(&arguments).stdout).into_owned();
    asked.into_iter().map(|(view, arguments)| (view, text(arguments))).collect()
}

#[test]
fn a_connection_in_the_making_is_no_slow_host() {
    let lab = TestLab::start(
        "[[site]]\nname = 'dead.example'\nbehaviour = { connect = 'never_accept' }\n\
         [[site]]\nname = 'mute.example'\nbehaviour = { at_greeting = 'hang' }\n",
    );
    let server = patient(&lab).set("http.listen", "[\"127.0.0.1:0\"]").start();
    for (domain, way) in
        [("dead.example", "connecting for "), ("mute.example", "connected, waiting for the greeting for ")]
    {
        let to = format!("bob@{domain}");
        let wire = stentor_harness::message("u@test", "x");
        let id = server.smtp().send("me@home.example", &[&to], &wire).expect(250).queue_id();
        wait_until("all views say how far the connection is", || {
            let said = said(&server, domain, &id);
            assert!(said.iter().all(|(_, text)| !text.contains("slow")), "{said:?}");
            said.iter().all(|(_, text)| text.contains(way))
        });
        let hosts = server.ask(&["hosts", "--site", domain]).expect("an answer");
        assert_eq!(hosts["host_rows"][0]["lane"], "connecting", "{hosts}");
        let console = server.http_get(&format!("/site?name={domain}")).expect(200).text();
        assert!(console.contains(way) && console.contains("connecting</span>"), "{console}");
    }
}
