//! How much users may send, and their locks: of our own file and of Dovecot's users, of open sessions, after reloads
//! and restarts.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use base64ct::{Base64, Encoding as _};
use stentor_harness::{Server, Smtp, TestLab, wait_until};

use crate::auth::{PASSWORD, started};
use crate::http_auth::token;

const ANN: &str = "ann@home.example";

fn auth_plain(user: &str) -> String {
    format!("AUTH PLAIN {}", Base64::encode_string(format!("\0{user}\0{PASSWORD}").as_bytes()))
}

/// A session of a user, in clear.
fn logged_in(server: &Server, user: &str) -> Smtp {
    let mut smtp = Smtp::connect(server.address_of("submission")).greeted();
    smtp.cmd(&auth_plain(user)).expect(235);
    smtp
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn user(server: &Server, arguments: &[&str]) -> (String, String) {
    let output = server.operator(&[&["user"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    (text(&output.stdout), text(&output.stderr))
}

/// MAIL, and as many recipients as are taken.
fn recipients_taken(smtp: &mut Smtp, recipients: usize) -> (usize, String) {
    smtp.cmd(&format!("MAIL FROM:<{ANN}>")).expect(250);
    for n in 0..recipients {
        let reply = smtp.cmd(&format!("RCPT TO:<n{n}@one.example>"));
        if reply.code != 250 {
            return (n, reply.to_string());
        }
    }
    (recipients, String::new())
}

#[test]
fn limits_of_all_and_of_one_hold_for_open_sessions() {
    let (_lab, server) = started(|builder| {
        builder.set("auth.clear_networks", "[\"127.0.0.1\"]").set("auth.recipients_per_hour_max", "2")
    });
    let mut smtp = logged_in(&server, ANN);
    let (taken, why) = recipients_taken(&mut smtp, 5);
    assert_eq!(taken, 2);
    assert!(why.contains("Limit of 2 recipients per hour is reached, try again in ") && why.ends_with(" min"), "{why}");
    let line = server.wait_log(&["Limit of 2 recipients per hour"]);
    assert!(line.contains("user=ann@home.example"), "{line}");
    smtp.cmd("RSET").expect(250);
    let (listed, _) = user(&server, &["list"]);
    assert!(listed.contains("bob@home.example; recipients/hour 0 of 2\n"), "{listed}");

    // Another default, by a reload.
    server.edit_config(|text| text.replace("recipients_per_hour_max = 2", "recipients_per_hour_max = 3"));
    assert!(server.operator(&["reload"]).status.success());
    assert_eq!(recipients_taken(&mut smtp, 5).0, 3);
    smtp.cmd("RSET").expect(250);

    // The user's own limit, none at all, and that of all again.
    for (limit, wanted) in [("4", 4), ("none", 5), ("0", 0), ("default", 3)] {
        assert_eq!(user(&server, &["set", ANN, "--recipients-per-hour", limit]).0, "ann@home.example changed\n");
        wait_until("the server has read the file", || {
            let (taken, _) = recipients_taken(&mut smtp, 5);
            smtp.cmd("RSET").expect(250);
            taken == wanted
        });
    }
    user(&server, &["set", ANN, "--send-as", "boss@home.example"]);
    wait_until("the server has read the file", || smtp.cmd("MAIL FROM:<boss@home.example>").code == 250);
    let file = std::fs::read_to_string(server.path("users")).expect("it is there");
    assert!(file.contains("send_as = boss@home.example\n") && !file.contains("per_hour"), "{file}");
}

#[test]
fn a_restart_resets_no_limit() {
    let (_lab, mut server) =
        started(|builder| builder.set("auth.clear_networks", "[\"127.0.0.1\"]").set("auth.messages_per_day_max", "2"));
    let message = b"From: ann@home.example\r\nSubject: x\r\n\r\nx\r\n";
    logged_in(&server, ANN).send(ANN, &["zoe@one.example"], message).expect(250);
    server.stop();
    server.start_again();
    let mut smtp = logged_in(&server, ANN);
    smtp.send(ANN, &["zoe@one.example"], message).expect(250);
    let over = smtp.cmd(&format!("MAIL FROM:<{ANN}>")).expect(450);
    assert!(over.to_string().contains("4.7.1 Limit of 2 messages per day is reached, try again in "), "{over:?}");
    let (listed, _) = user(&server, &["list"]);
    assert!(listed.contains("ann@home.example; messages/day 2 of 2\n"), "{listed}");
}

#[test]
fn a_reload_with_another_users_file_resets_no_limit() {
    let (_lab, server) =
        started(|builder| builder.set("auth.clear_networks", "[\"127.0.0.1\"]").set("auth.messages_per_day_max", "1"));
    let message = b"From: ann@home.example\r\nSubject: x\r\n\r\nx\r\n";
    logged_in(&server, ANN).send(ANN, &["zoe@one.example"], message).expect(250);
    std::fs::copy(server.path("users"), server.path("others")).expect("it is copied");
    for (before, after) in [("users = \"users\"", "users = \"others\""), ("users = \"others\"", "users = \"users\"")] {
        server.edit_config(|text| text.replace(before, after));
        assert!(server.operator(&["reload"]).status.success());
        let over = logged_in(&server, ANN).cmd(&format!("MAIL FROM:<{ANN}>")).expect(450);
        assert!(over.to_string().contains("Limit of 1 messages per day"), "{over:?}");
    }
}

/// One that takes any password, and says of the user what it is told to.
fn dovecot(socket: &Path, fields: Arc<Mutex<String>>) {
    let listener = UnixListener::bind(socket).expect("the folder can be written");
    let serve = move |mut stream: UnixStream| -> std::io::Result<()> {
        let lines = BufReader::new(stream.try_clone()?).lines();
        stream.write_all(b"VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nSPID\t1\nCUID\t1\nCOOKIE\tff\nDONE\n")?;
        for line in lines {
            let line = line?;
            let words: Vec<&str> = line.split('\t').collect();
            if let ["AUTH", id, .., response] = words[..] {
                let response = Base64::decode_vec(response.trim_start_matches("resp=")).expect("base64");
                let name = text(&response).split('\0').nth(1).expect("a name").to_owned();
                stream
                    .write_all(format!("OK\t{id}\tuser={name}\t{}\n", fields.lock().expect("no panic")).as_bytes())?;
            }
        }
        Ok(())
    };
    // Ends with the test's process, as does the server's connection.
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(serve(stream))));
}

fn with_dovecot(fields: &str, more: &[(&str, &str)]) -> (TestLab, Server, Arc<Mutex<String>>) {
    let lab = TestLab::sites(&["one.example"]);
    let builder = Server::builder()
        .lab(&lab)
        .set("client_networks", "[\"192.0.2.1\"]")
        .set("listen.submission", "[\"127.0.0.1:0\"]")
        .set("auth.clear_networks", "[\"127.0.0.1\"]")
        .set("auth.dovecot", "\"auth\"");
    let server = more.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).prepare();
    let fields = Arc::new(Mutex::new(fields.to_owned()));
    dovecot(&server.path("auth"), fields.clone());
    let server = server.run();
    server.wait_log(&["connected to Dovecot's auth service"]);
    (lab, server, fields)
}

#[test]
fn a_user_of_dovecot_is_locked_here_and_on_the_spot() {
    let (_lab, mut server, _) = with_dovecot("", &[]);
    let mut ann = logged_in(&server, ANN);
    let mut bob = logged_in(&server, "bob@home.example");
    let (said, hint) = user(&server, &["lock", "Ann@home.example"]);
    assert!(said == "Ann@home.example locked\n" && hint.is_empty(), "{said}{hint}");
    let ended = ann.reply();
    assert!(ended.code == 421 && ended.to_string().contains("4.7.0 The login is no longer valid"), "{ended:?}");
    bob.cmd("NOOP").expect(250);
    let refused = |server: &Server| {
        let mut smtp = Smtp::connect(server.address_of("submission")).greeted();
        smtp.cmd(&auth_plain(ANN)).expect(535).to_string()
    };
    assert!(refused(&server).contains("5.7.8"));
    let (listed, _) = user(&server, &["list"]);
    assert!(
        listed.contains("ann@home.example  locked  Dovecot") && listed.contains("bob@home.example  active"),
        "{listed}"
    );
    // The lock outlives a restart.
    server.stop();
    server.start_again();
    wait_until("Dovecot is found", || {
        Smtp::connect(server.address_of("submission")).greeted().cmd("EHLO c").to_string().contains("AUTH PLAIN")
    });
    assert!(refused(&server).contains("5.7.8"));
    user(&server, &["unlock", ANN]);
    wait_until("the server has read the file", || {
        Smtp::connect(server.address_of("submission")).greeted().cmd(&auth_plain(ANN)).code == 235
    });
    let (_, hint) = user(&server, &["lock", "amm@home.example"]);
    assert!(hint.contains("amm@home.example has not logged in in the last day"), "{hint}");
    let output = server.operator(&["user", "passwd", ANN]);
    assert!(output.status.code() == Some(78) && text(&output.stderr).contains("Dovecot"), "{output:?}");
}

#[test]
fn limits_of_dovecots_users_are_its_fields_or_local() {
    let (robot, table) = token(&["robot"]);
    let more =
        [("auth.recipients_per_hour_max", "1"), ("http.listen", "[\"127.0.0.1:0\"]"), ("http.tokens", table.as_str())];
    let given =
        "stentor_recipients_per_hour_max=2\tstentor_messages_per_day_max=none\tstentor_messages_per_hour_max=-1";
    let (_lab, server, fields) = with_dovecot(given, &more);
    let mut smtp = logged_in(&server, ANN);
    server.wait_log(&["user=ann@home.example", "stentor_messages_per_hour_max is not a number"]);
    assert_eq!(recipients_taken(&mut smtp, 5).0, 2);
    let view = server.http("GET", "/api/v1/users").token(&robot).send().expect(200).json();
    let row = &view["rows"][0];
    assert_eq!((&view["source"], &row["user"]), (&"dovecot".into(), &ANN.into()), "{view}");
    assert_eq!(row["recipients_hour"], serde_json::json!({"used": 2, "max": 2}), "{view}");
    smtp.cmd("RSET").expect(250);
    // Who has none of them has those of all.
    fields.lock().expect("no panic").clear();
    let mut other = logged_in(&server, ANN);
    assert_eq!(recipients_taken(&mut other, 5).0, 1);
    other.cmd("RSET").expect(250);
    // Local settings override both, at once.
    user(&server, &["set", ANN, "--recipients-per-hour", "4", "--messages-per-day", "0"]);
    let mut wait_mail = |code| {
        wait_until("the server has read the file", || {
            let reply = smtp.cmd(&format!("MAIL FROM:<{ANN}>"));
            smtp.cmd("RSET").expect(250);
            reply.code == code
        });
    };
    wait_mail(450);
    user(&server, &["set", ANN, "--messages-per-day", "default"]);
    wait_mail(250);
    assert_eq!(recipients_taken(&mut smtp, 5).0, 4);
    let (listed, _) = user(&server, &["list"]);
    assert!(listed.contains("; recipients/hour 4 of 4"), "{listed}");
}
