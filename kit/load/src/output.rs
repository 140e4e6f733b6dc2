//! The output options of a command that is run only once: load for somebody's server is not repeated automatically.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use stentor_measure::OutputArgs;

/// [`OutputArgs`] with one run as the default.
#[derive(Clone, Debug)]
pub struct OnceArgs(pub OutputArgs);

impl Args for OnceArgs {
    fn augment_args(command: Command) -> Command {
        OutputArgs::augment_args(command).mut_arg("runs", |runs| runs.default_value("1"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OnceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        OutputArgs::from_arg_matches(matches).map(OnceArgs)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}
