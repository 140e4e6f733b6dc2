//! What an untrusted client is judged by: DNS lists, its HELO, the sender's domain, whether it waits, how often it
//! comes, whether it comes back.

use stentor_harness::{Server, TestLab, wait_until};

use crate::kit::builder;
use crate::virtual_users::with;

/// 127.0.0.5 is on the list that `bl` names; the list that `silent` names says nothing about 127.0.0.2 to 127.0.0.5.
const WORLD: &str = "[[site]]\nname = 'one.example'\nrelay = true\n[[site]]\nname = 'null.example'\ndns = 'null_mx'\n\
    [[site]]\nname = 'silent'\ndns = 'timeout'\ndomains = ['2.0.0.127.silent.example', '5.0.0.127.silent.example']\n\
    [[record]]\nname = '5.0.0.127.bl.example'\ntype = 'A'\nvalue = '127.0.0.4'\n\
    [[record]]\nname = '2.0.0.127.bl.example'\ntype = 'A'\nvalue = '127.0.0.2'\n\
    [[record]]\nname = '7.0.0.127.bl.example'\ntype = 'A'\nvalue = '127.255.255.254'\n\
    [[record]]\nname = 'mx.known.example'\ntype = 'A'\nvalue = '127.0.0.9'\n";

const CONFIG: &str = "[domains]\nrelay = [\"one.example\"]\n\
    [dns_lists.bl]\nzone = \"bl.example\"\n[dns_lists.silent]\nzone = \"silent.example\"\n[dns_lists.dead]\nzone = \"dead.example\"\n\
    [[rules]]\nname = \"helo\"\nhelo_is = [\"invalid\", \"ours\", \"unknown\"]\ndo = \"reject 550 5.7.1 Who are you?\"\n\
    [[rules]]\nname = \"sender\"\nsender_domain = \"unknown\"\ndo = \"defer 450 4.1.8 Your domain takes no mail\"\n\
    [[rules]]\nname = \"test\"\nrecipient = \"try@one.example\"\ndns_list = \"bl\"\nwarn_only = true\ndo = \"reject\"\n\
    [[rules]]\nname = \"lists\"\ndns_list = [\"bl\", \"silent\"]\nnot = { recipient = \"try@one.example\" }\n\
    do = \"reject 554 5.7.1 {client} is listed by {lists}\"\n";

fn answered(server: &Server, client: &str, [helo, from, to]: [&str; 3]) -> String {
    let mut client = server.connect_from(client);
    client.reply().expect(220);
    client.cmd(&format!("EHLO {helo}")).expect(250);
    client.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
    let reply = client.cmd(&format!("RCPT TO:<{to}>"));
    format!("{} {}", reply.code, reply.lines.join("\n"))
}

#[test]
fn listed_clients_and_false_names_are_refused_with_the_rule_in_the_log() {
    let lab = TestLab::start(WORLD);
    let server = with(builder(&lab), &[], CONFIG);
    let good = ["mx.known.example", "me@one.example", "ann@one.example"];
    for (client, case, wanted) in [
        ("127.0.0.6", good, "250 "),
        ("127.0.0.5", good, "554 5.7.1 127.0.0.5 is listed by bl"),
        // The list refuses to answer us; a silent one does not refuse mail.
        ("127.0.0.7", good, "250 "),
        ("127.0.0.5", ["mx.known.example", "me@one.example", "try@one.example"], "250 "),
        ("127.0.0.6", ["mx.unknown.example", "me@one.example", "ann@one.example"], "550 5.7.1 Who are you?"),
        ("127.0.0.6", ["mx.test", "me@one.example", "ann@one.example"], "550 5.7.1 Who are you?"),
        ("127.0.0.6", ["127.0.0.6", "me@one.example", "ann@one.example"], "550 5.7.1 Who are you?"),
        ("127.0.0.6", ["mx.known.example", "me@null.example", "ann@one.example"], "450 4.1.8 Your domain"),
        ("127.0.0.6", ["mx.known.example", "me@gone.example", "ann@one.example"], "450 4.1.8 Your domain"),
        ("127.0.0.6", ["mx.known.example", "", "ann@one.example"], "250 "),
        // A trusted client is not asked about.
        ("127.0.0.1", ["mx.unknown.example", "me@gone.example", "ann@one.example"], "250 "),
    ] {
        let answer = answered(&server, client, case);
        assert!(answer.starts_with(wanted), "{client} {case:?}: {answer}");
    }
    server.log().wait(&["ruleset=check_rcpt", "policy=rule 4 \"lists\"", "bl has 127.0.0.4", "is listed by bl"]);
    server.wait_log(&["a rule warns", "rule 3 \"test\"", "but it only warns", "bl has 127.0.0.4"]);
}

#[test]
fn a_rule_on_the_content_says_who_is_listed() {
    let lab = TestLab::start(WORLD);
    let rules = "[domains]\nrelay = [\"one.example\"]\n[dns_lists.bl]\nzone = \"bl.example\"\n\
        [[rules]]\nname = \"both\"\ndns_list = \"bl\"\nsubject = \"offer\"\ndo = \"reject 554 5.7.1 {client} is listed by {lists}\"\n\
        [[rules]]\nname = \"nameless\"\nclient_name = \"unknown\"\nrecipient = \"bob@one.example\"\ndo = \"reject 554 5.7.1 {client} has no name\"\n";
    let server = with(builder(&lab), &[], rules);
    let mut client = server.connect_from("127.0.0.5").greeted();
    client.cmd("MAIL FROM:<me@one.example>").expect(250);
    client.cmd("RCPT TO:<bob@one.example>").expect_text("554 5.7.1 127.0.0.5 has no name");
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.cmd("DATA").expect(354);
    client.raw(b"Subject: An offer\r\n\r\nx\r\n.\r\n");
    client.reply().expect_text("554 5.7.1 127.0.0.5 is listed by bl");
    server.wait_log(&["policy=rule 1 \"both\"", "bl has 127.0.0.4", "127.0.0.5 is listed by bl"]);
}

#[test]
fn explain_asks_and_check_finds_dead_lists() {
    let lab = TestLab::start(WORLD);
    let server = with(builder(&lab), &[], CONFIG);
    let explain = |client: &str| {
        let args = ["explain", "--from", "me@one.example", "--to", "ann@one.example", "--helo", "mx.known.example"];
        let output = server.operator(&[&args[..], &["--client", client]].concat());
        String::from_utf8(output.stdout).expect("text")
    };
    let shown = explain("127.0.0.5");
    for wanted in [
        "bl 5.0.0.127.bl.example: 127.0.0.4 (",
        "silent 5.0.0.127.silent.example: unanswered: ",
        "HELO mx.known.example: it is known (",
        "=> refused: 554 5.7.1 127.0.0.5 is listed by bl",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    assert!(!explain("127.0.0.1").contains("bl.example"), "nothing is asked about a trusted client");
    let output = server.operator(&["check"]);
    let found = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(found.contains("DNS list dead: it does not list 2.0.0.127.dead.example"), "{found}");
    assert!(found.contains("DNS list silent: ") && !found.contains("DNS list bl:"), "{found}");
}

const EARLY: &[u8] = b"EHLO bot.example\r\nMAIL FROM:<bot@one.example>\r\nRCPT TO:<ann@one.example>\r\n";

/// What a client hears that does not wait for the greeting.
fn hears_early(server: &Server, client: &str) -> Vec<u16> {
    let mut client = server.connect_from(client);
    client.raw(EARLY);
    std::iter::from_fn(|| client.try_reply()).map(|reply| reply.code).take(4).collect()
}

#[test]
fn who_speaks_before_the_greeting_is_refused_as_a_rule_says_and_others_wait() {
    let lab = TestLab::start(WORLD);
    // Long enough that a client which speaks at once speaks first.
    let delayed = || builder(&lab).set("listen.greet_delay_s", "3");
    let domains = "[domains]\nrelay = [\"one.example\"]\n";
    let server = with(delayed(), &[], domains);
    assert_eq!(hears_early(&server, "127.0.0.5"), [554], "without a rule it is sent away at once");
    server.wait_log(&["refused an early talker with 554", "client=127.0.0.5", "times=1"]);
    let rule = "[[rules]]\nname = \"early\"\nearly_talker = true\ndo = \"reject 554 5.5.1 Wait for your turn\"\n";
    let server = with(delayed(), &[], &format!("{domains}{rule}"));
    assert_eq!(hears_early(&server, "127.0.0.5"), [220, 250, 250, 554]);
    assert_eq!(hears_early(&server, "127.0.0.1"), [220, 250, 250, 250], "no rule is about trusted clients");
    server.log().wait(&["ruleset=check_rcpt", "policy=rule 1 \"early\"", "the client spoke before the greeting"]);
    let good = ["mx.known.example", "me@one.example", "ann@one.example"];
    assert!(answered(&server, "127.0.0.6", good).starts_with("250 "), "who waits is taken");
    let server = with(delayed(), &[], &format!("{domains}{rule}warn_only = true\n"));
    assert_eq!(hears_early(&server, "127.0.0.5"), [220, 250, 250, 250]);
    server.wait_log(&["a rule warns", "rule 1 \"early\"", "but it only warns"]);
}

#[test]
fn a_client_that_comes_too_often_is_deferred_and_no_other() {
    let lab = TestLab::start(WORLD);
    let rules = "[domains]\nrelay = [\"one.example\"]\n[[rules]]\nclient_rate_over = \"3 messages/hour\"\ndo = \"defer 451 4.7.1 Slow down\"\n";
    let server = with(builder(&lab), &[], rules);
    let good = ["mx.known.example", "me@one.example", "ann@one.example"];
    let codes: Vec<String> = (0..10).map(|_| answered(&server, "127.0.0.5", good)).collect();
    assert!(codes[..3].iter().all(|code| code.starts_with("250 ")), "{codes:?}");
    assert!(codes[9].starts_with("451 4.7.1 Slow down"), "{codes:?}");
    assert!(answered(&server, "127.0.0.6", good).starts_with("250 "));
    for _ in 0..10 {
        assert!(
            answered(&server, "127.0.0.1", good).starts_with("250 "),
            "a trusted client comes as often as it likes"
        );
    }
}

#[test]
fn greylisted_mail_is_taken_when_it_comes_back_and_so_after_a_restart() {
    let lab = TestLab::start(WORLD);
    let rules = "[domains]\nrelay = [\"one.example\"]\n[greylist]\ndelay_s = 1\nnetwork_passes = 0\n\
                 [[rules]]\nname = \"grey\"\ngreylisted = true\ndo = \"defer 450 4.2.0 Greylisted\"\n";
    let mut server = with(builder(&lab), &[], rules);
    let to = |to| ["mx.known.example", "me@one.example", to];
    let (ann, bob) = (to("ann@one.example"), to("bob@one.example"));
    assert!(answered(&server, "127.0.0.5", ann).starts_with("450 4.2.0 Greylisted"));
    server.log().wait(&["ruleset=check_rcpt", "policy=rule 1 \"grey\"", "greylisted for 1 s"]);
    assert!(answered(&server, "127.0.0.1", bob).starts_with("250 "), "a trusted client is not greylisted");
    wait_until("it has come back late enough", || answered(&server, "127.0.0.5", ann).starts_with("250 "));
    assert!(answered(&server, "127.0.0.5", bob).starts_with("450 "), "another recipient is another triplet");
    assert!(server.stop().success());
    server.start_again();
    assert!(answered(&server, "127.0.0.5", ann).starts_with("250 "), "a restart forgets nothing");
    assert!(server.stop().success());
    let file = server.path("data/greylist");
    let mut octets = std::fs::read(&file).expect("the greylist is in the data directory");
    octets[30] ^= 1;
    std::fs::write(&file, octets).expect("it can be written");
    server.start_again();
    assert!(answered(&server, "127.0.0.5", ann).starts_with("450 "), "a damaged file is no file");
    server.wait_log(&["cannot read the greylist", "it is damaged"]);
    assert!(server.path("data/greylist.bad").exists());
}
