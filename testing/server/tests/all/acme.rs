//! Certificates from a CA: pebble asks for each proof over real sockets, issues, and is down, full of other people's
//! words, or new.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use stentor_harness::{Builder, Server, skipped, wait_until};
use tempfile::TempDir;

use super::kit::closed_port;
use super::tls_in::{certificate, codes, command, session_with};

const NAME: &str = "mx.acme.test";
/// Of an account that pebble knows beforehand.
const EXTERNAL: (&str, &str) = ("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W");

/// A CA on loopback, with a name server for which every name is 127.0.0.1.
struct Pebble {
    folder: TempDir,
    ports: Ports,
    is_external: bool,
    running: Vec<Child>,
}

struct Ports {
    directory: u16,
    management: u16,
    dns: u16,
    dns_management: u16,
    /// Where it looks for answers.
    http: u16,
    tls: u16,
}

impl Pebble {
    /// Nothing where it is not installed.
    fn new(is_external: bool) -> Option<Pebble> {
        if ["pebble", "pebble-challtestsrv"].iter().any(|name| !Path::new("/usr/bin").join(name).exists()) {
            skipped("pebble is missing: testing/install.sh");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        certificate(folder.path(), "localhost", None);
        let ports = Ports {
            directory: closed_port(),
            management: closed_port(),
            dns: closed_port(),
            dns_management: closed_port(),
            http: closed_port(),
            tls: closed_port(),
        };
        Some(Pebble { folder, ports, is_external, running: Vec::new() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it; it knows nobody. Certificates are valid for so long.
    fn start(&mut self, valid_s: u64) {
        let at = |port: u16| format!("127.0.0.1:{port}");
        let mut config = json!({
            "listenAddress": at(self.ports.directory),
            "managementListenAddress": at(self.ports.management),
            "certificate": self.path("localhost.pem"),
            "privateKey": self.path("localhost.key"),
            "httpPort": self.ports.http,
            "tlsPort": self.ports.tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": self.is_external,
            "certificateValidityPeriod": valid_s,
        });
        if self.is_external {
            config["externalAccountMACKeys"] = json!({ EXTERNAL.0: EXTERNAL.1 });
        }
        let file = self.path("pebble.json");
        std::fs::write(&file, json!({ "pebble": config }).to_string()).expect("it can be written");
        let folder = self.folder.path().to_owned();
        let log = |name: &str| std::fs::File::create(folder.join(name)).expect("it can be written");
        let dns = at(self.ports.dns);
        let mut names = Command::new("pebble-challtestsrv");
        names.args(["-dns01", &dns, "-management", &at(self.ports.dns_management), "-defaultIPv6", ""]);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", ""]);
        let mut pebble = Command::new("pebble");
        pebble.args(["-strict", "-dnsserver", &dns, "-config"]).arg(file);
        pebble.envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0"), ("PEBBLE_AUTHZREUSE", "0")]);
        for (mut program, name) in [(names, "names.log"), (pebble, "pebble.log")] {
            program.stdin(Stdio::null()).stdout(log(name)).stderr(log("errors.log"));
            self.running.push(program.spawn().expect("it is installed"));
        }
        for port in [self.ports.directory, self.ports.dns_management] {
            wait_until("pebble listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        }
    }

    fn stop(&mut self) {
        for mut child in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A server that asks it for `names`.
    fn server(&self, challenge: &str, names: &[&str]) -> Builder {
        let (key, port) = match challenge {
            "http-01" => ("acme.http_listen", self.ports.http),
            _ => ("acme.tls_listen", self.ports.tls),
        };
        Server::builder()
            .set("acme.names", &format!("{names:?}"))
            .set("acme.agree_terms", "true")
            .set("acme.contact", "[\"postmaster@acme.test\"]")
            .set("acme.challenge", &format!("{challenge:?}"))
            .set(key, &format!("[\"127.0.0.1:{port}\"]"))
            .set("acme.directory", &format!("\"https://localhost:{}/dir\"", self.ports.directory))
            .set("acme.ca_file", &format!("{:?}", self.path("localhost.pem").display().to_string()))
            .set("listen.smtp", "[\"127.0.0.1:0\"]")
    }

    /// Whether its root proves a file of ours.
    fn proves(&self, file: &Path) {
        let root = self.path("root.pem");
        let url = format!("https://localhost:{}/roots/0", self.ports.management);
        let fetched = Command::new("curl").args(["-sSk", "--max-time", "60", "-o"]).arg(&root).arg(url).status();
        assert!(fetched.expect("curl is installed").success());
        let mut openssl = Command::new("openssl");
        openssl.args(["verify", "-CAfile"]).arg(root).arg("-untrusted").arg(file).arg(file);
        let output = openssl.output().expect("openssl is installed");
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
    }
}

fn kept(server: &Server, name: &str) -> PathBuf {
    server.path("data/acme").join(name)
}

/// Of the certificate that a client of this name is shown.
fn shown(server: &Server, name: &str) -> String {
    let port = server.address().port();
    let line = session_with(port, &["--name", name], &["EHLO c", "@starttls", "@certificate"]).pop();
    line.expect("a line").trim_start_matches("certificate ").to_owned()
}

/// `tls show --json`.
fn show(server: &Server) -> Vec<Value> {
    let output = server.operator(&["tls", "show", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    value.as_array().expect("an array").clone()
}

/// Waits until the file's certificate is in force, and is another than `before`; its hash.
fn wait_in_force(server: &Server, name: &str, before: &str) -> String {
    let hash = || show(server).iter().find(|one| one["names"][0] == name).map(|one| one["sha256"].clone());
    wait_until("another certificate is obtained", || hash().is_some_and(|hash| hash.is_string() && hash != before));
    let mut of_client = String::new();
    wait_until("it is in force", || {
        of_client = shown(server, name);
        hash().is_some_and(|hash| hash == *of_client)
    });
    of_client
}

/// Nothing that is secret is in the log.
fn has_no_secrets(server: &Server) {
    let log = server.log().lines().join("\n");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    for entry in std::fs::read_dir(server.path("data/acme")).expect("there is a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("it is text");
        let account: Value = serde_json::from_str(&text).unwrap_or_default();
        let key = account["credentials"]["key_pkcs8"].as_str().unwrap_or_default().to_owned();
        let is_secret = |line: &&str| path.extension().is_some_and(|end| end == "pem") && line.len() == 64;
        for secret in text.lines().filter(is_secret).chain(Some(key.as_str()).filter(|key| !key.is_empty())) {
            assert!(!log.contains(secret), "{}", path.display());
        }
    }
}

#[test]
fn a_certificate_is_obtained_by_http_and_renewed_under_open_sessions() {
    let Some(mut pebble) = Pebble::new(false) else { return };
    pebble.start(24);
    let server = pebble.server("http-01", &[NAME, "second.acme.test"]).start();
    let first = wait_in_force(&server, NAME, "");
    assert_eq!(shown(&server, "second.acme.test"), first);
    let file = kept(&server, &format!("{NAME}.pem"));
    pebble.proves(&file);
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert!(!kept(&server, &format!("{NAME}.order")).exists());
    let of_first = show(&server).remove(0);
    assert_eq!((&of_first["acme"]["failures"], of_first["acme"]["error"].is_null()), (&json!(0), true), "{of_first}");
    assert!(of_first["warnings"].as_array().is_some_and(Vec::is_empty), "{of_first}");
    let steps = ["EHLO c", "@starttls", "EHLO c", "@wait", "MAIL FROM:<me@home.example>", "NOOP", "QUIT"];
    let mut open: Vec<_> = (0..10)
        .map(|_| {
            let mut session = command(server.address().port(), &["--name", NAME], &steps);
            let mut child = session.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs");
            let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
            let mut line = String::new();
            while line.trim() != "waiting" {
                line.clear();
                assert!(output.read_line(&mut line).expect("text") > 0, "the session ended");
            }
            (child, output)
        })
        .collect();
    wait_in_force(&server, NAME, &first);
    for (child, output) in &mut open {
        child.stdin.take().expect("it is piped").write_all(b"\n").expect("it waits");
        let rest: Vec<String> = output.lines().map(Result::unwrap).collect();
        assert_eq!(codes(&rest), ["250", "250", "221"], "{rest:?}");
        child.wait().expect("it ends");
    }
    pebble.proves(&file);
    let of_second = show(&server).remove(0);
    assert_eq!(of_second["tlsa"], of_first["tlsa"], "the key stays");
    assert!(of_second["not_after"].as_i64() > of_first["not_after"].as_i64());
    // Nothing else is served there.
    let mut other = TcpStream::connect((Ipv4Addr::LOCALHOST, pebble.ports.http)).expect("it listens");
    other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes a request");
    let mut line = String::new();
    BufReader::new(other).read_line(&mut line).expect("an answer");
    assert!(line.starts_with("HTTP/1.1 404"), "{line}");
    has_no_secrets(&server);
}

#[test]
fn a_certificate_is_obtained_by_tls_with_an_account_of_before() {
    let Some(mut pebble) = Pebble::new(true) else { return };
    pebble.start(86_400);
    let builder = pebble
        .server("tls-alpn-01", &[NAME])
        .set("acme.eab_kid", &format!("{:?}", EXTERNAL.0))
        .set("acme.eab_key_file", "\"eab.key\"")
        .set("acme.keep_key", "false")
        .file("eab.key", format!("{}\n", EXTERNAL.1).as_bytes());
    let prepared = builder.prepare();
    prepared.edit_config(|text| format!("{text}\n[[acme.certificates]]\nnames = [\"lists.acme.test\"]\n"));
    let mut server = prepared.run();
    let first = wait_in_force(&server, NAME, "");
    let lists = wait_in_force(&server, "lists.acme.test", "");
    assert!(first != lists && shown(&server, "unknown.test") == first, "the first is the default");
    pebble.proves(&kept(&server, "lists.acme.test.pem"));
    // A restart goes on with what is there, also without the CA.
    pebble.stop();
    server.kill();
    server.start_again();
    assert_eq!(shown(&server, NAME), first);
    assert_eq!(shown(&server, "lists.acme.test"), lists);
    // The CA has begun anew: it does not know the account, and another is made. One more name is a reload away.
    pebble.start(86_400);
    server.edit_config(|text| text.replace(&format!("{NAME:?}"), &format!("{NAME:?}, \"more.acme.test\"")));
    server.signal(Signal::HUP);
    let second = wait_in_force(&server, NAME, &first);
    assert_eq!(shown(&server, "more.acme.test"), second);
    server.wait_log(&["account unknown to the CA"]);
    has_no_secrets(&server);
}

#[test]
fn a_ca_that_is_down_costs_a_warning_and_nothing_else() {
    let Some(mut pebble) = Pebble::new(false) else { return };
    let server = pebble.server("http-01", &[NAME]).start();
    server.wait_log(&["WARN", "no certificate could be obtained", NAME, "the CA is unreachable"]);
    let own = shown(&server, NAME);
    assert_eq!(codes(&session_with(server.address().port(), &[], &["EHLO c", "@starttls", "NOOP"])).len(), 4);
    let failures = || show(&server).iter().find_map(|one| one["acme"]["failures"].as_u64()).unwrap_or_default();
    // A reload tries again, soon.
    server.signal(Signal::HUP);
    wait_until("it is tried again", || failures() >= 2);
    for words in [&["tls", "show"][..], &["check"], &["doctor"]] {
        let output = server.operator(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("the CA is unreachable") && text.contains(NAME), "{words:?}: {text}");
        let advice = "next: check that this server reaches the CA";
        assert_eq!(text.contains(advice), words == ["doctor"], "{words:?}: {text}");
    }
    let warnings = server.log().lines().iter().filter(|line| line.contains("no certificate could be obtained")).count();
    assert_eq!(warnings, 1, "one a day");
    // It is there, and the name is not proven: nobody listens where it looks.
    let elsewhere = pebble.ports.http;
    pebble.ports.http = pebble.ports.tls;
    pebble.start(86_400);
    server.signal(Signal::HUP);
    let error = || show(&server).iter().find_map(|one| one["acme"]["error"].as_str().map(str::to_owned));
    wait_until("the proof fails", || error().is_some_and(|error| error.contains("could not be proven by http-01")));
    server.wait_log(&["WARN", "no certificate could be obtained", "could not be proven by http-01"]);
    assert_eq!(shown(&server, NAME), own);
    // And in the end it works.
    pebble.stop();
    pebble.ports.http = elsewhere;
    pebble.start(86_400);
    server.signal(Signal::HUP);
    let obtained = wait_in_force(&server, NAME, "");
    assert_ne!(obtained, own);
    assert_eq!((failures(), error()), (0, None));
    // What was obtained outlives its CA.
    pebble.stop();
    server.signal(Signal::HUP);
    server.wait_log(&["configuration reloaded"]);
    assert_eq!(shown(&server, NAME), obtained);
}

#[test]
fn the_key_of_a_certificate_that_was_issued_is_not_lost() {
    let Some(mut pebble) = Pebble::new(false) else { return };
    pebble.start(86_400);
    let prepared = pebble.server("http-01", &[NAME]).prepare();
    // The CA issues, and the file cannot be written.
    let obstacle = prepared.path(&format!("data/acme/{NAME}.pem.new"));
    std::fs::create_dir_all(&obstacle).expect("it can be made");
    let mut server = prepared.run();
    server.wait_log(&["no certificate could be obtained", &format!("{NAME}.pem")]);
    let order: Value =
        serde_json::from_slice(&std::fs::read(kept(&server, &format!("{NAME}.order"))).unwrap()).unwrap();
    server.kill();
    std::fs::remove_dir(obstacle).expect("it is empty");
    server.start_again();
    let hash = wait_in_force(&server, NAME, "");
    assert_eq!(shown(&server, NAME), hash);
    let text = std::fs::read_to_string(kept(&server, &format!("{NAME}.pem"))).unwrap();
    let (_, key) = text.split_once("-----BEGIN PRIVATE KEY-----").expect("a key");
    let key: String = key.lines().filter(|line| !line.starts_with('-')).collect();
    assert_eq!(Some(key.as_str()), order["key"].as_str(), "the certificate is that of the order before");
    assert!(!kept(&server, &format!("{NAME}.order")).exists());
}
