//! Copies and redirects of rules that lead to an alias of ours whose mail comes back: each pass would double it.

use stentor_harness::{TestLab, message, message_with};

use crate::kit::{SENDER, builder, drained};
use crate::virtual_users::with;

const RULES: &str = "[[rules]]\nrecipient = \"ann@one.example\"\ndo = \"bcc arch@ours.example\"\n\
    [[rules]]\nrecipient = \"moved@one.example\"\ndo = \"redirect arch@ours.example\"\n";

#[test]
fn an_alias_that_a_rule_names_is_known_again_when_its_mail_comes_back() {
    let lab = TestLab::sites(&["one.example"]);
    let builder = builder(&lab)
        .set("domains.local", "[\"ours.example\"]")
        .alias("arch@ours.example", &["f1@one.example", "f2@one.example"]);
    let server = with(builder, &[], RULES);
    let again = |id: &str| message_with(id, "Delivered-To: arch@ours.example\r\nSubject: again\r\n", "x\r\n");
    let copies = |to: &str| {
        let all = lab.recorder().copies_to(to);
        all.into_iter().map(|copy| String::from_utf8(copy.body.expect("kept").to_vec()).expect("ASCII")).collect()
    };
    let is_of_alias = |copy: &String| copy.contains("Delivered-To: arch@ours.example\r\n");

    server.smtp().send(SENDER, &["ann@one.example"], &message("copy@test", "x")).expect(250);
    assert_eq!(drained(&server).delivered, 3);
    let (of_ann, of_alias): (Vec<String>, Vec<String>) = (copies("ann@one.example"), copies("f1@one.example"));
    assert!(!of_ann.iter().any(is_of_alias) && of_alias.iter().all(is_of_alias), "{of_ann:?} {of_alias:?}");
    // Who is named gets it; the copy is left out.
    server.smtp().send(SENDER, &["ann@one.example"], &again("copied@test")).expect(250);
    assert!(server.log().wait(&["it would cause a mail loop", "arch@ours.example"]).is_some());
    assert_eq!(drained(&server).delivered, 4);

    server.smtp().send(SENDER, &["moved@one.example"], &message("moved@test", "x")).expect(250);
    assert_eq!(drained(&server).delivered, 6);
    let of_alias: Vec<String> = copies("f2@one.example");
    assert!(of_alias.len() == 2 && of_alias.iter().all(is_of_alias), "{of_alias:?}");
    server.smtp().send(SENDER, &["moved@one.example"], &again("back@test")).expect(554);
    assert_eq!(drained(&server).delivered, 6);
}
