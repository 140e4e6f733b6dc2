//! Permissions over HTTP.

use std::io::Write;
use std::process::{Command, Stdio};

use stentor_harness::{Builder, Server, stentor};

use crate::kit::bare;
use crate::virtual_users::with;

const PASSWORD: &str = "correct horse battery";

/// What the command makes of a password.
pub fn hash(password: &str) -> String {
    let mut child = Command::new(stentor())
        .arg("http-password")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    let mut input = child.stdin.take().expect("it is piped");
    writeln!(input, "{password}").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("ASCII").trim().to_owned()
}

/// A new token, and what the configuration has of it.
pub fn token(arguments: &[&str]) -> (String, String) {
    let output = Command::new(stentor()).arg("http-token").args(arguments).output().expect("the binary can be run");
    let token = String::from_utf8(output.stdout).expect("ASCII");
    assert_eq!(token.lines().count(), 1, "a script takes it: {token}");
    let hints = String::from_utf8(output.stderr).expect("ASCII");
    let lines: Vec<&str> = hints.lines().collect();
    let [.., "[http.tokens]", entry] = lines.as_slice() else { panic!("lines for the configuration: {hints}") };
    (token.trim_end().to_owned(), format!("{{ {entry} }}"))
}

/// A server with HTTP and a token that may change things.
pub fn with_token(builder: Builder) -> (Server, String) {
    let (token, table) = token(&["robot"]);
    (builder.set("http.listen", "[\"127.0.0.1:0\"]").set("http.tokens", &table).start(), token)
}

/// At the end of a configuration that has a section [http].
#[test]
fn the_lines_for_the_configuration_can_be_pasted() {
    let output = Command::new(stentor()).args(["http-token", "build.robot"]).output().expect("the binary can be run");
    let hints = String::from_utf8(output.stderr).expect("ASCII");
    let lines = hints.split_once("[http.tokens]").expect("lines for the configuration").1;
    let server = with(bare().set("http.listen", "[\"127.0.0.1:0\"]"), &[], &format!("[http.tokens]{lines}"));
    let token = String::from_utf8(output.stdout).expect("ASCII");
    server.http("POST", "/api/v1/flush").token(token.trim_end()).send().expect(200);
}

#[test]
fn reading_is_open_and_changes_need_a_token() {
    let (writer, table) = token(&["robot"]);
    let (reader, other) = token(&["--read-only", "prometheus"]);
    let tables = format!("{}, {}", table.trim_end_matches(" }"), other.trim_start_matches("{ "));
    let mut server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("http.tokens", &tables).start();
    let status = server.http_get("/api/v1/status").expect(200);
    assert_eq!(status.json()["hostname"], "mx.test");
    for (name, value) in
        [("x-content-type-options", "nosniff"), ("cache-control", "no-store"), ("x-frame-options", "DENY")]
    {
        assert_eq!(status.header(name), Some(value));
    }
    let policy = status.header("content-security-policy").expect("it is there");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe-inline"));
    let refused = server.http("POST", "/api/v1/flush").send().expect(401);
    assert!(refused.header("www-authenticate").expect("it says how").starts_with("Bearer"));
    server.http("POST", "/api/v1/flush").token("wrong").send().expect(401);
    server.http("GET", "/api/v1/status").token("wrong").send().expect(401);
    server.http("POST", "/api/v1/flush").token(&reader).send().expect(403);
    server.http("GET", "/api/v1/status").token(&reader).send().expect(200);
    server.http("POST", "/api/v1/flush").token(&writer).send().expect(200);
    // Two hosts are none: a proxy before us may go by the other one.
    for hosts in ["Host: localhost\r\nHost: localhost", "Host: localhost\r\nHost: evil.example", "Host: a, b", "X: y"] {
        let request = format!("GET /api/v1/status HTTP/1.1\r\n{hosts}\r\nConnection: close\r\n\r\n");
        stentor_harness::exchange(server.http_address(), request.as_bytes()).expect(400);
    }
    // A page elsewhere can neither use our name nor its own.
    server.http("GET", "/api/v1/status").header("Host", "evil.example").send().expect(421);
    server.http("POST", "/api/v1/flush").header("Origin", "http://evil.example").send().expect(403);
    // Who did it is in the journal.
    let suspended = server.http("POST", "/api/v1/suspend").token(&writer);
    suspended.json(&serde_json::json!({"sender": "spam.example"})).send().expect(200);
    server.stop();
    let dump = Command::new(stentor()).args(["journal", "dump"]).arg(server.path("data/journal")).output();
    let text = String::from_utf8(dump.expect("the binary can be run").stdout).expect("JSON is UTF-8");
    assert!(text.contains("token=robot address=127.0.0.1") && text.contains("sender:spam.example"), "{text}");
}

#[test]
fn a_person_logs_in_changes_something_and_logs_out() {
    let users = format!("{{ ann = {:?} }}", hash(PASSWORD));
    let server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("http.users", &users).start();
    let form = |text: &str| server.http("POST", "/login").body("application/x-www-form-urlencoded", text.as_bytes());
    let wrong = form("user=ann&password=wrong").send().expect(303);
    assert_eq!((wrong.header("location"), wrong.header("set-cookie")), (Some("/login?failed=wrong&user=ann"), None));
    form("user=ann&password=x").header("Sec-Fetch-Site", "cross-site").send().expect(403);
    let right = form("user=ann&password=correct+horse+battery&next=/queue").send().expect(303);
    assert_eq!(right.header("location"), Some("/queue"));
    let cookie = right.header("set-cookie").expect("a session").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("Secure"));
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    let flush = || server.http("POST", "/api/v1/flush").header("Cookie", &cookie);
    // The cookie alone is what another site's page could make the browser send.
    flush().send().expect(403);
    flush().header("X-CSRF-Token", "0").send().expect(403);
    server
        .http("POST", "/logout")
        .header("Cookie", &cookie)
        .body("application/x-www-form-urlencoded", b"")
        .send()
        .expect(403);
}

#[test]
fn elsewhere_than_on_loopback_somebody_must_be_able_to_log_in() {
    let mut server = bare().set("http.listen", "[\"0.0.0.0:0\"]").prepare();
    let log = server.try_start_as(server.command()).expect_err("nobody could log in");
    assert!(log.contains("stentor http-password"), "{log}");
    let (token, table) = token(&["robot"]);
    let server = bare().set("http.listen", "[\"0.0.0.0:0\"]").set("http.tokens", &table).start();
    let at = format!("127.0.0.1:{}", server.http_address().port());
    let ask = |path: &str| server.http("GET", path).header("Host", &at);
    ask("/api/v1/status").send().expect(401);
    ask("/healthz").send().expect(200);
    ask("/api/v1/status").token(&token).send().expect(200);
}

#[test]
fn a_login_name_forges_no_line_of_the_log() {
    let users = format!("{{ ann = {:?} }}", hash(PASSWORD));
    let server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("http.users", &users).start();
    for name in [
        "a%0D%0A2026-11-28T00:00:00.000000Z%20%20INFO%20logged%20in",
        "%1B[2J",
        "%E2%80%AE%E2%80%A8%C2%9B%E2%80%8B",
        "%00",
    ] {
        let form = format!("user={name}&password=x");
        server.http("POST", "/login").body("application/x-www-form-urlencoded", form.as_bytes()).send().expect(303);
    }
    server.wait_log(&["login refused", "\\0"]);
    let lines = server.log().lines();
    assert!(!lines.iter().any(|line| line.starts_with("2026-11-28T00:00:00.000000Z")), "{lines:?}");
    let is_trap = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}' | '\u{200b}');
    assert!(!lines.iter().any(|line| line.contains(is_trap)), "{lines:?}");
}

#[test]
fn guesses_are_slowed() {
    let server = bare()
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.password_hash", &format!("{:?}", hash(PASSWORD)))
        .start();
    let guess = |password: &str| {
        let form = format!("password={password}");
        server.http("POST", "/login").body("application/x-www-form-urlencoded", form.as_bytes()).send().status
    };
    // Each wrong one takes its time; some are free, then the address waits.
    let mut guesses = 0;
    stentor_harness::wait_until("the right one has to wait as well", || {
        while guess("wrong") == 303 {
            guesses += 1;
            assert!(guesses < 200, "nobody is slowed");
        }
        guess("correct+horse+battery") == 429
    });
    stentor_harness::wait_until("it may try again", || guess("correct+horse+battery") == 303);
}

#[test]
fn connections_over_the_limit_wait_and_that_is_said() {
    let server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("http.connections_max", "1").start();
    let idle = std::net::TcpStream::connect(server.http_address()).expect("the server listens");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| server.http_get("/healthz").expect(200));
        server.wait_log(&["limit hit", "http_connections"]);
        drop(idle);
        second.join().expect("it is answered in the end");
    });
}

#[test]
fn a_reload_takes_logins_away_and_what_needs_a_restart_stays() {
    let (old, new) = (hash(PASSWORD), hash("another password"));
    let (robot, table) = token(&["robot"]);
    let server = bare()
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.reading", "\"login\"")
        .set("http.password_hash", &format!("{old:?}"))
        .set("http.tokens", &table)
        .start();
    let form = format!("password={}", PASSWORD.replace(' ', "+"));
    let login = server.http("POST", "/login").body("application/x-www-form-urlencoded", form.as_bytes());
    let cookie = login.send().expect(303).header("set-cookie").expect("a session").to_owned();
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    let by_cookie = || server.http("GET", "/api/v1/status").header("Cookie", &cookie).send();
    let by_token = || server.http("GET", "/api/v1/status").token(&robot).send();
    by_cookie().expect(200);
    by_token().expect(200);
    // A name that is known before and one that is new: names of the host follow at once, the host name does not.
    let of_host = |name: &str| server.http("GET", "/api/v1/status").token(&robot).header("Host", name).send();
    of_host("mx.test").expect(200);
    of_host("mail.example").expect(421);
    server.edit_config(|text| {
        let text =
            text.replace("mx.test", "renamed.test").replace("[http]\n", "[http]\nhost_names = [\"mail.example\"]\n");
        format!(
            "data_dir = \"elsewhere\"\n{}",
            text.lines().filter(|line| !line.starts_with("data_dir")).collect::<Vec<_>>().join("\n")
        )
    });
    let reload = || server.http("POST", "/api/v1/reload").token(&robot).send().expect(409);
    reload();
    server.wait_log(&["hostname changed", "restart"]);
    server.wait_log(&["data_dir changed", "restart"]);
    stentor_harness::wait_until("the reload is through", || of_host("mail.example").status == 200);
    of_host("mx.test").expect(200);
    of_host("renamed.test").expect(421);
    assert_eq!(by_token().expect(200).json()["hostname"], "mx.test");
    by_cookie().expect(200);
    // Another password ends the sessions of the old one; a token that is gone is unknown.
    server.edit_config(|text| {
        let text = text.replace(&old, &new);
        text.lines().filter(|line| !line.starts_with("tokens")).collect::<Vec<_>>().join("\n")
    });
    reload();
    stentor_harness::wait_until("the session has ended", || by_cookie().status == 401);
    by_token().expect(401);
}

#[test]
fn who_only_holds_on_keeps_nobody_out() {
    let (server, token) =
        with_token(bare().set("http.connections_max", "8").set("http.password_hash", &format!("{:?}", hash(PASSWORD))));
    // A form that never comes, by more clients than there are connections, and as many who say nothing.
    let mut slow: Vec<std::net::TcpStream> = Vec::new();
    for number in 0..24 {
        let mut stream = std::net::TcpStream::connect(server.http_address()).expect("the server listens");
        if number % 2 == 0 {
            let head = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                        Content-Length: 100\r\n\r\np";
            // It may have been ended for a later one.
            let _ = stream.write_all(head.as_bytes());
        }
        slow.push(stream);
    }
    server.http("POST", "/api/v1/flush").token(&token).send().expect(200);
    drop(slow);
    // And by itself it ends with an answer.
    let head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\np";
    stentor_harness::exchange(server.http_address(), head).expect(408);
    // Nor does it hold more than a form, however fast it comes.
    let head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\n";
    stentor_harness::exchange(server.http_address(), &[&head[..], &[b'x'; 16 * 1024]].concat()).expect(413);
    // Without a login nobody's body is waited for: the answer is there though nothing of it has come.
    let head = b"POST /api/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    stentor_harness::exchange(server.http_address(), head).expect(401);
}

#[test]
fn a_wrong_password_counts_though_its_client_hangs_up() {
    // Of no password at all, but to find that out takes longer than hanging up.
    let hash = format!("$argon2id$v=19$m=65536,t=6,p=1$c2FsdHNhbHRzYWx0$A{}", "A".repeat(42));
    let server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("http.password_hash", &format!("{hash:?}")).start();
    let form = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                Content-Length: 14\r\n\r\npassword=wrong";
    stentor_harness::wait_until("each is counted", || {
        let mut stream = std::net::TcpStream::connect(server.http_address()).expect("the server listens");
        stream.write_all(form.as_bytes()).expect("it reads");
        // Not before the request has been read: nothing would be checked then.
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(stream);
        server.log().matching(&["login refused"]).len() >= 5
    });
    stentor_harness::wait_until("the address is slowed", || {
        let next = server.http("POST", "/login").body("application/x-www-form-urlencoded", b"password=wrong");
        next.send().status == 429
    });
}
