//! Why a login was refused, and the reply (RFC 4954 section 6, RFC 5248).

use stentor_mail::reply::{Enhanced, Reply};
use stentor_sasl::SaslError;

/// The reasons in one word, for metrics; [`LoginRefusal::reason`] is the index.
pub(crate) const REASONS: [&str; 8] =
    ["wrong", "locked", "identity", "protocol", "mechanism", "slow", "crowded", "unavailable"];

/// Why an exchange ended without a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefusal {
    /// Password, proof or token is wrong, or there is no such user.
    #[error("wrong user or password")]
    Wrong,
    /// The password is right but the user is locked. The client gets the same reply as for a wrong one: otherwise the
    /// password of a locked user could be guessed, who may use it elsewhere or be unlocked later. The log has the
    /// reason.
    #[error("user is locked")]
    Locked,
    /// The client asks to act as another user than it logs in as.
    #[error("requested identity is not the user's own")]
    Identity,
    #[error("{0}")]
    Protocol(SaslError),
    #[error("mechanism not offered")]
    Mechanism,
    /// Too many wrong guesses before: nothing was checked.
    #[error("too many wrong passwords; next try in {0} s")]
    Slow(u64),
    /// The maximum of running checks is reached.
    #[error("too many concurrent logins")]
    Crowded,
    /// Dovecot is unreachable or reports a temporary failure; or another configuration came into force since the
    /// session began.
    #[error("authentication service unavailable")]
    Unavailable,
}

impl LoginRefusal {
    /// Whether it may have been a guess.
    pub fn is_wrong_guess(self) -> bool {
        matches!(self, LoginRefusal::Wrong | LoginRefusal::Locked | LoginRefusal::Protocol(SaslError::Wrong))
    }

    /// The index of its reason in [`REASONS`].
    pub(crate) fn reason(self) -> usize {
        match self {
            LoginRefusal::Wrong | LoginRefusal::Protocol(SaslError::Wrong) => 0,
            LoginRefusal::Locked => 1,
            LoginRefusal::Identity => 2,
            LoginRefusal::Protocol(_) => 3,
            LoginRefusal::Mechanism => 4,
            LoginRefusal::Slow(_) => 5,
            LoginRefusal::Crowded => 6,
            LoginRefusal::Unavailable => 7,
        }
    }

    /// These cannot flood the log: wrong guesses are slowed, and the others need the right password.
    pub(crate) fn is_logged_each_time(self) -> bool {
        self.is_wrong_guess() || matches!(self, LoginRefusal::Identity)
    }

    pub fn reply(self) -> Reply {
        match self {
            LoginRefusal::Wrong
            | LoginRefusal::Locked
            | LoginRefusal::Protocol(SaslError::Wrong | SaslError::Unprepared) => {
                Reply::fixed(535, Enhanced::new(5, 7, 8), "Authentication credentials invalid")
            }
            LoginRefusal::Identity => {
                Reply::fixed(535, Enhanced::new(5, 7, 8), "Authorization identity must be the user's own")
            }
            LoginRefusal::Protocol(SaslError::TooLong) => {
                Reply::fixed(500, Enhanced::new(5, 5, 6), "Authentication exchange line is too long")
            }
            LoginRefusal::Protocol(SaslError::Downgraded | SaslError::OtherChannel | SaslError::NoSuchBinding) => {
                Reply::fixed(535, Enhanced::new(5, 7, 8), "Channel binding does not match")
            }
            LoginRefusal::Protocol(_) => Reply::fixed(501, Enhanced::new(5, 5, 2), "Malformed authentication response"),
            LoginRefusal::Mechanism => {
                Reply::fixed(504, Enhanced::new(5, 5, 4), "Authentication mechanism is not supported")
            }
            LoginRefusal::Slow(seconds) => {
                Reply::new(454, Enhanced::new(4, 7, 0), format!("Too many wrong passwords, try again in {seconds} s"))
            }
            LoginRefusal::Crowded | LoginRefusal::Unavailable => {
                Reply::fixed(454, Enhanced::new(4, 7, 0), "Temporary authentication failure")
            }
        }
    }
}
