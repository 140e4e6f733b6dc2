//! XVERP of Postfix in MAIL: return paths of copies as mlmmj and others ask for them (docs/operate/copies.md).

use stentor_harness::{Server, Smtp, wait_until};

use crate::auth::{PASSWORD, started};
use crate::copies::host;
use crate::kit::{bare, drained, post_with};
use crate::scribe::Scribe;

const SENDER: &str = "talk+bounces-12@manager.test";
const TO: [&str; 2] = ["<ann@host.example>", "<bob@host.example>"];
const POST: &[u8] = b"From: Ed <ed@manager.test>\r\nSubject: News\r\n\r\nx\r\n";

const BOUNCE: &str = "From: mailer@host.example\r\nSubject: failed\r\nContent-Type: multipart/report;\r\n \
                      report-type=delivery-status; boundary=r\r\n\r\n--r\r\n\r\nSorry.\r\n--r\r\n\
                      Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; host.example\r\n\r\n\
                      Final-Recipient: rfc822; ann@host.example\r\nAction: failed\r\nStatus: 5.1.1\r\n--r--\r\n";

/// Sorted return paths of the copies.
fn paths(host: &Scribe) -> Vec<String> {
    let path = |mail: &String| mail.split(['<', '>']).nth(1).expect("a path").to_owned();
    let mut all: Vec<String> = host.heard("MAIL").iter().map(path).collect();
    all.sort();
    all
}

fn post(server: &Server, parameters: &str, fields: &str, delivered: u64) {
    let text = [fields.as_bytes(), POST].concat();
    post_with(server, &format!("<{SENDER}>{parameters}"), &TO, &text);
    assert_eq!(drained(server).delivered, delivered);
}

/// mlmmj's form, of mail that waits over a restart and that another server has passed on.
#[test]
fn each_copy_gets_the_path_that_the_client_asks_for() {
    let host = host();
    let mut server = bare().route("host.example", &[&host.host()]).start();
    assert!(server.operator(&["queue-only", "--all"]).status.success());
    let relayed = [b"Received: from a.test by b.test\r\n".as_slice(), POST].concat();
    post_with(&server, &format!("<{SENDER}> BODY=8BITMIME XVERP=-="), &TO, &relayed);
    server.kill();
    server.start_again();
    assert!(server.operator(&["queue-only", "--all", "--end"]).status.success());
    assert_eq!(drained(&server).delivered, 2);
    assert_eq!(paths(&host), ["ann", "bob"].map(|name| format!("talk+bounces-12-{name}=host.example@manager.test")));
    let contents = host.contents();
    assert!(contents.iter().all(|content| !content.windows(14).any(|text| text == b"Stentor-Copies")), "{contents:?}");
}

/// The message's own request, then the client's, then the configuration.
#[test]
fn what_the_message_asks_for_precedes_what_its_client_asks_for() {
    let host = host();
    let server = bare()
        .route("host.example", &[&host.host()])
        .set_in("senders.\"manager.test\"", "verp", "\"plain\"")
        .set_in("senders.\"manager.test\"", "copy_fields", "[\"X-For: {recipient}\"]")
        .start();
    post(&server, "", "", 2);
    assert!(paths(&host)[0].starts_with("talk+bounces-12+ann="));
    post(&server, " XVERP==-", "", 4);
    assert_eq!(paths(&host).iter().filter(|path| path.starts_with("talk+bounces-12=ann-host.example@")).count(), 1);
    assert!(host.contents().iter().all(|text| String::from_utf8_lossy(text).contains("X-For: ")), "as configured");
    wait_until("the history says so", || server.operator_text(&["trace", "ann@host.example"]).contains("XVERP==-"));
    post(&server, " XVERP", "X-Stentor-Copies: verp=off; field=\"X-A: b\"\r\n", 6);
    assert_eq!(paths(&host).iter().filter(|path| *path == SENDER).count(), 2);
}

/// Their copies come from the list's bounce address, which no client may change.
#[test]
fn posts_to_lists_of_this_server_are_taken_as_without_it() {
    let host = host();
    let server = bare()
        .route("host.example", &[&host.host()])
        .list("news", &["ann@host.example"])
        .set("lists.news.verp", "\"tagged\"")
        .start();
    post_with(&server, &format!("<{SENDER}> XVERP=-="), &["<news@lists.test>", "<bob@host.example>"], POST);
    assert_eq!(drained(&server).delivered, 2);
    let paths = paths(&host);
    assert!(paths[0].starts_with("news-bounces+") && paths[0].ends_with("-ann=host.example@lists.test"), "{paths:?}");
    assert_eq!(paths[1], "talk+bounces-12-bob=host.example@manager.test");
}

/// A list by `:include:` and its owner: what is configured for the owner's domain applies to the post of anybody.
#[test]
fn copies_from_an_alias_with_an_owner_have_what_is_configured_for_the_owner() {
    let host = host();
    let server =
        bare().route("host.example", &[&host.host()]).set_in("senders.\"home.test\"", "verp", "\"plain\"").prepare();
    std::fs::write(server.path("crew"), "ann@host.example\nbob@host.example\n").unwrap();
    let aliases = format!(
        "crew: :include:{}\nowner-crew: chief@host.example\nteam: ann@host.example\n",
        server.path("crew").display()
    );
    std::fs::write(server.path("aliases"), aliases).unwrap();
    server.edit_config(|text| {
        format!(
            "{text}\n[domains]\nlocal = [\"home.test\"]\n[tables.aliases]\nsource = \"aliases:{}\"\nas = \"aliases\"\n\
             [addresses]\naliases = \"aliases\"\norigin = \"home.test\"\n",
            server.path("aliases").display()
        )
    });
    let server = server.run();
    let expected = ["ann", "bob"].map(|name| format!("owner-crew+{name}=host.example@home.test"));
    for (n, client) in ["127.0.0.9", "127.0.0.1"].into_iter().enumerate() {
        let mut client = server.connect_from(client).greeted();
        client.send("eve@far.test", &["crew@home.test"], POST).expect(250);
        assert_eq!(drained(&server).delivered, 2 * (n as u64 + 1));
    }
    assert_eq!(paths(&host), [&expected[0], &expected[0], &expected[1], &expected[1]].map(String::as_str));
    // Anybody may write a sender, but nobody gets its settings by that, nor may a request come from outside.
    let mut stranger = server.connect_from("127.0.0.9").greeted();
    stranger.send("eve@home.test", &["team@home.test"], POST).expect(250);
    stranger.send("", &["crew@home.test"], POST).expect(250);
    assert_eq!(drained(&server).delivered, 7);
    let shared = paths(&host).into_iter().filter(|path| path == "eve@home.test" || path.is_empty());
    assert_eq!(shared.count(), 2, "a transaction each");
    // Its bounces come back to the owner, and are read.
    stranger.send("", &[&expected[0]], BOUNCE.as_bytes()).expect(250);
    server.wait_log(&["report: sender=<owner-crew@home.test>, to=<ann@host.example>, unproven, action=failed"]);
    assert_eq!(drained(&server).delivered, 8);
    assert!(host.heard("RCPT").last().unwrap().contains("chief@host.example"));
}

#[test]
fn only_trusted_clients_may_ask_and_users_within_their_own_address() {
    let server = bare().start();
    let mut smtp = server.smtp();
    let mut mail = |argument: &str| smtp.cmd(&format!("MAIL FROM:{argument}"));
    mail("<> XVERP").expect_text("501 5.5.4 XVERP needs a sender");
    mail(&format!("<{SENDER}> XVERP=-")).expect_text("501 5.5.4 XVERP takes two");
    mail(&format!("<{SENDER}> XVERP=#=")).expect_text("501 5.5.4 XVERP takes two");
    let mut stranger = server.connect_from("127.0.0.9");
    stranger.reply().expect(220);
    let offers = stranger.cmd("EHLO client.example").expect(250);
    assert!(!offers.lines.iter().any(|line| line == "XVERP"), "{offers}");
    stranger.cmd(&format!("MAIL FROM:<{SENDER}> XVERP=-=")).expect_text("555 5.5.4 Unknown parameter");
    stranger.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);

    let (_lab, server) = started(|builder| builder.set("auth.clear_networks", "[\"127.0.0.1\"]"));
    let mut user = Smtp::connect(server.address_of("submission"));
    user.reply().expect(220);
    assert!(!user.cmd("EHLO client.example").lines.iter().any(|line| line == "XVERP"), "not before the login");
    user.cmd("AUTH LOGIN").expect(334);
    user.cmd(&base64(b"ann@home.example")).expect(334);
    user.cmd(&base64(PASSWORD.as_bytes())).expect(235);
    assert!(user.cmd("EHLO client.example").lines.iter().any(|line| line == "XVERP"));
    user.cmd("MAIL FROM:<ann@home.example> XVERP=-=").expect_text("555 5.5.4 XVERP of a login must begin with +");
    user.cmd("MAIL FROM:<ann@home.example> XVERP").expect(250);
}

fn base64(octets: &[u8]) -> String {
    use base64ct::{Base64, Encoding as _};
    Base64::encode_string(octets)
}

/// As Postfix does: a manager that reads the subscriber in the return path counts the bounces of refused recipients.
#[test]
fn our_own_reports_go_to_the_path_of_each_failed_copy() {
    let manager = host();
    let host = Scribe::start(&["PIPELINING"], &[("RCPT", "550 5.1.1 unknown")]);
    let server = bare()
        .route("host.example", &[&host.host()])
        .route("manager.test", &[&manager.host()])
        .set("domains.relay", "[\"manager.test\"]")
        .set("retry.bounce_gather_ms", "200")
        .set_in("senders.\"manager.test\"", "verp", "\"{local}-{user}={host}@{domain}\"")
        .start();
    post_with(&server, &format!("<{SENDER}> XVERP=-="), &TO, POST);
    assert_eq!(drained(&server).bounced, 2);
    let mut reports: Vec<String> =
        manager.heard("RCPT").iter().map(|line| line.split(['<', '>']).nth(1).unwrap().to_owned()).collect();
    reports.sort();
    let expected = ["ann", "bob"].map(|name| format!("talk+bounces-12-{name}=host.example@manager.test"));
    assert_eq!(reports, expected);
    for text in manager.contents() {
        let text = String::from_utf8(text).expect("ASCII");
        let (header, body) = text.split_once("\r\n\r\n").expect("a header");
        let name = if body.contains("ann@host.example") { "ann" } else { "bob" };
        assert!(header.contains(&format!("To: <talk+bounces-12-{name}=host.example@manager.test>")), "{text}");
        assert_eq!(body.matches("Final-Recipient:").count(), 1, "{text}");
    }
    // Those of other hosts are read where `[senders]` has the same form.
    let mut stranger = server.connect_from("127.0.0.9").greeted();
    stranger.send("", &[&expected[0]], BOUNCE.as_bytes()).expect(250);
    server.wait_log(&[&format!("report: sender=<{SENDER}>, to=<ann@host.example>, unproven, action=failed")]);
}
