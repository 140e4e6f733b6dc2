//! How commands find the configuration, reach the running server, and report failure.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use stentor_config::{self as config, Config, Diagnostic, Places};
use stentor_control::format::Width;
use stentor_control::{
    Client, ClientError, ErrorCode, HostsOptions, Observe, Problem, Reply, ReportOptions, Request, Selection, protocol,
    render,
};
use stentor_stats::escape::{lines, printable, without_traps};

use crate::hints::Given;
use crate::output::{is_closed, print, repeat};
use crate::paint::Colour;
use crate::progress::Progress;
use stentor_logfiles::zone;

/// Exit code of a command that was understood and failed.
const FAILED: u8 = 1;
/// Exit code of a command whose selectors or names match nothing.
const NOTHING: u8 = 3;
/// Exit code of a reload that left out keys which take a restart.
const NEEDS_RESTART: u8 = 4;
/// Exit code of a command line whose options do not go together, as clap's.
const USAGE: u8 = 2;
/// Exit code of a configuration with errors (as sysexits' `EX_CONFIG`).
pub(crate) const CONFIGURATION: u8 = 78;
/// Where the configuration is if neither the command line nor the environment says so.
const DEFAULT_PATH: &str = "/etc/stentor/stentor.toml";
/// The environment variable that names it.
const VARIABLE: &str = "STENTOR_CONFIG";
/// What `--watch` alone means.
pub(crate) const WATCH_S_DEFAULT: &str = "2";
/// A line of the server's own words.
const TEXT_BYTES_MAX: usize = 2_000;

/// How a running server is reached.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// The server's configuration, which names its control socket [default: `$STENTOR_CONFIG`, else
    /// /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The control socket itself.
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
    /// Print the reply as JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    colour: Colour,
}

/// As [`ServerArgs`], of a command that changes nothing and can be repeated.
#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Print again every so many seconds, until Ctrl-C [default: 2].
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = WATCH_S_DEFAULT, value_parser = watch_s)]
    watch: Option<u64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// The value of `--watch`.
pub(crate) fn watch_s(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if (1..=86_400).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("1 to 86400 seconds".to_owned()),
        Err(_) => Err("not a number of seconds; names come before --watch".to_owned()),
    }
}

impl QueryArgs {
    /// A single time.
    pub(crate) fn once(server: ServerArgs) -> QueryArgs {
        QueryArgs { watch: None, server }
    }
}

impl ServerArgs {
    /// Where the server listens; else the code to exit with, and why has been said.
    pub(crate) fn socket(&self) -> Result<PathBuf, ExitCode> {
        match (&self.socket, &self.config) {
            (Some(socket), _) => Ok(socket.clone()),
            (None, path) => {
                let (Places { socket, .. }, has_errors) = places_noting(path.as_deref())?;
                if has_errors && server_at(&socket) == ServerState::Stopped {
                    let why = format!(
                        "no server is running at {}: correct the error above, then start one with `stentor serve`",
                        socket.display()
                    );
                    return Err(self.fail(&why));
                }
                Ok(socket)
            }
        }
    }

    /// The same, without a word about errors elsewhere in the file: the server is asked to read it, and says them.
    fn socket_unchecked(&self) -> Result<PathBuf, ExitCode> {
        let places = match self.socket {
            Some(_) => None,
            None => config::places(&locate(self.config.as_deref())?),
        };
        places.map_or_else(|| self.socket(), |places| Ok(places.socket))
    }

    /// What commands in hints must be given too.
    pub(crate) fn given(&self) -> Given {
        Given { config: self.config.clone(), socket: self.socket.clone() }
    }

    /// Says why on standard error, with commands that can be pasted.
    pub(crate) fn fail(&self, why: &str) -> ExitCode {
        fail(&self.given().complete(why))
    }
}

/// Says why on standard error.
pub fn fail(why: &str) -> ExitCode {
    eprintln!("stentor: {}", lines(why));
    ExitCode::from(FAILED)
}

/// The same where what was named is not there.
pub(crate) fn nothing(why: &str) -> ExitCode {
    eprintln!("stentor: {}", lines(why));
    ExitCode::from(NOTHING)
}

/// The same where options do not go together.
pub(crate) fn usage(why: &str) -> ExitCode {
    eprintln!("stentor: {}", lines(why));
    ExitCode::from(USAGE)
}

/// What names the configuration.
pub(crate) fn named_by(given: Option<&Path>) -> &'static str {
    match (given, std::env::var_os(VARIABLE)) {
        (Some(_), _) => "--config",
        (None, Some(value)) if !value.is_empty() => VARIABLE,
        _ => "the default",
    }
}

/// Where the configuration is; else the code to exit with, and why has been said.
pub(crate) fn locate(given: Option<&Path>) -> Result<PathBuf, ExitCode> {
    locate_by("--config", given)
}

/// The same where another option names it.
pub(crate) fn locate_by(option: &str, given: Option<&Path>) -> Result<PathBuf, ExitCode> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    located(option, given, variable, Path::new(DEFAULT_PATH)).map_err(|why| {
        eprintln!("stentor: {why}");
        ExitCode::from(CONFIGURATION)
    })
}

/// The flag, else the environment variable, else the default if it is there. One that is named need not exist: reading it
/// says what is wrong with it.
fn located(option: &str, given: Option<&Path>, variable: Option<PathBuf>, default: &Path) -> Result<PathBuf, String> {
    if let Some(path) = given.map(Path::to_owned).or(variable) {
        return Ok(path);
    }
    match default.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "no configuration: name one with {option} FILE, set {VARIABLE}, or create {}",
            default.display()
        )),
        _ => Ok(default.to_owned()),
    }
}

/// The checked configuration, or what is wrong with it said on standard error.
pub fn load(path: Option<&Path>) -> Result<Config, ExitCode> {
    config::check(&locate(path)?).map_err(|diagnostics| wrong(&diagnostics))
}

/// The same where another option names it.
pub(crate) fn load_by(option: &str, path: Option<&Path>) -> Result<Config, ExitCode> {
    config::check(&locate_by(option, path)?).map_err(|diagnostics| wrong(&diagnostics))
}

/// The same, with the place of every key.
pub(crate) fn load_noting(path: Option<&Path>) -> Result<Config, ExitCode> {
    let noted = config::check_noting(&locate(path)?).map_err(|diagnostics| wrong(&diagnostics))?;
    Ok(Config { settings: noted.1, ..noted.0 })
}

/// Where the server's data and control socket are. Errors elsewhere in the file are said on standard error and keep nobody
/// from a running server.
pub(crate) fn places(path: Option<&Path>) -> Result<Places, ExitCode> {
    places_noting(path).map(|(places, _)| places)
}

/// The same, and whether the file has errors.
fn places_noting(path: Option<&Path>) -> Result<(Places, bool), ExitCode> {
    let path = locate(path)?;
    let diagnostics = match config::check(&path) {
        Ok(config) => return Ok((Places { data_dir: config.data_dir, socket: config.control.socket }, false)),
        Err(diagnostics) => diagnostics,
    };
    let code = wrong(&diagnostics);
    let places = config::places(&path).ok_or(code)?;
    eprintln!("stentor: the configuration has errors; asking the server at {}", places.socket.display());
    Ok((places, true))
}

/// What can be said of a server from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerState {
    Running,
    Stopped,
    /// We cannot look.
    Unknown,
}

/// Whether a server takes connections there.
pub(crate) fn server_at(socket: &Path) -> ServerState {
    match Client::connect(socket) {
        Err(ClientError::Connect { source, .. }) => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
                ServerState::Stopped
            }
            // Its queue of clients is full.
            io::ErrorKind::WouldBlock => ServerState::Running,
            _ => ServerState::Unknown,
        },
        _ => ServerState::Running,
    }
}

/// Says on standard error what is wrong with the configuration.
pub(crate) fn wrong(diagnostics: &[Diagnostic]) -> ExitCode {
    for diagnostic in diagnostics {
        eprintln!("{}", lines(&diagnostic.to_string()));
    }
    ExitCode::from(CONFIGURATION)
}

/// As wide as the terminal; whole where there is none.
pub(crate) fn width() -> Width {
    if !io::stdout().is_terminal() {
        return Width::UNCUT;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(Width::LEAST, |size| Width::of_terminal(size.ws_col.into()))
}

/// A reply for people.
pub(crate) fn shown(reply: &Reply) -> String {
    render::reply_in(reply, &zone::local(), width())
}

/// Asks once, or again and again.
pub(crate) fn query(args: &QueryArgs, request: &Request) -> ExitCode {
    query_with(args, request, shown)
}

/// The same, shown in a form of the caller's unless it is wanted as JSON.
pub(crate) fn query_with(args: &QueryArgs, request: &Request, show: impl Fn(&Reply) -> String) -> ExitCode {
    repeat(args.watch, !args.server.json, || {
        let is_found = asked(&args.server, request, &show)?;
        // Whoever watches waits for something to come.
        if is_found || args.watch.is_some() { Ok(()) } else { Err(ExitCode::from(NOTHING)) }
    })
}

pub(crate) fn ask(server: &ServerArgs, request: &Request) -> ExitCode {
    match asked(server, request, &shown) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOTHING),
        Err(code) => code,
    }
}

/// Asks and shows: whether something matches. `Err` is the code to end with: success where the reader has gone.
fn asked(server: &ServerArgs, request: &Request, show: &dyn Fn(&Reply) -> String) -> Result<bool, ExitCode> {
    let socket = if let Request::Reload = request { server.socket_unchecked()? } else { server.socket()? };
    let mut client = Client::connect(&socket).map_err(|error| {
        let moved = match request {
            Request::Reload | Request::Stop if server.socket.is_none() => {
                "; if data_dir or [control] socket has just changed, name the old socket with --socket"
            }
            _ => "",
        };
        server.fail(&format!("{error}{moved}"))
    })?;
    if matches!(
        request,
        Request::Act { .. }
            | Request::Bounce { .. }
            | Request::QueueOnly { .. }
            | Request::QueueRun { .. }
            | Request::Export { .. }
    ) {
        client.be_patient().map_err(|error| fail(&error.to_string()))?;
    }
    let asked = if server.json {
        client.ask_lines(request, &mut |line| writeln!(io::stdout(), "{}", without_traps(line)))
    } else if let Request::Export { .. } = request {
        export(&mut client, request)
    } else {
        let progress = Progress::start(&socket, request);
        let reply = client.ask(request);
        drop(progress);
        reply.and_then(|reply| {
            // A view says itself what is not there.
            if !matches!(&reply, Reply::Counted(_)) || !matches_nothing(request, &reply) {
                print(&server.colour.paint(server.given().complete(&show(&reply)))).map_err(ClientError::Output)?;
            }
            Ok(reply)
        })
    };
    match asked {
        Ok(reply) if matches_nothing(request, &reply) => {
            if matches!(reply, Reply::Counted(_)) && !server.json {
                eprintln!("stentor: nothing matches");
            }
            Ok(false)
        }
        Ok(_) => Ok(true),
        Err(ClientError::Refused(problem)) => Err(refused(server, &problem)),
        // Whoever read it has seen enough.
        Err(ClientError::Output(error)) if is_closed(&error) => Err(ExitCode::SUCCESS),
        Err(error) => Err(server.fail(&error.to_string())),
    }
}

/// Whether mail was selected, or a part of it asked for, and there is none.
fn matches_nothing(request: &Request, reply: &Reply) -> bool {
    let is_narrow = match request {
        Request::Act { .. } => true,
        Request::Export { selection } => *selection != Selection::default(),
        Request::Quarantine(options) => options.selection != Selection::default(),
        Request::Flush { site, .. } => site.is_some(),
        Request::Queue(view)
        | Request::QueueStuck(view)
        | Request::Observe(Observe::Ages(view) | Observe::Report(ReportOptions { view, .. })) => view.is_narrow(),
        Request::Observe(Observe::Hosts(HostsOptions { view, page })) => view.is_narrow() || page.name.is_some(),
        Request::Observe(Observe::Mailqq(options)) => options.is_narrow(),
        _ => false,
    };
    let is_empty = match reply {
        Reply::Counted(counted) => counted.matches_nothing(),
        Reply::Done { count, .. } => *count == Some(0),
        Reply::Queue(queue) => queue.messages == 0,
        Reply::Stuck(stuck) => stuck.recipients.is_empty() && stuck.sites.is_empty() && !stuck.is_counting,
        Reply::Ages(ages) => ages.recipients == 0 && ages.counted.is_some(),
        Reply::Hosts(hosts) => hosts.matching == 0,
        // Else there are more to be looked at.
        Reply::Mailqq(mailqq) => mailqq.rows.is_empty() && mailqq.stopped_after.is_none(),
        Reply::Posts(posts) => posts.rows.is_empty(),
        Reply::Quarantine(quarantine) => quarantine.rows.is_empty(),
        _ => false,
    };
    is_narrow && is_empty
}

/// What the server does not do, in its words.
fn refused(server: &ServerArgs, problem: &Problem) -> ExitCode {
    if !server.json {
        let lines: Vec<String> = problem.text.lines().map(|line| printable(line, TEXT_BYTES_MAX)).collect();
        server.fail(&lines.join("\n"));
    }
    ExitCode::from(match problem.code {
        ErrorCode::NotFound => NOTHING,
        ErrorCode::BadRequest => USAGE,
        ErrorCode::NeedsRestart => NEEDS_RESTART,
        ErrorCode::BadConfiguration => CONFIGURATION,
        _ => FAILED,
    })
}

/// The end of an answer that went to standard output as it came.
pub(crate) fn streamed(server: &ServerArgs, result: Result<(), ClientError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(ClientError::Refused(problem)) => refused(server, &problem),
        // Whoever read it has seen enough.
        Err(ClientError::Output(error)) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => server.fail(&error.to_string()),
    }
}

/// Envelopes go to standard output as they come, the sum to standard error.
fn export(client: &mut Client, request: &Request) -> Result<Reply, ClientError> {
    let mut output = std::io::BufWriter::new(io::stdout().lock());
    let reply = client.ask_lines(request, &mut |line| match protocol::envelope_of(line) {
        Some(envelope) => writeln!(output, "{envelope}"),
        None => Ok(()),
    })?;
    output.flush().map_err(ClientError::Output)?;
    eprint!("{}", render::reply(&reply, &zone::local()));
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_comes_before_the_variable_and_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let default = folder.path().join("stentor.toml");
        let (flag, variable) = (Path::new("flag.toml"), || Some(PathBuf::from("variable.toml")));
        assert_eq!(located("--config", Some(flag), variable(), &default), Ok(flag.to_owned()));
        assert_eq!(located("--config", None, variable(), &default), Ok("variable.toml".into()));
        let why = located("--config", None, None, &default).unwrap_err();
        for place in ["--config FILE", "STENTOR_CONFIG", "stentor.toml"] {
            assert!(why.contains(place), "{why}");
        }
        std::fs::write(&default, "").unwrap();
        let why = located("--against", None, None, Path::new("/nowhere/stentor.toml")).unwrap_err();
        assert!(why.starts_with("no configuration: name one with --against FILE,"), "{why}");
        assert_eq!(located("--config", None, None, &default), Ok(default));
    }
}
