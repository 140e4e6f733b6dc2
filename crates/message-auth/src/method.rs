//! Results that methods of message authentication have in common (RFC 8601 section 2.7).

/// Result of one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodResult {
    /// There is nothing to check.
    None,
    Pass,
    Fail,
    SoftFail,
    Neutral,
    /// It would pass, but is not acceptable.
    Policy,
    TempError,
    PermError,
}

impl MethodResult {
    pub fn word(self) -> &'static str {
        match self {
            MethodResult::None => "none",
            MethodResult::Pass => "pass",
            MethodResult::Fail => "fail",
            MethodResult::SoftFail => "softfail",
            MethodResult::Neutral => "neutral",
            MethodResult::Policy => "policy",
            MethodResult::TempError => "temperror",
            MethodResult::PermError => "permerror",
        }
    }
}
