//! The lab's measuring commands: `stentor-kit lab source`, `sink`, `hold`, `limit` and `compare`.

use clap::Subcommand;
use stentor_measure::MeasureError;

use crate::error::LoadError;

#[derive(Subcommand, Debug)]
pub enum Measure {
    /// Serve a sink of a chosen model, with or without a store, and report what it received.
    #[command(after_help = "\
Examples:
  stentor-kit lab sink 127.0.0.1:2525                                      # until Ctrl-C, then the report
  stentor-kit lab sink 127.0.0.1-127.0.0.8:2525 --model pool --threads 32 --delay-ms dot=200
  stentor-kit lab sink --store /var/tmp/mail --store-as journal --copies 100000 --every 1")]
    Sink(Box<crate::SinkArgs>),
    /// Hold very many connections and send over some, to find the limits of a server or a source address.
    #[command(after_help = "\
Examples:
  stentor-kit lab hold 127.0.0.1:2525 --connections 10000 --messages 5000
  stentor-kit lab hold 127.0.0.1-127.0.0.8:2525 --connections 60000 --bind 127.0.1.1-127.0.1.4")]
    Hold(crate::HoldArgs),
    /// Send load and report rates, times by step, and errors by code.
    #[command(after_help = "\
Examples:
  stentor-kit lab source 127.0.0.1:2525 --messages 5000 --connections 20
  stentor-kit lab source 127.0.0.1:2525 --seconds 60 --rate 500 --poisson --out results --plot
  stentor-kit lab source mx1:25 mx2:25 --message ~/Maildir --bind 127.0.0.2-127.0.0.50")]
    Source(Box<crate::load::SourceArgs>),
    /// Measure the maximum messages per hour of this machine, with minimal work per message.
    #[command(after_help = "\
Examples:
  stentor-kit lab limit                              # network and protocol only
  stentor-kit lab limit --queue /var/spool           # also with durable messages there
  stentor-kit lab limit mx.example:25 --connections 1,20,100")]
    Limit(crate::limit::LimitArgs),
    /// Send the same work through several mail servers in turn: rates, CPU, memory, writes, syncs.
    #[command(after_help = "\
Examples:
  stentor-kit lab compare          # Stentor, and Postfix if it is installed and this is root
  stentor-kit lab compare stentor postfix --queue /mnt/ext4 --queue /mnt/xfs --sync both
  stentor-kit lab compare stentor my-exim.toml --sessions both --messages 5000 --out results --plot
  stentor-kit lab compare --contestant name=old,target=127.0.0.1:25,pid=812 --sink 127.0.0.1:2526")]
    Compare(Box<crate::compare::CompareArgs>),
}

/// Runs to the end or to Ctrl-C. Blocks: not to be called within an asynchronous runtime.
pub fn run(command: Measure) -> Result<(), MeasureError> {
    match command {
        Measure::Sink(options) => match crate::run_sink(&options) {
            // Who read what it says wants no more.
            Err(LoadError::Io(error) | LoadError::Lab(stentor_lab::LabError::Io(error)))
                if error.kind() == std::io::ErrorKind::BrokenPipe =>
            {
                Ok(())
            }
            outcome => outcome.map_err(MeasureError::from),
        },
        Measure::Hold(options) => Ok(crate::run_hold(&options)?),
        Measure::Source(options) => crate::load::run_source(&options),
        Measure::Limit(options) => crate::limit::run_limit(&options),
        Measure::Compare(options) => crate::compare::run_compare(&options),
    }
}
