//! The log from its readers' view: lines of each format, in files and at syslog daemons.

use std::fs;
use std::path::Path;

use serde_json::Value;
use stentor_logs::settings::{LogConfig, LogFormat, LogLevel, LogTarget, Rotation, SyslogTo};
use stentor_logs::{AttemptLog, BUFFER_BYTES_MAX, Logs, Options};
use stentor_records::record::{Accepted, Attempt, Ms, Note, Record, Refused, Stat, Topic, Unreached, WireChanges};

/// Size at which the list of recipients continues on another line (docs/operate/attempt-log.md).
const TO_BYTES_MAX: usize = 3 * 1024;

const NOW: Ms = 1_795_258_465_123;

fn log_to(path: &Path, format: LogFormat, buffer_bytes_max: usize) -> AttemptLog {
    AttemptLog::start(&options(LogTarget::File(path.to_owned()), format, buffer_bytes_max)).unwrap()
}

fn options(target: LogTarget, format: LogFormat, buffer_bytes_max: usize) -> Options {
    Options {
        target,
        rotation: Rotation::NEVER,
        rfc5424: false,
        format,
        hostname: "host".to_owned(),
        by_line: false,
        buffer_bytes_max,
    }
}

/// Writes one record of each kind.
trait Kinds {
    fn attempt<'t>(&self, attempt: &Attempt<'t>, to: impl IntoIterator<Item = &'t str>);
    fn accepted(&self, accepted: &Accepted<'_>);
    fn note(&self, id: &str, text: &str);
}

impl Kinds for AttemptLog {
    fn attempt<'t>(&self, attempt: &Attempt<'t>, to: impl IntoIterator<Item = &'t str>) {
        self.record(&Record::Attempt(Attempt { to: to.into_iter().collect(), ..attempt.clone() }));
    }

    fn accepted(&self, accepted: &Accepted<'_>) {
        self.record(&Record::Accepted(accepted.clone()));
    }

    fn note(&self, id: &str, text: &str) {
        self.record(&Record::Note(Note { at: NOW, id, text, ..Note::default() }));
    }
}

/// The lines that `write` logs in `format`, with the process id replaced by 1.
fn logged(format: LogFormat, write: impl FnOnce(&AttemptLog)) -> String {
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
        at: NOW,
        id: "000000000001",
        from: "list-bounces@example.com",
        delay_ms: 7_250,
        xdelay_ms: 6_001,
        mailer: "esmtp",
        host: "mx.example.org",
        ip: Some("192.0.2.34".parse().unwrap()),
        port: 25,
        dsn: "2.0.0",
        stat,
        reply,
        ..Attempt::default()
    }
}

fn accepted() -> Accepted<'static> {
    Accepted {
        at: NOW,
        id: "000000000002",
        size: 4096,
        is_bulk: true,
        recipients: 20_000,
        message_id: "<1@x>",
        proto: "ESMTP",
        client_host: "client.example",
        client: Some("::ffff:192.0.2.1".parse().unwrap()),
        ..Accepted::default()
    }
}

#[test]
fn the_fields_are_sendmails() {
    let text = logged(LogFormat::Sendmail, |log| {
        log.accepted(&accepted());
        log.attempt(&attempt(Stat::Sent, "250 2.0.0 ok"), ["a@example.org", "c@example.org"]);
        let deferred =
            Attempt { host: "", ip: None, dsn: "4.4.1", delay_ms: 90_000_000, ..attempt(Stat::Deferred, "timed out") };
        log.attempt(&deferred, ["a@example.org"]);
        let (host, ip) = ("10.0.0.5", Some("10.0.0.5".parse().unwrap()));
        let bounced = Attempt { from: "", host, ip, dsn: "5.1.1", ..attempt(Stat::Bounced, "") };
        log.attempt(&bounced, ["a@example.org"]);
        log.note("", "stopped");
        log.note("000000000003", "removed by operator");
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
    let text = logged(LogFormat::Json, |log| {
        log.accepted(&accepted());
        log.attempt(&attempt(Stat::Sent, "250 \"ok\"\r\n"), ["a@example.org", "\"x\\\"y\"@z"]);
        log.attempt(&Attempt { host: "", ip: None, ..attempt(Stat::Deferred, "") }, []);
        log.note("", "stopped");
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
fn what_was_recoded_has_a_field() {
    for (recoded, name) in [
        (WireChanges { seven_bit: true, lines: false }, "7bit"),
        (WireChanges { seven_bit: false, lines: true }, "lines"),
        (WireChanges { seven_bit: true, lines: true }, "7bit+lines"),
    ] {
        assert_eq!((recoded.name(), WireChanges::named(name)), (name, recoded));
        let attempt = Attempt { recoded, ..attempt(Stat::Sent, "250 ok") };
        let text = logged(LogFormat::Sendmail, |log| log.attempt(&attempt, ["a@example.org"]));
        assert!(text.contains(&format!(", recoded={name}, dsn=2.0.0, stat=Sent (250 ok)")), "{text}");
        let text = logged(LogFormat::Json, |log| log.attempt(&attempt, ["a@example.org"]));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["recoded"], name);
    }
}

#[test]
fn many_recipients_go_on_over_several_lines() {
    let all: Vec<String> = (0..1000).map(|i| format!("subscriber{i}@example.org")).collect();
    for format in [LogFormat::Sendmail, LogFormat::Json] {
        let text = logged(format, |log| {
            log.attempt(&attempt(Stat::Sent, "250 ok"), all.iter().map(String::as_str));
            log.attempt(&attempt(Stat::Sent, "250 ok"), all[..100].iter().map(String::as_str));
        });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 5 && lines.len() < 14, "{}", lines.len());
        assert!(lines.iter().all(|l| l.len() < TO_BYTES_MAX + 1024 && l.contains("250 ok")));
        for address in &all {
            let shown = if format == LogFormat::Json { format!("\"{address}\"") } else { format!("<{address}>") };
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
    let text = logged(LogFormat::Sendmail, |log| {
        log.accepted(&Accepted {
            from: evil,
            message_id: evil,
            proto: evil,
            client_host: evil,
            policy: evil,
            ..accepted()
        });
        log.attempt(&Attempt { from: evil, host: evil, dsn: evil, mailer: evil, ..attempt(Stat::Sent, evil) }, [evil]);
        log.note("", evil);
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
    let log = log_to(&path, LogFormat::Sendmail, BUFFER_BYTES_MAX);
    log.note("", "first");
    log.flush();
    fs::rename(&path, &old).unwrap();
    log.reopen();
    log.flush();
    log.note("", "second");
    log.flush();
    assert!(fs::read_to_string(&old).unwrap().contains("first"));
    let new = fs::read_to_string(&path).unwrap();
    assert!(new.contains("second") && !new.contains("first"));
    // The directory is gone: the old file stays in use.
    let gone = dir.path().join("away");
    fs::rename(&path, &gone).unwrap();
    fs::create_dir(&path).unwrap();
    log.reopen();
    log.note("", "third");
    log.flush();
    assert!(fs::read_to_string(&gone).unwrap().contains("third"));
    assert_eq!(log.dropped(), 0);
}

#[test]
fn lost_lines_are_counted_and_confessed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mail.log");
    let log = log_to(&path, LogFormat::Sendmail, 300);
    // Larger than the whole buffer: it can never fit.
    let many: Vec<String> = (0..1000).map(|i| format!("subscriber{i}@example.org")).collect();
    log.attempt(&attempt(Stat::Sent, "250 ok"), many.iter().map(String::as_str));
    let dropped = log.dropped();
    assert!(dropped > 5, "{dropped}");
    log.note("", "after");
    log.flush();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("log: {dropped} lines were lost")), "{text}");
    assert!(text.contains("after"));
}

#[test]
fn a_destination_that_refuses_loses_lines_but_not_the_server() {
    let full = LogTarget::File("/dev/full".into());
    let options = options(full, LogFormat::Sendmail, BUFFER_BYTES_MAX);
    let log = AttemptLog::start(&options).unwrap();
    for _ in 0..10 {
        log.note("", "nowhere to go");
    }
    log.flush();
    assert_eq!(log.dropped(), 10);
}

#[test]
fn threads_write_whole_lines_and_all_of_them() {
    let text = logged(LogFormat::Sendmail, |log| {
        std::thread::scope(|scope| {
            for t in 0..4 {
                let log = log.clone();
                scope.spawn(move || {
                    for i in 0..2_000 {
                        log.note("", &format!("thread {t} line {i} end"));
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
    log.note("", "x");
    log.flush();
    log.reopen();
    assert_eq!(log.dropped(), 0);
    let dir = tempfile::tempdir().unwrap();
    let nowhere = LogTarget::File(dir.path().join("no/such/dir"));
    let options = options(nowhere, LogFormat::Json, 1);
    assert!(AttemptLog::start(&options).is_err());
}

#[test]
fn refusals_and_sessions_that_did_not_come_about_have_lines_of_their_own() {
    let write = |log: &AttemptLog| {
        let client = Some("192.0.2.9".parse().unwrap());
        let reply = "550 5.7.1 Relaying denied";
        let refused = Refused { at: NOW, client, from: "a@b", to: "c@d", reply, step: "RCPT", ..Refused::default() };
        log.record(&Record::Refused(refused.clone()));
        log.record(&Record::Refused(Refused { policy: "rule 1 (a.toml:3), reject=250", ..refused.clone() }));
        log.record(&Record::Refused(Refused { step: ".", to: "", size: 70, recipients: 3, ..refused }));
        let failed = Attempt { id: "", dsn: "4.4.1", ..attempt(Stat::Deferred, "Connection refused") };
        log.attempt(&failed, []);
        let waited = Unreached { site: "mx", waiting: 3, domains: vec![("a b", 2), ("c", 1)] };
        log.attempt(&Attempt { unreached: Some(Box::new(waited.clone())), ..failed.clone() }, []);
        let look_up = Attempt { mailer: "dns", host: "", ip: None, port: 0, dsn: "4.4.3", reply: "SERVFAIL", ..failed };
        log.attempt(&Attempt { unreached: Some(Box::new(Unreached { site: "", ..waited })), ..look_up }, []);
    };
    let text = logged(LogFormat::Sendmail, write);
    let expected = "\
Nov 21 10:54:25 host stentor[1]: ruleset=check_rcpt, arg1=<c@d>, from=<a@b>, relay=[192.0.2.9], reject=550 5.7.1 Relaying denied
Nov 21 10:54:25 host stentor[1]: ruleset=check_rcpt, arg1=<c@d>, from=<a@b>, relay=[192.0.2.9], policy=rule 1 (a.toml:3)\\x2c reject=250, reject=550 5.7.1 Relaying denied
Nov 21 10:54:25 host stentor[1]: ruleset=check_eom, arg1=<a@b>, from=<a@b>, relay=[192.0.2.9], size=70, nrcpts=3, reject=550 5.7.1 Relaying denied
Nov 21 10:54:25 host stentor[1]: connect: relay=mx.example.org. [192.0.2.34], port=25, xdelay=6.001, dsn=4.4.1, stat=Deferred: Connection refused
Nov 21 10:54:25 host stentor[1]: connect: relay=mx.example.org. [192.0.2.34], port=25, xdelay=6.001, site=mx, waiting=3, domains=a\\x20b:2,c:1, dsn=4.4.1, stat=Deferred: Connection refused
Nov 21 10:54:25 host stentor[1]: lookup: xdelay=6.001, waiting=3, domains=a\\x20b:2,c:1, dsn=4.4.3, stat=Deferred: SERVFAIL
";
    assert_eq!(text, expected);
    let text = logged(LogFormat::Json, write);
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((&lines[4]["waiting"], &lines[4]["domains"]), (&3.into(), &serde_json::json!([["a b", 2], ["c", 1]])));
    assert!(lines[3]["waiting"].is_null() && lines[5]["relay"].is_null());
    assert_eq!((&lines[0]["event"], &lines[0]["step"]), (&"refused".into(), &"RCPT".into()));
    assert_eq!(lines[1]["policy"], "rule 1 (a.toml:3), reject=250");
    assert_eq!(lines[3]["to"], serde_json::json!([]));
}

/// Records of each kind, to logs by purpose, list and class, which share a directory.
#[test]
fn each_record_goes_to_the_log_of_its_list_class_or_purpose() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| LogTarget::File(dir.path().join(name));
    let config = LogConfig {
        attempts: file("server"),
        deliveries: Some(file("deliveries")),
        acceptances: Some(file("acceptances")),
        refusals: Some(file("refusals")),
        policy: Some(file("policy")),
        audit: Some(file("audit")),
        ordinary: None,
        bulk: Some(file("bulk")),
        lists: vec![("news".to_owned(), file("news")), ("talk".to_owned(), file("news"))],
        format: LogFormat::Sendmail,
        level: LogLevel::Info,
        by_line: true,
        rotation: Rotation::NEVER,
        rfc5424: false,
    };
    let logs = Logs::start(&config, "host").unwrap();
    let of = |id, list, is_bulk| Record::Accepted(Accepted { id, list, is_bulk, policy: "why", ..accepted() });
    let sent = |id, list, is_bulk| Record::Attempt(Attempt { id, list, is_bulk, ..attempt(Stat::Sent, "ok") });
    let note = |text, topic| Record::Note(Note { at: NOW, text, topic, ..Note::default() });
    let all = [
        of("A1", "", false),
        of("A2", "", true),
        of("A3", "news", true),
        sent("D1", "", false),
        sent("D2", "other", true),
        sent("D3", "talk", true),
        Record::Refused(Refused { at: NOW, reply: "R1", ..Refused::default() }),
        note("S1", Topic::Server),
        note("C1", Topic::Delivery),
        note("P1", Topic::Policy),
        note("V1", Topic::Audit),
    ];
    for record in &all {
        logs.record(record);
    }
    logs.flush();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let has = |name: &str, wanted: &[&str]| {
        let text = read(name);
        assert_eq!(text.lines().count(), wanted.len(), "{name}: {text}");
        wanted.iter().zip(text.lines()).for_each(|(wanted, line)| assert!(line.contains(wanted), "{name}: {line}"));
    };
    has("acceptances", &["A1: "]);
    has("bulk", &["A2: ", "D2: "]);
    has("news", &["A3: ", "D3: "]);
    has("deliveries", &["D1: ", "C1"]);
    has("refusals", &["R1"]);
    has("server", &["S1"]);
    has("policy", &["A1: policy: why", "A2: ", "A3: ", "P1"]);
    has("audit", &["V1"]);
}

/// The datagrams that a daemon at a socket gets for one line.
fn datagrams(options: &Options, socket: &std::os::unix::net::UnixDatagram) -> Vec<String> {
    let log = AttemptLog::start(options).unwrap();
    log.note("Q1", "one\nFORGED=x");
    log.note("", "two");
    log.flush();
    assert_eq!(log.dropped(), 0);
    let mut buffer = [0; 4096];
    let mut take = || {
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    vec![take(), take()]
}

#[test]
fn syslog_and_journald_get_a_datagram_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let pid = std::process::id();
    let sendmail = |target| options(target, LogFormat::Sendmail, BUFFER_BYTES_MAX);
    let syslog = || sendmail(LogTarget::Syslog(SyslogTo::Unix(path.clone())));
    let local = datagrams(&syslog(), &socket);
    assert_eq!(local[0], format!("<22>Nov 21 10:54:25 stentor[{pid}]: Q1: one\\x0aFORGED=x"));
    let new = datagrams(&Options { rfc5424: true, ..syslog() }, &socket);
    assert_eq!(new[1], format!("<22>1 2026-11-21T10:54:25.123Z host stentor {pid} - - two"));
    let journal = datagrams(&sendmail(LogTarget::Journald(path.clone())), &socket);
    let head = "SYSLOG_IDENTIFIER=stentor\nSYSLOG_FACILITY=2\nPRIORITY=6\nMESSAGE=";
    assert_eq!(journal[0], format!("{head}Q1: one\\x0aFORGED=x\n"));
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = SyslogTo::Udp(udp.local_addr().unwrap());
    let log = AttemptLog::start(&options(LogTarget::Syslog(to), LogFormat::Sendmail, 4096)).unwrap();
    log.note("", "over the loopback");
    log.flush();
    let mut buffer = [0; 4096];
    let len = udp.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..len], *format!("<22>Nov 21 10:54:25 host stentor[{pid}]: over the loopback").as_bytes());
}

#[test]
fn a_daemon_that_was_started_anew_is_found_again_and_one_that_is_gone_costs_counted_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let target = LogTarget::Syslog(SyslogTo::Unix(path.clone()));
    let log = AttemptLog::start(&options(target, LogFormat::Sendmail, BUFFER_BYTES_MAX)).unwrap();
    log.note("", "nobody there");
    log.flush();
    assert_eq!(log.dropped(), 1);
    for round in 0..2 {
        let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        log.note("", &format!("round {round}"));
        log.flush();
        let mut buffer = [0; 4096];
        let mut take = || {
            let len = socket.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..len].to_vec()).unwrap()
        };
        if round == 0 {
            assert!(take().contains("log: 1 lines were lost"));
        }
        assert!(take().ends_with(&format!("round {round}")));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_is_refused_or_dropped_whole_names_its_message_and_a_local_user() {
    let named = || ["b@y", "c@y"].into_iter().collect();
    let refused = Refused {
        at: NOW,
        from: "a@x",
        step: ".",
        size: 9,
        recipients: 2,
        reply: "550 5.7.1 no",
        message_id: "<2@x, y>",
        named: named(),
        user: "uid 1000 (ann)",
        ..Refused::default()
    };
    let taken = Accepted {
        at: NOW,
        id: "000000000002",
        from: "new@x",
        recipients: 1,
        orig_from: "a@x",
        user: "uid 1000 (ann)",
        proto: "local",
        ..Accepted::default()
    };
    let dropped = Note { at: NOW, id: "000000000003", text: "discarded: why", to: named(), ..Note::default() };
    let dropped = Note { message_id: "<3@x>", ..dropped };
    let all = [Record::Refused(refused), Record::Accepted(taken), Record::Note(dropped)];
    let text = logged(LogFormat::Sendmail, |log| all.iter().for_each(|record| log.record(record)));
    let expected = "\
Nov 21 10:54:25 host stentor[1]: ruleset=check_eom, arg1=<a@x>, from=<a@x>, relay=none, size=9, nrcpts=2, user=uid 1000 (ann), msgid=<2@x\\x2c\\x20y>, orig_to=<b@y>,<c@y>, reject=550 5.7.1 no
Nov 21 10:54:25 host stentor[1]: 000000000002: from=<new@x>, size=0, class=0, nrcpts=1, msgid=<>, proto=local, relay=none, user=uid 1000 (ann), orig_from=<a@x>
Nov 21 10:54:25 host stentor[1]: 000000000003: discarded: to=<b@y>,<c@y>, msgid=<3@x>, why
";
    assert_eq!(text, expected);
    // Both formats are read back unchanged.
    let json = logged(LogFormat::Json, |log| all.iter().for_each(|record| log.record(record)));
    for text in [text, json] {
        let mut parser = stentor_records::log::Parser::new(stentor_records::civil::Zone::utc(), NOW);
        let mut seen = Vec::new();
        parser.block(text.as_bytes(), &mut |record| match record {
            Record::Refused(r) => {
                seen.push(format!("{} {:?} {} {} to {:?}", r.message_id, r.named, r.user, r.from, r.to));
            }
            Record::Accepted(r) => seen.push(format!("{} {}", r.orig_from, r.user)),
            Record::Note(r) => seen.push(format!("{} {:?}", r.message_id.trim_matches(['<', '>']), r.to)),
            other => panic!("{other:?}"),
        });
        assert!(seen[0].ends_with("[\"b@y\", \"c@y\"] uid 1000 (ann) a@x to \"\""), "{seen:?}");
        assert_eq!(seen[1..], ["a@x uid 1000 (ann)", "3@x [\"b@y\", \"c@y\"]"], "{text}");
    }
}
