//! `stentor hosts`: every host and site with history, retry clock, reason and last replies.

use std::process::ExitCode;

use clap::Args;
use stentor_control::observe::ROWS_DEFAULT;
use stentor_control::{HostsOptions, HostsSort, Observe, Request};

use crate::asking::{Looking, look};

#[derive(Args)]
pub struct Options {
    /// Sites and hosts whose name contains this; the same as --site.
    #[arg(conflicts_with = "site")]
    name: Option<String>,
    #[arg(long, value_name = "NAME", help = "Sites and hosts whose name contains this")]
    site: Option<String>,
    #[arg(long, value_enum, default_value_t = HostsSort::Waiting)]
    sort: HostsSort,
    /// Number of sites to list.
    #[arg(long, short = 'n', alias = "rows", default_value_t = ROWS_DEFAULT, value_name = "N")]
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
    looking: Looking,
}

pub fn run(options: Options) -> ExitCode {
    let hosts = HostsOptions {
        sort: options.sort,
        rows_max: options.limit,
        offset: options.offset,
        name: options.name.or(options.site),
        waiting: options.waiting,
        failing: options.failing,
    };
    look(&options.looking, &Request::Observe(Observe::Hosts(hosts)))
}
