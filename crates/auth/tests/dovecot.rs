//! Tests with a real Dovecot in a temporary folder, and with a faulty one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stentor_auth::{Authenticator, Channel, Counts, Login, LoginRefusal, Settings, Step};
use stentor_sasl::{Bindings, ClientCredentials, ClientExchange, Mechanism, MechanismChoice, Mechanisms, ScramKeys};
use stentor_users::{FileKind, Limit, Limits, UserChanges, change};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// A Dovecot that is stopped on drop.
struct Dovecot(Child);

impl Drop for Dovecot {
    fn drop(&mut self) {
        // Its master process stops the others.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "base_dir = {folder}/run\nstate_dir = {folder}/state\nlog_path = {folder}/log\nprotocols =\nssl = no\n\
         auth_mechanisms = plain login scram-sha-256 xoauth2 oauthbearer\ndisable_plaintext_auth = yes\nauth_verbose = yes\nauth_failure_delay = 0\n\
         default_internal_user = root\ndefault_internal_group = root\ndefault_login_user = root\nfirst_valid_uid = 0\n\
         passdb {{\n  driver = passwd-file\n  args = {folder}/passwd\n}}\n\
         passdb {{\n  driver = oauth2\n  mechanisms = xoauth2 oauthbearer\n  args = {folder}/oauth2\n}}\n\
         userdb {{\n  driver = static\n  args = uid=0 gid=0 home={folder}\n}}\n\
         service auth {{\n  unix_listener {folder}/auth {{\n    mode = 0600\n  }}\n}}\n\
         service anvil {{\n  unix_listener anvil-auth-penalty {{\n    mode = 0\n  }}\n}}\n\
         service stats {{\n  process_min_avail = 0\n}}\n"
    )
}

/// Starts Dovecot; prints a note and returns `None` if it is not installed.
async fn start(folder: &Path) -> Option<Dovecot> {
    if !Path::new("/usr/sbin/dovecot").exists() || !is_root() {
        eprintln!("*** SKIPPED: Dovecot is not installed, or this is not root");
        assert!(std::env::var_os("STENTOR_NO_SKIP").is_none(), "Dovecot is needed: apt-get install dovecot-core");
        return None;
    }
    let keys = ScramKeys::new("pencil", &[2; 16], 4_096).unwrap().to_string();
    // PostgreSQL's form, in Dovecot's fields: iterations, salt, stored key, server key.
    let parts: Vec<&str> = keys.trim_start_matches("SCRAM-SHA-256$").split([':', '$']).collect();
    let scram = format!("{{SCRAM-SHA-256}}{},{},{},{}", parts[0], parts[1], parts[2], parts[3]);
    let passwd = format!(
        "ann@example.org:{scram}::::::stentor_send_as=@lists.example.org\n\
         bob:{{PLAIN}}pencil::::::\neve@example.org:{{PLAIN}}pencil::::::nodelay=y user_disabled=y\n"
    );
    fs::write(folder.join("passwd"), passwd).unwrap();
    fs::write(
        folder.join("oauth2"),
        "introspection_mode = local\nlocal_validation_key_dict = fs:posix:prefix=/nonexistent/\n",
    )
    .unwrap();
    let path = folder.join("dovecot.conf");
    fs::write(&path, config(folder)).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut dovecot = Command::new("/usr/sbin/dovecot");
    let child = dovecot.arg("-F").arg("-c").arg(&path).stdout(Stdio::null()).spawn().unwrap();
    let mut dovecot = Dovecot(child);
    while !folder.join("auth").exists() {
        if let Some(status) = dovecot.0.try_wait().unwrap() {
            panic!("Dovecot ended, {status}: {}", fs::read_to_string(folder.join("log")).unwrap_or_default());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Some(dovecot)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0)
}

fn channel(is_secured: bool) -> Channel {
    Channel {
        client: "192.0.2.1:4711".parse().unwrap(),
        local: "192.0.2.25:587".parse().unwrap(),
        is_secured,
        bindings: Bindings::default(),
    }
}

async fn connected(auth: &Authenticator) {
    while auth.mechanisms(&channel(true)).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn log_in(auth: &Authenticator, mechanism: Mechanism, user: &str, secret: &str) -> Step {
    let account =
        ClientCredentials { user: user.to_owned(), secret: secret.into(), host: "mx.example".to_owned(), port: 587 };
    let mut client = ClientExchange::new(
        &MechanismChoice::of(mechanism, &Bindings::default()),
        account,
        "client-nonce-of-some-length",
    )
    .unwrap();
    let mut exchange = auth.begin(mechanism, channel(true), Mechanisms::all());
    let mut step = exchange.step(client.initial().as_deref()).await;
    while let Step::Challenge(octets) = &step {
        let response = client.respond(octets).unwrap();
        step = exchange.step(Some(&response)).await;
    }
    if let Step::Done(_) = step {
        client.finish().unwrap();
    }
    step
}

fn done(step: Step) -> Login {
    match step {
        Step::Done(login) => login,
        other => panic!("{other:?}"),
    }
}

fn refused(step: Step) -> LoginRefusal {
    match step {
        Step::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn open(folder: &Path) -> Authenticator {
    Authenticator::open(
        &Settings::Dovecot { socket: folder.join("auth"), overrides: folder.join("dovecot-users") },
        Counts::default(),
        1,
        || 0,
    )
    .unwrap()
}

#[tokio::test]
async fn a_real_dovecot_checks_logins() {
    let folder = tempfile::tempdir().unwrap();
    let Some(dovecot) = start(folder.path()).await else { return };
    let auth = open(folder.path());
    connected(&auth).await;
    let offered = auth.mechanisms(&channel(true));
    assert_eq!(offered.to_string(), "SCRAM-SHA-256 OAUTHBEARER XOAUTH2 PLAIN LOGIN");
    for mechanism in [Mechanism::Plain, Mechanism::Login, Mechanism::ScramSha256] {
        let login = done(log_in(&auth, mechanism, "ann@example.org", "pencil").await);
        assert_eq!(&**login.user(), "ann@example.org", "{mechanism}");
        assert!(login.owns(&"ann@example.org".parse().unwrap()) && login.owns(&"x@lists.example.org".parse().unwrap()));
        assert!(!login.owns(&"bob@example.org".parse().unwrap()) && login.is_valid());
    }
    let bob = done(log_in(&auth, Mechanism::Plain, "bob", "pencil").await);
    assert!(&**bob.user() == "bob" && !bob.owns(&"bob@example.org".parse().unwrap()));
    // Several at a time over the one connection.
    let all = (0..20).map(|n| {
        let auth = auth.clone();
        tokio::spawn(async move {
            log_in(&auth, Mechanism::ScramSha256, if n % 2 == 0 { "bob" } else { "ann@example.org" }, "pencil").await
        })
    });
    for one in all.collect::<Vec<_>>() {
        done(one.await.unwrap());
    }
    // A cancelled exchange leaves the link usable.
    let mut given_up = auth.begin(Mechanism::Login, channel(true), Mechanisms::all());
    assert!(matches!(given_up.step(Some(b"bob")).await, Step::Challenge(_)));
    drop(given_up);
    done(log_in(&auth, Mechanism::Plain, "bob", "pencil").await);
    assert_eq!(refused(log_in(&auth, Mechanism::Plain, "ann@example.org", "wrong").await), LoginRefusal::Wrong);
    assert_eq!(refused(log_in(&auth, Mechanism::ScramSha256, "nobody", "pencil").await), LoginRefusal::Wrong);
    // No token can be checked there; both must be passed on, and end.
    for mechanism in [Mechanism::Xoauth2, Mechanism::OauthBearer] {
        let refusal = refused(log_in(&auth, mechanism, "bob", "dG9rZW4").await);
        assert!(matches!(refusal, LoginRefusal::Wrong | LoginRefusal::Unavailable), "{mechanism}: {refusal:?}");
    }
    drop(dovecot);
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains("BUG") && !log.contains("unknown command"), "{log}");
}

#[tokio::test]
async fn a_dovecot_that_comes_back_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(dovecot) = start(folder.path()).await else { return };
    let auth = open(folder.path());
    connected(&auth).await;
    done(log_in(&auth, Mechanism::Plain, "bob", "pencil").await);
    // Its auth process keeps our connection open without responding.
    drop(dovecot);
    fs::remove_file(folder.path().join("auth")).unwrap();
    let _dovecot = start(folder.path()).await.unwrap();
    while let Step::Refused(refusal) = log_in(&auth, Mechanism::Plain, "bob", "pencil").await {
        assert_eq!(refusal, LoginRefusal::Unavailable);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Accepts the next connection and does the handshake.
async fn accept(listener: &UnixListener) -> BufReader<UnixStream> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    for wanted in ["VERSION\t1\t", "CPID\t"] {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.starts_with(wanted), "{line}");
    }
    stream.write_all(b"VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nSPID\t1\nCUID\t1\nCOOKIE\tff\nDONE\n").await.unwrap();
    stream
}

/// Reads the id of the next request.
async fn request(stream: &mut BufReader<UnixStream>) -> u32 {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.split('\t').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn silence_nonsense_and_a_lost_connection_are_temporary() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("auth")).unwrap();
    let auth = open(folder.path());
    let begin = || {
        let auth = auth.clone();
        tokio::spawn(async move {
            auth.begin(Mechanism::Plain, channel(true), Mechanisms::all()).step(Some(b"\0bob\0pencil")).await
        })
    };
    assert_eq!(refused(begin().await.unwrap()), LoginRefusal::Unavailable, "nobody has said hello");
    for said in [None, Some("nonsense\tx\nOK\tx\n"), Some("CONT\t1\t!\n"), Some("")] {
        let mut stream = accept(&listener).await;
        connected(&auth).await;
        let tried = begin();
        request(&mut stream).await;
        match said {
            // The connection closes.
            Some("") => drop(stream),
            Some(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            // Silence: time passes.
            None => {}
        }
        assert_eq!(refused(tried.await.unwrap()), LoginRefusal::Unavailable, "{said:?}");
    }
    // Responses in another order than the requests.
    let mut stream = accept(&listener).await;
    let (first, second) = (begin(), begin());
    let (a, b) = (request(&mut stream).await, request(&mut stream).await);
    stream.write_all(format!("OK\t{b}\tuser=b\nOTHER\tx\nOK\t77\tuser=x\nOK\t{a}\tuser=a\n").as_bytes()).await.unwrap();
    let mut users = [done(first.await.unwrap()), done(second.await.unwrap())].map(|login| login.user().to_string());
    users.sort();
    assert_eq!(users, ["a", "b"]);
}

/// Local settings override Dovecot's, also for open sessions.
#[tokio::test(start_paused = true)]
async fn local_settings_override_dovecot() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("auth")).unwrap();
    let auth = open(folder.path());
    let mut stream = accept(&listener).await;
    connected(&auth).await;
    let mut log_in = async || {
        let tried = tokio::spawn({
            let auth = auth.clone();
            async move { auth.begin(Mechanism::Plain, channel(true), Mechanisms::all()).step(Some(b"\0bob\0pencil")).await }
        });
        let id = request(&mut stream).await;
        let fields = "stentor_messages_per_hour_max=5\tstentor_recipients_per_day_max=none\tstentor_send_as=@x.example";
        stream.write_all(format!("OK\t{id}\tuser=Bob\t{fields}\n").as_bytes()).await.unwrap();
        tried.await.unwrap()
    };
    let say = async |changes: &UserChanges| {
        let path = folder.path().join("dovecot-users");
        change(FileKind::DovecotOverrides, &path, |document| {
            changes.apply(FileKind::DovecotOverrides, document, "BOB")
        })
        .unwrap();
        auth.refresh().await;
    };
    let login = done(log_in().await);
    let all = Limits::new([Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!(login.limits(&all), Limits::new([Some(5), Some(2), Some(3), None]));
    let (given, said) = ("a@x.example".parse().unwrap(), "a@y.example".parse().unwrap());
    assert!(login.owns(&given) && !login.owns(&said));
    let limits = [Some(Limit::None), None, Some(Limit::AtMost(9)), None];
    say(&UserChanges { limits, send_as: Some(vec!["@y.example".parse().unwrap()]), locked: None }).await;
    assert_eq!(login.limits(&all), Limits::new([None, Some(2), Some(9), None]));
    assert!(!login.owns(&given) && login.owns(&said));
    let ended = tokio::spawn({
        let login = login.clone();
        async move { login.ended().await }
    });
    say(&UserChanges { locked: Some(true), ..UserChanges::default() }).await;
    ended.await.unwrap();
    assert!(!login.is_valid() && !login.owns(&said));
    assert_eq!(refused(log_in().await), LoginRefusal::Locked);
    say(&UserChanges { locked: Some(false), ..UserChanges::default() }).await;
    let login = done(log_in().await);
    // Another source of users replaces it.
    auth.retire();
    login.ended().await;
    let step = auth.begin(Mechanism::Plain, channel(true), Mechanisms::all()).step(Some(b"\0bob\0pencil")).await;
    assert_eq!(refused(step), LoginRefusal::Unavailable);
}
