//! Web servers over HTTPS that others would have: of MTA-STS policies, of those who want reports on TLS, and token
//! endpoints.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const SCRIPT: &str = include_str!("../scripts/policy_server.py");

/// Web servers, on one port.
pub struct Web {
    pub folder: tempfile::TempDir,
    child: Child,
    pub port: u16,
}

impl Web {
    pub fn start() -> Web {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let script = folder.path().join("policy_server.py");
        fs::write(&script, SCRIPT).expect("the script is written");
        let mut child = Command::new("python3")
            .arg(&script)
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints its port");
        let port = line.trim().parse().expect("a port");
        Web { folder, child, port }
    }

    /// A policy, and a good certificate for its host.
    pub fn publish(&self, domain: &str, policy: &str) {
        self.certify(domain, &format!("mta-sts.{domain}"));
        self.put(domain, "policy", policy);
    }

    pub fn certify(&self, domain: &str, name: &str) {
        self.certify_host(&format!("mta-sts.{domain}"), name);
    }

    pub fn put(&self, domain: &str, name: &str, text: &str) {
        self.put_host(&format!("mta-sts.{domain}"), name, text);
    }

    /// A host that takes POSTs, and answers them with these statuses, the last one for ever.
    pub fn take_posts(&self, host: &str, answers: &str) {
        self.certify_host(host, host);
        self.put_host(host, "answers", answers);
    }

    /// A token endpoint: a line of JSON for each answer, the last one for ever.
    pub fn issue_tokens(&self, host: &str, answers: &str) {
        self.certify_host(host, host);
        self.put_host(host, "tokens", answers);
    }

    /// From now on a host shows a certificate for this name.
    pub fn certify_as(&self, host: &str, name: &str) {
        self.certify_host(host, name);
    }

    fn certify_host(&self, host: &str, name: &str) {
        let (chain, key) = stentor_lab::tls::certificate_pem(name);
        self.put_host(host, "chain.pem", &chain);
        self.put_host(host, "key.pem", &key);
    }

    fn put_host(&self, host: &str, name: &str, text: &str) {
        let folder = self.folder.path().join(host);
        fs::create_dir_all(&folder).expect("the folder is made");
        fs::write(folder.join(name), text).expect("the file is written");
    }

    /// What was posted to a host.
    pub fn posts(&self, host: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join(host).join("posts")).unwrap_or_default();
        // One that is being written is not there yet.
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line.strip_suffix('\n')?).ok()).collect()
    }

    /// What a domain's host was asked for, a line each.
    pub fn requests(&self, domain: &str) -> Vec<String> {
        let path = self.folder.path().join(format!("mta-sts.{domain}")).join("requests");
        fs::read_to_string(path).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop();
    }
}
