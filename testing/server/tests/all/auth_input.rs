//! Hostile input around AUTH and STARTTLS at the port of submission, and the required replies to each row.

use base64ct::{Base64, Encoding as _};
use stentor_harness::{Server, Smtp};

use crate::auth::{PASSWORD, started};

const USER: &str = "ann@home.example";

/// What is sent, each part once the one before was answered, and the codes of all replies to it.
struct Row {
    what: &'static str,
    sent: Vec<String>,
    codes: &'static [u16],
    /// The server closes behind the last reply.
    closes: bool,
}

fn row(what: &'static str, sent: &[&str], codes: &'static [u16]) -> Row {
    let sent = sent.iter().map(|part| (*part).to_owned()).collect();
    Row { what, sent, codes, closes: false }
}

fn closing(what: &'static str, sent: &[&str], codes: &'static [u16]) -> Row {
    Row { closes: true, ..row(what, sent, codes) }
}

fn encoded(text: &str) -> String {
    Base64::encode_string(text.as_bytes())
}

/// The right response of PLAIN.
fn right() -> String {
    encoded(&format!("\0{USER}\0{PASSWORD}"))
}

fn exchanges() -> Vec<Row> {
    let first = encoded(&format!("n,,n={USER},r=rOprNGfwEbeRWgbNEkqO"));
    let (scram, plus) = (format!("AUTH SCRAM-SHA-256 {first}\r\n"), format!("AUTH SCRAM-SHA-256-PLUS {first}\r\n"));
    let (long, longest) = ("A".repeat(12_288), "A".repeat(12_284));
    let over = format!("{long}\r\nNOOP\r\n");
    vec![
        row("cancelled before the response of PLAIN", &["AUTH PLAIN\r\n", "*\r\n"], &[334, 501]),
        row("cancelled before the name of LOGIN", &["AUTH LOGIN\r\n", "*\r\n"], &[334, 501]),
        row("cancelled before the password of LOGIN", &["AUTH LOGIN\r\n", "YW5u\r\n", "*\r\n"], &[334, 334, 501]),
        row("cancelled before the first message of SCRAM", &["AUTH SCRAM-SHA-256\r\n", "*\r\n"], &[334, 501]),
        row("cancelled before the proof of SCRAM", &[&scram, "*\r\n"], &[334, 501]),
        row("SCRAM with a message too early", &[&scram, &format!("{first}\r\n")], &[334, 501]),
        row("a mechanism that needs TLS", &[&plus], &[504]),
        row("a mechanism that is not known", &["AUTH GSSAPI\r\n"], &[504]),
        row("no mechanism", &["AUTH\r\n", "AUTH \r\n"], &[501, 501]),
        row("two initial responses", &["AUTH PLAIN YQ== YQ==\r\n"], &[501]),
        row("an initial response that is empty", &["AUTH PLAIN =\r\n"], &[501]),
        row("an initial response that is not base64", &["AUTH PLAIN !!!!\r\n", "AUTH PLAIN YQ\r\n"], &[501, 501]),
        row("an initial response with a NUL", &["AUTH PLAIN YQ==\0\r\n"], &[501]),
        row("a response that is not base64", &["AUTH PLAIN\r\n", "YQ=\r\n"], &[334, 501]),
        row("a response that is no text", &["AUTH LOGIN\r\n", "/w==\r\n"], &[334, 501]),
        row("an empty name", &["AUTH LOGIN\r\n", "\r\n"], &[334, 501]),
        row("a response with LF alone", &["AUTH PLAIN\r\n", "YQ==\n"], &[334, 500]),
        row("a response like a command", &["AUTH PLAIN\r\n", "QUIT\r\n"], &[334, 501]),
        row("a response like a command with an argument", &["AUTH PLAIN\r\n", "RSET \r\n"], &[334, 501]),
        row("the longest response", &["AUTH PLAIN\r\n", &format!("{longest}\r\n")], &[334, 501]),
        row("a response over the limit", &["AUTH PLAIN\r\n", &over], &[334, 500, 250]),
        row("an initial response over the limit", &[&format!("AUTH PLAIN {over}")], &[500, 250]),
        closing(
            "five that are cancelled",
            &["AUTH PLAIN\r\n*\r\n"; 5],
            &[334, 501, 334, 501, 334, 501, 334, 501, 334, 501, 421],
        ),
    ]
}

fn states() -> Vec<Row> {
    let right = right();
    let login = format!("AUTH PLAIN {right}\r\n");
    let mail = "MAIL FROM:<ann@home.example>\r\n";
    let parts = format!("AUTH LOGIN\r\n{}\r\n{}\r\n{mail}", encoded(USER), encoded(PASSWORD));
    let injected = format!("{login}STARTTLS\r\n{mail}");
    vec![
        row("twice", &[&login, &login, "AUTH LOGIN\r\n"], &[235, 503, 503]),
        row("within a transaction", &[&login, mail, &login, "RSET\r\n"], &[235, 250, 503, 250]),
        row("mail behind a login, in one segment", &[&format!("{login}{mail}RSET\r\n")], &[235, 250, 250]),
        row("PLAIN and mail in one segment", &[&format!("AUTH PLAIN\r\n{right}\r\n{mail}")], &[334, 235, 250]),
        row("LOGIN and mail in one segment", &[&parts], &[334, 334, 235, 250]),
        row(
            "mail behind what is cancelled, in one segment",
            &[&format!("AUTH PLAIN\r\n*\r\n{mail}")],
            &[334, 501, 530],
        ),
        row("mail behind what is refused, in one segment", &[&format!("AUTH PLAIN !\r\n{mail}")], &[501, 530]),
        row(
            "the exchange of a mechanism that is not known",
            &[&format!("AUTH X\r\n{right}\r\n{mail}")],
            &[504, 500, 530],
        ),
        closing("octets behind STARTTLS", &[&format!("STARTTLS\r\n{mail}")], &[554]),
        closing("octets behind STARTTLS of a user", &[&injected], &[235, 554]),
        closing("no handshake behind STARTTLS", &["STARTTLS\r\n", mail], &[220]),
        closing(
            "STARTTLS within a transaction, and no handshake",
            &[&login, mail, "STARTTLS\r\n", mail],
            &[235, 250, 220],
        ),
    ]
}

/// Sends a row, and compares what comes.
fn judge(client: &mut Smtp, row: &Row) -> Result<(), String> {
    let mut came = Vec::new();
    let count = row.codes.len();
    for (at, part) in row.sent.iter().enumerate() {
        client.try_raw(part.as_bytes());
        let is_last = at + 1 == row.sent.len();
        // Each part gets one reply at least, the last one all that are left.
        while came.len() < count && (is_last || came.len() <= at) {
            let Some(reply) = client.try_reply() else { break };
            came.push(reply.code);
        }
    }
    if came != row.codes {
        return Err(format!("{}: {came:?} in place of {:?}", row.what, row.codes));
    }
    if row.closes {
        // A failed handshake has its alert, and nothing is a reply.
        let rest = client.rest();
        let is_silent = !rest.contains("\r\n");
        return if is_silent { Ok(()) } else { Err(format!("{}: then {rest:?}", row.what)) };
    }
    let after = client.cmd("NOOP").code;
    if after == 250 { Ok(()) } else { Err(format!("{}: then {after} to NOOP", row.what)) }
}

#[track_caller]
fn judge_all(server: &Server, rows: &[Row]) {
    let connect = || Smtp::connect(server.address_of("submission")).greeted();
    let failed: Vec<String> = rows.iter().filter_map(|row| judge(&mut connect(), row).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn each_row_gets_its_replies() {
    let (_lab, server) = started(|builder| builder.set("auth.clear_networks", "[\"127.0.0.1\"]"));
    let mut early = Smtp::connect(server.address_of("submission"));
    early.reply().expect(220);
    early.cmd(&format!("AUTH PLAIN {}", right())).expect_text("503 5.5.1 EHLO or HELO first");
    // One that is cut in an exchange.
    let mut cut = Smtp::connect(server.address_of("submission")).greeted();
    cut.cmd("AUTH LOGIN").expect(334);
    drop(cut);
    judge_all(&server, &exchanges());
    judge_all(&server, &states());
    let held = server.queue();
    assert_eq!(held["messages"].as_array().map_or(0, Vec::len), 0, "{held}");
    let log = server.log().lines().join("\n");
    for secret in [PASSWORD, &right(), &encoded(PASSWORD)] {
        assert!(!log.contains(secret), "{log}");
    }
}
