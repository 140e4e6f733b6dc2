//! The client side of the control socket: blocking, since a command has nothing else to do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::Problem;
use super::protocol::{Assembler, Request};
use super::reply::ControlReply;

/// Longest wait for data from the server.
const ANSWER_MS_MAX: u64 = 30_000;
/// Longest wait for actions on mail, which commit batch after batch.
const VERB_MS_MAX: u64 = 3_600_000;
/// Maximum octets of a reply's line; the server's lines are far shorter.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("{}", unreachable(path, source))]
    Connect { path: PathBuf, source: io::Error },
    #[error("the server did not answer: {0}")]
    Io(#[from] io::Error),
    /// The caller could not write a line.
    #[error("{0}")]
    Output(io::Error),
    #[error("{0}")]
    Protocol(String),
    /// The server's refusal.
    #[error("{0}")]
    Refused(Problem),
}

/// Why the server cannot be reached, and what to do about it.
fn unreachable(path: &Path, source: &io::Error) -> String {
    let path = path.display();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no server is running: {path}: {source}; start one with `stentor serve`")
        }
        io::ErrorKind::PermissionDenied => format!("{path}: {source}; run this as root or as the server's user"),
        _ => format!("no reply from the server at {path}: {source}"),
    }
}

/// A connection to a running server.
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(path: &Path) -> Result<Client, ControlError> {
        let stream =
            UnixStream::connect(path).map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
        let limit = Some(Duration::from_millis(ANSWER_MS_MAX));
        stream.set_read_timeout(limit)?;
        stream.set_write_timeout(limit)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sets the timeout to that of an action on the whole queue.
    pub fn be_patient(&mut self) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(Duration::from_millis(VERB_MS_MAX)))
    }

    /// Sends a request and waits for the whole reply; [`ControlReply::Error`] is returned as
    /// [`ControlError::Refused`].
    pub fn ask(&mut self, request: &Request) -> Result<ControlReply, ControlError> {
        self.ask_lines(request, &mut |_| Ok(()))
    }

    /// Waits `limit` longer than usual for data from the server.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(limit + Duration::from_millis(ANSWER_MS_MAX)))
    }

    /// As [`Client::ask`]; `line` receives each line as it comes, without its end (`--json`).
    pub fn ask_lines(
        &mut self,
        request: &Request,
        line: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<ControlReply, ControlError> {
        // Even after a failed write, a reply may be there: the server may refuse before it has read everything.
        let sent = self.stream.get_mut().write_all(request.to_line().as_bytes());
        let mut reply = Assembler::default();
        loop {
            let mut text = String::new();
            let n = self.stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut text)?;
            let Some(text) = text.strip_suffix('\n') else {
                sent?;
                let why = if n as u64 == LINE_BYTES_MAX {
                    "the server's reply is too long"
                } else {
                    "the server closed the connection"
                };
                return Err(ControlError::Protocol(why.to_owned()));
            };
            line(text).map_err(ControlError::Output)?;
            match reply.push(text).map_err(ControlError::Protocol)? {
                None => {}
                Some(ControlReply::Error(problem)) => return Err(ControlError::Refused(problem)),
                Some(reply) => return Ok(reply),
            }
        }
    }
}
