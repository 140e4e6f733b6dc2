//! `stentor latedudes` (`stuck`): recipients and sites by number of waiting messages, with advice.

use std::process::ExitCode;

use clap::Args;
use stentor_control::view::Subject;
use stentor_control::{Request, View};
use stentor_logfiles::From;

use super::from;
use crate::asking::{QueryArgs, query, usage};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    view: View,
    /// Read logs instead of asking a server: recipients still waiting at the end of the logs.
    #[command(flatten)]
    logs: From,
    #[command(flatten)]
    query: QueryArgs,
}

pub fn run(options: Options) -> ExitCode {
    if let Err(why) = options.view.check(Subject::Stuck) {
        return usage(&why);
    }
    if options.logs.is_given() {
        let is_plain = View { rows_max: None, ..options.view.clone() } == View::default();
        if !is_plain {
            return usage(
                "--by, --list, --site and --sort do not work with --from: from logs, stuck shows recipients \
                and domains",
            );
        }
        let rows = options.view.rows_max.unwrap_or(Subject::Stuck.default_rows());
        return from::latedudes(&options.logs, rows as usize, options.query.server.json);
    }
    query(&options.query, &Request::QueueStuck(options.view))
}
