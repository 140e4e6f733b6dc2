//! Records of the life of mail, in one form whatever the source: our own history, or the log of sendmail, Postfix or
//! Exim.
//!
//! Promise: no files, sockets or clock; bytes or records and `now` in, sums and pictures out. Any line is parsed, or
//! skipped and counted; none causes a panic.

pub mod civil;
pub mod day;
pub mod escape;
pub mod health;
pub mod histogram;
pub mod late;
pub mod log;
pub mod log_limiter;
pub mod mailstat;
pub mod now;
pub mod rates;
pub mod record;
pub mod time;
pub mod tops;
pub mod trace;
