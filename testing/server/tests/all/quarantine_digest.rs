//! Digests of the quarantine to its recipients, and the links in them: each releases one recipient's copy once, and
//! nothing is announced twice or left out over restarts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, message};

use crate::kit::{SENDER, builder, data, wait_fates};
use crate::virtual_users::with;

const RULES: &str = "[[rules]]\nname = \"odd\"\nsubject = \"/odd/\"\ndo = \"quarantine looks <b>odd</b>\"\n";
const STATE: &str = "data/quarantine.digests";
const HOST: &str = "q.test";

fn lab() -> TestLab {
    TestLab::start(
        "[[site]]\nname = 'one.example'\nrelay = true\n[[site.host]]\nname = 'mx.one.example'\n\
         [[site]]\nname = 'foreign.example'\nrelay = true\n[[site.host]]\nname = 'mx.foreign.example'\n",
    )
}

fn digests(lab: &TestLab) -> Builder {
    builder(lab)
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.reading", "\"login\"")
        .set("http.password_hash", &format!("\"{}\"", crate::http_auth::hash("correct horse")))
        .set("domains.relay", "[\"one.example\"]")
        .set("quarantine.digest_at", "[\"00:00\", \"12:00\"]")
}

fn linked(lab: &TestLab) -> Builder {
    digests(lab).set("quarantine.link_base", "\"https://q.test/\"")
}

/// Keeps a message with this text from these.
fn keep(server: &Server, lab: &TestLab, id: &str, text: &str, to: &[&str]) -> String {
    let wire = [message(id, "something odd <script>alert(1)</script>"), text.as_bytes().to_vec()].concat();
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, to, &wire).expect(250).queue_id()
}

fn state(server: &Server) -> Value {
    serde_json::from_slice(&fs::read(server.path(STATE)).expect("it is there")).expect("JSON")
}

/// As if the last digests had been sent long ago: what is new is due at the start.
pub fn make_due(server: &mut Server) {
    // It is written at the start.
    stentor_harness::wait_until("the state of the digests", || server.path(STATE).exists());
    server.kill();
    let mut value = state(server);
    value["last"] = 0.into();
    fs::write(server.path(STATE), value.to_string()).expect("it can be written");
    server.start_again();
}

pub fn done(server: &Server) {
    stentor_harness::wait_until("all digests are sent", || {
        let state = state(server);
        state["run"].is_null() && state["last"].as_u64() > Some(0)
    });
}

/// Digests that have come to an address.
fn came(lab: &TestLab, to: &str) -> Vec<String> {
    let copies = lab.recorder().copies_to(to).into_iter().filter(|copy| copy.sender.is_empty());
    copies.map(|copy| String::from_utf8(copy.body.expect("kept").to_vec()).expect("UTF-8")).collect()
}

fn link_of(digest: &str) -> String {
    let link = digest.split_once("Release: <https://q.test").expect("a link").1;
    link.split_once('>').expect("it ends").0.to_owned()
}

fn quarantined(server: &Server) -> u64 {
    data(server.operator_json(&["status"]).remove(0))["recipients"]["quarantined"].as_u64().expect("a number")
}

/// The page behind Ann's link: her copy only, nothing active, nothing that leaks the link.
fn assert_link_page(server: &Server, link: &str) {
    let page = server.http("GET", link).header("Host", HOST).send().expect(200);
    let text = page.text();
    for part in [
        "something odd",
        "looks &lt;b&gt;odd&lt;/b&gt;",
        "Hello &lt;i&gt;you&lt;/i&gt;",
        "ann@one.example",
        "<button>Release",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("<script") && !text.contains("bob@"), "{text}");
    for (name, value) in
        [("referrer-policy", "no-referrer"), ("x-robots-tag", "noindex, nofollow"), ("cache-control", "no-store")]
    {
        assert_eq!(page.header(name), Some(value));
    }
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("script"), "{policy}");
}

#[test]
fn each_recipient_of_ours_releases_their_own_copy_by_the_digests_link() {
    let lab = lab();
    let mut server = with(linked(&lab), &[], RULES);
    let id = keep(
        &server,
        &lab,
        "a@test",
        "Hello <i>you</i>\r\n",
        &["ann@one.example", "bob@one.example", "eve@foreign.example"],
    );
    assert_eq!(quarantined(&server), 3);
    make_due(&mut server);
    done(&server);
    wait_fates(&server, "two digests", |now| now.delivered == 2 && now.pending == 0);
    assert!(came(&lab, "eve@foreign.example").is_empty(), "it is nobody of ours");
    let digest = came(&lab, "ann@one.example").remove(0);
    for part in [
        "Auto-Submitted: auto-generated",
        "To: <ann@one.example>",
        "looks <b>odd</b>",
        "text/html",
        "&lt;b&gt;odd&lt;/b&gt;",
    ] {
        assert!(digest.contains(part), "{part}: {digest}");
    }
    assert!(!digest.contains("bob@") && !digest.contains("stentor.toml"), "{digest}");
    let key = server.path("data/quarantine.key");
    assert_eq!(fs::metadata(key).expect("a key").permissions().mode() & 0o777, 0o600);

    // Looking changes nothing, however often; no login is needed, and no other page is reached under this name.
    let link = link_of(&digest);
    for _ in 0..3 {
        assert_link_page(&server, &link);
    }
    assert_eq!(server.http("GET", "/queue").header("Host", HOST).send().status, 421);
    assert_eq!(quarantined(&server), 3);

    // Whatever is wrong with a link, the answer is the same.
    let cut = &link[..link.len() - 1];
    let changed = link.replace("/kept/A", "/kept/B");
    assert_ne!(changed, link);
    let pages: Vec<_> = [cut, &changed, "/kept/x"]
        .map(|bad| server.http("GET", bad).header("Host", HOST).send().expect(404).text())
        .into();
    assert!(pages.iter().all(|page| *page == pages[0]), "{pages:?}");
    server.http("POST", &changed).header("Host", HOST).send().expect(404);
    assert_eq!(quarantined(&server), 3);

    // A browser says that its form comes from nowhere.
    let press = || server.http("POST", &link).header("Host", HOST).header("Origin", "null").send().expect(200).text();
    assert!(press().contains("was released"));
    lab.wait_clean("a@test", &["ann@one.example"]);
    assert!(press().contains("already released this message"));
    assert!(server.http("GET", &link).header("Host", HOST).send().expect(200).text().contains("already"));
    wait_fates(&server, "one is released", |now| now.delivered == 3 && now.pending == 0);
    assert_eq!(quarantined(&server), 2, "bob's and eve's copies stay");
    stentor_harness::wait_until("trace names who released it", || {
        let traced = String::from_utf8(server.operator(&["trace", &id]).stdout).expect("UTF-8");
        traced.contains("by recipient=ann@one.example")
    });

    // Bob's opens over a restart; once an operator has deleted the message it says that it is gone.
    server.kill();
    server.start_again();
    let link = link_of(&came(&lab, "bob@one.example").remove(0));
    assert!(server.http("GET", &link).header("Host", HOST).send().expect(200).text().contains("something odd"));
    assert!(server.operator(&["quarantine", "delete", "--id", &id]).status.success());
    assert!(
        server
            .http("POST", &link)
            .header("Host", HOST)
            .send()
            .expect(200)
            .text()
            .contains("no longer in the quarantine")
    );
}

#[test]
fn nothing_is_announced_twice_or_left_out_over_restarts() {
    let lab = lab();
    let more = ("quarantine.digest_to", "[\"ann@one.example\", \"bob@one.example\"]");
    let contact = ("quarantine.digest_contact", "\"help@one.example\"");
    let mut server = with(digests(&lab).set(more.0, more.1).set(contact.0, contact.1), &[], RULES);
    keep(&server, &lab, "a@test", "", &["ann@one.example", "cid@one.example"]);
    make_due(&mut server);
    done(&server);
    wait_fates(&server, "a digest", |now| now.delivered == 1 && now.pending == 0);
    let digest = came(&lab, "ann@one.example").remove(0);
    assert!(digest.contains("send its ID to help@one.example") && !digest.contains("https://"), "{digest}");
    assert!(!server.path("data/quarantine.key").exists(), "no link, no key");

    keep(&server, &lab, "b@test", "", &["ann@one.example", "bob@one.example"]);
    make_due(&mut server);
    done(&server);
    wait_fates(&server, "two more", |now| now.delivered == 3 && now.pending == 0);
    let second = came(&lab, "ann@one.example").remove(1);
    assert!(second.contains("Quarantine: 1 new message"), "the first one is not named again: {second}");
    make_due(&mut server);
    done(&server);
    wait_fates(&server, "nothing new, no digest", |now| now.delivered == 3 && now.pending == 0);

    // A run that a crash has cut goes on behind who has theirs.
    keep(&server, &lab, "c@test", "", &["ann@one.example", "bob@one.example"]);
    make_due(&mut server);
    done(&server);
    wait_fates(&server, "two more", |now| now.delivered == 5 && now.pending == 0);
    server.kill();
    let mut value = state(&server);
    let last = value["last"].clone();
    let named = value["named"].as_array_mut().expect("ids");
    let of = named.pop().expect("the last message");
    value["run"] = serde_json::json!({"due": last, "of": [of]});
    value["last"] = 0.into();
    fs::write(server.path(STATE), value.to_string()).expect("it can be written");
    // After the first of the two.
    let after = server.path("data/quarantine.digests.after");
    let mut progress: Value = serde_json::from_slice(&fs::read(&after).expect("it is there")).expect("JSON");
    assert_eq!(progress["due"], last);
    progress["after"] = (progress["after"].as_u64().expect("an id") - 1).into();
    fs::write(after, progress.to_string()).expect("it can be written");
    server.start_again();
    done(&server);
    wait_fates(&server, "bob's again, and no more", |now| now.delivered == 6 && now.pending == 0);
    let counts = ["ann@one.example", "bob@one.example", "cid@one.example"].map(|to| came(&lab, to).len());
    assert_eq!((counts[0] + counts[1], counts[2]), (6, 0), "{counts:?}");
}
