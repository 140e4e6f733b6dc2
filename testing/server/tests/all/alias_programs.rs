//! Programs and files of alias files: a server and `stentor-deliver` that read the same file, from an SMTP client to a
//! program's standard input.
//!
//! As root alone, as all of local delivery.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::kit::{SENDER, SENDER_SITE, bare, builder, drained, install, report_to};
use crate::local_delivery::{Helper, home, mails, uid_of};

const SERVICE: &str = "[services.aliases]\nkind = \"aliases\"\nfiles = [\"$DIR/aliases\"]\nuser = \"games\"\n";
/// Writes its arguments, what it knows of the envelope, and the message to a file.
pub const PROGRAM: &str = "#!/bin/sh\nto=$1; shift\n{ printf '%s;' \"$@\"; echo $SENDER:$RECIPIENT:$USER:$EXTENSION:`id -un`; cat; } \
                       > \"$to.new\" && mv \"$to.new\" \"$to\"\n";

/// Writes the alias file anew; `$DIR` is the helper's folder, in which every user may write.
fn write(helper: &Helper, aliases: &str) {
    let folder = helper.path("").display().to_string();
    let file = helper.path("aliases");
    fs::write(file.with_extension("new"), aliases.replace("$DIR", folder.trim_end_matches('/'))).unwrap();
    fs::set_permissions(file.with_extension("new"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

/// A helper that is not running yet, with an alias file and a program.
fn helper(more: &str, aliases: &str) -> Option<Helper> {
    let helper = Helper::prepare(&format!("{SERVICE}{more}"))?;
    install(&helper.path("program"), PROGRAM);
    write(&helper, aliases);
    Some(helper)
}

fn server(helper: &Helper, lab: Option<&TestLab>) -> Server {
    server_with(helper, lab.map_or_else(bare, builder), "")
}

fn server_with(helper: &Helper, builder: Builder, more: &str) -> Server {
    let server = builder.fast_retry().prepare();
    let (file, socket) = (helper.path("aliases"), helper.socket("aliases"));
    server.edit_config(|text| {
        format!(
            "{text}\n[domains]\nlocal = [\"home.test\"]\n[tables.aliases]\nsource = \"aliases:{}\"\nas = \"aliases\"\n\
             [addresses]\naliases = \"aliases\"\norigin = \"home.test\"\nprograms = \"lmtp:unix:{}\"\n{more}",
            file.display(),
            socket.display()
        )
    });
    server.run()
}

fn told(server: &Server, arguments: &[&str]) -> String {
    let output = server.operator(arguments);
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// What the program wrote.
fn written(helper: &Helper, name: &str) -> String {
    wait_until("the program has run", || helper.path(name).exists());
    fs::read_to_string(helper.path(name)).unwrap()
}

#[test]
fn programs_files_and_people_of_one_alias_get_their_copies() {
    let aliases = "archive: $DIR/mbox, $DIR/Maildir/, joe\njoe: ann@one.example\n\
                   tickets: \"|$DIR/program $DIR/tickets -q 'a b'\"\nall: tickets, /dev/null\n\
                   null: /dev/null\ncrew: :include:$DIR/crew\n";
    let Some(mut helper) = helper("", aliases) else { return };
    fs::write(
        helper.path("crew"),
        format!("|{} {}\n", helper.path("program").display(), helper.path("crew.out").display()),
    )
    .unwrap();
    fs::set_permissions(helper.path("crew"), fs::Permissions::from_mode(0o644)).unwrap();
    helper.run();
    let lab = TestLab::sites(&["one.example"]);
    let server = server(&helper, Some(&lab));
    let why = told(&server, &["explain", "--from", SENDER, "--to", "Tickets+42@home.test"]);
    let line =
        format!("|{0}/program {0}/tickets -q 'a b'", helper.path("").display().to_string().trim_end_matches('/'));
    assert!(why.contains(&format!("=> alias: {line} as tickets+42=")), "{why}");

    let wire = message("archive@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.connect_from("127.0.0.2").greeted().send(SENDER, &["archive@home.test"], &wire).expect(250);
    lab.wait_clean("archive@test", &["ann@one.example"]);
    let to = ["Tickets+42@home.test", "null@home.test", "crew@home.test"];
    let id =
        server.connect_from("127.0.0.2").greeted().send(SENDER, &to, &message("2@test", "x")).expect(250).queue_id();
    assert_eq!(drained(&server).delivered, 5, "/dev/null is nobody");

    let ticket = written(&helper, "tickets");
    let start = format!("-q;a b;{SENDER}:tickets+42@home.test:tickets:42:games\nFrom {SENDER} ");
    assert!(ticket.starts_with(&start), "{ticket}");
    assert!(ticket.contains(&format!("\nReturn-Path: <{SENDER}>\nDelivered-To: Tickets+42@home.test\n")), "{ticket}");
    assert_eq!(ticket.matches("Delivered-To:").count(), 1, "{ticket}");
    assert!(written(&helper, "crew.out").contains(":crew@home.test:crew::games\n"), "root's file: the service's user");
    assert!(fs::read_to_string(helper.path("mbox")).unwrap().contains("\nDelivered-To: archive@home.test\n"));
    assert_eq!(fs::metadata(helper.path("mbox")).unwrap().uid(), uid_of("games"));
    assert_eq!(mails(&helper.path("Maildir")).len(), 1);

    let log = server.wait_log(&["discarded: to=<", "null@home.test: /dev/null"]);
    assert!(log.contains(&id), "{log}");
    let program = helper.path("program").display().to_string();
    wait_until("the history says which program ran", || {
        told(&server, &["trace", "2@test"]).contains(&format!("Delivered to command {program}"))
    });
    // One message to nobody but /dev/null.
    server.connect_from("127.0.0.2").greeted().send(SENDER, &["null@home.test"], &message("3@test", "x")).expect(250);
    server.log().wait_nth(&["discarded: to=<", "null@home.test: /dev/null"], 2);
    // What the client is told of a name that only the delivery agent may be given.
    let tag = why.split("tickets+42=").nth(1).unwrap().split('@').next().unwrap();
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<>").expect(250);
    client.cmd(&format!("RCPT TO:<tickets={tag}@home.test>")).expect(550);
}

#[test]
fn mail_waits_for_the_helper_and_for_an_alias_that_is_mended() {
    let Some(mut helper) = helper("", "tickets: |$DIR/porgram $DIR/out\nnull: /dev/null\n") else { return };
    let server = server(&helper, None);
    let check = told(&server, &["check"]);
    assert!(check.contains("aliases.sock does not accept connections"), "{check}");
    let to = ["tickets@home.test", "null@home.test"];
    server.smtp().send(SENDER, &to, &message("1@test", "x")).expect(250);
    server.wait_log(&["discarded: to=<", "null@home.test: /dev/null"]);
    server.wait_log(&["stat=Deferred", "aliases.sock", "No such file or directory"]);
    helper.run();
    server.wait_log(&["stat=Deferred", "451 4.3.5 Command could not be started"]);
    write(&helper, "tickets: |$DIR/program $DIR/out\nnull: /dev/null\n");
    assert_eq!(drained(&server).delivered, 1);
    assert!(written(&helper, "out").contains(":tickets@home.test:"));
}

#[test]
fn a_bounce_goes_to_the_owner_who_may_be_a_program() {
    let aliases = "fails: |/bin/false\nowned: |/bin/false\nowner-owned: boss@sender.example\n\
                   hooked: |/bin/false\nowner-hooked: |$DIR/program $DIR/hook\n";
    let Some(mut helper) = helper("", aliases) else { return };
    helper.run();
    let lab = TestLab::start(SENDER_SITE);
    let server = server(&helper, Some(&lab));
    for (n, to) in ["fails@home.test", "owned@home.test", "hooked@home.test"].iter().enumerate() {
        server.smtp().send(SENDER, &[to], &message(&format!("{n}@test"), "x")).expect(250);
    }
    drained(&server);
    let to_sender = report_to(&lab, SENDER);
    let about = &to_sender.recipients[0];
    assert!(about["final-recipient"].contains("; fails@") && about["status"] == "5.3.0", "{}", to_sender.text);
    assert!(report_to(&lab, "boss@sender.example").recipients[0]["final-recipient"].contains("; owned@"));
    let hook = written(&helper, "hook");
    assert!(hook.contains("MAILER-DAEMON:owner-hooked@home.test:owner-hooked::games\nFrom MAILER-DAEMON "), "{hook}");
    assert!(hook.contains("Action: failed") && hook.contains("Final-Recipient: rfc822; hooked@"), "{hook}");
    assert_eq!(lab.recorder().copies().len(), 2, "nobody else hears of it");
}

#[test]
fn mail_that_comes_back_to_an_alias_is_a_loop() {
    let Some(mut helper) = helper("", "tickets: |$DIR/program $DIR/out\n") else { return };
    helper.run();
    let server = server(&helper, None);
    server.smtp().send(SENDER, &["tickets@home.test"], &message("1@test", "x")).expect(250);
    drained(&server);
    // As a program sends it on: without the From line.
    let out = written(&helper, "out");
    let again = out.lines().skip(2).map(|line| format!("{line}\r\n")).collect::<String>();
    assert!(again.starts_with("Return-Path: "), "{again}");
    server.smtp().send(SENDER, &["tickets@home.test"], again.as_bytes()).expect(554);
    // The same at the helper, where another alias leads to this one.
    let why = told(&server, &["explain", "--from", SENDER, "--to", "tickets@home.test"]);
    let tagged = why.split(" as tickets=").nth(1).unwrap().split_whitespace().next().unwrap();
    let to = format!("tickets={tagged}");
    let mut lmtp = helper.connect("aliases");
    let marked = "Delivered-To: tickets@home.test\r\n";
    assert!(lmtp.send_one(&to, &format!("{marked}Subject: x\r\n")).starts_with("250 2.0.0 Delivered to command "));
    let other = format!("Delivered-To: all@home.test\r\n{marked}Subject: x\r\n");
    assert!(lmtp.send_one(&to, &other).starts_with("554 5.4.6 "));
    assert!(lmtp.send_one(&to, &format!("{marked}{marked}")).starts_with("554 5.4.6 "));
}

#[test]
fn mail_that_a_rule_leads_back_to_a_program_is_a_loop() {
    let aliases = "hook: |$DIR/program $DIR/out\nfoo: /dev/null\nbox: $DIR/mbox\n";
    let Some(mut helper) = helper("", aliases) else { return };
    helper.run();
    let rules = "[[rules]]\nrecipient = \"foo@home.test\"\ndo = \"redirect hook@home.test\"\n\
                 [[rules]]\nrecipient = \"box@home.test\"\ndo = \"bcc hook@home.test\"\n";
    let news = bare().list("news", &["ann@one.example"]).set("lists.news.owner", "\"hook@home.test\"");
    let server = server_with(&helper, news, rules);
    let marked = |id: &str| [b"Delivered-To: hook@home.test\r\n".as_slice(), message(id, "x").as_ref()].concat();
    server.smtp().send(SENDER, &["foo@home.test"], &marked("1@test")).expect(554);
    server.smtp().send(SENDER, &["box@home.test"], &marked("2@test")).expect(250);
    // A report to the list's owner.
    server.smtp().send("", &["news-bounces@lists.test"], &marked("2b@test")).expect(250);
    server.wait_log(&["554 5.4.6"]);
    assert_eq!(drained(&server).delivered, 1, "to the file; the copy is left out");
    assert!(!helper.path("out").exists());
    server.smtp().send(SENDER, &["foo@home.test"], &message("3@test", "x")).expect(250);
    let out = written(&helper, "out");
    assert_eq!(out.matches("\nDelivered-To: hook@home.test\n").count(), 1, "{out}");
    // The mark is the server's: one of another alias before it, as an alias of an alias has it, changes nothing.
    let other = [b"Delivered-To: other@home.test\r\n".as_slice(), &marked("4@test")].concat();
    server.smtp().send(SENDER, &["foo@home.test"], &other).expect(554);
}

#[test]
fn only_what_the_alias_file_has_is_run() {
    let Some(mut helper) = helper("", "two: |$DIR/program $DIR/out, /nowhere/box\nshell: |echo $USER > $DIR/out\n")
    else {
        return;
    };
    // The programs of aliases are looked at, and stop nothing.
    let check = helper.command().arg("--check").output().unwrap();
    let (said, named) = (String::from_utf8_lossy(&check.stdout), String::from_utf8_lossy(&check.stderr));
    assert!(check.status.success() && said.ends_with("is valid, but 1 alias program cannot be run\n"), "{said}");
    assert!(named.contains("aliases:2: shell: ") && named.contains("needs a shell; set `shell = true`"), "{named}");
    helper.run();
    let mut lmtp = helper.connect("aliases");
    assert!(lmtp.send_one("two@home.test", "").starts_with("550 5.1.1 "));
    assert!(lmtp.send_one("two=0123456789abcdef@home.test", "").ends_with("was changed or removed"));
    assert!(lmtp.send_one("none=0123456789abcdef@home.test", "").ends_with("not found in this service's alias files"));
    assert!(lmtp.send_one("shell=0123456789abcdef@home.test", "").ends_with("needs a shell; set `shell = true`"));
    // Somebody else could write to it.
    fs::set_permissions(helper.path("aliases"), fs::Permissions::from_mode(0o664)).unwrap();
    let reply = lmtp.send_one("shell=0123456789abcdef@home.test", "");
    assert!(reply.starts_with("451 4.3.5 ") && reply.contains("others can write to it (mode 0664)"), "{reply}");
    let check = helper.command().arg("--check").output().unwrap();
    let text = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(check.status.code() == Some(78) && text.contains("service aliases: "), "{text}");
    assert!(!helper.path("out").exists());
}

#[test]
fn included_files_stop_nobody_else() {
    let Some(mut helper) = helper("", "cat: |/bin/cat, :include:$DIR/none\nall: :include:$DIR/f0\n") else { return };
    // Two ways to each of them: 2^45 to the last.
    for n in 0..45 {
        let next = helper.path(&format!("f{}", n + 1)).display().to_string();
        fs::write(helper.path(&format!("f{n}")), format!(":include:{next}\n:include:{next}\n")).unwrap();
    }
    fs::write(helper.path("f45"), "|/bin/cat\n").unwrap();
    helper.run();
    let mut lmtp = helper.connect("aliases");
    // The tag of `|/bin/cat`, in the alias file itself.
    assert!(lmtp.send_one("cat=8d029dd4d61a35c0@home.test", "").starts_with("250 "));
    let other = lmtp.send_one("cat=0123456789abcdef@home.test", "");
    assert!(other.starts_with("451 4.3.5 ") && other.contains("none: No such file"), "{other}");
    assert!(lmtp.send_one("all=0123456789abcdef@home.test", "").ends_with("was changed or removed"));
}

#[test]
fn a_shell_is_there_if_it_is_asked_for() {
    let Some(mut helper) = helper("shell = true\n", "shell: \"|echo $USER:$EXTENSION `id -un` > $DIR/out\"\n") else {
        return;
    };
    helper.run();
    let server = server(&helper, None);
    server.smtp().send(SENDER, &["\"shell+`x`\"@home.test"], &message("1@test", "x")).expect(250);
    assert_eq!(drained(&server).delivered, 1);
    assert_eq!(written(&helper, "out"), "shell:_x_ games\n");
}

/// A program of one line.
fn script(helper: &Helper, name: &str, text: &str) {
    install(&helper.path(name), &format!("#!/bin/sh\n{text}\n"));
}

#[test]
fn what_a_program_leaves_running_is_part_of_the_delivery() {
    let Some(mut helper) = helper("timeout_s = 20\n", "list: |$DIR/forks $DIR/out\n") else { return };
    // It prints more than a pipe holds as well.
    let text = "cat > $1.new; (setsid sh -c \"sleep 0.3; head -c 200000 /dev/zero; mv $1.new $1\" &)";
    script(&helper, "forks", text);
    helper.run();
    let mut lmtp = helper.connect("aliases");
    let reply = lmtp.send_one("list=0123456789abcdef@home.test", "Subject: x\r\n");
    assert!(reply.starts_with("250 ") && helper.path("out").exists(), "{reply}");
}

#[test]
fn a_program_that_has_taken_the_message_does_not_get_it_again() {
    let Some(mut helper) = helper("timeout_s = 5\n", "list: |$DIR/stays $DIR/out\n") else { return };
    script(&helper, "stays", "cat > $1; (setsid sleep 600 &)");
    helper.run();
    let mut lmtp = helper.connect("aliases");
    let reply = lmtp.send_one("list=0123456789abcdef@home.test", "Subject: x\r\n");
    assert!(reply.starts_with("250 ") && helper.path("out").exists(), "{reply}");
}

#[test]
fn who_is_among_those_behind_his_own_name_has_it_in_his_mailbox() {
    let services = "[services.local]\nkind = \"maildir\"\npath = \"$DIR/${user}/Maildir\"\n";
    let Some(mut helper) = helper(services, "games: games@mail.test, man@mail.test\n") else { return };
    let (games, man) = (home(&helper, "games", uid_of("games")), home(&helper, "man", uid_of("man")));
    helper.run();
    let route = format!("lmtp:unix:{}", helper.socket("local").display());
    let rules = "alias_domains = [\"mail.test\"]\n\
                 [[rules]]\nrecipient = \"man@mail.test\"\ndo = \"bcc games@mail.test\"\n";
    let server = server_with(&helper, bare().route("mail.test", &[&route]), rules);
    // As a copy that a rule makes: his mailbox does not take its own name for a loop.
    server.smtp().send(SENDER, &["man@mail.test"], &message("copied@test", "x")).expect(250);
    let ended = drained(&server);
    assert_eq!((ended.delivered, ended.bounced), (2, 0), "{:?}", server.log().lines());
    assert_eq!((mails(&games.join("Maildir")).len(), mails(&man.join("Maildir")).len()), (1, 1));
    server.smtp().send(SENDER, &["Games@mail.test"], &message("named@test", "x")).expect(250);
    let ended = drained(&server);
    assert_eq!((ended.delivered, ended.bounced), (4, 0), "{:?}", server.log().lines());
}
