//! Recipients that milters add and remove: what is checked and asked for those that a client names holds for them, too.

use stentor_harness::{Server, TestLab, message, message_with, wait_until};

use super::script::{Milter, says, texts};
use super::{SENDER, TO, wait_traced};
use crate::kit::{builder, drained, fates};
use crate::virtual_users::with;

const SITES: &str = "[[site]]\nname = 'one.example'\nrelay = true\n[[site.host]]\nname = 'mx.one.example'\n\
                     [[site]]\nname = 'two.example'\nrelay = true\n";
const OWN_DELIVERED_TO: &str = "Delivered-To: arch@ours.example\r\nSubject: again\r\n";

/// A server with an alias for two behind this milter, a list for its members, and rules.
fn server(lab: &TestLab, milter: &Milter, rules: &str) -> Server {
    let builder = builder(lab)
        .set("domains.local", "[\"ours.example\"]")
        .alias("arch@ours.example", &["f1@one.example", "f2@one.example"])
        .list("club", &["s1@one.example"])
        .set("lists.club.post", "\"members\"");
    with(builder, &[], &(milter.config("swap", "") + rules))
}

/// A milter that removes and adds these at the end of the data.
fn swaps(gone: &'static [&'static str], new: &'static [&'static str]) -> Milter {
    let named = |address: &&str| texts(&[&format!("<{address}>")]);
    Milter::start(move |command, _| match command {
        'E' => {
            let gone = gone.iter().map(|address| says('-', named(address)));
            gone.chain(new.iter().map(|address| says('+', named(address)))).chain([says('c', "")]).collect()
        }
        _ => Vec::new(),
    })
}

#[test]
fn one_that_is_added_is_checked_for_loops_and_may_post_as_one_that_is_named() {
    let lab = TestLab::start(SITES);
    let milter = swaps(&[], &["arch@ours.example", "club@lists.test"]);
    let server = server(&lab, &milter, "");
    server.smtp().send(SENDER, &[TO], &message("new@test", "x")).expect(250);
    assert_eq!(drained(&server).delivered, 3, "who is no member does not post");
    assert!(server.log().wait(&["club@lists.test", "550"]).is_some());
    assert!(String::from_utf8_lossy(&lab.body_for("f1@one.example")).contains("Delivered-To: arch@ours.example\r\n"));
    // Its mail comes back: nobody behind the alias gets it again, but who is named does.
    let again = message_with("again@test", OWN_DELIVERED_TO, "x\r\n");
    server.smtp().send("s1@one.example", &[TO], &again).expect(250);
    assert_eq!(drained(&server).delivered, 5, "ann, and the club, whose member it is");
    assert!(server.log().wait(&["arch@ours.example", "554"]).is_some());
    assert_eq!(lab.recorder().copies_to("f1@one.example").len(), 1);
}

#[test]
fn rules_on_content_hold_for_one_that_is_added() {
    const RULES: &str = "[[rules]]\nsubject = \"casino\"\nrecipient = \"bob@one.example\"\ndo = \"quarantine spam\"\n\
        [[rules]]\nsubject = \"casino\"\nrecipient = \"eve@one.example\"\ndo = \"reject 550 5.7.1 no games\"\n\
        [[rules]]\nsubject = \"casino\"\nrecipient = \"cid@one.example\"\ndo = \"route mx:two.example\"\n";
    let lab = TestLab::start(SITES);
    let milter = swaps(&["bob@one.example"], &["bob@one.example", "eve@one.example", "cid@one.example"]);
    let server = server(&lab, &milter, RULES);
    let kept = || {
        let rows = String::from_utf8(server.operator(&["quarantine", "list"]).stdout).expect("UTF-8");
        rows.matches("bob@one.example").count()
    };
    // Of one who is named a rule waits for the content; then of nobody.
    for (n, to) in [&[TO, "bob@one.example"][..], &[TO]].into_iter().enumerate() {
        server.smtp().send(SENDER, to, &message(&format!("{n}@test"), "A casino")).expect(250);
        assert_eq!(drained(&server).delivered, 2 * (n as u64 + 1), "ann and cid");
        assert_eq!(kept(), n + 1);
        assert!(server.log().wait_nth(&["eve@one.example", "no games"], n + 1).is_some());
    }
    let host = server.log().wait(&["stat=Sent", "to=<cid@one.example>"]).expect("it is delivered");
    assert!(host.contains("two.example"), "{host}");
    // Rules that are not met ask for nothing.
    server.smtp().send(SENDER, &[TO], &message("fine@test", "Fine")).expect(250);
    assert_eq!((drained(&server).delivered, kept()), (8, 2));
}

#[test]
fn copies_and_redirects_of_rules_outlive_the_recipients_that_are_removed() {
    const RULES: &str = "[[rules]]\nrecipient = \"bob@one.example\"\ndo = \"copy mx:two.example\"\n\
        [[rules]]\nrecipient = \"ann@one.example\"\ndo = \"bcc box@one.example\"\n\
        [[rules]]\nrecipient = \"moved@one.example\"\ndo = \"redirect new@one.example\"\n\
        [[rules]]\nrecipient = \"eve@one.example\"\ndo = \"bcc arch@ours.example\"\n";
    let lab = TestLab::start(SITES);
    let all = ["ann@one.example", "bob@one.example", "moved@one.example", "eve@one.example", "dan@one.example"];
    let milter = Milter::start(move |command, _| match command {
        'E' => all.iter().map(|to| says('-', texts(&[&format!("<{to}>")]))).chain([says('c', "")]).collect(),
        _ => Vec::new(),
    });
    let server = server(&lab, &milter, RULES);
    let send = |to: &[&str], id: &str| server.smtp().send(SENDER, to, &message(id, "x")).expect(250).queue_id();
    let id = send(&["bob@one.example"], "copy@test");
    assert!(server.log().wait(&["stat=Sent", "to=<bob@one.example>"]).is_some_and(|line| line.contains("two.example")));
    wait_traced(&server, &id, &["all recipients: removed by milters", "copied to mx:two.example"]);
    send(&["ann@one.example", "bob@one.example"], "both@test");
    assert_eq!(drained(&server).delivered, 3);
    send(&["moved@one.example"], "moved@test");
    assert_eq!(drained(&server).delivered, 4);
    assert_eq!(lab.recorder().copies_to("new@one.example").len(), 1);
    // Where there is nobody else, and where the copy would be a loop, the log has it.
    send(&["dan@one.example"], "gone@test");
    let again = message_with("again@test", OWN_DELIVERED_TO, "x\r\n");
    server.smtp().send(SENDER, &["eve@one.example"], &again).expect(250);
    wait_until("they are discarded", || server.log().matching(&["discarded:", "removed by milters"]).len() == 2);
    assert_eq!(fates(&server).acknowledged, 4);
}
