//! `stentor hosts`: every host and site with history, retry clock, reason and last replies.

use std::process::ExitCode;

use clap::Args;
use stentor_control::view::Subject;
use stentor_control::{HostsOptions, HostsQuery, Observe, Request, View};

use crate::asking::{QueryArgs, query, usage};

#[derive(Args)]
pub struct Options {
    /// Sites whose name contains this.
    name: Option<String>,
    #[command(flatten)]
    view: View,
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
    query: QueryArgs,
}

pub fn run(options: Options) -> ExitCode {
    if let Err(why) = options.view.check(Subject::Hosts) {
        return usage(&why);
    }
    let page =
        HostsQuery { offset: options.offset, name: options.name, waiting: options.waiting, failing: options.failing };
    query(&options.query, &Request::Observe(Observe::Hosts(HostsOptions { view: options.view, page })))
}
