//! `stentor report`: outcomes of posts.

use std::process::ExitCode;

use clap::Args;
use stentor_control::posts::POSTS_DEFAULT;
use stentor_control::{Observe, ReportOptions, Request};
use stentor_queue::ids::MessageId;

use crate::asking::{Asking, ask};

#[derive(Args)]
pub struct Options {
    /// One post, by its queue id; shows where its other recipients wait.
    #[arg(conflicts_with_all = ["list", "last"])]
    id: Option<MessageId>,
    /// Posts of this list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Number of posts, newest first.
    #[arg(long, value_name = "N", default_value_t = POSTS_DEFAULT)]
    last: u32,
    #[command(flatten)]
    asking: Asking,
}

pub fn run(options: Options) -> ExitCode {
    let report = ReportOptions { id: options.id.map(|id| id.to_string()), list: options.list, last: options.last };
    ask(&options.asking, &Request::Observe(Observe::Report(report)))
}
