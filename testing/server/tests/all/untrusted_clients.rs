//! What an untrusted client is judged by: DNS lists, its HELO, the sender's domain.

use stentor_harness::{Server, TestLab};

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

fn answered(server: &Server, client: &str, (helo, from, to): (&str, &str, &str)) -> String {
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
    let good = ("mx.known.example", "me@one.example", "ann@one.example");
    for (client, case, wanted) in [
        ("127.0.0.6", good, "250 "),
        ("127.0.0.5", good, "554 5.7.1 127.0.0.5 is listed by bl"),
        // The list refuses to answer us; a silent one does not refuse mail.
        ("127.0.0.7", good, "250 "),
        ("127.0.0.5", ("mx.known.example", "me@one.example", "try@one.example"), "250 "),
        ("127.0.0.6", ("mx.unknown.example", "me@one.example", "ann@one.example"), "550 5.7.1 Who are you?"),
        ("127.0.0.6", ("mx.test", "me@one.example", "ann@one.example"), "550 5.7.1 Who are you?"),
        ("127.0.0.6", ("127.0.0.6", "me@one.example", "ann@one.example"), "550 5.7.1 Who are you?"),
        ("127.0.0.6", ("mx.known.example", "me@null.example", "ann@one.example"), "450 4.1.8 Your domain"),
        ("127.0.0.6", ("mx.known.example", "me@gone.example", "ann@one.example"), "450 4.1.8 Your domain"),
        ("127.0.0.6", ("mx.known.example", "", "ann@one.example"), "250 "),
        // A trusted client is not asked about.
        ("127.0.0.1", ("mx.unknown.example", "me@gone.example", "ann@one.example"), "250 "),
    ] {
        let answer = answered(&server, client, case);
        assert!(answer.starts_with(wanted), "{client} {case:?}: {answer}");
    }
    server.log().wait(&["ruleset=check_rcpt", "policy=rule 4 \"lists\"", "bl has 127.0.0.4", "is listed by bl"]);
    server.wait_log(&["a rule warns", "rule 3 \"test\"", "which only warns", "bl has 127.0.0.4"]);
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
    assert!(found.contains("DNS list dead: it does not have 2.0.0.127.dead.example"), "{found}");
    assert!(found.contains("DNS list silent: ") && !found.contains("DNS list bl:"), "{found}");
}
