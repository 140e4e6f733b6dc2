//! Why nobody was logged in, and the reply to it (RFC 4954 section 6, RFC 5248).

use stentor_mail::reply::Reply;
use stentor_sasl::SaslError;

/// The reasons in one word, for metrics; [`Refusal::reason`] is the place in it.
pub(crate) const REASONS: [&str; 8] =
    ["wrong", "locked", "identity", "protocol", "mechanism", "slow", "crowded", "unavailable"];

/// What ends an exchange without a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Password, proof or token is wrong, or there is no such user.
    #[error("wrong user or password")]
    Wrong,
    /// The password is right and the user locked. The client learns no more than that of a wrong one: else a locked user's password could be
    /// guessed, who may have it elsewhere, or be unlocked again. The log says it.
    #[error("user is locked")]
    Locked,
    /// The client asks to act as somebody else than it logs in as.
    #[error("another identity than the user's own is asked for")]
    Identity,
    #[error("{0}")]
    Protocol(SaslError),
    #[error("mechanism is not offered")]
    Mechanism,
    /// Too many wrong ones before: nothing was looked at.
    #[error("too many wrong passwords; next try in {0} s")]
    Slow(u64),
    /// As many are being checked as may.
    #[error("too many logins at a time")]
    Crowded,
    /// Dovecot cannot be asked, or says that it cannot tell now; or another configuration is in force since the session began.
    #[error("authentication service is not available")]
    Unavailable,
}

impl Refusal {
    /// Somebody may have guessed.
    pub fn is_wrong_guess(self) -> bool {
        matches!(self, Refusal::Wrong | Refusal::Locked | Refusal::Protocol(SaslError::Wrong))
    }

    /// The place of its reason in [`REASONS`].
    pub(crate) fn reason(self) -> usize {
        match self {
            Refusal::Wrong | Refusal::Protocol(SaslError::Wrong) => 0,
            Refusal::Locked => 1,
            Refusal::Identity => 2,
            Refusal::Protocol(_) => 3,
            Refusal::Mechanism => 4,
            Refusal::Slow(_) => 5,
            Refusal::Crowded => 6,
            Refusal::Unavailable => 7,
        }
    }

    /// These cannot flood the log: wrong guesses are slowed, and the others take the right password.
    pub(crate) fn is_logged_each_time(self) -> bool {
        self.is_wrong_guess() || matches!(self, Refusal::Identity)
    }

    pub fn reply(self) -> Reply {
        match self {
            Refusal::Wrong | Refusal::Locked | Refusal::Protocol(SaslError::Wrong | SaslError::Unprepared) => {
                Reply::fixed(535, (5, 7, 8), "Authentication credentials invalid")
            }
            Refusal::Identity => Reply::fixed(535, (5, 7, 8), "Authorization identity must be the user's own"),
            Refusal::Protocol(SaslError::TooLong) => {
                Reply::fixed(500, (5, 5, 6), "Authentication exchange line is too long")
            }
            Refusal::Protocol(SaslError::Downgraded | SaslError::OtherChannel | SaslError::NoSuchBinding) => {
                Reply::fixed(535, (5, 7, 8), "Channel binding does not match")
            }
            Refusal::Protocol(_) => Reply::fixed(501, (5, 5, 2), "Malformed authentication response"),
            Refusal::Mechanism => Reply::fixed(504, (5, 5, 4), "Authentication mechanism is not supported"),
            Refusal::Slow(seconds) => {
                Reply::new(454, (4, 7, 0), format!("Too many wrong passwords, try again in {seconds} s"))
            }
            Refusal::Crowded | Refusal::Unavailable => Reply::fixed(454, (4, 7, 0), "Temporary authentication failure"),
        }
    }
}
