//! The dialogue with clients (RFC 5321 and its extensions).

use stentor_tests::{Server, TestLab, message};

#[test]
fn a_post_reaches_its_subscribers() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example", "bob@two.example"]).start();
    let wire = message("1@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect(250);
    lab.wait_clean("1@test", &["ann@one.example", "bob@two.example"]);
    server.wait_empty();
}
