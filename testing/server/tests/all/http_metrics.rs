//! The metrics for Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use stentor_harness::{Server, TestLab, message, skipped, wait_until};

use crate::kit::{bare, builder};

fn repository(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of metrics in a text: `stentor_...` or `process_...`, without what a histogram adds.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("stentor_") || word.starts_with("process_"));
    let strip = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        let of_histogram = ends.iter().find_map(|end| word.strip_suffix(end)).filter(|name| {
            name.ends_with("_seconds") && *name != "stentor_queue_oldest_age_seconds"
                || *name == "stentor_batch_messages"
        });
        of_histogram.unwrap_or(word).to_owned()
    };
    ours.map(strip).collect()
}

/// Samples by name and labels, without their fractions.
pub fn samples(server: &Server) -> BTreeMap<String, u64> {
    let text = server.http_get("/metrics").expect(200).text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse::<f64>().expect(name) as u64))
        .collect()
}

#[test]
fn documentation_and_dashboard_name_exactly_what_is_there() {
    let server = bare().set("http.listen", "[\"127.0.0.1:0\"]").start();
    let answer = server.http_get("/metrics").expect(200);
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    let text = answer.text();
    let served: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned)).collect();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(names(line).iter().all(|name| served.contains(name)), "{line}");
    }
    let page = repository("docs/operate/metrics.md");
    let rows = |prefix: &str| -> BTreeSet<String> {
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        cells.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
    };
    let documented: BTreeSet<String> = rows("stentor_").union(&rows("process_")).cloned().collect();
    assert_eq!(documented, served);
    let dashboard: serde_json::Value = serde_json::from_str(&repository("contrib/grafana/stentor.json")).expect("JSON");
    let mut shown = BTreeSet::new();
    for target in
        dashboard["panels"].as_array().expect("panels").iter().filter_map(|panel| panel["targets"].as_array()).flatten()
    {
        shown.extend(names(target["expr"].as_str().expect("a query")));
    }
    assert!(shown.len() > 25 && shown.is_subset(&served), "{:?}", shown.difference(&served));
    let limits: BTreeSet<String> = samples(&server)
        .into_keys()
        .filter_map(|name| {
            Some(name.strip_prefix("stentor_limit_hits_total{limit=\"")?.trim_end_matches("\"}").to_owned())
        })
        .collect();
    let missing: Vec<&String> = limits.iter().filter(|limit| !page.contains(&format!("| `{limit}` |"))).collect();
    assert!(limits.len() > 20 && missing.is_empty(), "{missing:?}");
}

/// A server with a webhook: its metrics are there once there is one.
fn with_webhook() -> Server {
    bare()
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("webhooks.crm.url", "\"http://127.0.0.1:9/\"")
        .set("webhooks.crm.secret", "\"0123456789abcdef0123456789abcdef\"")
        .start()
}

/// Each rule is about metrics, and values of labels, that the server has.
#[test]
fn alert_rules_name_what_is_there() {
    let server = with_webhook();
    let text = server.http_get("/metrics").expect(200).text();
    let served = names(&text);
    let rules = repository("contrib/prometheus/stentor.rules.yml");
    let of = |key: &str| rules.lines().filter_map(|line| line.trim_start().strip_prefix(key)).collect::<Vec<_>>();
    let queries = of("expr: ");
    assert!(queries.len() > 20);
    for key in ["- alert: Stentor", "labels: {severity: ", "summary: ", "description: "] {
        assert_eq!(of(key).len(), queries.len(), "{key}");
    }
    // Of Prometheus itself.
    let mut foreign = BTreeSet::new();
    for query in queries {
        let used = names(query);
        let missing: Vec<&String> = used.difference(&served).collect();
        assert!(missing.is_empty(), "{query}: {missing:?}");
        foreign.extend(query.starts_with("up{").then_some(query));
        assert!(!used.is_empty() || query.starts_with("up{"), "{query}");
        for matcher in query.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            let is_ours = matcher.contains("=\"") && !matcher.contains("!=") && !matcher.starts_with("job=");
            assert!(!is_ours || text.contains(matcher), "{query}: nothing has {matcher}");
        }
    }
    assert_eq!(foreign.len(), 1);
}

/// A series as a rule sees it: its name, the names of its labels, and the bound of a bucket.
fn shape(series: &str) -> (String, BTreeSet<String>, String) {
    let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
    let labels = labels.split("\",").filter_map(|label| label.trim_end_matches('"').split_once("=\""));
    // Prometheus adds these.
    let labels: BTreeMap<&str, &str> = labels.filter(|(label, _)| !["job", "instance"].contains(label)).collect();
    let bound = labels.get("le").copied().unwrap_or_default().to_owned();
    (name.to_owned(), labels.into_keys().map(str::to_owned).collect(), bound)
}

/// Every rule is in the test beside the rules, the series there are the server's, and Prometheus' own tool runs it.
#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let server = with_webhook();
    server.smtp().cmd("MAIL FROM:<a b>").expect(501);
    let served: BTreeSet<_> = samples(&server).keys().map(|series| shape(series)).collect();
    let (rules, tests) =
        (repository("contrib/prometheus/stentor.rules.yml"), repository("contrib/prometheus/stentor.rules.test.yml"));
    let between = |text: &str, begin: &str, end: &str| -> Vec<String> {
        text.split(begin).skip(1).filter_map(|rest| rest.split(end).next()).map(str::to_owned).collect()
    };
    let series = between(&tests, "series: '", "'");
    assert!(series.len() > 50);
    for series in series.iter().filter(|series| !series.starts_with("up{")) {
        // A list is served once a host has named it.
        let is_served = served.contains(&shape(series)) || series.starts_with("stentor_block_list_replies_total{");
        assert!(is_served, "no server has {series}");
    }
    let alerts: BTreeSet<String> = between(&rules, "- alert: ", "\n").into_iter().collect();
    let tested: BTreeSet<String> = between(&tests, "alertname=\"", "\"").into_iter().collect();
    assert_eq!(tested, alerts);
    let promtool = "/var/cache/stentor-tests/prometheus/usr/bin/promtool";
    if !Path::new(promtool).exists() {
        return skipped("promtool is missing (testing/install.sh)");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/stentor.rules.test.yml");
    let out = Command::new(promtool).args(["test", "rules"]).arg(file).output().expect("promtool runs");
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}

#[test]
fn mail_is_counted() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n",
    );
    let server = builder(&lab).set("http.listen", "[\"127.0.0.1:0\"]").start();
    let wire = message("1@test", "x");
    server.smtp().send("me@home.example", &["ann@one.example", "bob@down.example"], &wire).expect(250);
    server.smtp().cmd("MAIL FROM:<a b>").expect(501);
    // Its host is not reached: who waits for it counts, each time. Sites are of a count that may be some seconds old.
    let waits = "stentor_site_pending_recipients{site=\"mx1.down.example\"}";
    let mut now = samples(&server);
    wait_until("one is delivered, the other waits", || {
        now = samples(&server);
        now["stentor_recipients_total{outcome=\"delivered\"}"] >= 1
            && now["stentor_attempt_recipients_total{result=\"deferred\"}"] >= 1
            && now["stentor_queue_messages"] == 1
            && now.contains_key(waits)
    });
    for (name, value) in [
        ("stentor_messages_accepted_total", 1),
        ("stentor_recipients_acknowledged_total", 2),
        ("stentor_attempt_recipients_total{result=\"sent\"}", 1),
        ("stentor_attempt_duration_seconds_count", 1),
        ("stentor_commit_wait_seconds_count", 1),
        ("stentor_batch_messages_sum", 1),
        ("stentor_queue_messages", 1),
        ("stentor_queue_recipients{class=\"ordinary\"}", 1),
        ("stentor_queue_recipients{class=\"bulk\"}", 0),
        (waits, 1),
        ("stentor_site_pending_recipients{site=\"(others)\"}", 0),
        ("stentor_ready", 1),
    ] {
        assert_eq!(now.get(name), Some(&value), "{name}");
    }
    let refused = now.iter().find(|(name, _)| name.starts_with("stentor_refused_total{code=\"501\""));
    assert_eq!(refused.map(|(_, count)| *count), Some(1));
    assert!(now["process_resident_memory_bytes"] > 1_000_000);
}

#[test]
fn a_limit_that_is_hit_is_said_and_counted() {
    let server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("listen.connections_per_client_max", "1").start();
    let _first = server.connect_from("127.0.0.2").greeted();
    server.connect_from("127.0.0.2").reply().expect(421);
    let line = server.wait_log(&["limit hit", "connections_per_client"]);
    assert!(line.contains("[listen] connections_per_client_max") && line.contains("times=1"), "{line}");
    assert_eq!(samples(&server)["stentor_limit_hits_total{limit=\"connections_per_client\"}"], 1);
    // Many in a short time are one more line at most.
    for _ in 0..50 {
        server.connect_from("127.0.0.2").reply().expect(421);
    }
    wait_until("all are counted", || {
        samples(&server)["stentor_limit_hits_total{limit=\"connections_per_client\"}"] >= 51
    });
    let lines = server.log().lines().into_iter().filter(|line| line.contains("limit hit")).count();
    assert!(lines < 10, "{lines}");
}
