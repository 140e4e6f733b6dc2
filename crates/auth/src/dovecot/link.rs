//! The connection to Dovecot: the task that owns it, and the requests of sessions.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use stentor_sasl::{Mechanism, Mechanisms};
use stentor_users::SendAs;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::protocol::{
    GivenLimits, Handshake, LINE_BYTES_MAX, Line, LoginFailure, ProtocolError, auth, cancel, go_on, greeting,
};
use crate::channel::Channel;

/// Timeout for connecting and the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a response. Dovecot delays failures by seconds, and by up to 15 s for a client with many.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// First pause between two attempts to connect, doubling.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Interval of checks whether another Dovecot listens at the socket: a stopped one no longer responds, but keeps
/// connections open for half a minute.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum requests in progress; more are refused.
const REQUESTS_MAX: usize = 1_024;
/// Maximum commands waiting to be written.
const COMMANDS_MAX: usize = 256;
const READ_BYTES: usize = 4_096;

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Answer {
    Challenge(Vec<u8>),
    Done { user: String, send_as: Vec<SendAs>, limits: GivenLimits },
    Wrong,
    Locked,
    Unavailable,
}

enum Command {
    /// A line of a request, and the receiver of the response.
    Say {
        id: u32,
        is_first: bool,
        line: String,
        answer: oneshot::Sender<Answer>,
    },
    Cancel {
        id: u32,
    },
}

/// The link, maintained by a task until it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    commands: mpsc::Sender<Command>,
    mechanisms: watch::Receiver<Mechanisms>,
    /// Why there is no connection.
    trouble: watch::Receiver<Option<String>>,
    ids: Arc<AtomicU32>,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    pub fn open(socket: &Path) -> Link {
        let (commands, queue) = mpsc::channel(COMMANDS_MAX);
        let (said, mechanisms) = watch::channel(Mechanisms::NONE);
        let (lost, trouble) = watch::channel(None);
        let keeper =
            Keeper { socket: socket.to_owned(), queue, mechanisms: said, trouble: lost, requests: HashMap::new() };
        let task = tokio::spawn(keeper.run()).abort_handle();
        Link { commands, mechanisms, trouble, ids: Arc::default(), task }
    }

    /// Dovecot's mechanisms that are supported here; empty until it was reached once.
    pub fn mechanisms(&self) -> Mechanisms {
        *self.mechanisms.borrow()
    }

    /// Why there is no connection to Dovecot, since it was lost or failed.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    pub async fn begin(&self, mechanism: Mechanism, channel: &Channel, response: Option<&[u8]>) -> (Request, Answer) {
        // Dovecot needs ids that are unique within a connection; these are unique for longer.
        let id = self.ids.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut request = Request { id, commands: self.commands.clone(), is_open: false };
        let answer = request.say(true, auth(id, mechanism, channel, response)).await;
        (request, answer)
    }
}

/// One exchange; dropping it while open cancels it at Dovecot.
#[derive(Debug)]
pub(crate) struct Request {
    id: u32,
    commands: mpsc::Sender<Command>,
    is_open: bool,
}

impl Request {
    pub async fn go_on(&mut self, response: &[u8]) -> Answer {
        self.say(false, go_on(self.id, response)).await
    }

    /// Marks it as waiting for the client.
    pub fn keep(&mut self) {
        self.is_open = true;
    }

    async fn say(&mut self, is_first: bool, line: String) -> Answer {
        // Open until the response arrives, since the waiting future may be dropped.
        self.is_open = true;
        let (answer, waits) = oneshot::channel();
        let command = Command::Say { id: self.id, is_first, line, answer };
        let answered = timeout(ANSWER_TIMEOUT, async {
            self.commands.send(command).await.ok()?;
            waits.await.ok()
        });
        let answer = answered.await.ok().flatten();
        self.is_open = answer.is_none();
        answer.unwrap_or(Answer::Unavailable)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.is_open {
            // If the queue is full, Dovecot will time out the request itself.
            let _ = self.commands.try_send(Command::Cancel { id: self.id });
        }
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    #[error("Dovecot closed the connection")]
    Closed,
    #[error("another process listens at its socket")]
    Replaced,
    #[error("no reply within {} s", ANSWER_TIMEOUT.as_secs())]
    Silent,
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Unreachable,
    /// The link was dropped.
    #[error("this server is stopping")]
    Unused,
}

/// Octets read, split by line.
#[derive(Default)]
struct Lines {
    octets: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        match self.octets.iter().position(|octet| *octet == b'\n') {
            Some(end) => {
                let line = self.octets.drain(..=end).take(end).collect();
                Ok(Some(line))
            }
            None if self.octets.len() > LINE_BYTES_MAX => Err(ProtocolError::TooLong),
            None => Ok(None),
        }
    }

    /// Reads more; cancel-safe.
    async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), ConnectionError> {
        let mut part = [0; READ_BYTES];
        match stream.read(&mut part).await? {
            0 => Err(ConnectionError::Closed),
            count => {
                self.octets.extend_from_slice(&part[..count]);
                Ok(())
            }
        }
    }
}

struct Keeper {
    socket: PathBuf,
    queue: mpsc::Receiver<Command>,
    mechanisms: watch::Sender<Mechanisms>,
    trouble: watch::Sender<Option<String>>,
    /// Requests in progress on this connection, with the receiver of the response, or `None` while the client must
    /// answer.
    requests: HashMap<u32, Option<oneshot::Sender<Answer>>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut retry = RETRY_MIN;
        loop {
            let lost = match timeout(CONNECT_TIMEOUT, connect(&self.socket)).await {
                Ok(Ok((stream, lines, mechanisms))) => {
                    retry = RETRY_MIN;
                    tracing::info!(socket = %self.socket.display(), %mechanisms, "connected to Dovecot's auth service");
                    self.mechanisms.send_replace(mechanisms);
                    self.trouble.send_replace(None);
                    self.serve(stream, lines).await
                }
                Ok(Err(lost)) => lost,
                Err(_) => ConnectionError::Unreachable,
            };
            // Dropping the senders answers all of them.
            self.requests.clear();
            if matches!(lost, ConnectionError::Unused) {
                return;
            }
            if matches!(lost, ConnectionError::Replaced) {
                continue;
            }
            self.trouble.send_replace(Some(lost.to_string()));
            // Log once per failure, not per attempt.
            if retry == RETRY_MIN {
                tracing::warn!(socket = %self.socket.display(), "Dovecot's auth service is not available: {lost}");
            }
            if !self.wait(Instant::now() + retry).await {
                return;
            }
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Refuses commands until this time; returns false when the link is dropped.
    async fn wait(&mut self, until: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                // Dropping the command answers its sender.
                command = self.queue.recv() => if command.is_none() { return false },
            }
        }
    }

    /// Carries requests and responses until the connection is lost.
    async fn serve(&mut self, mut stream: UnixStream, mut lines: Lines) -> ConnectionError {
        let (mut reader, mut writer) = stream.split();
        let (listener, mut looks) = (self.listener().await, interval(LOOK_EVERY));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Start of Dovecot's silence while a response is due.
        let mut silent_since = Instant::now();
        loop {
            match self.answer_all(&mut lines) {
                Ok(true) => silent_since = Instant::now(),
                Ok(false) => {}
                Err(error) => return error.into(),
            }
            let is_owed = self.requests.values().any(Option::is_some);
            let command = tokio::select! {
                read = lines.read(&mut reader) => match read {
                    Ok(()) => continue,
                    Err(lost) => return lost,
                },
                command = self.queue.recv() => match command {
                    Some(command) => command,
                    None => return ConnectionError::Unused,
                },
                () = sleep_until(silent_since + ANSWER_TIMEOUT), if is_owed => return ConnectionError::Silent,
                _ = looks.tick() => match self.listener().await {
                    now @ Some(_) if now != listener => return ConnectionError::Replaced,
                    _ => continue,
                },
            };
            if !is_owed {
                silent_since = Instant::now();
            }
            let Some(line) = self.take(command) else { continue };
            match timeout(WRITE_TIMEOUT, writer.write_all(line.as_bytes())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.into(),
                Err(_) => return ConnectionError::Silent,
            }
        }
    }

    /// Identifies the socket at the path.
    async fn listener(&self) -> Option<(u64, i64, i64)> {
        let data = tokio::fs::metadata(&self.socket).await.ok()?;
        Some((data.ino(), data.mtime(), data.mtime_nsec()))
    }

    /// The text to write for a command. Registers the receiver, or drops it to refuse the command.
    fn take(&mut self, command: Command) -> Option<String> {
        match command {
            Command::Say { id, is_first, line, answer } => {
                // A request begun on an earlier connection, or one too many.
                if is_first == self.requests.contains_key(&id) || (is_first && self.requests.len() >= REQUESTS_MAX) {
                    return None;
                }
                self.requests.insert(id, Some(answer));
                Some(line)
            }
            Command::Cancel { id } => self.requests.remove(&id).map(|_| cancel(id)),
        }
    }

    /// Delivers the received responses; returns whether there was any.
    fn answer_all(&mut self, lines: &mut Lines) -> Result<bool, ProtocolError> {
        let mut has_answered = false;
        while let Some(line) = lines.next()? {
            let (id, answer) = match Line::parse(&line)? {
                Line::Other => continue,
                Line::Continue { id, challenge } => (id, Answer::Challenge(challenge)),
                Line::Ok { id, user: Some(user), send_as, limits } => (id, Answer::Done { user, send_as, limits }),
                Line::Fail { id, failure: LoginFailure::Wrong } => (id, Answer::Wrong),
                Line::Fail { id, failure: LoginFailure::Locked } => (id, Answer::Locked),
                // A login without a name is worthless.
                Line::Fail { id, failure: LoginFailure::Temporary } | Line::Ok { id, user: None, .. } => {
                    (id, Answer::Unavailable)
                }
            };
            has_answered = true;
            let is_open = matches!(answer, Answer::Challenge(_));
            // Unknown requests were cancelled.
            let Some(waits) = self.requests.remove(&id) else { continue };
            if let Some(waits) = waits
                && waits.send(answer).is_ok()
                && is_open
            {
                self.requests.insert(id, None);
            }
        }
        Ok(has_answered)
    }
}

async fn connect(socket: &Path) -> Result<(UnixStream, Lines, Mechanisms), ConnectionError> {
    let mut stream = UnixStream::connect(socket).await?;
    // Dovecot takes this for a process id, and requires a different one for each connection.
    let number = u32::from_ne_bytes(crate::random::random()) & 0x3fff_ffff | 1;
    stream.write_all(greeting(number).as_bytes()).await?;
    let (mut lines, mut handshake) = (Lines::default(), Handshake::default());
    loop {
        while let Some(line) = lines.next()? {
            if let Some(mechanisms) = handshake.line(&line)? {
                return Ok((stream, lines, mechanisms));
            }
        }
        lines.read(&mut stream).await?;
    }
}
