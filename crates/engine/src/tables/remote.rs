//! Tables behind a socket: `socketmap:`.
//!
//! Promise: at most [`CONNECTIONS_MAX`] look-ups at a time ask one table, more wait for their turn; each takes at most its
//! time-out, waiting included. Connections are kept for later look-ups. A kept one that fails before a reply may have been
//! closed by the other side meanwhile: the look-up is tried once more over a new one. Whatever else fails is a temporary
//! failure with its reason.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use stentor_tables::Endpoint;
use stentor_tables::socketmap::{self, Decoder, ProtocolError, Reply};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Look-ups at a time, and connections that are kept.
pub const CONNECTIONS_MAX: usize = 16;
/// Before a daemon whose queue of connections is full is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub struct Remote {
    endpoint: Endpoint,
    timeout: Duration,
    turns: Semaphore,
    idle: Mutex<Vec<Box<dyn Stream>>>,
}

/// Why there was no reply.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("connection lost: {0}")]
    Lost(io::Error),
    #[error("connection closed without a reply")]
    Closed,
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl Remote {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        Self { endpoint, timeout, turns: Semaphore::new(CONNECTIONS_MAX), idle: Mutex::default() }
    }

    /// Looks up a key, as it is.
    pub async fn get(&self, key: &[u8]) -> Reply {
        let tempfail = |why: String| Reply::Tempfail(format!("socketmap:{}: {why}", self.endpoint));
        match timeout(self.timeout, self.ask(key)).await {
            Ok(Ok(Reply::Tempfail(why))) => tempfail(why),
            Ok(Ok(reply)) => reply,
            Ok(Err(failure)) => tempfail(failure.to_string()),
            Err(_) => tempfail(format!("no reply within {} s", self.timeout.as_secs_f32())),
        }
    }

    async fn ask(&self, key: &[u8]) -> Result<Reply, Failure> {
        let mut request = Vec::new();
        socketmap::request(self.endpoint.name(), key, &mut request)?;
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let kept = self.idle.lock().pop();
        if let Some(mut stream) = kept {
            match exchange(&mut stream, &request).await {
                Err(Failure::Lost(_) | Failure::Closed) => {}
                other => return self.keep(stream, other),
            }
        }
        let mut stream = self.connect().await.map_err(Failure::Connect)?;
        let reply = exchange(&mut stream, &request).await;
        self.keep(stream, reply)
    }

    /// A connection is of use only behind a whole reply.
    fn keep(&self, stream: Box<dyn Stream>, reply: Result<Reply, Failure>) -> Result<Reply, Failure> {
        if reply.is_ok() {
            self.idle.lock().push(stream);
        }
        reply
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.endpoint {
            Endpoint::Inet { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Endpoint::Unix { path, .. } => loop {
                match UnixStream::connect(path).await {
                    // Its queue of connections is full, for which TCP would wait.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BUSY_PAUSE).await,
                    other => break Box::new(other?),
                }
            },
        })
    }
}

async fn exchange(stream: &mut Box<dyn Stream>, request: &[u8]) -> Result<Reply, Failure> {
    stream.write_all(request).await.map_err(Failure::Lost)?;
    let (mut decoder, mut buffer) = (Decoder::default(), [0; 4096]);
    loop {
        let octets = stream.read(&mut buffer).await.map_err(Failure::Lost)?;
        if octets == 0 {
            return Err(Failure::Closed);
        }
        if let Some(reply) = decoder.reply(&buffer[..octets])? {
            return Ok(reply);
        }
    }
}
