//! The server's side of all mechanisms.
//!
//! States: [`ServerExchange::step`] handles each response of the client and returns the next step ([`ServerStep`]). For
//! SCRAM the caller looks up the user's keys in between and passes them to [`ServerExchange::keys`]. After `Password`,
//! `BearerToken`, `Done` or an error no input is accepted.

use crate::binding::Bindings;
use crate::error::SaslError;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::mechanism::Mechanism;
use crate::oauth::{self, BearerToken};
use crate::plain::{self, Credentials, LOGIN_PASSWORD, LOGIN_USER};
use crate::scram::{ScramKeys, ScramServer, user_of_first};

/// The next step after a response.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// Octets for the client, which answers.
    Challenge(Vec<u8>),
    /// Check this password; right or wrong, the exchange has ended.
    Password(Credentials),
    /// Look up this user's keys, or make some up, and call [`ServerExchange::keys`]. The name is prepared (RFC 4013).
    Keys { user: String },
    /// Verify this token; the exchange has ended.
    Token(BearerToken),
    /// The client has proven to be this user.
    Done { user: String, authzid: Option<String> },
}

/// The server's side of an exchange.
#[derive(Debug)]
pub struct ServerExchange {
    mechanism: Mechanism,
    bindings: Bindings,
    offers_plus: bool,
    nonce: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Begun,
    WaitsForPassword {
        user: String,
    },
    WaitsForKeys {
        scram: Box<ScramServer>,
        user: String,
        authzid: Option<String>,
    },
    WaitsForProof {
        scram: Box<ScramServer>,
        user: String,
        authzid: Option<String>,
    },
    /// The client has our signature and must confirm it with an empty response.
    WaitsForConsent {
        user: String,
        authzid: Option<String>,
    },
    Ended,
}

impl ServerExchange {
    /// Begins an exchange. `bindings` are those of the session's TLS. `nonce`: at least 18 random octets as printable
    /// text, e.g. base64; only used by SCRAM.
    pub fn new(mechanism: Mechanism, bindings: Bindings, offers_plus: bool, nonce: &str) -> ServerExchange {
        ServerExchange { mechanism, bindings, offers_plus, nonce: nonce.to_owned(), state: State::Begun }
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Handles a response; the first is `None` if the client sent no initial response (an empty one, `=`, is `Some`).
    pub fn step(&mut self, response: Option<&[u8]>) -> Result<ServerStep, SaslError> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let Some(response) = response else {
            return match state {
                State::Begun => {
                    self.state = State::Begun;
                    let is_login = self.mechanism == Mechanism::Login;
                    Ok(ServerStep::Challenge(if is_login { LOGIN_USER.to_vec() } else { Vec::new() }))
                }
                _ => Err(SaslError::OutOfOrder),
            };
        };
        if response.len() > MESSAGE_BYTES_MAX {
            return Err(SaslError::TooLong);
        }
        match state {
            State::Begun => self.begin(response),
            State::WaitsForPassword { user } => {
                let password = plain::read_password(response)?;
                Ok(ServerStep::Password(Credentials { authzid: None, user, password }))
            }
            State::WaitsForProof { mut scram, user, authzid } => {
                let signature = scram.last(response)?;
                self.state = State::WaitsForConsent { user, authzid };
                Ok(ServerStep::Challenge(signature))
            }
            State::WaitsForConsent { user, authzid } if response.is_empty() => Ok(ServerStep::Done { user, authzid }),
            State::WaitsForConsent { .. } => Err(SaslError::Malformed("unexpected octets after the end")),
            State::WaitsForKeys { .. } | State::Ended => Err(SaslError::OutOfOrder),
        }
    }

    fn begin(&mut self, response: &[u8]) -> Result<ServerStep, SaslError> {
        match self.mechanism {
            Mechanism::Plain => plain::read(response).map(ServerStep::Password),
            Mechanism::Login => {
                self.state = State::WaitsForPassword { user: plain::read_user(response)? };
                Ok(ServerStep::Challenge(LOGIN_PASSWORD.to_vec()))
            }
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => {
                let is_plus = self.mechanism == Mechanism::ScramSha256Plus;
                let (scram, claim) =
                    ScramServer::begin(response, is_plus, self.offers_plus, &self.bindings, &self.nonce)?;
                let (user, authzid) = (claim.user.clone(), claim.authzid);
                self.state = State::WaitsForKeys { scram: Box::new(scram), user, authzid };
                Ok(ServerStep::Keys { user: claim.user })
            }
            Mechanism::OauthBearer => oauth::read_bearer(response).map(ServerStep::Token),
            Mechanism::Xoauth2 => oauth::read_xoauth2(response).map(ServerStep::Token),
            Mechanism::CramMd5 => Err(SaslError::Malformed("this server does not support CRAM-MD5")),
        }
    }

    /// Continues with the keys requested by [`ServerStep::Keys`], and returns the challenge.
    pub fn keys(&mut self, keys: ScramKeys) -> Result<Vec<u8>, SaslError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::WaitsForKeys { mut scram, user, authzid } => {
                let challenge = scram.first(keys);
                self.state = State::WaitsForProof { scram, user, authzid };
                Ok(challenge)
            }
            _ => Err(SaslError::OutOfOrder),
        }
    }
}

/// The user named in a first response, as sent: for a caller that passes the exchange on but needs the name. LOGIN's
/// first response is the name.
pub fn peek_user(mechanism: Mechanism, response: &[u8]) -> Option<String> {
    match mechanism {
        Mechanism::Plain => plain::read(response).ok().map(|one| one.user),
        Mechanism::Login => plain::read_user(response).ok(),
        Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => user_of_first(response),
        Mechanism::OauthBearer => oauth::read_bearer(response).ok()?.user,
        Mechanism::Xoauth2 => oauth::read_xoauth2(response).ok()?.user,
        Mechanism::CramMd5 => None,
    }
}

#[cfg(test)]
mod tests;
