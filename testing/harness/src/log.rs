//! The server's standard error, line by line, to wait for.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::PATIENCE;

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

/// All lines of one run of the server.
#[derive(Clone, Default)]
pub struct Log {
    shared: Arc<(Mutex<Lines>, Condvar)>,
}

impl Log {
    /// Reads a stream to its end in a thread.
    pub fn follow(stream: impl Read + Send + 'static) -> Log {
        let log = Log::default();
        let writer = log.clone();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(stream.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                writer.lock().lines.push(text);
                writer.shared.1.notify_all();
            }
            writer.lock().ended = true;
            writer.shared.1.notify_all();
        });
        log
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.shared.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// Lines so far that hold all of `parts`.
    pub fn matching(&self, parts: &[&str]) -> Vec<String> {
        let lines = self.lock();
        lines.lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
    }

    /// All lines of a run that has ended.
    pub fn whole(&self) -> Vec<String> {
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut lines = self.lock();
        while !lines.ended {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            assert!(!left.is_zero(), "the server's standard error stays open");
            lines = self.shared.1.wait_timeout(lines, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        lines.lines.clone()
    }

    /// Waits for a line that holds all of `parts`; `None` if the server ended without it.
    pub fn wait(&self, parts: &[&str]) -> Option<String> {
        self.wait_nth(parts, 1)
    }

    /// Waits for the `nth` (from 1) such line.
    pub fn wait_nth(&self, parts: &[&str], nth: usize) -> Option<String> {
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut lines = self.lock();
        loop {
            let mut found = lines.lines.iter().filter(|line| parts.iter().all(|part| line.contains(part)));
            if let Some(line) = found.nth(nth - 1) {
                return Some(line.clone());
            }
            if lines.ended {
                return None;
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            assert!(!left.is_zero(), "no line with {parts:?} in the log:\n{}", lines.lines.join("\n"));
            let waited = self.shared.1.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}
