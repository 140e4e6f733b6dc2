//! The client's side of all mechanisms.
//!
//! The caller uses [`ClientExchange::initial`] once, [`ClientExchange::respond`] for each challenge, and
//! [`ClientExchange::finish`] when the server reports success; that is an error if the server had to prove itself and
//! did not. When `respond` fails, the caller cancels the exchange (`*` in SMTP).

use crate::choice::MechanismChoice;
use crate::cram;
use crate::error::SaslError;
use crate::limits::{MESSAGE_BYTES_MAX, PASSWORD_BYTES_MAX, TOKEN_BYTES_MAX, USER_BYTES_MAX};
use crate::mechanism::Mechanism;
use crate::oauth;
use crate::plain;
use crate::scram::ScramClient;
use crate::secret::Secret;

/// The user and secret to log in with, and the server.
#[derive(Debug, Clone)]
pub struct ClientCredentials {
    pub user: String,
    /// A password, or a token for mechanisms with tokens.
    pub secret: Secret,
    /// Sent to the server by OAUTHBEARER; may be empty.
    pub host: String,
    pub port: u16,
}

/// The client's side of an exchange.
#[derive(Debug)]
pub struct ClientExchange {
    mechanism: Mechanism,
    account: ClientCredentials,
    scram: Option<ScramClient>,
    /// Number of challenges answered.
    answered: u32,
    failure: Option<String>,
}

/// Maximum octets kept of a server's error about a token.
const FAILURE_BYTES_MAX: usize = 512;

impl ClientExchange {
    /// Begins an exchange. `nonce`: at least 18 random octets as printable text without commas; only used by SCRAM.
    pub fn new(choice: &MechanismChoice, account: ClientCredentials, nonce: &str) -> Result<ClientExchange, SaslError> {
        let mechanism = choice.mechanism;
        let secret_bytes_max = if mechanism.takes_token() { TOKEN_BYTES_MAX } else { PASSWORD_BYTES_MAX };
        let secret = account.secret.expose();
        if account.user.len() > USER_BYTES_MAX || secret.len() > secret_bytes_max {
            return Err(SaslError::TooLong);
        }
        let separates = |text: &str| text.contains(['\0', '\x01']);
        if account.user.is_empty() || secret.is_empty() || separates(&account.user) || separates(secret) {
            return Err(SaslError::Malformed("user or secret is missing or cannot be sent"));
        }
        let scram = match mechanism {
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => {
                Some(ScramClient::new(&account.user, &account.secret, &choice.flag, nonce)?)
            }
            _ => None,
        };
        Ok(ClientExchange { mechanism, account, scram, answered: 0, failure: None })
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The data to send with the mechanism's name; `None` if the server sends first. In a protocol without initial
    /// responses it answers the first, empty challenge.
    pub fn initial(&self) -> Option<Vec<u8>> {
        let ClientCredentials { user, secret, host, port } = &self.account;
        match self.mechanism {
            Mechanism::Plain => Some(plain::write(user, secret)),
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => self.scram.as_ref().map(ScramClient::first),
            Mechanism::OauthBearer => Some(oauth::write_bearer(user, secret, host, *port)),
            Mechanism::Xoauth2 => Some(oauth::write_xoauth2(user, secret)),
            Mechanism::Login | Mechanism::CramMd5 => None,
        }
    }

    /// Answers a challenge.
    pub fn respond(&mut self, challenge: &[u8]) -> Result<Vec<u8>, SaslError> {
        if challenge.len() > MESSAGE_BYTES_MAX {
            return Err(SaslError::TooLong);
        }
        self.answered = self.answered.saturating_add(1);
        let ClientCredentials { user, secret, .. } = &self.account;
        match (self.mechanism, self.answered) {
            // Whatever the prompt says: some servers have their own words.
            (Mechanism::Login, 1) => Ok(user.clone().into_bytes()),
            (Mechanism::Login, 2) => Ok(secret.expose().as_bytes().to_vec()),
            (Mechanism::CramMd5, 1) => cram::respond(user, secret, challenge),
            (Mechanism::ScramSha256 | Mechanism::ScramSha256Plus, _) => match &mut self.scram {
                Some(scram) => scram.respond(challenge),
                None => Err(SaslError::OutOfOrder),
            },
            // Both report a refused token in a challenge, and expect an answer before they fail.
            (Mechanism::OauthBearer | Mechanism::Xoauth2, 1) => {
                let mut said = String::from_utf8_lossy(challenge).replace(secret.expose(), "(hidden)");
                said.truncate(said.floor_char_boundary(FAILURE_BYTES_MAX));
                self.failure = Some(said);
                Ok(if self.mechanism == Mechanism::OauthBearer { oauth::ACKNOWLEDGED.to_vec() } else { Vec::new() })
            }
            _ => Err(SaslError::OutOfOrder),
        }
    }

    /// Call it when the server reports success.
    pub fn finish(&self) -> Result<(), SaslError> {
        match &self.scram {
            Some(scram) if !scram.is_proven() => Err(SaslError::ServerNotProven),
            _ if self.failure.is_some() => Err(SaslError::Refused),
            _ => Ok(()),
        }
    }

    /// The server's error about a refused token: JSON, cut, without the token. It is text from outside: escape it for
    /// display.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

#[cfg(test)]
mod tests;
