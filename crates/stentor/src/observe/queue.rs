//! `stentor queue` and `stentor site`: the queue in total, by site, list or age; one message; one site.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use stentor_control::protocol::RECIPIENTS_DEFAULT;
use stentor_control::view::Subject;
use stentor_control::{ControlReply, Observe, Request, RowKind, View, render};
use stentor_queue::ids::MessageId;

use super::cat;
use crate::asking::{QueryArgs, ServerArgs, ask, query, query_with, shown, usage, width};
use crate::cli_verbs::Selectors;

/// Default value of `--stuck`.
const STUCK_ROWS: &str = "20";

#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    view: View,
    /// The older spelling of `stentor stuck`.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = STUCK_ROWS, hide = true,
        conflicts_with_all = ["by", "limit"], value_parser = clap::value_parser!(u32).range(1..))]
    stuck: Option<u32>,
    #[command(flatten)]
    query: QueryArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Show one message and its waiting recipients.
    Show {
        /// The queue id.
        id: MessageId,
        /// Number of recipients to list.
        #[arg(long, short = 'n', aliases = ["recipients-max", "rows"], default_value_t = RECIPIENTS_DEFAULT,
            value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Try the whole queue once, including queue-only mail, ignoring retry clocks.
    Run {
        /// Count the mail, without trying it.
        #[arg(long)]
        dry_run: bool,
        /// Recorded in the journal's audit record.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print a message's header, body or both as stored.
    Cat(cat::Options),
    /// Print messages with envelope, pending recipients and their state, one JSON object per line.
    Export {
        #[command(flatten)]
        selectors: Selectors,
        #[command(flatten)]
        server: ServerArgs,
    },
}

pub fn run(options: Options) -> ExitCode {
    match options.command {
        None => show(options.view, options.stuck, &options.query),
        Some(Command::Show { id, limit, query: args }) => {
            query(&args, &Request::QueueShow { id, recipients_max: limit })
        }
        Some(Command::Run { dry_run, reason, server }) => ask(&server, &Request::QueueRun { dry_run, reason }),
        Some(Command::Cat(options)) => cat::run(&options),
        Some(Command::Export { selectors, server }) => {
            ask(&server, &Request::Export { selection: selectors.selection() })
        }
    }
}

fn show(view: View, stuck: Option<u32>, args: &QueryArgs) -> ExitCode {
    let subject = if stuck.is_some() { Subject::Stuck } else { Subject::Queue };
    if let Err(why) = view.check(subject) {
        return usage(&why);
    }
    match (stuck, view.by) {
        (Some(rows), _) => query(args, &Request::QueueStuck(View { rows_max: Some(rows), ..view })),
        (None, Some(RowKind::Age)) => query(args, &Request::Observe(Observe::Ages(view))),
        (None, Some(RowKind::List)) => query_with(args, &Request::Queue(view), |reply| match reply {
            ControlReply::Queue(queue) => render::queue_by_list(queue, width()),
            other => shown(other),
        }),
        (None, _) => query(args, &Request::Queue(view)),
    }
}

/// `stentor site NAME`.
#[derive(Args)]
pub struct SiteOptions {
    /// The site as `stentor queue` shows it, or a domain that it serves; the same as --site.
    #[arg(required_unless_present = "site", conflicts_with = "site")]
    name: Option<String>,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    query: QueryArgs,
}

pub fn site(options: SiteOptions) -> ExitCode {
    if let Err(why) = options.view.check(Subject::Site) {
        return usage(&why);
    }
    let View { site, list, .. } = options.view;
    let name = options.name.or(site).unwrap_or_default();
    query(&options.query, &Request::Site { name, list })
}
