//! The real binary as a child process.

mod builder;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

pub use builder::Builder;

use crate::{Log, Smtp, stentor, wait_until};

/// A server in a folder of its own; killed when dropped.
pub struct Server {
    folder: PathBuf,
    /// Removes the folder when dropped.
    _temporary: Option<TempDir>,
    child: Option<Child>,
    address: Option<SocketAddr>,
    log: Log,
}

impl Server {
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn prepare(config: &str, files: &[(String, Vec<u8>)], folder: Option<PathBuf>) -> Server {
        let temporary = folder.is_none().then(|| TempDir::new().expect("a temporary folder can be made"));
        let folder = folder.unwrap_or_else(|| temporary.as_ref().map(|t| t.path().to_owned()).unwrap_or_default());
        let server = Server { folder, _temporary: temporary, child: None, address: None, log: Log::default() };
        server.write("stentor.toml", config.as_bytes());
        for (name, octets) in files {
            server.write(name, octets);
        }
        server
    }

    /// The server's folder: `stentor.toml`, `data`, subscribers files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn config(&self) -> PathBuf {
        self.path("stentor.toml")
    }

    /// Puts a file in its place at once, as an editor or a mailing list manager does.
    pub fn write(&self, name: &str, octets: &[u8]) {
        let path = self.path(name);
        let beside = path.with_extension("new");
        std::fs::write(&beside, octets).expect("the folder can be written");
        std::fs::rename(&beside, &path).expect("the folder can be written");
    }

    /// Changes the configuration on the disk; nobody is told.
    pub fn edit_config(&self, edit: impl FnOnce(&str) -> String) {
        let text = std::fs::read_to_string(self.config()).expect("the configuration is there");
        self.write("stentor.toml", edit(&text).as_bytes());
    }

    /// `stentor serve` with this configuration, in this folder, not started yet.
    pub fn command(&self) -> Command {
        let mut command = Command::new(stentor());
        command.arg("serve").arg("--config").arg(self.config()).current_dir(&self.folder).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts it; returns when it listens.
    #[track_caller]
    pub fn run(mut self) -> Server {
        self.start_again();
        self
    }

    /// Starts it again, after a stop or a kill; the port is another.
    #[track_caller]
    pub fn start_again(&mut self) {
        let command = self.command();
        self.start_as(command);
    }

    /// Starts it by a command of the test's own (`prlimit ...`), whose standard error is the server's.
    #[track_caller]
    pub fn start_as(&mut self, command: Command) {
        self.try_start_as(command).unwrap_or_else(|log| panic!("the server does not start:\n{log}"));
    }

    /// Starts it by a command of the test's own; its log if it ends instead of listening.
    pub fn try_start_as(&mut self, command: Command) -> Result<(), String> {
        self.spawn(command);
        let Some(line) = self.log.wait(&["listening", "address="]) else {
            self.kill();
            return Err(self.log.lines().join("\n"));
        };
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        self.address = Some(address.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}")));
        Ok(())
    }

    /// The server's command behind another program (`prlimit`, `strace`), which must end with it.
    pub fn behind(&self, program: &[&str]) -> Command {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(stentor()).args(["serve", "--config"]).arg(self.config());
        command.current_dir(&self.folder).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts it without waiting: it may be meant to fail.
    pub fn spawn(&mut self, mut command: Command) {
        assert!(self.child.is_none(), "it runs already");
        let mut child = command.spawn().expect("the binary can be run");
        self.log = Log::follow(child.stderr.take().expect("standard error is piped"));
        self.child = Some(child);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("it was started")
    }

    /// Where one of `[listen]` is: `smtps`, `submission`.
    #[track_caller]
    pub fn address_of(&self, service: &str) -> SocketAddr {
        let line = self.wait_log(&["listening", "address=", &format!("service=\"{service}\"")]);
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// What this run wrote to standard error (the attempt log too, unless it was sent elsewhere).
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Waits for a line of the log that holds all parts.
    #[track_caller]
    pub fn wait_log(&self, parts: &[&str]) -> String {
        match self.log.wait(parts) {
            Some(line) => line,
            None => panic!("the server ended without {parts:?}:\n{}", self.log.lines().join("\n")),
        }
    }

    /// A trusted client behind its EHLO.
    pub fn smtp(&self) -> Smtp {
        self.connect().greeted()
    }

    /// A trusted client that has read nothing yet.
    pub fn connect(&self) -> Smtp {
        Smtp::connect(self.address())
    }

    /// A client at another address of 127.0.0.0/8 (`127.0.0.2`: not trusted), that has read nothing yet.
    pub fn connect_from(&self, from: &str) -> Smtp {
        Smtp::connect_from(self.address(), from.parse::<IpAddr>().expect("an address"))
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a child's id is not 0");
        rustix::process::kill_process(pid, signal).expect("the server runs");
    }

    /// Stops all of its threads, and waits until they stand: the signal alone returns before that.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        crate::wait_until("every thread stands", || {
            let tasks = std::fs::read_dir(&tasks).expect("the server runs");
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                // `pid (name) state ...`; a thread that has ended has no file.
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
            })
        });
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM; returns when it has ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit()
    }

    /// Waits until it has ended.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let mut status = None;
        wait_until("the server ends", || {
            status = child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Whether the process is there.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Resident memory in KiB: `VmRSS` or, over the life of the process, `VmHWM`.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let text = line.unwrap_or_else(|| panic!("no {field}")).trim().trim_end_matches(" kB");
        text.parse().expect("a number")
    }

    /// A command of the operator (`["queue", "show", ID]`), as text.
    pub fn operator(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(stentor());
        command.args(arguments).arg("--config").arg(self.config()).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).output().expect("the binary can be run")
    }

    /// The same: what it prints, standard output before standard error.
    pub fn operator_text(&self, arguments: &[&str]) -> String {
        let output = self.operator(arguments);
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// The same with `--json`: its lines, one value each.
    #[track_caller]
    pub fn operator_json(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let output = self.operator(&arguments);
        let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        assert!(!lines.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        // 3: it was done, and nothing matched.
        let is_done = matches!(output.status.code(), Some(0 | 3));
        assert!(lines[0]["ok"] == true && is_done || !output.status.success(), "{lines:?}");
        lines
    }

    /// The reply's data, its rows put together; `Err` holds the problem.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, Value> {
        let lines = self.operator_json(arguments);
        let mut data = lines[0]["data"].clone();
        for line in &lines[1..] {
            let kind = line["reply"].as_str().expect("a reply has a kind");
            let rows = line["data"].as_array().expect("rows").iter().cloned();
            match data[kind].as_array_mut() {
                Some(array) => array.extend(rows),
                None => data[kind] = rows.collect(),
            }
        }
        if lines[0]["ok"] == true { Ok(data) } else { Err(data) }
    }

    /// `stentor status`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.ask(&["status"]).expect("the server answers")
    }

    /// `stentor queue`.
    #[track_caller]
    pub fn queue(&self) -> Value {
        self.ask(&["queue"]).expect("the server answers")
    }

    /// What became of recipients so far: `fates()["delivered"]`.
    #[track_caller]
    pub fn fates(&self) -> Value {
        self.status()["recipients"].clone()
    }

    /// Waits until nothing is queued.
    #[track_caller]
    pub fn wait_empty(&self) {
        wait_until("the queue is empty", || self.status()["messages"] == 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}\n---", self.log.lines().join("\n"));
        }
    }
}
