//! Mail of local users: what `stentor-sendmail` writes into the submission folder and the server reads from it.
//!
//! Promise: the program exits with 0 once the submission is durable, whether or not a server runs, and with a code of
//! sysexits(3) and a line on standard error otherwise. docs/design/submission.md says how, why no user can read, list or
//! change what another has submitted, and what a crash at each step leaves.
//!
//! The library does no I/O and reads no clock. `options` (the command line), `addresses` (lists of them), `lines` (what
//! comes on standard input), `header` (which is read for recipients, and completed), `format` (a file of the folder),
//! `settings` (what the server publishes in the folder), `exit` (codes and words of a refusal).

pub mod addresses;
pub mod exit;
pub mod format;
pub mod header;
pub mod lines;
pub mod options;
pub mod settings;

/// Name of the settings within the folder.
pub const SETTINGS: &str = "settings";
/// The number of messages in the queue, and when that was (milliseconds since the Unix epoch).
pub const WAITING: &str = "waiting";
/// How the names of unfinished and of complete submissions begin.
pub const UNFINISHED: &str = "new-";
pub const COMPLETE: &str = "mail-";
/// The same of one that the server has tried, and tries again later.
pub const DEFERRED: &str = "deferred-";
/// Where the folder is unless [`CONFIGURATION`] says otherwise.
pub const FOLDER: &str = "/var/spool/stentor/submission";
/// The program's own configuration: a line `folder = "PATH"`.
pub const CONFIGURATION: &str = "/etc/stentor/sendmail.conf";
