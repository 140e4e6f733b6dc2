//! The address book: one address in all its spellings, its history, and forgetting.

use stentor_harness::{Server, TestLab, message, wait_until};

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "xn--bcher-kva.example"])
}

#[test]
fn a_domain_in_all_its_spellings_is_one_and_local_parts_keep_their_case() {
    let lab = lab();
    let server = Server::builder().lab(&lab).start();
    let wire = message("spellings@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    let spellings = [
        "Ann@bücher.example",
        "Ann@BÜCHER.Example",
        "Ann@b\u{75}\u{308}cher.example",
        "Ann@xn--bcher-kva.example",
        "Ann@XN--BCHER-KVA.EXAMPLE",
        "ann@bücher.example",
    ];
    server.smtp().send("me@home.example", &spellings, &wire).expect(250);
    lab.wait_clean("spellings@test", &["Ann@xn--bcher-kva.example", "ann@xn--bcher-kva.example"]);
    server.smtp().send("me@home.example", &["ANN@One.Example"], &message("case@test", "x")).expect(250);
    wait_until("three addresses are known", || server.status()["addresses"] == 3);
    let wait_delivered = |address: &str, name: &str| {
        wait_until("its history is known", || {
            let shown = server.ask(&["address", address]).expect("it is known");
            assert_eq!(
                (&shown["address"], &shown["messages_total"].as_u64()),
                (&name.into(), &Some(shown["messages"].as_array().map_or(0, Vec::len) as u64))
            );
            shown["mailbox"]["last"] == "delivered"
        });
    };
    wait_delivered("Ann@BÜCHER.example", "Ann@xn--bcher-kva.example");
    wait_delivered("ANN@ONE.EXAMPLE", "ANN@one.example");
    let problem = server.ask(&["address", "Nobody@one.example"]).expect_err("nobody named it");
    assert_eq!(problem["code"], "not_found");
    let text = server.operator(&["address", "ANN@one.example"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.starts_with("ANN@one.example\n") && text.contains("last delivered"), "{text}");
    assert!(text.contains("1 answered attempt, 0 failed attempts"), "{text}");
}

#[test]
fn a_list_that_is_not_configured_any_more_lets_its_subscribers_go() {
    let lab = lab();
    let mut server =
        Server::builder().lab(&lab).list("news", &["ann@one.example"]).list("other", &["bob@one.example"]).start();
    let lists = |server: &Server, address: &str| server.ask(&["address", address]).map(|shown| shown["lists"].clone());
    wait_until("the files are read", || {
        lists(&server, "ann@one.example").is_ok() && lists(&server, "bob@one.example").is_ok_and(|l| l[0] == "other")
    });
    let without = |text: &str| {
        let (before, rest) = text.split_once("[lists.news]").expect("the list");
        let rest = rest.find("\n[").map_or("", |at| &rest[at..]);
        format!("{before}{rest}")
    };
    server.edit_config(without);
    server.operator(&["reload"]);
    wait_until("the list is gone", || {
        lists(&server, "ann@one.example").is_ok_and(|lists| lists == serde_json::json!([]))
    });
    assert_eq!(lists(&server, "bob@one.example").expect("known")[0], "other");
    server.stop();
    server.start_again();
    assert_eq!(lists(&server, "ann@one.example"), Ok(serde_json::json!([])), "it stays gone");
    assert_eq!(lists(&server, "bob@one.example").expect("known")[0], "other");
}

/// More addresses than `addresses_max` pass through: those that nothing needs any more are forgotten for new ones, also
/// across a restart, and what is known of the others is there after it.
#[test]
fn a_full_book_forgets_whom_it_does_not_need() {
    const ROUNDS: usize = 8;
    const EACH: usize = 200;
    let lab = lab();
    let mut server = Server::builder().lab(&lab).set("journal.addresses_max", "1000").start();
    let address = |round: usize, n: usize| format!("u{round}.{n}@one.example");
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            server.stop();
            server.start_again();
        }
        let to: Vec<String> = (0..EACH).map(|n| address(round, n)).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        wait_until("it is taken", || {
            let mut client = server.smtp();
            let mail = client.cmd("MAIL FROM:<me@home.example>");
            if mail.code != 250 {
                assert_eq!(mail.code, 452);
                return false;
            }
            for to in &to {
                client.cmd(&format!("RCPT TO:<{to}>")).expect(250);
            }
            client.cmd("DATA").expect(354);
            client.raw(&message(&format!("{round}@test"), "x"));
            client.raw(b".\r\n");
            let reply = client.reply();
            assert!(reply.code == 250 || reply.code == 452, "{}", reply.code);
            reply.code == 250
        });
        wait_until("all are delivered", || server.status()["recipients"]["pending"] == 0);
    }
    wait_until("there is room", || server.status()["addresses"].as_u64() < Some(900));
    assert_eq!(server.status()["recipients"]["delivered"], ROUNDS * EACH);
    let known = |server: &Server| -> Vec<String> {
        let all = (0..ROUNDS).flat_map(|round| (0..EACH).step_by(40).map(move |n| address(round, n)));
        all.filter(|a| server.ask(&["address", a]).is_ok_and(|shown| shown["mailbox"]["last"] == "delivered")).collect()
    };
    let before = known(&server);
    assert!(!before.is_empty() && before.len() < ROUNDS * EACH / 40, "{} are known", before.len());
    // What is forgotten is durable before it is; history is when the checkpoint that has it is complete.
    wait_until("a checkpoint is complete", || {
        let status = server.status();
        status["journal_checkpoints"].as_u64() > Some(0) && status["journal_checkpoint_running"] == false
    });
    server.kill();
    server.start_again();
    let after = known(&server);
    assert!(!after.is_empty() && after.iter().all(|address| before.contains(address)), "{before:?} {after:?}");
}
