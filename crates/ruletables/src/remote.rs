//! Tables and policy services behind a socket.
//!
//! Promise: a table has at most [`Protocol::connections_max`] lookups at a time; others wait for their turn. Each
//! takes at most its timeout, including the wait. Clients may send data that makes lookups slow. Therefore all
//! untrusted clients together get three quarters of the turns, and a single client of a policy service, or a single
//! untrusted one, gets a quarter. Connections are kept for later lookups, unless the other side sent something
//! unexpected, which would be taken for the next reply. A kept connection that fails before a reply may have been
//! closed by the other side: the lookup is retried once over a new one. Any other failure is temporary and has a
//! reason.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use stentor_milter::protocol::ServiceAddress;
use stentor_policy::counted_as;
use stentor_records::health::ServiceOutcomes;
use stentor_tables::socketmap::{self, Decoder, ProtocolError, SocketmapReply};
use stentor_tables::{SocketmapAddress, policy_service};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum parallel lookups in a table, and maximum connections kept.
pub const TABLE_CONNECTIONS_MAX: usize = 16;
/// Maximum for a policy service, which may query the DNS for each.
const SERVICE_CONNECTIONS_MAX: usize = 64;
/// A single client gets this fraction of them.
const CLIENT_PART: usize = 4;
/// Pause before a retry if the daemon's connection queue is full.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Protocol of the other side.
enum Protocol {
    /// Socketmap, with the table's name there.
    Socketmap(String),
    PolicyService,
}

impl Protocol {
    fn connections_max(&self) -> usize {
        match self {
            Protocol::Socketmap(_) => TABLE_CONNECTIONS_MAX,
            Protocol::PolicyService => SERVICE_CONNECTIONS_MAX,
        }
    }
}

/// On whose behalf a lookup is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// The server itself, or a trusted client that needs no limit.
    Us,
    Trusted(IpAddr),
    Stranger(IpAddr),
}

pub struct Remote {
    place: ServiceAddress,
    protocol: Protocol,
    /// Address, for messages.
    name: String,
    timeout: Duration,
    turns: Semaphore,
    /// Turns shared by untrusted clients.
    strangers: Semaphore,
    clients: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    idle: Mutex<Vec<Box<dyn Stream>>>,
    /// Health: outcomes of lookups and probes.
    pub outcomes: ServiceOutcomes,
    /// It accepts connections but fails at queries.
    fails_when_asked: AtomicBool,
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
    Socketmap(#[from] ProtocolError),
    #[error(transparent)]
    PolicyService(#[from] policy_service::ProtocolError),
}

/// One client's turns, which exist while it has lookups.
struct ClientShare<'a> {
    clients: &'a Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    client: IpAddr,
    turns: Arc<Semaphore>,
}

impl<'a> ClientShare<'a> {
    fn new(clients: &'a Mutex<HashMap<IpAddr, Arc<Semaphore>>>, client: IpAddr, max: usize) -> Self {
        let new = || Arc::new(Semaphore::new(max));
        let turns = clients.lock().entry(client).or_insert_with(new).clone();
        Self { clients, client, turns }
    }
}

impl Drop for ClientShare<'_> {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        // Only the map's reference and this one are left: the client has no other lookup.
        if Arc::strong_count(&self.turns) == 2 {
            clients.remove(&self.client);
        }
    }
}

impl Remote {
    pub fn socketmap(endpoint: SocketmapAddress, timeout: Duration) -> Self {
        let name = format!("socketmap:{endpoint}");
        let (place, table) = match endpoint {
            SocketmapAddress::Inet { host, port, name } => (ServiceAddress::Inet { host, port }, name),
            SocketmapAddress::Unix { path, name } => (ServiceAddress::Unix(path), name),
        };
        Self::new(place, Protocol::Socketmap(table), name, timeout)
    }

    pub fn policy_service(place: ServiceAddress, timeout: Duration) -> Self {
        // Callers add that it is a policy service.
        let name = place.to_string();
        Self::new(place, Protocol::PolicyService, name, timeout)
    }

    /// Address, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn new(place: ServiceAddress, protocol: Protocol, name: String, timeout: Duration) -> Self {
        let max = protocol.connections_max();
        let (turns, strangers) = (Semaphore::new(max), Semaphore::new(max - max / CLIENT_PART));
        Self {
            place,
            protocol,
            name,
            timeout,
            turns,
            strangers,
            clients: Mutex::default(),
            idle: Mutex::default(),
            outcomes: ServiceOutcomes::default(),
            fails_when_asked: AtomicBool::new(false),
        }
    }

    /// Looks up a key as given; for a policy service, sends a request.
    pub async fn get(&self, key: &[u8], whom: For) -> SocketmapReply {
        let tempfail = |why: String| {
            self.outcomes.failure(&why);
            SocketmapReply::Tempfail(format!("{}: {why}", self.name))
        };
        let reply = match timeout(self.timeout, self.in_turn(key, whom)).await {
            Ok(Ok(SocketmapReply::Tempfail(why))) => tempfail(why),
            Ok(Ok(reply)) => {
                self.outcomes.success();
                self.fails_when_asked.store(false, Ordering::Relaxed);
                return reply;
            }
            Ok(Err(failure @ Failure::Connect(_))) => return tempfail(failure.to_string()),
            Ok(Err(failure)) => tempfail(failure.to_string()),
            Err(_) => tempfail(format!("no reply within {} s", self.timeout.as_secs_f32())),
        };
        self.fails_when_asked.store(true, Ordering::Relaxed);
        reply
    }

    /// Tests the connection, within a time limit, while there are no lookups. It sends no query, because a service
    /// that greylists or counts would treat it as mail.
    pub async fn probe(&self, limit: Duration) {
        match timeout(limit, self.connect()).await {
            Ok(Ok(_)) if self.fails_when_asked.load(Ordering::Relaxed) => self.outcomes.probed(),
            Ok(Ok(_)) => self.outcomes.success(),
            Ok(Err(error)) => self.outcomes.failure(format_args!("cannot connect: {error}")),
            Err(_) => self.outcomes.failure(format_args!("no connection within {} s", limit.as_secs_f32())),
        }
    }

    /// Sends a query when it is the client's turn: among its own lookups, among those of its kind, and among all.
    async fn in_turn(&self, key: &[u8], whom: For) -> Result<SocketmapReply, Failure> {
        let client_max = self.protocol.connections_max() / CLIENT_PART;
        let share = match whom {
            For::Us => None,
            For::Trusted(client) | For::Stranger(client) => {
                Some(ClientShare::new(&self.clients, counted_as(client), client_max))
            }
        };
        // The semaphores are never closed.
        let _of_client = match &share {
            Some(share) => share.turns.acquire().await.ok(),
            None => None,
        };
        let _of_strangers = match whom {
            For::Stranger(_) => self.strangers.acquire().await.ok(),
            For::Us | For::Trusted(_) => None,
        };
        let _turn = self.turns.acquire().await;
        self.ask(key).await
    }

    async fn ask(&self, key: &[u8]) -> Result<SocketmapReply, Failure> {
        let mut netstring = Vec::new();
        let request = match &self.protocol {
            Protocol::Socketmap(name) => {
                socketmap::request(name, key, &mut netstring)?;
                netstring.as_slice()
            }
            Protocol::PolicyService => key,
        };
        while let Some(mut stream) = self.kept() {
            if !is_silent(&mut stream).await {
                continue;
            }
            match self.exchange(&mut stream, request).await {
                Err(Failure::Lost(_) | Failure::Closed) => break,
                other => return self.keep(stream, other),
            }
        }
        let mut stream = self.connect().await.map_err(Failure::Connect)?;
        let reply = self.exchange(&mut stream, request).await;
        self.keep(stream, reply)
    }

    fn kept(&self) -> Option<Box<dyn Stream>> {
        self.idle.lock().pop()
    }

    /// Keeps the connection for later use, but only after a complete reply.
    fn keep(&self, stream: Box<dyn Stream>, reply: Result<SocketmapReply, Failure>) -> Result<SocketmapReply, Failure> {
        if reply.is_ok() {
            self.idle.lock().push(stream);
        }
        reply
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.place {
            ServiceAddress::Inet { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            ServiceAddress::Unix(path) => loop {
                match UnixStream::connect(path).await {
                    // Its connection queue is full, where TCP would wait.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BUSY_PAUSE).await,
                    other => break Box::new(other?),
                }
            },
        })
    }

    async fn exchange(&self, stream: &mut Box<dyn Stream>, request: &[u8]) -> Result<SocketmapReply, Failure> {
        match self.protocol {
            Protocol::Socketmap(_) => {
                let mut decoder = Decoder::default();
                exchange(stream, request, |octets| Ok(decoder.reply(octets)?)).await
            }
            Protocol::PolicyService => {
                let mut decoder = policy_service::Decoder::default();
                let reply =
                    |octets: &[u8]| Ok(decoder.reply(octets)?.map(|action| SocketmapReply::Found(action.into_bytes())));
                exchange(stream, request, reply).await
            }
        }
    }
}

/// Whether nothing was received since the last reply, not even the end.
async fn is_silent(stream: &mut Box<dyn Stream>) -> bool {
    let mut octet = [0];
    let mut buffer = ReadBuf::new(&mut octet);
    poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_read(context, &mut buffer).is_pending())).await
}

async fn exchange(
    stream: &mut Box<dyn Stream>,
    request: &[u8],
    mut decode: impl FnMut(&[u8]) -> Result<Option<SocketmapReply>, Failure>,
) -> Result<SocketmapReply, Failure> {
    stream.write_all(request).await.map_err(Failure::Lost)?;
    let mut buffer = [0; 4096];
    loop {
        let octets = stream.read(&mut buffer).await.map_err(Failure::Lost)?;
        if octets == 0 {
            return Err(Failure::Closed);
        }
        if let Some(reply) = decode(&buffer[..octets])? {
            return Ok(reply);
        }
    }
}
