//! The login of a connection at a smart host ([`super::super::login`]). If the host refuses an access token, one new
//! token is requested and one more connection made in the same attempt.

use stentor_core::sts::LookupServices;
use stentor_records::escape::printable;
use stentor_smtp::client::{AuthRefusal, ClientError, OfferedMechanisms};

use super::super::login::{self, LoginStart, TokenAccess};
use super::super::opening::closed;
use super::Connection;

/// Octets logged of a host's reason for refusing a token.
const FAILURE_BYTES_MAX: usize = 1_024;

impl Connection {
    /// Begins AUTH. The session ends if there is no secret, or no mechanism in common.
    pub(super) async fn log_in(&mut self, offered: OfferedMechanisms) {
        let port = self.target.addr.port();
        let smart_host = self.settings.config.protection.smart_host(&self.target.host, port);
        let Some(smart_host) = smart_host else { return };
        let unproven = self.protection.unproven();
        let core = &self.core;
        let resolver = core.resolver();
        let services = LookupServices { resolver: &resolver, settings: &self.settings, clock: &core.clock };
        let access = TokenAccess { tokens: &core.tokens, services };
        let begun = tokio::select! {
            begun = login::begin(smart_host, access, offered, self.stream.secured(), unproven.as_deref()) => begun,
            _ = closed(&self.signal) => return self.smtp.quit(self.core.clock.steady()),
        };
        let now = self.core.clock.steady();
        match begun {
            Ok(LoginStart { client, initial, token }) => {
                if let Some(tap) = &self.tap {
                    tap.event(self.core.clock.now(), &format!("AUTH {} as {}", client.mechanism(), smart_host.user));
                }
                let sent = self.smtp.auth(client.mechanism().name(), initial.as_deref(), now);
                if sent.is_err() {
                    self.smtp.decline_auth("the secret is too long", now);
                }
                (self.login, self.token) = (Some(client), token);
            }
            Err(why) => self.smtp.decline_auth(&why, now),
        }
    }

    /// Answers a challenge. For a token, the challenge is the reason for its refusal.
    pub(super) async fn respond(&mut self, octets: Vec<u8>) {
        let Some(login) = self.login.take() else { return };
        let (login, response) = login::respond(login, octets).await;
        if let Some(why) = login.as_ref().and_then(|login| login.failure()) {
            tracing::info!(
                host = %self.target.host, address = %self.target.addr,
                "the host refused the access token: {}", printable(why, FAILURE_BYTES_MAX)
            );
        }
        self.login = login;
        let now = self.core.clock.steady();
        match response {
            Ok(octets) => _ = self.smtp.respond(&octets, now),
            Err(why) => self.smtp.decline_auth(&why, now),
        }
    }

    /// Requests another access token where the host refused ours, once per attempt. Returns whether to reconnect with
    /// it.
    pub(super) async fn replace_refused_token(&mut self, error: Option<&ClientError>) -> bool {
        let failure = self.login.take().is_some_and(|login| login.failure().is_some());
        let (Some(generation), Some(error)) = (self.token.take(), error) else { return false };
        let is_refused = match error {
            ClientError::Auth { why: AuthRefusal::Temporary, .. } => false,
            ClientError::Auth { why, .. } => failure || *why == AuthRefusal::Credentials,
            // Some hosts close the connection after giving the reason.
            _ => failure,
        };
        if !is_refused || self.is_ready || self.has_new_token || self.signal.must_close() {
            return false;
        }
        let port = self.target.addr.port();
        let Some(smart_host) = self.settings.config.protection.smart_host(&self.target.host, port) else {
            return false;
        };
        self.has_new_token = self.core.tokens.refused(smart_host, generation, self.core.clock.steady()).await;
        if self.has_new_token {
            tracing::info!(
                host = %self.target.host, address = %self.target.addr,
                "the host refused the access token ({error}); retrying the login with a new one"
            );
            if let Some(tap) = &self.tap {
                tap.event(self.core.clock.now(), &error.to_string());
            }
        }
        self.has_new_token
    }
}
