//! Exit codes of sysexits(3), and failures: a code with a line for standard error.

use std::fmt;

pub const EX_OK: u8 = 0;
/// Invalid options, or no recipient.
pub const EX_USAGE: u8 = 64;
/// The message or an argument cannot be accepted.
pub const EX_DATAERR: u8 = 65;
/// No recipient is a valid address.
pub const EX_NOUSER: u8 = 67;
/// The message is too large, or has too many recipients.
pub const EX_UNAVAILABLE: u8 = 69;
/// The system does not know the user.
pub const EX_OSERR: u8 = 71;
/// Nothing was stored; the same call may succeed later.
pub const EX_TEMPFAIL: u8 = 75;
pub const EX_NOPERM: u8 = 77;
pub const EX_CONFIG: u8 = 78;

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitError {
    pub code: u8,
    pub text: String,
}

impl ExitError {
    pub fn new(code: u8, text: impl Into<String>) -> ExitError {
        ExitError { code, text: text.into() }
    }

    pub fn usage(text: impl Into<String>) -> ExitError {
        ExitError::new(EX_USAGE, text)
    }

    /// A system failure that may be temporary.
    pub fn later(text: impl Into<String>) -> ExitError {
        ExitError::new(EX_TEMPFAIL, text)
    }
}

impl fmt::Display for ExitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
