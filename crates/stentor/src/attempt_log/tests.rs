use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;

const NOW: Ms = 1_795_258_465_123;

fn log_to(path: &Path, format: Format, buffer_bytes_max: usize) -> AttemptLog {
    let destination = Destination::File(path.to_owned());
    AttemptLog::start(&LogConfig { destination, format, hostname: "host".to_owned(), buffer_bytes_max }).unwrap()
}

/// What `write` logs in `format`, the process id replaced by 1.
fn logged(format: Format, write: impl FnOnce(&AttemptLog)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mail.log");
    let log = log_to(&path, format, BUFFER_BYTES_MAX);
    write(&log);
    drop(log);
    let pid = std::process::id();
    let text = fs::read_to_string(path).unwrap();
    text.replace(&format!("[{pid}]"), "[1]").replace(&format!("\"pid\":{pid}"), "\"pid\":1")
}

fn attempt(stat: Stat, reply: &str) -> Attempt<'_> {
    Attempt {
        id: MessageId(1),
        from: "list-bounces@example.com",
        delay_ms: 7_250,
        xdelay_ms: 6_001,
        mailer: "esmtp",
        relay: Some(Relay { host: "mx.example.org", addr: "192.0.2.34:25".parse().unwrap() }),
        dsn: "2.0.0",
        stat,
        reply,
    }
}

fn accepted() -> Accepted<'static> {
    Accepted {
        id: MessageId(2),
        from: "",
        size: 4096,
        bulk: true,
        recipients: 20_000,
        message_id: "<1@x>",
        proto: "ESMTP",
        relay: Some(Relay { host: "client.example", addr: "[::ffff:192.0.2.1]:4000".parse().unwrap() }),
    }
}

#[test]
fn the_fields_are_sendmails() {
    let text = logged(Format::Sendmail, |log| {
        log.accepted(NOW, &accepted());
        log.attempt(NOW, &attempt(Stat::Sent, "250 2.0.0 ok"), ["a@example.org", "c@example.org"]);
        let deferred =
            Attempt { relay: None, dsn: "4.4.1", delay_ms: 90_000_000, ..attempt(Stat::Deferred, "timed out") };
        log.attempt(NOW, &deferred, ["a@example.org"]);
        let route = Relay { host: "10.0.0.5", addr: "10.0.0.5:25".parse().unwrap() };
        let bounced = Attempt { from: "", relay: Some(route), dsn: "5.1.1", ..attempt(Stat::Bounced, "") };
        log.attempt(NOW, &bounced, ["a@example.org"]);
        log.note(NOW, None, "stopped");
        log.note(NOW, Some(MessageId(3)), "removed by operator");
    });
    let expected = "\
Nov 21 10:54:25 host stentor[1]: 000000000002: from=<>, size=4096, class=-60, nrcpts=20000, msgid=<1@x>, proto=ESMTP, relay=client.example [192.0.2.1]
Nov 21 10:54:25 host stentor[1]: 000000000001: to=<a@example.org>,<c@example.org>, from=<list-bounces@example.com>, delay=00:00:07, xdelay=00:00:06, mailer=esmtp, relay=mx.example.org. [192.0.2.34], dsn=2.0.0, stat=Sent (250 2.0.0 ok)
Nov 21 10:54:25 host stentor[1]: 000000000001: to=<a@example.org>, from=<list-bounces@example.com>, delay=1+01:00:00, xdelay=00:00:06, mailer=esmtp, relay=none, dsn=4.4.1, stat=Deferred: timed out
Nov 21 10:54:25 host stentor[1]: 000000000001: to=<a@example.org>, from=<>, delay=00:00:07, xdelay=00:00:06, mailer=esmtp, relay=[10.0.0.5], dsn=5.1.1, stat=Bounced
Nov 21 10:54:25 host stentor[1]: stopped
Nov 21 10:54:25 host stentor[1]: 000000000003: removed by operator
";
    assert_eq!(text, expected);
}

#[test]
fn json_has_the_same_fields_in_full_precision() {
    let text = logged(Format::Json, |log| {
        log.accepted(NOW, &accepted());
        log.attempt(NOW, &attempt(Stat::Sent, "250 \"ok\"\r\n"), ["a@example.org", "\"x\\\"y\"@z"]);
        log.attempt(NOW, &Attempt { relay: None, ..attempt(Stat::Deferred, "") }, []);
        log.note(NOW, None, "stopped");
    });
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let relay = serde_json::json!({"host": "mx.example.org", "ip": "192.0.2.34", "port": 25});
    let expected = serde_json::json!({
        "time": "2026-11-21T10:54:25.123Z", "host": "host", "pid": 1, "event": "attempt", "id": "000000000001",
        "to": ["a@example.org", "\"x\\\"y\"@z"], "from": "list-bounces@example.com", "delay_ms": 7250,
        "xdelay_ms": 6001, "mailer": "esmtp", "relay": relay, "dsn": "2.0.0", "stat": "Sent", "reply": "250 \"ok\"\r\n",
    });
    assert_eq!(lines[1], expected);
    assert_eq!(
        (&lines[0]["event"], &lines[0]["nrcpts"], &lines[0]["class"]),
        (&"accepted".into(), &20_000.into(), &"bulk".into())
    );
    assert_eq!(lines[0]["relay"]["ip"], "192.0.2.1");
    assert_eq!((&lines[2]["relay"], &lines[2]["to"]), (&Value::Null, &serde_json::json!([])));
    assert_eq!(lines[3]["text"], "stopped");
}

#[test]
fn many_recipients_go_on_over_several_lines() {
    let all: Vec<String> = (0..1000).map(|i| format!("subscriber{i}@example.org")).collect();
    for format in [Format::Sendmail, Format::Json] {
        let text = logged(format, |log| {
            log.attempt(NOW, &attempt(Stat::Sent, "250 ok"), all.iter().map(String::as_str));
            log.attempt(NOW, &attempt(Stat::Sent, "250 ok"), all[..100].iter().map(String::as_str));
        });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 5 && lines.len() < 14, "{}", lines.len());
        assert!(lines.iter().all(|l| l.len() < line::TO_BYTES_MAX + 1024 && l.contains("250 ok")));
        for address in &all {
            let shown = if format == Format::Json { format!("\"{address}\"") } else { format!("<{address}>") };
            let times = lines.iter().filter(|l| l.contains(&shown)).count();
            assert!(times == 1 || times == 2, "{address}: {times}");
        }
        assert_eq!(text.matches('@').count(), 1100 + lines.len(), "every address once, the sender on each line");
        assert!(lines[lines.len() - 1].contains("subscriber99@"), "a hundred share one line");
    }
}

#[test]
fn hostile_text_makes_neither_lines_nor_fields() {
    let evil = "x\r\nNov 21 00:00:00 host stentor[1]: FORGED: to=<a@b>, stat=Sent (\u{1b}[31m)\u{2028}";
    let text = logged(Format::Sendmail, |log| {
        let relay = Some(Relay { host: evil, addr: "192.0.2.34:25".parse().unwrap() });
        log.accepted(NOW, &Accepted { from: evil, message_id: evil, proto: evil, relay, ..accepted() });
        log.attempt(NOW, &Attempt { from: evil, relay, dsn: evil, mailer: evil, ..attempt(Stat::Sent, evil) }, [evil]);
        log.note(NOW, None, evil);
    });
    assert_eq!(text.lines().count(), 3);
    assert!(text.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{2028}')));
    let attempt = text.lines().nth(1).unwrap();
    let reply = attempt.find(" stat=Sent (").unwrap();
    assert_eq!(attempt[..reply].matches(", stat=").count(), 0, "no forged field before the real one");
    assert_eq!(attempt[..reply].matches("to=<").count(), 1, "nor a second list of recipients");
}

#[test]
fn a_rotated_file_is_reopened_without_losing_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("mail.log"), dir.path().join("mail.log.1"));
    let log = log_to(&path, Format::Sendmail, BUFFER_BYTES_MAX);
    log.note(NOW, None, "first");
    log.flush();
    fs::rename(&path, &old).unwrap();
    log.reopen();
    log.flush();
    log.note(NOW, None, "second");
    log.flush();
    assert!(fs::read_to_string(&old).unwrap().contains("first"));
    let new = fs::read_to_string(&path).unwrap();
    assert!(new.contains("second") && !new.contains("first"));
    // The directory is gone: the old file goes on.
    let gone = dir.path().join("away");
    fs::rename(&path, &gone).unwrap();
    fs::create_dir(&path).unwrap();
    log.reopen();
    log.note(NOW, None, "third");
    log.flush();
    assert!(fs::read_to_string(&gone).unwrap().contains("third"));
    assert_eq!(log.dropped(), 0);
}

#[test]
fn lost_lines_are_counted_and_confessed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mail.log");
    let log = log_to(&path, Format::Sendmail, 300);
    // Larger than the whole buffer: never fits.
    let many: Vec<String> = (0..1000).map(|i| format!("subscriber{i}@example.org")).collect();
    log.attempt(NOW, &attempt(Stat::Sent, "250 ok"), many.iter().map(String::as_str));
    let dropped = log.dropped();
    assert!(dropped > 5, "{dropped}");
    log.note(NOW, None, "after");
    log.flush();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("log: {dropped} lines were lost")), "{text}");
    assert!(text.contains("after"));
}

#[test]
fn a_destination_that_refuses_loses_lines_but_not_the_server() {
    let config = LogConfig {
        destination: Destination::File("/dev/full".into()),
        format: Format::Sendmail,
        hostname: "host".to_owned(),
        buffer_bytes_max: BUFFER_BYTES_MAX,
    };
    let log = AttemptLog::start(&config).unwrap();
    for _ in 0..10 {
        log.note(NOW, None, "nowhere to go");
    }
    log.flush();
    assert_eq!(log.dropped(), 10);
}

#[test]
fn threads_write_whole_lines_and_all_of_them() {
    let text = logged(Format::Sendmail, |log| {
        std::thread::scope(|scope| {
            for t in 0..4 {
                let log = log.clone();
                scope.spawn(move || {
                    for i in 0..2_000 {
                        log.note(NOW, None, &format!("thread {t} line {i} end"));
                    }
                });
            }
        });
    });
    assert_eq!(text.lines().count(), 8_000);
    assert!(text.lines().all(|l| l.starts_with("Nov 21") && l.ends_with(" end")));
    for t in 0..4 {
        let mine: Vec<&str> = text.lines().filter(|l| l.contains(&format!("thread {t} "))).collect();
        assert!(mine.iter().enumerate().all(|(i, l)| l.contains(&format!(" line {i} "))), "in order per thread");
    }
}

#[test]
fn off_keeps_nothing_and_a_bad_path_is_refused() {
    let log = AttemptLog::off();
    assert!(!log.is_on());
    log.note(NOW, None, "x");
    log.flush();
    log.reopen();
    assert_eq!(log.dropped(), 0);
    let dir = tempfile::tempdir().unwrap();
    let config = LogConfig {
        destination: Destination::File(dir.path().join("no/such/dir")),
        format: Format::Json,
        hostname: String::new(),
        buffer_bytes_max: 1,
    };
    assert!(AttemptLog::start(&config).is_err());
}
