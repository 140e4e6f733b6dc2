//! STARTTLS (RFC 3207) and AUTH (RFC 4954) in a session.
//!
//! States: `StartTls` (a transaction was dropped, the 220 follows), then `Asked(Tls)` until the caller calls
//! [`ServerSession::secured`] or closes. `Asked(Auth)` while the caller decides; `Response` while the client's next
//! line is a response; both end in `Command`.
//!
//! Promise: of the cleartext session only the client's address and the count of its errors stay. Octets present after
//! STARTTLS when it is read close the session (CVE-2011-0411); later ones go to the caller's handshake, which they
//! break. Lines of an exchange are overwritten once they are read. Once a session has seen AUTH, in any form and with
//! any reply, none of its unknown commands is shown. Clients send the lines of an exchange without waiting for replies,
//! and may have sent anything between them.

use std::sync::Arc;

use memchr::memchr;
use stentor_mail::Ms;
use stentor_mail::reply::Reply;

use super::super::offers::NOTHING;
use super::super::sasl::{self, AUTH_LINE_BYTES_MAX, SecretBytes};
use super::super::{Offers, Refusal, Step, replies};
use super::{Question, Request, ServerSession, State};

/// Start of an AUTH command, whose line may be longer than others.
const AUTH: &[u8] = b"AUTH ";

/// The security of a session.
#[derive(Debug, Default)]
pub(super) struct Security {
    offers: Option<Arc<Offers>>,
    is_secured: bool,
    is_authenticated: bool,
    /// Failed attempts of AUTH.
    failures: u8,
    /// The client has tried AUTH on this connection, or within this TLS session: any later line may be a response of an
    /// exchange.
    may_be_secret: bool,
}

impl Security {
    pub(super) fn offers(&self) -> &Offers {
        self.offers.as_deref().unwrap_or(&NOTHING)
    }

    pub(super) fn lists_starttls(&self) -> bool {
        self.offers().starttls && !self.is_secured
    }

    pub(super) fn lists_requiretls(&self) -> bool {
        self.offers().requiretls && self.is_secured
    }

    /// Whether the session requires STARTTLS before anything else.
    pub(super) fn wants_tls(&self) -> bool {
        self.offers().require_tls && !self.is_secured
    }

    pub(super) fn wants_auth(&self) -> bool {
        self.offers().require_auth && !self.is_authenticated
    }

    /// Returns the refusal of MAIL from a client without a required login.
    pub(super) fn refusal_before_auth(&self) -> Reply {
        let offers = self.offers();
        let can_log_in = !offers.auth.is_empty() || offers.auth_after_tls;
        if can_log_in { replies::AUTH_FIRST } else { replies::TRUSTED_ONLY }
    }

    pub(super) fn may_be_secret(&self) -> bool {
        self.may_be_secret
    }

    /// Examines a line, or the beginning of one that is too long.
    pub(super) fn read_line(&mut self, line: &[u8]) {
        self.may_be_secret |= is_like_auth(line);
    }

    /// Notes that a proxy has named another login, or none.
    pub(super) fn vouched(&mut self, is_authenticated: bool) {
        (self.is_authenticated, self.failures) = (is_authenticated, 0);
    }
}

/// Whether a line is an AUTH command, or was meant as one.
fn is_like_auth(line: &[u8]) -> bool {
    let verb = line.trim_ascii_start().get(..AUTH.len() - 1);
    verb.is_some_and(|verb| verb.eq_ignore_ascii_case(&AUTH[..AUTH.len() - 1]))
}

impl ServerSession {
    /// Returns the mechanisms that EHLO lists.
    pub fn offered_mechanisms(&self) -> &str {
        &self.security.offers().auth
    }

    /// Sets the session's offers and requirements from now on.
    pub fn offer(&mut self, offers: Arc<Offers>) {
        self.security.offers = Some(offers);
    }

    /// Notes that the connection is secured: after [`Step::StartTls`], or before any input where TLS begins with the
    /// first octet. The session restarts after its greeting, with these offers.
    pub fn secured(&mut self, offers: Arc<Offers>, trusted: bool, now: Ms) {
        debug_assert!(
            matches!(self.state, State::Asked(Question::Tls) | State::Command) && !self.open,
            "nobody asked for TLS"
        );
        self.input.clear();
        (self.helo, self.esmtp, self.smtputf8, self.recipients) = (None, false, false, 0);
        self.state = State::Command;
        let failures = self.security.failures;
        self.security = Security { offers: Some(offers), is_secured: true, failures, ..Security::default() };
        self.trusted = trusted;
        self.timer.trust(trusted);
        self.timer.restart_at(&self.config, now);
    }

    /// Whether the connection is secured.
    pub fn is_secured(&self) -> bool {
        self.security.is_secured
    }

    /// Whether the next input may hold a password, so that its copies must be overwritten.
    pub fn may_get_secrets(&self) -> bool {
        self.state == State::Response || !self.security.is_authenticated && !self.security.offers().auth.is_empty()
    }

    /// Whether the client has logged in.
    pub fn is_authenticated(&self) -> bool {
        self.security.is_authenticated
    }

    /// Answers [`Step::Auth`] and [`Step::AuthResponse`] with a challenge.
    pub fn challenge(&mut self, challenge: &[u8]) {
        debug_assert!(self.state == State::Asked(Question::Auth), "nobody authenticates");
        sasl::write_challenge(challenge, &mut self.output);
        self.timer.restart();
        self.state = State::Response;
    }

    /// Makes the client trusted after a successful exchange, answered with 235.
    pub fn authenticated(&mut self) {
        if self.state != State::Closed {
            self.security.is_authenticated = true;
            self.trusted = true;
            self.timer.trust(true);
            (self.errors, self.unproductive, self.recipients_seen) = (0, 0, 0);
        }
    }

    /// Returns the maximum octets of the next line.
    pub(super) fn line_bytes_max(&self) -> usize {
        let security = &self.security;
        let is_auth = || self.input.rest().get(..AUTH.len()).is_some_and(|verb| verb.eq_ignore_ascii_case(AUTH));
        if !security.offers().auth.is_empty() && !security.is_authenticated && is_auth() {
            AUTH_LINE_BYTES_MAX.max(self.config.command_bytes_max)
        } else {
            self.config.command_bytes_max
        }
    }

    /// Checks STARTTLS against the session's state.
    pub(super) fn admit_starttls(&self) -> Result<Request, Refusal> {
        if self.security.is_secured {
            return Err(replies::TLS_TWICE.into());
        }
        if self.security.offers().starttls { Ok(Request::StartTls) } else { Err(replies::NOT_OFFERED.into()) }
    }

    /// Checks AUTH against the session's state, then parses its arguments.
    pub(super) fn admit_auth(&self, argument: &[u8]) -> Result<Request, Reply> {
        let offers = self.security.offers();
        if self.security.is_authenticated {
            return Err(replies::AUTH_TWICE);
        }
        if offers.auth.is_empty() {
            let is_later = offers.auth_after_tls && !self.security.is_secured;
            return Err(if is_later { replies::AUTH_AFTER_TLS } else { replies::NOT_OFFERED });
        }
        if self.helo.is_none() {
            return Err(if self.config.lmtp { replies::LHLO_FIRST } else { replies::HELO_FIRST });
        }
        if self.open {
            return Err(replies::AUTH_IN_MAIL);
        }
        let mut words = argument.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let mechanism = words.next().and_then(|word| std::str::from_utf8(word).ok()).ok_or(replies::AUTH_SYNTAX)?;
        let initial = words.next();
        if words.next().is_some() {
            return Err(replies::AUTH_SYNTAX);
        }
        if !offers.has_mechanism(mechanism) {
            return Err(replies::AUTH_UNKNOWN);
        }
        let initial = initial.map(|text| sasl::decode_initial(text).ok_or(replies::NOT_BASE64)).transpose()?;
        Ok(Request::Auth { mechanism: mechanism.to_ascii_uppercase().into(), initial })
    }

    /// Handles a STARTTLS command.
    pub(super) fn starttls_command(&mut self) -> Option<Step> {
        if !self.input.is_empty() {
            self.close_with(&replies::EARLY_TLS);
            return None;
        }
        self.state = State::StartTls;
        self.reset()
    }

    /// Sends the 220 of STARTTLS; nothing more is read in clear.
    pub(super) fn go_tls(&mut self) -> Step {
        replies::GO_TLS.write_to(&mut self.output);
        self.input.clear();
        self.timer.restart();
        self.state = State::Asked(Question::Tls);
        Step::StartTls
    }

    /// Takes one line of an exchange, if it has arrived.
    pub(super) fn response(&mut self) -> Step {
        let rest = self.input.rest();
        let Some(end) = memchr(b'\n', &rest[..rest.len().min(AUTH_LINE_BYTES_MAX)]) else {
            if rest.len() < AUTH_LINE_BYTES_MAX && !self.overlong {
                return Step::NeedInput;
            }
            self.overlong = true;
            let end = memchr(b'\n', rest);
            self.input.consume_secret(end.map_or(rest.len(), |end| end + 1));
            return if end.is_some() { self.cancelled(&replies::AUTH_TOO_LONG) } else { Step::NeedInput };
        };
        let response = match rest[..end].strip_suffix(b"\r") {
            _ if self.overlong => Err(replies::AUTH_TOO_LONG),
            Some(b"*") => Err(replies::AUTH_CANCELLED),
            Some(line) => sasl::decode(line).ok_or(replies::NOT_BASE64),
            None => Err(replies::LINE_END),
        };
        self.input.consume_secret(end + 1);
        match response {
            Ok(response) => {
                self.state = State::Asked(Question::Auth);
                Step::AuthResponse(response)
            }
            Err(reply) => self.cancelled(&reply),
        }
    }

    /// Ends an exchange without the caller.
    fn cancelled(&mut self, reply: &Reply) -> Step {
        self.overlong = false;
        self.state = State::Command;
        self.say(reply, !self.trusted);
        self.auth_failed();
        Step::AuthCancelled
    }

    /// Counts a failed attempt, whoever the client is.
    pub(super) fn auth_failed(&mut self) {
        self.security.failures = self.security.failures.saturating_add(1);
        if self.security.failures >= self.config.auth_failures_max && self.state != State::Closed {
            self.close_with(&replies::TOO_MANY_LOGINS);
        }
    }

    /// Handles an AUTH command.
    pub(super) fn auth_command(&mut self, mechanism: Box<str>, initial: Option<SecretBytes>) -> Step {
        self.state = State::Asked(Question::Auth);
        Step::Auth { mechanism, initial }
    }
}
