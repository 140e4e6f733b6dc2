//! The logs: accepted mail and its outcomes, line by line, with sendmail's fields.
//!
//! Promise: logging only formats into memory (a few microseconds) and never waits for a disk, a daemon or a terminal;
//! lines are whole, in order per thread, and written within some 20 ms; everything from the network is escaped
//! ([`stentor_records::escape`]). If the destination cannot keep up, or refuses, lines are dropped and counted, and the
//! log itself reports how many as soon as it can be written again. The journal, not these logs, is the authoritative
//! record of mail.
//!
//! [`Logs`] sends each record to the log of its purpose, list or class; an [`AttemptLog`] is one destination with its
//! thread. The format is in `docs/operate/attempt-log.md`; states and failures of the writer thread in [`writer`].

pub mod limits;
mod line;
mod logs;
mod lost;
pub mod settings;
mod sink;
mod socket;
mod writer;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use parking_lot::Mutex;
use stentor_records::record::{Accepted, Ms, Record};

pub use logs::Logs;

use crate::settings::{LogFormat, LogTarget, Rotation};
use line::{Head, Ident};
use sink::Sink;
use writer::Shared;

/// Bytes of lines waiting for the writer; beyond this, lines are dropped and counted.
pub const BUFFER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Destination and format of a log.
#[derive(Clone, Debug)]
pub struct Options {
    pub target: LogTarget,
    pub rotation: Rotation,
    /// Whether syslog lines use the format of RFC 5424.
    pub rfc5424: bool,
    pub format: LogFormat,
    pub hostname: String,
    /// Whether each line is written at once, instead of being gathered with others for 20 ms.
    pub by_line: bool,
    /// Size of the buffer: [`BUFFER_BYTES_MAX`], unless a test wants less.
    pub buffer_bytes_max: usize,
}

/// The log; cheap to clone. The writer thread ends, with everything written, when the last clone is dropped.
#[derive(Clone)]
pub struct AttemptLog(Option<Arc<Handle>>);

struct Handle {
    shared: Arc<Shared>,
    ident: Arc<Ident>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

thread_local! {
    /// Buffers for the lines being made, and for the common end of a record's lines.
    static SCRATCH: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl AttemptLog {
    /// Opens the destination and starts the writer.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or the thread cannot be started.
    pub fn start(options: &Options) -> io::Result<AttemptLog> {
        let Some(sink) = Sink::open(&options.target, options.rotation, clock())? else { return Ok(AttemptLog::off()) };
        let shared = Shared::new(options.buffer_bytes_max, options.by_line);
        let head = Head::of(&options.target, options.rfc5424);
        let ident = Ident::new(options.format, head, &options.hostname, std::process::id());
        let ident = Arc::new(ident);
        let (s, i) = (shared.clone(), ident.clone());
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || s.run(sink, &i, &clock))?;
        Ok(AttemptLog(Some(Arc::new(Handle { shared, ident, thread: Mutex::new(Some(thread)) }))))
    }

    /// A log that keeps nothing.
    pub fn off() -> AttemptLog {
        AttemptLog(None)
    }

    /// Whether lines are wanted; if not, the caller need not gather their fields.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Logs the record's lines.
    pub fn record(&self, record: &Record<'_>) {
        self.with(|ident, out, tail| ident.record(out, tail, record));
    }

    /// Logs the policy rule that an acceptance matched.
    fn policy(&self, accepted: &Accepted<'_>) {
        self.with(|ident, out, _| ident.policy(out, accepted));
    }

    /// Reopens the file by its name (`SIGHUP`, after a rotation). The writer thread does this at once.
    pub fn reopen(&self) {
        if let Some(handle) = &self.0 {
            handle.shared.reopen();
        }
    }

    /// Blocks until all lines so far have been passed to the operating system. Not for hot paths.
    pub fn flush(&self) {
        if let Some(handle) = &self.0 {
            handle.shared.flush();
        }
    }

    /// Number of lines lost since the start.
    pub fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |handle| handle.shared.dropped())
    }

    /// Why lines do not reach the destination; `None`: they do.
    pub fn trouble(&self) -> Option<String> {
        self.0.as_ref().and_then(|handle| handle.shared.trouble())
    }

    fn with(&self, format: impl FnOnce(&Ident, &mut Vec<u8>, &mut Vec<u8>) -> u64) {
        let Some(handle) = &self.0 else { return };
        SCRATCH.with_borrow_mut(|(out, tail)| {
            out.clear();
            let lines = format(&handle.ident, out, tail);
            handle.shared.append(out, lines);
        });
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.lock().take() {
            // If the thread panicked, it has reported that itself.
            let _ = thread.join();
        }
    }
}

/// The writer's own clock, for its own lines.
fn clock() -> Ms {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as Ms)
}
