//! Why mail waits, asked of every view while a server's mail waits for fourteen different reasons, at hosts of the lab
//! that give them: the table of [`CASES`] is the judge.

use std::collections::BTreeMap;

use serde_json::Value;
use stentor_harness::{Server, TestLab, message, wait_until};

/// Mail at one site, and the cause that every view must name.
pub struct Case {
    pub site: &'static str,
    /// Of the lab's site.
    behaviour: &'static str,
    /// The cause's name, its words, and what the advice must say.
    cause: &'static str,
    words: &'static str,
    advice: &'static str,
    /// Whether it has a next try.
    is_clock: bool,
}

const fn case(site: &'static str, behaviour: &'static str, cause: [&'static str; 3], is_clock: bool) -> Case {
    Case { site, behaviour, cause: cause[0], words: cause[1], advice: cause[2], is_clock }
}

/// The advice is a part that is the same whether it has been so for a minute or not.
pub const CASES: [Case; 14] = [
    case("refused.example", "behaviour = { connect = 'refuse' }", ["refused", "connection refused", "refuse"], true),
    case(
        "mute.example",
        "behaviour = { connect = 'never_accept' }",
        ["timed_out", "connection timed out", "answer"],
        true,
    ),
    case(
        "busy.example",
        "behaviour = { at_greeting = '421 4.3.2 try later' }",
        ["busy", "host busy (421)", "host busy (421)"],
        true,
    ),
    case(
        "mail.example",
        "behaviour = { at_mail = '451 4.7.1 IP reputation too low' }",
        ["sender", "sender deferred (4xx at MAIL)", "not the recipients"],
        true,
    ),
    case("grey.example", "behaviour = { greylist_ms = 3600000 }", ["greylisted", "greylisted", "greylist"], true),
    case("full.example", "behaviour = { full_share = 1.0 }", ["mailbox_full", "mailbox full", "mailbox"], true),
    case(
        "rate.example",
        "behaviour = { at_rcpt = '450 4.7.1 rate limit exceeded' }",
        ["rate", "rate limited by the host", "the rate"],
        true,
    ),
    case(
        "unproven.example",
        "behaviour = { tls = 'self_signed' }",
        ["tls", "not protected as required (TLS)", "required TLS fails"],
        true,
    ),
    case("noname.example", "dns = 'servfail'", ["dns", "DNS lookup failed", "its own DNS is broken"], true),
    case(
        "silent.example",
        "behaviour = { at_mail = 'hang' }",
        ["silent", "no reply from the host for", "host is slow"],
        false,
    ),
    case("held.example", "", ["held", "held by an operator", "held by an operator"], false),
    case("stopped.example", "", ["suspended", "suspended by an operator", "`stentor resume --site"], false),
    case("kept.example", "", ["queue_only", "queue-only", "`stentor queue run"], false),
    case("own.example", "", ["own_limit", "rate limit for this site", "local limit"], false),
];

/// Recipients at each site; at our own limit each is of a message of its own.
const RECIPIENTS: usize = 3;
const SENDER: &str = "ann@sender.example";

/// An answer that was wrong: of which view, about which cause.
#[derive(Debug)]
pub struct Wrong {
    pub view: &'static str,
    pub cause: &'static str,
    pub said: String,
}

/// What was asked, and what was answered wrongly.
#[derive(Debug, Default)]
pub struct Verdict {
    pub asked: u32,
    pub wrong: Vec<Wrong>,
}

impl Verdict {
    fn note(&mut self, view: &'static str, case: &Case, is_right: bool, said: &Value) {
        self.asked += 1;
        if !is_right {
            self.wrong.push(Wrong { view, cause: case.cause, said: said.to_string() });
        }
    }
}

/// Puts mail into each situation and asks every view.
///
/// # Panics
/// The server or the lab does not do what it is told, or mail never comes to wait as it should.
pub fn ask() -> Verdict {
    let sites: String = CASES.iter().map(|c| format!("[[site]]\nname = '{}'\n{}\n", c.site, c.behaviour)).collect();
    let lab = TestLab::start(&sites);
    let server = Server::builder()
        .lab(&lab)
        .set("dns.timeout_ms", "300")
        .set("dns.attempts", "1")
        .set("delivery.connect_timeout_s", "1")
        .set("tls_policy", "[{ domain = 'unproven.example', require = 'verify' }]")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set_in("sites.\"mx.own.example\"", "messages_per_hour_max", "1")
        .set_in("sites.\"own.example\"", "messages_per_hour_max", "1")
        .start();
    let ids = hand_in(&server);
    settle(&server);
    wait_until("recipients are counted", || {
        !server.ask(&["latedudes"]).expect("an answer")["is_counting"].as_bool().unwrap_or(false)
    });
    let mut verdict = Verdict::default();
    let views = ViewSnapshot::of(&server, &ids);
    for case in &CASES {
        views.judge(&server, case, &mut verdict);
    }
    sums(&views, &mut verdict);
    verdict
}

/// The queue ids by site.
fn hand_in(server: &Server) -> BTreeMap<&'static str, String> {
    let mut ids = BTreeMap::new();
    for site in ["held.example", "stopped.example"] {
        // Known once it has been looked up: one that nobody has mailed to has no site yet.
        suspend_domain(server, site);
    }
    server.ask(&["queue-only", "--domain", "kept.example"]).expect("it is queue-only");
    for case in &CASES {
        let to: Vec<String> = (0..RECIPIENTS).map(|n| format!("reader{n}@{}", case.site)).collect();
        let mut smtp = server.smtp();
        let mut post = |to: &[String]| {
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            smtp.send(SENDER, &to, &message(&format!("{}@test", case.site), "why")).expect(250).queue_id()
        };
        if case.cause == "own_limit" {
            // The first one goes.
            post(&[format!("first@{}", case.site)]);
            for one in &to[1..] {
                post(std::slice::from_ref(one));
            }
        }
        let last = if case.cause == "own_limit" { &to[..1] } else { &to[..] };
        ids.insert(case.site, post(last));
    }
    server.ask(&["hold", "--id", &ids["held.example"]]).expect("it is held");
    let resumed = site_of(server, "held.example");
    server.ask(&["resume", "--site", &resumed]).expect("it goes on");
    ids
}

/// Stops a domain's site before its mail comes: a suspended sender keeps the mail while its site becomes known.
fn suspend_domain(server: &Server, domain: &str) {
    server.ask(&["suspend", "--sender", "sender.example"]).expect("it is suspended");
    server.smtp().send(SENDER, &[&format!("early@{domain}")], &message("early@test", "x")).expect(250);
    let site = site_of(server, domain);
    server.ask(&["suspend", "--site", &site]).expect("it is suspended");
    server.ask(&["remove", "--recipient", &format!("early@{domain}")]).expect("it is removed");
    server.ask(&["resume", "--sender", "sender.example"]).expect("it goes on");
}

/// The site that a domain is at, once it is known.
fn site_of(server: &Server, domain: &str) -> String {
    let mut site = None;
    wait_until("the site is known", || {
        site = server.ask(&["site", domain]).ok().and_then(|view| view["site"].as_str().map(str::to_owned));
        site.is_some()
    });
    site.expect("it was waited for")
}

/// Waits until each case has come to what it waits for, and no clock runs out while the views are asked: a host that
/// refuses is tried after 1, 2, 4, 8 ... s.
fn settle(server: &Server) {
    const ASKED_MS: u64 = 6_000;
    wait_until("all mail waits for what it should", || {
        let queue = server.queue();
        let causes = queue["causes"].as_array().expect("causes");
        let until = queue["now"].as_u64().expect("a time") + ASKED_MS;
        let lasts = |row: &Value| row["next_try"].as_u64().is_none_or(|at| at > until);
        CASES.iter().all(|case| {
            causes.iter().any(|row| row["cause"] == case.cause && row["recipients"] == RECIPIENTS && lasts(row))
        })
    });
}

/// All views, one after the other; nothing moves meanwhile.
struct ViewSnapshot {
    queue: Value,
    mailqq: Value,
    hosts: Value,
    latedudes: Value,
    snapshot: Value,
    doctor: String,
    metrics: String,
    console: String,
    ids: BTreeMap<&'static str, String>,
}

impl ViewSnapshot {
    fn of(server: &Server, ids: &BTreeMap<&'static str, String>) -> ViewSnapshot {
        let text = |arguments: &[&str]| String::from_utf8_lossy(&server.operator(arguments).stdout).into_owned();
        let realstat = text(&["realstat", "--count", "1", "--interval", "1", "--json"]);
        ViewSnapshot {
            queue: server.queue(),
            mailqq: server.ask(&["mailqq"]).expect("mailqq answers"),
            hosts: server.ask(&["hosts", "--waiting"]).expect("hosts answers"),
            latedudes: server.ask(&["latedudes", "--limit", "100"]).expect("latedudes answers"),
            snapshot: serde_json::from_str(realstat.lines().next().unwrap_or_default()).expect("a snapshot"),
            doctor: text(&["doctor"]),
            metrics: server.http_get("/metrics").expect(200).text(),
            console: server.http_get("/sites").expect(200).text(),
            ids: ids.clone(),
        }
    }

    fn judge(&self, server: &Server, case: &Case, verdict: &mut Verdict) {
        // Of a domain that could not be looked up its own name.
        let name = site_of(server, case.site);
        let row = |rows: &Value| {
            rows.as_array().into_iter().flatten().find(|row| row["site"] == name.as_str()).cloned().unwrap_or_default()
        };
        let is_named = |row: &Value| {
            let causes = row["causes"].as_array().map_or(&[][..], Vec::as_slice);
            let is_right = |one: &Value| one["cause"] == case.cause && one["next_try"].is_u64() == case.is_clock;
            row["waiting"] == RECIPIENTS
                && matches!(causes, [one] if one["recipients"] == RECIPIENTS && (is_right(one) || case.cause == "own_limit"))
        };
        let queue = row(&self.queue["sites"]);
        verdict.note("queue", case, is_named(&queue), &queue);
        let site = server.ask(&["site", case.site]).expect("site answers");
        let says = site["waits_for"].as_str().is_some_and(|text| text.contains(case.words));
        verdict.note("site", case, is_named(&site) && says, &site);
        let hosts = row(&self.hosts["host_rows"]);
        verdict.note("hosts", case, is_named(&hosts), &hosts);
        let late = row(&self.latedudes["sites"]);
        let advises = late["action"].as_str().is_some_and(|text| text.contains(case.advice));
        verdict.note("latedudes", case, is_named(&late) && advises, &late);
        let at = format!("@{}", case.site);
        let stuck = self.latedudes["stuck_recipients"].as_array().into_iter().flatten();
        let stuck: Vec<&Value> =
            stuck.filter(|row| row["address"].as_str().is_some_and(|to| to.ends_with(&at))).collect();
        let advises = |row: &&Value| row["action"].as_str().is_some_and(|text| text.contains(case.advice));
        let are_right = stuck.len() == RECIPIENTS && stuck.iter().all(|row| row["cause"] == case.cause && advises(row));
        verdict.note("latedudes, recipients", case, are_right, &serde_json::json!(stuck));
        // Its rows are sites.
        if case.cause != "dns" {
            let now = row(&self.snapshot["by_pending"]);
            verdict.note("realstat", case, is_named(&now), &now);
        }
        self.judge_message(server, case, verdict);
        let sample = format!("stentor_queue_recipients_by_cause{{cause=\"{}\"}} {RECIPIENTS}\n", case.cause);
        verdict.note("metrics", case, self.metrics.contains(&sample), &Value::from(sample));
        let line = format!("{RECIPIENTS} {}", if case.cause == "own_limit" { "local limit" } else { case.words });
        verdict.note("doctor", case, self.doctor.contains(&line), &Value::from(self.doctor.clone()));
        let words = if case.cause == "own_limit" { "local limit" } else { case.words };
        verdict.note("console", case, self.console.contains(words), &Value::from(self.console.len()));
    }

    fn judge_message(&self, server: &Server, case: &Case, verdict: &mut Verdict) {
        let id = self.ids[case.site].as_str();
        let pending = if case.cause == "own_limit" { 1 } else { RECIPIENTS };
        let rows = self.mailqq["mailqq_rows"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["id"] == id).cloned().unwrap_or_default();
        let is_named = row["causes"][0]["cause"] == case.cause && row["causes"][0]["recipients"] == pending;
        verdict.note("mailqq", case, is_named, &row);
        let shown = server.ask(&["queue", "show", id]).expect("it is queued");
        let recipients = shown["recipients"].as_array().map_or(&[][..], Vec::as_slice);
        let are_named = recipients.len() == pending && recipients.iter().all(|one| one["cause"] == case.cause);
        verdict.note("queue show", case, are_named, &shown);
        let report = server.ask(&["report", id]).expect("it is known");
        let waiting = &report["post_rows"][0]["waiting"];
        let is_named = waiting[0]["cause"] == case.cause && waiting[0]["recipients"] == pending;
        verdict.note("report", case, is_named, &report);
    }
}

/// The causes add up to the pending recipients, wherever they are.
fn sums(views: &ViewSnapshot, verdict: &mut Verdict) {
    let total =
        |rows: &Value| rows.as_array().into_iter().flatten().filter_map(|row| row["recipients"].as_u64()).sum::<u64>();
    let expected = (CASES.len() * RECIPIENTS) as u64;
    let of_rows = |rows: &Value| rows.as_array().into_iter().flatten().map(|row| total(&row["causes"])).sum::<u64>();
    for (view, sum) in [
        ("queue in sum", total(&views.queue["causes"])),
        ("queue by site", of_rows(&views.queue["sites"])),
        ("hosts in sum", of_rows(&views.hosts["host_rows"])),
        ("mailqq in sum", of_rows(&views.mailqq["mailqq_rows"])),
        ("realstat in sum", total(&views.snapshot["causes"])),
    ] {
        verdict.asked += 1;
        if sum != expected {
            verdict.wrong.push(Wrong { view, cause: "all", said: sum.to_string() });
        }
    }
}
