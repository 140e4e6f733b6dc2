//! One connection to a milter: writes its session's output and waits for answers, each with a timeout.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use stentor_tls::RawSocket;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};

use crate::protocol::{Event, FailureKind, MilterReply, MilterSession, MilterSettings, ServiceAddress};

/// Size of the read buffer, of which each thread has one.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Kind and reason of a milter's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MilterFailure {
    pub failure: FailureKind,
    pub why: String,
    /// Whether the milter was not tried, so that it is not a new failure.
    pub is_untried: bool,
    /// Whether it failed to connect or negotiate, before it received anything from a client.
    pub is_before_client: bool,
    /// Whether the milter closed the connection.
    pub is_closed: bool,
}

impl MilterFailure {
    fn of(failure: FailureKind, why: String) -> MilterFailure {
        MilterFailure { failure, why, is_untried: false, is_before_client: false, is_closed: false }
    }

    pub fn untried() -> MilterFailure {
        let why = "skipped after its recent failure".to_owned();
        MilterFailure { is_untried: true, ..MilterFailure::of(FailureKind::Unreachable, why) }
    }

    /// The failure if other milters used up the total time.
    pub fn late(all: Duration) -> MilterFailure {
        let why = format!("skipped: other milters used the {} minutes for all", all.as_secs() / 60);
        MilterFailure { is_untried: true, ..MilterFailure::of(FailureKind::Timeout, why) }
    }

    fn unreachable(why: String) -> MilterFailure {
        MilterFailure { is_before_client: true, ..MilterFailure::of(FailureKind::Unreachable, why) }
    }

    pub fn broken(why: impl std::fmt::Display) -> MilterFailure {
        MilterFailure::of(FailureKind::Broken, why.to_string())
    }

    fn closed(why: impl std::fmt::Display) -> MilterFailure {
        MilterFailure { is_closed: true, ..MilterFailure::broken(why) }
    }

    fn silent(limit: Duration) -> MilterFailure {
        MilterFailure::of(FailureKind::Timeout, format!("no answer in {} s", limit.as_secs_f64()))
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    async fn open(place: &ServiceAddress) -> io::Result<Stream> {
        match place {
            ServiceAddress::Inet { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            ServiceAddress::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => RawSocket::try_read(stream, buffer),
            Stream::Unix(stream) => RawSocket::try_read(stream, buffer),
        }
    }

    fn try_write(&self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(octets),
            Stream::Unix(stream) => stream.try_write(octets),
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.writable().await,
            Stream::Unix(stream) => stream.writable().await,
        }
    }
}

/// How often a milter may request more time: a burst, then a rate per second. More requests would cost more than its
/// work.
const PROGRESS_AT_ONCE: f64 = 1_000.0;
const PROGRESS_PER_S: f64 = 20.0;

/// Remaining requests for more time.
#[derive(Debug)]
struct Patience {
    left: f64,
    at: Instant,
}

impl Patience {
    fn new(now: Instant) -> Patience {
        Patience { left: PROGRESS_AT_ONCE, at: now }
    }

    /// Uses up one request; returns whether one was left.
    fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * PROGRESS_PER_S;
        (self.left, self.at) = ((self.left + gained).min(PROGRESS_AT_ONCE) - 1.0, now);
        self.left >= 0.0
    }
}

pub(crate) struct Connection {
    stream: Stream,
    patience: Patience,
    pub session: MilterSession,
    /// Whether another client's session has used it.
    pub is_reused: bool,
}

impl Connection {
    /// Connects and negotiates.
    pub async fn open(settings: &MilterSettings) -> Result<Connection, MilterFailure> {
        let limit = Duration::from_millis(settings.connect_timeout_ms);
        let stream = match timeout(limit, Stream::open(&settings.place)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(MilterFailure::unreachable(format!("no connection: {error}"))),
            Err(_) => {
                return Err(MilterFailure::unreachable(format!("no connection within {} s", limit.as_secs_f64())));
            }
        };
        let patience = Patience::new(Instant::now());
        let mut connection = Connection { stream, patience, session: MilterSession::open(), is_reused: false };
        let limit = Duration::from_millis(settings.command_timeout_ms);
        let failed = match connection.event(limit, Instant::now() + limit).await {
            Ok(Some(Event::Ready)) => return Ok(connection),
            Ok(_) => MilterFailure::broken("it did not negotiate"),
            Err(failed) => failed,
        };
        Err(MilterFailure { is_before_client: true, ..failed })
    }

    /// The reply to the last event sent; "continue" if no answer is owed.
    pub async fn reply(&mut self, limit: Duration) -> Result<MilterReply, MilterFailure> {
        let decided = self.decision(limit, Instant::now() + limit.saturating_mul(2)).await?;
        Ok(decided.unwrap_or(MilterReply::Continue))
    }

    /// Waits for all owed answers, up to the first that ends the message, and never beyond `end`, however often the
    /// milter requests more time. `None`: the milter continues.
    pub async fn decision(&mut self, limit: Duration, end: Instant) -> Result<Option<MilterReply>, MilterFailure> {
        loop {
            match self.event(limit, end).await? {
                None => return Ok(None),
                Some(Event::Reply(MilterReply::Continue | MilterReply::Skip) | Event::Progress) => {}
                Some(Event::Reply(reply)) => return Ok(Some(reply)),
                Some(Event::Ready | Event::Change(_)) => return Err(MilterFailure::broken("unexpected answer")),
            }
        }
    }

    /// Writes the output and waits for the next answer within `limit` and before `end`. `None`: no answer is owed.
    pub async fn event(&mut self, limit: Duration, end: Instant) -> Result<Option<Event>, MilterFailure> {
        // A milter that sends without pausing must not block other tasks, nor get more time.
        tokio::task::consume_budget().await;
        if Instant::now() >= end {
            return Err(MilterFailure::silent(limit));
        }
        let until = end.min(Instant::now() + limit);
        let event = match timeout_at(until, self.exchange()).await {
            Ok(result) => result?,
            Err(_) => return Err(MilterFailure::silent(limit)),
        };
        if matches!(event, Some(Event::Progress)) && !self.patience.take(Instant::now()) {
            return Err(MilterFailure::broken("it requested more time too often"));
        }
        Ok(event)
    }

    async fn exchange(&mut self) -> Result<Option<Event>, MilterFailure> {
        let lost = |error: io::Error| MilterFailure::closed(format!("the connection was lost: {error}"));
        if !self.session.output().is_empty() {
            self.nothing_said().map_err(|why| why.map_or_else(|| MilterFailure::broken("unexpected answer"), lost))?;
        }
        while !self.session.output().is_empty() {
            match self.stream.try_write(self.session.output()) {
                Ok(count) => drop(self.session.output().drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await.map_err(lost)?;
                }
                Err(error) => return Err(lost(error)),
            }
        }
        while self.session.is_owed() {
            if let Some(event) = self.session.poll().map_err(MilterFailure::broken)? {
                return Ok(Some(event));
            }
            let read = BUFFER.with_borrow_mut(|buffer| {
                let read = self.stream.try_read(buffer);
                if let Ok(count) = read {
                    self.session.receive(&buffer[..count]);
                }
                read
            });
            match read {
                Ok(0) => return Err(MilterFailure::closed("it closed the connection")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.readable().await.map_err(lost)?;
                }
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(None)
    }

    /// Checks that nothing was received before an event is sent: it would be taken for the event's answer. The error
    /// is the socket's, if it has one.
    fn nothing_said(&mut self) -> Result<(), Option<io::Error>> {
        if self.session.has_more() {
            return Err(None);
        }
        match self.stream.try_read(&mut [0]) {
            Ok(0) => Err(Some(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Err(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Some(error)),
        }
    }

    /// Writes a few octets if the socket accepts them; the rest precedes the next write.
    pub fn write_now(&mut self) {
        if !self.session.output().is_empty()
            && let Ok(count) = self.stream.try_write(self.session.output())
        {
            self.session.output().drain(..count);
        }
    }

    /// Whether another session can use it: nothing is in transit, and the milter has not closed it.
    pub fn is_idle(&mut self) -> bool {
        let waits = |read: io::Result<usize>| read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.session.output().is_empty() && !self.session.has_more() && waits(self.stream.try_read(&mut [0]))
    }
}
