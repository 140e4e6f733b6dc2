//! The client's side of all mechanisms.
//!
//! What the caller does: [`Client::initial`] once; [`Client::respond`] for each challenge; and when the server says that all is well,
//! [`Client::finish`], which is an error if the server should have proven itself and has not. When `respond` fails, the caller
//! cancels the exchange (`*` in SMTP).

use crate::choice::Choice;
use crate::cram;
use crate::error::SaslError;
use crate::limits::{MESSAGE_BYTES_MAX, PASSWORD_BYTES_MAX, TOKEN_BYTES_MAX, USER_BYTES_MAX};
use crate::mechanism::Mechanism;
use crate::oauth;
use crate::plain;
use crate::scram::ScramClient;
use crate::secret::Secret;

/// Whom a client logs in as, and at which server.
#[derive(Debug, Clone)]
pub struct Account {
    pub user: String,
    /// A password, or a token for the mechanisms that take one.
    pub secret: Secret,
    /// As OAUTHBEARER says it to the server; may be empty.
    pub host: String,
    pub port: u16,
}

/// An exchange as its client sees it.
#[derive(Debug)]
pub struct Client {
    mechanism: Mechanism,
    account: Account,
    scram: Option<ScramClient>,
    /// Challenges that were answered.
    answered: u32,
    failure: Option<String>,
}

/// What is kept of a server's account of a token's failure.
const FAILURE_BYTES_MAX: usize = 512;

impl Client {
    /// `nonce`: at least 18 random octets as printable text without commas; used by SCRAM alone.
    pub fn new(choice: &Choice, account: Account, nonce: &str) -> Result<Client, SaslError> {
        let mechanism = choice.mechanism;
        let secret_bytes_max = if mechanism.takes_token() { TOKEN_BYTES_MAX } else { PASSWORD_BYTES_MAX };
        let secret = account.secret.expose();
        if account.user.len() > USER_BYTES_MAX || secret.len() > secret_bytes_max {
            return Err(SaslError::TooLong);
        }
        let separates = |text: &str| text.contains(['\0', '\x01']);
        if account.user.is_empty() || secret.is_empty() || separates(&account.user) || separates(secret) {
            return Err(SaslError::Malformed("no user or secret, or one that cannot be sent"));
        }
        let scram = match mechanism {
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => {
                Some(ScramClient::new(&account.user, &account.secret, &choice.flag, nonce)?)
            }
            _ => None,
        };
        Ok(Client { mechanism, account, scram, answered: 0, failure: None })
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// What is sent with the mechanism's name; None for mechanisms whose server speaks first. In a protocol without initial responses
    /// it answers the first, empty challenge.
    pub fn initial(&self) -> Option<Vec<u8>> {
        let Account { user, secret, host, port } = &self.account;
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
        let Account { user, secret, .. } = &self.account;
        match (self.mechanism, self.answered) {
            // Whatever is asked: some servers have words of their own.
            (Mechanism::Login, 1) => Ok(user.clone().into_bytes()),
            (Mechanism::Login, 2) => Ok(secret.expose().as_bytes().to_vec()),
            (Mechanism::CramMd5, 1) => cram::respond(user, secret, challenge),
            (Mechanism::ScramSha256 | Mechanism::ScramSha256Plus, _) => match &mut self.scram {
                Some(scram) => scram.respond(challenge),
                None => Err(SaslError::OutOfOrder),
            },
            // Both say so by a challenge when a token is refused, and want an answer before they fail.
            (Mechanism::OauthBearer | Mechanism::Xoauth2, 1) => {
                let mut said = String::from_utf8_lossy(challenge).replace(secret.expose(), "(hidden)");
                said.truncate(said.floor_char_boundary(FAILURE_BYTES_MAX));
                self.failure = Some(said);
                Ok(if self.mechanism == Mechanism::OauthBearer { oauth::ACKNOWLEDGED.to_vec() } else { Vec::new() })
            }
            _ => Err(SaslError::OutOfOrder),
        }
    }

    /// The server says that the login has succeeded.
    pub fn finish(&self) -> Result<(), SaslError> {
        match &self.scram {
            Some(scram) if !scram.is_proven() => Err(SaslError::ServerNotProven),
            _ if self.failure.is_some() => Err(SaslError::Refused),
            _ => Ok(()),
        }
    }

    /// What the server said of a token that it refuses: JSON, cut, without the token. It is the server's text: escape it where it is shown.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

#[cfg(test)]
mod tests;
