//! AUTH: logging in, and the privileges of a login.
//!
//! Promise: the authenticator runs the exchange, uses no thread of the runtime and slows guesses; nothing of the
//! exchange is logged here. A login has the privileges of a client network, with limits and senders of its own. It ends
//! with its session, at TLS, and immediately when its user is locked, removed or gets another password.

use std::net::{Ipv4Addr, SocketAddr};

use stentor_auth::{Channel, Login, Step};
use stentor_core::security::bindings;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_sasl::{Mechanism, Mechanisms};
use stentor_smtp::server::{NOT_OFFERED, SecretBytes};
use stentor_tls::TlsSocket;

use super::super::open_sessions::Counted;
use super::super::transaction::{Account, Submitted, Transaction};
use super::Session;

const LOGGED_IN: Reply = Reply::fixed(235, Enhanced::new(2, 7, 0), "Authentication successful");
/// Reply to a session whose login has ended.
pub(super) const ENDED: Reply = Reply::fixed(421, Enhanced::new(4, 7, 0), "The login is no longer valid, closing");

/// Returns once a login has ended; never returns without one.
pub(super) async fn ended(account: Option<&Login>) {
    match account {
        Some(login) => login.ended().await,
        None => std::future::pending().await,
    }
}

impl Session {
    pub(super) async fn authenticate(&mut self, mechanism: &str, initial: Option<SecretBytes>) {
        let (Some(auth), Ok(mechanism)) = (self.security.auth(), mechanism.parse::<Mechanism>()) else {
            return self.smtp.answer(NOT_OFFERED);
        };
        let offered = Mechanisms::parse(self.smtp.offered_mechanisms());
        self.exchange = Some(Box::new(auth.begin(mechanism, self.channel(), offered)));
        self.respond(initial.as_ref()).await;
    }

    /// Continues with the client's response.
    pub(super) async fn respond(&mut self, response: Option<&SecretBytes>) {
        let Some(mut exchange) = self.exchange.take() else {
            return self.smtp.answer(NOT_OFFERED);
        };
        match exchange.step(response.map(SecretBytes::octets)).await {
            Step::Challenge(octets) => {
                self.smtp.challenge(&octets);
                self.exchange = Some(exchange);
            }
            Step::Done(login) => self.logged_in(login),
            Step::Refused(refusal) => self.smtp.answer(refusal.reply()),
        }
    }

    fn logged_in(&mut self, login: Login) {
        let who = Counted { client: self.client, trusted: true, is_proxy: false };
        if let Err((limit, reply)) = self.admitted.change(who, self.limits()) {
            self.core.limits.hit(limit, self.core.clock.now());
            return self.smtp.answer(reply);
        }
        self.login = Some(login.user().as_ref().into());
        // Milters were told that there is no login.
        (self.trusted, self.milters) = (true, None);
        self.account = Some(Box::new(login));
        self.smtp.answer(LOGGED_IN);
        self.smtp.authenticated();
    }

    /// Returns how the user logged in, here or at the proxy.
    pub(super) fn mechanism(&self) -> &'static str {
        match (&self.account, &self.login) {
            (Some(login), _) => login.mechanism().name(),
            // As in Postfix.
            (None, Some(_)) => "XCLIENT",
            (None, None) => "",
        }
    }

    /// Returns the channel of an exchange.
    pub(super) fn channel(&self) -> Channel {
        let tls = self.stream.tls().map(TlsSocket::secured);
        Channel {
            client: SocketAddr::new(self.client, self.port),
            local: self.server.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into()),
            is_secured: tls.is_some() || self.may_be_clear(),
            bindings: bindings(tls),
        }
    }

    /// Adds a user's limits and senders to a message from a login, or from a listener for users.
    pub(super) fn submits(&self, begun: Box<Transaction>) -> Result<Box<Transaction>, Reply> {
        if self.account.is_none() && !self.listener.service.is_for_users() {
            return Ok(begun);
        }
        let account = self.account.as_deref().zip(self.security.auth());
        let account = account.map(|(login, auth)| Account { login: login.clone(), auth: auth.clone() });
        let limits = self.core.settings().config.auth.limits;
        begun.submitted(&self.core, Submitted::new(&self.settings, account, limits, self.core.clock.steady()))
    }
}
