//! `stentor mailqq`: pending recipients per message.

use std::process::ExitCode;

use clap::Args;
use stentor_config::duration_s;
use stentor_control::view::ROWS_DEFAULT;
use stentor_control::{MailqqOptions, MailqqSort, Observe, Request};

use crate::asking::{QueryArgs, query};

#[derive(Args)]
pub struct Options {
    /// Number of messages to list.
    #[arg(long, short = 'n', alias = "rows", default_value_t = ROWS_DEFAULT, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[arg(long, value_enum, default_value_t = MailqqSort::Count)]
    sort: MailqqSort,
    /// Only posts of this list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// By envelope sender: an address, @domain, or '<>' for the null sender.
    #[arg(long, value_name = "ADDRESS", value_parser = crate::cli_verbs::sender)]
    sender: Option<String>,
    /// Only messages with recipients at this site: its name as `stentor queue` shows it, or a domain that it serves.
    #[arg(long)]
    site: Option<String>,
    /// Part of the subject, ignoring case; reads every header.
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Accepted longer ago than this: 90s, 15m, 36h, 5d.
    #[arg(long, value_name = "AGE", value_parser = duration_s)]
    older_than: Option<u64>,
    /// Accepted more recently than this.
    #[arg(long, value_name = "AGE", value_parser = duration_s)]
    younger_than: Option<u64>,
    /// Continue after this queue id, where the previous reply ended.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    #[command(flatten)]
    query: QueryArgs,
}

pub fn run(options: Options) -> ExitCode {
    let mailqq = MailqqOptions {
        sort: options.sort,
        rows_max: options.limit,
        list: options.list,
        sender: options.sender,
        site: options.site,
        subject: options.subject,
        age_s_min: options.older_than,
        age_s_max: options.younger_than,
        after: options.after,
    };
    query(&options.query, &Request::Observe(Observe::Mailqq(mailqq)))
}
