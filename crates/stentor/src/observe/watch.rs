//! `stentor watch --site X` or `--client ADDR`: follows the commands and replies of sessions.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use stentor_control::{Client, Observe, Request, TrafficOptions, protocol};
use stentor_logfiles::zone;
use stentor_records::civil::Zone;
use stentor_records::escape::{printable, without_traps};
use stentor_records::now::TrafficLine;
use stentor_records::rates::clock;

use crate::asking::{ServerArgs, streamed, usage};

/// Maximum length of one session line, escaped.
const TEXT_BYTES_MAX: usize = 1_024;

#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("watched").required(true).args(["site", "client"])))]
pub struct Options {
    /// Sessions with a site: its name as `stentor queue` shows it, or a domain that it serves. If none of its hosts is
    /// known yet, as after a restart, the next mail to it may be missed.
    #[arg(long)]
    site: Option<String>,
    /// New sessions of this client.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(options: Options) -> ExitCode {
    let socket = match options.server.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    let zone = zone::local();
    let wanted = match (options.site, options.client) {
        (Some(site), _) => TrafficOptions::Site(site),
        (None, Some(client)) => TrafficOptions::Client(client),
        (None, None) => return usage("name one: --site or --client"),
    };
    let asked = Client::connect(&socket).and_then(|mut client| {
        client.ask_lines(&Request::Observe(Observe::Traffic(wanted)), &mut |line| {
            if options.server.json { writeln!(io::stdout(), "{}", without_traps(line)) } else { print(line, &zone) }
        })
    });
    streamed(&options.server, asked.map(drop))
}

fn print(line: &str, zone: &Zone) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in protocol::traffic_of(line).into_iter().flatten() {
        writeln!(out, "{}", text(&line, zone))?;
    }
    out.flush()
}

/// Formats `10:00:00.123 +0100 17 C: EHLO mx.example.org`: the time, the session's number, the sender and the line.
fn text(line: &TrafficLine, zone: &Zone) -> String {
    let who = match line.kind.as_str() {
        "command" => "C:",
        "reply" => "S:",
        _ => "--",
    };
    let text = printable(&line.text, TEXT_BYTES_MAX);
    let offset_s = i64::from(zone.offset_s((line.at / 1_000).cast_signed()));
    let (time, ms, label) = (clock(line.at, offset_s), line.at % 1_000, zone.label(line.at));
    format!("{time}.{ms:03} {label} {} {who} {text}", line.session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_when_which_and_who() {
        let line = |kind: &str, words: &str| {
            let (kind, words) = (kind.to_owned(), words.to_owned());
            text(&TrafficLine { at: 36_000_123, session: 17, kind, text: words }, &Zone::fixed(3_600))
        };
        assert_eq!(line("command", "EHLO mx"), "11:00:00.123 +0100 17 C: EHLO mx");
        assert_eq!(line("reply", "250 \u{1b}[2J"), "11:00:00.123 +0100 17 S: 250 \\x1b[2J");
        assert_eq!(line("event", "closed"), "11:00:00.123 +0100 17 -- closed");
    }
}
