//! Exit codes of sysexits(3), and a failure: a code with the line that goes to standard error.

use std::fmt;

pub const EX_OK: u8 = 0;
/// Wrong options, or no recipient.
pub const EX_USAGE: u8 = 64;
/// The message or an argument cannot be taken as it is.
pub const EX_DATAERR: u8 = 65;
/// No recipient is an address.
pub const EX_NOUSER: u8 = 67;
/// Larger than allowed, or too many recipients.
pub const EX_UNAVAILABLE: u8 = 69;
/// The user is not known to the system.
pub const EX_OSERR: u8 = 71;
/// Nothing was stored; the same call may succeed later.
pub const EX_TEMPFAIL: u8 = 75;
pub const EX_NOPERM: u8 = 77;
pub const EX_CONFIG: u8 = 78;

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    pub text: String,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::new(EX_USAGE, text)
    }

    /// Something of the system that may be mended.
    pub fn later(text: impl Into<String>) -> Failure {
        Failure::new(EX_TEMPFAIL, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
