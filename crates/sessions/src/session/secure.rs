//! Secures a session: after STARTTLS, or before its greeting.
//!
//! Promise: a handshake has a deadline like a command, which is shorter while others wait for the connection.
//! Everything that the client sent in clear is forgotten, including its login at a proxy. Each failure is noted with
//! its cause, and ends the session.

use std::io;
use std::time::Duration;

use stentor_core::security::{Situation, bindings};
use stentor_rules::TlsFacts;
use stentor_smtp::server::ServerSession;
use stentor_tls::{HandshakeFacts, PeerProof, TlsSocket};
use tokio::time::Instant;

use super::super::open_sessions::Counted;
use super::super::socket::Socket;
use super::Session;

/// Time limit of a handshake, and the shorter one while connections are short.
const HANDSHAKE_MAX: Duration = Duration::from_mins(1);
const HURRIED_HANDSHAKE_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// Performs the handshake after the client got its 220.
    pub(super) async fn start_tls(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.become_secured().await
    }

    pub(super) async fn become_secured(&mut self) -> io::Result<()> {
        let Some(server) = self.security.tls().cloned() else { return Err(io::ErrorKind::NotConnected.into()) };
        let limit = if self.is_crowded() { HURRIED_HANDSHAKE_MAX } else { HANDSHAKE_MAX };
        let command = Duration::from_millis(self.settings.config.listen.command_timeout_ms);
        if let Err(error) = self.stream.secure(&server, Instant::now() + limit.min(command)).await {
            self.core.handshakes.failed(self.client, &error, self.core.clock.steady());
            if let Some(tap) = &self.tap {
                tap.event(self.core.clock.now(), &format!("TLS handshake failed: {error}"));
            }
            return Err(error.into());
        }
        let facts = self.stream.facts();
        // A client behind a proxy has shown no certificate here, whoever made the handshake.
        let own = facts.filter(|_| !self.is_proxied);
        (self.proven, self.unproven) = match own.and_then(|facts| self.security.proven(facts)) {
            Some(Ok(name)) => (Some(name), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        if let (Some(tap), Some(facts)) = (&self.tap, facts) {
            tap.event(self.core.clock.now(), &format!("{} {}", facts.version, facts.cipher));
        }
        let trusted = self.settings.policy.is_trusted(self.client) || self.proven.is_some();
        let who = Counted { client: self.client, trusted, is_proxy: false };
        if self.trusted != trusted
            && let Err((limit, reply)) = self.admitted.change(who, self.limits())
        {
            self.core.limits.hit(limit, self.core.clock.now());
            self.smtp.output().clear();
            reply.write_to(self.smtp.output());
            self.flush().await?;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        (self.trusted, self.login, self.milters) = (trusted, None, None);
        (self.account, self.exchange) = (None, None);
        let offers = self.security.offers(self.listener, self.situation(), || self.channel()).unwrap_or_default();
        self.smtp.secured(offers, trusted, self.core.clock.steady());
        Ok(())
    }

    /// Returns the session's properties that its offers depend on.
    pub(super) fn situation(&self) -> Situation {
        let tls = self.stream.tls().map(TlsSocket::secured);
        Situation {
            is_secured: tls.is_some(),
            // Deriving a binding costs several microseconds.
            has_binding: self.security.auth().is_some() && !bindings(tls).is_empty(),
            may_be_clear: self.may_be_clear(),
            is_proven: self.proven.is_some(),
            in_client_networks: self.settings.policy.is_trusted(self.client),
        }
    }

    pub(super) fn may_be_clear(&self) -> bool {
        self.settings.config.auth.clear_networks.iter().any(|network| network.contains(&self.client))
    }

    /// Updates the session's offers to its current properties.
    pub(super) fn offer(&mut self) {
        if let Some(offers) = self.security.offers(self.listener, self.situation(), || self.channel()) {
            self.smtp.offer(offers);
        }
    }
}

/// Returns TLS version and cipher.
pub(super) fn words(stream: &Socket) -> Option<(&'static str, &'static str)> {
    stream.facts().map(|&HandshakeFacts { version, cipher, .. }| (version, cipher))
}

/// Returns the session's TLS facts for milters and policy services; none if TLS is a proxy's. `is_trusted`: the
/// client's certificate makes it trusted; its names are then included even if no CA signed it.
pub(super) fn tls_facts(stream: &Socket, is_proxied: bool, is_trusted: bool) -> Option<TlsFacts<'_>> {
    if is_proxied {
        return None;
    }
    let &HandshakeFacts { version, cipher, bits, ref peer, ref proven, .. } = stream.facts()?;
    let is_proven = is_trusted || matches!(proven, PeerProof::Ca(_));
    let certificate = peer.as_ref().filter(|_| is_proven).map(|peer| (&*peer.subject, &*peer.issuer));
    Some(TlsFacts { version, cipher, bits, certificate })
}

/// Passes octets to the state machine, and overwrites them if they may include a password.
pub(super) fn receive(smtp: &mut ServerSession, octets: &mut [u8]) {
    smtp.receive(octets);
    if smtp.may_get_secrets() {
        octets.fill(0);
    }
}
