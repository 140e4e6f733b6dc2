//! Options of `stentor-kit lab compare`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stentor_measure::OutputArgs;

#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Contestant files (docs/kit/measuring-compare.md), `stentor` or `postfix` [default: both, if they can run here].
    pub contestants: Vec<String>,
    /// A contestant without a file: name=NAME,target=HOST:PORT[,pid=N|,cgroup=PATH][,queue=DIR], or
    /// name=NAME[,nosync=VARIABLE=VALUE],command=COMMAND.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub contestant: Vec<String>,
    /// Directories for the queues, measured in turn [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub queue: Vec<PathBuf>,
    /// Run with syncs as shipped, switched off, or both in turn.
    #[arg(long, value_enum, default_value = "on")]
    pub sync: SyncChoice,
    /// Use one session per message, persistent sessions, or both in turn.
    #[arg(long, value_enum, default_value = "each")]
    pub sessions: SessionChoice,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 20)]
    pub connections: usize,
    /// Messages per run.
    #[arg(long, default_value_t = 1000)]
    pub messages: u64,
    /// Message size in octets, as for `source`.
    #[arg(long, default_value = "4096")]
    pub size: String,
    /// Recipients per message.
    #[arg(long, default_value_t = 1)]
    pub recipients_per_message: u32,
    /// Use PIPELINING where offered.
    #[arg(long)]
    pub pipelining: bool,
    /// Address of the sink, for running servers that deliver to it.
    #[arg(long, value_name = "HOST:PORT")]
    pub sink: Option<SocketAddr>,
    /// Measure acceptance only; mail does not reach the sink.
    #[arg(long)]
    pub no_delivery: bool,
    /// How long to wait for copies after the last message was accepted.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub wait: f64,
    /// Program for {stentor} [default: stentor beside this program, or in PATH].
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
