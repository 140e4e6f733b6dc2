//! Name servers of the system, for configurations that name none.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::configuration::DnsConfig;
use super::diagnose::{Diagnostic, Severity};

/// The file that names them.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Queried while that file names none, as by libc (resolv.conf(5)).
pub(super) const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
const PORT: u16 = 53;
/// Maximum octets read of the file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Reads the name servers of a file like [`RESOLV_CONF`]. Blocks.
///
/// # Errors
/// Why there are none, beginning with the path.
pub fn system_name_servers(path: &Path) -> Result<Vec<SocketAddr>, String> {
    let failed = |error: io::Error| format!("{} cannot be read: {error}", path.display());
    let mut octets = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut octets)).map_err(failed)?;
    let servers = parse_resolv_conf(&String::from_utf8_lossy(&octets));
    if servers.is_empty() { Err(format!("{} names no name server", path.display())) } else { Ok(servers) }
}

fn parse_resolv_conf(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        address.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, PORT))
    };
    text.lines().filter_map(server).collect()
}

/// The warning that neither the configuration nor the system's file names a name server.
pub(super) fn warning(config: &Path, dns: &DnsConfig, system: &Path) -> Option<Diagnostic> {
    if !dns.is_from_system {
        return None;
    }
    let why = system_name_servers(system).err()?;
    let message = format!(
        "`servers` in [dns] is not set, and {why}; a server that starts now queries {LOCAL}, and mail waits if nothing \
         answers there; a running server keeps its name servers; correct the file, or set `servers`"
    );
    Some(Diagnostic { severity: Severity::Warning, ..Diagnostic::of_file(config, message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_of_a_resolv_conf() {
        let servers = |text: &str| parse_resolv_conf(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(servers("# x\nsearch a\nnameserver 10.0.0.1\nnameserver\t::1 # y\n"), ["10.0.0.1:53", "[::1]:53"]);
        assert!(servers("nameserver\nnameserver a\n").is_empty());
    }

    #[test]
    fn a_system_without_name_servers_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let (config, system) = (Path::new("stentor.toml"), folder.path().join("resolv.conf"));
        let mut dns = crate::without_file().unwrap().dns;
        assert!(dns.is_from_system);
        let warned = |dns: &DnsConfig| warning(config, dns, &system).map(|found| found.to_string()).unwrap_or_default();
        let missing = warned(&dns);
        assert!(missing.starts_with("stentor.toml: warning: `servers` in [dns] is not set"), "{missing}");
        assert!(missing.contains(&format!("{} cannot be read: No such file", system.display())), "{missing}");
        std::fs::write(&system, "search a.example\n").unwrap();
        assert!(warned(&dns).contains("names no name server"), "{}", warned(&dns));
        dns.is_from_system = false;
        assert_eq!(warned(&dns), "");
        dns.is_from_system = true;
        std::fs::write(&system, "nameserver 10.0.0.1\n").unwrap();
        assert_eq!(warned(&dns), "");
    }
}
