//! Options of `stentor-kit lab compare`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stentor_measure::OutputArgs;

#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Contestant files (docs/kit/measuring.md), or `stentor`, `postfix` [default: those of both that can run here].
    pub contestants: Vec<String>,
    /// One without a file: name=NAME,target=HOST:PORT[,pid=N|,cgroup=PATH][,queue=DIR], or
    /// name=NAME[,nosync=VARIABLE=VALUE],command=COMMAND.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub contestant: Vec<String>,
    /// Directories that queues are put on, one after the other [default: the temporary one].
    #[arg(long, value_name = "DIR")]
    pub queue: Vec<PathBuf>,
    /// Syncs as shipped, switched off, or one after the other.
    #[arg(long, value_enum, default_value = "on")]
    pub sync: SyncChoice,
    /// A session for each message, sessions kept, or one after the other.
    #[arg(long, value_enum, default_value = "each")]
    pub sessions: SessionChoice,
    /// Connections at a time.
    #[arg(long, default_value_t = 20)]
    pub connections: usize,
    /// Messages in each run.
    #[arg(long, default_value_t = 1000)]
    pub messages: u64,
    /// Octets of a message, as for `source`.
    #[arg(long, default_value = "4096")]
    pub size: String,
    /// Recipients of a message.
    #[arg(long, default_value_t = 1)]
    pub recipients_per_message: u32,
    /// Use PIPELINING where it is offered; the usual sources do not.
    #[arg(long)]
    pub pipelining: bool,
    /// Where our sink listens; for servers that run already and are to deliver there.
    #[arg(long, value_name = "HOST:PORT")]
    pub sink: Option<SocketAddr>,
    /// Mail does not come to our sink: only acceptance is measured.
    #[arg(long)]
    pub no_delivery: bool,
    /// Wait so long for copies after the last message was accepted.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub wait: f64,
    /// The program that stands for {stentor} [default: the stentor beside this program, else the one in PATH].
    #[arg(long, value_name = "PROGRAM")]
    pub stentor: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SyncChoice {
    On,
    Off,
    Both,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SessionChoice {
    Each,
    Kept,
    Both,
}
