//! SMTP sinks: listening addresses with configured behaviour.
//!
//! One task per listening address accepts, and owns its connections' tasks: when the host goes down (the lab ends, or a
//! window in which it refuses or never accepts), they end with it. Nothing else is spawned.

mod command;
mod connection;
mod data;
pub(crate) mod engine;
mod envelope;
mod line;
mod message;
mod play;
mod protect;
mod session;
pub(crate) mod site;
pub(crate) mod store;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::behaviour::Connect;
use crate::error::LabError;
use crate::recorder::Recorder;
use connection::Connection;
use session::Session;
use site::Host;

/// As many as may come at once; the kernel takes `net.core.somaxconn` if that is less.
const BACKLOG: i32 = 65_535;
/// Pause after an accept that failed (descriptors used up), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket, and for [`Connect::NeverAccept`] the connection that fills its backlog.
pub struct Listening {
    listener: StdListener,
    filler: Option<Socket>,
}

impl Listening {
    /// A socket that another process has begun to listen on.
    pub fn adopted(socket: OwnedFd) -> Listening {
        Listening { listener: socket.into(), filler: None }
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Listens on the address. For [`Connect::NeverAccept`] with the smallest backlog there is, filled: Linux completes one
/// connection beyond a backlog of 0 and drops further SYNs.
pub(crate) fn listen(address: SocketAddr, connect: Connect) -> io::Result<Listening> {
    let silent = connect == Connect::NeverAccept;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    // Accepted connections have it from their listener. Without it replies only come later.
    let _ = socket.set_tcp_nodelay(true);
    socket.listen(if silent { 0 } else { BACKLOG })?;
    socket.set_nonblocking(true)?;
    let mut filler = None;
    if silent {
        let client = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        client.set_nonblocking(true)?;
        // EINPROGRESS is no failure: the kernel goes on by itself. If another client was first, the backlog is full
        // too.
        let _ = client.connect(&socket.local_addr()?);
        filler = Some(client);
    }
    Ok(Listening { listener: socket.into(), filler })
}

/// Runs one host for ever; dropping the future closes everything. `first` is the listener made at the start, if the
/// behaviour had one then.
pub(crate) async fn run_host(host: Arc<Host>, recorder: Arc<Recorder>, mut first: Option<Listening>) {
    loop {
        let now_us = recorder.now_us();
        let connect = host.schedule.at(now_us).connect;
        let change = host.schedule.next_change_us(now_us);
        let until = change.map(|at_us| Instant::now() + Duration::from_micros(at_us - now_us + 1));
        let listener = match (connect, first.take()) {
            (Connect::Refuse, _) => None,
            (_, Some(listener)) => Some(listener),
            (_, None) => {
                let Ok(listener) = listen(host.address, connect) else {
                    // The old listener's address may take a moment to be free.
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                Some(listener)
            }
        };
        let phase = async {
            match (connect, listener) {
                (Connect::NeverAccept, Some(listening)) => {
                    std::future::pending::<()>().await;
                    drop((listening.listener, listening.filler));
                }
                (Connect::Accept | Connect::Reset, Some(listening)) => {
                    accept(&host, &recorder, listening.listener, connect).await;
                }
                _ => std::future::pending().await,
            }
        };
        match until {
            None => phase.await,
            Some(until) => tokio::select! {
                () = phase => {}
                () = until_listening_changes(&host, &recorder, connect, until) => {}
            },
        }
    }
}

/// Windows that change other things than the connecting leave the listener and its connections alone.
async fn until_listening_changes(host: &Host, recorder: &Recorder, connect: Connect, mut until: Instant) {
    loop {
        sleep_until(until).await;
        let now_us = recorder.now_us();
        if host.schedule.at(now_us).connect != connect {
            return;
        }
        match host.schedule.next_change_us(now_us) {
            Some(at_us) => until = Instant::now() + Duration::from_micros(at_us - now_us + 1),
            None => std::future::pending().await,
        }
    }
}

async fn accept(host: &Arc<Host>, recorder: &Arc<Recorder>, listener: StdListener, connect: Connect) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Err(_) => sleep(ACCEPT_PAUSE).await,
            Ok((stream, _)) => {
                let number = recorder.counters.connections.fetch_add(1, Relaxed) + 1;
                recorder.arrived(number, host.site.no, host.no);
                if connect == Connect::Reset {
                    // Dropped with a pending linger of zero: RST. Failing that, it is closed all the same.
                    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    continue;
                }
                connections.spawn(serve(stream, Arc::clone(host), Arc::clone(recorder), number));
            }
        }
    }
}

async fn serve(stream: TcpStream, host: Arc<Host>, recorder: Arc<Recorder>, number: u64) {
    let session = Session::new(host, Arc::clone(&recorder), number, recorder.now_us());
    // An error means that the client is gone; what it has not read is counted by the session.
    let _ = Connection::new(stream, session, &recorder).run().await;
}

/// One sink by itself, for load measurements and small tests: takes every recipient.
pub struct SinkOnly {
    address: SocketAddr,
    recorder: Arc<Recorder>,
    task: tokio::task::JoinHandle<()>,
}

impl SinkOnly {
    /// Listens on the address (port 0: any) within the current tokio runtime.
    pub fn start(
        address: SocketAddr,
        behaviour: crate::Behaviour,
        mode: crate::recorder::Mode,
    ) -> Result<Self, LabError> {
        behaviour.check().map_err(LabError::Scenario)?;
        let connect = behaviour.connect;
        let listen_error = |source| LabError::Listen { address, source };
        let listener = listen(address, connect).map_err(listen_error)?;
        let address = listener.listener.local_addr().map_err(listen_error)?;
        let recorder = Arc::new(Recorder::new(mode));
        let host = Arc::new(Host {
            name: "sink.lab".to_owned(),
            no: 0,
            address,
            schedule: site::Schedule { base: Arc::new(behaviour), windows: Vec::new() },
            site: Arc::new(site::SiteState::new(0, 0, None)),
        });
        let task = tokio::spawn(run_host(host, Arc::clone(&recorder), Some(listener)));
        Ok(Self { address, recorder, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Closes the listener and all connections, and waits until they are.
    pub async fn stop(mut self) {
        self.task.abort();
        // The error says that it was aborted, which is what was wanted.
        let _ = (&mut self.task).await;
    }
}

impl Drop for SinkOnly {
    fn drop(&mut self) {
        self.task.abort();
    }
}
