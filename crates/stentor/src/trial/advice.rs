//! Advice of `stentor doctor` for each kind of finding of [`crate::trial`], and the matching conditions of the server's
//! health.

use stentor_config::Diagnostic;

/// A finding, and what to do about it.
pub(crate) struct AdvisedFinding {
    pub finding: Diagnostic,
    pub advice: &'static str,
}

pub(crate) const KEY: &str = "change it, then run `stentor check`";
pub(crate) const FOLDER: &str = "create or correct the directory, or change the key; then run `stentor check`";
pub(crate) const CERTIFICATE: &str = "renew or correct its files; the server reads them again automatically, `stentor \
    tls show` prints their contents (docs/operate/tls.md)";
pub(crate) const ACME: &str = "check that this server reaches the CA, and the CA reaches this server by these names \
    (docs/operate/tls.md); the server retries automatically";
pub(crate) const MODE: &str = "run that command, then `stentor check`";
pub(crate) const DKIM_KEY: &str = "correct it as the message says, then run `stentor check` and `stentor reload` \
    (docs/operate/dkim.md)";
pub(crate) const LOGINS: &str = "correct the file or its owner and mode, or change the key; then run `stentor check`";
pub(crate) const DKIM: &str = "correct the key file or its owner, or change the key; then run `stentor check` and \
    `stentor reload` (docs/operate/dkim.md)";
pub(crate) const SUBSCRIBERS: &str = "correct the file; the next post reads it";
pub(crate) const SOURCE: &str = "add the address to this machine, or change the key; then run `stentor check`";
pub(crate) const PORT: &str = "change the key, or stop the other program (`ss -ltnp` shows it); then run `stentor \
    check`";
pub(crate) const NAME_SERVER: &str = "check that it runs and can be reached, or name others in [dns] servers";
pub(crate) const DANE: &str = "run a validating name server on loopback, or require less in [delivery] tls \
    (docs/operate/tls-outgoing.md)";
pub(crate) const DNS_LIST: &str = "check that the list still exists and answers your queries, or remove it from the \
    rules (docs/operate/untrusted-clients.md)";
pub(crate) const MILTER: &str = "start the milter, or correct its address; the server reconnects automatically";
pub(crate) const POLICY_SERVICE: &str = "start the service, or correct its address; the server reconnects \
    automatically";
pub(crate) const TABLE: &str = "correct the table, then run `stentor check`; the server reads it again automatically";
pub(crate) const SOCKET: &str = "start the program that listens there, or change the key; waiting mail is retried \
    automatically";

/// Names of conditions that a finding with this advice may correspond to.
pub(crate) fn conditions(advice: &str) -> &'static [&'static str] {
    match advice {
        CERTIFICATE => &["certificate", "certificate_ends", "certificate_file"],
        LOGINS => &["users_file", "dovecot"],
        NAME_SERVER => &["dns"],
        MILTER => &["milter"],
        POLICY_SERVICE => &["policy_service"],
        TABLE => &["table_file", "table_service"],
        SUBSCRIBERS => &["subscribers_file"],
        FOLDER => &["submission_folder", "log"],
        _ => &[],
    }
}
