//! `stentor user`: the program itself, with passwords on standard input and out of a file.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use stentor_harness::stentor;

fn run(users: &Path, input: &str, args: &[&str]) -> Output {
    let mut command = Command::new(stentor());
    command.arg("user").args(args).arg("--users").arg(users);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // Who reads no password has closed it already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn users_are_added_listed_locked_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let added = run(&users, "a long password\n", &["add", "Ann@example.org", "--messages-per-hour", "200"]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let hint = format!(
        "was created, readable only by you: `chown stentor {}`, unless the server runs as you",
        users.display()
    );
    assert!(text(&added.stderr).contains(&hint), "{}", text(&added.stderr));
    let password = folder.path().join("password");
    fs::write(&password, "another password\nnot this\n").unwrap();
    let password = password.to_str().unwrap();
    let added = run(
        &users,
        "",
        &["add", "news", "--send-as", "@news.example,*-bounces@example.org", "--password-file", password],
    );
    assert!(added.status.success(), "{}", text(&added.stderr));

    assert!(run(&users, "", &["lock", "NEWS"]).status.success());
    let listed = text(&run(&users, "", &["list"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[1].starts_with("ann@example.org  active  both"), "{listed}");
    assert!(lines[1].ends_with("ann@example.org; messages/hour 200"), "{listed}");
    assert!(
        lines[2].starts_with("news             locked  both      @news.example, *-bounces@example.org"),
        "{listed}"
    );
    let json = text(&run(&users, "", &["list", "--json"]).stdout);
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["user"], &first["locked"], &first["messages_per_hour_max"]),
        (&"ann@example.org".into(), &false.into(), &200.into())
    );

    let before = fs::read_to_string(&users).unwrap();
    assert!(!before.contains("password\n") && before.contains("$argon2id$") && before.contains("SCRAM-SHA-256$"));
    assert!(run(&users, "a new password\n", &["passwd", "ann@example.org"]).status.success());
    assert!(run(&users, "", &["unlock", "news"]).status.success());
    let after = fs::read_to_string(&users).unwrap();
    assert!(after != before && !after.contains("locked"), "{after}");
    assert!(run(&users, "", &["remove", "ann@example.org"]).status.success());
    assert!(!fs::read_to_string(&users).unwrap().contains("ann@example.org"));
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    assert!(run(&users, "a long password\n", &["add", "ann@example.org"]).status.success());
    let before = fs::read(&users).unwrap();
    for (input, args, code, wanted) in [
        ("a long password\n", &["add", "ANN@example.org"][..], 1, "already exists; `stentor user passwd"),
        ("a long password\n", &["add", "bob"], 1, "--send-as"),
        ("short\n", &["add", "bob@example.org"], 1, "at least 10 characters"),
        ("\n", &["passwd", "ann@example.org"], 1, "at least 10 characters"),
        ("a long password\n", &["passwd", "bob@example.org"], 3, "no user bob@example.org"),
        ("", &["lock", "bob@example.org"], 3, "stentor user list"),
        ("", &["set", "bob@example.org", "--messages-per-day", "1"], 3, "stentor user list"),
        ("", &["set", "ann@example.org"], 2, "--messages-per-day"),
        ("", &["set", "ann@example.org", "--messages-per-day", "-1"], 2, "--messages-per-day"),
        ("", &["set", "ann@example.org", "--messages-per-day", "many"], 2, "`none` or `default`"),
        ("", &["add", "b@example.org", "--send-as", "nonsense"], 2, "neither an address"),
        ("", &["add", "b@example.org", "--password-file", "/nonexistent"], 1, "/nonexistent"),
    ] {
        let output = run(&users, input, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(wanted), "{args:?}: {}", text(&output.stderr));
    }
    assert_eq!(fs::read(&users).unwrap(), before);
    fs::write(&users, "[ann@example.org]\npasword = x\n").unwrap();
    let output = run(&users, "", &["list"]);
    assert!(
        text(&output.stderr).contains("users:2: unknown key \"pasword\"; valid keys: password"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_configuration_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("stentor.toml");
    let list = || Command::new(stentor()).args(["user", "list", "-c"]).arg(&config).output().unwrap();
    fs::write(&config, "hostname = \"mx.example\"\n").unwrap();
    let output = list();
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stderr).contains("[auth]"), "{}", text(&output.stderr));
    fs::write(&config, "broken = \n[auth]\nusers = \"people\"\n").unwrap();
    assert!(text(&list().stderr).contains("people"));
    assert!(run(&folder.path().join("people"), "a long password\n", &["add", "ann@example.org"]).status.success());
    assert!(text(&list().stdout).contains("ann@example.org  active"));
}
