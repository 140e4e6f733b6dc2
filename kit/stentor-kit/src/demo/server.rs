//! The server of the demo: `stentor serve` as a separate process, queried as an operator would.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::DemoError;

const PROGRAM: &str = "stentor";
const CONFIGURATION: &str = "stentor.toml";
const LOG: &str = "stentor.log";
/// The server's name and the list's domain (`LIST_ADDRESS`); the lab does not serve it, so no subscriber is in it.
const HOSTNAME: &str = "lists.demo.invalid";
/// From the start to the first answer of the control socket.
const START_MAX: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(20);
/// Lines of its log that are shown when it does not start.
const LOG_LINES_SHOWN: usize = 10;

/// Killed when dropped: hosts that hang would hold an orderly stop up for minutes, and what is acknowledged is on the
/// disk.
pub struct Server {
    program: PathBuf,
    folder: PathBuf,
    child: Child,
    pub address: SocketAddr,
    pub version: String,
}

/// `--server`, or the server beside this program, or the one in `PATH`.
fn program(asked: Option<&Path>) -> PathBuf {
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    asked.map(Path::to_owned).or_else(beside).unwrap_or_else(|| PROGRAM.into())
}

impl Server {
    /// Starts it in this folder, where `subscribers` is; returns when it answers. As shipped, but for where the lab is.
    pub fn start(
        asked: Option<&Path>,
        folder: &Path,
        list_address: &str,
        dns: SocketAddr,
        smtp_port: u16,
    ) -> Result<Server, DemoError> {
        let program = program(asked);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DemoError::File { path, source }
        };
        let address = free_address().map_err(failed(folder))?;
        let text = format!(
            "hostname = \"{HOSTNAME}\"\ndata_dir = \"data\"\n\
             [http]\nlisten = []\n[listen]\nsmtp = [\"{address}\"]\n\
             [lists.demo]\naddress = \"{list_address}\"\nsubscribers = \"subscribers\"\n\
             owner = \"owner@example.org\"\npost = \"anyone\"\n\
             [dns]\nservers = [\"{dns}\"]\nloopback_allowed = true\n\
             [delivery]\nsmtp_port = {smtp_port}\n\
             [log]\nattempts = \"attempts.log\"\n"
        );
        let configuration = folder.join(CONFIGURATION);
        std::fs::write(&configuration, text).map_err(failed(&configuration))?;
        let log_path = folder.join(LOG);
        let log = std::fs::File::create(&log_path).map_err(failed(&log_path))?;
        let child = Command::new(&program)
            .args(["serve", "--config"])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| no_program(&program, error))?;
        let mut server = Server { program, folder: folder.to_owned(), child, address, version: String::new() };
        let status = server.wait_until_it_answers()?;
        status["version"].as_str().unwrap_or_default().clone_into(&mut server.version);
        Ok(server)
    }

    fn wait_until_it_answers(&mut self) -> Result<Value, DemoError> {
        let end = Instant::now() + START_MAX;
        loop {
            let answer = self.ask(&["status"]);
            let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
            match answer {
                Ok(status) => return Ok(status),
                Err(_) if !has_ended && Instant::now() < end => std::thread::sleep(START_PAUSE),
                Err(error) => {
                    let log = std::fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
                    let lines: Vec<&str> = log.lines().collect();
                    let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
                    return Err(DemoError::Server(format!("it did not start: {error}\n{last}")));
                }
            }
        }
    }

    /// What `stentor WORDS --json` says: the data of its first line, with the rows of further ones under their names
    /// (docs/operate/control-protocol.md).
    pub fn ask(&self, words: &[&str]) -> Result<Value, DemoError> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--json").arg("--config").arg(self.folder.join(CONFIGURATION)).stdin(Stdio::null());
        let path = self.program.clone();
        let output = command.output().map_err(|source| DemoError::File { path, source })?;
        if !output.status.success() {
            return Err(DemoError::Server(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let no_reply = |error: serde_json::Error| DemoError::Server(format!("stentor {}: {error}", words.join(" ")));
        let mut whole = Value::Null;
        for line in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
            let mut line = line.map_err(no_reply)?;
            let data = line["data"].take();
            match line["reply"].as_str() {
                Some(name) if whole.is_object() => whole[name] = data,
                _ => whole = data,
            }
        }
        Ok(whole)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn no_program(program: &Path, error: std::io::Error) -> DemoError {
    if error.kind() == std::io::ErrorKind::NotFound && program == Path::new(PROGRAM) {
        return DemoError::Server(
            "stentor not found beside this program or in PATH; build it (cargo build --release -p stentor) or set \
             --server"
                .to_owned(),
        );
    }
    DemoError::File { path: program.to_owned(), source: error }
}

fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.local_addr()
}
