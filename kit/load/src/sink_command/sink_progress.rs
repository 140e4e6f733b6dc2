//! What a sink has done so far, in one process or in all.

use serde::{Deserialize, Serialize};
use stentor_lab::recorder::{Stats, Top};
use stentor_lab::{EngineCounters, Sink};

use crate::error::LoadError;
use crate::procfs::ProcessUsage;

/// What a sink has done so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SinkProgress {
    pub stats: Stats,
    pub met: EngineCounters,
    /// When the first and the last message were taken; microseconds of a clock that all processes share.
    pub span_us: Option<(u64, u64)>,
    /// Since it began to serve.
    pub used: ProcessUsage,
}

impl SinkProgress {
    /// `before`: what the process had used when it began.
    pub fn of(sink: &Sink, before: &ProcessUsage) -> SinkProgress {
        let recorder = sink.recorder();
        let begun_us = now_us().saturating_sub(recorder.now_us());
        SinkProgress {
            stats: recorder.stats(),
            met: sink.met(),
            span_us: recorder.span_us().map(|(first, last)| (begun_us + first, begun_us + last)),
            used: ProcessUsage::own().since(before),
        }
    }

    /// Closes the sink, and says what it has done by then. What it uses and how much is open is that of before.
    pub fn last_of(sink: &mut Sink, before: &ProcessUsage) -> SinkProgress {
        let serving = SinkProgress::of(sink, before);
        sink.close();
        let mut seen = SinkProgress::of(sink, before);
        seen.stats.open = serving.stats.open;
        seen.used = serving.used;
        seen
    }

    /// Adds another process's.
    pub fn add(&mut self, other: &SinkProgress) {
        self.stats.add(&other.stats);
        self.met.add(&other.met);
        self.used.add(&other.used);
        self.span_us = match (self.span_us, other.span_us) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
    }
}

/// All that a report is made of.
pub(super) struct Total {
    pub seen: SinkProgress,
    pub top: Top,
    pub processes: usize,
    /// Of processes that died.
    pub warnings: Vec<String>,
    /// Whether the dump could be written.
    pub dumped: Result<(), LoadError>,
}

/// The same in every process.
fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
}
