//! `stentor report`: outcomes of posts.

use std::process::ExitCode;

use clap::Args;
use stentor_control::view::Subject;
use stentor_control::{Observe, ReportOptions, Request, View};
use stentor_queue::ids::MessageId;

use crate::asking::{QueryArgs, query, usage};

#[derive(Args)]
pub struct Options {
    /// Queue id of a post; adds where recipients wait (--limit places, default 10) and the first ten failures.
    #[arg(conflicts_with_all = ["list", "sort"])]
    id: Option<MessageId>,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    query: QueryArgs,
}

pub fn run(options: Options) -> ExitCode {
    if let Err(why) = options.view.check(Subject::Report) {
        return usage(&why);
    }
    let report = ReportOptions { id: options.id.map(|id| id.to_string()), view: options.view };
    query(&options.query, &Request::Observe(Observe::Report(report)))
}
