//! `stentor latedudes`: recipients and sites by messages waiting, with advice.

use std::process::ExitCode;

use clap::Args;
use stentor_control::protocol::STUCK_DEFAULT;
use stentor_control::{Reply, Request, render, render_waiting};

use crate::asking::{Looking, look_with};
use crate::foreign::{From, commands};
use crate::zone;

#[derive(Args)]
pub struct Options {
    /// Number of recipients and of sites to list, those with most messages waiting.
    #[arg(long, short = 'n', alias = "rows", default_value_t = STUCK_DEFAULT, value_name = "N")]
    limit: u32,
    /// Read logs instead of asking a server: who is waiting at their end.
    #[command(flatten)]
    logs: From,
    #[command(flatten)]
    looking: Looking,
}

pub fn run(options: &Options) -> ExitCode {
    if options.logs.is_given() {
        return commands::latedudes(&options.logs, options.limit as usize, options.looking.asking.json);
    }
    look_with(&options.looking, &Request::QueueStuck { rows_max: options.limit }, |reply| match reply {
        Reply::Stuck(stuck) => render_waiting::latedudes(stuck),
        other => render::reply(other, &zone::local()),
    })
}
