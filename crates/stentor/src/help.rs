//! The overview of commands, completions and manual pages. The last two are generated from the command-line
//! definitions.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use stentor_control::view::{Subject, word};

use crate::output::{done, write};

/// `stentor --help`: commands in groups, most used first. Fits one screen.
pub(crate) const OVERVIEW: &str = "\
{about-with-newline}
{usage-heading} {usage}

Start with: check serve queue stuck site report trace realstat hold flush

Run:
  serve             Run the server
  check, config     Check the configuration; every value and its origin
  reload, stop      Read the configuration again; stop the server cleanly
Watch:
  queue, mailq      What is queued, in total and by site; or one message
  stuck, latedudes  Recipients and sites with most mail waiting; what to do
  site, hosts       One site and why mail waits there; all sites and their hosts
  report            What happened to posts: delivered, waiting, failed
  trace             History of a message or a recipient
  realstat          Rates now; full screen on a terminal
  watch             SMTP sessions with a site or of a client, live
  mailqq, address   Messages by recipients waiting; all about one address
  doctor, status    Problems and remedies; the server at a glance
Act (most take --dry-run, to count first):
  suspend, resume   Stop mail of a list or sender, or to a site, until resumed
  flush, requeue    Try again now: a site or everything; selected mail
  hold, release     Hold selected messages until released
  quarantine, suppress  Withheld messages; addresses that get no mail
  bounce, remove    Give up on recipients, with or without a bounce
  queue-only, post  Accept mail without delivering it; pause or cancel a post
Statistics (from the history, or from any MTA's log):
  mailstat          Table by hour, day, list, domain, host or source
  batchstat, bounces, dmarc  Chart of a day; undelivered mail; DMARC reports
Set up:
  explain, policy   What rules do with a recipient; replay of recent mail
  list, member, user  Mailing lists; their members; logins
  http-password, http-token, table, tls, dkim, mime  Console; tables; keys; MIME
  journal           Verify, dump or salvage a stopped journal
  completions, man, help  Shell completions; manual pages; help for a command

Options:
{options}
";

/// The command line as its help shows it: commands with a view list only the rows, orders and limits that they accept,
/// with defaults.
pub(crate) fn with_views(command: Command) -> Command {
    let views = [
        ("queue", Subject::Queue),
        ("site", Subject::Site),
        ("hosts", Subject::Hosts),
        ("latedudes", Subject::Stuck),
        ("report", Subject::Report),
    ];
    views.into_iter().fold(command, |all, (name, view)| all.mut_subcommand(name, |command| fitted(command, view)))
}

fn fitted(command: Command, view: Subject) -> Command {
    let words = |words: Vec<String>| words.join(", ");
    let rows = words(view.rows().iter().map(word).collect());
    let orders = words(view.all_orders().iter().map(word).collect());
    let row = match view.rows().len() {
        1 => format!("What each row shows: {rows}"),
        _ if view == Subject::Stuck => format!("What each row shows: {rows} [default: both]"),
        _ => format!("What each row shows: {rows} [default: {}]", view.rows().first().map(word).unwrap_or_default()),
    };
    let newest = || "newest first".to_owned();
    let order =
        format!("Order of rows: {orders} [default: {}]", view.default_sort(None).as_ref().map_or_else(newest, word));
    command
        .mut_arg("by", |arg| arg.help(row).hide(rows.is_empty()))
        .mut_arg("site", |arg| arg.hide(!view.takes_site()))
        .mut_arg("sort", |arg| arg.help(order).hide(orders.is_empty()).hide_possible_values(true))
        .mut_arg("limit", |arg| {
            arg.help(format!("Number of rows [default: {}]", view.default_rows())).hide(orders.is_empty())
        })
}

/// Commands of `stentor-kit` that users may look for here.
const MOVED: [&str; 4] = ["demo", "lab", "probe", "iotrace"];

#[derive(Args)]
pub(crate) struct Man {
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The hint for a user who runs a command of `stentor-kit` as one of `stentor`.
pub fn moved(command: &str) -> Option<String> {
    MOVED.contains(&command).then(|| {
        format!(
            "stentor: `{command}` belongs to the measuring kit: run `stentor-kit {command}` (build it with `cargo \
             build --release -p stentor-kit`)"
        )
    })
}

pub(crate) fn completions(mut command: Command, shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "stentor", &mut script);
    done(write(&script))
}

pub(crate) fn man(command: Command, options: &Man) -> ExitCode {
    let Some(dir) = &options.dir else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(command).render(&mut page);
        return done(made.and_then(|()| write(&page)));
    };
    done(write_pages(command, dir))
}

fn write_pages(command: Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The names in the first column of the overview.
    fn listed() -> Vec<&'static str> {
        let columns = OVERVIEW.lines().filter(|line| line.starts_with("  ")).map(str::trim_start);
        columns.flat_map(|line| line.split("  ").next().unwrap_or_default().split(", ")).collect()
    }

    #[test]
    fn the_overview_has_each_command_once_and_fits_a_screen() {
        let command = Cli::command();
        let mut names: Vec<&str> = command.get_subcommands().flat_map(Command::get_name_and_visible_aliases).collect();
        names.push("help");
        let mut listed = listed();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, names);
        let help = Cli::command().term_width(80).render_help().to_string();
        assert!(help.lines().count() <= 40, "{}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn help_shows_what_a_command_takes_and_its_defaults() {
        let help = |name: &str| {
            let mut command = crate::cli::command();
            command.find_subcommand_mut(name).unwrap().render_long_help().to_string()
        };
        let (queue, site, hosts, stuck, report) =
            (help("queue"), help("site"), help("hosts"), help("stuck"), help("report"));
        assert!(queue.contains("site, list, age [default: site]") && queue.contains("[default: 50]"), "{queue}");
        assert!(["--by", "--sort", "--limit"].iter().all(|option| !site.contains(option)), "{site}");
        assert!(hosts.contains("failures, latency") && !hosts.contains("messages"), "{hosts}");
        assert!(stuck.contains("recipient, site [default: both]") && stuck.contains("[default: messages]"), "{stuck}");
        assert!(report.contains("[default: newest first]") && !report.contains("--site"), "{report}");
    }

    #[test]
    fn every_command_has_a_page_and_completions() {
        let folder = tempfile::tempdir().unwrap();
        write_pages(Cli::command(), folder.path()).unwrap();
        for name in Cli::command().get_subcommands().map(Command::get_name) {
            assert!(folder.path().join(format!("stentor-{name}.1")).exists(), "{name}");
        }
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "stentor", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(["mailqq", "suspend", "completions"].iter().all(|name| script.contains(name)), "{shell}");
        }
    }

    #[test]
    fn commands_of_the_kit_are_named() {
        assert!(moved("demo").unwrap().contains("stentor-kit demo"));
        assert_eq!(moved("serve"), None);
    }
}
