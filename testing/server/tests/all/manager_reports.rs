//! Bounces and complaints that come back to return paths of managers' mail (docs/operate/copies.md), and how managers
//! get them: by mail as they came, as events, in listmonk's form.

use std::collections::BTreeSet;

use serde_json::Value;
use stentor_harness::{Builder, Receiver, Server, wait_until};

use crate::copies::{POST, host, path};
use crate::kit::{bare, drained};
use crate::scribe::Scribe;

const SENDER: &str = "talk-bounces@manager.test";
const SECRET: &str = "\"0123456789abcdef0123456789abcdef\"";

/// A server in front of a manager whose domain it relays.
fn in_front_of(manager: &Scribe, host: &Scribe, verp: &str) -> Builder {
    bare()
        .route("host.example", &[&host.host()])
        .route("manager.test", &[&manager.host()])
        .set("domains.relay", "[\"manager.test\"]")
        .set_in("senders.\"manager.test\"", "verp", &format!("{verp:?}"))
}

fn hook(builder: Builder, name: &str, receiver: &Receiver, keys: &[(&str, &str)]) -> Builder {
    let section = format!("webhooks.{name}");
    let builder = builder.set_in(&section, "url", &format!("{:?}", receiver.url("/webhooks/bounce")));
    let builder = builder.set_in(&section, "batch_wait_ms", "50");
    keys.iter().fold(builder, |builder, (key, value)| builder.set_in(&section, key, value))
}

/// A new endpoint begins at the present: it must be there before the mail.
fn wait_begun(server: &Server, names: &[&str]) {
    wait_until("all endpoints have begun", || {
        names.iter().all(|name| server.path(&format!("data/webhooks/{name}.position")).exists())
    });
}

fn post(server: &Server, delivered: u64) {
    server.smtp().send(SENDER, &["ann@host.example", "bob@host.example"], POST.as_bytes()).expect(250);
    assert_eq!(drained(server).delivered, delivered);
}

fn bounce(reply: &str) -> String {
    format!(
        "From: MAILER-DAEMON@host.example\r\nSubject: failed\r\nContent-Type: multipart/report;\r\n \
         report-type=delivery-status; boundary=r\r\n\r\n--r\r\n\r\nSorry.\r\n--r\r\nContent-Type: message/delivery-status\r\n\r\n\
         Reporting-MTA: dns; host.example\r\n\r\nFinal-Recipient: rfc822; other@host.example\r\nAction: failed\r\n\
         Status: 5.0.0\r\nDiagnostic-Code: smtp; {reply}\r\n--r\r\nContent-Type: text/rfc822-headers\r\n\r\n\
         Message-ID: <1@manager.test>\r\nX-Listmonk-Campaign: 9f86b50d-5711-41c8-ab03-bc91c43d711b\r\n--r--\r\n"
    )
}

fn complaint(original: &str) -> String {
    format!(
        "From: fbl@host.example\r\nSubject: complaint\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=r\r\n\r\n\
         --r\r\n\r\nA complaint.\r\n--r\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: x/1\r\n\
         Version: 1\r\nOriginal-Mail-From: <{original}>\r\n\r\n--r\r\nContent-Type: message/rfc822\r\n\r\n{POST}--r--\r\n"
    )
}

/// From a client that nobody trusts.
#[track_caller]
fn send(server: &Server, from: &str, to: &str, message: &str) {
    server.connect_from("127.0.0.9").greeted().send(from, &[to], message.as_bytes()).expect(250);
}

/// The manager got the message as it came, behind our Received.
#[track_caller]
fn assert_relayed(manager: &Scribe, message: &str) {
    wait_until("the manager has it", || {
        manager.contents().iter().any(|content| {
            let text = String::from_utf8_lossy(content);
            text.starts_with("Received:") && text.ends_with(message) && !text.contains("X-Stentor-Report")
        })
    });
}

fn rcpt(server: &Server, sender: &str, to: &str) -> String {
    let mut client = server.smtp();
    client.cmd(&format!("MAIL FROM:<{sender}>")).expect(250);
    format!("{:?}", client.cmd(&format!("RCPT TO:<{to}>")))
}

fn events(receiver: &Receiver) -> Vec<Value> {
    let (taken, mut seen) = (receiver.taken(), BTreeSet::new());
    let all = taken.iter().flat_map(|request| request.json()["events"].as_array().cloned().unwrap_or_default());
    all.filter(|event| seen.insert(event["id"].as_str().expect("an id").to_owned())).collect()
}

#[test]
fn reports_are_understood_and_reach_the_manager_as_they_came() {
    let (manager, host) = (host(), host());
    let (own, other) = (Receiver::start(|_| 200), Receiver::start(|_| 200));
    let builder = in_front_of(&manager, &host, "tagged");
    let keys = |domain| [("secret", SECRET), ("events", "[\"report\", \"delivered\"]"), ("senders", domain)];
    let builder = hook(builder, "own", &own, &keys("[\"Manager.test\"]"));
    let server = hook(builder, "other", &other, &keys("[\"other.test\"]")).start();
    wait_begun(&server, &["own", "other"]);
    post(&server, 2);
    let (ann, bob) = (path(&host, "ann"), path(&host, "bob"));
    let failed = bounce("550 5.1.1 User unknown");
    send(&server, "", &ann, &failed);
    server.wait_log(&[
        "report: sender=<talk-bounces@manager.test>, to=<ann@host.example>, proven, action=failed, cause=no_mailbox",
        "from=manager.test",
        "dsn=<5.1.1>, post=<1@manager.test>",
    ]);
    assert_relayed(&manager, &failed);
    // Neither people nor programs that answer are bounces.
    for text in
        ["Subject: Hi\r\n\r\nThank you.\r\n", "Subject: Away\r\nAuto-Submitted: auto-replied\r\n\r\nNext week.\r\n"]
    {
        send(&server, "ann@host.example", &ann, text);
        assert_relayed(&manager, text);
    }
    // Anybody can write a complaint, but not its tag.
    let forged = bob.replace("-bob=", "-ann=");
    send(&server, "fbl@host.example", &forged, &complaint(&forged));
    server.wait_log(&["report: sender=", "to=<ann@host.example>, unproven, action=complained"]);
    assert!(!rcpt(&server, SENDER, "ann@host.example").contains("550"));
    // Feedback loops have one address; the report names the return path.
    let real = complaint(&bob);
    send(&server, "fbl@host.example", "abuse@manager.test", &real);
    server.wait_log(&["report: sender=", "to=<bob@host.example>, proven, action=complained"]);
    assert_relayed(&manager, &real);
    assert!(rcpt(&server, SENDER, "bob@host.example").contains("Recipient is suppressed for this sender"));
    assert!(!rcpt(&server, "news-bounces@manager.test", "bob@host.example").contains("550"));
    send(&server, "fbl@host.example", &bob, &real);
    server.wait_log(&["to=<bob@host.example>, repeated, action=complained"]);
    assert_eq!(server.log().matching(&["report: sender="]).len(), 4, "{:?}", server.log().matching(&["report: "]));
    // The rates by sender count it.
    wait_until("it counts", || {
        let report = server.ask(&["report"]).expect("a report");
        let rows = report["complaints"].as_array().cloned();
        rows.unwrap_or_default().iter().any(|row| {
            row["subject"] == "sender"
                && row["name"] == "manager.test"
                && (row["complaints"].as_u64(), row["unproven"].as_u64()) == (Some(1), Some(1))
        })
    });
    // A person's story has what came back about that person alone.
    let reported = |who: &str| {
        let text = server.operator_text(&["trace", who]);
        text.lines().filter(|line| line.contains("report: sender=")).map(str::to_owned).collect::<Vec<String>>()
    };
    wait_until("the history has them", || reported("bob@host.example").len() == 2);
    let about_ann = reported("ann@host.example");
    assert!(
        about_ann.len() == 2 && about_ann.iter().all(|line| line.contains("to=<ann@host.example>")),
        "{about_ann:?}"
    );
    assert!(about_ann[0].contains("proven, action=failed"), "{about_ann:?}");
    let sums = server.operator_text(&["bounces", "--by", "list"]);
    assert!(sums.lines().any(|line| line.contains("no_mailbox") && line.ends_with("manager.test")), "{sums}");
    // Its manager alone gets the events.
    let reports = || events(&own).into_iter().filter(|event| event["type"] == "report").collect::<Vec<Value>>();
    wait_until("all reports are events", || reports().len() == 4);
    let reports = reports();
    assert_eq!(reports[0]["recipients"][0], "ann@host.example");
    assert_eq!((&reports[0]["kind"], &reports[0]["proven"]), (&"bounce".into(), &true.into()));
    assert_eq!((&reports[0]["message_id"], &reports[0]["dsn"]), (&"<1@manager.test>".into(), &"5.1.1".into()));
    assert_eq!((&reports[1]["kind"], &reports[1]["proven"]), (&"complaint".into(), &false.into()));
    assert!(events(&own).iter().any(|event| event["type"] == "delivered"));
    server.smtp().send("x@other.test", &["ann@host.example"], POST.as_bytes()).expect(250);
    wait_until("the other's mail", || !events(&other).is_empty());
    assert!(events(&other).iter().all(|event| event["sender"] == "x@other.test"));
}

/// One person is one complaint, however often a message names the path, and whosever address it comes to.
#[test]
fn a_message_says_once_what_it_says_of_one_person() {
    let (manager, host) = (host(), host());
    let server = in_front_of(&manager, &host, "tagged")
        .list("news", &["ann@host.example", "bob@host.example"])
        .set("lists.news.verp", "\"tagged\"")
        .set("lists.news.owner", "\"chief@host.example\"")
        .start();
    post(&server, 2);
    let bob = path(&host, "bob");
    let (local, domain) = bob.split_once('@').expect("an address");
    let variants: Vec<String> = (0..20)
        .map(|n| {
            let varied =
                |(at, letter): (usize, char)| if n >> (at % 5) & 1 == 1 { letter.to_ascii_uppercase() } else { letter };
            format!("{}@{domain}", local.chars().enumerate().map(varied).collect::<String>())
        })
        .collect();
    let to: Vec<&str> = variants.iter().map(String::as_str).collect();
    server.connect_from("127.0.0.9").greeted().send("fbl@host.example", &to, complaint(&bob).as_bytes()).expect(250);
    server.wait_log(&["report: sender=", "proven, action=complained"]);
    assert_eq!(server.log().matching(&["report: sender=", "action=complained"]).len(), 1);
    // A list's path that a complaint to the manager names is the list's.
    server.smtp().send("ed@host.example", &["news@lists.test"], POST.as_bytes()).expect(250);
    server.wait_log(&["to=<ann@host.example>", "stat=Sent"]);
    wait_until("the list's copies", || {
        host.heard("MAIL").iter().any(|mail| mail.contains("news-bounces+") && mail.contains("-ann="))
    });
    let ann = host.heard("MAIL").into_iter().rfind(|mail| mail.contains("-ann=")).expect("a copy");
    let ann = ann.split(['<', '>']).nth(1).expect("a path").to_owned();
    send(&server, "fbl@host.example", "abuse@manager.test", &complaint(&ann));
    server.wait_log(&["report: list=news, to=<ann@host.example>, proven, action=complained"]);
    send(&server, "fbl@host.example", "news-bounces@lists.test", &complaint(&ann.to_ascii_uppercase()));
    server.wait_log(&["report: list=news", "repeated, action=complained"]);
    assert!(server.log().matching(&["report: sender=", "news-bounces"]).is_empty());
}

/// The manager's own form, without a tag: who bounces is known, but nothing is proven.
#[test]
fn plain_return_paths_prove_nothing() {
    let (manager, host) = (host(), host());
    let server = in_front_of(&manager, &host, "plain").start();
    post(&server, 2);
    assert_eq!(path(&host, "ann"), "talk-bounces+ann=host.example@manager.test");
    send(&server, "", &path(&host, "ann"), &bounce("452 4.2.2 Mailbox full"));
    server.wait_log(&["report: sender=<talk-bounces@manager.test>, to=<ann@host.example>, unproven", "cause=full"]);
    send(&server, "fbl@host.example", &path(&host, "bob"), &complaint(&path(&host, "bob")));
    server.wait_log(&["to=<bob@host.example>, unproven, action=complained"]);
    post(&server, 6);
    // Which `-` ends the sender is in the report.
    server.edit_config(|text| text.replace("verp = \"plain\"", "verp = \"{local}-{user}={host}@{domain}\""));
    assert!(server.operator(&["reload"]).status.success());
    let named = bounce("550 5.1.1 User unknown").replace("other@", "ann-b@");
    send(&server, "", "talk-bounces-ann-b=host.example@manager.test", &named);
    server.wait_log(&["report: sender=<talk-bounces@manager.test>, to=<ann-b@host.example>, unproven, action=failed"]);
}

/// A proven report is in the history before its 250.
#[test]
fn a_killed_server_sends_the_reports_that_wait() {
    let (manager, host) = (host(), host());
    let own = Receiver::start(|n| if n < 2 { 500 } else { 200 });
    let keys = [("secret", SECRET), ("events", "[\"report\"]"), ("senders", "[\"manager.test\"]")];
    let mut server = hook(in_front_of(&manager, &host, "tagged"), "own", &own, &keys).start();
    wait_begun(&server, &["own"]);
    post(&server, 2);
    send(&server, "", &path(&host, "ann"), &bounce("550 5.1.1 User unknown"));
    server.kill();
    server.start_again();
    send(&server, "", &path(&host, "bob"), &bounce("550 5.1.1 User unknown"));
    wait_until("both have come", || events(&own).len() == 2);
    let to: Vec<Value> = events(&own).iter().map(|event| event["recipients"][0].clone()).collect();
    assert_eq!(to, ["ann@host.example", "bob@host.example"]);
    let first = own.all().remove(0);
    assert_eq!((first.status, &first.json()["events"][0]["id"]), (500, &events(&own)[0]["id"]));
}

#[test]
fn listmonk_records_bounces_of_people_alone() {
    let manager = host();
    let listed = "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org";
    let host = Scribe::start(
        &["PIPELINING", "8BITMIME"],
        &[("RCPT TO:<gone@", "550 5.1.1 User unknown"), ("RCPT TO:<listed@", listed)],
    );
    let listmonk = Receiver::start(|n| if n == 0 { 500 } else { 200 });
    let keys = [
        ("format", "\"listmonk\""),
        ("authorization_file", "\"listmonk.authorization\""),
        ("senders", "[\"manager.test\"]"),
    ];
    let builder = in_front_of(&manager, &host, "tagged").file("listmonk.authorization", b"token stentor:abc\n");
    let builder = builder.set("domains.relay", "[\"manager.test\", \"host.example\"]");
    let server = hook(builder, "listmonk", &listmonk, &keys).start();
    wait_begun(&server, &["listmonk"]);
    // Anybody may write this sender.
    server.connect_from("127.0.0.2").greeted().send(SENDER, &["gone@host.example"], POST.as_bytes()).expect(250);
    server.wait_empty();
    // listmonk hands in a message for each subscriber.
    for name in ["listed", "gone", "ann", "bob"] {
        server.smtp().send(SENDER, &[&format!("{name}@host.example")], POST.as_bytes()).expect(250);
    }
    server.wait_empty();
    for (to, reply) in [
        (path(&host, "ann"), "550 5.7.1 Message rejected as spam"),
        (path(&host, "ann").replace("-ann=", "-cid="), "550 5.1.1 User unknown"),
        (path(&host, "bob"), "550 5.1.1 User unknown"),
    ] {
        send(&server, "", &to, &bounce(reply));
    }
    send(&server, "fbl@host.example", &path(&host, "ann"), &complaint(&path(&host, "ann")));
    wait_until("all have come", || listmonk.taken().len() >= 3);
    let taken = listmonk.taken();
    let got: Vec<[String; 3]> = taken
        .iter()
        .map(|request| {
            let body = request.json();
            ["email", "type", "campaign_uuid"].map(|key| body[key].as_str().unwrap_or_default().to_owned())
        })
        .collect();
    let campaign = "9f86b50d-5711-41c8-ab03-bc91c43d711b";
    assert_eq!(
        got,
        [
            ["gone@host.example", "hard", ""],
            ["bob@host.example", "hard", campaign],
            ["ann@host.example", "complaint", ""]
        ]
    );
    for request in &taken {
        assert_eq!(request.header("authorization"), Some("token stentor:abc"));
        assert_eq!((request.path.as_str(), request.header("stentor-signature")), ("/webhooks/bounce", None));
        assert_eq!(request.json()["source"], "stentor");
    }
}
