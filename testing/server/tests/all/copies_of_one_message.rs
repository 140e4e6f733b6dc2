//! Copies of their own for one message (docs/operate/copies.md): asked for in its header or over HTTP.

use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use stentor_harness::{Answer, Builder, Smtp, TestLab, message_with, wait_until};

use crate::auth::{PASSWORD, started};
use crate::copies::{host, path};
use crate::dkim::{add_keys, assert_signed};
use crate::http_auth::with_token;
use crate::kit::{bare, builder, drained};
use crate::milters::script::{Milter, says, texts};
use crate::scribe::Scribe;
use crate::submission::{submit, taking};

const SENDER: &str = "shop@shop.test";
const TO: [&str; 2] = ["ann@host.example", "bob@host.example"];

fn linked(host: &Scribe) -> Builder {
    bare()
        .route("host.example", &[&host.host()])
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.link_base", "\"https://u.test\"")
}

/// A message that asks so.
fn asking(fields: &str) -> Vec<u8> {
    format!("From: <{SENDER}>\r\nTo: all@shop.test\r\n{fields}Subject: News\r\n\r\nx\r\n").into_bytes()
}

fn texts_at(host: &Scribe) -> Vec<String> {
    host.contents().into_iter().map(|content| String::from_utf8(content).expect("ASCII")).collect()
}

/// No copy shows the request.
#[track_caller]
fn assert_removed(host: &Scribe) {
    for text in texts_at(host) {
        assert!(!text.to_ascii_lowercase().contains("x-stentor-copies") && !text.contains("verp="), "{text}");
    }
}

/// Sorted senders of the copies, without the parameters of MAIL.
fn senders(host: &Scribe) -> Vec<String> {
    let mut all: Vec<String> =
        host.heard("MAIL").iter().map(|mail| mail.split(['<', '>']).nth(1).expect("a path").to_owned()).collect();
    all.sort();
    all
}

const EACH_OWN: [&str; 2] = ["shop+ann=host.example@shop.test", "shop+bob=host.example@shop.test"];

#[test]
fn a_trusted_clients_message_asks_for_its_copies() {
    let host = host();
    let server = linked(&host).prepare();
    add_keys(&server, "shop.test", &[]);
    let mut server = server.run();
    assert!(server.operator(&["queue-only", "--all"]).status.success());
    let fields = "X-Stentor-Copies: verp=plain;\r\n one_click; field=\"Feedback-ID: {message}:shop\"\r\n";
    let id = server.smtp().send(SENDER, &TO, &asking(fields)).expect(250).queue_id();
    // What was accepted survives, though nothing is configured.
    server.kill();
    server.start_again();
    assert!(server.operator(&["queue-only", "--all", "--end"]).status.success());
    assert_eq!(drained(&server).delivered, 2);
    assert_eq!(senders(&host), EACH_OWN);
    assert_removed(&host);
    for text in texts_at(&host) {
        assert!(text.contains(&format!("\r\nFeedback-ID: {id}:shop\r\n")), "{text}");
        assert!(text.contains("\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"), "{text}");
        let signed = text.split("h=").nth(1).expect("a signature").split(';').next().expect("it ends");
        let signed = signed.to_ascii_lowercase();
        assert!(signed.contains("list-unsubscribe:") && signed.contains("feedback-id"), "{signed}");
    }
    assert_signed(&server, &host.contents(), &["shop.test"]);
    // MAIL names the octets that are sent.
    for (content, mail) in host.contents().iter().zip(host.heard("MAIL")) {
        assert!(mail.split(' ').any(|word| *word == format!("SIZE={}", content.len())), "{mail}");
    }
    // The next message asks for nothing.
    server.smtp().send(SENDER, &TO, &asking("")).expect(250);
    assert_eq!(drained(&server).delivered, 4);
    assert_eq!(senders(&host).iter().filter(|sender| **sender == SENDER).count(), 1, "a transaction for both");
}

#[test]
fn its_link_ends_the_mail_of_the_sender() {
    let host = host();
    let server = linked(&host).start();
    let asked = asking("X-Stentor-Copies: one_click\r\n");
    let id = server.smtp().send(SENDER, &TO[..1], &asked).expect(250).queue_id();
    drained(&server);
    let traced = || server.operator_text(&["trace", &id]);
    wait_until("the history says so", || traced().contains("own copies: one_click=true"));
    let text = texts_at(&host).remove(0);
    let link = text.split("<https://u.test").nth(1).expect("a link").split('>').next().expect("it ends").to_owned();
    let ask = server.http("POST", &link).header("Host", "u.test");
    ask.body("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click").send().expect(200);
    let mut client = server.smtp();
    client.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    client.cmd("RCPT TO:<ann@host.example>").expect_text("550 5.7.1 Recipient is suppressed for this sender");
    client.cmd("RCPT TO:<bob@host.example>").expect(250);
}

/// What is configured holds where the message says nothing, and not where it does.
#[test]
fn a_request_overrides_the_configuration() {
    let host = host();
    let server = linked(&host)
        .set_in("senders.\"shop.test\"", "verp", "\"tagged\"")
        .set_in("senders.\"shop.test\"", "copy_fields", "[\"X-For: {recipient}\"]")
        .list("news", &TO)
        .set("lists.news.one_click", "true")
        .start();
    server.smtp().send(SENDER, &TO, &asking("X-Stentor-Copies: verp=off\r\n")).expect(250);
    drained(&server);
    assert_eq!(senders(&host), [SENDER, SENDER]);
    assert!(texts_at(&host).iter().all(|text| text.contains("X-For: ")), "copies stay apart");
    server.smtp().send(SENDER, &TO, &asking("X-Stentor-Copies: field=off; verp=plain\r\n")).expect(250);
    assert_eq!(drained(&server).delivered, 4);
    assert_eq!(senders(&host)[..2], EACH_OWN);
    assert!(texts_at(&host)[2..].iter().all(|text| !text.contains("X-For")));
    let post = asking("X-Stentor-Copies: verp=tagged; field=\"X-List: {list}\"\r\n");
    server.smtp().send("ed@shop.test", &["news@lists.test"], &post).expect(250);
    assert_eq!(drained(&server).delivered, 6);
    for text in &texts_at(&host)[4..] {
        assert!(text.contains("X-List: news\r\n") && text.contains("https://u.test/unsubscribe/"), "{text}");
    }
    assert_removed(&host);
    // Its bounce is read though the list has no return paths.
    let bounce = "From: mailer@host.example\r\nSubject: failed\r\nContent-Type: multipart/report;\r\n \
                  report-type=delivery-status; boundary=r\r\n\r\n--r\r\n\r\nSorry.\r\n--r\r\n\
                  Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; host.example\r\n\r\n\
                  Final-Recipient: rfc822; other@host.example\r\nAction: failed\r\nStatus: 5.1.1\r\n--r--\r\n";
    server.smtp().send("", &[&path(&host, "ann")], bounce.as_bytes()).expect(250);
    server.wait_log(&["report: list=news, to=<ann@host.example>, proven"]);
}

#[test]
fn what_cannot_be_met_is_refused() {
    let host = host();
    let server = bare()
        .route("host.example", &[&host.host()])
        .list("news", &TO)
        .set_in("senders.\"reset.test\"", "transactional", "true")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .start();
    let refused = |sender: &str, to: &str, fields: &str, wanted: &str| {
        let reply = server.smtp().send(sender, &[to], &asking(fields));
        assert!(reply.to_string().starts_with(wanted), "{fields}: not {wanted}: {reply}");
    };
    let long = format!("X-Stentor-Copies: field=\"X-A: {}\"\r\n", "yyyyyyyyyyyyyyyyyyyyyyyy;\r\n ".repeat(5_000));
    // Each backslash is two octets where it is stored.
    let doubled = format!("X-Stentor-Copies: field=X-A: {}\r\n", "\\".repeat(4_091));
    let far = format!(
        "{}X-Stentor-Copies: verp=loud\r\n",
        "X-Filler: 0123456789012345678901234567890123456789\r\n".repeat(7_000)
    );
    let beyond = format!("{}X-Stentor-Copies: verp=plain\r\n", format!("X-F: {}\r\n", "z".repeat(900)).repeat(1_300));
    for (fields, wanted) in [
        ("X-Stentor-Copies: verp=loud\r\n", "554 5.6.0 X-Stentor-Copies: `verp`: "),
        ("X-Stentor-Copies:\r\n", "554 5.6.0 X-Stentor-Copies: no items"),
        (
            "X-Stentor-Copies: verp=plain\r\nx-stentor-copies : verp=off\r\n",
            "554 5.6.0 X-Stentor-Copies: only one request is allowed",
        ),
        ("X-Stentor-Copies: verp=plain; \u{fc}\r\n", "554 5.6.0 X-Stentor-Copies: only printable ASCII"),
        ("X-Stentor-Copies: one_click\r\n", "554 5.3.5 X-Stentor-Copies: `one_click` needs `link_base`"),
        ("X-Stentor-Copies: field=\"X-A: {list}\"\r\n", "554 5.6.0 X-Stentor-Copies: {list} is only"),
        ("X-Stentor-Copies: field=\"Subject: x\"\r\n", "554 5.6.0 X-Stentor-Copies: `field`: `Subject` cannot"),
        (&long, "554 5.6.0 X-Stentor-Copies: more than 8192 octets"),
        (&doubled, "554 5.6.0 X-Stentor-Copies: more than 8192 octets"),
        (
            "X-Stentor-Copies: field=\"X-Stentor-Report: x\"\r\n",
            "554 5.6.0 X-Stentor-Copies: `field`: `X-Stentor-Report`",
        ),
        // In pieces that are stored before the whole header is known.
        (&far, "554 5.6.0 X-Stentor-Copies: `verp`: "),
        (&beyond, "552 5.3.4"),
    ] {
        refused(SENDER, TO[0], fields, wanted);
    }
    refused("", TO[0], "X-Stentor-Copies: verp=plain\r\n", "554 5.6.0 X-Stentor-Copies: mail from the null sender");
    let template = "X-Stentor-Copies: verp={local}-{user}={host}@{domain}\r\n";
    refused(
        SENDER,
        "news@lists.test",
        template,
        "554 5.6.0 X-Stentor-Copies: `verp` must begin with {local}+ for a list",
    );
    server.edit_config(|text| text.replace("[http]\n", "[http]\nlink_base = \"https://u.test\"\n"));
    let reloaded = server.operator(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    let linked = "X-Stentor-Copies: one_click\r\n";
    refused("a@reset.test", TO[0], linked, "554 5.6.0 X-Stentor-Copies: transactional mail cannot have");
    assert_eq!(drained(&server).acknowledged, 0, "nothing of them was accepted");
    server.smtp().send(SENDER, &TO[..1], &asking(linked)).expect(250);
    drained(&server);
    assert!(texts_at(&host)[0].contains("https://u.test/unsubscribe/"));
}

/// Neither untrusted clients nor the authors of relayed mail are obeyed, and their field goes no further.
#[test]
fn requests_of_untrusted_and_relayed_mail_are_ignored() {
    let host = host();
    let server = linked(&host).list("news", &TO).set("lists.news.one_click", "true").start();
    let request =
        "X-Stentor-Copies: verp=plain; one_click=false;\r\n field=\"List-Unsubscribe: <https://evil.test/>\"\r\n";
    let invalid = "X-Stentor-Copies: verp=loud\r\nX-Stentor-Copies: \u{fc}\r\n";
    for fields in [request, invalid] {
        let mut client = server.connect_from("127.0.0.2").greeted();
        client.send("ann@host.example", &["news@lists.test"], &asking(fields)).expect(250);
    }
    // An outsider's mail that a trusted server passes on.
    let relayed = format!("Received: from evil.test by mx.other.test\r\n{request}");
    server.smtp().send("ann@host.example", &["news@lists.test"], &asking(&relayed)).expect(250);
    server.smtp().send("eve@evil.test", &TO, &asking(&relayed)).expect(250);
    server.wait_log(&["X-Stentor-Copies ignored: the message has a Received field"]);
    assert_eq!(drained(&server).delivered, 8);
    assert_removed(&host);
    let senders = senders(&host);
    assert_eq!(senders.iter().filter(|sender| **sender == "news-bounces@lists.test").count(), 6, "{senders:?}");
    assert_eq!(senders.iter().filter(|sender| **sender == "eve@evil.test").count(), 1, "{senders:?}");
    for text in texts_at(&host) {
        let is_post = text.contains("List-Id:");
        assert!(!text.contains("evil.test/") && text.contains("https://u.test/unsubscribe/") == is_post, "{text}");
    }
}

/// Whoever posts: what the list gives its copies is the list's. An API token speaks for its owner.
#[test]
fn posts_cannot_weaken_what_their_list_has() {
    let host = host();
    let builder = linked(&host)
        .list("news", &TO)
        .set("lists.news.verp", "\"tagged\"")
        .set("lists.news.one_click", "true")
        .set("lists.news.copy_fields", "[\"X-For: {recipient}\"]")
        .list("open", &TO);
    let (server, token) = with_token(builder);
    let refused = |list: &str, items: &str, wanted: &str| {
        let to = format!("{list}@lists.test");
        let reply = server.smtp().send("ed@shop.test", &[&to], &asking(&format!("X-Stentor-Copies: {items}\r\n")));
        let wanted = format!("554 5.7.1 X-Stentor-Copies: {wanted}");
        assert!(reply.to_string().starts_with(&wanted), "{items}: {reply}");
    };
    for (list, items, wanted) in [
        ("news", "verp=off", "the list has its own `verp`"),
        ("news", "verp=plain", "the list has its own `verp`"),
        ("news", "one_click=false", "the list has `one_click`"),
        ("news", "field=off", "the list has its own `copy_fields`"),
        ("news", "field=\"To: <x@evil.test>\"", "the list has its own `copy_fields`"),
        ("news", "field=\"List-Unsubscribe: <https://evil.test/>\"", "fields that begin with `List-`"),
        ("open", "field=\"List-Owner: <mailto:x@evil.test>\"", "fields that begin with `List-`"),
    ] {
        refused(list, items, wanted);
    }
    server
        .smtp()
        .send("ed@shop.test", &["news@lists.test"], &asking("X-Stentor-Copies: verp=tagged; one_click\r\n"))
        .expect(250);
    server
        .smtp()
        .send("ed@shop.test", &["open@lists.test"], &asking("X-Stentor-Copies: field=\"X-A: b\"\r\n"))
        .expect(250);
    assert_eq!(drained(&server).delivered, 4);
    let order = json!({"sender": "ed@shop.test", "list": "news", "message": "From: <e@x.test>\n\nx\n",
        "copies": {"verp": "off", "one_click": false, "fields": ["List-Owner: <mailto:chief@x.test>"]}});
    server.http("POST", "/api/v1/messages").token(&token).json(&order).send().expect(201);
    assert_eq!(drained(&server).delivered, 6);
    let by_token: Vec<String> = texts_at(&host).into_iter().filter(|text| text.contains("chief@x.test")).collect();
    assert!(by_token.len() == 2 && by_token.iter().all(|text| !text.contains("/unsubscribe/")), "{by_token:?}");
    assert_eq!(senders(&host).iter().filter(|sender| **sender == "news-bounces@lists.test").count(), 2);
}

/// A tag of a list proves that somebody got its mail, so nothing else has one.
#[test]
fn only_a_lists_mail_has_its_return_paths() {
    let host = host();
    let builder = linked(&host).list("news", &TO).set("lists.news.verp", "\"tagged\"").set_in(
        "senders.\"lists.test\"",
        "verp",
        "\"tagged\"",
    );
    let (server, token) = with_token(builder);
    for sender in ["news-bounces@lists.test", "NEWS-Bounces@Lists.test"] {
        for items in ["verp=tagged", "verp={local}+{tag}-{user}={host}@{domain}", "one_click"] {
            let reply = server.smtp().send(sender, &TO, &asking(&format!("X-Stentor-Copies: {items}\r\n"))).to_string();
            assert!(reply.starts_with("554 5.7.1 X-Stentor-Copies: ") && reply.contains("bounce address"), "{reply}");
        }
    }
    let order = json!({"sender": "news-bounces@lists.test", "recipients": TO, "message": "From: <e@x.test>\n\nx\n",
        "copies": {"verp": "tagged"}});
    let reply = server.http("POST", "/api/v1/messages").token(&token).json(&order).send().expect(422).text();
    assert!(reply.contains("bounce address"), "{reply}");
    // The domain's own mail has tags, except in the list's name.
    server.smtp().send("NEWS-bounces@lists.test", &TO, &asking("")).expect(250);
    server.smtp().send("ed@lists.test", &TO, &asking("")).expect(250);
    assert_eq!(drained(&server).delivered, 4);
    let senders = senders(&host);
    assert!(!senders.iter().any(|sender| sender.to_ascii_lowercase().starts_with("news-bounces+")), "{senders:?}");
    assert_eq!(senders.iter().filter(|sender| sender.starts_with("ed+")).count(), 2, "{senders:?}");
    server.smtp().send("ed@shop.test", &["news@lists.test"], &asking("")).expect(250);
    assert_eq!(drained(&server).delivered, 6);
    assert!(path(&host, "ann").starts_with("news-bounces+"));
}

/// Such copies leave without their link, and the log says why.
#[test]
fn a_reload_without_link_base_is_said_when_copies_leave() {
    let host = host();
    let server = linked(&host).start();
    assert!(server.operator(&["queue-only", "--all"]).status.success());
    server.smtp().send(SENDER, &TO, &asking("X-Stentor-Copies: one_click\r\n")).expect(250);
    server.edit_config(|text| text.replace("link_base = \"https://u.test\"\n", ""));
    assert!(server.operator(&["reload"]).status.success());
    assert!(server.operator(&["queue-only", "--all", "--end"]).status.success());
    assert_eq!(drained(&server).delivered, 2);
    assert!(texts_at(&host).iter().all(|text| !text.contains("List-Unsubscribe")));
    server.wait_log(&["copies are sent without the unsubscribe links that their messages asked for"]);
    assert_eq!(server.log().matching(&["copies are sent without the unsubscribe links"]).len(), 1);
}

/// A milter may add what it likes; this is neither obeyed nor sent.
#[test]
fn requests_added_by_milters_are_ignored() {
    let lab = TestLab::sites(&["one.example"]);
    let milter = Milter::start(|command, _| match command {
        'E' => vec![
            says('h', texts(&["X-Stentor-Copies", "verp=plain"])),
            says('h', texts(&["X-Milter", "was here"])),
            says('b', "New\r\n"),
            says('a', ""),
        ],
        _ => Vec::new(),
    });
    let server = builder(&lab).prepare();
    server.edit_config(|text| format!("{text}\n{}", milter.config("adds", "")));
    let server = server.run();
    let wire = |id: &str, fields: &str| message_with(id, fields, "Old\r\n");
    server.smtp().send(SENDER, &["ann@one.example"], &wire("m1@test", "")).expect(250);
    // The client's own request holds, whatever milters do to the message behind it.
    let fields = "X-Stentor-Copies: verp=plain\r\n";
    server.smtp().send(SENDER, &["bob@one.example"], &wire("m2@test", fields)).expect(250);
    drained(&server);
    for (to, sender) in [("ann@one.example", SENDER), ("bob@one.example", "shop+bob=one.example@shop.test")] {
        let body = String::from_utf8(lab.body_for(to)).expect("ASCII");
        assert!(body.contains("X-Milter: was here") && !body.contains("X-Stentor-Copies"), "{body}");
        assert_eq!(&*lab.recorder().copies_to(to)[0].sender, sender);
    }
}

#[test]
fn local_programs_can_ask_and_get_errors_by_mail() {
    let lab = TestLab::start("[[site]]\nname = 'one.example'\n[[site]]\nname = 'shop.test'\n");
    let server = taking(builder(&lab)).start();
    let text = "To: ann@one.example, bob@one.example\nX-Stentor-Copies: verp=plain\nSubject: x\n\nx\n";
    submit(&server, &["-ti", "-f", SENDER], text);
    lab.wait("both copies", |recorder| {
        !recorder.copies_to("ann@one.example").is_empty() && !recorder.copies_to("bob@one.example").is_empty()
    });
    for name in ["ann", "bob"] {
        let to = format!("{name}@one.example");
        assert_eq!(*lab.recorder().copies_to(&to)[0].sender, *format!("shop+{name}=one.example@shop.test"));
        assert!(!String::from_utf8(lab.body_for(&to)).expect("ASCII").contains("X-Stentor"));
    }
    submit(&server, &["-ti", "-f", SENDER], &text.replace("verp=plain", "verp=loud"));
    lab.wait("a report", |recorder| !recorder.copies_to(SENDER).is_empty());
    let report = String::from_utf8(lab.body_for(SENDER)).expect("ASCII");
    assert!(report.contains("X-Stentor-Copies: `verp`:"), "{report}");
}

/// A user may not use return paths that are another's address.
#[test]
fn users_ask_within_their_address() {
    let (lab, server) = started(|builder| builder.set("auth.clear_networks", "[\"127.0.0.1\"]"));
    let mut client = Smtp::connect(server.address_of("submission")).greeted();
    let secret = Base64::encode_string(format!("\0ann@home.example\0{PASSWORD}").as_bytes());
    client.cmd(&format!("AUTH PLAIN {secret}")).expect(235);
    let ann = "ann@home.example";
    let message =
        |verp: &str| format!("From: <{ann}>\r\nX-Stentor-Copies: verp={verp}\r\nSubject: x\r\n\r\nx\r\n").into_bytes();
    let template = message("{local}a+{user}={host}@{domain}");
    client
        .send(ann, &["bob@one.example"], &template)
        .expect_text("554 5.6.0 X-Stentor-Copies: `verp` must begin with {local}+ for a user");
    client.send(ann, &["bob@one.example"], &message("plain")).expect(250);
    drained(&server);
    assert_eq!(&*lab.recorder().copies_to("bob@one.example")[0].sender, "ann+bob=one.example@home.example");
}

/// DSNs to the sender name the sender that was handed in.
#[test]
fn reports_go_to_the_sender_that_was_handed_in() {
    let lab = TestLab::start("[[site]]\nname = 'shop.test'\n");
    let gone = Scribe::start(&[], &[("RCPT", "550 5.1.1 unknown")]);
    let server = builder(&lab).route("host.example", &[&gone.host()]).start();
    server.smtp().send(SENDER, &TO[..1], &asking("X-Stentor-Copies: verp=plain\r\n")).expect(250);
    lab.wait("a report", |recorder| !recorder.copies_to(SENDER).is_empty());
    let report = String::from_utf8(lab.body_for(SENDER)).expect("ASCII");
    assert!(!report.contains("X-Stentor-Copies") && report.contains("ann@host.example"), "{report}");
    assert_eq!(gone.heard("MAIL").len(), 1);
    assert!(gone.heard("MAIL")[0].contains("<shop+ann=host.example@shop.test>"));
}

#[test]
fn http_submissions_ask_beside_the_message() {
    let host = host();
    let (server, token) = with_token(linked(&host).list("news", &TO));
    let order = |copies: Value| json!({"sender": SENDER, "recipients": TO, "copies": copies, "message": "From: <shop@shop.test>\nSubject: x\n\nx\n"});
    let post = |order: &Value| -> Answer { server.http("POST", "/api/v1/messages").token(&token).json(order).send() };
    for (copies, wanted) in [
        (json!({"verp": "loud"}), "copies: `verp`: "),
        (json!({"verp": ""}), "copies: `verp`: "),
        (json!({"fields": ["Subject: x"]}), "copies: `field`: `Subject` cannot be set"),
        (json!({"fields": ["X-A: \u{fc}"]}), "copies: only printable ASCII"),
        (json!({"fields": ["X-A: b\r\nBcc: c@d"]}), "copies: only printable ASCII"),
        (json!({}), "copies: no items"),
        (json!({"one_click": true, "fields": ["List-Unsubscribe: <x>"]}), "copies: `one_click` and `field` both set"),
        (json!({"one-click": true}), "unknown field"),
        (json!({"one_click": "yes"}), "invalid type"),
    ] {
        let refused = post(&order(copies.clone())).expect(400).text();
        assert!(refused.contains(wanted), "{copies}: {refused}");
    }
    let mut transactional = order(json!({"one_click": true}));
    transactional["class"] = json!("transactional");
    assert!(post(&transactional).expect(422).text().contains("transactional mail cannot have `one_click`"));
    // In the header as well.
    let mut both = order(json!({"verp": "plain"}));
    both["message"] = json!("From: <shop@shop.test>\nX-Stentor-Copies: verp=off\n\nx\n");
    assert!(post(&both).expect(422).text().contains("554 5.6.0 X-Stentor-Copies: only one request is allowed"));
    let copies = json!({"verp": "plain", "one_click": true, "fields": ["X-For: {recipient}"]});
    post(&order(copies)).expect(201);
    assert_eq!(drained(&server).delivered, 2);
    assert_eq!(senders(&host), EACH_OWN);
    assert!(texts_at(&host).iter().all(|text| text.contains("X-For: ") && text.contains("https://u.test/unsub")));
    // A raw message asks in the query, also one that has passed other servers.
    let raw = |copies: &str| {
        let path = format!("/api/v1/messages?sender={SENDER}&recipient={}&copies={copies}", TO[0]);
        let text = b"Received: from a.test by b.test\nFrom: <shop@shop.test>\nSubject: x\n\nx\n";
        server.http("POST", &path).token(&token).body("message/rfc822", text).send()
    };
    assert!(raw("verp=loud").expect(400).text().contains("copies: `verp`: "));
    assert!(raw("verp=off&copies=one_click").expect(400).text().contains("given twice"));
    raw("verp=plain;%20field=%22X-Raw:%20{message}%22").expect(201);
    assert_eq!(drained(&server).delivered, 3);
    assert_eq!(senders(&host)[..2], [EACH_OWN[0], EACH_OWN[0]]);
    assert!(texts_at(&host)[2].contains("X-Raw: "));
    // A post over HTTP.
    let news = json!({"sender": "ed@shop.test", "list": "news", "copies": {"fields": ["X-L: {list}"]}, "message": "From: <e@x.test>\n\nx\n"});
    post(&news).expect(201);
    assert_eq!(drained(&server).delivered, 5);
    assert!(texts_at(&host)[3..].iter().all(|text| text.contains("X-L: news\r\n")));
    assert_removed(&host);
}

#[test]
fn http_submissions_with_links_need_link_base() {
    let (server, token) = with_token(bare());
    let order = json!({"sender": SENDER, "recipients": TO, "copies": {"one_click": true}, "message": "From: <a@b.test>\n\nx\n"});
    let refused = server.http("POST", "/api/v1/messages").token(&token).json(&order).send().expect(422).text();
    assert!(refused.contains("554 5.3.5 X-Stentor-Copies: `one_click` needs `link_base` in [http]"), "{refused}");
}

/// A copy out of the quarantine is the operator's mail, not the sender's.
#[test]
fn a_copy_from_the_quarantine_shows_no_request() {
    let host = host();
    let server = linked(&host).prepare();
    let rule = format!("[[rules]]\nsender = \"{SENDER}\"\ndo = \"quarantine looks odd\"\n");
    server.edit_config(|text| format!("{text}\n{rule}"));
    let server = server.run();
    let id = server.smtp().send(SENDER, &TO[..1], &asking("X-Stentor-Copies: verp=plain\r\n")).expect(250).queue_id();
    for (arguments, copies) in [(&["--to", "bob@host.example"][..], 1), (&[], 2)] {
        let release = [&["quarantine", "release", "--id", &id], arguments].concat();
        let done = server.operator(&release);
        assert!(done.status.success(), "{done:?}");
        wait_until("a copy", || host.contents().len() == copies);
    }
    assert_removed(&host);
    assert_eq!(senders(&host), ["", EACH_OWN[0]]);
}

/// `explain` says what the server does.
#[test]
fn explain_shows_the_request_or_its_refusal() {
    let host = host();
    let server = bare().route("host.example", &[&host.host()]).start();
    let explained = |fields: &str, client: &str| {
        server.write("message", &asking(fields));
        let file = server.path("message").display().to_string();
        let arguments = ["explain", "--from", SENDER, "--to", TO[0], "--client", client, "--message", &file];
        String::from_utf8(server.operator(&arguments).stdout).expect("UTF-8")
    };
    let request = "X-Stentor-Copies: verp=plain\r\n";
    let said = explained(request, "127.0.0.1");
    assert!(said.contains("own copies: verp=plain"), "{said}");
    let said = explained("X-Stentor-Copies: one_click\r\n", "127.0.0.1");
    assert!(said.contains("554 5.3.5 X-Stentor-Copies: `one_click` needs `link_base`"), "{said}");
    let said = explained(&format!("Received: x\r\n{request}"), "127.0.0.1");
    assert!(said.contains("ignored: the message has a Received field"), "{said}");
    server.smtp().send(SENDER, &TO[..1], &asking("X-Stentor-Copies: one_click\r\n")).expect_text("554 5.3.5");
}
