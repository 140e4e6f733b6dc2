//! Measures commits per second on a real directory, in new segments and in recycled ones.
//!
//! `cargo run --release -p stentor-journal --example commit_rate -- DIRECTORY [RECORD_BYTES [COMMITS]]`
//!
//! "growing" prepares every segment within the run (pool empty); "recycled" writes the same data again into segments
//! that a checkpoint has freed.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use stentor_journal::{Batch, CheckpointStep, Journal, Options, RealDisk};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = arguments.first().ok_or("usage: commit_rate DIRECTORY [RECORD_BYTES [COMMITS]]")?;
    let record_bytes: usize = arguments.get(1).map_or(Ok(4000), |text| text.parse())?;
    let commits: u64 = arguments.get(2).map_or(Ok(10_000), |text| text.parse())?;
    let options = Options {
        pool_ready_max: 1024,
        spare_segments: 2048,
        checkpoint_bytes_min: u64::MAX / 4,
        ..Options::default()
    };
    let disk = Arc::new(RealDisk::open(Path::new(directory))?);
    let (mut journal, _) = Journal::open(disk, options, &mut |_| Ok(()))?;
    for name in ["growing", "recycled", "recycled"] {
        run(&mut journal, name, record_bytes, commits)?;
        checkpoint(&mut journal)?;
    }
    Ok(())
}

fn run(journal: &mut Journal, name: &str, record_bytes: usize, commits: u64) -> Result<(), Box<dyn Error>> {
    let payload = vec![b'x'; record_bytes];
    let mut batch = Batch::new();
    let before = journal.statistics();
    let start = Instant::now();
    for number in 0..commits {
        let id = journal.next_content_id();
        batch.content(id, true, &payload);
        batch.drop_content(id);
        journal.commit(&mut batch, number)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = journal.statistics();
    println!(
        "{name}: {:.0} commits/s of {record_bytes} bytes; {} syncs; {} bytes written, {} zeros prepared; {:.2} written per byte",
        commits as f64 / seconds,
        after.syncs - before.syncs,
        after.bytes_written - before.bytes_written,
        after.bytes_prepared - before.bytes_prepared,
        (after.bytes_written - before.bytes_written) as f64 / (commits as f64 * record_bytes as f64),
    );
    Ok(())
}

fn checkpoint(journal: &mut Journal) -> Result<(), Box<dyn Error>> {
    let mut batch = Batch::new();
    journal.begin_checkpoint(&mut batch);
    journal.commit(&mut batch, 0)?;
    while journal.end_checkpoint(&mut batch) == CheckpointStep::More {
        journal.commit(&mut batch, 0)?;
    }
    journal.commit(&mut batch, 0)?;
    Ok(())
}
