//! MTA-STS beside a real web server over HTTPS: what a policy holds mail to, what is no policy, what outlives what, and
//! that one domain's never delays another.

use std::fs;
use std::path::Path;

use stentor_harness::{Builder, Server, TestLab, wait_until};

use crate::kit::{builder, fates, post, wait_fates};
use stentor_server_tests::web::Web;

fn policy(mode: &str, mx: &str) -> String {
    aged(mode, mx, 604_800)
}

fn aged(mode: &str, mx: &str, max_age: u32) -> String {
    format!("version: STSv1\r\nmode: {mode}\r\nmx: {mx}\r\nmax_age: {max_age}\r\n")
}

/// A site of this name with this TLS, whose record says that there is a policy.
fn site(domain: &str, tls: &str) -> String {
    format!("[[site]]\nname = '{domain}'\nbehaviour = {{ tls = '{tls}' }}\n{}", published(domain))
}

/// The records of a domain with a policy.
fn published(domain: &str) -> String {
    format!(
        "[[record]]\nname = '_mta-sts.{domain}'\ntype = 'TXT'\nvalue = 'v=STSv1; id=1;'\n\
         [[record]]\nname = 'mta-sts.{domain}'\ntype = 'A'\nvalue = '127.0.0.1'\n"
    )
}

/// As shipped, but for the lab's CA and the places of policies.
fn fetching(lab: &TestLab, web: &Web) -> Builder {
    builder(lab)
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.sts_port", &web.port.to_string())
        .set("delivery.sts_private_allowed", "true")
        .set("delivery.idle_ms", "0")
}

fn hosts(server: &Server) -> String {
    String::from_utf8_lossy(&server.operator(&["hosts"]).stdout).into_owned()
}

#[test]
fn an_enforced_policy_is_held_to() {
    let web = Web::start();
    let lab = TestLab::start(&[site("good.example", "good"), site("bad.example", "self_signed")].concat());
    web.publish("good.example", &policy("enforce", "*.good.example"));
    web.publish("bad.example", &policy("enforce", "mx1.bad.example"));
    let server = fetching(&lab, &web).start();
    let first = post(&server, &lab, &["ann@good.example", "bob@bad.example"], "1@test");
    lab.wait_clean("1@test", &["ann@good.example"]);
    let line = server.wait_log(&[&first, "ann@good.example", "stat=Sent"]);
    assert!(line.contains(":sts, dsn=2.0.0"), "how it is proven: {line}");
    let line = server.wait_log(&["connect: relay=", "mx1.bad.example", "stat=Deferred"]);
    assert!(line.contains("dsn=4.7.5") && line.contains("TLS failed"), "{line}");
    post(&server, &lab, &["ann@good.example"], "2@test");
    lab.wait_clean("2@test", &["ann@good.example"]);
    assert_eq!(web.requests("good.example"), ["/.well-known/mta-sts.txt text/plain"], "one fetch for all mail");
    wait_until("it waits for TLS", || {
        let queue = server.queue();
        let rows = queue["causes"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["cause"] == "tls" && row["recipients"] == 1)
    });
    let hosts = hosts(&server);
    assert!(hosts.contains("mx1.good.example;tls=sts+enforce") && hosts.contains("mx1.bad.example;tls=sts+enforce"));
}

/// The policy of one leaves the host out: its mail waits with the reason, and the others at the same host, with a
/// policy and without, get theirs.
#[test]
fn a_broken_policy_delays_no_sibling() {
    let web = Web::start();
    let domains = ["broken.example", "listed.example", "plain.example"];
    let lab = TestLab::start(&format!(
        "[[site]]\nname = 'host.example'\ndomains = {domains:?}\nbehaviour = {{ tls = 'good' }}\n{}{}",
        published(domains[0]),
        published(domains[1])
    ));
    web.publish(domains[0], &policy("enforce", "mx.elsewhere.example"));
    web.publish(domains[1], &policy("enforce", "mx1.host.example"));
    let server = fetching(&lab, &web).set("retry.host_min_s", "60").set("retry.host_max_s", "60").start();
    post(&server, &lab, &["ann@broken.example"], "broken@test");
    let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
    let why = "the MTA-STS policy of broken.example does not list mx1.host.example";
    assert!(line.contains("dsn=4.7.5") && line.contains(why), "{line}");
    for n in 0..3 {
        let id = format!("sibling{n}@test");
        let to = ["bob@listed.example", "cid@plain.example"];
        post(&server, &lab, &to, &id);
        lab.wait_clean(&id, &to);
    }
    wait_fates(&server, "all of it is settled", |now| (now.pending, now.delivered) == (1, 6));
    assert!(hosts(&server).contains("mx1.host.example;tls=sts+enforce+for(broken.example)"), "{}", hosts(&server));
}

#[test]
fn a_policy_in_testing_stops_nothing() {
    let web = Web::start();
    let lab = TestLab::start(&[site("self.example", "self_signed"), site("other.example", "good")].concat());
    web.publish("self.example", &policy("testing", "mx1.self.example"));
    web.publish("other.example", &policy("testing", "mx.elsewhere.example"));
    let server = fetching(&lab, &web).start();
    let to = ["ann@self.example", "bob@other.example"];
    let id = post(&server, &lab, &to, "testing@test");
    lab.wait_clean("testing@test", &to);
    let line = server.wait_log(&[&id, to[0], "stat=Sent"]);
    assert!(line.contains(":unproven(self-signed)"), "{line}");
    assert!(web.requests("self.example").len() == 1 && web.requests("other.example").len() == 1);
}

/// What is no policy: each is fetched, none is held to, and the reason is in the log.
#[test]
fn what_is_no_policy_stops_no_mail() {
    let web = Web::start();
    let broken = ["redirect", "wrongname", "toolarge", "html", "syntax", "missing", "refuses"];
    let domain = |name: &str| format!("{name}.example");
    let lab = TestLab::start(&broken.map(|name| site(&domain(name), "self_signed")).concat());
    let good = |name: &str| policy("enforce", &format!("mx1.{name}.example"));
    for name in broken {
        web.publish(&domain(name), &good(name));
    }
    web.put("redirect.example", "status", "302");
    web.put("redirect.example", "location", "https://mta-sts.good.example/.well-known/mta-sts.txt");
    web.certify("wrongname.example", "www.wrongname.example");
    web.put("toolarge.example", "policy", &(good("toolarge") + &"x: y\r\n".repeat(11_000)));
    web.put("html.example", "type", "text/html");
    web.put("syntax.example", "policy", "version: STSv1\r\nmode: enforced\r\n");
    let gone = web.folder.path().join("mta-sts.missing.example/policy");
    fs::remove_file(gone).expect("it was written");
    fs::remove_dir_all(web.folder.path().join("mta-sts.refuses.example")).expect("it was made");
    let server = fetching(&lab, &web).start();
    let to: Vec<String> = broken.iter().map(|name| format!("ann@{name}.example")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    post(&server, &lab, &to, "broken@test");
    lab.wait_clean("broken@test", &to);
    for (name, why) in [
        ("redirect", "status 302, and redirects are not followed"),
        ("wrongname", "TLS with 127.0.0.1"),
        ("toolarge", "longer than 65536 octets"),
        ("html", "\"text/html\\\", not text/plain"),
        ("syntax", "`mode` is missing"),
        ("missing", "status 404"),
        ("refuses", "TLS with 127.0.0.1"),
    ] {
        let line = server.wait_log(&["the MTA-STS policy could not be fetched", &domain(name)]);
        assert!(line.replace('\\', "").contains(&why.replace('\\', "")), "{name}: {line}");
    }
    // Nobody asks again so soon.
    post(&server, &lab, &to, "again@test");
    lab.wait_clean("again@test", &to);
    assert_eq!(web.requests("html.example").len(), 1);
    wait_fates(&server, "all of it is delivered", |now| now.delivered == 2 * broken.len() as u64);
}

/// It is on disk: with the web server gone, and after a restart, it still holds.
#[test]
fn a_policy_outlives_its_web_server_and_a_restart() {
    let mut web = Web::start();
    let lab = TestLab::start(&site("kept.example", "self_signed"));
    web.publish("kept.example", &policy("enforce", "mx1.kept.example"));
    let mut server = fetching(&lab, &web).start();
    post(&server, &lab, &["ann@kept.example"], "kept@test");
    server.wait_log(&["connect: relay=", "mx1.kept.example", "stat=Deferred"]);
    web.stop();
    server.stop();
    let file = fs::read_to_string(server.path("data/mta-sts")).expect("it was written");
    assert!(file.starts_with("stentor mta-sts 1\n") && file.contains("\"kept.example\""), "{file}");
    server = server.run();
    let before = server.log().matching(&["connect: relay=", "mx1.kept.example", "stat=Deferred"]).len();
    post(&server, &lab, &["bob@kept.example"], "kept2@test");
    wait_until("it is held to", || {
        server.log().matching(&["connect: relay=", "mx1.kept.example", "stat=Deferred"]).len() > before
    });
    assert!(server.log().matching(&["the MTA-STS policy could not be fetched"]).is_empty(), "nothing is fetched");
    wait_fates(&server, "all of it is settled", |now| (now.pending, now.delivered) == (2, 0));
    // Who asks what would happen now hears the same.
    let check = || {
        let output = server.operator(&["tls", "check", "kept.example"]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = check();
    assert_eq!(code, Some(75), "{text}");
    let wanted = ["MTA-STS      policy 1: enforce, for mx1.kept.example, cached, fetched ", " ago; refresh failed: "];
    assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{text}");
    fs::write(server.path("data/mta-sts"), "rubbish\n").expect("it is written");
    let (code, text) = check();
    assert!(
        code == Some(0) && text.contains("MTA-STS      cannot read all policies that the server has cached ("),
        "{text}"
    );
    assert_eq!(fs::read_to_string(server.path("data/mta-sts")).expect("it is left"), "rubbish\n");
}

#[test]
fn a_damaged_file_is_put_aside() {
    let web = Web::start();
    let lab = TestLab::start(&site("good.example", "good"));
    web.publish("good.example", &policy("enforce", "mx1.good.example"));
    let server = fetching(&lab, &web).prepare();
    fs::create_dir_all(server.path("data")).expect("the folder is made");
    fs::write(server.path("data/mta-sts"), "stentor mta-sts 1\nrubbish\n").expect("it is written");
    let server = server.run();
    server.wait_log(&["cannot read MTA-STS policies (line 2 is malformed)"]);
    assert!(Path::new(&server.path("data/mta-sts.bad")).exists());
    post(&server, &lab, &["ann@good.example"], "1@test");
    lab.wait_clean("1@test", &["ann@good.example"]);
    assert_eq!(web.requests("good.example").len(), 1);
}

/// A policy that is over, and not to be had any more, is none.
#[test]
fn a_stale_policy_is_over() {
    let mut web = Web::start();
    let lab = TestLab::start(&site("stale.example", "self_signed"));
    web.publish("stale.example", &aged("enforce", "mx1.stale.example", 10));
    let server = fetching(&lab, &web).start();
    post(&server, &lab, &["ann@stale.example"], "stale@test");
    server.wait_log(&["connect: relay=", "mx1.stale.example", "stat=Deferred"]);
    web.stop();
    wait_until("it is over", || {
        // Domains are looked up again.
        server.operator(&["reload"]);
        fates(&server).delivered == 1
    });
    lab.wait_clean("stale@test", &["ann@stale.example"]);
}

/// A name in a stranger's DNS does not lead into our network.
#[test]
fn policies_are_not_fetched_from_private_networks() {
    let web = Web::start();
    let lab = TestLab::start(&site("inside.example", "self_signed"));
    web.publish("inside.example", &policy("enforce", "mx1.inside.example"));
    let server = fetching(&lab, &web).set("delivery.sts_private_allowed", "false").start();
    post(&server, &lab, &["ann@inside.example"], "inside@test");
    lab.wait_clean("inside@test", &["ann@inside.example"]);
    let line = server.wait_log(&["the MTA-STS policy could not be fetched"]);
    assert!(line.contains("which is not public"), "{line}");
    assert!(web.requests("inside.example").is_empty());
}
