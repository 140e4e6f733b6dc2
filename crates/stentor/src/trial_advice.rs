//! Advice of `stentor doctor` for each kind of finding of [`crate::trial`], and the matching conditions of the server's
//! health.

use stentor_config::Diagnostic;

/// A finding, and what to do about it.
pub(crate) struct AdvisedFinding {
    pub finding: Diagnostic,
    pub advice: &'static str,
}

pub(crate) const KEY: &str = "change it, then `stentor check`";
pub(crate) const FOLDER: &str = "make or mend the directory, or change the key; then `stentor check`";
pub(crate) const CERTIFICATE: &str = "renew or mend its files: the server reads them again by itself, and `stentor tls show` prints \
                                      what they hold (docs/operate/tls.md)";
pub(crate) const ACME: &str = "see that the CA can be reached and reaches this server by these names (docs/operate/tls.md); it is \
                               tried again by itself";
pub(crate) const MODE: &str = "run that command, then `stentor check`";
pub(crate) const LOGINS: &str = "mend the file or its owner and mode, or change the key; then `stentor check`";
pub(crate) const SUBSCRIBERS: &str = "mend the file; the next post reads it";
pub(crate) const SOURCE: &str = "give the address to this machine, or change the key; then `stentor check`";
pub(crate) const PORT: &str = "change the key, or stop the other program (`ss -ltnp` names it); then `stentor check`";
pub(crate) const NAME_SERVER: &str = "see that it runs and can be reached, or name others in [dns] servers";
pub(crate) const DANE: &str = "let a name server that validates answer on loopback, or ask for less in [delivery] tls \
                               (docs/operate/tls-outgoing.md)";
pub(crate) const DNS_LIST: &str = "see whether the list still exists and answers you, or take it out of the rules \
                                   (docs/operate/untrusted-clients.md)";
pub(crate) const MILTER: &str = "start the milter, or mend its address; the server connects again by itself";
pub(crate) const POLICY_SERVICE: &str = "start the service, or mend its address; the server connects again by itself";
pub(crate) const TABLE: &str = "mend the table, then `stentor check`; the server reads it again by itself";
pub(crate) const SOCKET: &str = "start what listens there, or change the key; waiting mail is tried again by itself";

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
