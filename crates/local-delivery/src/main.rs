//! `stentor-deliver`: delivers mail to mailboxes and programs of this machine, for `stentor`. It reads the command
//! line and maps errors to exit codes; lib.rs describes the rest.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stentor_local_delivery::{CONFIG, Config, ConfigError, agent, log, supervisor, worker};

const HELP: &str = "\
Deliver mail from stentor to mailboxes and programs on this machine.

Usage: stentor-deliver [--config FILE] [--check]

  --config FILE  configuration file [default: /etc/stentor/deliver.toml]
  --check        check the configuration, print errors, and exit
  --version      print the version
  --help         print this help
";
/// Exit codes: invalid command line; invalid configuration (sysexits(3)).
const USAGE: u8 = 2;
const WRONG_CONFIG: u8 = 78;

enum Command {
    Run,
    Check,
    /// Serves the connection on standard input; started by a running `stentor-deliver`.
    Worker(String),
}

fn main() -> ExitCode {
    let mut file = PathBuf::from(CONFIG);
    let mut command = Command::Run;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), &mut arguments) {
            ("--check", _) => command = Command::Check,
            ("--help" | "-h", _) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            ("--version" | "-V", _) => {
                println!("stentor-deliver {}", env!("CARGO_PKG_VERSION"));
                return ExitCode::SUCCESS;
            }
            ("--config", rest) => match rest.next() {
                Some(name) => file = name.into(),
                None => return usage("--config needs a file"),
            },
            (worker::ARGUMENT, rest) => match rest.next() {
                Some(name) => command = Command::Worker(name),
                None => return usage("missing service name"),
            },
            (other, _) => return usage(&format!("unknown argument {other:?}")),
        }
    }
    run(&command, file)
}

fn run(command: &Command, file: PathBuf) -> ExitCode {
    let done = match command {
        Command::Check => Config::read(&file).and_then(|(config, _)| check(&config, &file)),
        Command::Worker(name) => match worker::config(&file) {
            Ok(config) => return ended(worker::run(&config, name)),
            Err(error) => Err(error),
        },
        Command::Run => match Config::read(&file) {
            Ok((config, text)) => return ended(supervisor::run(&config, file, &text)),
            Err(error) => Err(error),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refused(&error),
    }
}

/// Also checks the files that services read during deliveries.
fn check(config: &Config, file: &Path) -> Result<(), ConfigError> {
    for (name, service) in &config.services {
        let wrong = |what| ConfigError::Wrong { path: file.into(), what: format!("service {name}: {what}") };
        agent::check(service).map_err(wrong)?;
    }
    let mut cannot_run = 0;
    for (name, service) in &config.services {
        let (shown, more) = agent::missing(service);
        cannot_run += shown.len() + more;
        for what in shown {
            eprintln!("service {name}: {what}");
        }
        if more > 0 {
            eprintln!("service {name}: and {more} more");
        }
    }
    // Other aliases must still be delivered, so the service has to start.
    match cannot_run {
        0 => println!("{}: the configuration is valid", file.display()),
        1 => println!("{}: the configuration is valid, but 1 alias program cannot be run", file.display()),
        n => println!("{}: the configuration is valid, but {n} alias programs cannot be run", file.display()),
    }
    Ok(())
}

fn refused(error: &ConfigError) -> ExitCode {
    log::error(&error.to_string());
    ExitCode::from(WRONG_CONFIG)
}

fn ended<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("stentor-deliver: {what}\n\n{HELP}");
    ExitCode::from(USAGE)
}
