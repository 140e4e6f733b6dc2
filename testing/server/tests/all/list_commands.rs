//! Joining and leaving lists by mail and by web page (docs/operate/lists.md).

use stentor_harness::{Answer, Builder, Server, TestLab, wait_until};

use crate::kit::builder;
use crate::preload::{preload, set_clock, start};
use crate::virtual_users::with;

const DAY_S: i64 = 86_400;
const ANN: &str = "ann@one.example";
const BOB: &str = "bob@two.example";
const NEWS: &str = "news@lists.test";
/// An untrusted client.
const STRANGER: &str = "127.0.0.2";

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "two.example"])
}

/// A server whose lists `news` and `dev` take commands; their members may post.
fn with_lists(lab: &TestLab) -> Builder {
    let builder = builder(lab).set("http.listen", "[\"127.0.0.1:0\"]").set("http.link_base", "\"https://u.test\"");
    ["news", "dev"].iter().fold(builder, |builder, name| {
        builder
            .set(&format!("lists.{name}.address"), &format!("\"{name}@lists.test\""))
            .set(&format!("lists.{name}.owner"), "\"chief@two.example\"")
            .set(&format!("lists.{name}.post"), "\"members\"")
    })
}

/// A mail of a person, sent by an untrusted client: the code and text of its reply.
fn send(server: &Server, from: &str, to: &str, fields: &str) -> String {
    let wire = format!("From: <{from}>\r\nTo: <{to}>\r\nMessage-ID: <a@home.example>\r\n{fields}\r\nHello\r\n");
    let reply = server.connect_from(STRANGER).greeted().send(from, &[to], wire.as_bytes());
    format!("{} {}", reply.code, reply.lines.join(" "))
}

#[track_caller]
fn command(server: &Server, from: &str, to: &str) {
    let reply = send(server, from, to, "Subject: x\r\n");
    assert!(reply.ends_with("Ok: command received"), "{to}: {reply}");
}

/// Waits for the person's mail number `n`, from 1, and returns it.
fn mail(lab: &TestLab, person: &str, n: usize) -> String {
    lab.wait(&format!("mail {n} to {person}"), |recorder| recorder.copies_to(person).len() >= n);
    let copies = lab.recorder().copies_to(person);
    assert_eq!(copies.len(), n, "{person}: {copies:?}");
    String::from_utf8_lossy(copies[n - 1].body.as_ref().expect("the lab keeps bodies")).into_owned()
}

fn subject(mail: &str) -> &str {
    mail.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or_default()
}

/// The token of a confirmation mail.
#[track_caller]
fn token(mail: &str) -> String {
    let after = mail.split("/confirm/").nth(1).unwrap_or_else(|| panic!("no link: {mail}"));
    let token: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    assert_eq!(token.len(), 26, "{mail}");
    assert!(mail.contains(&format!("-confirm+{token}@lists.test>")), "{mail}");
    token
}

#[test]
fn a_person_joins_posts_and_leaves_by_mail() {
    let lab = lab();
    let server = with_lists(&lab).set("lists.news.description", "\"All the news\"").start();
    command(&server, ANN, "news-join@lists.test");
    let confirmation = mail(&lab, ANN, 1);
    let token_of_join = token(&confirmation);
    for part in [
        "From: \"news\" <news-request@lists.test>",
        "To: <ann@one.example>",
        "In-Reply-To: <a@home.example>",
        "Auto-Submitted: auto-replied",
        "Precedence: bulk",
        "About the list: All the news",
        &format!("https://u.test/confirm/{token_of_join}\r\n"),
    ] {
        assert!(confirmation.contains(part), "{part}\n{confirmation}");
    }
    assert_eq!(&*lab.recorder().copies_to(ANN)[0].sender, "");
    assert!(send(&server, ANN, NEWS, "Subject: too early\r\n").starts_with("550 "));

    // Some systems fold the case of local parts.
    command(&server, ANN, &format!("NEWS-CONFIRM+{}@lists.test", token_of_join.to_uppercase()));
    assert_eq!(subject(&mail(&lab, ANN, 2)), "Welcome to news");
    assert!(send(&server, ANN, NEWS, "Subject: a post\r\n").starts_with("250 "));
    let post = mail(&lab, ANN, 3);
    for field in [
        "List-Help: <mailto:news-request@lists.test?subject=help>\r\n",
        "List-Subscribe: <mailto:news-join@lists.test>\r\n",
        "List-Unsubscribe: <mailto:news-leave@lists.test>\r\n",
    ] {
        assert!(post.contains(field), "{field}\n{post}");
    }

    command(&server, ANN, "news+unsubscribe@lists.test");
    let confirmation = mail(&lab, ANN, 4);
    // The token works in the subject, too.
    let fields = format!("Subject: Re: confirm {}\r\n", token(&confirmation));
    assert!(send(&server, ANN, "news-confirm@lists.test", &fields).starts_with("250 "));
    assert_eq!(subject(&mail(&lab, ANN, 5)), "You have left news");
    assert!(send(&server, ANN, NEWS, "Subject: too late\r\n").starts_with("550 "));
    server.wait_log(&["audit: verb=join", "who=mail 127.0.0.2", "ann@one.example list news"]);
    server.wait_log(&["audit: verb=leave", "ann@one.example list news"]);
    lab.assert_no_violations();
}

#[test]
fn a_token_works_once_for_its_own_list_until_it_expires() {
    let lab = lab();
    let mut server = with_lists(&lab).prepare();
    preload(&server);
    set_clock(&server, 0);
    start(&mut server);
    command(&server, ANN, "news-join@lists.test");
    let right = token(&mail(&lab, ANN, 1));
    let may_post = |server: &Server, list: &str| {
        send(server, ANN, &format!("{list}@lists.test"), "Subject: x\r\n").starts_with("250 ")
    };
    let first = if right.starts_with('0') { '1' } else { '0' };
    let altered = format!("{first}{}", &right[1..]);
    for wrong in [&format!("news-confirm+{altered}@"), &format!("dev-confirm+{right}@"), "news-confirm+x@"] {
        command(&server, ANN, &format!("{wrong}lists.test"));
    }
    assert!(!may_post(&server, "news") && !may_post(&server, "dev"));
    set_clock(&server, 3 * DAY_S + 60);
    server.wait_log(&["clock was set from"]);
    command(&server, ANN, &format!("news-confirm+{right}@lists.test"));
    assert!(!may_post(&server, "news"));
    // An expired token is answered like a request for help, with a new token.
    let next = mail(&lab, ANN, 2);
    assert!(subject(&next).starts_with("Help for news"), "{next}");
    let next = token(&next);
    command(&server, ANN, &format!("news-confirm+{next}@lists.test"));
    assert_eq!(subject(&mail(&lab, ANN, 3)), "Welcome to news");
    // A replayed one changes nothing.
    command(&server, ANN, "news-leave@lists.test");
    let leave = token(&mail(&lab, ANN, 4));
    command(&server, ANN, &format!("news-confirm+{leave}@lists.test"));
    assert_eq!(subject(&mail(&lab, ANN, 5)), "You have left news");
    command(&server, ANN, &format!("news-confirm+{next}@lists.test"));
    assert!(!may_post(&server, "news"));
}

#[test]
fn forged_requests_cost_their_victim_one_mail() {
    let lab = lab();
    let server = with_lists(&lab).start();
    let (mut commands, mut deferred) = (0, 0);
    for n in 0..80 {
        let from = if n % 3 == 0 { ANN.to_owned() } else { format!("ann+{n}@one.example") };
        let to = ["news-join@", "dev-join@", "news-request@", "dev-leave@", "news-confirm+x@"][n % 5];
        let reply = send(&server, &from, &format!("{to}lists.test"), "Subject: help\r\n");
        match &reply[..3] {
            "250" => commands += 1,
            "450" => deferred += 1,
            _ => panic!("{reply}"),
        }
    }
    assert_eq!((commands, deferred), (60, 20), "then the client is slowed down");
    server.wait_empty();
    let mailed = lab.recorder().copies();
    assert_eq!(mailed.len(), 1, "{mailed:?}");
    assert!(send(&server, ANN, NEWS, "Subject: x\r\n").starts_with("550 "));
}

#[test]
fn automatic_mail_is_never_answered() {
    let lab = lab();
    let server = with_lists(&lab).start();
    let join = "news-join@lists.test";
    for fields in [
        "Auto-Submitted: auto-replied\r\n",
        "Auto-Submitted: auto-generated\r\n",
        "Precedence: bulk\r\n",
        "Precedence: junk\r\n",
        "List-Id: <x.y>\r\n",
        "List-Unsubscribe: <mailto:x@y.example>\r\n",
    ] {
        assert!(send(&server, ANN, join, fields).starts_with("250 "), "{fields}");
    }
    for from in [
        "",
        "MAILER-DAEMON@one.example",
        "other-request@one.example",
        "owner-other@one.example",
        "other-bounces+x=y.example@one.example",
        NEWS,
        "dev-bounces@lists.test",
    ] {
        assert!(send(&server, from, join, "").starts_with("250 "), "{from}");
    }
    server.log().wait_nth(&["command: list=news", "ignored"], 13);
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 0);
}

#[test]
fn a_confirmed_member_survives_a_kill() {
    let lab = lab();
    let mut server = with_lists(&lab).start();
    command(&server, ANN, "news-join@lists.test");
    let token = token(&mail(&lab, ANN, 1));
    command(&server, ANN, &format!("news-confirm+{token}@lists.test"));
    server.kill();
    server.start_again();
    assert!(send(&server, ANN, NEWS, "Subject: a post\r\n").starts_with("250 "));
}

#[test]
fn the_person_is_the_author_only_if_something_proves_it() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
         [[record]]\nname = 'bounces.one.example'\ntype = 'TXT'\nvalue = 'v=spf1 ip4:127.0.0.2 -all'\n\
         [[record]]\nname = '_dmarc.one.example'\ntype = 'TXT'\nvalue = 'v=DMARC1; p=none'\n",
    );
    let server = with_lists(&lab).set("message_authentication.check", "true").start();
    let ask = |envelope: &str| {
        let wire = format!("From: Ann <{ANN}>\r\nSubject: x\r\n\r\n");
        let mut client = server.connect_from(STRANGER).greeted();
        client.send(envelope, &["news-join@lists.test"], wire.as_bytes()).expect(250);
    };
    ask(BOB);
    assert!(mail(&lab, BOB, 1).contains(&format!("    {BOB}\r\n")));
    // SPF passes for a domain that is aligned with the author's.
    ask("returns-17@bounces.one.example");
    let confirmation = mail(&lab, ANN, 1);
    assert!(confirmation.contains(&format!("    {ANN}\r\n")), "{confirmation}");
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 2);
}

#[test]
fn requests_are_read_and_answered_in_the_lists_language() {
    let lab = lab();
    let server = with_lists(&lab).set("lists.dev.language", "\"de\"").start();
    assert!(send(&server, ANN, "dev-request@lists.test", "Subject: Re: subscribe\r\n").starts_with("250 "));
    let confirmation = mail(&lab, ANN, 1);
    assert!(confirmation.contains("Content-Language: de") && confirmation.contains("Zum Eintragen"), "{confirmation}");
    assert!(send(&server, BOB, "news-request@lists.test", "Subject: who\r\n").starts_with("250 "));
    let help = mail(&lab, BOB, 1);
    assert!(help.contains("Members: 0") && help.contains("is not a member"), "{help}");
    command(&server, BOB, &format!("news-confirm+{}@lists.test", token(&help)));
    assert_eq!(subject(&mail(&lab, BOB, 2)), "Welcome to news");
    // Who is a member and asks to join gets help to leave.
    command(&server, BOB, "news-join@lists.test");
    assert!(mail(&lab, BOB, 3).contains("is a member"));
}

#[test]
fn a_one_click_link_replaces_the_address_to_leave() {
    let lab = lab();
    let server = with_lists(&lab).set("lists.news.one_click", "true").start();
    command(&server, ANN, "news-join@lists.test");
    let token = token(&mail(&lab, ANN, 1));
    command(&server, ANN, &format!("news-confirm+{token}@lists.test"));
    mail(&lab, ANN, 2);
    let fields = "Subject: x\r\nList-Unsubscribe: <mailto:own@one.example>\r\nList-Unsubscribe-Post: x\r\n";
    assert!(send(&server, ANN, NEWS, fields).starts_with("250 "));
    let post = mail(&lab, ANN, 3);
    assert_eq!(post.matches("List-Unsubscribe:").count(), 1, "{post}");
    assert_eq!(post.matches("List-Unsubscribe-Post:").count(), 1, "{post}");
    let link = post.split("<https://u.test").nth(1).and_then(|rest| rest.split('>').next()).expect("a link");
    server.http("POST", link).send().expect(200);
    assert!(send(&server, ANN, NEWS, "Subject: too late\r\n").starts_with("550 "));
}

#[test]
fn a_closed_list_lets_people_leave_alone() {
    let lab = lab();
    let server = with_lists(&lab).set("lists.news.join", "\"closed\"").start();
    let mut smtp = server.connect_from(STRANGER).greeted();
    smtp.cmd(&format!("MAIL FROM:<{ANN}>")).expect(250);
    let refused = smtp.cmd("RCPT TO:<news-join@lists.test>").expect(550);
    assert!(refused.lines[0].contains("This list is closed"), "{refused:?}");
    smtp.cmd("RCPT TO:<news-leave@lists.test>").expect(250);
    drop(smtp);
    assert!(send(&server, ANN, "news-request@lists.test", "Subject: join\r\n").starts_with("250 "));
    server.wait_log(&["command: list=news", "the list is closed to others"]);
    let form = server.http_get("/lists/news").expect(200).text();
    assert!(form.contains("Leave") && !form.contains("Join"), "{form}");
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 0);
}

/// Submits the form of a list.
fn form(server: &Server, list: &str, client: &str, body: &str) -> Answer {
    let ask = server.http("POST", &format!("/lists/{list}")).header("X-Forwarded-For", client);
    ask.body("application/x-www-form-urlencoded", body.as_bytes()).send()
}

#[test]
fn a_person_joins_and_leaves_on_web_pages() {
    let lab = lab();
    let server = with_lists(&lab).list("files", &[BOB]).start();
    let page = server.http_get("/lists/news").expect(200);
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.starts_with("default-src 'none'") && !page.text().contains("<script"), "{policy}");
    for missing in ["/lists/none", "/lists/files", "/confirm/x", &format!("/confirm/{}", "0".repeat(26))] {
        server.http_get(missing).expect(404);
        server.http("POST", missing).send().expect(404);
    }
    let join = "address=ann%40one.example&name=Ann+%3Cb%3E&action=join";
    let first = form(&server, "news", "192.0.2.1", join).expect(200).text();
    let token_of_join = token(&mail(&lab, ANN, 1));
    let path = format!("/confirm/{token_of_join}");
    // Link scanners change nothing.
    for _ in 0..2 {
        let shown = server.http_get(&path).expect(200).text();
        assert!(shown.contains("Join news?") && shown.contains(ANN), "{shown}");
    }
    assert!(send(&server, ANN, NEWS, "Subject: too early\r\n").starts_with("550 "));
    let done = server.http("POST", &path).send().expect(200).text();
    assert!(done.contains("ann@one.example is now a member of the list news"), "{done}");
    server.http("POST", &path).send().expect(404);
    server.http_get(&path).expect(404);
    assert_eq!(subject(&mail(&lab, ANN, 2)), "Welcome to news");
    assert!(send(&server, ANN, NEWS, "Subject: a post\r\n").starts_with("250 "));
    mail(&lab, ANN, 3);

    // The answer does not say who is a member.
    assert_eq!(form(&server, "news", "192.0.2.1", join).expect(200).text(), first);
    let leave = token(&mail(&lab, ANN, 4));
    let done = server.http("POST", &format!("/confirm/{leave}")).send().expect(200).text();
    assert!(done.contains("no longer a member"), "{done}");
    assert_eq!(subject(&mail(&lab, ANN, 5)), "You have left news");
    for wrong in ["", "address=ann&action=join", "address=ann%40one.example&action=post", "action=join"] {
        form(&server, "news", "192.0.2.1", wrong).expect(400);
    }

    // A client is slowed down, others are not.
    wait_until("the client must wait", || form(&server, "news", "198.51.100.7", join).status == 429);
    form(&server, "news", "198.51.100.7", join).expect(429);
    form(&server, "news", "198.51.100.8", join).expect(200);
}

#[test]
fn rules_decide_before_a_command_is_carried_out() {
    let lab = lab();
    let server = with(
        with_lists(&lab),
        &[],
        "[[rules]]\nsender = \"ann@one.example\"\ndo = \"quarantine odd\"\n\
         [[rules]]\nsender = \"bob@two.example\"\ndo = \"discard x\"\n",
    );
    for person in [ANN, BOB] {
        assert!(send(&server, person, "news-join@lists.test", "").starts_with("250 "), "{person}");
    }
    // Beside a command, others get the message.
    let wire = b"From: <cid@one.example>\r\nMessage-ID: <both@test>\r\nSubject: x\r\n\r\n";
    server.smtp().send("cid@one.example", &["news-join@lists.test", "dan@two.example"], wire).expect(250);
    assert!(mail(&lab, "cid@one.example", 1).contains("/confirm/"));
    assert!(mail(&lab, "dan@two.example", 1).contains("Message-ID: <both@test>"));
    server.wait_empty();
    assert_eq!(lab.recorder().stats().recipients, 2);
}

#[test]
fn a_message_has_few_commands() {
    let lab = lab();
    let server = with_lists(&lab).start();
    let mut smtp = server.connect_from(STRANGER).greeted();
    smtp.cmd(&format!("MAIL FROM:<{ANN}>")).expect(250);
    for n in 0..5 {
        smtp.cmd(&format!("RCPT TO:<news-join+{n}@lists.test>")).expect(250);
    }
    smtp.cmd("RCPT TO:<dev-join@lists.test>").expect(452);
}

#[test]
fn addresses_of_commands_are_explained() {
    let lab = lab();
    let server = with_lists(&lab).start();
    let explained = server.operator(&["explain", "--from", ANN, "--to", "news-join@lists.test", "--client", STRANGER]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("a command to list news: join"), "{explained}");
}
