//! The server side of the control socket.
//!
//! Each connection: read a line (at most [`REQUEST_BYTES_MAX`], within [`IDLE_MS_MAX`]), ask the [`Control`], write the
//! reply, repeat. A malformed request is answered with an error and the connection continues; a line that is too long,
//! or a peer that neither writes nor reads, ends it; a reader of a stream (an export, content, snapshots, sessions) may
//! pause for [`STREAM_WAIT`]. During a stop no connection is accepted, but a request in progress still gets its answer.

use std::fs;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stentor_queue::ids::MessageId;
use stentor_records::now::TrafficLine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::observe::{Observe, TrafficOptions};
use super::problem::ErrorCode;
use super::protocol::{
    Part, REQUEST_BYTES_MAX, Request, content_line, envelope_line, snapshot_line, to_lines, traffic_line,
};
use super::reply::{ControlReply, EnvelopeView};
use super::selection::Selection;
use crate::snapshot::{Snapshot, WatchOptions};

/// Maximum connections; one more is answered `busy`.
pub const CONNECTIONS_MAX: usize = 16;
/// Timeout of a connection without a complete request.
const IDLE_MS_MAX: u64 = 30_000;
/// Timeout of a peer that does not read its reply.
const REPLY_WAIT: Duration = Duration::from_secs(10);
/// Timeout of a stream's reader, which may be a pager or a slow program.
const STREAM_WAIT: Duration = Duration::from_mins(10);
/// Longest wait for answers in progress during a stop.
const DRAIN_MS_MAX: u64 = 2_000;
/// Pause after a failed `accept`, most likely for lack of descriptors.
const ACCEPT_PAUSE_MS: u64 = 200;
/// Groups of envelope lines buffered for a slow peer.
const EXPORT_GROUPS_MAX: usize = 2;

/// The author of a request, for the journal's audit records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Requester {
    /// A process at the control socket, as the kernel identifies it.
    Process { uid: u32, pid: Option<i32> },
    /// A caller over HTTP: `user=NAME` or `token=NAME`.
    Http { who: Arc<str>, address: IpAddr },
}

/// Carries out the requests: the running server, or a test double.
pub trait Control: Send + Sync + 'static {
    /// Answers one request. Refusals are [`ControlReply::Error`].
    fn handle(&self, request: Request, peer: Requester) -> impl Future<Output = ControlReply> + Send;

    /// Called when a connection is refused because there are too many.
    fn turned_away(&self) {}

    /// Called when a connection is closed because its peer did not read.
    fn reader_stalled(&self, _waited: Duration) {}

    /// Answers an export: sends envelopes to `lines` at the peer's pace, then replies. A closed channel means that the
    /// peer has left.
    fn export(
        &self,
        _selection: Selection,
        _lines: mpsc::Sender<Vec<EnvelopeView>>,
    ) -> impl Future<Output = ControlReply> + Send {
        async { ControlReply::error(ErrorCode::Failed, "export is not available here") }
    }

    /// Sends a message's content to `pieces` at the peer's pace, then replies. A closed channel means that the peer has
    /// left.
    fn cat(
        &self,
        _id: MessageId,
        _part: Part,
        _peer: Requester,
        _pieces: mpsc::Sender<Vec<u8>>,
    ) -> impl Future<Output = ControlReply> + Send {
        async { ControlReply::error(ErrorCode::Failed, "message contents are not available here") }
    }

    /// Sends the commands and replies of sessions to a watcher; a closed channel means that it has left.
    fn traffic(
        &self,
        _options: TrafficOptions,
        _peer: Requester,
        _lines: mpsc::Sender<Vec<TrafficLine>>,
    ) -> impl Future<Output = ControlReply> + Send {
        async { ControlReply::error(ErrorCode::Failed, "sessions are not available here") }
    }

    /// Takes snapshots for a watcher; a closed channel means that it has left.
    fn watch(
        &self,
        _options: WatchOptions,
        _snapshots: mpsc::Sender<Snapshot>,
    ) -> impl Future<Output = ControlReply> + Send {
        async { ControlReply::error(ErrorCode::Failed, "watching is not available here") }
    }
}

/// A bound socket; dropping it removes the file.
pub struct ControlServer {
    listener: UnixListener,
    file: SocketFile,
}

/// The socket's name, and its inode so that a successor's socket is not removed.
struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl ControlServer {
    /// Binds `path` with mode 0600; replaces the socket of a stopped server. Needs a tokio runtime.
    ///
    /// # Errors
    /// `AddrInUse` if a server answers there or the path is not a socket; else the system's error (for a path over 107
    /// bytes, too).
    pub fn bind(path: &Path) -> io::Result<ControlServer> {
        remove_stale(path)?;
        // Bound under another name and renamed, so that the socket never has a wider mode under its own name.
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        if fs::symlink_metadata(&new).is_ok_and(|m| m.file_type().is_socket()) {
            fs::remove_file(&new)?;
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        let file = SocketFile { path: path.to_owned(), inode: inode(path) };
        Ok(ControlServer { listener, file })
    }

    /// Serves until `stop` resolves; returns when the last answer is sent.
    pub async fn serve<C: Control>(self, control: Arc<C>, stop: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((mut stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                continue;
            };
            let Ok(permit) = permits.clone().try_acquire_owned() else {
                control.turned_away();
                // Best effort without waiting: the kernel's buffer has space for this line.
                let _ = stream.try_write(refusal(ErrorCode::Busy, "too many control connections").as_bytes());
                continue;
            };
            let (control, stopped) = (control.clone(), stopped.clone());
            connections.spawn(async move {
                if let Err(ConnectionEnd::Stalled(waited)) = converse(&mut stream, &*control, stopped).await {
                    control.reader_stalled(waited);
                }
                drop(permit);
            });
        }
        drop((self.listener, self.file));
        // If no receiver is left, there is nothing to stop.
        let _ = stopping.send(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(Duration::from_millis(DRAIN_MS_MAX), drained).await;
    }
}

/// Why a connection ended early.
enum ConnectionEnd {
    /// The peer left; there is nobody to report to.
    Gone,
    /// The peer did not read for this long.
    Stalled(Duration),
}

impl From<io::Error> for ConnectionEnd {
    fn from(_: io::Error) -> ConnectionEnd {
        ConnectionEnd::Gone
    }
}

async fn converse<C: Control>(
    stream: &mut UnixStream,
    control: &C,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ConnectionEnd> {
    let credentials = stream.peer_cred()?;
    let uid = credentials.uid();
    let peer = Requester::Process { uid, pid: credentials.pid() };
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return send(stream, &refusal(ErrorCode::Forbidden, "not the server's user"), REPLY_WAIT).await;
    }
    let mut input = Vec::new();
    loop {
        let line = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return Ok(()),
            line = timeout(Duration::from_millis(IDLE_MS_MAX), read_line(stream, &mut input)) => line,
        };
        let reply = match line {
            Err(_) | Ok(Ok(LineInput::End)) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(LineInput::TooLong)) => {
                let text = format!("the request is longer than {REQUEST_BYTES_MAX} bytes");
                return send(stream, &refusal(ErrorCode::TooLarge, &text), REPLY_WAIT).await;
            }
            Ok(Ok(LineInput::Complete(line))) => match Request::parse(&line) {
                Ok(Request::Export { selection }) => export(stream, control, selection).await?,
                Ok(Request::Observe(Observe::Watch(options))) => {
                    let (sender, snapshots) = mpsc::channel(1);
                    let reply = control.watch(options, sender);
                    write_stream(stream, reply, snapshots, snapshot_line, &mut stopped).await?
                }
                Ok(Request::Observe(Observe::Traffic(options))) => {
                    let (sender, lines) = mpsc::channel(1);
                    let reply = control.traffic(options, peer.clone(), sender);
                    write_stream(stream, reply, lines, traffic_line, &mut stopped).await?
                }
                Ok(Request::Cat { id, part }) => {
                    let (sender, pieces) = mpsc::channel(1);
                    let reply = control.cat(id, part, peer.clone(), sender);
                    write_stream(stream, reply, pieces, |piece| content_line(&piece), &mut stopped).await?
                }
                Ok(request) => control.handle(request, peer.clone()).await,
                Err(problem) => ControlReply::Error(problem),
            },
        };
        for line in to_lines(reply) {
            send(stream, &line, REPLY_WAIT).await?;
        }
    }
}

/// Writes envelopes as they come, so that none waits in memory for a peer that does not read.
async fn export<C: Control>(
    stream: &mut UnixStream,
    control: &C,
    selection: Selection,
) -> Result<ControlReply, ConnectionEnd> {
    let (lines, mut groups) = mpsc::channel(EXPORT_GROUPS_MAX);
    let reply = control.export(selection, lines);
    // The receiver is dropped after a failed write, so that the walk does not wait for it.
    let writing = async move {
        while let Some(group) = groups.recv().await {
            for envelope in group {
                send(stream, &envelope_line(envelope), STREAM_WAIT).await?;
            }
        }
        Ok::<(), ConnectionEnd>(())
    };
    let (reply, written) = tokio::join!(reply, writing);
    written.map(|()| reply)
}

/// Writes items as lines until their sender ends, the peer leaves or the server stops; then returns the reply.
async fn write_stream<T>(
    stream: &mut UnixStream,
    reply: impl Future<Output = ControlReply>,
    mut items: mpsc::Receiver<T>,
    line: impl Fn(T) -> String,
    stopped: &mut watch::Receiver<bool>,
) -> Result<ControlReply, ConnectionEnd> {
    // The receiver is dropped after a failed write or a stop, so that the sender ends.
    let writing = async move {
        loop {
            let item = tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return Ok(()),
                item = items.recv() => item,
            };
            let Some(item) = item else { return Ok::<(), ConnectionEnd>(()) };
            send(stream, &line(item), STREAM_WAIT).await?;
        }
    };
    let (reply, written) = tokio::join!(reply, writing);
    written.map(|()| reply)
}

enum LineInput {
    Complete(Vec<u8>),
    TooLong,
    End,
}

/// Reads the next line, without its end; `input` keeps what follows. Cancel-safe: only complete reads count.
async fn read_line(stream: &mut UnixStream, input: &mut Vec<u8>) -> io::Result<LineInput> {
    let mut searched = 0;
    loop {
        if let Some(i) = input[searched..].iter().position(|b| *b == b'\n') {
            let rest = input.split_off(searched + i + 1);
            let mut line = std::mem::replace(input, rest);
            line.pop();
            return Ok(LineInput::Complete(line));
        }
        searched = input.len();
        if searched >= REQUEST_BYTES_MAX {
            return Ok(LineInput::TooLong);
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(LineInput::End);
        }
    }
}

/// Writes for as long as the peer reads something within `wait`.
async fn send(stream: &mut UnixStream, text: &str, wait: Duration) -> Result<(), ConnectionEnd> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match timeout(wait, stream.write(rest)).await {
            Ok(Ok(0)) => return Err(ConnectionEnd::Gone),
            Ok(written) => rest = &rest[written?..],
            Err(_) => return Err(ConnectionEnd::Stalled(wait)),
        }
    }
    Ok(())
}

fn refusal(code: ErrorCode, text: &str) -> String {
    to_lines(ControlReply::error(code, text)).concat()
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let in_use = |why: &str| io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {why}", path.display()));
    if !metadata.file_type().is_socket() {
        return Err(in_use("exists and is not a socket; remove it, or set another `socket` in [control]"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(in_use("another server uses it; stop that server, or set another `socket` in [control]")),
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}
