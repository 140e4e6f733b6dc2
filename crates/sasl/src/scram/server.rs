//! The server's side of SCRAM.
//!
//! States: waits for the first message -> waits for the caller's keys -> waits for the proof -> proven. An error ends
//! it. Nonce, salt and iterations are sent to every client, for made-up users too; whether a user exists matters only
//! at the end, where it gives the same error as a wrong proof.

use base64ct::{Base64, Encoding as _};

use super::keys::{Key, ScramKeys, hash, mac, xor};
use super::text::{ClientFinal, ClientFirst, Flag, text_of};
use crate::binding::Bindings;
use crate::error::SaslError;
use crate::limits::USER_BYTES_MAX;
use crate::prep::prepare;
use crate::secret::is_same;

#[derive(Debug)]
pub(crate) struct ScramServer {
    /// The expected value of `c=`.
    binding: Vec<u8>,
    bare: String,
    /// The full nonce: the client's and ours.
    nonce: String,
    server_first: String,
    keys: Option<ScramKeys>,
}

/// The user that a client claims to be.
#[derive(Debug)]
pub(crate) struct Claim {
    pub user: String,
    pub authzid: Option<String>,
}

impl ScramServer {
    /// Parses the first message. `is_plus`: the mechanism is the bound one; `offers_plus`: the bound one was offered;
    /// `nonce` is random and printable.
    pub fn begin(
        message: &[u8],
        is_plus: bool,
        offers_plus: bool,
        bindings: &Bindings,
        nonce: &str,
    ) -> Result<(ScramServer, Claim), SaslError> {
        let first = ClientFirst::parse(text_of(message)?)?;
        let mut binding = first.gs2_header.as_bytes().to_vec();
        match (first.flag, is_plus) {
            // RFC 5802 section 6: the client would have taken the bound mechanism, had it seen it.
            (Flag::ServerCannot, false) if offers_plus => return Err(SaslError::Downgraded),
            (Flag::Not | Flag::ServerCannot, false) => {}
            (Flag::Not | Flag::ServerCannot, true) => {
                return Err(SaslError::Malformed("the mechanism binds to the channel but the client does not"));
            }
            (Flag::Bound(_), false) => {
                return Err(SaslError::Malformed(
                    "the client binds to the channel but the \
                mechanism does not",
                ));
            }
            (Flag::Bound(kind), true) => {
                let data = kind.and_then(|kind| bindings.get(kind)).ok_or(SaslError::NoSuchBinding)?;
                binding.extend_from_slice(data);
            }
        }
        // A name that cannot be prepared belongs to nobody, and fails at the end like others.
        let user =
            prepare(&first.user, USER_BYTES_MAX).map_or_else(|_| first.user.clone(), std::borrow::Cow::into_owned);
        let nonce = format!("{}{nonce}", first.nonce);
        let server =
            ScramServer { binding, bare: first.bare.to_owned(), nonce, server_first: String::new(), keys: None };
        Ok((server, Claim { user, authzid: first.authzid }))
    }

    /// Sets the user's keys and returns the challenge with salt and iterations.
    pub fn first(&mut self, keys: ScramKeys) -> Vec<u8> {
        self.server_first = format!("r={},s={},i={}", self.nonce, Base64::encode_string(&keys.salt), keys.iterations);
        self.keys = Some(keys);
        self.server_first.clone().into_bytes()
    }

    /// Checks the proof and returns our signature, which shows the client that we have the keys.
    pub fn last(&mut self, message: &[u8]) -> Result<Vec<u8>, SaslError> {
        let keys = self.keys.take().ok_or(SaslError::OutOfOrder)?;
        let last = ClientFinal::parse(text_of(message)?)?;
        if !is_same(last.nonce.as_bytes(), self.nonce.as_bytes()) {
            return Err(SaslError::ForeignNonce);
        }
        if !is_same(&last.binding, &self.binding) {
            return Err(SaslError::OtherChannel);
        }
        let signed: [&[u8]; 5] =
            [self.bare.as_bytes(), b",", self.server_first.as_bytes(), b",", last.without_proof.as_bytes()];
        let client_key: Key = xor(&last.proof, &mac(&keys.stored_key, &signed));
        let is_right = is_same(&hash(&client_key), &keys.stored_key);
        let signature = mac(&keys.server_key, &signed);
        if !is_right || keys.is_made_up {
            return Err(SaslError::Wrong);
        }
        Ok(format!("v={}", Base64::encode_string(&signature)).into_bytes())
    }
}
