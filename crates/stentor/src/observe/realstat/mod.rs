//! `stentor realstat`: current rates. Prints rows if standard output is not a terminal, otherwise fills the screen.
//!
//! A thread reads snapshots with the verb `watch` ([`feed`]); it reconnects if the connection is lost, until the user
//! quits. The picture depends on snapshots and keys alone ([`app`], [`view`]).

mod app;
mod feed;
mod keys;
mod plain;
mod screen;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use stentor_control::WatchOptions;
use stentor_logfiles::From;

use super::from;
use crate::asking::{ServerArgs, streamed};

/// Seconds between rows.
const ROWS_INTERVAL_S: f64 = 15.0;
/// Seconds between pictures on a terminal.
const SCREEN_INTERVAL_S: f64 = 1.0;

#[derive(Args)]
pub struct Options {
    /// Seconds between rows [default: 15; full screen: 1].
    #[arg(long, short, value_name = "SECONDS", value_parser = interval)]
    interval: Option<f64>,
    /// Stop after N rows.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Only posts of this list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Only this site: its name as `stentor queue` shows it, or a domain that it serves.
    #[arg(long)]
    site: Option<String>,
    /// Print rows even on a terminal.
    #[arg(long)]
    plain: bool,
    /// Read logs instead of asking a server: one row per interval.
    #[command(flatten)]
    logs: From,
    #[command(flatten)]
    server: ServerArgs,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.1..=3_600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.1 to 3600 seconds".to_owned()) }
}

pub fn run(options: Options) -> ExitCode {
    if options.logs.is_given() {
        let interval_ms = (options.interval.unwrap_or(ROWS_INTERVAL_S) * 1_000.0) as u64;
        return from::realstat(&options.logs, interval_ms, options.count, options.server.json);
    }
    let socket: PathBuf = match options.server.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    let is_screen = std::io::stdout().is_terminal() && !options.plain && !options.server.json;
    let seconds = options.interval.unwrap_or(if is_screen { SCREEN_INTERVAL_S } else { ROWS_INTERVAL_S });
    let watch = WatchOptions {
        interval_ms: (seconds * 1_000.0) as u64,
        count: options.count.unwrap_or(0),
        list: options.list,
        site: options.site,
        ..WatchOptions::default()
    };
    if is_screen {
        return match screen::run(socket, watch) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => options.server.fail(&why),
        };
    }
    streamed(&options.server, plain::run(&socket, watch, options.server.json))
}
