//! Copies of their own (docs/operate/copies.md): return paths, unsubscribe links and fields, for lists and for the mail
//! of managers.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use stentor_harness::{Answer, Builder, Server, wait_until};

use crate::dkim::{add_keys, assert_signed};
use crate::http_auth::with_token;
use crate::kit::{bare, drained};
use crate::scribe::Scribe;

const SUBSCRIBERS: [&str; 3] = ["ann@host.example", "bob@host.example", "\"c d\"@host.example"];
pub const POST: &str = "From: Ed <ed@lists.test>\r\nSubject: News\r\nList-Unsubscribe: <https://old.example/>,\r\n \
                    <mailto:old@x.example>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
                    Gr\u{fc}\u{df}e\r\n";

pub fn host() -> Scribe {
    Scribe::start(&["PIPELINING", "8BITMIME", "SIZE 50000000"], &[])
}

fn newsletter(host: &Scribe) -> Builder {
    bare()
        .route("host.example", &[&host.host()])
        .list("news", &SUBSCRIBERS)
        .set("lists.news.verp", "\"tagged\"")
        .set("lists.news.one_click", "true")
        .set("lists.news.copy_fields", "[\"Feedback-ID: {list}:example\", \"X-For: {recipient}\"]")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.link_base", "\"https://u.test\"")
}

pub fn post(server: &Server, delivered: u64) {
    server.smtp().send("ed@lists.test", &["news@lists.test"], POST.as_bytes()).expect(250);
    assert_eq!(drained(server).delivered, delivered);
}

fn texts(host: &Scribe) -> Vec<String> {
    host.contents().into_iter().map(|content| String::from_utf8(content).expect("UTF-8")).collect()
}

/// The last copy of a recipient, by its `X-For`.
fn copy_of(host: &Scribe, recipient: &str) -> String {
    let field = format!("\r\nX-For: {recipient}@host.example\r\n");
    texts(host).into_iter().rfind(|text| text.contains(&field)).expect("a copy")
}

/// The path of the unsubscribe link in the last copy of a recipient.
fn link(host: &Scribe, recipient: &str) -> String {
    let text = copy_of(host, recipient);
    let (_, link) = text.split_once("List-Unsubscribe:\r\n <https://u.test").expect("a link");
    link.split_once('>').expect("it ends").0.to_owned()
}

/// The return path of the last copy of a recipient.
pub fn path(host: &Scribe, recipient: &str) -> String {
    let part = format!("{recipient}=host.example@");
    let mail = host.heard("MAIL").into_iter().rfind(|mail| mail.contains(&part)).expect("a copy");
    mail.split(['<', '>']).nth(1).expect("a path").to_owned()
}

fn unsubscribe(server: &Server, link: &str) -> Answer {
    let ask = server.http("POST", link).header("Host", "u.test").header("Origin", "https://mail.example");
    ask.body("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click").send()
}

#[test]
fn each_copy_of_a_post_is_its_own() {
    let host = host();
    let server = newsletter(&host).prepare();
    add_keys(&server, "lists.test", &[]);
    let server = server.run();
    post(&server, 3);
    let (mails, rcpts) = (host.heard("MAIL"), host.heard("RCPT"));
    assert_eq!((mails.len(), rcpts.len()), (3, 3), "a transaction each");
    for name in ["ann", "bob"] {
        let path = path(&host, name);
        assert!(
            path.starts_with("news-bounces+") && path.ends_with(&format!("-{name}=host.example@lists.test")),
            "{path}"
        );
        let text = copy_of(&host, name);
        assert_eq!(text.matches("List-Unsubscribe:").count(), 1, "{text}");
        assert!(text.contains("\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"), "{text}");
        assert!(text.contains("\r\nFeedback-ID: news:example\r\n") && !text.contains("old.example"), "{text}");
        let signed =
            text.split("h=").nth(1).expect("signed fields").split(';').next().expect("they end").to_ascii_lowercase();
        assert!(signed.contains("list-unsubscribe:") && signed.contains("list-unsubscribe-post"), "{signed}");
    }
    let shared = mails.iter().filter(|mail| mail.contains("<news-bounces@lists.test>")).count();
    assert_eq!(shared, 1, "a quoted local part fits in no return path: {mails:?}");
    assert_signed(&server, &host.contents(), &["lists.test"]);
    // MAIL names the octets that are sent.
    server.wait_log(&["to=<ann@host.example>", "stat=Sent"]);
    // A bounce comes back to the list, whatever follows `+`.
    server
        .smtp()
        .send("", &[&path(&host, "ann")], b"From: mailer@host.example\r\nSubject: failed\r\n\r\nx\r\n")
        .expect(250);
    server.wait_log(&["report: list=news"]);
}

#[test]
fn subscribers_see_their_own_names() {
    let host = host();
    let file = "\"Lee, Ann\" <ann@host.example>\nJ\u{fc}rgen <bob@host.example>\ncid@host.example\n\
                \"Bcc: <x>, y\" <dora@host.example>\n";
    let server = newsletter(&host).list_with_file("news", file.as_bytes());
    let fields = "[\"To: {mailbox}\", \"X-For: {recipient}\"]";
    let mut server = server.set("lists.news.copy_fields", fields).set("lists.news.one_click", "false").start();
    let to = |host: &Scribe, name: &str| {
        let text = format!("\r\n{}", copy_of(host, name));
        let to =
            text.split("\r\nTo: ").nth(1).expect("a field").split("\r\nX-For").next().expect("the next").to_owned();
        assert_eq!(text.matches("\nTo:").count(), 1, "{text}");
        to
    };
    post(&server, 4);
    assert_eq!(to(&host, "ann"), "\"Lee, Ann\" <ann@host.example>");
    assert_eq!(to(&host, "bob"), "=?utf-8?Q?J=C3=BCrgen?=\r\n <bob@host.example>");
    assert_eq!(to(&host, "cid"), "cid@host.example");
    assert_eq!(to(&host, "dora"), "\"Bcc: <x>, y\" <dora@host.example>");
    // A replaced file, and the first post after a restart.
    server.write("new", b"Anna <ann@host.example>\n");
    std::fs::rename(server.path("new"), server.path("news.subscribers")).expect("it is replaced");
    post(&server, 5);
    assert_eq!(to(&host, "ann"), "Anna <ann@host.example>");
    server.stop();
    server.start_again();
    post(&server, 6);
    assert_eq!(to(&host, "ann"), "Anna <ann@host.example>");
}

#[test]
fn one_click_ends_the_copies_of_one_subscriber() {
    let host = host();
    let mut server = newsletter(&host).start();
    post(&server, 3);
    let ann = link(&host, "ann");
    let shown = server.http("GET", &ann).header("Host", "u.test").send().expect(200);
    assert!(shown.text().contains("ann@host.example") && shown.text().contains("<form method=\"post\">"));
    post(&server, 6);
    for forged in [&ann[..ann.len() - 1], &format!("{ann}A"), "/unsubscribe/x", "/unsubscribe/"] {
        assert_eq!(unsubscribe(&server, forged).status, 404, "{forged}");
    }
    post(&server, 9);
    for _ in 0..2 {
        let done = unsubscribe(&server, &ann).expect(200);
        assert!(done.text().contains("ann@host.example gets no more mail from the list news"), "{}", done.text());
    }
    server.wait_log(&["verb=suppress, who=one-click"]);
    for file in ["registry.sqlite", "registry.sqlite-wal", "copies.key"] {
        let mode = std::fs::metadata(server.path("data").join(file)).expect(file).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    // What was answered survives.
    server.kill();
    server.start_again();
    post(&server, 11);
    assert_eq!(host.heard("RCPT TO:<ann@").len(), 3, "nothing after the link was used");
    assert_eq!(host.heard("RCPT TO:<bob@").len(), 4);
    // Other hosts' names show nothing but these pages.
    server.http("GET", "/").header("Host", "u.test").send().expect(421);
}

/// A copy that waits is not sent any more.
#[test]
fn waiting_copies_are_not_sent_after_unsubscribing() {
    let host = host();
    let server = newsletter(&host).start();
    post(&server, 3);
    assert!(server.operator(&["queue-only", "--all"]).status.success());
    server.smtp().send("ed@lists.test", &["news@lists.test"], POST.as_bytes()).expect(250);
    unsubscribe(&server, &link(&host, "bob")).expect(200);
    assert!(server.operator(&["queue-only", "--all", "--end"]).status.success());
    assert_eq!(drained(&server).delivered, 5);
    assert_eq!((host.heard("RCPT TO:<ann@").len(), host.heard("RCPT TO:<bob@").len()), (2, 1));
}

/// A manager hands in a post once, with all recipients.
#[test]
fn a_managers_mail_gets_paths_and_links() {
    let host = host();
    let server = bare()
        .route("host.example", &[&host.host()])
        .set_in("senders.\"manager.test\"", "verp", "\"{local}-{user}={host}@{domain}\"")
        .set_in("senders.\"manager.test\"", "one_click", "true")
        .set_in("senders.\"manager.test\"", "copy_fields", "[\"X-For: {recipient}\"]")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.link_base", "\"https://u.test\"")
        .start();
    let send = |delivered| {
        let to = ["ann@host.example", "bob@host.example"];
        server.smtp().send("talk+bounces-7@manager.test", &to, POST.as_bytes()).expect(250);
        assert_eq!(drained(&server).delivered, delivered);
    };
    send(2);
    let mut mails = host.heard("MAIL");
    mails.sort();
    assert!(mails[0].starts_with("MAIL FROM:<talk+bounces-7-ann=host.example@manager.test>"), "{mails:?}");
    assert!(mails[1].starts_with("MAIL FROM:<talk+bounces-7-bob=host.example@manager.test>"), "{mails:?}");
    assert!(
        texts(&host).iter().all(|text| text.matches("List-Unsubscribe:").count() == 1 && !text.contains("old.example"))
    );
    unsubscribe(&server, &link(&host, "ann")).expect(200);
    // The manager is told, and ends the subscription. It numbers its posts after `+`.
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<talk+bounces-8@manager.test>").expect(250);
    client.cmd("RCPT TO:<ann@host.example>").expect_text("550 5.7.1 Recipient is suppressed for this sender");
    client.cmd("RCPT TO:<bob@host.example>").expect(250);
    // Other senders are not concerned, and share transactions.
    let to = ["ann@host.example", "bob@host.example"];
    server.smtp().send("x@other.test", &to, POST.as_bytes()).expect(250);
    assert_eq!(drained(&server).delivered, 4);
    assert_eq!(host.heard("MAIL FROM:<x@other.test>").len(), 1);
}

/// A reload applies to mail that waits.
#[test]
fn a_reload_gives_waiting_copies_their_own() {
    let host = host();
    let server = bare().route("host.example", &[&host.host()]).list("news", &SUBSCRIBERS).start();
    assert!(server.operator(&["queue-only", "--all"]).status.success());
    server.smtp().send("ed@lists.test", &["news@lists.test"], POST.as_bytes()).expect(250);
    server.edit_config(|text| text.replace("[lists.news]", "[lists.news]\nverp = \"plain\""));
    assert!(server.operator(&["reload"]).status.success());
    assert!(server.operator(&["queue-only", "--all", "--end"]).status.success());
    assert_eq!(drained(&server).delivered, 3);
    wait_until("all copies", || host.heard("MAIL").len() == 3);
    assert_eq!(host.heard("MAIL FROM:<news-bounces+ann=host.example@lists.test>").len(), 1);
}

/// Values are stored with the message, and each copy has its recipient's alone.
#[test]
fn merge_values_survive_a_crash_and_reach_their_recipient_alone() {
    let host = host();
    let builder = bare().route("host.example", &[&host.host()]).set("http.listen", "[\"127.0.0.1:0\"]");
    let (mut server, token) = with_token(builder);
    add_keys(&server, "shop.test", &[]);
    assert!(server.operator(&["reload"]).status.success());
    assert!(server.operator(&["queue-only", "--all"]).status.success());
    let message = "From: shop@shop.test\nTo: {{name}} <{{address}}>\nSubject: Hello {{name}}\nMIME-Version: 1.0\n\
                   Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\n\
                   Content-Transfer-Encoding: base64\n\nRGVhciB7e25hbWV9fSwK\n--b\nContent-Type: text/html; charset=utf-8\n\n\
                   <b>{{name}}</b> of {{shop}}\n--b--\n";
    let order = json!({
        "sender": "shop@shop.test", "recipients": ["ann@host.example", "bob@host.example"], "message": message,
        "values": {"": {"shop": "Us"}, "ann@host.example": {"name": "Ann"}, "bob@host.example": {"name": "B\u{f6}b <i>"}},
    });
    let post = |server: &Server, order: &serde_json::Value| {
        server.http("POST", "/api/v1/messages").token(&token).json(order).send()
    };
    let mut missing = order.clone();
    missing["values"]["bob@host.example"] = json!({});
    let refused = post(&server, &missing).expect(400).text();
    assert!(refused.contains("no value for {{name}} for recipient bob@host.example"), "{refused}");
    let id = post(&server, &order).expect(201).json()["messages"][0]["id"].as_str().expect("an id").to_owned();
    let stored = server.operator(&["queue", "cat", &id, "--all"]);
    let stored = String::from_utf8(stored.stdout).expect("UTF-8");
    assert!(stored.contains("{{shop}}") && stored.ends_with("--b--\r\n") && !stored.contains("SMV1"), "{stored}");
    server.kill();
    server.start_again();
    assert!(server.operator(&["queue-only", "--all", "--end"]).status.success());
    assert_eq!(drained(&server).delivered, 2);
    for text in &texts(&host) {
        let (own, other) = if text.contains("<ann@") { ("Ann", "B\u{f6}b") } else { ("B=C3=B6b &lt;i&gt;", "Ann") };
        assert!(text.contains(&format!("<b>{own}</b> of Us")), "{text}");
        assert!(!text.contains("{{") && !text.contains(other), "{text}");
    }
    let ann = texts(&host).into_iter().find(|text| text.contains("ann@host.example")).expect("Ann's copy");
    assert!(ann.contains("To: Ann <ann@host.example>\r\nSubject: Hello Ann\r\n"), "{ann}");
    assert_signed(&server, &host.contents(), &["shop.test"]);
    let mails = host.heard("MAIL");
    for (content, mail) in host.contents().iter().zip(&mails) {
        assert!(mail.split(' ').any(|word| *word == format!("SIZE={}", content.len())), "{mail}");
    }
}

/// Who bounces is read from the return path, and why from the report; a sealed complaint ends the membership.
#[test]
fn bounces_and_complaints_come_back_to_their_copy() {
    let host = host();
    let server = newsletter(&host).start();
    post(&server, 3);
    let bounce = "From: MAILER-DAEMON@host.example\r\nSubject: failed\r\nContent-Type: multipart/report;\r\n \
                  report-type=delivery-status; boundary=r\r\n\r\n--r\r\n\r\nSorry.\r\n--r\r\nContent-Type: message/delivery-status\r\n\r\n\
                  Reporting-MTA: dns; host.example\r\n\r\nFinal-Recipient: rfc822; other@host.example\r\nAction: failed\r\n\
                  Status: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 User unknown\r\n--r--\r\n";
    server.smtp().send("", &[&path(&host, "ann")], bounce.as_bytes()).expect(250);
    server.wait_log(&["report: list=news, to=<ann@host.example>, proven, action=failed, cause=no_mailbox"]);
    let forged = path(&host, "ann").replace("-ann=", "-bob=");
    server.smtp().send("", &[&forged], bounce.as_bytes()).expect(250);
    server.wait_log(&["report: list=news, to=<bob@host.example>, unproven, action=failed"]);
    let complaint = |original: &str| {
        format!(
            "From: fbl@host.example\r\nSubject: complaint\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=r\r\n\r\n\
             --r\r\n\r\nA complaint.\r\n--r\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: x/1\r\n\
             Version: 1\r\nOriginal-Mail-From: <{original}>\r\n\r\n--r\r\nContent-Type: message/rfc822\r\n\r\n{POST}--r--\r\n"
        )
    };
    server.smtp().send("fbl@host.example", &["news-bounces@lists.test"], complaint(&forged).as_bytes()).expect(250);
    post(&server, 6);
    let real = path(&host, "bob");
    server.smtp().send("fbl@host.example", &["news-bounces@lists.test"], complaint(&real).as_bytes()).expect(250);
    server.wait_log(&["report: list=news, to=<bob@host.example>, proven, action=complained"]);
    post(&server, 8);
    assert_eq!(host.heard("RCPT TO:<bob@").len(), 2);
    // Those that are larger than a piece in memory, with a part in the journal, say the same.
    let filler = "x".repeat(70) + "\r\n";
    let of_ann = bounce.replace("Sorry.\r\n", &filler.repeat(5_000)).replace("User unknown", "User gone");
    server.smtp().send("", &[&path(&host, "ann")], of_ann.as_bytes()).expect(250);
    server.wait_log(&["report: list=news, to=<ann@host.example>, proven, action=failed", "User gone"]);
    let of_ann = complaint(&path(&host, "ann")).replace("A complaint.\r\n", &filler.repeat(5_000));
    server.smtp().send("fbl@host.example", &["news-bounces@lists.test"], of_ann.as_bytes()).expect(250);
    server.wait_log(&["report: list=news, to=<ann@host.example>, proven, action=complained"]);
}
