//! Why there is no certificate, in words for whoever has to mend it.

use std::io;
use std::path::PathBuf;

/// Letters of what others have said that are shown.
const SHOWN_CHARS_MAX: usize = 600;

#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The CA cannot be reached, or does not speak ACME.
    #[error("the CA cannot be reached: {0}")]
    Unreachable(String),
    /// The CA has said no.
    #[error("{step}: the CA refuses: {text}")]
    Refused { step: &'static str, text: String, kind: Option<String> },
    /// The CA could not see that the name is ours.
    #[error("{name} could not be proven by {challenge}: {text}")]
    Unproven { name: String, challenge: &'static str, text: String },
    #[error("{step}: the CA answers what cannot be used: {text}")]
    Nonsense { step: &'static str, text: String },
    #[error("the CA sends a certificate that cannot be used: {0}")]
    Certificate(String),
    #[error("{}: {source}", file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("{0}")]
    Settings(String),
    #[error("it takes longer than {0} s")]
    Timeout(u64),
}

impl AcmeError {
    pub(crate) fn file(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> AcmeError {
        move |source| AcmeError::File { file: file.into(), source }
    }

    /// Of a request to the CA.
    pub(crate) fn of(step: &'static str, error: instant_acme::Error) -> AcmeError {
        use instant_acme::Error;
        match error {
            Error::Api(problem) => {
                let kind = problem.r#type.clone();
                AcmeError::Refused { step, text: problem_text(&problem), kind }
            }
            Error::Timeout(_) => AcmeError::Unreachable(format!("{step}: it does not come to an end")),
            // Ours: `client.rs` says what it was.
            Error::Other(error) => AcmeError::Unreachable(plain(&error.to_string())),
            other => AcmeError::Nonsense { step, text: plain(&other.to_string()) },
        }
    }

    /// The CA's word for it, without the prefix that all have.
    pub(crate) fn is_kind(&self, wanted: &str) -> bool {
        let AcmeError::Refused { kind: Some(kind), .. } = self else { return false };
        kind.strip_prefix("urn:ietf:params:acme:error:") == Some(wanted)
    }

    /// The CA has answered, and what was asked about is not there or over.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, AcmeError::Refused { .. } | AcmeError::Nonsense { .. })
    }
}

/// What the CA says is wrong, with what is wrong with each name.
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

/// Without what could end a line or move a cursor, and bounded.
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
        assert_eq!(error.to_string(), "a new order: the CA refuses: too many  [2J certificates (rateLimited)",);
        assert!(error.is_kind("rateLimited") && !error.is_kind("malformed") && error.is_refusal());
        assert_eq!(plain(&"x".repeat(2_000)).len(), SHOWN_CHARS_MAX);
    }
}
