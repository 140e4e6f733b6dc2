//! How commands reach the running server, and how they report failure.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use stentor_config::{self as config, Config};
use stentor_control::{Client, ClientError, Reply, Request, protocol, render};

/// Exit code of a command that was understood and failed.
const FAILED: u8 = 1;
/// Exit code of a configuration with errors (as sysexits' `EX_CONFIG`).
const CONFIGURATION: u8 = 78;

/// How a running server is reached.
#[derive(Args)]
pub(crate) struct Asking {
    /// The server's configuration, which names its control socket.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The control socket itself.
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
    /// Print the reply as JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Asking {
    /// Where the server listens; else the code to exit with, and why has been said.
    pub(crate) fn socket(&self) -> Result<PathBuf, ExitCode> {
        match (&self.socket, &self.config) {
            (Some(socket), _) => Ok(socket.clone()),
            (None, path) => load(path.as_deref()).map(|config| config.control.socket),
        }
    }
}

/// Says why on standard error.
pub fn fail(why: &str) -> ExitCode {
    eprintln!("stentor: {why}");
    ExitCode::from(FAILED)
}

/// The checked configuration, or what is wrong with it said on standard error.
pub fn load(path: Option<&Path>) -> Result<Config, ExitCode> {
    let loaded = match path {
        Some(path) => config::check(path),
        None => config::without_file(),
    };
    loaded.map_err(|diagnostics| {
        for diagnostic in &diagnostics {
            eprintln!("{diagnostic}");
        }
        ExitCode::from(CONFIGURATION)
    })
}

pub(crate) fn ask(asking: &Asking, request: &Request) -> ExitCode {
    ask_with(asking, request, render::reply)
}

/// Asks, and shows the answer in a form of the caller's unless it is wanted as JSON.
pub(crate) fn ask_with(asking: &Asking, request: &Request, show: impl Fn(&Reply) -> String) -> ExitCode {
    let socket = match asking.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    let mut client = match Client::connect(&socket) {
        Ok(client) => client,
        Err(error) => return fail(&error.to_string()),
    };
    if matches!(request, Request::Act { .. } | Request::Export { .. })
        && let Err(error) = client.be_patient()
    {
        return fail(&error.to_string());
    }
    let asked = if asking.json {
        client.ask_lines(request, &mut |line| writeln!(std::io::stdout(), "{line}"))
    } else if let Request::Export { .. } = request {
        export(&mut client, request)
    } else {
        client.ask(request).inspect(|reply| print!("{}", show(reply)))
    };
    match asked {
        Ok(_) => ExitCode::SUCCESS,
        Err(ClientError::Refused(_)) if asking.json => ExitCode::from(FAILED),
        Err(error) => fail(&error.to_string()),
    }
}

/// Envelopes go to standard output as they come, the sum to standard error.
fn export(client: &mut Client, request: &Request) -> Result<Reply, ClientError> {
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    let reply = client.ask_lines(request, &mut |line| match protocol::envelope_of(line) {
        Some(envelope) => writeln!(output, "{envelope}"),
        None => Ok(()),
    })?;
    output.flush()?;
    eprint!("{}", render::reply(&reply));
    Ok(reply)
}
