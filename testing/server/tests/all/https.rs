//! HTTPS of the console and API, and the certificates of `[tls]`: read, replaced, reloaded, checked. curl and openssl
//! are the peers.

use std::path::Path;
use std::process::{Command, Output};

use stentor_harness::{Builder, Server, stentor, wait_until};

use super::http_auth::{hash, token};
use super::kit::bare;

/// A certificate of its own CA for `mx.test` and 127.0.0.1, as PEM: certificate and key.
fn certificate(days: &str) -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=mx.test",
        ])
        .args(["-addext", "subjectAltName=DNS:mx.test,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "chain.pem", "-days", days])
        .current_dir(folder.path())
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it has written them");
    (read("chain.pem"), read("key.pem"))
}

const FILES: &str = "[{ chain = \"chain.pem\", key = \"key.pem\" }]";

fn https(builder: Builder, certificate: &(Vec<u8>, Vec<u8>)) -> Builder {
    let (chain, key) = certificate;
    let builder = builder.set("tls.certificates", FILES).file("chain.pem", chain).file("key.pem", key);
    builder.set("http.listen", "[\"127.0.0.1:0\"]").set("http.tls", "true")
}

/// `127.0.0.1:port` of the console.
fn address(server: &Server) -> String {
    let line = server.wait_log(&["console at https://"]);
    let rest = line.split("https://").nth(1).expect("it was waited for");
    rest.split('/').next().expect("split gives one at least").to_owned()
}

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments).output().expect("curl is installed")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn fingerprint(address: &str) -> String {
    let script = format!(
        "openssl s_client -connect {address} </dev/null 2>/dev/null | openssl x509 -noout -fingerprint -sha256"
    );
    text(&Command::new("sh").args(["-c", &script]).output().expect("sh is there"))
}

#[test]
fn console_and_api_are_served_over_tls_alone() {
    let (secret, tokens) = token(&["robot"]);
    let users = format!("{{ ann = {:?} }}", hash("correct horse battery"));
    let builder = https(bare(), &certificate("30")).set("http.tokens", &tokens).set("http.users", &users);
    let server = builder.start();
    let (address, ca) = (address(&server), server.path("chain.pem"));
    let ca = ca.to_str().expect("UTF-8");
    let status = curl(&["--cacert", ca, &format!("https://{address}/api/v1/status")]);
    assert!(text(&status).contains("\"hostname\":\"mx.test\""), "{}", text(&status));
    let bearer = format!("Authorization: Bearer {secret}");
    let flushed = curl(&["--cacert", ca, "-X", "POST", "-H", &bearer, &format!("https://{address}/api/v1/flush")]);
    assert!(flushed.status.success(), "{}", text(&flushed));
    let versions = curl(&["--cacert", ca, "--tls-max", "1.2", "-i", &format!("https://{address}/healthz")]);
    assert!(text(&versions).starts_with("HTTP/1.1 200"), "{}", text(&versions));
    // Once HSTS is said, browsers do not forget it: not by ourselves.
    assert!(!text(&versions).to_lowercase().contains("strict-transport-security"));

    // In clear: pages are redirected, and nothing else is done.
    let plain = curl(&["-i", &format!("http://{address}/queue?x=1")]);
    assert!(text(&plain).starts_with("HTTP/1.1 307"), "{}", text(&plain));
    assert!(text(&plain).contains(&format!("location: https://{address}/queue?x=1")), "{}", text(&plain));
    let plain = curl(&["-i", "-X", "POST", "-H", &bearer, &format!("http://{address}/api/v1/flush")]);
    assert!(text(&plain).starts_with("HTTP/1.1 403"), "{}", text(&plain));
    assert!(text(&plain).contains("HTTPS only"), "{}", text(&plain));

    // The session's cookie never goes in clear.
    let form = "user=ann&password=correct+horse+battery&next=/";
    let login = curl(&["--cacert", ca, "-i", "-d", form, &format!("https://{address}/login")]);
    let cookie = text(&login)
        .lines()
        .find(|line| line.to_lowercase().starts_with("set-cookie: stentor_session"))
        .map(str::to_owned);
    assert!(cookie.as_ref().is_some_and(|cookie| cookie.contains("; Secure")), "{}", text(&login));
    // Who does not know our CA refuses us.
    assert!(!curl(&[&format!("https://{address}/healthz")]).status.success());
}

#[test]
fn a_certificate_is_replaced_while_the_server_runs() {
    let server = https(bare(), &certificate("30")).start();
    let address = address(&server);
    let first = fingerprint(&address);
    let (chain, key) = certificate("30");
    // Between the two files nothing fits: the old one stays.
    server.write("chain.pem", &chain);
    server.wait_log(&["the key does not belong to the certificate", "the previous one stays in use"]);
    assert_eq!(fingerprint(&address), first);
    server.write("key.pem", &key);
    wait_until("the new certificate is shown", || fingerprint(&address) != first);
    server.wait_log(&["certificate in use", "mx.test"]);

    // A reload with one that is broken changes nothing.
    let second = fingerprint(&address);
    server.edit_config(|text| text.replace("key = \"key.pem\"", "key = \"none.pem\""));
    let refused = server.operator(&["reload"]);
    assert!(!refused.status.success());
    let said = text(&refused);
    assert!(said.contains("none.pem: there is no such file"), "{said}");
    assert_eq!(fingerprint(&address), second);
    let (chain, key) = certificate("30");
    server.write("other.pem", &[chain, key].concat());
    server.edit_config(|text| text.replace("chain.pem", "other.pem").replace("none.pem", "other.pem"));
    assert!(server.operator(&["reload"]).status.success());
    assert_ne!(fingerprint(&address), second);
}

#[test]
fn without_a_certificate_one_is_made_and_stays() {
    let mut server = bare().set("http.listen", "[\"127.0.0.1:0\"]").set("http.tls", "true").start();
    let first = fingerprint(&address(&server));
    assert!(first.contains('='), "{first}");
    let shown = server.operator(&["tls", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let sha256 = shown[0]["sha256"].as_str().expect("a hash").to_uppercase();
    assert!(first.replace(':', "").contains(&sha256), "{first} {shown}");
    assert_eq!((&shown[0]["names"][0], &shown[0]["self_signed"]), (&"mx.test".into(), &true.into()));
    server.stop();
    server.start_again();
    assert_eq!(fingerprint(&address(&server)), first);
}

fn check(folder: &Path, config: &Path) -> Output {
    Command::new(stentor()).arg("check").arg(config).current_dir(folder).output().expect("the binary can be run")
}

#[test]
fn check_names_what_is_broken_or_ends_soon() {
    let server = https(bare(), &certificate("5")).prepare();
    let found = check(server.folder(), &server.config());
    assert!(found.status.success(), "{}", text(&found));
    assert!(text(&found).contains("chain.pem: the certificate expires on "), "{}", text(&found));
    let doctor = Command::new(stentor()).arg("doctor").arg("--config").arg(server.config()).output();
    let doctor = doctor.expect("the binary can be run");
    assert!(text(&doctor).contains("the certificate expires on "), "{}", text(&doctor));
    assert!(text(&doctor).contains("next: renew or correct its files"), "{}", text(&doctor));
    server.write("key.pem", &certificate("5").1);
    let found = check(server.folder(), &server.config());
    assert!(!found.status.success());
    let line = text(&found)
        .lines()
        .find(|line| line.contains("the key does not belong to the certificate"))
        .map(str::to_owned);
    let line = line.unwrap_or_else(|| panic!("{}", text(&found)));
    let places: Vec<&str> = line.split(':').collect();
    assert!(places[1].parse::<u32>().is_ok() && places[2].parse::<u32>().is_ok(), "{line}");
}
