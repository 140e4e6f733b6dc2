//! The client's side of SCRAM.
//!
//! States: first sent -> proof sent -> the server is proven. A server that is not proven at the end does not know the
//! keys, so its success is an error.

use base64ct::{Base64, Encoding as _};
use zeroize::Zeroize as _;

use super::keys::{Key, client_key, hash, mac, salted_password, server_key, xor};
use super::text::{ServerFirst, parse_server_final, text_of, write_name};
use crate::choice::ClientFlag;
use crate::error::SaslError;
use crate::limits::{ITERATIONS_MAX, ITERATIONS_MIN, PASSWORD_BYTES_MAX, USER_BYTES_MAX};
use crate::prep::prepare;
use crate::secret::{Secret, is_same};

#[derive(Debug)]
enum State {
    WaitsForSalt(Secret),
    WaitsForSignature(Key),
    Proven,
    Ended,
}

#[derive(Debug)]
pub(crate) struct ScramClient {
    gs2_header: String,
    binding: Vec<u8>,
    bare: String,
    nonce: String,
    state: State,
}

impl ScramClient {
    /// Begins an exchange; `nonce` is random and printable.
    pub fn new(user: &str, password: &Secret, flag: &ClientFlag, nonce: &str) -> Result<ScramClient, SaslError> {
        let user = prepare(user, USER_BYTES_MAX).map_err(|_| SaslError::Unprepared)?;
        let password = prepare(password.expose(), PASSWORD_BYTES_MAX).map_err(|_| SaslError::Unprepared)?;
        let gs2_header = match flag {
            ClientFlag::Not => "n,,".to_owned(),
            ClientFlag::ServerCannot => "y,,".to_owned(),
            ClientFlag::Bound(binding) => format!("p={},,", binding.kind.name()),
        };
        let mut binding = gs2_header.clone().into_bytes();
        if let ClientFlag::Bound(bound) = flag {
            binding.extend_from_slice(&bound.data);
        }
        let bare = format!("n={},r={nonce}", write_name(&user));
        let state = State::WaitsForSalt(Secret::new(password.into_owned()));
        Ok(ScramClient { gs2_header, binding, bare, nonce: nonce.to_owned(), state })
    }

    pub fn first(&self) -> Vec<u8> {
        format!("{}{}", self.gs2_header, self.bare).into_bytes()
    }

    pub fn respond(&mut self, challenge: &[u8]) -> Result<Vec<u8>, SaslError> {
        let text = text_of(challenge)?;
        match std::mem::replace(&mut self.state, State::Ended) {
            State::WaitsForSalt(password) => self.prove(text, &password),
            State::WaitsForSignature(wanted) => {
                if !is_same(&parse_server_final(text)?, &wanted) {
                    return Err(SaslError::ServerNotProven);
                }
                self.state = State::Proven;
                Ok(Vec::new())
            }
            State::Proven | State::Ended => Err(SaslError::OutOfOrder),
        }
    }

    fn prove(&mut self, server_first: &str, password: &Secret) -> Result<Vec<u8>, SaslError> {
        let first = ServerFirst::parse(server_first)?;
        // Our nonce, and at least one octet of the server's.
        if first.nonce.strip_prefix(self.nonce.as_str()).is_none_or(str::is_empty) {
            return Err(SaslError::ForeignNonce);
        }
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&first.iterations) {
            return Err(SaslError::Iterations(first.iterations));
        }
        let mut salted = salted_password(password.expose().as_bytes(), &first.salt, first.iterations);
        let mut client = client_key(&salted);
        let without_proof = format!("c={},r={}", Base64::encode_string(&self.binding), first.nonce);
        let signed: [&[u8]; 5] = [self.bare.as_bytes(), b",", server_first.as_bytes(), b",", without_proof.as_bytes()];
        let proof = xor(&client, &mac(&hash(&client), &signed));
        self.state = State::WaitsForSignature(mac(&server_key(&salted), &signed));
        salted.zeroize();
        client.zeroize();
        Ok(format!("{without_proof},p={}", Base64::encode_string(&proof)).into_bytes())
    }

    pub fn is_proven(&self) -> bool {
        matches!(self.state, State::Proven)
    }
}
