//! Lists made by commands, with their members in the registry: posts, changes, restarts.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::builder;

fn run(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.operator(arguments);
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Makes the list `talk` with these members.
fn create(server: &Server, members: &[&str]) {
    let create = ["list", "create", "talk", "--address", "talk@lists.test", "--owner", "chief@one.example"];
    server.ask(&create).expect("the list is made");
    if !members.is_empty() {
        server.ask(&[&["member", "add", "talk"], members].concat()).expect("they are added");
    }
}

/// Posts as `ann@one.example`, and asserts that exactly these get it.
#[track_caller]
fn post(lab: &TestLab, server: &Server, id: &str, subscribers: &[&str]) {
    let wire = message(id, "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("ann@one.example", &["talk@lists.test"], &wire).expect(250);
    lab.wait_clean(id, subscribers);
}

#[test]
fn a_list_is_made_changed_and_deleted_by_commands() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    // Another list of the domain, so that it stays local.
    let mut server = builder(&lab).list("other", &[]).start();
    create(&server, &["ann@one.example", "Bob@two.example"]);
    post(&lab, &server, "first@test", &["ann@one.example", "Bob@two.example"]);
    // Safe by default: only members post, and the copies have return paths of their own.
    let refused = server.smtp().send("eve@two.example", &["talk@lists.test"], &message("eve@test", "x"));
    assert!(refused.to_string().starts_with("550 5.7.2"), "{refused}");
    let copy = &lab.recorder().copies_to("ann@one.example")[0];
    assert!(copy.sender.starts_with("talk-bounces+"), "{}", copy.sender);
    let shown = server.operator_text(&["list", "show", "talk"]);
    assert!(shown.contains("2 members in registry") && shown.contains("post = \"members\""), "{shown}");
    // The next post has a change of members; silent members may post.
    server.ask(&["member", "remove", "talk", "bob@two.example"]).expect("Bob is removed");
    server.ask(&["member", "add", "talk", "cid@two.example"]).expect("Cid is added");
    server.ask(&["member", "set", "talk", "ann@one.example", "--delivery", "none"]).expect("Ann gets no posts");
    post(&lab, &server, "second@test", &["cid@two.example"]);
    server.ask(&["list", "set", "talk", "post=anyone", "description=All the \"talk\""]).expect("it is changed");
    let wire = message("third@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("eve@two.example", &["talk@lists.test"], &wire).expect(250);
    lab.wait_clean("third@test", &["cid@two.example"]);
    let copies = lab.recorder().copies_to("cid@two.example");
    let body = String::from_utf8_lossy(copies.last().and_then(|copy| copy.body.as_deref()).expect("a body"));
    assert!(body.contains("List-Id: \"All the \\\"talk\\\"\" <talk.lists.test>"), "{body}");
    // A start finds the list and its members.
    server.wait_empty();
    server.kill();
    server.start_again();
    post(&lab, &server, "fourth@test", &["cid@two.example"]);
    let (code, text) = run(&server, &["list", "delete", "talk"]);
    assert_eq!(code, Some(2), "{text}");
    let deleted = server.operator_text(&["list", "delete", "talk", "--yes"]);
    assert!(deleted.contains("with 2 members"), "{deleted}");
    let mut smtp = server.smtp();
    smtp.cmd("MAIL FROM:<ann@one.example>").expect(250);
    smtp.cmd("RCPT TO:<talk@lists.test>").expect(550);
    // A new list of the name has none of them.
    create(&server, &[]);
    let none = server.operator_text(&["list", "show", "talk"]);
    assert!(none.contains("0 members"), "{none}");
    lab.assert_no_violations();
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).list("file", &["ann@one.example"]).start();
    create(&server, &["ann@one.example"]);
    let file = server.path("data/lists/talk.toml");
    let before = std::fs::read_to_string(&file).expect("its file");
    for (arguments, why) in [
        (&["list", "set", "talk", "verp=sometimes"][..], "verp"),
        (&["list", "set", "talk", "adress=x@lists.test"], "did you mean `address`"),
        (&["list", "set", "talk", "address=file@lists.test"], "already the address of list"),
        (&["list", "set", "file", "post=anyone"], "change it there"),
        (&["list", "set", "tlak", "post=anyone"], "there is no list tlak; lists: file, talk"),
        (&["list", "create", "talk", "--address", "t@lists.test", "--owner", "a@one.example"], "already"),
        (&["list", "create", "../x", "--address", "t@lists.test", "--owner", "a@one.example"], "not a valid list name"),
        (&["list", "create", "own", "--address", "own@lists.test", "--owner", "own@lists.test"], "the list itself"),
        (&["member", "remove", "file", "ann@one.example"], "edit that file"),
        (&["member", "add", "talk", "nobody"], "not a valid mail address"),
        (&["member", "remove", "talk", "bob@one.example"], "not members of talk"),
    ] {
        let (code, text) = run(&server, arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {text}");
        assert!(text.contains(why), "{arguments:?}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("its file"), before);
    assert!(!server.path("data/lists/own.toml").exists());
    post(&lab, &server, "still@test", &["ann@one.example"]);
}

#[test]
fn who_leaves_by_any_way_is_no_member_and_is_not_added_by_an_import() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    create(&server, &["ann@one.example", "bob@one.example", "cid@one.example"]);
    for (address, reason) in [("bob@one.example", "unsubscribe"), ("Cid@one.example", "complaint")] {
        server.ask(&["suppress", "add", address, "--list", "talk", "--reason", reason]).expect("it is entered");
    }
    post(&lab, &server, "left@test", &["ann@one.example"]);
    server.write("people.txt", b"ann@one.example\nBob Example <bob@one.example>\n\"Dan, D.\" <dan@one.example>\n");
    let file = server.path("people.txt");
    let file = file.to_str().expect("a path");
    let (code, text) = run(&server, &["member", "import", "talk", file]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("3 members read: 1 added") && text.contains("left, complained or were banned: bob@one.example"),
        "{text}"
    );
    let (_, person) = run(&server, &["member", "show", "bob@one.example"]);
    assert!(person.contains("left talk at") && person.contains("suppressed: list:talk, unsubscribe"), "{person}");
    let (code, text) = run(&server, &["member", "import", "talk", file, "--again"]);
    assert_eq!(code, Some(0), "{text}");
    post(&lab, &server, "again@test", &["ann@one.example", "bob@one.example", "dan@one.example"]);
    let exported = server.operator_text(&["member", "export", "talk"]);
    assert_eq!(exported, "ann@one.example\n\"Bob Example\" <bob@one.example>\n\"Dan, D.\" <dan@one.example>\n");
}

#[test]
fn waiting_posts_are_not_sent_to_who_left_since() {
    let lab = TestLab::start("[[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '451 4.3.0 not today' }\n");
    let server = builder(&lab).fast_retry().start();
    create(&server, &["ann@later.example"]);
    server.smtp().send("ann@later.example", &["talk@lists.test"], &message("wait@test", "x")).expect(250);
    server.ask(&["member", "remove", "talk", "ann@later.example"]).expect("Ann is removed");
    server.ask(&["flush"]).expect("a try");
    server.wait_empty();
    wait_until("it is counted as removed", || server.fates()["removed"] == 1);
}

#[test]
fn a_member_in_another_spelling_is_one_member() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    create(&server, &["ann@one.example", "gus@one.example"]);
    post(&lab, &server, "lower@test", &["ann@one.example", "gus@one.example"]);
    server.ask(&["member", "remove", "talk", "gus@one.example"]).expect("Gus is removed");
    server.ask(&["member", "add", "talk", "Gus@one.example", "--again"]).expect("Gus is added");
    post(&lab, &server, "upper@test", &["ann@one.example", "Gus@one.example"]);
    server.ask(&["member", "set", "talk", "gus@one.example", "--delivery", "none"]).expect("Gus gets no posts");
    post(&lab, &server, "none@test", &["ann@one.example"]);
    server.ask(&["suppress", "add", "gus@one.example", "--list", "talk"]).expect("Gus is banned");
    let refused = server.smtp().send("gus@one.example", &["talk@lists.test"], &message("gus@test", "x"));
    assert!(refused.to_string().starts_with("550 5.7.2"), "{refused}");
}

#[test]
fn a_ban_lasts_until_an_operator_ends_it() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    create(&server, &["ann@one.example", "eve@one.example"]);
    server
        .ask(&["suppress", "add", "eve@one.example", "--list", "talk", "--reason", "unsubscribe"])
        .expect("she leaves");
    server.ask(&["suppress", "add", "eve@one.example", "--list", "talk"]).expect("she is banned");
    // Her complaint changes nothing, nor does an import.
    server
        .ask(&["suppress", "add", "eve@one.example", "--list", "talk", "--reason", "complaint"])
        .expect("she complains");
    server.ask(&["suppress", "add", "@two.example", "--list", "talk"]).expect("a domain is banned");
    server.write("people.txt", b"eve@one.example\nbob@two.example\n");
    let file = server.path("people.txt");
    let (_, text) = run(&server, &["member", "import", "talk", file.to_str().expect("a path")]);
    assert!(text.contains("0 added"), "{text}");
    let (_, person) = run(&server, &["member", "show", "eve@one.example"]);
    assert!(person.contains("suppressed: list:talk, operator"), "{person}");
    post(&lab, &server, "banned@test", &["ann@one.example"]);
}

#[test]
fn a_list_with_a_file_moves_into_the_registry_without_a_gap() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).list("talk", &["ann@one.example", "bob@one.example"]).start();
    post(&lab, &server, "file@test", &["ann@one.example", "bob@one.example"]);
    let file = server.path("talk.subscribers");
    let (code, text) = run(&server, &["member", "import", "talk", file.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("2 added") && text.contains("in force once"), "{text}");
    server.edit_config(|text| {
        text.lines().filter(|line| !line.starts_with("subscribers")).fold(String::new(), |all, line| all + line + "\n")
    });
    server.ask(&["reload"]).expect("it is reloaded");
    post(&lab, &server, "registry@test", &["ann@one.example", "bob@one.example"]);
    server.ask(&["member", "remove", "talk", "bob@one.example"]).expect("Bob is removed");
    post(&lab, &server, "then@test", &["ann@one.example"]);
}
