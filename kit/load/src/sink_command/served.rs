//! What serves: a sink in this process, or several processes; and what is seen of it.

use super::SinkArgs;
use super::many::Many;
use crate::crew;
use crate::procfs::Used;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use stentor_lab::Connect;
use stentor_lab::LabError;
use stentor_lab::cli::{RunOptions, dump};
use stentor_lab::recorder::{Stats, Top};
use stentor_lab::{Met, Model, Sink, SinkOptions};

/// Descriptors of a process that are no connection's: standard ones, its event loops' and its store's.
const DESCRIPTORS_SPARE: u64 = 64;

/// What a sink has done so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub stats: Stats,
    pub met: Met,
    /// When the first and the last message were taken; microseconds of a clock that all processes share.
    pub span_us: Option<(u64, u64)>,
    /// Since it began to serve.
    pub used: Used,
}

impl Seen {
    /// `before`: what the process had used when it began.
    pub fn of(sink: &Sink, before: &Used) -> Seen {
        let recorder = sink.recorder();
        let begun_us = now_us().saturating_sub(recorder.now_us());
        Seen {
            stats: recorder.stats(),
            met: sink.met(),
            span_us: recorder.span_us().map(|(first, last)| (begun_us + first, begun_us + last)),
            used: Used::own().since(before),
        }
    }

    /// Closes the sink, and says what it has done by then. What it uses and how much is open is that of before.
    pub fn last_of(sink: &mut Sink, before: &Used) -> Seen {
        let serving = Seen::of(sink, before);
        sink.close();
        let mut seen = Seen::of(sink, before);
        seen.stats.open = serving.stats.open;
        seen.used = serving.used;
        seen
    }

    /// Adds another process's.
    pub fn add(&mut self, other: &Seen) {
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
    pub seen: Seen,
    pub top: Top,
    pub processes: usize,
    /// Of processes that died.
    pub warnings: Vec<String>,
    /// Whether the dump could be written.
    pub dumped: Result<(), LabError>,
}

pub(super) enum Served {
    One(Sink, Used),
    Many(Many),
}

impl Served {
    /// When it returns, every address listens.
    pub fn start(args: &SinkArgs) -> Result<Served, LabError> {
        let options = args.sink_options()?;
        let count = crew::processes(options.connections_max, args.processes, room(&options))?;
        if count == 1 {
            let sink = Sink::start(&options)?;
            return Ok(Served::One(sink, Used::own()));
        }
        let behaviour = &options.behaviour;
        let counts = behaviour.connections_max | behaviour.messages_per_minute_max | behaviour.greylist_ms;
        if counts > 0 || matches!(behaviour.connect, Connect::Refuse | Connect::NeverAccept) {
            return Err(LabError::Measure(format!(
                "{count} processes cannot share what greylisting, connections_max and messages_per_minute_max remember, nor \
                 refuse connections together: leave these out of the behaviour, or --connections and --processes"
            )));
        }
        Ok(Served::Many(Many::start(&options, count)?))
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Served::One(sink, _) => sink.addresses(),
            Served::Many(many) => many.addresses(),
        }
    }

    /// Waits for so long, and says how far it is then.
    pub fn look(&mut self, wait: Duration) -> Seen {
        match self {
            Served::One(sink, before) => {
                std::thread::sleep(wait);
                Seen::of(sink, before)
            }
            Served::Many(many) => many.look(wait),
        }
    }

    /// Nobody is left to serve.
    pub fn is_over(&self) -> bool {
        matches!(self, Served::Many(many) if many.is_over())
    }

    /// Ends it, writes the dump, and adds up.
    pub fn finish(self, args: &SinkArgs, options: &RunOptions) -> Total {
        match self {
            Served::One(mut sink, before) => {
                let seen = Seen::last_of(&mut sink, &before);
                let dumped = dump(sink.recorder(), options);
                Total { seen, top: sink.recorder().top(args.top), processes: 1, warnings: Vec::new(), dumped }
            }
            Served::Many(many) => many.finish(args, options),
        }
    }
}

/// Connections that a process has descriptors for.
fn room(options: &SinkOptions) -> u64 {
    let threads = if options.model == Model::Event { options.threads } else { 0 };
    // An epoll set and a wake-up each; a file each, and its directory.
    let others = options.addresses.len() + 2 * threads + 2 * options.store_threads;
    crew::descriptors(DESCRIPTORS_SPARE + others as u64)
}

/// The same in every process.
fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
}
