//! Rules on what a message says, asked at the end of the data.

use stentor_harness::{Server, TestLab, dot_stuff, wait_until};

use crate::kit::{builder, drained};
use crate::submission::{submit, taking};
use crate::virtual_users::with;

/// What the server answers to a message for these recipients, from a client that may relay only to its relay domains.
fn answered(server: &Server, to: &[&str], message: &str) -> String {
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    for to in to {
        client.cmd(&format!("RCPT TO:<{to}>")).expect(250);
    }
    client.cmd("DATA").expect(354);
    client.raw(&dot_stuff(message.as_bytes()));
    let reply = client.reply();
    format!("{} {}", reply.code, reply.lines.join(" "))
}

const DOMAINS: &str = "[domains]\nrelay = [\"one.example\", \"two.example\"]\n";

#[test]
fn charsets_scripts_and_words_refuse_with_their_own_text() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\nname = \"charsets\"\ncharset = [\"gb2312\", \"koi8-r\"]\ndo = \"reject 550 5.7.1 No mail in this charset\"\n\
        [[rules]]\nscript = \"Han\"\nnot = { subject = \"invoice\" }\ndo = \"reject 550 5.7.1 No Chinese\"\n\
        [[rules]]\nbody = \"/you\\\\s+won/\"\ndo = \"defer 451 4.7.1 Later\"\n\
        [[rules]]\nattachment = \"*.exe\"\ndo = \"reject 550 5.7.1 No programs\"\n";
    let server = with(builder(&lab), &[], &format!("{DOMAINS}{rules}"));
    let of = |message: &str| answered(&server, &["ann@one.example"], message);
    for (message, wanted) in [
        ("Subject: =?GB2312?B?x+uy6crV?=\r\n\r\nx\r\n", "550 5.7.1 No mail in this charset"),
        (
            "Subject: a\r\nContent-Type: text/plain; charset=\"KOI8-R\"\r\n\r\nx\r\n",
            "550 5.7.1 No mail in this charset",
        ),
        ("Subject: =?utf-8?B?6K+35p+l?=\r\n\r\nx\r\n", "550 5.7.1 No Chinese"),
        ("Subject: =?utf-8?B?6K+35p+l?= Invoice\r\n\r\nx\r\n", "250"),
        ("Subject: a\r\nContent-Transfer-Encoding: base64\r\n\r\neW91ICB3b24=\r\n", "451 4.7.1 Later"),
        ("Content-Disposition: attachment; filename=\"=?utf-8?Q?Setup=2EEXE?=\"\r\n\r\nx\r\n", "550 5.7.1 No programs"),
        ("Subject: charset=gb2312\r\n\r\nyou will win gb2312\r\n", "250"),
    ] {
        let answer = of(message);
        assert!(answer.starts_with(wanted), "{message}: {answer}");
        let (why, code) = explained(&server, message);
        assert_eq!(
            code,
            if wanted.starts_with("250") {
                0
            } else if wanted.starts_with('4') {
                75
            } else {
                69
            },
            "{why}"
        );
    }
    let (why, _) = explained(&server, "Subject: =?utf-8?B?6K+35p+l?=\r\n\r\nx\r\n");
    assert!(why.contains("no: charset") && why.contains("(script Han by 2 of 3 letters)"), "{why}");
    // A refusal names its rule in the log.
    server.log().wait(&["ruleset=check_eom", "policy=rule 1 \"charsets\"", "550 5.7.1 No mail in this charset"]);
    lab.wait_copies(2);
}

#[test]
fn what_hides_from_rules_is_found_or_named() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\nattachment = \"*.exe\"\ndo = \"reject 550 5.7.1 No programs\"\n\
        [[rules]]\nbody = \"you won\"\ndo = \"reject 550 5.7.1 No lottery\"\n\
        [[rules]]\nmalformed = [\"nested\", \"boundary\"]\ndo = \"reject 550 5.6.0 Not valid MIME\"\n";
    let server = with(builder(&lab), &[], &format!("{DOMAINS}{rules}"));
    let program = "Content-Type: application/x; name=a.exe\r\n\r\nx";
    let part = |boundary: &str, delimiter: &str| {
        format!(
            "Content-Type: multipart/mixed; boundary={boundary}\r\n\r\n--{delimiter}\r\n{program}\r\n--{delimiter}--\r\n"
        )
    };
    let level = |n: u32| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n");
    let deep = (0..40).map(level).collect::<Vec<_>>().concat();
    let padded = format!("b{}", " ".repeat(3_000));
    for (message, wanted) in [
        (part("b(comment)", "b"), "550 5.7.1 No programs"),
        (part("b", &padded), "550 5.7.1 No programs"),
        (part("a\r\nContent-Type: multipart/mixed; boundary=b", "b"), "550 5.7.1 No programs"),
        ("\r\nbegin 644 a.exe\r\n#0V%T\r\n`\r\nend\r\n".to_owned(), "550 5.7.1 No programs"),
        ("Content-Type: text/html\r\n\r\n<p \">you &#0000000000119;on<!-->\r\n".to_owned(), "550 5.7.1 No lottery"),
        (format!("{deep}{program}\r\n"), "550 5.6.0 Not valid MIME"),
        (part(&"b".repeat(995), "b"), "550 5.6.0 Not valid MIME"),
        (part("b", "c"), "250"),
    ] {
        let answer = answered(&server, &["ann@one.example"], &format!("Subject: x\r\n{message}"));
        assert!(answer.starts_with(wanted), "{message:.200}: {answer}");
    }
    let (why, _) = explained(&server, &format!("Subject: x\r\n{deep}{program}\r\n"));
    assert!(why.contains("(malformed nested by nested)"), "{why}");
}

/// Behind what ends a header without an empty line nothing is a field, for rules and for those who get the message.
#[test]
fn what_hides_a_header_is_no_header_for_anybody() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\nrecipient = \"strict@one.example\"\nmalformed = \"header\"\ndo = \"reject 550 5.6.0 No such header\"\n\
        [[rules]]\nsubject = \"spam\"\ndo = \"reject 550 5.7.1 No spam\"\n";
    let server = with(builder(&lab), &[], &format!("{DOMAINS}{rules}"));
    let spam = "Subject: spam\r\n\r\ntext\r\n";
    for lead in ["", "From x\r\n", ">From x\r\n"] {
        let answer = answered(&server, &["ann@one.example"], &format!("{lead}{spam}"));
        assert_eq!(answer, "550 5.7.1 No spam", "{lead}");
    }
    let long = format!("From {}\r\n", "x".repeat(1_000));
    let leads = [
        (" x\r\n", "\r\n x\r\n"),
        (" \r\n", "\r\n \r\n"),
        ("From x\r\n y\r\n", "X-Mailbox-Line: From x\r\n\r\n y\r\n"),
        (&long, &format!("\r\n{long}")),
        ("X\x0c: y\r\n", "\r\nX\x0c: y\r\n"),
        ("A: b\r\ntext\r\n", "A: b\r\n\r\ntext\r\n"),
    ];
    for (n, (lead, stored)) in leads.into_iter().enumerate() {
        let message = format!("{lead}{spam}");
        assert_eq!(answered(&server, &["strict@one.example"], &message), "550 5.6.0 No such header", "{lead}");
        let to = format!("ann{n}@one.example");
        assert!(answered(&server, &[&to], &message).starts_with("250"), "{lead}");
        lab.wait(&format!("a copy for {to}"), |recorder| !recorder.copies_to(&to).is_empty());
        let got = String::from_utf8(lab.body_for(&to)).expect("ASCII");
        // A line over 998 octets is sent with soft line breaks.
        let got = got.replace("=\r\n", "");
        assert!(got.starts_with("Received: ") && got.ends_with(&format!("\r\n{stored}{spam}")), "{got}");
        let (header, _) = got.split_once("\r\n\r\n").expect("an empty line");
        assert!(!header.contains("Subject"), "{got}");
    }
    drained(&server);
}

fn explained(server: &Server, message: &str) -> (String, i32) {
    server.write("message", message.as_bytes());
    let file = server.path("message");
    let to = ["--to", "ann@one.example", "--client", "127.0.0.2", "--message", file.to_str().expect("a path")];
    let output = server.operator(&[&["explain", "--from", "me@home.example"][..], &to].concat());
    (String::from_utf8(output.stdout).expect("text"), output.status.code().expect("a code"))
}

#[test]
fn content_holds_tags_and_routes_and_is_searched_to_the_end_of_large_bodies() {
    let site = |name: &str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    let lab = TestLab::start(&(site("one.example") + &site("two.example")));
    let rules = "[[rules]]\nbody = \"needle\"\ndo = [\"prepend X-Found: needle\", \"route mx:two.example\"]\n\
        [[rules]]\nheader = \"X-Hold: yes\"\ndo = \"hold\"\n[[rules]]\nsubject = \"drop me\"\ndo = \"discard\"\n";
    let server = with(builder(&lab), &[], &format!("{DOMAINS}{rules}"));
    let large = format!("Subject: large\r\n\r\n{}the needle\r\n", "0123456789abcdef\r\n".repeat(40_000));
    assert!(answered(&server, &["ann@one.example"], &large).starts_with("250"));
    assert!(answered(&server, &["bob@one.example"], "Subject: drop me\r\n\r\nx\r\n").starts_with("250"));
    assert!(answered(&server, &["cid@one.example"], "X-Hold: yes\r\n\r\nx\r\n").starts_with("250"));
    lab.wait_copies(1);
    let copies = lab.recorder().copies_to("ann@one.example");
    let body = copies[0].body.as_deref().expect("the lab keeps bodies");
    assert!(body.starts_with(b"X-Found: needle\r\n"), "{}", String::from_utf8_lossy(&body[..200]));
    server.log().wait(&["stat=Sent", "<ann@one.example>", "relay=mx.two.example"]);
    let by = "by rule 1 (stentor.toml:";
    let routed = "ann@one.example: routed by its content to mx:two.example:";
    server.log().wait(&["marks=", &format!("ann@one.example: prepended X-Found {by}"), routed, by]);
    wait_until("one is held", || {
        let shown = server.operator(&["queue", "--json"]);
        String::from_utf8_lossy(&shown.stdout).contains("held")
    });
    assert!(
        lab.recorder().copies_to("bob@one.example").is_empty()
            && lab.recorder().copies_to("cid@one.example").is_empty()
    );
}

#[test]
fn mail_that_content_refuses_or_drops_is_found_again() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\nsubject = \"no programs\"\ndo = \"reject 550 5.7.1 No programs\"\n\
        [[rules]]\nsubject = \"drop me\"\ndo = \"discard\"\n";
    let server = with(taking(builder(&lab)), &[], &format!("{DOMAINS}{rules}"));
    let traced = |what: &str, parts: &[&str]| {
        wait_until(&format!("trace {what} has {parts:?}"), || {
            let shown = String::from_utf8(server.operator(&["trace", what]).stdout).expect("UTF-8");
            parts.iter().all(|part| shown.contains(part))
        });
    };
    let message = |id: &str, subject: &str| format!("Message-ID: <{id}@test>\r\nSubject: {subject}\r\n\r\nx\r\n");
    let to = ["ann@one.example", "bob@one.example"];
    assert!(answered(&server, &to, &message("exe", "no programs")).starts_with("550"));
    let named = "orig_to=<ann@one.example>,<bob@one.example>";
    server.log().wait(&["ruleset=check_eom", "msgid=<exe@test>", named, "policy=rule 1"]);
    let refused = "refused at the end of the data: from <me@home.example> to <ann@one.example>, <bob@one.example>, [127.0.0.2]: 550 5.7.1";
    for what in ["<exe@test>", "ann@one.example", "bob@one.example"] {
        traced(what, &[refused, "policy: rule 1", "Message-ID: <exe@test>"]);
    }
    assert!(answered(&server, &to[..1], &message("gone", "drop me")).starts_with("250"));
    server.log().wait(&["discarded: to=<ann@one.example>, msgid=<gone@test>, from=<me@home.example>"]);
    traced("<gone@test>", &["discarded   ann@one.example", "accepted and discarded"]);
    // The same of a local user, who is named.
    submit(&server, &["-f", "me@one.example", "cid@one.example"], &message("own", "no programs"));
    server.log().wait(&["ruleset=check_eom", "user=uid ", "msgid=<own@test>", "orig_to=<cid@one.example>"]);
    traced("cid@one.example", &["refused at the end of the data:", "by uid ", "No programs"]);
    submit(&server, &["-f", "me@one.example", "cid@one.example"], &message("good", "hello"));
    server.log().wait(&["msgid=<good@test>", "proto=local", "user=uid "]);
    traced("<good@test>", &["accepted", ", by uid "]);
}

#[test]
fn recipients_whose_rules_may_end_otherwise_come_one_kind_at_a_time() {
    let lab = TestLab::sites(&["one.example"]);
    let rules =
        "[[rules]]\nrecipient = \"ann@one.example\"\nbody = \"spam\"\ndo = \"reject 550 5.7.1 Ann wants none\"\n";
    let server = with(builder(&lab), &[], &format!("{DOMAINS}{rules}"));
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.cmd("RCPT TO:<bob@one.example>").expect(452);
    client.cmd("DATA").expect(354);
    client.raw(b"Subject: x\r\n\r\nspam\r\n.\r\n");
    client.reply().expect(550);
    assert!(answered(&server, &["bob@one.example"], "Subject: x\r\n\r\nspam\r\n").starts_with("250"));
    // A trusted client may be a mail program: the refusal is the message's.
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<bob@one.example>").expect(250);
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.cmd("DATA").expect(354);
    client.raw(b"Subject: x\r\n\r\nspam\r\n.\r\n");
    client.reply().expect(550);
    lab.wait_copies(1);
}

/// Whatever a recipient stands for, its rules on content copy and route its mail; a discard names rule and recipient.
#[test]
fn content_copies_and_routes_mail_of_virtual_users_aliases_and_lists() {
    let site = |name: &str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    let lab = TestLab::start(&["one.example", "gate.example", "archive.example"].map(site).concat());
    let rules = "[domains]\nvirtual = [\"shop.example\"]\nrelay = [\"one.example\"]\n\
        [tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n[addresses]\nvirtual = [\"users\"]\n\
        [aliases]\n\"both@lists.test\" = [\"cid@one.example\", \"news@lists.test\"]\n\
        [[rules]]\nsubject = \"gated\"\ndo = [\"copy mx:archive.example\", \"route mx:gate.example\"]\n\
        [[rules]]\nname = \"lure\"\nsubject = \"lure\"\ndo = \"discard nobody wins\"\n";
    let config = builder(&lab).list("news", &["dan@one.example"]).list("plain", &["eve@one.example"]);
    let server = with(config, &[("virtual", "sales@shop.example ann@one.example, bob@one.example\n")], rules);
    let to = ["sales@shop.example", "both@lists.test", "plain@lists.test", "fay@one.example"];
    server.smtp().send("me@home.example", &to, b"Subject: gated\r\n\r\nx\r\n").expect(250);
    for to in ["ann", "bob", "cid", "dan", "eve", "fay"] {
        server.log().wait(&["stat=Sent", &format!("<{to}@one.example>"), "relay=mx.gate.example"]);
    }
    for to in to {
        server.log().wait(&["stat=Sent", &format!("<{to}>"), "relay=mx.archive.example"]);
    }
    drained(&server);
    assert_eq!(server.log().matching(&["stat=Sent", "relay=mx.one.example"]), Vec::<String>::new());
    server.smtp().send("me@home.example", &["fay@one.example"], b"Subject: lure\r\n\r\nx\r\n").expect(250);
    server.log().wait(&[
        "discarded: to=<fay@one.example>",
        "fay@one.example: discarded by rule 2 \"lure\"",
        "nobody wins",
    ]);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(builder(&lab), &[], DOMAINS);
    let wrong = "\n[[rules]]\nscript = \"Chinese\"\nbody = [\"ok\", \"/(/\"]\nheader = \"no colon\"\ndo = \"reject\"\n\
        [[rules]]\nsubject = \"x\"\ndo = \"relay\"\n";
    let file = server.path("wrong.toml");
    let text = std::fs::read_to_string(server.config()).expect("the configuration");
    std::fs::write(&file, format!("{text}{wrong}")).expect("it is written");
    let output = std::process::Command::new(stentor_harness::stentor())
        .args(["check", "--file-only"])
        .arg(&file)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let first = text.lines().count() + 3;
    for (line, words) in [
        (first, "is not a Unicode script"),
        (first + 1, "unclosed group"),
        (first + 2, "is not a header field"),
        (first + 6, "cannot use `relay`"),
    ] {
        assert!(
            said.lines().any(|said| said.contains(&format!(":{line}:")) && said.contains(words)),
            "{line} {words}\n{said}"
        );
    }
}

#[test]
fn fields_are_removed_for_relayed_and_local_mail() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\ndo = [\"remove_header X-Internal\", \"remove_header X-Note: /secret|geheim/\"]\n\
        [[rules]]\nbody = \"spam\"\ndo = [\"prepend X-Spam: by rule\", \"remove_header X-Spam\"]\n";
    let server = with(taking(builder(&lab)), &[], &format!("{DOMAINS}{rules}"));
    let got = |to: &str| {
        lab.wait(&format!("a copy for {to}"), |recorder| !recorder.copies_to(to).is_empty());
        let text = String::from_utf8(lab.body_for(to)).expect("ASCII");
        text.split_inclusive("\r\n").filter(|line| !line.starts_with(['R', '\t'])).collect::<String>()
    };
    let header = "Subject: x\r\nX-Internal: 1\r\nx-internal: 2\r\n folded\r\nX-Note: open\r\nX-Note: =?utf-8?q?gehe?= =?utf-8?q?im?=\r\nX-Spam: no\r\n";
    assert!(
        answered(&server, &["ann@one.example", "bea@one.example"], &format!("{header}\r\nX-Internal: body\r\n"))
            .starts_with("250")
    );
    let plain = "Subject: x\r\nX-Note: open\r\nX-Spam: no\r\n\r\nX-Internal: body\r\n";
    assert_eq!((got("ann@one.example"), got("bea@one.example")), (plain.to_owned(), plain.to_owned()));
    // Those that rules add stay; and a body in many pieces.
    let body = "a line that makes it large\r\n".repeat(40_000) + "spam\r\n";
    assert!(answered(&server, &["cid@one.example"], &format!("{header}\r\n{body}")).starts_with("250"));
    assert_eq!(got("cid@one.example"), format!("X-Spam: by rule\r\nSubject: x\r\nX-Note: open\r\n\r\n{body}"));
    submit(&server, &["dan@one.example"], &format!("{header}\r\nlocal\r\n"));
    let dan = got("dan@one.example");
    assert!(!dan.contains("X-Internal") && !dan.contains("geheim") && dan.contains("X-Spam: no\r\n"), "{dan}");
    // What would be done is shown.
    let (why, _) = explained(&server, &format!("{header}\r\nx\r\n"));
    assert!(why.contains("remove header X-Note: /secret|geheim/"), "{why}");
}

#[test]
fn values_of_fields_are_replaced_and_begin_no_other_field() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\ndo = ['replace_header X-Host: /^(\\w+)\\.lan$/ ${1}.example.org', 'replace_header \
        Subject: /(?s)^(.*)/ [x] $1', 'remove_header X-Host', \
                 'replace_header X-Same: /^1/ 1.0']\n";
    let server = with(taking(builder(&lab)), &[], &format!("{DOMAINS}{rules}"));
    let header = "Subject: =?utf-8?Q?a=0D=0ABcc:_eve=40x?=\r\nX-Host: db7.lan\r\nX-Host: other\r\n";
    assert!(answered(&server, &["ann@one.example"], &format!("{header}\r\nbody\r\n")).starts_with("250"));
    lab.wait_copies(1);
    let copy = String::from_utf8(lab.body_for("ann@one.example")).expect("ASCII");
    assert!(copy.ends_with("Subject: [x] a  Bcc: eve@x\r\nX-Host: db7.example.org\r\n\r\nbody\r\n"), "{copy}");
    // What is as it should be is not said to be replaced.
    assert!(
        answered(&server, &["bob@one.example"], &format!("X-Same: 1.0\r\n{header}\r\nbody\r\n")).starts_with("250")
    );
    let traced = || server.operator_text(&["trace", "bob@one.example"]);
    stentor_harness::wait_until("its edits are known", || traced().contains("replaced Subject"));
    assert!(!traced().contains("X-Same"), "{}", traced());
}

/// What rules on the content do is said of every recipient whose rules they are, and fields that two rules prepend are
/// there once.
#[test]
fn what_content_does_is_said_of_all_recipients() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[[rules]]\nsender = \"me@home.example\"\ndo = \"prepend X-Tag: a\"\n\
        [[rules]]\nsubject = \"look\"\ndo = [\"hold Look\", \"prepend X-Tag: a\", \"discard\", \"reject\"]\n";
    let server = with(builder(&lab), &[], &format!("{DOMAINS}{rules}"));
    let answer = answered(&server, &["ann@one.example", "bob@one.example"], "Subject: look\r\n\r\nx\r\n");
    // Of two actions that end the rules the first counts, as at RCPT.
    assert!(answer.starts_with("250"), "{answer}");
    server.log().wait(&["discarded", "ann@one.example, bob@one.example: discarded by rule 2", "held by rule 2"]);
    server.edit_config(|text| text.replace(", \"discard\", \"reject\"", "").replace("\"hold Look\", ", ""));
    server.operator(&["reload"]);
    let answer = answered(&server, &["ann@one.example"], "Subject: look\r\n\r\nx\r\n");
    assert!(answer.starts_with("250"), "{answer}");
    lab.wait_copies(1);
    let copies = lab.recorder().copies_to("ann@one.example");
    let body = String::from_utf8_lossy(copies[0].body.as_deref().expect("the lab keeps bodies")).into_owned();
    assert_eq!(body.matches("X-Tag: a\r\n").count(), 1, "{body}");
}

/// What is stored is in the encoding that a rule wants, for all recipients, whether it is held in memory or in pieces.
#[test]
fn texts_are_decoded_and_encoded_in_flight() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\nbehaviour = { no_8bitmime = true }\n",
    );
    let rules = "[[rules]]\nsubject = \"decode\"\ndo = [\"remove_header X-Gone\", \"transfer_encoding 8bit\"]\n\
        [[rules]]\nsubject = \"encode\"\ndo = \"transfer_encoding 7bit\"\n";
    let server = with(taking(builder(&lab)), &[], &format!("{DOMAINS}{rules}"));
    let got = |to: &str| {
        lab.wait(&format!("a copy for {to}"), |recorder| !recorder.copies_to(to).is_empty());
        let text = String::from_utf8(lab.body_for(to)).expect("UTF-8");
        text.split_inclusive("\r\n").filter(|line| !line.starts_with(['R', '\t'])).collect::<String>()
    };
    let of = |subject: &str, encoding: &str, body: &str| {
        format!(
            "Subject: {subject}\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: {encoding}\r\n\r\n{body}"
        )
    };
    let encoded = of("decode", "quoted-printable", "Gr=C3=BC=C3=9Fe\r\n.dot =\r\nsoft\r\n");
    let clear = of("decode", "8bit", "Grüße\r\n.dot soft\r\n");
    let to = ["ann@one.example", "bob@two.example"];
    assert!(answered(&server, &to, &format!("X-Gone: 1\r\n{encoded}")).starts_with("250"));
    assert_eq!(got("ann@one.example"), clear);
    // A host without 8BITMIME gets 7 bits as ever.
    assert!(got("bob@two.example").ends_with("quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe\r\n.dot soft\r\n"));
    // A large message, in pieces: its small text is decoded, its large one stays.
    let large = "a line that makes it large=\r\n".repeat(40_000) + "\r\n";
    let parts = |label: &str, first: &str| {
        format!(
            "Subject: decode\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n{label}\r\n--b\r\n{first}\r\n\
             --b\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{large}--b--\r\n"
        )
    };
    assert!(answered(&server, &["cid@one.example"], &parts("", &encoded)).starts_with("250"));
    assert_eq!(got("cid@one.example"), parts("Content-Transfer-Encoding: 8bit\r\n", &clear));
    // Local mail, and what needs no change.
    submit(&server, &["dan@one.example"], &encoded);
    let dan = got("dan@one.example");
    assert!(dan.contains("Encoding: 8bit\r\n") && dan.ends_with("\r\n\r\nGrüße\r\n.dot soft\r\n"), "{dan}");
    assert!(answered(&server, &["eve@one.example"], &clear).starts_with("250"));
    assert_eq!(got("eve@one.example"), clear);
    // To 7 bits; an address that cannot be encoded leaves the message as it is.
    assert!(answered(&server, &["fay@one.example"], &of("encode", "8bit", "Grüße\r\n")).starts_with("250"));
    assert_eq!(got("fay@one.example"), of("encode", "quoted-printable", "Gr=C3=BC=C3=9Fe\r\n"));
    let cannot = format!("To: é@x.example\r\n{}", of("encode", "8bit", "Grüße\r\n"));
    assert!(answered(&server, &["gil@one.example"], &cannot).starts_with("250"));
    assert_eq!(got("gil@one.example"), cannot);
    server.log().wait(&["not re-encoded to 7bit: 8-bit characters in an address"]);
    lab.assert_no_violations();
    // Who broke a signature can be told afterwards.
    for (to, wanted) in [
        ("ann@one.example", "all recipients: in transfer encoding 8bit\n"),
        ("cid@one.example", "all recipients: in transfer encoding 8bit except for 1 encoded text\n"),
        ("fay@one.example", "all recipients: in transfer encoding 7bit\n"),
    ] {
        stentor_harness::wait_until(&format!("trace {to}"), || {
            let traced = server.operator(&["trace", to]);
            String::from_utf8_lossy(&traced.stdout).contains(wanted)
        });
    }
    let (why, _) = explained(&server, &encoded);
    assert!(why.contains("   in transfer encoding 8bit\n"), "{why}");
}
