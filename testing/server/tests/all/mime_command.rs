//! `stentor mime`: text out of a message and whole messages, decoded for people and programs.

use std::io::Write as _;
use std::process::{Command, Stdio};

use stentor_harness::stentor;

/// Standard output of `stentor mime ...` with this standard input.
fn mime(arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new(stentor())
        .arg("mime")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    // One that needs no input may have ended.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn text_is_decoded_whatever_it_is() {
    let shown = mime(&["decode", "6K+35p+l5pS277yB"], b"");
    assert!(shown.contains("text      请查收！\n") && shown.contains("U+8BF7") && shown.contains("Han 3"), "{shown}");
    let lines = mime(&["decode", "--lines", "--json"], b"=?GBK?B?x+s=?=\r\n=D0=9F=D1=80\nplain\n");
    let read: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let texts: Vec<&str> = read.iter().filter_map(|one| one["text"].as_str()).collect();
    assert_eq!(texts, ["请", "Пр", "plain"]);
    assert_eq!((&read[0]["charsets"][0], &read[1]["encoding"]), (&"gbk".into(), &"quoted-printable".into()));
    let word = mime(&["encode", "--charset", "koi8-r", "--as", "q-word", "Привет"], b"");
    assert_eq!(word, "=?KOI8-R?Q?=F0=D2=C9=D7=C5=D4?=\n");
    assert!(mime(&["decode", word.trim()], b"").contains("Cyrillic 6"));
}

#[test]
fn messages_are_shown_and_move_no_cursor() {
    let message = b"Subject: =?utf-8?B?G1syShtdMDvlvZMH?=\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\n\x1b[2J\x9b1mtext\n--x\n\
        Content-Disposition: attachment; filename*0*=gb2312''%C7%EB; filename*1=.exe\nContent-Type: application/octet-stream\n\n--x--\n";
    let shown = mime(&["show", "--text"], message);
    assert!(shown.contains("Subject:") && shown.contains("请.exe") && shown.contains("attachment"), "{shown}");
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    let json: serde_json::Value = serde_json::from_str(&mime(&["show", "--json"], message)).expect("JSON");
    assert_eq!((&json["parts"][2]["names"][0], &json["parts"][2]["attachment"]), (&"请.exe".into(), &true.into()));
}
