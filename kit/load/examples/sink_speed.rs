//! How fast one sink accepts mail on one core: `cargo run --release -p stentor-load --example sink_speed [MESSAGES]`.
//!
//! The sink runs on its own thread; its CPU time per message is what the server under test loses to it.

use std::time::Duration;
use stentor_lab::{Behaviour, Mode, SinkOnly};
use stentor_load::Source;
use tokio::runtime::Builder;

/// CPU nanoseconds of this thread (Linux).
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(100_000), |n| n.parse())?;
    for mode in [Mode::Counters, Mode::Compact, Mode::Full] {
        let (to_main, from_sink) = std::sync::mpsc::channel();
        let sink = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
            runtime.block_on(async move {
                let sink = SinkOnly::start(([127, 0, 0, 1], 0).into(), Behaviour::default(), mode).expect("listens");
                to_main.send(sink.address()).expect("main waits for it");
                let before = cpu_ns();
                sink.recorder().wait_for_copies(messages, Duration::from_mins(5)).await;
                (cpu_ns() - before, sink.recorder().stats())
            })
        });
        let mut source = Source::new(from_sink.recv()?);
        source.messages = messages;
        source.connections = 20;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(source.run())?;
        let (cpu, stats) = sink.join().map_err(|_| "the sink's thread failed")?;
        println!(
            "{mode:?}: {:.0} messages/s, sink {:.1} us CPU a message, {} violations, errors {:?}",
            report.accepted_per_s,
            cpu as f64 / 1000.0 / messages as f64,
            stats.violations,
            report.errors,
        );
    }
    Ok(())
}
