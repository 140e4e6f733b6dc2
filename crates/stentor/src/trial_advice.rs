//! What `stentor doctor` advises about each kind of finding of [`crate::trial`].

pub(super) const KEY: &str = "change it, then `stentor check`";
pub(super) const FOLDER: &str = "make or mend the directory, or change the key; then `stentor check`";
pub(super) const CERTIFICATE: &str = "renew or mend its files: the server reads them again by itself, and `stentor tls show` prints \
                                      what they hold (docs/operate/tls.md)";
pub(super) const ACME: &str = "see that the CA can be reached and reaches this server by these names (docs/operate/tls.md); it is \
                               tried again by itself";
pub(super) const MODE: &str = "run that command, then `stentor check`";
pub(super) const LOGINS: &str = "mend the file or its owner and mode, or change the key; then `stentor check`";
pub(super) const SUBSCRIBERS: &str = "mend the file; the next post reads it";
pub(super) const SOURCE: &str = "give the address to this machine, or change the key; then `stentor check`";
pub(super) const PORT: &str = "change the key, or stop the other program (`ss -ltnp` names it); then `stentor check`";
pub(super) const NAME_SERVER: &str = "see that it runs and can be reached, or name others in [dns] servers";
pub(super) const DANE: &str = "let a name server that validates answer on loopback, or ask for less in [delivery] tls \
                               (docs/operate/tls-outgoing.md)";
pub(super) const DNS_LIST: &str = "see whether the list still exists and answers you, or take it out of the rules \
                                   (docs/operate/untrusted-clients.md)";
pub(super) const MILTER: &str = "start the milter, or mend its address; the server connects again by itself";
pub(super) const POLICY_SERVICE: &str = "start the service, or mend its address; the server connects again by itself";
pub(super) const TABLE: &str = "mend the table, then `stentor check`; the server reads it again by itself";
pub(super) const SOCKET: &str = "start what listens there, or change the key; waiting mail is tried again by itself";
