//! Offers and requirements of a session in its current state: TLS, AUTH, REQUIRETLS.
//!
//! One value is shared by all sessions of the same kind (a listener's cleartext ones, or its secured ones), so that a
//! session holds a pointer, or none.

/// Offers and requirements; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    /// STARTTLS (RFC 3207), while the session is in clear.
    pub starttls: bool,
    /// Mechanisms of AUTH (RFC 4954) separated by spaces, as EHLO lists them; empty: none now.
    pub auth: String,
    /// Mechanisms will be offered once the session is secured: AUTH before that gets 538.
    pub auth_after_tls: bool,
    /// In clear only NOOP, EHLO, STARTTLS and QUIT are accepted (RFC 3207 section 4).
    pub require_tls: bool,
    /// No MAIL before AUTH (RFC 4954 section 6).
    pub require_auth: bool,
    /// REQUIRETLS (RFC 8689), once the session is secured.
    pub requiretls: bool,
}

/// Offers of a session without any.
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
