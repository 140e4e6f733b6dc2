//! TLS with Postfix as the receiver: what it logs of our sessions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stentor_harness::{message, skipped, wait_until};

use crate::kit::{SENDER, bare, drained};

/// A Postfix of its own, that takes all mail by TLS alone and throws it away.
struct Postfix {
    folder: tempfile::TempDir,
    port: u16,
}

const SERVICES: &str = "\
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
proxymap unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
";

impl Postfix {
    /// `None` if there is no Postfix here, or we are not root.
    fn start() -> Option<Postfix> {
        if !Path::new("/usr/sbin/postfix").exists() || !is_root() {
            skipped("Postfix, and root to start it, are missing");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = crate::kit::closed_port();
        let path = |name: &str| folder.path().join(name);
        let (chain, key) = stentor_lab::tls::certificate_pem("mx.postfix.example");
        fs::write(path("key.pem"), key + &chain).expect("the key is written");
        for name in ["queue", "data"] {
            fs::create_dir(path(name)).expect("a folder");
        }
        let place = folder.path().display();
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {place}/queue\ndata_directory = {place}/data\n\
             maillog_file = {place}/log\nmaillog_file_prefixes = {place}\nmyhostname = mx.postfix.example\n\
             inet_interfaces = 127.0.0.1\ninet_protocols = ipv4\nmynetworks = 127.0.0.0/8\nmydestination =\n\
             default_transport = discard\nrelay_transport = discard\nsmtpd_tls_chain_files = {place}/key.pem\n\
             smtpd_tls_security_level = encrypt\nsmtpd_tls_loglevel = 1\nsmtpd_peername_lookup = no\n\
             smtpd_recipient_restrictions = permit\nalias_maps =\n"
        );
        fs::write(path("main.cf"), main).expect("main.cf is written");
        fs::write(path("master.cf"), format!("127.0.0.1:{port} inet n - n - - smtpd\n{SERVICES}"))
            .expect("master.cf is written");
        let owned = Command::new("chown").args(["-R", "postfix"]).arg(path("data")).status();
        assert!(owned.is_ok_and(|status| status.success()), "the data folder is Postfix's");
        // Its programs go down as another user.
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("readable");
        let postfix = Postfix { folder, port };
        postfix.control("start");
        Some(postfix)
    }

    fn control(&self, verb: &str) {
        let output = Command::new("/usr/sbin/postfix").arg("-c").arg(self.folder.path()).arg(verb).output();
        let output = output.expect("postfix can be run");
        assert!(output.status.success(), "postfix {verb}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/postfix").arg("-c").arg(self.folder.path()).arg("stop").output();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// By TLS 1.3, proven by the CA for the name that the policy has.
#[test]
fn postfix_takes_our_mail_by_tls() {
    let Some(postfix) = Postfix::start() else { return };
    let server = bare()
        .fast_retry()
        .route("postfix.example", &[&format!("127.0.0.1:{}", postfix.port)])
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.idle_ms", "0")
        .set("tls_policy", "[{ domain = 'postfix.example', require = 'verify', names = ['mx.postfix.example'] }]")
        .start();
    for n in 0..2 {
        server.smtp().send(SENDER, &["ann@postfix.example"], &message(&format!("{n}@test"), "x")).expect(250);
        let fates = drained(&server);
        assert_eq!((fates.delivered, fates.bounced), (n + 1, 0), "{}", postfix.log());
        // Or the second message may still find the session of the first.
        let ended = || postfix.log().matches("disconnect from").count();
        wait_until("Postfix has logged the session's end", || ended() == n as usize + 1);
    }
    let line = server.wait_log(&["stat=Sent"]);
    assert!(line.contains("tls=TLSv1.3:") && line.contains(":verified"), "{line}");
    let log = postfix.log();
    assert_eq!(log.matches("TLS connection established from").count(), 2, "{log}");
    assert!(log.contains("Anonymous TLS connection established from") && log.contains("TLSv1.3 with cipher"), "{log}");
    let deferred = server.log().matching(&["stat=Deferred"]);
    assert!(deferred.is_empty(), "{deferred:?}");
}
