//! A session that becomes secured: after STARTTLS, or before its greeting.
//!
//! Promise: a handshake has a deadline, as a command has, and less while others wait for the connection. What the client said
//! in clear is forgotten, its login at a proxy too. Each failure is noted with its cause, and ends the session.

use std::io;
use std::time::Duration;

use stentor_engine::core::security::Situation;
use stentor_mail::server::ServerSession;
use stentor_tls::{Facts, TlsSocket};
use tokio::time::Instant;

use super::super::open_sessions::Counted;
use super::super::socket::Socket;
use super::Session;

/// Time for a handshake; and while connections are short.
const HANDSHAKE_MAX: Duration = Duration::from_mins(1);
const HURRIED_HANDSHAKE_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// The client has got its 220: does the handshake.
    pub(super) async fn start_tls(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.become_secured().await
    }

    pub(super) async fn become_secured(&mut self) -> io::Result<()> {
        let Some(server) = self.security.tls().cloned() else { return Err(io::ErrorKind::NotConnected.into()) };
        let limit = if self.is_crowded() { HURRIED_HANDSHAKE_MAX } else { HANDSHAKE_MAX };
        let command = Duration::from_millis(self.settings.config.listen.command_timeout_ms);
        if let Err(error) = self.stream.secure(&server, Instant::now() + limit.min(command)).await {
            let (client, cause) = (self.client, error.cause.key());
            tracing::debug!(%client, cause, %error, "a client's TLS handshake failed");
            if let Some(tap) = &self.tap {
                tap.event(self.core.clock.now(), &format!("TLS handshake failed: {error}"));
            }
            return Err(error.into());
        }
        let facts = self.stream.facts();
        self.proven = facts.and_then(|facts| self.security.proven(facts)).map(Box::from);
        if let (Some(tap), Some(facts)) = (&self.tap, facts) {
            tap.event(self.core.clock.now(), &format!("{} {}", facts.version, facts.cipher));
        }
        let trusted = self.settings.policy.is_trusted(self.client) || self.proven.is_some();
        let who = Counted { client: self.client, trusted, is_proxy: false };
        if self.trusted != trusted
            && let Err((limit, reply)) = self.admitted.change(who, &self.settings.config.listen)
        {
            self.core.limits.hit(limit, self.core.clock.now());
            self.smtp.output().clear();
            reply.write_to(self.smtp.output());
            self.flush().await?;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        (self.trusted, self.login, self.filter) = (trusted, None, None);
        (self.account, self.exchange) = (None, None);
        let offers = self.security.offers(self.service, self.situation(), &self.channel()).unwrap_or_default();
        self.smtp.secured(offers, trusted, self.core.clock.steady());
        Ok(())
    }

    /// What its offers depend on.
    pub(super) fn situation(&self) -> Situation {
        let tls = self.stream.tls().map(TlsSocket::secured);
        let networks = &self.settings.config.auth.allow_clear_networks;
        Situation {
            is_secured: tls.is_some(),
            has_binding: tls.is_some_and(|tls| tls.server_end_point().is_some() || tls.exporter().is_some()),
            may_be_clear: networks.iter().any(|network| network.contains(&self.client)),
            is_proven: self.proven.is_some(),
        }
    }

    /// Gives a session in clear its offers.
    pub(super) fn offer(&mut self) {
        if let Some(offers) = self.security.offers(self.service, self.situation(), &self.channel()) {
            self.smtp.offer(offers);
        }
    }
}

/// Version and cipher.
pub(super) fn words(stream: &Socket) -> Option<(&'static str, &'static str)> {
    stream.facts().map(|&Facts { version, cipher, .. }| (version, cipher))
}

/// Takes what was read, and overwrites it where it may hold a password.
pub(super) fn receive(smtp: &mut ServerSession, octets: &mut [u8]) {
    smtp.receive(octets);
    if smtp.may_get_secrets() {
        octets.fill(0);
    }
}
