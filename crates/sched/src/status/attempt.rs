//! Connections on their way to a session: their stage, and since when.
//!
//! Promise: computed only when somebody asks; nothing is stored for it beyond each connection's own state.

use stentor_queue::cause::Cause;
use stentor_queue::ids::{Ms, SiteId};

use crate::connections::pool::Conn;
use crate::effects::SessionStep;
use crate::sites::HostNo;
use crate::tables::Map;
use crate::{Scheduler, SourceSet};

/// A connection without a session, or one whose host is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionAttempt {
    pub reach: SessionStep,
    /// When this stage began.
    pub since: Ms,
    /// Whether it has lasted longer than hosts normally take.
    is_silent: bool,
}

impl ConnectionAttempt {
    fn of(conn: &Conn) -> ConnectionAttempt {
        ConnectionAttempt { reach: conn.reach.0, since: conn.reach.1, is_silent: conn.silent }
    }

    /// An attempt in a session, since the host's last reply.
    pub(super) fn without_reply(since: Ms) -> ConnectionAttempt {
        ConnectionAttempt { reach: SessionStep::Reply, since, is_silent: true }
    }

    /// The cause of waiting for mail that has no other cause.
    pub(super) fn cause(self) -> Cause {
        match self.reach {
            SessionStep::Greeting if self.is_silent => Cause::NoGreeting,
            SessionStep::Hello if self.is_silent => Cause::Silent,
            SessionStep::Reply => Cause::Silent,
            SessionStep::Connecting | SessionStep::Greeting | SessionStep::Hello => Cause::Connecting,
        }
    }
}

/// The attempt at each host; of several the one that has waited longest. Steady time.
pub(super) type Attempts = Map<HostNo, ConnectionAttempt>;

impl Scheduler {
    /// All attempts, or those at hosts of a site. Visits each connection, unless the site has none being made.
    pub(super) fn attempts(&self, at: Option<SiteId>) -> Attempts {
        let mut found = Attempts::default();
        let site = at.and_then(|site| self.state.sites.peek(site));
        if site.is_some_and(|site| site.paths.iter().all(|path| path.conns == path.greeted)) {
            return found;
        }
        for (host, attempt) in self.pool.connecting().map(|conn| (conn.hop.host, ConnectionAttempt::of(conn))) {
            let first = found.entry(host).or_insert(attempt);
            if attempt.since < first.since {
                *first = attempt;
            }
        }
        found
    }

    /// The attempt that mail from some sources waits for at a site, if there is one and no session.
    pub(super) fn attempt_at(
        &self,
        site: SiteId,
        sources: SourceSet,
        attempts: &Attempts,
    ) -> Option<ConnectionAttempt> {
        let entry = self.state.sites.peek(site).filter(|_| !attempts.is_empty())?;
        if entry.paths_of(sources).any(|(_, path)| path.greeted > 0) {
            return None;
        }
        let hosts = entry.paths_of(sources).filter(|(_, path)| path.conns > 0).flat_map(|(_, path)| &path.hosts);
        hosts.filter_map(|host| attempts.get(host)).min_by_key(|attempt| attempt.since).copied()
    }

    /// The attempt with its time as wall-clock time.
    pub(super) fn dated(&self, attempt: ConnectionAttempt) -> ConnectionAttempt {
        ConnectionAttempt { since: self.state.time.wall(attempt.since), ..attempt }
    }
}
