//! The overview of commands, completions and manual pages. The last two are made from the definitions of the command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};

use crate::asking::fail;

/// `stentor --help`: commands in groups, most used first. One screen.
pub(crate) const OVERVIEW: &str = "\
{about-with-newline}
{usage-heading} {usage}

Run:
  serve             Run the server
  check             Check a configuration file
  reload, stop      Read the configuration again; stop in an orderly way
Watch:
  queue             What is queued, in total and by site; or one message
  realstat          Rates now; full screen on a terminal
  report            What happened to posts: delivered, waiting, failed
  trace             Everything that happened to a message or a recipient
  doctor            What is wrong or has happened, and what to do about it
  status            The server at a glance
  mailqq            Messages by number of recipients waiting
  latedudes         Recipients and sites by number of messages waiting
  hosts, site       Hosts and sites: history, retry clocks, last replies
  address           One address: lists, waiting messages, history
Act (most take --dry-run, to count first):
  suspend, resume   Stop mail of a list or sender, or to a site, until resumed
  hold, release     Keep selected messages back until released
  bounce, remove    Give up on recipients, with or without a bounce
  requeue, flush    Try again now
  post              Pause, resume or cancel a post in mid-delivery
Statistics (from the history, or from any MTA's log):
  mailstat          Table by hour, day, list, domain, host or source
  batchstat         Chart of a day
Set up:
  http-password     Hash a password for the console
  http-token        Create a token for the HTTP API
  journal           Verify, dump or salvage the journal of a stopped server
  completions, man  Shell completions; manual pages
  help              Help on a command

Options:
{options}
";

/// Commands of `stentor-kit` that users may look for here.
const MOVED: [&str; 4] = ["demo", "lab", "probe", "iotrace"];

#[derive(Args)]
pub(crate) struct Man {
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The hint for a user who calls a command of `stentor-kit` as one of `stentor`.
pub fn moved(command: &str) -> Option<String> {
    MOVED.contains(&command).then(|| {
        format!(
            "stentor: `{command}` is a command of the measuring kit: run `stentor-kit {command}` (build it with \
             `cargo build --release -p stentor-kit`)"
        )
    })
}

pub(crate) fn completions(mut command: Command, shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "stentor", &mut script);
    done(io::stdout().write_all(&script))
}

pub(crate) fn man(command: Command, options: &Man) -> ExitCode {
    let Some(dir) = &options.dir else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(command).render(&mut page);
        return done(made.and_then(|()| io::stdout().write_all(&page)));
    };
    done(write_pages(command, dir))
}

fn write_pages(command: Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}

fn done(result: io::Result<()>) -> ExitCode {
    result.map_or_else(|error| fail(&error.to_string()), |()| ExitCode::SUCCESS)
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
        let mut names: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        let mut listed = listed();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, names);
        let help = Cli::command().term_width(80).render_help().to_string();
        assert!(help.lines().count() <= 40, "{}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
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
