//! Why there is no certificate, in words for the operator.

use std::io;
use std::path::PathBuf;

/// Maximum characters shown of others' text.
const SHOWN_CHARS_MAX: usize = 600;

#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The CA cannot be reached, or does not speak ACME.
    #[error("the CA is unreachable: {0}")]
    Unreachable(String),
    /// The CA refused.
    #[error("{step}: refused by the CA: {text}")]
    Refused { step: &'static str, text: String, kind: Option<String> },
    /// The CA could not verify that we control the name.
    #[error("{name} could not be proven by {challenge}: {text}")]
    Unproven { name: String, challenge: &'static str, text: String },
    #[error("{step}: unusable answer from the CA: {text}")]
    Nonsense { step: &'static str, text: String },
    #[error("the CA sent an unusable certificate: {0}")]
    Certificate(String),
    #[error("{}: {source}", file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("{0}")]
    Settings(String),
    #[error("not finished within {0} s")]
    Timeout(u64),
}

impl AcmeError {
    pub(crate) fn file(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> AcmeError {
        move |source| AcmeError::File { file: file.into(), source }
    }

    /// Converts the error of a request to the CA.
    pub(crate) fn of(step: &'static str, error: instant_acme::Error) -> AcmeError {
        use instant_acme::Error;
        match error {
            Error::Api(problem) => {
                let kind = problem.r#type.clone();
                AcmeError::Refused { step, text: problem_text(&problem), kind }
            }
            Error::Timeout(_) => AcmeError::Unreachable(format!("{step}: timed out")),
            // Our own error, with the text from `client.rs`.
            Error::Other(error) => AcmeError::Unreachable(plain(&error.to_string())),
            other => AcmeError::Nonsense { step, text: plain(&other.to_string()) },
        }
    }

    /// Whether the CA's error type, without the common prefix, is this one.
    pub(crate) fn is_kind(&self, wanted: &str) -> bool {
        let AcmeError::Refused { kind: Some(kind), .. } = self else { return false };
        kind.strip_prefix("urn:ietf:params:acme:error:") == Some(wanted)
    }

    /// Whether the CA answered that the requested object does not exist or is no longer valid.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, AcmeError::Refused { .. } | AcmeError::Nonsense { .. })
    }
}

/// Formats the CA's problem, with the problems of each name.
pub(crate) fn problem_text(problem: &instant_acme::Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_default();
    for part in &problem.subproblems {
        text = format!("{text}; {part}");
    }
    if let Some(kind) = &problem.r#type {
        text = format!("{text} ({})", kind.rsplit(':').next().unwrap_or_default());
    }
    plain(&text)
}

/// Removes characters that end a line or move a cursor, and limits the length.
pub(crate) fn plain(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ca_says_is_shown_on_one_line() {
        let json = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many\n\u001b[2J certificates","status":429}"#;
        let problem: instant_acme::Problem = serde_json::from_str(json).unwrap();
        let error = AcmeError::of("a new order", instant_acme::Error::Api(problem));
        assert_eq!(error.to_string(), "a new order: refused by the CA: too many  [2J certificates (rateLimited)",);
        assert!(error.is_kind("rateLimited") && !error.is_kind("malformed") && error.is_refusal());
        assert_eq!(plain(&"x".repeat(2_000)).len(), SHOWN_CHARS_MAX);
    }
}
