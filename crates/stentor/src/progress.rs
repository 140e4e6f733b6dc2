//! Shows the progress of an action on many recipients on a terminal's standard error.
//!
//! Promise: nothing is printed if standard error is not a terminal, for fewer than [`RECIPIENTS_MIN`] recipients, or
//! for dry runs. The line is updated in place and removed at the end. Progress uses its own connection; if the server
//! does not answer, the line stays unchanged.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stentor_control::format::grouped;
use stentor_control::{Client, ControlReply, Request, Verb};

const RECIPIENTS_MIN: u64 = 500;
/// Pause between status requests.
const PAUSE: Duration = Duration::from_millis(250);
/// Returns to column 1 and clears the line.
const CLEAR: &str = "\r\x1b[K";

pub(crate) struct Progress {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Counts what the request will affect and starts showing progress, if it should be shown.
    pub fn start(socket: &Path, request: &Request) -> Option<Progress> {
        let Request::Act { verb, selection, dry_run: false, .. } = request else { return None };
        // Actions on the quarantine finish at once.
        let is_of_queue = !matches!(verb, Verb::QuarantineRelease | Verb::QuarantineDelete | Verb::Resend);
        if !is_of_queue || !std::io::stderr().is_terminal() {
            return None;
        }
        let dry = Request::Act { verb: *verb, selection: selection.clone(), dry_run: true, reason: None };
        let mut client = Client::connect(socket).ok()?;
        client.be_patient().ok()?;
        let Ok(ControlReply::Counted(counted)) = client.ask(&dry) else { return None };
        let total = counted.count.unwrap_or(0) + counted.in_flight.unwrap_or(0);
        if total < RECIPIENTS_MIN {
            return None;
        }
        let (verb, is_over) = (*verb, Arc::new(AtomicBool::new(false)));
        show(&line(verb, 0, total));
        let over = is_over.clone();
        let thread = thread::spawn(move || follow(&mut client, verb, total, &over));
        Some(Progress { is_over, thread: Some(thread) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there affects only the display.
            let _ = thread.join();
        }
        show(CLEAR);
    }
}

fn follow(client: &mut Client, verb: Verb, total: u64, is_over: &AtomicBool) {
    let own = format!(" pid={}", std::process::id());
    while !is_over.load(Ordering::Relaxed) {
        thread::park_timeout(PAUSE);
        let Ok(ControlReply::Status(status)) = client.ask(&Request::Status) else { return };
        // Another operator's action may be running before this one.
        if let Some(action) = status.action.filter(|action| action.who.ends_with(&own))
            && !is_over.load(Ordering::Relaxed)
        {
            show(&line(verb, action.recipients, total));
        }
    }
}

/// The queue may have grown since the count.
fn line(verb: Verb, done: u64, total: u64) -> String {
    let total = total.max(done).max(1);
    let name = verb.name().replace('_', " ");
    format!("{CLEAR}{name}: {} of {} recipients ({} %)", grouped(done), grouped(total), done * 100 / total)
}

fn show(text: &str) {
    let mut out = std::io::stderr();
    // A closed stderr is not an error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        assert_eq!(line(Verb::Remove, 3_000, 12_000), format!("{CLEAR}remove: 3,000 of 12,000 recipients (25 %)"));
        assert_eq!(
            line(Verb::QuarantineDelete, 700, 500),
            format!("{CLEAR}quarantine delete: 700 of 700 recipients (100 %)")
        );
        assert_eq!(line(Verb::Hold, 0, 0), format!("{CLEAR}hold: 0 of 1 recipients (0 %)"));
    }
}
