//! Copies of their own (docs/operate/copies.md): return paths, unsubscribe links and fields, for lists and for the mail
//! of managers.

use stentor_harness::{Answer, Builder, Server, wait_until};

use crate::dkim::{add_keys, assert_signed};
use crate::kit::{bare, drained};
use crate::scribe::Scribe;

const SUBSCRIBERS: [&str; 3] = ["ann@host.example", "bob@host.example", "\"c d\"@host.example"];
const POST: &str = "From: Ed <ed@lists.test>\r\nSubject: News\r\nList-Unsubscribe: <https://old.example/>,\r\n \
                    <mailto:old@x.example>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
                    Gr\u{fc}\u{df}e\r\n";

fn host() -> Scribe {
    Scribe::start(&["PIPELINING", "8BITMIME"], &[])
}

fn newsletter(host: &Scribe) -> Builder {
    bare()
        .route("host.example", &[&host.host()])
        .list("news", &SUBSCRIBERS)
        .set("lists.news.verp", "\"tagged\"")
        .set("lists.news.one_click", "true")
        .set("lists.news.copy_fields", "[\"Feedback-ID: {list}:example\"]")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.link_base", "\"https://u.test\"")
}

fn post(server: &Server, delivered: u64) {
    server.smtp().send("ed@lists.test", &["news@lists.test"], POST.as_bytes()).expect(250);
    assert_eq!(drained(server).delivered, delivered);
}

fn texts(host: &Scribe) -> Vec<String> {
    host.contents().into_iter().map(|content| String::from_utf8(content).expect("UTF-8")).collect()
}

/// The path of the unsubscribe link in the copy of a recipient, by the order of RCPT commands.
fn link(host: &Scribe, recipient: &str) -> String {
    let at = host.heard("RCPT").iter().rposition(|rcpt| rcpt.contains(recipient)).expect("its copy");
    let text = texts(host).swap_remove(at);
    let (_, link) = text.split_once("List-Unsubscribe:\r\n <https://u.test").expect("a link");
    link.split_once('>').expect("it ends").0.to_owned()
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
    for (n, name) in ["ann", "bob"].into_iter().enumerate() {
        let at = rcpts.iter().position(|rcpt| rcpt.contains(&format!("<{name}@"))).expect("its copy");
        let path = mails[at].split(['<', '>']).nth(1).expect("a path").to_owned();
        assert!(
            path.starts_with("news-bounces+") && path.ends_with(&format!("-{name}=host.example@lists.test")),
            "{path}"
        );
        let text = &texts(&host)[at];
        assert_eq!(text.matches("List-Unsubscribe:").count(), 1, "{n}: {text}");
        assert!(text.contains("\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"), "{text}");
        assert!(text.contains("\r\nFeedback-ID: news:example\r\n") && !text.contains("old.example"), "{text}");
        let signed =
            text.split("h=").nth(1).expect("signed fields").split(';').next().expect("they end").to_ascii_lowercase();
        assert!(signed.contains("list-unsubscribe:") && signed.contains("list-unsubscribe-post"), "{signed}");
    }
    let quoted = rcpts.iter().position(|rcpt| rcpt.contains("c d")).expect("its copy");
    assert!(mails[quoted].contains("<news-bounces@lists.test>"), "a quoted local part fits in no return path");
    assert_signed(&server, &host.contents(), &["lists.test"]);
    // MAIL names the octets that are sent.
    server.wait_log(&["to=<ann@host.example>", "stat=Sent"]);
    // A bounce comes back to the list, whatever follows `+`.
    let path = mails[0].split(['<', '>']).nth(1).expect("a path").to_owned();
    server.smtp().send("", &[&path], b"From: mailer@host.example\r\nSubject: failed\r\n\r\nx\r\n").expect(250);
    server.wait_log(&["report: list=news"]);
}

#[test]
fn one_click_ends_the_copies_of_one_subscriber() {
    let host = host();
    let mut server = newsletter(&host).start();
    post(&server, 3);
    let ann = link(&host, "<ann@");
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
    // What was answered survives.
    server.kill();
    server.start_again();
    post(&server, 2);
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
    unsubscribe(&server, &link(&host, "<bob@")).expect(200);
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
    unsubscribe(&server, &link(&host, "<ann@")).expect(200);
    send(3);
    // Other senders are not concerned, and share transactions.
    let to = ["ann@host.example", "bob@host.example"];
    server.smtp().send("x@other.test", &to, POST.as_bytes()).expect(250);
    assert_eq!(drained(&server).delivered, 5);
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
