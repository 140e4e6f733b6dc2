//! State of hosts and paths that survives a restart, and their names meanwhile.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use stentor_queue::ids::{Ms, SiteId};

use super::path::Path;
use super::{Host, HostNo, Sites};
use crate::effects::SourceNo;
use crate::kept::{KeptClock, KeptHost};

impl Host {
    pub(crate) fn kept(&self, now: Ms) -> KeptHost {
        KeptHost {
            // Early probes are not kept, but the clock beneath them is.
            clock: KeptClock { until: self.until.max(self.ended_early), fails: self.fails, reason: self.reason },
            retries: self.retries,
            pauses: self.pauses,
            paused_ms: self.paused_ms,
            conns_max: self.conns_max,
            grow_at: self.grow_at,
            used: now,
        }
    }

    /// Restores a host that failed before the start: one probe tries it after its clock.
    pub(crate) fn recall(&mut self, kept: &KeptHost) {
        (self.until, self.fails, self.reason) = (kept.clock.until, kept.clock.fails, kept.clock.reason);
        (self.retries, self.pauses, self.paused_ms) = (kept.retries, kept.pauses, kept.paused_ms);
        (self.conns_max, self.grow_at) = (kept.conns_max, kept.grow_at);
    }
}

/// Name of a host: source, address, and its TLS requirements; `None`: the place is free.
pub(super) fn kept_name(sources: &[Box<str>], host: &Host) -> Option<Box<str>> {
    let (source, addr, posture) = host.addr.as_ref()?;
    let source = sources.get(usize::from(*source)).map_or("", |name| name);
    let tls = if addr.is_implicit_tls() { "tls" } else { "" };
    // Different requirements make different hosts, as in the table of hosts.
    let posture =
        posture.as_ref().map_or(0, |posture| foldhash::fast::FixedState::default().hash_one(format!("{posture:?}")));
    Some(format!("{source} {addr} {tls} {posture:x}").into())
}

impl Sites {
    pub(crate) fn kept_name(&self, host: &Host) -> Option<Box<str>> {
        kept_name(&self.sources, host)
    }

    /// Name of a source; empty if there is one source without a name.
    pub(crate) fn source_name(&self, source: SourceNo) -> &str {
        self.sources.get(usize::from(source)).map_or("", |name| name)
    }

    /// The hosts of a site, by the names of [`Sites::kept_name`].
    pub(crate) fn hosts_named(&self, site: SiteId) -> Vec<(Box<str>, HostNo)> {
        let all = self.list[site.0 as usize].paths.iter().flat_map(|path| &path.hosts);
        all.filter_map(|no| Some((self.kept_name(&self.hosts[*no as usize])?, *no))).collect()
    }

    /// Restores an earlier run's knowledge of a site's next path.
    pub(super) fn recall_path(&mut self, site: SiteId, path: &mut Path, now: Ms) {
        if self.remembered.paths.is_empty() {
            return;
        }
        let entry = &self.list[site.0 as usize];
        let source: Box<str> = self.source_name(entry.paths.len() as SourceNo).into();
        let key: Arc<str> = entry.key.clone();
        if let Some((memory, _)) = self.remembered.paths.remove(&(key, source)) {
            path.recall(&memory, now);
        }
    }
}
