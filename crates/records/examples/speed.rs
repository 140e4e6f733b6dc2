//! Measures how fast a log is read into mailstat's table: `cargo run --release -p stentor-records --example speed LOG`.

use std::time::Instant;

use stentor_records::civil::Zone;
use stentor_records::log::Parser;
use stentor_records::mailstat::{Options, Table};
use stentor_records::record::Record;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/var/log/mail.log".to_owned());
    let text = std::fs::read(path)?;
    let reference = u64::MAX / 1_000_000;
    for (what, counts) in [("parsed", false), ("counted by hour", true)] {
        let mut parser = Parser::new(Zone::utc(), reference);
        let mut table = Table::new(Options::default());
        let begin = Instant::now();
        let mut sink = |record: &Record<'_>| {
            if counts {
                table.add(record);
            }
        };
        for block in text.chunks(256 * 1024) {
            parser.block(block, &mut sink);
        }
        parser.finish(&mut sink);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{what}: {:.0} MB/s, {:?}", text.len() as f64 / 1e6 / seconds, parser.counters());
    }
    Ok(())
}
