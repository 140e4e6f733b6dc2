//! `stentor report`: outcomes of posts.

use std::process::ExitCode;

use clap::Args;
use stentor_control::posts::POSTS_DEFAULT;
use stentor_control::{Observe, ReportOptions, Request};
use stentor_queue::ids::MessageId;

use crate::asking::{Looking, look};

#[derive(Args)]
pub struct Options {
    /// One post, by its queue id; shows where its other recipients wait.
    #[arg(conflicts_with_all = ["list", "limit"])]
    id: Option<MessageId>,
    /// Posts of this list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Number of posts, newest first.
    #[arg(long, short = 'n', aliases = ["last", "rows"], value_name = "N", default_value_t = POSTS_DEFAULT)]
    limit: u32,
    #[command(flatten)]
    looking: Looking,
}

pub fn run(options: Options) -> ExitCode {
    let report = ReportOptions { id: options.id.map(|id| id.to_string()), list: options.list, last: options.limit };
    look(&options.looking, &Request::Observe(Observe::Report(report)))
}
