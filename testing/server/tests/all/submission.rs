//! Mail of local programs: `stentor-sendmail` and the submission folder (docs/design/submission.md).

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stentor_harness::{Builder, Kind, LoopFs, Server, TestLab, skipped, stentor_sendmail, wait_until};

use crate::kit::{SENDER, SENDER_SITE, bare, builder, drained, report_to};

/// With a submission folder.
pub fn taking(builder: Builder) -> Builder {
    builder.set("submission.folder", "\"submission\"").set("submission.group", "\"\"")
}

/// The program, for this server's folder.
fn program(server: &Server, arguments: &[&str]) -> Command {
    let configuration = server.path("sendmail.conf");
    let line = format!("folder = \"{}\"\n", server.path("submission").display());
    // Others may be reading it.
    if !configuration.exists() {
        std::fs::write(&configuration, line).expect("the test's folder is writable");
    }
    let mut command = Command::new(stentor_sendmail());
    command.arg0("sendmail").arg("-C").arg(configuration).args(arguments);
    command
}

fn run(mut command: Command, input: &str) -> Output {
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().expect("the program can be run");
    // It may end without reading.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

/// Runs it, which must succeed.
#[track_caller]
pub fn submit(server: &Server, arguments: &[&str], input: &str) {
    let output = run(program(server, arguments), input);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there").flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

/// Submissions in any state.
fn waiting(server: &Server) -> usize {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        ["mail-", "deferred-", "taken-", "new-"].iter().any(|begin| name.starts_with(begin))
    };
    files(&server.path("submission")).iter().filter(|path| is_one(path)).count()
}

/// The first message to a recipient.
#[track_caller]
fn received(lab: &TestLab, recipient: &str) -> String {
    lab.wait(&format!("a message to {recipient}"), |recorder| !recorder.copies_to(recipient).is_empty());
    let body = lab.recorder().copies_to(recipient).remove(0).body.expect("the lab keeps bodies");
    String::from_utf8_lossy(&body).into_owned()
}

#[test]
fn what_programs_submit_is_delivered() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let server = taking(builder(&lab)).start();
    let header = "Subject: a test\nTo: Ann <ann@one.example>, root\nBcc: bob@two.example\n";
    submit(&server, &["-ti", "-f", SENDER, "-F", "A Program"], &format!("{header}\nhello\n.\nbye"));
    let ann = received(&lab, "ann@one.example");
    assert!(ann.starts_with("Received: by mx.test (Stentor, from userid "), "{ann}");
    assert!(ann.contains("\r\nTo: Ann <ann@one.example>, root@mx.test\r\n"), "{ann}");
    assert!(ann.contains(&format!("\r\nFrom: A Program <{SENDER}>\r\n")), "{ann}");
    assert!(ann.contains("\r\nMessage-ID: <") && ann.contains("\r\nDate: "), "{ann}");
    assert!(ann.ends_with("\r\n\r\nhello\r\n.\r\nbye\r\n") && !ann.contains("Bcc"), "{ann}");
    assert_eq!(received(&lab, "bob@two.example").split("\r\n\r\n").nth(1), ann.split("\r\n\r\n").nth(1));

    // Text without a header; a dot ends it; a carriage return ends a line.
    submit(&server, &["-f", "<>", "carl@one.example dora@two.example"], "10%\r20%\nend\n.\nnot this\n");
    let carl = received(&lab, "carl@one.example");
    assert!(carl.ends_with("\r\n\r\n10%\r\n20%\r\nend\r\n"), "{carl}");
    assert!(carl.contains("\r\nTo: undisclosed-recipients:;\r\n"), "{carl}");
    assert_eq!(&*lab.recorder().copies_to("carl@one.example")[0].sender, "");
    received(&lab, "dora@two.example");

    // A whole session in one write, as some mail programs do it.
    let session = format!(
        "EHLO x\r\nMAIL FROM:<{SENDER}>\r\nRCPT TO:<erna@one.example>\r\nDATA\r\nSubject: y\r\n\r\n..dots\r\n.\r\nQUIT\r\n"
    );
    let output = run(program(&server, &["-bs"]), &session);
    let replies = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && replies.contains("250 2.0.0 Ok: submitted\r\n221 "), "{replies}");
    let erna = received(&lab, "erna@one.example");
    assert!(erna.ends_with("\r\n\r\n.dots\r\n"), "{erna}");

    // The same from a program that writes lines of this system; in a chunk each octet counts.
    let session = format!(
        "EHLO x\nMAIL FROM:<{SENDER}>\nRCPT TO:<gina@one.example>\nDATA\nSubject: y\n\n..dots\n.\nMAIL FROM:<{SENDER}>\n\
         RCPT TO:<hans@one.example>\nBDAT 15\nSubject: z\r\n\r\nxBDAT 3 LAST\ny\r\nQUIT\n"
    );
    let output = run(program(&server, &["-bs"]), &session);
    let replies = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && replies.contains("250 2.0.0 Ok: submitted\r\n221 "), "{replies}");
    assert!(received(&lab, "gina@one.example").ends_with("\r\n\r\n.dots\r\n"));
    assert!(received(&lab, "hans@one.example").ends_with("\r\n\r\nxy\r\n"));

    // What a program passes on from strangers ends no message of one that ends its own lines with CR LF.
    let session = format!(
        "EHLO x\r\nMAIL FROM:<{SENDER}>\r\nRCPT TO:<ida@one.example>\r\nDATA\r\nSubject: y\r\n\r\ntext\n.\n\
         MAIL FROM:<{SENDER}>\r\nRCPT TO:<victim@one.example>\r\nDATA\r\n\r\nx\r\n.\r\nQUIT\r\n"
    );
    let output = run(program(&server, &["-bs"]), &session);
    let replies = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(replies.contains("550 5.5.2 Bare ") && !replies.contains("Ok: submitted"), "{replies}");

    // Larger than any piece.
    let large = "0123456789abcdef\n".repeat(60_000);
    submit(&server, &["-f", SENDER, "fritz@two.example"], &format!("Subject: large\n\n{large}"));
    assert_eq!(received(&lab, "fritz@two.example").split_once("\r\n\r\n").map(|both| both.1.len()), Some(60_000 * 18));
    wait_until("the folder is drained", || waiting(&server) == 0);
    drained(&server);
    lab.assert_no_violations();
}

/// As Postfix does with myorigin.
#[test]
fn names_without_a_domain_get_that_of_the_origin() {
    let lab = TestLab::sites(&["one.example"]);
    let server = taking(builder(&lab)).set("addresses.origin", "\"one.example\"").start();
    submit(&server, &["-ti"], "To: root\n\nhello\n");
    let root = received(&lab, "root@one.example");
    assert!(root.contains("\r\nTo: root@one.example\r\n") && !root.contains("X-Authentication-Warning"), "{root}");
    assert!(root.lines().any(|line| line.starts_with("From: ") && line.contains("@one.example")), "{root}");
    assert!(root.lines().any(|line| line.starts_with("Message-ID: <") && line.ends_with("@mx.test>")), "{root}");
    assert!(lab.recorder().copies_to("root@one.example")[0].sender.ends_with("@one.example"));

    let session = "EHLO x\r\nMAIL FROM:<cron>\r\nRCPT TO:<ann>\r\nDATA\r\nSubject: y\r\n\r\nx\r\n.\r\nQUIT\r\n";
    let output = run(program(&server, &["-bs"]), session);
    assert!(String::from_utf8_lossy(&output.stdout).contains("250 2.0.0 Ok: submitted\r\n221 "), "{output:?}");
    received(&lab, "ann@one.example");
    assert_eq!(&*lab.recorder().copies_to("ann@one.example")[0].sender, "cron@one.example");
    drained(&server);
}

#[test]
fn a_server_that_is_down_delivers_later() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = taking(builder(&lab)).prepare();
    let output = run(program(&server, &["ann@one.example"]), "hello\n");
    assert_eq!(output.status.code(), Some(75), "there is no folder yet: {output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("docs/operate/sendmail.md"), "{output:?}");
    server.start_again();
    assert!(server.stop().success());
    for n in 0..20 {
        submit(&server, &["-f", SENDER, &format!("u{n}@one.example")], "hello\n");
    }
    assert_eq!(waiting(&server), 20);
    let output = run(program(&server, &["-bp"]), "");
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("; 20 in the submission folder\n"), "{output:?}");
    let shown = String::from_utf8(server.operator(&["doctor"]).stdout).expect("UTF-8");
    assert!(
        shown.contains("20 messages from local users in the submission folder ") && shown.contains(", the first for "),
        "{shown}"
    );
    assert!(!shown.contains("the last batch is"), "{shown}");
    server.start_again();
    lab.wait_copies(20);
    wait_until("the folder is drained", || waiting(&server) == 0);
    assert_eq!(lab.stats().sinks.duplicates, 0);
}

/// docs/design/submission.md: a server that was killed after it had delivered a message, and before its file was
/// removed.
#[test]
fn a_delivered_submission_whose_file_is_still_there_is_not_sent_again() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = taking(builder(&lab)).start();
    assert!(server.stop().success());
    submit(&server, &["-f", SENDER, "ann@one.example"], "hello\n");
    let complete = |folder: &Path| {
        let found = files(folder).into_iter().find(|path| path.to_string_lossy().contains("/mail-"));
        found.expect("a submission")
    };
    let folder = server.path("submission");
    let file = complete(&folder);
    let kept = std::fs::read(&file).unwrap();
    server.start_again();
    let sent = server.wait_log(&["stat=Sent", "to=<ann@one.example>"]);
    wait_until("the folder is drained", || waiting(&server) == 0);
    drained(&server);
    // The outcome is durable with the next acceptance.
    server.smtp().send(SENDER, &["cid@one.example"], b"Subject: x\r\n\r\n").expect(250);
    server.kill();
    let id = sent.split("]: ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let stem = file.file_name().unwrap().to_string_lossy().replace("mail-", "");
    let again = folder.join(format!("taken-{id}-{stem}"));
    std::fs::write(&again, kept).unwrap();
    std::fs::set_permissions(&again, std::fs::Permissions::from_mode(0o444)).unwrap();
    server.start_again();
    submit(&server, &["-f", SENDER, "bob@one.example"], "hello\n");
    server.wait_log(&["stat=Sent", "to=<bob@one.example>"]);
    assert!(!again.exists());
    drained(&server);
    assert_eq!(lab.recorder().copies_to("ann@one.example").len(), 1);
}

#[test]
fn kill_nine_at_any_moment_loses_no_submission() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = taking(builder(&lab)).start();
    let (done, submitted) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (done, submitted, template) = (&done, &submitted, program(&server, &[]));
            scope.spawn(move || {
                for n in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut command = Command::new(template.get_program());
                    let to = format!("t{thread}n{n}@one.example");
                    command.arg0("sendmail").args(template.get_args()).args(["-f", SENDER, &to]);
                    let output = run(command, "Subject: x\n\nx\n");
                    assert_eq!(output.status.code(), Some(0), "{output:?}");
                    submitted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..6 {
            let before = submitted.load(Ordering::Relaxed);
            wait_until("the load goes on", || submitted.load(Ordering::Relaxed) > before + 10);
            server.kill();
            server.start_again();
        }
        done.store(true, Ordering::Relaxed);
    });
    let submitted = submitted.load(Ordering::Relaxed);
    wait_until("the folder is drained", || waiting(&server) == 0);
    drained(&server);
    let delivered = |recipient: &str| !lab.recorder().copies_to(recipient).is_empty();
    let found =
        (0..3).map(|thread| (0..=submitted).take_while(|n| delivered(&format!("t{thread}n{n}@one.example"))).count());
    assert_eq!(found.sum::<usize>(), submitted, "each submission that was acknowledged was delivered");
    lab.assert_no_violations();
}

/// Submits some messages to a folder on a file system of its own, cuts the power after each; how many are lost.
fn lost_by_power_cuts(kind: Kind, program: &[&str]) -> Option<usize> {
    const CUTS: usize = 3;
    let mut fs = LoopFs::make(kind)?;
    let folder = fs.path().join("submission");
    std::fs::create_dir(&folder).expect("the file system is writable");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1730)).expect("root may");
    let other = tempfile::tempdir().expect("a temporary folder can be made");
    let configuration = other.path().join("sendmail.conf");
    std::fs::write(&configuration, format!("folder = \"{}\"\n", folder.display())).expect("it is writable");
    rustix::fs::sync();
    let mut lost = 0;
    for _ in 0..CUTS {
        let mut words = program.iter().map(AsRef::as_ref).chain([stentor_sendmail().as_os_str()]);
        let mut command = Command::new(words.next().expect("there is one"));
        command.args(words).arg("-C").arg(&configuration).arg("ann@one.example");
        let output = run(command, "Subject: x\n\nx\n");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        fs.power_cut();
        fs.reboot();
        let kept: Vec<Vec<u8>> = files(&folder).iter().map(|path| std::fs::read(path).expect("readable")).collect();
        lost +=
            usize::from(kept.len() != 1 || !kept[0].starts_with(b"StSubmit") || !kept[0].ends_with(b"ann@one.example"));
        for path in files(&folder) {
            std::fs::remove_file(path).expect("root may");
        }
        rustix::fs::sync();
    }
    Some(lost)
}

#[test]
fn a_power_cut_after_exit_0_loses_no_submission() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        assert!(lost_by_power_cuts(kind, &[]).is_none_or(|lost| lost == 0), "{kind:?}");
    }
}

#[test]
fn a_power_cut_without_syncs_loses_submissions() {
    // Shows that the test above can fail.
    assert!(lost_by_power_cuts(Kind::Ext4, &["eatmydata"]).is_none_or(|lost| lost > 0));
}

#[test]
fn what_is_refused_goes_back_and_what_is_damaged_aside() {
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{SENDER_SITE}"));
    let server = taking(builder(&lab)).set("domains.local", "[\"lists.test\"]").start();
    // Nobody can be told of the first two.
    let folder = server.path("submission");
    for (name, text) in [("mail-0a-1", "This is no submission, whatever its name says."), ("mail-0a-2", "")] {
        std::fs::write(folder.join(name), text).expect("the folder is the test's");
        std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o444)).expect("its own");
    }
    submit(&server, &["-f", "<>", "gone@lists.test"], "x\n");
    submit(&server, &["-f", SENDER, "ann@one.example", "gone@lists.test", "a@@b"], "Subject: to three\n\nx\n");
    received(&lab, "ann@one.example");
    let report = report_to(&lab, SENDER);
    let status = |address: &str| report.about(address)["status"].clone();
    assert_eq!((status("gone@lists.test"), status("a@@b")), ("5.1.1".to_owned(), "5.1.3".to_owned()));
    assert_eq!(report.recipients.len(), 2, "{}", report.text);
    wait_until("the folder is drained", || waiting(&server) == 0);
    let bad = files(&folder.join("bad"));
    let reasons = bad.iter().filter(|path| path.extension().is_some_and(|ending| ending == "reason"));
    let reasons: String = reasons.map(|path| std::fs::read_to_string(path).expect("a text")).collect();
    assert_eq!(bad.len(), 6, "{bad:?}");
    assert!(
        reasons.contains("not a submission") && reasons.contains("lengths") && reasons.contains("gone@lists.test"),
        "{reasons}"
    );
    // The program refuses at once what has no chance.
    for (arguments, code) in [(&["a@@b"][..], 67), (&[], 64), (&["-t"], 64), (&["-f", "a@@b", "ann@one.example"], 65)] {
        let output = run(program(&server, arguments), "Subject: x\n\nx\n");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
    assert_eq!(waiting(&server), 0);
    lab.assert_no_violations();
}

/// What rules say of a submission changes between its tries: each recipient has one fate, across a kill.
#[test]
fn each_recipient_of_a_deferred_submission_has_one_fate() {
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{SENDER_SITE}"));
    let mut server = taking(builder(&lab)).prepare();
    let plain = std::fs::read_to_string(server.config()).expect("the configuration");
    let later = "\n[[rules]]\nsubject = \"later\"\ndo = \"defer 451 4.7.1 Later\"\n";
    let refused =
        |who: &str| format!("\n[[rules]]\nrecipient = \"{who}@one.example\"\ndo = \"reject 550 5.7.1 Not them\"\n");
    server.edit_config(|text| format!("{text}{}{later}", refused("bob")));
    server = server.run();
    // Bob is refused and reported, the message is deferred.
    submit(&server, &["-f", SENDER, "ann@one.example", "bob@one.example"], "Subject: later\n\nx\n");
    report_to(&lab, SENDER).about("bob@one.example");
    // Nobody has heard of Cid and Dan yet.
    submit(&server, &["-f", "other@one.example", "cid@one.example", "dan@one.example"], "Subject: later\n\ny\n");
    server.log().wait(&["ruleset=check_eom", "from=<other@one.example>"]);
    server.kill();
    server.edit_config(|_| format!("{plain}{}", refused("dan")));
    server.start_again();
    received(&lab, "ann@one.example");
    received(&lab, "cid@one.example");
    let report = received(&lab, "other@one.example");
    assert!(report.contains("dan@one.example") && report.contains("5.7.1"), "{report}");
    wait_until("the folder is drained", || waiting(&server) == 0);
    drained(&server);
    let copies = |who: &str| lab.recorder().copies_to(who).len();
    assert_eq!((copies("bob@one.example"), copies("dan@one.example")), (0, 0));
    // A kill may repeat a delivery, but no report.
    let reports = |who: &str| {
        let bodies = lab.recorder().copies_to(who).into_iter().filter_map(|copy| copy.body);
        let ids = bodies.filter_map(|body| {
            let text = String::from_utf8_lossy(&body).into_owned();
            text.lines().find(|line| line.starts_with("Message-ID:")).map(str::to_owned)
        });
        ids.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((reports(SENDER), reports("other@one.example")), (1, 1));
    let is_left = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("reported-"));
    wait_until("nothing is kept of them", || !files(&server.path("submission")).iter().any(is_left));
    lab.assert_no_violations();
}

/// Whether the folder has a file whose name begins so.
fn has(server: &Server, begin: &str) -> bool {
    let is_one = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin));
    files(&server.path("submission")).iter().any(is_one)
}

const LATER: &str = "\n[[rules]]\nrecipient = \"bob@one.example\"\ndo = \"defer 451 4.7.1 Not yet\"\n";

/// A recipient that is deferred holds no other, and gets the message when it may, across a kill.
#[test]
fn a_deferred_recipient_of_a_submission_holds_no_other() {
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{SENDER_SITE}"));
    let mut server = taking(builder(&lab)).prepare();
    let plain = std::fs::read_to_string(server.config()).expect("the configuration");
    server.edit_config(|text| format!("{text}{LATER}"));
    server = server.run();
    submit(&server, &["-f", SENDER, "ann@one.example", "bob@one.example", "a@@b"], "Subject: two\n\nx\n");
    received(&lab, "ann@one.example");
    report_to(&lab, SENDER).about("a@@b");
    wait_until("the rest waits", || has(&server, "deferred-"));
    let listed = || {
        let status = server.operator(&["status"]);
        String::from_utf8_lossy(&status.stdout).into_owned()
    };
    wait_until("status has it", || listed().contains("1 message in the submission folder (1 deferred)"));
    let mailq = run(program(&server, &["-bp"]), "");
    let mailq = String::from_utf8_lossy(&mailq.stdout).into_owned();
    assert!(mailq.contains("-- 1 in the submission folder since ") && mailq.contains("1 of them refused"), "{mailq}");
    server.kill();
    server.edit_config(|_| plain);
    server.start_again();
    received(&lab, "bob@one.example");
    wait_until("the folder is drained", || waiting(&server) == 0 && !has(&server, "reported-"));
    drained(&server);
    let copies = |who: &str| lab.recorder().copies_to(who).len();
    assert_eq!((copies("ann@one.example"), copies("bob@one.example")), (1, 1));
    lab.assert_no_violations();
}

/// After the lifetime the rest is returned, and the others have their message.
#[test]
fn a_deferred_recipient_of_a_submission_expires() {
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{SENDER_SITE}"));
    let mut server = taking(builder(&lab)).set("retry.lifetime_s", "1").prepare();
    server.edit_config(|text| format!("{text}{LATER}"));
    server = server.run();
    submit(&server, &["-f", SENDER, "ann@one.example", "bob@one.example"], "Subject: two\n\nx\n");
    let report = report_to(&lab, SENDER);
    assert_eq!(report.about("bob@one.example")["status"], "5.4.7", "{}", report.text);
    assert!(report.text.contains("451 4.7.1 Not yet") && report.text.contains("time allowed"), "{}", report.text);
    wait_until("the folder is drained", || waiting(&server) == 0 && !has(&server, "reported-"));
    received(&lab, "ann@one.example");
    assert_eq!(report.recipients.len(), 1, "{}", report.text);
    lab.assert_no_violations();
}

/// docs/design/submission.md: a server that was killed after a message for some of the recipients was durable, before
/// that was written down. And one that was killed before it was durable.
#[test]
fn a_kill_between_a_part_and_its_record_repeats_and_loses_nobody() {
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{SENDER_SITE}"));
    let mut server = taking(builder(&lab)).prepare();
    let plain = std::fs::read_to_string(server.config()).expect("the configuration");
    server.edit_config(|text| format!("{text}{LATER}"));
    server = server.run();
    submit(&server, &["-f", SENDER, "ann@one.example", "bob@one.example"], "Subject: two\n\nx\n");
    let sent = server.wait_log(&["stat=Sent", "to=<ann@one.example>"]);
    wait_until("the rest waits", || has(&server, "deferred-"));
    // The outcome is durable with the next acceptance.
    server.smtp().send(SENDER, &["cid@one.example"], b"Subject: x\r\n\r\n").expect(250);
    server.kill();
    let id = sent.split("]: ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let folder = server.path("submission");
    let file = files(&folder).into_iter().find(|path| path.to_string_lossy().contains("/deferred-")).unwrap();
    let stem = file.file_name().unwrap().to_string_lossy().replace("deferred-", "");
    // As if nothing had happened since the acceptance.
    std::fs::rename(&file, folder.join(format!("taken-{id}-{stem}"))).unwrap();
    std::fs::write(folder.join(format!("reported-{stem}")), format!("1\ndone\nreport {id} 0\n")).unwrap();
    // And another, which was to be handed over under an id that the journal never saw.
    let lost = "0".repeat(id.len());
    std::fs::copy(folder.join(format!("taken-{id}-{stem}")), folder.join(format!("taken-{lost}-0a-1"))).unwrap();
    std::fs::write(folder.join("reported-0a-1"), format!("1\ndone 1\nreport {lost} 0\n")).unwrap();
    server.edit_config(|_| plain);
    server.start_again();
    received(&lab, "bob@one.example");
    wait_until("the folder is drained", || waiting(&server) == 0 && !has(&server, "reported-"));
    drained(&server);
    let copies = |who: &str| lab.recorder().copies_to(who).len();
    // Ann's second is that of the other submission.
    assert_eq!((copies("ann@one.example"), copies("bob@one.example")), (2, 1));
    lab.assert_no_violations();
}

#[test]
fn a_refusal_is_told_to_who_reads_the_senders_mail() {
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{SENDER_SITE}"));
    let server = taking(builder(&lab))
        .set("domains.local", "[\"lists.test\"]")
        .set_in("aliases", "\"root@lists.test\"", &format!("[\"{SENDER}\"]"))
        .start();
    submit(&server, &["-f", "root@lists.test", "gone@lists.test"], "Subject: of cron\n\nx\n");
    let report = report_to(&lab, SENDER);
    assert_eq!(report.about("gone@lists.test")["status"], "5.1.1", "{}", report.text);
    // A sender that nobody reads: kept for the operator.
    submit(&server, &["-f", "nobody@lists.test", "gone@lists.test"], "Subject: of nobody\n\nx\n");
    let bad = server.path("submission").join("bad");
    let is_reason = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "reason");
    wait_until("it is put aside", || bad.exists() && files(&bad).iter().any(is_reason));
    wait_until("the folder is drained", || waiting(&server) == 0);
    lab.assert_no_violations();
}

#[test]
fn the_program_keeps_to_the_servers_limits() {
    let server = taking(bare()).set("message_size_bytes_max", "100000").set("submission.recipients_max", "2").start();
    let large = "x\n".repeat(40_000);
    let output = run(program(&server, &["ann@one.example"]), &large);
    assert_eq!(output.status.code(), Some(69), "a line end counts as two octets: {output:?}");
    let output = run(program(&server, &["a@one.example", "b@one.example", "c@one.example"]), "x\n");
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert_eq!(waiting(&server), 0, "nothing is left behind");
}

#[test]
fn the_queue_is_listed_as_monitors_expect_it() {
    let lab = TestLab::start("[[site]]\nname = 'later.example'\nbehaviour = { connect = 'refuse' }\n");
    let mut server = taking(builder(&lab)).set("retry.host_min_s", "3600").set("retry.host_max_s", "3600").start();
    let asked = |arguments: &[&str]| {
        let output = run(program(&server, arguments), "");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!((asked(&["-bp"]).as_str(), asked(&["-bP"]).as_str()), ("Mail queue is empty\n", "0\n"));
    submit(&server, &["-f", SENDER, "ann@later.example", "bob@later.example"], "x\n");
    submit(&server, &["-f", "<>", "carl@later.example"], "x\n");
    wait_until("both are queued", || asked(&["-bP"]) == "2\n");
    let listed = asked(&["-bp"]);
    for expected in ["-Queue ID-", SENDER, "MAILER-DAEMON", "ann@later.example\n", "-- 1 Kbytes in 2 Requests.\n"] {
        assert!(listed.contains(expected), "{expected}: {listed}");
    }
    let id =
        listed.lines().find(|line| line.contains(SENDER)).and_then(|line| line.get(..12)).expect("an id").to_owned();
    for selector in [format!("-qI{id}"), format!("-qS{SENDER}"), "-qRann@later.example".to_owned()] {
        assert_eq!(asked(&[&selector]), "", "{selector}");
    }
    assert_eq!(run(program(&server, &["-qIxyz"]), "").status.code(), Some(69), "no queue id");
    wait_until("the site is known", || asked(&["-bh"]).contains("later.example"));
    let verified = "ann@later.example... deliverable: mailer esmtp, host later.example, user ann@later.example\n";
    assert_eq!(asked(&["-bv", "ann@later.example"]), verified);
    asked(&["-q"]);
    asked(&["-qRlater.example"]);
    asked(&["-q15m"]);
    server.kill();
}

/// `-bv` says who gets mail in the end, as RCPT decides.
#[test]
fn addresses_are_verified_as_the_server_decides() {
    let lab = TestLab::sites(&["one.example"]);
    let list = builder(&lab)
        .list("news", &["ann@one.example"])
        .alias("two@lists.test", &["cid@one.example", "news@lists.test"]);
    let mut server = taking(list).prepare();
    server.write("aliases", b"joe: dan@one.example, |\"/bin/cat x\", eve@routed.example, /dev/null\n");
    let aliases = server.path("aliases");
    server.edit_config(|text| {
        format!(
            "{text}\n[tables.aliases]\nsource = \"aliases:{}\"\nas = \"aliases\"\n[addresses]\naliases = [\"aliases\"]\n[routes]\n\"routed.example\" = \
             \"[127.0.0.9]:26\"\n{LATER}",
            aliases.display()
        )
    });
    server = server.run();
    let verify = |server: &Server, address: &str| {
        let output = run(program(server, &["-bv", address]), "");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let asked = |address: &str| verify(&server, address);
    let deliverable = |address: &str, how: &str| format!("{address}... deliverable: mailer {how}, user {address}\n");
    let cid = deliverable("cid@one.example", "esmtp, host one.example");
    let news = "two@lists.test... deliverable: mailer list, user news\n";
    assert_eq!(asked("two@lists.test"), (Some(0), format!("{cid}{news}")));
    let (code, joe) = asked("joe@lists.test");
    for expected in [
        deliverable("dan@one.example", "esmtp, host one.example"),
        deliverable("eve@routed.example", "esmtp, host 127.0.0.9:26"),
        "... deliverable: mailer prog, user |".to_owned(),
        deliverable("/dev/null", "*file*"),
    ] {
        assert!(joe.contains(&expected), "{expected}: {joe}");
    }
    assert_eq!((code, joe.lines().count()), (Some(0), 4), "{joe}");
    let (code, text) = asked("nobody@lists.test");
    assert!(code == Some(67) && text.starts_with("nobody@lists.test... 550 5.1.1 "), "{code:?} {text}");
    let (code, text) = asked("bob@one.example");
    assert_eq!((code, text.as_str()), (Some(75), "bob@one.example... 451 4.7.1 Not yet\n"));
    assert_eq!(asked("a@@b").0, Some(67));
    // A folder that is another user's than root's, as whom the server runs here: its settings are read all the same.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(server.path("submission"), Some(12_345), None).expect("root may");
        assert_eq!(asked("cid@one.example"), (Some(0), cid));
    }
    server.kill();
    assert_eq!(verify(&server, "cid@one.example").0, Some(75), "no server");
}

/// Commands for a namespace of their own, in which the folder is where the program looks for it.
const NAMESPACE: &str = "mount --make-rprivate / && mount -t tmpfs tmpfs /var/spool && mkdir -p /var/spool/stentor && \
                         mount --bind \"$0\" /var/spool/stentor && exec \"$@\"";

fn run_as_nobody(spool: &Path, command: &str, input: &str) -> Output {
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-ec", NAMESPACE]).arg(spool);
    unshare.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    unshare.args(["sh", "-c", command]).current_dir("/");
    run(unshare, input)
}

#[test]
fn users_are_kept_apart_and_known_by_their_id() {
    const GROUP: u32 = 4_242;
    let can = Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|output| output.status.success());
    if !rustix::process::geteuid().is_root() || !can {
        return skipped("users are kept apart: needs root and mount namespaces");
    }
    let lab = TestLab::sites(&["one.example"]);
    let mut server = taking(builder(&lab))
        .set("submission.folder", "\"spool/submission\"")
        .set("submission.senders", "{ nobody = [\"@shop.example\"] }")
        .prepare();
    let spool = server.path("spool");
    std::fs::create_dir(&spool).expect("the test's folder is writable");
    server.start_again();
    let folder = spool.join("submission");
    let chown = |path: &Path| std::os::unix::fs::chown(path, None, Some(GROUP)).expect("root may");
    chown(&folder);
    let setgid = server.path("spool/sendmail");
    // By another process: a child that another test forks while it is written would keep it from being run.
    let copied = Command::new("cp").arg(stentor_sendmail()).arg(&setgid).status();
    assert!(copied.is_ok_and(|status| status.success()), "there is space");
    chown(&setgid);
    std::fs::set_permissions(&setgid, PermissionsExt::from_mode(0o2755)).expect("root may");
    std::fs::set_permissions(&spool, PermissionsExt::from_mode(0o755)).expect("root may");
    let as_nobody = |command: &str, input: &str| run_as_nobody(&spool, command, input);
    let sendmail = "/var/spool/stentor/sendmail";
    // What others submitted and what one's own is cannot be listed, read, made or removed.
    server.stop();
    let done = as_nobody(&format!("{sendmail} -f other@one.example ann@one.example"), "x\n");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let file = files(&folder).into_iter().find(|path| path.to_string_lossy().contains("/mail-")).expect("submitted");
    let data = std::fs::metadata(&file).expect("it is there");
    assert_eq!((data.uid(), data.gid(), data.mode() & 0o7777), (65_534, GROUP, 0o444));
    let inside = format!("/var/spool/stentor/submission/{}", file.file_name().expect("a name").to_string_lossy());
    for command in [
        "ls /var/spool/stentor/submission".to_owned(),
        format!("cat {inside}"),
        format!("chmod u+w {inside}"),
        format!("rm -f {inside}"),
        format!("ln {inside} /tmp/x"),
        "touch /var/spool/stentor/submission/mail-0a-1".to_owned(),
        "cat /var/spool/stentor/submission/settings".to_owned(),
        format!("{sendmail} -C /dev/null ann@one.example"),
        // The program's descriptors while it reads.
        format!(
            "cd $(mktemp -d); mkfifo f; {sendmail} -i zoe@one.example <f & p=$!; exec 9>f; echo x >&9; sleep 1; \
             kill -0 $p || exit 0; ls /proc/$p/fd"
        ),
    ] {
        let done = as_nobody(&command, "x\n");
        assert!(!done.status.success(), "{command}: {done:?}");
    }
    server.start_again();
    let body = received(&lab, "ann@one.example");
    let warning = "X-Authentication-Warning: mx.test: uid 65534 (nobody) set sender to other@one.example using -f\r\n";
    assert!(body.contains("from userid 65534)") && body.contains(warning), "{body}");
    for (sender, to) in [("nobody", "bob@one.example"), ("x@shop.example", "carl@one.example")] {
        let done = as_nobody(&format!("{sendmail} -f {sender} {to}"), "x\n");
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert!(!received(&lab, to).contains("X-Authentication-Warning"));
    }
    assert_eq!(&*lab.recorder().copies_to("bob@one.example")[0].sender, "nobody@mx.test");
    server.edit_config(|text| text.replace("[submission]", "[submission]\nstrict = true"));
    server.operator(&["reload"]);
    wait_until("the settings are new", || {
        std::fs::read_to_string(folder.join("settings")).is_ok_and(|text| text.contains("strict yes"))
    });
    let done = as_nobody(&format!("{sendmail} -f other@one.example ann@one.example"), "x\n");
    assert_eq!(done.status.code(), Some(77), "{done:?}");
}
