//! Checks of what the configuration names on sockets: hosts of routes, milters, policy services, name servers.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use stentor_config::{ConfigKey, ListConfig, PolicyService};
use stentor_milter::Milter;
use stentor_milter::protocol::{MilterSettings, OnFailure, ServiceAddress};
use stentor_policy::{DELIVER_SOCKETS, HostSpec, RouteHost};
use stentor_rules::{NextHop, Routes};

use super::{Trial, name_server};

/// Timeout for a milter's answer.
const MILTER_WAIT: Duration = Duration::from_secs(2);
/// Timeout for a connection to a policy service.
const POLICY_SERVICE_WAIT: Duration = Duration::from_secs(2);

impl Trial<'_> {
    pub(super) fn routes(&mut self, section: &str, routes: &Routes) {
        let mut entries: Vec<_> = routes.entries().collect();
        entries.sort_unstable_by_key(|entry| &entry.pattern);
        for entry in entries {
            if let NextHop::Hosts(hosts) = &entry.hop {
                self.sockets(ConfigKey::new(section, &entry.pattern), hosts);
            }
        }
    }

    /// Checks the archives of lists.
    pub(super) fn archives(&mut self, lists: &[ListConfig]) {
        for list in lists {
            let section = format!("lists.{}", list.list.name());
            for hop in list.archive_hops() {
                if let NextHop::Hosts(hosts) = hop {
                    self.sockets(ConfigKey::new(&section, "archive_to"), hosts);
                }
            }
        }
    }

    /// Checks the Unix sockets among hosts: each gets a connection, and no command.
    pub(super) fn sockets(&mut self, key: ConfigKey<'_>, hosts: &[RouteHost]) {
        for host in hosts {
            let HostSpec::Unix(path) = &host.host else { continue };
            if let Err(error) = UnixStream::connect(&**path) {
                let whose =
                    if path.starts_with(DELIVER_SOCKETS) { "is stentor-deliver running?" } else { "mail for it waits" };
                self.warn(key, &format!("{path} does not accept connections: {error}; {whose}"));
            }
        }
    }

    /// Checks a milter: connects, negotiates, disconnects.
    pub(super) fn milter(&mut self, section: &str, milter: &MilterSettings) {
        let wait = MILTER_WAIT.as_millis() as u64;
        let quick = MilterSettings {
            connect_timeout_ms: milter.connect_timeout_ms.min(wait),
            command_timeout_ms: milter.command_timeout_ms.min(wait),
            ..milter.clone()
        };
        let tried = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(Milter::try_out(&quick)),
            Err(error) => Err((error.to_string(), milter.on_unreachable)),
        };
        if let Err((why, action)) = tried {
            let then = match action {
                OnFailure::Accept => "mail is accepted without it",
                OnFailure::Tempfail => "mail is deferred",
                OnFailure::Reject => "mail is refused",
            };
            let why = format!("milter {} ({}): {why}; until it works, {then}", milter.name, milter.place);
            self.warn(ConfigKey::new(section, "address"), &why);
        }
    }

    /// Connects to a policy service without a query, which a greylist or counter would treat as mail.
    pub(super) fn policy_service(&mut self, name: &str, service: &PolicyService) {
        let wait = Duration::from_millis(service.timeout_ms).min(POLICY_SERVICE_WAIT);
        let (place, tried) = match &service.place {
            ServiceAddress::Unix(path) => (path.display().to_string(), UnixStream::connect(path).map(drop)),
            ServiceAddress::Inet { host, port } => {
                let connect = |addresses: std::vec::IntoIter<SocketAddr>| {
                    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
                    for address in addresses {
                        match TcpStream::connect_timeout(&address, wait) {
                            Ok(_) => return Ok(()),
                            Err(error) => last = error,
                        }
                    }
                    Err(last)
                };
                (format!("{host}:{port}"), (host.as_str(), *port).to_socket_addrs().and_then(connect))
            }
        };
        if let Err(error) = tried {
            let what = match &service.default_action {
                None => "mail whose rules use it is deferred".to_owned(),
                Some(action) => format!("`default_action` {action:?} applies"),
            };
            let why = format!("policy service {name} ({place}) does not accept connections: {error}; {what}");
            self.warn(ConfigKey::new(&format!("policy_services.{name}"), "address"), &why);
        }
    }

    pub(super) fn name_server(&mut self, server: SocketAddr) {
        if let Err(error) = name_server::query(server) {
            let why = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("no answer within {} s", name_server::WAIT.as_secs())
                }
                _ => error.to_string(),
            };
            let what = format!("name server {server} does not answer ({why}); without a name server all mail waits");
            self.warn(ConfigKey::new("dns", "servers"), &what);
        }
    }
}
