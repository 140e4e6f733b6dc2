//! The serving side: a sink in this process, or several processes.

use std::net::SocketAddr;
use std::time::Duration;

use stentor_lab::Connect;
use stentor_lab::cli::{RunOptions, dump};
use stentor_lab::{Model, Sink, SinkOptions};

use super::SinkArgs;
use super::many::Many;
use super::sink_progress::{SinkProgress, Total};
use crate::crew;
use crate::error::LoadError;
use crate::procfs::ProcessUsage;

/// Descriptors of a process that are no connection's: standard ones, its event loops' and its store's.
const DESCRIPTORS_SPARE: u64 = 64;

pub(super) enum RunningSink {
    One(Sink, ProcessUsage),
    Many(Many),
}

impl RunningSink {
    /// When it returns, every address listens.
    pub fn start(args: &SinkArgs) -> Result<RunningSink, LoadError> {
        let options = args.sink_options()?;
        let count = crew::processes(options.connections_max, args.processes, room(&options))?;
        if count == 1 {
            let sink = Sink::start(&options)?;
            return Ok(RunningSink::One(sink, ProcessUsage::own()));
        }
        let behaviour = &options.behaviour;
        let counts = behaviour.connections_max | behaviour.messages_per_minute_max | behaviour.greylist_ms;
        if counts > 0 || matches!(behaviour.connect, Connect::Refuse | Connect::NeverAccept) {
            return Err(LoadError::refused(format!(
                "{count} processes cannot share the state of greylisting, connections_max and \
                 messages_per_minute_max, nor refuse connections together: omit these from the behaviour, or omit \
                 --connections and --processes"
            )));
        }
        Ok(RunningSink::Many(Many::start(&options, count)?))
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            RunningSink::One(sink, _) => sink.addresses(),
            RunningSink::Many(many) => many.addresses(),
        }
    }

    /// Waits for so long, and says how far it is then.
    pub fn look(&mut self, wait: Duration) -> SinkProgress {
        match self {
            RunningSink::One(sink, before) => {
                std::thread::sleep(wait);
                SinkProgress::of(sink, before)
            }
            RunningSink::Many(many) => many.look(wait),
        }
    }

    /// Nobody is left to serve.
    pub fn is_over(&self) -> bool {
        matches!(self, RunningSink::Many(many) if many.is_over())
    }

    /// Ends it, writes the dump, and adds up.
    pub fn finish(self, args: &SinkArgs, options: &RunOptions) -> Total {
        match self {
            RunningSink::One(mut sink, before) => {
                let seen = SinkProgress::last_of(&mut sink, &before);
                let dumped = dump(sink.recorder(), options).map_err(LoadError::from);
                Total { seen, top: sink.recorder().top(args.top), processes: 1, warnings: Vec::new(), dumped }
            }
            RunningSink::Many(many) => many.finish(args, options),
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
