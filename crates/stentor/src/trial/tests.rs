//! Findings about files, folders, ports and services that are made for each test.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// The findings for a configuration in its own folder, without the folder's name.
fn findings(folder: &Path, text: &str) -> Vec<String> {
    let file = folder.join("stentor.toml");
    // No test asks the system's name servers.
    fs::write(&file, format!("{text}\n[dns]\nservers = [\"127.0.0.1:9\"]\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (config, settings) = stentor_config::check_noting(&file).unwrap_or_else(|found| panic!("{found:?}"));
    let found = run(&config, &settings).findings;
    // Omissions have their own tests, and the hostname is this machine's.
    let is_omission = |found: &&Diagnostic| found.message.contains("has no `") || found.message.contains("hostname \"");
    let shown = found.iter().filter(|found| !is_omission(found));
    let shown = shown.map(|found| found.to_string().replace(&format!("{}/", folder.display()), ""));
    shown.filter(|found| !found.contains("name server")).collect()
}

#[test]
fn what_is_named_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a-file"), "").unwrap();
    fs::write(
        folder.path().join("news.subscribers"),
        "# people\nann@one.example\n  Bob <bob@two\u{e4}@x>\nno address\nCarl <carl@one.example\n",
    )
    .unwrap();
    let text = "data_dir = \"a-file/data\"\n[control]\nsocket = \"run/control.sock\"\n[log]\nattempts = \"logs/mail.log\"\n\
                audit = \"syslog:nowhere/log\"\n[sources.out]\naddress = \"192.0.2.77\"\n[listen]\nsmtp = \"198.51.100.9:25\"\n\
                [lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"news.subscribers\"\n[webhooks.a]\n\
                url = \"http://127.0.0.1/\"\nsecret = \"0123456789abcdef\"\nauthorization_file = \"no-token\"\n[http]\nlisten = []\n";
    let found = findings(folder.path(), text);
    let expected = [
        "stentor.toml:1:12: cannot create a-file/data: a-file is not a directory",
        "stentor.toml:3:10: the directory run does not exist",
        "stentor.toml:5:12: the directory logs does not exist",
        "stentor.toml:6:9: warning: nowhere/log does not exist, so these log lines are lost",
        "stentor.toml:16:10: warning: this file contains secrets, and every user has access to it (mode 644): run \
         `chmod o= stentor.toml`",
        "stentor.toml:17:22: warning: no-token: No such file or directory",
        "news.subscribers:3:8: warning: ",
        "news.subscribers:4:4: warning: unexpected text after the address",
        "news.subscribers:5:6: warning: `<` without `>`",
        "stentor.toml:8:11: this machine does not have the address 192.0.2.77",
        "stentor.toml:10:8: this machine does not have the address 198.51.100.9",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn a_sound_configuration_has_no_findings() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("news.subscribers"), "ann@one.example\n").unwrap();
    let text = "data_dir = \"new/data\"\n[lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"news.subscribers\"\n\
                [sources.out]\naddress = \"127.0.0.5\"\n[log]\nattempts = \"mail.log\"\n\
                [listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n";
    assert_eq!(findings(folder.path(), text), Vec::<String>::new());
    assert!(!folder.path().join("new").exists(), "nothing is made");
    // Anyone could put mail there.
    fs::create_dir_all(folder.path().join("new/data")).unwrap();
    fs::set_permissions(folder.path().join("new/data"), fs::Permissions::from_mode(0o777)).unwrap();
    let found = findings(folder.path(), text);
    let expected = "stentor.toml:1:12: warning: every user can write to new/data (mode 777): run `chmod o-w new/data`";
    assert_eq!(found, [expected]);
}

#[test]
fn the_submission_folder_keeps_users_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("submission");
    fs::create_dir(&path).unwrap();
    let text = |group: &str| {
        format!(
            "[submission]\nfolder = \"submission\"\ngroup = \"{group}\"\n[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n"
        )
    };
    let groups = fs::read_to_string(paths::GROUPS).unwrap();
    let gid = fs::metadata(&path).unwrap().gid().to_string();
    let own = groups.lines().find(|line| line.split(':').nth(2) == Some(&gid)).unwrap();
    let own = own.split(':').next().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1730)).unwrap();
    assert_eq!(findings(folder.path(), &text(own)), Vec::<String>::new());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let found = findings(folder.path(), &text(own));
    assert_eq!(found, ["stentor.toml:2:10: submission has mode 755: run `chmod 1730 submission`"]);
    let found = findings(folder.path(), &text("no-such-group"));
    let expected = "stentor.toml:3:9: there is no group no-such-group: run `groupadd --system no-such-group`";
    assert_eq!(found[0], expected);
    let other = groups.lines().find(|line| line.split(':').nth(2) != Some(&gid) && line.ends_with(':')).unwrap();
    let other = other.split(':').next().unwrap();
    let found = findings(folder.path(), &text(other));
    assert_eq!(
        found[0],
        format!("stentor.toml:2:10: submission does not belong to group {other}: run `chgrp {other} submission`")
    );
    fs::remove_dir(&path).unwrap();
    assert_eq!(findings(folder.path(), &text(own)), Vec::<String>::new(), "the server makes it");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let text = format!("[listen]\nsmtp = \"{address}\"\n[http]\nlisten = []\n");
    let expected = format!("stentor.toml:2:8: warning: another program listens on {address}");
    assert_eq!(findings(folder.path(), &text), [expected]);
    drop(other);
    assert_eq!(findings(folder.path(), &text), Vec::<String>::new());
}

#[test]
fn a_milter_that_is_down_is_named_with_what_becomes_of_mail() {
    let folder = tempfile::tempdir().unwrap();
    for (action, then) in [
        ("", "mail is deferred"),
        ("unreachable_action = \"accept\"", "mail is accepted without it"),
        ("unreachable_action = \"reject\"", "mail is refused"),
    ] {
        let text = format!(
            "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[[milters]]\nname = \"judge\"\n\
             address = \"unix:/nowhere/judge\"\n{action}\n"
        );
        let found = findings(folder.path(), &text);
        assert!(found[0].contains("milter judge (unix:/nowhere/judge): no connection: "), "{found:?}");
        assert!(found.len() == 1 && found[0].ends_with(&format!("; until it works, {then}")), "{found:?}");
    }
}

#[test]
fn entries_of_an_access_file_that_do_nothing_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Connect:10.1 RELAY\nGreetPause:127.0.0.1 5000\nConect:1.2.3.4 REJECT\nFrom:ok@x.example RELAY\n\
                Connect:192.0.2.300 REJECT\nTo:x.example ERROR:5.7.1:250 text\nConnect:evil.example REJECT\n\
                Connect:worse.example REJECT\n";
    fs::write(folder.path().join("access"), text).unwrap();
    let rules = |fields: &[&str]| {
        let rules = fields.iter().map(|field| format!("[[rules]]\n{field} = \"table:access\"\n"));
        let rules = rules.collect::<Vec<_>>().concat();
        let path = folder.path().display();
        format!(
            "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[tables.access]\nsource = \"makemap:{path}/access\"\n\
             as = \"sendmail-access\"\n{rules}"
        )
    };
    let found = findings(folder.path(), &rules(&["client", "sender", "recipient"]));
    let expected = [
        (2, "has no effect as written: `greetpause:` is not looked up here: use `[listen] greet_delay_s`"),
        (3, "has no effect as written: `conect:` is not a tag of an access file"),
        (4, "has no effect as written: RELAY is treated as OK"),
        (5, "is never looked up: it is neither an address"),
        (6, "has no effect as written: a refusal needs a code 4NN or 5NN, not 250"),
        (7, "is never looked up: no rule has `client_name = \"table:access\"`"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (line, expected)) in found.iter().zip(expected) {
        assert!(found.starts_with(&format!("access:{line}:1: warning: ")) && found.contains(expected), "{found}");
    }
    let found = findings(folder.path(), &rules(&["client", "client_name", "sender", "recipient"]));
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn what_postfix_does_otherwise_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("access"), "bad.example REJECT\ngood.example OK\n").unwrap();
    let head = "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n";
    let text = |access: &str, rules: &str| {
        let path = folder.path().display();
        format!("{head}[tables.access]\nsource = \"hash:{path}/access\"\nas = \"{access}\"\n{rules}")
    };
    let (by_table, other) = ("[[rules]]\nsender = \"table:access\"\n", "[[rules]]\nsubject = \"x\"\ndo = \"reject\"\n");
    let found = findings(folder.path(), &text("access", &format!("{by_table}{other}")));
    assert!(found.len() == 1 && found[0].starts_with("access:2:1: warning: OK for \"good.example\""), "{found:#?}");
    for sound in [text("access", &format!("{other}{by_table}")), text("sendmail-access", &format!("{by_table}{other}"))]
    {
        let found = findings(
            folder.path(),
            &sound.replace("hash:", if sound.contains("sendmail") { "makemap:" } else { "hash:" }),
        );
        assert_eq!(found, Vec::<String>::new());
    }
    let socket = folder.path().join("lmtp.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let text = |more: &str| {
        format!(
            "{head}[domains]\nrelay = [\"a.example\"]\n[routes]\n\"a.example\" = \"lmtp:unix:{}\"\n{more}",
            socket.display()
        )
    };
    let found = findings(folder.path(), &text(""));
    assert!(found.len() == 1 && found[0].contains("`[call_ahead] domains = [\"a.example\"]`"), "{found:#?}");
    let found = findings(folder.path(), &text("[call_ahead]\ndomains = \"all\"\n"));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn values_are_looked_at_where_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("valid"), "ann@x.example ann/\nbob@x.example bob/\n").unwrap();
    // A path is relative to the configuration's folder.
    let head = "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[tables.valid]\nsource = \"hash:valid\"\n\
         [tables.t.inline]\n\"a@x.example\" = \"FROB x\"\n\"b@x.example\" = \"hop:gate\"\n\"c@x.example\" = \"192.0.2.1:26\"\n\
         [hops]\ngate = \"192.0.2.9\"\n";
    let found = |rules: &str| findings(folder.path(), &format!("{head}{rules}"));
    let keys = "[[rules]]\nrecipient = \"x.example\"\nnot = { recipient = \"table:valid\" }\ndo = \"reject\"\n\
                [[rules]]\nsender = \"table:t\"\ndo = \"hold\"\n";
    assert_eq!(found(keys), Vec::<String>::new(), "the keys alone count");
    let actions = found("[[rules]]\nsender = \"table:t\"\n[[rules]]\nrecipient = \"table:valid\"\n");
    let is_deferred = |found: &String, place: &str| found.starts_with(place) && found.contains("is deferred: ");
    let places = ["valid:1:", "valid:2:", "stentor.toml:8:", "stentor.toml:9:", "stentor.toml:10:"];
    assert_eq!(actions.len(), places.len(), "{actions:#?}");
    assert!(places.iter().all(|place| actions.iter().any(|found| is_deferred(found, place))), "{actions:#?}");
    // `FROB` and `x` may be hosts.
    let routes = format!("{keys}[routing]\ntables = \"t\"\n");
    assert_eq!(found(&routes), Vec::<String>::new());
}
