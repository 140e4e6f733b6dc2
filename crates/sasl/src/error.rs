//! Why an exchange failed. None of these holds a secret or anything else of what was sent.

/// What ends an exchange without a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SaslError {
    /// Not what the mechanism's grammar has.
    #[error("malformed message of the mechanism: {0}")]
    Malformed(&'static str),
    #[error("message of the mechanism is longer than the limit")]
    TooLong,
    /// A name or password that `SASLprep` forbids (RFC 4013).
    #[error("name or password holds characters that are not allowed")]
    Unprepared,
    /// Password, proof or token is wrong, or the user is not known: one error, so that neither can be told from the other.
    #[error("authentication failed")]
    Wrong,
    /// The client knows of channel binding and was kept from seeing that we offer it: somebody is in the middle (RFC 5802
    /// section 6).
    #[error("channel binding was taken out of what we offer: somebody is in between")]
    Downgraded,
    /// The client is bound to another TLS session than ours: somebody is in the middle, or ends TLS before us.
    #[error("channel binding does not match: TLS does not end where SASL does")]
    OtherChannel,
    #[error("this channel binding is not there")]
    NoSuchBinding,
    /// An extension that must be understood (RFC 5802 section 5.1, `m=`).
    #[error("a mandatory extension of SCRAM is not known")]
    UnknownExtension,
    /// SCRAM's iterations are fewer or more than we take.
    #[error("SCRAM with {0} iterations is refused")]
    Iterations(u32),
    /// The server did not prove that it knows the user's keys.
    #[error("the server did not prove that it knows the password")]
    ServerNotProven,
    /// The server's nonce does not begin with ours.
    #[error("the server's nonce is not an extension of ours")]
    ForeignNonce,
    /// SCRAM's `e=`, or the status of a token's failure.
    #[error("refused by the server")]
    Refused,
    /// A message beyond the last.
    #[error("message out of order")]
    OutOfOrder,
}
