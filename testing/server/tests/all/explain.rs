//! `stentor explain --message` beside what the server says of the same message.

use stentor_harness::{Server, TestLab};

use crate::kit::builder;
use crate::virtual_users::with;

/// What `explain` says of a message, and its exit code.
fn explained(server: &Server, from: &str, to: &str, message: &str) -> (String, i32) {
    server.write("message", message.as_bytes());
    let file = server.path("message");
    let arguments =
        ["explain", "--from", from, "--to", to, "--client", "127.0.0.2", "--message", file.to_str().unwrap()];
    let output = server.operator(&arguments);
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

/// What the server answers to the same message.
fn answered(server: &Server, from: &str, to: &str, message: &str) -> String {
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
    client.cmd(&format!("RCPT TO:<{to}>")).expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&stentor_harness::dot_stuff(message.as_bytes()));
    let reply = client.reply();
    format!("{} {}", reply.code, reply.lines.join(" "))
}

#[test]
fn a_message_is_judged_as_the_server_judges_it() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab)
            .list("news", &["Ann@one.example", "bob@one.example"])
            .set("lists.news.post", "\"members\"")
            .alias("all@lists.test", &["ann@one.example"])
            .set("received_max", "3")
            .set("message_size_bytes_max", "100000"),
        &[],
        "[domains]\nrelay = [\"one.example\"]\n",
    );
    let plain = "From: Me <me@home.example>\r\nSubject: x\r\n\r\nbody\r\n";
    let (post, alias, relayed) = ("news@lists.test", "all@lists.test", "cid@one.example");
    let many = format!("{}{plain}", "Received: from a by b\r\n".repeat(4));
    let looped = format!("Delivered-To: ALL@lists.test\r\n{plain}");
    let again = format!("List-Id: <news.lists.test>\r\n{plain}");
    let automatic = format!("Auto-Submitted: auto-replied\r\n{plain}");
    let large = format!("{plain}{}", "0123456789abcdef\r\n".repeat(6_000));
    let refused = [
        ("me@home.example", post, plain),
        ("ann@one.example", post, &again),
        ("ann@one.example", post, &automatic),
        ("me@home.example", alias, &looped),
        ("me@home.example", relayed, &many),
        ("me@home.example", relayed, &large),
    ];
    for (from, to, message) in refused {
        let (why, code) = explained(&server, from, to, message);
        let answer = answered(&server, from, to, message);
        assert!(answer.starts_with('5') && why.contains(&format!("=> refused: {answer}\n")), "{answer}\n{why}");
        assert_eq!(code, 69, "{why}");
    }
    let line = |key: &str| {
        let text = std::fs::read_to_string(server.config()).unwrap();
        1 + text.lines().position(|line| line.starts_with(key)).unwrap()
    };
    let (why, _) = explained(&server, "me@home.example", relayed, &many);
    let because = format!("   because of received_max 3 (stentor.toml:{})\n", line("received_max"));
    assert!(why.contains(&because), "{because}\n{why}");
    assert!(why.contains(" octets, 6 fields\n") && !why.contains("relayed to"), "{why}");

    // With the line ends of this system, too.
    let bulk = format!("Precedence: bulk\r\n{plain}");
    let taken = [
        ("ANN@one.example", post, plain, "class bulk: a post"),
        ("me@home.example", alias, &bulk, "class bulk: its header"),
        (
            "me@home.example",
            relayed,
            &plain.replace('\r', ""),
            "class ordinary, unless the sender has sent much mail recently",
        ),
    ];
    for (from, to, message, class) in taken {
        let (why, code) = explained(&server, from, to, message);
        assert!(why.contains(&format!("   {class}\n")), "{class}\n{why}");
        assert_eq!(code, 0, "{why}");
        let answer = answered(&server, from, to, &message.replace('\r', "").replace('\n', "\r\n"));
        assert!(answer.starts_with("250 "), "{answer}");
    }
    // What is wrong with the content is no limit of size.
    let (why, _) = explained(&server, "me@home.example", relayed, "");
    assert!(why.contains("refused: 554 ") && why.contains("   because of the content\n"), "{why}");
    // Who is refused at RCPT is so whatever the message has.
    let (why, code) = explained(&server, "me@home.example", "x@elsewhere.example", plain);
    assert!(why.contains("message: not evaluated: the recipient is refused first\n") && code == 69, "{why}");
}

/// What `check` says, and whether it found the configuration sound.
fn checked(server: &Server) -> (String, bool) {
    let output = server.operator(&["check"]);
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.success())
}

#[test]
fn check_finds_values_that_are_not_in_the_words_of_their_table() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab),
        &[
            (
                "users",
                "# sendmail's\nsales@shop.example\terror:nouser No\n@old.example\t%1@one.example\nann@shop.example ann@one.example\n",
            ),
            ("access", "10.0.0 RELAY\nspam.example ERROR:5.7.1:\"550 no\"\n192.0.2.7 REJECT go away\n"),
        ],
        "[domains]\nvirtual = [\"shop.example\"]\nrelay = [\"one.example\", \".two.example\"]\n\
         [tables.users]\nsource = \"hash:{}/users\"\nas = \"virtual\"\n\
         [tables.access]\nsource = \"hash:{}/access\"\nas = \"access\"\n\
         [addresses]\nvirtual = \"users\"\n[[rules]]\nclient = \"table:access\"\n",
    );
    let (text, is_sound) = checked(&server);
    assert!(is_sound, "{text}");
    for part in [
        "/users:2:1: warning: mail for this key of table users is deferred: \"error:nouser\" is not a valid mail \
         address (table users, stentor.toml:",
        "/users:3:1: warning: mail for this key of table users is deferred: \"%1@one.example\": `%` and a digit are \
         sendmail table syntax; check `as` (table users, stentor.toml:",
        "/access:2:1: warning: mail for this key of table access is deferred: ",
        "1 rule, 2 tables, 2 relay domains; local domains: ",
        "; virtual domains: shop.example; ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("/users:4:") && !text.contains("/access:3:"), "{text}");
    server.edit_config(|text| {
        format!("{text}[[rules]]\ndo = \"reject 550 5.7.1 Gr\u{fc}\u{df}e\"\n[routing]\norder = [\"rule\", \"rule\"]\n")
    });
    let (text, is_sound) = checked(&server);
    assert!(
        !is_sound
            && text.contains("a reply must be ASCII, because not all clients support SMTPUTF8: \"Gr\u{fc}\u{df}e\"\n"),
        "{text}"
    );
    assert!(text.contains("`order` names rule, recipient, sender or default twice\n"), "{text}");
}

/// What `explain` says of a recipient, and its exit code.
fn asked(server: &Server, to: &str, more: &[&str]) -> (String, i32) {
    let arguments = ["explain", "--from", "me@home.example", "--to", to, "--client", "192.0.2.1"];
    let output = server.operator(&[&arguments[..], more].concat());
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

#[test]
fn the_exit_code_says_what_the_server_would_answer() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[domains]\npostmaster = \"ann@one.example\"\nrelay = [\"one.example\"]\n[[rules]]\nrecipient = \"later@one.example\"\ndo = \"defer\"\n";
    let server = with(builder(&lab), &[], rules);
    for (to, wanted) in [("ann@one.example", 0), ("x@two.example", 69), ("later@one.example", 75), ("nobody", 2)] {
        let (why, code) = asked(&server, to, &[]);
        assert_eq!(code, wanted, "{to}: {why}");
        let headline = if code == 75 { "=> deferred: 450 4.7.1 " } else { "=> " };
        assert!(code == 2 || why.contains(headline), "{why}");
        assert!(!why.contains("if its milters"), "{why}");
    }
    // RFC 5321 section 4.5.1: it needs no domain.
    let (why, code) = asked(&server, "Postmaster", &[]);
    assert!(code == 0 && why.contains("=> alias: ann@one.example"), "{code}: {why}");
}

#[test]
fn what_only_a_session_shows_is_said_and_can_be_stated() {
    let lab = TestLab::sites(&["one.example"]);
    let rule = |to: &str, condition: &str| {
        format!("[[rules]]\nrecipient = \"{to}@one.example\"\n{condition}\ndo = \"reject 550 5.7.1 no\"\n")
    };
    let rules = rule("name", "client_name = \"unknown\"")
        + &rule("early", "early_talker = true")
        + &rule("rate", "client_rate_over = \"30 connections/minute\"")
        + "[[rules]]\nrecipient = \"grey@one.example\"\ngreylisted = true\ndo = \"defer\"\n";
    let server = with(builder(&lab), &[], &format!("[domains]\nrelay = [\"one.example\"]\n{rules}"));
    for (to, option, values, hint) in [
        ("name", "--client-name", [("unknown", 69), ("mx.home.example", 0)], "the client's name (--client-name)"),
        ("early", "--early-talker", [("yes", 69), ("no", 0)], "whether it sends before the greeting (--early-talker)"),
        ("rate", "--rate", [("31 connections/minute", 69), ("30 connections/minute", 0)], "its rate (--rate)"),
        ("grey", "--greylisted", [("yes", 75), ("no", 0)], "whether the greylist lets it pass (--greylisted)"),
    ] {
        let to = format!("{to}@one.example");
        let (why, code) = asked(&server, &to, &[]);
        let wanted = format!("   this result may change with unknown facts: {hint}\n");
        assert!(code == 0 && why.contains(&wanted), "{code} {wanted} {why}");
        for (value, wanted) in values {
            let (why, code) = asked(&server, &to, &[option, value]);
            assert!(code == wanted && !why.contains("not known:"), "{value} {code}: {why}");
        }
    }
    let (_, code) = asked(&server, "rate@one.example", &["--rate", "often"]);
    assert_eq!(code, 2);
}

/// What rules on the content add is in the decision, as the server decides it: of a class the first counts, of a next
/// hop theirs.
#[test]
fn the_decision_is_that_of_all_rules() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[domains]\nrelay = [\"one.example\"]\n\
        [[rules]]\nclient = \"127.0.0.2\"\ndo = [\"class ordinary\", \"route mx:a.example\"]\n\
        [[rules]]\nsubject = \"offer\"\ndo = [\"class bulk\", \"route mx:b.example\", \"quarantine spam\"]\n\
        [[rules]]\nauth = \"spf=fail\"\ndo = [\"reject 550 5.7.23 SPF\", \"discard\"]\n";
    let server = with(builder(&lab).set("authserv_id", "\"auth.test\""), &[], rules);
    let (from, to) = ("me@home.example", "ann@one.example");
    let (why, code) = explained(&server, from, to, "Subject: offer\r\n\r\nx\r\n");
    assert!(
        why.contains("=> quarantined; once released, relayed to mx:b.example:") && why.contains(", by rule 2 ("),
        "{why}"
    );
    assert!(why.contains("   class ordinary: a rule\n") && !why.contains("class bulk\n   ") && code == 0, "{why}");
    let (why, code) = explained(&server, from, to, "Authentication-Results: auth.test; spf=fail\r\n\r\nx\r\n");
    assert!(why.contains("=> refused: 550 5.7.23 SPF\n   because of rule 3 (") && code == 69, "{why}");
    let (why, _) = explained(&server, from, to, "Authentication-Results: other.test; spf=fail\r\n\r\nx\r\n");
    assert!(why.contains("=> relayed to mx:a.example"), "{why}");
}

#[test]
fn what_keeps_accepted_mail_in_the_queue_is_said_last() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab),
        &[],
        "[domains]\nrelay = [\"one.example\", \"two.example\"]\n[queue_only.works]\ndomain = \"one.example\"\n\
         [queue_only.shop]\nsender = \"@shop.example\"\n[[rules]]\nsender = \"no@shop.example\"\ndo = \"reject\"\n",
    );
    let said = |from: &str, to: &str| {
        let output = server.operator(&["explain", "--from", from, "--to", to]);
        String::from_utf8(output.stdout).unwrap()
    };
    let works = "\n   accepted and kept in the queue: [queue_only.works] (stentor.toml:";
    let last = said("me@home.example", "ann@one.example");
    assert!(last.contains(works) && last.lines().last().is_some_and(|line| line.contains("works")), "{last}");
    let other = said("me@home.example", "ann@two.example");
    assert!(!other.contains("kept in the queue"), "{other}");
    let shop = said("me@shop.example", "ann@two.example");
    assert!(shop.contains("kept in the queue: [queue_only.shop]"), "{shop}");
    let refused = said("no@shop.example", "ann@one.example");
    assert!(!refused.contains("kept in the queue"), "{refused}");
}

#[test]
fn only_what_changes_in_the_message_is_said_to_change() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[domains]\nrelay = [\"one.example\"]\n\
        [[rules]]\ndo = [\"remove_header X-Spam\", \"replace_header Subject: /^(.*)$/ [x] $1\", \"prepend X-By: us\", \"transfer_encoding 8bit\"]\n\
        [[rules]]\nsubject = \"offer\"\ndo = [\"prepend X-By: us\", \"remove_header X-Other\"]\n\
        [[rules]]\nrecipient = \"gone@one.example\"\ndo = [\"discard\"]\n";
    let server = with(builder(&lab), &[], rules);
    let (from, to) = ("me@home.example", "ann@one.example");
    let changes = |message: &str| {
        let (why, code) = explained(&server, from, to, message);
        assert_eq!(code, 0, "{why}");
        let all = why.lines().filter_map(|line| line.strip_prefix("   ")).map(str::to_owned);
        all.filter(|line| ["with", "header", "in transfer", "unchanged"].iter().any(|word| line.starts_with(word)))
            .collect::<Vec<_>>()
    };
    let by_us = "with X-By: us";
    assert_eq!(changes("From: a@home.example\r\n\r\nx\r\n"), [by_us]);
    let encoded = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
                   Content-Transfer-Encoding: quoted-printable\r\n";
    assert_eq!(
        changes(&format!("x-spam: yes\r\nSubject: an offer\r\nX-Other: y\r\n{encoded}\r\nGr=C3=BC=C3=9Fe\r\n")),
        [
            by_us,
            "without header X-Spam",
            "header changed, Subject: /^(.*)$/ [x] $1",
            "without header X-Other",
            "in transfer encoding 8bit"
        ]
    );
    // Without a message that is unknown.
    let (why, _) = asked(&server, to, &[]);
    assert!(why.contains("without header X-Spam, if it has such a field\n"), "{why}");
    let (why, _) = explained(&server, from, "gone@one.example", "X-Spam: yes\r\n\r\nx\r\n");
    assert!(why.contains("accepted and discarded") && !why.contains("without header"), "{why}");
}

#[test]
fn the_file_of_a_lists_subscribers_is_named() {
    let lab = TestLab::sites(&["one.example"]);
    let server =
        with(builder(&lab).list("news", &["ann@one.example"]).alias("all@lists.test", &["news@lists.test"]), &[], "");
    let file = server.path("news.subscribers");
    for to in ["news@lists.test", "all@lists.test"] {
        let (why, _) = asked(&server, to, &[]);
        let wanted = format!("   subscribers of list news in {} (stentor.toml:", file.display());
        assert_eq!(why.matches(&wanted).count(), 1, "{to}: {why}");
    }
    std::fs::remove_file(&file).unwrap();
    let output = server.operator(&["explain", "--from", "me@home.example", "--to", "news@lists.test"]);
    let why = String::from_utf8_lossy(&output.stdout);
    assert!(why.contains(&format!(" in {}, which does not exist (", file.display())), "{why}");
}
