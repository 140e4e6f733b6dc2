//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use stentor_config::{Diagnostic, duration_s};
use stentor_control::format::quoted;
use stentor_control::{
    BounceTerm, ControlReply, PostOptions, PostState, QuarantineOptions, Request, Selection, Verb, post_view,
    quarantine_view, render,
};
use stentor_queue::ids::MessageId;

use crate::asking::{QueryArgs, ServerArgs, ask, load, query, query_with, shown, usage};
use crate::cli_verbs::{ActionArgs, QueueOnlyScope, Selectors, SuspendSubject};
use crate::observe::{
    batchstat, bounces, dmarc, hosts, latedudes, mailqq, mailstat, queue, realstat, report, trace, watch,
};
use crate::{
    check_cmd, config_cmd, dkim_cmd, explain, help, journal_cmd, list_cmd, logging, mime_cmd, process, secrets,
    suppress_cmd, table_cmd, tls_cmd, user_cmd,
};

/// Mail transfer agent for mailing lists and bulk mail.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, help_template = help::OVERVIEW)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve(WithConfig),
    /// Check a configuration file and report every error in it.
    Check(CheckArgs),
    /// Show the effective configuration: every value and its origin.
    Config(config_cmd::Options),
    /// Explain what the configuration does with a recipient: each rule, route and table consulted, and the decision.
    Explain(explain::Options),
    /// Replay recent mail against another configuration; list the decisions that would change.
    Policy(explain::replay::Options),
    #[command(flatten)]
    Look(LookCommand),
    #[command(flatten)]
    Change(ChangeCommand),
    /// Print a table of deliveries and failures by hour, day, list, domain or host, from the history or from logs.
    Mailstat(Box<mailstat::Options>),
    /// Draw a chart of a day: deliveries per hour, arrivals, failures, machine load; from the history or from logs.
    Batchstat(Box<batchstat::Options>),
    /// Show why mail was not delivered, by cause, provider or list, and block lists; or read bounce messages.
    Bounces(Box<bounces::Options>),
    /// Show DMARC reports about our domains: results, and sources that fail.
    Dmarc(dmarc::Options),
    /// Read a password from the terminal or standard input and print its hash, for `[http]`.
    HttpPassword,
    /// Create an API token; its hash for `[http]` goes to standard error.
    HttpToken(secrets::NewToken),
    /// Add, lock or remove users who log in to send mail, or set their passwords.
    User(user_cmd::Options),
    /// Look up a key in a table of Postfix or sendmail, or check tables.
    Table(table_cmd::Options),
    /// Show the server's certificates, or test TLS to a domain.
    Tls(tls_cmd::Options),
    /// Make keys that sign mail (DKIM), print their DNS records, or replace them.
    Dkim(dkim_cmd::Options),
    /// Decode or encode mail text, or show a message decoded.
    Mime(mime_cmd::Options),
    /// Inspect a stopped or damaged journal, or save its contents, without changing it.
    Journal(journal_cmd::Options),
    /// Print a completion script for a shell.
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write the pages of all commands.
    Man(help::Man),
}

/// How long something lasts, in seconds.
fn for_s(text: &str) -> Result<u64, String> {
    duration_s(text).and_then(|s| if s == 0 { Err("at least 1s".to_owned()) } else { Ok(s) })
}

/// Commands that look at a server.
#[derive(Subcommand)]
enum LookCommand {
    /// Show what is queued, in total and by site, or one message.
    #[command(visible_alias = "mailq")]
    Queue(Box<queue::Options>),
    /// Show why mail waits at a site: its hosts' retry clocks, limits and last replies.
    Site(queue::SiteOptions),
    /// Show hosts and sites: history, retry clocks, reasons and last replies.
    ///
    /// An answered attempt is a transaction in which the host delivered or decided about a mailbox (including
    /// greylisted, full and unknown). A failed attempt is a session that did not begin or was lost, a 421, or a
    /// temporary refusal of MAIL or of the data. Both counts are for the domain with most mail there, and halve every
    /// seven days.
    Hosts(hosts::Options),
    /// Show recipients and sites by number of messages waiting, and what to do.
    #[command(visible_alias = "stuck")]
    Latedudes(Box<latedudes::Options>),
    /// Show what happened to posts: copies delivered, how fast, and where the rest wait.
    Report(report::Options),
    /// Show messages by number of recipients waiting.
    Mailqq(mailqq::Options),
    /// Show one address: its lists, waiting messages and delivery history.
    Address {
        address: String,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Show the running server at a glance.
    Status(QueryArgs),
    /// Show rates now: one row per interval, or full screen on a terminal.
    Realstat(realstat::Options),
    /// Follow SMTP sessions with a site or of a client: commands and replies, without message data.
    Watch(watch::Options),
    /// Show the history of a message or a recipient.
    Trace(trace::Options),
    /// Report problems and recent events, and what to do.
    Doctor(journal_cmd::DoctorOptions),
}

/// Commands that change something on a server.
#[derive(Subcommand)]
enum ChangeCommand {
    /// Suspend all mail of a list or sender, to a site, or of a list to one subscriber, until resumed.
    Suspend(SuspendingFor),
    /// End a suspension.
    Resume(SuspendArgs),
    /// Keep mail in the queue: accept it without delivering it, until ended; `queue run` tries it once.
    QueueOnly(QueueOnly),
    /// Show who missed a post and send it to these; pause, resume or cancel one in mid-delivery.
    Post {
        #[command(subcommand)]
        command: PostCommand,
    },
    /// Try waiting mail now: all of it, one site's, or one list's.
    Flush {
        /// The site as `stentor queue` shows it.
        #[arg(conflicts_with = "list")]
        site: Option<String>,
        /// The posts of this list.
        #[arg(long, value_name = "NAME")]
        list: Option<String>,
        /// Count what would be tried, without changing anything.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Hold messages until they are released; they do not expire meanwhile.
    Hold(ActArgs),
    /// End a hold.
    Release(ActArgs),
    /// List, show, release or delete messages that rules and milters have quarantined.
    Quarantine {
        #[command(subcommand)]
        command: QuarantineCommand,
    },
    /// Send no mail to addresses or domains: all of it, a list's, or a sender's.
    Suppress(suppress_cmd::Options),
    /// Make, change, show or delete mailing lists.
    List(list_cmd::ListOptions),
    /// Add, remove, show, import or export members of lists.
    Member(list_cmd::MemberCommandOptions),
    /// Remove recipients from the queue without a bounce.
    Remove(ActArgs),
    /// Bounce recipients to the sender now; with --for, also mail that arrives during that time.
    Bounce(BounceArgs),
    /// Try recipients now, as if just accepted: retry clocks and failure counts are reset.
    Requeue(ActArgs),
    /// Reload the running server's configuration.
    Reload(ServerArgs),
    /// Stop the running server once open transactions have ended.
    Stop(ServerArgs),
}

#[derive(Args)]
struct WithConfig {
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct CheckArgs {
    /// The configuration; the same as --config.
    #[arg(conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Check only the file, not what it refers to: folders, subscribers files, addresses, name servers.
    #[arg(long)]
    file_only: bool,
    /// Print one JSON object: `ok`, `summary`, `findings`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    with: WithConfig,
}

#[derive(Args)]
struct ActArgs {
    #[command(flatten)]
    acting: ActionArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand)]
enum QuarantineCommand {
    /// List messages, oldest first.
    List(QuarantineList),
    /// Show a message: why it is quarantined, its decoded header and text, and the names of attachments.
    Show {
        /// The queue id.
        id: MessageId,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Deliver messages, or their copies to some recipients, as if just accepted; rules are not applied again.
    Release {
        /// Send a copy of the message named by --id to this address instead; the message stays in quarantine.
        #[arg(long, value_name = "ADDRESS", requires = "id",
            conflicts_with_all = ["dry_run", "sender", "recipient", "site", "list", "older_than", "younger_than", "all"])]
        to: Option<String>,
        #[command(flatten)]
        act: ActArgs,
    },
    /// Delete messages, or their copies to some recipients, without a bounce.
    Delete(ActArgs),
}

#[derive(Args)]
struct QuarantineList {
    #[command(flatten)]
    selectors: Selectors,
    /// Number of messages to list.
    #[arg(long, short = 'n', default_value_t = quarantine_view::ROWS_DEFAULT, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(quarantine_view::ROWS_MAX)))]
    limit: u32,
    /// Continue after this queue id, where the previous reply ended.
    #[arg(long, value_name = "ID")]
    after: Option<MessageId>,
    #[command(flatten)]
    query: QueryArgs,
}

#[derive(Args)]
struct BounceArgs {
    /// Set a standing bounce: for this time, bounce waiting and arriving mail instead of trying it: 90m, 2h, 3d.
    #[arg(long = "for", value_name = "TIME", value_parser = for_s,
        conflicts_with_all = ["id", "older_than", "younger_than", "all"])]
    for_s: Option<u64>,
    /// End a standing bounce early.
    #[arg(long, conflicts_with_all = ["for_s", "dry_run", "id", "older_than", "younger_than", "all"])]
    end: bool,
    /// Show the standing bounces, with the command that ends each.
    #[arg(long, conflicts_with_all = ["for_s", "end", "dry_run", "reason", "id", "sender", "recipient", "site", "list",
        "older_than", "younger_than", "all"])]
    show: bool,
    #[command(flatten)]
    act: ActArgs,
}

#[derive(Args)]
struct SuspendingFor {
    /// End it after this time: 90m, 2h, 3d.
    #[arg(long = "for", value_name = "TIME", value_parser = for_s)]
    for_s: Option<u64>,
    /// Count the waiting mail that would be suspended, without changing anything.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    suspending: SuspendArgs,
}

#[derive(Args)]
struct QueueOnly {
    /// End it automatically after this time: 90m, 2h, 3d.
    #[arg(long = "for", value_name = "TIME", value_parser = for_s)]
    for_s: Option<u64>,
    /// End it now.
    #[arg(long, conflicts_with_all = ["for_s", "dry_run"])]
    end: bool,
    /// Show all queue-only mail, with the command that ends each.
    #[arg(long, conflicts_with_all = ["for_s", "end", "dry_run", "reason", "what"])]
    show: bool,
    /// Count the affected waiting mail, without changing anything.
    #[arg(long)]
    dry_run: bool,
    /// Recorded in the journal's audit record and shown by `status`.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    what: QueueOnlyScope,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
struct SuspendArgs {
    #[command(flatten)]
    subject: SuspendSubject,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand)]
enum PostCommand {
    /// Show how many have a post, and who waits for it or missed it, and why.
    Show(PostShow),
    /// Send a post again.
    Resend {
        /// To those that missed it: bounced, expired, or removed by an operator. Required.
        #[arg(long, required = true)]
        missed: bool,
        #[command(flatten)]
        post: Post,
    },
    /// Hold undelivered copies.
    Pause(Post),
    /// Release held copies.
    Resume(Post),
    /// Remove undelivered copies, without a bounce.
    Cancel(Post),
}

#[derive(Args)]
struct PostShow {
    /// The queue id.
    id: MessageId,
    /// List only these recipients: missed, waiting.
    #[arg(long, value_name = "STATE", value_parser = post_state)]
    state: Option<PostState>,
    /// Number of recipients to list.
    #[arg(long, short = 'n', default_value_t = post_view::ROWS_DEFAULT, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(post_view::ROWS_MAX)))]
    limit: u32,
    /// Number of recipients before the first one listed.
    #[arg(long, default_value_t = 0, value_name = "N")]
    offset: u64,
    #[command(flatten)]
    query: QueryArgs,
}

fn post_state(text: &str) -> Result<PostState, String> {
    let known = PostState::ALL.into_iter().find(|state| state.name() == text);
    known.ok_or_else(|| "valid states: missed, waiting".to_owned())
}

#[derive(Args)]
struct Post {
    /// The queue id.
    id: MessageId,
    /// Count the affected copies, without changing anything.
    #[arg(long)]
    dry_run: bool,
    /// Recorded in the journal's audit record.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// The command line used for parsing, help and manual pages.
pub fn command() -> clap::Command {
    help::with_views(Cli::command())
}

/// Parses the process's arguments; exits on errors and after printing help.
pub fn parse() -> Cli {
    let matches = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    matches.unwrap_or_else(|error| with_hint(error, std::env::args().nth(1).as_deref()).exit())
}

/// Adds the likely command to the error about a word that is not a subcommand of `command`.
fn with_hint(mut error: clap::Error, command: Option<&str>) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let is_id = word.parse::<MessageId>().is_ok();
    let is_domain = word.contains('.') && !word.contains('/');
    let likely = match command {
        Some("queue" | "mailq") if is_id => "stentor queue show",
        Some("quarantine") if is_id => "stentor quarantine show",
        Some("post") if is_id => "stentor report",
        Some("tls") if is_domain => "stentor tls check",
        Some("journal") if Path::new(word).is_dir() => "stentor journal verify",
        Some("config") if Path::new(word).is_file() => "stentor config show --config",
        Some("policy") if Path::new(word).is_file() => "stentor policy replay --config",
        _ => return error,
    };
    let tip = format!("did you mean `{likely} {}`?", quoted(word));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(with) => serve(with.config.as_deref()),
        Command::Config(options) => config_cmd::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Policy(options) => explain::replay::run(&options),
        Command::Check(CheckArgs { file, file_only, json, with }) => {
            check_cmd::run(&check_cmd::Options { file: file.or(with.config), file_only, json })
        }
        Command::Look(command) => look(command),
        Command::Change(command) => change(command),
        Command::Mailstat(options) => mailstat::run(&options),
        Command::Bounces(options) => bounces::run(&options),
        Command::Dmarc(options) => dmarc::run(&options),
        Command::Batchstat(options) => batchstat::run(&options),
        Command::HttpPassword => secrets::password_command(),
        Command::HttpToken(new) => secrets::token_command(&new),
        Command::User(options) => user_cmd::run(&options),
        Command::Table(options) => table_cmd::run(&options),
        Command::Tls(options) => tls_cmd::run(&options),
        Command::Dkim(options) => dkim_cmd::run(&options),
        Command::Mime(options) => mime_cmd::run(&options),
        Command::Journal(options) => journal_cmd::run(options),
        Command::Completions { shell } => help::completions(command(), shell),
        Command::Man(options) => help::man(command(), &options),
    }
}

fn look(command: LookCommand) -> ExitCode {
    match command {
        LookCommand::Queue(options) => queue::run(*options),
        LookCommand::Site(options) => queue::site(options),
        LookCommand::Hosts(options) => hosts::run(options),
        LookCommand::Latedudes(options) => latedudes::run(*options),
        LookCommand::Report(options) => report::run(options),
        LookCommand::Mailqq(options) => mailqq::run(options),
        LookCommand::Address { address, query: args } => query(&args, &Request::Address { address }),
        LookCommand::Status(args) => query(&args, &Request::Status),
        LookCommand::Realstat(options) => realstat::run(options),
        LookCommand::Watch(options) => watch::run(options),
        LookCommand::Trace(options) => trace::run(options),
        LookCommand::Doctor(options) => journal_cmd::doctor(&options),
    }
}

fn change(command: ChangeCommand) -> ExitCode {
    match command {
        ChangeCommand::Hold(command) => act(Verb::Hold, command),
        ChangeCommand::Release(command) => act(Verb::Release, command),
        ChangeCommand::Quarantine { command } => quarantine(command),
        ChangeCommand::Suppress(options) => suppress_cmd::run(options),
        ChangeCommand::List(options) => list_cmd::list(options),
        ChangeCommand::Member(options) => list_cmd::member(options),
        ChangeCommand::Remove(command) => act(Verb::Remove, command),
        ChangeCommand::Bounce(options) => bounce(options),
        ChangeCommand::Requeue(command) => act(Verb::Requeue, command),
        ChangeCommand::Flush { list: Some(list), dry_run, server, .. } => {
            let selection = Selection { list: Some(list), ..Selection::default() };
            ask(&server, &Request::Act { verb: Verb::Requeue, selection, dry_run, reason: None })
        }
        ChangeCommand::Flush { site, dry_run, server, .. } => ask(&server, &Request::Flush { site, dry_run }),
        ChangeCommand::QueueOnly(options) => queue_only(options),
        ChangeCommand::Suspend(SuspendingFor { for_s, dry_run, suspending }) => {
            suspend(true, suspending, for_s, dry_run)
        }
        ChangeCommand::Resume(suspending) => suspend(false, suspending, None, false),
        ChangeCommand::Post { command } => {
            let (verb, Post { id, dry_run, reason, server }) = match command {
                PostCommand::Show(PostShow { id, state, limit, offset, query: args }) => {
                    let options = PostOptions { id, state, rows_max: limit, offset };
                    return query(&args, &Request::PostShow(options));
                }
                PostCommand::Resend { missed: _, post } => (Verb::Resend, post),
                PostCommand::Pause(post) => (Verb::Hold, post),
                PostCommand::Resume(post) => (Verb::Release, post),
                PostCommand::Cancel(post) => (Verb::Remove, post),
            };
            let selection = Selection { ids: vec![id], ..Selection::default() };
            ask(&server, &Request::Act { verb, selection, dry_run, reason })
        }
        ChangeCommand::Reload(server) => ask(&server, &Request::Reload),
        ChangeCommand::Stop(server) => ask(&server, &Request::Stop),
    }
}

fn quarantine(command: QuarantineCommand) -> ExitCode {
    match command {
        QuarantineCommand::List(QuarantineList { selectors, limit, after, query: args }) => {
            let options = QuarantineOptions { selection: selectors.selection(), rows_max: limit, after };
            query(&args, &Request::Quarantine(options))
        }
        QuarantineCommand::Show { id, query: args } => query(&args, &Request::QuarantineShow { id }),
        QuarantineCommand::Release { to: Some(to), act: ActArgs { acting, server } } => match acting.copy(to) {
            Ok(request) => ask(&server, &request),
            Err(why) => usage(&why),
        },
        QuarantineCommand::Release { to: None, act: command } => act(Verb::QuarantineRelease, command),
        QuarantineCommand::Delete(command) => act(Verb::QuarantineDelete, command),
    }
}

fn serve(config: Option<&Path>) -> ExitCode {
    match load(config) {
        Ok(config) => {
            logging::start(config.log.level);
            print_warnings(&config.warnings);
            process::serve(config)
        }
        Err(code) => code,
    }
}

fn print_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        eprintln!("{warning}");
    }
}

fn suspend(
    suspended: bool,
    SuspendArgs { subject, server }: SuspendArgs,
    for_s: Option<u64>,
    dry_run: bool,
) -> ExitCode {
    let (what, reason) = match subject.subject() {
        Ok(found) => found,
        Err(why) => return usage(&why),
    };
    ask(&server, &Request::Suspend { suspended, what, reason, for_s, dry_run })
}

fn queue_only(QueueOnly { for_s, end, show, dry_run, reason, what, server }: QueueOnly) -> ExitCode {
    if show {
        let render = |reply: &ControlReply| match reply {
            ControlReply::Status(status) => render::queue_only(status),
            other => shown(other),
        };
        return query_with(&QueryArgs::once(server), &Request::Status, render);
    }
    match what.scope() {
        Ok(scope) => ask(&server, &Request::QueueOnly { scope, is_on: !end, for_s, dry_run, reason }),
        Err(why) => usage(&why),
    }
}

fn bounce(BounceArgs { for_s, end, show, act: ActArgs { acting, server } }: BounceArgs) -> ExitCode {
    if show {
        let render = |reply: &ControlReply| match reply {
            ControlReply::Status(status) => render::standing_bounces(status),
            other => shown(other),
        };
        return query_with(&QueryArgs::once(server), &Request::Status, render);
    }
    let standing = match (for_s, end) {
        (Some(for_s), _) => BounceTerm::For(for_s),
        (None, true) => BounceTerm::End,
        (None, false) => return act(Verb::Bounce, ActArgs { acting, server }),
    };
    match acting.standing(standing) {
        Ok(request) => ask(&server, &request),
        Err(why) => usage(&why),
    }
}

fn act(verb: Verb, ActArgs { acting, server }: ActArgs) -> ExitCode {
    match acting.request(verb) {
        Ok(request) => ask(&server, &request),
        Err(why) => usage(&why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_subcommand_leads_to_the_likely_one() {
        let hint = |words: &[&str]| {
            let error = command().try_get_matches_from([&["stentor"], words].concat()).unwrap_err();
            with_hint(error, words.first().copied()).to_string()
        };
        for (words, likely) in [
            (["queue", "0CX8M4H00000"], "stentor queue show 0CX8M4H00000"),
            (["mailq", "0CX8M4H00000"], "stentor queue show 0CX8M4H00000"),
            (["quarantine", "0CX8M4H00000"], "stentor quarantine show 0CX8M4H00000"),
            (["post", "0CX8M4H00000"], "stentor report 0CX8M4H00000"),
            (["tls", "x.example"], "stentor tls check x.example"),
            (["journal", "/"], "stentor journal verify /"),
            (["config", "/proc/version"], "stentor config show --config /proc/version"),
            (["policy", "/proc/version"], "stentor policy replay --config /proc/version"),
        ] {
            let text = hint(&words);
            assert!(text.contains(&format!("did you mean `{likely}`?")), "{text}");
            assert!(command().try_get_matches_from(likely.split(' ')).is_ok(), "{likely}");
        }
        for words in [["queue", "ann@x.example"], ["user", "ann"], ["tls", "chekc"]] {
            assert!(!hint(&words).contains("did you mean `"), "{words:?}");
        }
    }
}
