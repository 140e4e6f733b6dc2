//! Measures the history: nanoseconds per append for the caller, CPU time of the writer, octets per record, time to find
//! a record.
//!
//! `cargo run --release -p stentor-history --example cost -- [RECORDS] [THREADS]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use stentor_history::{Config, History, Reader, ScanControl};
use stentor_records::record::{Accepted, Attempt, Ms, Record, Stat};

const NOW: Ms = 1_795_258_465_123;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut number = |default| arguments.next().and_then(Result::ok).unwrap_or(default);
    let (records, threads) = (number(1_000_000), number(1));
    let dir = std::env::temp_dir().join(format!("history-cost-{}", std::process::id()));
    let history = History::start(Config {
        dir: dir.clone(),
        keep_ms: 86_400_000,
        size_bytes_max: 4 << 30,
        free_bytes_min: 0,
        sync_ms: 5_000,
        now: Box::new(|| NOW),
        complain: Box::new(|text| eprintln!("{text}")),
    })
    .expect("a directory for temporary files");

    // Measures the callers' work alone: in slices, so that the buffers do not fill, and once without the store, to
    // subtract the cost of making the records.
    let (mut making, mut appending) = (Duration::ZERO, Duration::ZERO);
    let off = History::off();
    for slice in 0..records.div_ceil(10_000) {
        making += run(&off, slice, threads);
        appending += run(&history, slice, threads);
        history.flush();
    }
    let written = Instant::now();
    history.sync();
    let status = history.status();
    let each = |time: Duration| time.as_nanos() as f64 / records as f64 * threads as f64;
    println!(
        "append: {:.0} ns per record beside {:.0} to make it, {threads} threads",
        each(appending) - each(making),
        each(making)
    );
    println!(
        "stored: {} records, {} dropped, {:.1} octets per record, {} files, last sync {:.1} ms",
        status.appended,
        status.dropped,
        status.bytes as f64 / status.appended as f64,
        status.files,
        written.elapsed().as_secs_f64() * 1e3
    );
    drop(history);
    println!("process: {:.0} ns of CPU per record in all", cpu().as_nanos() as f64 / records as f64);

    let reader = Reader::open(&dir).expect("it was just written");
    let begun = Instant::now();
    let mut seen = 0_u64;
    let scanned = reader.scan(0, Ms::MAX, &mut |record| {
        seen += black_box(record.at()) & 1;
        ScanControl::Continue(())
    });
    println!("scan: {scanned:?}, {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let begun = Instant::now();
    let found = reader.find("subscriber4711-0@example7.org", 0, Ms::MAX, &mut |_| ScanControl::Continue(()));
    println!("find: {found:?}, {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let _ = std::fs::remove_dir_all(&dir);
}

/// Time that each thread takes for its part of a slice.
fn run(history: &History, slice: u64, threads: u64) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || append(history, slice, thread, 10_000 / threads));
        }
    });
    begun.elapsed()
}

fn append(history: &History, slice: u64, thread: u64, count: u64) {
    for n in 0..count {
        let at = NOW + slice * 100 + n / 100;
        let no = slice * 10_000 + thread * count + n;
        if n % 100 == 0 {
            let (id, message_id) = (format!("0CX8{no:08}"), format!("<{no}@example.com>"));
            let accepted =
                Accepted { at, id: &id, from: "list@example.com", message_id: &message_id, ..Accepted::default() };
            history.append(black_box(&Record::Accepted(accepted)));
            continue;
        }
        let (id, to) = (format!("0CX8{:08}", no / 100), format!("subscriber{no}-{thread}@example{}.org", no % 97));
        history.append(black_box(&Record::Attempt(Attempt {
            at,
            id: &id,
            to: [to.as_str()].into_iter().collect(),
            from: "list-bounces@example.com",
            list: "news",
            mailer: "esmtp",
            host: "mx.example.org",
            ip: Some([192, 0, 2, (no % 97) as u8].into()),
            port: 25,
            delay_ms: 1_000 + n,
            xdelay_ms: 20 + n % 17,
            stat: Stat::Sent,
            dsn: "2.0.0",
            reply: "250 2.0.0 Ok: queued",
            size: 4_096,
            ..Attempt::default()
        })));
    }
}

/// CPU time of this process so far, from /proc; ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
