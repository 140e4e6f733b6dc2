//! Rows: time, deliveries per hour, delivered in the interval, a bar. A server problem is printed on its own line when
//! it begins, changes or ends, and again every [`AGAIN_ROWS`] rows for late readers.

use std::io::{self, Write};
use std::path::Path;

use stentor_control::{ControlError, Snapshot, WatchOptions};
use stentor_core::live::health::headline;
use stentor_logfiles::zone;
use stentor_records::civil::Zone;
use stentor_records::escape::{printable, without_traps};
use stentor_records::rates::{Interval, Scale, row};

use super::feed;

/// Rows after which a lasting problem is printed again.
const AGAIN_ROWS: u32 = 20;

/// Maximum length of a headline, which quotes text from others.
const LINE_BYTES_MAX: usize = 1_000;

/// The headline printed above rows.
#[derive(Default)]
struct Headline {
    last: Option<String>,
    rows: u32,
}

impl Headline {
    /// The lines before this snapshot's row.
    fn before(&mut self, snapshot: &Snapshot) -> Option<String> {
        let now = headline(&snapshot.health);
        self.rows += 1;
        let is_due = now.is_some() && self.rows > AGAIN_ROWS;
        if now == self.last && !is_due {
            return None;
        }
        self.rows = 1;
        self.last.clone_from(&now);
        Some(now.map_or_else(|| "# problem resolved".to_owned(), |now| format!("# {now}")))
    }
}

pub fn run(socket: &Path, options: WatchOptions, is_json: bool) -> Result<(), ControlError> {
    let zone = zone::local();
    let mut scale = Scale::default();
    let mut failed = None;
    let (mut is_first, mut above) = (true, Headline::default());
    let see = |snapshot: Box<Snapshot>| {
        let printed = if is_json {
            json(&snapshot)
        } else {
            print(&snapshot, &zone, &mut scale, std::mem::take(&mut is_first), above.before(&snapshot))
        };
        let goes_on = printed.is_ok();
        // A closed pipe is not an error.
        failed = printed.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        goes_on
    };
    feed::follow(socket, options, see, |why| eprintln!("# {why}; retrying"))?;
    failed.map_or(Ok(()), |error| Err(ControlError::Output(error)))
}

fn json(snapshot: &Snapshot) -> io::Result<()> {
    // A plain struct with string keys: serialising it cannot fail.
    writeln!(io::stdout(), "{}", without_traps(&serde_json::to_string(snapshot).unwrap_or_default()))
}

fn print(snapshot: &Snapshot, zone: &Zone, scale: &mut Scale, is_first: bool, above: Option<String>) -> io::Result<()> {
    let interval = Interval {
        at: snapshot.now,
        interval_ms: snapshot.interval_ms,
        delivered: snapshot.since.delivered,
        failed: snapshot.since.failed,
    };
    let mut out = io::stdout().lock();
    if scale.fit(&interval) || is_first {
        writeln!(out, "{}", scale.legend(&zone.label(snapshot.now)))?;
    }
    if let Some(above) = above {
        writeln!(out, "{}", printable(&above, LINE_BYTES_MAX))?;
    }
    let offset_s = i64::from(zone.offset_s((snapshot.now / 1000).cast_signed()));
    writeln!(out, "{}", row(&interval, scale, offset_s))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use stentor_records::health::{Condition, Severity};

    use super::*;

    #[test]
    fn a_problem_is_named_when_it_begins_changes_lasts_and_ends() {
        let snapshot = |problems: &[&str]| {
            let condition = |what: &&str| Condition { what: (*what).to_owned(), ..Condition::default() };
            Snapshot { health: problems.iter().map(condition).collect(), ..Snapshot::default() }
        };
        let mut above = Headline::default();
        assert_eq!(above.before(&snapshot(&[])), None);
        assert_eq!(above.before(&snapshot(&["DNS is down"])).as_deref(), Some("# PROBLEM: DNS is down"));
        assert_eq!(above.before(&snapshot(&["DNS is down"])), None);
        let two = above.before(&snapshot(&["the disk is full", "DNS is down"]));
        assert_eq!(two.as_deref(), Some("# PROBLEM: the disk is full (and 1 more)"));
        let rows = (0..45).filter(|_| above.before(&snapshot(&["the disk is full", "DNS is down"])).is_some());
        assert_eq!(rows.count(), 2, "every twenty rows");
        assert_eq!(above.before(&snapshot(&[])).as_deref(), Some("# problem resolved"));
        let warning = Condition { severity: Severity::Warning, ..Condition::default() };
        assert_eq!(above.before(&Snapshot { health: vec![warning], ..Snapshot::default() }), None);
    }
}
