//! Checks whether a start could listen at the configured addresses.
//!
//! Promise: ports are bound but not listened on, so that no client notices. A running server is asked for its ports
//! over its control socket, so that they are not blamed on another program. If it cannot be asked, one warning says so,
//! and ports in use are not reported.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::{self, AddressFamily, SocketType};
use stentor_config::{Config, ConfigKey, Severity};
use stentor_control::{Client, ControlError, ControlReply, Request};
use stentor_journal::RealDisk;

/// A finding about a key in a section.
/// A problem with a listening address or socket, and the key that sets it.
pub(crate) struct PortFinding {
    pub severity: Severity,
    pub key: ConfigKey<'static>,
    pub what: String,
}

impl PortFinding {
    fn new(severity: Severity, key: ConfigKey<'static>, what: String) -> PortFinding {
        PortFinding { severity, key, what }
    }
}

/// Problems with the addresses to listen on.
pub(crate) fn findings(config: &Config) -> Vec<PortFinding> {
    let mut found = Vec::new();
    let server = RunningServer::look(config);
    let mut is_untold = false;
    for (key, address) in config.listening() {
        match bind(address) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => match &server {
                RunningServer::Listens(ours) if ours.iter().any(|own| are_one(*own, address)) => {}
                RunningServer::Silent(_) => is_untold = true,
                _ => {
                    found.push(PortFinding::new(
                        Severity::Warning,
                        key,
                        format!("another program listens on {address}"),
                    ));
                }
            },
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let what = format!("this user may not listen on {address}: that needs root or CAP_NET_BIND_SERVICE");
                found.push(PortFinding::new(Severity::Warning, key, what));
            }
            Err(_) => found.extend(not_own(address.ip()).map(|what| PortFinding::new(Severity::Error, key, what))),
        }
    }
    if let RunningServer::Silent(why) = server
        && is_untold
    {
        let what = format!("cannot tell whether this server or another program uses the ports: {why}");
        found.push(PortFinding::new(Severity::Warning, ConfigKey::new("control", "socket"), what));
    }
    found
}

/// The reason if this machine does not have the address; checked with a bind, so no packet is sent.
pub(crate) fn not_own(address: IpAddr) -> Option<String> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            Some(format!("this machine does not have the address {address}"))
        }
        Err(error) => Some(format!("{address}: {error}")),
    }
}

/// The running server of this configuration.
enum RunningServer {
    No,
    /// It runs and listens at these addresses.
    Listens(Vec<SocketAddr>),
    /// It runs but cannot be asked, with the reason: no reply, or this user may not open its socket.
    Silent(String),
}

impl RunningServer {
    fn look(config: &Config) -> RunningServer {
        let socket = &config.control.socket;
        match Client::connect(socket).and_then(|mut client| client.ask(&Request::Status)) {
            Ok(ControlReply::Status(status)) => return RunningServer::Listens(status.listening),
            Err(error) if is_closed(&error) => return RunningServer::Silent(error.to_string()),
            _ => {}
        }
        match RealDisk::holder(&config.data_dir.join("journal")) {
            Ok(Some(pid)) => {
                let who = pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
                RunningServer::Silent(format!("{who} has the journal open but does not answer at {}", socket.display()))
            }
            _ => RunningServer::No,
        }
    }
}

/// The socket exists, but this user may not use it.
fn is_closed(error: &ControlError) -> bool {
    matches!(error, ControlError::Connect { source, .. } if source.kind() == ErrorKind::PermissionDenied)
}

/// Whether a listener on one address prevents binding to the other.
fn are_one(one: SocketAddr, other: SocketAddr) -> bool {
    let are_alike = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && are_alike
}

/// Binds as a listener would, without listening, so no client notices.
fn bind(address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket(family, SocketType::STREAM, None)?;
    // Connections in TIME_WAIT must not look like a listener.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(net::bind(&socket, &address)?)
}
