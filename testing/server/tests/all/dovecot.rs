//! Users of a real Dovecot at our listeners: each mechanism that it has, tokens too, and what it says of their senders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use stentor_harness::{Server, TestLab, wait_until};

use crate::tls_in::{codes, session_with};

const PASSWORD: &str = "correct horse";
/// Whose signature Dovecot takes, in a token.
const KEY: &str = "a key of this test alone";

/// Stopped when dropped.
struct Dovecot(Child);

impl Drop for Dovecot {
    fn drop(&mut self) {
        // Its master stops the others.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "base_dir = {folder}/run\nstate_dir = {folder}/state\nlog_path = {folder}/log\nprotocols =\nssl = no\n\
         auth_mechanisms = plain login scram-sha-256 xoauth2 oauthbearer\ndisable_plaintext_auth = yes\nauth_failure_delay = 0\n\
         default_internal_user = root\ndefault_internal_group = root\ndefault_login_user = root\nfirst_valid_uid = 0\n\
         passdb {{\n  driver = passwd-file\n  mechanisms = plain login scram-sha-256\n  args = {folder}/passwd\n}}\n\
         passdb {{\n  driver = oauth2\n  mechanisms = xoauth2 oauthbearer\n  args = {folder}/oauth2\n}}\n\
         userdb {{\n  driver = static\n  args = uid=0 gid=0 home={folder}\n}}\n\
         service auth {{\n  unix_listener {folder}/auth {{\n    mode = 0600\n  }}\n}}\n\
         service anvil {{\n  unix_listener anvil-auth-penalty {{\n    mode = 0\n  }}\n}}\n\
         service stats {{\n  process_min_avail = 0\n}}\n"
    )
}

/// None, said aloud, where there is none.
fn start(folder: &Path) -> Option<Dovecot> {
    if !Path::new("/usr/sbin/dovecot").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("*** SKIPPED: Dovecot is not installed, or this is not root");
        assert!(std::env::var_os("STENTOR_NO_SKIP").is_none(), "Dovecot is needed: apt-get install dovecot-core");
        return None;
    }
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder can be written");
        fs::write(path, text).expect("the folder can be written");
    };
    fs::create_dir_all(folder).expect("the folder can be written");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("the folder can be written");
    let users = format!(
        "ann@home.example:{{PLAIN}}{PASSWORD}::::::stentor_send_as=@lists.home.example \
         stentor_messages_per_day_max=9 stentor_recipients_per_hour_max=none\n\
         bob@home.example:{{PLAIN}}{PASSWORD}::::::nologin=y\n\
         eve@home.example:::::::proxy=y host=192.0.2.7 nopassword=y\n"
    );
    write("passwd", &users);
    let keys = folder.join("keys/");
    let oauth2 = format!(
        "introspection_mode = local\nlocal_validation_key_dict = fs:posix:prefix={}\nusername_attribute = email\n",
        keys.display()
    );
    write("oauth2", &oauth2);
    // In base64, as Dovecot wants it.
    write("keys/default/HS256/default", "YSBrZXkgb2YgdGhpcyB0ZXN0IGFsb25l\n");
    write("dovecot.conf", &config(folder));
    let mut dovecot = Command::new("/usr/sbin/dovecot");
    dovecot.arg("-F").arg("-c").arg(folder.join("dovecot.conf")).stdout(Stdio::null());
    let mut dovecot = Dovecot(dovecot.spawn().expect("it is there"));
    wait_until("Dovecot listens", || {
        let ended = dovecot.0.try_wait().expect("it is ours");
        assert!(ended.is_none(), "{}", fs::read_to_string(folder.join("log")).unwrap_or_default());
        folder.join("auth").exists()
    });
    Some(dovecot)
}

#[test]
fn users_of_a_real_dovecot_log_in_and_send() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder()
        .lab(&lab)
        .set("client_networks", "[\"192.0.2.1\"]")
        .set("listen.smtps", "[\"127.0.0.1:0\"]")
        .set("auth.dovecot", "\"dovecot/auth\"")
        .prepare();
    let Some(_dovecot) = start(&server.path("dovecot")) else { return };
    let server = server.run();
    let port = server.address_of("smtps").port();
    let play = |steps: &[&str]| session_with(port, &["--implicit"], steps);
    let offer = "250-AUTH SCRAM-SHA-256 OAUTHBEARER XOAUTH2 PLAIN LOGIN";
    wait_until("all that Dovecot has is offered", || play(&["EHLO c", "QUIT"]).iter().any(|line| line == offer));
    let text = |from: &str| format!("@message:From: {from}\\r\\nSubject: x\\r\\n\\r\\nx");
    for (n, step) in [
        format!("@user:ann@home.example:{PASSWORD}"),
        format!("@login:ann@home.example:{PASSWORD}"),
        format!("@scram:ann@home.example:{PASSWORD}"),
        format!("@bearer:ann@home.example:{KEY}"),
        format!("@xoauth2:ann@home.example:{KEY}"),
    ]
    .iter()
    .enumerate()
    {
        let steps =
            ["EHLO c", step, "MAIL FROM:<ann@home.example>", "RCPT TO:<zoe@one.example>", &text("ann@home.example")];
        let said = play(&steps);
        assert!(codes(&said).ends_with(&["235", "250", "250", "354", "250"]), "{step}: {said:?}");
        lab.wait_copies(n as u64 + 1);
    }
    for (step, code) in [
        ("@user:ann@home.example:wrong", "535"),
        ("@scram:ann@home.example:wrong", "535"),
        ("@bearer:ann@home.example:another key", "535"),
        ("@xoauth2:ann@home.example:another key", "535"),
        ("@user:nobody@home.example:wrong", "535"),
    ] {
        let said = play(&["EHLO c", step]);
        assert_eq!(codes(&said).last().unwrap(), &code, "{step}: {said:?}");
    }
    // What Dovecot calls OK is no login where the user may not log in, or is to do so elsewhere: of the latter it takes
    // any password.
    for (step, reply) in [
        (format!("@user:bob@home.example:{PASSWORD}"), "535 5.7.8"),
        ("@user:eve@home.example:any".into(), "454 4.7.0"),
    ] {
        let said = play(&["EHLO c", &step]);
        assert!(said.last().unwrap().starts_with(reply), "{step}: {said:?}");
    }
    // Whose senders: the address that the user is called by, and what the passdb says beside it.
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let steps = ["EHLO c", &login, "MAIL FROM:<bob@home.example>", "MAIL FROM:<x@lists.home.example>"];
    let said = play(&[&steps[..], &["RCPT TO:<zoe@one.example>", &text("boss@home.example")]].concat());
    assert!(codes(&said).ends_with(&["235", "553", "250", "250", "354", "550"]), "{said:?}");
    // Its limits came with the login, and a lock of ours holds for its users.
    let listed = String::from_utf8(server.operator(&["user", "list"]).stdout).expect("text");
    assert!(listed.contains("ann@home.example  active") && listed.contains("; messages/day 5 of 9\n"), "{listed}");
    assert!(server.operator(&["user", "lock", "ann@home.example"]).status.success());
    wait_until("ann is locked", || play(&["EHLO c", &login]).last().is_some_and(|line| line.starts_with("535 5.7.8")));
    let all = server.log().lines().join("\n") + &fs::read_to_string(server.path("dovecot/log")).unwrap_or_default();
    assert!(!all.contains(PASSWORD) && !all.contains("eyJ"), "{all}");
}
