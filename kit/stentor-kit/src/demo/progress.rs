//! The progress line: how many have their copy. On a terminal one line that changes, else a line at intervals.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use stentor_lab::Lab;

const BAR_COLUMNS: usize = 40;
const PAUSE: Duration = Duration::from_millis(100);
/// Without a terminal.
const LINE_PAUSE: Duration = Duration::from_millis(500);
/// Once all have theirs: time in which a second copy would show up.
const AFTER: Duration = Duration::from_millis(500);

/// Returns when all reachable subscribers have a copy, or patience is over.
pub async fn watch(lab: &Lab, id: &str, reachable: u64, subscribers: u64, dot_us: u64, patience: Duration) {
    let is_terminal = std::io::stdout().is_terminal();
    let end = Instant::now() + patience;
    let mut said = Instant::now();
    loop {
        let done = lab.recorder().recipients_of(id);
        let is_over = done >= reachable || Instant::now() >= end;
        if is_terminal || is_over || said.elapsed() >= LINE_PAUSE {
            said = Instant::now();
            let seconds = lab.recorder().now_us().saturating_sub(dot_us) as f64 / 1e6;
            say(is_terminal, &line(done, reachable, subscribers, seconds, lab.recorder().stats().open));
        }
        if is_over {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    if is_terminal {
        println!();
    }
    tokio::time::sleep(AFTER).await;
}

fn line(done: u64, reachable: u64, subscribers: u64, seconds: f64, open: u64) -> String {
    let share = if reachable == 0 { 1.0 } else { (done as f64 / reachable as f64).min(1.0) };
    let filled = (share * BAR_COLUMNS as f64) as usize;
    format!(
        "{seconds:6.1} s  [{}{}] {done} of {reachable} reachable ({subscribers} in all), {open} connections",
        "#".repeat(filled),
        ".".repeat(BAR_COLUMNS - filled)
    )
}

fn say(is_terminal: bool, line: &str) {
    let mut out = std::io::stdout().lock();
    // Somebody who does not look any more is no reason to stop.
    let _ = if is_terminal { write!(out, "\r{line}\x1b[K") } else { writeln!(out, "{line}") };
    let _ = out.flush();
}
