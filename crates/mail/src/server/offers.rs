//! What a session offers by the state of its connection: TLS, AUTH, REQUIRETLS; and what it asks for in turn.
//!
//! One value is shared by all sessions of the same kind (those in clear of a listener, those secured of it), so that a
//! session holds a pointer, or none.

/// What is offered and asked for. The default: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    /// STARTTLS (RFC 3207), as long as the session is in clear.
    pub starttls: bool,
    /// Mechanisms of AUTH (RFC 4954) separated by spaces, as EHLO lists them; empty: none now.
    pub auth: String,
    /// There will be some once the session is secured: AUTH before that gets 538.
    pub auth_after_tls: bool,
    /// Nothing is taken in clear but NOOP, EHLO, STARTTLS and QUIT (RFC 3207 section 4).
    pub require_tls: bool,
    /// No MAIL before AUTH (RFC 4954 section 6).
    pub require_auth: bool,
    /// REQUIRETLS (RFC 8689), once the session is secured.
    pub requiretls: bool,
}

/// What a session without offers has.
pub(super) static NOTHING: Offers = Offers {
    starttls: false,
    auth: String::new(),
    auth_after_tls: false,
    require_tls: false,
    require_auth: false,
    requiretls: false,
};

impl Offers {
    /// Whether AUTH may use this mechanism.
    pub(super) fn has_mechanism(&self, mechanism: &str) -> bool {
        self.auth.split_ascii_whitespace().any(|offered| offered.eq_ignore_ascii_case(mechanism))
    }
}
