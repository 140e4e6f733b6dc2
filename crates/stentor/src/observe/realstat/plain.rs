//! Rows: time, deliveries per hour, delivered in the interval, a bar.

use std::io::{self, Write};
use std::path::Path;

use stentor_control::{ClientError, Snapshot, WatchOptions};
use stentor_stats::civil::Zone;
use stentor_stats::rates::{Interval, Scale, row};

use super::feed;
use stentor_logfiles::zone;

pub fn run(socket: &Path, options: WatchOptions, is_json: bool) -> Result<(), ClientError> {
    let zone = zone::local();
    let mut scale = Scale::default();
    let mut failed = None;
    let mut is_first = true;
    let see = |snapshot: Box<Snapshot>| {
        let printed =
            if is_json { json(&snapshot) } else { print(&snapshot, &zone, &mut scale, std::mem::take(&mut is_first)) };
        let goes_on = printed.is_ok();
        // Whoever reads no more has seen enough.
        failed = printed.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        goes_on
    };
    feed::follow(socket, options, see, |why| eprintln!("# {why}; trying again"))?;
    failed.map_or(Ok(()), |error| Err(ClientError::Output(error)))
}

fn json(snapshot: &Snapshot) -> io::Result<()> {
    // A plain struct with string keys: serialising it cannot fail.
    writeln!(io::stdout(), "{}", serde_json::to_string(snapshot).unwrap_or_default())
}

fn print(snapshot: &Snapshot, zone: &Zone, scale: &mut Scale, is_first: bool) -> io::Result<()> {
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
    let offset_s = i64::from(zone.offset_s((snapshot.now / 1000).cast_signed()));
    writeln!(out, "{}", row(&interval, scale, offset_s))?;
    out.flush()
}
