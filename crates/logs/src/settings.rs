//! Settings of `[log]`: targets, format, rotation.

use std::net::SocketAddr;
use std::path::PathBuf;

/// When a log file is rotated, and how many old files are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// Size at which the file is rotated; 0: any size.
    pub bytes_max: u64,
    /// Age at which the file is rotated; 0: any age.
    pub age_ms_max: u64,
    /// Rotated files kept, as `.1` (newest), `.2` and so on.
    pub keep: u32,
}

impl Rotation {
    pub const NEVER: Rotation = Rotation { bytes_max: 0, age_ms_max: 0, keep: 0 };
}

/// Address of a syslog daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyslogTo {
    Unix(PathBuf),
    Udp(SocketAddr),
}

/// Destination of log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    Stderr,
    Stdout,
    Off,
    /// A file, appended to, created with mode 0640 and rotated as [`Rotation`] says.
    File(PathBuf),
    Syslog(SyslogTo),
    /// The socket of the systemd journal.
    Journald(PathBuf),
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `Nov 21 10:54:25 host stentor[123]: QUEUEID: to=<a@b>, ...`
    Sendmail,
    /// One JSON object a line, with the same fields and times in milliseconds.
    Json,
}

/// Verbosity of the server's own messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Settings of `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub attempts: LogTarget,
    /// Defaults to `attempts`, as do the targets below.
    pub deliveries: Option<LogTarget>,
    pub acceptances: Option<LogTarget>,
    pub refusals: Option<LogTarget>,
    pub policy: Option<LogTarget>,
    pub audit: Option<LogTarget>,
    /// Overrides the target above for acceptances and deliveries of this class; there is one for list posts, too.
    pub ordinary: Option<LogTarget>,
    pub bulk: Option<LogTarget>,
    pub lists: Vec<(String, LogTarget)>,
    pub format: LogFormat,
    pub level: LogLevel,
    pub by_line: bool,
    pub rotation: Rotation,
    /// Syslog lines follow RFC 5424, not RFC 3164.
    pub rfc5424: bool,
}
