//! `stentor hosts`: every host and site with history, retry clock, reason and last replies.

use std::process::ExitCode;

use clap::Args;
use stentor_control::observe::ROWS_DEFAULT;
use stentor_control::{HostsOptions, HostsSort, Observe, Request};

use crate::asking::{Asking, ask};

#[derive(Args)]
pub struct Options {
    /// Sites and hosts whose name contains this.
    name: Option<String>,
    #[arg(long, value_enum, default_value_t = HostsSort::Waiting)]
    sort: HostsSort,
    /// Number of sites to list.
    #[arg(long, short = 'n', default_value_t = ROWS_DEFAULT, value_name = "N")]
    limit: u32,
    /// Number of sites to skip at the start.
    #[arg(long, default_value_t = 0, value_name = "N")]
    offset: u64,
    /// Only sites with waiting mail.
    #[arg(long)]
    waiting: bool,
    /// Only sites with a host whose last attempt failed.
    #[arg(long)]
    failing: bool,
    #[command(flatten)]
    asking: Asking,
}

pub fn run(options: Options) -> ExitCode {
    let hosts = HostsOptions {
        sort: options.sort,
        rows_max: options.limit,
        offset: options.offset,
        name: options.name,
        waiting: options.waiting,
        failing: options.failing,
    };
    ask(&options.asking, &Request::Observe(Observe::Hosts(hosts)))
}
