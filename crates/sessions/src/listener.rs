//! Accepts connections. Each role of listeners has its own limits, in total and per client; a connection over them gets
//! 421, and the port never closes. While untrusted clients use more than half of their connections, idle ones among
//! them time out in seconds instead of minutes.
//!
//! Sessions may use half of the process's descriptors, those of users a quarter of these. Beyond that clients wait in
//! the kernel's queue, so that look-ups and deliveries, which free sessions in turn, always have some.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use stentor_config::Role;
use stentor_core::limits::Limit;
use stentor_core::live::SessionCounts;
use stentor_core::security::ListenerId;
use stentor_core::{Core, Settings};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::open_sessions::{AdmissionResult, Admitted, Counted, OpenSessions, PoolLimits, descriptors};
use super::proxied::{HEADER_TIMEOUT, NOBODY, read_header};
use super::session::{ClientConnection, Session, SessionPlace};
use super::strangers::StrangerThreads;

/// Connections that the kernel queues while all sessions are busy; a backlog of 5 stalls a storm in one-second steps.
const BACKLOG: i32 = 4096;
/// How long accepting pauses when no descriptor or memory is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Share of the descriptors that sessions may use.
const SESSIONS_PART: u64 = 2;

/// Binds one listening address.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        // Permits listening on both `0.0.0.0` and `[::]`.
        socket.set_only_v6(true)?;
    }
    // Accepted connections inherit this.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[derive(Clone)]
pub struct Listeners {
    core: Arc<Core>,
    sessions: Arc<Mutex<OpenSessions>>,
    /// Maximum number of sessions if there are no milters.
    sessions_max: usize,
    /// Runtime of trusted clients' sessions.
    trusted: Handle,
    strangers: StrangerThreads,
    stop: watch::Receiver<bool>,
}

impl Listeners {
    /// Must be called on the runtime of trusted clients.
    pub fn new(core: Arc<Core>, strangers: StrangerThreads, stop: watch::Receiver<bool>) -> Listeners {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let sessions_max = descriptors.map_or(usize::MAX, |limit| (limit / SESSIONS_PART).max(1) as usize);
        Listeners { core, sessions: Arc::default(), sessions_max, trusted: Handle::current(), strangers, stop }
    }

    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.lock().total()
    }

    /// Returns a session counter by role that outlives the listeners.
    pub fn session_counts(&self) -> stentor_core::live::Sessions {
        let sessions = self.sessions.clone();
        Box::new(move || {
            let open = sessions.lock();
            SessionCounts { relay: open.of(Role::Relay), users: open.of(Role::Users) }
        })
    }

    /// Returns a counter of open sessions that outlives the listeners.
    pub fn sessions_counter(&self) -> Box<dyn Fn() -> usize + Send + Sync> {
        let sessions = self.sessions.clone();
        Box::new(move || sessions.lock().total())
    }

    /// Whether sessions of a role use all their descriptors, or all but one part in `parts`.
    fn has_all_descriptors(&self, role: Role, parts: usize) -> bool {
        let share = descriptors(&self.core.settings(), self.sessions_max, role);
        let free = if parts > 1 { share / parts } else { 0 };
        self.sessions.lock().of(role) >= share - free
    }

    /// Accepts until told to stop. Dropping the listener then refuses new connections; sessions continue on their own.
    pub async fn serve(self, listener: TcpListener, id: ListenerId) {
        let mut stop = self.stop.clone();
        let role = id.service.role();
        let mut paused = false;
        loop {
            while self.has_all_descriptors(role, 1) && !*stop.borrow() {
                self.pause(role, &mut paused, "sessions use their full share of descriptors").await;
            }
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Logged again only after enough descriptors were free.
                    paused &= self.has_all_descriptors(role, 4);
                    self.admit(ClientConnection { stream, listener: id, peer });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // Out of descriptors or memory: deliveries continue and free some.
                    self.pause(role, &mut paused, &error.to_string()).await;
                }
            }
        }
    }

    /// Pauses briefly, and logs the reason once, to avoid a busy loop and a flood of log lines.
    async fn pause(&self, role: Role, paused: &mut bool, why: &str) {
        if !std::mem::replace(paused, true) {
            tracing::warn!(why, "accepting connections is paused until descriptors or memory are free");
        }
        // 0 means never.
        let now = self.core.clock.steady().max(1);
        let at = &self.core.live.health.intake.accept_paused;
        let at = match role {
            Role::Relay => &at.relay,
            Role::Users => &at.users,
        };
        at.store(now, std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn admit(&self, connection: ClientConnection) {
        let settings = self.core.settings();
        let address = connection.client();
        if settings.config.listen.proxy_clients.iter().any(|proxies| proxies.contains(&address)) {
            self.admit_proxied(connection, &settings);
        } else {
            let trusted = settings.policy.is_trusted(address);
            self.admit_client(connection, trusted, settings);
        }
    }

    /// Waits for the header in which a proxy names its client.
    fn admit_proxied(&self, mut connection: ClientConnection, settings: &Settings) {
        let proxy = Counted { client: connection.client(), trusted: false, is_proxy: true };
        let Some(admitted) = self.count(&connection, proxy, settings) else { return };
        let listeners = self.clone();
        tokio::spawn(async move {
            let header = tokio::time::timeout(HEADER_TIMEOUT, read_header(&mut connection.stream)).await;
            drop(admitted);
            let settings = listeners.core.settings();
            match header {
                Ok(Ok(Some(client))) => {
                    let trusted = settings.policy.is_trusted(client.ip().to_canonical());
                    listeners.admit_client(ClientConnection { peer: client, ..connection }, trusted, settings);
                }
                Ok(Ok(None)) => {
                    listeners.admit_client(ClientConnection { peer: NOBODY, ..connection }, false, settings);
                }
                // A health check that only connects.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Ok(Err(error)) if error.kind() != io::ErrorKind::InvalidData => {}
                Ok(Err(_)) | Err(_) => {
                    let now = listeners.core.clock.now();
                    listeners.core.limits.hit_by(Limit::ProxyHeader, connection.client(), now);
                }
            }
        });
    }

    fn admit_client(&self, connection: ClientConnection, trusted: bool, settings: Arc<Settings>) {
        let who = Counted { client: connection.client(), trusted, is_proxy: false };
        let Some(admitted) = self.count(&connection, who, &settings) else { return };
        let (core, stop, sessions_max) = (self.core.clone(), self.stop.clone(), self.sessions_max);
        let ClientConnection { stream, listener, peer } = connection;
        let session = move |stream| {
            let connection = ClientConnection { stream, listener, peer };
            Session::new(core, settings, connection, trusted, SessionPlace { admitted, sessions_max }, stop)
        };
        if trusted {
            tokio::spawn(async move { session(stream).run().await });
            return;
        }
        let trusted = self.trusted.clone();
        self.strangers.spawn(listener.service.role(), who.client, stream, move |stream| async move {
            if let Some(session) = session(stream).run_apart().await {
                trusted.spawn(session.run());
            }
        });
    }

    /// Counts a connection, or turns it away.
    fn count(&self, connection: &ClientConnection, who: Counted, settings: &Settings) -> Option<Admitted> {
        let limits = PoolLimits::new(settings, self.sessions_max, connection.listener.service.role());
        let now = self.core.clock.now();
        match Admitted::admit(self.sessions.clone(), who, limits) {
            Ok(AdmissionResult { admitted, has_displaced }) => {
                if has_displaced {
                    self.core.limits.hit(Limit::Displaced, now);
                }
                Some(admitted)
            }
            Err((limit, reply)) => {
                self.core.limits.hit(limit, now);
                self.core.counters.refused_connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                // One attempt to say why: a client that does not read must not hold us.
                let _ = connection.stream.try_write(format!("{reply}\r\n").as_bytes());
                None
            }
        }
    }
}

/// Whether an error of `accept` concerns only the one connection and not the port.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
