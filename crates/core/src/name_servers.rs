//! Follows the name servers of /etc/resolv.conf where the configuration names none.
//!
//! Promise: a changed file is in force after two checks ([`LOOK_INTERVAL`]); libc checks at each query. A file that is
//! missing, unreadable or without a name server is logged once, and the previous name servers stay in use. A lookup in
//! progress keeps the resolver with which it began ([`Resolver::with_name_servers`]).

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_config::{RESOLV_CONF, system_name_servers};
use stentor_resolve::Resolver;

use crate::{Core, files};

/// Time between two looks at the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// [`files::state`]; `None` if the file is missing or inaccessible.
type FileState = Option<String>;

/// A file that is read when it has changed.
struct NameServerFile {
    path: PathBuf,
    /// Its state at the last reading.
    read: Option<FileState>,
    /// Its state at the last look. A file that is being written is read once it has not changed between two looks.
    last: Option<FileState>,
}

impl NameServerFile {
    fn new(path: impl Into<PathBuf>) -> NameServerFile {
        NameServerFile { path: path.into(), read: None, last: None }
    }

    /// Reads the file if it has changed. Blocks.
    fn look(&mut self) -> Option<Result<Vec<SocketAddr>, String>> {
        let now = Some(fs::metadata(&self.path).ok().as_ref().map(files::state));
        let was = std::mem::replace(&mut self.last, now.clone());
        if now != was || now == self.read {
            return None;
        }
        self.read = now;
        Some(system_name_servers(&self.path))
    }
}

/// Replaces the resolver when the file names other servers, until the process ends. Returns at once if the
/// configuration names them, which only a restart changes.
pub async fn follow(core: Arc<Core>) {
    if !core.settings().config.dns.is_from_system {
        return;
    }
    let mut file = NameServerFile::new(RESOLV_CONF);
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let looked = tokio::task::spawn_blocking(move || {
            let found = file.look();
            (file, found)
        });
        let Ok((kept, found)) = looked.await else { return };
        file = kept;
        if let Some(next) = found.and_then(|found| successor(&core.resolver(), found)) {
            core.replace_resolver(next);
        }
    }
}

/// The resolver with the name servers of the file, if they differ from those in force.
fn successor(current: &Resolver, found: Result<Vec<SocketAddr>, String>) -> Option<Resolver> {
    let listed = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let servers = match found {
        Ok(servers) if servers == current.name_servers() => return None,
        Ok(servers) => servers,
        Err(why) => {
            let in_use = listed(current.name_servers());
            tracing::warn!("{why}; still querying {in_use}; correct the file, or set [dns] servers and restart");
            return None;
        }
    };
    let names = listed(&servers);
    match current.with_name_servers(servers) {
        Ok(next) => {
            tracing::info!("{RESOLV_CONF} has changed; the name servers are now {names}");
            Some(next)
        }
        Err(error) => {
            tracing::error!(%error, "the name servers of {RESOLV_CONF} ({names}) cannot be used");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_resolve::ResolverConfig;

    use super::*;

    fn server(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_file_is_read_once_it_has_stopped_changing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let mut file = NameServerFile::new(&path);
        assert!(file.look().is_none());
        assert!(file.look().unwrap().unwrap_err().contains("cannot be read"), "a missing file is reported");
        assert!(file.look().is_none(), "once");
        fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        assert!(file.look().is_none(), "it may be half written");
        assert_eq!(file.look(), Some(Ok(vec![server("192.0.2.1:53")])));
        assert!(file.look().is_none());
        // As an editor or a DHCP client replaces it.
        fs::write(folder.path().join("new"), "nameserver 192.0.2.2\n").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(file.look().is_none());
        assert_eq!(file.look(), Some(Ok(vec![server("192.0.2.2:53")])));
    }

    #[test]
    fn changed_name_servers_replace_the_resolver_and_an_unreadable_file_does_not() {
        let first = vec![server("127.0.0.1:53")];
        let config = ResolverConfig { name_servers: first.clone(), ..ResolverConfig::default() };
        let resolver = Resolver::new(config).unwrap();
        assert!(successor(&resolver, Err("missing".to_owned())).is_none());
        assert!(successor(&resolver, Ok(first.clone())).is_none());
        let second = vec![server("192.0.2.1:53"), server("192.0.2.2:53")];
        let next = successor(&resolver, Ok(second.clone())).unwrap();
        assert_eq!(next.name_servers(), second);
        assert_eq!(resolver.name_servers(), first, "look-ups in progress keep theirs");
        assert!(resolver.validates() && !next.validates(), "a network's answers are not believed");
    }
}
