//! Access tokens for smart hosts, between a token endpoint over HTTPS and a host that takes OAUTHBEARER: asked for once
//! and kept, replaced when they end or are refused, and what waits when there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::kit::{SENDER, builder, drained, fates, post, wait_fates};
use stentor_server_tests::web::Web;

const ENDPOINT: &str = "token.example";
const TO: &str = "bob@tap.example";

/// A host that takes the tokens of a file, and an endpoint that issues some.
struct World {
    web: Web,
    lab: TestLab,
}

impl World {
    fn new(tls: &str) -> World {
        let web = Web::start();
        let tokens = web.folder.path().join("good");
        fs::write(&tokens, "").unwrap();
        let lab = TestLab::start(&format!(
            "[[site]]\nname = 'relay.example'\nrelay = true\nbehaviour = {{ tls = '{tls}', auth_tokens = '{}' }}\n\
             [[record]]\nname = '{ENDPOINT}'\ntype = 'A'\nvalue = '127.0.0.1'\n",
            tokens.display()
        ));
        World { web, lab }
    }

    /// The tokens that the host takes from now on.
    fn takes(&self, tokens: &[&str]) {
        let lines: String = tokens.iter().map(|token| format!("ann@x.example:{token}\n")).collect();
        // A login reads all of it, or of the one before.
        let (new, file) = (self.web.folder.path().join("good.new"), self.web.folder.path().join("good"));
        fs::write(&new, lines).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// What the endpoint answers, the last one for ever.
    fn answers(&self, answers: &[(u16, Value)]) {
        let lines: Vec<String> =
            answers.iter().map(|(status, body)| json!({ "status": status, "body": body }).to_string()).collect();
        self.web.issue_tokens(ENDPOINT, &lines.join("\n"));
    }

    /// The forms that were posted to it.
    fn forms(&self) -> Vec<Value> {
        self.web.posts(ENDPOINT).into_iter().map(|post| post["form"].clone()).collect()
    }

    fn builder(&self) -> Builder {
        let host = format!("mx1.relay.example:{}", self.lab.smtp_port());
        let section = format!("smart_hosts.\"{host}\"");
        let grant = format!(
            "{{ token_url = \"https://{ENDPOINT}:{}/oauth/token\", client_id = \"stentor\", client_secret_file = \"client.secret\", \
             refresh_token_file = \"refresh.token\", scope = \"https://mail.example/ offline_access\" }}",
            self.web.port
        );
        builder(&self.lab)
            .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
            .file("client.secret", b"cl13nt\n")
            .file("refresh.token", b"r3fresh-1\n")
            .set("delivery.tls_ca_file", "\"ca.pem\"")
            // A session is over with its message.
            .set("delivery.idle_ms", "0")
            .route("tap.example", &[&host])
            .set_in(&section, "user", "\"ann@x.example\"")
            .set_in(&section, "oauth", &grant)
    }

    fn delivers(&self, server: &Server, id: &str) {
        post(server, &self.lab, &[TO], id);
        self.lab.wait_clean(id, &[TO]);
        // What comes next logs in anew.
        wait_until("the session is over", || server.status()["connections_out"] == 0);
    }
}

fn issued(token: &str, refresh: Option<&str>) -> (u16, Value) {
    let mut body = json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 });
    if let Some(refresh) = refresh {
        body["refresh_token"] = refresh.into();
    }
    (200, body)
}

fn refused(error: &str, description: &str) -> (u16, Value) {
    (400, json!({ "error": error, "error_description": description }))
}

/// Nothing that is secret is in the log.
fn assert_discreet(server: &Server) {
    let all = server.log().lines().join("\n");
    for secret in ["cl13nt", "r3fresh", "acc3ss"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

#[test]
fn a_token_is_kept_and_replaced_once_when_it_is_refused() {
    let world = World::new("good");
    world.takes(&["acc3ss-1"]);
    world.answers(&[issued("acc3ss-1", Some("r3fresh-2")), issued("acc3ss-2", None)]);
    let server = world.builder().start();
    let file = server.path("refresh.token");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    for n in 0..3 {
        world.delivers(&server, &format!("kept{n}@test"));
    }
    let forms = world.forms();
    assert_eq!(
        forms,
        [json!({ "grant_type": "refresh_token", "client_id": "stentor", "client_secret": "cl13nt",
            "refresh_token": "r3fresh-1", "scope": "https://mail.example/ offline_access" })],
        "one request for three logins"
    );
    assert_eq!(world.web.posts(ENDPOINT)[0]["path"], "/oauth/token");
    assert_eq!(fs::read_to_string(&file).unwrap(), "r3fresh-2\n", "rotated");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    // Revoked: the same attempt goes on with another.
    world.takes(&["acc3ss-2"]);
    world.delivers(&server, "revoked@test");
    server.wait_log(&["the host refused the access token", "401"]);
    server.wait_log(&["retrying the login with a new one"]);
    assert_eq!(world.forms()[1]["refresh_token"], "r3fresh-2");
    assert!(!server.log().lines().iter().any(|line| line.contains("stat=Deferred")), "it was no failure");
    // Another is refused, too: it waits, and the endpoint is left alone.
    world.takes(&[]);
    let wire = message("waits@test", "x");
    world.lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, &[TO], &wire).expect(250);
    let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
    assert!(line.contains("dsn=4.7.8") && line.contains("AUTH refused: 535"), "{line}");
    wait_until("it waits for the login", || {
        let queue = server.queue();
        let rows = queue["causes"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["cause"] == "auth" && row["recipients"] == 1)
    });
    assert_eq!(world.forms().len(), 2);
    world.takes(&["acc3ss-2"]);
    world.lab.wait_clean("waits@test", &[TO]);
    drained(&server);
    assert_eq!(world.forms().len(), 2);
    assert_discreet(&server);
}

#[test]
fn a_token_that_is_refused_is_replaced_by_one_request_and_no_more() {
    let world = World::new("good");
    world.takes(&[]);
    world.answers(&[issued("acc3ss-1", None), issued("acc3ss-2", None), issued("acc3ss-3", None)]);
    let server = world.builder().start();
    post(&server, &world.lab, &[TO], "refused@test");
    for n in 1..=3 {
        server.log().wait_nth(&["connect: relay=", "stat=Deferred", "AUTH refused: 535"], n).expect("the server runs");
    }
    assert_eq!(world.forms().len(), 2, "the first one, and one more");
    assert_eq!(fates(&server).pending, 1);
    assert_discreet(&server);
}

#[test]
fn a_token_that_ends_is_replaced() {
    let world = World::new("good");
    world.takes(&["acc3ss-1", "acc3ss-2"]);
    let mut short = issued("acc3ss-1", None);
    short.1["expires_in"] = 1.into();
    world.answers(&[short, issued("acc3ss-2", None)]);
    let server = world.builder().start();
    let mut count = 0;
    wait_until("another token is asked for", || {
        count += 1;
        world.delivers(&server, &format!("short{count}@test"));
        std::thread::sleep(Duration::from_millis(200));
        world.forms().len() == 2
    });
    assert!(!server.log().lines().iter().any(|line| line.contains("stat=Deferred")));
}

#[test]
fn mail_waits_for_whoever_has_to_sign_in_again() {
    let world = World::new("good");
    world.takes(&["acc3ss-1"]);
    world
        .answers(&[refused("invalid_grant", "Token r3fresh-1 has been expired or revoked."), issued("acc3ss-1", None)]);
    let server = world.builder().start();
    post(&server, &world.lab, &[TO], "grant@test");
    let file: PathBuf = server.path("refresh.token");
    let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
    let why = format!(
        "no access token from token.example: invalid_grant: Token (hidden) has been expired or revoked; sign in again and write the new \
         refresh token to {}",
        file.display()
    );
    assert!(line.contains("dsn=4.7.8") && line.contains(&why), "{line}");
    // The next tries find the same, and ask nobody.
    for n in 2..=3 {
        server.log().wait_nth(&["connect: relay=", "stat=Deferred", "sign in again"], n).expect("the server runs");
    }
    assert_eq!(world.forms().len(), 1);
    fs::write(&file, "r3fresh-9\n").unwrap();
    world.lab.wait_clean("grant@test", &[TO]);
    assert_eq!(world.forms()[1]["refresh_token"], "r3fresh-9");
    wait_fates(&server, "all of it is settled", |now| (now.pending, now.delivered) == (0, 1));
    assert_discreet(&server);
}

#[test]
fn mail_outlives_an_endpoint_that_is_down() {
    let world = World::new("good");
    world.takes(&["acc3ss-1"]);
    world.answers(&[(503, json!({})), issued("acc3ss-1", None)]);
    let server = world.builder().start();
    post(&server, &world.lab, &[TO], "down@test");
    let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
    assert!(line.contains("no access token from token.example: status 503"), "{line}");
    world.lab.wait_clean("down@test", &[TO]);
    wait_fates(&server, "all of it is settled", |now| (now.pending, now.delivered) == (0, 1));
}

#[test]
fn a_host_that_is_not_proven_has_no_token_asked_for() {
    let world = World::new("self_signed");
    world.takes(&["acc3ss-1"]);
    world.answers(&[issued("acc3ss-1", None)]);
    let server = world.builder().start();
    post(&server, &world.lab, &[TO], "unproven@test");
    let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
    assert!(line.contains("is self-signed") && line.contains("would expose the token"), "{line}");
    assert_eq!(world.forms(), Vec::<Value>::new());
    // Nor does an endpoint get the refresh token that is not who it should be.
    let world = World::new("good");
    world.answers(&[issued("acc3ss-1", None)]);
    world.web.certify_as(ENDPOINT, "other.example");
    let server = world.builder().start();
    post(&server, &world.lab, &[TO], "endpoint@test");
    let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
    assert!(line.contains("no access token from token.example: TLS with 127.0.0.1:"), "{line}");
    assert_eq!(world.forms(), Vec::<Value>::new());
}

#[test]
fn a_check_logs_in_with_a_token_of_its_own() {
    let world = World::new("good");
    world.takes(&["acc3ss-1"]);
    world.answers(&[issued("acc3ss-1", Some("r3fresh-2")), refused("invalid_client", "no")]);
    let server = world.builder().start();
    let check = || server.operator_text(&["tls", "check", "tap.example"]);
    let text = check();
    assert!(text.contains("OAUTHBEARER") && text.contains("ann@x.example"), "{text}");
    assert_eq!(fs::read_to_string(server.path("refresh.token")).unwrap(), "r3fresh-2\n");
    let text = check();
    let why = "no access token from token.example: invalid_client: no; check client_id and the secret in";
    assert!(text.contains(why), "{text}");
    assert_eq!(world.forms()[1]["refresh_token"], "r3fresh-2");
}
