//! Progress of long work, on standard error: one line that is rewritten on a terminal, a line every few seconds
//! elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const TERMINAL_EVERY: Duration = Duration::from_millis(200);
const FILE_EVERY: Duration = Duration::from_secs(10);

/// Says how far it is. Failing to write is no failure of the measurement.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    terminal: bool,
    last: Option<Instant>,
    shown: bool,
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        Progress { quiet, terminal: std::io::stderr().is_terminal(), last: None, shown: false }
    }

    /// Says nothing.
    pub fn quiet() -> Progress {
        Progress { quiet: true, terminal: false, last: None, shown: false }
    }

    /// `what` is a short line without line ends; it is made only if it is shown. Cheap enough for a call per operation
    /// that takes microseconds: it reads the clock.
    pub fn step(&mut self, what: impl FnOnce() -> String) {
        if self.quiet {
            return;
        }
        let every = if self.terminal { TERMINAL_EVERY } else { FILE_EVERY };
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < every) {
            return;
        }
        self.last = Some(now);
        self.say(&what());
    }

    /// A new part begins: said at once.
    pub fn part(&mut self, what: &str) {
        if !self.quiet {
            self.last = Some(Instant::now());
            self.say(what);
        }
    }

    fn say(&mut self, what: &str) {
        let mut err = std::io::stderr().lock();
        let _ = if self.terminal {
            self.shown = true;
            write!(err, "\r\x1b[K{what}").and_then(|()| err.flush())
        } else {
            writeln!(err, "{what}")
        };
    }

    /// Takes the line away again.
    pub fn clear(&mut self) {
        if self.shown {
            self.shown = false;
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
