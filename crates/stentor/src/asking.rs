//! How commands find the configuration, reach the running server, and report failure.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use stentor_config::{self as config, Config, Diagnostic, Places};
use stentor_control::format::Width;
use stentor_control::{
    Client, ControlError, ControlReply, ErrorCode, HostsOptions, Observe, Problem, ReportOptions, Request, Selection,
    SuppressionRequest, protocol, render,
};
use stentor_history::StoryQuery;
use stentor_logfiles::zone;
use stentor_queue::ids::MessageId;
use stentor_records::escape::{lines, printable, without_traps};
use stentor_records::trace::MessageTrace;

use crate::hints::ServerReference;
use crate::output::{is_closed, print, repeat};
use crate::paint::Colour;
use crate::progress::Progress;

/// Exit code of a command that was understood and failed.
const FAILED: u8 = 1;
/// Exit code of a command whose selectors or names matched nothing.
const NOTHING: u8 = 3;
/// Exit code of a reload that skipped keys which need a restart.
const NEEDS_RESTART: u8 = 4;
/// Exit code for options that conflict, as clap's.
const USAGE: u8 = 2;
/// Exit code for a configuration with errors (sysexits' `EX_CONFIG`).
pub(crate) const CONFIGURATION: u8 = 78;
/// The configuration's path if neither the command line nor the environment names one.
pub(crate) const DEFAULT_PATH: &str = "/etc/stentor/stentor.toml";
/// The environment variable that names the configuration.
const VARIABLE: &str = "STENTOR_CONFIG";
/// Default value of `--watch`.
pub(crate) const WATCH_S_DEFAULT: &str = "2";
/// Maximum length of a line of text from the server.
const TEXT_BYTES_MAX: usize = 2_000;

/// How a running server is reached.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// The server's configuration; names its control socket [default: `$STENTOR_CONFIG`, else
    /// /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The control socket itself; the configuration is not read.
    #[arg(long, value_name = "PATH")]
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
    /// Repeat every SECONDS, until Ctrl-C [default: 2].
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = WATCH_S_DEFAULT, value_parser = watch_s)]
    watch: Option<u64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Parses the value of `--watch`.
pub(crate) fn watch_s(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if (1..=86_400).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be from 1 to 86400 seconds".to_owned()),
        Err(_) => Err("not a number of seconds; put names before --watch".to_owned()),
    }
}

impl QueryArgs {
    /// Wraps the options for a single query.
    pub(crate) fn once(server: ServerArgs) -> QueryArgs {
        QueryArgs { watch: None, server }
    }
}

impl ServerArgs {
    /// The path of the control socket. If it cannot be found, reports why and returns the exit code.
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
                    self.fail(&why);
                    return Err(ExitCode::from(CONFIGURATION));
                }
                Ok(socket)
            }
        }
    }

    /// As [`Self::socket`], without reporting errors elsewhere in the file: the server reads the file and reports them
    /// itself.
    fn socket_unchecked(&self) -> Result<PathBuf, ExitCode> {
        let places = match self.socket {
            Some(_) => None,
            None => config::places(&locate(self.config.as_deref())?),
        };
        places.map_or_else(|| self.socket(), |places| Ok(places.socket))
    }

    /// The history's directory: that of the configuration, or beside the socket.
    fn history(&self) -> Option<PathBuf> {
        let data_dir = match (&self.socket, &self.config) {
            (Some(socket), None) => socket.parent()?.to_owned(),
            (_, config) => config::places(&locate(config.as_deref()).ok()?)?.data_dir,
        };
        Some(data_dir.join("history"))
    }

    /// A message that is neither queued nor quarantined: what the history has of it, and the command that shows it.
    pub(crate) fn left(&self, id: MessageId, problem: Problem) -> Problem {
        if problem.code != ErrorCode::NotFound || problem.text.contains('`') {
            return problem;
        }
        let id = id.to_string();
        let known = self.history().and_then(|dir| state_of(&dir, &id));
        let text = match known {
            Some(state) => format!("{}; the history has it: {state}; see `stentor trace {id}`", problem.text),
            None => format!("{}; `stentor trace {id}` searches the history", problem.text),
        };
        Problem { text, ..problem }
    }

    /// The options to repeat in commands that hints print.
    pub(crate) fn given(&self) -> ServerReference {
        ServerReference { config: self.config.clone(), socket: self.socket.clone() }
    }

    /// Prints the error to standard error, with commands that can be pasted.
    pub(crate) fn fail(&self, why: &str) -> ExitCode {
        fail(&self.given().complete(why))
    }
}

/// Why a command fails.
pub enum CommandError {
    Reason(String),
    /// The reason has been printed.
    Reported(ExitCode),
}

impl CommandError {
    /// Prints the reason unless that was done, and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            CommandError::Reason(why) => fail(&why),
            CommandError::Reported(code) => code,
        }
    }
}

impl From<String> for CommandError {
    fn from(why: String) -> CommandError {
        CommandError::Reason(why)
    }
}

/// Prints the error to standard error.
pub fn fail(why: &str) -> ExitCode {
    eprintln!("stentor: {}", lines(why));
    ExitCode::from(FAILED)
}

/// As [`fail`], for names that do not exist.
pub(crate) fn nothing(why: &str) -> ExitCode {
    eprintln!("stentor: {}", lines(why));
    ExitCode::from(NOTHING)
}

/// As [`fail`], for options that conflict.
pub(crate) fn usage(why: &str) -> ExitCode {
    eprintln!("stentor: {}", lines(why));
    ExitCode::from(USAGE)
}

/// Says which source named the configuration.
pub(crate) fn named_by(given: Option<&Path>) -> &'static str {
    match (given, std::env::var_os(VARIABLE)) {
        (Some(_), _) => "--config",
        (None, Some(value)) if !value.is_empty() => VARIABLE,
        _ => "the default",
    }
}

/// The path of the configuration. If there is none, reports why and returns the exit code.
pub(crate) fn locate(given: Option<&Path>) -> Result<PathBuf, ExitCode> {
    locate_by("--config", given)
}

/// As [`locate`], if another option names the configuration.
pub(crate) fn locate_by(option: &str, given: Option<&Path>) -> Result<PathBuf, ExitCode> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    located(option, given, variable, Path::new(DEFAULT_PATH)).map_err(|why| {
        eprintln!("stentor: {why}");
        ExitCode::from(CONFIGURATION)
    })
}

/// The path of the configuration that `given` or this machine names, without a report if there is none.
pub(crate) fn configured_path(given: Option<&Path>) -> Option<PathBuf> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    located("--config", given, variable, Path::new(DEFAULT_PATH)).ok()
}

/// The path from the flag, else from the environment variable, else the default path if it exists. An explicit path
/// need not exist: reading it reports the error.
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

/// The checked configuration; prints any errors to standard error.
pub fn load(path: Option<&Path>) -> Result<Config, ExitCode> {
    config::check(&locate(path)?).map_err(|diagnostics| wrong(&diagnostics))
}

/// As [`load`], if another option names the configuration.
pub(crate) fn load_by(option: &str, path: Option<&Path>) -> Result<Config, ExitCode> {
    config::check(&locate_by(option, path)?).map_err(|diagnostics| wrong(&diagnostics))
}

/// As [`load`], also recording the place of every key.
pub(crate) fn load_noting(path: Option<&Path>) -> Result<Config, ExitCode> {
    let noted = config::check_noting(&locate(path)?).map_err(|diagnostics| wrong(&diagnostics))?;
    Ok(Config { settings: noted.1, ..noted.0 })
}

/// The paths of the server's data and control socket. Errors elsewhere in the file are printed, but do not prevent
/// access to a running server.
pub(crate) fn places(path: Option<&Path>) -> Result<Places, ExitCode> {
    places_noting(path).map(|(places, _)| places)
}

/// As [`places`], also returning whether the file has errors.
fn places_noting(path: Option<&Path>) -> Result<(Places, bool), ExitCode> {
    let path = locate(path)?;
    let diagnostics = match config::check_alone(&path) {
        Ok(config) => return Ok((Places { data_dir: config.data_dir, socket: config.control.socket }, false)),
        Err(diagnostics) => diagnostics,
    };
    let code = wrong(&diagnostics);
    let places = config::places(&path).ok_or(code)?;
    eprintln!("stentor: the configuration has errors; asking the server at {}", places.socket.display());
    Ok((places, true))
}

/// The server's state, as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerState {
    Running,
    Stopped,
    /// This user may not look.
    Unknown,
}

/// Whether a server accepts connections on this socket.
pub(crate) fn server_at(socket: &Path) -> ServerState {
    match Client::connect(socket) {
        Err(ControlError::Connect { source, .. }) => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
                ServerState::Stopped
            }
            // The backlog is full, so a server is listening.
            io::ErrorKind::WouldBlock => ServerState::Running,
            _ => ServerState::Unknown,
        },
        _ => ServerState::Running,
    }
}

/// Prints the configuration's errors to standard error.
pub(crate) fn wrong(diagnostics: &[Diagnostic]) -> ExitCode {
    for diagnostic in diagnostics {
        eprintln!("{}", lines(&diagnostic.to_string()));
    }
    ExitCode::from(CONFIGURATION)
}

/// The terminal's width; unlimited if there is no terminal.
pub(crate) fn width() -> Width {
    if !io::stdout().is_terminal() {
        return Width::UNCUT;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(Width::LEAST, |size| Width::of_terminal(size.ws_col.into()))
}

/// Formats a reply for people.
pub(crate) fn shown(reply: &ControlReply) -> String {
    render::reply_in(reply, &zone::local(), width())
}

/// Sends the request once, or repeatedly with `--watch`.
pub(crate) fn query(args: &QueryArgs, request: &Request) -> ExitCode {
    query_with(args, request, shown)
}

/// As [`query`], but formats the reply with `show` unless JSON was requested.
pub(crate) fn query_with(args: &QueryArgs, request: &Request, show: impl Fn(&ControlReply) -> String) -> ExitCode {
    repeat(args.watch, !args.server.json, || {
        let is_found = asked(&args.server, request, &show)?;
        // With `--watch` an empty answer is fine: something may still come.
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

/// Sends the request and prints the reply; returns whether anything matched. `Err` is the exit code: success if
/// standard output was closed.
fn asked(server: &ServerArgs, request: &Request, show: &dyn Fn(&ControlReply) -> String) -> Result<bool, ExitCode> {
    let socket = if let Request::Reload = request { server.socket_unchecked()? } else { server.socket()? };
    let mut client = Client::connect(&socket).map_err(|error| {
        let moved = match request {
            Request::Reload | Request::Stop if server.socket.is_none() => {
                "; if data_dir or [control] socket was just changed, name the old socket with --socket"
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
            // Views report missing items themselves.
            if !matches!(&reply, ControlReply::Counted(_)) || !matches_nothing(request, &reply) {
                print(&server.colour.paint(server.given().complete(&show(&reply)))).map_err(ControlError::Output)?;
            }
            Ok(reply)
        })
    };
    match asked {
        Ok(reply) if matches_nothing(request, &reply) => {
            if matches!(reply, ControlReply::Counted(_)) && !server.json {
                eprintln!("stentor: nothing matches");
            }
            Ok(false)
        }
        Ok(_) => Ok(true),
        Err(ControlError::Refused(problem)) => Err(refused(
            server,
            &match request {
                Request::QueueShow { id, .. } | Request::QuarantineShow { id } => server.left(*id, problem),
                Request::Suppression(SuppressionRequest::Add(_)) if problem.code == ErrorCode::NotFound => {
                    let hint = "(`--force` adds entries for a list that is not configured yet)";
                    Problem { text: format!("{} {hint}", problem.text), ..problem }
                }
                _ => problem,
            },
        )),
        // The reader closed the pipe.
        Err(ControlError::Output(error)) if is_closed(&error) => Err(ExitCode::SUCCESS),
        Err(error) => Err(server.fail(&error.to_string())),
    }
}

/// Whether the request selected something and nothing matched.
fn matches_nothing(request: &Request, reply: &ControlReply) -> bool {
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
        Request::Suppression(SuppressionRequest::List(options)) => options.is_narrow(),
        _ => false,
    };
    let is_empty = match reply {
        ControlReply::Counted(counted) => counted.matches_nothing(),
        ControlReply::Done { count, .. } => *count == Some(0),
        ControlReply::Queue(queue) => queue.messages == 0,
        ControlReply::Stuck(stuck) => stuck.recipients.is_empty() && stuck.sites.is_empty() && !stuck.is_counting,
        ControlReply::Ages(ages) => ages.recipients == 0 && ages.counted.is_some(),
        ControlReply::Hosts(hosts) => hosts.matching == 0,
        // Otherwise there are more messages to examine.
        ControlReply::Mailqq(mailqq) => mailqq.rows.is_empty() && mailqq.stopped_after.is_none(),
        ControlReply::Posts(posts) => posts.rows.is_empty(),
        ControlReply::Quarantine(quarantine) => quarantine.rows.is_empty(),
        ControlReply::Suppressions(list) => list.rows.is_empty(),
        ControlReply::Members(table) => table.rows.is_empty(),
        _ => false,
    };
    is_narrow && is_empty
}

/// Reports a request that the server refused, in its words.
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

/// The state of a message according to the history, in words.
fn state_of(history: &Path, id: &str) -> Option<String> {
    let reader = stentor_history::Reader::open(history).ok()?;
    let query = StoryQuery { what: id, is_sender: false, from: 0, pending: &[], messages_max: 1 };
    let (story, _) = stentor_history::story(&reader, &query).ok()?;
    story.messages.iter().find(|message| message.id == id).map(MessageTrace::state)
}

/// Finishes a reply that was streamed to standard output.
pub(crate) fn streamed(server: &ServerArgs, result: Result<(), ControlError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(ControlError::Refused(problem)) => refused(server, &problem),
        // The reader closed the pipe.
        Err(ControlError::Output(error)) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => server.fail(&error.to_string()),
    }
}

/// Streams envelopes to standard output and prints the total to standard error.
fn export(client: &mut Client, request: &Request) -> Result<ControlReply, ControlError> {
    let mut output = std::io::BufWriter::new(io::stdout().lock());
    let reply = client.ask_lines(request, &mut |line| match protocol::envelope_of(line) {
        Some(envelope) => writeln!(output, "{envelope}"),
        None => Ok(()),
    })?;
    output.flush().map_err(ControlError::Output)?;
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
