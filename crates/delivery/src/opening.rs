//! Opens connections to hosts: the socket, TLS where it comes before the greeting, and a session with the extensions
//! that the host refuses and the TLS requirements. If that fails, the text names the missing service.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stentor_core::clock::Clock;
use stentor_core::hub::Signal;
use stentor_core::live::health::UnreachableHost;
use stentor_core::{Core, Settings};
use stentor_policy::DELIVER_SOCKETS;
use stentor_queue::site::{Endpoint, Target};
use stentor_sched::{NoSession, SourceNo};
use stentor_smtp::client::{ClientConfig, ClientSession, TlsUse};
use stentor_tls::{HandshakeFacts, TlsError, TlsErrorCause};

use super::loops;
use super::protection::Protection;
use super::report_counts::our_ip;
use super::stream::Stream;

/// A connection with a session on it.
pub(super) struct OpenConnection {
    pub stream: Stream,
    pub smtp: ClientSession,
    pub protection: Protection,
}

/// Why there is no connection.
pub(super) enum ConnectError {
    Socket(io::Error),
    /// A requirement cannot be met, or the handshake before the greeting failed; with the handshake's results, for
    /// checks.
    Tls(TlsError, Option<Box<HandshakeFacts>>),
}

impl ConnectError {
    /// Whether there was a connection, on which the handshake failed.
    pub fn was_connected(&self) -> bool {
        matches!(self, ConnectError::Tls(error, _) if error.cause != TlsErrorCause::Policy)
    }

    /// Returns the reason for the scheduler.
    pub fn why(&self) -> NoSession {
        match self {
            ConnectError::Socket(error) => no_session(error),
            ConnectError::Tls(..) => NoSession::Tls,
        }
    }

    /// Returns the TLS error, if that was the reason.
    pub fn tls(&self) -> Option<&TlsError> {
        match self {
            ConnectError::Socket(_) => None,
            ConnectError::Tls(error, _) => Some(error),
        }
    }

    /// Returns the results of the failed handshake.
    pub fn into_facts(self) -> Option<Box<HandshakeFacts>> {
        match self {
            ConnectError::Socket(_) => None,
            ConnectError::Tls(_, facts) => facts,
        }
    }

    /// Describes the reason.
    pub fn text(&self, target: &Target) -> String {
        match self {
            ConnectError::Socket(error) => unreached(target, error),
            ConnectError::Tls(error, _) if error.cause == TlsErrorCause::Policy => error.to_string(),
            ConnectError::Tls(error, _) => format!("TLS failed: {error}"),
        }
    }
}

/// Opens a connection and a session that omits the extensions that the host refuses. `failed`: why TLS failed earlier
/// in this attempt. It is passed since the memory of hosts is bounded.
pub(super) async fn open_in_time(
    core: &Core,
    settings: &Settings,
    source: SourceNo,
    target: &Target,
    signal: &Signal,
    failed: Option<&str>,
) -> Result<OpenConnection, ConnectError> {
    let remembered = core.known.tls_failure(&target.host, &target.addr, core.clock.steady());
    let failed = failed.or(remembered.as_deref());
    let opened = tokio::select! {
        opened = open(settings, &core.clock, source, target, Purpose::Deliver { failed }) => {
            note_reach(core, target, &opened);
            opened
        }
        why = closed(signal) => Err(ConnectError::Socket(io::Error::other(why))),
    };
    if opened.as_ref().map_or_else(ConnectError::was_connected, |_| true) {
        core.counters.connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let mut opened = opened?;
    opened.smtp.protect(opened.protection.tls(), opened.protection.logs_in());
    opened.smtp.withhold(core.known.withheld(&target.addr, core.clock.steady()));
    Ok(opened)
}

/// Notes whether hosts can be reached at all; sockets of this machine reveal nothing about that.
fn note_reach(core: &Core, target: &Target, opened: &Result<OpenConnection, ConnectError>) {
    let (Endpoint::Tcp(address) | Endpoint::Tls(address)) = &target.addr else { return };
    let (host, now, reach) = (address.ip(), core.clock.steady(), &core.live.health.reach);
    match opened {
        Ok(_) => reach.reached(host, now),
        Err(failed) if failed.was_connected() => reach.reached(host, now),
        // No connection was tried.
        Err(ConnectError::Tls(..)) => {}
        Err(ConnectError::Socket(error)) => {
            let is_unroutable = error.kind() == io::ErrorKind::NetworkUnreachable;
            let why = plain(error);
            reach.unreached(UnreachableHost { host, is_unroutable, why: &why }, now);
        }
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'p> {
    /// `failed`: why TLS failed in this attempt or recently.
    Deliver {
        failed: Option<&'p str>,
    },
    Ask,
    /// No mail is sent, and an untrusted certificate is to be shown.
    Look,
}

/// Opens a connection and a session on it, without a login.
pub(super) async fn open(
    settings: &Settings,
    clock: &Clock,
    source: SourceNo,
    target: &Target,
    purpose: Purpose<'_>,
) -> Result<OpenConnection, ConnectError> {
    let failed = if let Purpose::Deliver { failed } = purpose { failed } else { None };
    let mut protection = Protection::of(settings, target, failed).map_err(|error| ConnectError::Tls(error, None))?;
    if matches!(purpose, Purpose::Look) {
        protection.only_look();
    }
    let patience = Duration::from_millis(settings.config.delivery.connect_timeout_ms);
    let connected = tokio::time::timeout(patience, connect(settings, source, target)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::Error::other("Connection timed out")));
    let mut stream = connected.map_err(ConnectError::Socket)?;
    if protection.tls() == TlsUse::Implicit {
        let deadline = clock.steady_instant(clock.steady() + settings.config.protection.handshake_timeout_ms);
        let made = protection.handshake(stream, settings, target, deadline).await;
        stream = made.map_err(|error| ConnectError::Tls(error, protection.facts().cloned().map(Box::new)))?;
    }
    let mut smtp = ClientSession::new(named(settings.client_for(source, target), target, &stream), clock.steady());
    smtp.protect(protection.tls(), false);
    Ok(OpenConnection { stream, smtp, protection })
}

/// Returns the session's configuration. A hostname shared by many machines is widely refused in EHLO, so our address
/// replaces it (RFC 5321 4.1.4).
fn named(config: Arc<ClientConfig>, target: &Target, stream: &Stream) -> Arc<ClientConfig> {
    if target.lmtp || loops::is_own(&config.ehlo_name) || config.ehlo_name.starts_with('[') {
        return config;
    }
    let literal = match our_ip(stream).map(|ip| ip.to_canonical()) {
        Some(IpAddr::V4(v4)) => format!("[{v4}]"),
        Some(IpAddr::V6(v6)) => format!("[IPv6:{v6}]"),
        None => return config,
    };
    Arc::new(ClientConfig { ehlo_name: literal, ..ClientConfig::clone(&config) })
}

/// Connects. Running out of descriptors is not the host's fault, and a Unix socket whose queue is full is busy: both
/// are retried.
async fn connect(settings: &Settings, source: SourceNo, target: &Target) -> io::Result<Stream> {
    const PAUSE: Duration = Duration::from_millis(200);
    let source = settings.config.sending.sources.get(usize::from(source));
    loop {
        match Stream::open(&target.addr, source).await {
            Err(error) if is_out_of_descriptors(&error) || error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(PAUSE).await;
            }
            opened => return opened,
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// Whether the network refused at once, as for a host that is being restarted.
fn no_session(error: &io::Error) -> NoSession {
    // For a Unix socket: it does not exist, or no process listens any more.
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound};
    let is_at_once = matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | NotFound);
    if is_at_once { NoSession::Unreachable } else { NoSession::Failed }
}

/// Returns the system's error text, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Describes why there is no connection, naming the missing service.
fn unreached(target: &Target, error: &io::Error) -> String {
    let is_missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
    match &target.addr {
        Endpoint::Unix(path) if is_missing && path.starts_with(DELIVER_SOCKETS) => {
            let service = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".sock");
            format!("stentor-deliver is not running or has no service {service}: {}", plain(error))
        }
        _ => plain(error),
    }
}

/// Formats a host with its address, for watchers of its sessions.
pub(super) fn place(target: &Target) -> String {
    match &target.addr {
        Endpoint::Tcp(addr) | Endpoint::Tls(addr) => format!("{} [{addr}]", target.host),
        Endpoint::Unix(_) => target.host.to_string(),
    }
}

/// Waits until the connection is no longer wanted.
pub(super) async fn closed(signal: &Signal) -> &'static str {
    loop {
        if signal.must_close() {
            return "given up";
        }
        if signal.must_give_way() {
            return "gave way while connecting";
        }
        signal.signalled().await;
    }
}
