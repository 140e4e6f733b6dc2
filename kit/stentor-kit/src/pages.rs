//! Completions and manual pages, made from the definitions of the command line.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};

use crate::fail;

#[derive(Args)]
pub(crate) struct Man {
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(mut command: Command, shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "stentor-kit", &mut script);
    done(io::stdout().write_all(&script))
}

pub(crate) fn man(command: Command, options: &Man) -> ExitCode {
    let Some(dir) = &options.dir else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(command).render(&mut page);
        return done(made.and_then(|()| io::stdout().write_all(&page)));
    };
    done(std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir)))
}

fn done(result: io::Result<()>) -> ExitCode {
    result.map_or_else(|error| fail(&error.to_string()), |()| ExitCode::SUCCESS)
}
