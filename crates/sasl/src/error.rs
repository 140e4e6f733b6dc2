//! Why an exchange failed. No error contains a secret or other data that was sent.

/// The reason why an exchange ended without a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SaslError {
    /// Does not match the mechanism's grammar.
    #[error("malformed authentication message: {0}")]
    Malformed(&'static str),
    #[error("authentication message is too long")]
    TooLong,
    /// `SASLprep` forbids the name or password (RFC 4013).
    #[error("name or password contains characters that are not allowed")]
    Unprepared,
    /// Password, proof or token is wrong, or the user is unknown: one error, so that they cannot be distinguished.
    #[error("authentication failed")]
    Wrong,
    /// The client supports channel binding but did not see our offer: an attacker is in the middle (RFC 5802 section
    /// 6).
    #[error("the offer of channel binding was removed: possible attack")]
    Downgraded,
    /// The client is bound to another TLS session: an attacker is in the middle, or TLS ends before us.
    #[error("channel binding does not match: TLS and SASL have different endpoints")]
    OtherChannel,
    #[error("this type of channel binding is not available")]
    NoSuchBinding,
    /// A mandatory extension that is not supported (RFC 5802 section 5.1, `m=`).
    #[error("unknown mandatory SCRAM extension")]
    UnknownExtension,
    /// SCRAM's iteration count is outside our limits.
    #[error("SCRAM with {0} iterations is not accepted")]
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
    /// A message after the last.
    #[error("message out of order")]
    OutOfOrder,
}
