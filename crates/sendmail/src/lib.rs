//! Mail of local users: the files that `stentor-sendmail` writes to the submission folder and the server reads from
//! it.
//!
//! Promise: the program exits with 0 once the submission is durable, whether or not a server runs, and with a code of
//! sysexits(3) and a line on standard error otherwise. docs/design/submission.md explains how, why no user can read,
//! list or change the submissions of others, and the effect of a crash at each step.
//!
//! The library does no I/O and reads no clock. Modules: `options` (the command line), `addresses` (lists of
//! addresses), `lines` (standard input), `header` (recipients and missing fields), `format` (files in the folder),
//! `settings` (published by the server in the folder), `exit` (exit codes and messages).

pub mod addresses;
pub mod exit;
pub mod format;
pub mod header;
pub mod lines;
pub mod options;
pub mod settings;

/// Name of the settings file in the folder.
pub const SETTINGS: &str = "settings";
/// File with the number of messages in the queue, and its time (milliseconds since the Unix epoch).
pub const WAITING: &str = "waiting";
/// Name prefixes of unfinished and of complete submissions.
pub const UNFINISHED: &str = "new-";
pub const COMPLETE: &str = "mail-";
/// Name prefix of submissions that the server has tried and will retry.
pub const DEFERRED: &str = "deferred-";
/// Default path of the folder, unless [`CONFIGURATION`] sets another.
pub const FOLDER: &str = "/var/spool/stentor/submission";
/// The program's own configuration: a line `folder = "PATH"`.
pub const CONFIGURATION: &str = "/etc/stentor/sendmail.conf";
